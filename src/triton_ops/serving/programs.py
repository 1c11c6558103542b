"""The programs that the entries of a lockfile select, compiled side by side into Triton's disk cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from triton_ops._cpus import usable_cpus
from triton_ops.backend.offline import AheadOfTime
from triton_ops.compile_pool.pool import CompilePool
from triton_ops.hardware import DeviceSpec
from triton_ops.serving.entries import Bound, target_for
from triton_ops.space import Config
from triton_ops.trial import Compiled


@dataclass(frozen=True)
class Program:
    """One config of one kernel for one kind of arguments.

    Attributes:
        kind: Equal for programs of one kernel whose arguments are of one kind.
        config: The config.
        ahead: The kernel with arguments of the kind.
        found: An entry that selects it.
    """

    kind: str
    config: Config
    ahead: AheadOfTime = field(compare=False)
    found: Bound = field(compare=False)

    def load(self) -> None:
        """Load the program on the current device, so that its first launch in this process neither compiles nor loads.

        Raises:
            CandidateError: It cannot be compiled, or the device cannot hold it.
            CacheError: The compiler cannot write its files.
        """
        self.found.kernel.compile(self.config.with_members(self.ahead.members), self.ahead.arguments)


def programs_of(found: Bound, here: DeviceSpec | None) -> list[Program]:
    """The programs of every launch that an entry answers; none where there is nothing to compile.

    Raises:
        KernelTypeError: The arguments cannot be made.
        DeviceError: The architecture of the entry's device is not known.
    """
    if found.device.kind == "cpu" or found.ahead is None:
        return []
    target = target_for(found.device, here)
    return [
        Program(repr((found.device.alias, *kind)), found.entry.config, ahead, found)
        for ahead, kind in found.programs(target)
    ]


def compiled(programs: Iterable[Program], jobs: int | None, timeout_s: float) -> Iterator[tuple[Program, Compiled]]:
    """Compile each program once; those of one kernel and one kind of arguments are compiled side by side.

    Raises:
        TargetError: The kernel cannot be sent to another process.
        CacheError: The compiler cannot write its files.
    """
    groups: dict[str, list[Program]] = {}
    for program in dict.fromkeys(programs):
        groups.setdefault(program.kind, []).append(program)
    for group in groups.values():
        workers = min(len(group), jobs or usable_cpus())
        with CompilePool(group[0].ahead, workers=workers, timeout_s=timeout_s) as pool:
            futures = [pool.submit(program.config, anyway=True) for program in group]
            yield from ((program, future.result()) for program, future in zip(group, futures, strict=True))
