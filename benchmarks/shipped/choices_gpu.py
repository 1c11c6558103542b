"""Is the chosen matrix product the best one there is? `python -m benchmarks.shipped.choices_gpu --out FILE`.

For each of 30 shapes, M from 1 to 8192, the chooser `matmul` is tuned, the kernel's tiles first, by a worker that a
tune of a small shape has left. Then what it has chosen is compared anew, side by side, with cuBLAS and with every other
implementation that was near it: it may be slower than the best single one by 1 % at most, and beside cuBLAS alone the
geometric mean is to be 1.03 or more.

The file is written after each shape. `--limit-s` begins no shape after so many seconds; shapes that FILE has of the
same commit are not measured again, so that a run goes on where one ended. A process measures the shapes; if it dies, or
takes longer for a shape than `--shape-s`, that is an error of this shape, and a new one goes on with the next.
`--inline` measures in this process.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.document import begun, headed, parser_of, save
from triton_ops import TensorSpec, chooser, compare
from triton_ops.device import probe

LAYERS = ((4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096), (8192, 8192))  # N and K of common models
ROWS = (1, 16, 64, 256, 1024, 8192)
SHAPES = [(rows, columns, inner) for columns, inner in LAYERS for rows in ROWS]  # a part of it has every M
SMALL = (16, 256, 256)
DTYPE = "bfloat16"
WORST_PERCENT, LEAST_GAIN = 1.0, 1.03
FAR = 1.15  # times what the chosen one took in the tune: what is slower is no rival, and not compared again
LOST = "its process ended, or the shape took longer than its limit"


def measured(shape: Sequence[int], settings: argparse.Namespace) -> dict[str, Any]:
    """Tune one shape, and compare what was chosen with its rivals."""
    rows, columns, inner = shape
    args = (
        TensorSpec((rows, inner), DTYPE).create_tensor(settings.on, 1),
        TensorSpec((inner, columns), DTYPE).create_tensor(settings.on, 2),
    )
    matmul, begin = chooser("matmul"), time.monotonic()
    result = matmul.tune(args, budget_s=settings.budget_s, cache_dir=settings.cache_dir)
    took_s = time.monotonic() - begin
    winner, name = _call(matmul, result.best_config), str(result.best_config["implementation"])
    tuned_ms = {str(it.config["implementation"]): it.median_ms for it in result.trials if str(it.status) == "ok"}
    others = {}
    for trial in result.trials:
        other = str(trial.config["implementation"])
        if other == name or other not in tuned_ms or not _is_rival(other, tuned_ms, tuned_ms.get(name)):
            continue
        comparison = compare(
            winner, _call(matmul, trial.config), args=args, names=("chosen", other), seconds=settings.seconds,
            device=settings.on, check=False,  # the tune has judged both
        )  # fmt: skip
        others[other] = {
            "slower_percent": -comparison.percent, "interval": [-comparison.interval[1], -comparison.interval[0]],
            "chosen_ms": comparison.a_ms, "other_ms": comparison.b_ms, "verdict": str(comparison.verdict),
            "confidence": comparison.confidence,
        }  # fmt: skip
    return {
        "shape": list(shape), "chosen": dict(result.best_config), "tune_s": took_s, "tuned_ms": tuned_ms,
        "others": others, "over_cublas": _ratio(others.get("aten")), "worst_percent": _worst(others),
        "failed": {str(it.config["implementation"]): it.error for it in result.trials if str(it.status) != "ok"},
    }  # fmt: skip


def _call(matmul: Any, config: Any) -> Any:
    return matmul.implementations[str(config["implementation"])].run(dict(config.get("tiles", ())))


def _is_rival(other: str, tuned_ms: dict[str, float], chosen_ms: float | None) -> bool:
    """Whether an implementation is to be compared again: cuBLAS always, others unless they were far slower."""
    return other == "aten" or chosen_ms is None or tuned_ms[other] <= FAR * chosen_ms


def _ratio(aten: dict[str, Any] | None) -> float:
    """The time of cuBLAS over that of what was chosen; 1 where that is cuBLAS."""
    if aten is None:
        return 1.0
    slower = float(aten["slower_percent"])
    return 1 + -slower / 100 if slower < 0 else 1 / (1 + slower / 100)


def _worst(others: dict[str, Any]) -> float:
    """By how many percent what was chosen is slower than the best other; 0 if it is faster than all."""
    return max((max(0.0, float(other["slower_percent"])) for other in others.values()), default=0.0)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What all shapes together say."""
    ratios = [float(row["over_cublas"]) for row in rows if "over_cublas" in row]
    worst = max((float(row["worst_percent"]) for row in rows if "worst_percent" in row), default=0.0)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
    counts: dict[str, int] = {}
    for row in rows:
        if "chosen" in row:
            name = str(row["chosen"]["implementation"])
            counts[name] = counts.get(name, 0) + 1
    failed = [row["shape"] for row in rows if "error" in row]
    enough = mean is not None and mean >= LEAST_GAIN
    return {
        "shapes": len(ratios), "of": len(SHAPES), "over_cublas": mean, "worst_percent": worst, "chosen": counts,
        "failed": failed, "passed": len(ratios) == len(SHAPES) and worst <= WORST_PERCENT and enough,
    }  # fmt: skip


