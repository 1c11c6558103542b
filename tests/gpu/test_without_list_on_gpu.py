"""Kernels without a list on a GPU: tuned over what is read of them, and refused where a tile is part of the result."""

from __future__ import annotations

import pytest

from triton_ops import autotune
from triton_ops.exceptions import SpaceError

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
pytestmark = pytest.mark.gpu

from tests import meaning_kernels, tuned_kernels  # noqa: E402 - they need Triton

N = 1 << 20


def grid(meta):
    return (triton.cdiv(N, meta["BLOCK"]),)


def test_a_kernel_without_a_list_is_tuned_and_right(tmp_path):
    add = autotune(key=["n"], cache_dir=tmp_path)(tuned_kernels.add)
    x, out = torch.rand(N, device="cuda"), torch.empty(N, device="cuda")
    add[grid](x, x, out, N)
    assert torch.equal(out, x + x)
    (decision,) = add.decisions
    assert decision.found.rung == "tuned"
    assert {*decision.found.config} == {"BLOCK", "num_warps"}


def test_a_list_that_is_widened_loses_none_of_its_configs(tmp_path):
    listed = [{"BLOCK": 64, "num_warps": 8}, {"BLOCK": 128, "num_warps": 4}]
    add = autotune(listed, key=["n"], cache_dir=tmp_path, widen=True)(tuned_kernels.add)
    x, out = torch.rand(N, device="cuda"), torch.empty(N, device="cuda")
    result = add.launches.call_of(grid, (x, x, out, N), {}).tuned()
    tried = {(trial.config["BLOCK"], trial.config["num_warps"]) for trial in result.trials}
    assert {(64, 8), (128, 4)} <= tried
    assert len(tried) > len(listed)


@pytest.mark.parametrize("constant", ["GROUP", "CHUNK"])
def test_a_tile_that_is_part_of_the_result_is_refused(tmp_path, constant):
    (planted,) = (each for each in meaning_kernels.PLANTED if each.constant == constant)
    programs, values = meaning_kernels.call(planted)
    kernel = autotune(key=["n"], cache_dir=tmp_path)(planted.kernel)
    on_gpu = {name: each.cuda() if hasattr(each, "cuda") else each for name, each in values.items()}
    with pytest.raises(SpaceError, match=constant):
        kernel[programs](**on_gpu)
