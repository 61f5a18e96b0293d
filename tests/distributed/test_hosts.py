"""Two hosts, as network namespaces of this machine with a cable between them: ranks over TCP. They need root."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpi4py")
pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

PROGRAMS = Path(__file__).parent / "programs"
MPIEXEC = Path(sys.executable).parent / "mpiexec"
ENVIRONMENT = {
    "WEFT_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": "eth0",
}
SSH = """#!/bin/sh
# Called as ssh is: options, a host, a command. Runs it in the host's namespace.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec "NAME$host" sh -c "$*"
"""


def ip(*words, check=True):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=check)


def namespaces(tmp_path):
    """(their names, their addresses, what stands for ssh); ended by `ip netns del`."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    name = f"weft{os.getpid()}-"
    addresses = ["10.213.7.1", "10.213.7.2"]
    spaces = [name + address for address in addresses]
    for space in spaces:
        if ip("netns", "add", space, check=False).returncode:
            pytest.skip("this system makes no network namespaces")
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH.replace("NAME", name))
    ssh.chmod(0o755)
    return spaces, addresses, ssh


@pytest.fixture
def hosts(tmp_path):
    """Two namespaces with a cable between them: see namespaces."""
    spaces, addresses, ssh = namespaces(tmp_path)
    try:
        ip("link", "add", "wefta", "type", "veth", "peer", "name", "weftb")
        for space, link, address in zip(spaces, ("wefta", "weftb"), addresses, strict=True):
            ip("link", "set", link, "netns", space)
            ip("-n", space, "link", "set", link, "name", "eth0")
            ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
        yield spaces, addresses, ssh
    finally:
        for space in spaces:
            ip("netns", "del", space, check=False)


@pytest.fixture
def bad_hosts(tmp_path):
    """The same with a cable that delays each frame by 5 ms, more or less, and loses one of a hundred."""
    if not Path("/dev/net/tun").exists():
        pytest.skip("this system has no network devices of programs (/dev/net/tun)")
    spaces, addresses, ssh = namespaces(tmp_path)
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    halves = []
    try:
        for k, (space, address, end) in enumerate(zip(spaces, addresses, ends, strict=True)):
            words = [
                "ip",
                "netns",
                "exec",
                space,
                sys.executable,
                PROGRAMS / "cable.py",
                end.fileno(),
                address,
            ]
            halves.append(
                subprocess.Popen(
                    [str(word) for word in (*words, 0.005, 0.01, k, tmp_path / f"cable-{k}")],
                    pass_fds=[end.fileno()],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        for half in halves:
            assert half.stdout.readline() == "up\n"
        yield spaces, addresses, ssh
    finally:
        for half in halves:
            half.kill()
            half.communicate()
        for end in ends:
            end.close()
        for space in spaces:
            ip("netns", "del", space, check=False)


def run(hosts, program, *args, timeout_s=300):
    spaces, addresses, ssh = hosts
    launcher = [
        "-launcher",
        "ssh",
        "-launcher-exec",
        ssh,
        "-iface",
        "eth0",
        "-hosts",
        ",".join(addresses),
        "-ppn",
        "1",
    ]
    command = [
        "ip",
        "netns",
        "exec",
        spaces[0],
        MPIEXEC,
        *launcher,
        "-n",
        "2",
        sys.executable,
        PROGRAMS / program,
    ]
    done = subprocess.run(
        [str(word) for word in (*command, *args)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=os.environ | ENVIRONMENT,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.count("right") == 2, done.stdout
    counter = ["netns", "exec", spaces[1], "cat", "/sys/class/net/eth0/statistics/rx_bytes"]
    assert int(ip(*counter).stdout) > 60_000  # it went through the cable


@pytest.mark.parametrize("program", ["collectives.py", "data_parallel.py", "parts.py"])
def test_two_hosts(hosts, program, tmp_path):
    run(hosts, program, tmp_path)


@pytest.mark.parametrize("program", ["collectives.py", "data_parallel.py"])
def test_two_hosts_with_loss_and_delay(bad_hosts, program, tmp_path):
    run(bad_hosts, program, tmp_path, timeout_s=500)
    came, lost = np.sum(
        [list(map(int, (tmp_path / f"cable-{k}").read_text().split())) for k in range(2)], axis=0
    )
    assert came > 200
    assert lost > 0
