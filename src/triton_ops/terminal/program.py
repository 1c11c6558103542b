"""The program: its commands by sections, imported when they are called, and completion.

Errors of a command become lines on stderr, exit codes, and with `--json` documents.
"""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import takewhile
from types import SimpleNamespace
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand, TyperGroup

from triton_ops import settings
from triton_ops._faces import imported as imported_from
from triton_ops.base import cached_property
from triton_ops.exceptions import (
    CacheError,
    DeviceError,
    MissingDependencyError,
    NotLoadedError,
    RunLogError,
    TritonKernelError,
    TuningFailedError,
    UntunedError,
)
from triton_ops.terminal.console import ExitCode, State, open_streams, paragraph, say, tell, tell_failures, tell_trace
from triton_ops.terminal.interrupts import INTERRUPTED, raised_when_interrupted, was_interrupted
from triton_ops.terminal.option_types import SharedJson, Verbose, as_typed, option

_BARE: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}
_HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
COMPLETE = "__complete"  # the words so far, the last of which is begun; candidates are printed
_ROW = re.compile(r" {0,4}\S+( \S+)*  +| *")  # a name with what stands right of it, or the indent of a text
_ONE_LINE = 1 << 20  # columns, more than any text has
_UNITS = {"ms": 1e-3, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
_DURATION = re.compile(rf"(\d+\.?\d*) ?({'|'.join(_UNITS)})")
NO_FILES = "no files"  # the last line, where the shell is not to propose names of files
_Place: TypeAlias = tuple[str, str, str]  # a room or another package, its function, and the short help
_COMPLETION = ("terminal", "completion_command", "Print what makes a shell complete.")
# Typer 0.26 and later have a copy of click in a private module: fastapi/typer#1774.
_USAGE_ERROR = typer.BadParameter.__mro__[1]
_CODES = {
    TuningFailedError: ExitCode.NONE_RAN, DeviceError: ExitCode.NO_DEVICE, MissingDependencyError: ExitCode.NO_DEVICE,
    CacheError: ExitCode.NO_RECORD, RunLogError: ExitCode.NO_RECORD, UntunedError: ExitCode.NO_RECORD,
    NotLoadedError: ExitCode.NOT_LOADED, TritonKernelError: ExitCode.BAD_INPUT, _USAGE_ERROR: ExitCode.BAD_INPUT,
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A program of commands, each imported when it is called.

    A command's path has its words, such as `cache show`. A path that is also the beginning of others has them as its
    views: `explain TARGET` beside `explain rank TARGET`. The texts of groups are those of paths that are only
    beginnings. By `words` a room and its function have the values of a metavar, for completion.
    """

    name: str
    help: str
    version: str
    epilog: str
    sections: Mapping[str, Mapping[str, _Place]]
    groups: Mapping[str, str]
    words: Mapping[str, tuple[str, str]]

    def run(self, arguments: Sequence[str]) -> int:
        """Run a command by the words after the program's name, write what it says, and return the exit code."""
        if arguments[:1] == [COMPLETE]:
            say(*self.candidates(arguments[1:]))
            return 0
        open_streams()
        with _messages(), State.of_command():
            return self._run(arguments)

    def _run(self, arguments: Sequence[str]) -> int:
        try:
            with raised_when_interrupted(__file__):
                # Its `main` would end on Ctrl-C in silence.
                with self.root.make_context(self.name, list(arguments), obj=self.version) as context:
                    facts = self.root.invoke(context)
                code = 0 if facts is None else facts.written()
            if was_interrupted() and code != INTERRUPTED:  # a candidate has caught it, and what ran it went on
                raise KeyboardInterrupt
        except typer.Exit as end:
            return end.exit_code
        except (KeyboardInterrupt, typer.Abort) as end:
            tell(str(end) or "interrupted")
            return INTERRUPTED
        except Exception as error:  # noqa: BLE001 - the outermost frame: every error becomes one line and a code
            if was_interrupted():
                tell("interrupted")
                return INTERRUPTED
            # By its name, since the class is private to Typer, too.
            if type(error).__name__ != "NoArgsIsHelpError":
                if isinstance(error, _USAGE_ERROR):  # the parser may not have come to `--json`
                    State.as_json = State.as_json or "--json" in takewhile("--".__ne__, arguments)
                return _report(error)
            error.show()  # type: ignore[attr-defined]
            return ExitCode.BAD_INPUT
        return code

    @cached_property
    def root(self) -> TyperGroup:
        """All commands, in the form of the parser under Typer."""
        root = typer.main.get_command(self._app())
        assert isinstance(root, _Sections)
        places = {path: place for section in self.sections.values() for path, place in section.items()}
        root.sections = {name: list(dict.fromkeys(path.split()[0] for path in section))
                         for name, section in self.sections.items()}  # fmt: skip
        absent = [place for place in dict.fromkeys(place for place, *_ in places.values()) if not _is_here(place)]
        for path, place in places.items():
            self._add(root, path, _ImportedLater(path, place))
            root.commands[path.split()[0]].hidden = place[0] in absent
        if absent:
            root.epilog = f"{self.epilog}\n\nMore commands come with {', '.join(absent)}."
        self._add(root, "completion", _ImportedLater("completion", _COMPLETION, hidden=True))
        _unconverted(root)
        return root

    def _app(self) -> typer.Typer:
        app = typer.Typer(
            name=self.name, help=self.help, epilog=self.epilog, no_args_is_help=True, cls=_Sections, **_BARE
        )

        @app.callback()
        def _options(
            version: Annotated[
                bool, option("--version", "Print the version and exit.", is_eager=True, callback=_show_version)
            ] = False,
            verbose: Verbose = False,  # its callback has acted
        ) -> None:
            """The options of the program itself; the help text is given to the app."""

        return app

    def _add(self, root: TyperGroup, path: str, command: _ImportedLater) -> None:
        """Put a command at its path, below groups, or below the command whose view it is."""
        *above, _ = path.split()
        group: TyperGroup = root
        for depth, word in enumerate(above, 1):
            beginning = " ".join(above[:depth])
            inner = group.commands.get(word)
            if inner is None:
                text = self.groups[beginning]
                inner = TyperGroup(name=word, help=text, no_args_is_help=True, rich_markup_mode=None)
                group.add_command(_unconverted(inner))
            elif not isinstance(inner, TyperGroup):
                inner = _Views(inner)
                group.add_command(_unconverted(inner))
            group = inner
        group.add_command(command)

    def candidates(self, words: Sequence[str]) -> list[str]:
        """The words that can stand in place of the last one, each with its help after a tab."""
        *before, begun = words or [""]
        group, command, before = self._reached(before)
        candidates: dict[str, str] = {}
        takes_files = False
        if group is not None and not begun.startswith("-") and not before:
            candidates |= {
                name: each.short_help or each.help or "" for name, each in group.commands.items() if not each.hidden
            }
        if command is not None:
            parameters = imported(command).params
            before_it = [one for one in parameters if set(before[-1:]) & set(one.opts)]
            value = next((one for one in before_it if not getattr(one, "is_flag", True)), None)  # its value comes next
            if value is None and begun.startswith("-"):
                candidates |= {name: one.help or "" for one in parameters if one.param_type_name == "option"
                               and not one.hidden for name in (*one.opts, *one.secondary_opts)}  # fmt: skip
            else:
                value = value or next((one for one in parameters if one.param_type_name == "argument"), None)
                if value is not None and value.metavar in self.words:
                    candidates |= dict.fromkeys(_named(*self.words[value.metavar])(), "")
                takes_files = value is not None
        lines = [f"{name}\t{text}".rstrip("\t") for name, text in candidates.items() if name.startswith(begun)]
        return lines if takes_files else [*lines, NO_FILES]

    def _reached(self, words: Sequence[str]) -> tuple[TyperGroup | None, _ImportedLater | None, list[str]]:
        """The group and the command that words lead to, and the words that are left for the command."""
        at: Any = self.root
        rest = list(words)
        while isinstance(at, TyperGroup) and rest and rest[0] in at.commands:
            at = at.commands[rest.pop(0)]
        if isinstance(at, _ImportedLater):
            return None, at, rest
        return at, at.itself if isinstance(at, _Views) else None, rest


@contextlib.contextmanager
def _messages() -> Iterator[None]:
    log, handler = logging.getLogger("triton_ops"), _ToStderr()
    before = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before


def _exit_code(error: BaseException) -> int:
    if _folder_is_gone(error):
        return ExitCode.BAD_INPUT
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), ExitCode.INTERNAL_ERROR)


