"""`triton-ops bench kernels`: the shipped kernels beside the vendor's library, eager PyTorch and torch.compile."""

from __future__ import annotations

from triton_ops.benchmark import KernelRow, KernelRun, rows_of
from triton_ops.cli.console import bold, say, say_json, table, tell, width
from triton_ops.device import gpu_missing, probe
from triton_ops.exceptions import DeviceError, SettingsError

NAME = "kernels"
"""The TARGET that stands for all shipped kernels."""

_HEADER = ("kernel", "problem", "beside", "ms", "other ms", "speed", "interval", "verdict", "config")
_NUMBERS = ("ms", "other ms", "speed", "interval")


def bench_kernels(run: KernelRun, *, as_json: bool, refused: dict[str, bool]) -> None:
    """Compare every shipped kernel with its rivals at its named problems, and print the rows.

    Args:
        run: What to compare.
        as_json: Whether to print one JSON document instead of a table.
        refused: Options that concern a single kernel, and whether they were given.

    Raises:
        SettingsError: An option was given that concerns a single kernel.
        DeviceError: There is no GPU.
    """
    if given := [name for name, there in refused.items() if there]:
        raise SettingsError(
            f"{', '.join(given)} cannot be given with `bench {NAME}`, which takes every kernel at its named problems",
            hint="name one kernel: triton-ops bench softmax",
        )
    if run.device.startswith("cuda") and (missing := gpu_missing()) is not None:
        raise DeviceError(
            f"`bench {NAME}` needs a GPU: {missing}", run.device, "none",
            hint="run it on the machine with the GPU",
        )  # fmt: skip
    device = probe(run.device).name
    rows = []
    for row in rows_of(run):
        rows.append(row)
        tell(f"{row.kernel} {row.problem} beside {row.rival}: {_speed(row)} {row.verdict}".replace("  ", " "))
    if as_json:
        say_json({"device": device, "rows": [row.document for row in rows]})
        return
    header, *lines = table(_HEADER, [_shown(row) for row in rows], width(), _NUMBERS)
    say(f"{len(rows)} comparisons on {device}", bold(header), *lines)


def _shown(row: KernelRow) -> list[str]:
    interval = "-" if row.interval is None else f"{row.interval[0]:.3f} to {row.interval[1]:.3f}"
    times = ["-" if ms is None else f"{ms:.4g}" for ms in (row.kernel_ms, row.rival_ms)]
    return [row.kernel, row.problem, row.rival, *times, _speed(row) or "-", interval, row.verdict, row.origin]


def _speed(row: KernelRow) -> str:
    return "" if row.speedup is None else f"{row.speedup:.3f}"
