"""Planted cheats that need a GPU: a file for each family, of which each function is one."""
