"""Executors: forward and backward against eager calls, requests, training, monitors, sharing, threads."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.symbol as sym
from weft import _core
from weft.base.errors import DeviceError, DTypeError, GraphError, ShapeError


def net():
    x = F.conv2d(sym.var("data"), out_channels=4, kernel_size=3, padding=1, name="c1")
    x = F.max_pool2d(F.relu(F.batch_norm(x, name="bn")), 2)
    x = F.linear(F.flatten(x, start_axis=1), out_features=10, name="fc")
    return F.cross_entropy(x, sym.var("label"), name="loss")


def eager(p, states, training):
    x = F.conv2d(p["data"], p["c1_weight"], p["c1_bias"], padding=1)
    x = F.batch_norm(x, *states, p["bn_weight"], p["bn_bias"], training=training)
    x = F.max_pool2d(F.relu(x), 2)
    x = F.linear(F.flatten(x, start_axis=1), p["fc_weight"], p["fc_bias"])
    return F.cross_entropy(x, p["label"])


def bound(grad_req="write", seed=0):
    exe = net().simple_bind(data=(6, 3, 8, 8), grad_req=grad_req)
    rng = np.random.default_rng(seed)
    for name, x in exe.arg_dict.items():
        x[...] = wf.tensor(
            rng.integers(0, 10, 6) if name == "label" else rng.standard_normal(x.shape, "float32")
        )
    exe.aux_dict["bn_running_var"][...] = 1
    return exe


def near(a, b, tolerance=2e-5):
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance)


def eager_gradients(exe):
    values = {name: x.copy() for name, x in exe.arg_dict.items()}
    states = [x.copy() for x in exe.aux_arrays]
    floats = [x for name, x in values.items() if name != "label"]
    gm = wf.GradManager().attach(floats)
    with gm:
        y = eager(values, states, training=True)
        gm.backward(y)
    return y, {name: x.grad for name, x in values.items() if name != "label"}, states


def test_a_network_agrees_with_eager():
    exe = bound()
    want, gradients, states = eager_gradients(exe)
    (y,) = exe.forward(is_train=True)
    exe.backward()
    near(y, want)
    for name, dx in gradients.items():
        near(exe.grad_dict[name], dx, 1e-4)
    assert exe.grad_dict["label"] is None
    for state, wanted in zip(exe.aux_arrays, states, strict=True):
        near(state, wanted)
    near(exe.forward(is_train=False)[0], eager(exe.arg_dict, exe.aux_arrays, training=False))
    assert exe.output_dict["loss_output"] is exe.outputs[0]


def test_prediction_prepares_parameters_and_sees_writes_to_them():
    exe = bound("null")
    for name in ("c1_weight", "fc_bias", "bn_running_var", "data"):
        near(exe.forward()[0], eager(exe.arg_dict, exe.aux_arrays, training=False))
        array = {**exe.arg_dict, **exe.aux_dict}[name]
        array *= 1.5
        near(exe.forward()[0], eager(exe.arg_dict, exe.aux_arrays, training=False))
    assert exe.memory_report()["prepared"] > 0


def test_states_change_in_training_only():
    exe = bound()
    before = exe.aux_dict["bn_running_mean"].copy()
    exe.forward(is_train=False)
    assert bool((exe.aux_dict["bn_running_mean"] == before).all())
    exe.forward(is_train=True)
    assert not bool((exe.aux_dict["bn_running_mean"] == before).all())


@pytest.mark.parametrize("request_", ["write", "add", "null"])
def test_requests(request_):
    exe = bound(request_)
    exe.forward(is_train=True)
    exe.backward()
    exe.backward()  # again, from what was kept
    reference = bound("write")
    reference.forward(is_train=True)
    reference.backward()
    for name, dx in reference.grad_dict.items():
        found = exe.grad_dict[name]
        if request_ == "null" or name == "label":
            assert found is None
        else:
            near(found, dx * 2 if request_ == "add" else dx, 1e-4)


def test_requests_of_each_argument():
    x, w, b = (wf.tensor([k + 1.0]) for k in range(3))
    grads = {"x": wf.tensor([10.0]), "w": wf.tensor([10.0]), "b": wf.tensor([10.0])}
    y = sym.var("x") * sym.var("w") + sym.var("b")
    exe = y.bind(None, [x, w, b], grads, {"x": "write", "w": "add"})
    exe.forward(is_train=True)
    exe.backward()
    assert [exe.grad_req[n] for n in "xwb"] == ["write", "add", "null"]
    assert (grads["x"].item(), grads["w"].item(), grads["b"].item()) == (2.0, 11.0, 10.0)


def test_nothing_is_computed_twice():
    """Training's forward and backward together run as many convolutions and products as a recorded eager call."""
    exe = bound()
    exe.forward(is_train=True)
    exe.backward()
    texts = [exe._plans.forward(exe._signature, True, False).plan.info.graph]
    assert str(texts[0]).count("= Conv2d(") == 1
    backward = next(p for key, p in exe._plans.table._plans.items() if key[0] == "backward")
    names = [n.op.name for n in backward.info.graph.nodes if n.op is not None]
    assert not {"conv2d", "linear", "max_pool2d", "batch_norm"} & set(names)


