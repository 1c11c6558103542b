"""How long does it take to tune an engine's tables, and is a row ever slower than the one that serves now?

    mkdir -p /tmp/engines/site-packages && tar xzf engines.tgz -C /tmp/engines/site-packages   # of `engine_files`
    PYTHONPATH=src:serving:/tmp/engines/site-packages python -m benchmarks.tuning.serving_gpu --out FILE

All sizes of an engine's cases are one run, from empty caches, in the engine's own kernels, with equal shares; rows that
are not proven faster than the one of the engine's table, or of its default, stay. The tables are then written to
where the engine looks for them, and its own look-up is asked for each. `beside` is the way of vLLM's `benchmark_moe.py`
around the same launcher, for one size of the first case: its list of configs in random order, each compiled, captured
ten times in a graph, and replayed 25 times, until `--beside-s` are over; `all_s` is what the list would take.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import itertools
import json
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from benchmarks.document import headed, save
from triton_ops import LauncherKernel
from triton_ops.base import installed_version
from triton_ops.device import probe
from triton_ops.exceptions import CacheError
from triton_ops.space import Config
from triton_ops_serving.commands import ServedModel, export_command
from triton_ops_serving.kernels import TILES, Served
from triton_ops_serving.model import EngineProblem, Model
from triton_ops_serving.plugins import LOOK_UPS
from triton_ops_serving.tables import FOLDERS, Place
from triton_ops_serving.tuning import LIMITS, OPERATIONS, TunedTables

MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_local_experts": 8,
    "num_experts_per_tok": 2, "num_attention_heads": 32, "num_key_value_heads": 8, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "torch_dtype": "bfloat16",
}  # fmt: skip
NEMOTRON = {
    "model_type": "nemotron_h", "hidden_size": 4480, "mamba_num_heads": 128, "mamba_head_dim": 80, "n_groups": 8,
    "ssm_state_size": 128, "expand": 2, "torch_dtype": "bfloat16", "mamba_ssm_cache_dtype": "float32",
}  # fmt: skip
FALCON = {
    "model_type": "falcon_mamba", "hidden_size": 4096, "intermediate_size": 8192, "state_size": 16, "expand": 16,
    "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "torch_dtype": "bfloat16",
}  # fmt: skip
_BLOCKS = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
FP8, MIXTRAL_FP8 = {**QWEN, **_BLOCKS}, {**MIXTRAL, **_BLOCKS}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model's tables in one engine; those whose form and problem have a text."""

    engine: str
    values: Mapping[str, Any]
    only: str
    adapters: tuple[int, int] = (0, 1)

    @property
    def model(self) -> Model:
        """The model, with its adapters."""
        return Model(self.values, adapters=self.adapters)

    @property
    def problems(self) -> list[EngineProblem]:
        """The tables of this case."""
        return [each for each in self.model.problems(self.engine) if self.only in f"{each.form} {each.label}"]


CASES = {
    "Mixtral-8x7B, experts": Case(engine="vllm", values=MIXTRAL, only="vllm-moe"),
    "Mixtral-8x7B-FP8, experts": Case(engine="vllm", values=MIXTRAL_FP8, only="vllm-moe"),
    "Mixtral-8x7B-FP8, qkv_proj": Case(engine="vllm", values=MIXTRAL_FP8, only="vllm-linear N=6144"),
    "Mixtral-8x7B-FP8, o_proj": Case(engine="vllm", values=MIXTRAL_FP8, only="vllm-linear N=4096"),
    "Qwen3-30B-A3B, experts": Case(engine="vllm", values=QWEN, only="vllm-moe"),
    "Qwen3-30B-A3B-FP8, experts": Case(engine="vllm", values=FP8, only="vllm-moe"),
    "Qwen3-30B-A3B-FP8, qkv_proj": Case(engine="vllm", values=FP8, only="vllm-linear N=5120"),
    "Qwen3-30B-A3B-FP8, o_proj": Case(engine="vllm", values=FP8, only="vllm-linear N=2048"),
    "Qwen3-30B-A3B, experts, SGLang": Case(engine="sglang", values=QWEN, only="sglang-moe"),
    "Qwen3-30B-A3B-FP8, qkv_proj, SGLang": Case(engine="sglang", values=FP8, only="sglang-linear N=5120"),
    "Nemotron-Nano-9B-v2, state space": Case(engine="vllm", values=NEMOTRON, only="vllm-mamba"),
    "Falcon-Mamba-7B, state space": Case(engine="vllm", values=FALCON, only="vllm-mamba"),
    "Llama-3-8B, 4 adapters of rank 16": Case(engine="vllm", values=LLAMA, only="vllm-lora", adapters=(16, 4)),
    "Llama-3-8B, 4 adapters of rank 16, SGLang": Case(
        engine="sglang", values=LLAMA, only="sglang-lora", adapters=(16, 4)
    ),
}
WHOLE = list(CASES)[:8]  # all tables that vLLM has for two models, in two dtypes
_NAMES = ("row", "was", "was_ms", "config", "ms", "gain", "interval", "tried", "seconds", "status", "verdict")


