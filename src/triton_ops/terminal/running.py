"""The run of a command, from its words to its exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import typer
from typer.core import TyperGroup

from triton_ops.terminal.console import tell, with_open_streams
from triton_ops.terminal.exit_codes import messages, report_error
from triton_ops.terminal.interrupts import INTERRUPTED, raised_when_interrupted, was_interrupted


def run(program: Callable[[], TyperGroup], arguments: Sequence[str], version: str) -> int:
    """Run one of the program's commands, and return the exit code.

    Args:
        program: Makes the program's commands.
        arguments: The words after the program's name.
        version: The program's version, for commands that tell it.
    """
    with_open_streams()
    with messages():
        return _run(program, list(arguments), version)


def _run(program: Callable[[], TyperGroup], arguments: list[str], version: str) -> int:
    try:
        with raised_when_interrupted(__file__):
            commands = program()
            # Its `main` would end on Ctrl-C in silence.
            with commands.make_context("triton-ops", arguments, obj=version) as context:
                code = commands.invoke(context)
        if was_interrupted() and code != INTERRUPTED:  # a candidate has caught it, and what ran it went on
            raise KeyboardInterrupt
    except typer.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, typer.Abort):
        tell("interrupted")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame: every error becomes one line and a code
        if was_interrupted():
            tell("interrupted")
            return INTERRUPTED
        if type(error).__name__ != "NoArgsIsHelpError":
            return report_error(error)
        error.show()  # type: ignore[attr-defined]
        return 2
    return code if isinstance(code, int) else 0
