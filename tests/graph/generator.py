"""Random graphs: any registered operator by its samples, on values of earlier ones brought into the shape it needs.

What is shared, broadcast, seen through views, reduced, given twice and written comes by chance.
"""

import math

import numpy as np
from tests.ops.material import elementary, loss

from weft.base.dtype import as_dtype
from weft.base.errors import DeviceError, DTypeError, ShapeError
from weft.graph.graph import Graph
from weft.kernels import first_choice
from weft.ops import functions as F
from weft.ops.node import Value, apply, bind, constant, input_value
from weft.ops.op import Op
from weft.ops.pointwise import Pointwise
from weft.ops.registry import get, names
from weft.ops.samples import Array
from weft.ops.types import TensorType

SHAPES = ((), (3,), (2, 3), (1, 3), (2, 1, 3), (4, 4), (0, 3), (2, 3, 4, 4))
DTYPES = (
    "float32",
    "float32",
    "float32",
    "float64",
    "int32",
    "int64",
    "uint8",
    "bool",
    "bfloat16",
    "float16",
)
OPERATORS = [
    cls
    for cls in map(get, names())
    if cls.samples.__func__ is not Op.samples.__func__ and cls.__module__.startswith("weft.ops.")
]
POINTWISE = [cls for cls in OPERATORS if issubclass(cls, Pointwise) and cls.public]
# Composed more often than others, since passes look for them.
WORDS = """add subtract multiply divide pow negative positive where relu abs logical_not maximum matmul linear conv2d
batch_norm layer_norm softmax sum concat split dropout full adam_update sgd_update as_strided put_strided"""
FAVOURITES = [get(name) for name in WORDS.split()]
NUMBERS = (0, 1, 2, -1, 0.0, -0.0, 1.0, 2.0, 0.5, True, False)


