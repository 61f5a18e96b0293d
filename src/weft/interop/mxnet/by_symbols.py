"""Operators of MXNet that are operators of weft on symbols: functions from attributes and symbols to a symbol, by name.

They need no sizes, so that symbols infer them in both directions. The last operator of each gets the node's name.
Source: Apache MXNet 1.9, src/operator, and the documentation of its operators.
"""

from __future__ import annotations

from collections.abc import Callable

from weft import functional
from weft.base.typing import Any
from weft.interop.mxnet.attributes import Attributes
from weft.ops import registry
from weft.symbol import creation, full

__all__ = ["ARITHMETIC", "COMPARISON", "CONVERSIONS", "LOGICAL", "UNARY"]

F: Any = functional  # on symbols, its functions take name= as well
Conversion = Callable[..., Any]
CONVERSIONS: dict[str, Conversion] = {}


def by_symbols(*names: str) -> Callable[[Conversion], Conversion]:
    """Adds a conversion under these names: (attributes, name of the node, *inputs) -> symbol, or several."""

    def add(function: Conversion) -> Conversion:
        CONVERSIONS.update(dict.fromkeys(names, function))
        return function

    return add


def internal(operator: str, *inputs: Any, **attributes: Any) -> Any:
    """An operator that is not public, on symbols."""
    return inputs[0].__weft_apply__(registry.get(operator), inputs, attributes)


def like(x: Any, value: float, name: str | None = None) -> Any:
    """A constant of a symbol's shape, without gradient."""
    return internal("filled_like", x, value=value, **({"name": name} if name else {}))


# ---- Element by element ----------------------------------------------------------------------------------------------

UNARY: dict[str, str] = {
    **{
        name: name
        for name in (
            "relu",
            "sigmoid",
            "tanh",
            "softsign",
            "exp",
            "expm1",
            "log",
            "log1p",
            "log2",
            "log10",
            "sqrt",
            "rsqrt",
            "cbrt",
            "square",
            "abs",
            "sign",
            "negative",
            "reciprocal",
            "ceil",
            "floor",
            "trunc",
            "erf",
            "erfinv",
            "gamma",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
        )
    },
    "gammaln": "lgamma",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "degrees": "rad2deg",
    "radians": "deg2rad",
    "rint": "round",
    "_copy": "positive",
    "identity": "positive",
    "_np_copy": "positive",
}


def _unary(operator: str) -> Conversion:
    return lambda a, name, x: getattr(F, operator)(x, name=name)


CONVERSIONS.update({name: _unary(operator) for name, operator in UNARY.items()})
CONVERSIONS["rcbrt"] = lambda a, name, x: F.reciprocal(F.cbrt(x), name=name)
CONVERSIONS["logical_not"] = lambda a, name, x: as_numbers(F.equal(x, 0), x, name)
# Halves go away from zero there, and to the even number here.
CONVERSIONS["round"] = lambda a, name, x: F.multiply(F.sign(x), F.floor(abs(x) + 0.5), name=name)
CONVERSIONS["fix"] = lambda a, name, x: F.trunc(x, name=name)

ARITHMETIC = {
    "add": "add",
    "plus": "add",
    "sub": "subtract",
    "minus": "subtract",
    "mul": "multiply",
    "div": "divide",
    "mod": "remainder",
    "power": "pow",
    "maximum": "maximum",
    "minimum": "minimum",
    "hypot": "hypot",
}
COMPARISON = {
    "equal": "equal",
    "not_equal": "not_equal",
    "greater": "greater",
    "greater_equal": "greater_equal",
    "lesser": "less",
    "lesser_equal": "less_equal",
}
LOGICAL = {"logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor"}


def as_numbers(y: Any, x: Any, name: str) -> Any:
    """Truth values as numbers of the operand's dtype: comparisons of MXNet are numbers."""
    return internal("as_dtype_of", y, x, name=name)


def _binary(operator: str) -> Conversion:
    return lambda a, name, x, y: getattr(F, operator)(x, y, name=name)


def _compared(operator: str) -> Conversion:
    return lambda a, name, x, y: as_numbers(getattr(F, operator)(x, y), x, name)


def _logical(operator: str) -> Conversion:
    return lambda a, name, x, y: as_numbers(
        getattr(F, operator)(F.not_equal(x, 0), F.not_equal(y, 0)), x, name
    )


def _scalar(operator: str, is_reversed: bool = False) -> Conversion:
    def convert(a: Attributes, name: str, x: Any) -> Any:
        number, function = a.number("scalar"), getattr(F, operator)
        a.flag("is_int", True)
        return function(number, x, name=name) if is_reversed else function(x, number, name=name)

    return convert


