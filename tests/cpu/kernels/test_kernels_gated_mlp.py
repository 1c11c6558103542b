"""The gated MLP: numbers from Triton's interpreter beside float64, gradients, its spaces, module and errors."""

import math
import re
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.near import drawn, error_of, off, widened
from triton_ops.backend import Arguments, TritonCompiler
from triton_ops.benchmark import GATED_MLP_CONFIGS, generate_configs, get_default_config
from triton_ops.device import DeviceSpec, Machine, Target
from triton_ops.dispatch import Gradient
from triton_ops.exceptions import DeviceError, SettingsError, ShapeMismatchError, UnsupportedDtypeError
from triton_ops.space import Config
from triton_ops.values import TensorSpec
from triton_ops_kernels import FusedGatedMLP, fused_gated_mlp, shipped
from triton_ops_kernels.gated_mlp import _forward, gradient, operation
from triton_ops_kernels.gated_mlp import gradient_operation as backward_operation
from triton_ops_kernels.gated_mlp.kernel import gated_mlp_backward_kernel
from triton_ops_kernels.gated_mlp.problems import default_config
from triton_ops_kernels.shipped import ShippedKernel
from triton_ops_kernels.tiles import unit

pytestmark = pytest.mark.triton

SMALL = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2}
HOST = {**SMALL, "LOADS": "host"}
FORMS = {
    "default": None,
    "small": SMALL,
    "grouped": {**SMALL, "GROUP_SIZE_M": 2},
    "host": HOST,
    "halves": {**HOST, "HALVES": True},
    "programs": {**SMALL, "PROGRAMS": 1},
    "parts": {**SMALL, "SPLIT": 2},
    "parts, programs": {**SMALL, "SPLIT": 3, "PROGRAMS": 1, "GROUP_SIZE_M": 2},
    "joined, parts": {**HOST, "JOINED": True, "SPLIT": 2},
    "host, parts": {**HOST, "SPLIT": 2},
    "host, programs": {**HOST, "PROGRAMS": 2},
    "joined": {**HOST, "JOINED": True},
    "joined, programs, halves": {**HOST, "JOINED": True, "PROGRAMS": 1, "HALVES": True},
}
ROUNDING = {"float32": 1e-5, "float16": 2**-10}
ACTIVATIONS = {"silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}


def inputs(shape, dtype):
    batch, seq, hidden, intermediate = shape
    kind = getattr(torch, dtype)
    x, gate = drawn(batch, seq, hidden, dtype=kind), drawn(intermediate, hidden, dtype=kind)
    return x, gate, drawn(intermediate, hidden, dtype=kind).flip(0).contiguous()


def expected(x, gate, up, activation):
    return ACTIVATIONS[activation](x @ gate.mT) * (x @ up.mT)


def forward_error(shape, chosen, dtype="float32", activation="silu"):
    given = inputs(shape, dtype)
    result = fused_gated_mlp(*given, activation, config=chosen)
    assert (tuple(result.shape), result.dtype) == ((*shape[:2], shape[3]), given[0].dtype)
    return off([result], [expected(*(each.double() for each in given), activation)])


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_that_of_float64(interpreted, form, dtype):
    # 40 and 48 are no multiples of the tiles, and their rows start at multiples of 16 bytes, as descriptors need.
    assert interpreted(forward_error, (2, 9, 40, 48), FORMS[form], dtype) <= ROUNDING[dtype]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 5, 7, 9), (1, 33, 65, 17), (2, 0, 8, 8), (1, 2, 0, 3)])
def test_odd_sizes_are_those_of_float64(interpreted, shape, activation):
    assert interpreted(forward_error, shape, None, "float32", activation) <= ROUNDING["float32"]


def documented_errors():
    space = [config for config in generate_configs(GATED_MLP_CONFIGS) if config["num_stages"] == 2]
    return [forward_error((1, 5, 40, 40), config) for config in space if config["num_warps"] == 4]


def test_every_documented_tile_drives_the_kernel(interpreted):
    errors = interpreted(documented_errors)
    assert len(errors) == 18  # warps and stages are nothing to the interpreter
    assert max(errors) <= ROUNDING["float32"]


