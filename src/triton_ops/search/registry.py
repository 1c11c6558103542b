"""Searchers by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from triton_ops.exceptions import SettingsError
from triton_ops.search.base import Prior, Searcher
from triton_ops.space import ConfigSpace
from triton_ops.trial import Trial

SEARCHERS: dict[str, tuple[str, str]] = {
    "auto": ("auto", "AutoSearch"),
    "random": ("random_search", "random_search"),
    "exhaustive": ("exhaustive", "exhaustive_search"),
    "latin": ("latin", "LatinSearch"),
    "local": ("local", "LocalSearch"),
    "evolution": ("evolution", "EvolutionSearch"),
    "annealing": ("annealing", "AnnealingSearch"),
    "optuna": ("optuna_search", "OptunaSearch"),
}  # name to module and what makes one: imported when one is made, since some need large packages
GUIDED = ("auto",)  # those that take priors


def make_searcher(
    name: str, space: ConfigSpace, seed: int = 0, priors: Sequence[Prior] = (), records: Sequence[Prior] = ()
) -> Searcher:
    """The searcher called `name` on `space`; only `auto` heeds `priors` of this problem and `records` of others.

    Raises:
        SettingsError: There is none of that name.
        MissingDependencyError: It needs a package that is not installed.
    """
    module, maker = SEARCHERS[checked_search(name)]
    made = getattr(importlib.import_module(f"triton_ops.search.{module}"), maker)
    searcher: Searcher = made(space, seed, priors, records) if name in GUIDED else made(space, seed)
    return searcher


def make_transfer(space: ConfigSpace, trials: Sequence[Trial], distance: float) -> Prior | None:
    """What `trials` of another place, this far away, say of `space`; None if they have other tunables."""
    made = importlib.import_module("triton_ops.search.transfer").Transfer(space, trials, distance)
    return made if len(made) else None


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
