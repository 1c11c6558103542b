"""Forms of shipped kernels that are not shipped, raced: each beside the shipped winner, then the best beside rivals.

`benchmarks.mlp_variants` and `benchmarks.row_variants` have the tables of forms; each form is one config of an
operation whose kernel is a `FormsKernel` with the shipped kernel as its form `shipped`. All forms are compiled first,
side by side; each is checked against the reference before it is timed; comparisons are interleaved, with L2 cold. Rows
are written as soon as they are there. `speedup` is the other's time over the form's. A form in Gluon, which could wait
for ever if it had a mistake, is first checked in a process of its own, and left out if that does not end well.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import triton_ops.kernels
from benchmarks.document import headed, save
from triton_ops import Config, Operation, TritonKernelError, compare
from triton_ops.analysis import examine
from triton_ops.backend import Arguments, FormsKernel
from triton_ops.backend.offline import AheadOfTime, described
from triton_ops.benchmark.kernels import check_result
from triton_ops.benchmark.rivals import rivals_of
from triton_ops.cache import read_lockfile
from triton_ops.compile_pool.pool import CompilePool
from triton_ops.hardware import named_target
from triton_ops.kernels import load

SHIPPED = "shipped"
_CHECK_S = 60.0
_WINNERS = Path(triton_ops.kernels.__file__).parent / "winners" / "nvidia-h200.lock.json"


@dataclass(frozen=True, eq=False)
class Case:
    """The forms of one kernel at one of its named problems.

    Attributes:
        operation: Its kernel is a `FormsKernel`, which has the form `shipped`.
        kernel: The name of the shipped operation.
        problem: The name of the problem.
        forms: By a name of their own, the configs of the forms, with FORM.
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
        found = _winners().get((self.kernel, label))
        plain = load(self.kernel)
        return Config(found or plain.space_for(plain.problem(shape, dtype)).default_config, FORM=SHIPPED)

    @property
    def configs(self) -> dict[str, Config]:
        """All forms by name, the shipped one first."""
        return {SHIPPED: self.shipped, **{name: Config(values) for name, values in self.forms.items()}}

    def values(self, device: str | None) -> dict[str, Any]:
        """The arguments of the problem, as tensors on a device or as specs."""
        problem = self.operation.problem(*load(self.kernel).problems[self.problem])
        return dict(problem.arguments if device is None else self.operation.materialise(problem, device).keyword)

    def ahead(self) -> AheadOfTime:
        """For compilations without a GPU."""
        kernel = self.operation.kernel
        assert isinstance(kernel, FormsKernel)
        return AheadOfTime(kernel, described(Arguments(keyword=self.values(None))), named_target("sm_90"))


@cache
def _winners() -> dict[tuple[str, str], dict[str, Any]]:
    """The winners of the package, by kernel and label."""
    return {(entry.kernel, entry.label): dict(entry.config) for entry in read_lockfile(_WINNERS).entries}


def compiled(case: Case, name: str) -> dict[str, Any]:
    """What the compiler makes of one form for an H100 or H200; nothing is run."""
    found = examine(case.ahead(), case.configs[name])
    made = found.resources
    told = {} if made is None else {
        "registers": made.registers, "spill_bytes": made.spill_bytes, "shared_bytes": made.shared_bytes,
        "mma": made.mma, "load_bytes": made.load_bytes, "serialised": made.serialised,
    }  # fmt: skip
    return {"verdict": found.status.value, "reason": found.reason, **told}


def raced(case: Case, values: Mapping[str, Any], name: str, other: str, seconds: float) -> dict[str, Any]:
    """One form beside another form, or beside a rival of that name."""
    ours = (case.operation, case.configs[name])
    try:
        check_result(case.operation, case.configs[name], values)
        theirs = (case.operation, case.configs[other]) if other in case.configs else _rival(case, values, other)
        found = compare(ours, theirs, kwargs=dict(values), names=("form", other), seconds=seconds)
    except (TritonKernelError, RuntimeError) as error:
        return {"verdict": f"{type(error).__name__}: {error}"[:400]}
    times = {"ms": found.a_ms, "other_ms": found.b_ms, "speedup": found.b_ms / found.a_ms}
    return {"verdict": found.verdict, "confidence": found.confidence, "interval_percent": list(found.interval), **times}


def _rival(case: Case, values: Mapping[str, Any], name: str) -> Any:
    return rivals_of(case.kernel, values, (name,))[name]


def compile_all(cases: list[Case], limit_s: float) -> float:
    """Compile every form into Triton's disk cache, side by side; returns the seconds that it took."""
    start = time.monotonic()
    for case in cases:
        with CompilePool(case.ahead(), launches=True, reuse=True) as pool:
            left_s = max(limit_s - (time.monotonic() - start), 0.0)
            wait([pool.submit(config, anyway=True) for config in case.configs.values()], timeout=left_s)
    return time.monotonic() - start


