"""Commands that are ended at random moments, again and again, by every signal that people and systems send.

    python -m benchmarks.robustness.process_kills --out benchmarks/results/cpu/process_kills.json      ten minutes

An isolated tune, a compilation with its pool of compilers, and a recording. After each end it is looked at what is left
5 s later: processes, told by their environment, whatever their parent, group or session; and files in TMPDIR. The same
command is then started again, until it gets through: its result must be that of a command that nobody disturbed. Ends
come at any moment from the program's first line on, its imports included.

Ends with exit code 1 if anything was not as it must be.

Timings of the tune come from a clock that only the planned calls move, so its winner is known.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.document import headed, parser_of, save
from triton_ops.records import Run
from triton_ops.records.run_log import FinishedTrial as Tried

CONFIGS = 60
WINNER = 17
# As `python -m triton_ops`, with Ctrl-C heard even where this process runs in the background and hears none.
PROGRAM = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import triton_ops.__main__"
EVERY_CONFIG = ("--search", "exhaustive", "--trials", str(CONFIGS + 1), "--budget-s", "600")
TARGET = f'''
"""Calls that take planned times, by a clock of their own, and note when a config is begun."""
import os, time
from pathlib import Path
from triton_ops import operation
from triton_ops.timing import rounds

class Clock:
    now = 0

Timer = rounds.HostTimer
rounds.HostTimer = lambda: Timer(clock=lambda: Clock.now)
LOG, SEEN = Path(os.environ["STARTED_LOG"]), set()

@operation(name="planned", space={{"n": list(range({CONFIGS}))}}, arguments=lambda: {{}}, device="cpu")
def planned(*, n):
    if n not in SEEN:
        SEEN.add(n)
        with LOG.open("a") as log:
            log.write(f"{{n}}\\n")
    time.sleep(1e-3)
    Clock.now += 1_000_000 if n == {WINNER} else 1_200_000 + n * 7919 % 997 * 1000
'''


class Tune:
    """One tune, to be started again and again.

    Args:
        folder: Where it keeps its target, its log and its cache.
        isolate: Whether its configs run in a worker.
    """

    def __init__(self, folder: Path, isolate: bool) -> None:
        self.cache, self.log = folder / "cache", folder / "started.log"
        self.target = folder / "planned_target.py"
        self.target.write_text(TARGET)
        self.log.touch()
        how = "--isolate" if isolate else "--inline"
        self.words = ["tune", f"{self.target}:planned", *EVERY_CONFIG, "--json", how]
        self.environment = {"STARTED_LOG": str(self.log), "TRITON_OPS_CACHE_DIR": str(self.cache)}

    def start(self) -> subprocess.Popen[bytes]:
        """A process that tunes, or goes on."""
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *self.words], env={**os.environ, **self.environment},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def begun(self) -> list[int]:
        """The configs that were begun, in order."""
        return [int(word) for word in self.log.read_text().split()]

    def kept(self) -> list[int]:
        """The configs whose trials are on disk, in order."""
        runs = [Run.read(path) for path in self.cache.glob("runs/*/*.jsonl") if "\n" in path.read_text()]
        return [int(str(e.trial.config["n"])) for run in runs for e in run.events if isinstance(e, Tried)]

    def processes(self) -> list[int]:
        """The processes that work for it, whatever their parent; told by their environment."""
        return processes_with(f"STARTED_LOG={self.log}")


def processes_with(variable: str) -> list[int]:
    """The processes that live and have a variable in their environment."""
    mark = variable.encode()
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _has(entry, mark)]


def _has(entry: Path, mark: bytes) -> bool:
    try:
        alive = "State:\tZ" not in (entry / "status").read_text()
        return alive and mark in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def gone(tune: Tune, within_s: float = 5.0) -> bool:
    """Whether all of a tune's processes end by themselves."""
    deadline = time.monotonic() + within_s
    while tune.processes():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def killed(tune: Tune, rng: random.Random, number: int = signal.SIGKILL) -> int:
    """Start a tune, kill it some time after its first new config has begun; how many trials were lost."""
    before = len(tune.begun())
    process = tune.start()
    deadline = time.monotonic() + 60
    while len(tune.begun()) == before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(rng.uniform(0.0, 0.08))
    process.send_signal(number)
    process.communicate()
    return len(set(tune.begun()) - set(tune.kept()))


