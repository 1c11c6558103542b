"""The program of a process that holds one compiled model.

What the compiler writes to stderr is kept, and goes with the next answer: Inductor's autotune tables are told nowhere
else.

Facts used, of torch 2.11 to 2.15: `torch._dynamo.utils.counters` counts graphs and graph breaks, its
`compilation_time_metrics` holds seconds by stage, and `PyCodeCache.modules` of `torch._inductor.codecache` the modules
with generated code: each C++ function is a text there, and is called by a name of its module, once or often. Where the
option `cpp_wrapper` is set, the calls are C++ too, and the text `cpp_wrapper_src` holds everything.
(`torch._inductor.metrics` counts kernels too, those that the C++ backend has tried and thrown away among them, and none
that come from a cache.) What a torch does not tell is not known, and no error.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from triton_ops.backend import Arguments, Protection, one_line, unpack
from triton_ops.base import fingerprint, require
from triton_ops.compile_modes.backends import open_gate
from triton_ops.compile_modes.compile_mode import CompileMode
from triton_ops.compile_modes.compiler_output import CompilerLog
from triton_ops.compile_modes.mode_process import (
    CALLING,
    COMPILING,
    LOADING,
    REFERENCE,
    CallManner,
    Failed,
    Load,
    Loaded,
    Reply,
    Visit,
)
from triton_ops.compile_modes.model_workload import Loss, ModelRunner, ModelWorkload, Verification
from triton_ops.device import TorchDevice
from triton_ops.evaluation import Difference
from triton_ops.exceptions import TritonKernelError
from triton_ops.processes import ChildsEnd, Leftovers, StepStarted, die_with, import_heavy
from triton_ops.timing import HostTimer, Launch, Sampler
from triton_ops.values import Status

_UTILS = "torch._dynamo.utils"
_CODE_CACHE = "torch._inductor.codecache"
_FUNCTION = re.compile(r'^extern "C".*?^}', re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^(?P<name>\w+) = async_compile\.\w+\((?P<code>.*?)^'''", re.MULTILINE | re.DOTALL)
_ALL_IN_CPP = "cpp_wrapper_src"
_PRODUCT = "CppMicroGemm"  # a template's loops over tiles are one loop to its user
_COMPILING = ("_compile.compile_inner", "entire_frame_compile")
_NO_WORK = re.compile(
    r"aten::(t|view\w*|_unsafe_view|reshape\w*|_reshape_\w+|transpose\w*|permute|expand\w*|as_strided\w*|empty\w*|"
    r"select\w*|slice\w*|unsqueeze\w*|squeeze\w*|detach\w*|alias|split\w*|unbind\w*|resolve_\w+|set_\w*|result_type|"
    r"numpy_T|lift_fresh|is_\w+|resize_\w*|narrow|chunk|unflatten|flatten|_has_\w+|item|_local_scalar_dense)"
)


def compile_seconds() -> float:
    """Seconds that torch's compiler says it has compiled in this process."""
    metrics = getattr(sys.modules.get(_UTILS), "compilation_time_metrics", {})
    return next((float(sum(metrics[name])) for name in _COMPILING if metrics.get(name)), 0.0)


def graphs_and_breaks() -> tuple[int, int]:
    """Graphs that were compiled in this process, and breaks at which a model had to be left to Python."""
    counters = getattr(sys.modules.get(_UTILS), "counters", {})
    return int(counters.get("stats", {}).get("unique_graphs", 0)), sum(counters.get("graph_break", {}).values())


def kernels_of(call: Callable[[], Any], device_name: str) -> int | None:
    """Kernels that a call launches; on a CPU operators and generated loops, each as often as the call runs it.

    The call runs once, under torch's profiler; None where that does not work, or where the calls are C++ too.
    """
    torch = require("torch", "counting kernels")
    with contextlib.suppress(RuntimeError), _counted_loops() as loops:
        with profiler(device_name) as profile:
            call()
        if device_name.startswith("cuda"):
            device = torch.autograd.DeviceType.CUDA
            kernels = [each.name.lower() for each in profile.events() if each.device_type == device]
            return len([name for name in kernels if not name.startswith(("memcpy", "memset"))])
        if not any(hasattr(module, _ALL_IN_CPP) for module in _generated_modules()):
            return len([each for each in profile.events() if _does_work(each)]) + sum(loops)
    return None


def profiler(device_name: str, **more: Any) -> Any:
    """Torch's profiler for a device, with further options; it keeps its events, since torch 2.11 else warns."""
    torch: Any = require("torch", "profiling a model")
    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CPU, *([kinds.CUDA] if device_name.startswith("cuda") else [])]
    return torch.profiler.profile(activities=activities, acc_events=True, **more)


