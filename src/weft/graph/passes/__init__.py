"""The passes over graphs, in their order; what they do and why in that order is in docs/design/passes.md.

>>> [each.name for each in PASSES]  # doctest: +NORMALIZE_WHITESPACE
['marks', 'batch_norm', 'decompose', 'updates', 'constant_folding', 'algebraic_simplify', 'views',
 'common_subexpressions', 'regions', 'assembled', 'contracted', 'row_products',
 'requests', 'epilogues', 'gathers', 'expansions', 'recompute']
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection

from weft.base import flags
from weft.base.record import Record
from weft.graph.graph import Graph
from weft.graph.passes.algebraic_simplify import algebraic_simplify
from weft.graph.passes.assembled import assembled
from weft.graph.passes.batch_norm import batch_norm
from weft.graph.passes.common_subexpressions import common_subexpressions
from weft.graph.passes.constant_folding import constant_folding
from weft.graph.passes.contracted import contracted
from weft.graph.passes.decompose import decompose
from weft.graph.passes.epilogues import epilogues
from weft.graph.passes.expansions import expansions
from weft.graph.passes.gathers import gathers
from weft.graph.passes.marks import marks, regions
from weft.graph.passes.recompute import recompute
from weft.graph.passes.requests import requests
from weft.graph.passes.row_products import row_products
from weft.graph.passes.updates import updates
from weft.graph.passes.views import views
from weft.graph.rewrite import Rule, rewrite
from weft.graph.verify import same_interface, verify

__all__ = ["PASSES", "PREPARATION", "Pass", "optimize", "skipped"]

PREPARATION = "preparation"  # a stage of the planner that can be left out like a pass


class Pass(Record):
    """One rule, used everywhere, under its name. reason: why it is there; after: passes that must come before."""

    rule: Rule
    reason: str
    after: tuple[str, ...] = ()
    exact: bool = True

    @property
    def name(self) -> str:
        return self.rule.__name__


PASSES: tuple[Pass, ...] = (
    Pass(marks, "stop-gradients and custom gradients have an effect only where the graph is differentiated"),
    Pass(
        batch_norm,
        "at inference a normalization after a convolution is a factor and a summand, which its kernel can do",
        after=("marks",),  # which would be between the two
        exact=False,
    ),
    Pass(
        decompose,
        "operators without kernels are decomposed anyway; done here, the parts can be shared, simplified and fused",
        after=("batch_norm",),  # which looks for the whole operator
    ),
    Pass(updates, "each parameter is updated as soon as its gradient is final, and that is freed"),
    Pass(
        constant_folding,
        "gradients begin with arrays of ones and zeros that need not be written or read",
        after=("decompose",),
    ),
    Pass(
        algebraic_simplify,
        "recorded programs hold casts to a value's own type and products with one",
        after=("decompose", "constant_folding"),  # it handles numbers, not arrays of them
    ),
    Pass(
        views,
        "views of views keep kernels from taking their operands without copies",
        after=("decompose", "algebraic_simplify"),  # which may bring two views together
    ),
    Pass(
        common_subexpressions,
        "forward and backward compute the same things",
        after=(
            "decompose",
            "constant_folding",
            "algebraic_simplify",
            "views",
        ),  # which make equivalent nodes equal
    ),
    Pass(
        regions,
        "recomputed regions must stay apart from their first computation only until equal nodes are merged",
        after=("common_subexpressions",),  # which would find the two equal
    ),
    Pass(
        assembled,
        "gradients of slices and parts are sums of arrays that are mostly zeros",
        after=("views", "common_subexpressions"),  # which leave one view of a sum where there were many
        exact=False,
    ),
    Pass(
        contracted,
        "means of gradients of single examples are products, not sums of products",
        after=("views", "common_subexpressions"),
        exact=False,
    ),
    Pass(
        row_products,
        "a product of one row with a transposed matrix is bound by memory, which holds the matrix's rows",
        after=("views", "contracted"),  # which leave one transpose of many, and products with more rows
        exact=False,
    ),
    Pass(
        requests,
        "kernels of users' compute every gradient of theirs, and write it where it is only added to another",
        after=("common_subexpressions",),  # which may leave one reader where there were two
    ),
    Pass(
        epilogues,
        "a product that is added to, normalized and cut off is written once",
        after=(
            "batch_norm",
            "decompose",
            "common_subexpressions",
            "contracted",
            "row_products",
        ),  # a value that turns out to have two readers stays
        exact=False,
    ),
    Pass(
        gathers,
        "elements at indices need not be written where one loop reads them",
        after=(
            "decompose",
            "common_subexpressions",
            "epilogues",
        ),  # a value that turns out to have two readers stays
    ),
    Pass(
        expansions,
        "what broadcasting makes large is computed where it is read, which is less work than to store it",
        after=(
            "common_subexpressions",
            "epilogues",
        ),  # which would find the copies equal; who reads it is known only now
    ),
    Pass(
        recompute,
        "what gradients read in loops that have all it is computed from need not be kept",
        after=(
            "common_subexpressions",
            "epilogues",
        ),  # which would find the copies equal; and what is kept is known only now
    ),
)
"""The passes that compile_graph runs on every graph. exact False: results may differ in their last bits."""


def optimize(graph: Graph, skip: Collection[str] = ()) -> Graph:
    """The graph after all passes but those named in skip or in the switch WEFT_SKIP_PASSES ("all": none is done).

    With WEFT_CHECK=1 it is verified before and after each pass. With WEFT_DEBUG=1 passes print what they changed to
    stderr, before and after, and rewrites that could not be taken, with 2 every single rewrite, too.
    Raises ValueError for a name that no pass has; GraphError if a check fails.

    >>> from weft.base.dtype import float32
    >>> from weft.graph.graph import graph_of
    >>> from weft.ops.types import TensorType
    >>> import weft.ops.functions as F
    >>> g = graph_of(lambda x: F.exp(x) + F.exp(x) * 1, [TensorType((2,), float32)])
    >>> print(optimize(g))
    graph(x0: f32[2]@cpu:0)
      v0 = Exp()(x0): f32[2]@cpu:0
      v1 = Add()(v0, v0): f32[2]@cpu:0
      return v1
    >>> print(optimize(g, skip=["common_subexpressions"]))
    graph(x0: f32[2]@cpu:0)
      v0 = Exp()(x0): f32[2]@cpu:0
      v1 = Exp()(x0): f32[2]@cpu:0
      v2 = Add()(v0, v1): f32[2]@cpu:0
      return v2
    """
    off = skipped(skip)
    check, level = flags.get("WEFT_CHECK"), flags.get("WEFT_DEBUG")
    if check:
        verify(graph)
    for each in PASSES:
        if each.name in off:
            continue
        before = graph
        graph = rewrite(
            before,
            each.rule,
            _printer(each.name) if level > 1 else None,
            _printer(f"{each.name}: dropped") if level else None,
        )
        if level and graph is not before:
            print(f"{each.name}: before\n{before}\n{each.name}: after\n{graph}", file=sys.stderr)
        if check and graph is not before:
            verify(graph, each.name)
            same_interface(before, graph, each.name)
    return graph


def skipped(skip: Collection[str] = ()) -> set[str]:
    """The names of the passes that are off: those of skip, and those in WEFT_SKIP_PASSES."""
    names = {each.name for each in PASSES} | {PREPARATION}
    off = {*skip, *filter(None, (flags.get("WEFT_SKIP_PASSES") or "").split(","))}
    unknown = sorted(off - names - {"all"})
    if unknown:
        raise ValueError(f"no pass {', '.join(unknown)}; there are: {', '.join(sorted(names))}, all")
    return names if "all" in off else off


def _printer(name: str) -> Callable[[str], None]:
    return lambda text: print(f"{name}: {text}", file=sys.stderr)
