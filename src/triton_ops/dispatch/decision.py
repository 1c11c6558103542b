"""A decision: the config that a problem's launches take, the rung of the ladder that it came from, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from triton_ops.backend.fast_launch import LaunchCount
from triton_ops.cache import Key
from triton_ops.space import Config

EXPLICIT, LOCKFILE, RECORD, TUNED, BORROWED, FALLBACK = (
    "explicit", "lockfile", "record", "tuned", "borrowed", "default"
)  # fmt: skip
RUNGS = (EXPLICIT, LOCKFILE, RECORD, TUNED, BORROWED, FALLBACK)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one rung of the ladder answers.

    Attributes:
        config: The config.
        rung: `explicit`, `lockfile`, `record`, `tuned`, `borrowed` or `default`.
        why: Why this config, as one sentence.
        record: Id of the record that it comes from; empty if it comes from none.
    """

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
        config: What the launcher passes on: a `triton.Config`, or the config itself.
        count: Counts the launches.
        kept: Whether later launches are decided in the same way; not so for what only holds for the moment.
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

    @property
    def missed(self) -> bool:
        """Whether no winner was known."""
        return self.found.rung == FALLBACK

    def holds(self, within: Callable[[], str | None]) -> bool:
        """Whether a launch now is decided in the same way: a winner stays, and a miss does under the same policy."""
        return not self.missed or self.policy is None or self.within == within()

    @property
    def text(self) -> str:
        """The decision as one line."""
        return f"{self.kernel} {self.problem}".rstrip() + f": {self.found.rung} ({self.found.config}): {self.found.why}"
