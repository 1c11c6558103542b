"""Configs of a textbook workload in the order of their expected times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil, isfinite
from typing import Any

from triton_ops.cost_model import Forecast, Model
from triton_ops.device import DeviceSpec, Machine, Residents
from triton_ops.exceptions import DeviceError
from triton_ops.lab.expectation import STAGES as STAGE_COUNTS
from triton_ops.lab.expectation import Timeline, load_steps, timeline
from triton_ops.values import Work, is_power_of_two, warps_and_stages

WARPS, STAGES = warps_and_stages({})  # Triton's defaults

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
class PlacedConfig:
    """One config in a ranking."""

    config: Mapping[str, Any]
    why_not: str  # why it cannot run; empty if it can
    forecast: Forecast | None
    stages: int
    place: int = 0  # 1 for the config that is expected to win; 0 for one that cannot run
    score: float = 0.0  # 100 for the winner, and the share of its speed for others; 0 without a place
    residents: Residents | None = None  # of one multiprocessor; None for a config that cannot run
    idle: float = 0.0  # share of the slots for blocks that stay empty, because the last wave is partial
    of_shared: float = 0.0  # shared memory of a block over what the device gives it at most

    @property
    def expected_ms(self) -> float:
        """The expected time; 0 for a config that cannot run."""
        return 0.0 if self.why_not or self.forecast is None else self.forecast.expected_ms

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


def ranking_of(
    work: Work, machine: Machine, configs: Sequence[Mapping[str, Any]], sides: Mapping[str, int],
    factors: Sequence[float] = (),
) -> list[PlacedConfig]:  # fmt: skip
    """The configs by expected time, the shortest first, equal ones as they were given; those that cannot run are last.

    `sides` are tunables that are sides of tiles, with the least length of each; a recording's configs, which Triton has
    taken, need none. `factors` on the times disturb a ranking on purpose; empty is none.
    """
    outcomes = [outcome_of(work, machine, config, sides) for config in configs]
    times = [one.expected_ms * factor for one, factor in zip(outcomes, factors or [1.0] * len(outcomes), strict=True)]
    able = sorted([at for at, one in enumerate(outcomes) if not one.why_not], key=lambda at: times[at])
    standings = [
        replace(outcomes[at], place=place, score=100.0 * times[able[0]] / times[at]) for place, at in enumerate(able, 1)
    ]
    return [*standings, *(one for one in outcomes if one.why_not)]


def outcome_of(work: Work, machine: Machine, config: Mapping[str, Any], sides: Mapping[str, int]) -> PlacedConfig:
    """A config that has no place yet, with the arguments of `ranking_of`."""
    forecast, model = None, Model(work, machine)
    if not (why_not := ill_formed(config, sides)):
        forecast = model.explain(config)
        silent = "" if forecast else model.why_silent(config) or "the model makes no forecast for it"
        why_not = _too_large(forecast, machine) if forecast else silent
    stages = 0 if why_not else config.get("num_stages", STAGES)
    one = PlacedConfig(config=config, why_not=why_not, forecast=forecast, stages=stages)
    if forecast is None:
        return one
    idle, of_shared = 1 - forecast.waves / ceil(forecast.waves), forecast.shared_bytes / machine.shared_bytes_per_block
    if why_not:
        return replace(one, idle=idle, of_shared=of_shared)
    warps = config.get("num_warps", WARPS)
    residents = machine.limits.residents(forecast.registers, forecast.shared_bytes, warps)
    return replace(one, idle=idle, of_shared=of_shared, residents=residents)


def _too_large(forecast: Forecast, machine: Machine) -> str:
    limit = machine.shared_bytes_per_block
    why_not = f"needs {forecast.shared_bytes:,} bytes of shared memory per block; the limit is {limit:,}"
    return "" if isfinite(forecast.expected_ms) else why_not


def ill_formed(config: Mapping[str, Any], sides: Mapping[str, int]) -> str:
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


_HELP = {
    "matrix units": "the matrix units are busy, as they should be",
    "shared memory": "larger tiles would read each operand from shared memory less often",
    "load unit": "wider steps would touch fewer lines at a time",
    "L2": "larger tiles would bring less through L2",
    "DRAM": "memory is busy, as it should be for such work",
    "load latency": "another stage would hide more of the wait for loads",
    "arithmetic": "the arithmetic between the products sets the pace",
    "spills": "a smaller tile or more warps would end the spilling",
    "chain": "products wait for each other, so that another block on the multiprocessor would fill the gaps",
    "loop": "a longer step means fewer iterations of the loop",
    "turnover": "more work per block would make starts and ends of blocks rarer",
    "launch": "the launch itself takes longest, so that no config can gain much",
    "issue": "the instructions themselves set the pace",
    "waits": "fewer rows per program, or longer chunks, would wait less often",
    "one block's loads": "more blocks at a time would share the wait for loads",
    "dependent arithmetic": "more warps would hide the latency of arithmetic",
    "reductions": "fewer warps per row would have shorter reductions",
    "spill waits": "a smaller chunk or more warps would end the spilling",
    "block launch": "fewer and larger blocks would be begun sooner",
    "exchange": "fewer warps would have less to exchange at a reduction",
    "stragglers": "more and smaller blocks would even out the end",
    "second launch": "parts that are added up by a second launch cost more than they gain",
}
_SHOWN = 6  # terms in the reasons of one config


def advice(standings: Sequence[PlacedConfig], rule: str) -> str:
    """One sentence: what wins such work by a rule, if any, which config is expected to win here, and what limits it."""
    able = [one for one in standings if one.place > 0]
    if not able:
        which = "The config cannot" if len(standings) == 1 else f"None of the {len(standings)} configs can"
        return f"{which} run here: {standings[0].why_not}." if standings else ""
    first = able[0]
    lead = f"{rule[:1].upper()}{rule[1:]}; here " if rule else "Here "
    remedy = _HELP.get(first.limited_by, "")
    return f"{lead}{first.text} is expected to win, limited by {first.limited_by}{f': {remedy}' if remedy else ''}."


def reasons(one: PlacedConfig, machine: Machine) -> list[tuple[str, str]]:
    """The explanation of a config's rank: names and sentences, the most important first."""
    forecast = one.forecast
    if forecast is None:
        return [("cannot run", one.why_not)]
    facts = [("cannot run", one.why_not)] if one.why_not else _times(one)
    kib, limit = forecast.shared_bytes / 1024, machine.shared_bytes_per_block / 1024
    facts.append(("shared memory", f"{kib:.1f} of {limit:.1f} KiB per block, {percent(one.of_shared)}"))
    spilled = f"{forecast.spill_bytes:.0f} bytes per thread are" if forecast.spill_bytes > 0 else "nothing is"
    source = "by the compiler" if forecast.compiled else "a guess"
    facts.append(
        ("registers", f"{forecast.registers} of {forecast.most_registers} per thread, {spilled} spilled; {source}")
    )
    if one.why_not:
        return facts
    facts += _residents(one, machine)
    facts.append(("pipeline", _pipeline(one)))
    return facts


