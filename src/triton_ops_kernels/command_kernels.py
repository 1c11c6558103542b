"""`triton-ops bench kernels`: every shipped kernel beside its rivals."""

from __future__ import annotations

from pathlib import Path

from triton_ops.device import gpu_missing, probe
from triton_ops.exceptions import DeviceError
from triton_ops.terminal import Facts, tell
from triton_ops_kernels.rivals import KernelRow, KernelRun, rows_of

_HEADER = ("kernel", "problem", "beside", "ms", "other ms", "speed", "interval", "verdict", "config")


def bench_kernels(seconds: float, device_name: str, cold: bool, cache_dir: str | Path | None) -> Facts:
    """Compare every shipped kernel with its rivals; arguments are as of `KernelRun`."""
    run = KernelRun(seconds=seconds, device=device_name, cold=cold, cache_dir=cache_dir)
    if run.device.startswith("cuda") and (missing := gpu_missing()) is not None:
        message = f"`bench kernels` needs a GPU: {missing}"
        raise DeviceError(message, run.device, "none", hint=DeviceError.NO_GPU)
    device = probe(run.device).name
    rows = []
    for row in rows_of(run):
        rows.append(row)
        tell(f"{row.kernel} {row.problem} beside {row.rival}: {_speed(row)} {row.verdict}".replace("  ", " "))
    facts = Facts("bench kernels", {"device": device, "rows": rows})
    facts.text(f"{len(rows)} comparisons on {device}")
    return facts.table(_HEADER, list(map(_row, rows)), _HEADER[3:7])


def _row(row: KernelRow) -> list[str]:
    interval = "-" if row.interval is None else f"{row.interval[0]:.3f} to {row.interval[1]:.3f}"
    times = ["-" if ms is None else f"{ms:.4g}" for ms in (row.kernel_ms, row.rival_ms)]
    return [row.kernel, row.problem, row.rival, *times, _speed(row) or "-", interval, row.verdict, row.origin]


def _speed(row: KernelRow) -> str:
    return "" if row.speedup is None else f"{row.speedup:.3f}"
