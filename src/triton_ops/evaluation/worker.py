"""The program of a worker process: it loads a task, tries configs and answers; a crash or hang here ends one trial.

Questions come through a pipe, and the process ends when the pipe is closed. The output of user code goes to stderr; the
parent keeps the last lines of stderr.

A worker that serves the next tune is as it was when it was started: its environment, folder, CPUs, umask and limits,
the settings of Python's own modules and of torch, NumPy's as it sets them when it is imported, the functions of all of
these, and no thread of the user's. What can be put back is put back. A worker in which something else has changed, or
into which a task has brought torch, serves no other tune.

A setting is read before any code of the user's runs, and written back afterwards where it differs. One that is not as
it was even then, or that nothing can put back, is told by its name.
"""

from __future__ import annotations

import contextlib
import decimal
import gc
import linecache
import locale
import logging
import os
import random
import signal
import socket
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any

from triton_ops import settings
from triton_ops.backend import CandidateError, Origin, Packed, ScratchAllocator, TritonProcess
from triton_ops.base import StoredFile, require
from triton_ops.device import TorchDevice
from triton_ops.evaluation.idle_worker import EARLY, Rest
from triton_ops.evaluation.questions import Question, Setup, WorkerAnswer
from triton_ops.exceptions import KernelTypeError, TritonKernelError
from triton_ops.processes import Child, Surroundings, import_heavy, strays

with contextlib.suppress(ImportError):  # not on Windows, where no worker is started
    import resource
_OWN_LOG = logging.getLogger("triton_ops")


