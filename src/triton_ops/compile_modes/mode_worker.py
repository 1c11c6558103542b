"""The station of a process that holds one compiled model.

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
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, TypeAlias

from triton_ops.backend import Arguments, CandidateError, Protection, one_line, unpack
from triton_ops.base import Count, NotNegative, fingerprint, require
from triton_ops.compile_modes.backends import open_gate
from triton_ops.compile_modes.compile_mode import INDUCTOR, CompileMode
from triton_ops.compile_modes.compiler_output import CompilerLog
from triton_ops.compile_modes.model_workload import Loss, ModelRunner, ModelWorkload, Verification
from triton_ops.device import TorchDevice
from triton_ops.evaluation import Attempt
from triton_ops.exceptions import TritonKernelError
from triton_ops.processes import import_heavy
from triton_ops.request import Effort, Patience
from triton_ops.space import Config
from triton_ops.timing import HostTimer, Launch, Sampler
from triton_ops.values import Measurement, Status, Tolerance, Trial

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


Tell: TypeAlias = "Callable[[str], None]"
ReadLog: TypeAlias = "Callable[[], CompilerLog]"
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


@dataclass(frozen=True, kw_only=True)
class ModeTrial(Trial):
    """The trial of a way to compile; `loaded` is None if it failed, `lines` are what its process wrote to stderr."""

    loaded: Loaded | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModeAttempt(Attempt):
    """The question to make a model, to compile it, to check its results, and to call it until it is steady.

    `packed` makes the workload: a function without arguments, and the loss or None.
    """

    packed: bytes = b""
    step: ClassVar[str] = LOADING

    def answered_by(self, station: ModeStation) -> ModeTrial:
        """The trial of the model under the station's mode."""
        return station.load(self.config, self.packed)


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

    `device` is the GPU that the process readies early, empty where it is not known; `environment` says where its
    compiler keeps files, and what it logs.
    """

    way: CompileMode
    manner: CallManner
    patience: Patience
    device: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    baseline: None = None
    mode: str | None = "wall"
    imports: tuple[str, ...] = ()  # torch's log handlers take the stderr of its import, which `station` replaces before

    @property
    def problem(self) -> str:
        """The way to compile, by its name."""
        return self.way.name

    @property
    def effort(self) -> Effort:
        """The limits of the steps."""
        return Effort(name="compile modes", patience=self.patience)

    @property
    def needs(self) -> tuple[tuple[str, ...], str]:
        """The GPU of the process, which imports nothing as it starts."""
        return (), self.device

    @property
    def limits_s(self) -> dict[str, float]:
        """Limits of the steps in seconds."""
        load_s, compile_s, call_s = self.patience.setup_s, self.patience.compile_s, self.patience.launch_s
        return {LOADING: load_s, REFERENCE: load_s, COMPILING: compile_s, CALLING: call_s}

    def allocator(self) -> None:
        """Triton's own."""

    def station(self, tell: Tell) -> ModeStation:
        """The station in the worker, which keeps what is written to stderr from now on."""
        lines = KeptLines(sys.stderr)
        sys.stderr = lines
        return ModeStation(self, tell, lines)


class ModeStation:
    """A model under one way to run it, in a process of its own."""

    facts = None

    def __init__(self, assignment: ModeAssignment, tell: Tell, lines: KeptLines) -> None:
        self._assignment, self._tell, self._lines = assignment, tell, lines
        self._contender: ModeContender | None = None

    def load(self, config: Config, packed: bytes) -> ModeTrial:
        """Make the model, and try it; a `TritonKernelError` if there is none."""
        self._tell(LOADING)
        way, manner = self._assignment.way, self._assignment.manner
        packages = ["torch", *([] if way.eager else ["torch._dynamo"])]  # else the first call would pay for them
        packages += ["torch._inductor.compile_fx"] if way.backend == INDUCTOR else []
        import_heavy(packages, "compiling a model")
        TorchDevice(self._assignment.device).stay()
        torch: Any = require("torch", "compiling a model")
        if manner.threads is not None:
            torch.set_num_threads(manner.threads)
        if manner.matmul_precision not in ("", torch.get_float32_matmul_precision()):
            torch.set_float32_matmul_precision(manner.matmul_precision)
        torch.manual_seed(manner.seed)
        make, loss = unpack(packed)
        workload: ModelWorkload = make()
        TorchDevice(workload.device_name).stay()  # a factory chooses it
        self._contender = ModeContender(workload, loss, way, manner, self._tell, self._lines.log)
        return replace(self._contender.ready(config), lines=self._lines.fresh())

    def visit(self, samples: int) -> VisitTimes:
        """Take samples of the model; a `TritonKernelError` says what it raised."""
        if self._contender is None:
            raise TritonKernelError("a process without a model was asked for its times")
        try:
            return VisitTimes(self._contender.visit(samples), self._lines.fresh())
        except Exception as error:
            raise TritonKernelError(str(failure_of(error))) from error


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


