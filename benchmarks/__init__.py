"""Scripts that measure, in a folder for each question; `benchmarks/results` holds what they found."""
