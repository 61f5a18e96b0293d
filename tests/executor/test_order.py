"""The order of steps: dependencies hold, and what frees memory runs early."""

import random

import pytest

from weft.executor.order import Task, ordered
from weft.executor.planner import make_plan


def chain_of_gradients(layers):
    """Gradients one after the other, then all updates: as a program is written."""
    tasks, size = [], {}
    for k in range(layers):
        needs = {k - 1} if k else set()
        reads = {f"slope {k - 1}"} if k else set()
        tasks.append(Task(k, frozenset(needs), frozenset(reads), frozenset({f"slope {k}", f"gradient {k}"})))
        size |= {f"slope {k}": 10, f"gradient {k}": 1000}
    for k in range(layers):
        tasks.append(Task(layers + k, frozenset({k}), frozenset({f"gradient {k}"})))
    return tasks, size


def test_updates_run_as_soon_as_their_gradient_is_there():
    tasks, size = chain_of_gradients(4)
    assert ordered(tasks, size) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert ordered(tasks, size, keep=True) == list(range(8))


def test_what_others_work_for_stays_where_it_is():
    """A wait for an exchange frees the gradient, and is no reason to wait early: kernels run beside the exchange."""
    tasks = [
        Task(0, makes=frozenset({"gradient"})),
        Task(1, frozenset({0}), frozenset({"gradient"}), frozenset({"sum"})),  # begins the exchange
        Task(2, makes=frozenset({"other"})),
        Task(3, frozenset({1}), frozenset({"gradient", "sum"}), stays=True),  # waits for it
        Task(4, frozenset({2}), frozenset({"other"})),
    ]
    size = {"gradient": 100, "sum": 100, "other": 10}
    assert ordered(tasks, size) == [0, 1, 2, 4, 3]
    assert ordered([*tasks[:3], tasks[3].replaced(stays=False), tasks[4]], size) == [0, 1, 3, 2, 4]


@pytest.mark.parametrize("seed", range(30))
def test_random_tasks(seed):
    r = random.Random(seed)
    tasks = []
    for k in range(40):
        after = frozenset(r.sample(range(k), min(k, r.randrange(4))))
        reads = frozenset(m for m in after if r.random() < 0.8)
        tasks.append(Task(k, after, reads, frozenset({k})))
    order = ordered(tasks, {k: r.randrange(100) for k in range(40)})
    assert sorted(order) == list(range(40))
    position = {k: p for p, k in enumerate(order)}
    assert all(position[before] < position[k] for k, task in enumerate(tasks) for before in task.after)


def test_gradients_of_a_network_do_not_pile_up(networks):
    graph = networks.training_graph("resnet50", batch=2, size=64)
    parameters = sum(v.type.size * 4 for v in graph.inputs if v.node.name.startswith("p"))
    info = make_plan(graph, "resnet50", exact=True).info
    makers = ("WeightGradient", "Matmul")  # the latter where windows are few
    lives = [life for life in info.memory_report().lifetimes if any(name in life.text for name in makers)]
    assert len(lives) > 50
    at_once = max(
        sum(life.size_bytes for life in lives if life.first <= t <= life.last) for t in range(len(info.steps))
    )
    assert at_once < parameters / 5
