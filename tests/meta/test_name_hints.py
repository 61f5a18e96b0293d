"""Names of other libraries: the answer to each says what weft has, and that is there."""

import builtins
import inspect
import re
import traceback

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft.base import errors as wf_errors
from weft.base import name_hints

OWNERS = {
    "weft": wf,
    "weft.functional": F,
    "weft.module": M,
    "weft.optimizer": optim,
    "Tensor": wf.ones(2),
    "Module": M.Linear(2, 2),
    "Optimizer": optim.SGD([wf.ones(2)], lr=0.1),
    "weft.random": wf.random,
    "weft.data": wf.data,
    "weft.metrics": wf.metrics,
    "weft.engine": wf.engine,
    "weft.amp": wf.amp,
    "weft.tools": wf.tools,
    "weft.symbol": wf.symbol,
    "Symbol": wf.symbol.var("x"),
    "Function": wf.Function(),
}
NAMES = [
    (owner, name, advice)
    for owner, tables in name_hints._TABLES.items()
    for table in tables
    for name, advice in table.items()
    if not (owner == "Tensor" and hasattr(OWNERS[owner], name))
]


@pytest.mark.parametrize(("owner", "name", "advice"), NAMES)
def test_what_is_advised_is_there(owner, name, advice):
    with pytest.raises(AttributeError, match=re.escape(f"{owner} has no {name!r}; ")):
        getattr(OWNERS[owner], name)
    assert name not in dir(OWNERS[owner])
    for path in re.findall(r"weft((?:\.[A-Za-z_]\w*)+)", advice):
        found = wf
        for part in path[1:].split("."):
            found = getattr(found, part)
    for method in re.findall(r"\bx\.(\w+)", advice):
        assert hasattr(wf.ones((2, 2)), method)
    for method in re.findall(r"(?:use|or) ([a-z_]+)\(", advice):
        places = [OWNERS[each] for each in (owner, "Module", "Optimizer", "weft.optimizer")]
        assert any(hasattr(each, method) for each in (*places, builtins)), method
    for layer in re.findall(r"\buse ([A-Z]\w*)", advice):
        assert hasattr(M, layer) or hasattr(OWNERS[owner], layer), layer


def test_names_of_the_users_own_come_first():
    class Net(M.Module):
        def to(self, device):
            return device

        def __init__(self):
            super().__init__()
            self.cuda = 3

    net = Net()
    assert (net.to("cpu"), net.cuda) == ("cpu", 3)
    assert "to" in dir(net)
    assert "zero_grad" not in dir(net)


def test_names_nearby():
    with pytest.raises(AttributeError, match="weft has no 'softmx'; did you mean softmax"):
        wf.softmx  # noqa: B018
    with pytest.raises(AttributeError, match=r"weft\.module has no 'Linea'; did you mean Linear"):
        M.Linea  # noqa: B018
    with pytest.raises(AttributeError, match=r"weft has no 'xyzzy'$"):
        wf.xyzzy  # noqa: B018
    assert {"exp", "cumsum", "conv2d"} <= set(dir(wf))
    assert not {"TYPE_CHECKING", "annotations", "importlib", "_LAZY"} & set(dir(wf))


def test_aliases():
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(wf.cumsum(x, axis=1).numpy(), np.cumsum(x, 1))
    assert wf.concatenate is wf.concat
    assert F.ravel is F.flatten
    assert wf.tensor(x).tolist() == x.tolist()


def test_lists_are_arrays():
    np.testing.assert_array_equal(F.relu([[1.0, -1.0], [0.5, 2]]).numpy(), [[1, 0], [0.5, 2]])
    np.testing.assert_array_equal(wf.concat([[1, 2], wf.tensor([3])]).tolist(), [1, 2, 3])
    linear = M.Linear(2, 1)
    np.testing.assert_array_equal(linear([[1.0, 2.0]]).numpy(), linear(wf.tensor([[1.0, 2.0]])).numpy())
    traced = wf.trace(lambda s: wf.exp([s, 2 * s]))
    for s in (0.5, 1.0, 2.0):
        np.testing.assert_allclose(traced(s).numpy(), np.exp([s, 2 * s]), rtol=1e-6)
    with pytest.raises(wf_errors.DTypeError, match="expected numbers"):
        F.exp([["a"]])


