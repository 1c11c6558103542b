"""Facts about torch's compiler Inductor: its modes, options, logs, caches and captured graphs."""
