"""The distributed example: the same losses alone and on several ranks, and on from a checkpoint with another number."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft as wf

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "distributed_digits.py"


def train(out, n, epochs, *arguments, kv=None):
    launch = [] if n == 1 else ["-m", "weft.launch", "-n", str(n), *(["--kv", kv] if kv else [])]
    done = subprocess.run(
        [sys.executable, *launch, PROGRAM, "--out", str(out), "--epochs", str(epochs), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"WEFT_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads((out / "result.json").read_text())


def test_ranks_over_mpi_train_as_one_process_that_goes_on_from_their_checkpoint(tmp_path):
    pytest.importorskip("mpi4py")
    alone = train(tmp_path / "alone", 1, 2)
    train(tmp_path / "changing", 2, 1, "--eager")
    changing = train(tmp_path / "changing", 1, 2)
    assert (alone["ranks"], changing["ranks"]) == (1, 1)
    np.testing.assert_allclose(changing["losses"], alone["losses"], rtol=1e-3)


@pytest.mark.full
def test_ranks_over_mpi_go_on_from_one_process(tmp_path):
    pytest.importorskip("mpi4py")
    alone = train(tmp_path / "alone", 1, 2)
    train(tmp_path / "other", 1, 1)
    other = train(tmp_path / "other", 2, 2)
    assert other["ranks"] == 2
    np.testing.assert_allclose(other["losses"], alone["losses"], rtol=1e-3)


@pytest.mark.full
def test_the_example_learns(tmp_path):
    pytest.importorskip("mpi4py")
    assert train(tmp_path, 2, 8)["accuracy"] > 0.95


@pytest.mark.full
def test_synchronous_servers_make_the_same_network(tmp_path):
    pytest.importorskip("ray")
    train(tmp_path / "alone", 1, 1)
    train(tmp_path / "servers", 2, 1, kv="dist_sync_ps")
    alone, servers = (wf.load(tmp_path / name / "run.safetensors") for name in ("alone", "servers"))
    names = [name for name in alone if name.startswith("parts.net.")]
    assert len(names) == 10, alone.keys()
    for name in names:
        np.testing.assert_allclose(
            servers[name].numpy(), alone[name].numpy(), rtol=1e-2, atol=1e-3, err_msg=name
        )


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kv", ["dist_sync_ps", "dist_async", "dist_ssp"])
def test_servers_learn_and_go_on(tmp_path, kv):
    pytest.importorskip("ray")
    train(tmp_path, 2, 2, kv=kv)
    found = (
        train(tmp_path, 3 if kv == "dist_async" else 4, 8, kv=kv)
        if kv != "dist_async"
        else train(tmp_path, 1, 8)
    )
    assert found["accuracy"] > 0.93
    assert len(found["losses"]) == 8
