"""The process that runs a command for the server: `python -c ... main()`.

The command is a process of its own: what it starts, and what leaves it, ends with this one.
"""

from __future__ import annotations

import json
import subprocess
import sys

from triton_ops.processes import Child
from triton_ops_mcp.answers import trimmed


def main() -> None:
    """Run each command that is asked for, and answer with its exit code and its document, trimmed."""
    child = Child()
    for words in child.messages():
        command = [sys.executable, "-m", "triton_ops", *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
        try:
            document = json.loads(done.stdout)
        except ValueError:
            sys.exit(f"triton-ops ended with code {done.returncode} and without a document")
        child.send((done.returncode, trimmed(document)))
