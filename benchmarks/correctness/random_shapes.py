"""Every shipped kernel on random shapes, configs and inputs, judged by the rule for verdicts.

    python -m benchmarks.correctness.random_shapes  # small shapes, in Triton's interpreter; minutes
    python -m benchmarks.correctness.random_shapes --device cuda --processes 12
    python -m benchmarks.correctness.random_shapes --kernels softmax --shapes 50 --seed 7

A shape is drawn with a config of the operation's space, the default in one case of four, and with inputs: uniform, or,
in one case of three, zeros, denormals, large values, or a few NaN or infinities among uniform ones. The result must be
right by the rule, and have the same bits at a second launch. Attention, whose error grows with its scores, and
gradients that may be a difference of equal numbers, as those of attention and of the layer norm, are right by the rule
or within what rounding can do (`by_bound` says how many were). What the device cannot run, such as too much shared
memory, runs with the default config. The exit code is 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import triton_ops_kernels as kernels
from benchmarks.correctness.random_cases import INTERPRETED, ON_A_GPU, Case, cases
from benchmarks.correctness.rounding_bounds import (
    attention_excess,
    attention_gradient_excess,
    layer_norm_gradient_excess,
)
from benchmarks.document import commit_here, headed, save
from triton_ops.backend import Arguments, CandidateError, Operation, Protection
from triton_ops.benchmark import check_result
from triton_ops.device import probe
from triton_ops.exceptions import TritonKernelError, WrongResultError
from triton_ops.space import Config
from triton_ops.values import TensorSpec
from triton_ops_kernels.attention.problems import attention_reference

LARGE = {"float16": 16.0}
"""How many times as large inputs are, by dtype; 1,024 times for others."""
TWO_PRODUCTS = {("gated_mlp", "float16"): 2.0}
"""The same, where two products are multiplied, and all would overflow but what is left where terms cancel out."""
SCORED = {(kernel, name) for kernel in ("attention", "attention_backward") for name in ("q", "k")}
"""Inputs that are at most 16 times as large: weights are exp(score - logarithm), whose error grows with the score."""
MEETING = {("layer_norm", "weight"), ("layer_norm_backward", "weight"), ("layer_norm_backward", "grad")}
"""Inputs that hold NaN where others hold infinities: those would meet zeros, or other infinities in a sum over the row,
where rounding and the order of the sum decide between infinity and NaN."""
BOUNDS = {
    "attention": attention_excess,
    "attention_backward": attention_gradient_excess,
    "layer_norm_backward": layer_norm_gradient_excess,
}
"""Of some kernels, the largest error of results divided by what rounding can do, from arguments and results."""


def wrong(case: Case, device: str, by_bound: list[Case] | None = None) -> str | None:
    """How the result of a case is wrong, or why it does not run; None if it is right at both launches.

    Args:
        case: The case.
        device: `cpu` or `cuda`.
        by_bound: Takes the case if it is right by the bound of rounding alone.
    """
    operation = kernels.load(case.kernel)
    problem = operation.problem(case.shape, case.dtype)
    values = dict(operation.materialise(problem, device, case.seed).keyword)
    spoil(values, problem.specs, case)
    config = Config(case.config)
    try:
        try:
            first = _right(operation, config, values, case, by_bound)
        except CandidateError:
            config = operation.space_for(problem).default_config
            first = _right(operation, config, values, case, by_bound)
        again = launched(operation, config, values)
    except (WrongResultError, CandidateError, TritonKernelError) as error:
        return CandidateError.one_line(error)
    same = all(bits(one).equal(bits(other)) for one, other in zip(first, again, strict=True))
    return None if same else "a second launch gives other bits"


def _right(
    operation: Operation, config: Config, values: Mapping[str, Any], case: Case, by_bound: list[Case] | None
) -> list[Any]:
    """The outputs of one launch, which are right by the rule, or within what rounding can do.

    Raises:
        WrongResultError: They are neither.
    """
    try:
        return check_result(operation, config, values)
    except WrongResultError:
        result = launched(operation, config, values)
        if operation.name not in BOUNDS or BOUNDS[operation.name](values, result) > 1:
            raise
    if by_bound is not None:
        by_bound.append(case)
    return result


def launched(operation: Operation, config: Config, values: Mapping[str, Any]) -> list[Any]:
    """The outputs of one launch on copies of the arguments."""
    copy = Protection.private_copy(Arguments(keyword=values))
    executable = operation.kernel.compile(config, copy)
    executable.launch(copy)
    return [copy.keyword[name] for name in executable.outputs]


def bits(tensor: Any) -> Any:
    """The memory of a tensor as whole numbers, of which NaN is one."""
    wide = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(wide[tensor.element_size()])


def spoil(values: dict[str, Any], specs: Mapping[str, TensorSpec], case: Case) -> None:
    """Put the case's extreme values into the inputs of 16 bits and more, in place."""
    for name, spec in specs.items():
        tensor = values[name]
        if spec.fill != "uniform" or not tensor.dtype.is_floating_point or tensor.element_size() == 1:
            continue
        if case.fill == "zeros":
            tensor.zero_()
        elif case.fill == "denormal":
            tensor.mul_(8 * torch.finfo(tensor.dtype).smallest_normal)
        elif case.fill == "large":
            most = TWO_PRODUCTS.get((case.kernel, case.dtype), 16.0 if (case.kernel, name) in SCORED else math.inf)
            tensor.mul_(min(LARGE.get(case.dtype, 1024.0), most))
        elif case.fill in ("nan", "infinity"):
            rng = random.Random(f"{name} {case.seed}")
            undefined = case.fill == "nan" or (case.kernel, name) in MEETING
            special = float("nan") if undefined else rng.choice((1, -1)) * float("inf")
            part = spoilt(case.kernel, name, values)
            for _ in range(rng.randint(0, 2)):
                part[tuple(map(rng.randrange, part.shape))] = special
    if case.kernel == "attention_backward":  # the result and its logarithms are those of the inputs
        values["out"], values["lse"] = attention_reference(**values)


