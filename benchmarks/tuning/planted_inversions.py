"""Does `lock verify --repair` find winners that have turned bad, and leave good ones alone?

    python -m benchmarks.tuning.planted_inversions --out benchmarks/results/simulated/repair.json

A hundred entries of a lockfile pin a config that is 5 to 100 % slower than the fastest, as after a change of compiler;
two hundred others, called A/A, pin the fastest config, in every second space beside one that is exactly as fast. Each
space has 48 configs. Everything but the clock is that of the command: tunes, races and decisions run on simulated
devices with the noise of a GPU, one for each disturbance. Of every second entry there is the run log of a tune, whose
finalists hold the fastest config; for the others its neighbours have to lead there.

Prints the counts; exit code 1 if fewer than 95 % are repaired, or one of the A/A entries is. The seconds of the device
are simulated ones: what a GPU and its host would be busy for. No GPU is needed. Takes half a minute to two.
"""

from __future__ import annotations

import argparse
import functools
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.simulated_device import DISTURBANCES, SimulatedDevice, SimulatedTimer

from benchmarks.document import headed, save
from triton_ops import operation, tune
from triton_ops.device import DeviceSpec, probe
from triton_ops.records import Record, Timing, lock_of
from triton_ops.ship.targets import Targets
from triton_ops.ship.verification import repair
from triton_ops.space import Config
from triton_ops.timing import rounds
from triton_ops.tuner import Silent
from triton_ops.values import Key

TILES, WARPS = list(range(8)), list(range(6))
INVERSIONS, EQUALS = 100, 200
LEAST_REPAIRED = 0.95
SLOWER = (1.05, 2.0)  # a planted config's time over the fastest's


@dataclass
class Ground:
    """The simulated device of the entries under way, and the true times of the configs of each problem."""

    device: SimulatedDevice = field(default_factory=SimulatedDevice)
    times_ms: dict[int, dict[Config, float]] = field(default_factory=dict)

    def run(self, n: int, **values: int) -> None:
        """One launch."""
        config = Config(values)
        self.device.kernel(self.times_ms[n][config], f"{n} {config.text}")()


@functools.cache
def ground() -> Ground:
    """The one of this process; a global that changes would be a change of the kernel."""
    return Ground()


@operation(space={"tile": TILES, "warps": WARPS}, arguments=lambda n=64: {"n": n}, device="cpu")
def planted(n: int, tile: int, warps: int) -> int:
    """A kernel whose time is that of the ground."""
    ground().run(n, tile=tile, warps=warps)
    return n


def times_of(n: int, *, tie: bool) -> dict[Config, float]:
    """True times: the farther from the fastest config, the slower, each value off by chance; or two equal ones."""
    rng = random.Random(n)
    best_ms, tile, warps = rng.uniform(0.2, 2.0), rng.choice(TILES), rng.choice(WARPS)
    steps = {
        Config(tile=t, warps=w): 0.06 * abs(t - tile) + 0.09 * abs(w - warps) for t in TILES for w in WARPS
    }  # fmt: skip
    times = {config: best_ms * (1 + step * rng.uniform(0.8, 2.0)) for config, step in steps.items()}
    if tie:
        second = sorted(times, key=times.__getitem__)[1]
        times[second] = best_ms
    return times


def pinned(n: int, slower: float | None) -> tuple[Config, float]:
    """The config that an entry pins, and its true time over the fastest's: the fastest, or one near so much slower."""
    times = ground().times_ms[n]
    ranked = sorted(times, key=times.__getitem__)
    best_ms = times[ranked[0]]
    if slower is None:
        return ranked[0], 1.0
    inverted = [config for config in ranked if SLOWER[0] <= times[config] / best_ms <= SLOWER[1]]
    config = min(inverted, key=lambda one: abs(times[one] / best_ms - slower))
    return config, times[config] / best_ms


