"""What users of NumPy, PyTorch and MXNet type before they have read anything."""

import importlib
import os
import pkgutil
import re
import subprocess
import sys
import types

import numpy as np
import pytest

import weft as wf
from weft.base import name_hints

# Each in a process that has only `import weft as wf`: the answer must not depend on what else is imported.
FIRST_LINES = [
    "wf.ones(2).grad is None",
    "wf.ones(2).requires_grad is False",
    "wf.ones(2).detach().shape == (2,)",
    "wf.symbol.var('x').detach().name == 'stop_gradient0'",
    "(wf.symbol.var('x') * 2).eval(x=wf.ones(1))[0].tolist() == [2.0]",
    "wf.ones(2)[wf.ones(2) > 0].tolist() == [1.0, 1.0]",
    "(np.ones(2) + wf.ones(2)).tolist() == [2.0, 2.0]",
    "np.sin(wf.zeros(1)).tolist() == [0.0]",
    "np.asarray(wf.ones(1)).tolist() == [1.0]",
    "pickle.loads(pickle.dumps(wf.ones(1))).tolist() == [1.0]",
    "copy.deepcopy(wf.ones(1)).tolist() == [1.0]",
    "wf.from_dlpack(np.ones(1)).tolist() == [1.0]",
    "wf.ones(2).to_device('cpu:1').device.index == 1",
    "f'{wf.ones(()):.2f}' == '1.00'",
    "sum(wf.ones(3)).item() == 3.0",
    "wf.grad(lambda x: x.sum())(wf.ones(1)).tolist() == [1.0]",
    "wf.vmap(lambda x: x.sum())(wf.ones((1, 2))).tolist() == [2.0]",
    "wf.trace(lambda x: x * 2)(wf.ones(1)).tolist() == [2.0]",
    "wf.random.normal(shape=2).shape == (2,)",
    "wf.lazy().__enter__() is None",
    "wf.GradManager().attach(wf.ones(1)).backward is not None",
    "wf.module.Linear(2, 1)([1.0, 2.0]).shape == (1,)",
    "next(iter(wf.data.DataLoader([1, 2], batch_size=2))).tolist() == [1, 2]",
    "wf.engine.default_engine().wait_for_var(wf.ones(1)) is None",
    "wf.metrics.Accuracy().update([0, 1], [0, 1]) is None",
]

