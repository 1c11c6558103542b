"""What `cache show` and `cache misses` print of a folder, and in which order records are listed."""

import json

import pytest

from tests.records import record
from triton_ops.records import RECORDS, MemoryStore, Timing, store_in
from triton_ops.records.misses import Harvest
from triton_ops.space import Config


@pytest.mark.parametrize("store_of", [lambda _: MemoryStore(RECORDS), store_in], ids=["memory", "folder"])
def test_the_records_of_a_store_are_ordered_by_their_ids_whenever_they_came(store_of, tmp_path):
    store = store_of(str(tmp_path))
    records = sorted((record(kernel) for kernel in "abcdef"), key=lambda each: each.id, reverse=True)
    for each in records:
        store.put(each)
    assert [each.id for each in store] == [each.id for each in reversed(records)]


def test_one_record_is_shown_whole_and_several_in_a_line_each(cli, tmp_path):
    store = store_in(str(tmp_path))
    store.put(record("add", default=Config(BLOCK=16), default_timing=Timing(1.5, 1.5, 1.5, 50)))
    alone = cli("cache", "show", "--cache-dir", tmp_path).out
    assert alone.splitlines()[:2] == [f"id          {record('add').id}", "kernel      add"]
    store.put(record("mul"))
    both = cli("cache", "show", "--cache-dir", tmp_path).out.splitlines()
    assert sorted(line.split()[1] for line in both[1:]) == ["add", "mul"]
    assert cli("cache", "show", "add", "--cache-dir", tmp_path).out == alone


def test_misses_are_listed_by_their_cost_and_cleared(cli, tmp_path):
    harvest = Harvest(tmp_path)
    harvest.note(record("cheap").key, 0.25)
    harvest.note(record("unknown").key, None)
    for _ in range(9):
        harvest.note(record("dear").key, 0.5)
    harvest.flush()
    header, *rows = cli("cache", "misses", "--cache-dir", tmp_path).out.splitlines()
    assert [row.split()[1:4] for row in rows] == [["9", "0.5", "dear"], ["1", "-", "unknown"], ["1", "0.25", "cheap"]]
    assert "there are no misses" not in header
    cleared = cli("cache", "misses", "--clear", "--cache-dir", tmp_path)
    assert (len(cleared.out.splitlines()), cleared.err) == (4, "3 removed\n")
    empty = cli("cache", "misses", "--cache-dir", tmp_path)
    assert f"there are no misses in {tmp_path}" in " ".join(empty.err.split())
    assert json.loads(cli("cache", "misses", "--json", "--cache-dir", tmp_path).out)["items"] == []
