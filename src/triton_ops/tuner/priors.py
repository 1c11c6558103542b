"""Knowledge that guides a search: models of the work, records of other problems, winners nearby.

Configs that differ in launch options alone have one TTIR, unless the kernel looks at an option: some configs are read
with other options to see that. Of a space with very many texts some are read, then those that a fit expects to be fast.
A survey ends in time, with what was read by then.

Priors that are read from the kernel take a second or two, or many where the processes that read have much to import.
While the process that measures is not ready either, waiting costs nothing, and the first proposals are the better for
it. Once it is ready the default is tried. Then the search waits for a moment, goes on without priors, and begins anew
with all that was found when they come.

Winners nearby come from the cache and from the lockfiles that packages bring. A tune of a few seconds has time for some
dozens of trials; the winner of a neighbour is mostly within some percent of the best, and costs one of them.

Where nothing is measured, a model says which config it takes for the fastest, and how much faster than the default. The
first picks are compiled beside the default. The model then goes by what the compiler made of them: another pick takes
the place of the first one where it is ahead by more than such expectations err, and the model speaks only if the first
one is far enough ahead of the default. It knows no calibration of this machine: all processes of a job expect the same.
"""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from triton_ops import kernel_ir
from triton_ops.backend import Arguments, TritonKernel
from triton_ops.base import inform, warn
from triton_ops.compilation import CompilePool
from triton_ops.cost_model import FirstPick, Model, Readings
from triton_ops.device import Calibration, Machine
from triton_ops.exceptions import UntunedError
from triton_ops.processes import Threads, WorkerProcess
from triton_ops.records import Record, Runs, Store, recalled, winners_of
from triton_ops.request import Effort, TuneRequest
from triton_ops.search import Prior, ProblemPlace, Search, Searcher, UsesPreviews, make_searcher
from triton_ops.space import Config, ConfigSpace, UnlistedSpace
from triton_ops.tuner.feeds import Previews
from triton_ops.values import Compiled, Key, Mapper, Measurement, Status, Trial

_MOST = 4  # places whose trials guide a search, the nearest ones


def transfers_to(request: TuneRequest, key: Key, records: Iterable[Record], folder: Path) -> list[Prior]:
    """Priors from the records of the same kernel on other problems and devices, the nearest first, four at most.

    A key with an unknown part gets none, and such records give none, since kernels that cannot be told from each other
    share a name; nor do those that run as Python where this one does not, or the other way round. A record whose run
    logs are still in the cache folder contributes every trial, any other only winner, ties and default.
    """
    here = place_of(key)
    if key.unknown is not None:
        return []
    # Of the same problem and device, with another source, version or cache state, the winner is tried as it stands.
    same, kind = (dict(key.problem), key.device.get("name")), (key.kernel, None, key.interpreted)
    others = [r for r in records if (r.key.kernel, r.key.unknown, r.key.interpreted) == kind]
    others = [r for r in others if (dict(r.key.problem), r.key.device.get("name")) != same]
    others.sort(key=lambda record: (place_of(record.key).distance(here), record.id))
    priors: list[Prior] = []
    for record in others:
        trials = Runs(folder, record.id).trials(record.run) or _summary(record)  # those of its own run first
        transfer = ProblemPlace.transfer(request.space, trials, place_of(record.key).distance(here))
        if transfer is not None:
            priors.append(transfer)
        if len(priors) == _MOST:
            break
    return priors


def place_of(key: Key) -> ProblemPlace:
    """The problem and the device of a key, for its distance from another; a bucket is at its largest problem."""
    return ProblemPlace.of_arguments(Mapper.unkeyed(key.problem)[0], str(key.device.get("name", "")))


def _summary(record: Record) -> list[Trial]:
    """The winner, the configs that tied with the winner, and the default, as trials."""
    times: dict[Config, float] = {}
    if record.default is not None and record.default_timing is not None:
        times[record.default] = record.default_timing.median_ms
    times.update((config, record.timing.median_ms) for config in (record.winner, *record.ties))
    return [Trial(config, Status.OK, Measurement((ms,), record.mode)) for config, ms in times.items()]


_NEARBY_MOST = 3  # configs
_FARTHEST = 4.0  # doublings of extents, other dtypes and other choices, together


