"""Tiles of two loops."""

from weft.expr.llvm_function import Function


def print_tiles(f: Function) -> None:
    raise NotImplementedError
