"""Stores in one process: kinds local and device, their errors, optimizers and rows."""

import numpy as np
import pytest

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft.kvstore import KVStore, RowSparse, create, kinds, register

KINDS = ["local", "device"]


def store(kind="local", **values):
    kv = create(kind)
    for key, value in values.items():
        kv.init(key, value)
    return kv


@pytest.mark.parametrize("kind", KINDS)
def test_push_adds_the_values_up_and_pull_copies_what_is_stored(kind):
    kv = store(kind, a=wf.zeros(3))
    kv.push("a", [wf.ones(3), 2 * wf.ones(3), wf.full(3, 4.0, device="cpu:1")])
    first, second = wf.zeros(3), wf.zeros(3, device="cpu:1")
    assert kv.pull("a", [first, second]) == [first, second]
    assert first.numpy().tolist() == second.numpy().tolist() == [7, 7, 7]
    kv.push("a", wf.ones(3))  # without an updater the last sum stays
    assert kv.pull("a").numpy().tolist() == [1, 1, 1]


def test_where_sums_are_made():
    seen = []
    for kind in KINDS:
        kv = store(kind, a=wf.zeros(2))
        kv.set_updater(lambda key, pushed, stored: seen.append((key, pushed.device.index)))
        kv.push("a", [wf.ones(2, device="cpu:1")] * 2)
    assert seen == [("a", 0), ("a", 0)]  # moved to where the stored array is
    kv = create("device")
    assert str(kv._sum_values("a", [wf.ones(2, device="cpu:1")] * 2).device) == "cpu:1"


def test_what_was_stored_is_not_what_was_given():
    x = wf.ones(2)
    kv = store(a=x)
    x[...] = 5
    y = wf.full(2, 3.0)
    assert kv.pull("a").numpy().tolist() == [1, 1]
    kv.push("a", y)
    y[...] = 9
    assert kv.pull("a").numpy().tolist() == [3, 3]


def test_pushpull_and_broadcast_write_the_values_themselves():
    kv = create()
    a, b = wf.ones(2), wf.zeros(2)
    kv.broadcast([1, 2], [a, b])
    values = [wf.full(2, 3.0), [wf.ones(2), wf.ones(2)]]
    kv.pushpull([1, 2], values)
    assert values[0].numpy().tolist() == [3, 3]
    assert [v.numpy().tolist() for v in values[1]] == [[2, 2], [2, 2]]
    out = wf.zeros(2)
    assert kv.pushpull(1, wf.ones(2), out=out) is out
    assert out.numpy().tolist() == [1, 1]


@pytest.mark.parametrize("priority", [0, 1])
def test_what_gradients_need_is_found_overwritten_by_a_pull(priority):
    kv, w = store(a=wf.full(1, 5.0)), wf.full(1, 3.0)
    gm = wf.GradManager().attach([w])
    with gm:
        loss = (w * w).sum()
        kv.pull("a", out=w, priority=priority)
        with pytest.raises(ValueError, match="overwritten since"):
            gm.backward(loss)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("updating", ["optimizer", "updater", "nothing"])
@pytest.mark.parametrize("rows", [False, True])
def test_a_pull_behind_a_push_that_failed_has_failed(kind, updating, rows):
    kv = store(kind, a=wf.ones((4, 2)))
    if updating == "optimizer":
        kv.set_optimizer(optim.SGD([wf.zeros(1)], lr=1.0))
    if updating == "updater":
        kv.set_updater(lambda key, pushed, stored: stored.__isub__(pushed))

    def fail(_):
        raise ValueError("lost data")

    bad = wf.zeros((4, 2))
    wf.engine.default_engine().push(fail, mutate_vars=[bad], name="load")
    kv.push("a", bad)
    out = wf.zeros((4, 2))
    pulls = [
        lambda: kv.row_sparse_pull("a", row_ids=[1]).values if rows else kv.pull("a"),
        lambda: kv.row_sparse_pull("a", out, row_ids=[1]) if rows else kv.pull("a", out),
        lambda: kv.pull("a", out, priority=3),
        lambda: kv.pull("a", out=[wf.zeros((4, 2)), wf.zeros((4, 2), device="cpu:1")])[1],
    ]
    for pull in pulls:
        with pytest.raises(wf.EngineError, match="load: ValueError: lost data"):
            pull().numpy()
    if updating == "updater":  # which has overwritten what is stored
        return
    kv.push("a", wf.ones((4, 2)))  # the next one works again
    expected = 1.0 if updating == "nothing" else 0.0
    assert kv.pull("a", out).numpy().tolist() == kv.pull("a").numpy().tolist() == [[expected] * 2] * 4


