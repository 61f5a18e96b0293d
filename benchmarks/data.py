"""What loading costs: pictures, records, what the loader adds to a batch, memory, and how long a training waits.

    ./dev bench data [--peers] [--quick] [--only TEXT] [--json FILE]

--peers: MXNet's ImageRecordIter and reader, and PyTorch's DataLoader with Pillow, beside weft, each in a process of its
own that is asked in turn; rows "weft / PEER" are ratios of minima. The workload of pictures is: 512 JPEGs of 256 x 256,
decode, random crop of 224, random flip, normalise, batches of 32 in float32; 2 workers. "Python samples" are made by
Python alone (4096 texts, of which the words are counted and numbered), so what is measured is who else takes the
processes' time.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import _environments as environments
from _data_files import ARRAY_BYTES, BATCH, CROP, LARGE_BYTES, PICTURE_FILE, RECORD_BYTES, make
from _side import Side
from _table import RatioRow, Row, introduce, show, write

HERE = Path(__file__).resolve().parent
CASES = {  # name -> unit, scale, bar
    "pictures": ("us a picture", 1e6, None),
    "small records": (f"ns a record of {RECORD_BYTES} bytes", 1e9, 1e9 / 3e6),
    "large records": (f"us a record of {LARGE_BYTES} bytes", 1e6, None),
    "Python samples": ("us a sample, 2 processes", 1e6, None),
    "threads": (f"us a batch of {ARRAY_BYTES >> 20} MB", 1e6, 30.0),
    "processes": (f"us a batch of {ARRAY_BYTES >> 20} MB", 1e6, 150.0),
}
PEER_BARS = {  # the largest share of the peer's time
    ("pictures", "mxnet"): 1 / 1.15,
    ("pictures", "torch"): 1 / 2.5,
    ("small records", "mxnet"): 1 / 2,
    ("Python samples", "torch"): 1.05,
}
MEMORY_BAR_MB = 200.0
WAITING_BAR = 0.03

MEMORY = """
import json, os, re, sys, tempfile
from pathlib import Path
import weft.data as data
count = int(sys.argv[1])
folder = Path(tempfile.mkdtemp())
with open(folder / "a.idx", "w") as file:
    for begin in range(0, count, 100_000):
        file.writelines(f"{k}\\t{12 * k}\\n" for k in range(begin, min(begin + 100_000, count)))
record = data.recordio.encode(b"abcd")
with open(folder / "a.rec", "wb") as file:
    for begin in range(0, count, 100_000):
        file.write(record * min(100_000, count - begin))
def mb(pid, *names):
    text = Path(f"/proc/{pid}/status").read_text()
    return sum(int(re.search(name + r":\\s+(\\d+)", text)[1]) for name in names) / 1e3
dataset = data.RecordDataset(folder / "a.rec")
loader = data.DataLoader(dataset, batch_size=256, shuffle=True, num_workers=2, mode="process")
batches = iter(loader)
next(batches)
peak = mb(os.getpid(), "VmHWM")
for _ in range(50):
    next(batches)
pids = [os.getpid(), loader._pool._nursery.pid, *(worker.pid for worker in loader._pool._workers)]
print(json.dumps([peak, *(mb(pid, "RssAnon", "RssShmem") for pid in pids)]))  # pages of files are not the loader's
for name in ("a.idx", "a.rec"):
    (folder / name).unlink()
"""

WAITING = """
import json, sys, time
import numpy as np
import weft as wf, weft.data as data, weft.functional as F, weft.optimizer as optim
from weft import models
from weft.data import transforms as T
path, batch, crop, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
dataset = data.RecordDataset(path, decode="image")
def make():
    return data.DataLoader(dataset, data.InfiniteSampler(data.RandomSampler(len(dataset), 0)), batch_size=batch,
                           transform=T.Normalize(crop=(crop, crop), mirror=0.5), num_workers=2)
net = models.resnet18(10)
opt = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
gm = wf.GradManager().attach(net.parameters())
@wf.trace
def step(x, y):
    with gm:
        loss = F.cross_entropy(net(x), y)
        gm.backward(loss)
    opt.step().clear_grad()
    return loss
def run(loader, steps, train):
    batches = iter(loader)
    for _ in range(2):
        x, y = next(batches)
        y = wf.tensor(y.numpy().astype("int64"))
        if train: step(x, y).wait()
    stats = loader.stats
    before, start = stats.waited_s, time.perf_counter()
    for _ in range(steps):
        x, y = next(batches)
        if train: step(x, wf.tensor(y.numpy().astype("int64"))).wait()
    total = time.perf_counter() - start
    return total / steps, (stats.waited_s - before) / total
with make() as loader:
    alone, _ = run(loader, steps, False)
with make() as loader:
    together, share = run(loader, steps, True)
print(json.dumps([alone, together, share]))
"""


def python(code: str, *arguments: object) -> list[float]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def memory_row(quick: bool) -> Row:
    count = 100_000 if quick else 10_000_000
    row = Row(f"memory, {count} samples indexed", "MB at most, of each process", bar=MEMORY_BAR_MB)
    row.times = [max(python(MEMORY, count))]
    return row


def waiting_row(quick: bool) -> Row:
    alone, together, share = python(
        WAITING, PICTURE_FILE, 2 if quick else BATCH, 64 if quick else CROP, 2 if quick else 20
    )
    ratio = together / alone
    row = Row("waiting of ResNet-18's training", "of the time", bar=WAITING_BAR if ratio >= 1.5 else None)
    row.times, row.note = [share], f"the loader alone is {ratio:.2f} times as fast as the step"
    return row


def peers() -> dict[str, Side]:
    sides = {}
    for name in ("mxnet", "torch"):
        environments.make(name)
        interpreter = environments.python_of(name)
        if (
            subprocess.run([interpreter, "-c", "import PIL"], stderr=subprocess.DEVNULL).returncode
            and name == "torch"
        ):
            subprocess.run([interpreter, "-m", "pip", "install", "--quiet", "pillow"], check=True)
        sides[name] = Side(interpreter, HERE / "peers" / f"_data_{name}.py")
    return sides


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", action="store_true", help="beside MXNet and PyTorch")
    parser.add_argument("--quick", action="store_true", help="one round, small sizes: whether it runs")
    parser.add_argument("--only", default="", help="rows whose names have this text")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    facts = introduce()
    make()
    sides = {"weft": Side(sys.executable, HERE / "_data_weft.py"), **(peers() if options.peers else {})}
    cases = {name: case for name, case in CASES.items() if options.only in name}
    rows = {
        (name, side): Row(f"{side}: {name}", unit, bar=bar if side == "weft" else None)
        for name, (unit, _, bar) in cases.items()
        for side, process in sides.items()
        if name in process.cases
    }
    for name, (_, scale, _) in cases.items():
        for _ in range(1 if options.quick else 7):
            for side, process in sides.items():
                if name in process.cases:
                    rows[name, side].times.append(process.seconds(name) * scale)
    for process in sides.values():
        process.close()
    table = list(rows.values())
    for (name, side), row in rows.items():
        if side != "weft":
            ours = rows[name, "weft"]
            bar = PEER_BARS.get((name, side))
            table.append(
                RatioRow(f"weft / {side}: {name}", "of its time", None, bar, ours.times, others=row.times)
            )
    if options.only in "memory":
        table.append(memory_row(options.quick))
    if options.only in "waiting":
        table.append(waiting_row(options.quick))
    show("data", table)
    if options.json:
        write(options.json, facts, "data", table)


if __name__ == "__main__":
    main()
