"""The matmul: numbers from Triton's interpreter beside float64, its problems and space, and its errors."""

import itertools
import math
import random
from types import SimpleNamespace

import pytest
import torch

from tests.near import drawn, off
from triton_ops.backend import Arguments
from triton_ops.dispatch.traced import Conditions, Traced
from triton_ops.exceptions import (
    ConfigValueError,
    DeviceError,
    KernelTypeError,
    SettingsError,
    ShapeMismatchError,
    UnknownTunableError,
    UnsupportedDtypeError,
)
from triton_ops.space import Config
from triton_ops.values import TensorSpec
from triton_ops_kernels import call, tiles
from triton_ops_kernels.matmul import kernel, matmul, operation
from triton_ops_kernels.matmul.problems import (
    ACTIVATIONS,
    default_config,
    launch_values,
    loads_of,
    plain_space,
)
from triton_ops_kernels.shipped import ShippedKernel

pytestmark = pytest.mark.triton

SMALL = {"BM": 16, "BN": 32, "BK": 32, "GROUP_M": 8, "num_warps": 4, "num_stages": 2}
CONFIGS = [
    SMALL,
    {**SMALL, "BM": 32, "BN": 64},
    {**SMALL, "BM": 64, "BK": 64, "num_warps": 8},
    {**SMALL, "BM": 256, "BN": 256, "BK": 128, "num_stages": 5},
]
# Name to shape, config (None is the default) and layout of a, b and out: rows, columns, gaps or offset.
CASES = {
    **{f"odd-{number}": ((37, 45, 51), config, "rows rows rows") for number, config in enumerate(CONFIGS)},
    "default": ((70, 90, 130), None, "rows rows rows"),
    "even": ((32, 64, 64), SMALL, "rows rows rows"),
    "a-transposed": ((37, 45, 51), SMALL, "columns rows rows"),
    "b-transposed": ((37, 45, 51), SMALL, "rows columns rows"),
    "both-transposed": ((37, 45, 51), SMALL, "columns columns columns"),
    "gaps": ((37, 45, 51), SMALL, "gaps gaps gaps"),
    "misaligned": ((37, 45, 51), SMALL, "offset offset offset"),
    "two-groups": ((16 * 9 + 5, 70, 33), SMALL, "rows rows rows"),
    "one-row": ((1, 45, 51), None, "rows rows rows"),
    "one-column": ((37, 1, 51), SMALL, "rows rows rows"),
    "one-step": ((37, 45, 1), SMALL, "rows rows rows"),
    "one-element": ((1, 1, 1), None, "rows rows rows"),
    "long-sum": ((16, 32, 4096), {**SMALL, "BK": 128}, "rows rows rows"),
    "pairs": ((38, 46, 50), SMALL, "rows rows rows"),
    "a-described": ((40, 46, 64), {**SMALL, "BK": 64, "LOADS": "host_a"}, "rows rows rows"),
    "b-described": ((37, 64, 130), {**SMALL, "BK": 64, "LOADS": "host_b", "SWAPPED": True}, "rows rows rows"),
    "both-described": ((40, 45, 64), {**SMALL, "BK": 64, "LOADS": "host_ab"}, "rows columns rows"),
    "no-sum": ((5, 7, 0), SMALL, "rows rows rows"),
    "no-rows": ((0, 7, 5), SMALL, "rows rows rows"),
}


def laid_out(values, layout):
    rows, columns = values.shape
    if layout == "columns":
        place = values.new_empty(columns, rows).t()
    elif layout == "gaps":
        place = values.new_empty(2 * rows, 3 * columns)[::2, ::3]
    elif layout == "offset":
        place = values.new_empty(rows, columns + 3)[:, 1:-2]
    else:
        place = values.new_empty(rows, columns)
    return place.copy_(values)


