"""Messages of common mistakes: each says what was given and, nearly always, what is accepted or what to do.

A message has grade A if it names the operation, shows what was given (numbers, operands), and says what is accepted or
what to do; grade B if the last is missing. Messages below B fail, and at least four of five must be A.
"""

import re
import traceback
import warnings
from typing import NamedTuple

import numpy as np
import pytest

import weft as wf
import weft.data as data
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
import weft.symbol as sym
from weft.ops import Op, op

# Text of the binding library, and of classes and attributes that users do not know.
INTERNALS = re.compile(
    r"incompatible function arguments|invoked with types|nanobind|nb_\w+|PyCapsule|TracedFloat|onednn::|std::"
    r"|has no attribute '(on|like|_\w+)'"
)


def used_up():
    parameters = net().parameters()
    list(parameters)
    optim.SGD(parameters, lr=0.1)


class Case(NamedTuple):
    name: str
    call: object  # a function, or one of a temporary folder
    error: type
    operation: str
    given: str
    advice: str | None = None  # what is accepted, or what to do; None: the message does not say it, grade B


def net():
    return M.Linear(4, 2)


def manager(w=None):
    return wf.GradManager().attach([wf.ones(2) if w is None else w])


def twice():
    w = wf.ones(2)
    gm = manager(w)
    with gm:
        loss = (w * w).sum()
        gm.backward(loss)
        gm.backward(loss)


def outside():
    w = wf.ones(2)
    gm = manager(w)
    with gm:
        loss = (w * w).sum()
    gm.backward(loss)


def backward_of(make, dy=None):
    w = wf.ones(2)
    gm = manager(w)
    with gm:
        gm.backward(make(w), dy)


def not_recorded():
    w = wf.ones(2)
    gm, loss = manager(w), (w * w).sum()
    with gm:
        gm.backward(loss)


def overwritten():
    def f(x):
        y = F.exp(x)
        y += 1
        return y.sum()

    wf.grad(f)(wf.ones(2))


def strict(f):
    return lambda: wf.trace(f, strict=True)(wf.ones(3))


def late(f):
    return lambda: f().wait()


class Deep(M.Module):
    def __init__(self):
        self.blocks = [M.ReLU(), M.Sequential(M.Linear(8, 4))]

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class WithoutForward(M.Module):
    pass


class PlainWeight(M.Module):
    def __init__(self):
        self.weight = wf.ones(2)


def saved(folder, **parts):
    wf.checkpoint.save(folder / "run.safetensors", **(parts or {"model": net(), "optimizer": adam()}))
    return folder / "run.safetensors"


def adam():
    return optim.Adam([wf.ones(2)])


def text_file(folder):
    (folder / "notes.txt").write_text("loss 0.5\n" * 10)
    return folder / "notes.txt"


def torch_file(folder):
    (folder / "net.pt").write_bytes(b"PK\x03\x04\x00\x00\x08\x08" + bytes(200))
    return folder / "net.pt"


def cut(path):
    path.write_bytes(path.read_bytes()[:-4])
    return path


def flipped(path):
    whole = bytearray(path.read_bytes())
    whole[-9] ^= 1
    path.write_bytes(bytes(whole))
    return path


def weights(folder):
    wf.save(folder / "weights.safetensors", {"weight": wf.ones(2)})
    return folder / "weights.safetensors"


def other_optimizer(folder):
    path = saved(folder, optimizer=adam())
    wf.checkpoint.load(path, optimizer=optim.SGD([wf.ones(2)], lr=0.1))


def late_momentum():
    w = wf.ones(2)
    sgd = optim.SGD([w], lr=0.1)
    w.grad = wf.ones(2)
    sgd.param_groups[0]["momentum"] = 0.9
    sgd.step()


def given_twice():
    w = wf.ones(2)
    optim.SGD([w, w], lr=0.1)


def executor(**options):
    return (sym.var("x") * 2).simple_bind(x=(2,), **options)


def without_gradient_arrays():
    exe = (sym.var("x") * 2).bind(None, {"x": wf.ones(2)})
    exe.forward(is_train=True)
    exe.backward()


def define(**parts):
    """A new operator class, called with one array."""

    def call():
        cls = type(
            "MessageOp", (Op,), {"__doc__": "A wrong one.", "__annotations__": {}, "public": False, **parts}
        )
        op(cls)()(wf.ones((2, 3)))

    return call


