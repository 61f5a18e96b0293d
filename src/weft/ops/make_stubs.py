"""Writes what type checkers read: weft/functional/__init__.pyi and weft/ops/array_methods.pyi, from the classes.

Run by ``./dev stub``; a test compares.

>>> from weft.ops.registry import get
>>> print(stub(get("relu")).splitlines()[0])
def relu(x: Operand, /) -> Tensor:
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

from weft.ops.make_index import index_of_modules
from weft.ops.node import BINARY_METHODS, COMPARISON_METHODS, UNARY_METHODS
from weft.ops.op import Op

PACKAGE = Path(__file__).parents[1]
TYPES = {"DType": "DType | str | type[Any]", "Device": "Device | str", "object": "Any", "tuple[": "Sequence["}
HEAD = '''"""{text}; written by weft.ops.make_stubs."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from weft.base.device import Device
from weft.base.dtype import DType
from weft.arrays.tensor import Tensor

ArrayLike = Tensor | float | np.ndarray[Any, Any] | np.generic  # what Python's operators take
Operand = ArrayLike | list[Any]
'''


def annotation(accepts: str) -> str:
    """What a caller may give for an attribute, as type checkers have it.

    >>> annotation("int | tuple[int, ...] | None"), annotation("DType | None")
    ('int | Sequence[int] | None', 'DType | str | type[Any] | None')
    """
    for name, text in TYPES.items():
        accepts = accepts.replace(name, text)
    return accepts.replace(", ...]", "]")


def result(cls: type[Op]) -> str:
    """The type of what a call gives; Any where that depends on attributes."""
    needed = {a.name: 1 for a in cls.attributes if a.default is a.REQUIRED}
    flags = [{}, *({a.name: not a.default} for a in cls.attributes if isinstance(a.default, bool))]
    results: set[str] = set()
    for flag in flags:
        outputs, hidden = cls.outputs, cls.hidden
        if not isinstance(outputs, tuple) or not isinstance(hidden, int):
            try:
                instance = cls(**{**needed, **flag})
            except (TypeError, ValueError):
                return "Any"
            outputs, hidden = instance.outputs, instance.hidden
        visible = outputs[: len(outputs) - hidden]
        several = ", ".join(["Tensor"] * len(visible))
        results.add(
            "tuple[Tensor, ...]" if visible[0][0] == "*" else f"tuple[{several}]" if visible[1:] else "Tensor"
        )
    return results.pop() if len(results) == 1 else "Any"


def stub(cls: type[Op], *, method: bool = False) -> str:
    """The typed signature and the first line of the documentation. A method is that of an array of type T."""
    signature = cls.documentation().partition("\n--\n")[0]
    (function,) = ast.parse(f"def {signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    signature_args = function.args
    inputs = {i.name: i for i in cls.inputs}
    attributes = {a.name: a for a in cls.attributes}
    arguments = [*signature_args.posonlyargs, *signature_args.args, *signature_args.kwonlyargs]
    for arg in [*arguments, *([signature_args.vararg] if signature_args.vararg else [])]:
        spec: Any = inputs.get(arg.arg)
        if spec is None:
            text = annotation(attributes[arg.arg].accepts)
        elif spec.variadic:
            text = "Operand | Sequence[Operand]"
        else:
            text = "Operand | None" if spec.optional else "Operand"
        text = text.replace("Operand", "Operand | T") if method else text
        arg.annotation = ast.parse(text, mode="eval").body
    for values in (signature_args.defaults, signature_args.kw_defaults):
        for k, value in enumerate(values):
            if value is not None and not _is_plain(value):
                values[k] = ast.Constant(...)
    if method:
        (signature_args.posonlyargs or signature_args.args)[0] = ast.arg("self")
    returns = result(cls).replace("Tensor", "T") if method else result(cls)
    function.returns = ast.parse(returns, mode="eval").body
    line = inspect.cleandoc(cls.__doc__ or cls.name).splitlines()[0]
    function.body = [ast.Expr(ast.Constant(line))]
    return ast.unparse(ast.fix_missing_locations(function))


def _is_plain(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def functions(classes: dict[str, type[Op]]) -> str:
    """The text of weft/functional/__init__.pyi."""
    public = {name: cls for name, cls in classes.items() if cls.public}
    head = HEAD.format(text="The functions of all operators")
    head += "from weft.functional.drawn import *\nfrom weft.functional.losses import *\n"
    return "\n\n".join([head, *(stub(cls) for cls in public.values())]) + "\n"


def methods(classes: dict[str, type[Op]]) -> str:
    """The text of weft/ops/array_methods.pyi: the base class of arrays and symbols, of type T, for checkers."""
    tree = ast.parse((PACKAGE / "arrays" / "tensor.py").read_text())
    face = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "Tensor")
    declared = {node.name for node in face.body if isinstance(node, ast.FunctionDef)}
    lines = [
        stub(cls, method=True)
        for name, cls in classes.items()
        if cls.public and cls.method and name not in declared and cls.inputs and not cls.inputs[0].variadic
    ]
    lines += [f"def {name}(self) -> T: ..." for name in UNARY_METHODS]
    for name in BINARY_METHODS:
        lines.append(f"def __{name}__(self, other: ArrayLike | T) -> T: ...")
        lines.append(f"def __r{name}__(self, other: ArrayLike | T) -> T: ...")
    lines += [f"def {name}(self, other: ArrayLike | T) -> T: ..." for name in COMPARISON_METHODS]
    lines += [
        f"def {name}(self, other: object) -> T: ...  # type: ignore[override]"
        for name in ("__eq__", "__ne__")
    ]
    lines.append("def __hash__(self) -> int: ...")
    body = "\n".join(lines).replace("\n", "\n    ")
    head = HEAD.format(text="The methods of arrays that are operators").replace(
        "Literal", "Generic, Literal, TypeVar"
    )
    return f'{head}\nT = TypeVar("T")\n\n\nclass Methods(Generic[T]):\n    {body}\n'


def files() -> dict[Path, str]:
    """Every generated file of the package's operators, but for the index."""
    classes = index_of_modules()
    return {
        PACKAGE / "functional" / "__init__.pyi": functions(classes),
        PACKAGE / "ops" / "array_methods.pyi": methods(classes),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
