"""The first call of a long program takes a number of steps of Python that grows with its length, not faster.

Counted are bytecodes, which comprehensions run as well, so that none of them goes over all there is for each part.
"""

import itertools
import random
import sys

import pytest

import weft as wf
import weft.module as M
import weft.optimizer as optim
from weft.executor.memory import IN_PAIRS, ArenaBlock, aligned, lay_out

SMALL, LARGE = 16, 80
MOST = 1.06 * LARGE / SMALL  # times the bytecodes; there is more that is done only once


def bytecodes(function):
    """How many bytecodes of Python a call runs."""
    count = 0

    def note(*_):
        nonlocal count
        count += 1

    def trace(frame, event, _):
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode":
            note()
        return trace

    if not hasattr(sys, "monitoring"):
        sys.settrace(trace)
        try:
            function()
        finally:
            sys.settrace(None)
        return count
    tools = sys.monitoring  # from 3.12 on; traces miss opcodes of code that has run before
    tools.use_tool_id(tools.PROFILER_ID, "weft")
    tools.register_callback(tools.PROFILER_ID, tools.events.INSTRUCTION, note)
    tools.set_events(tools.PROFILER_ID, tools.events.INSTRUCTION)
    try:
        function()
    finally:
        tools.set_events(tools.PROFILER_ID, 0)
        tools.register_callback(tools.PROFILER_ID, tools.events.INSTRUCTION, None)
        tools.free_tool_id(tools.PROFILER_ID)
    return count


def first_step(size):
    parameters = [wf.ones(3) for _ in range(size)]
    for p in parameters:
        p.grad = wf.ones(3)
    return optim.Adam(parameters).step


def eager_concat(size):
    parts = [wf.ones(2 + k % 2) for k in range(size)]
    return lambda: wf.concat(parts)


def traced_concat(size):
    parts = [wf.ones(2 + k % 2) for k in range(size)]
    f = wf.trace(lambda parts: wf.concat(parts))
    return lambda: f(parts)


def training_step(size):
    net = M.Sequential(*[layer for _ in range(size // 8) for layer in (M.Linear(4, 4), M.ReLU())])
    optimizer = optim.Adam(list(net.parameters()))
    manager = wf.GradManager().attach(list(net.parameters()))

    @wf.trace
    def step(x):
        with manager:
            loss = (net(x) ** 2).mean()
            manager.backward(loss)
        optimizer.step()
        optimizer.clear_grad()
        return loss

    x = wf.ones((2, 4))
    return lambda: step(x)


@pytest.mark.parametrize("program", [first_step, eager_concat, traced_concat, training_step])
def test_first_calls_are_linear(program):
    program(8)()  # what is imported, and kernels
    small, large = (bytecodes(program(size)) for size in (SMALL, LARGE))
    wf.waitall()
    assert large < MOST * small, f"{small} bytecodes for {SMALL}, {large} for {LARGE}"


def blocks(count):
    """Of few sizes, as in programs; those of a forward pass live until the backward pass comes to them."""
    drawn = random.Random(count)
    sizes = [64 << drawn.randrange(4) for _ in range(count)]
    ends = [2 * count - k if k % 2 else k + drawn.randrange(1, 20) for k in range(count)]
    return [ArenaBlock(k, sizes[k], k, ends[k]) for k in range(count)]


def test_plans_of_memory_are_nearly_linear():
    small, large = (bytecodes(lambda count=count: lay_out(blocks(count))) for count in (1000, 4000))
    assert large < 5 * small


def test_plans_of_memory_for_many_blocks():
    many = blocks(4 * IN_PAIRS)
    plan = lay_out(many)
    assert plan.arena_bytes <= 1.05 * plan.largest_live_bytes
    for step in range(0, 8 * IN_PAIRS, 101):
        alive = [b for b in many if b.first <= step <= b.last]
        spans = sorted((plan.offsets[b.key], plan.offsets[b.key] + aligned(b.size_bytes)) for b in alive)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
