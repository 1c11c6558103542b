"""One space screened on several GPUs: simulated GPUs with planted times, faults and modes, behind the real loop."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.runs import ID, head
from triton_ops import DeviceError, SettingsError, operation, tune
from triton_ops.device import DeviceSpec, Turns
from triton_ops.device import probing as chosen
from triton_ops.evaluation import SideBySide, StationFacts, at_once, fastest_screening
from triton_ops.evaluation.several_gpus import DefaultTimes
from triton_ops.exceptions import TargetError
from triton_ops.records import RunLog, Tried, read_run
from triton_ops.records import TrialOrigin as Origin
from triton_ops.request import Budget, RunningBudget, effort_of, make_request
from triton_ops.request.effort import PRESETS
from triton_ops.search import make_searcher
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner import Silent, TuningLoop, stations, tune_request
from triton_ops.tuner.proposals import DirectFeed
from triton_ops.values import Compiled, Measurement, Status, Trial

SPACE = ConfigSpace({"n": list(range(1, 41))})
DEFAULT = Config(n=20)
EFFORT = PRESETS["quick"]


_JOINED = 6  # trials


def wait_until(holds, seconds=60.0, strict=True):
    """Wait until something holds, which another thread makes true; one that is not strict goes on in the end."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            assert not strict, "the other GPU has not joined"
            return
        time.sleep(0.001)


class Gpu:
    """A simulated GPU: config n takes 1 + n/100 ms there, times `slower`, and noise of a thousandth.

    Args:
        slower: What its times are multiplied with.
        fails: The configs that fail there, with the status of their trials.
        skewed: What the times of even configs are multiplied with, the default's excepted.
        mode: The mode of its times.
        turns: The config that cannot be captured there, from which on the mode is `event-cold`.
        together: What the second trial waits for.
        after: A GPU that is to take part: the sixth trial here waits until that one has tried so many configs too.
        others: The further GPUs of the search, which the sixth trial here waits for as far as they are opened: what
            becomes of them is then heard before the search is over.
        raises: What each trial raises.
    """

    def __init__(
        self, slower=1.0, fails=None, skewed=1.0, mode="graph-cold", turns=None, together=None, raises=None, after=None
    ):
        self.slower, self.fails, self.skewed, self.mode, self.turns = slower, fails or {}, skewed, mode, turns
        self.together, self.raises, self.after = together, raises, after
        self.rng, self.tried, self.raced, self.closed = random.Random(7), [], [], False
        self.baseline, self.others = None, ()

    @property
    def facts(self):
        return StationFacts(mode=self.mode if self.baseline else None, baseline=self.baseline)

    def attempt(self, config, best):
        self.tried.append(config["n"])
        if self.raises:
            raise self.raises
        if self.together is not None and len(self.tried) == 2:
            self.together.wait()
        if len(self.tried) == _JOINED:
            self.wait_for_others()
        if config["n"] in self.fails:
            return Trial(config, self.fails[config["n"]], error="planted")
        self.baseline = self.baseline or config
        if config["n"] == self.turns:
            self.mode = "event-cold"
        own, its = self.ms(config), self.ms(self.baseline)
        return Trial(config, Status.OK, Measurement((own,) * 3, self.mode), relative=own / its)

    def wait_for_others(self):
        for opened, gpu in self.others:
            assert opened.wait(60.0)
            wait_until(lambda gpu=gpu: len(getattr(gpu, "tried", "one that is not there")) > 1, 0.5, strict=False)
        if self.after is not None:
            wait_until(lambda: len(self.after.tried) >= _JOINED)

    def ms(self, config):
        skew = self.skewed if config["n"] % 2 == 0 and config != DEFAULT else 1.0
        return (1 + config["n"] / 100) * self.slower * skew * self.rng.gauss(1.0, 0.001)

    def finals(self, final):
        self.raced.append(final)
        return fastest_screening(final.trials)

    def close(self):
        self.closed = True


