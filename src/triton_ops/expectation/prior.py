"""What a search may expect of configs before it begins: by declared work, else by work that is read from TTIR."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from triton_ops.backend import by_name, is_tensor
from triton_ops.compile_pool.pool import CompilePool
from triton_ops.expectation.survey import Contents, SurveyLimits, considered, survey
from triton_ops.hardware import Machine, load_calibration, machine_of
from triton_ops.history.transfer import model_of
from triton_ops.ranking.inferred_prior import InferredPrior
from triton_ops.ranking.readings import Readings
from triton_ops.search import Prior
from triton_ops.search.base import SMALL
from triton_ops.space import Config
from triton_ops.task.task import CopiedArguments, Task

_log = logging.getLogger("triton_ops")

_WHOLE_NUMBERS = {"int64", "int32", "int16", "int8", "uint8"}
_MOST_BYTES = 64 << 10  # of a tensor whose elements are read because a kernel's loops depend on data


def coming_priors(task: Task, folder: Path, pool: CompilePool | None) -> Future[list[Prior]]:
    """The model of a task's work as a prior; an empty list where it can say nothing.

    Work that the kernel's author has declared comes first, and is known at once. Otherwise the configs are read in the
    compile processes, which takes a second and more and is done in a thread, unless the space is so small that it is
    tried whole. The thread ends soon after the pool was closed, and its result is then nobody's.

    Args:
        task: The task that is going to be tuned.
        folder: The cache folder, which may hold the device's calibration.
        pool: The compile processes; None if there are none.
    """
    found: Future[list[Prior]] = Future()
    if (task.work is not None and task.work.tiles is not None) or pool is None:
        found.set_result(model_of(task, folder))
        return found
    machine = machine_of(task.device, load_calibration(folder, task.device.name))
    configs = considered(task.space) if machine is not None else []
    if machine is None or len(configs) <= SMALL:
        found.set_result([])
        return found

    contents = small_contents(task)  # a copy from the GPU in the thread would end a graph that is captured meanwhile

    def read() -> None:
        try:
            found.set_result(_read(contents, configs, machine, pool))
        except BaseException as error:  # noqa: BLE001 - whoever takes the result raises it
            found.set_exception(error)

    threading.Thread(target=read, name="triton-ops reading", daemon=True).start()
    return found


def _read(contents: Contents, configs: Sequence[Config], machine: Machine, pool: CompilePool) -> list[Prior]:
    prior = inferred_prior(configs, machine, pool, lambda: contents)
    if prior.silent:
        _log.info("the search begins without a model: %s", prior.silent)
        return []
    return [prior]


def inferred_prior(
    configs: Sequence[Config],
    machine: Machine,
    pool: CompilePool,
    contents: Callable[[], Contents] = dict,
    limits: SurveyLimits | None = None,
) -> InferredPrior:
    """The model of the work that is read of configs; its `silent` says why it orders nothing.

    Args:
        configs: Configs of the space, at least one.
        machine: The device.
        pool: The compile processes.
        contents: Elements of small tensors of whole numbers; asked for if the kernel's loops depend on data.
        limits: How much reading may cost.
    """

    def expected(readings: Readings) -> Callable[[Sequence[Config]], Sequence[float]]:
        return InferredPrior(readings, machine, configs).score

    return InferredPrior(survey(configs, pool.read, contents, expected, limits), machine, configs)


def small_contents(task: Task) -> Contents:
    """The elements of the caller's small tensors of whole numbers, by their parameters' names."""
    if not isinstance(task.arguments, CopiedArguments):
        return {}
    given = by_name(task.kernel, task.arguments.given).keyword
    return {name: value.flatten().tolist() for name, value in given.items() if is_tensor(value) and _is_small(value)}


def _is_small(tensor: Any) -> bool:
    kind = str(tensor.dtype).removeprefix("torch.")
    return kind in _WHOLE_NUMBERS and tensor.numel() * tensor.element_size() <= _MOST_BYTES and tensor.is_contiguous()
