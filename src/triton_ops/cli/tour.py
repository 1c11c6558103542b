"""`triton-ops tour`: the main commands, one after another, on two small files; no GPU is needed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import typer

from triton_ops.exceptions import MissingDependencyError
from triton_ops.terminal import ExitCode, Facts, tell

_FILES = {
    "squares.py": """\
import numpy as np

numbers = np.arange(1 << 18)


def squares(*, size):
    return np.concatenate([numbers[at : at + size] ** 2 for at in range(0, len(numbers), size)])
""",
    "doubled.py": """\
import triton
import triton.language as tl


@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at), mask=at < n)
""",
}
_TUNE = "tune squares.py:squares --space size=64,256,1024,4096,16384,65536 --device cpu --cache-dir records"
_STEPS = (
    ("Tune: squares.py squares 262,144 numbers with NumPy, `size` at a time. Which size is fastest?", _TUNE),
    ("Recall: the same call again is answered from its record, and nothing runs.", _TUNE),
    ("Lint: doubled.py is a Triton kernel with a planted bug.", "lint doubled.py"),
    ("Rank: which configs of the shipped softmax would be fast on a GPU that is not here?",
     "explain rank softmax --shape 8192x4096 --gpu H100 --space BLOCK_SIZE=1024,4096 --space ROWS=1 "
     "--space num_warps=4,8"),
    ("Report: all that the tune tried, as a page.", "report squares --cache-dir records -o report.html"),
)  # fmt: skip


def tour_command(context: typer.Context) -> Facts:
    """Show the main commands at work, in less than a minute and without a GPU: each is typed here as you would.

    They work on two small files in a new temporary folder, which stays.
    """
    folder, before = Path(tempfile.mkdtemp(prefix="triton-ops-tour-")), Path.cwd()
    for name, content in _FILES.items():
        Facts.save(folder / name, content, "set TMPDIR to a folder that can be written")
    Facts("tour").lines(f"$ cd {folder}").show_ahead()
    os.chdir(folder)
    try:
        for text, words in _STEPS:
            Facts("tour").lines("").text(text).lines(f"$ triton-ops {words}", end=" \\").show_ahead()
            _run(context.find_root(), words)
    finally:
        os.chdir(before)
    facts = Facts("tour", {"folder": str(folder)})
    facts.lines("", f"Now open {(folder / 'report.html').as_uri()} in a browser.")
    return facts.text("Next: `triton-ops tune FILE.py:NAME` with your own. The folder of this tour can be deleted.")


def _run(program: Any, words: str) -> None:
    """Run a command as it would be typed; a step whose package is missing is left out, and another failure ends it."""
    try:
        with program.command.make_context(program.info_name, words.split(), obj=program.obj) as context:
            code = program.command.invoke(context).written()
    except MissingDependencyError as error:
        tell(str(error), "left out", "yellow")
        return
    if code not in (ExitCode.DONE, ExitCode.CHECK_FAILED):
        raise typer.Exit(code)
