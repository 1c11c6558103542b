"""The report's page, and `watched`: a process of its own that serves it growing while a tune runs, and ends with it.

The page is one file that holds its style, the runs as compact rows, and the script that draws. Its charts are plain SVG
made by its own script, as those of the simulator's page are. The process has the lowest priority, so that it never
takes time from measuring. Its input gives it the token and then stays open until the tune has ended.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from http import HTTPStatus
from pathlib import Path
from typing import Any

from triton_ops.base import StoredFile, gain_text
from triton_ops.exceptions import DeviceError, RunLogError
from triton_ops.processes import Child
from triton_ops.records import Run
from triton_ops.report.report_tables import RunComparison, comparisons_of, problem_map
from triton_ops.report.run_facts import RaceEntry, Report, TrialRow
from triton_ops.space import Tunable
from triton_ops.terminal import Page, PageServer
from triton_ops.tuner import Listener, RunPlan, RunProgress
from triton_ops.values import Trial, TuningResult

MOST_ROWS = 20_000
"""Trials that a page holds of one run, the fastest first: 4 MB. Totals, failures and what was dropped count all."""
_ERROR_LETTERS = 400
_SCRIPTS = ("charts.js", "trials.js", "views.js", "start.js")
_FOLLOWS = "live.js"
_RESOURCES = ("registers", "spill_bytes", "shared_bytes")


def page_of(reports: Sequence[Report]) -> str:
    """The page as HTML. It shows one run at a time, and the comparison of the first with each other.

    Cost: some 2 s and 1 MB for a run of 5,000 trials.
    """
    problems = problem_map(reports)
    return _page({
        "runs": [run_data(report) for report in reports],
        "comparisons": list(map(_comparison, comparisons_of(reports))),
        "map": None if not problems else {
            "configs": [str(config) for config in problems[0].slower],
            "rows": [[*row.cells[:4], list(row.slower.values())] for row in problems],
        },
    })  # fmt: skip


def _page(data: dict[str, Any], *further: str) -> str:
    return Page("Tuning report", "triton_ops.report", (*_SCRIPTS, *further), data, asks=_FOLLOWS in further).html


def run_data(report: Report) -> dict[str, Any]:
    """The data of a run for the page."""
    knobs = report.sensitivity
    return {
        "id": report.run.head.id, "title": report.title, "device": report.device,
        "facts": report.headline, "paste": report.paste, "environment": report.environment,
        "verdict": report.verdict, "limits": report.limits,
        "all": len(report.rows), "ended": report.run.end is not None,
        **_trial_rows(report, report.fastest_first[:MOST_ROWS]),
        "curve": [[at_s, trial.rank, trial.median_ms, str(trial.config)] for at_s, trial in report.best_so_far],
        "relative": all(trial.relative is not None for _, trial in report.best_so_far),
        "elapsed_s": report.run.at_s,
        "contenders": list(map(_contender, report.contenders)),
        "confirmations": [[process, list(map(_contender, rivals))] for process, rivals in report.confirmations.items()],
        "roof": _roof(report), "roof_facts": report.roof_facts,
        "dropped": list(report.dropped.items()),
        "failures": [[one.configs, str(one.status), one.reason, str(one.first)] for one in report.failures],
        "unclear": knobs if isinstance(knobs, str) else "",
        "explained": None if isinstance(knobs, str) else knobs.explained,
        "knobs": [] if isinstance(knobs, str) else [
            {"name": knob.name, "share": knob.share, "span": knob.span,
             "values": [[str(one.value), one.configs, one.failed, one.slower, one.best_ms] for one in knob.effects]}
            for knob in knobs.knobs
        ],
    }  # fmt: skip


def _roof(report: Report) -> dict[str, Any] | None:
    """The lines of a roofline, and what a time's height below them is; None without operations per byte."""
    roof = report.roof
    if roof is None or roof.intensity is None or not math.isfinite(roof.intensity) or roof.memory is None:
        return None
    units = roof.units
    return {
        "intensity": roof.intensity, "flops": roof.flops, "gbps": [roof.memory.peak, roof.memory.measured],
        "tflops": None if units is None else [units.peak, units.measured], "units": "" if units is None else units.name,
        "default_ms": report.default.median_ms if report.default is not None and report.default.ok else None,
    }  # fmt: skip


def _contender(one: RaceEntry) -> list[Any]:
    return [*one.cells, one.gap and astuple(one.gap)]


