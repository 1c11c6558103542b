"""The steps of `benchmarks.tuning.in_place_gpu`: blocks of five models, of shipped kernels and of public-style ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

import triton_ops
from triton_ops import flash_attention, fused_gated_mlp, grouped_matmul, layer_norm, matmul, softmax

ROWS = [triton.Config({}, num_warps=warps) for warps in (2, 4, 8, 16)]
FLAT = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (512, 1024, 2048, 4096) for warps in (4, 8)]
SCANS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (16, 32, 64, 128) for warps in (1, 2, 4)]
TUNED = {"budget_s": 4.0, "on_miss": "default"}
Step = Callable[[], Any]


@triton_ops.autotune(ROWS, key=["n"], **TUNED)
@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, n, eps, WIDTH: tl.constexpr):
    """Rows over their root mean square."""
    row, columns = tl.program_id(0), tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(x * x, 0) / n + eps)
    weight = tl.load(weight_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * n + columns, x * scale * weight, mask=columns < n)


@triton_ops.autotune(FLAT, key=["n"], **TUNED)
@triton.jit
def silu_mul_kernel(x_ptr, out_ptr, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """SiLU of one half of rows, times the other."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, column = at // WIDTH, at % WIDTH
    gate = tl.load(x_ptr + row * 2 * WIDTH + column, mask=at < n, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * 2 * WIDTH + WIDTH + column, mask=at < n, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, gate * tl.sigmoid(gate) * up, mask=at < n)


