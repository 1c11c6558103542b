"""Reports of run logs as text, Markdown and JSON, of whole runs and of what is left of others."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import record
from tests.runs import ID, begun, head
from triton_ops.backend import Operation
from triton_ops.base import Sealed
from triton_ops.cost_model import GemmTiles
from triton_ops.device import Ceiling, DeviceSpec
from triton_ops.records import Finalist, Head, Run, RunLog
from triton_ops.records import TrialOrigin as Origin
from triton_ops.records.lockfile import loads
from triton_ops.records.run_log import Environment, RoofFacts
from triton_ops.report.live import run_data
from triton_ops.report.run_facts import Report, paste_lines
from triton_ops.request import Effort, TuneRequest
from triton_ops.space import Config, ConfigSpace
from triton_ops.terminal.facts import escape as escaped
from triton_ops.values import Measurement, Problem, Resources, Status, Trial, Work

LATER, LATEST = "20261123T101112000000-0123abcd", "20261124T101112000000-0123abcd"
HOSTILE = "<img src=https://example.org onerror=alert(1)></script>|`*@all`\x1b]0;x\x07"
SAFE = re.compile(r"[\w =%,.+()/'-]*|`[\w:=%,.+()/' -]*`|<code>([A-Za-z0-9 ]|&#\d+;)*</code>", re.ASCII)
LEVELS = {1: (1.0, 1.01, 0.99, 1.0), 2: (1.001, 1.012, 0.989, 1.0), 3: (1.1, 1.11, 1.09, 1.1)}


def config(n, shape="x"):
    return Config(n=n, shape=shape)


def ran(n, ms, shape="x", **changes):
    return Trial(config(n, shape), Status.OK, Measurement((ms,), "host"), relative=ms / 2, **changes)


def written(folder, *, ended=True, hostile=HOSTILE, key=None, run=ID, winner=1, tied=(1, 2), default=None, **changes):
    """The log of a run of seven configs: three finalists, one slow, three failures; `changes` are of its first line."""
    environment = Environment(versions={"python": "3.11"}, host={"cpus": 2}, device={"kind": "cpu", "odd": hostile})
    clock = itertools.count(0.0, 0.25)  # a line each quarter of a second
    log = RunLog(folder / f"{run}.jsonl", start=0.0, clock=lambda: next(clock))
    log.write(head(id=run, environment=environment, **changes, **({} if key is None else {"key": key})), durable=True)
    screened = {
        n: ran(n, ms, resources=Resources(40 + n, 0, 1024), compile_s=0.5) for n, ms in ((3, 1.1), (2, 1.02), (1, 1.03))
    }
    for trial in screened.values():
        log.trial(trial, Origin.SEARCHER)
    log.trial(ran(1, 4.0, "slow"), Origin.SEARCHER)
    for n in (1, 2):
        log.trial(Trial(config(n, "big"), Status.RESOURCES, error=f"needs {n}00 bytes"), Origin.SEARCHER)
    log.trial(Trial(config(3, hostile), Status.RUNTIME, error=hostile), Origin.SEARCHER)
    if ended:
        for n, levels in LEVELS.items():
            trial = replace(screened[n], final=Measurement(levels, "host", 4))
            log.write(Finalist(at_s=2.0, trial=trial, dropped_at=4 if n == 3 else None))
            if n != 3:  # the ties race again in a fresh process
                log.write(Finalist(at_s=3.0, trial=trial, process=1))
        log.ended("complete", record(winner=config(winner), ties=tuple(map(config, tied)), default=default,
                                     gain_interval=(1.9, 2.1), raced_gain=2.0, run=ID))  # fmt: skip
    return folder / f"{run}.jsonl"


def text(cli, *words):
    result = cli("report", *words)
    assert (result.code, result.err) == (0, "")
    return result.out


def test_a_report_says_what_became_of_every_config(tmp_path):
    report = Report(Run.read(written(tmp_path)))
    fates = {(row.trial.config["n"], row.trial.config["shape"]): row.fate for row in report.rows}
    assert fates == {
        (1, "x"): "winner", (2, "x"): "tie", (3, "x"): "slower, after 4 rounds", (1, "slow"): "slower in its screening",
        (1, "big"): "the device's resources", (2, "big"): "the device's resources",
        (3, HOSTILE): "an error at run time",
    }  # fmt: skip
    assert report.dropped == {
        "the device's resources": 2, "an error at run time": 1, "slower, after 4 rounds": 1,
        "slower in its screening": 1,
    }  # fmt: skip
    assert [row.trial.config["n"] for row in report.fastest_first[:3]] == [1, 2, 3]
    assert [(one.configs, one.reason) for one in report.failures] == [(2, "needs 100 bytes"), (1, HOSTILE)]


def test_ties_have_intervals_that_include_zero_and_slower_ones_do_not(tmp_path):
    winner, tie, slow = Report(Run.read(written(tmp_path))).contenders
    assert (winner.fate, tie.fate, slow.fate) == ("winner", "tie", "slower, after 4 rounds")
    assert winner.gap.centre == 0
    assert tie.gap.low <= 0 <= tie.gap.high
    assert 0 < slow.gap.low <= slow.gap.centre <= slow.gap.high


def test_json_holds_every_trial_with_its_reason(cli, tmp_path):
    path = written(tmp_path)
    [run] = json.loads(text(cli, path, "--json"))["runs"]
    assert (run["run"], run["file"], run["totals"]) == (ID, str(path), {"ok": 4, "resources": 2, "runtime": 1})
    assert run["best"]["config"] == {"n": 1, "shape": "x"}
    assert run["gain"] == 2.0
    assert len(run["trials"]) == 7
    assert run["trials"][-1]["error"] == HOSTILE
    assert run["trials"][0]["resources"]["registers"] == 43


def test_lines_to_paste_are_python_and_a_lockfile():
    winner = Config(BLOCK=64, name="it's", num_warps=8, num_stages=None)
    made = record(winner=winner)
    result = paste_lines(winner, made)
    call = "triton.Config({'BLOCK': 64, 'name': \"it's\"}, num_warps=8)"
    assert result["triton.Config"] == call
    assert result["decorator"] == f"@triton_ops.autotune(configs=[{call}])"
    [entry] = loads(result["lockfile"]).entries
    assert entry.config == winner
    assert list(paste_lines(winner, made, of_triton=False)) == ["plain values", "lockfile"]


def test_every_ratio_is_of_one_comparison_and_has_its_interval(tmp_path):
    report = Report(Run.read(written(tmp_path, winner=2, tied=(2,), default=config(3))))
    winner, other, default = (report.gain_of(report.run.trials[config(n)]) for n in (2, 1, 3))
    assert winner == (2.0, (1.9, 2.1))  # as the head says
    ratio, (low, high) = other
    assert low <= ratio <= high
    assert ratio == pytest.approx(1.1, rel=0.01)  # of the rounds that both have, and of no screening
    assert default == (1.0, None)
    first_ms, second_ms, default_ms = (report.ms_of(report.run.trials[config(n)]) for n in (1, 2, 3))
    assert second_ms == report.best.median_ms
    assert (default_ms / second_ms, default_ms / first_ms) == pytest.approx((2.0, ratio))  # as the row's gain says
    assert report.limits == (12, None)


@pytest.mark.parametrize(("identity", "texts"), [
    ({"python": "3.11"}, ["plain values", "lockfile"]),
    ({"triton": "3.6.0"}, ["triton.Config", "decorator", "plain values", "lockfile"]),
])  # fmt: skip
def test_only_a_triton_kernel_has_a_triton_config_to_paste(tmp_path, identity, texts):
    key = replace(head().key, identity=identity)
    assert list(Report(Run.read(written(tmp_path, key=key))).paste) == texts


def test_two_runs_are_compared_config_by_config(cli, tmp_path):
    one, other = written(tmp_path), written(tmp_path, ended=False, hostile="odd", run=LATER)
    message = text(cli, one, other)
    assert "4 configs ran in both: the second run's times are 1.000x the first's" in message
    assert "the first run's best config is place 2 in the second, the second's is place 2 in the first" in message
    [result] = json.loads(text(cli, one, other, "--json"))["comparisons"]
    assert result["common"]["configs"] == 4
    assert result["differences"]["state"][1].startswith("not ended")
    assert result["agreement"] == "unknown", "the second has not ended"
    another = written(tmp_path / "", key=record("other").key, run=LATEST)
    assert "the runs are of different kernels or problems" in text(cli, one, another)


def test_times_below_a_millisecond_are_compared_and_times_of_zero_are_not(cli, tmp_path):
    for run, times_ms in ((ID, (0.25, 0.5)), (LATER, (0.5, 1.0)), (LATEST, (0.0, 0.5))):
        log = begun(tmp_path, id=run)
        for n, ms in enumerate(times_ms, 1):
            log.trial(ran(n, ms), Origin.SEARCHER)
    one, other, unmeasured = (tmp_path / f"{run}.jsonl" for run in (ID, LATER, LATEST))
    assert "2 configs ran in both: the second run's times are 2.000x the first's" in text(cli, one, other)
    assert "a config has no measurable time" in text(cli, unmeasured, one)


def test_only_trials_beyond_those_shown_are_counted_as_more(cli, tmp_path):
    path = written(tmp_path)
    notes = {top: re.findall(r"^(\d+ more)$", text(cli, path, "--top", top), re.MULTILINE) for top in ("6", "7", "8")}
    assert notes == {"6": ["1 more"], "7": [], "8": []}


def test_a_page_shows_errors_of_up_to_400_letters_whole(tmp_path):
    log = begun(tmp_path)
    for letters in (400, 401):
        log.trial(Trial(config(letters), Status.RUNTIME, error="e" * letters), Origin.SEARCHER)
    assert run_data(Report(Run.read(log.path)))["errors"] == ["e" * 400, "e" * 400 + "…"]


@pytest.mark.parametrize(
    ("winner", "tied", "agreement", "said"),
    [
        (1, (1,), "same", "both tunes have the same winner; 4 configs ran in both"),
        (
            2,
            (2,),
            "tie",
            "the winners differ, and tie: n=1 shape=x in the first, n=2 shape=x in the second; 4 configs",
        ),
        (3, (3,), "differ", "in the first, n=3 shape=x in the second: there the second's is slower by "),
    ],
)
def test_tunes_of_one_problem_agree_tie_or_disagree(cli, tmp_path, winner, tied, agreement, said):
    one, other = written(tmp_path), written(tmp_path, winner=winner, tied=tied, run=LATER)
    assert said in text(cli, one, other)
    [result] = json.loads(text(cli, one, other, "--json"))["comparisons"]
    assert result["agreement"] == agreement


ROOF = RoofFacts(
    flops=1e12, bytes=1e9, memory=Ceiling(name="memory", peak=4000.0, measured=3500.0),
    units=Ceiling(name="bfloat16", peak=2000.0, measured=1500.0),
)  # fmt: skip


def test_times_are_placed_below_the_roof_of_the_device(cli, tmp_path):
    path = written(tmp_path, roof=ROOF)
    message = text(cli, path)
    assert "best" in message
    assert (
        "1000 TFLOP/s (50% of the peak), 1000 GB/s (25% of the peak); 50% of its limit, the units for bfloat16"
        in message
    )
    assert "1000 FLOP/B, the ridge is at 500" in message
    [run] = json.loads(text(cli, path, "--json"))["runs"]
    assert (run["roofline"]["least_ms"], run["roofline"]["best"]["of_limit"]) == (0.5, 0.5)
    bare = replace_in_head(path, '"flops": 1000000000000.0', '"flops": -1.0')
    assert cli("report", bare).code == 4


def replace_in_head(path, before, after):
    """The log with a first line that is changed and has the checksum of its content."""
    first, rest = path.read_text(encoding="utf-8").split("\n", 1)
    changed = {name: value for name, value in json.loads(first.replace(before, after)).items() if name != "checksum"}
    path.write_text(json.dumps(Sealed(changed)) + "\n" + rest, encoding="utf-8")
    return path


def test_the_log_of_a_tune_holds_the_work_beside_the_limits_of_the_device():
    tiles = GemmTiles(
        4096, 4096, 4096, dtype="float16", out_dtype="float16", tile_rows="n", tile_columns="n", tile_inner="n"
    )
    space = ConfigSpace({"n": [1]})
    operation = Operation("matmul", lambda: None, space, lambda: {}, work=lambda _: Work(2e12, 1e9, tiles))
    request = TuneRequest(
        kernel=None, problem=Problem("matmul"), chosen=space, device=DeviceSpec.named("NVIDIA H200"),
        device_name="cuda", arguments=None, operation=operation,
    )  # fmt: skip
    facts = {"seed": 0, "versions": {}, "started": datetime.now(timezone.utc)}
    result = Head.of(ID, record().key, request, Effort.named("quick"), **facts)
    assert (result.roof.units.name, result.roof.flops, result.roof.memory.name) == ("float16", 2e12, "memory")
    assert result.roof.roofline().limit.name == "float16"
    bare = Head.of(ID, record().key, replace(request, operation=None), Effort.named("quick"), **facts)
    assert bare.roof is None


def test_what_fresh_processes_found_is_shown(cli, tmp_path):
    path = written(tmp_path)
    assert "Compared again, in fresh process 1" in text(cli, path)
    [[first, second]] = json.loads(text(cli, path, "--json"))["runs"][0]["confirmations"]
    assert (first["fate"], first["gap"]["centre"], second["fate"]) == ("winner", 0.0, "tie")


def of_problem(folder, rows, winner):
    """A run of another problem of the kernel, `rows` long."""
    key = replace(record("wait").key, problem={"M": rows}, label=f"{rows} x 64")
    name = f"20261122T{rows:012}-0123abcd"
    return written(folder, key=key, key_id=f"{rows:032}", shape=(rows, 64), run=name, winner=winner)


def test_a_kernel_over_its_problems_shows_what_each_winner_costs_elsewhere(cli, tmp_path):
    folder = tmp_path / "runs" / "k"
    folder.mkdir(parents=True)
    paths = [of_problem(folder, rows, winner) for rows, winner in ((4096, 2), (64, 1), (512, 1))]
    message = text(cli, *paths)
    assert "What differs" not in message
    lines = message[message.index("Over problems") :].splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["64", "512", "4096"]
    result = json.loads(text(cli, "wait", "--problems", "--json", "--cache-dir", tmp_path))
    assert result["problems"]["configs"] == [{"n": 1, "shape": "x"}, {"n": 2, "shape": "x"}]
    assert [row["slower"][0] == 1.0 for row in result["problems"]["rows"]] == [True, True, False]
    assert result["comparisons"] == []
    assert "Over problems" not in text(cli, paths[0], paths[0])
    assert cli("report", "none", "--problems", "--cache-dir", tmp_path).code == 4


def test_a_target_means_the_runs_of_its_kernel(cli, tmp_path):
    (tmp_path / "mine.py").write_text("def wait(n):\n    return n\n", encoding="utf-8")
    folder = tmp_path / "runs" / "k"
    folder.mkdir(parents=True)
    path = written(folder, key=record("mine:wait").key)
    assert text(cli, f"{tmp_path / 'mine.py'}:wait", "--cache-dir", tmp_path) == text(cli, path)
    refused = cli("report", f"{tmp_path / 'mine.py'}:other", "--cache-dir", tmp_path)
    assert (refused.code, refused.err.count("\n")) == (2, 1)


def test_a_run_is_found_by_file_by_id_and_by_kernel(cli, tmp_path):
    folder = tmp_path / "runs" / "k"
    folder.mkdir(parents=True)
    whole = text(cli, written(folder))
    later = written(folder, ended=False, run=LATER)
    assert text(cli, ID[:10], "--cache-dir", tmp_path) == whole
    assert text(cli, "wait", "--cache-dir", tmp_path) == text(cli, later)
    for named, message in (
        ("202611", "2 runs have ids that start with 202611"),
        ("none", "has no run of none"),
        ("none.jsonl", "none.jsonl is no file"),
        ("", "RUN is no file"),
    ):
        refused = cli("report", named, "--cache-dir", tmp_path)
        assert (refused.code, refused.out, refused.err.count("\n")) == (4, "", 1)
        assert message in refused.err


def test_a_run_that_goes_on_shows_its_best_so_far(cli, tmp_path):
    message = text(cli, written(tmp_path, ended=False))
    assert "not ended: it goes on, or was interrupted" in message
    assert re.search(r"best so far +n=2 shape=x", message)
    assert re.search(r"vs default +outcome", message)
    assert "not compared yet" in message


@pytest.mark.processes
def test_a_log_that_was_cut_in_half_is_shown_as_far_as_it_is(cli, tmp_path):
    path = written(tmp_path)
    whole = path.read_bytes()
    for size in range(whole.index(b"\n") + 1, len(whole), 97):
        path.write_bytes(whole[:size])
        for form in ("--text", "--markdown", "--json"):
            assert cli("report", path, form).code == 0
    path.write_bytes(whole[: whole.index(b"\n")])
    refused = cli("report", path)
    assert (refused.code, refused.out, refused.err.count("\n")) == (4, "", 1)


def test_a_log_of_an_older_form_is_refused_in_a_line(cli, tmp_path):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"schema_version": 2', b'"schema_version": 1', 1))
    refused = cli("report", path)
    assert (refused.code, refused.out, refused.err.count("\n")) == (4, "", 1)
    assert "schema version 1" in refused.err


def test_a_run_in_which_nothing_ran_is_shown(cli, tmp_path):
    log = begun(tmp_path)
    path = tmp_path / f"{ID}.jsonl"
    assert "none: no config ran" in text(cli, path)
    log.trial(Trial(config(1), Status.COMPILE, error=HOSTILE), Origin.DEFAULT)
    log.ended("complete")
    message = text(cli, path)
    assert "none: no config ran" in message
    assert "\x1b" not in message
    assert json.loads(text(cli, path, "--json"))["runs"][0]["best"] is None


def test_a_config_that_took_no_time_or_lacks_a_tunable_is_shown(cli, tmp_path):
    log = begun(tmp_path, roof=ROOF)
    log.trial(ran(1, 1.0), Origin.DEFAULT)
    log.trial(Trial(Config(other=HOSTILE), Status.OK, Measurement((0.0,), "host")), Origin.SEARCHER)
    log.trial(ran(2, 2.0), Origin.SEARCHER)
    for form in ("--text", "--markdown", "--json"):
        assert cli("report", log.path, form).code == 0
    assert cli("report", log.path, "-o", tmp_path / "page.html").code == 0


def test_forms_exclude_each_other(cli, tmp_path):
    path = written(tmp_path)
    for words in (("--text", "--json"), ("-o", tmp_path / "page.html", "--json")):
        assert cli("report", path, *words).code == 2
    assert cli("report", path, "--markdown", "-o", tmp_path / "report.md").code == 0
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == text(cli, path, "--markdown")
    assert cli("report", path, "-o", tmp_path / "none" / "page.html").code == 2


@given(st.text())
def test_no_text_becomes_markdown(foreign):
    shown = escaped(foreign)
    assert re.fullmatch(
        r"[A-Za-z0-9 =%,.+()/'-]*|`[A-Za-z0-9_:=%,.+()/' -]*`|<code>([A-Za-z0-9 ]|&#\d+;)*</code>", shown
    )
    assert "//" not in shown
    assert "www." not in shown.lower()


@pytest.mark.parametrize("name", ["matmul", "wait"])
def test_a_kernel_without_runs_is_named(cli, name):
    refused = cli("report", name)
    assert (refused.code, refused.err.count("\n")) == (4, 1)
    assert f"has no run of {name}" in refused.err