def test_arguments_of_other_libraries():
    with pytest.raises(TypeError, match=re.escape("zeros() takes the shape as one argument: zeros((2, 3))")):
        wf.zeros(2, 3)
    with pytest.raises(TypeError, match=r"attach the tensor to a weft\.GradManager"):
        wf.ones(2, requires_grad=True)


class Inner(M.Module):
    def __init__(self):
        super().__init__()
        self.fc = M.Linear(8, 4)

    def forward(self, x):
        return self.fc(x)


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.blocks = [M.ReLU(), M.Sequential(Inner())]

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("transform", [lambda net: net, wf.trace])
def test_errors_in_modules_name_the_path_and_show_the_users_lines(transform, monkeypatch):
    monkeypatch.delenv("WEFT_DEBUG", raising=False)
    with pytest.raises(wf_errors.ShapeError, match="x has 5 in_features, weight expects 8") as caught:
        transform(Net())(wf.ones((2, 5)))
    assert caught.value.__notes__ == ["in Net.blocks.1.0.fc: Linear(in_features=8, out_features=4)"]
    inside = [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)]
    assert inside[-2:] == ["forward", "forward"]
    assert "linear.py" not in str(
        [entry.filename for entry in traceback.extract_tb(caught.value.__traceback__)]
    )
    monkeypatch.setenv("WEFT_DEBUG", "1")
    with pytest.raises(wf_errors.ShapeError) as caught:
        Net()(wf.ones((2, 5)))
    assert "linear.py" in str(traceback.extract_tb(caught.value.__traceback__))


def test_errors_of_keywords_and_files(tmp_path):
    with pytest.raises(TypeError, match=r"Linear: no argument use_bias; .*; did you mean bias"):
        M.Linear(2, 3, use_bias=False)
    with pytest.raises(TypeError, match="Adam: no argument learning_rate; there are: params, lr, "):
        optim.Adam([wf.ones(2)], learning_rate=1)
    with pytest.raises(TypeError, match="did you mean num_workers"):
        wf.data.DataLoader([1], workers=2)
    with pytest.raises(TypeError, match="StepLR: no argument step; "):
        optim.lr_scheduler.StepLR(optim.SGD([wf.ones(2)], lr=1), step=3)
    assert str(inspect.signature(M.Linear)).startswith("(in_features")
    (tmp_path / "a.pt").write_bytes(b"PK\x03\x04" + bytes(range(100)))
    with pytest.raises(wf.FileFormatError, match=r"begins with b'PK.*torch\.save.* not a ZIP archive"):
        wf.load(tmp_path / "a.pt")


def test_a_checkpoints_model_alone(tmp_path):
    net, path = M.Linear(3, 2), tmp_path / "run.safetensors"
    wf.checkpoint.save(path, model=net, optimizer=optim.Adam(net.parameters()))
    assert wf.checkpoint.parts(path) == ["model", "optimizer"]
    other = M.Linear(3, 2)
    with pytest.raises(ValueError, match="given were model; strict=False loads some of them"):
        wf.checkpoint.load(path, model=other)
    wf.checkpoint.load(path, model=other, strict=False)
    np.testing.assert_array_equal(other.weight.numpy(), net.weight.numpy())
    with pytest.raises(ValueError, match="has the parts model, optimizer; given were net"):
        wf.checkpoint.load(path, net=other, strict=False)
    with pytest.raises(TypeError, match="model has no state_dict"):
        wf.checkpoint.save(path, model=3)
    assert wf.checkpoint.parts(path) == ["model", "optimizer"]
