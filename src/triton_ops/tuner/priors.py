"""What a search may expect of configs before it begins: by declared work, else by work that is read from TTIR.

Configs that differ in launch options alone have one TTIR, unless the kernel looks at an option: some configs are read
with other options to see that. Of a space with very many texts some are read, then those that a fit expects to be fast.
A survey ends in time, with what was read by then.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from triton_ops.backend import LAUNCH_OPTIONS, by_name, is_tensor
from triton_ops.compilation import CompilePool
from triton_ops.cost_model import InferredPrior, Readings
from triton_ops.device import Machine, load_calibration, machine_of
from triton_ops.kernel_ir import KernelWork
from triton_ops.records import model_of
from triton_ops.request import CopiedArguments, Task
from triton_ops.search import SMALL, Prior
from triton_ops.space import Config, ConfigSpace, all_configs

Contents: TypeAlias = "Mapping[str, Sequence[int]]"
Ask: TypeAlias = "Callable[[Config, Contents], Future[KernelWork]]"

WHOLE = 5_000  # most configs of a space that are all considered
_DRAWN = 2_000  # of a larger space
_FIRST_S = 30.0  # until the first answer: the processes start meanwhile
_SPREAD_SHARE = 0.7  # of the time, for the texts that are spread over a space of more; the rest is for promising ones
_PROBED = 2  # configs that are read with other launch options


@dataclass(frozen=True)
class SurveyLimits:
    """How much a survey may cost.

    Attributes:
        texts: Different texts that are read, spread over the space.
        promising: Further texts that are read because they are expected to be fast.
        seconds: Seconds after the first answer, for all that follows.
    """

    texts: int = 400
    promising: int = 100
    seconds: float = 1.0


def considered(space: ConfigSpace, seed: int = 0) -> list[Config]:
    """The configs that a survey considers: all of a small space, some of a large one in random order."""
    if found := all_configs(space, WHOLE):
        return found
    rng = random.Random(seed)
    return list(dict.fromkeys(space.sample(rng) for _ in range(_DRAWN)))


def survey(
    configs: Sequence[Config],
    ask: Ask,
    contents: Callable[[], Contents] = dict,
    expected: Callable[[Readings], Callable[[Sequence[Config]], Sequence[float]]] | None = None,
    limits: SurveyLimits | None = None,
) -> Readings:
    """What the configs do, as far as it can be read in time.

    Args:
        configs: The configs, of which at least one.
        ask: Starts reading one config.
        contents: Elements of small tensors of whole numbers; asked for if the kernel's loops depend on data.
        expected: From what was read to the expected times of configs; None reads no promising ones.
        limits: How much it may cost; None takes the default limits.
    """
    limits = limits or SurveyLimits()
    reader = _Reader(ask, limits.seconds)
    readings = reader.begun(configs, contents)
    if not readings.works:
        return readings
    todo = readings.representatives(configs)
    capped = len(todo) > limits.texts
    spread = random.Random(0).sample(todo, limits.texts) if capped else todo
    reader.read(readings, spread, _SPREAD_SHARE if capped and limits.promising else 1.0)
    if capped and expected is not None and not readings.silent:
        left = [config for config in todo if readings.key(config) not in readings.works]
        times = expected(readings)(left)
        best = sorted(range(len(left)), key=lambda at: times[at])[: limits.promising]
        reader.read(readings, [left[at] for at in best])
    return replace(readings, capped=len(todo) > len(readings.works))


class _Reader:
    """Reads configs, and ends in time.

    Args:
        ask: Starts reading one config.
        seconds: How long reading may go on after the first answer.
    """

    def __init__(self, ask: Ask, seconds: float) -> None:
        self._ask, self._seconds = ask, seconds
        self._contents: Contents = {}
        self._end_s = math.inf  # by `time.monotonic`

    def begun(self, configs: Sequence[Config], contents: Callable[[], Contents]) -> Readings:
        """Readings of a first config, which know on which tunables TTIR depends; without works if that is in vain."""
        names = tuple(name for name in configs[0] if name not in LAUNCH_OPTIONS)
        probes = [probe for config in _apart(configs) for probe in _with_other_options(config, configs)]
        asked = list(dict.fromkeys([configs[0], *(config for probe in probes for config in probe[1:])]))
        found = self._first_answers(asked)
        if any(map(_depends_on_data, found.values())) and (known := contents()):
            self._contents = known
            found = self._first_answers(asked)
        if (first := found.get(configs[0])) is None:
            return Readings(names)
        options = dict.fromkeys(name for name, one, other in probes if found.get(one) != found.get(other))
        readings = Readings((*names, *options))
        readings.works[readings.key(configs[0])] = first
        return readings

    def read(self, readings: Readings, configs: Sequence[Config], share: float = 1.0) -> None:
        """Add what is read of configs in this share of the time that is left."""
        todo = [config for config in configs if readings.key(config) not in readings.works]
        for config, work in self._in_time(self._asked(todo), share).items():
            readings.works[readings.key(config)] = work

    def _first_answers(self, configs: Sequence[Config]) -> dict[Config, KernelWork]:
        """What was read of the first configs; the time for all that follows begins with the answer for the first."""
        futures = self._asked(configs)
        first = futures[configs[0]]
        with contextlib.suppress(NotYetError, CancelledError):  # `wait` would not see that a pool that ends cancels it
            first.exception(timeout=_FIRST_S)
        answered = first.done() and not first.cancelled()
        self._end_s = time.monotonic() + (self._seconds if answered else 0.0)
        return self._in_time(futures)

    def _asked(self, configs: Iterable[Config]) -> dict[Config, Future[KernelWork]]:
        return {config: self._ask(config, self._contents) for config in configs}

    def _in_time(self, futures: Mapping[Config, Future[KernelWork]], share: float = 1.0) -> dict[Config, KernelWork]:
        """What is read of each config within a share of the time that is left."""
        wait(futures.values(), timeout=max(self._end_s - time.monotonic(), 0.0) * share)
        for future in futures.values():
            future.cancel()
        return {
            config: future.result() for config, future in futures.items() if future.done() and not future.cancelled()
        }


def _apart(configs: Sequence[Config]) -> list[Config]:
    return list(dict.fromkeys((configs[0], configs[-1])))[:_PROBED]


def _with_other_options(config: Config, configs: Sequence[Config]) -> list[tuple[str, Config, Config]]:
    """For each launch option that varies: its name, a config, and the config with another value of it."""
    found: list[tuple[str, Config, Config]] = []
    for name in config:
        if name in LAUNCH_OPTIONS:
            other: Any = next((one[name] for one in configs if one[name] != config[name]), config[name])
            if other != config[name]:
                found.append((name, config, Config({**config, name: other})))
    return found


def _depends_on_data(work: KernelWork) -> bool:
    return any(loop.by_data for launch in work.launches for loop in launch.loops)


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
