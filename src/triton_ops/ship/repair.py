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
from triton_ops.request import Effort, TuneOptions
from triton_ops.ship.targets import BoundEntry, Targets
from triton_ops.ship.verification import Measuring, Verdict, judged, neighbours, rivals, trial_of, verify
from triton_ops.space import Config, ConfigSpace
from triton_ops.timing import Interval
from triton_ops.tuner import Listener
from triton_ops.values import Compiled, Key, Resources, Status, TuningResult

_LEADERS = 3  # configs that the model ranks first, beside those that are known
_RACE_S = 20.0  # of one race, with what is compiled for it
_WORTH = 1.01  # times as fast: equal configs differ by up to 0.6 % from one process to another
_UNTOLD = 1.02  # times as long as a rival: an entry that may take longer, within the interval, is not confirmed
_FACTS = {
    "registers": "registers", "spill_bytes": "spilled bytes", "shared_bytes": "bytes of shared memory",
    "stack_bytes": "bytes of stack", "mma": "matrix instructions", "load_bytes": "bytes per load",
    "serialised": "products that wait for each other",
}  # fmt: skip


def cause(then: Resources | None, now: Resources | None) -> str:
    """The difference between what a config was compiled to then and now, as one sentence."""
    if then is None or now is None:
        return "what its binary was then is not kept" if then is None else "what its binary is now is not known"
    if then.binary is not None and then.binary == now.binary:
        return "its binary is the same as then, so that the cause is outside of it"
    pairs = [(words, getattr(then, name), getattr(now, name)) for name, words in _FACTS.items()]
    changed = [f"{words} from {old} to {new}" for words, old, new in pairs if old != new and None not in (old, new)]
    return f"its binary has changed: {', '.join(changed) or 'in none of the figures that are kept'}"


def repair(
    lock: Lockfile,
    targets: Targets,
    here: DeviceSpec | None,
    folder: Path,
    *,
    device: str | None = None,
    most_neighbours: int = 8,
    seconds: float | None = None,
    listener: Listener | None = None,
    seed: int = 0,
    **checks: Any,
) -> Iterator[Verdict]:
    """Confirm or repair the entries, those first whose config may have lost most; what they become is in the verdicts.

    An entry races against the default, the configs that tied with it and other finalists of its tune, as far as its run
    log is in the cache folder, then the nearest neighbours, so many in all, and the model's first picks. No race begins
    after so many seconds. Everything else is as of `verify`, whose checks come first.
    """
    end_s = math.inf if seconds is None else time.monotonic() + seconds
    measuring = Measuring(targets=targets, device=device, options=TuneOptions(seed=seed), listener=listener)
    cases: list[_Case] = []

    def put_off(bound: BoundEntry, program: Compiled | None) -> Iterable[Verdict]:
        assert here is not None  # nothing is measured without a device
        cases.append(_Case(bound, bound.key_on(here), program, *_past(bound.entry, folder)))
        return ()

    yield from verify(lock, targets, here, measure=put_off, **checks)
    for case in sorted(cases, key=_Case.doubt, reverse=True):
        if (left_s := end_s - time.monotonic()) > 0:
            yield case.verdict(lock, measuring, most_neighbours, min(left_s, _RACE_S))
        else:
            late = "the limit of seconds was reached before its turn"
            yield Verdict(entry=case.bound.entry, outcome="not measured", reason=late)


def _past(entry: LockEntry, folder: Path) -> tuple[list[Config], Resources | None]:
    """The ties and the other finalists of an entry's tune, and what its config was compiled to when it last raced."""
    run = Runs(folder, entry.origin.record).run(entry.origin.run) if entry.origin.run else None
    trials = {} if run is None else run.trials
    raced = sorted((one for one in trials.values() if one.ok and one.final), key=lambda trial: trial.median_ms)
    ties = run.end.record.ties if run is not None and run.end is not None and run.end.record is not None else ()
    finalists = dict.fromkeys([*ties, *(trial.config for trial in raced)])
    newest = entry.origin.confirmed[-1] if entry.origin.confirmed else trials.get(entry.config)
    return [one for one in finalists if one != entry.config], None if newest is None else newest.resources


