"""What the model makes of small kernels that were read, and of many declared tiles: a change of any figure is seen."""

from __future__ import annotations

import random
from dataclasses import fields, is_dataclass, replace

from tests.cpu.cost_model.test_read_figures import A100, H200, readings_of
from tests.cpu.kernel_ir.test_small_kernels import FOLDER, NAMES, operands_of, plain
from triton_ops import AttentionTiles, ElementTiles, GemmTiles, RowTiles, Work
from triton_ops.cost_model import Model, ProductTiles
from triton_ops.cost_model.inferred import _step_of
from triton_ops.cost_model.inferred_rows import dram_bytes, least_bytes, passes_of, walk_of, why_silent
from triton_ops.cost_model.work_words import work_in_words
from triton_ops.device import DeviceSpec, Machine
from triton_ops.kernel_ir import KernelWork, LaunchWork, UntoldError
from triton_ops.space import Config
from triton_ops.values import Resources, UnknownTileError

B200 = Machine.of(DeviceSpec.named("NVIDIA B200"))
LAUNCHES = (((5, 3, 2), 37, 8), ((999, 1, 1), 301, 70))
CONFIGS = ((H200, {"num_warps": 4, "num_stages": 3}), (A100, {"num_warps": 8, "num_stages": 1}))


def figures(value: object) -> str:
    """The fields of a value with six digits, and of the values in it."""
    if is_dataclass(value) or hasattr(value, "_fields"):
        names = [one.name for one in fields(value)] if is_dataclass(value) else value._fields
        return f"{type(value).__name__}({' '.join(f'{name}={figures(getattr(value, name))}' for name in names)})"
    return f"({' '.join(map(figures, value))})" if isinstance(value, tuple) else plain(value)


def forecast(model: Model, config: dict, resources: Resources | None = None) -> str:
    result = model.explain(config, resources)
    if result is None:
        return model.why_silent(config)
    terms = " ".join(f"{term.name} {term.alone_ms:.4g}," for term in result.terms)
    return (
        f"{result.expected_ms:.4g} ms >= {result.lower_bound_ms:.4g}: {terms} {result.blocks_per_unit} blocks "
        f"{result.waves:.4g} waves {result.registers} registers {result.spill_bytes:.4g} spilled {result.shared_bytes}"
    )


def lines_of(name: str, grid: tuple[int, int, int], first: int, apart: int):
    text = (FOLDER / f"{name}.ttir").read_text(encoding="utf-8")
    yield f"{name} {grid}"
    try:
        launch = LaunchWork.of(text, grid, operands_of(text, first, apart))
    except UntoldError as error:
        yield f"  {error}"
        return
    yield from (f"  {key}: {words}" for key, words in work_in_words(KernelWork((launch,))).items())
    yield f"  {passes_of(launch)} passes, {least_bytes(launch):.6g} bytes at least, {why_silent(launch) or 'told'}"
    if launch.products:
        step = _step_of(launch)
        yield "  " + " ".join(
            f"{one.name}={figures(getattr(step, one.name))}"
            for one in fields(step)
            if one.name not in ("main", "products", "loads")
        )
        amounts = (dram_bytes(launch, step.loads, H200, at_once) for at_once in (1, 100, 5000))
        yield f"  {' '.join(f'{one:.6g}' for one in amounts)} bytes of DRAM"
    else:
        yield f"  {figures(walk_of(launch))}"
    for machine, config in CONFIGS:
        yield "  " + forecast(readings_of({1: KernelWork((launch,))}).model(machine), Config(n=1, **config))


def test_the_figures_of_kernels_that_were_read(golden):
    lines = [line for name in NAMES for launch in LAUNCHES for line in lines_of(name, *launch)]
    golden("model_read_kernels.txt", "\n".join(lines) + "\n")


