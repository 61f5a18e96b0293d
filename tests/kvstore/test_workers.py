"""Workers of parameter servers: what they send, and what happens when they differ. The servers are in this process."""

import asyncio
import concurrent.futures
import contextlib
import itertools
import threading
import types

import numpy as np
import pytest

import weft as wf
import weft.optimizer as optim
from weft.distributed import DistributedError
from weft.distributed.world import World
from weft.kvstore import RowSparse, parameter_server
from weft.kvstore.server import MODES, Server

numbers = itertools.count()  # of jobs


class Reference:
    """What a call gives, as Ray's object references."""

    def __init__(self, future):
        self.answer = future

    def future(self):
        return self.answer


class Actor:
    """A server whose methods have remote(), which runs them on the cluster's event loop."""

    def __init__(self, loop, server):
        self._loop, self._server = loop, server

    def __getattr__(self, name):
        method = getattr(self._server, name)
        call = lambda *args: Reference(asyncio.run_coroutine_threadsafe(method(*args), self._loop))  # noqa: E731
        return types.SimpleNamespace(remote=call)


class Ray:
    def get(self, references):
        if isinstance(references, list):
            return [self.get(each) for each in references]
        return references.future().result(60)

    def is_initialized(self):
        return True


@pytest.fixture
def cluster(monkeypatch):
    """cluster(kind, workers, **options): a store for each worker, which have two servers."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    stores = []
    monkeypatch.setattr(parameter_server, "connect", Ray)

    def make(kind, workers=2, **options):
        actors, job = [Actor(loop, Server(kind, workers)) for _ in range(2)], next(numbers)
        monkeypatch.setattr(parameter_server, "server_actors", lambda *_: actors)
        for rank in range(workers):
            monkeypatch.setattr(parameter_server, "world", lambda rank=rank: World(rank, workers))
            monkeypatch.setattr(parameter_server, "job_name", lambda rank=rank, job=job: f"{job} {rank}")
            stores.append(parameter_server.ParameterServerStore(kind, servers=2, **options))
        return stores[-workers:]

    yield make
    with contextlib.suppress(wf.EngineError, wf.EngineErrorGroup):
        wf.waitall()
    for kv in stores:
        kv.close()
        parameter_server._open.remove(kv)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def each(stores, f):
    """What f(store) gives or raises on every worker, which run beside each other."""
    with concurrent.futures.ThreadPoolExecutor(len(stores)) as pool:
        calls = [pool.submit(f, kv) for kv in stores]
        return [call.exception() or call.result() for call in calls]


def started(cluster, kind="dist_sync_ps", workers=2, shape=(3,), **options):
    stores = cluster(kind, workers, **options)

    def begin(kv):
        kv.init("w", wf.zeros(shape))
        kv.set_optimizer(optim.SGD([wf.zeros(1)], lr=1.0))

    assert each(stores, begin) == [None] * workers
    return stores


def all_raise(found, *texts, error=Exception):
    for one in found:
        assert isinstance(one, error), one
        for text in texts:
            assert text in str(one), one


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("shape", [(3,), (6, 4)])  # whole on one server, and divided
def test_pushes_are_applied_and_pulled(cluster, kind, shape):
    stores = started(cluster, kind, shape=shape, big=20)

    def train(kv):
        for _ in range(3):
            kv.push("w", [wf.ones(shape), wf.full(shape, float(kv.rank))])
            kv.pull("w").wait()
        kv.barrier()
        return kv.pull("w").numpy()

    for found in each(stores, train):
        np.testing.assert_array_equal(found, np.full(shape, -9.0))


def test_what_gradients_need_is_found_overwritten_by_a_pull(cluster):
    (kv,) = started(cluster, "dist_async", workers=1)
    w = wf.ones(3)
    gm = wf.GradManager().attach([w])
    with gm:
        loss = (w * w).sum()
        kv.pull("w", out=w)
        with pytest.raises(ValueError, match="overwritten since"):
            gm.backward(loss)


@pytest.mark.parametrize("kind", MODES)
def test_rows_travel_without_the_others(cluster, kind):
    stores = started(cluster, kind, shape=(6, 4), big=20)

    def train(kv):
        kv.push("w", RowSparse([kv.rank, 4], wf.ones((2, 4)), (6, 4)))
        kv.barrier()
        rows = kv.row_sparse_pull("w", row_ids=[4, 1, 0, 4])
        out = wf.ones((6, 4))
        kv.row_sparse_pull("w", out=out, row_ids=[2, 4])
        return rows.rows.tolist(), rows.values.numpy()[:, 0].tolist(), out.numpy()[:, 0].tolist()

    assert each(stores, train) == [([0, 1, 4], [-1, -1, -2], [1, 1, 0, 1, -2, 1])] * 2


@pytest.mark.parametrize("shape", [(3,), (6, 4)])
def test_what_is_compressed_comes_out_as_the_codec_says(cluster, shape):
    stores = started(cluster, shape=shape, big=20)

    def train(kv):
        kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
        for _ in range(2):
            kv.push("w", wf.full(shape, 0.3 + kv.rank))
        return kv.pull("w").numpy()

    for found in each(stores, train):  # rank 0: nothing, then 0.5; rank 1: 0.5 both times
        np.testing.assert_array_equal(found, np.full(shape, -1.5))


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (lambda rank: wf.ones(3 + rank), ("'w' float32[3]", "'w' float32[4]")),
        (lambda rank: wf.ones(3, dtype=("float32", "float64")[rank]), ("float32[3]", "float64[3]")),
    ],
)
def test_other_shapes_or_types_at_init_are_an_error_on_every_rank(cluster, kind, value, texts):
    stores = cluster(kind)
    found = each(stores, lambda kv: kv.init("w", value(kv.rank)))
    all_raise(found, "init: ranks disagree:", *texts, error=DistributedError)
    assert each(stores, lambda kv: kv.init("w", wf.ones(2))) == [None, None]
    all_raise(
        each(stores, lambda kv: kv.init("w", wf.ones(2))), "'w' is initialised already", error=ValueError
    )
    assert [x.tolist() for x in each(stores, lambda kv: kv.pull("w").numpy())] == [[1, 1]] * 2


@pytest.mark.parametrize("kind", MODES)
def test_ranks_that_disagree_about_what_they_do_together(cluster, kind):
    stores = started(cluster, kind)
    all_raise(
        each(stores, lambda kv: kv.init("ab"[kv.rank], wf.ones(2))), "rank 0: init 'a'", "rank 1: init 'b'"
    )
    found = each(stores, lambda kv: kv.barrier() if kv.rank else kv.init("c", wf.ones(2)))
    all_raise(found, "rank 0: init 'c'", "rank 1: barrier")
    found = each(stores, lambda kv: kv.barrier() if kv.rank else kv.init("w", wf.ones(2)))
    all_raise(found[:1], "'w' is initialised already", error=ValueError)
    all_raise(found[1:], "rank 0: init failed: ValueError: init: the key 'w' is initialised already")
    assert each(stores, lambda kv: kv.barrier()) == [None, None]


def test_ranks_may_push_keys_in_different_orders(cluster):
    stores = started(cluster)

    def train(kv):
        kv.init("v", wf.zeros(2))
        for key in ("vw", "wv")[kv.rank]:
            kv.push(key, wf.ones(2 if key == "v" else 3))
        return [kv.pull(key).numpy().tolist() for key in "vw"]

    assert each(stores, train) == [[[-2, -2], [-2, -2, -2]]] * 2


def bad(rank):
    x = wf.zeros(3)
    if rank == 0:

        def fail(_):
            raise RuntimeError("no gradient today")

        wf.engine.default_engine().push(fail, mutate_vars=[x], name="backward")
    return x


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (lambda rank: wf.ones(3 if rank else 4), "has shape (3,), the value (4,)"),
        (lambda rank: wf.ones(3, dtype="float32" if rank else "int8"), "has type float32"),
        (
            lambda rank: [wf.ones(3)] if rank else [wf.ones(3), RowSparse([1], wf.ones(1), (3,))],
            "all RowSparse",
        ),
        (lambda rank: wf.ones(3) if rank else RowSparse([1], wf.ones(1), (3,)), "push rows and whole arrays"),
        (bad, "no gradient today"),
    ],
)
def test_a_push_that_one_rank_cannot_make_is_an_error_on_every_rank(cluster, value, text):
    stores = started(cluster)

    def train(kv):
        kv.push("w", value(kv.rank))
        return kv.pull("w").numpy()

    all_raise(each(stores, train), text)

    def again(kv):
        kv.push("w", wf.ones(3))
        return kv.pull("w").numpy().tolist()

    assert each(stores, again) == [[-2] * 3] * 2


@pytest.mark.parametrize("lazy", [False, True])
def test_a_traced_step_talks_to_the_servers_at_each_call(cluster, lazy):
    (kv,) = started(cluster, "dist_async", 1)
    out = wf.zeros(3)

    def step(x):
        kv.push("w", x * 2)
        kv.pull("w", out)
        return x + 1

    traced = wf.trace(step, lazy=lazy)
    with pytest.warns(wf.TraceWarning, match="push talks to parameter servers"):
        traced(wf.ones(3))
    for k in range(1, 4):
        assert out.numpy().tolist() == [-2 * k] * 3
        traced(wf.ones(3))
    with pytest.raises(wf.GraphError, match="push talks to parameter servers"):
        wf.trace(step, strict=True, lazy=lazy)(wf.ones(3))


@pytest.mark.parametrize("behind", [False, True])
def test_a_pull_behind_a_push_that_failed_has_failed(cluster, behind):
    """behind: the push has failed before the pull is asked for."""
    (kv,) = cluster("dist_async", 1)
    kv.init("w", wf.zeros(3))
    kv.push("w", wf.ones(3))  # without an optimizer
    if behind:
        kv._finish()
    out = wf.zeros(3)
    kv.pull("w", out)
    with pytest.raises(
        wf.EngineError, match=r"push 'w': ValueError: push: dist_async needs an optimizer(.|\n)*test_workers"
    ):
        out.numpy()
    with pytest.raises(wf.EngineError, match="needs an optimizer"):
        kv.barrier()
    kv.set_optimizer(optim.SGD([wf.zeros(1)], lr=1.0))
    kv.push("w", wf.ones(3))
    assert kv.pull("w", out).numpy().tolist() == [-1] * 3


def test_a_rank_that_waits_in_a_barrier_ends_the_rounds_of_the_others(cluster, monkeypatch, capfd):
    monkeypatch.setenv("WEFT_STALL_S", "0.2")
    stores = started(cluster)

    def train(kv):
        for _ in range(2 - kv.rank):
            kv.push("w", wf.ones(3))
        kv.barrier()

    first, second = each(stores, train)
    all_raise([first], "push of 'w': a rank could not take part:\n  rank 1: waits in barrier")
    assert second is None  # the first one came to the barrier all the same


@pytest.mark.parametrize("late", [False, True])
def test_a_worker_that_goes_on_after_a_refused_push_stays_in_step(cluster, late):
    """Its next pushes wait for the end of the round that it has refused, however late the other worker comes."""
    stores = started(cluster)
    came = threading.Event()

    def steps(kv):
        found = []
        if kv is stores[0]:
            came.wait(30)
        for k in range(3):
            value = wf.full((3,), 10.0**k * (1 + kv.rank))
            if kv is stores[1] and k == 0:
                threading.Timer(0.2, came.set).start()
                value = value[wf.tensor([0, 1, 99])] if late else wf.ones(4)
            try:
                kv.push("w", value)
                found.append(kv.pull("w").numpy()[0])
            except (wf.EngineError, wf.ShapeError) as error:
                found.append(str(error))
        return found

    first, second = each(stores, steps)
    assert "rank 1: " in first[0]
    assert ("out of range" if late else "has shape (3,), the value (4,)") in second[0]
    assert first[1:] == second[1:] == [-30.0, -330.0]


def test_keys_of_a_list_are_one_call_of_each_server(cluster, monkeypatch):
    calls = []
    exchange = Server.exchange

    def counted(self, *args):
        calls.append(len(args[2]) + len(args[3]))
        return exchange(self, *args)

    monkeypatch.setattr(Server, "exchange", counted)
    stores = cluster("dist_sync_ps")
    keys = [f"k{k}" for k in range(100)]
    values = [wf.full((2,), float(k)) for k in range(100)]
    assert each(stores, lambda kv: kv.init(keys, values)) == [None, None]
    found = each(stores, lambda kv: [y.numpy()[0] for y in (kv.push(keys, values), kv.pull(keys))[1]])
    assert found == [[2.0 * k for k in range(100)]] * 2
    assert len(calls) <= 8, calls  # two workers, two servers; a pull goes with its push, or behind it
    assert sum(calls) == 400


def test_a_key_of_a_list_that_fails_does_not_take_along_what_was_pushed_before(cluster):
    (kv,) = cluster("dist_sync_ps", 1)
    kv.init(["a", "b"], [wf.zeros(2), wf.zeros(2)])
    kv.push("a", wf.ones(2))
    kv.push("b", wf.ones(3)[wf.tensor([0, 99])])
    a, b = kv.pull(["a", "b"])
    assert a.numpy().tolist() == [1, 1]
    with pytest.raises(IndexError, match="99 is out of range"):
        b.numpy()


def test_a_closed_store_leaves_no_thread(cluster):
    names = lambda: sum(t.name == "weft-servers" for t in threading.enumerate())  # noqa: E731
    before = names()
    (kv,) = cluster("dist_async", 1)
    assert names() == before + 1
    kv.close()
    for thread in threading.enumerate():
        if thread.name == "weft-servers" and names() > before:
            thread.join(5)
    assert names() <= before
