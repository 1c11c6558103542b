"""The help of every command is printed without importing torch or Triton, each of which takes a second."""

import subprocess
import sys

import pytest

from triton_ops.cli.app import PROGRAM

pytestmark = pytest.mark.processes

ASK = """
import contextlib, io, sys
from triton_ops.cli.app import PROGRAM

for path in sys.argv[1].split(","):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = PROGRAM.run([*path.split(), "--help"])
    heavy = sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "triton"})
    if code or not out.getvalue().startswith("Usage: ") or heavy:
        sys.exit(f"{path} --help: {code}, imported {heavy}, and printed {out.getvalue()!r}")
"""


def paths(group, above=()):
    for name, command in group.commands.items():
        yield " ".join((*above, name))
        yield from paths(command, (*above, name)) if hasattr(command, "commands") else ()


def test_no_help_imports_torch_or_triton():
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    commands = list(paths(PROGRAM.root))
    assert {"tune", "torch modes", "torch advise", "explain profile run", "completion"} <= {*commands}
    done = subprocess.run([sys.executable, "-c", ASK, ",".join(commands)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
