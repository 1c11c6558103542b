"""Searchers by name."""

from __future__ import annotations

from collections.abc import Callable

from triton_ops.exceptions import SettingsError
from triton_ops.search.base import Searcher
from triton_ops.search.exhaustive import ExhaustiveSearch
from triton_ops.search.random_search import RandomSearch
from triton_ops.space import ConfigSpace

SEARCHERS: dict[str, Callable[[ConfigSpace, int], Searcher]] = {
    "exhaustive": ExhaustiveSearch,
    "random": RandomSearch,
}


def make_searcher(name: str, space: ConfigSpace, seed: int = 0) -> Searcher:
    """The searcher called `name` on `space`.

    Raises:
        SettingsError: There is none of that name.
    """
    return SEARCHERS[checked_search(name)](space, seed)


def checked_search(name: str) -> str:
    """`name` if it is a searcher's.

    Raises:
        SettingsError: It is not; names the value and the allowed ones.
    """
    if name not in SEARCHERS:
        raise SettingsError(
            f"there is no search {name!r}; there are {', '.join(SEARCHERS)}",
            hint="choose one of these",
        )
    return name
