"""Fused RMSNorm and RoPE: numbers from Triton's interpreter beside float64, its problems, space and errors."""

import inspect
import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from tests.near import drawn, off, widened
from triton_ops.backend import Arguments
from triton_ops.dispatch import Gradient
from triton_ops.exceptions import (
    DeviceError,
    KernelTypeError,
    SettingsError,
    ShapeMismatchError,
    UnknownTunableError,
    UnsupportedDtypeError,
)
from triton_ops.space import Config
from triton_ops_kernels import FusedRMSNormRoPE, call, fused_rmsnorm_rope
from triton_ops_kernels.rmsnorm_rope import _forward, gradient, operation
from triton_ops_kernels.rmsnorm_rope import gradient_operation as backward_operation
from triton_ops_kernels.rmsnorm_rope.problems import default_config
from triton_ops_kernels.shipped import ShippedKernel

pytestmark = pytest.mark.triton

DOCUMENTED = {"BLOCK_SIZE": [64, 128, 256, 512, 1024], "num_warps": [2, 4, 8], "num_stages": [1, 2, 3]}
ALL_CONFIGS = [dict(zip(DOCUMENTED, values, strict=True)) for values in itertools.product(*DOCUMENTED.values())]


def case(shape, heads, config=None, dtype="float32", **more):
    return {"shape": shape, "heads": heads, "config": config, "dtype": dtype, **more}


# Heads of 48: half of them is no power of two, and three heads are no multiple of any block.
CASES = {
    **{"-".join(map(str, config.values())): case((1, 2, 144), 3, config) for config in ALL_CONFIGS},
    "default": case((2, 3, 256), 4),
    "float16": case((2, 3, 256), 4, dtype="float16"),
    "many-chunks": case((2, 2, 1280), 10, {"BLOCK_SIZE": 64, "num_warps": 2, "num_stages": 1}),
    "odd-half": case((2, 3, 30), 3),
    "half-of-one": case((2, 3, 12), 6),
    "one-head": case((1, 4, 130), 1, {"BLOCK_SIZE": 64, "num_warps": 2, "num_stages": 2}),
    "angles-4d": case((2, 3, 96), 2, four_axes=True),
    "one-position": case((5, 1, 96), 2),
    "large-eps": case((2, 3, 96), 2, eps=0.5),
    "zero-row": case((1, 1, 96), 2, zeros=True),
    "tiny-values": case((2, 3, 96), 2, factor=1e-3),
    "empty": case((0, 3, 96), 2),
}
# Outputs are below about 3: one rounding to the output's dtype, and float32 arithmetic with an approximate root.
TOLERANCE = {"float32": 1e-5, "float16": 3 * 2**-11}


def rotated(y, angles_cos, angles_sin):
    """One pair at a time, so that the reference shares no index arithmetic with the kernel."""
    half, out = y.shape[-1] // 2, torch.empty_like(y)
    for i in range(half):
        c, s = angles_cos[:, i].view(1, -1, 1), angles_sin[:, i].view(1, -1, 1)
        out[..., i] = y[..., i] * c - y[..., i + half] * s
        out[..., i + half] = y[..., i + half] * c + y[..., i] * s
    return out


def expected(x, weight, cos, sin, eps, heads):
    x, weight, cos, sin = (t.double() for t in (x, weight, cos, sin))
    y = x / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + eps) * weight
    return rotated(y.view(*x.shape[:2], heads, cos.shape[-1]), cos, sin).view(x.shape)


