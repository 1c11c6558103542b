"""Commands on what compilers make of configs, without a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Annotated, Any

from triton_ops.backend import Operation
from triton_ops.base import counted
from triton_ops.compilation import CompilePool
from triton_ops.device import DeviceSpec, Machine, Target, device_spec
from triton_ops.exceptions import SettingsError
from triton_ops.terminal import ExitCode, Facts, followed, option, tell
from triton_ops.typed import TypedTarget
from triton_ops.values import Compiled, Resources, dtype_name
from triton_ops_lab.ranking import Expectation, Expecter, ModelQuestion, by_program, left_out, same_programs
from triton_ops_lab.spills import CureTrial, SpillEvidence, SpillReport, cure_spills

_TIMEOUT_S = CompilePool.TIMEOUT_S
_HINT = "name an Operation that holds a TritonKernel"


_COMPILE_HEADER = ("status", "registers", "spilled", "shared", "mma", "load", "expected", "s", "config")
_SPILL_HEADER = ("change", "verdict", "registers", "spilled", "frame", "local", "shared", "ms", "config")


def side_by_side(facts: Facts, problem: str, by_arch: Mapping[str, Sequence[Compiled]], elapsed_s: float) -> Facts:
    """Add a table with a column for each architecture, all with the same configs, and their differences."""
    rows = [[*map(_cell, each), str(each[0].config)] for each in zip(*by_arch.values(), strict=True)]
    facts.lines(f"{problem} for {', '.join(by_arch)}: registers and spilled bytes per thread")
    facts.table((*by_arch, "config"), rows)
    for arch, results in by_arch.items():
        clean, spilling = sum(map(_clean, results)), sum(_spills(result) > 0 for result in results)
        rest = len(results) - clean - spilling
        facts.text(f"{arch}: {clean} without spills, {spilling} spill, {rest} cannot run")
    for text in _differences(by_arch):
        facts.text(text)
    return facts.lines(f"{counted(len(rows), 'config')} on {counted(len(by_arch), 'target')}, {elapsed_s:.1f} s")


def _cell(result: Compiled) -> str:
    registers = result.resources.registers if result.resources else None
    if not result.launchable or registers is None:
        return str(result.status)
    return f"{registers}, spills {_spills(result):,}" if _spills(result) else f"{registers}"


def _spills(result: Compiled) -> int:
    return (result.resources.spill_bytes or 0) if result.launchable and result.resources else 0


def _clean(result: Compiled) -> bool:
    return result.launchable and result.resources is not None and not _spills(result)


def _differences(by_arch: Mapping[str, Sequence[Compiled]]) -> Iterator[str]:
    """For each pair of architectures how many configs are good on the one and not on the other."""
    for (arch, results), (other, its) in permutations(by_arch.items(), 2):
        pairs = [(a, b) for a, b in zip(results, its, strict=True) if _clean(a) and not _clean(b)]
        spilling = sum(_spills(b) > 0 for _, b in pairs)
        if pairs:
            rest = len(pairs) - spilling
            yield f"of those without spills on {arch}, {spilling} spill on {other}, and {rest} cannot run there"


def compile_command(
    gpus: Annotated[
        list[str] | None,
        option("--gpu", "Such as sm_80, gfx942 or H200; default the GPU here. Repeat it to compare.", "NAME"),
    ] = None,
    *,
    target: Annotated[
        TypedTarget, "text shape dtype arg space", {"shape": "The problem; default the operation's first."}
    ],
    jobs: Annotated[int | None, option("--jobs", "Processes; default one for each CPU.", "N")] = None,
    timeout_s: Annotated[float, option("--timeout", "Most seconds for one config.", "S")] = _TIMEOUT_S,
) -> Facts:
    """Compile every config of TARGET and show what it takes: registers, spills, shared memory, and the expected time.

    For several architectures it shows them side by side. Needs no GPU and no driver. What was compiled is in Triton's
    disk cache.

    Registers and spilled bytes are per thread, shared memory is per block in bytes; of several kernels in one config
    the most counts. `mma` is the matrix instruction, and `load` the bytes of one thread's commonest load. Configs that
    compile to one program have one row. Exit code 1: none can be launched.
    """
    typed = target.problem
    _check(jobs, timeout_s)
    pairs = [(Target.named(name), DeviceSpec.called(name)) for name in gpus or ()]
    by_name = {goal.arch: (goal, spec) for goal, spec in pairs}  # two GPUs of one architecture take the same code
    here = None if by_name else device_spec(None)
    goals = list(by_name.values()) if here is None else [(Target.of(here), here)]
    target = replace(target, gpu=next(iter(gpus or ()), None))
    operation = target.operation(", so there is nothing to compile")
    if not typed.shapes:
        shapes, element = _first_problem(operation, typed.dtype)
        target = replace(target, problem=replace(typed, shapes=shapes, dtype=element))
    operation, own_space, extents, element = target.tuned(operation)
    problem = operation.problem(extents, element)
    question = ModelQuestion.of(operation, space=own_space, shape=extents, dtype=element)
    compilers = [question.compiler(goal, "so there is nothing to compile", _HINT) for goal, _ in goals]
    if not typed.shapes:
        tell(f"no --shape: compiling for {problem.label}")
    question.space.check_filled(typed.space)
    start = time.perf_counter()
    # one by one, each once it is needed: all at a time would share the CPUs
    pools = (CompilePool(compiler, workers=jobs, timeout_s=timeout_s) for compiler in compilers)
    expected = {goal.arch: _expectations(question, pool, spec) for (goal, spec), pool in zip(goals, pools, strict=True)}
    elapsed_s = time.perf_counter() - start
    by_arch = {arch: [one.compiled for one in several if one.compiled] for arch, several in expected.items()}
    first = goals[0][0]
    for text in left_out(question.space, typed.space, [result.config for result in by_arch[first.arch]]):
        tell(text)
    facts = Facts("compile", [row for arch, several in expected.items() for row in _compiled_json(several, arch)])
    facts.failed += _failures(by_arch)
    if not any(result.launchable for results in by_arch.values() for result in results):
        facts.code = ExitCode.NONE_RAN
    if len(goals) > 1:
        return side_by_side(facts, str(problem), by_arch, elapsed_s)
    return _add_compiled(facts, str(problem), first, expected[first.arch], elapsed_s)


def _failures(by_arch: Mapping[str, Sequence[Compiled]]) -> Iterator[tuple[str, str, str]]:
    """Configs that could not be launched, each with its reason and the compiler's trace."""
    for arch, results in by_arch.items():
        where = f"{arch} " if len(by_arch) > 1 else ""
        for result in results:
            if not result.launchable:
                yield f"{where}{result.config}", f"{result.status}: {result.reason}", result.trace


