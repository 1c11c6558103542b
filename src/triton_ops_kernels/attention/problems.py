"""The problems of attention, each with the space of configs that are worth trying.

Shared memory is no constraint here: the compiler and the device tell which configs fit.

Where TF32 is not allowed for float32, each term is multiplied and added by itself, without matrix instructions. A tile
has rows times keys times elements of a head as terms. A thread that has many of them spills, and compilers take long
for it: up to a minute for one config of the gradient, as `triton-ops compile attention_backward --dtype fp32` shows. So
tiles are small. Three products of numbers of TF32 (`tf32x3`) in matrix instructions are faster on an H200, and lose
what is smaller than these numbers can be: with values around 1e-37 results are 1e-4 off, which the rule for verdicts
takes for wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from triton_ops.base import require
from triton_ops.cost_model import AttentionTiles
from triton_ops.device import probe
from triton_ops.exceptions import ShapeMismatchError
from triton_ops.space import Config, ConfigSpace, Constraint
from triton_ops.values import ITEM_BYTES, Problem, TensorSpec, Work
from triton_ops_kernels.call import Own, OwnConfigs, precision_of, whole_from
from triton_ops_kernels.jit import INTERPRETED
from triton_ops_kernels.tiles import DESCRIBABLE, describable, fixed_in, forms_in_gluon, padded, widest

if TYPE_CHECKING:
    from torch import Tensor

_SIDES = ("Q_ROWS", "Q_KEYS", "K_KEYS", "K_ROWS")
GRADIENT_SIDES = {name: [16, 32, 64, 128] for name in _SIDES}
_MOST_TERMS, _MOST_GRADIENT_TERMS = 1024, 512


def are_summed(arguments: Problem | Mapping[str, Any]) -> bool:
    """Tell whether products are summed up term by term, of a problem or of a call's arguments."""
    return bool(arguments["PRECISION"] == "ieee")


def _terms(name: str, rows: str, keys: str, size: int, most: int) -> Constraint:
    """The constraint of a tile of these tunables, for heads of `size` elements, padded."""
    return Constraint(
        name,
        lambda num_warps, **own: own[rows] * own[keys] * size <= 32 * num_warps * most,
        f"{{{rows}}} by {{{keys}}} have over {most} terms for each thread of {{num_warps}} warps, which take compilers "
        "long and spill",
        names=(rows, keys, "num_warps"),
    )


