"""The packages beside the core: the names and commands that the core shows of them, and the core without them."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.alone import forgetful
from tests.cpu.cli.test_cli import PINNED, REFERENCE
from triton_ops._faces import FACES
from triton_ops.cli.app import _SECTIONS as SECTIONS
from triton_ops.cli.app import PROGRAM
from triton_ops.exceptions import PACKAGES
from triton_ops.request.effort import PRESETS

pytest.importorskip("torch")
pytest.importorskip("triton")

PROJECT = Path(__file__).parents[2]
SHOWN = {name: module for name, module in FACES["triton_ops"].items() if not f"{module}.".startswith("triton_ops.")}
BROUGHT = {path: place for section in SECTIONS.values() for path, (place, *_) in section.items() if place in PACKAGES}
DOCUMENTED = {
    "triton_ops.autotuner": "TritonAutoTuner ConfigCache FP8_GEMM_CONFIGS",
    "triton_ops.autotuner.configs": "GATED_MLP_CONFIGS generate_configs",
    "triton_ops.autotuner.tuner": "TritonAutoTuner compute_gemm_metrics",
    "triton_ops.models": "FP8Format FP8GEMMInput GatedMLPInput KernelMetrics RMSNormRoPEInput TensorSpec TuningResult",
    "triton_ops.validation": "validate_eps validate_gated_mlp_inputs validate_head_dim validate_rmsnorm_rope_inputs",
}
PAIRS = [*(("triton_ops", name) for name in SHOWN), *((m, n) for m, names in DOCUMENTED.items() for n in names.split())]


@pytest.mark.parametrize(("module", "name"), PAIRS)
def test_a_name_is_imported_in_every_way_and_pickled(module, name):
    names = {}
    exec(f"from {module} import {name}\nimport {module}\nother = {module}.{name}", names)
    assert names[name] is names["other"] is getattr(importlib.import_module(module), name)
    if callable(names[name]):
        assert pickle.loads(pickle.dumps(names[name])) is names[name]
    assert name in dir(sys.modules[module])


@pytest.mark.skipif(
    f"typer=={version('typer')}\n" not in PINNED.read_text(), reason="typer words its help anew at times"
)
def test_help_lists_the_commands_of_all_packages(cli, golden):
    ran = cli("--help", columns=80)
    assert (ran.code, ran.err) == (0, "")
    golden("help.txt", ran.out)


@pytest.mark.processes
def test_a_type_checker_knows_what_each_package_brings(tmp_path):
    (tmp_path / "user.py").write_text(
        "import triton_ops\n"
        "from triton_ops.autotuner.configs import ConfigCache\nfrom triton_ops.autotuner.tuner import TritonAutoTuner\n"
        "from triton_ops.models import GatedMLPInput\n"
        "from triton_ops.validation import validate_head_dim\n"
        "reveal_type(triton_ops.matmul)\nreveal_type(triton_ops.rank)\nreveal_type(triton_ops.tune_compile)\n"
        "reveal_type(TritonAutoTuner)\nreveal_type(ConfigCache)\n"
        "reveal_type(GatedMLPInput.from_shapes(1, 2, 16, 8).x)\nreveal_type(validate_head_dim)\n"
    )
    words = [sys.executable, "-m", "mypy", str(tmp_path / "user.py")]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()
    revealed = [line.partition("Revealed type is ")[2] for line in said if "Revealed type" in line]
    assert [line.startswith('"def (') for line in revealed] == [True] * 5 + [False, True], done.stdout
    assert "TensorSpec" in revealed[5]
    assert len(said) == 8, done.stdout


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Runs Python where the core is, and none of the packages beside it."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copytree(PROJECT / "src/triton_ops", folder / "triton_ops", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "sitecustomize.py").write_text(forgetful(), encoding="utf-8")
    (folder / "own.py").write_text(
        "import time\n"
        "from triton_ops import operation\n"
        "@operation(space={'ms': [2, 1]}, arguments=lambda n=4: {'n': n})\n"
        "def nap(n, ms):\n    time.sleep(ms * 1e-3)\n    return n\n"
        "def rest(n, *, ms=1):\n    time.sleep(ms * 1e-3)\n    return n\n"
    )

    def run(*words):
        return subprocess.run(
            [sys.executable, *words], cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip

    return run


COMMANDS = """
import contextlib, io, json
from triton_ops.cli.app import main
ended = {}
for words in asked:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(words.split())
    ended[words] = int(code), out.getvalue(), err.getvalue()
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def ended(alone):
    """Runs commands where the core is alone: for each its exit code, and what it wrote."""

    def run(*commands):
        done = alone("-c", f"asked = {commands!r}\n{COMMANDS}")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.processes
