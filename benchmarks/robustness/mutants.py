"""Small wrong changes in each room of the core: how many of them do the tests in the room's own folder see?

    python -m benchmarks.robustness.mutants --seed 7 20261201 --out benchmarks/results/cpu/mutants.json       hours
    python -m benchmarks.robustness.mutants --seed 7 --rooms values space --jobs 2                           minutes

A change is made in a copy of the project, which the tests import in place of the package that is installed. The room's
tests run until the first one fails, those of the file with the most similar name first, and those that start processes
last. Tests that fail without any change on this machine are left out, and named. A run that takes three times as long
as without a change has seen it too. The same seed asks for the same changes, whatever was changed in other functions
meanwhile. A change may have the tests end every process that this user may end. They therefore run in a namespace of
processes, from which none outside can be reached; where none can be made, as without root, nothing is run. Changes
whose effect nobody could see stand in `equivalent_changes.json`, with the reason, and are not asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict
from difflib import SequenceMatcher
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from benchmarks.document import commit_here, headed, save
from benchmarks.robustness.wrong_changes import Change, Changed, changes_in

PROJECT = Path(__file__).parents[2]
PACKAGE, TESTS = Path("src/triton_ops"), Path("tests/cpu")
ON_GPUS = {"timing/gpu_timers.py"}  # what only a GPU runs, whose tests stand in tests/gpu
EQUIVALENT = Path(__file__).with_name("equivalent_changes.json")
LEAST_S = 60.0  # before a run counts as too long: other programs run as well
PASSES = ("not gpu and not processes", "processes and not gpu")
NO_TESTS = 5  # how pytest exits where the marks leave none
CONFINED = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", '"$@"; exit "$?"', "sh")
"""Runs a command as the second process of a namespace of its own, since the first one adopts orphans."""


def drawn(room: str, seed: int, count: int, project: Path = PROJECT) -> dict[Change, Changed]:
    """So many changes of a room, of each kind in turn, without those that are known to change nothing."""
    place = project / PACKAGE / room
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    known = [{**row, "why": ""} for row in json.loads(EQUIVALENT.read_text(encoding="utf-8"))]
    changes: dict[Change, Changed] = {}
    for file in files:
        if (name := file.relative_to(project / PACKAGE).as_posix()) not in ON_GPUS:
            changes |= changes_in(file.read_bytes(), name)
    kinds: dict[str, list[Change]] = {}
    for change in sorted(changes, key=lambda change: change.rank(seed)):
        if {**asdict(change), "why": ""} not in known:
            kinds.setdefault(change.kind, []).append(change)
    turns = chain.from_iterable(zip_longest(*(kinds[kind] for kind in sorted(kinds))))
    return {change: changes[change] for change in [change for change in turns if change][:count]}


class Copy:
    """A copy of the project, whose package the tests import."""

    def __init__(self, folder: Path) -> None:
        words = ["git", "-C", str(PROJECT), "ls-files", "--cached", "--others", "--exclude-standard"]
        self.folder = folder
        for name in subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines():
            if (PROJECT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(PROJECT / name, folder / name)
        paths = os.pathsep.join(str(folder / name) for name in ("src", "serving"))
        self._environment = {**os.environ, "PYTHONPATH": paths, "CI": "1"}  # Hypothesis draws the same examples
        # Bytecode that goes by the text: a change may have the size and the second of what was there before.
        self._python("-m", "compileall", "-qq", "--invalidation-mode", "checked-hash", "src", "serving")
        if self._run([sys.executable, "-c", "import os; assert os.getpid() == 2"], None)[0]:
            raise SystemExit(
                "A changed test may end all processes of this user, and `unshare --pid` fails: run as root."
            )
        if not self._python("-c", "import triton_ops; print(triton_ops.__file__)").startswith(str(folder)):
            raise SystemExit("The tests would import another triton_ops than the copy. Unset PYTHONSAFEPATH.")

    @contextmanager
    def changed(self, change: Change, text: str) -> Iterator[None]:
        """The copy has a change inside of the context."""
        file = self.folder / PACKAGE / change.file
        before = file.read_text(encoding="utf-8")
        file.write_text(text, encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(before, encoding="utf-8")

    def failing(self, room: str, near: str = "", limit_s: float | None = None, *more: str) -> list[str]:
        """The room's tests that fail, `time` if they take longer, or `import`; with `more` options of pytest."""
        place = self.folder / TESTS / room
        files = sorted(place.glob("test_*.py")) if place.is_dir() else [place.with_name(f"test_{room}.py")]
        files.sort(key=lambda file: SequenceMatcher(None, f"test_{near}", file.stem).ratio(), reverse=True)
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *more]
        words += ["--hypothesis-profile=unshrunk", *map(str, files)]
        codes, names = [], list[str]()
        for marks in PASSES:
            code, text = self._run([*words, "-m", marks], limit_s)
            if code not in (0, NO_TESTS):
                failed = [line.split()[1] for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
                names += ["time"] if code is None else failed or ["import"]
                if "-x" in more:
                    return names
            codes.append(code)
        if not {*codes} & {0, 1}:
            raise SystemExit(f"{place} has no tests.")
        return names

    def _python(self, *words: str) -> str:
        words = (sys.executable, *words)
        return subprocess.run(
            words, cwd=self.folder, env=self._environment, capture_output=True, text=True, check=True
        ).stdout

    def _run(self, words: list[str], limit_s: float | None) -> tuple[int | None, str]:
        """The exit code, None after the limit, and the output."""
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen(
                [*CONFINED, *words],
                cwd=self.folder,
                env=self._environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = None
            out.seek(0)
            return code, out.read()


class Copies:
    """So many copies, each used by one thread at a time."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: queue.Queue[Copy] = queue.Queue()
        self._threads = ThreadPoolExecutor(count)
        for place in self._threads.map(lambda number: Copy(folder / str(number)), range(count)):
            self._free.put(place)

    def asked(self, room: str, seeds: Sequence[int], count: int) -> dict[str, Any]:
        """What a room's tests see of the changes that each seed draws."""
        begin = time.monotonic()
        with self._one() as place:
            left_out = place.failing(room)
            seconds = time.monotonic() - begin
            changes = {seed: drawn(room, seed, count, place.folder) for seed in seeds}

        for name in left_out:
            print(f"{name} fails without any change, and is left out", flush=True)
        more = ["-x", *(f"--deselect={name}" for name in left_out)]

        def outcome(change: Change, changed: Changed) -> dict[str, Any]:
            with self._one() as place, place.changed(change, changed.text):
                seen_by = next(iter(place.failing(room, Path(change.file).stem, max(LEAST_S, 3 * seconds), *more)), "")
            row = {**asdict(change), "line": changed.line, "seen_by": seen_by}
            if not seen_by:
                print("not seen: {file}:{line} {function}: {before} -> {after}".format(**row), flush=True)
            return row

        rows = {seed: [self._threads.submit(outcome, *one) for one in changes[seed].items()] for seed in seeds}
        counts = {str(seed): counted([row.result() for row in rows[seed]]) for seed in seeds}
        return {seed: {**count, "left_out": left_out} for seed, count in counts.items()}

    @contextmanager
    def _one(self) -> Iterator[Copy]:
        place = self._free.get()
        try:
            yield place
        finally:
            self._free.put(place)


def counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many changes were seen, beside the changes themselves."""
    return {"caught": sum(bool(row["seen_by"]) for row in rows), "of": len(rows), "changes": rows}


def core() -> list[str]:
    """The rooms of the core, and its modules beside them that have as much code."""
    names = [place.stem for place in sorted((PROJECT / PACKAGE).iterdir()) if place.is_dir() or place.suffix == ".py"]
    return [name for name in names if name.strip("_") == name and len(drawn(name, 0, 10)) == 10]


def main() -> int:
    """Print the share of each room, and write all outcomes; 1 if a room sees less than eight of ten."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, nargs="+", default=[7])
    parser.add_argument("--rooms", nargs="+", default=core(), metavar="ROOM")
    parser.add_argument("--changes", type=int, default=10, help="of each room, for each seed")
    parser.add_argument("--jobs", type=int, default=1, help="copies whose tests run at the same time")
    parser.add_argument("--out", type=Path, help="what it has of other rooms and seeds stays")
    parser.add_argument("--commit")
    options = parser.parse_args()
    rooms: dict[str, Any] = {}
    if options.out and options.out.exists():
        rooms = json.loads(options.out.read_text(encoding="utf-8"))["rooms"]
    command = f"python -m benchmarks.robustness.mutants --seed {' '.join(map(str, options.seed))}"
    enough, commit = True, options.commit or commit_here()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(options.rooms)) as threads:
        copies = Copies(Path(folder), options.jobs)
        futures = {threads.submit(copies.asked, room, options.seed, options.changes): room for room in options.rooms}
        for future in as_completed(futures):
            room = futures[future]
            if failure := future.exception():
                print(f"{room:12} {failure}", flush=True)
                enough = False
                continue
            for seed, result in future.result().items():
                rooms.setdefault(room, {})[seed] = {"commit": commit, **result}
                enough &= 10 * result["caught"] >= 8 * result["of"]
                print(f"{room:12} seed {seed:<9} {result['caught']} of {result['of']}", flush=True)
            if options.out:
                save(options.out, headed(command, options.commit, rooms=dict(sorted(rooms.items()))))
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