def answer(name, shape, config, layouts):
    """What the function returns and writes for a case."""
    (M, N, K), layout = shape, layouts.split()
    shift = 0.5 if name == "long-sum" else 0.0
    a = laid_out(drawn(M, K, dtype=torch.float16, shift=shift), layout[0])
    b = laid_out(drawn(K, N, dtype=torch.float16, shift=shift), layout[1])
    out = laid_out(torch.full((M, N), float("nan"), dtype=torch.float16), layout[2])
    right = a.double() @ b.double()
    returned = matmul(a, b, out=out, config=config)
    fresh = matmul(a, b, config=config) if layout[2] == "rows" else out
    return {
        "is_out": returned is out,
        "fresh_equal": torch.equal(fresh, out),
        "fresh_dtype": str(fresh.dtype),
        "shape": tuple(out.shape),
        "largest": right.abs().max().item() if right.numel() else 0.0,
        "error": (out.double() - right).abs().max().item() if right.numel() else 0.0,
    }


def all_answers():
    return {name: answer(name, *given) for name, given in CASES.items()}


@pytest.fixture(scope="session")
def answers(interpreted):
    return interpreted(all_answers)


@pytest.mark.parametrize("name", CASES)
def test_product_is_that_of_float64(answers, name):
    answer = answers[name]
    assert answer["shape"] == CASES[name][0][:2]
    # One rounding to float16 (2^-11) of a float32 sum over K (2^-24 per step, far below).
    assert answer["error"] <= answer["largest"] * 2**-11 + 1e-6


@pytest.mark.parametrize("name", CASES)
def test_out_is_filled_and_returned_or_allocated_in_the_dtype_of_a(answers, name):
    assert answers[name]["is_out"]
    assert answers[name]["fresh_equal"]
    assert answers[name]["fresh_dtype"] == "torch.float16"


def test_arguments_are_the_kernels_parameters_in_order():
    problem = operation.problem((64, 48, 32), "float16")
    names = [name for name, _ in problem.arguments]
    assert names == operation.kernel.parameter_names[: len(names)]
    assert [problem[f"stride_{axes}"] for axes in ("am", "ak", "bk", "bn", "cm", "cn")] == [32, 1, 48, 1, 48, 1]
    assert problem["c"].fill == "empty"
    assert operation.extents == ("M", "N", "K")


def test_float8_has_columns_of_b_together_and_a_bfloat16_product():
    problem = operation.problem((64, 48, 32), "fp8")
    assert problem["b"].strides == (1, 32)
    assert (problem["stride_bk"], problem["stride_bn"]) == (1, 32)
    assert problem["c"].dtype == "bfloat16"


