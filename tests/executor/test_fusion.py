"""How many kernels graphs become."""

import numpy as np
import pytest
import tests.ops.material  # noqa: F401  (references of operators)

import weft as wf
import weft.ops.functions as F
from weft import _core
from weft.base.dtype import float32
from weft.executor.planner import make_plan
from weft.graph.graph import Graph, interpret
from weft.ops.node import input_value
from weft.ops.types import TensorType


def given(*shape):
    return input_value(TensorType(shape, float32, wf.as_device(None)), "x")


def kernels(inputs, outputs, writes=None):
    """How many kernels a graph becomes; its values are those of the operators' references."""
    graph = Graph(inputs, outputs, writes)
    rng = np.random.default_rng(len(inputs))
    arrays = [rng.normal(size=x.shape).astype("float32") for x in inputs]
    plan = make_plan(graph, "test", exact=True)
    tensors = [wf.tensor(a) for a in arrays]
    found = _core.run_plan(plan, tensors)
    for y, w in zip(found, interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(y.numpy(), w, rtol=1e-4, atol=2e-4)
    return len(plan.info.steps)


def test_ten_pointwise_operations():
    x = given(5, 6)
    y = x
    for _ in range(5):
        y = F.tanh(y) * 1.5
    assert kernels([x], [y]) == 1


def test_an_intermediate_is_read_twice():
    x, z = given(5, 6), given(5, 6)
    t = F.exp(x) + z
    a = F.sin(t) * t
    b = F.tanh(t) - z
    assert kernels([x, z], [a * b + t]) == 1


def test_an_intermediate_is_an_output():
    x = given(5, 6)
    t = F.exp(x)
    u = F.sin(t) + 1
    assert kernels([x], [u * t, t, u]) == 1


def test_softmax():
    x = given(20, 30)
    powers = F.exp(x - F.max(x, axis=1, keepdims=True))
    assert kernels([x], [powers / F.sum(powers, axis=1, keepdims=True)]) == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_without_kept_axes(axis):
    x = given(20, 30)
    powers = F.exp(x - F.expand_dims(F.max(x, axis=axis), axis=axis))
    assert kernels([x], [powers / F.expand_dims(F.sum(powers, axis=axis), axis=axis)]) == 1


def test_layer_norm():
    x, scale, shift = given(20, 30), given(30), given(30)
    apart = x - F.mean(x, axis=1, keepdims=True)
    y = apart * F.rsqrt(F.mean(apart * apart, axis=1, keepdims=True) + 1e-5)
    assert kernels([x, scale, shift], [y * scale + shift]) == 1


def test_numbers_of_rows_go_on():
    x, weight = given(20, 30), given(20)
    total = F.sum(x, axis=1)
    assert kernels([x, weight], [F.log(F.abs(total) + 1) * weight, total]) == 1


def test_two_reductions_of_one_input():
    x, y = given(2000, 300), given(2000, 300)
    assert kernels([x, y], [F.sum(x, axis=0), F.sum(x * y, axis=0), F.max(x, axis=0)]) == 1


def test_a_gradient_and_its_sum():
    dy, y = given(30, 40), given(30, 40)
    dx = F.where(y > 0, dy, 0.0)
    assert kernels([dy, y], [dx, F.sum(dx, axis=0)]) == 1


@pytest.mark.processor("products and convolutions are loops on other devices")
def test_a_sum_joins_before_a_product_reads():
    dy, y, weight = given(30, 40), given(30, 40), given(40, 50)
    dx = F.where(y > 0, dy, 0.0)
    assert kernels([dy, y, weight], [dx @ weight, F.sum(dx, axis=0)]) == 2


def test_large_rows_are_not_read_twice():
    dy, y = given(3000, 400), given(3000, 400)
    dx = F.where(y > 0, dy, 0.0)
    assert kernels([dy, y], [dx, F.sum(dx, axis=0)]) == 2


def test_large_rows_are_joined_where_that_saves_passes():
    """y, which the product reads, is computed in both passes over x and dy, and read in none."""
    x, dy, mean, inverse, weight = (
        given(*s) for s in ((3000, 400), (3000, 400), (1, 400), (1, 400), (400, 8))
    )
    y = F.maximum((x - mean) * inverse, 0.0)
    dx = F.normalize_along_gradient(x, None, mean, inverse, F.where(y > 0, dy, 0.0), axes=(0,))[0]
    assert kernels([x, dy, mean, inverse, weight], [dx, y @ weight]) == 2


def test_other_axes_are_other_kernels():
    x = given(20, 30)
    assert kernels([x], [F.sum(x, axis=0) + 1, F.sum(x, axis=1) * 2]) == 2


def test_transposed_readers_wait():
    x, z = given(20, 30), given(30, 20)
    assert kernels([x, z], [F.permute_dims(F.exp(x), (1, 0)) + z]) == 2


def test_a_broadcast_number_is_computed_again_where_that_is_cheap():
    x, y = given(100, 300), given(300)
    assert kernels([x, y], [x * (y + 1)]) == 1
    assert kernels([x, y], [x * F.sin(F.exp(F.sin(y)))]) == 2


@pytest.mark.parametrize(
    ("repeated", "axis"),
    [
        (lambda y: F.broadcast_to(y, shape=(2, 3, 4)), 0),
        (lambda y: F.broadcast_to(y, shape=(2, 3, 4)), (0, 1)),
        (lambda y: F.broadcast_to(F.expand_dims(y, axis=1), shape=(4, 3)), 1),
    ],
)
def test_what_is_repeated_and_then_reduced(repeated, axis):
    x, z = given(4), given(4)  # which do not tell how often
    assert kernels([x, z], [F.sum(repeated(x + z), axis=axis)]) == 2
    assert kernels([x, z], [F.sum(repeated(x + z) * repeated(z), axis=axis)]) <= 2


@pytest.mark.processor("products and convolutions are loops on other devices")
@pytest.mark.parametrize(
    "function",
    [F.conv2d, lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)],
)
def test_primitives_take_a_copy_of_what_is_repeated(function):
    """Loops in their place would be slow, and would multiply paddings, too, which shows where weights are NaN."""
    x, w = given(1, 4, 3, 5), given(4, 4, 2, 2)
    assert kernels([x, w], [function(F.broadcast_to(x, shape=(2, 4, 3, 5)), w)]) == 2

    weight = np.ones((4, 4, 2, 2), np.float32)
    weight[:, :, 0, 1] = np.nan
    one = wf.zeros((1, 4, 3, 5))
    repeated = wf.broadcast_to(one, (2, 4, 3, 5))
    np.testing.assert_array_equal(
        function(repeated, wf.tensor(weight)).numpy(), function(repeated.copy(), wf.tensor(weight)).numpy()
    )


