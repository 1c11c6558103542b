"""The lint of files, folders, kernels and operations."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import io
import os
import re
import sys
import threading
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FunctionType
from typing import Any, NamedTuple

from triton_ops import settings
from triton_ops.backend import CandidateError, KernelSource, Operation, TritonProcess
from triton_ops.base import Host, NamedFile, require
from triton_ops.device import Target
from triton_ops.exceptions import TargetError
from triton_ops.processes import Threads
from triton_ops_lint.apart import STEPS, LintOptions, LostStepError, lint_apart, run_watched
from triton_ops_lint.findings import Finding, LintReport, Undecided, merge_reports
from triton_ops_lint.island import COMPILED_FOR, island_of, parsed_file, text_if_readable, used_names
from triton_ops_lint.jit_functions import DefinedKernel, defined_kernels, innermost_kernel, launches, tuned_with
from triton_ops_lint.memory_watch import RunRecord
from triton_ops_lint.reading import READ_FOR, KernelReading, launched_as
from triton_ops_lint.rules import addresses, compiled_costs, launching, masks, sums
from triton_ops_lint.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    masks.missing_mask, masks.wrong_mask, sums.wrong_identity, addresses.stride_order, sums.low_precision_sum,
    launching.missing_constexpr, launching.over_specialised, compiled_costs.register_spill,
    addresses.cross_program_atomic, addresses.overlapping_writes, launching.narrow_key, launching.idle_key,
    launching.changed_global, launching.static_grid, addresses.offset_overflow, sums.no_tensor_core,
    compiled_costs.narrow_access, compiled_costs.lost_occupancy, compiled_costs.bank_conflict,
    addresses.outside_tensor, addresses.never_written, compiled_costs.short_list,
)  # fmt: skip


_IDS = {rule.id for rule in RULES}
BAD = "bad-suppression"
_COMMENT = re.compile(r"#\s*triton-ops:\s*ignore\b\s*(?:\[([^\]]*)\])?\s*(.*)")


class Comment(NamedTuple):
    """A comment that answers findings of some lines."""

    line: int
    rules: tuple[str, ...]
    reason: str
    lines: range


@lru_cache(maxsize=256)
def comments(text: str) -> tuple[Comment, ...]:
    """The comments of a file's text; none if it is no Python."""
    if _COMMENT.search(text) is None:
        return ()
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        tree = ast.parse(text)
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    # without those that have a body, since a comment at the head of a loop answers no findings of all its lines
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not hasattr(node, "body"))
    spans = sorted((node.lineno, node.end_lineno or node.lineno) for node in statements)
    result = []
    for token in tokens:
        if token.type == tokenize.COMMENT and (match := _COMMENT.search(token.string)) is not None:
            alone = not token.line[: token.start[1]].strip()
            names = tuple(name.strip() for name in (match[1] or "").split(",") if name.strip())
            lines = _span(spans, token.start[0], alone)
            result.append(Comment(token.start[0], names, match[2].strip(" -:—"), lines))
    return tuple(result)


def _span(spans: list[tuple[int, int]], line: int, alone: bool) -> range:
    at = line + 1 if alone and not any(first <= line <= last for first, last in spans) else line
    return next((range(first, last + 1) for first, last in spans if first <= at <= last), range(at, at + 1))


def split_suppressed(findings: Iterable[Finding]) -> tuple[list[Finding], list[tuple[Finding, str]]]:
    """Findings that are left, and those that a comment answers, with its reason."""
    pairs = []
    for finding in findings:
        here = (one for one in comments(text_if_readable(Path(finding.file))) if finding.line in one.lines)
        pairs.append((finding, next((one.reason for one in here if finding.rule in one.rules and one.reason), "")))
    return [finding for finding, reason in pairs if not reason], [pair for pair in pairs if pair[1]]


def bad_comments(file: str) -> Iterator[Finding]:
    """Comments of a file that name no rule, an unknown one, or no reason."""
    for one in comments(text_if_readable(Path(file))):
        unknown = [name for name in one.rules if name not in _IDS]
        what = "" if one.reason else "gives no reason"
        what = f"names {', '.join(unknown)}, which is no rule" if unknown else what
        if what := what if one.rules else "names no rule":
            yield Finding(
                rule=BAD, kernel="", file=file, line=one.line, symptom="a finding is hidden without an answer",
                evidence=f"the comment {what}", fix="write # triton-ops: ignore[RULE] reason", level="source",
            )  # fmt: skip


_INTERPRETED = "its module sets TRITON_INTERPRET before it makes the kernel, which its file alone does not show"
_FORMS = "name a file, a folder, package.module:kernel, path/file.py:kernel, a shipped kernel, or an Operation"


