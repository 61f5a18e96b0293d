"""The planner: a graph becomes a Program of the native core.

lowering    each node becomes steps on views of buffers: loops, native kernels                 lowering.py
preparation steps that depend only on inputs that seldom change are hoisted                   preparation.py
fusion      loops that can share one loop do                                                  fusion.py, assembly.py
order       steps that free memory run as soon as they can                                    order.py
memory      results over dying inputs; one arena for what stays inside                        arena.py, memory.py
description values by number, geometry by register                                            emit.py

Geometry is written as registers, so that a plan for a pattern holds for all sizes; order and memory are planned for
exact sizes only.

>>> from weft.base.dtype import float32
>>> from weft.graph.graph import graph_of
>>> from weft.ops.types import TensorType
>>> import weft.ops.functions as F
>>> plan = make_plan(graph_of(lambda x: F.exp(x) * 2, [TensorType((2, 3), float32)]), "example")
>>> plan.name, len(plan.info.steps)
('example', 1)
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence

from weft.base import events, flags
from weft.base.typing import Any
from weft.executor.assembly import Fused, alone
from weft.executor.buffers import Buffer, row_major
from weft.executor.emit import emit
from weft.executor.loop_code import LoopCode
from weft.executor.lowering import Lowering
from weft.executor.plan_info import PlanInfo, Work
from weft.executor.steps import LoopStep, NativeStep, Step, live_steps
from weft.graph.graph import Graph
from weft.graph.placement import partition, spans_devices
from weft.ops.node import Value
from weft.ops.sizes import NeedsSizes

TUNING = "autotune"  # the name of plans that are measured

__all__ = ["PlanInfo", "copies_of", "loops_of", "make_plan", "row_major"]


@events.noted("plan", lambda graph, name, *_, **__: name)
def make_plan(
    graph: Graph,
    name: str,
    strides: Sequence[Any] = (),
    visible: int | None = None,
    gradients: Sequence[bool] = (),
    exact: bool = False,
    as_tuple: bool = False,
    first_choice: int = 0,
    owned_outputs: int = 0,
    fixed_layout: bool = False,
    commits: Collection[int] | None = None,
    is_one_step: bool = False,
) -> Any:
    """The _core.Plan of a graph.

    strides: the element strides of each input array. A missing entry means any strides, or row-major ones in an exact
    plan. visible: the number of outputs that callers receive; as_tuple: in a tuple even if it is one. gradients: for
    each input of a backward plan, whether the plan has an output for its gradient. first_choice: the index of the first
    kernel that is tried for each operator; for tests, which compare kernels. owned_outputs: the number of leading
    outputs that share no memory with inputs. fixed_layout: allocate outputs with the planned strides even if inputs
    have other strides. commits: outputs that are written wholly, or not at all if a run fails; by default those that
    committed() returns. is_one_step: a plan of several steps, whose memory is planned for exact sizes, is not wanted.
    Raises NeedsSizes if a rule needs the value of a symbolic size, or for such a plan, and what rules raise.
    """
    if spans_devices(graph):
        if not exact:
            raise NeedsSizes(f"{name}: a program of several devices")
        return plan_parts(graph, name, strides, visible, gradients, as_tuple)
    lowering = Lowering(graph, name, strides, exact, first_choice, owned_outputs, fixed_layout)
    lowering.commits = committed(graph) if commits is None else commits
    if exact and not first_choice and name != TUNING and flags.get("WEFT_AUTOTUNE"):
        from weft.executor.tuning import preferred

        lowering.prefer = lambda node, operand_strides: preferred(node, operand_strides, _candidate)
    outputs = lowering.run()
    buffers, stable = [view.buffer for view in outputs], list[Step]()
    lowered = live_steps(lowering.steps, buffers)
    if graph.stable_inputs:
        from weft.executor.preparation import hoist  # no call of one operator has such inputs

        stable, lowered = hoist(
            (lowering.views[id(graph.inputs[k])].buffer for k in graph.stable_inputs), lowered
        )
    if is_one_step and len(lowered) > 1 and NativeStep in map(type, lowered):
        raise NeedsSizes(f"{name}: a plan of several steps")
    kept = list({id(y.buffer): y.buffer for step in stable for y in step.writes if y.buffer.kept}.values())
    hoisted, steps = merged(name, stable, kept), merged(name, lowered, buffers)
    if is_one_step and len(steps) > 1:
        raise NeedsSizes(f"{name}: a plan of several steps")
    arena = None
    if exact:
        from weft.executor.arena import Arena, placed_in_order  # patterns have no memory plan

        steps = placed_in_order(steps, buffers, written_inputs(lowering, buffers))
        arena = Arena([*hoisted, *steps], naive_bytes([*stable, *lowered], [*buffers, *kept]), kept)
    program = emit(lowering, hoisted, steps, outputs, arena)
    info = PlanInfo(
        name,
        graph,
        strides=tuple([lowering.views[id(v)].strides for v in lowering.arrays]),
        output_strides=tuple([view.strides for view in outputs]),
        visible=len(outputs) if visible is None else visible,
        steps=[step.text for step in steps],
        exact=exact,
        memory=None if arena is None else arena.report,
        hoisted=[step.text for step in hoisted],
        reorders=sum(step.kernel.reorders for step in steps if isinstance(step, NativeStep)),
        work=[work_of(step) for step in (*hoisted, *steps)],
    )
    if flags.get("WEFT_DEBUG"):
        _print_reference_code(info)
    return program.plan(
        info.visible,
        as_tuple,
        info,
        serial=info.serial,
        gradients=list(gradients),
        strides=info.strides if exact else (),
    )


def _print_reference_code(info: PlanInfo) -> None:
    for text, work in zip((*info.hoisted, *info.steps), info.work, strict=True):
        if work.is_reference:
            print(f"{info.name}: slow reference code: {text}", file=sys.stderr)


def _candidate(graph: Graph, strides: Sequence[Any], choice: int) -> Any:
    """The plan of an operator alone, by one of its choices."""
    return make_plan(graph, TUNING, strides, exact=True, first_choice=choice)


def work_of(step: Fused | NativeStep) -> Work:
    """What a step computes, for counts of work."""
    if isinstance(step, Fused):
        nodes = tuple({id(node): node for _, _, node in step.members if node is not None}.values())
        return Work(nodes, step.origin.where, tuple([(loop, shape) for loop, shape, _ in step.members]))
    node = None if step.text == "native pack" else step.origin.node
    return Work(() if node is None else (node,), step.origin.where, is_reference=step.kernel.is_reference)


def committed(graph: Graph) -> frozenset[int]:
    """The outputs that are the new content of what an operator updates, such as weights and running statistics."""
    outputs = []
    for j in graph.writes:
        value = graph.outputs[j]
        while value is not None and value.node.op is not None and value.node.op.is_mark:
            value = value.node.inputs[0]
        if value is not None and value.index in value.node.written:
            outputs.append(j)
    return frozenset(outputs)


def merged(name: str, steps: Sequence[Step], outputs: Iterable[Buffer]) -> list[Fused | NativeStep]:
    """The steps with loops merged; see fusion.py, which a call of one operator seldom needs."""
    if not steps:
        return []
    if len(steps) == 1 and isinstance(steps[0], LoopStep):
        return [alone(name, steps[0], outputs)]
    from weft.executor.fusion import fuse

    return fuse(name, steps, outputs)


def plan_parts(
    graph: Graph,
    name: str,
    strides: Sequence[Any],
    visible: int | None,
    gradients: Sequence[bool],
    as_tuple: bool,
) -> Any:
    """The _core.Plan of a graph of several devices: a plan for each part, and what they give each other."""
    from weft.executor.multi_device import DevicePlanLinker  # not before the first of them

    linker = DevicePlanLinker(graph, strides)
    for part in partition(graph):
        plan = make_plan(
            part.graph,
            name,
            linker.strides(part),
            exact=True,
            as_tuple=True,
            owned_outputs=linker.owned_outputs(part),
            fixed_layout=True,
        )
        linker.add(part, plan)
    visible_outputs = len(linker.outputs) if visible is None else visible
    info = linker.info(name, visible_outputs)
    return linker.emit(name).plan(
        visible_outputs, as_tuple, info, gradients=list(gradients), strides=info.strides
    )


def written_inputs(lowering: Lowering, outputs: Sequence[Buffer]) -> dict[int, list[Buffer]]:
    """For each output that becomes the new content of inputs: its buffer's id, and these inputs."""
    targets: dict[int, list[Buffer]] = {}
    indices = [j for j, value in enumerate(lowering.graph.outputs) if value is not None]
    for j, buffer in zip(indices, outputs, strict=True):
        if j in lowering.graph.writes:
            target = lowering.graph.inputs[lowering.graph.writes[j]]
            targets.setdefault(id(buffer), []).append(lowering.views[id(target)].buffer)
    return targets


