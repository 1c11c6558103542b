"""`verify`: does every entry of a lockfile still hold? Checked without a GPU, and measured where the device is here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from triton_ops.buckets import extents_of
from triton_ops.cache import LockEntry, Lockfile
from triton_ops.cache.key import device_facts
from triton_ops.compile_pool.pool import TIMEOUT_S
from triton_ops.exceptions import (
    KernelTypeError,
    NotLoadedError,
    ShapeMismatchError,
    SpaceError,
    TargetError,
    TritonKernelError,
    TuningFailedError,
    UnsupportedDtypeError,
)
from triton_ops.hardware import DeviceSpec
from triton_ops.serving.again import measured_again, unknown_values, why_not_again
from triton_ops.serving.entries import UNREACHABLE, Bound, bound
from triton_ops.serving.programs import Program, compiled, programs_of
from triton_ops.serving.targets import Targets
from triton_ops.space import Config
from triton_ops.trial import Trial, TuningResult

Outcome = Literal["ok", "unreachable", "invalid", "slower", "not loaded", "not measured"]
FAILURES = ("unreachable", "invalid", "slower")
_NEIGHBOURS = 8


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one entry.

    Attributes:
        entry: The entry.
        outcome: `ok`; `unreachable`: no launch can find it; `invalid`: its config is refused, does not compile, fails
            or computes the wrong thing; `slower`: than the default or a neighbour, beyond noise; `not loaded`: only
            the file names its kernel, so that nothing was checked; `not measured`: all that can be checked without its
            device is right.
        reason: Why, in one sentence; empty for `ok`.
        result: The result of the measurement; None if nothing was measured.
        at: The extents that differ from the entry's own problem, such as `M=20`, where it was measured elsewhere in its
            ranges; empty for its own problem.
        regret: How much longer the entry's config takes than the fastest that was measured, relative; 0 for a tie, and
            None if nothing was measured.
    """

    entry: LockEntry
    outcome: Outcome
    reason: str = ""
    result: TuningResult | None = None
    at: str = ""
    regret: float | None = None

    @property
    def failed(self) -> bool:
        """Whether the entry should not be served."""
        return self.outcome in FAILURES


def verify(
    lock: Lockfile,
    targets: Targets,
    here: DeviceSpec | None,
    *,
    device: str | None = None,
    kernel: str | None = None,
    most_neighbours: int = _NEIGHBOURS,
    held_out: int = 0,
    jobs: int | None = None,
    timeout_s: float = TIMEOUT_S,
    **options: Any,
) -> Iterator[Verdict]:
    """Check each entry in turn: found, reachable, in its space, taken by its kernel, compiled, right, and fast.

    A measurement is a tune among the entry's config, the default one and the neighbours in the space, with all that a
    tune checks; an entry passes if nothing among them is faster beyond noise. Nothing is remembered.

    Args:
        lock: The lockfile.
        targets: The kernels that it names.
        here: The device on which entries are measured; None measures none.
        device: The torch name of that device.
        kernel: Only entries of this kernel; None takes all.
        most_neighbours: How many neighbours are measured at most, those next to the config first.
        held_out: At how many further values in each of its ranges an entry is measured as well.
        jobs: Compiling processes; None is one for each CPU.
        timeout_s: Seconds for the compilation of one config.
        options: Further options of `tune`, such as `effort` and `seed`.
    """
    entries = [(entry, _checked(entry, found, lock, here)) for entry, found in bound(lock, targets, kernel)]
    programs = [program for _, (_, made) in entries for program in made]
    refused = {
        program: f"{result.status} for {program.ahead.target.arch}: {result.reason}"
        for program, result in compiled(programs, jobs, timeout_s)
        if not result.launchable
    }
    for entry, (found, made) in entries:
        reason = next((refused[program] for program in made if program in refused), None)
        if isinstance(found, Verdict):
            yield found
        elif reason is not None:
            yield Verdict(entry=entry, outcome="invalid", reason=reason)
        elif (elsewhere := _why_not_measured(found, here)) is not None:
            yield Verdict(entry=entry, outcome="not measured", reason=elsewhere)
        else:
            yield _measured(found, targets, device, most_neighbours, options)
            for place in _held_out(found, held_out):
                there = _measured_there(place, targets, device, most_neighbours, options)
                yield replace(there, entry=entry, at=place.extents_text(found))


