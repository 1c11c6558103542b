"""Whether what is known of a config early is what the full compile finds, over whole spaces of the shipped kernels.

For every config: exact shared memory from the TTGIR against the full compile's, and for NVIDIA the registers and the
stack frame read from the binary against those of the vendor's own tool. No GPU is used.

    python benchmarks/static_analysis.py --target sm_90 --out benchmarks/results/cpu/static_analysis.json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import triton

from benchmarks.document import save
from triton_ops.backend import AheadOfTime, Arguments, described
from triton_ops.compilation import foresee, resources_of
from triton_ops.compilation.tiers import HEAVY_SPILL_BYTES
from triton_ops.device import Target, named_target
from triton_ops.kernel_ir.binaries import cubin_usage
from triton_ops.kernels import load, names
from triton_ops.kernels.matmul import plain
from triton_ops.space import Config

PROBLEMS = {"matmul": "4096", "rmsnorm_rope": "llama-8b-prefill"}  # of others, what they take for a default
_TOOL = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


@dataclass
class Tally:
    """One kernel's space on one target."""

    kernel: str
    problem: str
    target: str
    triton: str
    configs: int = 0
    shared_equal: int = 0
    usage_checked: int = 0
    usage_equal: int = 0
    over_shared_limit: int = 0
    heavy_spills: int = 0
    deferred_by_rule: int = 0
    deferred_without_heavy_spills: int = 0
    differing: list[dict[str, Any]] = field(default_factory=list)
    early_s: list[float] = field(default_factory=list)
    full_s: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """As it is written down."""
        content = asdict(self)
        for name in ("early_s", "full_s"):
            taken = content.pop(name)
            content |= {f"{name}_mean": round(statistics.mean(taken), 4), f"{name}_median": statistics.median(taken)}
        return content


def tool_says(cubin: bytes) -> tuple[int, int]:
    """Registers and stack frame, as the vendor's tool reads them."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run([_TOOL, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", said)
    assert found is not None, said
    return int(found[1]), int(found[2])


def check(tally: Tally, config: Config, ahead: AheadOfTime) -> None:
    """Count one config."""
    target = ahead.target
    begun = time.perf_counter()
    early, _ = ahead.lowered(config)
    between = time.perf_counter()
    built = ahead.build(config)
    tally.early_s.append(between - begun)
    tally.full_s.append(time.perf_counter() - between)
    found = resources_of(built, target)
    tally.configs += 1
    tally.shared_equal += early == found.shared_bytes
    tally.over_shared_limit += early > target.shared_bytes_per_block
    spills = (found.spill_bytes or 0) > HEAVY_SPILL_BYTES
    objection = foresee(ahead, config)
    tally.heavy_spills += spills
    tally.deferred_by_rule += objection is not None
    tally.deferred_without_heavy_spills += objection is not None and not spills
    if early != found.shared_bytes:
        tally.differing.append({"config": dict(config), "early": early, "full": found.shared_bytes})
    if target.kind == "cuda":
        usage = cubin_usage(built.binary)
        tally.usage_checked += 1
        tally.usage_equal += (usage.registers, usage.stack_bytes) == tool_says(built.binary)


def tallied(name: str, target: Target, every: int) -> Tally:
    """A kernel's space on a target; of a large one every n-th config."""
    operation = plain if name == "matmul" else load(name)
    problem = operation.problem(*(operation.problems[PROBLEMS[name]] if name in PROBLEMS else ()))
    arguments = described(Arguments(keyword=dict(problem.arguments)))
    kernel: Any = operation.kernel
    ahead = AheadOfTime(kernel, arguments, target)
    tally = Tally(name, problem.label, target.arch, triton.__version__)
    for config in list(operation.space_for(problem))[:: every if name == "matmul" else 1]:
        check(tally, config, ahead)
    return tally


def main() -> None:
    """Check, print a line per kernel and target, and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", required=True)
    parser.add_argument("--every", type=int, default=1, help="take every n-th config of the matmul")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = json.loads(given.out.read_text(encoding="utf-8")) if given.out and given.out.is_file() else []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        for arch in given.target:
            for name in names():
                tally = tallied(name, named_target(arch), given.every)
                print(f"{name} {arch}: {tally.shared_equal} of {tally.configs} equal", flush=True)
                found = [old for old in found if (old["kernel"], old["target"]) != (name, arch)] + [tally.summary()]
                if given.out:
                    save(given.out, found)


if __name__ == "__main__":
    main()
