"""The place of each config in a ranking by expected time, and what explains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any

from triton_ops.cost_model import Forecast, Model
from triton_ops.device import Machine, Residents
from triton_ops.values import STAGES, WARPS, UnknownTileError, Work, is_power_of_two

_THREADS = 1024  # most of one block
_ELEMENTS = 1_048_576  # most of one tile: Triton's limit
_ALGORITHMS = ("tiles", "persistent", "split_k", "stream_k")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One config in a ranking.

    Attributes:
        place: 1 for the config that is expected to win, 2 for the next; 0 for one that cannot run.
        config: The config.
        score: 100 for the winner, and the share of its speed for others; 0 for a config that cannot run.
        why_not: Why the config cannot run; empty if it can.
        forecast: The expected time with its reasons; None where there is none.
        warps: Warps of one block.
        stages: Stages of its pipeline.
        residents: Blocks and warps that one multiprocessor holds at a time, and what limits them; None for a config
            that cannot run.
        idle: Share of the places for blocks that stay empty, because the last wave is partial.
        of_shared: Shared memory of a block over what the device gives it at most.
    """

    place: int
    config: Mapping[str, Any]
    score: float
    why_not: str
    forecast: Forecast | None
    warps: int
    stages: int
    residents: Residents | None
    idle: float
    of_shared: float

    @property
    def occupancy(self) -> float:
        """Share of the warps that a multiprocessor can hold which the blocks on it fill."""
        return 0.0 if self.residents is None else self.residents.occupancy

    @property
    def limited_by(self) -> str:
        """The resource that would take longest alone; what forbids the config if it cannot run."""
        if self.why_not or self.forecast is None:
            return self.why_not
        return self.forecast.terms[0].name


def ranked(
    work: Work,
    machine: Machine,
    configs: Sequence[Mapping[str, Any]],
    sides: Mapping[str, int],
    factors: Sequence[float] = (),
) -> list[Standing]:
    """The configs by expected time, the shortest first, equal ones as they were given; those that cannot run are last.

    Args:
        work: The work, with tiles.
        machine: The device.
        configs: The configs.
        sides: Tunables that are sides of tiles, with the least length of each; a recording's configs, which Triton has
            taken, need none.
        factors: For each config a factor on its time, by which a ranking can be disturbed on purpose; empty is none.
    """
    found = [placed(work, machine, config, sides) for config in configs]
    timed = [(one, one[2] * (factors[at] if factors else 1.0)) for at, one in enumerate(found)]
    able = sorted([pair for pair in timed if not pair[0][1]], key=lambda pair: pair[1])
    best = able[0][1] if able else 0.0
    standings = [_standing(at + 1, machine, one, 100.0 * best / ms) for at, (one, ms) in enumerate(able)]
    return [*standings, *[_standing(0, machine, one, 0.0) for one in found if one[1]]]


def placed(
    work: Work, machine: Machine, config: Mapping[str, Any], sides: Mapping[str, int]
) -> tuple[Mapping[str, Any], str, float, Forecast | None]:
    """A config, why it cannot run if it cannot, its expected milliseconds, and its forecast if there is one."""
    wrong = _ill_formed(config, sides)
    if wrong:
        return config, wrong, 0.0, None
    forecast = Model(work, machine).explain(config)
    if forecast is None:
        return config, _silent(work, machine, config), 0.0, None
    if not isfinite(forecast.expected_ms):
        limit = machine.shared_bytes_per_block
        return (
            config,
            f"needs {forecast.shared_bytes:,} bytes of shared memory per block; the limit is {limit:,}",
            0.0,
            forecast,
        )
    return config, "", forecast.expected_ms, forecast


def _silent(work: Work, machine: Machine, config: Mapping[str, Any]) -> str:
    """Why the model says nothing of a config."""
    if work.tiles is None:
        return "the work has no tiles"
    try:
        work.tiles.plan(config, machine)
    except UnknownTileError as error:
        return error.message
    return "the model makes no forecast"


def _ill_formed(config: Mapping[str, Any], sides: Mapping[str, int]) -> str:
    """Why Triton would not compile a config, as far as its values tell; empty if they tell nothing."""
    for name, least in [*sides.items(), ("num_warps", 1)]:
        value = config.get(name, WARPS if name == "num_warps" else None)
        if not _is_count(value):
            return f"{name} must be a whole number of 1 or more"
        if not is_power_of_two(value):
            return f"{name} is {value}, which is no power of two"
        if value < least:
            return f"{name} is {value}; the product needs {least} or more"
    if not _is_count(config.get("num_stages", STAGES)):
        return "num_stages must be a whole number of 1 or more"
    if 32 * config.get("num_warps", WARPS) > _THREADS:
        return f"{config['num_warps']} warps are more than {_THREADS} threads, the most of one block"
    if sides and config.get("BM", 1) * config.get("BN", 1) > _ELEMENTS:
        return f"a tile of {config['BM']} by {config['BN']} has more than {_ELEMENTS:,} elements"
    return _unknown_form(config) if sides else ""


def _unknown_form(config: Mapping[str, Any]) -> str:
    """What is wrong with the tunables that only products by other algorithms have."""
    algorithm = config.get("ALGORITHM", "tiles")
    if algorithm not in _ALGORITHMS:
        return f"ALGORITHM is none of {', '.join(_ALGORITHMS)}"
    for name in ("GROUP_M", "SPLIT"):
        if not _is_count(config.get(name, 1)):
            return f"{name} must be a whole number of 1 or more"
    programs = config.get("PROGRAMS", 0)
    return "" if programs == 0 or _is_count(programs) else "PROGRAMS must be a whole number"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1 and value <= 2**31


def _standing(
    place: int, machine: Machine, found: tuple[Mapping[str, Any], str, float, Forecast | None], score: float
) -> Standing:
    config, why_not, _, forecast = found
    warps = 0 if why_not else config.get("num_warps", WARPS)
    idle = of_shared = 0.0
    residents = None
    if forecast is not None:
        idle = 1 - forecast.waves / ceil(forecast.waves)
        of_shared = forecast.shared_bytes / machine.shared_bytes_per_block
        residents = machine.limits.residents(forecast.registers, forecast.shared_bytes, warps) if place else None
    return Standing(
        place=place,
        config=config,
        score=score,
        why_not=why_not,
        forecast=forecast,
        warps=warps,
        stages=0 if why_not else config.get("num_stages", STAGES),
        residents=residents,
        idle=idle,
        of_shared=of_shared,
    )
