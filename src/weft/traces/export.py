"""Traced programs as files, to be run without the code that they came from.

>>> import tempfile, weft as wf
>>> w = wf.tensor([2., 3.])
>>> f = wf.trace(lambda x, a: {"y": x * w + a})
>>> x = wf.tensor([1., 1.])
>>> _ = f(x, 0.5)
>>> with tempfile.TemporaryDirectory() as folder:
...     f.export(f"{folder}/f.weft")
...     loaded = wf.load_program(f"{folder}/f.weft")
>>> loaded(x, 1.)["y"]
tensor([3., 4.], dtype=float32, device=cpu:0)

A file is one of weft.save: the arrays that the function found outside of its arguments, and, as metadata, one JSON
document with the graphs and how calls are distinguished. Loading checks all of it and runs nothing.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft import _core
from weft._core import NoProgram
from weft.arrays.foreign import without_foreign
from weft.arrays.serialization import load_metadata, load_safetensors, save
from weft.arrays.tensor import Tensor, element_strides
from weft.base.dtype import as_dtype
from weft.base.errors import GraphError
from weft.base.structure import Structure, flatten
from weft.executor.compile import compile_graph
from weft.graph.graph import Graph
from weft.graph.text import (
    JsonSource,
    checked,
    decode,
    decode_integer,
    decode_size,
    document,
    encode,
    from_json,
    to_json,
)
from weft.ops.sizes import COMPARISONS, Size, SizeGuards
from weft.ops.types import TensorType
from weft.traces.sized import Signature, SizedProgram, size_of
from weft.traces.traced import Described, replay_spec

if TYPE_CHECKING:
    from weft._core import Find, ReplaySpec

__all__ = ["Program", "export", "graphs_in", "load_program"]

FORMAT, KEY = "weft.program", "program"
VERSION, DYNAMIC_VERSION = 1, 2  # of files without and with dynamic axes
MOST = 1 << 62
SIZES = 64  # plans of one program with dynamic axes; the oldest are dropped
CONTAINERS: dict[str, type] = {"tuple": tuple, "list": list, "dict": dict}


class Program:
    """A loaded program: called as the function was. tensors: what it found outside of its arguments, by name.

    Raises TypeError for arguments of a kind that was not exported.
    """

    def __init__(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        self.name, self.tensors = name, dict(tensors)
        self._replays = _core.Replays()
        self._sized: list[LoadedSizedProgram] = []
        self._planning = threading.Lock()
        self._kinds: list[str] = []
        self._writes_nothing = True

    def add(self, example: tuple[tuple[Any, ...], dict[str, Any]], spec: ReplaySpec, writes: bool) -> None:
        """One more kind of calls; writes: to its arguments, or to arrays of its own."""
        args, kwargs = example
        self._writes_nothing &= not writes
        self._replays.add(args, kwargs, self, spec)
        self._kinds.append(_described(args, kwargs))

    def add_sized(self, args: tuple[Any, ...], kwargs: dict[str, Any], sized: LoadedSizedProgram) -> None:
        """One more kind of calls, with dynamic axes, of which these arguments are an example."""
        self._writes_nothing &= not (sized.changed or sized.written_captures)
        self._sized.append(sized)
        self._kinds.append(sized.described(args, kwargs))
        self._add_plan(sized, args, kwargs, flatten((args, kwargs))[0], sized.signature.sizes)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        answer = self._run(args, kwargs)
        if type(answer) is not NoProgram:
            return answer
        if answer.reason == "convert":
            return self(*without_foreign(self.name, args), **without_foreign(self.name, kwargs))
        if self._writes_nothing:  # other strides make no difference then
            dense = [x.contiguous() if isinstance(x, Tensor) else x for x in flatten((args, kwargs))[0]]
            answer = self._run(*flatten((args, kwargs))[1].build(dense))
        if type(answer) is NoProgram:
            kinds = "\n  ".join(self._kinds)
            raise TypeError(
                f"{self.name}: no program for the arguments {_described(args, kwargs)}; there are:\n  {kinds}"
            )
        return answer

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result, or a NoProgram; sizes of dynamic axes that come for the first time are planned."""
        answer = self._replays.run(args, kwargs, self)  # no call is direct: it calls nothing
        if type(answer) is not NoProgram or answer.reason == "convert" or not self._sized:
            return answer
        leaves, structure = flatten((args, kwargs))
        for sized in self._sized:
            if (signature := sized.matches(leaves, structure)) is not None:
                with self._planning:
                    answer = self._replays.run(args, kwargs, self)  # another thread may have planned it
                    if type(answer) is NoProgram:
                        self._add_plan(sized, args, kwargs, leaves, signature.sizes)
                        answer = self._replays.run(args, kwargs, self)
                return answer
        return answer

    def _add_plan(
        self,
        sized: LoadedSizedProgram,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: list[Any],
        sizes: Sequence[int],
    ) -> None:
        plan = sized.plan_for(leaves, sizes)
        self._replays.add(args, kwargs, plan, plan.spec)
        sized.plans.append(plan)
        if len(sized.plans) > SIZES:
            self._replays.drop(sized.plans.pop(0))

    def __repr__(self) -> str:
        return f"Program({self.name!r}, {len(self._kinds)} kinds of arguments)"


