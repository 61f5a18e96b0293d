"""Elements at indices that are read in the loop behind them: kernels, values, errors, what the loop may not do."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.symbol as sym
from weft.arrays import planning
from weft.executor.loop_code import LoopCode

RNG = np.random.default_rng(5)


def steps(function, *args):
    """The result of a traced call, and the kinds of its steps: "loop" or the native kernel's name."""
    traced = wf.trace(function, strict=True)
    result = traced(*args)
    (program,) = traced.programs
    texts = [str(step) for step in program.plan.info.steps]
    return result, texts


def indices_of(shape, size, dtype):
    low = 0 if dtype.startswith("u") else -size
    return wf.tensor(RNG.integers(low, size, shape).astype(dtype))


X = wf.tensor(RNG.normal(size=(6, 5, 4)).astype("float32"))
FORMS = {
    "take 0": lambda x, i: wf.take(x, i((3,), 6), axis=0),
    "take 1": lambda x, i: wf.take(x, i((7,), 5), axis=1),
    "take last": lambda x, i: wf.take(x, i((2,), 4), axis=-1),
    "take of two dimensions": lambda x, i: x[:, i((2, 3), 5)],
    "take one": lambda x, i: wf.take(x, i((), 6), axis=0),
    "embedding": lambda x, i: F.embedding(i((3, 2), 6), x.reshape(6, 20)),
    "two axes": lambda x, i: x[i((3,), 6), i((3,), 5)],
    "axes that are apart": lambda x, i: x[i((3,), 6), :, i((3,), 4)],
    "indices that broadcast": lambda x, i: x[i((3, 1), 6), i((4,), 5)],
    "along 0": lambda x, i: wf.take_along_axis(x, i((2, 5, 4), 6), axis=0),
    "along 1": lambda x, i: wf.take_along_axis(x, i((6, 9, 4), 5), axis=1),
    "along last": lambda x, i: wf.take_along_axis(x, i((6, 5, 1), 4), axis=-1),
    "none": lambda x, i: wf.take(x, i((0,), 6), axis=0),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "uint64"])
def test_values(form, dtype):
    """As operation by operation, to the bit, of dense arrays, slices and transposed ones."""
    made = []

    def remembered(shape, size):
        made.append(indices_of(shape, size, dtype))
        return made[-1]

    FORMS[form](X, remembered)
    for x in (X, wf.tensor(np.repeat(X.numpy(), 2, axis=1))[:, ::2], X.T.copy().T):

        def function(x, *indices):
            rest = iter(indices)
            return F.exp(FORMS[form](x, lambda *_: next(rest)) * 2) - 1

        y, texts = steps(function, x, *made)
        np.testing.assert_array_equal(y.numpy(), function(x, *made).numpy())
        if not y.size:
            continue
        (loop,) = (text for text in texts if "Gather" in text)
        assert "Exp" in loop, texts  # one loop
        assert "Subtract" in loop, texts


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "uint32", "bool", "complex64"])
def test_dtypes(dtype):
    x = wf.tensor(RNG.integers(0, 2, (9, 3))).astype(dtype)
    indices = wf.tensor([8, 0, -1, 3])
    function = lambda x, i: wf.where(wf.take(x, i, axis=0) == x[:4], 1, 2)  # noqa: E731
    y, texts = steps(function, x, indices)
    np.testing.assert_array_equal(y.numpy(), function(x, indices).numpy())
    assert any("Gather" in text for text in texts)


def test_large_arrays_in_several_threads():
    table = wf.tensor(RNG.normal(size=(5000, 64)).astype("float32"))
    ids = wf.tensor(RNG.integers(0, 5000, (64, 128)))
    positions = wf.tensor(RNG.normal(size=(128, 64)).astype("float32"))
    function = lambda ids, table, p: F.embedding(ids, table) * 8.0 + p  # noqa: E731
    traced = wf.trace(function, strict=True)
    y = traced(ids, table, positions)
    np.testing.assert_array_equal(y.numpy(), function(ids, table, positions).numpy())
    assert len(traced.programs[0].plan.info.steps) == 2  # the indices are checked, and all else is one loop
    assert traced.memory_report()[0].arena_bytes < 1024  # where the rows were


