"""Pages of the API reference: made from the docstrings of all public names when the documentation is built."""

import ast
import contextlib
import functools
import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The page of each module lists what the module makes public; those of weft's functions are on weft.functional's page.
MODULES = (
    "weft",
    "weft.functional",
    "weft.linalg",
    "weft.sparse",
    "weft.fft",
    "weft.module",
    "weft.module.init",
    "weft.optimizer",
    "weft.optimizer.lr_scheduler",
    "weft.random",
    "weft.data",
    "weft.data.transforms",
    "weft.data.recordio",
    "weft.data.text",
    "weft.metrics",
    "weft.models",
    "weft.interop",
    "weft.interop.mxnet",
    "weft.interop.gguf",
    "weft.interop.onnx",
    "weft.quantization",
    "weft.amp",
    "weft.checkpoint",
    "weft.symbol",
    "weft.operator",
    "weft.ops",
    "weft.engine",
    "weft.storage",
    "weft.kvstore",
    "weft.distributed",
    "weft.tools",
    "weft.testing",
    "weft.utils",
)


KINDS = {
    "bool": ("bool",),
    "integers": ("int", "uint"),
    "floats": ("float",),
    "complex numbers": ("complex",),
}


def on_files(files, config):
    """Called by MkDocs with the documentation's files: adds those of the reference."""
    from mkdocs.structure.files import File

    for name in MODULES:
        files.append(File.generated(config, f"reference/{name}.md", content=page(name)))
    files.append(File.generated(config, "reference/coverage.md", content=coverage()))
    return files


def coverage():
    """The page that says where weft has what other libraries and standards have."""
    sys.path.insert(0, str(ROOT))
    inventories = importlib.import_module("tests.coverage")
    parts = [
        "# Where others' names are",
        "Each name of an inventory, and what does the same in weft. Tests check that it is there. Arguments may have "
        "other names, and defaults may differ; the pages of the functions say what they take.",
    ]
    for inventory, (title, _) in inventories.INVENTORIES.items():
        entries = list(inventories.entries(inventory))
        have = sum(not entry.is_gap for entry in entries)
        rows = [f"| `{entry.name}` | {place_of(entry)} |" for entry in entries]
        parts += [
            f"## {title}",
            f"{have} of {len(entries)}.",
            "\n".join(["| name | in weft |", "|---|---|", *rows]),
        ]
    return "\n\n".join(parts) + "\n"


def place_of(entry):
    return "not yet" if entry.is_gap else f"`weft.{entry.place}`"


def public_names(module):
    """The names that a module's page describes."""
    if module.__name__ == "weft":  # its functions have a page of their own
        functions = set(importlib.import_module("weft.functional").__dir__())
        return [
            name
            for name in module.__all__
            if name not in functions and not inspect.ismodule(getattr(module, name))
        ]
    if module.__name__ == "weft.functional":
        return module.__dir__()
    names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
    found = {name: getattr(module, name) for name in names}
    return [
        name
        for name, x in sorted(found.items())
        if not inspect.ismodule(x) and (getattr(x, "__module__", None) or module.__name__).startswith("weft")
    ]


def page(name):
    """The text of a module's page, as Markdown."""
    module = importlib.import_module(name)
    parts = [f"# {name}", markdown(module.__doc__ or "")]
    for each in public_names(module):
        x = getattr(module, each)
        if inspect.isclass(x):
            heading, call, text, *members = class_parts(name, each, x)
            parts += [heading, call, text, *class_facts(x), *members]
        elif callable(x):
            parts += [f"## {each}", code(signature(each, x)), markdown(inspect.getdoc(x) or "")]
            parts += facts(each) if name == "weft.functional" else []
        else:
            parts += (
                [f"## {each}", code(f"{name}.{each} = {x!r}")] if isinstance(x, str | int | float) else []
            )
    return "\n\n".join(part for part in parts if part) + "\n"


