"""`triton-ops bench kernels`: every shipped kernel beside its rivals."""

from __future__ import annotations

from pathlib import Path

from triton_ops.benchmark import RivalRun
from triton_ops.terminal import Facts, tell
from triton_ops_kernels import load, names
from triton_ops_kernels.rivals import rivals_of


def bench_kernels(seconds: float, device_name: str, cold: bool, cache_dir: str | Path | None) -> Facts:
    """Compare every shipped kernel with its rivals; arguments are as of `RivalRun`."""
    run = RivalRun(rivals_of=rivals_of, seconds=seconds, device=device_name, cold=cold, cache_dir=cache_dir)
    device, rows = run.device_name, []
    for row in run.rows(map(load, names())):
        rows.append(row)
        tell(f"{row.kernel} {row.problem} beside {row.rival}: {row.speed} {row.verdict}".replace("  ", " "))
    facts = Facts("bench kernels", {"device": device, "rows": rows})
    facts.text(f"{len(rows)} comparisons on {device}")
    return facts.table(RivalRun.HEADER, [row.cells for row in rows], RivalRun.HEADER[3:7])
