"""Finals inside a step: which configs of the kernels that a callable launches make the whole callable faster.

A config that wins alone may lose beside its neighbours, with which it shares caches, clocks and power. The step is
captured as a CUDA graph where that is possible, once for each finalist, and the graphs are replayed in turn. A race
picks the luckiest of several, so what leads in it must also win a second race against the config in use, with a twin.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from triton_ops.backend import Arguments, CandidateError, Protection
from triton_ops.base import is_positive
from triton_ops.benchmark.timing import measuring
from triton_ops.device import TorchDevice, probe
from triton_ops.dispatch import Decision, pinned
from triton_ops.evaluation import ReferenceResults
from triton_ops.exceptions import KernelTypeError, SettingsError, TargetError, TritonKernelError
from triton_ops.records import LockEntry, Lockfile, LockPlan, Record, Runs, cache_folder, lock_of, store_in
from triton_ops.settings import expanded
from triton_ops.space import Config
from triton_ops.timing import Arm, DuelPolicy, Launch, RacePolicy, Rounds, Sampler, SharedTimer, Timer

_log = logging.getLogger("triton_ops")

_FINALISTS = 4  # beside the config in use: each is captured, and holds the memory of a step
_LEAST_SHARE = 0.01  # of the step's time: what is faster by less than that cannot be told from noise
_CHANCE = 0.003  # of a gain that is none, in the second race of each kernel
_RACE_SHARE = 0.5  # of a kernel's seconds; the second race has the rest


@dataclass(frozen=True, kw_only=True)
class KernelInStep:
    """One problem of a kernel that a step launches, and what became of its config.

    `share` is the part of the step's time by the kernel's own time alone; None if that is not known. `gain` is the
    step's time with the config before over that with the one after, with its 95 % interval; None if nothing changed.
    """

    kernel: str
    problem: str
    launches: int
    share: float | None
    before: Config
    after: Config
    reason: str
    gain: tuple[float, float, float] | None = None

    def __str__(self) -> str:
        share = "" if self.share is None else f", {self.share:.1%} of the step"
        config = f"({self.before})" if self.after == self.before else f"({self.before}) -> ({self.after})"
        return f"{self.kernel} {self.problem}{share}: {config}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The result of `tune_in_place`.

    Attributes:
        step: The name of the step.
        kernels: What it launches, the largest share of its time first.
        lockfile: The configs that make it faster, each for its problem; empty if none does.
        gain: The step's time before over that after, with its 95 % interval; None if nothing changed.
        mode: Clock and state of the caches: `graph-warm` for replays of a CUDA graph.
        verified: What the results of each finalist's step were compared with; why they were not, if so.
        notes: Remarks on the measurement.
        elapsed_s: Wall seconds.
    """

    step: str
    kernels: tuple[KernelInStep, ...]
    lockfile: Lockfile
    gain: tuple[float, float, float] | None
    mode: str
    verified: str
    notes: tuple[str, ...] = ()
    elapsed_s: float = 0.0

    def __str__(self) -> str:
        gain = "no config makes it faster"
        if self.gain is not None:
            gain = f"{self.gain[0]:.3f} times as fast as before ({self.gain[1]:.3f} to {self.gain[2]:.3f})"
        lines = [f"{self.step}: {gain}, by {self.mode}", *map(str, self.kernels)]
        return "\n".join([*lines, f"Results: {self.verified}", *(f"Note: {note}" for note in self.notes)])