def emitted(result):
    class Wrong(wf.Transformation):
        def emit(self, op, args):
            return result(op, args)

    def call():
        with Wrong():
            F.add(wf.ones(2), wf.ones(2))

    return call


x23, x24, x34, x56 = (wf.ones(shape) for shape in ((2, 3), (2, 4), (3, 4), (5, 6)))
image = wf.ones((1, 3, 8, 8))

CASES = [
    # Shapes.
    Case("matmul", lambda: x34 @ x56, wf.ShapeError, "matmul", r"4 != 5: a is f32\[3,4\]", "inner sizes"),
    Case(
        "matmul_transposed", lambda: x34 @ wf.ones((5, 4)), wf.ShapeError, "matmul", "4 != 5", r"hint: b\.T"
    ),
    Case("add", lambda: x23 + wf.ones(2), wf.ShapeError, "add", r"sizes 3 and 2 in dimension -1.*f32\[2\]"),
    Case(
        "concat",
        lambda: F.concat([x23, wf.ones(3)]),
        wf.ShapeError,
        "concat",
        "2 and 1: x0 is",
        "same number of",
    ),
    Case(
        "concat_sizes",
        lambda: F.concat([x23, x24]),
        wf.ShapeError,
        "concat",
        "sizes 3 and 4 of axis 1 differ",
    ),
    Case(
        "stack",
        lambda: F.stack([x23, x24]),
        wf.ShapeError,
        "stack",
        r"f32\[2,3\].*f32\[2,4\]",
        "arrays of one shape",
    ),
    Case(
        "conv2d",
        lambda: F.conv2d(image, wf.ones((4, 5, 3, 3))),
        wf.ShapeError,
        "conv2d",
        r"x has 3 channels.*x is f32\[1,3,8,8\]",
        "weight expects 5",
    ),
    Case("reshape", lambda: x23.reshape(4, 2), ValueError, "reshape", r"f32\[2,3\]"),
    Case("einsum", lambda: F.einsum("i1->i", x23), ValueError, "einsum", "'i1->i'", "letters"),
    Case(
        "layer_norm",
        lambda: F.layer_norm(x24, 3),
        wf.ShapeError,
        "layer_norm",
        r"\[4\].*\[3\]: x is",
        "normalized_shape",
    ),
    Case(
        "mse_loss",
        lambda: F.mse_loss(x23, x24),
        wf.ShapeError,
        "mse_loss",
        "target is f32",
        "must have the same",
    ),
    Case(
        "labels_of_a_wrong_shape",
        lambda: F.cross_entropy(x34, wf.ones((3, 1), dtype="int64")),
        wf.ShapeError,
        "cross_entropy",
        r"i64\[3,1\]",
        r"must have the shape \(3,\)",
    ),
    Case(
        "labels_of_floats",
        lambda: F.cross_entropy(x34, wf.ones(3)),
        (ValueError, TypeError),
        "cross_entropy",
        r"f32\[3\]",
        "integers",
    ),
    # Names and values of arguments.
    Case(
        "keyword_of_a_function",
        lambda: F.softmax(x23, dim=1),
        TypeError,
        "softmax",
        "dim",
        "there are: x, axis",
    ),
    Case(
        "keyword_of_an_optimizer",
        lambda: optim.Adam([x23], learning_rate=1),
        TypeError,
        "Adam",
        "learning_rate",
        "did you mean lr",
    ),
    Case(
        "keyword_of_random",
        lambda: wf.random.normal(size=3),
        TypeError,
        "normal",
        "size",
        "did you mean shape",
    ),
    Case(
        "keyword_of_tensor",
        lambda: wf.tensor([1.0], requires_grad=True),
        TypeError,
        "tensor",
        "requires_grad",
        "attach the tensor to a weft.GradManager",
    ),
    Case(
        "keyword_of_a_loader",
        lambda: data.DataLoader([1], workers=2),
        TypeError,
        "DataLoader",
        "workers",
        "did you mean num_workers",
    ),
    Case(
        "keyword_of_a_layer",
        lambda: M.Linear(2, 3, use_bias=False),
        TypeError,
        "Linear",
        "use_bias",
        "there are",
    ),
    Case("shape_in_parts", lambda: wf.zeros(2, 3), TypeError, "zeros", "", r"zeros\(\(2, 3\)\)"),
    Case("dropout", lambda: F.dropout(x23, 1.5), ValueError, "dropout", "got 1.5", r"in 0\.0\.\.1\.0"),
    Case(
        "learning_rate", lambda: optim.SGD([x23], lr=float("nan")), ValueError, "SGD", "got nan", "at least 0"
    ),
    Case("betas", lambda: optim.Adam([x23], betas=(0.9, 1.5)), ValueError, "Adam", "1.5", "at most 1.0"),
    Case("momentum_later", late_momentum, ValueError, "SGD", "momentum=0.9", "make a new optimizer"),
    Case(
        "no_parameters",
        lambda: optim.SGD(PlainWeight().parameters(), lr=1),
        ValueError,
        "SGD",
        "no parameters",
        r"hint:.*module\.Parameter",
    ),
    Case("parameter_twice", given_twice, ValueError, "SGD", r"f32\[2\].*twice"),
    Case(
        "step_without_gradients",
        lambda: adam().step(),
        ValueError,
        "Adam",
        "no parameter has a gradient",
        "hint",
    ),
    Case(
        "axis",
        lambda: F.softmax(x23, axis=2),
        IndexError,
        "softmax",
        r"axis 2.*x is f32\[2,3\]",
        "for 2 dimensions",
    ),
    Case(
        "dtype",
        lambda: F.softmax(x23.astype("int64")),
        wf.DTypeError,
        "softmax",
        r"i64\[2,3\]",
        r"hint: x\.astype\('float32'\)",
    ),
    Case("dtype_name", lambda: wf.zeros(2, dtype="flaot32"), wf.DTypeError, "dtype", "'flaot32'", "accepted"),
    Case(
        "pad_of_numpy",
        lambda: F.pad(x23, (1, 0, 1)),
        ValueError,
        "pad",
        r"\(1, 0, 1\)",
        "from the last one on",
    ),
    Case("unknown_function", lambda: wf.softmx, AttributeError, "weft", "'softmx'", "did you mean softmax"),
    Case(
        "name_of_another_library",
        lambda: x23.backward(),
        AttributeError,
        "Tensor",
        "'backward'",
        r"gm\.backward",
    ),
    # Devices and memory.
    Case(
        "devices",
        lambda: wf.ones(3) + wf.ones(3).to_device("cpu:1"),
        wf.DeviceError,
        "add",
        "cpu:0.*cpu:1",
        "to_device",
    ),
    Case(
        "cuda",
        lambda: wf.ones(3, device="cuda"),
        wf.DeviceError,
        "device",
        "gpu:0 is not available",
        "no driver",
    ),
    Case("memory", lambda: wf.empty((2**40,)), MemoryError, "cpu:0", "TiB.*in use", "limit"),
    # Late errors.
    Case(
        "label_out_of_range",
        late(lambda: F.cross_entropy(x34, wf.tensor([1, 2, 10]))),
        IndexError,
        "cross_entropy",
        r"target 10.*test_messages\.py:\d+",
        "4 classes",
    ),
    Case(
        "index_out_of_range",
        late(lambda: F.take(x34, wf.tensor([7]), axis=0)),
        IndexError,
        "take",
        r"index 7.*test_messages\.py:\d+",
        "size 3",
    ),
    # Gradients.
    Case("backward_twice", twice, RuntimeError, "backward", "called once", "give a list"),
    Case("backward_outside", outside, RuntimeError, "backward", "does not record", "inside of its with"),
    Case("not_recorded", not_recorded, ValueError, "backward", r"y is f32\[\]", "hint: compute it inside"),
    Case(
        "integer_loss",
        lambda: backward_of(lambda w: w.astype("int64").sum()),
        ValueError,
        "backward",
        r"i64\[\]",
        "hint",
    ),
    Case(
        "backward_of_a_float",
        lambda: backward_of(lambda w: 3.0),
        TypeError,
        "backward",
        "got float",
        "must be a Tensor",
    ),
    Case(
        "dy_of_a_wrong_shape",
        lambda: backward_of(lambda w: w * 2, wf.ones(3)),
        wf.ShapeError,
        "backward",
        r"\(2,\).*\(3,\)",
    ),
    Case(
        "overwritten",
        overwritten,
        ValueError,
        "exp",
        r"output 0, f32\[2\].*used at .*overwritten at",
        r"hint.*copy\(\)",
    ),
    Case(
        "grad_of_integers",
        lambda: wf.grad(lambda x: x.sum())(wf.tensor([1])),
        TypeError,
        "grad",
        r"i64\[1\]",
        "floating-point",
    ),
    Case(
        "grad_of_a_vector",
        lambda: wf.grad(lambda x: x * 2)(wf.ones(2)),
        wf.ShapeError,
        "grad",
        r"f32\[2\]|\(2,\)",
        "one number",
    ),
    Case(
        "argnums",
        lambda: wf.grad(lambda x: x.sum(), argnums=1)(wf.ones(2)),
        (ValueError, IndexError, TypeError),
        "grad",
        "1",
    ),
    # Traces.
    Case(
        "branch",
        strict(lambda x: x if x.sum() > 0 else -x),
        wf.GraphError,
        "<lambda>",
        r"bool\[\].*test_messages\.py:\d+",
        "hint: use where",
    ),
    Case("mask", strict(lambda x: x[x > 0]), wf.GraphError, "<lambda>", "values of", "hint: use where"),
    Case(
        "number_of_a_dynamic_axis",
        lambda: wf.trace(lambda x: x * float(x.shape[0]), dynamic={"x": 0})(wf.ones(5)),
        wf.GraphError,
        "<lambda>",
        r"number behind a size was needed: d0.*test_messages\.py:\d+",
        "dynamic axes",
    ),
    Case(
        "unknown_dynamic_argument",
        lambda: wf.trace(lambda x: x, dynamic={"y": 0}),
        TypeError,
        "trace",
        "'y'",
        "it has x",
    ),
    Case(
        "shapes_in_a_trace",
        strict(lambda x: x @ wf.ones((2, 2))),
        wf.ShapeError,
        "matmul",
        "3 != 2",
        "inner sizes",
    ),
    Case(
        "late_in_a_trace",
        late(lambda: wf.trace(lambda x: F.take(x, wf.tensor([7])))(wf.ones(3))),
        IndexError,
        "<lambda>",
        r"index 7.*test_messages\.py:\d+",
        "size 3",
    ),
    # Modules.
    Case(
        "deep",
        lambda: Deep()(x24),
        wf.ShapeError,
        "linear",
        r"x has 4 in_features, weight expects 8.*in Deep\.blocks\.1\.0: Linear\(in_features=8",
        "weight expects",
    ),
    Case(
        "no_forward",
        lambda: WithoutForward()(x23),
        NotImplementedError,
        "WithoutForward",
        r"no forward",
        "define",
    ),
    Case(
        "too_many_arguments",
        lambda: net()(x24, x24),
        TypeError,
        "Linear.forward",
        "3 were given",
        r"called as Linear\.forward\(x",
    ),
    Case(
        "heads",
        lambda: M.MultiheadAttention(5, 2),
        ValueError,
        "MultiheadAttention",
        "embed_dim=5",
        "divisible",
    ),
    Case(
        "rank",
        lambda: M.BatchNorm2d(3)(x23),
        wf.ShapeError,
        "BatchNorm2d",
        r"f32\[2,3\]",
        "needs 4 dimensions",
    ),
    Case("groups", lambda: M.Conv2d(3, 4, 3, groups=2), ValueError, "Conv2d", "3 and 4.*2", "equal groups"),
    Case(
        "lstm_without_c0",
        lambda: M.LSTM(4, 8)(wf.ones((5, 2, 4)), wf.ones((1, 2, 8))),
        TypeError,
        "LSTM",
        r"got 1 arrays: f32\[1,2,8\]",
        r"pair \(h0, c0\)",
    ),
    Case(
        "gru_with_c0",
        lambda: M.GRU(4, 8)(wf.ones((5, 2, 4)), (wf.ones((1, 2, 8)),) * 2),
        TypeError,
        "GRU",
        "got 2 arrays",
        "one array h0",
    ),
    Case(
        "lstm_features",
        lambda: M.LSTM(4, 8)(wf.ones((5, 2, 3))),
        wf.ShapeError,
        "LSTM",
        r"3 features.*f32\[5,2,3\]",
        "input_size is 4",
    ),
    Case(
        "parameter_of_integers",
        lambda: M.Parameter(wf.tensor([1])),
        wf.DTypeError,
        "Parameter",
        "int64",
        "register_buffer",
    ),
    Case(
        "state_dict",
        lambda: net().load_state_dict({"weight": wf.ones(3), "b": x23}),
        ValueError,
        "load_state_dict",
        r"missing: bias.*unexpected: b.*f32\[3\]",
        r"here f32\[2,4\]",
    ),
    # Files.
    Case(
        "missing_file",
        lambda folder: wf.load(folder / "nothing"),
        FileNotFoundError,
        "No such file",
        "nothing",
    ),
    Case(
        "cut_file",
        lambda folder: wf.load(cut(weights(folder))),
        wf.FileFormatError,
        "load",
        "'weight' ends at 8",
        "of 4 bytes",
    ),
    Case(
        "file_of_torch",
        lambda folder: wf.load(torch_file(folder)),
        wf.FileFormatError,
        "load",
        "begins with b'PK",
        r"torch\.save",
    ),
    Case(
        "text_file",
        lambda folder: wf.load(text_file(folder)),
        wf.FileFormatError,
        "load",
        "begins with b'loss",
        "not a safetensors file",
    ),
    Case(
        "damaged_checkpoint",
        lambda folder: wf.checkpoint.load(flipped(saved(folder, model=net())), model=net()),
        wf.FileFormatError,
        "checkpoint",
        r"tensor 'parts\.model",
        "checksum",
    ),
    Case(
        "weights_as_checkpoint",
        lambda folder: wf.checkpoint.load(weights(folder), model=net()),
        wf.FileFormatError,
        "checkpoint",
        "not a checkpoint of version 1",
        r"hint.*weft\.load",
    ),
    Case(
        "checkpoint_of_another_optimizer",
        other_optimizer,
        ValueError,
        "load_state_dict: SGD",
        "'Adam'",
        "nothing was loaded",
    ),
    Case(
        "parts",
        lambda folder: wf.checkpoint.load(saved(folder), model=net()),
        ValueError,
        "checkpoint",
        "model, optimizer; given were model",
        "strict=False",
    ),
    Case(
        "part_without_state",
        lambda folder: wf.checkpoint.save(folder / "c", step=3),
        TypeError,
        "checkpoint",
        "step has no state_dict.*int",
        "values",
    ),
    # Data.
    Case(
        "sizes_of_arrays",
        lambda: data.ArrayDataset(np.ones((5, 2)), np.ones(4)),
        ValueError,
        "ArrayDataset",
        r"\(5, 2\), \(4,\)",
        "same first size",
    ),
    Case(
        "batch_size",
        lambda: data.DataLoader([1], batch_size=0),
        ValueError,
        "BatchSampler",
        "0",
        "at least 1",
    ),
    # Symbols.
    Case(
        "contradiction",
        lambda: F.linear(sym.var("x"), sym.var("w", shape=(5, 3)), name="fc").infer_shape(x=(2, 4)),
        wf.ShapeError,
        "linear",
        r"x has 4 in_features, weight expects 3.*made at .*test_messages\.py",
        r"weight\[out_features,in_features\]",
    ),
    Case(
        "missing_shape",
        lambda: F.relu(sym.var("x")).simple_bind(),
        wf.GraphError,
        "simple_bind",
        "'x'",
        "pass x=",
    ),
    Case(
        "unknown_argument",
        lambda: executor().forward(data=x23),
        wf.GraphError,
        "forward",
        "'data'",
        "there are: x",
    ),
    Case(
        "backward_first",
        lambda: executor().backward(),
        RuntimeError,
        "backward",
        r"forward\(is_train=True\)",
        "must come first",
    ),
    Case("no_args_grad", without_gradient_arrays, wf.GraphError, "backward", "arguments are x", "args_grad"),
    # Operators and transformations of the user's own.
    Case("no_infer", define(), TypeError, "MessageOp", "no infer", r"define infer\(self, x\)"),
    Case(
        "infer_of_a_shape",
        define(infer=lambda self, x: (2, 3), decompose=lambda self, x: x),
        TypeError,
        "message_op",
        r"got \(2, 3\)",
        r"x\.like",
    ),
    Case(
        "wrong_infer",
        define(infer=lambda self, x: x.like(), decompose=lambda self, x: F.sum(x, axis=0)),
        wf.ShapeError,
        "message_op",
        r"infer says f32\[2,3\].*decompose computes f32\[3\]",
    ),
    Case(
        "wrong_dtype",
        define(infer=lambda self, x: x.like(), decompose=lambda self, x: F.argsort(x)),
        wf.DTypeError,
        "message_op",
        r"infer says f32.*decompose computes i64",
    ),
    Case(
        "numpy_in_decompose",
        define(infer=lambda self, x: x.like(), decompose=lambda self, x: np.sort(x)),
        TypeError,
        "MessageOp.decompose",
        "elements of a value",
        "hint: use weft's functions",
    ),
    Case(
        "emit_none",
        emitted(lambda op, args: None),
        TypeError,
        "Wrong.emit",
        r"None for Add\(\)",
        "must return",
    ),
    Case("emit_int", emitted(lambda op, args: 3), TypeError, "Wrong.emit", r"int for Add\(\)", "must return"),
    Case(
        "op_of_a_tuple", emitted(lambda op, args: op(args)), TypeError, "add", "got a tuple", r"op\(\*args\)"
    ),
    Case(
        "shape_for_mean",
        lambda: wf.random.normal((2, 3)),
        TypeError,
        "normal",
        r"mean must be a number, got \(2, 3\)",
        r"hint: normal\(shape=\(2, 3\)\)",
    ),
    Case(
        "trace_of_a_matrix",
        lambda: wf.trace(wf.ones((2, 2))),
        TypeError,
        "trace",
        "got Tensor",
        r"x\.diagonal\(\)\.sum\(\)",
    ),
    Case(
        "labels_in_a_column",
        lambda: F.cross_entropy(wf.ones((4, 3)), wf.zeros((4, 1), dtype="int64")),
        wf.ShapeError,
        "cross_entropy",
        r"target is i64\[4,1\]",
        r"target\.squeeze\(axis=-1\)",
    ),
    Case("generator_used_up", used_up, ValueError, "SGD", "no parameters", r"list\(net\.parameters\(\)\)"),
]


