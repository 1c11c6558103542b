r"""A public package before and after its decorators are those of this one: first calls, times and tests.

    pip download --no-deps --no-binary :all: late-interaction-kernels==0.4.5
    mkdir before after; tar xzf *.tar.gz -C before --strip 1; tar xzf *.tar.gz -C after --strip 1
    (cd after; grep -rl "@triton.autotune" late_interaction_kernels | xargs sed -i \
        's/@triton\.autotune/@autotune/; s/^\( *from late_interaction_kernels\._autotune import \)/\1autotune, /')
    python -m benchmarks.tuning.adopter before after --limit-s 230 --out benchmarks/results/nvidia-h200/adopter.json

By hand, one file that imported nothing of `_autotune` gets such an import, and `_autotune.py` the lines of "A lockfile
in a package" in docs/guides/lockfile.md.

Both trees make the first calls of each case in processes of their own, in turn, and are then timed in alternate rounds:
cold from empty disk caches, warm in new processes on what the first have left. The winners of the cold run become the
lockfile of the patched package, and a process with empty caches makes the same calls from it. The file is written after
each step; what the limit cuts off is missing. `tests` in the result of 2026-11-26 says how the package's own tests
ended in both trees; the script of commit d750632b ran them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.document import headed, parser_of, save
from benchmarks.tuning.third_party import MODES, Contender, answer, compared, side_by_side, tuned_seconds
from triton_ops.records import Lockfile, lock_of, store_in

PACKAGE = "late_interaction_kernels"
LOCKFILE = f"{PACKAGE}/triton-ops.lock.json"
# Queries, documents, tokens of each, their size, and whether gradients are asked for: as in the package's benchmarks.
CASES = {
    "train-64": (64, 64, 32, 128, 128, True),
    "colpali": (1, 1000, 128, 1024, 128, False),
    "text-short": (1, 1000, 32, 300, 128, False),
    "train-256": (256, 256, 32, 128, 128, True),
    "large-d-512": (1, 1000, 32, 300, 512, False),
}
FIRST_SHARE = 0.6  # of the time that is left: cases against the rest
CASE_S = 60.0


def runner_of(name: str) -> Callable[[], list[Any]]:
    """A call of a case, with the inputs that every process draws alike."""
    queries, documents, per_query, per_document, size, gradients = CASES[name]
    from late_interaction_kernels import maxsim

    torch.manual_seed(sum(map(ord, name)))
    dtype = torch.float16 if gradients else torch.bfloat16
    q = torch.randn(queries, per_query, size, device="cuda", dtype=dtype, requires_grad=gradients)
    d = torch.randn(documents, per_document, size, device="cuda", dtype=dtype, requires_grad=gradients)

    def run() -> list[Any]:
        q.grad = d.grad = None
        scores = maxsim(q, d)
        if gradients:
            scores.sum().backward()
        return [scores, q.grad, d.grad]

    return run


def contender(tree: Path, folder: Path) -> Contender:
    """A process of the package in a tree, with its caches in a folder."""
    path = os.pathsep.join([str(tree), os.environ.get("PYTHONPATH", "")])
    words = ["env", f"PYTHONPATH={path}", sys.executable, "-m", "benchmarks.tuning.adopter", "--child"]
    return Contender(words, folder)


def cases(contenders: dict[str, Contender], end: float) -> dict[str, Any]:
    """The cases in new processes until a time: first calls, milliseconds, seconds of each kernel's tunes."""
    rows: dict[str, Any] = {}
    before = {mode: len(each.told()) for mode, each in contenders.items()}
    for name in CASES:
        if time.perf_counter() < end:
            rows[name] = compared(name, contenders, lambda: max(1.0, min(CASE_S, end - time.perf_counter())))
            print(f"{name}: {json.dumps(rows[name])}", flush=True)
    for each in contenders.values():
        each.close()
    seconds = [tuned_seconds(each.told()[before[mode] :]) for mode, each in contenders.items()]
    return {"cases": rows, "tuned": side_by_side(*seconds), "tunes_s": [total(each) for each in seconds],
            "rungs": rungs(contenders["ours"])}  # fmt: skip


def rungs(process: Contender) -> list[str]:
    """Where the configs of each kernel came from, in the newest process."""
    return sorted({f"{row['kernel']}: {row['rung']}" for rows in process.rows[-1:] for row in rows})


def total(tunes: dict[str, dict[str, float]]) -> float:
    """The seconds of all tunes."""
    return round(sum(each["seconds"] for each in tunes.values()), 3)


def locked(tree: Path, records: Path, folder: Path, end: float) -> dict[str, Any]:
    """First calls with empty caches and the winners of the cold run in the package's lockfile."""
    lock, left_out = lock_of(store_in(str(records)))
    lock.write(tree / LOCKFILE)
    process, rows = contender(tree, folder), {}
    for name in CASES:
        if time.perf_counter() < end:
            first = process.ask("first", name, max(1.0, min(CASE_S, end - time.perf_counter())))
            rows[name] = first.get("first_s", first.get("error"))
    process.close()
    return {"entries": len(lock.entries), "left_out": [str(each.reason) for each in left_out], "first_s": rows,
            "tunes": tuned_seconds(process.told()), "rungs": rungs(process)}  # fmt: skip


def measured(options: argparse.Namespace, folder: Path) -> None:
    """The cases cold, warm, and from the lockfile that the cold ones make, writing the file after each step."""
    end = time.perf_counter() + options.limit_s
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    package = f"{PACKAGE} {options.version}"
    document = headed("python -m benchmarks.tuning.adopter", options.commit, device=device, package=package)
    trees = dict(zip(MODES, (options.before.resolve(), options.after.resolve()), strict=True))
    Lockfile((), ()).write(trees["ours"] / LOCKFILE)

    def until(part: float) -> float:
        return time.perf_counter() + part * (end - time.perf_counter())

    def noted(**step: Any) -> None:
        document.update(step)
        print(json.dumps(step)[:2000], flush=True)
        if options.out is not None:
            save(options.out, document)

    contenders = {mode: contender(trees[mode], folder / mode) for mode in MODES}
    with contextlib.ExitStack() as closing:
        for each in contenders.values():
            closing.callback(each.close)
        noted(cold=cases(contenders, until(FIRST_SHARE)))
        noted(warm=cases(contenders, until(FIRST_SHARE)))
    noted(locked=locked(trees["ours"], folder / MODES[-1] / "ops", folder / "locked", end))


def main() -> None:
    """Compare the two trees, or be the process of one."""
    if sys.argv[1:2] == ["--child"]:
        answer(runner_of, Path(sys.argv[2]))
        return
    parser = parser_of(__doc__)
    parser.add_argument("before", type=Path, help="the package as it is")
    parser.add_argument("after", type=Path, help="the package with the patch")
    parser.add_argument("--version", default="0.4.5", help="of the package")
    parser.add_argument("--limit-s", type=float, default=230.0, help="end after so many seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        measured(options, Path(folder))


if __name__ == "__main__":
    main()