def _times(one: PlacedConfig) -> list[tuple[str, str]]:
    assert one.forecast is not None
    forecast = one.forecast
    parts = [f"{term.name} {term.alone_ms:.3g} ms" for term in forecast.terms[:_SHOWN]]
    share = 100 * forecast.lower_bound_ms / forecast.expected_ms
    return [
        ("expected", f"{forecast.expected_ms:.4g} ms, {one.score:.1f} % of the winner's speed"),
        ("lower bound", f"{forecast.lower_bound_ms:.4g} ms, {share:.0f} % of the expected time"),
        ("alone", ", ".join(parts)),
    ]


def _residents(one: PlacedConfig, machine: Machine) -> list[tuple[str, str]]:
    forecast = one.forecast
    assert forecast is not None
    blocks = "1 block" if forecast.blocks_per_unit == 1 else f"{forecast.blocks_per_unit} blocks"
    facts = [("waves", f"{forecast.waves:.2f} of {blocks} on each of {machine.units} multiprocessors; {_tail(one)}")]
    if one.residents is not None:
        warps = f"{one.residents.warps} of {one.residents.most_warps} warps, {percent(one.occupancy)}"
        facts.append(("occupancy", f"{warps}; limited by {' and '.join(one.residents.limited_by)}"))
    return facts


