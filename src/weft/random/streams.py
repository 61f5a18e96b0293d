"""The streams of random numbers that devices have; numbers and permutations drawn from them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft import _core
from weft.arrays.creation import arange
from weft.arrays.tensor import Tensor
from weft.base.device import Device, as_device, cpu
from weft.base.dtype import DType, as_dtype, uint64
from weft.base.errors import DeviceError, DTypeError, names_keywords
from weft.ops import registry
from weft.ops.families.random import RandomIntegers, RandomNormal, RandomPermutation, RandomUniform
from weft.ops.node import Tracer, Value, apply, created
from weft.recording.dependence import happens_once

__all__ = ["get_state", "normal", "permutation", "randint", "seed", "set_state", "uniform"]

DEVICES = 64  # whose streams exist
OTHER_GPUS = "gpu"  # in states
_GPUS_SET_ALONE: set[Device] = set()  # since all devices were seeded; they may be unused


@names_keywords
def seed(seed: int, device: Device | str | None = None) -> None:
    """Seed the streams of all devices, which then give different numbers, or the stream of one device.

    Seeded alone, every device gives the numbers that cpu:0 gives after seed(seed).
    Raises ValueError if seed is not in 0..2**64-1.

    >>> seed(0)
    >>> a = normal(shape=2).numpy()
    >>> seed(0, device="cpu:3")
    >>> bool((a == normal(shape=2, device="cpu:3").numpy()).all())
    True
    """
    if not hasattr(seed, "__index__"):
        raise TypeError(f"seed: must be an int, got {seed!r}")
    seed = operator.index(seed)
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed: must be in 0..2**64-1, got {seed}")
    happens_once("random numbers are seeded")
    if device is None:
        _core.seed_all(seed)
        _GPUS_SET_ALONE.clear()
    else:
        _set_stream(_stream_of(device), seed, 0, 0)


def get_state() -> dict[str, tuple[int, int, int]]:
    """The state of every device's stream: name -> (seed, stream, position). Plain numbers, for checkpoints.

    "gpu" stands for all GPUs that have been neither used nor seeded by themselves: their seed.

    >>> seed(7)
    >>> get_state()["cpu:1"]
    (7, 1, 0)
    """
    happens_once("the state of random numbers is looked at")
    devices = [cpu(i) for i in range(DEVICES)]
    used = {device for device in map(as_device, _core.used_devices()) if _core.hides_memory(device)}
    devices += sorted(used | _GPUS_SET_ALONE, key=str)
    states = {str(device): _core.get_generator(device) for device in devices}
    return states | {OTHER_GPUS: (_core.seed_of_gpus(), 0, 0)}


def set_state(state: Mapping[str, Sequence[int]]) -> None:
    """Go back to a state that get_state() gave; devices it does not name keep theirs.

    Raises ValueError if an entry is not three integers of 64 bits; nothing is changed then.

    >>> state = get_state()
    >>> a = uniform(shape=2).numpy()
    >>> set_state(state)
    >>> bool((a == uniform(shape=2).numpy()).all())
    True
    """
    for name, numbers in state.items():
        if len(numbers) != 3 or not all(isinstance(n, int) and 0 <= n < 2**64 for n in numbers):
            raise ValueError(
                f"set_state: {name}: expected three integers in 0..2**64-1, got {tuple(numbers)}"
            )
    entries = {_stream_of(name): numbers for name, numbers in state.items() if name != OTHER_GPUS}
    happens_once("the state of random numbers is set")
    if OTHER_GPUS in state:
        _core.seed_gpus(state[OTHER_GPUS][0], [device.index for device in entries if device.kind == "gpu"])
        _GPUS_SET_ALONE.clear()
    for device, numbers in entries.items():
        _set_stream(device, *numbers)


def _set_stream(device: Device, seed: int, stream: int, position: int) -> None:
    _core.set_generator(device, seed, stream, position)
    if _core.hides_memory(device):
        _GPUS_SET_ALONE.add(device)


def _stream_of(device: Device | str) -> Device:
    resolved = as_device(device)
    if resolved.index >= DEVICES or (resolved.kind != "cpu" and not _core.hides_memory(resolved)):
        raise DeviceError(f"{resolved} has no random numbers; cpu:0 to cpu:{DEVICES - 1} and GPUs have")
    return resolved


@names_keywords
def uniform(
    low: Any = 0.0,
    high: Any = 1.0,
    shape: int | Sequence[int] = (),
    dtype: DType | str | Any = "float32",
    device: Device | str | None = None,
    key: Any = None,
) -> Tensor:
    """Uniformly distributed numbers in [low, high).

    24 random bits each, 53 for float64. low, high: numbers, or arrays that fit each other and the shape, which by
    default is theirs; key: a key or a Generator, by default the device's stream. Raises ValueError unless low <= high,
    DTypeError unless dtype is a float.

    >>> seed(0)
    >>> x = uniform(-1, 1, shape=(2, 3))
    >>> x.shape, bool(abs(x.numpy()).max() <= 1)
    ((2, 3), True)
    """
    if key is not None or any_arrays(low, high):
        return keyed("keyed_uniform", key, (low, high), shape, float_dtype("uniform", dtype), device)
    _check_numbers("uniform", low=low, high=high)
    if not low <= high or not math.isfinite(high - low):
        raise ValueError(f"uniform: low and high must be finite, low not above high, got {low} and {high}")
    return filled(
        RandomUniform, _core.random_uniform, low, high, shape, float_dtype("uniform", dtype), device
    )


@names_keywords
def normal(
    mean: Any = 0.0,
    std: Any = 1.0,
    shape: int | Sequence[int] = (),
    dtype: DType | str | Any = "float32",
    device: Device | str | None = None,
    key: Any = None,
) -> Tensor:
    """Normally distributed numbers (Box and Muller 1958).

    mean, std: numbers, or arrays that fit each other and the shape, which by default is theirs; key: a key or a
    Generator, by default the device's stream. dtype: a float, or a complex type: then real and imaginary parts have
    the variance std**2 / 2 each.
    Raises ValueError if std is negative, TypeError unless both are numbers, DTypeError for another dtype.

    >>> seed(0)
    >>> x = normal(shape=10000).numpy()
    >>> bool(abs(x.mean()) < 0.05 and abs(x.std() - 1) < 0.05)
    True
    """
    if key is not None or any_arrays(mean, std):
        return keyed("keyed_normal", key, (mean, std), shape, float_dtype("normal", dtype), device)
    _check_numbers("normal", mean=mean, std=std)
    if not std >= 0:
        raise ValueError(f"normal: std must be at least 0, got {std}")
    kind = as_dtype(dtype)
    if kind.is_complex:
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        parts = normal(0.0, std / math.sqrt(2), (*sizes, 2), kind.real, device)
        return registry.function("view_as_complex")(parts) + mean
    return filled(RandomNormal, _core.random_normal, mean, std, shape, float_dtype("normal", kind), device)


@names_keywords
def randint(
    low: Any,
    high: Any = None,
    shape: int | Sequence[int] = (),
    dtype: DType | str | Any = "int64",
    device: Device | str | None = None,
    key: Any = None,
) -> Tensor:
    """Integers in [low, high), equally likely up to a share of 2**-32 for ranges up to 2**32; randint(n) is [0, n).

    low, high: integers, or arrays of them that fit each other and the shape, which by default is theirs; key: a key or
    a Generator, by default the device's stream.

    Raises ValueError unless low < high and dtype holds both ends, DTypeError unless dtype is an integer.

    >>> seed(0)
    >>> sorted(set(randint(3, shape=100).numpy().tolist()))
    [0, 1, 2]
    """
    if key is not None or any_arrays(low, high):
        low, high = (0, low) if high is None else (low, high)
        return keyed("keyed_integers", key, (low, high), shape, as_dtype(dtype), device)
    low, high = (0, operator.index(low)) if high is None else (operator.index(low), operator.index(high))
    kind = as_dtype(dtype)
    if not kind.is_integer:
        raise DTypeError(f"randint: dtype must be an integer, got {kind}")
    bits = kind.bits
    least, most = (0, 2**bits) if kind.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    if not least <= low < high <= min(most, 2**63 - 1):
        raise ValueError(f"randint: needs low < high within {kind}, below 2**63: got {low} and {high}")
    return filled(RandomIntegers, _core.random_integers, low, high, shape, kind, device)


@names_keywords
def permutation(x: int | Tensor, device: Device | str | None = None, key: Any = None) -> Tensor:
    """0 ... x-1 in random order, or x's slices along its first dimension in random order, as a new tensor.

    device: of an integer's result, and only with one. key: a key or a Generator, by default the device's stream, whose
    numbers give another order. Raises ValueError if x is negative, ShapeError if it
    is 0-d.

    >>> seed(0)
    >>> sorted(permutation(5).numpy().tolist())
    [0, 1, 2, 3, 4]
    """
    if isinstance(x, Tensor | Value):
        if device is not None:
            raise ValueError("permutation: a tensor's slices stay on its device; device goes with an integer")
        return _permuted(x, key)
    count = operator.index(x)
    if count < 0:
        raise ValueError(f"permutation: x must be at least 0, got {count}")
    return _permuted(arange(count, device=device), key)


def any_arrays(*parameters: Any) -> bool:
    """Whether one of the parameters of a distribution is no number: an array, a value of a graph, a symbol."""
    return any(hasattr(x, "__weft_apply__") or isinstance(x, Tensor | Value) for x in parameters)


def keyed(
    operator_name: str,
    key: Any,
    parameters: Sequence[Any],
    shape: int | Sequence[int] | None,
    dtype: DType | None,
    device: Device | str | None,
    **attributes: Any,
) -> Any:
    """What an operator of weft.ops.families.keyed draws, with a key of a stream where none is given."""
    if hasattr(key, "next_key"):
        key = key.next_key()
    elif key is None:
        arrays = [x for x in parameters if any_arrays(x)]
        key = (
            registry.function("key_like")(arrays[:1])
            if arrays
            else filled(RandomIntegers, _core.random_integers, 0, 2**63 - 1, 2, uint64, device)
        )
    sizes = (shape,) if isinstance(shape, int) else shape if shape is None else tuple(shape)
    return registry.function(operator_name)(key, *parameters, shape=sizes or None, dtype=dtype, **attributes)


def _check_numbers(function: str, **numbers: Any) -> None:
    """Such as the shape, which comes after them."""
    for name, value in numbers.items():
        if isinstance(value, str | Sequence | Tensor) or not hasattr(value, "__float__"):
            hint = f"\n  hint: {function}(shape={value!r})" if isinstance(value, tuple | list) else ""
            raise TypeError(f"{function}: {name} must be a number, got {value!r}{hint}")


def _permuted(x: Any, key: Any) -> Any:
    """By the operator where a graph is being written down."""
    if key is not None:
        return keyed("shuffled_slices", key, (x,), None, None, None)
    if _core.layers() is not None:
        return registry.function(RandomPermutation.name)(x)
    if (capture := _core.capture()) is not None:
        return capture.__weft_apply__(RandomPermutation, (x,), {})
    is_recorded = isinstance(x, Value | Tracer)
    return apply(RandomPermutation, (x,), {}) if is_recorded else _core.random_permutation(x)


def filled(
    op: Any,
    function: Callable[..., Tensor],
    a: float,
    b: float,
    shape: int | Sequence[int],
    dtype: DType,
    device: Device | str | None,
) -> Any:
    """function's numbers between or around a and b; op, which is the same in graphs, inside of control flow."""
    if _core.capture() is None and _core.layers() is None:
        return function(a, b, shape, dtype, device)
    sizes = shape if isinstance(shape, Sequence) else (shape,)
    limits = dict(zip((x.name for x in op.attributes if x.runtime), (a, b), strict=True))
    attributes = {"shape": tuple(sizes), "dtype": dtype, "device": as_device(device), **limits}
    if _core.layers() is not None:  # which see the operator
        return registry.function(op.name)(**attributes)
    return created(op, attributes)


def float_dtype(function: str, dtype: DType | str | Any) -> DType:
    kind = as_dtype(dtype)
    if not kind.is_floating:
        raise DTypeError(f"{function}: dtype must be a float, got {kind}")
    return kind