def lint(
    target: Any,
    *,
    rules: Sequence[str] | None = None,
    gpu: str | None = None,
    run: bool = False,
    no_run: bool = False,
    shape: Sequence[int] | None = None,
    jobs: int | None = None,
) -> LintReport:
    """Look for pitfalls in kernels, without a GPU.

    Args:
        target: A path of a file or folder, `package.module:kernel` or `path/file.py:kernel` as text; or a Triton
            kernel, with or without decorators; or an `Operation`. Of a file only what its kernels need is run, without
            the variables of the environment and, where Linux allows it, without a network.
        rules: Ids of the rules that are asked; None for all.
        gpu: What rules that compile do it for: an architecture such as `sm_90` or `gfx942`, or the name of a GPU, which
            need not be here. None for `sm_90`.
        run: Whether to run the kernels once too, by Triton's interpreter in a process of its own, if the target is an
            `Operation`, or a function that needs no arguments and launches them with tensors on a CPU.
        no_run: Whether nothing of a file is run: numbers, texts and lists that it writes out, and kernels whose
            decorators and bodies use Triton alone, are taken as they stand, and kernels that need more are undecided.
        shape: The shape on which an `Operation` is run; None for a small one with odd extents.
        jobs: The number of files of a folder that are read at a time; None for the CPUs that this process may use.

    Returns:
        Findings, what stays undecided and why, and what comments in the source have answered.

    Raises:
        TargetError: There is no such target, it does not parse, it ends or hangs every process that reads it, or a rule
            is not known. Of a folder, a file that cannot be read is in `unread` of the report.
        DeviceError: The GPU is not known.
        MissingDependencyError: Triton is not installed.

    Cost: 0.1 to 0.3 s for each kernel, and once the import of Triton; with `run` 2 s, and up to 5 s of a CPU for
    launches. Another process reads files, which may end or hang it, and kernels that `TRITON_INTERPRET` has made to be
    interpreted here; it takes 0.5 s to begin, and waits for the next lint for 15 s.
    """
    # What is asked for wrongly is said before a process begins.
    options = checked_options(rules, gpu, run, shape, no_run)
    if isinstance(target, (str, os.PathLike)):
        name = os.fspath(target)
        return merge_reports(report.result() for _, report in lint_each([(name, name, options)], jobs))
    language = require("triton.language", "reading kernels")
    inner = getattr(target, "operation", target)
    functions = (language.sum, *map(innermost_kernel, _kernels_of(inner)))  # Triton's own may be interpreted too
    if any(map(TritonProcess.is_interpreted, functions)):
        return lint_apart(inner, options)
    return lint_here(target, options)


def checked_options(
    rules: Sequence[str] | None, gpu: str | None, run: bool, shape: Sequence[int] | None = None, no_run: bool = False
) -> LintOptions:
    """The options of a lint; raises TargetError or DeviceError for a rule or a GPU that is not known."""
    if run and no_run:
        raise TargetError("`run` and `no_run` exclude each other", hint="leave one of them out (--run, --no-run)")
    unknown = [name for name in rules or () if name not in _IDS]
    if unknown:
        raise TargetError(
            f"there is no rule {', '.join(unknown)}", hint=f"rules are {', '.join(rule.id for rule in RULES)}"
        )
    gpu = COMPILED_FOR if gpu is None else gpu
    Target.named(gpu)
    own_rules = None if rules is None else tuple(rules)
    own_shape = None if shape is None else tuple(shape)
    return LintOptions(rules=own_rules, gpu=gpu, run=run, no_run=no_run, shape=own_shape)


def lint_each(
    targets: Iterable[tuple[str, Any, LintOptions]], jobs: int | None = None
) -> list[tuple[str, Future[LintReport]]]:
    """The reports of targets with their names, while they come: of a folder one for each file, with the file's name.

    So many are read at a time as there are `jobs`, or CPUs. A file of a folder that cannot be read is in `unread` of
    its report; a target that was named raises as `lint` does.
    """
    reports: list[tuple[str, Future[LintReport]]] = []
    waiting: SimpleQueue[tuple[Any, LintOptions, bool, Future[LintReport]]] = SimpleQueue()
    for name, target, options in targets:
        is_folder = isinstance(target, str) and Path(target).is_dir()
        for file in _files_of(target) if is_folder else [target]:
            reports.append((file if is_folder else name, Future()))
            waiting.put((file, options, is_folder, reports[-1][1]))

    def serve() -> None:
        with contextlib.suppress(Empty):
            while True:
                target, options, is_one_of_many, future = waiting.get_nowait()
                Threads.settle(future, partial(_report_of, target, options, is_one_of_many))

    for _ in range(min(len(reports), jobs or Host.usable_cpus())):
        Threads.begin(threading.Thread(target=serve, daemon=True))
    return reports


