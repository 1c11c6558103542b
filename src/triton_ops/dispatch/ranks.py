"""The processes of one job agree on winners: the first that needs a problem decides, and the others take its config.

They meet in the store that `torch.distributed` keeps for the job, key by key. There is no collective: a process that
never launches a kernel is never waited for, and one that waits too long runs the default.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any

from triton_ops import settings
from triton_ops.base import canonical_json, require
from triton_ops.dispatch.decision import Decision, Found
from triton_ops.exceptions import SettingsError, SpaceError
from triton_ops.space import Config

_PREFIX = "triton_ops/"

_log = logging.getLogger("triton_ops")


@dataclass(frozen=True)
class Meeting:
    """Place at which the processes of a job meet.

    Attributes:
        store: The job's store: `compare_set`, `set`, `wait` and `get`.
        rank: The number of this process.
    """

    store: Any
    rank: int

    def agreed(
        self,
        key_id: str,
        alone: Callable[[], Decision],
        why_not: Callable[[Config], str | None],
        default: Callable[[str], Decision],
        wait_s: float,
    ) -> Decision:
        """The decision of the job for a key.

        Args:
            key_id: The key's id, which is equal in every process.
            alone: Decides, if this process is the first that asks.
            why_not: Why a config cannot be taken here.
            default: The decision for the default, with the reason why.
            wait_s: How long another process may take; a tune takes its budget.

        Raises:
            Exception: What `alone` raises; the others then run the default.
        """
        name = f"{_PREFIX}{key_id}"
        if self.store.compare_set(f"{name}/who", "", str(self.rank)).decode() == str(self.rank):
            return self._decided(name, alone)
        decision = self._waited(name, wait_s)
        if isinstance(decision, str):
            _log.warning("the default config runs: %s", decision)
            return default(decision)
        if (refused := why_not(decision.config)) is not None:
            return default(f"rank {self.rank} cannot take the config of the job ({decision.config}): {refused}")
        return replace(default(""), found=decision, policy=None)

    def _decided(self, name: str, alone: Callable[[], Decision]) -> Decision:
        content: dict[str, Any] = {"rank": self.rank}
        try:
            decision = alone()
            answer = decision.found
            content |= {"config": dict(answer.config), "rung": answer.rung, "why": answer.why, "record": answer.record}
        finally:
            self.store.set(f"{name}/config", canonical_json(content))
        return decision

    def _waited(self, name: str, wait_s: float) -> Found | str:
        """Decision of another process, or the reason for which it is not known."""
        try:
            self.store.wait([f"{name}/config"], timedelta(seconds=wait_s))
        except Exception as error:  # noqa: BLE001 - each store has its own error for a wait that was too long
            return f"no process of the job has decided within {wait_s:.0f} s ({type(error).__name__})"
        return _read(self.store.get(f"{name}/config"))


def meeting() -> Meeting | None:
    """Place at which the processes of this job meet; None if there is one process, or each decides alone."""
    if "torch.distributed" not in sys.modules or not _agrees():
        return None
    distributed = require("torch.distributed", "agreeing on winners")
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() < 2:
        return None
    store = require("torch.distributed.distributed_c10d", "agreeing on winners")._get_default_store()
    return Meeting(store, distributed.get_rank())


def _agrees() -> bool:
    """Tell whether winners are agreed on; a wrong word in the environment is one warning, since a launch must go on."""
    try:
        return settings.ranks() != "off"
    except SettingsError as error:
        _warn_once(str(error))
        return False


@lru_cache(maxsize=8)
def _warn_once(message: str) -> None:
    _log.warning("%s; each process decides alone", message)


def _read(text: bytes) -> Found | str:
    try:
        content: Mapping[str, Any] = json.loads(text)
        if "config" not in content:
            return f"rank {content['rank']} failed to decide"
        why = f"decided by rank {content['rank']}: {content['why']}"
        return Found(
            config=Config.from_json(content["config"]), rung=content["rung"], why=why, record=content["record"]
        )
    except (ValueError, KeyError, TypeError, SpaceError) as error:
        return f"what another process decided cannot be read: {error}"
