"""The memory plan: no two living blocks overlap, and the arena is hardly larger than what is alive at once."""

import random

import pytest

from weft.executor.memory import ALIGNMENT, ArenaBlock, aligned, largest_live_bytes, lay_out
from weft.executor.planner import make_plan


def check(blocks, plan, guard_bytes=0):
    """Whether a plan is sound, by looking at every pair."""
    for k, a in enumerate(blocks):
        begin = plan.offsets[a.key]
        assert begin % ALIGNMENT == 0
        assert begin >= 0
        assert not a.size_bytes or begin + a.size_bytes + guard_bytes <= plan.arena_bytes
        for b in blocks[k + 1 :]:
            together = a.first <= b.last and b.first <= a.last and a.size_bytes and b.size_bytes
            other = plan.offsets[b.key]
            apart = begin + a.size_bytes + guard_bytes <= other or other + b.size_bytes + guard_bytes <= begin
            assert apart or not together, (a, b)


def random_blocks(seed, count=60, steps=40):
    r = random.Random(seed)
    blocks = []
    for key in range(count):
        first = r.randrange(steps)
        last = first + int(r.expovariate(0.3))
        size = r.choice([0, 1, 64, r.randrange(100), r.randrange(1 << 20), 1 << r.randrange(22)])
        blocks.append(ArenaBlock(key, size, first, last))
    return blocks


@pytest.mark.parametrize("seed", range(40))
def test_random_lifetimes(seed):
    blocks = random_blocks(seed)
    plan = lay_out(blocks)
    check(blocks, plan)
    assert plan.largest_live_bytes == largest_live_bytes(blocks) == slow_largest_live(blocks)
    assert plan.arena_bytes >= plan.largest_live_bytes
    assert plan.arena_bytes <= 1.25 * plan.largest_live_bytes  # lifetimes of a program do better, see below


def slow_largest_live(blocks):
    steps = range(max(b.last for b in blocks) + 1)
    return max(sum(aligned(b.size_bytes) for b in blocks if b.first <= t <= b.last) for t in steps)


def test_guard_zones_are_left():
    blocks = random_blocks(3)
    check(blocks, lay_out(blocks, 64), 64)


def test_nothing_to_place():
    assert lay_out([]).arena_bytes == 0
    plan = lay_out([ArenaBlock("empty", 0, 0, 5)])
    assert (plan.arena_bytes, plan.offsets) == (0, {"empty": 0})


def test_a_stack_needs_no_more_than_its_depth():
    blocks = [ArenaBlock(k, 1000 * (k + 1), k, 40 - k) for k in range(20)]
    plan = lay_out(blocks)
    assert plan.arena_bytes == plan.largest_live_bytes


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="block a: -1 bytes in steps 0 to 1"):
        ArenaBlock("a", -1, 0, 1)
    with pytest.raises(ValueError, match="steps 2 to 1"):
        ArenaBlock("a", 1, 2, 1)


@pytest.mark.parametrize("name", ["alexnet", "googlenet", "vgg16"])
@pytest.mark.parametrize(("kind", "least"), [("training", 2), ("prediction", 4)])
def test_internal_memory_of_networks(networks, name, kind, least):
    """The MXNet paper's figures, Chen et al. 2015, arXiv:1512.01274, at batch 64."""
    graph = getattr(networks, f"{kind}_graph")(name)
    report = make_plan(graph, name, exact=True).info.memory_report()
    assert report.arena_bytes <= 1.05 * report.largest_live_bytes
    assert report.naive_bytes >= least * report.arena_bytes
    assert report.naive_bytes >= report.merged_bytes >= report.in_place_bytes >= report.arena_bytes
    assert max(life.offset + life.size_bytes for life in report.lifetimes) <= report.arena_bytes
    assert "largest live set" in str(report)
