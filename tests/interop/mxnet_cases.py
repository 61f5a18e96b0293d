"""Networks of one operator of MXNet, as its files describe them: what weft makes of them is compared with MXNet.

A case is (operator, attributes, inputs): an input is a shape and a kind: "n" normal numbers, "p" numbers from 0.5 to 2,
"u" from -0.9 to 0.9, "i5" integers below 5 (as floats, "I5": int32), "j5" from 1 to 5, "c" normal numbers whose
gradient is not compared, "state" an auxiliary state. Needs NumPy only, as the program
that asks MXNet (mxnet_reference.py) imports it, too.
"""

import json
import zlib

import numpy as np

N = "n"


def each(operators, inputs, attributes=None):
    return [(op, attributes or {}, inputs) for op in operators.split()]


def with_attributes(op, inputs, *choices):
    return [(op, attributes, inputs) for attributes in choices]


IMAGE = ((2, 3, 5, 6), N)
BATCH_NORM = [IMAGE, ((3,), N), ((3,), N), ((3,), "state"), ((3,), "state")]
TOKENS = ((2, 3), "i5")

CASES = [
    *each(
        "relu sigmoid tanh softsign exp expm1 square abs sign negative ceil floor trunc rint round fix erf sin cos "
        "arctan sinh cosh arcsinh cbrt degrees radians _copy BlockGrad zeros_like ones_like make_loss logical_not "
        "hard_sigmoid Flatten shape_array size_array",
        [((2, 3), N)],
    ),
    *each("log log1p log2 log10 sqrt rsqrt rcbrt reciprocal gamma gammaln", [((2, 3), "p")]),
    *each("arcsin arccos arctanh erfinv tan", [((2, 3), "u")]),
    *each("arccosh", [((2, 3), "p")]),
    *each(
        "elemwise_add elemwise_sub elemwise_mul elemwise_div _maximum _minimum _hypot _grad_add _equal _lesser "
        "_logical_and",
        [((2, 3), N), ((2, 3), N)],
    ),
    *each(
        "broadcast_add broadcast_sub broadcast_mul broadcast_div broadcast_maximum broadcast_minimum broadcast_hypot "
        "broadcast_equal broadcast_not_equal broadcast_greater broadcast_greater_equal broadcast_lesser "
        "broadcast_lesser_equal broadcast_logical_and broadcast_logical_or broadcast_logical_xor",
        [((2, 1, 3), N), ((4, 1), N)],
    ),
    *each("broadcast_equal broadcast_lesser_equal", [((2, 3), "i2"), ((2, 3), "i2")]),
    *each("broadcast_power broadcast_mod", [((2, 1, 3), "p"), ((4, 1), "p")]),
    *each("broadcast_mod", [((2, 3), N), ((3,), "p")]),
    *each(
        "_plus_scalar _minus_scalar _rminus_scalar _mul_scalar _div_scalar _maximum_scalar _minimum_scalar "
        "_hypot_scalar _equal_scalar _not_equal_scalar _greater_scalar _greater_equal_scalar _lesser_scalar "
        "_lesser_equal_scalar _mod_scalar smooth_l1",
        [((2, 3), N)],
        {"scalar": "0.75"},
    ),
    *each("_power_scalar _rpower_scalar _rdiv_scalar _rmod_scalar", [((2, 3), "p")], {"scalar": "1.5"}),
    *with_attributes("clip", [((3, 4), N)], {"a_min": "-0.5", "a_max": "0.75"}),
    *with_attributes("add_n", [((2, 3), N)] * 3, {"num_args": "3"}),
    *with_attributes(
        "Cast", [((2, 3), "c")], {"dtype": "int32"}
    ),  # its gradient there is that of a cast to floats
    *with_attributes("Cast", [((2, 3), N)], {"dtype": "float64"}),
    # Shapes
    *with_attributes(
        "Reshape",
        [((2, 3, 4), N)],
        *(
            {"shape": s}
            for s in (
                "(6, 4)",
                "(0, -1)",
                "(-1,)",
                "(-2,)",
                "(-3, 0)",
                "(0, -3)",
                "(-4, 1, 2, -2)",
                "(0, -4, -1, 1, 4)",
                "(2, 0, 2, 2)",
                "(-1, 0)",
            )
        ),
        {"shape": "(-1, 0)", "reverse": "True"},
        {"shape": "(0, -3)", "reverse": "True"},
    ),
    *each("reshape_like", [((2, 6), N), ((3, 4), N)]),
    *with_attributes(
        "reshape_like",
        [((2, 6), N), ((5, 2, 3), N)],
        {"lhs_begin": "1", "lhs_end": "2", "rhs_begin": "1", "rhs_end": "3"},
    ),
    *with_attributes("transpose", [((2, 3, 4), N)], {}, {"axes": "(1, 0, 2)"}),
    *with_attributes("SwapAxis", [((2, 3, 4), N)], {"dim1": "0", "dim2": "2"}),
    *with_attributes("expand_dims", [((2, 3), N)], {"axis": "1"}, {"axis": "-1"}),
    *with_attributes("squeeze", [((1, 3, 1), N)], {}, {"axis": "0"}, {"axis": "(0, 2)"}),
    *with_attributes(
        "slice",
        [((4, 5), N)],
        {"begin": "(1, 0)", "end": "(3, 4)"},
        {"begin": "(None, 1)", "end": "(None, None)"},
        {"begin": "(3, 4)", "end": "(0, None)", "step": "(-1, -2)"},
        {"begin": "(1,)", "end": "(-1,)"},
    ),
    *with_attributes(
        "slice_axis",
        [((4, 5), N)],
        {"axis": "1", "begin": "1", "end": "None"},
        {"axis": "-1", "begin": "-3", "end": "-1"},
        {"axis": "0", "begin": "0", "end": "2"},
    ),
    *with_attributes("slice_like", [((4, 5), N), ((2, 3), N)], {}, {"axes": "(1,)"}, {"axes": "(-1,)"}),
    *with_attributes("broadcast_to", [((1, 3), N)], {"shape": "(4, 3)"}, {"shape": "(2, 0)"}),
    *with_attributes(
        "broadcast_axis", [((1, 3, 1), N)], {"axis": "(0, 2)", "size": "(2, 4)"}, {"axis": "0", "size": "3"}
    ),
    *with_attributes(
        "broadcast_like", [((1, 3), N), ((4, 3), N)], {}, {"lhs_axes": "(0,)", "rhs_axes": "(0,)"}
    ),
    *with_attributes("tile", [((2, 3), N)], {"reps": "(2,)"}, {"reps": "(2, 1, 2)"}),
    *with_attributes("repeat", [((2, 3), N)], {"repeats": "2"}, {"repeats": "2", "axis": "1"}),
    *with_attributes(
        "Pad",
        [((2, 3, 4, 5), N)],
        *({"mode": m, "pad_width": "(0, 0, 0, 0, 1, 2, 2, 1)"} for m in ("constant", "edge", "reflect")),
        {"mode": "constant", "pad_width": "(0, 0, 0, 0, 1, 0, 0, 1)", "constant_value": "2.5"},
    ),
    *with_attributes("reverse", [((2, 3, 4), N)], {"axis": "(0, 2)"}, {"axis": "1"}),
    *with_attributes("Concat", [((2, 3), N), ((2, 1), N)], {"num_args": "2"}, {"num_args": "2", "dim": "-1"}),
    *with_attributes("stack", [((2, 3), N), ((2, 3), N)], {"num_args": "2", "axis": "1"}),
    *with_attributes(
        "SliceChannel",
        [((2, 4, 1), N)],
        {"num_outputs": "2"},
        {"num_outputs": "4", "squeeze_axis": "True"},
        {"num_outputs": "2", "axis": "0"},
    ),
    *with_attributes(
        "_split_v2",
        [((5, 4), N)],
        {"indices": "(0, 2, 3)", "axis": "0"},
        {"indices": "(0,)", "axis": "1", "sections": "2"},
    ),
    *with_attributes("depth_to_space", [((1, 8, 2, 3), N)], {"block_size": "2"}),
    *with_attributes("space_to_depth", [((1, 2, 4, 6), N)], {"block_size": "2"}),
    *with_attributes("_contrib_arange_like", [((2, 3), N)], {"start": "1", "step": "0.5"}, {"axis": "1"}),
    # Reductions
    *(
        case
        for op in ("sum", "mean", "max", "min", "nansum")
        for case in with_attributes(
            op,
            [((2, 3, 4), N)],
            {},
            {"axis": "1"},
            {"axis": "(0, 2)", "keepdims": "True"},
            {"axis": "1", "exclude": "True"},
            {"axis": "-1"},
        )
    ),
    *with_attributes("prod", [((2, 3), "p")], {}, {"axis": "1"}),
    *with_attributes(
        "norm", [((2, 3), N)], {}, {"ord": "1", "axis": "1"}, {"ord": "2", "axis": "0", "keepdims": "True"}
    ),
    *(
        case
        for op in ("argmax", "argmin")
        for case in with_attributes(
            op, [((2, 3, 4), N)], {}, {"axis": "1"}, {"axis": "-1", "keepdims": "True"}
        )
    ),
    *each("argmax_channel", [((2, 3), N)]),
    *with_attributes("sort", [((2, 5), N)], {}, {"axis": "0", "is_ascend": "False"}, {"axis": "None"}),
    *with_attributes("argsort", [((2, 5), N)], {}, {"axis": "0", "is_ascend": "False"}, {"dtype": "int32"}),
    *with_attributes(
        "topk",
        [((3, 5), N)],
        {"k": "2"},
        {"k": "2", "ret_typ": "value"},
        {"k": "3", "ret_typ": "both"},
        {"k": "2", "ret_typ": "mask"},
        {"k": "2", "axis": "0", "is_ascend": "True", "ret_typ": "both"},
    ),
    # Indices
    *with_attributes(
        "take", [((4, 3), N), ((2, 2), "i7")], {}, {"axis": "1", "mode": "wrap"}, {"axis": "-1"}
    ),
    *with_attributes("Embedding", [TOKENS, ((5, 4), N)], {"input_dim": "5", "output_dim": "4"}),
    *with_attributes("pick", [((3, 4), N), ((3,), "i6")], {}, {"mode": "wrap", "keepdims": "True"}),
    *with_attributes("pick", [((3, 4), N), ((4,), "i3")], {"axis": "0"}),
    *each("batch_take", [((3, 4), N), ((3,), "I4")]),
    *each("gather_nd", [((3, 4, 2), N), ((2, 5), "i3")]),
    *with_attributes(
        "one_hot", [((2, 3), "i4")], {"depth": "4"}, {"depth": "3", "on_value": "2", "off_value": "-1"}
    ),
    *each("where", [((2, 3), "i2"), ((2, 3), N), ((2, 3), N)]),
    *each("where", [((2,), "i2"), ((2, 3), N), ((2, 3), N)]),
    *with_attributes(
        "SequenceMask", [((4, 2, 3), N), ((2,), "i4")], {"use_sequence_length": "True", "value": "-1"}
    ),
    *with_attributes("SequenceLast", [((4, 2, 3), N), ((2,), "j4")], {"use_sequence_length": "True"}),
    *with_attributes("SequenceLast", [((4, 2, 3), N)], {}),
    *with_attributes("SequenceReverse", [((4, 2, 3), N), ((2,), "j4")], {"use_sequence_length": "True"}),
    # Matrices
    *with_attributes("dot", [((2, 3), N), ((3, 4), N)], {}),
    *with_attributes("dot", [((3, 2), N), ((4, 3), N)], {"transpose_a": "True", "transpose_b": "True"}),
    *with_attributes("dot", [((3,), N), ((3,), N)], {}),
    *with_attributes("dot", [((2, 2, 3), N), ((3, 4), N)], {}),
    *with_attributes("batch_dot", [((2, 3, 4), N), ((2, 4, 2), N)], {}),
    *with_attributes(
        "batch_dot", [((2, 4, 3), N), ((2, 2, 4), N)], {"transpose_a": "True", "transpose_b": "True"}
    ),
    *with_attributes("_linalg_gemm2", [((3, 4), N), ((4, 2), N)], {"alpha": "0.5"}),
    *with_attributes(
        "_linalg_gemm",
        [((3, 4), N), ((2, 4), N), ((3, 2), N)],
        {"alpha": "2", "beta": "0.5", "transpose_b": "True"},
    ),
    *with_attributes("_linalg_syrk", [((3, 4), N)], {}, {"transpose": "True", "alpha": "2"}),
    *each("_contrib_div_sqrt_dim", [((2, 4), N)]),
    *with_attributes("_contrib_interleaved_matmul_selfatt_qk", [((3, 2, 24), N)], {"heads": "2"}),
    *with_attributes(
        "_contrib_interleaved_matmul_selfatt_valatt", [((3, 2, 24), N), ((4, 3, 3), N)], {"heads": "2"}
    ),
    *with_attributes(
        "_contrib_interleaved_matmul_encdec_qk", [((3, 2, 8), N), ((4, 2, 16), N)], {"heads": "2"}
    ),
    *with_attributes(
        "_contrib_interleaved_matmul_encdec_valatt", [((4, 2, 16), N), ((4, 3, 4), N)], {"heads": "2"}
    ),
    # Layers
    *with_attributes("FullyConnected", [((2, 3, 2), N), ((4, 6), N), ((4,), N)], {"num_hidden": "4"}),
    *with_attributes(
        "FullyConnected",
        [((2, 3, 2), N), ((4, 2), N)],
        {"num_hidden": "4", "no_bias": "True", "flatten": "False"},
    ),
    *with_attributes(
        "Convolution",
        [IMAGE, ((4, 3, 3, 2), N), ((4,), N)],
        {"kernel": "(3, 2)", "num_filter": "4"},
        {"kernel": "(3, 2)", "num_filter": "4", "stride": "(2, 1)", "pad": "(1, 1)", "dilate": "(1, 2)"},
    ),
    *with_attributes(
        "Convolution",
        [((1, 4, 5, 5), N), ((4, 2, 3, 3), N)],
        {"kernel": "(3, 3)", "num_filter": "4", "num_group": "2", "no_bias": "True"},
    ),
    *with_attributes(
        "Convolution", [((2, 3, 7), N), ((4, 3, 3), N), ((4,), N)], {"kernel": "(3,)", "num_filter": "4"}
    ),
    *with_attributes(
        "Convolution",
        [((1, 2, 4, 4, 4), N), ((3, 2, 2, 2, 2), N), ((3,), N)],
        {"kernel": "(2, 2, 2)", "num_filter": "3"},
    ),
    *with_attributes(
        "Deconvolution",
        [((2, 3, 4, 4), N), ((3, 2, 3, 3), N)],
        {"kernel": "(3, 3)", "num_filter": "2"},
        {"kernel": "(3, 3)", "num_filter": "2", "stride": "(2, 2)", "pad": "(1, 1)", "adj": "(1, 1)"},
        {"kernel": "(3, 3)", "num_filter": "2", "stride": "(2, 2)", "target_shape": "(8, 8)"},
    ),
    *with_attributes(
        "Deconvolution",
        [((2, 4, 3, 3), N), ((4, 1, 2, 2), N), ((2,), N)],
        {"kernel": "(2, 2)", "num_filter": "2", "num_group": "2", "no_bias": "False"},
    ),
    *(
        case
        for convention in ("valid", "full")
        for kind in ("max", "avg")
        for case in with_attributes(
            "Pooling",
            [((2, 2, 6, 7), N)],
            {"kernel": "(3, 2)", "pool_type": kind, "pooling_convention": convention},
            {
                "kernel": "(3, 3)",
                "stride": "(2, 2)",
                "pad": "(1, 1)",
                "pool_type": kind,
                "pooling_convention": convention,
            },
        )
    ),
    *with_attributes(
        "Pooling",
        [((2, 2, 6, 7), N)],
        {
            "kernel": "(3, 3)",
            "stride": "(2, 2)",
            "pad": "(1, 1)",
            "pool_type": "avg",
            "count_include_pad": "False",
        },
        {"kernel": "(2, 2)", "pool_type": "sum"},
        {"kernel": "(3, 2)", "stride": "(2, 2)", "pool_type": "sum", "pooling_convention": "full"},
        {"kernel": "(2, 2)", "pool_type": "lp", "p_value": "2"},
        {"kernel": "(2, 2)", "pool_type": "max", "global_pool": "True"},
        {"kernel": "(2, 2)", "pool_type": "avg", "global_pool": "True"},
    ),
    *with_attributes("Pooling", [((2, 3, 7), N)], {"kernel": "(3,)", "pool_type": "max"}),
    *with_attributes(
        "BatchNorm",
        BATCH_NORM,
        {},
        {"fix_gamma": "False", "eps": "0.1", "momentum": "0.7"},
        {"use_global_stats": "True", "fix_gamma": "False"},
    ),
    *with_attributes(
        "BatchNorm",
        [((2, 4, 3), N), ((3,), N), ((3,), N), ((3,), "state"), ((3,), "state")],
        {"axis": "2", "fix_gamma": "False"},
    ),
    *with_attributes("LayerNorm", [((2, 3, 4), N), ((4,), N), ((4,), N)], {}, {"eps": "0.1"}),
    *with_attributes("LayerNorm", [((2, 3, 4), N), ((3,), N), ((3,), N)], {"axis": "1"}),
    *with_attributes("GroupNorm", [((2, 4, 3), N), ((2,), N), ((2,), N)], {"num_groups": "2"}),
    *with_attributes("InstanceNorm", [((2, 3, 4, 2), N), ((3,), N), ((3,), N)], {}, {"eps": "0.1"}),
    *with_attributes("L2Normalization", [((2, 3, 4), N)], {}, {"mode": "channel"}, {"mode": "spatial"}),
    *with_attributes(
        "LRN",
        [((2, 6, 2, 2), N)],
        {"nsize": "3", "alpha": "0.1", "beta": "0.5", "knorm": "1.5"},
        {"nsize": "5"},
    ),
    *with_attributes(
        "Activation",
        [((2, 3), N)],
        *({"act_type": k} for k in ("relu", "sigmoid", "tanh", "softrelu", "softsign")),
    ),
    *with_attributes(
        "LeakyReLU", [((2, 3), N)], {}, {"slope": "0.1"}, {"act_type": "elu"}, {"act_type": "gelu"}
    ),
    *with_attributes(
        "LeakyReLU", [((2, 3), "c")], {"act_type": "selu"}
    ),  # its gradient there is not the derivative
    *with_attributes("LeakyReLU", [((2, 3, 2), N), ((3,), N)], {"act_type": "prelu"}),
    *(
        case
        for op in ("softmax", "log_softmax", "softmin")
        for case in with_attributes(op, [((2, 3, 4), N)], {}, {"axis": "1"}, {"temperature": "2.0"})
    ),
    *with_attributes("SoftmaxActivation", [((2, 4), N)], {}),
    *with_attributes("SoftmaxActivation", [((2, 3, 4), N)], {"mode": "channel"}),
    *with_attributes(
        "UpSampling", [((2, 3, 2, 3), N)], {"scale": "2", "sample_type": "nearest", "num_args": "1"}
    ),
    *with_attributes(
        "_contrib_BilinearResize2D",
        [((1, 2, 3, 4), N)],
        {"height": "5", "width": "7"},
        {"height": "2", "width": "2"},
    ),
    *with_attributes("_contrib_AdaptiveAvgPooling2D", [((1, 2, 4, 6), N)], {"output_size": "(2, 3)"}, {}),
    *with_attributes(
        "RNN",
        [((3, 2, 4), N), ((220,), N), ((1, 2, 5), N), ((1, 2, 5), N)],
        {"mode": "lstm", "state_size": "5", "num_layers": "1", "state_outputs": "True"},
    ),
    *with_attributes(
        "RNN",
        [((3, 2, 4), N), ((165,), N), ((1, 2, 5), N)],
        {"mode": "gru", "state_size": "5", "num_layers": "1"},
    ),
    *with_attributes(
        "RNN",
        [((3, 2, 4), N), ((120,), N), ((4, 2, 3), N)],
        {
            "mode": "rnn_tanh",
            "state_size": "3",
            "num_layers": "2",
            "bidirectional": "True",
            "state_outputs": "True",
        },
    ),
    # Outputs for training
    *with_attributes(
        "SoftmaxOutput",
        [((4, 5), N), ((4,), "i5")],
        {},
        {"grad_scale": "0.5", "normalization": "batch"},
        {"use_ignore": "True", "ignore_label": "2", "normalization": "valid"},
        {"smooth_alpha": "0.1"},
    ),
    *with_attributes(
        "SoftmaxOutput",
        [((2, 5, 3), N), ((2, 3), "i5")],
        {"multi_output": "True"},
        {"multi_output": "True", "use_ignore": "True", "ignore_label": "1", "normalization": "valid"},
        {"multi_output": "True", "normalization": "batch"},
    ),
    *with_attributes("SoftmaxOutput", [((2, 3, 5), N), ((2, 3), "i5")], {"preserve_shape": "True"}),
    *with_attributes("SoftmaxOutput", [((3, 4), N), ((3, 4), "p")], {}),
    *with_attributes("SoftmaxOutput", [((3, 2, 4), N), ((3, 2), "i4")], {}),
    *with_attributes("LinearRegressionOutput", [((4, 3), N), ((4, 3), N)], {}, {"grad_scale": "2"}),
    *with_attributes("LogisticRegressionOutput", [((4, 3), N), ((4, 3), N)], {}),
    *with_attributes("MAERegressionOutput", [((4, 3), N), ((4, 3), N)], {}),
    *with_attributes("LinearRegressionOutput", [((4, 1), N), ((4,), N)], {}),
    *with_attributes(
        "SVMOutput",
        [((4, 5), N), ((4,), "i5")],
        {},
        {"use_linear": "True", "margin": "0.5", "regularization_coefficient": "2"},
    ),
    *with_attributes(
        "MakeLoss",
        [((4, 3), "p")],
        {"grad_scale": "0.5"},
        {"normalization": "batch"},
        {"normalization": "valid", "valid_thresh": "1.0"},
    ),
    *with_attributes("_contrib_gradientmultiplier", [((2, 3), N)], {"scalar": "-2"}),
    *with_attributes("CTCLoss", [((6, 2, 5), N), ((2, 3), "j4")], {}),
]


