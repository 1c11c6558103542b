"""Arguments that a kernel changes hold on a GPU what they hold with Triton, whoever measures, however it is taken."""

from __future__ import annotations

from unittest import mock

import pytest

import triton_ops
from triton_ops.device import gpu_missing

pytestmark = pytest.mark.gpu

if gpu_missing() is None:
    import torch
    import triton

    from tests.tuned_kernels import add, grid, grow

    TRITONS = triton.autotune


def fill(given, reset_only=False):
    given["x_ptr"].fill_(7)


def bench(call, quantiles):
    return triton.testing.do_bench(call, quantiles=quantiles, warmup=1, rep=1)


@pytest.mark.parametrize("way", ["Triton", "installed", "taken over"])
@pytest.mark.parametrize("measured", ["by the tuner", "by do_bench"])
@pytest.mark.parametrize(
    ("options", "after"),
    [({"restore_value": ["x_ptr"]}, [6, 7]), ({"reset_to_zero": ["x_ptr"]}, [1, 2]), ({"pre_hook": fill}, [8, 9])],
    ids=["restored", "zeroed", "hooked"],
)
def test_arguments_that_a_kernel_changes(way, measured, options, after):
    x, result = torch.full((5000,), 5.0, device="cuda"), []
    configs = [triton.Config({"BLOCK": block}) for block in (128, 1024)]
    more = {"do_bench": bench} if measured == "by do_bench" else {}

    def launched(decorator):
        kernel = decorator(configs, ["n"], **options, **more)(grow)
        for _ in after:
            kernel[grid](x, 5000)
            result.append((x.min().item(), x.max().item()))
        assert kernel.nargs is None
        assert kernel.best_config in configs

    if way == "Triton":
        launched(TRITONS)
    else:
        with triton_ops.install(on_miss="tune", budget_s=3):
            launched(TRITONS if way == "taken over" else triton.autotune)
    assert result == [(value, value) for value in after]


def test_a_mock_of_run_sees_the_launches_of_a_tuned_kernel():
    autotuner, seen = triton.runtime.autotuner.Autotuner, []
    original, configs = autotuner.run, [triton.Config({"BLOCK": block}) for block in (128, 1024)]
    x, y = torch.randn(5000, device="cuda"), torch.randn(5000, device="cuda")
    for decorator in (triton_ops.autotune, TRITONS):
        kernel, out = decorator(configs, ["n"])(add), torch.empty_like(x)
        with mock.patch.object(
            autotuner, "run", lambda one, *a, **more: (seen.append(one), original(one, *a, **more))[1]
        ):
            kernel[grid](x, y, out, 5000)
            kernel[grid](x, y, out, 5000)
        assert seen[-2:] == [kernel, kernel]
        assert kernel.best_config in configs
        assert torch.equal(out, x + y)
