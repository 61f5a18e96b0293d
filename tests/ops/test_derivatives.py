"""Derivatives up to the third of every differentiable operator where rules are apt to be wrong, against its own values.

The points are -1, -0.0, 0, 1 and the operator's knees. The oracle knows no rule: it fits polynomials to values on the
left and on the right of a point. Where both sides agree on all derivatives up to one, the operator is smooth to that
order, and must have this derivative. At the first one where they differ there is a kink: the derivative must be between
the two sides. Later ones are those of one side, between both, or 0, the derivative of a constant choice.

Without --full a share of the operators is swept, another one every day (WEFT_TEST_SEED fixes which).
"""

import math
import zlib

import numpy as np
import pytest

import weft as wf
from weft.expr import scalar as e
from weft.expr.evaluate import evaluate
from weft.ops.families.arithmetic import Clip
from weft.ops.op import differentiable
from weft.ops.pointwise import Pointwise

from .support import OPERATORS, SEED, called, cases, floats, listed, some, specs, tensors, total, weights_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
SHARE = 24  # one in so many operators every day
ORDERS = 3
DIFFERENTIABLE = [cls for cls in OPERATORS if differentiable(cls) and getattr(cls, "smooth", True)]
# Complex results have no sides.
POINTWISE = [cls for cls in DIFFERENTIABLE if issubclass(cls, Pointwise) and cls.family != "complex"]
OTHERS = [cls for cls in DIFFERENTIABLE if cls not in POINTWISE]


def todays(request, classes):
    """All of them with --full or if they are asked for by name, else a share."""
    config = request.config
    if config.getoption("--full") or config.getoption("keyword"):
        return classes
    return [cls for cls in classes if zlib.crc32(cls.name.encode()) % SHARE == SEED % SHARE]


# The oracle.


def weights(nodes, order):
    """What to multiply values at the nodes by to have the derivative at 0 of the polynomial through them."""
    powers = np.vander(np.asarray(nodes, np.longdouble), increasing=True)
    return _solve(powers.T, np.eye(len(nodes), dtype=np.longdouble)[order] * math.factorial(order))


def _solve(a, b):
    """Gaussian elimination with the digits of long double, which NumPy's solver does not have."""
    a, b = a.copy(), b.copy()
    for k in range(len(b)):
        pivot = k + np.argmax(abs(a[k:, k]))
        a[[k, pivot]], b[[k, pivot]] = a[[pivot, k]], b[[pivot, k]]
        for row in range(k + 1, len(b)):
            factor = a[row, k] / a[k, k]
            a[row, k:] -= factor * a[k, k:]
            b[row] -= factor * b[k]
    x = np.zeros_like(b)
    for k in reversed(range(len(b))):
        x[k] = (b[k] - a[k, k + 1 :] @ x[k + 1 :]) / a[k, k]
    return x


NODES = (1 - np.cos(np.pi * (np.arange(10) + 0.5) / 10)) / 2  # Chebyshev's, from 0 to 1
REACHES = (0.2, 0.08, 0.03)
WEIGHTS = {order: weights(NODES, order) for order in range(ORDERS + 1)}
STEPS = np.concatenate([side * h * NODES for side in (-1, 1) for h in REACHES])


def sides(values):
    """values[s] at STEPS -> for each order the derivative on the left and on the right, and how uncertain they are.

    NaN where the fits of different reaches do not agree: beyond the domain, at poles, where the derivative is infinite.
    """
    values = np.asarray(values, np.longdouble).reshape(2, len(REACHES), len(NODES), *np.shape(values)[1:])
    result = []
    for order in range(ORDERS + 1):
        one_order = []
        for side, sign in enumerate((-1, 1)):
            fits = np.stack(
                [
                    np.tensordot(WEIGHTS[order], values[side, k], 1) / (sign * h) ** order
                    for k, h in enumerate(REACHES)
                ]
            )
            apart = abs(np.diff(fits, axis=0))
            best = np.argmin(np.where(np.isnan(apart), np.inf, apart), axis=0)
            fit = np.take_along_axis(fits, best[None], axis=0)[0]
            error = np.take_along_axis(apart, best[None], axis=0)[0]
            bound = (1e-9, 1e-8, 1e-6, 1e-4)[order] * np.maximum(1, abs(fit)) + 20 * error
            is_useless = ~np.isfinite(fit) | ~(error <= 1e-3 * np.maximum(1, abs(fit)))
            one_order.append((np.where(is_useless, np.nan, fit), bound))
        result.append(one_order)
    return result


def verdict(fits, derivatives):
    """What is wrong with derivatives[order] of one function at one point, or None."""
    kink = False
    for order, ((left, left_bound), (right, right_bound)) in enumerate(fits):
        known = [(v, b) for v, b in ((left, left_bound), (right, right_bound)) if not np.isnan(v)]
        if not known:
            return None  # a pole, or an infinite derivative
        bound = 2 * max(b for _, b in known)
        differ = len(known) == 1 or abs(left - right) > bound
        if order:
            among = [v for v, _ in known] + [0.0] * (kink or len(known) == 1)
            got = derivatives[order - 1]
            if not min(among) - bound <= got <= max(among) + bound:
                expected = f"between {min(among):.9g} and {max(among):.9g}"
                return f"derivative {order} is {got}, not {expected} (left {left:.9g}, right {right:.9g})"
        kink = kink or differ
    return None


