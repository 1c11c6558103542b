"""Profiles of a model's calls: what they say of its speed, and of the code that torch's compiler has made.

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
import statistics
import sys
from collections.abc import Callable, Collection, Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from triton_ops.base import require
from triton_ops.benchmark import Advice, profile_of
from triton_ops.device import TorchDevice, probe
from triton_ops.exceptions import SettingsError
from triton_ops.timing import Sampler
from triton_ops_torch.model_workload import ModelRunner, check_model, workload_by, workload_of

_CALLS, _WARM = 5, 3
_PRODUCT = re.compile(
    r"(addmm|mm|bmm|baddbmm|matmul|linear|conv\w*|cudnn_\w+|mkldnn_\w+|_scaled_mm|_int_mm|\w*attention\w*|\w*lstm\w*|"
    r"\w*gru\w*|_grouped_mm)(_backward\w*)?"
)
_SCATTERED = re.compile(
    r"(sort|topk|scatter\w*|gather|index\w*|_index_put_impl_|cum\w+|embedding\w*|unique\w*|nonzero|searchsorted|fft\w*|"
    r"histc|bincount|multinomial|grid_sampler\w*|roll|kthvalue|median)(_backward\w*)?_?"
)


def advise(
    model: Any, inputs: Any = None, *, training: bool = False, loss: Any = None, tried: Collection[str] = ()
) -> Advice:
    """Say what to do about a model's speed: nothing, a library, torch.compile, a Triton kernel, or CUDA.

    Args:
        model: The model, or a factory of `(model, inputs)`, as for `tune_compile`.
        inputs: Its inputs, as for `tune_compile`.
        training: Whether a call is forward and backward.
        loss: For training, as for `tune_compile`.
        tried: Ways that were tried already, so that the next one is named.

    Returns:
        The way that is worth going next, with its reasons and the profile behind them.

    Raises:
        SettingsError: A word of `tried` is no way, or the loss is no function.
        KernelTypeError, TargetError, DeviceError: Model and inputs do not fit.
        Exception: Whatever the model raises.

    Cost: a dozen calls in this process, five of them under torch's profiler.
    """
    if isinstance(tried, str):
        raise SettingsError(f"tried is the text {tried!r}; a list of ways is needed", hint=f"tried=[{tried!r}]")
    check_model(model, inputs, loss)
    if strange := [word for word in tried if word not in Advice.WAYS]:
        hint = f"name one of {', '.join(Advice.WAYS)}"
        raise SettingsError(f"{strange[0]!r} is no way to make a model faster", hint=hint)
    workload = workload_by(model) if inputs is None else workload_of(model, inputs)
    torch: Any = require("torch", "profiling a model")
    step = ModelRunner(workload, workload.model, training=training, loss=loss)
    with torch.set_grad_enabled(training), TorchDevice(workload.device_name).current():
        return _advice_on(lambda: [*map(step, workload.calls)], workload.device_name, workload.dtype, tried)


def _advice_on(call: Callable[[], Any], device_name: str, dtype: str, tried: Collection[str]) -> Advice:
    """Advice by torch's profiler; the rate of a call's products is compared with the peak for `dtype`."""
    torch: Any = require("torch", "profiling a model")
    gpu = device_name.startswith("cuda")
    calls = Sampler.of_calls(call, device_name, launches=1)
    call_ms = statistics.median(calls.queue(_WARM + _CALLS)()[_WARM:])
    recorded = profile_of(call, device_name, _CALLS, with_flops=True)
    own_us = attrgetter("self_device_time_total" if gpu else "self_cpu_time_total")
    # Operators are events of the CPU on a GPU too, with the time of the kernels that they launch. With the kernels' own
    # events that time would count twice.
    host = [each for each in recorded.key_averages() if each.device_type == torch.autograd.DeviceType.CPU]
    events = sorted((each for each in host if "::" in each.key and own_us(each) > 0), key=own_us, reverse=True)
    busy_us = sum(map(own_us, events)) or 1.0
    ops = [
        # Rounded up: what only some of the calls run counts as one.
        (name, own_us(each) / busy_us, -(-each.count // _CALLS), kind_of(name))
        for each in events for name in [each.key.removeprefix("aten::")]
    ]  # fmt: skip
    flops = sum(each.flops or 0 for each in events)
    product_us = busy_us * sum(share for _, share, _, kind in ops if kind == "product")
    device = probe(device_name)
    peak = 1e12 * device.tflops.get(dtype, 0.0)
    return Advice.by_shares(
        ops, tried, call_ms=call_ms,
        # The call was timed without the profiler, which slows the host down and not the kernels.
        idle=max(0.0, 1 - busy_us / _CALLS / 1e3 / max(call_ms, 1e-9)) if gpu else None,
        of_peak=flops / (product_us / 1e6) / peak if flops and product_us and peak else None,
        arch=device.arch,
    )  # fmt: skip


def kind_of(op: str) -> str:
    """The kind of an operator, by its name in ATen; one of another library may be anything."""
    if "::" in op.removeprefix("aten::"):
        return "unknown"
    bare = op.removeprefix("aten::").lstrip("_") if not op.startswith("_scaled") else op
    if _PRODUCT.fullmatch(bare) or _PRODUCT.fullmatch(op):
        return "product"
    return "scattered" if _SCATTERED.fullmatch(bare) or _SCATTERED.fullmatch(op) else "fusable"


_UTILS = "torch._dynamo.utils"
_CODE_CACHE = "torch._inductor.codecache"
_FUNCTION = re.compile(r'^extern "C".*?^}', re.MULTILINE | re.DOTALL)
_FUNCTIONS_BY_NAME = re.compile(r"^(?P<name>\w+) = async_compile\.\w+\((?P<code>.*?)^'''", re.MULTILINE | re.DOTALL)
_ALL_IN_CPP = "cpp_wrapper_src"
_TEMPLATE = "CppMicroGemm"  # a template's loops over tiles are one loop to its user
_COMPILING = ("_compile.compile_inner", "entire_frame_compile")
_NO_WORK = re.compile(
    r"aten::(t|view\w*|_unsafe_view|reshape\w*|_reshape_\w+|transpose\w*|permute|expand\w*|as_strided\w*|empty\w*|"
    r"select\w*|slice\w*|unsqueeze\w*|squeeze\w*|detach\w*|alias|split\w*|unbind\w*|resolve_\w+|set_\w*|result_type|"
    r"numpy_T|lift_fresh|is_\w+|resize_\w*|narrow|chunk|unflatten|flatten|_has_\w+|item|_local_scalar_dense)"
)


def compile_seconds() -> float:
    """Seconds that torch's compiler says it has compiled in this process."""
    # Where nobody has imported torch's compiler, nothing was compiled; an import here would take seconds.
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
        profile = profile_of(call, device_name)
        if device_name.startswith("cuda"):
            device = torch.autograd.DeviceType.CUDA
            kernels = [each.name.lower() for each in profile.events() if each.device_type == device]
            # Copies and fills are events of the device too, and are no kernels.
            return len([name for name in kernels if not name.startswith(("memcpy", "memset"))])
        if not any(hasattr(module, _ALL_IN_CPP) for module in _generated_modules()):
            return len([each for each in profile.events() if _does_work(each)]) + sum(loops)
    return None


