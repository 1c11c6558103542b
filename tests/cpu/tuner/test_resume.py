"""A tune that is killed loses at most the trial in flight, and the next one goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from triton_ops.records import Run
from triton_ops.records.run_log import FinishedTrial as Tried

pytestmark = pytest.mark.processes

KILLS = 8  # `python -m benchmarks.robustness.faults` has a hundred
CONFIGS = 80
DELAYS_US = list(range(200, 200 + 5 * CONFIGS, 5))
EVERY_CONFIG = ["--search", "exhaustive", "--trials", str(CONFIGS + 1), "--budget-s", "600"]
TARGET = f"""
import os, time
from pathlib import Path
from triton_ops import operation

LOG = Path(os.environ["STARTED_LOG"])
SEEN = set()

@operation(name="sleepy", space={{"delay_us": {DELAYS_US}}}, arguments=lambda: {{}}, device="cpu")
def sleepy(*, delay_us):
    if delay_us not in SEEN:
        SEEN.add(delay_us)
        with LOG.open("a") as log:
            log.write(f"{{delay_us}}\\n")
    time.sleep(delay_us * 1e-6)
"""


@pytest.fixture
def tune(tmp_path):
    """Starts the tune as a process of its own; the cache and the log stay between starts."""
    target = tmp_path / "sleepy_target.py"
    target.write_text(TARGET)
    log = tmp_path / "started.log"
    log.touch()
    cache = tmp_path / "cache"

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "triton_ops", "tune", f"{target}:sleepy", *EVERY_CONFIG, "--json"]
        environment = {**os.environ, "STARTED_LOG": str(log), "TRITON_OPS_CACHE_DIR": str(cache)}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    return start, log, cache


def logged(cache: Path) -> list[int]:
    """The configs whose trials are on disk, in order."""
    runs = [Run.read(path) for path in cache.glob("runs/*/*.jsonl") if "\n" in path.read_text()]
    return [e.trial.config["delay_us"] for run in runs for e in run.events if isinstance(e, Tried)]


def test_kill_at_random_moments(tune):
    start, log, cache = tune
    rng = random.Random(7)
    lost = []
    for kill in range(KILLS):
        next_one = len(log.read_text().split()) + 1 + kill % 3  # the trial in which it is killed, or a later one
        process = start()
        while len(log.read_text().split()) < next_one and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.08))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        started, kept = log.read_text().split(), logged(cache)
        assert len(kept) == len(set(kept)), "a trial on disk was done again"
        lost.append(len(set(map(int, started)) - set(kept)))
    assert max(lost) <= 1
    assert len(logged(cache)) >= KILLS // 2, "the kills came before anything was tried"

    process = start()
    out, err = process.communicate()
    assert process.returncode == 0, err.decode()
    result = json.loads(out)
    assert sorted(logged(cache)) == DELAYS_US
    assert result["totals"] == {"ok": CONFIGS}
    assert result["stopped"] == "complete"
    assert result["best_config"]["delay_us"] in DELAYS_US[: CONFIGS // 4]


def test_second_tune_of_a_problem_waits_for_the_first(tune):
    start, log, _ = tune
    processes = [start() for _ in range(3)]
    results = []
    for process in processes:
        out, err = process.communicate()
        assert process.returncode == 0, err.decode()
        results.append(json.loads(out))
    assert sorted(result["from_cache"] for result in results) == [False, True, True]
    assert len({json.dumps(result["best_config"]) for result in results}) == 1
    searched = log.read_text().split()
    assert len(searched) == len(set(searched)) == CONFIGS, "a config was tried by two processes"


@pytest.mark.parametrize("blocks", [2, 3], ids=lambda blocks: f"{blocks} KiB a file")
def test_a_disk_that_fills_up_costs_the_memory_and_not_the_tune(tune, blocks):
    """The system refuses to let a file grow: as with a full disk, the last line is torn, or happens to end there."""
    start, log, cache = tune
    environment = {**os.environ, "STARTED_LOG": os.devnull, "TRITON_OPS_CACHE_DIR": str(cache)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # Python 3.11 leaves a torn .pyc where a file cannot grow
    target = f"{log.parent / 'sleepy_target.py'}:sleepy"
    words = [sys.executable, "-m", "triton_ops", "tune", target, "--search", "random", "--trials", "20", "--json"]
    limited = ["bash", "-c", f'ulimit -f {blocks}; exec "$@"', "bash", *words]
    done = subprocess.run(limited, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["totals"] == {"ok": 20}
    assert b"this run cannot be resumed" in done.stderr
    (path,) = (cache / "runs").rglob("*.jsonl")
    assert path.stat().st_size == 1024 * blocks
    assert path.read_bytes().count(b"\n") < 20, "all trials are in the log"

    out, err = start().communicate()
    result = json.loads(out)
    assert result["totals"] == {"ok": CONFIGS}, err.decode()
    assert not result["from_cache"]
