"""The work and the model of a recording, by its declared work or by the kind of kernel that it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_ops.hardware import Calibration, machine_of, spec_named
from triton_ops.ranking.families import work_of
from triton_ops.ranking.plain_works import product_tiles, product_work, row_work
from triton_ops.ranking.predict import Model
from triton_ops.work import Work

_SOFTMAX_WEIGHT = 2.0  # arithmetic of a softmax over that of a norm: an exponential and a running maximum more


def recorded_work(recording: Mapping[str, Any]) -> Work | None:
    """The work of a recording; None if the recording declares none and is of no known kind.

    Args:
        recording: The recording's head: `work` if its writer declared one, else `family`, `kind`, `shape` and `space`.

    Raises:
        SpaceError: The declared work cannot be read.
    """
    if declared := recording.get("work"):
        return work_of(declared)
    kind, space = recording.get("kind"), recording.get("space") or {}
    shape = [int(extent) for extent in recording.get("shape") or ()]
    if kind in ("matmul", "fp8") and len(shape) == 3 and {"BM", "BN", "BK"} <= set(space):
        dtype, group = "float8_e4m3fn" if kind == "fp8" else "bfloat16", "GM" if "GM" in space else "GROUP_M"
        rows, columns, inner = shape
        return product_work(product_tiles(rows, columns, inner, dtype, group))
    if kind in ("rms", "softmax") and len(shape) == 2 and {"BLOCK", "ROWS"} <= set(space):
        rows, columns = shape
        weight = _SOFTMAX_WEIGHT if kind == "softmax" else 1.0
        return row_work(rows, columns, "bfloat16", "ROWS", "BLOCK", weight)
    return None


def recorded_model(recording: Mapping[str, Any], calibration: Calibration | None = None) -> Model | None:
    """The model of a recording's space on the device that it names; None if the model would make no forecast."""
    work = recorded_work(recording)
    spec = spec_named(str(recording.get("gpu", "")))
    machine = machine_of(spec, calibration) if spec is not None else None
    return None if work is None or work.tiles is None or machine is None else Model(work, machine)
