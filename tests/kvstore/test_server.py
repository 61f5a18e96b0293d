"""Parameter servers without Ray: rounds, clocks, sequence numbers, and what survives."""

import asyncio
import contextlib
import os

import numpy as np
import pytest

import weft as wf
import weft.optimizer as optim
from weft.distributed import CollectiveTimeout, DistributedError
from weft.kvstore.journal import Journal
from weft.kvstore.pieces import pieces_of
from weft.kvstore.server import Server, reference_of

DENSE = {"kind": "dense"}
SGD = {"kind": "optimizer", "name": "weft.optimizer.methods:SGD", "options": {"lr": 1.0}, "keys": []}
ADAM = {"kind": "optimizer", "name": "weft.optimizer.methods:Adam", "options": {"lr": 0.1}, "keys": []}


def run(coroutine):
    return asyncio.run(coroutine)


async def started(mode, workers=2, updater=SGD, **options):
    server = Server(mode, workers, **options)
    for rank in range(workers):
        await server.join(rank, f"test {rank}")
    if "w" not in server.versions:
        await server.init("w", ("float32", (3,)), np.zeros(3, "float32"), 0)
        if updater:
            await server.configure("updater", updater)
    return server


async def send(server, key, worker, number, rank, parts, form=DENSE):
    await server.exchange(worker, rank, [(key, number, parts, form)])
    return server.versions[key]


async def pull(server, key, rank, rows=None):
    (value,) = await server.exchange(f"worker {rank}", rank, (), [(key, rows)])
    return value


def push(server, rank, number, value, key="w", who=None):
    return send(server, key, who or f"worker {rank}", number, rank, [np.full(3, value, "float32")])


def refuse(server, rank, number, reason, key="w"):
    return send(server, key, f"worker {rank}", number, rank, [], {"kind": "refused", "reason": reason})


async def blocked(coroutine):
    """The task of a coroutine, which has been let go on as far as it can and is not done."""
    task = asyncio.ensure_future(coroutine)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    return task


def test_rounds_and_barriers_wait_for_workers_that_are_still_to_come(tmp_path):
    """A worker that starts late has as many rounds as the others; one that dies before it comes is not waited for."""

    async def main():
        server = Server("dist_sync_ps", 3, str(tmp_path))
        await server.join(0, "first")
        await server.init("w", ("float32", (3,)), np.zeros(3, "float32"), 0)
        await server.configure("updater", SGD)
        early = await blocked(push(server, 0, 1, 1.0))
        there = await blocked(server.barrier(1, 0))
        await server.join(1, "second")
        late = await blocked(push(server, 1, 1, 2.0))
        also_there = await blocked(server.barrier(1, 1))
        await server.leave(2)  # it has never been there
        assert await early == await late == 1
        await asyncio.gather(there, also_there)
        assert server.passed == 1
        server._snapshot()
        again = Server("dist_sync_ps", 3, str(tmp_path))
        assert again._expected() == {0, 1}
        await again.barrier(1, 1)  # a worker that is started again begins with barriers that all have passed

    run(main())


def test_nobody_waits_for_a_worker_that_waits_in_a_barrier(tmp_path):
    """Two workers with unequal numbers of pushes: the one that is through pushes no more."""

    async def main():
        server = await started("dist_ssp", folder=str(tmp_path), staleness=1)
        for number in (1, 2):
            await push(server, 1, number, 1.0)
        waiting = await blocked(pull(server, "w", 1))
        await server.rest(0, True)
        assert (await waiting).tolist() == [-2, -2, -2]
        again = Server("dist_ssp", 2, str(tmp_path), staleness=1)  # it is killed meanwhile
        await push(again, 1, 3, 1.0)
        await pull(again, "w", 1)
        await again.rest(0, False)
        assert again.clocks["w"] == {0: 3, 1: 3}  # both have come to the same point
        await push(again, 1, 4, 1.0)
        await pull(again, "w", 1)
        await push(again, 1, 5, 1.0)
        waiting = await blocked(pull(again, "w", 1))
        await push(again, 0, 1, 1.0)
        await waiting

    run(main())


