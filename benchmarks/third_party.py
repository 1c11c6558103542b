"""Autotuned kernels of public packages, with Triton's tuner and under `triton_ops.install()`, each in a fresh process.

    pip install --no-deps fla-core flash-linear-attention liger-kernel einops
    python -m benchmarks.third_party --out benchmarks/results/nvidia-h200/third_party.json

Each case is a forward and a backward pass of an operator. Both processes start with empty disk caches, draw the same
inputs, and tell for each case the seconds of its first call, which tunes, and the milliseconds of later ones. What
`TRITON_PRINT_AUTOTUNING` prints tells the seconds that each kernel's tunes took, compiling included. The outputs and
gradients of both are compared. `--inline` tunes in this process, where a crash would end it. FLA's own
cache of configs is off, which is its default.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.document import headed, save
from triton_ops.dispatch.printed import parse_printed

B, T, H, D = 2, 2048, 8, 128
REPETITIONS, WARM = 30, 5
TOLERANCE = 0.02  # of the largest value: other tiles add up in another order, in bfloat16


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
    "logsigmoid": ("fla.modules.activations", "logsigmoid", lambda: (tensor(B, T, H * D),)),
    "chunk_gla": ("fla.ops.gla", "chunk_gla", lambda: (*heads(), gate(B, T, H, D))),
    "chunk_retention": ("fla.ops.retention", "chunk_retention", heads),
    "chunk_simple_gla": ("fla.ops.simple_gla", "chunk_simple_gla", lambda: (*heads(), gate(B, T, H))),
    "chunk_delta_rule": ("fla.ops.delta_rule", "chunk_delta_rule", lambda: (*heads(), beta(B, T, H))),
    "chunk_gated_delta_rule": (
        "fla.ops.gated_delta_rule", "chunk_gated_delta_rule", lambda: (*heads(), gate(B, T, H), beta(B, T, H)),
    ),
    "liger_dyt": (
        "liger_kernel.transformers.functional", "liger_dyt",
        lambda: (tensor(B * T, H * D), tensor(1), tensor(H * D), tensor(H * D)),
    ),
}  # fmt: skip


def one_case(name: str) -> dict[str, Any]:
    """The first seconds, the later milliseconds, and the results of a case."""
    module, function, make = CASES[name]
    torch.manual_seed(sum(map(ord, name)))
    call = getattr(importlib.import_module(module), function)
    arguments = make()
    leaves = [value for value in arguments if isinstance(value, torch.Tensor)]

    def run() -> list[Any]:
        for leaf in leaves:
            leaf.grad = None
        found = call(*arguments)
        out = found[0] if isinstance(found, tuple) else found
        out.float().sum().backward()
        return [out, *(leaf.grad for leaf in leaves)]

    start = time.perf_counter()
    results = [None if value is None else value.detach().cpu() for value in run()]
    torch.cuda.synchronize()
    return {"first_s": time.perf_counter() - start, "ms": milliseconds(run), "results": results}


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


def child(mode: str, names: list[str], target: Path, inline: bool) -> None:
    """Run the cases in this process, and write what they gave."""
    import triton_ops

    found: dict[str, Any] = {}
    installed = triton_ops.install(isolate=False if inline else None) if mode == "ours" else contextlib.nullcontext()
    with installed:
        for name in names:
            try:
                found[name] = one_case(name)
            except Exception as error:  # noqa: BLE001 - a package that does not run here is told, and left out
                found[name] = {"error": f"{type(error).__name__}: {error}"[:400]}
            print(f"{mode} {name}: {found[name].get('error') or round(found[name]['first_s'], 2)}", flush=True)
    rows = [{"kernel": row.kernel, "rung": row.rung, "why": row.why, "launches": row.launches,
             "problem": row.problem, "config": dict(row.config)} for row in triton_ops.launches()]  # fmt: skip
    torch.save({"cases": found, "rows": rows, "kernels": tuned_kernels()}, target)


def tuned_kernels() -> list[str]:
    """The names of the kernels of several configs that a tuner has chosen for."""
    from triton.runtime.autotuner import Autotuner

    tuned = [each for each in gc.get_objects() if isinstance(each, Autotuner) and len(each.configs) > 1 and each.cache]
    return sorted({f"{each.base_fn.__module__}:{each.base_fn.__name__}" for each in tuned})


def in_process(mode: str, names: list[str], inline: bool) -> Any:
    """What a fresh process with empty caches gave."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "found.pt"
        words = [sys.executable, "-m", "benchmarks.third_party", "--child", mode, "--target", str(target)]
        words += ["--cases", ",".join(names), *(["--inline"] if inline else [])]
        environment = {**os.environ, "TRITON_CACHE_DIR": f"{folder}/triton", "TRITON_OPS_CACHE_DIR": f"{folder}/ops",
                       "TRITON_PRINT_AUTOTUNING": "1"}  # fmt: skip
        start = time.perf_counter()
        told = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
        wall_s = time.perf_counter() - start
        found = torch.load(target, weights_only=False)
    print("".join(f"{line}\n" for line in told.splitlines() if line.startswith(f"{mode} ")), end="", flush=True)
    return {**found, "wall_s": wall_s, "tuned_s": tuned_seconds(told)}


