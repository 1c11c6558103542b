"""All statements of the four documents that this project grew from, each shown again by what `statements.toml` names.

    python -m benchmarks.correctness.statements --without-gpu --out benchmarks/results/cpu/statements.json
    python -m benchmarks.correctness.statements --only blog.5 lesson

Tests are run by few processes of pytest, `stated_gpu` by one for each name, and each but once, however many rows name
it. Where there is no GPU, what needs one is listed as not run here, with what a recorded result says of it. A row holds
if nothing that was run, or is recorded, fails. Rows of earlier runs of the same file stay unless they are run again.
The exit code is 1 where a row does not hold.
"""

from __future__ import annotations

import importlib.util
import json
import operator
import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomllib

from benchmarks.document import headed, parser_of, save
from triton_ops.device import gpu_missing, probe

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_suffix(".toml")
RESULTS = ROOT / "benchmarks" / "results"
_ON_GPU = "tests/gpu/"  # where tests need one
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_FIGURE = re.compile(r"(?P<file>[^:]+): (?P<path>.+?) (?P<operator><=|>=|==|<|>) (?P<bound>.+)")


@dataclass(frozen=True)
class Statement:
    """A row of the table."""

    name: str  # its document, and its number there
    states: str
    tests: tuple[str, ...] = ()  # of pytest
    gpu: tuple[str, ...] = ()  # names of `stated_gpu`
    figures: tuple[str, ...] = ()  # bounds that figures of recorded results keep

    @property
    def commands(self) -> list[str]:
        """What shows it, as one types it."""
        words = [f"'{test}'" if "[" in test else test for test in self.tests]
        pytest = [f"pytest {' '.join(words)}"] if words else []
        return pytest + [f"python -m benchmarks.correctness.stated_gpu --only {name}" for name in self.gpu]


@dataclass(frozen=True)
class Shown:
    """How a part of a row ended: a test, a name of `stated_gpu`, or a figure."""

    holds: bool | None  # None if it was not run
    seconds: float = 0.0
    last_line: str = ""
    date: str = ""  # of the recorded result that says so, if one does
    commit: str = ""


def statements() -> Iterator[Statement]:
    """The rows of the table, in its order."""
    content = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    for document in content["documents"]:
        for number, row in content[document].items():
            lists = {key: tuple(value) for key, value in row.items() if key != "states"}
            yield Statement(f"{document}.{number}", row["states"], **lists)


def values_at(content: Any, path: str) -> list[Any]:
    """All values that a path leads to; `statements.toml` says how one is written."""
    values = [content]
    for part in path.split("/"):
        key, equals, text = part.partition("=")
        if equals:
            values = [value for value in values if str(value[key]) == text]
        elif part == "*":
            values = [each for value in values for each in (value.values() if isinstance(value, dict) else value)]
        else:
            values = [value[int(part) if isinstance(value, list) else part] for value in values]
    return values


def figure(check: str, results: Path = RESULTS) -> Shown:
    """Whether all figures of a recorded result that a check is about keep its bound."""
    parts = _FIGURE.fullmatch(check)
    assert parts, f"no check of a figure: {check}"
    content = _read(results / parts["file"])
    values = values_at(content, parts["path"])
    keeps, bound = _OPERATORS[parts["operator"]], json.loads(parts["bound"])
    holds = bool(values) and all(value is not None and keeps(value, bound) for value in values)
    examples = ", ".join(sorted({json.dumps(value) for value in values})[:4])
    return Shown(holds, 0.0, f"{len(values)} figures: {examples}", content.get("date", ""), content.get("commit", ""))


def cases(report: Path) -> Iterator[tuple[str, Shown]]:
    """Each test of a report of pytest, with how it ended."""
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        file = case.get("file", "")
        classes = case.get("classname", "").removeprefix(file.removesuffix(".py").replace("/", ".")).split(".")
        faults = [_fault(child) for child in case if child.tag in ("failure", "error")]
        skips = [child.get("message", "") for child in case if child.tag == "skipped"]
        name = "::".join([file, *filter(None, classes), case.get("name", "")])
        holds = False if faults else None if skips else True
        yield name, Shown(holds, float(case.get("time", 0)), _last_line([*faults, *skips, "passed"][0]))


def together(ends: Sequence[Shown], otherwise: str) -> Shown:
    """The end of a test with all its parameters; what was skipped decides nothing where another one has passed."""
    if not ends:
        return Shown(False, 0.0, otherwise)
    decides = min(ends, key=lambda end: (False, True, None).index(end.holds))
    passed = sum(end.holds is True for end in ends)
    last_line = f"{passed} passed" if decides.holds else decides.last_line
    return Shown(decides.holds, sum(end.seconds for end in ends), last_line)


def tested(tests: Sequence[str], jobs: int, *, gpu: bool) -> dict[str, Shown]:
    """How each test ended, all of them run by one pytest; those that need no GPU see none."""
    if not tests:
        return {}
    beside = ["-n", str(jobs), "--dist", "loadfile"] if jobs > 1 and importlib.util.find_spec("xdist") else []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        plugins = ["-p", "no:cacheprovider", "-p", "no:benchmark"]  # pytest-benchmark warns of xdist, which is an error
        options = ["-q", *plugins, "-o", "junit_family=xunit1", f"--junitxml={report}"]
        last_line = _ran("pytest", *options, "-o", "timeout=600", *beside, *tests, gpu=gpu)[1]
        ended = list(cases(report)) if report.is_file() else []
    return {
        test: together([end for name, end in ended if name == test or name.startswith(f"{test}[")], last_line)
        for test in tests
    }


