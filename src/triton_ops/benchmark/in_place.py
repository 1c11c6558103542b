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
from triton_ops.records import Lockfile, LockPlan, Record, Runs, cache_folder, lock_of, store_in
from triton_ops.settings import expanded
from triton_ops.space import Config
from triton_ops.timing import Arm, DuelPolicy, Interval, Launch, RacePolicy, Rounds, Sampler, SharedTimer, Timer

_FINALISTS = 4  # beside the config in use: each is captured, and holds the memory of a step
_LEAST_SHARE = 0.01  # of the step's time: what is faster by less than that cannot be told from noise
_CHANCE = 0.003  # of a gain that is none, in the second race of each kernel

_log = logging.getLogger("triton_ops")


@dataclass(frozen=True, kw_only=True)
class KernelInStep:
    """One problem of a kernel that a step launches, and what became of its config.

    `share` is the part of the step's time by the kernel's time alone; None if that is not known. `gain` is the step's
    time with the config before over that with the one after; None if nothing changed.
    """

    kernel: str
    problem: str
    launches: int
    share: float | None
    before: Config
    after: Config
    reason: str
    gain: Interval | None = None

    def __str__(self) -> str:
        share = "" if self.share is None else f", {self.share:.1%} of the step"
        configs = " -> ".join(dict.fromkeys([f"({self.before})", f"({self.after})"]))
        return f"{self.kernel} {self.problem}{share}: {configs}: {self.reason}"


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
    gain: Interval | None
    mode: str
    verified: str
    notes: tuple[str, ...] = ()
    elapsed_s: float = 0.0

    def __str__(self) -> str:
        faster = "no config makes it faster" if self.gain is None else _faster(self.gain)
        notes = [f"Note: {note}" for note in self.notes]
        head = f"{self.step}: {faster}, by {self.mode}"
        return "\n".join([head, *map(str, self.kernels), f"Results: {self.verified}", *notes])


def _faster(gain: Interval) -> str:
    return f"the step is {gain.centre:.3f} times as fast ({gain.low:.3f} to {gain.high:.3f})"