def strided_error():
    x, gate, up = inputs((2, 5, 24, 20), "float32")
    wide = torch.zeros(2, 5, 30)
    wide[..., 3:27] = x
    apart = torch.zeros(40, 48)[::2, ::2]
    result = fused_gated_mlp(wide[..., 3:27], gate.t().contiguous().t(), apart.copy_(up))
    one = fused_gated_mlp(x[:, :1], gate, up)
    return off([result, one], [expected(*(each.double() for each in (y, gate, up)), "silu") for y in (x, x[:, :1])])


def test_slices_of_x_and_weights_of_any_strides_are_taken(interpreted):
    assert interpreted(strided_error) <= ROUNDING["float32"]


def nans(value):
    x, gate, up = inputs((1, 4, 40, 32), "float32")
    x[0, 1, 3] = value
    result, right = fused_gated_mlp(x, gate, up), expected(x, gate, up, "silu")
    torch.testing.assert_close(result[0, [0, 2, 3]], right[0, [0, 2, 3]])
    return result[0, 1].isfinite().any().item()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_spoil_their_own_token_only(interpreted, value):
    assert not interpreted(nans, value)


def largest_gradient_error(shape, dtype, activation):
    given = [each.requires_grad_() for each in inputs(shape, dtype)]
    weights = drawn(*shape[:2], shape[3], dtype=given[0].dtype)
    (fused_gated_mlp(*given, activation) * weights).sum().backward()
    wide = [each.detach().double().requires_grad_() for each in given]
    (expected(*wide, activation) * weights).sum().backward()
    return off([each.grad for each in given], [each.grad for each in wide])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ROUNDING)
def test_gradients_are_those_of_float64(interpreted, dtype, activation):
    assert interpreted(largest_gradient_error, (2, 3, 20, 24), dtype, activation) <= 4 * ROUNDING[dtype]


def checked_gradient(activation):
    """The kernels compute in float64 where tensors are float64, which the public function does not take."""
    x, gate, up = (each.squeeze(0).double().requires_grad_() for each in inputs((1, 2, 3, 4), "float32"))

    def found(x, gate, up):
        inputs = {"x": x, "gate": gate, "up": up, "activation": activation}
        names = ("x", "gate", "up")
        described = Gradient(inputs=names, function=gradient, values="str activation", kept=names, results=(1, 2))
        made = _forward(x.detach().unsqueeze(0), (gate, up), activation, 3, {**SMALL}, False)
        return described.attached(inputs, tuple(each.squeeze(0) for each in made))[0]

    return torch.autograd.gradcheck(found, (x, gate, up))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_pass_gradcheck_in_float64(interpreted, activation):
    assert interpreted(checked_gradient, activation)


def backward_error(**changes):
    values = backward_operation.materialise(backward_operation.problem((5, 300), "float32"), "cpu")
    backward_operation.kernel.executable(Config(BLOCK_SIZE=256, num_warps=1, **changes)).launch(values)
    right = backward_operation.reference(**widened(values.keyword))
    return off([values.keyword[name] for name in ("dgate", "dup")], right)


@pytest.mark.parametrize("changes", [{}, {"EVICT": "none"}, {"EVICT": "stores"}])
def test_operation_of_the_gradient_agrees_with_its_reference(interpreted, changes):
    assert interpreted(backward_error, **changes) <= ROUNDING["float32"]


@pytest.mark.parametrize(("tokens", "refused"), [(4096, False), (2341, False), (2340, True), (16, True)])
def test_gradient_keeps_what_it_reads_only_where_no_cache_holds_its_results(tokens, refused):
    space = backward_operation.space_for(backward_operation.problem((tokens, 14336), "bfloat16"))
    reason = space.why_not({**space.default_config, "EVICT": "stores"}) or ""
    assert reason.startswith("kept: ") == refused
    assert space.why_not(space.default_config) is None


def test_loads_of_the_gradient_stay_in_l2_longest_with_stores():
    assert "evict_last" not in code_of_the_gradient(1000 * 777)
    kept = re.findall(r"ld\.global\.L1::evict_last\.L2::cache_hint", code_of_the_gradient(1000 * 777, EVICT="stores"))
    assert len(kept) == 3


