"""The shipped families of tiles by the names under which recordings keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from triton_ops.exceptions import SpaceError
from triton_ops.ranking.attention import AttentionTiles
from triton_ops.ranking.gemm import GemmTiles
from triton_ops.ranking.products import ProductTiles
from triton_ops.ranking.rows import ElementTiles, RowTiles
from triton_ops.work import Work

FAMILIES: dict[str, type[Any]] = {
    "gemm": GemmTiles,
    "products": ProductTiles,
    "attention": AttentionTiles,
    "rows": RowTiles,
    "elements": ElementTiles,
}


def work_json(work: Work) -> dict[str, Any]:
    """A work as plain values for a recording; `work_of` reads them back.

    The user's own tiles are left out, because a recording may be read where their class is unknown.
    """
    plain: dict[str, Any] = {"flops": work.flops, "bytes": work.bytes}
    for family, kind in FAMILIES.items():
        if isinstance(work.tiles, kind):
            plain["tiles"] = {"family": family, **asdict(work.tiles)}
    return plain


def work_of(plain: Mapping[str, Any]) -> Work:
    """The work that `work_json` wrote.

    Raises:
        SpaceError: This version does not know the family, or the family lacks one of the fields.
    """
    tiles = dict(plain.get("tiles") or {})
    family = tiles.pop("family", None)
    if family is None:
        return Work(plain.get("flops", 0.0), plain.get("bytes", 0.0))
    if family not in FAMILIES:
        raise SpaceError(
            f"tiles of family {family!r} are not known; known are {', '.join(FAMILIES)}",
            hint="leave the tiles out; the model then makes no forecast",
        )
    try:
        made = msgspec.convert(tiles, FAMILIES[family])
    except msgspec.ValidationError as error:
        raise SpaceError(f"tiles of family {family} cannot be read: {error}") from error
    return Work(plain.get("flops", 0.0), plain.get("bytes", 0.0), made)
