"""Problems that nothing answered, tuned one after another, those first that cost most."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_ops.buckets import unkeyed
from triton_ops.cache import Record
from triton_ops.exceptions import TritonKernelError
from triton_ops.hardware import DeviceSpec, gpu_missing, probe
from triton_ops.history.misses import Miss, forget_misses
from triton_ops.history.recall import recall, store_in
from triton_ops.runner.session import tune
from triton_ops.serving.targets import DECORATED, Target, Targets, made_on, specs_of
from triton_ops.trial import TuningResult


@dataclass(frozen=True, kw_only=True)
class Served:
    """What became of one miss.

    Attributes:
        miss: The miss.
        result: The result of its tune; None if it was not tuned.
        reason: Why it was not tuned, or in what its record's key differs from what was missed; empty otherwise.
        stored: Whether there is a record now; the miss is off the list then.
    """

    miss: Miss
    result: TuningResult | None = None
    reason: str = ""
    stored: bool = False


def tune_misses(misses: Iterable[Miss], targets: Targets, folder: Path, **options: Any) -> Iterator[Served]:
    """Tune each miss in turn, and take it off the list when there is a record.

    A miss of another device, or of a kernel that cannot be found, is passed over with the reason, and stays.

    Args:
        misses: The misses in the order in which they are tuned.
        targets: The kernels that they name.
        folder: The cache folder of the misses and of the records.
        options: Further options of `tune`, such as `effort` and `budget_s`.
    """
    for miss in misses:
        try:
            served = _tuned(miss, targets, folder, options)
        except TritonKernelError as error:
            served = Served(miss=miss, reason=str(error))
        if served.stored:
            forget_misses(folder, [miss.key.id])
        yield served


def _tuned(miss: Miss, targets: Targets, folder: Path, options: dict[str, Any]) -> Served:
    device = "cpu" if miss.key.device.get("kind") == "cpu" else "cuda"
    if (reason := _elsewhere(miss, device)) is not None:
        return Served(miss=miss, reason=reason)
    if miss.call is not None:
        decorated = targets.decorated(miss.key.kernel)
        noted = importlib.import_module(DECORATED)  # it imports Triton, as the kernel's own module has
        result, key = noted.tune_noted(decorated, miss.call, device, folder, options)
        return _served(miss, result, store_in(str(folder)).get(key.id))
    target: Target = targets.find(miss.key.kernel)
    arguments = made_on(specs_of(unkeyed(miss.key.problem)[0]), device)
    cold = miss.key.cache_state == "cold"
    result = tune(target, kwargs=arguments, cold=cold, cache_dir=folder, device=device, **options)
    return _served(miss, result, recall(target, kwargs=arguments, cold=cold, cache_dir=folder, device=device))


def _served(miss: Miss, result: TuningResult, record: Record | None) -> Served:
    if record is None:
        return Served(miss=miss, result=result, reason="its winner was not stored")
    changed = miss.key.differences(record.key)
    reason = f"the record differs from what was missed in {'; '.join(changed)}" if changed else ""
    return Served(miss=miss, result=result, reason=reason, stored=True)


def _elsewhere(miss: Miss, device: str) -> str | None:
    """Why a miss is none of this machine; None if it is."""
    wanted = miss.key.device.get("name")
    if device == "cuda" and (missing := gpu_missing()):
        return f"it is of {wanted}, and there is no GPU here: {missing}"
    here: DeviceSpec = probe(device)
    return None if here.name == wanted else f"it is of {wanted}, and this machine has {here.name}"
