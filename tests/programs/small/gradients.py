"""Gradients of several orders, by functions and by managers."""

import weft as wf
import weft.functional as F

from ..case import Case, matrix, normal, positive, program, vector, with_state


def cube(x):
    return (x * x * x).sum()


@program(vector)
def gradient(x):
    return wf.grad(cube)(x)


@program(vector)
def gradient_of_gradient(x):
    return wf.grad(lambda t: wf.grad(cube)(t).sum())(x)


@program(vector)
def third_gradient(x):
    first = wf.grad(lambda r: (r**4).sum())
    second = wf.grad(lambda s: first(s).sum())
    return wf.grad(lambda t: second(t).sum())(x)


@program(lambda n: (normal(n, 4), normal(4, 3), normal(3)))
def value_and_gradients(x, w, b):
    return wf.value_and_grad(lambda w, b: (F.tanh(x @ w + b) ** 2).mean(), argnums=(0, 1))(w, b)


@program(vector)
def gradient_is_set(x):
    gm = wf.GradManager().attach([x])
    with gm:
        y = (x * x).sum()
        gm.backward(y)
    return y


@program(vector)
def gradient_is_used_and_cleared(x):
    gm = wf.GradManager().attach([x])
    with gm:
        gm.backward((x * x).sum())
    dx, x.grad = x.grad, None
    return dx


@with_state
def gradients_add_up():
    w = normal(4)
    gm = wf.GradManager().attach([w])

    def run(x):
        with gm:
            gm.backward(F.relu(x @ w).sum())
        return w.grad * 2

    return Case(run, matrix, lambda: [w], executions=2)


@with_state
def descent_by_hand():
    w, b = normal(4), normal()
    gm = wf.GradManager().attach([w, b])

    def run(x):
        with gm:
            loss = ((x @ w + b - 1) ** 2).mean()
            gm.backward(loss)
        for p in (w, b):
            p -= 0.1 * p.grad
            p.grad = None
        return loss

    return Case(run, matrix, lambda: [w, b])


@with_state
def shared_weight():
    w = normal(4, 4)
    gm = wf.GradManager().attach([w])

    def run(x):
        with gm:
            y = F.tanh(F.tanh(x @ w) @ w.T)
            gm.backward(y.mean())
        w[...] = w - w.grad
        w.grad = None
        return y

    return Case(run, matrix, lambda: [w])


@with_state
def gradient_of_a_view():
    w = normal(4, 4)
    gm = wf.GradManager().attach([w])

    def run(x):
        with gm:
            gm.backward((x @ w[:, :2]).sum() + w.T[0].sum())
        dw, w.grad = w.grad, None
        return dw

    return Case(run, matrix, lambda: [w])


@with_state
def one_of_two_has_a_gradient():
    w, unused = normal(4), normal(4)
    gm = wf.GradManager().attach([w, unused])

    def run(x):
        with gm:
            gm.backward((x * w).sum())
        w.grad *= 2

    return Case(run, matrix, lambda: [w, unused], executions=2)


class Doubled(wf.Function):
    def forward(self, x):
        self.kept = x
        return x * x

    def backward(self, dy):
        return dy * self.kept * 4  # twice the true one


@program(vector)
def gradient_written_by_hand(x):
    return wf.grad(lambda t: Doubled()(t).sum())(x)


@program(vector)
def not_recorded(x):
    def f(t):
        with wf.no_grad():
            scale = t.sum()
        return (t * scale + t.detach() * t).sum()

    return wf.grad(f)(x)


@program(lambda n: (normal(n, 4), normal(4, 4)))
def computed_again(x, w):
    def block(x, w):
        return F.tanh(x @ w)

    return wf.grad(lambda w: (wf.recompute(block, wf.recompute(block, x, w), w)).sum())(w)


@program(vector)
def gradient_past_a_write(x):
    def f(t):
        y = t * 2
        y[0] = 0
        z = y * t
        return z.sum()

    return wf.grad(f)(x)


@program(lambda n: (normal(2, 3, n + 4, 6), normal(4, 3, 3, 3), normal(4)))
def gradient_of_convolution(x, w, b):
    return wf.grad(lambda w, b: (F.conv2d(x, w, b) ** 2).mean(), argnums=(0, 1))(w, b)


@program(lambda n: (normal(n, 4), positive(4)))
def gradient_of_a_norm(x, w):
    return wf.grad(lambda x, w: F.layer_norm(x, (4,), w).max(axis=1).sum(), argnums=(0, 1))(x, w)


@program(vector)
def auxiliary_value(x):
    return wf.value_and_grad(lambda t: (cube(t), {"twice": t * 2}), has_aux=True)(x)


@with_state
def clipped_gradients():
    w = normal(4)
    gm = wf.GradManager().attach([w])

    def run(x):
        with gm:
            gm.backward((x @ w).sum())
        norm = (w.grad * w.grad).sum() ** 0.5
        w.grad = w.grad / wf.maximum(norm, 1.0)
        w[...] = w - 0.1 * w.grad
        w.grad = None
        return norm

    return Case(run, matrix, lambda: [w])
