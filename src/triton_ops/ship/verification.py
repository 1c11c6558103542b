"""`verify`: does every entry of a lockfile still hold? Checked without a GPU, and measured where the device is here.

An operation is tuned for the entry's problem. A decorated kernel, whose problem has only classes of arguments, is tuned
for the call that was noted when its config was found.

`verify --repair`: each entry races what may be faster by now; it is confirmed, or gives way to what has proven so. A
race picks the luckiest of many configs. One that leads in it by more than noise, or may do so, therefore races once
more, against the entry's alone and with that in the place of the default: it must win by the rule of a tune. While one
entry races, the configs of those that follow are compiled.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal, TypeAlias

from triton_ops import dispatch
from triton_ops.base import cached_property
from triton_ops.compilation import CompilePool
from triton_ops.device import DeviceSpec, probe
from triton_ops.exceptions import (
    KernelTypeError,
    ShapeMismatchError,
    SpaceError,
    TargetError,
    TritonKernelError,
    TuningFailedError,
    UnsupportedDtypeError,
)
from triton_ops.records import (
    LockEntry,
    Lockfile,
    LockPlan,
    NotedCall,
    OriginKind,
    Record,
    Runs,
    lock_of,
    matching,
    open_store,
    url_folders,
)
from triton_ops.request import Effort, TuneOptions, TuneProblem
from triton_ops.settings import cache_folder
from triton_ops.ship.preparing import EntryProgram, checked, compiled
from triton_ops.ship.raced_entry import after_race, record_after
from triton_ops.ship.targets import BoundEntry, Targets, bound
from triton_ops.space import Config, ConfigSpace
from triton_ops.timing import Interval
from triton_ops.tuner import Listener, RequestedTune, Silent
from triton_ops.values import Key, Mapper, Resources, Status, TensorSpec, Trial, TuningResult

_FRACTIONS = ("float", "bfloat", "complex")


def rivals(entry: LockEntry, space: ConfigSpace | None, further: Iterable[Config]) -> ConfigSpace:
    """The entry's config beside the default one, which comes first, and further ones."""
    default = entry.default if space is None else space.default_config
    configs = [*([default] if default is not None else []), entry.config, *further]
    return ConfigSpace.from_configs(list(dict.fromkeys(configs)), default=configs[0])


def neighbours(space: ConfigSpace | None, config: Config) -> Iterable[Config]:
    """The nearest configs first; in a list, whose configs often differ in several values, those with the fewest."""
    if space is None:
        return []
    if space.listed is None:
        return space.neighbours(config, steps_only=True)
    others = (other for other in space if other != config)
    return sorted(others, key=lambda other: sum(other.get(name) != value for name, value in config.items()))


def unknown_values(case: BoundEntry) -> list[str]:
    """The tensors of integers, such as offsets and tables, of a call whose values are made up: it may need others.

    Their values are not kept, and those that are made up may lead a kernel outside of other tensors. An operation makes
    the values of its own problems.
    """
    generated = {} if case.by_shape is not None else case.specs or {}
    specs = case.entry.call.values if isinstance(case.entry.call, NotedCall) else generated
    tensors = {name: spec for name, spec in specs.items() if isinstance(spec, TensorSpec)}
    return [name for name, spec in tensors.items() if not spec.dtype.startswith(_FRACTIONS)]


