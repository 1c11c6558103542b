"""What a tune for the default's bits keeps of the gain of a free one, and whether its winner has these bits.

    python -m benchmarks.correctness.same_bits_winners --out FILE --commit C  # on a GPU; five minutes with 8 cores
    python -m benchmarks.correctness.same_bits_winners --out FILE --resume    # those kernels that the file lacks
    python -m benchmarks.correctness.same_bits_winners --without-gpu --kernels softmax  # classes, and their seconds

Each kernel of `same_bits_tuned` is tuned freely and with `same_bits_as="default"`, by the same configs, from no record.
Both winners then run beside the default on 1,000 inputs that are drawn anew, of which a third have outliers and a third
numbers of all sizes: `equal_bits` are those on which all bits are equal. Afterwards all configs run interleaved, with
L2 cold, and those ahead once more: gains are times of the default over others', `own_best` is the fastest of the
default's class, and `of_own_best` the speed of the class's winner over that one's. `chosen` is the class of the free
winner. `kept` is the share of the mean gain of free winners that others have, in logarithms, by kind of kernel.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.correctness.same_bits_cases import drawn
from benchmarks.correctness.same_bits_tuned import TUNED, Tuned
from benchmarks.document import begun, headed, parser_of, save
from triton_ops import tune
from triton_ops.backend import Arguments, CandidateError, Executable
from triton_ops.exceptions import TritonKernelError
from triton_ops.space import Config
from triton_ops.timing import Arm, EventTimer, Launch, Rounds, Timer
from triton_ops.tuner import Silent

ROUNDS, LAST_ROUNDS, AHEAD = 6, 24, 4
NEAR = 0.97  # the speed of the fastest config of the class that its winner is to have
Fact = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Tune the kernels that are named, and save after each."""
    parser = parser_of(__doc__, Path("same_bits_winners.json"))
    parser.add_argument("--kernels", nargs="*", default=[*TUNED], choices=[*TUNED], help="which kernels")
    parser.add_argument("--inputs", type=int, default=1000, help="inputs on which bits are compared")
    parser.add_argument("--budget-s", type=float, default=4.0, help="seconds of each tune")
    parser.add_argument("--limit-s", type=float, default=280.0, help="begin no kernel after so many seconds")
    parser.add_argument("--jobs", type=int, default=min(8, len(os.sched_getaffinity(0))), help="processes that compile")
    parser.add_argument("--target", default="sm_90", help="the GPU's architecture")
    parser.add_argument("--resume", action="store_true", help="leave out kernels that the file holds of this commit")
    parser.add_argument("--without-gpu", action="store_true", help="classes alone")
    options = parser.parse_args(argv)
    rows: dict[str, Fact] = begun(options.out, options.commit).get("kernels", {}) if options.resume else {}
    start = time.monotonic()
    for name, facts in compiled([name for name in options.kernels if name not in rows], options.jobs, options.target):
        if time.monotonic() - start > options.limit_s:
            break
        rows[name] = classes_of(TUNED[name], facts)
        if not options.without_gpu:
            rows[name] |= measured(TUNED[name], facts, options.budget_s, options.inputs)
        print(f"{time.monotonic() - start:.0f} s: {name} {shown(rows[name])}", flush=True)
        gpu = None if options.without_gpu else torch.cuda.get_device_name()
        command = "python -m benchmarks.correctness.same_bits_winners"
        save(options.out, headed(command, options.commit, gpu=gpu, summary=summary_of(rows), kernels=rows))
    return 0


def compiled(names: Sequence[str], jobs: int, target: str) -> Iterator[tuple[str, list[Fact]]]:
    """Each kernel with what is known of its configs, once all of them are compiled into the disk cache."""
    asked = [(name, at, target) for name in names for at in range(len(TUNED[name].configs))]
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    try:
        facts = pool.map(compile_one, asked)
        for name in names:
            yield name, [next(facts) for _ in TUNED[name].configs]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def compile_one(job: tuple[str, int, str]) -> Fact:
    """The class of one config, and the seconds that compiling it and telling its class take."""
    name, at, target = job
    compiler, config = TUNED[name].compiler(target), TUNED[name].configs[at]
    start = time.perf_counter()
    found = compiler.compile(config)
    compile_s = time.perf_counter() - start
    if not found.launchable:
        return {"refused": found.reason[-200:]}
    start = time.perf_counter()
    bit_class = compiler.bit_class(config)
    return {
        "compile_s": round(compile_s, 3), "class_s": round(time.perf_counter() - start, 4),
        "class": bit_class.key or f"alone {at}", "silent": bit_class.silent,
    }  # fmt: skip