def checked(case: Case, name: str, device: str) -> int:
    """Check one form's result once; 1 if it is wrong."""
    try:
        check_result(case.operation, case.configs[name], case.values(device))
    except (TritonKernelError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    return 0


def refused(module: str, case: Case, name: str, device: str) -> str:
    """Why a form is not run: how its check in a process of its own ended; empty if it ended well."""
    words = ["--check", name, "--problems", f"{case.kernel}/{case.problem}", "--device", device]
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *words], capture_output=True, text=True, timeout=_CHECK_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"its check did not end within {_CHECK_S:g} s"
    said = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return "" if done.returncode == 0 else f"its check ended with {done.returncode}: {said[-1] if said else ''}"[:400]


def rows(cases: list[Case], options: argparse.Namespace, module: str) -> Iterator[dict[str, Any]]:
    """Each form beside the shipped one, for all problems; then the best of each problem beside the rivals."""
    end = time.monotonic() + options.limit_s
    best: list[tuple[Case, str]] = []
    why: dict[str, str] = {}  # the forms in Gluon that were checked
    for case in cases:
        values, fastest = case.values(options.device), (SHIPPED, 1.0)
        for name in case.forms:
            if time.monotonic() > end:
                return
            if case.configs[name]["FORM"] == "gluon" and name not in why:
                why[name] = refused(module, case, name, options.device)
            found = {"verdict": f"Error: {why[name]}"} if why.get(name) else {}
            found = found or raced(case, values, name, SHIPPED, options.seconds)
            yield {"form": name, "other": SHIPPED, **_place(case, name), **found}
            if found.get("speedup", 0.0) > fastest[1] and found["verdict"] == "faster":
                fastest = name, found["speedup"]
        best.append((case, fastest[0]))
    for case, name, rival in [(case, name, rival) for case, name in best for rival in options.rivals]:
        if time.monotonic() > end:
            return
        found = raced(case, case.values(options.device), name, rival, options.seconds)
        yield {"form": name, "other": rival, **_place(case, name), **found}


def _place(case: Case, name: str) -> dict[str, Any]:
    return {"kernel": case.kernel, "problem": case.problem, "config": dict(case.configs[name])}


def run(cases: list[Case], module: str, description: str | None, rivals: tuple[str, ...]) -> int:
    """The command of a table of forms; the exit code is 1 if a form failed or was wrong."""
    options = _options(cases, description, rivals, module)
    taken = [case for case in cases if not options.problems or f"{case.kernel}/{case.problem}" in options.problems]
    if options.check:
        return max(checked(case, options.check, options.device) for case in taken)
    if options.compile_only:
        found_rows = (
            {"form": name, "other": "", **_place(case, name), **compiled(case, name)}
            for case in taken
            for name in case.configs
        )
    else:
        print(f"compiled in {compile_all(taken, options.limit_s / 3):.1f} s", flush=True)
        found_rows = rows(taken, options, module)
    document: list[dict[str, Any]] = []
    for row in found_rows:
        document.append(row)
        beside = f" / {row['other']}: {row['speedup']:.3f} x, {row['ms']:.4f} ms" if "ms" in row else ""
        more = "" if "ms" in row else " ".join(f"{key} {row[key]}" for key in _TOLD if key in row)
        print(f"{row['kernel']} {row['problem']} {row['form']}{beside} {row['verdict']} {more}".rstrip(), flush=True)
        save(options.out, headed(f"python -m {module}", options.commit, rows=document))
    return int(any("Error" in row["verdict"] or row["verdict"] in _BAD for row in document))


_TOLD = ("registers", "spill_bytes", "shared_bytes", "mma", "load_bytes", "serialised", "reason")
_BAD = ("compile", "crash", "timeout", "wrong")


def _options(cases: list[Case], description: str | None, rivals: tuple[str, ...], module: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [f"{case.kernel}/{case.problem}" for case in cases]
    parser.add_argument("--problems", nargs="*", default=[], choices=names, metavar="KERNEL/PROBLEM")
    parser.add_argument("--rivals", nargs="*", default=list(rivals), choices=["eager", "compile", "library"])
    parser.add_argument("--seconds", type=float, default=0.6, help="seconds for each comparison")
    parser.add_argument("--limit-s", type=float, default=120.0, help="start nothing more after so many seconds")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--check", metavar="FORM", help="only check the results of one form")
    parser.add_argument("--compile-only", action="store_true", help="compile for sm_90 and run nothing: needs no GPU")
    parser.add_argument("--out", type=Path, default=Path("build") / f"{module.rpartition('.')[2]}.json")
    parser.add_argument("--commit")
    return parser.parse_args()
