"""References that close over their tensors or cast inside: the golden result has no rounding but what is meant."""

from __future__ import annotations

import ctypes
import math
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from tests.cpu.evaluation.emulated import ATTENTION_FAULTS, MATMUL_FAULTS, attention, attention_inputs, flash, matmul
from triton_ops import TuningFailedError, tune
from triton_ops.backend import Arguments, ArgumentSet
from triton_ops.benchmark import CorrectnessVerifier
from triton_ops.evaluation.golden import Lifted, Referee
from triton_ops.evaluation.judges import Precision
from triton_ops.evaluation.raised_precision import RaisedPrecision

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def drawn(*shape, seed=0, dtype=BF16):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


X, G, U, W, B = drawn(16, 32), drawn(32, 64, seed=1), drawn(32, 64, seed=2), drawn(32, seed=3), drawn(32, seed=4)
Q, K, V = (drawn(2, 4, 64, 32, seed=seed) for seed in (5, 6, 7))
EXPERTS, ENDS = drawn(3, 32, 8, seed=8), torch.tensor([4, 9, 16])
HIDDEN = torch.ones(64, 64, dtype=torch.bool).triu(1)


def lifted(reference, *arguments, **options):
    """The golden result of a run, and the run."""
    run = Lifted(options.pop("name", "float64"), **options)
    return run.wide(run.run(reference, Arguments(arguments))), run


def error(found, wanted):
    return float((found - wanted).abs().max() / wanted.abs().max())


def rounded_mlp():
    return functional.silu(X @ G) * (X @ U)


def mlp_in_place():
    out = torch.empty(16, 64, dtype=BF16)
    torch.mm(X, G, out=out)
    functional.silu(out, inplace=True)
    out *= torch.matmul(X, U)
    return out


def rounded_attention():
    scores = (Q @ K.mT).float() / math.sqrt(32)
    return scores.masked_fill(HIDDEN, torch.finfo(scores.dtype).min).softmax(-1).to(Q.dtype) @ V


def attention_by_head():
    out = torch.empty_like(Q)
    for b in range(2):
        for h in range(4):
            scores = Q[b, h].float() @ K[b, h].float().T * 32**-0.5
            scores += torch.full((64, 64), -torch.inf).triu(1)
            out[b, h] = scores.softmax(-1).type_as(V) @ V[b, h]
    return out.transpose(1, 2).reshape(2, 64, -1).view(2, 64, 4, 32).transpose(1, 2)


def fused_attention():
    return functional.scaled_dot_product_attention(Q, K, V, is_causal=True)


def rounded_norm():
    apart = (X.float() - X.float().mean(-1, keepdim=True)).half()
    scale = torch.rsqrt((apart.float() ** 2).mean(-1, keepdim=True) + 1e-5)
    return (apart * scale * W.float() + B).to(BF16)


def rounded_softmax():
    weights = torch.exp(X - X.max(-1, keepdim=True).values)
    return weights / weights.sum(-1, keepdim=True, dtype=FP32).to(BF16)


def grouped():
    out, start = torch.zeros(16, 8, dtype=BF16), 0
    for group, end in enumerate(ENDS.tolist()):
        out[start:end] = X[start:end] @ EXPERTS[group]
        start = end
    return out


def gradient():
    leaf = X.float().detach().requires_grad_()
    functional.silu(leaf @ G.float()).sum().backward()
    return leaf.grad.to(BF16)


def quantised():
    scale = X.float().abs().amax(-1, keepdim=True) / 127
    return ((X.float() / scale).round().to(torch.int8).float() * scale).to(BF16) @ G


def in_wide(reference):
    """What the reference of a name would give in float64."""
    x, g, u, q, k, v = (each.double() for each in (X, G, U, Q, K, V))
    leaf = x.clone().requires_grad_()
    functional.silu(leaf @ g).sum().backward()
    scale = x.abs().amax(-1, keepdim=True) / 127
    mlp = functional.silu(x @ g) * (x @ u)
    attended = (q @ k.mT / math.sqrt(32)).masked_fill(HIDDEN, -math.inf).softmax(-1) @ v
    runs = zip((0, 4, 9), (4, 9, 16), EXPERTS.double(), strict=True)
    return {
        "rounded_mlp": mlp, "mlp_in_place": mlp, "rounded_attention": attended, "attention_by_head": attended,
        "fused_attention": attended, "rounded_norm": functional.layer_norm(x, (32,), W.double(), B.double()),
        "rounded_softmax": x.softmax(-1), "grouped": torch.cat([x[start:end] @ each for start, end, each in runs]),
        "gradient": leaf.grad, "quantised": (x / scale).round() * scale @ g,
    }[reference.__name__]  # fmt: skip


