"""A way to compile a model in a process of its own: its station there, the handle here, and rounds over several.

What the compiler writes to stderr is kept, and goes with the next answer: Inductor's autotune tables are told nowhere
else. A visit of a round is a question to a process. A sample is the time of back-to-back calls until the device is
done, so that the host's part of a call counts as it does in use: on a GPU between a pair of events.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

from triton_ops.backend import CandidateError, Packed, Protection
from triton_ops.base import Count, NotNegative, fingerprint, require
from triton_ops.device import TorchDevice
from triton_ops.evaluation import Contender
from triton_ops.exceptions import TritonKernelError
from triton_ops.processes import import_heavy
from triton_ops.request import Patience
from triton_ops.timing import Sampler
from triton_ops.values import Status, Tolerance
from triton_ops_torch.call_profile import PeakMemory, compile_seconds, graphs_and_breaks, kernels_of
from triton_ops_torch.compile_mode import INDUCTOR, CompileMode, compiled
from triton_ops_torch.compiler_output import CompilerLog
from triton_ops_torch.model_workload import Loss, ModelRunner, ModelWorkload, Verification

Tell: TypeAlias = "Callable[[str], None]"
LOADING, REFERENCE, COMPILING, CALLING = "loading", "reference", "compilation", "call"
"""The steps that a worker announces."""


@dataclass(frozen=True, kw_only=True)
class CallManner:
    """Settings of calls and of their checks, the same for all modes.

    `seed` is torch's before the model is made, `warmup` the calls that are made in any case before times count. None
    and an empty text leave torch's `threads` on a CPU and its precision of products of float32 as they are.
    """

    training: bool = False
    tolerance: Tolerance = field(default_factory=Tolerance)
    seed: int = 0
    warmup: int = 3
    threads: int | None = None
    matmul_precision: str = ""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """State of a mode before its times count: the figures of `ModeResult` under the same names.

    `compile_s` is what torch's compiler counts, 0 if nothing was compiled. `kernels` are on a CPU operators and
    generated loops, `peak_bytes` of the GPU what torch holds and on a CPU the process's own. `facts` is a fingerprint
    of the workload.
    """

    calls_s: tuple[NotNegative, ...]
    compile_s: NotNegative = 0.0
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
class ModeTrial:
    """The trial of a way to compile; `loaded` is None if it failed, `lines` are what its process wrote to stderr."""

    status: Status = Status.OK
    error: str = ""
    loaded: Loaded | None = None
    lines: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Tell whether the way works."""
        return self.status is Status.OK


@dataclass(frozen=True)
class ModeAttempt:
    """The question to make a model, to compile it, to check its results, and to call it until it is steady.

    `packed` makes the workload: a function without arguments, and the loss or None.
    """

    packed: bytes
    step: ClassVar[str] = LOADING

    def answered_by(self, station: ModeStation) -> ModeTrial:
        """The trial of the model under the station's mode."""
        return station.load(self.packed)

    def fits(self, value: object) -> bool:
        """True if a value answers this question."""
        return isinstance(value, ModeTrial)


class VisitTimes(NamedTuple):
    """Samples of each call in milliseconds, and the new lines of stderr."""

    samples_ms: list[list[float]]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Visit:
    """The question for some samples of each call."""

    samples: int
    step: ClassVar[str] = CALLING

    def answered_by(self, station: ModeStation) -> VisitTimes:
        """The samples of the station's model."""
        return station.visit(self.samples)

    def fits(self, value: object) -> bool:
        """True if a value answers this question."""
        return isinstance(value, VisitTimes)


@dataclass(frozen=True, kw_only=True)
class ModeAssignment:
    """A way to compile a model, as a worker process loads it.

    `needs` are the packages that the process imports as it starts, which are none, and the GPU that it readies early,
    empty where it is not known; `environment` says where its compiler keeps files, and what it logs.
    """

    way: CompileMode
    manner: CallManner
    patience: Patience
    needs: tuple[tuple[str, ...], str] = ((), "")
    environment: Mapping[str, str] = field(default_factory=dict)
    loaded: ClassVar[str] = "a way to compile a model"

    @property
    def limits_s(self) -> dict[str, float]:
        """Limits of the steps in seconds."""
        own = self.patience
        return {LOADING: own.setup_s, REFERENCE: own.setup_s, COMPILING: own.compile_s, CALLING: own.launch_s}

    def station(self, tell: Tell) -> ModeStation:
        """The station in the worker, which keeps what is written to stderr from now on.

        Torch's log handlers take the stderr of its import, so that no worker imports torch before.
        """
        lines = KeptLines(sys.stderr)
        sys.stderr = lines
        return ModeStation(self, tell, lines)


# Torch warms up in the pool of the graph: pytorch/pytorch#96433.
LEAST_CALLS = 3
"""With CUDA graphs the first call runs as usual, the second records, and the third is the first that replays."""
MOST_CALLS = 20
_ALIKE = 1.25  # times: two calls that differ by less are taken for steady


