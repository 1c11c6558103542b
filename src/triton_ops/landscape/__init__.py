"""What a measured space looks like: which tunable matters, where times jump, and at which shapes waves do."""
