"""Codecs against models in NumPy, bit for bit."""

import numpy as np
import pytest

import weft as wf
from weft import _core
from weft.distributed.compression import TwoBitEncode, make_codec
from weft.kvstore import create
from weft.ops import registry


def two_bit(x, residual, threshold):
    """MXNet's quantize_2bit: element by element, as its description says. Returns the bytes; changes residual."""
    packed = np.zeros(-(-x.size // 16) * 4, "uint8")
    t = np.float32(threshold)
    for i, value in enumerate(x):
        residual[i] += value
        byte, shift = i >> 2, 6 - 2 * (i & 3)
        if residual[i] >= t:
            residual[i] -= t
            packed[byte] |= 3 << shift
        elif residual[i] <= -t:
            residual[i] += t
            packed[byte] |= 2 << shift
    return packed


def two_bit_values(packed, size, threshold):
    codes = [packed[i >> 2] >> (6 - 2 * (i & 3)) & 3 for i in range(size)]
    return np.array([{3: threshold, 2: -threshold, 0: 0}[int(c)] for c in codes], "float32")


SIZES = [1, 3, 4, 15, 16, 17, 100]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("threshold", [0.5, 0.1])
def test_two_bits_are_mxnets_over_several_steps(size, threshold):
    rng = np.random.default_rng(size)
    codec = make_codec({"type": "2bit", "threshold": threshold})
    model = np.zeros(size, "float32")
    residual = codec.new_residual(wf.zeros(size))
    for _ in range(5):
        x = (rng.standard_normal(size) * threshold).astype("float32")
        if size > 3:
            x[:3] = threshold, -threshold, np.nextafter(np.float32(threshold), np.float32(0))
        (packed,) = codec.encode(wf.tensor(x), residual)
        expected = two_bit(x, model, threshold)
        np.testing.assert_array_equal(packed.numpy(), expected)
        np.testing.assert_array_equal(residual.numpy().view("uint32"), model.view("uint32"))
        np.testing.assert_array_equal(
            codec.decode([packed], size).numpy(), two_bit_values(expected, size, np.float32(threshold))
        )


@pytest.mark.parametrize("size", [0, *SIZES])
def test_the_kernel_of_two_bits_does_what_its_operator_says(size):
    """Dense and strided arrays, eager and traced, against the operator's decomposition."""
    rng = np.random.default_rng(size)
    encode = registry.function("two_bit_encode")
    x, residual = (rng.standard_normal(2 * size).astype("float32") for _ in range(2))
    if size:
        x[0], residual[-1] = np.nan, -0.0
    for step in (1, 2):
        a, kept = wf.tensor(x)[: step * size : step], wf.tensor(residual)[: step * size : step]
        bits, rest = TwoBitEncode(threshold=0.5).decompose(a, kept.copy())
        traced_kept = kept.copy()
        traced = wf.trace(lambda a, r: encode(a, r, threshold=0.5))(a, traced_kept)
        given = encode(a, kept, threshold=0.5)
        for found, expected in ((given, bits), (traced, bits), (kept, rest), (traced_kept, rest)):
            np.testing.assert_array_equal(found.numpy(), expected.numpy())
    with pytest.raises(wf.ShapeError, match="x has 3 elements, residual expects 4"):
        encode(wf.zeros(3), wf.zeros(4), threshold=0.5)
    with pytest.raises(wf.DTypeError, match="takes float32"):
        encode(wf.zeros(3, "float64"), wf.zeros(3), threshold=0.5)


@pytest.mark.parametrize("level", ["sse4", "avx2", "avx512"])
def test_two_bits_are_the_same_on_all_processors(level):
    """Whole vectors and what is left of them, every code at every place, zeros of both signs, nan and infinity."""
    rng = np.random.default_rng(7)
    encode = registry.function("two_bit_encode")
    special = np.array([0.5, -0.5, 0.0, -0.0, np.nan, np.inf, -np.inf, 0.49999997, 1e-40], "float32")
    for size in (16, 31, 32, 48, 63, 64, 65, 127, 128, 1000, 20000):
        x, residual = (rng.choice(special, size) for _ in range(2))
        x[: size // 2] = rng.standard_normal(size // 2)
        with np.errstate(invalid="ignore"):
            kept = residual.copy()
            expected = two_bit(x, kept, 0.5)
        before = _core.set_kernel_isa(level)  # at most what the machine has
        try:
            rest = wf.tensor(residual)
            packed = encode(wf.tensor(x), rest, threshold=0.5).numpy()
        finally:
            _core.set_kernel_isa(before)
        np.testing.assert_array_equal(packed, expected)
        finite = ~np.isnan(kept)
        np.testing.assert_array_equal(rest.numpy()[finite].view("uint32"), kept[finite].view("uint32"))
        assert np.isnan(rest.numpy()[~finite]).all()


def test_two_bits_take_a_sixteenth_of_the_bytes():
    codec = make_codec({"type": "2bit"})
    x = wf.zeros(1600)
    (packed,) = codec.encode(x, codec.new_residual(x))
    assert packed.nbytes * 16 == x.nbytes


@pytest.mark.parametrize(("size", "count"), [(1, 1), (10, 1), (100, 5), (101, 6)])
def test_top_k_sends_the_greatest_and_keeps_the_rest(size, count):
    rng = np.random.default_rng(size)
    codec = make_codec({"type": "topk", "ratio": 0.05})
    model = np.zeros(size, "float32")
    residual = codec.new_residual(wf.zeros(size))
    for _ in range(3):
        x = rng.standard_normal(size).astype("float32")
        indices, values = codec.encode(wf.tensor(x), residual)
        model += x
        chosen = np.argsort(-np.abs(model), kind="stable")[:count]
        np.testing.assert_array_equal(indices.numpy(), chosen)
        np.testing.assert_array_equal(values.numpy(), model[chosen])
        whole = np.zeros(size, "float32")
        whole[chosen] = model[chosen]
        np.testing.assert_array_equal(codec.decode([indices, values], size).numpy(), whole)
        model[chosen] = 0
        np.testing.assert_array_equal(residual.numpy(), model)


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_casts_round_to_nearest(kind):
    import ml_dtypes

    x = np.linspace(-3, 3, 1001).astype("float32")
    codec = make_codec({"type": kind})
    (short,) = codec.encode(wf.tensor(x), None)
    expected = x.astype("float16" if kind == "fp16" else ml_dtypes.bfloat16)
    np.testing.assert_array_equal(codec.decode([short], x.size).numpy(), expected.astype("float32"))


def test_a_store_keeps_a_residual_for_each_device_of_a_key():
    kv = create("device")
    kv.init(0, wf.zeros(4))
    kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    one, two = np.array([0.3, -0.7, 0.1, 0.6], "float32"), np.array([0.3, 0.2, -0.3, 0.6], "float32")
    left, right = np.zeros(4, "float32"), np.zeros(4, "float32")
    for _ in range(3):
        kv.push(0, [wf.tensor(one), wf.tensor(two)])
        expected = two_bit_values(two_bit(one, left, 0.5), 4, 0.5) + two_bit_values(
            two_bit(two, right, 0.5), 4, 0.5
        )
        np.testing.assert_array_equal(kv.pull(0).numpy(), expected)


def test_only_float32_is_compressed():
    kv = create("local")
    kv.init(0, wf.zeros(4, dtype="float64"))
    kv.set_gradient_compression({"type": "2bit"})
    with pytest.raises(wf.DTypeError, match="only float32 values are compressed, the key 0 has type float64"):
        kv.push(0, wf.zeros(4, dtype="float64"))
