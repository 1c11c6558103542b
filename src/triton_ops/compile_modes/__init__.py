"""Which way to compile a model is the fastest: each in its own process, measured in turn, checked."""
