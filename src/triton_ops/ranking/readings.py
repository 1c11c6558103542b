"""What was read of a space's configs: configs that differ in launch options alone have the same work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from triton_ops.exceptions import SpaceError
from triton_ops.ranking.inferred import untold
from triton_ops.ranking.inferred_traffic import least_bytes
from triton_ops.space import Config
from triton_ops.ttir.launch_work import KernelWork

_NOT_READ = KernelWork(silent="its TTIR was not read")


@dataclass(frozen=True)
class Readings:
    """The work of those configs of a space that were read.

    Attributes:
        names: The tunables on which TTIR depends, in order.
        works: By the values of these tunables.
        capped: Whether some configs were left out to save time.
    """

    names: tuple[str, ...]
    works: dict[tuple[Any, ...], KernelWork] = field(default_factory=dict)
    capped: bool = False

    def key(self, config: Mapping[str, Any]) -> tuple[Any, ...]:
        """What configs of the same TTIR have in common."""
        return tuple((type(value).__name__, value) for value in (config.get(name) for name in self.names))

    def work_of(self, config: Mapping[str, Any]) -> KernelWork:
        """The work of a config; its `silent` says why there is none."""
        return self.works.get(self.key(config), _NOT_READ)

    @property
    def told(self) -> list[KernelWork]:
        """The works that have a forecast."""
        return [w for w in self.works.values() if not w.silent and not any(map(untold, w.launches))]

    @property
    def silent(self) -> str:
        """Why the work of no config is known: the reason of most of them; empty if some is known."""
        if self.told:
            return ""
        reasons = Counter(_reason(work) for work in self.works.values())
        return reasons.most_common(1)[0][0] if reasons else "no config was read"

    @property
    def flops(self) -> float:
        """Operations of products that the config with the fewest makes the matrix units do."""
        return min((sum(launch.flops for launch in work.launches) for work in self.told), default=0.0)

    @property
    def bytes(self) -> float:
        """Different bytes that the config with the fewest loads and stores."""
        return min((sum(map(least_bytes, work.launches)) for work in self.told), default=0.0)

    @property
    def dtype(self) -> str:
        """The dtype of the operands of the products; empty if there are none, or of several dtypes."""
        found = {product.dtype for work in self.told for launch in work.launches for product in launch.products}
        return found.pop() if len(found) == 1 else ""


def readings_json(readings: Readings) -> dict[str, Any]:
    """What was read as plain values for a recording; `readings_of` reads them back."""
    works = [
        {"values": [value for _, value in key], "work": msgspec.to_builtins(work)}
        for key, work in readings.works.items()
    ]
    return {"names": list(readings.names), "works": works}


def readings_of(plain: Mapping[str, Any]) -> Readings:
    """What `readings_json` wrote.

    Raises:
        SpaceError: It cannot be read.
    """
    try:
        readings = Readings(tuple(str(name) for name in plain["names"]))
        for row in plain["works"]:
            config = Config.from_json(dict(zip(readings.names, row["values"], strict=True)))
            readings.works[readings.key(config)] = msgspec.convert(row["work"], KernelWork)
    except (LookupError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise SpaceError(f"what was read of the kernel cannot be read again: {error}") from error
    return readings


def groups(configs: Iterable[Config], readings: Readings) -> dict[tuple[Any, ...], Config]:
    """One config of each different TTIR, in the order of the configs."""
    found: dict[tuple[Any, ...], Config] = {}
    for config in configs:
        found.setdefault(readings.key(config), config)
    return found


def _reason(work: KernelWork) -> str:
    return work.silent or next(filter(None, map(untold, work.launches)), "")
