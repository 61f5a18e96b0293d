"""Gradients of calls on arrays: managers, functions with gradients of their own."""
