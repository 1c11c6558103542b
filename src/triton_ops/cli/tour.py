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

from triton_ops import Operation, TensorSpec, TritonKernel


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at), mask=at < n)


def arguments(n: int = 1 << 24):
    return {"x": TensorSpec((n,), "float32"), "out": TensorSpec((n,), "float32", fill="empty"), "n": n}


doubled = Operation(
    "doubled",
    TritonKernel(double, grid=lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),), outputs=("out",)),
    {"BLOCK": [64, 256, 1024, 4096], "num_warps": [4, 8]},
    arguments,
)
""",
}
_TUNE = "tune squares.py:squares --space size=64,256,1024,4096,16384,65536 --device cpu --cache-dir records"
_STEPS = (
    ("Tune: squares.py squares 262,144 numbers with NumPy, `size` at a time. Which size is fastest?", _TUNE),
    ("Recall: the same call again is answered from its record, and nothing runs.", _TUNE),
    ("Lint: doubled.py has a Triton kernel with a planted bug. Lint names its line and a fix.", "lint doubled.py"),
    ("Rank: no GPU is here. Which of the kernel's configs should be the fastest on an H100, and what limits each?",
     "explain rank doubled.py:doubled --gpu H100"),
    ("Compile: each config's registers, spilled registers and shared memory on an H100, from Triton's own compiler.",
     "compile doubled.py:doubled --shape 16777216 --gpu H100"),
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
    # Lint ends with CHECK_FAILED, since it finds the planted bug.
    if code not in (ExitCode.DONE, ExitCode.CHECK_FAILED):
        raise typer.Exit(code)
