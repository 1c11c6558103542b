"""Where candidates are tried: in this process, or in one that may die of them.

Both kinds answer the same questions, so the search does not know which one it has.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from triton_ops._optional import require
from triton_ops.backend import Arguments, Kernel, Operation, one_line
from triton_ops.evaluation.candidate import Bench
from triton_ops.evaluation.finals import Outcome, compare_finalists
from triton_ops.evaluation.ragged import ragged_shape
from triton_ops.evaluation.tolerance import reduction_length
from triton_ops.evaluation.verify import Bed, Case, Verifier
from triton_ops.exceptions import ShapeMismatchError, TargetError, TritonKernelError
from triton_ops.hardware import DeviceSpec
from triton_ops.measure import choose_timer, timer_of
from triton_ops.measure.guard import guard_for
from triton_ops.space import Config
from triton_ops.task.effort import Effort
from triton_ops.task.task import Copies, Dummies, Task, device_lost, sets_for
from triton_ops.trial import Problem, Status, Trial, Work

RACE = "race"
"""What is going on, as `tell` is told it, during a round of the last comparison."""
_BED_COPIES = 3  # of the arguments: themselves, what protects them, and the right results
_MEMORY_SHARE = 0.25  # of what is free that a second set of data may take


@dataclass(frozen=True)
class Assignment:
    """All that a station needs to know of a task; can be sent to another process.

    Attributes:
        kernel: What is tuned.
        problem: For what.
        device: What it runs on.
        device_name: Its torch name.
        arguments: Makes private arguments.
        reference: Gives the right result; None if there is none.
        work: The least the problem makes the device do; None if not known.
        shape: Extents of an operation's problem, as asked for; None for the caller's own arguments.
        dtype: Its dtype, as asked for.
        effort: How long first looks may be.
        cold: Whether L2 is to hold nothing of the kernel's data.
        base: A config that has worked before: what others are compared with.
        mode: The mode of times that were taken before; None leaves the choice.
        odd: Whether to check results on odd extents too.
    """

    kernel: Kernel
    problem: Problem
    device: DeviceSpec
    device_name: str
    arguments: Dummies | Copies
    reference: Callable[..., Any] | None
    work: Work | None
    shape: tuple[int, ...] | None
    dtype: str | None
    effort: Effort
    cold: bool = True
    base: Config | None = None
    mode: str | None = None
    odd: bool = True


def assignment_of(task: Task, effort: Effort, cold: bool, base: Config | None) -> Assignment:
    """What a station needs of a task."""
    shape = dtype = None
    if task.named is not None:
        shape, dtype = task.named.shape, task.named.dtype
        shape = task.named.operation.full_shape(shape)
    return Assignment(
        task.kernel, task.problem, task.device, task.device_name, task.arguments, task.reference, task.work,
        shape, dtype, replace(effort, search=effort.search_name), cold, base,
    )  # fmt: skip


@dataclass(frozen=True)
class Final:
    """The last comparison, asked for.

    Attributes:
        trials: What the search tried.
        default: The default config.
        incumbents: Configs in use until now.
        seed: Draws the orders.
    """

    trials: tuple[Trial, ...]
    default: Config
    incumbents: tuple[Config, ...]
    seed: int


@dataclass(frozen=True)
class Facts:
    """What a station has come to know.

    Attributes:
        mode: The mode in which it times; None before the first config has worked.
        base: The config that others are compared with; None before it.
        against: What results are compared with, in words.
        lost: Why the device cannot be used by this station any more; None if it can.
        place: Where candidates run, in words.
        notes: What the caller should know of how it was done.
        waited_s: Seconds in which nothing could be tried because nothing was compiled yet.
    """

    mode: str | None = None
    base: Config | None = None
    against: str = ""
    lost: str | None = None
    place: str = ""
    notes: tuple[str, ...] = ()
    waited_s: float = 0.0


class Station(Protocol):
    """Tries configs of one task, one after another."""

    @property
    def facts(self) -> Facts:
        """What is known until now."""

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """The finished trial of `config`; `best` is the best so far, to cut a hopeless one short."""

    def finals(self, final: Final) -> Outcome:
        """The last comparison."""

    def close(self) -> None:
        """Give back everything; further calls do nothing."""


class Inline:
    """A station in this process: for debugging, and for callables that only exist here.

    A candidate that crashes or hangs takes the process with it.

    Args:
        assignment: What to work on.
        tell: Told what begins, as `Bench.tell`.
        place: Why it is inline, in words.

    Raises:
        ShapeMismatchError: The arguments cannot be made on the device.
        TargetError: The reference raises.
        KernelTypeError: The reference does not fit the kernel.
    """

    def __init__(
        self, assignment: Assignment, tell: Callable[[str], None] = lambda _: None, place: str = "inline"
    ) -> None:
        self._given = assignment
        self._tell = tell
        self._place = place
        self._lost: str | None = None
        self._bench = _bench(assignment, tell)
        self._started = assignment.base is None

    @property
    def facts(self) -> Facts:
        """What is known until now."""
        bench = self._bench
        mode = bench.timer.mode if bench.timer is not None else self._given.mode
        notes = () if not bench.verifier.restores else ("it writes its inputs: they are put back before every launch",)
        return Facts(mode, bench.reference, bench.verifier.against, self._lost, self._place, notes)

    def attempt(self, config: Config, best: Trial | None) -> Trial:
        """The finished trial of `config`."""
        self._start(config)
        trial = self._bench.attempt(config, best)
        if trial.status in (Status.RUNTIME, Status.RESOURCES):
            self._lost = device_lost(self._given.device, self._given.device_name)
            if self._lost is None and self._given.device.kind != "cpu":
                require("torch", "freeing memory").cuda.empty_cache()  # of what did not fit
        return trial

    def finals(self, final: Final) -> Outcome:
        """The last comparison, watched by a guard of its own."""
        self._start(None)
        guard = guard_for(self._given.device_name)

        def counts() -> bool:
            self._tell(RACE)
            return guard.round_ok()

        trials = {trial.config: trial for trial in final.trials}
        found = compare_finalists(
            self._bench, trials, self._given.effort, final.default, final.incumbents, final.seed, counts
        )
        return replace(found, guard=guard.summary())

    def close(self) -> None:
        """Nothing to give back."""

    def _start(self, config: Config | None) -> None:
        if not self._started and self._given.base is not None and config != self._given.base:
            self._bench.start_from(self._given.base)
        self._started = True


def _bench(given: Assignment, tell: Callable[[str], None]) -> Bench:
    verifier = _verifier(given, tell)

    def choose(launch: Any, capture: bool) -> Any:
        if given.mode is not None and capture:
            return timer_of(given.mode, given.device_name)
        return choose_timer(given.device, given.device_name, launch, cold=given.cold, capture=capture)

    def copies(arguments: Arguments) -> int:
        return sets_for(given.device, given.device_name, arguments) if given.cold else 1

    bench = Bench(given.kernel, verifier, given.effort.screen, choose, copies, tell=tell)
    verifier.tell = bench.say
    return bench


def _verifier(given: Assignment, tell: Callable[[str], None]) -> Verifier:
    bed = Bed(_made(given, given.arguments), given.kernel.outputs)
    cases = [Case(bed, 0), Case(_other_data(given, bed) or bed, 1)]
    reduction = reduction_length(given.problem, given.kernel.outputs, given.work)
    try:
        return Verifier(given.kernel, cases, given.reference, reduction, _ragged(given), tell=tell)
    except TritonKernelError:
        raise
    except Exception as error:
        raise TargetError(
            f"the reference of {given.problem} raised {one_line(error)}", hint="call it with the same arguments to try"
        ) from error


def _made(given: Assignment, arguments: Callable[[], Arguments]) -> Arguments:
    try:
        return arguments()
    except (MemoryError, RuntimeError) as error:
        raise ShapeMismatchError(
            f"the arguments of {given.problem} cannot be made on {given.device_name}: {one_line(error)}",
            hint="take a smaller problem",
        ) from error


def _other_data(given: Assignment, bed: Bed) -> Bed | None:
    """A second set of data; None for the caller's own arguments, which only the caller can vary, or for lack of room.

    What an index, a mask or a length may be is known to who made it.
    """
    source = given.arguments
    needed = _BED_COPIES * sum(tensor.untyped_storage().nbytes() for tensor in bed.arguments.tensors())
    if isinstance(source, Copies) or needed > _MEMORY_SHARE * _free_bytes(given):
        return None
    return Bed(replace(source, seed=source.seed + 1)(), given.kernel.outputs)


def _ragged(given: Assignment) -> Case | None:
    """The check on odd extents; for problems that an operation makes, and configs that its space holds for them."""
    source = given.arguments
    if not given.odd or given.shape is None or isinstance(source, Copies):
        return None
    operation: Operation = source.operation
    shape = ragged_shape(operation, given.shape, given.dtype)
    if shape is None:
        return None
    try:
        problem = operation.problem(shape, given.dtype)
        space = operation.space_for(problem)
        bed = Bed(replace(source, problem=problem)(), given.kernel.outputs)
    except Exception:  # noqa: BLE001 - an operation that does not take the shape after all
        return None
    label = f"at {'x'.join(map(str, shape))}, "
    return Case(bed, 0, label, holds=lambda config: space.why_not(config) is None)


def _free_bytes(given: Assignment) -> int:
    if given.device.kind != "cpu":
        return int(require("torch", "asking the GPU").cuda.mem_get_info(given.device_name)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # no Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
