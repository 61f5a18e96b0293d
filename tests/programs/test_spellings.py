"""A traced function uses what Python has now, however the function spells that: spellings x changes, against eager."""

import collections
import dataclasses
import functools
import itertools
import operator
import random
import sys
import time
import types
import warnings

import numpy as np
import pytest

import weft as wf
import weft.module as M
from weft.base.errors import GraphError
from weft.graph.graph import graph_of
from weft.ops.types import TensorType
from weft.recording.doubts import Recording, difference


class Plain:
    def __init__(self, k=1.0):
        self.k, self.items, self.table = k, [k], {"k": k}
        self.sub = None

    @property
    def shown(self):
        return self.k

    def method(self):
        return self.k

    def itself(self):
        return self

    def __call__(self, x):
        return x * self.k

    def __len__(self):
        return int(self.k)

    def __getitem__(self, index):
        return self.k


class Child(Plain):
    def method(self):
        return super().method()


class Slots:
    __slots__ = ("k",)


class OfClass:
    k = 1.0


@dataclasses.dataclass
class Data:
    other: int = 0
    k: float = 1.0


class Scaled(M.Module):
    def __init__(self, config):
        self.config = config

    def forward(self, x):
        return x * self.config.k


class Aliased(Scaled):
    def forward(self, x):
        config = self.config
        return x * config.k


helper = types.ModuleType("helper")
exec("k = 1.0\ndef scaled(x):\n    return x * k\ndef of(o):\n    return o.k", vars(helper))

plain, child, slots, data = Plain(), Child(), Slots(), Data()
table, rows, ordered, queue = {"k": 1.0}, [1.0], collections.OrderedDict(k=1.0), collections.deque([1.0])
space, box, pair = types.SimpleNamespace(config=plain), {"plain": plain}, (plain, table)
name, level = "k", 1.0
scaled, aliased = Scaled(plain), Aliased(plain)
get_k, get_item = operator.attrgetter("k"), operator.itemgetter("k")
of_items = functools.partial(lambda x, o: x * o["k"], o=table)
of_attributes = functools.partial(lambda o, x: x * o.k, plain)


def default(x, o=table):
    return x * o["k"]


def keyword_default(x, *, o=plain):
    return x * o.k


def alias(x):
    c = plain
    return x * c.k


def aliases(x):
    c, d = plain, table
    return x * c.k if d else x


def alias_of_a_part(x):
    s = space.config
    return x * s.k


def loop(x):
    for k in rows:
        x = x * k
    return x


def unpacked(x):
    (k,) = rows
    return x * k


def walrus(x):
    return x * (c := plain).k + 0 * c.k


def decides(x):
    return x * 2 if plain.k > 2 else x


def nested(x):
    def inner(y):
        return y * plain.k

    return inner(x)


def matched_by_name(x):
    match data:
        case Data(k=k):
            return x * k


def matched_in_order(x):
    match data:
        case Data(_, k):
            return x * k


def matched_items(x):
    match table:
        case {"k": k}:
            return x * k


def with_global(x):
    return x * level


def decorated(function):
    @functools.wraps(function)
    def call(x):
        return function(x) * plain.k

    return call


