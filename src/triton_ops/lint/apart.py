"""The lint in a process of its own, in which Triton does not interpret kernels.

Under `TRITON_INTERPRET=1` Triton's own functions, such as `tl.sum`, are made to be interpreted when Triton is imported,
and so are kernels when their module is. Such kernels have no types and no TTIR, in this process for good.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from triton_ops._optional import require
from triton_ops.backend import pack
from triton_ops.backend.offline import compiler_environment
from triton_ops.exceptions import KernelTypeError, TritonKernelError
from triton_ops.lint.findings import LintReport
from triton_ops.lint.question import asked
from triton_ops.processes.child import Surroundings

_INTERPRETED = "InterpretedFunction"
_HINT = "start Python without TRITON_INTERPRET"


@dataclass(frozen=True, kw_only=True)
class Request:
    """A lint that is asked for.

    Attributes:
        packed: The target, packed.
        rules: As for `lint`.
        gpu: As for `lint`.
        run: As for `lint`.
        surroundings: Of the process that asks.
    """

    packed: bytes
    rules: tuple[str, ...] | None
    gpu: str | None
    run: bool
    surroundings: Surroundings


def is_interpreted(function: Any) -> bool:
    """Whether a JIT function was made to be interpreted."""
    return type(function).__name__ == _INTERPRETED


def triton_interprets() -> bool:
    """Whether Triton's own functions are interpreted in this process."""
    return is_interpreted(require("triton.language", "reading kernels").sum)


def lint_apart(target: Any, rules: Sequence[str] | None, gpu: str | None, run: bool) -> LintReport:
    """As `lint`, in a process of its own.

    Cost: as `lint`, and 1 to 2 s for the imports of a new process.

    Raises:
        KernelTypeError: The target cannot be sent to another process, or is interpreted there too.
        TritonKernelError: As `lint`.
    """
    packed = pack(target).content
    request = Request(
        packed=packed, rules=None if rules is None else tuple(rules), gpu=gpu, run=run, surroundings=Surroundings.here()
    )
    done = asked("triton_ops.lint.apart_child", request, {**compiler_environment(), "TRITON_INTERPRET": "0"})
    try:
        found = pickle.loads(done.stdout)
    except Exception as error:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
        said = f"the process that reads the kernels ended with code {done.returncode}: {last[0][:200]}"
        raise KernelTypeError(said, hint=_HINT) from error
    if isinstance(found, TritonKernelError):
        raise found
    assert isinstance(found, LintReport)
    return found