def _tail(one: PlacedConfig) -> str:
    if one.idle < 0.005:
        return "every wave is full"
    if one.forecast is not None and one.forecast.waves < 1:
        return f"{percent(one.idle)} of the slots stay empty, since there are too few blocks"
    return f"{percent(one.idle)} of the slots stay empty, since the last wave is not full"


def _pipeline(one: PlacedConfig) -> str:
    if one.forecast is not None and "waits" in [term.name for term in one.forecast.terms]:
        return "plain loads are not pipelined" + ("" if one.stages == 1 else "; stages gain nothing")
    if one.stages == 1:
        return "one stage: every step waits for its loads"
    ahead = "1 step" if one.stages == 2 else f"{one.stages - 1} steps"
    return f"loads run {ahead} ahead of the products"


def standing_json(one: PlacedConfig, machine: Machine) -> dict[str, Any]:
    """One config in a ranking as plain values."""
    forecast = one.forecast
    figures = {} if forecast is None else {**asdict(forecast), "terms": {t.name: t.alone_ms for t in forecast.terms}}
    expected_ms = figures.pop("expected_ms", None)
    return {
        "place": one.place or None, "config": dict(one.config),
        "expected_ms": expected_ms if expected_ms is not None and math.isfinite(expected_ms) else None,
        "score": one.score, "why_not": one.why_not or None, "limited_by": one.limited_by, "occupancy": one.occupancy,
        "idle": one.idle, "of_shared": one.of_shared, **figures, "reasons": dict(reasons(one, machine)),
    }  # fmt: skip


def known_devices() -> dict[str, Machine]:
    """The machines of all devices for which the model makes forecasts, by the names of the table."""
    machines = {name: Machine.of(DeviceSpec.called(name)) for name in DeviceSpec.names()}
    return {name: machine for name, machine in machines.items() if machine is not None}


def device_named(name: str) -> tuple[str, Machine]:
    """The name in the table and the machine of a device, by the vendor's name or a short one, such as `h200`.

    `DeviceError`: the table has no such device, or the model does not know its architecture.
    """
    machines, spec = known_devices(), DeviceSpec.called(name)
    machine = Machine.of(spec)
    if machine is None:
        fault = "is not known" if spec is None else "is in the table, but the model does not know its architecture"
        message = f"device {name!r} {fault}; the model knows {', '.join(machines)}"
        raise DeviceError(message, name, hint="for example --gpu 'NVIDIA H200'")
    return next((own for own, other in machines.items() if other == machine), name), machine


PRODUCT, ROWS, ATTENTION = "product", "rows", "attention"
_SUMMED = 16  # fewest terms of a sum that tl.dot takes, of 8-bit operands 32
_SUMMED_8_BIT = 32


def least_sides(family: str, dtype: str) -> dict[str, int]:
    """The tunables that are sides of tiles, with the least length that Triton takes."""
    summed = _SUMMED_8_BIT if dtype.startswith("float8") or dtype == "int8" else _SUMMED
    if family == "product":
        return {"BM": 1, "BN": 1, "BK": summed}
    if family == "rows":
        return {"BM": 1, "BN": 1}
    return {"BM": 1, "BN": summed}  # the second product adds up over the keys of a step