def inputs(shape, heads, dtype=torch.float32, factor=1.0, zeros=False):
    _, seq, hidden = shape
    seeded = torch.Generator().manual_seed(hidden)

    def draw(*size):
        return (torch.rand(size, generator=seeded) * 2 - 1).to(dtype)

    x = draw(*shape) * (0.0 if zeros else factor)
    return x, draw(hidden), draw(seq, hidden // heads), draw(seq, hidden // heads)


def answer(given):
    """What the function returns for a case, beside the definition in float64."""
    dtype, heads, eps = getattr(torch, given["dtype"]), given["heads"], given.get("eps", 1e-6)
    x, weight, cos, sin = inputs(given["shape"], heads, dtype, given.get("factor", 1.0), given.get("zeros", False))
    before = x.clone()
    right = expected(x, weight, cos, sin, eps, heads)
    if given.get("four_axes"):
        cos, sin = cos[None, :, None], sin[None, :, None]
    out = fused_rmsnorm_rope(x, weight, cos, sin, eps, config=given["config"])
    return {
        "shape": tuple(out.shape),
        "dtype": str(out.dtype),
        "untouched": torch.equal(x, before),
        "error": (out.double() - right).abs().max().item() if right.numel() else 0.0,
        "finite": bool(out.isfinite().all()),
    }


def all_answers():
    return {name: answer(given) for name, given in CASES.items()}


@pytest.fixture(scope="session")
def answers(interpreted):
    return interpreted(all_answers)


@pytest.mark.parametrize("name", CASES)
def test_output_is_that_of_float64(answers, name):
    answer, given = answers[name], CASES[name]
    assert answer["shape"] == given["shape"]
    assert answer["dtype"] == f"torch.{given['dtype']}"
    assert answer["finite"]
    assert answer["untouched"]
    assert answer["error"] <= TOLERANCE[given["dtype"]]


def spoiled():
    x, weight, cos, sin = inputs((1, 3, 96), 2)
    x[0, 1, 5], x[0, 2, 7] = math.nan, math.inf
    out = fused_rmsnorm_rope(x, weight, cos, sin)[0]
    return out.isfinite().all(-1).tolist(), out.isnan().sum(-1).tolist()


def test_nan_and_infinity_spoil_their_own_row_only(interpreted):
    # NaN makes the whole row's mean NaN; infinity divides the others by infinity, and itself to NaN, with its partner.
    assert interpreted(spoiled) == ([True, False, False], [0, 96, 2])


def of_mixed_dtypes():
    x, weight, cos, sin = inputs((1, 3, 96), 2)
    out = fused_rmsnorm_rope(x.half(), weight, cos.half(), sin, num_heads=2)
    right = expected(x.half(), weight, cos.half(), sin, 1e-6, 2)
    return str(out.dtype), (out.double() - right).abs().max().item()


def test_weight_and_angles_may_have_other_dtypes(interpreted):
    dtype, error = interpreted(of_mixed_dtypes)
    assert (dtype, error <= TOLERANCE["float16"]) == ("torch.float16", True)


def test_reference_agrees_with_float64():
    problem = operation.problem((1, 2, 96, 2), "float32")
    values = operation.materialise(problem, "cpu").keyword
    right = expected(*(values[name] for name in ("x", "weight", "cos", "sin")), 1e-6, 2)
    assert (operation.reference(**values).double() - right).abs().max().item() <= TOLERANCE["float32"]


def test_arguments_are_the_kernels_parameters_in_order():
    problem = operation.problem((2, 3, 96, 2), "float16")
    names = [name for name, _ in problem.arguments]
    parameters = list(inspect.signature(operation.kernel.function.fn).parameters)
    assert names == parameters[: len(names)]
    assert [problem["cos"].shape, problem["out"].fill] == [(3, 48), "empty"]
    assert [problem[name] for name in ("seq_len", "eps", "HIDDEN", "HEAD_DIM")] == [3, 1e-6, 96, 48]
    assert operation.extents == ("batch", "seq", "hidden", "heads")
    assert operation.problem().label == "4x4096x4096x32 bfloat16"


@pytest.mark.parametrize(("heads", "expected", "actual"), [(5, "a multiple of 5", 96), (32, "an even head size", 3)])
def test_heads_that_do_not_fit_the_hidden_size_are_refused(heads, expected, actual):
    with pytest.raises(ShapeMismatchError) as raised:
        operation.problem((1, 2, 96, heads))
    assert (raised.value.expected, raised.value.actual) == (expected, actual)


@pytest.mark.parametrize("hidden", [64, 4096])
def test_space_holds_the_whole_documented_one_at_every_row_length(hidden):
    space = operation.space_for(operation.problem((1, 2, hidden, 1)))
    assert {name: list(tunable)[: len(DOCUMENTED[name])] for name, tunable in space.tunables.items()} == DOCUMENTED
    assert [config for config in ALL_CONFIGS if space.why_not(config) is not None] == []


def test_space_has_whole_rows_besides():
    space = operation.space_for(operation.problem())
    whole = {"BLOCK_SIZE": 2048, "num_warps": 4, "num_stages": 1}
    assert space.why_not(whole) is None
    assert space.why_not({**whole, "num_warps": 2}).startswith("registers: ")
    assert space.why_not({**whole, "num_stages": 2}).startswith("stages: ")
    assert space.why_not({**whole, "BLOCK_SIZE": 4096}).startswith("row: ")
    assert space.why_not({**whole, "BLOCK_SIZE": 64, "num_warps": 16}).startswith("threads: ")
    assert len(list(space)) < 64


@pytest.mark.parametrize("name", operation.problems)
def test_named_problem_has_a_default_in_its_space_that_fits_the_kernel(name):
    problem = operation.problem(*operation.problems[name])
    space = operation.space_for(problem)
    assert all(value in space.tunables[tunable] for tunable, value in space.default_config.items())
    operation.kernel.check(space.tunables, Arguments(keyword=dict(problem.arguments)))


def test_default_loads_sixteen_bytes_per_thread_or_has_whole_rows():
    assert dict(default_config(2048, "bfloat16")) == {"BLOCK_SIZE": 1024, "num_warps": 4, "num_stages": 1}
    assert dict(default_config(4096, "bfloat16")) == {"BLOCK_SIZE": 2048, "num_warps": 4, "num_stages": 1}
    assert default_config(4096, "float32")["num_warps"] == 8
    assert dict(default_config(65536, "bfloat16")) == {"BLOCK_SIZE": 1024, "num_warps": 4, "num_stages": 1}


def test_work_reads_and_writes_once_and_half_of_the_angles():
    work = operation.work(operation.problem((2, 3, 96, 2), "float16"))
    assert work.bytes == 2 * (2 * 3 * 96 * 2) + 2 * 96 + 2 * (3 * 24 * 2)


@pytest.mark.parametrize(("shape", "refused"), [((13, 5, 36780, 10), True), ((13, 5, 36800, 10), False)])
def test_loads_ahead_with_many_masks_are_refused(shape, refused):
    """Of pairs that are loaded one by one, since half a head is odd: NVIDIA's assembler lost some of their masks."""
    space = operation.space_for(operation.problem(shape, "float32"))
    many = Config(BLOCK_SIZE=2048, num_warps=4, num_stages=3)
    assert (space.why_not(many) or "").startswith("masks: ") == refused
    for fewer in ({"num_stages": 1}, {"num_warps": 8}, {"BLOCK_SIZE": 1024}):
        assert space.why_not({**many, **fewer}) is None


def given(**changes):
    tensors = {
        "x": torch.zeros(2, 3, 8),
        "weight": torch.zeros(8),
        "cos": torch.zeros(3, 4),
        "sin": torch.zeros(3, 4),
    }
    return {**tensors, **changes}


def test_cpu_tensors_are_a_device_error_before_anything_else():
    with pytest.raises(DeviceError, match="x is on cpu") as raised:
        fused_rmsnorm_rope(**given(x=torch.zeros(2, dtype=torch.int8)), eps=math.nan, config={})
    assert (raised.value.expected_device, raised.value.actual_device) == ("cuda", "cpu")
    assert raised.value.tensor_name == "x"


def test_tensors_of_two_gpus_are_a_device_error():
    def on(device):
        return SimpleNamespace(device=torch.device(device), layout=torch.strided)

    with pytest.raises(DeviceError, match="sin is on cuda:1 and x on cuda:0") as raised:
        fused_rmsnorm_rope(on("cuda:0"), on("cuda:0"), on("cuda:0"), on("cuda:1"))
    assert raised.value.tensor_name == "sin"


def test_an_argument_that_is_no_tensor_is_a_type_error():
    with pytest.raises(KernelTypeError, match="weight is a NoneType"):
        fused_rmsnorm_rope(**given(weight=None))


@pytest.fixture
def anywhere(monkeypatch):
    """CPU tensors pass for CUDA ones, so that the checks after the device can be met."""
    monkeypatch.setattr(call, "check_placement", lambda tensors, on_cpu: None)
    monkeypatch.setattr(ShippedKernel, "launch", lambda *arguments: pytest.fail("launched"))


@pytest.mark.parametrize("name", ["x", "weight", "cos", "sin"])
def test_an_unsupported_dtype_is_refused(anywhere, name):
    with pytest.raises(UnsupportedDtypeError, match=f"^{name} is torch.float64") as raised:
        fused_rmsnorm_rope(**given(**{name: given()[name].double()}))
    assert raised.value.dtype == torch.float64
    assert raised.value.supported_dtypes == ["bfloat16", "float16", "float32"]
    assert raised.value.tensor_name == name


@pytest.mark.parametrize("name", ["x", "weight", "cos", "sin"])
def test_a_tensor_with_gaps_is_refused(anywhere, name):
    tensor = given()[name]
    apart = torch.zeros(*tensor.shape, 2)[..., 0]
    with pytest.raises(ShapeMismatchError, match=f"{name} is not contiguous") as raised:
        fused_rmsnorm_rope(**given(**{name: apart}))
    assert (raised.value.expected, raised.value.actual) == (tensor.stride(), apart.stride())
    assert raised.value.tensor_name == name


SHAPE_ERRORS = {
    "rank of x": ({"x": torch.zeros(3, 8)}, "x", "[batch, seq, hidden]", (3, 8)),
    "weight": ({"weight": torch.zeros(4)}, "weight", (8,), (4,)),
    "rank of cos": ({"cos": torch.zeros(1, 3, 4)}, "cos", "[seq, D] or [1, seq, 1, D]", (1, 3, 4)),
    "positions": ({"cos": torch.zeros(2, 4)}, "cos", (3, 4), (2, 4)),
    "batch of cos": ({"cos": torch.zeros(2, 3, 1, 4)}, "cos", (1, 3, 1, 4), (2, 3, 1, 4)),
    "sin of another size": ({"sin": torch.zeros(3, 2)}, "sin", (3, 4), (3, 2)),
    "sin of another rank": ({"sin": torch.zeros(1, 3, 1, 4)}, "sin", (3, 4), (1, 3, 1, 4)),
    "odd head": (
        {"cos": torch.zeros(3, 1), "sin": torch.zeros(3, 1)}, "cos", "an even head size", 1,
    ),
    "no head": (
        {"cos": torch.zeros(3, 0), "sin": torch.zeros(3, 0)}, "cos", "an even head size", 0,
    ),
    "broken head": (
        {"cos": torch.zeros(3, 6), "sin": torch.zeros(3, 6)}, "x", "a multiple of 6", 8,
    ),
    "number of heads": ({"num_heads": 3}, "x", 12, 8),
}  # fmt: skip


@pytest.mark.parametrize("what", SHAPE_ERRORS)
def test_shapes_that_do_not_fit_are_refused(anywhere, what):
    changes, name, expected, actual = SHAPE_ERRORS[what]
    with pytest.raises(ShapeMismatchError) as raised:
        fused_rmsnorm_rope(**given(**changes))
    assert raised.value.tensor_name == name
    assert (raised.value.expected, raised.value.actual) == (expected, actual)


@pytest.mark.parametrize("eps", [-1e-6, math.nan, math.inf])
def test_eps_must_be_finite_and_not_negative(anywhere, eps):
    with pytest.raises(SettingsError, match="eps is"):
        fused_rmsnorm_rope(**given(), eps=eps)


def test_config_needs_exactly_the_tunables(anywhere):
    with pytest.raises(UnknownTunableError, match="needs a value for 'num_stages'"):
        fused_rmsnorm_rope(**given(), config={"BLOCK_SIZE": 64, "num_warps": 2})


@pytest.mark.parametrize("name", ["cos", "sin"])
@pytest.mark.parametrize("axes", [2, 4])
def test_halves_that_differ_are_found_when_asked_for(anywhere, name, axes):
    uneven = torch.zeros(3, 4)
    uneven[1, 3] = 1
    tables = {"cos": torch.zeros(3, 4), "sin": torch.zeros(3, 4), name: uneven}
    tables = {key: table if axes == 2 else table[None, :, None] for key, table in tables.items()}
    with pytest.raises(ShapeMismatchError, match=f"two halves of {name} differ") as raised:
        fused_rmsnorm_rope(**given(**tables), check_halves=True)
    assert raised.value.tensor_name == name
    assert raised.value.expected == f"{name}[..., :2] equal to {name}[..., 2:]"


def test_public_function_launches_once_with_the_default_and_never_tunes(monkeypatch):
    launches = []
    monkeypatch.setattr(call, "check_placement", lambda tensors, on_cpu: None)
    monkeypatch.setattr(ShippedKernel, "launch", lambda *arguments: launches.append(arguments))
    out = fused_rmsnorm_rope(**given(), num_heads=2, check_halves=True)
    ((kernel, config, values, device),) = launches
    assert kernel.operation is operation
    assert config == default_config(8, "float32")
    assert values["out"] is out
    assert device == out.device
    assert list(values) == [name for name, _ in operation.problem((2, 3, 8, 2)).arguments]


def by_formula(x, weight, cos, sin, eps=1e-6):
    """In the precision of the arguments, so that autograd gives the gradients to compare with."""
    head_dim = cos.shape[-1]
    half = head_dim // 2
    y = x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight
    first, second = y.unflatten(-1, (-1, 2, half)).unbind(-2)
    c, s = cos[:, None, :half], sin[:, None, :half]
    return torch.cat([first * c - second * s, second * c + first * s], -1).reshape(x.shape)


def largest_gradient_error(shape, heads, dtype):
    kind = getattr(torch, dtype)
    angles = [drawn(shape[1], shape[2] // heads, dtype=kind), drawn(shape[1], shape[2] // heads, dtype=kind).flip(0)]
    given = [drawn(*shape, dtype=kind).requires_grad_(), drawn(shape[2], dtype=kind).requires_grad_()]
    weights = drawn(*shape, dtype=kind)
    (fused_rmsnorm_rope(*given, *angles) * weights).sum().backward()
    wide = [each.detach().double().requires_grad_() for each in given]
    (by_formula(*wide, *(each.double() for each in angles)) * weights).sum().backward()
    return off([each.grad for each in given], [each.grad for each in wide])


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-5), ("float16", 2**-9)])
@pytest.mark.parametrize(("shape", "heads"), [((2, 3, 96), 2), ((1, 5, 144), 3)])
def test_gradients_are_those_of_float64(interpreted, shape, heads, dtype, most):
    assert interpreted(largest_gradient_error, shape, heads, dtype) <= most


