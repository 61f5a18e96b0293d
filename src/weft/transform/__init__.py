"""Transformations of graphs: a graph for one example becomes one for a batch, a function its derivative."""

from weft.transform import control as control  # they register rules
from weft.transform import rules as rules
from weft.transform import shapes as shapes
