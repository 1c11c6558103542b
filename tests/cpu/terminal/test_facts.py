"""What a command says: the same facts in lines of any width, as Markdown, and as a document."""

from __future__ import annotations

import html
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.exceptions import SettingsError
from triton_ops.terminal import Facts
from triton_ops.terminal.console import State
from triton_ops.terminal.facts import escape

words = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=1, max_size=9)
texts = st.lists(words, max_size=30).map(" ".join)


@pytest.fixture(autouse=True)
def _neither_verbose_nor_json(monkeypatch):
    monkeypatch.setattr(State, "verbose", False)
    monkeypatch.setattr(State, "as_json", False)


TABLE = Facts("times").table(
    ("config", "ms", "why"), [("BM=64", "1.25", "fast"), ("BM=128", "10.5", "it spills registers into memory")], ["ms"],
    title="Times", note="of 2 configs",
)  # fmt: skip


def test_a_table_has_its_columns_below_each_other_and_numbers_at_the_right():
    assert TABLE.printed(None) == [
        "",
        "Times",
        "config    ms  why",
        "BM=64   1.25  fast",
        "BM=128  10.5  it spills registers into memory",
        "of 2 configs",
    ]


def test_the_last_column_is_wrapped_and_goes_on_below_itself():
    assert TABLE.printed(40)[2:] == [
        "config    ms  why",
        "BM=64   1.25  fast",
        "BM=128  10.5  it spills registers into",
        "              memory",
        "of 2 configs",
    ]


def test_where_the_last_column_has_no_room_each_cell_has_a_line():
    assert TABLE.printed(37)[2:] == [
        "BM=64",
        "  ms      1.25",
        "  why     fast",
        "BM=128",
        "  ms      10.5",
        "  why     it spills registers into",
        "          memory",
        "of 2 configs",
    ]


def test_another_form_stands_for_a_table_that_is_too_wide():
    facts = Facts("times").table(("a", "b"), [("x" * 20, "y" * 20)], narrow=lambda: Facts("times").text("narrow"))
    assert facts.printed(41) == ["narrow"]
    assert facts.printed(42) == facts.printed(None) == [f"a{' ' * 21}b", f"{'x' * 20}  {'y' * 20}"]


def test_a_table_without_rows_is_its_title_and_its_note():
    facts = Facts("times").table(("a", "b"), [], title="Times", note="none was taken")
    assert facts.printed(None) == ["", "Times", "none was taken"]
    assert facts.markdown().split("\n") == ["## Times", "", "none was taken", ""]


def test_a_listing_has_names_and_facts_without_a_header():
    facts = Facts("device").listing({"name": "H200", "units": "132"}, title="Device")
    assert facts.printed(None) == ["", "Device", "name   H200", "units  132"]
    assert "| what | value |" in facts.markdown()


@given(st.lists(st.tuples(words, words, texts), min_size=1, max_size=4), st.integers(30, 100))
def test_no_line_of_a_table_is_wider_than_the_terminal_unless_a_word_is_and_none_is_lost(rows, columns):
    lines = Facts("rows").table(("one", "two", "three"), rows).printed(columns)
    assert all(len(line) <= columns for line in lines)
    shown = " ".join(lines).split()
    for row in rows:
        for word in (word for cell in row for word in cell.split()):
            assert word in shown


def test_a_table_is_one_of_markdown():
    assert TABLE.markdown().split("\n") == [
        "## Times",
        "",
        "| config | ms | why |",
        "| --- | ---: | --- |",
        "| BM=64 | 1.25 | fast |",
        "| BM=128 | 10.5 | it spills registers into memory |",
        "",
        "of 2 configs",
        "",
    ]


@given(st.text(max_size=40))
def test_a_text_of_somebody_stays_itself_in_markdown_and_is_never_markup(text):
    escaped = escape(text)
    assert "\n" not in escaped
    whole = " ".join(text.split())
    if escaped.startswith("<code>") and escaped != whole:
        inside = escaped.removeprefix("<code>").removesuffix("</code>")
        assert html.unescape(inside) == whole or "&#0;" in inside or re.search(r"&#1[2-5]\d;|&#\d{1,2};", inside)
        assert not re.search(r"[^A-Za-z0-9 &#;]", inside)
    else:
        assert escaped.strip("`") == whole
        assert not re.search(r"[|<>\[\]*@#\\]|//", escaped)


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("2 % of BM=64 (fast)", "2 % of BM=64 (fast)"), ("num_warps: 4", "`num_warps: 4`"),
        ("a\n b", "a b"), ("@someone", "<code>&#64;someone</code>"), ("a|b", "<code>a&#124;b</code>"),
        ("see http://x", "<code>see http&#58;&#47;&#47;x</code>"), ("WWW.x", "<code>WWW&#46;x</code>"), ("", ""),
    ],
)  # fmt: skip
def test_texts_are_plain_code_or_spelled_out(text, markdown):
    assert escape(text) == markdown


