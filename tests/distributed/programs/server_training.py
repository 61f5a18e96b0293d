"""Training by parameter servers; the arguments: kind, a folder, steps. Rank 0 writes what came out to the folder.

In float64, but for compression. EVERY: updates between snapshots.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

import weft as wf
import weft.functional as F
import weft.module as M
import weft.optimizer as optim

kind, folder, steps, *rest = sys.argv[1:]
compression = json.loads(rest[0]) if rest else None
traced_step = len(rest) > 1
kv = wf.kvstore.create(
    kind, servers=2, big=20, snapshots=f"{folder}/snapshots", every=int(os.environ.get("EVERY", "5"))
)
r, n = kv.rank, kv.num_workers
rng = np.random.default_rng(0)
dtype = "float32" if compression else "float64"
X, Y = rng.standard_normal((4 * n, 5)).astype(dtype), rng.standard_normal((4 * n, 3)).astype(dtype)
x, y = wf.tensor(X[4 * r : 4 * r + 4]), wf.tensor(Y[4 * r : 4 * r + 4])
wf.random.seed(0)
net = M.Sequential(M.Linear(5, 8, dtype=dtype), M.Tanh(), M.Linear(8, 3, dtype=dtype))
params = list(net.parameters())
keys = [f"p{k}" for k in range(len(params))]
kv.init(keys, params)
kv.set_optimizer(optim.SGD(params, lr=0.1, momentum=0.5))
if compression:
    kv.set_gradient_compression(compression)
gm = wf.GradManager().attach(params)
kv.pull(keys, params)
Path(folder, f"pid-{r}").write_text(str(os.getpid()))


def gradients(x, y):
    with gm:
        loss = F.mse_loss(net(x), y)
        gm.backward(loss)
    found = [p.grad for p in params]
    for p in params:
        p.grad = None
    return loss, found


losses = []
compute = wf.trace(gradients) if traced_step else gradients
for step in range(int(steps)):
    loss, found = compute(x, y)
    kv.push(keys, found)
    kv.pull(keys, params)
    for p in params:
        p.wait()
    losses.append(loss.item())
    Path(folder, f"step-{r}").write_text(str(step + 1))
np.save(f"{folder}/losses-{r}.npy", losses)
kv.barrier()
kv.pull(keys, params)
if r == min(int(k) for k in kv.server_states()[0]["active"]):
    np.savez(f"{folder}/result.npz", *[p.numpy() for p in params])
    Path(folder, "states").write_text(json.dumps([s["versions"] for s in kv.server_states()]))
print("right", r, flush=True)
