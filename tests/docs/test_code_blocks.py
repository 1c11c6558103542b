"""Every Python block of the documents runs as it stands, from top to bottom of its page.

Blocks of one page share one namespace, as for a reader who types them in. A page that sets environment variables runs
in a process of its own, since what others have imported before would not see them. A block after the comment
`<!-- gpu -->` is only compiled, and runs where a GPU is; Triton's interpreter is not asked for there.
"""

import linecache
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.garbage import ENDS_UNSEARCHED

PROJECT = Path(__file__).parents[2]
PAGES = [*sorted(PROJECT.glob("README.md")), *sorted((PROJECT / "docs").rglob("*.md"))]
_INTERPRETED = 'os.environ["TRITON_INTERPRET"] = "1"'
_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[^`\n]*)$")


class Block(NamedTuple):
    """One fenced block; `line` is that of its first line of code."""

    line: int
    language: str
    text: str
    gpu: bool


def blocks(text):
    """All fenced blocks of a page, in order."""
    result, fence, body, gpu = [], None, [], False
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if fence is None and match:
            fence, start, body = match, number + 1, []
        elif fence is not None and match and match["ticks"] == fence["ticks"] and not match["language"]:
            code = "\n".join(body) + "\n"
            result.append(Block(start, fence["language"].strip(), code, gpu))
            fence, gpu = None, False
        elif fence is not None:
            body.append(line.removeprefix(fence["indent"]))
        elif line.strip():
            gpu = line.strip() == "<!-- gpu -->"
    assert fence is None, f"the fence of line {start - 1} is never closed"
    return result


def python_blocks(page):
    result = blocks(page.read_text(encoding="utf-8"))
    return [block for block in result if block.language == "python"]


def run_blocks(page, chosen, folder, monkeypatch):
    """Run them one after another; the lines of those that ran to their end."""
    monkeypatch.chdir(folder)
    namespace = {"__name__": "__main__"}
    done = []
    for block in chosen:
        # As the cells of a notebook: no file, but lines that are found by whoever reads a function's source, as Triton
        # does. They stand at the page's numbers, which tracebacks then name.
        cell = str(folder / f"{page.stem}_{block.line}.py")
        text = "\n" * (block.line - 1) + block.text
        linecache.cache[cell] = (len(text), None, text.splitlines(keepends=True), cell)
        exec(compile(text, cell, "exec"), namespace)
        done.append(block.line)
    return done


def run_apart(page, chosen, folder):
    """Run them in another process, as one file in which the code stands on the page's lines."""
    lines = [ENDS_UNSEARCHED.strip()]
    for block in chosen:
        lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    file = folder / f"{page.stem}.py"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(file)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def page_id(page):
    return str(page.relative_to(PROJECT))


def test_blocks_are_found():
    text = "a\n<!-- gpu -->\n\n```python\nx = 1\n```\n```console\n$ ls\n```\n- b\n  ```python\n  y\n  ```\n"
    assert blocks(text) == [
        Block(5, "python", "x = 1\n", True),
        Block(8, "console", "$ ls\n", False),
        Block(12, "python", "y\n", False),
    ]


def test_a_fence_that_is_never_closed_is_found():
    with pytest.raises(AssertionError, match="line 2"):
        blocks("a\n```python\nx = 1\n")


def test_blocks_share_names_and_keep_their_lines(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\ny = x + 1\nassert y == 3\n```\n")
    with pytest.raises(AssertionError) as caught:
        run_blocks(page, python_blocks(page), tmp_path, monkeypatch)
    assert caught.traceback[-1].lineno == 6  # counted from 0


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_block_compiles(page):
    for block in python_blocks(page):
        code = compile("\n" * (block.line - 1) + block.text, page_id(page), "exec")
        assert code.co_filename == page_id(page)


@pytest.mark.parametrize("page", [p for p in PAGES if python_blocks(p)], ids=page_id)
def test_blocks_run(page, tmp_path, monkeypatch):
    chosen = [block for block in python_blocks(page) if not block.gpu]
    if any("os.environ[" in block.text for block in chosen):
        run_apart(page, chosen, tmp_path)
    else:
        assert run_blocks(page, chosen, tmp_path, monkeypatch) == [block.line for block in chosen]


@pytest.mark.gpu
@pytest.mark.parametrize("page", [p for p in PAGES if any(b.gpu for b in python_blocks(p))], ids=page_id)
def test_blocks_run_on_a_gpu(page, tmp_path, monkeypatch):
    chosen = python_blocks(page)
    if any(_INTERPRETED in block.text for block in chosen):
        run_apart(page, [block._replace(text=block.text.replace(_INTERPRETED, "")) for block in chosen], tmp_path)
    else:
        assert run_blocks(page, chosen, tmp_path, monkeypatch) == [block.line for block in chosen]
