"""The rules of the lint, one pitfall each."""