def facts(name):
    """What an operator's inference, class and kernels say: its dtypes, gradient and devices."""
    from weft.ops import Op, registry
    from weft.ops.op import differentiable

    if name not in registry.public_names():
        return
    cls = registry.get(name)
    yield f"Dtypes: {dtypes_of(cls)}."
    if cls.stops_gradient or not differentiable(cls):
        yield "It has no gradient."
    elif cls.vjp is not Op.vjp:
        yield "Its gradient is a rule of its own, made of operators that have gradients, too."
    else:
        yield "Its gradient is that of the operators that it is composed of."
    yield f"Devices: {devices_of(cls)}."


def class_facts(cls):
    """The operators that a layer or an optimizer is made of, and the devices that have kernels of all of them."""
    from weft.module import Module
    from weft.ops import registry
    from weft.optimizer import Optimizer

    base = next((base for base in (Module, Optimizer) if issubclass(cls, base) and cls is not base), None)
    if base is None and cls.__module__.startswith("weft.optimizer."):
        yield from helper_facts(cls)
    if base is None:
        return
    names = sorted(operators_of(cls, base))
    if not names:
        of = "what it is given" if base is Module else "arithmetic"
        yield f"Dtypes and devices: those of {of}."
        return
    listed = ", ".join(f"`{name}`" for name in names)
    operators = [name for name in names if registry.find(name)]
    lacking = sorted({gap for name in operators for gap in plans(name)[0]})
    yield f"Dtypes{' and gradients' * (base is Module)}: those of {listed}."
    rest = " and ".join(f"`{gap}`" for gap in lacking)
    yield f"Devices: cpu, gpu except where it needs {rest}." if lacking else "Devices: cpu, gpu."


def helper_facts(cls):
    """Of what is around an optimizer, or keeps parameters beside it: the operators that its code calls."""
    from weft.optimizer.wrappers import Around

    if not issubclass(cls, Around) and cls.__name__ != "AveragedParameters":
        return
    names = sorted(operators_of(cls, object))
    own = [f"`{name}`" for name in names] or ["arithmetic"]
    of = ["the optimizer that it has", *own] if issubclass(cls, Around) else own
    yield (
        f"Dtypes and devices: those of {', '.join(of[:-1])} and {of[-1]}."
        if of[1:]
        else (f"Dtypes and devices: those of {of[0]}.")
    )


@functools.cache
def operators_of(cls, base):
    """Names of the operators that the code of a class calls, of its bases below `base`, and of the layers it has."""
    from weft.ops import registry

    if layer := getattr(cls, "layer", None):
        return operators_of(layer, base)
    operator, names = getattr(cls, "operator", None), {getattr(cls, "function", "")}
    for each in cls.__mro__:
        if each is base or not issubclass(each, base):
            continue
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(each)))):
            match node:
                case ast.Attribute(ast.Name("F"), name):
                    names.add(name)
                case ast.Call(ast.Name("getattr"), [ast.Name("F"), ast.JoinedStr([ast.Constant(name), *_])]):
                    names.add(f"{name}{getattr(cls, 'ndim', '')}d")
                case ast.Call(ast.Name(name) | ast.Subscript(ast.Name(name))):
                    part = getattr(sys.modules[each.__module__], name, None)
                    if base is object:
                        continue
                    if inspect.isclass(part) and issubclass(part, base) and part not in (*cls.__mro__, base):
                        names |= operators_of(part, base)
    names &= {*registry.public_names(), *importlib.import_module("weft.functional").__dir__()}
    names |= {operator} - {None}
    return frozenset(names)


def dtypes_of(cls):
    """Those that inference takes in operands of the samples that leave it open."""
    from weft.base.dtype import DTYPES

    samples = samples_of(cls)
    is_open = [any(spec.dtype is None for spec in support().specs(sample)) for sample in samples]
    if not any(is_open):
        return "as above"
    first = samples[is_open.index(True)]
    taken = [dtype for dtype in DTYPES if graph_of_call(cls, first, dtype.name) is not None]
    kinds = []
    for words, members in KINDS.items():
        of_kind = [dtype for dtype in DTYPES if dtype.kind in members]
        some = [dtype.name for dtype in taken if dtype in of_kind]
        kinds += [words] if len(some) == len(of_kind) else some
    return ", ".join(kinds)