def _folder_is_gone(error: BaseException) -> bool:
    """Tell whether a relative path failed since the folder in which the command was called was deleted."""
    return isinstance(error, FileNotFoundError) and settings.current_folder() is None


def _report(error: Exception) -> int:
    """Write an error as one line on stderr, after `-v` with its trace, and as a document; return the exit code."""
    code, told = _exit_code(error), _told(error)
    if isinstance(error, TuningFailedError):
        failures = zip(error.failures, error.traces, strict=True)
        tell_failures(
            (" ".join(f"{name}={value}" for name, value in config.items()) or "(empty)", reason, trace)
            for (config, reason), trace in failures
        )
    elif State.verbose and not isinstance(error, _USAGE_ERROR):
        tell_trace("".join(traceback.format_exception(error)))
    tell(str(told), "error", "red")
    if State.as_json:
        with contextlib.suppress(OSError):  # stdout may be what failed
            _write_document(error, told, code)
    return code


def _write_document(error: Exception, told: TritonKernelError, code: int) -> None:
    from triton_ops.terminal.facts import Facts  # here, since `--help` needs none of its imports

    failures = error.failures if isinstance(error, TuningFailedError) else []
    ended = [(config, *reason.partition(": ")) for config, reason in failures]
    Facts("error", {
        "error": "UsageError" if isinstance(error, _USAGE_ERROR) else type(error).__name__,
        "message": told.message, "hint": told.hint, "exit_code": code,
        "failures": [{"config": config, "status": status, "error": text} for config, status, _, text in ended],
    }).written()  # fmt: skip


