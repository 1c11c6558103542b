"""A run log as a table: every config that was tried on one problem, with its time or its failure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triton_ops.buckets import extents_of
from triton_ops.exceptions import SettingsError
from triton_ops.exchange.locked import Names
from triton_ops.exchange.table import Row, Table
from triton_ops.history.run_log import read_run


def table_of_run(path: Path, names: Names, facts: Mapping[str, Any]) -> Table:
    """The trials of a run as a table, in the order tried; the device's and the kernel's name are facts.

    Args:
        path: The run log.
        names: What names a row, and the tunables.
        facts: What the engine looks the table up by.

    Raises:
        RunLogError: The file is no run log of this version.
        SettingsError: The problem lacks an extent of `names`.
    """
    run = read_run(path)
    key = run.head.key
    known = {**key.problem, **extents_of(key.problem)}
    if missing := [name for name in names.rows if name not in known]:
        raise SettingsError(f"the run's problem has no {', '.join(missing)}", hint=f"it has {', '.join(known)}")
    at = tuple(known[name] for name in names.rows)
    rows = tuple(
        Row(at, names.outwards(config), median_ms=trial.median_ms if trial.ok else None,
            failure="" if trial.ok else trial.status.value)
        for config, trial in run.trials.items()
        if trial.ok or trial.failed
    )  # fmt: skip
    kernel = key.kernel.rpartition(":")[2]
    return Table({"device_name": key.device.get("name"), "kernel_name": kernel, **facts}, rows)