@dataclass(frozen=True)
class Setting:
    """One setting of a process; `write` puts a value back, and is None for what cannot be put back."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object] | None = None

    @property
    def known(self) -> bool:
        """True if this system and this Python have the setting."""
        try:
            self.read()
        except (AttributeError, OSError, ValueError):
            return False
        return True

    def is_again(self, value: object) -> bool:
        """True if the setting has this value, after it was put back if it can be."""
        try:
            if self.write is not None and self.read() != value:
                self.write(value)
            return bool(self.read() == value)
        except Exception:  # noqa: BLE001 - what cannot be read or put back has changed
            return False


def _umask() -> int:
    os.umask(mask := os.umask(0o077))  # it is only told where it is set
    return mask


def _write_environment(before: dict[str, str]) -> None:
    settings.restore_environment(before)
    # The C library reads TZ again only when it is told to.
    time.tzset()


def _write_filters(before: tuple[object, ...]) -> None:
    warnings.resetwarnings()
    # In place: Python's own code in C holds this very list.
    filters: Any = warnings.filters
    filters.extend(before)


def _logging() -> tuple[object, ...]:
    own = [(log.level, log.disabled, log.propagate, tuple(log.handlers)) for log in (logging.root, _OWN_LOG)]
    return (logging.root.manager.disable, *own)


def _write_logging(before: tuple[Any, ...]) -> None:
    logging.disable(before[0])
    for log, (level, disabled, propagates, handlers) in zip((logging.root, _OWN_LOG), before[1:], strict=True):
        log.setLevel(level)
        log.disabled, log.propagate, log.handlers = disabled, propagates, list(handlers)


def _limits() -> dict[int, tuple[int, int]]:
    kinds = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})
    return {kind: resource.getrlimit(kind) for kind in kinds}


def _write_limits(before: dict[int, tuple[int, int]]) -> None:
    for kind, limit in _limits().items():
        if limit != before[kind]:
            resource.setrlimit(kind, before[kind])


_KINDS = ("cuda", "cpu")  # of autocast
_TORCH: Mapping[str, Callable[[Any], object]] = {
    "default dtype": lambda torch: torch.get_default_dtype(),
    "default device": lambda torch: torch.get_default_device(),
    "precision of products": lambda torch: torch.get_float32_matmul_precision(),
    "gradients": lambda torch: (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    "anomaly detection": lambda torch: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
    "deterministic algorithms": lambda torch: (
        torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    ),
    "warnings": lambda torch: torch.is_warn_always_enabled(),
    "autocast": lambda torch: [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _KINDS],
    "threads": lambda torch: torch.get_num_threads(),
    "printing": lambda torch: torch._tensor_str.PRINT_OPTS,
    "reductions in half precision": lambda torch: (
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    ),
    "cuDNN": lambda torch: (
        torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic,
        torch.backends.cudnn.allow_tf32,
    ),
    "attention's kernels": lambda torch: (
        torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled(),
        torch.backends.cuda.mem_efficient_sdp_enabled(), torch.backends.cuda.cudnn_sdp_enabled(),
    ),
}  # fmt: skip


def _told_by_torch(ask: Callable[[Any], object]) -> str:
    """A setting of torch as text; empty while torch is not imported."""
    torch: Any = sys.modules.get("torch")
    try:
        return "" if torch is None else str(ask(torch))
    except (AttributeError, RuntimeError, TypeError) as error:  # of another version, or set in ways that do not agree
        return type(error).__name__


STANDARD: tuple[Setting, ...] = (
    Setting("the environment", lambda: dict(settings.users_environment()), _write_environment),
    Setting("the working folder", lambda: settings.current_folder() or "", os.chdir),
    Setting("the CPUs", lambda: os.sched_getaffinity(0), lambda cpus: os.sched_setaffinity(0, cpus)),
    Setting("the umask", _umask, os.umask),
    Setting("the priority", lambda: os.getpriority(os.PRIO_PROCESS, 0)),
    Setting("limits of resources", _limits, _write_limits),
    Setting("the limit of recursion", sys.getrecursionlimit, sys.setrecursionlimit),
    Setting("the interval of threads", sys.getswitchinterval, sys.setswitchinterval),
    Setting("flags of loading", lambda: sys.getdlopenflags(), lambda flags: sys.setdlopenflags(flags)),
    Setting("the most digits of a number", sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    *(
        Setting(f"the handler of signal {number}", partial(signal.getsignal, number), partial(signal.signal, number))
        for number in sorted(signal.valid_signals())
    ),
    Setting(
        "blocked signals", lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        lambda before: signal.pthread_sigmask(signal.SIG_SETMASK, before),
    ),
    Setting(
        "an alarm", lambda: signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0), lambda _: signal.alarm(0)
    ),
    Setting("tracing", sys.gettrace, sys.settrace),
    Setting("profiling", sys.getprofile, sys.setprofile),
    Setting("tracing of threads", lambda: (threading.gettrace(), threading.getprofile())),
    Setting(
        "decimal's context", lambda: (repr(decimal.getcontext()), repr(decimal.DefaultContext)),
        lambda _: decimal.setcontext(decimal.Context()),  # of the default context, which is compared as well
    ),
    Setting(
        "the locale", lambda: locale.setlocale(locale.LC_ALL), lambda before: locale.setlocale(locale.LC_ALL, before)
    ),
    Setting("random's state", random.getstate, random.setstate),
    Setting("filters of warnings", lambda: tuple(warnings.filters), _write_filters),
    Setting("logging", _logging, _write_logging),
    Setting("the garbage collector", gc.isenabled, lambda on: (gc.enable if on else gc.disable)()),
    Setting("thresholds of garbage", gc.get_threshold, lambda before: gc.set_threshold(*before)),
    *(
        Setting(f"sys.{name}", partial(getattr, sys, name), partial(setattr, sys, name))
        for name in ("stdin", "stdout", "stderr")
    ),
    Setting("the timeout of sockets", socket.getdefaulttimeout, socket.setdefaulttimeout),
    # A library that was built with -ffast-math may set this for the thread that loads it.
    Setting("how subnormal numbers are rounded", lambda: sys.float_info.min / 2 > 0.0),
    *(Setting(f"torch's {name}", partial(_told_by_torch, ask)) for name, ask in _TORCH.items()),
)  # fmt: skip


def callables_of(modules: Iterable[str]) -> dict[str, dict[str, object]]:
    """The functions and classes of modules that are imported, by name, as they are now."""
    there = {name: vars(sys.modules[name]) for name in modules if sys.modules.get(name) is not None}
    return {module: {name: value for name, value in own.items() if callable(value)} for module, own in there.items()}


def replaced(before: Mapping[str, Mapping[str, object]]) -> str:
    """The name of a function or class that is gone, or that was replaced, but not by a library as torch does."""
    for module, callables in before.items():
        now = vars(sys.modules[module]) if module in sys.modules else {}
        for name, value in callables.items():
            if (current := now.get(name)) is value:
                continue
            home = str(getattr(current, "__module__", None))
            if home.partition(".")[0] in sys.stdlib_module_names or not Origin.is_installed(home):
                return f"{module}.{name}"
    return ""


_TORCH_SEED = 67280421310721  # of torch's generators in a new process
_WATCHED = ("torch", "torch.nn.functional", "torch.linalg", "torch.cuda", "triton", "triton.language", "numpy")

# What `numpy.geterr` gives in a new process.
_NUMPY_FRESH = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


@dataclass(frozen=True, kw_only=True)
class ProcessState:
    """The settings of a process, and the functions and classes of modules that must stay."""

    standard: dict[str, Any]
    threads: frozenset[threading.Thread]
    functions: dict[str, dict[str, Any]]

    @classmethod
    def here(cls) -> ProcessState:
        """The settings of this process now."""
        own = [name for name in sys.modules if name.partition(".")[0] in sys.stdlib_module_names]
        return cls(
            standard={setting.name: setting.read() for setting in STANDARD if setting.known},
            threads=frozenset(threading.enumerate()),
            functions=callables_of([*(name for name in own if name != "__main__"), *_WATCHED]),
        )

    def changed(self) -> str:
        """Put back what can be, and name what is not as it was; empty if this process is as it was."""
        for setting in STANDARD:
            if setting.name in self.standard and not setting.is_again(self.standard[setting.name]):
                return setting.name
        if not self.threads.issuperset(threading.enumerate()):
            return "a thread"
        if name := replaced(self.functions):
            return name
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(_TORCH_SEED)
        return _changed_in_numpy()


def _changed_in_numpy() -> str:
    """NumPy's setting that is not as when it is imported, after its random numbers were begun anew."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "geterr"):
        return ""
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed()
    return "" if numpy.geterr() == _NUMPY_FRESH else "what NumPy does with errors"