def measured(names: Sequence[str], sizes: Sequence[int], seconds: float, folder: Path) -> list[dict[str, Any]]:
    """The figures of each table of some cases of one engine, all of them tuned as one run."""
    lock = folder / "lock.json"
    place = Place(device=probe().name, triton=installed_version("triton") or "")
    problems = [(name, each) for name in names for each in CASES[name].problems]
    shipped = {each.label: place.find(each) for _, each in problems}
    limits = {**dict.fromkeys(LIMITS), "budget_s": seconds, "seed": 0, "force": True, "cache_dir": folder / "cache"}
    tables = TunedTables(place, lock, CASES[names[0]].model, "uniform", sizes, limits, None)
    tables.tune([each for _, each in problems])
    figures = []
    for name, problem in problems:
        rows = [row for row in tables.rows if row["problem"] == problem.label]
        table = shipped[problem.label]
        figures.append({
            "case": name, "form": problem.form, "problem": problem.label,
            "served_before": table.path.name if table else None, "summary": summary(rows),
            "rows": [{name: row[name] for name in _NAMES} for row in rows],
        })  # fmt: skip
    print(f"{tables.elapsed_s:.0f} s")
    return figures


def exported(figure: Mapping[str, Any], folder: Path) -> int:
    """For how many rows of a table the engine's look-up answers with what was written; then all is put back."""
    case, lock = CASES[figure["case"]], folder / "lock.json"
    path, own, gpu = folder / "config.json", _folder_of(case, folder), probe().name
    path.write_text(json.dumps(case.values))
    rank, loras = case.adapters
    if not figure["summary"]["tuned"]:
        return 0
    problem = next(each for each in case.problems if each.label == figure["problem"])
    try:
        served = ServedModel.of(case.engine, path, lora_rank=rank, max_loras=loras)
        export_command(served, own, gpu=gpu, lockfile=[lock])
    except CacheError as error:  # of layers that share a file, one was not begun
        print(error)
        return 0
    count = found(problem, figure["rows"])
    if any(own.rglob("*.before")):  # it was written, and not as it is
        export_command(served, own, gpu=gpu, lockfile=[lock], undo=True)
    return count


def _folder_of(case: Case, folder: Path) -> Path:
    """The folder in which the engine looks first: that of its variable, else its own."""
    place, name = FOLDERS[case.only.partition(" ")[0]]
    if not name:
        return Path(importlib.import_module(case.engine).__file__ or "").parent / place
    os.environ[name] = str(folder / "tables")
    return folder / "tables"


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many rows became faster, by how much, and what it took."""
    gains = [row["gain"] for row in rows if row["gain"]]
    faster = [row for row in rows if row["interval"]]
    return {
        "rows": len(rows), "tuned": len(gains), "faster": len(faster),
        "proven": sum(row["interval"][0] > 1 for row in faster), "best": max(gains, default=None),
        "geometric_mean": math.exp(sum(map(math.log, gains)) / len(gains)) if gains else None,
        "tried": sum(row["tried"] or 0 for row in rows),
    }  # fmt: skip


def found(problem: EngineProblem, rows: Sequence[Mapping[str, Any]]) -> int:
    """For how many rows the engine's own look-up answers with the row that was written."""
    look_up = next(each for each in LOOK_UPS if each.form == problem.form)
    block = problem.facts.get("block_shape") or (0, 0)
    values = {"per_channel_quant": False, **problem.facts, "block_n": block[0], "block_k": block[1]}
    module = importlib.import_module(look_up.module)
    function = getattr(module, look_up.function)
    function.cache_clear()
    if look_up.size:
        module.load_lora_op_config.cache_clear()
        answers = {row["row"]: function(**problem.facts, **{look_up.size: row["row"]}) for row in rows}
        return sum(row["config"] is not None and answers[row["row"]] == row["config"] for row in rows)
    answer = function(*[values.get(name) for name in look_up.takes.split()]) or {}
    return sum(row["config"] is not None and answer.get(row["row"]) == row["config"] for row in rows)


