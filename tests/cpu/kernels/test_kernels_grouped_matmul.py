"""The grouped product: numbers from Triton's interpreter beside a loop in float64, its space, work and errors."""

import itertools
import json
import math

import pytest
import torch

from tests.near import drawn, error_of, off
from triton_ops.backend import Arguments
from triton_ops.benchmark import CorrectnessVerifier
from triton_ops.exceptions import DeviceError, KernelTypeError, ShapeMismatchError, UnsupportedDtypeError
from triton_ops.space import Config
from triton_ops_kernels.grouped_matmul import grouped_matmul, operation
from triton_ops_kernels.grouped_matmul.problems import grouped_matmul_reference

pytestmark = pytest.mark.triton

SMALL = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2}
FORMS = {
    "default": None,
    "small": SMALL,
    "order": {**SMALL, "GROUP_SIZE_M": 1},
    "descriptors": {**SMALL, "DESCRIPTORS": True},
    "programs": {**SMALL, "PROGRAMS": 2},
    "both": {**SMALL, "DESCRIPTORS": True, "PROGRAMS": 1},
}
ROUNDING = {"float32": 1e-5, "float16": 2**-10}
SIZES = {
    "uneven": (18, 0, 1, 3),
    "the first and the last empty": (0, 5, 0),
    "one": (3,),
    "all in one": (0, 0, 20, 0, 0),
    "no row": (0, 0),
    "a row each": (1, 1, 1, 1, 1),
}


def inputs(sizes, N, K, dtype="float32", turned=False):
    """x, weights in one of both layouts, and ends."""
    kind, groups = getattr(torch, dtype), len(sizes)
    weight = drawn(groups, N, K, dtype=kind).transpose(1, 2) if turned else drawn(groups, K, N, dtype=kind)
    return drawn(sum(sizes), K, dtype=kind), weight, torch.tensor(sizes).cumsum(0).to(torch.int32)


def expected(x, weight, ends, gather=None):
    """A loop of products in float64."""
    rows = x.double() if gather is None else x.double()[gather.long()]
    starts = [0, *ends.tolist()]
    parts = [rows[a:b] @ weight[g].double() for g, (a, b) in enumerate(itertools.pairwise(starts))]
    return torch.cat(parts)


