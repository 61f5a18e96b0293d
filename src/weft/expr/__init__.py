"""Loop expressions and their compilers: kernels written as arithmetic on one element, compiled for this processor."""
