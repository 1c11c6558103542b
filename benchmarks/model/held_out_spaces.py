"""The problems and spaces of two sets of kernels, each of which was recorded after the model was frozen.

The model was then changed by what `FRESH` showed, and after that by what `UNSEEN` did. The first value of each tunable
is the default: what an author would write before a tune.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from triton import cdiv

from benchmarks.model import fresh_kernels as fresh
from benchmarks.model import unseen_kernels as unseen
from benchmarks.model.plain_kernels import Recorded
from triton_ops import Operation, TensorSpec, TritonKernel

_PROGRAMS = 132  # multiprocessors of an H100 and an H200
_TOLERANCE = 0.1  # results are compared with the default's: wrong ones are left out, and rounding is not judged
_SOURCES = 16384  # rows of the dense factor of a sparse product, and places to which rows are added


def plain_space(
    kernel: Any, grid: Callable[[Any], tuple[int, ...]], outputs: Sequence[str], arguments: Callable[..., Any],
    reset: Sequence[str] = (), **space: list[Any],
) -> Recorded:  # fmt: skip
    """The space of a kernel at the shape that its arguments have by default."""
    name = kernel.__name__.removesuffix("_kernel")
    launched = TritonKernel(kernel, grid, outputs=outputs, reset_to_zero=reset)
    operation = Operation(name, launched, space, arguments, tolerance=_TOLERANCE)
    return Recorded(name, operation, space, operation.full_shape(None), None)


def uniform(*shape: int, dtype: str = "bfloat16", fill: Any = "uniform") -> TensorSpec:
    """Values of one distribution, in bfloat16 if no other dtype is named."""
    return TensorSpec(shape, dtype, fill=fill)


def empty(*shape: int, dtype: str = "bfloat16") -> TensorSpec:
    """What a kernel writes."""
    return TensorSpec(shape, dtype, fill="empty")


def floats(*shape: int, fill: Any = "uniform") -> TensorSpec:
    """Values of float32."""
    return TensorSpec(shape, "float32", fill=fill)


def by_tiles(meta: Any) -> tuple[int, ...]:
    """The grid of a product whose programs are numbered tile by tile."""
    return (cdiv(meta["M"], meta["BM"]) * cdiv(meta["N"], meta["BN"]),)


def by_blocks(meta: Any) -> tuple[int, ...]:
    """The grid of a kernel on single elements."""
    return (cdiv(meta["size"], meta["BLOCK"]),)


def _experts(shape: tuple[int, ...]) -> list[int]:
    """Eight experts, whose blocks of tokens are of different numbers."""
    ends = (0.05, 0.2, 0.28, 0.4, 0.6, 0.65, 0.9, 1.0)
    return [next(expert for expert, end in enumerate(ends) if at < end * shape[0]) for at in range(shape[0])]


def _sparse(shape: tuple[int, ...]) -> list[list[int]]:
    """For each block of queries as many blocks of keys, spread over all."""
    count, each = shape
    return [[(row * 7 + at * (count // each) + at % 3) % count for at in range(each)] for row in range(count)]


def _scattered(shape: tuple[int, ...]) -> list[int]:
    """Numbers below `_SOURCES` in no order, most of them several times."""
    return [at * 40503 % 65537 % _SOURCES for at in range(shape[0])]


def _heads(heads: int, S: int, D: int, *read: str, **more: Any) -> dict[str, Any]:
    return {name: uniform(heads, S, D) for name in read} | {"S": S, "scale": D**-0.5, "D": D} | more


def _sparse_rows(width: int = 256, rows: int = _SOURCES, each: int = 32) -> dict[str, Any]:
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


_ROW_BLOCKS, _WARPS = [1024, 512, 2048, 4096, 8192], [4, 1, 2, 8, 16]
_FEW_WARPS = [4, 2, 8]

FRESH = (
    plain_space(
        fresh.rope_kernel, lambda meta: (cdiv(meta["tokens"], meta["BT"]), cdiv(meta["heads"], meta["BH"])), ["out"],
        lambda tokens=8192, heads=32, half=64: {
            "x": uniform(tokens, heads, 2 * half), "cos": floats(tokens, half), "sin": floats(tokens, half),
            "out": empty(tokens, heads, 2 * half), "tokens": tokens, "heads": heads, "HALF": half},
        BT=[1, 2, 4, 8, 16], BH=[32, 1, 2, 4, 8], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        fresh.swiglu_kernel, lambda meta: (meta["out"].shape[0], cdiv(meta["columns"], meta["BLOCK"])), ["out"],
        lambda rows=8192, columns=11008: {
            "x": uniform(rows, 2 * columns), "out": empty(rows, columns), "columns": columns},
        BLOCK=[1024, 256, 512, 2048, 4096, 8192, 16384], num_warps=_WARPS,
    ),
    plain_space(
        fresh.rmsnorm_backward_kernel, lambda meta: (meta["scale"].shape[0],), ["dx"],
        lambda rows=8192, columns=5120: {
            "dy": uniform(rows, columns), "x": uniform(rows, columns), "weight": uniform(columns),
            "scale": floats(rows, fill="positive"), "dx": empty(rows, columns), "columns": columns},
        BLOCK=_ROW_BLOCKS, num_warps=_WARPS, num_stages=[3, 1],
    ),
    plain_space(
        fresh.group_norm_kernel, lambda meta: (meta["x"].shape[0] * meta["groups"],), ["out"],
        lambda images=32, groups=32, each=16, pixels=4096: {
            "x": uniform(images, groups * each, pixels), "weight": uniform(groups * each),
            "bias": uniform(groups * each),
            "out": empty(images, groups * each, pixels), "groups": groups, "size": each * pixels, "pixels": pixels,
            "eps": 1e-5},
        BLOCK=[1024, 512, 2048, 4096, 8192], num_warps=[4, 2, 8, 16, 32], num_stages=[3, 1],
    ),
    plain_space(
        fresh.batched_matmul_kernel,
        lambda meta: (cdiv(meta["M"], meta["BM"]), cdiv(meta["N"], meta["BN"]), meta["a"].shape[0]), ["c"],
        lambda B=96, M=512, N=512, K=256: {
            "a": uniform(B, M, K), "b": uniform(B, K, N), "c": empty(B, M, N), "M": M, "N": N, "K": K},
        BM=[64, 32, 128], BN=[64, 32, 128], BK=[32, 64], num_warps=[4, 8], num_stages=[3, 2, 4],
    ),
    plain_space(
        fresh.int8_matmul_kernel, by_tiles, ["c"],
        lambda M=2048, N=6144, K=4096: {
            "a": uniform(M, K, dtype="int8"), "b": uniform(N, K, dtype="int8"), "row_scale": floats(M),
            "column_scale": floats(N), "c": empty(M, N), "M": M, "N": N, "K": K},
        BM=[128, 64], BN=[128, 64, 256], BK=[64, 128, 32], num_warps=[4, 8], num_stages=[3, 2, 4],
    ),
    plain_space(
        fresh.w4a16_kernel, lambda meta: (cdiv(meta["N"], meta["BN"]), cdiv(meta["M"], meta["BM"])), ["c"],
        lambda M=64, N=8192, K=4096: {
            "a": uniform(M, K), "packed": uniform(K // 8, N, dtype="int32", fill="bits"), "scales": floats(K // 128, N),
            "c": empty(M, N), "M": M, "N": N, "K": K},
        BM=[32, 16, 64], BN=[64, 32, 128], BK=[64, 32, 128], num_warps=[4, 8], num_stages=[3, 2],
    ),
    plain_space(
        fresh.moe_kernel, lambda meta: (cdiv(meta["tokens"], meta["BM"]) * cdiv(meta["N"], meta["BN"]),), ["c"],
        lambda tokens=4096, experts=8, N=3584, K=2048, each=128: {
            "a": uniform(tokens, K), "b": uniform(experts, K, N),
            "expert_of": uniform(tokens // each, dtype="int32", fill=_experts), "c": empty(tokens, N), "tokens": tokens,
            "N": N, "K": K, "EACH": each},
        BM=[64, 32, 128], BN=[64, 128, 256], BK=[32, 64], num_warps=[4, 8], num_stages=[3, 2, 4],
    ),
    plain_space(
        fresh.causal_conv_kernel,
        lambda meta: (cdiv(meta["length"], meta["BL"]), meta["channels"] // meta["BD"], meta["x"].shape[0]), ["out"],
        lambda batch=8, length=2048, channels=5120: {
            "x": uniform(batch, length, channels), "weight": uniform(channels, 4), "bias": uniform(channels),
            "out": empty(batch, length, channels), "length": length, "channels": channels},
        BL=[16, 8, 32, 64], BD=[128, 64, 256, 512], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        fresh.scan_kernel, lambda meta: (meta["channels"] // meta["BD"], meta["x"].shape[0]), ["out"],
        lambda batch=8, length=1024, channels=4096: {
            "decay": uniform(batch, length, channels), "x": uniform(batch, length, channels),
            "out": empty(batch, length, channels), "length": length, "channels": channels},
        BT=[32, 16, 64, 128], BD=[32, 16, 64, 128], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        fresh.transpose_kernel, lambda meta: (cdiv(meta["M"], meta["BM"]), cdiv(meta["N"], meta["BN"])), ["out"],
        lambda M=8192, N=6144: {"x": uniform(M, N), "out": empty(N, M), "M": M, "N": N},
        BM=[32, 16, 64, 128], BN=[32, 16, 64, 128], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        fresh.embedding_kernel, lambda meta: (cdiv(meta["tokens"], meta["BT"]), cdiv(meta["width"], meta["BLOCK"])),
        ["out"],
        lambda tokens=32768, width=3072: {
            "table": uniform(tokens, width), "ids": uniform(tokens, dtype="int32", fill="shuffled"),
            "out": empty(tokens, width), "tokens": tokens, "width": width},
        BT=[1, 2, 4, 8], BLOCK=[1024, 256, 512, 2048, 4096], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        fresh.decode_kernel, lambda meta: (meta["k"].shape[0], meta["SPLITS"]), ["part", "weights"],
        lambda heads=64, group=16, S=8192, D=128, splits=8: {
            "q": uniform(heads, group, D), "k": uniform(heads, S, D), "v": uniform(heads, S, D),
            "part": empty(heads, splits, group, D, dtype="float32"),
            "weights": empty(heads, splits, group, dtype="float32"), "S": S, "scale": D**-0.5, "G": group, "D": D,
            "SPLITS": splits},
        BN=[64, 16, 32, 128, 256], num_warps=[4, 2, 8], num_stages=[3, 1, 2, 4, 5],
    ),
    plain_space(
        fresh.gemv_kernel, lambda meta: (cdiv(meta["M"], meta["BM"]),), ["y"],
        lambda M=14336, K=8192: {
            "a": uniform(M, K), "x": uniform(K), "y": empty(M), "M": M, "K": K},
        BM=[4, 1, 2, 8, 16], BK=[512, 128, 256, 1024, 2048], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        fresh.block_sparse_kernel, lambda meta: (meta["S"] // meta["BM"], meta["q"].shape[0]), ["out"],
        lambda heads=32, S=8192, D=128, count=24: {
            "q": uniform(heads, S, D), "k": uniform(heads, S, D), "v": uniform(heads, S, D),
            "blocks": uniform(S // 64, count, dtype="int32", fill=_sparse), "out": empty(heads, S, D), "S": S,
            "scale": D**-0.5, "COUNT": count, "D": D},
        BM=[64, 16, 32], BN=[64, 16, 32], num_warps=[4, 2, 8], num_stages=[3, 1, 2, 4],
    ),
    plain_space(
        fresh.window_kernel, lambda meta: (meta["S"] // meta["BM"], meta["q"].shape[0]), ["out"],
        lambda heads=32, S=8192, D=64, window=1024: {
            "q": uniform(heads, S, D), "k": uniform(heads, S, D), "v": uniform(heads, S, D),
            "out": empty(heads, S, D), "S": S, "scale": D**-0.5, "WINDOW": window, "D": D},
        BM=[64, 32, 128], BN=[64, 32, 128], num_warps=[4, 2, 8], num_stages=[3, 1, 2, 4],
    ),
    plain_space(
        fresh.add_rmsnorm_kernel, lambda meta: (meta["x"].shape[0] // meta["ROWS"],), ["out", "total"],
        lambda rows=16384, columns=5120: {
            "x": uniform(rows, columns), "residual": uniform(rows, columns), "weight": uniform(columns),
            "out": empty(rows, columns), "total": empty(rows, columns), "columns": columns, "eps": 1e-6, "N": 8192},
        ROWS=[1, 2, 4, 8, 16], num_warps=[4, 1, 2, 8, 16, 32],
    ),
    plain_space(
        fresh.histogram_kernel, lambda meta: (meta["PROGRAMS"],), ["counts"],
        lambda size=1 << 26, bins=128: {
            "x": uniform(size, dtype="int32"), "counts": TensorSpec((bins,), "int32", fill="zeros"), "size": size,
            "BINS": bins},
        ["counts"],
        BLOCK=_ROW_BLOCKS, PROGRAMS=[_PROGRAMS * waves for waves in (4, 1, 2, 8, 16)], num_warps=[4, 2, 8],
    ),
    plain_space(
        fresh.dropout_kernel, by_blocks, ["out"],
        lambda size=1 << 26: {
            "x": uniform(size), "out": empty(size), "size": size, "p": 0.5, "seed": 42},
        BLOCK=[1024, 128, 256, 512, 2048, 4096], num_warps=_WARPS,
    ),
    plain_space(
        fresh.stencil_kernel, lambda meta: (cdiv(meta["H"], meta["BM"]), cdiv(meta["W"], meta["BN"])), ["out"],
        lambda H=8192, W=8192: {
            "x": floats(H, W), "out": empty(H, W, dtype="float32"), "H": H, "W": W},
        BM=[16, 1, 4, 8, 32], BN=[64, 128, 256, 512], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        fresh.argmax_kernel, lambda meta: (meta["x"].shape[0],), ["out"],
        lambda rows=2048, columns=32000: {
            "x": uniform(rows, columns), "out": empty(rows, dtype="int32"), "columns": columns},
        BLOCK=_ROW_BLOCKS, num_warps=_WARPS, num_stages=[3, 1],
    ),
    plain_space(
        fresh.channel_statistics_kernel, lambda meta: (meta["channels"] // meta["BC"],), ["mean", "variance"],
        lambda rows=8192, channels=8192: {
            "x": uniform(rows, channels, fill="positive"), "mean": empty(channels, dtype="float32"),
            "variance": empty(channels, dtype="float32"), "rows": rows, "channels": channels},
        BR=[32, 16, 64, 128, 256], BC=[64, 16, 32, 128], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        fresh.tall_skinny_kernel, lambda meta: (cdiv(meta["M"], meta["BM"]),), ["out"],
        lambda M=16384, K=4096, R=16: {
            "x": uniform(M, K), "a": uniform(K, R), "out": empty(M, R), "M": M, "K": K, "R": R},
        BM=[64, 16, 32, 128], BK=[64, 32, 128, 256], num_warps=[4, 2, 8], num_stages=[3, 2],
    ),
    plain_space(
        fresh.chunk_state_kernel,
        lambda meta: (meta["N"] // meta["BN"], meta["P"] // meta["BP"], meta["b"].shape[0]), ["states"],
        lambda chunks=2048, size=256, N=128, P=64: {
            "b": uniform(chunks, size, N), "x": uniform(chunks, size, P), "decay": floats(chunks, size),
            "states": empty(chunks, N, P), "CHUNK": size, "N": N, "P": P},
        BN=[64, 32, 128], BP=[64, 32], BK=[32, 64, 128], num_warps=[4, 8], num_stages=[3, 1, 2],
    ),
    plain_space(
        fresh.router_kernel, lambda meta: (cdiv(meta["rows"], meta["ROWS"]),), ["weights", "experts"],
        lambda rows=262144, experts=64: {
            "logits": floats(rows, experts), "weights": empty(rows, 2, dtype="float32"),
            "experts": empty(rows, 2, dtype="int32"), "rows": rows, "E": experts},
        ROWS=[16, 1, 2, 4, 8, 32, 64], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        fresh.convolution_kernel,
        lambda meta: (cdiv(meta["images"] * meta["H"] * meta["W"], meta["BM"]), meta["F"] // meta["BN"]), ["out"],
        lambda images=32, H=56, W=56, C=128, F=128: {
            "x": uniform(images, H, W, C), "weight": uniform(9 * C, F), "out": empty(images, H, W, F),
            "images": images, "H": H, "W": W, "C": C, "F": F},
        BM=[64, 32, 128], BN=[64, 32, 128], BK=[32, 64], num_warps=[4, 8], num_stages=[3, 2, 4],
    ),
)  # fmt: skip

UNSEEN = (
    plain_space(
        unseen.linear_gelu_kernel, by_tiles, ["out"],
        lambda M=4096, N=4096, K=2048: {
            "x": uniform(M, K), "w": uniform(N, K), "bias": uniform(N), "out": empty(M, N), "M": M, "N": N, "K": K},
        BM=[128, 64], BN=[128, 64, 256], BK=[64, 32], GROUP=[8, 1], num_warps=[4, 8], num_stages=[3, 4],
    ),
    plain_space(
        unseen.weight_gradient_kernel, lambda meta: (cdiv(meta["K"], meta["BK"]), cdiv(meta["N"], meta["BN"])), ["dw"],
        lambda tokens=8192, K=2048, N=3072: {
            "x": uniform(tokens, K), "dy": uniform(tokens, N), "dw": empty(K, N, dtype="float32"), "tokens": tokens,
            "K": K, "N": N},
        BK=[128, 64], BN=[128, 64, 256], BT=[64, 32], num_warps=[4, 8], num_stages=[3, 2, 4],
    ),
    plain_space(
        unseen.lora_kernel, lambda meta: (cdiv(meta["M"], meta["BM"]), cdiv(meta["N"], meta["BN"])), ["out"],
        lambda M=4096, N=4096, K=4096, R=16: {
            "x": uniform(M, K), "w": uniform(K, N), "a": uniform(K, R), "b": uniform(R, N), "out": empty(M, N),
            "M": M, "N": N, "K": K, "R": R},
        BM=[128, 64], BN=[128, 64, 256], BK=[64, 32], num_warps=[4, 8], num_stages=[3, 2, 4],
    ),
    plain_space(
        unseen.block_scaled_kernel, lambda meta: (cdiv(meta["N"], meta["BN"]), cdiv(meta["M"], meta["BM"])), ["c"],
        lambda M=2048, N=4096, K=7168: {
            "a": uniform(M, K, dtype="float8_e4m3fn"), "b": uniform(N, K, dtype="float8_e4m3fn"),
            "a_scale": floats(M, cdiv(K, 128), fill="positive"),
            "b_scale": floats(cdiv(N, 128), cdiv(K, 128), fill="positive"), "c": empty(M, N), "M": M, "N": N, "K": K},
        BM=[64, 32, 128], BN=[128, 64, 256], num_warps=[4, 8], num_stages=[3, 2, 4, 5],
    ),
    plain_space(
        unseen.attention_dq_kernel, lambda meta: (cdiv(meta["S"], meta["BM"]), meta["q"].shape[0]), ["dq"],
        lambda heads=32, S=4096, D=64: _heads(
            heads, S, D, "q", "k", "v", "dout", lse=floats(heads, S, fill="positive"),
            delta=floats(heads, S), dq=empty(heads, S, D)),
        BM=[64, 32, 128], BN=[64, 32, 128], num_warps=[4, 8], num_stages=[2, 1, 3, 4],
    ),
    plain_space(
        unseen.bias_attention_kernel, lambda meta: (cdiv(meta["S"], meta["BM"]), meta["q"].shape[0]), ["out"],
        lambda heads=32, S=2048, D=64: _heads(heads, S, D, "q", "k", "v", bias=uniform(S, S), out=empty(heads, S, D)),
        BM=[64, 32, 128], BN=[64, 32, 128], num_warps=[4, 8], num_stages=[3, 1, 2, 4],
    ),
    plain_space(
        unseen.paged_decode_kernel, lambda meta: meta["q"].shape[:2], ["out"], _paged,
        BN=[64, 16, 32, 128], num_warps=_FEW_WARPS, num_stages=[3, 1, 2, 4],
    ),
    plain_space(
        unseen.retention_kernel, lambda meta: (meta["D"] // meta["BV"], meta["q"].shape[0]), ["out"],
        lambda heads=128, S=2048, D=128: {
            **{name: uniform(heads, S, D) for name in ("q", "k", "v")}, "out": empty(heads, S, D), "S": S, "D": D},
        BV=[64, 32, 128], BT=[64, 32, 128], num_warps=[4, 8], num_stages=[1, 2, 3],
    ),
    plain_space(
        unseen.lower_gram_kernel, lambda meta: (cdiv(meta["N"], meta["BLOCK"]),) * 2, ["out"],
        lambda N=4096, K=2048: {"x": uniform(N, K), "out": empty(N, N), "N": N, "K": K},
        BLOCK=[128, 32, 64], BK=[64, 32, 128], num_warps=[4, 8], num_stages=[3, 2, 4],
    ),
    plain_space(
        unseen.nearest_kernel, lambda meta: (cdiv(meta["points"], meta["BP"]),), ["out"],
        lambda points=131072, count=1024, D=64: {
            "x": uniform(points, D), "centres": uniform(count, D), "out": empty(points, dtype="float32"),
            "points": points, "count": count, "D": D},
        BP=[128, 32, 64], BC=[64, 32, 128], num_warps=_FEW_WARPS, num_stages=[3, 1, 2],
    ),
    plain_space(
        unseen.pointwise_conv_kernel,
        lambda meta: (cdiv(meta["P"], meta["BP"]), cdiv(meta["F"], meta["BF"]), meta["x"].shape[0]), ["out"],
        lambda images=32, C=256, F=512, P=3136: {
            "x": uniform(images, C, P), "w": uniform(F, C), "out": empty(images, F, P), "C": C, "F": F, "P": P},
        BF=[64, 32, 128], BP=[128, 32, 64], BC=[32, 64], num_warps=[4, 8], num_stages=[3, 2],
    ),
    plain_space(
        unseen.geglu_backward_kernel, by_blocks, ["dgate", "dup"],
        lambda size=1 << 25: {
            **{name: uniform(size) for name in ("gate", "up", "dy")}, "dgate": empty(size), "dup": empty(size),
            "size": size},
        BLOCK=[1024, 128, 256, 512, 2048, 4096], num_warps=[4, 1, 2, 8, 16],
    ),
    plain_space(
        unseen.quantize_rows_kernel, lambda meta: (cdiv(meta["rows"], meta["ROWS"]),), ["out", "scales"],
        lambda rows=65536, columns=1024: {
            "x": uniform(rows, columns), "out": empty(rows, columns, dtype="int8"),
            "scales": empty(rows, dtype="float32"), "rows": rows, "columns": columns, "N": 1024},
        ROWS=[2, 1, 4, 8, 16], num_warps=[4, 1, 2, 8, 16, 32],
    ),
    plain_space(
        unseen.log_softmax_kernel, lambda meta: (meta["x"].shape[0],), ["out"],
        lambda rows=4096, columns=32000: {
            "x": uniform(rows, columns), "out": empty(rows, columns), "columns": columns},
        BLOCK=[2048, 512, 1024, 4096, 8192], num_warps=[4, 2, 8, 16, 32], num_stages=[3, 1],
    ),
    plain_space(
        unseen.max_pool_kernel,
        lambda meta: (cdiv(cdiv(meta["W"], 2), meta["BW"]), cdiv(cdiv(meta["H"], 2), meta["BH"]), meta["x"].shape[0]),
        ["out"],
        lambda images=2048, H=112, W=112: {
            "x": uniform(images, H, W), "out": empty(images, cdiv(H, 2), cdiv(W, 2)), "H": H, "W": W},
        BH=[8, 4, 16, 32], BW=[64, 16, 32], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        unseen.depthwise_conv_kernel,
        lambda meta: (cdiv(meta["C"], meta["BC"]), cdiv(meta["W"], meta["BW"]), meta["x"].shape[0] * meta["H"]),
        ["out"],
        lambda images=32, H=56, W=56, C=256: {
            "x": uniform(images, H, W, C), "weight": uniform(9, C), "out": empty(images, H, W, C), "H": H, "W": W,
            "C": C},
        BW=[8, 2, 4, 16], BC=[64, 128, 256], num_warps=_FEW_WARPS,
    ),
    plain_space(
        unseen.scatter_add_kernel,
        lambda meta: (cdiv(meta["tokens"], meta["BT"]), cdiv(meta["width"], meta["BLOCK"])), ["out"],
        lambda tokens=32768, width=1024: {
            "x": floats(tokens, width), "ids": TensorSpec((tokens,), "int32", fill=_scattered),
            "out": floats(_SOURCES, width, fill="zeros"), "tokens": tokens, "width": width},
        ["out"],
        BT=[4, 1, 2, 8], BLOCK=[256, 128, 512, 1024], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        unseen.sparse_rows_kernel, lambda meta: (meta["out"].shape[0], cdiv(meta["width"], meta["BN"])), ["out"],
        _sparse_rows, BK=[32, 8, 16, 64], BN=[64, 32, 128], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        unseen.decay_sums_kernel,
        lambda meta: (cdiv(meta["T"], meta["BT"]), cdiv(meta["H"], meta["BH"]), meta["x"].shape[0]), ["out"],
        lambda sequences=32, T=4096, H=128: {
            "x": uniform(sequences, T, H), "out": empty(sequences, T, H, dtype="float32"), "T": T, "H": H},
        BT=[64, 128, 256], BH=[16, 4, 8, 32], num_warps=[4, 1, 2, 8],
    ),
    plain_space(
        unseen.pairwise_iou_kernel, lambda meta: (cdiv(meta["M"], meta["BM"]), cdiv(meta["N"], meta["BN"])), ["out"],
        lambda M=8192, N=4096: {
            "left": floats(M, 4, fill="positive"), "right": floats(N, 4, fill="positive"),
            "out": empty(M, N, dtype="float32"), "M": M, "N": N},
        BM=[32, 8, 16, 64], BN=[64, 32, 128, 256], num_warps=_FEW_WARPS,
    ),
    plain_space(
        unseen.permute_heads_kernel,
        lambda meta: (cdiv(meta["S"], meta["BS"]), cdiv(meta["H"], meta["BH"]), meta["x"].shape[0]), ["out"],
        lambda batch=4, S=4096, H=32, D=128: {
            "x": uniform(batch, S, H, D), "out": empty(batch, H, S, D), "S": S, "H": H, "D": D},
        BS=[16, 4, 8, 32], BH=[1, 2, 4], num_warps=_FEW_WARPS,
    ),
    plain_space(
        unseen.batch_norm_kernel,
        lambda meta: (cdiv(meta["P"], meta["BP"]), cdiv(meta["C"], meta["BC"]), meta["x"].shape[0]), ["out"],
        lambda images=64, C=256, P=3136: {
            "x": uniform(images, C, P), **{name: floats(C) for name in ("mean", "scale", "bias")},
            "out": empty(images, C, P), "C": C, "P": P},
        BC=[1, 2, 4, 8], BP=[1024, 256, 512, 2048], num_warps=_FEW_WARPS,
    ),
    plain_space(
        unseen.black_scholes_kernel, by_blocks, ["call", "put"],
        lambda size=1 << 24: {
            **{name: floats(size, fill="positive") for name in ("price", "strike", "years")},
            "call": empty(size, dtype="float32"), "put": empty(size, dtype="float32"), "size": size, "rate": 0.02,
            "volatility": 0.3},
        BLOCK=[1024, 128, 256, 512, 2048, 4096], num_warps=[4, 1, 2, 8, 16],
    ),
    plain_space(
        unseen.forces_kernel, lambda meta: (cdiv(meta["bodies"], meta["BM"]),), ["fx", "fy", "fz"],
        lambda bodies=16384: {
            **{name: floats(bodies) for name in ("x", "y", "z")},
            **{name: empty(bodies, dtype="float32") for name in ("fx", "fy", "fz")}, "bodies": bodies, "soft": 0.1},
        BM=[64, 16, 32, 128], BN=[64, 16, 32, 128], num_warps=_FEW_WARPS,
    ),
    plain_space(
        unseen.running_max_kernel, lambda meta: (meta["x"].shape[0],), ["out"],
        lambda rows=8192, columns=8192: {
            "x": uniform(rows, columns), "out": empty(rows, columns), "columns": columns},
        BLOCK=[1024, 128, 256, 512, 2048, 4096], num_warps=[4, 1, 2, 8, 16],
    ),
    plain_space(
        unseen.mixed_columns_kernel, lambda meta: (cdiv(meta["rows"], meta["BM"]), cdiv(meta["count"], meta["BN"])),
        ["out"],
        lambda rows=8192, columns=8192: {
            "x": uniform(rows, columns), "places": TensorSpec((columns,), "int32", fill="shuffled"),
            "out": empty(rows, columns), "rows": rows, "width": columns, "count": columns},
        BM=[8, 1, 2, 4, 16], BN=[256, 128, 512, 1024], num_warps=_FEW_WARPS,
    ),
)  # fmt: skip
