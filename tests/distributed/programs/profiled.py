"""Three eager and three traced steps of data-parallel training; with "fail" rank 1 raises in the middle."""

import sys

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim

D = wf.distributed
net = D.DataParallel(M.Sequential(M.Linear(8, 8), M.Tanh(), M.Linear(8, 8)))
optimizer = optim.SGD(net.parameters(), lr=0.1)
manager = wf.GradManager().attach(net.parameters())


def step(x):
    with manager:
        loss = F.mean(net(x) ** 2)
        manager.backward(loss)
    optimizer.step().clear_grad()
    return loss


for run in (step, wf.trace(step)):
    for k in range(3):
        run(wf.ones((4, 8))).item()
        wf.tools.mark_step()
        if "fail" in sys.argv and k == 1 and D.rank() == 1:
            raise ValueError("planned")
