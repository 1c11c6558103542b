"""The pinned versions: each requirement has one that fits, and PyPI alone has all that is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[2]
PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.]+)(?:  # .*)?")
PINS = {
    canonicalize_name(pin["name"]): pin["version"]
    for line in (PROJECT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#") and (pin := PIN.fullmatch(line))
}
METADATA = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = METADATA["project"]["optional-dependencies"]
OWN = METADATA["project"]["name"]
WAY_TO_PYPI = {"PIP_CERT", "PIP_CLIENT_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_INDEX_URL", "PIP_PROXY", "PIP_TRUSTED_HOST"}


def test_every_line_is_a_pin():
    lines = (PROJECT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line and not line.startswith("#") and not PIN.fullmatch(line)] == []


def test_every_requirement_has_a_pin_that_fits():
    groups = [METADATA["build-system"]["requires"], METADATA["project"]["dependencies"], *EXTRAS.values()]
    groups += METADATA["dependency-groups"].values()
    asked = [Requirement(text) for group in groups for text in group if not text.startswith(OWN)]
    assert [str(each) for each in asked if PINS.get(canonicalize_name(each.name), "none") not in each.specifier] == []


def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pip as a machine does that has PyPI, or a mirror of it, and no other place to look in."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_") or name in WAY_TO_PYPI}
    command = [sys.executable, "-m", "pip", *arguments, "--no-input", "--disable-pip-version-check"]
    env["PIP_CONFIG_FILE"] = os.devnull
    return subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)


def pypi_answers() -> bool:
    return pip("index", "versions", "pip", "--retries", "1", "--timeout", "10").returncode == 0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("what", [
    ("--group", "dev", f".[{','.join(EXTRAS)}]"), ("--no-deps", "--group", "extras", "--group", "engines"),
], ids=["all", "extras"])  # fmt: skip
@pytest.mark.skipif(version("pip") != PINS["pip"], reason="another pip than the pinned one")
def test_pypi_alone_has_all_of_them(what, tmp_path):
    if not pypi_answers():
        pytest.skip("PyPI cannot be reached: whether it has the pinned versions is not known")
    report = tmp_path / "report.json"
    done = pip(
        "install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report),
        "--use-feature=fast-deps",  # where an index has no metadata of a wheel, pip reads it from the wheel's end
        "--constraint", "constraints.txt", "--build-constraint", "constraints.txt",
        *what,
    )  # fmt: skip
    if done.returncode and "ResolutionImpossible" not in done.stderr and not pypi_answers():
        pytest.skip("PyPI could not be reached any more")
    assert done.returncode == 0, done.stderr
    chosen = [each["metadata"] for each in json.loads(report.read_text(encoding="utf-8"))["install"]]
    result = {canonicalize_name(each["name"]): each["version"] for each in chosen}
    assert {name: each for name, each in result.items() if PINS.get(name) != each and name != OWN} == {}
    assert result.get("torch", PINS["torch"]) == PINS["torch"], "PyPI's build, and no other"
