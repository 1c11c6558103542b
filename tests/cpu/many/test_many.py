"""Many problems as one run, from end to end, on callables that run here for real: the API and the command line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from benchmarks.robustness.process_faults import workers_of

from tests.limits import ENOUGH_S, eventually
from triton_ops import (
    CacheError,
    KernelTypeError,
    SettingsError,
    ShapeMismatchError,
    TuneProblem,
    release_processes,
    tune_many,
)
from triton_ops.compilation import SharedCpus
from triton_ops.many import JobPlace, RunOptions
from triton_ops.many.problem import problems_in
from triton_ops.many.session import jobs_of
from triton_ops.records import Run
from triton_ops.records.run_log import FinishedTrial as Tried
from triton_ops.records.run_log import Resumed
from triton_ops.request import Effort, TuneOptions
from triton_ops.tuner import Silent
from triton_ops.tuner.gate import Gate

WORK = """
import os, time
from triton_ops import operation

@operation(space={"step": [1, 2]}, arguments=lambda n=64: {"n": n})
def add_up(n, step):
    return sum(sum(range(at, n, step)) for at in range(step))

@operation(space={"ms": [2, 3, 4, 5]}, arguments=lambda n=64: {"n": n})
def slow(n, ms):
    time.sleep(ms * 1e-3)
    return n

@operation(space={"step": [1, 2]}, arguments=lambda n=64: {"n": n})
def fails(n, step):
    raise ValueError("never works")

@operation(space={"how": ["right", "loops", "crashes"]}, arguments=lambda n=64: {"n": n})
def misbehaves(n, how):
    while how == "loops":
        time.sleep(0.01)
    if how == "crashes":
        os.abort()
    return n
