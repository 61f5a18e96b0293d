"""Compiles graphs to programs of the native core: chooses kernels and plans memory. See weft.executor.planner."""
