"""The command line of weft.launch, and what a process sees that is started alone."""

import mmap
import os
import sys
import time

import pytest

import weft as wf
from weft import launch


def test_alone_there_is_one_rank_and_collectives_are_the_identity():
    assert (wf.distributed.rank(), wf.distributed.world_size(), wf.distributed.is_first()) == (0, 1, True)
    x = wf.tensor([[1.0, 2.0]])
    for f in (
        wf.distributed.all_reduce,
        wf.distributed.all_gather,
        wf.distributed.reduce_scatter,
        wf.distributed.broadcast,
        wf.distributed.all_to_all,
    ):
        y = f(x)
        assert y is not x
        assert y.numpy().tolist() == [[1, 2]]
        assert wf.grad(lambda t, f=f: (f(t) * 3).sum())(x).numpy().tolist() == [[3, 3]]
    wf.distributed.barrier()
    with pytest.raises(ValueError, match=r"send: to must be a rank of 0\.\.0 other than its own, 0, got 0"):
        wf.distributed.send(x, to=0)


def test_workers_of_servers_do_not_exchange_with_each_other(monkeypatch):
    from weft.distributed import world

    monkeypatch.setattr(world, "_world", world.World(1, 2))
    with pytest.raises(wf.distributed.DistributedError, match="start the job with MPI"):
        wf.distributed.all_reduce(wf.ones(2))


def test_the_command_of_mpi(monkeypatch, tmp_path):
    for said, more in (("HYDRA build", ["-hosts", "a,b"]), ("mpirun (Open MPI) 5", ["--oversubscribe"])):
        command = tmp_path / "mpiexec"
        command.write_text(f"#!/bin/sh\necho '{said}'\n")
        command.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        found = launch.mpi_command(3, "a,b", "-x y")
        assert found[:3] == [str(command), "-n", "3"]
        assert found[-2:] == ["-x", "y"]
        assert [word for word in found if word in more] == more
        assert {"-prepend-rank", "--tag-output"} & set(launch.mpi_command(3, prefix=True))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FileNotFoundError, match=r"pip install weft\[dist\]"):
        launch.mpi_command(2)


def test_each_process_gets_its_share_of_the_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("WEFT_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = launch.environment(3, None, "dist_sync")
    assert (found["WEFT_NUM_THREADS"], found["OMP_NUM_THREADS"]) == ("2", "3")
    assert launch.environment(16, None, "dist_sync")["WEFT_NUM_THREADS"] == "1"
    assert launch.environment(3, 5, "dist_sync")["OMP_NUM_THREADS"] == "5"
    assert found["WEFT_KV"] == "dist_sync"


def test_what_an_mpi_job_leaves_in_shared_memory_is_removed(tmp_path):
    began_s = time.time()
    files = [tmp_path / f"mpich_shm_{k}" for k in range(3)]
    for path in files:
        path.write_bytes(b"x" * 4096)
    os.utime(files[0])
    with open(files[1], "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
        launch.remove_shared_files(set(files[:2]), began_s)
        assert [path.exists() for path in files] == [False, True, True]
        launch.remove_shared_files({files[2]}, time.time() + 60)  # there before the job
        assert files[2].exists()
        mapped.close()


def test_an_interrupt_is_one_line(monkeypatch, capsys, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "start", interrupted)
    (tmp_path / "a.py").write_text("")
    assert launch.main([str(tmp_path / "a.py")]) == 130
    assert capsys.readouterr().err == "weft.launch: interrupted\n"


def test_what_a_worker_of_servers_ends_with(tmp_path):
    from weft.kvstore.workers import _cause_text, _run_script

    for text, found in (("'bad configuration'", (1, "bad configuration")), ("3", (3, "")), ("", (0, ""))):
        (tmp_path / "a.py").write_text(f"import sys; sys.exit({text})")
        argv, path = sys.argv, list(sys.path)
        try:
            assert _run_script([str(tmp_path / "a.py")]) == found
        finally:
            sys.argv, sys.path[:] = argv, path
    frames = ['File "<frozen runpy>", line 1', 'File "/x/kvstore/workers.py", line 2', 'File "a.py", line 3']
    error = RuntimeError(
        "\n".join(["\x1b[36mray::f()\x1b[39m", *(f"  {each}\n    f()" for each in frames), "End"])
    )
    error.cause = ValueError("no data")
    assert _cause_text(error) == f"ValueError: no data\n  {frames[-1]}\n    f()\nEnd"


def test_a_worker_of_servers_fails_with_what_nothing_has_read(tmp_path, monkeypatch):
    from weft.kvstore import parameter_server
    from weft.kvstore.workers import _run_script

    class Store:
        """One whose last push has failed."""

        def close(self):
            parameter_server._unread.append("push: key 'w' was refused")

    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for end, found in (
        ("", (1, "has failed, and nothing has read its error: push: key 'w' was")),
        ("3", (3, "")),
    ):
        monkeypatch.setattr(parameter_server, "_open", [Store()])
        monkeypatch.setattr(parameter_server, "_unread", [])
        (tmp_path / "a.py").write_text(f"import sys; sys.exit({end})")
        status, text = _run_script([str(tmp_path / "a.py")])
        assert (status, found[1] in text) == (found[0], True)


def test_wrong_command_lines(capsys):
    assert launch.main(["nowhere.py"]) == 2
    assert "no script 'nowhere.py'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        launch.main(["-n", "0", "train.py"])
    assert "-n must be at least 1, got 0" in capsys.readouterr().err
