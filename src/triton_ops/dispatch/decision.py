"""A decision: the config that a problem's launches take, the rung of the ladder that it came from, and why."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from triton_ops.dispatch.fast_launch import LaunchCount, values_now
from triton_ops.dispatch.policy import within
from triton_ops.exceptions import UntunedError
from triton_ops.space import Config
from triton_ops.values import Key, TuningResult

EXPLICIT, LOCKFILE, RECORD, TUNED, SHIPPED, BORROWED, FALLBACK = (
    "explicit", "lockfile", "record", "tuned", "shipped", "borrowed", "default"
)  # fmt: skip
RUNGS = (EXPLICIT, LOCKFILE, RECORD, TUNED, SHIPPED, BORROWED, FALLBACK)
_ORIGINS = {
    EXPLICIT: "as given", LOCKFILE: "winner of the lockfile", RECORD: "recorded winner", TUNED: "tuned now",
    FALLBACK: "default config",
}  # fmt: skip


def origin_of(rung: str) -> str:
    """Origin of a config of this rung, in a few words, such as `recorded winner`."""
    return _ORIGINS.get(rung, f"{rung} winner")


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
        policy: What the caller asked for on a miss, where this is one; None where a config was found.
        within: The policy of the `on_miss` around the first launch of a miss; a launch under another is decided again.
        config: What the launcher passes on: a `triton.Config`, which others may hold and change, or the config itself.
        count: Counts the launches.
        kept: Whether later launches are decided in the same way; not so for what only holds for the moment.
        values: What a `triton.Config` held when the decision was taken; None for other configs.
    """

    found: Found
    kernel: str
    problem: str
    device: str = ""
    passed: tuple[str, ...] = ()
    key: Key | None = None
    policy: str | None = None
    within: str | None = None
    config: Any = None
    count: LaunchCount = field(default_factory=LaunchCount)
    kept: bool = True
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
        """The decision for those who look at it; what they change in its config changes no launch."""
        return replace(self, config=copied(self.config))

    @property
    def missed(self) -> bool:
        """Tell whether no winner was known."""
        return self.found.rung == FALLBACK

    def holds(self, within: Callable[[], str | None]) -> bool:
        """Tell whether a launch now is decided alike: a winner stays, and a miss does under the same policy."""
        return not self.missed or self.policy is None or self.within == within()

    def tuned(self, result: TuningResult) -> Decision:
        """The decision after a tune; it names a record only where the tune has left one."""
        why = f"found by a tune of {result.elapsed_s:.1f} s"
        default_won = result.default is not None and result.default.config == Config(result.best_config)
        why += worth_text(result.raced_gain, default_won, result.unproven)
        why += "" if result.record else "; the winner is not remembered"
        answer = Found(config=Config(result.best_config), rung=TUNED, why=why, record=result.record)
        return replace(self, found=answer, policy=None, count=LaunchCount())

    def because(self, why: str, policy: str, within: str | None) -> Decision:
        """The decision of a miss, with the reason why nothing was tuned."""
        answer = replace(self.found, why=why)
        return replace(self, found=answer, policy=policy, within=within, count=LaunchCount())

    @property
    def error(self) -> UntunedError:
        """The error of a miss."""
        details = f" ({'; '.join(self.passed)})" if self.passed else ""
        return UntunedError(
            f"no winner is known for {self.kernel} {self.problem}".rstrip() + details,
            self.kernel,
            self.problem,
            hint='tune it before, or let misses run the default: triton_ops.on_miss("default")',
        )

    @property
    def text(self) -> str:
        """The decision as one line."""
        return f"{self.kernel} {self.problem}".rstrip() + f": {self.found.rung} ({self.found.config}): {self.found.why}"


def copied(config: Any) -> Any:
    """A `triton.Config` of its own; configs of this package are never changed, and need none."""
    if isinstance(config, Config) or not hasattr(config, "kwargs"):
        return config
    copy_of_config = copy(config)
    copy_of_config.kwargs = dict(config.kwargs)
    return copy_of_config


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


_MOST = 4_096  # problems of one kernel; then all are decided anew


class Decisions(dict[Any, Decision]):
    """The decisions that are kept, by place. It outlives its kernel and never holds it: launches stay counted."""

    def __init__(self) -> None:
        super().__init__()
        self._begin()

    def _begin(self) -> None:
        self._locks: defaultdict[Any, threading.RLock] = defaultdict(threading.RLock)

    def begin_anew(self) -> None:
        """Forget every decision and every lock, in a forked child, whose other threads are gone."""
        self._begin()
        self.clear()

    def holding(self, place: Any) -> Decision | None:
        """The decision at a place, if a launch now is decided in the same way."""
        decision = self.get(place)
        return decision if decision is not None and decision.holds(within) else None

    def of(
        self, place: Any, decide: Callable[[], Decision], full: Callable[[], None], *, kept: bool = True
    ) -> Decision:
        """The decision at a place; one that does not hold is taken anew, while other threads wait."""
        decision = self.holding(place)
        if decision is not None:
            return decision
        with self._locks[place]:
            decision = self.holding(place)
            if decision is None:
                try:
                    decision = decide()
                    if kept and decision.kept:
                        if len(self) >= _MOST:
                            full()
                        self[place] = decision
                finally:
                    self._locks.pop(place, None)  # who waits for it has it; later calls find the decision
        return decision
