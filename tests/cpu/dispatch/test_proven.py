"""A tune that compared nothing leaves no winner: it is told as such, gone on with, never pinned, and no evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

import triton_ops
from tests.tuned_kernels import add, grid
from triton_ops import operation, tune
from triton_ops.backend import FunctionKernel
from triton_ops.cli.app import main
from triton_ops.cli.key_advice import advise
from triton_ops.dispatch import decision as decisions
from triton_ops.dispatch import would_run
from triton_ops.dispatch.operations import decided
from triton_ops.exceptions import TargetError
from triton_ops.records import Lockfile, LockPlan, Record, Run, Runs, Timing, lock_of
from triton_ops.records import TrialOrigin as Origin
from triton_ops.records.run_log import FinishedTrial as Tried
from triton_ops.records.store import open_store
from triton_ops.ship import choose_portfolio
from triton_ops.space import Config
from triton_ops.terminal import ExitCode
from triton_ops.tuner import tuning
from triton_ops.values import Key

ALONE = "no other config ran, so that nothing was compared"
HIDDEN = "the default was kept, since noise hides whether (step=2) is faster: +1.0 to +9.0 %"
NO_TIME = "the budget left no time to compare the fastest with the default"
KEY = Key(kernel="k", problem={"n": 8}, identity={"source": "1"}, device={"name": "H"}, cache_state="cold", label="8")


def record(**changes):
    return Record(**{"key": KEY, "winner": Config(step=1), "timing": Timing(1.0, 1.0, 1.0, 3), **changes})


@operation(space={"step": [1, 2, 3]}, arguments=lambda n=8: {"n": n}, name="add_up", device="cpu")
def add_up(n, step):
    return n


@operation(space={"step": [1]}, arguments=lambda n=8: {"n": n}, name="one_way", device="cpu")
def one_way(n, step):
    return n


@pytest.fixture
def one_trial(tmp_path, steady_clock):
    """Tunes a problem with a limit of one trial."""
    return lambda target=add_up, **asked: tune(target, **{"trials": 1, "cache_dir": tmp_path, **asked})


@pytest.fixture
def tuned(one_trial, monkeypatch):
    """As `one_trial`, and what compared nothing is stored: an undecided record, as an earlier version left it."""
    monkeypatch.setattr(tuning, "untold", lambda _loop, outcome: "" if outcome.told else "time")
    return one_trial


def kept(folder):
    (result,) = open_store(folder)
    return result


def kept_of(folder, label):
    return next(result for result in open_store(folder) if result.key.label == label)


# What counts as proven


@pytest.mark.parametrize(
    ("changes", "unproven", "goes_on"),
    [
        ({}, "", False),
        ({"confidence": "nothing was raced", "totals": {"ok": 1}, "stopped": "seconds"}, "nothing was raced", True),
        ({"confidence": "nothing was raced", "totals": {"ok": 1}}, "", False),  # the only config of its space
        ({"confidence": "nothing was raced", "totals": {"ok": 3}}, "nothing was raced", True),
        ({"confidence": ALONE, "totals": {"ok": 2, "wrong": 1}}, "", False),  # two configs of one program
        ({"totals": {"ok": 1, "resources": 2, "wrong": 1}}, "", False),  # of the others each has its verdict
        ({"totals": {"ok": 1, "resources": 2, "runtime": 1}}, ALONE, True),  # nobody knows of one what it gives
        ({"totals": {"ok": 2, "crash": 1}}, "", False),
        ({"confidence": ALONE, "stopped": "trials"}, ALONE, True),
        ({"confidence": NO_TIME}, NO_TIME, True),
        ({"confidence": NO_TIME, "tunes": 2}, NO_TIME, True),
        ({"confidence": NO_TIME, "tunes": 3}, NO_TIME, False),
        ({"confidence": HIDDEN, "noise": 0.05}, HIDDEN, False),  # all were compared: noise is as it is
        ({"confidence": HIDDEN, "noise": 0.05, "stopped": "seconds"}, HIDDEN, True),
        ({"confidence": "throttled", "noise": 0.02, "raced_gain": 1.3, "gain_interval": (1.2, 1.4)}, "", False),
        (
            {"confidence": "throttled", "noise": 0.2, "raced_gain": 1.1, "gain_interval": (1.05, 1.2)},
            "throttled", False,
        ),
    ],
)  # fmt: skip
def test_a_record_says_whether_its_winner_is_proven_and_whether_a_tune_goes_on_with_it(changes, unproven, goes_on):
    result = record(**changes)
    assert (result.unproven, result.goes_on) == (unproven, goes_on)


def test_a_tune_by_the_interpreter_proves_nothing_and_is_final_all_the_same():
    result = record(key=replace(KEY, identity={"source": "1", "interpreted": "yes"}))
    assert result.unproven == "Python was timed, by Triton's interpreter, and no GPU"
    assert (result.undecided, result.goes_on) == ("", False)
    assert replace(result, confidence=NO_TIME).unproven.endswith(NO_TIME)


def identity_of_a_launcher():
    def launch(x, out, n, BLOCK):
        add[grid](x, x, out, n, BLOCK=BLOCK)

    helpers = [launch]
    return [FunctionKernel(each).identity.get("interpreted") for each in (launch, lambda: helpers[0], sorted)]


def test_a_function_that_launches_an_interpreted_kernel_is_marked_too(interpreted):
    assert interpreted(identity_of_a_launcher) == ["yes", "yes", None]


# What compared nothing leaves no record


def test_a_tune_of_one_trial_is_no_record_and_the_same_call_goes_on_until_something_was_compared(one_trial, tmp_path):
    first = one_trial()
    assert (first.unproven, len(first.trials), first.record, list(open_store(tmp_path))) == (ALONE, 1, "", [])
    assert f"nothing is remembered, since {ALONE}: tune again" in first.notes
    second = one_trial()
    assert (second.unproven, second.from_cache, len(second.trials)) == ("", False, 2)
    assert kept(tmp_path).tunes == 2
    assert one_trial().from_cache


def test_seconds_that_the_start_uses_up_are_no_record_and_the_next_tune_compares(one_trial, tmp_path):
    first, second, third = (one_trial(trials=None, budget_s=1e-6) for _ in range(3))
    assert (len(first.trials), first.unproven, first.record) == (1, ALONE, "")
    assert (len(second.trials), second.unproven) == (2, "")
    assert third.from_cache


# The search goes on


def test_the_same_call_goes_on_until_a_comparison_has_been_made_and_then_recalls(tuned, tmp_path):
    first = tuned()
    assert (first.unproven, len(first.trials)) == (ALONE, 1)
    assert "Unproven: " in str(first)
    second = tuned()
    assert (second.unproven, second.from_cache, len(second.trials)) == ("", False, 2)
    assert kept(tmp_path).tunes == 2
    log = Run.read(tmp_path / Runs.FOLDER / kept(tmp_path).id / f"{second.run}.jsonl")
    origins = [event.origin for event in log.events if isinstance(event, Tried)]
    assert origins == [Origin.TAKEN_OVER, Origin.SEARCHER]
    assert tuned().from_cache


def test_a_budget_of_seconds_that_the_start_uses_up_is_gone_on_with_by_one_trial_at_least(tuned):
    first, second, third = (tuned(trials=None, budget_s=1e-6) for _ in range(3))
    assert (len(first.trials), first.unproven) == (1, ALONE)
    assert (len(second.trials), second.unproven) == (2, "")
    assert third.from_cache


@operation(space={"step": [1, 2, 3]}, arguments=lambda n=8: {"n": n}, name="first_alone", device="cpu")
def first_alone(n, step):
    return n // (step == 1)


def test_where_one_config_ran_and_all_others_failed_nothing_is_kept(tuned, tmp_path, cli):
    for _ in range(2):
        result = tuned(first_alone, trials=None)
        assert (result.unproven, result.from_cache, result.record) == (ALONE, False, "")
        assert result.totals == {"ok": 1, "runtime": 2}
        assert "Gain: none, the default is kept" in str(result)
    assert not list(open_store(tmp_path))
    ran = cli("tune", f"{__name__}:first_alone", "--cache-dir", tmp_path)
    assert ran.code == ExitCode.NONE_RAN
    assert "alone   step=1" in ran.out
    assert "winner" not in ran.out.replace("the winner is not remembered", "")


def test_a_space_of_one_config_is_final(tuned, tmp_path):
    assert tuned(one_way).unproven == ""
    assert tuned(one_way).from_cache


def test_ties_that_were_measured_are_final(tuned):
    assert tuned(trials=None).unproven == ""
    assert tuned(trials=None).from_cache


def test_tunes_that_never_come_to_a_comparison_end(tuned, tmp_path):
    tuned()
    open_store(tmp_path).put(replace(kept(tmp_path), tunes=3))
    assert (tuned().from_cache, tuned().unproven) == (True, ALONE)


def test_force_begins_anew(tuned, tmp_path):
    tuned()
    assert len(tuned(force=True).trials) == 1
    assert kept(tmp_path).tunes == 1


def test_a_run_whose_log_is_gone_is_begun_anew_and_counted(tuned, tmp_path):
    run = tuned().run
    (tmp_path / Runs.FOLDER / kept(tmp_path).id / f"{run}.jsonl").unlink()
    assert len(tuned().trials) == 1
    assert kept(tmp_path).tunes == 2


def test_an_undecided_record_of_another_space_is_not_gone_on_with(tuned):
    tuned()
    assert len(tuned(space={"step": [3, 2]}).trials) == 1


# Where it is told, and where it counts


def test_a_call_that_may_tune_goes_on_and_one_that_may_not_says_what_it_runs(tuned, tmp_path):
    tuned()
    options = {"cache_dir": tmp_path, "trials": 1}
    result = decided(add_up, {"n": 8}, on_miss="default", options=options)
    assert (result.found.rung, ALONE in result.text, "as fast as" in result.text) == ("record", True, False)
    result = decided(add_up, {"n": 8}, on_miss="tune", options=options)
    assert result.found.rung == "tuned"
    assert "it is unproven, and a tune goes on with it" in " ".join(result.passed)
    result = decided(add_up, {"n": 8}, on_miss="tune", options=options)
    assert result.text.endswith(", the default itself, from which no config stands out by more than noise")


def test_an_undecided_winner_is_not_borrowed(tuned, tmp_path):
    tuned(shape=(8,))
    assert would_run(add_up, shape=(9,), cache_dir=tmp_path).found.rung == "default"
    tuned(shape=(8,))
    assert would_run(add_up, shape=(9,), cache_dir=tmp_path).found.rung == "borrowed"


def test_it_is_not_pinned_unless_that_is_asked_for_and_then_the_lockfile_says_so(tuned, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path))
    tuned(shape=(8,))
    assert main(["lock"]) == 4
    assert f"left out: add_up 8 on {kept(tmp_path).key.device['name']}: unproven: {ALONE}" in capsys.readouterr().err
    assert not (tmp_path / "triton-ops.lock.json").exists()
    for _ in range(2):
        tuned(shape=(16,))
    assert main(["lock"]) == 0
    assert [entry.label for entry in Lockfile.read("triton-ops.lock.json").entries] == ["16"]
    assert main(["lock", "--check"]) == 0
    assert main(["lock", "--check", "--allow-unproven"]) == ExitCode.CHECK_FAILED
    assert main(["lock", "--allow-unproven"]) == 0
    first, second = Lockfile.read("triton-ops.lock.json").entries
    assert (first.label, first.origin.unproven, first.measured.gain) == ("8", ALONE, None)
    assert second.origin.unproven == ""
    decisions.forget_decisions()
    result = would_run(add_up, shape=(8,), lockfile=Lockfile.read("triton-ops.lock.json"))
    assert f"unproven: {ALONE}" in result.found.why


def test_one_that_was_pinned_all_the_same_stays_pinned(tuned, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path))
    tuned(shape=(8,))
    assert main(["lock", "--allow-unproven"]) == 0
    for _ in range(2):
        tuned(shape=(16,))
    assert main(["lock"]) == 0
    told = capsys.readouterr().err
    assert f"stays pinned: add_up 8 on {kept_of(tmp_path, '8').key.device['name']}: unproven: {ALONE}" in told
    assert "not pinned" not in told
    first, _ = Lockfile.read("triton-ops.lock.json").entries
    assert (first.label, first.origin.unproven, first.measured.gain) == ("8", ALONE, None)


def test_interpreted_winners_are_not_pinned():
    result = record(key=replace(KEY, identity={"source": "1", "interpreted": "yes"}))
    lock, left = lock_of([result])
    assert (lock.entries, left[0].reason) == ((), f"unproven: {result.unproven}")
    assert len(lock_of([result], LockPlan(unproven=True))[0].entries) == 1


def test_keys_take_no_evidence_from_it(capsys):
    records = [record(key=replace(KEY, problem={"n": n}), confidence=ALONE, stopped="trials") for n in (8, 16)]
    (result,) = advise(records, lambda _record, _config: None)
    assert (result.parts, result.records, result.unproven) == ((), 0, 2)
    (result,) = advise([*records, record(), record(key=replace(KEY, problem={"n": 16}))], lambda _record, _config: None)
    assert [part.verdict for part in result.parts] == ["never mattered"]


def test_portfolios_leave_it_out(tuned, tmp_path):
    tuned(shape=(8,))
    with pytest.raises(TargetError, match=f"no record of add_up counts: 1 unproven: {ALONE}"):
        choose_portfolio("add_up", cache_dir=tmp_path)
    for _ in range(2):
        tuned(shape=(16,))
    result = choose_portfolio("add_up", cache_dir=tmp_path)
    assert ([each.label for each in result.served], result.left_out) == (["16"], {f"unproven: {ALONE}": 1})


def test_commands_mark_it(tuned, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path))
    run = tuned().run
    for words in (["cache", "show"], ["cache", "show", "add_up"], ["lock", "keys"], ["report", run]):
        assert main(words) == 0
        assert "unproven" in capsys.readouterr().out, words


# Kernels that run as Python


def rungs_of_an_interpreted_kernel(folder, policy):
    import torch

    kernel = triton_ops.autotune([{"BLOCK": 32}, {"BLOCK": 64}], key=["n"])(add)
    x, out = torch.arange(40.0), torch.zeros(40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_OPS_CACHE_DIR", folder)
        patch.setenv("TRITON_OPS_ON_MISS", policy)
        kernel[grid](x, x, out, n=40)
    return kernel.decisions[-1].found.rung, kernel.decisions[-1].text


@pytest.mark.triton
def test_the_environment_asks_for_a_tune_of_an_interpreted_kernel_as_the_decorator_does(interpreted, tmp_path):
    rung, text = interpreted(rungs_of_an_interpreted_kernel, str(tmp_path), "tune")
    assert (rung, "Python was timed, by Triton's interpreter, and no GPU" in text) == ("tuned", True)
    rung, text = interpreted(rungs_of_an_interpreted_kernel, str(tmp_path / "empty"), "default")
    assert rung == "default"
