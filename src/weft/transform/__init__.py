"""Functions and graphs transformed: batching (vmap), derivatives (vjp, jvp, hessian); rules for operators."""

from weft.transform import control as control  # they register rules
from weft.transform import rules as rules
from weft.transform import shapes as shapes
