"""Callbacks of GradManager are called as soon as a gradient is final, and may put their work off to the end."""

import pytest

import weft as wf
from weft.gradients.gradient import set_hook


class Probe(wf.Function):
    """The identity, which notes when backward comes through."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def forward(self, x):
        return x * 1

    def backward(self, dy):
        self.log.append(self.name)
        return dy


class Collected:
    """A callback that doubles gradients at the end."""

    def __init__(self, log):
        self.log, self.given = log, []

    def __call__(self, x, dx):
        self.given.append((x, dx))

    def finish(self):
        self.log.append("end")
        given, self.given = self.given, []
        return [(x, dx * 2) for x, dx in given]


def test_callbacks_run_while_others_are_computed():
    log = []
    ws = [wf.full((2, 2), float(k + 1)) for k in range(3)]
    gm = wf.GradManager()
    for k, w in enumerate(ws):
        gm.attach([w], callbacks=lambda x, dx, k=k: log.append(k))
    with gm:
        h = wf.ones((1, 2))
        for k, w in enumerate(ws):
            h = Probe(log, f"after {k}")(h @ w)
        gm.backward(h.sum())
    assert log == ["after 2", 2, "after 1", 1, "after 0", 0]


def test_a_gradient_is_final_only_after_its_last_summand():
    log = []
    w, v = wf.tensor([2.0]), wf.tensor([3.0])
    gm = wf.GradManager().attach([w, v], callbacks=lambda x, dx: log.append((x is w, dx.item())))
    with gm:
        a = Probe(log, "first")(w * 5)  # the oldest use of w comes last
        b = Probe(log, "second")(w * v)
        gm.backward((a + b * w).sum())
    # d/dw (5 w + w v w) = 5 + 2 w v, d/dv = w^2
    assert log == ["second", (False, 4.0), "first", (True, 17.0)]


def test_a_branch_without_a_gradient_does_not_keep_others_waiting_forever():
    class Nothing(wf.Function):
        def forward(self, x):
            return x * 1

        def backward(self, dy):
            return None

    seen = []
    w = wf.tensor([2.0])
    gm = wf.GradManager().attach([w], callbacks=lambda x, dx: seen.append(dx.item()))
    with gm:
        gm.backward((w * 3 + Nothing()(w * 7)).sum())
    assert seen == [3.0]
    assert w.grad.item() == 3.0


def test_the_tensor_itself_and_tensors_without_a_gradient():
    seen = []
    w, unused = wf.tensor([2.0]), wf.tensor([1.0])
    gm = wf.GradManager().attach([w, unused], callbacks=lambda x, dx: seen.append(x is w))
    with gm:
        gm.backward(w, wf.tensor([5.0]))
    assert seen == [True]
    assert w.grad.item() == 5.0
    assert unused.grad is None


@pytest.mark.parametrize("traced", [False, True])
def test_finish_replaces_what_was_given_before_it_is_added(traced):
    log = []
    w, v = wf.tensor([2.0]), wf.tensor([3.0])
    collected = Collected(log)
    gm = wf.GradManager()
    gm.attach([w, v], callbacks=[collected, lambda x, dx: dx + 1])  # what finishes comes last, however given

    def step(x):
        w.grad = wf.tensor([100.0])
        with gm:
            gm.backward((w * v * x).sum())

    run = wf.trace(step) if traced else step
    for _ in range(2):
        run(wf.tensor([1.0]))
        assert w.grad.item() == 100 + 2 * (3 + 1)
    assert v.grad.item() == 2 * 2 * (2 + 1)  # two steps
    assert log[0] == "end"


def test_finish_is_called_when_backward_raises():
    class Fails(wf.Function):
        def forward(self, x):
            return x * 1

        def backward(self, dy):
            raise ArithmeticError("no gradient")

    log = []
    w = wf.tensor([2.0])
    gm = wf.GradManager().attach([w], callbacks=Collected(log))
    with pytest.raises(ArithmeticError), gm:
        gm.backward(Fails()(w).sum())
    assert log == ["end"]
    assert w.grad is None


def test_what_a_callback_raises_ends_backward():
    def refuse(x, dx):
        raise KeyError("refused")

    w = wf.tensor([2.0])
    gm = wf.GradManager().attach([w], callbacks=refuse)
    with pytest.raises(KeyError, match="refused"), gm:
        gm.backward((w * 2).sum())
    assert w.grad is None
    with gm:  # it records again
        pass


def test_nested_managers_call_back_on_recorded_gradients():
    w = wf.tensor([3.0])
    outer, inner = wf.GradManager().attach([w]), wf.GradManager().attach([w], callbacks=lambda x, dx: dx * 2)
    with outer:
        with inner:
            inner.backward((w * w * w).sum())
        slope = w.grad
        w.grad = None
        outer.backward(slope.sum())
    assert slope.item() == 2 * 27
    assert w.grad.item() == 2 * 18


def test_a_parameter_brings_its_hook_to_every_manager():
    seen = []
    w = wf.tensor([3.0])
    set_hook(w, lambda x, dx: seen.append(dx.item()))
    gm = wf.GradManager().attach([w])
    with gm:
        gm.backward((w * 2).sum())
    set_hook(w, None)
    gm = wf.GradManager().attach([w])
    with gm:
        gm.backward((w * 2).sum())
    assert seen == [2.0]


def test_transformations_see_what_callbacks_do():
    class Names(wf.Transformation):
        def emit(self, op, args):
            names.append(op.name)
            return op(*args)

    names = []
    w = wf.tensor([3.0])
    gm = wf.GradManager().attach([w], callbacks=lambda x, dx: wf.sin(dx))
    with Names(), gm:
        gm.backward((w * 2).sum())
    assert "sin" in names


@pytest.mark.parametrize("mode", ["eager", "traced", "lazy"])
def test_what_callbacks_compute_runs_while_backward_goes_on(mode):
    """Events: of each layer's backward, and of what the callback makes of a gradient."""
    log = []

    class Noted(wf.operator.Operator):
        def __init__(self, tag):
            self.tag = tag

        def forward(self, ctx, in_data, req, out_data, aux):
            log.append(f"forward {self.tag}")
            self.assign(out_data[0], req[0], in_data[0].numpy())

        def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
            log.append(f"backward {self.tag}")
            self.assign(in_grad[0], req[0], out_grad[0].numpy())

    @wf.operator.register("noted_gradient_of_tests")
    class NotedProperty(wf.operator.OperatorProperty):
        def __init__(self, tag):
            self.tag = tag

        def create_operator(self, device):
            return Noted(self.tag)

    noted = wf.operator.noted_gradient_of_tests
    ws = [wf.full((2, 2), float(k + 1)) for k in range(3)]
    gm = wf.GradManager()
    for k, w in enumerate(ws):
        gm.attach([w], callbacks=lambda x, dx, k=k: noted(dx * 2, tag=f"callback {k}"))

    def step(x):
        for w in ws:
            w.grad = None
        with gm:
            h = x
            for k, w in enumerate(ws):
                h = noted(h @ w, tag=f"layer {k}")
            gm.backward(h.sum())
        return h

    name = "noted_gradient_of_tests"
    if mode == "eager":  # what has been pushed runs as soon as it can, so the order is that of pushes

        class Pushes:
            def on_push(self, record):
                if record.operation.startswith(name):
                    log.append(record.operation)

        observer, engine = Pushes(), wf.engine.default_engine()
        wf.waitall()
        engine.add_observer(observer)
        for _ in range(2):
            del log[:]
            step(wf.ones((1, 2)))
            pushed = [each for each in log if each.startswith(name)]
            assert pushed == [name] * 3 + [f"{name} gradient", name] * 3
        engine.remove_observer(observer)
    else:  # one program, whose Python runs in order
        run = wf.trace(step, lazy=mode == "lazy", strict=True)
        for _ in range(
            3
        ):  # before gradients are there it is another program; what is written down runs as it comes
            run(wf.ones((1, 2)))
        expected = [f"forward layer {k}" for k in range(3)]
        for k in (2, 1, 0):
            expected += [f"backward layer {k}", f"forward callback {k}"]
        for _ in range(2):
            wf.waitall()
            del log[:]
            run(wf.ones((1, 2)))
            wf.waitall()
            assert log == expected
    assert ws[2].grad.numpy().tolist() == [[16.0, 16.0], [16.0, 16.0]]
