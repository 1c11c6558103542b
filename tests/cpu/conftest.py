"""Fixtures of the tests that need no GPU: the command line in this process, and golden files."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from website.schemas import fault

from tests.forking import Lender
from tests.interpreter import Interpreter
from tests.tiers import shared
from triton_ops.compilation import pool
from triton_ops.compilation.pool import compiler_server

GOLDEN = Path(__file__).parents[1] / "golden"
DOUBT = re.compile(r"^warning: (low confidence|unproven): .*\n", re.MULTILINE)  # at times where others run too


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def data(self):
        """What it wrote to stdout, without the document of an error, which a test of `--json` may have."""
        is_error = self.out.startswith("{") and json.loads(self.out).get("kind") == "triton-ops error"
        return "" if is_error else self.out


@pytest.fixture(autouse=True)
def idle_host(monkeypatch):
    """No note in a result says how busy other programs keep the machine that runs the tests."""
    monkeypatch.setattr("triton_ops.device.probing._cpu_seconds", lambda: None)


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    """Runs `triton-ops` with the given words in this process; `columns` is the width of its terminal.

    The document of each command, printed or not, is held to its schema.
    """
    from triton_ops.base import storable
    from triton_ops.cli.app import main
    from triton_ops.terminal import Facts

    faults, written = [], Facts.written

    def checked(facts):
        code = written(facts)
        if facts._data != ():  # a command that writes a file has no document
            faults.extend(filter(None, [fault(json.loads(json.dumps(storable(facts.document))))]))
        return code

    monkeypatch.setattr(Facts, "written", checked)
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*words, columns=None):
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert faults == [], "a document is not what its schema says"
        return Ran(code, out, DOUBT.sub("", err))

    yield run
    for name in set(sys.modules) - before:  # targets: the next test may have another of the same name
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture(scope="session")
def _lender():
    lender = Lender()
    yield lender
    lender.end()


@pytest.fixture
def shared_fork_server(_lender, monkeypatch):
    """Compile pools of this process fork from one server, and from one more if kernels need torch; the first runs."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    _lender.server()
    monkeypatch.setattr(pool, "compiler_server", _lender)
    return _lender


@pytest.fixture
def own_fork_server(shared_fork_server, monkeypatch):
    """Compile pools have fork servers of their own, which take over the environment of the test."""
    monkeypatch.setattr(pool, "compiler_server", compiler_server)


@pytest.fixture
def golden(request):
    """Compares a text with the golden file of that name, exactly; `--update-golden` writes the file instead."""

    def compare(name, text):
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"there is no {path}; pytest --update-golden writes it"
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; pytest --update-golden writes it anew"

    return compare


@pytest.fixture(scope="session")
def interpreted():
    """Calls a function of a test's module in a process where Triton's kernels run as Python."""
    with shared():
        process = Interpreter()
        process(os.getpid)  # answers after its imports
    yield process
    process.close()