CLOSED = (
    rounded_mlp, mlp_in_place, rounded_attention, attention_by_head, fused_attention, rounded_norm, rounded_softmax,
    grouped, gradient, quantised,
)  # fmt: skip


@pytest.mark.parametrize("reference", CLOSED, ids=lambda reference: reference.__name__)
def test_what_a_reference_closes_over_and_casts_is_lifted(reference):
    result, run = lifted(reference)
    assert result.dtype is torch.float64
    assert not run.rounded
    expected = in_wide(reference)
    assert error(result, expected) < 1e-12
    assert error(reference().double(), expected) > 1e-4


def linear(x):
    layer = torch.nn.Linear(32, 32, bias=False).to(BF16)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(32))
    return layer(x.bfloat16())


def under_autocast(x):
    with torch.autocast("cpu", BF16):
        return functional.linear(x[None], torch.eye(32))[0]


@pytest.mark.parametrize(
    "cast",
    [
        lambda x: x.to(FP16), lambda x: x.to(dtype=BF16), lambda x: x.to("cpu", FP16), lambda x: x.half(),
        lambda x: x.bfloat16(), lambda x: x.float().half().float(), lambda x: x.type_as(X), lambda x: x.type(FP16),
        lambda x: x.to(X), lambda x: torch.zeros(32, dtype=FP16).copy_(x), lambda x: torch.stack([x.half()])[0],
        lambda x: torch.ops.aten._to_copy.default(x, dtype=FP16), lambda x: x.sum_to_size(32).half().contiguous(),
        lambda x: x[None].sum(0, dtype=BF16), lambda x: torch.mul(x.half(), torch.ones(32, dtype=BF16)),
        lambda x: torch.add(x, 0, out=torch.empty(32)).to(BF16), lambda x: torch.where(x > -9, x.half(), X[0]),
        linear, under_autocast,
    ],
)  # fmt: skip
def test_casts_among_the_floats_do_not_round(cast):
    x = torch.rand(32, generator=torch.Generator().manual_seed(9)) / 3
    result, run = lifted(cast, x)
    assert not run.rounded
    assert torch.equal(result, x.double())


def to_float8():
    scale = 2.0 ** X.float().abs().amax().log2().ceil()
    return (X.float() * 256 / scale).to(torch.float8_e4m3fn).float() * scale


def by_bits():
    return ((X.float().view(torch.int32) + 0x8000) & -65536).view(FP32)


def by_bits_in_place():
    wide = X.float() * 1.5
    bits = wide.view(torch.int32)
    bits &= -65536 * 4
    return wide


