"""Environments of the peers: build/peers/NAME holds what benchmarks/peers/NAME.txt requires.

Each has one of its own, so that no two frameworks share libraries. A stamp says what an environment was made for.
"""

import fcntl
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "benchmarks" / "peers"
FOLDER = ROOT / "build" / "peers"
MODELS = FOLDER / "models"
INSTALL_LIMIT_S = 1800.0  # of each step: PyTorch with its requirements is 800 MiB


class PeerError(Exception):
    """An environment that cannot be made; the text is the reason."""


def names() -> list[str]:
    """Every peer there is."""
    return sorted(path.stem for path in PEERS.glob("*.txt"))


def python_of(name: str) -> Path:
    return FOLDER / name / "bin" / "python"


def make(name: str) -> None:
    """Make the environment of a peer, unless it is there as required."""
    requirements = (PEERS / f"{name}.txt").read_text().split()
    with _locked():
        if _stamp(name, requirements):
            return
        print(
            f"bench: installing {' '.join(requirements)} into {FOLDER.relative_to(ROOT) / name}",
            file=sys.stderr,
        )
        _run(sys.executable, "-m", "venv", "--clear", FOLDER / name)
        pip = (python_of(name), "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        _run(*pip, *requirements)
        _write_stamp(name, requirements)


def export_models() -> None:
    """The networks of the inference workloads as ONNX files in MODELS, written by PyTorch's environment."""
    sources = [PEERS / f"_torch_{part}.py" for part in ("models", "export")]
    requirements = [(PEERS / "torch.txt").read_text(), *(path.read_text() for path in sources)]
    with _locked():
        if not _stamp("models", requirements):
            print(f"bench: exporting models into {MODELS.relative_to(ROOT)}", file=sys.stderr)
            _run(python_of("torch"), sources[1], MODELS)
            _write_stamp("models", requirements)


def _stamp(name: str, requirements: list[str]) -> bool:
    path = FOLDER / name / "weft-stamp.json"
    return path.exists() and json.loads(path.read_text()) == requirements


def _write_stamp(name: str, requirements: list[str]) -> None:
    (FOLDER / name / "weft-stamp.json").write_text(json.dumps(requirements))


@contextmanager
def _locked():
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(*command: object) -> None:
    words = " ".join(Path(str(word)).name for word in command[:5])
    try:
        done = subprocess.run(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise PeerError(f"{words} ... did not end in {INSTALL_LIMIT_S:g} s") from None
    except OSError as error:
        raise PeerError(f"{words} ... did not start: {error}") from None
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip()] or ["no output"]
        reason = next((line for line in reversed(lines) if "rror" in line), lines[-1])
        raise PeerError(f"{words} ... failed: {reason.strip()[:300]}")
