"""The quarantine holds configs that ended their process, by environment and problem, whatever the file contains."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.records import Quarantine
from triton_ops.space import Config
from triton_ops.values import Key, Measurement, Status, Trial


def some_key(**changes):
    values = {
        "kernel": "k",
        "problem": {"n": 4},
        "identity": {"source": "a"},
        "device": {"kind": "cuda"},
        "cache_state": "cold",
    }
    return Key(**{**values, **changes})


CRASH = Trial(Config(n=1, mode=("a", 2)), Status.CRASH, error="its process was killed by SIGSEGV during its launch")


def test_an_added_config_is_held_by_the_next_quarantine(tmp_path):
    path = tmp_path / "deep" / "some.jsonl"
    first = Quarantine(path)
    assert first.held(CRASH.config) is None
    first.add(CRASH)
    first.add(CRASH)
    assert len(path.read_text().splitlines()) == 1
    held = Quarantine(path).held(Config(mode=("a", 2), n=1))
    assert held.status is Status.CRASH
    assert held.error.startswith("quarantined since 20")
    assert CRASH.error in held.error


@pytest.mark.parametrize("status", [status for status in Status if status not in (Status.CRASH, Status.TIMEOUT)])
def test_only_configs_that_end_a_process_are_held(tmp_path, status):
    result = Quarantine(tmp_path / "some.jsonl")
    measured = Measurement((1.0,), "host") if status is Status.OK else None
    result.add(Trial(Config(n=1), status, measured, error="" if status is Status.OK else "no"))
    assert len(result) == 0
    assert not (tmp_path / "some.jsonl").exists()


def test_another_driver_source_or_problem_is_another_file(tmp_path):
    def name(**changes):
        Quarantine.of(tmp_path, some_key(**changes)).add(CRASH)
        return len(list((tmp_path / "quarantine").iterdir()))

    assert name() == 1
    assert name(cache_state="warm") == 1, "how it is timed does not matter"
    assert name(identity={"source": "mended"}) == 2
    assert name(device={"kind": "cuda", "driver": "newer"}) == 3
    assert name(problem={"n": 5}) == 4
    assert Quarantine.of(None, some_key()).held(CRASH.config) is None


@given(st.lists(st.one_of(st.text(), st.binary().map(str), st.just('{"config": {"n": 2}, "status": "ok"}'))))
def test_a_file_with_any_lines_does_no_harm(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("quarantine") / "some.jsonl"
    Quarantine(path).add(CRASH)
    with path.open("a", encoding="utf-8", errors="replace") as file:
        file.write("\n".join(lines).encode("utf-8", "replace").decode())
    result = Quarantine(path)
    assert result.held(CRASH.config) is not None
    assert len(result) == 1


@pytest.mark.parametrize("config", ['{"n": 9e999}', "[1]", "7", "[" * 100_000, '{"n": {}}'], ids=lambda text: text[:10])
def test_a_line_without_a_valid_config_does_no_harm(tmp_path, config):
    path = tmp_path / "some.jsonl"
    path.write_text(f'{{"status": "crash", "error": "", "at": "now", "config": {config}}}\n')
    Quarantine(path).add(CRASH)
    assert [Quarantine(path).held(CRASH.config).status, len(Quarantine(path))] == [Status.CRASH, 1]


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    (tmp_path / "quarantine").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "triton_ops"):
        Quarantine.of(tmp_path, some_key()).add(CRASH)
    assert "will be run again" in caplog.text