@pytest.mark.parametrize("index", [4, -5, 100])
def test_what_is_out_of_range_is_an_error(index):
    """With the text of a call, before anything is written."""
    out = wf.zeros(2)

    @wf.trace(strict=True)
    def function(x, i, out):
        out[...] = wf.take(x, i) + 1

    x = wf.arange(4).astype("float32")
    function(x, wf.tensor([0, 3]), out)
    assert out.tolist() == [1, 4]
    function(x, wf.tensor([0, index]), out)
    with pytest.raises(IndexError, match=f"index {index} is out of range for axis 0 of size 4"):
        out.numpy()
    wf.clear_errors()


def test_what_is_gathered_is_in_memory():
    """A table that the program makes is not computed by the loop that reads it elsewhere, nor overwritten by it."""
    i = wf.tensor([2, 0, 1])

    def permuted(x, i):
        return wf.take(x * 2, i, axis=0) + 1

    def in_place(x, i):
        x[...] = wf.take(x, i, axis=0) + 1
        return x * 1

    def one(x, i):
        return wf.take(x * 2, i[:1], axis=0) + 1

    def itself(x, i):
        return wf.take(i, i) * 2

    def twice(x, i):
        y = wf.take(x, i, axis=0) + x
        return wf.take(y, i, axis=0) * y

    for function in (permuted, in_place, one, itself, twice):
        for shape in ((3,), (3, 4), (3, 1)):
            mine, theirs = (
                wf.arange(12)[: int(np.prod(shape))].reshape(shape).astype("float32") for _ in "ab"
            )
            y, _ = steps(function, mine, i)
            np.testing.assert_array_equal(y.numpy(), function(theirs, i).numpy())
            np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def test_what_is_prepared_stays_apart():
    """Rows of a constant are taken once, not in each run."""
    rows = (sym.var("x") * np.float32(1)).get_internals()["x"]
    table = (rows * np.array([[1.0], [2.0]], "float32")).get_internals()
    name = next(each for each in table.list_outputs() if each.startswith("constant"))
    y = F.take(table[name], np.array([1, 0]), axis=0) * sym.var("x")
    exe = y.bind(args={"x": wf.ones((2, 3))})
    assert exe.forward()[0].tolist() == [[2, 2, 2], [1, 1, 1]]
    assert "Gather" not in exe.debug_str()


def test_gradients():
    x, i = wf.tensor(RNG.normal(size=(5, 3))), wf.tensor([1, 1, 4])
    function = lambda x: (F.sin(wf.take(x, i, axis=0)) ** 2).sum()  # noqa: E731
    for derivative in (wf.grad(function), wf.jacobian(wf.grad(function))):
        y, _ = steps(derivative, x)
        np.testing.assert_allclose(y.numpy(), derivative(x).numpy(), rtol=1e-12)