def checked_gradient():
    """The kernels compute in float64 where tensors are float64, which the public function does not take."""
    x, weight, cos, sin = drawn(1, 2, 8).double(), drawn(8).double(), drawn(2, 4).double(), drawn(2, 4).double() + 0.5

    def rotated(x, weight):
        inputs = {"x": x, "weight": weight, "cos": cos, "sin": sin, "eps": 1e-3}
        out = _forward([tensor.detach() for tensor in (x, weight, cos, sin)], 1e-3, None, False)
        described = Gradient(
            inputs=("x", "weight"), function=gradient, values="float eps", kept=("x", "weight", "cos", "sin")
        )
        return described.attached(inputs, out)

    return torch.autograd.gradcheck(rotated, [x.requires_grad_(), weight.requires_grad_()])


def test_gradients_pass_gradcheck_in_float64(interpreted):
    assert interpreted(checked_gradient)


def form_error(block, sums):
    values = backward_operation.materialise(backward_operation.problem((2, 3, 288, 3), "float32"), "cpu")
    config = Config(BLOCK_SIZE=block, PROGRAMS=2, STAGES=2, SUM_COLUMNS=sums, num_warps=1)
    backward_operation.kernel.compile(config, values).launch(values)
    right = backward_operation.reference(**widened(values.keyword))
    return off([values.keyword[name] for name in ("dx", "dweight")], right)


