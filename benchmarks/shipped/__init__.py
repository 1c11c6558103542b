"""How fast the shipped kernels are, and which forms and winners are shipped."""
