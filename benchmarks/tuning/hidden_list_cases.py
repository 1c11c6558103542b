"""The kernels of public packages whose lists of configs `benchmarks.tuning.hidden_lists` hides, each with a launch.

None of their code is here: a case names a file below a folder that is given, and calls a function of it with tensors.
Modules that the folder lacks are stood in for, since the packages are not there whole.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
import triton.language as tl

PACKAGES = (
    "attorch", "axolotl", "conch", "einops", "fla", "flag_gems", "flash_attn", "flash_bla", "kernels", "liger_kernel",
    "linghe", "mamba_ssm", "megablocks", "sageattention", "sglang", "tk", "vllm", "xtuner",
)  # fmt: skip


class Anything:
    """A stand-in for what a missing module has: a decorator that changes nothing, false, and anything else."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Leave a function as it is."""
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_error: object) -> None:
        """Let errors pass."""

    def __or__(self, other: Any) -> Any:
        return other

    def __iter__(self) -> Any:
        return iter(())

    def __getitem__(self, _key: Any) -> Any:
        return self


class Parts(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of packages that are in the folder in part, and stands in for those that are not.

    A statement that fails, since it asks for what is not here, is left out, and so is one that only calls something.
    """

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        """The module in the folder, else its stand-in."""
        top, *rest = name.split(".")
        if top not in PACKAGES and not (Path(sys.path[0]) / f"{name}.py").exists():
            return None
        file = Path(sys.path[0], top, *rest)
        sources = [path for path in (file.with_suffix(".py"), file / "__init__.py") if path.exists()]
        origin = str(sources[0]) if sources else None
        return importlib.machinery.ModuleSpec(name, self, origin=origin, is_package=not origin or "__init__" in origin)

    def exec_module(self, module: ModuleType) -> None:
        """Run what can be run of the file, or give the stand-in its names."""
        anything, origin = Anything(), module.__spec__.origin if module.__spec__ else None
        module.__dict__.update(torch=torch, triton=triton, tl=tl)
        if origin is None:
            module.__getattr__ = anything.__getattr__  # type: ignore[method-assign]
            return
        module.__file__ = origin
        for statement in ast.parse(Path(origin).read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Expr):
                continue
            try:
                exec(compile(ast.Module([statement], []), origin, "exec"), module.__dict__)
            except Exception as error:  # noqa: BLE001 - a statement of another's file
                module.__dict__.setdefault("left_out", []).append(f"line {statement.lineno}: {error}")


def load(folder: Path, file: str) -> ModuleType:
    """A file of the folder as a module, below the folder of its package; one of this repository as it is imported."""
    root, _, rest = file.partition("/")
    if root == "benchmarks":
        return importlib.import_module(file.removesuffix(".py").replace("/", "."))
    if not any(isinstance(each, Parts) for each in sys.meta_path):
        sys.meta_path.insert(0, Parts())
    sys.path.insert(0, str(folder / root))
    try:
        return importlib.import_module(rest.removesuffix(".py").replace("/", "."))
    finally:
        sys.path.pop(0)


@dataclass(frozen=True)
class Case:
    """A kernel, and a call that launches it.

    `tunables` are its tiles where the package has no list: what the launcher chooses by itself, what other values leave
    right, and what the grid of the launch follows, which no grid of numbers does. Configs `beside` the launcher's own
    are then those that its author would list.
    """

    package: str
    file: str
    kernel: str
    call: Callable[[ModuleType], Any]
    tunables: Sequence[str] | None = None
    given: Sequence[str] = ()
    beside: Sequence[Mapping[str, int]] = ()


def rows(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    """A tensor on the GPU, drawn from the normal distribution."""
    return torch.randn(*shape, device="cuda").to(dtype)


def whole(high: int, *shape: int, dtype: Any = torch.int32) -> Any:
    """Whole numbers below `high`."""
    return torch.randint(0, high, shape, device="cuda", dtype=dtype)


def cumulative(*shape: int) -> Any:
    """Falling numbers in float32, as sums of logarithms of gates are."""
    return -torch.rand(*shape, device="cuda").cumsum(-1)


def memory(size: int, _alignment: int, _stream: int | None) -> Any:
    """What a kernel that makes descriptors asks for; whoever launches one has to set it."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _attention(*shape: int, dtype: Any = torch.float16) -> tuple[Any, Any, Any]:
    return rows(*shape, dtype=dtype), rows(*shape, dtype=dtype), rows(*shape, dtype=dtype)


def _bins(tokens: int, experts: int) -> tuple[Any, Any, Any]:
    ids = torch.arange(tokens, device="cuda", dtype=torch.int32) % experts
    order = torch.argsort(ids.long(), stable=True).int()
    bins = (torch.arange(1, experts + 1, device="cuda") * (tokens // experts)).int()
    return torch.sort(ids)[0], order, bins


TUTORIALS, MAMBA, LIGER, FLA = "triton 3.6 tutorials", "mamba-ssm e9594ce", "liger-kernel 0.8.5", "fla-core 0.6.0"
VLLM, CONCH, MEGABLOCKS = "vllm 0.33.0", "conch-triton-kernels 1.3", "megablocks 78eea65"
ATTORCH, SAGE, FLASH = "attorch 67c2772", "sageattention 1.0.6", "flash-attn 0251105a"
SGLANG, LINGHE, GEMS = "sglang 0.5.23", "linghe 02edabd", "flag-gems 5.0.2"
APPLIED, XTUNER, FLASH_BLA = "applied-ai 4f8c39e", "xtuner b934f462", "flash-bidirectional-linear-attention dd222769"
AUTOGPTQ, AXOLOTL, VEOMNI, KERNL = "AutoGPTQ 9f7d3707", "axolotl 067b021c", "VeOmni d9774494", "kernl 91e2cd92"
ABINESH, AKSHAY = "Abinesh-Mathivanan/triton-kernels 095cf9dc", "akshay919191/cuda-triton-kernels-lab 4f6ae427"
ADITYA, AVUPPAL = "adityakotha03/tritonLLM 0e70fe59", "avuppal/triton-kernels 117e9ae5"
AZIMML, BHAVIK = "Azimml/triton-kernels ccfa59df", "Bhavikupadhyay/triton-kernels a5188e5a"
DAVIDGONMAR, DLUO96 = "davidgonmar/triton-kernels e4c92520", "dluo96/triton-kernels 82fd4b2a"
HARSH = "harsh-vsingh/triton-kernels f1cfe149"

_LINGHE, _MAMBA, _FLA = "linghe/linghe/utils", "mamba/mamba_ssm/ops/triton", "fla-core/fla"
_LIGER, _CONCH, _GEMS = "liger-kernel/liger_kernel/ops", "conch/conch/kernels", "flag-gems/flag_gems/ops"
_T, _ALONE = "tutorials", "alone"  # files that need little of their repository, each named after its owner too

INT8_CONFIGS = [
    {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": group, "num_warps": warps,
     "num_stages": stages}
    for m, n, k, group, warps, stages in itertools.product(
        (32, 64, 128, 256), (64, 128, 256), (64, 128), (1, 32), (4, 8), (3, 4))
    if 1024 * warps <= m * n <= 4096 * warps
]  # fmt: skip
"""Values that are usual for such a product of a thousand rows."""

CASES: dict[str, Case] = {
    "add": Case(TUTORIALS, f"{_T}/01-vector-add.py", "add_kernel",
                lambda m: m.add(rows(1 << 25), rows(1 << 25)), ("BLOCK_SIZE",)),
    "matmul": Case(TUTORIALS, f"{_T}/03-matrix-multiplication.py", "matmul_kernel",
                   lambda m: m.matmul(rows(4096, 4096, dtype=torch.float16), rows(4096, 4096, dtype=torch.float16))),
    "dropout": Case(TUTORIALS, f"{_T}/04-low-memory-dropout.py", "_seeded_dropout",
                    lambda m: m.seeded_dropout(rows(1 << 24, dtype=torch.float32), p=0.5, seed=123), ("BLOCK_SIZE",)),
    "layer_norm": Case(TUTORIALS, f"{_T}/05-layer-norm.py", "_layer_norm_fwd_fused",
                       lambda m: m.LayerNorm.apply(rows(4096, 8192), (8192,), rows(8192), rows(8192), 1e-5),
                       ("BLOCK_SIZE",)),
    "persistent_matmul": Case(TUTORIALS, f"{_T}/09-persistent-matmul.py", "matmul_kernel_persistent",
                              lambda m: m.matmul_persistent(rows(4096, 2048, dtype=torch.float16),
                                                            rows(2048, 4096, dtype=torch.float16))),
    "swiglu": Case(MAMBA, f"{_MAMBA}/k_activations.py", "_swiglu_fwd_kernel",
                   lambda m: m._swiglu_fwd(rows(8192, 8192))),
    "bmm_chunk": Case(MAMBA, f"{_MAMBA}/ssd_bmm.py", "_bmm_chunk_fwd_kernel",
                      lambda m: m._bmm_chunk_fwd(rows(8, 4096, 8, 128), rows(8, 4096, 8, 128), 256)),
    "chunk_cumsum": Case(MAMBA, f"{_MAMBA}/ssd_chunk_state.py", "_chunk_cumsum_fwd_kernel",
                         lambda m: m._chunk_cumsum_fwd(rows(8, 4096, 80), -rows(80, dtype=torch.float32).abs(), 256,
                                                       dt_softplus=True)),
    "chunk_state": Case(MAMBA, f"{_MAMBA}/ssd_chunk_state.py", "_chunk_state_fwd_kernel",
                        lambda m: m._chunk_state_fwd(rows(4, 4096, 8, 128), rows(4, 4096, 64, 64),
                                                     cumulative(4, 64, 16, 256).abs(), cumulative(4, 64, 16, 256))),
    "state_passing": Case(MAMBA, f"{_MAMBA}/ssd_state_passing.py", "_state_passing_fwd_kernel",
                          lambda m: m._state_passing_fwd(rows(4, 16, 64, 8192, dtype=torch.float32),
                                                         cumulative(4, 64, 16))),
    "dyt": Case(LIGER, f"{_LIGER}/dyt.py", "_dyt_fwd_kernel",
                lambda m: m.liger_dyt_fwd(rows(8192, 8192), rows(1), rows(8192), rows(8192))),
    "rms_norm_rows": Case(LIGER, f"{_LIGER}/rms_norm.py", "_rms_norm_forward_kernel",
                          lambda m: m.rms_norm_forward(rows(4096, 8192), rows(8192), 1e-6, 0.0, "llama", True), ()),
    "layer_norm_rows": Case(LIGER, f"{_LIGER}/layer_norm.py", "_layer_norm_forward_kernel",
                            lambda m: m.layer_norm_forward(rows(4096, 8192), rows(8192), rows(8192), 1e-6), ()),
    "kl_div": Case(LIGER, f"{_LIGER}/kl_div.py", "_kldiv_kernel_forward",
                   lambda m: m.kldiv_forward_triton(rows(2048, 32000).log_softmax(-1), rows(2048, 32000).softmax(-1),
                                                    False, "batchmean", 1e-10), ("BLOCK_SIZE",)),
    "geglu": Case(LIGER, f"{_LIGER}/geglu.py", "_geglu_tanh_forward_kernel",
                  lambda m: m.geglu_forward(rows(4096, 8192), rows(4096, 8192)), ()),
    "l2norm": Case(FLA, f"{_FLA}/modules/norm/l2norm.py", "l2norm_fwd_kernel",
                   lambda m: m.l2norm_fwd(rows(65536, 128))),
    "fla_matmul": Case(FLA, f"{_FLA}/ops/utils/matmul.py", "matmul_kernel",
                       lambda m: m.matmul(rows(4096, 4096), rows(4096, 4096))),
    "logsumexp": Case(FLA, f"{_FLA}/ops/utils/logsumexp.py", "logsumexp_fwd_kernel",
                      lambda m: m.logsumexp_fwd(rows(4096, 32000, dtype=torch.float32))),
    "chunk_cumsum_vector": Case(FLA, f"{_FLA}/ops/utils/cumsum.py", "chunk_local_cumsum_vector_kernel",
                                lambda m: m.chunk_local_cumsum_vector(rows(4, 4096, 16, 128, dtype=torch.float32), 64)),
    "activation": Case(FLA, f"{_FLA}/modules/activations/ops.py", "logsigmoid_fwd_kernel",
                       lambda m: m.logsigmoid_fwd(rows(8192, 4096))),
    "mean": Case(VLLM, "vllm/vllm/model_executor/determinism/batch_invariant.py", "mean_kernel",
                 lambda m: m.mean_dim(rows(64, 4096, 1024), 1), ("BLOCK_SIZE",)),
    "vllm_softmax": Case(VLLM, "vllm/vllm/model_executor/determinism/batch_invariant.py", "_softmax_kernel",
                         lambda m: m.softmax(rows(2048, 32000)), ("BLOCK_SIZE",)),
    "vllm_rms_norm": Case(VLLM, "vllm/vllm/model_executor/determinism/batch_invariant.py", "_rms_norm_kernel",
                          lambda m: m.rms_norm_batch_invariant(rows(8192, 4096), rows(4096)), ("BLOCK_SIZE",)),
    "layer_norm_gated": Case(VLLM, "vllm/vllm/model_executor/layers/mamba/ops/layernorm_gated.py",
                             "_layer_norm_fwd_1pass_kernel",
                             lambda m: m._layer_norm_fwd(rows(8192, 4096), rows(4096), None, 1e-5, z=rows(8192, 4096),
                                                         is_rms_norm=True), ()),
    "gelu_and_mul": Case(CONCH, f"{_CONCH}/activation/gelu_tanh_and_mul.py", "_gelu_tanh_and_mul_kernel",
                         lambda m: m.gelu_tanh_and_mul_launcher(  # libdevice has no tanh of halves
                             rows(8192, 4096, dtype=torch.float32), rows(8192, 8192, dtype=torch.float32)),
                         ("cxpr_block_size",)),
    "silu_and_mul": Case(CONCH, f"{_CONCH}/activation/silu_and_mul.py", "_silu_and_mul_kernel",
                         lambda m: m.silu_and_mul_launcher(rows(8192, 4096), rows(8192, 8192)), ("cxpr_block_size",)),
    "conch_rms_norm": Case(CONCH, f"{_CONCH}/normalization/rms_norm.py", "_rms_norm_kernel",
                           lambda m: m.rms_norm_launcher(rows(8192, 4096), rows(8192, 4096), rows(4096), 1e-6), ()),
    "iou_mask": Case(CONCH, f"{_CONCH}/vision/nms.py", "_create_iou_mask_kernel",
                     lambda m: m.nms_launcher(torch.rand(4096, 4, device="cuda").cumsum(-1),
                                              torch.rand(4096, device="cuda"),
                                              torch.zeros(4096, 4096, device="cuda", dtype=torch.bool),
                                              torch.ones(4096, device="cuda", dtype=torch.bool), 0.5)),
    "gather": Case(MEGABLOCKS, "megablocks/megablocks/backend/kernels.py", "_padded_copy",
                   lambda m: (lambda ids, order, bins: m.gather(rows(16384, 4096), order, ids, None, bins, 1))(
                       *_bins(16384, 8))),
    "scatter_wgrad": Case(MEGABLOCKS, "megablocks/megablocks/backend/kernels.py", "_padded_copy_wgrad",
                          lambda m: (lambda ids, order, bins: m.scatter_wgrad(
                              rows(16384, 4096), rows(16384, 4096), order, ids, bins, 1))(*_bins(16384, 8))),
    "silu_act": Case(ATTORCH, "attorch/attorch/act_layers.py", "act_func_forward_kernel",
                     lambda m: m.SiLU()(rows(1 << 25, dtype=torch.float32))),
    "glu": Case(ATTORCH, "attorch/attorch/glu_layer.py", "glu_forward_kernel",
                lambda m: m.GLU()(rows(8192, 4096, dtype=torch.float32))),
    "linear": Case(ATTORCH, "attorch/attorch/linear_layer.py", "linear_forward_kernel",
                   lambda m: m.LinearAutoGrad.apply(
                       rows(4096, 2048, dtype=torch.float16), rows(2048, 4096, dtype=torch.float16), None, None)),
    "mse": Case(ATTORCH, "attorch/attorch/p_loss_layers.py", "p_loss_forward_kernel",
                lambda m: m.MSELoss()(rows(1 << 24, dtype=torch.float32), rows(1 << 24, dtype=torch.float32))),
    "attorch_softmax": Case(ATTORCH, "attorch/attorch/softmax_layers.py", "softmax_forward_kernel",
                            lambda m: m.Softmax(dim=-1)(rows(8192, 2048, dtype=torch.float32))),
    "quant_block": Case(SAGE, "sageattention/sageattention/quant_per_block.py", "quant_per_block_int8_kernel",
                        lambda m: m.per_block_int8(rows(2, 32, 8192, 128, dtype=torch.float16),
                                                   rows(2, 32, 8192, 128, dtype=torch.float16)), ()),
    "int8_attention": Case(SAGE, "sageattention/sageattention/attn_qk_int8_per_block.py", "_attn_fwd",
                           lambda m: m.forward(
                               whole(127, 2, 16, 4096, 128, dtype=torch.int8),
                               whole(127, 2, 16, 4096, 128, dtype=torch.int8),
                               rows(2, 16, 4096, 128, dtype=torch.float16),
                               torch.rand(2, 16, 32, 1, device="cuda") / 4096,
                               torch.rand(2, 16, 64, 1, device="cuda")), ()),
    "rotary": Case(FLASH, "flash-attention/flash_attn/ops/triton/rotary.py", "rotary_kernel",
                   lambda m: m.apply_rotary(rows(4, 4096, 32, 128), rows(4096, 64), rows(4096, 64)), ()),
    "flash_layer_norm": Case(FLASH, "flash-attention/flash_attn/ops/triton/layer_norm.py",
                             "_layer_norm_fwd_1pass_kernel",
                             lambda m: m._layer_norm_fwd(rows(8192, 4096), rows(4096), rows(4096), 1e-5)),
    "merge_state": Case(SGLANG, "sglang/sglang/kernels/ops/attention/merge_state.py", "merge_state_kernel",
                        lambda m: m.merge_state_triton(rows(8192, 32, 128), rows(8192, 32, dtype=torch.float32),
                                                       rows(8192, 32, 128), rows(8192, 32, dtype=torch.float32)), ()),
    "block_int8_matmul": Case(SGLANG, "sglang/sglang/kernels/ops/gemm/int8_kernel.py", "_w8a8_block_int8_matmul",
                              lambda m: m.w8a8_block_int8_matmul(
                                  whole(99, 1024, 4096, dtype=torch.int8), whole(99, 4096, 4096, dtype=torch.int8),
                                  torch.rand(1024, 32, device="cuda"), torch.rand(32, 32, device="cuda"), [128, 128],
                                  torch.bfloat16),  # in float16 all sums are infinite, and no wrong one shows
                              ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M"), beside=INT8_CONFIGS),
    "one_pass_rms_norm": Case(SGLANG, "sglang/sglang/kernels/ops/diffusion/norm/rmsnorm_onepass_triton.py",
                              "_rms_norm_tiled_onepass",
                              lambda m: m._triton_one_pass_rms_norm_cuda(rows(65536, 128), rows(128)), ()),
    "inplace_add": Case(LINGHE, f"{_LINGHE}/add.py", "inplace_add_kernel",
                        lambda m: m.triton_inplace_add(rows(8192, 4096), rows(8192, 4096)), ()),
    "row_dot": Case(LINGHE, f"{_LINGHE}/mul.py", "dot_kernel",
                    lambda m: m.triton_dot(rows(8192, 4096), rows(8192, 4096)), ("H",)),
    "linghe_loss": Case(LINGHE, f"{_LINGHE}/loss.py", "softmax_cross_entropy_forward_kernel",
                        lambda m: m.triton_softmax_cross_entropy_forward(
                            rows(4096, 32768), whole(32768, 4096, dtype=torch.int64)), ("B",)),
    "gems_rms_norm": Case(GEMS, f"{_GEMS}/rms_norm.py", "rms_norm_kernel",
                          lambda m: m.rms_norm_forward(rows(8192, 4096), [4096], rows(4096)), ()),
    "fused_rms_norm": Case(APPLIED, "applied-ai/kernels/triton/training/rms_norm/fused_rms_norm.py",
                           "_rms_norm_fwd_kernel",
                           lambda m: m.ttt_RMSNorm.apply(rows(8192, 4096), rows(4096), 1e-6)),
    "int4_attention": Case(ABINESH, f"{_ALONE}/abinesh__int4_int8_sa3.py", "_attn_fwd_int4_int8",
                           lambda m: m.int4_flash_attention(*_attention(2, 16, 4096, 128), 128**-0.5),
                           given=("BLOCK_N",)),  # weights are cut to int8 beside the largest score of the blocks so far
    "conv2d": Case(ADITYA, f"{_ALONE}/adityakotha03__conv2d_relu_bias_add.py", "conv2d_relu_addbias_kernel",
                   lambda m: m.triton_conv2d_relu_addbias(
                       rows(32, 64, 64, 64, dtype=torch.float32), rows(128, 64, 3, 3, dtype=torch.float32),
                       rows(128, dtype=torch.float32), rows(128, 1, 1, dtype=torch.float32))),
    "batched_matmul": Case(AKSHAY, f"{_ALONE}/akshay919191__kernel_optimized.py", "matmul",
                           lambda m: m.triton_matmul(rows(2, 8, 1024, 1024, dtype=torch.float16),
                                                     rows(2, 8, 1024, 1024, dtype=torch.float16))),
    "dequant": Case(AUTOGPTQ, f"{_ALONE}/autogptq__dequant.py", "dequant_kernel_248",
                    lambda m: m.dequant248(whole(1 << 30, 512, 4096), rows(32, 4096, dtype=torch.float16),
                                           whole(1 << 30, 32, 512),
                                           torch.arange(4096, device="cuda", dtype=torch.int32) // 128, 4)),
    "avuppal_matmul": Case(AVUPPAL, f"{_ALONE}/avuppal__matmul.py", "matmul_kernel",
                           lambda m: m.matmul(rows(4096, 4096, dtype=torch.float16),
                                              rows(4096, 4096, dtype=torch.float16))),
    "sliding_attention": Case(AXOLOTL, f"{_ALONE}/axolotl__attention.py", "_fwd_kernel",
                              lambda m: m._sliding_attn_fwd_op(
                                  rows(2, 16, 4096, 128), rows(2, 4096, 128), rows(2, 4096, 128),
                                  rows(16, dtype=torch.float32), 128**-0.5, 512, True)),
    "grouped_gemm": Case(AZIMML, f"{_ALONE}/azimml__expert_gemm.py", "_grouped_gemm_kernel",
                         lambda m: m.grouped_gemm(
                             rows(8192, 2048, dtype=torch.float16), rows(8, 4096, 2048, dtype=torch.float16),
                             torch.arange(9, device="cuda") * 1024, 8)),
    "float32_attention": Case(BHAVIK, f"{_ALONE}/bhavikupadhyay__flash_attention_v2.py", "flash_attention_v2_kernel",
                              lambda m: m.flash_attention_v2(*_attention(2, 16, 2048, 64, dtype=torch.float32))),
    "fp8_matmul": Case(VEOMNI, f"{_ALONE}/veomni__kernel.py", "fp8_gemm_kernel",
                       lambda m: m.fp8_gemm(rows(4096, 4096, dtype=torch.float8_e4m3fn),
                                            torch.rand(4096, 32, device="cuda"),
                                            rows(4096, 4096, dtype=torch.float8_e4m3fn),
                                            torch.rand(32, 32, device="cuda"))),
    "naive_matmul": Case(DAVIDGONMAR, f"{_ALONE}/davidgonmar__matmul.py", "matmul_naive_kernel",
                         lambda m: m.matmul(rows(4096, 4096, dtype=torch.float16),
                                            rows(4096, 4096, dtype=torch.float16))),
    "matmul_2d": Case(DLUO96, f"{_ALONE}/dluo96__matmul_autotuned.py", "kernel_matmul_grouped_autotuned",
                      lambda m: m.matmul_grouped_autotuned(rows(4096, 4096, dtype=torch.float16),
                                                           rows(4096, 4096, dtype=torch.float16))),
    "vector_matrix": Case(KERNL, f"{_ALONE}/kernl__attention_vec_mat.py", "vec_mat",
                          lambda m: m.vec_mat_wrapper(
                              rows(16, 16, 1, 256, dtype=torch.float16), rows(16, 16, 256, 64, dtype=torch.float16),
                              rows(16, 16, 1, 64, dtype=torch.float16), 1.0, True, False)),
    "linear_attention": Case(FLASH_BLA, f"{_ALONE}/flash_bla__decoupled.py", "fused_fwd_kernel_s_km",
                             lambda m: m.DecoupledLAFunction.apply(
                                 rows(4, 16, 4096, 64), *_attention(4, 16, 4096, 64, dtype=torch.bfloat16),
                                 rows(4, 16, 4096, 64), 0.125, 1e-6)),
    "paged_attention": Case(HARSH, f"{_ALONE}/harsh_vsingh__attention.py", "_flash_attentionv1_kernel",
                            lambda m: (triton.set_allocator(memory),
                                       m.flash_attention_v1(*_attention(2, 16, 2048, 128)))),
    "tile_quant": Case(XTUNER, f"{_ALONE}/xtuner__per_tile_quant.py", "per_tile_quant_kernel",
                       lambda m: m.per_tile_quant(rows(8192, 4096))),
}  # fmt: skip
