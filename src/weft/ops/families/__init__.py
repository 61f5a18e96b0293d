"""The operators, by family: one class each."""
