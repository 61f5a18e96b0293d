"""A cross-section of weft, for a process that ends with nanobind's leak warnings on."""

import contextlib
import tempfile

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
import weft.symbol as sym
from weft import _core
from weft.data import ArrayDataset, DataLoader


class Rounds(wf.Function):
    def forward(self, x):
        self.x = x
        return F.round(x)

    def backward(self, dy):
        return dy * F.tanh(self.x)


def eager():
    x = wf.random.normal(0, 1, (8, 6))
    y = F.softmax(x @ x.T, axis=-1).sum(axis=0)
    y[1:3] = 5
    y += 1
    return [
        F.sort(x, axis=1),
        F.topk(x, 2),
        x[x > 0],
        x[[0, 1]],
        F.conv2d(wf.ones((1, 2, 5, 5)), wf.ones((3, 2, 3, 3))),
    ]


def gradients():
    w = wf.ones((4, 3))
    gm = wf.GradManager().attach(w, callbacks=lambda tensor, dx: dx * 2)
    with gm:
        gm.backward((Rounds()(w * 1.5) * wf.recompute(F.tanh, w)).sum())
    wf.grad(lambda w: (wf.grad(lambda w: (w * w * w).sum())(w) ** 2).sum())(w)
    return w.grad


def training():
    net = M.Sequential(M.Linear(6, 8), M.BatchNorm1d(8), M.ReLU(), M.Dropout(0.2), M.Linear(8, 3))
    opt = optim.Adam(net.parameters(), lr=0.1)
    gm = wf.GradManager().attach(net.parameters())

    @wf.trace
    def step(x, labels):
        with gm:
            loss = F.cross_entropy(net(x), labels)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    data = ArrayDataset(wf.random.normal(0, 1, (32, 6)), wf.arange(32) % 3)
    for x, labels in DataLoader(data, batch_size=8):
        step(x, labels)
    return net, step


def graphs():
    f = wf.trace(lambda x: wf.foreach(lambda v, s: (v * s, s + v), x, wf.zeros(3))[0])
    for n in (4, 4, 5):
        f(wf.ones((n, 3)))
    dynamic = wf.trace(lambda x: F.tanh(x).sum(), dynamic={"x": 0})
    for n in (2, 5):
        dynamic(wf.ones((n, 3)))
    with wf.lazy():
        late = F.exp(wf.ones(4)) * 2
    with tempfile.TemporaryDirectory() as folder:
        f.export(f"{folder}/program")
        loaded = wf.load_program(f"{folder}/program")
        wf.save(f"{folder}/x.st", {"x": wf.ones(3)})
        wf.load(f"{folder}/x.st")
    symbol = F.tanh(F.linear(sym.var("x"), sym.var("w")))
    executor = symbol.simple_bind(x=(2, 3), w=(4, 3))
    executor.forward(is_train=True)
    executor.backward()
    return late, loaded, executor


def engine():
    own = wf.engine.Engine(workers=2)
    variable = own.new_variable()
    own.push(lambda context: None, mutate_vars=[variable], on_done=lambda error: None)
    own.push_async(lambda context, done: done(), const_vars=[variable])
    own.push(lambda context: 1 / 0, name="fails")
    with contextlib.suppress(wf.EngineError):
        own.wait_for_all()
    return own


if __name__ == "__main__":
    _core.testing.set_leak_warnings(True)
    kept = [part() for part in (eager, gradients, training, graphs, engine)]  # globals that live to the end
    wf.waitall()
    print("end")