def tune_in_place(
    step: Callable[[], Any],
    kernels: Iterable[str] | None = None,
    budget_s: float = 60.0,
    *,
    name: str | None = None,
    state: Iterable[Any] = (),
    lockfile: str | os.PathLike[str] | None = None,
    cache_dir: str | Path | None = None,
    seed: int = 0,
    wait: bool = True,
) -> StepResult:
    """Keep those finalists of kernels' tunes that make a whole step faster, such as a forward pass or a training step.

    The kernels must have been tuned before, each alone: their records and run logs bring the finalists. A config is
    changed only if the step is proven faster by it in two races, and at the end all changes together in a third.

    Args:
        step: Called without arguments; it launches decorated kernels, operations, shipped kernels or choosers.
        kernels: Names of the kernels to look at, as the result shows them, or their last part; None takes all.
        budget_s: Seconds for all races; the kernel with the largest share of the step's time comes first.
        name: Name of the step in lockfile and result; None takes that of the callable.
        state: Tensors that the step changes and reads again, such as weights and the state of an optimizer. They are
            restored before each comparison of results and at the end, and compared too.
        lockfile: File to which the configs that make the step faster are added; an entry for the same problem is
            replaced. None writes none: `use_lockfile(result.lockfile)` lets this process use them.
        cache_dir: Folder of records and run logs; None as for `tune`.
        seed: Seed of the orders.
        wait: Whether to wait while another process measures on the same GPU; False raises a `DeviceError` instead.

    Returns:
        What became of each kernel, with shares and intervals, and the lockfile.

    Raises:
        KernelTypeError: The step is not callable.
        SettingsError: `budget_s` or `kernels` does not fit, or the step launches no kernel of this package.
        TargetError: The step raised.
        LockfileError: The lockfile cannot be read or written.

    Cost: the step is called a few times for each finalist, and captured as a graph where it can be; each captured graph
        holds the memory of a step. `budget_s` limits the races.
    """
    if not callable(step):
        raise KernelTypeError(f"the step is {step!r}, which cannot be called", hint="pass a function without arguments")
    if not is_positive(budget_s):
        raise SettingsError(f"budget_s is {budget_s!r}; it must be a positive number")
    start, label = time.monotonic(), name or str(getattr(step, "__qualname__", type(step).__qualname__))
    own = _Step(step, list(state), label)
    try:
        chosen = _chosen(own.observed(), kernels)
        place = TorchDevice.current_name() if any(_kind(each) == "cuda" for each in chosen) else "cpu"
        with measuring(place, wait) as notes:
            finals = _StepFinals(own, place, Path(cache_folder(cache_dir)), start + float(budget_s), seed)
            told, gain = finals.run(chosen)
    finally:
        own.restore()
    if lockfile is not None and finals.lock.entries:
        finals.lock.add_to(expanded(lockfile), replaces=True)
    return StepResult(
        step=label, kernels=told, lockfile=finals.lock, gain=gain, mode=finals.mode, verified=own.verified,
        notes=notes(), elapsed_s=time.monotonic() - start,
    )  # fmt: skip


def _kind(decision: Decision) -> str:
    return "" if decision.key is None else str(decision.key.device.get("kind", ""))


def _chosen(decisions: Sequence[Decision], kernels: Iterable[str] | None) -> list[Decision]:
    if not decisions:
        raise SettingsError(
            "the step launches no kernel whose config is chosen", hint="decorate them: @triton_ops.autotune"
        )
    names = sorted({decision.kernel for decision in decisions})
    wanted = names if kernels is None else list(kernels)
    if strange := [each for each in wanted if not any(each in (own, own.rpartition(":")[2]) for own in names)]:
        raise SettingsError(
            f"the step launches no kernel {', '.join(map(str, strange))}", hint=f"it launches {', '.join(names)}"
        )
    return [each for each in decisions if {each.kernel, each.kernel.rpartition(":")[2]} & set(wanted)]


class _Step:
    """The user's step with what it changes; `verified` says what results are compared with, or why they are not."""

    def __init__(self, call: Callable[[], Any], state: Sequence[Any], label: str) -> None:
        self.call, self.label, self.verified = call, label, ""
        self._state, self._before = state, Protection(state)
        self._right: ReferenceResults | None = None

    def restore(self) -> None:
        self._before.restore()

    def observed(self) -> list[Decision]:
        """The decisions of one call that can be looked up; the call may compile, and tune what is not known."""
        try:
            self.call()
            self._right = self._reference()
            with pinned(Lockfile()) as decisions:
                self.call()
                return [each for each in decisions() if each.count.value and each.key is not None]
        except TritonKernelError:
            raise
        except Exception as error:
            what = f"the step {self.label} raised {CandidateError.one_line(error)}"
            raise TargetError(what, hint="call it without arguments to try") from error

    def _results(self) -> list[Any]:
        self.restore()
        return [*ReferenceResults.as_list(self.call()), *self._state]

    def _reference(self) -> ReferenceResults | None:
        try:
            right = ReferenceResults(self._results, Arguments(), protected=False)
        except TargetError as error:
            self.verified = f"not compared, since {error.message}; name in `state` what the step changes"
            return None
        self.verified = "compared with those before" + (f"; {right.why_own}" if right.why_own else "")
        return right

    def fault(self) -> str:
        """The difference of a call's results from those before, in words; empty if there is none."""
        return "" if self._right is None else self._right.fault(self._results())


