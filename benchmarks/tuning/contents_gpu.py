"""What do winners of one draw and of several contents lose on draws that nobody tuned for?

    mkdir -p /tmp/engines/site-packages && tar xzf engines.tgz -C /tmp/engines/site-packages   # of `engine_files`
    PYTHONPATH=src:serving:/tmp/engines/site-packages python -m benchmarks.tuning.contents_gpu --out FILE

`grouped_matmul`, and vLLM's kernel of experts by its own launcher, are tuned on one draw, as a tune does without
contents, and over the six contents of `AMOUNTS`, in three times the seconds. The finalists of both tunes then run side
by side on draws of the six kinds with other seeds. The regret of a config on a draw is the share by which it is slower
than the fastest of them there, by kind, rows of the largest group, and draw; `over_default` is the largest of its times
over the default's.
"""

from __future__ import annotations

import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import torch

from benchmarks.document import headed, parser_of, save
from benchmarks.tuning.serving_gpu import QWEN
from triton_ops import Contents, Operation, TuningResult, tune
from triton_ops.backend import Arguments
from triton_ops.device import probe
from triton_ops.space import Config
from triton_ops.timing import HostTimer, Launch, Rounds, Timer
from triton_ops.timing.gpu_timers import EventTimer
from triton_ops.tuner import Silent
from triton_ops_kernels.grouped_matmul import operation
from triton_ops_kernels.grouped_matmul.problems import PROBLEMS
from triton_ops_serving import experts
from triton_ops_serving.kernels import Served
from triton_ops_serving.model import Model

AMOUNTS = (("zipf", 0.0), ("zipf", 0.5), ("zipf", 1.0), ("zipf", 1.5), ("dirichlet", 0.1), ("dirichlet", 1.0))
NAMES = (
    "qwen3-30b-up-prefill", "deepseek-v3-up-prefill", "qwen3-30b-up-decode", "vllm-moe-4096", "vllm-moe-1024",
    "vllm-moe-64",
)  # fmt: skip
HELD_OUT, ROUNDS, MOST = (1202, 1303, 1404, 1505), 9, 12
# A pair of events resolves 1 us, and medians of nine launches of 50 us differed by 5 % between runs of one draw.
SHORT_MS, SHORT_ROUNDS = 0.2, 45
Row = tuple[str, int, dict[Config, float]]
"""Kind of a draw and rows of its largest group, with the milliseconds of each config there."""


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
    shape: tuple[int, ...]
    dtype: str | None
    contents: Mapping[str, Any]
    sizes: Callable[[Mapping[str, Any]], Any]
    device: str = "cuda"

    @classmethod
    def named(cls, name: str) -> Case:
        """The case of this name."""
        grouped = not name.startswith("vllm")

        def content(kind: str, amount: float) -> Any:
            return {"ends": Contents.draw(kind, amount)} if grouped else partial(routed, kind, amount)

        contents = {f"{kind} {amount:g}": content(kind, amount) for kind, amount in AMOUNTS}
        if grouped:
            shape, dtype = PROBLEMS[name]
            return cls(operation=operation, shape=shape, dtype=dtype, contents=contents, sizes=_rows_of_groups)
        (problem,) = Model(QWEN).problems("vllm")
        own, shape = experts.operation_of(problem, Served()), (int(name.rpartition("-")[2]),)
        return cls(operation=own, shape=shape, dtype=None, contents=contents, sizes=_tokens_of_experts)

    @property
    def all_contents(self) -> Contents:
        """Each of the contents, with equal weights."""
        return Contents([(1, each) for each in self.contents.values()], held_out=0)

    def tuned(self, contents: Contents | None, seconds: float) -> TuningResult:
        """The result of a tune from nothing."""
        with tempfile.TemporaryDirectory() as folder:
            return tune(
                self.operation, shape=self.shape, dtype=self.dtype, contents=contents, budget_s=seconds,
                cache_dir=folder, device=self.device, transfer=False, force=True, listener=Silent(),
            )  # fmt: skip

    def times_on_draws(self, configs: Sequence[Config], until_s: float) -> list[Row]:
        """Draws of each kind: those of the first two seeds, and of others begun before `until_s`."""
        own = self.operation.materialise(self.operation.problem(self.shape, self.dtype), self.device).keyword
        executables = {config: self.operation.kernel.compile(config, Arguments(keyword=own)) for config in configs}
        timer: Timer = HostTimer() if self.device == "cpu" else EventTimer(self.device, cache="flushed")
        rng, rows = random.Random(0), list[Row]()
        for seed, (kind, content) in itertools.product(HELD_OUT, self.contents.items()):
            if time.monotonic() > until_s and seed not in HELD_OUT[:2]:
                break
            ((_, _, values),) = Contents([(1, content)], held_out=0).drawn(own, seed)
            arguments = Arguments(keyword={**own, **values})
            samplers = {
                config: timer.prepare(Launch(each.bind(arguments)).started(), 1) for config, each in executables.items()
            }
            times: dict[Config, list[float]] = {config: [] for config in configs}
            rounds = Rounds(timer=timer)
            first_ms = min(rounds.sample(samplers[configs[0]], 1))
            for _ in range(SHORT_ROUNDS if first_ms < SHORT_MS else ROUNDS):
                for config in rng.sample(list(configs), len(configs)):
                    times[config] += rounds.sample(samplers[config], 1)
            largest = int(self.sizes(arguments.keyword).max())
            rows.append((kind, largest, {one: statistics.median(each) for one, each in times.items()}))
        return rows


