"""How well the model ranks recorded spaces: `python -m benchmarks.model.model_quality RECORDING… [--json FILE]`.

For every space and both modes, before compiling (knobs) and after it (compiled): Spearman's correlation with the best
estimates of all configs that ran, and the fraction of the optimum that the model's first 1, 5, 10 and 25 reach.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.document import save
from triton_ops.cost_model import Model
from triton_ops.device import Calibration, DeviceSpec, Machine
from triton_ops.values import Resources
from triton_ops_lab.recording import recorded_work

FIRST = (1, 5, 10, 25)
_WORD_BYTES = 4  # the first recordings count spilled registers; `triton-ops record` counts bytes, and names Python
_NOT_RANKED = math.inf


def read(path: Path) -> dict[str, Any]:
    """A recording, gzip or plain JSON, without its checksum: what is written again gets one of its own."""
    raw = path.read_bytes()
    content: dict[str, Any] = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    return {name: value for name, value in content.items() if name != "checksum"}


def time_ms(row: dict[str, Any]) -> float:
    """The best estimate of a row's time."""
    if row.get("final"):
        return statistics.median(each[2] for each in row["final"])
    return float(min(each[2] for each in row["ms"]))


def resources_of(row: dict[str, Any], recording: Mapping[str, Any]) -> Resources:
    """What the compiler made of a row's config."""
    unit = 1 if "python" in recording else _WORD_BYTES
    spilled = (row.get("spills") or 0) * unit
    return Resources(row.get("regs"), spilled, row.get("shared"), serialised=row.get("serialised"))


def recorded_model(recording: Mapping[str, Any], calibration: Calibration | None = None) -> Model | None:
    """The model of a recording's space on the device that it names; None if the model would make no forecast."""
    work = recorded_work(recording)
    spec = DeviceSpec.named(str(recording.get("gpu", "")))
    machine = None if spec is None else Machine.of(replace(spec, calibration=calibration))
    return None if work is None or work.tiles is None or machine is None else Model(work, machine)


def quality(recording: dict[str, Any], calibration: Any = None) -> dict[str, dict[str, float]] | None:
    """Both modes' figures; None where the model is silent."""
    model = recorded_model(recording, calibration)
    if model is None:
        return None
    rows = [row for row in recording["rows"] if row["status"] == "ok"]
    times = [time_ms(row) for row in rows]
    knobs = model.score([row["config"] for row in rows])
    compiled = [model.expected_ms(row["config"], resources_of(row, recording)) for row in rows]
    return {"knobs": figures(knobs, times), "compiled": figures(compiled, times)}


def figures(scores: Sequence[float], times: Sequence[float]) -> dict[str, float]:
    """Spearman's correlation, the first configs' share of the optimum, and the bias of the level."""
    order = sorted(range(len(times)), key=lambda at: scores[at])
    best = min(times)
    shares = {"spearman": Model.spearman(scores, times)}
    shares |= {f"best_of_{count}": best / min(times[at] for at in order[:count]) for count in FIRST}
    shares["level"] = statistics.median(score / time for score, time in zip(scores, times, strict=True))
    return {name: round(value, 4) for name, value in shares.items()}


def show(spaces: Mapping[str, Mapping[str, Mapping[str, float]] | None]) -> None:
    """Print the figures of each space, mode by mode."""
    print(f"{'space':<36} {'mode':<9} spearman  of 1   of 5   of 10  of 25  level")
    for name, modes in spaces.items():
        if modes is None:
            print(f"{name:<36} the model is silent")
            continue
        for mode, each in modes.items():
            of = "  ".join(f"{each[f'best_of_{count}']:.3f}" for count in FIRST)
            print(f"{name:<36} {mode:<9} {each['spearman']:.3f}     {of}  {each['level']:.2f}")


def main() -> None:
    """Print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    spaces = {path.name: quality(read(path)) for path in options.recordings}
    show(spaces)
    if options.json:
        save(options.json, {"spaces": spaces})


if __name__ == "__main__":
    main()
