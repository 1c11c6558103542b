"""The report as one HTML file, which works without a network."""
