"""Recordings and cache files that are too large are refused unread."""

import pytest

from triton_ops.device import Calibration
from triton_ops.exceptions import RecordingError, TritonKernelError
from triton_ops.records import (
    RECORDS,
    DirectoryStore,
    Lockfile,
    MemoryStore,
    Misses,
    Quarantine,
    Run,
)
from triton_ops.records.bundle import import_records
from triton_ops.typed.problem import parse_space
from triton_ops_lab.recording import read_recording

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


def test_a_cache_file_of_another_tuner_is_bounded_too(tmp_path, monkeypatch):
    monkeypatch.setattr("triton_ops.base.plain._MOST_CONTAINERS", 100)
    path = tmp_path / "cache.json"
    path.write_text('{"tune_params": ' + "[" * 101)
    with pytest.raises(RecordingError, match="more than 100 lists and objects"):
        read_recording(path)
