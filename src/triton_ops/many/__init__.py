"""Many problems tuned as one run: what is measured where and when, and what measures it."""