def test_a_pull_with_a_priority_is_an_operation_that_has_it():
    kv = store(a=wf.arange(4).astype("float32"))
    out = wf.zeros(4)
    kv.pull("a", out, priority=7)
    assert out.numpy().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda kv: kv.push("b", wf.zeros(3)), KeyError, "push: no key 'b' was initialised; there are: 'a'"),
        (lambda kv: kv.pull("b"), KeyError, "pull: no key 'b'"),
        (lambda kv: kv.init("a", wf.zeros(3)), ValueError, "the key 'a' is initialised already"),
        (lambda kv: kv.init(1, wf.zeros(3)), TypeError, "all int or all str"),
        (lambda kv: kv.init(True, wf.zeros(3)), TypeError, "an int or a str, got bool"),
        (lambda kv: kv.push("a", wf.zeros(4)), wf.ShapeError, r"has shape \(3,\), the value \(4,\)"),
        (lambda kv: kv.push("a", wf.zeros(3, dtype="float64")), wf.DTypeError, "has type float32"),
        (lambda kv: kv.push(["a", "a"], [wf.zeros(3)] * 2), ValueError, "'a' is there twice"),
        (lambda kv: kv.push(["a"], []), ValueError, "1 keys need a list of as many values, got 0"),
        (lambda kv: kv.push("a", []), ValueError, "at least one value"),
        (lambda kv: kv.push("a", np.zeros(3)), TypeError, "a Tensor or a RowSparse, got ndarray"),
        (lambda kv: kv.set_optimizer("sgd"), TypeError, "got str"),
        (lambda kv: kv.set_updater(3), TypeError, "takes a function, got int"),
        (lambda kv: kv.save_optimizer_states("x"), ValueError, "no optimizer"),
        (lambda kv: kv.set_gradient_compression("2bit"), TypeError, "takes a dictionary, got str"),
        (lambda kv: kv.set_gradient_compression({"type": "3bit"}), ValueError, "type must be one of '2bit'"),
        (lambda kv: kv.set_gradient_compression({"type": "2bit", "threshold": 0}), ValueError, "positive"),
        (lambda kv: kv.set_gradient_compression({"type": "2bit", "x": 0}), ValueError, "no parameter x"),
        (lambda kv: kv.row_sparse_pull("a"), ValueError, "needs its row_ids"),
        (
            lambda kv: kv.row_sparse_pull(["a"], [], row_ids=[[1]]),
            ValueError,
            "1 keys need a list of as many arrays",
        ),
        (lambda kv: kv.row_sparse_pull("a", row_ids=[3]), IndexError, "no row 3 of 3"),
        (lambda kv: create("global"), ValueError, "kind must be one of 'device'"),
    ],
)
def test_wrong_calls_are_errors_and_change_nothing(call, error, text):
    kv = store(a=wf.ones(3))
    with pytest.raises(error, match=text):
        call(kv)
    assert kv.pull("a").numpy().tolist() == [1, 1, 1]


def test_an_error_poisons_and_names_the_line():
    def fail(_):
        raise RuntimeError("no gradient today")

    bad = wf.zeros(3)
    wf.engine.default_engine().push(fail, mutate_vars=[bad], name="backward")
    kv = store(a=wf.zeros(3), b=wf.zeros(3))
    kv.push(["a", "b"], [bad, wf.ones(3)])  # returns at once
    out = wf.zeros(3)
    kv.pull("a", out)
    with pytest.raises(
        wf.EngineError, match=r"backward: RuntimeError: no gradient today(.|\n)*test_local.py"
    ):
        out.numpy()
    assert kv.pull("b").numpy().tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: optim.Adam(p, lr=0.1),
        lambda p: optim.Adagrad(p, lr=0.1),
        lambda p: optim.RMSprop(p, lr=0.1),
    ],
)
def test_an_optimizer_on_the_store_is_that_optimizer(make):
    rng = np.random.default_rng(0)
    w, v = wf.ones((3, 2)), wf.ones(4)
    kv = store(w=w, v=v)
    kv.set_optimizer(make([w, v]))
    plain = make([w, v])
    for _ in range(3):
        dw, dv = (wf.tensor(rng.standard_normal(s, dtype="float32")) for s in ((3, 2), (4,)))
        kv.push(["w", "v"], [[dw, dw], dv])
        w.grad, v.grad = dw + dw, dv
        plain.step()
    np.testing.assert_array_equal(kv.pull("w").numpy(), w.numpy())
    np.testing.assert_array_equal(kv.pull("v").numpy(), v.numpy())


