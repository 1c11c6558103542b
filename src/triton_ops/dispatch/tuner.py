"""The tuner, imported when the first tune is asked for: most processes that launch kernels never tune."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from triton_ops.trial import TuningResult

_TUNER = "triton_ops.runner.session"


def tune(*args: Any, **kwargs: Any) -> TuningResult:
    """What `triton_ops.tune` does."""
    result: TuningResult = importlib.import_module(_TUNER).tune(*args, **kwargs)
    return result


def tune_request(*args: Any, **kwargs: Any) -> TuningResult:
    """What `tune_request` of the tuner does: a tune of a request that is checked already."""
    result: TuningResult = importlib.import_module(_TUNER).tune_request(*args, **kwargs)
    return result


def tune_options() -> frozenset[str]:
    """The names of `tune`'s parameters."""
    return frozenset(inspect.signature(importlib.import_module(_TUNER).tune).parameters)
