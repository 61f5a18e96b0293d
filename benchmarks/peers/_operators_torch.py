"""PyTorch's side of benchmarks/ops.py, eager."""

import os

import torch
import torch.nn.functional as tf
from _operators import arrays_of, function_of, serve

torch.set_num_threads(int(os.environ.get("BENCH_THREADS", "2")))


def prepare(operator, size, what, way):
    arrays = arrays_of(operator, size)
    inputs = [torch.from_numpy(a) for a in arrays]
    function = function_of(operator, "torch", {"torch": torch, "tf": tf}, arrays)
    if what == "forward":

        def run():
            with torch.no_grad():
                function(*inputs)

        return run
    wanted = inputs[: operator.differentiable]
    for x in wanted:
        x.requires_grad_()
    dy = torch.ones_like(function(*inputs))
    return lambda: torch.autograd.grad(function(*inputs), wanted, dy)


if __name__ == "__main__":
    serve(prepare)
