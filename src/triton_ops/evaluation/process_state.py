"""The state of a worker process that serves several tunes: what code of one may have changed is put back, or is told.

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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from triton_ops import settings
from triton_ops.backend import Origin

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
    time.tzset()


def _write_filters(before: tuple[object, ...]) -> None:
    warnings.resetwarnings()
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