class PeakMemory:
    """The most memory on a device since this object was made."""

    def __init__(self, device_name: str) -> None:
        self._gpu = device_name if device_name.startswith("cuda") else None
        if self._gpu is not None:
            cuda = require("torch", "asking the GPU").cuda
            cuda.empty_cache()
            cuda.reset_peak_memory_stats(self._gpu)
        else:
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew

    def bytes(self) -> int | None:
        """Bytes that torch holds of the GPU's memory, or this process of the host's; None where that is not told."""
        if self._gpu is not None:
            return int(require("torch", "asking the GPU").cuda.max_memory_reserved(self._gpu))
        try:
            lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            return None
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)


def loops_in(generated: str) -> int:
    """Count the loops over data in generated C++ code that lie in no other. A function without any is one."""
    total = 0
    for function in _FUNCTION.findall(generated):
        loops, outer = 0, ""
        for line in function.splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            if not outer and line.lstrip().startswith("for("):
                loops, outer = loops + 1, f"{indent}}}"
            elif line.rstrip() == outer:
                outer = ""
        total += 1 if _PRODUCT in function else max(loops, 1)
    return total


@contextlib.contextmanager
def _counted_loops() -> Iterator[list[int]]:
    """The loops of each generated function that is called while this lasts, once for each call."""
    counts: list[int] = []
    with contextlib.ExitStack() as undo:
        for module in _generated_modules():
            for name, loops in _loops_by_name(module).items():
                function = getattr(module, name, None)
                if callable(function):
                    undo.callback(setattr, module, name, function)
                    setattr(module, name, partial(_counted_call, function, counts, loops))
        yield counts


def _counted_call(function: Callable[..., Any], counts: list[int], loops: int, *args: Any) -> Any:
    counts.append(loops)
    return function(*args)


def _generated_modules() -> list[ModuleType]:
    """The modules with code that torch's compiler has written or loaded in this process, each once."""
    modules = getattr(getattr(sys.modules.get(_CODE_CACHE), "PyCodeCache", None), "modules", ())
    return list(dict.fromkeys(modules))


def _loops_by_name(module: ModuleType) -> dict[str, int]:
    """Loops of each C++ function of a generated module, by the name under which the module calls it."""
    with contextlib.suppress(OSError):  # it was cleaned away
        text = Path(str(module.__file__)).read_text(encoding="utf-8", errors="replace")
        return {each["name"]: loops_in(each["code"]) for each in _NAMED.finditer(text)}
    return {}


def _does_work(event: Any) -> bool:
    """Tell whether an operator of a profile calls no other one, and does more than give a tensor another form."""
    inner = [child for child in event.cpu_children if not _NO_WORK.fullmatch(child.name)]
    return "::" in event.name and not inner and not _NO_WORK.fullmatch(event.name)


LEAST_CALLS = 3
"""With CUDA graphs the first call runs as usual, the second records, and the third is the first that replays."""
MOST_CALLS = 20
_ALIKE = 1.25  # times: two calls that differ by less are taken for steady
_PROTOCOL_CALLS = 50


@dataclass(frozen=True)
class FirstCalls:
    """The seconds of the first calls, in order, each waited for to its end, and what they tell."""

    calls_s: tuple[float, ...]

    @property
    def first_s(self) -> float:
        """Seconds of the first call, in which most is compiled."""
        return self.calls_s[0] if self.calls_s else 0.0

    @property
    def steady_s(self) -> float:
        """Seconds of a call when nothing is compiled or recorded any more: the median of the last two."""
        return statistics.median(self.calls_s[-2:]) if self.calls_s else 0.0

    @property
    def one_off_s(self) -> float:
        """Seconds that are paid once: how much longer the first calls took than steady ones would have."""
        return sum(max(each - self.steady_s, 0.0) for each in self.calls_s)

    def naive_ms(self) -> float:
        """The mean, in milliseconds, that 50 calls after a single warm-up call would show."""
        later = list(self.calls_s[1 : _PROTOCOL_CALLS + 1])
        return 1e3 * (sum(later) + (_PROTOCOL_CALLS - len(later)) * self.steady_s) / _PROTOCOL_CALLS


def is_steady(calls_s: Sequence[float], busy: bool, least: int = LEAST_CALLS) -> bool:
    """Tell whether enough calls were made; `busy` says that the last one compiled or recorded something."""
    if len(calls_s) < least or busy:
        return False
    if len(calls_s) >= MOST_CALLS:
        return True
    low, high = sorted(calls_s[-2:])
    return high <= _ALIKE * low


def break_even(one_off_s: float, eager_ms: float, own_ms: float) -> float:
    """After how many calls the seconds paid once are won back; infinite for a mode that is not faster than eager."""
    won_ms = eager_ms - own_ms
    return math.ceil(1e3 * one_off_s / won_ms) if won_ms > 0 else math.inf


_SAMPLE_MS = 5.0  # of back-to-back calls, at the end of which the device is waited for
_MOST_CALLS = 1 << 14
_WARM_S = 60.0  # of calls that do not become steady
_COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")

Tell = Callable[[str], None]
ReadLog = Callable[[], CompilerLog]


