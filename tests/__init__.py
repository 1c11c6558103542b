"""Tests, and what they share; they find the distribution of `serving` in every process that imports them."""

from tests.distributions import declare_serving

_METADATA = declare_serving()
