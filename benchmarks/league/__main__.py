"""Compare tuners on recorded spaces.

    python -m benchmarks.league --hub FOLDER            # runs our own tuners and writes the page; an hour on two cores
    python -m benchmarks.league --hub FOLDER --all      # every tuner, each package in an environment of its own
    python -m benchmarks.league --tuner MODULE:CLASS    # one tuner in this environment, and the page
    python -m benchmarks.league --page                  # the page alone, from the traces

README.md beside this file says how tuners are run, and how to add a tuner or a space. A trace is written after each
space; with `--resume`, and for every package, what it has of this version and of the same space is not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import venv
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.document import parser_of
from benchmarks.league.page import page_of
from benchmarks.league.race import read_trace, runs_of, trace_path, traces_in, write_trace
from benchmarks.league.spaces import FOLDER, files, read_space
from benchmarks.league.tuners import EVALUATIONS, TUNERS, entry_of

RESULTS = Path(__file__).parents[1] / "results/search"
_NO_PAGE = Path(os.devnull)
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def main() -> None:
    """Run what is asked for, and write the page."""
    parser = parser_of(__doc__, RESULTS / "README.md")
    parser.add_argument("--hub", type=Path, help="folder of files of Kernel Tuner's benchmark hub")
    parser.add_argument("--recordings", type=Path, default=FOLDER, help="folder of this project's recordings")
    parser.add_argument("--traces", type=Path, default=RESULTS / "traces")
    parser.add_argument("--tuner", action="append", default=[], help="a name or MODULE:CLASS; may be repeated")
    parser.add_argument("--all", action="store_true", help="also tuners of other packages")
    parser.add_argument("--page", action="store_true", help="run nothing")
    parser.add_argument("--resume", action="store_true", help="keep what an interrupted run of this version has found")
    parser.add_argument("--environments", type=Path, default=Path("build/league"), help="of other packages")
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--processes", type=int, default=2, help="0 runs in this one")
    asked = parser.parse_args()
    for name in asked.tuner if asked.tuner or asked.page else _named(asked.all):
        if entry_of(name).package and not asked.tuner:
            _run_apart(name, asked)
        else:
            _run_here(name, asked)
    if asked.out != _NO_PAGE:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(page_of(traces_in(asked.traces, list(TUNERS))), encoding="utf-8")


def _named(everything: bool) -> list[str]:
    return [name for name, entry in TUNERS.items() if everything or not entry.package]


def _run_apart(name: str, asked: argparse.Namespace) -> None:
    """Run a tuner in the environment of its package, which is made where it is missing."""
    entry = entry_of(name)
    folder = asked.environments.resolve() / entry.package
    python = folder / "bin/python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "-r", entry.requirements], check=True)
    options = ["--recordings", asked.recordings, "--traces", asked.traces, "--out", _NO_PAGE]
    options += ["--seeds", asked.seeds, "--processes", asked.processes, *(["--hub", asked.hub] if asked.hub else [])]
    path = os.pathsep.join([str(Path("src").resolve()), str(Path.cwd())])
    command = [python, "-m", "benchmarks.league", "--tuner", name, *options]
    subprocess.run(list(map(str, command)), check=True, env={**os.environ, "PYTHONPATH": path})


def _run_here(name: str, asked: argparse.Namespace) -> None:
    """Run a tuner on every space, and write its trace after each."""
    path, entry = trace_path(asked.traces, name), entry_of(name)
    head = {"tuner": name, "version": asked.commit or entry.version, "seeds": asked.seeds, "evaluations": EVALUATIONS}
    trace = read_trace(path)
    keep = {**trace, **head} == trace and (entry.package or asked.resume)
    spaces = trace["spaces"] if keep else {}
    jobs = [
        file
        for file in files(asked.hub, asked.recordings)
        if file[2] not in spaces or spaces[file[2]]["digest"] != read_space(*file).digest
    ]
    os.environ.update(_ONE_THREAD)  # of the processes: more are slower, and add up in another order
    with contextlib.ExitStack() as stack:
        apply: Any = map
        if asked.processes:
            apply = stack.enter_context(ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn"))).map
        for (_, _, space), found in zip(jobs, apply(partial(runs_of, name, asked.seeds), jobs), strict=True):
            spaces[space] = found
            write_trace(path, {**head, "spaces": spaces})
            print(name, space, found["thinking_ms"], "ms", flush=True)


if __name__ == "__main__":
    sys.exit(main())
