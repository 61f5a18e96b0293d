"""Calls of operators on arrays, made from their samples, and what comes out of them by the references."""

import math
import zlib
from dataclasses import dataclass

import numpy as np
import tests.ops.material  # noqa: F401  (references of operators)
from tests.fuzzing import SEED
from tests.on_device import DEVICE

import weft as wf
from weft.base.dtype import DTYPES, as_dtype
from weft.base.errors import DTypeError
from weft.graph.graph import graph_of, reference_of
from weft.ops.op import Op
from weft.ops.pointwise import Pointwise
from weft.ops.registry import function, get, public_names
from weft.ops.samples import Array
from weft.ops.types import TensorType

OPERATORS = [cls for cls in map(get, public_names()) if cls.__module__.startswith("weft.")]
NAMES = tuple(dtype.name for dtype in DTYPES)
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 1e-2, "bfloat16": 5e-2}
TOLERANCE |= {dtype.name: TOLERANCE[dtype.real.name] for dtype in DTYPES if dtype.is_complex}


@dataclass
class Case:
    """One call: the operator, its sample, the arrays in the sample's order, and the one node of its graph."""

    cls: type
    sample: object
    arrays: list
    dtype: str
    graph: object
    node: object

    def __repr__(self):
        return f"{self.cls.name} of {self.dtype} {self.sample!r}"

    @property
    def random(self):
        return bool(self.node.op.random)

    def call(self, tensors, f=None):
        """The operator's function, or f, on tensors in the places of the arrays; a list of what it gives."""
        return listed(called(self.cls, self.sample, tensors, f))

    def want(self, arrays=None):
        """The visible outputs by the reference; floats computed in float64."""
        given = {id(v): a for v, a in zip(self.graph.inputs, arrays or self.arrays, strict=True)}
        inputs = [
            None if v is None else v.node.value if v.is_constant else given[id(v)] for v in self.node.inputs
        ]
        wide = [widened(self.cls, x) for x in inputs]
        graph = widened_node(self.node, wide)
        with np.errstate(all="ignore"):
            found = reference_of(graph.op, graph, wide)
        return list(found)[: len(self.node.outputs) - self.node.op.hidden]

    def types(self):
        """What infer says of the visible outputs."""
        return [v.type for v in self.node.outputs[: len(self.node.outputs) - self.node.op.hidden]]


def widened(cls, x):
    """Floats as float64, as the references want them; all numbers, where they are computed as floats."""
    every = issubclass(cls, Pointwise) and cls.result == "float"
    if isinstance(x, np.ndarray) and (every or as_dtype(x.dtype).is_inexact):
        return x.astype(np.complex128 if as_dtype(x.dtype).is_complex else np.float64)
    return x


def widened_node(node, arrays):
    """The node with the types of these arrays, for references that are derived from loops and decompositions."""
    from weft.ops.node import Node, input_value

    values = [
        None if v is None else v if v.is_constant else input_value(TensorType(a.shape, as_dtype(a.dtype)))
        for v, a in zip(node.inputs, arrays, strict=True)
    ]
    types = node.op.infer(*(None if v is None else v.type for v in values))
    return Node(node.op, values, (types,) if isinstance(types, TensorType) else tuple(types), node.runtime)


def called(cls, sample, values, f=None):
    left = list(values)

    def operand(o):
        if isinstance(o, list | tuple):
            return [operand(x) for x in o]
        return left.pop(0) if isinstance(o, Array) else o

    return (f or function(cls.name))(*(operand(o) for o in sample.operands), **sample.attributes)


def listed(results):
    return list(results) if isinstance(results, tuple | list) else [results]


def specs(sample):
    """The sample's Arrays, those in lists too."""
    nested = (o if isinstance(o, list | tuple) else [o] for o in sample.operands)
    return [x for group in nested for x in group if isinstance(x, Array)]


def made(array, dtype, rng, shape=None):
    """The NumPy array that a sample's Array stands for; of complex types both parts are in its range."""
    kind = as_dtype(array.dtype or dtype)
    if kind.is_complex and array.values is None:
        re, im = (made(Array(array.shape, array.low, array.high), "float64", rng, shape) for _ in range(2))
        return (re + 1j * im).astype(kind.numpy)
    if array.values is not None:
        values = np.asarray(array.values).reshape(array.shape)
        return (np.abs(values) if kind.kind == "uint" else values).astype(kind.numpy)
    shape = array.shape if shape is None else shape
    size = math.prod(shape)
    low = 0 if kind.kind == "uint" else math.ceil(array.low)
    if kind.kind == "bool":
        flat = rng.random(size) < 0.5
    elif kind.kind != "float" and low <= math.floor(array.high):
        flat = rng.integers(low, math.floor(array.high), size, endpoint=True)
    elif array.distinct:
        span = array.high - array.low
        flat = rng.permutation(np.linspace(array.low, array.high, size + 2)[1:-1])
        flat = flat + span * rng.uniform(0.005, 0.03)  # unlike another one's, and not 0
    else:
        flat = rng.uniform(array.low, array.high, size)
    return np.asarray(flat).reshape(shape).astype(kind.numpy)


