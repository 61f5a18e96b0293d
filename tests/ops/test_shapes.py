"""Rules of sizes: parsing, solving in every direction, and contradictions."""

import pytest

from weft.ops import rules
from weft.ops.shapes import Contradiction, broadcast, merge


def solve(rule, values, shapes):
    return rules.solve(rules.parse(rule), values, shapes)


RULE = "x[*b,k], weight[n,k], bias[n] -> y[*b,n]"


@pytest.mark.parametrize(
    ("known", "want"),
    [
        ({"x": (2, 3), "weight": (5, 3)}, {"x": (2, 3), "weight": (5, 3), "bias": (5,), "y": (2, 5)}),
        ({"y": (2, 5), "weight": (None, 3)}, {"x": (2, 3), "weight": (5, 3), "bias": (5,), "y": (2, 5)}),
        ({"bias": (5,), "x": (3,)}, {"x": (3,), "weight": (5, 3), "bias": (5,), "y": (5,)}),
        ({"bias": (5,)}, {"x": None, "weight": (5, None), "bias": (5,), "y": None}),
        (
            {"x": (None, None)},
            {"x": (None, None), "weight": (None, None), "bias": (None,), "y": (None, None)},
        ),
        ({}, {"x": None, "weight": (None, None), "bias": (None,), "y": None}),
    ],
)
def test_every_direction(known, want):
    assert solve(RULE, {}, {"x": None, "weight": None, "bias": None, "y": None} | known) == want


def test_products_numbers_and_equal_sizes():
    rule = "x[n,groups*c,2], w[m=groups*d,c] -> y[m,d]"
    known = solve(rule, {"groups": 2}, {"x": (1, 6, None), "w": (8, None), "y": None})
    assert known == {"x": (1, 6, 2), "w": (8, 3), "y": (8, 4)}
    with pytest.raises(Contradiction, match="x has 5 c, not a multiple of groups=2"):
        solve(rule, {"groups": 2}, {"x": (1, 5, None), "w": None, "y": None})
    with pytest.raises(Contradiction, match="x has size 3, not 2"):
        solve(rule, {"groups": 2}, {"x": (1, 4, 3), "w": None, "y": None})


def test_attributes_of_several_sizes():
    rule = "x[*b,*rows], w[*rows] -> y[*b]"
    known = solve(rule, {"rows": (3, 4)}, {"x": (2, None, None), "w": None, "y": None})
    assert known == {"x": (2, 3, 4), "w": (3, 4), "y": (2,)}
    with pytest.raises(Contradiction, match=r"x has \[3,5\] for rows, which is \[3,4\]"):
        solve(rule, {"rows": (3, 4)}, {"x": (2, 3, 5), "w": None, "y": None})
    with pytest.raises(Contradiction, match=r"x needs at least 2 dimensions, .*, it has 1"):
        solve(rule, {"rows": (3, 4)}, {"x": (2,), "w": None, "y": None})


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"x": (2, 3), "weight": (5, 4)}, "x has 3 k, weight expects 4"),
        ({"weight": (5, 3, 1)}, "weight needs 2 dimensions, .*, it has 3"),
        ({"x": ()}, "x needs at least 1 dimension, .*, it has 0"),
        ({"x": (2, 3), "y": (4, 5)}, "y has \\[4\\] for b, x \\[2\\]"),
        ({"x": (2, 3), "y": (2, 3, 5)}, "y needs 2 dimensions, .*, it has 3"),
    ],
)
def test_contradictions(known, words):
    with pytest.raises(Contradiction, match=words):
        solve(RULE, {}, {"x": None, "weight": None, "bias": None, "y": None} | known)


def test_merging():
    assert merge((None, 2), (1, None)) == (1, 2)
    with pytest.raises(Contradiction, match="1 and 2 dimensions"):
        merge((1,), (1, 2))
    with pytest.raises(Contradiction, match="2 != 3"):
        merge((2,), (3,))


def test_broadcasting_backwards():
    assert broadcast([(None,), (1,)], (4,)) == ([(4,), (1,)], (4,))
    assert broadcast([(None,), (None,)], (4,)) == ([(None,), (None,)], (4,))  # one of them may be 1
    assert broadcast([(None,), (None,)], (1,)) == ([(1,), (1,)], (1,))
    assert broadcast([None, (3,)], None) == ([None, (3,)], None)
    assert broadcast([None], (3,)) == ([(3,)], (3,))
    with pytest.raises(Contradiction, match="4 != 3"):
        broadcast([(3,), (1,)], (4,))
    with pytest.raises(Contradiction, match="does not fit the result"):
        broadcast([(3, 1), None], (3,))
