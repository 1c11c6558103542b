"""The compile pool: configs are compiled in parallel, in separate processes, without a GPU."""
