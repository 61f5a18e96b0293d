"""Module: a tree of layers that finds its own parameters, buffers and submodules."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from weft.arrays.creation import asarray
from weft.arrays.tensor import Tensor
from weft.base.device import Device
from weft.base.dtype import DType, as_dtype
from weft.base.errors import DTypeError, ShapeError, names_keywords
from weft.base.name_hints import add_name_hints, visible_names
from weft.base.structure import walked
from weft.gradients.gradient import no_grad
from weft.module.gradient_hooks import GradientHook, call_with_hooks
from weft.module.state import IncompatibleKeys, compare, write
from weft.recording.dependence import changed, containers_in, depends_on, state_of
from weft.recording.paths import module_calls, report

__all__ = ["Handle", "Module", "Parameter"]

Self = TypeVar("Self", bound="Module")
R = TypeVar("R")

PARAMETER, BUFFER, UNSAVED_BUFFER = "parameter", "buffer", "unsaved buffer"
UNSIZED = "parameter without a size"  # of a layer that learns the size of its input at its first call

if TYPE_CHECKING:
    from weft.base.typing import Returns

    def Parameter(x: Any) -> Tensor:
        """What a checker sees: a module gives the tensor itself back."""

else:

    class Parameter:
        """Marks a tensor that is assigned to a module as a parameter, to be trained: self.weight = Parameter(x).

        The module then has the tensor itself as that attribute, and lists it. x: a Tensor, which stays the same object,
        so that two modules can share one; or what weft.asarray takes. Raises DTypeError unless it is of a
        floating-point type.

        >>> import weft as wf
        >>> layer = Module()
        >>> layer.weight = Parameter(wf.zeros(2))
        >>> layer.weight
        tensor([0., 0.], dtype=float32, device=cpu:0)
        >>> [name for name, _ in layer.named_parameters()]
        ['weight']
        """

        __slots__ = ("tensor",)

        def __init__(self, x: Any) -> None:
            self.tensor = x.tensor if isinstance(x, Parameter) else asarray(x)
            if not self.tensor.dtype.is_differentiable:
                raise DTypeError(
                    f"Parameter: must be of a floating-point type, got {self.tensor.dtype}; "
                    "a tensor that is not trained is a buffer: register_buffer"
                )

        def __repr__(self) -> str:
            return f"Parameter({self.tensor!r})"


class Handle:
    """A handle of a registered hook, to remove it; also a context manager.

    >>> handle = Module().register_forward_hook(lambda module, args, y: None)
    >>> handle.remove()
    """

    def __init__(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._hooks, self._number = hooks, next(_numbers)
        hooks[self._number] = hook
        changed()

    def remove(self) -> None:
        """Remove the hook; a second call has no effect."""
        self._hooks.pop(self._number, None)
        changed()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


_numbers = itertools.count()


class _EarlierName:
    """Reads an attribute by the name that it had in earlier versions."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        return getattr(owner if instance is None else instance, self._name)