def loop_over(log, feed, budget=None):
    return TuningLoop(
        space=SPACE, searcher=make_searcher("exhaustive", SPACE, 0), budget=RunningBudget(budget or Budget()), log=log,
        listener=Silent(), default=DEFAULT, feed=feed,
    )  # fmt: skip


def searched(gpus, folder, *, compiled=None, budget=None, effort=EFFORT):
    """The space searched whole on `gpus`; the loop, the station and the run."""
    log = RunLog(folder / f"{ID}.jsonl")
    log.begin(head())
    first, *others = [(f"cuda:{at}", gpu) for at, gpu in enumerate(gpus)]
    events = {name: threading.Event() for name, _ in others}
    opens = {name: (lambda name=name, gpu=gpu: opened(gpu, events[name])) for name, gpu in others}
    gpus[0].others = [(events[name], gpu) for name, gpu in others]
    station = SideBySide(first, opens, effort)
    search = loop_over(log, compiled or DirectFeed(), budget)
    search.prepare([])
    try:
        search.run(station)
        facts = station.facts
    finally:
        station.close()
    return search, station, facts, read_run(folder / f"{ID}.jsonl")


def opened(gpu, event):
    event.set()
    if isinstance(gpu, Exception):
        raise gpu
    return gpu


def best_of(search):
    return min((trial.rank, trial.config["n"]) for trial in search.trials.values() if trial.ok)[1]


def test_each_config_is_tried_once_both_gpus_work_at_a_time_and_all_have_the_default_for_their_baseline(tmp_path):
    both = threading.Barrier(2, timeout=60)  # the second config of each waits for that of the other
    gpus = [Gpu(together=both), Gpu(slower=1.004, together=both)]
    search, station, facts, run = searched(gpus, tmp_path)
    assert sorted(config["n"] for config in search.trials) == list(range(1, 41))
    assert len(run.trials) == 40
    assert gpus[0].tried[0] == gpus[1].tried[0] == DEFAULT["n"]
    assert sorted(gpus[0].tried + gpus[1].tried[1:]) == list(range(1, 41))
    assert {gpu.baseline for gpu in gpus} == {DEFAULT}
    assert best_of(search) == 1
    assert all(gpu.closed for gpu in gpus)
    assert station.leader == "cuda:0"
    said = f"screened side by side, {len(gpus[0].tried)} on cuda:0, {len(gpus[1].tried) - 1} on cuda:1"
    assert said in " ".join(facts.notes)
    assert not any("told apart" in note or "aside" in note for note in facts.notes)


def test_a_limit_of_trials_counts_those_that_are_under_way(tmp_path):
    search, *_ = searched([Gpu(), Gpu(), Gpu()], tmp_path, budget=Budget(trials=7))
    assert len(search.trials) == 7
    assert search.stopped == "trials"


def test_a_gpu_whose_default_is_off_is_told_apart_and_what_seemed_good_there_is_screened_again(tmp_path, caplog):
    other = Gpu(slower=1.04, skewed=0.8)
    gpus = [Gpu(after=other), other]  # even configs seem a fifth faster there
    search, _, facts, run = searched(gpus, tmp_path)
    assert best_of(search) == 1
    again = [event.trial.config["n"] for event in run.events if getattr(event, "origin", "") is Origin.REPEATED]
    assert again
    assert all(n % 2 == 0 and n in gpus[0].tried and n in gpus[1].tried for n in again if n > 20)
    assert all(abs(trial.rank - (100 + trial.config["n"]) / 120) < 0.02 for trial in search.trials.values() if
               trial.config["n"] in gpus[0].tried)  # fmt: skip
    assert any("longer on cuda:1 than on cuda:0, more than the noise" in note for note in facts.notes)
    assert "cuda:1 is told apart" in caplog.text


