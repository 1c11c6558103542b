"""The problems of the product of 8-bit floats, each with the space of configs that are worth trying.

The documented space, `FP8_GEMM_CONFIGS`, is part of the space here but for steps of 32, which this leaves out: they
fill a quarter of a row of shared memory. `tune(operation, space=FP8_GEMM_CONFIGS)` takes it alone. Shared memory is no
constraint here: the compiler and the device tell which configs fit, and on which device the form in Gluon runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from triton_ops.base import require
from triton_ops.cost_model import ProductTiles
from triton_ops.device import probe
from triton_ops.exceptions import ConfigValueError, ShapeMismatchError
from triton_ops.space import Config, ConfigSpace, Constraint
from triton_ops.values import ALIGNMENT_BYTES, ITEM_BYTES, Problem, TensorSpec, Work
from triton_ops_kernels import tiles
from triton_ops_kernels.call import Own, OwnConfigs, ValueRule, one_of, whole_from
from triton_ops_kernels.fp8_format import FP8Format
from triton_ops_kernels.tiles import HALVED_SIDE, LOADS, describable, padded, reached_strides, strides_of, suits, widest

if TYPE_CHECKING:
    from torch import Tensor

gluon_forms = partial(tiles.forms_in_gluon, "fp8_gemm", "c")
FORMS = ("triton", "gluon", "parts", "steps")
_BUFFERS = (0, 3, 4, 8)  # 0 is for the forms in Triton, 8 for that of steps
_SUMS = (1, 2, 4, 8, 16)  # several are for the form of parts, and two for that in Gluon

OWN = OwnConfigs({
    "FORM": Own(FORMS, optional=True),
    "BUFFERS": Own(_BUFFERS, optional=True),
    "APART": Own([False, True], optional=True),
    "LOADS": Own(["pointers", "host"], optional=True),
    "SWAPPED": Own([False, True], optional=True),
    "PROGRAMS": Own([0, 1, 2], optional=True),
    "BLOCK_M": [16, 32, 64, 128, 256],
    "BLOCK_N": [8, 16, 32, 64, 128, 256],
    "BLOCK_K": [64, 128, 256, 512, 1024],
    "GROUP_SIZE_M": Own([4, 8, 16], whole_from(1), optional=True),
    "PROMOTE": Own([0, 64, 128], optional=True),
    "HALVES": Own([False, True], optional=True),
    "SUMS": Own(_SUMS, one_of(_SUMS), optional=True),
    "AHEAD": Own(
        [0, 1, 2, 4],
        ValueRule("a whole number from 0; true is 1", lambda value: isinstance(value, int) and value >= 0),
        optional=True,
    ),
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4, 5, 6, 7, 8],
})  # fmt: skip
_GLUON_TILE = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 128, "num_warps": 4}
_GLUON_HAS = {
    "LOADS": "host", "SWAPPED": False, "PROGRAMS": 1, "PROMOTE": 0, "HALVES": False, "SUMS": 2, "AHEAD": 0,
    "num_stages": 4,
}  # fmt: skip
"""What the form in Gluon always does, by the tunables of the others; its `num_stages` are its BUFFERS."""
_PARTS_HAVE = {
    "LOADS": "pointers", "SWAPPED": False, "PROGRAMS": 0, "GROUP_SIZE_M": 8, "PROMOTE": 0, "HALVES": False, "AHEAD": 0,
}  # fmt: skip
_STEPS_TILE = {"BLOCK_M": 64, "BLOCK_K": 128, "num_warps": 4}
_STEPS_HAVE = {
    "LOADS": "host", "SWAPPED": False, "PROGRAMS": 0, "PROMOTE": 0, "HALVES": False, "SUMS": 1, "AHEAD": 0,
    "num_stages": 4,
}  # fmt: skip
_STEPS_FROM = {16: 1280, 32: 1280, 64: 1280, 128: 4096}
"""Columns of its tiles, with the terms from which it is the untuned form."""
_PARTS_UP_TO = 32  # rows of C
_UNITS, _LONG = 132, 2048  # multiprocessors that tiles should fill, and terms from which steps are long
_FEW_COLUMNS, _PARTS_COLUMNS = 16 * _UNITS, 48 * _UNITS  # up to which 16 rows have it by default, of short and long K
_WIDE_BYTES = 4  # of an element of C: half a tile of them leaves room for three buffers
_MOST_SUMS = 256 * 128  # elements of the accumulator with eight warps: 128 registers of a thread
_TWO_FIT = 128 * 128  # elements of a tile of which two programs have room on a multiprocessor
_SWAPPED_UP_TO = 64  # rows of C from which on tiles of C itself fill the rows of the matrix instructions
_LONGEST_GROUP = 8  # tile rows of a group of the form in Triton
_LEAST_PART = 32  # terms of a step that a sum of the form of parts has: what an instruction takes of 8 bits
_MOST_STAGES = 5  # of tiles whose steps are copied slowly enough to keep the memory busy
_MOST_UNROLLED = 16  # stages of all unrolled steps


def config_space(problem: Problem) -> ConfigSpace:
    """The space for the problem's extents, layout and precision; some thousand configs."""
    M, N, K, specs, blocked = problem["M"], problem["N"], problem["K"], problem.specs, problem["BLOCKED"]
    has_descriptors = takes_descriptors(specs["a"], specs["b"])
    fast, result, few = bool(problem["FAST"]), bool(problem["C_DESCRIBED"]), M <= _PARTS_UP_TO and not blocked
    copied = has_descriptors and not (blocked or fast) and bool(gluon_forms())
    rules = (
        *_form_rules(copied and result, 3 if ITEM_BYTES[specs["c"].dtype] == _WIDE_BYTES else 4, few),
        Constraint(
            "steps",
            lambda FORM, BLOCK_N: FORM != "steps" or (copied and BLOCK_N in _STEPS_FROM and _one_wave(M, N, BLOCK_N)),
            f"the form of steps is for up to {_UNITS} tiles of 64 rows, of 128 columns at most, and else as in Gluon",
        ),
        *_tile_rules(M, N, K),
        *_copy_rules(has_descriptors, result),
        *_promotion(blocked),
        Constraint(
            "blocks",
            lambda BLOCK_K: not blocked or FP8Format.block >= BLOCK_K,
            "a step of {BLOCK_K} has terms of several scales; there is one for each 128",
        ),
    )
    kind = "tiles"
    if few and M <= 16 and 8 <= N <= (_FEW_COLUMNS if K < _LONG else _PARTS_COLUMNS) and K >= 4 * _LEAST_PART:
        kind = "parts"
    elif copied and M > _PARTS_UP_TO and _steps_columns(M, N, K) and probe().arch == "sm_90":
        kind = "steps"
    elif not blocked and M <= _SWAPPED_UP_TO <= N:
        kind = "swapped"
    elif not blocked and has_descriptors and M > _SWAPPED_UP_TO and probe().arch == "sm_90":
        kind = "described"
    return ConfigSpace(OWN.tunables, rules, default_config(M, N, K, kind))


