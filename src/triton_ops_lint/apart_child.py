"""The process that reads or runs kernels for another one: `python -c ... main()`."""

from __future__ import annotations

import contextlib
import mmap
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from triton_ops.backend import CandidateError, CompilerNeeds, Operation, Packed, TritonProcess
from triton_ops.base import require
from triton_ops.exceptions import TargetError, TritonKernelError
from triton_ops.processes import Child
from triton_ops_lint.apart import STEPS, LintReply, LintRequest
from triton_ops_lint.engine import lint_here
from triton_ops_lint.memory_watch import (
    PATIENCE,
    UNWRITTEN,
    MemoryWatch,
    Observation,
    RunRecord,
    WatchRequest,
    bytes_of_elements,
    named_tensors,
    watch_launches,
)

with contextlib.suppress(ImportError):  # not on Windows, where no kernel is run apart
    import resource

_SMALL = 16  # extents up to this are counts of heads, batches or ways, and stay nearly so
_FEW = 3
_COUNTS = (3, 4, 2, 1)  # 4 for what must be a multiple of another count
_ODD = (131, 83, 197, 67, 113, 37, 29)  # primes that differ, so that swapped axes show, and that no tile divides
_ROUND = (128, 64, 256, 16)  # where an operation takes no odd extent


def odd_shape(operation: Operation, dtype: str | None) -> tuple[int, ...]:
    """The operation's shape with as many small odd extents as it takes.

    Raises TritonKernelError if the operation has no problem to begin with.
    """
    shape = _first_shape(operation, dtype)
    for _ in range(2):  # what one axis may be depends on others, such as the heads of queries on those of keys
        for axis, extent in enumerate(shape):
            shapes = ((*shape[:axis], one, *shape[axis + 1 :]) for one in _replacements(axis, extent))
            shape = next((one for one in shapes if _takes(operation, one, dtype)), shape)
    return shape


def exact_dtype(operation: Operation) -> str | None:
    """The operation's dtype of 32 or 16 bits, if it takes such; bfloat16 is the last choice."""
    # Triton's interpreter, 3.6 and later, computes with the bits of bfloat16 as with whole numbers; its maintainers
    # call that not supported: triton-lang/triton#11584.
    preference = [one for one in ("float32", "float16") if one in operation.dtypes]
    return next(iter((*preference, *operation.dtypes)), None)


def _first_shape(operation: Operation, dtype: str | None) -> tuple[int, ...]:
    shapes = [shape for shape, _ in operation.problems.values()]
    try:
        return operation.full_shape(None)
    except TritonKernelError:
        if not shapes:
            raise
    return next((one for one in shapes if _takes(operation, one, dtype)), shapes[0])


def _replacements(axis: int, extent: int) -> tuple[int, ...]:
    """Extents to try for an axis in place of its own, the best first; none where its own is among the best."""
    if extent <= _FEW or extent in _ODD:
        return ()
    if extent <= _SMALL:
        return tuple(one for one in _COUNTS if one < extent)
    first = axis % len(_ODD)
    return tuple(one for one in (*_ODD[first:], *_ODD[:first], *_ROUND) if one < extent)


def _takes(operation: Operation, shape: tuple[int, ...], dtype: str | None) -> bool:
    try:
        problem = operation.problem(shape, dtype)
        return operation.space_for(problem).default_config is not None
    except (TritonKernelError, ArithmeticError, ValueError, AssertionError, LookupError, TypeError):
        return False  # an operation may refuse a shape by any of these errors


class _OutOfTimeError(BaseException):
    """The end of a run's time, by a CPU or by the clock, which no `except Exception` of the user's may take."""


def _end(signalled: int, _frame: Any) -> None:
    _limit(0.0)  # the other limit must not end what is told of this one
    raise _OutOfTimeError("of a CPU" if signalled == signal.SIGPROF else "of the clock")


def run_here(request: WatchRequest) -> RunRecord:
    """Run in this process, in which Triton interprets, what a request asks for."""
    watch = MemoryWatch()
    for signalled in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(signalled, _end)
    failure, unwritten, about = "", [], ""
    try:
        _limit(request.limit_s)
        target = Packed.loaded(request.packed)
        call, outputs, about = _prepare(target, request.shape)
        _limit(request.limit_s)
        with watch_launches(watch):
            result = call()
        unwritten = list(_find_unwritten(watch, outputs or named_tensors("result", result)))
    except _OutOfTimeError as over:
        patience = PATIENCE if str(over) == "of the clock" else 1
        failure = f"the interpreter did not end within {request.limit_s * patience:g} s {over}"
    except TritonKernelError as error:
        failure = f"it cannot be run: {error.message}"
    except Exception as error:  # noqa: BLE001 - whatever the user's code and the interpreter raise
        misfit = TritonProcess.numpy_misfit(error)
        failure = f"the interpreter cannot run it: {CandidateError.one_line(error) if misfit is None else misfit}"
    finally:
        _limit(0.0)
    observations = tuple(
        replace(one, evidence=f"run {about}: {one.evidence}") for one in (*watch.observations(), *unwritten)
    )
    return RunRecord(observations, frozenset(watch.kernels), failure, frozenset(watch.locked))