def _files_of(folder: str) -> list[str]:
    """The files of Python below a folder, without what is hidden, and links to folders."""
    files = (file for file in Path(folder).rglob("*.py") if not file.is_dir())
    return [str(file) for file in sorted(files) if not any(part[0] == "." for part in file.relative_to(folder).parts)]


def _report_of(target: Any, options: LintOptions, is_one_of_many: bool) -> LintReport:
    if not isinstance(target, str):
        return lint_apart(target, options)
    before, colon, name = target.rpartition(":")
    file = Path(before if colon and before.endswith(".py") and not Path(target).exists() else target)
    try:
        # most files of a folder do not name Triton, and take no process
        if not name and file.is_file() and not _names(file, b"triton"):
            return lint_here(target, options)  # it is parsed, and nothing of it is run
        # a process that reads many files imports torch once for all, before it is copied
        return lint_apart(target, options, with_torch=is_one_of_many and _names(file, b"torch"))
    except TargetError as error:
        if not is_one_of_many:
            raise
        return LintReport(unread={target: error.message})  # the others are read


def _names(file: Path, package: bytes) -> bool:
    """Check whether a file may use a package; one that cannot be opened may, so that its reading says why it cannot."""
    try:
        return package in NamedFile(file).read()
    except OSError:
        return True


def lint_here(target: Any, options: LintOptions) -> LintReport:
    """As `lint`, in this process, in which Triton's own functions are compiled."""
    chosen_rules = tuple(rule for rule in RULES if options.rules is None or rule.id in options.rules)
    all_readings, failures, files = readings_of(target)
    readings = [usable for one in all_readings if (usable := _from_file_if_interpreted(one)) is not None]
    usable_names = {usable.name for usable in readings}
    failures += [(one.name, _INTERPRETED) for one in all_readings if one.name not in usable_names]
    run_record = _run_record(target, options.shape) if options.run and readings else None
    undecided = [replace(rule.undecided(*one), file=files[0]) for one in failures for rule in chosen_rules]
    chosen_readings = [replace(one, gpu=options.gpu, run=run_record) for one in readings]
    statements = [(reading.file, one) for reading in chosen_readings for one in _statements(chosen_rules, reading)]
    undecided += [replace(one, file=file) for file, one in statements if isinstance(one, Undecided)]
    findings = tuple(one for _, one in statements if isinstance(one, Finding))
    each_once = merge_reports([LintReport(findings)]).findings  # several kernels call a function that has one
    open_findings, answers = split_suppressed(each_once)
    open_findings += [one for file in files for one in bad_comments(file)]
    kernels = (*((one.name, one.file) for one in readings), *((name, files[0]) for name, _ in failures))
    return merge_reports([LintReport(tuple(open_findings), tuple(undecided), kernels, tuple(answers))])


def _from_file_if_interpreted(reading: KernelReading) -> KernelReading | None:
    """A kernel that was made to be interpreted, from its file instead; None if the file alone does not make it."""
    if not TritonProcess.is_interpreted(reading.function.function):
        return reading
    try:
        return next(iter(_readings_in(Path(reading.file), reading.name)[0]), None)
    except (TargetError, OSError):  # OSError: a notebook's cell is no file
        return None


def _run_record(target: Any, shape: tuple[int, ...] | None) -> RunRecord:
    runs = getattr(target, "operation", target)
    if isinstance(runs, Operation):
        return run_watched(runs, shape)
    parameters = inspect.signature(runs).parameters.values() if isinstance(runs, FunctionType) else ()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if isinstance(runs, FunctionType) and all(p.default is not p.empty or p.kind in variable for p in parameters):
        return run_watched(runs)
    why = "its arguments are not known: to run it, name an Operation, or a function without parameters"
    return RunRecord(whole=why)


def _statements(rules: tuple[Rule, ...], reading: KernelReading) -> Iterator[Finding | Undecided]:
    try:
        STEPS.begin(f"reading of {reading.name} in {reading.file}")
        variants, why = reading.lowered
    except LostStepError as error:
        yield from (rule.undecided(reading.name, str(error)) for rule in rules)
        return
    for rule in rules:
        try:
            if rule.level in ("ttir", "binary") and not variants:
                yield rule.undecided(reading.name, why)
                continue
            STEPS.begin(f"rule {rule.id} for {reading.name} in {reading.file}")
            yield from list(rule.statements(reading))
        except LostStepError as error:
            yield rule.undecided(reading.name, str(error))
        except Exception as error:  # noqa: BLE001 - a rule that fails on one kernel must not hide what the others find
            fault = f"the rule itself failed, which is an error of this program: {CandidateError.one_line(error)}"
            yield rule.undecided(reading.name, fault)