Choose: TypeAlias = Callable[[ConfigSpace | None], tuple[ConfigSpace, Sequence[Config]]]
Outcome = Literal["ok", "repaired", "unreachable", "invalid", "slower", "not known", "not loaded", "not measured"]
_NOTED = "a decorated kernel is measured at the call that was noted, whose grid is known"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one entry's checks.

    It is `ok`; `repaired`: another config stands in its place; `unreachable`: no launch can find it; `invalid`: its
    config is refused, does not compile, fails or computes the wrong thing; `slower`: than another config, beyond noise;
    `not known`: nothing that was compared is faster, and a config that may be was not compared; `not loaded`: only the
    file names its kernel, so that nothing was checked; `not measured`: all that can be checked without its device is
    right.
    """

    entry: LockEntry
    outcome: Outcome
    reason: str = ""  # in one sentence; empty for `ok` without a race
    result: TuningResult | None = None  # None if nothing was measured
    at: str = ""  # extents such as `M=20`, where it was measured elsewhere in its ranges; else empty
    regret: float | None = None  # beside the fastest that was measured, relative; 0 for a tie, None if not measured
    becomes: LockEntry | None = None  # the entry as a race has confirmed or repaired it; None if it stays as it was

    @property
    def failed(self) -> bool:
        """True if the entry should not be served."""
        return self.outcome in ("unreachable", "invalid", "slower")


def verify(
    lock: Lockfile,
    targets: Targets,
    here: DeviceSpec | None,
    *,
    device: str | None = None,
    kernel: str | None = None,
    most_neighbours: int = 8,
    held_out: int = 0,
    most_loss: float = 0.0,
    folder: Path | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> Iterator[Verdict]:
    """Check each entry in turn: found, reachable, in its space, taken by its kernel, compiled, right, and fast.

    A measurement is a tune among the entry's config, the default one, what lockfile, records and run logs of `folder`
    know to be fast in the entry's ranges, the nearest neighbours and the model's first picks, with all that a tune
    checks; an entry passes if nothing among them is faster beyond noise. Nothing is remembered. Entries are measured
    `here`, which torch calls `device`; without it none are. `held_out` is the number of further values in each range at
    which an entry is measured as well; there it passes if it is slower by at most the share `most_loss`. Further
    options are those of `tune`, such as `effort` and `seed`.
    """
    entries = [(entry, answer, checked(answer, lock, here)) for entry, answer in bound(lock, targets, kernel)]
    results = dict(compiled((program for *_, (_, _, own) in entries for program in own)))
    measuring = Measuring(targets=targets, device=device, options=TuneOptions(**options), listener=listener)
    records = [] if folder is None else matching(None, folder)
    for entry, answer, (outcome, reason, own) in entries:
        refusals = [(one.target.arch, results[one]) for one in own if not results[one].launchable]
        if isinstance(answer, TritonKernelError) or outcome != "ok":
            yield Verdict(entry=entry, outcome=outcome, reason=reason)
        elif refusals:
            arch, result = refusals[0]
            yield Verdict(entry=entry, outcome="invalid", reason=f"{result.status} for {arch}: {result.reason}")
        elif (elsewhere := _why_not_measured(answer, here)) is not None:
            yield Verdict(entry=entry, outcome="not measured", reason=elsewhere)
        else:
            leaders = _leaders(answer, lock, folder, records)
            yield measuring.verdict(answer, most_neighbours, leaders)
            for place in _held_out(answer, held_out):
                there = Verdict(entry=entry, outcome="not measured", reason=_NOTED) if place.specs is None else (
                    measuring.verdict(place, most_neighbours, leaders, most_loss, is_held_out=True)
                )  # fmt: skip
                yield replace(there, entry=entry, at=place.extents_text(answer))


def _held_out(case: BoundEntry, count: int) -> Iterator[BoundEntry]:
    """The entry at `count` values of each of its ranges, evenly by their ratios, and never at its own."""
    own = Mapper.extents_of(case.entry.problem)
    for each in case.entry.ranges:
        low, ratio = max(each.low, 1), each.high / max(each.low, 1)
        values = {round(low * ratio ** (step / max(count - 1, 1))): None for step in range(count)}
        for value in values:
            if value != own[each.extents[0]]:
                yield case.at(dict.fromkeys(each.extents, value))


def _why_not_measured(case: BoundEntry, here: DeviceSpec | None) -> str | None:
    """The reason why an entry's launch cannot be made again here; None if it can."""
    if here is None or not case.is_on(here):
        return "nothing is measured" if here is None else f"its device is not here: {here.name} is"
    if case.entry.same_bits:
        return "calls keep to its class of bits, among which `triton-ops tune --same-bits-as lockfile` looks anew"
    if case.specs is not None or isinstance(case.entry.call, NotedCall):
        return None
    unnoted = "no call was noted; remove its record, and call it again"
    return f"only the classes of its arguments are known: {case.entry.call or unnoted}"


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """Tunes among configs for entries whose launch can be made again, by default on a device of the entry's kind."""

    targets: Targets
    device: str | None
    options: TuneOptions
    listener: Listener | None

    def verdict(
        self, case: BoundEntry, most_neighbours: int, leaders: Sequence[Config], most_loss: float = 0.0, *,
        is_held_out: bool = False,
    ) -> Verdict:  # fmt: skip
        """The verdict of a tune among the entry's config, the default, leaders, neighbours and the model's picks."""
        fast: list[Config] = []

        def beside(space: ConfigSpace | None) -> tuple[ConfigSpace, Sequence[Config]]:
            fast.extend(config for config in leaders if space is None or space.why_not(config) is None)
            if space is None:
                return rivals(case.entry, None, fast), ()
            near = islice(neighbours(space, case.entry.config), most_neighbours)
            return space, list(dict.fromkeys([case.entry.config, *fast, *near]))

        # Every config is a finalist: a screening alone says little of how much slower a config is. It lasts
        # milliseconds, and a finalist's time, with which it would be compared, was taken seconds later.
        most, quick = 2 + len(leaders) + most_neighbours + _LEADERS, Effort.named("quick")
        budget = replace(quick.budget, trials=most)
        effort = replace(quick, search="ranked", budget=budget, finalists=most, previews=0)
        result = self.result(case, beside, effort)
        if isinstance(result, Verdict):
            return result
        verdict = judged(case.entry, result, most_loss)
        is_unproven = is_held_out or case.entry.measured is None  # no tune has found it for this problem
        has_space = case.space is not None or isinstance(case.entry.call, NotedCall)
        is_whole = has_space and result.stopped == "complete"
        why = "" if verdict.outcome != "ok" else _why_not_known(result, fast, is_unproven and not is_whole)
        return replace(verdict, outcome="not known", reason=why) if why else verdict

    def result(self, case: BoundEntry, choose: Choose, effort: Effort) -> TuningResult | Verdict:
        """The result of a tune, or the verdict of an entry for which there is none.

        `choose` makes of the entry's space, which is None for a kernel without one, the space of the tune, and the
        configs that are tried first, of which the first one is in use. `effort` is that of a tune for which the options
        name none.
        """
        effort = Effort.named(self.options.effort or effort)
        options = replace(self.options, effort=effort, search=self.options.search or effort.search, transfer=False)
        try:
            with tempfile.TemporaryDirectory(prefix="triton-ops-verify-") as folder:
                result = self._result(case, choose, replace(options, cache_dir=folder))
            return result.uninterrupted()  # Ctrl-C ends it with KeyboardInterrupt, even if configs have run by then
        except (TuningFailedError, SpaceError, KernelTypeError, TargetError, UnsupportedDtypeError) as error:
            if isinstance(error, TuningFailedError) and (made_up := unknown_values(case)):
                reason = f"no config runs with values that are made up for {', '.join(made_up)}: {error.message}"
                return Verdict(entry=case.entry, outcome="not measured", reason=reason)
            return Verdict(entry=case.entry, outcome="invalid", reason=str(error))
        except ShapeMismatchError as error:  # such as more memory than there is, at the upper end of a range
            return Verdict(entry=case.entry, outcome="not measured", reason=str(error))

    def _result(self, case: BoundEntry, choose: Choose, options: TuneOptions) -> TuningResult:
        device = self.device or ("cpu" if case.device.kind == "cpu" else "cuda")
        call = self._call(case, device) if case.specs is None else None
        space, first = choose(case.space if call is None else call.space)
        how: dict[str, Any] = {"listener": self.listener, "first": first}
        if call is not None:
            result: TuningResult = call.tuned(options, space, **how)
            return result
        assert case.specs is not None  # else there is a call
        cold = case.entry.measured is None or case.entry.measured.cache_state == "cold"
        arguments: dict[str, Any] = case.by_shape or {"kwargs": TensorSpec.with_tensors(case.specs, device)}
        problem = TuneProblem(target=case.target, space=space, cold=cold, **arguments)
        return RequestedTune(request=problem.measurable(device, options.seed), options=options, **how).result()

    def _call(self, case: BoundEntry, device: str) -> Any:
        """The call that the entry of a decorated kernel notes, with new tensors."""
        entry, noted_call = case.entry, case.entry.call
        assert isinstance(noted_call, NotedCall)  # `_why_not_measured` has looked
        # The names of `dispatch` import Triton, as the kernel's own module has.
        call = dispatch.NotedOperation.at(self.targets.decorated(entry.kernel), noted_call).at_call(device)
        if (other := entry.why_not(call.asked)) is not None:
            message = f"the call that is noted is of another problem: {other}"
            raise SpaceError(message, hint="tune it again, and lock it")
        if (reason := call.space.why_not(entry.config)) is not None:
            message = f"its config ({entry.config}) cannot be taken for its call: {reason}"
            raise SpaceError(message, hint="tune it again")
        return call


