"""A slice of the attacks of `benchmarks/robustness/hostile_files.py`, and terminals that obey no text of a file."""

import json
import logging

import pytest
from benchmarks.robustness.hostile_files import attack, attacks

from tests.records import record
from triton_ops.base import DamagedError, Sealed
from triton_ops.base import plain as _plain
from triton_ops.benchmark import ConfigCache
from triton_ops.cli.bundle import import_records
from triton_ops.device import Calibration
from triton_ops.exceptions import CacheError, ConfigValueError, RecordingError, TritonKernelError
from triton_ops.lab.recording import read_recording
from triton_ops.records import (
    RECORDS,
    DirectoryStore,
    Lockfile,
    MemoryStore,
    Misses,
    Quarantine,
    Run,
    lockfile,
)
from triton_ops.records import store as lines
from triton_ops.space import Config
from triton_ops.terminal.console import printable
from triton_ops.typed.problem import parse_space
from triton_ops.values import Status, Trial


@pytest.mark.usefixtures("steady_clock")
def test_no_hostile_file_raises_hangs_or_is_believed(monkeypatch):
    monkeypatch.setattr(lockfile, "_STILL_S", 0.0)  # nobody is writing these files: a refused one is not watched
    with attacks() as each:
        result = attack(each, files=400, seed=11, bit_step=307)
    assert len(result) == 12
    for name, one in result.items():
        assert one.files >= 33
        assert (name, dict(one.errors), one.altered, one.hangs) == (name, {}, [], 0)
    assert sum(one.served for one in result.values()) > 100  # lines beside a damaged one still count


@pytest.mark.usefixtures("steady_clock")
def test_without_checksums_the_same_files_would_be_believed(monkeypatch):
    """The attack would find it: this is what the checksums are for."""
    with attacks() as each:
        monkeypatch.setattr(_plain, "fingerprint", lambda _: each[0].expected and "0" * 32)
        [one] = [one for one in each if one.kind.name == "quarantine"]
        one.healthy = b"".join(
            json.dumps({**json.loads(line), "checksum": "0" * 32}).encode() + b"\n" for line in one.healthy.splitlines()
        )
        result = attack([one], files=0, seed=0, bit_step=7)["quarantine"]
    assert result.altered


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


LIMITS = {
    "f" * 32 + ".record.json": (4 << 20, lambda path: DirectoryStore(path.parent, RECORDS).get("f" * 32)),
    "calibration/a100.json": (64 << 10, lambda path: Calibration.load(path.parents[1], "A100")),
    "misses.jsonl": (32 << 20, lambda path: Misses(path.parent).read()),
    "quarantine.jsonl": (1 << 30, Quarantine),
    "run.jsonl": (1 << 30, Run.read),
    "recording.json.gz": (1 << 30, read_recording),
    "export.json": (64 << 20, lambda path: import_records(path, MemoryStore(RECORDS))),
    "lock.json": (64 << 20, Lockfile.read),
    "space.json": (64 << 20, lambda path: parse_space([str(path)])),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_file_larger_than_its_kind_ever_is_is_refused_unread(tmp_path, name, caplog):
    limit, read = LIMITS[name]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(limit + 1)  # without content, so that it takes no room
    reason = f"larger than {limit} bytes"
    try:
        assert not read(path) or name == "quarantine.jsonl"
    except TritonKernelError as error:
        assert reason in error.message  # noqa: PT017 - some readers warn, some raise
    else:
        assert [reason in message for message in caplog.messages] == [True]


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


def test_a_cache_file_of_another_tuner_is_bounded_too(tmp_path, monkeypatch):
    monkeypatch.setattr("triton_ops.base.plain._MOST_CONTAINERS", 100)
    path = tmp_path / "cache.json"
    path.write_text('{"tune_params": ' + "[" * 101)
    with pytest.raises(RecordingError, match="more than 100 lists and objects"):
        read_recording(path)
