"""A tune that is killed with `kill -9` at random moments, again and again, until it gets through.

Its timings come from a clock that only the planned calls move, so its winner is known; what is left behind by each
kill is looked at: trials on disk, processes that outlive their parent, and whether the next run can go on.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from triton_ops.records import Run
from triton_ops.records.run_log import FinishedTrial as Tried

CONFIGS = 60
WINNER = 17
# As `python -m triton_ops`, with Ctrl-C heard even where this process runs in the background and hears none.
PROGRAM = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import triton_ops.__main__"
EVERY_CONFIG = ("--search", "exhaustive", "--trials", str(CONFIGS + 1), "--budget-s", "600")
TARGET = f'''
"""Calls that take planned times, by a clock of their own, and note when a config is begun."""
import os, time
from pathlib import Path
from triton_ops import operation
from triton_ops.timing import rounds

class Clock:
    now = 0

Timer = rounds.HostTimer
rounds.HostTimer = lambda: Timer(clock=lambda: Clock.now)
LOG, SEEN = Path(os.environ["STARTED_LOG"]), set()

@operation(name="planned", space={{"n": list(range({CONFIGS}))}}, arguments=lambda: {{}}, device="cpu")
def planned(*, n):
    if n not in SEEN:
        SEEN.add(n)
        with LOG.open("a") as log:
            log.write(f"{{n}}\\n")
    time.sleep(1e-3)
    Clock.now += 1_000_000 if n == {WINNER} else 1_200_000 + n * 7919 % 997 * 1000
'''


class Tune:
    """One tune, to be started again and again.

    Args:
        folder: Where it keeps its target, its log and its cache.
        isolate: Whether its configs run in a worker.
    """

    def __init__(self, folder: Path, isolate: bool) -> None:
        self.cache, self.log = folder / "cache", folder / "started.log"
        self.target = folder / "planned_target.py"
        self.target.write_text(TARGET)
        self.log.touch()
        how = "--isolate" if isolate else "--inline"
        self.words = ["tune", f"{self.target}:planned", *EVERY_CONFIG, "--json", how]
        self.environment = {"STARTED_LOG": str(self.log), "TRITON_OPS_CACHE_DIR": str(self.cache)}

    def start(self) -> subprocess.Popen[bytes]:
        """A process that tunes, or goes on."""
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *self.words], env={**os.environ, **self.environment},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def begun(self) -> list[int]:
        """The configs that were begun, in order."""
        return [int(word) for word in self.log.read_text().split()]

    def kept(self) -> list[int]:
        """The configs whose trials are on disk, in order."""
        runs = [Run.read(path) for path in self.cache.glob("runs/*/*.jsonl") if "\n" in path.read_text()]
        return [int(str(e.trial.config["n"])) for run in runs for e in run.events if isinstance(e, Tried)]

    def processes(self) -> list[int]:
        """The processes that work for it, whatever their parent; told by their environment."""
        return processes_with(f"STARTED_LOG={self.log}")


def processes_with(variable: str) -> list[int]:
    """The processes that live and have a variable in their environment."""
    mark = variable.encode()
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _has(entry, mark)]


def _has(entry: Path, mark: bytes) -> bool:
    try:
        alive = "State:\tZ" not in (entry / "status").read_text()
        return alive and mark in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def gone(tune: Tune, within_s: float = 5.0) -> bool:
    """Whether all of a tune's processes end by themselves."""
    deadline = time.monotonic() + within_s
    while tune.processes():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def killed(tune: Tune, rng: random.Random, number: int = signal.SIGKILL) -> int:
    """Start a tune, kill it some time after its first new config has begun; how many trials were lost."""
    before = len(tune.begun())
    process = tune.start()
    deadline = time.monotonic() + 60
    while len(tune.begun()) == before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(rng.uniform(0.0, 0.08))
    process.send_signal(number)
    process.communicate()
    return len(set(tune.begun()) - set(tune.kept()))


def killed_often(folder: Path, kills: int, isolate: bool, seed: int = 0) -> dict[str, Any]:
    """Kill a tune at random moments until it gets through.

    Returns:
        How often it was killed; the most trials lost by one kill; how often a process outlived its parent; how many
        runs it took from an empty cache; and the winner, which is config 17 if nothing went wrong.
    """
    rng = random.Random(seed)
    lost, orphans, rounds = [], 0, 0
    while len(lost) < kills:
        place = folder / f"{'isolated' if isolate else 'inline'}-{rounds}"
        place.mkdir()
        tune, rounds = Tune(place, isolate), rounds + 1
        while len(lost) < kills and len(tune.kept()) < CONFIGS - 5:
            lost.append(killed(tune, rng))
            orphans += not gone(tune)
        process = tune.start()
        out, err = process.communicate(timeout=120)
        document = json.loads(out) if process.returncode == 0 else {"best_config": None, "error": err.decode()}
        if document["best_config"] != {"n": WINNER} or sorted(tune.kept()) != list(range(CONFIGS)):
            return {"kills": len(lost), "most_lost": max(lost), "orphans": orphans, "runs": rounds, "winner": document}
    return {"kills": len(lost), "most_lost": max(lost), "orphans": orphans, "runs": rounds, "winner": {"n": WINNER}}