@pytest.mark.parametrize(("block", "sums"), [(64, 64), (256, 16)])
def test_both_forms_of_the_gradient_are_right(interpreted, block, sums):
    assert interpreted(form_error, block, sums) <= 1e-5


def spoilt_by_an_angle(block):
    """Where the gradients are NaN, and where they should be, if one angle is infinite; blocks are wider than rows."""
    values = backward_operation.materialise(backward_operation.problem((1, 3, 134, 1), "float32"), "cpu")
    given = values.keyword
    for name in ("x", "weight", "grad", "cos", "sin"):
        given[name].abs_()  # so that sums of infinities are infinite
    given["sin"].mul_(-1)
    given["cos"][2, 0] = math.inf
    config = Config(BLOCK_SIZE=block, PROGRAMS=1, STAGES=1, SUM_COLUMNS=64, num_warps=1)
    backward_operation.kernel.compile(config, values).launch(values)
    right = backward_operation.reference(**widened(given))
    return [(given[name].isnan().equal(each.isnan()), int(each.isnan().sum())) for name, each in zip(
        ("dx", "dweight"), right, strict=True
    )]  # fmt: skip


@pytest.mark.parametrize("block", [64, 128])
def test_an_infinite_angle_spoils_the_gradient_as_arithmetic_says(interpreted, block):
    (dx, nan), (dweight, _) = interpreted(spoilt_by_an_angle, block)
    assert (dx, dweight) == (True, True)
    assert nan < 134


