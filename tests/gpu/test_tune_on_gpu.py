"""`tune` on a GPU: real kernels, real failures, the caller's tensors untouched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import triton_ops_kernels as kernels
from triton_ops import (
    ConfigSpace,
    FunctionKernel,
    Operation,
    Status,
    TensorSpec,
    TritonKernel,
    Work,
    tune,
    use_lockfile,
)
from triton_ops.backend import Packed
from triton_ops.device import gpu_missing
from triton_ops.records import LockPlan, lock_of, matching
from triton_ops.typed import TypedTarget

PROJECT = Path(__file__).parents[2]

pytestmark = pytest.mark.gpu

if gpu_missing() is None:
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def vecadd_kernel(x_ptr, y_ptr, out_ptr, N, BLOCK_SIZE: tl.constexpr):
        pid = tl.program_id(0)
        offs = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        mask = offs < N
        x = tl.load(x_ptr + offs, mask=mask, other=0.0)
        y = tl.load(y_ptr + offs, mask=mask, other=0.0)
        tl.store(out_ptr + offs, x + y, mask=mask)

    @triton.jit
    def increment_kernel(x_ptr, N, BLOCK_SIZE: tl.constexpr):
        offs = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        mask = offs < N
        tl.store(x_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 1, mask=mask)

    @triton.jit
    def wrong_at_256_kernel(x_ptr, out_ptr, N, BLOCK_SIZE: tl.constexpr):
        offs = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        written = N
        if BLOCK_SIZE == 256:
            written = N // 2
        mask = offs < written
        tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)

    @triton.jit
    def row_sums_kernel(x_ptr, out_ptr, COLUMNS, BLOCK: tl.constexpr):
        total = 0.0
        for first in range(0, COLUMNS, BLOCK):
            offs = first + tl.arange(0, BLOCK)
            total += tl.sum(tl.load(x_ptr + tl.program_id(0) * COLUMNS + offs, mask=offs < COLUMNS, other=0.0), 0) * 3.0
        tl.store(out_ptr + tl.program_id(0), total)


def blocks(meta):
    """As many programs as blocks cover N."""
    return (triton.cdiv(meta["N"], meta["BLOCK_SIZE"]),)


def test_a_large_tensor_reaches_a_worker_without_its_bytes():
    x = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    large, small = Packed.of(x, mapped=True), Packed.of(x[:16].clone(), mapped=True)
    assert (large.mapped, small.mapped) == (True, False)
    assert len(large.content) < 4096
    program = (
        "import sys\nfrom triton_ops.backend import Packed\nprint(Packed.loaded(sys.stdin.buffer.read()).sum().item())"
    )
    result = subprocess.run([sys.executable, "-c", program], input=large.content, capture_output=True, check=True)
    assert float(result.stdout) == x.sum().item()


def test_vecadd_of_the_blog_post():
    operation = Operation(
        "vecadd",
        TritonKernel(vecadd_kernel, blocks, outputs=("out_ptr",)),
        ConfigSpace.from_configs(
            [
                triton.Config({"BLOCK_SIZE": 128}, num_warps=4, num_stages=2),
                triton.Config({"BLOCK_SIZE": 256}, num_warps=8, num_stages=2),
            ]
        ),
        lambda N=1 << 20: {
            "x_ptr": TensorSpec((N,), "float32"),
            "y_ptr": TensorSpec((N,), "float32"),
            "out_ptr": TensorSpec((N,), "float32", fill="empty"),
            "N": N,
        },
        reference=lambda x_ptr, y_ptr, out_ptr, N: x_ptr + y_ptr,
        work=lambda problem: Work(bytes=12.0 * problem["N"]),
        device="cuda",
    )
    for shape in (None, ((1 << 20) - 77,)):
        result = tune(operation, shape=shape)
        assert [trial.status for trial in result.trials] == [Status.OK] * 2
        assert 0.002 < result.metrics.latency_ms < 0.1
        assert result.metrics.bandwidth_gbps > 100
        assert tune(operation, shape=shape).from_cache


def test_an_in_place_kernel_leaves_the_callers_tensor_alone():
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    before = x.clone()
    kernel = TritonKernel(increment_kernel, blocks)
    result = tune(kernel, kwargs={"x_ptr": x, "N": 1000}, space={"BLOCK_SIZE": [64, 128, 256]})
    assert len(result.all_results) == 3
    assert torch.equal(x, before)


def test_a_wrong_config_cannot_win():
    x = torch.randn(1 << 16, device="cuda")
    out = torch.zeros_like(x)
    result = tune(
        TritonKernel(wrong_at_256_kernel, blocks, outputs=("out_ptr",)),
        kwargs={"x_ptr": x, "out_ptr": out, "N": x.numel()},
        space={"BLOCK_SIZE": [64, 128, 256, 512]},
        reference=lambda x_ptr, out_ptr, N: x_ptr,
    )
    by_block = {trial.config["BLOCK_SIZE"]: trial for trial in result.trials}
    assert by_block[256].status is Status.WRONG
    assert "50.00%" in by_block[256].error
    assert {by_block[block].status for block in (64, 128, 512)} == {Status.OK}


def test_what_does_not_fit_or_compile_ends_one_trial_and_prints_nothing(capfd):
    """Too much shared memory, a register limit that ptxas refuses, and a tile that is no power of two."""
    base = {"BM": 128, "BN": 128, "BK": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}
    planted = {
        "too much shared memory": {**base, "BK": 128, "num_stages": 5},
        "no power of two": {**base, "BM": 96},
        "too few registers": {**base, "BM": 256, "BN": 256, "num_warps": 16, "num_stages": 2},
    }
    result = tune(kernels.load("matmul"), shape=(512, 512, 512), space=[base, *planted.values()])
    status = {trial.config.text: trial.status for trial in result.trials}
    assert len(status) == 4
    outcome = {name: next(t for t in result.trials if dict(t.config) == config) for name, config in planted.items()}
    assert outcome["too much shared memory"].status is Status.RESOURCES
    assert outcome["no power of two"].status is Status.CONSTRAINT  # a free rule: nothing is compiled
    assert outcome["too few registers"].status is Status.RESOURCES, outcome["too few registers"]
    assert result.best_config == base
    assert ".visible .entry" not in capfd.readouterr().out, "nobody asked for ptxas' input"


def test_resources_are_those_of_the_loaded_binary():
    result = tune(kernels.load("matmul"), shape=(1024, 1024, 1024), trials=4, dtype="fp16")
    for trial in result.trials:
        if trial.ok:
            assert 16 <= trial.resources.registers <= 255
            assert trial.resources.shared_bytes > 0
            assert trial.resources.binary
            assert trial.compile_s > 0


@pytest.mark.parametrize(("name", "shape"), [("matmul", (777, 513, 257)), ("rmsnorm_rope", (2, 33, 768, 12))])
def test_shipped_kernels_tune_on_odd_shapes(name, shape):
    operation = kernels.load(name)
    for dtype in operation.dtypes:
        result = tune(operation, shape=shape, dtype=dtype, trials=12)
        assert not [trial for trial in result.trials if trial.status is Status.WRONG], dtype
        assert result.default.ok
        assert result.gain >= 1.0 or dict(result.default.config) == result.best_config


def test_a_config_whose_captured_graph_does_nothing_is_refused_and_not_crowned(tmp_path):
    def shy(x, out, variant):
        if variant == 2 and torch.cuda.is_current_stream_capturing():
            return  # would replay in no time
        torch.add(x, 1.0, out=out)

    x = torch.ones(1 << 16, device="cuda")
    target = FunctionKernel(shy, outputs=("out",))
    result = tune(target, (x, torch.empty_like(x)), space={"variant": [1, 2, 3]}, cache_dir=tmp_path)
    planted = next(trial for trial in result.trials if trial.config["variant"] == 2)
    assert planted.status is Status.WRONG
    assert result.best_config["variant"] != 2
    assert {t.measurement.mode for t in result.trials if t.ok} == {"graph-cold"}


def test_the_example_of_an_operation_tunes(tmp_path):
    softmax = TypedTarget(f"{PROJECT}/examples/softmax.py:softmax").load()
    for shape, dtype in (((4096, 4096), "bf16"), ((33, 1000), None), ((1, 1), "fp16")):
        result = tune(softmax, shape=shape, dtype=dtype, cache_dir=tmp_path)
        assert {trial.status for trial in result.trials} <= {Status.OK, Status.RESOURCES, Status.DEFERRED}, (
            result.failures
        )
        assert result.verified.startswith("the reference")


def test_a_tune_of_one_trial_is_unproven_and_gone_on_with_until_configs_were_compared(tmp_path):
    asked = {"shape": (4096, 1024), "dtype": "float16", "trials": 1, "cache_dir": tmp_path}
    first, second = (tune(kernels.load("softmax"), **asked) for _ in range(2))
    assert (len(first.trials), first.unproven) == (1, "no other config ran, so that nothing was compared")
    assert (len(second.trials), second.from_cache) == (2, False)
    assert second.unproven == "" or second.noise > 0  # the two were compared, whatever noise says of them


def test_the_winner_of_a_tune_for_same_bits_has_the_bits_of_the_default(tmp_path):
    kernel = TritonKernel(row_sums_kernel, lambda _: (256,), outputs=("out_ptr",))
    space = {"BLOCK": [256, 1024, 4096], "num_warps": [1, 4, 8], "num_stages": [1, 3]}
    x, out = torch.randn(256, 16384, device="cuda"), torch.empty(256, device="cuda")
    result = tune(kernel, (x, out, 16384), space=space, effort="exhaustive", cache_dir=tmp_path, same_bits_as="default")
    assert result.bits
    assert not [note for note in result.notes if "at fault" in note]
    assert [trial for trial in result.trials if trial.error.startswith("other bits than ")]
    bits = []
    for config in (dict(result.default.config), result.best_config):
        row_sums_kernel[(256,)](x, out, 16384, **config)
        bits.append(out.clone().view(torch.int32))
    assert torch.equal(*bits)


def test_a_class_that_is_pinned_is_tuned_inside_and_launched_with_its_bits(tmp_path):
    kernel = TritonKernel(row_sums_kernel, lambda _: (256,), outputs=("out_ptr",))
    space = {"BLOCK": [256, 1024, 4096], "num_warps": [1, 4, 8], "num_stages": [1, 3]}
    x, out = torch.randn(256, 16384, device="cuda"), torch.empty(256, device="cuda")
    first = tune(kernel, (x, out, 16384), space=space, effort="exhaustive", cache_dir=tmp_path / "first")
    use_lockfile(lock_of(matching(None, tmp_path / "first"), LockPlan(same_bits=True, unproven=True))[0])
    try:
        how = {"space": space, "effort": "exhaustive", "cache_dir": tmp_path / "later", "same_bits_as": "lockfile"}
        later = tune(kernel, (x, out, 16384), **how)
    finally:
        use_lockfile(None)
    assert later.bits == first.bits != ""
    bits = []
    for config in (first.best_config, later.best_config):
        row_sums_kernel[(256,)](x, out, 16384, **config)
        bits.append(out.clone().view(torch.int32))
    assert torch.equal(*bits)
