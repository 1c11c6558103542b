"""Parts for tests and benchmarks: simulated devices, and shares of successes with their uncertainty."""
