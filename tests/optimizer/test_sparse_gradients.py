"""Steps with gradients of some rows: those of dense gradients where all rows have one, and of those rows alone else."""

import inspect

import numpy as np
import pytest

import weft as wf
import weft.optimizer as optim
from weft.sparse import RowSparse, csr

OPTIMIZERS = sorted(
    name
    for name, cls in vars(optim).items()
    if inspect.isclass(cls) and issubclass(cls, optim.Optimizer) and cls is not optim.Optimizer
)
DENSE_ONLY = {"ASGD", "Adafactor", "LAMB", "LARS", "LBFGS", "Muon", "Rprop", "SGLD"}
OPTIONS = {"SGD": {"momentum": 0.9, "weight_decay": 0.1}, "Adam": {"amsgrad": True, "weight_decay": 0.1}}
LAZY = [name for name in OPTIMIZERS if name not in DENSE_ONLY]


def make(name, *parameters):
    return getattr(optim, name)(parameters, lr=0.1, **OPTIONS.get(name, {}))


def matrix(rows, seed):
    return np.random.default_rng(seed).standard_normal((rows, 3))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", LAZY)
def test_all_rows_are_a_dense_step(name, dtype):
    """In another order, and one of them in two parts."""
    dense, sparse = (wf.tensor(matrix(4, 0)).astype(dtype) for _ in range(2))
    a, b = make(name, dense), make(name, sparse)
    for k in range(4):
        g = wf.tensor(np.round(matrix(4, k) * 16) / 16).astype(dtype)  # so that halves add up exactly
        dense.grad = g
        sparse.grad = RowSparse([2, 0, 3, 1, 0], wf.stack([g[2], g[0] / 2, g[3], g[1], g[0] / 2]), (4, 3))
        a.step().clear_grad()
        b.step().clear_grad()
        np.testing.assert_array_equal(sparse.astype("float64").numpy(), dense.astype("float64").numpy())
    for key, x in a.state_dict()["state"].items():
        np.testing.assert_array_equal(b.state_dict()["state"][key].numpy(), x.numpy(), err_msg=key)


@pytest.mark.parametrize("name", LAZY)
def test_other_rows_pause(name):
    """The rows are those of a parameter of their own; a dense gradient in the same step is as ever."""
    rows, start = [4, 1], matrix(6, 0)
    whole, part = wf.tensor(start), wf.tensor(start[rows])
    others = [wf.tensor(matrix(2, 7)) for _ in range(2)]
    a, b = make(name, whole, others[0]), make(name, part, others[1])
    for k in range(3):
        g, h = wf.tensor(matrix(2, k)), wf.tensor(matrix(2, k + 10))
        whole.grad, part.grad = RowSparse(rows, g, (6, 3)), g
        others[0].grad, others[1].grad = h, h
        a.step()
        b.step()
    np.testing.assert_array_equal(whole.numpy()[rows], part.numpy())
    np.testing.assert_array_equal(whole.numpy()[[0, 2, 3, 5]], start[[0, 2, 3, 5]])
    np.testing.assert_array_equal(others[0].numpy(), others[1].numpy())
    assert a.state_dict()["state"]["0.step"].item() == 3


@pytest.mark.parametrize("name", sorted(DENSE_ONLY - {"LBFGS"}))
def test_optimizers_without_an_update_of_rows_say_so(name):
    w = wf.tensor(matrix(4, 0))
    before, opt = w.numpy().copy(), make(name, w)
    w.grad = RowSparse([1], wf.ones((1, 3), dtype="float64"), (4, 3))
    with pytest.raises(TypeError, match=rf"{name}: step: has no update of some rows.*\n.*todense"):
        opt.step()
    assert (w.numpy() == before).all()
    assert opt.state_dict()["state"]["0.step"].item() == 0
    w.grad = w.grad.todense()
    opt.step()
    assert not (w.numpy() == before).all()


def test_what_is_no_gradient():
    w = wf.zeros((4, 3))
    with pytest.raises(wf.ShapeError, match="grad: expected a Tensor of shape"):
        w.grad = RowSparse([1], wf.ones((1, 2)), (4, 2))
    w.grad = csr(wf.ones((4, 3)))
    with pytest.raises(TypeError, match="SGD: step: takes gradients that are tensors or RowSparse, got Csr"):
        optim.SGD([w]).step()
    opt = optim.LBFGS([w])

    def closure():
        w.grad = RowSparse([1], wf.ones((1, 3)), (4, 3))
        return wf.zeros(())

    with pytest.raises(TypeError, match="LBFGS: step: has no update of some rows"):
        opt.step(closure)


