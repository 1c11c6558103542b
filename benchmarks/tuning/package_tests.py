"""Tests of public packages with Triton's tuner and under `triton_ops.install()`: do they end alike, and how fast?

    python -m benchmarks.tuning.package_tests FOLDER --limit-s 270 --out benchmarks/results/DEVICE/package_tests.json
    python -m benchmarks.tuning.package_tests FOLDER --suites attorch --limit-s 270 --out FILE
    python -m benchmarks.tuning.package_tests FOLDER --suites conch-rest --at-once --shards 4 --limit-s 560 --out FILE

The folder holds a tree for each suite below, as its repository has it. Each run is a pytest process of its own. With
each tuner a suite runs cold, from empty disk caches, and then warm, on what the cold run has left; the tuners take
turns, or with `--at-once` run at the same time, each on a GPU of its own, or on one GPU under the same load. With
`--shards N` a run is N processes side by side on the same caches: each has its part of every test function's cases, and
the seconds of the run are those of the last to end. The file is written after each run, and keeps the suites of earlier
runs. A run that the limit cuts off is not `whole`, and tests that only one tuner has reached are not compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.document import headed, save
from benchmarks.tuning.adopter import searched
from benchmarks.tuning.third_party import MODES, tuned_seconds

PLUGIN = Path(__file__).with_name("package_plugin.py")
TOLD = 12  # tests that differ most in seconds
PRINTED = ("seconds", "tests_s", "counts", "unequal")


@dataclass(frozen=True)
class Suite:
    """Some tests of a package.

    Attributes:
        tree: The folder of the package.
        words: What pytest is given.
        source: The package: its repository and commit, or its version.
        warm: Whether the tests run a second time, on the caches that the first run has left.
    """

    tree: str
    words: tuple[str, ...]
    source: str
    warm: bool = True


_CONCH = "stackav-oss/conch e2c5ecfe"
# Tests whose references read from the GPU in loops, millions of times: beside other processes each read waits longer.
_LOOPING = ("bev_pool", "dequantize_blockwise", "quantize_blockwise", "voxelization")
_LOOPS = tuple(f"tests/{name}_test.py" for name in _LOOPING)
# Softmaxes and two gated units at 8x1024, 2048x768, 8096x32 and 8x960x196.
_SOME = "(shape12 or shape15 or shape17 or shape20) and (softmax or silu or leaky)"
SUITES = {
    "conch-nms": Suite("conch", ("tests/nms_test.py",), _CONCH),
    "attorch": Suite(
        "attorch", ("tests/test_softmax_layers.py", "tests/test_glu_layer.py", "-k", _SOME), "BobMcDear/attorch 67c2772"
    ),
    "late-interaction": Suite(
        "late_interaction_kernels", ("tests/test_scatter.py", "tests/test_topk.py"), "late-interaction-kernels 0.4.5"
    ),
    "conch-loops": Suite("conch", _LOOPS, _CONCH, warm=False),
    "conch-rest": Suite(
        "conch", ("tests", *(f"--ignore={each}" for each in ("tests/nms_test.py", *_LOOPS))), _CONCH, warm=False
    ),
}


def turns(suite: Suite) -> Iterator[tuple[str, Sequence[str]]]:
    """The states of a suite, with the tuners in their order."""
    yield "cold", MODES
    if suite.warm:
        yield "warm", MODES[::-1]


def tested(
    tree: Path, words: Sequence[str], mode: str, caches: Path, seconds: float, gpus: Sequence[str]
) -> dict[str, Any]:
    """Run pytest in a tree, with disk caches in a folder, for at most so many seconds; returns what its shards noted.

    There are as many shards as GPUs, which may be the same, and "" for all.
    """
    plugin = caches / "plugin"
    plugin.mkdir(parents=True, exist_ok=True)
    shutil.copy(PLUGIN, plugin)
    (tree / "tests/__init__.py").touch()  # or any installed package named `tests` would hide them

    def shard(place: int) -> tuple[float, int, list[dict[str, Any]], str]:
        environment = {"PACKAGE_TESTS_TUNER": mode, "PACKAGE_TESTS_SHARD": f"{place}/{len(gpus)}",
                       **({"CUDA_VISIBLE_DEVICES": gpus[place]} if gpus[place] else {})}  # fmt: skip
        return shard_run(tree, words, caches, seconds, place, environment)

    with ThreadPoolExecutor(len(gpus)) as threads:
        shards = list(threads.map(shard, range(len(gpus))))
    noted = run_of([note for _, _, notes, _ in shards for note in notes], len(shards))
    if not noted["ends"]:
        noted["printed"] = shards[0][-1]
    code = next((code for _, code, _, _ in shards if code), 0)
    return {"seconds": max(took for took, _, _, _ in shards), "code": code, **noted}


def shard_run(
    tree: Path, words: Sequence[str], caches: Path, seconds: float, place: int, more: dict[str, str]
) -> tuple[float, int, list[dict[str, Any]], str]:
    """A pytest process: its seconds, its exit code, the plug-in's notes, and the end of what it printed."""
    notes, printed = caches / f"notes-{place}.jsonl", caches / f"printed-{place}.log"
    notes.write_text("")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(caches / "plugin"), searched(tree)]),
                   "TRITON_CACHE_DIR": f"{caches}/triton", "TRITON_OPS_CACHE_DIR": f"{caches}/ops",
                   "TRITON_PRINT_AUTOTUNING": "1", "PACKAGE_TESTS_NOTES": str(notes), **more}  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN.stem, "-p", "no:cacheprovider", "-o", "addopts=", "-q",
               "--tb=line", f"--rootdir={tree}", *words]  # fmt: skip
    start = time.perf_counter()
    with printed.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=tree, env=environment, stdout=log, stderr=subprocess.STDOUT,
                                   start_new_session=True)  # fmt: skip
        try:
            process.wait(max(1.0, seconds))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    took = time.perf_counter() - start
    lines = [json.loads(line) for line in notes.read_text().splitlines()]
    return took, process.returncode, lines, printed.read_text(encoding="utf-8", errors="replace")[-1500:]


