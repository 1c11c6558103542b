"""The command `explain`, with and without a calibration."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cpu.device.test_calibration import NAME
from triton_ops.cost_model import Model
from triton_ops.device import Calibration, gpu_missing
from triton_ops.exceptions import DeviceError

EXPLAIN = ("explain", "rows.py:norm", "--gpu", NAME)
ROWS_FILE = """
from triton_ops import ConfigSpace, RowTiles, TensorSpec, Work, operation

TILES = {"dtype": "bfloat16", "out_dtype": "bfloat16", "tile_rows": 1, "tile_columns": "BLOCK"}

@operation(
    space=ConfigSpace({"BLOCK": [256, 1024], "num_warps": [4, 8]}, default={"BLOCK": 1024, "num_warps": 4}),
    arguments=lambda rows=4096, columns=4096, dtype="bfloat16": {"x": TensorSpec((rows, columns), dtype)},
    work=lambda problem: Work(
        bytes=2.0 * problem["x"].nbytes,
        tiles=RowTiles(*problem["x"].shape, **TILES),
    ),
    dtypes=("bfloat16",),
)
def norm(x, BLOCK, num_warps):
    return x
"""
FROM_PRODUCT = """
def from_product(tunables, constraints, default):
    return ConfigSpace.from_configs(ConfigSpace(tunables), constraints, default)

"""


@pytest.fixture
def rows_file(tmp_path, monkeypatch):
    (tmp_path / "rows.py").write_text(ROWS_FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def test_explain_shows_the_expected_time_term_by_term(cli, golden, rows_file):
    ran = cli(*EXPLAIN, "--config", "BLOCK=256")
    assert ran.code == 0, ran.err
    golden("explain.txt", ran.out)


def test_explain_as_json_and_with_a_calibration(cli, rows_file):
    before = json.loads(cli(*EXPLAIN, "--json").out)
    assert before["config"] == {"BLOCK": 1024, "num_warps": 4}
    assert before["expected_ms"] > before["lower_bound_ms"] > 0
    Calibration(NAME, dram_gbps=2500.0).save(Path(rows_file / "cache"))
    assert json.loads(cli(*EXPLAIN, "--json").out)["expected_ms"] > before["expected_ms"]


def test_explain_counts_with_tiles_of_the_users_own(cli, rows_file):
    own = """
class Halves:
    def __init__(self, rows):
        self.rows = rows

    def plan(self, config, machine):
        return RowTiles(self.rows, 4096, **TILES).plan(config, machine)
"""
    text = ROWS_FILE.replace("\n@operation", own + "\n\n@operation")
    text = text.replace('RowTiles(*problem["x"].shape, **TILES)', "Halves(4096)")
    shipped = json.loads(cli(*EXPLAIN, "--json").out)
    (rows_file / "own.py").write_text(text)
    result = json.loads(cli("explain", "own.py:norm", *EXPLAIN[2:], "--json").out)
    assert {**result, "problem": shipped["problem"]} == shipped


def test_explain_of_a_config_that_does_not_fit_is_still_json(cli, rows_file, monkeypatch):
    explain = Model.explain
    unfit = lambda *given: replace(explain(*given), expected_ms=math.inf)  # noqa: E731
    monkeypatch.setattr(Model, "explain", unfit)
    assert json.loads(cli(*EXPLAIN, "--json").out, parse_constant=pytest.fail)["expected_ms"] is None
    assert "does not fit on the device" in cli(*EXPLAIN).out


@pytest.mark.parametrize("listed", [False, True])
def test_explain_and_rank_agree_on_a_value_that_the_space_does_not_have(cli, rows_file, listed):
    text = ROWS_FILE.replace('"num_warps": [4, 8]}', '"num_warps": [4, 8]}, [Constraint("wide", wide, "BLOCK >= 64")]')
    text = text.replace("import ", "import Constraint, ", 1).replace("@op", "wide = lambda BLOCK: BLOCK >= 64\n\n@op")
    if listed:
        text = text.replace("ConfigSpace({", "from_product({").replace("@operation", FROM_PRODUCT + "@operation")
    (rows_file / "beyond.py").write_text(text)
    ranked = json.loads(cli("explain", "rank", "beyond.py:norm", *EXPLAIN[2:], "--space", "BLOCK=512", "--json").out)
    best = next(one for one in ranked["items"] if one["config"]["num_warps"] == 4)
    explained = json.loads(cli("explain", "beyond.py:norm", *EXPLAIN[2:], "--config", "BLOCK=512", "--json").out)
    assert explained["config"] == best["config"] == {"BLOCK": 512, "num_warps": 4}
    assert explained["expected_ms"] == best["expected_ms"]
    refused = cli("explain", "beyond.py:norm", *EXPLAIN[2:], "--config", "BLOCK=32")
    assert (refused.code, "is not in the space of beyond:norm: wide: BLOCK >= 64" in refused.err) == (2, True)


@pytest.mark.skipif(gpu_missing() is None, reason="there is a GPU")
def test_explain_without_a_gpu_hints_its_own_option(cli, rows_file):
    ran = cli("explain", "rows.py:norm")
    assert ran.code == 3
    assert "there is no GPU to explain a config for" in ran.err
    assert f"--gpu 'NVIDIA H200'; {DeviceError.NO_GPU}" in ran.err
    assert "--device" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--config", "WIDTH=3"), 2, "no tunable WIDTH"),
        (("--config", "BLOCK=256,1024"), 2, "'BLOCK=256,1024' is not NAME=value,NAME=value"),
        (("--gpu", "Abacus"), 3, "no device 'Abacus' is in the table; known are V100-SXM2-32GB, "),
        (("--gpu", "h2000"), 3, "no device 'h2000' is in the table; close are H200"),
    ],
)
def test_explain_refuses_unusable_arguments(cli, rows_file, arguments, code, said):
    ran = cli(*EXPLAIN, *arguments)
    assert ran.code == code
    assert said in ran.err
