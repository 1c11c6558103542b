"""Copies of recordings that say nothing of the kernel's work, so that a search is not helped by a model of it.

    python -m benchmarks.search.tunables_only RECORDING... --to FOLDER
    triton-ops replay FOLDER/*.json.gz --search auto,random --seeds 25 --trials 10,25,50 --json > NAME_tunables.json

The last word of that name tells the table what the runs in it did without.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SAID = ("kind", "work")  # what a model of the work is made from


def stripped(content: Mapping[str, Any]) -> dict[str, Any]:
    """The recording without what tells the kernel's work."""
    return {name: value for name, value in content.items() if name not in _SAID}


def main() -> None:
    """Write a copy of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    for path in options.recordings:
        content = stripped(json.loads(gzip.decompress(path.read_bytes())))
        (options.to / path.name).write_bytes(gzip.compress(json.dumps(content).encode(), mtime=0))


if __name__ == "__main__":
    main()