def _check(jobs: int | None, timeout_s: float) -> None:
    if jobs is not None:
        SettingsError.checked("--jobs", jobs, 1, hint="leave it out for one per CPU")
    SettingsError.checked("--timeout", timeout_s, finite=False, hint=f"for example --timeout {_TIMEOUT_S}")


def _first_problem(operation: Operation, dtype: str | None) -> tuple[list[tuple[int, ...]], str | None]:
    """Shape and dtype of the operation's first named problem, preferably of this dtype; no shape if none is named."""
    element = None if dtype is None else dtype_name(dtype)
    # False comes first, and problems that are alike keep their order
    problems = sorted(operation.problems.values(), key=lambda problem: element not in (None, problem[1]))
    if not problems:
        return [], dtype
    extents, its_dtype = problems[0]
    return [extents], dtype or its_dtype


def _expectations(question: ModelQuestion, opened: CompilePool, spec: DeviceSpec | None) -> list[Expectation]:
    """Every config, compiled, with what the model expects of it on a device that it knows."""
    configs = list(question.space)
    with opened as pool:
        # those that rules defer too, since their figures are asked for
        futures = [pool.submit(config, anyway=True) for config in configs]
        compiled = (future.result() for future in followed(futures, len(futures), "configs"))
        results = {one.config: one for one in compiled}
        if spec is None:
            return [Expectation(config=config, forecast=None, compiled=one) for config, one in results.items()]
        readings = question.readings(configs, pool, Machine.of(spec))
        return list(Expecter(question, spec.calibrated(None), readings).all(configs, pool, results))


