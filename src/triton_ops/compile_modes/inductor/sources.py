"""Facts that this torch tells, by its options or by its sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from triton_ops.base import require


def option_values() -> dict[str, Any]:
    """Every option of this torch's Inductor by its dotted name, with its present value."""
    return dict(require("torch._inductor.config", "asking torch's compiler what it knows").get_config_copy())


def torch_sources(patterns: Sequence[str]) -> Iterator[bytes]:
    """The contents of the files below torch's folder that patterns such as `_inductor/**/*.py` name.

    Raises:
        MissingDependencyError: Torch is not installed.
    """
    root = Path(str(require("torch", "looking into its sources").__file__)).parent
    for pattern in patterns:
        for file in root.glob(pattern):
            yield file.read_bytes()