def test_options_of_groups_and_schedules_hold_on_the_store():
    w, v = wf.zeros(2), wf.zeros(2)
    kv = store(w=w, v=v, other=wf.zeros(2))
    opt = optim.SGD([{"params": [w], "lr": 1.0}, {"params": [v], "lr": 2.0}])
    kv.set_optimizer(opt)
    push = lambda: kv.push(["w", "v", "other"], [wf.ones(2)] * 3)  # noqa: E731
    push()
    assert [x.numpy()[0] for x in kv.pull(["w", "v", "other"])] == [-1, -2, -1]
    opt.param_groups[1]["lr"] = 10.0
    push()
    assert [x.numpy()[0] for x in kv.pull(["w", "v", "other"])] == [-2, -12, -2]
    kv.set_optimizer(optim.SGD([w], lr=100.0))  # the same kind: only the options change
    push()
    assert kv.pull("v").numpy()[0] == -112


def test_states_are_saved_and_loaded(tmp_path):
    def fresh():
        kv = create()
        kv.init([0, 7], [wf.ones(3), wf.ones((2, 2))])
        kv.set_optimizer(optim.Adam([wf.zeros(1)], lr=0.1))
        return kv

    kv = fresh()
    for _ in range(2):
        kv.push([0, 7], [wf.ones(3), wf.ones((2, 2))])
    kv.save_optimizer_states(tmp_path / "states")
    other = create()
    other.init([0, 7], kv.pull([0, 7]))
    other.set_optimizer(optim.Adam([wf.zeros(1)], lr=0.1))
    other.load_optimizer_states(tmp_path / "states")
    for each in (kv, other):
        each.push([0, 7], [wf.full(3, -2.0), wf.full((2, 2), 0.1)])
    for k in (0, 7):
        np.testing.assert_array_equal(kv.pull(k).numpy(), other.pull(k).numpy())
    wrong = create()
    wrong.init(1, wf.ones(3))
    wrong.set_optimizer(optim.Adam([wf.zeros(1)]))
    with pytest.raises(ValueError, match="no key i:0, i:7 here"):
        wrong.load_optimizer_states(tmp_path / "states")
    wrong.set_optimizer(optim.SGD([wf.zeros(1)]))
    with pytest.raises(ValueError, match="the state is of Adam, here SGD"):
        wrong.load_optimizer_states(tmp_path / "states")


def test_rows_are_pulled_once_each_and_in_order():
    kv = store(a=wf.arange(10).astype("float32").reshape(5, 2))
    rows = kv.row_sparse_pull("a", row_ids=wf.tensor([4, 1, 4]))
    assert rows.rows.tolist() == [1, 4]
    assert rows.values.numpy().tolist() == [[2, 3], [8, 9]]
    out = wf.zeros((5, 2))
    kv.row_sparse_pull("a", out=out, row_ids=[0, 2])
    assert out.numpy()[:, 1].tolist() == [1, 0, 5, 0, 0]


def test_row_sparse_values_are_added_up():
    kv = store(a=wf.ones((4, 1)))
    part = RowSparse([3, 0, 3], wf.tensor([[1.0], [2.0], [4.0]]), (4, 1))
    kv.push("a", [part, RowSparse([0], wf.tensor([[8.0]]), (4, 1))])
    assert kv.pull("a").numpy()[:, 0].tolist() == [10, 0, 0, 5]
    assert part.todense().numpy()[:, 0].tolist() == [2, 0, 0, 5]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: RowSparse([4], wf.zeros((1, 2)), (4, 2)), IndexError),
        (lambda: RowSparse([-1], wf.zeros((1, 2)), (4, 2)), IndexError),
        (lambda: RowSparse([0, 1], wf.zeros((1, 2)), (4, 2)), wf.ShapeError),
        (lambda: RowSparse([0], wf.zeros((1, 3)), (4, 2)), wf.ShapeError),
        (lambda: RowSparse([0.5], wf.zeros((1, 2)), (4, 2)), wf.DTypeError),
        (lambda: RowSparse([0], [[1.0]], (4, 1)), TypeError),
    ],
)
def test_rows_that_do_not_fit_are_errors(make, error):
    with pytest.raises(error, match="RowSparse"):
        make()


