"""Run `triton-ops replay` and keep what it found: `python -m benchmarks.search.replays FILE.json ARGUMENT…`.

The file says when, at which commit and by which command it was made.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path

from benchmarks.document import headed, save


def main() -> int:
    """Run the command with the arguments, and write its JSON with a head that leaves out the recordings."""
    parser = argparse.ArgumentParser(description="Run `triton-ops replay`, and keep what it found.")
    parser.add_argument("file", type=Path, help="where to write the result")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="as of `triton-ops replay`")
    asked = parser.parse_args()
    arguments = asked.arguments
    command = [sys.executable, "-m", "triton_ops", "replay", *arguments, "--json"]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if process.returncode == 0:
        command_text = shlex.join(["triton-ops", "replay", *(word for word in arguments if not Path(word).is_file())])
        save(asked.file, headed(command_text, None, **json.loads(process.stdout)))
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