def message(error):
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_message(case, tmp_path):
    takes_folder = case.call.__code__.co_argcount > 0
    with pytest.raises(case.error) as caught:
        case.call(tmp_path) if takes_folder else case.call()
    text = message(caught.value)
    for fact in (case.operation, case.given, case.advice or ""):
        assert re.search(fact, text, re.DOTALL), f"{fact!r} is not in:\n{text}"
    assert not INTERNALS.search(text), text
    files = [entry.filename for entry in traceback.extract_tb(caught.value.__traceback__)]
    assert __file__ in files


def test_four_of_five_messages_say_what_is_accepted_or_what_to_do():
    assert len({case.name for case in CASES}) == len(CASES)
    assert sum(case.advice is not None for case in CASES) >= 0.8 * len(CASES)


def test_float64_in_a_network_of_float32_is_hinted_at_once(monkeypatch):
    import threading

    from weft.module import linear

    monkeypatch.setattr(linear, "_hinted", threading.Event())
    with pytest.warns(
        UserWarning, match=r"Linear: x is f64\[3,4\]@cpu:0 .* x\.astype\('float32'\)"
    ) as caught:
        net()(wf.ones((3, 4), dtype="float64"))
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net()(np.ones((3, 4)))
        monkeypatch.setattr(linear, "_hinted", threading.Event())
        net()(x24)
        net().astype("float64")(wf.ones((3, 4), dtype="float64"))


def test_a_state_of_torch_loads_as_it_is():
    norm = M.Sequential(M.BatchNorm2d(3))
    state = {**norm.state_dict(), "0.num_batches_tracked": wf.asarray(5)}
    assert norm.load_state_dict(state) == ((), ())
    with pytest.raises(ValueError, match=r"unexpected: num_batches_tracked"):
        norm.load_state_dict({**norm.state_dict(), "num_batches_tracked": wf.asarray(5)})
