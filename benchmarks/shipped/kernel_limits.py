"""What the shipped kernels must reach, in one table, and whether a file of results reaches it.

    python -m benchmarks.shipped.kernel_limits  # exit 1 if a limit is missed, 2 if one was not measured
    python -m benchmarks.shipped.kernel_limits FILE

A speed is the rival's time divided by the kernel's, from interleaved rounds; `best of` takes the fastest rival at each
problem. `mean` is the geometric mean over the problems. A single problem misses its limit only if its whole 95 %
interval is below, and is `within noise` if only its figure is.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

H200 = Path("benchmarks/results/nvidia-h200/kernels.json")
MET, NOISE, MISSED, UNMEASURED = "met", "within noise", "missed", "not measured"
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Limit:
    """One line of the table.

    Attributes:
        kernel: The operation.
        beside: The rivals, of which the fastest at each problem counts; empty for a share of the copy's bandwidth.
        mean: What the geometric mean over the problems must reach; None for no limit.
        each: What every problem must reach; None for no limit.
        over: Whether `each` must be passed, and not only reached.
        problems: Names of the problems; empty for all.
        where: Which rows count.
    """

    kernel: str
    beside: tuple[str, ...] = ()
    mean: float | None = None
    each: float | None = None
    over: bool = False
    problems: tuple[str, ...] = ()
    where: Callable[[Row], bool] = lambda _row: True

    def __str__(self) -> str:
        what = f"beside {' and '.join(self.beside)}" if self.beside else "share of a copy's bandwidth"
        bounds = [] if self.mean is None else [f"mean >= {self.mean}"]
        bounds += [] if self.each is None else [f"each {'>' if self.over else '>='} {self.each}"]
        at = f" at {', '.join(self.problems)}" if self.problems else ""
        return f"{self.kernel} {what}{at}: {', '.join(bounds)}"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Whether a limit is reached.

    Attributes:
        limit: The limit.
        state: `met`, `within noise`, `missed` or `not measured`.
        found: The figures, in words.
    """

    limit: Limit
    state: str
    found: str


def _not_blocked(row: Row) -> bool:
    """Rows of `fp8_gemm` with scales by tensor or row: torch has no product with scales by block to compare with."""
    return int(row["shape"][3]) != 3


_BACKWARD = ("gated_mlp", "layer_norm", "rmsnorm_rope", "softmax")
LIMITS = (
    Limit(kernel="rmsnorm_rope", each=0.92, problems=("llama-8b-8x4096",)),
    Limit(kernel="rmsnorm_rope", beside=("eager", "compile"), each=1.0, over=True),
    Limit(
        kernel="matmul", beside=("library",), mean=1.0, each=0.95, where=lambda row: bool(row["dtype"] == "bfloat16")
    ),
    Limit(kernel="fp8_gemm", beside=("library",), mean=1.05, where=_not_blocked),
    Limit(kernel="gated_mlp", beside=("eager", "compile"), mean=1.10),
    Limit(kernel="softmax", beside=("compile",), each=1.0),
    Limit(kernel="layer_norm", beside=("compile",), each=1.0),
    Limit(kernel="attention", beside=("library",), mean=0.9),
    Limit(kernel="grouped_matmul", beside=("library",), mean=1.3),
    *(Limit(kernel=f"{name}_backward", beside=("compile",), each=1.0) for name in _BACKWARD),
)


def outcomes(document: Mapping[str, Any], limits: Iterable[Limit] = LIMITS) -> list[Outcome]:
    """How the results stand to the limits, and to that of every kernel: that a winner is never below the default."""
    rows = document["rows"]
    of_default = [
        Limit(kernel=name, beside=("default",), each=1.0)
        for name in sorted({row["kernel"] for row in rows if row["rival"] == "default"})
    ]
    return [_outcome(limit, rows) for limit in (*limits, *of_default)]


def _outcome(limit: Limit, rows: Collection[Row]) -> Outcome:
    if wrong := [
        row["problem"] for row in rows if row["kernel"] == limit.kernel and row["verdict"].startswith("wrong")
    ]:
        return Outcome(limit=limit, state=MISSED, found=f"a wrong result at {', '.join(wrong)}")
    figures = _figures(limit, rows)
    if not figures:
        return Outcome(limit=limit, state=UNMEASURED, found="")
    mean = math.exp(statistics.fmean(math.log(figure) for figure, _ in figures.values()))
    least = min(figures, key=lambda problem: figures[problem][0])
    states = [_state(figure, limit.each, top, over=limit.over) for figure, top in figures.values()]
    states.append(_state(mean, limit.mean, mean))
    worst = next(state for state in (MISSED, NOISE, MET) if state in states)
    text = f"mean {mean:.3f}, least {figures[least][0]:.3f} at {least}, {len(figures)} problems"
    return Outcome(limit=limit, state=worst, found=text)


def _figures(limit: Limit, rows: Collection[Row]) -> dict[str, tuple[float, float]]:
    """For each problem that was measured, its figure, and the upper end of its interval."""
    problems: dict[str, dict[str, Row]] = {}
    for row in rows:
        named = not limit.problems or row["problem"] in limit.problems
        if row["kernel"] == limit.kernel and named and limit.where(row):
            problems.setdefault(row["problem"], {})[row["rival"]] = row
    if not limit.beside:
        shares = {problem: _known(rivals.values(), "share_of_copy") for problem, rivals in problems.items()}
        return {problem: (statistics.median(each),) * 2 for problem, each in shares.items() if each}
    figures = {}
    for problem, rivals in problems.items():
        compared = [rivals[name] for name in limit.beside if name in rivals and rivals[name]["speedup"] is not None]
        if compared and all(name in rivals for name in limit.beside):  # else the fastest rival may be missing
            figures[problem] = min((row["speedup"], row["interval"][1]) for row in compared)
    return figures


def _known(rows: Iterable[Row], name: str) -> list[float]:
    return [row[name] for row in rows if row[name] is not None]


def _state(figure: float, limit: float | None, top: float, *, over: bool = False) -> str:
    if limit is None or figure > limit or (figure == limit and not over):
        return MET
    return NOISE if top > limit or (top == limit and not over) else MISSED


def tell(results: Iterable[Outcome]) -> list[str]:
    """The outcomes as lines."""
    return [f"{each.state:>12}  {each.limit}{'; ' if each.found else ''}{each.found}" for each in results]


def exit_code(results: Collection[Outcome]) -> int:
    """1 if a limit is missed, 2 if none is and one was not measured, else 0."""
    states = {each.state for each in results}
    return 1 if MISSED in states else 2 if UNMEASURED in states else 0


def main(arguments: list[str] | None = None) -> int:
    """Compare a file of results with the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=H200)
    path = parser.parse_args(arguments).file
    if not path.is_file():
        parser.error(f"{path} is not there: `python -m benchmarks.shipped.kernels_gpu` writes it")
    results = outcomes(json.loads(path.read_text(encoding="utf-8")))
    print("\n".join(tell(results)))
    return exit_code(results)


if __name__ == "__main__":
    sys.exit(main())
