"""The place of each config in a ranking by expected time, and what explains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any, NamedTuple

from triton_ops.compilation import STAGES as STAGE_COUNTS
from triton_ops.compilation import Timeline, timeline
from triton_ops.cost_model import Forecast, Model
from triton_ops.device import Machine, Residents
from triton_ops.lab.expectation import load_steps
from triton_ops.values import STAGES, WARPS, UnknownTileError, Work, is_power_of_two

_THREADS = 1024  # most of one block
_ELEMENTS = 1_048_576  # most of one tile: Triton's limit
_ALGORITHMS = ("tiles", "persistent", "split_k", "stream_k")


def percent(share: float) -> str:
    """A share in whole percents."""
    return f"{100 * share:.0f} %"


def config_text(config: Mapping[str, Any]) -> str:
    """A config as it is typed."""
    return " ".join(f"{name}={value}" for name, value in config.items())


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One config in a ranking.

    Attributes:
        place: 1 for the config that is expected to win, 2 for the next; 0 for one that cannot run.
        score: 100 for the winner, and the share of its speed for others; 0 for a config that cannot run.
        why_not: Why the config cannot run; empty if it can.
        forecast: The expected time with its reasons; None where there is none.
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

    @property
    def timelines(self) -> list[Timeline]:
        """The pipeline of the config's loop with one to five stages; none for a kernel without a pipeline."""
        load, is_forecast = load_steps(self.forecast, self.stages)
        return [timeline(stages, load=load) for stages in STAGE_COUNTS] if is_forecast and self.place else []

    @property
    def text(self) -> str:
        """The config as it is typed."""
        return config_text(self.config)

    @property
    def cells(self) -> list[str]:
        """A line of a ranking: place, expected time, score, waves, occupancy, shared memory, limit, config."""
        if self.forecast is None or self.why_not:
            return [*["-"] * 5, percent(self.of_shared) if self.of_shared else "-", self.why_not, self.text]
        return [
            f"{self.place} *" if self.place == 1 else f"{self.place}  ", f"{self.forecast.expected_ms:.4g} ms",
            f"{self.score:.1f}", f"{self.forecast.waves:.2f}", percent(self.occupancy), percent(self.of_shared),
            self.limited_by, self.text,
        ]  # fmt: skip


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
    outcomes = [outcome_of(work, machine, config, sides) for config in configs]
    times = [one.expected_ms * factor for one, factor in zip(outcomes, factors or [1.0] * len(outcomes), strict=True)]
    able = sorted([at for at, one in enumerate(outcomes) if not one.why_not], key=lambda at: times[at])
    standings = [
        _standing(place, machine, outcomes[at], 100.0 * times[able[0]] / times[at]) for place, at in enumerate(able, 1)
    ]
    return [*standings, *(_standing(0, machine, one, 0.0) for one in outcomes if one.why_not)]


class Outcome(NamedTuple):
    """The model's answer for a config: why it cannot run, empty if it can; its expected time, 0 if it cannot run."""

    config: Mapping[str, Any]
    why_not: str
    expected_ms: float = 0.0
    forecast: Forecast | None = None


def outcome_of(work: Work, machine: Machine, config: Mapping[str, Any], sides: Mapping[str, int]) -> Outcome:
    """The outcome of a config, with the arguments of `ranked`."""
    if fault := _ill_formed(config, sides):
        return Outcome(config, fault)
    forecast = Model(work, machine).explain(config)
    if forecast is None:
        return Outcome(config, _silent(work, machine, config))
    if isfinite(forecast.expected_ms):
        return Outcome(config, "", forecast.expected_ms, forecast)
    limit = machine.shared_bytes_per_block
    why_not = f"needs {forecast.shared_bytes:,} bytes of shared memory per block; the limit is {limit:,}"
    return Outcome(config, why_not, 0.0, forecast)


def _silent(work: Work, machine: Machine, config: Mapping[str, Any]) -> str:
    """The reason why the model says nothing of a config."""
    if work.tiles is None:
        return "the work has no tiles"
    try:
        work.tiles.plan(config, machine)
    except UnknownTileError as error:
        return error.message
    return "the model makes no forecast"


def _ill_formed(config: Mapping[str, Any], sides: Mapping[str, int]) -> str:
    """The reason why Triton would not compile a config, as far as its values tell; else empty."""
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
    """The fault of a tunable that only products by other algorithms have; empty if there is none."""
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


def _standing(place: int, machine: Machine, outcome: Outcome, score: float) -> Standing:
    config, why_not, _, forecast = outcome
    idle = of_shared = 0.0
    residents = None
    if forecast is not None:
        idle = 1 - forecast.waves / ceil(forecast.waves)
        of_shared = forecast.shared_bytes / machine.shared_bytes_per_block
        warps = config.get("num_warps", WARPS)
        residents = machine.limits.residents(forecast.registers, forecast.shared_bytes, warps) if place else None
    return Standing(
        place=place, config=config, score=score, why_not=why_not, forecast=forecast,
        stages=0 if why_not else config.get("num_stages", STAGES), residents=residents, idle=idle, of_shared=of_shared,
    )  # fmt: skip
