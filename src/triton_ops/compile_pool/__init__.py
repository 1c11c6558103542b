"""Configs compiled in parallel, in processes of their own, without a GPU."""
