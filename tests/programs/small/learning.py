"""Modules and optimizers: whole steps of training."""

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim

from ..case import Case, labels, matrix, normal, with_state


def tensors_of(net, opt=None):
    kept = list(net.state_dict().values())
    return kept + (list(opt.state_dict()["state"].values()) if opt else [])


def training(net, opt, loss_of=F.cross_entropy):
    gm = wf.GradManager().attach(net.parameters())

    def run(x, y):
        with gm:
            loss = loss_of(net(x), y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return Case(run, lambda n: (normal(2 * n, 4), labels(2 * n, 3)), lambda: tensors_of(net, opt))


@with_state
def module_forward():
    net = M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 2))
    return Case(lambda x: net(x), matrix, lambda: tensors_of(net))


class Block(M.Module):
    def __init__(self):
        self.linear, self.scale = M.Linear(4, 4), M.Parameter(wf.ones(()))

    def forward(self, x):
        return x + self.linear(F.relu(x)) * self.scale


@with_state
def module_of_ones_own():
    net = Block()
    return Case(net.forward, matrix, lambda: tensors_of(net))


@with_state
def running_statistics():
    net = M.Sequential(M.Linear(4, 3), M.BatchNorm1d(3))
    return Case(lambda x: net(x), matrix, lambda: tensors_of(net))


@with_state
def statistics_are_not_touched():
    net = M.Sequential(M.Linear(4, 3), M.BatchNorm1d(3), M.Dropout(0.5)).eval()
    return Case(lambda x: net(x), matrix, lambda: tensors_of(net))


@with_state
def dropout_and_momentum():
    net = M.Sequential(M.Linear(4, 8), M.ReLU(), M.Dropout(0.3), M.Linear(8, 3))
    return training(net, optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01))


@with_state
def step_of_adam():
    net = M.Sequential(M.Linear(4, 8), M.Tanh(), M.Linear(8, 3))
    return training(net, optim.Adam(net.parameters(), lr=0.01))


@with_state
def step_of_adamw():
    net = M.Sequential(M.Linear(4, 8), M.LayerNorm(8), M.GELU(), M.Linear(8, 3))
    return training(net, optim.AdamW(net.parameters(), lr=0.01))


@with_state
def step_of_rmsprop():
    net = M.Linear(4, 3)
    return training(net, optim.RMSprop(net.parameters(), lr=0.01))


@with_state
def tied_weights():
    encoder, decoder = M.Linear(4, 4), M.Linear(4, 4)
    decoder.weight = M.Parameter(encoder.weight)
    net = M.Sequential(encoder, M.Tanh(), decoder)
    return training(net, optim.SGD(net.parameters(), lr=0.1), lambda y, _: (y * y).mean())


@with_state
def two_groups():
    net = M.Sequential(M.Linear(4, 8), M.ReLU(), M.Linear(8, 3))
    groups = [
        {"params": [net[0].weight, net[2].weight], "weight_decay": 1e-2},
        {"params": [net[0].bias, net[2].bias], "lr": 0.01},
    ]
    return training(net, optim.SGD(groups, lr=0.1))


@with_state
def changing_rate():
    w = normal(4)
    opt = optim.SGD([w], lr=1.0)
    schedule = optim.lr_scheduler.ExponentialLR(opt, 0.5)
    gm = wf.GradManager().attach([w])

    def run(x):
        with gm:
            gm.backward((x @ w).mean())
        opt.step().clear_grad()

    return Case(run, matrix, lambda: [w, *[wf.zeros(()) for _ in [schedule.step()]]])


@with_state
def recurrent_network():
    net = M.LSTM(4, 3)
    return Case(lambda x: net(x.reshape(1, -1, 4))[0], matrix, lambda: tensors_of(net))


@with_state
def convolutional_network():
    net = M.Sequential(
        M.Conv2d(1, 2, 3), M.BatchNorm2d(2), M.ReLU(), M.MaxPool2d(2), M.Flatten(), M.Linear(8, 2)
    )
    return Case(lambda x: net(x), lambda n: (normal(n, 1, 6, 6),), lambda: tensors_of(net))


@with_state
def embedded_words():
    net = M.Sequential(M.Embedding(10, 4), M.Linear(4, 2))
    return Case(lambda x: net(x).sum(axis=0), lambda n: (labels(n, 10),), lambda: tensors_of(net))