COLD = """
import os, sys
import weft as wf
import copy, pickle
import numpy as np
sys.stdout.flush()
for line in sys.stdin.read().splitlines():
    child = os.fork()
    if child == 0:
        try:
            right = eval(line)
        except BaseException as error:
            print(line, "->", repr(error), flush=True)
        else:
            if right is not True:
                print(line, "->", right, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes without anything imported are forked")
def test_first_lines():
    run = subprocess.run(
        [sys.executable, "-c", COLD], input="\n".join(FIRST_LINES), capture_output=True, text=True
    )
    assert (run.stdout, run.returncode) == ("", 0), run.stderr


COMMANDS = ["weft.info", "weft.info --env", "weft.tools", "weft.launch --help", "weft.tools.profiler --help"]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_pages(command):
    run = subprocess.run([sys.executable, "-m", *command.split()], capture_output=True, text=True)
    assert (run.stderr, run.returncode) == ("", 0)
    assert len(run.stdout.splitlines()) > 5


@pytest.mark.parametrize("name", ["weft", *(f"weft.{each}" for each in wf._SUBPACKAGES)])
def test_every_module_answers_for_names_that_it_does_not_have(name):
    module = importlib.import_module(name)
    with pytest.raises(AttributeError, match=re.escape(f"{name} has no 'xyzzy'")):
        module.xyzzy  # noqa: B018
    assert not hasattr(module, "__xyzzy__")
    near = next(each for each in sorted(dir(module)) if len(each) > 5 and each[0] != "_")
    with pytest.raises(AttributeError) as caught:
        getattr(module, near + "q")
    public = getattr(module, "__all__", ())
    if near in public and name != "weft.operator":
        assert "did you mean" in str(caught.value)


def test_hints_name_modules_that_answer_by_them():
    """A table of a module that does not ask for it would never be seen."""
    for owner in name_hints._TABLES:
        if owner.startswith("weft"):
            module = importlib.import_module(owner)
            assert isinstance(vars(module)["__getattr__"], types.FunctionType)


def test_public_modules_inside_of_packages_answer_too():
    for path in ("data.transforms", "data.recordio", "data.images", "data.text", "module.init"):
        with pytest.raises(AttributeError, match=f"weft.{path} has no 'xyzzy'"):
            importlib.import_module(f"weft.{path}").xyzzy  # noqa: B018
    with pytest.raises(AttributeError, match=r"lr_scheduler has no 'StepLr'; did you mean StepLR\?"):
        wf.optimizer.lr_scheduler.StepLr  # noqa: B018
    for package in pkgutil.iter_modules(importlib.import_module("weft.data").__path__):
        importlib.import_module(f"weft.data.{package.name}")


MESSAGES = [
    (lambda: wf.grad(3), TypeError, "grad: takes a function, got int; backward of a result is GradManager's"),
    (
        lambda: wf.grad(lambda x: x)(["1.0"]),
        TypeError,
        "grad: argument 0 must be an array or a float, or a dict, list or tuple of them, got str in a list",
    ),
    (lambda: wf.arange("a"), TypeError, "arange: stop must be a number, got 'a'"),
    (lambda: wf.arange(0, None, [1]), TypeError, "arange: step must be a number, got [1]"),
    (lambda: wf.random.seed("a"), TypeError, "seed: must be an int, got 'a'"),
    (
        lambda: wf.save({"x": wf.ones(1)}, "x"),
        TypeError,
        "not str; the path comes first: save(path, tensors)",
    ),
    (lambda: wf.save("x", wf.ones(1)), TypeError, "not Tensor; a single tensor is saved by save(path, [x])"),
    (lambda: wf.save("x", wf.module.ReLU()), TypeError, "not ReLU; save(path, x.state_dict()) saves its"),
    (
        lambda: wf.module.Sequential([wf.module.ReLU()]),
        TypeError,
        "Sequential: takes modules, got list as number 0; a list is given as Sequential(*layers)",
    ),
    (
        lambda: wf.module.Sequential(wf.module.ReLU(), wf.relu),
        TypeError,
        "got builtin_function_or_method as number 1; functions such as relu are modules, too: ReLU()",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), MESSAGES)
def test_messages(call, kind, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=re.escape(text)):
        call()


def test_metrics_take_lists_and_arrays():
    accuracy = wf.metrics.Accuracy()
    accuracy.update(np.array([[0.2, 0.8], [0.9, 0.1]]), [1, 1])
    assert accuracy.compute() == 0.5
    top = wf.metrics.TopKAccuracy(1)
    top.update([[0.2, 0.8]], np.array([1]))
    assert top.compute() == 1.0
    matrix = wf.metrics.ConfusionMatrix(2)
    matrix.update([0, 1], [1, 1])
    assert matrix.compute().tolist() == [[0, 0], [1, 1]]
    error, mean = wf.metrics.MeanSquaredError(), wf.metrics.Mean()
    error.update([1.0, 2.0], np.array([1.0, 4.0]))
    mean.update([1.0, 3.0], 2)
    mean.update(np.float32(5))
    assert (error.compute(), mean.compute()) == (2.0, 13 / 5)


def test_detached_symbols_are_constants_for_gradients():
    x = wf.symbol.var("x")
    y = wf.symbol.from_json((x * x.detach()).to_json())
    executor = y.simple_bind(x=(2,))
    executor.arg_dict["x"][...] = 3
    executor.forward(is_train=True)
    executor.backward()
    assert executor.grad_dict["x"].tolist() == [3.0, 3.0]
    detached = x.detach() + wf.symbol.var("z")
    assert detached.infer_shape(x=(2,))[1] == [(2,)]
    assert x.detach().infer_type(x="float64") == ([wf.float64], [wf.float64], [])
    assert wf.symbol.var("i", dtype="int64").detach().eval(i=wf.tensor([1, 2]))[0].tolist() == [1, 2]
