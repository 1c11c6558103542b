"""The rule for verdicts: correct results of any tile pass, planted faults do not, and no reference hides an error."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import partial

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.cpu.evaluation.emulated import (
    ATTENTION_FAULTS,
    MATMUL_FAULTS,
    attention,
    attention_inputs,
    flash,
    matmul,
)
from triton_ops import Operation, Problem, TensorSpec, Tolerance, Work, tune
from triton_ops.backend import Arguments, ArgumentSet
from triton_ops.evaluation.cases import further_cases
from triton_ops.evaluation.expected import ExpectedResults, Standard, difference, expected, is_exact, uncompared
from triton_ops.evaluation.golden import Referee
from triton_ops.evaluation.judges import Precision, Rounded, reduction_length
from triton_ops.evaluation.reference_results import ReferenceResults
from triton_ops.exceptions import SettingsError
from triton_ops.request import TuneProblem

TILES = (32, 64, 128)
KINDS = ("normal", "outlier", "sink")


@pytest.fixture(scope="session")
def judges():
    """For each kind of input and seed: the inputs, and the judges with a fused and with an eager reference."""
    result = {}
    for kind in KINDS:
        for seed in (0, 1):
            q, k, v = attention_inputs(kind, seed)
            golden = attention(q.double(), k.double(), v.double())
            precision = Precision(inputs=("bfloat16",) * 3, reduction=q.shape[1])
            peers = {"fused": flash(q, k, v, 128), "eager": attention(q, k, v)}
            result[kind, seed] = (
                (q, k, v),
                {name: Rounded(golden, [peer], torch.bfloat16, precision=precision) for name, peer in peers.items()},
            )
    return result


def test_no_correct_tile_of_attention_is_wrong(judges):
    for (kind, seed), (inputs, by_reference) in judges.items():
        for tile in TILES:
            result = flash(*inputs, tile)
            for name, judge in by_reference.items():
                assert judge.difference(result) is None, (kind, seed, tile, name)


@pytest.mark.parametrize("fault", ATTENTION_FAULTS)
def test_every_fault_of_attention_is_wrong_at_every_tile(judges, fault):
    """A dropped key and a coarse accumulator fade among outliers and sinks: they must be found on normal inputs."""
    faint = {"last key dropped", "bfloat16 accumulator", "last block dropped"}
    for (kind, seed), (inputs, by_reference) in judges.items():
        if seed or (fault in faint and kind != "normal"):
            continue
        for tile in (32, 128):
            result = by_reference["fused"].difference(flash(*inputs, tile, fault))
            assert result is not None, (kind, seed, tile)
            assert result.excess > 1


def test_elements_that_differ_from_a_low_precision_reference_are_not_counted(judges):
    """More than a tenth of a correct result's elements are unequal by torch's own tolerances; none is wrong."""
    (q, k, v), by_reference = judges["normal", 0]
    result, eager = flash(q, k, v, 64), attention(q, k, v)
    unequal = ~torch.isclose(result.float(), eager.float(), rtol=1.6e-2, atol=1e-5)
    assert float(unequal.float().mean()) > 0.1
    assert by_reference["eager"].difference(result) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("inner", [1024, 1000])
def test_products_of_any_step_are_right_and_planted_faults_wrong(dtype, inner):
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(96, inner, generator=generator).to(dtype)
    b = torch.randn(inner, 160, generator=generator).to(dtype)
    precision = Precision(inputs=(str(dtype).removeprefix("torch."),) * 2, reduction=inner)
    judge = Rounded(a.double() @ b.double(), [(a.float() @ b.float()).to(dtype)], dtype, precision=precision)
    for step in (16, 32, 64, 128):
        assert judge.difference(matmul(a, b, step)) is None
        for fault in MATMUL_FAULTS if step in (16, 128) else ():
            result = judge.difference(matmul(a, b, step, fault))
            assert result is not None, (step, fault)


def cut(tensor):
    """A float32 tensor without the bits that TF32 lacks."""
    return (tensor.view(torch.int32) & -(1 << 13)).view(torch.float32)


def with_errors(own, error, elements):
    """How a float32 result of 61 terms is wrong that is off by `error`, beside a peer that is off by `own`."""
    golden = torch.full((elements,), 1.5, dtype=torch.float64)
    precision = Precision(inputs=("float32",), reduction=61)
    judge = Rounded(golden, [(golden * (1 + own)).float()], torch.float32, precision=precision)
    return judge.difference((golden * (1 + error)).float())


@pytest.mark.parametrize(("elements", "right"), [(1, True), (2, True), (127, False), (128, False), (5000, False)])
def test_of_few_elements_the_error_of_the_peer_is_chance(elements, right):
    assert (with_errors(3.9e-6, 6.6e-6, elements) is None) == right
    assert with_errors(3.9e-6, 1e-4, elements) is not None


def test_correct_sums_that_cancel_out_are_right():
    torch.manual_seed(1)
    refused, of = 0, 400
    for _ in range(of):
        left, right = torch.rand(1, 61) * 2 - 1, torch.rand(61) * 2 - 1
        golden = (left.double() * right.double()).sum(1)
        precision = Precision(inputs=("float32",) * 2, reduction=61)
        judge = Rounded(golden, [left @ right], torch.float32, precision=precision)
        result = torch.stack([part.sum(1) for part in (left * right).split(8, 1)]).sum(0)
        refused += judge.difference(result) is not None
    assert refused <= of / 100  # one or two of a thousand are near zero beyond what the rule can tell


def test_float32_is_judged_as_float32_unless_the_code_multiplies_in_tf32():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(128, 512, generator=generator), torch.randn(512, 128, generator=generator)
    golden, own, in_tf32 = a.double() @ b.double(), a @ b, cut(a) @ cut(b)
    inputs = ("float32", "float32")
    strict = Rounded(golden, [own], torch.float32, precision=Precision(inputs=inputs, reduction=512))
    assert strict.difference(in_tf32) is not None
    assert strict.difference(own * 1.0039) is not None
    assert strict.difference(sum(a[:, k : k + 32] @ b[k : k + 32] for k in range(0, 512, 32))) is None
    wide = Precision(inputs=inputs, reduction=512, tf32=True)
    loose = Rounded(golden, [own, cut(a).double() @ cut(b).double()], torch.float32, precision=wide)
    assert loose.difference(in_tf32) is None
    assert loose.difference(own * 1.0039) is not None
    assert loose.difference(a[:, :-1] @ b[:-1]) is not None


def mean_of_narrow_sums(values, block, threads):
    """The mean of rows as a kernel has it that adds up each block in bfloat16: by each thread, then in a tree."""
    sums = values.unflatten(1, (-1, threads, block // threads))
    total = sums[..., 0]
    for at in range(1, block // threads):
        total = total + sums[..., at]
    while total.shape[-1] > 1:
        left, right = total.chunk(2, -1)
        total = left + right
    return (total[..., 0].float().sum(1) / values.shape[1]).bfloat16()


def test_code_that_adds_up_in_16_bits_is_right_with_other_tiles_and_wrong_without_a_tile():
    values = torch.randn(512, 4096, generator=torch.Generator().manual_seed(0)).bfloat16()
    tiles = [(64, 32), (256, 128), (1024, 32), (2048, 128), (4096, 32), (4096, 512)]
    refused = {}
    for narrow in (False, True):
        precision = Precision(inputs=("bfloat16",), reduction=4096, narrow_sums=narrow)
        own = mean_of_narrow_sums(values, 1024, 128)
        expected = ExpectedResults.of_own(Standard(precision=precision), [own])
        expected.prepare(tf32=False)
        refused[narrow] = [
            tile for tile in tiles if expected.difference([mean_of_narrow_sums(values, *tile)], tf32=False)
        ]
        assert expected.difference([mean_of_narrow_sums(values[:, :-64], 64, 32)], tf32=False) is not None
    assert len(refused[False]) > len(tiles) / 2
    assert refused[True] == []


def convolved(x, w, *, products, taps=4, shift=0, scale=1.0):
    """A causal depthwise convolution with SiLU, whose products are rounded to the inputs' dtype, or not."""
    padded = torch.nn.functional.pad(x, (taps - 1, 0)).roll(shift, 1)
    total = torch.zeros(x.shape, dtype=torch.float32)
    for k in range(len(w[0]) - taps, len(w[0])):
        at = k - (len(w[0]) - taps)
        left, right = padded[:, at : at + x.shape[1]], w[:, k : k + 1]
        total += (left * right).float() if products == "narrow" else left.float() * right.float()
    return (total * torch.sigmoid(total) * scale).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_in_16_bits_are_right_where_the_code_has_them_and_faults_beside_them_are_wrong(dtype):
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(256, count, generator=generator) for count in (2048, 4))
    x, w = (x.cumsum(1) / 20).to(dtype), w.to(dtype)  # neighbours are alike, so that products cancel out
    precision = Precision(inputs=(str(dtype).removeprefix("torch."),) * 2, reduction=2048)
    inputs = ArgumentSet(Arguments(keyword={"x": x, "w": w}))
    verdicts = {}
    for steps in (False, True):
        referee = Referee(lambda x, w: convolved(x, w, products="wide"))
        answers = referee.answers(inputs, precision)
        judge = ExpectedResults(Standard(precision=precision), answers, cut=partial(referee.cut, inputs))
        judge.prepare(tf32=False, steps=steps)
        assert judge.steps is steps
        assert judge.difference([convolved(x, w, products="wide")], tf32=False) is None
        verdicts[steps] = judge.difference([convolved(x, w, products="narrow")], tf32=False)
        for fault in ({"taps": 3}, {"shift": 1}, {"scale": 1.01}):
            for products in ("narrow", "wide"):
                assert judge.difference([convolved(x, w, products=products, **fault)], tf32=False), (steps, fault)
    assert verdicts[True] is None
    assert verdicts[False] is not None


