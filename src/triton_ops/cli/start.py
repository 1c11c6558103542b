"""The start of the program: Ctrl-C is heard before anything else is imported."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from triton_ops.exceptions import MissingDependencyError
from triton_ops.terminal import end_at_once_when_interrupted

_NO_PACKAGE = 3  # as of `ExitCode`, whose module imports Typer


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    end_at_once_when_interrupted()
    gc.disable()  # what imports leave behind lives until the end: 14 ms of `--help` went into looking for its garbage
    try:
        program = import_module("triton_ops.cli.app")
    except MissingDependencyError as error:
        sys.stderr.write(f"error: the command line needs {error.name}, which is not installed (hint: {error.hint})\n")
        sys.exit(_NO_PACKAGE)
    gc.freeze()
    gc.enable()
    code = program.main(sys.argv[1:])
    gc.freeze()  # Python looks for garbage again when it ends: half a second where torch was imported
    sys.exit(code)
