"""Shipped kernels beside their rivals at named problems: correctness first, then times taken in turn.

A rival is called with the kernel's own arguments by name, and returns its result. What a model would have prepared long
before, such as reciprocals of a weight's scales, is prepared when the rival is made.
"""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from triton_ops.backend import Arguments, CandidateError, Operation
from triton_ops.base import require
from triton_ops.benchmark import PerformanceProfile, compare, judged_call, time_ms
from triton_ops.device import TorchDevice
from triton_ops.dispatch import Decision, would_run
from triton_ops.exceptions import (
    DeviceError,
    SettingsError,
    TargetError,
    TritonKernelError,
    WrongResultError,
    alternatives,
)
from triton_ops.space import Config
from triton_ops.tuner import tune
from triton_ops_kernels import FP8Format, load, names
from triton_ops_kernels.models import FP8GEMMInput, GatedMLPInput, RMSNormRoPEInput

_log = logging.getLogger("triton_ops")
_BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")
_TRIED_MS = 20.0

Rival: TypeAlias = Callable[..., Any]


def fused_attention(
    torch: Any, values: Mapping[str, Any],
    made_of: Callable[[Rival, Mapping[str, Any]], Rival] = lambda forward, _values: forward,
) -> Rival:  # fmt: skip
    """The fastest backend of `scaled_dot_product_attention` that is right; torch's own choice if none is.

    `made_of` makes the rival of a forward pass and arguments; that of torch's own choice, in higher precision too, says
    what is right.

    Cost: some calls of each backend, and two or three of torch's own choice for each that is judged, the fastest first.
    """

    def right(**own: Any) -> Any:
        return made_of(plain_attention(torch), own)(**own)

    times: list[tuple[float, str, Rival]] = []
    for backend in _BACKENDS:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says in one for each backend why it does not take the problem
                call = made_of(_by_backend(torch, getattr(torch.nn.attention.SDPBackend, backend), values), values)
                median_ms = time_ms(call, kwargs=values, warmup_ms=_TRIED_MS / 4, rep_ms=_TRIED_MS).median_ms
        except (TargetError, RuntimeError) as error:
            _log.info("%s takes no such attention: %s", backend, error)
            continue
        _log.info("%s: %.4f ms", backend, median_ms)
        times.append((median_ms, backend, call))
    for _, backend, call in sorted(times, key=lambda each: each[0]):
        if not (fault := judged_call(call, right, Arguments(keyword=values))[1]):
            return call
        _log.warning("%s is left out, since its result is wrong: %s", backend, fault)
    return made_of(plain_attention(torch), values)


def _gradients(torch: Any, forward: Rival, values: Mapping[str, Any]) -> Rival:
    """The rival of the gradient: that of a forward pass, made before, whose inputs stay where they are."""
    inputs = [values[name].detach().clone().requires_grad_() for name in ("q", "k", "v")]
    with torch.enable_grad():
        result = forward(*inputs, scale=values["scale"], CAUSAL=values["CAUSAL"])

    def gradients(grad: Any, **_rest: Any) -> Any:
        return torch.autograd.grad(result, inputs, grad, retain_graph=True)

    return gradients


def _attention_backward(torch: Any, values: Mapping[str, Any]) -> Rival:
    """Torch's gradient, which follows from a forward pass: the values get the result and logarithms of one."""
    for name, right in zip(("out", "lse"), load("attention").reference(**values), strict=True):
        values[name].copy_(right)
    return fused_attention(torch, values, partial(_gradients, torch))


def plain_attention(torch: Any, mask: Any = None) -> Rival:
    """`scaled_dot_product_attention` with the backend that torch chooses, where the last query sees all keys.

    `mask` says which keys the others see; None takes torch's own mask for that.
    """

    def attention(q: Any, k: Any, v: Any, scale: float, CAUSAL: bool, **_rest: Any) -> Any:
        queries, keys = q.shape[2], k.shape[2]
        visible = None
        if CAUSAL and queries not in (1, keys):
            bias = require("torch.nn.attention.bias", "comparing kernels")
            visible = bias.causal_lower_right(queries, keys) if mask is None else mask
        square = CAUSAL and queries == keys and queries > 1
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, visible, is_causal=square, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )

    return attention


