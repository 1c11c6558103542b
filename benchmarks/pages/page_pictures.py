"""The pictures of the pages in the guides: `python -m benchmarks.pages.page_pictures`; needs Chromium.

They are made by the browser that the tests use, from the pages as `triton-ops simulate --html` and `triton-ops report
-o` write them. The report is that of a search in random order in a space that was recorded on an H200: times, resources
and failures are the recorded ones, its seconds are the recorded compile times, and the rounds of its last comparison
are the recorded passes over the space.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.browser import opened_browser

from triton_ops.base import NamedFile, Sealed
from triton_ops.base.files import unpacked
from triton_ops.device import Ceiling, DeviceSpec, Roofline, device_spec
from triton_ops.records import Finalist, Head, Record, Run, RunLog, Timing
from triton_ops.records import TrialOrigin as Origin
from triton_ops.records.run_log import Environment, RoofFacts, SpaceFacts
from triton_ops.report import live
from triton_ops.report.run_facts import Report
from triton_ops.space import Config
from triton_ops.values import Key, Measurement, Trial
from triton_ops_lab import command_simulate as simulator_page
from triton_ops_lab.recording import Recording, read_recording
from triton_ops_lab.simulation import WORKLOADS, simulate

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
RECORDING = Path(__file__).parents[1] / "recordings" / "matmul_bf16-2048x6144x3072.json.gz"
_LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1100, "height": 860}},
    "dark": {"viewport": {"width": 1100, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}},
}
_SHOWN = {
    "simulate": {"phone": "advice"},
    "report": {"light": "curve-section", "dark": "roof-section", "phone": "ties-section"},
}  # the part at the top of a picture, where that is not the page's top
_ID = "20261122T101112000000-0123abcd"
_FINALISTS = 4
_NOISE = 0.005


def main() -> None:
    """Write pictures of each page in light colours, in dark colours, and as a phone shows it."""
    gemm = simulate(WORKLOADS["gemm"], device_spec("H200"))
    with tempfile.TemporaryDirectory() as folder, opened_browser() as browser:
        for page, content in {
            "simulate": simulator_page.page_of(gemm, simulator_page.grid_of(gemm)),
            "report": live.page_of([Report(Run.read(replayed(Path(folder))))]),
        }.items():
            path = Path(folder) / f"{page}.html"
            path.write_text(content, encoding="utf-8")
            for name, look in _LOOKS.items():
                opened = browser.new_context(**look).new_page()
                opened.goto(path.as_uri())
                if (shown := _SHOWN[page].get(name)) is not None:
                    opened.evaluate(f"document.getElementById('{shown}').scrollIntoView()")
                opened.screenshot(path=GUIDES / f"{page}-{name}.png")
                print(f"docs/guides/{page}-{name}.png is made")


def replayed(folder: Path) -> Path:
    """The log of a search in random order in the recorded space."""
    recording = read_recording(RECORDING)
    trials = list(recording.trials.values())
    random.Random(0).shuffle(trials)
    default = next(trial for trial in trials if trial.ok)
    at_s = [0.0]
    log = RunLog(folder / f"{_ID}.jsonl", start=0.0, clock=lambda: at_s[0])
    head = _head(recording)
    log.write(head, durable=True)
    for trial in trials:
        at_s[0] += trial.compile_s or 0.0
        relative = trial.median_ms / default.median_ms if trial.ok else None
        log.trial(replace(trial, relative=relative), Origin.DEFAULT if trial is default else Origin.SEARCHER)
    passes = _passes()
    fastest = sorted((trial for trial in trials if trial.config in passes), key=lambda trial: trial.median_ms)
    finalists = [
        replace(
            trial, final=Measurement(tuple(passes[trial.config]), "event-cold", len(passes[trial.config])),
            relative=trial.median_ms / default.median_ms,
        )
        for trial in fastest[:_FINALISTS]
    ]  # fmt: skip
    for trial in finalists:
        log.write(Finalist(at_s=log.at_s, trial=trial))
    log.ended("complete", _record(head.key, finalists, default))
    assert log.path is not None
    return log.path


def _head(recording: Recording) -> Head:
    spec = DeviceSpec.named(recording.device)
    assert spec is not None
    roof = Roofline.of(
        spec, flops=recording.head["flops"], bytes_=recording.head["bytes"], dtype=recording.dtype, products=True
    )  # fmt: skip
    assert roof.memory is not None
    assert roof.units is not None
    device = {"name": spec.name}
    label = f"{'x'.join(map(str, recording.problem))} {recording.dtype}"
    return Head(
        id=_ID, key_id="0" * 32, shape=recording.problem, dtype=recording.dtype,
        key=Key(kernel=recording.kernel, problem={}, identity={}, device=device, cache_state="cold", label=label),
        started=datetime(2026, 11, 21, tzinfo=timezone.utc).isoformat(),
        environment=Environment(
            versions={"torch": recording.head["torch"], "triton": recording.head["triton"]}, host={},
            device={"arch": spec.arch},
        ),
        space=SpaceFacts(
            fingerprint=recording.space.fingerprint,
            tunables={name: list(tunable.values) for name, tunable in recording.space.tunables.items()},
        ),
        effort={"name": "exhaustive"}, searcher="random", seed=0,
        roof=RoofFacts(
            flops=roof.flops, bytes=roof.bytes, memory=Ceiling(name=roof.memory.name, peak=roof.memory.peak),
            units=Ceiling(name=roof.units.name, peak=roof.units.peak),
        ),
    )  # fmt: skip


def _passes() -> dict[Config, list[float]]:
    """The median of each recorded pass, for the configs that were in all of them."""
    rows = Sealed.parsed(unpacked(NamedFile(RECORDING).read()))["rows"]
    return {
        Config(row["config"]): [quantiles[2] for quantiles in (*row["ms"], *row["final"])]
        for row in rows if row.get("final")
    }  # fmt: skip


def _record(key: Key, finalists: Sequence[Trial], default: Trial) -> Record:
    winner = min(finalists, key=lambda trial: trial.median_ms)
    times = winner.best_measurement
    ties = tuple(trial.config for trial in finalists if trial.median_ms <= (1 + _NOISE) * winner.median_ms)
    timing = Timing(times.median_ms, times.p20_ms, times.p80_ms, len(times.samples_ms))
    return Record(
        key=key, winner=winner.config, timing=timing,
        mode=times.mode, default=default.config, default_timing=Timing(*(default.median_ms,) * 3, 1),
        ties=ties, noise=_NOISE, run=_ID,
    )  # fmt: skip


if __name__ == "__main__":
    main()