def test_random_programs():
    """Chains of indexing and arithmetic on odd sizes, with and without the pass."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        shape = tuple(rng.integers(1, 7, rng.integers(1, 4)))
        x = wf.tensor(rng.normal(size=shape).astype("float32"))
        if rng.random() < 0.3:
            x = x.T
        axes = [int(rng.integers(0, len(shape))) for _ in range(3)]
        counts = [int(rng.integers(0, 9)) for _ in axes]

        def function(x, axes=axes, counts=counts, seed=seed):
            numbers = np.random.default_rng(seed)
            for axis, count in zip(axes, counts, strict=True):
                n = x.shape[axis]
                if not n:
                    continue
                kind = numbers.integers(0, 3)
                if kind == 0:
                    x = wf.take(x, wf.tensor(numbers.integers(-n, n, count)), axis=axis) + 1
                elif kind == 1:
                    sizes = [count if d == axis else m for d, m in enumerate(x.shape)]
                    x = wf.take_along_axis(x, wf.tensor(numbers.integers(-n, n, sizes)), axis=axis) * 2
                else:
                    x = F.abs(x[(slice(None),) * axis + (wf.tensor(numbers.integers(0, n, (2, count))),)])
                    x = x.reshape(*x.shape[:axis], 2 * count, *x.shape[axis + 2 :])
            return x

        np.testing.assert_array_equal(wf.trace(function)(x).numpy(), function(x).numpy(), err_msg=str(seed))


SUMS = {
    "far apart": (lambda x, i: wf.take_along_axis(x, i, axis=2) * 2, 1),
    "rows": (lambda x, i: wf.take_along_axis(x, i, axis=2) + 1, 2),
    "the first": (lambda x, i: wf.take_along_axis(x, i, axis=2) * x, 0),
    "all": (lambda x, i: wf.take_along_axis(x, i, axis=2) - 1, None),
    "rows of a table": (lambda x, i: wf.take(x[0], i[0, 0] % 40, axis=0) * 3, 0),
    "backward": (lambda x, i: wf.take_along_axis(x[:, ::-1, ::-1], i, axis=2) * 2, 1),
    "one line": (lambda x, i: wf.take(x[0, 0], i.reshape(-1)[:20000] % 600) * 2, None),
}


@pytest.mark.parametrize("form", SUMS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "complex64"])
def test_sums_of_what_is_read(form, dtype):
    """In one loop, whose dimensions are ordered as those of other reductions; long rows are added up in pieces."""
    x = wf.tensor(RNG.integers(-9, 9, (40, 40, 600))).astype(dtype)
    i = wf.tensor(RNG.integers(0, 600, (40, 1, 600)))
    read, axis = SUMS[form]
    function = lambda x, i: wf.sum(read(x, i), axis=axis)  # noqa: E731
    if "take_along_axis" in read.__code__.co_names:
        i = wf.broadcast_to(i, (40, 40, 600))
    y, texts = steps(function, x, i)
    np.testing.assert_array_equal(y.numpy(), function(x, i).numpy())  # of whole numbers: exact in any order
    assert any("Gather" in text and "Sum" in text for text in texts), texts


@pytest.mark.processor("how its loops are compiled")
def test_sums_along_what_is_far_apart_run_side_by_side(monkeypatch):
    """The loop becomes vectors along the indices, which are then read once for all channels."""
    seen = []
    compile_loop = LoopCode.compile

    def recorded(self, rank, row_rank, lanes, tile, inner, streaming):
        seen.append((lanes, inner[0]))
        return compile_loop(self, rank, row_rank, lanes, tile, inner, streaming)

    monkeypatch.setattr(LoopCode, "compile", recorded)
    monkeypatch.setattr("weft.executor.loop_code._kernels", {})
    x, i = wf.ones((2, 7, 90)), wf.broadcast_to(wf.zeros((2, 1, 80), dtype="int64"), (2, 7, 80))
    y, _ = steps(lambda x, i: wf.sum(wf.take_along_axis(x, i, axis=2) * 2, axis=1), x, i)
    assert y.tolist() == [[14.0] * 80] * 2
    assert True in [lanes for lanes, _ in seen], seen


def test_gradients_of_one_large_operator_read_in_loops(monkeypatch):
    """Those of places of grid_sample, outside of traces: what is read at indices is not written."""
    plans = []
    make = planning.make_plan
    monkeypatch.setattr(
        planning, "make_plan", lambda *args, **how: plans.append(make(*args, **how)) or plans[-1]
    )
    x, grid = wf.tensor(RNG.normal(size=(2, 3, 9, 7))), wf.tensor(RNG.uniform(-1, 1, (2, 4, 5, 2)))
    function = lambda x, grid: F.grid_sample(x, grid).sum()  # noqa: E731
    with wf.GradManager().attach([x, grid]) as gm:
        gm.backward(function(x, grid))
    (gradient,) = [plan.info.steps for plan in plans if plan.name == "grid_sample gradient"]
    assert not [text for text in gradient if "TakeAlongAxis" in str(text)]
    assert any("Gather" in str(text) and "Sum" in str(text) for text in gradient)
    for one, other in zip(
        (x.grad, grid.grad), wf.trace(wf.grad(function, argnums=(0, 1)))(x, grid), strict=True
    ):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-10, atol=1e-12)
