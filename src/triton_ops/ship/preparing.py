"""`prepare`: compile and load every kernel that a lockfile can select, before anything is served."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from triton_ops.backend import CandidateError, Compiler, CompilesAhead, Executable
from triton_ops.compilation import CompilePool
from triton_ops.device import DeviceSpec, Target, TorchDevice, probe
from triton_ops.exceptions import DeviceError, NotLoadedError, TritonKernelError
from triton_ops.records import LockEntry, Lockfile
from triton_ops.ship.targets import UNREACHABLE, BoundEntry, Targets, bound, target_for
from triton_ops.space import Config
from triton_ops.values import Compiled, Key


@dataclass(frozen=True)
class EntryProgram:
    """One config of one kernel for one kind of arguments."""

    kind: str  # equal for programs of one kernel whose arguments are of one kind
    config: Config
    compiler: Compiler = field(compare=False)  # for arguments of the kind
    target: Target = field(compare=False)
    entry: BoundEntry = field(compare=False)  # one that selects it
    load: Callable[[Config], Executable] = field(compare=False)
    """Load a config on the current device, so that its first launch neither compiles nor loads."""


def checked(
    answer: BoundEntry | TritonKernelError, lock: Lockfile, here: DeviceSpec | None
) -> tuple[Literal["ok", "unreachable", "invalid", "not loaded"], str, list[EntryProgram]]:
    """The outcome of an entry that a launch may get or not, why not, and the programs of all launches that do."""
    if isinstance(answer, TritonKernelError):
        return "not loaded" if isinstance(answer, NotLoadedError) else "unreachable", str(answer), []
    try:
        if (reason := answer.why_invalid(lock)) is not None:
            return "unreachable" if reason.startswith(UNREACHABLE) else "invalid", reason, []
        if answer.device.kind == "cpu" or not isinstance(answer.kernel, CompilesAhead):
            return "ok", "", []
        target, config = target_for(answer.device, here if answer.is_on(here) else None), answer.entry.config
        return "ok", "", [
            EntryProgram(repr((answer.device.alias, compiler.kind)), config, compiler, target, answer, load)
            for compiler, load in answer.compilers(target)
        ]  # fmt: skip
    except TritonKernelError as error:
        return "invalid", str(error), []


def compiled(
    programs: Iterable[EntryProgram], jobs: int | None = None, timeout_s: float = CompilePool.TIMEOUT_S
) -> Iterator[tuple[EntryProgram, Compiled]]:
    """Compile each program once; those of one kernel and one kind of arguments are compiled side by side."""
    groups: dict[str, list[EntryProgram]] = {}
    # Programs of several entries are equal where they compile to the same.
    for program in dict.fromkeys(programs):
        groups.setdefault(program.kind, []).append(program)
    for group in groups.values():
        workers = min(len(group), jobs or CompilePool.usual_workers())
        with CompilePool(group[0].compiler, workers=workers, timeout_s=timeout_s, reuse=True) as pool:
            futures = [pool.submit(program.config, anyway=True) for program in group]
            yield from ((program, future.result()) for program, future in zip(group, futures, strict=True))


@dataclass(frozen=True)
class Prepared:
    """The result of `prepare`.

    Attributes:
        compiled: Programs that are in Triton's disk cache now, each for one config and one kind of arguments.
        loaded: Those of them that are loaded in this process: their first launch neither compiles nor loads.
        seconds: Wall seconds of it all.
        failed: Entries that could not be prepared, each with the reason.
        nothing_to_compile: Entries of kernels that have no compiler, such as Python functions.
        elsewhere: Entries of other devices.
    """

    compiled: int
    loaded: int
    seconds: float
    _: KW_ONLY
    failed: tuple[tuple[LockEntry, str], ...] = ()
    nothing_to_compile: int = 0
    elsewhere: int = 0

    def __str__(self) -> str:
        more = [
            f"{count} {what}"
            for count, what in (
                (self.nothing_to_compile, "with nothing to compile"), (self.elsewhere, "of other devices"),
                (len(self.failed), "failed"),
            )
            if count
        ]  # fmt: skip
        return ", ".join([f"{self.compiled} compiled, {self.loaded} loaded in {self.seconds:.1f} s", *more])


def prepare(
    lockfile: Lockfile | str | os.PathLike[str],
    *,
    targets: Iterable[Any] = (),
    device: str | None = None,
    alias: str | None = None,
    jobs: int | None = None,
    timeout_s: float = CompilePool.TIMEOUT_S,
) -> Prepared:
    """Compile and load every kernel that the lockfile can select on a device, so that no launch from it compiles.

    Of an entry with ranges, a kernel is compiled for each kind of extents that Triton compiles anew for. Kernels are
    compiled side by side into Triton's disk cache by processes without a GPU, and then loaded into this process.

    Args:
        lockfile: The lockfile, or its path.
        targets: The kernels that it names: operations, decorated kernels, functions. Shipped kernels, and operations
            and decorated kernels of modules that are imported already, need not be given; nothing is imported.
        device: `cuda` or `cuda:N`; None is the current GPU, else the CPU. A process that uses several GPUs prepares
            each: programs are loaded per GPU, and the second time they are found in the disk cache.
        alias: The device's alias in the lockfile, where only Triton's disk cache is filled, as in the build of an image
            on a machine without the GPU; None prepares for the device that is here, and loads.
        jobs: Processes that compile; None is one for each CPU.
        timeout_s: The most seconds to compile one config, which has failed after them.

    Returns:
        What was compiled and loaded, how long it took, and what failed with its reason.

    Raises:
        LockfileError: The file is refused.
        DeviceError: `device` cannot be used, or no entry has the alias.
        TargetError: Two targets have one name.

    Cost: a second or two for each kernel whose binaries are not in the disk cache, and a millisecond for one that is.
    """
    start_s = time.perf_counter()
    lock = lockfile if isinstance(lockfile, Lockfile) else Lockfile.read(lockfile)
    here = probe(device) if alias is None else None
    if alias is not None and alias not in {one.alias for one in lock.devices}:
        known = ", ".join(one.alias for one in lock.devices) or "none"
        raise DeviceError(f"the lockfile has no device {alias!r}; it has {known}", known, alias, hint="use one of them")
    failures: list[tuple[LockEntry, str]] = []
    facts = None if here is None else Key.facts_of(here)
    aliases = {one.alias for one in lock.devices if (one.why_not(facts) is None if facts else one.alias == alias)}
    mine = Lockfile(lock.devices, tuple(entry for entry in lock.entries if entry.device in aliases))
    plan: list[list[EntryProgram]] = []  # of each entry that can be what a launch gets
    for entry, answer in bound(mine, Targets(targets)):
        outcome, reason, programs = checked(answer, mine, here)
        if outcome == "ok":
            plan.append(programs)
        else:
            failures.append((entry, reason))
    loadable: list[EntryProgram] = []
    for program, result in compiled((one for programs in plan for one in programs), jobs, timeout_s):
        if result.launchable:
            loadable.append(program)
        else:
            failures.append((program.entry.entry, f"{result.status}: {result.reason}"))
    count = 0
    with TorchDevice(device or "cuda").current():
        for program in loadable if here is not None else ():
            try:
                program.load(program.config)
                count += 1
            except (CandidateError, TritonKernelError) as error:  # noqa: PERF203 - one that fails stops no other
                failures.append((program.entry.entry, str(error)))
    return Prepared(
        len(loadable),
        count,
        time.perf_counter() - start_s,
        failed=tuple(failures),
        nothing_to_compile=sum(not programs for programs in plan),
        elsewhere=len(lock.entries) - len(mine.entries),
    )
