"""Random programs of calls: any public operator by its samples, in any dtype, on results of earlier calls.

Sizes of samples are exchanged for others, 0 and 1 among them. Operands are arrays and views of them, or parts of
results, brought to the shape, dtype and range that the sample asks for. A program is a function of its arrays that runs
on tensors, in traces and on symbols.
"""

import dataclasses
import math

import numpy as np
from tests.fuzzing import each_left_out

import weft as wf
import weft.functional as F
from weft.base.dtype import as_dtype
from weft.base.errors import DeviceError, DTypeError
from weft.ops.samples import Array
from weft.symbol import Symbol

from .support import LAYOUTS, NAMES, OPERATORS, called, case_of, listed, made, specs

SIZES = (0, 1, 1, 2, 3, 5, 8, 17)
LARGEST = 4000  # elements of an operand
DRAWN = [cls for cls in OPERATORS if not cls.random]
REFUSALS = (
    AssertionError,  # of case_of: no call, or several
    DeviceError,
    DTypeError,
    IndexError,
    NotImplementedError,
    OverflowError,
    TypeError,
    ValueError,
)


@dataclasses.dataclass
class Part:
    """An operand made of an earlier result of `size` elements: those from `start` on, repeated as needed."""

    result: int
    source: str
    size: int
    start: int
    is_reversed: bool  # the axes, so that the operand is a view with other strides
    spec: Array
    dtype: str

    def of(self, x):
        """A tensor, tracer or symbol."""
        need = math.prod(self.spec.shape)
        flat = F.reshape(x, (-1,)) if need else F.reshape(x, (-1,))[:0]
        repeats = -(-(self.start + need) // self.size)
        if repeats > 1:
            flat = F.reshape(F.broadcast_to(flat, (repeats, self.size)), (-1,))
        flat = F.slice(flat, (self.start,), (self.start + need,)) if need else flat
        shape = self.spec.shape
        if self.is_reversed:
            y = F.permute_dims(F.reshape(flat, shape[::-1]), tuple(range(len(shape)))[::-1])
        else:
            y = F.reshape(flat, shape)
        return ranged(y, as_dtype(self.source), as_dtype(self.dtype), self.spec)


def ranged(x, source, dtype, spec):
    """x of another dtype, inside of what a sample's Array allows and away from its ends."""
    if source.is_complex and not dtype.is_complex:
        x, source = F.real(x), source.real
    if source.is_complex:
        low_of = lambda part: inside(part, spec.low, spec.high)  # noqa: E731
        return F.cast(F.complex(low_of(F.real(x)), low_of(F.imag(x))), dtype=dtype)
    if dtype.kind == "bool":
        return F.cast(x, dtype=dtype) if source.kind == "bool" else F.greater(x, 0)
    if dtype.is_integer:
        low = max(math.ceil(spec.low), 0) if dtype.kind == "uint" else math.ceil(spec.low)
        x = F.cast(inside(x, -30.0, 30.0) if source.is_floating else x, dtype="int64")
        return F.cast(F.remainder(x, math.floor(spec.high) - low + 1) + low, dtype=dtype)
    x = x if source.is_floating else F.cast(x, dtype="float32")
    return F.cast(inside(x, spec.low, spec.high), dtype=dtype)


def inside(x, low, high):
    return x / (F.abs(x) + 1.0) * (0.45 * (high - low)) + 0.5 * (high + low)


@dataclasses.dataclass
class Step:
    """A call of an operator: its sample, and for each Array of it the index of an input, or a Part."""

    cls: type
    sample: object
    dtype: str
    operands: list

    def __repr__(self):
        return f"{self.cls.name} of {self.dtype} {self.sample!r} on {self.operands}"


@dataclasses.dataclass
class Program:
    """inputs: arrays and the names of their layouts."""

    inputs: list
    steps: list

    def __repr__(self):
        shown = [f"x{k} = {a.dtype} {a.tolist()} {layout or ''}" for k, (a, layout) in enumerate(self.inputs)]
        return "\n".join([*shown, *map(repr, self.steps)])

    def tensors(self):
        return [LAYOUTS[layout](a) if layout else wf.tensor(a) for a, layout in self.inputs]

    def calls(self, inputs, blur=None):
        """(step, operands, results) of each step in turn; blur changes each result, as rounding does."""
        known = []
        for step in self.steps:
            operands = [inputs[o] if isinstance(o, int) else o.of(known[o.result]) for o in step.operands]
            results = called(step.cls, step.sample, operands)
            results = [*results] if isinstance(results, Symbol) else listed(results)
            known += [blur(y) for y in results] if blur else results
            yield step, operands, results

    def value(self, *inputs, blur=None):
        """The results of all steps."""
        return [y for _, _, results in self.calls(inputs, blur) for y in results]

    def smaller(self):
        """Without one step, whose results become inputs where they are read; an input without its layout."""
        found = [results for _, _, results in self.calls(self.tensors())]
        firsts = [sum(map(len, found[:k])) for k in range(len(found) + 1)]
        values = [y for results in found for y in results]
        for k, steps in enumerate(each_left_out(self.steps) if len(self.steps) > 1 else ()):
            yield self._without(range(firsts[k], firsts[k + 1]), values, steps)
        for k, (array, layout) in enumerate(self.inputs):
            if layout:
                yield Program([*self.inputs[:k], (array, None), *self.inputs[k + 1 :]], self.steps)

    def _without(self, gone, values, steps):
        inputs = list(self.inputs)

        def moved(o):
            if isinstance(o, Part) and o.result in gone:
                inputs.append((o.of(values[o.result]).numpy(), None))
                return len(inputs) - 1
            after = isinstance(o, Part) and o.result >= gone.stop
            return dataclasses.replace(o, result=o.result - len(gone)) if after else o

        steps = [dataclasses.replace(step, operands=[*map(moved, step.operands)]) for step in steps]
        return Program(inputs, steps).without_unread_inputs()

    def without_unread_inputs(self):
        read = sorted({o for step in self.steps for o in step.operands if isinstance(o, int)})
        places = {old: new for new, old in enumerate(read)}
        steps = [
            dataclasses.replace(
                s, operands=[places.get(o, o) if isinstance(o, int) else o for o in s.operands]
            )
            for s in self.steps
        ]
        return Program([self.inputs[k] for k in read], steps)


def finite(x):
    return bool(np.isfinite(x.numpy().astype("complex128" if x.dtype.is_complex else "float64")).all())


class Drawing:
    """Grows a program; each step runs as it is drawn."""

    def __init__(self, seed, operators=DRAWN):
        self.rng = np.random.default_rng(seed)
        self.operators = operators
        self.inputs, self.steps, self.results = [], [], []
        self.dtypes = [self.pick(NAMES) for _ in range(2)]

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def program(self):
        wanted, tries = int(self.rng.integers(1, 6)), 0
        while len(self.steps) < wanted and tries < 60:
            tries += 1
            self.step()
        return Program(self.inputs, self.steps)

    def step(self):
        cls = self.pick(self.operators)
        sample = self.pick([*cls.samples()])
        taken = sample.dtypes or NAMES
        dtype = self.pick([d for d in self.dtypes if d in taken] or taken)
        resized = self.resized(specs(sample)) if self.rng.random() < 0.6 else specs(sample)
        for chosen in (resized, specs(sample)):
            inputs = list(self.inputs)
            operands = [self.operand(spec, dtype) for spec in chosen]
            tensors = Program(self.inputs, []).tensors()
            given = [tensors[o] if isinstance(o, int) else o.of(self.results[o.result]) for o in operands]
            try:
                if case_of(cls, sample, [x.numpy() for x in given], dtype) is not None:
                    self.results += listed(called(cls, sample, given))
                    self.steps.append(Step(cls, sample, dtype, operands))
                    return
            except REFUSALS:
                pass  # it does not take such operands
            self.inputs = inputs

    def resized(self, given):
        """The Arrays with other sizes; equal ones stay equal."""
        if any(spec.values is not None or spec.dtype for spec in given):
            return given
        sizes = {
            n: self.pick(SIZES) if self.rng.random() < 0.4 else n for s in given for n in s.shape if n > 1
        }
        new = [spec.replaced(shape=tuple(sizes.get(n, n) for n in spec.shape)) for spec in given]
        return new if all(math.prod(spec.shape) <= LARGEST for spec in new) else given

    def operand(self, spec, dtype):
        """A part of a result, or an array."""
        kind = as_dtype(spec.dtype or dtype)
        usable = [k for k, y in enumerate(self.results) if 0 < y.size <= LARGEST and finite(y)]
        if (
            usable
            and spec.values is None
            and not spec.dtype
            and not spec.distinct
            and self.rng.random() < 0.7
        ):
            k = self.pick(usable[-4:])
            x = self.results[k]
            start = int(self.rng.integers(x.size)) if self.rng.random() < 0.3 else 0
            is_reversed = bool(self.rng.random() < 0.3)
            return Part(k, x.dtype.name, x.size, start, is_reversed, spec, kind.name)
        array = made(spec, dtype, self.rng)
        layout = self.pick([None, *LAYOUTS]) if array.ndim and self.rng.random() < 0.5 else None
        self.inputs.append((array, layout))
        return len(self.inputs) - 1
