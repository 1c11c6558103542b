"""Does a tune crown one of several identical callables on a busy host, and does it find one that is 10 % faster?

    python -m benchmarks.timing.noise --out benchmarks/results/host/noise.json

As many processes as there are CPUs burn time meanwhile. Callables of 2 µs to 2 ms, and of 0.1 µs, are tuned from
scratch, each with a space of three: 200 times they are identical, 100 times one that is not the default is 10 % faster.
No GPU is needed. A table on stdout; exit code 1 if a target is missed: at most 1 % of the identical ones have a winner
that is not the default, none of those has an interval that holds 1, and at least 95 % of the faster ones are found.
Takes about 12 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from triton_ops import FunctionKernel, TuningResult, tune
from triton_ops.tuner import Silent

SHORTEST_US, LONGEST_US = 2.0, 2000.0
EMPTY_US = 0.1  # a call that does nothing: every tenth of the identical ones
GAIN = 1.1
FALSE_WINNERS = 0.01  # of tunes among identical callables
FOUND = 0.95  # of tunes with a faster callable
CALIBRATIONS = 200


def spin(turns: int) -> int:
    """Work of a length that is proportional to `turns`."""
    total = 0
    for turn in range(turns):
        total += turn
    return total


def burn() -> None:
    """Keep one CPU busy until the process is killed."""
    while True:
        spin(10_000)


@contextlib.contextmanager
def burners(count: int) -> Iterator[None]:
    """Inside, so many processes keep CPUs busy."""
    processes = [multiprocessing.Process(target=burn, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def turn_us() -> float:
    """Microseconds of one turn of `spin`: the best of many, while the host is idle."""
    best = math.inf
    for _ in range(CALIBRATIONS):
        start = time.perf_counter_ns()
        spin(10_000)
        best = min(best, time.perf_counter_ns() - start)
    return best / 10_000 / 1e3


def callables(turns: int, faster: int | None) -> Callable[..., Any]:
    """A callable with a tunable `k`, which makes no difference but for the value `faster`."""
    by_k = [round(turns / GAIN) if k == faster else turns for k in range(3)]

    def run(*, k: int) -> None:
        spin(by_k[k])

    return run


def tuned(function: Callable[..., Any], seed: int) -> TuningResult:
    """One tune from scratch; the default is the first of three."""
    with tempfile.TemporaryDirectory() as fresh:
        kernel = FunctionKernel(function, label="spin")
        return tune(kernel, space={"k": [0, 1, 2]}, cache_dir=fresh, seed=seed, listener=Silent())


def row(result: TuningResult, length_us: float, faster: int | None) -> dict[str, Any]:
    """What is kept of one tune."""
    return {
        "us": round(length_us, 1),
        "faster": faster,
        "winner": result.best_config["k"],
        "gain": result.gain if result.best_config["k"] else None,
        "interval": result.gain_interval,
        "confidence": result.confidence,
        "noise": round(result.noise, 4),
        "seconds": round(result.elapsed_s, 2),
    }


def rows(tunes: int, faster: bool, each_us: float, first: int) -> list[dict[str, Any]]:
    """So many tunes; their lengths are spread evenly over the logarithm, in an order that mixes them."""
    results = []
    for number in range(first, first + tunes):
        length_us = SHORTEST_US * (LONGEST_US / SHORTEST_US) ** ((number * 0.618034) % 1)
        which = 1 + number % 2 if faster else None
        turns = max(round(length_us / each_us), 10)
        if which is None and number % 10 == 0:
            length_us, turns = EMPTY_US, 0
        result = tuned(callables(turns, which), number)
        results.append(row(result, length_us, which))
    return results


def summary(same: list[dict[str, Any]], faster: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the targets are about."""
    crowned = [it for it in same if it["winner"] != 0]
    holds_one = [it for it in (*same, *faster) if it["interval"] and it["interval"][0] <= 1 <= it["interval"][1]]
    return {
        "identical": len(same),
        "false_winners": len(crowned),
        "winners_with_an_interval_that_holds_1": len(holds_one),
        "faster": len(faster),
        "found": sum(it["winner"] == it["faster"] for it in faster),
        "wrongly_chosen": sum(it["winner"] not in (0, it["faster"]) for it in faster),
        "low_confidence": Counter(it["confidence"] != "ok" for it in (*same, *faster))[True],
        "seconds": round(sum(it["seconds"] for it in (*same, *faster)) / max(len(same) + len(faster), 1), 2),
    }


def missed(document: dict[str, Any]) -> list[str]:
    """The targets that were missed, in words."""
    faults = []
    if document["false_winners"] > FALSE_WINNERS * document["identical"]:
        faults.append(f"{document['false_winners']} of {document['identical']} identical callables were crowned")
    if document["winners_with_an_interval_that_holds_1"]:
        faults.append(f"{document['winners_with_an_interval_that_holds_1']} winners have an interval that holds 1")
    if document["found"] < FOUND * document["faster"]:
        faults.append(f"{document['found']} of {document['faster']} faster callables were found")
    return faults


def main() -> int:
    """Run the tunes; the exit code is 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--identical", type=int, default=200, help="tunes of identical callables")
    parser.add_argument("--faster", type=int, default=100, help="tunes of which one callable is 10 %% faster")
    parser.add_argument("--burners", type=int, default=os.cpu_count(), help="processes that keep CPUs busy")
    parser.add_argument("--first", type=int, default=0, help="number of the first tune, which its length comes from")
    parser.add_argument("--out", type=Path, help="file for all figures")
    options = parser.parse_args()
    each_us = turn_us()
    with burners(options.burners):
        same = rows(options.identical, faster=False, each_us=each_us, first=options.first)
        faster = rows(options.faster, faster=True, each_us=each_us, first=options.first)
    document = summary(same, faster)
    for name, value in document.items():
        print(f"{name.replace('_', ' '):40} {value}")
    if options.out is not None:
        command = f"python -m benchmarks.timing.noise --identical {options.identical} --faster {options.faster}"
        save(
            options.out, headed(command, None, burners=options.burners, **document, same=same, with_a_faster_one=faster)
        )
    for text in missed(document):
        print(f"missed: {text}")
    return bool(missed(document))


if __name__ == "__main__":
    raise SystemExit(main())
