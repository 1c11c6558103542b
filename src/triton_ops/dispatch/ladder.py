"""The ladder: the sources that are asked for a winner, one after another, with the policy where none has one.

Nothing here launches or measures. A policy tunes, runs the default, raises an error, or queues the problem.

An entry answers on its device only, and only for the kernel's present source. Triton, its assembler and the driver may
be others than those with which it was found: a winner of other versions is a better guess than an untuned config, and
what changed is said. Where a tune is asked for, only an entry of these very versions spares it.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from triton_ops import settings, values
from triton_ops.base import ForkSafeLock, canonical_json, require, warn, warn_once
from triton_ops.dispatch.decision import (
    BORROWED,
    EXPLICIT,
    FALLBACK,
    LOCKFILE,
    RECORD,
    SHIPPED,
    WITHIN,
    Found,
    asked,
    forget_decisions,
    within,
    worth_text,
)
from triton_ops.exceptions import CacheError, LockfileError, MissingDependencyError, SettingsError
from triton_ops.records import (
    RECORDS,
    FollowedLockfile,
    LockEntry,
    Lockfile,
    LockfileInUse,
    MemoryStore,
    Record,
    Store,
    may_have_records,
    store_in,
    unreached,
    winners_of,
)
from triton_ops.request import TuneOptions, TuneRequest
from triton_ops.settings import cache_folder
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import ANY, Argument, Key, Mapper, Problem, Range, TuningResult

Place: TypeAlias = tuple[float, bool, str]
"""Orders what may be taken: how far its problem is, whether a package brings it, and an id."""
_FARTHEST = 1.0  # |log2| of the ratios of all extents together: a winner is borrowed over a factor of two
_OTHER_VERSIONS = _FARTHEST / 1024  # of two winners for equal problems that of these versions is nearer


def shipped(key: Key, passed: list[str], *, drifted: bool) -> Iterator[tuple[Place, Found]]:
    """Entries of packages' lockfiles for the very problem of `key`, each with its place.

    Those of other versions answer if `drifted`; `passed` takes, for each lockfile that does not answer, why not.
    """
    reasons: list[str] = []
    for lock in FollowedLockfile.shared():
        if (pinned := lock.find(key)) is None or pinned.entry.origin.expected:
            reasons.append(f"shipped: {lock.why_not(key)}")
        elif (other := pinned.entry.why_other_bits(key)) is not None:
            reasons.append(f"shipped: {other}")
        elif pinned.drift and not drifted:
            reasons.append(f"shipped: there is a winner, but of other versions: {'; '.join(pinned.drift)}")
        else:
            entry, away = pinned.entry, pinned.entry.distance(key) + (_OTHER_VERSIONS if pinned.drift else 0.0)
            why = "; ".join([f"shipped for {entry.label or 'this problem'}, {_shipped_measured(entry)}", *pinned.drift])
            yield (away, True, ""), Found(config=entry.config, rung=SHIPPED, why=why, record=entry.origin.record)
    passed += dict.fromkeys(reasons)  # several packages share lockfiles, and most have nothing for a kernel


def _key_of(entry: LockEntry, asked: Key) -> Key:
    """The key for which an entry was found, by the name that its device has here."""
    return replace(
        asked, problem=entry.problem, identity=entry.identity, device={**asked.device, "driver": entry.origin.driver},
        cache_state=asked.cache_state if entry.measured is None else entry.measured.cache_state, held_to={},
        label=entry.label,
    )  # fmt: skip


def _shipped_measured(entry: LockEntry) -> str:
    gain = None if entry.measured is None else entry.measured.gain
    worth = worth_text(gain, entry.config == entry.default, entry.origin.unproven)
    return f"measured {entry.origin.created or 'at a time that is not known'}{worth}"


def _distance(key: Key, other: Key, loose: Collection[str], *, near: bool) -> float | None:
    """Distance of the problem of `other` from that of `key`, a winner's; None if its winner cannot be borrowed.

    It is |log2| of the ratios of all extents together: 1 for a factor of two. Problems may differ in the `loose` names,
    and, if `near`, in extents and versions.
    """
    if other.device.get("name") != key.device.get("name") or other.device.get("arch") != key.device.get("arch"):
        return None
    changes = {*Key.changes_since(other.identity, key.identity)} - {"grid"}  # a grid may hold the sizes of its problem
    if changes or "source" not in other.identity or other.problem.keys() != key.problem.keys():
        return None
    strict = dict(other.identity) == dict(key.identity) and dict(other.device) == dict(key.device)
    strict = strict and (other.cache_state, dict(other.held_to)) == (key.cache_state, dict(key.held_to))
    if not (strict or near):
        return None
    mine, theirs = ({name: _ends(it) for name, it in one.problem.items() if name not in loose} for one in (key, other))
    extents, others = Mapper.extents_of(mine), Mapper.extents_of(theirs)
    # 0 and 1 stand for themselves; equal pairs count once: M is also an extent of two tensors.
    pairs = {name: (it, others[name]) for name, it in extents.items() if type(it) is type(others.get(name)) is int}
    alike = {name: pair for name, pair in pairs.items() if pair[0] == pair[1] or (near and min(pair) > 1)}
    if canonical_json(Mapper.rest_of(mine, alike)) != canonical_json(Mapper.rest_of(theirs, alike)):
        return None
    total = sum((abs(math.log2(a / b)) for a, b in {*alike.values()} if a != b), 0.0 if strict else _OTHER_VERSIONS)
    return total if total <= _FARTHEST + 2 * _OTHER_VERSIONS else None


def _ends(argument: object) -> object:
    """An argument with both ends of each range, of a bucket, as extents."""
    if not isinstance(argument, Mapping):
        return argument
    ends = [it if isinstance(it, (list, tuple)) else [it] for it in argument.get("shape", [argument.get("range", [])])]
    return {**argument, "range": None, "shape": [*chain.from_iterable(ends)]}


_SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class LadderQuestion:
    """Question to the ladder.

    `asked` is the key with the problem as it is: lockfiles compare their own ranges with it. In the names `loose` a
    borrowed record may differ, whatever the policy: classes of arguments that the caller has not named as deciding.
    `space` has the configs that can be taken for this very problem; `enough` says why a record does not answer although
    its key is equal; `near` lets records of problems nearby answer, and `expected` configs that nobody has measured.
    `pick` chooses one of these by a model, given the winners of other problems.
    """

    key: Key
    asked: Key
    loose: frozenset[str]
    space: ConfigSpace
    enough: Callable[[Record], str | None] | None = None
    near: bool = True
    expected: bool = False
    pick: Callable[[Iterable[Config]], Found | None] | None = None

    def fallback(self, why: str) -> Found:
        """The default as an answer."""
        return Found(config=self.space.default_config, rung=FALLBACK, why=why)


@dataclass(eq=False)
class Ladder:
    """The sources of winners, in their order; `refused` says why there is no lockfile although one is named.

    The time of change of `folder` says when to list the records anew; None lists them each time.
    """

    store: Store[Record]
    folder: str | None = None
    lockfile: Lockfile | None = None
    _: KW_ONLY
    only_lockfile: bool = False
    refused: str = ""
    _listed: tuple[int | None, Sequence[Record]] = (None, ())

    def ask(self, question: LadderQuestion) -> tuple[Found, tuple[str, ...]]:
        """The first rung that answers with a config that the problem can take, with what those above have said.

        The last rung is the default.

        Cost: reads one file; where there is no exact record, lists the records of the folder once per change of it.
        """
        passed: list[str] = []
        rungs = [self._locked] if self.only_lockfile else [self._locked, self._exact, self._found_elsewhere]
        rungs = rungs[:2] if question.key.bits else rungs  # no class was told of what others have found for others
        for rung in [*rungs, self._expected] if question.expected else rungs:
            for answer in rung(question, passed):
                if (refused := question.space.why_not(answer.config)) is None:
                    return answer, tuple(passed)
                passed.append(f"{answer.rung}: its config ({answer.config}) cannot be taken here: {refused}")
        return question.fallback("no winner is known for this problem"), tuple(passed)

    def _locked(self, question: LadderQuestion, passed: list[str]) -> Iterator[Found]:
        if (config := _sources.limits.pins.get(question.key.id)) is not None:
            yield Found(config=config, rung=EXPLICIT, why="it is raced in a step")
        if self.lockfile is None:
            passed.append(f"lockfile: {self.refused or 'none is used'}")
            return
        for entry, drift, why in _pinned(self.lockfile, question):
            if entry.origin.expected:
                continue
            if (other := entry.why_other_bits(replace(question.asked, held_to=question.key.held_to))) is not None:
                passed.append(f"lockfile: {other}")
                warn_once(f"{entry.kernel} {entry.label} is not launched as its lockfile says: {other}; {_CLASS}")
                continue
            if drift:
                warn_once(
                    f"the lockfile is used beyond the versions that it was confirmed for ({'; '.join(drift)}): "
                    "`triton-ops lock verify --repair` races its entries again"
                )
            yield Found(config=entry.config, rung=LOCKFILE, why=why, record=entry.origin.record)
        passed.append(f"lockfile: {self.lockfile.why_not(question.asked)}")

    def _expected(self, question: LadderQuestion, _: list[str]) -> Iterator[Found]:
        """Configs that a model has chosen, of the lockfile in use, then of those of packages, or chooses now."""
        shared = () if self.only_lockfile else FollowedLockfile.shared()
        for lockfile in filter(None, (self.lockfile, *shared)):
            for entry, _drift, why in _pinned(lockfile, question):
                if entry.origin.expected:
                    yield Found(config=entry.config, rung=EXPECTED, why=why)
        if question.pick is not None and not self.only_lockfile:
            records = sorted(self._records_of(question.key.kernel), key=lambda record: record.id)
            answer = question.pick(config for _, config in winners_of(question.asked, records))
            yield from () if answer is None else (answer,)

    def _exact(self, question: LadderQuestion, passed: list[str]) -> Iterator[Found]:
        key = question.key
        if key.unknown is not None:
            passed.append(f"record: the kernel or its arguments cannot be told from others: {key.unknown}")
            return
        if (record := self.store.get(key.id)) is not None:
            lacking = None if question.enough is None else question.enough(record)
            if lacking is None and key.bits and not record.bits:
                warn_once(f"{key.kernel} {key.label} runs its default config: no other is known to be of its class")
            if lacking is None:
                yield Found(config=record.winner, rung=RECORD, why=_measured(record), record=record.id)
            else:
                passed.append(f"record: there is one, but {lacking}")
            return
        nearest = self._nearest(question)
        others = f"the nearest differs in {_said(key.differences(nearest.key))}" if nearest else "none of this kernel"
        passed.append(f"record: none for this problem; {others}")
        passed += [f"record: {why}" for why in unreached()]

    def _found_elsewhere(self, question: LadderQuestion, passed: list[str]) -> Iterator[Found]:
        """Winners of packages, and of problems nearby: the nearest first, and own records before those of packages."""
        if question.key.unknown is None:
            others = shipped(question.asked, passed, drifted=question.near) if _sources.limits.packages else ()
            yield from (answer for _, answer in sorted([*self._lent(question), *others], key=lambda pair: pair[0]))
        passed.append("borrowed: no record of this kernel and device is near enough")

    def _lent(self, question: LadderQuestion) -> Iterator[tuple[Place, Found]]:
        key = question.key
        for record in self._records_of(key.kernel):
            if record.id == key.id or record.undecided:
                continue
            away = _distance(key, record.key, question.loose, near=question.near)
            if away is not None and (question.enough is None or question.enough(record) is None):
                yield (away, False, record.id), _borrowed(key, record.key, record.winner, record.id, _measured(record))
        for entry in FollowedLockfile.shared_entries(question.asked) if question.near else ():
            other = _key_of(entry, question.asked)
            if (away := _distance(question.asked, other, question.loose, near=True)) is not None:
                how = f"shipped, {_shipped_measured(entry)}"
                yield (away, True, other.id), _borrowed(question.asked, other, entry.config, entry.origin.record, how)

    def tells_apart(self, kernel: str, problem: Problem, typical: Mapping[str, object]) -> bool:
        """Whether a source has a winner for some problems of a class alone, of which `typical` stands for all."""
        extents = Mapper.extents_of({name: Problem.plain(value) for name, value in problem.arguments})
        for other, ranges in self._problems_of(kernel):
            cuts = [(extents[name], each) for each in ranges for name in each.extents if name in extents]
            if any(values.class_cut(extent, each.low, each.high) for extent, each in cuts):
                return True
            stands = {name: values.typical_argument(value) for name, value in other.items()}
            if not ranges and other != typical == stands:
                return True
        return False

    def _problems_of(self, kernel: str) -> Iterator[tuple[dict[str, object], tuple[Range, ...]]]:
        """The problems of winners for a kernel, with the ranges of their extents."""
        shared = () if self.only_lockfile else FollowedLockfile.shared()
        entries = [entry for lock in filter(None, (self.lockfile, *shared)) for entry in lock.entries]
        problems = [(entry.problem, entry.ranges) for entry in entries if entry.kernel == kernel]
        records = () if self.only_lockfile else self._records_of(kernel)
        problems += [Mapper.unkeyed(record.key.problem)[:2] for record in records]
        for problem, ranges in problems:
            arguments = {name: value for name, value in problem.items() if value != ANY}
            yield {name: Problem.from_plain(value) for name, value in arguments.items()}, ranges

    def _records_of(self, kernel: str) -> list[Record]:
        try:
            # A folder's time of change is another one after each file that is put there, also in place of an older one.
            changed = None if self.folder is None else Path(self.folder).stat().st_mtime_ns
        except OSError:
            changed = None
        if changed is None or changed != self._listed[0]:
            self._listed = changed, list(self.store)
        return [record for record in self._listed[1] if record.key.kernel == kernel]

    def _nearest(self, question: LadderQuestion) -> Record | None:
        records = self._records_of(question.key.kernel)
        return min(records, key=lambda record: (len(question.key.differences(record.key)), record.id), default=None)


_CLASS = "`triton-ops tune --same-bits-as lockfile` finds a config of the class"


def held(request: TuneRequest, asked: Key, lockfile: Lockfile | None, wanted: Any = None) -> TuneRequest:
    """A request that keeps to the class of bits which a lockfile pins, else to the default's where that is `wanted`.

    `asked` is its key as of `LadderQuestion`. `wanted` None is what the environment says, False keeps to none, and a
    text or a config is a `same_bits_as`. A `SettingsError` says where no compiled code tells.
    """
    bits = wanted if isinstance(wanted, (str, Mapping)) else "default" if wants_same_bits(wanted) else None
    looked_in = lockfile if wanted in (None, True, "lockfile") else None
    if looked_in is not None and (entry := looked_in.pinning(asked, named=bits is not None)) is not None:
        request, bits = replace(request, pinned=entry.bits, shown_by=entry.config), "lockfile"
    return replace(request, same_bits_as=bits).check_same_bits()


def wants_same_bits(wanted: object) -> bool:
    """Tell whether a caller wants the same bits; None is what the environment says, where a wrong word counts as 1."""
    return word_or("1", settings.same_bits, "launches keep to one class") == "1" if wanted is None else bool(wanted)


def _pinned(lockfile: Lockfile, question: LadderQuestion) -> Iterator[tuple[LockEntry, tuple[str, ...], str]]:
    """The entries that answer the question as it is, then in its loose names, each with its drift and the reason."""
    problems = (entry.problem for entry in lockfile.entries if entry.kernel == question.key.kernel)
    for key in chain([question.asked], _loosened(question, problems)):
        if (pinned := lockfile.find(key)) is not None:
            differs = _said(question.asked.differences(key))
            why = f"{pinned}; borrowed, since it differs in {differs}" if differs else str(pinned)
            yield pinned.entry, pinned.drift, why


def left_undecided(record: Record) -> str | None:
    """Reason for which a record does not spare a tune, since its own has decided nothing; None if it does."""
    return f"it is unproven, and a tune goes on with it: {record.undecided}" if record.goes_on else None


def _borrowed(asked: Key, other: Key, config: Config, record: str, how: str) -> Found:
    why = f"borrowed from {other.label or record}, which differs in {_said(asked.differences(other))}; {how}"
    return Found(config=config, rung=BORROWED, why=why, record=record)


def _loosened(question: LadderQuestion, problems: Iterable[Mapping[str, Argument]]) -> Iterator[Key]:
    ids = {question.asked.id}
    for problem in problems:
        changed = {name: problem[name] for name in question.loose if name in problem}
        key = replace(question.asked, problem={**question.asked.problem, **changed})
        if key.id not in ids:
            ids.add(key.id)
            yield key


def _measured(record: Record) -> str:
    if record.step:
        return f"measured {record.created}, and raced in place: no other finalist makes the step {record.step} faster"
    why = f"measured {record.created}{worth_text(record.gain, record.winner == record.default, record.unproven)}"
    return f"{why}; chosen by {' and '.join(record.ordered_by)}" if record.effort == EXPECTED else why


def _said(differences: list[str]) -> str:
    more = f" and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    return "; ".join(differences[:_SHOWN]) + more


_guard = ForkSafeLock()  # a lockfile that is being written is waited for while it is held


@dataclass(frozen=True)
class Limits:
    """The limits of launches: the most that they do when no winner is known, and whether winners of packages answer.

    None is no limit. `pins` has by the ids of keys the configs that a step races.
    """

    most: str | None = None
    pins: Mapping[str, Config] = field(default_factory=dict)
    packages: bool = True


class _Sources:
    """The limits of the launches of this process, and one ladder for each folder of records."""

    def __init__(self) -> None:
        self.ladders: dict[str, Ladder] = {}
        self.limits = Limits()


_sources = _Sources()


def use_lockfile(lockfile: Lockfile | str | os.PathLike[str] | None, *, only: bool = False) -> Lockfile | None:
    """Let the launches of this process take their configs from a lockfile first; returns the lockfile.

    Args:
        lockfile: The lockfile, or its path; None uses none, whatever `TRITON_OPS_LOCKFILE` says.
        only: Whether records are not asked: what the lockfile does not pin then runs its default config, or does as
            `on_miss` says.

    Returns:
        The lockfile that is used now; None if none is.

    Raises:
        LockfileError: The file cannot be read, was edited by hand, or is of another version.

    Kernels that were launched before keep their configs until their caches are cleared.
    """
    content = None if lockfile is None else _read(lockfile)
    with _guard:
        LockfileInUse.NOW = LockfileInUse(content, only)
        _sources.ladders.clear()
    return content


@contextmanager
def replaying(lockfile: Lockfile | str | os.PathLike[str], *, on_miss: str = "default") -> Iterator[Lockfile]:
    """Inside, every launch of this process takes its config from the lockfile, and nothing tunes or asks a record.

    What the lockfile does not pin runs its default config, and says so. It holds for all threads; kernels that were
    launched before are decided anew, at the beginning and at the end.

    Args:
        lockfile: The lockfile, or its path.
        on_miss: `default`, or `error`: what the lockfile does not pin raises `UntunedError`.

    Returns:
        A context manager, which gives the lockfile.

    Raises:
        LockfileError: The file cannot be read, was edited by hand, or is of another version.
        SettingsError: `on_miss` is another word.
    """
    if on_miss not in (DEFAULT, ERROR):
        raise SettingsError(f"on_miss is {on_miss!r}; a replay takes {DEFAULT} or {ERROR}", hint="choose one of these")
    content = _read(lockfile)
    with deciding_by(lambda limits: replace(limits, most=on_miss), LockfileInUse(content, only=True)):
        yield content


@contextmanager
def deciding_by(change: Callable[[Limits], Limits], in_use: LockfileInUse | None = None) -> Iterator[None]:
    """Inside, every launch of this process is decided anew by other limits, and afterwards by those from before.

    With `in_use` it is decided by another lockfile, too.
    """
    limits, lockfile = _sources.limits, LockfileInUse.NOW
    _decide_anew(change(limits), in_use or lockfile)
    try:
        yield
    finally:
        _decide_anew(limits, LockfileInUse.NOW if in_use is None else lockfile)


def change_limits(change: Callable[[Limits], Limits] = lambda limits: limits) -> None:
    """Have every launch decided anew, by other limits if they change."""
    _decide_anew(change(_sources.limits), LockfileInUse.NOW)


def _decide_anew(limits: Limits, in_use: LockfileInUse | None) -> None:
    with _guard:
        _sources.limits, LockfileInUse.NOW = limits, in_use
        _sources.ladders.clear()
    forget_decisions()


def _read(lockfile: Lockfile | str | os.PathLike[str]) -> Lockfile:
    if isinstance(lockfile, Lockfile):
        return lockfile
    if not isinstance(lockfile, (str, os.PathLike)):
        raise LockfileError(f"{lockfile!r} is no lockfile", hint="give its path, or what Lockfile.read returns")
    return Lockfile.read(lockfile)


def pinned() -> bool:
    """Tell whether launches ask a lockfile first."""
    in_use = LockfileInUse.NOW
    return settings.lockfile() is not None if in_use is None else in_use.lockfile is not None


def ladder_of(cache_dir: str | Path | None = None) -> Ladder:
    """The ladder over the lockfile in use and a folder's records; a folder without use is empty, with a warning."""
    folder = cache_folder(cache_dir)
    with _guard:
        in_use = LockfileInUse.now()
        if (ladder := _sources.ladders.get(folder)) is not None:
            return ladder
        ladder = _made(folder, in_use)
        # A folder that is made later is seen then; a forked child follows a lockfile that was refused by itself.
        if may_have_records(folder) and not ladder.refused:
            _sources.ladders[folder] = ladder
        return ladder