def is_smooth_at(fits):
    """Whether all derivatives agree on both sides."""
    apart = [~(abs(left - right) <= 2 * np.maximum(b, other)) for (left, b), (right, other) in fits]
    return ~np.any(apart, axis=0)


def jumps(fits, value):
    """Whether the value at the point is another than that on one of its sides."""
    return np.any([abs(side - value) > 2 * bound for side, bound in fits[0]], axis=0)


# Derivatives of the operator, each in several ways.


def in_all_ways(f, t):
    """The derivatives of f along t, by name of a way. f(t): functions of one element of t each, or of a 0-d t."""

    def gradient(f):
        return wf.grad(lambda t: f(t).sum())

    def tangent(f):
        return lambda t: wf.jvp(f, (t,), (wf.ones(t.shape, t.dtype),))[1]

    ways = {}
    for name, steps in {
        "vjp of vjp of vjp": (gradient, gradient, gradient),
        "jvp of jvp of jvp": (tangent, tangent, tangent),
        "jvp of vjp": (gradient, tangent),
        "vjp of jvp": (tangent, gradient),
    }.items():
        g, found = f, []
        for step in steps:
            g = step(g)
            found.append(g(t).numpy())
        ways[name] = found
    return ways


# Pointwise operators: all points at once.


def knees(cls, attributes, count):
    """Where comparisons in the operator's function of one element change, between -8 and 8, for one operand alone."""
    op = cls(**attributes)
    leaves = [e.load(k, "float64") for k in range(count)]
    root = op.scalar(*leaves)
    grid = np.linspace(-8.03, 8.05, 400)
    found = set()
    for node in e.walk(root):
        if node.op in (*e.COMPARISONS, "minimum", "maximum"):
            apart = node.args[0] - node.args[1] if node.args[0].dtype in e.FLOATS else None
        else:
            apart = node.args[0] if node.op == "abs" else None
        if apart is None:
            continue
        for k in range(count):

            def at(x, k=k, apart=apart):
                full = {j: np.asarray(x if j == k else np.full_like(x, 0.7)) for j in range(count)}
                return np.broadcast_to(evaluate(apart, full), np.shape(x))

            values = at(grid)
            for j in np.flatnonzero(np.sign(values[:-1]) * np.sign(values[1:]) < 0):
                low, high = grid[j], grid[j + 1]
                for _ in range(60):
                    middle = (low + high) / 2
                    same = np.sign(at(np.array([middle]))[0]) == np.sign(at(np.array([low]))[0])
                    low, high = (middle, high) if same else (low, middle)
                found.add(round(high, 9))
    return sorted(found)


def points_of(case):
    """Rows of operands, one column for each float operand: all points for one, a few for the others.

    Where min equals max clip is constant, but made of two kinks, each of which has the derivative of its own choice.
    """
    count = len(floats(case.arrays))
    attributes = case.node.op.values()
    every = [-1.0, -0.0, 0.0, 1.0, *knees(type(case.node.op), attributes, len(case.node.inputs))]
    rows = []
    for k in range(count):
        others = [0.5] if count > 3 else [-1.0, 0.0, 0.5, 1.0, 2.0] if count == 2 else [0.0, 0.5]
        for x in every:
            grids = np.meshgrid(*([x] if j == k else others for j in range(count)))
            rows.extend(zip(*(g.ravel() for g in grids), strict=True))
    rows = [row for row in rows if case.cls is not Clip or count < 3 or row[1] < row[2]]
    if (
        case.cls.name == "margin_ranking_loss"
    ):  # max(0, label (y - x)) has no second derivatives at its corner
        rows = [row for row in rows if row[2] or row[0] != row[1]]
    return np.array(rows).T


def check_pointwise(case):
    attributes = dict(case.sample.attributes)
    if "reduction" in {a.name for a in case.cls.attributes}:
        attributes["reduction"] = "none"
    sample = type(case.sample)(*case.sample.operands, **attributes)
    columns, wanted = points_of(case), floats(case.arrays)
    directions = [np.eye(len(wanted))[k] for k in range(len(wanted))]
    if len(wanted) > 1:
        directions.append(np.array([1.0, 0.7, -0.4, 0.3, 0.2][: len(wanted)]))
    wrong, is_smooth = [], np.ones(columns.shape[1], bool)
    for direction in directions:
        xs = tensors(columns)
        steps = [wf.full(x.shape, float(d), dtype=x.dtype) for x, d in zip(xs, direction, strict=True)]

        def along(t, xs=xs, steps=steps, direction=direction):
            moved = iter(x + t * s if d else x for x, s, d in zip(xs, steps, direction, strict=True))
            values = [
                next(moved) if k in wanted else wf.broadcast_to(wf.asarray(a.reshape(-1)[:1]), xs[0].shape)
                for k, a in enumerate(case.arrays)
            ]
            (y,) = listed(called(case.cls, sample, values))
            return y

        zero = wf.full(xs[0].shape, -0.0, dtype=xs[0].dtype)
        fits, value = sides([along(zero + float(s)).numpy() for s in STEPS]), along(zero).numpy()
        if sum(direction != 0) == 1:
            is_smooth &= is_smooth_at(fits)
            checked = np.isfinite(value) & ~jumps(fits, value)
        else:
            checked = is_smooth  # else it may be smooth along a direction, and yet have no gradient
        for way, derivatives in in_all_ways(along, zero).items():
            for j in np.flatnonzero(checked):
                at = [[(float(v[j]), float(b[j])) for v, b in pair] for pair in fits[: len(derivatives) + 1]]
                if (fact := verdict(at, [d[j] for d in derivatives])) is not None:
                    wrong.append(f"at {columns[:, j]} along {direction}, {way}: {fact}")
    assert not wrong, f"{case.cls.name}{attributes}: " + "\n".join(wrong[:8])


