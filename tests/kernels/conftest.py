"""Every test of a kernel runs at each instruction set level that the machine has."""

import pytest

from .support import LEVELS, level


@pytest.fixture(autouse=True, params=LEVELS)
def isa(request):
    with level(request.param):
        yield request.param
