"""Pictures of the documents: live tunes, and pages that the package writes.

    python -m benchmarks.pages.pictures tunes
    python -m benchmarks.pages.pictures guides

`tunes` draws the best so far against time of the live tunes in `live_tune.json`: one panel for each problem, one line
for each run. Beside the default tunes stand an exhaustive one and `triton.autotune` over the same configs. Seconds
count from the start of each process. The height is the speed of the best so far over that of the best of all, as the
judge measured it; those of `triton.autotune` are by its own clock, which reads some percent more at the power limit. It
tries configs in the order of the space, and a cross says that it was cut off. It needs
matplotlib: benchmarks/league/requirements/kernel_tuner.txt names a version.

`guides` needs Chromium, the browser that the tests use. It takes pictures of the pages as `triton-ops simulate --html`
and `triton-ops report -o` write them. The report is that of a search in random order in a space that was recorded on an
H200: times, resources and failures are the recorded ones, its seconds are the recorded compile times, and the rounds of
its last comparison are the recorded passes over the space.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

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

RESULTS = Path("benchmarks/results/nvidia-h200")
_TICKS = (2, 5, 10, 20, 50, 100, 300)
_INK = "#767676"  # reads on white and on black
_INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
_COLOURS = {"default tune": "tab:blue", "exhaustive": "tab:green", "triton.autotune": "tab:red"}


def steps(run: dict[str, Any], best_ms: float) -> tuple[list[float], list[float]]:
    """Seconds and heights of one run's improvements, up to its decision."""
    times, values = zip(*((at, value) for at, value, _ in run["curve"]), strict=True)
    relative = "configs" not in run  # over the default's time, where the last is the winner
    best = values[-1] / (1 + run["slower"][1]) if relative else best_ms
    return [*times, run["decided_s"]], [best / value for value in (*values, values[-1])]


def draw(cases: dict[str, Any], name: str, **size: Any) -> None:
    """Write a picture beside the results: a panel for each of the cases, on a ground that shows through."""
    from matplotlib import pyplot as plt

    plt.rcParams.update(dict.fromkeys(_INKED, _INK))
    figure, axes = plt.subplots(1, len(cases), squeeze=False, sharex=True, sharey=True, **size)
    for axis, (case, row) in zip(axes[0], cases.items(), strict=True):
        runs = [("triton.autotune", row["triton.autotune"]), ("exhaustive", row["exhaustive"])]
        for kind, history in [*runs, *(("default tune", run) for run in row["tunes"])]:
            if history is not None:
                times, heights = steps(history, min(row["judge"]["ms"].values()))
                axis.step(times, heights, where="post", color=_COLOURS[kind], alpha=0.7, linewidth=1.2)
                axis.plot(times[-1], heights[-1], "o" if history["winner"] else "x", color=_COLOURS[kind], markersize=5)
        axis.set(
            xscale="log",
            title=case,
            xlabel="seconds since the process began",
            xlim=(_TICKS[0], _TICKS[-1]),
            ylim=(0, 1.05),
        )
        axis.set_xticks(_TICKS, map(str, _TICKS))
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("speed of the best so far")
    lines = [plt.Line2D([], [], color=colour, label=kind) for kind, colour in _COLOURS.items()]
    figure.legend(handles=lines, loc="lower center", ncols=len(lines), frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(RESULTS / name, dpi=110, transparent=True)


def draw_tunes() -> None:
    """Draw all problems, and the first one alone, which a phone can show."""
    cases = json.loads((RESULTS / "live_tune.json").read_text())["cases"]
    draw(cases, "live_tune.png", figsize=(5 * len(cases), 4))
    draw(dict([next(iter(cases.items()))]), "live_tune_matmul.png", figsize=(6.4, 3.6))


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


def take_guides() -> None:
    """Write pictures of each page in light colours, in dark colours, and as a phone shows it."""
    from tests.browser import opened_browser

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


def main() -> None:
    """Make the pictures that are asked for."""
    makers = {"tunes": draw_tunes, "guides": take_guides}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(makers))
    makers[parser.parse_args().kind]()


if __name__ == "__main__":
    main()
