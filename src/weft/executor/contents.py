"""Successive contents of one memory: what writes a part of an array writes into the array's own memory.

`x[:, 7:8] = k` is an operator whose result is all of x with other elements in a window. It may be the memory of x if
nothing reads the content before after this operator, neither x nor a view of it, and if that content is no output.
Then lowering makes no new buffer: the window of x's buffer is written. So a buffer has several contents, one after
the other; fusion and order keep reads of one before the writes of the next (Fusion.finish_readers, arena._needs).

An input that the graph writes becomes such a buffer, too: the first step of the program copies it to the memory of
the output that is its new content. When the program is launched, this output is in the input's own memory, unless
another input overlaps it, and the native core leaves out the copy of an array onto itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.base.typing import Any
from weft.executor.buffers import Buffer, BufferView
from weft.executor.steps import LoopStep, copying
from weft.ops.node import Node, Value

__all__ = ["Contents"]


class Contents:
    """Which values are the newest content of their memory, for the Lowering of one graph."""

    def __init__(self, lowering: Any) -> None:
        self.lowering, self.graph = lowering, lowering.graph
        self.newest: dict[int, Value] = {}  # by buffer, where an operator has written a part of it
        self.copies: set[int] = set()  # buffers, by id, that began as a copy of an input
        self.readers: dict[int, list[Node]] = {}
        self.in_graph = set(map(id, self.graph.nodes))
        for node in self.graph.nodes:
            for value in node.reads:
                self.readers.setdefault(id(value), []).append(node)

    def memory_for(self, x: Value, value: Value) -> BufferView | None:
        """The memory of x for the content that follows, which is value; None if it has to have its own."""
        view = self.view_of(x)
        if view is None or id(value.node) not in self.in_graph:
            return None
        buffer = view.buffer
        writable = self.input_of(buffer, value) is not None if buffer.is_input else self.is_own(buffer)
        if not writable or not self.is_read_last(buffer, x, value.node):
            return None
        if buffer.is_input:
            self.copy_first(buffer)
        buffer.in_parts, buffer.flexible = True, False
        self.newest[id(buffer)] = value
        return view

    def view_of(self, x: Value) -> BufferView | None:
        """The view of x, if it is all of a buffer."""
        view = self.lowering.views.get(id(x))
        return view if view is not None and self.lowering.covers(view) else None

    def is_own(self, buffer: Buffer) -> bool:
        """Whether a buffer is memory that no loop needs whole: loops put what they make into each other."""
        if id(buffer) in self.copies:
            return True
        if self.lowering.stable_inputs is not None:  # what is hoisted is written once for many runs
            return False
        return buffer.in_parts or id(buffer) in self.lowering.native_buffers

    def input_of(self, buffer: Buffer, value: Value) -> Value | None:
        """The graph's input that the buffer is, if its new content comes of value by nothing but writes and views."""
        for j, k in self.graph.writes.items():
            source = self.graph.inputs[k]
            if self.lowering.views[id(source)].buffer is buffer:
                content = self.graph.outputs[j]
                while content is not None and content is not value:
                    content = content.node.inputs[0] if content.node.inputs else None
                return None if content is None else source
        return None

    def is_read_last(self, buffer: Buffer, x: Value, node: Node) -> bool:
        """Whether no node to come reads the content of a buffer, nor the caller; node: the one that may."""
        newest = self.newest.get(id(buffer))
        seen: set[int] = set()
        waiting = [self.first_of(buffer, x) if newest is None else newest]
        while waiting:
            value = waiting.pop()
            if id(value) in self.lowering.outputs:
                return False
            for reader in self.readers.get(id(value), ()):
                if reader is node or id(reader) in seen:
                    continue
                if id(reader) not in self.lowering.lowered:
                    return False
                seen.add(id(reader))
                waiting += self.views_by(reader, buffer)
        return True

    def views_by(self, node: Node, buffer: Buffer) -> Iterator[Value]:
        """The results of a node that are views of a buffer."""
        for value in node.outputs:
            view = self.lowering.views.get(id(value))
            if view is not None and view.buffer is buffer:
                yield value

    def first_of(self, buffer: Buffer, x: Value) -> Value:
        """The value that a view of a buffer comes of."""
        while x.node.inputs:
            sources = (v for v in x.node.inputs if v is not None and id(v) in self.lowering.views)
            source = next((v for v in sources if self.lowering.views[id(v)].buffer is buffer), None)
            if source is None:
                break
            x = source
        return x

    def copy_first(self, buffer: Buffer) -> None:
        """Makes an input's buffer that of its new content, which the program's first step copies from the input."""
        lowering = self.lowering
        source = Buffer(buffer.type, buffer.strides, buffer.number, buffer.number)
        value: Any = lowering.arrays[buffer.number]
        buffer.number = buffer.like = -1
        self.copies.add(id(buffer))
        whole = lowering.views[id(value)] = source.whole()
        text = f"copy of {value!r}"
        lowering.steps.insert(
            0, LoopStep([whole], [buffer.whole()], copying(value.dtype), text, lowering.origin)
        )
