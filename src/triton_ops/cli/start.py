"""The start of the program: Ctrl-C is heard before anything else is imported."""

from __future__ import annotations

import gc
from importlib import import_module

from triton_ops.terminal import end_at_once_when_interrupted


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    end_at_once_when_interrupted()
    gc.disable()  # what imports leave behind lives until the end: 14 ms of `--help` went into looking for its garbage
    program = import_module("triton_ops.cli.app")
    gc.freeze()
    gc.enable()
    program.main()
