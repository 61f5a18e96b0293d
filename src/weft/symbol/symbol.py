"""Symbol: outputs of operators on other symbols and variables, to be inferred, differentiated, saved and bound.

>>> import weft.functional as F
>>> x = var("data")
>>> y = F.relu(F.linear(x, out_features=128, name="fc1"), name="act")
>>> y.list_arguments(), y.list_outputs()
(['data', 'fc1_weight', 'fc1_bias'], ['act_output'])
>>> y.infer_shape(data=(32, 784))
([(32, 784), (128, 784), (128,)], [(32, 128)], [])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType, as_dtype
from weft.base.errors import GraphError
from weft.base.name_hints import missing
from weft.executor.budget import checked_budget
from weft.graph.drawing import MAX_SHOWN_NODES
from weft.graph.inner import StopGradient
from weft.graph.symbols import (
    SymbolNode,
    check_names,
    check_written,
    gradient_node,
    is_partial,
    nodes_of,
    user_line,
    variable,
)
from weft.graph.text import symbol_from_json, symbol_to_json
from weft.ops import registry
from weft.ops.node import ArrayFace, Value, add_operators, method_of
from weft.ops.op import Op
from weft.ops.shapes import Partial
from weft.symbol import drawing
from weft.symbol.binding import bind_arrays, bind_shapes
from weft.symbol.compose import Outputs, compose, single
from weft.symbol.control import check_assigned, compose_control
from weft.symbol.defaults import infer_with_defaults
from weft.symbol.executor import Executor, refuse_recorded
from weft.symbol.inference import Inference
from weft.symbol.names import attributes, scoped_name
from weft.symbol.parameters import is_naming, naming
from weft.symbol.plans import Plans, PlanTable
from weft.symbol.solvers import names_of_outputs
from weft.symbol.subscript import ReverseDims, Subscript, SubscriptAssign, split_key

__all__ = ["Symbol", "from_json", "full", "group", "load", "ones", "var", "zeros"]

DTypeLike = DType | str | Any


if TYPE_CHECKING:
    from weft.ops.array_methods import Methods

    _Methods = Methods["Symbol"]
else:
    _Methods = object


class Symbol(Outputs, ArrayFace, _Methods):
    """One output of an operator or several, before anything is known of sizes. Equal only to itself.

    Functions of operators take symbols as they take arrays, and beside their own arguments name= and attr=. Arrays
    beside symbols are constants: the elements that they have now. Arithmetic, comparisons (== and != too, element by
    element) and methods are those of arrays. len, iteration and [...] with an
    int or a name are about outputs; other keys are about elements, as those of arrays.
    Only ``x[key] = value`` changes what a symbol stands for.

    >>> x = var("x")
    >>> y = (x * 2 + 1).sum(axis=0)
    >>> y.list_arguments(), len(y)
    (['x'], 1)
    """

    __slots__ = ("_plan_table",)
    __array_ufunc__ = None  # NumPy's numbers leave arithmetic to symbols

    def __init__(self, values: Sequence[Value]) -> None:
        super().__init__(values)
        self._plan_table = PlanTable()

    def __weft_apply__(self, op: type[Op], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Symbol:
        """Apply an operator, for a function that is called with a symbol."""
        return Symbol(compose(op, args, kwargs))

    def __weft_naming__(self, owner: Any, arrays: Callable[[], Mapping[str, Any]]) -> Any:
        """For a module that is called with a symbol: see weft.symbol.parameters; None inside of another one's call."""
        return naming(owner, arrays()) if not is_naming() else None

    def __weft_control__(self, kind: str, *args: Any, **kwargs: Any) -> Any:
        """Compose wf.cond, wf.while_loop or wf.foreach that is called with a symbol."""
        return compose_control(Symbol, kind, *args, **kwargs)

    # What it is.

    @property
    def name(self) -> str:
        """The name of the operator or variable; of several, those of all outputs. See list_outputs."""
        if len({id(value.node) for value in self.values}) == 1:
            return self.values[0].node.name
        return f"group({', '.join(self.list_outputs())})"

    def _nodes(self) -> list[SymbolNode]:
        nodes = nodes_of(self.values)
        check_names(nodes)
        return nodes

    def _variables(self) -> tuple[list[SymbolNode], list[SymbolNode]]:
        """The variables that are arguments, and those that an operator writes: auxiliary states."""
        nodes = self._nodes()
        written = {
            id(operand.node)
            for node in nodes
            for index in node.states()
            if (operand := node.inputs[index]) is not None and is_partial(operand)
        }
        arguments = [node for node in nodes if node.op is None and id(node) not in written]
        return arguments, [node for node in nodes if id(node) in written]

    def list_arguments(self) -> list[str]:
        """The names of the variables that are not auxiliary states, in the order in which they are needed.

        Raises GraphError if two variables have one name.
        """
        return [node.name for node in self._variables()[0]]

    def list_auxiliary_states(self) -> list[str]:
        """The names of the variables that operators write, such as running statistics.

        >>> import weft.functional as F
        >>> F.batch_norm(var("x"), name="bn").list_auxiliary_states()
        ['bn_running_mean', 'bn_running_var']
        """
        return [node.name for node in self._variables()[1]]

    def list_outputs(self) -> list[str]:
        """The names of the outputs."""
        return [names_of_outputs(_node(value))[value.index] for value in self.values]

    def get_internals(self) -> Symbol:
        """All outputs of all operators and variables that this one needs, and its own.

        >>> import weft.functional as F
        >>> y = F.exp(F.linear(var("x"), out_features=2, name="fc"), name="y")
        >>> y.get_internals().list_outputs()
        ['x', 'fc_weight', 'fc_bias', 'fc_output', 'y_output']
        >>> y.get_internals()["fc_output"].name
        'fc'
        """
        return Symbol([value for node in self._nodes() for value in node.outputs])

    def get_children(self) -> Symbol | None:
        """The values that its operators read, None for variables."""
        nodes = dict.fromkeys(map(_node, self.values))
        sources = [value for node in nodes for value in node.sources]
        return Symbol(sources) if sources else None

    def attr(self, key: str) -> str | None:
        """The attribute of that name, given by attr= or an AttrScope; None if there is none."""
        return self._one("attr").attrs.get(key)

    def list_attr(self) -> dict[str, str]:
        """Its attributes."""
        return dict(self._one("list_attr").attrs)

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """The attributes of everything it needs that has any, by name."""
        return {node.name: dict(node.attrs) for node in self._nodes() if node.attrs}

    def _one(self, what: str) -> SymbolNode:
        nodes = list(dict.fromkeys(map(_node, self.values)))
        if len(nodes) != 1:
            raise GraphError(f"{what}: a group of {len(nodes)} has no attributes of its own: choose by [...]")
        return nodes[0]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Symbol]:
        return (Symbol([value]) for value in self.values)

    def __getitem__(self, key: Any) -> Symbol:
        """An output, by its index or name; for any other key the elements that an array has there.

        Keys of elements are slices, ``...``, None, symbols and arrays of integers, tuples of these, and integers in
        tuples.
        Raises IndexError, GraphError for a name that is not there or there twice, TypeError for other keys.

        >>> x = var("x")
        >>> x[0].name, x[1:, None].eval(x=[1.0, 2.0])
        ('x', [tensor([[2.]], dtype=float32, device=cpu:0)])
        """
        if isinstance(key, str):
            matches = [k for k, name in enumerate(self.list_outputs()) if name == key]
            if len(matches) != 1:
                count = "no output" if not matches else f"{len(matches)} outputs"
                raise GraphError(f"symbol: {count} {key!r}; there are: {', '.join(self.list_outputs())}")
            return Symbol([self.values[matches[0]]])
        if isinstance(key, bool) or not isinstance(key, int):
            parts, indices = split_key(key, _ARRAYS)
            return self.__weft_apply__(Subscript, (self, *indices), {"key": parts})
        if not -len(self) <= key < len(self):
            raise IndexError(f"symbol: output {key} of {len(self)}")
        return Symbol([self.values[key]])

    def __setitem__(self, key: Any, value: Any) -> None:
        """From now on this object stands for an array with other elements; what was composed of it before stays.

        key: as for elements; value: a symbol, a number or an array. Raises GraphError in a function of control flow for
        a symbol from outside of it.

        >>> x = var("x")
        >>> y = x * 1
        >>> z = y + 1
        >>> y[1:] = 7
        >>> group([y, z]).eval(x=[1.0, 2.0])
        [tensor([1., 7.], dtype=float32, device=cpu:0), tensor([2., 3.], dtype=float32, device=cpu:0)]
        """
        if isinstance(key, int | str) and not isinstance(key, bool):
            raise TypeError(f"symbol: [{key!r}] is an output; [{key!r}, ...] = ... assigns elements")
        check_assigned(single("symbol", self))
        parts, indices = split_key(key, _ARRAYS)
        self.values = self.__weft_apply__(SubscriptAssign, (self, value, *indices), {"key": parts}).values
        self._plan_table = PlanTable()

    def __getattr__(self, name: str) -> Any:
        if (method := method_of(self, name)) is not None:
            return method
        raise missing("Symbol", name, self.__dir__)

    def __dir__(self) -> list[str]:
        operators = (registry.get(name) for name in registry.public_names())
        return sorted({*super().__dir__(), *(cls.name for cls in operators if cls.method)})

    @property
    def T(self) -> Symbol:
        """With the dimensions in the opposite order, as an array's."""
        return self.__weft_apply__(ReverseDims, (self,), {})

    def detach(self) -> Symbol:
        """The same value, which counts as a constant in gradients, as an array's detach().

        >>> x = var("x")
        >>> exe = (x * x.detach()).simple_bind(x=(2,))
        >>> exe.arg_dict["x"][...] = 3
        >>> _ = exe.forward(is_train=True)
        >>> exe.backward()
        >>> exe.grad_dict["x"]
        tensor([3., 3.], dtype=float32, device=cpu:0)
        """
        return self.__weft_apply__(StopGradient, (self,), {})

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("the elements of a symbol are not known before it is computed")

    def __repr__(self) -> str:
        return f"<Symbol {self.name}>"

    def __str__(self) -> str:
        """All operators, one for each line."""
        return drawing.listing(self.values)

    def __bool__(self) -> bool:
        raise TypeError("the truth of a symbol is not known before it is computed; use where or cond")

    __hash__ = object.__hash__

    def __reduce__(self) -> Any:
        return from_json, (self.to_json(),)

    def __copy__(self) -> Symbol:
        return self

    def __deepcopy__(self, memo: object) -> Symbol:
        return self

    # Other symbols from it.

    def __call__(self, *args: Symbol, name: str | None = None, **named: Symbol) -> Symbol:
        """The same operators on other symbols in place of variables, given by name or in the order of arguments.

        name: the new name of the operator whose output this is. Raises GraphError for variables that are not there.

        >>> import weft.functional as F
        >>> head = F.linear(var("h"), out_features=3, name="head")
        >>> head(h=F.relu(var("x"))).list_arguments()
        ['x', 'head_weight', 'head_bias']
        """
        nodes = self._nodes()
        variables = {node.name: node for node in nodes if node.op is None}
        new_values: dict[int, Value] = {}  # by id of the old value
        for each, symbol in self._by_name("symbol", args, named).items():
            if each not in variables:
                raise GraphError(f"symbol: no variable {each!r}; there are: {', '.join(variables)}")
            if not isinstance(symbol, Symbol):
                raise TypeError(f"symbol: {each} must be a Symbol, got {type(symbol).__name__}")
            new_values[id(variables[each].outputs[0])] = single("symbol", symbol)
        last = self.values[-1].node
        for node in nodes:
            inputs = [None if v is None else new_values.get(id(v), v) for v in node.inputs]
            is_last = node is last and name is not None
            changed = any(a is not b for a, b in zip(inputs, node.inputs, strict=True))
            if id(node.outputs[0]) not in new_values and (is_last or changed):
                new_node = node.replaced(inputs, name if is_last else None)
                new_values.update((id(a), b) for a, b in zip(node.outputs, new_node.outputs, strict=True))
                check_written(new_node)
        return Symbol([new_values.get(id(v), v) for v in self.values])

    def grad(self, names: Sequence[str] | str, name: str | None = None) -> Symbol:
        """The gradients of the sum of all elements of the outputs with respect to these variables, in their order.

        They can be differentiated again. Raises GraphError for names that are not there.

        >>> x = var("x")
        >>> dx = (x * x * x).grad(["x"])
        >>> dx.eval(x=[2.0])[0], dx.grad("x").eval(x=[2.0])[0]
        (tensor([12.], dtype=float32, device=cpu:0), tensor([12.], dtype=float32, device=cpu:0))
        """
        variables = [names] if isinstance(names, str) else list(names)
        node = gradient_node(self.values, variables, scoped_name(name, "gradient"), attributes(None))
        return Symbol(node.outputs)

    # What it will be.

    def infer_shape(self, *args: Partial, **shapes: Partial) -> tuple[Any, Any, Any]:
        """The shapes of arguments, outputs and auxiliary states from those given, by order or by name.

        Sizes that are not known are None, in a shape or instead of it. What is known goes both ways; at last, likely
        things are assumed (weft.symbol.defaults says which). (None, None, None) if that is not enough.
        Raises ShapeError for a contradiction, GraphError for names that are not there.

        >>> import weft.functional as F
        >>> F.linear(var("x"), var("w", shape=(3, 4))).infer_shape(x=(None, None))
        (None, None, None)
        """
        result = self.infer_shape_partial(*args, **shapes)
        complete = all(shape is not None and None not in shape for part in result for shape in part)
        return result if complete else (None, None, None)

    def infer_shape_partial(self, *args: Partial, **shapes: Partial) -> tuple[Any, Any, Any]:
        """As infer_shape, as far as it is known.

        >>> import weft.functional as F
        >>> F.linear(var("x"), var("w", shape=(3, 4))).infer_shape_partial(x=(None, None))
        ([(None, 4), (3, 4), (3,)], [(None, 3)], [])
        """
        return self._listed(self._infer(args, shapes, {}).shape_of)

    def infer_type(self, *args: DTypeLike, **dtypes: DTypeLike) -> tuple[Any, Any, Any]:
        """The element types of arguments, outputs and auxiliary states from those given; otherwise as infer_shape.

        >>> import weft.functional as F
        >>> F.linear(var("x"), out_features=2).infer_type(x="float16")
        ([float16, float16, float16], [float16], [])
        """
        types = self.infer_type_partial(*args, **dtypes)
        return types if all(dtype for part in types for dtype in part) else (None, None, None)

    def infer_type_partial(self, *args: DTypeLike, **dtypes: DTypeLike) -> tuple[Any, Any, Any]:
        """As infer_type, with None for what is not known."""
        dtypes_by_name = self._by_name("infer_type", args, dtypes)
        declared = {name: None if d is None else as_dtype(d) for name, d in dtypes_by_name.items()}
        return self._listed(self._infer((), {}, declared).dtype_of)

    def _by_name(self, what: str, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        names = self.list_arguments()
        if len(args) > len(names):
            raise GraphError(f"{what}: {len(args)} given for the {len(names)} arguments {', '.join(names)}")
        twice = [name for name in names[: len(args)] if name in named]
        if twice:
            raise GraphError(f"{what}: {twice[0]} is given twice")
        return dict(zip(names, args, strict=False)) | dict(named)

    def _infer(
        self, args: Sequence[Any], shapes: Mapping[str, Any], dtypes: Mapping[str, DType | None]
    ) -> Inference:
        shapes = self._by_name("infer_shape", args, shapes)
        return infer_with_defaults(self.values, {k: checked_shape(k, v) for k, v in shapes.items()}, dtypes)

    def _listed(self, fact: Callable[[Value], Any]) -> tuple[list[Any], list[Any], list[Any]]:
        arguments, states = ([fact(n.outputs[0]) for n in nodes] for nodes in self._variables())
        return arguments, [fact(v) for v in self.values], states

    # Running it.

    def bind(
        self,
        device: Device | str | None = None,
        args: Mapping[str, Any] | Sequence[Any] | None = None,
        args_grad: Mapping[str, Any] | Sequence[Any] | None = None,
        grad_req: str | Mapping[str, str] | Sequence[str] = "write",
        aux_states: Mapping[str, Any] | Sequence[Any] | None = None,
        group_devices: Mapping[str, Device | str] | None = None,
        memory_budget: int | float | None = None,
    ) -> Executor:
        """An executor on these arrays, by name or in the order of list_arguments and list_auxiliary_states.

        args_grad: where gradients are written; none are computed for arguments that it does not have. grad_req:
        "write", "add" or "null", for all or for each. group_devices: where the symbols run whose attribute device_group
        is one of these; arrays are where the symbols are that read them, see weft.symbol.placement.
        memory_budget: what a step of training may take for what is kept for backward, and for temporary space: bytes as
        an int, or as a float the share of what it takes without one; for it results are computed again, as weft.trace's
        does it. A monitor callback sees everything, and needs the memory of everything.
        Raises GraphError if arrays are missing or not known, ShapeError, DTypeError, DeviceError if they do not fit;
        the first training forward GraphError for a budget that cannot be met.

        >>> import weft as wf
        >>> x = wf.tensor([1., 2.])
        >>> exe = (var("x") * 3).bind(args={"x": x}, args_grad={"x": wf.zeros(2)})
        >>> exe.forward(is_train=True)
        [tensor([3., 6.], dtype=float32, device=cpu:0)]
        >>> exe.backward()
        >>> exe.grad_dict["x"]
        tensor([3., 3.], dtype=float32, device=cpu:0)
        """
        budget = checked_budget(memory_budget)
        return bind_arrays(
            self._make_plans(), device, args, args_grad, grad_req, aux_states, group_devices, budget
        )

    def simple_bind(
        self,
        device: Device | str | None = None,
        grad_req: str | Mapping[str, str] | Sequence[str] = "write",
        dtypes: Mapping[str, DTypeLike] | None = None,
        group_devices: Mapping[str, Device | str] | None = None,
        memory_budget: int | float | None = None,
        **shapes: Partial,
    ) -> Executor:
        """An executor on new arrays of zeros, whose shapes are inferred from those given.

        group_devices, memory_budget: as bind's. Raises GraphError if shapes are not enough; else as bind.

        >>> import weft.functional as F
        >>> exe = F.linear(var("x"), out_features=2, name="fc").simple_bind(x=(4, 3))
        >>> {name: array.shape for name, array in exe.arg_dict.items()}
        {'x': (4, 3), 'fc_weight': (2, 3), 'fc_bias': (2,)}
        """
        dtypes_by_name = {k: as_dtype(v) for k, v in (dtypes or {}).items()}
        sizes = {k: checked_shape(k, v) for k, v in shapes.items()}
        budget = checked_budget(memory_budget)
        return bind_shapes(self._make_plans(), device, grad_req, dtypes_by_name, sizes, group_devices, budget)

    def eval(self, device: Device | str | None = None, **arrays: Any) -> list[Any]:
        """The outputs for these arrays (or what weft.asarray takes), without training.

        >>> (var("x") + 1).eval(x=[1.0])
        [tensor([2.], dtype=float32, device=cpu:0)]
        """
        refuse_recorded("eval", arrays)
        return bind_arrays(self._make_plans(), device, arrays, None, "null", arrays, convert=True).forward()

    def _make_plans(self) -> Plans:
        arguments, states = ([node.name for node in nodes] for nodes in self._variables())
        return Plans(self.values, arguments, states, self.list_outputs(), self._plan_table)

    # Text and pictures.

    def to_json(self) -> str:
        """The text form, which sym.from_json reads."""
        return symbol_to_json(self.values)

    def save(self, path: Any) -> None:
        """Write to_json() to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_json())

    def to_dot(self) -> str:
        """A drawing in Graphviz's language."""
        return drawing.to_dot(self.values)

    def to_svg(self, **shapes: Partial) -> str:
        """A drawing as SVG. shapes: as infer_shape's; then sizes are written beside the edges."""
        inference = self._infer((), shapes, {})
        return drawing.to_svg(self.values, inference.shape_of if shapes else None)

    def _repr_svg_(self) -> str | None:
        """What notebooks show: the drawing, None, for the listing, where it is too large to be read."""
        return self.to_svg() if len(self._nodes()) <= MAX_SHOWN_NODES else None

    def plot(self, path: Any = None, **shapes: Partial) -> str:
        """A drawing as SVG, also written to a file if a path is given; shapes: as for infer_shape_partial.

        >>> var("x").sum(name="total").plot(x=(2, 3)).startswith("<svg")
        True
        """
        text = self.to_svg(**shapes)
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    def print_summary(self, **shapes: Partial) -> None:
        """Print a table: for each operator its output's shape, its learnable parameters, and what it reads.

        shapes: of arguments, as for infer_shape_partial; what is not known is shown as ?.

        >>> import weft.functional as F
        >>> F.linear(var("x"), out_features=3, name="fc").print_summary(x=(2, 4))
        name  operator  output  parameters  reads
        ...
        """
        print(drawing.summary(self.values, self._infer((), shapes, {}).shape_of))

    def draw(self, path: Any, **shapes: Partial) -> None:
        """Write a drawing to a file: SVG, or Graphviz's language if its name ends in .dot or .gv."""
        text = self.to_dot() if str(path).endswith((".dot", ".gv")) else self.to_svg(**shapes)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


_ARRAYS = (Symbol, Tensor, np.ndarray)
_OPERANDS = (*_ARRAYS, bool, int, float, np.generic)
add_operators(Symbol, lambda other: isinstance(other, _OPERANDS), equality=True)


def checked_shape(name: str, shape: Any) -> Partial:
    """A shape as inference takes it. Raises TypeError unless it is one."""
    if shape is None:
        return None
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    for n in sizes:
        if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 0):
            raise TypeError(f"symbol: the shape of {name} must be of sizes and None, got {shape!r}")
    return sizes


