"""Scripts that measure; `benchmarks/results` holds what they found."""
