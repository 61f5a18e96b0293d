"""The names that users of other libraries type, and what weft has for each of them.

Every public module answers for the names that it does not have: `weft`, `weft.functional` and other modules with a
`__getattr__` of their own call `missing`, the others call `add_hints(globals())`.

>>> import weft as wf
>>> wf.cat
Traceback (most recent call last):
    ...
AttributeError: weft has no 'cat'; use weft.concat(arrays, axis=0)...
"""

from __future__ import annotations

import sys

from weft.base.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["NameHint", "add_hints", "add_name_hints", "missing", "visible_names"]

_DEVICE = "arrays are moved with to_device(device), types are changed with astype(dtype)"
_RECORD = (
    "gradients are recorded by 'with gm:', where gm is a weft.GradManager that parameters are attached to"
)
_GRADIENT = "gradients are computed by gm.backward(loss) inside 'with gm:', where gm is a weft.GradManager"
_CLEAR = "gradients are cleared by optimizer.clear_grad()"

# By the object that is read; functions are read from weft and from weft.functional.
FUNCTIONS = {
    "absolute": "use weft.abs",
    "arccos": "use weft.acos",
    "arcsin": "use weft.asin",
    "arctan": "use weft.atan",
    "arctan2": "use weft.atan2",
    "cat": "use weft.concat(arrays, axis=0)",
    "clamp": "use weft.clip(x, min, max)",
    "dot": "use weft.vecdot for vectors, weft.matmul or @ for matrices",
    "eq": "use weft.equal or ==",
    "ge": "use weft.greater_equal or >=",
    "gt": "use weft.greater or >",
    "hstack": "use weft.concat(arrays, axis=1)",
    "le": "use weft.less_equal or <=",
    "lt": "use weft.less or <",
    "mm": "use weft.matmul or @",
    "bmm": "use weft.matmul or @, which take leading dimensions",
    "mul": "use weft.multiply or *",
    "ne": "use weft.not_equal or !=",
    "neg": "use weft.negative or -x",
    "norm": "use weft.vector_norm(x, axis, ord)",
    "permute": "use weft.permute_dims(x, axes)",
    "power": "use weft.pow or **",
    "scatter": "use weft.put_along_axis(x, indices, values, axis)",
    "gather": "use weft.take_along_axis(x, indices, axis)",
    "index_select": "use weft.take(x, indices, axis)",
    "sub": "use weft.subtract or -",
    "div": "use weft.divide or /",
    "transpose": "use weft.permute_dims(x, axes), weft.swapaxes(x, axis1, axis2), x.T or x.mT",
    "true_divide": "use weft.divide or /",
    "unique": "use weft.unique_values, unique_counts, unique_inverse or unique_all",
    "unsqueeze": "use weft.expand_dims(x, axis)",
    "upsample": "use weft.functional.interpolate",
    "vstack": "use weft.concat(arrays, axis=0)",
    "addmm": "use c + a @ b",
    "amax": "use weft.max(x, axis)",
    "amin": "use weft.min(x, axis)",
    "fori_loop": "use weft.foreach, or weft.while_loop",
    "index_add": "use weft.put_along_axis(x, indices, values, axis, mode='add')",
    "numel": "use x.size",
    "scan": "use weft.foreach(body, xs, states), or weft.cumulative_sum and cumulative_prod",
    "scatter_add": "use weft.put_along_axis(x, indices, values, axis, mode='add')",
    "stop_gradient": "use x.detach()",
}
NAMESPACE = {
    "Parameter": "use weft.module.Parameter",
    "Variable": "use weft.tensor; " + _RECORD,
    "array": "use weft.tensor, which copies, or weft.asarray, which shares memory where it can",
    "as_tensor": "use weft.asarray",
    "autograd": _RECORD,
    "cuda": "weft runs on processors only",
    "double": "use weft.float64",
    "dtype": "element types are weft.DType, such as weft.float32",
    "enable_grad": _RECORD,
    "float": "use weft.float32, or Python's float",
    "from_numpy": "use weft.asarray, which shares the array's memory",
    "gluon": "layers are in weft.module",
    "grad_enabled": _RECORD,
    "half": "use weft.float16",
    "inference_mode": "use weft.no_grad; outside of 'with gm:' nothing is recorded anyway",
    "init": "use weft.module.init",
    "int": "use weft.int32 or weft.int64, or Python's int",
    "is_tensor": "use isinstance(x, weft.Tensor)",
    "io": "use weft.data, and weft.save, weft.load",
    "jit": "use weft.trace",
    "compile": "use weft.trace",
    "kv": "use weft.kvstore",
    "long": "use weft.int64",
    "manual_seed": "use weft.random.seed",
    "metric": "use weft.metrics",
    "mod": "use weft.symbol and its executors",
    "nd": "arrays are weft.Tensor, its functions are in weft",
    "ndarray": "arrays are weft.Tensor",
    "nn": "layers are in weft.module, functions in weft.functional",
    "optim": "use weft.optimizer",
    "profiler": "use weft.tools.profile",
    "rand": "use weft.random.uniform",
    "randint": "use weft.random.randint",
    "randn": "use weft.random.normal",
    "randperm": "use weft.random.permutation",
    "seed": "use weft.random.seed",
    "set_default_dtype": "the default is weft.float32; give dtype=, or convert with astype(dtype)",
    "set_grad_enabled": _RECORD,
    "sym": "use weft.symbol",
    "vision": "use weft.data for pictures, weft.models for networks",
    "set_seed": "use weft.random.seed",
    "stop_gradient": "use x.detach()",
    "custom_vjp": "derive from weft.Function",
    "lax": "use weft.cond, weft.while_loop and weft.foreach",
    "pmap": "use weft.distributed.DataParallel",
}
RANDOM = {
    "RandomState": "use weft.random.Generator",
    "default_rng": "use weft.random.Generator",
    "get_rng_state": "use weft.random.get_state",
    "manual_seed": "use weft.random.seed",
    "rand": "use weft.random.uniform",
    "randn": "use weft.random.normal",
    "random": "use weft.random.uniform",
    "set_rng_state": "use weft.random.set_state",
    "standard_normal": "use weft.random.normal",
    "bernoulli": "use weft.random.uniform(shape=shape) < p",
    "PRNGKey": "use weft.random.key",
}
DATA = {
    "IterableDataset": "use StreamDataset",
    "TensorDataset": "use ArrayDataset(*arrays)",
    "DistributedSampler": "use ShardedSampler, or weft.distributed.RankSampler",
    "datasets": "datasets are in weft.data: MNIST, CIFAR10, CIFAR100, ImageFolder, CSVDataset, ...",
    "default_collate": "use collate",
    "get_worker_info": "use worker_info",
    "random_split": "use split",
    "vision": "datasets are in weft.data, transforms in weft.data.transforms",
    "WeightedRandomSampler": "use WeightedSampler",
}
METRICS = {
    "F1": "use F1Score",
    "Loss": "use Mean",
    "MSE": "use MeanSquaredError",
    "TopKCategoricalAccuracy": "use TopKAccuracy",
    "create": "metrics are classes, such as Accuracy()",
}
ENGINE = dict.fromkeys(
    ("bulk", "new_operator", "new_variable", "push", "push_async", "set_bulk_size", "stats", "wait_for_var"),
    "it is a method of engines: of weft.engine.default_engine() or an Engine of your own",
) | {"wait_for_all": "use weft.waitall", "waitall": "use weft.waitall"}
AMP = {"init": "use autocast as a with block", "scale_loss": "use GradScaler"}
TOOLS = {"module_stats": "use summary(net, x)"}
SYMBOLS = {
    "Activation": "use relu, sigmoid, tanh, softplus or softsign",
    "BatchNorm": "use batch_norm(x)",
    "BlockGrad": "use x.detach()",
    "Concat": "use concat(arrays, axis=1)",
    "Convolution": "use conv2d(x, out_channels=channels, kernel_size=size)",
    "Dropout": "use dropout(x, p=rate)",
    "Embedding": "use embedding(x, num_embeddings=rows, embedding_dim=size)",
    "Flatten": "use flatten(x, start_axis=1)",
    "FullyConnected": "use linear(x, out_features=size)",
    "LeakyReLU": "use leaky_relu, elu, prelu, selu or gelu",
    "Pooling": "use max_pool2d or avg_pool2d",
    "Reshape": "use reshape(x, shape)",
    "SoftmaxOutput": "use cross_entropy(x, target) for the loss, softmax(x) for probabilities",
    "Group": "use group(symbols)",
    "Variable": "use var(name)",
    "fromjson": "use from_json(text)",
    "load_json": "use from_json(text)",
    "random": "use uniform(low, high, shape), normal(mean, std, shape) or randint(low, high, shape)",
}
SYMBOL = {
    "backward": "executors have it: y.simple_bind(x=shape).backward()",
    "debug_str": "use str(y)",
    "forward": "executors have it: y.simple_bind(x=shape).forward()",
    "get_output": "use y[index]",
    "inputs": "use list_arguments()",
    "numpy": "a symbol has no elements: use y.eval(x=array)",
    "shape": "use infer_shape(x=shape)",
    "dtype": "use infer_type(x=dtype)",
    "ndim": "use infer_shape(x=shape)",
    "size": "use infer_shape(x=shape)",
    "tojson": "use to_json()",
}
FUNCTION = {"apply": "call an instance: MyFunction()(x)"}
TENSOR = {
    "add_": "use x += y",
    "as_in_context": "use x.to_device(device)",
    "asnumpy": "use x.numpy()",
    "asscalar": "use x.item()",
    "attach_grad": _RECORD,
    "backward": _GRADIENT,
    "clamp": "use x.clip(min, max)",
    "clone": "use x.copy()",
    "context": "use x.device",
    "copy_": "use x[...] = y",
    "cpu": "use x.to_device('cpu')",
    "cuda": "weft runs on processors only",
    "data": "use x.detach()",
    "dim": "use x.ndim",
    "div_": "use x /= y",
    "double": "use x.astype('float64')",
    "element_size": "use x.itemsize",
    "expand": "use x.broadcast_to(shape)",
    "fill_": "use x[...] = value",
    "float": "use x.astype('float32')",
    "half": "use x.astype('float16')",
    "int": "use x.astype('int32')",
    "is_cuda": "use x.device",
    "long": "use x.astype('int64')",
    "masked_select": "use x[mask]",
    "mul_": "use x *= y",
    "nelement": "use x.size",
    "numel": "use x.size",
    "permute": "use x.permute_dims(axes)",
    "register_hook": "pass callbacks= to attach of a weft.GradManager",
    "requires_grad_": _RECORD,
    "retain_grad": _RECORD,
    "scatter_": "use x.put_along_axis(indices, values, axis)",
    "sub_": "use x -= y",
    "to": "use x.to_device(device) or x.astype(dtype)",
    "transpose": "use x.permute_dims(axes), x.swapaxes(axis1, axis2), x.T or x.mT",
    "type": "use x.dtype, or x.astype(dtype)",
    "unsqueeze": "use x.expand_dims(axis)",
    "view": "use x.reshape(shape), which shares memory where it can",
    "wait_to_read": "use x.wait()",
    "zero_": "use x[...] = 0",
}
MODULES = {
    "BatchNorm": "use BatchNorm1d, BatchNorm2d or BatchNorm3d",
    "Block": "use Module",
    "Dense": "use Linear(in_features, out_features)",
    "HybridBlock": "use Module, and weft.trace for its calls",
    "HybridSequential": "use Sequential, and weft.trace for its calls",
    "LayerList": "use a Python list as an attribute: modules in it belong to the module",
    "Swish": "use SiLU",
    "functional": "use weft.functional",
}
MODULE = {
    "add_module": "assign it: net.name = module",
    "collect_params": "use named_parameters()",
    "cpu": "use to_device('cpu')",
    "cuda": "weft runs on processors only",
    "double": "use astype('float64')",
    "half": "use astype('float16')",
    "hybridize": "use weft.trace(net)",
    "initialize": "parameters have values from the start; weft.module.init sets others",
    "load_parameters": "use load_state_dict(weft.load(path))",
    "register_parameter": "assign it: net.name = weft.module.Parameter(x)",
    "requires_grad_": "attach those parameters to the GradManager that are to be trained",
    "save_parameters": "use weft.save(path, net.state_dict())",
    "summary": "use weft.tools.summary(net, x)",
    "to": _DEVICE,
    "zero_grad": _CLEAR,
}
OPTIMIZERS = {
    "Trainer": "use an optimizer and a weft.GradManager",
    "clip_grad_norm_": "use clip_grad_norm",
    "clip_grad_value_": "use clip_grad_value",
}
OPTIMIZER = {"zero_grad": _CLEAR}
_TABLES: dict[str, tuple[dict[str, str], ...]] = {
    "weft": (FUNCTIONS, NAMESPACE),
    "weft.functional": (FUNCTIONS,),
    "weft.module": (MODULES,),
    "weft.optimizer": (OPTIMIZERS,),
    "weft.random": (RANDOM,),
    "weft.data": (DATA,),
    "weft.metrics": (METRICS,),
    "weft.engine": (ENGINE,),
    "weft.amp": (AMP,),
    "weft.tools": (TOOLS,),
    "weft.symbol": (SYMBOLS, FUNCTIONS),
    "Symbol": (SYMBOL, FUNCTIONS),
    "Function": (FUNCTION,),
    "Tensor": (TENSOR, FUNCTIONS),
    "Module": (MODULE,),
    "Optimizer": (OPTIMIZER,),
}