def _by_backend(torch: Any, backend: Any, values: Mapping[str, Any]) -> Rival:
    mask = None
    if values["CAUSAL"] and "FLASH" not in str(backend):
        queries, keys = values["q"].shape[2], values["k"].shape[2]
        mask = torch.ones(queries, keys, dtype=torch.bool, device=values["q"].device).tril(keys - queries)
    call: Rival = torch.nn.attention.sdpa_kernel(backend)(plain_attention(torch, mask))
    return call


_COMPILE_MODE = "max-autotune-no-cudagraphs"  # graphs are the timer's own


def rivals_of(name: str, values: Mapping[str, Any], kinds: Collection[str] = ()) -> dict[str, Rival]:
    """The rivals of a shipped kernel at one problem: `library`, `eager` and `compile`, as far as there are."""
    torch = require("torch", "comparing kernels")
    plain = _PLAIN.get(name)
    rivals: dict[str, Rival] = {}
    choice = set(kinds) or {"library", "eager", "compile"}
    if name in _LIBRARY and "library" in choice:
        rivals["library"] = _LIBRARY[name](torch, values)
    if plain is not None and "eager" in choice:
        rivals["eager"] = plain(torch)
    if plain is not None and "compile" in choice:
        torch.compiler.reset()  # torch gives up compiling a function that it has compiled for many shapes
        rivals["compile"] = torch.compile(plain(torch), mode=_COMPILE_MODE, dynamic=False)
    return rivals


def plain_rmsnorm_rope(x: Any, weight: Any, cos: Any, sin: Any, **_rest: Any) -> Any:
    """RMSNorm and RoPE as models write them, in the dtype of `x` but for the mean square."""
    torch = require("torch", "comparing kernels")  # first: between two operations it would part the compiled graph
    wide = x.float()
    y = (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype) * weight
    head_dim = cos.shape[-1]
    half = head_dim // 2
    heads = y.unflatten(-1, (-1, head_dim))
    first, second = heads[..., :half], heads[..., half:]
    c, s = (table.reshape(-1, 1, head_dim)[..., :half] for table in (cos, sin))
    return torch.cat([first * c - second * s, second * c + first * s], -1).reshape(x.shape)


def plain_gated_mlp(x: Any, gate_weight: Any, up_weight: Any, **_rest: Any) -> Any:
    """silu(x @ gate_weight.T) * (x @ up_weight.T), as models write it."""
    torch = require("torch", "comparing kernels")
    return torch.nn.functional.silu(x @ gate_weight.mT) * (x @ up_weight.mT)


def scaled_product(a: Any, b: Any, a_scale: Any, b_scale: Any, **_rest: Any) -> Any:
    """`torch._scaled_mm` with promoted sums, whose scales are those of `quantize_fp8` turned over; float16."""
    torch = require("torch", "comparing kernels")
    return torch._scaled_mm(a, b, *map(_turned_over, (a_scale, b_scale)), out_dtype=torch.float16)


def _turned_over(scale: Any) -> Any:
    return scale.reciprocal().reshape(()) if scale.numel() == 1 else scale.reciprocal()