def test_a_synchronous_round_is_one_update_of_the_sum():
    async def main():
        server = await started("dist_sync_ps")
        first = await blocked(push(server, 1, 1, 2.0))
        assert await push(server, 0, 1, 1.0) == 1
        assert await first == 1
        assert (await pull(server, "w", 1)).tolist() == [-3, -3, -3]

    run(main())


def test_the_first_worker_that_is_there_gives_the_first_values():
    async def main():
        server = Server("dist_sync_ps", 3)
        for rank in range(3):
            await server.join(rank, "test")
        like, value = ("float32", (2,)), np.ones(2, "float32")
        second = await blocked(server.init("w", like, None, 1))
        third = await blocked(server.init("w", like, None, 2))
        await server.leave(0)  # it has died before it could
        assert not await second
        assert not third.done()
        assert await server.init("w", like, value, 1)
        assert await third
        with pytest.raises(ValueError, match=r"'w' is float32\[2\] on the server, the value float32\[3\]"):
            await server.init("w", ("float32", (3,)), None, 2)

    run(main())


def test_workers_that_meet_say_the_same(tmp_path):
    async def main():
        server = await started("dist_async", workers=3, folder=str(tmp_path))
        first = await blocked(server.barrier(1, 0, "init 'a' float32[2]; 'b' float32[3]"))
        second = await blocked(server.barrier(1, 1, "init 'a' float32[2]; 'b' float32[3]; 'c' int8[]"))
        with pytest.raises(
            DistributedError, match=r"rank 0: nothing more\n  rank 1: 'c' int8\[\]\n  rank 2: nothing"
        ):
            await server.barrier(1, 2, "init 'a' float32[2]; 'b' float32[3]")
        for each in (first, second):
            with pytest.raises(DistributedError, match="init: ranks disagree"):
                await each
        again = Server("dist_async", 3, str(tmp_path))
        with pytest.raises(DistributedError, match="init: ranks disagree"):
            await again.barrier(1, 0, "init 'a' float32[2]")  # sent again: it is over, and has failed for all
        await again.barrier(0, 0, "barrier")

    run(main())


@pytest.mark.parametrize("killed", [False, True])
def test_a_round_fails_for_all_if_one_cannot_take_part(tmp_path, killed):
    async def main():
        server = await started("dist_sync_ps", folder=str(tmp_path), every=1)
        first = await blocked(push(server, 0, 1, 1.0))
        await refuse(server, 1, 1, "out of data")
        with pytest.raises(
            DistributedError, match=r"push of 'w': a rank could not take part:\n  rank 1: out of data"
        ):
            await first
        if killed:
            server = Server("dist_sync_ps", 2, str(tmp_path), every=1)
        with pytest.raises(DistributedError, match="out of data"):
            await push(server, 0, 1, 1.0)  # sent again
        second = await blocked(push(server, 0, 2, 1.0))
        with pytest.raises(DistributedError, match=r"rank 1: push: .* the value float64\[3\]"):
            await send(server, "w", "worker 1", 2, 1, [np.zeros(3)], DENSE)
        with pytest.raises(DistributedError, match=r"the value float64\[3\]"):
            await second
        third = await blocked(push(server, 0, 3, 1.0))
        assert await push(server, 1, 3, 1.0) == await third == 1  # those before have changed nothing

    run(main())


def test_a_refusal_keeps_its_place_until_the_other_workers_have_come():
    async def main():
        server = await started("dist_sync_ps")
        refused = await blocked(
            refuse(server, 1, 1, "out of data")
        )  # the worker's next push waits for the answer
        with pytest.raises(DistributedError, match="rank 1: out of data"):
            await push(server, 0, 1, 1.0)
        await refused
        second = await blocked(push(server, 1, 2, 2.0))
        assert await push(server, 0, 2, 1.0) == await second == 1
        assert (await pull(server, "w", 0)).tolist() == [-3, -3, -3]

    run(main())


def test_what_a_server_keeps_of_its_workers_does_not_grow():
    """One number for each worker and key, however many pushes and failures; none of a worker that has gone."""

    async def main():
        server = await started("dist_sync_ps")
        for number in range(1, 20, 2):
            refused = asyncio.ensure_future(refuse(server, 1, number, "out of data"))
            with pytest.raises(DistributedError):
                await push(server, 0, number, 1.0)
            await refused
            await asyncio.gather(push(server, 0, number + 1, 1.0), push(server, 1, number + 1, 1.0))
        assert server.ended == {r: {f"worker {r}": {"w": (20, None)}} for r in range(2)}
        await server.join(0, "test 0")  # another store of the same process
        assert server.ended.keys() == {0, 1}
        await server.join(0, "another process")
        await server.leave(1)
        assert server.ended == {}

    run(main())


