"""Honest candidates: a file for each task, of which each function is one."""