def run_of(notes: Sequence[dict[str, Any]], shards: int = 1) -> dict[str, Any]:
    """What the plug-in has noted of one run: how each test ended and how long it took, and the seconds of the tunes."""
    ends: dict[str, str] = {}
    seconds: Counter[str] = Counter()
    reasons = {note["test"]: note["why"] for note in notes if note.get("why")}
    for note in notes:
        if "test" in note:
            seconds[note["test"]] += note["seconds"]
            if note["phase"] == "call" or note["outcome"] != "passed":
                broken = note["outcome"] == "failed" and note["phase"] != "call"
                ends[note["test"]] = "error" if broken else note["outcome"]
    tunes = tuned_seconds("".join(note.get("printed", "") for note in notes))
    last = [Counter(note["rungs"]) for note in notes if "rungs" in note]
    return {"whole": len(last) == shards, "ends": ends, "test_s": dict(seconds), "reasons": reasons, "tunes": tunes,
            "rungs": dict(sum(last, Counter()))}  # fmt: skip


def beside(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Two runs of the same tests: seconds, how many ended in which way, which ended otherwise, which took longer."""
    one, other = theirs["ends"], ours["ends"]
    both = one.keys() & other.keys()
    longer = sorted(both, key=lambda name: theirs["test_s"][name] - ours["test_s"][name])[:TOLD]
    return {
        "seconds": {mode: run["seconds"] for mode, run in zip(MODES, (theirs, ours), strict=True)},
        "ratio": ours["seconds"] / theirs["seconds"],
        "tests_s": {mode: round(sum(run["test_s"][name] for name in both), 3)
                    for mode, run in zip(MODES, (theirs, ours), strict=True)},
        "counts": {mode: dict(Counter(ends.values())) for mode, ends in zip(MODES, (one, other), strict=True)},
        "unequal": {name: [one[name], other[name]] for name in sorted(both) if one[name] != other[name]},
        "only_in_one": len(one.keys() ^ other.keys()),
        "failed": {mode: [name for name, end in ends.items() if end in ("failed", "error")]
                   for mode, ends in zip(MODES, (one, other), strict=True)},
        "longer": {name: [round(run["test_s"][name], 3) for run in (theirs, ours)] for name in longer},
        **{name: {mode: run[name] for mode, run in zip(MODES, (theirs, ours), strict=True)}
           for name in ("whole", "code", "reasons", "tunes", "rungs")},
        **{f"printed_{mode}": run["printed"] for mode, run in zip(MODES, (theirs, ours), strict=True)
           if "printed" in run},
    }  # fmt: skip


def gpus_of(mode: str, at_once: bool, shards: int, cards: int) -> list[str]:
    """The GPU of each shard of a tuner: the cards are dealt to the processes that run at once; "" for all of them."""
    if not cards or not (at_once or shards > 1):
        return [""] * shards
    first, step = (MODES.index(mode), len(MODES)) if at_once else (0, 1)
    return [str((first + step * shard) % cards) for shard in range(shards)]


def compared(
    suite: Suite, tree: Path, folder: Path, end: float, at_once: bool, shards: int = 1
) -> Iterator[dict[str, Any]]:
    """What is known of a suite after each state: cold, then warm."""
    states: dict[str, Any] = {}
    cards = torch.cuda.device_count()

    def run(mode: str) -> dict[str, Any]:
        gpus = gpus_of(mode, at_once, shards, cards)
        return tested(tree, suite.words, mode, folder / mode, end - time.perf_counter(), gpus)

    for state, modes in turns(suite):
        if time.perf_counter() >= end:
            return
        with ThreadPoolExecutor(len(modes) if at_once else 1) as threads:
            runs = dict(zip(modes, threads.map(run, modes), strict=True))
        states[state] = {**beside(*(runs[mode] for mode in MODES)), "at_once": at_once,
                         "shards": shards, "cards": cards}  # fmt: skip
        yield {"source": suite.source, "arguments": list(suite.words), **states}


def summary(suites: dict[str, Any]) -> dict[str, Any]:
    """The seconds of all suites in each state, and which suites did not end alike."""
    states = [(name, state, row[state]) for name, row in suites.items() for state in ("cold", "warm") if state in row]
    whole = [(state, row) for _, state, row in states if all(row["whole"].values())]
    return {
        "seconds": {state: {mode: sum(row["seconds"][mode] for each, row in whole if each == state) for mode in MODES}
                    for state in ("cold", "warm")},
        "ratios": {f"{name}, {state}": row["ratio"] for name, state, row in states},
        "unequal": [f"{name}, {state}" for name, state, row in states if row["unequal"]],
        "cut_off": [f"{name}, {state}" for name, state, row in states if not all(row["whole"].values())],
    }  # fmt: skip


def main() -> None:
    """Run the suites that are asked for until the limit, and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="holds the packages' trees")
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--limit-s", type=float, default=270.0, help="end after so many seconds")
    parser.add_argument(
        "--at-once", action="store_true", help="the tuners run at the same time, on a GPU each or on one"
    )
    parser.add_argument("--shards", type=int, default=1, help="processes side by side that a run's tests are dealt to")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit")
    options = parser.parse_args()
    end, out = time.perf_counter() + options.limit_s, options.out
    rows: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))["suites"] if out and out.is_file() else {}
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    for name in options.suites:
        suite = SUITES[name]
        tree = (options.folder / suite.tree).resolve()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as caches:
            for row in compared(suite, tree, Path(caches), end, options.at_once, options.shards):
                rows[name] = row
                content = {"device": device, "summary": summary(rows), "suites": rows}
                if out is not None:
                    save(out, headed("python -m benchmarks.tuning.package_tests", options.commit, **content))
                print(name, json.dumps({state: {key: row[state][key] for key in PRINTED}
                                        for state in ("cold", "warm") if state in row}), flush=True)  # fmt: skip
    print(json.dumps(summary(rows)))


if __name__ == "__main__":
    main()
