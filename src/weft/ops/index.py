"""Which module defines which operator; written by weft.ops.make_index."""

MODULE_OF: dict[str, str] = {
    "add": "weft.ops.arithmetic",
    "broadcast_like": "weft.ops.shape",
    "broadcast_to": "weft.ops.shape",
    "cast": "weft.ops.elementary",
    "divide_by_count": "weft.ops.reduction",
    "exp": "weft.ops.elementary",
    "expand_dims": "weft.ops.shape",
    "gelu": "weft.ops.activation",
    "leaky_relu": "weft.ops.activation",
    "max": "weft.ops.reduction",
    "mean": "weft.ops.reduction",
    "multiply": "weft.ops.arithmetic",
    "permute_dims": "weft.ops.shape",
    "pointwise_gradient": "weft.ops.pointwise",
    "relu": "weft.ops.activation",
    "reshape": "weft.ops.shape",
    "softmax": "weft.ops.reduction",
    "squeeze": "weft.ops.shape",
    "sum": "weft.ops.reduction",
}

# Not for users: what gradients and plans are made of.
INTERNAL: frozenset[str] = frozenset(
    {
        "broadcast_like",
        "divide_by_count",
        "pointwise_gradient",
    }
)

# Also methods of arrays.
METHODS: tuple[str, ...] = (
    "add",
    "broadcast_to",
    "cast",
    "exp",
    "expand_dims",
    "gelu",
    "leaky_relu",
    "max",
    "mean",
    "multiply",
    "permute_dims",
    "relu",
    "reshape",
    "softmax",
    "squeeze",
    "sum",
)
