"""Verdicts on a GPU: no correct config may be called wrong, and no planted fault right.

    python -m benchmarks.correctness.verdicts --out FILE                 both parts
    python -m benchmarks.correctness.verdicts --part faults --out FILE   one part; the other is kept

faults      nine faults in attention and four in a matrix product, at several tiles each
correct     more than 60 variants of eight kernels in bfloat16, float16, float8 and float32

Ends with exit code 1 if a correct config is wrong, or a fault is right.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from examples.softmax import softmax

import triton_ops_kernels as kernels
from benchmarks.correctness.verdict_kernels import ATTENTION_FAULTS, MATMUL_FAULTS, attention, gelu, product
from benchmarks.document import headed, parser_of, save
from triton_ops import Operation, Status, Trial, TuningFailedError, tune
from triton_ops.device import probe
from triton_ops.space import Config
from triton_ops.tuner import Silent

RAN = (Status.OK, Status.WRONG)
FAULTY_SHAPE = (2, 8, 1024, 128)
ATTENTION_TILES = tuple(
    {"BM": bm, "BN": bn, "num_warps": 4 if bm < 128 else 8, "num_stages": 2}
    for bm, bn in ((32, 16), (64, 32), (64, 64), (128, 64), (128, 128))
)
MATMUL_TILES = tuple(
    {"BM": bm, "BN": bn, "BK": bk, "num_warps": 4 if bm < 128 else 8, "num_stages": 3}
    for bm, bn, bk in ((32, 64, 32), (64, 64, 32), (64, 128, 64), (128, 128, 64))
)
CORRECT: tuple[tuple[Callable[[], Operation], tuple[int, ...], tuple[str, ...], int], ...] = (
    (lambda: kernels.load("matmul"), (1024, 1024, 2048), ("bfloat16", "float16", "float8_e4m3fn"), 8),
    (lambda: kernels.load("rmsnorm_rope"), (), ("bfloat16", "float16"), 4),
    (lambda: softmax, (4096, 4096), ("float32", "bfloat16"), 4),
    (lambda: attention, FAULTY_SHAPE, ("float16",), 6),
    (lambda: product, (1024, 1024, 1000), ("float32", "float16"), 6),
    (lambda: kernels.load("layer_norm"), (4096, 4096), ("bfloat16", "float32"), 4),
    (lambda: gelu, (1 << 22,), ("float32", "bfloat16"), 4),
    (lambda: kernels.load("fp8_quantize"), (4096, 4096, 128), ("bfloat16",), 3),
)


def tuned(operation: Operation, cache: str, **more: Any) -> tuple[list[Trial], Any, float]:
    """The trials of a tune, its result, or None where no config was right, and its seconds."""
    start = time.monotonic()
    try:
        result = tune(operation, cache_dir=cache, listener=Silent(), **more)
        trials = list(result.trials)
    except TuningFailedError as error:
        result = None
        trials = [_as_trial(Config(config), reason) for config, reason in error.failures]
    return trials, result, round(time.monotonic() - start, 1)


def _as_trial(config: Config, reason: str) -> Trial:
    status, _, text = reason.partition(": ")
    return Trial(config, Status(status), error=text)


def ran(trials: Iterable[Trial]) -> list[Trial]:
    """The trials of configs that could be launched."""
    return [trial for trial in trials if trial.status in RAN]


def faults_part(cache: str, device: str) -> dict[str, Any]:
    """Every fault at every tile, on normal inputs, and the same tiles without a fault."""
    rows = []
    for operation, shape, faults, tiles in (
        (attention, FAULTY_SHAPE, ATTENTION_FAULTS, ATTENTION_TILES),
        (product, (1024, 1024, 1000), MATMUL_FAULTS, MATMUL_TILES),
    ):
        arguments = normal(operation.materialise(operation.problem(shape, "bfloat16"), device).keyword)
        rows.append(planted(operation, faults, tiles, arguments, cache))
    return {"kernels": rows, "passed": all(each["passed"] for each in rows)}


def normal(arguments: Any) -> dict[str, Any]:
    """The arguments with normal values in the float tensors."""
    generator: dict[str, torch.Generator] = {}
    changed = {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            place = str(value.device)
            source = generator.setdefault(place, torch.Generator(device=place).manual_seed(0))
            numbers = torch.randn(value.shape, generator=source, device=value.device)
            changed[name] = torch.empty_like(value).copy_(numbers)  # with the strides that the kernel is told of
    return {**arguments, **changed}


def planted(
    operation: Operation, faults: Sequence[str], tiles: Sequence[dict[str, int]], arguments: dict, cache: str
) -> dict[str, Any]:  # fmt: skip
    """One tune over the tiles without fault and with each; the first config, which has none, is the default."""
    configs = [{**tile, "FAULT": fault} for fault in range(len(faults) + 1) for tile in tiles]
    trials, _, seconds = tuned(operation, f"{cache}/{operation.name}", kwargs=arguments, space=configs,
                               effort="exhaustive", search="exhaustive")  # fmt: skip
    rows = []
    for fault, label in enumerate(("none", *faults)):
        mine = ran(trial for trial in trials if trial.config["FAULT"] == fault)
        rows.append({
            "fault": label,
            "tiles": len(mine),
            "wrong": sum(trial.status is Status.WRONG for trial in mine),
            "least_excess": min((trial.excess for trial in mine if trial.excess is not None), default=None),
            "passed_tiles": [dict(trial.config) for trial in mine if trial.ok and fault],
            "example": next((trial.error for trial in mine if trial.error), ""),
        })  # fmt: skip
    good = rows[0]["wrong"] == 0 and rows[0]["tiles"] > 0 and all(row["wrong"] == row["tiles"] for row in rows[1:])
    return {"kernel": operation.name, "rows": rows, "seconds": seconds, "passed": good}


def correct_part(cache: str, device: str) -> dict[str, Any]:
    """Correct variants of each kernel and dtype, by shape, with whole numbers and odd extents where they apply."""
    rows = []
    for make, shape, dtypes, count in CORRECT:
        operation = make()
        for dtype in dtypes:
            extents = shape or operation.full_shape(None)
            space = operation.space_for(operation.problem(extents, dtype))
            spread = [space.default_config, *list(space)[:: max(1, space.size.valid // count)]]
            variants = list(dict.fromkeys(spread))[:count]
            trials, result, seconds = tuned(
                operation, f"{cache}/{operation.name}-{dtype}", shape=extents, dtype=dtype, device=device,
                space=[dict(config) for config in variants], search="exhaustive", isolate=False,
            )  # fmt: skip
            rows.append(judged(operation.name, dtype, trials, result, seconds))
    wrong = sum(len(row["wrong"]) for row in rows)
    return {"rows": rows, "variants": sum(row["ran"] for row in rows), "wrong": wrong, "passed": wrong == 0}


def judged(name: str, dtype: str, trials: Sequence[Trial], result: Any, seconds: float) -> dict[str, Any]:
    """How many variants of a kernel ran, and which were called wrong, though all are right."""
    row = {
        "kernel": name,
        "dtype": dtype,
        "ran": len(ran(trials)),
        "wrong": [{"config": dict(t.config), "error": t.error} for t in trials if t.status is Status.WRONG],
        "others": [f"{t.status}: {t.error}" for t in trials if t.status not in RAN],
        "verified": "" if result is None else result.verified,
        "notes": [] if result is None else list(result.notes),
        "seconds": seconds,
    }
    print(f"{name:14}{dtype:15} {row['ran']} ran, {len(row['wrong'])} wrong, {seconds} s", flush=True)
    return row


PARTS: dict[str, Callable[..., dict[str, Any]]] = {"faults": faults_part, "correct": correct_part}


def show(name: str, part: dict[str, Any]) -> None:
    """What a part found, in a few lines."""
    print(f"{name}: {'passed' if part['passed'] else 'FAILED'}, {part['seconds_of_part']} s")
    for kernel in part.get("kernels", ()):
        for row in kernel["rows"]:
            print(f"  {kernel['kernel']:10} {row['fault']:26} wrong {row['wrong']} of {row['tiles']}, "
                  f"least excess {row['least_excess']}")  # fmt: skip
    for row in [row for row in part.get("rows", ()) if row["wrong"] or row["others"] or row["notes"]]:
        print(f"  {row['kernel']} {row['dtype']}: {row['wrong'][:2]} {row['others'][:2]} {row['notes'][:1]}")


def main() -> int:
    """Run the parts, print what they found, and write JSON; 1 if one did not pass."""
    parser = parser_of(__doc__)
    parser.add_argument("--part", choices=PARTS, nargs="*", default=PARTS)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    kept = json.loads(options.out.read_text(encoding="utf-8")) if options.out and options.out.is_file() else {}
    content: dict[str, Any] = {name: kept[name] for name in PARTS if name in kept}
    with tempfile.TemporaryDirectory() as cache:
        for name in options.part:
            start = time.monotonic()
            content[name] = PARTS[name](cache, options.device)
            content[name]["seconds_of_part"] = round(time.monotonic() - start, 1)
            show(name, content[name])
            if options.out:
                command = f"python -m benchmarks.correctness.verdicts --part {' '.join(options.part)}"
                save(options.out, headed(command, options.commit, device=probe(options.device).name, **content))
    return 0 if all(content[name]["passed"] for name in options.part) else 1


if __name__ == "__main__":
    sys.exit(main())
