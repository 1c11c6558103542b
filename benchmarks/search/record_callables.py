"""Record the whole spaces of ten slow functions: `python -m benchmarks.search.record_callables --out FOLDER`.

Spaces are recorded side by side, each in a process of its own that is kept on four CPUs of its own. Every config is
measured in rounds with different orders; a recording's two passes are every second round, and its final times are those
of all rounds. Without g++ the spaces of C++ are left out.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.document import commit_here, parser_of
from benchmarks.search.callables import CASES, FLAGS, Case, library
from triton_ops.base import Host, installed_version
from triton_ops.device import probe
from triton_ops.space import Config
from triton_ops_lab.recording import write_recording

CPUS = 4  # of one space: the most threads that a config has
SETTINGS = {  # functions of NumPy have threads of their own, and memory is not given back to the system
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": str(CPUS),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}  # fmt: skip
START_S = 10.0  # for the compiler, and the imports of each process
LEAST = 4  # rounds over a space
NEAR = 0.2  # configs that are measured more often: those within this share of the fastest
ERROR = 1e-3  # of an element, as a share of the largest one


class Measured:
    """A case whose configs are measured in this process."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.arguments = case.arguments()
        self.expected = np.asarray(case.reference(*self.arguments), np.float64)
        self.failures: dict[Config, str] = {}
        self.samples: dict[Config, list[float]] = {config: [] for config in case.space}

    @property
    def ran(self) -> list[Config]:
        """The configs that have not failed."""
        return [config for config in self.samples if config not in self.failures]

    def check(self, config: Config) -> None:
        """Call it once, and note why it fails, if it does."""
        try:
            result = self.case.function(*self.arguments, **config)
        except Exception as error:  # noqa: BLE001 - whatever NumPy or torch raises
            self.failures[config] = f"runtime: {type(error).__name__}: {error}".partition("\n")[0]
            return
        got = np.asarray(self.arguments[-1] if result is None else result, np.float64)
        error = np.abs(got - self.expected).max() / np.abs(self.expected).max()
        if not error <= ERROR:
            self.failures[config] = f"wrong: an element differs by {error:.1e} of the largest one"

    def measure(self, seconds: float) -> None:
        """Rounds over the space, each in an order of its own, and two more over the configs that are near the best.

        A round has one sample of each config: other work and clocks slow a machine for seconds.
        """
        end, draw, rounds = time.monotonic() + seconds, random.Random(0), 0
        while rounds < LEAST or time.monotonic() < end:
            few = [it for it in self.ran if self.median(it) <= self.best * (1 + NEAR)] if rounds >= LEAST else []
            for configs in (self.ran, few, few):
                for config in draw.sample(configs, len(configs)):
                    self.case.function(*self.arguments, **config)  # the first call may start threads
                    start = time.perf_counter()
                    self.case.function(*self.arguments, **config)
                    self.samples[config].append((time.perf_counter() - start) * 1e3)
            rounds += 1

    def median(self, config: Config) -> float:
        """The milliseconds that count for a config."""
        return statistics.median(self.samples[config])

    @property
    def best(self) -> float:
        """The milliseconds of the fastest config."""
        return min(map(self.median, self.ran))

    def content(self, head: Mapping[str, Any]) -> dict[str, Any]:
        """The recording."""
        case, default = self.case, self.case.space.default_config
        arrays = {f"x{place}": value for place, value in enumerate(self.arguments)}
        return {
            "family": case.name, "kind": case.name, "shape": list(case.shape),
            "space": {name: list(tunable.values) for name, tunable in case.space.tunables.items()},
            "arguments": {name: {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
                          for name, value in arrays.items()},
            **head, "unit": "ms", "quantiles": ["min", "p20", "p50", "p80"],
            "rows": [self._row(config) for config in (default, *(it for it in self.samples if it != default))],
        }  # fmt: skip

    def _row(self, config: Config) -> dict[str, Any]:
        failure, times = self.failures.get(config), self.samples[config]
        row = {"config": dict(config), "status": failure or "ok"}
        if failure is not None:
            return row
        return {**row, "ms": [quantiles(half) for half in halves(times)], "final": [quantiles(times)]}

    def summary(self) -> str:
        """What the recording has, in one line."""
        times = np.array([self.median(config) for config in self.ran])
        both = np.array([[statistics.median(half) for half in halves(self.samples[it])] for it in self.ran])
        places = both.argsort(axis=0).argsort(axis=0)
        return (
            f"{self.case.name:18} {len(self.samples)} configs, {len(self.failures)} failed, best {self.best:.2f} "
            f"default {self.median(self.case.space.default_config):.2f} median {np.median(times):.2f} ms, halves "
            f"differ by {np.median(both.max(axis=1) / both.min(axis=1)) - 1:.1%}, correlate by "
            f"{np.corrcoef(places.T)[0, 1]:.3f}, within 5 % {np.mean(times <= 1.05 * self.best):.1%}, "
            f"{min(map(len, map(self.samples.get, self.ran)))} rounds"
        )


def halves(times: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """The times of every second round, and of the others."""
    return times[::2], times[1::2]


def quantiles(times: Sequence[float]) -> list[float]:
    """Least, 20 %, 50 % and 80 %."""
    return [round(float(each), 6) for each in np.quantile(times, [0, 0.2, 0.5, 0.8])]


def record(case: Case, out: Path, seconds: float, commit: str | None) -> None:
    """Record one space in this process; the file appears once it is complete."""
    start = time.monotonic()
    end = start + seconds
    head = {
        "gpu": probe("cpu").name, "cpus": Host.affinity_cpus(), "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": "python -m benchmarks.search.record_callables", "commit": commit or commit_here(),
        "settings": SETTINGS, **Host.versions(), "numpy": installed_version("numpy"),
        **(compiler() if case.name.startswith("cpp") else {}),
    }  # fmt: skip
    np.ones(1 << 27)  # a virtual machine has no memory before it is touched
    measured = Measured(case)
    for config in case.space:
        measured.check(config)
    measured.measure(end - time.monotonic())
    write_recording(out / f"{case.name}.json.gz", measured.content(head))
    print(f"{measured.summary()}, {time.monotonic() - start:.0f} s", flush=True)


def compiler() -> dict[str, str]:
    """What compiled the functions of C++."""
    told = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=False).stdout
    return {"compiler": f"{told.partition(chr(10))[0]} {' '.join(FLAGS)}"}


def groups(cpus: Sequence[int]) -> list[list[int]]:
    """Groups of CPUs of this process, each for one space; threads of one core are in one group."""

    def place(cpu: int) -> tuple[int, ...]:
        folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            return *(int((folder / name).read_text()) for name in ("physical_package_id", "core_id")), cpu
        except OSError:
            return (0, cpu, cpu)

    ordered = sorted(cpus, key=place)
    return [ordered[first : first + CPUS] for first in range(0, max(1, len(cpus) - CPUS + 1), CPUS)]


def compiled() -> bool:
    """Whether the functions of C++ can be called; says why not."""
    try:
        library()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"the spaces of C++ are left out: {error}", flush=True)
        return False
    return True


