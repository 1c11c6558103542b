"""Simulated tunes: the loop, the feed and the compilers' queue of a tune on a clock of its own."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest

from triton_ops.cost_model import Readings
from triton_ops.exceptions import SpaceError
from triton_ops.kernel_ir import Access, KernelWork, LaunchWork
from triton_ops.kernel_ir.kernel_work import Argument
from triton_ops.kernel_ir.trace import LoopWork
from triton_ops.request import Budget
from triton_ops.request.effort import PRESETS
from triton_ops.search import make_searcher
from triton_ops.space import Config
from triton_ops_lab.recording import read_recording, readings_from, stored_readings
from triton_ops_lab.replayed_search import (
    LiveConditions,
    SimulatedCompilers,
    live_replay,
    priors_for,
    summarise_live,
)

QUICK = PRESETS["quick"]
VALUES = {"a": [1, 2, 4, 8, 16, 32], "b": [1, 2, 4, 8, 16, 32], "num_warps": [2, 4, 8]}
CONFIGS = [{"a": a, "b": b, "num_warps": n} for a in VALUES["a"] for b in VALUES["b"] for n in VALUES["num_warps"]]


def time_of(config):
    return 0.1 * (1 + abs(config["a"] - 8) / 8 + abs(config["b"] - 4) / 4 + abs(config["num_warps"] - 4) / 8)


@pytest.fixture
def file(tmp_path):
    def write(**more):
        rows = [
            {"config": config, "status": "ok", "ms": [[time_of(config)] * 4], "compile_s": 0.2 + 0.01 * config["a"]}
            for config in CONFIGS
        ]
        rows[7] = {"config": CONFIGS[7], "status": "runtime: boom", "compile_s": 0.5}
        content = {"family": "own_bf16", "kind": "own", "shape": [64, 64], "gpu": "NVIDIA H200", "space": VALUES}
        path = tmp_path / "own.json.gz"
        path.write_bytes(gzip.compress(json.dumps({**content, **more, "rows": rows}).encode()))
        return path

    return write


def tune(recording, seed=0, effort=QUICK, search="auto", priors=(), **conditions):
    searcher = make_searcher(search, recording.space, seed, list(priors))
    return live_replay(recording, searcher, effort, LiveConditions(**conditions), seed=seed)


def test_a_simulated_tune_ends_as_a_tune_does(file):
    recording = read_recording(file())
    run = tune(recording)
    assert run.stopped == "settled"
    assert 60 < run.trials < len(CONFIGS)
    assert 0 <= run.regret < 0.2
    assert run.seconds > 3


def test_the_same_seed_is_the_same_tune(file):
    recording = read_recording(file())
    assert tune(recording, seed=3) == tune(recording, seed=3)


def test_a_budget_of_seconds_ends_a_tune_by_the_simulated_clock(file):
    recording = read_recording(file())
    effort = replace(QUICK, budget=Budget(trials=None, seconds=6.0))
    run = tune(recording, effort=effort, search="random", trial_s=0.5)
    assert run.stopped == "seconds"
    assert run.trials < 10


def test_a_race_tries_all_its_picks_however_slowly_they_compile(file):
    recording = read_recording(file())
    trials = {config: replace(trial, compile_s=9.0) for config, trial in recording.trials.items()}
    run = tune(replace(recording, trials=trials), effort=PRESETS["race"], search="ranked", compilers=2)
    assert (run.trials, run.stopped) == (6, "trials")
    late = tune(replace(recording, trials=trials), effort=replace(PRESETS["race"], compiled_first=False), compilers=2)
    assert late.stopped == "seconds"


def test_few_compilers_are_slower_than_many(file):
    recording = read_recording(file())
    few, many = (tune(recording, search="random", compilers=count, worker_s=0.0).seconds for count in (1, 16))
    assert few > many + 2


def test_a_whole_space_is_tried_if_there_is_no_limit(file):
    recording = read_recording(file())
    effort = replace(QUICK, budget=Budget(), worthwhile=0.0)
    run = tune(recording, effort=effort, search="exhaustive", noise=0.0)
    assert run.trials == len(CONFIGS)
    assert run.stopped == "complete"
    assert run.regret == 0


def test_what_is_compiled_first_is_done_first(file):
    recording = read_recording(file())
    compilers = SimulatedCompilers(recording, 0.0, 2)
    slow, quick, late = (compilers.submit(Config(a=a, b=1, num_warps=4)) for a in (32, 1, 1 << 1))
    compilers.wait([slow, quick])
    assert quick.done()
    assert not slow.done()
    assert compilers.now_s == pytest.approx(0.21)
    compilers.advance(compilers.now_s + 1.0)
    assert slow.done()
    assert late.done()
    assert compilers.now_s == pytest.approx(1.21)


def test_a_summary_of_several_tunes(file):
    recording = read_recording(file())
    runs = [tune(recording, seed) for seed in range(3)]
    result = summarise_live("own.json.gz", "auto", runs)
    assert result.trials == round(sum(run.trials for run in runs) / 3, 4)
    assert result.regret_worst == round(max(run.regret for run in runs), 4)
    assert sum(result.stopped.values()) == 3


def work(a, b):
    """A row kernel whose chunk follows `a`."""
    access = Access(
        kind="load", argument=0, element="bf16", item_bytes=2, loop=0, executions=32 / a, tile=32 * a,
        elements=1024.0 * b, distinct=1.0, lines=a, sectors=2.0 * a, run_bytes=64.0 * a, descriptor=False,
        repeats=1.0, known=True, again=-1, shared=(1.0, 2.0, 4.0),
    )  # fmt: skip
    loop = LoopWork(
        parent=-1, entries=1.0, turns=32 / a, most=32 / a, stages=None, by_data=False, plain=10.0, special=0.0
    )
    launch = LaunchWork(
        grid=(4, 1, 1), looked_at=4, arguments=(Argument("x", 1 << 20),), loops=(loop,), accesses=(access,),
        products=(), plain=0.0, special=0.0,
    )  # fmt: skip
    return KernelWork((launch,))


@pytest.fixture
def readings():
    result = Readings(("a", "b"))
    for config in CONFIGS:
        result.works.setdefault(result.key(config), work(config["a"], config["b"]))
    return result


def test_what_was_read_is_kept_and_read_again(readings):
    again = readings_from(json.loads(json.dumps(stored_readings(readings))))
    assert again == readings
    assert not again.silent


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"names": ["a"], "works": [{"values": [1]}]},
        {"names": ["a"], "works": [{"values": []}]},
        {"names": 3, "works": []},
    ],
)
def test_what_cannot_be_read_again_is_refused(plain):
    with pytest.raises(SpaceError, match="cannot be read again"):
        readings_from(plain)


def test_a_recording_brings_what_was_read_of_its_kernel(file, readings):
    assert priors_for(read_recording(file())) == []
    recording = read_recording(file(inferred=stored_readings(readings)))
    (prior,) = priors_for(recording)
    assert len(set(prior.score([Config(config) for config in CONFIGS]))) > 10
    assert tune(recording, priors=[prior]).trials > 0


def test_what_another_version_has_read_is_no_error_of_a_replay(file, readings, caplog):
    plain = stored_readings(readings)
    del plain["works"][0]["work"]["launches"][0]["accesses"][0]["tile"]
    assert priors_for(read_recording(file(inferred=plain))) == []
    assert "own.json.gz is searched without a model" in caplog.text


def test_the_command_simulates_tunes(cli, file, readings):
    path = file(inferred=stored_readings(readings))
    ran = cli("replay", path, "--live", "--undeclared", "--seeds", "2", "--jobs", "1", "--json")
    assert ran.code == 0, ran.err
    (space,) = json.loads(ran.out)["spaces"]
    assert set(space) == {
        "file", "search", "within_1pct", "regret_mean", "regret_worst", "promised", "trials", "seconds", "stopped",
    }  # fmt: skip
    table = cli("replay", path, "--live", "--seeds", "1", "--jobs", "1", "--effort", "full", "--noise", "0").out
    assert "mean regret" in table
    assert "own.json.gz" in table


@pytest.mark.parametrize("words", [("--effort", "heroic"), ("--noise", "-1"), ("--compilers", "0")])
def test_the_command_refuses_what_cannot_be_simulated(cli, file, words):
    assert cli("replay", file(), "--live", *words).code == 2
