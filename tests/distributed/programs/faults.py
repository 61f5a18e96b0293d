"""What one rank does while the others train; the argument says what."""

import os
import sys
import time
from pathlib import Path

import weft as wf

D = wf.distributed
what, folder = sys.argv[1], Path(sys.argv[2])
r = D.rank()
if what == "unread":  # pushes that fail, and that nothing reads
    kv = wf.kvstore.create("dist_sync")
    kv.init(["a", "b", "c"], [wf.zeros(2), wf.zeros(2), wf.tensor([True, False])])
    kv.push("c", wf.tensor([r == 0, False]))
    assert kv.pull("c").numpy().tolist() == [True, False]
    kv.push("ab"[r], wf.ones(2))
    try:
        kv.barrier()
    except wf.EngineError as error:
        (folder / f"error-{r}").write_text(str(error))
    kv.push("a", wf.ones(2))
    kv.push("b", wf.ones(2))
    kv.barrier()
    kv.push("ab"[r], wf.ones(2))
    sys.exit()
if what == "more":  # a rank has one batch more
    net = D.DataParallel(wf.module.Linear(2, 1))
    gm = wf.GradManager().attach(net.parameters())
    for _ in range(2 + r):
        with gm:
            gm.backward(net(wf.ones((1, 2))).sum())
    sys.exit()
D.barrier()
(folder / f"pid-{r}").write_text(str(os.getpid()))
steps = 10**6 if what in ("killed", "stopped") else 20
for step in range(steps):
    (folder / f"step-{r}").write_text(str(step))
    if r == 1 and step == 10:
        if what == "ends":
            break
        if what == "raises":
            raise RuntimeError("out of data")
        if what == "exits":
            sys.exit(3)
    try:
        D.all_reduce(wf.ones(1000)).numpy()
    except wf.EngineError as error:
        (folder / f"error-{r}").write_text(str(error))
        if what == "ends":  # a rank that goes on all the same gets an error each time, and no wait
            try:
                D.all_reduce(wf.ones(1000)).numpy()
            except wf.EngineError:
                (folder / "again").write_text("")
        raise
    time.sleep(0.001)
