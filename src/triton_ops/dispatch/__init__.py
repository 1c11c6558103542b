"""What runs when a kernel is called: the ladder from an explicit config to the default, and a cheap launch."""
