"""How much where arguments lie in GPU memory decides between two configs.

    python -m benchmarks.timing.placement --out FILE

Two configs of a matrix product of 4096³ are timed in turn, L2 flushed, on ten argument sets of one process. Their
ratio is the same in every round of one set, and another on the next: a comparison on one set alone proves what the next
process refutes. The standard deviation over the sets says how many of them a comparison has to take in turn.
"""

from __future__ import annotations

import argparse
import random
import statistics
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from benchmarks.kernels import KINDS
from triton_ops.device import probe
from triton_ops.space import Config
from triton_ops.timing import Interval, Launch
from triton_ops.timing.gpu_timers import EventTimer

KIND = "gluon_matmul"
PAIR = (
    Config({"BM": 64, "BN": 256, "BK": 64, "BUFFERS": 2, "num_warps": 4}),
    Config({"BM": 128, "BN": 128, "BK": 64, "BUFFERS": 3, "num_warps": 4}),
)
SETS, ROUNDS = 10, 30


def rounds_on(sets: int, rounds: int) -> list[tuple[list[float], list[float]]]:
    """The milliseconds of both configs by set, in the same rounds."""
    operation = KINDS[KIND]
    arguments = [operation.materialise(operation.problem(None, None), "cuda") for _ in range(sets)]
    executables = [operation.kernel.compile(config, arguments[0]) for config in PAIR]
    timer = EventTimer("cuda", cache="flushed")
    samplers = [[timer.prepare(Launch(each.bind(one)), 1) for each in executables] for one in arguments]
    rows: list[tuple[list[float], list[float]]] = [([], []) for _ in range(sets)]
    rng = random.Random(0)
    for _ in range(rounds):
        for one in rng.sample(range(sets), sets):
            for which in rng.sample((0, 1), 2):
                rows[one][which].append(statistics.median(samplers[one][which].take(timer, 3)))
    return rows


def figures(rows: list[tuple[list[float], list[float]]]) -> dict[str, Any]:
    """By how much the second config is slower than the first on each set, with its interval, and the spread."""
    gaps = [Interval.of_gap(second, first) for first, second in rows]
    centres = [contrast.centre for contrast in gaps]
    return {
        "slower_by_set": [[contrast.low, contrast.centre, contrast.high] for contrast in gaps],
        "mean": statistics.mean(centres),
        "deviation_over_sets": statistics.stdev(centres),
    }


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=SETS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    options = parser.parse_args()
    document = figures(rounds_on(options.sets, options.rounds))
    for low, centre, high in document["slower_by_set"]:
        print(f"{100 * centre:+.2f} % ({100 * low:+.2f} to {100 * high:+.2f})")
    print(
        f"mean {100 * document['mean']:+.2f} %, "
        f"standard deviation over sets {100 * document['deviation_over_sets']:.2f} %"
    )
    if options.out:
        pair = [dict(config) for config in PAIR]
        save(
            options.out,
            {
                **headed("python -m benchmarks.timing.placement", options.commit, device=probe("cuda").name),
                "kernel": KIND,
                "pair": pair,
                **document,
            },
        )


if __name__ == "__main__":
    main()
