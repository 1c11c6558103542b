"""The work of a problem, and the tiles into which a kernel cuts it, which the kernel's author declares in a few lines.

The least operations and bytes are enough for throughput and for a lower bound. Tiles add which tunable is which side of
a tile, so that the model can rank configs; without tiles the model makes no forecast. The user's own object is used as
a shipped family of tiles is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, log2
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from triton_ops.exceptions import SpaceError

if TYPE_CHECKING:
    from triton_ops import device


Tile: TypeAlias = "str | int"
"""One side of a tile: the name of the tunable that has its length, or its fixed length in elements."""

_WARPS, _STAGES = 4, 3  # Triton's defaults for a config that names neither


class UnknownTileError(SpaceError):
    """A config or a device lacks a value that a plan of the tiles needs: the model makes no forecast for the config."""


@dataclass(frozen=True)
class Footprint:
    """The resources that one block takes of its multiprocessor."""

    registers: int  # per thread
    spill_bytes: float  # of registers per thread
    shared_bytes: int  # per block
    known: bool = False  # from the compiler; otherwise guessed
    serialised: bool | None = None  # each product of a warp group waits for the one before; None where not known


@dataclass(frozen=True)
class Schedule:
    """The time of all blocks of a launch."""

    time_ms: float  # without the launch overhead
    waves: float  # how often the device is filled with blocks; the last wave may be partial
    alone_ms: dict[str, float] = field(hash=False)  # of each resource by name, if it were the only one


@dataclass(frozen=True)
class TilePlan:
    """The plan of one config's tiles on one device, before the config is compiled."""

    warps: int  # per block
    footprint: Footprint  # a guess, which the compiler's figures replace later
    schedule: Callable[[Footprint], Schedule]  # the time of all blocks by what one takes


class Tiles(Protocol):
    """The cut of a kernel's work into tiles."""

    def plan(self, config: Mapping[str, Any], machine: device.Machine) -> TilePlan:
        """The plan of the tiles by `config` on `machine`; UnknownTileError if either lacks what it needs.

        Cost: the search asks for a plan of every config that it orders, so a plan should take some ten microseconds.
        """


def tile_side(side: Tile | Any, config: Mapping[str, Any]) -> int:
    """The length of a tile's side in this config; UnknownTileError if it lacks the tunable or a length."""
    value = config.get(side) if isinstance(side, str) else side
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UnknownTileError(f"{side} is {value!r}; the side of a tile must be a whole number of 1 or more")
    return value


def warps_and_stages(config: Mapping[str, Any]) -> tuple[int, int]:
    """The number of warps of a block, and of stages of its pipeline; Triton's defaults if the config names none."""
    return tile_side(config.get("num_warps", _WARPS), config), tile_side(config.get("num_stages", _STAGES), config)


def is_power_of_two(number: int) -> bool:
    """True if a whole number is a power of two, as Triton wants it of warps and of the sides of tiles."""
    return number > 0 and 2.0 ** ceil(log2(number)) == number


@dataclass(frozen=True)
class Work:
    """The least work of a problem, whatever the config, and how the kernel cuts the work into tiles.

    Attributes:
        flops: Floating-point operations; 0 if they do not limit the time.
        bytes: Bytes through device memory: each input read once, each output written once.
        tiles: How the kernel cuts the work into tiles: an object of a shipped family, or the user's own object with the
            method of `Tiles`. With None the model makes no forecast.

    Raises:
        SpaceError: `tiles` has no method `plan`.
    """

    flops: float = 0.0
    bytes: float = 0.0
    tiles: Tiles | None = None

    def __post_init__(self) -> None:
        if self.tiles is not None and not callable(getattr(self.tiles, "plan", None)):
            hint = "use GemmTiles, RowTiles, ElementTiles or AttentionTiles, or leave the tiles out"
            raise SpaceError(f"tiles is {self.tiles!r}, which has no method `plan`", hint=hint)

    @property
    def dtype(self) -> str:
        """The dtype of the operands; empty if the tiles do not say, or the operations do not limit the time."""
        return getattr(self.tiles, "dtype", "") if self.flops else ""

    def tflops(self, latency_ms: float) -> float:
        """Achieved 10^12 operations per second."""
        return self.flops / (latency_ms * 1e9)

    def gbps(self, latency_ms: float) -> float:
        """Achieved 10^9 bytes per second."""
        return self.bytes / (latency_ms * 1e6)