def case_of(cls, sample, arrays, dtype):
    """The Case, or None if the operator does not take such types."""
    try:
        types = [TensorType(a.shape, as_dtype(a.dtype), wf.current_device()) for a in arrays]
        graph = graph_of(lambda *values: called(cls, sample, values), types)
    except DTypeError:
        return None
    nodes = [n for n in graph.nodes if n.op is not None]
    assert len(nodes) == 1, f"{cls.name}: one call makes {len(nodes)} nodes"
    return Case(cls, sample, arrays, dtype, graph, nodes[0])


def cases(cls, dtypes=NAMES):
    """A Case for every sample in every dtype that the operator takes."""
    for sample in cls.samples():
        claimed = sample.dtypes or dtypes
        if all(a.dtype for a in specs(sample)) and not sample.dtypes:
            claimed = (specs(sample)[0].dtype if specs(sample) else "float32",)
        for dtype in claimed:
            if dtype not in dtypes and not any(a.dtype for a in specs(sample)):
                continue
            rng = np.random.default_rng(zlib.crc32(f"{cls.name} {dtype}".encode()))
            case = case_of(cls, sample, [made(a, dtype, rng) for a in specs(sample)], dtype)
            if case is not None:
                yield case


def some(request, name, found, count):
    """All of them with --full; else `count`, another part every day."""
    found = list(found)
    if request.config.getoption("--full") or len(found) <= count:
        return found
    rng = np.random.default_rng([SEED, zlib.crc32(name.encode())])
    return [found[k] for k in sorted(rng.choice(len(found), count, replace=False))]


def tensors(arrays):
    return [wf.tensor(a) for a in arrays]


def wide(x):
    """A tensor's elements as float64 or complex128."""
    return x.numpy().astype("complex128" if x.dtype.is_complex else "float64")


def assert_near(got, want, factor=1.0, what="", dtype=None):
    """A tensor or an array against what it should be; the bound is that of its dtype, or of one that it came from."""
    got = got.numpy() if isinstance(got, wf.Tensor) else np.asarray(got)
    want = np.asarray(want)
    assert got.shape == want.shape, f"{what}: {got.shape} is not {want.shape}"
    kind = as_dtype(got.dtype)
    if kind.is_inexact:
        bound = max(TOLERANCE[kind.name], TOLERANCE.get(dtype or "float64", 0)) * factor
        widest = np.complex128 if kind.is_complex else np.float64
        with np.errstate(all="ignore"):
            want = want.astype(got.dtype).astype(widest)  # infinite where the dtype has no such number
        np.testing.assert_allclose(got.astype(widest), want, rtol=bound, atol=bound, err_msg=what)
    else:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, want.astype(got.dtype), err_msg=what)


def in_reference_form(case, got, want):
    """What a call gave; on other devices than processors with what may differ, such as signs, as in the reference."""
    if not DEVICE or type(case.node.op).in_reference_form is Op.in_reference_form:
        return got
    return case.node.op.in_reference_form([y.numpy() for y in got], want)


# Layouts: the same elements, lying otherwise in memory.


def transposed(a):
    return wf.permute_dims(wf.tensor(a.T.copy()), range(a.ndim)[::-1])


def every_second(a):
    wide = wf.zeros(tuple(2 * n + 1 for n in a.shape), wf.tensor(a).dtype)
    view = wide[tuple(slice(1, None, 2) for _ in a.shape)]
    view[...] = wf.tensor(a)
    return view


def backwards(a):
    back = tuple(slice(None, None, -1) for _ in a.shape)
    return wf.tensor(a[back].copy())[back]


def channels_last(a):
    if a.ndim < 3:
        return transposed(a)
    x = wf.tensor(np.ascontiguousarray(np.moveaxis(a, 1, -1)))
    return wf.permute_dims(x, (0, a.ndim - 1, *range(1, a.ndim - 1)))


def repeated(a):
    """The elements of the first row, everywhere, by a stride of 0."""
    return wf.broadcast_to(wf.tensor(a[:1]), a.shape)


LAYOUTS = {f.__name__: f for f in (transposed, every_second, backwards, channels_last)}


# Gradients.


def total(outputs, weights):
    """The real part of the sum of all float outputs times weights: one number that depends on every element."""
    sums = [(y * w).sum() for y, w in zip(outputs, weights, strict=True) if w is not None]
    sums = [wf.real(part) if part.dtype.is_complex else part for part in sums]
    result = sums[0]
    for part in sums[1:]:
        result = result + part
    return result


def weights_of(case):
    rng = np.random.default_rng(zlib.crc32(repr(case.sample).encode()))
    kinds = [t.dtype.is_inexact for t in case.types()]
    if not any(kinds):
        return None
    return [
        wf.tensor(normal(rng, t.shape, t.dtype), device=t.device).astype(t.dtype) if k else None
        for t, k in zip(case.types(), kinds, strict=True)
    ]


def normal(rng, shape, dtype):
    """Normal numbers, complex ones if the dtype is."""
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if as_dtype(dtype).is_complex else x


def floats(arrays):
    return [k for k, a in enumerate(arrays) if as_dtype(a.dtype).is_inexact]


def slope_along(f, arrays, steps, h=1e-4):
    """The slope of f, which gives a float, from arrays along steps (None: held), by differences of fourth order."""

    def at(t):
        return f([a if s is None else a + t * s for a, s in zip(arrays, steps, strict=True)])

    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
