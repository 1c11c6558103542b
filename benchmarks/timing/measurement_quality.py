"""How often tuning picks a config within 1 % of the best, how repeatably, and for how much GPU time.

    python -m benchmarks.timing.measurement_quality --out benchmarks/results/nvidia-h200/measurement_quality.json

Everything is compiled first, so that only selection is graded. Whole selections are repeated in fresh processes with
the runner's own search and race; an oracle races whatever any of them liked for at least 200 rounds over at least
three more processes; `triton.testing.do_bench` (25 + 100 ms) goes over the same configs.
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

import torch
import triton
from tests.simulated_device import wilson

from benchmarks.document import commit_here, headed, save
from benchmarks.timing.unverified import GPU, searched, timer_on, unverified
from benchmarks.tuning.spaces import SPACES, compile_all, loaded
from triton_ops import ConfigSpace
from triton_ops.base import Host
from triton_ops.device import probe
from triton_ops.evaluation import FinalRequest
from triton_ops.evaluation.evaluator import Evaluator
from triton_ops.evaluation.finals import compare_finalists
from triton_ops.request import Effort
from triton_ops.space import Config
from triton_ops.timing import Arm, Rounds, Standing, guard_for
from triton_ops.values import Measurement, Status

EFFORT = Effort.named("exhaustive")
ORACLE_ROUNDS = 140  # in each of three processes


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

    def select(self, seed: int) -> dict:
        """One whole selection, as `tune` does it but for compiling, verifying and writing."""
        start = time.monotonic()
        evaluator, guard = self.evaluator(), guard_for(GPU)
        trials = searched(evaluator, self.space, self.default, seed, EFFORT)
        searched_s = time.monotonic() - start
        final = FinalRequest(trials=trials, default=self.default, seed=seed)
        outcome = compare_finalists(evaluator, final, EFFORT, guard.round_ok)
        ranked = sorted((t for t in outcome.trials if t.ok), key=lambda t: (t.final is None, t.median_ms))
        finalists = [t for t in outcome.trials if t.final is not None]
        return {
            "space": self.space_name,
            "seed": seed,
            "winner": outcome.winner.config.text,
            "ties": [config.text for config in outcome.ties],
            "top": [t.config.text for t in ranked[:16]],
            "noise": outcome.noise,
            "itself": [outcome.itself.low, outcome.itself.centre, outcome.itself.high],
            "itself_differs": abs(outcome.itself.centre) > max(0.005, outcome.itself.margin),
            "gain": outcome.gain and [outcome.gain.low, outcome.gain.centre, outcome.gain.high],
            "mode": evaluator.shared_timer.timer.mode,
            "finalists": len(finalists),
            "rounds": max(t.final.rounds for t in finalists),
            "searched_s": searched_s,
            "seconds": time.monotonic() - start,
            "guard": str(guard.summary().regimes),
            "failed": sum(t.status is not Status.OK for t in outcome.trials),
        }

    def oracle(self, configs: list[Config], seed: int) -> dict:
        """Block medians of the configs, side by side, in this process."""
        evaluator = self.evaluator()
        samplers = {config: evaluator.sampler(config) for config in configs}
        arms = {}
        for config, sampler in samplers.items():
            first = sampler.take(evaluator.shared_timer.timer, 3)
            arms[config.text] = Arm(sampler, EFFORT.race.samples(statistics.median(first) * sampler.launches))
        rounds = Rounds(timer=evaluator.shared_timer.timer, rng=random.Random(seed))
        rounds.run(list(arms.values()), ORACLE_ROUNDS)
        return {"mode": evaluator.shared_timer.timer.mode, "rows": {text: arm.values_ms for text, arm in arms.items()}}


def baseline(space: str) -> dict:
    """`do_bench` over every config, one pass: its seconds and its pick."""
    _, arguments, executables, _ = loaded(space)
    calls = {config: executable.bind(arguments) for config, executable in executables.items()}
    for call in calls.values():
        call()
    torch.cuda.synchronize()
    order = random.Random(0).sample(list(calls), len(calls))
    start = time.monotonic()
    bench_ms = {config: triton.testing.do_bench(calls[config], warmup=25, rep=100) for config in order}
    do_bench_s = time.monotonic() - start
    return {
        "space": space,
        "do_bench_s": do_bench_s,
        "do_bench_pick": min(order, key=bench_ms.__getitem__).text,
    }


def graded(selections: list[dict], oracle: dict) -> dict:
    """All figures of one space but those of other ways to choose."""
    texts = list(oracle)
    verdict = Standing(rows_ms=oracle, preference={text: (text,) for text in texts}).decision
    best = oracle[verdict.fastest]
    ties = set(verdict.ties)
    regret = {text: math.expm1(statistics.median(Measurement.contrasts(oracle[text], best))) for text in texts}
    regrets = sorted(regret[s["winner"]] for s in selections)
    good = sum(r <= 0.01 for r in regrets)
    counts = Counter(s["winner"] for s in selections)
    differ = sum(s["itself_differs"] for s in selections)
    seconds = statistics.median(s["seconds"] for s in selections)
    return {
        "repeats": len(selections),
        "within_1pct": good,
        "wilson_low": wilson(good, len(regrets)).low,
        "regret_mean": statistics.mean(regrets),
        "regret_p95": regrets[math.ceil(0.95 * len(regrets)) - 1],
        "flip_rate": 1 - sum((n / len(selections)) ** 2 for n in counts.values()),
        "outside_tie_set": sum(s["winner"] not in ties for s in selections) / len(selections),
        "oracle_tie_set": len(ties),
        "aa_false_positive": differ / len(selections),
        "seconds_median": seconds,
        "regret": regret,
        "finalists": statistics.median(s["finalists"] for s in selections),
        "rounds": statistics.median(s["rounds"] for s in selections),
        "mode": selections[0]["mode"],
        "best_ms": statistics.median(best),
        "winners": dict(counts.most_common(5)),
    }


def child(*arguments: str) -> dict:
    """Run this script in a fresh process and read the JSON it prints last."""
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.timing.measurement_quality", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        sys.stderr.write(process.stderr[-4000:])
        raise SystemExit(process.returncode)
    return json.loads(process.stdout.splitlines()[-1])


def work_as_child(options) -> dict:
    """What a fresh process does."""
    if options.part == "select":
        answers = []
        for space in options.spaces:
            ground = Ground(space)
            answers += [ground.select(options.seed * 1000 + repeat) for repeat in range(options.repeats)]
            del ground
            torch.cuda.empty_cache()
        return {"selections": answers}
    if options.part == "oracle":
        work = json.loads(Path(options.configs).read_text())
        rows = {}
        for space in options.spaces:
            configs = [Config.from_json(json.loads(text)) for text in work[space]]
            rows[space] = Ground(space).oracle(configs, options.seed)
            torch.cuda.empty_cache()
        return rows
    return {space: baseline(space) for space in options.spaces}


def main() -> None:
    """Compile, select, race the oracle, grade."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/nvidia-h200/measurement_quality.json"))
    parser.add_argument("--commit")
    parser.add_argument("--spaces", nargs="*", default=list(SPACES))
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=9, help="selections per process and space")
    parser.add_argument("--part", choices=["select", "oracle", "baseline"])
    parser.add_argument("--stages", default="compile,select,oracle,baseline")
    parser.add_argument("--state", type=Path, default=Path("/tmp/measurement_quality.json"))
    parser.add_argument("--configs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(work_as_child(options)))
        return
    grade(options)


def grade(options) -> None:
    """The stages, each kept in the state file so that a later call can go on."""
    state = json.loads(options.state.read_text()) if options.state.exists() else {"selections": []}
    common = ["--spaces", *options.spaces]
    stages = [stage for stage in options.stages.split(",") if stage]  # none: grade what the state holds
    for stage in stages:
        start = time.monotonic()
        if stage == "compile":
            state["compile_s"] = {space: compile_all(space) for space in options.spaces}
            spec = probe("cuda")
            state["device"] = {"name": spec.name, "arch": spec.arch, "driver": spec.driver}
            state["versions"] = Host.versions()
        elif stage == "select":
            count = len(state["selections"])
            for process in range(options.processes):
                rows = child(
                    *common, "--part", "select", "--repeats", str(options.repeats), "--seed", str(count + process)
                )
                state["selections"] += rows["selections"]
            commits = dict.fromkeys(options.spaces, options.commit or commit_here())
            state["commits"] = {**state.get("commits", {}), **commits}
        elif stage == "oracle":
            configs = {space: _liked(state, space) for space in options.spaces}
            path = options.state.with_suffix(".configs.json")
            path.write_text(json.dumps(configs))
            parts = [child(*common, "--part", "oracle", "--configs", str(path), "--seed", str(n)) for n in range(3)]
            state["oracle"] = {s: {t: [v for p in parts for v in p[s]["rows"][t]] for t in configs[s]} for s in configs}
        else:
            measured = {"date": headed("", None)["date"], "commit": options.commit or commit_here()}
            state |= {"baseline": child(*common, "--part", stage), "baseline_measured": measured}
        options.state.write_text(json.dumps(state))
        print(stage, f"{time.monotonic() - start:.1f} s", flush=True)
    if "oracle" in state and "baseline" in state:
        write(options, state)


def _liked(state: dict, space: str) -> list[str]:
    """The top candidates: every winner and tie, and what was most often among the three fastest of a selection.

    Much slower configs would change what is measured: beside them a GPU at its power limit runs at another clock.
    """
    mine = [s for s in state["selections"] if s["space"] == space]
    likes = Counter(text for s in mine for text in [s["winner"], *s["ties"], *s["top"][:3]])
    return [text for text, _ in likes.most_common(10)]


def write(options, state: dict) -> None:
    """Grade what the state holds, and write the result."""
    by_space = {s: [x for x in state["selections"] if x["space"] == s] for s in options.spaces}
    grades = {s: graded(by_space[s], state["oracle"][s]) for s in options.spaces}
    for space, grade_of_space in grades.items():
        theirs, regret = state["baseline"][space], grade_of_space.pop("regret")
        grade_of_space["do_bench_s"] = theirs["do_bench_s"]
        grade_of_space["do_bench_regret"] = regret.get(theirs["do_bench_pick"])  # None: not among the top candidates
        grade_of_space["share_of_do_bench"] = grade_of_space["seconds_median"] / grade_of_space["do_bench_s"]
    good = sum(g["within_1pct"] for g in grades.values())
    count = sum(g["repeats"] for g in grades.values())
    document = {
        **headed("python -m benchmarks.timing.measurement_quality", options.commit),
        "versions": state["versions"],
        "device": state["device"],
        "commits": state.get("commits"),  # of the selections, by space: states of several runs can be put together
        "pooled": {"within_1pct": good, "of": count, "wilson_low": wilson(good, count).low},
        "spaces": grades,
        "do_bench_measured": state["baseline_measured"],
        "compile_s": state.get("compile_s"),
        "selections": state["selections"],
    }
    save(options.out, document)
    print(json.dumps({k: v for k, v in document.items() if k not in ("selections", "versions")}, indent=1))


if __name__ == "__main__":
    main()