def _described(args: Any, kwargs: Any, types: Sequence[TensorType | None] = ()) -> str:
    """The kinds of arguments; types: of the arrays among their leaves, where sizes are dynamic."""
    leaves, structure = flatten((args, kwargs))
    texts = [
        _core.describe(x) if isinstance(x, Tensor) else "float" if type(x) is float else repr(x)
        for x in leaves
    ]
    texts = [
        str(t) if t is not None else text for t, text in zip(types or [None] * len(texts), texts, strict=True)
    ]
    inner, keywords = structure.build([_Text(text) for text in texts])
    return (
        ", ".join([*map(repr, inner), *(f"{name}={value!r}" for name, value in keywords.items())]) or "none"
    )


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


# Writing.


def export(path: str | os.PathLike[str], name: str, programs: Sequence[Any]) -> None:
    """Write the programs of a traced function. Raises GraphError for one that depends on Python objects."""
    if not programs:
        raise GraphError(f"export: {name} has no program: call it first")
    tensors: dict[str, Tensor] = {}
    entries = [
        (_sized_entry if isinstance(program, SizedProgram) else _entry)(name, program, tensors)
        for program in programs
    ]
    version = DYNAMIC_VERSION if any("sizes" in entry for entry in entries) else VERSION
    text = json.dumps(
        {"format": FORMAT, "version": version, "name": name, "programs": entries}, allow_nan=False
    )
    save(path, tensors, {KEY: text})


