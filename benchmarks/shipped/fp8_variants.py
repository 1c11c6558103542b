"""The forms of the product of 8-bit floats beside `torch._scaled_mm` with the same accumulation, one config each.

    python -m benchmarks.shipped.fp8_variants --limit-s 110 --out build/fp8_variants.json

Each form is checked against the reference before it is timed; the comparisons are interleaved, with L2 cold. Rows are
written as soon as they are there; they are made in a process that is ended, and begun anew, if one takes too long.
`speedup` is torch's time over the form's. With `--compile-only` the forms are compiled for an H100 and nothing is run,
which needs no GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.document import headed, save
from benchmarks.shipped.apart import Task, rows_apart, serve
from benchmarks.shipped.form_race import BAD, made_of, told
from triton_ops import Config, TritonKernelError, compare
from triton_ops.backend import Arguments, CandidateError, TritonCompiler
from triton_ops.base import require
from triton_ops.benchmark import check_result
from triton_ops.device import Target
from triton_ops_kernels import load
from triton_ops_kernels.rivals import rivals_of

OPERATION = load("fp8_gemm")
WIDE = {
    "LOADS": "host", "SWAPPED": False, "PROGRAMS": 1, "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 128,
    "GROUP_SIZE_M": 8, "PROMOTE": 0, "HALVES": True, "SUMS": 1, "AHEAD": 0, "num_warps": 8, "num_stages": 4,
}  # fmt: skip
SQUARE = {**WIDE, "BLOCK_N": 128, "num_stages": 5}
FEW = {**WIDE, "PROGRAMS": 0, "BLOCK_M": 64, "BLOCK_N": 32, "HALVES": False, "num_warps": 4, "num_stages": 8}
TURNS = {**WIDE, "FORM": "gluon", "BUFFERS": 4, "HALVES": False, "SUMS": 2, "num_warps": 4}
PROMOTED = {
    "by turns, Gluon": TURNS,
    "by turns, Gluon, apart": {**TURNS, "APART": True},
    "by turns, Gluon, groups of 16": {**TURNS, "GROUP_SIZE_M": 16},
    "tall, promoted by Triton": {**WIDE, "BLOCK_M": 256, "BLOCK_N": 128},
    "square": SQUARE,
    "square, two programs": {**SQUARE, "PROGRAMS": 2, "num_warps": 4, "num_stages": 3, "HALVES": False},
}
LIKELY = {name: PROMOTED[name] for name in ("by turns, Gluon", "by turns, Gluon, apart", "square")}
BLOCKED = {
    "square": SQUARE,
    "square, ahead": {**SQUARE, "AHEAD": 1},
    "square, two programs": PROMOTED["square, two programs"],
}
FORMS: dict[str, dict[str, dict[str, Any]]] = {
    "8192": PROMOTED,
    **dict.fromkeys(("4096-by-row", "llama-8b-up-prefill", "llama-70b-down-chunk"), LIKELY),
    "deepseek-v3-down-prefill": BLOCKED,
    "deepseek-v3-up-decode": {
        "32 columns": FEW,
        "32 columns, ahead": {**FEW, "AHEAD": 1},
        "32 columns, 2 ahead": {**FEW, "AHEAD": 2, "num_stages": 4},
        "32 columns, 4 ahead": {**FEW, "AHEAD": 4, "num_stages": 2},
        "32 columns, 4 ahead, deep": {**FEW, "AHEAD": 4, "num_stages": 4},
        "64 columns, 4 ahead": {**FEW, "BLOCK_N": 64, "AHEAD": 4, "num_stages": 3},
        "32 columns, by pointers, ahead": {**FEW, "LOADS": "pointers", "AHEAD": 1, "num_stages": 6},
        "16 columns, ahead": {**FEW, "BLOCK_N": 16, "AHEAD": 1},
        "64 columns, ahead": {**FEW, "BLOCK_N": 64, "AHEAD": 1},
        "swapped": {**FEW, "SWAPPED": True, "BLOCK_N": 64, "num_stages": 5},
    },
    "8192-fast": {"one sum": WIDE, "tall": {**WIDE, "BLOCK_M": 256, "BLOCK_N": 128}},
}


@lru_cache(maxsize=1)
def values_of(name: str, device: str | None) -> dict[str, Any]:
    """The arguments of a named problem."""
    shape, dtype = OPERATION.problems[name]
    problem = OPERATION.problem(shape, dtype)
    return dict(problem.arguments if device is None else OPERATION.materialise(problem, device).keyword)


def raced(config: Config, values: dict[str, Any], seconds: float) -> dict[str, Any]:
    """One form beside the library, after its check."""
    rival = rivals_of(OPERATION.name, values, ("library",))["library"]
    try:
        check_result(OPERATION, config, values)
        comparison = compare(
            (OPERATION, config), rival, kwargs=values, names=("form", "library"), seconds=seconds, check=False
        )
    except (TritonKernelError, CandidateError, RuntimeError) as error:  # a form that cannot run ends no other
        return {"verdict": f"{type(error).__name__}: {error}"}
    rate = 2e-9 * values["M"] * values["N"] * values["K"] / comparison.a_ms
    times = {
        "ms": comparison.a_ms,
        "library_ms": comparison.b_ms,
        "speedup": comparison.b_ms / comparison.a_ms,
        "tflops": rate,
    }
    return {"verdict": comparison.verdict, **times}


def compiled(config: Config, values: dict[str, Any]) -> dict[str, Any]:
    """What the compiler makes of one form for an H100."""
    arguments = Arguments(keyword=values)
    ahead = TritonCompiler(OPERATION.kernel, arguments.described(), Target.named("sm_90"))
    OPERATION.kernel.check(config, arguments)  # as a race does first
    return made_of(ahead, config)


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each form of each problem; the forms in Gluon come last."""
    problems = [name for name in FORMS if not options.problems or name in options.problems]
    tasks = [
        [problem, form]
        for gluon in (False, True)
        for problem in problems
        for form in FORMS[problem]
        if ("Gluon" in form) == gluon and (not options.forms or form in options.forms)
    ]
    if options.compile_only:
        found_rows = ((task, compiled(_config(task), values_of(task[0], None))) for task in tasks)
    else:
        command = [sys.executable, "-m", "benchmarks.shipped.fp8_variants", "--rows", "--seconds", str(options.seconds)]
        end = time.monotonic() + options.limit_s
        found_rows = rows_apart([*command, "--device", options.device], tasks, options.each_s, end)
    for task, row in found_rows:
        yield {"problem": task[0], "form": task[1], "config": dict(_config(task)), **row}


