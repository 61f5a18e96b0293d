"""Several processes over MPI: programs of this folder's `programs`, each started on two or three ranks."""

import pytest

pytest.importorskip("mpi4py")


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "program",
    ["collectives.py", "data_parallel.py", "join.py", "parts.py", "priorities.py", "quantized.py"],
)
def test_programs(launch, program, n, tmp_path):
    text = launch(program, n, tmp_path)
    assert text.count("right") == n, text


@pytest.mark.full
def test_the_exchange_of_a_deep_network_is_begun_in_the_middle_of_backward(launch, tmp_path):
    assert launch("priorities.py", 2, "resnet18").count("right") == 2
