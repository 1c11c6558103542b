"""A slice of the attacks of `benchmarks/robustness/hostile_files.py`, and terminals that obey no text of a file."""

import json
import logging

import pytest

from tests.records import record
from triton_ops.base import DamagedError, Sealed
from triton_ops.benchmark import ConfigCache
from triton_ops.exceptions import CacheError, ConfigValueError
from triton_ops.records import (
    RECORDS,
    DirectoryStore,
    Quarantine,
)
from triton_ops.records import store as lines
from triton_ops.space import Config
from triton_ops.terminal.console import printable
from triton_ops.values import Status, Trial


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"1", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": "\\ud800"}', b'{"a": "\xff"}', b"[" * 100_000,
        b'{"a": ' + b"1" * 5000 + b"}", b"{} {}", b"\xef\xbb\xbf{}", b"{}".decode().encode("utf-16"),
        b"[" + b"[]," * 2_000_000 + b"[]]",
    ],
    ids=lambda text: repr(text[:20]),
)  # fmt: skip
def test_a_text_that_is_no_object_of_finite_numbers_and_whole_characters_is_damaged(text):
    with pytest.raises(DamagedError):
        Sealed.parsed(text)


def test_a_checksum_is_of_the_content_and_not_of_its_form():
    content = {"b": [1, 2.5, None, "µ"], "a": {"x": True}}
    written = Sealed(content)
    assert Sealed.read(json.dumps(written, indent=7)) == content
    assert Sealed.opened(dict(reversed(written.items()))) == content
    for changed in ({**written, "b": []}, {**written, "c": 1}, content, {**written, "checksum": None}):
        with pytest.raises(DamagedError, match="checksum"):
            Sealed.opened(changed)


def test_an_edited_record_is_a_miss_and_the_warning_says_what_to_do(tmp_path, caplog):
    store = DirectoryStore(tmp_path, RECORDS)
    store.put(record())
    path = store.path_of(record().id)
    path.write_text(path.read_text().replace('"BLOCK": 64', '"BLOCK": 65'))
    with caplog.at_level(logging.WARNING, "triton_ops"):
        assert store.get(record().id) is None
        assert store.get(record().id) is None
    [warning] = caplog.records
    assert str(path) in warning.getMessage()
    assert "checksum" in warning.getMessage()
    assert "tune again" in warning.getMessage()
    store.put(record())
    assert store.get(record().id) == record()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain µ ±", "plain µ ±"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\nfake line", "a\\nfake line"),
        ("\x9b31m\u202e", "\\x9b31m\\u202e"),
        ("\x1b[1mbold\x1b[0m", "\x1b[1mbold\x1b[0m"),
        ("\x1b[8mhidden", "\\x1b[8mhidden"),
    ],
)
def test_a_terminal_obeys_no_text_of_a_file(text, shown):
    assert printable(text) == shown


def test_show_prints_no_escape_of_a_record(cli, tmp_path):
    bad = "\x1b]0;owned\x07\x1b[2J"
    store = DirectoryStore(tmp_path, RECORDS)
    for kernel in (f"k{bad}\nrecords: all fine", "other"):
        store.put(record(kernel, confidence=bad, notes=(bad,), place=bad))
    for words in (["cache", "show"], ["cache", "show", "other"], ["cache", "show", "--json"]):
        ran = cli(*words, "--cache-dir", str(tmp_path))
        assert ran.code == 0
        assert "\x1b" not in ran.out + ran.err
        assert "\x07" not in ran.out + ran.err
        assert "\nrecords: all fine" not in ran.out


@pytest.mark.usefixtures("steady_clock")
@pytest.mark.parametrize("some_run", [True, False])
def test_tune_v_prints_no_escape_of_a_candidate_or_of_its_trace(cli, tmp_path, some_run):
    bad = "\x1b]0;owned\x07\x1b[2J\x1b[1m\r\u202e\x9b"
    path = tmp_path / "raising.py"
    path.write_text(
        f"def work(*, a):\n    if a > {int(some_run)}:\n        raise type({bad!r}, (Exception,), {{}})({bad!r})\n"
    )
    space = "a=0,1,2" if some_run else "a=1,2"
    words = ["tune", f"{path}:work", "--space", space, "--device", "cpu", "--cache-dir", tmp_path / "cache"]
    for more in (["-v"], ["-v"], ["-v", "--json"], ["--force"]):  # the second takes its failures from what was kept
        ran = cli(*words, *more)
        assert ran.code == int(not some_run)
        assert {*map(ord, ran.out + ran.err)}.isdisjoint({*range(10), *range(11, 32), *range(127, 160), 0x202E})
        assert some_run or "owned" in ran.err


def test_facts_of_a_record_are_nested_two_deep_at_most():
    flat = record(guard={"a": {"b": [1]}, "c": [{"d": 1}]})
    assert RECORDS.loads(RECORDS.dumps(flat)) == flat
    deep = record(guard={"a": {"b": {"c": {}}}})
    with pytest.raises(CacheError, match="guard"):
        RECORDS.loads(RECORDS.dumps(deep))


def test_an_entry_of_config_cache_is_nested_32_deep_at_most(tmp_path):
    value = 1
    for _ in range(33):
        value = [value]
    with pytest.raises(ConfigValueError, match="nested deeper than 32 levels"):
        ConfigCache(tmp_path).set("k", 1, "d", {"x": value})
    ConfigCache(tmp_path).set("k", 1, "d", {"x": value[0][0]})
    [path] = tmp_path.glob("*.json")
    content = json.loads(path.read_text())
    content["config"]["x"] = value
    path.write_text(json.dumps(Sealed({name: item for name, item in content.items() if name != "checksum"})))
    assert ConfigCache(tmp_path).get("k", 1, "d") is None


def test_of_a_file_without_a_sound_line_the_rest_is_not_read(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(lines, "_MOST_BAD", 10)
    path = tmp_path / "quarantine.jsonl"
    Quarantine(path).add(Trial(Config(n=1), Status.CRASH))
    sound = path.read_bytes()
    path.write_bytes(b"x\n" * 9 + sound)
    assert len(Quarantine(path)) == 1
    path.write_bytes(b"x\n" * 10 + sound)
    assert len(Quarantine(path)) == 0
    assert ["9 lines are" in caplog.messages[0], "10 lines and the rest are" in caplog.messages[1]] == [True, True]
