"""Random numbers: fixed by the seed and the order of the calls alone, within their bounds, spread as they should be."""

import hashlib
import json
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import weft as wf
from weft import random
from weft.base.errors import DeviceError, DTypeError, EngineError, ShapeError
from weft.engine import default_engine

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.fixture(autouse=True)
def keep_state():
    """Each test begins at seed 0 and leaves the streams as they were."""
    before = random.get_state()
    random.seed(0)
    yield
    random.set_state(before)


def drawn(fn, *arguments, **options):
    """What the function gives after seed(0), as a NumPy array that shares nothing."""
    random.seed(0)
    return fn(*arguments, **options).numpy().copy()


def position(device="cpu:0"):
    return random.get_state()[device][2]


def run(source, **env):
    """stdout of a process of its own; None takes a variable away."""
    changed = {"PYTHONWARNINGS": "ignore::DeprecationWarning", **env}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(source)],
        env={name: text for name, text in {**os.environ, **changed}.items() if text is not None},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "nanobind: leaked" not in done.stderr
    return done.stdout


# The numbers themselves.

GOLDEN = {
    "uniform": (
        lambda: random.uniform(shape=4),
        ["0x1.989fa00000000p-2", "0x1.c2d38a0000000p-1", "0x1.f1c9980000000p-1", "0x1.72c8000000000p-2"],
    ),
    "uniform float64": (
        lambda: random.uniform(-1, 3, shape=3, dtype="float64"),
        ["0x1.42d38b1acc4fdp+1", "0x1.cb200dbf8e4cap-2", "0x1.1c732a604faa0p-2"],
    ),
    "uniform float16": (
        lambda: random.uniform(shape=3, dtype="float16"),
        ["0x1.9880000000000p-2", "0x1.c2c0000000000p-1", "0x1.f1c0000000000p-1"],
    ),
    "uniform bfloat16": (
        lambda: random.uniform(shape=3, dtype="bfloat16"),
        ["0x1.9800000000000p-2", "0x1.c200000000000p-1", "0x1.f200000000000p-1"],
    ),
    "normal": (
        lambda: random.normal(shape=4),
        ["-0x1.f1bcd60000000p-4", "-0x1.9736260000000p-2", "-0x1.4f5b4c0000000p-4", "0x1.63083c0000000p+0"],
    ),
    "randint": (lambda: random.randint(1000, shape=6), [880, 362, 319, 415, 693, 27]),
    "randint int8": (
        lambda: random.randint(-128, 128, shape=6, dtype="int8"),
        [97, -36, -47, -22, 49, -121],
    ),
    "randint uint64": (
        lambda: random.randint(0, 2**63 - 1, shape=2, dtype="uint64"),
        [8121365371091678313, 3339701071058724433],
    ),
    "permutation": (lambda: random.permutation(10), [4, 2, 6, 9, 3, 7, 8, 0, 5, 1]),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_numbers_of_seed_0_are_these_for_ever(name):
    make, expected = GOLDEN[name]
    assert [x.hex() if isinstance(x, float) else x for x in drawn(make).tolist()] == expected


def test_numbers_of_seed_0_are_these_but_for_the_c_library():
    """float64's normals use its log, sin and cos."""
    seen = drawn(random.normal, 5, 2, shape=3, dtype="float64")
    np.testing.assert_allclose(
        seen, [4.204664923111635, 7.773688854205675, 4.588427422071552], rtol=1e-14, atol=0
    )


@pytest.mark.parametrize(
    ("make", "digest"),
    [
        (lambda: random.uniform(shape=100000), "336ee553f62abced"),
        (lambda: random.randint(1000, shape=100000), "8cc9dfb856b9cf4a"),
        (lambda: random.permutation(5000), "f81d316860936035"),
    ],
    ids=["uniform", "randint", "permutation"],
)
def test_many_numbers_of_seed_0_are_these_for_ever(make, digest):
    assert hashlib.sha256(drawn(make).tobytes()).hexdigest()[:16] == digest


def test_numbers_go_on_where_the_last_call_stopped():
    """However much a call draws, the next one's numbers are others, and the position says how far it is."""
    positions, seen = [position()], []
    for count in (1, 2, 5, 1000):
        for make in (
            lambda n: random.uniform(shape=n),
            lambda n: random.uniform(shape=n, dtype="float64"),
            lambda n: random.normal(shape=n),
            lambda n: random.normal(shape=n, dtype="float64"),
            lambda n: random.randint(2**62, shape=n),
            lambda n: random.permutation(n),
        ):
            seen.append(make(count))
            positions.append(position())
    assert positions[0] == 0
    assert positions == sorted(set(positions))
    firsts = [x.numpy().ravel()[0] for x in seen if x.dtype.name == "float64"]
    assert len(set(firsts)) == len(firsts)


@pytest.mark.parametrize("shape", [0, (0,), (3, 0), (0, 5, 2)])
def test_nothing_drawn_takes_no_position(shape):
    for x in (
        random.uniform(shape=shape),
        random.normal(shape=shape),
        random.randint(5, shape=shape),
        random.permutation(wf.zeros(shape)),
    ):
        assert x.size == 0
        assert x.shape == (shape if isinstance(shape, tuple) else (shape,))
        assert x.numpy().shape == x.shape
    assert random.permutation(0).shape == (0,)
    assert position() == 0


def test_numbers_do_not_depend_on_the_shape():
    flat = drawn(random.uniform, shape=24)
    for shape in ((24, 1), (2, 3, 4), (1, 2, 2, 6), [4, 6]):
        np.testing.assert_array_equal(drawn(random.uniform, shape=shape).ravel(), flat)
    assert drawn(random.uniform).shape == ()
    assert drawn(random.uniform) == flat[0]


PROGRAM = """
    import hashlib
    import weft as wf
    from weft import random

    random.seed(3)
    held = wf.zeros(3)
    made = []
    for n in (1, 7, 100, 5000, 400000):  # here, on a worker, and by many threads
        made.append(random.uniform(-2, 5, shape=n))
        made.append(random.normal(shape=(n, 2), device="cpu:1"))
        made.append(random.randint(-5, 1000, shape=n, dtype="int16"))
        made.append(random.uniform(shape=n, dtype="bfloat16").astype("float32"))
    made.append(random.permutation(3000))
    made.append(random.permutation(made[2].reshape(-1, 1)))
    digest = hashlib.sha256()
    for x in made:
        digest.update(x.memory())
    print(digest.hexdigest(), random.get_state()["cpu:0"], random.get_state()["cpu:1"])
"""


def test_numbers_do_not_depend_on_threads_engine_or_schedule():
    ways = [
        {"WEFT_NUM_THREADS": "1"},
        {"WEFT_NUM_THREADS": "8"},
        {"WEFT_ENGINE": "naive"},
        {"WEFT_SCHEDULE_SEED": "1"},
        {"WEFT_SCHEDULE_SEED": "77"},
        {"WEFT_CHECK": "1"},
    ]
    plain = dict.fromkeys(("WEFT_NUM_THREADS", "WEFT_ENGINE", "WEFT_SCHEDULE_SEED", "WEFT_CHECK"))
    results = {str(way): run(PROGRAM, **{**plain, **way}) for way in ways}
    assert len(set(results.values())) == 1, results


def test_numbers_of_a_process_that_was_not_seeded_differ_from_those_of_another():
    source = "import weft as wf; print(wf.random.uniform(shape=3).numpy().tolist(), wf.random.get_state()['cpu:0'])"
    first, second = run(source), run(source)
    assert first != second


# Seeds and states.


def test_seed_begins_anew():
    a, b = random.normal(shape=5).numpy(), random.normal(shape=5).numpy()
    random.seed(0)
    np.testing.assert_array_equal(random.normal(shape=5).numpy(), a)
    np.testing.assert_array_equal(random.normal(shape=5).numpy(), b)
    random.seed(1)
    assert (random.normal(shape=5).numpy() != a).all()


def test_seed_gives_each_device_numbers_of_its_own():
    seen = [random.uniform(shape=4, device=f"cpu:{i}").numpy().tolist() for i in (0, 1, 2, 63)]
    assert len({x for row in seen for x in row}) == 16


def test_seed_of_one_device_gives_what_cpu_0_gives_and_leaves_the_others():
    expected = random.uniform(shape=6).numpy()
    others = {name: state for name, state in random.get_state().items() if name != "cpu:3"}
    random.seed(0, device="cpu:3")
    np.testing.assert_array_equal(random.uniform(shape=6, device="cpu:3").numpy(), expected)
    random.seed(0, wf.cpu(3))
    np.testing.assert_array_equal(random.uniform(shape=6, device=wf.cpu(3)).numpy(), expected)
    assert {name: state for name, state in random.get_state().items() if name != "cpu:3"} == others


def test_streams_of_devices_do_not_disturb_each_other():
    alone = [random.uniform(shape=5, device="cpu:1").numpy() for _ in range(3)]
    random.seed(0)
    mixed = []
    for i in range(3):
        random.uniform(shape=1000 * i)
        mixed.append(random.uniform(shape=5, device="cpu:1").numpy())
        random.permutation(wf.zeros((i, 4), device="cpu:2"))
    np.testing.assert_array_equal(mixed, alone)


def test_a_tensor_is_permuted_by_the_stream_of_its_own_device():
    x = wf.arange(100).to_device("cpu:1")
    y = random.permutation(x)
    assert y.device is wf.cpu(1)
    assert (position("cpu:0"), position("cpu:1") > 0) == (0, True)
    random.seed(0)
    np.testing.assert_array_equal(random.permutation(100, device="cpu:1").numpy(), y.numpy())


def test_the_default_device_is_that_of_the_block():
    with wf.device("cpu:2"):
        for x in (random.uniform(shape=2), random.normal(), random.randint(4), random.permutation(3)):
            assert x.device is wf.cpu(2)
    assert (position("cpu:0"), position("cpu:2") > 0) == (0, True)


@pytest.mark.parametrize("through", [dict, lambda s: json.loads(json.dumps(s))], ids=["plain", "json"])
def test_states_come_back(through):
    random.uniform(shape=77)
    random.normal(shape=3, device="cpu:5")
    state = through(random.get_state())

    def draw():
        return [
            random.uniform(shape=9).numpy().tolist(),
            random.normal(shape=9, device="cpu:5").numpy().tolist(),
            random.permutation(20).numpy().tolist(),
        ]

    first = draw()
    assert draw() != first
    random.set_state(state)
    assert {name: list(numbers) for name, numbers in random.get_state().items()} == {
        name: list(numbers) for name, numbers in state.items()
    }
    assert draw() == first


def test_states_are_plain_numbers_of_every_device():
    random.seed(2**64 - 1)
    state = random.get_state()
    assert list(state) == [*(f"cpu:{i}" for i in range(64)), "gpu"]
    assert state["gpu"] == (2**64 - 1, 0, 0)  # those that were not used
    assert all(state[f"cpu:{i}"] == (2**64 - 1, i, 0) for i in range(64))


def test_states_of_devices_that_are_not_named_stay():
    random.uniform(shape=10, device="cpu:1")
    kept = random.get_state()["cpu:1"]
    random.set_state({"cpu:0": (5, 6, 7)})
    assert random.get_state()["cpu:0"] == (5, 6, 7)
    assert random.get_state()["cpu:1"] == kept
    random.set_state({})
    assert random.get_state()["cpu:0"] == (5, 6, 7)


def test_states_at_the_last_position_begin_again():
    random.set_state({"cpu:0": (1, 0, 2**64 - 1)})
    end = random.uniform(shape=1000).numpy()
    assert position() < 2**32
    random.set_state({"cpu:0": (1, 0, 0)})
    begin = random.uniform(shape=1000).numpy()
    assert not np.array_equal(begin, end)
    assert np.isin(begin[:900], end).all(), "all but the first block is the beginning"


@pytest.mark.parametrize("wrong", [(1, 2), (1, 2, 3, 4), (1, 2, -1), (1, 2, 2**64), (1, 2, 0.5), ("1", 2, 3)])
def test_states_that_are_none_change_nothing(wrong):
    before = random.get_state()
    with pytest.raises(
        ValueError, match=r"set_state: cpu:1: expected three integers in 0\.\.2\*\*64-1, got "
    ):
        random.set_state({"cpu:0": (1, 1, 1), "cpu:1": wrong})
    assert random.get_state() == before


@pytest.mark.parametrize("name", ["gpu:0", "cpu:64", "nowhere"])
def test_states_of_devices_that_are_not_there_change_nothing(name):
    before = random.get_state()
    with pytest.raises((ValueError, RuntimeError), match=r"gpu|64|nowhere"):
        random.set_state({"cpu:0": (1, 1, 1), name: (1, 1, 1)})
    assert random.get_state() == before


def test_positions_follow_the_calls_while_earlier_operations_are_pending():
    """The second call's numbers are made long before the first one's, which wait."""
    expected = [random.permutation(wf.arange(50)).numpy(), random.uniform(shape=5).numpy()]
    random.seed(0)
    x, opened = wf.arange(50), threading.Event()
    default_engine().push(lambda rc: opened.wait(30), mutate_vars=[x], queue="io")
    try:
        held = random.permutation(x)
        second = random.uniform(shape=5).numpy()
        assert held.version == 0
    finally:
        opened.set()
    np.testing.assert_array_equal(second, expected[1])
    np.testing.assert_array_equal(held.numpy(), expected[0])


def test_seeding_does_not_change_numbers_that_are_pending():
    expected = random.permutation(wf.arange(50)).numpy()
    random.seed(0)
    x, opened = wf.arange(50), threading.Event()
    default_engine().push(lambda rc: opened.wait(30), mutate_vars=[x], queue="io")
    held = random.permutation(x)
    random.seed(99)
    opened.set()
    np.testing.assert_array_equal(held.numpy(), expected)


def test_threads_draw_different_numbers_and_all_of_them(in_threads):
    """Together they give what one thread would have given; who gets which is open."""
    expected = sorted(x for _ in range(160) for x in random.randint(2**62, shape=50).numpy().tolist())
    end = position()
    random.seed(0)
    results = [[] for _ in range(8)]

    def draw(result):
        for _ in range(20):
            result.extend(random.randint(2**62, shape=50).numpy().tolist())

    in_threads(draw, results)
    everything = [x for result in results for x in result]
    assert len(set(everything)) == 8000
    assert sorted(everything) == expected
    assert position() == end


@pytest.mark.parametrize("engine", ["threaded", "naive"])
def test_a_forked_child_goes_on_from_its_parents_state(engine):
    out = run(
        """
        import os, sys
        import weft as wf
        from weft import random
        random.seed(4)
        big = random.uniform(shape=300000)
        for i in range(20):
            random.normal(shape=1000, device=f"cpu:{i % 3}")
        def draw():
            values = [random.uniform(shape=3), random.permutation(5), random.normal(shape=200000, device="cpu:1")[-2:]]
            return [x.numpy().tolist() for x in values]
        sys.stdout.flush()
        child = os.fork()
        mine = draw()
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(mine, float(big[-1]), random.get_state()["cpu:0"], flush=True)
        if not child:
            os._exit(0)
        """,
        WEFT_ENGINE=engine,
    ).splitlines()
    assert len(out) == 2
    assert out[0] == out[1]


# Uniform numbers.


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 5), (2, 2), (-1, -0.5), (0, 1e-3)])
def test_uniform_numbers_are_in_their_range_and_never_high(dtype, low, high):
    x = random.uniform(low, high, shape=20000, dtype=dtype)
    assert x.dtype.name == dtype
    bounds = wf.tensor([low, high], dtype=dtype).numpy().astype(float)
    seen = x.numpy().astype(float)
    assert (seen >= bounds[0]).all()
    if low == high:
        assert (seen == bounds[0]).all()
    else:
        assert (seen < bounds[1]).all()
        assert abs(seen.mean() - (low + high) / 2) < 0.02 * (high - low)
        assert abs(seen.std() - (high - low) / 12**0.5) < 0.02 * (high - low)


