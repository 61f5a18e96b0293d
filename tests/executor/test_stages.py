"""Long rows that lie side by side, such as an image's channels: gone through stage by stage, threads share the rows."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
from weft.executor import loop_code, loop_stages
from weft.executor.loop_code import OUTPUTS, LoopCode
from weft.expr import scalar as e
from weft.expr.kernel import Each, Fold, Once, Reduction, Scan, Store

LONG, FEW = 30011, 10  # no multiple of anything


def normalized(x, xp):
    apart = x - xp.mean(x, axis=0, keepdims=True)
    return apart / xp.sqrt(xp.mean(apart * apart, axis=0, keepdims=True) + 0.5)


FUNCTIONS = {
    "sum": lambda x, xp: xp.sum(x, axis=0),
    "two reductions of one pass": lambda x, xp: xp.sum(x, axis=0) + xp.max(x, axis=0),
    "folds and elements": normalized,
    "numbers of the last fold that need the first": lambda x, xp: (
        xp.exp(x - xp.max(x, axis=0)) / xp.sum(xp.exp(x - xp.max(x, axis=0)), axis=0)
    ),
}


@pytest.mark.processor("its threads share rows stage by stage")
@pytest.mark.parametrize("case", FUNCTIONS)
@pytest.mark.parametrize(("dtype", "bound"), [("float32", 2e-6), ("float64", 1e-12), ("bfloat16", 0.01)])
def test_values(case, dtype, bound, monkeypatch):
    """As NumPy has them, and stage by stage; a part of a wider array, too."""
    taken = []
    made = loop_stages.split_stages
    monkeypatch.setattr(loop_stages, "split_stages", lambda *args: taken.append(made(*args)) or taken[-1])
    monkeypatch.setattr(loop_code, "_kernels", {})  # what the trace needs is made anew
    x = np.random.default_rng(7).standard_normal((LONG, 2 * FEW)) + 3
    given = wf.asarray(x.astype("float32")).astype(dtype)
    exact = given.astype("float64").numpy()

    @wf.trace
    def found(x):
        return FUNCTIONS[case](x.astype("float64" if dtype == "float64" else "float32"), F)

    for columns in (slice(None), slice(3, 3 + FEW)):
        expected = FUNCTIONS[case](exact[:, columns], np)
        size = LONG if "sum" in case or "reductions" in case else 1
        for _ in range(2):  # operators one by one, then merged
            result = found(given[:, columns]).astype("float64").numpy()
            np.testing.assert_allclose(result / size, expected / size, rtol=bound, atol=bound)
    assert any(taken)


def test_batch_norm_and_its_gradients():
    """Forward and backward over channels-last images, against float64."""
    rng = np.random.default_rng(8)
    x, dy = (rng.standard_normal((6, 40, 40, 24)).astype("float32").transpose(0, 3, 1, 2) for _ in range(2))
    weight, bias = (rng.standard_normal(24).astype("float32") for _ in range(2))
    results = {}
    for dtype in ("float32", "float64"):
        arrays = [wf.asarray(a).astype(dtype) for a in (x * 3 + 1, weight, bias)]
        manager = wf.GradManager()
        manager.attach(arrays)
        with manager:
            y = F.relu(F.batch_norm(arrays[0], None, None, *arrays[1:], training=True))
            manager.backward(y, wf.asarray(dy).astype(dtype))
        results[dtype] = [y, *(a.grad for a in arrays)]
    for found, expected in zip(results["float32"], results["float64"], strict=True):
        scale = np.abs(expected.numpy()).max()
        np.testing.assert_allclose(found.numpy() / scale, expected.numpy() / scale, atol=2e-6)


def test_nan_and_infinity_reach_their_own_row():
    x = np.ones((LONG, FEW), "float32")
    x[LONG - 1, 3], x[5, 4] = np.nan, np.inf
    given = wf.asarray(x)
    largest, total = F.max(given, axis=0).numpy(), F.sum(given, axis=0).numpy()
    assert np.flatnonzero(np.isnan(largest)).tolist() == [3]
    assert np.flatnonzero(~np.isfinite(total)).tolist() == [3, 4]
    assert largest[4] == np.inf


def code(*stages, inputs=1, outputs=1):
    return LoopCode("code", 2, ("float32",) * (inputs + outputs), stages, inputs, 0b10, False)


def fold(number, value, op="sum", start=0):
    return Fold((Reduction(number, op, value, start),))


X, TOTAL = e.load(0, "float32"), e.result(0, "float32")


def test_numbers_of_rows_are_computed_once():
    """The largest expressions of results alone, each where the last result that it needs is there."""
    mean = TOTAL / 4
    scale = e.call("rsqrt", e.result(1, "float32") + mean)
    stages = fold(0, X), fold(1, X - mean), Each((Store(0, (X - mean) * scale),))
    first, second, last = loop_stages.split_stages(code(*stages), OUTPUTS, LoopCode.native)
    assert [first[0], second[0], last[0]] == ["fold", "fold", "each"]
    assert [len(one[3]) for one in (first, second)] == [1, 1]
    assert [len(one[4]) for one in (first, second)] == [
        2,
        1,
    ]  # the mean, and the sum that scale is computed from; scale


@pytest.mark.parametrize(
    "stages",
    [
        (Each((Store(0, X),)),),
        (fold(0, X), Each((Store(0, TOTAL),)), fold(1, X), Once((Store(0, e.result(1, "float32")),))),
        (fold(0, X, start=5), Once((Store(0, TOTAL),))),
        (fold(0, X, "argmax"), Once((Store(0, e.cast(e.result(0, "int64"), "float32")),))),
        (fold(0, X), Scan((Reduction(1, "sum", X),), (Store(0, e.result(1, "float32") + TOTAL),))),
        (fold(0, X), Each((Store(0, TOTAL),)), Once((Store(0, e.load(OUTPUTS, "float32")),))),
        (fold(0, X + e.cast(e.index(0), "float32")), Once((Store(0, TOTAL),))),
    ],
)
def test_what_stays_whole(stages):
    """Nothing to fold; folds behind stores; a start pieces lack; places; order; what was stored; positions."""
    assert loop_stages.split_stages(code(*stages), OUTPUTS, LoopCode.native) is None


def test_too_many_operands_stay_whole():
    for inputs, whole in ((20, False), (21, True)):
        many = sum((e.load(k, "float32") for k in range(1, inputs)), X)
        stages = fold(0, many), Once((Store(0, TOTAL),))
        assert (
            loop_stages.split_stages(code(*stages, inputs=inputs), OUTPUTS, LoopCode.native) is None
        ) == whole


@pytest.mark.parametrize("count", [11, 12, 40])
def test_sums_of_many_arrays(count):
    """As many in one loop as a loop in pieces takes: its inputs, and what each sum of a piece comes to."""
    xs = [wf.tensor(np.full((64, 1031), k % 7, "float32")) for k in range(count)]
    squares = sum(k % 7 * (k % 7) for k in range(count)) * 64 * 1031

    def norm(xs):
        return sum((x * x).sum() for x in xs)

    traced = wf.trace(norm)
    assert [traced(xs).item() for _ in range(2)] == [squares] * 2
    with wf.lazy():
        y = norm(xs)
    assert y.item() == squares
    steps = [step for step in traced.programs[0].plan.info.steps if not step.startswith("view")]
    assert len(steps) <= count // 8 + 2  # the sums, and adding them up


def test_a_loop_of_more_reductions_than_its_pieces_have_room_for():
    loads = [e.load(k, "float32") for k in range(12)]
    fold = Fold(tuple(Reduction(k, "sum", x, 0) for k, x in enumerate(loads)))
    results = [e.result(k, "float32") for k in range(12)]
    total = results[0]
    for r in results[1:]:
        total = total + r
    code = LoopCode("many", 1, ("float32",) * 13, (fold, Once((Store(0, total),))), 12, 1, False)
    assert code.split_row(LoopCode.native) is None


def test_sums_of_more_arrays_than_a_loop_has_operands():
    xs = [wf.ones((64, 70)) * k for k in range(13)]
    norm = wf.trace(lambda *xs: sum((x * x).sum() for x in xs), strict=True)
    for _ in range(2):
        assert norm(*xs).item() == 64 * 70 * sum(k * k for k in range(13))
