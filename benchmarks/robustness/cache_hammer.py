"""Many processes, then many threads, set, get, list and clear one `ConfigCache` at the same time.

    python -m benchmarks.robustness.cache_hammer [--processes 8 --ops 500 --threads 32 --thread-ops 1000]

The threads run twice: on a folder, and in memory only.

Prints one JSON object. Per run: `lost` counts entries that were set and could not be got back
although no `clear` overlapped, or that came back with an older value; `torn` counts entries that
were not whole, and files that were not readable; `errors` counts exceptions. All three must be 0;
the exit status is 1 if one is not.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import random
import sys
import tempfile
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triton_ops.benchmark import ConfigCache

OWN_KEYS = 4  # per worker; nobody else sets them
SHARED_KEYS = 4  # set by everybody
CHANCES = {"set": 45, "get": 25, "get_shared": 17, "set_shared": 10, "list": 1, "clear": 2}

Span = tuple[int, int]  # begin and end, in nanoseconds of the clock that all processes share
Key = tuple[str, tuple[int, int], str]


@dataclass
class Seen:
    """What one worker did and saw."""

    clears: list[Span] = field(default_factory=list)
    misses: list[Span] = field(default_factory=list)  # from the set to the get that found nothing
    stale: int = 0
    torn: int = 0
    errors: list[str] = field(default_factory=list)
    last: dict[Key, tuple[int, int]] = field(default_factory=dict)  # key: when it was set, to what


class Counter(logging.Handler):
    """Counts what the stores complain about."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count it, and show the first ones."""
        self.count += 1
        if self.count <= 3:
            print(record.getMessage(), file=sys.stderr)


class Worker:
    """One process or thread: random operations, each checked as far as it can be."""

    def __init__(self, cache: ConfigCache, number: int) -> None:
        self.cache = cache
        self.number = number
        self.seen = Seen()
        self.rng = random.Random(number)

    def run(self, ops: int) -> Seen:
        """Do `ops` operations."""
        names = self.rng.choices(list(CHANCES), weights=list(CHANCES.values()), k=ops)
        for step, name in enumerate(names):
            self._do(name, step)
        return self.seen

    def _do(self, name: str, step: int) -> None:
        try:
            getattr(self, name)(step)
        except Exception as error:  # noqa: BLE001 - any error is a finding of this run
            self.seen.errors.append(f"{name}: {error!r}")

    def set(self, step: int) -> None:
        """Set a key of one's own."""
        key, begin = self._own(), time.monotonic_ns()
        self.cache.set(*key, value(step))
        self.seen.last[key] = (begin, step)

    def get(self, _step: int) -> None:
        """Get back what was set last."""
        key = self._own()
        if key not in self.seen.last:
            return
        began, expected = self.seen.last[key]
        entry = self.cache.get(*key)
        if entry is None:
            self.seen.misses.append((began, time.monotonic_ns()))
        elif entry != value(expected):
            self.seen.stale += 1

    def set_shared(self, step: int) -> None:
        """Set a key that all set."""
        self.cache.set(*shared_key(self.rng), value(step))

    def get_shared(self, _step: int) -> None:
        """Get one that all set: any worker's, but a whole one."""
        entry = self.cache.get(*shared_key(self.rng))
        if entry is not None and entry != value(entry.get("n", -1)):
            self.seen.torn += 1

    def list(self, _step: int) -> None:
        """List the keys."""
        self.cache.get_all_keys()

    def clear(self, _step: int) -> None:
        """Remove everything."""
        begin = time.monotonic_ns()
        self.cache.clear()
        self.seen.clears.append((begin, time.monotonic_ns()))

    def _own(self) -> Key:
        return ("own", (self.number, self.rng.randrange(OWN_KEYS)), "cuda:0")


def shared_key(rng: random.Random) -> Key:
    """One of the keys that every worker sets."""
    return ("shared", (0, rng.randrange(SHARED_KEYS)), "cuda:0")


