"""Small wrong changes in each room of the core: how many of them do the tests in the room's own folder see?

    python -m benchmarks.robustness.mutants --seed 7 20261201 --out benchmarks/results/cpu/mutants.json       hours
    python -m benchmarks.robustness.mutants --seed 7 --rooms values space --jobs 2                           minutes

A change is made in a copy of the project, which the tests import in place of the package that is installed. The room's
tests run until the first one fails, those of the file with the most similar name first, and those that start processes
last. Tests that fail without any change on this machine are left out, and named. A run that takes three times as long
as without a change has seen it too. The same seed asks for the same changes, whatever was changed in other functions
meanwhile. A change may have the tests end every process that this user may end. They therefore run in a namespace of
processes, from which none outside can be reached; where none can be made, as without root, nothing is run. Changes
whose effect nobody could see stand in `equivalent_changes.json`, with the reason, and are not asked for. What `--out`
has of other rooms and seeds stays.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from benchmarks.document import commit_here, headed, parser_of, save

Form = tuple[str, ast.AST, str]  # a kind of change, what is replaced, and by which text

NEGATED = {ast.Eq: ast.NotEq, ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.Is: ast.IsNot, ast.In: ast.NotIn}
NEGATED |= {after: before for before, after in NEGATED.items()}
BOUNDS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
EXTREMES = {"min": "max", "max": "min"}
WRAPPERS = {"sorted": "list", "reversed": "list", "abs": "", "round": ""}  # around one argument
EITHER_ORDER = {"min", "max", "minimum", "maximum", "gcd", "lcm", "isclose", "suppress"}  # exchanged, nothing changes
NOT_EXCHANGED = {"isinstance", "issubclass", "getattr", "hasattr", "setattr", "cast", "require"}  # nothing would run
LOGS = {"debug", "info", "warning", "error", "exception", "log"}


@dataclass(frozen=True)
class Change:
    """A wrong change: in which function of a file `before` becomes `after`; `nth` of the equal ones there."""

    file: str
    function: str
    kind: str
    before: str
    after: str
    nth: int

    def rank(self, seed: int) -> bytes:
        """Where a seed puts it among all changes, in which no other function has a say."""
        own = (seed, self.file, self.function, self.kind, self.before, self.after, self.nth)
        return hashlib.sha256(repr(own).encode()).digest()


@dataclass(frozen=True)
class Changed:
    """The line of a change, and the whole file after it."""

    line: int
    text: str


def changes_in(source: bytes, file: str) -> dict[Change, Changed]:
    """Every change of a file's source."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    counts: Counter[tuple[str, ...]] = Counter()
    changes = {}
    for function, node in _running(ast.parse(source)):
        for kind, place, after in _forms(node):
            first = starts[place.lineno - 1] + place.col_offset
            last = starts[place.end_lineno - 1] + place.end_col_offset
            own = (function, kind, " ".join(source[first:last].decode().split()), after)
            new = after if after == "pass" else f"({after})"
            text = (source[:first] + new.encode() + source[last:]).decode()
            changes[Change(file, *own, counts[own])] = Changed(place.lineno, text)
            counts[own] += 1
    return changes


def _running(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST]]:
    """What runs below a node when functions are called, with the function's name."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if child.name != "__repr__":
                    yield from _running(child, f"{function}.{child.name}".lstrip("."))
            elif isinstance(child, ast.AST) and not _is_said(child):
                if function and not isinstance(node, ast.ClassDef):
                    yield function, child
                yield from _running(child, function)


def _is_said(node: ast.AST) -> bool:
    """Check whether a node is a text, an error or a line of a log."""
    logs = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _name(node.value) in LOGS
    return logs or isinstance(node, (ast.JoinedStr, ast.Raise, ast.Assert))


def _forms(node: ast.AST) -> Iterator[Form]:
    """The wrong forms of a node."""
    if isinstance(node, ast.Compare):
        yield from _of_comparison(node)
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "call", node, "pass"
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        yield from _off_by_one(node.left, node.right)
    elif isinstance(node, ast.Slice):
        yield from _off_by_one(node.lower, node.upper)
    elif isinstance(node, ast.Subscript):
        yield from _off_by_one(node.slice)
    else:
        yield from (("condition", *form) for form in _without_condition(node))


def _of_comparison(node: ast.Compare) -> Iterator[Form]:
    for at, operator in enumerate(node.ops):
        for kind, table in (("comparison", NEGATED), ("bound", BOUNDS)):
            if type(operator) in table:
                yield kind, node, _with(node, "ops", at, table[type(operator)]())
    yield from _off_by_one(*node.comparators)


def _of_call(node: ast.Call) -> Iterator[Form]:
    name, pair = _name(node), node.args[:2]
    if name in EXTREMES and isinstance(node.func, ast.Name):
        yield "bound", node.func, EXTREMES[name]
    if name in WRAPPERS and len(node.args) == 1:
        yield "call", node, f"{WRAPPERS[name]}({ast.unparse(node.args[0])})"
    if name == "range":
        yield from _off_by_one(*node.args)
    plain = len(pair) == 2 and not any(isinstance(value, ast.Starred) for value in pair)
    if plain and name not in EITHER_ORDER | NOT_EXCHANGED and ast.dump(pair[0]) != ast.dump(pair[1]):
        exchanged = copy.copy(node)
        exchanged.args = [pair[1], pair[0], *node.args[2:]]
        yield "arguments", node, ast.unparse(exchanged)


def _off_by_one(*nodes: ast.AST | None) -> Iterator[Form]:
    for node in nodes:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield "off by one", node, str(node.value + 1)


def _without_condition(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.BoolOp):
        for at in range(len(node.values)):
            values = node.values[:at] + node.values[at + 1 :]
            yield node, ast.unparse(ast.BoolOp(node.op, values) if len(values) > 1 else values[0])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, ast.unparse(node.operand)
    elif isinstance(node, ast.IfExp):
        yield from ((node, ast.unparse(value)) for value in (node.body, node.orelse))
    elif isinstance(node, ast.If) and not node.orelse:
        yield node.test, "False"
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        for at, part in enumerate(node.generators):
            if part.ifs:
                yield node, _with(node, "generators", at, ast.comprehension(part.target, part.iter, [], part.is_async))


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _with(node: ast.AST, field: str, at: int, value: ast.AST) -> str:
    """The node's text where one of its parts is another."""
    other, parts = copy.copy(node), list(getattr(node, field))
    parts[at] = value
    setattr(other, field, parts)
    return ast.unparse(other)


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
                [*CONFINED, *words], cwd=self.folder, env=self._environment, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
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
    parser = parser_of(__doc__)
    parser.add_argument("--seed", type=int, nargs="+", default=[7])
    parser.add_argument("--rooms", nargs="+", default=core(), metavar="ROOM")
    parser.add_argument("--changes", type=int, default=10, help="of each room, for each seed")
    parser.add_argument("--jobs", type=int, default=1, help="copies whose tests run at the same time")
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
