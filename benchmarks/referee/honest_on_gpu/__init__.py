"""Honest candidates that need a GPU: a file for each task, of which each function is one."""
