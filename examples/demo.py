"""The main job, end to end: tune, show the record, and find it again.

On every machine a real CPU workload is tuned, the loss of a language model's head in chunks; where there is a GPU,
a Triton matrix product as well. Everything is stored under `build/demo`, made anew each time.
"""

import shutil
import sys
from pathlib import Path

from triton_ops.cli.app import main as triton_ops
from triton_ops.hardware import gpu_missing

CACHE = Path("build/demo")
CPU = ["tune", "examples/chunked_cross_entropy.py:cross_entropy", "--shape", "1024x256x8192"]
GPU = ["tune", "matmul", "--shape", "4096x4096x4096", "--dtype", "bf16", "--trials", "48"]


def run(*arguments: str) -> None:
    """Run one command as it would be typed, and stop on its failure."""
    print(f"\n$ triton-ops {' '.join(arguments)}", flush=True)
    code = triton_ops([*arguments, "--cache-dir", str(CACHE)])
    if code:
        sys.exit(code)


def main() -> None:
    """Tune, show, recall."""
    shutil.rmtree(CACHE, ignore_errors=True)
    missing = gpu_missing()
    for command in [CPU] if missing else [CPU, GPU]:
        run(*command)
        run(*command)  # the second time the winner is known: nothing is measured
    run("show")
    for record in sorted(CACHE.glob("*.record.json")):
        print(f"saved as {record} ({record.stat().st_size} bytes)")
    if missing:
        print(f"no GPU ({missing}), so no Triton kernel was tuned; `triton-ops doctor` says more")


if __name__ == "__main__":
    main()