def _compared_scalar(operator: str) -> Conversion:
    def convert(a: Attributes, name: str, x: Any) -> Any:
        a.flag("is_int", True)
        return as_numbers(getattr(F, operator)(x, a.number("scalar")), x, name)

    return convert


for _name, _operator in ARITHMETIC.items():
    CONVERSIONS[f"broadcast_{_name}"] = CONVERSIONS[f"_{_name}"] = _binary(_operator)
    CONVERSIONS[f"elemwise_{_name}"] = _binary(_operator)
    CONVERSIONS[f"_{_name}_scalar"] = _scalar(_operator)
    CONVERSIONS[f"_r{_name}_scalar"] = _scalar(_operator, True)
for _name, _operator in COMPARISON.items():
    CONVERSIONS[f"broadcast_{_name}"] = CONVERSIONS[f"_{_name}"] = _compared(_operator)
    CONVERSIONS[f"_{_name}_scalar"] = _compared_scalar(_operator)
for _name, _operator in LOGICAL.items():
    CONVERSIONS[f"broadcast_{_name}"] = CONVERSIONS[f"_{_name}"] = _logical(_operator)


@by_symbols("smooth_l1")
def smooth_l1(a: Attributes, name: str, x: Any) -> Any:
    square = a.number("scalar", 1.0) ** 2
    return F.where(abs(x) > 1 / square, abs(x) - 0.5 / square, 0.5 * square * x * x, name=name)


@by_symbols("clip")
def clip(a: Attributes, name: str, x: Any) -> Any:
    return F.clip(x, a.number("a_min"), a.number("a_max"), name=name)


@by_symbols("add_n", "ElementWiseSum", "_sum")
def add_n(a: Attributes, name: str, x: Any, *more: Any) -> Any:
    for y in more[:-1]:
        x = x + y
    return F.add(x, more[-1], name=name) if more else F.positive(x, name=name)


@by_symbols("_grad_add")
def grad_add(a: Attributes, name: str, x: Any, y: Any) -> Any:
    return F.add(x, y, name=name)


@by_symbols("hard_sigmoid")
def hard_sigmoid(a: Attributes, name: str, x: Any) -> Any:
    return F.clip(x * a.number("alpha", 0.2) + a.number("beta", 0.5), 0.0, 1.0, name=name)


@by_symbols("Cast", "cast")
def cast(a: Attributes, name: str, x: Any) -> Any:
    return F.cast(x, dtype=a.dtype(), name=name)


@by_symbols("amp_cast")
def amp_cast(a: Attributes, name: str, x: Any) -> Any:
    return F.cast(x, dtype=a.dtype(), name=name)


@by_symbols("BlockGrad", "stop_gradient")
def block_grad(a: Attributes, name: str, x: Any) -> Any:
    return internal("stop_gradient", x, name=name)


@by_symbols("zeros_like")
def zeros_like(a: Attributes, name: str, x: Any) -> Any:
    return like(x, 0.0, name)


@by_symbols("ones_like")
def ones_like(a: Attributes, name: str, x: Any) -> Any:
    return like(x, 1.0, name)


# ---- Created ---------------------------------------------------------------------------------------------------------


def _constant(value: float | None) -> Conversion:
    def convert(a: Attributes, name: str) -> Any:
        number = a.number("value") if value is None else value
        return full(a.sizes("shape"), number, a.dtype(default="float32"))

    return convert


CONVERSIONS |= {"_zeros": _constant(0.0), "_ones": _constant(1.0), "_full": _constant(None)}


@by_symbols("_arange")
def arange(a: Attributes, name: str) -> Any:
    start, stop, step = a.number("start", 0.0), a.number("stop", None), a.number("step", 1.0)
    if a.integer("repeat", 1) != 1:
        raise a.fail("attribute repeat is not supported")
    a.unset("infer_range")
    return creation.arange(start, stop, step, dtype=a.dtype(default="float32"))


@by_symbols("_linspace")
def linspace(a: Attributes, name: str) -> Any:
    a.unset("endpoint", True)
    return creation.linspace(
        a.number("start"), a.number("stop"), a.integer("num"), dtype=a.dtype(default="float32")
    )


@by_symbols("_eye")
def eye(a: Attributes, name: str) -> Any:
    rows, columns = a.integer("N"), a.integer("M", 0)
    return creation.eye(rows, columns or rows, k=a.integer("k", 0), dtype=a.dtype(default="float32"))


@by_symbols("_random_uniform", "uniform", "random_uniform")
def random_uniform(a: Attributes, name: str) -> Any:
    low, high = a.number("low", 0.0), a.number("high", 1.0)
    return creation.uniform(low, high, a.sizes("shape"), a.dtype(default="float32"))


