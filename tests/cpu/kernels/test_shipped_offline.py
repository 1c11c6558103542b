"""Shipped kernels compiled without a GPU: shared memory, registers, spills, and names of binaries."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests.garbage import ENDS_UNSEARCHED  # noqa: E402
from tests.launches import compiled_anew  # noqa: E402
from triton_ops.backend import Arguments, TritonCompiler, TritonKernel, TritonProcess  # noqa: E402
from triton_ops.backend.offline import pretending  # noqa: E402
from triton_ops.backend.triton_process import assembler_in_use, traits_of  # noqa: E402
from triton_ops.device import Target  # noqa: E402
from triton_ops.kernel_ir.machine_code import cubin_usage  # noqa: E402
from triton_ops.space import Config  # noqa: E402
from triton_ops.values import (  # noqa: E402
    Status,
    TensorSpec,
)
from triton_ops_kernels import load  # noqa: E402

pytestmark = pytest.mark.triton


CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
ARCHES = ["sm_80", "sm_90", "sm_100", "gfx942", "gfx950"]
NVIDIA = ARCHES[:3]
TILE = Config(BM=64, BN=64, BK=32, GROUP_M=8, num_warps=4, num_stages=3)
HUGE = {"sm_90": Config({**TILE, "BM": 128, "BN": 256}), "sm_100": Config({**TILE, "BM": 256, "BN": 256})}


def matmul(shape=(512, 512, 512), dtype="bfloat16"):
    operation = load("matmul")
    return operation.kernel, Arguments(keyword=dict(operation.problem(shape, dtype).arguments)).described()


def rmsnorm(dtype="float32"):
    operation = load("rmsnorm_rope")
    problem = operation.problem(None, dtype)
    return operation.kernel, Arguments(keyword=dict(problem.arguments)).described()


ROWS = Config(BLOCK_SIZE=512, num_warps=4, num_stages=2)
CASES = {
    "bf16": (lambda: matmul(), TILE),
    "fp16-odd": (lambda: matmul((500, 259, 77), "float16"), TILE),
    "fp8": (lambda: matmul(dtype="float8_e4m3fn"), Config({**TILE, "BK": 64})),
    "fp32-rows": (lambda: rmsnorm(), ROWS),
}


def cases(arches):
    return [(arch, name) for name in CASES for arch in arches if (arch, name) != ("sm_80", "fp8")]


def given(arch, case):
    """Kernel, arguments and config of a case, with two stages or four: each device and each case has both.

    Tests that ask for the same find it in the disk cache.
    """
    make, config = CASES[case]
    more = (ARCHES.index(arch) + list(CASES).index(case)) % 2
    return *make(), Config({**config, "num_stages": 2 + 2 * more})


@pytest.mark.parametrize(("arch", "case"), cases(ARCHES))
def test_shared_memory_before_llvm_is_that_of_the_full_compile(arch, case):
    kernel, arguments, config = given(arch, case)
    early = []
    with compiled_anew():
        (built,) = TritonCompiler(kernel, arguments, Target.named(arch)).built(config, lambda n, _: early.append(n))
    assert early == [built.metadata["shared"]]


@pytest.mark.parametrize(("arch", "case"), cases(NVIDIA))
def test_registers_and_stack_are_those_that_nvidias_own_tool_reads(arch, case, tmp_path):
    kernel, arguments, config = given(arch, case)
    usage = check_usage(TritonCompiler(kernel, arguments, Target.named(arch)).built(config)[0].binary, tmp_path)
    assert 0 < usage["registers"] <= 255


def test_what_is_not_compiled_in_this_process_can_be_asked_for_without_a_compilation():
    """Extents of the same alignment are served by the code that is there; others would be compiled."""
    knobs = triton.knobs.runtime
    with pretending(Target.named("sm_90"), "asked without a compilation"):
        kernel, arguments = matmul((512, 512, 512))
        (made,) = kernel.lowered(TILE, arguments)
        before, asked = knobs.jit_cache_hook, []
        knobs.jit_cache_hook = lambda **facts: bool(asked.append(facts))
        try:
            with TritonProcess.nothing_compiled():
                assert kernel.lowered(TILE, matmul((496, 496, 496))[1]) == [made]
                assert kernel.lowered(TILE, matmul((500, 259, 77))[1]) == [None]
                assert kernel.lowered(Config({**TILE, "GROUP_M": 4}), arguments) == [None]
            assert not asked
            (other,) = kernel.lowered(TILE, matmul((500, 259, 77))[1])
            assert len(asked) == 1, "the hook that was there is back"
        finally:
            knobs.jit_cache_hook = before
    assert traits_of([other])["compilation"] != traits_of([made])["compilation"]


def test_only_the_thread_that_asks_for_it_compiles_nothing_and_blocks_may_overlap():
    """A launch of another thread would otherwise be lost without a word, or every launch after the two blocks."""
    knobs, other = triton.knobs.runtime, ThreadPoolExecutor(1)

    def compiled(**more):
        kernel, arguments = matmul()
        return kernel.lowered(Config({**TILE, **more}), arguments) != [None]

    before = knobs.jit_cache_hook
    with pretending(Target.named("sm_90"), "two threads"), other:
        here, there = TritonProcess.nothing_compiled(), TritonProcess.nothing_compiled()
        here.__enter__()
        assert not compiled(GROUP_M=3)
        assert other.submit(compiled, GROUP_M=3).result()
        other.submit(there.__enter__).result()
        assert not other.submit(compiled, GROUP_M=5).result()
        here.__exit__(None, None, None)
        assert compiled(GROUP_M=5)
        other.submit(there.__exit__, None, None, None).result()
    assert knobs.jit_cache_hook is before


@pytest.mark.parametrize("arch", HUGE)
def test_a_huge_tile_spills_and_is_deferred(arch, tmp_path):
    kernel, arguments = matmul()
    result = TritonCompiler(kernel, arguments, Target.named(arch)).compile(HUGE[arch])
    built = TritonCompiler(kernel, arguments, Target.named(arch)).built(HUGE[arch])[0]
    usage = check_usage(built.binary, tmp_path)
    assert result.launchable
    assert result.resources == built.resources(Target.named(arch))
    assert result.resources.spill_bytes == usage["spill_bytes"] > 0
    assert result.deferred == (usage["spill_bytes"] > 256)
    assert result.deferred == (f"{usage['spill_bytes']:,}" in result.reason)
    assert result.deferred or arch == "sm_100", "sm_100 keeps the accumulator in tensor memory"


@pytest.mark.parametrize(("arch", "config", "expected"), [("sm_90", TILE, False), ("sm_90", HUGE["sm_90"], True)])
def test_products_are_serialised_where_the_assembler_warns_of_it(arch, config, expected, tmp_path):
    kernel, arguments = matmul()
    built = TritonCompiler(kernel, arguments, Target.named(arch)).built(config)[0]
    text = tmp_path / "kernel.ptx"
    text.write_text(built.assembly)
    command = [assembler_in_use().path, "-v", f"--gpu-name={arch}a", text, "-o", tmp_path / "kernel.cubin"]
    message = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert ("Potential Performance Loss" in message) is expected
    assert built.resources(Target.named(arch)).serialised is expected


def test_without_products_of_warp_groups_nothing_is_serialised():
    kernel, arguments, config = given("sm_80", "bf16")
    built = TritonCompiler(kernel, arguments, Target.named("sm_80")).built(config)[0]
    assert built.resources(Target.named("sm_80")).serialised is None


def check_usage(cubin, folder):
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    message = subprocess.run([CUOBJDUMP, "-res-usage", file], capture_output=True, text=True, check=True).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", message).groups()
    usage = cubin_usage(cubin)
    assert usage == {"registers": int(registers), "stack_bytes": int(stack), "spill_bytes": int(stack)}
    return usage


@pytest.mark.parametrize(
    ("arch", "mma", "wide"),
    [("sm_80", "mma.sync", 16), ("sm_90", "wgmma", 16), ("sm_100", "tcgen05", 16), ("gfx942", "mfma", 16)],
)
def test_instructions(arch, mma, wide):
    target = Target.named(arch)
    result, narrow, rows = (
        TritonCompiler(kernel, arguments, target).compile(config).resources
        for kernel, arguments, config in (given(arch, case) for case in ("bf16", "fp16-odd", "fp32-rows"))
    )
    assert (result.mma, result.load_bytes) == (mma, wide)
    assert narrow.load_bytes == 2, "rows of 77 elements are not aligned"
    assert rows.mma == "none"


OTHER_PROCESS = """
import sys
import torch, triton
from triton_ops.backend import Arguments
from triton_ops.backend import TritonCompiler
from triton_ops.device import Target
from triton_ops_kernels import load
from triton_ops.space import Config