def errors(sizes, N, K, chosen, dtype="float32"):
    """The largest error over both layouts of the weights, with and without an index of the rows."""
    result = []
    for turned, kind in ((False, None), (True, None), (True, torch.int32), (False, torch.int64)):
        x, weight, ends = inputs(sizes, N, K, dtype, turned)
        gather = None if kind is None else (torch.arange(len(x)).flip(0) // 2).to(kind)
        out = grouped_matmul(x, weight, ends.to(kind or torch.int32), gather, config=chosen)
        assert (tuple(out.shape), out.dtype, out.is_contiguous()) == ((len(x), N), x.dtype, True)
        result.append(off([out], [expected(x, weight, ends, gather)]))
    return max(result)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_that_of_float64(interpreted, form, dtype):
    # 40 is no multiple of a tile, and rows of it start where descriptors need them to.
    assert interpreted(errors, (17, 0, 1), 40, 40, FORMS[form], dtype) <= ROUNDING[dtype]


@pytest.mark.parametrize("form", ["default", "programs"])
@pytest.mark.parametrize("sizes", SIZES)
def test_sizes_of_groups_may_be_any(interpreted, sizes, form):
    assert interpreted(errors, SIZES[sizes], 7, 9, FORMS[form]) <= ROUNDING["float32"]


def whole_steps():
    return errors((9, 20), 16, 256, SMALL)


def test_steps_that_divide_the_sum_need_no_masks(interpreted):
    assert interpreted(whole_steps) <= ROUNDING["float32"]


def kept_memory(ends, kind, programs):
    """Whether wrong ends leave the memory around the result alone; and the error of rows that the ends still name."""
    x, weight, _ = inputs((4, 9), 12, 20)
    memory = torch.full((39, 12), 7.0)
    values = {
        **dict(operation.problem((13, 2, 12, 20, 1), "float32").arguments),
        "x": x, "weight": weight, "out": memory[13:26], "ends": torch.tensor(ends).to(kind),
    }  # fmt: skip
    chosen = Config({**SMALL, "PROGRAMS": programs})
    operation.kernel.executable(chosen).launch(Arguments(keyword=values))
    return torch.cat([memory[:13], memory[26:]]).eq(7).all().item(), off(
        [memory[17:26]], [(x[4:] @ weight[1]).double()]
    )


@pytest.mark.parametrize("programs", [0, 1])
def test_wrong_ends_leave_other_memory_alone(interpreted, programs):
    assert interpreted(kept_memory, (-5, 13), torch.int32, programs)[0]
    assert interpreted(kept_memory, (13, 4), torch.int32, programs)[0]
    for last in (2**31 + 13, 2**32 + 3, 2**62):
        kept, error = interpreted(kept_memory, (4, last), torch.int64, programs)
        assert (kept, error < ROUNDING["float32"]) == (True, True)


def strided_error():
    """A slice of x, x by columns, and weights with gaps."""
    x, weight, ends = inputs((4, 9), 12, 20)
    wide, apart = torch.zeros(13, 31), torch.zeros(4, 40, 24)[::2, ::2, ::2]
    wide[:, 5:25] = x
    right = expected(x, weight, ends)
    result = [grouped_matmul(each, weight, ends) for each in (wide[:, 5:25], x.t().contiguous().t())]
    return off([*result, grouped_matmul(x, apart.copy_(weight), ends)], [right] * 3)


def test_any_strides_are_taken(interpreted):
    assert interpreted(strided_error) <= ROUNDING["float32"]


def spoilt(value):
    """The rows that are not finite after an element of row 5 and one of the second weight got a value."""
    x, weight, ends = inputs((4, 3, 6), 12, 20)
    x[5, 3] = value
    first = grouped_matmul(x, weight, ends, config=SMALL).isfinite().all(-1)
    x, weight, ends = inputs((4, 3, 6), 12, 20)
    weight[1, 2, 3] = value
    second = grouped_matmul(x, weight, ends, config=SMALL).isfinite().all(-1)
    return [(~each).nonzero().flatten().tolist() for each in (first, second)]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_reach_their_row_or_their_group(interpreted, value):
    assert interpreted(spoilt, value) == [[5], [4, 5, 6]]


def extreme_errors():
    """Of products near float32's end, of zeros, and of float16's smallest numbers."""
    x, weight, ends = inputs((4, 9), 12, 20)
    cases = [(1e18 * x, 1e18 * weight), (0 * x, weight), (x, 1e-30 * weight)]
    small = (2**-24 * torch.ones(13, 20)).half(), (2**10 * torch.ones(2, 20, 12)).half()
    return max(off([grouped_matmul(*case, ends)], [expected(*case, ends)]) for case in (*cases, small))


def test_extreme_values_are_those_of_float64(interpreted):
    assert interpreted(extreme_errors) <= ROUNDING["float16"]


def whole_numbers(chosen):
    x, weight, ends = inputs((20, 0, 13), 40, 72, "float16", turned=True)
    x, weight = x.sign(), weight.sign()
    return torch.equal(grouped_matmul(x, weight, ends, config=chosen).double(), expected(x, weight, ends))


@pytest.mark.parametrize("form", FORMS)
def test_products_of_small_whole_numbers_are_exact(interpreted, form):
    assert interpreted(whole_numbers, FORMS[form])


def verdicts(fill):
    """What the rule for verdicts says of the result, and of one with the ends one row off."""
    problem = operation.problem((40, 3, 48, 64, 2), "float16")
    values = dict(operation.materialise(problem, "cpu").keyword)
    for name in ("x", "weight"):
        spec = problem.specs[name]
        values[name] = type(spec)(spec.shape, spec.dtype, spec.stride, fill).create_tensor("cpu", len(name))
    message = []
    for ends in (values["ends"], (values["ends"] - 1).clamp(min=1)):
        values["out"].zero_()
        given = operation.kernel.executable(Config(SMALL))
        given.launch(Arguments(keyword={**values, "ends": ends}))
        verifier = CorrectnessVerifier()
        message.append(verifier.verify_by_rule(values["out"], operation.reference, kwargs=values, outputs=("out",))[0])
    return message


@pytest.mark.parametrize("fill", ["uniform", "outliers"])
def test_result_is_right_by_the_rule_and_one_of_other_ends_is_not(interpreted, fill):
    assert interpreted(verdicts, fill) == [True, False]


def test_reference_is_a_loop_that_leaves_rows_of_no_group_at_zero():
    x, weight, ends = inputs((4, 0, 9), 6, 8)
    result = grouped_matmul_reference(x, weight, torch.empty(13, 6), ends, None)
    torch.testing.assert_close(result.double(), expected(x, weight, ends), rtol=1e-5, atol=1e-5)
    rest = grouped_matmul_reference(x, weight, torch.empty(13, 6), ends - 2, None)
    assert rest[11:].eq(0).all()


def test_arguments_have_ends_that_rise_to_the_number_of_rows():
    values = operation.materialise(operation.problem((100, 16, 8, 8, 2)), "cpu").keyword
    sizes = values["ends"].diff(prepend=torch.zeros(1, dtype=torch.int32))
    assert sizes.sum() == 100
    assert sizes.min() == 0
    assert len(set(sizes.tolist())) > 4


def why_not(shape, **values):
    space = operation.space_for(operation.problem(shape, "bfloat16"))
    return (space.why_not(Config({**space.default_config, **values})) or "").partition(":")[0]


PREFILL, DECODE = (8192, 8, 28672, 4096, 2), (64, 8, 28672, 4096, 2)


def test_space_says_why_a_config_is_left_out():
    assert why_not(PREFILL) == why_not(DECODE) == why_not(DECODE, BLOCK_M=32) == ""
    assert why_not(DECODE, BLOCK_M=128) == "rows"
    assert why_not(PREFILL, num_warps=4, BLOCK_M=256) == "accumulator"
    assert why_not(PREFILL, BLOCK_M=64) == "warps"
    assert why_not(PREFILL, DESCRIPTORS=True) == why_not((64, 8, 64, 64, 1), DESCRIPTORS=True) == ""
    assert (
        why_not((64, 8, 63, 65, 2), DESCRIPTORS=True) == why_not((64, 8, 63, 64, 1), DESCRIPTORS=True) == "descriptors"
    )


@pytest.mark.parametrize(("dtype", "steps"), [("bfloat16", [64, 128]), ("float32", [32, 64])])
def test_the_default_takes_longer_steps_where_rows_are_few(dtype, steps):
    defaults = [operation.space_for(operation.problem(shape, dtype)).default_config for shape in (PREFILL, DECODE)]
    assert [config["BLOCK_K"] for config in defaults] == steps


def test_work_reads_the_weights_that_are_used():
    assert operation.work(operation.problem((100, 4, 16, 32, 1), "float16")).flops == 2 * 100 * 16 * 32
    assert operation.work(operation.problem((100, 4, 16, 32, 1), "float16")).bytes == 2 * (
        100 * 32 + 4 * 32 * 16 + 100 * 16
    )
    assert operation.work(operation.problem((2, 4, 16, 32, 1), "float16")).bytes == 2 * (2 * 32 + 2 * 32 * 16 + 2 * 16)


@pytest.mark.parametrize("form", [{}, {"DESCRIPTORS": True}, {"DESCRIPTORS": True, "PROGRAMS": 1}])
@pytest.mark.parametrize("shape", [PREFILL, DECODE])
def test_forms_compile_for_hopper_and_fit(cli, shared_fork_server, shape, form):
    config = {**operation.space_for(operation.problem(shape)).default_config, **form}
    words = [word for name, value in config.items() for word in ("--space", f"{name}={str(value).lower()}")]
    asked = ("--gpu", "sm_90", "--shape", "x".join(map(str, shape)), "--timeout", "600", "--json")
    ran = cli("compile", "grouped_matmul", *asked, *words)
    assert ran.code == 0, ran.err
    (result,) = json.loads(ran.out)["items"]
    assert (result["status"], result["mma"]) == ("ok", "wgmma" if shape is PREFILL else "mma.sync")
    assert result["spill_bytes"] <= 64


X, WEIGHT, ENDS = torch.zeros(5, 4), torch.zeros(2, 4, 3), torch.tensor([2, 5], dtype=torch.int32)
ERRORS = {
    "no tensor": ((X, WEIGHT, [2, 5]), KernelTypeError, None),
    "gradient": ((X.clone().requires_grad_(), WEIGHT, ENDS), KernelTypeError, None),
    "dtype of x": ((X.int(), WEIGHT, ENDS), UnsupportedDtypeError, "x"),
    "dtype of weight": ((X, WEIGHT.half(), ENDS), UnsupportedDtypeError, "weight"),
    "dtype of ends": ((X, WEIGHT, ENDS.float()), UnsupportedDtypeError, "ends"),
    "dtype of gather": ((X, WEIGHT, ENDS, X[:, 0]), UnsupportedDtypeError, "gather"),
    "layout of ends": ((X, WEIGHT, ENDS.repeat(2)[::2]), ShapeMismatchError, "ends"),
    "rank of x": ((X[0], WEIGHT, ENDS), ShapeMismatchError, "x"),
    "rank of weight": ((X, WEIGHT[0], ENDS), ShapeMismatchError, "weight"),
    "columns": ((X, torch.zeros(2, 5, 3), ENDS), ShapeMismatchError, "weight"),
    "groups": ((X, WEIGHT, ENDS[:1]), ShapeMismatchError, "ends"),
    "no group": ((X, WEIGHT[:0], ENDS[:0]), ShapeMismatchError, "weight"),
    "rank of gather": ((X, WEIGHT, ENDS, ENDS[None]), ShapeMismatchError, "gather"),
    "rows of nothing": ((X[:0], WEIGHT, ENDS, ENDS), ShapeMismatchError, "gather"),
    "negated view": ((torch._neg_view(X), WEIGHT, ENDS), KernelTypeError, None),
}


@pytest.mark.parametrize("what", ERRORS)
def test_bad_inputs_are_refused(interpreted, what):
    given, error, name = ERRORS[what]
    assert interpreted(error_of, grouped_matmul, *given) == (error.__name__, name)


CONFIGS = {
    "no row in turn": {"GROUP_SIZE_M": 0},
    "fewer programs than none": {"PROGRAMS": -1},
    "half a program": {"PROGRAMS": 1.5},
    "descriptors of uneven rows": {"DESCRIPTORS": True},
}


@pytest.mark.parametrize("what", CONFIGS)
def test_configs_that_would_compute_something_else_are_refused(interpreted, what):
    given = torch.zeros(5, 5), torch.zeros(2, 5, 3), ENDS
    chosen = {**SMALL, **CONFIGS[what]}
    assert interpreted(error_of, grouped_matmul, *given, config=chosen) == ("ConfigValueError", None)


def test_cpu_tensors_are_a_device_error():
    with pytest.raises(DeviceError, match="x is on cpu"):
        grouped_matmul(X, WEIGHT, ENDS)


def test_a_layout_that_is_none_is_refused():
    with pytest.raises(ShapeMismatchError, match="layout is 3"):
        operation.problem((8, 2, 4, 4, 3))
