"""The record of a tune, and the result for the caller; both as values for JSON."""