def test_uniform_numbers_of_float64_have_more_bits_than_those_of_float32():
    x = random.uniform(shape=100000, dtype="float64").numpy()
    assert len(set(x.tolist())) == 100000
    assert (x != x.astype("float32")).mean() > 0.9
    single = random.uniform(shape=100000).numpy().astype(float)
    assert ((single * 2**24) % 1 == 0).all()


def test_uniform_numbers_fill_their_cells_evenly():
    counts = np.bincount((random.uniform(shape=100000).numpy() * 50).astype(int), minlength=50)
    assert counts.size == 50
    assert abs(((counts - 2000) ** 2 / 2000).sum() - 49) < 5 * (2 * 49) ** 0.5


@pytest.mark.parametrize("function", ["uniform", "normal"])
@pytest.mark.parametrize("given", [(2, 3), "a", None], ids=str)
def test_numbers_come_before_the_shape(function, given):
    for call in (lambda f: f(given), lambda f: f(0.0, given)):
        with pytest.raises(TypeError, match=rf"^{function}: \w+ must be a number, got "):
            call(getattr(random, function))
    assert getattr(random, function)(np.float32(0), np.int64(1), (2, 3)).shape == (2, 3)


def test_uniform_refuses_what_is_wrong():
    with pytest.raises(
        ValueError, match=r"^uniform: low and high must be finite, low not above high, got 2 and 1$"
    ):
        random.uniform(2, 1)
    for bounds in ((0, float("nan")), (0, float("inf")), (-float("inf"), float("inf"))):
        with pytest.raises(ValueError, match=r"^uniform: low and high must be finite, "):
            random.uniform(*bounds)
    with pytest.raises(DTypeError, match=r"^uniform: dtype must be a float, got int32$"):
        random.uniform(dtype="int32")
    with pytest.raises(ShapeError, match="negative size -1"):
        random.uniform(shape=-1)
    with pytest.raises(TypeError, match=r"^uniform: a shape is an int or a sequence of ints, got 'a'$"):
        random.uniform(shape="a")
    with pytest.raises(DeviceError, match="gpu:0"):
        random.uniform(device="gpu:0")
    with pytest.raises(DeviceError, match="cpu:64"):
        random.uniform(device="cpu:64")
    assert position() == 0, "what is refused takes no numbers"