_MOST_SPLITS = 128
gluon_forms = partial(forms_in_gluon, "attention", "out")
OWN = OwnConfigs({
    "FORM": Own(("triton", "gluon"), optional=True),
    "BLOCK_M": [16, 32, 64, 128, 256],
    "BLOCK_N": [32, 64, 128],
    "GROUP_HEADS": Own([1, 8], whole_from(1), optional=True),
    "SPLITS": Own([1, 2, 4, 8, 16, 32, 64, _MOST_SPLITS], whole_from(1), optional=True),
    "DESCRIPTORS": Own([False, True], optional=True),
    "WARP_SPECIALIZE": Own([False], optional=True),
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4],
})  # fmt: skip
GRADIENT_OWN = OwnConfigs({
    **{name: [32, 64, 128] for name in _SIDES}, "num_warps": [4, 8], "num_stages": [1, 2, 3]
})  # fmt: skip
WITH_ROLES = (128, 1, True, 4, 2)
"""BLOCK_M, SPLITS, DESCRIPTORS, num_warps and num_stages of configs that may give warps roles."""
ROLES_NEED = (
    "roles of warps are for whole walks with descriptors, also of q, 4 warps for each 64 of 128 rows, and 2 stages: "
    "more of them left NaN on an H200 with Triton 3.6.0"
)
GLUON_HAS: dict[str, int] = {
    "BLOCK_M": 128, "BLOCK_N": 128, "SPLITS": 1, "DESCRIPTORS": True, "WARP_SPECIALIZE": False, "num_warps": 4,
    "num_stages": 2,
}  # fmt: skip
"""What the form in Gluon always does, by the tunables of the other."""
_GLUON_NEEDS = (
    "the form in Gluon is for 16-bit floats, heads of 64 or 128 elements and 64 queries or more, with "
    f"{DESCRIBABLE}; a Triton without Gluon for Hopper lacks it"
)
_GLUON_SIZES = {64, 128}  # of heads; wider ones take more shared memory than there is
_FILLED = 132  # tiles that keep a Hopper busy: the form in Gluon then won for heads of 128, and for 64 without a mask
_MOST_HELD = 160  # elements of the sums and of the scores in float32, of 255 registers of a thread
_MOST_GRADIENT = 192  # of the sums and of two tiles of scores
_GROUP_ROWS = 64  # rows of an instruction of a group of four warps
_ENOUGH = 1024  # programs with which every device is busy
_NARROW, _STEP, _LONG = 192, 64, 1024  # bytes of a head with long steps; keys of a short step, and of a long part


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's extents and layout.

    It leaves out roles of warps, which Triton 3.6 compiles rightly in few kernels, and no GPU has proven here.
    """
    q, k, v = (problem.specs[name] for name in ("q", "k", "v"))
    batch, heads, queries, head_dim = q.shape
    kv_heads, keys = k.shape[1:3]
    rows, many, values = queries * (heads // kv_heads), batch * kv_heads, padded(v.shape[3], 16)
    whole = _takes_gluon(problem)
    most_rows, most_keys, summed = widest(rows, 16), widest(keys, 32), are_summed(problem)
    rules = (
        Constraint("rows", lambda BLOCK_M: most_rows >= BLOCK_M, f"{{BLOCK_M}} rows are over twice the padded {rows}"),
        _terms("terms", "BLOCK_M", "BLOCK_N", max(padded(head_dim, 16), values), _MOST_TERMS) if summed
        else _groups(min(padded(rows, 16), _GROUP_ROWS)),
        Constraint("keys", lambda BLOCK_N: most_keys >= BLOCK_N, f"{{BLOCK_N}} keys are over twice the padded {keys}"),
        Constraint(
            "registers",
            lambda FORM, BLOCK_M, BLOCK_N, WARP_SPECIALIZE, num_warps: (
                32 * _MOST_HELD * num_warps * (2 if WARP_SPECIALIZE or FORM == "gluon" else 1)
                >= BLOCK_M * (BLOCK_N + values)
            ),
            f"{{BLOCK_M}} rows take over {_MOST_HELD} registers of each thread of {{num_warps}} warps",
        ),
        Constraint(
            "walk",
            lambda BLOCK_M, GROUP_HEADS: GROUP_HEADS == 1 or (many > 1 and rows > BLOCK_M),
            "there is one head, or one tile of each: programs have one order",
        ),
        Constraint(
            "parts",
            lambda BLOCK_N, SPLITS: SPLITS == 1 or -(-keys // BLOCK_N) >= SPLITS,
            f"{{SPLITS}} parts of {keys} keys have no step of {{BLOCK_N}} each",
        ),
        Constraint(
            "split",
            lambda BLOCK_M, SPLITS: SPLITS == 1 or -(-rows // BLOCK_M) * many * SPLITS <= _ENOUGH,
            f"{{SPLITS}} parts make over {_ENOUGH} programs, and fewer keep every device busy",
        ),
        Constraint(
            "descriptors",
            lambda DESCRIPTORS: not DESCRIPTORS or describable(k, v),
            f"a tensor descriptor needs {DESCRIBABLE}",
        ),
        Constraint(
            "specialised",
            lambda BLOCK_M, SPLITS, DESCRIPTORS, WARP_SPECIALIZE, num_warps, num_stages: (
                not WARP_SPECIALIZE or (
                    describable(q) and (BLOCK_M, SPLITS, DESCRIPTORS, num_warps, num_stages) == WITH_ROLES
                )
            ),
            ROLES_NEED,
        ),
        Constraint("gluon", lambda FORM: FORM == "triton" or whole, _GLUON_NEEDS),
        *fixed_in("gluon", GLUON_HAS),
    )  # fmt: skip
    default = default_config(rows, keys, many, max(head_dim, v.shape[3]), q.dtype, summed)
    tiles = queries * batch * heads // GLUON_HAS["BLOCK_M"]
    suited = head_dim == v.shape[3] and (head_dim == 128 or not problem["CAUSAL"])
    if whole and suited and tiles >= _FILLED and probe().arch == "sm_90":
        order = 8 if many > 1 and rows > GLUON_HAS["BLOCK_M"] else 1
        default = Config({**default, **GLUON_HAS, "FORM": "gluon", "GROUP_HEADS": order})
    return ConfigSpace(OWN.tunables, rules, default)


def _takes_gluon(problem: Problem) -> bool:
    """Tell whether the form in Gluon can compute the problem, and is there."""
    q, k, v, out = (problem.specs[name] for name in ("q", "k", "v", "out"))
    sized = {q.shape[3], v.shape[3]} <= _GLUON_SIZES and q.shape[2] >= _GROUP_ROWS and k.shape[2] > 0
    fits = sized and ITEM_BYTES[q.dtype] == 2 and describable(q, k, v, out)
    return fits and not INTERPRETED and bool(gluon_forms())


def _groups(least_rows: int) -> Constraint:
    return Constraint(
        "groups",
        lambda BLOCK_M, num_warps: least_rows <= BLOCK_M and (num_warps == 4 or BLOCK_M != _GROUP_ROWS),
        f"a group of four warps multiplies {_GROUP_ROWS} rows at once; {{num_warps}} warps have {{BLOCK_M}}",
    )


@lru_cache(maxsize=1024)
def default_config(rows: int, keys: int, many: int, dim: int, dtype: str, summed: bool) -> Config:
    """The untuned config: tiles of 128 rows and 64 keys, others for narrow and wide heads, smaller for small problems.

    `rows` are queries times heads that share a head of keys, `many` are heads of keys in all sequences, and `dim` is
    the larger size of a key or a value. Where `summed`, products are summed up term by term.

    Source: the fastest of those tried on an H200 with Triton 3.6.0 whose shared memory most devices have; where summed,
    for heads of 64 and 128, and for wider ones a tile that spills nothing.
    """
    if summed:
        most_rows, most_keys, warps, stages = (
            (32, 32, 4, 2) if dim <= 64 else (16, 64, 4, 2) if dim <= 128 else (16, 32, 8, 2)
        )
    else:
        wide = padded(dim, 16) * ITEM_BYTES[dtype]  # bytes of a head
        most_rows, most_keys = (64, 64) if wide <= 128 else (128, 64) if wide <= 256 else (64, 32)
        warps, stages = 8 if min(padded(rows, 16), most_rows) == 128 else 4, 3 if wide <= 512 else 2
        if dim != padded(dim, 16):  # of a padded head fewer keys at once leave room for another program
            most_keys = 32
    few = rows <= 16 and not summed
    if few and dim * ITEM_BYTES[dtype] <= _NARROW:
        most_keys = 128
    block_rows, block_keys = min(padded(rows, 16), most_rows), min(padded(keys, 32), most_keys)
    programs = -(-rows // block_rows) * many
    if block_rows == 128 and 2 * programs <= _FILLED and not summed:
        block_rows, warps, programs = 64, 4, 2 * programs
    least, most = (_STEP, _FILLED) if few else (_LONG, _FILLED // 2)  # the second launch takes as long as many keys
    splits = 1
    while (
        splits < _MOST_SPLITS and -(-keys // least) >= 2 * splits
        and splits * programs <= (0.75 if few and keys < 2 * _LONG * splits else 1) * most
    ):  # fmt: skip
        splits *= 2
    if few and block_keys > _STEP and 4 * splits * block_keys > keys:
        block_keys = _STEP
    return Config(
        BLOCK_M=block_rows, BLOCK_N=block_keys, GROUP_HEADS=8 if many > 1 and rows > block_rows else 1, SPLITS=splits,
        DESCRIPTORS=False, WARP_SPECIALIZE=False,
        num_warps=warps, num_stages=stages, FORM="triton",
    )  # fmt: skip


def gradient_space(problem: Problem) -> ConfigSpace:
    """The space of the gradient, whose programs hold two tiles of scores beside their sums."""
    q, v = problem.specs["q"], problem.specs["v"]
    size, value_size = padded(q.shape[3], 16), padded(v.shape[3], 16)
    rules: tuple[Constraint, ...] = (
        Constraint(
            "dq",
            lambda Q_ROWS, Q_KEYS, num_warps: 32 * _MOST_GRADIENT * num_warps >= Q_ROWS * (size + 2 * Q_KEYS),
            f"{{Q_ROWS}} rows take over {_MOST_GRADIENT} registers of each thread of {{num_warps}} warps",
        ),
        Constraint(
            "dk and dv",
            lambda K_KEYS, K_ROWS, num_warps: (
                32 * _MOST_GRADIENT * num_warps >= K_KEYS * (size + value_size + 2 * K_ROWS)
            ),
            f"{{K_KEYS}} keys take over {_MOST_GRADIENT} registers of each thread of {{num_warps}} warps",
        ),
    )
    summed, most = are_summed(problem), max(q.shape[3], v.shape[3])
    default = gradient_default(most, q.dtype, summed)
    if summed:
        rules += (
            _terms("terms of dq", "Q_ROWS", "Q_KEYS", padded(most, 16), _MOST_GRADIENT_TERMS),
            _terms("terms of dk and dv", "K_KEYS", "K_ROWS", padded(most, 16), _MOST_GRADIENT_TERMS),
        )
    return ConfigSpace({**GRADIENT_OWN.tunables, **(GRADIENT_SIDES if summed else {})}, rules, default)


def gradient_default(size: int, dtype: str, summed: bool) -> Config:
    """The untuned config of the gradient: tiles of 64 by 64, or by 32 where elements of a head are many or wide.

    Where products are summed up term by term, its source is as that of `default_config`. For heads of over 128 it then
    hardly spills and needs no more shared memory than all devices have; on an H200 it takes 1.03 of the time of the
    fastest of nine tiles, for heads of 256.
    """
    if summed:
        rows, keys, warps, stages = (16, 64, 4, 2) if size <= 64 else (32, 32, 8, 1) if size <= 128 else (16, 32, 8, 1)
        return Config(Q_ROWS=rows, Q_KEYS=keys, K_KEYS=keys, K_ROWS=rows, num_warps=warps, num_stages=stages)
    wide = padded(size, 16) * ITEM_BYTES[dtype]
    step = 64 if wide <= 128 else 32
    return Config(
        Q_ROWS=64, Q_KEYS=step, K_KEYS=64 if wide <= 512 else 32, K_ROWS=step,
        num_warps=4 if wide <= 256 else 8, num_stages=2 if wide <= 256 else 1,
    )  # fmt: skip


DTYPES = ("bfloat16", "float16", "float32")
MASKS = {1: "full", 2: "causal"}
"""Which keys a query sees, by the number that stands in a shape."""

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "llama-8b-prefill": ((4, 32, 8, 4096, 4096, 128, 128, 2), "bfloat16"),
    "llama-8b-long": ((1, 32, 8, 16384, 16384, 128, 128, 2), "bfloat16"),
    "llama-70b-chunk": ((1, 64, 8, 512, 8192, 128, 128, 2), "bfloat16"),  # 512 tokens after 7,680 others
    "llama-8b-decode": ((16, 32, 8, 1, 8192, 128, 128, 2), "bfloat16"),
    "qwen-32b-decode-long": ((1, 40, 8, 1, 32768, 128, 128, 2), "bfloat16"),
    "qwen-0.5b-prefill": ((8, 14, 2, 2048, 2048, 64, 64, 2), "bfloat16"),
    "deepseek-v3-prefill": ((1, 128, 128, 4096, 4096, 192, 128, 2), "bfloat16"),
    "gemma-2b-prefill": ((2, 8, 1, 4096, 4096, 256, 256, 2), "bfloat16"),
    "flux-dev-image": ((1, 24, 24, 4608, 4608, 128, 128, 1), "bfloat16"),
    "whisper-large": ((16, 20, 20, 1500, 1500, 64, 64, 1), "float16"),
    "odd": ((2, 6, 3, 515, 777, 80, 80, 2), "float16"),  # no multiple of any tile; heads are padded to 128
}


def arguments(
    batch: int = 4, heads: int = 32, kv_heads: int = 8, queries: int = 4096, keys: int = 4096, head_dim: int = 128,
    value_dim: int = 128, mask: int = 2, dtype: str = "bfloat16",
) -> dict[str, TensorSpec | float | bool | str | None]:  # fmt: skip
    """The arguments of the launch, by name, in the order of its parameters; the logarithms of sums are not asked for.

    `mask` is 1 where every query sees all keys, 2 where the last one does, and each one before it one key less.

    Raises:
        ShapeMismatchError: `heads` is no multiple of `kv_heads`, or `mask` is none of these.
    """
    if heads % kv_heads:
        raise ShapeMismatchError(f"{heads} heads are no multiple of {kv_heads}", f"a multiple of {kv_heads}", heads)
    if mask not in MASKS:
        raise ShapeMismatchError(f"mask is {mask}; it must be 1 or 2", "1 or 2", mask)
    q, k = TensorSpec((batch, heads, queries, head_dim), dtype), TensorSpec((batch, kv_heads, keys, head_dim), dtype)
    v = TensorSpec((batch, kv_heads, keys, value_dim), dtype)
    out = TensorSpec((batch, heads, queries, value_dim), dtype, fill="empty")
    return launch_values(q, k, v, out, MASKS[mask] == "causal", None)


def launch_values(q: Any, k: Any, v: Any, out: Any, causal: bool, scale: float | None) -> dict[str, Any]:
    """The arguments of the launch for tensors, or what describes them, without logarithms, which decide no config."""
    return {
        "q": q, "k": k, "v": v, "out": out, "lse": None, "scale": scale or 1 / math.sqrt(q.shape[3]),
        "CAUSAL": causal, "PRECISION": precision_of(q),
    }  # fmt: skip


def seen_pairs(queries: int, keys: int, causal: bool) -> int:
    """The pairs of a query and a key that it sees."""
    if not causal:
        return queries * keys
    seeing = min(queries, keys)  # with fewer keys than queries the first queries see none
    return seeing * keys - seeing * (seeing - 1) // 2


def work(problem: Problem) -> Work:
    """The work: two products for each pair of a query and a key that it sees; all read once, the result written once.

    Heads that share keys are rows of one tile, as queries are.
    """
    q, k, v = (problem.specs[name] for name in ("q", "k", "v"))
    (batch, heads, queries, head_dim), (kv_heads, keys), value_dim = q.shape, k.shape[1:3], v.shape[3]
    causal = problem["CAUSAL"]
    pairs = seen_pairs(queries, keys, causal)
    square = causal and queries == keys
    tiles = AttentionTiles(
        batch * kv_heads, queries * (heads // kv_heads), keys if square else max(1, pairs // max(queries, 1)),
        (head_dim + value_dim) // 2,
        dtype=q.dtype, tile_queries="BLOCK_M", tile_keys="BLOCK_N", causal=square,
    )  # fmt: skip
    flops = 2.0 * batch * heads * pairs * (head_dim + value_dim)
    return Work(flops, float(sum(spec.nbytes for spec in problem.specs.values())), tiles)


GRADIENT_PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "llama-8b-training": ((2, 32, 8, 4096, 4096, 128, 128, 2), "bfloat16"),
    "llama-8b-long": PROBLEMS["llama-8b-long"],
    "qwen-0.5b-training": PROBLEMS["qwen-0.5b-prefill"],
    **{name: PROBLEMS[name] for name in ("flux-dev-image", "whisper-large", "odd")},
}


def gradient_arguments(
    batch: int = 2, heads: int = 32, kv_heads: int = 8, queries: int = 4096, keys: int = 4096, head_dim: int = 128,
    value_dim: int = 128, mask: int = 2, dtype: str = "bfloat16",
) -> dict[str, TensorSpec | float | bool | str | None]:  # fmt: skip
    """The arguments of the gradient's launch; `out` and `lse`, a result and logarithms, hold any numbers."""
    inputs: dict[str, Any] = arguments(batch, heads, kv_heads, queries, keys, head_dim, value_dim, mask, dtype)
    result = replace(inputs["out"], fill=inputs["q"].fill)
    outputs = {name: replace(inputs[name[1]], fill="empty") for name in ("dq", "dk", "dv")}
    return {
        "q": inputs["q"], "k": inputs["k"], "v": inputs["v"], "out": result,
        "lse": TensorSpec(result.shape[:3], "float32", fill="positive"), "grad": result, **outputs,
        "scale": inputs["scale"], "CAUSAL": inputs["CAUSAL"], "PRECISION": inputs["PRECISION"],
    }  # fmt: skip


