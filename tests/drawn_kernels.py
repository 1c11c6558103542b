"""Kernels whose text a test draws: JIT functions with a source that Python and Triton find."""

from __future__ import annotations

import itertools
import linecache
import textwrap
from typing import Any

import triton
import triton.language as tl

_numbers = itertools.count()


def jitted(parameters: str, body: str) -> Any:
    """A JIT function with these parameters and statements."""
    file = f"<drawn {next(_numbers)}>"
    text = f"def kernel({parameters}):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"tl": tl, "triton": triton}
    exec(compile(text, file, "exec"), names)
    return triton.jit(names["kernel"])
