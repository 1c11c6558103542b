"""What runs leave behind, and what later runs learn from it."""
