"""Decisions: the config that a problem's launches take, the rung of the ladder that it came from, why, and how often.

The launches of this process are counted for each decision, and reported at its end on request.
"""

from __future__ import annotations

import atexit
import itertools
import operator
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from triton_ops import settings
from triton_ops.base import ForkSafeLock, NamedFile, Sealed, at_fork, canonical_json, warn
from triton_ops.base import counted as number_of
from triton_ops.exceptions import CacheError, SettingsError, SpaceError, UntunedError
from triton_ops.settings import expanded
from triton_ops.space import Config
from triton_ops.values import Key, TuningResult

EXPLICIT, LOCKFILE, RECORD, TUNED, SHIPPED, BORROWED, EXPECTED, FALLBACK = RUNGS = (
    "explicit", "lockfile", "record", "tuned", "shipped", "borrowed", "expected", "default"
)  # fmt: skip


WITHIN: ContextVar[str | None] = ContextVar("triton_ops_on_miss", default=None)
within = WITHIN.get
"""The policy of the innermost `on_miss` around the caller, in this thread or task; None outside of all."""
for_compiled = SimpleNamespace(asked=False, generation="0")
"""What compiled code asks at each call: whether a thread is in `on_miss` or `tuning`, and which decisions hold."""
_asking: list[Any] = []
_asking_guard = ForkSafeLock()
# Less than the largest length that `length_hint` can tell, 2^63 - 1.
_COUNTED_FROM = 1 << 62


