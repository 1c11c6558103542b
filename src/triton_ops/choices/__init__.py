"""Implementations of one operation, and the choice among them by measurement."""