@pytest.mark.parametrize("at", [0, 1])
def test_a_far_slower_gpu_is_put_aside_and_the_finals_run_on_a_sound_one(tmp_path, at):
    gpus = [Gpu(), Gpu(), Gpu()]
    gpus[at] = Gpu(slower=1.5, skewed=0.5)
    search, station, facts, _ = searched(gpus, tmp_path)
    assert best_of(search) == 1
    assert station.leader != f"cuda:{at}"
    assert len(gpus[at].tried) < 12
    assert any(f"cuda:{at} was put aside: the default takes 50 % longer" in note for note in facts.notes), facts.notes


def test_what_fails_on_another_gpu_only_is_the_fault_of_that_gpu(tmp_path):
    broken = Gpu(fails=dict.fromkeys(range(1, 41, 2), Status.CRASH))
    search, _, facts, _ = searched([Gpu(), broken], tmp_path)
    assert all(trial.ok for trial in search.trials.values())
    assert any("cuda:1 was put aside: config (n=" in note for note in facts.notes)
    assert len(search.trials) == 40


def test_what_fails_on_each_gpu_fails_and_costs_no_gpu(tmp_path):
    fails = {5: Status.WRONG, 6: Status.CRASH, 7: Status.COMPILE}
    search, _, facts, run = searched([Gpu(fails=fails), Gpu(fails=fails)], tmp_path)
    assert {config["n"]: trial.status for config, trial in search.trials.items() if not trial.ok} == fails
    assert not any("aside" in note for note in facts.notes)
    assert sum(isinstance(event, Tried) for event in run.events) == 40


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (DeviceError("out of memory"), "cuda:1 was put aside: out of memory"),
        (OSError("no process"), "cuda:1 was put aside: OSError: no process"),
        (Gpu(fails={20: Status.RESOURCES}), "config (n=20) does not run there, and runs on cuda:0"),
        (Gpu(mode="event-cold"), "it times in another mode, event-cold"),
        (Gpu(raises=TargetError("its process ended")), "cuda:1 was put aside: its process ended"),
    ],
)  # fmt: skip
def test_a_gpu_that_cannot_take_part_is_put_aside_and_the_others_go_on(tmp_path, other, said):
    first = Gpu()
    search, _, facts, _ = searched([first, other], tmp_path)
    assert sorted(first.tried) == list(range(1, 41))
    assert len(search.trials) == 40
    assert any(said in note for note in facts.notes), facts.notes


@pytest.mark.parametrize("there", [0, 1])
def test_a_config_that_cannot_be_captured_leaves_all_times_in_one_mode(tmp_path, there):
    gpus = [Gpu(turns=7), Gpu(turns=7)]
    gpus[there].turns = None  # so that only one of the two finds out, whoever tries it
    search, *_ = searched(gpus, tmp_path)
    assert len(search.trials) == 40
    assert {trial.measurement.mode for trial in search.trials.values()} == {gpus[0].mode}
    assert best_of(search) == 1


def test_a_default_that_fails_everywhere_leaves_the_first_config_that_works_as_the_baseline_of_all(tmp_path):
    fails = {20: Status.RESOURCES}
    other = Gpu(fails=fails)
    gpus = [Gpu(fails=fails, after=other), other]
    search, _, facts, _ = searched(gpus, tmp_path)
    assert gpus[0].baseline == gpus[1].baseline != DEFAULT
    assert len(gpus[1].tried) >= _JOINED
    assert not any("aside" in note for note in facts.notes)
    assert [trial.config["n"] for trial in search.trials.values() if not trial.ok] == [20]


def test_an_error_of_the_first_gpu_ends_the_search_and_closes_all(tmp_path):
    gpus = [Gpu(raises=TargetError("the reference ended the process")), Gpu()]
    with pytest.raises(TargetError, match="the reference ended"):
        searched(gpus, tmp_path)
    assert all(gpu.closed for gpu in gpus)


class Programs(DirectFeed):
    """A feed of configs of which each two neighbours are one program."""

    def next(self, run_deferred, patient=True):
        found = super().next(run_deferred, patient)
        if found is None:
            return None
        return replace(found, compiled=Compiled(found.config, Status.OK, launch=f"program {found.config['n'] // 2}"))