@pytest.mark.parametrize("function", [torch.exp, torch.tanh, torch.nn.functional.gelu, torch.sin, torch.sqrt])
def test_elementwise_errors_of_a_thousandth_are_wrong_in_float32(function):
    x = torch.linspace(0.01, 3, 5000)
    target = expected(function(x), function(x.double()), None, Standard(precision=Precision(inputs=("float32",))))
    right = function(x)
    assert difference(right, target) is None
    assert difference(right * (1 + 1e-6), target) is None, "what approximations of hardware cost"
    assert difference(right * 1.001, target) is not None
    one = right.clone()
    one[77] *= 1.001
    assert difference(one, target) is not None


@example(dtype=torch.float8_e4m3fn, shape=(), scale=1.0, seed=19)
@given(
    dtype=st.sampled_from([torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn]),
    shape=st.sampled_from([(), (1,), (7,), (3, 5), (100, 3), (4, 64), (2, 3, 129), (1000,), (0, 4)]),
    scale=st.sampled_from([1e-6, 1.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_rounding_to_the_own_dtype_is_always_right(dtype, shape, scale, seed):
    if dtype is torch.float8_e4m3fn:
        scale = 1.0
    elif dtype is torch.float16 and scale != 1.0:
        scale = 100.0 if scale > 1 else 0.01
    golden = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * scale
    rounded = golden.to(dtype)
    for blind in (True, False):
        standard = Standard(precision=Precision(blur=2.0 if blind else 1.0))
        target = expected(rounded, None if blind else golden, None, standard)
        assert difference(rounded.clone(), target) is None
        # Half more than a subnormal number may be its neighbour, which is a rounding away.
        if golden.numel() and float(rounded.double().abs().max()) >= torch.finfo(dtype).tiny:
            result = difference((rounded.double() * 1.5).to(dtype), target)
            assert result is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_places_of_nan_and_infinities_are_those_of_the_golden_result(dtype):
    golden = torch.randn(200, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    golden[3], golden[5], golden[9] = math.nan, math.inf, -math.inf
    right = golden.to(dtype)
    target = expected(right, golden, None, Standard())
    assert difference(right.clone(), target) is None
    for place, value in ((3, 0.0), (5, -math.inf), (9, 1.0), (11, math.nan), (12, math.inf)):
        bad = right.clone()
        bad[place] = value
        assert difference(bad, target).excess == math.inf, place


def test_what_overflows_when_it_is_rounded_may_be_infinite():
    golden = torch.tensor([1.0, 7e4, -2e5] * 50, dtype=torch.float64)
    target = expected(golden.half(), golden, None, Standard())
    assert difference(golden.half(), target) is None
    assert difference(torch.tensor([1.0, 6e4, -6e4] * 50).half(), target) is not None


@pytest.mark.parametrize("beside", [65519.9, 65520.1, -65519.9, -65520.1])
def test_a_result_beside_the_largest_number_may_be_rounded_to_it_or_to_infinity(beside):
    golden = torch.tensor([beside, 1.0, 300.0] * 50, dtype=torch.float64)
    target = expected(golden.half(), golden, None, Standard())
    sign = math.copysign(1.0, beside)
    for value in (65504.0, math.inf):
        assert difference(torch.tensor([sign * value, 1.0, 300.0] * 50).half(), target) is None, value
    for bad in ([-sign * math.inf, 1.0, 300.0], [sign * 60000.0, 1.0, 300.0], [sign * math.inf, 1.0, math.inf]):
        assert difference(torch.tensor(bad * 50).half(), target) is not None, bad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_where_the_reference_alone_overflows_a_result_must_be_near_the_golden_one(dtype, odd):
    golden = torch.randn(64, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    own = golden.to(dtype)
    own[3] = odd
    target = expected(own, golden, None, Standard(precision=Precision(inputs=(str(dtype).removeprefix("torch."),))))
    assert difference(golden.to(dtype), target) is None
    assert difference(own, target) is None
    for bad in (torch.full((128,), 17.0), torch.zeros(128), -golden[3], golden[3] / 2):
        wrongly = golden.to(dtype)
        wrongly[3] = bad.to(dtype)
        assert difference(wrongly, target) is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_largest_number_of_a_mask_is_no_infinity(dtype):
    golden = torch.tensor([torch.finfo(dtype).min, 1.0], dtype=dtype).repeat(50)
    target = expected(golden, golden.double(), None, Standard())
    assert difference(golden.clone(), target) is None
    assert difference(torch.tensor([-math.inf, 1.0], dtype=dtype).repeat(50), target).excess == math.inf


@given(
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]),
    steps=st.floats(0.05, 20),
    seed=st.integers(0, 99),
)
def test_numbers_that_are_evenly_spaced_may_be_off_by_one_and_no_more(dtype, steps, seed):
    """Products that nearly vanish: a kernel rounds half a step up, the reference down, or in two steps."""
    step = float(torch.finfo(dtype).smallest_normal) * float(torch.finfo(dtype).eps)
    golden = torch.randn(40, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * step * steps
    golden[3:] = 0.0
    rounded, one_up, far = golden.to(dtype), golden.clone(), golden.clone()
    one_up[0, 5] = float(rounded[0, 5]) + step
    far[0, 5:69] += 12 * step
    for blind in (True, False):
        inputs = (str(dtype).removeprefix("torch."),)
        standard = Standard(precision=Precision(inputs=inputs, blur=2.0 if blind else 1.0))
        target = expected(rounded, None if blind else golden, None, standard)
        assert difference(one_up.to(dtype), target) is None
        assert difference(far.to(dtype), target) is not None


def test_a_golden_result_is_kept_where_the_reference_errs_by_the_smallest_numbers_alone():
    x = torch.full((64,), 3e-4).half() * torch.linspace(0.1, 1, 64).half()
    judge = Rounded(x.double() ** 2, [x * x], torch.float16, precision=Precision(inputs=("float16",)))
    assert judge.own_error == 0.0
    judge = Rounded(x.double() ** 2, [x * x * 0], torch.float16, precision=Precision(inputs=("float16",)))
    assert judge.own_error > 0.05 or float(x.double().square().max()) < 2**-25
    assert Rounded(x.double(), [x * 1.5], torch.float16, precision=Precision()).own_error > 0.05


def test_rows_that_nearly_vanish_are_judged_by_the_size_of_the_others():
    golden = torch.randn(64, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    golden[7] *= 1e-9
    right = golden.to(torch.bfloat16)
    target = expected(right, golden, None, Standard())
    noisy = right.clone()
    noisy[7] += 1e-4
    assert difference(noisy, target) is None
    noisy[7] += 1e-2
    assert difference(noisy, target) is not None
    assert difference(torch.zeros(8), expected(torch.zeros(8), torch.zeros(8).double(), None, Standard())) is None


def test_a_few_wrong_rows_are_found_among_many():
    golden = torch.randn(4096, 128, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    target = expected(golden.bfloat16(), golden, None, Standard())
    bad = golden.clone()
    bad[1234] *= 1.02
    result = difference(bad.bfloat16(), target)
    assert result is not None
    assert "1 of 4096 rows" in result.text
    assert "(1234," in result.text


@pytest.mark.parametrize(
    ("shape", "rows"), [((8, 63), 4), ((8, 64), 8), ((8, 512), 8), ((8, 513), 33), ((4, 2, 64), 8), ((520,), 5)]
)
def test_a_last_axis_of_usual_length_is_a_row_and_else_rows_are_pieces(shape, rows):
    golden = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    result = difference((golden * 1.5).float(), expected(golden.float(), golden, None, Standard()))
    assert result.text.endswith(f"{rows} of {rows} rows beyond theirs")


@pytest.mark.parametrize(("count", "off", "words"), [
    (10_000, 1, "0.01% of the elements are off"), (20_000, 1, "1 of 20000 elements are off"),
    (20_000, 2, "0.01% of the elements are off"), (64, 64, "100.00% of the elements are off"),
])  # fmt: skip
def test_elements_that_are_off_are_counted_where_they_are_few_and_else_a_share(count, off, words):
    golden = torch.ones(count, dtype=torch.float64)
    result = golden.float()
    result[7 : 7 + off] = 5.0
    result = result if off < count else golden.float() * 5
    assert difference(result, expected(golden.float(), golden, None, Standard())).text.startswith(f"{words}, the worst")


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 64)])
def test_a_result_without_elements_is_right(shape):
    golden = torch.zeros(shape, dtype=torch.float64)
    judge = Rounded(golden, [golden.float()], torch.float32, precision=Precision())
    assert judge.difference(golden.float()) is None
    assert judge.own_error == 0.0


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Pair:
    values: object
    count: int


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        (1.0, 1.0, True),
        (1.0, 2.0, False),
        (1, 1.0, False),
        (True, 1, False),
        ("x", "x", True),
        ("x", "y", False),
        (b"x", "x", False),
        (None, None, True),
        (0, None, False),
        ((1.0, torch.ones(2)), [1.0, torch.ones(2)], True),
        ([1.0], [1.0, 2.0], False),
        ({"a": 1.0}, {"a": 1.0}, True),
        ({"a": 1.0}, {"a": 2.0}, False),
        ({"a": 1.0}, {"b": 1.0}, False),
        ({1, 2}, {1, 2}, True),
        ({1, 2}, {1, 3}, False),
        (object(), object(), True),
        (torch.zeros(0), torch.zeros(0), True),
        (torch.zeros(3), torch.zeros(4), False),
        (torch.zeros(3), torch.zeros(3).double(), False),
        (torch.zeros(3), torch.zeros(3).int(), False),
        (torch.zeros(3), torch.zeros(3, device="meta"), False),
        (torch.zeros(3), [0.0] * 3, False),
        (torch.arange(4), torch.arange(4), True),
        (torch.arange(4), torch.tensor([0, 1, 2, 4]), False),
        (torch.tensor([2**60 + 1]), torch.tensor([2**60]), False),
        (torch.tensor([True, False]), torch.tensor([True, True]), False),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 1j]), True),
        (torch.tensor([1 + 1j]), torch.tensor([1 - 1j]), False),
        (torch.ones(3).numpy(), torch.ones(3).numpy(), True),
        (torch.ones(3).numpy(), torch.zeros(3).numpy(), False),
        (torch.ones(3).numpy(), torch.ones(3).double().numpy(), False),
        (Colour.RED, Colour.RED, True),
        (Colour.RED, Colour.BLUE, False),
        (Pair(torch.ones(3), 1), Pair(torch.ones(3), 1), True),
        (Pair(torch.ones(3), 1), Pair(torch.zeros(3), 1), False),
        (Pair(torch.ones(3), 1), Pair(torch.ones(3), 2), False),
        (Pair(torch.ones(3), 1), {"values": torch.ones(3), "count": 1}, False),
        (torch.eye(3).to_sparse(), torch.eye(3).to_sparse(), True),
        (torch.eye(3).to_sparse(), (2 * torch.eye(3)).to_sparse(), False),
        (torch.eye(3), torch.eye(3).to_sparse(), False),
    ],
)
def test_values_of_every_kind_are_compared(found, wanted, same):
    if getattr(wanted, "device", None) == torch.device("meta"):
        expectation = expected(torch.zeros(3), None, None, Standard())
        assert difference(wanted, expectation).text == "on meta instead of cpu"
        return
    assert (difference(found, expected(wanted, None, None, Standard())) is None) == same