OF_PLAIN = {
    "alias": alias,
    "aliases": aliases,
    "alias of a part": alias_of_a_part,
    "walrus": walrus,
    "decides": decides,
    "nested": nested,
    "attribute": lambda x: x * plain.k,
    "chain": lambda x: x * space.config.k,
    "through a dict": lambda x: x * box["plain"].k,
    "through a tuple": lambda x: x * pair[0].k,
    "property": lambda x: x * plain.shown,
    "method": lambda x: x * plain.method(),
    "returned": lambda x: x * plain.itself().k,
    "call": lambda x: plain(x),
    "len": lambda x: x * len(plain),
    "item of an object": lambda x: x * plain[0],
    "getattr": lambda x: x * getattr(plain, "k"),  # noqa: B009
    "getattr, name": lambda x: x * getattr(plain, name),
    "getattr, computed name": lambda x: x * getattr(plain, "".join(["", "k"])),
    "vars": lambda x: x * vars(plain)["k"],
    "attrgetter": lambda x: x * get_k(plain),
    "argument of a function": lambda x: x * helper.of(plain),
    "map": lambda x: x * next(map(get_k, [plain])),
    "partial": of_attributes,
    "partial inside": lambda x: of_attributes(x),
    "keyword default": keyword_default,
    "module": scaled,
    "module inside": lambda x: scaled(x),
    "module, alias": lambda x: aliased(x),
    "submodule": M.Sequential(scaled),
    "decorator": decorated(lambda x: x),
    "callback": lambda x: functools.reduce(lambda a, o: a * o.k, [plain], x),
}
OF_TABLE = {
    "item": lambda x: x * table["k"],
    "get": lambda x: x * table.get("k"),
    "item, name": lambda x: x * table[name],
    "values": lambda x: x * sum(table.values()),
    "unpacked": lambda x: (lambda k: x * k)(**table),
    "itemgetter": lambda x: x * get_item(table),
    "default": default,
    "partial": of_items,
    "match": matched_items,
    "items": lambda x: x * dict(table.items())["k"],
    "sorted": lambda x: x * sorted(table.items())[0][1],
}
OF_ROWS = {
    "index": lambda x: x * rows[-1],
    "loop": loop,
    "unpacked": unpacked,
    "comprehension": lambda x: x * sum([k * 2 for k in rows]),
    "generator": lambda x: x * sum(k for k in rows),
    "star": lambda x: (lambda *k: x * k[0])(*rows),
    "in": lambda x: x * 3 if 5.0 in rows else x,
}


def set_level(value):
    global level
    level = value


def set_attribute(owner):
    return lambda value: setattr(owner, "k", value)


def set_item(owner, key):
    return lambda value: operator.setitem(owner, key, value)


CASES = [
    *((f"{kind}: plain", f, set_attribute(plain)) for kind, f in OF_PLAIN.items()),
    *((f"{kind}: table", f, set_item(table, "k")) for kind, f in OF_TABLE.items()),
    *((f"{kind}: rows", f, set_item(rows, 0)) for kind, f in OF_ROWS.items()),
    ("super", lambda x: x * child.method(), set_attribute(child)),
    ("slots", lambda x: x * slots.k, set_attribute(slots)),
    ("match by name", matched_by_name, set_attribute(data)),
    ("match in order", matched_in_order, set_attribute(data)),
    ("attribute of a class", lambda x: x * OfClass.k, set_attribute(OfClass)),
    ("attribute of its class", lambda x: x * OfClass().k, set_attribute(OfClass)),
    ("global", with_global, set_level),
    ("another module", lambda x: x * helper.k, set_attribute(helper)),
    ("function of another module", lambda x: helper.scaled(x), set_attribute(helper)),
    ("ordered dict", lambda x: x * ordered["k"], set_item(ordered, "k")),
    ("deque", lambda x: x * queue[0], set_item(queue, 0)),
]


@pytest.mark.parametrize(("spelling", "function", "change"), CASES, ids=[each[0] for each in CASES])
def test_what_changes_is_noticed(spelling, function, change):
    x = wf.ones(2)
    change(1.0)
    traced = wf.trace(function, strict=True)
    first = traced(x).tolist()
    assert traced(x).tolist() == first == function(x).tolist()
    try:
        change(5.0)
        assert traced(x).tolist() == function(x).tolist() != first
        assert traced(x).tolist() == function(x).tolist()
        assert len(traced.programs) == 2
    finally:
        change(1.0)
    assert traced(x).tolist() == first
    assert len(traced.programs) == 2  # that of the first call again


def test_new_items_and_attributes():
    traced = wf.trace(lambda x: x * len(rows) * getattr(plain, "extra", 1), strict=True)
    x, found = wf.ones(()), []
    for change in (lambda: None, lambda: rows.append(1.0), lambda: setattr(plain, "extra", 3)):
        change()
        found.append(traced(x).item())
    del rows[1], plain.extra
    assert [*found, traced(x).item()] == [1, 2, 6, 1]


