"""Autotuned kernels of public packages, with Triton's tuner and under `triton_ops.install()`, each in a fresh process.

    pip install --no-deps fla-core liger-kernel einops
    python -m benchmarks.tuning.third_party --limit-s 540 --out benchmarks/results/nvidia-h200/third_party.json

Each case is a forward and a backward pass of an operator. Both processes start with empty disk caches, draw the same
inputs, and take turns: in each case both make their first call, which tunes, one after the other; then both are timed
in alternate rounds. What `TRITON_PRINT_AUTOTUNING` prints tells the seconds that each kernel's tunes took, compiling
included. The outputs and gradients of both are compared. The file is written after each case, and cases that it holds
of the same commit are not measured again. A process that dies, or that takes longer for a case than `--case-s`, is an
error of that case, and a new one goes on with the next. FLA's own cache of configs is off, which is its default.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner

import triton_ops
from benchmarks.document import begun, headed, parser_of, save
from triton_ops_torch import parse_printed

B, T, H, D = 2, 2048, 8, 128
REPETITIONS, WARM = 20, 3


def tensor(*shape: int) -> Any:
    """A parameter drawn from the normal distribution."""
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def gate(*shape: int) -> Any:
    """Logarithms of gates, as gated attention takes them."""
    return torch.nn.functional.logsigmoid(tensor(*shape).float()).to(torch.bfloat16).detach().requires_grad_()


def beta(*shape: int) -> Any:
    """Factors between 0 and 1."""
    return tensor(*shape).detach().sigmoid().requires_grad_()


def heads() -> tuple[Any, Any, Any]:
    """Queries, normalised keys, and values."""
    k = torch.nn.functional.normalize(tensor(B, T, H, D).detach().float(), dim=-1).to(torch.bfloat16)
    return tensor(B, T, H, D), k.requires_grad_(), tensor(B, T, H, D)


# Name to module, function, and arguments. All are differentiated.
CASES: dict[str, tuple[str, str, Callable[[], tuple[Any, ...]]]] = {
    "l2norm": ("fla.modules.l2norm", "l2norm", lambda: (tensor(B, T, H * D),)),
    "rms_norm": ("fla.modules.layernorm", "rms_norm", lambda: (tensor(B * T, H * D), tensor(H * D), None)),
    "layer_norm": ("fla.modules.layernorm", "layer_norm", lambda: (tensor(B * T, H * D), tensor(H * D), tensor(H * D))),
    "swiglu": ("fla.modules.activations", "swiglu", lambda: (tensor(B, T, H * D), tensor(B, T, H * D))),
    "liger_dyt": (
        "liger_kernel.transformers.functional", "liger_dyt",
        lambda: (tensor(B * T, H * D), tensor(1), tensor(H * D), tensor(H * D)),
    ),
    "logsigmoid": ("fla.modules.activations", "logsigmoid", lambda: (tensor(B, T, H * D),)),
    "chunk_gla": ("fla.ops.gla", "chunk_gla", lambda: (*heads(), gate(B, T, H, D))),
    "chunk_retention": ("fla.ops.retention", "chunk_retention", heads),
    "chunk_delta_rule": ("fla.ops.delta_rule", "chunk_delta_rule", lambda: (*heads(), beta(B, T, H))),
    "chunk_gated_delta_rule": (
        "fla.ops.gated_delta_rule", "chunk_gated_delta_rule", lambda: (*heads(), gate(B, T, H), beta(B, T, H)),
    ),
    "chunk_simple_gla": ("fla.ops.simple_gla", "chunk_simple_gla", lambda: (*heads(), gate(B, T, H))),
}  # fmt: skip


def runner_of(name: str) -> Callable[[], list[Any]]:
    """A call of a case, with the inputs that every process draws alike: forward and backward."""
    torch.manual_seed(sum(map(ord, name)))
    module, function, make = CASES[name]
    call = getattr(importlib.import_module(module), function)
    arguments = make()
    leaves = [value for value in arguments if isinstance(value, torch.Tensor)]

    def run() -> list[Any]:
        for leaf in leaves:
            leaf.grad = None
        result = call(*arguments)
        out = result[0] if isinstance(result, tuple) else result
        out.float().sum().backward()
        return [out, *(leaf.grad for leaf in leaves)]

    return run


def first_call(run: Callable[[], list[Any]]) -> dict[str, Any]:
    """The seconds of the first call, and its results."""
    start = time.perf_counter()
    results = [None if value is None else value.detach().cpu() for value in run()]
    torch.cuda.synchronize()
    return {"first_s": time.perf_counter() - start, "results": results}


def milliseconds(run: Callable[[], Any]) -> float:
    """The median of one call on the GPU's own clock."""
    for _ in range(WARM):
        run()
    times = []
    for _ in range(REPETITIONS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def child(mode: str, folder: Path) -> None:
    """Answer what is asked on stdin with the operators above, with one tuner."""
    with triton_ops.install() if mode == "ours" else contextlib.nullcontext():
        answer(runner_of, folder)


def answer(runner: Callable[[str], Callable[[], list[Any]]], folder: Path) -> None:
    """Answer what is asked on stdin, one line after the other; `runner` gives what a name means."""
    run: Callable[[], Any] | None = None
    for number, line in enumerate(sys.stdin):
        word, name = line.split()
        try:
            if word == "first":
                run = runner(name)
                result = first_call(run)
            else:
                result = {"ms": milliseconds(run)}
        except Exception as error:  # noqa: BLE001 - a package that does not run here is told, and left out
            result = {"error": f"{type(error).__name__}: {error}"[:400]}
        rows = [{"kernel": row.kernel, "rung": row.rung, "why": row.why, "launches": row.launches,
                 "problem": row.problem, "config": dict(row.config)} for row in triton_ops.launches()]  # fmt: skip
        (folder / "unfinished").write_bytes(pickle.dumps({**result, "rows": rows, "tuned": tuned_kernels()}))
        (folder / "unfinished").replace(folder / f"{number}.pickle")


def tuned_kernels() -> list[str]:
    """The names of the kernels of several configs that a tuner has chosen for."""
    kernels = [each for each in gc.get_objects() if issubclass(type(each), Autotuner)]  # a proxy's own type, too
    tuned = [each for each in kernels if len(each.configs) > 1 and each.cache]
    return sorted({f"{each.base_fn.__module__}:{each.base_fn.__name__}" for each in tuned})


TOLERANCE = 0.02  # of the largest value: other tiles add up in another order, in bfloat16
NO_SLOWER = 1.02  # of Triton's time: rounds of one process differ by about as much
MODES = ("triton", "ours")
ROUNDS, POLL_S = 5, 0.02


class Contender:
    """The process of one tuner, with disk caches of its own; one that has ended is begun again when it is asked.

    Args:
        words: Its command, which is given a folder for its answers.
        folder: For its caches, its answers and what it prints.
    """

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        self.words, self.folder = words, folder
        self.process: subprocess.Popen[str] | None = None
        self.asked, self.starts, self.wall_s = 0, 0, 0.0
        self.rows: list[list[dict[str, Any]]] = []  # of each process so far
        self.tuned: set[str] = set()

    def ask(self, word: str, name: str, seconds: float) -> dict[str, Any]:
        """What the process answers; an error if it ends, or if it does not answer within so many seconds."""
        start = time.perf_counter()
        process = self.process or self._begun()
        target = self.folder / f"{self.starts}" / f"{self.asked}.pickle"
        with contextlib.suppress(BrokenPipeError):  # it has ended, as is found below
            print(word, name, file=process.stdin, flush=True)
        while not target.exists() and process.poll() is None and time.perf_counter() - start < seconds:
            time.sleep(POLL_S)
        self.asked += 1
        self.wall_s += time.perf_counter() - start
        if target.exists():
            answer = pickle.loads(target.read_bytes())
            self.rows[-1] = answer["rows"]
            self.tuned.update(answer["tuned"])
        else:
            code = process.poll()
            why = f"no answer within {seconds:.0f} s" if code is None else f"its process ended with {code}"
            answer = {"error": why}
        if "error" in answer:
            self.close()  # what a failed launch leaves behind would fail the next case
        return answer

    def told(self) -> str:
        """What it has printed so far."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in logs)

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def _begun(self) -> subprocess.Popen[str]:
        self.starts, self.asked = self.starts + 1, 0
        self.rows.append([])
        answers = self.folder / f"{self.starts}"
        answers.mkdir(parents=True)
        environment = {**os.environ, "TRITON_CACHE_DIR": f"{self.folder}/triton", "TRITON_PRINT_AUTOTUNING": "1",
                       "TRITON_OPS_CACHE_DIR": f"{self.folder}/ops", "PYTHONUNBUFFERED": "1"}  # fmt: skip
        with (self.folder / f"{self.starts}.log").open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen([*self.words, str(answers)], env=environment, stdin=subprocess.PIPE,
                                            stdout=log, text=True)  # fmt: skip
        return self.process


def tuned_seconds(printed: str) -> dict[str, dict[str, float]]:
    """By kernel: the seconds of its tunes, how many there were, and how many configs they tried in all."""
    seconds: dict[str, dict[str, float]] = {}
    for tune in parse_printed(printed):
        if tune.seconds is not None:
            row = seconds.setdefault(tune.kernel, {"seconds": 0.0, "tunes": 0, "configs": 0})
            row["seconds"] += tune.seconds
            row["tunes"] += 1
            row["configs"] += len(tune.tried)
    return seconds


def side_by_side(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """By kernel that both have tuned: the seconds of both, and the configs of each tune."""
    return {
        kernel: {
            "triton_s": round(one["seconds"], 3), "ours_s": round(other["seconds"], 3),
            "tunes": {"triton": one["tunes"], "ours": other["tunes"]},
            "configs": round(one["configs"] / one["tunes"], 1), "faster": other["seconds"] < one["seconds"],
        }
        for kernel, one in sorted(theirs.items()) if (other := ours.get(kernel)) is not None
    }  # fmt: skip


def apart(one: list[Any], other: list[Any]) -> float:
    """The largest difference of results, relative to the largest value of each."""
    pairs = [(a.float(), b.float()) for a, b in zip(one, other, strict=True) if a is not None]
    return max(float((a - b).abs().max() / a.abs().max().clamp_min(1e-6)) for a, b in pairs)


def compared(name: str, contenders: Mapping[str, Contender], left_s: Callable[[], float]) -> dict[str, Any]:
    """One case with both tuners: seconds to tune, milliseconds afterwards, and how far the results are apart."""
    first = {mode: each.ask("first", name, left_s()) for mode, each in contenders.items()}
    if errors := {mode: answer["error"] for mode, answer in first.items() if "error" in answer}:
        return {"errors": errors}
    difference = apart(first["triton"]["results"], first["ours"]["results"])
    row: dict[str, Any] = {
        "first_s": {mode: answer["first_s"] for mode, answer in first.items()},
        "apart": difference, "equal": difference <= TOLERANCE,
    }  # fmt: skip
    rounds: dict[str, list[float]] = {mode: [] for mode in contenders}
    for turn in range(ROUNDS):
        for mode in MODES[:: 1 if turn % 2 == 0 else -1]:
            answer = contenders[mode].ask("time", name, left_s())
            if "error" in answer:
                return {**row, "errors": {mode: answer["error"]}}
            rounds[mode].append(answer["ms"])
    ratio = statistics.median(ours / theirs for theirs, ours in zip(*rounds.values(), strict=True))
    return {**row, "ms": rounds, "ratio": ratio, "no_slower": ratio <= NO_SLOWER}


def facts_of(contenders: Mapping[str, Contender], cases: dict[str, Any]) -> dict[str, Any]:
    """What was measured, in a form that merges with that of other runs."""
    return {
        "cases": cases,
        "tunes": {mode: tuned_seconds(each.told()) for mode, each in contenders.items()},
        "tuned_by_triton": sorted(contenders["triton"].tuned),
        "rows": [row for rows in contenders["ours"].rows for row in rows],
        "wall_s": {mode: each.wall_s for mode, each in contenders.items()},
        "processes": {mode: each.starts for mode, each in contenders.items()},
    }


def added(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The numbers of two runs, added up."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The facts of several runs as those of one."""
    document: dict[str, Any] = {"cases": {}, "tunes": {mode: {} for mode in MODES}, "tuned_by_triton": [], "rows": [],
                             "wall_s": {}, "processes": {}}  # fmt: skip
    for part in parts:
        document["cases"].update(part["cases"])
        document["rows"] += part["rows"]
        document["tuned_by_triton"] = sorted({*document["tuned_by_triton"], *part["tuned_by_triton"]})
        for name in ("wall_s", "processes"):
            document[name] = added(document[name], part[name])
        for mode in MODES:
            for kernel, row in part["tunes"][mode].items():
                document["tunes"][mode][kernel] = added(document["tunes"][mode].get(kernel, {}), row)
    return document


def summary(facts: dict[str, Any]) -> dict[str, Any]:
    """What the facts say: how many cases are right and no slower, and how many kernels were tuned faster."""
    cases, tuned = facts["cases"], side_by_side(facts["tunes"]["triton"], facts["tunes"]["ours"])
    timed = [row for row in cases.values() if "ratio" in row]
    return {
        "cases": len(cases),
        "failed": sorted(name for name, row in cases.items() if "errors" in row),
        "unequal": sorted(name for name, row in cases.items() if row.get("equal") is False),
        "slower": sorted(name for name, row in cases.items() if row.get("no_slower") is False),
        "ratio": statistics.geometric_mean([row["ratio"] for row in timed]) if timed else None,
        "kernels": len(tuned),
        "tuned_faster": sum(row["faster"] for row in tuned.values()),
        "tuned_s": {mode: sum(row[f"{mode}_s"] for row in tuned.values()) for mode in MODES},
        "launched_by_us": len({row["kernel"] for row in facts["rows"]}),
        "tuned": tuned,
    }


def tell(facts: dict[str, Any]) -> None:
    """Print each kernel's seconds, and the sums."""
    figures = summary(facts)
    for name, row in figures.pop("tuned").items():
        print(f"{name}: {row['configs']:g} configs, Triton {row['triton_s']:.2f} s, ours {row['ours_s']:.2f} s")
    print(json.dumps(figures))


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Run the cases until the limit, writing the file after each; returns the facts of all that it holds."""
    end, cases = time.perf_counter() + options.limit_s, dict[str, Any]()
    known = begun(options.out, options.commit)
    facts = before = merged([known] if known else [])

    def left_s() -> float:
        return max(1.0, min(options.case_s, end - time.perf_counter()))

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, contextlib.ExitStack() as closing:
        words = [sys.executable, "-m", "benchmarks.tuning.third_party", "--child"]
        contenders = {mode: Contender([*words, mode], Path(folder) / mode) for mode in MODES}
        for each in contenders.values():
            closing.callback(each.close)
        for name in (each for each in options.cases if each not in before["cases"]):
            if time.perf_counter() >= end:
                print(f"{name} and what follows are left: {options.limit_s:.0f} s are over", flush=True)
                break
            cases[name] = compared(name, contenders, left_s)
            print(f"{name}: {json.dumps(cases[name])}", flush=True)
            facts = merged([before, facts_of(contenders, cases)])
            if options.out is not None:
                content = {"summary": summary(facts), **facts}
                save(options.out, headed("python -m benchmarks.tuning.third_party", options.commit, **content))
    return facts


def main() -> None:
    """Run both tuners and compare, or be the process of one tuner."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[-2], Path(sys.argv[-1]))
        return
    parser = parser_of(__doc__)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES), metavar="NAME")
    parser.add_argument("--limit-s", type=float, default=3600.0, help="end after so many seconds")
    parser.add_argument("--case-s", type=float, default=240.0, help="end a process that takes longer for one call")
    tell(measured(parser.parse_args()))


if __name__ == "__main__":
    main()
