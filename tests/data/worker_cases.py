"""Datasets for tests of workers, in a module of their own: worker processes import it."""

import os
import random
import signal
import threading
from pathlib import Path

import numpy as np

import weft as wf
import weft.data as data


class Noisy(data.Dataset):
    """Sample k: an array, k, and random numbers of every kind that follows from (seed, epoch, index or batch)."""

    def __init__(self, size=50):
        self.table = np.arange(size * 100).reshape(size, 100)

    def __len__(self):
        return len(self.table)

    def __getitem__(self, k):
        return {"row": self.table[k], "k": k, "drawn": data.rng().random(3), "name": f"sample {k}"}


class Globals(data.Dataset):
    """What draws from global generators, which worker processes seed for each batch."""

    def __len__(self):
        return 30

    def __getitem__(self, k):
        return random.random(), np.random.random(), float(wf.random.uniform(shape=()))


class Tensors(data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, k):
        return wf.full((2,), k)


class Text(data.StreamDataset):
    def __init__(self, size=23):
        self.size = size

    def __iter__(self):
        return iter(range(self.size))


def double_with_noise(x):
    return 2 * x, data.rng().integers(1000)


class Failing(data.Dataset):
    """Raises for one sample; kind: the exception's class."""

    def __init__(self, kind=ValueError, bad=13):
        self.kind, self.bad = kind, bad

    def __len__(self):
        return 40

    def __getitem__(self, k):
        if k == self.bad:
            raise self.kind("the value is bad")
        return k


class Unpicklable(Exception):
    def __init__(self, a, b):
        super().__init__(a)


def unpicklable(text):
    return Unpicklable(text, 1)


class Bomb:
    """An array that ends its worker when it is pickled."""

    def __init__(self, array):
        self.array = array

    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)


STAGES = ["unpickle", "getitem", "transform", "collate", "pickle", "exit", "hang"]


class Deadly(data.Dataset):
    """Ends its worker where the plan, {stage: samples}, says so: once each, which files in the folder remember."""

    def __init__(self, folder, plan=None, size=24):
        self.folder, self.plan, self.size = str(folder), plan or {}, size

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.reach("unpickle", 0)

    def __len__(self):
        return self.size

    def __getitem__(self, k):
        self.reach("getitem", k)
        if self.first_time("exit", k):
            os._exit(7)
        if self.first_time("hang", k):
            os.kill(os.getpid(), signal.SIGSTOP)
        return k

    def first_time(self, stage, k):
        if k not in self.plan_now().get(stage, ()):
            return False
        try:
            (Path(self.folder) / f"{stage}-{k}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def plan_now(self):
        path = Path(self.folder) / "plan"
        return eval(path.read_text()) if path.exists() else self.plan

    def reach(self, stage, k):
        if self.first_time(stage, k):
            os.kill(os.getpid(), signal.SIGKILL)

    def transform(self, k):
        self.reach("transform", k)
        return k

    def collate(self, samples):
        for k in samples:
            self.reach("collate", k)
        batch = np.array(samples)
        return Bomb(batch) if self.first_time("pickle", samples[0]) else batch


class Blocking(data.Dataset):
    """Prints the worker's process and never returns, from sample 4 on."""

    def __len__(self):
        return 20

    def __getitem__(self, k):
        if k >= 4:
            print(f"blocked {os.getpid()}\n", end="", flush=True)  # one write
            threading.Event().wait()
        return k


class Sleeping(data.Dataset):
    """Blocks in one sample until a file appears."""

    def __init__(self, release):
        self.release = release

    def __len__(self):
        return 8

    def __getitem__(self, k):
        if k == 3 and not self.release.is_set():
            self.release.wait()
        return k


class AlwaysEnding(data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, k):
        if k == 2:
            os._exit(3)
        return k


class Dividing(data.StreamDataset):
    """Divides itself by worker_info, as datasets of other libraries do."""

    def __iter__(self):
        info = data.worker_info()
        first, step = (info.number, info.workers) if info else (0, 1)
        yield from range(first, 20, step)


class Own(Exception):
    """Its constructor takes other arguments than it passes on."""

    def __init__(self, code, *, reason):
        super().__init__(f"{reason} ({code})")
        self.code = code


class Raising(data.Dataset):
    def __init__(self, kind):
        self.kind = kind

    def __len__(self):
        return 4

    def __getitem__(self, k):
        if k == 2:
            raise Own(7, reason="out of paper") if self.kind == "own" else StopIteration
        return k
