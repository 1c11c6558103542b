"""What is tuned, and with how much effort: checked before any work."""
