"""What one tuner's process does in `benchmarks.tuning.third_party`: operators of public packages, forward and backward.

    python -m benchmarks.tuning.third_party_cases [--inline] triton|ours FOLDER

It answers each line `first NAME` and `time NAME` on stdin with a pickle in the folder.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import pickle
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner

import triton_ops

B, T, H, D = 2, 2048, 8, 128
REPETITIONS, WARM = 20, 3


def tensor(*shape: int) -> Any:
    """A parameter drawn from the normal distribution."""
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def gate(*shape: int) -> Any:
    """Logarithms of gates, as gated attention takes them."""
    return torch.nn.functional.logsigmoid(tensor(*shape).float()).to(torch.bfloat16).detach().requires_grad_()


def beta(*shape: int) -> Any:
    """Factors between 0 and 1."""
    return tensor(*shape).detach().sigmoid().requires_grad_()


def heads() -> tuple[Any, Any, Any]:
    """Queries, normalised keys, and values."""
    k = torch.nn.functional.normalize(tensor(B, T, H, D).detach().float(), dim=-1).to(torch.bfloat16)
    return tensor(B, T, H, D), k.requires_grad_(), tensor(B, T, H, D)


# Name to module, function, and arguments. All are differentiated.
CASES: dict[str, tuple[str, str, Callable[[], tuple[Any, ...]]]] = {
    "l2norm": ("fla.modules.l2norm", "l2norm", lambda: (tensor(B, T, H * D),)),
    "rms_norm": ("fla.modules.layernorm", "rms_norm", lambda: (tensor(B * T, H * D), tensor(H * D), None)),
    "layer_norm": ("fla.modules.layernorm", "layer_norm", lambda: (tensor(B * T, H * D), tensor(H * D), tensor(H * D))),
    "swiglu": ("fla.modules.activations", "swiglu", lambda: (tensor(B, T, H * D), tensor(B, T, H * D))),
    "liger_dyt": (
        "liger_kernel.transformers.functional", "liger_dyt",
        lambda: (tensor(B * T, H * D), tensor(1), tensor(H * D), tensor(H * D)),
    ),
    "logsigmoid": ("fla.modules.activations", "logsigmoid", lambda: (tensor(B, T, H * D),)),
    "chunk_gla": ("fla.ops.gla", "chunk_gla", lambda: (*heads(), gate(B, T, H, D))),
    "chunk_retention": ("fla.ops.retention", "chunk_retention", heads),
    "chunk_delta_rule": ("fla.ops.delta_rule", "chunk_delta_rule", lambda: (*heads(), beta(B, T, H))),
    "chunk_gated_delta_rule": (
        "fla.ops.gated_delta_rule", "chunk_gated_delta_rule", lambda: (*heads(), gate(B, T, H), beta(B, T, H)),
    ),
    "chunk_simple_gla": ("fla.ops.simple_gla", "chunk_simple_gla", lambda: (*heads(), gate(B, T, H))),
}  # fmt: skip


def runner_of(name: str) -> Callable[[], list[Any]]:
    """A call of a case, with the inputs that every process draws alike: forward and backward."""
    torch.manual_seed(sum(map(ord, name)))
    module, function, make = CASES[name]
    call = getattr(importlib.import_module(module), function)
    arguments = make()
    leaves = [value for value in arguments if isinstance(value, torch.Tensor)]

    def run() -> list[Any]:
        for leaf in leaves:
            leaf.grad = None
        result = call(*arguments)
        out = result[0] if isinstance(result, tuple) else result
        out.float().sum().backward()
        return [out, *(leaf.grad for leaf in leaves)]

    return run


def first_call(run: Callable[[], list[Any]]) -> dict[str, Any]:
    """The seconds of the first call, and its results."""
    start = time.perf_counter()
    results = [None if value is None else value.detach().cpu() for value in run()]
    torch.cuda.synchronize()
    return {"first_s": time.perf_counter() - start, "results": results}


def milliseconds(run: Callable[[], Any]) -> float:
    """The median of one call on the GPU's own clock."""
    for _ in range(WARM):
        run()
    times = []
    for _ in range(REPETITIONS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def main(mode: str, folder: Path, *, inline: bool) -> None:
    """Answer what is asked on stdin with the operators above, with one tuner."""
    installed = triton_ops.install(isolate=False if inline else None) if mode == "ours" else contextlib.nullcontext()
    with installed:
        answer(runner_of, folder)


def answer(runner: Callable[[str], Callable[[], list[Any]]], folder: Path) -> None:
    """Answer what is asked on stdin, one line after the other; `runner` gives what a name means."""
    run: Callable[[], Any] | None = None
    for number, line in enumerate(sys.stdin):
        word, name = line.split()
        try:
            if word == "first":
                run = runner(name)
                result = first_call(run)
            else:
                result = {"ms": milliseconds(run)}
        except Exception as error:  # noqa: BLE001 - a package that does not run here is told, and left out
            result = {"error": f"{type(error).__name__}: {error}"[:400]}
        rows = [{"kernel": row.kernel, "rung": row.rung, "why": row.why, "launches": row.launches,
                 "problem": row.problem, "config": dict(row.config)} for row in triton_ops.launches()]  # fmt: skip
        (folder / "unfinished").write_bytes(pickle.dumps({**result, "rows": rows, "tuned": tuned_kernels()}))
        (folder / "unfinished").replace(folder / f"{number}.pickle")


def tuned_kernels() -> list[str]:
    """The names of the kernels of several configs that a tuner has chosen for."""
    kernels = [each for each in gc.get_objects() if issubclass(type(each), Autotuner)]  # a proxy's own type, too
    tuned = [each for each in kernels if len(each.configs) > 1 and each.cache]
    return sorted({f"{each.base_fn.__module__}:{each.base_fn.__name__}" for each in tuned})


if __name__ == "__main__":
    main(sys.argv[-2], Path(sys.argv[-1]), inline="--inline" in sys.argv)
