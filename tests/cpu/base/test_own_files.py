"""Files that are held open for long, in a program that closes those which it does not know and opens others."""

from __future__ import annotations

import io
import os
import select
import sys

import pytest

from triton_ops.base import Folder, OwnFile, folders

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing is held open for long there")


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    files = OwnFile(reader), OwnFile(writer)
    yield files
    for file in files:
        file.close()


def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def replaced(file, path):
    """The number of a file of the program's, which has taken the place of one that it did not know."""
    number = file.fileno()
    other = os.open(path, os.O_RDWR | os.O_CREAT)
    os.dup2(other, number)
    os.close(other)
    os.write(number, b"theirs")
    os.lseek(number, 0, os.SEEK_SET)
    return number


def test_what_is_written_is_read_by_lines_and_the_end_is_noticed(pipe):
    reader, writer = pipe
    assert not reader.ready(select.POLLIN, 0.0)
    os.write(writer.fileno(), b"one\ntwo")
    assert reader.ready(select.POLLIN, 0.0)
    writer.close()
    with io.TextIOWrapper(io.BufferedReader(reader), encoding="utf-8") as text:
        assert text.readlines() == ["one\n", "two"]
    assert not reader.held


def test_a_file_is_closed_once_and_then_has_no_number(pipe):
    reader, _ = pipe
    number = reader.fileno()
    reader.close()
    assert not is_open(number)
    other = os.open(os.devnull, os.O_RDONLY)
    reader.close()
    assert is_open(other)
    os.close(other)
    with pytest.raises(BrokenPipeError, match="it was closed"):
        reader.fileno()


def test_threads_that_close_at_the_same_time_close_it_once(pipe, monkeypatch):
    reader, closed = pipe[0], []

    def close_as_another_thread_does(number):
        closed.append(number)
        reader.close()

    close = os.close
    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close_as_another_thread_does)
        reader.close()
    assert len(closed) == 1
    close(closed[0])


def test_a_file_that_another_thread_closes_while_it_is_used_is_closed_for_the_user(pipe, monkeypatch):
    reader, fstat = pipe[0], os.fstat

    def closed_meanwhile(number):
        status = fstat(number)
        monkeypatch.undo()
        reader.close()
        return status

    monkeypatch.setattr(os, "fstat", closed_meanwhile)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.read(reader.fileno(), 1)


@pytest.mark.parametrize("end", [OwnFile.close, id], ids=["closed", "dropped"])
def test_a_file_of_the_programs_under_the_same_number_is_neither_read_nor_closed(end, tmp_path):
    files = [OwnFile(os.open(os.devnull, os.O_RDWR))]
    assert files[0].held
    number = replaced(files[0], tmp_path / "theirs")
    assert not files[0].held
    for use in (OwnFile.fileno, OwnFile.readall, lambda file: file.ready(select.POLLIN, 0.0)):
        with pytest.raises(BrokenPipeError):
            use(files[0])
    end(files[0])
    files.clear()
    assert os.read(number, 9) == b"theirs"
    os.close(number)


def test_a_file_that_nobody_holds_any_more_is_closed():
    number = os.open(os.devnull, os.O_RDONLY)
    OwnFile(number)
    assert not is_open(number)


def test_a_lock_that_the_program_has_closed_is_let_go_and_its_file_stays_open(tmp_path):
    with Folder(tmp_path).locked() as is_locked:
        assert is_locked
        [number] = [file.fileno() for file in folders._lock_files]
        os.close(number)
        theirs = os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT)
        assert theirs == number
    assert is_open(theirs)
    os.close(theirs)
    with Folder(tmp_path).locked(wait_s=0.0) as is_locked:
        assert is_locked