def gradient_work(problem: Problem) -> Work:
    """The work: five products for each pair of a query and a key that it sees; all read once, the gradients written.

    It has no tiles: a model reads both launches, one that walks along the queries and one along the keys.
    """
    q, k, v = (problem.specs[name] for name in ("q", "k", "v"))
    (batch, heads, queries, head_dim), keys, value_dim = q.shape, k.shape[2], v.shape[3]
    pairs = seen_pairs(queries, keys, problem["CAUSAL"])
    flops = 2.0 * batch * heads * pairs * (3 * head_dim + 2 * value_dim)
    return Work(flops, float(sum(spec.nbytes for spec in problem.specs.values())))


_SCORES = 2**26  # scores that are held at once


def attention_reference(
    q: Any, k: Any, v: Any, out: Any, lse: Any, scale: float, CAUSAL: bool, **_given: Any
) -> Any:  # fmt: skip
    """softmax(scale * q @ k.T) @ v in float32 or wider, rounded to the dtype of `out`; with `lse` that too.

    The exponentials are rounded to the dtype of `v` before the second product, as every kernel rounds them that
    multiplies 16-bit floats: that rounding is part of what the precision allows, so that the reference's own error is a
    yardstick for such kernels. On inputs of float32 and wider nothing is rounded between the products. A query that
    sees no key, or minus infinity alone, gets zeros, whatever the values hold, and a logarithm of minus infinity.

    Cost: some tensors of 2^26 elements, and a loop over batches, heads of keys and pieces of the queries.
    """
    torch = require("torch", "the reference of attention")
    wide = torch.promote_types(q.dtype, torch.float32)
    (batch, heads, queries, _), (kv_heads, keys), value_dim = q.shape, k.shape[1:3], v.shape[3]
    group = heads // kv_heads
    result = q.new_empty((batch, heads, queries, value_dim), dtype=out.dtype)
    logarithms = None if lse is None else q.new_empty((batch, heads, queries), dtype=wide)
    columns, last = (torch.arange(start, keys, device=q.device) for start in (0, keys - queries))
    together = min(kv_heads, max(1, _SCORES // max(group * queries * keys, 1)))  # heads of keys
    piece = max(1, _SCORES // max(together * group * keys, 1))
    for b in range(batch):
        for h in range(0, kv_heads, together):
            shared, own = slice(h * group, (h + together) * group), slice(h, h + together)
            key, value = k[b, own].to(wide), v[b, own].to(wide)
            for first in range(0, queries, piece):
                some = slice(first, min(first + piece, queries))
                seen = min(keys, max(some.stop + keys - queries, 1)) if CAUSAL else keys  # by any of these queries
                query = q[b, shared, some].to(wide).unflatten(0, (-1, group)).flatten(1, 2)
                scores = (query @ key[:, :seen].mT).unflatten(1, (group, -1)) * scale
                if CAUSAL:
                    scores = scores.masked_fill(columns[:seen] > last[some, None], -math.inf)
                highest = scores.amax(-1, keepdim=True) if keys else scores.new_full((*scores.shape[:-1], 1), -math.inf)
                blind = highest == -math.inf
                weights = torch.exp(scores - highest.masked_fill(blind, 0.0))
                weight = weights.sum(-1, keepdim=True)
                total = weights.to(v.dtype).to(wide).flatten(1, 2) @ value[:, :seen]
                mean = total.unflatten(1, (group, -1)) / weight
                result[b, shared, some] = mean.masked_fill(blind, 0.0).flatten(0, 1).to(out.dtype)
                if logarithms is not None:
                    logarithms[b, shared, some] = (highest + weight.log()).flatten(0, 1)[..., 0]
    return result if logarithms is None else (result, logarithms.to(lse.dtype))


def attention_backward_reference(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, grad: Tensor, dq: Tensor, dk: Tensor, dv: Tensor,
    scale: float, CAUSAL: bool, **_given: object,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of q, k and v from the result and its logarithms, in float32 or wider, rounded once.

    Weights and the gradients of scores are rounded to the dtype of `q` before they are multiplied, as
    `attention_reference` does it, and for the same reason.

    Cost: some tensors of the size of one group's scores, and a loop over heads of keys.
    """
    torch = require("torch", "the reference of attention")
    wide = torch.promote_types(q.dtype, torch.float32)
    (queries, keys), group = (q.shape[2], k.shape[2]), q.shape[1] // k.shape[1]
    made = [torch.empty_like(each) for each in (dq, dk, dv)]
    hidden = torch.zeros(queries, keys, dtype=torch.bool, device=q.device)
    if CAUSAL:
        hidden = torch.ones_like(hidden).triu(keys - queries + 1)
    for b in range(q.shape[0]):
        for h in range(k.shape[1]):
            shared = slice(h * group, (h + 1) * group)
            own = [each[b, shared].to(wide) for each in (q, out, grad)]
            logarithm = lse[b, shared].to(wide)
            key, value = k[b, h].to(wide), v[b, h].to(wide)
            blind = ((logarithm == -math.inf) | hidden.all(-1))[..., None]
            lowered = own[0] @ key.mT * scale - logarithm[..., None].masked_fill(blind, math.inf)
            p = torch.exp(lowered).masked_fill(hidden, 0.0)
            ds = p * (own[2] @ value.mT - (own[1] * own[2]).sum(-1, keepdim=True))
            p, ds = p.to(q.dtype).to(wide), ds.to(q.dtype).to(wide)
            made[0][b, shared] = (ds @ key * scale).masked_fill(blind, 0.0).to(dq.dtype)
            made[1][b, h] = ((ds.mT @ own[0]).sum(0) * scale).to(dk.dtype)
            made[2][b, h] = (p.mT @ own[2]).sum(0).to(dv.dtype)
    return tuple(made)