def test_configs_of_one_program_go_to_one_gpu(tmp_path):
    other = Gpu()
    gpus = [Gpu(after=other), other]
    searched(gpus, tmp_path, compiled=Programs())
    counted = [gpus[0].tried, gpus[1].tried[1:]]
    assert all(counted)
    assert not {n // 2 for n in counted[0]} & {n // 2 for n in counted[1]}


class AfterAll(DirectFeed):
    """A feed whose next config is compiled once all those before it are kept."""

    def __init__(self):
        super().__init__()
        self.given, self.kept = 0, lambda: 0

    @property
    def ready(self):
        return self.kept() >= self.given

    def next(self, run_deferred, patient=True):
        assert self.ready, "the loop waits here, and keeps nothing meanwhile"
        self.given += 1
        return super().next(run_deferred, patient)


def test_what_has_finished_is_kept_while_nothing_is_compiled():
    feed = AfterAll()
    search = loop_over(RunLog(), feed)
    feed.kept = lambda: len(search.trials)
    search.prepare([])
    station = SideBySide(("cuda:0", Gpu()), {"cuda:1": Gpu}, EFFORT)
    search.run(station)
    station.close()
    assert len(search.trials) == 40


def test_each_gpu_has_a_config_to_try_and_one_to_follow_it():
    hold = threading.Event()

    class Held(Gpu):
        def attempt(self, config, best):
            hold.wait(60)
            return super().attempt(config, best)

    station = SideBySide(("cuda:0", Held()), {"cuda:1": Held}, EFFORT)
    assert station.room == 2
    for n in (20, 1):
        station.begin(Config(n=n), None)
    assert station.room == 0
    hold.set()
    done = []
    while len(done) < 2:
        done += station.take(lambda: False)
    assert [trial.config["n"] for trial in done] == [20, 1]
    while station.room < 4:  # the other one has the default for its baseline
        time.sleep(0.001)
    assert station.take(lambda: True) == []
    station.close()


class FourAtATime:
    """Tries four configs, which all finish at one time."""

    facts = StationFacts()

    def __init__(self):
        self.begun = []

    @property
    def room(self):
        return 4 - len(self.begun)

    def begin(self, config, best, program=None):
        self.begun.append(config)

    def take(self, ready):
        done, self.begun = self.begun, []
        return [Trial(config, Status.OK, Measurement((1.0,), "host")) for config in done]

    def again(self, trials):
        return []


def test_one_gpu_tries_the_next_config_while_the_search_thinks_and_the_last_trial_is_on_disk(tmp_path, monkeypatch):
    gpu, kept, lost = Gpu(), TuningLoop._keep, []
    path = tmp_path / f"{ID}.jsonl"

    def attempt(self, config, best):
        lost.append(len(self.tried) - len(read_run(path).trials))
        return tried(self, config, best)

    def keep(self, trial, *more):
        if not self.trials:
            wait_until(lambda: len(gpu.tried) == 2)
        kept(self, trial, *more)

    tried = Gpu.attempt
    monkeypatch.setattr(Gpu, "attempt", attempt)
    monkeypatch.setattr(TuningLoop, "_keep", keep)
    search, station, facts, run = searched([gpu], tmp_path)
    assert lost == [0] * 40
    assert sorted(gpu.tried) == sorted(config["n"] for config in run.trials) == list(range(1, 41))
    assert (search.stopped, best_of(search)) == ("complete", 1)
    assert facts == gpu.facts
    assert station.leader == "cuda:0"


@pytest.mark.parametrize(
    ("overlaps", "apart", "kind", "own"),
    [
        (True, True, "cuda", True),
        (True, True, "cpu", False),
        (True, False, "cuda", False),
        (False, True, "cuda", False),
    ],
)
def test_only_a_gpu_that_another_process_uses_works_while_the_search_thinks(monkeypatch, overlaps, apart, kind, own):
    class Station(Gpu):
        facts = StationFacts(apart=apart)

    device = DeviceSpec(kind=kind, name="it", arch="sm_90", units=132)
    assignment = SimpleNamespace(device=device, device_name=f"{kind}:0")
    monkeypatch.setattr(stations, "assignment_of", lambda *_: assignment)
    monkeypatch.setattr(stations, "begin_station", lambda *_, **__: Station)
    task = SimpleNamespace(device_name=f"{kind}:0", space=SPACE)
    opens = stations.Stations(
        tasks=[task], effort=EFFORT, cold=True, isolate=None, reuse=False, turns=Turns(f"{kind}:0"), gate=None,
        known=(), overlaps=overlaps,
    ).begin([None], lambda _: None)  # fmt: skip
    station = opens()
    assert (at_once(station) is station) == own
    assert at_once(station).room == (2 if own else 1)
    station.close()


def test_trials_that_have_finished_together_reach_the_disk_together(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("triton_ops.base.appending.sync", synced.append)
    log = RunLog(tmp_path / f"{ID}.jsonl")
    log.begin(head())
    search = loop_over(log, DirectFeed())
    search.prepare([])
    before = len(synced)
    search.run(FourAtATime())
    assert len(read_run(tmp_path / f"{ID}.jsonl").trials) == 40
    assert len(synced) - before == 10


def test_the_noise_floor_is_half_a_percent_or_what_the_defaults_show():
    def noted(off, noise):
        times, rng = DefaultTimes(), random.Random(3)
        for _ in range(30):
            for gpu, ms in (("a", 1.0), ("b", off)):
                samples = (ms * rng.gauss(1.0, noise),) * 3
                times.note(gpu, Trial(DEFAULT, Status.OK, Measurement(samples, "host"), relative=1.0))
        return times.apart("b", "a")

    assert noted(1.004, 0.0005) == 0.0  # within the zone
    assert noted(1.02, 0.1) == 0.0  # within the noise
    assert noted(1.02, 0.002) == pytest.approx(0.02, abs=0.002)
    assert noted(0.98, 0.002) == pytest.approx(-0.02, abs=0.002)


@operation(space={"step": [1, 2, 4]}, arguments=lambda n=64: {"n": n})
def add_up(n, step):
    return sum(sum(range(at, n, step)) for at in range(step))


def test_a_whole_tune_over_two_workers_has_a_record_and_a_run_log_as_any_other(tmp_path):
    request = make_request(add_up, shape=(2000,), device="cpu")
    plan = replace(effort_of(), name="exhaustive", search="exhaustive")
    found = tune_request(
        request, request.space(None), plan, cache_dir=tmp_path, listener=Silent(), beside=[request.on("cpu")]
    )
    assert {trial.config["step"]: trial.status for trial in found.trials} == dict.fromkeys((1, 2, 4), Status.OK)
    assert found.place.startswith("in a process of its own")
    assert any("the finalists raced on cpu" in note for note in found.notes), found.notes
    assert tune(add_up, shape=(2000,), device="cpu", cache_dir=tmp_path, listener=Silent()).from_cache


def test_what_several_gpus_cannot_have_is_one_line_before_any_work(monkeypatch):
    two = tuple(DeviceSpec(kind="cuda", name="H200", arch="sm_90", units=132) for _ in range(2))
    monkeypatch.setattr(chosen, "gpus_here", lambda: two)
    for more, error, said in (
        ({"gpus": "all", "device": "cuda:0"}, SettingsError, "gpus and the device 'cuda:0' do not go together"),
        ({"gpus": [0, 1], "isolate": False}, SettingsError, "several GPUs need processes of their own"),
        ({"gpus": "0,0"}, SettingsError, "names GPU 0 twice"), ({"gpus": ""}, SettingsError, "names no GPU"),
        ({"gpus": [5]}, DeviceError, "there is no GPU 5"),
    ):  # fmt: skip
        with pytest.raises(error, match=said):
            tune(add_up, **more)
    with pytest.raises(SettingsError, match="these arguments are on cpu"):
        make_request(lambda n, step: n, (3,)).on("cuda:1")
