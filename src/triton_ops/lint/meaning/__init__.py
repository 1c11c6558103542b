"""What a kernel computes, as terms: read from its TTIR, without its data and without a device."""