def by_engines_way(name: str, size: int, seconds: float) -> dict[str, Any]:
    """The configs that vLLM's own benchmark tries for a size, in so many seconds by its own loop."""
    torch = importlib.import_module("torch")
    outside = importlib.import_module("triton.runtime.errors").OutOfResources
    (problem,) = CASES[name].problems
    operation = OPERATIONS[problem.form](problem, Served())
    arguments = operation.materialise(operation.problem((size,)), "cuda")
    launch = cast(LauncherKernel, operation.kernel).launch
    values = {**TILES, "GROUP_SIZE_M": (1, 16, 32, 64)}  # as its list has them
    configs = [Config(dict(zip(values, each, strict=True))) for each in itertools.product(*values.values())]
    random.Random(0).shuffle(configs)
    times: list[tuple[float, Config]] = []
    begun_s, tried, failed = time.monotonic(), 0, 0
    for config in configs:
        if time.monotonic() - begun_s > seconds:
            break
        tried += 1
        run = functools.partial(launch, *arguments.positional, **arguments.keyword, **config)
        try:
            with without_stderr():  # for a config that it cannot compile Triton prints its whole program
                times.append((_replayed_ms(torch, run), config))
        except (outside, RuntimeError):
            failed += 1
    took_s = time.monotonic() - begun_s
    best_ms, best = min(times, key=lambda each: each[0])
    return {
        "case": name, "size": size, "configs": len(configs), "tried": tried, "failed": failed,
        "seconds": took_s, "all_s": took_s * len(configs) / tried, "best_ms": best_ms, "best": dict(best),
    }  # fmt: skip


@contextlib.contextmanager
def without_stderr() -> Iterator[None]:
    """What is written to stderr meanwhile, also by what is no Python, is dropped."""
    sys.stderr.flush()
    original, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
        os.close(nothing)


def _replayed_ms(torch: Any, run: Any) -> float:
    """Milliseconds of one call, as vLLM's benchmark measures them."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            run()
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    total = 0.0
    for _ in range(20):
        torch.cuda.synchronize()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        total += begin.elapsed_time(end)
    graph.reset()
    return total / 200


def main() -> int:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=WHOLE, choices=list(CASES))
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="rows; all of the engine's by default")
    parser.add_argument("--seconds", type=float, default=180.0, help="of all tunes")
    parser.add_argument("--beside-s", type=float, default=20.0)
    parser.add_argument("--beside-size", type=int, default=256)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit")
    options = parser.parse_args()
    words = [f"--cases {' '.join(map(repr, options.cases))}"] if options.cases != WHOLE else []
    words += [f"--sizes {' '.join(map(str, options.sizes))}"] if options.sizes else []
    command = " ".join(["python -m benchmarks.tuning.serving_gpu", *words, f"--seconds {options.seconds:g}"])
    by_engine: dict[str, list[str]] = {}
    for name in options.cases:
        by_engine.setdefault(CASES[name].engine, []).append(name)
    document = headed(
        command, options.commit, device=probe().name, tables=[],
        engines={each: getattr(importlib.import_module(each), "__version__", "") for each in by_engine},
    )  # fmt: skip
    for engine, names in by_engine.items():
        with tempfile.TemporaryDirectory() as folder:
            begun_s, share = time.monotonic(), options.seconds * len(names) / len(options.cases)
            tables = measured(names, options.sizes, share, Path(folder))
            document["tables"] += tables
            document.setdefault("seconds", {})[engine] = time.monotonic() - begun_s
            save(options.out, document)  # what was measured outlasts what ends the rest
            for each in tables:
                each["found_by_engine"] = exported(each, Path(folder))
                print(each["case"], each["problem"], json.dumps(each["summary"]), each["found_by_engine"], flush=True)
        save(options.out, document)
    if options.beside_s > 0:
        document["beside"] = by_engines_way(options.cases[0], options.beside_size, options.beside_s)
        print(json.dumps(document["beside"]))
        save(options.out, document)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
