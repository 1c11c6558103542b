"""Rankings of shipped kernels' configs."""

from __future__ import annotations

import json
import math
import re

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
from triton_ops import rank  # noqa: E402
from triton_ops.exceptions import (  # noqa: E402
    DeviceError,
    KernelTypeError,
    SpaceError,
    TargetError,
    UnknownTunableError,
)
from triton_ops_kernels import load  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]
from tests.cpu.lab.test_rank import H200, NORM, SPACE, X  # noqa: E402


def test_declared_work_ranks_a_whole_space_in_order():
    operation = load("gated_mlp")
    result = rank(operation, gpu=H200)
    space = operation.space_for(operation.problem(None, None))
    assert len(result) == space.size.valid
    assert [one.expected_ms for one in result] == sorted(one.expected_ms for one in result)
    assert {one.source for one in result} == {"declared"}
    assert {one.limited_by for one in result if math.isinf(one.expected_ms)} == {"shared memory of a block, as guessed"}
    assert all(one.expected_ms >= one.lower_bound_ms > 0 for one in result)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: rank(NORM, (X, X, 1024, 1e-5), space=SPACE, gpu="Abacus"), DeviceError, "no device 'Abacus'"),
        (lambda: rank(NORM, (X, X, 1024, 1e-5), gpu=H200), SpaceError, "no space is given"),
        (lambda: rank(NORM, (X, X, 1024, 1e-5), space={"WIDTH": [1]}, gpu=H200), UnknownTunableError, "WIDTH"),
        (lambda: rank(NORM, (X,), space=SPACE, gpu=H200), KernelTypeError, "needs a value for y, columns, eps"),
        (lambda: rank(NORM, space=SPACE, shape=(3,), gpu=H200), KernelTypeError, "belong to an Operation"),
        (lambda: rank(load("matmul"), (X,), gpu=H200), KernelTypeError, "makes its own arguments"),
        (lambda: rank(lambda n, BLOCK: n, (3,), space={"BLOCK": [1]}, gpu=H200), TargetError, "no kernel that Triton"),
        (lambda: rank(load("matmul"), gpu="AMD Instinct MI300X"), DeviceError, "does not know the architecture"),
    ],
)  # fmt: skip
def test_what_cannot_be_ranked_is_refused_with_its_reason(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_explain_says_what_an_amd_device_makes_of_a_product(cli, tmp_path):
    tile = "BM=64,BN=64,BK=32,num_warps=4,num_stages=2"
    words = ["matmul", "--shape", "1024x1024x1024", "--gpu", "mi300x", "--cache-dir", str(tmp_path), "--config", tile]
    result = json.loads(cli("explain", *words, "--measured", "0.1", "--json").out)
    assert (result["device"], result["units"], result["expected_ms"]) == ("AMD Instinct MI300X", 304, None)
    assert (result["occupancy"]["most_warps"], result["shared"]) == (32, {"bytes": 8192, "limit": 65536})
    assert result["grid"]["blocks"] == 256
    assert result["roofline"]["ridge"] == pytest.approx(246.7, rel=1e-3)
    assert result["roofline"]["measured"]["tflops"] == pytest.approx(21.47, rel=1e-3)
    assert result["accumulator"] == {"tile": [64, 64], "bytes": 16384}
    assert [choice["threads"] for choice in result["warps"]] == [64, 128, 256, 512, 1024]
    assert [line["stages"] for line in result["pipeline"]["timelines"]] == [1, 2, 3, 4, 5]
    drawn = cli("explain", *words, "--pipeline").out
    assert "num_stages=2: the units compute in 50% of the time  <- this config" in drawn


def test_explain_says_how_many_stages_fit(cli, tmp_path):
    ran = cli("explain", "matmul", "--shape", "1024x1024x1024", "--gpu", "mi300x", "--cache-dir", str(tmp_path))
    assert ran.code == 0, ran.err
    assert "0%: not even one block fits" in ran.out
    assert "with num_stages=3 it fits: 65,536 bytes shared, occupancy 25%, limited by shared memory" in ran.out


def test_explain_of_a_block_with_too_much_shared_memory_counts_no_waves(cli):
    deep = "BM=128,BN=256,BK=64,num_warps=8,num_stages=5"
    ran = cli("explain", "matmul", "--shape", "1024x1024x1024", "--gpu", H200, "--config", deep, columns=200)
    assert ran.code == 0, ran.err
    assert "cannot run: needs 245,760 bytes of shared memory per block; sm_90 has 232,448" in ran.out
    assert "with num_stages=4 it fits" in ran.out
    assert not re.search(r"waves|alone:|suffice", ran.out)


@pytest.mark.parametrize("given", ["0", "-1", "nan"])
def test_explain_refuses_a_measured_time_that_is_none(cli, given):
    ran = cli("explain", "matmul", "--gpu", H200, "--measured", given)
    assert ran.code == 2
    assert "must be milliseconds over 0" in ran.err


def test_a_series_of_no_extent_is_refused(cli):
    ran = cli("explain", "cliffs", "matmul", "--shape", "1024x1024x1024", "--gpu", H200, "--vary", "Q=16:32:16")
    assert (ran.code, ran.out) == (2, "")
    assert "matmul has no extent 'Q'" in ran.err
