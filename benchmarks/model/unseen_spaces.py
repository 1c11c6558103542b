"""The problems and spaces of `unseen_kernels`, recorded after the model was changed by what `fresh_spaces` showed.

The first value of each tunable is the default: what an author would write before a tune.
"""

from __future__ import annotations

from typing import Any

from triton import cdiv

from benchmarks.model import unseen_kernels as kernels
from benchmarks.model.fresh_spaces import by_blocks, by_tiles, empty, floats, plain_space, uniform
from triton_ops import TensorSpec

_SOURCES = 16384  # rows of the dense factor of a sparse product, and places to which rows are added
_WARPS = [4, 2, 8]


def _scattered(shape: tuple[int, ...]) -> list[int]:
    """Numbers below `_SOURCES` in no order, most of them several times."""
    return [at * 40503 % 65537 % _SOURCES for at in range(shape[0])]


def _heads(heads: int, S: int, D: int, *read: str, **more: Any) -> dict[str, Any]:
    return {name: uniform(heads, S, D) for name in read} | {"S": S, "scale": D**-0.5, "D": D} | more


def _sparse(width: int = 256, rows: int = _SOURCES, each: int = 32) -> dict[str, Any]:
    return {
        "values": floats(rows * each), "columns": TensorSpec((rows * each,), "int32", fill=_scattered),
        "begins": TensorSpec((rows + 1,), "int32", fill="offsets", total=rows * each),
        "dense": floats(_SOURCES, width), "out": empty(rows, width, dtype="float32"), "width": width,
    }  # fmt: skip


def _paged(keys: int = 4096, sequences: int = 64, heads: int = 4, G: int = 16, D: int = 128) -> dict[str, Any]:
    pages = cdiv(keys, 16)
    stored = uniform(sequences * pages, 16, heads, D)
    return {
        "q": uniform(sequences, heads, G, D), "k": stored, "v": stored,
        "pages": TensorSpec((sequences, pages), "int32", fill="shuffled"), "out": empty(sequences, heads, G, D),
        "keys": keys, "scale": D**-0.5, "G": G, "D": D, "PAGE": 16,
    }  # fmt: skip


