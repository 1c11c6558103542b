"""A call of a decorated kernel in plain values, from which it can be made again."""

from __future__ import annotations

from typing import Annotated

import msgspec

from triton_ops._ranges import Extent, Plain
from triton_ops.cache.key import Argument


class NotedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a decorated kernel, of whose arguments the key holds no more than decides the config.

    Of a tensor its shape, dtype, strides and alignment are kept, and nothing that is in it.

    Attributes:
        arguments: Name to plain value: a scalar, or what `triton_ops.problem.plain` makes of a tensor's spec.
        configs: The configs that could be taken, as values by name.
        grids: The grid of each config, in the same order; a text says why the grid function had none.
    """

    arguments: dict[str, Argument]
    configs: Annotated[list[dict[str, Plain]], msgspec.Meta(min_length=1)]
    grids: list[list[Extent] | str]
