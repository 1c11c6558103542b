"""`verify --repair`: each entry races what may be faster by now; it is confirmed, or gives way to what has proven so.

A race picks the luckiest of many configs. One that leads in it by more than noise therefore races once more, against
the entry's alone and with that in the place of the default: it must win by the rule of a tune.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from triton_ops.device import DeviceSpec
from triton_ops.records import LockEntry, Lockfile, Runs
from triton_ops.request import Effort
from triton_ops.ship.targets import BoundEntry, Targets
from triton_ops.ship.verification import Measuring, Verdict, judged, neighbours, rivals, trial_of, verify
from triton_ops.space import Config, ConfigSpace
from triton_ops.timing import Interval
from triton_ops.values import Key, Resources, Status, TuningResult

_LEADERS = 3  # configs that the model ranks first, beside those that are known
_RACE_S = 20.0  # of one race, with what is compiled for it
_WORTH = 1.01  # times as fast: equal configs differ by up to 0.6 % from one process to another
_UNTOLD = 1.02  # times as long as a rival: an entry that may take longer, within the interval, is not confirmed


def cause(then: Resources | None, now: Resources | None) -> str:
    """The difference between what a config was compiled to then and now, as one sentence."""
    if then is None or now is None:
        return "what its binary is now is not known" if now is None else "what its binary was then is not kept"
    if then.binary is not None and then.binary == now.binary:
        return "its binary is the same as then, so that the cause is outside of it"
    changed = [
        f"{name.replace('_', ' ')} from {old} to {new}"
        for name in then.__struct_fields__
        if (old := getattr(then, name)) != (new := getattr(now, name)) and None not in (old, new) and name != "binary"
    ]
    return f"its binary has changed: {', '.join(changed) or 'in none of the figures that are kept'}"


def repair(
    lock: Lockfile,
    targets: Targets,
    here: DeviceSpec | None,
    folder: Path,
    *,
    most_neighbours: int = 8,
    seconds: float | None = None,
    **options: Any,
) -> Iterator[Verdict]:
    """Confirm or repair the entries, those first whose config may have lost most; what they become is in the verdicts.

    An entry races against the default, the configs that tied with it and other finalists of its tune, as far as its run
    log is in the cache folder, then the nearest neighbours, so many in all, and the model's first picks. No race begins
    after so many seconds. The options are those of `verify`, whose checks come first.
    """
    end_s = math.inf if seconds is None else time.monotonic() + seconds
    cases: list[_Case] = []

    def put_off(measuring: Measuring, bound: BoundEntry) -> Iterable[Verdict]:
        assert here is not None  # nothing is measured without a device
        cases.append(_Case(measuring, bound, bound.key_on(here), *_past(bound.entry, folder)))
        return ()

    yield from verify(lock, targets, here, measure=put_off, **options)
    for case in sorted(cases, key=_Case.doubt, reverse=True):
        if (left_s := end_s - time.monotonic()) > 0:
            yield case.verdict(lock, most_neighbours, min(left_s, _RACE_S))
        else:
            yield Verdict(entry=case.bound.entry, outcome="not measured", reason="the limit of seconds came before it")


def _past(entry: LockEntry, folder: Path) -> tuple[list[Config], Resources | None]:
    """The ties and the other finalists of an entry's tune, and what its config was compiled to then."""
    run = Runs(folder, entry.origin.record).run(entry.origin.run) if entry.origin.run else None
    if run is None:
        return [], None
    raced = sorted((one for one in run.trials.values() if one.ok and one.final), key=lambda trial: trial.median_ms)
    ties = () if run.end is None or run.end.record is None else run.end.record.ties
    finalists, own = dict.fromkeys([*ties, *(trial.config for trial in raced)]), run.trials.get(entry.config)
    return [config for config in finalists if config != entry.config], None if own is None else own.resources


