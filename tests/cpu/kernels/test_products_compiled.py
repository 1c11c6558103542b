"""What Triton makes of the products for Hopper: each form compiles, on warp-group instructions and with bulk copies."""

from __future__ import annotations

import re

import pytest

from triton_ops.backend import Arguments, TritonCompiler
from triton_ops.backend.triton_compiler import disassembled
from triton_ops.device import Target
from triton_ops.kernel_ir.machine_code import cubin_usage
from triton_ops.space import Config
from triton_ops_kernels import load

pytestmark = pytest.mark.triton

MATMUL = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 4, "num_stages": 3, "LOADS": "host"}
WIDE = {**MATMUL, "BN": 256, "num_warps": 8, "num_stages": 4, "HALVES": True}
THIN = {**MATMUL, "BN": 16, "SWAPPED": True}
FP8 = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128, "num_warps": 8, "num_stages": 3, "LOADS": "host"}
LARGE, FEW = (4096, 4096, 4096), (16, 4096, 4096)
# Operation, shape, config, and the number of columns of the matrix instructions.
FORMS = {
    "plain": ("matmul", LARGE, {**MATMUL, "LOADS": "pointers"}, 128),
    "tiles": ("matmul", LARGE, MATMUL, 128),
    "tiles, described by each program": ("matmul", LARGE, {**MATMUL, "LOADS": "device"}, 128),
    "persistent in halves": ("matmul", LARGE, {**WIDE, "ALGORITHM": "persistent"}, 256),
    "stream_k": ("matmul", LARGE, {**WIDE, "ALGORITHM": "stream_k"}, 256),
    "split_k, swapped": ("matmul", FEW, {**THIN, "ALGORITHM": "split_k", "SPLIT": 4}, 16),
    "8 bits": ("fp8_gemm", (*LARGE, 2), {**FP8, "PROGRAMS": 1, "BLOCK_M": 256, "num_stages": 4, "HALVES": True}, 128),
    "8 bits, few rows": (
        "fp8_gemm",
        (*FEW, 3),
        {**FP8, "BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4, "num_stages": 8, "AHEAD": 1},
        32,
    ),
    "8 bits, scales by block": ("fp8_gemm", (*LARGE, 3), {**FP8, "PROGRAMS": 1}, 128),
    "8 bits, swapped, scales by block": ("fp8_gemm", (*FEW, 3), {**FP8, "SWAPPED": True, "BLOCK_N": 16}, 16),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_compiles_to_warp_group_instructions_and_bulk_copies(form):
    name, shape, change, columns = FORMS[form]
    operation = load(name)
    problem = operation.problem(shape, "bfloat16")
    arguments = Arguments(keyword=dict(problem.arguments)).described(light=True)
    config = Config({**operation.space_for(problem).default_config, **change})
    made = TritonCompiler(operation.kernel, arguments, Target.named("sm_90")).built(config)
    assert len(made) == (2 if config.get("ALGORITHM") in ("split_k", "stream_k") else 1)
    assembly = made[0].assembly
    assert set(re.findall(r"wgmma\.mma_async\S*\.m64n(\d+)k", assembly)) == {str(columns)}
    bulk = config["LOADS"] != "pointers"
    assert ("cp.async.bulk.tensor" in assembly) == bulk
    assert ("cp.async.cg" in assembly) != bulk
    assert ("tensormap.replace" in assembly) == (config["LOADS"] == "device")
    assert "mma.sync" not in assembly
    assert all(cubin_usage(one.binary)["stack_bytes"] == 0 for one in made), "registers are spilled"


def test_promoted_sums_do_not_hold_up_the_matrix_instructions():
    name, shape, change, _ = FORMS["8 bits, scales by block"]
    operation = load(name)
    problem = operation.problem(shape, "bfloat16")
    arguments = Arguments(keyword=dict(problem.arguments)).described(light=True)
    config = Config({**operation.space_for(problem).default_config, **change})
    text = disassembled(TritonCompiler(operation.kernel, arguments, Target.named("sm_90")).built(config)[0].binary)
    if text is None:
        pytest.skip("no nvdisasm that knows sm_90")
    # A step of 128 terms is four instructions, after which the program waits once; held up, it waits after each.
    instructions, waits = (len(re.findall(rf"\s{word}", text)) for word in ("QGMMA", r"WARPGROUP\.DEPBAR"))
    assert instructions == 4 * waits > 0
