"""The problems of the gated MLP, each with the space of configs that are worth trying.

The documented space, `GATED_MLP_CONFIGS`, is part of the space here; `tune(operation, space=GATED_MLP_CONFIGS)` takes
it alone. Shared memory is no constraint here: the compiler and the device tell which configs fit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from triton_ops.base import require
from triton_ops.cost_model import ElementTiles, ProductTiles
from triton_ops.space import Config, ConfigSpace, Constraint
from triton_ops.values import ALIGNMENT_BYTES, ITEM_BYTES, Problem, TensorSpec, Work
from triton_ops_kernels.call import Own, OwnConfigs, precision_of, whole_from
from triton_ops_kernels.tiles import (
    HALVED_SIDE,
    K_STEP_BYTES,
    LOADS,
    describable,
    descriptor_rules,
    item_bytes_of,
    padded,
    reached_strides,
    suits,
    unit,
    widest,
)

if TYPE_CHECKING:
    from torch import Tensor

OWN = OwnConfigs({
    "BLOCK_M": [16, 32, 64, 128, 256],
    "BLOCK_N": [16, 32, 64, 128],
    "BLOCK_K": [32, 64, 128],
    "GROUP_SIZE_M": Own([8], whole_from(1), optional=True),
    "LOADS": Own(["pointers", "host"], optional=True),
    "JOINED": Own([False, True], optional=True),
    "PROGRAMS": Own([0, 1], optional=True),
    "HALVES": Own([False, True], optional=True),
    "SPLIT": Own([1, 2, 4, 8, 16], whole_from(1), optional=True),
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4, 5],
})  # fmt: skip
GRADIENT_OWN = OwnConfigs({
    "BLOCK_SIZE": [256, 512, 1024, 2048, 4096, 8192],
    "num_warps": [1, 2, 4, 8],
    "EVICT": Own(["none", "stores"], optional=True),
})  # fmt: skip
"""What is written has no precedence in leaving L2 where a config leaves EVICT out."""
_MOST_SUMS = 2 * 128 * 128  # elements of both accumulators with eight warps: 128 registers of a thread
_MOST_PARTS = 528  # of tiles and programs: four for each multiprocessor of a Hopper
_FEWEST_STEPS = 4  # of a part: with fewer, filling the pipeline takes longer than the sum
_FULL_ROWS = 64  # of Hopper's matrix instructions, whose operands come from shared memory without passing registers
_RESULTS, _CACHE_BYTES = 2, 128 * 2**20  # of the gradient; as many bytes as the largest L2 of a GPU holds, or more


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's extents and layout."""
    M, N, K, specs = problem["M"], problem["N"], problem["K"], problem.specs
    gate_weight, up_weight, dtype = specs["gate_weight"], specs["up_weight"], specs["x"].dtype
    has_descriptors = K > 0 and describable(specs["x"], gate_weight, up_weight, specs["out"])
    alike = gate_weight.strides == up_weight.strides
    rules = (*_tile_rules(M, N, K), *_descriptor_rules(has_descriptors, alike, ITEM_BYTES[dtype]))
    return ConfigSpace(OWN.tunables, rules, default_config(M, N, K, dtype))


