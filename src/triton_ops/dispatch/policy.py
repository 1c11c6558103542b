"""Policies for launches for whose problem no winner is known: tune, run the default, raise an error, or queue it."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from triton_ops import settings
from triton_ops.base import Folder, require
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records import cache_folder
from triton_ops.request import TuneOptions, TuneRequest
from triton_ops.values import TuningResult

_TUNER = "triton_ops.tuner"


def tune(*args: Any, **kwargs: Any) -> TuningResult:
    """Tune as `triton_ops.tune` does, in a call that came to run a kernel: without a folder nothing is kept."""
    kept = {} if _keeps(kwargs.get("cache_dir")) else {"keep": False}
    result: TuningResult = importlib.import_module(_TUNER).tune(*args, **{**kwargs, **kept})
    return result


def tune_request(request: TuneRequest, options: TuneOptions, **place: Any) -> TuningResult:
    """Tune a request that is checked already, with further fields of `RequestedTune`; kept as by `tune`."""
    kept = options if _keeps(options.cache_dir) else replace(options, keep=False)
    tune = importlib.import_module(_TUNER).RequestedTune(request=request, options=kept, **place)
    result: TuningResult = tune.result()
    return result


def _keeps(cache_dir: str | Path | None) -> bool:
    """True if the folder of records is there, or can be made, unlike in a read-only home."""
    try:
        Folder(cache_folder(cache_dir)).ensure()
    except CacheError as error:
        warn_once(f"winners are found, and not kept: {error.message}")
        return False
    return True


@lru_cache(maxsize=1024)
def warn_once(message: str) -> None:
    """Warn in the log, of the same only once."""
    _log.warning("%s", message)


TUNE, DEFAULT, ERROR, QUEUE = settings.ON_MISS

_log = logging.getLogger("triton_ops")
_within: ContextVar[str | None] = ContextVar("triton_ops_on_miss", default=None)

within = _within.get
"""The policy of the innermost `on_miss` around the caller, in this thread or task; None outside of all."""


@contextmanager
def on_miss(policy: str) -> Iterator[None]:
    """Inside, launches without a known winner do as `policy` says, whatever their decorators and the environment say.

    It holds for this thread or task only.

    Args:
        policy: `tune` finds the winner first, `default` runs the kernel's default config, `error` raises
            `UntunedError`, and `queue` runs the default and notes the problem for a later tune.

    Raises:
        SettingsError: There is no such policy.
    """
    token = _within.set(settings.checked_on_miss(policy))
    try:
        yield
    finally:
        _within.reset(token)


def policy_of(argument: str | None, otherwise: str) -> str:
    """The policy of a launch: that of the innermost `on_miss`, else the decorator's, the environment's, `otherwise`.

    While a lockfile is replayed, nothing tunes, whoever asks for it.
    An environment that holds no policy counts as `default`, with one warning: a launch is no place for its error.
    """
    asked = within() or argument or _environments() or otherwise
    confined = _Confined.policy or (DEFAULT if settings.replay() is not None else None)
    if confined is None:
        return asked
    if ERROR in (asked, confined):
        return ERROR
    return DEFAULT if asked == TUNE else asked


class _Confined:
    """The most that launches of this process do when no winner is known; None is no limit."""

    policy: str | None = None


def confine(policy: str | None) -> str | None:
    """Let launches of this process do at most as `policy` says, None as they ask; returns what held before."""
    before, _Confined.policy = _Confined.policy, policy
    return before


def _environments() -> str | None:
    try:
        return settings.on_miss()
    except SettingsError as error:
        warn_once(f"{error}; launches without a known winner run their default config")
        return DEFAULT


def capturing() -> bool:
    """Tell whether the current stream is being captured into a CUDA graph; asked only where torch uses a GPU."""
    if "torch" not in sys.modules:
        return False
    cuda = require("torch", "a launch").cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