def trial_of(result: TuningResult, config: Config) -> Trial | None:
    """The trial of a config, or of another one with the same code that was measured for both; None without one."""
    trial = next((each for each in result.trials if each.config == config), None)
    return trial and next((each for each in result.trials if each.config == trial.same_code_as), trial)


def judged(entry: LockEntry, result: TuningResult, most_loss: float = 0.0) -> Verdict:
    """The verdict of an entry by a tune that should have tried its config."""
    if (own := trial_of(result, entry.config)) is None:
        why = f"its config ({entry.config}) was not reached: the search ended ({result.stopped})"
        return Verdict(entry=entry, outcome="not measured", reason=why, result=result)
    if not own.ok:
        why = f"its config ({entry.config}) fails: {own.status}: {own.error}"
        return Verdict(entry=entry, outcome="invalid", reason=why, result=result)
    rival = next(each for each in result.trials if each.config == Config(result.best_config))
    if own.config == rival.config or own.config in result.ties:
        return Verdict(entry=entry, outcome="ok", result=result, regret=0.0)
    default = result.default
    what = "the default" if default is not None and rival.config == default.config else f"({rival.config})"
    slower = (own.over(rival) or 1.0) - 1.0
    reason = f"{what} is faster by {slower:.1%}: {rival.median_ms:.4g} ms against {own.median_ms:.4g} ms"
    outcome: Outcome = "slower" if slower > most_loss else "ok"
    return Verdict(entry=entry, outcome=outcome, reason=reason, result=result, regret=slower)


