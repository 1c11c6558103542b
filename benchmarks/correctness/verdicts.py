"""Verdicts on a GPU: no correct config may be called wrong, no planted fault right, and tunes must find the winner.

    python -m benchmarks.correctness.verdicts --out FILE                 all parts
    python -m benchmarks.correctness.verdicts --part faults --out FILE   one part; others are kept

attention   the whole space of a bfloat16 attention, [4, 32, 4096, 128] causal, against `scaled_dot_product_attention`:
            how many configs are wrong; then three default tunes, and their winners raced against the exhaustive one
faults      nine faults in attention and four in a matrix product, at several tiles each
correct     more than 60 variants of nine kernels in bfloat16, float16, float8 and float32
closed      configs of five shipped kernels against references that close over their tensors and round between steps,
            at most `--most` of each, 0 for all; then the faults of the part `faults` with such references

Ends with exit code 1 if a correct config is wrong, a fault is right, or a winner is 1 % off.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from examples.softmax import softmax

import triton_ops_kernels as kernels
from benchmarks.correctness.verdict_kernels import (
    ATTENTION_FAULTS,
    CLOSED,
    MATMUL_FAULTS,
    attention,
    attention_with_casts,
    closed_product,
    gelu,
    layer_norm,
    product,
    quantise,
    row_sum,
)
from benchmarks.document import headed, parser_of, save
from triton_ops import Operation, Status, Trial, TuningFailedError, compare, tune
from triton_ops.device import probe
from triton_ops.space import Config
from triton_ops.tuner import Silent

TUNES = 3
MOST = 120  # configs of a kernel against a closed-over reference
NEAR = 0.99  # of the exhaustive winner's speed
RAN = (Status.OK, Status.WRONG)
SHAPE = (4, 32, 4096, 128)
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
    (lambda: layer_norm, (4096, 4096), ("bfloat16", "float32"), 4),
    (lambda: gelu, (1 << 22,), ("float32", "bfloat16"), 4),
    (lambda: row_sum, (8192, 5000), ("float32", "bfloat16"), 3),
    (lambda: quantise, (4096, 4096), ("bfloat16",), 3),
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


def attention_part(cache: str, device: str) -> dict[str, Any]:
    """The whole space, then default tunes, and their winners against the exhaustive one in interleaved rounds."""
    where = {"shape": SHAPE, "dtype": "bfloat16", "device": device}
    trials, whole, seconds = tuned(attention, f"{cache}/whole", effort="exhaustive", search="exhaustive", **where)
    wrong = [trial for trial in trials if trial.status is Status.WRONG]
    best = None if whole is None else whole.best_config
    tunes = []
    for seed in range(TUNES):
        _, result, took_s = tuned(attention, f"{cache}/tune{seed}", seed=seed, **where)
        winner = None if result is None else result.best_config
        tunes.append({"seed": seed, "winner": winner, "seconds": took_s, "share_of_best": share(winner, best, device)})
    return {
        "configs": len(trials),
        "ran": len(ran(trials)),
        "wrong": [{"config": dict(trial.config), "error": trial.error} for trial in wrong],
        "seconds": seconds,
        "verified": "" if whole is None else whole.verified,
        "notes": [] if whole is None else list(whole.notes),
        "winner": best,
        "median_ms": None if whole is None else whole.metrics.latency_ms,
        "tunes": tunes,
        "passed": not wrong and all((each["share_of_best"] or 0) >= NEAR for each in tunes),
    }


def share(winner: dict[str, Any] | None, best: dict[str, Any] | None, device: str) -> float | None:
    """The speed of a winner as a share of the exhaustive winner's, from rounds that visit both; 1 for the same."""
    if winner is None or best is None:
        return None
    if winner == best:
        return 1.0
    arguments = attention.materialise(attention.problem(SHAPE, "bfloat16"), device)
    comparison = compare(
        (attention.kernel, winner), (attention.kernel, best), kwargs=dict(arguments.keyword), device=device, seconds=4
    )
    return comparison.b_ms / comparison.a_ms


def faults_part(cache: str, device: str, closed: bool = False) -> dict[str, Any]:
    """Every fault at every tile, on normal inputs, and the same tiles without a fault.

    The reference is the operation's, or one that closes over the arguments.
    """
    rows = []
    for operation, shape, faults, tiles, close in (
        (attention, FAULTY_SHAPE, ATTENTION_FAULTS, ATTENTION_TILES, attention_with_casts),
        (product, (1024, 1024, 1000), MATMUL_FAULTS, MATMUL_TILES, closed_product),
    ):
        arguments = normal(operation.materialise(operation.problem(shape, "bfloat16"), device).keyword)
        reference = close(arguments) if closed else None
        rows.append(planted(operation, faults, tiles, arguments, cache, reference))
    return {"kernels": rows, "passed": all(each["passed"] for each in rows)}