def test_space_holds_the_documented_one():
    problem = operation.problem((4096, 14336, 4096), "bfloat16")
    space, default = operation.space_for(problem), default_config(4096, 14336, 4096, "bfloat16")
    documented = [{**default, **config} for config in generate_configs(GATED_MLP_CONFIGS)]
    reasons = {space.why_not(config) for config in documented} - {None}
    assert all(reason.startswith("accumulators: ") for reason in reasons)  # 128 by 128 twice, with four warps
    operation.kernel.check(get_default_config("gated_mlp"), Arguments(keyword=dict(problem.arguments)))


def reasons(problem, **changes):
    space = operation.space_for(problem)
    return (space.why_not({**space.default_config, **changes}) or "").partition(":")[0]


def test_descriptors_are_left_out_where_rows_do_not_allow_them():
    problem = operation.problem((64, 64, 65), "bfloat16")
    assert {config["LOADS"] for config in operation.space_for(problem)} == {"pointers"}
    assert reasons(problem, LOADS="host", BLOCK_N=64) == "descriptors"


TILE = {"LOADS": "host", "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (TILE, ""),
        ({**TILE, "JOINED": True, "PROGRAMS": 1, "HALVES": True}, ""),
        ({**TILE, "BLOCK_K": 32}, "box"),
        ({**TILE, "BLOCK_M": 32}, "rows"),
        ({**TILE, "BLOCK_N": 32}, "columns"),
        ({**TILE, "BLOCK_N": 64, "HALVES": True}, "halves"),
        ({**TILE, "PROGRAMS": 1}, "walk"),
        ({**TILE, "num_warps": 4}, "accumulators"),
        ({"JOINED": True}, "joined"),
        ({"HALVES": True}, "halves"),
        ({"PROGRAMS": 1}, "walk"),
        ({"SPLIT": 2}, "parts"),  # of thousands of tiles
    ],
)
def test_space_says_why_a_form_is_left_out(changes, reason):
    assert reasons(operation.problem((4096, 14336, 4096), "bfloat16"), **changes) == reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"SPLIT": 16}, ""),
        ({**TILE, "BLOCK_M": 64, "SPLIT": 16}, ""),
        ({**TILE, "BLOCK_M": 64, "SPLIT": 16, "BLOCK_K": 128}, "parts"),  # under four steps each
        ({**TILE, "BLOCK_M": 64, "SPLIT": 2, "JOINED": True, "PROGRAMS": 1}, "parts"),
        ({**TILE, "BLOCK_M": 64, "SPLIT": 2, "HALVES": True}, "parts"),
    ],
)
def test_few_tiles_are_shared(changes, reason):
    assert reasons(operation.problem((64, 256, 4096), "bfloat16"), **changes) == reason


def test_few_rows_are_also_tried_in_tiles_that_fill_the_matrix_instructions():
    space = operation.space_for(operation.problem((16, 14336, 4096), "bfloat16"))
    assert {config["BLOCK_M"] for config in space if config["LOADS"] == "host"} == {16, 32, 64}
    assert {config["BLOCK_M"] for config in space if config["LOADS"] == "pointers"} == {16, 32}


def test_weights_of_other_strides_are_not_joined():
    problem = operation.problem((64, 64, 64), "bfloat16")
    other = {"up_weight": TensorSpec((64, 64), "bfloat16", (128, 1)), "stride_un": 128}
    arguments = tuple((name, other.get(name, given)) for name, given in problem.arguments)
    space = operation.space_for(replace(problem, arguments=arguments))
    assert any(config["LOADS"] == "host" for config in space)
    assert not any(config["JOINED"] for config in space)


def test_the_model_expects_the_measured_order_of_forms():
    # Measured on an H200: joined weights in programs that walk, then joined weights, then one descriptor for each.
    problem = operation.problem((4096, 14336, 4096), "bfloat16")
    plan = operation.work(problem).tiles.plan
    machine = Machine.of(DeviceSpec.named("NVIDIA H200"))
    forms = [{"JOINED": True, "PROGRAMS": 1}, {"JOINED": True}, {}, {"LOADS": "pointers"}]
    shape = {**default_config(4096, 14336, 4096, "bfloat16"), **TILE, "num_stages": 4}
    plans = [plan({**shape, **form}, machine) for form in forms]
    times = [each.schedule(each.footprint).time_ms for each in plans]
    assert times[0] < times[1] <= times[2] < times[3]