hits = []
triton.knobs.compilation.listener = lambda **event: hits.append(event["cache_hit"])
operation = load("matmul")
config = Config(BM=64, BN=64, BK=32, GROUP_M=8, num_warps=4, num_stages=3)
for arch, depth, place in zip(*[iter(sys.argv[1:])] * 3):
    problem = operation.problem((512, 512, int(depth)), "bfloat16")
    arguments = operation.materialise(problem, "cpu")
    a = arguments.keyword["a"]
    if place == "moved":
        room = torch.empty(a.numel() + 1, dtype=a.dtype)
        arguments = Arguments((), {**arguments.keyword, "a": room[1:].view(a.shape)})
    hits.clear()
    print(TritonCompiler(operation.kernel, arguments, Target.named(arch)).built(config)[0].key, *hits)
"""
LAUNCHED = (("sm_90", 512, "there"), ("sm_90", 511, "moved"), ("gfx942", 512, "there"))


@pytest.mark.processes
def test_the_launching_process_finds_what_was_compiled_without_memory():
    operation, expected = load("matmul"), []
    for arch, depth, place in LAUNCHED:
        specs = dict(operation.problem((512, 512, depth), "bfloat16").arguments)
        if place == "moved":
            specs["a"] = TensorSpec(specs["a"].shape, specs["a"].dtype, aligned=False)
        built = TritonCompiler(operation.kernel, Arguments(keyword=specs).described(), Target.named(arch)).built(TILE)[
            0
        ]
        expected.append(f"{built.key} True")
    words = [str(word) for case in LAUNCHED for word in case]
    command = [sys.executable, "-W", "ignore", "-c", ENDS_UNSEARCHED + OTHER_PROCESS, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.splitlines() == expected


def test_what_is_compiled_without_torch():
    kernel, sm_90 = load("matmul").kernel, Target.named("sm_90")
    specs = Arguments(keyword=dict(load("matmul").problem((64, 64, 64), "float16").arguments))
    assert not TritonCompiler(kernel, specs, sm_90).pack().needs.imports[1:]
    assert TritonCompiler(kernel, specs, Target.named("gfx942")).pack().needs.imports[1:], "its backend imports torch"
    dtype = Arguments((torch.float16,))
    assert TritonCompiler(kernel, dtype, sm_90).pack().needs.imports[1:], "an argument of torch's"
    assert not TritonCompiler(TritonKernel(here, lambda _: (1,)), specs, sm_90).pack().needs.imports[1:], (
        "only this module needs it"
    )
    heuristic = triton.heuristics({"n": lambda given: 1})(here)
    assert TritonCompiler(TritonKernel(heuristic, lambda _: (1,)), specs, sm_90).pack().needs.imports[1:]


@triton.jit
def here(x, n=1):
    pass


def test_what_launches_a_config_is_built_for_each_of_its_launches_where_the_vendor_is_known(monkeypatch):
    built = []
    module = importlib.import_module("triton.backends.nvidia.driver")
    monkeypatch.setattr(module, "CudaLauncher", lambda source, facts: built.append((source.fn, facts.num_warps)))
    kernel, given = TritonKernel(here, lambda _: (1,)), Arguments((TensorSpec((64,), "float32"),)).described(light=True)
    assert TritonCompiler(kernel, given, Target.named("sm_90")).ready_launch(Config(num_warps=2)) is True
    assert built == [(here, 2)]
    assert TritonCompiler(kernel, given, Target.named("gfx942")).ready_launch(Config(num_warps=2)) is False
    assert len(built) == 1


@pytest.mark.parametrize(
    ("change", "arch", "status", "reason"),
    [
        ({"num_warp": 8}, "sm_90", "constraint", "num_warp is no parameter of .* and no launch option for sm_90"),
        ({"waves_per_eu": 2}, "sm_90", "constraint", "waves_per_eu is no parameter"),
        ({"BM": 48}, "sm_90", "compile", "power of 2"),
        ({"BM": 256, "BK": 128, "num_stages": 5}, "sm_90", "resources", "needs 655,360 bytes .* sm_90 has 232,448"),
        ({"BM": 256, "BN": 256, "num_stages": 5}, "gfx942", "resources", "needs .* gfx942 has 65,536"),
        ({"maxnreg": 24}, "sm_90", "resources", r"^ptxas: .*Insufficient registers \(24\)"),
    ],
)
def test_what_cannot_be_launched_is_told_with_its_numbers(change, arch, status, reason, capsys):
    kernel, arguments = matmul()
    result = TritonCompiler(kernel, arguments, Target.named(arch)).compile(Config({**TILE, "BN": 256, **change}))
    assert result.status.value == status
    assert re.search(reason, result.reason), result.reason
    assert not result.deferred
    capsys.readouterr()  # ptxas' input, which a worker sends nowhere


def test_a_binary_from_the_disk_cache_is_judged_as_a_new_one():
    kernel, arguments = matmul()
    config = Config({**TILE, "BK": 128, "num_stages": 4})
    roomy = Target.named("sm_90")
    assert TritonCompiler(kernel, arguments, roomy).built(config)[0].metadata["shared"] > 65536
    small = type(roomy)("cuda", "sm_90", 32, 65536)
    result = TritonCompiler(kernel, arguments, small).compile(config)
    assert result.status is Status.RESOURCES
    assert "sm_90 has 65,536" in result.reason


def test_equal_binaries_have_equal_names():
    kernel, arguments = rmsnorm()
    ahead = TritonCompiler(kernel, arguments, Target.named("sm_90"))
    outcome = [ahead.compile(Config({**ROWS, "num_warps": warps})) for warps in (2, 4, 4)]
    binaries = [result.resources.binary for result in outcome]
    assert binaries[0] != binaries[1] == binaries[2]
