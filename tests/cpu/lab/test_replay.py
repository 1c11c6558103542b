"""Recordings of every form, runs on them, their summaries, and the two commands."""

import gzip
import json
import os
import signal

import pytest

from tests.runs import ID, begun
from triton_ops.exceptions import RecordingError
from triton_ops.records import TrialOrigin as Origin
from triton_ops.records.run_log import SpaceFacts
from triton_ops.search import make_searcher
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Key, Measurement, Status, Trial
from triton_ops_lab.recording import read_recording
from triton_ops_lab.replayed_search import (
    PreviewAllowance,
    Reach,
    ReplayRun,
    Share,
    priors_for,
    replay,
    summarise,
    transfers_for,
)

VALUES = {"A": list(range(1, 13)), "B": [1, 2, 4, 8]}


def time_of(a, b):
    return 1 + abs(a - 5) / 4 + abs(b - 4) / 8


def rows_file(folder, name="own.json.gz", gpu="NVIDIA H200", shape=(64, 64)):
    """A recording of this project: A=12 does not fit, A=5 B=4 is the best."""
    rows = []
    for a in VALUES["A"]:
        for b in VALUES["B"]:
            row = {
                "config": {"A": a, "B": b},
                "status": "ok",
                "compile_s": 0.1,
                "shared": a * 1024,
                "regs": 32,
                "spills": 0,
            }
            if a == 12:
                row["status"] = "OutOfResources: shared memory"
            else:
                ms = time_of(a, b)
                row["ms"] = [[ms, ms, ms * 1.02, ms], [ms, ms, ms * 1.01, ms]]
            if (a, b) == (5, 4):
                row["final"] = [[1, 1, 1.0, 1], [1, 1, 1.1, 1], [1, 1, 0.9, 1]]
            rows.append(row)
    content = {"family": "wait_bf16", "kind": "wait", "shape": list(shape), "space": VALUES, "gpu": gpu, "rows": rows}
    path = folder / name
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


def cache_file(folder, cut=False, device="B", name="cache.json"):
    """The same recording as a cache file of Kernel Tuner, whole or cut off."""
    cache = {
        f"{a},{b}": {"A": a, "B": b, "time": time_of(a, b) if a < 12 else "RuntimeFailedConfig"}
        for a in VALUES["A"]
        for b in VALUES["B"]
    }
    content = {
        "device_name": device, "kernel_name": "wait", "problem_size": [64, 64], "tune_params_keys": ["A", "B"],
        "tune_params": VALUES, "cache": cache,
    }  # fmt: skip
    text = json.dumps(content)
    path = folder / name
    path.write_text(text[:-2] + "," if cut else text)
    return path


def run_log_file(folder, shape=(64, 64), dtype="bfloat16", tensor="float32", name=ID):
    problem = {"x": {"shape": [64, 64], "dtype": tensor}}
    key = Key(kernel="wait", problem=problem, identity={}, device={"name": "C"}, cache_state="cold")
    space = SpaceFacts(fingerprint="f" * 32, tunables={"A": list(VALUES["A"]), "B": [4, 2, 1]})
    log = begun(folder, id=name, key=key, space=space, shape=shape, dtype=dtype)
    for a in VALUES["A"]:
        log.trial(Trial(Config(A=a, B=1), Status.OK, Measurement((time_of(a, 1),), "host")), Origin.SEARCHER)
    log.trial(Trial(Config(A=1, B=2), Status.COMPILE, error="no"), Origin.SEARCHER)
    limited = Trial(Config(A=1, B=1, maxnreg=64), Status.OK, Measurement((0.1,), "host"))  # in no space
    log.trial(limited, Origin.SEARCHER)
    log.ended("complete")
    return folder / f"{name}.jsonl"


