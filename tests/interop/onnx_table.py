"""docs/interop/onnx-operators.md: whether each operator of ONNX is read and written, and how its node tests end.

.venv/bin/python -m tests.interop.onnx_table      writes it again, in minutes: it exports every operator of weft
"""

from collections import defaultdict
from pathlib import Path

import onnx
from tests.interop import onnx_nodes, onnx_operators
from tests.ops.support import OPERATORS

from weft.base.errors import GraphError
from weft.interop import onnx as interop

PAGE = Path(__file__).parents[2] / "docs" / "interop" / "onnx-operators.md"
CONTROL = {"If", "Loop", "Scan"}  # which no operator of weft alone becomes


def written():
    """The operators of ONNX that the page says are written."""
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {row[0][3:-1] for row in rows if len(row) == 5 and row[3] == "yes"}


def exported():
    """Those that exports of all operators of weft consist of."""
    names = set(CONTROL)
    for cls in OPERATORS:
        if cls.name not in onnx_operators.refused():
            names |= onnx_operators.outcome(cls)
    return names


def node_tests():
    """Operator -> reasons of its tests, None for one that passes."""
    gaps, tests = onnx_nodes.gaps(), defaultdict(list)
    for case in onnx_nodes.cases():
        if "_expanded" not in case.name:
            tests[case.model.graph.node[-1].op_type].append(gaps.get(case.name))
    return tests


def render(names):
    """The text of the page. names: the operators of ONNX that are written."""
    tests, own = node_tests(), set(interop.operators())
    rows = []
    for schema in sorted(onnx.defs.get_all_schemas(), key=lambda schema: schema.name):
        if schema.domain:
            continue
        reasons = tests[schema.name]
        passed = reasons.count(None)
        has_definition = schema.has_function or schema.has_context_dependent_function
        reading = "yes" if schema.name in own else "by its definition" if has_definition and passed else "no"
        why = "; ".join(sorted({reason.replace("|", "/") for reason in reasons if reason}))
        count = f"{passed} of {len(reasons)}{f': {why}' if why else ''}"
        writing = "yes" if schema.name in names else ""
        rows.append(f"| `{schema.name}` | {schema.since_version} | {reading} | {writing} | {count} |")
    refused = [f"| `{name}` | {_fact(why)} |" for name, why in sorted(onnx_operators.refused().items())]
    total = sum(map(len, tests.values()))
    return PAGE_TEXT.format(
        version=onnx.__version__,
        total=total,
        rows="\n".join(rows),
        count=len(refused),
        operators=len(OPERATORS),
        refused="\n".join(refused),
    )


PAGE_TEXT = """# Operators of ONNX

Made by `tests/interop/onnx_table.py` from the package onnx {version}; tests compare it with what there is.

- *Since*: the opset of an operator's last change. Older forms are read from opset 7 on.
- *Read*: `yes`, or by its definition, where ONNX defines the operator by others, which take its place.
- *Written*: exports have it, up to opset 26.
- *Node tests*: how many of those of the package onnx pass, of {total} in all, with the reasons of the others.

| operator | since | read | written | node tests |
|---|---|---|---|---|
{rows}

## Operators of weft that are not written

{count} of {operators}; the others are written as operators of ONNX, as what they decompose to, or as the arithmetic
of their loops.

| operator | why |
|---|---|
{refused}
"""


def _fact(why):
    fact = why.removeprefix(f"{GraphError.__name__}: onnx export: ")
    return ": ".join(fact.split(": ")[:2])


if __name__ == "__main__":
    PAGE.write_text(render(exported()))
