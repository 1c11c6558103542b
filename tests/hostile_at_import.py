"""A candidate that raises as soon as it is imported."""

raise RuntimeError("planted")
