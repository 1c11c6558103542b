"""Running a kernel in a process of its own, and what that showed."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from triton_ops.backend import compiler_environment, pack
from triton_ops.exceptions import DeviceError, KernelTypeError
from triton_ops.lint.apart import asked
from triton_ops.lint.run.child import PATIENCE, Request
from triton_ops.lint.run.record import RunRecord, Seen
from triton_ops.processes import Surroundings

LIMIT_S = 5.0
_BEGIN_S = 60.0  # for the imports of torch and Triton on a machine that is busy, and the module of the kernels


def run_watched(target: Any, limit_s: float = LIMIT_S) -> RunRecord:
    """What an operation, or a function without parameters, does to memory when Triton's interpreter runs it once.

    An operation is run with its default config on a small problem of odd extents.

    Args:
        target: An `Operation`, or a function that launches kernels with tensors on a CPU.
        limit_s: Seconds of a CPU that the launches may take; what was seen until then is kept.

    Cost: 2 s for the imports of a new process, and the launches: 2 ms for each program of a row kernel.
    """
    try:
        request = Request(pack(target).content, Surroundings.here(), limit_s)
        changes = {**compiler_environment(), "TRITON_INTERPRET": "1"}
        process = asked("triton_ops.lint.run.child", request, changes, PATIENCE * limit_s + _BEGIN_S)
    except (KernelTypeError, DeviceError) as error:
        return RunRecord(whole=f"it cannot be run in another process: {error.message}")
    except subprocess.TimeoutExpired as error:
        return RunRecord(whole=f"the interpreter did not end within {error.timeout:g} s")
    try:
        return _record(json.loads(process.stdout))
    except ValueError:
        last = process.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
        return RunRecord(whole=f"the process that ran it ended with code {process.returncode}: {last[0][:200]}")


def _record(content: dict[str, Any]) -> RunRecord:
    reasons = {(kind, kernel): why for kind, kernel, why in content["open"]}
    return RunRecord(
        tuple(Seen(**one) for one in content["seen"]), frozenset(content["kernels"]), content["whole"], reasons
    )
