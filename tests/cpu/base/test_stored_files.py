"""What stored and named files say of themselves, and that none is left open, whatever happens."""

from __future__ import annotations

import errno
import logging
import os
import select
import threading
from pathlib import Path

import pytest

from triton_ops.base import (
    AppendedFile,
    Folder,
    NamedFile,
    Sealed,
    SealedFile,
    StoredFile,
    files,
)
from triton_ops.base.files import append_line, read_all, unpacked
from triton_ops.base.folders import open_regular
from triton_ops.exceptions import CacheError

DESCRIPTORS = Path("/proc/self/fd")
LINUX = pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="needs Linux's list of open files")


def test_a_stored_file_is_there_if_it_is_a_regular_file(tmp_path):
    path = tmp_path / "file"
    file = StoredFile(path)
    assert (file.exists, file.state, file.last_line(), [*file.lines()]) == (False, (), b"", [])
    assert not file.holds(b"")
    path.mkdir()
    assert (file.exists, file.state) == (False, ())
    assert not file.holds(b"")
    path.rmdir()
    path.write_bytes(b"abc")
    status = path.stat()
    assert file.exists
    assert file.state == (status.st_dev, status.st_ino, 3, status.st_mtime_ns)


def test_the_state_of_a_file_is_another_after_each_change(tmp_path):
    path, states = tmp_path / "file", []
    for content in (b"abc", b"abcd", b"abce"):
        StoredFile(path).replace(content)
        states.append(StoredFile(path).state)
    os.utime(path, ns=(1, 1))
    states.append(StoredFile(path).state)
    assert len({*states}) == 4


@LINUX
def test_no_file_stays_open(tmp_path, none_left_open):
    path, pipe = tmp_path / "file", tmp_path / "pipe"
    path.write_bytes(b"abc\n")
    os.mkfifo(pipe)
    file = StoredFile(path)
    for _ in range(3):
        assert file.read() == b"abc\n"
        assert file.holds(b"abc\n")
        assert not file.holds(b"abc")
        assert not file.holds(b"abc\nd")
        assert not StoredFile(tmp_path).holds(b"")
        assert NamedFile(path).read() == b"abc\n"
        assert [*file.lines()] == [b"abc"]
        assert file.last_line() == b"abc"
        assert AppendedFile.append_at(path, 4, b"") is True
        assert Folder(tmp_path).writable
        NamedFile(path).write("abc\n")
        append_line(tmp_path / "log", "x")
        with Folder(tmp_path).locked() as held, Folder(tmp_path).locked(None) as other:
            assert held
            assert other
    for refused in (lambda: file.read(3), lambda: [*file.lines(3)], lambda: NamedFile(path).read(3),
                    lambda: open_regular(pipe), lambda: open_regular(tmp_path), lambda: NamedFile(pipe).read(),
                    lambda: NamedFile(pipe).write("x"), lambda: NamedFile(tmp_path).write("x")):  # fmt: skip
        with pytest.raises(OSError):  # noqa: PT011 - each has another reason
            refused()


@LINUX
def test_who_writes_into_a_pipe_waits_for_its_reader_without_asking_again_and_again(tmp_path):
    path, content = tmp_path / "pipe", b"x" * (1 << 20)
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer = threading.Thread(target=NamedFile(path).write, args=(content,))
    writer.start()
    select.select([reading], [], [])
    flags = {
        int(number.name): int((DESCRIPTORS.parent / "fdinfo" / number.name).read_text().split()[3], 8)
        for number in [*DESCRIPTORS.iterdir()]
        if os.path.lexists(number) and number.readlink() == path
    }
    (written,) = (value for number, value in flags.items() if number != reading)
    os.set_blocking(reading, True)
    with os.fdopen(reading, "rb") as file:
        assert file.read() == content
    writer.join()
    assert not written & os.O_NONBLOCK


@pytest.mark.parametrize(("limit", "whole"), [(4, True), (3, False)])
def test_a_file_of_as_many_bytes_as_are_allowed_is_read(tmp_path, limit, whole):
    path = tmp_path / "file"
    path.write_bytes(b"abc\n")
    for read in (StoredFile(path).read, NamedFile(path).read, lambda limit: b"".join(StoredFile(path).lines(limit))):
        if whole:
            assert read(limit).strip() == b"abc"
        else:
            with pytest.raises(OSError, match="larger than 3 bytes") as caught:
                read(limit)
            assert caught.value.errno == errno.EFBIG


def test_what_was_read_first_counts_among_the_bytes_that_are_allowed_and_for_more_nobody_is_waited_for():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with os.fdopen(reading, "rb", buffering=0), os.fdopen(writing, "wb", buffering=0) as pipe:
        pipe.write(b"cde")
        with pytest.raises(OSError, match="larger than 4 bytes"):
            read_all(reading, 4, b"ab")
        pipe.write(b"cde")
        pipe.close()
        assert read_all(reading, 5, b"ab") == b"abcde"