def _made(folder: str, in_use: LockfileInUse) -> Ladder:
    store: Store[Record]
    store, place, lockfile, refused = MemoryStore(RECORDS), None, in_use.content, ""
    try:
        if may_have_records(folder):
            store, place = store_in(folder), folder
    except CacheError as error:
        warn("records are not used: %s", error)
    if isinstance(followed := in_use.lockfile, FollowedLockfile):
        followed.follow(change_limits)
        refused = followed.refused
    return Ladder(store, place, lockfile, only_lockfile=in_use.only, refused=refused)


TUNER = "triton_ops.tuner"


def tune(*args: object, **kwargs: object) -> TuningResult:
    """Tune as `triton_ops.tune` does, in a call that came to run a kernel."""
    result: TuningResult = importlib.import_module(TUNER).tune(*args, **kwargs)
    return result


def tune_request(request: TuneRequest, options: TuneOptions, **place: object) -> TuningResult:
    """Tune a request that is checked already, with further fields of `RequestedTune`."""
    result: TuningResult = importlib.import_module(TUNER).RequestedTune(
        request=request, options=options, **place
    ).result()  # fmt: skip
    return result


TUNE, RACE, EXPECTED, BACKGROUND, DEFAULT, ERROR, QUEUE = settings.ON_MISS
MEASURING = (TUNE, RACE, EXPECTED)  # in a launch
MAY_MEASURE = (*MEASURING, BACKGROUND)
_DEFAULTS = "launches without a known winner run their default config"