def test_a_round_whose_workers_wait_in_a_barrier_is_given_up():
    async def main():
        server = await started("dist_sync_ps", workers=3)
        pushes = [await blocked(push(server, 0, 1, 1.0))]
        there = await blocked(server.barrier(1, 1))
        await server.give_up("worker 0", 0, [("w", 1)], await server.meeting())
        pushes.append(await blocked(push(server, 2, 1, 1.0)))  # rank 2 could still come
        await server.give_up("worker 0", 0, [("w", 7)], await server.meeting())  # another push than this one
        assert not any(each.done() for each in pushes)
        await server.give_up("worker 0", 0, [("w", 1)], await server.meeting())
        for each in pushes:
            with pytest.raises(DistributedError, match="rank 1: waits in barrier"):
                await each
        assert await server.meeting() == {1: "barrier"}
        await asyncio.gather(there, server.barrier(1, 0), server.barrier(1, 2))

    run(main())


def test_nothing_waits_without_end(monkeypatch):
    monkeypatch.setenv("WEFT_COLLECTIVE_TIMEOUT_S", "0.2")

    async def main():
        server = await started("dist_sync_ps")
        text = r"push of 'w': not all workers came within 0\.2 s: rank 1 \(test 1\)"
        with pytest.raises(CollectiveTimeout, match=text):
            await push(server, 0, 1, 1.0)
        with pytest.raises(CollectiveTimeout, match=r"barrier: not all workers came .* rank 1"):
            await server.barrier(1, 0)
        assert not server.rounds["w"]

    run(main())


def test_a_round_ends_without_a_worker_that_leaves_and_waits_for_one_that_comes():
    async def main():
        server = await started("dist_sync_ps")
        first = await blocked(push(server, 0, 1, 1.0))
        await server.leave(1)
        assert await first == 1
        await server.join(1, "again")
        second = await blocked(push(server, 0, 2, 1.0))
        await push(server, 1, 1, 5.0, who="worker 1 again")
        await second
        assert (await pull(server, "w", 0)).tolist() == [-7, -7, -7]

    run(main())


def test_asynchronous_pushes_are_applied_when_they_come():
    async def main():
        server = await started("dist_async")
        await push(server, 0, 1, 1.0)
        assert (await pull(server, "w", 1)).tolist() == [-1, -1, -1]
        with pytest.raises(KeyError, match="no key 'v'"):
            await push(server, 0, 2, 1.0, key="v")
        with pytest.raises(ValueError, match=r"is float32\[3\] on the server, the value float32\[4\]"):
            await send(server, "w", "a", 1, 0, [np.zeros(4, "float32")], DENSE)
        with pytest.raises(ValueError, match=r"the value float64\[3\]"):
            await send(server, "w", "a", 1, 0, [np.zeros(3)], DENSE)
        assert await push(server, 0, 2, 1.0) == 2

    run(main())


def test_asynchronous_kinds_need_an_optimizer():
    async def main():
        server = await started("dist_async", updater=None)
        with pytest.raises(ValueError, match="call set_optimizer first"):
            await push(server, 0, 1, 1.0)

    run(main())


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_pull_waits_for_workers_that_are_too_far_behind(staleness):
    async def main():
        server = await started("dist_ssp", staleness=staleness)
        for k in range(staleness):
            await push(server, 0, k + 1, 1.0)
            await pull(server, "w", 0)
        await push(server, 0, staleness + 1, 1.0)
        waiting = await blocked(pull(server, "w", 0))
        await pull(server, "w", 1)  # the slow one never waits
        await push(server, 1, 1, 10.0)
        assert (await waiting).tolist() == [-(staleness + 11)] * 3
        ahead = [push(server, 0, staleness + 2 + k, 0.0) for k in range(staleness + 1)]
        for each in ahead:
            await each
        waiting = await blocked(pull(server, "w", 0))
        await server.leave(1)
        await waiting

    run(main())


