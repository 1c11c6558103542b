"""Copies of recordings for further replays: parts of their spaces, and copies that say nothing of the kernel's work.

    python -m benchmarks.search.derived FOLDER RECORDING... --as parts
    python -m benchmarks.search.derived FOLDER RECORDING... --as tunables
    triton-ops replay FOLDER/*.json.gz --search auto,random --seeds 25 --trials 10,25,50 --json > NAME_tunables.json

Of each recording there are two parts: without the fastest config's value of the tunable with the most values that is no
launch option, and without its `num_warps`. Each is a space that somebody could have written, with another optimum;
parts of one recording are related, and count as less than spaces of their own. With tunables alone a search is not
helped by a model of the kernel's work; the last word of the results' name tells the table what the runs did without.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.model.model_quality import read, time_ms
from triton_ops_lab.recording import write_recording

_OPTIONS = ("num_warps", "num_stages")
_SAID = ("kind", "work")  # what a model of the work is made from


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


def stripped(content: Mapping[str, Any]) -> dict[str, Any]:
    """The recording without what tells the kernel's work."""
    return {name: value for name, value in content.items() if name not in _SAID}


def derived(recording: Mapping[str, Any], how: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The copies of a recording, each with what its file's name has more."""
    if how == "tunables":
        yield "", stripped(recording)
        return
    for name in left_out(recording):
        yield f"-without-one-{name}", part_without(recording, name)


def main() -> None:
    """Write the copies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--as", dest="how", choices=("parts", "tunables"), required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for path in options.recordings:
        stem, dot, rest = path.name.partition(".json")
        for suffix, copy in derived(read(path), options.how):
            write_recording(options.folder / f"{stem}{suffix}{dot}{rest}", copy)


if __name__ == "__main__":
    main()
