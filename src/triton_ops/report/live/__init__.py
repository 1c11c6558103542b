"""The report of a run that goes on, served to this machine alone by a process that ends with the tune."""
