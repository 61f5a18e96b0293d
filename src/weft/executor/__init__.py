"""From graphs to programs: choosing kernels, laying out memory. See weft.executor.planner."""
