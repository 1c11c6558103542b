"""The process that runs kernels under Triton's interpreter: `python -c ... main()`, by `trial.py`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from triton_ops.backend import Arguments, Operation, numpy_misfit, one_line, unpack
from triton_ops.base import require
from triton_ops.evaluation import poison
from triton_ops.exceptions import TritonKernelError
from triton_ops.lint.apart import answer, question
from triton_ops.lint.run.record import CONFLICT, UNWRITTEN, RunRecord, Seen
from triton_ops.lint.run.watch import Watch, watched
from triton_ops.processes import Surroundings, import_heavy
from triton_ops.values import Problem

_SMALL = 16  # extents up to this are counts of heads, batches or ways, and stay nearly so
_FEW = 3
_COUNTS = (3, 4, 2, 1)  # 4 for what must be a multiple of another count
_ODD = (131, 83, 197, 67, 113, 37, 29)  # primes that differ, so that swapped axes show, and that no tile divides
_ROUND = (128, 64, 256, 16)  # where an operation takes no odd extent


def odd_problem(operation: Operation) -> Problem:
    """The operation's problem with as many small odd extents as it takes, of 32 or 16 bits if it takes such.

    The interpreter of Triton computes with bfloat16 as if it held whole numbers, so that it is the last choice.

    Raises:
        TritonKernelError: The operation has no problem to begin with.
    """
    preference = [one for one in ("float32", "float16") if one in operation.dtypes]
    dtype = next(iter((*preference, *operation.dtypes)), None)
    shape = _first_shape(operation, dtype)
    for _ in range(2):  # what one axis may be depends on others, such as the heads of queries on those of keys
        for axis, extent in enumerate(shape):
            shapes = ((*shape[:axis], one, *shape[axis + 1 :]) for one in _instead(axis, extent))
            shape = next((one for one in shapes if _takes(operation, one, dtype)), shape)
    return operation.problem(shape, dtype)


def _first_shape(operation: Operation, dtype: str | None) -> tuple[int, ...]:
    """The default shape, or else that of the first named problem."""
    shapes = [shape for shape, _ in operation.problems.values()]
    try:
        return operation.full_shape(None)
    except TritonKernelError:
        if not shapes:
            raise
    return next((one for one in shapes if _takes(operation, one, dtype)), shapes[0])


def _instead(axis: int, extent: int) -> tuple[int, ...]:
    """What to try for an axis in place of its extent, the best first; nothing where the extent is among the best."""
    if extent <= _FEW or extent in _ODD:
        return ()
    if extent <= _SMALL:
        return tuple(one for one in _COUNTS if one < extent)
    first = axis % len(_ODD)
    return tuple(one for one in (*_ODD[first:], *_ODD[:first], *_ROUND) if one < extent)


def _takes(operation: Operation, shape: tuple[int, ...], dtype: str | None) -> bool:
    """Whether there is such a problem, and a config for it."""
    try:
        problem = operation.problem(shape, dtype)
        return operation.space_for(problem).default_config is not None
    except (TritonKernelError, ArithmeticError, ValueError, AssertionError, LookupError, TypeError):
        return False  # an operation may refuse a shape by any of these errors


PATIENCE = 6
"""Seconds of the clock for each second of a CPU that a run may take: on a machine that is busy, and for what sleeps."""
_LOCKS = "it has atomic operations by which programs may wait for each other"


@dataclass(frozen=True)
class Request:
    """What to run.

    Attributes:
        packed: An operation, or a function without parameters, packed.
        surroundings: Of the process that asks.
        limit_s: Seconds of a CPU that launches may take.
    """

    packed: bytes
    surroundings: Surroundings
    limit_s: float


class _OutOfTimeError(BaseException):
    """The time of a run is over, by a CPU or by the clock, as its text says.

    No `except Exception` of the user's or of Triton's may take it for its own.
    """


def _end(signalled: int, _frame: Any) -> None:
    _limit(0.0)  # the other limit must not end what is told of this one
    raise _OutOfTimeError("of a CPU" if signalled == signal.SIGPROF else "of the clock")


def main() -> None:
    """Answer one request with the record as JSON."""
    request, output = question()
    import_heavy(("triton", "torch"), "running kernels")
    request.surroundings.take()
    watch = Watch()
    for signalled in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(signalled, _end)
    failure, unwritten, about = "", [], ""
    try:
        _limit(request.limit_s)
        target = unpack(request.packed)
        call, outputs, about = _prepared(target)
        _limit(request.limit_s)
        with watched(watch):
            result = call()
        unwritten = list(_unwritten(watch, outputs or _named("result", result)))
    except _OutOfTimeError as over:
        limit_s = request.limit_s * (PATIENCE if str(over) == "of the clock" else 1)
        failure = f"the interpreter did not end within {limit_s:g} s {over}"
    except TritonKernelError as error:
        failure = f"it cannot be run: {error.message}"
    except Exception as error:  # noqa: BLE001 - whatever the user's code and the interpreter raise
        misfit = numpy_misfit(error)
        failure = f"the interpreter cannot run it: {one_line(error) if misfit is None else misfit}"
    finally:
        _limit(0.0)
    record = RunRecord((*watch.seen(), *unwritten), frozenset(watch.kernels), failure)
    answer(output, json.dumps(_as_json(record, watch.locked, about)).encode())


def _as_json(record: RunRecord, locked: Iterable[str], about: str) -> dict[str, Any]:
    """A record for the process that asked, with what was run in every line of evidence, and kernels that take locks."""
    return {
        "seen": [{**asdict(one), "evidence": f"run {about}: {one.evidence}"} for one in record.seen],
        "kernels": sorted(record.kernels), "whole": record.whole,
        "open": [[CONFLICT, kernel, _LOCKS] for kernel in sorted(locked)],
    }  # fmt: skip


def _limit(limit_s: float) -> None:
    """End what follows after so many seconds of a CPU, or as many times of the clock; 0 ends the limit."""
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * limit_s)


def _prepared(target: Any) -> tuple[Callable[[], Any], list[tuple[str, Any]], str]:
    """What launches the kernels, the outputs that are arguments, with poison in them, and what is run, in words."""
    torch = require("torch", "running kernels")
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)  # new tensors then begin as NaN or the largest number
    torch.utils.deterministic.fill_uninitialized_memory = True
    if not isinstance(target, Operation):
        return target, [], "as it calls them"
    problem = odd_problem(target)
    space = target.space_for(problem)
    config = space.default_config.with_members(space.members)
    arguments = target.materialise(problem, "cpu")
    executable = target.kernel.compile(config, arguments)
    outputs = [pair for name in executable.outputs for pair in _named(name, arguments.keyword.get(name))]
    for _, tensor in outputs:
        poison(tensor)
    return lambda: executable.launch(arguments), outputs, f"on {problem}"


def _named(name: str, value: Any) -> list[tuple[str, Any]]:
    several = list(Arguments((value,)).tensors())
    return [(name if len(several) == 1 else f"{name}[{at}]", one) for at, one in enumerate(several)]


def _unwritten(watch: Watch, outputs: list[tuple[str, Any]]) -> Iterator[Seen]:
    """Outputs with elements that hold poison and that no kernel has stored to."""
    torch = require("torch", "running kernels")
    for name, tensor in outputs:
        origin = tensor.untyped_storage().data_ptr()
        if origin not in watch.written or not tensor.numel():
            continue
        bytes_written = torch.from_numpy(watch.written[origin])
        width = tensor.element_size()
        steps = tuple(step * width for step in tensor.stride())
        first = tensor.storage_offset() * width
        stores = bytes_written.as_strided((*tensor.shape, width), (*steps, 1), first).any(-1)
        fresh = torch.empty_like(tensor)
        poison(fresh)
        poisoned = (tensor == fresh) | ((tensor != tensor) & (fresh != fresh))
        count = int((poisoned & ~stores).sum())
        if count:
            at = tuple((poisoned & ~stores).nonzero()[0].tolist())
            kernel, file, line = watch.stored[origin]
            evidence = f"{count} of the {tensor.numel()} elements of {name} are never written, the first at {at}"
            yield Seen(kind=UNWRITTEN, kernel=kernel, file=file, line=line, evidence=evidence)
