"""The loader: batches, orders, transforms, and going on in the middle."""

import json

import numpy as np
import pytest

import weft as wf
import weft.data as data


def numbers(loader):
    return [batch.numpy().tolist() for batch in loader]


class Squares(data.Dataset):
    """Fetched one by one."""

    def __len__(self):
        return 7

    def __getitem__(self, k):
        return k * k


class Count(data.StreamDataset):
    def __iter__(self):
        return iter(range(7))


def test_order_and_last_batch():
    dataset = data.ArrayDataset(np.arange(7))
    assert numbers(data.DataLoader(dataset, batch_size=3)) == [[0, 1, 2], [3, 4, 5], [6]]
    short = data.DataLoader(dataset, batch_size=3, drop_last=True)
    assert numbers(short) == [[0, 1, 2], [3, 4, 5]]
    assert len(short) == 2
    assert numbers(data.DataLoader(dataset, [5, 1, 1], batch_size=2)) == [[5, 1], [1]]
    own = data.BatchSampler([6, 0, 3], 2)
    assert numbers(data.DataLoader(dataset, own)) == [[6, 0], [3]]
    assert numbers(data.DataLoader([10, 20, 30], batch_size=2)) == [[10, 20], [30]]  # any sequence
    assert numbers(data.DataLoader(data.ArrayDataset(np.zeros(0)), batch_size=2)) == []


def test_each_epoch_has_its_own_order():
    def epochs(seed):
        loader = data.DataLoader(data.ArrayDataset(np.arange(20)), batch_size=6, shuffle=True, seed=seed)
        return [[x for batch in numbers(loader) for x in batch] for _ in range(3)]

    found = epochs(5)
    assert found == epochs(5)
    assert all(sorted(each) == list(range(20)) for each in found)
    assert found[0] != found[1] != found[2]


def test_batches_are_tensors_of_the_structure():
    x, y = np.ones((5, 2, 2), "float32"), np.arange(5)
    (a, b), *_ = data.DataLoader(data.ArrayDataset(x, y), batch_size=4)
    assert isinstance(a, wf.Tensor)
    assert (a.shape, a.dtype.name) == ((4, 2, 2), "float32")
    assert b.numpy().tolist() == [0, 1, 2, 3]
    a += 1
    assert x.max() == 1  # a batch is a copy


def test_fetching_at_once_is_fetching_one_by_one():
    dataset = data.ArrayDataset(np.random.default_rng(0).random((9, 3)), np.arange(9))
    fast = data.DataLoader(dataset, batch_size=4, shuffle=True, seed=1)
    slow = data.DataLoader(dataset, batch_size=4, shuffle=True, seed=1, transform=lambda sample: sample)
    for a, b in zip(fast, slow, strict=True):
        for p, q in zip(a, b, strict=True):
            np.testing.assert_array_equal(p.numpy(), q.numpy())
            assert p.dtype is q.dtype


def test_transforms_and_collators():
    loader = data.DataLoader(Squares(), batch_size=4, transform=lambda x: x + 0.5)
    assert numbers(loader) == [[0.5, 1.5, 4.5, 9.5], [16.5, 25.5, 36.5]]
    loader = data.DataLoader(Squares(), batch_size=4, collator=lambda samples: np.array(samples).sum())
    assert [int(batch) for batch in loader] == [14, 77]