def test_what_other_code_counts_makes_no_program():
    class Trainer:
        def __init__(self):
            self.rate, self.history, self.steps = 0.5, [], 0

        def step(self, x):
            return x * self.rate

        def fit(self, x):
            for _ in range(5):
                self.history.append(step(x).sum().item())
                self.steps += 1

    trainer = Trainer()
    step = wf.trace(trainer.step, strict=True)
    trainer.fit(wf.ones(2))
    assert len(step.programs) == 1


def test_counts_that_decide_break():
    counts = {"n": 0}

    def function(x):
        counts["n"] += 1
        return x * counts["n"]

    traced = wf.trace(function)
    with pytest.warns(wf.TraceWarning, match="no guard covers"):
        found = [traced(wf.ones(())).item() for _ in range(4)]
    assert found == [1, 2, 3, 4]

    def counting(x):
        counts["n"] += 1
        return x * 2

    traced = wf.trace(counting, strict=True)
    assert [traced(wf.ones(())).item() for _ in range(4)] == [2] * 4
    assert len(traced.programs) == 1


GENERATOR, ITERATOR = np.random.default_rng(0), itertools.count(1.0)
UNGUARDED = {
    "random": lambda x: x * random.random(),
    "random, Python": lambda x: x * random.uniform(1, 2),
    "time": lambda x: x * (time.perf_counter() % 100),
    "NumPy's generator": lambda x: x * float(GENERATOR.normal()),
    "NumPy's generator, array": lambda x: x * GENERATOR.normal(size=2).astype("float32"),
    "iterator": lambda x: x * next(ITERATOR),
    "result": lambda x: (x, random.random())[1] * wf.ones(2),
}


@pytest.mark.parametrize("kind", UNGUARDED)
def test_what_no_guard_covers_is_found_by_recording_again(kind):
    traced = wf.trace(UNGUARDED[kind])
    with pytest.warns(wf.TraceWarning, match="no guard covers") as caught:
        found = [str(traced(wf.ones(2)).tolist()) for _ in range(5)]
    assert len(set(found)) == 5
    assert (caught[0].filename, len(caught)) == (__file__, 1)
    strict = wf.trace(UNGUARDED[kind], strict=True)
    strict(wf.ones(2))
    with pytest.raises(GraphError, match="no guard covers"):
        strict(wf.ones(2))


@pytest.mark.parametrize("sizes", [(2, 2, 2, 2, 2), (2, 3, 4, 5, 6)], ids=["of one size", "of other sizes"])
@pytest.mark.parametrize("kind", UNGUARDED)
def test_what_no_guard_covers_is_found_with_dynamic_axes(kind, sizes):
    traced = wf.trace(UNGUARDED[kind], dynamic={0: 0})
    with pytest.warns(wf.TraceWarning, match="no guard covers") as caught:
        found = [str(traced(wf.ones((n, 2))).tolist()[0]) for n in sizes]
    assert len(set(found)) == 5
    assert (caught[0].filename, len(caught)) == (__file__, 1)
    assert not traced.programs
    strict = wf.trace(UNGUARDED[kind], strict=True, dynamic={0: 0})
    strict(wf.ones((2, 2)))
    with pytest.raises(GraphError, match="no guard covers"):
        strict(wf.ones((sizes[1], 2)))