def _rows_of_groups(arguments: Mapping[str, Any]) -> Any:
    ends = arguments["ends"]
    return ends.diff(prepend=ends[:1] * 0)


def _tokens_of_experts(arguments: Mapping[str, Any]) -> Any:
    return arguments["chosen"].flatten().bincount()


def regrets(rows: Sequence[Row], config: Config, default: Config) -> dict[str, Any]:
    """Mean and largest regret of a config on the draws, and the largest time over the default's."""
    shares = [times[config] / min(times.values()) - 1 for _, _, times in rows]
    return {
        "mean": statistics.fmean(shares), "worst": max(shares),
        "over_default": max(times[config] / times[default] for _, _, times in rows),
        "by_draw": [[kind, largest, share] for (kind, largest, _), share in zip(rows, shares, strict=True)],
    }  # fmt: skip


def measured(name: str, seconds: float, limit_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was tuned and compared of one problem, and all times."""
    until_s = time.monotonic() + limit_s
    case = Case.named(name)
    plain, over = case.tuned(None, seconds), case.tuned(case.all_contents, 3 * seconds)
    default = over.default.config if over.default is not None else Config(over.best_config)
    tunes = {"one draw": plain, "contents": over}
    winners = {"default": default, **{what: Config(each.best_config) for what, each in tunes.items()}}
    finalists = [min(each.times_ms, key=itemgetter(1))[0] for each in over.contents if each.times_ms]
    for each in (over, plain):  # the fastest on each of the contents come first, then those of each race
        raced = [trial for trial in each.trials if trial.ok and trial.final is not None]
        finalists += [trial.config for trial in sorted(raced, key=lambda trial: trial.best_measurement.median_ms)]
    configs = list(dict.fromkeys([*winners.values(), *finalists]))[:MOST]
    rows = case.times_on_draws(configs, until_s)
    about = {
        "problem": name, "note": list(over.notes), "seconds": [each.elapsed_s for each in tunes.values()],
        "trials": [len(each.trials) for each in tunes.values()],
    }  # fmt: skip
    times = {
        "winners": {what: configs.index(config) for what, config in winners.items()},
        "configs": [dict(each) for each in configs],
        "rows": [(*each[:2], [*each[2].values()]) for each in rows],
    }  # fmt: skip
    return about, times


def judged(times: Mapping[str, Any]) -> dict[str, Any]:
    """The regret of winners, by the times on all draws."""
    configs = [Config(each) for each in times["configs"]]
    rows = [(kind, largest, dict(zip(configs, ms, strict=True))) for kind, largest, ms in times["rows"]]
    winners = {what: configs[at] for what, at in times["winners"].items()}
    return {
        "configs": len(configs), "draws": len(rows),
        "winners": {what: str(config) for what, config in winners.items()},
        "regrets": {what: regrets(rows, config, winners["default"]) for what, config in winners.items()},
    }  # fmt: skip


def main() -> None:
    """Measure, print and save."""
    parser = parser_of(__doc__)
    parser.add_argument("--problems", nargs="*", default=list(NAMES))
    parser.add_argument("--tune-s", type=float, default=12.0)
    parser.add_argument("--limit-s", type=float, default=180.0, help="of a problem; then no further draw begins")
    options = parser.parse_args()
    figures = []
    for name in options.problems:
        about, times = measured(name, options.tune_s, options.limit_s)
        figures.append({**about, **judged(times)})
        for what, each in figures[-1]["regrets"].items():
            most = Contents.SLOWER
            slower = "" if each["over_default"] <= 1 + most else f", MORE THAN {most:.0%} SLOWER THAN THE DEFAULT"
            print(
                f"{name} {what}: mean {each['mean']:.2%}, worst {each['worst']:.2%}, "
                f"at most {each['over_default']:.3f} of the default's time{slower}", flush=True,
            )  # fmt: skip
        print({key: each for key, each in figures[-1].items() if key != "regrets"}, flush=True)
        if options.out:
            command = f"python -m benchmarks.tuning.contents_gpu --tune-s {options.tune_s:g}"
            save(options.out, headed(command, options.commit, device=probe("cuda").name, problems=figures))


if __name__ == "__main__":
    main()
