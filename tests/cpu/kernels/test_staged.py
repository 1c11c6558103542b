"""Kernels that some configs follow with a second one: what is compiled, what the second is given, and identity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from triton_ops.backend import Arguments, TritonCompiler, TritonKernel
from triton_ops.device import Target
from triton_ops.exceptions import KernelTypeError
from triton_ops.space import Config
from triton_ops.values import Resources, TensorSpec
from triton_ops_kernels import StagedKernel, load
from triton_ops_kernels.matmul.kernel import grid, host_descriptors, parts_elements, shares_tiles, sum_grid

pytestmark = pytest.mark.triton

MATMUL = load("matmul")
KERNEL = MATMUL.kernel
PROBLEM = MATMUL.problem((256, 256, 1024), "bfloat16")
LIGHT = Arguments(keyword=dict(PROBLEM.arguments)).described(light=True)
PLAIN = Config({**MATMUL.space_for(PROBLEM).default_config, "BM": 64, "BN": 64, "num_warps": 4})
SHARED = Config({**PLAIN, "ALGORITHM": "split_k", "SPLIT": 4})


@pytest.mark.parametrize(("config", "launches"), [(PLAIN, 1), (SHARED, 2)])
def test_every_launch_of_a_config_is_compiled_without_torch(config, launches):
    made = TritonCompiler(KERNEL, LIGHT, Target.named("sm_90")).built(config)
    assert [("matmul_kernel" in one.assembly, "sum_parts_kernel" in one.assembly) for one in made] == [
        (True, False), (False, True),
    ][:launches]  # fmt: skip
    assert not KERNEL.compile_imports


def test_stand_ins_of_torch_are_compiled_to_the_same_code():
    light, torchs = (
        [one.key for one in TritonCompiler(KERNEL, arguments, Target.named("sm_90")).built(SHARED)]
        for arguments in (LIGHT, Arguments(keyword=dict(PROBLEM.arguments)).described())
    )
    assert light == torchs


def test_only_one_launch_has_a_name_for_its_program():
    made = Resources(binary="same", shared_bytes=1)
    assert KERNEL.program_key(PLAIN, LIGHT, made) == KERNEL.first.program_key(PLAIN, LIGHT, made) is not None
    assert KERNEL.program_key(SHARED, LIGHT, made) is None


def test_identity_and_names_are_those_of_both():
    assert KERNEL.identity.keys() == KERNEL.first.identity.keys()
    others = [
        replace(KERNEL, when=lambda meta: meta["ALGORITHM"] == "split_k"),
        replace(KERNEL, options={"CHUNK": 512}),
    ]
    assert len({each.identity["source"] for each in (KERNEL, KERNEL.first, *others)}) == 4
    assert (KERNEL.name, KERNEL.outputs, KERNEL.parameter_names) == (
        KERNEL.first.name, ("c",), KERNEL.first.parameter_names,
    )  # fmt: skip
    assert KERNEL.parsed is KERNEL.first.function
    assert KERNEL.cache_key not in (KERNEL.first.cache_key, KERNEL.second.cache_key)


def test_descriptors_of_the_host_show_what_lies_in_memory_and_count_for_the_identity():
    given = KERNEL.first.by_name(LIGHT)
    meta = {**KERNEL.first.defaults, **given, **PLAIN, "LOADS": "host"}
    shown = {name: (made.shape, made.strides, made.block_shape) for name, made in host_descriptors(meta).items()}
    assert shown == {
        "a_tiles": ([256, 1024], [1024, 1], [64, 64]),
        "b_tiles": ([1024, 256], [256, 1], [64, 64]),
        "c_tiles": ([256, 256], [256, 1], [64, 64]),
    }
    turned = Arguments(keyword={"b": TensorSpec((1024, 256), "bfloat16", (1, 1024))}).described(light=True).keyword["b"]
    thin = {**meta, "b": turned, "B_ALONG_K": True, "SWAPPED": True, "BN": 16, "ALGORITHM": "split_k"}
    shown = {name: (made.shape, made.block_shape) for name, made in host_descriptors(thin).items()}
    assert shown == {"a_tiles": ([256, 1024], [16, 64]), "b_tiles": ([256, 1024], [64, 64])}
    assert host_descriptors({**meta, "LOADS": "device"}) == {}
    assert replace(KERNEL.first, made=None).identity != KERNEL.first.identity


def test_a_second_kernel_without_its_values_is_refused():
    with pytest.raises(KernelTypeError, match="no value for CHUNK"):
        replace(KERNEL, options={})
    with pytest.raises(KernelTypeError, match="no value for rest"):
        replace(KERNEL, scratch="rest")
    with pytest.raises(KernelTypeError, match="no value for a, b, stride_am"):
        StagedKernel(
            TritonKernel(KERNEL.second.function, lambda _: (1,)), KERNEL.first, when=shares_tiles, scratch="parts",
            elements=parts_elements,
        )  # fmt: skip


META = {"M": 512, "N": 768, "K": 4096, "BM": 128, "BN": 256, "BK": 64, "SWAPPED": False, "PROGRAMS": 1, "SPLIT": 4}


def test_grids_and_scratch_follow_the_algorithm():
    split = {**META, "ALGORITHM": "split_k"}
    assert grid(split) == (12 * 4,)
    assert sum_grid({**split, "programs": 48}) == (12, 32)
    assert parts_elements(split, 48) == 48 * 128 * 256
    stream = {**META, "ALGORITHM": "stream_k"}
    assert [sum_grid({**stream, "programs": programs})[0] for programs in (5, 12, 20)] == [2, 1, 12]
    assert parts_elements(stream, 5) == 2 * 5 * 128 * 256
    assert grid({**META, "ALGORITHM": "tiles", "SWAPPED": True}) == (6 * 2,)