@by_symbols("_random_normal", "normal", "random_normal")
def random_normal(a: Attributes, name: str) -> Any:
    mean, std = a.number("loc", 0.0), a.number("scale", 1.0)
    return creation.normal(mean, std, a.sizes("shape"), a.dtype(default="float32"))


# ---- Shapes ----------------------------------------------------------------------------------------------------------


@by_symbols("Flatten", "flatten")
def flatten(a: Attributes, name: str, x: Any) -> Any:
    return F.flatten(x, start_axis=1, name=name)


@by_symbols("SwapAxis", "swapaxes")
def swap_axis(a: Attributes, name: str, x: Any) -> Any:
    return F.swapaxes(x, axis1=a.integer("dim1", 0), axis2=a.integer("dim2", 0), name=name)


@by_symbols("expand_dims")
def expand_dims(a: Attributes, name: str, x: Any) -> Any:
    return F.expand_dims(x, axis=a.integer("axis"), name=name)


@by_symbols("Concat", "concat")
def concat(a: Attributes, name: str, *x: Any) -> Any:
    return F.concat(*x, axis=a.integer("dim", 1), name=name)


@by_symbols("stack")
def stack(a: Attributes, name: str, *x: Any) -> Any:
    return F.stack(*x, axis=a.integer("axis", 0), name=name)


@by_symbols("repeat")
def repeat(a: Attributes, name: str, x: Any) -> Any:
    return F.repeat(x, repeats=a.integer("repeats"), axis=a.integer("axis", None), name=name)


@by_symbols("depth_to_space")
def depth_to_space(a: Attributes, name: str, x: Any) -> Any:
    return F.depth_to_space(x, block_size=a.integer("block_size"), name=name)


@by_symbols("space_to_depth")
def space_to_depth(a: Attributes, name: str, x: Any) -> Any:
    return F.space_to_depth(x, block_size=a.integer("block_size"), name=name)


# ---- Layers ----------------------------------------------------------------------------------------------------------


@by_symbols("FullyConnected")
def fully_connected(a: Attributes, name: str, x: Any, weight: Any, bias: Any = None) -> Any:
    units = a.integer("num_hidden")
    a.flag("no_bias", False)
    if a.flag("flatten", True):
        x = F.flatten(x, start_axis=1)
    return F.linear(x, weight, bias, out_features=units, name=name)


@by_symbols("Convolution", "Convolution_v1")
def convolution(a: Attributes, name: str, x: Any, weight: Any, bias: Any = None) -> Any:
    kernel = a.sizes("kernel")
    a.flag("no_bias", False)
    a.choice("layout", "None", "NCW", "NCHW", "NCDHW")
    function = [F.conv1d, F.conv2d, F.conv3d][len(kernel) - 1]
    return function(
        x,
        weight,
        bias,
        stride=a.sizes("stride", ()) or 1,
        padding=a.sizes("pad", ()) or 0,
        dilation=a.sizes("dilate", ()) or 1,
        groups=a.integer("num_group", 1),
        out_channels=a.integer("num_filter"),
        kernel_size=kernel,
        name=name,
    )


