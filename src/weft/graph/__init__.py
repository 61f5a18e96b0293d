"""Graphs of operators: from values given to values wanted, and their gradients."""
