"""Checking and timing one config, in this process or in a worker process."""
