"""Whether profiles of kernels of known kind get the right verdict."""
