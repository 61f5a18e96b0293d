"""Trains one small convolutional network in three ways: eagerly, traced, and as a symbol.

The data are scikit-learn's digits: 1797 handwritten ones, 8 by 8. All three ways begin with the same weights and see
the same batches in the same order, so their losses agree up to rounding, dropout included.

    eager    Python calls operators, each runs as soon as it can
    traced   the same function under wf.trace: forward, backward and the update are one program
    symbol   the network as an expression, bound to arrays by an executor

Each writes what it needs to go on into one file after every epoch, and when it is stopped with Ctrl-C. Started again,
it goes on from there, to the very same numbers.

    python examples/digits.py [--epochs 12] [--device cpu:0] [--out build/demo] [--fresh] [--stop-after STEPS]
"""

import argparse
import itertools
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits

import weft as wf
import weft.data as data
import weft.functional as F
import weft.module as M
import weft.optimizer as optim
import weft.symbol as sym
from weft import storage

OUT = Path(__file__).resolve().parents[1] / "build" / "demo"
BATCH = 32
TRAINED = 45 * BATCH  # images; the others, 7 * 51, are held out
BATCH_HELD_OUT = 51
LEAST_ACCURACY = 0.97
ROUNDING = 1e-4  # how far losses of two ways may be apart

# -- data --


def digits():
    """Images f32[n,1,8,8] in 0..1 and labels i64[n], in an order of their own: those to train on, those held out."""
    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    images = bunch.images[order, None].astype("float32") / 16
    labels = bunch.target[order].astype("int64")
    return (images[:TRAINED], labels[:TRAINED]), (images[TRAINED:], labels[TRAINED:])


# -- the network, once as a module and once as a symbol --

# Its functions are smooth, and averages take the place of maxima: what differs by a rounding stays that near.


class Net(M.Module):
    """Two convolutions and a linear layer."""

    def __init__(self):
        self.conv1, self.norm1 = M.Conv2d(1, 16, 3, padding=1, bias=False), M.BatchNorm2d(16)
        self.conv2, self.norm2 = M.Conv2d(16, 32, 3, padding=1, bias=False), M.BatchNorm2d(32)
        self.drop, self.dense = M.Dropout(0.2), M.Linear(32 * 2 * 2, 10)

    def forward(self, x):
        h = F.avg_pool2d(F.silu(self.norm1(self.conv1(x))), 2)
        h = F.avg_pool2d(F.silu(self.norm2(self.conv2(h))), 2)
        return self.dense(self.drop(F.flatten(h, 1)))


def network():
    """The same as symbols: scores and loss. Weights make themselves, by the names of their operators."""
    h = F.conv2d(sym.var("images"), bias=None, out_channels=16, kernel_size=3, padding=1, name="conv1")
    h = F.avg_pool2d(F.silu(F.batch_norm(h, name="norm1")), 2)
    h = F.conv2d(h, bias=None, out_channels=32, kernel_size=3, padding=1, name="conv2")
    h = F.avg_pool2d(F.silu(F.batch_norm(h, name="norm2")), 2)
    scores = F.linear(F.dropout(F.flatten(h, 1), 0.2), out_features=10, name="dense")
    return scores, F.cross_entropy(scores, sym.var("labels"), name="loss")


# -- the three ways --


class Eager:
    """Python calls each operator, at every step."""

    def __init__(self):
        self.model = Net()
        self.optimizer = make_optimizer(self.model.parameters())
        self.manager = wf.GradManager().attach(self.model.parameters())

    def step(self, images, labels):
        with self.manager:
            loss = F.cross_entropy(self.model(images), labels)
            self.manager.backward(loss)
        self.optimizer.step().clear_grad()
        return loss

    def predict(self, images):
        self.model.eval()
        scores = self.model(images)
        self.model.train()
        return scores


