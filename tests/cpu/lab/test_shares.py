"""Shares of successes with their interval, against values from tables."""

import pytest

from tests.simulated_device import wilson


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    [(20, 20, 0.8389, 1.0), (73, 73, 0.95, 1.0), (5, 10, 0.2366, 0.7634), (0, 10, 0.0, 0.2775), (1, 1, 0.2065, 1.0)],
)
def test_the_interval_is_that_of_wilson(successes, count, low, high):
    result = wilson(successes, count)
    assert result.centre == successes / count
    assert (result.low, result.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@pytest.mark.parametrize(("successes", "count"), [(0, 0), (-1, 3), (4, 3)])
def test_more_successes_than_tries_are_refused(successes, count):
    with pytest.raises(ValueError, match="is no share"):
        wilson(successes, count)