@pytest.mark.parametrize("dtype", operation.dtypes)
def test_reference_of_dummies_has_dtype_and_shape_of_the_output(dtype):
    problem = operation.problem((9, 8, 7), dtype)
    values = operation.materialise(problem, "cpu").keyword
    right = operation.reference(**values)
    assert (right.shape, right.dtype) == (values["c"].shape, values["c"].dtype)
    exact = values["a"].double() @ values["b"].double()
    torch.testing.assert_close(right.double(), exact, rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize("name", operation.problems)
def test_named_problem_has_a_space_with_its_default_that_fits_the_kernel(name):
    problem = operation.problem(*operation.problems[name])
    space = operation.space_for(problem)
    assert space.why_not(space.default_config) is None
    assert all(value in space.tunables[tunable] for tunable, value in space.default_config.items())
    operation.kernel.check(space.tunables, Arguments(keyword=dict(problem.arguments)))


def test_plain_space_has_480_configs_and_every_one_is_valid_for_a_large_product():
    size = plain_space(operation.problem((4096, 4096, 4096), "bfloat16")).size
    assert (size.total, size.valid, size.exact) == (480, 480, True)


def test_small_products_leave_out_tiles_over_twice_their_size():
    space = plain_space(operation.problem((16, 14336, 4096), "bfloat16"))
    assert {config["BM"] for config in space} == {16, 32}
    assert {config["BN"] for config in space} == {32, 64, 128, 256}
    assert space.why_not({**space.default_config, "BM": 64}) == ("rows: 64 rows are over twice the padded M of 16")
    assert plain_space(operation.problem((1, 1, 1), "bfloat16")).size.valid == 8


@pytest.mark.parametrize("name", operation.problems)
def test_space_is_small_enough_to_be_held_whole_and_has_every_algorithm_that_suits(name):
    problem = operation.problem(*operation.problems[name])
    space = operation.space_for(problem)
    assert 300 <= space.size.valid <= 5_000
    assert space.size.exact
    result = {(config["ALGORITHM"], config["LOADS"], config["SWAPPED"]) for config in space}
    algorithms = {algorithm for algorithm, _, _ in result}
    assert {"tiles", "persistent"} <= algorithms
    assert ("stream_k" in algorithms) == ("8192" not in name)  # whose tiles fill any device
    assert ("persistent", "host", False) in result or name == "odd"  # rows of 777 elements cannot be described
    assert ("persistent", "pointers", False) not in result or name == "odd"
    assert any(swapped for _, _, swapped in result) == name.endswith("decode")


REFUSED = {
    "rows": ({"BM": 16}, "rows: 16 rows are too few or too many for 4096 rows"),
    "accumulator": ({"BM": 256, "BN": 256}, "accumulator: an accumulator of 256 by 256 takes over 128 registers"),
    "swapped": ({"SWAPPED": True}, "swapped: swapped operands are for up to 64 rows; 4096 rows"),
    "box": ({"LOADS": "host", "BK": 32}, "box: a step of 32 fills no row of 128 bytes"),
    "described": ({"LOADS": "device"}, "described: a program of one tile would make its descriptors for that alone"),
    "walk": ({"ALGORITHM": "persistent"}, "walk: programs that walk over tiles copy them by descriptors"),
    "halves": ({"HALVES": True}, "halves: halves of a tile of C are stored by descriptors"),
    "programs": ({"PROGRAMS": 2}, "programs: tiles has its number of programs from the tiles"),
    "parts": ({"SPLIT": 2}, "parts: SPLIT is the number of parts of split_k, and 1 for tiles"),
    "long_parts": ({"ALGORITHM": "split_k", "SPLIT": 8, "BK": 128}, "long_parts: parts of K = 2048 would have under 4"),
    "few_tiles": ({"ALGORITHM": "split_k", "SPLIT": 2}, "few_tiles: over 1024 programs have work without sharing"),
}  # fmt: skip


@pytest.mark.parametrize("rule", REFUSED)
def test_each_rule_refuses_with_its_reason(rule):
    space = operation.space_for(operation.problem((4096, 4096, 2048), "bfloat16"))
    change, reason = REFUSED[rule]
    assert space.why_not(Config({**space.default_config, **change})).startswith(reason)


def test_descriptors_need_rows_of_16_bytes_and_float8_along_k():
    def loads(M, N, K, dtype, **strides):
        specs = operation.problem((M, N, K), dtype).specs
        turned = {name: TensorSpec(specs[name].shape, specs[name].dtype, each) for name, each in strides.items()}
        return loads_of({**specs, **turned}, K)

    assert loads(64, 64, 64, "bfloat16") == tiles.LOADS
    assert loads(64, 64, 64, "bfloat16", a=(1, 64), b=(1, 64)) == tiles.LOADS
    assert loads(64, 64, 68, "bfloat16", a=(68, 1), b=(1, 68)) == ("pointers",)
    assert loads(64, 60, 64, "bfloat16") == ("pointers", "host_a")
    assert loads(64, 64, 64, "bfloat16", c=(1, 64)) == ("pointers", "host_ab")
    assert loads(64, 64, 64, "bfloat16", a=(128, 2)) == ("pointers", "host_b")
    assert loads(64, 64, 64, "fp8") == tiles.LOADS
    assert loads(64, 64, 64, "fp8", b=(64, 1)) == ("pointers", "host_a")


def test_neighbours_that_are_copied_at_once_are_known_of_each_operand():
    def units(M, N, K, dtype="bfloat16"):
        problem = operation.problem((M, N, K), dtype)
        return problem["A_UNIT"], problem["B_UNIT"]

    assert units(896, 1122, 1536) == (8, 2)
    assert units(38, 2432, 13818) == (2, 8)
    assert units(300, 1001, 2004) == (4, 1)
    assert units(64, 64, 72, "fp8") == (8, 8)


def test_descriptors_of_matrices_that_cannot_have_them_are_refused_before_a_launch(anywhere):
    config = {**SMALL, "LOADS": "host"}
    with pytest.raises(ConfigValueError, match="cannot have tensor descriptors"):
        matmul(HALF, HALF.t(), config=config)


def test_default_follows_the_product():
    assert default_config(4096, 4096, 4096, "bfloat16")["BM"] == 128
    assert default_config(17, 4096, 4096, "bfloat16")["BM"] == 32
    assert default_config(1, 4096, 4096, "bfloat16")["BM"] == 16
    assert default_config(4096, 4096, 4096, "float8_e4m3fn")["BK"] == 128
    assert default_config(4096, 4096, 4096, "float16")["BK"] == 64


def test_work_counts_products_and_bytes():
    work = operation.work(operation.problem((64, 48, 32), "fp8"))
    assert work.flops == 2 * 64 * 48 * 32
    assert work.bytes == 64 * 32 + 32 * 48 + 64 * 48 * 2


def test_strides_too_large_for_the_offsets_of_a_tile_are_refused():
    b, c = (TensorSpec(shape, "float16", (8, 1)) for shape in ((8, 8), (256, 8)))
    long_b, row = TensorSpec((2**23, 8), "float16", (8, 1)), TensorSpec((1, 8), "float16")
    launch_values(TensorSpec((1, 2**23), "float16", (2**40, 1)), long_b, row)  # a single row needs no stride
    with pytest.raises(ShapeMismatchError, match="a tile would span") as raised:
        launch_values(TensorSpec((256, 8), "float16", (2**24, 1)), b, c)
    assert raised.value.tensor_name == "a"
    assert raised.value.actual == (2**24, 1)


def test_cpu_tensors_are_a_device_error_before_anything_else():
    with pytest.raises(DeviceError, match="a is on cpu") as raised:
        matmul(torch.zeros(2, dtype=torch.int8), torch.zeros(3, 3, 3), config={"BM": 1})
    assert (raised.value.expected_device, raised.value.actual_device) == ("cuda", "cpu")
    assert raised.value.tensor_name == "a"


def test_an_argument_that_is_no_tensor_is_a_type_error():
    with pytest.raises(KernelTypeError, match=r"b is a list, not a torch\.Tensor"):
        matmul(torch.zeros(2, 2), [[1.0]])


def on(device):
    return SimpleNamespace(device=torch.device(device), layout=torch.strided)


def test_tensors_of_two_gpus_are_a_device_error():
    with pytest.raises(DeviceError, match="out is on cuda:1 and a on cuda:0") as raised:
        matmul(on("cuda:0"), on("cuda:0"), out=on("cuda:1"))
    assert (raised.value.expected_device, raised.value.actual_device) == ("cuda:0", "cuda:1")
    assert raised.value.tensor_name == "out"


@pytest.fixture
def anywhere(monkeypatch):
    """CPU tensors pass for CUDA ones, so that the checks after the device can be met."""
    monkeypatch.setattr(call, "check_placement", lambda tensors, on_cpu: None)
    monkeypatch.setattr(ShippedKernel, "launch", lambda *arguments: pytest.fail("launched"))


HALF = torch.zeros(4, 6, dtype=torch.float16)
DTYPE_ERRORS = {
    "a": ((torch.zeros(4, 6), HALF.t(), None), torch.float32, list(operation.dtypes)),
    "b": ((HALF, HALF.t().bfloat16(), None), torch.bfloat16, ["float16"]),
    "out": ((HALF, HALF.t(), torch.zeros(4, 4)), torch.float32, ["float16"]),
}


@pytest.mark.parametrize("name", DTYPE_ERRORS)
def test_dtypes_that_do_not_go_together_are_refused(anywhere, name):
    (a, b, out), given, allowed = DTYPE_ERRORS[name]
    with pytest.raises(UnsupportedDtypeError, match=f"^{name} is {given}") as raised:
        matmul(a, b, out=out)
    assert (raised.value.dtype, raised.value.supported_dtypes) == (given, allowed)
    assert raised.value.tensor_name == name


def test_product_of_float8_goes_into_bfloat16_only(anywhere):
    a = HALF.to(torch.float8_e4m3fn)
    with pytest.raises(UnsupportedDtypeError) as raised:
        matmul(a, a.t(), out=torch.zeros(4, 4, dtype=torch.float16))
    assert raised.value.supported_dtypes == ["bfloat16"]


SHAPE_ERRORS = {
    "rank of a": ((HALF[0], HALF.t(), None), "a", "[M, K]", (6,)),
    "rank of b": ((HALF, HALF.t()[None], None), "b", "[K, N]", (1, 6, 4)),
    "inner extents": ((HALF, HALF, None), "b", (6, 6), (4, 6)),
    "out": ((HALF, HALF.t(), HALF), "out", (4, 4), (4, 6)),
}


@pytest.mark.parametrize("what", SHAPE_ERRORS)
def test_shapes_that_do_not_fit_are_refused(anywhere, what):
    (a, b, out), name, expected, actual = SHAPE_ERRORS[what]
    with pytest.raises(ShapeMismatchError) as raised:
        matmul(a, b, out=out)
    assert raised.value.tensor_name == name
    assert (raised.value.expected, raised.value.actual) == (expected, actual)


def test_bias_and_activation_are_checked(anywhere):
    right = torch.zeros(4, dtype=torch.float32)
    for bias, error in ((right.double(), UnsupportedDtypeError), (right[:3], ShapeMismatchError)):
        with pytest.raises(error) as raised:
            matmul(HALF, HALF.t(), bias=bias)
        assert raised.value.tensor_name == "bias"
    with pytest.raises(ShapeMismatchError, match="bias is not contiguous"):
        matmul(HALF, HALF.t(), bias=torch.zeros(8)[::2])
    with pytest.raises(SettingsError, match="activation is 'tanh'; it must be 'none' or 'relu' or 'gelu' or 'silu'"):
        matmul(HALF, HALF.t(), activation="tanh")


def test_dtype_is_told_before_shape(anywhere):
    with pytest.raises(UnsupportedDtypeError):
        matmul(HALF[0].float(), HALF)


def test_config_needs_exactly_the_tunables(anywhere):
    config = {name: value for name, value in SMALL.items() if name != "BM"}
    with pytest.raises(UnknownTunableError, match="no tunable 'GM', needs a value for 'BM'"):
        matmul(HALF, HALF.t(), config={**config, "GM": 8})


LESSON = [
    {"BM": 128, "BN": 128, "BK": 32, "num_warps": 4, "num_stages": 3},
    {"BM": 128, "BN": 256, "BK": 32, "num_warps": 8, "num_stages": 3},
    {"BM": 64, "BN": 64, "BK": 64, "num_warps": 4, "num_stages": 4},
]


def lesson_errors():
    a, b = drawn(130, 70, dtype=torch.float16), drawn(70, 90, dtype=torch.float16)
    return [off([matmul(a, b, config=config)], [a.double() @ b.double()]) for config in LESSON]


def test_the_three_configs_of_the_lesson_run_as_they_are(interpreted):
    assert max(interpreted(lesson_errors)) <= 2**-10
    for config in LESSON:
        operation.kernel.check(config, Arguments(keyword=dict(operation.problem((64, 64, 64), "fp16").arguments)))


# ALGORITHM and what it needs, and whether tiles are shared.
FORMS = {
    "tiles": {},
    "persistent": {"ALGORITHM": "persistent"},
    "two programs": {"ALGORITHM": "persistent", "PROGRAMS": 2},
    "split": {"ALGORITHM": "split_k", "SPLIT": 2},
    "more parts than steps": {"ALGORITHM": "split_k", "SPLIT": 4},
    "stream": {"ALGORITHM": "stream_k"},
    "stream of two programs": {"ALGORITHM": "stream_k", "PROGRAMS": 2},
}
LAYOUTS = ["rows rows", "columns columns", "columns rows"]


def form_errors():
    """By form, operands' order, loads and layout the error of the product; of five programs, as on a small device."""
    tiles.multiprocessors, before = lambda device: 5, tiles.multiprocessors
    result = {}
    try:
        for form, swapped, loads in itertools.product(FORMS, (False, True), ("pointers", "device", "host", "halves")):
            if loads == "halves" and (swapped or "SPLIT" in FORMS[form]):
                continue
            M, N, K = (24, 40, 72) if loads != "pointers" else (21, 37, 69)
            own = {"SWAPPED": swapped, "LOADS": "host" if loads == "halves" else loads, "HALVES": loads == "halves"}
            for layout in LAYOUTS if form in ("tiles", "stream") else LAYOUTS[:1]:
                first, second = layout.split()
                a = laid_out(drawn(M, K, dtype=torch.float16), first)
                b = laid_out(drawn(K, N, dtype=torch.float16), second)
                got = matmul(a, b, config={**SMALL, **FORMS[form], **own})
                result[f"{form}, {loads}, {layout}, swapped: {swapped}"] = off([got], [a.double() @ b.double()])
    finally:
        tiles.multiprocessors = before
    return result


@pytest.mark.processes
def test_every_algorithm_gives_the_product(interpreted):
    result = interpreted(form_errors)
    assert len(result) == 75
    assert {name: error for name, error in result.items() if error > 2**-10} == {}


def wrong_shares():
    """Products of whole numbers by stream_k that are not exact, for devices of 1 to 14 multiprocessors."""
    draw, wrong, before = random.Random(1), [], tiles.multiprocessors
    try:
        for _ in range(15):
            units, M, N, K = draw.randint(1, 14), draw.randint(1, 60), draw.randint(1, 40), draw.randint(0, 250)
            tiles.multiprocessors = lambda device, units=units: units
            a, b = (torch.randint(-3, 4, shape).half() for shape in ((M, K), (K, N)))
            own = {"BN": 16, "ALGORITHM": "stream_k", "SWAPPED": draw.random() < 0.3}
            if not torch.equal(matmul(a, b, config={**SMALL, **own}).double(), a.double() @ b.double()):
                wrong.append((units, M, N, K))
    finally:
        tiles.multiprocessors = before
    return wrong


def test_every_step_of_shared_tiles_has_one_program_whatever_the_device(interpreted):
    assert interpreted(wrong_shares) == []


def epilogue_errors():
    """The errors of all activations with a bias, by one program for each tile and by shared tiles, swapped too."""
    a, b, bias = drawn(37, 50, dtype=torch.float16), drawn(50, 45, dtype=torch.float16), drawn(45)
    plain, result = a.double() @ b.double() + bias.double(), {}
    for activation, form, swapped in itertools.product(ACTIVATIONS, ("tiles", "split"), (False, True)):
        right = plain if activation == "none" else getattr(torch.nn.functional, activation)(plain)
        config = {**SMALL, **FORMS[form], "SWAPPED": swapped}
        for each in (bias, bias.half()) if activation == "silu" else (bias,):
            got = matmul(a, b, bias=each, activation=activation, config=config)
            result[f"{activation}, {form}, {swapped}, {each.dtype}"] = off([got], [right])
    return result


def test_bias_and_activation_are_part_of_every_algorithm(interpreted):
    result = interpreted(epilogue_errors)
    assert len(result) == 20
    assert {name: error for name, error in result.items() if error > 2**-9} == {}


@pytest.mark.parametrize("form", FORMS)
def test_no_grid_pins_the_sizes_that_it_is_computed_from(form):
    conditions = Conditions()
    M, N, K = (Traced.of(size, f"v0_n{place}", conditions) for place, size in enumerate((9000, 700, 4000)))
    own = {"ALGORITHM": "tiles", "SWAPPED": False, "PROGRAMS": 1, "SPLIT": 1, **FORMS[form]}
    meta = {**SMALL, **own, "M": M, "N": N, "K": K, "a": torch.empty(0)}
    (programs,) = kernel.grid(meta)
    kernel.parts_elements(meta, programs)
    kernel.sum_grid({**meta, "programs": programs})
    _, pins, doubts = conditions.settled()
    assert pins == {}
    assert not any(eval(doubt, {}, {"v0_n0": 9090, "v0_n1": 740, "v0_n2": 4010}) for doubt in doubts)


def gelu_errors():
    """The largest error of a GELU over all finite values of float16, in units of the last place, and the others."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    config = {**SMALL, "BM": 256}
    got = matmul(x[:, None], torch.ones(1, 1, dtype=torch.float16), activation="gelu", config=config)[:, 0]
    wide = x[x.isfinite()].double()
    right = wide * torch.special.erfc(-wide * 0.5**0.5) / 2
    unit = 2.0 ** (torch.frexp(right).exponent - 11).clamp(min=-24)
    others = got[x == math.inf], got[x == -math.inf], got[x.isnan()].nan_to_num(7.0).unique()
    return ((got[x.isfinite()].double() - right) / unit).abs().max().item(), [float(each) for each in others]


def test_a_gelu_is_the_exact_one_rounded_once(interpreted):
    error, others = interpreted(gelu_errors)
    assert 0.49 < error < 0.52
    assert others == [math.inf, 0.0, 7.0]


def extremes_are_torchs():
    """Whether NaN and infinity come out as in PyTorch, from one program for a tile and from shared tiles."""
    a, b = torch.eye(16, 64, dtype=torch.float16), drawn(64, 32, dtype=torch.float16)
    a[1, 1], a[2, 40], a[3, 50] = float("nan"), float("inf"), float("-inf")
    right = torch.relu(a.float() @ b.float()).half()
    result = [matmul(a, b, activation="relu", config={**SMALL, **FORMS[form]}) for form in ("tiles", "split")]
    same = [torch.equal(each.nan_to_num(7.0), right.nan_to_num(7.0)) for each in result]
    return [*same, right.isnan().sum().item(), right.isposinf().sum().item() > 20]


def test_nan_and_infinity_come_out_as_in_pytorch(interpreted):
    assert interpreted(extremes_are_torchs) == [True, True, 32, True]


def test_public_function_launches_once_with_the_default_and_never_tunes(monkeypatch):
    launches = []
    monkeypatch.setattr(call, "check_placement", lambda tensors, on_cpu: None)
    monkeypatch.setattr(ShippedKernel, "launch", lambda *arguments: launches.append(arguments))
    out = matmul(HALF, HALF.t())
    ((kernel, config, values, device),) = launches
    assert kernel.operation is operation
    assert config == default_config(4, 4, 6, "float16")
    assert values["c"] is out
    assert device == HALF.device
    assert list(values) == [name for name, _ in operation.problem((4, 4, 6), "fp16").arguments]
    matmul(HALF, HALF.t(), bias=torch.ones(4), activation="relu")
    _, config_with_bias, values, _ = launches[1]
    assert (config_with_bias, values["bias"].tolist(), values["ACTIVATION"]) == (config, [1.0] * 4, "relu")
