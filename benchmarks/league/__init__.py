"""A league of tuners on recorded spaces."""