def drawn_tiles(rng: random.Random):
    """Tiles of any kind, with extents that they do not divide, and a config for them."""

    def side(*values):
        return rng.choice(values)

    def extent():
        return rng.choice([1, 16, 60, 128, 500, 1000, 4096, 20000])

    config = {
        "num_warps": side(1, 2, 4, 8, 16), "num_stages": side(1, 2, 3, 5), "BM": side(16, 32, 64, 128, 256),
        "BN": side(16, 32, 64, 128, 256), "BK": side(16, 32, 64, 128, 256), "ROWS": side(1, 2, 4, 8, 16),
        "BLOCK": side(32, 128, 512, 1024, 4096, 16384), "PARTS": side(1, 1, 2, 4),
    }  # fmt: skip
    dtype, out = side("bfloat16", "float8_e4m3fn", "float32"), side("bfloat16", "float32")
    product = GemmTiles(
        extent(), extent(), extent(), dtype=dtype, out_dtype=out, tile_rows="BM", tile_columns="BN", tile_inner="BK",
        group=side(1, 4, 8), a_along_inner=side(True, False), b_along_inner=side(True, False), batch=side(1, 1, 3),
        a_copy_bytes=(copied := side(16, 16, 4, 2, 1)), b_copy_bytes=copied, finish=side(0.0, 0.0, 4.0, 33.0),
    )  # fmt: skip
    kind = rng.randrange(5)
    if kind == 0:
        return product, config
    if kind == 1:
        form = {
            "ALGORITHM": side("tiles", "persistent", "split_k", "stream_k"), "PROGRAMS": side(0, 1, 2),
            "SPLIT": side(1, 2, 5), "SWAPPED": side(True, False), "SUMS": side(1, 2, 4), "HALVES": side(True, False),
            "LOADS": side("pointers", "host", "device"), "DESCRIPTORS": side(True, False, False),
            "AHEAD": side(0, 1, 2), "PROMOTE": side(0, 32, 128, 256), "FORM": side("", "", "", "gluon"),
            "BUFFERS": side(0, 2, 3),
        }  # fmt: skip
        named = {name: value for name, value in form.items() if rng.random() < 0.6}
        return ProductTiles(product, promoted=side(True, False), scaled=side(True, False)), {**config, **named}
    if kind == 2:
        tiles = AttentionTiles(
            side(1, 32, 200), extent(), extent(), side(64, 128, 256), dtype="bfloat16", tile_queries="BM",
            tile_keys="BN", causal=side(True, False),
        )  # fmt: skip
        return tiles, {**config, "SPLITS": side(1, 1, 4), "FORM": side("", "", "gluon")}
    if kind == 3:
        rows = RowTiles(
            extent(), extent(), dtype=dtype, out_dtype=out, tile_rows="ROWS", tile_columns="BLOCK", lanes=side(1, 2),
            passes=side(1, 2, 3), weight=side(0.5, 1.0, 3.0), parts=side(1, "PARTS"), kept=side(True, False),
            inputs=side(1, 2),
        )  # fmt: skip
        return rows, config
    elements = ElementTiles(extent() * extent(), "BLOCK", read_bytes=side(2.0, 8.0), written_bytes=side(2.0, 4.0))
    return replace(elements, weight=side(1.0, 2.0)), config


def test_the_figures_of_many_declared_tiles(golden):
    rng, lines = random.Random(1), []
    for number in range(250):
        (tiles, config), machine = drawn_tiles(rng), rng.choice([H200, H200, A100, B200])
        compiled = rng.choice([None, None, Resources(168, 0, 65_536), Resources(255, 96, 40_000, serialised=True)])
        model = Model(Work(tiles=tiles), machine)
        try:
            guess = figures(tiles.plan(config, machine).footprint)
        except UnknownTileError as error:
            guess = error.message
        lines.append(f"{number} {type(tiles).__name__}: {guess} {forecast(model, config, compiled)}")
    golden("model_declared_tiles.txt", "\n".join(lines) + "\n")
