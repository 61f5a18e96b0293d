"""Traced programs as files: what comes back computes the same, and what is not such a file is refused."""

import json
import subprocess
import sys

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
from weft.arrays.serialization import load_metadata


def stored(tmp_path, f, *calls):
    for args in calls:
        f(*args)
    path = tmp_path / "program.weft"
    f.export(path)
    return path, wf.load_program(path)


def test_a_network(tmp_path):
    net = M.Sequential(M.Conv2d(1, 4, 3), M.BatchNorm2d(4), M.ReLU(), M.Flatten(), M.Linear(144, 10)).eval()
    x = wf.random.normal(0, 1, (2, 1, 8, 8))
    f = wf.trace(net.forward, strict=True)
    wanted = f(x)
    path, loaded = stored(tmp_path, f)
    del net, f
    # What was loaded is never trained, so its normalization is folded into the weights: rounded otherwise.
    np.testing.assert_allclose(loaded(x).numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)
    assert sum(x.size for x in loaded.tensors.values()) == 4 * 9 + 4 + 4 * 4 + 1440 + 10
    assert path.stat().st_size < 40_000


@pytest.mark.processor("arrays of the other process are on cpu:0")
def test_operators_that_run_graphs_in_another_process(tmp_path):
    """The reader has imported nothing that has to do with loops, branches, or gradients of one's own."""

    class Own(wf.Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return dy * 3

    def rows(x):
        return wf.foreach(lambda row, s: (wf.cond(row.sum() > 0, lambda: Own()(row), lambda: row), s), x, ())[
            0
        ]

    x = wf.tensor([[1.0, 2.0], [-3.0, 1.0]])
    f = wf.trace(rows, strict=True)
    wanted = f(x).numpy().tolist()
    path, _ = stored(tmp_path, f)
    rows_of = "wf.tensor([[1., 2.], [-3., 1.]])"
    read = f"import sys, weft as wf; print(wf.load_program(sys.argv[1])({rows_of}).numpy().tolist())"
    done = subprocess.run([sys.executable, "-c", read, path], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == str(wanted) == "[[2.0, 4.0], [-3.0, 1.0]]"


def test_structures_numbers_and_kinds(tmp_path):
    f = wf.trace(lambda d, a, mode="sum": {"y": [d["x"] * a, (d["x"].T, mode)], "n": 3})
    x, y = wf.tensor([[1.0, 2.0]]), wf.tensor([1, 2, 3])
    _, loaded = stored(tmp_path, f, ({"x": x}, 0.5), ({"x": x}, 0.5, "mean"), ({"x": y[::2]}, 2.0))
    made = loaded({"x": x}, 3.0, "mean")
    assert made["y"][0].numpy().tolist() == [[3.0, 6.0]]
    assert made["y"][1][1] == "mean"
    assert made["n"] == 3
    assert wf.shares_memory(made["y"][1][0], x)
    assert loaded({"x": y[::2]}, 2.0)["y"][0].numpy().tolist() == [2.0, 6.0]
    with pytest.raises(TypeError, match=r"no program for the arguments .*f32\[3\]@(c|g)pu:0"):
        loaded({"x": wf.zeros(3)}, 2.0)


def test_state_is_written_in_place(tmp_path):
    state = wf.zeros(2)

    def count(x):
        state[...] = state + x
        return state * 1

    f = wf.trace(count)
    x = wf.ones(2)
    f(x)
    _, loaded = stored(tmp_path, f)
    assert [loaded(x).numpy().tolist() for _ in range(2)] == [[2.0, 2.0], [3.0, 3.0]]
    assert next(iter(loaded.tensors.values())).numpy().tolist() == [3.0, 3.0]
    assert state.numpy().tolist() == [1.0, 1.0]


def test_what_cannot_be_exported(tmp_path):
    path = tmp_path / "p"
    with pytest.raises(wf.GraphError, match="has no program: call it first"):
        wf.trace(lambda x: x).export(path)
    f = wf.trace(lambda x, a: x + 1 if a > 0 else x)
    f(wf.zeros(1), 1.0)
    with pytest.raises(wf.GraphError, match="depends on Python objects"):
        f.export(path)
    g = wf.trace(lambda x, thing: x + 1)
    g(wf.zeros(1), object())
    with pytest.raises(wf.GraphError, match="takes or gives a Python object"):
        g.export(path)
    assert not path.exists()


def corruptions(document):
    entry = document["programs"][0]
    yield {**document, "version": 9}, "version"
    yield {**document, "programs": 3}, "list"
    for name in ("graph", "visible", "strides", "arrays", "results", "structure", "arguments", "leaves"):
        yield {**document, "programs": [{k: v for k, v in entry.items() if k != name}]}, name
        yield {**document, "programs": [{**entry, name: -1}]}, "weft.program"
    yield {**document, "programs": [{**entry, "visible": 99}]}, "expected 0"
    yield {**document, "programs": [{**entry, "arrays": entry["arrays"][:1]}]}, "other inputs"
    yield {**document, "programs": [{**entry, "arrays": [["tensor", "no", None]] * 2}]}, "no such tensor"
    yield (
        {**document, "programs": [{**entry, "arrays": [["leaf", 0, [1, [9], [1]]]] * 2}]},
        "beyond the array",
    )
    yield {**document, "programs": [{**entry, "results": [["output", 5, None]]}]}, "expected 0"
    yield {**document, "programs": [{**entry, "graph": "{}"}]}, "format"


def test_hostile_files(tmp_path):
    w = wf.ones(3)
    f = wf.trace(lambda x: x * w)
    path, _ = stored(tmp_path, f, (wf.ones(3),))
    document = json.loads(load_metadata(path)["program"])
    for changed, words in corruptions(document):
        wf.save(path, {"tensor0": w}, {"program": json.dumps(changed)})
        with pytest.raises(wf.GraphError, match=words):
            wf.load_program(path)
    wf.save(path, {"tensor0": w})
    with pytest.raises(wf.GraphError, match="no program"):
        wf.load_program(path)
    assert F.add(w, 1).numpy().tolist() == [2.0] * 3
