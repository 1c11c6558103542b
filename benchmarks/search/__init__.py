"""Spaces of slow functions, recorded on a CPU."""
