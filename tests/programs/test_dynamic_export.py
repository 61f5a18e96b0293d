"""Programs with dynamic axes as files: they hold for the sizes that the traced function's did, and no others."""

import json
import threading

import numpy as np
import pytest
from tests.on_device import on_the_device

import weft as wf
import weft.functional as F
import weft.module as M
from weft.arrays.serialization import load_metadata
from weft.graph.text import from_json, to_json


def loaded(tmp_path, f, *calls):
    for args in calls:
        f(*args)
    f.export(tmp_path / "f.weft")
    return wf.load_program(tmp_path / "f.weft")


def same(a, b):
    a, b = ([np.asarray(x) for x in wf.tree_leaves(each)] for each in (a, b))
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


class Attention(M.Module):
    """A block over sequences of any length, with learned positions and a causal mask."""

    def __init__(self, width=8, longest=32):
        self.positions = M.Parameter(wf.random.normal(0, 1, (longest, width)))
        self.qkv, self.norm = M.Linear(width, 3 * width), M.LayerNorm(width)

    def forward(self, x):
        x = x + self.positions[: x.shape[1]]
        y = self.qkv(self.norm(x))
        q, k, v = (y[..., k : k + 8] for k in (0, 8, 16))
        return x + F.scaled_dot_product_attention(q, k, v, is_causal=True)