class Traced(Eager):
    """The same Python runs once; from then on a step is one program.

    lazy: the program computes the first step, too. So the numbers do not depend on which step of the training happens
    to be the first of this process.
    """

    def __init__(self):
        super().__init__()
        self.step = wf.trace(self.step, strict=True, lazy=True)


class Symbolic:
    """The network is an expression: its shapes are inferred, arrays are bound to it, and an executor runs it."""

    def __init__(self):
        self.scores, loss = network()
        names = [name for name in loss.list_arguments() if name not in ("images", "labels")]
        self.trainer = loss.simple_bind(images=(BATCH, 1, 8, 8), grad_req=dict.fromkeys(names, "write"))
        self.model = Weights(self.trainer, names)
        self.model.load_state_dict({name.replace(".", "_"): x for name, x in Net().state_dict().items()})
        for name, weight in self.model.trained.items():
            weight.grad = self.trainer.grad_dict[name]  # which backward writes
        self.optimizer = make_optimizer(self.model.trained.values())

    def step(self, images, labels):
        (loss,) = self.trainer.forward(is_train=True, images=images, labels=labels)
        self.trainer.backward()
        self.optimizer.step()
        return loss

    def predict(self, images):
        given = {**self.model.trained, "images": images}
        return self.scores.bind(args=given, grad_req="null", aux_states=self.trainer.aux_dict).forward()[0]


class Weights:
    """An executor's weights and running statistics, as checkpoints want them."""

    def __init__(self, executor, names):
        self.executor, self.trained = executor, {name: executor.arg_dict[name] for name in names}

    def state_dict(self):
        return {**self.trained, **self.executor.aux_dict}

    def load_state_dict(self, state):
        self.executor.copy_params_from(
            {name: state[name] for name in self.trained},
            {name: state[name] for name in self.executor.aux_dict},
        )


WAYS = {"eager": Eager, "traced": Traced, "symbol": Symbolic}


def make_optimizer(weights):
    return optim.SGD(weights, lr=0.03, momentum=0.9, weight_decay=1e-4)


# -- training, which can be stopped and goes on --


class Stop:
    """Asked for by SIGINT, or after a number of steps; the step that runs is finished first. A second SIGINT kills."""

    def __init__(self, after=None):
        self.steps_left, self.asked = after, False
        signal.signal(signal.SIGINT, self.ask)

    def ask(self, *_):
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def after_step(self):
        if self.steps_left is not None:
            self.steps_left -= 1
            self.asked = self.asked or self.steps_left <= 0
        return self.asked


class Run:
    """One way's training: what is trained, what came out so far, and the file that holds both."""

    def __init__(self, make_way, epochs, path, device):
        wf.random.seed(0)  # so that every way begins with the same weights and drops the same values
        way = self.way = make_way()
        self.epochs, self.path = epochs, path
        train_set, held_out = digits()
        self.labels = held_out[1]
        self.loader = data.DataLoader(
            data.ArrayDataset(*train_set), batch_size=BATCH, shuffle=True, seed=0, device=device
        )
        self.held_out = data.DataLoader(
            data.ArrayDataset(*held_out), batch_size=BATCH_HELD_OUT, device=device
        )
        self.schedule = optim.lr_scheduler.CosineAnnealingLR(way.optimizer, t_max=epochs * len(self.loader))
        self.parts = {"model": way.model, "optimizer": way.optimizer}
        self.parts |= {"schedule": self.schedule, "loader": self.loader}
        self.record = {"epochs": epochs, "losses": [], "accuracies": [], "predictions": [], "stretches": []}
        self.record |= {"array_bytes": 0, "resident_bytes": 0}
        if path.exists():
            self.record = wf.checkpoint.load(path, **self.parts)

    def train(self, stop, on_step):
        """Train until the last epoch is over, or until stop."""
        while self.loader.epoch < self.epochs and not stop.asked:
            losses, started = [], time.perf_counter()
            for images, labels in self.loader:
                losses.append(self.way.step(images, labels))
                self.schedule.step()
                losses[-2:][0].item()  # waits: one step is computed while the next one is queued, no more
                if len(losses) == 1:
                    storage.reset_peaks(
                        wf.current_device()
                    )  # planning the first step takes more than running the others
                on_step()
                if stop.after_step():
                    break
            self.record["losses"] += [loss.item() for loss in losses]
            self.record["stretches"].append([len(losses) * BATCH, time.perf_counter() - started])
            self.note("array_bytes", wf.device.memory()["peak_in_use_bytes"])
            self.note("resident_bytes", resident_bytes())
            if self.loader.epoch > len(self.record["accuracies"]):
                found = np.concatenate([self.way.predict(x).numpy().argmax(1) for x, _ in self.held_out])
                self.record["predictions"] = found.tolist()
                self.record["accuracies"].append(float(np.mean(found == self.labels)))
            wf.checkpoint.save(self.path, self.record, **self.parts)

    def note(self, what, value):
        self.record[what] = max(self.record[what], value)