def tune_in_place(
    step: Callable[[], Any],
    kernels: Iterable[str] | None = None,
    budget_s: float = 60.0,
    *,
    name: str | None = None,
    state: Iterable[Any] = (),
    lockfile: str | os.PathLike[str] | None = None,
    cache_dir: str | Path | None = None,
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
        lockfile: File to which the configs that make the step faster are added, in place of entries for the same
            problems. None writes none: `use_lockfile(result.lockfile)` lets this process use them.
        cache_dir: Folder of records and run logs; None as for `tune`.

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
    finals = StepFinals(step, list(state), label, Path(cache_folder(cache_dir)), start + float(budget_s))
    try:
        chosen = _chosen(finals.observed(), kernels)
        if any(each.key is not None and each.key.device.get("kind") == "cuda" for each in chosen):
            finals.place = TorchDevice.current_name()
        with measuring(finals.place) as notes:
            rows, gain = finals.run(chosen)
    finally:
        finals.restore()
    if lockfile is not None and finals.lock.entries:
        finals.lock.add_to(expanded(lockfile), replaces=True)
    return StepResult(
        step=label, kernels=rows, lockfile=finals.lock, gain=gain, mode=finals.mode, verified=finals.verified,
        notes=notes(), elapsed_s=time.monotonic() - start,
    )  # fmt: skip


def _chosen(decisions: Sequence[Decision], kernels: Iterable[str] | None) -> list[Decision]:
    names = {each.kernel: {each.kernel, each.kernel.rpartition(":")[2]} for each in decisions}
    wanted = set(names) if kernels is None else set(kernels)
    strange = wanted - {name for each in names.values() for name in each}
    if strange or not names:
        what = f"no kernel {', '.join(map(str, strange))}" if names else "no kernel whose config is chosen"
        hint = f"it launches {', '.join(names)}" if names else "decorate its kernels: @triton_ops.autotune"
        raise SettingsError(f"the step launches {what}", hint=hint)
    return [each for each in decisions if names[each.kernel] & wanted]


@dataclass(eq=False)
class StepFinals:
    """The races of one step on a device; `lock` has the configs that were adopted, each with its entry."""

    step: Callable[[], Any]
    state: Sequence[Any]
    label: str
    folder: Path
    end_s: float
    place: str = "cpu"
    lock: Lockfile = field(default_factory=Lockfile)
    mode: str = ""
    verified: str = ""
    _right: ReferenceResults | None = None

    def __post_init__(self) -> None:
        self._before = Protection(self.state)

    def restore(self) -> None:
        """Give the state the content that it had at first."""
        self._before.restore()

    def observed(self) -> list[Decision]:
        """The decisions of one call that can be looked up; a call before may compile, and tune what is not known."""
        try:
            self.step()
            self._learn()
            with pinned(Lockfile()) as decisions:
                self.step()
                return [each for each in decisions() if each.count.value and each.key is not None]
        except TritonKernelError:
            raise
        except Exception as error:
            what = f"the step {self.label} raised {CandidateError.one_line(error)}"
            raise TargetError(what, hint="call it without arguments to try") from error

    def run(self, decisions: Sequence[Decision]) -> tuple[tuple[KernelInStep, ...], Interval | None]:
        """What became of each decision's config, and the gain of all changes together."""
        rounds, (arm,) = self._arms([self.lock])
        step_ms = rounds.sample_ms(arm.sampler) / arm.sampler.launches
        rows = sorted((self._row(each, step_ms) for each in decisions), key=lambda pair: -(pair[0].share or 0.0))
        results = []
        for place, (row, record) in enumerate(rows):
            seconds = (self.end_s - time.monotonic()) / (len(rows) - place + 1)  # one part for all changes together
            results.append(row if row.reason or record is None else self._decided(row, record, seconds))
        if not self.lock.entries:
            return tuple(results), None
        if (gain := self.proven(Lockfile(), self.lock, self.end_s - time.monotonic())) is not None:
            return tuple(results), gain
        self.lock = Lockfile()
        why = "all changes together are not proven faster than the step before"
        return tuple(
            replace(row, after=row.before, gain=None, reason=why) if row.gain else row for row in results
        ), None

    def _learn(self) -> None:
        """Keep what the step computes, with its own error, as the results that every finalist must meet."""
        try:
            self._right = ReferenceResults(self._results, Arguments(), protected=False)
        except TargetError as error:
            self.verified = f"not compared, since {error.message}; name in `state` what the step changes"
        else:
            self.verified = "; ".join(filter(None, ["compared with those before", self._right.why_own]))

    def _results(self) -> list[Any]:
        self.restore()
        return [*ReferenceResults.as_list(self.step()), *self.state]

    def _row(self, decision: Decision, step_ms: float) -> tuple[KernelInStep, Record | None]:
        """A decision as a row, which has a reason already where there is nothing to race, and its record."""
        record = None if decision.key is None else store_in(str(self.folder)).get(decision.key.id)
        launches, own = decision.count.value, decision.found.config
        share = None if record is None else launches * record.timing.median_ms / step_ms
        reason = ""
        if record is None or share is None:
            reason = "no record of a tune brings finalists: tune it first"
        elif not self._rivals(record, own):
            reason = "its tune has left no other finalist"
        elif share < _LEAST_SHARE:
            reason = f"less than {_LEAST_SHARE:.0%} of the step"
        return KernelInStep(
            kernel=decision.kernel, problem=decision.problem, launches=launches, share=share, before=own, after=own,
            reason=reason,
        ), record  # fmt: skip

    def _rivals(self, record: Record, own: Config) -> list[Config]:
        """The finalists of a tune beside a config: the winner, the fastest first, then ties and the default."""
        run = Runs(self.folder, record.id).run(record.run) if record.run else None
        raced = [] if run is None else [trial for trial in run.trials.values() if trial.ok and trial.final]
        fastest = [trial.config for trial in sorted(raced, key=lambda trial: trial.median_ms)][:_FINALISTS]
        listed = dict.fromkeys([record.winner, *fastest, *record.ties, record.default or record.winner])
        return [config for config in listed if config != own][:_FINALISTS]

    def _decided(self, row: KernelInStep, record: Record, seconds: float) -> KernelInStep:
        """A row after its races; what is proven faster is added to the lock."""
        if seconds <= 0:
            return replace(row, reason="the budget left no time for it")
        locks, faults = {row.before: self.lock}, []
        for config in self._rivals(record, row.before):
            lock = self._with(record, config)
            if why := self._refused(lock, row, config):
                faults.append(f"({config}) {why}")
            else:
                locks[config] = lock
        leader = self.leader(locks, seconds / 2) if len(locks) > 1 else row.before
        if leader == row.before:
            return replace(row, reason="; ".join([f"no slower than {len(locks) - 1} other finalists", *faults]))
        gain = self.proven(self.lock, locks[leader], seconds / 2)
        if gain is None:
            return replace(row, reason=f"({leader}) led in one race, and was not proven faster in the second")
        self.lock = locks[leader]
        return replace(row, after=leader, gain=gain, reason=_faster(gain))

    def _with(self, record: Record, config: Config) -> Lockfile:
        """The lock with a config for the problem of a record, in an entry whose source names the step."""
        own, _ = lock_of([record], LockPlan(unproven=True, all_sources=True))
        source = f"in place, in {self.label}"
        entries = [replace(it, config=config, origin=replace(it.origin, source=source)) for it in own.entries]
        return Lockfile.merged([replace(own, entries=tuple(entries)), self.lock])

    def _refused(self, lock: Lockfile, row: KernelInStep, config: Config) -> str:
        """The reason why a config cannot take its place in the step; empty if it can."""
        try:
            with pinned(lock) as decisions:
                fault = "" if self._right is None else self._right.fault(self._results())
                self.step()
                same = [each for each in decisions() if (each.kernel, each.problem) == (row.kernel, row.problem)]
        except Exception as error:  # noqa: BLE001 - a finalist that fails in the step must not end the others
            return f"fails in the step: {CandidateError.one_line(error)}"
        if not any(each.found.config == config and each.count.value for each in same):
            return "is not what the step launches, which has its config from elsewhere"
        return f"gives other results of the step: {fault}" if fault else ""

    def leader(self, locks: Mapping[Config, Lockfile], seconds: float) -> Config:
        """The config with which the step wins a race; the first, unless another one is proven faster."""
        rounds, arms = self._arms(list(locks.values()))
        own, by_config = next(iter(locks)), dict(zip(locks, arms, strict=True))
        rounds.race(arms, RacePolicy(seconds=seconds), default=by_config[own])
        alive = {config: arm for config, arm in by_config.items() if arm.error is None and arm.visits}
        if own not in alive:
            return own
        order: dict[Config, tuple[int | float | str, ...]] = {config: (place,) for place, config in enumerate(alive)}
        return rounds.standing(alive, own, preference=order).decision.winner

    def proven(self, before: Lockfile, after: Lockfile, seconds: float) -> Interval | None:
        """The gain of one lock over another in a race of the two and a twin; None if it is not proven."""
        rounds, (first, second, twin) = self._arms([after, before, after])
        try:
            outcome = rounds.duel((first, second, twin), DuelPolicy(seconds=max(seconds, 1.0), chance=_CHANCE))
        except Exception as error:  # noqa: BLE001 - a step that fails now and then proves nothing
            _log.warning("%s failed in a race: %s", self.label, CandidateError.one_line(error))
            return None
        return outcome.gain.ratio if outcome.proven else None

    def _arms(self, locks: Sequence[Lockfile]) -> tuple[Rounds, list[Arm]]:
        """An arm of the step with each lock, of equally many samples in a visit."""
        mode = self.mode or (None if self.place == "cpu" else "graph-warm")
        timers, launch = SharedTimer(probe(self.place), self.place, cold=False, mode=mode), Launch(self.step)
        with pinned(locks[0]):
            samplers = timers.prepare_all(launch, lambda timer: [self._sampler(timer, lock) for lock in locks])
        self.mode = timers.start(launch).mode
        rounds, _ = Rounds.guarded(timers.start(launch), self.place, rng=random.Random(0))
        samples = DuelPolicy().samples(rounds.sample_ms(samplers[0]))
        return rounds, [Arm(sampler, samples) for sampler in samplers]

    def _sampler(self, timer: Timer, lock: Lockfile) -> Sampler:
        """A sampler of the step with a lock; one that is not captured decides its configs anew before each visit."""

        @contextmanager
        def decided() -> Iterator[None]:
            with pinned(lock):
                self.step()
                yield

        with decided():
            sampler = timer.prepare(Launch(self.step))
        return sampler if timer.mode.startswith("graph") else sampler.inside(decided)
