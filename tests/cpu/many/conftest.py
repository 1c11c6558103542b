"""What tests of several executors in one process share."""

import logging

import pytest


@pytest.fixture
def package_log():
    """The package's log, which an executor of another process takes over, is as it was after the test."""
    log = logging.getLogger("triton_ops")
    before = log.level, log.propagate, list(log.handlers)
    yield
    log.setLevel(before[0])
    log.propagate, log.handlers[:] = before[1], before[2]