@contextmanager
def asked(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Set what this thread or task asks of launches, inside of the block."""
    token = variable.set(value)
    with _asking_guard:
        _asking.append(token)
        for_compiled.asked = True
    try:
        yield
    finally:
        with _asking_guard:
            _asking.remove(token)
            for_compiled.asked = bool(_asking)
        variable.reset(token)


class LaunchCount(itertools.repeat):  # type: ignore[type-arg]
    """A number that any thread can raise by one without a lock, which takes nanoseconds.

    `at_end` is given the number once nobody can raise it any more.
    """

    __slots__ = ("__weakref__", "at_end")
    at_end: Callable[[int], object] | None
    up = itertools.repeat.__next__  # one step of an iterator written in C is never torn; to hold it keeps the number

    def __new__(cls) -> LaunchCount:
        """A number that is 0."""
        count = super().__new__(cls, None, _COUNTED_FROM)
        count.at_end = None
        return count

    def __reduce__(self) -> tuple[object, ...]:
        """A copy, as in a copied module, counts for itself."""
        return LaunchCount, ()

    def __del__(self) -> None:
        if self.at_end is not None:
            self.at_end(self.value)

    @property
    def value(self) -> int:
        """How often `up` was called."""
        return _COUNTED_FROM - operator.length_hint(self)


def values_now(config: Any) -> dict[str, Any]:
    """What a `triton.Config` holds now, to be compared with its `__dict__` later."""
    return {**config.__dict__, "kwargs": dict(config.kwargs)}


@dataclass(frozen=True, kw_only=True)
class Found:
    """Answer of one rung of the ladder; `why` is one sentence, and `record` an id, empty without a record."""

    config: Config
    rung: str
    why: str
    record: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Decision:
    """The config that the launches of one problem take.

    Attributes:
        found: Config, rung and reason.
        kernel: The kernel's name.
        problem: The problem in short.
        device: The device's name.
        passed: What each rung above answered, as one sentence each.
        key: The key that was looked up; None where no look-up was needed.
        folder: The folder of records where it was looked up; None is the usual one.
        policy: What the caller asked for on a miss, where this is one; None where a winner was found.
        within: The policy of the `on_miss` around the first launch of a miss; a launch under another is decided again.
        config: What the launcher passes on: a `triton.Config`, which others may hold and change, or the config itself.
        count: Counts the launches.
        now: What gives `within` for as long as a launch is decided alike.
        kept: Whether later launches are decided in the same way; not so for what only holds for the moment.
        shared: Whether it holds for every problem of its class of sizes.
        values: What a `triton.Config` held when the decision was taken; None for other configs.
    """

    found: Found
    kernel: str
    problem: str
    device: str = ""
    passed: tuple[str, ...] = ()
    key: Key | None = None
    folder: str | Path | None = None
    policy: str | None = None
    within: str | None = None
    config: Any = None
    count: LaunchCount = field(default_factory=LaunchCount)
    now: Callable[[], Any] = WITHIN.get
    kept: bool = True
    shared: bool = False
    values: dict[str, Any] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if hasattr(self.config, "all_kwargs"):
            object.__setattr__(self, "values", values_now(self.config))

    @property
    def edited(self) -> bool:
        """Tell whether the config was changed in place since."""
        return self.values is not None and vars(self.config) != self.values

    @property
    def copy(self) -> Decision:
        """The decision for those who look at it; what they change in its `triton.Config` changes no launch."""
        if not hasattr(self.config, "kwargs"):  # configs of this package never change
            return self
        config = copy(self.config)
        config.kwargs = dict(config.kwargs)
        return replace(self, config=config)

    @property
    def missed(self) -> bool:
        """Tell whether nothing was known."""
        return self.found.rung == FALLBACK

    @property
    def unmeasured(self) -> bool:
        """Tell whether a ladder has given what nobody has measured: the default, or what a model has chosen."""
        return self.found.rung in (FALLBACK, EXPECTED)

    @property
    def ask(self) -> Callable[[], str | None] | None:
        """The function that gives `within` while a launch is decided alike; None if it always is, as for a winner."""
        return self.now if self.policy is not None else None

    @property
    def holds(self) -> bool:
        """Tell whether a launch now is decided alike: a winner stays, and a miss does under the same policy."""
        return self.ask is None or self.ask() == self.within

    @property
    def counted(self) -> Decision:
        """The decision, whose launches stay counted for as long as this process lives."""
        if self.count.at_end is None:
            self.row.counted(self.count)
        return self

    @property
    def row(self) -> LaunchedConfig:
        """The decision as it is reported, before its first launch."""
        answer = self.found
        return LaunchedConfig(
            kernel=self.kernel, problem=self.problem, device=self.device, rung=answer.rung,
            config=answer.config, why=answer.why, passed=self.passed, record=answer.record, launches=0,
        )  # fmt: skip

    def tuned(self, result: TuningResult) -> Decision:
        """The decision after a tune, by the policy; it names a record only where the tune has left one."""
        why = f"found by a tune of {result.elapsed_s:.1f} s"
        default_won = result.default is not None and result.default.config == Config(result.best_config)
        why += worth_text(result.gain, default_won, result.unproven)
        why += f"; configs ordered by {' and '.join(result.ordered_by)}" if result.ordered_by else ""
        why += "" if result.record else "; the winner is not remembered"
        rung = EXPECTED if self.policy == EXPECTED else TUNED
        answer = Found(config=Config(result.best_config), rung=rung, why=why, record=result.record)
        return replace(self, found=answer, policy=None, count=LaunchCount())

    def because(self, why: str, policy: str) -> Decision:
        """The decision of a miss, with the reason why nothing was tuned."""
        return replace(self, found=replace(self.found, why=why), policy=policy, within=within(), count=LaunchCount())

    @property
    def error(self) -> UntunedError:
        """The error of a miss."""
        details = f" ({'; '.join(self.passed)})" if self.passed else ""
        message = f"no winner is known for {self.kernel} {self.problem}".rstrip() + details
        hint = "tune it before, or let misses run the default: TRITON_OPS_ON_MISS=default"
        return UntunedError(message, self.kernel, self.problem, hint=hint)

    @property
    def text(self) -> str:
        """The decision as one line."""
        return f"{self.kernel} {self.problem}".rstrip() + f": {self.found.rung} ({self.found.config}): {self.found.why}"


def worth_text(gain: float | None, is_default: bool, unproven: str = "") -> str:
    """Gain of a winner, the default's time over its own, as a part of a sentence; empty where not known."""
    if unproven:
        return f", unproven: {unproven}"
    if is_default:
        return ", the default itself, from which no config stands out by more than noise"
    if not gain:
        return ""
    times = f"{gain:.3g}"
    return ", as fast as the default" if times == "1" else f", {times} times as fast as the default"


KIND = "triton-ops report"
SCHEMA_VERSION = 1


class Decides(Protocol):
    """An object that has taken decisions, such as a decorated kernel."""

    def begin_anew(self) -> None:
        """Forget everything: this is a forked child, whose parent tells what was launched before."""

    def forget(self) -> None:
        """Have every call decided again."""


@dataclass(frozen=True, kw_only=True)
class LaunchedConfig:
    """One config that was launched for one problem.

    Attributes:
        kernel: The kernel's name.
        problem: The problem in short.
        device: The device's name; empty where none was asked for.
        rung: The rung of the ladder that the config came from.
        config: The config.
        why: Why this config.
        passed: What the rungs above answered.
        record: Id of the record that it comes from; empty if none.
        launches: How often it was launched.
    """

    kernel: str
    problem: str
    device: str
    rung: str
    config: Config
    why: str
    passed: tuple[str, ...] = ()
    record: str = ""
    launches: int

    def counted(self, count: LaunchCount | None = None) -> Callable[[], object]:
        """The function that counts a launch, for as long as this process lives; the count begins at 0."""
        count = LaunchCount() if count is None else count
        _counts.add(count, self)
        _report_at_exit()
        return count.up

    @staticmethod
    def read_report(path: str | os.PathLike[str]) -> list[LaunchedConfig]:
        """The launches in a file that a process wrote at its end.

        Raises:
            CacheError: The file cannot be read, or is no such report of this version.
        """
        where = expanded(path)
        with CacheError.when(f"{where} cannot be read", "name a report"):
            text = NamedFile(where).read()
        what = f"{where} is no report of launches of this version"
        errors = OSError, ValueError, KeyError, SpaceError
        with CacheError.when(what, "TRITON_OPS_REPORT=FILE lets a process write one", *errors):
            content = Sealed.parsed(text)
            if (content["kind"], content["schema_version"]) != (KIND, SCHEMA_VERSION):
                raise ValueError(f"it is {content['kind']!r}, version {content['schema_version']!r}")
            return Sealed.typed(content["launches"], list[LaunchedConfig], Config.decode)

    @property
    def text(self) -> str:
        """One line."""
        where = f"{self.kernel} {self.problem}".rstrip()
        return f"{where}: {number_of(self.launches, 'launch')} of ({self.config}) by {self.rung}: {self.why}"


_deciders: weakref.WeakSet[Any] = weakref.WeakSet()


class _Counts:
    """The counts of all decisions.

    A decision may be forgotten while other threads are about to count a launch of it. Its count therefore tells its
    number into a queue when the last of them has let go of it.
    """

    def __init__(self) -> None:
        self._living: weakref.WeakKeyDictionary[LaunchCount, LaunchedConfig] = weakref.WeakKeyDictionary()
        self._ended: deque[tuple[LaunchedConfig, int]] = deque()
        self._rows: dict[tuple[object, ...], LaunchedConfig] = {}
        self._guard = ForkSafeLock()

    def add(self, count: LaunchCount, row: LaunchedConfig) -> None:
        ended = self._ended
        with self._guard:
            self._living[count] = row
            self._add_up()
        count.at_end = lambda number: ended.append((row, number))

    def rows(self) -> list[LaunchedConfig]:
        with self._guard:
            living = list(self._living.items())  # which cannot end now
            self._add_up()
            rows = dict(self._rows)
        for count, row in living:
            _add(rows, row, count.value)
        return list(rows.values())

    def _add_up(self) -> None:
        for _ in range(len(self._ended)):
            _add(self._rows, *self._ended.popleft())


_counts = _Counts()


def register(decides: Decides) -> None:
    """Forget the decisions of `decides` with all others from now on, and report at the end if that is asked for."""
    _deciders.add(decides)
    _report_at_exit()


def forget_decisions() -> None:
    """Have every call of this process decided again; the counts of launches stay."""
    for decides in list(_deciders):
        decides.forget()


def decisions() -> list[Decision]:
    """The decisions that hold in this process."""
    return [decision for decides in list(_deciders) for decision in decides.decisions]


def _add(rows: dict[tuple[object, ...], LaunchedConfig], row: LaunchedConfig, launches: int) -> None:
    place = (row.kernel, row.problem, row.device, row.rung, row.config, row.why)
    if launches:
        rows[place] = replace(row, launches=launches + (rows[place].launches if place in rows else 0))


def launches() -> list[LaunchedConfig]:
    """Every config that this process has launched through a decorated kernel or an operation, the most launched first.

    Cost: no device work; counters are read.
    """
    return sorted(_counts.rows(), key=lambda row: (-row.launches, row.kernel, row.problem, RUNGS.index(row.rung)))


def report_text() -> str:
    """The launches of this process as text, one line each."""
    if not (rows := launches()):
        return "triton-ops: nothing was launched through it"
    by_rung = {rung: sum(row.launches for row in rows if row.rung == rung) for rung in RUNGS}
    counts = ", ".join(f"{count:,} by {rung}" for rung, count in by_rung.items() if count)
    head = f"triton-ops: {number_of(sum(row.launches for row in rows), 'launch')}: {counts}"
    return "\n".join([head, *(row.text for row in rows)])


def report_json() -> dict[str, object]:
    """The launches of this process as plain JSON values."""
    rows = [{**vars(row), "config": dict(row.config), "passed": list(row.passed)} for row in launches()]
    return {"kind": KIND, "schema_version": SCHEMA_VERSION, "process": os.getpid(), "launches": rows}


@lru_cache(maxsize=1)
def _report_at_exit() -> None:
    if settings.report():
        atexit.register(_tell, os.getpid())
    at_fork(_begin_anew)


def _begin_anew() -> None:
    """In a forked child: what its parent has launched is none of its own, and tells its number to nobody here."""
    global _counts
    _counts = _Counts()
    for decides in list(_deciders):
        decides.begin_anew()


def _tell(process: int) -> None:
    where = settings.report()
    if os.getpid() != process or not where:  # a forked child has launched nothing that the parent does not tell
        return
    if where == "1":
        sys.stderr.write(report_text() + "\n")
        return
    path = where.replace("%p", str(process))
    try:
        NamedFile(expanded(path)).write(canonical_json(report_json()) + "\n")
    except (OSError, SettingsError) as error:
        warn("the report of launches cannot be written to %s: %s", path, getattr(error, "strerror", error))
