"""Forms of shipped kernels that are not shipped, raced: each beside the shipped winner, then the best beside rivals.

`benchmarks.shipped.mlp_variants`, `row_variants` and `attention_variants` have the tables of forms; each form is one
config of a shipped operation, or of one whose kernel is a `FormsKernel` with the shipped kernel as its form `shipped`.
All forms are compiled first, side by side; each is checked against the reference before it is timed; comparisons are
interleaved, with L2 cold. Rows are written as soon as they are there. `speedup` is the other's time over the form's.
They are made in a process that is ended, and begun anew, if one takes too long: a form in Gluon could wait for itself
for ever.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import triton_ops_kernels
from benchmarks.document import headed, save
from benchmarks.shipped.apart import Task, rows_apart, serve
from triton_ops import Config, Operation, TritonKernelError, compare
from triton_ops.backend import Arguments, CandidateError, TritonCompiler
from triton_ops.base import require
from triton_ops.benchmark import check_result
from triton_ops.compilation import CompilePool
from triton_ops.device import Target
from triton_ops.records import Lockfile
from triton_ops_kernels import load
from triton_ops_kernels.rivals import rivals_of

SHIPPED = "shipped"
_COMPILE_S = 40.0  # that max-autotune may take besides
_WINNERS = Path(triton_ops_kernels.__file__).parent / "winners" / "nvidia-h200.lock.json"


@dataclass(frozen=True, eq=False)
class Case:
    """The forms of one kernel at one of its named problems.

    Attributes:
        operation: The shipped one, or one whose kernel has several forms, of which one is `shipped`.
        kernel: The name of the shipped operation.
        problem: The name of the problem.
        forms: By a name of their own, the configs of the forms, with FORM if the kernel has several.
    """

    operation: Operation
    kernel: str
    problem: str
    forms: Mapping[str, Mapping[str, Any]]

    @property
    def shipped(self) -> Config:
        """The config that is shipped for an H200: its winner, or the default where there is none."""
        shape, dtype = load(self.kernel).problems[self.problem]
        label = f"{'x'.join(map(str, shape))} {dtype}"
        winner = _winners().get((self.kernel, label))
        plain = load(self.kernel)
        config = Config(winner or plain.space_for(plain.problem(shape, dtype)).default_config)
        return Config(config, FORM=SHIPPED) if SHIPPED in getattr(self.operation.kernel, "forms", ()) else config

    @property
    def configs(self) -> dict[str, Config]:
        """All forms by name, the shipped one first."""
        return {SHIPPED: self.shipped, **{name: Config(values) for name, values in self.forms.items()}}

    @property
    def title(self) -> str:
        """Its kernel and its problem."""
        return f"{self.kernel}/{self.problem}"

    def chosen(self, names: list[str]) -> list[str]:
        """Those of its forms that are asked for; all if nothing is."""
        return [name for name in self.forms if not names or name in names]

    def values(self, device: str | None) -> dict[str, Any]:
        """The arguments of the problem, as tensors on a device or as specs."""
        problem = self.operation.problem(*load(self.kernel).problems[self.problem])
        return dict(problem.arguments if device is None else self.operation.materialise(problem, device).keyword)

    def ahead(self) -> TritonCompiler:
        """For compilations without a GPU."""
        return TritonCompiler(
            self.operation.kernel, Arguments(keyword=self.values(None)).described(), Target.named("sm_90")
        )


@cache
def _winners() -> dict[tuple[str, str], dict[str, Any]]:
    """The winners of the package, by kernel and label."""
    return {(entry.kernel, entry.label): dict(entry.config) for entry in Lockfile.read(_WINNERS).entries}


def compiled(case: Case, name: str) -> dict[str, Any]:
    """What the compiler makes of one form for an H100 or H200; nothing is run."""
    case.operation.kernel.check(case.configs[name], Arguments(keyword=case.values(None)))  # as a race does first
    return made_of(case.ahead(), case.configs[name])


def made_of(ahead: TritonCompiler, config: Config) -> dict[str, Any]:
    """What the compiler makes of a config: the verdict with its reason, and what it takes."""
    report = ahead.compile(config)
    resources = report.resources
    takes = {} if resources is None else {
        "registers": resources.registers, "spill_bytes": resources.spill_bytes, "shared_bytes": resources.shared_bytes,
        "mma": resources.mma, "load_bytes": resources.load_bytes, "serialised": resources.serialised,
    }  # fmt: skip
    return {"verdict": report.status.value, "reason": report.reason, **takes}


def raced(case: Case, values: Mapping[str, Any], name: str, other: str, seconds: float) -> dict[str, Any]:
    """One form beside another form, or beside a rival of that name."""
    ours = (case.operation, case.configs[name])
    try:
        check_result(case.operation, case.configs[name], values)
        theirs = (case.operation, case.configs[other]) if other in case.configs else _rival(case, values, other)
        comparison = compare(  # plain PyTorch rounds more often than the rule allows
            ours, theirs, kwargs=dict(values), names=("form", other), seconds=seconds, check=False
        )
    except (TritonKernelError, CandidateError, RuntimeError) as error:
        return {"verdict": f"{type(error).__name__}: {error}"[:400]}
    times = {"ms": comparison.a_ms, "other_ms": comparison.b_ms, "speedup": comparison.b_ms / comparison.a_ms}
    return {
        "verdict": comparison.verdict,
        "confidence": comparison.confidence,
        "interval_percent": list(comparison.interval),
        **times,
    }


def _rival(case: Case, values: Mapping[str, Any], name: str) -> Any:
    return rivals_of(case.kernel, values, (name,))[name]


def compile_all(cases: list[Case], forms: list[str], limit_s: float) -> float:
    """Compile the shipped form and all that are asked for into Triton's disk cache; returns the seconds it took."""
    start = time.monotonic()
    for case in cases:
        with CompilePool(case.ahead(), launches=True, reuse=True) as pool:
            left_s = max(limit_s - (time.monotonic() - start), 0.0)
            names = (SHIPPED, *case.chosen(forms))
            wait([pool.submit(case.configs[name], anyway=True) for name in names], timeout=left_s)
    return time.monotonic() - start