# Normal numbers.


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_numbers_have_the_moments_of_the_bell(dtype):
    x = random.normal(3, 2, shape=200000, dtype=dtype)
    assert x.dtype.name == dtype
    z = (x.numpy().astype(float) - 3) / 2
    assert np.isfinite(z).all()
    assert abs(z.mean()) < 0.01
    assert abs(z.std() - 1) < 0.01
    assert abs((z**3).mean()) < 0.05
    assert abs((z**4).mean() - 3) < 0.15
    assert abs((abs(z) < 1).mean() - 0.6827) < 0.01
    assert 3.5 < abs(z).max() < 8.7


def test_normal_numbers_of_neighbours_are_independent():
    z = random.normal(shape=200000).numpy().astype(float)
    for distance in (1, 2, 3, 4, 8, 64):
        assert abs((z[distance:] * z[:-distance]).mean()) < 0.015
        assert abs((z[distance:] ** 2 * z[:-distance] ** 2).mean() - 1) < 0.05


def test_normal_without_width_is_the_mean():
    assert (random.normal(1.5, 0, shape=100).numpy() == 1.5).all()


def test_normal_refuses_what_is_wrong():
    with pytest.raises(ValueError, match=r"^normal: std must be at least 0, got -1$"):
        random.normal(0, -1)
    with pytest.raises(ValueError, match=r"^normal: std must be at least 0, got nan$"):
        random.normal(0, float("nan"))
    with pytest.raises(DTypeError, match=r"^normal: dtype must be a float, got bool$"):
        random.normal(dtype="bool")
    assert position() == 0