def spoilt(kernel: str, name: str, values: Mapping[str, Any]) -> Any:
    """The part of an input where NaN and infinities have a defined effect.

    That is all of it but for attention with a mask, where 0 times infinity makes NaN or nothing, as tiles go. There it
    is the values of keys that all queries see, which see any, and for the gradient these keys and the last query.
    """
    tensor = values[name]
    if not values.get("CAUSAL", False):
        return tensor
    if name == "v" or (name == "k" and kernel == "attention_backward"):
        return tensor[:, :, : max(1, values["k"].shape[2] - values["q"].shape[2] + 1)]
    return tensor[:, :, -1:] if kernel == "attention_backward" else tensor


@dataclass(kw_only=True)
class Part:
    """What became of a part of a kernel's cases."""

    ran: int = 0
    by_bound: list[Case] = field(default_factory=list)
    wrong: list[dict[str, Any]] = field(default_factory=list)
    fills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def judged(name: str, part: int, options: Mapping[str, Any]) -> Part:
    """Judge a part of a kernel's cases."""
    sizes = INTERPRETED if options["device"] == "cpu" else ON_A_GPU
    warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of NaN and infinity in the interpreter
    start, tally = time.monotonic(), Part()
    for place, case in enumerate(cases(name, options["shapes"], options["seed"], sizes)):
        if place % options["parts"] != part:
            continue
        if options["limit_s"] and time.monotonic() - start > options["limit_s"]:
            break
        tally.ran += 1
        tally.fills[case.fill] += 1
        try:
            how = wrong(case, options["device"], tally.by_bound)
        except RuntimeError as error:  # torch's own, such as a fault of a launch that it tells of where it waits
            how = CandidateError.one_line(error)
        if how is not None:
            tally.wrong.append({**asdict(case), "how": how})
            print(f"wrong: {case}: {how}", flush=True)
    tally.seconds = time.monotonic() - start
    return tally


def main(arguments: list[str] | None = None) -> int:
    """Run the cases, write one JSON file, and return 1 if a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", nargs="*", default=[], choices=kernels.names(), metavar="NAME")
    parser.add_argument("--shapes", type=int, default=1000, help="random cases of each kernel")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--limit-s", type=float, default=0.0, help="seconds for each process and kernel; 0 for no limit"
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    options = parser.parse_args(arguments)
    if options.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported, here and in the other processes
    settings = {**vars(options), "parts": options.processes}
    out = options.out or Path("benchmarks/results") / _folder(options.device) / "random_shapes.json"
    commit = options.commit or commit_here()
    table: dict[str, Any] = json.loads(out.read_text())["kernels"] if out.is_file() else {}
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        waiting = {
            pool.submit(judged, name, part, settings): name
            for name in options.kernels or kernels.names()
            for part in range(options.processes)
        }
        parts: dict[str, list[Part]] = {}
        for future in as_completed(waiting):
            name = waiting[future]
            parts.setdefault(name, []).append(future.result())
            if len(parts[name]) < options.processes:
                continue
            table[name] = {**_row(name, parts[name], options.seed), "commit": commit}
            print(f"{name}: {table[name]['cases']} cases, {table[name]['wrong']} wrong", flush=True)
            about = {"device": options.device, "kernels": dict(sorted(table.items()))}
            save(out, headed("python -m benchmarks.correctness.random_shapes", commit, **about))
    return int(any(table[name]["wrong"] for name in parts))


def _row(name: str, parts: Sequence[Part], seed: int) -> dict[str, Any]:
    """The figures of a kernel, from those of the parts of its cases."""
    bad = [case for part in parts for case in part.wrong]
    fills = sum((part.fills for part in parts), Counter[str]())
    bounded: dict[str, Any] = {}
    if name in BOUNDS:
        kinds = Counter(f"{case.dtype}, {case.fill}" for part in parts for case in part.by_bound)
        bounded = {"by_bound": kinds.total(), "by_bound_of": dict(sorted(kinds.items()))}
    return {
        "cases": sum(part.ran for part in parts), "wrong": len(bad), **bounded, "fills": dict(sorted(fills.items())),
        "seconds": max(part.seconds for part in parts), "seed": seed, "examples": bad[:10],
    }  # fmt: skip


def _folder(device: str) -> str:
    if device == "cpu":
        return "cpu"
    return probe("cuda").name.lower().replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main())