@functools.cache
def plans(name):
    """The kernels that a GPU lacks for an operator's samples, and whether some have a plan."""
    from weft.base.device import gpu
    from weft.base.errors import DeviceError
    from weft.executor.lowering import Lowering
    from weft.ops import registry

    cls, missing, is_planned = registry.get(name), set(), False
    for sample in {repr(sample.attributes): sample for sample in samples_of(cls)}.values():
        for dtype in sample.dtypes or ("float32", "int64", "complex64"):
            graph = graph_of_call(cls, sample, dtype, gpu(0))
            if graph is None:
                continue
            try:
                Lowering(graph, cls.name, (), exact=True).run()
                is_planned = True
            except DeviceError:
                is_planned = True  # it has a plan, whose kernels a driver would make
            except NotImplementedError as error:
                missing.add(importlib.import_module("tests.on_device").gap_of(error))
            break
    return missing, is_planned


def devices_of(cls):
    """The kinds of devices with a plan for the samples; for which of them a GPU has none, by the missing kernels."""
    missing, is_planned = plans(cls.name)
    lacking = " and ".join(f"`{name}`" for name in sorted(missing))
    if not missing:
        return "cpu, gpu"
    return (
        f"cpu, gpu except where it needs {lacking}"
        if is_planned
        else f"cpu; {lacking} has no kernel for a gpu"
    )


def graph_of_call(cls, sample, dtype, device=None):
    """The graph of a call with a sample's operands in a dtype; None if inference refuses it."""
    from weft.base.device import cpu
    from weft.base.device import device as scope
    from weft.base.dtype import as_dtype
    from weft.base.errors import DTypeError
    from weft.graph.graph import graph_of
    from weft.ops.types import TensorType

    device = device or cpu(0)
    types = [TensorType(a.shape, as_dtype(a.dtype or dtype), device) for a in support().specs(sample)]
    with contextlib.suppress(DTypeError), scope(device):
        return graph_of(lambda *values: support().called(cls, sample, values), types)
    return None


def samples_of(cls):
    support()  # with which they come
    return list(cls.samples())


@functools.cache
def support():
    """What the tests of operators make calls of samples with."""
    sys.path.insert(0, str(ROOT))
    return importlib.import_module("tests.ops.support")


def class_parts(module_name, name, cls):
    yield f"## {name}"
    yield code(signature(name, cls))
    yield markdown(inspect.getdoc(cls) or "")
    for each, x in sorted(vars(cls).items()):
        if each.startswith("_") or not (callable(x) or isinstance(x, property | classmethod | staticmethod)):
            continue
        text = inspect.getdoc(x)
        if not text:
            continue
        plain = x.__func__ if isinstance(x, classmethod | staticmethod) else x
        yield f"### {name}.{each}"
        yield "" if isinstance(x, property) else code(signature(f"{name}.{each}", plain))
        yield markdown(text)


def signature(name, x):
    """As it is called. Native functions say it in the first line of their docstring."""
    try:
        given = str(inspect.signature(x))
    except (TypeError, ValueError):
        first = (getattr(x, "__doc__", None) or "").split("\n", 1)[0]
        return first if first.startswith(name.rsplit(".", 1)[-1] + "(") else f"{name}(...)"
    return name + re.sub(r"'([^']*)'", r"\1", given)


def code(text):
    return f"```python\n{text}\n```"


def markdown(text):
    """A docstring: paragraphs, `code`, indented blocks, and examples that begin with >>>."""
    parts = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if block.lstrip().startswith(">>>") or block.startswith("    "):
            parts.append(code(block))
        else:
            words = re.split(r"(`+[^`]*`+)", block)
            parts.append("".join(word if word.startswith("`") else escaped(word) for word in words))
    return "\n\n".join(parts)


def escaped(text):
    return re.sub(r"([\\*_<>\[\]#|])", r"\\\1", text)