def closed_part(cache: str, device: str, most: int = MOST) -> dict[str, Any]:
    """Configs of shipped kernels, and faults, against references that close over their tensors."""
    rows = []
    for name, shape, dtype, close in CLOSED:
        operation = kernels.load(name)
        space = operation.space_for(operation.problem(shape, dtype))
        step = max(1, -(-space.size.valid // most)) if most else 1
        configs = list(dict.fromkeys([space.default_config, *list(space)[::step]]))
        arguments = normal(operation.materialise(operation.problem(shape, dtype), device).keyword)
        trials, result, seconds = tuned(
            operation, f"{cache}/closed-{name}-{dtype}", kwargs=arguments, reference=close(arguments),
            space=[dict(config) for config in configs], search="exhaustive",
        )  # fmt: skip
        rows.append({**judged(name, dtype, trials, result, seconds), "configs": len(configs)})
    wrong = sum(len(row["wrong"]) for row in rows)
    faults = faults_part(f"{cache}/closed-faults", device, closed=True)
    return {
        "rows": rows, "variants": sum(row["ran"] for row in rows), "wrong": wrong, "faults": faults,
        "passed": wrong == 0 and all(row["ran"] for row in rows) and faults["passed"],
    }  # fmt: skip


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
    operation: Operation, faults: Sequence[str], tiles: Sequence[dict[str, int]], arguments: dict, cache: str,
    reference: Callable[..., Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """One tune over the tiles without fault and with each; the first config, which has none, is the default."""
    configs = [{**tile, "FAULT": fault} for fault in range(len(faults) + 1) for tile in tiles]
    trials, _, seconds = tuned(operation, f"{cache}/{operation.name}", kwargs=arguments, space=configs,
                               reference=reference, effort="exhaustive", search="exhaustive")  # fmt: skip
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


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "attention": attention_part, "faults": faults_part, "correct": correct_part, "closed": closed_part,
}  # fmt: skip


def show(name: str, part: dict[str, Any]) -> None:
    """What a part found, in a few lines."""
    print(f"{name}: {'passed' if part['passed'] else 'FAILED'}, {part['seconds_of_part']} s")
    if name == "attention":
        print(f"  {part['ran']} of {part['configs']} ran, {len(part['wrong'])} wrong; {part['verified']}")
        print(f"  winner {part['winner']} {part['median_ms']} ms; {part['notes']}")
        for each in part["tunes"]:
            print(f"  tune {each}")
    if name in ("faults", "closed"):
        for kernel in part.get("faults", part)["kernels"]:
            for row in kernel["rows"]:
                print(f"  {kernel['kernel']:10} {row['fault']:26} wrong {row['wrong']} of {row['tiles']}, "
                      f"least excess {row['least_excess']}")  # fmt: skip
    for row in [row for row in part.get("rows", ()) if row["wrong"] or row["others"] or row["notes"]]:
        print(f"  {row['kernel']} {row['dtype']}: {row['wrong'][:2]} {row['others'][:2]} {row['notes'][:1]}")


def main() -> int:
    """Run the parts, print what they found, and write JSON; 1 if one did not pass."""
    parser = parser_of(__doc__)
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--most", type=int, default=MOST, help="configs of a kernel in the part closed; 0 for all")
    options = parser.parse_args()
    parts = list(PARTS) if options.part == "all" else [options.part]
    content: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in parts:
            start = time.monotonic()
            more = {"most": options.most} if name == "closed" else {}
            content[name] = PARTS[name](cache, options.device, **more)
            content[name]["seconds_of_part"] = round(time.monotonic() - start, 1)
            show(name, content[name])
            if options.out:
                write(options.out, options, content)
    return 0 if all(part["passed"] for part in content.values()) else 1


def write(path: Path, options: argparse.Namespace, content: dict[str, Any]) -> None:
    """The document with the parts of this run, and those of earlier runs that it lacks."""
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    others = {name: before[name] for name in PARTS if name in before}
    command = f"python -m benchmarks.correctness.verdicts --part {options.part}"
    device = probe(options.device).name
    save(path, headed(command, options.commit, device=device, **{**others, **content}))


if __name__ == "__main__":
    sys.exit(main())