def record_of(n: int, config: Config, here: DeviceSpec) -> Record:
    """A record whose winner is planted."""
    key = Key.of(planted.problem((n,)), planted.kernel.identity, here)
    return Record(key=key, winner=config, timing=Timing(1.0, 1.0, 1.0, 3), default=Config(tile=0, warps=0))


@contextmanager
def on(device: SimulatedDevice) -> Iterator[None]:
    """Time every callable on this device."""
    ground().device = device
    with patch.object(rounds, "HostTimer", lambda: SimulatedTimer(device)):
        yield


def repaired(disturbance: str, numbers: list[int], share: list[float | None], folder: Path) -> Iterator[dict[str, Any]]:
    """The outcomes of the entries of some problems, with what is true of them."""
    here, device = probe("cpu"), SimulatedDevice(disturbance=DISTURBANCES[disturbance], seed=numbers[0])
    truth, records = {}, []
    for n, slower in zip(numbers, share, strict=True):
        ground().times_ms[n] = times_of(n, tie=slower is None and n % 4 < 2)
        config, ratio = pinned(n, slower)
        record = record_of(n, config, here)
        with on(device):
            known = tune(planted, shape=(n,), seed=n, cache_dir=folder, listener=Silent()) if n % 2 else None
        if known is not None:
            record = Record(**{**vars(record), "run": known.run})
        records.append(record)
        truth[n] = ratio
    lock, _ = lock_of(records)
    begun_s = device.now_s
    with on(device):
        for verdict in repair(lock, Targets([planted]), folder, "cpu", listener=Silent(), seed=numbers[0]):
            n = int(verdict.entry.problem["n"])  # type: ignore[arg-type]
            times, now = ground().times_ms[n], verdict.becomes or verdict.entry
            yield {
                "n": n, "outcome": verdict.outcome, "was": round(truth[n], 4), "has_log": bool(n % 2),
                "is": round(times[now.config] / min(times.values()), 4), "reason": verdict.reason,
                "disturbance": disturbance, "device_s": round(device.now_s - begun_s, 3),
            }  # fmt: skip
            begun_s = device.now_s


def main() -> int:
    """Repair both kinds of entries under each disturbance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    parser.add_argument("--entries", type=int, default=INVERSIONS, help="planted inversions; twice as many are A/A")
    options = parser.parse_args()
    start_s, rows = time.monotonic(), []
    names = list(DISTURBANCES)
    for place, name in enumerate(names):
        rng = random.Random(place)
        numbers = [n for n in range(1, 3 * options.entries + 1) if n % len(names) == place]
        share = [rng.uniform(*SLOWER) if n <= options.entries else None for n in numbers]
        with tempfile.TemporaryDirectory() as folder:
            rows += list(repaired(name, numbers, share, Path(folder)))
    inverted, equal = ([row for row in rows if (row["n"] <= options.entries) == planted] for planted in (True, False))
    summary = {
        "inversions": dict(Counter(row["outcome"] for row in inverted)),
        "equals": dict(Counter(row["outcome"] for row in equal)),
        "left_slower": max((row["is"] for row in inverted if row["outcome"] == "repaired"), default=None),
        "device_s_for_100_inverted": round(100 * sum(row["device_s"] for row in inverted) / max(len(inverted), 1), 1),
        "device_s_for_100_equal": round(100 * sum(row["device_s"] for row in equal) / max(len(equal), 1), 1),
        "wall_s": round(time.monotonic() - start_s, 1),
    }
    print(summary)
    if options.out is not None:
        command = f"python -m benchmarks.tuning.planted_inversions --entries {options.entries} --out {options.out}"
        entries = [row if row["outcome"] not in ("ok", "repaired") else {**row, "reason": ""} for row in rows]
        save(options.out, headed(command, options.commit, summary=summary, entries=entries))
    enough = summary["inversions"].get("repaired", 0) >= LEAST_REPAIRED * len(inverted)
    return int(not enough or "repaired" in summary["equals"])


if __name__ == "__main__":
    raise SystemExit(main())