def stated(name: str) -> Shown:
    """How a name of `stated_gpu` ends here."""
    start = time.monotonic()
    code, last_line = _ran("benchmarks.correctness.stated_gpu", "--only", name)
    return Shown(code == 0, time.monotonic() - start, last_line)


def _ran(module: str, *words: str, gpu: bool = True) -> tuple[int, str]:
    command = [sys.executable, "-m", module, *words]
    environment = {**os.environ} if gpu else {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return process.returncode, _last_line(process.stderr + process.stdout)


def _fault(report: xml.etree.ElementTree.Element) -> str:
    """What a test's report says of its fault: the first line that pytest marks, since messages are cut short."""
    marked = [line.removeprefix("E ") for line in (report.text or "").splitlines() if line.startswith("E ")]
    return next(iter(marked), report.get("message", ""))


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1].strip()[:300]


def recorded(results: Path = RESULTS) -> dict[str, Shown]:
    """What recorded results say of parts that need a GPU: those of `stated_gpu`, and earlier runs of this script."""
    ends: dict[str, Shown] = {}
    for document in map(_read, sorted(results.glob("nvidia-*/stated.json"))):
        for name, row in document["rows"].items():
            ends[name] = Shown(row["holds"], 0.0, row["statement"], document["date"], document["commit"])
    for document in map(_read, sorted(results.glob("nvidia-*/statements.json"))):
        for part, end in (pair for row in document["statements"].values() for pair in row["parts"].items()):
            if part.startswith(_ON_GPU) and "date" not in end:
                ends[part] = Shown(end["holds"], 0.0, end["last_line"], document["date"], document["commit"])
    return ends


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def row_of(statement: Statement, ends: Mapping[str, Shown]) -> dict[str, Any]:
    """What the result says of a row."""
    parts = {part: ends[part] for part in (*statement.tests, *statement.gpu, *statement.figures)}
    verdicts = [end.holds for end in parts.values()]
    holds = False if False in verdicts else True if True in verdicts else None
    telling = [end for end in parts.values() if end.holds is holds]
    return {
        "states": statement.states,
        "holds": holds,
        "seconds": round(sum(end.seconds for end in parts.values()), 3),
        "last_line": telling[0 if holds is False else -1].last_line,
        "commands": statement.commands,
        "not_run_here": [
            part for part in parts if part not in statement.figures and (parts[part].holds is None or parts[part].date)
        ],
        "parts": {
            part: {key: value for key, value in asdict(end).items() if value != ""} for part, end in parts.items()
        },
    }


def ends_of(chosen: Sequence[Statement], gpu: bool, jobs: int) -> dict[str, Shown]:
    """How all parts of some rows end, each of which is run once; what needs a GPU ends as recorded without one."""
    tests = sorted({test for row in chosen for test in row.tests}, key=_place)
    apart = [test for test in tests if test.startswith(_ON_GPU)]
    names = sorted({name for row in chosen for name in row.gpu})
    ends = {check: figure(check) for row in chosen for check in row.figures}
    ends.update(tested([test for test in tests if not test.startswith(_ON_GPU)], jobs, gpu=False))
    if gpu:
        return {**ends, **tested(apart, 1, gpu=True), **{name: stated(name) for name in names}}
    known = recorded()
    return {**ends, **{part: known.get(part, Shown(None, 0.0, "needs a GPU")) for part in (*apart, *names)}}


def _place(test: str) -> tuple[str, int]:
    """Where a test stands in a run of all of them; some begin with what those before them in their file have left."""
    file, name = test.partition("[")[0].split("::")
    return file, (ROOT / file).read_text(encoding="utf-8").index(f"def {name}(")


def main() -> int:
    """Show the rows that are asked for, and write one JSON file."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="*", metavar="ROW", help="rows or documents, such as blog.5 or lesson")
    parser.add_argument("--without-gpu", action="store_true", help="run nothing that needs a GPU, though one is here")
    parser.add_argument("--jobs", type=int, default=2, help="processes for tests that need no GPU")
    options = parser.parse_args()
    names, out = set(options.only or []), options.out
    table = list(statements())
    chosen = [row for row in table if not names or names & {row.name, row.name.partition(".")[0]}]
    if unknown := names - {row.name for row in table} - {row.name.partition(".")[0] for row in table}:
        parser.error(f"no row or document is named {', '.join(sorted(unknown))}")
    earlier = _read(out) if out and out.is_file() else {"statements": {}}
    if "statements" not in earlier:
        parser.error(f"{out} is no result of this script")
    gpu = not options.without_gpu and gpu_missing() is None
    ends = ends_of(chosen, gpu, options.jobs)
    rows = {row.name: row_of(row, ends) for row in chosen}
    for name, row in rows.items():
        print(f"{name}: {'holds' if row['holds'] else 'does not hold'}, {row['seconds']:.1f} s, {row['last_line']}")
    if out:
        known = {**earlier["statements"], **rows}
        rows = {row.name: known[row.name] for row in table if row.name in known}
        counts = {"rows": len(rows), "hold": sum(row["holds"] is True for row in rows.values())}
        head = {"device": probe("cuda" if gpu else "cpu").name, **counts, "statements": rows}
        command = f"python -m benchmarks.correctness.statements{'' if gpu else ' --without-gpu'}"
        save(out, headed(command, options.commit, **head))
    return int(any(not row["holds"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