def _leaders(case: BoundEntry, lock: Lockfile, folder: Path | None, records: Iterable[Record]) -> list[Config]:
    """The configs that are known to be fast in an entry's ranges: winners, ties, finalists and the fastest trials."""
    own = case.entry
    others = [each for each in lock.entries if (each.kernel, each.device) == (own.kernel, own.device)]
    others = [each for each in others if own.why_not(replace(case, entry=each).key_on()) is None]
    tunes = [(each.config, each.origin.tune) for each in others]
    near = [each for each in records if each.key.kernel == own.kernel and own.why_not(each.key) is None]
    tunes += [(each.winner, (each.id, each.run)) for each in near if case.device.why_not(each.key.device) is None]
    configs = [config for config, _ in tunes]
    for record, run_id in dict.fromkeys(tune for _, tune in tunes):
        if (run := Runs(folder, record).run(run_id)) is not None:
            fastest = sorted((each for each in run.trials.values() if each.ok), key=lambda each: each.rank)
            configs += [*run.finalists, *(each.config for each in fastest[:_LEADERS])]
    return [config for config in dict.fromkeys(configs) if config != own.config]


def _why_not_known(result: TuningResult, leaders: Sequence[Config], needs_leaders: bool) -> str:
    """The reason why a faster config may have been left out; empty if it is known that none was."""
    tried = {each.config for each in result.trials}
    if len(tried) < 2:
        return "nothing was compared with its config"
    if missing := [config for config in leaders if config not in tried]:
        return f"untried: {len(missing)} that may be fast, such as ({missing[0]}): the search ended ({result.stopped})"
    if needs_leaders and (result.stopped == "seconds" or not (leaders or result.ordered_by)):
        why = "neither a record nor a model says which others may be faster"
        return f"the search ended ({result.stopped}) after {len(tried)} configs, and {why}"
    return ""