def test_the_core_alone_runs_its_commands(ended, tmp_path):
    lock, page = tmp_path / "lock.json", tmp_path / "page.html"
    bench = "bench own.py:nap own.py:rest --arg n=4 --device cpu --seconds 0.2"
    result = ended(
        f"tune own.py:nap --device cpu --cache-dir {tmp_path}", f"cache show --cache-dir {tmp_path}",
        f"lock --cache-dir {tmp_path} --lockfile {lock}", f"report nap --cache-dir {tmp_path} -o {page}",
        f"lock verify {lock} --kernels own.py --device cpu", bench, "--help", "tune --help", "doctor",
        "__complete tune",
    )  # fmt: skip
    assert {words: err for words, (code, _, err) in result.items() if code or "Traceback" in err} == {}
    assert "triton_ops_lab is needed for the tunables that matter, and is not" in page.read_text()


SCRIPT = """
import sys
import triton, triton.language as tl
import triton_ops
from own import nap
found = triton_ops.tune(nap, device="cpu", cache_dir=sys.argv[1]).best_config
print(found, triton_ops.recall(nap, device="cpu", cache_dir=sys.argv[1]).winner)
@triton_ops.autotune([triton.Config({"BLOCK": 64})], ["n"])
@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    pass
print(type(kernel).__name__, [name for name in sys.modules if name.startswith("triton_ops_")])
"""


