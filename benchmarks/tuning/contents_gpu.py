"""What do winners of one draw and of several contents lose on draws that nobody tuned for, and what would four bodies?

    mkdir -p /tmp/engines/site-packages && tar xzf engines.tgz -C /tmp/engines/site-packages   # of `engine_files`
    PYTHONPATH=src:serving:/tmp/engines/site-packages python -m benchmarks.tuning.contents_gpu --out FILE

`grouped_matmul`, and vLLM's kernel of experts by its own launcher, are tuned on one draw, as a tune does without
contents, and over the six contents of `AMOUNTS`, by the mean and by the worst. The finalists of these tunes then run
side by side on draws of the same kinds, first with seeds by which bodies are chosen, then with others. The regret of a
config on a draw is the share by which it is slower than the fastest of them there, by kind, rows of the largest group,
and draw; `over_default` is the largest of its times over the default's.

`four bodies` are the four configs whose best has the least mean regret on the first draws, and the rule that on a
further draw takes the one that was best on the draw whose largest group had the most similar size. Nothing here runs
them: their regret is that of the measured times. `four bodies at best` is that of a rule that never errs.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.document import headed, save
from benchmarks.tuning.serving_gpu import QWEN
from triton_ops import Contents, Operation, TuningResult, tune
from triton_ops.backend import Arguments
from triton_ops.device import probe
from triton_ops.kernels.grouped_matmul import operation
from triton_ops.kernels.grouped_matmul.problems import PROBLEMS
from triton_ops.space import Config
from triton_ops.timing import Launch, Rounds
from triton_ops.timing.gpu_timers import EventTimer
from triton_ops.tuner import Silent
from triton_ops_serving import experts
from triton_ops_serving.kernels import Served
from triton_ops_serving.model import Model

AMOUNTS = (("zipf", 0.0), ("zipf", 0.5), ("zipf", 1.0), ("zipf", 1.5), ("dirichlet", 0.1), ("dirichlet", 1.0))
NAMES = ("qwen3-30b-up-prefill", "deepseek-v3-up-prefill", "qwen3-30b-up-decode", "vllm-moe-1024", "vllm-moe-64")
CHOOSING, HELD_OUT, ROUNDS, BODIES, MOST = (11, 22), (101, 202), 7, 4, 32
Row = tuple[str, int, dict[Config, float]]
"""Kind and largest group of a draw, with the milliseconds of each config there."""


def routed(kind: str, amount: float, arguments: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """A routing of tokens to experts by a law of loads, without repetition, in the forms that vLLM's launcher takes."""
    w1, chosen = arguments["w1"], arguments["chosen"]
    rng = torch.Generator().manual_seed(seed)
    if kind == "zipf":
        loads = (torch.randperm(len(w1), generator=rng).double() + 1).pow(-amount)
    else:
        loads = torch._standard_gamma(torch.full((len(w1),), amount).double(), generator=rng).clamp_min(1e-12)
    noise = torch.rand((len(chosen), len(w1)), generator=rng, dtype=torch.float64).clamp_(1e-12, 1 - 1e-12)
    picks = (loads.log() - (-noise.log()).log()).topk(chosen.shape[1], dim=1).indices.int()
    return {"chosen": picks, "tokens": experts.sorted_tokens(picks, len(w1))}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem, and the contents that its arguments may have, by their kinds."""

    operation: Operation
    shape: Sequence[int]
    dtype: str | None
    contents: Mapping[str, Any]
    sizes: Callable[[Mapping[str, Any]], Any]

    @classmethod
    def named(cls, name: str) -> Case:
        """The case of this name."""
        kinds = [(f"{kind} {amount:g}", kind, amount) for kind, amount in AMOUNTS]
        if not name.startswith("vllm"):
            shape, dtype = PROBLEMS[name]
            contents = {label: {"ends": Contents.draw(kind, amount)} for label, kind, amount in kinds}
            return cls(operation=operation, shape=shape, dtype=dtype, contents=contents, sizes=_rows_of_groups)
        (problem,) = Model(QWEN).problems("vllm")
        routings = {label: partial(routed, kind, amount) for label, kind, amount in kinds}
        own, shape = experts.operation_of(problem, Served()), (int(name.rpartition("-")[2]),)
        return cls(operation=own, shape=shape, dtype=None, contents=routings, sizes=_tokens_of_experts)

    def tuned(self, contents: Contents | None, seconds: float) -> TuningResult:
        """The result of a tune from nothing."""
        with tempfile.TemporaryDirectory() as folder:
            return tune(
                self.operation, shape=self.shape, dtype=self.dtype, contents=contents, budget_s=seconds,
                cache_dir=folder, transfer=False, force=True, listener=Silent(),
            )  # fmt: skip

    def times_on_draws(self, configs: Sequence[Config], seeds: Sequence[int]) -> list[Row]:
        """The draws of each kind with these seeds."""
        own = self.operation.materialise(self.operation.problem(self.shape, self.dtype), "cuda").keyword
        executables = {config: self.operation.kernel.compile(config, Arguments(keyword=own)) for config in configs}
        timer, rng, rows = EventTimer("cuda", cache="flushed"), random.Random(0), []
        for (kind, content), seed in itertools.product(self.contents.items(), seeds):
            ((_, _, values),) = Contents([(1, content)], held_out=0).drawn(own, seed)
            arguments = Arguments(keyword={**own, **values})
            samplers = {
                config: timer.prepare(Launch(each.bind(arguments)).started(), 1) for config, each in executables.items()
            }
            times: dict[Config, list[float]] = {config: [] for config in configs}
            rounds = Rounds(timer=timer)
            for _ in range(ROUNDS):
                for config in rng.sample(list(configs), len(configs)):
                    times[config] += rounds.sample(samplers[config], 1)
            largest = max(1, int(self.sizes(arguments.keyword).max()))
            rows.append((kind, largest, {one: statistics.median(each) for one, each in times.items()}))
        return rows


def _rows_of_groups(arguments: Mapping[str, Any]) -> Any:
    ends = arguments["ends"]
    return ends.diff(prepend=ends[:1] * 0)


def _tokens_of_experts(arguments: Mapping[str, Any]) -> Any:
    return arguments["chosen"].flatten().bincount()


def best_bodies(rows: Sequence[Row], configs: Sequence[Config]) -> list[Config]:
    """The four configs whose best on each draw has the least mean regret, among those that win a draw, and others."""
    shares = {config: [times[config] / min(times.values()) for _, _, times in rows] for config in configs}
    likely = sorted(configs, key=lambda config: (min(shares[config]), statistics.fmean(shares[config])))[:16]
    groups = itertools.combinations(likely, min(BODIES, len(likely)))
    return list(min(groups, key=lambda group: statistics.fmean(map(min, zip(*map(shares.get, group), strict=True)))))


def by_size(rows: Sequence[Row], bodies: Sequence[Config]) -> Callable[[Row], Config]:
    """The rule: the body that was best on the draw of `rows` whose largest group had the most similar size."""

    def rule(row: Row) -> Config:
        _, _, times = min(rows, key=lambda each: abs(math.log(each[1] / row[1])))
        return min(bodies, key=times.__getitem__)

    return rule


def regrets(rows: Sequence[Row], rule: Callable[[Row], Config], default: Config) -> dict[str, Any]:
    """Mean and largest regret of what a rule takes on the draws, and the largest time over the default's."""
    choices = [(row, row[2][rule(row)]) for row in rows]
    shares = [ms / min(times.values()) - 1 for (_, _, times), ms in choices]
    return {
        "mean": statistics.fmean(shares), "worst": max(shares),
        "over_default": max(ms / times[default] for (_, _, times), ms in choices),
        "by_draw": [[kind, each, share] for (kind, each, _), share in zip(rows, shares, strict=True)],
    }  # fmt: skip


