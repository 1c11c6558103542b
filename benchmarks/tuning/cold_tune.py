"""A cold tune against `triton.autotune`: the same configs of the bf16 matmul, from empty compile caches, in one run.

    python -m benchmarks.tuning.cold_tune --out benchmarks/results/nvidia-h200/cold_tune.json
    python -m benchmarks.tuning.cold_tune --configs 0  all of the space's 480 on both sides; Triton's takes minutes

Each side runs in a process of its own with a Triton cache of its own, so that all that is printed is caught, by
whichever process. The clock runs from the call to its return: imports of torch and Triton come before it on both sides,
starting workers and compilers is part of it on ours.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import triton

from benchmarks.document import headed, parser_of, save
from benchmarks.tuning.spaces import SPACES, operation_of
from triton_ops import ConfigSpace, Operation, compare, tune
from triton_ops.device import probe
from triton_ops.space import Config
from triton_ops.tuner import Silent
from triton_ops_kernels.matmul.kernel import grid, matmul_kernel

NAME, SHAPE, DTYPE = SPACES["matmul bf16 4096"]
_OPTIONS = ("num_warps", "num_stages")
_PTXAS_WORDS = ("ptxas", ".visible .entry", ".version", "%rd", "spill")


def chosen(count: int, seed: int) -> list[Config]:
    """The default and a random sample of the space, or all of it for 0; the same on both sides."""
    operation = operation_of(NAME)
    space = operation.space_for(operation.problem(SHAPE, DTYPE))
    configs = [config for config in space if config != space.default_config]
    if count:
        configs = random.Random(seed).sample(configs, count - 1)
    return [space.default_config, *configs]


class FirstMeasured(Silent):
    """Notes when the first config was measured."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.first_s: float | None = None

    def tried(self, trial: Any, progress: Any) -> None:  # noqa: ARG002 - the role's signature
        """After each trial."""
        if self.first_s is None and trial.ok:
            self.first_s = time.monotonic() - self.start


def ours(configs: list[Config], effort: str, cache: str) -> dict[str, Any]:
    """One tune of all configs."""
    torch.cuda.init()
    listener = FirstMeasured()
    result = tune(
        operation_of(NAME), space=ConfigSpace.from_configs(configs), shape=SHAPE, dtype=DTYPE, search="exhaustive",
        effort=effort, trials=len(configs), budget_s=600, cache_dir=cache, listener=listener,
    )  # fmt: skip
    wall_s = time.monotonic() - listener.start
    document = result.as_json
    return {
        "wall_s": round(wall_s, 2),
        "first_measurement_s": listener.first_s,
        "accounted": sum(document["totals"].values()),
        "same_code": sum(trial.same_code_as is not None for trial in result.trials),
        "failures": {str(t.config): f"{t.status}: {t.error[:120]}" for t in result.failures},
        "result": document,
    }


def tritons(configs: list[Config]) -> dict[str, Any]:
    """The first call of an autotuned kernel."""
    operation: Operation = operation_of(NAME)
    arguments = operation.materialise(operation.problem(SHAPE, DTYPE), "cuda").keyword
    tuner = triton.autotune([_triton_config(config) for config in configs], key=["M", "N", "K"])(matmul_kernel)
    torch.cuda.synchronize()
    start = time.monotonic()
    tuner[grid](**arguments)
    torch.cuda.synchronize()
    wall_s = time.monotonic() - start
    best = tuner.best_config
    return {"wall_s": round(wall_s, 2), "best_config": {**best.kwargs, **{o: getattr(best, o) for o in _OPTIONS}}}


def _triton_config(config: Config) -> Any:
    values = dict(config)
    options = {name: values.pop(name) for name in _OPTIONS}
    return triton.Config(values, **options)


def side(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One side in a process of its own; with what it printed."""
    out = folder / f"{name}.json"
    command = [
        sys.executable, "-m", "benchmarks.tuning.cold_tune", "--side", name, "--configs", str(options.configs),
        "--seed", str(options.seed), "--effort", options.effort, "--out", str(out),
    ]  # fmt: skip
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / f"{name}-compiled"), "NO_COLOR": "1"}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500, check=False)
    lines = [line for line in (process.stdout + process.stderr).splitlines() if line.strip()]
    if process.returncode:
        raise SystemExit(f"the side {name} failed:\n" + "\n".join(lines[-30:]))
    printed = [line for line in lines if any(word in line for word in _PTXAS_WORDS)]
    return {**json.loads(out.read_text()), "printed_lines": len(lines), "printed_by_ptxas": len(printed)}


def winners_compared(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Our winner against Triton's, in interleaved rounds."""
    operation = operation_of(NAME)
    arguments = operation.materialise(operation.problem(SHAPE, DTYPE), "cuda").keyword
    comparison = compare((operation, a), (operation, b), kwargs=arguments, names=("triton_ops", "triton.autotune"))
    return {"verdict": str(comparison), "percent": comparison.percent, "interval": comparison.interval}


def main() -> None:
    """Both sides, one after the other, and what came of it."""
    parser = parser_of(__doc__, Path("benchmarks/results/nvidia-h200/cold_tune.json"))
    parser.add_argument("--configs", type=int, default=120, help="a random sample of this many; 0 for all 480")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--effort", default="quick", help="how long the last comparison may be")
    parser.add_argument("--only-ours", action="store_true", help="leave Triton's side out")
    parser.add_argument("--side", choices=["ours", "triton"], help="used by the script itself")
    options = parser.parse_args()
    if options.side:
        configs = chosen(options.configs, options.seed)
        with tempfile.TemporaryDirectory() as cache:
            document = ours(configs, options.effort, cache) if options.side == "ours" else tritons(configs)
        options.out.write_text(json.dumps({**document, "configs": len(configs)}))
        return
    with tempfile.TemporaryDirectory() as folder:
        mine = side("ours", options, Path(folder))
        theirs = None if options.only_ours else side("triton", options, Path(folder))
    write(options, mine, theirs)


def write(options: argparse.Namespace, mine: dict[str, Any], theirs: dict[str, Any] | None) -> None:
    """The document, and its figures in short."""
    document = headed(
        f"python -m benchmarks.tuning.cold_tune --configs {options.configs}",
        options.commit,
        device=probe("cuda").name,
        cpus=len(os.sched_getaffinity(0)),
        configs=mine["configs"],
        wall_ratio=None if theirs is None else round(theirs["wall_s"] / mine["wall_s"], 2),
        ours=mine,
        triton=theirs,
        winners=None if theirs is None else winners_compared(mine["result"]["best_config"], theirs["best_config"]),
    )
    save(options.out, document)
    print(f"{mine['configs']} configs: {mine['wall_s']} s, first after {mine['first_measurement_s']:.2f} s, "
          f"{mine['accounted']} accounted for {mine['result']['totals']}, {mine['same_code']} with equal code, "
          f"{mine['result']['waited_s']} s waited for the compiler")  # fmt: skip
    print(f"printed: {mine['printed_lines']} lines, {mine['printed_by_ptxas']} by ptxas")
    if theirs is not None:
        print(f"triton.autotune: {theirs['wall_s']} s ({document['wall_ratio']} times), "
              f"{theirs['printed_lines']} lines printed; {document['winners']['verdict']}")  # fmt: skip


if __name__ == "__main__":
    main()
