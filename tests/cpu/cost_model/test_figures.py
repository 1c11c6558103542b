"""The model's figures for declared work: a change of any of them is seen here, and is a change of the golden table."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from triton_ops import AttentionTiles, ElementTiles, GemmTiles, RowTiles, Work
from triton_ops.cost_model import Model, ProductTiles
from triton_ops.cost_model.row_tiles import TileReduction
from triton_ops.device import DeviceSpec, Machine
from triton_ops.values import Resources

MACHINES = ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200"]
GEMM = GemmTiles(
    4000, 3000, 4096, dtype="bfloat16", out_dtype="bfloat16", tile_rows="BM", tile_columns="BN", tile_inner="BK",
    group=8,
)  # fmt: skip
WORKS = {
    "gemm": GEMM,
    "gemm of float32": replace(GEMM, dtype="float32", out_dtype="float32"),
    "gemm of a small result": replace(GEMM, rows=64, columns=512, inner=65536),
    "promoted": ProductTiles(replace(GEMM, dtype="float8_e4m3fn"), promoted=True, scaled=True),
    "algorithms": ProductTiles(GEMM),
    "rows": RowTiles(8000, 4000, dtype="bfloat16", out_dtype="float32", tile_rows="ROWS", tile_columns="BLOCK"),
    "elements": ElementTiles((1 << 24) + 7, "BLOCK", read_bytes=8.0, written_bytes=4.0),
    "attention": AttentionTiles(32, 4096, 4000, 128, dtype="bfloat16", tile_queries="BM", tile_keys="BN"),
}
TILES = [
    {"BM": rows, "BN": columns, "BK": inner, "num_warps": warps, "num_stages": stages}
    for rows, columns, inner, warps, stages in
    [(128, 128, 64, 8, 3), (64, 256, 32, 4, 4), (16, 64, 128, 2, 1), (256, 128, 64, 8, 2)]
]  # fmt: skip
CHUNKS = [
    {"BLOCK": block, "ROWS": rows, "num_warps": warps, "num_stages": 1}
    for block, rows, warps in [(1024, 1, 4), (4096, 1, 16), (128, 8, 4), (8192, 2, 32)]
]
FORMS = [
    {}, {"PROGRAMS": 1}, {"PROGRAMS": 2, "ALGORITHM": "stream_k"}, {"ALGORITHM": "split_k", "SPLIT": 4},
    {"LOADS": "host", "PROGRAMS": 1}, {"LOADS": "device", "PROGRAMS": 1}, {"DESCRIPTORS": True}, {"SWAPPED": True},
    {"SUMS": 2, "HALVES": True}, {"AHEAD": 2}, {"PROMOTE": 64}, {"FORM": "gluon", "BUFFERS": 3},
]  # fmt: skip
CONFIGS = {
    "rows": CHUNKS, "elements": CHUNKS,
    "algorithms": [{**TILES[0], **form} for form in FORMS], "promoted": [{**TILES[0], **form} for form in FORMS],
}  # fmt: skip


def line_of(name, config, device, resources=None):
    model = Model(Work(flops=1e10, bytes=1e8, tiles=WORKS[name]), Machine.of(DeviceSpec.named(device)))
    forecast = model.explain(config, resources)
    words = " ".join(f"{key}={value}" for key, value in config.items())
    if forecast is None:
        return f"{device} {name} {words}: {model.why_silent(config)}"
    terms = ", ".join(f"{term.name} {term.alone_ms:.4g}" for term in forecast.terms)
    return (
        f"{device} {name} {words}: {forecast.expected_ms:.4g} ms, at least {forecast.lower_bound_ms:.4g}; {terms}; "
        f"{forecast.blocks_per_unit} blocks, {forecast.waves:.4g} waves, {forecast.registers:.4g} registers, "
        f"{forecast.spill_bytes:.4g} spilled, {forecast.shared_bytes:.6g} shared"
    )


def test_the_expected_times_of_declared_work_with_their_terms(golden):
    lines = [
        line_of(name, config, device)
        for device, name in product(MACHINES, WORKS)
        for config in CONFIGS.get(name, TILES)
    ]
    golden("model_figures.txt", "\n".join(lines) + "\n")


def test_the_expected_times_of_compiled_configs(golden):
    compiled = [Resources(96, 0, 49_152), Resources(255, 64, 163_840), Resources(32, 0, 0)]
    lines = [
        line_of(name, config, "NVIDIA H200", resources)
        for name in ("gemm", "rows", "attention")
        for config in CONFIGS.get(name, TILES)[:2]
        for resources in compiled
    ]
    golden("model_figures_compiled.txt", "\n".join(lines) + "\n")


def test_reductions_are_priced_by_their_layout(golden):
    tiles = [(32, 1, 32), (4096, 1, 4096), (512, 16, 8192), (8, 512, 4096), (64, 64, 4096)]
    lines = []
    for tile, warps, scans, across, operations in product(tiles, (1, 4, 8), (False, True), (False, True), (1, 2)):
        one = TileReduction(*tile, 8, 2, operations, 3.0, scans=scans, across=across)
        own, words = one.instructions(warps)
        lines.append(f"{one} {warps} warps: {own:.6g} {words:.6g} {one.exchange_cycles(warps):.6g}")
    golden("model_reductions.txt", "\n".join(lines) + "\n")
