"""Running a kernel in a process of its own, and what that showed."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from typing import Any

from triton_ops import settings
from triton_ops.backend import pack
from triton_ops.backend.offline import compiler_environment
from triton_ops.exceptions import DeviceError, KernelTypeError
from triton_ops.lint.run.child import Request
from triton_ops.lint.run.record import RunRecord, Seen
from triton_ops.processes.child import Leftovers, Surroundings, command
from triton_ops.processes.family import end_family, new_mark

LIMIT_S = 5.0
_BEGIN_S = 60.0  # for the imports of torch and Triton on a machine that is busy, and the module of the kernels


def run_watched(target: Any, limit_s: float = LIMIT_S) -> RunRecord:
    """What an operation, or a function without parameters, does to memory when Triton's interpreter runs it once.

    An operation is run with its default config on a small problem of odd extents.

    Args:
        target: An `Operation`, or a function that launches kernels with tensors on a CPU.
        limit_s: How long the launches may take; what was seen until then is kept.

    Cost: 2 s for the imports of a new process, and the launches: 2 ms for each program of a row kernel.
    """
    mark = new_mark()
    try:
        packed = pack(target).content
        words = command("triton_ops.lint.run.child", os.getpid(), leftovers=Leftovers(mark))
    except (KernelTypeError, DeviceError) as error:
        return RunRecord(whole=f"it cannot be run in another process: {error.message}")
    request = pickle.dumps(Request(packed, Surroundings.here(), limit_s))
    environment = settings.for_child({**compiler_environment(), "TRITON_INTERPRET": "1"}, mark)
    try:
        done = subprocess.run(
            words, input=request, capture_output=True, env=environment, timeout=2 * limit_s + _BEGIN_S, check=False,
            start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return RunRecord(whole=f"the interpreter did not end within {2 * limit_s + _BEGIN_S:g} s")
    finally:
        end_family(mark)
    try:
        return _record(json.loads(done.stdout))
    except ValueError:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
        return RunRecord(whole=f"the process that ran it ended with code {done.returncode}: {last[0][:200]}")


def _record(told: dict[str, Any]) -> RunRecord:
    reasons = {(kind, kernel): why for kind, kernel, why in told["open"]}
    return RunRecord(tuple(Seen(**one) for one in told["seen"]), frozenset(told["kernels"]), told["whole"], reasons)
