"""The table of all statements has each row, and every row names tests, results and names that are there."""

import json
import re
from functools import lru_cache
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.correctness import statements
from benchmarks.correctness.statements import Shown, Statement, cases, figure, row_of, together, values_at

ROOT = Path(__file__).parents[3]
ROWS = list(statements.statements())
STATED = (ROOT / "benchmarks" / "correctness" / "stated_gpu.py").read_text(encoding="utf-8")
REPORT = """<testsuites><testsuite>
<testcase file="tests/a/test_b.py" classname="tests.a.test_b" name="test_c[1]" time="1.5"/>
<testcase file="tests/a/test_b.py" classname="tests.a.test_b" name="test_c[2]" time="0.5">
  <skipped message="no GPU"/></testcase>
<testcase file="tests/a/test_b.py" classname="tests.a.test_b.TestD" name="test_e" time="2">
  <failure message="assert 1 == 2&#10; where 1 = f()">trace</failure></testcase>
</testsuite></testsuites>"""


@lru_cache
def functions(file):
    return set(re.findall(r"^ *def (\w+)\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE))


def missing(test):
    """What a test's name has that is not there: its file, its function, or the file that its parameter is named by."""
    file, name, parameter = re.fullmatch(r"(tests/[\w/]+\.py)::(test_\w+)(?:\[(.+)\])?", test).groups()
    if not (ROOT / file).is_file() or name not in functions(file):
        return True
    places = [ROOT / f"{parameter}", ROOT / "tests/cpu/lint/lint_kernels" / f"{parameter}.py"]
    return bool(parameter) and not any(place.is_file() for place in places)


def test_all_rows_of_the_four_documents_are_there():
    counts = {"blog": 45, "overview": 25, "lesson": 43, "api": 51}
    assert [row.name for row in ROWS] == [f"{name}.{n}" for name in counts for n in range(1, counts[name] + 1)]
    assert len({row.states for row in ROWS}) == len(ROWS) == 164
    assert [row.name for row in ROWS if not (row.tests or row.gpu)] == []


def test_every_test_that_a_row_names_is_there():
    assert [test for row in ROWS for test in row.tests if missing(test)] == []
    assert missing("tests/gpu/test_none.py::test_x")
    assert missing("tests/cpu/lint/test_lint.py::test_none")
    assert missing("tests/cpu/lint/test_lint.py::test_every_kernel_is_read[none]")


def test_every_statement_about_gpus_is_shown_by_its_name():
    names = set(re.findall(r"^def (\w+)\(\) -> Row:", STATED, re.MULTILINE))
    assert {name for row in ROWS for name in row.gpu} == names
    assert len(names) >= 18


def test_recorded_figures_keep_their_bounds():
    assert {check: figure(check).last_line for row in ROWS for check in row.figures if not figure(check).holds} == {}


def test_a_path_leads_to_values_and_a_bound_holds_for_all_of_them(tmp_path):
    content = {"rows": [{"kernel": "a", "ms": 1.0}, {"kernel": "b", "ms": 3.0}], "by name": {"x": {"ms": 2}}}
    assert values_at(content, "rows/*/kernel=b/ms") == [3.0]
    assert values_at(content, "rows/1/kernel") == ["b"]
    assert values_at(content, "by name/*/ms") == [2]
    (tmp_path / "r.json").write_text(json.dumps({**content, "date": "2026-11-27", "commit": "c"}))
    assert figure("r.json: rows/*/ms <= 3", tmp_path) == Shown(True, 0.0, "2 figures: 1.0, 3.0", "2026-11-27", "c")
    assert not figure("r.json: rows/*/ms < 3", tmp_path).holds
    assert not figure("r.json: rows/*/kernel=none/ms < 3", tmp_path).holds
    with pytest.raises(KeyError):
        figure("r.json: rows/*/seconds < 3", tmp_path)


def test_ends_are_read_from_a_report_of_pytest(tmp_path):
    (tmp_path / "report.xml").write_text(REPORT)
    ended = dict(cases(tmp_path / "report.xml"))
    assert ended["tests/a/test_b.py::test_c[2]"] == Shown(None, 0.5, "no GPU")
    assert ended["tests/a/test_b.py::TestD::test_e"] == Shown(False, 2.0, "where 1 = f()")
    first, skipped, failed = ended.values()
    assert together([skipped, first], "") == Shown(True, 2.0, "1 passed")
    assert together([first, failed], "").holds is False
    assert together([skipped], "").holds is None
    assert together([], "no such test") == Shown(False, 0.0, "no such test")


def test_a_row_fails_with_any_part_and_says_what_was_not_run_here():
    row = Statement("blog.1", "it holds", ("tests/a.py::test_a[b]", "tests/gpu/b.py::test_b"), ("maxnreg",))
    ends = {"tests/a.py::test_a[b]": Shown(True, 1.0, "1 passed"), "tests/gpu/b.py::test_b": Shown(None, 0.0, "no GPU"),
            "maxnreg": Shown(True, 0.0, "a limit", "2026-11-26", "c")}  # fmt: skip
    result = row_of(row, ends)
    assert (result["holds"], result["seconds"], result["last_line"]) == (True, 1.0, "a limit")
    assert result["not_run_here"] == ["tests/gpu/b.py::test_b", "maxnreg"]
    assert result["parts"]["maxnreg"]["date"] == "2026-11-26"
    assert result["commands"] == [
        "pytest 'tests/a.py::test_a[b]' tests/gpu/b.py::test_b",
        "python -m benchmarks.correctness.stated_gpu --only maxnreg",
    ]
    failed = row_of(row, {**ends, "maxnreg": Shown(False, 0.0, "no limit")})
    assert (failed["holds"], failed["last_line"]) == (False, "no limit")
    assert row_of(row, dict.fromkeys(ends, Shown(None)))["holds"] is None


def test_a_row_without_a_gpu_has_what_was_recorded(monkeypatch):
    monkeypatch.setattr(
        statements, "tested", lambda tests, jobs, gpu: {test: Shown(True, 1.0, "1 passed") for test in tests}
    )
    ends = statements.ends_of([row for row in ROWS if row.name in ("blog.5", "api.4")], gpu=False, jobs=1)
    assert ends["epilogue_fusion"].holds
    assert ends["epilogue_fusion"].date.startswith("2026-")
    assert "tests/gpu/test_measure_on_gpu.py::test_calls_are_exact_on_a_gpu_too" in ends


@pytest.mark.processes
def test_what_needs_no_gpu_sees_none(monkeypatch, tmp_path):
    (tmp_path / "visible.py").write_text("import os\nprint(repr(os.environ['CUDA_VISIBLE_DEVICES']))\n")
    monkeypatch.setattr(statements, "ROOT", tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert statements._ran("visible", gpu=False) == (0, "''")
    assert statements._ran("visible") == (0, "'1'")


def test_each_part_is_run_once_on_a_gpu_in_the_order_of_its_file(monkeypatch):
    runs = []

    def tested(tests, jobs, *, gpu):
        runs.append((jobs, gpu, tests))
        return dict.fromkeys(tests)

    monkeypatch.setattr(statements, "tested", tested)
    monkeypatch.setattr(statements, "stated", lambda name: runs.append(name))
    chosen = [
        row for row in ROWS if row.name in ("blog.25", "blog.28", "blog.31", "blog.34", "overview.6", "lesson.14")
    ]
    ends = statements.ends_of(chosen, gpu=True, jobs=3)
    (jobs, visible, anywhere), (one, needed, apart), *names = runs
    assert (jobs, visible, one, needed, names) == (3, False, 1, True, ["drawn_graphs"])
    assert {*anywhere, *apart, *names} == {part for row in chosen for part in (*row.tests, *row.gpu)}
    offline = [test.rpartition("::")[2] for test in anywhere if "_offline" in test]
    assert offline[0] == "test_shared_memory_before_llvm_is_that_of_the_full_compile"
    assert set(ends) == {*anywhere, *apart, *names, *(check for row in chosen for check in row.figures)}


def test_a_file_of_something_else_is_refused_before_anything_runs(tmp_path, monkeypatch, capsys):
    other = tmp_path / "other.json"
    other.write_text('{"rows": 3}')
    monkeypatch.setattr("sys.argv", ["statements", "--only", "blog.5", "--out", str(other)])
    monkeypatch.setattr(statements, "ends_of", lambda *_: pytest.fail("something ran"))
    with pytest.raises(SystemExit):
        statements.main()
    assert f"{other} is no result of this script" in capsys.readouterr().err
    assert other.read_text() == '{"rows": 3}'