UNITS = {
    "rows of 16 bytes": ((64, ((64, 1), (64, 1), (64, 1))), 8),
    "rows of 8 bytes": ((516, ((516, 1), (516, 1), (516, 1))), 4),
    "one odd stride": ((64, ((64, 1), (65, 1), (64, 1))), 1),
    "an odd sum": ((63, ((64, 1), (64, 1), (64, 1))), 1),
    "a column-major weight": ((64, ((64, 1), (1, 64), (64, 1))), 1),
    "shared rows": ((64, ((0, 1), (64, 1), (64, 1))), 8),
    "nothing to sum": ((0, ((0, 1), (0, 1), (0, 1))), 8),
}


@pytest.mark.parametrize("what", UNITS)
def test_neighbours_that_are_copied_at_once(what):
    (hidden, strides), count = UNITS[what]
    assert unit(hidden, strides, 2) == count


def code_of_the_gradient(elements, **changes):
    chosen = {"ACTIVATION": "silu", "UNIT": unit(elements, (), 2), "BLOCK_SIZE": 1024, "EVICT": "none", **changes}
    tensors = ("gate", "up", "grad", "dgate", "dup")
    signature = dict.fromkeys(tensors, "*fp16") | {"elements": "i32"} | dict.fromkeys(chosen, "constexpr")
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(len(tensors))}
    source = ASTSource(gated_mlp_backward_kernel, signature, chosen, aligned)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["ptx"]


def accesses_of_the_gradient(elements):
    return set(re.findall(r"(?:ld|st)\.global[.\w]*", code_of_the_gradient(elements)))


def test_the_gradient_reads_as_many_neighbours_at_once_as_its_elements_allow():
    assert accesses_of_the_gradient(1000 * 777) == {"ld.global.v4.b32", "st.global.v4.b32"}  # no multiple of 16
    assert accesses_of_the_gradient(33 * 100) == {"ld.global.v2.b32", "st.global.v2.b32"}
    assert accesses_of_the_gradient(33 * 101) == {"ld.global.b16", "st.global.b16"}


def joined_errors():
    """The error where weights are halves of one tensor, in both orders; then where they are the same weight."""
    x, gate, up = inputs((1, 5, 40, 48), "float32")
    both = torch.cat([gate, up])
    config = {**HOST, "JOINED": True}
    result = [fused_gated_mlp(x, *halves, config=config) for halves in (both.chunk(2), reversed(both.chunk(2)))]
    right = [expected(*(each.double() for each in given), "silu") for given in ((x, gate, up), (x, up, gate))]
    return off(result, right), error_of(partial(fused_gated_mlp, config=config), x, gate, gate)


def test_joined_weights_may_lie_in_any_order_and_not_be_one(interpreted):
    error, told = interpreted(joined_errors)
    assert error <= ROUNDING["float32"]
    assert told[0] == "ConfigValueError"


def launched(same, training):
    """The error of a call whose winner joins weights and walks, and what it was launched with."""
    x, gate, up = inputs((1, 5, 40, 48), "float32")
    up = gate if same else up
    winner, seen = Config({**HOST, "JOINED": True, "PROGRAMS": 1}), []

    def noted(kernel, config, values, device):
        seen.append((config["JOINED"], config["PROGRAMS"]))
        launch(kernel, config, values, device)

    launch = ShippedKernel.launch
    chosen = patch.object(shipped, "config_for", lambda *_given, **_options: winner)
    with chosen, patch.object(ShippedKernel, "launch", noted):
        result = fused_gated_mlp(x.requires_grad_(training), gate, up)
    return off([result.detach()], [expected(*(each.detach().double() for each in (x, gate, up)), "silu")]), seen


@pytest.mark.parametrize(
    ("same", "training", "ran"),
    [(False, False, (True, 1)), (True, False, (False, 1)), (False, True, (True, 0)), (True, True, (False, 0))],
)
def test_a_winner_runs_as_the_call_allows(interpreted, same, training, ran):
    error, seen = interpreted(launched, same, training)
    assert error <= ROUNDING["float32"]
    assert seen == [ran], "weights that are one are not joined, and programs that keep the products do not walk"


@pytest.mark.parametrize("joined", [False, True])
def test_products_that_are_kept_fit_beside_the_largest_tiles(joined):
    given = dict(operation.problem((4096, 14336, 4096), "bfloat16").arguments)
    kept = Arguments(keyword={**given, "gate": given["out"], "up": given["out"]}).described()
    config = Config({**default_config(4096, 14336, 4096, "bfloat16"), **TILE, "JOINED": joined, "num_stages": 4})
    result = TritonCompiler(operation.kernel, kept, Target.named("sm_90")).compile(config)
    assert (result.status.value, result.resources.serialised) == ("ok", False)


