"""Links the plans of a graph's parts on several devices into one plan: values exchanged, and memory by device."""

from __future__ import annotations

from collections.abc import Sequence

from weft import _core
from weft.base.typing import TYPE_CHECKING, Any
from weft.executor.buffers import row_major
from weft.executor.emit import NOTHING
from weft.executor.memory import aligned
from weft.executor.plan_info import MemoryReport, PlanInfo
from weft.graph.graph import Graph
from weft.graph.placement import Part

if TYPE_CHECKING:
    from weft._core import ProgramBuilder

__all__ = ["DevicePlanLinker"]


class DevicePlanLinker:
    """Links parts into one plan. Values are numbered as wires: the inputs first, then what parts make."""

    def __init__(self, graph: Graph, strides: Sequence[Any]) -> None:
        self.graph = graph
        self.arrays = [v for v in graph.inputs if not v.type.weak]
        self.numbers = {id(v): k for k, v in enumerate(v for v in graph.inputs if v.type.weak)}
        self.outputs = [(j, v) for j, v in enumerate(graph.outputs) if v is not None]
        self.wires = {id(v): k for k, v in enumerate(self.arrays)}
        self.strides_of_wires: list[tuple[int, ...]] = [
            row_major(v.shape) if k >= len(strides) else tuple(strides[k]) for k, v in enumerate(self.arrays)
        ]
        self.uses = [NOTHING] * len(self.arrays)
        self.parts: list[tuple[Any, list[int], list[int], list[int]]] = []
        self.steps: list[str] = []
        self.hoisted: list[str] = []
        self.reorders = 0
        self.outgoing: dict[int, int] = {}  # wire of an output of a part, by id of the value
        self.new_contents: dict[int, int] = {}  # wire of the new content, by number of the graph's input
        self.reports: list[tuple[Part, MemoryReport]] = []
        self.result_ids = {id(v) for j, v in self.outputs if j not in graph.writes}

    def strides(self, part: Part) -> list[tuple[int, ...]]:
        """The strides of the arrays that a part reads."""
        return [self.strides_of_wires[self.wires[id(v)]] for v in part.reads if not v.type.weak]

    def owned_outputs(self, part: Part) -> int:
        """How many of a part's outputs must not show inputs: outputs of the program are memory of their own.

        Where something is written, what parts give each other is, too.
        """
        count = len(part.makes) - len(part.graph.writes)
        if self.graph.writes:
            return count
        return max((k + 1 for k, v in enumerate(part.makes[:count]) if id(v) in self.result_ids), default=0)

    def add(self, part: Part, plan: Any) -> None:
        info: PlanInfo = plan.info
        arrays = [v for v in part.reads if not v.type.weak]
        inputs = [self.wires[id(v)] for v in arrays]
        for wire, use in zip(inputs, plan.uses, strict=True):
            if wire < len(self.uses):
                self.uses[wire] = max(self.uses[wire], use)
        numbers = [self.numbers[id(v)] for v in part.reads if v.type.weak]
        outputs = list(range(len(self.strides_of_wires), len(self.strides_of_wires) + len(part.makes)))
        self.strides_of_wires.extend(info.output_strides)
        for k, (value, wire) in enumerate(zip(part.makes, outputs, strict=True)):
            if k in part.graph.writes:
                target = part.reads[part.graph.writes[k]]
                self.new_contents[id(target)] = wire
            else:
                self.outgoing[id(value)] = wire
                self.wires.setdefault(id(value), wire)  # an input's copy is for the caller only
        self.parts.append((plan, inputs, numbers, outputs))
        self.steps += [f"{part.device}: {step}" for step in info.steps]
        self.hoisted += [f"{part.device}: {step}" for step in info.hoisted]
        self.reorders += info.reorders
        self.reports.append((part, info.memory_report()))

    def emit(self, name: str) -> ProgramBuilder:
        """For the native core."""
        program: ProgramBuilder = _core.ProgramBuilder(name, None, len(self.arrays), is_exact=True)
        for number, use in enumerate(self.uses):
            program.use(number, use)
        for part in self.parts:
            program.add_part(*part)
        for j, value in self.outputs:
            target = self.graph.writes.get(j)
            into = -1 if target is None else self.number(target)
            t = value.type
            wire = self.wire_of_output(j)
            program.add_wire(
                wire, into, t.dtype, t.device, [int(n) for n in t.shape], self.strides_of_wires[wire]
            )
        return program

    def number(self, target: int) -> int:
        return self.arrays.index(self.graph.inputs[target])

    def wire_of_output(self, j: int) -> int:
        """The wire of an output."""
        target, value = self.graph.writes.get(j), self.graph.outputs[j]
        return (
            self.outgoing[id(value)] if target is None else self.new_contents[id(self.graph.inputs[target])]
        )

    def info(self, name: str, visible: int) -> PlanInfo:
        return PlanInfo(
            name,
            self.graph,
            tuple(self.strides_of_wires[: len(self.arrays)]),
            tuple(self.strides_of_wires[self.wire_of_output(j)] for j, _ in self.outputs),
            visible,
            self.steps,
            True,
            self.report(),
            self.hoisted,
            self.reorders,
        )

    def report(self) -> MemoryReport:
        """Of all devices together, and of each."""
        passed = self.passed()
        by_device: dict[Any, MemoryReport] = {}
        for part, report in self.reports:
            before = by_device.get(part.device, MemoryReport(0, 0, 0, 0, 0))
            by_device[part.device] = before.after(report, sum(passed.get(id(v), 0) for v in part.makes))
        return MemoryReport.together(by_device)

    def passed(self) -> dict[int, int]:
        """The bytes of the values that parts give each other, by id."""
        read = {id(v): v for part, _ in self.reports for v in part.reads if not v.type.weak}
        inputs = set(map(id, self.arrays)) | self.result_ids
        return {
            key: aligned(int(v.type.size) * v.dtype.itemsize) for key, v in read.items() if key not in inputs
        }