@pytest.mark.parametrize("hidden", [64, 1024, 4096, 8192, 65536])
def test_default_is_in_its_space(hidden):
    for each in (operation, backward_operation):
        space = each.space_for(each.problem((1, 2, hidden, 1), "bfloat16"))
        assert space.why_not(space.default_config) is None


def test_space_of_the_gradient_has_whole_rows_where_they_fit():
    space = backward_operation.space_for(backward_operation.problem((1, 2, 4096, 32), "bfloat16"))
    assert {config["BLOCK_SIZE"] for config in space} == {2048}
    assert space.why_not({**space.default_config, "PROGRAMS": 16}).startswith("resident: ")
    long = backward_operation.space_for(backward_operation.problem((1, 2, 65536, 32), "bfloat16"))
    assert long.why_not({**long.default_config, "STAGES": 2}).startswith("stages: ")


def test_angles_that_need_a_gradient_are_refused(anywhere):
    with pytest.raises(KernelTypeError, match="cos requires a gradient"):
        fused_rmsnorm_rope(**given(cos=torch.zeros(3, 4, requires_grad=True)))


def module_output():
    module = FusedRMSNormRoPE(96, 48, eps=1e-3)
    with torch.no_grad():
        module.weight.copy_(drawn(96))
    x, cos, sin = drawn(2, 3, 96), drawn(3, 48), drawn(3, 48)
    again = FusedRMSNormRoPE(96, 48, eps=1e-3)
    again.load_state_dict(module.state_dict())
    torch.testing.assert_close(again(x, cos, sin), by_formula(x, module.weight, cos, sin, 1e-3))
    again(x, cos, sin).sum().backward()
    return again.weight.grad is not None, repr(again)


def test_module_owns_a_weight_that_learns(interpreted):
    assert interpreted(module_output) == (True, "FusedRMSNormRoPE(hidden_dim=96, head_dim=48, eps=0.001)")


@pytest.mark.parametrize(
    ("sizes", "error"),
    [
        ((0, 2), ShapeMismatchError),
        ((96, 3), ShapeMismatchError),
        ((96, 10), ShapeMismatchError),
        ((96, 48, -1.0), SettingsError),
    ],
)
def test_module_refuses_sizes_that_do_not_fit(sizes, error):
    with pytest.raises(error):
        FusedRMSNormRoPE(*sizes)