@contextmanager
def on_miss(policy: str) -> Iterator[None]:
    """Inside, launches without a known winner do as `policy` says, whatever their decorators and the environment say.

    It holds for this thread or task only.

    Args:
        policy: `tune` finds the winner first, `race` compares a few configs that a model expects to be fast with the
            default, which takes about a second, `expected` compares the one that it expects to be the fastest where it
            is sure of a gain, and does as `queue` elsewhere, `background` does the same for decorated kernels while
            their launches run the default, `default` runs the kernel's default config, `error` raises
            `UntunedError`, and `queue` runs the default and notes the problem for a later tune.

    Raises:
        SettingsError: There is no such policy.
    """
    with asked(WITHIN, settings.one_of(settings.ON_MISS, policy, "on_miss")):
        yield


def policy_of(argument: str | None, otherwise: str) -> str:
    """The policy of a launch: that of the innermost `on_miss`, else the decorator's, the environment's, `otherwise`.

    While a lockfile is replayed, nothing tunes, whoever asks for it.
    An environment that holds no policy counts as `default`, with one warning: a launch is no place for its error. So
    does `tune` where what a tune needs is not installed.
    """
    policy = within() or argument or word_or(DEFAULT, settings.on_miss, _DEFAULTS) or otherwise
    if policy in MAY_MEASURE and (missing := MissingDependencyError.of_extra("tune", "a tune")):
        warn_once(f"{missing}; {_DEFAULTS}")
        policy = DEFAULT
    confined = _sources.limits.most or (DEFAULT if settings.replay() is not None else None)
    if confined is None:
        return policy
    if ERROR in (policy, confined):
        return ERROR
    return DEFAULT if policy in MAY_MEASURE else policy


def word_or(otherwise: str, setting: Callable[[], str | None], consequence: str) -> str | None:
    """A word of the environment; where it is not allowed, one warning and `otherwise`: a launch must go on."""
    try:
        return setting()
    except SettingsError as error:
        warn_once(f"{error}; {consequence}")
        return otherwise


def capturing() -> bool:
    """Tell whether the current stream is being captured into a CUDA graph; asked only where torch uses a GPU."""
    if "torch" not in sys.modules:
        return False
    cuda = require("torch", "a launch").cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
