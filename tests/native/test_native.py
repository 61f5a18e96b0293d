"""Runs each native test as a process of its own, in builds that are plain or have the thread or address sanitizer."""

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


def pytest_generate_tests(metafunc):
    """The variants that --native names; without it, those that are built."""
    asked = metafunc.config.getoption("--native")
    variants = asked.split(",") if asked else [v for v in VARIANTS if program(v).exists()]
    if "name" in metafunc.fixturenames:
        cases = [(variant, name) for variant in variants for name in names(variant)]
        metafunc.parametrize(("variant", "name"), cases, ids=["-".join(case) for case in cases])
    else:
        metafunc.parametrize("variant", variants)


def test_the_program_is_there(variant):
    listed = names(variant)
    assert listed, f"{program(variant)} is missing: ./dev test builds it"
    assert len(listed) == len(set(listed))


def test_native(variant, name):
    try:
        done = run(variant, name)
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
        text = output if isinstance(output, str) else output.decode(errors="replace")
        pytest.fail(f"{name} ({variant}) was still running after {TIME_LIMIT_S} s:\n{text}")
    assert done.returncode == 0, f"{name} ({variant}) ended with status {done.returncode}:\n{done.stdout}"
