"""`verify --repair`: each entry races what may be faster by now; it is confirmed, or gives way to what has proven so.

A race picks the luckiest of many configs. One that leads in it by more than noise, or may do so, therefore races once
more, against the entry's alone and with that in the place of the default: it must win by the rule of a tune. While one
entry races, the configs of those that follow are compiled.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from triton_ops.base import Host
from triton_ops.compilation import CompilePool
from triton_ops.device import DeviceSpec, probe
from triton_ops.exceptions import TritonKernelError
from triton_ops.records import LockEntry, Lockfile, LockPlan, Record, Runs, cache_folder, lock_of, matching, store_in
from triton_ops.request import Effort
from triton_ops.ship.preparing import EntryProgram
from triton_ops.ship.targets import BoundEntry, Targets
from triton_ops.ship.verification import Measuring, Verdict, judged, neighbours, rivals, trial_of, verify
from triton_ops.space import Config, ConfigSpace
from triton_ops.timing import Interval
from triton_ops.tuner import Silent
from triton_ops.values import Key, Resources, Status, Trial, TuningResult

_LEADERS = 3  # configs that the model ranks first, beside those that are known
_RACE_S = 20.0  # of one race, with what is compiled for it
_DUEL_S = 1.0  # of the rounds of two configs
_CHANGED = "it was changed in the file while it raced, and stays as it is there"
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


def repaired(
    lockfile: Path | None, folder: Path, targets: Targets, device: str | None, *, kernel: str | None = None,
    **options: Any,
) -> Iterator[Verdict]:  # fmt: skip
    """The verdicts of `repair` on a lockfile, or for None on the records of a folder; what an entry becomes is kept.

    It is written as soon as its race is over: to the lockfile, unless somebody has changed the entry there, or as a
    record for the versions that are here, beside that for the earlier ones.
    """
    records = matching(kernel, folder) if lockfile is None else []
    lock = lock_of(records, LockPlan(unproven=True))[0] if lockfile is None else Lockfile.read(lockfile)
    by_tune = {(record.id, record.run): record for record in records}
    for verdict in repair(lock, targets, probe(device), folder, device=device, kernel=kernel, **options):
        if verdict.becomes is not None and lockfile is None:
            store_in(str(folder)).put(_record_of(verdict, verdict.becomes, by_tune[verdict.entry.origin.tune]))
        elif verdict.becomes is not None and lockfile is not None:
            verdict = _written(verdict, verdict.becomes, lockfile)
        yield verdict


def _record_of(verdict: Verdict, becomes: LockEntry, record: Record) -> Record:
    assert verdict.result is not None  # of the last race that it has stood, whose default may be the entry's config
    assert becomes.measured is not None
    trial, default = trial_of(verdict.result, becomes.config), verdict.result.default
    assert trial is not None
    beside = None if default is None or default.config != record.default else default
    new = record.after_race(becomes.identity, becomes.origin.driver, becomes.config, trial, beside)
    return replace(new, raced_gain=becomes.measured.gain)


def _written(verdict: Verdict, becomes: LockEntry, path: Path) -> Verdict:
    with Lockfile.editing(path):
        now = Lockfile.read(path)
        if verdict.entry not in now.entries:
            return replace(verdict, outcome="not measured", reason=_CHANGED, becomes=None)
        replace(now, entries=tuple(becomes if each == verdict.entry else each for each in now.entries)).write(path)
    return verdict


def serve_idle(
    lockfile: str | os.PathLike[str] | None = None,
    *,
    targets: Iterable[Any] = (),
    device: str | None = None,
    cache_dir: str | Path | None = None,
) -> Iterator[Verdict]:
    """Confirm or repair winners after an upgrade, in the idle time of an engine: one race for each `next`.

    Winners that were measured under the versions and the driver that are here are left alone, so that the iterator ends
    once all are. Those that may have lost most come first. What a race has made of a winner is kept as by `lock verify
    --repair`; launches of this process keep the config that they have.

    Args:
        lockfile: The lockfile whose entries race; None takes the records of the cache folder.
        targets: The kernels that it names, as for `prepare`.
        device: `cuda` or `cuda:N`; None is the current GPU, else the CPU.
        cache_dir: Folder of records and run logs; None takes `TRITON_OPS_CACHE_DIR`, else the user's cache folder.

    Returns:
        An iterator over verdicts, with `entry`, `outcome`, `reason`, and `becomes`, the entry as it is kept from now
        on, or None. Its `close` ends what it has begun.

    Raises:
        LockfileError: The file is refused; at the first `next`, as all others.
        DeviceError: `device` cannot be used.
        TargetError: Two targets have one name.

    Cost: each `next` one race, seconds on a GPU, in a process of its own with copies of the arguments.
    """
    path, folder = None if lockfile is None else Path(lockfile), Path(cache_folder(cache_dir))
    return repaired(path, folder, Targets(targets), device, idle=True, listener=Silent())


def repair(
    lock: Lockfile,
    targets: Targets,
    here: DeviceSpec | None,
    folder: Path,
    *,
    most_neighbours: int = 8,
    seconds: float | None = None,
    idle: bool = False,
    **options: Any,
) -> Iterator[Verdict]:
    """Confirm or repair the entries, those first whose config may have lost most; what they become is in the verdicts.

    An entry races against the default, the configs that tied with it and other finalists of its tune, as far as its run
    log is in the cache folder, then the nearest neighbours, so many in all, and the model's first picks. No race begins
    after so many seconds. With `idle`, entries that were measured under these versions are left out, and nothing is
    compiled between two verdicts. The options are those of `verify`, whose checks come first.
    """
    end_s = math.inf if seconds is None else time.monotonic() + seconds
    cases: list[_Case] = []

    def put_off(measuring: Measuring, bound: BoundEntry, programs: Sequence[EntryProgram]) -> Iterable[Verdict]:
        assert here is not None  # nothing is measured without a device
        finalists, resources = _past(bound.entry, folder)
        near = islice(neighbours(bound.space, bound.entry.config), most_neighbours)
        known = tuple(dict.fromkeys([*finalists, *near]))[:most_neighbours]
        cases.append(_Case(measuring, bound, bound.key_on(here), programs[:1], known, resources))
        return ()

    yield from verify(lock, targets, here, measure=put_off, **options)
    cases = sorted((case for case in cases if case.doubt[0] or not idle), key=lambda case: case.doubt, reverse=True)
    for case, following in zip_longest(cases, cases[1:]):
        if time.monotonic() >= end_s:
            why = "the limit of seconds came before it"
            yield Verdict(entry=case.bound.entry, outcome="not measured", reason=why)
            continue
        with nullcontext() if idle or following is None else following.compiling():
            verdict = case.verdict(lock)
        yield verdict


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
    programs: Sequence[EntryProgram]  # one that the entry selects; empty if nothing is compiled ahead
    known: tuple[Config, ...]  # finalists of its tune and neighbours, without its own config
    resources: Resources | None  # of the entry's config then

    @property
    def first(self) -> list[Config]:
        """The entry's config, the default, and others that are known."""
        default = self.bound.entry.default
        return list(dict.fromkeys([self.bound.entry.config, *([] if default is None else [default]), *self.known]))

    def compiling(self) -> AbstractContextManager[Any]:
        """A pool that compiles the known configs for the disk cache, beside the race of another entry."""
        with suppress(TritonKernelError):  # its own race says it
            for program in self.programs:
                pool = CompilePool(program.compiler, workers=max(1, Host.usable_cpus() // 2), reuse=True)
                for config in self.first:
                    pool.submit(config, anyway=True)
                return pool
        return nullcontext()

    @cached_property
    def doubt(self) -> tuple[bool, float]:
        """Orders entries by what they may have lost: those never measured like this first, then long launches."""
        entry = self.bound.entry
        unknown = entry.measured is None or bool(entry.drift(self.key)) or "by hand" in entry.origin.source
        return unknown, 0.0 if entry.measured is None else entry.measured.median_ms

    def verdict(self, lock: Lockfile) -> Verdict:
        """The verdict of a race, and of a second one between the entry's config and what may be faster."""
        entry = self.bound.entry
        race = self.measuring.result(
            self.bound, lambda space: rivals(entry, None, self.known) if space is None else space,
            _effort(len(self.first) + _LEADERS), self.first,
        )  # fmt: skip
        if isinstance(race, Verdict):
            return race
        verdict, own, last = judged(entry, race), trial_of(race, entry.config), race
        best = Config({name: race.best_config[name] for name in entry.config})
        if own is None or verdict.outcome not in ("ok", "slower"):
            failed = own is not None and not own.ok and own.status is not Status.WRONG
            return self._repaired(lock, verdict, race, best, verdict.reason) if failed else verdict
        fastest, high, _ = _beside(race, own)
        rival = best if verdict.outcome == "slower" else fastest
        if rival is not None and (verdict.outcome == "slower" or high > _UNTOLD):
            pair = ConfigSpace.from_configs([entry.config, rival], default=entry.config)
            duel = self.measuring.result(self.bound, lambda _: pair, _effort(2, _DUEL_S), [entry.config, rival])
            if isinstance(duel, Verdict):
                return duel
            last, gain = duel, duel.gain_interval
            if Config(duel.best_config) == rival and gain is not None and gain[0] > _WORTH and not duel.unproven:
                why = f"({entry.config}) takes {gain[0]:.3f} to {gain[1]:.3f} times the time of ({rival})"
                return self._repaired(lock, verdict, race, rival, why)
        return self._confirmed(verdict, race, last)

    def _confirmed(self, verdict: Verdict, race: TuningResult, last: TuningResult) -> Verdict:
        """The verdict of an entry that nothing has proven slower, if noise does not hide that something is faster."""
        entry, times, own = verdict.entry, *(trial_of(each, verdict.entry.config) for each in (race, last))
        assert times is not None  # `judged` has looked
        assert own is not None
        _, high, reason = _beside(last, own)
        if high > _UNTOLD:
            why = "; ".join(dict.fromkeys(filter(None, (reason, last.unproven))))
            return replace(verdict, outcome="not measured", reason=f"it is not known if it holds: {why}")
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


def _beside(result: TuningResult, own: Trial) -> tuple[Config | None, float, str]:
    """The fastest other finalist, how many times as long as it a config may take at most, and this in words."""
    raced = [one for one in result.trials if one.ok and one.final and one.config != own.config]
    fastest = max(raced, key=lambda one: own.over(one) or 0.0, default=None)
    if own.final is None or fastest is None or fastest.final is None:
        return None, math.inf if result.unproven else 0.0, result.unproven or "nothing else ran"
    over = Interval.of_gain(own.final.rounds_ms, fastest.final.rounds_ms).ratio
    return fastest.config, over.high, f"{over.low:.3f} to {over.high:.3f} times the time of the fastest rival"


def _effort(trials: int, race_s: float | None = None) -> Effort:
    effort = replace(Effort.named("race"), previews=0, compiled_first=False)  # further configs would cost a compilation
    race = replace(effort.race, seconds=effort.race.seconds if race_s is None else race_s)
    return replace(effort, race=race, budget=replace(effort.budget, trials=trials, seconds=_RACE_S))