class WrongError(Exception):
    """The compiled model computes something else; the text says how."""


class ModeContender:
    """A model under one way to run it. `tell` is called with the name of each step that begins."""

    def __init__(
        self,
        workload: ModelWorkload,
        loss: Loss | None,
        mode: CompileMode,
        manner: CallManner,
        tell: Tell,
        log: ReadLog,
    ) -> None:
        self._workload, self._mode, self._manner = workload, mode, manner
        self._loss, self._tell, self._log = loss, tell, log
        self._torch: Any = require("torch", "compiling a model")
        self._device = workload.device_name
        self._step = self._runner(workload.model)
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
        times_ms: list[list[float]] = []
        for sampler, launches in zip(self._samplers, self._launches, strict=True):
            sampler.queue(1)()  # another process ran before: caches are empty, and the host's clock has sunk
            times_ms.append([each / launches for each in sampler.queue(samples)()])
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
            if self._mode.ungated:
                open_gate()
            self._step = self._runner(torch.compile(workload.model, **self._mode.arguments()))
        errors = self._check(verification)
        calls_s = self._warmed()
        errors += self._check(verification)  # a recorded graph may compute something else than the first call
        notes, sizes = tuple(verification.notes), [error for error in errors if error is not None]
        del verification
        self._calibrate()
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
            difference = verification.difference(number, results)
            if difference is not None and not self._mode.eager:
                raise WrongError(_fault_text(difference, number, len(self._workload.calls)))
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
        memory = PeakMemory(self._device)
        kernels = [kernels_of(partial(self._batches_of(call), 1), self._device) for call in self._workload.calls]
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
            self._samplers.append(HostTimer().prepare(Launch(partial(batch, count)), 1))

    def _batches_of(self, call: Arguments) -> Callable[[int], None]:
        step, wait = self._step, self._wait

        def batch(count: int) -> None:
            for _ in range(count):
                step(call)
            wait()

        return batch

    def _runner(self, function: Any) -> ModelRunner:
        return ModelRunner(self._workload, function, training=self._manner.training, loss=self._loss)

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
    """The reason of an error in one line: of an error that Dynamo has wrapped, the inner one."""
    inner = getattr(error, "inner_exception", None)
    return one_line(inner if isinstance(inner, BaseException) else error)


def _fault_text(difference: Difference, number: int, of: int) -> str:
    where = f"call {number}: " if of > 1 else ""
    return f"{where}the output, the gradients, the buffers or the inputs after the call are wrong: {difference.text}"


def _timed_ms(batch: Callable[[int], None], count: int) -> float:
    start = time.perf_counter()
    batch(count)
    return 1e3 * (time.perf_counter() - start)


_MOST_LINES = 20_000


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


def main() -> None:
    """Import packages, then answer questions until the pipe is closed."""
    questions, answers, parent = (int(word) for word in sys.argv[2:5])
    die_with(parent, Leftovers.own())
    lines = KeptLines(sys.stderr)
    sys.stderr = lines  # before torch is imported, whose log handlers take the stream of that moment
    if sys.argv[5].startswith("cuda"):
        TorchDevice(sys.argv[5]).make_ready()
    import_heavy(sys.argv[6:], "compiling a model")
    TorchDevice(sys.argv[5]).stay()
    connection = ChildsEnd(questions, answers)
    serve(connection.receive, connection.send, lines)


def serve(receive: Callable[[], Any], send: Callable[[Any], None], lines: KeptLines) -> None:
    """Answer the questions that `receive` gives, until it raises EOFError."""
    contender: ModeContender | None = None
    while True:
        try:
            question = receive()
        except EOFError:
            return
        value: object
        try:
            if isinstance(question, Load):
                contender = _loaded(question, lambda step: send(StepStarted(step)), lines)
                value = contender.ready()
            elif isinstance(question, Visit) and contender is not None:
                value = contender.visit(question.samples)
            else:
                raise TypeError(f"a process without a model was asked {type(question).__name__}")
        except TritonKernelError as error:
            value = Failed(status_of(error), error.message, error=error)
        except Exception as error:  # noqa: BLE001 - an answer must come: it is the row of this mode
            value = Failed(status_of(error), one_line(error))
        send(Reply(value, lines.fresh()))


def _loaded(question: Load, tell: Callable[[str], None], lines: KeptLines) -> ModeContender:
    tell(LOADING)
    question.surroundings.take()
    torch: Any = require("torch", "compiling a model")
    manner = question.manner
    if manner.threads is not None:
        torch.set_num_threads(manner.threads)
    if manner.matmul_precision not in ("", torch.get_float32_matmul_precision()):
        torch.set_float32_matmul_precision(manner.matmul_precision)
    torch.manual_seed(manner.seed)
    make, loss = unpack(question.packed)
    workload: ModelWorkload = make()
    TorchDevice(workload.device_name).stay()  # a factory chooses it
    return ModeContender(workload, loss, question.mode, manner, tell, lines.log)
