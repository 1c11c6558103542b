"""Making a recording: every config of a space is measured on the device twice, each time in another order.

A single pass is not reliable: the fastest config of one pass can be several percent slower than the best. The finalists
of each pass are measured side by side as in every tune, and these times replace those of the screening.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from triton_ops.backend import Operation
from triton_ops.base import CHECKSUM, sealed, write_named
from triton_ops.cost_model import work_json
from triton_ops.device import machine_of, spec_named
from triton_ops.exceptions import RecordingError, TargetError
from triton_ops.lab.ranking import expected_of, read
from triton_ops.space import Config, ConfigSpace, as_space
from triton_ops.tuner import considered, tune, uninterrupted, versions
from triton_ops.values import Measurement, Problem, Trial, TuningResult

_PASSES = 2


def record(
    operation: Operation,
    space: Any = None,
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
    *,
    passes: int = _PASSES,
    **options: Any,
) -> dict[str, Any]:
    """Measure every config of an operation's space; the content of a recording's file.

    Args:
        operation: The operation to record.
        space: A space in place of the operation's own.
        shape: Shape of the problem; None takes the default.
        dtype: Dtype of the problem; None takes the default.
        passes: How often the whole space is measured, each time from scratch and in another order.
        options: Further options of `tune`, such as `device` and `listener`.

    Raises:
        TuningFailedError: No config ran.
        KeyboardInterrupt: Ctrl-C; nothing is returned, since a part of a recording would look like a small space.
    """
    problem = operation.problem(None if shape is None else tuple(shape), dtype)
    results: list[TuningResult] = []
    for seed in range(passes):
        results.append(
            tune(
                operation, space=space, shape=shape, dtype=dtype, effort="exhaustive", search="exhaustive",
                seed=seed, keep=False, **options,
            )
        )  # fmt: skip
        uninterrupted(results[-1])
    configs = operation.space_for(problem) if space is None else as_space(space)
    work = None if operation.work is None else operation.work(problem)
    inferred = _inferred(operation, configs, shape, dtype, results[0].device)
    return {
        "family": "_".join(filter(None, [operation.name, dtype or (operation.dtypes[0] if operation.dtypes else "")])),
        "kind": operation.name,
        "shape": list(operation.full_shape(None if shape is None else tuple(shape))),
        "space": {name: list(tunable.values) for name, tunable in configs.tunables.items()},
        "arguments": _arguments(problem),
        "gpu": results[0].device,
        **versions(),
        "unit": "ms",
        "quantiles": ["min", "p20", "p50", "p80"],
        **({} if work is None else {"flops": work.flops, "bytes": work.bytes, "work": work_json(work)}),
        **({} if inferred is None else {"inferred": inferred}),
        "rows": _rows(configs, results),
    }


def _inferred(
    operation: Operation, space: ConfigSpace, shape: Sequence[int] | None, dtype: str | None, device: str | None
) -> dict[str, Any] | None:
    """The readings of the kernel, for replays; None where nothing can be told."""
    spec = spec_named(device or "")
    machine = machine_of(spec) if spec is not None else None
    if spec is None or machine is None:
        return None
    expected = expected_of(operation, space=space, shape=shape, dtype=dtype)
    try:
        return read(expected, spec, machine, considered(expected.space)).as_json()
    except TargetError:  # such as a function that is not compiled
        return None


def write_recording(path: Path, content: Mapping[str, Any]) -> None:
    """Write a recording as gzipped JSON with its checksum, whole or not at all; equal content gives equal bytes.

    Raises:
        RecordingError: The file cannot be written.
    """
    rest = {name: value for name, value in content.items() if name != CHECKSUM}  # of a recording that was read
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file:
        file.write(json.dumps(sealed(rest)).encode())
    try:
        write_named(path, packed.getvalue())
    except OSError as error:
        raise RecordingError(
            f"{path} cannot be written: {error.strerror or error}", hint="name a file in a folder that can be written"
        ) from error


def _arguments(problem: Problem) -> dict[str, Any]:
    """The arguments that decide the distance to other problems (`search/place.py`): shapes, dtypes, words and flags."""
    tensors = {name: {"shape": list(spec.shape), "dtype": spec.dtype} for name, spec in problem.specs.items()}
    choices = {name: value for name, value in problem.arguments if isinstance(value, (str, bool))}
    return {**tensors, **choices}


def _rows(space: ConfigSpace, results: Sequence[TuningResult]) -> list[dict[str, Any]]:
    passes = [{trial.config: trial for trial in result.trials} for result in results]
    configs = dict.fromkeys(config for trials in passes for config in trials)
    return [
        _row(config, [trials[config] for trials in passes if config in trials]) for config in configs if config in space
    ]


def _row(config: Config, trials: Sequence[Trial]) -> dict[str, Any]:
    failed = next((trial for trial in trials if not trial.ok), None)
    first = failed or trials[0]
    resources = first.resources
    row: dict[str, Any] = {
        "config": dict(config),
        "status": "ok" if failed is None else f"{failed.status}: {failed.error}",
        "compile_s": trials[0].compile_s,
        "shared": resources and resources.shared_bytes,
        "regs": resources and resources.registers,
        "spills": resources and resources.spill_bytes,
        **({} if resources is None or resources.serialised is None else {"serialised": resources.serialised}),
    }
    if failed is None:
        row["ms"] = [_quantiles(trial.measurement) for trial in trials if trial.measurement is not None]
    if failed is None and (finals := [trial.final for trial in trials if trial.final is not None]):
        row["final"] = [_quantiles(final) for final in finals]
    return row


def _quantiles(measurement: Measurement) -> list[float]:
    fastest_ms = min(measurement.samples_ms)
    return [round(ms, 6) for ms in (fastest_ms, measurement.p20_ms, measurement.median_ms, measurement.p80_ms)]
