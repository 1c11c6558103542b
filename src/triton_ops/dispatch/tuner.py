"""The tuner, imported when the first tune is asked for: most processes that launch kernels never tune."""

from __future__ import annotations

import importlib
import inspect
import logging
from functools import cache
from typing import Any

from triton_ops.base import ensure_folder
from triton_ops.exceptions import CacheError
from triton_ops.records import cache_folder
from triton_ops.values import TuningResult

_TUNER = "triton_ops.tuner.session"

_log = logging.getLogger("triton_ops")


def tune(*args: Any, **kwargs: Any) -> TuningResult:
    """Tune as `triton_ops.tune` does, in a call that came to run a kernel: without a folder nothing is kept."""
    result: TuningResult = importlib.import_module(_TUNER).tune(*args, **_kept(kwargs))
    return result


def tune_request(*args: Any, **kwargs: Any) -> TuningResult:
    """Tune a request that is checked already; kept as by `tune`."""
    result: TuningResult = importlib.import_module(_TUNER).tune_request(*args, **_kept(kwargs))
    return result


def _kept(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a tune; where the folder of records cannot be made, such as in a read-only home, without it."""
    try:
        ensure_folder(cache_folder(options.get("cache_dir")))
    except CacheError as error:
        _warn_once(f"winners are found, and not kept: {error.message}")
        return {**options, "keep": False}
    return options


@cache
def _warn_once(message: str) -> None:
    _log.warning("%s", message)


def tune_options() -> frozenset[str]:
    """The names of `tune`'s parameters."""
    return frozenset(inspect.signature(importlib.import_module(_TUNER).tune).parameters)
