"""Functions that run once as they are, and then as programs: traces, lazy evaluation, dynamic axes, files."""