@by_symbols("BatchNorm", "BatchNorm_v1", "CuDNNBatchNorm", "_contrib_SyncBatchNorm")
def batch_norm(a: Attributes, name: str, x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    a.unset("output_mean_var")
    (
        a.text("key", ""),
        a.integer("ndev", 1),
        a.number("min_calib_range", None),
        a.number("max_calib_range", None),
    )
    axis, momentum, eps = a.integer("axis", 1), a.number("momentum", 0.9), a.number("eps", 1e-3)
    if a.flag("fix_gamma", True):  # gamma counts as 1, whatever it is, and has no gradient
        gamma = like(gamma, 1.0)
    if axis != 1:
        x = F.swapaxes(x, axis1=1, axis2=axis)
    training = {"training": False} if a.flag("use_global_stats", False) else {}
    y = F.batch_norm(
        x, mean, var, gamma, beta, momentum=1 - momentum, eps=eps, correction=0, name=name, **training
    )
    return y if axis == 1 else F.swapaxes(y, axis1=1, axis2=axis, name=name)


@by_symbols("InstanceNorm")
def instance_norm(a: Attributes, name: str, x: Any, gamma: Any, beta: Any) -> Any:
    return F.instance_norm(x, gamma, beta, eps=a.number("eps", 1e-3), name=name)


@by_symbols("LRN")
def lrn(a: Attributes, name: str, x: Any) -> Any:
    size, alpha, beta, k = (
        a.integer("nsize"),
        a.number("alpha", 1e-4),
        a.number("beta", 0.75),
        a.number("knorm", 2.0),
    )
    return F.local_response_norm(x, size=size, alpha=alpha, beta=beta, k=k, name=name)


@by_symbols("Activation")
def activation(a: Attributes, name: str, x: Any) -> Any:
    kind = a.choice("act_type", "relu", "sigmoid", "tanh", "softrelu", "softsign", "log_sigmoid", "mish")
    return getattr(F, "softplus" if kind == "softrelu" else kind)(x, name=name)


@by_symbols("LeakyReLU")
def leaky_relu(a: Attributes, name: str, x: Any, gamma: Any = None) -> Any:
    kind = a.choice("act_type", "leaky", "elu", "selu", "gelu", "prelu", "rrelu")
    slope, low, high = a.number("slope", 0.25), a.number("lower_bound", 0.125), a.number("upper_bound", 0.334)
    match kind:
        case "leaky":
            return F.leaky_relu(x, negative_slope=slope, name=name)
        case "elu":
            return F.elu(x, alpha=slope, name=name)
        case "prelu":
            return F.prelu(x, gamma, name=name)
        case "rrelu":
            return F.rrelu(x, lower=low, upper=high, name=name)
    return getattr(F, kind)(x, name=name)


def _softmax(operator: str, sign: float) -> Conversion:
    def convert(a: Attributes, name: str, x: Any, *length: Any) -> Any:
        axis, temperature, dtype = a.integer("axis", -1), a.number("temperature", None), a.dtype(default=None)
        a.unset("use_length")
        function = getattr(F, operator)
        scale = sign / (temperature or 1.0)
        x = x if scale == 1 else x * scale
        if dtype is None:
            return function(x, axis=axis, name=name)
        return F.cast(function(x, axis=axis), dtype=dtype, name=name)

    return convert


CONVERSIONS |= {
    "softmax": _softmax("softmax", 1.0),
    "log_softmax": _softmax("log_softmax", 1.0),
    "softmin": _softmax("softmax", -1.0),
}


@by_symbols("Dropout")
def dropout(a: Attributes, name: str, x: Any) -> Any:
    mode, p = a.choice("mode", "training", "always"), a.number("p", 0.5)
    if a.sizes("axes", ()):
        raise a.fail("attribute axes is not supported")
    return F.dropout(x, p=p, name=name, **({"training": True} if mode == "always" else {}))


# ---- Outputs for training --------------------------------------------------------------------------------------------


@by_symbols("SoftmaxOutput", "Softmax")
def softmax_output(a: Attributes, name: str, x: Any, label: Any) -> Any:
    return internal(
        "mxnet_softmax_output",
        x,
        label,
        scale=a.number("grad_scale", 1.0),
        multi_output=a.flag("multi_output", False),
        preserve_shape=a.flag("preserve_shape", False),
        use_ignore=a.flag("use_ignore", False),
        ignore_label=a.number("ignore_label", -1.0),
        normalization=a.choice("normalization", "null", "batch", "valid"),
        smooth_alpha=a.number("smooth_alpha", 0.0),
        out_grad=a.flag("out_grad", False),
        name=name,
    )


def _regression(kind: str) -> Conversion:
    def convert(a: Attributes, name: str, x: Any, label: Any) -> Any:
        scale = a.number("grad_scale", 1.0)
        return internal("mxnet_regression_output", x, label, kind=kind, scale=scale, name=name)

    return convert


CONVERSIONS |= {
    "LinearRegressionOutput": _regression("linear"),
    "LogisticRegressionOutput": _regression("logistic"),
    "MAERegressionOutput": _regression("absolute"),
}


@by_symbols("SVMOutput")
def svm_output(a: Attributes, name: str, x: Any, label: Any) -> Any:
    margin, scale = a.number("margin", 1.0), a.number("regularization_coefficient", 1.0)
    is_linear = a.flag("use_linear", False)
    return F.svm_output(x, label, margin=margin, scale=scale, linear=is_linear, name=name)


@by_symbols("MakeLoss")
def make_loss(a: Attributes, name: str, x: Any) -> Any:
    normalization = a.choice("normalization", "null", "batch", "valid")
    scale, threshold = a.number("grad_scale", 1.0), a.number("valid_thresh", 0.0)
    return F.make_loss(x, scale=scale, normalization=normalization, valid_threshold=threshold, name=name)


@by_symbols("make_loss")
def make_loss_of_1(a: Attributes, name: str, x: Any) -> Any:
    return F.make_loss(x, name=name)


@by_symbols("_contrib_gradientmultiplier")
def gradient_multiplier(a: Attributes, name: str, x: Any) -> Any:
    return F.gradient_multiplier(x, factor=a.number("scalar", 1.0), name=name)
