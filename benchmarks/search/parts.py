"""Parts of recorded spaces, for replays on more spaces: `python -m benchmarks.search.parts FOLDER RECORDING…`.

Of each recording two parts are written into the folder: without the fastest config's value of the tunable with the most
values that is no launch option, and without its `num_warps`. Each is a space that somebody could have written, with
another optimum; parts of one recording are related, and count as less than spaces of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.model.model_quality import read, time_ms
from triton_ops_lab.recording import write_recording

_OPTIONS = ("num_warps", "num_stages")


def part_without(recording: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The recording without the configs that have the fastest config's value of the tunable `name`."""
    measured = [row for row in recording["rows"] if row["status"] == "ok"]
    value = min(measured, key=time_ms)["config"][name]
    rows = [row for row in recording["rows"] if row["config"][name] != value]
    values = [other for other in recording["space"][name] if other != value]
    return {**recording, "space": {**recording["space"], name: values}, "rows": rows}


def left_out(recording: Mapping[str, Any]) -> list[str]:
    """The tunables of which a part has one value less."""
    sizes = {name: len(values) for name, values in recording["space"].items()}
    tiles = [name for name in sizes if name not in _OPTIONS]
    names = [max(tiles, key=sizes.__getitem__), "num_warps"]
    return [name for name in names if sizes.get(name, 0) > 1]


def main() -> None:
    """Write the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("recordings", nargs="+", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for path in options.recordings:
        recording = read(path)
        for name in left_out(recording):
            stem, dot, rest = path.name.partition(".json")
            write_recording(options.folder / f"{stem}-without-one-{name}{dot}{rest}", part_without(recording, name))


if __name__ == "__main__":
    main()
