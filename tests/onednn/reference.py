"""What the kernels compute, in NumPy and float64, written for clarity."""

import itertools
import math

import numpy as np

ERF = np.vectorize(math.erf)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


POST_OPS = {
    "relu": lambda x, alpha=0.0: np.where(x > 0, x, alpha * x),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: 0.5 * x * (1 + ERF(x / math.sqrt(2))),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "swish": lambda x, alpha=1.0: x * sigmoid(alpha * x),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "clip": lambda x, low, high: np.clip(x, low, high),
    "linear": lambda x, alpha=1.0, beta=0.0: alpha * x + beta,
}


def places(x, out, size, stride, padding, dilation):
    """For each place in a window: its index, and which elements of the padded x it meets, as slices."""
    del x
    for place in itertools.product(*map(range, size)):
        steps = zip(place, dilation, stride, out, strict=True)
        yield place, (..., *(slice(p * d, p * d + s * (n - 1) + 1, s) for p, d, s, n in steps))


def padded(x, padding, value=0.0):
    return np.pad(x, [(0, 0), (0, 0), *padding], constant_values=value)


def cropped(x, padding):
    return x[(..., *(slice(low, x.shape[d + 2] - high) for d, (low, high) in enumerate(padding)))]


def out_sizes(x, size, stride, padding, dilation):
    dims = zip(x, size, stride, padding, dilation, strict=True)
    return tuple((n + low + high - (k - 1) * d - 1) // s + 1 for n, k, s, (low, high), d in dims)


def split(x, groups, axis):
    return x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])


def convolution(x, w, stride, padding, dilation, groups):
    out = out_sizes(x.shape[2:], w.shape[2:], stride, padding, dilation)
    xp, wg = split(padded(x, padding), groups, 1), split(w, groups, 0)
    y = np.zeros((x.shape[0], groups, w.shape[0] // groups, *out))
    for place, met in places(xp, out, w.shape[2:], stride, padding, dilation):
        y += np.einsum("ngc...,goc->ngo...", xp[met], wg[(..., *place)])
    return y.reshape(x.shape[0], w.shape[0], *out)


def convolution_gradients(x, w, dy, stride, padding, dilation, groups):
    xp, wg, dyg = split(padded(x, padding), groups, 1), split(w, groups, 0), split(dy, groups, 1)
    dx, dw = np.zeros_like(xp), np.zeros_like(wg)
    for place, met in places(xp, dy.shape[2:], w.shape[2:], stride, padding, dilation):
        dx[met] += np.einsum("ngo...,goc->ngc...", dyg, wg[(..., *place)])
        dw[(..., *place)] = np.einsum(
            "ngcs,ngos->goc", xp[met].reshape(*xp.shape[:3], -1), dyg.reshape(*dyg.shape[:3], -1)
        )
    dx = dx.reshape(x.shape[0], x.shape[1], *dx.shape[3:])
    return cropped(dx, padding), dw.reshape(w.shape), dy.sum((0, *range(2, dy.ndim)))


def pooling(x, kind, size, stride, padding, dilation):
    """y, and a function from dy to dx."""
    out = out_sizes(x.shape[2:], size, stride, padding, dilation)
    xp = padded(x, padding, -np.inf if kind == "max" else 0.0)
    ones = padded(np.ones_like(x), padding)
    met = [m for _, m in places(xp, out, size, stride, padding, dilation)]
    stack = np.stack([xp[m] for m in met])
    if kind == "max":
        best = stack.argmax(0)
        weights = [best == i for i in range(len(met))]
        y = stack.max(0)
    else:
        counts = np.sum([ones[m] for m in met], 0) if kind == "average" else math.prod(size)
        weights = [1 / counts] * len(met)
        y = stack.sum(0) / counts

    def gradient(dy):
        dx = np.zeros_like(xp)
        for m, weight in zip(met, weights, strict=True):
            dx[m] += dy * weight
        return cropped(dx, padding)

    return y, gradient


class LstmDirection:
    """One direction of one layer: forward keeps what backward needs."""

    def __init__(self, x, h, c, parameters, backwards):
        self.order = range(len(x))[::-1] if backwards else range(len(x))
        self.x, self.parameters, self.kept = x, parameters, {}
        w_x, w_h, b_x, b_h = parameters
        self.y = np.zeros((*x.shape[:2], h.shape[1]))
        for t in self.order:
            i, f, g, o = np.split(x[t] @ w_x.T + h @ w_h.T + b_x + b_h, 4, axis=1)
            i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
            before = h, c
            c = f * c + i * g
            h = o * np.tanh(c)
            self.y[t] = h
            self.kept[t] = (*before, c, i, f, g, o)
        self.h, self.c = h, c

    def gradients(self, dy, dh, dc):
        w_x, w_h, b_x, _ = self.parameters
        dx, dw_x, dw_h, db = np.zeros_like(self.x), np.zeros_like(w_x), np.zeros_like(w_h), np.zeros_like(b_x)
        for t in reversed(self.order):
            h0, c0, c, i, f, g, o = self.kept[t]
            dh = dh + dy[t]
            dc = dc + dh * o * (1 - np.tanh(c) ** 2)
            gates = [dc * g * i * (1 - i), dc * c0 * f * (1 - f), dc * i * (1 - g**2)]
            z = np.concatenate([*gates, dh * np.tanh(c) * o * (1 - o)], 1)
            dx[t], dh, dc = z @ w_x, z @ w_h, dc * f
            dw_x += z.T @ self.x[t]
            dw_h += z.T @ h0
            db += z.sum(0)
        return dx, dh, dc, [dw_x, dw_h, db, db]


class Lstm:
    """All layers; parameters[layer][direction] = w_x, w_h, b_x, b_h."""

    def __init__(self, x, h0, c0, parameters):
        self.layers, h, c = [], [], []
        for layer, directions in enumerate(parameters):
            at = layer * len(directions)
            runs = [
                LstmDirection(x, h0[at + d], c0[at + d], p, backwards=d == 1)
                for d, p in enumerate(directions)
            ]
            self.layers.append(runs)
            x = np.concatenate([run.y for run in runs], 2)
            h += [run.h for run in runs]
            c += [run.c for run in runs]
        self.y, self.h, self.c = x, np.stack(h), np.stack(c)

    def gradients(self, dy, dh, dc):
        dh0, dc0 = np.zeros_like(dh), np.zeros_like(dc)
        parameters = []
        for layer in reversed(range(len(self.layers))):
            runs, below, ours = self.layers[layer], 0.0, []
            for d, (run, part) in enumerate(zip(runs, np.split(dy, len(runs), axis=2), strict=True)):
                at = layer * len(runs) + d
                dx, dh0[at], dc0[at], dp = run.gradients(part, dh[at], dc[at])
                below = below + dx
                ours.append(dp)
            dy = below
            parameters.insert(0, ours)
        return dy, dh0, dc0, parameters
