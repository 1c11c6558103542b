"""Parts for tests and benchmarks: simulated devices."""
