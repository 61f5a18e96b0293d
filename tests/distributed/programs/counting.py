"""Pushes ones to elements that nobody else pushes to; the servers add them up.

counting.py KIND FOLDER. sent-RANK-PID and done-RANK-PID list the elements of this process's pushes, before each push
and after it was acknowledged. A worker that is started again takes other elements. They go on until the file `stop` has
the number of a step, which is that of all of them: synchronous workers end together.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

import weft as wf
import weft.optimizer as optim

kind, folder = sys.argv[1], Path(sys.argv[2])
SIZE, LIFE = 1 << 16, 400  # elements; of them for each life of a worker
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
step = int(step_file.read_text()) if step_file.exists() else 0
lives = len(list(folder.glob(f"sent-{rank}-*"))) * 3 + rank
begin, stop = step, folder / "stop"
while not (stop.exists() and step >= int(stop.read_text())):
    x, elements = np.zeros(SIZE, "float32"), []
    if step - begin < LIFE:
        elements = [lives * LIFE + step - begin]
        x[elements] = -1
    with open(folder / f"sent-{rank}-{pid}", "a") as file:
        file.writelines(f"{element}\n" for element in elements)
    kv.push("counter", wf.tensor(x))
    kv.pull("counter", value)
    value.wait()  # the pull comes after the push
    with open(folder / f"done-{rank}-{pid}", "a") as file:
        file.writelines(f"{element}\n" for element in elements)
    step += 1
    write(f"step-{rank}", str(step))
    time.sleep(0.01)  # so that its elements last as long as the killing
kv.barrier()
if rank == min(int(k) for k in kv.server_states()[0]["active"]):
    np.savez(folder / "result.npz", kv.pull("counter").numpy())
kv.barrier()
