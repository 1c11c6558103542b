"""The lint in a process of its own, which kernels that are read or run may end or hang.

A statement of a file can call `os._exit`, wait for ever, or take all memory, and so can what a compiler makes of a
kernel. The process says of each step that it begins; where one ends it, another process goes on without that step.

Under `TRITON_INTERPRET=1` Triton's own functions, such as `tl.sum`, are made to be interpreted when Triton is imported,
and so are kernels when their module is. Such kernels have no types and no TTIR, in this process for good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from triton_ops.backend import CompilerNeeds, Operation, Packed
from triton_ops.exceptions import TargetError, TritonKernelError
from triton_ops.processes import WorkerLostError
from triton_ops_lint.findings import LintReport
from triton_ops_lint.memory_watch import PATIENCE, RunRecord, WatchRequest
from triton_ops_lint.workers import Workers


class LostStepError(Exception):
    """A step is left out, since it has ended a process."""


class Steps:
    """The steps of this process; `omissions` are those that are left out, with the reason.

    One that `only_reads` runs no statement that does more than to say what it is.
    """

    def __init__(self) -> None:
        self.only_reads = False
        self.tell: Callable[[str], None] = lambda _: None
        self.omissions: Mapping[str, str] = {}

    def begin(self, step: str) -> None:
        """Begin a step; raises LostStepError if it is left out."""
        if step in self.omissions:
            raise LostStepError(self.omissions[step])
        self.tell(step)


STEPS = Steps()
LIMIT_S = 60.0  # of a step: a statement of a file, a kernel that is read, a rule
_WHOLE_S = 3600.0  # of all steps of a target
_MOST_LOST = 16  # steps of a target that may end a process, each before the next try
PROGRAM = "triton_ops_lint.apart_child"
_COMPILER = ("triton", "triton.compiler.code_generator", "triton.experimental.gluon")  # which lowering imports
_HINT = "start Python without TRITON_INTERPRET, and keep code that ends or hangs out of what kernels need"
_readers = Workers(PROGRAM, _COMPILER, lambda: {**CompilerNeeds.environment(), "TRITON_INTERPRET": "0"})


@dataclass(frozen=True, kw_only=True)
class LintOptions:
    """What is asked of a target, as `lint` explains: rules, a GPU, what is run of it, and on which shape."""

    rules: tuple[str, ...] | None = None
    gpu: str
    run: bool = False
    no_run: bool = False
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class LintRequest:
    """A lint that is asked for, and the steps that are left out."""

    packed: bytes
    options: LintOptions
    with_torch: bool  # whether the process imports that for all files to come
    confined: bool  # whether the target is a file, whose code may be a stranger's
    omissions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LintReply:
    """A report or an error of the lint."""

    report: LintReport | TritonKernelError


def lint_apart(target: Any, options: LintOptions, *, with_torch: bool = False) -> LintReport:
    """As `lint`, in a process of its own, which waits a while for the next lint.

    Raises TargetError too: the target cannot be sent to another process, or ends each.

    Cost: as `lint`, and 0.5 s for the imports of a new process.
    """
    by_value = isinstance(target, Operation) and not options.run  # its file may ask for a driver; a run imports it
    with TargetError.when("no other process can read the target", "", TritonKernelError):
        packed = Packed.of(target, by_value=by_value)
    confined = isinstance(target, str) and not options.run
    words = (target,) if isinstance(target, str) else None  # a file is read in the same way by every program
    request = LintRequest(packed=packed.content, options=options, with_torch=with_torch, confined=confined)
    while True:
        try:
            reply = _readers.ask(request, LintReply, _WHOLE_S, {"": LIMIT_S, "start": _WHOLE_S}, words)
        except WorkerLostError as error:
            if error.during in request.omissions or len(request.omissions) == _MOST_LOST:
                raise TargetError(f"no process can read the target: {error}", hint=_HINT) from error
            request = replace(request, omissions={**request.omissions, error.during: str(error)})
            continue
        if isinstance(reply.report, TritonKernelError):
            raise reply.report
        return reply.report


RUN_LIMIT_S = 5.0
_runners = Workers(
    PROGRAM, ("triton", "torch"),
    lambda: {**CompilerNeeds.environment(), "TRITON_INTERPRET": "1", "TRITON_OPS_ON_MISS": "default"},
)  # fmt: skip
_BEGIN_S = 60.0  # for the imports of torch and Triton on a machine that is busy, and the module of the kernels


def run_watched(target: Any, shape: tuple[int, ...] | None = None, limit_s: float = RUN_LIMIT_S) -> RunRecord:
    """Run an operation, or a function without parameters, once by Triton's interpreter, and watch its memory.

    An operation is run with its default config on a shape, by default a small one of odd extents; a function launches
    kernels with tensors on a CPU. What is seen within `limit_s` seconds of a CPU is kept.

    Cost: 2 s for the imports of a new process, and the launches: 2 ms for each program of a row kernel.
    """
    whole_s = PATIENCE * limit_s + _BEGIN_S
    try:
        return _runners.ask(WatchRequest(Packed.of(target).content, limit_s, shape), RunRecord, whole_s, {})
    except WorkerLostError as error:
        late = f"the interpreter did not end within {whole_s:g} s"
        return RunRecord(whole=late if error.hung else f"the process that ran it failed: {error}")
    except TritonKernelError as error:
        return RunRecord(whole=f"it cannot be run in another process: {error.message}")