# As `python -m triton_ops`, with Ctrl-C heard even where this process runs in the background and hears none; the file
# is there when the program hears Ctrl-C, before it imports anything else.
COMMAND_PROGRAM = """
import signal, os
signal.signal(signal.SIGINT, signal.default_int_handler)
from triton_ops.terminal import end_at_once_when_interrupted
end_at_once_when_interrupted()
os.close(os.open(os.environ["PROGRAM_BEGUN"], os.O_CREAT))
import triton_ops.__main__
"""
WAYS: dict[str, tuple[tuple[int, ...], int]] = {
    "KILL": ((signal.SIGKILL,), -signal.SIGKILL),
    "TERM": ((signal.SIGTERM,), -signal.SIGTERM),
    "HUP": ((signal.SIGHUP,), -signal.SIGHUP),
    "INT": ((signal.SIGINT,), 130),
    "INT twice": ((signal.SIGINT, signal.SIGINT), 130),
    "STOP and KILL": ((signal.SIGSTOP, signal.SIGKILL), -signal.SIGKILL),
}  # the signals, and the exit code
BETWEEN_S = 0.05  # two signals
LEFT_S = 5.0
KILLS_A_ROUND = 12  # at most, before a command is to get through
COMPILED = [
    "ALGORITHM=tiles", "LOADS=pointers", "SWAPPED=false",
    "BM=64,128", "BN=64,128", "BK=32,64", "num_warps=4", "num_stages=2,3",
]  # fmt: skip


class Command(Protocol):
    """A command in a folder of its own, to be started again and again."""

    words: list[str]
    environment: dict[str, str]

    def near_its_end(self) -> bool:
        """Whether it shall get through the next time."""

    def wrong(self, out: bytes) -> str:
        """What is wrong with what it wrote and left when it got through; empty if nothing is."""