def _compiled_json(expectations: Sequence[Expectation], arch: str) -> Iterator[dict[str, Any]]:
    by_config = {one.config: one.compiled for one in expectations if one.compiled}
    for config, one in by_program(expectations).items():
        result = by_config[config]
        resources = ("registers", "spill_bytes", "shared_bytes", "mma", "serialised", "binary")
        yield {
            "config": config, "target": arch, **Facts.members(result, "status", "reason", "trace"),
            **Facts.members(result.resources or Resources(), *resources),
            **Facts.members(result, "compile_s", program="launch"),
            "expected_ms": one.finite_ms, "lower_bound_ms": one.lower_bound_ms if one.bound else None,
            "limited_by": one.limited_by or None,
        }  # fmt: skip


def _add_compiled(
    facts: Facts, problem: str, target: Target, expectations: Sequence[Expectation], elapsed_s: float
) -> Facts:
    times = {config: one.finite_ms for config, one in by_program(expectations).items()}
    compiled = (one.compiled for one in expectations if one.compiled)
    results = sorted(compiled, key=lambda result: result.status.facts.listed)
    rows = []
    for result, configs in same_programs(results, lambda one: one.launch):
        resources, ms = result.resources or Resources(), times[result.config]
        sizes = (resources.registers, resources.spill_bytes, resources.shared_bytes, resources.load_bytes)
        *figures, load = (Facts.cell(size, ",") for size in sizes)
        figures += [resources.mma or "-", load, Facts.cell(ms, ".4g", " ms"), Facts.cell(result.compile_s, ".2f")]
        rows.append([result.status.value, *figures, f"{configs}: {result.reason}" if result.reason else configs])
    facts.lines(f"{problem} for {target.arch}: {target.shared_bytes_per_block:,} bytes of shared memory per block")
    return facts.table(_COMPILE_HEADER, rows, {*_COMPILE_HEADER[1:-1]} - {"mma"}).text(_summary(results, elapsed_s))


def _summary(results: list[Compiled], elapsed_s: float) -> str:
    counts = Counter(result.status for result in results)
    text = ", ".join(f"{counts[status]} {status}" for status in sorted(counts, key=lambda status: status.facts.listed))
    binaries = {result.resources.binary for result in results if result.launchable and result.resources}
    different = counted(len(binaries), "different binary")
    return f"{counted(len(results), 'config')}: {text}; {different}, {elapsed_s:.1f} s"


def spills_command(
    target: Annotated[TypedTarget, "text shape dtype arg config gpu"],
    measure: Annotated[
        bool | None, option("--measure/--no-measure", "Time what helps on the GPU; default if --gpu is left out.")
    ] = None,
) -> Facts:
    """Say what a config spills, and try what may cure it: a smaller tile, more warps, fewer stages.

    Each change is compiled, and kept only if it helps. No GPU is needed with --gpu.

    Verdicts are `cures`, `helps`, `does not help`, `slower` and `not possible`. Without a cure, the changes that
    help are tried together. Exit code 1: the config does not compile, or takes more than the target has.
    """
    operation, _, extents, element = target.tuned(target.operation("; its problem is not known"))
    arch, config = target.gpu, target.config
    report = cure_spills(operation, config=config, shape=extents, dtype=element, arch=arch, measure=measure)
    problem = str(operation.problem(extents, element))
    facts = Facts("explain spills", _spills_json(problem, report)).listing(spill_facts(problem, report))
    facts.code = ExitCode.DONE if report.before.compiled else ExitCode.NONE_RAN
    facts.table(_SPILL_HEADER, [row for cure in report.tried for row in cure_rows(cure)], _SPILL_HEADER[2:-1])
    return facts.text(report.advice, bold=True)


