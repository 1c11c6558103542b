"""The program `triton-ops`.

`triton-ops show` needs no search, no compiler and no timer; importing them for every command would take most of the
time that the quick commands take (benchmarks/launch/cli_start.py).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from triton_ops import __version__
from triton_ops.terminal import Verbose, end_at_once_when_interrupted, group, option, run, say


class ImportedLater(TyperCommand):
    """A command with its name and short help; its room has the rest."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the imported command, which takes the place of this one."""
        assert self.name is not None
        return imported(self.name).make_context(info_name, args, parent, **extra)


def imported(name: str) -> Any:
    """The command, or group, that its place has as `NAME_command`, in the form of the parser under Typer."""
    place, _ = _COMMANDS[name]
    command = getattr(import_module(f"triton_ops.{place}"), f"{name.replace('-', '_')}_command")
    if not isinstance(command, typer.Typer):
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        single.command(name)(command)
        command = single
    return _with_verbose(unconverted(typer.main.get_command(command)))


def _with_verbose(command: Any) -> Any:
    """The same command, or the commands of the same group, with the program's own `-v` as the last option."""
    commands = getattr(command, "commands", {}).values()
    if not commands:
        command.params.append(next(parameter for parameter in _root().params if parameter.name == "verbose"))
    for inner in commands:
        _with_verbose(inner)
    return command


class _Unchanged:
    """The conversion for values to which the parser has already given the right type: it changes nothing."""

    @staticmethod
    def coerce(value: Any, **_context: Any) -> Any:
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

app = group("Autotune Triton kernels and any callable: measured, verified, remembered.", "triton-ops", _EPILOG)
_COMMANDS = {
    "tune": ("cli.tune", "Find the fastest config of TARGET, or recall it."),
    "show": ("records", "Show what is known: winners, gains, devices."),
    "bench": ("benchmark", "Find out whether A is faster than B."),
    "compile-modes": ("compile_modes", "Find the best way to torch.compile a model."),
    "advise": ("compile_modes", "Say what is worth doing about a model's speed."),
    "inductor": ("cli.inductor", "Options, caches, logs and graphs of torch's compiler."),
    "compile": ("lab", "Show what every config takes, without a GPU."),
    "record": ("lab", "Measure a whole space, to judge searches on it."),
    "replay": ("lab", "Judge a search on recorded spaces."),
    "rank": ("lab", "Order a space by expected times, without a GPU."),
    "explain": ("lab", "Say what limits a config on a device, and why."),
    "simulate": ("lab", "Rank configs of a textbook workload, and say why."),
    "spills": ("lab", "Say what a config spills, and try cures."),
    "profile": ("cli.profile", "Say what limits kernels, from a profile."),
    "cliffs": ("lab", "Say at which shapes a wave is added."),
    "sensitivity": ("lab", "Say which tunables matter, from a recording."),
    "report": ("report", "Show what runs say: text, Markdown, or a page."),
    "portfolio": ("ship", "Choose few configs for many problems of a kernel."),
    "calibrate": ("timing", "Measure this GPU for the model."),
    "lint": ("lint", "Find pitfalls in kernels, without a GPU."),
    "doctor": ("backend", "Say what works here, what does not, and why."),
    "keys": ("records", "Say which parts of a key matter, from records."),
    "lock": ("records", "Pin winners in a file for git, or check it."),
    "verify": ("ship", "Check a lockfile, and measure it again."),
    "exchange": ("ship", "Carry tables from and to other engines."),
    "why": ("cli.why", "Say which config a call would run, and why."),
    "misses": ("records", "List the problems that nothing answered."),
    "cache": ("records", "List, remove, locate, export and import records."),
}  # the place of each below `triton_ops`, and its short help; `--help` lists them in this order


def _show_version(value: bool) -> None:
    if value:
        say(f"triton-ops {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, option("--version", "Print the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
    verbose: Verbose = False,  # its callback has acted
) -> None:
    """The options of the program itself; the help text is given to `app`."""


@cache
def _root() -> TyperGroup:
    commands = unconverted(typer.main.get_command(app))
    assert isinstance(commands, TyperGroup)
    return commands


def program() -> TyperGroup:
    """The whole command line. A command's room is imported when the command is called."""
    commands = _root()
    for name, (_, short_help) in _COMMANDS.items():
        commands.add_command(ImportedLater(name=name, short_help=short_help))
    return commands


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; without `arguments` end the process with that code."""
    if arguments is None:
        end_at_once_when_interrupted()
    code = run(program, sys.argv[1:] if arguments is None else arguments, __version__)
    if arguments is None:
        sys.exit(code)
    return code