def measured(name: str, seconds: float) -> dict[str, Any]:
    """The figures of one problem."""
    case = Case.named(name)
    mean = Contents([(1, each) for each in case.contents.values()])
    plain, over, worst = (
        case.tuned(contents, seconds * (1 if contents is None else 2))
        for contents in (None, mean, replace(mean, worst=True))
    )
    default = over.default.config if over.default is not None else Config(over.best_config)
    tunes = {"one draw": plain, "contents": over, "contents by the worst": worst}
    winners = {"default": default, **{what: Config(each.best_config) for what, each in tunes.items()}}
    finalists = [config for each in (over, worst) for config, _ in each.contents[0].times_ms]
    finalists += [trial.config for trial in plain.trials if trial.ok and trial.final is not None]
    configs = list(dict.fromkeys([*winners.values(), *finalists]))[:MOST]
    choosing, rows = (case.times_on_draws(configs, seeds) for seeds in (CHOOSING, HELD_OUT))
    bodies = best_bodies(choosing, configs)
    rules = {what: partial(_always, config) for what, config in winners.items()}
    rules |= {"four bodies": by_size(choosing, bodies), "four bodies at best": partial(_best, bodies)}
    return {
        "problem": name, "configs": len(configs), "note": list(over.notes),
        "seconds": [each.elapsed_s for each in tunes.values()], "trials": [len(each.trials) for each in tunes.values()],
        "winners": {what: str(config) for what, config in winners.items()}, "bodies": [str(each) for each in bodies],
        "regrets": {what: regrets(rows, rule, default) for what, rule in rules.items()},
    }  # fmt: skip


def _always(config: Config, _row: Row) -> Config:
    return config


def _best(bodies: Sequence[Config], row: Row) -> Config:
    return min(bodies, key=row[2].__getitem__)


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
