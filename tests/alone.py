"""Tests of one package with the core and itself alone.

    python -m tests.alone core|kernels|lab|lint|mcp|serving|torch

They run in a copy of this checkout in which the other packages' folders and tests are missing, in the same environment:
Python finds the copy's packages first, and forgets the folders of the checkout, where it is installed from there. What
tests the whole repository (the scripts that measure, and the files beside the folders) is not among them. Further words
go to pytest. What is missing is missing for every case of a test: of the cases the first runs, and of a property's
examples an eighth, since `make test` tries all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
OTHERS = {name: f"src/triton_ops_{name}" for name in ("kernels", "lab", "lint", "mcp", "torch")}
OTHERS["serving"] = "serving"

PLUGIN = "triton_ops_lint.pytest_plugin"


def forgetful() -> str:
    """The text of a `sitecustomize` with which Python finds no package in the folders of this checkout."""
    folders = {str(PROJECT / folder) for folder in ("src", "serving")}
    return f"import sys\nsys.path[:] = [path for path in sys.path if path not in {folders!r}]\n"


def copied(name: str, target: Path) -> None:
    """Make the copy that has the core and this package; files that git ignores are left out."""
    shutil.rmtree(target, ignore_errors=True)
    hidden = [folder for other, path in OTHERS.items() if other != name for folder in (path, f"tests/cpu/{other}")]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=PROJECT, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    for path in filter(None, listed.stdout.split("\0")):
        if (PROJECT / path).is_file() and not any(path.startswith(f"{folder}/") for folder in hidden):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / path, target / path)
    (target / "src/sitecustomize.py").write_text(forgetful(), encoding="utf-8")


def folders_of(name: str, target: Path) -> list[str]:
    """The folders of the package's tests; of the core the rooms' and the contracts."""
    if name in OTHERS:
        return [f"tests/cpu/{name}"]
    rooms = {path.name for path in (target / "src/triton_ops").iterdir() if path.is_dir()}
    folders = (path.name for path in (target / "tests/cpu").iterdir())
    return ["tests/contracts", *(f"tests/cpu/{name}" for name in sorted(rooms.intersection(folders)))]


def name_of(item: pytest.Item) -> str:
    """A test's name without its case."""
    return item.nodeid.partition("[")[0]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the first case of each test, of those that marks have left."""
    first: dict[str, pytest.Item] = {}
    for item in items:
        first.setdefault(name_of(item), item)
    config.hook.pytest_deselected(items=[item for item in items if item is not first[name_of(item)]])
    items[:] = first.values()


def main(name: str, words: list[str]) -> int:
    """Run the tests, and return pytest's exit code."""
    target = PROJECT / "build" / "alone" / name
    copied(name, target)
    places = [str(target / folder) for folder in ("src", "serving") if (target / folder).is_dir()]
    path = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])
    hidden = [] if name == "lint" else ["-p", f"no:{PLUGIN}"]  # pytest finds it in the environment's own metadata
    few = ["-p", "tests.alone", "--hypothesis-profile=again"]
    command = [sys.executable, "-m", "pytest", *few, *hidden, *folders_of(name, target), *words]
    return subprocess.run(command, cwd=target, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


if __name__ == "__main__":
    if sys.argv[1:2] not in [["core"], *([each] for each in OTHERS)]:
        sys.exit(f"{sys.argv[1:2]} is no package; there are core, {', '.join(OTHERS)}")
    sys.exit(main(sys.argv[1], sys.argv[2:]))
