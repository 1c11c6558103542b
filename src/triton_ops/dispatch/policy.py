"""Policies for launches for whose problem no winner is known: tune, run the default, raise an error, or queue it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from triton_ops import settings
from triton_ops.base import require
from triton_ops.exceptions import SettingsError

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
    confined = _confined.policy or (DEFAULT if settings.replay() is not None else None)
    if confined is None:
        return asked
    if ERROR in (asked, confined):
        return ERROR
    return DEFAULT if asked == TUNE else asked


class _Confined:
    """The most that launches of this process do when no winner is known; None is no limit."""

    policy: str | None = None


_confined = _Confined()


def confine(policy: str | None) -> str | None:
    """Let no launch of this process tune: each does as `policy` says, or is stricter; returns what held before.

    None lets them do as they ask again.
    """
    before, _confined.policy = _confined.policy, policy
    return before


def _environments() -> str | None:
    try:
        return settings.on_miss()
    except SettingsError as error:
        _warn_once(str(error))
        return DEFAULT


def capturing() -> bool:
    """Tell whether the current stream is being captured into a CUDA graph; asked only where torch uses a GPU."""
    if "torch" not in sys.modules:
        return False
    cuda = require("torch", "a launch").cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


@lru_cache(maxsize=8)
def _warn_once(message: str) -> None:
    _log.warning("%s; launches without a known winner run their default config", message)
