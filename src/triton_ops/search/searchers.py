"""Searchers: their role, their names, the user's own.

A searcher sees configs and trials, and nothing else: no device, no clock, no disk.

The distance between two problems on their devices follows one rule in a live tune and in a replay. A live tune knows
the shapes of all tensors, a recording perhaps only the extents of the problem (M, N and K of a matmul). One extent of a
problem is usually an axis of several tensors, so the distance counts each distinct pair (extent here, extent there)
once, however many axes show that pair. Both descriptions give the same distance if every extent is an axis of some
tensor, and every axis is an extent.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from triton_ops.base import import_in_order
from triton_ops.device import DeviceSpec
from triton_ops.exceptions import MissingDependencyError, SettingsError, alternatives
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Compiled, Trial

_OTHER_ARGUMENT = 1.0  # for a tensor that only one place has, and for a word or flag with another value
_OTHER_DTYPE = 1.0
_OTHER_DEVICE = 1.0
_OTHER_VENDOR = 3.0  # added to that of another device, because speeds on one vendor's devices tell little of another's
_WHOLE = ""  # the tensor name for the extents and the dtype of a problem whose tensors are unknown


@dataclass(frozen=True, kw_only=True)
class ProblemPlace:
    """The problem and the device of some trials; an unknown attribute is empty.

    Extents are by tensor; if the tensors are unknown, the problem's under an empty name, or each under its own.
    `choices` are arguments that are words or flags.
    """

    extents: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, str | bool] = field(default_factory=dict)
    device: str = ""

    @classmethod
    def of_arguments(cls, arguments: Mapping[str, Any], device: str) -> ProblemPlace:
        """The place of a problem by its arguments as a key describes them, tensors by their shape and dtype.

        Beside tensors numbers are left out, because they repeat extents and strides of the tensors or do not change
        which config is fast. Where no shape is known, as of a kernel whose key names its extents, whole numbers are
        the extents; what stands under `NAME:class` is none.
        """
        tensors = {name: value for name, value in arguments.items() if isinstance(value, Mapping) and "shape" in value}
        numbers = {name: (value,) for name, value in arguments.items() if type(value) is int and ":" not in name}
        return cls(
            extents={name: tuple(map(int, value["shape"])) for name, value in tensors.items()} or numbers,
            dtypes={name: str(value.get("dtype", "")) for name, value in tensors.items()},
            choices={name: value for name, value in arguments.items() if isinstance(value, (str, bool))},
            device=device,
        )

    @classmethod
    def of_shape(cls, shape: tuple[int, ...], dtype: str, device: str) -> ProblemPlace:
        """The place of a problem whose extents are known and whose tensors are not."""
        return cls(extents={_WHOLE: shape}, dtypes={_WHOLE: dtype}, device=device)

    def distance(self, other: ProblemPlace) -> float:
        """The distance: 0 for the same place; 1 for each doubled extent, other dtype, other choice or other device.

        An axis that only one place has counts as an axis of extent 1 in the other. A device of another vendor counts 4,
        if the devices' names tell the vendors.
        """
        pairs = [(max(here, there, 1), max(min(here, there), 1)) for here, there in set(self._pairs(other))]
        # Logarithms are subtracted, because the ratio of two whole numbers may exceed the largest float.
        apart = math.fsum(math.log2(large) - math.log2(small) for large, small in pairs)
        apart += _OTHER_ARGUMENT * len(self.extents.keys() ^ other.extents.keys())
        apart += _OTHER_ARGUMENT * _differing(self.choices, other.choices)
        apart += _OTHER_DTYPE * (_differing(self.dtypes, other.dtypes) > 0)
        apart += _OTHER_DEVICE * (self.device != other.device)
        vendors = {DeviceSpec.vendor_of_name(device) for device in (self.device, other.device)} - {None}
        return apart + _OTHER_VENDOR * (len(vendors) > 1)

    @staticmethod
    def transfer(space: ConfigSpace, trials: Sequence[Trial], distance: float) -> Prior | None:
        """The trials of a place at this distance as a prior for `space`; None if they have other tunables."""
        transfer = importlib.import_module("triton_ops.search.surrogate").Transfer(space, trials, distance)
        return transfer if len(transfer) else None

    def _pairs(self, other: ProblemPlace) -> Iterator[tuple[int, int]]:
        """The extents of corresponding axes: the last axis of a tensor here belongs to its last axis there."""
        for name in self.extents.keys() & other.extents.keys():
            yield from zip_longest(reversed(self.extents[name]), reversed(other.extents[name]), fillvalue=1)


def _differing(here: Mapping[str, str | bool], there: Mapping[str, str | bool]) -> int:
    return sum(here[name] != there[name] for name in here.keys() & there.keys())


class Searcher(Protocol):
    """Proposes configs of one space.

    A searcher is deterministic: the same space, seed and trials give the same proposals. No config is proposed twice.
    """

    def ask(self, count: int) -> list[Config]:
        """Up to `count` valid configs that were not proposed before; an empty list when no config is left."""

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take finished trials of the searcher's own proposals, and of configs that others proposed."""


