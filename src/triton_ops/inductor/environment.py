"""The environment variables of torch's compiler: log switches for a process that is started, and wrong names.

Fact used, of torch 2.11 to 2.15: `TORCH_LOGS` holds names of logs and artefacts with commas between them, each perhaps
after `+` or `-`, and is read when torch is imported; the names are in `torch._logging._internal.log_registry`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from triton_ops._optional import require
from triton_ops.exceptions import SettingsError

LOGS = "TORCH_LOGS"
READ = ("cudagraphs", "perf_hints", "recompiles")
"""The artefacts that tell what became of CUDA graphs, and what was compiled again."""
_MEANT = {"TORCH_LOG": LOGS, "TORCHLOGS": LOGS, "TORCH_LOGGING": LOGS, "TORCHINDUCTOR_LOGS": LOGS}
_OFF = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
_PREFIXES = ("TORCHINDUCTOR_", "TORCH_COMPILE_")
_NEAR = 0.85


def switched_off(environment: Mapping[str, str]) -> str:
    """The variable by which `torch.compile` does nothing at all; empty where it is not switched off."""
    return next((name for name in _OFF if environment.get(name) == "1"), "")


def log_switches(environment: Mapping[str, str], artefacts: Iterable[str] = READ) -> dict[str, str]:
    """`TORCH_LOGS` with `artefacts` beside what is asked for already, for a process that has yet to import torch."""
    asked = [word.strip() for word in environment.get(LOGS, "").split(",") if word.strip()]
    bare = {word.lstrip("+-") for word in asked}
    return {LOGS: ",".join([*asked, *(name for name in artefacts if name not in bare)])}


def checked_logs(names: Sequence[str]) -> None:
    """Raise unless torch has all these logs and artefacts.

    Raises:
        SettingsError: It has not; the message names those that are close.
    """
    known = known_logs()
    for name in names:
        if (bare := name.strip().lstrip("+-")) not in known:
            near = difflib.get_close_matches(bare, known, n=3, cutoff=0.5) or sorted(known)[:8]
            raise SettingsError(f"torch has no log {bare!r}; close are {', '.join(near)}", hint=f"set {LOGS} to a name")


def known_logs() -> set[str]:
    """The logs and artefacts that this torch has."""
    registry: Any = require("torch._logging._internal", "asking torch for its logs").log_registry
    return {*registry.log_alias_to_log_qnames, *registry.artifact_names, "all"}


def wrong_names(
    environment: Collection[str], known: Collection[str] = (), is_read: Callable[[str], bool] = lambda _: False
) -> dict[str, str]:
    """Variables that are set and that torch does not read, each with the one that was probably meant.

    Args:
        environment: The names that are set.
        known: The names that torch's compiler reads, as `options.variables` finds them; none looks for `TORCH_LOG` and
            the like alone.
        is_read: Whether torch reads a variable after all, as `options.is_read` finds out; asked for doubtful ones only.
    """
    found = {name: _MEANT[name] for name in environment if name in _MEANT}
    for name in environment:
        if known and name.startswith(_PREFIXES) and name not in known and name not in found:
            near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
            found.update({name: near[0]} if near and not is_read(name) else {})
    return found
