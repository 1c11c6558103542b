"""Whether wrong results are found and right ones accepted."""
