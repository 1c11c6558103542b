"""`triton-ops tune --from-misses`: tune the problems that nothing answered, those first that cost most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_ops.cli.console import bold, only_data_on_stdout, say, say_json, tell, width
from triton_ops.cli.layout import table
from triton_ops.cli.misses import miss_json
from triton_ops.cli.record_selection import folder_of
from triton_ops.cli.target import load_object
from triton_ops.cli.terminal import stderr
from triton_ops.exceptions import SettingsError
from triton_ops.history.misses import read_misses
from triton_ops.progress.bar import ProgressBar
from triton_ops.runner.results import result_json
from triton_ops.serving.from_misses import Served, tune_misses
from triton_ops.serving.targets import Targets, as_target
from triton_ops.space import Config

_NONE_TUNED = 1
_HEADER = ("count", "kernel", "problem", "median ms", "vs default", "what became of it")
_NUMBERS = ("count", "median ms", "vs default")


def tune_from_misses(
    target: str | None,
    most: int | None,
    only_for_one: Mapping[str, Any],
    options: Mapping[str, Any],
    cache_dir: str | None,
    *,
    as_json: bool,
) -> int:
    """Tune the misses of a cache folder, and return the exit code: 1 if there are some and none was tuned.

    Args:
        target: The TARGET whose misses are tuned; None tunes all.
        most: How many are tuned at most; None is no limit.
        only_for_one: Options that a list of problems cannot have, with what was given for them.
        options: Options of `tune`.
        cache_dir: Folder of misses and records; None takes the default.
        as_json: Whether one JSON document is printed.

    Raises:
        SettingsError: An option does not fit.
        TargetError: TARGET cannot be found.
    """
    if strange := [name for name, value in only_for_one.items() if value is not None]:
        raise SettingsError(f"{', '.join(strange)} and --from-misses do not go together", hint="leave one of them out")
    if most is not None and most < 1:
        raise SettingsError(f"--most is {most}; it must be 1 or more", hint="leave it out for all")
    folder = folder_of(cache_dir)
    with only_data_on_stdout():
        given = [] if target is None else [load_object(target)]
        names = [as_target(each).name for each in given]
        found = [miss for miss in read_misses(folder) if not names or miss.key.kernel in names]
        bar = ProgressBar(stderr())
        served = list(tune_misses(found[:most], Targets(given, load_object), folder, listener=bar, **options))
    if as_json:
        say_json([_as_json(each) for each in served])
    elif not served:
        tell(f"there are no misses{f' of {names[0]}' if names else ''} in {folder}")
    else:
        header, *lines = table(_HEADER, [_row(each) for each in served], width(), _NUMBERS)
        say(bold(header), *lines)
    return _NONE_TUNED if served and not any(each.result for each in served) else 0


def _as_json(served: Served) -> dict[str, Any]:
    result = None if served.result is None else result_json(served.result)
    return {**miss_json(served.miss), "result": result, "stored": served.stored, "reason": served.reason}


def _row(served: Served) -> list[str]:
    key, result = served.miss.key, served.result
    head = [str(served.miss.count), key.kernel, key.label or "-"]
    if result is None:
        return [*head, "-", "-", f"not tuned: {served.reason}"]
    gain = "-" if result.gain is None else f"{result.gain:.2f}x"
    said = str(Config(result.best_config)) + (f"; {served.reason}" if served.reason else "")
    return [*head, f"{result.metrics.latency_ms:.4g}", gain, said]
