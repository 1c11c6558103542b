"""Processes that this package starts, and how what they need of this one is found again there."""
