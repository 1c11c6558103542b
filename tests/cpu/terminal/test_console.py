"""Lines of a command: wrapped between words, without what a terminal would obey, on the stream where they belong."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.exceptions import CacheError
from triton_ops.terminal import Facts, folder_of, followed, only_data_on_stdout, tell
from triton_ops.terminal.console import (
    LEAST,
    State,
    paragraph,
    printable,
    say,
    tell_failures,
    tell_trace,
    unstyled,
    width,
)

words = st.text("abc-", min_size=1, max_size=40)
texts = st.lists(words, max_size=20).map(" ".join)


heads = st.lists(st.text("hd", min_size=1, max_size=4), max_size=3).map(
    lambda parts: "".join(f"{part} " for part in parts)
)


@given(heads, texts, st.integers(1, 120))
def test_a_paragraph_keeps_all_words_in_their_order_and_its_lines_are_as_wide_as_they_may_be(head, text, columns):
    lines = paragraph(head, text, columns)
    assert " ".join(" ".join(lines).split()) == " ".join([*head.split(), *text.split()])
    indent = len(head) if lines[0].startswith(head.rstrip()) and len(lines[0]) > len(head) else 4
    room = max(columns, indent + LEAST, len(head))
    assert all(len(line) <= room or len(line.split()) <= 1 + len(head.split()) for line in lines)
    assert all(line == line.rstrip() for line in lines)


@given(heads, texts)
def test_without_a_limit_a_paragraph_is_one_line(head, text):
    assert paragraph(head, text, None) == [(head + text).rstrip()]


@pytest.mark.parametrize(
    ("head", "text", "columns", "lines"),
    [
        ("note: ", "one two", 13, ["note: one two"]),
        ("note: ", "one two three four five six seven eight", 30,
         ["note: one two three four five", "      six seven eight"]),
        ("a long head here: ", "one two three four five six", 30,
         ["a long head here:", "    one two three four five", "    six"]),
        ("head: ", "x" * 26, 30, ["head:", "    " + "x" * 26]),
        ("head: ", "x" * 27, 30, ["head: " + "x" * 27]),
        ("", "one two three four five six seven", 10, ["one two three four five", "six seven"]),
    ],
)  # fmt: skip
def test_a_head_without_room_beside_it_has_its_text_below(head, text, columns, lines):
    assert paragraph(head, text, columns) == lines


def test_a_terminal_obeys_nothing_but_bold():
    assert printable("a\x1b[1mb\x1b[0mc") == "a\x1b[1mb\x1b[0mc"
    assert printable("a\x1b[31mb\x07\r") == "a\\x1b[31mb\\x07\\r"
    assert unstyled("a\x1b[1mb\x1b[0mc") == "abc"


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def fileno(self):
        return 0


def test_only_a_terminal_has_columns_unless_they_are_set(monkeypatch):
    monkeypatch.setattr(os, "get_terminal_size", lambda number: os.terminal_size((77, 20)))
    assert (width(Terminal()), width(io.StringIO())) == (77, None)
    monkeypatch.setattr(os, "get_terminal_size", lambda number: os.terminal_size((0, 0)))
    assert width(Terminal()) is None
    monkeypatch.setenv("COLUMNS", "50")
    assert (width(Terminal()), width(io.StringIO())) == (50, 50)


def test_a_message_is_one_line_in_a_file_and_wrapped_and_coloured_in_a_terminal(monkeypatch, capsys):
    tell("one\n two  three", "note", "yellow")
    assert capsys.readouterr().err == "note: one two three\n"
    tell("one")
    assert capsys.readouterr().err == "one\n"
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.delenv("NO_COLOR")
    tell("one two three four five six seven", "note", "yellow")
    assert stream.getvalue() == f"{typer.style('note: ', fg='yellow')}one two three four five\n      six seven\n"
    monkeypatch.setenv("NO_COLOR", "1")
    tell("one", "note", "yellow")
    assert stream.getvalue().endswith("\nnote: one\n")


def test_data_goes_to_stdout_line_by_line(capsys):
    say("a", "b\x07")
    assert capsys.readouterr() == ("a\nb\\x07\n", "")


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left on device")])
def test_a_reader_that_has_gone_away_ends_a_command_and_a_full_disk_is_an_error(monkeypatch, tmp_path, error):
    class Gone(io.StringIO):
        def write(self, text):
            raise error

        def fileno(self):
            return file.fileno()

    with (tmp_path / "file").open("w") as file, Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdout", Gone())
        with pytest.raises(typer.Exit if isinstance(error, BrokenPipeError) else OSError):
            say("a")
        monkeypatch.undo()
        assert os.path.sameopenfile(file.fileno(), nothing.fileno())


def test_failures_are_told_only_if_all_is_asked_for(monkeypatch, capsys):
    failures = [("BM=64", "it spills", "line 1"), ("BM=128", "it crashed", "")]
    monkeypatch.setattr(State, "verbose", False)
    tell_failures(failures)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(State, "verbose", True)
    tell_failures(failures)
    assert capsys.readouterr().err == "(BM=64) it spills\n    line 1\n(BM=128) it crashed\n"
    tell_trace("a\n\x1b[2J\n")
    tell_trace("")
    assert capsys.readouterr().err == "a\n\\x1b[2J\n"


def test_what_others_print_meanwhile_goes_to_stderr(capfd):
    with State.of_command():
        only_data_on_stdout()
        sys.stdout.write("of a target\n")
        os.write(1, b"of a compiler\n")
        say("data")
        Facts.save(Path("/dev/stdout"), "a file\n", "")
        sys.stdout.write("of a target again\n")
        only_data_on_stdout()
    sys.stdout.write("after it\n")
    out, err = capfd.readouterr()
    assert out == "data\na file\nafter it\n"
    assert err == "of a target\nof a compiler\nof a target again\n"


def test_outside_of_a_command_stdout_stays_what_it_is(capfd):
    only_data_on_stdout()
    sys.stdout.write("of a program\n")
    assert capfd.readouterr() == ("of a program\n", "")


def test_items_are_passed_on_without_a_terminal():
    assert list(followed(iter([3, 1, 2]), 3, "items")) == [3, 1, 2]


def test_a_folder_of_records_need_not_exist_and_lies_below_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "set"))
    assert folder_of(None) == tmp_path / "set"
    monkeypatch.chdir(tmp_path)
    assert folder_of("here") == tmp_path / "here"
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        with pytest.raises(CacheError, match=f"cannot be a cache folder: {tmp_path}/file is a file"):
            folder_of(place)
