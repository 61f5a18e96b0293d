"""Functions that run once as they are, and then as programs: traces, lazy evaluation, dynamic axes, files."""

from weft import _core


def _view_of() -> object:
    from weft.traces.traced import view_of

    return view_of


_core.register(window_of=_view_of)