def test_gradients_of_outputs():
    x = wf.tensor([1.0, 2.0])
    y = sym.group([sym.var("x") * 2, F.exp(sym.var("y", shape=(2,))), F.argmax(sym.var("z", shape=(3,)))])
    arrays = {"x": x, "y": wf.zeros(2), "z": wf.zeros(3)}
    grads = {name: wf.zeros(a.shape) for name, a in arrays.items()}
    exe = y.bind(args=arrays, args_grad=grads)
    with pytest.raises(RuntimeError, match=r"forward\(is_train=True\) must come first"):
        exe.backward()
    exe.forward()
    with pytest.raises(RuntimeError, match="must come first"):
        exe.backward()
    exe.forward(is_train=True)
    exe.backward([wf.tensor([1.0, 10.0]), None, None])
    assert grads["x"].numpy().tolist() == [2.0, 20.0]
    assert grads["y"].numpy().tolist() == [1.0, 1.0]
    assert grads["z"].numpy().tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ShapeError, match="1 gradients for 3 outputs"):
        exe.backward(wf.tensor([1.0, 1.0]))
    with pytest.raises(ShapeError, match=r"the gradient of .*_output must be like it"):
        exe.backward([wf.zeros(3), None, None])


def test_data_is_copied_in():
    exe = (sym.var("x") * 2).simple_bind(x=(2,))
    data = np.array([1.0, 2.0])
    assert exe.forward(x=data)[0].numpy().tolist() == [2.0, 4.0]
    assert exe.arg_dict["x"].dtype is wf.float32
    assert exe.forward(x=[3.0, 4.0])[0].numpy().tolist() == [6.0, 8.0]
    with pytest.raises(GraphError, match="no argument 'y'; there are: x"):
        exe.forward(y=data)
    with pytest.raises(ShapeError, match=r"x has the shape \(2,\), got \(3,\)"):
        exe.forward(x=np.zeros(3))
    assert exe.forward()[0].numpy().tolist() == [6.0, 8.0]


def test_bound_arrays_may_lie_anyhow():
    x = wf.permute_dims(wf.tensor(np.arange(6.0, dtype="float32").reshape(3, 2)), (1, 0))
    grad = wf.zeros((2, 6))[:, ::2]
    exe = (sym.var("x") * 3).bind(args=[x], args_grad=[grad])
    near(exe.forward(is_train=True)[0], x * 3)
    exe.backward(wf.permute_dims(wf.ones((3, 2)), (1, 0)))
    assert bool((grad == 3).all())