def tuned_seconds(told: str) -> dict[str, dict[str, float]]:
    """By kernel: the seconds of its tunes, how many there were, and how many configs they tried in all."""
    found: dict[str, dict[str, float]] = {}
    for tune in parse_printed(told):
        if tune.seconds is not None:
            row = found.setdefault(tune.kernel, {"seconds": 0.0, "tunes": 0, "configs": 0})
            row["seconds"] += tune.seconds
            row["tunes"] += 1
            row["configs"] += len(tune.tried)
    return found


def side_by_side(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """By kernel that both have tuned: the seconds of both, and the configs of each tune."""
    return {
        kernel: {
            "triton_s": round(one["seconds"], 3), "ours_s": round(other["seconds"], 3),
            "tunes": {"triton": one["tunes"], "ours": other["tunes"]},
            "configs": round(one["configs"] / one["tunes"], 1), "faster": other["seconds"] < one["seconds"],
        }
        for kernel, one in sorted(theirs.items()) if (other := ours.get(kernel)) is not None
    }  # fmt: skip


def apart(one: list[Any], other: list[Any]) -> float:
    """The largest difference of results, relative to the largest value of each."""
    pairs = [(a.float(), b.float()) for a, b in zip(one, other, strict=True) if a is not None]
    return max(float((a - b).abs().max() / a.abs().max().clamp_min(1e-6)) for a, b in pairs)


def compared(theirs: Any, ours: Any) -> dict[str, Any]:
    """By case: seconds to tune, milliseconds afterwards, and how far the results are apart."""
    found: dict[str, Any] = {}
    for name, one in theirs["cases"].items():
        other = ours["cases"][name]
        if "error" in one or "error" in other:
            found[name] = {"triton": one.get("error"), "ours": other.get("error")}
            continue
        difference = apart(one["results"], other["results"])
        found[name] = {
            "first_s": {"triton": one["first_s"], "ours": other["first_s"]},
            "ms": {"triton": one["ms"], "ours": other["ms"]},
            "apart": difference, "equal": difference <= TOLERANCE,
        }  # fmt: skip
    return found


def main() -> None:
    """Run both tuners and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--inline", action="store_true", help="tune in the same process")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    parser.add_argument("--child", choices=["triton", "ours"], help=argparse.SUPPRESS)
    parser.add_argument("--target", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.cases.split(",")
    if options.child:
        child(options.child, names, options.target, options.inline)
        return
    theirs, ours = (in_process(mode, names, options.inline) for mode in ("triton", "ours"))
    table, kernels = compared(theirs, ours), side_by_side(theirs["tuned_s"], ours["tuned_s"])
    launched = sorted({row["kernel"] for row in ours["rows"]})
    content = {
        "cases": table,
        "tuned": kernels,
        "kernels": {"triton": theirs["kernels"], "ours": launched},
        "wall_s": {"triton": theirs["wall_s"], "ours": ours["wall_s"]},
        "rows": ours["rows"],
    }
    print(json.dumps({name: content[name] for name in ("cases", "wall_s")}))
    for name, row in kernels.items():
        print(f"{name}: {row['configs']:g} configs, Triton {row['triton_s']:.2f} s, ours {row['ours_s']:.2f} s")
    print(f"tuned faster: {sum(row['faster'] for row in kernels.values())} of {len(kernels)} kernels")
    print(
        f"{len(content['kernels']['triton'])} kernels were tuned by Triton, {len(content['kernels']['ours'])} run by us"
    )
    if options.out is not None:
        save(options.out, headed("python -m benchmarks.third_party", options.commit, **content))


if __name__ == "__main__":
    main()
