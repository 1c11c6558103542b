"""What one process can count of a compiled model: compiled graphs, seconds of compiling, kernels of a call, memory.

Facts used, of torch 2.11 to 2.15: `torch._dynamo.utils.counters` counts graphs and graph breaks, its
`compilation_time_metrics` holds seconds by stage, and `PyCodeCache.modules` of `torch._inductor.codecache` the modules
with generated code: each C++ function is a text there, and is called by a name of its module, once or often. Where the
option `cpp_wrapper` is set, the calls are C++ too, and the text `cpp_wrapper_src` holds everything.
(`torch._inductor.metrics` counts kernels too, those that the C++ backend has tried and thrown away among them, and none
that come from a cache.) What a torch does not tell is not known, and no error.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from triton_ops._optional import require

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
    """How many graphs were compiled in this process, and how often a model had to be left to Python in between."""
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
            return len([each for each in profile.events() if each.device_type == device and not _is_copy(each.name)])
        if not any(hasattr(module, _ALL_IN_CPP) for module in _generated_modules()):
            return len([each for each in profile.events() if _works(each)]) + sum(loops)
    return None


def profiler(device_name: str, **more: Any) -> Any:
    """Torch's profiler for a device, with further options; it keeps its events, since torch 2.11 else warns."""
    torch: Any = require("torch", "profiling a model")
    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CPU, *([kinds.CUDA] if device_name.startswith("cuda") else [])]
    return torch.profiler.profile(activities=activities, acc_events=True, **more)


class PeakMemory:
    """The most memory since this object was made.

    Args:
        device_name: Torch's name of the device.
    """

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
        """What torch holds of the GPU's memory, or this process of the host's; None where that is not told."""
        if self._gpu is not None:
            return int(require("torch", "asking the GPU").cuda.max_memory_reserved(self._gpu))
        try:
            lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        except OSError:
            return None
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)


def loops_in(generated: str) -> int:
    """How many loops over data are in generated C++ code: those that lie in no other. A function without any is one."""
    found = 0
    for function in _FUNCTION.findall(generated):
        loops, outer = 0, ""
        for line in function.splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            if not outer and line.lstrip().startswith("for("):
                loops, outer = loops + 1, f"{indent}}}"
            elif line.rstrip() == outer:
                outer = ""
        found += 1 if _PRODUCT in function else max(loops, 1)
    return found


@contextlib.contextmanager
def _counted_loops() -> Iterator[list[int]]:
    """The loops of each generated function that is called while this lasts, once for each call."""
    ran: list[int] = []
    with contextlib.ExitStack() as undo:
        for module in _generated_modules():
            for name, loops in _loops_by_name(module).items():
                function = getattr(module, name, None)
                if callable(function):
                    undo.callback(setattr, module, name, function)
                    setattr(module, name, _noting(function, ran, loops))
        yield ran


def _noting(function: Callable[..., Any], ran: list[int], loops: int) -> Callable[..., Any]:
    def noted(*args: Any) -> Any:
        ran.append(loops)
        return function(*args)

    return noted


def _generated_modules() -> list[ModuleType]:
    """The modules with code that torch's compiler has written or loaded in this process, each once."""
    modules = getattr(getattr(sys.modules.get(_CODE_CACHE), "PyCodeCache", None), "modules", ())
    return list(dict.fromkeys(modules))


def _loops_by_name(module: ModuleType) -> dict[str, int]:
    """How many loops each C++ function of a generated module has, by the name under which the module calls it."""
    with contextlib.suppress(OSError):  # it was cleaned away
        text = Path(str(module.__file__)).read_text(encoding="utf-8", errors="replace")
        return {each["name"]: loops_in(each["code"]) for each in _NAMED.finditer(text)}
    return {}


def _works(event: Any) -> bool:
    """Whether an operator of a profile calls no other one, and does more than give a tensor another form."""
    inner = [child for child in event.cpu_children if not _NO_WORK.fullmatch(child.name)]
    return "::" in event.name and not inner and not _NO_WORK.fullmatch(event.name)


def _is_copy(name: str) -> bool:
    return name.startswith(("Memcpy", "Memset", "memcpy", "memset"))