def test_a_text_goes_on_below_its_head_and_a_line_for_a_shell_ends_in_a_backslash():
    assert Facts("x").text("one two three four five six seven", "head: ").printed(30) == [
        "head: one two three four five", "      six seven"
    ]  # fmt: skip
    command = "triton-ops tune kernels.py:add --space 'BM=64, 128'"
    assert Facts("x").lines(command, end=" \\").printed(40) == [
        "triton-ops tune kernels.py:add --space \\", "'BM=64, 128'"
    ]  # fmt: skip
    assert Facts("x").lines("y " * 40, end=None).printed(20) == [("y " * 40).rstrip()]
    assert Facts("x").lines("  " + "word " * 6).printed(26) == ["  word word word word word", "  word"]


def test_what_is_pasted_has_its_title_and_a_fence_longer_than_any_within():
    facts = Facts("x").paste("Paste", "a = '````'\nb = 2")
    assert facts.printed(None) == ["Paste: a = '````'", "Paste: b = 2"]
    assert facts.markdown().split("\n") == ["Paste:", "", "`````python", "a = '````'", "b = 2", "`````", ""]
    assert Facts("x").lines("plain").markdown().split("\n") == ["```text", "plain", "```", ""]


def test_subjects_are_apart():
    facts = Facts("x").heading("one").text("1").heading("two").text("2")
    assert facts.printed(None) == ["1", "", "2"]
    assert facts.markdown() == "# one\n\n1\n\n# two\n\n2\n"
    assert facts.as_markdown.printed(3) == ["# one", "", "1", "", "# two", "", "2"]


def test_a_document_has_its_kind_and_its_data():
    head = {"kind": "triton-ops x", "schema_version": 1}
    assert Facts("x", {"n": 1}).document == {**head, "n": 1}
    assert Facts("x", [1, 2]).document == {**head, "items": [1, 2]}
    assert Facts("x", lambda: {"n": 2}).document == {**head, "n": 2}


def test_facts_are_written_as_lines_or_as_a_document_and_messages_go_to_stderr(capsys, monkeypatch):
    facts = Facts("x", {"n": float("inf")}).text("told").tell("careful", "note", "yellow")
    facts.code = 5
    assert facts.written() == 5
    assert capsys.readouterr() == ("told\n", "note: careful\n")
    monkeypatch.setattr(State, "as_json", True)
    assert facts.written() == 5
    out, err = capsys.readouterr()
    assert (json.loads(out)["n"], err) == (None, "note: careful\n")


def test_what_is_shown_ahead_is_a_line_of_json_or_nothing_where_a_document_follows(capsys, monkeypatch):
    facts = Facts("x", {"n": 1}).text("told").tell("careful")
    facts.show_ahead()
    assert capsys.readouterr() == ("told\n", "careful\n")
    monkeypatch.setattr(State, "as_json", True)
    facts.show_ahead()
    assert capsys.readouterr() == ("", "")
    facts.show_ahead(as_line=True)
    assert json.loads(capsys.readouterr().out) == facts.document


def test_only_some_messages_are_told_unless_all_are_asked_for(monkeypatch):
    messages = ["a", "b", "c"]
    assert Facts("x").tell_most(messages, 3, "of them").messages == [(each, "", "") for each in messages]
    assert Facts("x").tell_most(messages, 1, "of them").messages == [
        ("a", "", ""), ("2 more of them; -v shows them", "", "")
    ]  # fmt: skip
    monkeypatch.setattr(State, "verbose", True)
    assert len(Facts("x").tell_most(messages, 1, "of them").messages) == 3


def test_failures_are_told_in_full_or_with_a_hint(capsys, monkeypatch):
    facts = Facts("x")
    assert facts.hint_of_failures == ""
    facts.failed = [("BM=64", "it spills", "line 1\nline 2")]
    assert "-v says why" in facts.hint_of_failures
    facts.written()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(State, "verbose", True)
    assert facts.hint_of_failures == ""
    facts.written()
    assert capsys.readouterr().err == "(BM=64) it spills\n    line 1\n    line 2\n"


def test_cells_and_members_of_what_is_not_known():
    assert (Facts.cell(None, ".2f"), Facts.cell(1.234, ".1f", " ms")) == ("-", "1.2 ms")
    facts = Facts("x")
    assert Facts.members(facts, "kind", exit="code") == {"kind": "x", "exit": 0}
    assert Facts.members(None, "kind") is None


def test_a_file_gets_lines_without_bold_and_texts_as_they_are(tmp_path):
    Facts.save(tmp_path / "lines", ["\x1b[1mbold\x1b[0m", "\x1b[31mred"], "hint")
    assert (tmp_path / "lines").read_text() == "bold\n\\x1b[31mred\n"
    Facts.save(tmp_path / "text", "a\nb", "hint")
    assert (tmp_path / "text").read_text() == "a\nb"
    with pytest.raises(SettingsError, match="cannot be written") as refused:
        Facts.save(tmp_path / "none" / "file", "a", "name a folder that is there")
    assert refused.value.hint == "name a folder that is there"