def value(step: int) -> dict[str, Any]:
    """A config that shows whether it is whole."""
    return {"n": step, "copies": [step] * 64}


def in_process(folder: str, number: int, ops: int) -> Seen:
    """A worker with a cache object of its own, as every process has."""
    counter = Counter()
    logging.getLogger("triton_ops").addHandler(counter)
    worker = Worker(ConfigCache(folder), number).run(ops)
    worker.torn += counter.count
    return worker


def lost_and_torn(worker_results: list[Seen], cache: ConfigCache) -> dict[str, Any]:
    """Judge what the workers saw, with all clears known."""
    clears = [span for seen in worker_results for span in seen.clears]
    lost = sum(seen.stale for seen in worker_results)
    for seen in worker_results:
        lost += sum(not _overlaps(span, clears) for span in seen.misses)
        for key, (began, step) in seen.last.items():
            entry = cache.get(*key)
            unexplained = entry is None and not _overlaps((began, time.monotonic_ns()), clears)
            lost += unexplained or (entry is not None and entry != value(step))
    errors = [error for seen in worker_results for error in seen.errors]
    torn = sum(seen.torn for seen in worker_results)
    return {
        "lost": lost, "torn": torn, "errors": len(errors), "first_errors": errors[:3],
        "clears": len(clears), "left": len(cache),
    }  # fmt: skip


def _overlaps(span: Span, others: list[Span]) -> bool:
    return any(begin <= span[1] and end >= span[0] for begin, end in others)


def processes(folder: str, workers: int, ops: int) -> dict[str, Any]:
    """Processes that share a folder, each with a cache object of its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        list(pool.map(time.sleep, [0.2] * workers))  # all are up before the clock starts
        begin = time.monotonic()
        results = _gather(pool, in_process, [(folder, number, ops) for number in range(workers)])
        seconds = time.monotonic() - begin
    counter = Counter()
    logging.getLogger("triton_ops").addHandler(counter)
    verdict = lost_and_torn(results, ConfigCache(folder))
    logging.getLogger("triton_ops").removeHandler(counter)
    verdict["torn"] += counter.count
    return {"workers": workers, "ops": workers * ops, "seconds": round(seconds, 2), **verdict}


def threads(folder: str | None, workers: int, ops: int) -> dict[str, Any]:
    """Threads that share one cache object."""
    cache, counter = ConfigCache(folder), Counter()
    logging.getLogger("triton_ops").addHandler(counter)
    begin = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        results = _gather(pool, Worker.run, [(Worker(cache, n), ops) for n in range(workers)])
    seconds = time.monotonic() - begin
    verdict = lost_and_torn(results, cache)
    logging.getLogger("triton_ops").removeHandler(counter)
    verdict["torn"] += counter.count
    return {"workers": workers, "ops": workers * ops, "seconds": round(seconds, 2), **verdict}


def _gather(pool: Executor, call: Any, arguments: list[tuple[Any, ...]]) -> list[Seen]:
    waiting = [pool.submit(call, *words) for words in arguments]
    return [future.result() for future in waiting]


def main() -> int:
    """Run all three and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--ops", type=int, default=500, help="operations per process")
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--thread-ops", type=int, default=1000, help="operations per thread")
    parser.add_argument("--folder-thread-ops", type=int, help="the same, for the run on a folder")
    options = parser.parse_args()
    on_folder = options.folder_thread_ops or options.thread_ops
    with tempfile.TemporaryDirectory() as folder:
        figures = {
            "processes": processes(str(Path(folder, "p")), options.processes, options.ops),
            "threads": threads(str(Path(folder, "t")), options.threads, on_folder),
            "threads_memory_only": threads(None, options.threads, options.thread_ops),
        }
    print(json.dumps(figures, indent=2))
    return int(any(run[what] for run in figures.values() for what in ("lost", "torn", "errors")))


if __name__ == "__main__":
    sys.exit(main())
