"""`triton-ops compile`: compile every config of a space for a GPU that need not be present, and show the results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Annotated, Any

import typer
from rich.progress import track

from triton_ops.backend import AheadOfTime, Arguments, CompilesAhead, Operation
from triton_ops.cli.console import (
    Dtype,
    Json,
    Space,
    TargetName,
    Verbose,
    bold,
    only_data_on_stdout,
    paragraph,
    say,
    say_json,
    table,
    tell,
    tell_failures,
    width,
)
from triton_ops.cli.problem import check_filled, operation_of, parse_shapes, parse_space, tell_left_out
from triton_ops.cli.target import load_target
from triton_ops.cli.terminal import stderr
from triton_ops.compilation import TIMEOUT_S, CompilePool
from triton_ops.device import Target, named_target, probe, target_of
from triton_ops.exceptions import SettingsError, TargetError
from triton_ops.space import ConfigSpace
from triton_ops.values import Compiled, Problem, Resources, Status, dtype_name


def side_by_side(
    problem: str, by_arch: Mapping[str, Sequence[Compiled]], elapsed_s: float, columns: int | None
) -> list[str]:
    """The lines of a table with a column for each architecture, and of what differs between them.

    Args:
        problem: The problem, in words.
        by_arch: What became of the configs, in one order, by architecture.
        elapsed_s: Seconds that compiling took.
        columns: The columns of a line; None is no limit.
    """
    rows = [[*map(_cell, each), str(each[0].config)] for each in zip(*by_arch.values(), strict=True)]
    header, *lines = table((*by_arch, "config"), rows, columns)
    head = f"{problem} for {', '.join(by_arch)}: registers and spilled bytes per thread"
    said = [head, bold(header), *lines]
    for arch, results in by_arch.items():
        said += paragraph("", _compile_targets_summary(arch, results), columns)
    for text in _differences(by_arch):
        said += paragraph("", text, columns)
    return [*said, f"{len(rows)} configs on {len(by_arch)} targets, {elapsed_s:.1f} s"]


def _cell(result: Compiled) -> str:
    registers = result.resources.registers if result.resources else None
    if not result.launchable or registers is None:
        return str(result.status)
    return f"{registers}, spills {_spills(result):,}" if _spills(result) else f"{registers}"


def _spills(result: Compiled) -> int:
    """Spilled bytes per thread of what can be launched."""
    return (result.resources.spill_bytes or 0) if result.launchable and result.resources else 0


def _clean(result: Compiled) -> bool:
    return result.launchable and result.resources is not None and not _spills(result)


def _compile_targets_summary(arch: str, results: Sequence[Compiled]) -> str:
    clean, spilling = sum(map(_clean, results)), sum(_spills(result) > 0 for result in results)
    return f"{arch}: {clean} without spills, {spilling} spill, {len(results) - clean - spilling} cannot run"


def _differences(by_arch: Mapping[str, Sequence[Compiled]]) -> list[str]:
    """For each pair of architectures how many configs are good on the one and not on the other."""
    found = []
    for arch, results in by_arch.items():
        for other, its in by_arch.items():
            pairs = [(a, b) for a, b in zip(results, its, strict=True) if _clean(a) and not _clean(b)]
            spilling = sum(_spills(b) > 0 for _, b in pairs)
            if pairs:
                found.append(
                    f"of those without spills on {arch}, {spilling} spill on {other}, and {len(pairs) - spilling} "
                    "cannot run there"
                )
    return found


_HEADER = ("status", "registers", "spilled", "shared", "mma", "load", "s", "config")
_NUMBERS = ("registers", "spilled", "shared", "load", "s")
_ORDER = [
    Status.OK, Status.DEFERRED, Status.RESOURCES, Status.CONSTRAINT, Status.COMPILE, Status.TIMEOUT, Status.CRASH,
]  # fmt: skip
_NONE_COMPILED = 1


def compile_command(
    target: TargetName,
    archs: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="ARCH",
            help="Such as sm_80, sm_90, gfx942; default the GPU. Repeat it to compare.",
        ),
    ] = None,
    shape: Annotated[
        str | None, typer.Option("--shape", metavar="MxN", help="The problem; default the operation's first.")
    ] = None,
    dtype: Dtype = None,
    space: Space = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", help="Processes; default one for each CPU.")
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="S", help="Most seconds for one config.")
    ] = TIMEOUT_S,
    as_json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback has acted
) -> int:
    """Compile every config of TARGET and show what it takes: registers, spills, shared memory.

    For several architectures it shows them side by side. Needs no GPU and no driver. What was compiled is in Triton's
    disk cache.
    """
    _check(jobs, timeout_s, dtype)
    goals = list({goal.arch: goal for goal in map(named_target, archs or [])}.values()) or [target_of(probe())]
    shapes, values = parse_shapes(shape), parse_space(space or [])
    with only_data_on_stdout():
        found = _operation(target)
        if shape is None:
            shapes, dtype = _first_problem(found, dtype)
        operation, narrowed, extents, chosen = operation_of(found, values, shapes, dtype)
        problem = operation.problem(extents, chosen)
        if shape is None:
            tell(f"no --shape: compiling for {problem.label}")
        allowed = narrowed or operation.space_for(problem)
        check_filled(allowed, values)
        begun = time.perf_counter()
        found_for = [_compiled(operation, problem, allowed, goal, jobs, timeout_s) for goal in goals]
        elapsed_s = time.perf_counter() - begun
    tell_left_out(allowed, values, [result.config for result in found_for[0]])
    by_arch = {goal.arch: results for goal, results in zip(goals, found_for, strict=True)}
    tell_failures(_failures(by_arch))
    if as_json:
        say_json([_as_json(result, arch) for arch, results in by_arch.items() for result in results])
    elif len(goals) == 1:
        say(*_report(problem, goals[0], found_for[0], elapsed_s, width()))
    else:
        say(*side_by_side(str(problem), by_arch, elapsed_s, width()))
    return 0 if any(result.launchable for results in found_for for result in results) else _NONE_COMPILED


def _failures(by_arch: Mapping[str, Sequence[Compiled]]) -> Iterator[tuple[str, str, str]]:
    """What could not be launched, each with its reason and the compiler's trace."""
    for arch, results in by_arch.items():
        where = f"{arch} " if len(by_arch) > 1 else ""
        for result in results:
            if not result.launchable:
                yield f"{where}{result.config}", f"{result.status}: {result.reason}", result.trace