# Integers.


@pytest.mark.parametrize("dtype", INTEGERS)
def test_randint_reaches_both_ends_of_small_ranges(dtype):
    low = 3 if dtype.startswith("u") else -3
    x = random.randint(low, 9, shape=5000, dtype=dtype)
    assert x.dtype.name == dtype
    counts = np.bincount(x.numpy().astype(int) - low)
    assert counts.size == 9 - low
    expected = 5000 / counts.size
    assert (abs(counts - expected) < 6 * expected**0.5).all()


@pytest.mark.parametrize(("dtype", "low", "high"), [("int8", -128, 128), ("uint8", 0, 256)])
def test_randint_gives_every_value_of_one_byte(dtype, low, high):
    seen = random.randint(low, high, shape=10000, dtype=dtype).numpy()
    assert sorted(set(seen.tolist())) == list(range(low, high))


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("int16", -(2**15), 2**15),
        ("uint16", 0, 2**16),
        ("int32", -(2**31), 2**31),
        ("uint32", 0, 2**32),
        ("int64", -(2**63), 2**63 - 1),
        ("int64", -1, 2**63 - 1),
        ("uint64", 0, 2**63 - 1),
    ],
)
def test_randint_of_the_whole_type_is_spread_over_it(dtype, low, high):
    seen = [int(x) for x in random.randint(low, high, shape=4000, dtype=dtype).numpy()]
    assert all(low <= x < high for x in seen)
    eighths = np.bincount([(x - low) * 8 // (high - low) for x in seen], minlength=8)
    assert eighths.size == 8
    assert (abs(eighths - 500) < 130).all()
    assert sum(x % 2 for x in seen) / 4000 == pytest.approx(0.5, abs=0.05)


def test_randint_of_one_value_is_that_value():
    for low in (0, -7, 2**63 - 2, -(2**63)):
        assert set(random.randint(low, low + 1, shape=20).numpy().tolist()) == {low}


def test_randint_of_one_number_begins_at_zero():
    np.testing.assert_array_equal(drawn(random.randint, 7, shape=50), drawn(random.randint, 0, 7, shape=50))
    assert random.randint(7).dtype.name == "int64"
    assert random.randint(7).shape == ()


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 0, "int64"),
        (5, 4, "int64"),
        (-129, 0, "int8"),
        (0, 129, "int8"),
        (0, 257, "uint8"),
        (-1, 5, "uint8"),
        (0, 2**63, "int64"),
        (0, 2**63, "uint64"),
        (-(2**63) - 1, 0, "int64"),
    ],
)
def test_randint_refuses_ranges_its_type_does_not_hold(low, high, dtype):
    text = rf"^randint: needs low < high within {dtype}, below 2\*\*63: got {low} and {high}$"
    with pytest.raises(ValueError, match=text):
        random.randint(low, high, dtype=dtype)
    assert position() == 0


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_randint_refuses_types_that_are_no_integers(dtype):
    with pytest.raises(DTypeError, match=f"^randint: dtype must be an integer, got {dtype}$"):
        random.randint(3, dtype=dtype)


