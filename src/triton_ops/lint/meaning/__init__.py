"""The terms that a kernel computes: read from its TTIR, without its data and without a device."""
