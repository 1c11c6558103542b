"""Which winners of kernels change inside a step, what does that gain, and does noise alone change any?

    python -m benchmarks.tuning.in_place_gpu --out benchmarks/results/nvidia-h100-80gb-hbm3/in_place.json

Three steps of shipped kernels: a block like Llama's, a block of experts, and a training step. Their kernels are tuned
alone, and then finalists race in the step (`tune_in_place`). `aa` decisions are between captures of one small step
with equal configs: a race of four of them, and where another than the first leads, a second race.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import triton_ops
from benchmarks.document import headed, save
from triton_ops.benchmark.in_place import StepFinals
from triton_ops.device import probe
from triton_ops.records import Lockfile
from triton_ops.space import Config
from triton_ops.timing import Interval
from triton_ops.tuner import Silent

SEQ, HIDDEN, HEADS, WIDE = 1024, 2048, 16, 5632
Step = Callable[[], Any]


def _random(*shape: int, grad: bool = False) -> Any:
    return (0.02 * torch.randn(shape, device="cuda", dtype=torch.bfloat16)).requires_grad_(grad)


def llama() -> tuple[Step, list[Any]]:
    """A block like Llama's: projections, causal attention, gated MLP."""
    x, wqkv, wo = _random(SEQ, HIDDEN), _random(HIDDEN, 3 * HIDDEN), _random(HIDDEN, HIDDEN)
    gate, up, down = _random(WIDE, HIDDEN), _random(WIDE, HIDDEN), _random(WIDE, HIDDEN)

    def step() -> Any:
        normed = triton_ops.layer_norm(x)
        qkv = triton_ops.matmul(normed, wqkv).view(1, SEQ, 3, HEADS, HIDDEN // HEADS)
        q, k, v = (each.squeeze(2).transpose(1, 2) for each in qkv.split(1, 2))
        attended = triton_ops.flash_attention(q, k, v, causal=True).transpose(1, 2).reshape(SEQ, HIDDEN)
        y = x + triton_ops.matmul(attended, wo)
        gated = triton_ops.fused_gated_mlp(triton_ops.layer_norm(y)[None], gate, up)
        return y + triton_ops.matmul(gated[0], down)

    return step, []


def experts() -> tuple[Step, list[Any]]:
    """A block of 32 experts, of which each token takes four: router, softmax, two grouped products."""
    number, top, width = 32, 4, 1024
    x, router = _random(SEQ, HIDDEN), _random(HIDDEN, number)
    up, down = _random(number, HIDDEN, width), _random(number, width, HIDDEN)

    def step() -> Any:
        scores = triton_ops.softmax(triton_ops.matmul(x, router).float())
        weight, expert = scores.topk(top, dim=1)
        order = expert.flatten().argsort()
        ends = torch.zeros(number, device="cuda", dtype=torch.int64).scatter_add_(
            0, expert.flatten(), torch.ones_like(expert.flatten())
        ).cumsum(0)  # fmt: skip
        hidden = torch.relu(triton_ops.grouped_matmul(x, up, ends, gather=order // top))
        rows = triton_ops.grouped_matmul(hidden, down, ends) * weight.flatten()[order, None].bfloat16()
        return torch.zeros_like(x, dtype=torch.float32).index_add_(0, order // top, rows.float())

    return step, []


def training() -> tuple[Step, list[Any]]:
    """A training step: layer norm, attention and gated MLP with their gradients, and plain SGD."""
    x, wqkv, down = _random(SEQ, HIDDEN), _random(3 * HIDDEN, HIDDEN, grad=True), _random(HIDDEN, WIDE, grad=True)
    gate, up = _random(WIDE, HIDDEN, grad=True), _random(WIDE, HIDDEN, grad=True)
    weight, bias = torch.ones(HIDDEN, device="cuda", requires_grad=True), torch.zeros(HIDDEN, device="cuda")
    weights = [wqkv, down, gate, up, weight]

    def step() -> Any:
        qkv = torch.nn.functional.linear(triton_ops.layer_norm(x, weight, bias), wqkv)
        q, k, v = (each.transpose(1, 2) for each in qkv.view(1, SEQ, 3, HEADS, HIDDEN // HEADS).unbind(2))
        y = triton_ops.flash_attention(q, k, v, causal=True).transpose(1, 2).reshape(1, SEQ, HIDDEN)
        loss = torch.nn.functional.linear(triton_ops.fused_gated_mlp(y, gate, up), down).float().square().mean()
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for each, gradient in zip(weights, gradients, strict=True):
                each -= 0.01 * gradient
        return loss.detach()

    return step, [each.detach() for each in weights]


PLACE = "cuda:0"
STEPS = {"llama": llama, "experts": experts, "training": training}


def measured(name: str, tune_s: float, budget_s: float) -> dict[str, Any]:
    """The figures of one step."""
    step, state = STEPS[name]()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, triton_ops.tuning(
        budget_s=tune_s, cache_dir=folder, listener=Silent()
    ):  # fmt: skip
        step()
        tuned_s = time.monotonic() - start
        result = triton_ops.tune_in_place(step, budget_s=budget_s, name=name, state=state, cache_dir=folder)
    print(f"{result}\n{tuned_s:.0f} s of tunes, {result.elapsed_s:.0f} s in place", flush=True)
    rows = [
        {"kernel": row.kernel, "problem": row.problem, "launches": row.launches, "share": row.share,
         "before": str(row.before), "after": str(row.after), "gain": _numbers(row.gain), "reason": row.reason}
        for row in result.kernels
    ]  # fmt: skip
    return {
        "step": name, "gain": _numbers(result.gain), "mode": result.mode, "verified": result.verified,
        "tuned_s": tuned_s, "elapsed_s": result.elapsed_s, "kernels": rows, "notes": list(result.notes),
    }  # fmt: skip


def _numbers(gain: Interval | None) -> list[float] | None:
    return None if gain is None else [gain.centre, gain.low, gain.high]


def aa_decisions(count: int, seconds: float) -> dict[str, Any]:
    """How many decisions among equal steps change something."""
    a, b = _random(512, HIDDEN), _random(HIDDEN, 512)
    led, changed, longest, start, done = 0, 0, 0.0, time.monotonic(), 0

    def finals() -> StepFinals:
        small = lambda: triton_ops.softmax(triton_ops.matmul(a, b))  # noqa: E731
        return StepFinals(small, [], "small", Path("/nowhere"), 0.0, PLACE)

    while done < count and time.monotonic() - start < seconds:
        begin = time.monotonic()
        configs = [Config(copy=number) for number in range(4)]
        leader = finals().leader(dict.fromkeys(configs, Lockfile()), 1.0)
        led += leader != configs[0]
        changed += leader != configs[0] and finals().proven(Lockfile(), Lockfile(), 1.0) is not None
        longest, done = max(longest, time.monotonic() - begin), done + 1
    # The second race alone, which a lucky leader must win.
    proven = sum(finals().proven(Lockfile(), Lockfile(), 1.0) is not None for _ in range(done // 4))
    return {"decisions": done, "led": led, "changed": changed, "second_races": done // 4, "proven": proven,
            "longest_s": longest, "elapsed_s": time.monotonic() - start}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", nargs="*", default=list(STEPS))
    parser.add_argument("--tune-s", type=float, default=5.0)
    parser.add_argument("--budget-s", type=float, default=30.0)
    parser.add_argument("--aa", type=int, default=100)
    parser.add_argument("--aa-s", type=float, default=150.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    options = parser.parse_args(arguments)
    figures: dict[str, Any] = {"steps": []}
    command = f"python -m benchmarks.tuning.in_place_gpu --tune-s {options.tune_s:g} --budget-s {options.budget_s:g}"
    for name in options.steps:
        figures["steps"].append(measured(name, options.tune_s, options.budget_s))
        if options.out:
            save(options.out, headed(command, options.commit, device=probe("cuda").name, **figures))
    figures["aa"] = aa_decisions(options.aa, options.aa_s)
    print(figures["aa"], flush=True)
    if options.out:
        save(options.out, headed(command, options.commit, device=probe("cuda").name, **figures))


if __name__ == "__main__":
    main()