def classes_of(case: Tuned, facts: Sequence[Fact]) -> Fact:
    """How configs fall into classes, and how long that took."""
    able = [fact for fact in facts if "class" in fact]
    seconds = {part: [fact[part] for fact in able] or [0.0] for part in ("compile_s", "class_s")}
    sizes = Counter(fact["class"] for fact in able)
    return {
        "kind": case.kind, "shape": case.shape, "space": len(case.every), "configs": len(facts),
        "refused": len(facts) - len(able), "classes": sorted(sizes.values(), reverse=True),
        "own_class": sizes[facts[0].get("class")], "silent": sorted({fact["silent"] for fact in able} - {""}),
        **{f"{part}_median": round(statistics.median(each), 4) for part, each in seconds.items()},
        **{f"{part}_worst": round(max(each), 4) for part, each in seconds.items()},
    }  # fmt: skip


def measured(case: Tuned, facts: Sequence[Fact], budget_s: float, inputs: int) -> Fact:
    """Both tunes, and their winners beside the default; or the error that ended this."""
    classes = {one: fact["class"] for one, fact in zip(case.configs, facts, strict=True) if "class" in fact}
    try:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            free, same = (tuned(case, bits, budget_s, at) for bits, at in ((None, one), ("default", other)))
        winners = {name: Config(one["config"]) for name, one in (("free", free), ("same", same))}
        arguments = case.operation.materialise(case.problem, "cuda")
        found = compared(case, classes, winners, arguments, inputs, EventTimer(cache="cold"))
    except (TritonKernelError, CandidateError, torch.cuda.OutOfMemoryError) as error:
        return {"error": f"{type(error).__name__}: {error}"[-400:]}
    return {"tunes": {"free": free, "same": same}, **found}


def tuned(case: Tuned, bits: str | None, budget_s: float, folder: str) -> Fact:
    """One tune of all configs, whose record goes into an empty folder."""
    start = time.monotonic()
    result = tune(
        case.operation, space=case.space, shape=case.shape, dtype=case.dtype, budget_s=budget_s, effort="quick",
        cache_dir=folder, same_bits_as=bits, listener=Silent(),
    )  # fmt: skip
    return {
        "config": dict(result.best_config), "seconds": round(time.monotonic() - start, 2), "class": result.bits,
        "tried": sum(trial.ok for trial in result.trials), "notes": list(result.notes),
    }  # fmt: skip


def compared(
    case: Tuned, classes: Mapping[Config, str], winners: Mapping[str, Config], arguments: Arguments, inputs: int,
    timer: Timer,
) -> Fact:  # fmt: skip
    """The bits of both winners beside the default's, and times of all configs that have a class."""
    run, default = {one: case.operation.kernel.compile(one, arguments) for one in classes}, case.configs[0]
    equal = {name: equal_bits(run[default], run[one], arguments, inputs) for name, one in winners.items()}
    rough_ms = times_ms(run, arguments, timer, ROUNDS)
    fast = sorted(rough_ms, key=lambda one: rough_ms[one])
    own, chosen = ([one for one in fast if classes[one] == classes[of]] for of in (default, winners["free"]))
    ahead = {default, *winners.values(), *fast[:AHEAD], *own[:AHEAD], *chosen[:AHEAD]}
    ms = times_ms({one: run[one] for one in ahead}, arguments, timer, LAST_ROUNDS)
    best = {name: min(ahead.intersection(of), key=lambda one: ms[one])
            for name, of in (("own_best", own), ("chosen", chosen), ("best", fast))}  # fmt: skip
    return {
        "inputs": inputs, "equal_bits": equal["same"], "free_equal_bits": equal["free"], "chosen_class": len(chosen),
        "default_ms": ms[default], "of_own_best": ms[best["own_best"]] / ms[winners["same"]],
        "best": {name: dict(one) for name, one in best.items()},
        "gains": {name: ms[default] / ms[one] for name, one in {**winners, **best}.items()},
    }  # fmt: skip


