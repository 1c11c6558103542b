"""Are callables and kernels that take tenths of a second, or seconds, tuned as well as short ones?

    python -m benchmarks.timing.slow_launches --out benchmarks/results/cpu/slow_launches.json
    python -m benchmarks.timing.slow_launches --parts kernels --limit-s 150 --out benchmarks/results/host/slow_gpu.json

Each is tuned from scratch, with the default effort, and its winner is then compared with all other configs in a few
rounds. A config is left behind if all these rounds show that it is faster than the winner, and the median by a tenth.
`callables` are eight real ones of 0.05 to 3 s; `pairs` sleep, with a jitter of a tenth; `equals` are pairs without a
difference; `many` is a space of 144 configs of 0.3 to 2.4 s with 120 s; `kernels` is a Triton kernel on a GPU whose
configs take 1.9 s and 0.5 s, others of it, and equal ones. A line for each on stdout; exit code 1 if a config is left
behind, or an equal one has won. Takes about twelve minutes without a GPU; the kernels alone take two and a half.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.document import headed, save
from triton_ops import TuningResult, tune
from triton_ops.tuner import Silent

JITTER = 0.1
ROUNDS = 3
BEHIND = 1.1
PAIRS_S = ((0.4, 0.2), (0.8, 0.4), (0.4, 0.3), (1.0, 0.1), (2.0, 1.0), (2.5, 0.1))
EQUAL_S = (0.05, 0.2, 0.4, 0.8)
KERNELS_MS = ((1900.0, 4), (1000.0, 2), (500.0, 1))  # the default's time, and how many times as fast the other is


@dataclass(frozen=True)
class Case:
    """One tune: a target, its space, and whatever else `tune` is told; `equal` configs must not replace the default."""

    target: Any
    space: Mapping[str, list[Any]]
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    equal: bool = False
    checked: bool = True


def root(x: np.ndarray, *, chunk: int) -> np.ndarray:
    """Square roots, so many elements at a time."""
    return np.concatenate([np.sqrt(x[at : at + chunk]) for at in range(0, len(x), chunk)])


def digest(data: bytes, *, chunk: int) -> str:
    """A digest that is fed so many bytes at a time."""
    state, view = hashlib.sha256(), memoryview(data)
    for at in range(0, len(view), chunk):
        state.update(view[at : at + chunk])
    return state.hexdigest()


def ordered(x: np.ndarray, *, kind: str) -> np.ndarray:
    """Sorted numbers."""
    return np.sort(x, kind=kind)


def column_sums(x: np.ndarray, *, by: str) -> np.ndarray:
    """Sums of columns, one column or one row at a time."""
    if by == "column":
        return np.array([x[:, at].sum(dtype=np.int64) for at in range(x.shape[1])])
    total = np.zeros(x.shape[1], dtype=np.int64)
    for row in x:
        total += row
    return total


def sieved(limit: int, *, by: str) -> int:
    """The number of primes below a limit."""
    prime = bytearray([1]) * limit
    prime[:2] = b"\0\0"
    for number in range(2, int(limit**0.5) + 1):
        if not prime[number]:
            continue
        if by == "slice":
            prime[number * number :: number] = bytes(len(range(number * number, limit, number)))
        else:
            for multiple in range(number * number, limit, number):
                prime[multiple] = 0
    return sum(prime)


def counted_words(words: list[str], *, by: str) -> int:
    """How often the most frequent word comes."""
    if by == "counter":
        return max(Counter(words).values())
    counts: dict[str, int] = {}
    for word in words:
        if by == "default":
            counts[word] = counts.setdefault(word, 0) + 1
        else:
            counts[word] = counts[word] + 1 if word in counts else 1
    return max(counts.values())


def near_pairs(points: np.ndarray, *, rows: int) -> int:
    """How many pairs of points are near each other, so many rows of the table of distances at a time."""
    total = 0
    for at in range(0, len(points), rows):
        apart = points[at : at + rows, None, :] - points[None, :, :]
        total += int(((apart * apart).sum(axis=2) < 1).sum())
    return total


def turned(x: np.ndarray, *, block: int) -> np.ndarray:
    """A matrix turned over, block by block."""
    out = np.empty_like(x.T)
    for top, left in itertools.product(range(0, x.shape[0], block), range(0, x.shape[1], block)):
        out[left : left + block, top : top + block] = x[top : top + block, left : left + block].T
    return out


def callables() -> Iterator[tuple[str, Case]]:
    """Eight real callables, each with a default that is none of the best."""
    rng = np.random.default_rng(0)
    yield (
        "numpy.sqrt of 512 MB by chunks",
        Case(root, {"chunk": [1 << 27, 1 << 9, 1 << 15, 1 << 20]}, (rng.random(1 << 27, dtype=np.float32),)),
    )
    yield "sha256 of 64 MB by chunks", Case(digest, {"chunk": [1 << 6, 1 << 12, 1 << 20]}, (rng.bytes(1 << 26),))
    yield "sorting", Case(ordered, {"kind": ["heapsort", "stable", "quicksort"]}, (rng.random(3_000_000),))
    yield (
        "column sums",
        Case(column_sums, {"by": ["column", "row"]}, (rng.integers(0, 99, (12_000, 12_000), dtype=np.int16),)),
    )
    yield "primes", Case(sieved, {"by": ["loop", "slice"]}, (6_000_000,))
    words = [f"w{number}" for number in rng.integers(0, 50_000, 2_000_000)]
    yield "words", Case(counted_words, {"by": ["default", "test", "counter"]}, (words,))
    yield "near pairs", Case(near_pairs, {"rows": [1, 8, 64, 512]}, (rng.random((3_000, 8)) * 3,))
    yield "transposition", Case(turned, {"block": [4096, 16, 64, 256]}, (rng.random((4096, 4096)),))


def sleeps(times_s: Mapping[Any, float], jitter: float = JITTER) -> Callable[..., None]:
    """A callable that sleeps, for a time that depends on its config and on chance."""
    rng = random.Random(1)

    def work(**config: Any) -> None:
        (*values,) = config.values()
        time.sleep(times_s[tuple(values)] * (1 + rng.uniform(-jitter, jitter)))

    return work


def pairs() -> Iterator[tuple[str, Case]]:
    """A default and a faster config."""
    for slow_s, fast_s in PAIRS_S:
        work = sleeps({(8,): slow_s, (512,): fast_s})
        yield f"{slow_s} s beside {fast_s} s", Case(work, {"block": [8, 512]}, options={"device": "cpu"}, checked=False)


def equals() -> Iterator[tuple[str, Case]]:
    """A default and configs that are equal to it."""
    for each_s in EQUAL_S:
        work = sleeps(dict.fromkeys([(8,), (512,)], each_s))
        yield f"{each_s} s twice", Case(work, {"block": [8, 512]}, options={"device": "cpu"}, equal=True)


def many() -> Iterator[tuple[str, Case]]:
    """A space of which a budget has time for a part."""
    space = {"a": [1, 2, 4, 8, 16, 32], "b": [1, 2, 4, 8], "c": [1, 2, 4], "d": [0, 1]}
    corners = list(itertools.product(*space.values()))
    away = {
        corner: sum(abs(values.index(value) - best) for values, value, best in
                    zip(space.values(), corner, (4, 2, 1, 1), strict=True))
        for corner in corners
    }  # fmt: skip
    times_s = {corner: 0.3 + 2.1 * away[corner] / max(away.values()) for corner in corners}
    options = {"device": "cpu", "budget_s": 120.0}
    yield f"{len(corners)} configs of 0.3 to 2.4 s", Case(sleeps(times_s), space, options=options, checked=False)


def kernels() -> Iterator[tuple[str, Case]]:
    """A Triton kernel of so many programs, a pair of configs at a time."""
    from benchmarks.kernels import chain  # needs a GPU

    for slow_ms, times in KERNELS_MS:
        given = chain.arguments(chain.steps_for(1, slow_ms))
        space = {"PROGRAMS": [1, times], "BACKWARDS": [0]} if times > 1 else {"PROGRAMS": [1], "BACKWARDS": [0, 1]}
        name = f"a kernel of {slow_ms:g} ms beside one of {slow_ms / times:g} ms"
        yield name, Case(chain.kernel, space, options={"kwargs": given}, equal=times == 1, checked=False)


PARTS: Mapping[str, Callable[[], Iterator[tuple[str, Case]]]] = {
    "callables": callables, "pairs": pairs, "equals": equals, "many": many, "kernels": kernels,
}  # fmt: skip


def tuned(case: Case) -> TuningResult:
    """One tune from scratch."""
    with tempfile.TemporaryDirectory() as fresh:
        return tune(
            case.target, case.args, space=case.space, cache_dir=fresh, listener=Silent(), **case.options
        )  # fmt: skip


def measured_ms(case: Case) -> dict[str, list[float]]:
    """The times of all configs in a few rounds, each in a new order."""
    rng, times_ms = random.Random(0), dict[str, list[float]]()
    corners = [dict(zip(case.space, corner, strict=True)) for corner in itertools.product(*case.space.values())]
    for _ in range(ROUNDS):
        for config in rng.sample(corners, len(corners)):
            start = time.perf_counter()
            case.target(*case.args, **config)
            times_ms.setdefault(str(config), []).append(1e3 * (time.perf_counter() - start))
    return times_ms


def left_behind(times_ms: Mapping[str, list[float]], winner: str) -> list[str]:
    """The configs that are plainly faster than the winner."""
    own = times_ms[winner]
    return [
        name for name, row in times_ms.items()
        if max(row) < min(own) and statistics.median(row) * BEHIND < statistics.median(own)
    ]  # fmt: skip


def fastest_of(result: TuningResult) -> str:
    """The config whose screening was the fastest, where each is known to take another time."""
    return str(dict(min((trial for trial in result.trials if trial.ok), key=lambda trial: trial.rank).config))


def row(name: str, case: Case) -> dict[str, Any]:
    """What is kept of one tune."""
    start = time.monotonic()
    result = tuned(case)
    took_s, winner, default = time.monotonic() - start, str(result.best_config), result.default
    times_ms = measured_ms(case) if case.checked and not case.equal else {}
    behind = left_behind(times_ms, winner) if times_ms else []
    if not case.checked and not case.equal and winner != fastest_of(result):
        behind = [fastest_of(result)]
    return {
        "name": name, "winner": result.best_config, "default": default and dict(default.config),
        "gain": result.gain, "interval": result.gain_interval, "confidence": result.confidence, "seconds": took_s,
        "trials": len(result.trials), "rounds": result.winner.final.rounds if result.winner.final else 0,
        "default_ms": default and default.best_measurement.median_ms, "winner_ms": result.metrics.latency_ms,
        "times_ms": times_ms, "left_behind": behind,
        "false_winner": case.equal and default is not None and result.best_config != dict(default.config),
    }  # fmt: skip


def main() -> int:
    """Tune, write and print; the exit code is 1 if a config is left behind, or an equal one has won."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[name for name in PARTS if name != "kernels"])
    parser.add_argument("--limit-s", type=float, default=1e9, help="begin with nothing after so many seconds")
    parser.add_argument("--out", type=Path, help="file for all figures")
    parser.add_argument("--commit", help="of the tree that the script stands in, where that is no clone")
    options = parser.parse_args()
    end, rows = time.monotonic() + options.limit_s, []
    command = f"python -m benchmarks.timing.slow_launches --parts {' '.join(options.parts)}"
    for name, case in itertools.chain.from_iterable(PARTS[part]() for part in options.parts):
        if time.monotonic() > end:
            break
        rows.append(last := row(name, case))
        gain = f"{last['gain']:.2f}x" if last["gain"] else "-"
        print(f"{name:44} {last['winner']} {gain} {last['seconds']:.1f} s, {last['rounds']} rounds, "
              f"{last['confidence']}{'; LEFT BEHIND: ' + str(last['left_behind']) if last['left_behind'] else ''}",
              flush=True)  # fmt: skip
        if options.out is not None:
            save(options.out, headed(command, options.commit, rows=rows))
    missed = [each["name"] for each in rows if each["left_behind"] or each["false_winner"]]
    print(f"{len(rows)} tunes, missed: {missed or 'none'}")
    return bool(missed)


if __name__ == "__main__":
    raise SystemExit(main())
