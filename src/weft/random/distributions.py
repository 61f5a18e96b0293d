"""Distributions: functions that draw from them, with parameters as numbers or arrays.

All have these parameters beside their own: shape, the result's, to which the parameters are repeated, by default theirs
together; dtype, by default float32, of counts int64; device, whose stream numbers come from if there are no arrays; and
key: a key or a Generator, by default the stream. Where a formula says so, gradients reach the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.base.device import Device
from weft.base.dtype import DType, as_dtype
from weft.ops import functions as F
from weft.random.streams import any_arrays, keyed, permutation, randint

__all__ = [
    "beta",
    "binomial",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "dirichlet",
    "exponential",
    "gamma",
    "geometric",
    "gumbel",
    "laplace",
    "logistic",
    "lognormal",
    "multinomial",
    "negative_binomial",
    "pareto",
    "poisson",
    "shuffle",
    "student_t",
    "truncated_normal",
    "weibull",
]

Shape = int | Sequence[int] | None
DTypeLike = DType | str | Any


def _drawn(operator: str, parameters: Sequence[Any], common: tuple[Any, ...], **attributes: Any) -> Any:
    """common: shape, dtype, device, key, as callers of a distribution give them."""
    shape, dtype, device, key = common
    dtype = None if dtype is None else as_dtype(dtype)
    return keyed(operator, key, parameters, shape, dtype, device, **attributes)


def exponential(
    rate: Any = 1.0,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return exponentially distributed numbers: density rate exp(-rate x), for x > 0.

    rate: float[...], greater than 0. Gradients reach rate. Numbers are below 17 / rate, of float64 37 / rate. See the
    module for the other parameters. Raises ShapeError if the parameters do not fit the shape, DTypeError for another
    dtype than a float.
    Source: Devroye 1986, Non-uniform random variate generation, II.2: by inversion.

    >>> import weft as wf
    >>> x = exponential(2.0, 10000, key=wf.random.key(0))
    >>> abs(x.mean().item() - 0.5) < 0.02
    True
    """
    return _drawn("exponential", (rate,), (shape, dtype, device, key))