def _form_rules(whole: bool, buffers: int, few: bool) -> tuple[Constraint, ...]:
    """The forms where they can compute the problem; that in Gluon has as many buffers as shared memory holds."""
    return (
        Constraint(
            "gluon", lambda FORM: FORM != "gluon" or whole,
            "the form in Gluon promotes its sums, has no scales by block, and reads and writes by descriptors alone; "
            "a Triton without Gluon for Hopper lacks it",
        ),
        Constraint(
            "buffers",
            lambda FORM, BUFFERS: {"gluon": buffers, "steps": 8}.get(FORM, 0) == BUFFERS,
            f"{{BUFFERS}} buffers: the form in Gluon has {buffers} for this result, that of steps 8, and the others "
            "none of their own",
        ),
        Constraint(
            "apart", lambda FORM, APART: FORM == "gluon" or not APART,
            "only the form in Gluon has groups of warps that begin apart",
        ),
        Constraint(
            "long_groups", lambda FORM, GROUP_SIZE_M: FORM == "gluon" or GROUP_SIZE_M <= _LONGEST_GROUP,
            "groups of {GROUP_SIZE_M} tile rows are for the form in Gluon",
        ),
        *tiles.fixed_in("gluon", {**_GLUON_TILE, **_GLUON_HAS}),
        Constraint(
            "parts", lambda FORM, BLOCK_M, BLOCK_N, SUMS, BLOCK_K: FORM != "parts"
            or (few and max(BLOCK_M, BLOCK_N) <= _PARTS_UP_TO and max(SUMS, 4) * _LEAST_PART <= BLOCK_K),
            f"the form of parts is for up to {_PARTS_UP_TO} rows without scales by block, in tiles of no more rows and "
            f"columns, and for steps of which each sum has {_LEAST_PART} terms",
        ),
        Constraint(
            "narrow", lambda FORM, BLOCK_N, BLOCK_K: FORM == "parts" or (BLOCK_N >= 16 and BLOCK_K <= 256),
            "tiles of {BLOCK_N} columns and steps of {BLOCK_K} are for the form of parts",
        ),
        *tiles.fixed_in("parts", _PARTS_HAVE),
        *tiles.fixed_in("steps", {**_STEPS_TILE, **_STEPS_HAVE}),
    )  # fmt: skip


