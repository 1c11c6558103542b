"""Reading what the configs of a space do, in the compile processes, before a search begins.

Configs that differ in launch options alone have one TTIR, unless the kernel looks at an option: some configs are read
with other options to see that. Of a space with very many texts some are read, then those that a fit expects to be fast.
A survey ends in time, with what was read by then.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from triton_ops.backend.triton import LAUNCH_OPTIONS
from triton_ops.ranking.readings import Readings, groups
from triton_ops.space import Config, ConfigSpace
from triton_ops.space.whole import all_configs
from triton_ops.ttir.launch_work import KernelWork

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
    todo = list(groups(configs, readings).values())
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