def lazy_model(name, w, gradients):
    """Updates of rows that have a gradient, in NumPy float64."""
    w = w.astype("float64")
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, (rows, g) in enumerate(gradients, 1):
        for r, d in zip(rows, g.astype("float64"), strict=True):
            if name == "SGD":
                m[r] = 0.9 * m[r] + d
                w[r] -= 0.1 * m[r]
            elif name == "Adagrad":
                v[r] += d * d
                w[r] -= 0.1 * d / (np.sqrt(v[r]) + 1e-10)
            else:
                m[r] = 0.9 * m[r] + 0.1 * d
                v[r] = 0.999 * v[r] + 0.001 * d * d
                w[r] -= 0.1 * (m[r] / (1 - 0.9**t)) / (np.sqrt(v[r] / (1 - 0.999**t)) + 1e-8)
    return w


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "Adam"])
def test_lazy_updates_touch_only_rows_that_have_a_gradient(name):
    rng = np.random.default_rng(1)
    begin = rng.standard_normal((6, 3)).astype("float32")
    gradients = [
        (sorted(rng.choice(6, 2, replace=False).tolist()), rng.standard_normal((2, 3)).astype("float32"))
        for _ in range(4)
    ]
    kv = store(w=wf.tensor(begin))
    options = {"lr": 0.1, "momentum": 0.9} if name == "SGD" else {"lr": 0.1}
    kv.set_optimizer(getattr(optim, name)([wf.zeros(1)], **options))
    for rows, g in gradients:
        kv.push("w", RowSparse(rows, wf.tensor(g), (6, 3)))
    found = kv.pull("w").numpy()
    np.testing.assert_allclose(found, lazy_model(name, begin, gradients), rtol=2e-5, atol=2e-6)
    untouched = set(range(6)) - {r for rows, _ in gradients for r in rows}
    for r in untouched:
        np.testing.assert_array_equal(found[r], begin[r])


def test_an_embedding_is_trained_without_an_array_of_its_size():
    rng = np.random.default_rng(2)
    begin = wf.tensor(rng.standard_normal((50, 4)).astype("float32"))
    kv = store(e=begin)
    kv.set_optimizer(optim.SGD([begin], lr=0.5))
    dense = begin.copy()
    opt = optim.SGD([dense], lr=0.5)
    for _ in range(3):
        ids = rng.integers(0, 50, 7)
        pulled = kv.row_sparse_pull("e", row_ids=ids)
        gm = wf.GradManager().attach([pulled.values])
        with gm:
            local = wf.tensor(np.searchsorted(pulled.rows, ids))
            gm.backward((F.embedding(local, pulled.values) ** 2).sum())
        kv.push("e", RowSparse(pulled.rows, pulled.values.grad, (50, 4)))
        whole = wf.GradManager().attach([dense])
        with whole:
            whole.backward((F.embedding(wf.tensor(ids), dense) ** 2).sum())
        opt.step().clear_grad()
    np.testing.assert_allclose(kv.pull("e").numpy(), dense.numpy(), rtol=1e-6)