def _told(error: Exception) -> TritonKernelError:
    """The error with the message and the hint that are told of it."""
    if isinstance(error, _USAGE_ERROR):
        context = getattr(error, "ctx", None)
        message = str(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
        return TritonKernelError(message, hint=f"{context.command_path if context else 'triton-ops'} --help")
    if _folder_is_gone(error):
        message = "the current folder was deleted, and a relative path begins there"
        return TritonKernelError(message, hint="go to another folder")
    if isinstance(error, MissingDependencyError) and error.name is not None:
        message = f"this command needs {error.name}, which is not installed"
        return TritonKernelError(message, hint=error.hint)
    if isinstance(error, TritonKernelError):
        return error
    return TritonKernelError(f"unexpected {type(error).__name__}: {error}", hint="-v shows the trace")


class _ToStderr(logging.Handler):
    """A log handler that writes each message as one line, `warning: …`."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(record.getMessage(), record.levelname.lower(), "yellow")


def _show_version(context: typer.Context, value: bool) -> None:
    if value:
        say(f"{context.info_name} {context.obj}")
        raise typer.Exit


class _ImportedLater(TyperCommand):
    """A command with its name and short help; its room has the rest."""

    def __init__(self, path: str, place: _Place, *, hidden: bool = False) -> None:
        super().__init__(name=path.split()[-1], short_help=place[2], hidden=hidden)
        self.place = place

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the imported command, which takes the place of this one."""
        return imported(self).make_context(info_name, args, parent, **extra)


class _Views(TyperGroup):
    """A command with views of its subject: a first word that names one leads to it, else the command itself is run."""

    def __init__(self, itself: Any) -> None:
        super().__init__(name=itself.name, short_help=itself.short_help, rich_markup_mode=None)
        self.itself = itself

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the view that is named, below that of this group, or that of the command itself."""
        if args and args[0] in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        command = imported(self.itself)
        texts = {name: each.short_help for name, each in self.commands.items() if not each.hidden}
        width = max(map(len, texts))
        views = [f"  {name.ljust(width)}  {text}" for name, text in texts.items()]
        command.epilog = "\n".join(["\b", "Views, each with its own --help:", *views])
        return command.make_context(info_name, args, parent, **extra)


class _Help(typer.Context.formatter_class):  # type: ignore[misc, valid-type]
    """The text of `--help`, wrapped as other texts are, so that no line ends within a word with hyphens."""

    width: int

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._columns, self.width = self.width, _ONE_LINE

    def getvalue(self) -> str:
        """The text; what stands right of a name goes on there."""
        heads = ((_ROW.match(line)[0], line) for line in super().getvalue().splitlines())  # type: ignore[index]
        return "".join(f"{one}\n" for head, line in heads for one in paragraph(head, line[len(head) :], self._columns))


class _Context(typer.Context):
    formatter_class = _Help


class _Sections(TyperGroup):
    """The program's commands, listed by sections."""

    sections: Mapping[str, Sequence[str]] = {}

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - its signature in the parser
        """Write a list of commands for each section."""
        width = max(len(name) for names in self.sections.values() for name in names)
        for title, names in self.sections.items():
            with formatter.section(title):
                rows = [(name.ljust(width), self.commands[name].short_help or self.commands[name].help or "")
                        for name in names if not self.commands[name].hidden]  # fmt: skip
                formatter.write_dl(rows)


def imported(command: _ImportedLater) -> Any:
    """The command that another one stands for, in the form of the parser under Typer, or of a function's own."""
    function, single = _named(*command.place[:2]), typer.Typer(**_BARE)
    single.command(command.name, cls=getattr(function, "parser", TyperCommand))(as_typed(function))
    whole = _unconverted(typer.main.get_command(single))
    whole.params += [one for one in _shared() if not any(set(one.opts) & set(own.opts) for own in whole.params)]
    return whole


def _is_here(place: str) -> bool:
    """Tell whether a room, or another package, is installed."""
    return not place.startswith("triton_ops_") or find_spec(place) is not None


def _named(place: str, name: str) -> Any:
    """What a room calls by this name, or another package: the module that an entry point names for it, else itself."""
    module = f"triton_ops.{place}"
    if place.startswith("triton_ops_"):
        entries = import_module("importlib.metadata").entry_points(group="triton_ops.commands", name=place)
        module = next((entry.module for entry in entries), place)
    first, _, rest = name.partition(".")
    value = imported_from(module, first, "this command")
    return getattr(value, rest) if rest else value


def _shared() -> Iterator[Any]:
    """The options that every command has, as its last ones."""

    def options(as_json: SharedJson = False, verbose: Verbose = False) -> None:
        """Options whose callbacks act."""

    single = typer.Typer(**_BARE)
    single.command()(options)
    yield from _unconverted(typer.main.get_command(single)).params


def _unconverted(command: Any) -> Any:
    """The same command, changed so that pydantic does not convert its texts and flags.

    Typer 0.29 converts every value with an adapter of pydantic, even a text into a text. The import of pydantic would
    take half of the time of `triton-ops cache show`, and its errors do not name what is no number. Versions of Typer
    without pydantic ignore the attribute set here.
    """
    # fastapi/typer#1831 describes the change.
    command.context_class, command.context_settings = _Context, _HELP
    for parameter in command.get_params(_Context(command, **_HELP)):  # with `--help`
        kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        if kind in (str, bool):
            parameter.get_runtime_param = lambda: SimpleNamespace(coerce=lambda value, **_context: value)
        elif kind in (int, float):
            number = SimpleNamespace(coerce=partial(_number, kind, parameter.get_runtime_param))
            parameter.get_runtime_param = lambda number=number: number
    return command


def _number(kind: type, typers: Callable[[], Any], value: Any, *, param: Any, ctx: Any) -> Any:
    """The number that a text says, in Typer's limits; a usage error with the text, and the seconds that are meant."""
    try:
        return typers().coerce(kind(value) if isinstance(value, str) else value, param=param, ctx=ctx)
    except ValueError as error:
        duration = _DURATION.fullmatch(value)
        meant = f"; in seconds {float(duration[1]) * _UNITS[duration[2]]:g}" if duration else ""
        number = "whole number" if kind is int else "number"
        raise typer.BadParameter(f"{value!r} is not a {number}{meant}", ctx=ctx, param=param) from error
