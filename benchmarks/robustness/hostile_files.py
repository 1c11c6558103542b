"""Damaged and hostile files of every kind that this package reads: nothing may raise, hang, or be believed.

    TMPDIR=/dev/shm python -m benchmarks.robustness.hostile_files --files 25000 --seed 7

Each file is put in the place of a healthy one and read as a tune, a search or a command reads it. Counted are errors
other than the documented ones; reads that twice took 50 ms of CPU time more than the healthy file's, and those that
had to be ended after 10 s; values that were served and are not those of the healthy file; and how much memory grew.
Two thirds of the files are damaged blindly. One third are written by somebody who means harm, with checksums that fit:
these may be believed, and what is believed is then used as `show`, a hit and a search would. In the end every bit of
one file of each kind is flipped. A folder in memory saves half of the time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from benchmarks.robustness.hostile_kinds import Kind, kinds
from benchmarks.robustness.mutations import damaged, every_bit, rewritten

LATE_S = 0.05
HANG_S = 10


@dataclass
class Found:
    """What became of the files of one kind."""

    files: int = 0
    served: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    altered: list[str] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    hangs: int = 0
    slowest_ms: float = 0.0

    @property
    def bad(self) -> int:
        """How many files broke a promise."""
        return sum(self.errors.values()) + len(self.altered) + len(self.late) + self.hangs


class HangError(BaseException):
    """A read had to be ended."""


def _ended(*_: object) -> None:
    raise HangError


class Attack:
    """Puts hostile files of one kind in place, and reads each."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.healthy = kind.path.read_bytes()
        self.expected: dict[str, list[Any]] = {}
        for part in self._parts():
            kind.path.write_bytes(part)
            for name, value in self._timed()[1].items():
                self.expected.setdefault(name, []).append(value)
        self.healthy_s = max(self._timed()[0] for _ in range(5))
        self.found = Found()

    def _parts(self) -> list[bytes]:
        """The healthy file as it grew: where a later line of a config is left out, an earlier one counts."""
        if self.kind.path.suffix != ".jsonl":
            return [self.healthy]
        lines = self.healthy.splitlines(keepends=True)
        return [b"".join(lines[:count]) for count in range(1, len(lines) + 1)]

    def __call__(self, data: bytes, may_be_believed: bool = False) -> None:
        """Read `data` in place of the healthy file."""
        self.kind.path.write_bytes(data)
        counts = self.found
        counts.files += 1
        try:
            taken_s, served = self._timed()
            if taken_s > self.healthy_s + LATE_S:  # a collection of garbage may have fallen into it
                taken_s = min(taken_s, self._timed()[0])
        except HangError:
            counts.hangs += 1
            return
        except Exception as error:  # noqa: BLE001 - what must not happen is counted
            counts.errors[f"{type(error).__name__}: {error}"[:120]] += 1
            return
        finally:
            self.kind.path.write_bytes(self.healthy)
        counts.served += bool(served)
        counts.slowest_ms = max(counts.slowest_ms, taken_s * 1e3)
        if taken_s > self.healthy_s + LATE_S:
            counts.late.append(round(taken_s, 3))
        if self.kind.sealed and not may_be_believed:
            counts.altered += [name for name, value in served.items() if value not in self.expected.get(name, ())]

    def _timed(self) -> tuple[float, dict[str, Any]]:
        start = time.thread_time()
        signal.setitimer(signal.ITIMER_REAL, HANG_S)
        try:
            served = self.kind.read()
        except self.kind.refusals:
            served = {}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return time.thread_time() - start, served


@contextlib.contextmanager
def attacks() -> Iterator[list[Attack]]:
    """An attack for each kind of file, in a folder of their own, without the warnings."""
    log = logging.getLogger("triton_ops")
    before, handler = log.level, signal.signal(signal.SIGALRM, _ended)
    log.setLevel(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield [Attack(kind) for kind in kinds(Path(folder))]
    finally:
        signal.signal(signal.SIGALRM, handler)
        log.setLevel(before)


def attack(each: Iterable[Attack], files: int, seed: int, bit_step: int) -> dict[str, Found]:
    """Read `files` hostile files in all, and flip every `bit_step`-th bit of one file of each kind."""
    each = list(each)
    draw, others = random.Random(seed), [one.healthy for one in each]
    for number in range(files):
        one = each[number % len(each)]
        hostile_hand = draw.random() < 1 / 3
        one(rewritten(one.healthy, draw) if hostile_hand else damaged(one.healthy, others, draw), hostile_hand)
    for one in each:
        for data in every_bit(one.healthy, bit_step) if one.kind.bits else ():
            one(data)
    return {one.kind.name: one.found for one in each}


def main() -> None:
    """Read hostile files; the exit code is 1 if one broke a promise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=25_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--bit-step", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cpu/hostile_files.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    with attacks() as each:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        row = attack(each, options.files, options.seed, options.bit_step)
        grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    rows = {
        name: {
            "files": one.files, "served": one.served, "altered": len(one.altered), "errors": dict(one.errors),
            "late": one.late[:20], "hangs": one.hangs, "slowest_ms": round(one.slowest_ms, 1),
        }
        for name, one in row.items()
    }  # fmt: skip
    command = f"python -m benchmarks.robustness.hostile_files --files {options.files} --seed {options.seed}"
    command += f" --bit-step {options.bit_step}" if options.bit_step != 1 else ""
    save(options.out, headed(command, options.commit, memory_grown_mib=round(grown_mib, 1), kinds=rows))
    print(json.dumps(rows, indent=2), f"memory grew by {grown_mib:.0f} MiB", sep="\n")
    sys.exit(any(one.bad for one in row.values()))


if __name__ == "__main__":
    main()