def _one_wave(M: int, N: int, columns: int) -> bool:
    """Tell whether each multiprocessor has one tile of the form of steps at most."""
    return -(-M // 64) * -(-N // columns) <= _UNITS


def _steps_columns(M: int, N: int, K: int) -> int:
    """The columns of the narrowest tiles of which it is so, and that the untuned form has; 0 where there are none."""
    sides = (side for side, terms in _STEPS_FROM.items() if side <= N and terms <= K and _one_wave(M, N, side))
    return next(sides, 0)


def _tile_rules(M: int, N: int, K: int) -> tuple[Constraint, ...]:
    step = widest(K, 64)
    return (
        Constraint(
            "rows", lambda FORM, BLOCK_M, SWAPPED: FORM == "parts" or suits(N if SWAPPED else M, BLOCK_M),
            f"{{BLOCK_M}} rows are too few or too many for {M} rows, or for {N} with swapped operands",
        ),
        Constraint(
            "columns", lambda FORM, BLOCK_N, SWAPPED: suits(M if SWAPPED else N, BLOCK_N)
            or ((M <= _SWAPPED_UP_TO or FORM == "steps") and N >= BLOCK_N and not (SWAPPED and BLOCK_N < 32)),
            f"{{BLOCK_N}} columns are too few or too many for {N} columns, or for {M} with swapped operands",
        ),
        Constraint("step", lambda BLOCK_K: step >= BLOCK_K, f"a step of {{BLOCK_K}} is over twice the padded K of {K}"),
        Constraint(
            "swapped", lambda SWAPPED: not SWAPPED or min(M, N) == M <= _SWAPPED_UP_TO,
            f"swapped operands are for up to {_SWAPPED_UP_TO} rows; {M} rows fill those of the matrix instructions",
        ),
        Constraint(
            "accumulator", lambda FORM, BLOCK_M, BLOCK_N, SUMS, num_warps: FORM == "gluon"  # twice the warps multiply
            or _MOST_SUMS * num_warps >= 8 * BLOCK_M * BLOCK_N * (SUMS if FORM == "parts" else 1),
            "an accumulator of {BLOCK_M} by {BLOCK_N} takes over 128 registers of each thread of {num_warps} warps",
        ),
        Constraint(
            "order", lambda GROUP_SIZE_M, BLOCK_M, SWAPPED: GROUP_SIZE_M == _LONGEST_GROUP
            or (N if SWAPPED else M) > min(GROUP_SIZE_M, _LONGEST_GROUP) * BLOCK_M,
            "groups of {GROUP_SIZE_M} tile rows are groups of 8 where there are no more",
        ),
        Constraint(
            "two_programs", lambda PROGRAMS, BLOCK_M, BLOCK_N: PROGRAMS < 2 or BLOCK_M * BLOCK_N <= _TWO_FIT,
            "two programs with accumulators of {BLOCK_M} by {BLOCK_N} do not fit on a multiprocessor",
        ),
        Constraint(
            "deep", lambda num_stages, BLOCK_N, SWAPPED, PROGRAMS: num_stages <= _MOST_STAGES
            or (max(BLOCK_N, M) <= _SWAPPED_UP_TO and not SWAPPED and PROGRAMS == 0),
            f"over {_MOST_STAGES} stages are for the small steps of few rows, here {M}, and columns",
        ),
    )  # fmt: skip


def _copy_rules(has_descriptors: bool, result: bool) -> tuple[Constraint, ...]:
    return (
        *tiles.descriptor_rules(LOADS if has_descriptors else LOADS[:1], "BLOCK_K", tiles.K_STEP_BYTES),
        Constraint(
            "walk", lambda PROGRAMS, LOADS: PROGRAMS == 0 or has_descriptors == (LOADS != "pointers"),
            "programs that walk over tiles copy them by descriptors, where there can be any: pointers take registers",
        ),
        Constraint(
            "halves",
            lambda HALVES, LOADS, SWAPPED, BLOCK_M, BLOCK_N: not HALVES
            or (result and LOADS != "pointers" and not SWAPPED and min(BLOCK_M, BLOCK_N // 2) >= HALVED_SIDE),
            "halves of a tile of C are stored by descriptors, one after the other, if each has 64 rows and columns",
        ),
    )  # fmt: skip


def _promotion(blocked: bool) -> tuple[Constraint, ...]:
    ahead = Constraint(
        "ahead",
        lambda AHEAD, PROGRAMS, num_stages: (
            AHEAD == 0 or (blocked and (AHEAD == 1 or (PROGRAMS == 0 and AHEAD * num_stages <= _MOST_UNROLLED)))
        ),
        "scales are read {AHEAD} steps ahead if they are by block; over one step if no program walks, "
        "and {AHEAD} unrolled steps of {num_stages} stages are not too many",
    )
    sums = Constraint(
        "sums",
        lambda FORM, SUMS, num_warps: num_warps <= SUMS if FORM == "parts" else 1 + (FORM == "gluon") == SUMS,
        "the form of parts has several sums, one for each warp at least, that in Gluon two, and the others one",
    )
    promotion = Constraint(
        "promotion", lambda PROMOTE, BLOCK_K: (1 if blocked else BLOCK_K) > PROMOTE,
        "{PROMOTE} terms are a whole step of {BLOCK_K} or more, which 0 says too, as for scales by block",
    )  # fmt: skip
    return ahead, sums, promotion


def takes_descriptors(a: TensorSpec, b: TensorSpec) -> bool:
    """Tell whether the hardware can describe both factors as they lie in memory, along K."""
    shown = TensorSpec(b.shape[::-1], b.dtype, b.strides[::-1], aligned=b.aligned)  # of B, as [N, K]
    return min(a.shape) > 0 and describable(a, shown)


def as_its_form(config: Config, space: Callable[[], ConfigSpace]) -> Config:
    """A config of the caller's own as its form runs it: in Gluon with as many buffers as the result leaves room for.

    Raises:
        ConfigValueError: The form has no such config, or cannot have the problem.
        ConfigValueError: BUFFERS, APART or several SUMS are given without theirs.
    """
    form = str(config.get("FORM", FORMS[0]))
    if form == "triton":
        for name, owner, fitting in (("BUFFERS", "gluon", (0,)), ("APART", "gluon", (0,)), ("SUMS", "parts", (1,))):
            if name in config and config[name] not in fitting:
                raise ConfigValueError(
                    f"{name} is {config[name]!r}, and only the form {owner} has it",
                    hint=f"add FORM={owner!r}, or leave {name} out",
                )
        return config
    has = {"gluon": _GLUON_HAS, "parts": {"SUMS": 4, **_PARTS_HAVE}, "steps": _STEPS_HAVE}[form]
    own: dict[str, Any] = {"GROUP_SIZE_M": 8, "APART": False, **has, **config}
    own |= {} if form == "parts" else {"num_stages": 4}
    counts = [own["BUFFERS"]] if "BUFFERS" in own else [count for count in _BUFFERS if bool(count) == (form != "parts")]
    problem_space = space()
    reasons = {count: problem_space.why_not(Config({**own, "BUFFERS": count})) for count in counts}
    if (buffers := next((count for count, why in reasons.items() if why is None), None)) is None:
        why = min(map(str, reasons.values()), key=lambda why: why.startswith("buffers: "))  # tells most what is amiss
        raise ConfigValueError(f"FORM is {form!r}, which this call cannot have: {why}", hint="leave FORM out")
    return Config({**config, "BUFFERS": buffers})


@lru_cache(maxsize=1024)
def default_config(M: int, N: int, K: int, kind: str = "tiles") -> Config:
    """The untuned config: tiles of 128 by 128, smaller for a smaller product, and steps of 128 terms.

    `kind` is `tiles`, `swapped` for up to 64 rows, `described` for more, or the form of parts or of steps.

    Source: of parts, what was fast on an H200 at 16x1280x2944, 16x4096x4096, 16x1024x4096 and 2x640x15696; of steps, at
    48x4096x4096, 200x2048x7168, 64x1024x12992 and 144x3456x6528; swapped, at 64x2944x976, 30x9328x1152, 25x5632x5760,
    2x3072x896, 4x5632x1792 and 16x12288x2944; described, at 176x4176x1328, 256x5408x1280 and 864x1152x768.
    """
    if kind == "steps":
        own = {"FORM": "steps", "BUFFERS": 8, "APART": False, "BLOCK_N": _steps_columns(M, N, K), "GROUP_SIZE_M": 8}
        return Config({**_STEPS_TILE, **_STEPS_HAVE, **own})
    if kind == "parts":
        return Config(
            _PARTS_HAVE, FORM="parts", BUFFERS=0, APART=False, BLOCK_M=16, BLOCK_N=8 if 8 * _UNITS >= N else 16,
            BLOCK_K=min(padded(K, 128), 1024 if K >= _LONG and _FEW_COLUMNS >= N else 512), SUMS=4, num_warps=4,
            num_stages=4,
        )  # fmt: skip
    swapped, described = kind == "swapped", kind == "described"
    rows, columns = min(padded(M, 16), 128), min(padded(N, 32), 64 if M <= 32 else 128)
    if swapped:
        rows, columns = 64, padded(M, 16) if M <= 16 or -(-N // 64) > _UNITS // 2 else 32
    elif described and -(-M // rows) * -(-N // columns) <= _UNITS:
        rows = 64
    warps = 8 if rows * columns >= 128 * 128 else 4  # a sum that is promoted takes its registers twice
    return Config(
        LOADS="host" if described else "pointers", SWAPPED=swapped, PROGRAMS=0, BLOCK_M=rows, BLOCK_N=columns,
        BLOCK_K=min(padded(K, 64), 128), GROUP_SIZE_M=8, PROMOTE=0, HALVES=False, SUMS=1, AHEAD=0, num_warps=warps,
        num_stages=5 if swapped or described else 4, FORM="triton", BUFFERS=0, APART=False,
    )  # fmt: skip


DTYPES = ("bfloat16", "float16", "float32")
LEAST_GAIN = 0.05
SCALINGS = {1: "tensor", 2: "row", 3: "block", 4: "tensor"}
"""How scales lie over the inputs, by the number that stands in a shape."""
_FAST = 4  # as 1, with sums that are not promoted

PROBLEMS: dict[str, tuple[tuple[int, ...], str]] = {
    "8192": ((8192, 8192, 8192, 1), "bfloat16"),
    "8192-fast": ((8192, 8192, 8192, 4), "bfloat16"),
    "4096-by-row": ((4096, 4096, 4096, 2), "bfloat16"),
    "llama-8b-up-prefill": ((4096, 14336, 4096, 2), "bfloat16"),
    "llama-8b-up-decode": ((16, 14336, 4096, 2), "bfloat16"),
    "llama-8b-keys-decode": ((16, 1024, 4096, 2), "bfloat16"),
    "llama-70b-down-chunk": ((512, 8192, 28672, 2), "bfloat16"),
    "deepseek-v3-down-prefill": ((4096, 7168, 2048, 3), "bfloat16"),
    "deepseek-v3-up-decode": ((64, 4096, 7168, 3), "bfloat16"),
    "odd": ((1000, 777, 520, 1), "float16"),
}


def arguments(
    M: int = 4096, N: int = 4096, K: int = 4096, scaling: int = 1, dtype: str = "bfloat16"
) -> dict[str, TensorSpec | int | bool | None]:
    """The kernel's arguments, by name, in the order of its parameters; `dtype` is that of the product.

    A is row-major, and B column-major, as a transposed weight is: Hopper's tensor cores read 8-bit floats along K only.
    `scaling` is 1 for a scale for each tensor, 2 for each row of A and column of B, 3 for blocks of 128; 4 is 1 with
    the faster sums, which are not promoted.

    Raises:
        ShapeMismatchError: Elements of one tile would lie 2^31 or more elements apart, or `scaling` is none of these.
    """
    if scaling not in SCALINGS:
        raise ShapeMismatchError(f"scaling is {scaling}; it must be 1, 2, 3 or 4", "1 to 4", scaling)
    a = TensorSpec((M, K), FP8Format.name)
    b = TensorSpec((K, N), FP8Format.name, (1, K))
    c = TensorSpec((M, N), dtype, fill="empty")
    shapes = scale_shapes(M, N, K)[SCALINGS[scaling]]
    a_scale, b_scale = (TensorSpec(shape, "float32", fill="positive") for shape in shapes)
    return launch_values(a, b, c, a_scale, b_scale, SCALINGS[scaling] == "block", scaling == _FAST)


def launch_values(
    a: Any, b: Any, c: Any, a_scale: Any, b_scale: Any, blocked: bool = False, fast: bool = False
) -> dict[str, Any]:
    """The kernel's arguments for tensors, or what describes them, without the bias, which does not decide the config.

    Scales are matrices, with a stride of 0 along an axis that has one of them; strides are in elements.
    """
    (M, K), N = a.shape, b.shape[1]
    (am, ak), (bk, bn) = reached_strides(a=a, b=b)
    scales = [
        0 if extent == 1 else step
        for scale in (a_scale, b_scale) for extent, step in zip(scale.shape, strides_of(scale), strict=True)
    ]  # fmt: skip
    return {
        "a": a, "b": b, "c": c, "a_scale": a_scale, "b_scale": b_scale, "bias": None, "M": M, "N": N, "K": K,
        "stride_am": am, "stride_ak": ak, "stride_bk": bk, "stride_bn": bn,
        **dict(zip(("stride_asm", "stride_ask", "stride_bsk", "stride_bsn"), scales, strict=True)),
        # A new row-major result can have a descriptor if its rows begin at multiples of 16 bytes; it repeats an extent.
        "BLOCKED": blocked, "FAST": fast, "C_DESCRIBED": int(N * tiles.item_bytes_of(c) % ALIGNMENT_BYTES == 0),
    }  # fmt: skip


def scale_shapes(M: int, N: int, K: int) -> dict[str, tuple[tuple[int, int], tuple[int, int]]]:
    """The shapes of both scales by how they lie over the inputs."""
    size = FP8Format.block
    return {
        "tensor": ((1, 1), (1, 1)),
        "row": ((M, 1), (1, N)),
        "block": ((M, -(-K // size)), (-(-K // size), -(-N // size))),
    }


def work(problem: Problem) -> Work:
    """The work: 2MNK operations; A and B read once, C written once."""
    M, N, K, specs = problem["M"], problem["N"], problem["K"], problem.specs
    blocked, fast = bool(problem["BLOCKED"]), bool(problem["FAST"])
    tiles = ProductTiles.of((M, N, K), specs["a"], specs["b"], specs["c"], promoted=blocked or not fast, scaled=blocked)
    return Work(2.0 * M * N * K, float(sum(spec.nbytes for spec in specs.values())), tiles)


def fp8_gemm_reference(
    a: Tensor, b: Tensor, c: Tensor, a_scale: Tensor, b_scale: Tensor, bias: Tensor | None = None, **_given: object
) -> Tensor:
    """Compute `(a / a_scale) @ (b / b_scale) + bias` in float32 or wider, rounded once to the dtype of `c`.

    Cost: wide copies of both inputs, and a wide product.
    """
    torch = require("torch", "the reference of fp8_gemm")
    wide = torch.float64 if a.dtype == torch.float64 else torch.float32
    found = FP8Format.restored(a, a_scale, wide) @ FP8Format.restored(b, b_scale, wide)
    return (found if bias is None else found + bias.to(wide)).to(c.dtype)
