"""Reports with the tunables that matter."""

from __future__ import annotations

import json

from tests.cpu.report.test_report import HOSTILE, ROOF, ran, text, written
from tests.runs import begun
from triton_ops.records import Run
from triton_ops.records import TrialOrigin as Origin
from triton_ops.report.live import page_of
from triton_ops.report.run_facts import Report
from triton_ops.space import Config
from triton_ops.values import Measurement, Status, Trial


def test_text_tells_the_winner_every_config_and_no_control_character(cli, golden, tmp_path):
    result = text(cli, written(tmp_path))
    golden("report.txt", result)
    assert "winner      n=1 shape=x" in result
    assert all(f"n={n} shape=" in result for n in (1, 2, 3))
    assert all(character.isprintable() or character == "\n" for character in result)


def test_markdown_holds_no_markup_of_a_kernels_text(cli, golden, tmp_path):
    result = text(cli, written(tmp_path), "--markdown")
    golden("report.md", result)
    assert "<img" not in result
    assert "@all" not in result


def test_json_and_the_page_hold_the_tunables_that_matter_or_why_none_is_told(cli, tmp_path):
    assert json.loads(text(cli, written(tmp_path), "--json"))["runs"][0]["sensitivity"]["knobs"]
    log = begun(tmp_path, roof=ROOF)
    log.trial(ran(1, 1.0), Origin.DEFAULT)
    log.trial(Trial(Config(other=HOSTILE), Status.OK, Measurement((0.0,), "host")), Origin.SEARCHER)
    assert "took no time" in page_of([Report(Run.read(log.path))])
    assert cli("explain", "sensitivity", log.path).code == 2