def functions():
    table, w = wf.arange(40).astype("float32"), wf.random.normal(0, 1, (3, 5))
    yield "product", {"x": 0}, lambda x: F.relu(x @ w), lambda n: (wf.random.normal(0, 1, (n, 3)),)
    yield (
        "size",
        {"x": 0},
        lambda x: (x * x.shape[0], x.shape[0] * 2 + 1, [x.sum() / x.shape[0]]),
        lambda n: (wf.ones(n),),
    )
    yield (
        "slice",
        {"x": 0},
        lambda x: {"a": x[: x.shape[0] // 2], "b": x + table[: x.shape[0]]},
        lambda n: (wf.arange(n),),
    )
    yield (
        "two",
        {"x": 0, "y": 0},
        lambda x, y: F.concat([x, y]) * y.shape[0],
        lambda n: (wf.ones(n), wf.arange(n + 3.0)),
    )
    yield "same", {"x": 0, "y": 0}, lambda x, y: x * y, lambda n: (wf.arange(n), wf.arange(n))
    yield "number", {"x": 0}, lambda x, a: x * a + a, lambda n: (wf.ones(n), n / 7)
    yield (
        "structure",
        {"d": 0},
        lambda d, mode: [d["x"].cumulative_sum(axis=0), mode],
        lambda n: ({"x": wf.arange(n)}, "up"),
    )
    yield "branch", {"x": 0}, lambda x: x * 2 if x.shape[0] > 6 else x.sum(), lambda n: (wf.arange(n),)
    yield (
        "made",
        {"x": 0},
        lambda x: (wf.arange(x.shape[0]) + x, wf.eye(x.shape[0])),
        lambda n: (wf.arange(n),),
    )
    yield (
        "loop",
        {"x": 0},
        lambda x: wf.foreach(lambda r, s: (r + s, s * 2), x, wf.ones(3)),
        lambda n: (wf.ones((n, 3)),),
    )
    yield (
        "cond",
        {"x": 0},
        lambda x: wf.cond(x.sum() > 0, lambda: x * 2, lambda: x),
        lambda n: (wf.arange(n),),
    )
    yield "square", {"x": (0, 1)}, lambda x: x @ x.T, lambda n: (wf.random.normal(0, 1, (n, n + 2)),)
    yield "transposed", {"x": 1}, lambda x: x.T.reshape(-1) + 1, lambda n: (wf.random.normal(0, 1, (4, n)),)
    attention = Attention()
    yield (
        "attention",
        {"x": (0, 1)},
        lambda x: attention(x),
        lambda n: (wf.random.normal(0, 1, (n, 2 * n, 8)),),
    )
    yield "normalized", {"x": 0}, M.BatchNorm1d(3).eval().forward, lambda n: (wf.random.normal(0, 1, (n, 3)),)


@pytest.mark.parametrize(
    ("name", "dynamic", "function", "arguments"),
    list(functions()),
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_as_the_function(tmp_path, name, dynamic, function, arguments):
    """Sizes that were met, and others; two programs where a guard fails."""
    f = wf.trace(function, dynamic=dynamic, strict=True)
    program = loaded(tmp_path, f, arguments(5), arguments(9))
    for n in (5, 9, 2, 12, 7, 4, 15):
        args = arguments(n)
        same(program(*args), f(*args))
    for entry in f.programs:
        assert to_json(from_json(to_json(entry.graph))) == to_json(entry.graph)
        assert str(from_json(to_json(entry.graph))) == str(entry.graph)


def test_sizes_outside_of_the_guards(tmp_path):
    table = wf.arange(10)
    f = wf.trace(lambda x: x + table[: x.shape[0]], dynamic={"x": 0})
    program = loaded(tmp_path, f, (wf.arange(4),))
    assert program(wf.arange(10)).shape == (10,)
    with pytest.raises(
        TypeError, match=r"(?s)no program for the arguments i64\[11\].*i64\[d0\]@.pu:0 where d0 <= 10"
    ):
        program(wf.arange(11))
    for other in (wf.arange(1), wf.arange(0), wf.arange(4.0), wf.zeros((4, 4), dtype="int64"), 3):
        with pytest.raises(TypeError, match="no program for the arguments"):
            program(other)
    assert program(wf.arange(20)[::2]).numpy().tolist() == (2 * np.arange(10) + np.arange(10)).tolist()


def test_what_calls_write(tmp_path):
    """Arrays of the file, and arguments, whatever their sizes."""
    total = wf.zeros(())

    def f(x, y):
        total[...] = total + x.sum()
        y[...] = x * 2
        return total * 1

    traced = wf.trace(f, dynamic={"x": 0, "y": 0})
    program = loaded(tmp_path, traced, (wf.ones(3), wf.zeros(3)))
    assert total.item() == 3
    for n, expected in ((3, 6.0), (5, 11.0), (2, 13.0)):
        y = wf.zeros(n)
        assert program(wf.ones(n), y).item() == expected
        assert y.numpy().tolist() == [2.0] * n
    assert total.item() == 3


def test_random_numbers(tmp_path):
    f = wf.trace(lambda x: F.dropout(x, 0.5, training=True), dynamic={"x": 0})
    program = loaded(tmp_path, f, (wf.ones(64),))
    wf.random.seed(3)
    expected = f(wf.ones(100)).numpy()
    wf.random.seed(3)
    found = [program(wf.ones(100)).numpy() for _ in range(2)]
    np.testing.assert_array_equal(found[0], expected)
    assert (found[0] != found[1]).any()


def test_threads_with_new_sizes(tmp_path):
    f = wf.trace(lambda x: (x * x.shape[0]).sum(), dynamic={"x": 0})
    program = loaded(tmp_path, f, (wf.ones(3),))
    problems = []

    def run(seed):
        for n in np.random.default_rng(seed).permutation(np.arange(2, 90)):
            if (value := program(wf.ones(int(n))).item()) != n * n:
                problems.append((n, value))

    threads = [threading.Thread(target=on_the_device(run), args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_what_cannot_be_exported(tmp_path):
    path = tmp_path / "f"
    f = wf.trace(lambda x, y: x + y, dynamic={"x": 0})
    x = wf.ones(3)
    f(x, x)
    with pytest.raises(wf.GraphError, match="arguments that share memory"):
        f.export(path)
    f = wf.trace(lambda x, a: x * 2 if a > 0 else x, dynamic={"x": 0})
    f(x, 1.0)
    with pytest.raises(wf.GraphError, match="depends on Python objects"):
        f.export(path)
    assert not path.exists()


def test_hostile_files(tmp_path):
    table = wf.arange(10)
    f = wf.trace(lambda x: (x + table[: x.shape[0]], x.shape[0] * 2), dynamic={"x": 0})
    loaded(tmp_path, f, (wf.arange(4),))
    path = tmp_path / "f.weft"
    document = json.loads(load_metadata(path)["program"])
    (entry,) = document["programs"]
    assert document["version"] == 2

    def refused(words, **changes):
        changed = {**document, "programs": [{**entry, **changes}]}
        wf.save(path, {"tensor0": table}, {"program": json.dumps(changed)})
        with pytest.raises(wf.GraphError, match=words):
            wf.load_program(path)

    for name in entry:
        refused("weft.program", **{name: -1})
    refused("dynamic sizes", sizes=[5])
    refused("dynamic sizes", sizes=[])
    refused("axes for each argument", axes=[])
    refused("axes for each argument", axes=[[1]])
    refused("weft.program", axes=[[]], sizes=[])
    refused("for the sizes of the arguments", guards=[[{"size": [0]}, ">", 10, True]])
    refused("two sizes", guards=[[{"size": [0]}, "<", 10, True]])
    refused("expected 0..0", results=[["output", 0, None], ["size", {"size": [1]}, None]])
    refused("is empty", results=[["output", 0, None], ["size", {"size": []}, None]])
    refused("is a number", results=[["output", 0, None], ["size", {"size": [["add", 1, 2]]}, None]])
    refused(
        "expected one of add", results=[["output", 0, None], ["size", {"size": [0, ["pow", [0], 2]]}, None]]
    )
    refused("expected 0..0", results=[["output", 0, None], ["size", {"size": [0, ["add", [1], 2]]}, None]])
    refused("expected 0..0", written=[1])
    refused("too few new contents", written=[0])
    refused("graph takes", arrays=[])


def test_files_of_the_earlier_version(tmp_path):
    """Programs of exact sizes are written as before."""
    f = wf.trace(lambda x: x + 1)
    program = loaded(tmp_path, f, (wf.ones(3),))
    assert json.loads(load_metadata(tmp_path / "f.weft")["program"])["version"] == 1
    assert program(wf.ones(3)).numpy().tolist() == [2.0] * 3


def test_pictures_of_a_program(tmp_path, capsys):
    from weft.tools import graph

    f = wf.trace(lambda x: x * x.shape[0], dynamic={"x": 0})
    loaded(tmp_path, f, (wf.ones(3),))
    assert graph.main([str(tmp_path / "f.weft"), "--no-open"]) == 0
    assert "multiply" in (tmp_path / "f.html").read_text()