def is_steady(calls_s: Sequence[float], busy: bool, least: int = LEAST_CALLS) -> bool:
    """Tell whether enough calls were made; `busy` says that the last one compiled or recorded something."""
    if len(calls_s) < least or busy:
        return False
    if len(calls_s) >= MOST_CALLS:
        return True
    low, high = sorted(calls_s[-2:])
    return high <= _ALIKE * low


_SAMPLE_MS = 5.0  # of back-to-back calls, at the end of which the device is waited for
_MOST_CALLS = 1 << 14
_WARM_S = 60.0  # of calls that do not become steady
_COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")


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

    def ready(self, config: Config) -> ModeTrial:
        """Compile, check and warm up; what that took, or why it does not work."""
        try:
            loaded, samples_ms = self._ready()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a candidate may raise anything, and others go on
            failure = failure_of(error)
            return ModeTrial(config, failure.status, error=str(failure))
        return ModeTrial(config, Status.OK, Measurement(samples_ms, "wall"), loaded=loaded)

    def visit(self, samples: int) -> list[list[float]]:
        """Samples in milliseconds per call, a list for each call of the workload."""
        times_ms: list[list[float]] = []
        for sampler, launches in zip(self._samplers, self._launches, strict=True):
            sampler.queue(1)()  # another process ran before: caches are empty, and the host's clock has sunk
            times_ms.append([each / launches for each in sampler.queue(samples)()])
        return times_ms

    def _ready(self) -> tuple[Loaded, tuple[float, ...]]:
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
            fault = verification.fault(number, results)
            if fault and not self._mode.eager:
                raise CandidateError(Status.WRONG, _fault_text(fault, number, len(self._workload.calls)))
            errors.append(verification.error(number, results))
            del results  # memory of a recorded graph must not be held during the next call
        self._first_s = self._first_s or took_s
        return errors

    def _warmed(self) -> list[float]:
        """NotNegative of the first calls, which are made until they are steady."""
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

    def _loaded(
        self, calls_s: Sequence[float], error: float | None, notes: tuple[str, ...]
    ) -> tuple[Loaded, tuple[float, ...]]:
        """The state before times count, and a first sample."""
        memory = PeakMemory(self._device)
        kernels = [kernels_of(partial(self._batches_of(call), 1), self._device) for call in self._workload.calls]
        samples_ms = tuple(map(sum, zip(*self.visit(1), strict=True)))
        log, (graphs, breaks) = self._log(), graphs_and_breaks()
        loaded = Loaded(
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
        return loaded, samples_ms

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


def failure_of(error: BaseException) -> CandidateError:
    """A mode's failure: out of memory, refused by the compiler, or raised when it ran.

    The reason of an error that Dynamo has wrapped is the inner one.
    """
    if isinstance(error, CandidateError):
        return error
    compiling = any(kind.__module__.startswith(_COMPILER) for kind in type(error).__mro__)
    inner = getattr(error, "inner_exception", None)
    status = CandidateError.of(error, Status.COMPILE if compiling else Status.RUNTIME).status
    return CandidateError(status, one_line(inner if isinstance(inner, BaseException) else error))


def _fault_text(fault: str, number: int, of: int) -> str:
    where = f"call {number}: " if of > 1 else ""
    return f"{where}the output, the gradients, the buffers or the inputs after the call are wrong: {fault}"


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