def _entry(name: str, program: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    spec = program.spec
    if spec.guard or spec.effect or any(had for _, had in spec.gradients):
        raise GraphError(f"export: {name} depends on Python objects: numbers that it looked at, or gradients")
    leaves, structure = program.example
    return {
        "graph": to_json(program.graph),
        "visible": program.visible,
        "strides": [list(s) for s in program.strides],
        "arrays": [_find(name, find, tensors) for find in spec.arrays],
        "numbers": [_find(name, find, tensors) for find in spec.numbers],
        "results": [_find(name, find, tensors) for find in spec.results],
        "stopped": spec.stopped,
        "structure": _structure(program.structure),
        "arguments": _structure(structure),
        "leaves": [_leaf(name, leaf) for leaf in leaves],
    }


def _sized_entry(name: str, program: Any, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A program with dynamic axes: its graph for all sizes, and what is assumed of these."""
    leaves, structure = program.example
    signature = program.signature
    if any(signature.shared):
        raise GraphError(f"export: {name} has dynamic axes, and arguments that share memory")
    return {
        "graph": to_json(program.graph),
        "visible": program.visible,
        "arrays": [_find(name, find, tensors) for find in program.captures],
        "numbers": [_find(name, find, tensors) for _, find in program.numbers],
        "results": [
            ["size", encode(find), None] if isinstance(find, Size) else _find(name, find, tensors)
            for find in program.exported_results()
        ],
        "written": program.written_captures,
        "changed": program.changed,
        "structure": _structure(program.structure),
        "arguments": _structure(structure),
        "leaves": [_leaf(name, leaf) for leaf in leaves],
        "axes": [
            [] if t is None else [d for d, n in enumerate(t.shape) if isinstance(n, Size)]
            for t in signature.types
        ],
        "sizes": signature.sizes,
        "guards": [
            [encode(a), word, encode(b), holds] for a, word, b, holds in program.size_guards.comparisons
        ],
    }


def _find(name: str, find: Find, tensors: dict[str, Tensor]) -> Any:
    kind: str = find.kind
    target, window = find.what, find.window
    if kind == "object" and isinstance(target, Tensor):
        tensor_name = next((key for key, x in tensors.items() if x is target), None)
        if tensor_name is None:
            tensor_name = f"tensor{len(tensors)}"
            tensors[tensor_name] = target
        kind, target = "tensor", tensor_name
    elif kind == "object":
        kind, target = "value", _value(name, target)
    elif kind == "python":
        raise GraphError(f"export: {name} computes with its arguments in Python")
    return [kind, target, None if window is None else [window[0], list(window[1]), list(window[2])]]


def _value(name: str, value: Any) -> Any:
    try:
        return encode(value)
    except GraphError:
        raise GraphError(f"export: {name} takes or gives a Python object: {value!r}") from None


def _leaf(name: str, leaf: Any) -> Any:
    if isinstance(leaf, Described):
        return {"array": [leaf.dtype, list(leaf.shape), list(leaf.strides), leaf.device]}
    return {"float": None} if type(leaf) is float else {"value": _value(name, leaf)}


def _structure(structure: Structure) -> Any:
    if structure.kind is None:
        return None
    kind = next((word for word, container in CONTAINERS.items() if container is structure.kind), None)
    if kind is None or not all(isinstance(key, str) for key in structure.keys):
        raise GraphError(f"export: a {structure.kind.__name__} cannot be written, nor keys other than texts")
    return [kind, list(structure.keys), [_structure(part) for part in structure.parts]]


# Reading.


def load_program(path: str | os.PathLike[str]) -> Program:
    """What Trace.export wrote. Raises FileFormatError and GraphError for anything else.

    >>> import tempfile, weft as wf
    >>> f = wf.trace(lambda x: x + 1)
    >>> _ = f(wf.zeros(2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     f.export(f"{folder}/f.weft")
    ...     wf.load_program(f"{folder}/f.weft")(wf.zeros(2))
    tensor([1., 1.], dtype=float32, device=cpu:0)
    """
    source = _document(path)
    source.only("format", "version", "name", "programs")
    program = Program(source["name"].text(), load_safetensors(path))
    for entry in source["programs"].items():
        if "sizes" in entry:
            program.add_sized(*_read_sized(entry, program))
        else:
            _add_program(entry, program)
    return program


def graphs_in(path: str | os.PathLike[str]) -> list[tuple[str, Graph, list[tuple[int, ...]]]]:
    """The programs of a file as (name, graph, strides of its arrays), for people to look at.

    Of one with dynamic axes the graph is that for the sizes of the call that it was recorded in.
    Raises FileFormatError and GraphError for other files.
    """
    source = _document(path)
    program = Program(source["name"].text(), load_safetensors(path))
    graphs: list[tuple[str, Graph, list[tuple[int, ...]]]] = []
    for k, entry in enumerate(source["programs"].items()):
        if "sizes" in entry:
            args, kwargs, sized = _read_sized(entry, program)
            traced = sized.plan_for(flatten((args, kwargs))[0], sized.signature.sizes)
            graphs.append((f"{program.name}-{k}", traced.graph, list(traced.strides)))
        else:
            graphs.append((f"{program.name}-{k}", from_json(entry["graph"].text()), _read_strides(entry)))
    return graphs


def _document(path: str | os.PathLike[str]) -> JsonSource:
    text = load_metadata(path).get(KEY)
    if text is None:
        raise GraphError(f"load_program: {os.fspath(path)!s} holds arrays, but no program")
    return document(text, FORMAT, VERSION, DYNAMIC_VERSION)


def _read_strides(entry: JsonSource) -> list[tuple[int, ...]]:
    return [tuple(n.integer(-(1 << 62), 1 << 62) for n in s.items()) for s in entry["strides"].items()]


def _read_example(entry: JsonSource) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of the kinds of the call that a program was recorded in."""
    arguments = _read_structure(entry["arguments"])
    example = checked(entry, lambda: arguments.build([_example(leaf) for leaf in entry["leaves"].items()]))
    if not isinstance(example, tuple) or tuple(map(type, example)) != (tuple, dict):
        raise entry["arguments"].fail("expected positional and named arguments")
    return example


def _add_program(entry: JsonSource, program: Program) -> None:
    example = _read_example(entry)
    leaves, _ = flatten(example)
    graph = from_json(entry["graph"].text())
    visible = entry["visible"].integer(0, len(graph.outputs) + 1)
    strides = _read_strides(entry)
    reader = _Finds(leaves, visible, program.tensors)
    arrays = [reader.tensor(part) for part in entry["arrays"].items()]
    numbers = [reader.number(part) for part in entry["numbers"].items()]
    _check_inputs(entry, graph, [x for _, x in arrays], strides, len(numbers))
    results = [reader.result(part) for part in entry["results"].items()]
    structure = _read_structure(entry["structure"])
    checked(entry["structure"], lambda: structure.build(results))
    stable_inputs = [k for k, (find, _) in enumerate(arrays) if find.kind == "object"]
    writes = bool(graph.writes)
    spec = replay_spec(
        checked(
            entry, lambda: compile_graph(graph, program.name, strides, visible, stable_inputs=stable_inputs)
        ),
        arrays=[find for find, _ in arrays],
        numbers=numbers,
        results=results,
        structure=structure,
        stopped=[k.integer(0, len(results)) for k in entry["stopped"].items()] if "stopped" in entry else (),
        elsewhere={_core.geometry(x)[0] for x in program.tensors.values()} if writes else (),
    )
    program.add(example, spec, writes)


class LoadedSizedProgram(SizedProgram):
    """A program with dynamic axes that was read from a file. axes: those of each leaf."""

    reason = "with dynamic axes"
    size_guards: SizeGuards

    def __init__(
        self, name: str, leaves: Sequence[Any], structure: Structure, axes: Sequence[Sequence[int]]
    ) -> None:
        self.name, self.axes = name, [tuple(each) for each in axes]
        self.signature = self.signature_of(leaves, structure)
        self.size_guards = SizeGuards(self.signature.sizes)
        self.plans: list[Any] = []

    def signature_of(self, leaves: Sequence[Any], structure: Structure) -> Signature:
        """Of a call with as many leaves, whose axes are taken for dynamic where those of the file's are."""
        axes_by_id = {
            id(x): tuple(d for d in axes if d < x.ndim)
            for x, axes in zip(leaves, self.axes, strict=True)
            if isinstance(x, Tensor)
        }
        return Signature(leaves, structure, axes_by_id)

    def matches(self, leaves: Sequence[Any], structure: Structure) -> Signature | None:
        """The signature of a call, if the program is for it."""
        if len(leaves) != len(self.axes):
            return None
        signature = self.signature_of(leaves, structure)
        return signature if self.holds(signature, list(leaves)) else None

    def described(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The arguments with their dynamic sizes, what is assumed of these, for errors."""
        text = _described(args, kwargs, self.signature.types)
        return f"{text} where {self.size_guards}" if self.size_guards.comparisons else text

    def find_inputs(self, captures: Sequence[Tensor], fail: Callable[[str], Exception]) -> None:
        """Say which inputs of the graph the leaves and captures are; raises fail(...) where they do not fit it."""
        arrays = iter(v for v in self.graph.inputs if not v.type.weak)
        self.values, self.inputs = [], []
        expected = [*(t for t in self.signature.types if t is not None)]
        expected += [TensorType(x.shape, x.dtype, x.device) for x in captures]
        given = [v.type for v in self.graph.inputs if not v.type.weak]
        if given != expected or len(self.graph.inputs) - len(given) != len(self.numbers):
            raise fail(f"the graph takes {given}, and is given {expected}")
        for t in self.signature.types:
            self.values.append(None if t is None else next(arrays))
        self.inputs = [v for v in self.values if v is not None]
        contents = [v for v in self.graph.outputs if v is not None][self.visible :]
        targets = [
            *(expected[len(self.inputs) + k] for k in self.written_captures),
            *(self.signature.types[k] for k in self.changed),
        ]
        if len(contents) < len(targets):
            raise fail("the graph gives too few new contents")
        for value, target in zip(contents, targets, strict=False):
            if target is None or (value.shape, value.dtype) != (target.shape, target.dtype):
                raise fail(f"{value.type} cannot become the content of {target}")


def _read_sized(
    entry: JsonSource, program: Program
) -> tuple[tuple[Any, ...], dict[str, Any], LoadedSizedProgram]:
    """Arguments of the call that a program with dynamic axes was recorded in, and the program."""
    args, kwargs = _read_example(entry)
    leaves, structure = flatten((args, kwargs))
    axes = [[d.integer(0, 64) for d in part.items()] for part in entry["axes"].items()]
    if len(axes) != len(leaves) or any(
        ds and not (isinstance(x, Tensor) and max(ds) < x.ndim) for x, ds in zip(leaves, axes, strict=True)
    ):
        raise entry["axes"].fail("expected axes for each argument")
    sized = LoadedSizedProgram(program.name, leaves, structure, axes)
    if [n.integer(0, MOST) for n in entry["sizes"].items()] != sized.signature.sizes:
        raise entry["sizes"].fail(f"the arguments have the dynamic sizes {sized.signature.sizes}")
    # What rules compare when types are inferred again is answered, and guarded, as when the function ran.
    with sized.size_guards:
        sized.graph = checked(entry["graph"], lambda: from_json(entry["graph"].text()))
        for part in entry["guards"].items():
            _read_guard(part, sized.size_guards)
        sized.visible = entry["visible"].integer(0, len(sized.graph.outputs) + 1)
        reader = _Finds(leaves, sized.visible, program.tensors, sized.signature)
        captures = [reader.tensor(part) for part in entry["arrays"].items()]
        sized.captures = [find for find, _ in captures]
        sized.numbers = [(k + 1, reader.number(part)) for k, part in enumerate(entry["numbers"].items())]
        sized.results = [reader.result(part) for part in entry["results"].items()]
        sized.written_captures = [k.integer(0, len(captures)) for k in entry["written"].items()]
        sized.changed = [k.integer(0, len(leaves)) for k in entry["changed"].items()]
        sized.find_inputs([x for _, x in captures], entry["graph"].fail)
    if any(find.kind != "object" for find in sized.captures):
        raise entry["arrays"].fail("expected tensors of the file")
    sized.structure = _read_structure(entry["structure"])
    checked(entry["structure"], lambda: sized.structure.build(sized.results))
    return args, kwargs, sized


def _read_guard(part: JsonSource, guards: SizeGuards) -> None:
    items = part.items()
    if len(items) != 4 or items[1].value not in COMPARISONS:
        raise part.fail(
            f"expected two sizes, one of {', '.join(COMPARISONS)} between them, and whether it holds"
        )
    a, b = (decode_integer(each, -MOST, MOST) for each in (items[0], items[2]))
    answer = checked(part, lambda: guards.answer(a, items[1].text(), b))
    if answer is not items[3].is_a(bool, "true or false"):
        raise part.fail(f"{a} {items[1].value} {b} is {answer} for the sizes of the arguments")


def _check_inputs(
    entry: JsonSource,
    graph: Graph,
    examples: Sequence[Tensor],
    strides: Sequence[tuple[int, ...]],
    numbers: int,
) -> None:
    arrays = [v for v in graph.inputs if not v.type.weak]
    if (
        len(arrays) != len(examples)
        or len(strides) != len(examples)
        or len(graph.inputs) - len(arrays) != numbers
    ):
        raise entry.fail("the graph takes other inputs than the program gives it")
    for value, x, steps in zip(arrays, examples, strides, strict=True):
        is_same_type = (value.shape, value.dtype, value.type.device) == (x.shape, x.dtype, x.device)
        if not is_same_type or element_strides(x) != steps:
            raise entry.fail(f"the graph takes {value.type}, and is given {_core.describe(x)}")


class _Finds:
    """Reads where things are found; leaves: of the example, outputs: how many there are. signature: of dynamic axes."""

    def __init__(
        self,
        leaves: Sequence[Any],
        outputs: int,
        tensors: Mapping[str, Tensor],
        signature: Signature | None = None,
    ) -> None:
        self.leaves, self.outputs, self.tensors, self.signature = leaves, outputs, tensors, signature

    def tensor(self, part: JsonSource) -> tuple[Find, Tensor]:
        """An array, and the one it is in the example."""
        kind, reference, window = self._parts(part)
        if kind == "leaf":
            number = reference.integer(0, len(self.leaves))
            x = self.leaves[number]
            find: Find = _core.Find.leaf(number)
        elif kind == "tensor":
            x = self._tensor(reference)
            find = _core.Find.object(x)
        else:
            raise part.fail("expected an argument or a tensor")
        if not isinstance(x, Tensor):
            raise part.fail("is not an array")
        if window is None:
            return find, x
        return find.with_window(self._inside(part, x, window)), _core.window(x, *window)

    def number(self, part: JsonSource) -> Find:
        kind, reference, _ = self._parts(part)
        if kind != "leaf" or type(self.leaves[number := reference.integer(0, len(self.leaves))]) is not float:
            raise part.fail("expected an argument that is a float")
        leaf: Find = _core.Find.leaf(number)
        return leaf

    def result(self, part: JsonSource) -> Find:
        kind, reference, window = self._parts(part)
        if kind == "output" and window is None:
            find: Find = _core.Find.output(reference.integer(0, self.outputs))
            return find
        if kind == "value":
            find = _core.Find.object(decode(reference))
            return find
        if kind == "size" and self.signature is not None:
            return size_of(decode_size(reference["size"], len(self.signature.sizes)), self.signature)
        if kind == "output":
            raise part.fail("parts of outputs cannot be loaded")
        return self.tensor(part)[0]

    def _parts(self, part: JsonSource) -> tuple[str, JsonSource, Any]:
        items = part.items()
        if len(items) != 3:
            raise part.fail("expected a kind, what it is, and a window")
        window = None
        if items[2].value is not None:
            offset, shape, strides = items[2].items()
            window = (
                offset.integer(-(1 << 62), 1 << 62),
                tuple(n.integer(0, 1 << 62) for n in shape.items()),
                tuple(n.integer(-(1 << 62), 1 << 62) for n in strides.items()),
            )
        return items[0].text(), items[1], window

    def _tensor(self, reference: JsonSource) -> Tensor:
        x = self.tensors.get(reference.text())
        if x is None:
            raise reference.fail("no such tensor in the file")
        return x

    @staticmethod
    def _inside(part: JsonSource, x: Tensor, window: Any) -> Any:
        offset, shape, strides = window
        ends = [0, 0] if 0 in shape else _reach(shape, strides)
        low, high = _reach(x.shape, element_strides(x)) if x.size else (0, 0)
        if len(shape) != len(strides) or offset + ends[0] < low or offset + ends[1] > high:
            raise part.fail("reaches beyond the array")
        return window


def _reach(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    ends = [(n - 1) * s for n, s in zip(shape, strides, strict=False)]
    return [sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)]


def _example(leaf: JsonSource) -> Any:
    if "float" in leaf:
        return 0.0
    if "value" in leaf:
        return decode(leaf["value"])
    dtype, shape, strides, device = leaf["array"].items()
    sizes = tuple(n.integer(0, 1 << 40) for n in shape.items())
    steps = tuple(n.integer(-(1 << 40), 1 << 40) for n in strides.items())
    if len(sizes) != len(steps):
        raise leaf.fail("sizes and strides differ in number")
    low, high = [0, 0] if 0 in sizes else _reach(sizes, steps)
    span = checked(leaf, lambda: _core.empty(high - low + 1, as_dtype(dtype.text()), device.text()))
    return _core.window(span, -low, sizes, steps)


def _read_structure(source: JsonSource) -> Structure:
    if source.value is None:
        return Structure(None)
    items = source.items()
    if len(items) != 3 or items[0].value not in CONTAINERS:
        raise source.fail(f"expected one of {', '.join(CONTAINERS)}, keys, and parts")
    parts = tuple(_read_structure(part) for part in items[2].items())
    keys = tuple(key.text() for key in items[1].items())
    if len(keys) != (len(parts) if items[0].value == "dict" else 0):
        raise source.fail("another number of keys than of parts")
    return Structure(CONTAINERS[items[0].value], parts, keys)