def _trial_rows(report: Report, rows: Sequence[TrialRow]) -> dict[str, Any]:
    """Rows of numbers: texts that repeat stand in lists once, and rows name their places in them."""
    tunables, configs = report.run.head.space.tunables, [dict(row.trial.config.plain) for row in rows]
    names = list(dict.fromkeys((*tunables, *(name for config in configs for name in config))))
    places: dict[str, dict[str, int]] = {name: {} for name in names}
    # The space's values come first and in their order, by which charts draw them; JSON has made lists of tuples.
    for name, values in tunables.items():
        for value in Tunable(tuple(values)).in_order:
            _place(places[name], str(tuple(value) if isinstance(value, list) else value))
    errors: dict[str, int] = {}
    fates: dict[str, int] = {}
    numbers = []
    for row, config in zip(rows, configs, strict=True):
        codes = [_place(places[name], str(config[name])) if name in config else -1 for name in names]
        numbers.append([*_figures(report, row, fates, errors), *codes])
    values_by_name = [list(places[name]) for name in names]
    return {"names": names, "values": values_by_name, "errors": list(errors), "fates": list(fates), "rows": numbers}


def _figures(report: Report, row: TrialRow, fates: dict[str, int], errors: dict[str, int]) -> list[Any]:
    trial, resources = row.trial, row.trial.resources
    gain, interval = report.gain_of(trial)
    error = trial.error if len(trial.error) <= _ERROR_LETTERS else f"{trial.error[:_ERROR_LETTERS]}…"
    return [
        row.number, row.at_s, _place(fates, row.fate), _place(errors, error),
        report.ms_of(trial),
        1 / gain if gain else None,
        trial.best_measurement.spread if trial.ok else None,
        trial.compile_s,
        *(None if resources is None else getattr(resources, name) for name in _RESOURCES),
        interval and gain_text(gain, interval),
    ]  # fmt: skip


def _place(places: dict[str, int], text: str) -> int:
    return places.setdefault(text, len(places))


def _comparison(comparison: RunComparison) -> Any:
    return {
        "first": comparison.first.run.head.id, "second": comparison.second.run.head.id,
        "common": comparison.text,
        "differences": [[name, *both] for name, both in comparison.differences.items()],
    }  # fmt: skip


PAUSE_S = 1.0  # between two readings of the file, at least
_REST = 9  # times the seconds of the last reading: a long run costs a tenth of a CPU, however long it is
_LOOK_S = 0.2
POLL_S = 15.0  # that a page's question for news is held
_NEWS = re.compile(r"run\.json\?seen=(\d{1,9})", re.ASCII)


class GrowingReport:
    """The report of a run as far as its log goes, for any number of threads; `clock` and `spent` are in seconds.

    `followed` is set once a page asks for news, `told_the_end` once somebody was given the last answer.
    """

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.monotonic, spent: Callable[[], float] = time.thread_time
    ) -> None:
        self._path, self._clock, self._spent = path, clock, spent
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._state: tuple[int, ...] = ()
        self._run: dict[str, Any] = {}
        self._text = ""
        self._version = 0
        self._next_s = clock()
        self.followed = threading.Event()
        self.told_the_end = threading.Event()

    def end(self) -> None:
        """Say that nobody writes any more: the next reading is the last one, and whoever waits is answered."""
        self._over.set()

    def answer(self, name: str) -> tuple[HTTPStatus, str, str] | None:
        """The page, or what is new since the version that a page shows; None for another path."""
        if name == "":
            page = self.page()
            if page is None:
                text = "The run log cannot be read yet; reload this page.\n"
                return HTTPStatus.SERVICE_UNAVAILABLE, text, "text/plain"
            return HTTPStatus.OK, page, "text/html"
        if (question := _NEWS.fullmatch(name)) is None:
            return None
        news = self.newer(int(question[1]), POLL_S)
        return HTTPStatus.NO_CONTENT if news is None else HTTPStatus.OK, news or "", "application/json"

    def page(self) -> str | None:
        """The page as it is now; None while the file cannot be read as a run log."""
        with self._lock:
            self._refresh()
            if not self._version:
                return None
            data = {"runs": [self._run], "comparisons": [], "map": None, "version": self._version}
            return _page(data, _FOLLOWS)  # which asks the server that it came from for what is new since the version

    def newer(self, shown_version: int, most_s: float) -> str | None:
        """The run as JSON, as soon as it has another version than the one shown; the last has `over`. None: no news."""
        self.followed.set()
        until_s = self._clock() + most_s
        while True:
            over = self._over.is_set()  # asked before the file is read, so that the last answer holds all of it
            with self._lock:
                self._refresh(now=over)
                version, text = self._version, self._text
            if version and (over or version != shown_version):
                if over:
                    self.told_the_end.set()
                return f'{{"version":{version},"over":{str(over).lower()},"run":{text}}}'
            if over or self._clock() >= until_s:
                return None
            self._over.wait(_LOOK_S)

    def _refresh(self, *, now: bool = False) -> None:
        """Read the file if it has changed; without `now`, only after the pause. What cannot be read changes nothing."""
        state = StoredFile(self._path).state
        if not state or state == self._state or (self._clock() < self._next_s and not now):
            return
        self._state, before_s = state, self._spent()
        try:
            self._run = run_data(Report(Run.read(self._path), live=not now))
        except RunLogError:
            return
        # Also where the file cannot be read, since each question of a page would read it again.
        finally:
            self._next_s = self._clock() + max(PAUSE_S, _REST * (self._spent() - before_s))
        self._text = Page.json(self._run)
        self._version += 1