class TestForms:
    def test_own(self, tmp_path):
        result = read_recording(rows_file(tmp_path))
        assert (result.kernel, result.dtype, result.problem, result.device) == (
            "wait",
            "bfloat16",
            (64, 64),
            "NVIDIA H200",
        )
        assert result.space.size.valid == 48
        assert result.best_ms == 1.0  # the median of the final passes
        assert result.trials[Config(A=5, B=8)].median_ms == pytest.approx(1.5 * 1.01)
        assert result.trials[Config(A=12, B=1)].status is Status.RESOURCES
        assert result.trials[Config(A=3, B=1)].resources.shared_bytes == 3072

    @pytest.mark.parametrize("cut", [False, True])
    def test_kernel_tuner(self, tmp_path, cut):
        result = read_recording(cache_file(tmp_path, cut))
        assert (result.kernel, result.device) == ("wait", "B")
        assert len(result.trials) == 48
        assert result.best_ms == 1.0
        assert result.trials[Config(A=12, B=1)].status is Status.RUNTIME

    def test_a_failure_of_kernel_tuners_first_versions_is_no_time(self, tmp_path):
        path = cache_file(tmp_path)
        path.write_text(path.read_text().replace('"RuntimeFailedConfig"', "1e+20"))
        trial = read_recording(path).trials[Config(A=12, B=1)]
        assert (trial.status, trial.error) == (Status.RUNTIME, "1e+20")

    def test_run_log(self, tmp_path):
        result = read_recording(run_log_file(tmp_path))
        assert (result.kernel, result.problem, result.dtype, result.device) == ("wait", (64, 64), "bfloat16", "C")
        assert set(result.space) == {*(Config(A=a, B=1) for a in VALUES["A"]), Config(A=1, B=2)}
        assert result.trials[Config(A=1, B=2)].status is Status.COMPILE
        assert result.space.tunables["B"].values == (4, 2, 1)  # as declared, with values that no config has

    def test_run_log_of_the_callers_own_arguments(self, tmp_path):
        result = read_recording(run_log_file(tmp_path, shape=None, dtype=None))
        assert (result.problem, result.dtype) == ((), "float32")
        assert result.arguments == {"x": {"shape": [64, 64], "dtype": "float32"}}

    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"cache": 1}', '{"type": "run"}\n', "\x1f\x8b"])
    def test_a_file_that_is_no_recording_is_refused(self, tmp_path, text):
        path = tmp_path / "x.json"
        path.write_text(text)
        with pytest.raises(RecordingError, match=r"x\.json"):
            read_recording(path)

    def test_a_recording_without_a_config_that_ran_is_refused(self, tmp_path):
        path = cache_file(tmp_path)
        content = json.loads(path.read_text())
        for row in content["cache"].values():
            row["time"] = "InvalidConfig"
        path.write_text(json.dumps(content))
        with pytest.raises(RecordingError, match="no config that ran"):
            read_recording(path)


class Fixed:
    """Proposes given configs, and notes the trials that it is told of."""

    def __init__(self, configs):
        self.left, self.told, self.gain = list(configs), [], 1.0

    def ask(self, count):
        asked, self.left = self.left[:count], self.left[count:]
        return asked

    def tell(self, trials):
        self.told += trials

    def expected_gain(self):
        return self.gain if self.left else 0.0


class TestRuns:
    def test_evaluations_are_configs_asked_for_and_failures_count(self, tmp_path):
        recording = read_recording(cache_file(tmp_path))
        order = [Config(A=12, B=1), Config(A=9, B=4), Config(A=1, B=4), Config(A=5, B=4)]
        searcher = Fixed(order)
        run = replay(recording, searcher, 10)
        assert run.fractions == pytest.approx((0, 0.5, 0.5, 1))
        assert [trial.config for trial in searcher.told] == order
        assert (run.at(2), run.at(99)) == pytest.approx((0.5, 1))
        assert (run.first_within(0.05), run.first_within(1.0)) == (4, 2)

    def test_a_search_is_told_only_the_configs_that_it_asked_for(self, tmp_path):
        recording = read_recording(rows_file(tmp_path))
        searcher = Fixed(recording.space.take(6))
        replay(recording, searcher, 6, batch=3)
        assert len(searcher.told) == 6
        assert all(trial.resources is not None for trial in searcher.told)

    def test_a_replay_goes_on_where_the_search_expects_little(self, tmp_path):
        recording = read_recording(cache_file(tmp_path))
        searcher = Fixed(recording.space.take(6))
        searcher.gain = 0.001
        replay(recording, searcher, 6)
        assert len(searcher.told) == 6

    def test_summary(self):
        runs = [ReplayRun((0.5, 1.0), (0.001, 0.003)), ReplayRun((0.5, 0.6), (0.001, 0.002))]
        result = summarise("f", "s", runs, [1, 2])
        assert result.budgets[2] == Share(0.8, 0.8, 0.64)
        assert result.to_5pct == Reach(2, None)
        assert result.overhead_ms == 1.5


