"""Processes that share the folder of one `ConfigCache` are killed with `kill -9`, again and again, in the middle of it.

    python -m benchmarks.robustness.cache_kills --out benchmarks/results/cpu/cache_kills.json      about a minute
    python -m benchmarks.robustness.cache_kills --unharmed      processes, then threads, of which none is killed

They set, get, list and clear at the same time. Unharmed threads share one object and run twice: on a folder, and in
memory only. Each process notes what it begins and what has ended, in a file of its own that survives it; a successor
goes on. From these notes each answer is judged: `lost` counts entries that were set and are gone although no `clear`
overlapped; `stale` those that came back with a value older than one whose `set` had ended; `torn` entries that were not
whole, and warnings about files; `errors` exceptions. All must be 0, and every process must get through its operations,
which none does if a lock is left behind. Ends with exit code 1 if anything was not as it must be.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.document import headed, parser_of, save
from triton_ops.benchmark import ConfigCache

LIFE_S = 0.06  # at most
LONGEST_S = 600.0  # of all
OWN_KEYS = 4  # per worker; nobody else sets them
SHARED_KEYS = 4  # set by everybody
CHANCES = {"set": 45, "get": 25, "get_shared": 17, "set_shared": 10, "list": 1, "clear": 2}

Span = tuple[int, int]  # begin and end, in nanoseconds of the clock that all processes share
Key = tuple[str, tuple[int, int], str]


@dataclass
class Notes:
    """What a worker, with all its predecessors, noted; one line for each thing that begins or has ended."""

    path: Path

    def write(self, what: str, *more: Any) -> None:
        """Add a line, which outlives this process."""
        line = json.dumps([time.monotonic_ns(), what, *more]) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, line.encode())
        os.close(descriptor)

    def read(self) -> list[list[Any]]:
        """All lines."""
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


class Complaints(logging.Handler):
    """Notes what the stores complain about."""

    def __init__(self, notes: Notes) -> None:
        super().__init__(logging.WARNING)
        self.notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        self.notes.write("torn", record.getMessage())


class Worker:
    """Random operations, each noted before and after."""

    def __init__(self, cache: ConfigCache, number: int, notes: Notes, rng: random.Random) -> None:
        self.cache, self.number, self.notes, self.rng = cache, number, notes, rng

    def run(self, first: int, count: int) -> None:
        """Do `count` operations, numbered from `first`."""
        names = self.rng.choices(list(CHANCES), weights=list(CHANCES.values()), k=count)
        for step, name in enumerate(names, first):
            try:
                getattr(self, name)(step)
            except Exception as error:  # noqa: BLE001 - any error is a finding of this run
                self.notes.write("error", f"{name}: {error!r}")
            self.notes.write("done")

    def set(self, step: int) -> None:
        """Set a key of one's own."""
        key = self.rng.randrange(OWN_KEYS)
        self.notes.write("set", key, step)
        self.cache.set(*own_key(self.number, key), value(step))
        self.notes.write("was set", key, step)

    def get(self, _step: int) -> None:
        """Get a key of one's own."""
        key = self.rng.randrange(OWN_KEYS)
        self.notes.write("get", key)
        self.notes.write("got", key, number_in(self.cache.get(*own_key(self.number, key))))

    def set_shared(self, step: int) -> None:
        """Set a key that all set."""
        self.cache.set(*shared_key(self.rng), value(step))

    def get_shared(self, _step: int) -> None:
        """Get one that all set: any worker's, but a whole one."""
        if number_in(self.cache.get(*shared_key(self.rng))) == -1:
            self.notes.write("torn", "a shared key")

    def list(self, _step: int) -> None:
        """List the keys."""
        self.cache.get_all_keys()

    def clear(self, _step: int) -> None:
        """Remove everything."""
        self.notes.write("clear")
        self.cache.clear()
        self.notes.write("cleared")


def own_key(number: int, key: int) -> Key:
    """A key that nobody else sets."""
    return ("own", (number, key), "cuda:0")


def shared_key(rng: random.Random) -> Key:
    """One of the keys that every worker sets."""
    return ("shared", (0, rng.randrange(SHARED_KEYS)), "cuda:0")


def value(step: int) -> dict[str, Any]:
    """A config that shows whether it is whole."""
    return {"n": step, "copies": [step] * 64}


def number_in(entry: dict[str, Any] | None) -> int | None:
    """The number of the step that set a config; -1 if the config is not whole, None if there is none."""
    if entry is None:
        return None
    step = entry.get("n", -1)
    return step if entry == value(step) else -1