def test_arrays_of_texts_and_structures_that_hold_arrays():
    np = pytest.importorskip("numpy")
    target = expected(np.array(["a", "b"]), None, None, Standard())
    assert difference(np.array(["a", "b"]), target) is None
    assert difference(np.array(["a", "c"]), target) is not None
    text = expected(np.str_("a"), None, None, Standard())
    assert difference(np.str_("a"), text) is None
    assert difference(np.str_("b"), text) is not None
    missing = expected(np.array(["2020-01-01", "NaT"], dtype="M8[D]"), None, None, Standard())
    assert difference(np.array(["2020-01-01", "NaT"], dtype="M8[D]"), missing) is None


def test_types_that_define_no_equality_are_named():
    class Vague:
        __hash__ = None

        def __eq__(self, other):
            raise ValueError("the truth of this is ambiguous")

    assert uncompared([torch.ones(2), Colour.RED, 1.0, float("nan"), None]) == ([], True)
    assert uncompared([{"a": (object(), Vague())}, None]) == (["Vague", "object"], False)


def test_large_integers_are_told_in_full():
    target = expected(torch.tensor([2**60, 5]), None, None, Standard())
    result = difference(torch.tensor([2**60 + 1, 5]), target)
    assert "the worst by 1; none may; element 0 is 1152921504606846977 instead of 1152921504606846976" in result.text


