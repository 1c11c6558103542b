"""An entry of a lockfile measured again: a tune among its config, the default and neighbours, which leaves nothing.

An operation is tuned for the entry's problem. A decorated kernel, whose problem has only classes of arguments, is tuned
for the call that was noted when its config was found.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from triton_ops.cache import LockEntry, NotedCall
from triton_ops.exceptions import SpaceError
from triton_ops.problem import from_plain
from triton_ops.runner.session import tune, uninterrupted
from triton_ops.search.neighbours import neighbours
from triton_ops.serving.entries import Bound
from triton_ops.serving.targets import DECORATED, Targets, made_on
from triton_ops.space import Config, ConfigSpace
from triton_ops.task.effort import Effort, effort_of
from triton_ops.tensors import TensorSpec
from triton_ops.trial import TuningResult

_FRACTIONS = ("float", "bfloat", "complex")


def why_not_again(found: Bound) -> str | None:
    """Why an entry's launch cannot be made again, wherever it is; None if it can."""
    call = found.entry.call
    if found.specs is not None or isinstance(call, NotedCall):
        return None
    if call is None:
        return "only the classes of its arguments are known: no call was noted; remove its record, and call it again"
    return f"only the classes of its arguments are known: {call}"


def measured_again(
    found: Bound, targets: Targets, device: str, most_neighbours: int, options: Mapping[str, Any]
) -> TuningResult:
    """The result of a tune among an entry's config, the default and the nearest neighbours.

    Args:
        found: The entry; `why_not_again` has no reason for it.
        targets: The kernels that the lockfile names.
        device: Torch's name of the device.
        most_neighbours: How many neighbours are measured at most.
        options: Further options of `tune`.

    Raises:
        TuningFailedError: No config ran.
        SpaceError: The config may not be taken for the call, or the call is none that the entry answers.
        KernelTypeError, TargetError: The call does not fit the kernel, or it is no decorated one.
        ShapeMismatchError: The arguments need more memory than there is.
        KeyboardInterrupt: Ctrl-C has ended the tune, even if configs have run by then.
    """
    asked: dict[str, Any] = {"effort": _all_race(most_neighbours), "search": "exhaustive", "transfer": False, **options}
    with tempfile.TemporaryDirectory(prefix="triton-ops-verify-") as folder:
        if found.specs is None:
            return uninterrupted(_called_again(found, targets, device, most_neighbours, Path(folder), asked))
        cold = found.entry.measured is None or found.entry.measured.cache_state == "cold"
        result = tune(
            found.target, kwargs=made_on(found.specs, device), space=_rivals(found.entry, found.space, most_neighbours),
            device=device, cold=cold, cache_dir=folder, **asked,
        )  # fmt: skip
        return uninterrupted(result)


def _all_race(most_neighbours: int) -> Effort:
    """A quick effort in which every config is a finalist.

    A screening alone says little of how much slower a config is: it lasts milliseconds, and a finalist's time, with
    which it would be compared, was taken seconds later.
    """
    return replace(effort_of("quick"), finalists=2 + most_neighbours)


def _called_again(
    found: Bound, targets: Targets, device: str, most_neighbours: int, folder: Path, asked: Mapping[str, Any]
) -> TuningResult:
    """The result for the noted call of a decorated kernel."""
    entry, noted = found.entry, found.entry.call
    assert isinstance(noted, NotedCall)  # `why_not_again` has looked
    calls = importlib.import_module(DECORATED)  # it imports Triton, as the kernel's own module has
    call = calls.made_again(targets.decorated(entry.kernel), noted, device)
    if (other := entry.why_not(call.asked)) is not None:
        raise SpaceError(f"the call that is noted is of another problem: {other}", hint="tune it again, and lock it")
    if (refused := call.space.why_not(entry.config)) is not None:
        raise SpaceError(f"its config ({entry.config}) cannot be taken for its call: {refused}", hint="tune it again")
    result: TuningResult = calls.tuned_again(call, _rivals(entry, call.space, most_neighbours), folder, asked)
    return result


def _rivals(entry: LockEntry, space: ConfigSpace | None, most_neighbours: int) -> ConfigSpace:
    """The entry's config beside the default one, which comes first, and its neighbours."""
    default = entry.default if space is None else space.default_config
    beside: Iterable[Config] = [] if space is None else _beside(space, entry.config)
    listed = [*([default] if default is not None else []), entry.config, *islice(beside, most_neighbours)]
    return ConfigSpace.from_configs(list(dict.fromkeys(listed)), default=listed[0])


def _beside(space: ConfigSpace, config: Config) -> Iterable[Config]:
    """The nearest configs first; in a list, whose configs often differ in several values, those with the fewest."""
    if space.listed is None:
        return neighbours(space, config, steps_only=True)
    others = (other for other in space if other != config)
    return sorted(others, key=lambda other: sum(other[name] != value for name, value in config.items()))


def unknown_values(found: Bound) -> list[str]:
    """The tensors of integers in a noted call, such as offsets and tables: the kernel may need other values than these.

    Their values are not kept, and those that are made up may lead it outside of other tensors.
    """
    if not isinstance(found.entry.call, NotedCall):
        return []
    specs = {name: from_plain(value) for name, value in found.entry.call.arguments.items()}
    return [
        name for name, spec in specs.items() if isinstance(spec, TensorSpec) and not spec.dtype.startswith(_FRACTIONS)
    ]
