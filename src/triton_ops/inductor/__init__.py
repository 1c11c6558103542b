"""What is known of torch's compiler Inductor: its modes, options, logs, caches and captured graphs."""