def test_streams():
    loader = data.DataLoader(Count(), batch_size=3, transform=lambda x: 2 * x)
    assert numbers(loader) == [[0, 2, 4], [6, 8, 10], [12]]
    assert numbers(data.DataLoader(Count(), batch_size=3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(TypeError, match="a stream has no length"):
        len(loader)


MAKERS = {
    "shuffled": lambda: data.DataLoader(data.ArrayDataset(np.arange(11)), batch_size=3, shuffle=True),
    "in order": lambda: data.DataLoader(Squares(), batch_size=2),
    "drop_last": lambda: data.DataLoader(Squares(), data.RandomSampler(7), batch_size=3, drop_last=True),
    "stream": lambda: data.DataLoader(Count(), batch_size=2),
    "batches": lambda: data.DataLoader(Squares(), data.BatchSampler(data.RandomSampler(7), 2)),
}


@pytest.mark.parametrize("taken", range(10))
@pytest.mark.parametrize("name", MAKERS)
def test_going_on_in_the_middle(name, taken):
    """After any number of batches, over the ends of epochs, the rest is what it would have been."""

    def forever(loader):
        while True:
            yield from (batch.numpy().tolist() for batch in loader)

    loader = MAKERS[name]()
    batches = forever(loader)
    for _ in range(taken):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    want = [next(batches) for _ in range(9)]
    other = MAKERS[name]()  # with another seed
    other.load_state_dict(state)
    rest = forever(other)
    assert [next(rest) for _ in range(9)] == want


def test_state_inside_of_the_loop_and_after_it():
    loader = data.DataLoader(Squares(), batch_size=3)
    for k, _ in enumerate(loader):
        assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (0, k + 1)
    assert (loader.epoch, loader.state_dict()["batch"]) == (1, 0)


def test_leaving_an_epoch_begins_the_next():
    loader = data.DataLoader(data.ArrayDataset(np.arange(20)), batch_size=20, shuffle=True, seed=0)
    first = next(iter(loader)).numpy().tolist()
    second = next(iter(loader)).numpy().tolist()
    assert first != second
    again = data.DataLoader(data.ArrayDataset(np.arange(20)), batch_size=20, shuffle=True, seed=0)
    assert [numbers(again)[0], numbers(again)[0]] == [first, second]


def test_hostile_states_change_nothing():
    loader = data.DataLoader(Squares(), batch_size=2, shuffle=True, seed=4)
    next(iter(loader))
    good = loader.state_dict()
    batches = good["batches"]
    for bad, words in (
        ({}, "takes what state_dict"),
        (3, "takes what state_dict"),
        ({**good, "epoch": -1}, "epoch must be an integer"),
        ({**good, "batch": 1.5}, "batch must be an integer"),
        ({**good, "samples": 8}, "the dataset had 8 samples, here 7"),
        ({**good, "batches": {}}, "needs exactly"),
        ({**good, "batches": {**batches, "batch_size": 3}}, "batch_size was 3, here 2"),
        ({**good, "batches": {**batches, "sampler": {}}}, r"RandomSampler: needs exactly \['seed'\]"),
        ({**good, "batches": {**batches, "sampler": {"seed": None}}}, "seed must be an integer"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            loader.load_state_dict(bad)
        assert loader.state_dict() == good


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: data.DataLoader(5), TypeError, "takes a Dataset or a StreamDataset, got int"),
        (lambda: data.DataLoader([1], batch_size=0), ValueError, "batch_size must be at least 1"),
        (lambda: data.DataLoader([1], [0], shuffle=True), ValueError, "both say the order"),
        (lambda: data.DataLoader([1], seed=-1), ValueError, "seed must be at least 0, got -1"),
        (
            lambda: data.DataLoader([1], mode="fork"),
            ValueError,
            "mode must be 'thread' or 'process', got 'fork'",
        ),
        (lambda: data.DataLoader([1], prefetch=0), ValueError, "prefetch must be at least 1"),
        (lambda: data.DataLoader([1], timeout_s=0), ValueError, "timeout_s must be greater than 0"),
        (
            lambda: data.DataLoader([1], on_error="skip"),
            ValueError,
            "must be 'raise' or 'restart', got 'skip'",
        ),
        (lambda: data.DataLoader(Count(), shuffle=True), ValueError, "no sampler, no shuffle"),
        (
            lambda: data.DataLoader([1], data.BatchSampler([0], 1), batch_size=2),
            ValueError,
            "says batch_size and drop_last itself",
        ),
        (lambda: data.DataLoader([1], num_workers=-1), ValueError, "num_workers must be at least 0"),
    ],
)
def test_errors(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_an_error_of_a_sample_comes_through():
    def fail(sample):
        raise RuntimeError(f"sample {sample}")

    loader = data.DataLoader(Squares(), batch_size=2, transform=fail)
    with pytest.raises(RuntimeError, match="sample 0"):
        next(iter(loader))


def test_text_of_numpy():
    samples = [{"x": np.float32(k), "name": np.str_(k), "words": np.array(["a", str(k)])} for k in range(4)]
    batch = next(iter(data.DataLoader(samples, batch_size=2)))
    assert (batch["name"], batch["words"]) == (["0", "1"], [["a", "a"], ["0", "1"]])
    assert batch["x"].numpy().tolist() == [0, 1]


class Streamed:
    def __iter__(self):
        return iter(range(5))


@pytest.mark.parametrize(("mode", "workers"), [("thread", 0), ("thread", 2), ("process", 2)])
def test_iterables_begin_anew(mode, workers):
    loader = data.DataLoader(Streamed(), batch_size=2, num_workers=workers, mode=mode)
    assert [numbers(loader) for _ in range(2)] == [[[0, 1], [2, 3], [4]]] * 2
    with pytest.raises(TypeError, match="got list_iterator"):
        data.DataLoader(iter([1, 2]))


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_datasets_of_hugging_face(mode):
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"x": [[k, k + 0.5] for k in range(10)], "name": list("abcdefghij")})
    table = table.with_format("numpy")
    for given in (table, table.to_iterable_dataset()):
        loader = data.DataLoader(given, batch_size=4, num_workers=2, mode=mode)
        batches = list(loader)
        assert [batch["x"].shape for batch in batches] == [(4, 2), (4, 2), (2, 2)]
        assert [name for batch in batches for name in batch["name"]] == list("abcdefghij")


