"""Runs of a model's tables: shares of the seconds, and winners of neighbouring sizes, with a stand-in for the tunes."""

from types import SimpleNamespace

import pytest

from tests.cpu.serving.test_lora import PLAIN
from tests.cpu.serving.test_model import MIXTRAL
from tests.cpu.serving.test_tables import engines
from triton_ops import Config, ConfigSpace
from triton_ops.records import Lockfile
from triton_ops_serving import tuning
from triton_ops_serving.model import Model
from triton_ops_serving.tables import Place

__all__ = ["engines"]


def tuned_without_time(monkeypatch, engines, tmp_path, problems, budget_s):
    """What `TunedTables` asks for, and its rows, where no row is begun and each run takes 24 s."""
    asked, space = [], ConfigSpace({"block_m": [16, 32]}, default=Config({"block_m": 32}))
    operation = SimpleNamespace(problem=lambda shape: shape, space=lambda _problem: space)

    def tune_many(jobs, *, each_s, budget_s, **_limits):
        asked.append((len(jobs), each_s, budget_s))
        outcome = SimpleNamespace(result=None, status="not begun", error=None)
        return SimpleNamespace(outcomes=[outcome] * len(jobs), elapsed_s=24.0, stopped="")

    monkeypatch.setattr(tuning, "tune_many", tune_many)
    monkeypatch.setattr(tuning, "OPERATIONS", dict.fromkeys(tuning.OPERATIONS, lambda *_of: operation))
    place = Place(device="NVIDIA H200", triton="3.8.0")
    limits = {**dict.fromkeys(tuning.LIMITS), "budget_s": budget_s}
    tables = tuning.TunedTables(place, tmp_path / "lock.json", Model(PLAIN), "uniform", (1, 16, 256), limits, None)
    tables.tune(problems)
    return asked, tables.rows


def test_each_table_has_its_share_of_the_seconds_that_are_left(engines, tmp_path, monkeypatch):
    problems = Model({**MIXTRAL, "torch_dtype": "float16"}).problems("sglang")
    asked, rows = tuned_without_time(monkeypatch, engines, tmp_path, problems, 36.0)
    assert asked == [(3, 6.0, 18.0), (3, 4.0, 12.0)]  # the first took more than its share
    assert [row["config"] for row in rows] == [None] * 6
    assert tuned_without_time(monkeypatch, engines, tmp_path, problems[:1] * 2, None)[0] == [(6, None, None)]


def test_rows_of_adapters_that_were_not_begun_are_the_engines_own(engines, tmp_path, monkeypatch):
    problems = Model(PLAIN, adapters=(16, 4)).problems("vllm")[:1]
    _, (row, *_) = tuned_without_time(monkeypatch, engines, tmp_path, problems, 9.0)
    assert (row["config"], row["ms"], row["verdict"]) == ({"block_m": 32}, None, "it was not begun")
    assert {entry.problem["M"] for entry in Lockfile.read(tmp_path / "lock.json").entries} == {1, 16, 256}


TILES = {16: {16: 9.0, 32: 7.0, 64: 8.0}, 24: {16: 6.0, 32: 5.0, 64: 8.0}, 32: {16: 4.0, 32: 5.0, 64: 3.0}}
"""Milliseconds of each tile, by the size of the row."""


@pytest.fixture
def run(engines, tmp_path, monkeypatch):
    """A function that tunes three rows, of which a first search tries the named tiles; a run takes 10 s."""

    def run(tried, budget_s=None, **result):
        races = []
        space = ConfigSpace({"tile": [16, 32, 64]}, default=Config(tile=16))
        operation = SimpleNamespace(problem=lambda shape: shape, space=lambda _problem: space)

        def outcome(job):
            ms = TILES[job.shape[0]]
            tiles = [each["tile"] for each in job.space] if job.space else tried[job.shape[0]]
            trials = {tile: SimpleNamespace(config=Config(tile=tile), median_ms=ms[tile], ok=True)
                      for tile in tiles}  # fmt: skip
            best = min(tiles, key=ms.__getitem__)
            gain = ms[16] / ms[best]
            return SimpleNamespace(status="tuned", error=None, result=SimpleNamespace(**{
                "default": trials[16], "trials": [*trials.values()], "best_config": {"tile": best}, "gain": gain,
                "gain_interval": (gain, gain), "metrics": SimpleNamespace(latency_ms=ms[best]), "unproven": "",
                "elapsed_s": 1.0, "from_cache": False, "ties": (Config(tile=best),), **result,
            }))  # fmt: skip

        def tune_many(jobs, **limits):
            races.append((limits["budget_s"], {job.shape[0]: job.space and [*job.space] for job in jobs}))
            return SimpleNamespace(outcomes=[outcome(job) for job in jobs], elapsed_s=10.0, stopped="")

        monkeypatch.setattr(tuning, "tune_many", tune_many)
        monkeypatch.setattr(tuning, "OPERATIONS", dict.fromkeys(tuning.OPERATIONS, lambda *_of: operation))
        place, limits = Place(device="NVIDIA H200", triton="3.8.0"), dict.fromkeys(tuning.LIMITS)
        model = Model({**MIXTRAL, "torch_dtype": "float16"})
        limits["budget_s"] = budget_s
        tables = tuning.TunedTables(place, tmp_path / "lock.json", model, "uniform", (32, 16, 24), limits, None)
        tables.tune(model.problems("vllm"))
        return races, {
            row["row"]: ((row["config"] or {}).get("tile"), row["gain"], row["tried"]) for row in tables.rows
        }

    return run


def test_a_row_races_winners_of_its_neighbours_that_it_has_not_tried(run):
    races, rows = run({16: [16], 24: [16, 32], 32: [16, 32, 64]}, 30.0)
    few = [Config(tile=tile) for tile in (16, 32, 64)]
    assert races == [(30.0, {32: None, 16: None, 24: None}), (20.0, {16: few[:2], 24: few})]
    assert rows == {16: (32, 9 / 7, 3), 24: (32, 6 / 5, 5), 32: (64, 4 / 3, 3)}


def test_a_winner_stays_that_its_neighbours_equals(run):
    races, rows = run({16: [16], 24: [16, 32], 32: [16, 32, 64]}, ties=(Config(tile=16), Config(tile=32)))
    assert len(races) == 2
    assert rows == {16: (16, 1.0, 3), 24: (32, 6 / 5, 5), 32: (64, 4 / 3, 3)}


@pytest.mark.parametrize(("tried", "budget_s", "result"), [
    ({16: [16, 32], 24: [16, 32, 64], 32: [16, 32, 64]}, None, {}),
    ({16: [16], 24: [16, 32], 32: [16, 32, 64]}, 10.5, {}),
    ({16: [16], 24: [16, 32], 32: [16, 32, 64]}, None, {"from_cache": True}),
    ({16: [16], 24: [16, 32], 32: [16, 32, 64]}, None, {"default": None}),
    ({16: [16], 24: [16, 32], 32: [16, 32, 64]}, None, {"unproven": "noise hides it"}),
], ids=["all tried", "no seconds", "recalled", "no default", "unproven"])  # fmt: skip
def test_neighbours_are_not_raced(run, tried, budget_s, result):
    assert len(run(tried, budget_s, **result)[0]) == 1
