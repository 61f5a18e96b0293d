"""What expressions will do and do not yet: each of these is in tests/known_gaps.txt until it works."""

import numpy as np

from weft.expr.evaluate import evaluate
from weft.expr.functions import expand
from weft.expr.scalar import call, load


def test_sine_of_huge_arguments():
    x = np.array([2.0**50, 1e20, 3e38], "float32")
    found = evaluate(expand(call("sin", load(0, "float32"))), {0: x})
    np.testing.assert_allclose(found, np.sin(x.astype("float64")), rtol=1e-5)
