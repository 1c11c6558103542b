"""Knowledge that guides a search: models of the work, records of other problems, winners nearby.

Winners nearby come from the cache and from the lockfiles that packages bring. A tune of a few seconds has time for some
dozens of trials; the winner of a neighbour is mostly within some percent of the best, and costs one of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from triton_ops.backend import Arguments
from triton_ops.base import inform
from triton_ops.compilation import CompilePool
from triton_ops.cost_model import FirstPick, Model
from triton_ops.device import Machine
from triton_ops.processes import Threads
from triton_ops.records import Record, Runs, Store, recalled, winners_of
from triton_ops.request import TuneRequest
from triton_ops.search import Prior, ProblemPlace, Search
from triton_ops.space import Config
from triton_ops.tuner.survey import Contents, Survey
from triton_ops.values import Key, Mapper, Trial

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
    # The id orders equal distances alike in all processes.
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
    return [Trial.of_time(config, ms, record.mode) for config, ms in times.items()]


_NEARBY_MOST = 3  # configs
_FARTHEST = 4.0  # doublings of extents, other dtypes and other choices, together


def winners_nearby(request: TuneRequest, key: Key, records: Iterable[Record]) -> list[Config]:
    """The winners for problems nearby that the space allows, the nearest first, three at most.

    A key with an unknown part has no neighbours, since it may stand for several kernels.
    """
    others = [] if key.unknown is not None else list(winners_of(key, records))
    if not others:
        return []
    here = place_of(key)
    distances = [(place_of(other).distance(here), config) for other, config in others]
    near = sorted((each for each in distances if each[0] <= _FARTHEST), key=lambda each: each[0])
    return [it for it in dict.fromkeys(config for _, config in near) if not request.space.why_not(it)][:_NEARBY_MOST]


def in_use(request: TuneRequest, key: Key, records: Store[Record], first: Sequence[Config]) -> list[Config]:
    """What calls run now, as far as the space allows it: no tune may end with a slower config.

    `first` begins with the config in use, if one is known. Without it, and without a record, a model picks for calls.
    """
    record = recalled(key, records)
    configs = [*first[:1], *([record.winner] if record else [])]
    if not configs and (pick := _first_pick(request, key, records)):
        configs = [pick.config]
    return [config for config in configs if request.space.why_not(config) is None]


def _first_pick(request: TuneRequest, key: Key, records: Store[Record]) -> FirstPick | None:
    if request.ranked is None or (ranked := (typical := request.of_class).ranked) is None:
        return None
    work, least_gain = ranked
    winners = (config for _, config in winners_of(key, records))
    return Model(work, Machine.of(typical.device)).first_pick(typical.space, winners, least_gain)


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
    declared = request.work if request.work is not None and request.work.tiles is not None else None
    silent = declared is None and pool is None  # then not even the calibration of the device is read, which is a file
    machine = None if silent else Machine.of(request.device if folder is None else request.device.calibrated(folder))
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
