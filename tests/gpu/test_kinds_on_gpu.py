"""Every kind of Triton kernel on a GPU: compiled ahead, tried in a process of its own, verified and timed."""

from __future__ import annotations

import contextvars
import logging
import threading

import pytest

from triton_ops import LauncherKernel, Status, TritonKernel, TuneProblem, TuningFailedError, tune, tune_many
from triton_ops.device import gpu_missing

pytestmark = pytest.mark.gpu

if gpu_missing() is None:
    import torch
    import triton
    import triton.language as tl
    from triton.tools.tensor_descriptor import TensorDescriptor

    from tests import kinds
    from tests.product_kinds import KINDS

SMALL = {"split_k_matmul": (64, 512, 4096)}
NAMES = [
    "device_descriptor_matmul", "host_descriptor_matmul", "warp_specialized_matmul", "gluon_matmul", "split_k_matmul",
]  # fmt: skip


def hopper():
    """Whether this GPU has the matrix instructions that some of the kernels are written for."""
    return torch.cuda.get_device_capability()[0] == 9


def rows():
    """A matrix that descriptors can describe."""
    return torch.randn(kinds.ROWS, kinds.COLUMNS, device="cuda", dtype=torch.bfloat16)


def all_ok(result, place="in a process of its own"):
    assert [trial.status for trial in result.trials] == [Status.OK] * len(result.trials), [
        (str(trial.config), trial.error) for trial in result.trials
    ]
    assert result.place.startswith(place)


@pytest.mark.parametrize("name", NAMES)
def test_each_kind_of_product_is_tuned_isolated_and_right(name):
    if not hopper():
        pytest.skip("it is written for Hopper")
    operation = KINDS[name]
    result = tune(operation, shape=SMALL.get(name, (512, 512, 256)), search="random", trials=6)
    assert result.place.startswith("in a process of its own")
    assert result.verified.startswith("the reference")
    assert {trial.status for trial in result.trials} <= {Status.OK, Status.DEFERRED, Status.RESOURCES}
    assert result.winner.ok


@pytest.mark.parametrize("isolate", [True, False])
def test_descriptors_that_a_kernel_makes_find_memory(isolate):
    x = rows()
    result = tune(
        TritonKernel(kinds.copy_in_kernel, kinds.row_blocks, outputs=("out",)),
        kwargs={"x": x, "out": torch.empty_like(x), "rows": kinds.ROWS, "stride": kinds.COLUMNS,
                "WIDTH": kinds.COLUMNS},
        space={"BLOCK": [32, 64]}, reference=lambda x, **_: x, isolate=isolate,
    )  # fmt: skip
    all_ok(result, "in a process" if isolate else "inline")
    assert result.verified.startswith("the reference")


def test_the_users_allocator_is_asked_before_the_default_one():
    asked = []

    def mine(size, _alignment, _stream):
        asked.append(size)
        return torch.empty(size, dtype=torch.int8, device="cuda")

    def tuned():
        triton.set_allocator(mine)
        x = rows()
        return tune(
            TritonKernel(kinds.copy_in_kernel, kinds.row_blocks, outputs=("out",)),
            kwargs={"x": x, "out": torch.empty_like(x), "rows": kinds.ROWS, "stride": kinds.COLUMNS,
                    "WIDTH": kinds.COLUMNS},
            space={"BLOCK": [32, 64]}, reference=lambda x, **_: x, isolate=False,
        )  # fmt: skip

    all_ok(contextvars.copy_context().run(tuned), "inline")
    assert asked


def test_the_users_allocator_is_asked_in_the_threads_of_many_problems(tmp_path):
    asked = set()

    def mine(size, _alignment, _stream):
        asked.add(threading.get_ident())
        return torch.empty(size, dtype=torch.int8, device="cuda")

    def tuned():
        triton.set_allocator(mine)
        x = rows()
        problem = TuneProblem(
            target=TritonKernel(kinds.copy_in_kernel, kinds.row_blocks, outputs=("out",)),
            kwargs={"x": x, "out": torch.empty_like(x), "rows": kinds.ROWS, "stride": kinds.COLUMNS,
                    "WIDTH": kinds.COLUMNS},
            space={"BLOCK": [32, 64]},
        )  # fmt: skip
        return tune_many([problem], isolate=False, cache_dir=tmp_path, told=lambda _: None)

    (outcome,) = contextvars.copy_context().run(tuned).outcomes
    all_ok(outcome.result, "inline")
    assert asked
    assert threading.get_ident() not in asked


