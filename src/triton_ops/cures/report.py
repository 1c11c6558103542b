"""What became of the changes that may cure a spill."""

from __future__ import annotations

from dataclasses import dataclass, replace

from triton_ops.cures.evidence import SpillEvidence
from triton_ops.resources import WASTEFUL_SPILL_BYTES

CURES, HELPS, NO_HELP, SLOWER, IMPOSSIBLE = "cures", "helps", "does not help", "slower", "not possible"
"""The verdicts on a change."""
_LEAST_PART = 0.9  # of the spilled bytes that must be left at most for a change to count as a help
TOGETHER = "together"


@dataclass(frozen=True)
class Tried:
    """One change, with every config that was compiled to try it.

    Attributes:
        name: The change, in words.
        why: What it is expected to do.
        before: The evidence of the config that spills.
        steps: The evidence of each config, in the order tried.
    """

    name: str
    why: str
    before: SpillEvidence
    steps: tuple[SpillEvidence, ...]

    @property
    def best(self) -> SpillEvidence | None:
        """The first step that cures the spill, or else the one that spills least; None if none compiled."""
        compiled = [step for step in self.steps if step.compiled]
        cured = next((step for step in compiled if healthy(step)), None)
        return cured or min(compiled, key=lambda step: step.spill_bytes or 0, default=None)

    @property
    def verdict(self) -> str:
        """Whether the change cures the spill, helps, does not, makes the config slower, or is not possible."""
        return IMPOSSIBLE if self.best is None else self.verdict_on(self.best)

    def verdict_on(self, step: SpillEvidence) -> str:
        """The same of one of its configs."""
        if not step.compiled:
            return IMPOSSIBLE
        if step.median_ms is not None and self.before.median_ms is not None and step.median_ms >= self.before.median_ms:
            return SLOWER
        if healthy(step):
            return CURES
        return HELPS if (step.spill_bytes or 0) < _LEAST_PART * (self.before.spill_bytes or 0) else NO_HELP

    @property
    def kept(self) -> bool:
        """Whether the change helps."""
        return self.verdict in (CURES, HELPS)

    def timed(self, median_ms: dict[str, float]) -> Tried:
        """The same with the times that were measured, by the text of the config."""
        steps = (replace(step, median_ms=median_ms.get(step.config.text)) for step in self.steps)
        return Tried(self.name, self.why, with_time(self.before, median_ms), tuple(steps))


def with_time(seen: SpillEvidence, median_ms: dict[str, float]) -> SpillEvidence:
    """Evidence with the time that was measured, by the text of the config."""
    return replace(seen, median_ms=median_ms.get(seen.config.text))


def healthy(seen: SpillEvidence) -> bool:
    """Whether a config spills nothing worth a word."""
    return seen.compiled and (seen.spill_bytes or 0) <= WASTEFUL_SPILL_BYTES


@dataclass(frozen=True)
class SpillReport:
    """What a config spills, and what cures it.

    Attributes:
        target: The architecture that was compiled for.
        before: The evidence of the config.
        tried: Each change with its verdict, in the order of the cures; empty for a config that spills nothing.
        notes: Remarks, such as that the config is not in the space.
    """

    target: str
    before: SpillEvidence
    tried: tuple[Tried, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def spills(self) -> bool:
        """Whether the config spills enough to matter."""
        return self.before.compiled and not healthy(self.before)

    @property
    def cure(self) -> Tried | None:
        """The change to make: of those that were measured the fastest, else the first that cures; None without one."""
        cured = [one for one in self.tried if one.verdict == CURES]
        timed = [one for one in cured if one.best is not None and one.best.median_ms is not None]
        if timed:
            return min(timed, key=lambda one: one.best.median_ms if one.best and one.best.median_ms else 0.0)
        return next(iter(cured), None)

    @property
    def advice(self) -> str:
        """What to do, in one sentence."""
        if not self.before.compiled:
            return f"it cannot be launched: {self.before.reason}"
        if not self.spills:
            spilled = self.before.spill_bytes or 0
            return "it spills nothing" if not spilled else f"it spills {spilled} bytes, too few to matter"
        cure = self.cure
        if cure is None or cure.best is None:
            return "no change of the config cures it: split the kernel, or keep fewer values alive at once"
        changed = {name: value for name, value in cure.best.config.items() if self.before.config.get(name) != value}
        return f"{cure.name} cures it: {' '.join(f'{name}={value}' for name, value in changed.items())}"
