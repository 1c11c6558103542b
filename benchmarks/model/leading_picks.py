"""What the compiler tells of a model's leading picks: `python -m benchmarks.model.leading_picks RECORDING…`.

For each folder of recordings, the fraction of the optimum that the pick reaches, and the worst, by several rules over
the picks that the effort `expected` compiles and that do not spill heavily. A margin is the share by which another pick
must be ahead of the first one. Registers, spills and shared memory are the recording's. With `--compile` the PTX of
each pick is counted too, which takes Triton some seconds for each; a launch then takes at least the cycles in which the
schedulers issue its instructions, and those that the load and store unit is busy.

`left out` is the margin that is best over all spaces of the other folders, and what it reaches. The guard is judged
with the first value of each tunable as the default, for some expected gains from which on the model is sure: of the
pick by registers with the margin of `expected` beside the default, and as `expected` asks, of the first pick too.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.document import headed, save
from benchmarks.model.inferred_quality import inferred, kernel_of, readings_of
from benchmarks.model.model_quality import read, resources_of, time_ms
from triton_ops.backend import Compiler
from triton_ops.cost_model import Readings
from triton_ops.cost_model.blocks import overlap_ns
from triton_ops.device import Machine, Target
from triton_ops.exceptions import TargetError
from triton_ops.kernel_ir import LaunchWork
from triton_ops.kernel_ir.machine_code import PtxText, loop_lines
from triton_ops.request import Effort
from triton_ops.space import Config
from triton_ops.tuner import expectation
from triton_ops.values import Resources

_MARGINS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.15)
_GAINS = (0.0, 0.05, 0.1, 0.15)
_LOSS = 0.02
_EXPONENT = 4  # of times that pass together: between the 2 of a chain and the 5.5 of a pipelined loop
_INSTRUCTION = re.compile(r"^\s*(?:@!?%p\d+\s+)?([a-z]\w*)[.\s]")
_FREE = ("mov", "ret", "bra")  # which ptxas takes away, or are few
_WORDS = re.compile(r"\.(?:v(\d)\.)?[bfsu](\d+)\b")
_SCHEDULERS, _WORD_BITS = 4, 32


@dataclass(frozen=True)
class Pick:
    """A config with its time, and what is expected of it."""

    config: Mapping[str, Any]
    time_ms: float
    guessed_ms: float  # before it is compiled, but for whether its products are serialised
    known_ms: float  # with what the compiler made of it
    cycles_ms: Mapping[str, float]  # of its instructions; empty where they were not counted

    @property
    def counted_ms(self) -> float:
        """The time with its instructions."""
        return overlap_ns({"model": self.known_ms, **self.cycles_ms}, _EXPONENT)


@dataclass(frozen=True)
class Space:
    """A space's optimum, its author's default, and the leading picks that do not spill heavily, the first one first."""

    folder: str
    best_ms: float
    default: Pick
    picks: Sequence[Pick]

    def pick(self, score: Score, margin: float) -> Pick:
        """The first pick, unless another one is ahead of it by the margin."""
        fastest = min(self.picks, key=score)
        return fastest if score(self.picks[0]) >= (1 + margin) * score(fastest) else self.picks[0]


Score: TypeAlias = "Callable[[Pick], float]"
KNOWN: Score = attrgetter("known_ms")
COUNTED: Score = attrgetter("counted_ms")


def space_of(path: Path, compiles: bool) -> Space | None:
    """The space of a recording; None where the model is silent."""
    recording = read(path)
    works = readings_of(recording)
    if works is None or (model := inferred(recording, works)) is None or model.machine is None:
        return None
    rows = [row for row in recording["rows"] if row["status"] == "ok"]
    guesses = model.score([row["config"] for row in rows])
    first = sorted(range(len(rows)), key=guesses.__getitem__)[: Effort.named("expected").previews]
    light = [at for at in first if not resources_of(rows[at], recording).wasteful] or first
    compiler = _compiler(recording) if compiles else None

    def pick(at: int) -> Pick:
        config, known = rows[at]["config"], resources_of(rows[at], recording)
        flags = None if known.serialised is None else Resources(serialised=known.serialised)
        cycles = {} if compiler is None else _cycles_ms(compiler, config, works, model.machine)
        return Pick(
            config, time_ms(rows[at]), model.expected_ms(config, flags), model.expected_ms(config, known), cycles
        )

    plain = {name: values[0] for name, values in recording["space"].items()}
    default = next(at for at, row in enumerate(rows) if row["config"] == plain)
    folder = path.parent.name if path.parent.name in ("fresh", "unseen") else "older"
    ordered = sorted(map(pick, light), key=lambda one: one.guessed_ms)
    return Space(folder, min(map(time_ms, rows)), pick(default), ordered)


def _compiler(recording: Mapping[str, Any]) -> Any:
    loaded = kernel_of(recording)
    if loaded is None:
        return None
    return Compiler.of(loaded[0], loaded[1].described(light=False), Target.named("sm_90"), {})


def _cycles_ms(compiler: Any, config: Mapping[str, Any], works: Readings, machine: Machine) -> dict[str, float]:
    """The milliseconds of the schedulers and of the load and store unit, over all launches of a config."""
    try:
        parts = compiler.built(Config(config))
    except TargetError:  # the kernel has got a tunable since it was recorded
        return {}
    total: Counter[str] = Counter()
    for part, launch in zip(parts, works.work_of(config).launches, strict=True):
        warps = int(part.metadata["num_warps"])
        blocks = launch.programs / machine.units
        issued, busy = _counts(PtxText(part.assembly), launch, 32 * warps)
        scale = max(blocks, 1.0) * warps / machine.clock_ghz / 1e6
        total.update({"issue": scale * issued / _SCHEDULERS, "load unit": scale * busy})
    return dict(total)


def _counts(ptx: PtxText, launch: LaunchWork, threads: int) -> tuple[float, float]:
    """Instructions of a thread, and cycles of the load and store unit for one warp.

    What is in loops counts as often as it must run to load what the loops of the TTIR load.
    """
    inside, issued, busy = loop_lines(ptx), [0.0, 0.0], [0.0, 0.0]
    for at, line in enumerate(ptx.splitlines()):
        if (name := _INSTRUCTION.match(line)) is not None and name[1] not in _FREE:
            issued[at in inside] += 1
            busy[at in inside] += _busy(name[1], line)
    in_loops = PtxText("\n".join(line for at, line in enumerate(ptx.splitlines()) if at in inside))
    ptx_bytes = sum(sum(widths) for key, widths in in_loops.widths().items() if key[0] == "load")
    ttir_bytes = sum(
        max(access.tile, threads) * access.item_bytes * access.executions
        for access in launch.accesses if access.kind == "load" and access.loop >= 0
    )  # fmt: skip
    turns = max((loop.turns for loop in launch.loops), default=1.0)
    turns = max(ttir_bytes / (ptx_bytes * threads) if ptx_bytes and ttir_bytes else turns, 1.0)
    return issued[0] + turns * issued[1], busy[0] + turns * busy[1]


def _busy(name: str, line: str) -> float:
    """Cycles that the load and store unit is busy with one instruction of a warp: one for each word of a lane."""
    if name in ("ldmatrix", "stmatrix"):
        return next((tiles for tiles in (4, 2) if f".x{tiles}" in line), 1)
    if name in ("ld", "st") and "param" not in line and (words := _WORDS.search(line)) is not None:
        return max(1.0, int(words[2]) * int(words[1] or 1) / _WORD_BITS)
    if name == "cp" and (size := re.search(r"\],\s*(0x[0-9a-fA-F]+|\d+)", line)) is not None:
        return int(size[1], 0) * 8 / _WORD_BITS
    return float(name in ("shfl", "atom", "red"))


def _reached(spaces: Sequence[Space], score: Score, margin: float) -> tuple[float, float]:
    fractions = [space.best_ms / space.pick(score, margin).time_ms for space in spaces]
    return round(statistics.mean(fractions), 4), round(min(fractions), 4)


def rules(compiled: bool) -> dict[str, tuple[Score, float]]:
    """The rules by name, each with its score and margin."""
    counted = (
        {"instructions": (COUNTED, 0.0), "instructions, margin": (COUNTED, expectation._ERROR)} if compiled else {}
    )
    return {
        "first": (attrgetter("guessed_ms"), 0.0),
        "registers": (KNOWN, 0.0),
        "registers, margin": (KNOWN, expectation._ERROR),
        **counted,
        "best": (attrgetter("time_ms"), 0.0),
    }


def guard(spaces: Sequence[Space], gain: float, *, both: bool) -> dict[str, float]:
    """How often the model is sure beside the author's default, and how fast its picks then are."""
    speeds = []
    for space in spaces:
        pick = space.pick(KNOWN, expectation._ERROR)
        beside = space.picks[0] if both else pick
        if pick.config != space.default.config and space.default.known_ms >= (1 + gain) * beside.known_ms:
            speeds.append(space.default.time_ms / pick.time_ms)
    slower = sum(speed < 1 - _LOSS for speed in speeds)
    return {"sure": len(speeds), "slower": slower, "lowest": round(min(speeds, default=1.0), 4)}


