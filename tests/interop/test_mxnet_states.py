"""States of MXNet's optimizers: read from pickles, given to weft's, which go on as MXNet's would."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.interop import writers

import weft as wf
from weft.interop import mxnet

MXNET = os.environ.get("WEFT_TEST_MXNET")
STRIPES = Path(__file__).resolve().parents[1] / "examples" / "stripes" / "stripes-0000.states"


def array(x):
    """An NDArray as its pickles have it."""
    data = bytearray(writers.mxnet_params({"x": x})[24:][: -8 - 8 - 1])
    return writers.Call(writers.Name("mxnet.ndarray.ndarray", "NDArray"), None, state={"handle": data})


def object_of(module, name, **attributes):
    return writers.Call(writers.Name(module, name), state=attributes)


def states_of(tmp_path, obj, protocol=4):
    (tmp_path / "x.states").write_bytes(writers.pickled(obj, protocol))
    return mxnet.load_states(tmp_path / "x.states")


def adam(count):
    schedule = object_of("mxnet.lr_scheduler", "FactorScheduler", step=10)
    return object_of(
        "mxnet.optimizer.optimizer", "Adam", lr=0.1, lr_scheduler=schedule, _index_update_count={0: count}
    )


@pytest.mark.parametrize("protocol", [2, 4])
def test_arrays_and_attributes_are_read(tmp_path, protocol):
    m, v = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    states = states_of(tmp_path, ({0: (array(m), array(v)), 1: None}, adam(7)), protocol)
    assert [x.tolist() for x in states.arrays[0]] == [m.tolist(), v.tolist()]
    assert states.arrays[1] is None
    assert states.optimizer["class"] == "Adam"
    assert states.optimizer["lr_scheduler"] == {"class": "FactorScheduler", "step": 10}
    assert states.optimizer["_index_update_count"] == {0: 7}


def test_files_of_modules():
    states = mxnet.load_states(STRIPES)
    assert states.optimizer is None
    assert [x.shape for x in states.arrays.values()][:4] == [(8, 1, 3, 3), (8,), (8,), (16, 8, 3, 3)]


def test_adam_goes_on(tmp_path):
    w, m, v = np.float32([1, -1]), np.float32([0.5, 0.25]), np.float32([0.5, 1])
    states = states_of(tmp_path, ({0: (array(m), array(v))}, adam(3)))
    p, g = wf.tensor(w), np.float32([2, 1])
    optimizer = wf.optimizer.Adam([p], lr=0.1)
    mxnet.restore(optimizer, states, [p])
    p.grad = wf.tensor(g)
    optimizer.step()
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    rate = 0.1 * np.sqrt(1 - 0.999**4) / (1 - 0.9**4)
    np.testing.assert_allclose(p.numpy(), w - rate * m / (np.sqrt(v) + 1e-8), rtol=1e-6)


def test_by_names_and_refusals(tmp_path):
    p, q = wf.zeros(2), wf.zeros(3)
    states = states_of(tmp_path, {"p": array(np.ones(2, np.float32)), "q": None})
    optimizer = wf.optimizer.SGD([p], lr=0.5, momentum=0.9)
    mxnet.restore(optimizer, states, {"p": p})
    assert optimizer.state_dict()["state"]["0.momentum"].tolist() == [-2, -2]
    with pytest.raises(KeyError, match="parameter 0 of the optimizer has no state"):
        mxnet.restore(optimizer, states, [p])
    with pytest.raises(ValueError, match=r"has arrays of \[\(2,\)\], SGD needs \[\(3,\)\]"):
        mxnet.restore(wf.optimizer.SGD([q], lr=0.5, momentum=0.9), states, {"p": q})
    with pytest.raises(ValueError, match=r"has arrays of \[\], SGD needs \[\(3,\)\]"):
        mxnet.restore(wf.optimizer.SGD([q], lr=0.5, momentum=0.9), states, {"q": q})
    mxnet.restore(wf.optimizer.SGD([q], lr=0.5), states, {"q": q})
    with pytest.raises(NotImplementedError, match="states of Lion"):
        mxnet.restore(wf.optimizer.Lion([p]), states, {"p": p})
    with pytest.raises(ValueError, match="updates= says how many"):
        mxnet.restore(wf.optimizer.Adam([p]), states, {"p": p})
    with pytest.raises(ValueError, match="has states of 'Adam', Adamax takes those of Adamax"):
        mxnet.restore(wf.optimizer.Adamax([p]), states_of(tmp_path, ({0: None}, adam(1))), [p])
    nested = states_of(tmp_path, {0: (array(np.ones(2, np.float32)), (None,))})
    with pytest.raises(NotImplementedError, match="multi_precision"):
        mxnet.restore(optimizer, nested, [p])


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ([1, 2], "no states by parameter"),
        ({0: object_of("mxnet.optimizer.optimizer", "SGD", lr=1)}, "in the place of an array"),
        (({}, object_of("mine", "Optimizer")), r"refers to 'mine\.Optimizer'"),
        (
            {0: writers.Call(writers.Name("mxnet.ndarray.ndarray", "NDArray"), None)},
            "in the place of an array",
        ),
        (
            ({}, object_of("mxnet.optimizer.optimizer", "SGD", sym=array(np.ones(1)))),
            "an attribute is '_Array'",
        ),
    ],
)
def test_anything_else_is_an_error(tmp_path, obj, message):
    with pytest.raises(wf.FileFormatError, match=message):
        states_of(tmp_path, obj)


def test_attributes_of_any_depth_are_not_followed(tmp_path):
    attribute = 1
    for _ in range(9):
        attribute = object_of("mxnet.optimizer.optimizer", "SGD", inner=attribute)
    with pytest.raises(wf.FileFormatError, match="more than 8 deep"):
        states_of(tmp_path, ({}, attribute))


PROGRAM = """
import sys, json, numpy as np, mxnet as mx
from mxnet import gluon
name, options = json.loads(sys.argv[1]), json.loads(sys.argv[2])
p = gluon.Parameter("w", shape=(4,)); p.initialize(mx.init.Zero())
trainer = gluon.Trainer([p], name, options)
def step(k):
    with mx.autograd.record():
        loss = ((p.data() - mx.nd.array([1, 2, 3, 4])) ** 2 * (k + 1)).sum()
    loss.backward()
    trainer.step(1)
