"""What the first hour with the package takes: the core installed, a first gain, a kernel linted and ranked.

    python -m benchmarks.launch.first_hour --out benchmarks/results/cpu/first_hour.json [--triton PYTHON]

The wheel is built from this clone and installed into fresh environments, with their packages from where pip looks.
`--triton` names a Python that has torch and Triton already, in which the kernel is linted and ranked with this clone's
sources; without it that step is left out, since torch is gigabytes to download. Each step has its command, its seconds
by the clock and the last lines of its output, as they were.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save

PROJECT = Path(__file__).parents[2]
GAIN = """
import math
from triton_ops import tune

def work(block):
    total = 0.0
    for first in range(0, 20000, block):
        total += math.fsum(range(first, min(first + block, 20000)))
    return total

if __name__ == "__main__":
    print(tune(work, space={"block": [8, 1, 64, 512, 4096]}))
"""
KERNEL = "softmax.py"


def done(words: list[str], folder: str, **environment: str) -> dict[str, Any]:
    """One step: run the command, and raise `CalledProcessError` where it fails."""
    variables = {**os.environ, "TRITON_OPS_CACHE_DIR": f"{folder}/records", **environment}
    start = time.perf_counter()
    process = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    lines = (process.stdout + process.stderr).replace(folder, "FOLDER").splitlines()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words, "\n".join(lines))
    command = " ".join(["python", *words[1:]]).replace(folder, "FOLDER").replace(str(PROJECT), "CLONE")
    return {"command": command, "seconds": round(seconds, 1), "output": lines[-12:]}


def mebibytes(folder: Path) -> dict[str, float]:
    """Sizes of what is installed beside pip and setuptools, the largest first, and their sum."""
    sizes = {
        package.name: sum(file.stat().st_size for file in package.rglob("*") if file.is_file()) / 2**20
        for package in folder.iterdir()
        if package.is_dir() and not package.name.startswith(("pip", "setuptools", "pkg_resources", "_distutils_hack"))
    }
    largest = sorted(sizes.items(), key=lambda item: -item[1])
    return {"all": round(sum(sizes.values()), 1), **{name: round(size, 1) for name, size in largest[:5]}}


def environment(folder: str, name: str) -> str:
    """The interpreter of a fresh environment."""
    subprocess.run([sys.executable, "-m", "venv", f"{folder}/{name}"], check=True)
    return f"{folder}/{name}/bin/python"


def main() -> None:
    """All steps in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triton", help="a Python with torch and Triton")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cpu/first_hour.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "first.py").write_text(GAIN, encoding="utf-8")
        python = environment(folder, "core")
        install = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", str(PROJECT)]
        steps = {"install the core": done(install, folder)}
        (packages,) = Path(folder, "core/lib").glob("python*/site-packages")
        size = mebibytes(packages)
        recall = [python, "-c", "from triton_ops import recall"]
        steps["import what a launch from a record needs"] = done(recall, folder, PYTHONPATH="")
        steps["install cli and tune"] = done([*install[:-1], f"{PROJECT}[cli,tune]"], folder)
        steps["first gain"] = done([python, "first.py"], folder, PYTHONPATH="")
        if options.triton:
            shutil.copy(PROJECT / "examples" / KERNEL, folder)
            program = [options.triton, "-m", "triton_ops"]
            sources = {"PYTHONPATH": str(PROJECT / "src")}
            steps["lint a kernel"] = done([*program, "lint", KERNEL], folder, **sources)
            rank = [*program, "explain", "rank", f"{KERNEL}:softmax", "--gpu", "H100", "--top", "3"]
            steps["rank its configs without a GPU"] = done(rank, folder, **sources)
    words = "python -m benchmarks.launch.first_hour"
    load = [round(each, 2) for each in os.getloadavg()]
    document = headed(words, options.commit, cpus=os.cpu_count(), load_average=load, core_mib=size, steps=steps)
    save(options.out, document)
    print({name: step["seconds"] for name, step in steps.items()}, size)


if __name__ == "__main__":
    main()