def naive_bytes(steps: Sequence[Step], outputs: Sequence[Buffer]) -> int:
    """Of everything that steps write and that is no output, as if each had memory of its own."""
    from weft.executor.memory import aligned

    buffers = {id(y.buffer): y.buffer for step in steps for y in step.writes}
    for output in outputs:
        buffers.pop(id(output), None)
    return sum(aligned(buffer.size_bytes) for buffer in buffers.values())


def loops_of(graph: Graph, name: str, exact: bool = False) -> list[LoopCode]:
    """The loops that a graph's plan runs. exact: for the sizes that its inputs have.

    >>> from weft.base.dtype import float32
    >>> from weft.graph.graph import graph_of
    >>> from weft.ops.types import TensorType
    >>> import weft.ops.functions as F
    >>> [code.dtypes for code in loops_of(graph_of(F.isnan, [TensorType((2, 3), float32)]), "example")]
    [('float32', 'bool')]
    """
    lowering = Lowering(graph, name, (), exact=exact)
    outputs = [view.buffer for view in lowering.run()]
    steps = merged(name, live_steps(lowering.steps, outputs), outputs)
    return [step.code for step in steps if isinstance(step, Fused)]


def copies_of(value: Value) -> list[LoopCode]:
    """The loops that plans copy a value with, be it an array or a number, to contiguous memory."""
    lowering = Lowering(Graph([value], []), "copy", (), exact=False)
    view = lowering.ensure(value) if value.type.weak else lowering.copy(lowering.ensure(value), "copy")
    return [step.code for step in merged("copy", lowering.steps, [view.buffer]) if isinstance(step, Fused)]