@pytest.mark.parametrize("traced", [False, True])
def test_training_with_a_store_is_training(traced):
    def run(with_store):
        wf.random.seed(3)
        net = M.Sequential(M.Linear(4, 8), M.Tanh(), M.Linear(8, 2))
        params = list(net.parameters())
        opt = optim.SGD(params, lr=0.1, momentum=0.9)
        schedule = optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)
        gm = wf.GradManager().attach(params)
        kv = create("local")
        kv.init(list(range(4)), params)
        kv.set_optimizer(opt)
        rng = np.random.default_rng(0)
        x = wf.tensor(rng.standard_normal((6, 4), dtype="float32"))
        y = wf.tensor(rng.integers(0, 2, 6))

        def step(x, y):
            with gm:
                loss = F.cross_entropy(net(x), y)
                gm.backward(loss)
            if with_store:
                kv.push(list(range(4)), [p.grad for p in params])
                kv.pull(list(range(4)), params)
                opt.clear_grad()
            else:
                opt.step().clear_grad()
            return loss

        run_step = wf.trace(step) if traced else step
        losses = []
        for _ in range(4):
            losses.append(run_step(x, y).item())
            schedule.step()
        if traced:
            assert len(run_step.programs) == 1
            assert not run_step.breaks
        return losses

    assert run(True) == run(False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("compressed", [False, True])
def test_parts_of_a_batch_are_training_with_the_whole_batch(kind, parts, traced, compressed):
    """The gradients of the parts are pushed together. Without compression against one step with the whole batch."""
    dtype, threshold = "float32" if compressed else "float64", 0.05
    rng = np.random.default_rng(0)
    xs, ys = (
        rng.standard_normal((parts, 4, 3)).astype(dtype),
        rng.standard_normal((parts, 4, 2)).astype(dtype),
    )

    def network():
        wf.random.seed(1)
        return M.Sequential(M.Linear(3, 5, dtype=dtype), M.Tanh(), M.Linear(5, 2, dtype=dtype))

    net = network()
    params = list(net.parameters())
    keys = list(range(len(params)))
    kv = create(kind)
    kv.init(keys, params)
    kv.set_optimizer(optim.SGD(params, lr=0.1, momentum=0.9))
    if compressed:
        kv.set_gradient_compression({"type": "2bit", "threshold": threshold})
        if traced:  # how many values there are has to be known before
            with pytest.raises(
                RuntimeError, match="the key 0 gets 2 values for the first time in a traced function"
            ):
                wf.trace(lambda x: kv.push(0, [x] * parts))(params[0] * 0)
        kv.push(keys, [[p * 0] * parts for p in params])
    gm = wf.GradManager().attach(params)

    def step(*arrays):
        losses, found = [], []
        for x, y in zip(arrays[:parts], arrays[parts:], strict=True):
            with gm:
                loss = F.mse_loss(net(x), y) * (1 / parts)
                gm.backward(loss)
            losses.append(loss)
            found.append([p.grad for p in params])
            for p in params:
                p.grad = None
        kv.push(keys, [list(each) for each in zip(*found, strict=True)])
        kv.pull(keys, params)
        return sum(losses[1:], losses[0])

    run = wf.trace(step, strict=True) if traced else step
    losses = [run(*map(wf.tensor, [*xs, *ys])).item() for _ in range(4)]

    plain = network()
    weights = list(plain.parameters())
    manager = wf.GradManager().attach(weights)
    opt = optim.SGD(weights, lr=0.1, momentum=0.9)
    residuals = [[np.zeros(p.size, "float32") for p in weights] for _ in range(parts)]
    expected = []
    for _ in range(4):
        if not compressed:
            with manager:
                loss = F.mse_loss(plain(wf.tensor(np.concatenate(xs))), wf.tensor(np.concatenate(ys)))
                manager.backward(loss)
            expected.append(loss.item())
        else:
            sums = [np.zeros(p.shape, "float32") for p in weights]
            expected.append(0.0)
            for x, y, left in zip(xs, ys, residuals, strict=True):
                with manager:
                    loss = F.mse_loss(plain(wf.tensor(x)), wf.tensor(y)) * (1 / parts)
                    manager.backward(loss)
                expected[-1] += loss.item()
                for p, total, residual in zip(weights, sums, left, strict=True):
                    residual += p.grad.numpy().reshape(-1)
                    t = np.float32(threshold)
                    sent = np.where(residual >= t, t, np.where(residual <= -t, -t, np.float32(0)))
                    residual -= sent
                    total += sent.reshape(total.shape)
                    p.grad = None
            for p, total in zip(weights, sums, strict=True):
                p.grad = wf.tensor(total)
        opt.step().clear_grad()
    tolerance = 1e-5 if compressed else 1e-13
    np.testing.assert_allclose(losses, expected, rtol=tolerance)
    for p, q in zip(params, weights, strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=tolerance, atol=tolerance)


def test_other_kinds_can_be_registered():
    @register("counting")
    class Counting(KVStore):
        type = "counting"

        def __init__(self, start=0):
            self.count = start

        def push(self, key, value, priority=0):
            self.count += 1

    kv = create("Counting", start=3)
    kv.push(1, wf.zeros(1))
    assert kv.count == 4
    assert "counting" in kinds()
    assert not kv.is_capable("optimizer")
    with pytest.raises(NotImplementedError, match="counting: no pull"):
        kv.pull(1)
