"""What the compiler made of a config, and what to expect of it."""