@pytest.mark.parametrize("isolate", [True, False])
def test_descriptors_of_the_host_follow_the_config_by_a_rule(isolate):
    kernel = TritonKernel(
        kinds.copy_descriptors, kinds.row_blocks, outputs=("out",),
        descriptors={"x": ("BLOCK", kinds.COLUMNS), "out": ("BLOCK", kinds.COLUMNS)},
    )  # fmt: skip
    x = rows()
    out = torch.full_like(x, 7)
    result = tune(
        kernel, kwargs={"x": x, "out": out}, space={"BLOCK": [32, 64, 128]}, reference=lambda x, out: x,
        isolate=isolate,
    )  # fmt: skip
    all_ok(result, "in")
    assert result.verified.startswith("the reference")
    assert out.eq(7).all(), "the caller's output stays as it was"


@pytest.mark.parametrize("isolate", [True, False])
def test_descriptors_of_the_host_follow_the_config_by_a_hook(isolate):
    x = rows()
    out = torch.full_like(x, 7)
    given = {name: TensorDescriptor.from_tensor(t, [1, kinds.COLUMNS]) for name, t in (("x", x), ("out", out))}
    configs = [triton.Config({"BLOCK": size}, num_warps=4, pre_hook=kinds.set_blocks) for size in (32, 64, 128)]
    kernel = TritonKernel(kinds.copy_descriptors, kinds.row_blocks, outputs=("out",))
    result = tune(kernel, kwargs=given, space=configs, reference=lambda x, out: x.base, isolate=isolate)
    all_ok(result, "in")
    assert out.eq(7).all(), "the caller's output stays as it was"
    assert given["x"].block_shape == [1, kinds.COLUMNS]


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize("how", ["hook", "reset", "restored"])
def test_an_accumulator_is_zero_before_every_launch(how, isolate):
    x = torch.ones(1 << 16, device="cuda")
    space = [
        triton.Config({"BLOCK": size}, pre_hook=kinds.zero_total if how == "hook" else None) for size in (512, 2048)
    ]
    kernel = TritonKernel(
        kinds.add_up, kinds.flat_blocks, outputs=() if how == "restored" else ("total",),
        reset_to_zero=("total",) if how == "reset" else (), restore_value=("total",) if how == "restored" else (),
    )  # fmt: skip
    total = torch.zeros(1, device="cuda")
    all_ok(
        tune(kernel, kwargs={"x": x, "total": total, "n": x.numel()}, space=space,
             reference=None if how == "restored" else lambda x, total, n: x.sum()[None], isolate=isolate), "in"
    )  # fmt: skip
    assert total.item() == 0


def test_tuples_none_strings_dtypes_and_constexpr_objects():
    x, y = torch.randn(2, 10_000, device="cuda").unbind()
    given = {
        "parts": (x, y, 3), "out": torch.empty_like(x), "n": x.numel(), "nothing": None, "kind": "scaled",
        "dtype": tl.float32, "factor": tl.constexpr(2),
    }  # fmt: skip
    kernel = TritonKernel(kinds.mixed, kinds.flat_blocks, outputs=("out",))
    space = {"BLOCK": [128, 256], "num_ctas": [1, 2] if hopper() else [1], "maxnreg": [None, 64]}
    result = tune(kernel, kwargs=given, space=space, reference=lambda parts, **_: 2 * (parts[0] + parts[1] + 3))
    all_ok(result)
    assert result.verified.startswith("the reference")


def test_heuristics_and_gluon_kernels():
    x = torch.randn(10_000, device="cuda")
    given = {"x": x, "out": torch.empty_like(x), "n": x.numel()}
    for function, factor in ((kinds.doubled, 2), (kinds.gluon_copy, 1)):
        kernel = TritonKernel(function, kinds.flat_blocks, outputs=("out",))
        space = {"BLOCK": [256, 1024], "num_warps": [2, 4]}
        result = tune(kernel, kwargs=given, space=space, reference=lambda x, out, n, by=factor: by * x)
        all_ok(result)
        assert result.verified.startswith("the reference")


def summed(kernel, **more):
    x = torch.rand(100_000, device="cuda")
    given = {"x": x, "out": torch.empty(1, device="cuda")}
    return tune(kernel, kwargs=given, space={"BLOCK": [512, 1024], "num_warps": [4, 8]},
                reference=lambda x, out: x.sum()[None], **more)  # fmt: skip


@pytest.mark.parametrize("isolate", [True, False])
def test_a_launcher_of_two_kernels_is_one_candidate(isolate):
    result = summed(LauncherKernel(kinds.sum_in_two, outputs=("out",)), isolate=isolate)
    all_ok(result, "in")
    assert all(trial.resources.registers for trial in result.trials)


def test_a_launcher_that_cannot_be_compiled_ahead_says_why_and_runs(caplog):
    with caplog.at_level(logging.WARNING, "triton_ops"):
        result = summed(LauncherKernel(kinds.sum_that_looks, outputs=("out",)))
    all_ok(result)
    assert "cannot be run without computing" in caplog.text


def test_a_launcher_that_launches_nothing_fails_with_the_reason():
    with pytest.raises(TuningFailedError, match="launches no Triton kernel"):
        summed(LauncherKernel(kinds.sum_of_torch, outputs=("out",)))