@pytest.mark.parametrize("tolerance", [Tolerance(), Tolerance(relative=1e-3)])
def test_results_are_judged_alike_in_one_piece_and_in_many(tolerance, monkeypatch):
    golden = torch.randn(40, 100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    golden[3, 7], golden[30, 9] = float("nan"), float("inf")
    texts = []
    for piece in (1 << 20, 256):
        monkeypatch.setattr("triton_ops.evaluation.numbers._PIECE_ON_CPU", piece)
        target = expected(golden.float(), golden, None, Standard(tolerance=tolerance))
        whole = expected((golden * 100).nan_to_num().int(), None, None, Standard())
        bad, near, other = golden.float(), golden.float() * (1 + 1e-7), (golden * 100).nan_to_num().int()
        bad[35, 99] += 1
        other[35, 99] += 3
        assert difference(near, target) is None
        assert difference(golden.float().nan_to_num(), target) is not None
        texts.append((difference(bad, target), difference(other, whole)))
    assert texts[0] == texts[1]


def test_the_bits_of_the_reference_need_no_judgement():
    own = torch.randn(8)
    target = replace(expected(own, own.double(), None, Standard()), judge=None)
    assert difference(own.clone(), target) is None


def test_codes_of_a_quantiser_may_be_one_apart_where_values_lie_between_two():
    standard = Standard(precision=Precision(inputs=("bfloat16",)))
    codes = torch.randint(-100, 100, (10_000,), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
    target = expected(codes, None, None, standard)
    near, far, many = codes.clone(), codes.clone(), codes.clone()
    near[::2000] += 1
    far[0] += 2
    many[::100] += 1
    assert difference(near, target) is None
    assert difference(far, target) is not None
    assert difference(many, target) is not None
    assert difference(near, expected(codes, None, None, Standard())) is not None, "without floats there are no ties"


def test_whole_numbers_are_exact_where_nothing_is_rounded():
    a = torch.randint(-1, 2, (40, 300)).bfloat16()
    golden = a.double() @ a.double().T
    right = golden.bfloat16()
    assert is_exact([right], [golden])
    assert not is_exact([a.softmax(-1)], [a.double().softmax(-1)])
    assert not is_exact([right.to(torch.int32)], [golden])
    target = expected(right, golden, None, Standard(exact=True))
    assert difference(right.clone(), target) is None
    off = right.clone()
    off[3, 4] += 1
    assert difference(off, target) is not None


def test_a_tolerance_of_elements_replaces_the_rule_and_times_widens_it():
    golden = torch.ones(100, dtype=torch.float64)
    off = torch.full((100,), 1.05)

    def told(tolerance):
        return difference(off, expected(golden.float(), golden, None, Standard(tolerance=tolerance)))

    assert told(Tolerance()) is not None
    assert told(Tolerance(relative=0.03)) is None
    assert told(Tolerance(relative=0.02)).excess == pytest.approx(1.25, rel=1e-3)
    assert told(Tolerance(absolute=0.06)) is None
    assert told(Tolerance(times=2 * told(Tolerance()).excess)) is None
    assert told(Tolerance(relative=0)) is not None
    assert (
        difference(golden.float(), expected(golden.float(), golden, None, Standard(tolerance=Tolerance(relative=0))))
        is None
    )


@pytest.mark.parametrize("bad", [{"relative": -1}, {"absolute": math.nan}, {"times": 0}, {"relative": True},
                                 {"bitwise": 1}, {"times": 10**400}, {"relative": 0.1, "times": 2}])  # fmt: skip
def test_a_tolerance_out_of_range_is_refused(bad):
    with pytest.raises(SettingsError):
        Tolerance(**bad)


def test_numbers_of_other_libraries_are_tolerances_of_plain_numbers():
    np = pytest.importorskip("numpy")
    for number in (np.float32(0.5), np.float64(0.5), Fraction(1, 2)):
        assert Tolerance.of(number).content == {"relative": 0.5}
        assert type(Tolerance.of(number).relative) is float
    assert Tolerance(bitwise=np.bool_(True)).bitwise is True


def test_the_reduction_is_read_from_the_problem():
    problem = Problem(
        "matmul",
        (
            ("a", TensorSpec((64, 512), "fp16")),
            ("b", TensorSpec((512, 32), "fp16")),
            ("c", TensorSpec((64, 32), "fp16")),
        ),
    )
    assert reduction_length(problem, ["c"], Work(flops=2.0 * 64 * 32 * 512)) == 512
    assert reduction_length(problem, ["c"], None) == 512
    total = Problem("sum", (("x", TensorSpec((8, 9), "fp32")), ("out", TensorSpec((1,), "fp32"))))
    assert reduction_length(total, ["out"], None) == 72
    assert reduction_length(Problem("none"), [], None) == 1


def test_rounding_costs_what_the_coarsest_dtype_and_the_accumulator_make_of_it():
    half, long = Precision(inputs=("bfloat16",)), Precision(inputs=("float8_e4m3fn",), reduction=4096)
    assert half.rounding("bfloat16") == pytest.approx(2**-8 / math.sqrt(3))
    assert half.rounding("float32") == half.rounding("bfloat16")
    assert Precision(inputs=("float32",)).rounding("float32") == 2**-18
    assert long.rounding("bfloat16") == pytest.approx(2**-8 / math.sqrt(3) + 2**-13 * 64)
    assert Precision(inputs=("float64",)).rounding("float64") < 1e-10


@pytest.mark.usefixtures("steady_clock")
@pytest.mark.parametrize(("fill", "status"), [("uniform", "ok"), ("outliers", "wrong")])
def test_what_only_holds_near_zero_is_found_where_an_operation_takes_outliers(fill, status):
    def doubled(x, *, clamped):
        return 2 * (x.clamp(-1, 1) if clamped else x)

    operation = Operation(
        "doubled", doubled, {"clamped": [False, True]}, lambda n=8192: {"x": TensorSpec((n,), "float32", fill=fill)},
        device="cpu", reference=lambda x: x * 2,
    )  # fmt: skip
    result = tune(operation, keep=False)
    assert {trial.config["clamped"]: str(trial.status) for trial in result.trials} == {False: "ok", True: status}


def test_the_second_draw_has_no_outliers():
    operation = Operation(
        "same", lambda x, y, *, a: x * y, {"a": [1]}, device="cpu", reference=lambda x, y: x * y,
        arguments=lambda n=8192: {"x": TensorSpec((n,), "float32", fill="outliers"), "y": TensorSpec((n,), "bfloat16")},
    )  # fmt: skip
    task = TuneProblem(target=operation).request().checked()
    first = ArgumentSet(task.arguments(), ())
    assert first.arguments.keyword["x"].abs().max() > 1
    second, whole = further_cases(first, task)
    for case in (second, whole):
        assert case.argument_set.arguments.keyword["x"].abs().max() <= 1
    assert set(whole.argument_set.arguments.keyword["x"].unique().tolist()) == {-1.0, 0.0, 1.0}


@pytest.mark.parametrize(("tolerance", "allowed"), [(Tolerance(), 1e-4), (Tolerance(relative=1e-3), 1e-2)])
def test_a_difference_names_the_first_element_that_is_off(tolerance, allowed):
    golden = torch.randn(40, 3, 100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    bad = golden.float()
    bad[11, 2, 64], bad[30, 0, 1] = 3.0, 1e3
    place = difference(bad, expected(golden.float(), golden, None, Standard(tolerance=tolerance))).place
    assert (place.index, place.value) == ((11, 2, 64), 3.0)
    assert place.right == pytest.approx(float(golden[11, 2, 64]))
    assert 0 < place.allowed < allowed


def test_a_difference_of_integers_names_the_first_and_one_of_shapes_no_element():
    target = expected(torch.arange(12).reshape(3, 4), None, None, Standard())
    found = difference(torch.tensor([[0, 1, 2, 3], [4, 5, 7, 7], [8, 9, 10, 99]]), target)
    assert (found.place.index, found.place.value, found.place.right, found.place.allowed) == ((1, 2), 7, 6, 0)
    assert difference(torch.arange(12), target).place is None


def test_a_right_function_may_round_to_16_bits_once_more_than_the_reference():
    for seed in range(20):
        x = torch.randn(250, 777, generator=torch.Generator().manual_seed(seed)).bfloat16()
        results = ReferenceResults(lambda x: torch.softmax(x, -1), Arguments((x,)))
        assert results.difference([torch.softmax(x.t().contiguous(), 0).t()]) is None