def test_a_push_that_is_sent_again_is_applied_once():
    async def main():
        server = await started("dist_async")
        for number in (1, 1, 2, 1, 3, 4, 3, 4):
            await push(server, 0, number, 1.0)
        assert server.versions["w"] == 4
        assert (await pull(server, "w", 0)).tolist() == [-4, -4, -4]
        await push(server, 0, 1, 1.0, who="another life of worker 0")
        assert server.versions["w"] == 5

    run(main())


def test_a_barrier_waits_for_all_that_are_there():
    async def main():
        server = await started("dist_async", workers=3)
        one, two = await blocked(server.barrier(1, 0)), await blocked(server.barrier(1, 1))
        await server.leave(2)
        await asyncio.gather(one, two)
        await server.barrier(1, 2)  # one that comes late to what is over

    run(main())


def test_workers_that_keep_others_waiting_are_named(monkeypatch, capfd):
    monkeypatch.setenv("WEFT_STALL_S", "0.1")

    async def main():
        server = await started("dist_sync_ps")
        waiting = asyncio.ensure_future(push(server, 0, 1, 1.0))
        while "rank 1 (test 1)" not in capfd.readouterr().err:
            await asyncio.sleep(0.02)
        await push(server, 1, 1, 1.0)
        await waiting

    run(main())


