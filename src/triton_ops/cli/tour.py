"""`triton-ops tour`: the main commands, one after another, on two small files; no GPU is needed."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

import typer

from triton_ops.exceptions import MissingDependencyError
from triton_ops.terminal import ExitCode, Facts, tell

_FILES = {
    "nearest.py": '''\
"""The nearest of 8 centres for each of 1,024 points, so many points at a time."""

import numpy as np

random = np.random.default_rng(0)
points, centres = random.standard_normal((1024, 32)), random.standard_normal((8, 32))


def nearest(*, rows):
    parts = [points[at : at + rows] for at in range(0, len(points), rows)]
    return np.concatenate([np.abs(part[:, None] - centres).sum(-1).argmin(-1) for part in parts])
''',
    "doubled.py": '''\
"""A kernel with a planted bug: its load has no mask, so that the last block reads past the end."""

import triton
import triton.language as tl


@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at), mask=at < n)
''',
}
_TUNE = "tune nearest.py:nearest --space rows=1,4,16,64,256,1024 --device cpu --cache-dir records"
_STEPS = (
    ("Tune: nearest.py finds the nearest centre of each point, `rows` points at a time. How many are fastest?", _TUNE),
    ("Recall: the same call again is answered from its record, and nothing runs.", _TUNE),
    ("Lint: doubled.py is a Triton kernel with a planted bug.", "lint doubled.py"),
    ("Rank: which configs of the shipped softmax would be fast on a GPU that is not here?",
     "explain rank softmax --shape 8192x4096 --gpu H100 --space BLOCK_SIZE=1024,4096 --space ROWS=1 "
     "--space num_warps=4,8"),
    ("Report: all that the tune tried, as a page.", "report nearest --cache-dir records -o report.html"),
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
            Facts("tour").lines("").text(text).lines(f"$ triton-ops {words}").show_ahead()
            _run(context.find_root(), words)
    finally:
        os.chdir(before)
    facts = Facts("tour", {"folder": str(folder), "page": str(folder / "report.html")})
    return facts.lines("", f"Now open {(folder / 'report.html').as_uri()} in a browser.").text(
        "Your own function or kernel: `triton-ops tune FILE.py:NAME`. The folder of this tour can be deleted."
    )


def _run(program: typer.Context, words: str) -> None:
    """Run a command as it would be typed; a step whose package is missing is left out, and another failure ends it."""
    try:
        with program.command.make_context(program.info_name, shlex.split(words), obj=program.obj) as context:
            code = program.command.invoke(context).written()
    except MissingDependencyError as error:
        tell(str(error), "left out", "yellow")
        return
    if code not in (ExitCode.DONE, ExitCode.CHECK_FAILED):
        raise typer.Exit(code)