@pytest.mark.parametrize(("size", "reads"), [(10, 2), (60_000, 2), (200_000, 2)])
def test_a_file_is_read_at_once_and_a_pipe_in_large_parts(tmp_path, monkeypatch, size, reads):
    lengths, read = [], os.read

    def counted(descriptor, length):
        lengths.append(length)
        return read(descriptor, length)

    (tmp_path / "file").write_bytes(b"x" * size)
    monkeypatch.setattr(files.os, "read", counted)
    assert len(StoredFile(tmp_path / "file").read()) == size
    assert len(lengths) == reads, "the last one finds the end"
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb"), os.fdopen(writing, "wb", buffering=0) as pipe:
        pipe.write(b"x" * min(size, 60_000))
        pipe.close()
        lengths.clear()
        assert len(read_all(reading, 1 << 20)) == min(size, 60_000)
    assert len(lengths) == 2


def test_bytes_are_appended_to_a_file_of_the_size_that_is_named_alone(tmp_path):
    path = tmp_path / "file"
    assert not AppendedFile.append_at(path, 0, b"x")
    assert not path.exists()
    path.write_bytes(b"abc")
    for size in (2, 4):
        assert not AppendedFile.append_at(path, size, b"x")
    assert AppendedFile.append_at(path, 3, b"de")
    assert path.read_bytes() == b"abcde"


def entries(path):
    return [Sealed.read(line) for line in StoredFile(path).lines()]


@pytest.mark.parametrize("gaps", [False, True])
def test_a_file_that_could_not_be_written_once_ends_there_unless_gaps_are_allowed(tmp_path, caplog, gaps):
    path = tmp_path / "inner" / "log"
    file = AppendedFile(path, "the next run begins anew", tmp_path, gaps=gaps)
    assert file.written == path
    file.append({"n": 1})
    path.rename(tmp_path / "away")
    path.mkdir()
    for n in (2, 3):
        file.append({"n": n})
    assert file.written is None
    warnings = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in warnings if level >= logging.WARNING] == [logging.WARNING]
    assert warnings[0][1] == f"{path} cannot be written (it is a folder, not a regular file): the next run begins anew"
    path.rmdir()
    (tmp_path / "away").rename(path)
    file.append({"n": 4})
    assert entries(path) == ([{"n": 1}, {"n": 4}] if gaps else [{"n": 1}])
    assert file.written == (path if gaps else None)
    AppendedFile(None, "nothing").append({"n": 1})


def test_what_json_cannot_hold_is_replaced_in_an_entry(tmp_path):
    file = AppendedFile(tmp_path / "log", "")
    file.append({"text": "half \ud800", "number": float("nan"), "umlaut": "ü"}, durable=False)
    assert entries(tmp_path / "log") == [{"text": "half ?", "number": None, "umlaut": "ü"}]
    assert "ü".encode() in (tmp_path / "log").read_bytes()


def test_a_sealed_file_is_read_only_as_what_was_written_and_where_nobody_else_could_put_it(tmp_path):
    path = tmp_path / "inner" / "file.json"
    file = SealedFile(path, tmp_path)
    with pytest.raises(FileNotFoundError):
        file.read()
    file.write({"text": "half \ud800", "count": 2})
    assert file.read() == {"text": "half ?", "count": 2}
    assert file.read(dict[str, str | int])["count"] == 2
    with pytest.raises(OSError, match="Expected `str`, got `int`"):
        file.read(dict[str, str])
    path.write_text(path.read_text().replace("2", "3"))
    with pytest.raises(OSError, match="its checksum is not that of its content"):
        file.read()
    path.parent.rename(tmp_path / "away")
    path.parent.symlink_to(tmp_path / "away")
    tmp_path.chmod(0o1777)
    with pytest.raises(OSError, match="it is a link, not a folder"):
        file.read()
    with pytest.raises(CacheError, match="it is a link, not a folder"):
        file.write({})


def test_a_line_that_begins_a_file_has_the_files_name_written_to_disk(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(files, "sync_folder", asked.append)
    monkeypatch.setattr(files, "sync", lambda descriptor: asked.append("file"))
    path = tmp_path / "log"
    append_line(path, "a", durable=False)
    assert asked == []
    path.unlink()
    append_line(path, "a")
    append_line(path, "b")
    assert asked == ["file", tmp_path, "file"]
    asked.clear()
    StoredFile(path).replace("c")
    assert asked == ["file", tmp_path]


@pytest.mark.parametrize(("more", "whole"), [(0, True), (1, False)])
def test_packed_data_unpack_to_as_much_as_is_allowed(monkeypatch, more, whole):
    import gzip

    monkeypatch.setattr(files, "_SMALL_BYTES", 1000)
    packed = gzip.compress(b"x" * (1000 + more), mtime=0)
    assert 64 * len(packed) > 1000 + more
    monkeypatch.setattr(files, "_DENSEST", 1)
    if whole:
        assert len(unpacked(packed)) == 1000
    else:
        with pytest.raises(OSError, match="unpack to more than 1000 bytes"):
            unpacked(packed)
    monkeypatch.setattr(files, "_DENSEST", 64)
    for damaged, why in ((packed[:-3], "cut off"), (packed[:12] + b"\xff" * 4 + packed[16:], "damaged")):
        with pytest.raises(OSError, match=why):
            unpacked(damaged)
    assert unpacked(b"\x1f") == b"\x1f"
