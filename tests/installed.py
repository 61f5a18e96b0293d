"""Checks an installed weft, with nothing but it and what it requires: `python installed.py`.

./dev wheel-check runs this in fresh environments without a compiler, and cibuildwheel after each build. It fails where
something that a wheel has to bring is missing: kernels compiled at run time, oneDNN, OpenMP, LAPACK, the library for C,
licenses; and where weft with its requirements is larger than it may be.
"""

import ctypes
import re
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import weft as wf
import weft.functional as F
import weft.module as M
from weft import info, optimizer

LARGEST_BYTES = 350 << 20  # of the installation, requirements included


def requirements(name):
    """The names of a distribution and of all that it requires."""
    names, todo = set(), [name]
    while todo:
        name = todo.pop()
        if name in names:
            continue
        names.add(name)
        lines = metadata.requires(name) or []
        todo += [re.match(r"[\w.-]+", line)[0] for line in lines if "extra ==" not in line]
    return sorted(names)


def installed_bytes(name):
    paths = [Path(file.locate()) for file in metadata.files(name)]
    return sum(path.stat().st_size for path in paths if path.exists() and path.suffix != ".pyc")


def train():
    """A traced training: its loss falls."""
    wf.random.seed(1)
    net = M.Sequential(
        M.Conv2d(1, 4, 3, padding=1), M.BatchNorm2d(4), M.ReLU(), M.Flatten(), M.Linear(256, 3)
    )
    update, manager = optimizer.Adam(net.parameters(), lr=0.01), wf.GradManager().attach(net.parameters())
    x, labels = wf.random.normal(shape=(12, 1, 8, 8)), wf.tensor([0, 1, 2] * 4)

    @wf.trace
    def step():
        with manager:
            loss = F.cross_entropy(net(x), labels)
            manager.backward(loss)
        update.step().clear_grad()
        return loss

    losses = [step().item() for _ in range(20)]
    assert losses[-1] < losses[0] / 2, losses
    return net.eval(), x


def check_results():
    a = wf.tensor([[4.0, 1.0], [1.0, 3.0]])
    assert abs(wf.linalg.det(a).item() - 11) < 1e-4
    assert F.softmax(F.exp(a @ a) * 0).tolist() == [[0.5, 0.5]] * 2
    assert wf.ones(3, dtype="bfloat16").sum().item() == 3


def check_files(net, x):
    """Saved weights are read again, and the library for C runs an exported program."""
    step = wf.trace(net)
    with tempfile.TemporaryDirectory() as folder, wf.no_grad():
        wf.save(f"{folder}/weights.safetensors", net.state_dict())
        net.load_state_dict(wf.load(f"{folder}/weights.safetensors"))
        expected = step(x).numpy()
        step.export(f"{folder}/program", target="native")
        library = ctypes.CDLL(str(Path(info.__file__).parent / "lib" / "libweft.so.1"))
        library.weft_last_error.restype = ctypes.c_char_p
        program = ctypes.c_void_p()
        status = library.weft_program_load(f"{folder}/program".encode(), ctypes.byref(program))
        assert status == 0, library.weft_last_error()
        inputs, found = x.numpy().copy(), expected * 0
        given = (ctypes.c_void_p * 2)(inputs.ctypes.data, None)  # a weft_array: data, strides
        wanted = (ctypes.c_void_p * 2)(found.ctypes.data, None)
        status = library.weft_program_run(program, given, wanted)
        assert status == 0, library.weft_last_error()
        assert abs(found - expected).max() < 1e-4, (found, expected)
        library.weft_program_free(program)


def check_package():
    package = Path(wf.__file__).resolve().parent
    assert (package / "include" / "weft" / "weft.h").is_file()
    assert (package / "py.typed").is_file()
    files = [str(file) for file in metadata.files("weft")]
    for name in (
        "LICENSE",
        "onednn/LICENSE",
        "nanobind/LICENSE",
        "libgomp/COPYING3",
        "libgomp/COPYING.RUNTIME",
    ):
        assert any("licenses/" in file and file.endswith(name) for file in files), name


def loaded(name):
    """The files whose names begin so that this process has in memory."""
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    return sorted(path for path in paths if Path(path).name.startswith(name))


def check_libraries():
    """The wheel's own libraries are in use, not those of the system. A wheel that is not repaired has no OpenMP."""
    site = Path(wf.__file__).resolve().parent.parent
    brought = ["libdnnl"] + (["libgomp"] if (site / "weft.libs").exists() else [])
    for name in brought:
        paths = loaded(name)
        assert paths, name
        assert all(path.startswith(str(site)) for path in paths), paths


def main():
    check_package()
    check_results()
    check_files(*train())
    check_libraries()
    sizes = {name: installed_bytes(name) for name in requirements("weft")}
    total = sum(sizes.values())
    level = next(
        line.split(None, 1)[1] for line in info.describe().splitlines() if line.startswith("instructions")
    )
    listed = ", ".join(f"{name} {size / 2**20:.0f}" for name, size in sizes.items())
    print(
        f"installed.py: weft {wf.__version__}, Python {sys.version.split()[0]}, {level}: "
        f"{total / 2**20:.0f} MiB installed ({listed})"
    )
    assert total < LARGEST_BYTES, sizes


if __name__ == "__main__":
    main()