def resident_bytes():
    """Physical memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- what came out --


def check(records):
    """The ways agree, and have learnt. Returns the greatest difference of their losses."""
    losses = np.array([record["losses"] for record in records.values()])
    apart = float(np.ptp(losses, axis=0).max())
    if not apart <= ROUNDING:
        sys.exit(f"wrong: losses of one step differ by {apart:.1e}, more than {ROUNDING}")
    for name, record in records.items():
        accuracy = record["accuracies"][-1]
        if accuracy < LEAST_ACCURACY:
            sys.exit(f"wrong: {name}: {accuracy:.1%} of the held-out images, less than {LEAST_ACCURACY:.0%}")
    return apart


def table(records):
    made = Table("", "seconds", "images/s", "arrays MB", "resident MB", "last loss", "held out")
    for name, record in records.items():
        made.add_row(
            name,
            f"{sum(seconds for _, seconds in record['stretches']):.1f}",
            f"{max(images / seconds for images, seconds in record['stretches']):.0f}",
            f"{record['array_bytes'] / 1e6:.1f}",
            f"{record['resident_bytes'] / 1e6:.0f}",
            f"{record['losses'][-1]:.6f}",
            f"{record['accuracies'][-1]:.1%}",
        )
    return made


def draw_curves(records, path):
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for width, (name, record) in zip((6, 3, 1), records.items(), strict=True):  # they lie on each other
        epochs = np.arange(1, record["epochs"] + 1)
        steps = np.linspace(0, record["epochs"], len(record["losses"]))
        left.plot(steps, record["losses"], linewidth=width, label=name)
        right.plot(epochs, record["accuracies"], linewidth=width, marker="o", label=name)
    left.set(title="loss of each batch", xlabel="epoch", yscale="log")
    right.set(title="accuracy on held-out images", xlabel="epoch")
    right.yaxis.set_major_formatter(PercentFormatter(1))
    left.legend()
    figure.savefig(path, dpi=120)


def draw_predictions(record, path, rows=6, columns=12):
    """Held-out images, the wrong ones first and in red: what was taken for what."""
    _, (images, truth) = digits()
    found = np.array(record["predictions"])
    order = np.argsort(found == truth, kind="stable")
    figure = Figure(figsize=(columns, 1.25 * rows), layout="constrained")
    for k, ax in zip(order, figure.subplots(rows, columns).flat, strict=False):
        right = found[k] == truth[k]
        text = f"{found[k]}" if right else f"{found[k]}, is {truth[k]}"
        ax.imshow(images[k, 0], cmap="gray_r")
        ax.set_title(text, color="black" if right else "red")
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_color("lightgray" if right else "red")
    wrong = int((found != truth).sum())
    figure.suptitle(f"{len(truth)} held-out images, {wrong} wrong" + ", the wrong ones first" * (wrong > 0))
    figure.savefig(path, dpi=120)


def report(records, out):
    apart, console = check(records), Console()
    console.print(table(records))
    steps = len(records["eager"]["losses"])
    console.print(f"losses of one step differ by {apart:.1e} at most, over {steps} steps")
    draw_curves(records, out / "curves.png")
    draw_predictions(records["eager"], out / "predictions.png")
    network()[1].draw(out / "network.svg", images=(BATCH, 1, 8, 8))
    console.print(f"written to {shown(out)}: curves.png, predictions.png, network.svg, records as JSON")


def shown(path):
    """A path, short if it is below the current folder."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


