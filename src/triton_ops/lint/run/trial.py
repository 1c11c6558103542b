"""Running a kernel in a process of its own, in which Triton interprets."""

from __future__ import annotations

from typing import Any

from triton_ops.backend import compiler_environment, pack
from triton_ops.exceptions import DeviceError, KernelTypeError
from triton_ops.lint.apart import PROGRAM
from triton_ops.lint.run.record import PATIENCE, RunRecord, WatchRequest
from triton_ops.processes import Surroundings, WorkerDiedError, WorkerHungError, WorkerProcess

RUN_LIMIT_S = 5.0
_BEGIN_S = 60.0  # for the imports of torch and Triton on a machine that is busy, and the module of the kernels


def run_watched(target: Any, limit_s: float = RUN_LIMIT_S) -> RunRecord:
    """Run an operation, or a function without parameters, once by Triton's interpreter, and watch its memory.

    An operation is run with its default config on a small problem of odd extents.

    Args:
        target: An `Operation`, or a function that launches kernels with tensors on a CPU.
        limit_s: Seconds of a CPU that the launches may take; what was seen until then is kept.

    Cost: 2 s for the imports of a new process, and the launches: 2 ms for each program of a row kernel.
    """
    whole_s = PATIENCE * limit_s + _BEGIN_S
    try:
        request = WatchRequest(pack(target).content, Surroundings.here(), limit_s)
        changes = {**compiler_environment(), "TRITON_INTERPRET": "1"}
        process = WorkerProcess(("triton", "torch"), program=PROGRAM, changes=changes)
    except (KernelTypeError, DeviceError) as error:
        return RunRecord(whole=f"it cannot be run in another process: {error.message}")
    try:
        record = process.ask(request, whole_s, {}, "start", lambda answer: isinstance(answer, RunRecord))
        assert isinstance(record, RunRecord)
        return record
    except WorkerHungError:
        return RunRecord(whole=f"the interpreter did not end within {whole_s:g} s")
    except WorkerDiedError as error:
        return RunRecord(whole=f"the process that ran it failed: {error}")
    finally:
        process.kill()
