"""The sources of this torch, in which some facts stand that it tells in no other way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from triton_ops.base import require


def torch_sources(patterns: Sequence[str]) -> Iterator[bytes]:
    """The contents of the files below torch's folder that patterns such as `_inductor/**/*.py` name.

    Raises:
        MissingDependencyError: Torch is not installed.
    """
    root = Path(str(require("torch", "looking into its sources").__file__)).parent
    for pattern in patterns:
        for file in root.glob(pattern):
            yield file.read_bytes()
