"""Writes dtype_table.h, the native core's table of element types, from weft.base.dtype.DTYPES.

python native/tensor/make_dtypes.py
"""

from pathlib import Path

from weft.base.dtype import DTYPES

TABLE = Path(__file__).with_name("dtype_table.h")
KINDS = {  # of DTypeKind in dtype.h
    "bool": "boolean",
    "int": "signed_integer",
    "uint": "unsigned_integer",
    "float": "floating",
    "complex": "complex_floating",
}
HEAD = """\
// dtype_table.h: the element types, written by make_dtypes.py (./dev stub) from src/weft/base/dtype.py.
// clang-format off
#pragma once

//  enumerator, name, short name, kind, bits, digits, accumulation, format of the buffer protocol (null: none)
#define WEFT_DTYPES(X) \\
"""


def _identifier(name: str) -> str:
    return "bool_" if name == "bool" else name


def render() -> str:
    """The text of dtype_table.h."""
    rows = []
    for t in DTYPES:
        form = f'"{t.format}"' if t.format else "nullptr"
        fields = (_identifier(t.name), f'"{t.name}"', f'"{t.short}"', KINDS[t.kind], t.bits, t.digits)
        rows.append(f"  X({', '.join(map(str, fields))}, {_identifier(t.accumulation.name)}, {form})")
    return HEAD + " \\\n".join(rows) + "\n"


if __name__ == "__main__":
    TABLE.write_text(render())