SPACES = (
    plain_space(
        kernels.linear_gelu_kernel, by_tiles, ["out"],
        lambda M=4096, N=4096, K=2048: {
            "x": uniform(M, K), "w": uniform(N, K), "bias": uniform(N), "out": empty(M, N), "M": M, "N": N, "K": K},
        BM=[128, 64], BN=[128, 64, 256], BK=[64, 32], GROUP=[8, 1], num_warps=[4, 8], num_stages=[3, 4],
    ),
    plain_space(
        kernels.weight_gradient_kernel, lambda meta: (cdiv(meta["K"], meta["BK"]), cdiv(meta["N"], meta["BN"])), ["dw"],
        lambda tokens=8192, K=2048, N=3072: {
            "x": uniform(tokens, K), "dy": uniform(tokens, N), "dw": empty(K, N, dtype="float32"), "tokens": tokens,
            "K": K, "N": N},
        BK=[128, 64], BN=[128, 64, 256], BT=[64, 32], num_warps=[4, 8], num_stages=[3, 2, 4],
    ),
    plain_space(
        kernels.lora_kernel, lambda meta: (cdiv(meta["M"], meta["BM"]), cdiv(meta["N"], meta["BN"])), ["out"],
        lambda M=4096, N=4096, K=4096, R=16: {
            "x": uniform(M, K), "w": uniform(K, N), "a": uniform(K, R), "b": uniform(R, N), "out": empty(M, N),
            "M": M, "N": N, "K": K, "R": R},
        BM=[128, 64], BN=[128, 64, 256], BK=[64, 32], num_warps=[4, 8], num_stages=[3, 2, 4],
    ),
    plain_space(
        kernels.block_scaled_kernel, lambda meta: (cdiv(meta["N"], meta["BN"]), cdiv(meta["M"], meta["BM"])), ["c"],
        lambda M=2048, N=4096, K=7168: {
            "a": uniform(M, K, dtype="float8_e4m3fn"), "b": uniform(N, K, dtype="float8_e4m3fn"),
            "a_scale": floats(M, cdiv(K, 128), fill="positive"),
            "b_scale": floats(cdiv(N, 128), cdiv(K, 128), fill="positive"), "c": empty(M, N), "M": M, "N": N, "K": K},
        BM=[64, 32, 128], BN=[128, 64, 256], num_warps=[4, 8], num_stages=[3, 2, 4, 5],
    ),
    plain_space(
        kernels.attention_dq_kernel, lambda meta: (cdiv(meta["S"], meta["BM"]), meta["q"].shape[0]), ["dq"],
        lambda heads=32, S=4096, D=64: _heads(
            heads, S, D, "q", "k", "v", "dout", lse=floats(heads, S, fill="positive"),
            delta=floats(heads, S), dq=empty(heads, S, D)),
        BM=[64, 32, 128], BN=[64, 32, 128], num_warps=[4, 8], num_stages=[2, 1, 3, 4],
    ),
    plain_space(
        kernels.bias_attention_kernel, lambda meta: (cdiv(meta["S"], meta["BM"]), meta["q"].shape[0]), ["out"],
        lambda heads=32, S=2048, D=64: _heads(heads, S, D, "q", "k", "v", bias=uniform(S, S), out=empty(heads, S, D)),
        BM=[64, 32, 128], BN=[64, 32, 128], num_warps=[4, 8], num_stages=[3, 1, 2, 4],
    ),
    plain_space(
        kernels.paged_decode_kernel, lambda meta: meta["q"].shape[:2], ["out"], _paged,
        BN=[64, 16, 32, 128], num_warps=_WARPS, num_stages=[3, 1, 2, 4],
    ),
    plain_space(
        kernels.retention_kernel, lambda meta: (meta["D"] // meta["BV"], meta["q"].shape[0]), ["out"],
        lambda heads=128, S=2048, D=128: {
            **{name: uniform(heads, S, D) for name in ("q", "k", "v")}, "out": empty(heads, S, D), "S": S, "D": D},
        BV=[64, 32, 128], BT=[64, 32, 128], num_warps=[4, 8], num_stages=[1, 2, 3],
    ),
    plain_space(
        kernels.lower_gram_kernel, lambda meta: (cdiv(meta["N"], meta["BLOCK"]),) * 2, ["out"],
        lambda N=4096, K=2048: {"x": uniform(N, K), "out": empty(N, N), "N": N, "K": K},
        BLOCK=[128, 32, 64], BK=[64, 32, 128], num_warps=[4, 8], num_stages=[3, 2, 4],
    ),
    plain_space(
        kernels.nearest_kernel, lambda meta: (cdiv(meta["points"], meta["BP"]),), ["out"],
        lambda points=131072, count=1024, D=64: {
            "x": uniform(points, D), "centres": uniform(count, D), "out": empty(points, dtype="float32"),
            "points": points, "count": count, "D": D},
        BP=[128, 32, 64], BC=[64, 32, 128], num_warps=_WARPS, num_stages=[3, 1, 2],
    ),
    plain_space(
        kernels.pointwise_conv_kernel,
        lambda meta: (cdiv(meta["P"], meta["BP"]), cdiv(meta["F"], meta["BF"]), meta["x"].shape[0]), ["out"],
        lambda images=32, C=256, F=512, P=3136: {
            "x": uniform(images, C, P), "w": uniform(F, C), "out": empty(images, F, P), "C": C, "F": F, "P": P},
        BF=[64, 32, 128], BP=[128, 32, 64], BC=[32, 64], num_warps=[4, 8], num_stages=[3, 2],
    ),
    plain_space(
        kernels.geglu_backward_kernel, by_blocks, ["dgate", "dup"],
        lambda size=1 << 25: {
            **{name: uniform(size) for name in ("gate", "up", "dy")}, "dgate": empty(size), "dup": empty(size),
            "size": size},
        BLOCK=[1024, 128, 256, 512, 2048, 4096], num_warps=[4, 1, 2, 8, 16],
    ),
    plain_space(
        kernels.quantize_rows_kernel, lambda meta: (cdiv(meta["rows"], meta["ROWS"]),), ["out", "scales"],
        lambda rows=65536, columns=1024: {
            "x": uniform(rows, columns), "out": empty(rows, columns, dtype="int8"),
            "scales": empty(rows, dtype="float32"), "rows": rows, "columns": columns, "N": 1024},
        ROWS=[2, 1, 4, 8, 16], num_warps=[4, 1, 2, 8, 16, 32],
    ),
    plain_space(
        kernels.log_softmax_kernel, lambda meta: (meta["x"].shape[0],), ["out"],
        lambda rows=4096, columns=32000: {
            "x": uniform(rows, columns), "out": empty(rows, columns), "columns": columns},
        BLOCK=[2048, 512, 1024, 4096, 8192], num_warps=[4, 2, 8, 16, 32], num_stages=[3, 1],
    ),
    plain_space(
        kernels.max_pool_kernel,
        lambda meta: (cdiv(cdiv(meta["W"], 2), meta["BW"]), cdiv(cdiv(meta["H"], 2), meta["BH"]), meta["x"].shape[0]),
        ["out"],
        lambda images=2048, H=112, W=112: {
            "x": uniform(images, H, W), "out": empty(images, cdiv(H, 2), cdiv(W, 2)), "H": H, "W": W},
        BH=[8, 4, 16, 32], BW=[64, 16, 32], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        kernels.depthwise_conv_kernel,
        lambda meta: (cdiv(meta["C"], meta["BC"]), cdiv(meta["W"], meta["BW"]), meta["x"].shape[0] * meta["H"]),
        ["out"],
        lambda images=32, H=56, W=56, C=256: {
            "x": uniform(images, H, W, C), "weight": uniform(9, C), "out": empty(images, H, W, C), "H": H, "W": W,
            "C": C},
        BW=[8, 2, 4, 16], BC=[64, 128, 256], num_warps=_WARPS,
    ),
    plain_space(
        kernels.scatter_add_kernel,
        lambda meta: (cdiv(meta["tokens"], meta["BT"]), cdiv(meta["width"], meta["BLOCK"])), ["out"],
        lambda tokens=32768, width=1024: {
            "x": floats(tokens, width), "ids": TensorSpec((tokens,), "int32", fill=_scattered),
            "out": floats(_SOURCES, width, fill="zeros"), "tokens": tokens, "width": width},
        ["out"],
        BT=[4, 1, 2, 8], BLOCK=[256, 128, 512, 1024], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        kernels.sparse_rows_kernel, lambda meta: (meta["out"].shape[0], cdiv(meta["width"], meta["BN"])), ["out"],
        _sparse, BK=[32, 8, 16, 64], BN=[64, 32, 128], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        kernels.decay_sums_kernel,
        lambda meta: (cdiv(meta["T"], meta["BT"]), cdiv(meta["H"], meta["BH"]), meta["x"].shape[0]), ["out"],
        lambda sequences=32, T=4096, H=128: {
            "x": uniform(sequences, T, H), "out": empty(sequences, T, H, dtype="float32"), "T": T, "H": H},
        BT=[64, 128, 256], BH=[16, 4, 8, 32], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        kernels.pairwise_iou_kernel, lambda meta: (cdiv(meta["M"], meta["BM"]), cdiv(meta["N"], meta["BN"])), ["out"],
        lambda M=8192, N=4096: {
            "left": floats(M, 4, fill="positive"), "right": floats(N, 4, fill="positive"),
            "out": empty(M, N, dtype="float32"), "M": M, "N": N},
        BM=[32, 8, 16, 64], BN=[64, 32, 128, 256], num_warps=_WARPS,
    ),
    plain_space(
        kernels.permute_heads_kernel,
        lambda meta: (cdiv(meta["S"], meta["BS"]), cdiv(meta["H"], meta["BH"]), meta["x"].shape[0]), ["out"],
        lambda batch=4, S=4096, H=32, D=128: {
            "x": uniform(batch, S, H, D), "out": empty(batch, H, S, D), "S": S, "H": H, "D": D},
        BS=[16, 4, 8, 32], BH=[1, 2, 4], num_warps=_WARPS,
    ),
    plain_space(
        kernels.batch_norm_kernel,
        lambda meta: (cdiv(meta["P"], meta["BP"]), cdiv(meta["C"], meta["BC"]), meta["x"].shape[0]), ["out"],
        lambda images=64, C=256, P=3136: {
            "x": uniform(images, C, P), **{name: floats(C) for name in ("mean", "scale", "bias")},
            "out": empty(images, C, P), "C": C, "P": P},
        BC=[1, 2, 4, 8], BP=[1024, 256, 512, 2048], num_warps=_WARPS,
    ),
    plain_space(
        kernels.black_scholes_kernel, by_blocks, ["call", "put"],
        lambda size=1 << 24: {
            **{name: floats(size, fill="positive") for name in ("price", "strike", "years")},
            "call": empty(size, dtype="float32"), "put": empty(size, dtype="float32"), "size": size, "rate": 0.02,
            "volatility": 0.3},
        BLOCK=[1024, 128, 256, 512, 2048, 4096], num_warps=[4, 1, 2, 8, 16],
    ),
    plain_space(
        kernels.forces_kernel, lambda meta: (cdiv(meta["bodies"], meta["BM"]),), ["fx", "fy", "fz"],
        lambda bodies=16384: {
            **{name: floats(bodies) for name in ("x", "y", "z")},
            **{name: empty(bodies, dtype="float32") for name in ("fx", "fy", "fz")}, "bodies": bodies, "soft": 0.1},
        BM=[64, 16, 32, 128], BN=[64, 16, 32, 128], num_warps=_WARPS,
    ),
    plain_space(
        kernels.running_max_kernel, lambda meta: (meta["x"].shape[0],), ["out"],
        lambda rows=8192, columns=8192: {
            "x": uniform(rows, columns), "out": empty(rows, columns), "columns": columns},
        BLOCK=[1024, 128, 256, 512, 2048, 4096], num_warps=[4, 1, 2, 8, 16],
    ),
    plain_space(
        kernels.mixed_columns_kernel, lambda meta: (cdiv(meta["rows"], meta["BM"]), cdiv(meta["count"], meta["BN"])),
        ["out"],
        lambda rows=8192, columns=8192: {
            "x": uniform(rows, columns), "places": TensorSpec((columns,), "int32", fill="shuffled"),
            "out": empty(rows, columns), "rows": rows, "width": columns, "count": columns},
        BM=[8, 1, 2, 4, 16], BN=[256, 128, 512, 1024], num_warps=_WARPS,
    ),
)  # fmt: skip
