"""Training goes on from a file bit for bit, and bad files change nothing."""

import errno
import json

import numpy as np
import pytest

import weft as wf
import weft.data as data
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
from weft.arrays.serialization import FileFormatError


class Run:
    """A training run with everything that has state: dropout, statistics, momenta, a schedule, shuffled data."""

    def __init__(self, seed, kind="Adam"):
        wf.random.seed(seed)
        rng = np.random.default_rng(0)
        x = rng.standard_normal((22, 4), dtype="float32")
        self.net = M.Sequential(M.Linear(4, 8), M.BatchNorm1d(8), M.ReLU(), M.Dropout(0.3), M.Linear(8, 3))
        self.opt = getattr(optim, kind)(self.net.parameters(), lr=0.05)
        self.schedule = optim.lr_scheduler.LinearWarmup(
            self.opt, 3, then=optim.lr_scheduler.CosineAnnealingLR(self.opt, 20)
        )
        self.loader = data.DataLoader(
            data.ArrayDataset(x, rng.integers(0, 3, 22)), batch_size=4, shuffle=True
        )
        self.gm = wf.GradManager().attach(self.net.parameters())
        self.batches = self.forever()

    def forever(self):
        while True:
            yield from self.loader

    def steps(self, count):
        losses = []
        for _ in range(count):
            x, y = next(self.batches)
            with self.gm:
                loss = F.cross_entropy(self.net(x), y)
                self.gm.backward(loss)
            optim.clip_grad_norm(self.net.parameters(), 1.0)
            self.opt.step().clear_grad()
            self.schedule.step()
            losses.append(loss.item())
        return losses

    @property
    def parts(self):
        return {"model": self.net, "optimizer": self.opt, "schedule": self.schedule, "loader": self.loader}

    def values(self):
        tensors = {**self.net.state_dict(), **self.opt.state_dict()["state"]}
        return {name: x.numpy().copy() for name, x in tensors.items()}