def main() -> None:
    """Import packages, then answer questions until the pipe is closed."""
    child = Child()
    device = "cuda:0" if child.device == EARLY.device else child.device
    if child.early:  # for a task that may never come: no memory of the GPU, and not the program's environment
        _import(child.packages)
        if not child.await_task():
            return
        _ready(device)
    else:
        _ready(device)
        _import(child.packages)
    TorchDevice(device).stay()  # nothing that runs here makes a context on another GPU
    serve(child.messages(), child.send, device)


def _import(packages: Sequence[str]) -> None:
    """Import packages; meanwhile a thread readies Triton if it is among them."""
    if "triton" in packages:
        TritonProcess.warm_up(launches=True)
    import_heavy(packages, "what is going to be tuned")


def _ready(device: str) -> None:
    """Have a thread ready a GPU's driver."""
    if device.startswith("cuda"):
        threading.Thread(target=TorchDevice(device).make_ready, daemon=True).start()


def serve(questions: Iterable[Any], send: Callable[[object], None], device: str) -> None:
    """Answer questions until there are no more; `device` is the GPU of this process."""
    station: object = None
    modules, state, context = UsersModules(), ProcessState.here(), copy_context()
    for question in questions:
        if isinstance(question, Rest):
            station = None
            _give_up(modules)
            answer = WorkerAnswer(value=state.changed() or ("a process" if strays() else ""))
        elif isinstance(question, Setup):
            if question.imports:
                import_heavy(question.imports, "what is going to be tuned")
                state = ProcessState.here()  # no code of the user's has run, or what it changed was put back
            TorchDevice(device).stay()  # code of the task before may have chosen another
            context = copy_context()  # what is set for one task, such as Triton's allocator, ends with it
            modules.forget_unless(question.surroundings)
            station, answer = context.run(_set_up, question, lambda step: send(Child.step(step)))
            modules.note(question.surroundings)
        else:
            answer = context.run(_answer, station, question)
        send(answer)


_MOST_HELD_BYTES = 64 << 20
_MOST_LOOKED_AT = 20_000  # values of a module: some milliseconds
_MOST_BYTES = 1 << 16  # of a NumPy array that is compared
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})


