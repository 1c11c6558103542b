"""Searches head to head on recorded spaces: this package's, and those of Kernel Tuner."""
