"""`triton-ops bench` of shipped kernels."""

from __future__ import annotations

import pytest

from triton_ops.device import gpu_missing


@pytest.mark.skipif(gpu_missing() is None, reason="there is a GPU")
def test_a_shipped_kernel_needs_its_device(cli):
    ran = cli("bench", "matmul", "--shape", "64x64x64", "--config", "BM=64")
    assert (ran.code, ran.out) == (3, "")
    assert "matmul runs on a GPU, and there is none" in ran.err


def test_all_kernels_need_a_gpu(cli):
    ran = cli("bench", "kernels", "--device", "cpu")
    assert ran.code == 3
    assert "runs on cuda, not on cpu" in ran.err


@pytest.mark.skipif(gpu_missing() is None, reason="there is a GPU")
def test_without_a_gpu_nobody_is_sent_to_the_cpu_for_all_kernels(cli):
    ran = cli("bench", "kernels")
    assert (ran.code, ran.out) == (3, "")
    assert "needs a GPU" in ran.err
    assert "--device cpu" not in ran.err