def missing(owner: str, name: str, names: Any) -> AttributeError:
    """The error for a name that a namespace does not have; names: a function that gives those that it has.

    >>> str(missing("weft", "softmx", lambda: ["softmax", "softplus"]))
    "weft has no 'softmx'; did you mean softmax?"
    """
    advice = next((table[name] for table in _TABLES.get(owner, ()) if name in table), "")
    if not advice and not name.startswith("_") and not _is_import(sys._getframe(1)):
        from difflib import get_close_matches

        near = get_close_matches(name, [each for each in names() if each[0] != "_"], n=2, cutoff=0.7)
        advice = f"did you mean {' or '.join(near)}?" if near else ""
    return AttributeError(f"{owner} has no {name!r}" + (f"; {advice}" if advice else ""))


def _is_import(frame: FrameType) -> bool:
    """Whether a statement `from package import name` reads it, as it does before it imports a module of that name."""
    caller = frame.f_back
    return caller is not None and caller.f_code.co_filename.startswith("<frozen importlib")


def add_hints(module: dict[str, Any]) -> None:
    """Let a module answer for the names that it does not have; module: its globals().

    Written into its dictionary, so type checkers do not believe that the module has every name.

    >>> import weft as wf
    >>> wf.random.randn
    Traceback (most recent call last):
        ...
    AttributeError: weft.random has no 'randn'; use weft.random.normal...
    """

    def __getattr__(name: str) -> object:
        raise missing(module["__name__"], name, lambda: module.get("__all__") or list(module))

    module["__getattr__"] = __getattr__
    if "__all__" in module:
        names = sorted(module["__all__"])
        module.setdefault("__dir__", lambda: [*names, *(name for name in module if name.startswith("__"))])


class NameHint:
    """A name that a class does not have: reading it raises an AttributeError that says what to use."""

    def __init__(self, owner: str, name: str) -> None:
        self.owner, self.name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        raise missing(self.owner, self.name, list)


def add_name_hints(cls: type, owner: str) -> None:
    """Give a class a hint for each name of its tables that neither it nor one of its bases has."""
    for table in _TABLES[owner]:
        for name in table:
            if not any(name in vars(base) for base in cls.__mro__):
                setattr(cls, name, NameHint(owner, name))


def visible_names(self: object) -> list[str]:
    """What dir() is to list of such a class's objects.

    >>> import weft as wf
    >>> "reshape" in dir(wf.ones(1)), "view" in dir(wf.ones(1))
    (True, False)
    """
    attributes = getattr(self, "__dict__", {})
    return [name for name in object.__dir__(self) if name in attributes or not _is_hint(type(self), name)]


def _is_hint(cls: type, name: str) -> bool:
    return isinstance(next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None), NameHint)