def equal_bits(one: Executable, other: Executable, arguments: Arguments, count: int) -> int:
    """On how many new inputs two configs write the same bits."""
    written = [arguments.keyword[name] for name in one.outputs]
    launches, equal = [each.bind(arguments) for each in (one, other)], []
    for _ in drawn_anew(arguments, one.outputs, count):
        pairs = zip(*(bits_of(launch, written) for launch in launches), strict=True)
        equal.append(torch.stack([(a == b).all() for a, b in pairs]).all())
    return int(torch.stack(equal).sum())


def drawn_anew(arguments: Arguments, outputs: Sequence[str], count: int) -> Iterator[int]:
    """Seeds, with each of which the inputs of floating point are others, and always the same on one kind of device."""
    given = [
        value for name, value in arguments.keyword.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point() and name not in outputs
    ]  # fmt: skip
    for seed in range(count):
        for nth, value in enumerate(given):
            value.copy_(drawn(seed + 5000 * nth, str(value.device), *value.shape, dtype=torch.float32))
        yield seed


def bits_of(launch: Callable[[], Any], written: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The bytes that a launch writes."""
    for each in written:
        each.zero_()
    launch()
    return [each.flatten().clone().view(torch.uint8) for each in written]


def times_ms(
    run: Mapping[Config, Executable], arguments: Arguments, timer: Timer, rounds: int
) -> dict[Config, float]:  # fmt: skip
    """The median time of each config, from interleaved rounds."""
    arms = {config: Arm(timer.prepare(Launch(each.bind(arguments))), 2) for config, each in run.items()}
    Rounds(timer=timer).run([*arms.values()], rounds)
    return {config: statistics.median(arm.values_ms) for config, arm in arms.items() if arm.values_ms}


def summary_of(rows: Mapping[str, Fact]) -> Fact:
    """What all kernels say together, and each kind."""
    ran = [row for row in rows.values() if "gains" in row]
    kinds = {kind: [row["gains"] for row in ran if row["kind"] == kind] for kind in {row["kind"]: 0 for row in ran}}
    return {
        "kernels": len(rows), "configs": sum(row["configs"] for row in rows.values()), "measured": len(ran),
        "class_s_median": statistics.median(row["class_s_median"] for row in rows.values()),
        "class_s_worst": max(row["class_s_worst"] for row in rows.values()),
        "equal_in_every_bit": sum(row["equal_bits"] == row["inputs"] for row in ran),
        "free_equal_in_every_bit": sum(row["free_equal_bits"] == row["inputs"] for row in ran),
        "near_own_best": sum(row["of_own_best"] >= NEAR for row in ran),
        "kinds": {kind: kept(gains) for kind, gains in kinds.items()},
    }  # fmt: skip


def kept(gains: Sequence[Mapping[str, float]]) -> Fact:
    """The mean gains of kernels of a kind, and the share of the free one that the classes keep."""
    mean = {name: statistics.geometric_mean(each[name] for each in gains) for name in gains[0]}
    free = math.log(mean["free"])
    shares = {name: math.log(mean[name]) / free for name in ("same", "own_best", "chosen")} if free > 0 else {}
    return {"kernels": len(gains), "gains": mean, "kept": shares}


def shown(row: Fact) -> str:
    """A line of a kernel."""
    line = f"{row['configs']} configs, classes {row['classes'][:6]}, {row['silent'] or ''}"
    if "error" in row:
        return f"{line}; {row['error']}"
    if "gains" in row:
        gains = ", ".join(f"{name} {gain:.3f}" for name, gain in row["gains"].items())
        line += f"; {row['equal_bits']} and {row['free_equal_bits']} of {row['inputs']}; {gains}"
    return line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