def laplace(
    location: Any = 0.0,
    scale: Any = 1.0,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return Laplace distributed numbers: density exp(-|x - location| / scale) / (2 scale).

    location, scale: float[...]. Gradients reach both. See exponential for the other parameters and errors.
    Source: Devroye 1986, Non-uniform random variate generation, II.2: by inversion.

    >>> import weft as wf
    >>> abs(laplace(3.0, 1.0, 10000, key=wf.random.key(0)).mean().item() - 3) < 0.1
    True
    """
    return _drawn("laplace", (location, scale), (shape, dtype, device, key))


def cauchy(
    location: Any = 0.0,
    scale: Any = 1.0,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return Cauchy distributed numbers: density 1 / (pi scale (1 + ((x - location) / scale)^2)).

    location, scale: float[...]. Gradients reach both. See exponential for the other parameters and errors.
    Source: Devroye 1986, Non-uniform random variate generation, II.2: by inversion.

    >>> import weft as wf
    >>> abs(wf.median(cauchy(3.0, 1.0, 9999, key=wf.random.key(0))).item() - 3) < 0.1
    True
    """
    return _drawn("cauchy", (location, scale), (shape, dtype, device, key))


def gumbel(
    location: Any = 0.0,
    scale: Any = 1.0,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return Gumbel distributed numbers: distribution function exp(-exp(-(x - location) / scale)).

    location, scale: float[...]. Gradients reach both. See exponential for the other parameters and errors.
    Source: Gumbel 1954, Statistical theory of extreme values and some practical applications.

    >>> import weft as wf
    >>> abs(gumbel(shape=10000, key=wf.random.key(0)).mean().item() - 0.5772) < 0.05
    True
    """
    return _drawn("gumbel", (location, scale), (shape, dtype, device, key))


def logistic(
    location: Any = 0.0,
    scale: Any = 1.0,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return logistically distributed numbers: distribution function 1 / (1 + exp(-(x - location) / scale)).

    location, scale: float[...]. Gradients reach both. See exponential for the other parameters and errors.
    Source: Devroye 1986, Non-uniform random variate generation, II.2: by inversion.

    >>> import weft as wf
    >>> abs(logistic(1.0, 0.5, 10000, key=wf.random.key(0)).mean().item() - 1) < 0.05
    True
    """
    return _drawn("logistic", (location, scale), (shape, dtype, device, key))


def weibull(
    concentration: Any,
    scale: Any = 1.0,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return Weibull distributed numbers: distribution function 1 - exp(-(x / scale)^concentration), for x > 0.

    concentration, scale: float[...], greater than 0. Gradients reach both. See exponential for the other parameters
    and errors.
    Source: Weibull 1951, A statistical distribution function of wide applicability.

    >>> import weft as wf
    >>> abs(weibull(1.0, 2.0, 10000, key=wf.random.key(0)).mean().item() - 2) < 0.1
    True
    """
    return _drawn("weibull", (concentration, scale), (shape, dtype, device, key))


def pareto(
    concentration: Any,
    scale: Any = 1.0,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return Pareto distributed numbers: distribution function 1 - (scale / x)^concentration, for x > scale.

    concentration, scale: float[...], greater than 0. Gradients reach both. See exponential for the other parameters
    and errors. NumPy's pareto is this less 1.
    Source: Devroye 1986, Non-uniform random variate generation, II.2: by inversion.

    >>> import weft as wf
    >>> abs(pareto(3.0, 1.0, 10000, key=wf.random.key(0)).mean().item() - 1.5) < 0.05
    True
    """
    return _drawn("pareto", (concentration, scale), (shape, dtype, device, key))


def truncated_normal(
    lower: Any = -2.0,
    upper: Any = 2.0,
    mean: Any = 0.0,
    std: Any = 1.0,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return normally distributed numbers of those in [lower, upper], which are limits of the result.

    lower, upper, mean, std: float[...]. Gradients reach all four, by inversion. Intervals far from the mean are as good
    as near ones. See exponential for the other parameters and errors.
    Source: Devroye 1986, Non-uniform random variate generation, II.2: by inversion, in float64.

    >>> import weft as wf
    >>> x = truncated_normal(-1.0, 2.0, shape=1000, key=wf.random.key(0))
    >>> x.min().item() >= -1, x.max().item() <= 2
    (True, True)
    """
    return _drawn("truncated_normal", (lower, upper, mean, std), (shape, dtype, device, key))


def gamma(
    alpha: Any,
    rate: Any = 1.0,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return gamma distributed numbers: density proportional to x^(alpha - 1) exp(-rate x), for x > 0.

    alpha, rate: float[...], greater than 0; alpha = 0 gives 0, below it NaN. Gradients reach both, that of alpha by
    implicit reparametrization; they have no gradients of their own. Very small alpha give 0, where the number is too
    small for the dtype. See exponential for the other parameters and errors.
    Source: Marsaglia, Tsang 2000, A simple method for generating gamma variables; Figurnov, Mohamed, Mnih 2018,
    Implicit reparameterization gradients.

    >>> import weft as wf
    >>> abs(gamma(3.0, 2.0, 10000, key=wf.random.key(0)).mean().item() - 1.5) < 0.05
    True
    """
    return _drawn("gamma_variables", (alpha, rate), (shape, dtype, device, key))


def chisquare(
    df: Any,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return numbers of the chi-squared distribution with df degrees of freedom: gamma(df / 2, 1 / 2).

    df: float[...], greater than 0. Gradients as of gamma. See exponential for the other parameters and errors.
    Source: Marsaglia, Tsang 2000, A simple method for generating gamma variables.

    >>> import weft as wf
    >>> abs(chisquare(3.0, 10000, key=wf.random.key(0)).mean().item() - 3) < 0.1
    True
    """
    return _drawn("gamma_variables", (df * 0.5, 0.5), (shape, dtype, device, key))


def beta(
    a: Any,
    b: Any,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return beta distributed numbers: density proportional to x^(a - 1) (1 - x)^(b - 1), for 0 < x < 1.

    a, b: float[...], greater than 0, however small. Gradients reach both, as of gamma. See exponential for the other
    parameters and errors.
    Source: Marsaglia, Tsang 2000, A simple method for generating gamma variables.

    >>> import weft as wf
    >>> abs(beta(2.0, 3.0, 10000, key=wf.random.key(0)).mean().item() - 0.4) < 0.02
    True
    """
    return _drawn("beta_variables", (a, b), (shape, dtype, device, key))


def student_t(
    df: Any,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return numbers of Student's t distribution with df degrees of freedom.

    df: float[...], greater than 0. Gradients reach it, as of gamma. See exponential for the other parameters and
    errors.
    Source: Student 1908, The probable error of a mean.

    >>> import weft as wf
    >>> abs(student_t(5.0, 10000, key=wf.random.key(0)).mean().item()) < 0.1
    True
    """
    return _drawn("student_variables", (df,), (shape, dtype, device, key))


def dirichlet(
    alpha: Any,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return Dirichlet distributed vectors along the last axis: density proportional to prod x_i^(alpha_i - 1).

    alpha: float[..., k], greater than 0, however small; shape: the result's, with k as its last size. Each vector sums
    to 1. Gradients reach alpha, as of gamma. See exponential for the other parameters and errors.
    Source: Marsaglia, Tsang 2000, A simple method for generating gamma variables.

    >>> import weft as wf
    >>> x = dirichlet(wf.tensor([1., 2., 3.]), (4, 3), key=wf.random.key(0))
    >>> x.shape, bool((abs(x.sum(axis=-1) - 1) < 1e-6).all())
    ((4, 3), True)
    """
    return _drawn("dirichlet_variables", (alpha,), (shape, dtype, device, key))


def geometric(
    p: Any,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return the number of trials up to the first success, from 1 on: probability (1 - p)^(n - 1) p.

    p: float[...], in (0, 1]. There is no gradient. dtype: int64 by default. See exponential for the other parameters.
    Source: Devroye 1986, Non-uniform random variate generation, X.2: by inversion.

    >>> import weft as wf
    >>> geometric(1.0, 3, key=wf.random.key(0))
    tensor([1, 1, 1], dtype=int64, device=cpu:0)
    """
    return _drawn("geometric", (p,), (shape, dtype, device, key))


def poisson(
    rate: Any = 1.0,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return Poisson distributed numbers of events: probability rate^n exp(-rate) / n!.

    rate: float[...]. There is no gradient. dtype: int64 by default. See exponential for the other parameters. Raises
    ValueError, when it runs, unless rate is in [0, 1e18].
    Source: Hoermann 1993, The transformed rejection method for generating Poisson random variables.

    >>> import weft as wf
    >>> abs(poisson(30.0, 10000, key=wf.random.key(0)).astype("float32").mean().item() - 30) < 0.3
    True
    """
    return _drawn("poisson_variables", (rate,), (shape, dtype, device, key))


def binomial(
    trials: Any,
    p: Any,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return the number of successes among `trials` trials that succeed with probability p.

    trials: integers or float[...]; p: float[...]. There is no gradient. dtype: int64 by default. See exponential for
    the other parameters. Raises ValueError, when it runs, unless trials are integers in [0, 1e18] and p is in [0, 1].
    Source: Hoermann 1993, The generation of binomial random variates.

    >>> import weft as wf
    >>> abs(binomial(100, 0.3, 10000, key=wf.random.key(0)).astype("float32").mean().item() - 30) < 0.3
    True
    """
    return _drawn("binomial_variables", (trials, p), (shape, dtype, device, key))


def negative_binomial(
    successes: Any,
    p: Any,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return the number of failures before `successes` successes of trials that succeed with probability p.

    successes: float[...], greater than 0, not only integers; p: float[...], in (0, 1]. There is no gradient. dtype:
    int64 by default. See exponential for the other parameters, poisson for errors.
    Source: Devroye 1986, Non-uniform random variate generation, X.4: a Poisson number with a gamma distributed rate.

    >>> import weft as wf
    >>> abs(negative_binomial(6, 0.5, 10000, key=wf.random.key(0)).astype("float32").mean().item() - 6) < 0.2
    True
    """
    return _drawn("negative_binomial_variables", (successes, p), (shape, dtype, device, key))


def multinomial(
    trials: Any,
    p: Any,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return how often each of k categories occurs among `trials` trials, along the last axis.

    trials: integers or float[...]; p: float[..., k], at least 0, as probabilities or in any scale; shape: the result's,
    with k as its last size. There is no gradient. dtype: int64 by default. See exponential for the other parameters.
    Raises ValueError, when it runs, for negative, infinite or NaN p, a row of zeros, or trials as in binomial.
    Source: Devroye 1986, Non-uniform random variate generation, XI.4: one binomial number after the other.

    >>> import weft as wf
    >>> multinomial(10, wf.tensor([0.2, 0.8, 0.0]), (4, 3), key=wf.random.key(0)).sum(axis=-1)
    tensor([10, 10, 10, 10], dtype=int64, device=cpu:0)
    """
    return _drawn("multinomial_variables", (trials, p), (shape, dtype, device, key))


def lognormal(
    mean: Any = 0.0,
    std: Any = 1.0,
    shape: Shape = None,
    dtype: DTypeLike | None = None,
    device: Device | str | None = None,
    key: Any = None,
) -> Any:
    """Return numbers whose logarithms are normally distributed, with this mean and standard deviation.

    mean, std: float[...]. Gradients reach both. See exponential for the other parameters and errors.
    Source: Devroye 1986, Non-uniform random variate generation, II.2.

    >>> import weft as wf
    >>> abs(wf.log(lognormal(1.0, 0.5, 10000, key=wf.random.key(0))).mean().item() - 1) < 0.05
    True
    """
    return F.exp(_drawn("keyed_normal", (mean, std), (shape, dtype, device, key)))


def categorical(
    logits: Any, num_samples: int | None = None, dtype: DTypeLike = "int64", key: Any = None
) -> Any:
    """Return indices along the last axis, each with the probability softmax(logits).

    logits: float[..., k], of which -inf is never drawn; for probabilities give their logarithms. num_samples: that many
    for each row, independent of each other, [..., num_samples]; by default one, [...]. There is no gradient; see
    F.gumbel_softmax. key: a key or a Generator, by default the device's stream. Raises ShapeError for 0 dimensions.
    Source: Devroye 1986, Non-uniform random variate generation, III.2: by inversion; the sums are in float64.

    >>> import weft as wf
    >>> categorical(wf.tensor([[0., -float("inf")], [-float("inf"), 0.]]), 3)
    tensor([[0, 0, 0],
            [1, 1, 1]], dtype=int64, device=cpu:0)
    """
    return keyed(
        "categorical_variables", key, (logits,), None, as_dtype(dtype), None, num_samples=num_samples
    )


def choice(
    x: Any, shape: int | Sequence[int] = (), replace: bool = True, p: Any = None, key: Any = None
) -> Any:
    """Return slices of x along its first axis, or integers below x, drawn at random: [*shape, ...].

    x: an array of at least 1 dimension, or an integer; replace: whether one may be drawn twice; p: float[n], the
    chances of each, in any scale, by default equal. key: a key or a Generator, by default the device's stream. Raises
    ValueError if more are to be drawn than there are, without replacing.
    Source: Efraimidis, Spirakis 2006, Weighted random sampling with a reservoir (without replacement).

    >>> import weft as wf
    >>> sorted(choice(5, 5, replace=False).tolist())
    [0, 1, 2, 3, 4]
    >>> choice(wf.tensor([7., 8.]), 3, p=wf.tensor([0., 1.]))
    tensor([8., 8., 8.], dtype=float32, device=cpu:0)
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    is_array = any_arrays(x)
    length = x.shape[0] if is_array else x
    count = 1
    for size in sizes:
        count *= size
    if not replace:
        if count > length:
            raise ValueError(f"choice: {count} of {length} cannot be drawn without replacing")
        chances = p if p is not None else F.full(shape=(length,), value=1.0)
        index = keyed("sampled_indices", key, (chances,), None, None, None, count=count)
    elif p is not None:
        index = categorical(F.log(p), count, key=key)
    else:
        index = randint(length, shape=(count,), key=key)
    index = index.reshape(sizes)
    return F.take(x, index, axis=0) if is_array else index


def shuffle(x: Any, key: Any = None) -> None:
    """Put x's slices along the first axis into random order, in place.

    x: an array of at least 1 dimension; key: a key or a Generator, by default the device's stream. permutation returns
    another array. Raises ShapeError for 0 dimensions.
    Source: Fisher, Yates 1938.

    >>> import weft as wf
    >>> x = wf.arange(4)
    >>> shuffle(x)
    >>> sorted(x.tolist())
    [0, 1, 2, 3]
    """
    x[...] = permutation(x) if key is None else keyed("shuffled_slices", key, (x,), None, None, None)
