"""The environment stays the same from test to test, so that a process that reads files waits for the next one."""

import pytest


@pytest.fixture(scope="session")
def _reports(_cache_folders):
    return str(next(_cache_folders))


@pytest.fixture(autouse=True)
def _same_environment(_own_environment, _reports, monkeypatch):
    """Reports are kept in one folder: each is of the path of a file, which is another in every test."""
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", _reports)