"""


@pytest.fixture
def work(tmp_path, monkeypatch, steady_clock):
    """A module of operations, imported from a folder that is the current one."""
    (tmp_path / "many_work.py").write_text(WORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "many_work", raising=False)
    import many_work

    yield many_work
    sys.modules.pop("many_work", None)
    release_processes()
    assert workers_of(os.getpid()) == []


def test_problems_end_in_their_order_with_a_failure_among_them_and_are_known_the_next_time(work, monkeypatch):
    # Of problems that are prepared ahead the first that is ready begins, which need not be what counts most.
    monkeypatch.setattr("triton_ops.many.session.AHEAD", 0)
    seen = []
    problems = [
        TuneProblem(target=work.add_up, shape=(8,)), work.fails, {"target": work.add_up, "shape": (16,), "weight": 9},
        {"target": work.add_up, "shape": (8,)},
    ]  # fmt: skip
    result = tune_many(problems, told=seen.append)
    assert [each.status for each in result.outcomes] == ["tuned", "failed", "tuned", "tuned"]
    assert result.outcomes[0].result is result.outcomes[3].result
    assert "never works" in str(result.failures[0].error)
    assert (result.stopped, result.totals) == ("complete", {"tuned": 3, "failed": 1})
    assert seen[0].label.endswith("16"), "what counts most comes first"
    assert len(seen) == 3
    again = tune_many(problems, told=seen.append)
    assert [each.status for each in again.outcomes] == ["known", "failed", "known", "known"]
    assert tune_many([]).outcomes == ()


@pytest.mark.processes
def test_a_kernel_that_hangs_or_crashes_costs_one_trial_and_the_worker_goes_on_to_the_next_problem(work):
    from triton_ops import Effort, Patience

    problems = [TuneProblem(target=op, shape=(n,)) for n in (1, 2) for op in (work.misbehaves, work.add_up)]
    effort = Effort(name="impatient", patience=Patience(launch_s=1.0))
    result = tune_many(problems, effort=effort, isolate=True, told=lambda _: None)
    assert result.totals == {"tuned": 4}, [each.error for each in result.outcomes]
    assert dict(result.outcomes[0].result.best_config) == {"how": "right"}
    assert result.outcomes[0].result.totals == {"ok": 1, "timeout": 1, "crash": 1}
    assert len(workers_of(os.getpid())) <= 1


def test_the_seconds_of_a_problem_begin_when_the_device_is_its_own(work, tmp_path):
    class OpensLate(Gate):
        def wait(self, prepared=None):
            time.sleep(0.3)
            self.let_in(None)

    (job,) = jobs_of([work.slow], RunOptions(each=TuneOptions(effort=Effort.named("quick"), cache_dir=tmp_path)))
    begun = time.monotonic()
    result = job.tune(JobPlace(device=None, gate=OpensLate(), shared_cpus=SharedCpus(2), listener=Silent()))
    assert result.trials
    assert result.elapsed_s <= time.monotonic() - begun - 0.3


@pytest.mark.processes
def test_two_threads_run_at_the_same_time_and_share_nothing_but_the_records(work):
    result = {}

    def run(name):
        problems = [TuneProblem(target=work.add_up, shape=(n,)) for n in range(1, 4)]
        result[name] = tune_many(problems, isolate=True, told=lambda _: None)

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(ENOUGH_S)
    results = [[each.result.best_config for each in result[name].outcomes] for name in "ab"]
    assert results[0] == results[1]


def test_what_does_not_fit_is_refused_before_any_work_by_its_number(work):
    for problems, error, message in (
        ([work.add_up, {"target": work.add_up, "shape": (1, 2)}], ShapeMismatchError, "problem 2: "),
        ([3], KernelTypeError, "problem 1: a problem is 3"),
        ([{"targt": work.add_up}], KernelTypeError, "problem 1: a problem has no field targt"),
        ([{}], KernelTypeError, "problem 1: a problem has no target"),
        ([TuneProblem(target=work.add_up, space={})], Exception, "problem 1: "),
        ("matmul", SettingsError, "it must be a list"),
    ):
        with pytest.raises(error, match=message):
            tune_many(problems, told=lambda _: None)
    for options, message in (
        ({"budget_s": 0}, "budget_s is 0"), ({"budget_s": True}, "budget_s is True"), ({"each_s": -1}, "-1"),
        ({"search": object()}, "search is"), ({"told": "print"}, "told is 'print'"),
    ):  # fmt: skip
        with pytest.raises(SettingsError, match=message):
            tune_many([work.add_up], **options)
    with pytest.raises(SettingsError, match="weight"):
        TuneProblem(target=work.add_up, weight=0)


def test_a_searcher_that_is_made_cannot_search_all_spaces(work):
    class Mine:
        def ask(self, count):
            return []

        def tell(self, trials):
            """Nothing."""

    with pytest.raises(SettingsError, match="one searcher for many spaces"):
        tune_many([work.add_up], search=Mine())


@pytest.fixture
def hears_ctrl_c():
    """SIGINT is heard, where the tests themselves run in the background too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_keeps_what_is_finished_and_the_same_call_goes_on(work, tmp_path):
    problems = [TuneProblem(target=work.add_up, shape=(n,)) for n in (1, 2, 3)]
    pressed = tune_many(problems, told=lambda _: signal.raise_signal(signal.SIGINT), cache_dir=tmp_path)
    assert (pressed.stopped, pressed.totals) == ("interrupted", {"tuned": 1, "not begun": 2})
    again = tune_many(problems, told=lambda _: None, cache_dir=tmp_path)
    assert (again.stopped, again.totals) == ("complete", {"known": 1, "tuned": 2})


def assert_no_trial_twice(folder):
    logs = [Run.read(path) for path in folder.glob("runs/*/*.jsonl")]
    assert logs
    for log in logs:
        tried = [event.trial.config for event in log.events if isinstance(event, Tried)]
        assert len(tried) == len(set(tried))
    return sum(isinstance(event, Resumed) for log in logs for event in log.events)


@pytest.mark.processes
def test_a_killed_run_is_gone_on_with_and_repeats_no_finished_trial(work, tmp_path):
    Path("list.txt").write_text("".join(f"many_work.py:slow shape={n}\n" for n in (1, 2)))
    command = [sys.executable, "-m", "triton_ops", "tune", "--problems", "list.txt", "--kernels", "many_work.py"]
    command += ["--cache-dir", "kept", "--isolate"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    eventually(lambda: process.poll() is not None or trials_in(tmp_path / "kept") >= 6)
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.communicate()
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["totals"]) <= {"known", "tuned"}
    assert_no_trial_twice(tmp_path / "kept")


def trials_in(folder):
    return sum(path.read_text().count('"type": "trial"') for path in folder.glob("runs/*/*.jsonl"))


