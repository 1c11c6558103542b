"""The command line `triton-ops`: one module for each command."""
