"""A `triton.Config` as the plain object that Triton and others write: tunables apart from launch options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from triton_ops.tensors import ITEM_BYTES

OPTIONS = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None, "pre_hook": None, "ir_override": None}
"""The fields of a `triton.Config` beside its tunables, with their defaults in Triton 3.6 to 3.9."""


def flat(content: Any) -> Any:
    """Such an object as one mapping, without options that are null and one thread block per cluster; else as it is."""
    if not isinstance(content, Mapping) or not isinstance(content.get("kwargs"), Mapping):
        return content
    options = {name: content[name] for name in OPTIONS if content.get(name) is not None}
    if options.get("num_ctas") == OPTIONS["num_ctas"]:
        del options["num_ctas"]
    return {**content["kwargs"], **options}


def nested(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as such an object."""
    options = {name: config.get(name, default) for name, default in OPTIONS.items()}
    return {"kwargs": {name: value for name, value in config.items() if name not in OPTIONS}, **options}


def triton_key(at: Sequence[Any]) -> tuple[Any, ...]:
    """A row's values as Triton's key has them: dtypes as `torch.bfloat16`."""
    return tuple(f"torch.{value}" if isinstance(value, str) and value in ITEM_BYTES else value for value in at)


def launches_as(found: Mapping[str, Any] | None, config: Mapping[str, Any]) -> bool:
    """Whether a config that was looked up launches as another one does: equal, save for options left to Triton."""
    return found is not None and all(found.get(name, OPTIONS.get(name)) == value for name, value in config.items())
