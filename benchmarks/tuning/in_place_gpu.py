"""Which winners change where kernels run: blocks of five models whose kernels were tuned alone, then in place.

    python -m benchmarks.tuning.in_place_gpu --out benchmarks/results/nvidia-h200/in_place.json

Each step is run once while its kernels tune alone, then `tune_in_place` compares their finalists in it. With `equal`,
100 decisions and a few more are taken about equal configs. `--only` measures a part, and keeps the others that
the result has.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from typing import Any

import torch

import triton_ops
from benchmarks.document import headed, parser_of, save
from benchmarks.tuning.in_place_models import MODELS, equal
from triton_ops.device import probe
from triton_ops.dispatch.decision import forget_decisions
from triton_ops.records import Record, Timing, store_in
from triton_ops.space import Config

EQUAL = "equal"
ROWS, DECISIONS, RIVALS = (512, 8192), 100, 3


def tuned(name: str, seconds: float, budget_s: float) -> dict[str, Any]:
    """The figures of one model."""
    step, start = MODELS[name](), time.monotonic()
    tuning = triton_ops.tuning(effort="quick", budget_s=seconds)
    with triton_ops.on_miss("tune"), tuning, torch.autograd.set_multithreading_enabled(False):
        step()
    torch.cuda.synchronize()
    alone_s = time.monotonic() - start
    result = triton_ops.tune_in_place(step, budget_s=budget_s, name=name)
    kernels = [
        {
            "kernel": one.kernel.rpartition(":")[2], "problem": one.problem, "launches": one.launches,
            "share": one.share, "before": str(one.before), "after": str(one.after), "why": "; ".join(one.whys),
            "gains": {str(config): [gain.centre, gain.low, gain.high] for config, gain in one.gains.items()},
        }
        for one in result.kernels
    ]  # fmt: skip
    gain = None if result.gain is None else [result.gain.centre, result.gain.low, result.gain.high]
    return {
        "model": name, "mode": result.mode, "before_ms": result.before_ms, "gain": gain, "kernels": kernels,
        "seconds": [alone_s, result.elapsed_s],
    }  # fmt: skip


def decisions_about_equals(folder: str, end_s: float) -> dict[str, Any]:
    """The decisions about configs that are all the same, with their gains by microseconds: every change is false."""
    changes, decisions, gains_us, most_s, start = 0, 0, list[float](), 0.0, time.monotonic()
    steps = [equal(rows) for rows in ROWS]
    for seed in range(-(-DECISIONS // RIVALS)):
        step, call = steps[seed % len(steps)]
        configs = [Config({**call.space.default_config, "TAG": tag}) for tag in range(RIVALS + 1)]
        times = {"timing": Timing(0.01, 0.01, 0.01, 1), "default": configs[0], "ties": tuple(configs)}
        record = Record(key=call.key, winner=configs[0], space=call.space.fingerprint, **times)
        store_in(folder).put(record)
        begun = time.monotonic()
        result = triton_ops.tune_in_place(step, seed=seed)
        (one,) = result.kernels
        decisions, changes = decisions + len(one.gains), changes + (one.after != one.before)
        gains_us += [1e3 * result.before_ms * gain.centre for gain in one.gains.values()]
        most_s = max(most_s, (time.monotonic() - begun) / len(one.rivals))
        if time.monotonic() + RIVALS * most_s > end_s:
            break
    return {
        "decisions": decisions, "changes": changes, "most_s": most_s, "gains_us": sorted(gains_us),
        "seconds": time.monotonic() - start,
    }  # fmt: skip


def summary(models: list[dict[str, Any]]) -> dict[str, Any]:
    """How many problems lost what had won alone, and what the steps have gained."""
    kernels = [(each, one) for each in models for one in each["kernels"] if one["gains"]]
    lost = [(each, one) for each, one in kernels if one["after"] != one["before"] and each["gain"]]
    return {
        "problems": len(kernels), "lost": len(lost), "steps_faster": sum(bool(each["gain"]) for each in models),
        "gains": {each["model"]: each["gain"] for each in models},
    }  # fmt: skip


def main() -> None:
    """Measure, print and save."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="*", choices=[*MODELS, EQUAL], default=[*MODELS, EQUAL])
    parser.add_argument("--tune-s", type=float, default=8.0)
    parser.add_argument("--budget-s", type=float, default=35.0)
    parser.add_argument("--limit-s", type=float, default=3600.0, help="seconds, after which no decision is taken")
    options, end_s = parser.parse_args(), time.monotonic()
    end_s += options.limit_s
    before = json.loads(options.out.read_text()) if options.out and options.out.is_file() else {}
    models = {each["model"]: each for each in before.get("models", [])}
    equals = before.get(EQUAL)
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TRITON_OPS_CACHE_DIR"] = folder
            forget_decisions()
            if name == EQUAL:
                equals = decisions_about_equals(folder, end_s)
                print(equals, flush=True)
            else:
                models[name] = tuned(name, options.tune_s, options.budget_s)
                print(json.dumps(models[name], indent=1), flush=True)
        if options.out:
            limits = f"--tune-s {options.tune_s:g} --budget-s {options.budget_s:g}"
            command = f"python -m benchmarks.tuning.in_place_gpu {limits}"
            ordered = [models[each] for each in MODELS if each in models]
            document = headed(command, options.commit, device=probe("cuda").name, models=ordered,
                              summary=summary(ordered), equal=equals)  # fmt: skip
            save(options.out, document)


if __name__ == "__main__":
    main()
