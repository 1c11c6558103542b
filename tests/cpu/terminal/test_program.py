"""A program of commands: which one its words lead to, what completes them, and how errors end."""

from __future__ import annotations

import json
import logging
import sys
from types import ModuleType
from typing import Annotated

import pytest
import typer
from website.schemas import fault

from triton_ops import exceptions
from triton_ops.terminal import Facts, Program, option
from triton_ops.terminal.console import State
from triton_ops.terminal.program import COMPLETE, NO_FILES, _exit_code

ROOM = "room_of_a_test"


def add(
    target: Annotated[str, option("TARGET", "What is added.")],
    times: Annotated[int, option("--times", "How often.", "N", min=1)] = 1,
    share: Annotated[float, option("--share", "How much.", "S")] = 1.0,
    quiet: Annotated[bool, option("--quiet -q", "Say less.")] = False,
) -> Facts:
    """Add a target, and say how often."""
    return Facts("added", {"target": target, "times": times, "share": share, "quiet": quiet}).text(f"{target} {times}")


def show() -> Facts:
    """Show what there is."""
    return Facts("shown").text("all")


def rank(target: Annotated[str, option("TARGET", "What is ranked.")]) -> Facts:
    """Rank a target."""
    return Facts("ranked").text(f"rank {target}")


def fail(kind: Annotated[str, option("KIND", "Which error.")]) -> Facts:
    """Fail as asked."""
    logging.getLogger("triton_ops").warning("it will fail")
    if kind == "exit":
        raise typer.Exit(7)
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "missing":
        raise exceptions.MissingDependencyError.absent("rich", "a progress bar")
    if kind == "all":
        raise exceptions.TuningFailedError(
            "none ran", failures=[({"BM": 64}, "resources: it spills")], traces=["line 1"]
        )
    raise getattr(exceptions, kind, ValueError)("it failed")


@pytest.fixture
def program(monkeypatch):
    room = ModuleType(f"triton_ops.{ROOM}")
    vars(room).update(add=add, show=show, rank=rank, fail=fail, targets=lambda: ["matmul", "softmax"])
    monkeypatch.setitem(sys.modules, f"triton_ops.{ROOM}", room)
    monkeypatch.setattr(State, "verbose", False)
    monkeypatch.setattr(State, "as_json", False)
    return Program(
        name="ops", help="Does this and that.", version="1.2", epilog="That is all.",
        sections={
            "Work": {"add": (ROOM, "add", "Add a target."), "add rank": (ROOM, "rank", "Rank it.")},
            "Look": {"cache show": (ROOM, "show", "Show all."), "fail": (ROOM, "fail", "Fail.")},
        },
        groups={"cache": "What is kept."}, words={"TARGET": (ROOM, "targets")},
    )  # fmt: skip


def run(program, capsys, *words):
    capsys.readouterr()
    code = program.run([*words])
    return code, *capsys.readouterr()


def test_words_lead_to_a_command_to_one_of_a_group_and_to_a_view(program, capsys):
    assert run(program, capsys, "add", "x", "--times", "3") == (0, "x 3\n", "")
    assert run(program, capsys, "cache", "show") == (0, "all\n", "")
    assert run(program, capsys, "add", "rank", "x") == (0, "rank x\n", "")
    assert run(program, capsys, "--version") == (0, "ops 1.2\n", "")


def test_options_reach_the_command_as_what_they_are(program, capsys):
    code, out, err = run(program, capsys, "add", "1", "--times", "2", "--share", "0.5", "-q", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "kind": "triton-ops added", "schema_version": 1, "target": "1", "times": 2, "share": 0.5, "quiet": True
    }  # fmt: skip
    assert run(program, capsys, "add", "1")[1] == "1 1\n", "the next command prints no document"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "x", "--times", "many"], "'many' is not a whole number (hint: ops add --help)"),
        (["add", "x", "--times", "1.5"], "'1.5' is not a whole number"),
        (["add", "x", "--share", "2 min"], "'2 min' is not a number; in seconds 120"),
        (["add", "x", "--share", "500ms"], "'500ms' is not a number; in seconds 0.5"),
        (["add", "x", "--times", "0"], "Invalid value for '--times'"),
        (["add"], "Missing argument 'TARGET'"),
        (["add", "x", "--tims", "1"], "No such option: --tims"),
        (["ad"], "No such command 'ad'"),
    ],
)
def test_wrong_usage_is_one_line_with_the_help_to_read(program, capsys, words, message):
    code, out, err = run(program, capsys, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert message in err
    assert err.endswith(" --help)\n")


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("TuningFailedError", 1, "error: it failed"),
        ("DeviceError", 3, "error: it failed"),
        ("CacheError", 4, "error: it failed"),
        ("RunLogError", 4, "error: it failed"),
        ("UntunedError", 4, "error: it failed"),
        ("NotLoadedError", 6, "error: it failed"),
        ("SpaceError", 2, "error: it failed"),
        ("SettingsError", 2, "error: it failed"),
        ("no such error", 70, "error: unexpected ValueError: it failed (hint: -v shows the trace)"),
        ("missing", 3, "error: this command needs rich, which is not installed (hint: pip install"),
        ("interrupt", 130, "interrupted"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(program, capsys, kind, code, message):
    ended, out, err = run(program, capsys, "fail", kind)
    assert (ended, out) == (code, "")
    first, second = err.splitlines()
    assert first == "warning: it will fail"
    assert second.startswith(message)


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["add", "x", "--times", "many", "--json"], "UsageError", "ops add --help"),
        (["add", "--json"], "UsageError", "ops add --help"),
        (["add", "--json", "x", "--tims", "1"], "UsageError", "ops add --help"),
        (["ad", "--json"], "UsageError", "ops --help"),
        (["--json"], "UsageError", "ops --help"),
        (["cache", "--json"], "UsageError", "ops cache --help"),
        (["fail", "SpaceError", "--json"], "SpaceError", ""),
        (["fail", "no such error", "--json"], "ValueError", "-v shows the trace"),
    ],
)
def test_with_json_an_error_is_a_document_too(program, capsys, words, error, hint):
    code, out, err = run(program, capsys, *words)
    told = json.loads(out)
    assert fault(told) == ""
    assert (told["error"], told["hint"], told["exit_code"], told["failures"]) == (error, hint, code, [])
    assert err.splitlines()[-1] == f"error: {told['message']}" + (f" (hint: {hint})" if hint else "")


