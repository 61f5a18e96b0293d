"""A kernel's function while it is written: its arguments, and the values of expressions at one position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weft.expr.kernel import Kernel, Reduction, Store, values
from weft.expr.llvm_values import binary, cast, compare, from_memory, number, to_memory, unary
from weft.expr.llvm_writer import Writer, llvm_type, memory_type
from weft.expr.scalar import BITS, COMPARISONS, COMPLEX, PARTS, Scalar, load, state, walk

__all__ = ["Function", "Values"]


class Function(Writer):
    """The text of one kernel's function. The schedules decide which loops there are."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        rows = kernel.rank - kernel.row_rank
        self.vector_loop = rows - 1 if kernel.lanes else kernel.rank - 1
        self.results: dict[int, str] = {}
        self.staged: set[int] = set()  # operands whose elements are in arrays now, one behind the other
        self.sizes = [self.load_word("sizes", d) for d in range(kernel.rank)]
        self.strides = [
            [self.load_word("strides", k * kernel.rank + d) for d in range(kernel.rank)]
            for k in range(len(kernel.operands))
        ]
        self.gathered: list[list[str]] = []
        first_stride = len(kernel.operands) * kernel.rank
        for operand in kernel.operands:
            if operand.is_flat:
                self.gathered.append([str(max(BITS[operand.dtype], 8) // 8)])
                continue
            self.gathered.append(
                [self.load_word("strides", first_stride + k) for k in range(operand.gathered)]
            )
            first_stride += operand.gathered
        self.bases = [
            self.emit(f"load ptr, ptr {self.offset('data', 8 * k)}") for k in range(len(kernel.operands))
        ]
        self.parameters: dict[tuple[int, str], str] = {}
        for stage in kernel.stages:  # parameters do not change: loaded before the loops
            for node in walk(*values(stage)):
                if node.op == "parameter":
                    self.parameter(node)

    def text(self) -> str:
        arguments = "ptr %data, ptr %sizes, ptr %strides, ptr %parameters"
        head = f"define void @{self.kernel.name}({arguments}) nounwind {{"
        body = "\n".join([head, "entry:", *self.arrays, *self.lines, "  ret void", "}"])
        return "\n".join([body, "", *self.declared.values(), *self.marks, ""])

    def advance(self, pointers: list[str], d: int, i: str) -> list[str]:
        """The operands' pointers at position i of loop d."""
        return [
            self.offset(pointer, self.emit(f"mul i64 {i}, {self.strides[k][d]}"))
            for k, pointer in enumerate(pointers)
        ]

    def nest(
        self,
        d: int,
        end: int,
        pointers: list[str],
        positions: list[str],
        body: Callable[[list[str], list[str]], None],
        reverse: bool = False,
    ) -> None:
        """Loops d to end - 1, one inside of the other, around body(pointers, positions with theirs behind)."""
        if d == end:
            body(pointers, positions)
            return

        def turn(i: str) -> list[str]:
            i = self.reversed(d, i) if reverse else i
            self.nest(d + 1, end, self.advance(pointers, d, i), [*positions, i], body, reverse)
            return []

        self.loop(self.sizes[d], turn)

    def reversed(self, d: int, i: str) -> str:
        """The position in loop d that is as far from its end as i is from its beginning."""
        return self.emit(f"sub i64 {self.emit(f'sub i64 {self.sizes[d]}, 1')}, {i}")

    def complex_product(self, dtype: str, a: str, b: str) -> str:
        """Of two complex numbers."""
        kind = COMPLEX[dtype]
        (x, y), (u, v) = ((self.part(dtype, z, 0), self.part(dtype, z, 1)) for z in (a, b))
        xu, yv, xv, yu = (binary(self, "mul", kind, p, q) for p, q in ((x, u), (y, v), (x, v), (y, u)))
        return self.pair(dtype, binary(self, "sub", kind, xu, yv), binary(self, "add", kind, xv, yu))

    def row_position(self, row: list[str]) -> str:
        """The position in the row, counted through all of its loops, from that in each of them."""
        position = row[0]
        for i, size in zip(row[1:], self.sizes[self.kernel.rank - self.kernel.row_rank + 1 :], strict=True):
            position = self.emit(f"add i64 {self.emit(f'mul i64 {position}, {size}')}, {i}")
        return position

    def parameter(self, node: Scalar) -> str:
        key = (node.value, node.dtype)
        if key not in self.parameters:
            pointer = self.offset("parameters", 8 * node.value)
            self.parameters[key] = from_memory(
                self, node.dtype, self.emit(f"load {memory_type(node.dtype)}, ptr {pointer}")
            )
        return self.parameters[key]

    def hoist(
        self,
        pointers: list[str],
        positions: list[str],
        roots: Iterable[Scalar],
        stores: Iterable[Store],
        lanes: bool,
    ) -> tuple[dict[int, str], Callable[[], None] | None]:
        """Values, by id, that do not change in the loop of vectors, and the loop's `enter`, which computes them.

        LLVM does not hoist loads, which stores might change.
        """
        invariant = self._invariant(roots, stores, lanes)
        values: dict[int, str] = {}

        def enter() -> None:
            before = Values(self, pointers, positions, "0", "")
            for node in invariant:
                before[node]
            values.update(before.computed)

        return values, enter if invariant else None

    def _invariant(self, roots: Iterable[Scalar], stores: Iterable[Store], lanes: bool) -> list[Scalar]:
        stored = {store.operand for store in stores}
        invariant: list[Scalar] = []
        changing: set[int] = set()
        for node in walk(*roots):
            match node.op:
                case "constant" | "parameter":
                    continue
                case "load":
                    changes = node.value in stored or self.kernel.operands[node.value].inner != "zero"
                case "index":
                    changes = node.value == self.vector_loop
                case "result":
                    changes = lanes or node.value not in self.results
                case "load_at":
                    changes = self.kernel.operands[node.value].inner != "zero"
                case _:
                    changes = False
            if changes or not changing.isdisjoint(map(id, node.args)):
                changing.add(id(node))
            elif node.op not in ("index", "result"):
                invariant.append(node)
        return invariant


class Values:
    """The values of expressions at one position of the loops; each is computed once."""

    def __init__(
        self,
        function: Function,
        pointers: list[str],
        positions: list[str],
        inner: str,
        group: str,
        arrays: dict[int, str] | None = None,
        computed: dict[int, str] | None = None,
    ) -> None:
        self.function, self.pointers, self.positions, self.inner = function, pointers, positions, inner
        self.arrays = arrays  # of results, with one value for each lane
        self.access = f", !llvm.access.group {group}" if group else ""
        self.computed = dict(computed or {})
        self.loops: dict[tuple[int, ...], list[str]] = {}  # what repetitions come to, by ids of their parts
        self.kept: list[
            Scalar
        ] = []  # whose ids are keys of computed: results of scans, loads of what is stored

    def __getitem__(self, root: Scalar) -> str:
        for node in walk(root, skipped=self.computed):
            self.computed[id(node)] = self._value(node)
        return self.computed[id(root)]

    def address(self, operand: int) -> str:
        """Where this position is in an operand's memory."""
        return self._address(operand, self.pointers[operand])

    def _address(self, operand: int, pointer: str) -> str:
        """The element of this position in the loop of vectors."""
        layout = self.function.kernel.operands[operand]
        if layout.inner == "zero":
            return pointer
        if layout.inner in ("unit", "cross") or operand in self.function.staged:  # "cross": in a tile's array
            return self._element(pointer, layout.dtype)
        if layout.inner == "reverse":
            return self._element(pointer, layout.dtype, self.function.emit(f"sub i64 0, {self.inner}"))
        if layout.inner == "step":
            return self._element(
                pointer, layout.dtype, self.function.emit(f"mul nuw nsw i64 {self.inner}, {layout.step}")
            )
        step = self.function.emit(
            f"mul i64 {self.inner}, {self.function.strides[operand][self.function.vector_loop]}"
        )
        return self.function.offset(pointer, step)

    def _gathered(self, operand: int, positions: Sequence[str]) -> str:
        """The pointer to where these positions are in a gathered operand's own dimensions."""
        f, pointer = self.function, self.pointers[operand]
        for position, stride in zip(positions, f.gathered[operand], strict=True):
            pointer = f.offset(pointer, f.emit(f"mul i64 {position}, {stride}"))
        return pointer

    def _read(self, address: str, dtype: str) -> str:
        if (
            dtype in COMPLEX
        ):  # part by part: LLVM makes vectors of such loads, and shuffles that take them apart
            kind, f = llvm_type(COMPLEX[dtype]), self.function
            return f.pair(
                dtype, *(f.emit(f"load {kind}, ptr {a}{self.access}") for a in self._parts(address, dtype))
            )
        return from_memory(
            self.function, dtype, self.function.emit(f"load {memory_type(dtype)}, ptr {address}{self.access}")
        )

    def store(self, stores: tuple[Store, ...]) -> None:
        stored = [self[store.value] for store in stores]  # all, before the first store changes an operand
        for store, value in zip(stores, stored, strict=True):
            self.put(store.operand, value, store.add, [self[position] for position in store.at])

    def put(self, operand: int, value: str, add: bool = False, at: Sequence[str] = ()) -> None:
        """Stores a value into an operand's element of this position, or adds it there."""
        dtype = self.function.kernel.operands[operand].dtype
        address = self._address(operand, self._gathered(operand, at))
        if add:
            value = self._add(dtype, self._read(address, dtype), value)
        self._write(address, dtype, value)

    def put_later(self, operand: int, value: str, add: bool) -> Callable[[], None]:
        """What stores it. Until then later loads of this position give it nevertheless."""
        dtype = self.function.kernel.operands[operand].dtype
        node = load(operand, dtype)
        if add:
            value = self._add(dtype, self[node], value)
        self.kept.append(node)
        self.computed[id(node)] = from_memory(self.function, dtype, to_memory(self.function, dtype, value))
        return lambda: self.put(operand, value)

    def _parts(self, address: str, dtype: str) -> tuple[str, str]:
        """The addresses of the parts of a complex number."""
        return address, self.function.emit(f"getelementptr {llvm_type(COMPLEX[dtype])}, ptr {address}, i64 1")

    def _write(self, address: str, dtype: str, value: str) -> None:
        f = self.function
        if dtype in COMPLEX:
            for k, part in enumerate(self._parts(address, dtype)):
                f.lines.append(
                    f"  store {llvm_type(COMPLEX[dtype])} {f.part(dtype, value, k)}, ptr {part}{self.access}"
                )
            return
        raw = to_memory(f, dtype, value)
        f.lines.append(f"  store {memory_type(dtype)} {raw}, ptr {address}{self.access}")

    def _element(self, array: str, dtype: str, index: str = "") -> str:
        return self.function.emit(
            f"getelementptr {memory_type(dtype)}, ptr {array}, i64 {index or self.inner}"
        )

    def array_load(self, array: str, dtype: str, index: str = "") -> str:
        """From an array on the stack, at an index or this position."""
        return self._read(self._element(array, dtype, index), dtype)

    def array_store(self, array: str, dtype: str, value: str, index: str = "") -> None:
        self._write(self._element(array, dtype, index), dtype, value)

    def set_result(self, reduction: Reduction, value: str) -> None:
        """Sets what result() of a scan is at this position."""
        node = Scalar("result", reduction.dtype, (), reduction.number)
        self.kept.append(node)
        self.computed[id(node)] = value

    def _add(self, dtype: str, a: str, b: str) -> str:
        if dtype in ("float16", "bfloat16"):
            wide = [cast(self.function, x, dtype, "float32") for x in (a, b)]
            return cast(self.function, binary(self.function, "add", "float32", *wide), "float32", dtype)
        if dtype == "bool":
            return binary(self.function, "or", dtype, a, b)
        if dtype in COMPLEX:
            f, kind = self.function, COMPLEX[dtype]
            return f.pair(
                dtype, *(binary(f, "add", kind, f.part(dtype, a, k), f.part(dtype, b, k)) for k in (0, 1))
            )
        return binary(self.function, "add", dtype, a, b)

    def _repeated(self, node: Scalar, starts: list[str]) -> str:
        f = self.function
        news, done, which = node.value
        loop = (*map(id, (*node.args, *news)), id(done))
        if loop in self.loops:
            return self.loops[loop][which]
        states = [state(k, start.dtype) for k, start in enumerate(node.args)]

        def turn(values: list[str]) -> tuple[str, list[str]]:
            known = {id(s): value for s, value in zip(states, values, strict=True)}
            inside = Values(f, [], [], "", "", computed=known)
            following = [inside[new] for new in news]
            return inside[done], following

        kinds = [llvm_type(start.dtype) for start in node.args]
        self.loops[loop] = f.until(turn, list(zip(kinds, starts, strict=True)))
        return self.loops[loop][which]

    def _value(self, node: Scalar) -> str:
        f = self.function
        args = [self.computed[id(arg)] for arg in node.args]
        if node.op == "constant":
            return number(node.value, node.dtype)
        if node.op == "load":
            return self._read(self._address(node.value, self.pointers[node.value]), node.dtype)
        if node.op == "load_at":
            return self._read(self._address(node.value, self._gathered(node.value, args)), node.dtype)
        if node.op == "parameter":
            return f.parameter(node)
        if node.op == "index":
            return self.positions[node.value]
        if node.op == "result" and self.arrays is not None:
            return self.array_load(self.arrays[node.value], node.dtype)
        if node.op == "result":
            return f.results[node.value]
        if node.op in PARTS:
            return f.part(node.args[0].dtype, args[0], PARTS.index(node.op))
        if node.op == "complex":
            return f.pair(node.dtype, *args)
        if node.op == "repeated":
            return self._repeated(node, args)
        if node.op == "cast":
            return cast(f, args[0], node.args[0].dtype, node.dtype)
        if node.op == "bitcast":
            source, target = llvm_type(node.args[0].dtype), llvm_type(node.dtype)
            return args[0] if source == target else f.emit(f"bitcast {source} {args[0]} to {target}")
        if node.op == "where":
            kind = llvm_type(node.dtype)
            return f.emit(f"select i1 {args[0]}, {kind} {args[1]}, {kind} {args[2]}")
        if node.args and node.args[0].dtype in ("float16", "bfloat16"):
            raise NotImplementedError(f"{node.op} of {node.args[0].dtype}: expand() computes it in float32")
        if node.op == "fma" and node.dtype == "float32":
            return f.emit(f"call float @fma_float32({', '.join(f'float {x}' for x in args)})")
        if node.op == "fma":
            return f.intrinsic("fma", node.dtype, args)
        if node.op in COMPARISONS:
            return compare(f, node.op, node.args[0].dtype, *args)
        if len(args) == 1:
            return unary(f, node.op, node.dtype, args[0])
        return binary(f, node.op, node.dtype, *args)