def _limit(limit_s: float) -> None:
    """End what follows after so many seconds of a CPU, or as many times of the clock; 0 ends the limit."""
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * limit_s)


def _prepare(target: Any, shape: tuple[int, ...] | None) -> tuple[Callable[[], Any], list[tuple[str, Any]], str]:
    """The call that launches the kernels, the outputs that are arguments, with poison in them, and the run in words."""
    torch = require("torch", "running kernels")
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)  # new tensors then begin as NaN or the largest number
    torch.utils.deterministic.fill_uninitialized_memory = True
    if not isinstance(target, Operation):
        return target, [], "as it calls them"
    dtype = exact_dtype(target)
    problem = target.problem(odd_shape(target, dtype) if shape is None else shape, dtype)
    space = target.space_for(problem)
    config = space.default_config.with_members(space.members)
    arguments = target.materialise(problem, "cpu")
    executable = target.kernel.compile(config, arguments)
    outputs = [pair for name in executable.outputs for pair in named_tensors(name, arguments.keyword.get(name))]
    for _, tensor in outputs:
        # The settings above fill what `empty_like` makes.
        tensor.copy_(torch.empty_like(tensor))
    return lambda: executable.launch(arguments), outputs, f"on {problem}"


def _find_unwritten(watch: MemoryWatch, outputs: list[tuple[str, Any]]) -> Iterator[Observation]:
    """Outputs with elements that hold poison and that no kernel has stored to."""
    torch = require("torch", "running kernels")
    for name, tensor in outputs:
        origin = tensor.untyped_storage().data_ptr()
        if origin not in watch.stores or not tensor.numel():
            continue
        stores = bytes_of_elements(tensor, torch.from_numpy(watch.stores[origin])).any(-1)
        fresh = torch.empty_like(tensor)
        poisoned = (tensor == fresh) | ((tensor != tensor) & (fresh != fresh))
        count = int((poisoned & ~stores).sum())
        if count:
            at = tuple((poisoned & ~stores).nonzero()[0].tolist())
            kernel, file, line = watch.last_stores[origin]
            evidence = f"{count} of the {tensor.numel()} elements of {name} are never written, the first at {at}"
            yield Observation(kind=UNWRITTEN, kernel=kernel, file=file, line=line, evidence=evidence)


_MOST_BYTES = 4 << 30  # of memory that is written, for all that a file computes


def main() -> None:
    """Answer requests until the pipe is closed: with a report, an error of the lint, or the record of a run.

    A copy of this process reads each file, so that no file changes how another one is read. Once a copy has imported
    torch, which takes a second, or that is asked for, this process has it for all others.
    """
    child = Child()
    with contextlib.suppress(TritonKernelError):  # a package that is missing is the answer to every request
        CompilerNeeds(child.packages).ready()
        TritonProcess.warm_up(launches=False).join()  # each copy would make Triton's key of itself anew
    STEPS.tell = lambda step: child.send(child.step(step))
    # A copy shares this byte, by which it tells that it had to import torch.
    with_torch = mmap.mmap(-1, 1)
    for asked in child.messages():
        with contextlib.suppress(TritonKernelError):
            CompilerNeeds(("torch",) if with_torch[0] or asked.question.with_torch else ()).ready()
        child.send_from_copy(partial(asked.answered_by, partial(_answer, with_torch=with_torch)))


def _answer(request: LintRequest | WatchRequest, with_torch: mmap.mmap) -> LintReply | RunRecord:
    return run_here(request) if isinstance(request, WatchRequest) else _reply(request, with_torch)


def _reply(request: LintRequest, with_torch: mmap.mmap) -> LintReply:
    """The reply of a copy of this process, which notes whether torch was imported in it."""
    STEPS.omissions, STEPS.only_reads = request.omissions, request.options.no_run
    if request.confined:
        Child.confine()
    # RLIMIT_AS would count addresses that torch only reserves; RLIMIT_DATA counts private mappings since Linux 4.7.
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    try:
        require("triton", "reading kernels")
        report = lint_here(Packed.loaded(request.packed), request.options)
    except TritonKernelError as error:
        return LintReply(error)
    except (RecursionError, MemoryError) as error:
        why = f"it is nested too deeply, or too large, to be read: {CandidateError.one_line(error)}"
        return LintReply(TargetError(why))
    with_torch[0] |= hasattr(sys.modules.get("torch"), "Tensor")
    return LintReply(report)