@pytest.mark.parametrize(
    "rounding",
    [
        to_float8, by_bits, by_bits_in_place, lambda: torch.round(X.float() * 3), lambda: (X * 4).trunc(),
        lambda: (X.float() * 8).to(torch.int8).to(BF16), lambda: X.float().mul(4).floor(), lambda: X.view(torch.int16),
        lambda: torch.ops.aten.view.dtype(X, torch.int16) & -16,
        lambda: torch.quantize_per_tensor(X.float(), 0.125, 0, torch.qint8).dequantize(),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_rounding_that_is_the_operation_itself_stays(rounding):
    result, _ = lifted(rounding)
    assert torch.equal(result, rounding().to(result.dtype))


def test_what_a_reference_writes_into_closed_over_tensors_is_undone():
    buffer, index, count = torch.zeros(16, 64, dtype=BF16), torch.tensor([1, 3]), torch.zeros((), dtype=torch.int64)
    across, norm = buffer.t(), torch.nn.BatchNorm1d(32)

    def reference():
        buffer.copy_(X @ G)
        across[0] = 1  # seen through another tensor over the same memory
        buffer[index] += 2
        norm(X.float())
        count.add_(1)
        return buffer + count

    before = [each.clone() for each in (buffer, count, norm.running_mean)]
    with torch.inference_mode():
        inside, _ = lifted(reference)
    result, run = lifted(reference)
    expected = X.double() @ G.double()
    expected[:, 0] = 1
    expected[index] += 2
    assert torch.equal(result, expected + 1)
    assert torch.equal(inside, expected + 1)
    assert not run.rounded
    assert all(map(torch.equal, before, (buffer, count, norm.running_mean)))
    assert buffer.dtype is BF16


def test_the_wide_numbers_decide_what_a_reference_selects_and_reads():
    x = torch.linspace(-1, 1, 101)
    result, _ = lifted(lambda: x[(x.half() * 3).bfloat16() > 0.5] * x.half().std().item())
    assert error(result, x.double()[x.double() * 3 > 0.5] * x.double().std()) < 1e-12


@pytest.fixture(scope="module")
def narrow():
    """An operator for floats of up to 32 bits; float64 is refused."""
    library = torch.library.Library("triton_ops_tests_lifted", "DEF")
    library.define("twice(Tensor x) -> Tensor")

    def twice(x):
        if x.dtype is torch.float64:
            raise NotImplementedError("no float64")
        return x * 2

    library.impl("twice", twice, "CompositeExplicitAutograd")
    yield torch.ops.triton_ops_tests_lifted.twice
    library._destroy()


def answered(reference, **arguments):
    referee = Referee(reference)
    return referee, referee.answers(ArgumentSet(Arguments(keyword=arguments)), Precision(inputs=("bfloat16",)))


def test_what_has_no_float64_form_is_computed_as_it_is_and_its_cost_is_measured(narrow):
    referee, result = answered(lambda **_: narrow(X @ G) * narrow(X @ U), x=X)
    expected = 4 * (X.double() @ G.double()) * (X.double() @ U.double())
    assert (referee.used, result.precision.blur) == ("float64 but for twice", 1.5)
    assert "twice ran in the precision of the tensors, which costs 0.00" in referee.rounded
    off = [float((each - expected).square().mean().sqrt()) for each in (result.golden[0], result.disturbed[0])]
    apart = float((result.golden[0] - result.disturbed[0]).square().mean().sqrt())
    assert off[0] < 2 * apart
    assert apart < 0.02 * float(expected.square().mean().sqrt())


def test_a_part_without_a_float64_form_refuses_no_correct_config_and_hides_no_fault(narrow, tmp_path):
    def mlp(x, *, step, fault):
        gate, up = (matmul(x, each, step, fault).float() for each in (G, U))
        return (4 * functional.silu(gate) * up).to(BF16)

    configs = [{"step": step, "fault": fault} for fault in ("", "last block dropped") for step in (8, 16)]
    result = tune(mlp, [X], space=configs, search="exhaustive", cache_dir=tmp_path,
                  reference=lambda x: narrow(functional.silu(x @ G)) * narrow(X @ U))  # fmt: skip
    assert {(t.config["fault"], str(t.status)) for t in result.trials} == {("", "ok"), ("last block dropped", "wrong")}
    assert result.verified == "the reference in float64 but for twice"
    assert any("is allowed for" in note for note in result.notes)


def test_what_a_kernel_writes_by_an_address_is_taken_from_there():
    def reference():
        out, given = torch.empty(16, 64, dtype=FP32), X.float() @ G.float()
        ctypes.memmove(out.data_ptr(), given.data_ptr(), out.numel() * 4)
        return out * 3

    result, run = lifted(reference)
    assert list(run.rounded) == ["a kernel that takes addresses"]
    assert error(result, 3 * X.double() @ G.double()) < 1e-6


def test_what_a_kernel_reads_by_an_address_are_the_wide_numbers_rounded_once():
    def reference():
        steps, out = torch.full((64,), 1.0, dtype=BF16), torch.empty(64, dtype=BF16)
        for _ in range(64):
            steps = steps + 1 / 512  # in its own precision nothing is added
        assert steps.data_ptr() % 2 == 0
        ctypes.memmove(out.data_ptr(), steps.data_ptr(), 2 * 64)
        return out

    result, _ = lifted(reference)
    assert result.tolist() == [1.125] * 64


def test_a_result_that_was_computed_before_is_its_own_judge():
    before = rounded_mlp()
    for reference in (lambda **_: before, lambda x: before):
        referee, result = answered(reference, x=X)
        assert (referee.used, result.golden, result.precision.blur) == ("", [None], 2.0)
        assert "it gives the same bits, as of results that were computed before" in referee.why_own


def test_a_compiled_reference_is_lifted_as_it_was_before_compilation():
    compiled = torch.compile(lambda x: functional.silu(x @ G).half() * 3, backend="eager")
    referee, result = answered(lambda x: compiled(x), x=X)
    assert (referee.used, referee.rounded) == ("float64", "")
    assert error(result.golden[0], functional.silu(X.double() @ G.double()) * 3) < 1e-12


def test_a_transform_of_functions_leaves_the_inputs_to_be_raised():
    referee, result = answered(lambda x: torch.vmap(lambda row: row.exp())(x), x=X)
    assert (referee.used, referee.rounded) == ("float64", "")
    assert torch.equal(result.golden[0], X.double().exp())


def test_no_wide_tensor_is_held_when_a_run_is_over():
    """What only the collector of garbage frees takes a GPU's memory until then."""
    reference = weakref.ref(lifted(rounded_mlp)[1])
    assert reference() is None


def test_closed_over_tensors_that_would_take_the_memory_are_not_lifted(monkeypatch):
    monkeypatch.setattr("triton_ops.evaluation.golden.TorchDevice", lambda _: SimpleNamespace(free_bytes=4096))
    referee, result = answered(lambda **_: (X @ G).sum())  # a result that takes next to nothing
    assert result.golden == [None]
    assert "what it closes over would take" in referee.why_own


def correct(result, reference, **arguments):
    return CorrectnessVerifier().verify_by_rule(result, reference, kwargs=arguments)[0]


@pytest.mark.parametrize("kind", ["normal", "outlier", "sink"])
def test_no_correct_attention_is_refused_by_closed_over_references_and_faults_are_found(kind):
    q, k, v = attention_inputs(kind, 0)
    hidden = torch.ones(512, 512, dtype=torch.bool).triu(1)

    def with_casts(**_):
        scores = q.float() @ k.float().mT / math.sqrt(64)
        return scores.masked_fill(hidden, -math.inf).softmax(-1).to(v.dtype) @ v

    references = {
        "rounded at every step": lambda **_: attention(q, k, v), "with casts": with_casts,
        "fused": lambda **_: functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0],
    }  # fmt: skip
    for tile in (32, 64, 128):
        result = flash(q, k, v, tile)
        assert [name for name, each in references.items() if not correct(result, each, q=q, k=k, v=v)] == [], tile
    for fault in ATTENTION_FAULTS if kind == "normal" else ():
        assert not correct(flash(q, k, v, 64, fault), with_casts, q=q, k=k, v=v), fault


@pytest.mark.parametrize("dtype", [BF16, FP16])
def test_planted_faults_of_a_product_are_found_by_closed_over_references(dtype):
    a, b = drawn(96, 1000, dtype=dtype), drawn(1000, 160, seed=1, dtype=dtype)
    for step in (16, 128):
        assert correct(matmul(a, b, step), lambda **_: a @ b, a=a, b=b)
        for fault in MATMUL_FAULTS:
            assert not correct(matmul(a, b, step, fault), lambda **_: a @ b, a=a, b=b), (step, fault)


def in_float32(name, step):
    """What a kernel computes: sums in float32, in pieces, and one rounding at the end."""
    x, q, k, v = (each.float() for each in (X, Q, K, V))
    if name == "gated MLP":
        gate, up = (sum(x[:, s : s + step] @ each.float()[s : s + step] for s in range(0, 32, step)) for each in (G, U))
        return (functional.silu(gate) * up).to(BF16)
    if name == "attention":
        return torch.stack([flash(*each, step) for each in zip(q.bfloat16(), k.bfloat16(), v.bfloat16(), strict=True)])
    if name == "grouped product":
        runs = zip((0, 4, 9), (4, 9, 16), EXPERTS, strict=True)
        return torch.cat([matmul(X[start:end], each, step) for start, end, each in runs])
    if name == "layer norm":
        apart = x - sum(x[:, s : s + step].sum(-1, keepdim=True) for s in range(0, 32, step)) / 32
        return (apart * torch.rsqrt(apart.square().mean(-1, keepdim=True) + 1e-5) * W.float() + B.float()).to(BF16)
    weights = torch.exp(x - x.amax(-1, keepdim=True))
    return (weights / sum(weights[:, s : s + step].sum(-1, keepdim=True) for s in range(0, 32, step))).to(BF16)


FIVE = {
    "gated MLP": rounded_mlp, "attention": rounded_attention, "layer norm": rounded_norm, "softmax": rounded_softmax,
    "grouped product": grouped,
}  # fmt: skip


@pytest.mark.parametrize("name", FIVE)
def test_tunes_against_closed_over_references_refuse_no_correct_config(name, tmp_path):
    reference = FIVE[name]

    def kernel(x, *, step, off):
        return (in_float32(name, step).float() * (1 + off)).to(BF16)

    space = [{"step": step, "off": off} for off in (0.0, 0.05) for step in (8, 16, 32)]
    result = tune(kernel, [X], space=space, search="exhaustive", reference=lambda x: reference(), cache_dir=tmp_path)
    wrong = {trial.config["off"] for trial in result.trials if str(trial.status) == "wrong"}
    assert (wrong, result.totals) == ({0.05}, {"ok": 3, "wrong": 3}), [t.error for t in result.trials]
    assert result.verified == "the reference in float64"


def test_a_reference_that_all_configs_miss_by_little_is_the_suspect(tmp_path):
    """The reference takes another constant; the configs add up in several orders, and agree with one another."""
    x = torch.rand(512, generator=torch.Generator().manual_seed(0)) + 1

    def scaled(x, *, turns):
        return sum(x * (1 / turns) for _ in range(turns))

    with pytest.raises(
        TuningFailedError, match=r"^the reference is the suspect: all 3 configs that ran agree"
    ) as failed:
        tune(scaled, [x], space={"turns": [1, 2, 3]}, reference=lambda x: x * (1 + 3e-5), cache_dir=tmp_path)
    assert "none of 3 configs of" in str(failed.value)
    assert "round once at the end" in str(failed.value)
    assert "tolerance=Tolerance(times=" in failed.value.hint


def test_a_reference_whose_rounding_makes_another_result_is_the_suspect(tmp_path):
    """The scale is rounded down, so that the largest code is 128, which int8 does not hold."""
    x = torch.linspace(-1.375, 1.375, 64).bfloat16()[None]

    def rounded(x):
        scale = x.abs().amax(-1, keepdim=True) / 127
        return (x / scale).round().to(torch.int8).to(BF16) * scale

    def kernel(x, *, half):
        wide = x.float()
        scale = wide.abs().amax(-1, keepdim=True) / 127
        return ((wide / scale).round() * (scale / half) * half).to(BF16)

    with pytest.raises(
        TuningFailedError, match=r"^the reference is the suspect: .* in float\d\d it gives another result"
    ):
        tune(kernel, [x], space={"half": [1, 2]}, reference=rounded, cache_dir=tmp_path)


@pytest.mark.parametrize("off", [0.5, 3e-5])
def test_configs_that_are_far_off_or_differ_from_one_another_do_not_accuse_the_reference(off, tmp_path):
    def scaled(x, *, n):
        return x * (1 + (off if off > 0.1 else n * off))

    x = torch.rand(512, generator=torch.Generator().manual_seed(0)) + 1
    with pytest.raises(TuningFailedError, match=r"^none of 3 configs of"):
        tune(scaled, [x], space={"n": [1, -1, 2]}, reference=lambda x: x.clone(), cache_dir=tmp_path)


@pytest.mark.parametrize(
    ("reference", "convolves"),
    [
        (lambda x, w: functional.conv2d(x, w, padding=1), True),
        (lambda x, w: torch.nn.Conv2d(4, 4, 3)(x) * w.sum().to(FP32), True),
        (lambda x, w: torch.convolution(x, w, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1), True),
        (lambda x, w: x @ x.mT * w.sum(), False),
    ],
)
def test_a_reference_is_known_to_convolve_by_its_calls(reference, convolves):
    """A GPU computes convolutions of float32 in TF32 by default, and products not."""
    x, w = drawn(2, 4, 8, 8, dtype=FP32), drawn(4, 4, 3, 3, seed=1, dtype=FP32)
    _, run = lifted(reference, x, w)
    assert run.convolves is convolves


def test_products_may_be_tf32_where_torch_is_told_so(monkeypatch):
    arguments = Arguments((drawn(2, 4, dtype=FP32),))
    assert not RaisedPrecision.may_be_tf32(arguments, convolves=True)  # no tensor is on a GPU
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert RaisedPrecision.may_be_tf32(arguments, convolves=False)