for k in range(3):
    step(k)
trainer.save_states(sys.argv[3])
before = p.data().asnumpy().tolist()
for k in range(3, 6):
    step(k)
print(json.dumps([before, p.data().asnumpy().tolist()]))
"""
OPTIMIZERS = {
    "sgd": ({"learning_rate": 0.01, "momentum": 0.9}, lambda p: wf.optimizer.SGD(p, lr=0.01, momentum=0.9)),
    "nag": (
        {"learning_rate": 0.01, "momentum": 0.9},
        lambda p: wf.optimizer.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    ),
    "adam": ({"learning_rate": 0.01}, lambda p: wf.optimizer.Adam(p, lr=0.01)),
    "adamax": ({"learning_rate": 0.01}, lambda p: wf.optimizer.Adamax(p, lr=0.01)),
    "adagrad": ({"learning_rate": 0.01}, lambda p: wf.optimizer.Adagrad(p, lr=0.01)),
    "adadelta": ({"rho": 0.9, "epsilon": 1e-5}, lambda p: wf.optimizer.Adadelta(p, rho=0.9, eps=1e-5)),
    "rmsprop": (
        {"learning_rate": 0.01, "gamma1": 0.9},
        lambda p: wf.optimizer.RMSprop(p, lr=0.01, alpha=0.9),
    ),
    "rmsprop centered": (
        {"learning_rate": 0.01, "gamma1": 0.9, "gamma2": 0.8, "centered": True},
        lambda p: wf.optimizer.RMSprop(p, lr=0.01, alpha=0.9, momentum=0.8, centered=True),
    ),
    "ftrl": ({"learning_rate": 0.1, "lamda1": 0.01}, lambda p: wf.optimizer.Ftrl(p, lr=0.1, l1=0.01)),
    "ftml": ({"learning_rate": 0.01}, lambda p: wf.optimizer.FTML(p, lr=0.01)),
    "lamb": ({"learning_rate": 0.01}, lambda p: wf.optimizer.LAMB(p, lr=0.01)),
    "lars": (
        {"learning_rate": 0.1, "momentum": 0.9, "eta": 0.01},
        lambda p: wf.optimizer.LARS(p, lr=0.1, momentum=0.9, trust=0.01),
    ),
    "signum": ({"learning_rate": 0.01, "momentum": 0.9}, lambda p: wf.optimizer.Signum(p, lr=0.01)),
    "signum without momentum": (
        {"learning_rate": 0.01, "momentum": 0.0},
        lambda p: wf.optimizer.Signum(p, lr=0.01, momentum=0.0),
    ),
}


@pytest.mark.skipif(MXNET is None, reason="WEFT_TEST_MXNET is not set to a Python that has mxnet 1.9.1")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_trainers_go_on_as_in_mxnet(name, tmp_path):
    options, make = OPTIMIZERS[name]
    arguments = [json.dumps(name.split()[0]), json.dumps(options), str(tmp_path / "x.states")]
    done = subprocess.run([MXNET, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    before, after = json.loads(done.stdout)
    assert not np.allclose(before, after, rtol=1e-3, atol=0)
    p = wf.tensor(np.float32(before))
    optimizer = make([p])
    mxnet.restore(optimizer, mxnet.load_states(tmp_path / "x.states"), [p])
    for k in range(3, 6):
        p.grad = 2 * (p - wf.tensor([1.0, 2.0, 3.0, 4.0])) * (k + 1.0)
        optimizer.step()
    np.testing.assert_allclose(p.numpy(), after, rtol=1e-5)
