"""`verify`: does every entry of a lockfile still hold? Checked without a GPU, and measured where the device is here.

An operation is tuned for the entry's problem. A decorated kernel, whose problem has only classes of arguments, is tuned
for the call that was noted when its config was found.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, TypeAlias

from triton_ops import dispatch
from triton_ops.compilation import CompilePool
from triton_ops.device import DeviceSpec
from triton_ops.exceptions import (
    KernelTypeError,
    ShapeMismatchError,
    SpaceError,
    TargetError,
    TritonKernelError,
    TuningFailedError,
    UnsupportedDtypeError,
)
from triton_ops.records import LockEntry, Lockfile, NotedCall
from triton_ops.request import Effort, TuneOptions, TuneProblem
from triton_ops.ship.preparing import EntryProgram, checked, compiled
from triton_ops.ship.targets import BoundEntry, Targets, bound
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner import Listener, RequestedTune
from triton_ops.values import Mapper, TensorSpec, Trial, TuningResult

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
    return sorted(others, key=lambda other: sum(other[name] != value for name, value in config.items()))


def unknown_values(case: BoundEntry) -> list[str]:
    """The tensors of integers, such as offsets and tables, of a call whose values are made up: it may need others.

    Their values are not kept, and those that are made up may lead a kernel outside of other tensors. An operation makes
    the values of its own problems.
    """
    made = {} if case.by_shape is not None else case.specs or {}
    specs = case.entry.call.values if isinstance(case.entry.call, NotedCall) else made
    return [
        name for name, spec in specs.items() if isinstance(spec, TensorSpec) and not spec.dtype.startswith(_FRACTIONS)
    ]


Choose: TypeAlias = Callable[[ConfigSpace | None], ConfigSpace]
Outcome = Literal["ok", "repaired", "unreachable", "invalid", "slower", "not loaded", "not measured"]
_NOTED = "a decorated kernel is measured at the call that was noted, whose grid is known"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one entry's checks.

    It is `ok`; `repaired`: another config stands in its place; `unreachable`: no launch can find it; `invalid`: its
    config is refused, does not compile, fails or computes the wrong thing; `slower`: than the default or a neighbour,
    beyond noise; `not loaded`: only the file names its kernel, so that nothing was checked; `not measured`: all that
    can be checked without its device is right.
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
    jobs: int | None = None,
    timeout_s: float = CompilePool.TIMEOUT_S,
    listener: Listener | None = None,
    measure: Callable[[Measuring, BoundEntry, Sequence[EntryProgram]], Iterable[Verdict]] | None = None,
    **options: Any,
) -> Iterator[Verdict]:
    """Check each entry in turn: found, reachable, in its space, taken by its kernel, compiled, right, and fast.

    A measurement is a tune among the entry's config, the default one and the neighbours in the space, those next to the
    config first, with all that a tune checks; an entry passes if nothing among them is faster beyond noise. Nothing is
    remembered. Entries are measured `here`, which torch calls `device`; without it none are. An entry is measured at so
    many `held_out` values in each of its ranges as well, where it passes if it is slower by no more than `most_loss`,
    relative. Further options are those of `tune`, such as `effort` and `seed`. Where `measure` is given, it is called
    in the place of a measurement, with the programs that the entry selects, and nothing is compiled ahead.
    """
    entries = [(entry, answer, checked(answer, lock, here)) for entry, answer in bound(lock, targets, kernel)]
    programs = [program for *_, (_, _, own) in entries for program in own] if measure is None else []
    results = dict(compiled(programs, jobs, timeout_s))
    measuring = Measuring(targets=targets, device=device, options=TuneOptions(**options), listener=listener)
    for entry, answer, (outcome, reason, own) in entries:
        refusals = [(one.target.arch, results[one]) for one in own if one in results and not results[one].launchable]
        if isinstance(answer, TritonKernelError) or outcome != "ok":
            yield Verdict(entry=entry, outcome=outcome, reason=reason)
        elif (elsewhere := _why_not_measured(answer, here)) is None and measure is not None:
            yield from measure(measuring, answer, own)
        elif refusals:
            arch, result = refusals[0]
            yield Verdict(entry=entry, outcome="invalid", reason=f"{result.status} for {arch}: {result.reason}")
        elif elsewhere is not None:
            yield Verdict(entry=entry, outcome="not measured", reason=elsewhere)
        else:
            yield measuring.verdict(answer, most_neighbours)
            for place in _held_out(answer, held_out):
                there = Verdict(entry=entry, outcome="not measured", reason=_NOTED) if place.specs is None else (
                    measuring.verdict(place, most_neighbours, most_loss)
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

    def verdict(self, case: BoundEntry, most_neighbours: int, most_loss: float = 0.0) -> Verdict:
        """The verdict of a tune among the entry's config, the default one and the nearest neighbours."""

        def beside(space: ConfigSpace | None) -> ConfigSpace:
            return rivals(case.entry, space, islice(neighbours(space, case.entry.config), most_neighbours))

        # Every config is a finalist: a screening alone says little of how much slower a config is. It lasts
        # milliseconds, and a finalist's time, with which it would be compared, was taken seconds later.
        effort = replace(Effort.named("quick"), search="exhaustive", finalists=2 + most_neighbours)
        result = self.result(case, beside, effort)
        return result if isinstance(result, Verdict) else judged(case.entry, result, most_loss)

    def result(
        self, case: BoundEntry, choose: Choose, effort: Effort, first: Sequence[Config] = ()
    ) -> TuningResult | Verdict:
        """The result of a tune, or the verdict of an entry for which there is none.

        It tries the configs that `choose` makes of the entry's space, which is None for a kernel without one, those of
        `first` first, of which the first one is in use. `effort` is that of a tune for which the options name none.
        """
        effort = Effort.named(self.options.effort or effort)
        options = replace(self.options, effort=effort, search=self.options.search or effort.search, transfer=False)
        try:
            with tempfile.TemporaryDirectory(prefix="triton-ops-verify-") as folder:
                result = self._result(case, choose, replace(options, cache_dir=folder), first)
            return result.uninterrupted()  # Ctrl-C ends it with KeyboardInterrupt, even if configs have run by then
        except (TuningFailedError, SpaceError, KernelTypeError, TargetError, UnsupportedDtypeError) as error:
            if isinstance(error, TuningFailedError) and (made_up := unknown_values(case)):
                reason = f"no config runs with values that are made up for {', '.join(made_up)}: {error.message}"
                return Verdict(entry=case.entry, outcome="not measured", reason=reason)
            return Verdict(entry=case.entry, outcome="invalid", reason=str(error))
        except ShapeMismatchError as error:  # such as more memory than there is, at the upper end of a range
            return Verdict(entry=case.entry, outcome="not measured", reason=str(error))

    def _result(self, case: BoundEntry, choose: Choose, options: TuneOptions, first: Sequence[Config]) -> TuningResult:
        device = self.device or ("cpu" if case.device.kind == "cpu" else "cuda")
        how: dict[str, Any] = {"listener": self.listener, "first": first}
        if case.specs is None:
            call = self._call(case, device)
            result: TuningResult = call.tuned(options, choose(call.space), **how)
            return result
        cold = case.entry.measured is None or case.entry.measured.cache_state == "cold"
        arguments: dict[str, Any] = case.by_shape or {"kwargs": TensorSpec.with_tensors(case.specs, device)}
        problem = TuneProblem(target=case.target, space=choose(case.space), cold=cold, **arguments)
        return RequestedTune(request=problem.measurable(device, options.seed), options=options, **how).result()

    def _call(self, case: BoundEntry, device: str) -> Any:
        """The call that the entry of a decorated kernel notes, with new tensors."""
        entry, noted_call = case.entry, case.entry.call
        assert isinstance(noted_call, NotedCall)  # `_why_not_measured` has looked
        # The names of `dispatch` import Triton, as the kernel's own module has.
        call = dispatch.NotedOperation.made_again(self.targets.decorated(entry.kernel), noted_call, device)
        if (other := entry.why_not(call.asked)) is not None:
            raise SpaceError(
                f"the call that is noted is of another problem: {other}", hint="tune it again, and lock it"
            )
        if (reason := call.space.why_not(entry.config)) is not None:
            raise SpaceError(
                f"its config ({entry.config}) cannot be taken for its call: {reason}", hint="tune it again"
            )
        return call


def trial_of(result: TuningResult, config: Config) -> Trial | None:
    """The trial of a config, or of another one with the same code that was measured for both; None without one."""
    trial = next((each for each in result.trials if each.config == config), None)
    return trial and next((each for each in result.trials if each.config == trial.same_code_as), trial)


def judged(entry: LockEntry, result: TuningResult, most_loss: float = 0.0) -> Verdict:
    """The verdict of an entry by a tune that should have tried its config."""
    own = trial_of(result, entry.config)
    if own is None:
        why = f"its config ({entry.config}) was not reached: the search ended by {result.stopped}"
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
