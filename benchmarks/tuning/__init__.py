"""How long a tune takes, and how good its winner is."""
