"""Kernels run by Triton's interpreter, in a process of their own, with every access watched."""