def name_of(k):
    op, attributes, _ = CASES[k]
    return f"{k}-{op}" + "".join(f"-{key}={text}" for key, text in attributes.items())


def symbol_text(case):
    """The symbol.json of a case: inputs x0, x1, ... and the operator y, with all of its outputs."""
    op, attributes, inputs = case
    nodes = [{"op": "null", "name": f"x{k}", "inputs": []} for k in range(len(inputs))]
    entries = [[k, 0, 0] for k in range(len(inputs))]
    nodes.append({"op": op, "name": "y", "attrs": attributes, "inputs": entries})
    heads = [[len(inputs), k, 0] for k in range(outputs_of(case))]
    document = {
        "nodes": nodes,
        "arg_nodes": list(range(len(inputs))),
        "heads": heads,
        "attrs": {"mxnet_version": ["int", 10901]},
    }
    return json.dumps(document)


def outputs_of(case):
    op, attributes, _ = case
    if op == "SliceChannel":
        return int(attributes["num_outputs"])
    if op == "_split_v2":
        return int(attributes.get("sections", 0)) or attributes["indices"].count(",") + (
            not attributes["indices"].endswith(",)")
        )
    if op == "topk":
        return 2 if attributes.get("ret_typ") == "both" else 1
    if op == "RNN":
        return 1 if "state_outputs" not in attributes else 3 if attributes["mode"] == "lstm" else 2
    return 1


def values(case, seed=None):
    """The inputs of a case."""
    text = repr(case)
    rng = np.random.RandomState(zlib.crc32(text.encode()) if seed is None else seed)
    arrays = []
    for shape, kind in case[2]:
        if kind == "p" or kind == "state":
            x = rng.uniform(0.5, 2.0, shape)
        elif kind == "u":
            x = rng.uniform(-0.9, 0.9, shape)
        elif kind[0] in "ijI":
            low = 1 if kind[0] == "j" else 0
            x = rng.randint(low, int(kind[1:]) + low, shape)
        else:
            x = rng.normal(0, 1, shape)
        arrays.append(x.astype(np.int32 if kind[0] == "I" else np.float32))
    return arrays
