"""Triton's first form of a kernel, TTIR, read as text: its work, loop by loop, without a compiler or a GPU."""