@runtime_checkable
class EstimatesGain(Protocol):
    """A searcher that can tell when little is left to gain, so that a run may end before its budget is spent."""

    def expected_gain(self) -> float:
        """The share by which the most promising config left is expected to be faster than the best so far.

        The share is infinite while the searcher cannot know. A run ends once the share is below the smallest difference
        that its measurement can tell.
        """


@runtime_checkable
class UsesPreviews(Protocol):
    """A searcher that also learns from previews: configs that are compiled only for the searcher to see the result.

    A preview costs a compiler's time and none of the device's. Previews need not be made: without them the searcher
    proposes the same configs as it would without these methods.
    """

    def wanted_previews(self, count: int) -> list[Config]:
        """Up to `count` valid configs that the searcher wants compiled, the most useful first.

        None of them was proposed, tried or asked for here before.
        """

    def take_previews(self, previews: Sequence[Compiled]) -> None:
        """Take the compiler's results for previews, and for proposals as soon as they are compiled.

        Afterwards the searcher never proposes a config that cannot be launched, nor a config that is the same program
        as an earlier proposal.
        """


class Prior(Protocol):
    """Knows something of configs before they are measured: a model of the kernel, or records of other problems.

    A prior orders the first proposals and is one more feature of a search; measurements decide how much it counts.
    """

    def score(self, configs: Sequence[Config]) -> list[float]:
        """Expected milliseconds of each config, or another cost whose ratios are ratios of time.

        NaN means that the prior does not know, and infinity that it expects the config not to run.

        Costs may change after `tell`, because a model learns the compiler's figures of a config.
        """

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take finished trials of this space, for a prior that learns from them."""


@runtime_checkable
class LearnsPreviews(Protocol):
    """A prior that expects another cost of a config once the config was compiled."""

    def take_previews(self, previews: Sequence[Compiled]) -> None:
        """Take the compiler's results for configs of this space; `score` may then say something else of them."""


SEARCHERS: dict[str, tuple[str, str]] = {
    "auto": ("auto", "AutoSearch"),
    "ranked": ("ranked", "RankedSearch"),
    "random": ("sampling", "RandomSearch"),
    "exhaustive": ("sampling", "ExhaustiveSearch"),
    "local": ("coordinate", "LocalSearch"),
    "coordinate": ("coordinate", "CoordinateDescent"),
    "coordinate-all": ("coordinate", "in_all_directions"),
}  # name to module and maker; a module is imported when its searcher is made, since some need large packages
_USES_PRIORS = ("auto", "ranked")  # the searchers that take priors
_IMPORTED_LATE = ("triton_ops.search.auto", "scipy.linalg", "scipy.optimize", "scipy.special", "threadpoolctl")
"""What `auto` imports when it first needs it, which takes a third of a second."""

SearcherFactory: TypeAlias = "Callable[[ConfigSpace, int], Searcher]"
"""Makes a searcher from a space and a seed; a class whose constructor takes these two is a factory."""
AnySearch: TypeAlias = "str | Searcher | SearcherFactory"
"""A searcher's name, a searcher, or a factory of one."""
_Search = TypeVar("_Search", bound=AnySearch)


