"""Compiling ahead of a search, with the real compiler for a GPU that is not here; only the launches are planned."""

from __future__ import annotations

import time

import pytest

from tests.limits import ENOUGH_S

pytest.importorskip("triton")

from benchmarks.robustness.planted import fault_of, product, product_kernel, product_space
from benchmarks.robustness.process_faults import GOOD

from tests.runs import ID, begun
from triton_ops.backend import Arguments, TritonCompiler, TritonKernel
from triton_ops.compilation import CompilePool
from triton_ops.device import DeviceSpec, Machine, Target
from triton_ops.records import Run, RunLog
from triton_ops.records.run_log import Preview
from triton_ops.request import Budget, Effort
from triton_ops.search import make_searcher
from triton_ops.space import ConfigSpace
from triton_ops.tuner import Silent, TuningLoop
from triton_ops.values import Measurement, Status, Trial

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]

KERNEL = TritonKernel(product_kernel, lambda meta: (1,), outputs=("c",))  # the operation's own grid needs torch


class Planned:
    """A station whose times are the configs' tile sizes."""

    lost = None

    def __init__(self):
        self.tried = []

    def attempt(self, config, best):
        self.tried.append(config)
        time.sleep(0.01)
        return Trial(config, Status.OK, Measurement((float(config["BM"] * config["BN"]),), "planned"))

    def finals(self, final):
        raise AssertionError("not asked for here")

    def close(self):
        """Nothing."""


def searched(space, searcher=None, previews=0, log=None, **more):
    station, log = Planned(), log or RunLog()
    arguments = Arguments(keyword=dict(product.problem().arguments))
    searcher = searcher or make_searcher("exhaustive", space, 0)
    with CompilePool(TritonCompiler(KERNEL, arguments, Target.named("sm_90")), workers=2) as pool:
        machine = Machine.of(DeviceSpec.named("NVIDIA H200"))
        search = TuningLoop(
            space=space,
            searcher=searcher,
            effort=Effort(name="free", **{"worthwhile": 0.0, "previews": previews, **more}),
            log=log,
            listener=Silent(),
            pool=pool,
            machine=machine,
        )
        search.prepare([])
        search.run(station)
    return search, station, search.feed


def test_every_config_ends_in_one_trial_and_only_what_compiled_is_launched():
    planted = ["wrong", "ptxas fails", "LLVM ends the process"]
    space = product_space(planted)
    search, station, feed = searched(space)
    assert set(search.trials) == set(space)
    assert Trial.totals(list(search.trials.values())) == {"ok": 5, "compile": 1, "crash": 1}
    ended = {fault_of(config): trial for config, trial in search.trials.items() if not trial.ok}
    assert "ptxas" in ended["ptxas fails"].error
    assert "LLVM ERROR" in ended["LLVM ends the process"].error
    assert {fault_of(config) for config in station.tried} == {GOOD, "wrong"}
    assert all(trial.compile_s > 0 and trial.resources.binary for trial in search.trials.values() if trial.ok)
    assert feed.waited_s > 0
    assert search.stopped == "complete"


def spilling(*tiles, first=(64, 64, 4)):
    return ConfigSpace.from_configs([{"BM": m, "BN": n, "num_warps": w, "FAULT": 0} for m, n, w in (first, *tiles)])


def test_a_config_that_spills_is_deferred_where_others_work_and_is_counted():
    space = spilling((128, 128, 2))
    search, station, _ = searched(space)
    assert [config["BM"] for config in station.tried] == [64]
    (dropped,) = [trial for trial in search.trials.values() if not trial.ok]
    assert dropped.status is Status.DEFERRED
    assert Trial.totals(list(search.trials.values())) == {"ok": 1, "deferred": 1}
    assert dropped.error.startswith("others worked: ")
    search, station, _ = searched(space, thorough=True)
    assert [config["BM"] for config in station.tried] == [64, 128], "thorough: it is tried, at last"
    assert search.trials[space.default_config].ok


def test_a_default_that_spills_is_launched_like_any_other():
    search, station, _ = searched(spilling((64, 64, 4), first=(128, 128, 2)))
    assert {config["BM"] for config in station.tried} == {64, 128}
    assert search.trials[search.default].ok, "else nobody knows what the winner gains"


def test_a_budget_of_trials_is_kept_and_asks_for_no_more_than_it_needs():
    space = product_space([])
    search, _, feed = searched(space, budget=Budget(trials=3))
    assert (len(search.trials), search.stopped) == (3, "trials")
    assert feed.held <= 1


def test_previews_fill_spare_time_and_what_cannot_run_is_never_proposed(tmp_path):
    axes = {"BM": [64, 128, 256], "BN": [64, 128, 256], "num_warps": [4, 8], "num_stages": [2, 3, 4, 5], "FAULT": [0]}
    space = ConfigSpace(axes)
    seen, previews = {}, set()
    searcher = make_searcher("auto", space, 0)
    learn, want = searcher.take_previews, searcher.wanted_previews

    def taken(found):
        seen.update((one.config, one) for one in found)
        learn(found)

    def wanted(count):
        previews.update(found := want(count))
        return found

    searcher.take_previews, searcher.wanted_previews = taken, wanted
    search, station, _ = searched(space, searcher, previews=12, log=begun(tmp_path), budget=Budget(trials=8))
    assert len(search.trials) == 8
    assert 0 < len(previews) <= 12
    assert len(seen) > len(search.trials), "some were previewed only"
    logged = {
        event.compiled.config for event in Run.read(tmp_path / f"{ID}.jsonl").events if isinstance(event, Preview)
    }
    assert logged
    assert logged <= previews & seen.keys()
    fits = [one for one in seen.values() if one.launchable and one.resources is not None]
    assert all(one.launch and one.resident >= 1 for one in fits)
    assert len({seen[config].launch for config in station.tried}) == len(station.tried)


def test_a_preview_that_is_proposed_later_is_compiled_once_and_gives_way_to_proposals():
    arguments = Arguments(keyword=dict(product.problem().arguments))
    configs = list(ConfigSpace({"BM": [64, 128], "BN": [64, 128], "num_warps": [4], "FAULT": [0]}))
    with CompilePool(TritonCompiler(KERNEL, arguments, Target.named("sm_90")), workers=1) as pool:
        previews = [pool.submit(config, spare=True) for config in configs[:3]]
        proposed = pool.submit(configs[3])
        assert proposed.result(timeout=ENOUGH_S).launchable
        assert not previews[2].done()
        assert pool.submit(configs[2]) is previews[2]
        assert previews[2].result(timeout=ENOUGH_S).compile_s > 0
        assert all(future.result(timeout=ENOUGH_S).launch for future in previews)
