"""Every public way to call a kernel, beside what it launches: `python -m benchmarks.launch_cost` measures them.

The rival of a shipped function is a plain JIT launch of each kernel that it launches, with its descriptors, and
`torch.empty` for each result; of an operation a plain launch, of a chooser what it calls, and of a gradient an
`autograd.Function` that keeps the same tensors and launches nothing, beyond the call without it. Of calls whose sizes
change each time, as the keys of a decode grow, it is the known call of one size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import torch

import triton_ops
from triton_ops.backend import Arguments, Operation, TritonKernel, launches_taken
from triton_ops.space import Config
from triton_ops_kernels.fp8_quantize import dequantize_fp8, quantize_fp8

KNOWN, CHOSEN, RECORDED, COMPILED, CHANGING = 1.0, 1.25, 1.5, 1.5, 1.5
_HALF = torch.float16
_TILE = {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 2}


@dataclass(frozen=True)
class Row:
    """One way to call, its rival, and the limit of their ratio; `beyond` is a part that is taken off first."""

    call: Callable[[], object]
    rival: Callable[[], object]
    limit: float = KNOWN
    beyond: Callable[[], object] | None = None

    @property
    def calls(self) -> dict[str, Callable[[], object]]:
        """What is measured, by name."""
        calls = {"call": self.call, "rival": self.rival}
        return calls if self.beyond is None else {**calls, "beyond": self.beyond}


def ratio(times: Mapping[str, float]) -> float:
    """The ratio of a row."""
    return (times["call"] - times.get("beyond", 0.0)) / times["rival"]


def plainly(call: Callable[[], Any]) -> Callable[[], object]:
    """Plain launches of all that a known call launches, and memory for its results."""
    made: list[Any] = []

    def take(run: Callable[..., Any], kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        made.append(_launch(kernel, args, kwargs, grid))
        return run(kernel, *args, grid=grid, warmup=warmup, **kwargs)

    with launches_taken(take):
        output = call()
    results = output if isinstance(output, tuple) else (output,)
    empty = [partial(torch.empty, tuple(each.shape), dtype=each.dtype, device=each.device) for each in results]

    def plain() -> None:
        for each in (*empty, *made):
            each()

    return plain


def _launch(kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any], grid: Any) -> Callable[[], object]:
    bound = {each.name: each.default for each in kernel.params if each.has_default}
    bound |= dict(zip(kernel.arg_names, args, strict=False)) | kwargs
    extents = grid(bound) if callable(grid) else grid
    described = {name: value for name, value in kwargs.items() if Arguments.is_descriptor(value)}
    others = {name: value for name, value in kwargs.items() if name not in described}

    def launch() -> object:
        if not described:
            return kernel[extents](*args, **kwargs)
        own = {n: type(v)(v.base, v.shape, v.strides, v.block_shape) for n, v in described.items()}
        return kernel[extents](*args, **others, **own)

    return launch


class _Keeps(torch.autograd.Function):
    """Keeps its inputs and its result, and launches nothing."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        out = torch.empty_like(tensors[0])
        ctx.save_for_backward(*tensors, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:  # noqa: ARG004
        return grad


def _functions(new: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    a, b, bias = new(64, 128), new(128, 64), new(64)
    x, weight, q, tokens, table = new(64, 256), new(256), new(1, 2, 64, 64), new(2, 32, 256), new(32, 64)
    gate, up, experts = new(128, 256), new(128, 256), new(4, 256, 64)
    ends = torch.tensor([16, 32, 48, 64], dtype=torch.int32, device=x.device)
    codes, scales = quantize_fp8(x, granularity="row")
    columns, column_scales = (each.t() for each in quantize_fp8(new(64, 256), granularity="row"))
    split, host = Config({**_TILE, "ALGORITHM": "split_k", "SPLIT": 2}), Config({**_TILE, "LOADS": "host"})
    linear, mlp = triton_ops.FP8Linear(256, 64), triton_ops.FusedGatedMLP(256, 128)
    rope = triton_ops.FusedRMSNormRoPE(256, 64)
    for module in (linear, mlp, rope):
        module.to(x).requires_grad_(False)
    return {
        "matmul": lambda: triton_ops.matmul(a, b),
        "matmul, bias and activation": lambda: triton_ops.matmul(a, b, bias=bias, activation="relu"),
        "matmul, two launches": lambda: triton_ops.matmul(a, b, config=split),
        "matmul, host descriptors": lambda: triton_ops.matmul(a, b, config=host),
        "flash_attention": lambda: triton_ops.flash_attention(q, q, q),
        "softmax": lambda: triton_ops.softmax(x),
        "layer_norm": lambda: triton_ops.layer_norm(x, weight, weight),
        "fused_rmsnorm_rope": lambda: triton_ops.fused_rmsnorm_rope(tokens, weight, table, table),
        "fused_gated_mlp": lambda: triton_ops.fused_gated_mlp(tokens, gate, up),
        "grouped_matmul": lambda: triton_ops.grouped_matmul(x, experts, ends),
        "fp8_gemm": lambda: triton_ops.fp8_gemm(codes, columns, scales, column_scales),
        "quantize_fp8": lambda: quantize_fp8(x),
        "quantize_fp8, rows": lambda: quantize_fp8(x, granularity="row"),
        "dequantize_fp8": lambda: dequantize_fp8(codes, scales),
        "FP8Linear": lambda: linear(x),
        "FusedGatedMLP": lambda: mlp(tokens),
        "FusedRMSNormRoPE": lambda: rope(tokens, table, table),
    }


def _gradients(new: Callable[..., Any], functions: Mapping[str, Callable[[], Any]]) -> dict[str, Row]:
    x, weight, q = (new(*shape).requires_grad_() for shape in ((64, 256), (256,), (1, 2, 64, 64)))
    calls: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
        "softmax": (lambda: triton_ops.softmax(x), (x,)),
        "layer_norm": (lambda: triton_ops.layer_norm(x, weight, weight), (x, weight, weight)),
        "flash_attention": (lambda: triton_ops.flash_attention(q, q, q), (q, q, q, q)),
    }
    return {
        f"{name}, a gradient recorded": Row(call, partial(_Keeps.apply, *kept), RECORDED, functions[name])
        for name, (call, kept) in calls.items()
    }


def _changing(new: Callable[..., Any]) -> dict[str, Row]:
    """Calls each of which has a new size of one class, beside the known call of a size."""
    q, b = new(1, 2, 1, 64), new(128, 64)
    keys = [new(1, 2, 1024, 64)[:, :, :count] for count in range(641, 767)]
    matrices = [new(1024, 128)[:count] for count in range(641, 767)]
    calls: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
        "flash_attention, growing keys": (lambda each: triton_ops.flash_attention(q, each, each), keys),
        "matmul, changing rows": (lambda each: triton_ops.matmul(each, b), matrices),
    }
    made = {}
    for name, (call, values) in calls.items():
        for each in (values[0], values[0], *values):
            call(each)
        changing, fixed = (partial(_called, call, cycle(each)) for each in (values, values[:1]))
        made[name] = Row(changing, fixed, CHANGING)
    return made


