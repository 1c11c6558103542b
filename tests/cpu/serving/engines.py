"""Stand-ins of vLLM and SGLang: packages with the names, look-ups and signatures of theirs, and code of our own."""

from pathlib import Path

MOE_MODULE = "vllm/model_executor/layers/fused_moe/fused_moe.py"
SGLANG_CONFIGS = "sglang/srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_config.py"
SGLANG_KERNELS = "sglang/kernels/ops/moe/fused_moe_triton_kernels.py"
_LOOK_UP = """
import functools, json, os

FOLDER = os.path.join(os.path.dirname(__file__), "configs")
ASKED = []


def get_device_name_as_file_name():
    return "NVIDIA_H200"


get_device_name = get_device_name_as_file_name


class envs:
    VLLM_BATCH_INVARIANT = False


def table(name):
    ASKED.append(name)
    path = os.path.join(FOLDER, name)
    if not os.path.exists(path):
        return None
    with open(path) as file:
        rows = json.load(file)
    rows.pop("triton_version", None)
    return {int(size): config for size, config in rows.items()}


@functools.lru_cache
def get_moe_configs(E, N, dtype, block_n=None, block_k=None, per_channel_quant=False, down_moe=False):
    if envs.VLLM_BATCH_INVARIANT:
        return None
    return table(f"E={E},N={N},device_name=NVIDIA_H200{',dtype=' + dtype if dtype else ''}.json")


def config_for(E, N, dtype, M):
    rows = get_moe_configs(E, N, dtype)
    return rows and rows[min(rows, key=lambda size: abs(size - M))]
"""
_HOOKS = """
import enum, importlib


class HookType(enum.Enum):
    AROUND = "around"


class HookRegistry:
    hooks = []

    @classmethod
    def register(cls, target, hook, kind):
        cls.hooks.append((target, hook, kind))

    @classmethod
    def apply_hooks(cls):
        for target, hook, _ in cls.hooks:
            path, _, name = target.rpartition(".")
            module = importlib.import_module(path)
            original = getattr(module, name)
            setattr(module, name, lambda *args, **named: hook(original, *args, **named))
"""
_LINEAR = """
import functools, torch, triton, triton.language as tl


class platform:
    is_sm90 = HOPPER


def get_platform():
    return platform


def get_w8a8_block_fp8_configs(N, K, block_n, block_k):
    return None


@triton.jit
def plain(a, b, c, a_scale, b_scale, M, N, K, across, along, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr,
          BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr, SWAP_AB: tl.constexpr = False,
          SPLIT_K: tl.constexpr = 1):
    rows = tl.program_id(0) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    columns = tl.program_id(1) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    mine, groups = (rows < M)[:, None] & (columns < N)[None, :], tl.cdiv(K, along)
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), tl.float32)
    for start in range(0, K, BLOCK_SIZE_K):
        depth = start + tl.arange(0, BLOCK_SIZE_K)
        left = tl.load(a + rows[:, None] * K + depth[None, :], mask=(rows < M)[:, None], other=0.0)
        right = tl.load(b + columns[None, :] * K + depth[:, None], mask=(columns < N)[None, :], other=0.0)
        one = tl.load(a_scale + rows * groups + start // along, mask=rows < M, other=0.0)
        other = tl.load(b_scale + columns // across * groups + start // along, mask=columns < N, other=0.0)
        total += tl.dot(left.to(tl.float32), right.to(tl.float32)) * one[:, None] * other[None, :]
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty), mask=mine)


def select_w8a8_block_fp8_matmul_kernel(M, N, META):
    return plain


def w8a8_block_fp8_matmul_triton(A, B, As, Bs, block_size, output_dtype=torch.float16):
    M, N, K = len(A), len(B), A.shape[1]
    C = A.new_empty((M, N), dtype=output_dtype)
    rows = get_w8a8_block_fp8_configs(N, K, *block_size)
    config = rows[min(rows, key=lambda size: abs(size - M))] if rows else {
        "BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": block_size[0], "BLOCK_SIZE_K": block_size[1], "GROUP_SIZE_M": 32,
        "num_warps": 4, "num_stages": 3}
    kernel = select_w8a8_block_fp8_matmul_kernel(M, N, config)
    kernel[(triton.cdiv(M, config["BLOCK_SIZE_M"]), triton.cdiv(N, config["BLOCK_SIZE_N"]))](
        A, B, C, As, Bs, M, N, K, *block_size, **config)
    return C
"""
_LORA = """
import functools, json, os, pathlib

is_batch_invariant = False


class torch:
    class cuda:
        def get_device_name():
            return "NVIDIA H200"


@functools.lru_cache
def load_lora_op_config(op_type, add_inputs):
    name = f"NVIDIA_H200_{op_type.upper()}" + (f"_{str(add_inputs).upper()}" if op_type == "expand" else "")
    path = os.path.join(os.environ.get("VLLM_TUNED_CONFIG_FOLDER", ""), name + ".json")
    return json.loads(pathlib.Path(path).read_text()) if os.path.exists(path) else None


@functools.lru_cache
def get_lora_op_configs(op_type, max_loras, batch, hidden_size, rank, num_slices, add_inputs=None):
    below = load_lora_op_config(op_type, add_inputs)
    if not below:
        return {"block_m": 32}
    depth, columns = (hidden_size, rank) if op_type == "shrink" else (rank, hidden_size)
    for exact, number in ((0, max_loras), (1, num_slices), (0, batch), (0, depth), (0, columns)):
        below = below[str(number)] if exact else below[min(below, key=lambda name: abs(int(name) - number))]
    return below
"""
_SGLANG_LORA = """
import json, os, pathlib


def get_device_name():
    return "NVIDIA H200"


def get_lora_configs(kernel, K, R, S):
    name = f"csgmv_configs/triton_3_8_0/lora_{kernel},K={K},R={R},S={S},device=NVIDIA_H200.json"
    path = os.path.join(os.environ.get("SGLANG_LORA_CONFIG_DIR", ""), name)
    rows = json.loads(pathlib.Path(path).read_text()) if os.path.exists(path) else {}
    return {int(size): row for size, row in rows.items()} or None
"""
_MAMBA = """
import torch

from contextlib import nullcontext


class current_platform:
    def is_cuda():
        return False


def _get_default_ssm_launch_config(dstate, is_blackwell):
    return 8, 4


def try_get_optimal_ssm_config(*of):
    raise AssertionError("a candidate is launched")


def selective_state_update(state, x, dt, A, B, C, D, dt_bias, z=None, dt_softplus=False, state_batch_indices=None,
                           dst_state_batch_indices=None, out=None):
    assert try_get_optimal_ssm_config(*state.shape) == (16, 2)
    with torch.accelerator.device_index(x.device.index):
        for row, slot in enumerate(state_batch_indices.tolist()):
            for head in range(x.shape[1]):
                group = head // (x.shape[1] // B.shape[1])
                for at in range(x.shape[2]):
                    step = (dt[row, head, at] + dt_bias[head, at]).exp().log1p()
                    new = state[slot, head, at] * (A[head, at] * step).exp() + B[row, group] * step * x[row, head, at]
                    value = (new * C[row, group]).sum() + D[head, at] * x[row, head, at]
                    gate = 1 if z is None else z[row, head, at] * z[row, head, at].sigmoid()
                    state[slot, head, at], out[row, head, at] = new, value * gate
"""
LINEAR_MODULE = "sglang/kernels/ops/gemm/fp8_kernel.py"
FILES = {
    MOE_MODULE: _LOOK_UP,
    SGLANG_CONFIGS: _LOOK_UP,
    LINEAR_MODULE: _LINEAR.replace("HOPPER", "False"),
    "vllm/lora/ops/triton_ops/utils.py": _LORA,
    "vllm/lora/ops/triton_ops/lora_shrink_op.py": "from vllm.lora.ops.triton_ops.utils import get_lora_op_configs\n",
    "sglang/kernels/ops/lora/dense/lora_tuning_config.py": _SGLANG_LORA,
    "vllm/model_executor/layers/mamba/ops/mamba_ssm.py": _MAMBA,
    "sglang/srt/plugins/hook_registry.py": _HOOKS,
}


