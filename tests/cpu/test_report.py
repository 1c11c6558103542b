"""Reports of run logs as text, Markdown and JSON, of whole runs and of what is left of others."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records import record
from tests.runs import ID, begun, head
from triton_ops.cache.lockfile import loads
from triton_ops.history.head import Environment
from triton_ops.history.run_log import Finalist, Origin, RunLog, read_run
from triton_ops.report.facts import Report
from triton_ops.report.markdown import escaped
from triton_ops.report.paste import paste_lines
from triton_ops.resources import Resources
from triton_ops.space import Config
from triton_ops.trial import Measurement, Status, Trial

HOSTILE = "<img src=https://example.org onerror=alert(1)></script>|`*@all`\x1b]0;x\x07"
SAFE = re.compile(r"[\w =%,.+()/'-]*|`[\w:=%,.+()/' -]*`|<code>([A-Za-z0-9 ]|&#\d+;)*</code>", re.ASCII)
LEVELS = {1: (1.0, 1.01, 0.99, 1.0), 2: (1.001, 1.012, 0.989, 1.0), 3: (1.1, 1.11, 1.09, 1.1)}


def config(n, shape="x"):
    return Config(n=n, shape=shape)


def ran(n, ms, shape="x", **changes):
    return Trial(config(n, shape), Status.OK, Measurement((ms,), "host"), relative=ms / 2, **changes)


def written(folder, *, ended=True, hostile=HOSTILE, key=None, run=ID):
    """The log of a run of seven configs: three finalists, one slow, three failures."""
    environment = Environment(versions={"python": "3.11"}, host={"cpus": 2}, device={"kind": "cpu", "odd": hostile})
    clock = itertools.count(0.0, 0.25)  # a line each quarter of a second
    log = RunLog(folder / f"{run}.jsonl", start=0.0, clock=lambda: next(clock))
    log.begin(head(id=run, environment=environment, **({} if key is None else {"key": key})))
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
        log.ended("complete", record(winner=config(1), ties=(config(1), config(2)), gain_interval=(1.9, 2.1),
                                     raced_gain=2.0, run=ID))  # fmt: skip
    return folder / f"{run}.jsonl"


def text(cli, *words):
    found = cli("report", *words)
    assert (found.code, found.err) == (0, "")
    return found.out


def test_a_report_says_what_became_of_every_config(tmp_path):
    report = Report(read_run(written(tmp_path)))
    fates = {(row.trial.config["n"], row.trial.config["shape"]): row.fate for row in report.rows}
    assert fates == {
        (1, "x"): "winner", (2, "x"): "tie", (3, "x"): "the race, after 4 rounds", (1, "slow"): "its screening",
        (1, "big"): "the device's resources", (2, "big"): "the device's resources",
        (3, HOSTILE): "an error at run time",
    }  # fmt: skip
    assert report.dropped == {
        "the device's resources": 2, "an error at run time": 1, "the race, after 4 rounds": 1, "its screening": 1,
    }  # fmt: skip
    assert [row.trial.config["n"] for row in report.fastest_first[:3]] == [1, 2, 3]
    assert [(one.configs, one.reason) for one in report.failures] == [(2, "needs 100 bytes"), (1, HOSTILE)]


def test_ties_have_intervals_that_include_zero_and_slower_ones_do_not(tmp_path):
    winner, tie, slow = Report(read_run(written(tmp_path))).contenders
    assert (winner.fate, tie.fate, slow.fate) == ("winner", "tie", "the race, after 4 rounds")
    assert winner.gap.centre == 0
    assert tie.gap.low <= 0 <= tie.gap.high
    assert 0 < slow.gap.low <= slow.gap.centre <= slow.gap.high


def test_text_tells_the_winner_every_config_and_no_control_character(cli, golden, tmp_path):
    found = text(cli, written(tmp_path))
    golden("report.txt", found)
    assert "winner      n=1 shape=x" in found
    assert all(f"n={n} shape=" in found for n in (1, 2, 3))
    assert all(character.isprintable() or character == "\n" for character in found)


def test_markdown_holds_no_markup_of_a_kernels_text(cli, golden, tmp_path):
    found = text(cli, written(tmp_path), "--markdown")
    golden("report.md", found)
    assert "<img" not in found
    assert "@all" not in found


def test_json_holds_every_trial_with_its_reason(cli, tmp_path):
    path = written(tmp_path)
    [run] = json.loads(text(cli, path, "--json"))["runs"]
    assert (run["run"], run["file"], run["totals"]) == (ID, str(path), {"ok": 4, "resources": 2, "runtime": 1})
    assert run["best"]["config"] == {"n": 1, "shape": "x"}
    assert run["gain"] == 2.0
    assert len(run["trials"]) == 7
    assert run["trials"][-1]["error"] == HOSTILE
    assert run["trials"][0]["resources"]["registers"] == 43
    assert run["sensitivity"]["knobs"]


def test_lines_to_paste_are_python_and_a_lockfile():
    winner = Config(BLOCK=64, name="it's", num_warps=8, num_stages=None)
    made = record(winner=winner)
    found = paste_lines(winner, made)
    call = "triton.Config({'BLOCK': 64, 'name': \"it's\"}, num_warps=8)"
    assert found["triton.Config"] == call
    assert found["decorator"] == f"@triton_ops.autotune(configs=[{call}])"
    [entry] = loads(found["lockfile"]).entries
    assert entry.config == winner


def test_two_runs_are_compared_config_by_config(cli, tmp_path):
    one, other = written(tmp_path), written(tmp_path, ended=False, hostile="odd", run="20261123T101112000000-0123abcd")
    said = text(cli, one, other)
    assert "4 configs ran in both: the second run's times are 1.000x the first's" in said
    assert "the first run's best config is place 2 in the second, the second's is place 2 in the first" in said
    [found] = json.loads(text(cli, one, other, "--json"))["comparisons"]
    assert found["common"]["configs"] == 4
    assert found["differences"]["state"][1].startswith("not ended")
    another = written(tmp_path / "", key=record("other").key, run="20261124T101112000000-0123abcd")
    assert "the kernel or the problem is another one" in text(cli, one, another)


def test_a_run_is_found_by_file_by_id_and_by_kernel(cli, tmp_path):
    folder = tmp_path / "runs" / "k"
    folder.mkdir(parents=True)
    whole = text(cli, written(folder))
    later = written(folder, ended=False, run="20261123T101112000000-0123abcd")
    assert text(cli, ID[:10], "--cache-dir", tmp_path) == whole
    assert text(cli, "wait", "--cache-dir", tmp_path) == text(cli, later)
    for named, said in (
        ("202611", "2 runs have ids that start with 202611"),
        ("none", "has no run of none"),
        ("none.jsonl", "none.jsonl is no file"),
        ("", "RUN is no file"),
    ):
        refused = cli("report", named, "--cache-dir", tmp_path)
        assert (refused.code, refused.out, refused.err.count("\n")) == (4, "", 1)
        assert said in refused.err


def test_a_run_that_goes_on_shows_its_best_so_far(cli, tmp_path):
    said = text(cli, written(tmp_path, ended=False))
    assert "not ended: it goes on, or was interrupted" in said
    assert re.search(r"best so far +n=2 shape=x", said)
    assert "dropped by" in said
    assert "not compared yet" in said


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
    said = text(cli, path)
    assert "none: no config ran" in said
    assert "\x1b" not in said
    assert json.loads(text(cli, path, "--json"))["runs"][0]["best"] is None


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
