"""Questions to the process of one mode, with their answers."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

from triton_ops.base import Count, NotNegative, Seconds
from triton_ops.compile_modes.inductor.modes import CompileMode
from triton_ops.exceptions import TritonKernelError
from triton_ops.processes import Surroundings
from triton_ops.values import Status, Tolerance

LOADING, REFERENCE, COMPILING, CALLING = "loading", "reference", "compilation", "call"
"""The steps that a worker announces."""


@dataclass(frozen=True, kw_only=True)
class CallManner:
    """Settings of calls and of their checks, the same for all modes.

    Attributes:
        training: Whether a call is forward and backward.
        tolerance: How far results may be off; the default is the rule for verdicts.
        seed: Torch's seed before the model is made.
        warmup: Calls that are made in any case before the times count.
        threads: Torch's number of threads on a CPU; None leaves it.
        matmul_precision: Torch's precision of products of float32; empty leaves it.
    """

    training: bool = False
    tolerance: Tolerance = field(default_factory=Tolerance)
    seed: int = 0
    warmup: int = 3
    threads: int | None = None
    matmul_precision: str = ""


@dataclass(frozen=True)
class Load:
    """The question to make a model, to compile it, to check its results, and to call it until it is steady.

    Attributes:
        packed: What makes the workload, as bytes: a function without arguments, and the loss or None.
        mode: How to compile.
        manner: How to call and judge.
        surroundings: Search path and the like for the user's code.
    """

    packed: bytes
    mode: CompileMode
    manner: CallManner
    surroundings: Surroundings = field(default_factory=Surroundings.here)


@dataclass(frozen=True)
class Visit:
    """The question for some samples of each call."""

    samples: int


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """State of a mode before its times count.

    The figures are those of `ModeResult` under the same names.

    Attributes:
        compile_s: Seconds that torch's compiler counts; 0 if nothing was compiled.
        kernels: On a CPU operators and generated loops.
        peak_bytes: Of the GPU what torch holds, on a CPU the process's own.
        label: The workload in words.
        device_name: Torch's name of its device.
        facts: A fingerprint of the workload.
        notes: What a reader should know, such as that results could not be checked.
    """

    calls_s: tuple[Seconds, ...]
    compile_s: Seconds = 0.0
    recordings: Count = 0
    recompiles: Count = 0
    graphs: Count = 0
    breaks: Count = 0
    kernels: Count | None = None
    peak_bytes: Count | None = None
    max_error: NotNegative | None = None
    label: str = ""
    device_name: str = "cpu"
    facts: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failed:
    """A mode that did not work: its status, and why."""

    status: Status
    reason: str
    _: KW_ONLY
    error: TritonKernelError | None = None


@dataclass(frozen=True)
class Reply:
    """The answer to any question.

    Attributes:
        value: A `Loaded`, a `Failed`, or samples by call.
        lines: What was written to stderr since the last answer.
    """

    value: object
    lines: tuple[str, ...] = ()