def test_what_bind_refuses():
    y = F.linear(sym.var("x"), out_features=2, name="fc")
    x, w, b = wf.zeros((4, 3)), wf.zeros((2, 3)), wf.zeros(2)
    arrays = {"x": x, "fc_weight": w, "fc_bias": b}
    with pytest.raises(GraphError, match="argument fc_bias must be given"):
        y.bind(args={"x": x, "fc_weight": w})
    with pytest.raises(GraphError, match="no 'other'; there are: x, fc_weight, fc_bias"):
        y.bind(args=arrays | {"other": x})
    with pytest.raises(GraphError, match="2 arrays for 3 arguments"):
        y.bind(args=[x, w])
    with pytest.raises(ShapeError, match="in fc"):
        y.bind(args=arrays | {"fc_bias": wf.zeros(5)})
    with pytest.raises(DTypeError, match="takes floating-point"):
        y.bind(args=arrays | {"x": wf.zeros((4, 3), "int32")})
    with pytest.raises(TypeError, match="x must be a Tensor, got ndarray"):
        y.bind(args=arrays | {"x": np.zeros((4, 3))})
    with pytest.raises(DeviceError, match="x is on cpu:0, and must be on cpu:1"):
        y.bind("cpu:1", args=arrays)
    with pytest.raises(GraphError, match="must be one of write, add, null, got 'sum'"):
        y.bind(args=arrays, args_grad=arrays, grad_req="sum")
    with pytest.raises(GraphError, match="args_grad: no 'other'; there are: x"):
        y.bind(args=arrays, args_grad={"other": x})
    with pytest.raises(DTypeError, match="the gradient of x must be like it"):
        y.bind(args=arrays, args_grad={"x": wf.zeros((4, 2))})
    with pytest.raises(GraphError, match="grad_req has 1 words for 3"):
        y.bind(args=arrays, grad_req=["write"])
    with pytest.raises(GraphError, match="argument x, fc_weight, fc_bias must be given"):
        y.bind()
    pair, slope = sym.var("v") * sym.var("w"), wf.zeros((2, 6))
    slopes = [slope.reshape(4, 3), slope.reshape(4, 3)]
    with pytest.raises(GraphError, match="the gradients of v and w share memory"):
        pair.bind(args=[x, x], args_grad=slopes, grad_req="add")
    pair.bind(args=[x, x], args_grad=slopes, grad_req={"w": "add"})
    assert y.bind(args=arrays).forward()[0].shape == (4, 2)


def test_another_device():
    exe = F.linear(sym.var("x"), out_features=2, name="fc").simple_bind("cpu:1", x=(4, 3))
    (y,) = exe.forward(is_train=True)
    exe.backward()
    assert y.device == exe.grad_dict["x"].device == wf.cpu(1)


def test_types_of_arguments():
    y = F.linear(sym.var("x"), out_features=2, name="fc")
    exe = y.simple_bind(x=(4, 3), dtypes={"x": "float64"})
    assert {x.dtype for x in exe.arg_dict.values()} == {wf.float64}
    assert exe.forward()[0].dtype is wf.float64


def test_monitors_see_every_value():
    exe = bound()
    (plain,) = exe.forward(is_train=True)
    exe.backward()
    gradient = exe.grad_dict["c1_weight"].copy()
    seen = {}
    exe.set_monitor_callback(lambda name, x: seen.__setitem__(name, x))
    (watched,) = exe.forward(is_train=True)
    exe.backward()
    near(watched, plain)
    near(exe.grad_dict["c1_weight"], gradient, 1e-4)
    assert [n for n in seen if n.startswith(("c1", "bn", "fc", "loss"))] == [
        "c1_output", "bn_output", "fc_output", "loss_output",
    ]  # fmt: skip
    assert seen["fc_output"].shape == (6, 10)
    seen.clear()
    exe.set_monitor_callback(lambda name, x: seen.__setitem__(name, x), monitor_all=True)
    exe.forward()
    assert list(seen)[:2] == ["data", "c1_weight"]
    assert "bn_running_var" in seen
    seen.clear()

    def failing(name, x):
        raise ZeroDivisionError(name)

    exe.set_monitor_callback(failing)
    with pytest.raises(ZeroDivisionError):
        exe.forward()
    with pytest.raises(TypeError, match="expected a function or None, got 3"):
        exe.set_monitor_callback(3)
    exe.set_monitor_callback(None)
    exe.forward()
    assert not seen