def pointwise_cases(cls):
    """One case for each set of attributes."""
    seen = set()
    for case in cases(cls, ("float64",)):
        key = repr(sorted(case.sample.attributes.items())), len(floats(case.arrays))
        is_whole = all(np.asarray(a).size for a in case.arrays) and len(floats(case.arrays)) == len(
            case.arrays
        )
        if case.sample.gradient and is_whole and key not in seen:
            seen.add(key)
            yield case


def swept(request, cls, classes, count):
    if cls not in todays(request, classes):
        pytest.skip("another day's share")
    return count


@pytest.mark.parametrize("cls", POINTWISE, ids=lambda cls: cls.name)
def test_pointwise(cls, request):
    count = swept(request, cls, POINTWISE, 2)
    for case in some(request, f"derivatives {cls.name}", pointwise_cases(cls), count):
        check_pointwise(case)


# Other operators: the sum of all results times weights, along one direction.


def at_special_points(case):
    """The case's float arrays with -1, -0.0, 0 and 1 among their elements, as far as its samples reach so far."""
    rng = np.random.default_rng(zlib.crc32(repr(case.sample).encode()))
    arrays = []
    for spec, a in zip(specs(case.sample), case.arrays, strict=True):
        if (
            a.dtype != np.float64 or spec.values is not None or spec.distinct or case.cls.name == "qr"
        ):  # of full rank
            arrays.append(a)
            continue
        special = [v for v in (-1.0, -0.0, 0.0, 1.0) if spec.low <= v <= spec.high]
        if case.sample.attributes.get("ord") not in (None, *range(4), math.inf, -math.inf):
            special = [-1.0, 1.0]  # a power of 2.5 has an infinite third derivative at 0
        chosen = rng.choice(special, a.shape) if special else a
        arrays.append(np.where(rng.random(a.shape) < 0.5, chosen, a))
    return arrays


def check_other(case):
    every, wanted = at_special_points(case), floats(case.arrays)
    factors = weights_of(case)
    if factors is None:
        return
    names = [spec.name for spec in case.cls.inputs]
    place = {id(v): names[min(k, len(names) - 1)] for k, v in enumerate(case.node.inputs) if v is not None}
    wanted = [k for k in wanted if place[id(case.graph.inputs[k])] not in case.cls.fixed]
    rng = np.random.default_rng(17)
    steps = {k: wf.asarray(rng.standard_normal(every[k].shape).astype(every[k].dtype)) for k in wanted}
    xs = tensors(every)

    def along(t):
        values = [x + t * steps[k] if k in steps else x for k, x in enumerate(xs)]
        return total(listed(called(case.cls, case.sample, values)), factors)

    zero = wf.full((), -0.0, dtype="float64")
    fits = sides([along(zero + float(s)).item() for s in STEPS])
    for way, derivatives in in_all_ways(along, zero).items():
        for order, derivative in enumerate(derivatives, 1):
            (left, bound), (right, other) = fits[order]
            if not abs(left - right) <= 2 * max(bound, other):
                break  # some element has a kink: others may hide in the sum
            got, want, most = float(derivative), float(left + right) / 2, 2 * float(max(bound, other))
            assert abs(got - want) <= most, f"{case!r}, {way}: derivative {order} is {got}, not {want}"


@pytest.mark.parametrize("cls", OTHERS, ids=lambda cls: cls.name)
def test_others(cls, request):
    count = swept(request, cls, OTHERS, 1)
    found = [c for c in cases(cls, ("float64",)) if c.sample.gradient and not c.random and floats(c.arrays)]
    for case in some(request, f"derivatives {cls.name}", found, count):
        check_other(case)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_norms_of_short_vectors(dtype):
    """1 / norm, which is too large for float16, is not rounded to it."""
    x = wf.tensor([[1e-5, 0.0], [0.0, 0.0]]).astype(dtype)
    _, pull = wf.vjp(lambda x: wf.functional.vector_norm(x, axis=1), x)
    assert pull(wf.ones(2, dtype=dtype))[0].tolist() == [[1.0, 0.0], [0.0, 0.0]]
