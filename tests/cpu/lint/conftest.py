"""The environment stays the same from test to test, so that a process that reads files waits for the next one."""

import pytest


@pytest.fixture(scope="session")
def _one_folder(_cache_folders):
    return str(next(_cache_folders))


@pytest.fixture(autouse=True)
def _same_environment(_own_environment, _one_folder, monkeypatch):
    """The folder of records is the same in every test."""
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", _one_folder)
