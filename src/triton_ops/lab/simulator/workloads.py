"""The workloads that a simulation may have: what each calculates, its extents, and the configs to begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton_ops.device import Machine, machine_of, named_devices, spec_called
from triton_ops.exceptions import DeviceError


def known_devices() -> dict[str, Machine]:
    """The machines of all devices for which the model makes forecasts, by the names of the table."""
    machines = {name: _machine(name) for name in named_devices()}
    return {name: machine for name, machine in machines.items() if machine is not None}


def device_named(name: str) -> tuple[str, Machine]:
    """The name in the table and the machine of a device.

    Args:
        name: The vendor's name, such as `NVIDIA H200`, or a short one, such as `h200`.

    Raises:
        DeviceError: The table has no such device, or the model does not know its architecture.
    """
    machines = known_devices()
    machine = _machine(name)
    if machine is None:
        fault = "is in the table, but the model does not know its architecture" if spec_called(name) else "is not known"
        message = f"device {name!r} {fault}; the model knows {', '.join(machines)}"
        raise DeviceError(message, name, hint="for example --gpu 'NVIDIA H200'")
    return next((own for own, other in machines.items() if other == machine), name), machine


def _machine(name: str) -> Machine | None:
    spec = spec_called(name)
    return None if spec is None else machine_of(spec)


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
class Workload:
    """A kernel whose configs are ranked.

    Attributes:
        name: As it is typed.
        title: The workload, in words.
        family: `product`, `rows` or `attention`.
        extents: Names of the problem's extents.
        sizes: Extents by name, of the problems that the page's file has.
        sides: What BM and BN, and where it is used BK, are in this kernel.
        space: Values of the tunables of a space worth looking at.
        rule: What wins such work as a rule, as the beginning of a sentence.
    """

    name: str
    title: str
    family: str
    extents: tuple[str, ...]
    sizes: Mapping[str, tuple[int, ...]] = field(hash=False)
    sides: str
    space: Mapping[str, Sequence[int]] = field(hash=False)
    rule: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents to begin with."""
        return self.sizes["medium"]


_TILES = {
    "BM": (16, 32, 64, 128, 256), "BN": (32, 64, 128, 256), "BK": (32, 64, 128), "num_warps": (4, 8),
    "num_stages": (2, 3, 4, 5),
}  # fmt: skip
_PRODUCT = "BM by BN elements of C per program, in steps of BK"
WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            name="gemm",
            title="Big GEMM, compute-bound",
            family=PRODUCT,
            extents=("M", "N", "K"),
            sizes={
                "small": (1024, 1024, 1024), "medium": (4096, 4096, 4096), "large": (16384, 16384, 16384),
                "ragged": (3000, 5000, 4100),
            },
            sides=_PRODUCT,
            space=_TILES,
            rule="a large matrix product wants large tiles, which read each operand seldom, and warps to hold them",
        ),
        Workload(
            name="skinny-gemm",
            title="Skinny GEMM, memory-bound",
            family=PRODUCT,
            extents=("M", "N", "K"),
            sizes={
                "small": (1, 4096, 4096), "medium": (16, 14336, 4096), "large": (64, 28672, 8192),
                "ragged": (17, 11008, 4100),
            },
            sides=_PRODUCT,
            space=_TILES,
            rule="a product with few rows waits for memory: BM no taller than M, tiles enough for every "
            "multiprocessor, and stages that keep loads under way",
        ),
        Workload(
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
        Workload(
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
