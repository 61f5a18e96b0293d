"""Pushes ones to elements that nobody else pushes to; the servers add them up.

counting.py KIND FOLDER STEPS. sent-PID and done-PID list the elements of this process's pushes, before each push and
after it was acknowledged. A worker that is started again takes other elements, and goes on with the steps left.
"""

import os
import sys
from pathlib import Path

import numpy as np

import weft as wf
import weft.optimizer as optim

kind, folder, steps = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
SIZE = 1 << 14
kv = wf.kvstore.create(kind, servers=2, every=7, staleness=5, big=1000)
rank, pid = kv.rank, os.getpid()


def write(name, text):
    temporary = folder / f".{name}-{pid}"
    temporary.write_text(text)
    os.replace(temporary, folder / name)


value = wf.zeros(SIZE)
kv.init("counter", value)
kv.set_optimizer(optim.SGD([value], lr=1.0))
write(f"pid-{rank}", str(pid))
step_file = folder / f"step-{rank}"
begin = int(step_file.read_text()) if step_file.exists() else 0
starts = len(list(folder.glob(f"sent-{rank}-*")))
for step in range(begin, steps):
    element = ((starts * 3 + rank) * steps + step) % SIZE
    x = np.zeros(SIZE, "float32")
    x[element] = -1
    with open(folder / f"sent-{rank}-{pid}", "a") as file:
        file.write(f"{element}\n")
    kv.push("counter", wf.tensor(x))
    kv.pull("counter", value)
    value.wait()  # the pull comes after the push
    with open(folder / f"done-{rank}-{pid}", "a") as file:
        file.write(f"{element}\n")
    write(f"step-{rank}", str(step + 1))
kv.barrier()
if rank == min(int(k) for k in kv.server_states()[0]["active"]):
    np.savez(folder / "result.npz", kv.pull("counter").numpy())
kv.barrier()