class Module:
    """Base class of layers and models: assign parameters and other modules to attributes, and define forward().

    An attribute is a parameter if a Parameter was assigned to it, a buffer after register_buffer. Submodules are found
    in attributes, and in lists, tuples and dictionaries there, however deep; their names are paths, such as
    "blocks.0.weight". A weight or module that appears twice is
    listed once, under its first name. training: set by train() and eval(), True at first; some layers read it.

    >>> import weft as wf
    >>> import weft.module as M
    >>> class Net(M.Module):
    ...     def __init__(self):
    ...         self.layers = [M.Linear(4, 3), M.Linear(3, 2)]
    ...         self.scale = M.Parameter(wf.ones(()))
    ...     def forward(self, x):
    ...         for layer in self.layers:
    ...             x = layer(x)
    ...         return x * self.scale
    >>> net = Net()
    >>> net(wf.zeros((5, 4))).shape
    (5, 2)
    >>> [name for name, _ in net.named_parameters()]
    ['scale', 'layers.0.weight', 'layers.0.bias', 'layers.1.weight', 'layers.1.bias']
    """

    # Slots, so that vars() has nothing but what users assigned.
    __slots__ = ("__dict__", "__weakref__", "_gradient_hooks", "_hooks", "_pre_hooks", "_roles")

    training: bool = True
    repr_attributes: ClassVar[tuple[str, ...]] = ()  # attributes in repr
    shown = _EarlierName("repr_attributes")
    ignored_state: ClassVar[
        tuple[str, ...]
    ] = ()  # entries of other libraries' states, which load_state_dict skips

    _roles: dict[str, str]
    _hooks: dict[int, Callable[..., Any]]
    _pre_hooks: dict[int, Callable[..., Any]]
    _gradient_hooks: dict[int, Callable[..., Any]]

    def __new__(cls: type[Self], *args: Any, **kwargs: Any) -> Self:
        if (args or kwargs) and cls.__init__ is object.__init__:
            raise TypeError(
                f"{cls.__name__}() takes no arguments, as the class has no __init__\n"
                f"  hint: a call of the module is {cls.__name__}()(x)"
            )
        module = super().__new__(cls)  # here, so that a forgotten super().__init__() does no harm
        for name in ("_roles", "_hooks", "_pre_hooks", "_gradient_hooks"):
            object.__setattr__(module, name, {})
        return module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result of a call; defined by subclasses."""
        raise NotImplementedError(
            f"{type(self).__name__}: has no forward(); define forward(self, x) in the class, which a call runs"
        )

    if TYPE_CHECKING:  # of any arguments, since symbols and lists are taken as well; the result is forward's

        def __call__(self: Returns[R], *args: Any, **kwargs: Any) -> R: ...

    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            for x in (*args, *kwargs.values()) if kwargs else args:
                if type(x) is not Tensor and (naming := getattr(x, "__weft_naming__", None)) is not None:
                    names = naming(self, self._named_arrays)
                    if names is not None:  # a symbol, and this is the outermost module
                        with names:
                            return self(*args, **kwargs)
            depends_on(self)
            if self._pre_hooks:
                for hook in tuple(self._pre_hooks.values()):
                    replaced = hook(self, args)
                    if replaced is not None:
                        args = replaced if isinstance(replaced, tuple) else (replaced,)
            try:
                if self._gradient_hooks:
                    y = self._forward_with_gradient_hooks(args, kwargs)
                else:
                    y = self.forward(*args, **kwargs)
            except Exception as problem:
                if type(problem) is TypeError and _is_of_the_call(problem):
                    raise self._wrong_arguments(problem) from None
                report(problem)
                raise
            if self._hooks:
                for hook in tuple(self._hooks.values()):
                    replaced = hook(self, args, y)
                    y = y if replaced is None else replaced
            return y

        module_calls.add(__call__.__code__)

    def _wrong_arguments(self, problem: TypeError) -> TypeError:
        """Python's error, with the arguments that forward takes and the path of the module."""
        signature = str(inspect.signature(self.forward))
        better = TypeError(f"{problem}\n  hint: it is called as {type(self).__name__}.forward{signature}")
        report(better)
        return better

    def _named_arrays(self) -> dict[str, Tensor]:
        return dict(self._named("", PARAMETER, BUFFER, UNSAVED_BUFFER))

    def functional_call(self, state: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The result of a call with these values in the places of parameters and buffers; the module stays as it is.

        So a module is a function of its parameters, which grad, vmap, jvp and others differentiate or map:
        wf.grad(lambda p, x: net.functional_call(p, x).sum())(dict(net.named_parameters()), x). state: arrays by the
        names of named_parameters() and named_buffers(); for names that it leaves out the module has its own. What is
        shared is replaced everywhere. A buffer that forward writes (BatchNorm's statistics in training) is written: the
        given one, or the module's own. Meanwhile other threads should not use the module. Raises ValueError for names
        that the module does not have, ShapeError for values of another shape.

        >>> import weft as wf
        >>> import weft.module as M
        >>> net, x = M.Linear(2, 1, bias=False), wf.tensor([[3., 4.]])
        >>> loss = lambda p: net.functional_call(p, x).sum()
        >>> wf.grad(loss)({"weight": wf.zeros((1, 2))})
        {'weight': tensor([[3., 4.]], dtype=float32, device=cpu:0)}
        """
        values = self._replacements(state)
        attributes = [
            (vars(module), name, vars(module)[name], values[id(vars(module)[name])])
            for module in self.modules()
            for name in module._roles
            if id(vars(module)[name]) in values
        ]
        for module in self.modules():
            depends_on(module)  # as it is now, and again afterwards
        try:
            for holder, name, _, value in attributes:
                holder[name] = value
            changed()
            return self(*args, **kwargs)
        finally:
            for holder, name, before, _ in attributes:
                holder[name] = before
            changed()

    def _replacements(self, state: Mapping[str, Any]) -> dict[int, Any]:
        """The values of a functional call by the id of the array that each one replaces."""
        arrays = self._named_arrays()
        title = f"functional_call: {type(self).__name__}"
        if unknown := [name for name in state if name not in arrays]:
            accepted = ", ".join(arrays) or "none"
            raise ValueError(
                f"{title}: no parameter or buffer {', '.join(map(repr, unknown))}; it has: {accepted}"
            )
        values: dict[int, Any] = {}
        for name, given in state.items():
            value = given if isinstance(given, Tensor) else asarray(given)
            if tuple(value.shape) != tuple(arrays[name].shape):
                raise ShapeError(f"{title}: {name} has shape {arrays[name].shape}, got {tuple(value.shape)}")
            values[id(arrays[name])] = value
        return values

    # Attributes.

    def __setattr__(self, name: str, value: Any) -> None:
        if not TYPE_CHECKING and isinstance(value, Parameter):
            self._register(name, value.tensor, PARAMETER)
            return
        role = self._roles.get(name)
        if role is not None and value is None:
            del self._roles[name]
        elif role is PARAMETER:
            raise TypeError(
                f"{type(self).__name__}.{name} is a parameter and takes a Parameter or None, "
                f"got {type(value).__name__}; its elements are written by {name}[...] = x"
            )
        elif role is not None and type(value) is not Tensor:
            raise TypeError(
                f"{type(self).__name__}.{name} is a buffer and takes a Tensor or None, "
                f"got {type(value).__name__}"
            )
        object.__setattr__(self, name, value)
        changed()

    def __weft_state__(self) -> Any:
        """What programs depend on: the attributes, and the hooks."""
        return state_of(
            (
                {"training": self.training, **vars(self)},
                *(self._hooks, self._pre_hooks, self._gradient_hooks),
            )
        )

    def __weft_contents__(self) -> Iterator[Any]:
        """The lists and dictionaries among the attributes, which can change without any call of the module's."""
        return (inner for value in vars(self).values() for inner in containers_in(value))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A parameter that is computed from others, see weft.module.parametrize."""
            parametrization = vars(self).get("parametrizations", {}).get(name)
            if parametrization is not None:
                return parametrization()
            return object.__getattribute__(self, name)  # raises what it raised before

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        changed()
        self._roles.pop(name, None)

    def register_buffer(self, name: str, x: Tensor, persistent: bool = True) -> None:
        """Assign a tensor that is not trained, but moves with the module and, if persistent, is saved with it.

        Raises TypeError unless x is a Tensor, ValueError for a name that cannot be one of an attribute.

        >>> import weft as wf
        >>> layer = Module()
        >>> layer.register_buffer("mean", wf.zeros(2))
        >>> list(layer.state_dict())
        ['mean']
        """
        if type(x) is not Tensor:
            raise TypeError(f"register_buffer: {name} must be a Tensor, got {type(x).__name__}")
        self._register(name, x, BUFFER if persistent else UNSAVED_BUFFER)

    def _register(self, name: str, x: Tensor, role: str) -> None:
        if not name.isidentifier() or (hasattr(type(self), name) and getattr(type(self), name) is not None):
            why = (
                "hides an attribute of the class" if name.isidentifier() else "is not a valid attribute name"
            )
            raise ValueError(f"{type(self).__name__}: the {role} {name!r} {why}")
        self._roles[name] = role
        object.__setattr__(self, name, x)
        changed()

    # The tree.

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Modules in attributes, and in lists, tuples and dictionaries there, each with its path.

        Raises TypeError for a Parameter in such a container: parameters are attributes.

        >>> import weft.module as M
        >>> [name for name, _ in M.Sequential(M.ReLU(), M.Identity()).named_children()]
        ['0', '1']
        """
        listed: set[int] = set()
        for name, value in self._attributes():
            for path, module in _modules_in(name, value):
                if id(module) not in listed:
                    listed.add(id(module))
                    yield path, module

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        """Where children are looked for."""
        return ((name, value) for name, value in tuple(vars(self).items()) if name not in self._roles)

    def children(self) -> Iterator[Module]:
        """The modules that belong to this one directly."""
        return (module for _, module in self.named_children())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all below it, each once, with paths; its own is prefix.

        >>> import weft.module as M
        >>> [name for name, _ in M.Sequential(M.Sequential(M.ReLU())).named_modules()]
        ['', '0', '0.0']
        """
        visited = {id(self)}

        def below(node: tuple[str, Module]) -> Iterator[tuple[str, Module]]:
            path, module = node
            for name, child in module.named_children():
                if id(child) not in visited:
                    visited.add(id(child))
                    yield (f"{path}.{name}" if path else name), child

        return walked((prefix, self), below)

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def _named(self, prefix: str, *roles: str) -> Iterator[tuple[str, Tensor]]:
        listed: set[int] = set()
        for path, module in self.named_modules(prefix):
            for name, role in module._roles.items():
                if role == UNSIZED:
                    raise ValueError(
                        f"{path or type(self).__name__}: {type(module).__name__} has no parameters before its first "
                        "call; call the module once with an example"
                    )
                x = vars(module)[name]
                if role in roles and id(x) not in listed:
                    listed.add(id(x))
                    yield (f"{path}.{name}" if path else name), x

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """All parameters with their paths, each once: a module's own ones before those of its children."""
        return self._named(prefix, PARAMETER)

    def parameters(self) -> Iterator[Tensor]:
        """All parameters, each once: what GradManager.attach and optimizers take.

        >>> import weft.module as M
        >>> [p.shape for p in M.Linear(3, 2).parameters()]
        [(2, 3), (2,)]
        """
        return (x for _, x in self.named_parameters())

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """All buffers with their paths, each once."""
        return self._named(prefix, BUFFER, UNSAVED_BUFFER)

    def buffers(self) -> Iterator[Tensor]:
        """All buffers, each once."""
        return (x for _, x in self.named_buffers())

    def own_state(self) -> Iterator[tuple[str, bool, Tensor | None]]:
        """Parameters and buffers of this module alone: name, whether a parameter, the tensor (None without a size).

        >>> import weft.module as M
        >>> [(name, is_parameter, x.shape) for name, is_parameter, x in M.Linear(3, 2).own_state()]
        [('weight', True, (2, 3)), ('bias', True, (2,))]
        """
        for name, role in self._roles.items():
            yield name, role in (PARAMETER, UNSIZED), None if role == UNSIZED else vars(self)[name]

    # Modes and changes of the whole tree.

    def train(self: Self, mode: bool = True) -> Self:
        """Set `training` here and below; returns the module.

        >>> import weft.module as M
        >>> M.Sequential(M.Dropout(0.5)).train(False).training
        False
        """
        for module in self.modules():
            module.training = mode
        return self

    def eval(self: Self) -> Self:
        """Set `training` to False here and below, for inference; returns the module."""
        return self.train(False)

    def apply(self: Self, f: Callable[[Module], Any]) -> Self:
        """Call f with every module below, children first, and with this one; returns the module.

        >>> import weft.module as M
        >>> def zero(module):
        ...     if isinstance(module, M.Linear):
        ...         M.init.zeros_(module.weight)
        >>> net = M.Sequential(M.Linear(2, 2)).apply(zero)
        """
        for module in reversed(list(self.modules())):
            f(module)
        return self

    def to_device(self: Self, device: Device | str) -> Self:
        """Move parameters and buffers to a device; returns the module.

        Moved parameters are new tensors: attach them, and create the optimizer, afterwards.
        """
        return self._change(lambda x: x.to_device(device))

    def astype(self: Self, dtype: DType | str) -> Self:
        """Convert parameters and buffers of floating-point types; returns the module.

        Converted parameters are new tensors, as with to_device. Raises DTypeError unless dtype is a floating-point
        type.

        >>> import weft.module as M
        >>> M.Linear(2, 2).astype("bfloat16").weight.dtype
        bfloat16
        """
        kind = as_dtype(dtype)
        if not kind.is_floating:
            raise DTypeError(f"astype: a module takes floating-point types, got {kind}")
        return self._change(lambda x: x.astype(kind, copy=False) if x.dtype.is_floating else x)

    def _change(self: Self, change: Callable[[Tensor], Tensor]) -> Self:
        converted: dict[int, tuple[Tensor, Tensor]] = {}  # what is shared stays shared
        with no_grad():
            for module in self.modules():
                for name in module._roles:
                    x = vars(module)[name]
                    if id(x) not in converted:
                        converted[id(x)] = (x, change(x))
                    vars(module)[name] = converted[id(x)][1]
        changed()
        return self

    # State.

    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """Parameters and persistent buffers by path: the tensors themselves, which training continues to change.

        >>> import weft.module as M
        >>> list(M.BatchNorm2d(3).state_dict())
        ['weight', 'bias', 'running_mean', 'running_var']
        """
        return dict(self._named(prefix, PARAMETER, BUFFER))

    def check_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Raise what load_state_dict would raise, and change nothing."""
        compare(type(self).__name__, self.state_dict(), self._own_names(state), strict)

    def _own_names(self, state: Any) -> Any:
        """A state without the entries that modules of this tree ignore, and with the first names of shared tensors."""
        if not isinstance(state, Mapping):
            return state
        first = {id(x): name for name, x in self.state_dict().items()}
        names: dict[str, str | None] = {}  # of entries that are ignored, or stored under another name
        for path, module in self.named_modules():
            prefix = f"{path}." if path else ""
            names |= dict.fromkeys((prefix + name for name in module.ignored_state), None)
            shared = {prefix + name: first.get(id(vars(module)[name])) for name in module._roles}
            names |= {name: stored for name, stored in shared.items() if stored not in (None, name)}
        if names.keys().isdisjoint(state):
            return state
        others = {names[name]: value for name, value in state.items() if names.get(name) is not None}
        return others | {name: value for name, value in state.items() if name not in names}

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Write these values, tensors or NumPy arrays, into the parameters and buffers of the same names.

        Everything is checked before anything is written. strict: the names must be exactly those of state_dict();
        without it missing names keep their values and unexpected names are skipped. Returns the names of both kinds.
        Values of another floating-point type are converted. A shared tensor may have any of its names, the first one
        counts if there are several. Entries of PyTorch that weft does not need (`ignored_state` of the layers, such as
        num_batches_tracked) are skipped. Raises ValueError that lists all names that are missing, unexpected, of
        another shape or of another kind.

        >>> import weft.module as M
        >>> a, b = M.Linear(2, 3), M.Linear(2, 3)
        >>> b.load_state_dict(a.state_dict())
        IncompatibleKeys(missing=(), unexpected=())
        >>> M.Linear(2, 4).load_state_dict({"weight": a.weight})
        Traceback (most recent call last):
            ...
        ValueError: load_state_dict: Linear: nothing was loaded:
          missing: bias
          of another shape: weight is f32[3,2]@cpu:0, here f32[4,2]@cpu:0
        """
        state = self._own_names(state)
        pairs, difference = compare(type(self).__name__, self.state_dict(), state, strict)
        write(pairs)
        return difference

    # Hooks and text.

    def register_forward_hook(self, hook: Callable[[Module, tuple[Any, ...], Any], Any]) -> Handle:
        """Call hook(module, args, y) after forward; what it returns, unless None, takes the place of y.

        >>> import weft as wf
        >>> import weft.module as M
        >>> layer, seen = M.ReLU(), []
        >>> with layer.register_forward_hook(lambda module, args, y: seen.append(y.shape)):
        ...     y = layer(wf.ones(3))
        >>> seen
        [(3,)]
        """
        return Handle(self._hooks, hook)

    def register_forward_pre_hook(self, hook: Callable[[Module, tuple[Any, ...]], Any]) -> Handle:
        """Call hook(module, args) before forward; what it returns, unless None, takes the place of args."""
        return Handle(self._pre_hooks, hook)

    def register_backward_hook(self, hook: GradientHook) -> Handle:
        """Call hook(module, dx, dy) with the gradients of a call, once they are known.

        dx: of the tensors among the positional arguments, in order; None where an argument has no gradient. dy: of the
        result's tensors. What it returns, unless None, takes the place of dx. A trace has to have both the call and the
        backward pass; it calls hooks while it records, and what they do with weft's functions is part of the program.

        >>> import weft as wf
        >>> import weft.module as M
        >>> layer, x = M.Linear(2, 1, bias=False), wf.ones((3, 2))
        >>> with layer.register_backward_hook(lambda module, dx, dy: (dx[0] * 0 + dy[0].sum(),)):
        ...     dx = wf.grad(lambda x: layer(x).sum())(x)
        >>> dx.tolist()
        [[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]]
        """
        return Handle(self._gradient_hooks, hook)

    def _forward_with_gradient_hooks(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        hooks = tuple(self._gradient_hooks.values())
        return call_with_hooks(self, hooks, args, lambda *x: self.forward(*x, **keywords))

    __dir__ = visible_names

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "shown" in vars(cls):
            cls.repr_attributes = vars(cls)["shown"]
            del cls.shown
        if cls.__module__.startswith("weft."):
            names_keywords(cls)

    def extra_repr(self) -> str:
        """The text between the parentheses of repr: the attributes of `repr_attributes`; to be overridden."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.repr_attributes)

    def __repr__(self) -> str:
        return _representation(self)

    def _repr_html_(self) -> str:
        """What notebooks show: a tree that opens and closes."""
        from weft.module.html import module_html

        return module_html(outline(self))


def _is_of_the_call(problem: TypeError) -> bool:
    """True if forward was called with the wrong arguments: the error comes from the call, not from the body."""
    entry = problem.__traceback__
    return entry is not None and entry.tb_next is None and "forward() " in str(problem)


def outline(module: Module) -> Iterator[tuple[int, str, Module | None, str]]:
    """The module and those below it, as repr shows them: depth, the name with a colon, the module, its text.

    The module is None where only the text counts: it is above itself, or its class has a repr of its own. Not recursive
    but for such a class.
    """
    above: set[int] = set()
    waiting: list[tuple[int, str, Module | int]] = [(0, "", module)]  # an int: the id of one that ends
    while waiting:
        depth, label, each = waiting.pop()
        if isinstance(each, int):
            above.discard(each)
        elif id(each) in above:
            yield depth, label, None, "..."
        elif each is not module and type(each).__repr__ is not Module.__repr__:
            yield depth, label, None, repr(each)
        else:
            yield depth, label, each, f"{type(each).__name__}({each.extra_repr()})"
            above.add(id(each))
            waiting.append((depth, "", id(each)))
            waiting += [
                (depth + 1, f"{name}: ", child) for name, child in reversed(list(each.named_children()))
            ]


@recursive_repr("...")  # a module may refer to those above it
def _representation(module: Module) -> str:
    """The module's class and attributes, and those below it, indented, each in the parentheses of the one above."""
    lines: list[str] = []
    last = 0
    for depth, label, _, text in outline(module):
        if depth > last:
            lines[-1] = lines[-1].removesuffix(")")
        lines += [f"{'  ' * k})" for k in range(last - 1, depth - 1, -1)]
        lines.append(f"{'  ' * depth}{label}{text}".replace("\n", f"\n{'  ' * depth}"))
        last = depth
    return "\n".join([*lines, *(f"{'  ' * k})" for k in range(last - 1, -1, -1))])


def _modules_in(path: str, value: Any) -> Iterator[tuple[str, Module]]:
    """The modules that a value is or holds."""
    for place, each in walked((path, value), _parts_of_container):
        if isinstance(each, Module):
            yield place, each
        elif not TYPE_CHECKING and isinstance(each, Parameter):
            raise TypeError(f"{place}: a Parameter in a list or dictionary; assign each one to an attribute")


def _parts_of_container(node: tuple[str, Any]) -> Iterable[tuple[str, Any]]:
    path, value = node
    if isinstance(value, Module) or not isinstance(value, list | tuple | dict):
        return ()
    return [
        (f"{path}.{key}", item)
        for key, item in (value.items() if isinstance(value, dict) else enumerate(value))
    ]


add_name_hints(Module, "Module")