def _held_out(found: Bound, count: int) -> Iterator[Bound]:
    """The entry at `count` values of each of its ranges, evenly by their ratios, and never at its own."""
    own = extents_of(found.entry.problem)
    for each in found.entry.ranges:
        low, ratio = max(each.low, 1), each.high / max(each.low, 1)
        values = {round(low * ratio ** (step / max(count - 1, 1))): None for step in range(count)}
        for value in values:
            if value != own[each.extents[0]]:
                yield found.at(dict.fromkeys(each.extents, value))


def _checked(
    entry: LockEntry, found: Bound | TritonKernelError, lock: Lockfile, here: DeviceSpec | None
) -> tuple[Bound | Verdict, list[Program]]:
    """The verdict of an entry that cannot be right; else the entry with the programs that must compile."""
    if isinstance(found, TritonKernelError):
        missing: Outcome = "not loaded" if isinstance(found, NotLoadedError) else "unreachable"
        return Verdict(entry=entry, outcome=missing, reason=str(found)), []
    reason = found.why_invalid(lock)
    if reason is not None:
        outcome: Outcome = "unreachable" if reason.startswith(UNREACHABLE) else "invalid"
        return Verdict(entry=entry, outcome=outcome, reason=reason), []
    try:
        return found, programs_of(found, here if _of_device(found, here) else None)
    except TritonKernelError as error:
        return Verdict(entry=entry, outcome="invalid", reason=str(error)), []


def _of_device(found: Bound, here: DeviceSpec | None) -> bool:
    return here is not None and found.device.why_not(device_facts(here)) is None


def _why_not_measured(found: Bound, here: DeviceSpec | None) -> str | None:
    if here is None or not _of_device(found, here):
        return "nothing is measured" if here is None else f"its device is not here: {here.name} is"
    return why_not_again(found)


def _measured_there(
    place: Bound, targets: Targets, device: str | None, most_neighbours: int, options: dict[str, Any]
) -> Verdict:
    """The verdict at a held-out size."""
    if place.specs is None:
        reason = "a decorated kernel is measured at the call that was noted, whose grid is known"
        return Verdict(entry=place.entry, outcome="not measured", reason=reason)
    return _measured(place, targets, device, most_neighbours, options)


def _measured(
    found: Bound, targets: Targets, device: str | None, most_neighbours: int, options: dict[str, Any]
) -> Verdict:
    place = device or ("cpu" if found.device.kind == "cpu" else "cuda")
    try:
        result = measured_again(found, targets, place, most_neighbours, options)
    except TuningFailedError as error:
        if made_up := unknown_values(found):
            reason = f"no config runs with values that are made up for {', '.join(made_up)}: {error.message}"
            return Verdict(entry=found.entry, outcome="not measured", reason=reason)
        return Verdict(entry=found.entry, outcome="invalid", reason=str(error))
    except (SpaceError, KernelTypeError, TargetError, UnsupportedDtypeError) as error:
        return Verdict(entry=found.entry, outcome="invalid", reason=str(error))
    except ShapeMismatchError as error:  # such as more memory than there is, at the upper end of a range
        return Verdict(entry=found.entry, outcome="not measured", reason=str(error))
    return _judged(found.entry, result)


def _judged(entry: LockEntry, result: TuningResult) -> Verdict:
    trial = next((each for each in result.trials if each.config == entry.config), None)
    if trial is None:
        why = f"its config ({entry.config}) was not reached: the search ended by {result.stopped}"
        return Verdict(entry=entry, outcome="not measured", reason=why, result=result)
    if not trial.ok:
        why = f"its config ({entry.config}) fails: {trial.status}: {trial.error}"
        return Verdict(entry=entry, outcome="invalid", reason=why, result=result)
    rival = next(each for each in result.trials if each.config == Config(result.best_config))
    own = next((each for each in result.trials if each.config == trial.same_code_as), trial)
    if own.config == rival.config or own.config in result.ties:
        return Verdict(entry=entry, outcome="ok", result=result, regret=0.0)
    default = result.default
    what = "the default" if default is not None and rival.config == default.config else f"({rival.config})"
    slower = _slower(own, rival)
    reason = f"{what} is faster by {slower:.1%}: {rival.median_ms:.4g} ms against {own.median_ms:.4g} ms"
    return Verdict(entry=entry, outcome="slower", reason=reason, result=result, regret=slower)


def _slower(own: Trial, rival: Trial) -> float:
    """How much longer a config takes, by the last comparison; one that was left out of it by its relative screening."""
    return own.rank / rival.rank - 1 if own.final is None else own.median_ms / rival.median_ms - 1