@dataclass
class Slot:
    """A worker and its successors.

    Attributes:
        pid: The process now; 0 while there is none.
        until_s: When it is killed.
        lives: How many processes there were.
    """

    number: int
    notes: Notes
    pid: int = 0
    until_s: float = 0.0
    lives: int = 0

    @property
    def done(self) -> int:
        """The number of operations that have ended."""
        return self.notes.path.read_text().count('"done"') if self.notes.path.exists() else 0

    def begin(self, folder: str, ops: int, rng: random.Random) -> None:
        """Start the next process."""
        self.lives += 1
        self.until_s = time.monotonic() + rng.uniform(0.0, LIFE_S)
        seed, first = f"{self.number} {self.lives} {rng.random()}", 1000 * self.lives
        self.pid = os.fork()
        if not self.pid:
            logging.getLogger("triton_ops").handlers[:] = [Complaints(self.notes)]
            Worker(ConfigCache(folder), self.number, self.notes, random.Random(seed)).run(first, ops)
            os._exit(0)

    def look(self) -> bool:
        """Kill the process if its time has come; whether it was killed."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid and time.monotonic() > self.until_s:
            os.kill(self.pid, signal.SIGKILL)
            pid, status = os.waitpid(self.pid, 0)
        if pid:
            self.pid = 0
            if os.WIFSIGNALED(status):
                self.notes.write("killed")
                return True
        return False


@dataclass
class Verdict:
    """What the notes of all workers come to."""

    found: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)

    def add(self, what: str, text: str) -> None:
        """Count a finding, and keep the first ones."""
        self.found[what] += 1
        if len(self.first) < 5:
            self.first.append(f"{what}: {text}")


def judge(notes: list[Notes], verdict: Verdict) -> None:
    """Judge what all workers noted; a `clear` that was killed lasts until its worker was."""
    lines = [each.read() for each in notes]
    clears: list[Span] = [span for each in lines for span in spans(each)]
    for number, each in enumerate(lines):
        judging = Judge(number, clears, verdict)
        for note in each:
            judging.hear(*note)


def spans(lines: list[list[Any]]) -> list[Span]:
    """When a worker cleared the folder."""
    times, start = [], None
    for at, what, *_ in lines:
        if what == "clear":
            start = at
        elif start is not None and what in ("cleared", "killed"):
            times.append((start, at))
            start = None
    return times


class Judge:
    """Judges the answers that one worker got for its own keys.

    Args:
        number: The worker's.
        clears: When any worker cleared the folder.
        verdict: Takes what is found.
    """

    def __init__(self, number: int, clears: list[Span], verdict: Verdict) -> None:
        self.number, self.clears, self.verdict = number, clears, verdict
        self.possible: dict[int, set[int | None]] = {key: {None} for key in range(OWN_KEYS)}
        self.since = dict.fromkeys(range(OWN_KEYS), 0)  # from when on a `clear` explains that there is nothing
        self.begun = 0

    def hear(self, at: int, what: str, *more: Any) -> None:
        """Take a note."""
        if what in ("set", "get"):
            self.begun = at
        if what == "set":
            self.possible[more[0]].add(more[1])
        elif what == "was set":
            self._known(*more)
        elif what in ("torn", "error"):
            self.verdict.add(what, f"{self.number}: {more}")
        elif what == "got":
            self._got(at, *more)

    def _known(self, key: int, number: int | None) -> None:
        self.possible[key], self.since[key] = {number}, self.begun

    def _got(self, at: int, key: int, number: int | None) -> None:
        possible = self.possible[key]
        cleared = any(begin <= at and end >= self.since[key] for begin, end in self.clears)
        if number in possible or (number is None and cleared):
            self._known(key, number)
        else:
            what = "lost" if number is None else "torn" if number == -1 else "stale"
            self.verdict.add(what, f"{self.number}: key {key} is {number}, not of {possible}")


def hammered(place: Path, workers: int, ops: int, kills: int, seed: int) -> dict[str, Any]:
    """Run the workers until each has done its operations and enough were killed; the verdict."""
    folder, rng = str(place / "cache"), random.Random(seed)
    slots = [Slot(number, Notes(place / f"{number}.notes")) for number in range(workers)]
    start, killed = time.monotonic(), 0
    while time.monotonic() - start < LONGEST_S:
        for slot in slots:
            if slot.pid:
                killed += slot.look()
            if not slot.pid and (killed < kills or slot.done < ops):
                slot.begin(folder, ops, rng)
        if not any(slot.pid for slot in slots):
            break
        time.sleep(0.001)
    for slot in slots:
        slot.until_s = 0.0
        killed += slot.look() if slot.pid else 0
    finished, cache = [slot.done for slot in slots], ConfigCache(folder)
    verdict, complaints = judged_at_the_end(cache, [slot.notes for slot in slots], Notes(place / "last.notes"))
    remains = [path.name for path in Path(folder).iterdir() if path.name.endswith(".tmp")]
    return {
        "workers": workers, "ops": sum(finished), "least_ops_of_a_worker": min(finished), "kills": killed,
        **{what: verdict.found[what] for what in ("lost", "stale", "torn", "error")}, "first": verdict.first,
        "complaints_at_the_end": complaints, "entries": len(cache), "half_written_files": len(remains),
        "seconds": round(time.monotonic() - start, 1),
    }  # fmt: skip


def judged_at_the_end(cache: ConfigCache, notes: list[Notes], last: Notes) -> tuple[Verdict, int]:
    """The verdict after a last look at every key, and how many complaints that has brought."""
    verdict, handler = Verdict(), Complaints(last)
    logging.getLogger("triton_ops").addHandler(handler)
    for number, each in enumerate(notes):
        for key in range(OWN_KEYS):
            each.write("got", key, number_in(cache.get(*own_key(number, key))))
    logging.getLogger("triton_ops").removeHandler(handler)
    judge(notes, verdict)
    return verdict, len(last.read())


def in_process(folder: Path, number: int, notes: Notes, ops: int) -> None:
    """A worker with a cache object of its own, as every process has."""
    logging.getLogger("triton_ops").handlers[:] = [Complaints(notes)]
    Worker(ConfigCache(str(folder)), number, notes, random.Random(number)).run(0, ops)


def processes(place: Path, workers: int, ops: int) -> dict[str, Any]:
    """Processes that share a folder, each with a cache object of its own, and none of which is killed."""
    place.mkdir()
    notes = [Notes(place / f"{number}.notes") for number in range(workers)]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(time.sleep, [0.2] * workers))  # all are up before the clock starts
        seconds = _gathered(pool, in_process, [(place / "cache", n, each, ops) for n, each in enumerate(notes)])
    return _unharmed(ConfigCache(str(place / "cache")), notes, Notes(place / "last.notes"), seconds)


def threads(place: Path, workers: int, ops: int, *, in_memory: bool = False) -> dict[str, Any]:
    """Threads that share one cache object."""
    place.mkdir()
    notes, last = [Notes(place / f"{number}.notes") for number in range(workers)], Notes(place / "last.notes")
    cache, handler = ConfigCache(None if in_memory else str(place / "cache")), Complaints(last)
    logging.getLogger("triton_ops").addHandler(handler)
    jobs = [(Worker(cache, number, each, random.Random(number)), 0, ops) for number, each in enumerate(notes)]
    with ThreadPoolExecutor(workers) as pool:
        seconds = _gathered(pool, Worker.run, jobs)
    logging.getLogger("triton_ops").removeHandler(handler)
    return _unharmed(cache, notes, last, seconds)


def _gathered(pool: Executor, call: Any, arguments: list[tuple[Any, ...]]) -> float:
    """The seconds in which all calls have ended."""
    start = time.monotonic()
    for future in [pool.submit(call, *words) for words in arguments]:
        future.result()
    return time.monotonic() - start


def _unharmed(cache: ConfigCache, notes: list[Notes], last: Notes, seconds: float) -> dict[str, Any]:
    """What a run without kills comes to."""
    verdict, complaints = judged_at_the_end(cache, notes, last)
    lines = [line for each in notes for line in each.read()]
    return {
        "workers": len(notes), "ops": sum(what == "done" for _, what, *_ in lines), "seconds": round(seconds, 2),
        "lost": verdict.found["lost"] + verdict.found["stale"], "torn": verdict.found["torn"] + complaints,
        "errors": verdict.found["error"], "first": verdict.first,
        "clears": sum(what == "cleared" for _, what, *_ in lines), "left": len(cache),
    }  # fmt: skip


def unharmed(options: argparse.Namespace) -> int:
    """Run processes and threads of which none is killed, and print the figures; 1 if one of them is a fault."""
    on_folder = options.folder_thread_ops or options.thread_ops
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        figures = {
            "processes": processes(place / "p", options.processes, options.ops),
            "threads": threads(place / "t", options.threads, on_folder),
            "threads_memory_only": threads(place / "m", options.threads, options.thread_ops, in_memory=True),
        }
    print(json.dumps(figures, indent=2))
    return int(any(run[what] for run in figures.values() for what in ("lost", "torn", "errors")))


def main() -> int:
    """Run it, print and write the figures; 1 if anything was not as it must be."""
    parser = parser_of(__doc__)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--ops", type=int, default=300, help="operations per process, at least")
    parser.add_argument("--kills", type=int, default=1000, help="at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unharmed", action="store_true", help="kill none, and have threads run as well")
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--thread-ops", type=int, default=1000, help="operations per thread")
    parser.add_argument("--folder-thread-ops", type=int, help="the same, for the run on a folder")
    options = parser.parse_args()
    if options.unharmed:
        return unharmed(options)
    with tempfile.TemporaryDirectory() as folder:
        verdict = hammered(Path(folder), options.processes, options.ops, options.kills, options.seed)
    options_text = f"--processes {options.processes} --ops {options.ops} --kills {options.kills} --seed {options.seed}"
    document = headed(f"python -m benchmarks.robustness.cache_kills {options_text}", options.commit, **verdict)
    faults = sum(verdict[what] for what in ("lost", "stale", "torn", "error", "complaints_at_the_end"))
    document["passed"] = (
        not faults and verdict["least_ops_of_a_worker"] >= options.ops and verdict["kills"] >= options.kills
    )
    print(json.dumps(document, indent=1))
    if options.out:
        save(options.out, document)
    return 0 if document["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
