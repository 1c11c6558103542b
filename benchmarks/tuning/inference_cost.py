"""How long a search waits for the work that is read of its kernel, beyond what is compiled anyway.

    python -m benchmarks.tuning.inference_cost --out benchmarks/results/cpu/inference_cost.json

No GPU is needed. For each space, in processes that compile already: reading the texts, in at most the time that a
survey is given, and making the prior of it (`read_s`); and the expected times of all configs (`score_s`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from benchmarks.model.plain_kernels import SPACES
from triton_ops import Operation
from triton_ops.backend import Arguments, TritonCompiler
from triton_ops.base import Host
from triton_ops.compilation import CompilePool
from triton_ops.device import DeviceSpec, Machine, Target
from triton_ops.space import Choice, ConfigSpace
from triton_ops.tuner import Survey
from triton_ops.values import Problem
from triton_ops_kernels.matmul import plain

GPU, ARCH = "NVIDIA H200", "sm_90"
MATMUL = (4096, 4096, 4096)


def cases() -> dict[str, tuple[Operation, Problem, ConfigSpace]]:
    """Spaces by name: about a thousand configs of a matmul, and the recorded spaces of kernels on plain tensors."""
    problem = plain.problem(MATMUL, "bfloat16")
    tunables = {**plain.space_for(problem).tunables, "GROUP_M": Choice([1, 8])}
    by_name = {"matmul, two groups": (plain, problem, ConfigSpace(tunables))}
    for recorded in SPACES:
        problem = recorded.operation.problem(recorded.shape, recorded.dtype)
        now = recorded.operation.space_for(problem)
        space = ConfigSpace.from_user(with_defaults(recorded.space, now))
        by_name[recorded.name] = (recorded.operation, problem, space)
    return by_name


def with_defaults(tunables: Mapping[str, list[Any]], space: ConfigSpace) -> dict[str, list[Any]]:
    """Recorded tunables, and the default of each that the kernel has got since it was recorded."""
    fixed = {name: [value] for name, value in space.default_config.items() if name not in tunables}
    return {**tunables, **fixed}


def seconds_of(action: Callable[[], object]) -> float:
    """Seconds that it takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measured(operation: Operation, problem: Problem, space: ConfigSpace, runs: int) -> dict[str, object]:
    """The seconds of one space, and how much was read in them."""
    spec = DeviceSpec.named(GPU)
    machine = Machine.of(spec) if spec is not None else None
    assert machine is not None
    configs = Survey.considered(space)
    kernel: Any = operation.kernel
    ahead = TritonCompiler(kernel, Arguments(keyword=dict(problem.arguments)), Target.named(ARCH))
    read_s, score_s = [], []
    with CompilePool(ahead) as pool:
        wait([pool.read(configs[0]) for _ in range(pool.workers)])  # until every process has begun
        for _ in range(runs):
            start = time.perf_counter()
            prior = Survey().read(configs, machine, pool.read).prior(machine, configs)
            read_s.append(time.perf_counter() - start)
            score_s.append(seconds_of(lambda: prior.score(configs)))  # noqa: B023 - called at once
    return {
        "configs": len(configs),
        "texts_read": len(prior.readings.works),
        "all_read": len(prior.readings.works) == len({prior.readings.key(config) for config in configs}),
        "silent": prior.silent,
        "read_s": round(statistics.median(read_s), 3),
        "score_s": round(statistics.median(score_s), 3),
        "longest_s": round(max(sum(pair) for pair in zip(read_s, score_s, strict=True)), 3),
    }


def main() -> None:
    """Measure all spaces, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    by_name = cases()
    parser.add_argument("--cases", nargs="*", default=list(by_name), choices=list(by_name))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cpu/inference_cost.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    rows = {}
    for name in options.cases:
        operation, problem, space = by_name[name]
        rows[name] = measured(replace(operation, work=None), problem, space, options.runs)
        print(name, rows[name], flush=True)
    command = f"python -m benchmarks.tuning.inference_cost --runs {options.runs}"
    save(options.out, headed(command, options.commit, cpus=Host.usable_cpus(), spaces=rows))


if __name__ == "__main__":
    main()
