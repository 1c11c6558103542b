"""Kernels under `@triton.heuristics`: their computed arguments are known to the checks, the grid and the launch."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

import triton_ops  # noqa: E402
from tests.clocks import steady_times  # noqa: E402
from triton_ops import tune  # noqa: E402
from triton_ops.backend import Arguments, Operation, Packed, TritonCompiler, TritonKernel  # noqa: E402
from triton_ops.device import Target  # noqa: E402
from triton_ops.exceptions import ConfigCollisionError, KernelTypeError  # noqa: E402
from triton_ops.request import TuneProblem  # noqa: E402
from triton_ops.space import Config  # noqa: E402
from triton_ops.values import (  # noqa: E402
    Resources,
    Status,
    TensorSpec,
)

pytestmark = pytest.mark.triton


@triton.jit
def plain(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, WIDE: tl.constexpr = 2):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=(at < n) | EVEN) * WIDE, mask=(at < n) | EVEN)


def grid(meta):
    return (meta["n"] // meta["BLOCK"],)


def even(given):
    return given["n"] % given["BLOCK"] == 0


def test_what_heuristics_compute_is_neither_missing_nor_to_be_given():
    kernel = TritonKernel(triton.heuristics({"EVEN": even})(plain), grid, outputs=("x",))
    given = Arguments(keyword={"x": None, "n": 64})
    kernel.check(["BLOCK", "num_warps"], given)
    with pytest.raises(KernelTypeError, match="needs a value for BLOCK"):
        kernel.check(["num_warps"], given)
    with pytest.raises(ConfigCollisionError, match=r"'EVEN' is computed by the @triton\.heuristics"):
        kernel.check(["BLOCK", "EVEN"], given)
    with pytest.raises(ConfigCollisionError, match="'EVEN'"):
        kernel.check(["BLOCK"], Arguments(keyword={**given.keyword, "EVEN": True}))


def test_heuristics_above_an_autotuner_are_those_of_the_function_below():
    tuned = triton.autotune([triton.Config({"BLOCK": 64})], key=[], reset_to_zero=["x"])(plain)
    above, below = triton.heuristics({"WIDE": lambda _: 4})(tuned), triton.heuristics({"EVEN": even})
    kernel = TritonKernel(below(above), grid)
    assert kernel.name == "tests.cpu.backend.test_heuristics:plain"
    assert kernel.reset_to_zero == ("x",)
    assert TritonKernel(above, grid, restore_value=("x",)).restore_value == ("x",)
    kernel.check(["BLOCK"], Arguments(keyword={"x": None, "n": 64}))
    with pytest.raises(ConfigCollisionError, match="'EVEN', 'WIDE' is computed"):
        kernel.check(["BLOCK", "EVEN", "WIDE"], Arguments(keyword={"x": None, "n": 64}))
    assert above.fn is tuned, "the caller's own kernel is as it was"


def test_the_list_of_an_autotuner_is_the_space_where_none_is_given():
    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)]
    tuned = triton.autotune(configs, key=[], reset_to_zero=["x"])(triton.heuristics({"EVEN": even})(plain))
    kernel = TritonKernel(tuned, grid)
    assert kernel.reset_to_zero == ("x",)
    operation = Operation("listed", kernel, None, lambda n=64: {"x": TensorSpec((n,), "float32"), "n": n})
    assert [config["BLOCK"] for config in operation.space] == [64, 128]
    assert (operation.kernel.function, operation.kernel.offered) == (tuned.fn, ())
    own = replace(operation, kernel=kernel, space={"BLOCK": [32]})
    assert [config["BLOCK"] for config in own.space] == [32]
    given = {"x": torch.zeros(64, device="meta"), "n": 64}
    (_, space) = TuneProblem(target=kernel, kwargs=given).parts
    assert [config.kwargs["BLOCK"] for config in space] == [64, 128]
    ours = TritonKernel(triton_ops.autotune({"BLOCK": [64, 256]}, key=[])(plain), grid)
    assert [config["BLOCK"] for config in replace(operation, kernel=ours, space=None).space] == [64, 256]


def test_an_autotuner_that_cannot_be_taken_out_is_refused():
    configs = [triton.Config({"BLOCK": 64})]
    hooked = triton.autotune(configs, key=[], pre_hook=lambda *_, **__: None)(plain)
    with pytest.raises(KernelTypeError, match=r"has a hook of its own.*as pre_hook"):
        TritonKernel(triton.heuristics({"EVEN": even})(hooked), grid)
    pruned = triton.autotune(configs, key=[], prune_configs_by={"early_config_prune": lambda *_, **__: configs})(plain)
    with pytest.raises(KernelTypeError, match=r"leaves configs out by a function of its own.*kernel\.fn"):
        TritonKernel(pruned, grid)
    twice = triton.autotune([triton.Config({}, num_warps=8)], key=[])(triton.autotune(configs, key=[])(plain))
    with pytest.raises(KernelTypeError, match=r"plain has 2 decorators that tune, one around the other"):
        TritonKernel(twice, grid)


def test_heuristics_above_an_autotuner_are_compiled_ahead_and_sent_to_other_processes():
    tuned = triton.autotune([triton.Config({"BLOCK": 64})], key=[])(plain)
    kernels = [TritonKernel(triton.heuristics({"EVEN": even})(below), grid) for below in (tuned, plain)]
    given = Arguments(keyword={"x": TensorSpec((64,), "float32"), "n": 64})
    result = []
    for kernel in kernels:
        sent = Packed.loaded(Packed.of(kernel).content)
        loaded = TritonCompiler(sent, given, Target.named("sm_90")).pack().load()
        compiled = loaded.compile(Config(BLOCK=32, num_warps=4))
        result.append((compiled.status, compiled.resources.binary, kernel.cache_key))
    assert result[0][0] is Status.OK
    assert result[0] == result[1]


def test_a_launch_is_told_apart_unless_heuristics_compute_what_no_binary_holds():
    given, made = Arguments(keyword={"x": None, "n": 64}), Resources(binary="same")
    constant = TritonKernel(triton.heuristics({"EVEN": even})(plain), grid)
    four, same, two = (constant.program_key(Config(BLOCK=block), given, made) for block in (16, 15, 32))
    assert four is not None
    assert (four == same, four == two) == (True, False), "the grids are (4,), (4,) and (2,)"
    computed = TritonKernel(triton.heuristics({"n": lambda _: 64})(plain), grid)
    assert computed.program_key(Config(BLOCK=16), given, made) is None


def statuses_of_a_tune(folder):
    """What becomes of two configs whose grid needs a default of the kernel's."""
    tuned = triton.autotune([triton.Config({"BLOCK": 64})], key=[])(plain)
    kernel = TritonKernel(
        triton.heuristics({"EVEN": even})(tuned),
        lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]) * meta["WIDE"] // 2,),
    )
    with steady_times():
        result = tune(
            kernel, kwargs={"x": torch.ones(100), "n": 100}, space={"BLOCK": [32, 64]}, reference=lambda x, n: x * 2,
            cache_dir=folder,
        )  # fmt: skip
    return [trial.status for trial in result.trials]


def test_the_grid_sees_defaults_and_what_heuristics_compute(tmp_path, interpreted):
    assert interpreted(statuses_of_a_tune, tmp_path) == [Status.OK] * 2
