"""Runs each native test as a process of its own, in three builds: plain, thread and address sanitizer."""

import os
import subprocess
from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parents[2] / "build"
VARIANTS = {
    "plain": {},
    "thread": {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"},
    "address": {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"},
}
TIME_LIMIT_S = 100  # below the limit that pytest itself sets, so that a hanging test shows its output


def program(variant):
    return BUILD / f"native-{variant}" / "weft_native_tests"


def run(variant, *arguments, timeout_s=TIME_LIMIT_S):
    return subprocess.run(
        [program(variant), *arguments],
        env=os.environ | VARIANTS[variant],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout_s,
    )


def names(variant):
    if not program(variant).exists():
        return []
    done = run(variant, "--list")
    assert done.returncode == 0, done.stdout
    return done.stdout.split()


def cases():
    return [
        pytest.param(variant, name, id=f"{variant}-{name}") for variant in VARIANTS for name in names(variant)
    ]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_program_is_there(variant, request):
    if not program(variant).exists():
        message = f"{program(variant)} is missing: ./dev test builds it"
        if request.config.getoption("--native"):
            pytest.fail(message)
        pytest.skip(message)
    listed = names(variant)
    assert listed
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize(("variant", "name"), cases())
def test_native(variant, name):
    try:
        done = run(variant, name)
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
        text = output if isinstance(output, str) else output.decode(errors="replace")
        pytest.fail(f"{name} ({variant}) was still running after {TIME_LIMIT_S} s:\n{text}")
    assert done.returncode == 0, f"{name} ({variant}) ended with status {done.returncode}:\n{done.stdout}"
