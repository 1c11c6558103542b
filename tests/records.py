"""Records for tests of stores, and a Python process of its own for what needs one."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import triton_ops
from triton_ops.base import StoredFile
from triton_ops.records import Record, Timing
from triton_ops.space import Config
from triton_ops.values import Key

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(triton_ops.__file__).parents[1]), *sys.path])}


def record(kernel: str = "matmul", **changes: Any) -> Record:
    key = Key(
        kernel=kernel,
        problem={"M": 4096},
        identity={"source": "ab"},
        device={"name": "H200"},
        cache_state="cold",
        label="4096 × 64",
    )
    plain = Record(key=key, winner=Config(BLOCK=64), timing=Timing(1.0, 0.9, 1.1, 50), mode="event-cold")
    return replace(plain, **changes)


def run_python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python with the package on its path; `-c SCRIPT` or a file comes first."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def full_disk(file: StoredFile, text: str) -> None:
    """Stands in for `StoredFile.replace`."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
