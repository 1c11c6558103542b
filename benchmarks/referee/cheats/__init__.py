"""Planted cheats: a file for each family, of which each function is one."""