def winners_nearby(request: TuneRequest, key: Key, records: Iterable[Record]) -> list[Config]:
    """The winners for problems nearby that the space allows, the nearest first, three at most.

    A key with an unknown part has no neighbours, since it may stand for several kernels.
    """
    if key.unknown is not None:
        return []
    here = place_of(key)
    distances = [(place_of(other).distance(here), config) for other, config in winners_of(key, records)]
    near = sorted((each for each in distances if each[0] <= _FARTHEST), key=lambda each: each[0])
    allowed = [it for it in dict.fromkeys(config for _, config in near) if not request.space.why_not(it)]
    return allowed[:_NEARBY_MOST]


def in_use(request: TuneRequest, key: Key, records: Store[Record], first: Sequence[Config]) -> list[Config]:
    """What calls run now, as far as the space allows it: no tune may end with a slower config.

    `first` begins with the config in use, if one is known. Without it, and without a record, a model picks for calls.
    """
    record = recalled(key, records)
    configs = [*first[:1], *([record.winner] if record else [])]
    if not configs and (pick := _first_pick(request.of_class, key, records)):
        configs = [pick.config]
    return [config for config in configs if request.space.why_not(config) is None]


def _first_pick(request: TuneRequest, key: Key, records: Store[Record]) -> FirstPick | None:
    if (ranked := request.ranked) is None:
        return None
    work, least_gain = ranked
    winners = (config for _, config in winners_of(key, records))
    return Model(work, Machine.of(request.device)).first_pick(request.space, winners, least_gain)


_LOOK_S = 0.01  # between two looks whether the process that measures is ready
_PATIENCE_S = 1.0  # after the default was tried: about as long as a kernel is read once its processes are there
_SHARE = 0.1  # of the budget's seconds, at most

_INLINE_S = 2.0  # for the priors before the first proposals where this process measures

Make = Callable[[Sequence[Prior]], Searcher]


def readiness(process: WorkerProcess | None) -> Callable[[], bool]:
    """A test if something could be measured: the worker has answered or ended; without one, two seconds are over."""
    if process is not None:
        return lambda: process.has_written
    end_s = time.monotonic() + _INLINE_S
    return lambda: time.monotonic() >= end_s


def searcher_over(
    make: Make, priors: Future[list[Prior]], ready: Callable[[], bool], budget_s: float | None = None
) -> Searcher:
    """The searcher with its priors if they come before something can be measured, else one that takes them later."""
    while not priors.done() and not ready():
        wait([priors], timeout=_LOOK_S)
    if priors.done():
        return make(priors.result())
    return LatePriors(make, priors, _PATIENCE_S if budget_s is None else min(_PATIENCE_S, _SHARE * budget_s))


class LatePriors:
    """A searcher that proposes nothing until the default was tried, and then waits once for its priors."""

    def __init__(self, make: Make, priors: Future[list[Prior]], patience_s: float) -> None:
        self._make, self._priors, self._patience_s = make, priors, patience_s
        self._searcher: Searcher | None = None
        self._whole = False  # whether the searcher has its priors
        self._trials: list[Trial] = []
        self._compiled: list[Compiled] = []

    def ask(self, count: int) -> list[Config]:
        """Proposals of the searcher; an empty list before the first trial, unless the priors have come."""
        searcher = self._awaited()
        return [] if searcher is None else searcher.ask(count)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take finished trials."""
        searcher = self._current()
        self._trials += trials
        if searcher is not None:
            searcher.tell(trials)

    def expected_gain(self) -> float:
        """As of the searcher; infinite until it is there."""
        return math.inf if (searcher := self._current()) is None else Search.expected_gain(searcher)

    def wanted_previews(self, count: int) -> list[Config]:
        """Previews of the searcher, which are asked for before proposals are; none before the first trial."""
        if (searcher := self._awaited()) is None or not isinstance(searcher, UsesPreviews):
            return []
        return searcher.wanted_previews(count)

    def take_previews(self, results: Sequence[Compiled]) -> None:
        """Take the compiler's results."""
        searcher = self._current()
        self._compiled += results
        if searcher is not None and isinstance(searcher, UsesPreviews):
            searcher.take_previews(results)

    def _awaited(self) -> Searcher | None:
        """The searcher, which is waited for once, after the first trial; None before, unless the priors have come."""
        if self._current() is None and self._trials:
            wait([self._priors], timeout=self._patience_s)
            if self._current() is None:
                inform("the search begins before the kernel is read")
                self._begin([])
        return self._searcher

    def _current(self) -> Searcher | None:
        """The searcher, begun anew with its priors if they have come meanwhile; None if there is none yet."""
        if not self._whole and self._priors.done():
            self._whole, error = True, self._priors.exception()
            late = self._searcher is not None and isinstance(error, Exception)
            if late:  # what went wrong with the priors ends no search that has begun without them
                warn("the search goes on without a model: reading the kernel failed", exc_info=error)
            priors = [] if late else self._priors.result()
            if priors or self._searcher is None:
                self._begin(priors)
        return self._searcher

    def _begin(self, priors: Sequence[Prior]) -> None:
        self._searcher = self._make(priors)
        if self._trials:
            self._searcher.tell(list(self._trials))
        if self._compiled and isinstance(self._searcher, UsesPreviews):
            self._searcher.take_previews(list(self._compiled))


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

    @staticmethod
    def considered(space: ConfigSpace) -> list[Config]:
        """The configs that a survey considers: default and seeds, all of a small space, some of a large one."""
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


