"""`triton-ops tune --from-misses`: tune the problems that nothing answered, those first that cost most."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from triton_ops.cli.console import NOT_LOADED, bold, only_data_on_stdout, say, say_json, table, tell, width
from triton_ops.cli.interrupts import INTERRUPTED
from triton_ops.cli.misses import miss_json
from triton_ops.cli.target import load_kernels, load_object
from triton_ops.exceptions import SettingsError
from triton_ops.many import RayEngine, RunOptions
from triton_ops.records import Misses
from triton_ops.ship import Served, Targets, as_target, tune_misses
from triton_ops.space import Config
from triton_ops.tuner import result_json

_NONE_TUNED = 1
_HEADER = ("count", "kernel", "problem", "median ms", "vs default", "what became of it")
_NUMBERS = ("count", "median ms", "vs default")


def tune_from_misses(
    targets: Sequence[str],
    most: int | None,
    options: RunOptions,
    tolerance: float | None,
    budget_s: float | None,
    cluster: RayEngine | None = None,
    *,
    kernels: Sequence[str] = (),
    as_json: bool,
) -> int:
    """Tune the misses of a cache folder, and return the exit code.

    It is 6 if a kernel that a miss names is not loaded, and 1 if there are misses and none was tuned.

    Args:
        targets: The TARGETs whose misses are tuned; none for all.
        most: How many are tuned at most; None is no limit.
        options: Options of the tunes, and the cache folder.
        tolerance: How far a right result may be from the expected one.
        budget_s: The limit of seconds of the run; None is no limit.
        cluster: Measures on the GPUs of a cluster instead.
        kernels: KERNELs of further misses, which are loaded and restrict nothing.
        as_json: Whether one JSON document is printed.

    Raises:
        SettingsError: An option does not fit.
        TargetError: A TARGET cannot be found.
    """
    if most is not None and most < 1:
        raise SettingsError(f"--most is {most}; it must be 1 or more", hint="leave it out for all")
    folder = Path(str(options.cache_dir))
    with only_data_on_stdout():
        given = [load_object(target) for target in targets]
        names = [as_target(each).name for each in given]
        given += load_kernels(kernels).values()
        found = [miss for miss in Misses(folder).read() if not names or miss.key.kernel in names]
        served, run = tune_misses(
            found[:most], Targets(given), options, tolerance=tolerance, budget_s=budget_s, cluster=cluster
        )
    if as_json:
        say_json([_as_json(each) for each in served])
    elif not served:
        tell(f"there are no misses{f' of {names[0]}' if names else ''} in {folder}")
    else:
        header, *lines = table(_HEADER, [_row(each) for each in served], width(), _NUMBERS)
        say(bold(header), *lines)
    if run.stopped == "interrupted":
        tell("interrupted: the same command goes on where it stopped")
        raise typer.Exit(INTERRUPTED)
    if not all(each.loaded for each in served):
        return NOT_LOADED
    return _NONE_TUNED if served and not any(each.result for each in served) else 0


def _as_json(served: Served) -> dict[str, Any]:
    result = None if served.result is None else result_json(served.result)
    facts = {"outcome": _outcome(served), "stored": served.stored, "reason": served.reason}
    return {**miss_json(served.miss), "result": result, **facts}


def _outcome(served: Served) -> str:
    if not served.loaded:
        return "not loaded"
    return "not tuned" if served.result is None else "tuned"


def _row(served: Served) -> list[str]:
    key, result = served.miss.key, served.result
    head = [str(served.miss.count), key.kernel, key.label or "-"]
    if result is None:
        return [*head, "-", "-", f"{_outcome(served)}: {served.reason}"]
    gain = "unproven" if result.unproven else "-" if result.gain is None else f"{result.gain:.2f}x"
    said = str(Config(result.best_config)) + (f"; {served.reason}" if served.reason else "")
    return [*head, f"{result.metrics.latency_ms:.4g}", gain, said]