def assert_equal(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD", "RMSprop", "Adagrad"])
@pytest.mark.parametrize("before", [0, 4, 9])
def test_training_goes_on_bit_for_bit(kind, before, tmp_path):
    path = tmp_path / "run.safetensors"
    run = Run(1, kind)
    run.steps(before)
    wf.checkpoint.save(path, {"step": before, "best": [0.5, None]}, **run.parts)
    want = run.steps(8)
    other = Run(2, kind)
    other.steps(2)  # as if something else had run before
    other.batches = other.forever()
    assert wf.checkpoint.load(path, **other.parts) == {"step": before, "best": [0.5, None]}
    assert other.steps(8) == want
    assert_equal(run.values(), other.values())


def test_one_file_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    run = Run(1)
    wf.checkpoint.save(path, **run.parts)
    whole = path.read_bytes()
    run.steps(2)
    from weft.arrays import replacing

    def fail(fd, data):
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as m:
        m.setattr(replacing, "_write_all", fail)
        with pytest.raises(OSError, match="no space"):
            wf.checkpoint.save(path, **run.parts)
    assert path.read_bytes() == whole
    assert [each.name for each in tmp_path.iterdir()] == ["run.safetensors"]


def test_what_is_shared_is_written_once(tmp_path):
    run = Run(1)
    wf.checkpoint.save(tmp_path / "run", **run.parts)
    names = wf.load(tmp_path / "run")
    assert sum(name.endswith(".step") for name in names) == 1


def test_values_of_ones_own(tmp_path):
    values = {
        "x": wf.ones(2),
        "nested": {"a": [1, 2.5, True, None, "t"], "b": (wf.zeros(()),)},
        "inf": float("inf"),
    }
    wf.checkpoint.save(tmp_path / "c", values)
    found = wf.checkpoint.load(tmp_path / "c")
    np.testing.assert_array_equal(found["x"].numpy(), [1, 1])
    assert found["nested"]["a"] == [1, 2.5, True, None, "t"]
    assert found["nested"]["b"][0].item() == 0
    assert found["inf"] == float("inf")
    for bad in ({"x": object()}, {"x": {1: 2}}, {"x": {"tensor:": 1}}, {"x": np.ones(2)}):
        with pytest.raises(TypeError, match="checkpoint: values"):
            wf.checkpoint.save(tmp_path / "d", bad)
    assert not (tmp_path / "d").exists()


def test_random_state(tmp_path):
    wf.random.seed(5)
    wf.checkpoint.save(tmp_path / "c")
    want = wf.random.normal(shape=3).numpy()
    wf.checkpoint.load(tmp_path / "c")
    np.testing.assert_array_equal(wf.random.normal(shape=3).numpy(), want)
    wf.checkpoint.load(tmp_path / "c", random_state=False)
    assert not np.array_equal(wf.random.normal(shape=3).numpy(), want)


class Stubborn:
    """A part that cannot be checked beforehand."""

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        raise RuntimeError("will not")


def test_bad_loads_change_nothing(tmp_path):
    path = tmp_path / "run.safetensors"
    run = Run(1)
    run.steps(2)
    wf.checkpoint.save(path, **run.parts)
    run.steps(3)
    small = M.Linear(4, 8)
    before, state, loader = run.values(), wf.random.get_state(), run.loader.state_dict()
    for parts, words in (
        ({"model": run.net}, "has the parts loader, model, optimizer, schedule; given were model"),
        ({**run.parts, "model": small}, "Linear: nothing was loaded"),
        ({**run.parts, "optimizer": optim.SGD(small.parameters())}, "is of the optimizer 'Adam'"),
        (
            {**run.parts, "schedule": optim.lr_scheduler.StepLR(optim.SGD([wf.zeros(1)]), 1)},
            "is of 'LinearWarmup'",
        ),
        ({**run.parts, "loader": data.DataLoader([1], batch_size=4)}, "had 22 samples, here 1"),
    ):
        with pytest.raises(ValueError, match=words):
            wf.checkpoint.load(path, **parts)
        assert_equal(run.values(), before)
        assert run.loader.state_dict() == loader
        assert wf.random.get_state() == state
    wf.checkpoint.save(path, **run.parts, extra=Stubborn())
    run.steps(1)
    before, state = run.values(), wf.random.get_state()
    with pytest.raises(RuntimeError, match="will not"):
        wf.checkpoint.load(path, **run.parts, extra=Stubborn())
    assert_equal(run.values(), before)
    assert wf.random.get_state() == state


WHOLE = {"parts": {}, "values": {}, "random": {}}


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({}, "is not a checkpoint of version 1"),
        ({"weft.checkpoint": "2", "state": "{}"}, "is not a checkpoint of version 1"),
        ({"weft.checkpoint": "1"}, "is not a checkpoint"),
        ({"weft.checkpoint": "1", "state": "{"}, "is not valid JSON"),
        ({"weft.checkpoint": "1", "state": "[" * 100000}, "is not valid JSON"),
        ({"weft.checkpoint": "1", "state": "[]"}, "lacks parts"),
        ({"weft.checkpoint": "1", "state": '{"parts": {}, "values": 3, "random": {}}'}, "lacks parts"),
        (
            {"weft.checkpoint": "1", "state": json.dumps(WHOLE | {"values": {"tensor:": "y"}})},
            "has no tensor 'y'",
        ),
        (
            {"weft.checkpoint": "1", "state": json.dumps(WHOLE | {"values": {"tensor:": [1]}})},
            "has no tensor",
        ),
    ],
)
def test_hostile_files(metadata, words, tmp_path):
    wf.save(tmp_path / "c", {"x": wf.ones(1)}, metadata)
    with pytest.raises(FileFormatError, match=words):
        wf.checkpoint.load(tmp_path / "c")


@pytest.mark.parametrize("state", [{"cpu:0": 5}, {"cpu:0": [1, 2]}, {"x": [1, 2, 3]}, {"cpu:0": ["a", 1, 2]}])
def test_hostile_random_states(state, tmp_path):
    wf.save(tmp_path / "c", {}, {"weft.checkpoint": "1", "state": json.dumps(WHOLE | {"random": state})})
    before = wf.random.get_state()
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        wf.checkpoint.load(tmp_path / "c")
    assert wf.random.get_state() == before