def is_steady(calls_s: Sequence[float], busy: bool, least: int = LEAST_CALLS) -> bool:
    """Tell whether enough calls were made; `busy` says that the last one compiled or recorded something."""
    if len(calls_s) < least or busy:
        return False
    if len(calls_s) >= MOST_CALLS:
        return True
    low, high = sorted(calls_s[-2:])
    return high <= _ALIKE * low


_SAMPLE_MS = 5.0  # of back-to-back calls, at the end of which the device is waited for
_WARM_S = 60.0  # of calls that do not become steady
_COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")


class ModeStation:
    """A model under one way to run it, in a process of its own; `tell` is called with each step that begins."""

    def __init__(self, assignment: ModeAssignment, tell: Tell, lines: KeptLines) -> None:
        self._assignment, self._tell, self._lines = assignment, tell, lines
        self._mode, self._manner = assignment.way, assignment.manner
        self._first_s = 0.0
        self._state = Protection(())
        self._samplers: list[Sampler] = []  # of each call of the workload

    def load(self, packed: bytes) -> ModeTrial:
        """Make the model, and try it; a `TritonKernelError` if there is none."""
        self._tell(LOADING)
        manner = self._manner
        packages = ["torch", *([] if self._mode.eager else ["torch._dynamo"])]  # else the first call would pay for them
        packages += ["torch._inductor.compile_fx"] if self._mode.backend == INDUCTOR else []
        import_heavy(packages, "compiling a model")
        TorchDevice(self._assignment.needs[1]).stay()
        torch: Any = require("torch", "compiling a model")
        if manner.threads is not None:
            torch.set_num_threads(manner.threads)
        if manner.matmul_precision not in ("", torch.get_float32_matmul_precision()):
            torch.set_float32_matmul_precision(manner.matmul_precision)
        # A factory draws weights and inputs, which must be alike in all processes.
        torch.manual_seed(manner.seed)
        make, loss = Packed.loaded(packed)
        workload: ModelWorkload = make()
        TorchDevice(workload.device_name).stay()  # a factory chooses it
        return replace(self.tried(workload, loss), lines=self._lines.fresh())

    def tried(self, workload: ModelWorkload, loss: Loss | None = None) -> ModeTrial:
        """Compile a model, check it and warm it up; what that took, or why it does not work."""
        self._torch: Any = require("torch", "compiling a model")
        self._workload, self._loss, self._device = workload, loss, workload.device_name
        self._step = self._runner(workload.model)
        try:
            return ModeTrial(loaded=self._ready())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a candidate may raise anything, and others go on
            failure = failure_of(error)
            return ModeTrial(failure.status, str(failure))

    def visit(self, samples: int) -> VisitTimes:
        """Take samples of the model; a `TritonKernelError` says what it raised."""
        try:
            return VisitTimes(self._samples_ms(samples), self._lines.fresh())
        except Exception as error:
            raise TritonKernelError(str(failure_of(error))) from error

    def _samples_ms(self, samples: int) -> list[list[float]]:
        """Samples of one call, a list for each call of the workload."""
        times_ms: list[list[float]] = []
        for sampler in self._samplers:
            sampler.queue(1)()  # another process ran before: caches are empty, and the host's clock has sunk
            times_ms.append(sampler.queue(samples)())
        return times_ms

    def _ready(self) -> Loaded:
        torch, workload = self._torch, self._workload
        torch.set_grad_enabled(self._manner.training)
        self._tell(REFERENCE)
        inputs = [tensor for call in workload.calls for tensor in call.tensors()]
        self._state = Protection([*workload.buffers.values(), *inputs])
        eager = self._runner(workload.model)
        verification = Verification(workload, eager, self._manner.tolerance)
        self._tell(COMPILING)
        if not self._mode.eager:
            torch._dynamo.reset()
            self._step = self._runner(compiled(workload.model, self._mode))
        errors = self._check(verification)
        calls_s = self._warmed()
        errors += self._check(verification)  # a recorded graph may compute something else than the first call
        notes, sizes = tuple(verification.notes), [error for error in errors if error is not None]
        # Golden results of higher precision would lie in memory while calls are timed.
        del verification
        calls = [partial(self._step, call) for call in workload.calls]
        self._samplers = [Sampler.of_calls(call, self._device, _SAMPLE_MS) for call in calls]
        return self._loaded(calls_s, max(sizes, default=None), notes)

    def _check(self, verification: Verification) -> list[float | None]:
        """Check the results of each call; the seconds of the first round of calls are kept."""
        errors: list[float | None] = []
        self._state.restore()  # calls before this one may have changed buffers and inputs
        took_s = 0.0
        for number, call in enumerate(self._workload.calls):
            start = time.perf_counter()
            results = self._step.results(call)
            self._wait()
            took_s += time.perf_counter() - start
            fault = verification.fault(number, results)
            if fault and not self._mode.eager:
                where = f"call {number}: " if len(self._workload.calls) > 1 else ""
                what = "the output, the gradients, the buffers or the inputs after the call are wrong"
                raise CandidateError(Status.WRONG, f"{where}{what}: {fault}")
            errors.append(verification.error(number, results))
            del results  # memory of a recorded graph must not be held during the next call
        self._first_s = self._first_s or took_s
        return errors

    def _warmed(self) -> list[float]:
        """Seconds of the first calls, which are made until they are steady."""
        self._tell(CALLING)
        calls_s = [self._first_s]
        before, until = self._events(), time.perf_counter() + _WARM_S
        while True:
            start = time.perf_counter()
            for call in self._workload.calls:
                self._step(call)
            self._wait()
            calls_s.append(time.perf_counter() - start)
            events = self._events()
            late = time.perf_counter() > until and len(calls_s) >= self._manner.warmup
            if late or is_steady(calls_s, events != before, self._manner.warmup):
                return calls_s
            before = events

    def _loaded(self, calls_s: Sequence[float], error: float | None, notes: tuple[str, ...]) -> Loaded:
        """The state before times count, after a first sample."""
        # From here on, so that neither compilation nor the golden results are in the peak.
        memory = PeakMemory(self._device)
        kernels = [kernels_of(partial(self._step, call), self._device) for call in self._workload.calls]
        self._samples_ms(1)
        log, (graphs, breaks) = self._lines.log(), graphs_and_breaks()
        return Loaded(
            calls_s=tuple(calls_s), compile_s=compile_seconds(), recordings=log.recordings,
            recompiles=len(log.recompiled), graphs=graphs, breaks=breaks,
            kernels=None if None in kernels else sum(each or 0 for each in kernels), peak_bytes=memory.bytes(),
            max_error=error, label=self._workload.label, device_name=self._device,
            facts=fingerprint(self._workload.facts), notes=notes,
        )  # fmt: skip

    def _runner(self, function: Any) -> ModelRunner:
        return ModelRunner(self._workload, function, training=self._manner.training, loss=self._loss)

    def _events(self) -> tuple[int, int]:
        log = self._lines.log()
        return log.recordings, len(log.recompiled)

    def _wait(self) -> None:
        if self._device.startswith("cuda"):
            self._torch.cuda.synchronize(self._device)


