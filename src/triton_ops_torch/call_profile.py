"""Profiles of a model's calls, which say what is worth doing about their speed.

The way to go is nothing, a library, torch.compile, a Triton kernel, or CUDA: a function of a few shares of a profile.
The order is that of the cost of the work: what is found by a switch comes before what is written by hand, and what was
tried already is not named again.

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
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias

from triton_ops import settings
from triton_ops.base import require
from triton_ops.device import TorchDevice, probe
from triton_ops.exceptions import SettingsError
from triton_ops.timing import HostTimer, Launch
from triton_ops_torch.model_workload import ModelRunner, check_model, workload_by, workload_of

Way: TypeAlias = Literal["skip", "library", "torch.compile", "Triton", "CUDA"]
WAYS: tuple[Way, ...] = ("skip", "library", "torch.compile", "Triton", "CUDA")

HOT = 0.1  # of a call's time: what takes less is not worth a kernel
_NAMED = 0.01  # of the time: operators that take less are not named
_FUSABLE_HOT = 0.2
_IDLE = 0.25
_NEAR_PEAK = 0.6
_PRODUCTS_RULE = 0.7
_HOPPER = 90  # of `sm_90`
_CALLS, _WARM = 5, 3
_PRODUCT = re.compile(
    r"(addmm|mm|bmm|baddbmm|matmul|linear|conv\w*|cudnn_\w+|mkldnn_\w+|_scaled_mm|_int_mm|\w*attention\w*|\w*lstm\w*|"
    r"\w*gru\w*|_grouped_mm)(_backward\w*)?"
)
_SCATTERED = re.compile(
    r"(sort|topk|scatter\w*|gather|index\w*|_index_put_impl_|cum\w+|embedding\w*|unique\w*|nonzero|searchsorted|fft\w*|"
    r"histc|bincount|multinomial|grid_sampler\w*|roll|kthvalue|median)(_backward\w*)?_?"
)


@dataclass(frozen=True)
class OpShare:
    """An operator's share of a call.

    `share` is its own share of the time, without operators that it calls. `kind` is `product` for what libraries do,
    `scattered` for what no fusion helps, `unknown` for what is not torch's own, else `fusable`.
    """

    name: str
    share: float
    calls: int
    kind: str


@dataclass(frozen=True, kw_only=True)
class CallProfile:
    """Shares of the time of a call."""

    call_ms: float
    idle: float | None = None  # share of the time in which a GPU waits for the host; None on a CPU
    ops: tuple[OpShare, ...] = ()  # operators, the most expensive first
    of_peak: float | None = None  # rate of the products over the device's peak by datasheet; None if not known
    arch: str = ""  # the device's architecture, such as `sm_90`

    def share(self, kind: str) -> float:
        """The share of all operators of a kind."""
        return sum(op.share for op in self.ops if op.kind == kind)

    def advice(self, tried: Collection[str] = ()) -> Advice:
        """Decide what to do about a call with this profile; ways in `tried` are not named again."""
        for way, look in _LOOKS:
            if way not in tried and (reasons := look(self)):
                return Advice(way, tuple(reasons), self)
        hottest = self.ops[0] if self.ops else None
        if hottest is not None and hottest.kind == "unknown":
            unknown = f"{hottest.name} takes {hottest.share:.0%}, and nothing is known of what would make it faster"
            return Advice("skip", (unknown,), self)
        most = f"the hottest operator, {hottest.name}, takes {hottest.share:.0%}" if hottest else "nothing was measured"
        return Advice("skip", (f"{most}, and no further way promises more than its work costs",), self)


@dataclass(frozen=True)
class Advice:
    """The way to go, and the reasons.

    Attributes:
        way: `skip`, `library`, `torch.compile`, `Triton` or `CUDA`.
        reasons: Why, with the figures.
        profile: The profile from which that was drawn.
    """

    way: Way
    reasons: tuple[str, ...]
    profile: CallProfile = field(default_factory=lambda: CallProfile(call_ms=0.0))

    @classmethod
    def by_shares(
        cls, ops: Iterable[tuple[str, float, int, str]], tried: Collection[str], *, call_ms: float, idle: float,
        of_peak: float | None, arch: str,
    ) -> Advice:  # fmt: skip
        """Decide by the fields of an `OpShare` for each operator, and those of a `CallProfile`."""
        shares = tuple(OpShare(*op) for op in ops)
        return CallProfile(call_ms=call_ms, idle=idle, ops=shares, of_peak=of_peak, arch=arch).advice(tried)

    def __str__(self) -> str:
        return f"{self.way}: {'; '.join(self.reasons)}"


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
    if strange := [word for word in tried if word not in WAYS]:
        raise SettingsError(f"{strange[0]!r} is no way to make a model faster", hint=f"name one of {', '.join(WAYS)}")
    workload = workload_by(model) if inputs is None else workload_of(model, inputs)
    torch: Any = require("torch", "profiling a model")
    step = ModelRunner(workload, workload.model, training=training, loss=loss)
    with torch.set_grad_enabled(training), TorchDevice(workload.device_name).current():
        profile = profile_call(lambda: [*map(step, workload.calls)], workload.device_name, workload.dtype)
        return profile.advice(tried)


def profile_call(call: Callable[[], Any], device_name: str, dtype: str = "") -> CallProfile:
    """Profile a call with torch's profiler; the rate of its products is compared with the peak for `dtype`."""
    torch: Any = require("torch", "profiling a model")
    gpu = device_name.startswith("cuda")
    calls = HostTimer.with_waits(device_name, 0.0).prepare(Launch(call), 1)
    call_ms = statistics.median(calls.queue(_WARM + _CALLS)()[_WARM:])
    recorded = profile_of(call, device_name, _CALLS, with_flops=True)
    own_us = attrgetter("self_device_time_total" if gpu else "self_cpu_time_total")
    host = [each for each in recorded.key_averages() if each.device_type == torch.autograd.DeviceType.CPU]
    events = sorted((each for each in host if "::" in each.key and own_us(each) > 0), key=own_us, reverse=True)
    busy_us = sum(map(own_us, events)) or 1.0
    ops = tuple(
        OpShare(name, own_us(each) / busy_us, -(-each.count // _CALLS), kind_of(name))
        for each in events for name in [each.key.removeprefix("aten::")]
    )  # fmt: skip
    flops = sum(each.flops or 0 for each in events)
    product_us = busy_us * sum(op.share for op in ops if op.kind == "product")
    device = probe(device_name)
    peak = 1e12 * device.tflops.get(dtype, 0.0)
    return CallProfile(
        call_ms=call_ms,
        idle=max(0.0, 1 - busy_us / _CALLS / 1e3 / max(call_ms, 1e-9)) if gpu else None,
        ops=ops,
        of_peak=flops / (product_us / 1e6) / peak if flops and product_us and peak else None,
        arch=device.arch,
    )


def kind_of(op: str) -> str:
    """The kind of an operator, by its name in ATen; one of another library may be anything."""
    if "::" in op.removeprefix("aten::"):
        return "unknown"
    bare = op.removeprefix("aten::").lstrip("_") if not op.startswith("_scaled") else op
    if _PRODUCT.fullmatch(bare) or _PRODUCT.fullmatch(op):
        return "product"
    return "scattered" if _SCATTERED.fullmatch(bare) or _SCATTERED.fullmatch(op) else "fusable"


def _fusion(profile: CallProfile) -> list[str]:
    reasons = []
    if profile.idle is not None and profile.idle >= _IDLE:
        reasons.append(
            f"the GPU waits for the host in {profile.idle:.0%} of a call: fewer launches, and CUDA graphs, help"
        )
    fusable = profile.share("fusable")
    if fusable >= _FUSABLE_HOT:
        fusable_ops = [op for op in profile.ops if op.kind == "fusable"]
        names = ", ".join(op.name for op in fusable_ops if op.share >= _NAMED or op is fusable_ops[0])
        reasons.append(f"{fusable:.0%} goes to operators that a compiler fuses: {names}")
    return reasons


def _library(profile: CallProfile) -> list[str]:
    """Reasons why products of the vendor's library are as good as it gets."""
    products = profile.share("product")
    if products < _PRODUCTS_RULE or (profile.of_peak is not None and profile.of_peak < _NEAR_PEAK):
        return []
    rate = "" if profile.of_peak is None else f", at {profile.of_peak:.0%} of the device's peak"
    return [
        f"{products:.0%} goes to products, which a vendor's library does well{rate}: try its precisions and layouts"
    ]


def _kernel(profile: CallProfile) -> list[str]:
    """Reasons why a Triton kernel of one's own pays."""
    reasons = [
        f"{op.name} takes {op.share:.0%}, and neither a library nor fusion makes it faster"
        for op in profile.ops
        if op.kind == "scattered" and op.share >= HOT
    ]
    if profile.of_peak is not None and profile.of_peak < _NEAR_PEAK and profile.share("product") >= HOT:
        reasons.append(
            f"products run at {profile.of_peak:.0%} of the device's peak: tiles tuned for these shapes may do better"
        )
    return reasons


def _cuda(profile: CallProfile) -> list[str]:
    """Reasons why nothing but CUDA is left: products that want what Triton does not give."""
    version = re.fullmatch(r"sm_(\d+)\w*", profile.arch)
    if version is None or int(version[1]) < _HOPPER or profile.share("product") < _PRODUCTS_RULE:
        return []
    if profile.of_peak is None or profile.of_peak >= _NEAR_PEAK:
        return []
    share, rate = f"{profile.share('product'):.0%}", f"{profile.of_peak:.0%} of the peak of {profile.arch}"
    return [
        f"{share} goes to products at {rate}: roles of warps and asynchronous copies are controlled in CUDA and CUTLASS"
    ]


_LOOKS: tuple[tuple[Way, Callable[[CallProfile], list[str]]], ...] = (
    ("torch.compile", _fusion),
    ("library", _library),
    ("Triton", _kernel),
    ("CUDA", _cuda),
)


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
            return len([name for name in kernels if not name.startswith(("memcpy", "memset"))])
        if not any(hasattr(module, _ALL_IN_CPP) for module in _generated_modules()):
            return len([each for each in profile.events() if _does_work(each)]) + sum(loops)
    return None


def profile_of(call: Callable[[], Any], device_name: str, calls: int = 1, **more: Any) -> Any:
    """So many calls in torch's profiler, with further options; it keeps its events, since torch 2.11 else warns."""
    torch: Any = require("torch", "profiling a model")
    settings.keep_cupti()  # timers capture graphs in this process, and models may
    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CPU, *([kinds.CUDA] if device_name.startswith("cuda") else [])]
    with torch.profiler.profile(activities=activities, acc_events=True, **more) as profile:
        for _ in range(calls):
            call()
        if device_name.startswith("cuda"):
            torch.cuda.synchronize()
    return profile


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
