"""Native kernels of operators on matrices, images, indices, sequences, as operators ask for them, against references.

Every sample in float32, images channels last and first. Kernels that random numbers go into are run, not compared.
"""

import struct

import numpy as np
import pytest
import tests.ops.material  # noqa: F401  (references of operators)

import weft as wf
from weft import _core
from weft.base.dtype import as_dtype
from weft.graph.gradient import backward_graph
from weft.graph.graph import interpret, reference_of
from weft.kernels import choices
from weft.ops.kernels import CHANNELS_LAST, KEY, OFFSET, STREAM, Native
from weft.ops.op import Op, differentiable

from .test_rules_structured import SAMPLES, arrays_of, by_parts, called, operand_arrays, type_of

NATIVE = [p for p in SAMPLES if p.values[0].kernels is not Op.kernels]


def geometry(array):
    return as_dtype(array.dtype).name, array.shape, tuple(s // array.itemsize for s in array.strides)


def empty(type, layout, last):
    """An output, channels last if the choice or the first input says so."""
    shape = type.shape
    if len(shape) > 2 and (layout == CHANNELS_LAST or (last and layout == "like_input")):
        order = [0, *range(2, len(shape)), 1]
        made = np.zeros([shape[d] for d in order], type.dtype.numpy)
        return made.transpose([order.index(d) for d in range(len(shape))])
    return np.zeros(shape, type.dtype.numpy)


def channels_last(array):
    order = [0, *range(2, array.ndim), 1]
    return np.ascontiguousarray(array.transpose(order)).transpose([order.index(d) for d in range(array.ndim)])


def run(choice, node, inputs, last, need_hidden):
    """The outputs by a native choice, None if it cannot take these."""
    if last:
        inputs = [channels_last(a) if np.ndim(a) > 2 else a for a in inputs]
    inputs = [
        np.ascontiguousarray(a) if k in choice.contiguous and a is not None else a
        for k, a in enumerate(inputs)
    ]
    outputs = []
    for k, value in enumerate(node.outputs):
        layout = choice.layouts[k] if k < len(choice.layouts) else None
        outputs.append(None if k in choice.optional and not need_hidden else empty(value.type, layout, last))
    try:
        kernel = choice.offer(
            [None if a is None else geometry(a) for a in inputs],
            [None if a is None else geometry(a) for a in outputs],
        )
    except AttributeError as error:
        if "_core" not in str(error):
            raise
        pytest.skip(f"no such kernel: {error}")
    if kernel is None:
        return None
    slots = b"".join(
        struct.pack("<Q", 7)
        if value in (KEY, STREAM, OFFSET)
        else struct.pack({"float64": "<d", "int64": "<q"}[kind], value)
        for value, kind in choice.numbers
    )
    operands = [*inputs, *outputs]
    order = choice.order or range(len(operands))
    given = [operands[k] for k in order if operands[k] is not None]
    _core.run_kernel(
        kernel, [wf.asarray(np.asarray(a), copy=False) for a in given], *([slots] if slots else [])
    )
    return outputs


@pytest.mark.parametrize("last", [False, True], ids=["row", "last"])
@pytest.mark.parametrize(("cls", "sample"), NATIVE)
def test_native_against_reference(cls, sample, last):
    arrays = operand_arrays(sample)
    if last and not any(a.ndim > 2 for a in arrays):
        pytest.skip("no image")
    graph = called(cls, sample, [type_of(a) for a in arrays])
    (node,) = {id(v.node): v.node for v in graph.outputs}.values()
    inputs = [arrays_of(v, graph, arrays) for v in node.inputs]
    inputs = [
        np.asarray(a, v.type.dtype.numpy) if v is not None else None
        for a, v in zip(inputs, node.inputs, strict=True)
    ]
    offered = [
        c
        for c in choices(node.op, [None if v is None else v.type for v in node.inputs])
        if isinstance(c, Native)
    ]
    if not offered:
        pytest.skip("not native for these")
    want = node.op.reference(*inputs) if cls.reference is not Op.reference else by_parts(node, inputs)
    want = want if isinstance(want, tuple | list) else (want,)
    taken = 0
    for choice in offered:
        for need_hidden in (True, False)[: 2 if choice.optional else 1]:
            found = run(choice, node, inputs, last, need_hidden)
            if found is None:
                continue
            taken += 1
            if node.op.random:
                continue
            for k, (one, other) in enumerate(zip(found, want, strict=True)):
                if one is None or node.op.outputs[k % len(node.op.outputs)] == "workspace":
                    continue
                scale = max(1.0, float(np.abs(np.asarray(other, float)).max(initial=0)))
                np.testing.assert_allclose(
                    np.asarray(one, float), np.asarray(other, float), rtol=1e-5, atol=2e-6 * scale
                )
    empties = any(a.size == 0 for a in arrays)
    assert taken or empties or cls.family == "pooling"


def computed(graph, arrays):
    """The outputs, by native kernels where operators have them; and how many of those ran."""
    known = {id(v): a for v, a in zip(graph.inputs, arrays, strict=True)}
    native = 0
    for node in graph.nodes:
        if node.op is None:
            if node.value is not None:
                known[id(node.outputs[0])] = np.asarray(node.value, node.outputs[0].type.dtype.numpy)
            continue
        read = [None if v is None else np.asarray(known[id(v)], v.type.dtype.numpy) for v in node.inputs]
        types = [None if v is None else v.type for v in node.inputs]
        made = None
        for choice in choices(node.op, types):
            if isinstance(choice, Native) and made is None:
                made = run(choice, node, read, False, need_hidden=True)
        native += made is not None
        if made is None:
            made = reference_of(node.op, node, read)
        for output, result in zip(node.outputs, made, strict=True):
            known[id(output)] = np.asarray(result, output.type.dtype.numpy)
    return [None if v is None else known[id(v)] for v in graph.outputs], native


@pytest.mark.parametrize(
    ("cls", "sample"),
    [p for p in NATIVE if differentiable(p.values[0]) and p.values[1].gradient and not p.values[0].random],
)
def test_native_gradients(cls, sample):
    """What a forward kernel leaves for its gradient's kernel is what that one needs."""
    arrays = [np.asarray(a, np.float32) if a.dtype.kind == "f" else a for a in operand_arrays(sample)]
    if not any(a.dtype.kind == "f" for a in arrays):
        pytest.skip("no operand has a gradient")

    def backward(kind):
        given = [a.astype(kind) if a.dtype.kind == "f" else a for a in arrays]
        graph = called(cls, sample, [type_of(a) for a in given])
        wanted = [v.dtype.kind == "float" for v in graph.inputs]
        floats = [v.dtype.kind == "float" for v in graph.outputs]
        values = interpret(graph, given)
        slopes = [
            np.cos(np.arange(y.size)).reshape(y.shape).astype(kind)
            for y, f in zip(values, floats, strict=True)
            if f
        ]
        return backward_graph(graph, wanted, floats), [*given, *values, *slopes]

    found, native = computed(*backward(np.float32))
    if not native:
        pytest.skip("nothing of it is native")
    want = interpret(*backward(np.float64))
    for one, other in zip(found, want, strict=True):
        scale = max(1.0, float(np.abs(other).max(initial=0)))
        np.testing.assert_allclose(np.asarray(one, float), other, rtol=1e-4, atol=1e-5 * scale)
