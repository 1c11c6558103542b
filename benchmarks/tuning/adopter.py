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
lockfile of the patched package, and a process with empty caches makes the same calls from it. Then the package's own
tests run in both trees at once, on the caches as they are, until the time is over. The file is written after each step;
what the limit cuts off is missing, and said. `--parts tests` runs the tests alone, on empty caches, and replaces what a
file that is there says of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.document import commit_here, headed, save
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
PARTS = ("calls", "tests")
# Files of tests that end within 100 s: results by forward and backward passes, and entries of the tuner's cache.
TESTS = ("autotune_kwargs", "scatter", "topk", "compile_cache", "backward_unified")
ROOT = Path(__file__).resolve().parents[2]
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


def searched(tree: Path) -> str:
    """The folders in which a package's own modules look: the tree, and no `tests` or `benchmarks` of this project."""
    folders = [Path(each).resolve() for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    return os.pathsep.join(map(str, [tree, *(each for each in folders if each != ROOT)]))


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


def own_tests(trees: dict[str, Path], folders: dict[str, Path], seconds: float) -> dict[str, Any]:
    """How the package's tests end in each tree; both run at once, since nothing of them is timed."""
    files = [f"tests/test_{name}.py" for name in TESTS]
    words = [sys.executable, "-m", "pytest", "-o", "addopts=", "-v", "--tb=line", "-p", "no:cacheprovider", *files]
    for tree in trees.values():
        (tree / "tests/__init__.py").touch()  # or any installed package named `tests` would hide them
    with ThreadPoolExecutor(len(trees)) as pool:
        runs = list(pool.map(lambda mode: run_in(trees[mode], folders[mode], words, seconds), trees))
    whole = {mode: ended for mode, (_, ended) in zip(trees, runs, strict=True)}
    return {"files": files, "whole": whole, **ends_beside(*(printed for printed, _ in runs))}


def ends_beside(before: str, after: str) -> dict[str, Any]:
    """The ends of each test by what pytest printed in each tree, and the tests that differ."""
    one, other = ends_of(before), ends_of(after)
    return {
        "ends": {"triton": by_end(one), "ours": by_end(other)},
        "reasons": {"triton": reasons_of(before), "ours": reasons_of(after)},
        "unequal": sorted(name for name in one.keys() & other.keys() if one[name] != other[name]),
        "only_in_one": sorted(one.keys() ^ other.keys()),
    }


def ends_of(printed: str) -> dict[str, str]:
    """By test: passed, failed, skipped or error."""
    ends = re.findall(r"^(tests/\S+::.+?) (PASSED|FAILED|SKIPPED|ERROR)", printed, re.MULTILINE)
    return {name: end.lower() for name, end in ends}


def by_end(ends: dict[str, str]) -> dict[str, list[str]]:
    """The names of the tests that ended in each way."""
    return {end: [name for name in ends if ends[name] == end] for end in sorted(set(ends.values()))}


def reasons_of(printed: str) -> dict[str, str]:
    """By test that failed, or file that was not collected: the line that pytest's summary says of it."""
    return {name: why[:200] for name, why in re.findall(r"^(?:FAILED|ERROR) (\S+)(?: - )?(.*)", printed, re.MULTILINE)}


def run_in(tree: Path, folder: Path, words: list[str], seconds: float) -> tuple[str, bool]:
    """What a command in a tree prints, and whether it ended by itself."""
    environment = {**os.environ, "PYTHONPATH": searched(tree), "TRITON_CACHE_DIR": f"{folder}/triton",
                   "TRITON_OPS_CACHE_DIR": f"{folder}/ops", "PYTHONUNBUFFERED": "1"}  # fmt: skip
    log = folder / "command.log"
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(words, cwd=tree, env=environment, stdout=file, stderr=subprocess.STDOUT)
        try:
            process.wait(max(1.0, seconds))
            whole = True
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            whole = False
    return log.read_text(encoding="utf-8", errors="replace"), whole


def measured(options: argparse.Namespace, folder: Path) -> None:
    """All parts that are asked for, each as long as time is left, writing the file after each step."""
    end, document = time.perf_counter() + options.limit_s, document_of(options)
    trees = dict(zip(MODES, (options.before.resolve(), options.after.resolve()), strict=True))
    Lockfile((), ()).write(trees["ours"] / LOCKFILE)

    def share(part: float) -> float:
        return part * (end - time.perf_counter())

    def noted(**step: Any) -> None:
        document.update(step)
        print(json.dumps(step)[:2000], flush=True)
        if options.out is not None:
            save(options.out, document)

    folders = {mode: folder / mode for mode in MODES}
    for each in folders.values():
        each.mkdir()
    if "calls" in options.parts:
        first_calls(trees, folders, share, noted)
    if "tests" in options.parts:
        noted(tests={"commit": options.commit or commit_here(), **own_tests(trees, folders, share(1))})


def first_calls(
    trees: dict[str, Path], folders: dict[str, Path], share: Callable[[float], float], noted: Callable[..., None]
) -> None:
    """The cases cold, warm, and from the lockfile that the cold ones make."""
    contenders = {mode: contender(trees[mode], folders[mode]) for mode in MODES}
    with contextlib.ExitStack() as closing:
        for each in contenders.values():
            closing.callback(each.close)
        noted(cold=cases(contenders, time.perf_counter() + share(FIRST_SHARE)))
        noted(warm=cases(contenders, time.perf_counter() + share(FIRST_SHARE)))
    locking = time.perf_counter() + share(1 / 3)
    noted(locked=locked(trees["ours"], folders["ours"] / "ops", folders["ours"].with_name("locked"), locking))


def document_of(options: argparse.Namespace) -> dict[str, Any]:
    """The file that some parts are put into; a new one where all are asked for, or there is none."""
    package, device = f"{PACKAGE} {options.version}", torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    if set(options.parts) != set(PARTS) and options.out is not None and options.out.exists():
        return {**json.loads(options.out.read_text(encoding="utf-8")), "device": device}
    return headed("python -m benchmarks.tuning.adopter", options.commit, device=device, package=package)


def main() -> None:
    """Compare the two trees, or be the process of one."""
    if sys.argv[1:2] == ["--child"]:
        answer(runner_of, Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path, help="the package as it is")
    parser.add_argument("after", type=Path, help="the package with the patch")
    parser.add_argument("--version", default="0.4.5", help="of the package")
    parser.add_argument("--limit-s", type=float, default=230.0, help="end after so many seconds")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="all without it")
    parser.add_argument("--out", type=Path, help="a file that is there keeps what the parts do not replace")
    parser.add_argument("--commit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        measured(options, Path(folder))


if __name__ == "__main__":
    main()
