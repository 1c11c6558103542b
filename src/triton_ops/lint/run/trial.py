"""Running a kernel in a process of its own, and what that showed."""

from __future__ import annotations

import subprocess
from typing import Any

import msgspec

from triton_ops.backend import compiler_environment, pack
from triton_ops.exceptions import DeviceError, KernelTypeError
from triton_ops.lint.apart import ask_process
from triton_ops.lint.run.child import PATIENCE
from triton_ops.lint.run.record import RunRecord
from triton_ops.processes import Surroundings

LIMIT_S = 5.0
_BEGIN_S = 60.0  # for the imports of torch and Triton on a machine that is busy, and the module of the kernels


def run_watched(target: Any, limit_s: float = LIMIT_S) -> RunRecord:
    """Run an operation, or a function without parameters, once by Triton's interpreter, and watch its memory.

    An operation is run with its default config on a small problem of odd extents.

    Args:
        target: An `Operation`, or a function that launches kernels with tensors on a CPU.
        limit_s: Seconds of a CPU that the launches may take; what was seen until then is kept.

    Cost: 2 s for the imports of a new process, and the launches: 2 ms for each program of a row kernel.
    """
    try:
        request = (pack(target).content, Surroundings.here(), limit_s)
        changes = {**compiler_environment(), "TRITON_INTERPRET": "1"}
        process = ask_process("triton_ops.lint.run.child", request, changes, PATIENCE * limit_s + _BEGIN_S)
    except (KernelTypeError, DeviceError) as error:
        return RunRecord(whole=f"it cannot be run in another process: {error.message}")
    except subprocess.TimeoutExpired as error:
        return RunRecord(whole=f"the interpreter did not end within {error.timeout:g} s")
    try:
        return msgspec.json.decode(process.stdout, type=RunRecord)
    except msgspec.DecodeError:
        last = process.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
        return RunRecord(whole=f"the process that ran it ended with code {process.returncode}: {last[0][:200]}")
