"""The start of the program: Ctrl-C is heard before anything else is imported."""

from __future__ import annotations

from importlib import import_module

from triton_ops.terminal import end_at_once_when_interrupted


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    end_at_once_when_interrupted()
    import_module("triton_ops.cli.app").main()