def _matmul(torch: Any, values: Mapping[str, Any]) -> Rival:
    if values["a"].element_size() == 2:
        return lambda a, b, c, **_rest: torch.matmul(a, b, out=c)
    one = torch.ones((), device=values["a"].device)
    return lambda a, b, **_rest: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _fp8_gemm(torch: Any, values: Mapping[str, Any]) -> Rival:
    """`torch._scaled_mm` with the same accumulation; for scales by block the product of restored bfloat16."""
    dtype, fast = values["c"].dtype, bool(values["FAST"])
    if values["BLOCKED"]:
        pairs = ((values[name], values[f"{name}_scale"]) for name in ("a", "b"))
        a, b = (FP8Format.restored(codes, scale, torch.float32).to(torch.bfloat16) for codes, scale in pairs)
        return lambda **_rest: (a @ b).to(dtype)
    scales = [_turned_over(values[name]) for name in ("a_scale", "b_scale")]
    if {scale.ndim for scale in scales} == {2}:  # by row: torch asks for bfloat16
        dtype = torch.bfloat16
    return lambda a, b, **_rest: torch._scaled_mm(a, b, *scales, out_dtype=dtype, use_fast_accum=fast)


def _grouped_matmul(torch: Any, values: Mapping[str, Any]) -> Rival:
    """A product for each group with rows, into its part of the result; the host knows all sizes before."""
    ends = values["ends"].tolist()
    runs = [(g, a, b) for g, (a, b) in enumerate(itertools.pairwise([0, *ends])) if b > a]

    def products(x: Any, weight: Any, out: Any, **_rest: Any) -> Any:
        for group, start, end in runs:
            torch.mm(x[start:end], weight[group], out=out[start:end])
        return out

    return products


def _gated_mlp_gradients(gate: Any, up: Any, grad: Any, **_rest: Any) -> Any:
    g, d = gate.float(), grad.float()
    s = g.sigmoid()
    return (d * up.float() * s * (1 + g * (1 - s))).to(gate.dtype), (d * g * s).to(up.dtype)


def _plain_quantize(torch: Any) -> Rival:
    def quantised(x: Any, GROUP: int, **_rest: Any) -> Any:
        grouped = x.float().unflatten(-1, (-1, GROUP))
        scale = FP8Format.max_value / grouped.abs().amax(-1, keepdim=True)
        return (grouped * scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn).flatten(-2), scale.squeeze(-1)

    return quantised


_DOCUMENTED: dict[str, tuple[Rival, Any, Callable[..., PerformanceProfile]]] = {
    "fused_rmsnorm_rope": (
        plain_rmsnorm_rope, RMSNormRoPEInput,
        lambda itemsize, batch, seq, hidden, _: PerformanceProfile.elementwise(batch * seq * hidden, itemsize),
    ),
    "fused_gated_mlp": (
        plain_gated_mlp, GatedMLPInput,
        lambda itemsize, batch, seq, hidden, inner: PerformanceProfile.gated_mlp(batch * seq, inner, hidden, itemsize),
    ),
    "fp8_gemm": (scaled_product, FP8GEMMInput, lambda itemsize, m, n, k: PerformanceProfile.gemm(m, n, k, itemsize)),
}  # fmt: skip
"""For each documented kernel the plain one beside it, its inputs, and its work by bytes of an element and extents."""


def documented_case(
    name: str, size: tuple[int, ...], dtype: str, device: str
) -> tuple[Rival, Rival, dict[str, Any], PerformanceProfile]:
    """A documented kernel and the plain one that computes the same, with tensors of a problem, and its work."""
    plain, inputs, work = _DOCUMENTED[name]
    tensors = inputs.from_shapes(*size, dtype).create_tensors(device)
    if name == "fp8_gemm":
        tensors["b"] = tensors["b"].t().contiguous().t()  # both read 8-bit floats fastest along K
    itemsize = next(iter(tensors.values())).element_size()
    return load(name.removeprefix("fused_"), name), plain, tensors, work(itemsize, *size)


