"""What the command line refuses of shipped kernels."""

from __future__ import annotations

import pytest

from tests.cpu.cli.test_cli_errors import HUGE, SPACE, T
from tests.cpu.cli.test_cli_errors import refused as refused
from tests.cpu.cli.test_cli_errors import target as target
from triton_ops.device import gpu_missing
from triton_ops.exceptions import DeviceError

NO_GPU = pytest.mark.skipif("gpu_missing() is None", reason="there is a GPU here")
SHIPPED = [
    (["matmull"], 2, "there is no kernel 'matmull'; close are matmul"),
    (["softmx"], 2, "there is no kernel 'softmx'; close are softmax"),
    (["matmul"], 2, "matmul needs a shape: MxNxK"),
    (["matmul", "--shape", "64"], 2, "matmul takes 3 extents, MxNxK; 64 has 1"),
    (["matmul", "--shape", "64x64x64,64"], 2, "matmul takes one shape, MxNxK, not 2"),
    (["matmul", "--shape", "64x64x64", "--dtype", "fp64"], 2, "matmul does not take float64; it takes bfloat16"),
    (["matmul", "--shape", "64x64x64", "--space", "BMM=64"], 2, "matmul has no tunable BMM; close are BM"),
    (["matmul", "--shape", "64x64x64", "--device", "cpu"], 3, "matmul runs on cuda, not on cpu"),
    (["matmul", "--shape", HUGE + "x99999999"], 2, "a tile would span"),
    (["rmsnorm_rope", "--shape", "1x1x4095x4"], 2, "hidden size 4095 is no multiple of 4 heads"),
]


@pytest.mark.triton
@pytest.mark.parametrize(("words", "code", "message"), SHIPPED)
def test_refused_by_a_shipped_kernel(refused, words, code, message):
    pytest.importorskip("triton")
    assert refused(words, code, message).code == code


@pytest.mark.triton
@NO_GPU
def test_a_gpu_where_there_is_none(refused):
    plain = refused([f"{T}:plain", *SPACE, "--device", "cuda"], 3, f"device cuda cannot be used: {gpu_missing()}")
    assert plain.code == 3
    pytest.importorskip("triton")
    shipped = refused(["matmul", "--shape", "64x64x64"], 3, "matmul runs on a GPU, and there is none")
    assert DeviceError.NO_GPU in plain.err
    assert DeviceError.NO_GPU in shipped.err
    assert shipped.code == 3
