"""Kernels for GPUs, by families of operators."""