def rows(cases: list[Case], options: argparse.Namespace, module: str) -> Iterator[dict[str, Any]]:
    """Each form beside the shipped one, or another, for all problems; then the best of each beside the rivals."""
    end = time.monotonic() + options.limit_s
    words = ["--seconds", str(options.seconds), "--device", options.device]
    command = [sys.executable, "-m", module, "--rows", *words]
    best = {case.title: (options.beside, 1.0) for case in cases if options.beside in case.configs}
    tasks = [[title, name, options.beside] for title in best for name in _of(cases, [title]).chosen(options.forms)]
    for task, row in rows_apart(command, tasks, options.each_s, end):
        yield {**_place(_of(cases, task), task[1]), "other": task[2], **row}
        if row.get("speedup", 0.0) > best[task[0]][1] and row["verdict"] == "faster":
            best[task[0]] = task[1], row["speedup"]
    tasks = [[title, name, rival] for title, (name, _) in best.items() for rival in options.rivals]
    for task, row in rows_apart(command, tasks, options.each_s + _COMPILE_S, end):
        yield {**_place(_of(cases, task), task[1]), "other": task[2], **row}


def answer(cases: list[Case], options: argparse.Namespace) -> int:
    """In the process that makes rows: race what is asked for."""
    torch = require("torch", "racing forms")
    values = lru_cache(maxsize=1)(lambda title: _of(cases, [title]).values(options.device))
    return serve(
        lambda task: raced(_of(cases, task), values(task[0]), task[1], task[2], options.seconds),
        lambda: torch.ones(1, device=options.device).sum().item(),
    )


def _of(cases: list[Case], task: Task) -> Case:
    return next(case for case in cases if case.title == task[0])


def _place(case: Case, name: str) -> dict[str, Any]:
    return {"form": name, "kernel": case.kernel, "problem": case.problem, "config": dict(case.configs[name])}


def run(cases: list[Case], module: str, description: str | None, rivals: tuple[str, ...]) -> int:
    """The command of a table of forms; the exit code is 1 if a form failed or was wrong."""
    options = _options(cases, description, rivals, module)
    if options.rows:
        return answer(cases, options)
    part = [case for case in cases if not options.problems or case.title in options.problems]
    if options.compile_only:
        found_rows = (
            {**_place(case, name), "other": "", **compiled(case, name)}
            for case in part
            for name in (SHIPPED, *case.chosen(options.forms))
        )
    else:
        names = [*options.forms, options.beside] if options.forms else []
        print(f"compiled in {compile_all(part, names, options.limit_s / 3):.1f} s", flush=True)
        found_rows = rows(part, options, module)
    document: list[dict[str, Any]] = []
    for row in found_rows:
        document.append(row)
        beside = f" / {row['other']}: {row['speedup']:.3f} x, {row['ms']:.4f} ms" if "ms" in row else ""
        more = "" if "ms" in row else told(row)
        print(f"{row['kernel']} {row['problem']} {row['form']}{beside} {row['verdict']} {more}".rstrip(), flush=True)
        save(options.out, headed(f"python -m {module}", options.commit, rows=document))
    return int(any("Error" in row["verdict"] or row["verdict"] in BAD for row in document))


def told(row: Mapping[str, Any]) -> str:
    """What a row says of the compiled code, in words."""
    return " ".join(f"{key} {row[key]}" for key in _TOLD if key in row)


_TOLD = ("registers", "spill_bytes", "shared_bytes", "mma", "load_bytes", "serialised", "reason")
BAD = ("compile", "crash", "timeout", "wrong")


def _options(cases: list[Case], description: str | None, rivals: tuple[str, ...], module: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    names, forms = [case.title for case in cases], sorted({form for case in cases for form in case.forms})
    parser.add_argument("--problems", nargs="*", default=[], choices=names, metavar="KERNEL/PROBLEM")
    parser.add_argument("--forms", nargs="*", default=[], choices=forms, metavar="FORM")
    parser.add_argument("--beside", default=SHIPPED, choices=[SHIPPED, *forms], metavar="FORM")
    parser.add_argument("--rivals", nargs="*", default=list(rivals), choices=["eager", "compile", "library"])
    parser.add_argument("--seconds", type=float, default=0.6, help="seconds for each comparison")
    parser.add_argument("--limit-s", type=float, default=120.0, help="start nothing more after so many seconds")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--each-s", type=float, default=20.0, help="seconds for one form, which is then ended")
    parser.add_argument("--rows", action="store_true", help="make the rows that are asked for on stdin")
    parser.add_argument("--compile-only", action="store_true", help="compile for sm_90 and run nothing: needs no GPU")
    parser.add_argument("--out", type=Path, default=Path("build") / f"{module.rpartition('.')[2]}.json")
    parser.add_argument("--commit")
    return parser.parse_args()
