"""The program `triton-ops`: its commands, its help and its exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.core import TyperGroup

from triton_ops import __version__
from triton_ops.cli.console import Verbose, messages, report, say, tell, with_open_streams
from triton_ops.cli.interrupts import (
    INTERRUPTED,
    end_at_once_when_interrupted,
    raised_when_interrupted,
    was_interrupted,
)
from triton_ops.cli.lazy_commands import ImportedLater, unconverted

_EPILOG = """\b
Exit codes:
  0    done
  1    no configuration ran
  2    bad input
  3    no such device or package
  4    cache, lockfile or run log cannot be used
  5    a check found something
  70   internal error
  130  interrupted; the same command goes on"""

app = typer.Typer(
    name="triton-ops",
    help="Autotune Triton kernels and any callable: measured, verified, remembered.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_COMMANDS = {
    "tune": "Find the fastest config of TARGET, or recall it.",
    "show": "Show what is known: winners, gains, devices.",
    "bench": "Find out whether A is faster than B.",
    "compile-modes": "Find the best way to torch.compile a model.",
    "advise": "Say what is worth doing about a model's speed.",
    "inductor": "Options, caches, logs and graphs of torch's compiler.",
    "compile": "Show what every config takes, without a GPU.",
    "record": "Measure a whole space, to judge searches on it.",
    "replay": "Judge a search on recorded spaces.",
    "rank": "Order a space by expected times, without a GPU.",
    "explain": "Say what limits a config on a device, and why.",
    "simulate": "Rank configs of a textbook workload, and say why.",
    "spills": "Say what a config spills, and try cures.",
    "profile": "Say what limits kernels, from a profile.",
    "cliffs": "Say at which shapes a wave is added.",
    "sensitivity": "Say which tunables matter, from a recording.",
    "report": "Show what runs say: text, Markdown, or a page.",
    "portfolio": "Choose few configs for many problems of a kernel.",
    "calibrate": "Measure this GPU for the model.",
    "lint": "Find pitfalls in kernels, without a GPU.",
    "doctor": "Say what works here, what does not, and why.",
    "keys": "Say which parts of a key matter, from records.",
    "lock": "Pin winners in a file for git, or check it.",
    "verify": "Check a lockfile, and measure it again.",
    "exchange": "Carry tables from and to other engines.",
    "why": "Say which config a call would run, and why.",
    "misses": "List the problems that nothing answered.",
    "cache": "List, remove, locate, export and import records.",
}  # each command is in the module of its name; `--help` lists them in this order


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"triton-ops {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
    verbose: Verbose = False,
) -> None:
    """The options of the program itself; the help text is given to `app`."""


def program() -> TyperGroup:
    """The whole command line. A command's module is imported when the command is called."""
    group = unconverted(typer.main.get_command(app))
    assert isinstance(group, TyperGroup)
    for name, short_help in _COMMANDS.items():
        group.add_command(ImportedLater(name=name, short_help=short_help))
    return group


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; without `arguments` end the process with that code."""
    with_open_streams()
    if arguments is None:
        end_at_once_when_interrupted()
    with messages():
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
    if arguments is None:
        sys.exit(code)
    return code


def _run(arguments: list[str]) -> int:
    try:
        with raised_when_interrupted():
            commands = program()
            with commands.make_context("triton-ops", arguments) as context:  # its `main` would end on Ctrl-C in silence
                done = commands.invoke(context)
        if was_interrupted() and done != INTERRUPTED:  # a candidate has caught it, and what ran it went on
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
            return report(error)
        error.show()  # type: ignore[attr-defined]
        return 2
    return done if isinstance(done, int) else 0
