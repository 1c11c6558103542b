"""What a problem makes a device do, and how its kernel cuts it into tiles: declared by the author in a few lines.

The least work is enough for throughput and for a lower bound. Tiles add which tunable is which side of a tile, and with
that the model can rank configs (`ranking/predict.py`); without tiles the model says nothing.

The shipped families of tiles are in `ranking/gemm.py`, `ranking/attention.py` and `ranking/rows.py`; an object of the
user's own takes part in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from triton_ops.exceptions import SpaceError

if TYPE_CHECKING:
    from triton_ops.hardware import Machine

Tile: TypeAlias = "str | int"
"""One side of a tile: the name of the tunable that holds it, or its fixed length in elements."""

WARPS, STAGES = 4, 3  # what Triton takes where a config names neither


class UnknownTileError(SpaceError):
    """A config or a device does not say what a plan of the tiles would need: the model is silent about it."""


@dataclass(frozen=True)
class Footprint:
    """What one block takes of its multiprocessor.

    Attributes:
        registers: Per thread.
        spill_bytes: Per thread.
        shared_bytes: Per block.
        known: Whether the compiler said so.
    """

    registers: int
    spill_bytes: float
    shared_bytes: int
    known: bool = False


@dataclass(frozen=True)
class Schedule:
    """All blocks of a launch.

    Attributes:
        time_ms: Of the whole launch, without what launching costs.
        waves: How often the device is filled; the last one may be partial.
        alone_ms: What each resource would take if it were the only one, by name.
    """

    time_ms: float
    waves: float
    alone_ms: dict[str, float] = field(hash=False)


@dataclass(frozen=True)
class TilePlan:
    """What one config makes of the tiles on one device, before it is compiled.

    Attributes:
        warps: Per block.
        footprint: What a block will probably take. Once the config was compiled, the compiler's figures replace it.
        schedule: From what a block takes to the time of all blocks.
    """

    warps: int
    footprint: Footprint
    schedule: Callable[[Footprint], Schedule]


class Tiles(Protocol):
    """How a kernel cuts its work into tiles."""

    def plan(self, config: Mapping[str, Any], machine: Machine) -> TilePlan:
        """What `config` makes of them on `machine`.

        Cost: asked for every config that the search orders, so some ten microseconds are right.

        Raises:
            UnknownTileError: The config has no such tunable, or the device no rate for the dtype.
        """


def tile_side(side: Tile | Any, config: Mapping[str, Any]) -> int:
    """A side's length in this config.

    Raises:
        UnknownTileError: The config has no such tunable, or its value is no length.
    """
    value = config.get(side) if isinstance(side, str) else side
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UnknownTileError(f"{side} is {value!r}; the side of a tile must be a whole number of 1 or more")
    return value


def warps_and_stages(config: Mapping[str, Any]) -> tuple[int, int]:
    """How many warps a block has, and stages its pipeline, where Triton's defaults fill in.

    Raises:
        UnknownTileError: One of them is no whole number of 1 or more.
    """
    return tile_side(config.get("num_warps", WARPS), config), tile_side(config.get("num_stages", STAGES), config)


@dataclass(frozen=True)
class Work:
    """The least a problem makes the device do, whatever the config; and how the kernel cuts it into tiles.

    Attributes:
        flops: Floating-point operations; 0 where they are not what limits.
        bytes: Bytes through device memory: each input read once, each output written once.
        tiles: How the kernel cuts the work into tiles: of a shipped family, or an object of your own with the method of
            `Tiles`. None keeps the model silent.

    Raises:
        SpaceError: `tiles` has no method `plan`.
    """

    flops: float = 0.0
    bytes: float = 0.0
    tiles: Tiles | None = None

    def __post_init__(self) -> None:
        if self.tiles is not None and not callable(getattr(self.tiles, "plan", None)):
            raise SpaceError(
                f"tiles is {self.tiles!r}, which has no method `plan`",
                hint="use GemmTiles, RowTiles, ElementTiles or AttentionTiles, or leave the tiles out",
            )

    def tflops(self, latency_ms: float) -> float:
        """Achieved 10^12 operations per second."""
        return self.flops / (latency_ms * 1e9)

    def gbps(self, latency_ms: float) -> float:
        """Achieved 10^9 bytes per second."""
        return self.bytes / (latency_ms * 1e6)
