"""Numbers that are drawn by rejection, as expressions: what native/kernels/distributions.cpp computes.

The 64 random bits of an element are the key of a Philox stream that it reads from its beginning, for as long as
candidates are rejected. All is float64. Sources: as there.
"""

from __future__ import annotations

import math

from weft.expr import draws
from weft.expr import scalar as e
from weft.expr.functions import expand

__all__ = ["LARGEST", "binomial", "gamma", "gamma_slope", "multinomial", "poisson"]

Scalar = e.Scalar
LEAST_CHANGE = 1e-16
MOST_TERMS = 100000
LARGEST = 1e18  # of counts and means of counts, so that results fit int64
LARGE = 1e5  # from which shape on the slope is that of a transform


def _real(value: float) -> Scalar:
    return e.constant(value, "float64")


def _word(value: int) -> Scalar:
    return e.constant(value, "uint64")


def pair(bits: Scalar, block: Scalar) -> list[Scalar]:
    """The two numbers of a block of a stream, in (0, 1): odd multiples of 2^-54."""
    x0, x1, x2, x3 = draws.philox(block, bits, _word(0))
    return [_unit(x0 | x1 << _word(32)), _unit(x2 | x3 << _word(32))]


def _unit(item: Scalar) -> Scalar:
    return (e.cast(item >> _word(11), "float64") + _real(0.5)) * _real(2.0**-53)