_LEADERS = 3  # configs that the model ranks first, or the trials of a run, beside those that are known
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
    record for the versions that are here, beside that for the earlier ones. For None the records of URLs come first,
    each until it has raced here once: what a race has made of one is a record of the folder, which answers before it.
    """
    if lockfile is not None:
        for verdict in repair(Lockfile.read(lockfile), targets, folder, device, kernel=kernel, **options):
            yield verdict if verdict.becomes is None else _written(verdict, verdict.becomes, lockfile)
        return
    seconds = options.pop("seconds", None)
    end_s = math.inf if seconds is None else time.monotonic() + seconds
    for records, is_new in ((_unraced(kernel, folder, probe(device)), True), (matching(kernel, folder), False)):
        lock = lock_of(records, LockPlan(unproven=True))[0]
        by_tune = {(record.id, record.run): record for record in records}
        options |= {"seconds": end_s - time.monotonic(), "is_new": is_new}
        for verdict in repair(lock, targets, folder, device, kernel=kernel, **options) if records else ():
            becomes, race = verdict.becomes, verdict.result
            if becomes is not None:
                assert race is not None  # the last race that it has stood, whose default may be the entry's config
                trial = trial_of(race, becomes.config)
                assert trial is not None
                why = "it was found elsewhere, and raced here" if is_new else "it raced again under other versions"
                record = record_after(becomes, by_tune[verdict.entry.origin.tune], trial, race.default, why)
                open_store(folder).put(record)
            yield verdict


def _unraced(kernel: str | None, folder: Path, here: DeviceSpec) -> list[Record]:
    """The records of URLs for this device from which no record of the folder has come."""
    known = {part for record in matching(None, folder) for part in (record.id, record.run) if part}
    elsewhere = [record for place in url_folders() for record in matching(kernel, place)]
    new = [record for record in elsewhere if not {record.id, record.run} & known]
    return [record for record in new if DeviceSpec.is_meant(here.name, record.key.device)]


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

    Winners of other machines, which URLs have brought, race against the default first, each once; those that are slower
    here are remembered as such. Winners that were measured under the versions and the driver that are here are left
    alone, so that the iterator ends once all are. Those that may have lost most come first. What a race has made of a
    winner is kept as by `lock verify --repair`; launches of this process keep the config that they have.

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
    lock: Lockfile, targets: Targets, folder: Path, device: str | None, *, kernel: str | None = None,
    most_neighbours: int = 8, seconds: float | None = None, idle: bool = False, is_new: bool = False,
    listener: Listener | None = None, **options: Any,
) -> Iterator[Verdict]:  # fmt: skip
    """Confirm or repair the entries, those first whose config may have lost most; what they become is in the verdicts.

    An entry races against the default, what lockfile, records and run logs know to be fast in its ranges, then the
    nearest neighbours, so many in all, and the model's first picks. No race begins after so many seconds. With `idle`,
    entries that were measured under these versions are left out, and nothing is compiled between two verdicts. Those
    that are new have never raced here: none is left out, and one that computes the wrong thing gives way as well. The
    options are those of `verify`, whose checks come first, but for the compilation.
    """
    end_s, here = math.inf if seconds is None else time.monotonic() + seconds, probe(device)
    measuring = Measuring(targets=targets, device=device, options=TuneOptions(**options), listener=listener)
    cases, records = list[_Case](), matching(None, folder)
    for entry, answer in bound(lock, targets, kernel):
        outcome, reason, programs = checked(answer, lock, here)
        if isinstance(answer, TritonKernelError) or outcome != "ok":
            yield Verdict(entry=entry, outcome=outcome, reason=reason)
        elif (elsewhere := _why_not_measured(answer, here)) is not None:
            yield Verdict(entry=entry, outcome="not measured", reason=elsewhere)
        else:
            resources = _resources_then(entry, folder)
            near = islice(neighbours(answer.space, entry.config), most_neighbours)
            candidates = tuple(dict.fromkeys([*_leaders(answer, lock, folder, records), *near]))[:most_neighbours]
            cases.append(_Case(measuring, answer, answer.key_on(here), programs[:1], candidates, resources, is_new))
    cases = sorted((case for case in cases if case.doubt[0] or not idle), key=lambda case: case.doubt, reverse=True)
    for case, following in zip_longest(cases, cases[1:]):
        if time.monotonic() >= end_s:
            why = "the limit of seconds came before it"
            yield Verdict(entry=case.bound.entry, outcome="not measured", reason=why)
            continue
        with nullcontext() if idle or following is None else following.compiling():
            verdict = case.verdict(lock)
        yield verdict


def _resources_then(entry: LockEntry, folder: Path) -> Resources | None:
    """What an entry's config was compiled to in its tune, as far as the run log is in the folder."""
    run = Runs(folder, entry.origin.record).run(entry.origin.run)
    own = None if run is None else run.trials.get(entry.config)
    return None if own is None else own.resources


