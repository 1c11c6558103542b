"""What torch's compiler Inductor says of itself: its modes, options, logs, caches and captured graphs."""