def _check(jobs: int | None, timeout_s: float, dtype: str | None) -> None:
    if jobs is not None and jobs < 1:
        raise SettingsError(f"--jobs is {jobs}; it must be 1 or more", hint="leave it out for one per CPU")
    if not timeout_s > 0:
        raise SettingsError(f"--timeout is {timeout_s:g}; it must be over 0", hint=f"for example --timeout {TIMEOUT_S}")
    if dtype is not None:
        dtype_name(dtype)


def _operation(text: str) -> Operation:
    found = load_target(text)
    if not isinstance(found, Operation) or _ahead(found) is None:
        raise TargetError(
            f"{text} is no operation with a Triton kernel, so there is nothing to compile",
            hint="name an Operation that holds a TritonKernel",
        )
    return found


def _ahead(operation: Operation) -> Any:
    """The kernel of an operation in the form that is compiled without a GPU; None if there is none."""
    return operation.kernel.compiled_ahead if isinstance(operation.kernel, CompilesAhead) else None


def _first_problem(operation: Operation, dtype: str | None) -> tuple[list[tuple[int, ...]], str | None]:
    """Shape and dtype of the operation's first named problem, preferably of this dtype; no shape if none is named."""
    wanted = None if dtype is None else dtype_name(dtype)
    named = sorted(operation.problems.values(), key=lambda problem: wanted not in (None, problem[1]))
    if not named:
        return [], dtype
    extents, its_dtype = named[0]
    return [extents], dtype or its_dtype


def _compiled(
    operation: Operation, problem: Problem, space: ConfigSpace, target: Target, jobs: int | None, timeout_s: float
) -> list[Compiled]:
    arguments = Arguments(keyword=dict(problem.arguments))
    operation.kernel.check(space.tunables, arguments)
    ahead = AheadOfTime(_ahead(operation), arguments, target, space.members)
    with CompilePool(ahead, workers=jobs, timeout_s=timeout_s) as pool:
        futures = [pool.submit(config, anyway=True) for config in space]
        return [future.result() for future in _watched(futures)]


def _watched(futures: list[Future[Compiled]]) -> Iterator[Future[Compiled]]:
    """The futures in their order, with a progress bar if stderr is a terminal."""
    console = stderr()
    yield from track(
        futures, f"{len(futures)} configs", console=console, transient=True, disable=not console.is_terminal
    )


def _as_json(result: Compiled, arch: str) -> dict[str, Any]:
    found = result.resources or Resources()
    return {
        "config": dict(result.config),
        "target": arch,
        "status": result.status.value,
        "reason": result.reason,
        "trace": result.trace,
        "registers": found.registers,
        "spill_bytes": found.spill_bytes,
        "shared_bytes": found.shared_bytes,
        "mma": found.mma,
        "serialised": found.serialised,
        "binary": found.binary,
        "compile_s": result.compile_s,
    }


def _report(
    problem: Problem, target: Target, results: list[Compiled], elapsed_s: float, columns: int | None
) -> list[str]:
    ranked = sorted(results, key=lambda result: _ORDER.index(result.status))
    header, *lines = table(_HEADER, [_row(result) for result in ranked], columns, _NUMBERS)
    head = f"{problem} for {target.arch}: {target.shared_bytes_per_block:,} bytes of shared memory per block"
    return [head, bold(header), *lines, *paragraph("", _summary(results, elapsed_s), columns)]


def _row(result: Compiled) -> list[str]:
    found = result.resources or Resources()
    figures = [_figure(number) for number in (found.registers, found.spill_bytes, found.shared_bytes)]
    what = f"{result.config}: {result.reason}" if result.reason else str(result.config)
    taken = "-" if result.compile_s is None else f"{result.compile_s:.2f}"
    return [result.status.value, *figures, found.mma or "-", _figure(found.load_bytes), taken, what]


def _figure(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _summary(results: list[Compiled], elapsed_s: float) -> str:
    counts = Counter(result.status for result in results)
    said = ", ".join(f"{counts[status]} {status}" for status in _ORDER if counts[status])
    binaries = {result.resources.binary for result in results if result.launchable and result.resources}
    return f"{len(results)} configs: {said}; {len(binaries)} different binaries, {elapsed_s:.1f} s"