def readings_of(target: Any) -> tuple[list[KernelReading], list[tuple[str, str]], list[str]]:
    """The kernels of a target, those that could not be made with the reason, and the files that were looked at.

    Raises TargetError if there is no such target, or no kernel in it.
    """
    if isinstance(target, (str, os.PathLike)):
        path = Path(text := os.fspath(target))
        if os.path.lexists(path) and not path.is_dir():
            return _readings_in(path)
        place, _, name = text.rpartition(":")
        return _readings_in(_file_of(place), name) if place and name else _readings_in(_file_of(text))
    kernels = _kernels_of(target)
    if not kernels:
        raise TargetError(f"{target!r} is no Triton kernel and holds none", hint=_FORMS)
    operation = getattr(target, "operation", target)
    launch = operation if isinstance(operation, Operation) else None
    guesses = {} if launch is None else launched_as(launch, Target.named(READ_FOR))
    several = ((_reading_of(one), guesses.get(id(innermost_kernel(one)), ())) for one in kernels)
    readings = [replace(reading, guesses=own, operation=launch) for reading, own in several]
    return readings, [], list(dict.fromkeys(reading.file for reading in readings))


def _file_of(place: str) -> Path:
    """The file of a module or path; packages are looked up without being imported."""
    if place.endswith(".py") and Path(place).is_file():
        return Path(place)
    if place.endswith(".py") or os.sep in place:
        raise TargetError(f"there is no file {place}", hint=_FORMS)
    parts = place.split(".")
    for folder in dict.fromkeys([settings.current_folder() or "", *sys.path]):
        base = Path(folder or ".").joinpath(*parts)
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if all(parts) and file.is_file():
                return file
    if all(parts) and importlib.util.find_spec(parts[0]) is None:
        raise TargetError(f"there is no module {parts[0]}, no file and no shipped kernel of this name", hint=_FORMS)
    raise TargetError(f"there is no source of {place}", hint=_FORMS)


def _readings_in(file: Path, only: str = "") -> tuple[list[KernelReading], list[tuple[str, str]], list[str]]:
    text, _ = parsed_file(file)
    if "triton" not in text and not only:
        return [], [], [str(file.resolve())]
    island = island_of(file.resolve())
    defined = defined_kernels(island)
    if only and not (defined := [one for one in defined if one.name == only]):
        with TargetError.when(f"{file} has no {only}", "correct the name after the colon", LookupError):
            value = island.value(only)
        if (inner := innermost_kernel(value)) is not None:
            defined = [DefinedKernel(only, KernelSource.read(inner), value)]
        elif _kernels_of(value):
            return readings_of(value)
        else:
            what = f"{only} in {file} is no Triton kernel and holds none"
            raise TargetError(what, hint="name a function with @triton.jit, or an Operation")
    readings = [
        _reading(one.kernel, one.decorated, str(island.path), island.tree, island.failures, one.name)
        for one in defined
        if one.kernel is not None
    ]
    return readings, [(one.name, one.why) for one in defined if one.kernel is None], [str(file.resolve())]


def _reading(
    kernel: KernelSource, decorated: Any, file: str, tree: ast.Module, failures: Mapping[str, str], name: str
) -> KernelReading:
    gaps = [f"{one}: {failures[one]}" for one in used_names(kernel.node) if one in failures]
    return KernelReading(
        name=name, file=file, function=kernel, tree=tree, launches=launches(tree, name, kernel.parameters),
        failures="; ".join(gaps), **tuned_with(decorated),
    )  # fmt: skip


def _reading_of(decorated: Any) -> KernelReading:
    kernel = KernelSource.read(innermost_kernel(decorated))
    path = Path(inspect.getsourcefile(kernel.function.fn) or "")
    return _reading(kernel, decorated, str(path), parsed_file(path)[1], {}, kernel.name)


def _kernels_of(target: Any, depth: int = 6) -> list[Any]:
    """The Triton kernels that an object is or holds: an operation, its kernel, what a launching function launches."""
    if innermost_kernel(target) is not None:
        return [target]
    if depth == 0:
        return []
    if isinstance(target, FunctionType):
        values = (target.__globals__.get(name) for name in target.__code__.co_names)
        package = target.__module__.rpartition(".")[0] or target.__module__
        near = [
            one
            for one in values
            if innermost_kernel(one) is not None
            or (isinstance(one, FunctionType) and one.__module__.startswith(package))
        ]
        kernels = [kernel for one in near for kernel in _kernels_of(one, depth - 1)]
        return list({id(one): one for one in kernels}.values())
    for name in ("kernel", "operation", "parsed", "function", "launch", "stages", "forms"):
        inner = getattr(target, name, None)
        inner = [*inner.values()] if isinstance(inner, Mapping) else inner
        several = inner if isinstance(inner, (list, tuple)) else (inner,)
        kernels = [kernel for one in several if one is not None for kernel in _kernels_of(one, depth - 1)]
        if kernels:
            return kernels
    return []
