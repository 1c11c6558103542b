"""What many problems cost as one run."""