@dataclass(eq=False)
class _StepFinals:
    """The races of one step; `lock` has the configs that were adopted, each with its entry."""

    step: _Step
    place: str
    folder: Path
    end_s: float
    seed: int
    lock: Lockfile = field(default_factory=Lockfile)
    mode: str = ""

    def run(self, decisions: Sequence[Decision]) -> tuple[tuple[KernelInStep, ...], tuple[float, float, float] | None]:
        """What became of each decision's config, and the gain of all changes together."""
        step_ms = self._step_ms()
        rows = [self._row(decision, step_ms) for decision in decisions]
        rows.sort(key=lambda row: -(row[0].share or 0.0))
        told = []
        for place, (row, record) in enumerate(rows):
            left_s = self.end_s - time.monotonic()
            told.append(row if record is None else self._decided(row, record, left_s / (len(rows) - place + 1)))
        if not self.lock.entries:
            return tuple(told), None
        gain = self._proven(Lockfile(), self.lock, max(self.end_s - time.monotonic(), 1.0))
        if gain is not None:
            return tuple(told), gain
        self.lock = Lockfile()
        why = "all changes together are not proven faster than the step before"
        return tuple(replace(row, after=row.before, gain=None, reason=why) if row.gain else row for row in told), None

    def _row(self, decision: Decision, step_ms: float) -> tuple[KernelInStep, Record | None]:
        """A decision as a row, with its record if there is something to race."""
        assert decision.key is not None
        record = store_in(str(self.folder)).get(decision.key.id)
        launches = decision.count.value
        share = None if record is None else launches * record.timing.median_ms / step_ms
        row = KernelInStep(
            kernel=decision.kernel, problem=decision.problem, launches=launches, share=share,
            before=decision.found.config, after=decision.found.config, reason="",
        )  # fmt: skip
        if record is None:
            return replace(row, reason="no record of a tune brings finalists: tune it first"), None
        if not self._rivals(record, row.before):
            return replace(row, reason="its tune has left no other finalist"), None
        if share is not None and share < _LEAST_SHARE:
            return replace(row, reason=f"less than {_LEAST_SHARE:.0%} of the step"), None
        return row, record

    def _rivals(self, record: Record, own: Config) -> list[Config]:
        """The finalists of a tune beside a config: the fastest first, then ties and the default."""
        run = Runs(self.folder, record.id).run(record.run) if record.run else None
        raced = [] if run is None else [trial for trial in run.trials.values() if trial.ok and trial.final]
        known = [trial.config for trial in sorted(raced, key=lambda trial: trial.median_ms)]
        listed = dict.fromkeys([record.winner, *known[:_FINALISTS], *record.ties, record.default or record.winner])
        return [config for config in listed if config != own][:_FINALISTS]

    def _decided(self, row: KernelInStep, record: Record, seconds: float) -> KernelInStep:
        """A row after its races; what is proven faster is added to the lock."""
        if seconds <= 0:
            return replace(row, reason="the budget left no time for it")
        entry, locks = self._entry(record), dict[Config, Lockfile]()
        faults = []
        for config in self._rivals(record, row.before):
            lock = self._with(entry, config)
            if why := self._refused(lock, row, config):
                faults.append(f"({config}) {why}")
            else:
                locks[config] = lock
        if not locks:
            return replace(row, reason="; ".join(faults))
        leader = self._leader({row.before: self.lock, **locks}, row.before, _RACE_SHARE * seconds)
        if leader == row.before:
            return replace(row, reason=f"no faster beside {len(locks)} finalists")
        gain = self._proven(self.lock, locks[leader], (1 - _RACE_SHARE) * seconds)
        if gain is None:
            return replace(row, reason=f"({leader}) led in one race, and was not proven faster in the second")
        self.lock = locks[leader]
        reason = f"the step is {gain[0]:.3f} times as fast ({gain[1]:.3f} to {gain[2]:.3f})"
        return replace(row, after=leader, gain=gain, reason=reason)

    def _entry(self, record: Record) -> Lockfile:
        lock, _ = lock_of([record], LockPlan(unproven=True, all_sources=True))
        return lock

    def _with(self, entry: Lockfile, config: Config) -> Lockfile:
        """The lock with a config in an entry, whose source names the step."""

        def changed(old: LockEntry) -> LockEntry:
            return replace(old, config=config, origin=replace(old.origin, source=f"in place, in {self.step.label}"))

        return Lockfile.merged([replace(entry, entries=tuple(map(changed, entry.entries))), self.lock])

    def _refused(self, lock: Lockfile, row: KernelInStep, config: Config) -> str:
        """The reason why a config cannot take its place in the step; empty if it can."""
        try:
            with pinned(lock) as decisions:
                if fault := self.step.fault():
                    return f"gives other results of the step: {fault}"
                self.step.call()
                same = [each for each in decisions() if (each.kernel, each.problem) == (row.kernel, row.problem)]
                if not any(each.found.config == config and each.count.value for each in same):
                    return "is not what the step launches, which has its config from elsewhere"
        except Exception as error:  # noqa: BLE001 - a finalist that fails in the step must not end the others
            return f"fails in the step: {CandidateError.one_line(error)}"
        return ""

    def _step_ms(self) -> float:
        rounds, (arm,) = self._arms([self.lock])
        return rounds.sample_ms(arm.sampler) / arm.sampler.launches

    def _leader(self, locks: Mapping[Config, Lockfile], own: Config, seconds: float) -> Config:
        """The config with which the step wins a race; `own`, the first, unless another one is proven faster."""
        rounds, arms = self._arms(list(locks.values()))
        by_config = dict(zip(locks, arms, strict=True))
        rounds.race(arms, RacePolicy(seconds=seconds), default=by_config[own])
        alive = {config: arm for config, arm in by_config.items() if arm.error is None and arm.visits}
        if own not in alive:
            return own
        order: dict[Config, tuple[int | float | str, ...]] = {config: (place,) for place, config in enumerate(alive)}
        return rounds.standing(alive, own, preference=order).decision.winner

    def _proven(self, before: Lockfile, after: Lockfile, seconds: float) -> tuple[float, float, float] | None:
        """The gain of one lock over another in a race of the two and a twin; None if it is not proven."""
        rounds, (first, second, twin) = self._arms([after, before, after])
        try:
            outcome = rounds.duel((first, second, twin), DuelPolicy(seconds=seconds, chance=_CHANCE))
        except Exception as error:  # noqa: BLE001 - a step that fails now and then proves nothing
            _log.warning("%s failed in a race: %s", self.step.label, CandidateError.one_line(error))
            return None
        ratio = outcome.gain.ratio
        return (ratio.centre, ratio.low, ratio.high) if outcome.proven else None

    def _arms(self, locks: Sequence[Lockfile]) -> tuple[Rounds, list[Arm]]:
        """An arm of the step with each lock, of equally many samples in a visit."""
        mode = self.mode or (None if self.place == "cpu" else "graph-warm")
        timers = SharedTimer(probe(self.place), self.place, cold=False, mode=mode)
        with pinned(locks[0]):
            samplers = timers.prepare_all(
                Launch(self.step.call), lambda timer: [self._sampler(timer, lock) for lock in locks]
            )
        timer = timers.start(Launch(self.step.call))
        self.mode = timer.mode
        rounds, _ = Rounds.guarded(timer, self.place, rng=random.Random(self.seed))
        samples = DuelPolicy().samples(rounds.sample_ms(samplers[0]))
        return rounds, [Arm(sampler, samples) for sampler in samplers]

    def _sampler(self, timer: Timer, lock: Lockfile) -> Sampler:
        """A sampler of the step with a lock; one that is not captured decides its configs anew before each visit."""

        @contextmanager
        def decided() -> Iterator[None]:
            with pinned(lock):
                self.step.call()
                yield

        with decided():
            sampler = timer.prepare(Launch(self.step.call))
        return sampler if timer.mode.startswith("graph") else sampler.inside(decided)