def rows_in(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; none where it is missing."""
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return rows


def kept(settings: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Write the rows, in the order of the shapes."""
    rows = sorted(rows, key=lambda row: SHAPES.index(tuple(row["shape"])))
    head = headed("python -m benchmarks.shipped.choices_gpu", settings.commit, device=settings.device)
    save(settings.out, {**head, "summary": summary(rows), "rows": rows})


def inline(settings: argparse.Namespace, shapes: Sequence[tuple[int, ...]], until_s: float) -> None:
    """Measure shapes in this process, which ends itself where one takes too long; until then its row is an error."""
    if (
        shapes and settings.on != "cpu"
    ):  # the start of a worker and its imports would be taken from the first shape's time
        try:
            measured(SMALL, settings)
        except Exception as error:  # noqa: BLE001 - the shapes' own rows say what fails
            print(f"no worker was started by a small shape: {error}", file=sys.stderr)
    for shape in shapes:
        if time.monotonic() > until_s:
            print(f"the limit of {settings.limit_s:.0f} s is reached", file=sys.stderr)
            break
        rows = [row for row in rows_in(settings.out) if tuple(row["shape"]) != shape]
        kept(settings, [*rows, {"shape": list(shape), "error": LOST}])
        faulthandler.dump_traceback_later(settings.shape_s, exit=True, file=sys.__stderr__)
        try:
            row = measured(shape, settings)
            line = f"{row['chosen']['implementation']:10s} {row['over_cublas']:.3f} x cuBLAS"
            line += f", at most {row['worst_percent']:.2f} % slower than another, {row['tune_s']:.0f} s"
        except Exception as error:  # noqa: BLE001 - it is the row of this shape, and the others go on
            row, line = {"shape": list(shape), "error": f"{type(error).__name__}: {error}"}, f"{error}"
        faulthandler.cancel_dump_traceback_later()
        print("x".join(map(str, shape)), line, flush=True)
        kept(settings, [*rows, row])


def in_processes(settings: argparse.Namespace, shapes: Sequence[tuple[int, ...]], until_s: float) -> None:
    """Measure shapes in a process, and in a further one what is left where it ends too early."""
    remaining = list(shapes)
    while remaining and time.monotonic() < until_s:
        words = ["--inline", "--limit-s", f"{until_s - time.monotonic():.0f}"]
        for name in ("out", "budget_s", "seconds", "shape_s", "cache_dir", "commit", "device", "on"):
            if (value := getattr(settings, name)) is not None:
                words += [f"--{name.replace('_', '-')}", str(value)]
        code = subprocess.run([sys.executable, "-m", "benchmarks.shipped.choices_gpu", *words], check=False).returncode
        if code == 0:
            return
        finished = {tuple(row["shape"]) for row in rows_in(settings.out)}
        before, remaining = remaining, [shape for shape in remaining if shape not in finished]
        print(f"a process ended with {code}; {len(remaining)} shapes are left", file=sys.stderr, flush=True)
        if len(remaining) == len(before):
            return


def options(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What is asked for on the command line."""
    parser = parser_of(__doc__, Path("choices.json"))
    parser.add_argument("--limit-s", type=float, default=86_400.0)
    parser.add_argument("--shape-s", type=float, default=120.0, help="one shape may take so long")
    parser.add_argument("--budget-s", type=float, default=20.0, help="of the tune of the kernel, and of the choice")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each comparison afterwards")
    parser.add_argument("--cache-dir", type=Path)
    parser.add_argument("--inline", action="store_true")
    parser.add_argument("--device", help="the device's name in the file, where it is known")
    parser.add_argument("--on", default="cuda", help="torch's name of the device")
    parsed = parser.parse_args(words)
    if min(parsed.limit_s, parsed.budget_s, parsed.seconds, parsed.shape_s) <= 0:
        parser.error("--limit-s, --shape-s, --budget-s and --seconds must be above 0")
    return parsed


def main() -> int:
    """Measure, print and save."""
    settings = options()
    until_s = time.monotonic() + settings.limit_s
    settings.device = settings.device or probe(settings.on).name
    if not settings.inline:  # what failed in an earlier run is tried again, and once in this one
        rows = begun(settings.out, settings.commit).get("rows", [])
        kept(settings, [row for row in rows if "error" not in row])
    finished = [tuple(row["shape"]) for row in rows_in(settings.out)]
    shapes = [each for each in SHAPES if each not in finished]
    (inline if settings.inline else in_processes)(settings, shapes, until_s)
    figures = summary(rows_in(settings.out))
    if not settings.inline:
        print(json.dumps(figures, indent=1))
    return 0 if settings.inline or figures["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