@pytest.mark.processes
def test_the_core_alone_tunes_recalls_and_decorates(alone, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = alone(str(tmp_path / "script.py"), str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'ms': 1} ms=1\nTuned []\n"


@pytest.mark.processes
def test_a_command_of_a_missing_package_names_it(ended):
    result = ended(*(f"{path} x" for path in BROUGHT))
    assert result == {
        f"{path} x": [3, "", f"error: this command needs {place}, which is not installed "
                             "(hint: in a clone of triton-ops: pip install .)\n"]
        for path, place in BROUGHT.items()
    }  # fmt: skip


@pytest.mark.processes
def test_help_and_completion_list_the_commands_that_are_there(ended):
    result = ended("--help", "__complete ex")
    absent = {path.split()[0]: place for path, place in BROUGHT.items()} | {"engine": "triton_ops_serving"}
    shown = [line.split()[0] for line in result["--help"][1].splitlines() if line.startswith("  ") and line.strip()]
    assert set(shown) >= {path.split()[0] for section in SECTIONS.values() for path in section} - set(absent)
    assert not set(shown) & set(absent)
    assert result["__complete ex"][1].split("\t")[0] == "exchange"
    named = f"More commands come with {', '.join(dict.fromkeys(absent.values()))}."
    assert named in " ".join(result["--help"][1].split())


@pytest.mark.processes
def test_a_name_or_a_kernel_of_a_missing_package_names_it(alone):
    script = (
        f"names = {sorted(SHOWN)}"
        + """
import json, triton_ops
from triton_ops import models, validation
def said(ask):
    try:
        return str(ask())
    except triton_ops.MissingDependencyError as error:
        return f"{error.name}: {error}"
asked = {name: said(lambda: getattr(triton_ops, name)) for name in names}
asked |= {"models": said(lambda: models.GatedMLPInput), "validation": said(lambda: validation.validate_eps)}
asked |= {"own": said(lambda: models.TensorSpec), "names": said(triton_ops.Operation.shipped_names)}
asked |= {"kernel": said(lambda: triton_ops.Operation.shipped("matmul"))}
asked |= {"suite": said(lambda: triton_ops.BenchmarkSuite().benchmark_gated_mlp([(1, 1, 1, 1)], device="cpu"))}
print(json.dumps(asked))
"""
    )
    done = alone("-c", script)
    assert done.returncode == 0, done.stderr
    asked, kernels = json.loads(done.stdout), "triton_ops_kernels: triton_ops_kernels is needed for "
    for name, module in SHOWN.items():
        package = module.partition(".")[0]
        assert asked[name].startswith(f"{package}: {package} is needed for triton_ops.{name}, and is not"), asked[name]
    assert asked["models"].startswith(f"{kernels}triton_ops.models.GatedMLPInput, and")
    assert asked["validation"].startswith(f"{kernels}triton_ops.validation.validate_eps, and")
    assert asked["kernel"].startswith(f"{kernels}a shipped kernel, and")
    assert asked["suite"].startswith(f"{kernels}a benchmark of a shipped kernel, and")
    assert asked["own"] == "<class 'triton_ops.values.tensors.TensorSpec'>"
    assert asked["names"] == "()"


HELP = [
    "compile", "mcp", "torch modes", "torch advise", "torch options", "torch cache", "torch backends", "torch log",
    "torch draw", "explain", "explain rank", "explain spills", "explain cliffs", "explain classes",
    "explain sensitivity", "explain profile", "explain profile command", "explain profile run", "simulate", "record",
    "replay",
]  # fmt: skip


@pytest.mark.skipif(
    f"typer=={version('typer')}\n" not in PINNED.read_text(), reason="typer words its help anew at times"
)
@pytest.mark.parametrize("command", HELP)
def test_help_of_commands_that_packages_bring(cli, golden, command):
    ran = cli(*command.split(), "--help", columns=80)
    assert (ran.code, ran.err) == (0, "")
    golden(f"help-{command.replace(' ', '-')}.txt", ran.out)


@pytest.mark.parametrize(("words", "candidates", "files"), [
    (["explain", "sp"], ["spills"], True), (["explain", "ma"], ["matmul"], True),
    (["tune", "soft"], ["softmax"], True), (["explain", "spills", "--me"], ["--measure"], False),
])  # fmt: skip
def test_completion_knows_what_packages_bring(words, candidates, files):
    *lines, last = [*PROGRAM.candidates(words), ""] if files else PROGRAM.candidates(words)
    assert [line.split("\t")[0] for line in lines[: len(candidates)]] == candidates
    assert last == ("" if files else "no files")


def test_the_reference_says_what_an_effort_may_take():
    text = REFERENCE.read_text(encoding="utf-8")
    for name, effort in PRESETS.items():
        trials, seconds = (
            "-" if each is None else f"{each:g}" for each in (effort.budget.trials, effort.budget.seconds)
        )
        assert f"| `{name}` | {trials} | {seconds} | `{effort.search}` |" in text


MOST_TAKEN = {
    "kernels": 47,  # kernels of several forms or launches are among them: they are a `CompiledByTriton`
    "lab": 85,  # classes of configs, and the times of runs beside them
    "serving": 37, "torch": 46,
    "mcp": 5,
    "lint": 46,  # its own workers start, keep and ask processes
}  # fmt: skip
"""How many names of the core a package may take; it falls, and rises by a line that says why."""


def taken(package):
    """The names that a package takes of the core, by the face that shows them."""
    folder = PROJECT / ("serving/triton_ops_serving" if package == "serving" else f"src/triton_ops_{package}")
    names = defaultdict(set)
    for node in (node for path in folder.rglob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("triton_ops."):
            names[node.module] |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "triton_ops":
            names["triton_ops"].add(node.attr)
    return {face: sorted(names[face] - {"lazy_face"}) for face in sorted(names)}


@pytest.mark.parametrize("package", MOST_TAKEN)
def test_what_a_package_takes_of_the_core_is_a_committed_list(golden, package):
    faces = taken(package)
    assert not any(face.count(".") > 1 for face in faces), "past a face"
    golden(f"taken-{package}.txt", "".join(f"{face}: {' '.join(names)}\n" for face, names in faces.items() if names))
    assert len({name for names in faces.values() for name in names}) <= MOST_TAKEN[package]
    values = [getattr(importlib.import_module(face), name) for face, names in faces.items() for name in names]
    plain = [value for value in values if inspect.isclass(value) or inspect.isfunction(value)]
    assert [value.__name__ for value in plain if not inspect.getdoc(value)] == []
