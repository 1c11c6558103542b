"""How often tuning picks a config within 1 % of the best, how repeatably, and for how much GPU time.

    python -m benchmarks.timing.measurement_quality --out benchmarks/results/nvidia-h200/measurement_quality.json

Everything is compiled first, so that only selection is graded. Whole selections are repeated in fresh processes with
the runner's own search and race; an oracle races whatever any of them liked for at least 200 rounds over at least
three more processes; `triton.testing.do_bench` (25 + 100 ms) goes over the same configs. Each stage is kept in the
state file, so that a later call with the other `--stages` can go on.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import triton
from tests.simulated_device import wilson

from benchmarks.document import commit_here, headed, parser_of, save
from benchmarks.timing.unverified import GPU, searched, timer_on, unverified
from benchmarks.tuning.spaces import SPACES, compile_all, loaded
from triton_ops import ConfigSpace
from triton_ops.device import probe
from triton_ops.evaluation import FinalRequest
from triton_ops.evaluation.evaluator import Evaluator
from triton_ops.evaluation.finals import compare_finalists
from triton_ops.request import Effort
from triton_ops.space import Config
from triton_ops.timing import Arm, Rounds, Standing, guard_for
from triton_ops.values import Measurement

EFFORT = Effort.named("exhaustive")
ORACLE_ROUNDS = 140  # in each of three processes
STAGES = ("compile", "select", "oracle", "baseline")


class Ground:
    """One space, loaded, ready for many selections."""

    def __init__(self, space: str) -> None:
        self.space_name = space
        self.operation, self.arguments, self.executables, self.default = loaded(space)
        self.space = ConfigSpace.from_configs(self.executables, default=self.default)
        self.spec = probe("cuda")

    def evaluator(self) -> Evaluator:
        """An evaluator that compiles nothing."""
        return unverified(self.operation.kernel, self.arguments, EFFORT, timer_on(self.spec), self.executables)

    def select(self, seed: int) -> dict[str, Any]:
        """One whole selection, as `tune` does it but for compiling, verifying and writing."""
        start = time.monotonic()
        evaluator, guard = self.evaluator(), guard_for(GPU)
        trials = searched(evaluator, self.space, self.default, seed, EFFORT)
        final = FinalRequest(trials=trials, default=self.default, seed=seed)
        outcome = compare_finalists(evaluator, final, EFFORT, guard.round_ok)
        ranked = sorted((t for t in outcome.trials if t.ok), key=lambda t: (t.final is None, t.median_ms))
        return {
            "space": self.space_name,
            "seed": seed,
            "winner": outcome.winner.config.text,
            "ties": [config.text for config in outcome.ties],
            "top": [t.config.text for t in ranked[:3]],
            "itself_differs": abs(outcome.itself.centre) > max(0.005, outcome.itself.margin),
            "seconds": time.monotonic() - start,
            "regimes": str(guard.summary().regimes),
        }

    def oracle(self, configs: list[Config], seed: int) -> dict[str, list[float]]:
        """Block medians of the configs, side by side, in this process."""
        evaluator, arms = self.evaluator(), {}
        samplers = {config: evaluator.sampler(config) for config in configs}
        for config, sampler in samplers.items():
            first = sampler.take(evaluator.shared_timer.timer, 3)
            arms[config.text] = Arm(sampler, EFFORT.race.samples(statistics.median(first) * sampler.launches))
        rounds = Rounds(timer=evaluator.shared_timer.timer, rng=random.Random(seed))
        rounds.run(list(arms.values()), ORACLE_ROUNDS)
        return {text: arm.values_ms for text, arm in arms.items()}


def baseline(space: str) -> dict[str, Any]:
    """`do_bench` over every config, one pass: its seconds and its pick."""
    _, arguments, executables, _ = loaded(space)
    calls = {config: executable.bind(arguments) for config, executable in executables.items()}
    for call in calls.values():
        call()
    torch.cuda.synchronize()
    order = random.Random(0).sample(list(calls), len(calls))
    start = time.monotonic()
    bench_ms = {config: triton.testing.do_bench(calls[config], warmup=25, rep=100) for config in order}
    return {"do_bench_s": time.monotonic() - start, "do_bench_pick": min(order, key=bench_ms.__getitem__).text}


def graded(selections: list[dict[str, Any]], oracle: dict[str, list[float]], theirs: dict[str, Any]) -> dict[str, Any]:
    """All figures of one space."""
    verdict = Standing(rows_ms=oracle, preference={text: (text,) for text in oracle}).decision
    best = oracle[verdict.fastest]
    regret = {text: math.expm1(statistics.median(Measurement.contrasts(oracle[text], best))) for text in oracle}
    count, regrets = len(selections), sorted(regret[s["winner"]] for s in selections)
    good, seconds = sum(r <= 0.01 for r in regrets), statistics.median(s["seconds"] for s in selections)
    return {
        "repeats": count,
        "within_1pct": good,
        "wilson_low": wilson(good, count).low,
        "regret_mean": statistics.mean(regrets),
        "regret_p95": regrets[math.ceil(0.95 * count) - 1],
        "outside_tie_set": sum(s["winner"] not in verdict.ties for s in selections) / count,
        "aa_false_positive": sum(s["itself_differs"] for s in selections) / count,
        "seconds_median": seconds,
        "do_bench_s": theirs["do_bench_s"],
        "do_bench_regret": regret.get(theirs["do_bench_pick"]),  # None: not among the top candidates
        "share_of_do_bench": seconds / theirs["do_bench_s"],
    }


def in_a_process(part: str, spaces: list[str], *words: Any) -> Any:
    """What this script prints last for a part, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.timing.measurement_quality", "--part", part, *map(str, words)]
    process = subprocess.run([*command, "--spaces", *spaces], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(process.stdout.splitlines()[-1])


def of_part(options: argparse.Namespace) -> dict[str, Any]:
    """What a fresh process does, by space."""
    answers: dict[str, Any] = {}
    for space in options.spaces:
        if options.part == "select":
            ground = Ground(space)
            answers[space] = [ground.select(options.seed * 1000 + repeat) for repeat in range(options.repeats)]
            del ground
        elif options.part == "oracle":
            texts = liked(json.loads(options.state.read_text())["selections"], space)
            configs = [Config.from_json(json.loads(text)) for text in texts]
            answers[space] = Ground(space).oracle(configs, options.seed)
        else:
            answers[space] = baseline(space)
        torch.cuda.empty_cache()
    return answers


def liked(selections: list[dict[str, Any]], space: str) -> list[str]:
    """The top candidates: every winner and tie, and what was most often among the three fastest of a selection.

    Much slower configs would change what is measured: beside them a GPU at its power limit runs at another clock.
    """
    mine = [s for s in selections if s["space"] == space]
    likes = Counter(text for s in mine for text in [s["winner"], *s["ties"], *s["top"][:3]])
    return [text for text, _ in likes.most_common(10)]


def grade(options: argparse.Namespace) -> None:
    """The stages, each kept in the state file so that a later call can go on."""
    state = json.loads(options.state.read_text()) if options.state.exists() else {"selections": [], "commits": {}}
    spaces, commit = options.spaces, options.commit or commit_here()
    for stage in options.stages:
        start = time.monotonic()
        if stage == "compile":
            for space in spaces:
                compile_all(space)
        elif stage == "select":
            for seed in range(len(state["selections"]), len(state["selections"]) + options.processes):
                rows = in_a_process(stage, spaces, "--repeats", options.repeats, "--seed", seed)
                state["selections"] += [row for space in spaces for row in rows[space]]
            state["commits"] |= dict.fromkeys(spaces, commit)
        elif stage == "oracle":
            parts = [in_a_process(stage, spaces, "--state", options.state, "--seed", seed) for seed in range(3)]
            state["oracle"] = {s: {t: [ms for p in parts for ms in p[s][t]] for t in parts[0][s]} for s in spaces}
        else:
            state["baseline"] = in_a_process(stage, spaces)
            state["baseline_measured"] = {"date": headed("", commit)["date"], "commit": commit}
        options.state.write_text(json.dumps(state))
        print(stage, f"{time.monotonic() - start:.1f} s", flush=True)
    if "oracle" in state and "baseline" in state:
        write(options, state)


def write(options: argparse.Namespace, state: dict[str, Any]) -> None:
    """Grade what the state holds, and write the result."""
    grades = {
        space: graded(
            [s for s in state["selections"] if s["space"] == space], state["oracle"][space], state["baseline"][space]
        )
        for space in options.spaces
    }
    good, count = (sum(g[key] for g in grades.values()) for key in ("within_1pct", "repeats"))
    spec = probe("cuda")
    document = headed(
        "python -m benchmarks.timing.measurement_quality", options.commit,
        device={"name": spec.name, "arch": spec.arch, "driver": spec.driver},
        commits=state["commits"],  # of the selections, by space: states of several runs can be put together
        pooled={"within_1pct": good, "of": count, "wilson_low": wilson(good, count).low},
        spaces=grades, do_bench_measured=state["baseline_measured"], selections=state["selections"],
    )  # fmt: skip
    if options.out:
        save(options.out, document)
    print(json.dumps(grades, indent=1))


def main() -> None:
    """Compile, select, race the oracle, grade."""
    parser = parser_of(__doc__)
    parser.add_argument("--spaces", nargs="*", default=list(SPACES))
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=9, help="selections per process and space")
    parser.add_argument("--stages", nargs="*", choices=STAGES, default=STAGES, help="none: grade what the state holds")
    parser.add_argument("--state", type=Path, default=Path("/tmp/measurement_quality.json"))
    parser.add_argument("--part", choices=STAGES[1:], help="used by the script itself")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(of_part(options)))
    else:
        grade(options)


if __name__ == "__main__":
    main()
