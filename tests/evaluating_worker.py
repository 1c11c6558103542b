"""The program of a worker that answers expressions with their values."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path

from triton_ops.processes import Child, import_heavy, strays

MODULES = (importlib, logging, os, signal, sys, tempfile, threading)
NAMES = {each.__name__: each for each in (*MODULES, import_heavy, strays)}


def open_files():
    """The files that have names and are open here, but for this worker's own folder."""
    files = {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}
    return sorted(file for file in files if not file.startswith(("/proc", tempfile.gettempdir())))


def main():
    """Answer until the pipe is closed, what the `Workers` of the lint ask from a copy.

    An expression of the value `...` has answered by itself, or not at all.
    """
    child = Child()

    def value_of(text):
        return eval(text, {**NAMES, "open_files": open_files, "child": child})

    if child.await_task():
        for asked in child.messages():
            if not isinstance(asked, str):
                child.send_from_copy(partial(asked.answered_by, value_of))
            elif (value := value_of(asked)) is not ...:
                child.send(value)
