"""Misses: noted without waiting, kept once each in a bounded file, and ranked by what they cost."""

import os
import threading
from dataclasses import replace

import pytest

from tests.limits import ENOUGH_S
from triton_ops.records import Misses, misses
from triton_ops.records.misses import FILE, Harvest
from triton_ops.values import Key


def key(m, kernel="add"):
    device = {"kind": "cuda", "name": "NVIDIA H200", "arch": "sm_90", "units": 132, "driver": None}
    return Key(kernel=kernel, problem={"M": m}, identity={}, device=device, cache_state="cold", label=f"M={m}")


def noted(folder, *given):
    harvest = Harvest(folder)
    for m, expected_ms in given:
        harvest.note(key(m), expected_ms)
    harvest.flush()
    return Misses(folder).read()


def test_a_problem_is_kept_once_with_its_count_over_several_processes(tmp_path):
    noted(tmp_path, (1, 0.5), (2, None), (1, None))
    (first, second) = noted(tmp_path, (1, 0.5))
    assert (first.key, first.count, first.expected_ms) == (key(1), 3, 0.5)
    assert (second.key.label, second.count, second.expected_ms) == ("M=2", 1, None)
    assert "" < first.first <= first.last


def test_to_forget_what_is_not_listed_leaves_the_file_as_it_is(tmp_path):
    noted(tmp_path, (1, 0.5), (1, 0.5))
    file = tmp_path / FILE
    before = file.read_bytes() + b"a line of a later version\n"
    file.write_bytes(before)
    assert Misses(tmp_path).forget([key(2).id]) == 0
    assert file.read_bytes() == before
    assert Misses(tmp_path).forget([key(1).id, key(2).id]) == 1
    assert Misses(tmp_path).read() == []


def test_misses_are_ranked_by_count_times_time(tmp_path):
    noted(tmp_path, *[(1, 1.0)] * 10, (2, 50.0), *[(3, None)] * 4)
    ranked = Misses(tmp_path).read()
    assert [miss.key.problem["M"] for miss in ranked] == [3, 2, 1]
    assert [*Misses.costs(ranked).values()] == [102.0, 50.0, 10.0]  # the first is 4 times the median, 25.5


def test_a_file_that_grew_keeps_the_dearest_problems_once(tmp_path, monkeypatch):
    monkeypatch.setattr(misses, "MOST_PROBLEMS", 3)
    for _ in range(2):
        noted(tmp_path, *((m, float(m)) for m in range(1, 9)))
    Misses(tmp_path).shorten()
    assert [miss.key.problem["M"] for miss in Misses(tmp_path).read()] == [8, 7, 6]
    assert len((tmp_path / FILE).read_text().splitlines()) == 3


def test_a_file_over_its_size_is_shortened_by_the_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(misses, "_LARGEST_BYTES", 2000)
    for _ in range(20):
        noted(tmp_path, (1, 1.0), (2, 1.0))
    assert (tmp_path / FILE).stat().st_size < 3000
    assert {miss.count for miss in Misses(tmp_path).read()} == {20}


def test_what_was_served_is_forgotten(tmp_path):
    noted(tmp_path, (1, 1.0), (2, 1.0))
    assert Misses(tmp_path).forget([key(1).id, key(9).id]) == 1
    assert [miss.key for miss in Misses(tmp_path).read()] == [key(2)]


def test_damaged_lines_are_left_out_with_one_warning(tmp_path, caplog):
    noted(tmp_path, (1, 1.0), (2, 1.0))
    path = tmp_path / FILE
    path.write_text(path.read_text().replace('"M": 2', '"M": 3') + "{\n" + '{"key": 3}\n' + "torn")
    assert [miss.key for miss in Misses(tmp_path).read()] == [key(1)]
    assert caplog.text.count("lines are ignored") == 1


@pytest.mark.parametrize("blocked", ["file", "fifo"])
def test_what_cannot_be_written_or_read_holds_up_nothing(tmp_path, blocked, caplog):
    folder = tmp_path / "cache"
    if blocked == "file":
        folder.write_text("a file where the folder should be")
    else:
        folder.mkdir()
        os.mkfifo(folder / FILE)
    assert noted(folder, (1, 1.0)) == []
    assert "cannot be written" in caplog.text


def test_after_a_write_that_fails_later_misses_are_written(tmp_path, caplog):
    folder = tmp_path / "cache"
    folder.write_text("")
    harvest = Harvest(folder)
    for name in ("lost", "lost too"):
        harvest.note(key(1, name))
        harvest.flush()
    assert caplog.text.count("cannot be written") == 1
    folder.unlink()
    harvest.note(key(1, "kept"))
    harvest.flush()
    assert [miss.key.kernel for miss in Misses(folder).read()] == ["kept"]


def test_notes_of_many_threads_all_count(tmp_path):
    def serve():
        for _ in range(100):
            Misses(tmp_path).note(key(1), 1.0)

    threads = [threading.Thread(target=serve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    misses.flush_misses()
    assert Misses(tmp_path).read()[0].count == 800


def test_the_thread_writes_without_being_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(misses, "_FIRST_WAIT_S", 0.01)
    written, write, own = threading.Event(), Harvest.flush, Harvest(tmp_path)
    # Threads of other tests write, too.
    monkeypatch.setattr(Harvest, "flush", lambda harvest: (write(harvest), harvest is own and written.set()))
    own.note(key(1))
    assert written.wait(ENOUGH_S)
    assert len(Misses(tmp_path).read()) == 1


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_writes_only_its_own(tmp_path):
    Misses(tmp_path).note(key(1))
    child = os.fork()
    if child == 0:
        Misses(tmp_path).note(key(2))
        misses.flush_misses()
        os._exit(0)
    os.waitpid(child, 0)
    misses.flush_misses()
    assert sorted((miss.key.problem["M"], miss.count) for miss in Misses(tmp_path).read()) == [(1, 1), (2, 1)]


def test_lines_that_cannot_be_read_are_told_once_with_what_to_do(tmp_path, cli):
    noted(tmp_path, (1, 1.0))
    with (tmp_path / FILE).open("a") as file:
        file.write("notes of mine\n")
    done = cli("cache", "misses", "--clear", "--cache-dir", str(tmp_path))
    assert " ".join(done.err.split()).count("delete those lines, or the file, if nobody needs them") == 1
    assert Misses(tmp_path).read() == []


def test_a_file_of_somebody_else_is_not_emptied(tmp_path):
    (tmp_path / FILE).write_text("notes of mine\n")
    assert Misses(tmp_path).clear() == []
    assert (tmp_path / FILE).read_text() == "notes of mine\n"


def test_a_key_that_no_json_can_hold_costs_its_own_note_only(tmp_path, caplog):
    class OwnNumber(float):
        """Python's JSON takes it for a number, and the encoder of lines does not."""

    harvest = Harvest(tmp_path)
    harvest.note(replace(key(1), problem={"n": OwnNumber(1.5)}))
    harvest.note(key(2))
    harvest.flush()
    assert [miss.key.id for miss in Misses(tmp_path).read()] == [key(2).id]
    assert "cannot be noted" in caplog.text