_LIBRARY: dict[str, Callable[[Any, Mapping[str, Any]], Rival]] = {
    "attention": fused_attention,
    "attention_backward": _attention_backward,
    "fp8_gemm": _fp8_gemm,
    "grouped_matmul": _grouped_matmul,
    "matmul": _matmul,
}
_PLAIN: dict[str, Callable[[Any], Rival]] = {
    "attention": plain_attention,
    "grouped_matmul": lambda torch: lambda x, weight, ends, **_rest: torch._grouped_mm(x, weight, offs=ends),
    "softmax": lambda torch: lambda x, **_rest: torch.softmax(x, -1),
    "softmax_backward": lambda torch: lambda out, grad, **_rest: torch._softmax_backward_data(grad, out, -1, out.dtype),
    "layer_norm": lambda torch: (
        lambda x, weight, bias, eps, **_rest: torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
    ),
    "layer_norm_backward": lambda _torch: load("layer_norm_backward").reference,
    "rmsnorm_rope": lambda _torch: plain_rmsnorm_rope,
    "rmsnorm_rope_backward": lambda _torch: load("rmsnorm_rope_backward").reference,
    "gated_mlp": lambda _torch: plain_gated_mlp,
    "gated_mlp_backward": lambda _torch: _gated_mlp_gradients,
    "fp8_quantize": _plain_quantize,
    "fp8_dequantize": lambda _torch: load("fp8_dequantize").reference,
}


@dataclass(frozen=True)
class KernelRow:
    """One kernel at one problem beside one rival; figures are None where nothing was timed.

    Attributes:
        rival: `library`, `eager`, `compile`, or `default` for the kernel's own default config; `reference` where
            the problem was not timed.
    """

    kernel: str
    problem: str
    rival: str
    _: KW_ONLY
    shape: tuple[int, ...]
    dtype: str
    config: dict[str, Any] = field(default_factory=dict, hash=False)
    origin: str = Decision.origin_of("default")  # where the kernel's config comes from
    is_default: bool = False  # whether it is the config that runs untuned
    kernel_ms: float | None = None
    rival_ms: float | None = None
    speedup: float | None = None  # the rival's time divided by the kernel's, inside rounds
    interval: tuple[float, float] | None = None  # 95 % interval of the speedup
    verdict: str = ""  # `faster`, `slower` or `not distinguishable`; else why nothing was timed
    confidence: str = "ok"  # `ok`, or why the verdict should not be relied on
    tflops: float = 0.0
    gbps: float = 0.0  # 10^9 bytes per second of the kernel, of the least traffic of the problem
    mode: str = ""


@dataclass(frozen=True, kw_only=True)
class KernelRun:
    """Kernels, problems and rivals to compare, all of them where none is named, and for how long.

    Attributes:
        tune_s: Seconds for a tune of each problem; 0 takes the config with which a call would run: the winner of a
            record or of the package, else the default.
    """

    kernels: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    tune_s: float = 0.0
    seconds: float = 3.0  # no further round of a comparison starts after so many seconds
    device: str = "cuda"
    cold: bool = True  # whether L2 holds nothing of the arguments when a call starts
    cache_dir: str | Path | None = None

    def __post_init__(self) -> None:
        if unknown := [name for name in self.kernels if name not in names()]:
            raise SettingsError(f"there is no kernel {', '.join(unknown)}; {alternatives(unknown[0], names())}")
        SettingsError.checked("tune_s", self.tune_s, 0)


def rows_of(run: KernelRun) -> Iterator[KernelRow]:
    """The rows of a run, each as soon as it is asked for; a rival or a tune that fails has its reason as the verdict.

    Cost: for each problem its tune, and for each rival its compilation and `run.seconds`.
    """
    for name in run.kernels or names():
        operation = load(name)
        for label, (shape, dtype) in operation.problems.items():
            if run.problems and label not in run.problems:
                continue
            try:
                yield from problem_rows(run, operation, label, shape, dtype)
            except DeviceError:
                raise
            except (TritonKernelError, CandidateError, RuntimeError) as error:  # one problem ends no run of an hour
                reason = f"not measured: {CandidateError.one_line(error)}"
                yield KernelRow(operation.name, label, "reference", shape=shape, dtype=dtype, verdict=reason)


