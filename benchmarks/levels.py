"""Native kernels at each instruction set level: beside their decompositions, and beside PyTorch and NumPy.

    ./dev bench levels [NAME ...] [--peers] [--levels avx2 ...] [--quick] [--write] [--json FILE]

A kernel that takes longer than its decomposition, in the geometric mean of its rows, is not offered at that level:
--write puts the ratios into src/weft/kernels/offers.py, where operators look them up. NAME: only rows of such kernels.

Each side of each level is a process of its own with one thread. Sides take turns; the shortest call of all turns
counts. (Not processor time: the kernel adds that of a thread on another core only when the thread is switched.)
PyTorch is capped by ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA, and MKL, which it
calls, by MKL_ENABLE_INSTRUCTIONS (which MKL does not heed on every processor); NumPy by NPY_DISABLE_CPU_FEATURES.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import _environments as environments
from _machine import CAPS

OFFERS = environments.ROOT / "src" / "weft" / "kernels" / "offers.py"
LIMIT_S = 600.0
ONE_THREAD = {"WEFT_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Case(NamedTuple):
    """One row. kernel: whose offer it decides; operators: the classes whose kernels are left out for the decomposition,
    () if there is none; bar: the largest ratio to the peer that will do."""

    kernel: str
    name: str
    peer: str  # "torch", "numpy" or ""
    bar: float
    shape: tuple[Any, ...]
    operators: tuple[str, ...] = ()


def cases() -> Iterator[Case]:
    forward = ("ScaledDotProductAttention",)
    both = (*forward, "ScaledDotProductAttentionGradient")
    shapes = [(1, 8, 1024, 64, True), (2, 8, 512, 64, False), (8, 3, 197, 64, False), (8, 4, 64, 64, False)]
    for dtype in ("float32", "bfloat16"):
        for *shape, causal in shapes:
            text = f"{'x'.join(map(str, shape))}{' causal' * causal} {dtype}"
            what = (*shape, causal, dtype)
            yield Case("attention", f"attention {text}", "torch", 1.05, what, forward)
            yield Case("attention_backward", f"attention, gradient {text}", "torch", 1.05, what, both)
    for shape in [(35, 20, 256, 256), (10, 64, 128, 128), (64, 1, 256, 256)]:
        text = "x".join(map(str, shape))
        yield Case("lstm", f"lstm {text}", "torch", 1.0, shape, ("Lstm",))
        yield Case("lstm_backward", f"lstm, gradient {text}", "torch", 1.0, shape, ("Lstm", "LstmGradient"))
    for shape in [(1, 1000000), (1000, 1000), (10000, 64)]:
        for dtype in ("float32", "float64", "int32", "int64", "int16"):
            text = f"{'x'.join(map(str, shape))} {dtype}"
            yield Case("sort", f"sort {text}", "numpy", 1.1, (*shape, dtype))
            yield Case("argsort", f"argsort {text}", "numpy", 1.1, (*shape, dtype))
    yield Case("topk", "topk 10 of 1000x1000 float32", "torch", 1.0, (1000, 1000, 10))
    yield Case("dropout", "dropout 1000x1000", "torch", 1.0, (1000, 1000))
    yield Case("masks", "x[mask] 1000x1000", "numpy", 1.0, (1000, 1000))
    yield Case("indices", "take 100000 of 1000x64", "numpy", 1.0, (1000, 64, 100000))


# --- one side: a process at one level -----------------------------------------------------------------------


def array(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Any:
    import numpy as np

    rng = np.random.default_rng(seed)
    if dtype.startswith("int"):
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype)
    return rng.normal(size=shape).astype("float32" if dtype == "bfloat16" else dtype)


class Weft:
    """The native kernels, or, `decomposed`, what the planner makes of the operators without theirs."""

    def __init__(self, decomposed: bool) -> None:
        import weft as wf
        import weft.functional as F

        self.wf, self.F, self.decomposed = wf, F, decomposed

    def tensor(self, shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Any:
        return self.wf.tensor(array(shape, dtype, seed)).astype(dtype)

    def prepare(self, case: Case) -> Callable[[], object]:
        if self.decomposed:
            import weft.ops as ops
            from weft import kernels

            for name in case.operators:
                cls = next(cls for cls in map(ops.registry.get, ops.registry.names()) if cls.__name__ == name)
                cls.kernels = lambda *_: iter(())
                kernels.registered(cls)  # loads those of its family
                kernels._TABLE[cls, "cpu"] = []
        what = case.kernel
        if what.startswith("attention"):
            *shape, causal, dtype = case.shape
            q, k, v, dy = (self.tensor(tuple(shape), dtype, seed) for seed in range(4))
            return self.step(
                what,
                lambda q, k, v: self.F.scaled_dot_product_attention(q, k, v, is_causal=causal),
                dy,
                (q, k, v),
            )
        if what.startswith("lstm"):
            t, n, c, h = case.shape
            shapes = ((t, n, c), (1, n, h), (1, n, h), (4 * h, c), (4 * h, h), (4 * h,), (4 * h,))
            operands = tuple(self.tensor(shape, seed=k) * 0.1 for k, shape in enumerate(shapes))
            return self.step(what, lambda *o: self.F.lstm(*o)[0], self.tensor((t, n, h)), operands)
        return self.other(case)

    def step(self, what: str, function: Any, dy: Any, operands: tuple[Any, ...]) -> Callable[[], object]:
        if what.endswith("_backward"):
            numbers = tuple(range(len(operands)))
            both = self.wf.value_and_grad(lambda *o: self.F.sum(function(*o) * dy), numbers)
            step = self.wf.trace(lambda *o: both(*o)[1])
        else:
            step = self.wf.trace(lambda *o: (function(*o),))
        return lambda: [x.wait() for x in step(*operands)]

    def other(self, case: Case) -> Callable[[], object]:
        wf, F = self.wf, self.F
        if case.kernel in ("sort", "argsort"):
            *shape, dtype = case.shape
            x, function = self.tensor(tuple(shape), dtype), getattr(wf, case.kernel)
            return lambda: function(x).wait()
        x = self.tensor(case.shape[:2])
        if case.kernel == "topk":
            return lambda: F.topk(x, case.shape[2])[0].wait()
        if case.kernel == "dropout":
            return lambda: F.dropout(x, 0.5).wait()
        if case.kernel == "indices":
            at = wf.tensor(array((case.shape[2],), "int64") % case.shape[0])
            return lambda: wf.take(x, at, axis=0).wait()
        mask = x > 0
        return lambda: x[mask].wait()


class Torch:
    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self.torch = torch

    def tensor(self, shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Any:
        return self.torch.from_numpy(array(shape, dtype, seed)).to(getattr(self.torch, dtype))

    def prepare(self, case: Case) -> Callable[[], object]:
        torch, F = self.torch, self.torch.nn.functional
        backward = case.kernel.endswith("_backward")
        if case.kernel.startswith("attention"):
            *shape, causal, dtype = case.shape
            q, k, v, dy = (self.tensor(tuple(shape), dtype, seed) for seed in range(4))
            return self.step(
                lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
                dy,
                [q, k, v] if backward else [],
            )
        if case.kernel.startswith("lstm"):
            t, n, c, h = case.shape
            layer, x = torch.nn.LSTM(c, h), self.tensor((t, n, c)) * 0.1
            state = [torch.zeros(1, n, h, requires_grad=backward) for _ in range(2)]
            leaves = [x, *state, *layer.parameters()] if backward else []
            return self.step(lambda: layer(x, tuple(state))[0], self.tensor((t, n, h)), leaves)
        x = self.tensor(case.shape[:2])
        if case.kernel == "topk":
            return lambda: torch.topk(x, case.shape[2])
        return lambda: F.dropout(x, 0.5)

    def step(self, function: Callable[[], Any], dy: Any, leaves: list[Any]) -> Callable[[], object]:
        for x in leaves:
            x.requires_grad_()

        def run() -> object:
            with self.torch.set_grad_enabled(bool(leaves)):
                y = function()
                return self.torch.autograd.grad(y, leaves, dy) if leaves else y

        return run


class Numpy:
    def prepare(self, case: Case) -> Callable[[], object]:
        import numpy as np

        if case.kernel == "sort":
            x = array(case.shape[:2], case.shape[2])
            return lambda: np.sort(x)
        if case.kernel == "argsort":  # weft's are always stable
            x = array(case.shape[:2], case.shape[2])
            return lambda: np.argsort(x, kind="stable")
        x = array(case.shape[:2])
        if case.kernel == "indices":
            at = array((case.shape[2],), "int64") % case.shape[0]
            return lambda: np.take(x, at, axis=0)
        mask = x > 0
        return lambda: x[mask]


def side(name: str, budget_s: float) -> None:
    """Reads indices of cases, a line each, and answers with the shortest time of a call, in milliseconds."""
    make = {"native": lambda: Weft(False), "decomposed": lambda: Weft(True), "torch": Torch, "numpy": Numpy}[
        name
    ]
    worker, all_cases, runs = make(), list(cases()), {}
    for line in sys.stdin:
        number = int(line)
        if number not in runs:
            runs[number] = worker.prepare(all_cases[number])
            runs[number](), runs[number]()
        run, best, end = runs[number], math.inf, time.perf_counter() + budget_s
        while True:
            begin = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - begin)
            if time.perf_counter() > end:
                break
        print(json.dumps(best * 1e3), flush=True)


# --- the table ----------------------------------------------------------------------------------------------


class Side:
    """A process of one side at one level."""

    def __init__(self, name: str, level: str, budget_s: float) -> None:
        python = environments.python_of("torch") if name == "torch" else sys.executable
        environment = {k: v for k, v in os.environ.items() if not any(k in cap for cap in CAPS.values())}
        self.process = subprocess.Popen(
            [python, __file__, "--side", name, "--budget", str(budget_s)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment | ONE_THREAD | CAPS[level],
        )  # fmt: skip

    def ask(self, number: int) -> float:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit("levels: a side ended; its message is above")
        return float(json.loads(answer))

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def measure(
    level: str, numbers: list[int], peers: bool, turns: int, budget_s: float
) -> dict[int, dict[str, float]]:
    """Milliseconds of each side of each case."""
    all_cases = list(cases())
    results: dict[int, dict[str, float]] = {number: {} for number in numbers}
    sides: dict[str, Side] = {}
    try:
        for _ in range(turns):
            for number in numbers:
                case = all_cases[number]
                names = ["native", *["decomposed"] * bool(case.operators), *[case.peer] * peers]
                for name in names:
                    if name not in sides:
                        sides[name] = Side(name, level, budget_s)
                    took = sides[name].ask(number)
                    results[number][name] = min(took, results[number].get(name, math.inf))
    finally:
        for process in sides.values():
            process.close()
    return results


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def show(level: str, results: dict[int, dict[str, float]]) -> list[dict[str, object]]:
    all_cases, lines = list(cases()), []
    print(
        f"\n{level:48}{'native':>9}{'decomposed':>11}{'ratio':>7}{'peer':>9}{'ratio':>7}  bar   milliseconds"
    )
    for number, times in results.items():
        case = all_cases[number]
        ours, other, peer = times["native"], times.get("decomposed"), times.get(case.peer)
        text = f"{case.name:48}{ours:9.3f}"
        text += f"{other:11.3f}{ours / other:7.2f}" if other else " " * 18
        if peer:
            holds = ours / peer <= case.bar
            text += f"{peer:9.3f}{ours / peer:7.2f}  {case.bar:4.2f} {'yes' if holds else 'NO'}"
        print(text, flush=True)
        lines.append({"level": level, "name": case.name, "kernel": case.kernel, **times})
    return lines


def write_offers(ratios: dict[str, dict[str, float]], machine: object) -> None:
    """Replaces the ratios of what was measured in OFFERS."""
    text = OFFERS.read_text()
    begin, end = text.index("RATIOS:"), text.index("\n}\n") + 3
    namespace: dict[str, Any] = {}
    exec(text[begin:end].replace("RATIOS: dict[str, dict[str, float]]", "RATIOS"), namespace)
    merged = namespace["RATIOS"]
    for kernel, by_level in ratios.items():
        merged.setdefault(kernel, {}).update(by_level)
    lines = []
    for kernel, by_level in sorted(merged.items()):
        numbers = ", ".join(f'"{level}": {by_level[level]:.2f}' for level in CAPS if level in by_level)
        lines.append(f'    "{kernel}": {{{numbers}}},\n')
    body = "".join(lines)
    OFFERS.write_text(f"{text[:begin]}RATIOS: dict[str, dict[str, float]] = {{\n{body}}}\n{text[end:]}")
    print(f"written: {OFFERS.relative_to(environments.ROOT)} ({machine})")


def main() -> None:
    parser = argparse.ArgumentParser(description="native kernels at each instruction set level")
    parser.add_argument("names", nargs="*", help="kernels; default: all")
    parser.add_argument("--peers", action="store_true", help="beside PyTorch and NumPy as well")
    parser.add_argument("--levels", nargs="+", choices=list(CAPS), help="default: all that the machine has")
    parser.add_argument("--quick", action="store_true", help="one short turn: to see that it works")
    parser.add_argument("--write", action="store_true", help="write the ratios where operators look them up")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        return side(arguments.side, arguments.budget)

    from _table import introduce

    from weft import _core

    all_cases = list(cases())
    kernels = sorted({case.kernel for case in all_cases})
    if unknown := set(arguments.names) - set(kernels):
        parser.error(f"no kernel {', '.join(sorted(unknown))}; there are {', '.join(kernels)}")
    numbers = [k for k, case in enumerate(all_cases) if not arguments.names or case.kernel in arguments.names]
    if arguments.quick:  # one row of each
        first = {all_cases[k].kernel: k for k in reversed(numbers)}
        numbers = sorted(first.values())
    if arguments.peers:
        environments.make("torch")
    facts = introduce()
    most = list(CAPS).index(_core.isa()[0])
    levels = [
        level for level in CAPS if list(CAPS).index(level) <= most and level in (arguments.levels or CAPS)
    ]
    ratios: dict[str, dict[str, float]] = {}
    lines, held_count, missed = [], 0, 0
    for level in levels:
        turns, budget_s = (1, 0.05) if arguments.quick else (3, 0.3)
        results = measure(level, numbers, arguments.peers, turns, budget_s)
        lines += show(level, results)
        for kernel in kernels:
            kernel_times = [
                results[k] for k in numbers if all_cases[k].kernel == kernel and all_cases[k].operators
            ]
            if kernel_times:
                ratio = geometric_mean([times["native"] / times["decomposed"] for times in kernel_times])
                ratios.setdefault(kernel, {})[level] = ratio
        verdicts = [
            times["native"] / times[all_cases[k].peer] <= all_cases[k].bar
            for k, times in results.items()
            if all_cases[k].peer in times
        ]
        held_count, missed = held_count + sum(verdicts), missed + len(verdicts) - sum(verdicts)
    print(f"\n{'native / decomposed':24}" + "".join(f"{level:>8}" for level in levels))
    for kernel, by_level in ratios.items():
        print(f"{kernel:24}" + "".join(f"{by_level[level]:8.2f}" for level in levels))
    if arguments.write:
        write_offers(ratios, facts.get("cpu", ""))
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": facts, "rows": lines}, indent=1) + "\n")
    print(f"\n{held_count} bars hold, {missed} do not")


if __name__ == "__main__":
    main()
