"""The error function: erf, erfc."""

from __future__ import annotations

from weft.expr.functions.exponential import EXP_LEAST, exp_of
from weft.expr.functions.pieces import at_least, at_most, polynomial
from weft.expr.scalar import Scalar, call, fma, where

# erf(x) / x - 1 in x^2 for |x| <= 1.
ERF = {
    "float32": (
        0.12837916612625122,
        -0.3761262893676758,
        0.11283618211746216,
        -0.02685512602329254,
        0.005190733820199966,
        -0.0008030761382542551,
        7.920368807390332e-05,
    ),
    "float64": (
        0.12837916709551256,
        -0.3761263890318355,
        0.11283791670945248,
        -0.026866170643275494,
        0.005223977607418162,
        -0.0008548325989466099,
        0.00012055295314159326,
        -1.4924744550515005e-05,
        1.6447516378601043e-06,
        -1.6209166580376314e-07,
        1.3722938289082693e-08,
        -7.801122020614332e-10,
    ),
}
# erfc(t + 2.45) for |t| <= 1.45, to 2^-24.7.
ERFC_MIDDLE = (
    0.0005305522354319692,
    -0.002789898309856653,
    0.0068367659114301205,
    -0.010236046276986599,
    0.010249161161482334,
    -0.006976415868848562,
    0.002994755282998085,
    -0.0004297696868889034,
    -0.0004185163415968418,
    0.0003066850476898253,
    -4.88126534037292e-05,
    -2.6510990210226737e-05,
    9.126117220148444e-06,
)
# e^(a^2) erfc(a) / t in t - 0.55 for t = 1 / (1 + 0.4 a), 0 <= a <= 10.1, to 2^-25.
ERFCX32 = (
    0.4556840658187866,
    0.7205448746681213,
    0.8110405206680298,
    0.5813246369361877,
    0.1501137912273407,
    -0.1429244726896286,
    -0.10955158621072769,
    0.05071372911334038,
    0.05190387740731239,
    -0.031062794849276543,
)
# (1 + 2a) e^(a^2) erfc(a) in t = (a - 4) / (a + 4) for 0 <= a <= 27.3.
ERFCX = (
    1.2329951186255526,
    -0.13962111684056322,
    0.015379652102607503,
    0.06809705425476788,
    -0.10103906603562633,
    0.09373283499605808,
    -0.06633036582705433,
    0.037167515568184775,
    -0.016197733889785577,
    0.0050319697655428364,
    -0.0007577744027690598,
    -0.00019925590545202755,
    0.00015062626969563023,
    -2.4400594982141643e-05,
    -1.1234060560441566e-05,
    5.709632872987544e-06,
    3.135924170483824e-07,
    -8.205489837500318e-07,
    5.5267578207539947e-08,
    1.0168830774383878e-07,
    -8.020090964598623e-09,
    -8.393788981537737e-09,
)


def erf_near(x: Scalar) -> Scalar:
    """x + x P(x^2), for |x| <= 1."""
    return fma(x, polynomial(x * x, ERF[x.dtype]), x)


def erf(x: Scalar) -> Scalar:
    """See erf_near; beyond 1 1 - erfc(|x|), which is a polynomial, too, in float32. At most 1.6 ulp."""
    a = abs(x)
    if x.dtype == "float32":
        far = 1 - polynomial(at_most(a, 3.9) - 2.45, ERFC_MIDDLE)
    else:
        far = 1 - erfc_positive(at_most(a, 7.0))
    return call("copysign", where(a < 1, erf_near(a), far), x)


# Beyond, erfc is 0.
ERFC_MOST = {"float32": 10.1, "float64": 27.3}


def erfc_positive(a: Scalar) -> Scalar:
    """e^(-a^2) P(t) / (1 + 2a), in float32 e^(-a^2) t P(t), for 0 <= a <= ERFC_MOST; a^2 in two parts.

    Source: Shepherd, Laframboise 1981, Chebyshev approximation of (1+2x)exp(x^2)erfc x, Math. Comp. 36(153).
    """
    h = a * a
    low = fma(a, a, -h)
    e = exp_of(at_least(-h, EXP_LEAST[a.dtype]), True)
    if a.dtype == "float32":
        d = fma(a, 0.4, 1)
        t = 1 / d
        p = t * polynomial(t - 0.55, ERFCX32)
        # What t lacks, relatively, counts about twice in p.
        low = fma(fma(-fma(a, 0.4, 1 - d), t, fma(-d, t, 1)), -2, low)
    else:
        p = polynomial((a - 4) / (a + 4), ERFCX) / fma(a, 2, 1)
    return e * fma(-low, p, p)


def erfc(x: Scalar) -> Scalar:
    """See erfc_positive; below 0 it is 2 - erfc(-x). At most 4 ulp, float32 5, where it is 1 - erf(x) next to 0."""
    a = abs(x)
    y = erfc_positive(at_most(a, ERFC_MOST[x.dtype]))
    y = where(x < 0, 2 - y, y)
    return where(a < 0.5, 1 - erf_near(x), y) if x.dtype == "float32" else y
