"""The program `triton-ops`: its commands, its help and its exit codes.

`triton-ops show` needs no search, no compiler and no timer; importing them for every command would take most of the
time that the quick commands take (benchmarks/launch/cli_start.py).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from triton_ops import __version__
from triton_ops.cli.console import Verbose, messages, report, say, tell, with_open_streams
from triton_ops.cli.interrupts import (
    INTERRUPTED,
    end_at_once_when_interrupted,
    raised_when_interrupted,
    was_interrupted,
)


class ImportedLater(TyperCommand):
    """A command with its name and short help; the module of the same name in this package holds the rest.

    In the module's name and its function's, `_` stands for `-`.

    The module has either `app`, a group of commands, or a function `NAME_command`. It may also have a class `Command`,
    which replaces Typer's class for that function.
    """

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the imported command, which takes the place of this one."""
        assert self.name is not None
        return imported(self.name).make_context(info_name, args, parent, **extra)


def imported(name: str) -> Any:
    """The imported command or group of commands, in the form of the parser on which Typer is built."""
    python_name = name.replace("-", "_")
    module = import_module(f"triton_ops.cli.{_MODULES.get(python_name, python_name)}")
    if hasattr(module, "app"):
        return unconverted(typer.main.get_command(module.app))
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    single.command(name, cls=getattr(module, "Command", None))(getattr(module, f"{python_name}_command"))
    return unconverted(typer.main.get_command(single))


class _Unchanged:
    """The conversion for values to which the parser has already given the right type: it changes nothing."""

    @staticmethod
    def coerce(value: Any, **_context: Any) -> Any:
        """Return the value itself: a text, the boolean of a flag, or None."""
        return value


def unconverted(command: Any) -> Any:
    """The same command, changed so that pydantic does not convert its texts and flags.

    Typer 0.29 converts every value with an adapter of pydantic, even a text into a text. The import of pydantic would
    take half of the time of `triton-ops show`. Versions of Typer without pydantic ignore the attribute set here.
    """
    for inner in getattr(command, "commands", {}).values():
        unconverted(inner)
    for parameter in command.get_params(typer.Context(command)):  # with `--help`
        if getattr(getattr(parameter, "type_descriptor", None), "annotation", None) in (str, bool):
            parameter.get_runtime_param = _Unchanged
    return command


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
}  # each command is in the module of its name, or the one below; `--help` lists them in this order
_MODULES = {"sensitivity": "cliffs"}


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
