"""What every recorder of calls needs: launches written down as a graph, what they depend on, where they are from."""

from weft import _core


def _number_here() -> object:
    from weft.recording.paths import number_here

    return number_here


_core.register(module_here=_number_here)