def test_a_sampler_that_ends_after_one_epoch_is_refused():
    with pytest.raises(TypeError, match="sampler is a generator, which ends after one epoch"):
        data.DataLoader([1, 2], (k for k in range(2)))


def test_arrays_of_other_libraries():
    class Other:
        def __init__(self, values):
            self.values = values

        def __array__(self, dtype=None, copy=None):
            return np.array(self.values, dtype)

    (batch,) = data.DataLoader([(Other([1, 2]), 3), (Other([4, 5]), 6)], batch_size=2)
    assert [x.numpy().tolist() for x in batch] == [[[1, 2], [4, 5]], [3, 6]]


def test_a_shuffled_stream():
    stream = data.MapStream(range(50)).shuffle(8, seed=3)
    first, second = list(stream.iterate(0)), list(stream.iterate(1))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second != list(range(50))
    assert all(sample <= place + 8 for place, sample in enumerate(first))  # only so far ahead
    loader = data.DataLoader(stream, batch_size=5)
    whole = numbers(loader)
    assert [x for batch in whole for x in batch] == first
    other = data.DataLoader(stream, batch_size=5)
    batches = iter(other)
    next(batches), next(batches)
    again = data.DataLoader(data.MapStream(range(50)).shuffle(8, seed=3), batch_size=5)
    again.load_state_dict(other.state_dict())
    assert numbers(again) == whole[2:]
    with pytest.raises(ValueError, match="buffer_size must be at least 1"):
        stream.shuffle(0)


def test_what_loaders_and_datasets_are_is_readable():
    assert repr(data.ArrayDataset(np.zeros(5))) == "ArrayDataset(5 samples)"
    assert repr(Count()) == "Count(stream)"
    loader = data.DataLoader(Squares(), batch_size=2, num_workers=3, mode="process")
    text = "DataLoader(Squares(7 samples), batch_size=2, 4 batches, made by 3 processes; epoch 0, batch 0)"
    assert repr(loader) == text
    assert "DataLoader(Count(stream), batch_size=1, made by the loop;" in repr(data.DataLoader(Count()))
