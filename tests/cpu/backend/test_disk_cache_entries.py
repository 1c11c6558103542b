"""Entries of Triton's disk cache on another host: written whole or not at all, and nowhere but in the cache."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.backend import Entry, has_entry, read_entry, remove_entry, write_entry
from triton_ops.backend import disk_entries as entries
from triton_ops.backend import entry_binary as binary_of

KEY = hashlib.sha256(b"a kernel").hexdigest()
FILES = {"k.json": json.dumps({"hash": KEY}).encode(), "k.ptx": b"text", "k.cubin": b"\x7fELF machine code"}


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_an_entry_is_read_from_one_folder_and_written_to_another_with_its_own_paths(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    write_entry(first, Entry.of(KEY, FILES))
    found = read_entry(first, KEY)
    assert found == Entry.of(KEY, FILES)
    remove_entry(first, KEY)
    assert not has_entry(first, KEY)
    write_entry(second, found)
    (place,) = second.iterdir()
    listed = json.loads((place / "__grp__k.json").read_text())
    assert listed == {"child_paths": {name: str(place / name) for name in FILES}}
    assert read_entry(second, KEY) == found
    assert binary_of([found]) == hashlib.sha256(FILES["k.cubin"]).hexdigest()[:32]


def test_an_entry_that_is_there_stays_as_it_is(tmp_path):
    write_entry(tmp_path, Entry.of(KEY, FILES))
    write_entry(tmp_path, Entry.of(KEY, {**FILES, "k.ptx": b"other"}))
    assert read_entry(tmp_path, KEY).files["k.ptx"] == b"text"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"k.ptx": b"tex"}, "not whole"), ({"k.cubin": None}, "not whole"),
    ],
)  # fmt: skip
def test_an_entry_that_was_cut_off_on_its_way_is_refused(tmp_path, change, said):
    files = {name: content for name, content in {**FILES, **change}.items() if content is not None}
    with pytest.raises(ValueError, match=said):
        write_entry(tmp_path, replace(Entry.of(KEY, FILES), files=files))
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [
        "../k.cubin",
        "a/b.cubin",
        "/etc/k.cubin",
        "..",
        ".",
        ".hidden",
        "",
        "__grp__k.json",
        "tmp.k",
        "lock",
        "a\0b",
        "n" * 201,
    ],
)
def test_a_name_that_is_no_plain_file_is_refused(tmp_path, name):
    folder = tmp_path / "cache"
    with pytest.raises(ValueError, match="of an entry"):
        write_entry(folder, Entry.of(KEY, {**FILES, name: b"x"}))
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({**FILES, "k.json": b"{}"}, "another key"), ({**FILES, "k.json": b"[]"}, "another key"),
        ({**FILES, "k.json": b"{"}, "Expecting"), ({**FILES, "l.json": b"{}"}, "not one file"),
        ({"k.json": FILES["k.json"]}, "no binary"), ({**FILES, **{f"{n}.ptx": b"" for n in range(40)}}, "larger than"),
    ],
)  # fmt: skip
def test_what_triton_has_not_written_is_refused(tmp_path, files, said):
    with pytest.raises(ValueError, match=said):
        write_entry(tmp_path, Entry.of(KEY, files))
    assert files_in(tmp_path) == []


def test_an_entry_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "_MOST_BYTES", 100)
    with pytest.raises(ValueError, match="larger than"):
        write_entry(tmp_path, Entry.of(KEY, {**FILES, "k.llir": b"x" * 100}))


@given(st.one_of(st.text(max_size=80), st.sampled_from([KEY.upper(), KEY[:-2], f"{KEY}00", f" {KEY}", "../" + KEY])))
def test_what_is_no_key_names_no_folder(tmp_path_factory, key):
    folder = tmp_path_factory.getbasetemp()
    for asked in (has_entry, read_entry, remove_entry):
        with pytest.raises(ValueError, match="is no key"):
            asked(folder, key)


def test_an_entry_without_its_list_is_not_there(tmp_path):
    write_entry(tmp_path, Entry.of(KEY, FILES))
    (place,) = tmp_path.iterdir()
    (place / "__grp__k.json").unlink()
    assert not has_entry(tmp_path, KEY)
    with pytest.raises(FileNotFoundError):
        read_entry(tmp_path, KEY)
    write_entry(tmp_path, Entry.of(KEY, FILES))
    assert has_entry(tmp_path, KEY)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"child_paths": {"../../other": "x"}}'])
def test_a_damaged_list_is_said_and_leads_nowhere(tmp_path, content):
    write_entry(tmp_path, Entry.of(KEY, FILES))
    (place,) = tmp_path.iterdir()
    (place / "__grp__k.json").write_bytes(content)
    with pytest.raises((ValueError, OSError)):
        read_entry(tmp_path, KEY)


def test_an_entry_whose_writing_fails_is_not_there(tmp_path, monkeypatch):
    written = []

    def fails_at_the_end(path, content):
        written.append(path.name)
        if len(written) > len(FILES):
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr(entries, "atomic_write", fails_at_the_end)
    with pytest.raises(OSError, match="No space"):
        write_entry(tmp_path, Entry.of(KEY, FILES))
    assert written == [*FILES, "__grp__k.json"], "the list comes last"
    assert not has_entry(tmp_path, KEY)
