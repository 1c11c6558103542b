"""Kernels as their authors wrote them: files, functions, parameters and launches, from the syntax of the source."""
