"""The facts of one run, from its run log alone."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from triton_ops._faces import Upward
from triton_ops.base import cached_property, gain_text
from triton_ops.device import Placed, Roofline
from triton_ops.exceptions import MissingDependencyError, RecordingError
from triton_ops.records import Finalist, Preview, Record, Resumed, Run, TrialOrigin, lock_of
from triton_ops.ship import OPTIONS
from triton_ops.space import Config
from triton_ops.timing import Interval
from triton_ops.values import Status, Trial

_SENSITIVITY = Upward[Callable[[Run], Any]]("the tunables that matter")
_FLOAT = re.compile(r"^(b?)fp?(?=\d)")  # Triton's `fp32` and `bf16` are its `float32` and `bfloat16`
_NAMED = re.compile(r"(torch|triton\.language):(\w+)|[\w.]+:(\w+(?:\.\w+)+)")


def paste_lines(config: Config, record: Record | None, *, of_triton: bool = True) -> dict[str, str]:
    """Texts to paste, by where they go.

    A callable of Python takes no `triton.Config`, in which options stand after the tunables, and none that is null. A
    lockfile needs a record, and one whose kernel can be told.
    """
    tunables = {name: value for name, value in config.plain.items() if name not in OPTIONS}
    options = [f"{name}={config.plain[name]!r}" for name in OPTIONS if config.plain.get(name) is not None]
    call = f"triton.Config({', '.join([_source(tunables), *options])})"
    texts = {"triton.Config": call, "decorator": f"@triton_ops.autotune(configs=[{call}])"} if of_triton else {}
    texts["plain values"] = _source(dict(config.plain))
    lock, leftovers = lock_of([record] if record is not None else [])
    return texts if record is None or leftovers else {**texts, "lockfile": lock.text}


def _source(values: Mapping[str, Any]) -> str:
    """Values as Python's source, with members of an `Enum` and dtypes in place of the names that a config has."""
    return f"{{{', '.join(f'{name!r}: {value_source(value)}' for name, value in values.items())}}}"


def value_source(value: Any) -> str:
    """A value of a config as Python's source: `tl.float32`, `torch.float16`, `Mode.FAST`, else its `repr`."""
    if isinstance(value, tuple):
        return f"({', '.join(map(value_source, value))}{',' * (len(value) == 1)})"
    match = _NAMED.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return repr(value)
    module, dtype, member = match.groups()
    if module == "triton.language":
        return "tl." + _FLOAT.sub(r"\1float", dtype)
    return f"torch.{dtype}" if module else str(member)


_NOT_YET = "not compared yet"
_NUMBER = re.compile(r"\d[\d.,_]*")


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """One config that was tried; of a finalist without a line of its own neither time nor origin is known."""

    number: int  # in the order in which configs were tried, from 1 on
    at_s: float | None  # of the run, when its trial ended
    origin: str  # why it was tried
    trial: Trial
    fate: str  # the winner, a tie, or what dropped it


def ms_text(milliseconds: float | None) -> str:
    """A time, or `-`."""
    return "-" if milliseconds is None else f"{milliseconds:.4g}"


@dataclass(frozen=True, kw_only=True)
class RaceEntry:
    """One config of the last comparison."""

    trial: Trial  # after the comparison
    rounds: int  # in which it was measured
    gap: Interval | None  # by which share it is slower than the winner, with 95 %; None if either has no times
    fate: str

    @property
    def cells(self) -> list[str]:
        """One line of the last comparison: time, gap such as `+1.2% (+0.8% to +1.6%)`, rounds, outcome, config."""
        gap = "-" if self.gap is None else f"{self.gap.centre:+.2%} ({self.gap.low:+.2%} to {self.gap.high:+.2%})"
        milliseconds = self.trial.median_ms if self.trial.ok else None
        return [ms_text(milliseconds), gap, str(self.rounds), self.fate, str(self.trial.config)]


@dataclass(frozen=True, kw_only=True)
class FailureGroup:
    """Failures of one status whose reasons, here that of the first, differ in numbers only."""

    status: Status
    reason: str
    configs: int
    first: Config