def test_an_empty_gradient_changes_nothing():
    w = wf.ones((4, 3))
    w.grad = RowSparse([], wf.zeros((0, 3)), (4, 3))
    optim.SGD([w], lr=1.0, weight_decay=0.5).step()
    assert (w.numpy() == 1).all()


@pytest.mark.parametrize("is_set_inside", [False, True])
@pytest.mark.filterwarnings("ignore::weft.TraceWarning")
def test_in_a_traced_step(is_set_inside):
    """Such a gradient is looked at in Python, at each call."""
    w, expected = wf.ones((5, 2)), np.ones((5, 2), "float32")
    opt = optim.SGD([w], lr=0.5)

    @wf.trace
    def step(indices, values):
        if is_set_inside:
            w.grad = RowSparse(indices, values * 2, (5, 2))
        opt.step()
        return values + 1

    for k in range(4):
        rows = [k, 4 - k, k]
        values = wf.full((3, 2), float(k + 1))
        if not is_set_inside:
            w.grad = RowSparse(rows, values * 2, (5, 2))
        assert (step(wf.tensor(rows), values).numpy() == k + 2).all()
        np.subtract.at(expected, rows, np.float32(k + 1))
        np.testing.assert_array_equal(w.numpy(), expected)


def test_gradients_of_rows_are_clipped_and_added():
    w, dense = wf.zeros((4, 2)), wf.zeros((4, 2))
    w.grad = RowSparse([1, 3, 1], wf.tensor([[1.0, 0.0], [0.0, 8.0], [5.0, 0.0]]), (4, 2))
    dense.grad = w.grad.todense()
    assert optim.clip_grad_norm([w], 5.0).item() == optim.clip_grad_norm([dense], 5.0).item() == 10.0
    assert isinstance(w.grad, RowSparse)
    np.testing.assert_array_equal(w.grad.todense().numpy(), dense.grad.numpy())
    optim.clip_grad_value([w], 3.5)
    assert w.grad.todense().numpy().max() == 3.5
    gm = wf.GradManager().attach([w])
    with gm:
        gm.backward((w * 2).sum())
    assert w.grad.numpy().tolist() == [[2.0, 2.0], [5.0, 2.0], [2.0, 2.0], [2.0, 5.5]]


def test_master_weights_of_rows():
    w = wf.ones((3, 2), dtype="bfloat16")
    opt = optim.MasterWeights([w], lambda params: optim.SGD(params, lr=1e-3))
    for _ in range(10):
        w.grad = RowSparse([1], wf.ones((1, 2), dtype="bfloat16"), (3, 2))
        opt.step().clear_grad()
    assert [round(x, 3) for x in opt.masters[0][:, 0].tolist()] == [1.0, 0.99, 1.0]


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_plain_steps_add_up_what_belongs_to_a_row(dtype, maximize):
    """Rows that occur often; one that there is not is an error that leaves the parameter as it is."""
    rows, g = [4, 1, 4, 4], wf.tensor(np.round(matrix(4, 2) * 16) / 16).astype(dtype)
    dense = RowSparse(rows, g, (6, 3)).todense()
    starts = [wf.tensor(np.round(matrix(6, 0) * 16) / 16).astype(dtype) for _ in range(2)]
    steps = [optim.SGD([w], lr=0.5, maximize=maximize) for w in starts]
    starts[0].grad, starts[1].grad = dense, RowSparse(rows, g, (6, 3))
    steps[0].step()
    steps[1].step()
    np.testing.assert_array_equal(starts[1].astype("float64").numpy(), starts[0].astype("float64").numpy())
    for row in (6, -1):
        starts[1].grad = RowSparse(wf.asarray([row]), g[:1], (6, 3))
        with pytest.raises(IndexError, match=f"no row {row} of 6"):
            steps[1].step()
    np.testing.assert_array_equal(starts[1].astype("float64").numpy(), starts[0].astype("float64").numpy())