@dataclass(frozen=True)
class _Case:
    measuring: Measuring
    bound: BoundEntry
    key: Key  # as of a launch here
    finalists: list[Config]  # of its tune, without the entry's own config
    resources: Resources | None  # of the entry's config then

    def doubt(self) -> tuple[bool, float]:
        """Orders entries by what they may have lost: those never measured like this first, then long launches."""
        entry = self.bound.entry
        unknown = entry.measured is None or bool(entry.drift(self.key)) or "by hand" in entry.origin.source
        return unknown, 0.0 if entry.measured is None else entry.measured.median_ms

    def verdict(self, lock: Lockfile, most_rivals: int, seconds: float) -> Verdict:
        entry = self.bound.entry
        near = islice(neighbours(self.bound.space, entry.config), most_rivals)
        known = list(dict.fromkeys([*self.finalists, *near]))[:most_rivals]
        first = [entry.config, *([] if entry.default is None else [entry.default]), *known]
        race = self.measuring.result(
            self.bound, lambda space: rivals(entry, None, known) if space is None else space,
            _effort(len(first) + 1 + _LEADERS, seconds), first,
        )  # fmt: skip
        if isinstance(race, Verdict):
            return race
        verdict, own, last = judged(entry, race), trial_of(race, entry.config), race
        rival = Config({name: race.best_config[name] for name in entry.config})
        why = verdict.reason if own is not None and not own.ok and own.status is not Status.WRONG else ""
        if verdict.outcome == "slower":
            pair = ConfigSpace.from_configs([entry.config, rival], default=entry.config)
            duel = self.measuring.result(self.bound, lambda _: pair, _effort(2, seconds), [entry.config, rival])
            if isinstance(duel, Verdict):
                return duel
            last, gain = duel, duel.gain_interval
            if Config(duel.best_config) == rival and gain is not None and gain[0] > _WORTH and not duel.unproven:
                why = f"({entry.config}) takes {gain[0]:.3f} to {gain[1]:.3f} times the time of ({rival})"
        if why:
            return self._repaired(lock, verdict, race, rival, why)
        return self._confirmed(verdict, race, last) if verdict.outcome in ("ok", "slower") else verdict

    def _confirmed(self, verdict: Verdict, race: TuningResult, last: TuningResult) -> Verdict:
        """The verdict of an entry that nothing has proven slower, if noise does not hide that something is faster."""
        entry, times, own = verdict.entry, *(trial_of(each, verdict.entry.config) for each in (race, last))
        assert times is not None  # `judged` has looked
        assert own is not None
        raced = [one for one in last.trials if one.ok and one.final and one.config != own.config]
        fastest = max(raced, key=lambda one: own.over(one) or 0.0, default=None)
        high, reason = 0.0 if not last.unproven else math.inf, last.unproven or "nothing else ran"
        if own.final is not None and fastest is not None and fastest.final is not None:
            over = Interval.of_gain(own.final.rounds_ms, fastest.final.rounds_ms).ratio
            high, reason = over.high, f"{over.low:.3f} to {over.high:.3f} times the time of the fastest rival"
        if high > _UNTOLD:
            return replace(verdict, outcome="not measured", reason=f"it is not known if it holds: {reason}")
        becomes = entry.after_race(self.key, entry.config, times, race.default)
        return replace(verdict, outcome="ok", reason=reason, result=last, becomes=becomes)

    def _repaired(self, lock: Lockfile, verdict: Verdict, race: TuningResult, rival: Config, why: str) -> Verdict:
        """The verdict of an entry for which the winner of a race is to be pinned, unless its ranges cannot take it."""
        entry = verdict.entry
        own, winner = trial_of(race, entry.config), trial_of(race, rival)
        assert winner is not None  # it has won
        becomes = entry.after_race(self.key, rival, winner, race.default, f"repaired: {why}")
        entries = tuple(becomes if each == entry else each for each in lock.entries)
        refused = replace(self.bound, entry=becomes).why_invalid(replace(lock, entries=entries))
        if refused is not None:
            return replace(verdict, reason=f"{why}, which cannot take its place: {refused}")
        why = f"{why}, and {cause(self.resources, None if own is None else own.resources)}"
        return replace(verdict, outcome="repaired", reason=why, becomes=becomes)


def _effort(trials: int, seconds: float) -> Effort:
    effort = replace(Effort.named("race"), previews=0, compiled_first=False)  # further configs would cost a compilation
    return replace(effort, budget=replace(effort.budget, trials=trials, seconds=seconds))
