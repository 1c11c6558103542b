"""What every test gets: a cache folder of its own, no colours, and a skip with a reason where there is no GPU."""

import os
import random

import pytest
from hypothesis import settings

from tests.strategies import EXAMPLES

# No deadline: two busy cores make single examples slow. Repeatable where `CI` is set, searching elsewhere.
settings.register_profile("house", deadline=None, derandomize="CI" in os.environ, max_examples=EXAMPLES)
settings.register_profile("thorough", deadline=None, max_examples=10 * EXAMPLES)  # --hypothesis-profile=thorough
settings.load_profile("house")


@pytest.fixture(autouse=True)
def _own_environment(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path_factory.mktemp("cache", numbered=True)))
    monkeypatch.delenv("TRITON_OPS_EFFORT", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")


def pytest_addoption(parser):
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew instead of comparing")


def pytest_collection_modifyitems(config, items):
    if (seed := config.getoption("--shuffle")) is not None:
        random.Random(seed).shuffle(items)


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") is None:
        return
    from triton_ops.hardware import gpu_missing  # which may import torch: only when a GPU test is about to run

    if reason := gpu_missing():
        pytest.skip(reason)