def var(
    name: str,
    shape: Partial | int = None,
    dtype: DTypeLike | None = None,
    init: str | None = None,
    attr: Mapping[str, str] | None = None,
    **attrs: str,
) -> Symbol:
    """A variable: an array that is given when the symbol is bound.

    shape, dtype: as far as known already; init: a text for the initializer of its first value; attr and other keywords:
    texts for any use. Raises TypeError for what is not of these kinds.

    >>> var("w", shape=(None, 3), lr_mult="0.1").attr("lr_mult")
    '0.1'
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"var: a name is a text that is not empty, got {name!r}")
    if init is not None and not isinstance(init, str):
        raise TypeError(f"var: init is a text, got {init!r}")
    kind = None if dtype is None else as_dtype(dtype)
    all_attrs = attributes({**(attr or {}), **attrs})
    return Symbol([variable(name, all_attrs, checked_shape(name, shape), kind, init, user_line())])


def group(symbols: Sequence[Symbol]) -> Symbol:
    """Several symbols as one with all their outputs.

    Raises GraphError for none, or if two variables have one name, TypeError for anything but symbols.

    >>> group([var("a"), var("b")]).list_outputs()
    ['a', 'b']
    """
    for symbol in symbols:
        if not isinstance(symbol, Symbol):
            raise TypeError(f"group: expected symbols, got {type(symbol).__name__}")
    values = [value for symbol in symbols for value in symbol.values]
    if not values:
        raise GraphError("group: needs at least one symbol")
    check_names(nodes_of(values))
    return Symbol(values)


def _node(value: Value) -> SymbolNode:
    assert isinstance(value.node, SymbolNode)
    return value.node


def full(shape: Sequence[int], value: bool | int | float, dtype: DTypeLike = "float32") -> Symbol:
    """One number everywhere.

    >>> full((2,), 3.0).eval()
    [tensor([3., 3.], dtype=float32, device=cpu:0)]
    """
    number = Symbol(compose(registry.get("cast"), (value,), {"dtype": as_dtype(dtype)}))
    return Symbol(compose(registry.get("broadcast_to"), (number,), {"shape": tuple(shape)}))


def zeros(shape: Sequence[int], dtype: DTypeLike = "float32") -> Symbol:
    """Zeros.

    >>> zeros((2,)).infer_shape()
    ([], [(2,)], [])
    """
    return full(shape, 0, dtype)


def ones(shape: Sequence[int], dtype: DTypeLike = "float32") -> Symbol:
    """Ones.

    >>> ones((2,), "int32").infer_type()
    ([], [int32], [])
    """
    return full(shape, 1, dtype)


def from_json(source: str) -> Symbol:
    """The symbol of a text that to_json made. Nothing in it is run.

    Raises GraphError, which says where, for texts that are none.

    >>> from_json((var("x") + 1).to_json()).list_arguments()
    ['x']
    """
    return Symbol(symbol_from_json(source))


def load(path: Any) -> Symbol:
    """The symbol in a file that save wrote. Raises GraphError for a file that holds none, OSError."""
    with open(path, "rb") as file:
        return Symbol(symbol_from_json(file.read()))
