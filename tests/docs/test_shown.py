"""What documents show is there: commands with their options, files, benchmarks, names of the package, variables."""

import re
import shlex
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import triton_ops
from triton_ops import settings
from triton_ops.cli.app import PROGRAM
from triton_ops.terminal.program import imported

from .test_code_blocks import blocks

PROJECT = Path(__file__).parents[2]
PAGES = [
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    *sorted((PROJECT / "docs").rglob("*.md")),
    *sorted((PROJECT / "benchmarks").rglob("*.md")),
]
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_FOLDERS = sorted(path.name for path in (PROJECT / "src" / "triton_ops").iterdir() if path.is_dir())
_PLACE = re.compile(
    rf"(?<![\w./])(?:(?:benchmarks|docs|examples|src|tests|website)/[\w./-]+|(?:{'|'.join(_FOLDERS)})/[a-z_/]+\.py)"
)
_ROOTS = (PROJECT, PROJECT / "src" / "triton_ops", PROJECT / "docs")
_NAME = re.compile(r"triton_ops((?:\.\w+)+)")
_VARIABLE = re.compile(r"TRITON_OPS_[A-Z_]*[A-Z]")
_KINDS = {f"triton-ops {kind}" for kind in ("config", "export", "calibration", "error")}  # how files name what they are


def shown(page):
    """Everything that a page shows as code: lines of its blocks that are typed, and code spans."""
    text = page.read_text(encoding="utf-8")
    consoles = (block.text.replace("\\\n", " ") for block in blocks(text) if block.language == "console")
    typed = [line for console in consoles for line in console.splitlines()]
    spans = _SPAN.findall(re.sub(r"^ *`{3,}.*?^ *`{3,} *$", "", text, flags=re.MULTILINE | re.DOTALL))
    return [line.removeprefix("$ ") for line in typed if line.startswith("$ ")] + spans


@cache
def options_of(name):
    """The options of a command, or of any command below it."""
    parts, open_parts = [], [PROGRAM.root.commands[name]]
    while open_parts:
        part = open_parts.pop()
        open_parts += getattr(part, "commands", {}).values()
        parts.append(
            imported(getattr(part, "itself", part)) if hasattr(part, "place") or hasattr(part, "itself") else part
        )
    return {option for part in parts for each in part.params for option in (*each.opts, *each.secondary_opts)}


def wrong_commands(text):
    """Commands and options that there are not, in a text such as `triton-ops cache show --json | head`."""
    for part in [] if text in _KINDS else re.findall(r"(?:^|[ (])triton-ops ((?:[^|;&#>]|\|(?=\w))*)", text):
        words = shlex.split(part, comments=True, posix=False)
        name = next((word for word in words if not word.startswith("-")), None)
        if name is None or not re.fullmatch(r"[a-z][a-z-]*", name):
            continue
        if name not in PROGRAM.root.commands:
            yield name
            continue
        known = {*options_of(name), "--help", "--json", "-v", "--verbose", "--version"}
        yield from (word for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known)


def missing_places(text):
    for place in _PLACE.findall(text):
        if not any((root / place.rstrip("/.")).exists() for root in _ROOTS):
            yield place


def missing_names(text):
    for path in _NAME.findall(text):
        value, done = triton_ops, "triton_ops"
        for part in path.strip(".").split("."):
            try:
                value = getattr(value, part)
            except AttributeError:
                try:
                    value = import_module(f"{done}.{part}")
                except ImportError:
                    yield f"triton_ops{path}"
                    break
            done += f".{part}"


def missing_benchmarks(text):
    for module in re.findall(r"python3? -m (benchmarks\.[\w.]+)", text):
        path = PROJECT / module.replace(".", "/")
        if not path.with_suffix(".py").exists() and not (path / "__main__.py").exists():
            yield module


def missing_variables(text):
    source = Path(settings.__file__).read_text(encoding="utf-8")
    yield from (name for name in _VARIABLE.findall(text) if f'"{name}"' not in source)


@pytest.mark.parametrize(
    ("find", "text", "found"),
    [
        (wrong_commands, "triton-ops cache show --json --no-such | head --lines", ["--no-such"]),
        (wrong_commands, "x=1 triton-ops no-such --a", ["no-such"]),
        (missing_places, "`tests/docs` `search/auto.py` `search/no.py` `tests/no/`", ["search/no.py", "tests/no/"]),
        (missing_names, "triton_ops.tune triton_ops_lint.engine.lint triton_ops.no", ["triton_ops.no"]),
        (missing_benchmarks, "python -m benchmarks.timing.measured_facts, python -m benchmarks.no", ["benchmarks.no"]),
        (missing_variables, "TRITON_OPS_CACHE_DIR TRITON_OPS_NO", ["TRITON_OPS_NO"]),
    ],
)
def test_what_is_not_there_is_found(find, text, found):
    assert list(find(text)) == found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_what_is_shown_is_there(page):
    finders = (wrong_commands, missing_places, missing_names, missing_benchmarks, missing_variables)
    assert [wrong for text in shown(page) for find in finders for wrong in find(text)] == []