def test_randint_refuses_bounds_that_are_no_integers():
    with pytest.raises(TypeError):
        random.randint(1.5)
    with pytest.raises(TypeError):
        random.randint("3")


# Permutations.


@pytest.mark.parametrize("n", [1, 2, 10, 1000, 100000])
def test_permutation_of_a_number_has_each_integer_once(n):
    x = random.permutation(n)
    assert (x.dtype.name, x.shape) == ("int64", (n,))
    np.testing.assert_array_equal(np.sort(x.numpy()), np.arange(n))
    if n >= 10:
        assert (x.numpy() != np.arange(n)).any()


@pytest.mark.parametrize("dtype", ["bool", "int8", "bfloat16", "float32", "uint64"])
@pytest.mark.parametrize("shape", [(7,), (30, 4), (5, 2, 3), (1, 3), (2000, 20)])
def test_permutation_of_a_tensor_keeps_rows_whole(dtype, shape):
    x = wf.tensor(np.arange(np.prod(shape)).reshape(shape) % 251, dtype=dtype)
    rows, before = x.numpy().reshape(shape[0], -1), x.numpy().copy()
    y = random.permutation(x)
    assert (y.shape, y.dtype, wf.shares_memory(x, y)) == (x.shape, x.dtype, False)
    assert sorted(map(tuple, y.numpy().reshape(shape[0], -1).tolist())) == sorted(map(tuple, rows.tolist()))
    np.testing.assert_array_equal(x.numpy(), before)