def uniforms(bits: Scalar, first: Scalar, count: int) -> list[Scalar]:
    """Numbers `first` and so on of a stream, two of which are a block."""
    block, is_odd = first >> _word(1), (first & _word(1)) == _word(1)
    words = []
    for k in range(count // 2 + 1):
        x0, x1, x2, x3 = draws.philox(block + _word(k), bits, _word(0))
        words += [x0 | x1 << _word(32), x2 | x3 << _word(32)]
    return [_unit(e.where(is_odd, words[k + 1], words[k])) for k in range(count)]


def gamma(alpha: Scalar, bits: Scalar) -> Scalar:
    """The gamma distribution with shape alpha and rate 1 (Marsaglia and Tsang 2000). 0 for alpha = 0, NaN below.

    Each turn has one candidate: a normal number by the polar method, and whether it is accepted.
    """
    one, zero = _real(1.0), _real(0.0)
    alpha_, key, position = e.state(1, "float64"), e.state(2, "uint64"), e.state(3, "uint64")
    is_small = alpha_ < one
    d = e.where(is_small, alpha_ + one, alpha_) - _real(1.0 / 3)
    c = one / e.call("sqrt", _real(9.0) * d)
    a, b, chance, power = uniforms(key, position, 4)
    u, v = _real(2.0) * a - one, _real(2.0) * b - one
    s = u * u + v * v
    x = u * e.call("sqrt", _real(-2.0) * e.call("log", s) / s)
    root = one + c * x
    is_candidate = (s > zero) & (s < one) & (root > zero)
    cube = root * root * root
    bound = _real(0.5) * x * x + d - d * cube + d * e.call("log", cube)
    is_accepted = is_candidate & (e.call("log", chance) < bound)
    factor = e.where(is_small, e.call("pow", power, one / alpha_), one)
    is_one = (alpha_ > zero) & (alpha_ < _real(math.inf))
    following = position + e.where(is_candidate, _word(3), _word(2))
    news = (d * cube * factor, alpha_, key, following)
    drawn = _loop((zero, alpha, bits, _word(0)), news, is_accepted | ~is_one)
    is_any = (alpha > zero) & (alpha < _real(math.inf))
    return e.where(is_any, drawn, e.where(alpha < zero, _real(math.nan), alpha))


def gamma_slope(alpha: Scalar, x: Scalar) -> Scalar:
    """The derivative of a sample x of gamma(alpha) by alpha (Figurnov, Mohamed, Mnih 2018)."""
    one, zero = _real(1.0), _real(0.0)
    root = e.call("cbrt", x / alpha)
    spread = e.call("sqrt", alpha)
    z = (root - one + one / (_real(9.0) * alpha)) * _real(3.0) * spread
    transformed = root * root * (root + one / (_real(3.0) * alpha) - z / (_real(2.0) * spread))
    is_wrong = ~(alpha > zero) | ~(x > zero) | (x == _real(math.inf))
    is_low = x < alpha + one
    # Of the two loops only that is gone through whose result is taken.
    by_series = _series(alpha, x, is_wrong | (alpha > _real(LARGE)) | ~is_low)
    by_fraction = _fraction(alpha, x, is_wrong | (alpha > _real(LARGE)) | is_low)
    inside = e.where(is_low, by_series, by_fraction)
    slope = e.where(alpha > _real(LARGE), transformed, inside)
    return e.where(is_wrong, e.where(x == zero, zero, x - x), slope)


def _series(alpha: Scalar, x: Scalar, is_idle: Scalar) -> Scalar:
    one, zero = _real(1.0), _real(0.0)
    names = ("result", "n", "term", "total", "dterm", "dtotal", "alpha", "x", "log", "idle")
    s = {name: e.state(k, "float64") for k, name in enumerate(names)}
    size = s["alpha"] + s["n"]
    term = s["term"] * (s["x"] / size)
    dterm = s["dterm"] * s["x"] / size - term / size
    total, dtotal = s["total"] + term, s["dtotal"] + dterm
    result = -(s["x"] / s["alpha"]) * (total * s["log"] + dtotal)
    goes_on = (term > total * _real(LEAST_CHANGE)) | (abs(dterm) > abs(dtotal) * _real(LEAST_CHANGE))
    following = s["n"] + one
    done = ~goes_on | (following >= _real(MOST_TERMS)) | (s["idle"] != zero)
    log = e.call("log", x) - e.call("digamma", alpha + one)
    starts = (zero, one, one, one, zero, zero, alpha, x, log, e.where(is_idle, one, zero))
    news = (result, following, term, total, dterm, dtotal, s["alpha"], s["x"], s["log"], s["idle"])
    return _loop(starts, news, done)


def _fraction(alpha: Scalar, x: Scalar, is_idle: Scalar) -> Scalar:
    """Lentz's algorithm with derivatives; every b has the derivative -1."""
    one, zero = _real(1.0), _real(0.0)
    names = ("result", "i", "b", "c", "dc", "d", "dd", "h", "dh", "alpha", "x", "log", "idle")
    s = {name: e.state(k, "float64") for k, name in enumerate(names)}
    a, da = -s["i"] * (s["i"] - s["alpha"]), s["i"]
    b = s["b"] + _real(2.0)
    d = one / (a * s["d"] + b)
    dd = -d * d * (da * s["d"] + a * s["dd"] - one)
    dc = _real(-1.0) + da / s["c"] - a * s["dc"] / (s["c"] * s["c"])
    c = b + a / s["c"]
    factor, dfactor = c * d, dc * d + c * dd
    dh, h = s["dh"] * factor + s["h"] * dfactor, s["h"] * factor
    result = s["x"] * (h * s["log"] + dh)
    least = _real(4 * LEAST_CHANGE)
    following = s["i"] + one
    is_there = (abs(factor - one) < least) & (abs(dfactor) < least)
    done = is_there | (following >= _real(MOST_TERMS)) | (s["idle"] != zero)
    first = x + one - alpha
    log = e.call("log", x) - e.call("digamma", alpha)
    starts = (
        *(zero, one, first, _real(1e300), zero, one / first, one / (first * first)),
        *(one / first, one / (first * first), alpha, x, log, e.where(is_idle, one, zero)),
    )
    news = (result, following, b, c, dc, d, dd, h, dh, s["alpha"], s["x"], s["log"], s["idle"])
    return _loop(starts, news, done)


def poisson(rate: Scalar, bits: Scalar) -> Scalar:
    """The number of events of a rate in 0 ... 1e18; 0 for others (Hoermann 1993; below 10, exponential distances)."""
    zero, ten = _real(0.0), _real(10.0)
    is_any = (rate > zero) & (rate <= _real(LARGEST))
    near = _events(rate, bits, ~is_any | (rate >= ten))
    far = _many_events(rate, bits, ~is_any | (rate < ten))
    return e.where(is_any, e.where(rate < ten, near, far), zero)


def _events(rate: Scalar, bits: Scalar, is_idle: Scalar) -> Scalar:
    one, zero = _real(1.0), _real(0.0)
    count, product, least, idle = (e.state(k, "float64") for k in (0, 1, 2, 3))
    key, position = e.state(4, "uint64"), e.state(5, "uint64")
    product = product * uniforms(key, position, 1)[0]
    goes_on = product > least
    news = (count + e.where(goes_on, one, zero), product, least, idle, key, position + _word(1))
    starts = (zero, one, e.call("exp", -rate), e.where(is_idle, one, zero), bits, _word(0))
    return _loop(starts, news, ~goes_on | (idle != zero))


def _many_events(rate: Scalar, bits: Scalar, is_idle: Scalar) -> Scalar:
    one, zero = _real(1.0), _real(0.0)
    mean, idle = e.state(1, "float64"), e.state(2, "float64")
    key, block = e.state(3, "uint64"), e.state(4, "uint64")
    b = _real(0.931) + _real(2.53) * e.call("sqrt", mean)
    a = _real(-0.059) + _real(0.02483) * b
    inverse, at_once = _real(1.1239) + _real(1.1328) / (b - 3.4), _real(0.9277) - _real(3.6224) / (b - 2.0)
    u, v, us = _candidate(key, block)
    k = e.call("floor", (_real(2.0) * a / us + b) * u + mean + _real(0.43))
    is_refused = (k < zero) | ((us < _real(0.013)) & (v > us))
    height = e.call("log", v * inverse / (a / (us * us) + b))
    fits = height <= k * e.call("log", mean) - mean - e.call("lgamma", k + one)
    is_taken = ((us >= _real(0.07)) & (v <= at_once)) | (~is_refused & fits)
    starts = (zero, rate, e.where(is_idle, one, zero), bits, _word(0))
    return _loop(starts, (k, mean, idle, key, block + _word(1)), is_taken | (idle != zero))


def _candidate(key: Scalar, block: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """u in -1/2 ... 1/2, v, and how far u is from the ends."""
    return _centred(*pair(key, block))


def _centred(u: Scalar, v: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    u = u - _real(0.5)
    return u, v, _real(0.5) - abs(u)


def binomial(trials: Scalar, p: Scalar, bits: Scalar) -> Scalar:
    """The number of successes; 0 for trials and p that there are not (Hoermann 1993; few: geometric distances)."""
    return _binomial(trials, p, bits, None)[0]


def multinomial(
    chance: Scalar, rest: Scalar, left: Scalar, bits: Scalar, place: Scalar
) -> tuple[Scalar, Scalar]:
    """A category's number of the trials that are left, and how far the row's stream has been read then.

    rest: its chance and those behind it. place: how far the categories before have read the stream.
    """
    zero, one = _real(0.0), _real(1.0)
    share = e.where(chance == zero, zero, e.minimum(chance / rest, one))
    return _binomial(left, share, bits, place)


def _binomial(trials: Scalar, p: Scalar, bits: Scalar, place: Scalar | None) -> tuple[Scalar, Scalar]:
    """The number of successes, and the place in the stream behind what was read; place: where it begins, None: at 0."""
    one, zero, ten = _real(1.0), _real(0.0), _real(10.0)
    is_most = p > _real(0.5)
    share = e.where(is_most, one - p, p)
    is_any = (trials > zero) & (trials <= _real(LARGEST)) & (share > zero) & (share <= _real(0.5))
    is_few = trials * share < ten
    begin = _word(0) if place is None else place
    few, after_few = _successes(trials, share, bits, ~is_any | ~is_few, begin)
    many, after_many = _many_successes(trials, share, bits, ~is_any | is_few, place)
    count = e.where(is_any, e.where(is_few, few, many), zero)
    after = e.where(is_any, e.where(is_few, after_few, after_many), begin)
    return e.where(is_most, trials - count, count), after


def _successes(
    trials: Scalar, p: Scalar, bits: Scalar, is_idle: Scalar, place: Scalar
) -> tuple[Scalar, Scalar]:
    one, zero = _real(1.0), _real(0.0)
    count, at, limit, failure, idle = (e.state(k, "float64") for k in range(5))
    key, position = e.state(5, "uint64"), e.state(6, "uint64")
    (u,) = uniforms(key, position, 1)
    at = at + (e.call("floor", e.call("log", u) / failure) + one)
    news = (count + one, at, limit, failure, idle, key, position + _word(1))
    starts = (-one, zero, trials, e.call("log1p", -p), e.where(is_idle, one, zero), bits, place)
    count, *_, after = _loop_of_all(starts, news, ~(at <= limit) | (idle != zero))
    return count, after


def _many_successes(
    trials: Scalar, p: Scalar, bits: Scalar, is_idle: Scalar, place: Scalar | None
) -> tuple[Scalar, Scalar]:
    """place None: candidates are blocks of the stream, which is not read before; the place after is in blocks, too."""
    one, zero = _real(1.0), _real(0.0)
    n, q, top, odds, idle = (e.state(k, "float64") for k in range(1, 6))
    key, at = e.state(6, "uint64"), e.state(7, "uint64")
    spread = e.call("sqrt", n * q * (one - q))
    b = _real(1.15) + _real(2.53) * spread
    a = _real(-0.0873) + _real(0.0248) * b + _real(0.01) * q
    c, at_once = n * q + _real(0.5), _real(0.92) - _real(4.2) / b
    scale, mode = (_real(2.83) + _real(5.1) / b) * spread, e.call("floor", (n + one) * q)
    u, v, us = _candidate(key, at) if place is None else _centred(*uniforms(key, at, 2))
    k = e.call("floor", (_real(2.0) * a / us + b) * u + c)
    density = top - e.call("lgamma", k + one) - e.call("lgamma", n - k + one) + (k - mode) * odds
    fits = e.call("log", v * scale / (a / (us * us) + b)) <= density
    is_taken = (k >= zero) & (k <= n) & (((us >= _real(0.07)) & (v <= at_once)) | fits)
    peak = e.call("floor", (trials + one) * p)
    most = e.call("lgamma", peak + one) + e.call("lgamma", trials - peak + one)
    starts = (
        zero,
        trials,
        p,
        most,
        e.call("log", p / (one - p)),
        e.where(is_idle, one, zero),
        bits,
        _word(0) if place is None else place,
    )
    news = (k, n, q, top, odds, idle, key, at + _word(1 if place is None else 2))
    count, *_, after = _loop_of_all(starts, news, is_taken | (idle != zero))
    return count, after


def _loop(starts: tuple[Scalar, ...], news: tuple[Scalar, ...], done: Scalar) -> Scalar:
    return _loop_of_all(starts, news, done)[0]


def _loop_of_all(starts: tuple[Scalar, ...], news: tuple[Scalar, ...], done: Scalar) -> list[Scalar]:
    """All values of the turn in which it is done."""
    news, done = tuple(map(expand, news)), expand(done)
    return [e.repeated(starts, news, done, k) for k in range(len(starts))]