class Generator:
    """Grows one graph; arrays: what its inputs are given."""

    def __init__(self, seed, dtypes=DTYPES):
        self.rng = np.random.default_rng(seed)
        self.inputs, self.arrays, self.pool = [], [], []
        self.loose = True
        self.dtypes = [self.pick(dtypes) for _ in range(self.rng.integers(1, 4))]
        for _ in range(self.rng.integers(1, 4)):
            self.add_input(self.pick(SHAPES), self.pick(self.dtypes))

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def chance(self, share):
        return self.rng.random() < share

    def add_input(self, shape, dtype, low=-2.0, high=2.0):
        kind = as_dtype(dtype)
        if kind.kind == "float":
            array = self.rng.uniform(low, high, shape)
        elif kind.kind == "bool":
            array = self.rng.random(shape) < 0.5
        else:
            array = self.rng.integers(
                0 if kind.kind == "uint" else math.ceil(low), math.floor(high), shape, endpoint=True
            )
        value = input_value(TensorType(shape, kind), f"x{len(self.inputs)}")
        self.inputs.append(value)
        self.arrays.append(np.asarray(array).astype(kind.numpy))
        self.pool.append(value)
        return value

    def grow(self, count):
        """Add about `count` operators."""
        tries = 0
        while count > 0 and tries < 500:
            tries += 1
            try:
                made = self.operator()
                for v in made:
                    first_choice(v.node)  # which tells of numbers that its elements cannot be
            except (
                DeviceError,
                DTypeError,
                ShapeError,
                TypeError,
                ValueError,
                IndexError,
                NotImplementedError,
                OverflowError,
                AttributeError,
            ):
                continue  # it does not take such operands
            if made:
                self.pool.extend(made)
                count -= 1
        return self

    def operator(self):
        made = self.pick((self.sampled, self.pointwise, self.pointwise, self.view, self.filled))()
        listed = list(made) if isinstance(made, tuple | list) else [made]
        return [v for v in listed if v.node.op is not None]

    def sampled(self):
        """Any operator, on operands like those of one of its samples."""
        cls = self.pick(FAVOURITES if self.chance(0.5) else OPERATORS)
        sample = self.pick([*cls.samples()])
        # Not all check what they are given, nor may places to look at lie outside of a smaller array.
        self.loose = cls.public and all(getattr(x, "dtype", None) is None for x in sample.operands)
        taken = sample.dtypes or (DTYPES if cls.public else DTYPES[:4])
        dtype = self.pick([d for d in self.dtypes if d in taken] or taken)
        inputs, attributes = bind(cls, sample.operands, dict(sample.attributes))
        for a in cls.attributes:
            value = attributes.get(a.name, a.default)
            if a.runtime and isinstance(value, float) and self.chance(0.2):
                attributes[a.name] = constant(value)
        return apply(cls, [inside(cls, k, self.operand(x, dtype)) for k, x in enumerate(inputs)], attributes)

    def pointwise(self):
        """A pointwise operator, on values whose shapes may fit, and numbers."""
        cls = self.pick([c for c in FAVOURITES if c in POINTWISE] if self.chance(0.7) else POINTWISE)
        attributes = self.pick([*cls.samples()]).attributes
        operands = [self.recent() for _ in cls.inputs]
        if len(operands) > 1 and self.chance(0.4):
            operands[int(self.rng.integers(len(operands)))] = self.number(*(v.dtype for v in operands))
        return apply(cls, [inside(cls, k, x) for k, x in enumerate(operands)], dict(attributes))

    def view(self):
        """A view, a cast, a copy on another device, or nothing but another name."""
        x = self.recent()
        if self.chance(0.1):
            return F.to_device(x, device=self.pick(("cpu:0", "cpu:1")))
        axes = tuple(int(a) for a in self.rng.permutation(x.ndim))
        match int(self.rng.integers(9)):
            case 0:
                return F.permute_dims(x, axes)
            case 1:
                return F.reshape(x, (-1,) if self.chance(0.5) else tuple(sorted(x.shape)))
            case 2:
                return F.expand_dims(x, axis=int(self.rng.integers(x.ndim + 1)))
            case 3:
                return F.squeeze(x, axis=x.shape.index(1))
            case 4:
                return F.slice(x, (int(self.rng.integers(2)),), (9,), axes=(axes[0],))
            case 5:
                return F.flip(x, axis=axes[:1])
            case 6:
                return F.broadcast_to(x, (2, *x.shape))
            case 7:
                return F.matrix_transpose(x)
            case _:
                return F.cast(x, dtype=self.pick((*self.dtypes, x.dtype)))

    def filled(self):
        x = self.recent()
        return x * F.filled_like(x, value=self.pick((0.0, 1.0, -0.0, 2.0)))

    def recent(self):
        """A value, more likely one of the last ones."""
        return self.pick(self.pool[-4:] if self.chance(0.6) else self.pool)

    def number(self, *dtypes):
        """A number beside values of these types; those below 0 do not fit into unsigned ones."""
        unsigned = any(dtype.kind == "uint" for dtype in dtypes)
        return self.pick([n for n in NUMBERS if not (unsigned and n < 0)])

    def operand(self, wanted, dtype):
        """A value for what a sample has in this place."""
        if wanted is None or (not isinstance(wanted, Array) and not isinstance(wanted, bool | int | float)):
            return wanted
        if not isinstance(wanted, Array):
            return self.number(as_dtype(dtype)) if self.loose and self.chance(0.5) else wanted
        kind = as_dtype(wanted.dtype or dtype)
        if wanted.values is not None or self.chance(0.1):
            array = np.asarray(wanted.values if wanted.values is not None else np.ones(wanted.shape))
            value = input_value(TensorType(wanted.shape, kind), f"x{len(self.inputs)}")
            self.inputs.append(value)
            with np.errstate(invalid="ignore"):
                self.arrays.append(array.reshape(wanted.shape).astype(kind.numpy))
            return value
        if wanted.dtype is not None:  # places to look at, or the like
            return self.add_input(wanted.shape, wanted.dtype, wanted.low, wanted.high)
        if self.loose and self.chance(0.05):
            return constant(self.number(kind), kind if self.chance(0.5) else None)
        fitting = [v for v in self.pool[-12:] + self.pool[:2] if v.dtype is kind]
        exact = [v for v in fitting if v.shape == wanted.shape]
        if exact and self.chance(0.8):
            return self.pick(exact)
        free = (
            [v for v in fitting if v.ndim == len(wanted.shape)] if self.loose and wanted.low == -2.0 else []
        )
        if free and self.chance(0.3):  # another shape, which may do as well
            return self.pick(free)
        return self.shaped(self.pick(fitting or self.pool), wanted, kind)

    def shaped(self, value, wanted, kind):
        """The value brought into a shape, type and range."""
        size, need = int(np.prod(value.shape)), int(np.prod(wanted.shape))
        if size != need:
            if not size or self.chance(0.3):
                return self.add_input(wanted.shape, kind, wanted.low, wanted.high)
            flat = F.reshape(value, shape=(-1,))
            if size < need:
                flat = F.reshape(F.broadcast_to(flat, (-(-need // size), size)), shape=(-1,))
            value = F.slice(flat, (0,), (need,))
        if value.shape != wanted.shape:
            value = F.reshape(value, shape=wanted.shape)
        if value.dtype is not kind:
            value = F.cast(value, dtype=kind)
        if kind.kind == "float" and wanted.low >= 0:
            value = F.add(F.abs(value), max(wanted.low, 0.1))
        return value

    def graph(self):
        """The graph of some of the values, some of which are written into inputs."""
        read = {id(v) for value in self.pool for v in value.node.inputs}
        made = [v for v in self.pool if v.node.op is not None] or self.pool
        outputs = [v for v in made if id(v) not in read and self.chance(0.7)] or [made[-1]]
        outputs += [self.pick(self.pool) for _ in range(int(self.rng.integers(3)))]
        writes = {}
        for k, value in enumerate(outputs):
            targets = [
                j for j, x in enumerate(self.inputs) if x.type == value.type and j not in writes.values()
            ]
            if targets and self.chance(0.4):
                writes[k] = self.pick(targets)
        return Graph(self.inputs, outputs, writes)


def domain_of(cls, k):
    """The range in which an operator's operand k is well away from infinities; None if that is everywhere."""
    if cls in elementary.RANGES:
        return elementary.RANGES[cls]
    return loss.RANGES[cls][k] if cls in loss.RANGES and k < len(loss.RANGES[cls]) else None


def inside(cls, k, value):
    """A computed operand brought into the operator's domain, well away from its ends.

    There rounding decides between an infinity, NaN and a number: atanh of a normalized value is inf where that is
    rounded to 1. Inputs are the same numbers in every way of computing, and stay what they are, ends included.
    """
    domain = domain_of(cls, k)
    if domain is None or not isinstance(value, Value) or value.node.op is None or not value.dtype.is_floating:
        return value
    low, high = domain
    share = value / (F.abs(value) + 1.0)  # -1 to 1
    return share * (0.5 * (high - low)) + 0.5 * (high + low)


def random_graph(seed, dtypes=DTYPES):
    """(graph, arrays) of a seed; dtypes: those that most values are of."""
    generator = Generator(seed, dtypes)
    generator.grow(int(generator.rng.integers(2, 25)))
    return generator.graph(), generator.arrays
