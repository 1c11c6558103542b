"""What changes in one cache folder is applied to another, piece by piece."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from triton_ops.many.ray_actors import Keeper, Piece, WatchedFolder, apply, files_of_problem

NAME = "a" * 32
RECORD, LOG = f"{NAME}.record.json", f"runs/{NAME}/one.jsonl"


@pytest.fixture
def folders(tmp_path):
    """A folder with a record, a run log and a file of the user's, and an empty one."""
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "runs" / NAME).mkdir(parents=True)
    there.mkdir()
    (here / RECORD).write_bytes(b"{}")
    (here / LOG).write_bytes(b"1\n")
    (here / "mine.txt").write_bytes(b"mine")
    return here, there


def test_a_run_log_is_sent_by_its_new_lines_and_any_other_file_as_a_whole(folders):
    here, there = folders
    watched = WatchedFolder(here)
    apply(there, watched.changes())
    assert watched.changes() == []
    (here / LOG).write_bytes(b"1\n22\n")
    (here / RECORD).write_bytes(b"{ }")
    pieces = watched.changes()
    assert pieces == [Piece(RECORD, 0, b"{ }"), Piece(LOG, 2, b"22\n")]
    apply(there, pieces)
    assert files_of_problem(there, NAME) == [Piece(RECORD, 0, b"{ }"), Piece(LOG, 0, b"1\n22\n")]
    assert not (there / "mine.txt").exists()


def test_a_piece_whose_file_ends_elsewhere_leaves_the_file_as_the_sender_has_it(folders):
    _, there = folders
    apply(there, [Piece(LOG, 0, b"1\n22\n333\n")])
    apply(there, [Piece(LOG, 2, b"44\n")])
    assert (there / LOG).read_bytes() == b"1\n44\n"


def test_a_keeper_that_many_threads_call_writes_each_log_in_order_and_refuses_an_earlier_turn(tmp_path):
    keeper, logs = Keeper(str(tmp_path)), [f"{at:032x}" for at in range(4)]
    start = threading.Barrier(len(logs))

    def measurer(name):
        start.wait()
        for at in range(20):
            assert keeper.keep(name, 1, [Piece(f"runs/{name}/one.jsonl", 2 * at, f"{at % 10}\n".encode())])
        keeper.begin(name, 2)
        assert not keeper.keep(name, 1, [Piece(f"runs/{name}/one.jsonl", 0, b"late\n")])

    with ThreadPoolExecutor(len(logs)) as threads:
        list(threads.map(measurer, logs))
    expected = b"".join(f"{at % 10}\n".encode() for at in range(20))
    assert [(tmp_path / "runs" / name / "one.jsonl").read_bytes() for name in logs] == [expected] * len(logs)


def test_what_is_no_regular_file_holds_nobody_up(folders):
    here, _ = folders
    (here / RECORD).unlink()
    os.mkfifo(here / RECORD)
    with pytest.raises(OSError, match="FIFO"):
        WatchedFolder(here).changes()
    assert [piece.path for piece in files_of_problem(here, NAME)] == [LOG]


@pytest.mark.parametrize("path", ["../out.record.json", "mine.txt", f"runs/../{RECORD}", f"/{RECORD}"])
def test_a_piece_of_another_file_is_refused(folders, path):
    with pytest.raises(ValueError, match="is no file of records"):
        apply(folders[1], [Piece(path, 0, b"")])