def test_permutation_of_a_view_is_that_of_its_copy():
    x = wf.arange(600).reshape(20, 30)
    for view in (x.T, x[::-2], x[:, 5], x[3:4, ::3], wf.broadcast_to(x[0], (4, 30))):
        np.testing.assert_array_equal(
            drawn(random.permutation, view), drawn(random.permutation, view.copy()), strict=True
        )


def test_permutations_of_three_are_equally_likely():
    counts = {}
    for _ in range(3000):
        order = tuple(random.permutation(3).numpy().tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert all(abs(count - 500) < 120 for count in counts.values())


def test_permutation_refuses_what_has_no_rows():
    with pytest.raises(ShapeError, match=r"^permutation: needs at least 1 dimension: x is f32\[\]@cpu:0$"):
        random.permutation(wf.zeros(()))
    with pytest.raises(ShapeError, match="more elements than memory can"):
        random.permutation(2**62)
    with pytest.raises(TypeError):
        random.permutation([3, 4])


def test_permutation_of_what_failed_fails_in_the_same_way():
    x = wf.arange(10)
    default_engine().push(lambda rc: 1 / 0, mutate_vars=[x], name="divide")
    with pytest.raises(EngineError) as caught:
        random.permutation(x).numpy()
    assert caught.value.operation == "divide"
    default_engine().clear_error(x)


def test_seed_refuses_what_is_wrong_and_changes_nothing():
    before = random.get_state()
    for wrong in (-1, 2**64):
        with pytest.raises(ValueError, match=rf"^seed: must be in 0\.\.2\*\*64-1, got {wrong}$"):
            random.seed(wrong)
        with pytest.raises(ValueError, match=r"^seed: "):
            random.seed(wrong, device="cpu:1")
    for wrong in (1.5, "7", None):
        with pytest.raises(TypeError):
            random.seed(wrong)
    for wrong in ("gpu:0", "cpu:64"):
        with pytest.raises(DeviceError, match=wrong):
            random.seed(0, device=wrong)
    assert random.get_state() == before
