"""Searchers by name, and the user's own searchers."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from triton_ops.base import import_in_order
from triton_ops.exceptions import SettingsError
from triton_ops.search.roles import SMALL, Prior, Searcher
from triton_ops.space import ConfigSpace
from triton_ops.values import Trial

SEARCHERS: dict[str, tuple[str, str]] = {
    "auto": ("auto", "AutoSearch"),
    "random": ("sampling", "random_search"),
    "exhaustive": ("sampling", "exhaustive_search"),
    "latin": ("sampling", "LatinSearch"),
    "local": ("walks", "LocalSearch"),
    "evolution": ("walks", "EvolutionSearch"),
    "annealing": ("walks", "AnnealingSearch"),
    "coordinate": ("coordinate", "CoordinateDescent"),
    "coordinate-all": ("coordinate", "in_all_directions"),
    "optuna": ("optuna_search", "OptunaSearch"),
}  # name to module and maker; a module is imported when its searcher is made, since some need large packages
USES_PRIORS = ("auto",)  # the searchers that take priors
_IMPORTED_LATE = {
    "auto": ("triton_ops.search.auto", "scipy.linalg", "scipy.optimize", "scipy.special", "threadpoolctl")
}  # what searchers import when they first need it, which takes a third of a second

SearcherFactory: TypeAlias = "Callable[[ConfigSpace, int], Searcher]"
"""Makes a searcher from a space and a seed; a class whose constructor takes these two is a factory."""
AnySearch: TypeAlias = "str | Searcher | SearcherFactory"
"""A searcher's name, a searcher, or a factory of one."""
_Search = TypeVar("_Search", bound=AnySearch)


def make_searcher(
    search: AnySearch, space: ConfigSpace, seed: int = 0, priors: Sequence[Prior] = (), records: Sequence[Prior] = ()
) -> Searcher:
    """The searcher that `search` names, makes or is; only `auto` uses priors.

    Args:
        search: A name in `SEARCHERS`, or the user's own searcher or factory.
        space: The configs that may be proposed.
        seed: Seed of all random choices.
        priors: Prior knowledge of this problem.
        records: Prior knowledge from other problems.

    Raises:
        SettingsError: There is no searcher of that name, or the factory's result has no `ask` and `tell`.
        MissingDependencyError: The searcher needs a package that is not installed.
    """
    checked_search(search)
    if not isinstance(search, str):
        return cast("Searcher", search) if _can_search(search) else _make(cast("SearcherFactory", search), space, seed)
    module, maker = SEARCHERS[search]
    factory = getattr(importlib.import_module(f"triton_ops.search.{module}"), maker)
    searcher: Searcher = factory(space, seed, priors, records) if search in USES_PRIORS else factory(space, seed)
    return searcher


def begin_imports(search: AnySearch, space: ConfigSpace) -> None:
    """Begin to import in a thread what a searcher for `space` will need, before the searcher is made.

    A search waits for the packages of its surrogate after three trials, so they are wanted by the time the first config
    is tried. A space that is tried whole needs none.
    """
    joined = math.prod(len(tunable) for tunable in space.tunables.values())
    most = joined if space.listed is None else len(space.listed)
    if isinstance(search, str) and search in _IMPORTED_LATE and most > SMALL:
        _preload(*_IMPORTED_LATE[search])


def _preload(*names: str) -> None:
    """Begin to import packages in a thread, so that a later `require` waits only for the rest of the import.

    A failure is ignored here, since `require` reports it.
    """

    def load() -> None:
        with contextlib.suppress(Exception):
            for name in names:
                import_in_order(name)

    threading.Thread(target=load, name="triton-ops preload", daemon=True).start()


def make_transfer(space: ConfigSpace, trials: Sequence[Trial], distance: float) -> Prior | None:
    """The trials of another place at this distance as a prior for `space`; None if they have other tunables."""
    transfer = importlib.import_module("triton_ops.search.transfer").Transfer(space, trials, distance)
    return transfer if len(transfer) else None


def checked_search(search: _Search) -> _Search:
    """Return `search` if it is a searcher's name, a searcher, or can be called to make one.

    Raises:
        SettingsError: `search` is none of these; the error has the value and the allowed ones.
    """
    if isinstance(search, str) and search not in SEARCHERS:
        raise SettingsError(
            f"there is no search {search!r}; there are {', '.join(SEARCHERS)}",
            hint="choose one of these, or pass a searcher of your own",
        )
    if not (isinstance(search, str) or _can_search(search) or callable(search)):
        raise SettingsError(
            f"search is {search!r}, which has no methods `ask` and `tell` and cannot be called to make what has them",
            hint=f"pass one of {', '.join(SEARCHERS)}, a searcher, or a function from a space and a seed to one",
        )
    return search


def search_name(search: AnySearch) -> str:
    """The name of the search in records: its own name, or the qualified name of its class or function."""
    if isinstance(search, str):
        return search
    while isinstance(search, functools.partial):
        search = search.func
    owner: Any = search if hasattr(search, "__qualname__") else type(search)
    return f"{owner.__module__}.{owner.__qualname__}"


def _can_search(search: Any) -> bool:
    """True if `search` is a searcher, and not the class of one."""
    return not isinstance(search, type) and all(callable(getattr(search, name, None)) for name in ("ask", "tell"))


def _make(factory: SearcherFactory, space: ConfigSpace, seed: int) -> Searcher:
    searcher = factory(space, seed)
    if not _can_search(searcher):
        raise SettingsError(
            f"{search_name(factory)} made {searcher!r}, which has no methods `ask` and `tell`",
            hint="return a searcher: docs/guides/searcher.md has an example",
        )
    return searcher
