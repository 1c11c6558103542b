"""What do winners of one draw and of several contents lose on draws that nobody tuned for?

    python -m benchmarks.tuning.contents_gpu --out benchmarks/results/nvidia-h100-80gb-hbm3/contents.json

`grouped_matmul` is tuned on its one draw, as a tune does without contents, and over `CONTENTS`. The finalists of both
tunes then run side by side on draws of the same kinds with other seeds. The regret of a config on a draw is the share
by which it is slower than the fastest of them there, by kind, rows of the largest group, and draw; `over_default` is
the largest of its times over the default's.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from triton_ops import Contents, TuningResult, tune
from triton_ops.backend import Arguments
from triton_ops.device import probe
from triton_ops.kernels.grouped_matmul import operation
from triton_ops.kernels.grouped_matmul.problems import PROBLEMS
from triton_ops.space import Config
from triton_ops.timing import Launch, Rounds
from triton_ops.timing.gpu_timers import EventTimer
from triton_ops.tuner import Silent

AMOUNTS = (("zipf", 0.0), ("zipf", 0.5), ("zipf", 1.0), ("zipf", 1.5), ("dirichlet", 0.1), ("dirichlet", 1.0))
KINDS = {f"{kind} {amount:g}": Contents.draw(kind, amount) for kind, amount in AMOUNTS}
NAMES = ("qwen3-30b-up-prefill", "deepseek-v3-up-prefill", "qwen3-30b-up-decode")
SEEDS, ROUNDS = (101, 202), 7


def largest(arguments: Mapping[str, Any]) -> int:
    """Rows of the largest group."""
    ends = arguments["ends"]
    return max(1, int(ends.diff(prepend=ends[:1] * 0).max()))


CONTENTS = Contents([(1, {"ends": draw}) for draw in KINDS.values()])


def tuned(name: str, contents: Contents | None, seconds: float, folder: str) -> TuningResult:
    """The result of a tune from nothing."""
    shape, dtype = PROBLEMS[name]
    return tune(
        operation, shape=shape, dtype=dtype, contents=contents, budget_s=seconds, cache_dir=folder, transfer=False,
        force=True, listener=Silent(),
    )  # fmt: skip


def times_on_draws(name: str, configs: Sequence[Config]) -> list[tuple[str, int, dict[Config, float]]]:
    """Kind and largest group of each draw held out, with the milliseconds of each config there."""
    shape, dtype = PROBLEMS[name]
    arguments = operation.materialise(operation.problem(shape, dtype), "cuda")
    executables = {config: operation.kernel.compile(config, arguments) for config in configs}
    timer, rng, rows = EventTimer("cuda", cache="flushed"), random.Random(0), []
    for kind, draw in KINDS.items():
        for seed in SEEDS:
            drawn = Arguments(keyword={**arguments.keyword, "ends": draw(arguments.keyword["ends"], seed)})
            samplers = {
                config: timer.prepare(Launch(each.bind(drawn)).started(), 1) for config, each in executables.items()
            }
            times: dict[Config, list[float]] = {config: [] for config in configs}
            rounds = Rounds(timer=timer)
            for _ in range(ROUNDS):
                for config in rng.sample(list(configs), len(configs)):
                    times[config] += rounds.sample(samplers[config], 1)
            rows.append((kind, largest(drawn.keyword), {one: statistics.median(each) for one, each in times.items()}))
    return rows


def regrets(rows: Sequence[tuple[str, int, dict[Config, float]]], config: Config, default: Config) -> dict[str, Any]:
    """Mean and largest regret of a config on the draws, and the largest time over the default's."""
    shares = [times[config] / min(times.values()) - 1 for _, _, times in rows]
    return {
        "mean": statistics.fmean(shares), "worst": max(shares),
        "over_default": max(times[config] / times[default] for _, _, times in rows),
        "by_draw": [[kind, each, share] for (kind, each, _), share in zip(rows, shares, strict=True)],
    }  # fmt: skip


def measured(name: str, seconds: float) -> dict[str, Any]:
    """The figures of one problem."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as many:
        plain = tuned(name, None, seconds, one)
        over = tuned(name, CONTENTS, 2 * seconds, many)
    default = over.default.config if over.default is not None else Config(over.best_config)
    finalists = [trial.config for trial in plain.trials if trial.ok and trial.final is not None]
    finalists += [config for config, _ in over.contents[0].times_ms]
    rows = times_on_draws(name, list(dict.fromkeys([*finalists, default])))
    winners = {"default": default, "one draw": Config(plain.best_config), "contents": Config(over.best_config)}
    return {
        "problem": name, "configs": len(finalists), "note": list(over.notes),
        "seconds": [plain.elapsed_s, over.elapsed_s], "trials": [len(plain.trials), len(over.trials)],
        "winners": {what: str(config) for what, config in winners.items()},
        "regrets": {what: regrets(rows, config, default) for what, config in winners.items()},
    }  # fmt: skip


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="*", default=list(NAMES))
    parser.add_argument("--tune-s", type=float, default=12.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    options = parser.parse_args()
    figures = []
    for name in options.problems:
        figures.append(measured(name, options.tune_s))
        for what, each in figures[-1]["regrets"].items():
            print(
                f"{name} {what}: mean {each['mean']:.2%}, worst {each['worst']:.2%}, "
                f"at most {each['over_default']:.3f} of the default's time", flush=True,
            )  # fmt: skip
        print(figures[-1]["note"], figures[-1]["seconds"], figures[-1]["winners"], flush=True)
        if options.out:
            command = f"python -m benchmarks.tuning.contents_gpu --tune-s {options.tune_s:g}"
            save(options.out, headed(command, options.commit, device=probe("cuda").name, problems=figures))


if __name__ == "__main__":
    main()
