"""Profiles of Nsight Compute: reading them, what they say, and what to try next."""
