"""The process that runs kernels under Triton's interpreter: `python -c ... main()`, by `trial.py`."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from triton_ops._optional import require
from triton_ops.backend import Arguments, Operation, unpack
from triton_ops.backend.errors import one_line
from triton_ops.evaluation.poison import poison
from triton_ops.exceptions import TritonKernelError
from triton_ops.lint.run.record import CONFLICT, UNWRITTEN, RunRecord, Seen
from triton_ops.lint.run.shapes import odd_problem
from triton_ops.lint.run.watch import Watch, watched
from triton_ops.processes.child import Leftovers, Surroundings, die_with, import_heavy

_LOCKS = "it has atomic operations by which programs may wait for each other"


@dataclass(frozen=True)
class Request:
    """What to run.

    Attributes:
        packed: An operation, or a function without parameters, packed.
        surroundings: Of the process that asks.
        limit_s: How long launches may take.
    """

    packed: bytes
    surroundings: Surroundings
    limit_s: float


class _OutOfTimeError(BaseException):
    """The time of a run is over; no `except Exception` of the user's or of Triton's may take it for its own."""


def _end(_signal: int, _frame: Any) -> None:
    raise _OutOfTimeError


def main() -> None:
    """Answer one request: pickled on stdin; the record on stdout, as JSON."""
    answer = os.dup(1)
    os.dup2(2, 1)  # what the user's code prints is no part of the answer
    die_with(int(sys.argv[2]), Leftovers.own())
    request: Request = pickle.load(sys.stdin.buffer)
    import_heavy(("triton", "torch"), "running kernels")
    request.surroundings.take()
    watch = Watch()
    signal.signal(signal.SIGALRM, _end)
    said, unwritten, about = "", [], ""
    try:
        signal.setitimer(signal.ITIMER_REAL, request.limit_s)
        target = unpack(request.packed)
        call, outputs, about = _prepared(target)
        signal.setitimer(signal.ITIMER_REAL, request.limit_s)
        with watched(watch):
            result = call()
        unwritten = list(_unwritten(watch, outputs or _named("result", result)))
    except _OutOfTimeError:
        said = f"the interpreter did not end within {request.limit_s:g} s"
    except TritonKernelError as error:
        said = f"it cannot be run: {error.message}"
    except Exception as error:  # noqa: BLE001 - whatever the user's code and the interpreter raise
        said = f"the interpreter cannot run it: {one_line(error)}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    seen = [*watch.seen(), *unwritten]
    record = RunRecord(tuple(seen), frozenset(watch.kernels), said)
    words = {
        "seen": [{**asdict(one), "evidence": f"run {about}: {one.evidence}"} for one in record.seen],
        "kernels": sorted(record.kernels), "whole": record.whole,
        "open": [[CONFLICT, kernel, _LOCKS] for kernel in sorted(watch.locked)],
    }  # fmt: skip
    left = memoryview(json.dumps(words).encode())
    while left:
        left = left[os.write(answer, left) :]


def _prepared(target: Any) -> tuple[Callable[[], Any], list[tuple[str, Any]], str]:
    """What launches the kernels, the outputs that are arguments, with poison in them, and what is run, in words."""
    torch = require("torch", "running kernels")
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)  # new tensors then begin as NaN or the largest number
    torch.utils.deterministic.fill_uninitialized_memory = True
    if not isinstance(target, Operation):
        return target, [], "as it calls them"
    problem = odd_problem(target)
    config = target.space_for(problem).default_config
    given = target.materialise(problem, "cpu")
    executable = target.kernel.compile(config, given)
    outputs = [pair for name in executable.outputs for pair in _named(name, given.keyword.get(name))]
    for _, tensor in outputs:
        poison(tensor)
    return lambda: executable.launch(given), outputs, f"on {problem}"


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
        written = bytes_written.as_strided((*tensor.shape, width), (*steps, 1), first).any(-1)
        fresh = torch.empty_like(tensor)
        poison(fresh)
        still = (tensor == fresh) | ((tensor != tensor) & (fresh != fresh))
        count = int((still & ~written).sum())
        if count:
            at = tuple((still & ~written).nonzero()[0].tolist())
            kernel, file, line = watch.stored[origin]
            said = f"{count} of the {tensor.numel()} elements of {name} are never written, the first at {at}"
            yield Seen(kind=UNWRITTEN, kernel=kernel, file=file, line=line, evidence=said)