def test_reshape_shares_memory():
    exe = bound()
    small = exe.reshape(data=(2, 3, 8, 8))
    assert small.arg_dict["c1_weight"] is exe.arg_dict["c1_weight"]
    assert small.aux_dict["bn_running_mean"] is exe.aux_dict["bn_running_mean"]
    assert small.arg_dict["label"].shape == (2,)
    assert wf.shares_memory(small.arg_dict["data"], exe.arg_dict["data"])
    data, label = exe.arg_dict["data"].copy(), exe.arg_dict["label"].copy()
    (y,) = small.forward(is_train=True, data=data[:2], label=label[:2])
    small.backward()
    assert small.grad_dict["fc_weight"] is exe.grad_dict["fc_weight"]
    assert y.shape == ()
    large = exe.reshape(data=(9, 3, 8, 8))
    assert large.arg_dict["data"].shape == (9, 3, 8, 8)
    assert not wf.shares_memory(large.arg_dict["data"], exe.arg_dict["data"])
    with pytest.raises(ShapeError):
        exe.reshape(data=(2, 5, 8, 8), c1_weight=(4, 3, 3, 3))


def test_executors_share_arrays():
    w = wf.ones((2, 3))
    y = F.linear(sym.var("x"), sym.var("w"), None)
    a = y.bind(args={"x": wf.ones((1, 3)), "w": w})
    b = y.bind(args={"x": wf.ones((4, 3)), "w": w})
    w[...] = 2
    assert a.forward()[0].numpy().tolist() == [[6.0, 6.0]]
    assert b.forward()[0].shape == (4, 2)


def test_plans_are_shared_by_executors_of_one_symbol():
    y = net()
    y.simple_bind(data=(6, 3, 8, 8)).forward()
    count = len(y._plan_table._plans)
    y.simple_bind(data=(6, 3, 8, 8)).forward()
    assert len(y._plan_table._plans) == count
    for n in range(1, 80):
        (sym_ := y).simple_bind(data=(n, 3, 8, 8), grad_req="null")
    assert len(sym_._plan_table._plans) <= sym_._plan_table.MOST


def test_copy_params():
    exe, other = bound(seed=1), bound(seed=2)
    arguments = {n: x for n, x in exe.arg_dict.items() if n not in ("data", "label")}
    other.copy_params_from(arguments, exe.aux_dict)
    for name, x in arguments.items():
        assert bool((other.arg_dict[name] == x).all())
        assert other.arg_dict[name] is not x
    with pytest.raises(GraphError, match="no argument 'other'"):
        other.copy_params_from({"other": wf.zeros(1)})
    other.copy_params_from({"other": wf.zeros(1)}, allow_extra_params=True)
    with pytest.raises(ShapeError, match=r"fc_bias has the shape \(10,\), got \(3,\)"):
        other.copy_params_from({"fc_bias": np.zeros(3)})


def test_random_numbers_are_those_of_eager():
    x = wf.ones(50)
    y = F.dropout(F.dropout(sym.var("x"), 0.3), 0.5)
    exe = y.bind(args=[x], args_grad=[wf.zeros(50)])
    wf.random.seed(7)
    (got,) = exe.forward(is_train=True)
    exe.backward()
    wf.random.seed(7)
    want = F.dropout(F.dropout(x, 0.3), 0.5)
    near(got, want)
    near(exe.grad_arrays[0], want)  # the same elements are dropped backward


def test_shared_states_are_updated_in_order():
    m, v = sym.var("m"), sym.var("v")
    y = F.batch_norm(sym.var("x"), m, v, name="a") + F.batch_norm(sym.var("z"), m, v, name="b")
    exe = y.simple_bind(x=(4, 2), z=(4, 2))
    exe.arg_dict["x"][...] = 1
    exe.arg_dict["z"][...] = 3
    exe.forward(is_train=True)
    want = 0.9 * (0.9 * 0 + 0.1 * 1) + 0.1 * 3
    assert exe.aux_dict["m"].numpy().tolist() == pytest.approx([want, want])


def test_backward_reads_the_former_content_of_what_forward_overwrites():
    x, m, v = sym.var("x"), sym.var("m"), sym.var("v")
    y = sym.group([x * m, F.batch_norm(x, m, v, None, None)])
    exe = y.simple_bind(x=(4, 2))
    exe.arg_dict["x"][...] = wf.tensor([[1.0, 5.0]] * 4)
    exe.aux_dict["m"][...] = 7
    exe.forward(is_train=True)
    assert exe.aux_dict["m"].numpy().tolist() == pytest.approx([6.4, 6.8])
    exe.backward([wf.ones((4, 2)), wf.zeros((4, 2))])
    assert exe.grad_dict["x"].numpy().tolist() == [[7.0, 7.0]] * 4


