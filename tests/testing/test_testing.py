"""wf.testing and wf.utils: what passes, what does not, and what is said then."""

import numpy as np
import pytest
import tests.ops.material  # noqa: F401  (references of operators)

import weft as wf
import weft.functional as F
from weft.ops import Op, op
from weft.ops.samples import Sample, arrays
from weft.testing import assert_close, check_gradient, check_operator
from weft.utils import benchmark


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (wf.tensor([1.0, 2.0]), wf.tensor([1.0, 2.000001])),
        (wf.tensor([1, 2]), wf.tensor([1, 2])),
        (wf.tensor([np.inf, -np.inf]), wf.tensor([np.inf, -np.inf])),
        (wf.tensor([1.0]).astype("bfloat16"), wf.tensor([1.004]).astype("bfloat16")),
        (wf.tensor([1.0]), np.array([1.0])),
        ({"a": [wf.ones(2), 3]}, {"a": [wf.ones(2), 3]}),
        (np.zeros((0, 3)), wf.zeros((0, 3))),
        (1.0, 1.0),
        ((1, 2), (1, 2)),
        (wf.tensor(True), True),
    ],
)
def test_what_is_close(actual, expected):
    assert_close(actual, expected, check_dtype=False)


@pytest.mark.parametrize(
    ("actual", "expected", "said"),
    [
        (wf.tensor([1.0, 2.0]), wf.tensor([1.0, 2.1]), r"1 of 2 elements \(50.0%\).*\(1,\).*2.0 != 2.1"),
        (wf.tensor([1, 2]), wf.tensor([1, 3]), "1 of 2 elements"),
        (wf.tensor([np.nan]), wf.tensor([np.nan]), "nan != nan"),
        (wf.tensor([np.inf]), wf.tensor([-np.inf]), "greatest difference inf"),
        (wf.tensor([1.0]), wf.tensor([1.0]).astype("float64"), "dtypes differ: float32 != float64"),
        (wf.ones(2), wf.ones(3), r"shapes differ: \(2,\) != \(3,\)"),
        (wf.ones(2), wf.ones(2, device="cpu:1"), "devices differ"),
        ({"a": wf.ones(1)}, {"b": wf.ones(1)}, "keys differ"),
        ([wf.ones(1)], [wf.ones(1), wf.ones(1)], "lengths differ: 1 != 2"),
        ({"a": [wf.zeros(1)]}, {"a": [wf.ones(1)]}, r"at \['a'\]\[0\]"),
        (wf.zeros(10), wf.ones(10), "and 6 more"),
    ],
)
def test_what_is_not_close(actual, expected, said):
    with pytest.raises(AssertionError, match=f"(?s)assert_close: .*{said}"):
        assert_close(actual, expected)


def test_tolerances():
    assert_close(wf.tensor([np.nan]), wf.tensor([np.nan]), equal_nan=True)
    assert_close(wf.tensor([1, 2]), wf.tensor([1, 3]), rtol=0, atol=1)
    with pytest.raises(ValueError, match="go together"):
        assert_close(1.0, 1.0, rtol=1)


def test_gradients_of_both_orders():
    x, w = wf.tensor([[0.3, -0.7, 1.1]]), wf.tensor([[0.2], [0.5], [-0.4]])
    check_gradient(lambda x, w: F.softmax(F.tanh(x @ w) * x), x, w, order=2)
    check_gradient(lambda x, n: F.sum(x, axis=n), x, 1)
    check_gradient(lambda x: {"a": x * 2, "b": (x.sum(), x.shape)}, np.ones((3, 40)))
    check_gradient(lambda x: F.relu(x) + 0 * F.floor(x), wf.tensor([1.5, -1.5]))


class Wrong(wf.Function):
    """Right at first sight: the second gradient is wrong, or the first one of large inputs in one place."""

    def __init__(self, place=None, twice=False):
        self.place, self.twice = place, twice

    def forward(self, x):
        self.x = x
        return x * x * x

    def backward(self, dy):
        dx = 3 * (self.x.detach() if self.twice else self.x) * self.x * dy
        if self.place is not None:
            dx = dx * F.where(wf.arange(dx.shape[0]) == self.place, 2.0, 1.0)
        return dx


def test_wrong_gradients_are_found():
    with pytest.raises(AssertionError, match=r"order 1, argument 0, element \(2,\)"):
        check_gradient(lambda x: Wrong(place=2)(x), wf.tensor([1.0, 2.0, 3.0]))
    with pytest.raises(AssertionError, match="direction"):
        check_gradient(lambda x: Wrong(place=77)(x), wf.ones(100))
    check_gradient(lambda x: Wrong(twice=True)(x), wf.tensor([1.0, 2.0]))
    with pytest.raises(AssertionError, match="order 2"):
        check_gradient(lambda x: Wrong(twice=True)(x), wf.tensor([1.0, 2.0]), order=2)
    with pytest.raises(ValueError, match="order must be 1 or 2"):
        check_gradient(F.exp, wf.ones(1), order=3)
    with pytest.raises(ValueError, match="no argument"):
        check_gradient(F.abs, wf.tensor([1, 2]))


@op
class DoubleForTests(Op):
    """2 x."""

    factor = 2.0

    def infer(self, x):
        return x

    def decompose(self, x):
        return x * self.factor

    def reference(self, x):
        return x * 2

    @classmethod
    def samples(cls):
        yield Sample(arrays((2, 3)), dtypes=("float32", "float64"))


def test_operators():
    assert check_operator("atan2", order=2) > 0
    assert check_operator("hypot", order=2) > 0  # of samples with |x| = |y|, too
    assert check_operator(DoubleForTests) == 2
    assert check_operator("layer_norm") > 0
    given = [Sample(arrays((2, 3))), Sample(arrays((4,)))]
    assert check_operator("exp", samples=given, reference=lambda op, x: np.exp(x)) == 2
    with pytest.raises(AssertionError, match="check_operator: exp, Sample"):
        check_operator("exp", samples=given, reference=lambda op, x: np.expm1(x))
    with pytest.raises(ValueError, match="check_operator: exp has no samples; give samples="):
        check_operator("exp", samples=[])
    DoubleForTests.reference, right = lambda self, x: x * 3, DoubleForTests.reference
    try:
        with pytest.raises(AssertionError, match="check_operator: double_for_tests, Sample"):
            check_operator(DoubleForTests)
    finally:
        DoubleForTests.reference = right
    with pytest.raises(ValueError, match="registered operator"):
        check_operator(int)


def test_benchmark():
    calls = []

    def f(x, *, y):
        calls.append(1)
        return {"a": x + y}

    found = benchmark(f, wf.ones(4), y=2, repeat=4, warm_up=2)
    assert len(calls) == 2 + 1 + 4 * found.calls
    assert found.least_s <= found.low_s <= found.median_s <= found.high_s
    assert "half of 4 runs" in str(found)
    assert benchmark(lambda: None, repeat=1).runs == 1
    with pytest.raises(ValueError, match="repeat"):
        benchmark(f, repeat=0)
