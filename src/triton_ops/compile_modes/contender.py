"""One way to run a model, in the process that measures it: made, compiled, checked, called until steady, and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from triton_ops._hashing import fingerprint
from triton_ops._optional import require
from triton_ops.backend import Arguments, Protection, one_line
from triton_ops.compile_modes.calls import is_steady
from triton_ops.compile_modes.counting import PeakMemory, compile_seconds, graphs_and_breaks, kernels_of
from triton_ops.compile_modes.questions import CALLING, COMPILING, REFERENCE, Failed, Loaded, Manner
from triton_ops.compile_modes.step import Loss, Step
from triton_ops.compile_modes.verification import Verification
from triton_ops.compile_modes.workload import Workload
from triton_ops.evaluation.criteria import Difference
from triton_ops.inductor.gate import open_gate
from triton_ops.inductor.logs import CompilerLog
from triton_ops.inductor.modes import CompileMode
from triton_ops.measure import HostTimer, Launch, Sampler
from triton_ops.trial import Status

_SAMPLE_MS = 5.0  # of back-to-back calls, at the end of which the device is waited for
_MOST_CALLS = 1 << 14
_WARM_S = 60.0  # of calls that do not become steady
_COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")

Tell = Callable[[str], None]
ReadLog = Callable[[], CompilerLog]


class WrongError(Exception):
    """The compiled model computes something else; the text says how."""


class Contender:
    """A model under one way to run it.

    Args:
        workload: The model and its calls.
        loss: The loss of a training step; None takes the usual one.
        mode: How to compile.
        manner: How to call and judge.
        tell: Called with the name of each step that begins.
        log: What the compiler has written so far.
    """

    def __init__(
        self, workload: Workload, loss: Loss | None, mode: CompileMode, manner: Manner, tell: Tell, log: ReadLog
    ) -> None:
        self._workload, self._mode, self._manner = workload, mode, manner
        self._loss, self._tell, self._log = loss, tell, log
        self._torch: Any = require("torch", "compiling a model")
        self._device = workload.device_name
        self._step = self._made(workload.model)
        self._first_s = 0.0
        self._state = Protection(())
        self._samplers: list[Sampler] = []
        self._launches: list[int] = []

    def ready(self) -> Loaded | Failed:
        """Compile, check and warm up; what that took, or why it does not work."""
        try:
            return self._ready()
        except WrongError as error:
            return Failed(Status.WRONG, str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a candidate may raise anything, and others go on
            return Failed(status_of(error), reason_of(error))

    def visit(self, samples: int) -> list[list[float]]:
        """Samples in milliseconds per call, a list for each call of the workload."""
        found: list[list[float]] = []
        for sampler, launches in zip(self._samplers, self._launches, strict=True):
            sampler.queue(1)()  # another process ran before: caches are empty, and the host's clock has sunk
            found.append([each / launches for each in sampler.queue(samples)()])
        return found

    def _ready(self) -> Loaded:
        torch, workload = self._torch, self._workload
        torch.set_grad_enabled(self._manner.training)
        self._tell(REFERENCE)
        inputs = [tensor for call in workload.calls for tensor in call.tensors()]
        self._state = Protection([*workload.buffers.values(), *inputs])
        eager = self._made(workload.model)
        verification = Verification(workload, eager, self._manner.tolerance)
        self._tell(COMPILING)
        if not self._mode.eager:
            torch._dynamo.reset()
            if self._mode.ungated:
                open_gate()
            self._step = self._made(torch.compile(workload.model, **self._mode.arguments()))
        errors = self._checked(verification)
        calls_s = self._warmed()
        errors += self._checked(verification)  # a recorded graph may compute something else than the first call
        notes, known = tuple(verification.notes), [error for error in errors if error is not None]
        del verification
        self._calibrate()
        return self._loaded(calls_s, max(known, default=None), notes)

    def _checked(self, verification: Verification) -> list[float | None]:
        """Check the results of each call; the seconds of the first round of calls are kept."""
        errors: list[float | None] = []
        self._state.restore()  # calls before this one may have changed buffers and inputs
        took_s = 0.0
        for number, call in enumerate(self._workload.calls):
            begun = time.perf_counter()
            results = self._step.results(call)
            self._wait()
            took_s += time.perf_counter() - begun
            found = verification.difference(number, results)
            if found is not None and not self._mode.eager:
                raise WrongError(_wrong(found, number, len(self._workload.calls)))
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
            begun = time.perf_counter()
            for call in self._workload.calls:
                self._step(call)
            self._wait()
            calls_s.append(time.perf_counter() - begun)
            events = self._events()
            late = time.perf_counter() > until and len(calls_s) >= self._manner.warmup
            if late or is_steady(calls_s, events != before, self._manner.warmup):
                return calls_s
            before = events

    def _loaded(self, calls_s: Sequence[float], error: float | None, notes: tuple[str, ...]) -> Loaded:
        memory = PeakMemory(self._device)
        kernels = [kernels_of(self._batch_of(call, 1), self._device) for call in self._workload.calls]
        self.visit(1)
        log, (graphs, breaks) = self._log(), graphs_and_breaks()
        return Loaded(
            calls_s=tuple(calls_s),
            compile_s=compile_seconds(),
            recordings=log.recordings,
            recompiles=len(log.recompiled),
            graphs=graphs,
            breaks=breaks,
            kernels=None if None in kernels else sum(each or 0 for each in kernels),
            peak_bytes=memory.bytes(),
            max_error=error,
            label=self._workload.label,
            device_name=self._device,
            facts=fingerprint(self._workload.facts),
            notes=notes,
        )

    def _calibrate(self) -> None:
        """Find how many calls make a sample long enough, for each call of the workload."""
        self._samplers, self._launches = [], []
        for batch in map(self._batches_of, self._workload.calls):
            count, took_ms = 1, _timed_ms(batch, 1)
            while took_ms < _SAMPLE_MS and count < _MOST_CALLS:
                count = min(max(2 * count, round(1.2 * count * _SAMPLE_MS / max(took_ms, 1e-3))), 100 * count)
                took_ms = _timed_ms(batch, count)
            self._launches.append(count)
            self._samplers.append(HostTimer().prepare(Launch(_bound(batch, count)), 1))

    def _batches_of(self, call: Arguments) -> Callable[[int], None]:
        step, wait = self._step, self._wait

        def batch(count: int) -> None:
            for _ in range(count):
                step(call)
            wait()

        return batch

    def _batch_of(self, call: Arguments, count: int) -> Callable[[], None]:
        return _bound(self._batches_of(call), count)

    def _made(self, run: Any) -> Step:
        return Step(self._workload, run, training=self._manner.training, loss=self._loss)

    def _events(self) -> tuple[int, int]:
        log = self._log()
        return log.recordings, len(log.recompiled)

    def _wait(self) -> None:
        if self._device.startswith("cuda"):
            self._torch.cuda.synchronize(self._device)


def status_of(error: BaseException) -> Status:
    """In which status a mode ends that raised: out of memory, refused by the compiler, or raised when it ran."""
    kinds = [f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__]
    if "torch.OutOfMemoryError" in kinds or any(kind.endswith(".OutOfMemoryError") for kind in kinds):
        return Status.RESOURCES
    return Status.COMPILE if any(kind.startswith(_COMPILER) for kind in kinds) else Status.RUNTIME


def reason_of(error: BaseException) -> str:
    """Why it raised, in one line: of an error that Dynamo has wrapped, the inner one."""
    inner = getattr(error, "inner_exception", None)
    return one_line(inner if isinstance(inner, BaseException) else error)


def _wrong(found: Difference, number: int, of: int) -> str:
    where = f"call {number}: " if of > 1 else ""
    return f"{where}the output, the gradients, the buffers or the inputs after the call are wrong: {found.text}"


def _bound(batch: Callable[[int], None], count: int) -> Callable[[], None]:
    return lambda: batch(count)


def _timed_ms(batch: Callable[[int], None], count: int) -> float:
    begun = time.perf_counter()
    batch(count)
    return 1e3 * (time.perf_counter() - begun)