def test_reports():
    exe = bound()
    report = exe.memory_report()
    assert report["arguments"] == sum(x.nbytes for x in exe.arg_arrays)
    assert report["gradients"] == sum(g.nbytes for g in exe.grad_arrays if g is not None)
    assert report["auxiliary states"] == 32
    assert report["kept for backward"] > 0
    assert report["outputs"] == 4
    text = exe.debug_str()
    assert "Conv2d" in text
    assert "kept for backward" in text


def test_nothing_is_recorded():
    x = wf.tensor([1.0])
    gm = wf.GradManager().attach([x])
    with gm:
        with pytest.raises(GraphError, match=r"x is being recorded.*x\.detach"):
            (sym.var("x") * 2).bind(args=[x]).forward()
        y = (sym.var("x") * 2).bind(args=[x.detach()]).forward()[0]
        assert not _core.is_tracked(y)


def test_the_least_graphs():
    x = wf.tensor([1.0, 2.0])
    assert bool((sym.var("x").bind(args=[x]).forward()[0] == x).all())
    twice = sym.group([sym.var("y") + 1] * 2)
    a, b = twice.eval(y=x)
    assert bool((a == b).all())
    exe = sym.var("x").bind(args=[x], args_grad=[wf.zeros(2)])
    exe.forward(is_train=True)
    exe.backward()
    assert exe.grad_arrays[0].numpy().tolist() == [1.0, 1.0]


def test_errors_of_late_operations_name_the_symbol():
    exe = F.embedding(sym.var("i"), sym.var("t"), name="e").bind(
        args={"i": wf.tensor([7]), "t": wf.zeros((2, 2))}
    )
    (y,) = exe.forward()
    with pytest.raises(wf.EngineError, match=r"e: .*index 7 is out of range"):
        y.numpy()
    with pytest.raises(wf.EngineError):
        wf.waitall()  # reports it once
    exe.arg_dict["i"][...] = 1
    assert exe.forward()[0].shape == (1, 2)


def test_several_threads(in_threads):
    """Executors of one symbol on shared parameters, side by side; and one executor from all threads."""
    y = net()
    first = bound()
    shared = {n: x for n, x in first.arg_dict.items() if n not in ("data", "label")}
    data, label = first.arg_dict["data"].copy(), first.arg_dict["label"].copy()
    states = [x.copy() for x in first.aux_arrays]
    want = eager({**shared, "data": data, "label": label}, states, training=False).item()

    def work(_):
        for _ in range(5):
            exe = y.bind(
                args={**shared, "data": data, "label": label},
                args_grad={n: wf.zeros(x.shape) for n, x in shared.items()},
                aux_states=[x.copy() for x in states],
            )
            assert abs(exe.forward()[0].item() - want) < 1e-4
            exe.forward(is_train=True)
            exe.backward()
            assert abs(first.forward()[0].item() - want) < 1e-4

    in_threads(work, range(8))


def test_gradients_do_not_end_in_executors_in_silence():
    x = wf.tensor([1.0, 2.0])
    y = wf.functional.exp(sym.var("x")).sum()
    executor = y.simple_bind(x=(2,))
    for run in (lambda v: y.eval(x=v)[0], lambda v: executor.forward(x=v)[0]):
        with pytest.raises(GraphError, match=r"x is being recorded.*x\.detach"):
            wf.grad(lambda v, run=run: run(v) * 1.0)(x)
        assert run(x).item() == wf.functional.exp(x).sum().item()


def test_weights_in_reversed_order_are_not_packed():
    """oneDNN has no layout for negative strides."""
    x, bias = wf.arange(20.0).reshape((2, 2, 5)), wf.ones(4)
    weight = wf.arange(24.0).reshape((4, 2, 3))[::-1, ::-1, ::-1]
    y = wf.functional.conv1d(sym.var("x"), sym.var("w"), sym.var("b"))
    (found,) = y.eval(x=x, w=weight, b=bias)
    np.testing.assert_allclose(found.numpy(), wf.functional.conv1d(x, weight.copy(), bias).numpy())
