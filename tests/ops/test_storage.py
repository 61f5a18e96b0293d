"""Kinds of storage in types: they are told apart, written down, and refused where there is no rule for them."""

import pytest

from weft import kernels
from weft.base.device import Device
from weft.base.dtype import float32
from weft.graph.graph import Graph
from weft.graph.text import from_json, to_json
from weft.kernels import choices, kernel
from weft.ops.kernels import Native
from weft.ops.node import Node, input_value, make_node
from weft.ops.op import Op, op
from weft.ops.registry import get
from weft.ops.types import STORAGES, TensorType

DENSE = TensorType((4, 3), float32)
CSR = DENSE.like(storage="csr")


def test_types_of_different_storage_differ():
    types = [DENSE.like(storage=storage) for storage in STORAGES]
    assert len(set(types)) == len(STORAGES)
    assert types[0] == DENSE
    assert [str(t) for t in types] == ["f32[4,3]@cpu:0", "f32[4,3]row_sparse@cpu:0", "f32[4,3]csr@cpu:0"]
    assert CSR.like((2, 2)).storage == CSR.on(Device("cpu", 1)).storage == "csr"
    assert CSR.like(storage="dense") == DENSE
    with pytest.raises(ValueError, match="storage must be one of dense, row_sparse, csr, got 'coo'"):
        TensorType((2,), float32, storage="coo")


def test_an_operator_without_a_rule_refuses():
    x, y = input_value(CSR), input_value(DENSE)
    for name, inputs in (("exp", [x]), ("add", [y, x]), ("softmax", [x]), ("concat", [y, y, x])):
        with pytest.raises(
            TypeError, match=rf"{name}: has no rule for csr storage; it takes dense: \w+ is f32\[4,3\]csr"
        ):
            make_node(get(name)(), inputs)


@op
class RowsOfStorageTests(Op):
    """The rows that are stored."""

    public = False
    storages = ("dense", "csr")

    def infer(self, x):
        return x.like(storage="dense")

    def decompose(self, x):
        return x * 1


def test_an_operator_with_one_takes_it_and_kernels_are_asked_by_storage():
    assert make_node(RowsOfStorageTests(), [input_value(CSR)]).outputs[0].type == DENSE
    kernel(RowsOfStorageTests)(lambda op, x: [Native(lambda *_: None, numbers=((1, "int64"),))])
    kernel(RowsOfStorageTests, storages=("csr",))(
        lambda op, x: [Native(lambda *_: None, numbers=((2, "int64"),))]
    )
    try:
        asked = [[c.numbers[0][0] for c in choices(RowsOfStorageTests(), [t])] for t in (DENSE, CSR)]
    finally:
        del kernels._TABLE[RowsOfStorageTests, "cpu"]
    assert asked == [[1], [2]]


def test_storage_is_written_down():
    x = input_value(CSR)
    graph = Graph([x], [Node(RowsOfStorageTests(), [x], [DENSE]).outputs[0]])
    again = from_json(to_json(graph))
    assert again.inputs[0].type == CSR
    assert '"storage"' not in to_json(Graph([y := input_value(DENSE)], [y]))
