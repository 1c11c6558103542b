"""`compare` says which of two callables is faster, and `time_ms` how long one takes."""