_GOODBYE_S = 3.0  # that pages which are open are given to fetch the last state
_DRAIN_S = 0.5
_END_S = 4.0  # that the process is given to answer pages that are open
_LOWEST = 19
_SHUTDOWN_S = 0.1  # between two looks of the server whether it is to end


def main() -> None:
    """Serve a run log until the input ends, in the process that `watched` has started."""
    parent, descriptor = int(sys.argv[2]), int(sys.argv[3])
    Child.die_with(parent)
    os.nice(_LOWEST)
    token = sys.stdin.readline().strip()
    growing = GrowingReport(Path(sys.argv[4]))
    server = PageServer(socket.socket(fileno=descriptor), token, growing.answer)
    threading.Thread(target=server.serve_forever, args=(_SHUTDOWN_S,), daemon=True).start()
    # Its end comes also when the tune was killed, since the system closes its pipes.
    sys.stdin.read()
    growing.end()
    if growing.followed.is_set():
        growing.told_the_end.wait(_GOODBYE_S)
    server.shutdown()
    server.drain(_DRAIN_S)


@contextlib.contextmanager
def watched(listener: Listener, port: int, tell: Callable[[str], None]) -> Iterator[Listener]:
    """A listener for one tune, which passes everything on, and has the run's report served until the context ends.

    `tell` is given the address of the page, or why there is none; a port of 0 is one that is free. `SettingsError`,
    before anything is tuned: the port is out of range or taken. Cost: half a second of a CPU to start, by a process of
    the lowest priority, and at most a tenth of a CPU then.
    """
    with PageServer.listening(port, "--watch-port") as bound:
        watch = _Watch(listener, bound, tell)
        try:
            yield watch
        finally:
            watch.end()
        if not watch.has_run:
            tell("--watch: the winner was known and nothing was tuned, so there is nothing to watch; --force tunes")


class _Watch:
    """A listener that has the report served from the moment when the run has a log."""

    def __init__(self, listener: Listener, bound: socket.socket, tell: Callable[[str], None]) -> None:
        self._listener, self._bound, self._tell = listener, bound, tell
        self._process: subprocess.Popen[bytes] | None = None
        self.has_run = False

    def started(self, plan: RunPlan) -> None:
        self.has_run = True
        if plan.log is None:
            self._tell("--watch: this run keeps no log, so that there is nothing to watch")
        else:
            self._serve(plan.log)
        self._listener.started(plan)

    def tried(self, trial: Trial, progress: RunProgress) -> None:
        self._listener.tried(trial, progress)

    def ended(self, result: TuningResult | None) -> None:
        """Pass it on; the log gets its last lines after this."""
        self._listener.ended(result)

    def end(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _serve(self, log: Path) -> None:
        token = PageServer.new_token()
        try:
            descriptor, program = self._bound.fileno(), "triton_ops.report.live"
            self._process = Child.start(program, descriptor, log.absolute(), pass_fds=(descriptor,))
            assert self._process.stdin is not None
            self._process.stdin.write(f"{token}\n".encode())  # not an argument, which other users could read
            self._process.stdin.flush()
        except (OSError, DeviceError) as error:
            self._tell(f"--watch: no process can be started for it: {error}")
            return
        self._tell(f"watch this run at {PageServer.address_of(self._bound, token)} while it goes on")
