"""Is the chosen matrix product the best one there is? `python -m benchmarks.choices_gpu --out FILE`.

For each of 30 shapes, M from 1 to 8192, the chooser `matmul` is tuned, the kernel's tiles first. Then what it has
chosen is compared anew, side by side, with every other implementation that took part: it may be slower than the best
single one by 1 % at most, and beside cuBLAS alone the geometric mean is to be 1.03 or more.

A part of the shapes: `--part 2/3`. `--limit-s` begins no shape after so many seconds; shapes that FILE has already are
not measured again, so that a run goes on where one ended. `--summary` measures nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from triton_ops import TensorSpec, chooser, compare
from triton_ops.exceptions import TritonKernelError
from triton_ops.hardware import probe

LAYERS = ((4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096), (8192, 8192))  # N and K of common models
ROWS = (1, 16, 64, 256, 1024, 8192)
SHAPES = [(rows, columns, inner) for rows in ROWS for columns, inner in LAYERS]
DTYPE = "bfloat16"
WORST_PERCENT, LEAST_GAIN = 1.0, 1.03


def measured(shape: tuple[int, int, int], budget_s: float, seconds: float, cache: Path | None) -> dict[str, Any]:
    """Tune one shape, and compare what was chosen with all that took part."""
    rows, columns, inner = shape
    args = (
        TensorSpec((rows, inner), DTYPE).create_tensor("cuda", 1),
        TensorSpec((inner, columns), DTYPE).create_tensor("cuda", 2),
    )
    matmul, begin = chooser("matmul"), time.monotonic()
    found = matmul.tune(args, budget_s=budget_s, cache_dir=cache)
    took_s = time.monotonic() - begin
    chosen = _call(matmul, found.best_config)
    others = {}
    for trial in found.trials:
        name = str(trial.config["implementation"])
        if str(trial.status) != "ok" or name == found.best_config["implementation"]:
            continue
        said = compare(
            chosen, _call(matmul, trial.config), args=args, names=("chosen", name), seconds=seconds, device="cuda"
        )
        others[name] = {
            "slower_percent": -said.percent, "interval": [-said.interval[1], -said.interval[0]],
            "chosen_ms": said.a_ms, "other_ms": said.b_ms, "verdict": str(said.verdict), "confidence": said.confidence,
        }  # fmt: skip
    return {
        "shape": list(shape), "chosen": dict(found.best_config), "tune_s": took_s, "others": others,
        "failed": {str(it.config["implementation"]): it.error for it in found.trials if str(it.status) != "ok"},
        "over_cublas": _ratio(others.get("aten")), "worst_percent": _worst(others),
    }  # fmt: skip


def _call(matmul: Any, config: Any) -> Any:
    return matmul.implementations[str(config["implementation"])].run(dict(config.get("tiles", ())))


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
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    counts: dict[str, int] = {}
    for row in rows:
        if "chosen" in row:
            name = str(row["chosen"]["implementation"])
            counts[name] = counts.get(name, 0) + 1
    failed = [row["shape"] for row in rows if "error" in row]
    return {
        "shapes": len(ratios), "of": len(SHAPES), "over_cublas": mean, "worst_percent": worst, "chosen": counts,
        "failed": failed, "passed": len(ratios) == len(SHAPES) and worst <= WORST_PERCENT and mean >= LEAST_GAIN,
    }  # fmt: skip


def _rows_in(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows


def _part(text: str) -> tuple[int, int]:
    place, _, count = text.partition("/")
    if not (place.isdecimal() and count.isdecimal() and 1 <= int(place) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part; write 2/3")
    return int(place), int(count)


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", type=_part, default=(1, 1))
    parser.add_argument("--limit-s", type=float, default=math.inf)
    parser.add_argument("--budget-s", type=float, default=20.0, help="of the tune of the kernel, and of the choice")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each comparison afterwards")
    parser.add_argument("--cache-dir", type=Path)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--commit")
    asked = parser.parse_args()
    if min(asked.limit_s, asked.budget_s, asked.seconds) <= 0:
        parser.error("--limit-s, --budget-s and --seconds must be above 0")
    begin, rows = time.monotonic(), _rows_in(asked.out)
    done = [tuple(row["shape"]) for row in rows if "error" not in row]
    rows = [row for row in rows if "error" not in row]
    place, count = asked.part
    for shape in [] if asked.summary else [each for each in SHAPES[place - 1 :: count] if each not in done]:
        if time.monotonic() - begin > asked.limit_s:
            print(f"the limit of {asked.limit_s:.0f} s is reached", file=sys.stderr)
            break
        try:
            row = measured(shape, asked.budget_s, asked.seconds, asked.cache_dir)
            told = f"{row['chosen']['implementation']:10s} {row['over_cublas']:.3f} x cuBLAS"
            told += f", at most {row['worst_percent']:.2f} % slower than another, {row['tune_s']:.0f} s"
        except TritonKernelError as error:
            row, told = {"shape": list(shape), "error": str(error)}, str(error)
        rows.append(row)
        print("x".join(map(str, shape)), told, flush=True)
        head = headed("python -m benchmarks.choices_gpu", asked.commit, device=probe("cuda").name)
        save(asked.out, {**head, "summary": summary(rows), "rows": rows})
    print(json.dumps(summary(rows), indent=1))
    sys.exit(0 if summary(rows)["passed"] else 1)


if __name__ == "__main__":
    main()