class TestKnowledge:
    def test_records_of_the_same_place_are_left_out(self, tmp_path):
        target = read_recording(cache_file(tmp_path))
        near, same = (
            read_recording(cache_file(tmp_path, device="A", name="a.json")),
            read_recording(cache_file(tmp_path)),
        )
        assert len(transfers_for(target, [near, same, target])) == 1

    def test_records_with_other_tunables_are_left_out(self, tmp_path):
        path = cache_file(tmp_path, device="A", name="a.json")
        path.write_text(path.read_text().replace('"B"', '"Z"'))
        assert transfers_for(read_recording(cache_file(tmp_path)), [read_recording(path)]) == []

    def test_records_help_at_once(self, tmp_path):
        target = read_recording(cache_file(tmp_path))
        records = transfers_for(target, [read_recording(cache_file(tmp_path, device="A", name="a.json"))])
        run = replay(target, make_searcher("auto", target.space, 0, [], records), 1)
        assert run.at(1) == 1.0

    def test_a_kernel_without_declared_work_has_no_prior(self, tmp_path):
        assert priors_for(read_recording(rows_file(tmp_path))) == []


class TestCommands:
    def test_json_has_a_space_per_file_and_search(self, cli, tmp_path):
        files = [str(cache_file(tmp_path)), str(rows_file(tmp_path))]
        ran = cli(
            "replay", *files, "--search", "random,local", "--seeds", "3", "--trials", "5,20", "--jobs", "1", "--json"
        )
        result = json.loads(ran.out)["spaces"]
        assert [(entry["file"], entry["search"]) for entry in result] == [
            (name, search) for name in ("cache.json", "own.json.gz") for search in ("random", "local")
        ]
        for entry in result:
            assert set(entry["budgets"]) == {"5", "20"}
            assert 0 < entry["budgets"]["5"]["mean"] <= entry["budgets"]["20"]["mean"] <= 1
            assert entry["overhead_ms"] > 0

    def test_a_table_with_a_mean(self, cli, tmp_path):
        folder = tmp_path / "recordings"
        folder.mkdir()
        cache_file(folder)
        rows_file(folder)
        out = cli("replay", str(folder), "--search", "exhaustive", "--trials", "48", "--seeds", "2", "--jobs", "1").out
        assert out.splitlines()[-1].split() == ["exhaustive", "1.000", "mean", "of", "2"]

    @pytest.mark.parametrize("form", ["together", "each", "folder"])
    def test_records_in_every_form(self, cli, tmp_path, form):
        folder = tmp_path / "others"
        folder.mkdir()
        others = [str(cache_file(folder, device=device, name=f"{device}.json")) for device in "CD"]
        words = {
            "together": ["--records", *others],
            "each": ["--records", others[0], "--records", others[1]],
            "folder": ["--records", str(folder)],
        }[form]
        ran = cli("replay", str(cache_file(tmp_path)), *words, "--seeds", "1", "--trials", "1", "--jobs", "1", "--json")
        (result,) = json.loads(ran.out)["spaces"]
        assert result["budgets"]["1"]["mean"] == 1.0

    @pytest.mark.processes
    def test_processes_find_the_same(self, cli, tmp_path):
        path = str(cache_file(tmp_path))
        fractions = [
            json.loads(
                cli("replay", path, "--search", "local", "--seeds", "2", "--trials", "9", "--jobs", jobs, "--json").out
            )
            for jobs in "12"
        ]
        one, two = (result["spaces"][0]["budgets"] for result in fractions)
        assert one == two

    @pytest.mark.parametrize(
        ("words", "says"),
        [(["nowhere.json"], "is not there"), (["--trials", "x"], "--trials"), (["--search", "magic"], "magic")],
    )
    def test_bad_input(self, cli, tmp_path, words, says):
        ran = cli("replay", str(cache_file(tmp_path)), "--jobs", "1", *words)
        assert ran.code == 2
        assert says in ran.err

    def test_ctrl_c_is_one_line(self, cli, tmp_path, monkeypatch):
        interrupts = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)  # noqa: E731
        monkeypatch.setattr("triton_ops_lab.replayed_search.replay", interrupts)
        ran = cli("replay", str(cache_file(tmp_path)), "--jobs", "1", "--seeds", "1", "--trials", "1")
        assert (ran.code, ran.out, ran.err) == (130, "", "interrupted\n")

    def test_record_and_replay(self, cli, tmp_path):
        target = tmp_path / "wait.py"
        target.write_text(
            "import time\n\ndef wait(*, ms):\n    if ms == 3:\n        raise ValueError\n    time.sleep(ms * 1e-3)\n"
        )
        out = tmp_path / "wait.json.gz"
        ran = cli("record", f"{target}:wait", "--space", "ms=1,2,3,8", "--device", "cpu", "--out", str(out))
        assert ran.code == 0
        assert "4 configs, 3 of them ran, 2 passes" in ran.out
        result = read_recording(out)
        assert set(result.space) == set(ConfigSpace({"ms": [1, 2, 3, 8]}))
        assert result.trials[Config(ms=3)].status is Status.RUNTIME
        assert min(result.trials.values(), key=lambda t: t.median_ms if t.ok else 1e9).config == Config(ms=1)

    def test_a_recording_needs_a_name_that_says_so(self, cli, tmp_path):
        ran = cli("record", "matmul", "--out", str(tmp_path / "x.txt"))
        assert (ran.code, "json.gz" in ran.err) == (2, True)


