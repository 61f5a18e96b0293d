"""What living with others costs: programs for C beside Python, ONNX beside ONNX Runtime, text beside transformers.

    ./dev bench interop [--peers] [--quick] [--json FILE]

ResNet-50 (one image) and GPT (256 tokens), exported for C: the time of a run over that in Python, the time of a whole
process that loads the folder and runs once, less a run, and what is resident after five runs over the bytes of the
weights. ResNet-50 as ONNX, written by PyTorch: reading, planning and running it once, and a run over ONNX Runtime's. A
Llama of 100 million parameters in a folder that transformers wrote: loading it over reading its bytes; 256 tokens read
(prefill), and 64 written after 16 (decode), greedily, over transformers on PyTorch; both have to choose the same
tokens. Without --peers only the first part. Each way is a process of its own, and they take turns.
"""

import argparse
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import _environments as environments
from _contest import OURS, Arena, Result
from _machine import cores
from _process import Side
from _table import RatioRow, Row, introduce, show, write

HERE = Path(__file__).resolve().parent
BARS = {
    "C / Python": 1.02,
    "start": 150.0,
    "memory": 1.3,
    "import and plan": 1.5,
    "ONNX": 1.05,
    "load": 1.5,
    "prefill": 0.9,
    "decode": 1 / 1.2,
}
LLAMA = environments.FOLDER / "interop" / "llama"


def contest(arena: Arena, workload: str, *ways: tuple[str, str]) -> list[Result]:
    """What each (side, way) took, in turns; SystemExit where one fails or two give different results."""
    results = [Result(workload, "f32", side, way) for side, way in ways]
    arena.contest(results)
    for result in results:
        if result.error:
            raise SystemExit(f"{workload}, {result.way}: {result.error}")
    if len({result.result for result in results}) > 1:
        raise SystemExit(f"{workload}: different results: {[result.result for result in results]}")
    return results


def ratio(name: str, results: list[Result], unit: str, bar: float) -> RatioRow:
    ours, theirs = results
    row = RatioRow(name, unit, bar=bar, times=ours.runs, others=theirs.runs)
    row.note = f"{min(ours.runs) * 1e3:.3g} ms"
    return row


def rows_of_programs(arena: Arena, exports: Path) -> list[Row]:
    rows: list[Row] = []
    for name in ("resnet50", "gpt"):
        run = contest(arena, name, ("c", "C"), (OURS, "Python"))
        rows.append(ratio(f"{name}, C", run, "x Python", BARS["C / Python"]))
        (process,) = contest(arena, f"{name} process", ("c", "C"))
        once = min(run[0].runs)
        start = [(seconds - once) * 1e3 for seconds in process.runs]
        rows.append(Row(f"{name}, C: start", "ms", bar=BARS["start"], times=start))
        memory = Result(name, "f32", "c", "C")
        arena.memory(memory, name)
        if memory.error:
            raise SystemExit(f"{name}: {memory.error}")
        weights = (exports / name / "weights.safetensors").stat().st_size / (1 << 20)
        resident = memory.memory["steady"] - memory.memory["imported"]
        row = Row(f"{name}, C: memory", "x the weights", bar=BARS["memory"], times=[resident / weights])
        row.note = f"{resident:.0f} MiB"
        rows.append(row)
    return rows


def rows_beside_peers(arena: Arena) -> list[Row]:
    (read,) = contest(arena, "ONNX import and plan", (OURS, "imported"))
    infer = Result("resnet50-infer-b1", "f32", "onnxruntime", "session")
    ours = Result("ONNX", "f32", OURS, "imported")
    arena.contest([ours, infer])
    if error := ours.error or infer.error:
        raise SystemExit(f"ONNX: {error}")
    load = contest(arena, "load", (OURS, "from_pretrained"), (OURS, "read"))
    rows: list[Row] = [
        Row("ResNet-50 of ONNX: import, plan, first run", "s", bar=BARS["import and plan"], times=read.runs),
        ratio("ResNet-50 of ONNX", [ours, infer], "x ONNX Runtime", BARS["ONNX"]),
        ratio("Llama of 100 M: load", load, "x reading the file", BARS["load"]),
    ]
    for name in ("prefill", "decode"):
        results = contest(arena, name, (OURS, "TextGenerator"), ("transformers", "generate"))
        rows.append(ratio(f"Llama of 100 M: {name}", results, "x transformers", BARS[name]))
    return rows


def runner(folder: Path) -> tuple[Path, Path]:
    """examples/c/run_program.c, compiled, and the library that it is linked with."""
    flags = subprocess.run(
        [sys.executable, "-m", "weft.info", "--cflags", "--program-libs"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split()
    program = folder / "run_program"
    source = environments.ROOT / "examples" / "c" / "run_program.c"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    subprocess.run([compiler, "-std=c11", "-O2", source, *flags, "-o", program], check=True)
    linked = subprocess.run(["ldd", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    library = next(line.split()[2] for line in linked.splitlines() if "libweft.so" in line)
    return program, Path(library)


def prepare_peers() -> dict[str, Side]:
    """The sides beside which is measured, the models that they have written first."""
    for name in ("torch", "onnxruntime", "interop/transformers"):
        environments.make(name)
    environments.export_models()
    transformers = Side(
        environments.python_of("interop/transformers"),
        environments.PEERS / "interop" / "transformers_side.py",
    )
    if not (LLAMA / "model.safetensors").exists():
        subprocess.run([*transformers, LLAMA], check=True)
    onnxruntime = Side(environments.python_of("onnxruntime"), environments.PEERS / "onnxruntime_side.py")
    return {"transformers": transformers, "onnxruntime": onnxruntime}


def main() -> None:
    parser = argparse.ArgumentParser(description="benchmark of programs for C, and of other formats")
    parser.add_argument("--peers", action="store_true", help="beside ONNX Runtime and transformers, too")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine and rows there, too")
    arguments = parser.parse_args()
    facts = introduce()
    peers = prepare_peers() if arguments.peers else {}
    ours = Side(Path(sys.executable), HERE / "_interop_weft.py")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([*ours, folder], check=True)
        program, library = runner(folder)
        environment = {
            "BENCH_EXPORTS": name,
            "BENCH_FOLDER": str(LLAMA),
            "BENCH_LIBRARY": str(library),
            "BENCH_MODELS": str(environments.MODELS),
            "BENCH_RUNNER": str(program),
        }
        sides = {OURS: ours, "c": Side(Path(sys.executable), HERE / "_interop_c.py"), **peers}
        turns, seconds = (2, 0.1) if arguments.quick else (8, 0.7)
        arena = Arena(sides, environments.ROOT / "build" / "bench", cores(2), environment, turns, seconds)
        rows = rows_of_programs(arena, folder)
        rows += rows_beside_peers(arena) if arguments.peers else []
    show("interop", rows)
    if arguments.json:
        write(arguments.json, facts, "interop", rows)


if __name__ == "__main__":
    main()