def spill_facts(problem: str, report: SpillReport) -> dict[str, str]:
    """The facts of a config before any change, a name and a text each."""
    before = report.before
    rows = {"problem": problem, "target": report.target, "config": str(before.config)}
    if before.reason:
        rows["compiler"] = f"{before.status}: {before.reason}"
    if before.registers is not None:
        full = ", all that there are" if before.registers >= before.most_registers else ""
        rows["registers"] = f"{before.registers} of {before.most_registers} per thread{full}"
        spilled = f"{before.spill_bytes:,} of them spilled registers"
        if (before.spill_bytes or 0) > (before.stack_bytes or 0):  # LLVM counts each register that it has spilled
            spilled = f"where {before.spill_bytes:,} bytes of spilled registers take turns"
        rows["frame"] = f"{before.stack_bytes:,} bytes per thread, {spilled}"
        rows["local memory"] = _local(before)
    if before.accumulator is not None:
        across = "x".join(map(str, before.accumulator))
        rows["accumulator"] = (
            f"{across} is {before.accumulator_bytes:,} bytes of registers, {before.accumulator_registers:g} per thread"
        )
    if before.residents is not None:
        rows["occupancy"] = f"{before.residents.occupancy:.0%}, limited by {' and '.join(before.residents.limited_by)}"
    if before.median_ms is not None:
        rows["measured"] = f"{before.median_ms:.4g} ms"
    return rows | {f"note {number}": note for number, note in enumerate(report.notes, 1)}


def _local(step: SpillEvidence) -> str:
    if (traffic := step.local) is None:
        return "not known: no nvdisasm can be run for this architecture"
    return (
        f"{traffic.loads:,} loads of {traffic.load_bytes:,} bytes and {traffic.stores:,} stores of "
        f"{traffic.store_bytes:,} bytes per thread in the code, {traffic.in_loops:,} of them in loops"
    )


def cure_rows(cure: CureTrial) -> list[list[str]]:
    """One row for each config of a change, with the verdict on that config."""
    if not cure.steps:
        return [[cure.name, cure.verdict, *["-"] * 6, "no further step"]]
    return [
        [
            cure.name,
            cure.verdict_on(step),
            *(Facts.cell(size, ",") for size in (step.registers, step.spill_bytes, step.stack_bytes)),
            "-" if step.local is None else f"{step.local.loads + step.local.stores:,}",
            Facts.cell(step.shared_bytes, ","),
            Facts.cell(step.median_ms, ".4g"),
            " ".join(f"{name}={value}" for name, value in cure.changed(step).items())
            + (f": {step.reason}" if not step.compiled and step.reason else ""),
        ]
        for step in cure.steps
    ]


def _spills_json(problem: str, report: SpillReport) -> dict[str, Any]:
    best = None if report.cure is None else report.cure.best
    return {
        "problem": problem, **Facts.members(report, "target", "spills", "advice", "notes"),
        "before": _evidence_json(report.before), "cure": None if best is None else best.config,
        "cures": [
            {**Facts.members(cure, "why", "verdict", "kept", change="name"),
             "best": None if cure.best is None else cure.best.config, "steps": list(map(_evidence_json, cure.steps))}
            for cure in report.tried
        ],
    }  # fmt: skip


def _evidence_json(step: SpillEvidence) -> dict[str, Any]:
    names = (
        "config", "status", "reason", "registers", "most_registers", "stack_bytes", "spill_bytes", "shared_bytes",
        "accumulator_bytes", "accumulator_registers", "local", "median_ms",
    )  # fmt: skip
    occupancy = None if step.residents is None else step.residents.occupancy
    return {**Facts.members(step, *names), "occupancy": occupancy}