def write_engines(folder: Path, **more: str) -> Path:
    """Write the packages below a folder, which is then one for `sys.path`; `more` is code at the end of their files.

    `vllm` is at the end of the module of vLLM's experts, `sglang` a module of SGLang's, and at the end of its look-up.
    """
    own = {SGLANG_KERNELS: more["sglang"]} if "sglang" in more else {}
    for name, text in {**FILES, **own}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        at_end = {MOE_MODULE: "vllm", SGLANG_CONFIGS: "sglang"}.get(name, "")
        path.write_text(text + more.get(at_end, ""), encoding="utf-8")
        for parent in path.parents:
            if parent == folder:
                break
            (parent / "__init__.py").touch()
    return folder


KERNEL = """
import torch, triton, triton.language as tl


@triton.jit
def product(a, b, c, weights, ids, groups, count, N, K, numel, top_k: tl.constexpr, WEIGHTED: tl.constexpr,
            NAIVE: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
            GROUP_SIZE_M: tl.constexpr):
    tile, part = tl.program_id(0), tl.program_id(1)
    rows = tl.arange(0, BLOCK_SIZE_M)
    if tile * BLOCK_SIZE_M >= tl.load(count):
        return
    if NAIVE:
        at = tl.where(rows == 0, tile, numel)
    else:
        at = tl.load(ids + tile * BLOCK_SIZE_M + rows)
    mine, expert = at < numel, tl.load(groups + tile)
    columns = part * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), tl.float32)
    for start in range(0, K, BLOCK_SIZE_K):
        depth = start + tl.arange(0, BLOCK_SIZE_K)
        left = tl.load(a + (at // top_k)[:, None] * K + depth[None, :],
                       mask=mine[:, None] & (depth < K)[None, :], other=0)
        right = tl.load(b + expert * N * K + columns[None, :] * K + depth[:, None],
                        mask=(columns < N)[None, :] & (depth < K)[:, None], other=0)
        total += tl.dot(left, right)
    if WEIGHTED:
        total *= tl.load(weights + at, mask=mine, other=0)[:, None]
    tl.store(c + at[:, None] * N + columns[None, :], total.to(c.dtype.element_ty),
             mask=mine[:, None] & (columns < N)[None, :])


def invoke_fused_moe_triton_kernel(a, b, c, a_scale, b_scale, weights, ids, groups, count, weighted, top_k, config,
                                   compute_type, fp8, *flags):
    config = dict(config)
    tiles = groups.shape[0]
    product[(tiles, triton.cdiv(b.shape[1], config["BLOCK_SIZE_N"]))](
        a, b, c, weights, ids, groups, count, b.shape[1], b.shape[2], c.shape[0] * c.shape[1], top_k, weighted,
        ids is None, **config)


def invoke_fused_moe_kernel(a, b, bias, c, a_scale, b_scale, b_zero, weights, chosen, ids, groups, count, weighted,
                            top_k, config, compute_type, *flags, c_sorted=False, b_use_tma=False, **others):
    invoke_fused_moe_triton_kernel(a.contiguous(), b, c.view(1, -1, c.shape[-1]), a_scale, b_scale, weights, ids,
                                   groups, count, weighted, top_k, config, compute_type, *flags)


def get_default_config(M, E, N, K, topk, dtype, *more):
    return {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1, "SPLIT_K": 1}
"""
