"""Which tunables matter, where times jump in a measured space, and at which shapes a wave is added."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.exceptions import RecordingError
from triton_ops.space import Config
from triton_ops_lab.expectation import Waves
from triton_ops_lab.recording import read_recording
from triton_ops_lab.sensitivities import ShapePoint, Sweep, cliffs, sensitivity

SPACE = {"BLOCK": [64, 128, 256], "num_warps": [2, 4, 8], "num_stages": [1, 2], "KIND": ["a", "b"]}


def recorded(path, ms_of, space=None):
    """A recording of a whole space: milliseconds by config, with spilled bytes; None for a config that failed."""
    space = space or SPACE
    rows = []
    for values in itertools.product(*space.values()):
        config = dict(zip(space, values, strict=True))
        ms, spills = ms_of(config)
        ran = {"status": "ok", "ms": [[ms] * 4], "regs": 64, "spills": spills} if ms else {"status": "resources"}
        rows.append({"config": config, "shared": 1024, "compile_s": 0.1, **ran})
    content = {
        "family": "softmax_bf16", "shape": [64, 4096], "gpu": "NVIDIA H200", "python": "3.12", "space": space,
        "rows": rows,
    }  # fmt: skip
    path.write_text(json.dumps(content))
    return read_recording(path)


def additive(config):
    factor = {64: 2.0, 128: 1.0, 256: 1.3}[config["BLOCK"]] * {2: 1.5, 4: 1.1, 8: 1.0}[config["num_warps"]]
    return 0.1 * factor, 0


def test_an_additive_surface_is_recovered(tmp_path):
    result = sensitivity(recorded(tmp_path / "space.json", additive))
    assert [knob.name for knob in result.knobs] == ["BLOCK", "num_warps", "num_stages", "KIND"]
    assert result.explained == pytest.approx(1.0)
    block, warps, stages, _ = result.knobs
    assert [one.slower for one in block.effects] == pytest.approx([1.0, 0.0, 0.3])
    assert [one.slower for one in warps.effects] == pytest.approx([0.5, 0.1, 0.0])
    assert (block.best.value, block.span, block.most_lost) == (128, pytest.approx(1.0), pytest.approx(1.0))
    assert stages.share == pytest.approx(0.0)
    assert result.best_ms == pytest.approx(0.1)
    assert sum(knob.share for knob in result.knobs) == pytest.approx(1.0)


@given(st.data())
def test_a_part_of_an_additive_surface_is_enough(tmp_path_factory, data):
    kept = set(data.draw(st.permutations(range(36)))[:24])
    numbers = itertools.count()
    path = tmp_path_factory.getbasetemp() / "part.json"
    result = sensitivity(recorded(path, lambda config: additive(config) if next(numbers) in kept else (None, 0)))
    assert result.explained == pytest.approx(1.0, abs=1e-6)
    assert (result.configs, result.failed) == (24, 12)


def test_tunables_that_act_together_are_left_over(tmp_path):
    result = sensitivity(
        recorded(tmp_path / "space.json", lambda c: (1.0 if (c["BLOCK"] == 64) == (c["KIND"] == "a") else 2.0, 0))
    )
    assert result.explained < 0.5


def test_a_spill_step_is_found_in_the_direction_in_which_it_begins(tmp_path):
    def spilling(config):
        spills = config["BLOCK"] == 256 and config["num_warps"] == 2
        return (5.0, 1024) if spills else (1.0, 0)

    result = cliffs(recorded(tmp_path / "space.json", spilling))
    steps = {(one.name, one.before, one.after): one for one in result}
    assert set(steps) == {("BLOCK", 128, 256), ("num_warps", 4, 2)}
    warps = steps["num_warps", 4, 2]
    assert (warps.pairs, warps.spills, warps.steep, warps.slower_if_spilled) == (12, 4, 4, 5.0)
    assert warps.slower == 1.0


def test_a_step_beyond_which_configs_fail_is_a_cliff(tmp_path):
    result = cliffs(
        recorded(tmp_path / "space.json", lambda c: (None if c["BLOCK"] == 256 else 1.0 + c["num_warps"], 0))
    )
    assert ("BLOCK", 128, 256, 12) in [(one.name, one.before, one.after, one.fails) for one in result]


def test_numbers_are_in_order_wherever_the_default_stands_in_a_space(tmp_path):
    space = {"BLOCK": [128, 256, 64], "num_warps": [4, 2, 8], "num_stages": [2, 1], "KIND": ["b", "a"]}
    result = recorded(tmp_path / "space.json", additive, space)
    block, warps, *_ = sensitivity(result).knobs
    assert [one.value for one in block.effects] == [64, 128, 256]
    assert [one.value for one in warps.effects] == [2, 4, 8]
    assert [one.slower for one in block.effects] == pytest.approx([1.0, 0.0, 0.3])
    assert [(one.name, one.before, one.after) for one in cliffs(result)] == [("BLOCK", 128, 64)]


def test_times_without_differences_tell_nothing(tmp_path):
    with pytest.raises(RecordingError, match="nothing can be told"):
        sensitivity(recorded(tmp_path / "space.json", lambda _: (1.0, 0)))


def test_the_command_prints_tunables_and_cliffs(cli, tmp_path):
    recorded(tmp_path / "one.json", additive)
    recorded(tmp_path / "two.json", lambda c: (2.0, 512) if c["num_warps"] == 2 else (1.0, 0))
    ran = cli("explain", "sensitivity", str(tmp_path / "one.json"), str(tmp_path / "two.json"), columns=160)
    assert ran.code == 0, ran.err
    assert "64: +100%, 128: +0%, 256: +30%" in ran.out
    assert "num_warps 4 -> 2" in ran.out
    result = json.loads(cli("explain", "sensitivity", str(tmp_path / "two.json"), "--json").out)["items"]
    assert result[0]["knobs"][0]["name"] == "num_warps"
    assert result[0]["cliffs"][0]["spills"] == 12
    (tmp_path / "none.json").write_text("{}")
    assert cli("explain", "sensitivity", str(tmp_path / "none.json")).code == 2


def point(extent, blocks, at_once=100):
    return ShapePoint(extent, Waves(blocks, at_once))


def test_a_wave_that_is_added_and_mostly_empty_is_a_cliff():
    result = Sweep(
        config=Config(),
        axis="M",
        blocks_per_unit=1,
        points=(point(1, 90), point(2, 100), point(3, 110), point(4, 190), point(5, 205)),
    )
    assert [(before.extent, after.extent) for before, after in result.cliffs] == [(2, 3), (4, 5)]
    many = Sweep(config=Config(), axis="M", blocks_per_unit=1, points=(point(1, 1990), point(2, 2010)))
    assert many.cliffs == []  # a twenty-first wave costs little


MATMUL = ["matmul", "--shape", "1024x2048x1024", "--gpu", "H200"]


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_the_command_finds_the_tail_of_a_product(cli, tmp_path, monkeypatch):
    monkeypatch.setattr("triton_ops_lab.expectation._COMPARED", 2)  # texts that are read beside a declaration
    words = [*MATMUL, "--vary", "M=896:1152:128", "--cache-dir", str(tmp_path)]
    result = json.loads(cli("explain", "cliffs", *words, "--config", "BM=128,BN=128", "--json").out)
    assert [(one["extent"], one["blocks"]) for one in result["points"]] == [(896, 112), (1024, 128), (1152, 144)]
    assert result["at_once"] == 132
    (cliff,) = result["cliffs"]
    assert (cliff["before"]["extent"], cliff["after"]["extent"]) == (1024, 1152)
    assert cliff["after"]["expected_ms"] > 1.3 * cliff["before"]["expected_ms"]
    assert cliff["after"]["used"] == pytest.approx(144 / 264)


UNDECLARED = """
from tests import inferred_kernels as kernels
from triton_ops import Operation, TensorSpec, TritonKernel