class PeakMemory:
    """The most memory on a device since this object was made."""

    def __init__(self, device_name: str) -> None:
        self._gpu = device_name if device_name.startswith("cuda") else None
        if self._gpu is not None:
            cuda = require("torch", "asking the GPU").cuda
            # What torch has reserved and does not use would count: the peak of compilation hides that of calls.
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
    """Count the outermost loops over data in generated C++ code; a function without a loop counts as one."""
    total = 0
    for function in _FUNCTION.findall(generated):
        loops, outer = 0, ""
        for line in function.splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            if not outer and line.lstrip().startswith("for("):
                loops, outer = loops + 1, f"{indent}}}"
            elif line.rstrip() == outer:
                outer = ""
        total += 1 if _TEMPLATE in function else max(loops, 1)
    return total


@contextlib.contextmanager
def _counted_loops() -> Iterator[list[int]]:
    """The loops of each generated function that is called while this lasts, once for each call."""
    counts: list[int] = []
    with contextlib.ExitStack() as undo:
        for module in _generated_modules():
            text = ""
            with contextlib.suppress(OSError):  # it was cleaned away
                text = Path(str(module.__file__)).read_text(encoding="utf-8", errors="replace")
            codes = {each["name"]: each["code"] for each in _FUNCTIONS_BY_NAME.finditer(text)}
            # Generated code looks its functions up in its module at each call: an attribute in their place counts.
            for name, code in codes.items():
                function = getattr(module, name, None)
                if callable(function):
                    undo.callback(setattr, module, name, function)
                    setattr(module, name, partial(_counted_call, function, counts, loops_in(code)))
        yield counts


def _counted_call(function: Callable[..., Any], counts: list[int], loops: int, *args: Any) -> Any:
    counts.append(loops)
    return function(*args)


def _generated_modules() -> list[ModuleType]:
    """The modules with code that torch's compiler has written or loaded in this process, each once."""
    modules = getattr(getattr(sys.modules.get(_CODE_CACHE), "PyCodeCache", None), "modules", ())
    return list(dict.fromkeys(modules))


def _does_work(event: Any) -> bool:
    """Tell whether an operator of a profile calls no other one, and does more than give a tensor another form."""
    inner = [child for child in event.cpu_children if not _NO_WORK.fullmatch(child.name)]
    return "::" in event.name and not inner and not _NO_WORK.fullmatch(event.name)