_OF_A_LAUNCH = Survey(texts=_COVER, promising=72, seconds=2.0)  # few texts, so that the machine's speed decides nothing


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
        with contextlib.suppress(NotYetError, CancelledError):  # `wait` would not see that a pool that ends cancels it
            first.exception(timeout=_FIRST_S)
        in_time = first.done() and not first.cancelled()
        self._end_s = time.monotonic() + (self._seconds if in_time else 0.0)
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


_WHOLE_NUMBERS = {"int64", "int32", "int16", "int8", "uint8"}
_MOST_BYTES = 64 << 10  # of a tensor whose elements are read because a kernel's loops depend on data


def coming_priors(
    request: TuneRequest, folder: Path | None, pool: CompilePool | None, trials: int | None = None,
    survey: Survey | None = None,
) -> Future[list[Prior]]:  # fmt: skip
    """The model of a request's work as a prior; an empty list where it can say nothing.

    Work that the kernel's author has declared comes first, and is known at once. Otherwise the configs are read in the
    compile processes, which takes a second and more and is done in a thread, unless the space is so small that it is
    tried whole, in so many `trials` at most. The thread ends soon after the pool was closed, and its result is then
    nobody's. The cache folder may hold the device's calibration; None uses none.
    """
    priors: Future[list[Prior]] = Future()
    machine = Machine.of(request.device, None if folder is None else Calibration.load(folder, request.device.name))
    declared = request.work if request.work is not None and request.work.tiles is not None else None
    if machine is None or declared is not None or pool is None:
        priors.set_result([] if machine is None or declared is None else [Model(declared, machine).prior])
        return priors
    configs = Survey.considered(request.space)
    if len(configs) <= min(Search.SMALL, trials or Search.SMALL):
        priors.set_result([])
        return priors

    contents = small_contents(request)  # a copy from the GPU in the thread would end a graph that is captured meanwhile

    def read() -> list[Prior]:
        named = len(getattr(request.space, "seeds", ())) or 1
        prior = (survey or Survey()).read(configs, machine, pool.read, contents, named).prior(machine, configs)
        if prior.silent:
            inform("the search begins without a model: %s", prior.silent)
        return [] if prior.silent else [prior]

    threading.Thread(target=Threads.settle, args=(priors, read), name="triton-ops reading", daemon=True).start()
    return priors


def small_contents(request: TuneRequest) -> Contents:
    """The elements of small tensors of whole numbers, the caller's or those that specs hold, by parameters' names."""
    arguments: Mapping[str, Any] = {name: spec.fill for name, spec in request.problem.specs.items()}
    if request.originals is not None:
        arguments = request.originals.by_name(request.kernel).keyword
    tensors = {name: value for name, value in arguments.items() if Arguments.is_tensor(value) and value.is_contiguous()}
    small = {name: value for name, value in tensors.items() if value.numel() * value.element_size() <= _MOST_BYTES}
    return {
        name: value.flatten().tolist()
        for name, value in small.items() if str(value.dtype).removeprefix("torch.") in _WHOLE_NUMBERS
    }  # fmt: skip


_ERROR = 0.05
"""Share by which expected times of leading picks err against each other once the compiler's figures are known.

The standard deviation of the logarithm of measured over expected times among eight picks is 0.055, the median of 76
recorded spaces (`benchmarks/model/inferred_quality.py`); shares from 0.03 to 0.08 choose about as well.
"""