def _config(task: Task) -> Config:
    problem, form = task
    return Config(FORMS[problem][form])


def answer(options: argparse.Namespace) -> int:
    """In the process that makes rows: race what is asked for."""
    torch = require("torch", "racing forms")
    return serve(
        lambda task: raced(_config(task), values_of(task[0], options.device), options.seconds),
        lambda: torch.ones(1, device=options.device).sum().item(),
    )


def main() -> int:
    """Run all forms, and write one JSON file; the exit code is 1 if a form failed or was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="*", default=[], choices=list(FORMS), metavar="NAME")
    names = sorted({form for forms in FORMS.values() for form in forms})
    parser.add_argument("--forms", nargs="*", default=[], choices=names, metavar="NAME")
    parser.add_argument("--seconds", type=float, default=0.8, help="seconds for each comparison")
    parser.add_argument("--limit-s", type=float, default=110.0, help="start nothing more after so many seconds")
    parser.add_argument("--each-s", type=float, default=20.0, help="seconds for one form, which is then ended")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", action="store_true", help="make the rows that are asked for on stdin")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("build/fp8_variants.json"))
    parser.add_argument("--commit")
    options = parser.parse_args()
    if options.rows:
        return answer(options)
    rows_so_far = []
    for row in rows(options):
        rows_so_far.append(row)
        speed = f"{row['speedup']:.3f} x, {row['tflops']:.0f} TFLOP/s" if "ms" in row else ""
        print(f"{row['problem']} / {row['form']}: {speed} {row['verdict'][:300]} {told(row)}".rstrip(), flush=True)
        save(options.out, headed("python -m benchmarks.shipped.fp8_variants", options.commit, rows=rows_so_far))
    return int(any("Error" in row["verdict"] or row["verdict"] in BAD for row in rows_so_far))


if __name__ == "__main__":
    sys.exit(main())