class IsolatedTune(Tune):
    """A tune of 60 configs in a worker, whose winner is known."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, isolate=True)

    def near_its_end(self) -> bool:
        """Whether nearly all configs are tried."""
        return len(self.kept()) >= CONFIGS - 5

    def wrong(self, out: bytes) -> str:
        """Another winner, or a trial that is missing or there twice."""
        winner, remains = json.loads(out)["best_config"], sorted(self.kept())
        return "" if winner == {"n": WINNER} and remains == list(range(CONFIGS)) else f"{winner}, {len(remains)} trials"


class Compilation:
    """A compilation of 16 configs of a shipped kernel, into a disk cache that is empty at first."""

    def __init__(self, folder: Path) -> None:
        space = [word for values in COMPILED for word in ("--space", values)]
        problem = ["--target", "sm_90", "--shape", "256x256x256"]
        self.words = ["compile", "matmul", *problem, "--jobs", "2", "--json", *space]
        self.environment = {"TRITON_CACHE_DIR": str(folder / "triton")}

    def near_its_end(self) -> bool:
        """Whether it shall get through: never before the last kill of a round, since a full cache makes it short."""
        return False

    def wrong(self, out: bytes) -> str:
        """A config that is not compiled."""
        counted = Counter(row["status"] for row in json.loads(out)["items"])
        return "" if counted == {"ok": 16} else f"{dict(counted)}"


class Recording:
    """A recording of 60 configs, measured once."""

    def __init__(self, folder: Path) -> None:
        tune = Tune(folder, isolate=False)
        self.file = folder / "planned.json.gz"
        self.words = ["record", f"{tune.target}:planned", "--out", str(self.file), "--passes", "1", "--json"]
        self.environment = tune.environment

    def near_its_end(self) -> bool:
        """Whether it shall get through: when the file is there, which a disturbed one must not leave half written."""
        return self.file.exists()

    def wrong(self, out: bytes) -> str:  # noqa: ARG002 - what it left counts
        """A config that is missing or there twice."""
        rows = json.loads(gzip.decompress(self.file.read_bytes()))["rows"]
        configs = sorted(row["config"]["n"] for row in rows if row["status"] == "ok")
        return "" if configs == list(range(CONFIGS)) else f"{len(rows)} rows"


COMMANDS = {"isolated tune": IsolatedTune, "compile": Compilation, "record": Recording}


@dataclass
class Seen:
    """What was found after the ends of one command."""

    ends: Counter[str] = field(default_factory=Counter)
    processes_left: int = 0
    files_left: list[str] = field(default_factory=list)
    other_codes: list[str] = field(default_factory=list)
    not_one_line: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    rounds: int = 0
    slowest_end_s: float = 0.0

    @property
    def faultless(self) -> bool:
        """Whether nothing was left, said or lost that must not be."""
        return not (self.processes_left or self.files_left or self.other_codes or self.not_one_line or self.wrong)


class Place:
    """Where one command runs: its folders, and its processes.

    Args:
        folder: An empty folder.
        kind: Makes the command.
    """

    def __init__(self, folder: Path, kind: Any) -> None:
        self.temporary, self._begun = folder / "tmp", folder / "begun"
        self.temporary.mkdir(parents=True)
        self.command: Command = kind(folder)
        self._mark = {"PROGRAM_BEGUN": str(self._begun)}

    def start(self) -> subprocess.Popen[bytes]:
        """The command, when its first line has run."""
        self._begun.unlink(missing_ok=True)
        environment = {**os.environ, **self.command.environment, **self._mark, "TMPDIR": str(self.temporary)}
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND_PROGRAM, *self.command.words], env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        while not self._begun.exists() and process.poll() is None:
            time.sleep(0.001)
        return process

    def processes(self) -> list[int]:
        """Those that work for it, whatever their parent."""
        return processes_with(f"PROGRAM_BEGUN={self._begun}")

    def files(self) -> list[str]:
        """The files and folders for temporary use."""
        return [path.name for path in self.temporary.iterdir()]


def ended_often(kind: str, folder: Path, ways: Sequence[str], moments: random.Random) -> Seen:
    """Start a command and end it, in each of these ways, and have it get through now and then.

    Raises:
        RuntimeError: It does not get through where nobody disturbs it, so that to end it would show nothing.
    """
    tally, left = Seen(), list(ways)
    get_through(Place(folder / f"{kind.replace(' ', '-')}-undisturbed", COMMANDS[kind]), tally)
    if not tally.faultless:
        raise RuntimeError(f"{kind} does not get through undisturbed, and was not attacked: {tally}")
    while left:
        place = Place(folder / f"{kind.replace(' ', '-')}-{tally.rounds}", COMMANDS[kind])
        tally.rounds += 1
        longest_s = 3.0 if kind == "compile" else 1.5
        for _ in range(KILLS_A_ROUND):
            if left and not place.command.near_its_end() and end(place, left[-1], moments.uniform(0, longest_s), tally):
                left.pop()
        get_through(place, tally)
        shutil.rmtree(folder / f"{kind.replace(' ', '-')}-{tally.rounds - 1}")
        print(f"{kind}: {len(ways) - len(left)} of {len(ways)}, {tally}", file=sys.stderr, flush=True)
    return tally


def end(place: Place, way: str, after_s: float, tally: Seen) -> bool:
    """Start a command and end it some time later; False if it was done by then."""
    signals, expected = WAYS[way]
    process = place.start()
    time.sleep(after_s)
    finished = process.poll() is not None
    begin = time.monotonic()
    for turn, number in enumerate(signals):
        time.sleep(BETWEEN_S if turn else 0.0)
        process.send_signal(number)
    _, err = process.communicate()
    if finished or (process.returncode == 0 and expected > 0):  # it was just at its end
        return False
    tally.slowest_end_s = max(tally.slowest_end_s, round(time.monotonic() - begin, 2))
    tally.ends[way] += 1
    look(place, process.returncode, err.decode(errors="replace"), way, tally)
    return True


def look(place: Place, code: int, err: str, way: str, tally: Seen) -> None:
    """Note what is left of a command that has ended, and what is not as it must be."""
    until = time.monotonic() + LEFT_S
    while (processes := place.processes()) or place.files():
        if time.monotonic() > until:
            break
        time.sleep(0.02)
    tally.processes_left += len(processes)
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    tally.files_left += [f"{way}: {name}" for name in place.files()]
    if code != WAYS[way][1]:
        tally.other_codes.append(f"{way}: {code}: {err[-200:]}")
    lines = [line for line in err.splitlines() if not line.startswith("warning: low confidence")]
    if way.startswith("INT") and not (len(lines) == 1 and lines[0].startswith("interrupted")):
        tally.not_one_line.append(f"{way}: {err[-300:]}")


def get_through(place: Place, tally: Seen) -> None:
    """Run a command to its end, and note what is wrong with its result."""
    process = place.start()
    out, err = process.communicate(timeout=600)
    fault = place.command.wrong(out) if process.returncode == 0 else err.decode(errors="replace")[-300:]
    if fault:
        tally.wrong.append(fault)
    look_after = place.files()
    tally.files_left += [f"ordinary end: {name}" for name in look_after]


def main() -> int:
    """End all commands in all ways; 1 if anything was not as it must be."""
    parser = parser_of(__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(COMMANDS))
    options = parser.parse_args()
    start, kinds = time.monotonic(), [options.only] if options.only else list(COMMANDS)

    def run(kind: str, folder: str) -> Seen:
        moments = random.Random(f"{options.seed} {kind}")
        ways = [way for _, way in zip(range(options.kills), list(WAYS) * options.kills, strict=False)]
        moments.shuffle(ways)
        return ended_often(kind, Path(folder), ways, moments)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(kinds)) as threads:
        results = dict(zip(kinds, threads.map(run, kinds, [folder] * len(kinds)), strict=True))
    document = headed(
        f"python -m benchmarks.robustness.process_kills --kills {options.kills} --seed {options.seed}",
        options.commit,
        commands={kind: vars(tally) for kind, tally in results.items()},
        seconds=round(time.monotonic() - start, 1),
        passed=all(tally.faultless and tally.ends.total() == options.kills for tally in results.values()),
    )
    print(json.dumps(document, indent=1))
    if options.out:
        save(options.out, document)
    return 0 if document["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