@dataclass(frozen=True)
class Report:
    """One run and what can be said of it."""

    run: Run
    live: bool = False  # the run is known to go on

    @cached_property
    def record(self) -> Record | None:
        """The run's record; None if it has not ended, or no config ran."""
        return None if self.run.end is None else self.run.end.record

    @property
    def title(self) -> str:
        """The kernel and its problem."""
        key = self.run.head.key
        return f"{key.kernel} {key.label}".rstrip()

    @property
    def device(self) -> str:
        """The device's name."""
        return str(self.run.head.key.device.get("name", "not named"))

    @cached_property
    def best(self) -> Trial | None:
        """The winner's trial; of a run that has not ended, the fastest screening so far; None if no config ran."""
        trials = self.run.trials
        if self.record is not None and (winner := trials.get(self.record.winner)) is not None and winner.ok:
            return winner
        return min((trial for trial in trials.values() if trial.ok), key=lambda trial: trial.rank, default=None)

    @cached_property
    def default(self) -> Trial | None:
        """The trial of the config that others are compared with; None if none was tried as the default."""
        if self.record is not None:
            config = self.record.default
        else:
            lines = self.run.finished
            config = next((line.trial.config for line in lines if line.origin is TrialOrigin.DEFAULT), None)
        return None if config is None else self.run.trials.get(config)

    @property
    def gain(self) -> float | None:
        """The default's time over the best one's; None where it is not known."""
        if self.record is not None and self.record.gain is not None:
            return self.record.gain
        over = None if self.best is None else self.best.over(self.default)
        return 1 / over if over else None

    def gain_of(self, trial: Trial) -> tuple[float | None, tuple[float, float] | None]:
        """The default's time over a trial's, and its 95 % interval where both raced; of the best one the run's own."""
        if self.best is not None and trial.config == self.best.config:
            return self.gain, None if self.record is None else self.record.gain_interval
        over, default = trial.over(self.default), self.default
        if not over or default is None or default.final is None or trial.final is None or trial is default:
            return 1 / over if over else None, None
        gap = Interval.of_gap(default.final.rounds_ms, trial.final.rounds_ms)
        return 1 / over, (math.exp(gap.low), math.exp(gap.high))

    def ms_of(self, trial: Trial) -> float | None:
        """The milliseconds of a trial that ran, which agree with its gain: those of the best one, by both gains."""
        gain, _ = self.gain_of(trial)
        if not trial.ok or self.best is None or not gain or not self.gain:
            return trial.median_ms if trial.ok else None
        return self.best.median_ms * self.gain / gain

    @property
    def limits(self) -> tuple[int, float | None]:
        """The most trials of the search, by its budget and its space, and its most seconds; None without a limit."""
        space = self.run.head.space
        budget: Any = self.run.head.effort.get("budget") or {}
        size = math.prod(map(len, space.tunables.values())) if space.listed is None else len(space.listed)
        return min(size, budget.get("trials") or size), budget.get("seconds")

    @cached_property
    def totals(self) -> dict[str, int]:
        """The number of configs that ended in each status that occurred."""
        return Trial.totals(list(self.run.trials.values()))

    @cached_property
    def rows(self) -> list[TrialRow]:
        """Every config that was tried, in that order."""
        lines = {line.trial.config: (line.at_s, str(line.origin)) for line in self.run.finished}
        rows = []
        for number, (config, trial) in enumerate(self.run.trials.items(), 1):
            at_s, origin = lines.get(config, (None, ""))
            rows.append(TrialRow(number=number, at_s=at_s, origin=origin, trial=trial, fate=self._fate(trial)))
        return rows

    @cached_property
    def fastest_first(self) -> list[TrialRow]:
        """The rows: the best one, the others that ran in order of their time, then those without a time."""
        best = None if self.best is None else self.best.config

        def order(row: TrialRow) -> tuple[bool, bool, float]:
            return row.trial.config != best, not row.trial.ok, row.trial.rank if row.trial.ok else 0.0

        return sorted(self.rows, key=order)

    @cached_property
    def best_so_far(self) -> list[tuple[float, Trial]]:
        """Each trial that was the fastest by its screening when it ended, with its seconds since the start.

        Screenings of different modes are never compared: of a config that was measured again, the last trial counts.
        """
        last = {event.trial.config: event for event in self.run.finished}
        best: list[tuple[float, Trial]] = []
        for event in sorted(last.values(), key=lambda event: event.at_s):
            if event.trial.ok and (not best or event.trial.rank < best[-1][1].rank):
                best.append((event.at_s, event.trial))
        return best

    @cached_property
    def contenders(self) -> list[RaceEntry]:
        """The configs of the run's last comparison: the winner, ties, and the others by their gap."""
        return self._compared(self._by_process[0])

    def _compared(self, lines: Mapping[Config, Finalist]) -> list[RaceEntry]:
        winner = None if self.best is None else lines.get(self.best.config)
        contenders = [
            RaceEntry(trial=line.trial, rounds=len(_levels(line)), gap=_gap(line, winner), fate=self._fate(line.trial))
            for line in lines.values()
        ]
        # Those without a gap come last.
        order = {"winner": 0, "tie": 1}
        return sorted(contenders, key=lambda one: (order.get(one.fate, 2), one.gap.centre if one.gap else 1e9))

    @cached_property
    def confirmations(self) -> dict[int, list[RaceEntry]]:
        """By the number of each fresh process that compared the ties again, what it found; empty if none did."""
        return {process: self._compared(lines) for process, lines in sorted(self._by_process.items()) if process}

    @cached_property
    def roof(self) -> Roofline | None:
        """The roofline of the problem on the device; None if its work was not declared, or no limit is known."""
        facts = self.run.head.roof
        roof = None if facts is None else facts.roofline()
        return None if roof is None or roof.least_ms is None else roof

    def placed(self, trial: Trial | None) -> Placed | None:
        """A trial's time below the roof; None without a roof or a time."""
        if self.roof is None or trial is None or not trial.ok or trial.median_ms <= 0:
            return None
        return self.roof.placed(trial.median_ms)

    @cached_property
    def failures(self) -> list[FailureGroup]:
        """The failures, those of one reason together, the most frequent first."""
        groups: dict[tuple[Status, str], list[Trial]] = {}
        for trial in self.run.trials.values():
            if trial.failed:
                groups.setdefault((trial.status, _NUMBER.sub("0", trial.error)), []).append(trial)
        failures = [
            FailureGroup(status=status, reason=trials[0].error, configs=len(trials), first=trials[0].config)
            for (status, _), trials in groups.items()
        ]
        return sorted(failures, key=lambda group: -group.configs)

    @cached_property
    def dropped(self) -> dict[str, int]:
        """The number of candidates that each step of the run dropped, in the order of the steps."""
        fates = Counter(row.fate for row in self.rows)
        looks = {event.compiled.config: event.compiled for event in self.run.events if isinstance(event, Preview)}
        only = [one for config, one in looks.items() if config not in self.run.trials]
        counts = {f"only compiled, {status.facts.dropped_by or 'and not tried'}": count
                 for status, count in Counter(one.status for one in only).items()}  # fmt: skip
        counts.update({by: fates.pop(by) for by in Status.drops() if by in fates})
        counts.update((fate, count) for fate, count in fates.items() if fate not in ("winner", "tie", _NOT_YET))
        return counts

    @cached_property
    def environment(self) -> dict[str, str]:
        """Facts on the machine, the versions and the settings of the run."""
        head = self.run.head
        place = head.environment
        facts = {
            **{f"device {name}": value for name, value in place.device.items()},
            **{f"host {name}": value for name, value in place.host.items()},
            **{f"version of {name}": value for name, value in place.versions.items()}, "started": head.started,
            "resumed": ", ".join(event.at for event in self.run.events if isinstance(event, Resumed)),
            "effort": head.effort.get("name", ""), "searcher": head.searcher,
            "seed": head.seed, "cache state": head.key.cache_state,
            **({} if self.record is None else {f"sensor {name}": value for name, value in self.record.guard.items()}),
        }  # fmt: skip
        return {name: str(value) for name, value in facts.items() if value not in ("", None)}

    @cached_property
    def sensitivity(self) -> Any:
        """The tunables that matter, as a `Sensitivity` of the lab; or the reason why that cannot be said, a text."""
        try:
            return _SENSITIVITY.function(self.run)
        except (RecordingError, MissingDependencyError) as error:
            return error.message

    @property
    def state(self) -> str:
        """The state of the run: ended, with the reason, or not."""
        if self.run.end is not None:
            return f"ended: {self.run.end.stopped}"
        at = self.run.under_way
        if self.live:
            return "it goes on" if at is None else f"it goes on, with ({at})"
        return f"not ended: it goes on, or was interrupted{f' while ({at}) ran' if at is not None else ''}"

    @cached_property
    def paste(self) -> dict[str, str]:
        """Texts to paste into a source; none if no config ran."""
        of_triton = "python" not in self.run.head.key.identity  # that of a callable names the version of Python
        return {} if self.best is None else paste_lines(self.best.config, self.record, of_triton=of_triton)

    @property
    def verdict(self) -> dict[str, str]:
        """What one wants to know first: `gain`, `confidence`, and the `winner`, or what is best so far."""
        best, record = self.best, self.record
        if best is None:
            return {"winner": "none so far" if self.live else "none: no config ran"}
        gain, confidence = gain_text(*self.gain_of(best)), ""
        if record is not None:
            low = record.confidence if record.confidence == "ok" else f"low: {record.confidence}"
            confidence = f"unproven: {record.unproven}" if record.unproven else low
        facts = {
            "gain": "" if gain == "-" else f"{gain} as fast as the default", "confidence": confidence,
            "best so far" if record is None else "winner": str(best.config),
        }  # fmt: skip
        return {name: text for name, text in facts.items() if text}

    @property
    def headline(self) -> dict[str, str]:
        """The facts with which a report begins."""
        best, record = self.best, self.record
        facts = {
            **self.verdict,
            "time": "" if best is None else f"{best.median_ms:.4g} ms, {best.best_measurement.mode}",
            "kernel": self.title, "device": self.device, "state": self.state, "tried": self._counts,
            "run": self.run.head.id,
        }  # fmt: skip
        if record is not None and best is not None:
            facts["ties"] = f"{max(len(record.ties) - 1, 0)} more within noise ({record.noise:.2%})"
            facts["checked"] = f"results compared with {record.verified.against}" if record.verified.against else ""
            facts |= {f"note {number}": note for number, note in enumerate(record.notes, 1)}
        return {name: text for name, text in facts.items() if text}

    @property
    def _counts(self) -> str:
        total = sum(self.totals.values())
        counts = ", ".join(f"{count} {status}" for status, count in self.totals.items())
        return f"{total} in {self.run.at_s:.1f} s{f': {counts}' if counts else ''}"

    @property
    def roof_facts(self) -> dict[str, str]:
        """The ceilings of the device, and the places of best config and default below them; empty if not known."""
        if self.roof is None:
            return {}
        facts = {**self.roof.rows, "at best": f"{self.roof.least_ms:.4g} ms"}
        for name, trial in (("best", self.best), ("default", self.default)):
            if (place := self.placed(trial)) is not None:
                facts[name] = f"{place.ms:.4g} ms{place.reached}"
        return facts

    @cached_property
    def _by_process(self) -> dict[int, dict[Config, Finalist]]:
        """The lines of comparisons by process, 0 for that of the run."""
        by_process: dict[int, dict[Config, Finalist]] = {0: {}}
        for event in self.run.events:
            if isinstance(event, Finalist):
                by_process.setdefault(event.process, {})[event.trial.config] = event
        return by_process

    def _fate(self, trial: Trial) -> str:
        if not trial.ok:
            return trial.status.facts.dropped_by
        if self.record is not None and trial.config == self.record.winner:
            return "winner"
        if self.record is not None and trial.config in self.record.ties:
            return "tie"
        line = self._by_process[0].get(trial.config)
        if line is not None:
            return "slower" if line.dropped_at is None else f"slower, after {line.dropped_at} rounds"
        if trial.same_code_as is not None:
            return "equal machine code of another config"
        return "slower in its screening" if self._by_process[0] else _NOT_YET


def _levels(line: Finalist) -> list[float]:
    return [] if line.trial.final is None else line.trial.final.rounds_ms


def _gap(line: Finalist, winner: Finalist | None) -> Interval | None:
    if winner is None or not (own := _levels(line)) or not (best := _levels(winner)):
        return None
    # `of_gap` compares logarithms of times.
    return Interval(*map(math.expm1, astuple(Interval.of_gap(own, best))))
