"""A survey: which of a kernel's texts are read for a model, and when it ends.

Configs that differ in launch options alone have one TTIR, unless the kernel looks at an option: some configs are read
with other options to see that. Of a space with very many texts some are read, then those that a fit expects to be fast.
A survey ends in time, with what was read by then.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass
from typing import TypeAlias

from triton_ops import kernel_ir
from triton_ops.backend import TritonKernel
from triton_ops.cost_model import Readings
from triton_ops.device import Machine
from triton_ops.space import Config, ConfigSpace

Contents: TypeAlias = "Mapping[str, Sequence[int]]"
Ask: TypeAlias = "Callable[[Config, Contents], Future[kernel_ir.KernelWork]]"

WHOLE = 5_000  # most configs of a space that are all considered
_DRAWN = 2_000  # of a larger space
_FIRST_S = 30.0  # until the first answer: the processes start meanwhile
_COVER = 24  # texts that are spread over a space before promising ones are read
_LEADING, _ROUNDS = 16, 8  # texts of the configs that are expected to be fastest; how often these are looked for
_SPREAD_SHARE = 0.7  # of the time, for the texts that are spread over a space of more; the rest is for promising ones


@dataclass(frozen=True)
class Survey:
    """A survey of the work of configs, with the limits of its cost.

    So many different texts are read, spread over the space, and `promising` ones, which are expected to be fast: after
    the first of the others, and after all of them. `seconds` count from the first answer, for all that follows.
    """

    texts: int = 400
    promising: int = 100
    seconds: float = 1.0

    @classmethod
    def unhurried(cls) -> Survey:
        """A survey whose time is that of a machine on which nobody waits for a GPU."""
        return cls(seconds=120.0)

    @classmethod
    def of_a_launch(cls) -> Survey:
        """Few texts, so that the speed of the machine decides nothing: all processes of a job are to agree."""
        return cls(texts=_COVER, promising=72, seconds=2.0)

    @staticmethod
    def considered(space: ConfigSpace) -> list[Config]:
        """The configs that a survey considers: default and seeds, all of a small space, some of a large one."""
        # The seed is fixed, so that all processes of a job consider the same configs.
        rng, first = random.Random(0), (space.default_config, *getattr(space, "seeds", ()))
        whole = space.all_configs(WHOLE)
        known = {*whole} if whole else {*first}  # a part of a space need not have the default
        others = whole or (space.sample(rng) for _ in range(_DRAWN))
        return list(dict.fromkeys((*filter(known.__contains__, first), *others)))

    def read(
        self, configs: Sequence[Config], machine: Machine | None, ask: Ask, contents: Contents | None = None,
        named: int = 1,
    ) -> Readings:  # fmt: skip
        """The work of the configs, at least one, as far as it can be read in time; promising ones for a machine.

        The first ones, so many as are `named`, are read before the others. `ask` starts reading one config. `contents`
        are the elements of small tensors of whole numbers, which are used if the kernel's loops depend on data.
        """
        reader = _SurveyReader(ask, self.seconds)
        readings = reader.begun(configs, contents)
        if not readings.works:
            return readings
        first, todo = (readings.representatives(some) for some in (configs[:named], configs))
        rng = random.Random(0)
        rest = sorted(todo[len(first) :], key=lambda one: (readings.key(one) not in readings.works, rng.random()))
        for texts in sorted({min(_COVER, self.texts), self.texts}):
            some = bool(rest[texts:] and self.promising)
            reader.read(readings, [*first, *rest[:texts]], _SPREAD_SHARE if some else 1.0)
            if some and machine is not None and not readings.silent:
                reader.read_promising(readings, configs, machine, len(first) + texts + self.promising)
        return readings


class _SurveyReader:
    """Reads configs, for so many seconds after the first answer."""

    def __init__(self, ask: Ask, seconds: float) -> None:
        self._ask, self._seconds = ask, seconds
        self._contents: Contents = {}
        self._end_s = math.inf  # by `time.monotonic`

    def begun(self, configs: Sequence[Config], contents: Contents | None) -> Readings:
        """Readings of a first config, which know on which tunables TTIR depends; without works if that is in vain."""
        names = tuple(name for name in configs[0] if name not in TritonKernel.LAUNCH_OPTIONS)
        ends = dict.fromkeys((configs[0], configs[-1]))
        probes = [probe for config in ends for probe in _with_other_options(config, configs)]
        probed = list(dict.fromkeys([configs[0], *(config for probe in probes for config in probe[1:])]))
        works = self._first_answers(probed)
        loops = (loop for work in works.values() for launch in work.launches for loop in launch.loops)
        if contents and any(loop.by_data for loop in loops):
            self._contents = contents
            works = self._first_answers(probed)
        if configs[0] not in works:
            return Readings(names)
        read = {config: work for config, work in works.items() if not work.silent}
        options = dict.fromkeys(name for name, a, b in probes if read.keys() >= {a, b} and read[a] != read[b])
        readings = Readings((*names, *options))
        readings.works.update((readings.key(config), works[config]) for config in ends if config in works)
        return readings

    def read(self, readings: Readings, configs: Sequence[Config], share: float = 1.0) -> None:
        todo = [config for config in configs if readings.key(config) not in readings.works]
        for config, work in self._in_time(self._futures(todo), share).items():
            readings.works[readings.key(config)] = work

    def read_promising(self, readings: Readings, configs: Sequence[Config], machine: Machine, most: int) -> None:
        """Read what is expected to be fast until all leading texts, or so many in all, are read."""
        prior = readings.prior(machine, configs)
        for _ in range(_ROUNDS):
            times = prior.score(configs)
            order = sorted((at for at, ms in enumerate(times) if ms < math.inf), key=times.__getitem__)
            leading = readings.representatives(configs[at] for at in order)[:_LEADING]
            unread = [config for config in leading if readings.key(config) not in readings.works]
            if not unread or time.monotonic() >= self._end_s:
                return
            self.read(readings, unread[: max(most - len(readings.works), 0)])
            prior.renew()

    def _first_answers(self, configs: Sequence[Config]) -> dict[Config, kernel_ir.KernelWork]:
        """Works of the first configs; the time for all that follows begins with the answer for the first."""
        futures = self._futures(configs)
        first = futures[configs[0]]
        # not `wait`, which waits for ever for a future that a pool cancels as it ends: python/cpython#92001
        with contextlib.suppress(NotYetError, CancelledError):
            first.exception(timeout=_FIRST_S)
        self._end_s = time.monotonic() + (self._seconds if first.done() and not first.cancelled() else 0.0)
        return self._in_time(futures)

    def _futures(self, configs: Iterable[Config]) -> dict[Config, Future[kernel_ir.KernelWork]]:
        return {config: self._ask(config, self._contents) for config in configs}

    def _in_time(
        self, futures: Mapping[Config, Future[kernel_ir.KernelWork]], share: float = 1.0
    ) -> dict[Config, kernel_ir.KernelWork]:
        wait(futures.values(), timeout=max(self._end_s - time.monotonic(), 0.0) * share)
        for future in futures.values():
            future.cancel()
        return {config: it.result() for config, it in futures.items() if it.done() and not it.cancelled()}


def _with_other_options(config: Config, configs: Sequence[Config]) -> Iterator[tuple[str, Config, Config]]:
    """For each launch option that varies: its name, a config, and one with another value of it, a listed one if any."""
    for name in filter(TritonKernel.LAUNCH_OPTIONS.__contains__, config):
        if others := [one for one in configs if one.get(name) != config[name]]:
            nearest = min(others, key=lambda one: sum(value != config.get(each) for each, value in one.items()))
            yield name, config, Config({**config, name: nearest.get(name)})
