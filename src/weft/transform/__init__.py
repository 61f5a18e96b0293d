"""Transformations of graphs: batching (vmap) and forward-mode derivatives (jvp)."""

from weft.transform import control as control  # they register rules
from weft.transform import rules as rules
from weft.transform import shapes as shapes
