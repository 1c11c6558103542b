"""Two callables side by side: which is faster, and how long one takes."""