def test_doubted_programs_with_dynamic_axes_that_are_right_stay():
    calls = []

    def function(x):
        calls.append(1)
        return x * float(np.sin(0.5))

    traced = wf.trace(function, strict=True, dynamic={0: 0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in [2] * 70 + [3, *range(4, 10)]:
            np.testing.assert_allclose(traced(wf.ones(n)).numpy(), np.full(n, np.sin(0.5)), rtol=1e-6)
    assert len(traced.programs) == 1
    assert len(calls) == 1 + 3 + 2  # calls 2, 8 and 64 of one size; the 2nd and the 8th size


def test_numpy_arrays_outside_of_traces_with_dynamic_axes_warn():
    scale = np.ones(2)
    traced = wf.trace(lambda x: x * float(scale[0]), dynamic={0: 0})
    with pytest.warns(wf.TraceWarning, match="scale is a NumPy array that is no argument"):
        traced(wf.ones(3))


def test_recordings_are_compared_by_what_operators_are():
    """Operators whose texts are alike: a class that is defined again between two recordings."""

    def graph_of_own(factor):
        def scaled_once_more(x):
            return x * factor

        own = wf.simple_op(scaled_once_more)
        return graph_of(own, [TensorType((2,), wf.float32)])

    graphs = [graph_of_own(factor) for factor in (2.0, 3.0)]
    assert str(graphs[0]) == str(graphs[1])
    first, second = (Recording(graph, [], []) for graph in graphs)
    assert difference(first, first) is None
    assert "an operator or an attribute is another one" in difference(first, second)[0]


def test_doubted_programs_that_are_right_stay():
    calls = []

    def function(x):
        calls.append(1)
        return x * float(np.sin(0.5))

    traced = wf.trace(function, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = {traced(wf.ones(2))[0].item() for _ in range(70)}
    assert (len(found), len(calls), len(traced.programs)) == (1, 4, 1)  # calls 1, 2, 8 and 64


def test_an_argument_is_written_once_where_a_doubted_program_is_recorded_again():
    """Comparing the index arrays of both recordings once ran what had been recorded, before its program ran."""

    @wf.trace
    def function(x):
        y = x[wf.tensor([0, -1])]
        x *= float(np.sin(np.pi / 2))  # a doubt
        x *= 0.5
        return y.sum(), x * 1

    for _ in range(9):  # recorded at calls 1, 2 and 8
        x = wf.ones(2)
        y, z = function(x)
        assert (y.item(), z.tolist(), x.tolist()) == (2, [0.5, 0.5], [0.5, 0.5])


def test_large_containers_are_doubted():
    many = dict.fromkeys(range(5000), 1.0)
    traced = wf.trace(lambda x: x * many[4711])
    traced(wf.ones(()))
    many[4711] = 2.0
    with pytest.warns(wf.TraceWarning, match="no guard covers"):
        assert traced(wf.ones(())).item() == 2
    assert traced(wf.ones(())).item() == 2


def test_code_that_is_not_known_counts_as_every_use(monkeypatch):
    """As if this Python had other instructions."""
    import weft.recording.names_in_code as code

    monkeypatch.setattr(code.dis, "hasname", [])
    code.names_in.cache_clear()
    try:
        x, traced = wf.ones(2), wf.trace(lambda x: x * plain.k + level, strict=True)
        traced(x)
        plain.k = 7.0
        assert traced(x).tolist() == [8, 8]
    finally:
        plain.k = 1.0
        code.names_in.cache_clear()


def test_packages_that_are_installed(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "installed_rates.py").write_text("rate = 1.0\ndef scale(x):\n    return x * rate\n")
    monkeypatch.syspath_prepend(str(folder))
    import installed_rates

    traced = wf.trace(lambda x: installed_rates.scale(x), strict=True)
    traced(wf.ones(()))
    installed_rates.rate = 5.0
    assert traced(wf.ones(())).item() == 5
    del sys.modules["installed_rates"]


def test_callbacks_of_managers_and_hooks_of_modules():
    a, factor = wf.tensor([1.0, 2.0]), [1.0]
    gm = wf.GradManager().attach(a, callbacks=lambda x, dx: dx * factor[0])
    layer = M.Identity()
    layer.register_forward_hook(lambda module, args, y: y * factor[0])

    @wf.trace(strict=True)
    def step():
        a.grad = None
        with gm:
            gm.backward((layer(a) * a).sum())

    step(), step()
    factor[0] = 3.0
    step()
    assert a.grad.tolist() == [18, 36]