@dataclass(frozen=True, kw_only=True)
class TextbookWorkload:
    """A kernel whose configs are ranked."""

    name: str  # as it is typed
    title: str  # in words
    family: str  # `product`, `rows` or `attention`
    extents: tuple[str, ...]  # names
    sizes: Mapping[str, tuple[int, ...]] = field(hash=False)
    sides: str  # what BM and BN, and where it is used BK, are in this kernel
    space: Mapping[str, Sequence[int]] = field(hash=False)
    rule: str  # what wins such work, as the beginning of a sentence

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents to begin with."""
        return self.sizes["medium"]


_GEMM = TextbookWorkload(
    name="gemm",
    title="Big GEMM, compute-bound",
    family=PRODUCT,
    extents=("M", "N", "K"),
    sizes={
        "small": (1024, 1024, 1024), "medium": (4096, 4096, 4096), "large": (16384, 16384, 16384),
        "ragged": (3000, 5000, 4100),
    },
    sides="BM by BN elements of C per program, in steps of BK",
    space={
        "BM": (16, 32, 64, 128, 256), "BN": (32, 64, 128, 256), "BK": (32, 64, 128), "num_warps": (4, 8),
        "num_stages": (2, 3, 4, 5),
    },
    rule="a large matrix product wants large tiles, which read each operand seldom, and warps to hold them",
)  # fmt: skip
WORKLOADS = {
    workload.name: workload
    for workload in (
        _GEMM,
        replace(
            _GEMM,
            name="skinny-gemm",
            title="Skinny GEMM, memory-bound",
            sizes={
                "small": (1, 4096, 4096), "medium": (16, 14336, 4096), "large": (64, 28672, 8192),
                "ragged": (17, 11008, 4100),
            },
            rule="a product with few rows waits for memory: BM no taller than M, tiles enough for every "
            "multiprocessor, and stages that keep loads under way",
        ),
        TextbookWorkload(
            name="rmsnorm",
            title="RMSNorm, memory-bound",
            family=ROWS,
            extents=("rows", "columns"),
            sizes={"small": (512, 1024), "medium": (8192, 4096), "large": (65536, 8192), "ragged": (3000, 5000)},
            sides="BM rows per program, one after another, each read in chunks of BN columns; BK is not used",
            space={
                "BM": (1, 2, 4, 8), "BN": (64, 256, 512, 1024, 2048, 4096), "num_warps": (1, 2, 4, 8, 16),
                "num_stages": (1, 2, 3),
            },
            rule="a norm waits for memory: one row or few per program, a chunk that is most of the row, and a single "
            "stage, since there is no product to overlap with",
        ),
        TextbookWorkload(
            name="attention",
            title="Flash attention",
            family=ATTENTION,
            extents=("batch", "heads", "queries", "head_dim"),
            sizes={
                "small": (1, 8, 1024, 64), "medium": (2, 16, 4096, 64), "large": (4, 32, 16384, 128),
                "ragged": (3, 12, 3000, 96),
            },
            sides="BM queries per program, BN keys per step; BK is not used",
            space={
                "BM": (16, 32, 64, 128, 256), "BN": (16, 32, 64, 128), "num_warps": (4, 8), "num_stages": (1, 2, 3, 4),
            },
            rule="attention keeps a tall tile of queries on the chip, past which keys and values stream in moderate "
            "steps",
        ),
    )
}  # fmt: skip

LESSON: tuple[Mapping[str, Any], ...] = tuple(
    {"BM": rows, "BN": columns, "BK": step, "num_warps": warps, "num_stages": stages}
    for rows, columns, step, warps, stages in (
        (128, 128, 32, 4, 3),
        (128, 256, 32, 8, 3),
        (64, 64, 64, 4, 4),
        (256, 128, 32, 8, 3),
        (64, 256, 32, 8, 4),
    )
)
"""The configs of a lesson on autotuning: five tiles that are fast in one workload and slow in the next."""