def test_a_list_in_a_file_is_tuned_and_told_as_a_table_and_as_json(work, cli):
    Path("list.txt").write_text(
        "# of one model\nmany_work.py:add_up shape=8 weight=3\n\n"
        '{"target": "many_work.py:add_up", "shape": [16], "space": {"step": [2]}}  \nmany_work.py:fails # never\n'
    )
    ran = cli("tune", "--problems", "list.txt", "--kernels", "many_work.py")
    assert ran.code == 1
    assert "3 problems in" in ran.err
    assert "2 tuned, 1 failed" in ran.err
    assert [line.split()[0] for line in ran.out.splitlines()[1:]] == ["tuned", "tuned", "failed"]
    ran = cli("tune", "--problems", "list.txt", "--kernels", "many_work.py", "--json")
    document = json.loads(ran.out)
    assert [each["status"] for each in document["problems"]] == ["known", "known", "failed"]
    assert document["problems"][1]["result"]["best_config"] == {"step": 2}
    assert "never works" in document["problems"][2]["reason"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("many_work.py:add_up shape=ax", "shape 'ax' is not made of whole numbers"),
        ("many_work.py:add_up shape=2x2", "takes 0 to 1 extents"),
        ("many_work.py:add_up colour=red", "there is no field colour"),
        ("many_work.py:add_up shape=1 shape=2", "shape stands twice"),
        ("many_work.py:add_up weight=inf", "weight is 'inf'"),
        ("many_work.py:add_up space=3", "write the whole line as a JSON object"),
        ("many_work.py:add_up 64", "'64' is not name=value"),
        ("many_work.py:nothing", "many_work.py:nothing is not loaded"),
        ("softmax problem=odd shape=3x3", "has its shape and dtype"),
        ("many_work.py:add_up device=cuda:x", "cuda:x"),
        ("softmax '", "No closing quotation"),
        ('{"target": 3}', "target is 3"),
        ('{"shape": [3]}', "there is no target"),
        ("{bad", "this is no JSON object"),
        ('{"target": "many_work.py:add_up", "shape": [1], "shape": [2]}', "the name 'shape' twice"),
        ('{"target": "many_work.py:add_up", "space": {"step": [1], "step": [2]}}', "the name 'step' twice"),
        ('{"target": "softmax", "shape": [0, 2]}', "whole numbers of 1 or more"),
        ('{"target": "softmax", "space": [1]}', "it must be an object of lists"),
    ],
)
def test_a_line_that_is_no_problem_is_one_line_with_its_number_and_nothing_is_run(work, cli, line, said):
    Path("list.txt").write_text(f"many_work.py:add_up\n\n{line}\n")
    ran = cli("tune", "--problems", "list.txt", "--kernels", "many_work.py")
    code = 3 if "cuda" in line else 6 if ":nothing" in line else 2
    assert (ran.code, ran.out) == (code, "")
    assert "list.txt, line 3: " in ran.err
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not list(Path(os.environ["TRITON_OPS_CACHE_DIR"]).glob("**/*.jsonl"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--problems", "none.txt"), "none.txt cannot be read"),
        (("--problems", "empty.txt"), "empty.txt has no problem"),
        (("--problems", "."), "it is a folder"),
        (("--problems", "empty.txt", "--all"), "--problems and --all exclude each other"),
        (("softmax", "--problems", "empty.txt"), "TARGET and --problems do not go together"),
        (("--all", "softmax", "--shape", "3"), "--shape and --all do not go together"),
        (("--all", "softmax", "--most", "3"), "--most and --all do not go together"),
        (("--all", "many_work.py:add_up"), "has no named problems"),
        (("softmax", "layer_norm"), "2 targets were given"),
        (("softmax", "--each-s", "3"), "--each-s is for --problems"),
        (("--problems", "empty.txt", "--budget-s", "-3"), "budget_s is -3"),
    ],
)
def test_options_that_do_not_fit_a_list_are_one_line(work, cli, words, said):
    Path("empty.txt").write_text("\n# nothing\n")
    ran = cli("tune", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_lines_may_have_marks_of_other_editors():
    lines = ["\ufeffsoftmax shape=4X8 warm\r", "  matmul dtype=fp16   # half"]
    first, second = problems_in(lines, "f")
    assert (first.shape, first.warm, second.dtype, second.where) == ((4, 8), True, "fp16", "f, line 2")


def test_a_comment_begins_after_a_space_and_outside_of_quotes():
    lines = ["a#b.py:op shape=8#9 # it's both", "'my #1.py:op' warm #'"]
    with pytest.raises(SettingsError, match="8#9"):
        list(problems_in(lines[:1], "f"))
    (second,) = problems_in(lines[1:], "f")
    assert (second.target, second.warm) == ("my #1.py:op", True)


def test_a_folder_that_cannot_be_made_is_said_once_before_any_work(work, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match="file"):
        tune_many([work.add_up, work.slow], cache_dir=tmp_path / "file" / "folder", told=pytest.fail)
