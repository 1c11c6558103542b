"""Candidates in a process of their own: what they do to it ends one trial, and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
from benchmarks.robustness.planted import ON_CPU, fault_of, sums
from benchmarks.robustness.process_faults import GOOD, PROCESS_FAULTS, nap, sums_space, workers_of
from benchmarks.robustness.process_kills import CONFIGS, WINNER, Tune, gone, killed

from tests.limits import SharedLimit, eventually
from tests.torchless import (
    CalledWhenUnpacked,
    aborts,
    dies_in_the_race,
    never_ends,
    raises,
    says_and_exits,
    says_what_is_imported,
)
from triton_ops import (
    FunctionKernel,
    KernelTypeError,
    Problem,
    SettingsError,
    Status,
    TargetError,
    release_processes,
    tune,
)
from triton_ops.backend import Arguments, CandidateError, Packed, portable
from triton_ops.device import probe
from triton_ops.evaluation import Assignment, Stations
from triton_ops.evaluation.idle_worker import Needs
from triton_ops.evaluation.idle_worker import new as new_worker
from triton_ops.evaluation.isolated import Isolated
from triton_ops.evaluation.questions import Attempt, Setup, StationStep, WorkerAnswer
from triton_ops.processes import WorkerLostError
from triton_ops.request import Patience, TuneOptions
from triton_ops.request.request import CopiedArguments
from triton_ops.space import Config
from triton_ops.values import Measurement, Trial

PATIENCE = Patience(launch_s=2.0)


@pytest.fixture(autouse=True)
def _no_worker_is_left():
    release_processes()  # a worker that an earlier test of another file has kept
    yield
    release_processes()
    assert workers_of(os.getpid()) == []


@pytest.mark.processes
def test_every_fault_of_a_process_ends_one_trial_and_is_not_run_again(tmp_path):
    def tuned(**more):
        space = sums_space(list(PROCESS_FAULTS))
        limits = {"trials": 99, "budget_s": 600.0}  # more seconds than the busiest machine needs for a few configs
        return tune(
            nap, space=space, device="cpu", isolate=True, patience=PATIENCE, cache_dir=tmp_path, **limits, **more
        )

    result = tuned()
    outcome = {fault_of(trial.config): trial for trial in result.trials if fault_of(trial.config) != GOOD}
    assert {fault: trial.status for fault, trial in outcome.items()} == PROCESS_FAULTS
    assert all(trial.ok for trial in result.trials if fault_of(trial.config) == GOOD)
    assert result.best_config == {"ms": 2.0, "fault": GOOD}
    assert result.place.startswith("in a process of its own, ")
    assert "SIGSEGV" in outcome["segmentation fault"].error
    assert "2 s" in outcome["endless loop"].error

    again = tuned(force=True)
    held = {fault_of(trial.config) for trial in again.trials if trial.error.startswith("quarantined since 20")}
    assert held == {fault for fault, status in ON_CPU.items() if status in (Status.CRASH, Status.TIMEOUT)}
    assert {fault_of(t.config): t.status for t in again.trials if fault_of(t.config) in held} == {
        fault: ON_CPU[fault] for fault in held
    }
    assert again.place == "in a process of its own"


@pytest.mark.processes
def test_every_wrong_result_in_a_worker_ends_one_trial_and_the_winner_stays():
    wrong = {fault: status for fault, status in ON_CPU.items() if fault not in PROCESS_FAULTS}
    result = tune(sums, space=sums_space(list(wrong)), isolate=True, trials=99, budget_s=600.0)
    outcome = {fault_of(trial.config): trial.status for trial in result.trials if fault_of(trial.config) != GOOD}
    assert outcome == wrong
    assert all(trial.ok for trial in result.trials if fault_of(trial.config) == GOOD)
    assert result.best_config == {"ms": 2.0, "fault": GOOD}
    assert result.verified.startswith("the reference")


@pytest.mark.processes
def test_a_worker_killed_from_outside_costs_no_config(tmp_path):
    stop = threading.Event()
    kills = []

    def kill():
        while not stop.wait(0.01) and len(kills) < 1:
            for pid in workers_of(os.getpid()):
                if any('"type": "trial"' in path.read_text() for path in tmp_path.glob("runs/*/*.jsonl")):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        kills.append(pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        result = tune(nap, space=sums_space([]), device="cpu", isolate=True, cache_dir=tmp_path)
    finally:
        stop.set()
        thread.join()
    assert len(kills) == 1
    assert {trial.status for trial in result.trials} == {Status.OK}
    assert result.best_config == {"ms": 2.0, "fault": GOOD}
    assert "1 ended by what ran in them" in result.place


@pytest.mark.processes
def test_a_finalist_that_dies_in_the_race_is_found_and_the_others_race_again(caplog):
    space = [{"ms": 3.0, "deadly": False}, {"ms": 2.9, "deadly": True}, {"ms": 1.0, "deadly": False}]
    result = tune(dies_in_the_race, space=space, device="cpu", isolate=True)
    assert result.best_config == {"ms": 1.0, "deadly": False}
    assert "the last comparison starts again" in caplog.text
    assert result.noise > 0, "the living raced"
    (dead,) = [trial for trial in result.trials if not trial.ok]
    assert (dead.config["deadly"], dead.status) == (True, Status.CRASH)


def test_a_finalist_that_fails_in_the_race_ends_as_in_its_trial():
    launches = []

    def grows(*, ms, leaks):
        launches.extend([None] * leaks)
        if leaks and len(launches) > 30:
            raise MemoryError("planted")
        time.sleep(ms * 1e-3)

    result = tune(grows, space=[{"ms": 3.0, "leaks": 0}, {"ms": 2.9, "leaks": 1}], device="cpu", isolate=False)
    (failed,) = (trial for trial in result.trials if not trial.ok)
    assert (failed.status, failed.error) == (Status.RESOURCES, "MemoryError: planted")


@pytest.mark.processes
def test_a_function_that_no_module_holds_is_sent_by_value():
    offset = 3

    def shifted(x, *, n):
        time.sleep(1e-3)
        return x + offset

    result = tune(shifted, (1.0,), space={"n": [1, 2]}, device="cpu", isolate=True)
    assert result.place == "in a process of its own"
    assert len(result.all_results) == 2


def large_is_whole(x, out, block=1):
    out[:] = x.sum()


@pytest.mark.processes
def test_memory_that_a_worker_cannot_map_is_sent_as_bytes(monkeypatch):
    torch = pytest.importorskip("torch")
    sizes = []
    monkeypatch.setattr(portable, "_handle_of", lambda storage: sizes.append(storage.nbytes()) or (b"none", 0))
    x, out = torch.ones(1 << 18), torch.zeros(4)
    result = tune(
        large_is_whole, args=(x, out), space={"block": [1, 2]}, reference=lambda x, out: out.copy_(x.sum()),
        device="cpu", isolate=True, trials=2, keep=False,
    )  # fmt: skip
    assert sizes == [4 << 18]
    assert result.best_config in ({"block": 1}, {"block": 2})


@pytest.mark.processes
def test_a_script_is_not_run_again_in_its_worker(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import time\nfrom triton_ops import tune\nprint('runs')\n"
        "def work(*, n):\n    time.sleep(n * 1e-3)\n"
        "found = tune(work, space={'n': [1, 3]}, device='cpu', isolate=True)\n"
        "print(found.best_config, found.place)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout == "runs\n{'n': 1} in a process of its own\n", done.stderr


@pytest.mark.processes
@pytest.mark.usefixtures("steady_clock")
def test_a_kernel_that_cannot_be_sent_is_refused_or_runs_inline_and_says_so(caplog):
    held = threading.Lock()

    def locked(*, n):
        with held:
            pass

    with pytest.raises(KernelTypeError, match="cannot run in a process of its own: it cannot be sent"):
        tune(locked, space={"n": [1, 2]}, device="cpu", isolate=True)
    assert tune(locked, space={"n": [1, 2]}, device="cpu").place.startswith("inline")
    assert tune(locked, space={"n": [1, 3]}, device="cpu", isolate=False).place == "inline, as asked"


def assignment(reference=None, **changes) -> Assignment:
    kernel = FunctionKernel(nap)
    given = Arguments()
    values = {
        "kernel": kernel, "problem": Problem("nap"), "device": probe("cpu"), "device_name": "cpu",
        "arguments": CopiedArguments(given), "reference": reference, "work": None, "options": TuneOptions(),
    }  # fmt: skip
    return Assignment(**{**values, **changes})


@pytest.mark.processes
def test_a_reference_that_ends_the_process_is_an_error_of_its_own():
    with pytest.raises(TargetError, match=r"or its reference, ended the process: .* SIGABRT"):
        Isolated(assignment(aborts)).load()
    with pytest.raises(TargetError, match="the reference of nap raised ValueError: no"):
        Isolated(assignment(raises)).load()


@pytest.mark.processes
def test_a_worker_that_holds_what_it_tried_is_asked_again_until_it_is_lost():
    good, killed = (Config({"ms": 0.0, "fault": fault}) for fault in (GOOD, "killed"))
    with closing(Isolated(assignment())) as station:
        with pytest.raises(CandidateError, match="its process has ended"):
            station.ask_again(Attempt(good))
        assert station.attempt(good, None).ok
        assert station.ask_again(Attempt(good)).ok
        with pytest.raises(CandidateError, match="was killed by SIGKILL during its launch") as lost:
            station.ask_again(Attempt(killed))
        assert lost.value.status is Status.CRASH
        with pytest.raises(CandidateError, match="its process has ended"):
            station.ask_again(Attempt(good))


@pytest.mark.processes
@pytest.mark.parametrize(("once", "ended"), [(False, 2), (True, 1)])
def test_a_config_is_tried_once_more_after_a_signal_from_outside_unless_its_question_is_asked_once(once, ended):
    killed = Config({"ms": 0.0, "fault": "killed"})
    with closing(Isolated(assignment())) as station:
        trial = station.trial(killed, Attempt(killed))[0] if once else station.attempt(killed, None)
        assert trial.status is Status.CRASH
        assert station.facts.place == f"in a process of its own, {ended} ended by what ran in them"


@pytest.mark.processes
def test_a_worker_is_given_its_task_at_once_and_what_is_wrong_with_it_is_said_when_it_is_waited_for():
    for given, wrong in ((assignment(), None), (assignment(raises), TargetError)):
        process = new_worker(Needs((), ""))
        opened = Stations(problem=given, options=TuneOptions(isolate=True)).begin(given, process)
        if wrong is not None:
            with pytest.raises(wrong, match="the reference of nap raised ValueError: no"):
                opened()
            continue
        with closing(opened()) as station:
            assert station.facts.place == "in a process of its own"
            assert station.attempt(Config({"ms": 0.0, "fault": GOOD}), None).ok
    for isolate in (None, False):
        stations = Stations(problem=assignment(), options=TuneOptions(isolate=isolate))
        assert stations.begin(assignment())().facts.place.startswith("inline, as")


@pytest.mark.processes
def test_a_worker_that_ended_before_its_task_is_replaced_by_another():
    process = new_worker(Needs((), ""))
    os.kill(process.pid, signal.SIGKILL)
    with closing(
        Stations(problem=assignment(), options=TuneOptions(isolate=True)).begin(assignment(), process)()
    ) as station:
        assert station.attempt(Config({"ms": 0.0, "fault": GOOD}), None).ok


@pytest.mark.parametrize("name", ["compile_s", "launch_s", "trial_s", "setup_s"])
def test_patience_is_positive(name):
    with pytest.raises(SettingsError, match=name):
        Patience(**{name: 0})


class SlowWorker:
    """A worker whose launches take so many seconds by config, of which none passes; `limits_s` have been given."""

    def __init__(self, launches_s):
        self.launches_s, self.limits_s, self.default_s = launches_s, [], next(iter(launches_s.values()))

    def ask(self, question, whole_s, limits_s, _step, _fits):
        own_s = self.launches_s[question.config]
        self.limits_s.append(limits_s[StationStep.LAUNCH])
        steps_s = [own_s, own_s, own_s, own_s if question.best is None else own_s + self.default_s, own_s]
        if max(steps_s) > self.limits_s[-1] or sum(steps_s) > whole_s:
            raise WorkerLostError("its launch did not end", StationStep.LAUNCH, hung=True)
        times = Measurement((1e3 * own_s,), "host")
        return WorkerAnswer(Trial(question.config, Status.OK, times, relative=own_s / self.default_s))

    def kill(self):
        pass


DEFAULT, OTHER, HANGING = (Config(n=n) for n in range(3))


def station_with(worker, monkeypatch, **options):
    station = Isolated(assignment(options=TuneOptions(**options)))
    monkeypatch.setattr(station, "load", lambda: worker)
    return station


@pytest.mark.parametrize(("default_s", "other_s"), [(0.1, 0.05), (12.0, 6.0), (30.0, 15.0), (30.0, 50.0), (60.0, 90.0)])
def test_configs_are_tuned_whose_launches_take_up_to_a_minute_and_one_that_hangs_is_ended(
    default_s, other_s, monkeypatch, caplog
):
    worker = SlowWorker({DEFAULT: default_s, OTHER: other_s, HANGING: math.inf})
    station = station_with(worker, monkeypatch)
    first = station.attempt(DEFAULT, None)
    assert [first.status, station.attempt(OTHER, first).status] == [Status.OK, Status.OK]
    assert station.attempt(HANGING, first).status is Status.TIMEOUT
    assert worker.limits_s == [80.0, *[20.0 + math.floor(3.0 * default_s)] * 2]
    told = f"a launch of the default takes {default_s:.1f} s: a config has hung where a step of it takes more than"
    assert caplog.text.count(told) == (default_s > 7.0)


def test_a_run_that_goes_on_knows_how_long_launches_take_from_the_best_so_far(monkeypatch):
    worker = SlowWorker({DEFAULT: 40.0, OTHER: 35.0})
    best = Trial(Config(n=9), Status.OK, Measurement((20e3,), "host"), relative=0.5)
    assert station_with(worker, monkeypatch).attempt(OTHER, best).ok
    assert worker.limits_s == [20.0 + 3.0 * 40.0]


def test_after_a_first_config_that_hangs_the_others_have_their_own_limit_and_a_budget_bounds_the_first(monkeypatch):
    for options, first_s in (({}, 80.0), ({"budget_s": 10.0}, 30.0), ({"patience": PATIENCE}, 8.0)):
        worker = SlowWorker({HANGING: math.inf, OTHER: math.inf})
        station = station_with(worker, monkeypatch, **options)
        both = station.attempt(HANGING, None), station.attempt(OTHER, None)
        assert [trial.status for trial in both] == [Status.TIMEOUT] * 2
        assert worker.limits_s == [first_s, options.get("patience", Patience()).launch_s]


@pytest.mark.processes
def test_a_worker_that_does_not_answer_is_killed_with_what_it_started():
    worker = new_worker(Needs((), ""))
    try:
        packed = _packed(never_ends)
        with pytest.raises(WorkerLostError, match=r"its start did not end within 3 s"):
            worker.ask(Setup(packed=packed, changes={}), 60.0, {"start": 3.0}, "start")
        assert workers_of(os.getpid()) == []
    finally:
        worker.kill()


@pytest.mark.processes
def test_a_worker_that_does_not_take_its_task_is_ended():
    worker = new_worker(Needs((), ""))
    os.kill(worker.pid, signal.SIGSTOP)
    limit = SharedLimit(10.0)
    with pytest.raises(WorkerLostError, match=r"did not take its task within 0\.5 s"):
        worker.ask(b"x" * (1 << 22), 0.5, {}, "start")
    assert limit.left_s()
    assert workers_of(os.getpid()) == []


@pytest.mark.processes
def test_a_worker_that_has_served_another_tune_imports_what_the_next_one_compiles_with():
    worker = new_worker(Needs((), ""))
    try:
        result = [
            worker.ask(
                Setup(packed=_packed(says_what_is_imported), changes={}, imports=imports), 60.0, {}, "start"
            ).error.message
            for imports in ((), ("colorsys",))
        ]
    finally:
        worker.kill()
    assert ["colorsys is imported" in message for message in result] == [False, True], result


@pytest.mark.processes
def test_an_error_says_how_a_worker_ended_and_its_last_line():
    worker = new_worker(Needs((), ""))
    with pytest.raises(WorkerLostError, match=r"exited with code 7 during its start: these are its last words"):
        worker.ask(Setup(packed=_packed(says_and_exits), changes={}), 60.0, {}, "start")
    worker.kill()  # once more does no harm


def _packed(function) -> bytes:
    return Packed.of(CalledWhenUnpacked(function)).content


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_however_a_tune_ends_no_process_and_no_lock_is_left(tmp_path, number):
    """Looked for in the process table, by their environment, whatever their parent is by then."""
    tuning = Tune(tmp_path, isolate=True)
    process = tuning.start()
    eventually(lambda: len(tuning.begun()) >= 3)
    assert len(tuning.processes()) >= 2, "the command, and its worker"
    process.send_signal(number)
    out, err = process.communicate()
    assert gone(tuning)
    assert process.returncode == {signal.SIGINT: 130}.get(number, -number), err
    if number == signal.SIGINT:
        assert json.loads(out)["stopped"] == "interrupted"
    limit = SharedLimit(100.0)
    out, err = tuning.start().communicate()
    assert b"waiting for it" not in err
    assert json.loads(out)["best_config"] == {"n": WINNER}
    assert limit.left_s()


@pytest.mark.processes
def test_kill_at_random_moments_loses_at_most_one_trial_and_no_process(tmp_path):
    tuning = Tune(tmp_path, isolate=True)
    rng = random.Random(3)
    for _ in range(5):
        assert killed(tuning, rng) <= 1
        assert gone(tuning)
    out, err = tuning.start().communicate()
    assert json.loads(out)["best_config"] == {"n": WINNER}, err
    assert sorted(tuning.kept()) == list(range(CONFIGS))


@pytest.mark.processes
def test_the_number_of_trials_is_limited_in_a_worker_too():
    result = tune(nap, space=sums_space([]), device="cpu", isolate=True, trials=2)
    assert len(result.trials) == 2
    assert result.stopped == "trials"
    assert Config(result.best_config) in [trial.config for trial in result.trials]