@dataclass(frozen=True)
class _Case:
    bound: BoundEntry
    key: Key  # as of a launch here
    program: Compiled | None  # one that it selects; None if nothing is compiled ahead
    finalists: list[Config]  # of its tune, without the entry's own config
    resources: Resources | None  # of the entry's config then

    def doubt(self) -> tuple[bool, bool, float]:
        """Orders entries by what they may have lost: other versions first, then another binary, then long launches."""
        entry, now = self.bound.entry, None if self.program is None else self.program.resources
        same = now is not None and self.resources is not None and now.binary == self.resources.binary
        return bool(entry.drift(self.key)), not same, 0.0 if entry.measured is None else entry.measured.median_ms

    def verdict(self, lock: Lockfile, measuring: Measuring, most_rivals: int, seconds: float) -> Verdict:
        entry = self.bound.entry
        near = islice(neighbours(self.bound.space, entry.config), most_rivals)
        known = list(dict.fromkeys([*self.finalists, *near]))[:most_rivals]
        first = [entry.config, *([] if entry.default is None else [entry.default]), *known]
        race = measuring.result(
            self.bound, lambda space: rivals(entry, None, known) if space is None else space,
            _effort("ranked", len(first) + 1 + _LEADERS, seconds), first,
        )  # fmt: skip
        if isinstance(race, Verdict):
            return race
        verdict, own = judged(entry, race), trial_of(race, entry.config)
        if verdict.outcome == "invalid" and own is not None and own.status is not Status.WRONG:
            return self._repaired(lock, verdict, race, None)
        if verdict.outcome != "slower":
            return self._confirmed(verdict, race) if verdict.outcome == "ok" else verdict
        rival = Config(race.best_config)
        pair = ConfigSpace.from_configs([entry.config, rival], default=entry.config)
        duel = measuring.result(self.bound, lambda _: pair, _effort("exhaustive", 2, seconds))
        if isinstance(duel, Verdict):
            return duel
        proven = Config(duel.best_config) == rival and not duel.unproven
        if proven and duel.gain_interval is not None and duel.gain_interval[0] > _WORTH:
            return self._repaired(lock, verdict, race, duel)
        return self._confirmed(verdict, duel)

    def _confirmed(self, verdict: Verdict, race: TuningResult) -> Verdict:
        """The verdict of an entry that nothing has proven slower, if noise does not hide that something is faster."""
        own = trial_of(race, verdict.entry.config)
        assert own is not None  # `judged` has looked
        raced = [one for one in race.trials if one.ok and one.final and one.config != own.config]
        fastest = max(raced, key=lambda one: own.over(one) or 0.0, default=None)
        interval, reason = None, race.unproven or "nothing else ran"
        if own.final is not None and fastest is not None and fastest.final is not None:
            over = Interval.of_gain(own.final.rounds_ms, fastest.final.rounds_ms).ratio
            interval, reason = (over.low, over.high), f"{_times(over.low, over.high)} the time of the fastest rival"
        if race.unproven if interval is None else interval[1] > _UNTOLD:
            return replace(verdict, outcome="not measured", reason=f"it is not known if it holds: {reason}")
        becomes = verdict.entry.confirmed(self.key, interval, own.resources)
        return replace(verdict, outcome="ok", reason=reason, result=race, becomes=becomes, regret=0.0)

    def _repaired(self, lock: Lockfile, verdict: Verdict, race: TuningResult, duel: TuningResult | None) -> Verdict:
        """The verdict of an entry whose config fails, or, with a duel, is proven slower than the winner of a race."""
        entry = verdict.entry
        own, winner = trial_of(race, entry.config), trial_of(race, Config(race.best_config))
        assert own is not None  # `judged` has looked
        assert winner is not None
        why, interval = verdict.reason, None
        if duel is not None and duel.gain_interval is not None:
            interval = (1 / duel.gain_interval[1], 1 / duel.gain_interval[0])
            why = f"({entry.config}) takes {_times(*duel.gain_interval)} the time of ({winner.config})"
        becomes = entry.repaired(self.key, winner, race.default, why).confirmed(self.key, interval, winner.resources)
        entries = tuple(becomes if each == entry else each for each in lock.entries)
        refused = replace(self.bound, entry=becomes).why_invalid(replace(lock, entries=entries))
        if refused is not None:
            return replace(verdict, reason=f"{why}, which cannot take its place: {refused}")
        why = f"{why}, and {cause(self.resources, own.resources)}"
        return replace(verdict, outcome="repaired", reason=why, becomes=becomes, result=duel or race)


def _effort(search: str, trials: int, seconds: float) -> Effort:
    effort = Effort.named("race")
    return replace(effort, search=search, budget=replace(effort.budget, trials=trials, seconds=seconds))


def _times(low: float, high: float) -> str:
    return f"{low:.3f} to {high:.3f} times"
