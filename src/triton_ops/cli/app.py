"""The program `triton-ops`.

`triton-ops show` needs no search, no compiler and no timer; importing them for every command would take most of the
time that the quick commands take (benchmarks/launch/cli_start.py).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from triton_ops import __version__
from triton_ops._faces import lazy_face
from triton_ops.terminal import Verbose, end_at_once_when_interrupted, group, run, say

TYPE_CHECKING = False

if TYPE_CHECKING:
    from triton_ops.backend import doctor_command as doctor_command
    from triton_ops.benchmark import bench_command as bench_command
    from triton_ops.cli.inductor import inductor_command as inductor_command
    from triton_ops.cli.profile import profile_command as profile_command
    from triton_ops.cli.simulate import simulate_command as simulate_command
    from triton_ops.cli.tune import tune_command as tune_command
    from triton_ops.cli.why import why_command as why_command
    from triton_ops.compile_modes import advise_command as advise_command
    from triton_ops.compile_modes import compile_modes_command as compile_modes_command
    from triton_ops.lab import cliffs_command as cliffs_command
    from triton_ops.lab import compile_command as compile_command
    from triton_ops.lab import explain_command as explain_command
    from triton_ops.lab import rank_command as rank_command
    from triton_ops.lab import record_command as record_command
    from triton_ops.lab import replay_command as replay_command
    from triton_ops.lab import sensitivity_command as sensitivity_command
    from triton_ops.lab import spills_command as spills_command
    from triton_ops.lint import lint_command as lint_command
    from triton_ops.records import cache_command as cache_command
    from triton_ops.records import keys_command as keys_command
    from triton_ops.records import lock_command as lock_command
    from triton_ops.records import misses_command as misses_command
    from triton_ops.records import show_command as show_command
    from triton_ops.report import report_command as report_command
    from triton_ops.ship import exchange_command as exchange_command
    from triton_ops.ship import portfolio_command as portfolio_command
    from triton_ops.ship import verify_command as verify_command
    from triton_ops.timing import calibrate_command as calibrate_command


__getattr__, *_ = lazy_face(__spec__)


class ImportedLater(TyperCommand):
    """A command with its name and short help; its room has the rest."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the imported command, which takes the place of this one."""
        assert self.name is not None
        return imported(self.name).make_context(info_name, args, parent, **extra)


def imported(name: str) -> Any:
    """The imported command or group of commands, in the form of the parser on which Typer is built.

    Its room shows it as `NAME_command`: a function, or a `Typer`.
    """
    command = getattr(sys.modules[__name__], f"{name.replace('-', '_')}_command")
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
}  # `--help` lists them in this order


def _show_version(value: bool) -> None:
    if value:
        say(f"triton-ops {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_show_version)
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
    for name, short_help in _COMMANDS.items():
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