@dataclass(frozen=True)
class Expectation:
    """A config that would run and the model's pick, in words how fast, and the share that the first pick is ahead.

    The pick is ahead by as much at least. The share is NaN where the first pick is the other config, or cannot be
    compared with it.
    """

    pair: ConfigSpace
    forecast: str
    gain: float

    @property
    def text(self) -> str:
        """The forecast with who made it."""
        return f"a model of the work, which {self.forecast}"

    @classmethod
    def of(
        cls, request: TuneRequest, effort: Effort, pool: CompilePool | None, survey: Survey | None = None, *,
        of_list: bool = False,
    ) -> Expectation:  # fmt: skip
        """The expectation for a request; raises UntunedError, with the reason, where a model has none.

        The pick is compared with the default or, `of_list`, with the seed that is expected to be fastest. A launch
        waits for it unless there is a `survey`: all of the effort's previews are compiled then, however few processes
        compile. Cost: what a survey of the kernel takes, and the compilation of the previews.
        """
        if pool is None:
            raise _unsure(request, "it is not compiled ahead, so that no model can read it")
        pool.submit(request.space.default_config, anyway=True, spare=True)
        if not (priors := coming_priors(request, None, pool, 1, survey or _OF_A_LAUNCH).result()):
            raise _unsure(request, "no model has a forecast of its configs on this device")
        first, whose = request.space.default_config, "the default"
        if of_list and isinstance(request.space, UnlistedSpace):
            times = priors[0].score(request.space.seeds)
            first, whose = request.space.seeds[min(range(len(times)), key=times.__getitem__)], "the fastest of the list"
        previews = min(effort.previews, pool.workers) if survey is None else effort.previews
        leaders = _leaders(request, previews, pool, priors)
        between = cls._between(pool.submit(first, anyway=True).result(), leaders, whose, priors[0])
        unseen = (machine := Machine.of(request.device)) is not None and machine.unseen
        return replace(between, forecast=f"{between.forecast} ({unseen})") if unseen else between

    @classmethod
    def _between(cls, default: Compiled, leaders: Sequence[Compiled], whose: str, prior: Prior) -> Expectation:
        first, too_large = next(iter(leaders), default), default.status is Status.RESOURCES
        able = first.launchable and first.resources is not None and (default.launchable or too_large)
        if default.config == first.config or not able:
            space = ConfigSpace.from_configs(dict.fromkeys((default.config, first.config)))
            return cls(space, f"first picks {whose} itself, or the compiler has refused one of both", math.nan)
        prior.tell([Trial(one.config, Status.DEFERRED, resources=one.resources) for one in (default, *leaders)])
        default_ms, *times = prior.score([default.config, *(one.config for one in leaders)])
        fastest = min(range(len(times)), key=times.__getitem__)
        at = fastest if times[0] >= (1 + _ERROR) * times[fastest] else 0
        beside = f"{default_ms:.3g} ms of {whose}"
        if too_large:
            default_ms, beside = math.inf, f"no launch of {whose}, which {default.reason}"
        gain = default_ms / times[0] - 1 if math.isfinite(times[0]) else math.nan
        before = f", {times[0]:.3g} ms of its first pick" if at else ""
        space = ConfigSpace.from_configs(dict.fromkeys((default.config, leaders[at].config)))
        return cls(space, f"expects {times[at]:.3g} ms of ({leaders[at].config}){before} and {beside}", gain)

    def worth(self, request: TuneRequest, effort: Effort) -> Expectation:
        """Itself, where the gain that it expects is the effort's at least; else raises UntunedError."""
        if not self.gain >= effort.expected_gain:
            raise _unsure(request, f"the model {self.forecast}, and is sure from {effort.expected_gain:.0%} on")
        return self


def _leaders(request: TuneRequest, most: int, pool: CompilePool, priors: list[Prior]) -> list[Compiled]:
    """The first pick of a model that can be launched and does not spill, then all such previews; empty if none is."""
    searcher = make_searcher("ranked", request.space, priors=priors)
    assert isinstance(searcher, UsesPreviews)
    compiled: list[Compiled] = []
    previews = Previews(searcher, pool, most, Machine.of(request.device), compiled.append)
    previews.update()
    wait(previews.under_way)
    previews.update()
    asked = (pool.submit(config, anyway=True).result() for config in searcher.ask(most))
    first = next(filter(_is_light, asked), None)
    return [*([] if first is None else [first]), *filter(_is_light, compiled)]


def _is_light(compiled: Compiled) -> bool:
    return compiled.status is Status.OK and compiled.resources is not None and not compiled.resources.wasteful


def _unsure(request: TuneRequest, why: str) -> UntunedError:
    kernel, problem = request.problem.kernel, request.problem.label
    return UntunedError(
        f"no config of {kernel} {problem} is expected to be faster than the default: {why}", kernel, problem,
        hint="an effort such as race or quick measures",
    )  # fmt: skip
