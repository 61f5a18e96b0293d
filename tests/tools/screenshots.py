"""Makes the pictures of docs/tools.md anew: ./dev python tests/tools/screenshots.py [NAME ...]. Needs a Chromium."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import weft as wf
import weft.functional as F
import weft.optimizer as optim
from weft.models import GPT, GPTConfig, resnet50

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from tools import browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"


def training(net, loss_of):
    manager, optimizer = wf.GradManager().attach(net.parameters()), optim.Adam(net.parameters(), lr=1e-3)

    @wf.trace
    def train_step(x, y):
        with manager:
            loss = loss_of(net(x), y)
            manager.backward(loss)
        optimizer.step().clear_grad()
        return loss

    return train_step


def recorded(step, x, y, steps=3):
    for _ in range(2):
        step(x, y).wait()
    with wf.tools.profile() as p:
        for _ in range(steps):
            step(x, y).item()
            p.step()
    return p


def resnet():
    x, y = wf.random.normal(0, 1, (2, 3, 224, 224)), wf.tensor([1, 2])
    return recorded(training(resnet50(), F.cross_entropy), x, y)


def eager_steps():
    net = GPT(GPTConfig(layers=3, width=128, vocabulary=1024))
    tokens = wf.asarray(np.random.default_rng(0).integers(0, 1024, (8, 64)))
    manager, optimizer = wf.GradManager().attach(net.parameters()), optim.Adam(net.parameters(), lr=1e-3)
    with wf.tools.profile() as p:
        for _ in range(3):
            with manager:
                loss = F.cross_entropy(F.reshape(net(tokens), (-1, 1024)), F.reshape(tokens, (-1,)))
                manager.backward(loss)
            optimizer.step().clear_grad()
            loss.item()
            p.step()
    return p


def gpt():
    config = GPTConfig()
    tokens = wf.asarray(np.random.default_rng(0).integers(0, config.vocabulary, (4, 64)))

    def loss_of(logits, target):
        return F.cross_entropy(F.reshape(logits, (-1, logits.shape[-1])), F.reshape(target, (-1,)))

    return recorded(training(GPT(config), loss_of), tokens, tokens)


WORKER = """
import weft as wf, weft.module as M, weft.optimizer as optim, weft.functional as F
layers = [M.Sequential(M.Linear(512, 512), M.ReLU()) for _ in range(6)]
net = wf.distributed.DataParallel(M.Sequential(*layers, M.Linear(512, 10)))
manager, optimizer = wf.GradManager().attach(net.parameters()), optim.SGD(net.parameters(), lr=0.1)
x, y = wf.ones((256, 512)), wf.zeros((256,), dtype="int64")

@wf.trace
def step(x, y):
    with manager:
        loss = F.cross_entropy(net(x), y)
        manager.backward(loss)
    optimizer.step().clear_grad()
    return loss

for k in range(4):
    step(x, y).item()
with wf.tools.profile(memory=False) as p:
    for k in range(4):
        step(x, y).item()
        p.step()
rank = wf.distributed.rank()
p.dump(f"rank-{rank}.raw", f"rank {rank}")
"""


def two_workers(folder):
    """The steady part of a job: the page's file."""
    (folder / "worker.py").write_text(WORKER)
    subprocess.run([sys.executable, "-m", "weft.launch", "-n", "2", "worker.py"], cwd=folder, check=True)
    wf.tools.Profile.load(folder / "rank-0.raw", folder / "rank-1.raw").save(folder / "workers.html")
    return folder / "workers.html"


def shot(page, file, name, *prepare):
    page.open(file)
    page.until("window.weft && weft.ready")
    for script in prepare:
        page.run(script)
    assert page.messages == [], page.messages
    page.screenshot(IMAGES / f"{name}.png")
    size = (IMAGES / f"{name}.png").stat().st_size
    assert size < 300_000, f"{name}: {size} bytes"
    print(f"{name}.png: {size // 1024} KiB")


LONGEST = (
    "(() => { let best = -1; D.lanes.forEach(l => { if (l.kind === 'kernel') for (let i = l.first; i < l.last; i++) "
    "if (best < 0 || E.own[i] > E.own[best]) best = i; }); view = [E.start[best] - 6 * E.seconds[best], "
    "E.start[best] + 7 * E.seconds[best]]; clampView(); weft.select(best); })()"
)


STEP = (  # the last one but one
    "(() => { const s = D.steps[D.steps.length - 2], wide = s.end - s.start; "
    "view = [s.start - .02 * wide, s.end + .02 * wide]; clampView(); draw(); })()"
)


def main(names):
    IMAGES.mkdir(exist_ok=True)
    wanted = set(names)

    def is_wanted(name):
        return not wanted or name in wanted

    with tempfile.TemporaryDirectory() as temporary, browser.Page(1280, 760) as page:
        folder = Path(temporary)
        if is_wanted("resnet"):
            resnet().save(folder / "resnet.html")
            shot(page, folder / "resnet.html", "profile-resnet50", LONGEST)
            shot(page, folder / "resnet.html", "profile-tables", "weft.show('tables')")
            eager_steps().save(folder / "eager.html")
            shot(page, folder / "eager.html", "profile-memory", "weft.show('memory')")
        if is_wanted("gpt"):
            gpt().save(folder / "gpt.html")
            shot(page, folder / "gpt.html", "profile-gpt", LONGEST)
            shot(page, folder / "gpt.html", "profile-steps", "weft.show('steps')")
        if is_wanted("workers"):
            file = two_workers(folder)
            shot(page, file, "profile-two-ranks", STEP)
            shot(page, file, "profile-exchange", "weft.show('exchange')")
        if is_wanted("graph"):
            net = resnet50().eval()
            wf.tools.draw(net, wf.ones((1, 3, 64, 64)), path=folder / "graph.html")
            shot(
                page,
                folder / "graph.html",
                "graph-resnet50",
                "(() => { depth.value = 2; depth.oninput(); })()",
            )
        if is_wanted("slow"):
            sys.path.insert(0, str(ROOT / "examples"))
            import slow_step

            epochs = {name: slow_step.version(**options) for name, options in slow_step.VERSIONS.items()}
            for name, file in (("as written", "slow"), ("traced", "fast")):
                epochs[name](), epochs[name]()
                with wf.tools.profile() as p:
                    epochs[name]()
                p.save(folder / f"{file}.html")
                if file == "slow":
                    shot(page, folder / "slow.html", "slow-step-warnings", "weft.show('warnings')")
                shot(page, folder / f"{file}.html", f"slow-step-{file}")
        if is_wanted("leaks"):
            from weft.tools import memory

            kept = []
            with memory.watch() as w:
                for k in range(40):
                    y = wf.ones((256, 256)) * k
                    if k == 10:
                        w.mark("epoch 1")
                    if k > 10:
                        kept.append(y + 1)
                w.mark("epoch 2")
            w.save(folder / "memory.html")
            shot(
                page,
                folder / "memory.html",
                "memory-leaks",
                "(() => { view.value = 'leaks'; view.onchange(); })()",
            )


if __name__ == "__main__":
    main(sys.argv[1:])
