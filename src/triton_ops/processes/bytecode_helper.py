"""A program, using only the standard library, that compiles the files named on stdin into a folder of bytecode.

    python bytecode_helper.py FOLDER PARENT < FILES

The program ends when the process PARENT is gone. Half-written files of helpers that were killed are removed after an
hour.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import sys
import time
from pathlib import Path

_OLD_S = 3600.0


def main(folder: str, parent: int) -> None:
    """Compile the files that have no bytecode in the folder yet."""
    sys.pycache_prefix = folder
    for name in sys.stdin.buffer.read().splitlines():
        if os.getppid() != parent:
            return
        compileall.compile_file(os.fsdecode(name), quiet=2)
    for torn in Path(folder).rglob("*.pyc.*"):
        with contextlib.suppress(OSError):
            if time.time() - torn.stat().st_mtime > _OLD_S:
                torn.unlink()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