@triton_ops.autotune(FLAT, key=["n"], **TUNED)
@triton.jit
def conv_kernel(x_ptr, weight_ptr, out_ptr, n, LENGTH: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """Four taps back in time."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    time, channel = (at // CHANNELS) % LENGTH, at % CHANNELS
    total = tl.zeros((BLOCK,), tl.float32)
    for back in tl.static_range(4):
        weight = tl.load(weight_ptr + channel * 4 + back).to(tl.float32)
        inside = (at < n) & (time >= back)
        total += weight * tl.load(x_ptr + at - back * CHANNELS, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, total * tl.sigmoid(total), mask=at < n)


@triton_ops.autotune(SCANS, key=["length", "channels"], **TUNED)
@triton.jit
def scan_kernel(
    x_ptr, dt_ptr, a_ptr, b_ptr, c_ptr, out_ptr, length, channels, STATES: tl.constexpr, BLOCK: tl.constexpr
):
    """A recurrence over time."""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    state, inside = tl.arange(0, STATES), channel < channels
    batch = tl.program_id(1)
    a = tl.load(a_ptr + channel[:, None] * STATES + state[None, :], mask=inside[:, None], other=0.0)
    h = tl.zeros((BLOCK, STATES), tl.float32)
    for time in range(length):
        at = (batch * length + time) * channels + channel
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        dt = tl.load(dt_ptr + at, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + (batch * length + time) * STATES + state).to(tl.float32)
        c = tl.load(c_ptr + (batch * length + time) * STATES + state).to(tl.float32)
        h = tl.exp(dt[:, None] * a) * h + (dt * x)[:, None] * b[None, :]
        tl.store(out_ptr + at, tl.sum(h * c[None, :], 1), mask=inside)


@triton_ops.autotune([triton.Config({"TAG": tag, "BLOCK": 1024}) for tag in range(4)], key=["n"], **TUNED)
@triton.jit
def equal_kernel(x_ptr, out_ptr, n, TAG: tl.constexpr, BLOCK: tl.constexpr):  # noqa: ARG001 - what is tuned
    """Twice x, whatever the tag."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


def rms_norm(x: Any, weight: Any) -> Any:
    """Rows over their root mean square, times a weight."""
    out, n = torch.empty_like(x), x.shape[-1]
    rms_norm_kernel[(x.numel() // n,)](x, weight, out, n, 1e-6, WIDTH=triton.next_power_of_2(n))
    return out


def silu_mul(x: Any) -> Any:
    """The first half of each row through SiLU, times the second."""
    width = x.shape[-1] // 2
    out = x.new_empty(*x.shape[:-1], width)
    silu_mul_kernel[lambda meta: (triton.cdiv(out.numel(), meta["BLOCK"]),)](x, out, out.numel(), WIDTH=width)
    return out


def causal_conv(x: Any, weight: Any) -> Any:
    """A convolution over four times back, for each channel, through SiLU."""
    out, (_, length, channels) = torch.empty_like(x), x.shape
    grid = lambda meta: (triton.cdiv(out.numel(), meta["BLOCK"]),)  # noqa: E731 - as kernels are launched
    conv_kernel[grid](x, weight, out, out.numel(), LENGTH=length, CHANNELS=channels)
    return out


def scan(x: Any, dt: Any, a: Any, b: Any, c: Any) -> Any:
    """The selective scan of Mamba, a channel's states in one program."""
    out, (batch, length, channels) = torch.empty_like(x), x.shape
    grid = lambda meta: (triton.cdiv(channels, meta["BLOCK"]), batch)  # noqa: E731 - as kernels are launched
    scan_kernel[grid](x, dt, a, b, c, out, length, channels, STATES=b.shape[-1])
    return out


def drawn(*shape: int, scale: float = 1.0, **more: Any) -> Any:
    """A tensor of bfloat16 on the GPU, from the normal distribution."""
    return (torch.randn(*shape, device="cuda") * scale).to(torch.bfloat16).requires_grad_(**more)


def weights(*shape: int) -> Any:
    """A weight whose products keep their size."""
    return drawn(*shape, scale=1 / math.sqrt(shape[0]), requires_grad=False)


def no_grad(**shapes: tuple[int, ...]) -> dict[str, Any]:
    """Weights by name."""
    return {name: weights(*shape) for name, shape in shapes.items()}


def attended(qkv: Any, batch: int, heads: int, *, causal: bool) -> Any:
    """Attention over the packed projections [batch * tokens, 3 * heads * size]."""
    parts = qkv.view(batch, -1, 3, heads, qkv.shape[-1] // (3 * heads)).permute(2, 0, 3, 1, 4)
    out = flash_attention(parts[0], parts[1], parts[2], causal=causal)
    return out.transpose(1, 2).reshape(qkv.shape[0], -1)


def llama(tokens: int = 2048, hidden: int = 2048, inner: int = 5632, heads: int = 16) -> Step:
    """A block of a small Llama at prefill."""
    own = no_grad(qkv=(hidden, 3 * hidden), out=(hidden, hidden), gate=(inner, hidden), up=(inner, hidden),
                  down=(inner, hidden))  # fmt: skip
    x, norm = drawn(tokens, hidden, requires_grad=False), torch.ones(hidden, device="cuda", dtype=torch.bfloat16)

    def step() -> Any:
        mixed = x + matmul(attended(matmul(rms_norm(x, norm), own["qkv"]), 1, heads, causal=True), own["out"])
        wide = fused_gated_mlp(rms_norm(mixed, norm)[None], own["gate"], own["up"])[0]
        return mixed + matmul(wide, own["down"])

    return step


def moe(tokens: int = 2048, hidden: int = 2048, inner: int = 768, experts: int = 64, chosen: int = 8) -> Step:
    """The experts of a block, whose tokens a router spreads unevenly."""
    router, norm = weights(hidden, experts), torch.ones(hidden, device="cuda", dtype=torch.bfloat16)
    shapes = (experts, hidden, 2 * inner), (experts, inner, hidden)
    up, down = (drawn(*shape, scale=1 / math.sqrt(shape[1]), requires_grad=False) for shape in shapes)
    x = drawn(tokens, hidden, requires_grad=False)
    bias = torch.linspace(2, 0, experts, device="cuda")

    def step() -> Any:
        rows = rms_norm(x, norm)
        scores, picks = softmax(matmul(rows, router).float() + bias).topk(chosen)
        order = picks.flatten().argsort(stable=True)
        ends = (picks.flatten()[:, None] == torch.arange(experts, device="cuda")).sum(0).cumsum(0).to(torch.int32)
        inside = silu_mul(grouped_matmul(rows[order // chosen], up, ends))
        back = grouped_matmul(inside, down, ends)
        out = torch.empty_like(back)
        out[order] = back
        return x + (out.view(tokens, chosen, hidden) * scores[..., None].to(x.dtype)).sum(1)

    return step


def mamba(length: int = 512, batch: int = 4, hidden: int = 1024, states: int = 16) -> Step:
    """A block of a small Mamba."""
    inner = 2 * hidden
    own = no_grad(wide=(hidden, 2 * inner), steps=(inner, inner), bc=(inner, 2 * states), out=(inner, hidden))
    taps, norm = weights(4, inner).T.contiguous(), torch.ones(hidden, device="cuda", dtype=torch.bfloat16)
    a = -torch.rand(inner, states, device="cuda") - 0.1
    x = drawn(batch * length, hidden, requires_grad=False)

    def step() -> Any:
        wide = matmul(rms_norm(x, norm), own["wide"])
        inside, gate = wide[:, :inner].contiguous(), wide[:, inner:]
        inside = causal_conv(inside.view(batch, length, inner), taps).view(-1, inner)
        dt = torch.nn.functional.softplus(matmul(inside, own["steps"]) - 3)
        b, c = matmul(inside, own["bc"]).split(states, dim=1)
        shape = (batch, length, -1)
        out = scan(inside.view(*shape), dt.view(*shape), a, b.contiguous(), c.contiguous()).view(-1, inner)
        return x + matmul(silu_mul(torch.cat([gate, out], 1)), own["out"])

    return step


def vision(batch: int = 32, tokens: int = 256, hidden: int = 1024, heads: int = 16) -> Step:
    """A block of a large vision transformer."""
    own = no_grad(qkv=(hidden, 3 * hidden), out=(hidden, hidden), up=(hidden, 4 * hidden), down=(4 * hidden, hidden))
    biases = {name: drawn(each.shape[1], scale=0.1, requires_grad=False) for name, each in own.items()}
    scale, shift = torch.ones(hidden, device="cuda", dtype=torch.bfloat16), drawn(hidden, requires_grad=False)
    x = drawn(batch * tokens, hidden, requires_grad=False)

    def step() -> Any:
        qkv = matmul(layer_norm(x, scale, shift), own["qkv"], bias=biases["qkv"])
        mixed = x + matmul(attended(qkv, batch, heads, causal=False), own["out"], bias=biases["out"])
        wide = matmul(layer_norm(mixed, scale, shift), own["up"], bias=biases["up"], activation="gelu")
        return mixed + matmul(wide, own["down"], bias=biases["down"])

    return step


class Block(torch.nn.Module):
    """A layer that is trained: the projections are torch's, the rest are shipped kernels with gradients."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads, inner = heads, 4 * hidden
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(hidden) for _ in range(2))
        self.qkv = torch.nn.Linear(hidden, 3 * hidden, bias=False)  # a bias of keys has no gradient but rounding
        self.out = torch.nn.Linear(hidden, hidden)
        self.mlp, self.down = triton_ops.FusedGatedMLP(hidden, inner), torch.nn.Linear(inner, hidden)

    def forward(self, x: Any) -> Any:
        """From [batch, tokens, hidden] to the same."""
        one, two = self.norms
        flat = self.qkv(layer_norm(x, one.weight, one.bias)).flatten(0, 1)
        x = x + self.out(attended(flat, x.shape[0], self.heads, causal=True)).view_as(x)
        return x + self.down(self.mlp(layer_norm(x, two.weight, two.bias)))


def training(batch: int = 4, tokens: int = 1024, hidden: int = 1024, heads: int = 8, layers: int = 2) -> Step:
    """Forward, backward and the optimizer of two layers."""
    model = torch.nn.Sequential(*(Block(hidden, heads) for _ in range(layers))).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
    x, target = (drawn(batch, tokens, hidden, requires_grad=False) for _ in range(2))

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(x).float(), target.float())
        loss.backward()
        optimizer.step()
        return loss

    step()
    return step


def equal(rows: int) -> tuple[Step, Any]:
    """A step around a kernel whose configs are all the same, and the call of that kernel."""
    x, weight = drawn(rows, 1024, requires_grad=False), weights(1024, 1024)
    out, grid = torch.empty_like(x), lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)

    def step() -> Any:
        equal_kernel[grid](torch.tanh(x @ weight), out, x.numel())
        return torch.softmax(out, 1)

    return step, equal_kernel.launches.call_of(grid, (x, out, x.numel()), {})


MODELS = {"llama": llama, "moe": moe, "mamba": mamba, "vision": vision, "training": training}