def arguments(rows=4096, columns=1024, dtype="bfloat16"):
    x = TensorSpec((rows, columns), dtype)
    return {"x": x, "y": x, "columns": columns, "eps": 1e-5}

KERNEL = TritonKernel(kernels.chunked_norm, lambda meta: (meta["x"].numel() // meta["columns"],), outputs=("y",))
norm = Operation("norm", KERNEL, {"BLOCK": [256], "num_warps": [4, 64]}, arguments, dtypes=("bfloat16",))
"""


@pytest.fixture
def undeclared(tmp_path, monkeypatch):
    (tmp_path / "undeclared.py").write_text(UNDECLARED)
    monkeypatch.chdir(tmp_path)
    return ["undeclared.py:norm", "--gpu", "H200", "--vary", "rows=1024:2048:1024", "--cache-dir", str(tmp_path)]


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_a_kernel_without_tiles_has_no_times_over_shapes_and_the_reason_is_true(cli, undeclared):
    result = json.loads(cli("explain", "cliffs", *undeclared, "--json").out)
    assert [one["blocks"] for one in result["points"]] == [1024, 2048]
    assert result["silent"] == "the kernel declares no tiles, and what is read at each shape is its grid alone"


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_a_config_that_cannot_be_launched_has_no_cliffs(cli, undeclared):
    ran = cli("explain", "cliffs", *undeclared, "--config", "num_warps=64")
    assert (ran.code, ran.out) == (2, "")
    assert "cannot run on NVIDIA H200: 64 warps of 32 are 2,048 threads per block; sm_90 has 1,024" in ran.err


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ("M", "write NAME=LOW:HIGH:STEP"),
        ("M=8:4", "is no series of 2 to"),
        ("M=1:100000:1", "is no series of 2 to"),
        ("M=16:32:0", "is no series of 2 to"),
    ],
)
def test_a_series_that_is_none_is_refused(cli, vary, said):
    ran = cli("explain", "cliffs", *MATMUL, "--vary", vary)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