@pytest.mark.parametrize("updater", [SGD, ADAM])
@pytest.mark.parametrize("every", [1, 3, 100])
def test_a_server_goes_on_bit_for_bit_after_it_was_killed_anywhere(tmp_path, updater, every):
    """The journal is cut at every length that a killed server could leave."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((7, 3)).astype("float32")

    async def apply(server, numbers):
        for k in numbers:
            await send(server, "w", "a", k + 1, 0, [values[k]], DENSE)
        return await pull(server, "w", 0)

    async def main():
        whole = await apply(await started("dist_async", updater=updater), range(7))
        for killed_after in range(8):
            folder = str(tmp_path / f"{killed_after}")
            server = await started("dist_async", updater=updater, folder=folder, every=every)
            await apply(server, range(killed_after))
            again = await started("dist_async", folder=folder, every=every)
            assert again.versions["w"] == killed_after
            # the worker sends again what it has no answer to, and what it has
            found = await apply(again, [*range(max(killed_after - 2, 0), 7)])
            np.testing.assert_array_equal(found, whole)
            assert again.versions["w"] == 7

    run(main())


def test_a_record_that_was_cut_off_is_no_record(tmp_path):
    journal = Journal(tmp_path)
    for k in range(3):
        journal.append({"k": k}, [np.arange(k, dtype="int64"), np.full((2, 2), k, "float32")])
    journal.close()
    path = tmp_path / "journal"
    data = path.read_bytes()
    ends = []
    for size in range(len(data), -1, -1):
        path.write_bytes(data[:size])
        found = [header["k"] for header, _ in Journal(tmp_path).records(0)]
        ends.append(len(found))
        assert found == list(range(len(found)))
        assert len(path.read_bytes()) <= size
    assert sorted(set(ends)) == [0, 1, 2, 3]
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # a bit that fell over
    journal = Journal(tmp_path)
    assert [header["k"] for header, _ in journal.records(0)] == [0, 1]
    journal.append({"k": 9}, [])
    assert [header["k"] for header, _ in Journal(tmp_path).records(0)] == [0, 1, 9]
    assert [header["k"] for header, _ in Journal(tmp_path).records(2)] == [9]


def test_a_journal_behind_its_snapshot_is_not_applied_twice(tmp_path):
    """A server that is killed between writing a snapshot and beginning a new journal."""

    async def main():
        server = await started("dist_async", folder=str(tmp_path))
        for k in range(3):
            await push(server, 0, k + 1, 1.0)
        journal = (tmp_path / "journal").read_bytes()
        server._snapshot()
        (tmp_path / "journal").write_bytes(journal)
        again = Server("dist_async", 2, str(tmp_path))
        assert again.versions == {"w": 3}
        assert (await pull(again, "w", 0)).tolist() == [-3, -3, -3]

    run(main())


def test_a_journal_begins_at_the_front_of_its_file_again(tmp_path):
    """Records of an earlier round behind the last one are none, wherever the server is killed."""
    journal = Journal(tmp_path)
    for k in range(6):
        journal.append({"k": k}, [np.full(5, k, "float32")])
    journal.restart()
    assert journal.size_bytes == 0
    size = (tmp_path / "journal").stat().st_size
    for k in range(6, 9):
        journal.append({"k": k}, [np.full(5 if k < 8 else 2, k, "float32")])
    journal.close()
    assert (tmp_path / "journal").stat().st_size == size  # the file has not grown
    data = (tmp_path / "journal").read_bytes()
    again = Journal(tmp_path)
    assert [(h["k"], a.tolist()) for h, (a,) in again.records(6)] == [
        (6, [6.0] * 5),
        (7, [7.0] * 5),
        (8, [8.0] * 2),
    ]
    assert again.size_bytes < size
    again.append({"k": 9}, [])
    again.close()
    assert [h["k"] for h, _ in Journal(tmp_path).records(6)] == [6, 7, 8, 9]
    for end in range(len(data)):  # killed while it wrote over what was there
        whole = Journal(tmp_path / "old")
        for k in range(6):
            whole.append({"k": k}, [np.full(5, k, "float32")])
        whole.close()
        before = (tmp_path / "old" / "journal").read_bytes()
        (tmp_path / "old" / "journal").write_bytes(data[:end] + before[end:])
        found = [h["k"] for h, _ in Journal(tmp_path / "old").records(6)]
        assert found == [6, 7, 8][: len(found)], (end, found)
        (tmp_path / "old" / "journal").unlink()


def test_a_server_that_begins_its_journal_again_and_again_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "weft.kvstore.server.MAX_JOURNAL_BYTES", 500
    )  # a snapshot is due behind so many bytes of records

    async def main():
        server = await started("dist_async", folder=str(tmp_path), every=10**6)
        for k in range(20):
            assert await push(server, 0, k + 1, 1.0) == k + 1
            again = Server("dist_async", 2, str(tmp_path))
            assert again.versions == {"w": k + 1}
            assert (await pull(again, "w", 0)).tolist() == [-k - 1] * 3
        assert server.journal.number > 20
        assert (tmp_path / "journal").stat().st_size < 1500

    run(main())


@pytest.mark.parametrize("mode", ["dist_sync_ps", "dist_async"])
def test_a_push_with_a_pull_is_one_call(tmp_path, mode):
    async def both(server, rank, key="w"):
        parts = [np.full(3, 1.0, "float32")]
        (value,) = await server.exchange(f"worker {rank}", rank, [(key, 1, parts, DENSE)], [(key, None)])
        return value.tolist()

    async def main():
        server = await started(mode, folder=str(tmp_path))
        if mode == "dist_async":
            assert await both(server, 0) == [-1] * 3
            assert await both(server, 1) == [-2] * 3
        else:
            first = await blocked(both(server, 0))
            assert await both(server, 1) == await first == [-2] * 3
        # sent again after the server died: applied once
        again = Server(mode, 2, str(tmp_path))
        assert await both(again, 0) == [-2] * 3
        with pytest.raises(KeyError, match="no key 'v'"):
            await both(again, 0, "v")

    run(main())


def test_answers_keep_what_they_were_made_of():
    """Their memory is used again only when the answer and all views of it have gone."""

    async def main():
        server = await started("dist_async")
        first = await pull(server, "w", 0)
        view, address = first[1:], first.ctypes.data
        del first
        await push(server, 0, 1, 1.0)
        second = await pull(server, "w", 0)
        assert view.tolist() == [0, 0]
        assert second.tolist() == [-1] * 3
        assert second.ctypes.data != address
        del view
        third = await pull(server, "w", 0)
        assert third.ctypes.data == address
        assert second.tolist() == third.tolist()

    run(main())


def test_commits_are_a_serial_replay_of_the_journal(tmp_path):
    async def main():
        server = await started("dist_async", workers=3, updater=ADAM, folder=str(tmp_path), every=10**6)
        rng = np.random.default_rng(1)
        counts = [0, 0, 0]
        for _ in range(20):
            rank = int(rng.integers(3))
            counts[rank] += 1
            await push(server, rank, counts[rank], float(rng.standard_normal()))
        return await pull(server, "w", 0)

    found = run(main())
    w = wf.zeros(3)
    opt = optim.Adam([w], lr=0.1)
    for header, arrays in Journal(tmp_path).records(0):
        if header["do"] == "push":
            w.grad = wf.tensor(arrays[0].copy())
            opt.step()
    np.testing.assert_array_equal(found, w.numpy())


@pytest.mark.parametrize("every", [1, 100])
def test_a_restarted_server_knows_who_is_there(tmp_path, every):
    async def main():
        server = await started("dist_sync_ps", workers=3, folder=str(tmp_path), every=every)
        await asyncio.gather(*(push(server, rank, 1, 1.0) for rank in range(3)))
        await asyncio.gather(*(server.barrier(1, rank) for rank in range(3)))
        await server.leave(2)
        again = Server("dist_sync_ps", 3, str(tmp_path), every)
        assert again.active == {0: "test 0", 1: "test 1"}
        await again.barrier(1, 0)  # the answer was lost
        first = await blocked(push(again, 0, 2, 1.0))
        await push(again, 1, 2, 5.0)
        await first
        assert (await pull(again, "w", 0)).tolist() == [-9, -9, -9]
        assert again.clocks["w"] == {0: 2, 1: 2}

    run(main())


def test_rows_and_compression_survive_too(tmp_path):
    async def main():
        server = Server("dist_async", 1, str(tmp_path), every=2)
        await server.join(0, "test")
        await server.init(5, ("float32", (4, 2)), np.ones((4, 2), "float32"), 0)
        await server.configure("updater", SGD)
        await server.configure("compression", {"type": "2bit", "threshold": 0.5})
        packed = np.zeros(4, "uint8")
        packed[0] = 0b11000010  # +0.5, 0, 0, -0.5
        for k in range(3):
            await send(
                server, 5, "a", 2 * k + 1, 0, [np.array([1, 3]), np.ones((2, 2), "float32")], {"kind": "rows"}
            )
            await send(server, 5, "a", 2 * k + 2, 0, [packed], {"kind": "compressed"})
        return await pull(server, 5, 0), await pull(server, 5, 0, rows=np.array([3]))

    whole, rows = run(main())
    assert whole.tolist() == [[-0.5, 1], [-2, -0.5], [1, 1], [-2, -2]]
    assert rows.tolist() == [[-2, -2]]
    again = Server("dist_async", 1, str(tmp_path))
    np.testing.assert_array_equal(run(pull(again, 5, 0)), whole)
    assert again.codec.threshold == 0.5


def test_an_update_that_cannot_be_written_is_not_acknowledged(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left on device")

    async def main():
        server = await started("dist_async", folder=str(tmp_path))
        await push(server, 0, 1, 1.0)
        with monkeypatch.context() as patch:
            patch.setattr("weft.kvstore.journal._write", full)
            with pytest.raises(OSError, match="no space left"):
                await push(server, 0, 2, 1.0)
        again = Server("dist_async", 2, str(tmp_path))
        assert again.versions["w"] == 1

    run(main())


def test_snapshots_are_replaced_at_once(tmp_path):
    async def main():
        server = await started("dist_async", folder=str(tmp_path), every=1)
        for k in range(3):
            await push(server, 0, k + 1, 1.0)
        return sorted(os.listdir(tmp_path))

    assert run(main()) == ["journal", "snapshot.safetensors"]


def test_servers_call_only_what_they_can_import():
    assert reference_of(optim.SGD) == "weft.optimizer.methods:SGD"
    with pytest.raises(ValueError, match="top of a module"):
        reference_of(lambda key, pushed, stored: None)
    with contextlib.suppress(ValueError):
        assert reference_of(contextlib.suppress.__init__)


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
@pytest.mark.parametrize("shape", [(), (5,), (10, 4), (3, 30), (40,), (7, 0)])
def test_the_parts_of_an_array_are_all_of_it(servers, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    pieces = pieces_of("key", shape, servers, big=20)
    found = [piece.of(array).reshape(-1) for piece in pieces]
    np.testing.assert_array_equal(np.concatenate(found), array.reshape(-1))
    assert len(pieces) == (servers if array.size >= 20 else 1)
    assert all(0 <= piece.server < servers for piece in pieces)
    assert pieces_of("key", shape, servers, big=20)[0].server == pieces[0].server  # the same in each process
