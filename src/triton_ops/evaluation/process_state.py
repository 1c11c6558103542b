"""What code of the user's may change in a worker for all that follows.

A worker that serves the next tune is as it was when it was started: its environment, folder, CPUs, umask and limits,
the settings of Python's own modules (`standard_state.py`), torch's and NumPy's as these set them when they are
imported, the functions of all of these, and no thread of the user's. What can be put back is put back. A worker in
which something else has changed serves no other tune.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from triton_ops import settings
from triton_ops._cpus import usable_cpus
from triton_ops.evaluation.standard_state import STANDARD, callables_of, replaced

_TORCH_SEED = 67280421310721  # of torch's generators in a new process
_WATCHED = ("torch", "torch.nn.functional", "torch.linalg", "torch.cuda", "triton", "triton.language", "numpy")

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
_FRESH = {
    "default dtype": "torch.float32", "default device": "cpu", "precision of products": "highest",
    "gradients": "(True, False)", "anomaly detection": "(False, True)",
    "deterministic algorithms": "(False, False, True)", "warnings": "False",
}  # fmt: skip
"""Settings as torch has them when it is imported, for a torch that was imported together with code of the user's."""

_NUMPY_FRESH = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


@dataclass(frozen=True, kw_only=True)
class ProcessState:
    """How a process is set.

    Attributes:
        standard: The settings of Python and of the process, by name.
        torch: Torch's settings as text, by name; empty as long as torch is not imported.
        threads: Its threads that Python knows.
        functions: The functions and classes of Python's own modules, and of torch, Triton and NumPy, by module.
    """

    standard: dict[str, Any]
    torch: dict[str, str]
    threads: frozenset[threading.Thread]
    functions: dict[str, dict[str, Any]]

    @classmethod
    def here(cls) -> ProcessState:
        """How this process is set now."""
        own = [name for name in sys.modules if name.partition(".")[0] in sys.stdlib_module_names]
        return cls(
            standard={setting.name: setting.read() for setting in STANDARD if setting.known},
            torch=_torch(),
            threads=frozenset(threading.enumerate()),
            functions=callables_of([*(name for name in own if name != "__main__"), *_WATCHED]),
        )

    def changed(self) -> str:
        """What is not as it was, after what can be put back was put back; empty if this process is as it was."""
        for setting in STANDARD:
            if setting.name in self.standard and not setting.is_again(self.standard[setting.name]):
                return setting.name
        if not self.threads.issuperset(threading.enumerate()):
            return "a thread"
        if name := replaced(self.functions):
            return name
        return self._changed_in_torch() or _changed_in_numpy()

    def _changed_in_torch(self) -> str:
        found = _torch()
        expected = self.torch or (_fresh() if found else {})
        if found:
            sys.modules["torch"].manual_seed(_TORCH_SEED)
        return next((f"torch's {name}" for name, value in expected.items() if found.get(name) != value), "")


def _torch() -> dict[str, str]:
    torch: Any = sys.modules.get("torch")
    return {} if torch is None else {name: _asked(ask, torch) for name, ask in _TORCH.items()}


def _asked(ask: Callable[[Any], object], torch: Any) -> str:
    try:
        return str(ask(torch))
    except (AttributeError, RuntimeError, TypeError) as error:  # of another version, or set in ways that do not agree
        return type(error).__name__


def _fresh() -> dict[str, str]:
    """What torch has when it is imported here."""
    given = settings.openmp_text() or ""
    return {**_FRESH, "threads": given if given.isdigit() else str(usable_cpus())}


def _changed_in_numpy() -> str:
    """What of NumPy is not as when it is imported, after its random numbers were begun anew."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy, "geterr"):
        return ""
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed()
    return "" if numpy.geterr() == _NUMPY_FRESH else "what NumPy does with errors"
