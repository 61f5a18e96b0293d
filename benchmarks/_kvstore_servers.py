"""What benchmarks/kvstore.py runs on Ray: 4 MiB push and pull by two workers, raw actors and the store, in turn."""

import json
import sys
import time

import numpy as np

import weft as wf
import weft.optimizer as optim
from weft.kvstore.ray_cluster import connect

SIZE = 1 << 20


def raw(repeats):
    """Actors that do the same without a store: w -= 0.1 g."""
    ray = connect()

    @ray.remote(num_cpus=0.1)
    class Server:
        def __init__(self):
            self.w = np.zeros(SIZE, "float32")

        def push(self, g):
            self.w -= np.float32(0.1) * g

        def pull(self):
            return self.w

    @ray.remote(num_cpus=0.1)
    class Worker:
        def rounds(self, server, count):
            g = np.ones(SIZE, "float32")
            for _ in range(count):
                ray.get(server.push.remote(g))
                ray.get(server.pull.remote())

    server = Server.remote()
    workers = [Worker.remote() for _ in range(2)]
    ray.get([w.rounds.remote(server, 2) for w in workers])
    for _ in range(repeats):
        begin = time.perf_counter()
        ray.get([w.rounds.remote(server, 5) for w in workers])
        print(json.dumps({"name": "raw", "times": [(time.perf_counter() - begin) / 5]}), flush=True)


def store(repeats):
    """Run by each worker of a job."""
    kv = wf.kvstore.create("dist_async")
    value, out = wf.ones(SIZE), wf.zeros(SIZE)
    kv.init("w", value)
    kv.set_optimizer(optim.SGD([value], lr=0.1))

    def rounds(count):
        for _ in range(count):
            kv.push("w", value)
            kv.pull("w", out)
            out.wait()

    rounds(2)
    for _ in range(repeats):
        kv.barrier()
        begin = time.perf_counter()
        rounds(5)
        kv.barrier()
        if kv.rank == 0:
            print(json.dumps({"name": "store", "times": [(time.perf_counter() - begin) / 5]}), flush=True)


if __name__ == "__main__":
    {"raw": raw, "store": store}[sys.argv[1]](int(sys.argv[2]))
