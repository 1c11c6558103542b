"""Pieces that the kernels in Gluon share."""

from __future__ import annotations

from triton_ops.base import require

gluon = require("triton.experimental.gluon", "forms in Gluon")
gl = require("triton.experimental.gluon.language", "forms in Gluon")
tma = require("triton.experimental.gluon.language.nvidia.hopper.tma", "forms in Gluon")

# Triton 3.7 and 3.9 have other names than 3.6 for the barrier and for the bulk copies.
together = gl.thread_barrier if hasattr(gl, "thread_barrier") else gl.barrier
copy_in = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
copy_out = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global


@gluon.jit
def corner(tile, M, N, BM: gl.constexpr, BN: gl.constexpr, GROUP: gl.constexpr):
    """Row and column of a tile's first element; consecutive tiles walk down GROUP tile rows."""
    tile_rows, tile_columns = gl.cdiv(M, BM), gl.cdiv(N, BN)
    first = tile // (GROUP * tile_columns) * GROUP
    rows = gl.minimum(tile_rows - first, GROUP)
    place = tile % (GROUP * tile_columns)
    return (first + place % rows) * BM, place // rows * BN