@pytest.mark.parametrize(
    "config",
    [
        {**SMALL, "LOADS": "device"}, {**SMALL, "JOINED": True}, {**SMALL, "HALVES": True},
        {**HOST, "JOINED": 1}, {**HOST, "PROGRAMS": -1}, {**HOST, "BLOCK_N": 2}, {**HOST, "BLOCK_K": 1},
        {**HOST, "BLOCK_N": 4, "HALVES": True},
    ],
)  # fmt: skip
def test_own_configs_that_do_not_fit_are_refused(interpreted, config):
    given = inputs((1, 2, 40, 48), "float32")
    assert interpreted(error_of, partial(fused_gated_mlp, config=config), *given)[0] == "ConfigValueError"


def test_descriptors_of_uneven_rows_are_refused(interpreted):
    given = inputs((1, 2, 41, 48), "float32")
    assert interpreted(error_of, partial(fused_gated_mlp, config=HOST), *given)[0] == "ConfigValueError"


def test_small_problems_have_small_tiles():
    space = operation.space_for(operation.problem((4, 512, 512)))
    assert {config["BLOCK_M"] for config in space if config["LOADS"] == "pointers"} == {16}
    assert default_config(4, 512, 512, "float16")["BLOCK_M"] == 16


def test_work_counts_two_products():
    assert operation.work(operation.problem((8, 16, 32), "float16")).flops == 4 * 8 * 16 * 32
    assert operation.work(operation.problem((8, 16, 32), "float16")).bytes == 2 * (8 * 32 + 2 * 16 * 32 + 8 * 16)


X, WEIGHT = torch.zeros(2, 3, 4), torch.zeros(5, 4)
ERRORS = {
    "dtype of x": ((X.int(), WEIGHT, WEIGHT), UnsupportedDtypeError, "x"),
    "dtype of a weight": ((X, WEIGHT.half(), WEIGHT), UnsupportedDtypeError, "gate_weight"),
    "layout": ((torch.zeros(4, 3, 4)[::2], WEIGHT, WEIGHT), ShapeMismatchError, "x"),
    "activation": ((X, WEIGHT, WEIGHT, "relu"), SettingsError, None),
    "rank of x": ((X[0], WEIGHT, WEIGHT), ShapeMismatchError, "x"),
    "rank of a weight": ((X, WEIGHT[0], WEIGHT), ShapeMismatchError, "gate_weight"),
    "hidden size": ((X, torch.zeros(5, 3), WEIGHT), ShapeMismatchError, "gate_weight"),
    "two weights": ((X, WEIGHT, torch.zeros(6, 4)), ShapeMismatchError, "up_weight"),
}


@pytest.mark.parametrize("what", ERRORS)
def test_bad_inputs_are_refused(interpreted, what):
    given, error, name = ERRORS[what]
    assert interpreted(error_of, fused_gated_mlp, *given) == (error.__name__, name)


def test_cpu_tensors_are_a_device_error():
    with pytest.raises(DeviceError, match="x is on cpu"):
        fused_gated_mlp(X, WEIGHT, WEIGHT)


def module_found():
    module = FusedGatedMLP(12, 20, "gelu")
    again = FusedGatedMLP(12, 20, "gelu")
    again.load_state_dict(module.state_dict())
    x = drawn(2, 3, 12)
    torch.testing.assert_close(again(x), expected(x, module.gate_weight, module.up_weight, "gelu"))
    again(x).sum().backward()
    return [tuple(p.shape) for p in again.parameters() if p.grad is not None], repr(again)


def test_module_owns_weights_that_learn(interpreted):
    shapes, shown = interpreted(module_found)
    assert shapes == [(20, 12), (20, 12)]
    assert shown == "FusedGatedMLP(hidden_dim=12, intermediate_dim=20, activation='gelu')"


@pytest.mark.parametrize(("given", "error"), [((0, 2), ShapeMismatchError), ((2, 2, "relu"), SettingsError)])
def test_module_refuses_what_does_not_fit(given, error):
    with pytest.raises(error):
        FusedGatedMLP(*given)