class Watched:
    """A search that asks for previews, and notes those that it was shown."""

    def __init__(self, inner):
        self.inner, self.wishes, self.shown = inner, [], []
        self.ask, self.tell, self.expected_gain = inner.ask, inner.tell, inner.expected_gain

    def wanted_previews(self, count):
        result = self.inner.wanted_previews(count)
        self.wishes += result
        return result

    def take_previews(self, found):
        self.shown += found
        self.inner.take_previews(found)


class TestPreviews:
    """`auto` on a recording with a compiler's figures; 48 configs would be tried whole."""

    @pytest.fixture
    def large(self, tmp_path, monkeypatch):
        monkeypatch.setitem(VALUES, "B", [1, 2, 4, 8, 16, 32, 64])
        return read_recording(rows_file(tmp_path))

    def test_only_wanted_previews_are_shown_and_impossible_configs_are_no_evaluations(self, large):
        searcher = Watched(make_searcher("auto", large.space, 0))
        run = replay(large, searcher, 20, previews=PreviewAllowance(50, 3))
        assert [one.config for one in searcher.shown] == searcher.wishes
        assert run.previews == len(set(searcher.wishes)) > 50
        assert len(run.fractions) == 20
        refused = [one for one in searcher.shown if not one.launchable]
        assert refused
        assert all(one.config["A"] == 12 and one.status is Status.RESOURCES for one in refused)
        assert not any(hasattr(one, "measurement") for one in searcher.shown)
        assert all(one.resident >= 1 for one in searcher.shown if one.launchable)

    def test_without_an_allowance_no_preview_is_asked_for(self, large):
        searcher = Watched(make_searcher("auto", large.space, 0))
        run = replay(large, searcher, 12, previews=PreviewAllowance(0, 0))
        plain = replay(large, make_searcher("random", large.space, 0), 12)
        assert (run.previews, plain.previews, searcher.shown) == (0, 0, [])

    def test_a_recording_without_compilers_figures_has_no_previews(self, tmp_path, monkeypatch):
        monkeypatch.setitem(VALUES, "B", [1, 2, 4, 8, 16, 32, 64])
        recording = read_recording(cache_file(tmp_path))
        searcher = Watched(make_searcher("auto", recording.space, 0))
        run = replay(recording, searcher, 10)
        assert (recording.compiled, searcher.wishes, run.previews) == ({}, [], 0)

    def test_the_same_seed_is_the_same_run(self, large):
        one, other = (replay(large, make_searcher("auto", large.space, 3), 20) for _ in range(2))
        assert one.fractions == other.fractions

    def test_the_command_says_how_many_and_takes_other_numbers(self, cli, tmp_path, monkeypatch):
        monkeypatch.setitem(VALUES, "B", [1, 2, 4, 8, 16, 32, 64])
        path = str(rows_file(tmp_path))
        words = ("replay", path, "--seeds", "1", "--trials", "8", "--jobs", "1", "--json")
        shown = [json.loads(cli(*words, *more).out)["spaces"][0]["previews"] for more in ((), ("--previews", "5,1"))]
        assert shown[0] > shown[1] == 12
        assert "--previews is 'many'" in cli(*words, "--previews", "many").err

    def test_the_command_can_leave_the_model_out(self, cli, tmp_path, monkeypatch):
        asked = []
        monkeypatch.setattr(
            "triton_ops_lab.replayed_search.priors_for", lambda target, _: asked.append(target.file) or []
        )
        words = ("replay", str(rows_file(tmp_path)), "--seeds", "1", "--trials", "3", "--jobs", "1")
        cli(*words, "--no-model")
        assert asked == []
        cli(*words)
        assert asked == ["own.json.gz"]