class Search:
    """A search as a caller gives it: by its name, as a searcher, or as a factory of one."""

    SMALL: ClassVar[int] = 64  # a space of at most this many configs is tried whole by `auto`: a search would save less

    def __init__(self, search: AnySearch) -> None:
        self.search = search

    @property
    def name(self) -> str:
        """The name in records: the search's own name, or the qualified name of its class or function."""
        search = self.search
        if isinstance(search, str):
            return search
        while isinstance(search, functools.partial):
            search = search.func
        owner: Any = search if hasattr(search, "__qualname__") else type(search)
        return f"{owner.__module__}.{owner.__qualname__}"

    @property
    def uses_priors(self) -> bool:
        """True if its searcher takes priors."""
        return self.search in _USES_PRIORS

    def begin_imports(self, space: ConfigSpace) -> None:
        """Begin to import in a thread what a searcher for `space` will need, before the searcher is made.

        A search waits for the packages of its surrogate after three trials, so they are wanted by the time the first
        config is tried. A space that is tried whole needs none. MissingDependencyError: one is not installed.
        """
        joined = math.prod(len(tunable) for tunable in space.tunables.values())
        most = joined if space.listed is None else len(space.listed)
        if self.search == "auto" and most > self.SMALL:
            if (missing := MissingDependencyError.of_extra("tune", "a tune")) is not None:
                raise missing
            # a daemon, because a program that ends meanwhile must not wait for the import
            threading.Thread(target=_load, args=_IMPORTED_LATE, name="triton-ops preload", daemon=True).start()

    @staticmethod
    def checked(search: _Search) -> _Search:
        """Return `search` if it is a searcher's name, a searcher, or can be called to make one; else SettingsError."""
        if isinstance(search, str) and search not in SEARCHERS:
            message = f"there is no search {search!r}; {alternatives(search, SEARCHERS)}"
            raise SettingsError(message, hint="choose one of these, or pass a searcher of your own")
        if not (isinstance(search, str) or _can_search(search) or callable(search)):
            raise SettingsError(
                f"search is {search!r}, which is neither a searcher with methods `ask` and `tell` nor a function that "
                "makes one",
                hint=f"pass one of {', '.join(SEARCHERS)}, a searcher, or a function of a space and a seed",
            )
        return search

    @staticmethod
    def expected_gain(searcher: Searcher) -> float:
        """The gain that a searcher expects; infinite for one that does not estimate a gain."""
        return searcher.expected_gain() if isinstance(searcher, EstimatesGain) else math.inf


def make_searcher(
    search: AnySearch, space: ConfigSpace, seed: int = 0, priors: Sequence[Prior] = (), records: Sequence[Prior] = ()
) -> Searcher:
    """The searcher that `search` names, makes or is; `auto` and `ranked` alone use priors and records.

    `priors` are of this problem, `records` of other problems or devices. Raises SettingsError if `search` is no
    searcher's name, no searcher and makes none, and MissingDependencyError if it needs a package that is not installed.
    """
    Search.checked(search)
    if not isinstance(search, str):
        instance: Any = search if _can_search(search) else cast("SearcherFactory", search)(space, seed)
        if not _can_search(instance):
            message = f"{Search(search).name} made {instance!r}, which has no methods `ask` and `tell`"
            raise SettingsError(message, hint="return a searcher: docs/guides/extend.md has an example")
        return cast("Searcher", instance)
    module, maker = SEARCHERS[search]
    factory = getattr(importlib.import_module(f"triton_ops.search.{module}"), maker)
    searcher: Searcher = factory(space, seed, priors, records) if search in _USES_PRIORS else factory(space, seed)
    return searcher


def _load(*names: str) -> None:
    with contextlib.suppress(Exception):  # `require`, which waits for the rest of the import, reports it
        for name in names:
            import_in_order(name)


def _can_search(search: Any) -> bool:
    """True if `search` is a searcher, and not the class of one."""
    return not isinstance(search, type) and all(callable(getattr(search, name, None)) for name in ("ask", "tell"))