@dataclass(frozen=True)
class _Case:
    measuring: Measuring
    bound: BoundEntry
    key: Key  # as of a launch here
    programs: Sequence[EntryProgram]  # one that the entry selects; empty if nothing is compiled ahead
    known: tuple[Config, ...]  # what is known to be fast and neighbours, without its own config
    resources: Resources | None  # of the entry's config then
    is_new: bool = False  # it has never raced here

    @property
    def first(self) -> list[Config]:
        """The entry's config, the default, and others that are known."""
        default = self.bound.entry.default
        return list(dict.fromkeys([self.bound.entry.config, *([] if default is None else [default]), *self.known]))

    def compiling(self) -> AbstractContextManager[Any]:
        """A pool that compiles the known configs for the disk cache, beside the race of another entry."""
        with suppress(TritonKernelError):  # its own race says it
            for program in self.programs:
                pool = CompilePool(program.compiler, workers=max(1, CompilePool.usual_workers() // 2), reuse=True)
                for config in self.first:
                    pool.submit(config, anyway=True)
                return pool
        return nullcontext()

    @cached_property
    def doubt(self) -> tuple[bool, float]:
        """Orders entries by what they may have lost: those never measured like this first, then long launches."""
        entry = self.bound.entry
        unknown = (
            self.is_new
            or entry.measured is None
            or bool(entry.drift(self.key))
            or entry.origin.kind is OriginKind.BY_HAND
        )
        return unknown, 0.0 if entry.measured is None else entry.measured.median_ms

    def verdict(self, lock: Lockfile) -> Verdict:
        """The verdict of a race, and of a second one between the entry's config and what may be faster."""
        entry = self.bound.entry
        race = self.measuring.result(
            self.bound, lambda space: (rivals(entry, None, self.known) if space is None else space, self.first),
            _effort(len(self.first) + _LEADERS),
        )  # fmt: skip
        if isinstance(race, Verdict):
            return race
        verdict, own = judged(entry, race), trial_of(race, entry.config)
        best = Config(race.best_config)
        if own is None or verdict.outcome not in ("ok", "slower"):
            failed = own is not None and not own.ok and (self.is_new or own.status is not Status.WRONG)
            return self._repaired(lock, verdict, race, best, verdict.reason) if failed else verdict
        fastest, high, _ = _beside(race, own)
        rival, last = best if verdict.outcome == "slower" else fastest, race
        if rival is not None and (verdict.outcome == "slower" or high > _UNTOLD):
            pair = ConfigSpace.from_configs([entry.config, rival], default=entry.config)
            duel = self.measuring.result(self.bound, lambda _: (pair, [entry.config, rival]), _effort(2, _DUEL_S))
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
        becomes = after_race(entry, self.key, entry.config, times, race.default)
        return replace(verdict, outcome="ok", reason=reason, result=last, becomes=becomes)

    def _repaired(self, lock: Lockfile, verdict: Verdict, race: TuningResult, rival: Config, why: str) -> Verdict:
        """The verdict of an entry for which the winner of a race is to be pinned, unless its ranges cannot take it."""
        entry = verdict.entry
        own, winner = trial_of(race, entry.config), trial_of(race, rival)
        assert winner is not None  # it has won
        becomes = after_race(entry, self.key, rival, winner, race.default, why)
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