class UsersModules:
    """The user's modules that tasks have imported: the next task has them as long as it would import the same.

    They are imported anew where a file, the search path or `sys.argv` has changed, where a task has replaced something
    in one of them, has changed it in place or has imported another one, and where they hold much memory of the GPU.
    """

    def __init__(self) -> None:
        self._others = frozenset(sys.modules)
        self._loaded: dict[str, Any] = {}
        self._surroundings: Surroundings | None = None

    def note(self, surroundings: Surroundings) -> None:
        """Note the modules as a task with these surroundings has them once it is loaded."""
        self._loaded, self._surroundings = self._now(), surroundings

    def forget_unless(self, surroundings: Surroundings) -> None:
        """Forget all of them unless a task with these surroundings would import them as they are."""
        if surroundings != self._surroundings or self._now() != self._loaded:
            self.forget()

    def forget(self) -> None:
        """Forget all of them."""
        for name in self._names():
            del sys.modules[name]
        linecache.clearcache()

    def _names(self) -> list[str]:
        return [name for name in sys.modules if name not in self._others and not Origin.is_installed(name)]

    def _now(self) -> dict[str, object]:
        left = {name: iter(range(_MOST_LOOKED_AT)) for name in self._names()}
        files = {name: StoredFile(getattr(sys.modules[name], "__file__", None) or os.devnull) for name in left}
        return {name: (files[name].state, [(key, _state(value, left[name])) for key, value in
                                           vars(sys.modules[name]).items() if not key.startswith("__")])
                for name in left}  # fmt: skip


def _state(value: object, left: Iterator[int], inside: frozenset[int] = frozenset()) -> object:
    """What a value is, and what it holds where it is a container or of the user's; too much is equal to nothing."""
    if next(left, None) is None:
        return object()
    if type(value) in _PLAIN:
        return type(value), value
    try:
        parts = () if id(value) in inside else _parts_of(value)
        place = None if type(value) is tuple else id(value)
        return place, [_state(part, left, inside | {id(value)}) for part in parts]
    except Exception:  # noqa: BLE001 - what the user's code raises as it is looked at, or what is nested too deep
        return object()


def _parts_of(value: Any) -> Iterable[object]:
    """What a container or an object of the user's holds; of an array the content, of a tensor the number of writes."""
    kind = type(value)
    owner = value if isinstance(value, (type, FunctionType)) else kind
    if issubclass(kind, dict):
        return tuple(value.items())
    if issubclass(kind, (bytearray, list, tuple, set, frozenset, deque)):
        return tuple(value)
    if hasattr(value, "__array_interface__"):
        if value.nbytes > _MOST_BYTES or value.dtype.hasobject:
            raise ValueError("too much to compare")
        return (value.tobytes(),)
    if hasattr(value, "__dict__") and not Origin.is_installed(str(owner.__module__)):
        return tuple(vars(value).items())
    return (value._version,) if hasattr(value, "untyped_storage") and not value.is_inference() else ()


def _give_up(modules: UsersModules) -> None:
    """Free the GPU's memory, and forget modules of the user's that hold much of it."""
    gc.collect()
    if "torch" in sys.modules and (cuda := require("torch", "freeing memory").cuda).is_initialized():
        if cuda.memory_allocated() > _MOST_HELD_BYTES:
            modules.forget()
            gc.collect()
        cuda.empty_cache()


def _set_up(question: Setup, tell: Callable[[str], None]) -> tuple[object, WorkerAnswer]:
    question.surroundings.take()
    try:
        assignment = Packed.loaded(question.packed)
        if question.allocator is not None:
            ScratchAllocator.take(question.allocator)
    except KernelTypeError as error:
        return None, WorkerAnswer(error=error, unloadable=True)
    try:
        station = replace(assignment, **question.changes).station(tell)
    except TritonKernelError as error:
        return None, WorkerAnswer(error=error)
    return station, WorkerAnswer(facts=getattr(station, "facts", None))


def _answer(station: object, question: Question) -> WorkerAnswer:
    if station is None:
        return WorkerAnswer(error=KernelTypeError(f"a worker without a task was asked {type(question).__name__}"))
    try:
        value = question.answered_by(station)
    except TritonKernelError as error:
        return WorkerAnswer(error=error)
    except Exception as error:  # noqa: BLE001 - an answer must come, and the parent raises it
        return WorkerAnswer(error=TritonKernelError(f"the worker failed: {CandidateError.one_line(error)}"))
    return WorkerAnswer(value, getattr(station, "facts", None))