def report(spaces: Sequence[Space], compiled: bool) -> dict[str, Any]:
    """The figures of each folder."""
    folders = {name: [space for space in spaces if space.folder == name] for name in {s.folder for s in spaces}}
    answer: dict[str, Any] = {}
    for name, inside in sorted(folders.items()):
        others = [space for space in spaces if space.folder != name]
        chosen = max(_MARGINS, key=lambda margin: _reached(others, KNOWN, margin)[0]) if others else math.nan
        answer[name] = {
            "spaces": len(inside),
            "rules": {rule: _reached(inside, *scored) for rule, scored in rules(compiled).items()},
            "margins": {str(margin): _reached(inside, KNOWN, margin)[0] for margin in _MARGINS},
            "left out": (chosen, *_reached(inside, KNOWN, chosen)) if others else None,
            "guard": {str(gain): guard(inside, gain, both=False) for gain in _GAINS},
            "guard of both": {str(gain): guard(inside, gain, both=True) for gain in _GAINS},
        }
    return answer


def main() -> None:
    """Print the figures, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--compile", action="store_true", help="count the instructions of the picks' PTX too")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--commit", help="of the tree that the script stands in, where that is no clone")
    options = parser.parse_args()
    spaces = [space for path in options.recordings if (space := space_of(path, options.compile)) is not None]
    figures = report(spaces, options.compile)
    for name, each in figures.items():
        print(name, *(f"  {what}: {content}" for what, content in each.items()), sep="\n")
    if options.json:
        command = f"python -m benchmarks.model.leading_picks {'--compile ' * options.compile}RECORDING…"
        save(options.json, headed(command, options.commit, folders=figures))


if __name__ == "__main__":
    main()
