"""Kernels for processors: oneDNN's, and those of native/kernels."""
