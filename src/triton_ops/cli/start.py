"""The start of the program: Ctrl-C is heard before anything else is imported."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from importlib import import_module

from triton_ops.exceptions import MissingDependencyError
from triton_ops.terminal import end_at_once_when_interrupted

_NO_PACKAGE = 3  # as of `ExitCode`, whose module imports Typer


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    codes: list[int] = []
    atexit.register(_end_with, codes)  # before all others, and so the last that is called
    end_at_once_when_interrupted()
    gc.disable()  # what imports leave behind lives until the end: 14 ms of `--help` went into looking for its garbage
    try:
        program = import_module("triton_ops.cli.app")
    except MissingDependencyError as error:
        sys.stderr.write(f"error: the command line needs {error.name}, which is not installed (hint: {error.hint})\n")
        sys.exit(_NO_PACKAGE)
    gc.freeze()  # later collections leave out what the imports have made
    gc.enable()
    codes.append(program.main(sys.argv[1:]))
    sys.exit(codes[0])


def _end_with(codes: list[int]) -> None:
    """End the process before Python takes itself apart, unless there is no code.

    Python would look for garbage, half a second where torch was imported, and Triton's library would list on stderr
    what of it is left.
    """
    # triton-lang/triton-cpu#278 shows such a list.
    if codes:
        with contextlib.suppress(OSError, ValueError):  # its reader has gone away, or it is closed
            sys.stdout.flush()
        os._exit(codes[0])