def failure_of(error: BaseException) -> CandidateError:
    """A mode's failure: out of memory, refused by the compiler, or raised when it ran.

    The reason of an error that Dynamo has wrapped is the inner one.
    """
    if isinstance(error, CandidateError):
        return error
    compiling = any(kind.__module__.startswith(_COMPILER) for kind in type(error).__mro__)
    inner = getattr(error, "inner_exception", None)
    status = CandidateError.of(error, Status.COMPILE if compiling else Status.RUNTIME).status
    return CandidateError(status, CandidateError.one_line(inner if isinstance(inner, BaseException) else error))


_MOST_LINES = 20_000  # writes, each a line or a part of one: warnings in a loop must not fill the memory


class KeptLines(io.TextIOBase):
    """A text stream that keeps what is written to it, and passes it on."""

    def __init__(self, beyond: Any) -> None:
        self._beyond = beyond
        self._text: list[str] = []
        self._reported = 0

    def write(self, text: str) -> int:
        """Keep `text`, and pass it on."""
        if len(self._text) < _MOST_LINES:
            self._text.append(text)
        with contextlib.suppress(OSError):  # the parent has closed its end
            self._beyond.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream beyond."""
        with contextlib.suppress(OSError):
            self._beyond.flush()

    def log(self) -> CompilerLog:
        """Read what the compiler has said so far."""
        return CompilerLog.read("".join(self._text).splitlines())

    def fresh(self) -> tuple[str, ...]:
        """The lines since this was last asked."""
        new, self._reported = "".join(self._text[self._reported :]).splitlines(), len(self._text)
        return tuple(new)


class ModeProcess(Contender):
    """A way to compile with the process that holds the model so.

    `lines` is what the process wrote to stderr, `earlier` what that of an interrupted run wrote, which compiled the
    mode. `samples_ms` are of one call, by kind of call. `refusal` says why there is no model.
    """

    def __init__(self, assignment: ModeAssignment) -> None:
        super().__init__(assignment.way.name, assignment)
        self.mode, self.loaded = assignment.way, Loaded(calls_s=())
        self.lines: list[str] = []
        self.earlier: list[str] = []
        self.samples_ms: list[list[float]] = []
        self.refusal: TritonKernelError | None = None

    def load(self, packed: bytes) -> ModeTrial:
        """Start the process, and have the model made, compiled, checked and called until it is steady."""
        try:
            trial: ModeTrial = self.begin(ModeAttempt(packed))
        except CandidateError as error:
            trial = ModeTrial(error.status, str(error))
        except TritonKernelError as error:
            self.refusal, trial = error, ModeTrial(Status.RUNTIME, error.message)
        self.lines += trial.lines
        self.loaded = trial.loaded or self.loaded
        if not trial.ok:
            self.close()
        return trial

    def take(self, count: int) -> list[float]:
        """Take samples now, each of a call of every kind."""
        samples_ms, lines = self.ask(Visit(count))
        self.lines += lines
        self.samples_ms = self.samples_ms or [[] for _ in samples_ms]
        for samples, new in zip(self.samples_ms, samples_ms, strict=True):
            samples += new
        return [sum(each) for each in zip(*samples_ms, strict=True)]
