"""What other libraries and standards have is here, under the places that the inventories name, or is a known gap."""

import inspect

import pytest
from tests import coverage
from tests.coverage import INVENTORIES, entries

GAPS = {f"{name}:{entry.name}": entry for name in INVENTORIES for entry in entries(name) if entry.is_gap}


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_everything_has_a_place(inventory):
    listed = list(entries(inventory))
    names = [entry.name for entry in listed]
    assert len(set(names)) == len(names)
    missing = [
        f"{entry.name} ({entry.place})" for entry in listed if not entry.is_gap and not entry.is_there()
    ]
    assert not missing, f"weft has none of: {', '.join(missing)}"


@pytest.mark.parametrize("gap", GAPS)
def test_gap(gap):
    """Fails as long as weft has nothing like it; tests/known_gaps.txt has the reason."""
    assert GAPS[gap].is_there()


def test_inventories_have_all_that_pytorch_has():
    """Of the PyTorch that is installed; names that begin with an underscore are not public."""
    torch = pytest.importorskip("torch")
    found = coverage.of_torch(torch)
    for inventory, names in found.items():
        assert not names - {entry.name for entry in entries(inventory)}, inventory


def test_what_the_array_namespace_says_is_true():
    import weft as wf

    info = wf.__array_namespace_info__()
    capabilities = info.capabilities()
    assert capabilities["boolean indexing"] is (wf.arange(3)[wf.arange(3) > 1].tolist() == [2])
    assert capabilities["data-dependent shapes"] is (wf.nonzero(wf.arange(3))[0].tolist() == [1, 2])
    for device in info.devices():
        assert wf.zeros(1, device=device).device is device
        for dtype in info.dtypes(device=device).values():
            assert wf.zeros(1, dtype=dtype, device=device).dtype is dtype
        for kind, dtype in info.default_dtypes(device=device).items():
            assert kind == "indexing" or wf.isdtype(dtype, kind)
    assert not [
        name for name in dir(info) if not name.startswith("_") and not inspect.isroutine(getattr(info, name))
    ]
