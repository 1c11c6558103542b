"""TODO of test_hostile_files.py"""

import json

import pytest
from benchmarks.robustness.hostile_files import attack, attacks

from triton_ops.base import plain as _plain
from triton_ops.records import (
    lockfile,
)


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
