"""The options of a tune, apart from its problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_ops import request, settings
from triton_ops.exceptions import SettingsError

if TYPE_CHECKING:
    from triton_ops import search as searches
    from triton_ops.request.effort import Effort, Patience


def _typed(kind: type, flag: str, text: str, metavar: str | None = None) -> dict[str, Any]:
    """The metadata of a field that is an option of commands; a flag that begins with `--no-` is its opposite."""
    return {"type": kind, "flag": flag, "help": text, "metavar": metavar}


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """The options of a tune, apart from its problem; `triton_ops.tune` describes them.

    Whatever starts a tune has these names and defaults, and passes the value on whole; commands make their options of
    the fields. `keep` is False where nothing is read from the cache folder or written to it.

    Raises:
        SettingsError: The seed is no whole number of 0 or more, `isolate` no truth value, or the memory no size.
    """

    effort: str | Effort | None = field(default=None, metadata=_typed(
        str, "--effort", "expected, race, quick, full or exhaustive; default TRITON_OPS_EFFORT or quick.", "WORD"
    ))  # fmt: skip
    search: searches.AnySearch | None = field(default=None, metadata=_typed(
        str, "--search", "auto, ranked, random, exhaustive, local, coordinate; default by effort.", "WORD"
    ))  # fmt: skip
    trials: int | None = field(default=None, metadata=_typed(int, "--trials", "Most trials; default by effort.", "N"))
    budget_s: float | None = field(default=None, metadata=_typed(
        float, "--budget-s", "Limit of seconds for the whole; default by effort, for a list none.", "S"
    ))  # fmt: skip
    seed: int = field(default=0, metadata=_typed(int, "--seed", "Seed of orders and of made-up inputs.", "N"))
    isolate: bool | None = field(default=None, metadata=_typed(
        bool, "--isolate/--inline", "Try configs in a process of their own (default for Triton on a GPU), or here."
    ))  # fmt: skip
    force: bool = field(default=False, metadata=_typed(bool, "--force", "Search again even if the winner is known."))
    transfer: bool = field(default=True, metadata=_typed(
        bool, "--no-transfer", "Do not learn from records of other problems and devices."
    ))  # fmt: skip
    wait: bool = field(default=True, metadata=_typed(
        bool, "--no-wait", "End with an error if another process measures on the GPU."
    ))  # fmt: skip
    memory_bytes: int | str | None = field(default=None, metadata=_typed(
        str, "--memory-bytes", "Most memory of a tune, such as 2GiB; default TRITON_OPS_MEMORY.", "SIZE"
    ))  # fmt: skip
    cache_dir: str | Path | None = field(default=None, metadata=_typed(
        str, "--cache-dir", settings.HELP_OF_CACHE_DIR, "DIR"
    ))  # fmt: skip
    patience: Patience | None = None
    keep: bool = True

    def __post_init__(self) -> None:
        SettingsError.checked("the seed", self.seed, 0, whole=True, hint="0 is the default")
        object.__setattr__(self, "seed", int(self.seed))
        object.__setattr__(self, "memory_bytes", settings.memory_bytes(self.memory_bytes))
        if not isinstance(self.isolate, (bool, type(None))):
            raise SettingsError(f"isolate is {self.isolate!r}; it must be True, False or None", hint="or leave it out")

    @classmethod
    def check_names(cls, names: Iterable[str], takes: str, listed: str) -> None:
        """Raise a `SettingsError`, in these words, for what is no option that many calls of `tune` may share.

        A listener is none of these fields, since it lives in one process.
        """
        known = {*(each.name for each in fields(cls)), "listener"}
        if unknown := sorted({*names} - known):
            message = f"{takes} no option {', '.join(unknown)}"
            raise SettingsError(message, hint=f"{listed} are {', '.join(sorted(known))}")

    def settled(self) -> Effort:
        """The effort that is asked for, with `search`, `trials`, `budget_s` and `patience` in place of its own."""
        return request.Effort.named(self.effort).with_own(self.search, self.trials, self.budget_s, self.patience)

    def of_effort(self, effort: Effort) -> TuneOptions:
        """These options with an effort that is settled, whatever the environment of another process says."""
        return replace(self, effort=effort, search=None, trials=None, budget_s=None, patience=None)