def _tile_rules(M: int, N: int, K: int) -> tuple[Constraint, ...]:
    """Tiles that suit the extents. Rows of a copied tile behind M are zeros, and no memory is read for them."""
    rows, columns, step = widest(M, 16), widest(N, 16), widest(K, 32)
    return (
        Constraint(
            "rows", lambda BLOCK_M, LOADS: rows >= BLOCK_M if LOADS == "pointers"
            else suits(M, BLOCK_M) or BLOCK_M == _FULL_ROWS,
            f"{{BLOCK_M}} rows are over twice the padded M of {M}, or too few for descriptors",
        ),
        Constraint(
            "columns", lambda BLOCK_N, LOADS: columns >= BLOCK_N if LOADS == "pointers" else suits(N, BLOCK_N),
            f"{{BLOCK_N}} columns are over twice the padded N of {N}, or too few for descriptors",
        ),
        Constraint(
            "parts",
            lambda SPLIT, BLOCK_M, BLOCK_N, BLOCK_K, PROGRAMS, HALVES: SPLIT == 1 or (
                not (PROGRAMS or HALVES) and SPLIT * _FEWEST_STEPS * BLOCK_K <= K
                and SPLIT * -(-M // BLOCK_M) * -(-N // BLOCK_N) <= _MOST_PARTS
            ),
            f"{{SPLIT}} parts of a tile are for up to {_MOST_PARTS} parts in all, with {_FEWEST_STEPS} steps or more, "
            "that no program walks over",
        ),
        Constraint("step", lambda BLOCK_K: step >= BLOCK_K, f"a step of {{BLOCK_K}} is over twice the padded K of {K}"),
        Constraint(
            "accumulators",
            lambda BLOCK_M, BLOCK_N, num_warps: _MOST_SUMS * num_warps // 8 >= 2 * BLOCK_M * BLOCK_N,
            "two accumulators of {BLOCK_M} by {BLOCK_N} take over 128 registers of each thread of {num_warps} warps",
        ),
    )  # fmt: skip


def _descriptor_rules(has_descriptors: bool, alike: bool, item_bytes: int) -> tuple[Constraint, ...]:
    return (
        *descriptor_rules(LOADS if has_descriptors else LOADS[:1], "BLOCK_K", K_STEP_BYTES // item_bytes),
        Constraint(
            "joined", lambda JOINED, LOADS: not JOINED or (alike and LOADS == "host"),
            "one descriptor of both weights is made by the host, of weights with the same strides",
        ),
        Constraint(
            "walk", lambda PROGRAMS, JOINED: PROGRAMS == 0 or JOINED,
            "programs that walk over tiles load ahead only where one product is in their loop, of joined weights",
        ),
        Constraint(
            "halves",
            lambda HALVES, LOADS, BLOCK_M, BLOCK_N: not HALVES
            or (LOADS == "host" and min(BLOCK_M, BLOCK_N // 2) >= HALVED_SIDE),
            "halves of a tile are stored by descriptors, one after the other, if each has 64 rows and columns",
        ),
    )  # fmt: skip


@lru_cache(maxsize=1024)
def default_config(M: int, N: int, K: int, dtype: str) -> Config:
    """The untuned config: two tiles of 128 by 64, smaller for a smaller problem, and steps of 128 bytes along K.

    Its loads are of pointers, and its shared memory is that of every device: it runs anywhere.
    """
    rows, columns = min(padded(M, 16), 128), min(padded(N, 16), 64)
    if rows == _FULL_ROWS and K * ITEM_BYTES[dtype] % ALIGNMENT_BYTES:  # 42x10160x7506 takes 0.67 of the time (H200)
        columns = min(columns, 32)
    step = min(padded(K, 32), max(32, K_STEP_BYTES // ITEM_BYTES[dtype]))
    stages = 2 if dtype == "float32" else 3
    return Config(
        BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=step, GROUP_SIZE_M=8, LOADS="pointers", JOINED=False, PROGRAMS=0,
        HALVES=False, SPLIT=1, num_warps=8 if rows * columns >= 128 * 64 else 4, num_stages=stages,
    )  # fmt: skip


def gradient_space(problem: Problem) -> ConfigSpace:
    """The space of the gradient's kernel, which maps elements."""
    written_bytes = _RESULTS * problem["elements"] * ITEM_BYTES[problem.specs["gate"].dtype]
    lanes = Constraint(
        "threads",
        lambda BLOCK_SIZE, num_warps: 64 <= BLOCK_SIZE // num_warps <= 32 * 32,
        "{BLOCK_SIZE} elements are under 2 or over 32 for each thread of {num_warps} warps",
    )
    precedence = Constraint(
        "kept",
        lambda EVICT: EVICT == "none" or written_bytes > _CACHE_BYTES,
        f"results of {written_bytes} bytes may wait in L2 for the products that read them next",
    )
    default = Config(BLOCK_SIZE=1024, EVICT="none", num_warps=4)  # one 16-byte load of 16-bit floats for each thread
    return ConfigSpace(GRADIENT_OWN.tunables, (lanes, precedence), default)


DTYPES = ("bfloat16", "float16", "float32")
LEAST_GAIN = 0.05
ACTIVATIONS = ("silu", "gelu")

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "llama-8b-prefill": ((4096, 14336, 4096), "bfloat16"),
    "llama-8b-decode": ((16, 14336, 4096), "bfloat16"),
    "llama-8b-chunk": ((512, 14336, 4096), "bfloat16"),
    "llama-70b-prefill": ((2048, 28672, 8192), "bfloat16"),
    "qwen-7b-prefill": ((4096, 18944, 3584), "bfloat16"),
    "deepseek-v3-expert": ((1024, 2048, 7168), "bfloat16"),
    "odd": ((1000, 777, 516), "float16"),  # no multiple of any tile; rows of 516 are no multiple of 16 bytes
}


def arguments(
    tokens: int = 4096, intermediate: int = 14336, hidden: int = 4096, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | str | None]:
    """The kernel's arguments for x[tokens, hidden] and weights [intermediate, hidden], in the order of its parameters.

    The activation is silu, and the products are not kept for a gradient.
    """
    x, weight = TensorSpec((tokens, hidden), dtype), TensorSpec((intermediate, hidden), dtype)
    return launch_values(x, weight, weight, TensorSpec((tokens, intermediate), dtype, fill="empty"), "silu")


def launch_values(x: Any, gate_weight: Any, up_weight: Any, out: Any, activation: str) -> dict[str, Any]:
    """The kernel's arguments for tensors, or what describes them, with no products kept; strides are in elements."""
    (M, N), K = out.shape, x.shape[1]
    strides = reached_strides(x=x, gate_weight=gate_weight, up_weight=up_weight)
    return {
        "x": x, "gate_weight": gate_weight, "up_weight": up_weight, "out": out, "gate": None, "up": None,
        "M": M, "N": N, "K": K,
        "stride_xm": strides[0][0], "stride_xk": strides[0][1],
        "stride_gn": strides[1][0], "stride_gk": strides[1][1],
        "stride_un": strides[2][0], "stride_uk": strides[2][1],
        "ACTIVATION": activation, "PRECISION": precision_of(x), "UNIT": unit(K, strides, item_bytes_of(x)),
    }  # fmt: skip


GRADIENT_PROBLEMS = {name: (shape[:2], dtype) for name, (shape, dtype) in PROBLEMS.items()}


def gradient_arguments(
    tokens: int = 4096, intermediate: int = 14336, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | str]:
    """The arguments of the gradient's kernel, which maps the elements of the two products."""
    shape = (tokens, intermediate)
    input_spec, output_spec = TensorSpec(shape, dtype), TensorSpec(shape, dtype, fill="empty")
    return {
        "gate": input_spec, "up": input_spec, "grad": input_spec, "dgate": output_spec, "dup": output_spec,
        "elements": input_spec.numel, "ACTIVATION": "silu", "UNIT": unit(input_spec.numel, (), ITEM_BYTES[dtype]),
    }  # fmt: skip


def work(problem: Problem) -> Work:
    """The work: 4MNK operations; x and the weights read once, the result written once."""
    M, N, K, specs = problem["M"], problem["N"], problem["K"], problem.specs
    tensors, units = (specs["x"], specs["gate_weight"], specs["out"]), (problem["UNIT"], problem["UNIT"])
    tiles = ProductTiles.of((M, N, K), *tensors, b_inner=-1, products=2, units=units)
    return Work(4.0 * M * N * K, float(sum(spec.nbytes for spec in specs.values())), tiles)


def gradient_work(problem: Problem) -> Work:
    """The work: bytes of three inputs and two outputs; bandwidth is the limit."""
    specs = list(problem.specs.values())
    item = ITEM_BYTES[specs[0].dtype]
    tiles = ElementTiles(specs[0].numel, "BLOCK_SIZE", read_bytes=3 * item, written_bytes=2 * item, weight=4.0)
    return Work(bytes=float(sum(spec.nbytes for spec in specs)), tiles=tiles)


def gated_mlp_reference(
    x: Tensor, gate_weight: Tensor, up_weight: Tensor, out: Tensor, *, ACTIVATION: str, **_given: object
) -> Tensor:
    """Compute `act(x @ gate_weight.T) * (x @ up_weight.T)` in float32 or wider, rounded once to the dtype of `out`.

    Cost: float32 copies of all inputs, and three float32 tensors of the size of the result.
    """
    torch = require("torch", "the reference of gated_mlp")
    wide = torch.promote_types(x.dtype, torch.float32)
    g, u = (x.to(wide) @ weight.to(wide).mT for weight in (gate_weight, up_weight))
    activated: Tensor = _activation_of(ACTIVATION)(g)
    return (activated * u).to(out.dtype)


def gated_mlp_backward_reference(
    gate: Tensor, up: Tensor, grad: Tensor, dgate: Tensor, dup: Tensor, *, ACTIVATION: str, **_given: object
) -> tuple[Tensor, Tensor]:
    """The gradients of the two products, in float32 or wider, rounded once."""
    torch = require("torch", "the reference of gated_mlp")
    wide = torch.promote_types(gate.dtype, torch.float32)
    with torch.enable_grad():
        g = gate.detach().to(wide).requires_grad_()
        activated = _activation_of(ACTIVATION)(g)
        (slope,) = torch.autograd.grad(activated.sum(), g)
    d = grad.to(wide)
    return (d * up.to(wide) * slope).to(dgate.dtype), (d * activated.detach()).to(dup.dtype)


def _activation_of(name: str) -> Any:
    return getattr(require("torch", "the reference of gated_mlp").nn.functional, name)
