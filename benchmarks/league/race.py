"""Runs of a tuner on a space, and their traces: compressed JSON files, from which the tables are made.

A trace has for each space the configs that any run evaluated, with milliseconds (null where it failed) and seconds to
compile, and for each start and seed the configs' places in order. Equal runs give equal traces but for the seconds that
the tuner itself takes, which are one median per space.
"""

from __future__ import annotations

import gzip
import json
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.league.spaces import Space, read_space
from benchmarks.league.tuners import EVALUATIONS, entry_of
from triton_ops.base import NamedFile

ALONE, DEFAULT = "alone", "default"
STARTS = {ALONE: "from the space alone", DEFAULT: "from the default"}
_PATIENCE = 20  # questions in a row that are no evaluation


@dataclass(frozen=True)
class Run:
    """One run: places of the configs evaluated, seconds of all compiles so far, milliseconds of the tuner itself."""

    asked: list[int]
    compiled_s: list[float] | None  # None where the tuner has nothing compiled that it does not ask for
    thinking_ms: float


def run(make: Any, space: Space, seed: int, start: str, evaluations: int = EVALUATIONS) -> Run:
    """Let a tuner evaluate configs, each counted once, those that failed among them."""
    rng, idle, took_s = random.Random(seed), 0, 0.0
    asked: dict[int, None] = {}
    compiled_s: list[float] = []
    begin = time.perf_counter()
    tuner = make(space, seed, space.default if start == DEFAULT else None)
    took_s += time.perf_counter() - begin

    def evaluate(at: int) -> None:
        asked[at] = None
        compiled_s.append(getattr(tuner, "compiled_s", 0.0))

    while len(asked) < min(evaluations, len(space.configs)):
        begin = time.perf_counter()
        config = tuner.ask()
        took_s += time.perf_counter() - begin
        if config is None:
            break
        if (start, len(asked)) == (DEFAULT, 0) and config != space.default:
            raise RuntimeError(f"{tuner!r} asks for {config} before the default")
        at = space.places.get(config)
        answers = [(config, None if at is None else space.times[at])]
        idle = 0 if at is not None and at not in asked else idle + 1
        if idle == 0 and at is not None:
            evaluate(at)
        elif idle == _PATIENCE:
            other = rng.choice([at for at in range(len(space.configs)) if at not in asked])
            answers.append((space.configs[other], space.times[other]))
            evaluate(other)
            idle = 0
        begin = time.perf_counter()
        for answer in answers:
            tuner.tell(*answer)
        took_s += time.perf_counter() - begin
    getattr(tuner, "close", lambda: None)()
    return Run(
        list(asked), compiled_s if hasattr(tuner, "compiled_s") else None, took_s * 1e3 / max(len(asked), 1)
    )  # fmt: skip


def runs_of(tuner: str, seeds: int, file: tuple[Path, str, str]) -> dict[str, Any]:
    """A trace's entry of one of `files`: the runs of a tuner with all seeds and both starts."""
    space, make = read_space(*file), entry_of(tuner).load()
    runs = {start: [run(make, space, seed, start) for seed in range(seeds)] for start in STARTS}
    places = sorted({at for several in runs.values() for each in several for at in each.asked})
    entry: dict[str, Any] = {
        "group": space.group, "size": len(space.configs), "best_ms": space.best_ms, "digest": space.digest,
        "thinking_ms": round(statistics.median(each.thinking_ms for several in runs.values() for each in several), 2),
        "configs": {at: [space.times[at], round(space.compile_s(space.configs[at]), 3)] for at in places},
        "runs": {start: [each.asked for each in several] for start, several in runs.items()},
    }  # fmt: skip
    if any(each.compiled_s is not None for each in runs[ALONE]):
        entry["compiled_s"] = {
            start: [[round(s, 2) for s in each.compiled_s or ()] for each in several] for start, several in runs.items()
        }
    return entry


def trace_path(folder: Path, tuner: str) -> Path:
    """The file of a tuner's trace."""
    words = "".join(letter if letter.isalnum() else " " for letter in tuner).split()
    return folder / f"{'_'.join(words).lower()}.json.gz"


def read_trace(path: Path) -> dict[str, Any]:
    """A trace; without spaces if there is no such file."""
    return json.loads(NamedFile(path).read(unpack=True)) if path.exists() else {"spaces": {}}


def write_trace(path: Path, trace: Mapping[str, Any]) -> None:
    """Write a trace; equal traces give equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**trace, "spaces": dict(sorted(trace["spaces"].items()))}, separators=(",", ":"))
    NamedFile(path).write(gzip.compress(text.encode(), mtime=0))


def traces_in(folder: Path, order: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Tuner to trace of all files in a folder, the tuners of `order` first."""
    traces = [read_trace(path) for path in sorted(folder.glob("*.json.gz"))]
    named = {trace["tuner"]: trace for trace in traces}
    return {name: named[name] for name in [*order, *named] if name in named}