def test_dead_results_are_not_computed():
    x = given(20, 30)
    F.exp(x) @ F.permute_dims(x, (1, 0))
    assert kernels([x], [x + 1]) == 1


def test_updates_of_many_parameters():
    parameters = [given(10, 10) for _ in range(5)]
    gradients = [given(10, 10) for _ in range(5)]
    new = [p - 0.1 * g for p, g in zip(parameters, gradients, strict=True)]
    assert kernels([*parameters, *gradients], new, {k: k for k in range(5)}) == 5


def test_a_layer_on_one_row_is_one_loop():
    """Its bias, activation and residual, too: the weight is read once, by all threads, and not packed."""
    x, w, b, r = given(1, 1, 12), given(20, 12), given(20), given(1, 1, 20)
    assert kernels([x, w, b, r], [F.gelu(F.linear(x, w, b), approximate="tanh") + r]) == 1


def test_what_asks_for_positions_takes_part():
    """Sums that pick an element by its place read what is made for them, and give it to what follows."""
    x, y = given(6, 7), given(6, 7)
    here = F.equal(F.places_like(x, axis=1), F.cast(x * 0 + 2, dtype="int64"))
    picked = F.sum(F.where(here, F.exp(x), 0) * y, axis=1, keepdims=True)
    assert kernels([x, y], [picked * 2]) == 1


def test_positions_of_a_smaller_space_stay_apart():
    x, y = given(6, 7), given(6, 1)
    column = F.cast(F.places_like(y, axis=0), dtype="float32")
    assert kernels([x, y], [x * F.exp(column)]) == 2


# Sums over different axes.


def loops_and_arena(inputs, outputs):
    """How many kernels a graph becomes, checked as by `kernels`, and the bytes of what it stores inside."""
    count = kernels(inputs, outputs)
    plan = make_plan(Graph(inputs, outputs), "test", exact=True)
    return count, plan.info.memory_report().arena_bytes


def test_a_product_that_is_summed_over_columns_is_computed_there():
    """Layer norm's gradients: the loop over rows stores no product for the loop over columns, which has both sums."""
    x, dy, mean, inverse = (given(*s) for s in ((300, 400), (300, 400), (300, 1), (300, 1)))
    slope = F.positive(dy * 2.0)
    along = F.mean(slope * x, axis=1, keepdims=True)
    dx = (slope - x * along) * inverse
    normal = (x - mean) * inverse
    outputs = [dx, F.sum(slope * normal, axis=0), F.sum(slope, axis=0), slope]
    assert loops_and_arena([x, dy, mean, inverse], outputs) == (2, 0)


def test_what_is_summed_over_both_axes_is_stored_once():
    x, y = given(300, 400), given(300, 400)
    both = x * y
    found = loops_and_arena([x, y], [F.sum(both, axis=0), F.sum(both, axis=1)])
    assert found == (2, 300 * 400 * 4)


def test_what_needs_a_number_of_a_row_stays_with_the_row():
    """The quotient needs the row's sum before the loop ends; the columns' loop reads what it stores."""
    x = given(300, 400)
    quotient = x / (F.sum(x * x, axis=1, keepdims=True) + 1.0)
    assert loops_and_arena([x], [F.sum(quotient, axis=0)]) == (2, 300 * 400 * 4)


def test_what_is_stored_anyway_stays_with_the_row():
    x, y = given(300, 400), given(300, 400)
    both = x * y
    assert loops_and_arena([x, y], [both, F.sum(both, axis=1), F.sum(both, axis=0)]) == (2, 0)


def test_what_would_take_more_passes_stays_with_the_row():
    """The columns' loop would read four arrays instead of one."""
    arrays = [given(300, 400) for _ in range(4)]
    total = arrays[0]
    for x in arrays[1:]:
        total = F.sin(total) * x
    count, arena = loops_and_arena(arrays, [F.max(total, axis=1), F.sum(F.cos(total), axis=0)])
    assert count == 2
    assert arena <= 300 * 400 * 4


def test_products_with_one_array_part_ways():
    """They are pointwise loops of one operand, but are reduced along different axes."""
    dy, x, y = given(300, 400), given(300, 400), given(300, 400)
    a, b = dy * x, dy * y
    assert loops_and_arena([dy, x, y], [F.sum(a, axis=0), F.sum(b, axis=1)]) == (2, 0)


@pytest.mark.parametrize(("rows", "most"), [(64, 1), (8, 4)])
def test_long_rows_are_one_loop_where_there_are_many(rows, most):
    """As much goes through memory in one loop as in four; with few rows, threads would share eight pieces."""
    x = given(rows, 20000)
    powers = F.exp(x - F.max(x, axis=1, keepdims=True))
    assert kernels([x], [powers / F.sum(powers, axis=1, keepdims=True)]) == most