# -- the program --


def train(name, epochs, paths, stop_after, device):
    """Train one way until its record is written; if stopped before, the end of the process."""
    with wf.device(device):
        train_here(name, epochs, paths, stop_after)


def train_here(name, epochs, paths, stop_after):
    unfinished, finished = paths
    if wf.device.name() == "stand-in":
        print(f"{wf.current_device()} is the stand-in for a GPU, on the processor: its times say nothing")
    stop = Stop(stop_after)
    run = Run(WAYS[name], epochs, unfinished, wf.current_device())
    check_epochs(run.record, epochs, unfinished)
    bars = (TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"))
    with Progress(*bars, TimeElapsedColumn()) as progress:
        done, steps = len(run.record["losses"]), epochs * len(run.loader)
        bar = progress.add_task(name, total=steps, completed=done)
        run.train(stop, lambda: progress.advance(bar))
    if run.loader.epoch < epochs:
        done = len(run.record["losses"])
        sys.exit(f"stopped: {name}, {done} of {steps} steps; the same command goes on from here")
    finished.write_text(json.dumps(run.record))
    unfinished.unlink()


def alone(function, *given):
    """Run a function in a process of its own, so that its memory can be told. Returns the exit status.

    Ctrl-C and SIGTERM reach this process, which passes them on, so that it does not matter to whom they are sent.
    """
    process = multiprocessing.get_context("fork").Process(target=apart, args=(function, *given))

    def pass_on(*_):
        if process.is_alive():
            os.kill(process.pid, signal.SIGINT)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    process.start()
    process.join()
    for number, handler in before.items():
        signal.signal(number, handler)
    return process.exitcode


def apart(function, *given):
    os.setpgid(0, 0)  # Ctrl-C reaches the process that waits for this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    function(*given)


def end_with_parent():
    """So that nobody goes on training when the process that was started is killed."""
    multiprocessing.parent_process().join()
    os._exit(1)


def train_all(arguments):
    """The records of all ways."""
    paths = {name: (arguments.out / f"{name}.unfinished", arguments.out / f"{name}.json") for name in WAYS}
    if arguments.fresh or all(finished.exists() for _, finished in paths.values()):
        for path in itertools.chain(*paths.values()):
            path.unlink(missing_ok=True)
    records = {}
    for name, (unfinished, finished) in paths.items():
        if not finished.exists():
            given = (name, arguments.epochs, (unfinished, finished), arguments.stop_after, arguments.device)
            if status := alone(train, *given):
                sys.exit(status)
        records[name] = json.loads(finished.read_text())
        check_epochs(records[name], arguments.epochs, finished)
    return records


def check_epochs(record, epochs, path):
    if record["epochs"] != epochs:
        sys.exit(f"{path} is of --epochs {record['epochs']}: go on with that, or begin with --fresh")


def positive(text):
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description="train a network: eagerly, traced, and as a symbol")
    parser.add_argument("--epochs", type=positive, default=12, help="how often images are seen (default: 12)")
    parser.add_argument(
        "--device", default="cpu:0", help="where to train: cpu:0, gpu:0, ... (default: cpu:0)"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder for results (default: build/demo)")
    parser.add_argument("--fresh", action="store_true", help="do not go on with what was stopped")
    parser.add_argument("--stop-after", type=positive, metavar="STEPS", help="stop as if by Ctrl-C")
    arguments = parser.parse_args()

    arguments.out.mkdir(parents=True, exist_ok=True)
    report(train_all(arguments), arguments.out)


if __name__ == "__main__":
    main()