def test_json_after_two_dashes_is_another_programs(program, capsys):
    assert run(program, capsys, "add", "--tims", "--", "--json")[:2] == (2, "")


def test_an_error_has_every_config_that_failed(program, capsys):
    told = json.loads(run(program, capsys, "fail", "all", "--json")[1])
    assert told["failures"] == [{"config": {"BM": 64}, "status": "resources", "error": "it spills"}]


def test_an_exit_has_its_own_code_and_no_line(program, capsys):
    assert run(program, capsys, "fail", "exit") == (7, "", "warning: it will fail\n")


def test_more_is_told_where_it_is_asked_for(program, capsys):
    assert "Traceback" not in run(program, capsys, "fail", "SpaceError")[2]
    assert "Traceback" in run(program, capsys, "fail", "SpaceError", "-v")[2]
    assert "line 1" not in run(program, capsys, "fail", "all")[2]
    assert "(BM=64) resources: it spills\n    line 1\n" in run(program, capsys, "fail", "all", "-v")[2]
    assert "Traceback" not in run(program, capsys, "add", "x", "-v", "--times", "many")[2]


def test_messages_of_the_package_are_lines_only_while_a_command_runs(program, capsys):
    log = logging.getLogger("triton_ops")
    before = list(log.handlers), log.propagate
    run(program, capsys, "fail", "exit")
    assert (log.handlers, log.propagate) == before


def test_a_folder_that_is_gone_is_no_error_of_the_program(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    assert _exit_code(FileNotFoundError()) == 70
    (tmp_path / "gone").rmdir()
    assert (_exit_code(FileNotFoundError()), _exit_code(ValueError())) == (2, 70)


def test_the_help_lists_commands_by_sections(program, capsys):
    code, out, _ = run(program, capsys, "--help")
    assert code == 0
    lines = out.splitlines()
    assert [lines[lines.index(f"{section}:") + 1].split() for section in ("Work", "Look")] == [
        ["add", "Add", "a", "target."], ["cache", "What", "is", "kept."]
    ]  # fmt: skip
    helps = [next(line.index(text) for line in lines if text in line) for text in ("Add a target.", "What is kept.")]
    assert len({*helps}) == 1, "one column for all sections"
    assert "completion" not in out
    assert "That is all." in out
    assert "rank" in run(program, capsys, "add", "--help")[1]


def test_help_goes_on_below_its_column(program, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = run(program, capsys, "add", "--help")[1].splitlines()
    at = next(number for number, line in enumerate(lines) if "--verbose" in line)
    column = lines[at].index("Show")
    assert lines[at + 1].startswith(" " * column)
    assert lines[at + 1][column] != " "
    assert max(map(len, lines)) <= 50


def completed(program, capsys, *words):
    code, out, _ = run(program, capsys, COMPLETE, *words)
    assert code == 0
    lines = out.splitlines()
    return [line for line in lines if line != NO_FILES], lines[-1:] != [NO_FILES]


def test_words_are_completed_from_commands_options_and_targets(program, capsys):
    commands = ["add\tAdd a target.", "cache\tWhat is kept.", "fail\tFail."]
    assert completed(program, capsys) == (commands, False)
    assert completed(program, capsys, "") == (commands, False)
    assert completed(program, capsys, "a") == (commands[:1], False)
    assert completed(program, capsys, "cache", "") == (["show\tShow all."], False)
    assert completed(program, capsys, "add", "") == (["rank\tRank it.", "matmul", "softmax"], True)
    assert completed(program, capsys, "add", "so") == (["softmax"], True)
    assert completed(program, capsys, "add", "rank", "m") == (["matmul"], True)
    assert completed(program, capsys, "add", "x", "r") == ([], True), "a view stands first"
    assert completed(program, capsys, "add", "--ti") == (["--times\tHow often."], False)
    assert completed(program, capsys, "add", "-q", "ma") == (["matmul"], True), "a flag takes no value"
    assert completed(program, capsys, "add", "--times", "") == ([], True)
    options = {line.split("\t")[0] for line in completed(program, capsys, "add", "-")[0]}
    assert {"--json", "--verbose", "-v", "-q", "--quiet", "--times", "--share"} <= options


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_reads_what_asks_the_program(program, capsys, shell):
    code, out, _ = run(program, capsys, "completion", shell)
    assert code == 0
    assert f"ops {COMPLETE}" in out
    assert NO_FILES in out
    assert "{program}" not in out


def test_another_shell_is_refused(program, capsys):
    code, _, err = run(program, capsys, "completion", "tcsh")
    assert code == 2
    assert "there is no completion for 'tcsh'; there is for bash, zsh, fish" in err