def problem_rows(
    run: KernelRun, operation: Operation, label: str, shape: tuple[int, ...], dtype: str
) -> Iterator[KernelRow]:
    """The rows of one problem, which need not be among the named ones, each as soon as it is asked for."""
    problem = operation.problem(shape, dtype)
    default = operation.space_for(problem).default_config
    config, origin = _winner(run, operation, shape, dtype)
    values = dict(operation.materialise(problem, run.device).keyword)
    rivals: dict[str, Any] = {} if config == default else {"default": (operation, default)}
    rivals |= rivals_of(operation.name, values, run.rivals)
    work = operation.work(problem) if operation.work else None
    row = partial(
        KernelRow, operation.name, label, shape=shape, dtype=dtype, config=dict(config), origin=origin,
        is_default=config == default,
    )  # fmt: skip
    try:
        with TorchDevice(run.device).current():
            check_result(operation, config, values)
    except WrongResultError as error:
        yield row("reference", verdict=f"wrong: {error.message}")
        return
    for rival, call in rivals.items():
        if run.rivals and rival not in run.rivals:
            continue
        own = rival == "default"
        try:
            comparison = compare(
                (operation, config), call, kwargs=values, names=(operation.name, rival), seconds=run.seconds,
                cold=run.cold, device=run.device, check=own,
            )  # fmt: skip
            fault = "" if own else _judged(operation, call, values)[1]
        except (TritonKernelError, RuntimeError) as error:  # torch's compiler and library raise what they like
            yield row(rival, verdict=f"not compared: {CandidateError.one_line(error)}")
            continue
        if comparison.wrong:
            yield row(rival, verdict=f"wrong: {comparison}")
            continue
        ms = comparison.a_ms
        figures: dict[str, Any] = {} if work is None else {"tflops": work.tflops(ms), "gbps": work.gbps(ms)}
        yield row(
            rival, **figures, kernel_ms=ms, rival_ms=comparison.b_ms, speedup=comparison.speedup, mode=comparison.mode,
            interval=comparison.speedup_interval, verdict=comparison.verdict,
            confidence=f"the result of {rival} is wrong: {fault}" if fault else comparison.confidence,
        )  # fmt: skip


def _winner(run: KernelRun, operation: Operation, shape: Sequence[int], dtype: str) -> tuple[Config, str]:
    """The config of a problem, and where it comes from: of a tune, or that with which a call would run."""
    question: dict[str, Any] = {"shape": shape, "dtype": dtype, "device": run.device, "cache_dir": run.cache_dir}
    if run.tune_s:
        result = tune(operation, **question, budget_s=run.tune_s, cold=run.cold).uninterrupted()
        return Config(result.best_config), Decision.origin_of("record" if result.from_cache else "tuned")
    winner = would_run(operation, **question, cold=run.cold).found
    return winner.config, Decision.origin_of(winner.rung)


def check_result(operation: Operation, config: Config, values: Mapping[str, Any]) -> list[Any]:
    """Launch the kernel once on copies of its arguments, and judge its outputs, which are returned, by the rule."""

    def launched(**own: Any) -> list[Any]:
        arguments = Arguments(keyword=own)
        executable = operation.kernel.compile(config, arguments)
        executable.launch(arguments)
        return [arguments.keyword[name] for name in executable.outputs]

    results, fault = _judged(operation, launched, values)
    if fault:
        raise WrongResultError(f"{operation.name} with ({config}) gives a wrong result: {fault}")
    return results


def _judged(operation: Operation, call: Rival, values: Mapping[str, Any]) -> tuple[list[Any], str]:
    """The results of a call, and how they are wrong by the operation's reference.

    A rival that rounds after every operation, as plain PyTorch does, may be wrong, and is timed all the same.
    """
    return judged_call(call, operation.reference, Arguments(keyword=values), operation.kernel.outputs)
