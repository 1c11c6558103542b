"""What to expect of a task's configs before any has run: declared work, or what the front end reads of the kernel."""
