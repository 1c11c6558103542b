"""What a referee is asked: cheats cheat, honest candidates are right, and neither needs anything of this project."""

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.referee import shown
from benchmarks.referee.cases import FOLDER, HONEST, TASKS, even_cases, functions, honest_cases, named
from benchmarks.referee.planted import CAUGHT, HARMLESS, cheats

PROJECT = Path(__file__).parents[3]
HERE = PROJECT / FOLDER
FAMILIES = sorted(path.stem for path in (HERE / "cheats").glob("*.py") if path.stem != "__init__")


def test_sixty_cheats_are_in_twelve_families_of_five():
    assert len(FAMILIES) == 12
    planted = Counter(cheat.candidate for cheat in cheats())
    written = [target for family in FAMILIES for target in functions(f"cheats/{family}")]
    assert planted == Counter(written)
    assert {len(functions(f"cheats/{family}")) for family in FAMILIES} == {5}


@pytest.mark.parametrize("cheat", list(cheats()), ids=lambda cheat: cheat.name)
def test_a_cheat_says_what_it_does_in_a_line_and_is_never_faster(cheat):
    assert cheat.what
    assert "\n" not in cheat.what
    assert cheat.answers in (CAUGHT, HARMLESS)
    assert "faster" not in cheat.answers


def test_there_are_three_hundred_honest_cases_and_two_hundred_of_references_against_themselves():
    honest = [(case.candidate, case.size, case.dtype) for case in honest_cases()]
    assert len(set(honest)) == len(honest) >= 300
    even = [(case.candidate, case.size, case.dtype, case.seed) for case in even_cases()]
    assert len(set(even)) == len(even) >= 200
    assert {case.answers for case in honest_cases()} == {HONEST}
    assert all(len(functions(f"honest/{name}")) >= 8 for name in TASKS)


def test_a_copy_is_its_reference_but_for_name_and_docstring():
    def code(function):
        body = ast.parse((PROJECT / function.__code__.co_filename).read_text(encoding="utf-8")).body
        (node,) = [each for each in body if getattr(each, "name", "") == function.__name__]
        return ast.dump(node.args), [ast.dump(each) for each in node.body[1:]]

    assert {target.rpartition(":")[2] for target in functions("copies")} == {f"{name}_copy" for name in TASKS}
    for name, task in TASKS.items():
        assert code(named(f"{FOLDER}/copies.py:{name}_copy")) == code(named(task.target))


FILES = [HERE / f"{name}.py" for name in ("tasks", "copies")]
FILES += sorted([*HERE.glob("cheats/*.py"), *HERE.glob("honest/*.py")])


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_of_candidates_imports_torch_numpy_and_pythons_own_modules_alone(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        assert {name.partition(".")[0] for name in names} <= {"torch", "numpy", *sys.stdlib_module_names}


def test_options_name_each_input():
    assert TASKS["matmul"].options((3, 5, 7), "bfloat16") == ["--shape", "3x7,7x5", "--dtype", "bfloat16"]
    options = TASKS["cross_entropy"].options((3, 200), "float32")
    assert options == ["--shape", "3x200", "--dtype", "float32", "--arg", "targets=3:int64"]


def honest_by_task(*, compiled):
    cases = [case for case in honest_cases() if case.candidate.endswith(":compiled") == compiled]
    names = dict.fromkeys(case.task.name for case in cases)
    return [pytest.param([case for case in cases if case.task.name == name], id=name) for name in names]


@pytest.mark.processes
@pytest.mark.parametrize("cases", honest_by_task(compiled=False))
def test_honest_candidates_agree_with_their_reference_in_float64(cases):
    for case in cases:
        assert max(shown.excess(case, seed) for seed in (0, 1)) <= shown.ROUNDING, case
        results = [function(*case.inputs().values()) for function in (case.function, case.reference)]
        found, right = ([each] if hasattr(each, "dtype") else each for each in results)
        assert [each.dtype for each in found] == [each.dtype for each in right], case


@pytest.mark.processes
@pytest.mark.parametrize("cases", honest_by_task(compiled=True))
def test_compiled_candidates_agree_with_their_reference_in_float64(cases):
    assert max(shown.excess(cases[0], seed) for seed in (0, 1)) <= shown.ROUNDING


@pytest.mark.processes
def test_a_cheat_is_shown_to_be_one_and_fools_a_naive_check_or_whom_it_says(tmp_path):
    """In a process of its own, of which each cheat gets a fork."""
    out = tmp_path / "shown.json"
    command = [sys.executable, "-m", "benchmarks.referee", "--show", "--out", str(out)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=PROJECT, stdin=subprocess.DEVNULL)
    rows = {row["cheat"]: row for row in json.loads(out.read_text(encoding="utf-8"))["rows"]}
    assert len(rows) == 60
    assert [row for row in rows.values() if row["shown"] is not True] == []
    fooled = [name for name, row in rows.items() if isinstance(row["naive_speedup"], float)]
    assert [cheat for cheat in cheats() if cheat.candidate not in fooled and not cheat.fools] == []
    assert len(fooled) >= 50
    assert done.returncode == 0, done.stderr
