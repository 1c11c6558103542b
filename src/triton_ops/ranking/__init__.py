"""The expected time of a config before it runs: a model of the device and the work."""
