"""What tests of files and folders share."""

from pathlib import Path

import pytest

_DESCRIPTORS = Path("/proc/self/fd")


@pytest.fixture
def none_left_open():
    """Fails a test that leaves a descriptor open."""
    before = len([*_DESCRIPTORS.iterdir()]) if _DESCRIPTORS.is_dir() else 0
    yield
    assert before == (len([*_DESCRIPTORS.iterdir()]) if _DESCRIPTORS.is_dir() else 0)
