"""What the processes that run tests side by side have to compile, each begins with at another file.

All of them import all files of tests. pytest rewrites each file's assertions and keeps the bytecode, which takes three
seconds of a CPU for all files. Where there is none yet, as in a fresh checkout, processes that go through the files in
the same order do all of that at the same time, each for itself.
"""

import contextlib
import importlib
import os
from pathlib import Path

import pytest


def place_among_processes():
    """The number of this process, and how many there are; 0 of 1 where tests do not run side by side."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def turned(values, number, count):
    """The values from where the part of the process `number` of `count` begins, then those before."""
    begin = len(values) * number // count
    return [*values[begin:], *values[:begin]]


def import_apart(config):
    """Import the files of tests in the folders that are asked for, in an order of this process's own.

    A file that cannot be imported, or that skips itself, is left to pytest, which imports it again and says so.
    """
    number, count = place_among_processes()
    if count == 1:
        return
    left_out = [Path(each).absolute() for each in config.getoption("ignore") or ()]
    folders = [path for path in map(Path, config.args) if path.is_dir()]
    files = sorted(file.absolute() for folder in folders for file in folder.rglob("test_*.py"))
    own_files = [file for file in files if not any(file.is_relative_to(each) for each in left_out)]
    for file in turned(own_files, number, count):
        name = ".".join(file.relative_to(config.rootpath).with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)