def _called(call: Callable[[Any], Any], values: Iterator[Any]) -> object:
    return call(next(values))


def rows(device: str, kernel: Any, grid: Callable[[Any], Any]) -> dict[str, Row]:
    """The rows by name; `kernel` adds two tensors of so many elements, and is launched with `grid`."""
    new = partial(torch.zeros, device=device, dtype=_HALF)
    functions = _functions(new)
    wide, x = [torch.zeros(4096, device=device) for _ in range(3)], new(64, 256)
    options = {"BLOCK": 256, "num_warps": 4}
    own = Operation("add", TritonKernel(kernel, grid), [Config(options)], lambda n, dtype=None: {})  # noqa: ARG005
    chooser = triton_ops.choose({"first": triton_ops.softmax, "second": lambda x: torch.softmax(x, -1)}, name="chosen")
    compiled = torch.compile(triton_ops.softmax, backend="eager", fullgraph=True)
    empty = torch.compile(torch.empty_like, backend="eager", fullgraph=True)
    launch = plainly(functions["softmax"])
    made = {
        **{name: Row(call, plainly(call)) for name, call in functions.items()},
        **_gradients(new, functions),
        **_changing(new),
        "an operation": Row(lambda: own(*wide, 4096), lambda: kernel[grid](*wide, 4096, **options), CHOSEN),
        "a chooser": Row(lambda: chooser(x), lambda: triton_ops.softmax(x), CHOSEN),
        "under torch.compile": Row(lambda: compiled(x), lambda: (empty(x), launch()), COMPILED),
    }
    for row in made.values():
        for call in (*row.calls.values(), row.call, row.call):
            call()
    return made
