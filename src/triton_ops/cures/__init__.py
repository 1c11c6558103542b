"""What a config spills to local memory, and which changes of the config cure it."""
