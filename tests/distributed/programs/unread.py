"""A worker of parameter servers whose last push fails, and that reads nothing more; arguments: kind, a folder."""

import sys

import weft as wf

kv = wf.kvstore.create(sys.argv[1], snapshots=f"{sys.argv[2]}/snapshots")
kv.init("w", wf.zeros(3))
kv.barrier()
if kv.rank == 0:
    kv.push("w", wf.ones(3)[wf.tensor([7])].sum() * wf.ones(3))  # there is no element 7
print("came to its end")
