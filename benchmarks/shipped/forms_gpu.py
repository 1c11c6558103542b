"""All that decides on a GPU which forms of kernels are shipped next, as one command of less than 500 s.

    python -m benchmarks.shipped.forms_gpu --out build/forms
    python -m benchmarks.shipped.forms_gpu --dry-run  # no GPU: every step is imported, and its forms are compiled

Each step is a process of its own that is ended at its limit, so that none takes the time of the next. Each writes its
rows as soon as they are there, and `forms_gpu.json` says how each step ended; the records of tunes are packed into
`records.tgz`, of which `benchmarks.shipped.package_data` takes winners. The steps:

- `start`: the seconds until the first trial of a gradient's tune, whose kernels a function launches, with empty caches;
- `fp8`: forms of the product of 8-bit floats beside `torch._scaled_mm`;
- `mlp`: forms of the gated MLP beside the shipped winner, eager and torch.compile;
- `rows`: forms of kernels over rows beside the shipped winner and torch.compile;
- `gradients`: gradients of norms, tuned for 5 s each, beside torch.compile and their default;
- `fp8-gluon` and `mlp-gluon`, only where they are asked for: the forms in Gluon alone, of `fp8`, and of `mlp` beside
  packed weights, the fastest of its forms so far.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from benchmarks.shipped import fp8_variants, mlp_variants

_GRACE_S = 20.0  # for imports, and for what a step does after its own limit


@dataclass(frozen=True, kw_only=True)
class Step:
    """One process.

    Attributes:
        name: Its name, and that of its file.
        module: What it runs.
        words: Its arguments, without those for its limit and its file.
        limit_s: When it starts nothing more.
        dry: Its arguments where nothing is run on a GPU.
        alone: Whether it runs only where it is asked for.
    """

    name: str
    module: str
    words: tuple[str, ...] = ()
    limit_s: float
    dry: tuple[str, ...] = ("--help",)
    alone: bool = False

    def command(self, out: Path, limit_s: float, dry: bool) -> list[str]:
        """The command line; a dry run writes no file."""
        start = [sys.executable, "-m", self.module]
        if dry:
            return [*start, *self.dry, *(() if self.dry == ("--help",) else ("--out", str(out)))]
        return [*start, *self.words, "--limit-s", f"{limit_s:.0f}", "--out", str(out)]


_FP8_GLUON = tuple(form for form in fp8_variants.PROMOTED if "Gluon" in form)
_MLP_GLUON = tuple(form for form in mlp_variants.FORMS if "Gluon" in form)
STEPS = (
    Step(
        name="start", module="benchmarks.tuning.time_line", words=("--case", "layer norm gradient", "--runs", "2"),
        limit_s=25.0,
    ),
    Step(
        name="fp8", module="benchmarks.shipped.fp8_variants", limit_s=95.0,
        dry=("--compile-only", "--problems", "4096-by-row"),
    ),
    Step(
        name="mlp", module="benchmarks.shipped.mlp_variants", limit_s=115.0,
        dry=("--compile-only", "--problems", "gated_mlp/llama-8b-prefill"),
    ),
    Step(
        name="rows", module="benchmarks.shipped.row_variants", words=("--seconds", "0.4"), limit_s=75.0,
        dry=("--compile-only", "--problems", "softmax_backward/llama-3-logits-decode"),
    ),
    Step(
        name="gradients", module="benchmarks.shipped.kernels_gpu",
        words=(
            "--kernels", "layer_norm_backward", "rmsnorm_rope_backward", "--tune-s", "5", "--seconds", "0.6",
            "--rivals", "compile", "default",
        ),
        limit_s=80.0,
    ),
    Step(
        name="fp8-gluon", module="benchmarks.shipped.fp8_variants", words=("--forms", *_FP8_GLUON), limit_s=90.0,
        dry=("--compile-only", "--problems", "8192", "--forms", *_FP8_GLUON), alone=True,
    ),
    Step(
        name="mlp-gluon", module="benchmarks.shipped.mlp_variants", limit_s=90.0, alone=True,
        words=("--forms", *_MLP_GLUON, "--beside", "packed, walking", "--rivals", "eager"),
        dry=("--compile-only", "--problems", "gated_mlp/llama-8b-prefill", "--forms", *_MLP_GLUON),
    ),
)  # fmt: skip


def ended(command: list[str], timeout_s: float, cache_dir: Path) -> str:
    """Run a step to its end; how it ended, in words."""
    environment = {**os.environ, "TRITON_OPS_CACHE_DIR": str(cache_dir)}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        return f"exit code {process.wait(timeout_s)}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # also what it has started to check a form
        process.wait()
        return f"ended after {timeout_s:.0f} s"


def packed(folder: Path, to: Path) -> None:
    """The records of a folder in one file, if there are any."""
    if any(folder.glob("*.json")):
        with tarfile.open(to, "w:gz") as archive:
            archive.add(folder, arcname="records")


def main() -> int:
    """Run the steps; the exit code is 1 if one was ended, or says that something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names, plain = [step.name for step in STEPS], [step.name for step in STEPS if not step.alone]
    parser.add_argument("--steps", nargs="*", default=plain, choices=names, metavar="NAME")
    parser.add_argument("--limit-s", type=float, default=500.0, help="seconds for all steps together")
    parser.add_argument("--dry-run", action="store_true", help="import every step and compile; needs no GPU")
    parser.add_argument("--out", type=Path, default=Path("build/forms"), help="a folder")
    parser.add_argument("--commit")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as records:
        steps = run(options, Path(records))
        packed(Path(records), options.out / "records.tgz")
    return int(any(row["ended"] != "exit code 0" for row in steps))


def run(options: argparse.Namespace, records: Path) -> list[dict[str, Any]]:
    """The steps that are asked for, and how each ended."""
    start, steps = time.monotonic(), []
    for step in [step for step in STEPS if step.name in options.steps]:
        begun_s = time.monotonic() - start
        left_s = float("inf") if options.dry_run else options.limit_s - begun_s
        limit_s = min(step.limit_s, left_s - _GRACE_S)
        command = step.command(options.out / f"{step.name}.json", limit_s, options.dry_run)
        print(f"{begun_s:6.0f} s  {step.name}: {' '.join(command[1:])}", flush=True)
        timeout_s = 300.0 if options.dry_run else min(step.limit_s + _GRACE_S, left_s)
        how = ended(command, timeout_s, records) if limit_s > 0 else "no time was left"
        row: dict[str, Any] = {"step": step.name, "command": command[1:], "ended": how, "begun_s": round(begun_s, 1)}
        steps.append(row)
        print(f"{time.monotonic() - start:6.0f} s  {step.name}: {how}", flush=True)
        save(
            options.out / "forms_gpu.json",
            headed("python -m benchmarks.shipped.forms_gpu", options.commit, steps=steps),
        )
    return steps


if __name__ == "__main__":
    sys.exit(main())