def record_all(names: Sequence[str], options: argparse.Namespace) -> int:
    """Record these spaces side by side; the number of those that failed."""
    places = groups(sorted(os.sched_getaffinity(0)))[:: options.apart]
    turns = -(-len(names) // len(places))
    seconds = (options.seconds - START_S) / turns - START_S / 2
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    environment = {**os.environ, **SETTINGS}
    command = [sys.executable, "-m", "benchmarks.search.record_callables", "--out", str(options.out)]
    command += ["--seconds", str(seconds), *(["--commit", options.commit] if options.commit else [])]
    failed = []

    def work(cpus: list[int]) -> None:
        os.sched_setaffinity(0, cpus)  # of this thread, and so of the processes that it starts
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            if subprocess.run([*command, "--here", name], env=environment, check=False).returncode:
                failed.append(name)
                print(f"{name} failed", flush=True)

    workers = [threading.Thread(target=work, args=(cpus,)) for cpus in places]
    print(f"{len(names)} spaces on CPUs {places}, {seconds:.0f} s each", flush=True)
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    return len(failed)


def main() -> int:
    """Record the spaces that are asked for; 1 if one could not be recorded."""
    parser = parser_of(__doc__)
    cases = {case.name: case for case in CASES}
    parser.add_argument("--only", nargs="+", choices=cases, default=list(cases), metavar="NAME", help=", ".join(cases))
    parser.add_argument("--seconds", type=float, default=600.0, help="for all spaces; with --here for the one")
    parser.add_argument("--apart", type=int, default=2, help="of so many groups of CPUs one is used")
    parser.add_argument("--here", choices=cases, metavar="NAME", help="record this space in this process")
    options = parser.parse_args()
    if options.out is None:
        parser.error("--out FOLDER is needed")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.here:
        record(cases[options.here], options.out, options.seconds, options.commit)
        return 0
    names = [name for name in options.only if not name.startswith("cpp")]
    if len(names) < len(options.only) and compiled():
        names = list(options.only)
    return min(1, record_all(names, options)) if names else 1


if __name__ == "__main__":
    sys.exit(main())
