"""It schedules any functions; a variable is a light token that stands for any resource."""

import hashlib
import threading
import zlib

from .support import Signal


def test_general_purpose_files(engine, tmp_path):
    """Variables stand for files: written, compressed, checked, in whatever order the rule allows."""
    digests = {}
    for i in range(20):
        text = f"file {i}\n".encode() * 1000
        plain, packed = tmp_path / f"{i}.txt", tmp_path / f"{i}.z"
        file, archive = engine.new_variable(), engine.new_variable()

        def write(rc, plain=plain, text=text):
            plain.write_bytes(text)

        def pack(rc, plain=plain, packed=packed):
            packed.write_bytes(zlib.compress(plain.read_bytes()))

        def check(rc, i=i, packed=packed):
            digests[i] = hashlib.sha256(zlib.decompress(packed.read_bytes())).digest()

        engine.push(write, mutate_vars=[file], queue="io")
        engine.push(pack, const_vars=[file], mutate_vars=[archive])
        engine.push(check, const_vars=[archive])
        engine.push(lambda rc, plain=plain: plain.unlink(), mutate_vars=[file], queue="io")
    engine.wait_for_all()
    assert digests == {i: hashlib.sha256(f"file {i}\n".encode() * 1000).digest() for i in range(20)}
    assert not list(tmp_path.glob("*.txt"))


def test_general_purpose_a_variable_replaces_a_lock(engine):
    """A resource that only one may use at a time, given out by the engine instead of a lock."""
    printer = engine.new_variable()
    pages, inside = [], []

    def use(rc, job):
        inside.append(job)
        assert len(inside) == 1
        pages.extend([job] * 3)
        inside.remove(job)

    for job in range(50):
        engine.push(lambda rc, job=job: use(rc, job), mutate_vars=[printer])
    engine.wait_for_all()
    assert pages == [job for job in range(50) for _ in range(3)]


def test_general_purpose_many_variables_at_once(engine):
    variables = [engine.new_variable() for _ in range(50_000)]
    for v in variables[::100]:
        engine.push(lambda rc: None, mutate_vars=[v])
    engine.wait_for_all()
    assert sum(v.version for v in variables) == 500


def test_general_purpose_one_operation_may_have_a_thousand_variables(engine):
    reads = [engine.new_variable() for _ in range(1000)]
    writes = [engine.new_variable() for _ in range(1000)]
    for _ in range(3):
        engine.push(lambda rc: None, const_vars=reads, mutate_vars=writes)
        engine.push(lambda rc: None, const_vars=writes, mutate_vars=reads)
    engine.wait_for_all()
    assert {v.version for v in reads + writes} == {3}


def test_general_purpose_no_variables_at_all(engine):
    seen = set()
    for i in range(100):
        engine.push(lambda rc, i=i: seen.add(i))
    engine.wait_for_all()
    assert seen == set(range(100))


def test_general_purpose_functions_may_use_locks_threads_and_other_engines(engine, make_engine):
    other = make_engine(workers=1)
    lock, done, seen = threading.Lock(), Signal(), []

    def fn(rc):
        with lock:
            thread = threading.Thread(target=seen.append, args=(1,))
            thread.start()
            thread.join()
        other.push(done)

    engine.push(fn)
    engine.wait_for_all()
    done.wait_or_fail()
    assert seen == [1]
