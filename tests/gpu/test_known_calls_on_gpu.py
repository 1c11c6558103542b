"""Known calls of shipped functions on a GPU: the bits of the first call, on any stream, in a graph, with gradients."""

from __future__ import annotations

import random
import warnings

import pytest

torch = pytest.importorskip("torch")

import triton_ops  # noqa: E402
from triton_ops.dispatch import plans  # noqa: E402
from triton_ops.dispatch.decision import forget_decisions  # noqa: E402
from triton_ops.request import KnownCalls  # noqa: E402
from triton_ops_kernels.fp8_quantize import dequantize_fp8, quantize_fp8  # noqa: E402

pytestmark = pytest.mark.gpu
PATTERNS = 125  # of each family
TILE = {"BM": 64, "BN": 64, "BK": 64, "num_warps": 4, "num_stages": 3}
SPLIT, HOST = {**TILE, "ALGORITHM": "split_k", "SPLIT": 2}, {**TILE, "LOADS": "host"}
STREAM, DEVICE = {**TILE, "ALGORITHM": "stream_k"}, {**TILE, "LOADS": "device"}


def drawn(*shape, dtype=torch.bfloat16):
    return torch.randn(shape, device="cuda").to(dtype)


def a_product(rng):
    m, n, k = (rng.choice([16, 48, 128, 200, 264]) for _ in range(3))
    a, b = drawn(m, k), drawn(n, k).t() if rng.random() < 0.5 else drawn(k, n)
    config = rng.choice([None, None, SPLIT, STREAM, HOST, DEVICE]) if m % 8 == n % 8 == k % 8 == 0 else None
    bias = drawn(n) if rng.random() < 0.5 else None
    right = a.float() @ b.float() + (0 if bias is None else bias.float())
    return (lambda: triton_ops.matmul(a, b, bias=bias, config=config)), right


def rows(rng):
    return drawn(
        *rng.choice([(7, 64), (2, 33, 128), (300, 5000), (1, 8)]), dtype=rng.choice([torch.float16, torch.float32])
    )


def a_softmax(rng):
    x = rows(rng)
    return (lambda: triton_ops.softmax(x)), x.float().softmax(-1)


def a_layer_norm(rng):
    x = rows(rng)
    weight = drawn(x.shape[-1])
    right = torch.nn.functional.layer_norm(x.float(), x.shape[-1:], weight.float())
    return (lambda: triton_ops.layer_norm(x, weight)), right


def an_attention(rng):
    heads, head = rng.choice([(4, 4), (8, 2)]), rng.choice([64, 128])
    length = rng.choice([1, 17, 128])
    q = drawn(2, heads[0], length, head)
    k, v = drawn(2, heads[1], 128, head), drawn(2, heads[1], 128, head)
    wide = [each.float().repeat_interleave(heads[0] // each.shape[1], 1) for each in (q, k, v)]
    return (lambda: triton_ops.flash_attention(q, k, v)), torch.nn.functional.scaled_dot_product_attention(*wide)


def a_gated_mlp(rng):
    x, (gate, up) = drawn(1, rng.choice([1, 40, 130]), 128), (drawn(96, 128) for _ in range(2))
    right = torch.nn.functional.silu(x.float() @ gate.float().t()) * (x.float() @ up.float().t())
    return (lambda: triton_ops.fused_gated_mlp(x, gate, up)), right


def a_quantisation(rng):
    x = drawn(rng.choice([1, 33, 256]), rng.choice([128, 1000]))
    granularity = rng.choice(["tensor", "row", "block"])
    return (lambda: dequantize_fp8(*quantize_fp8(x, granularity=granularity), torch.float32)), x.float()


def a_group(rng):
    x, weight = drawn(96, 128), drawn(3, 128, 64)
    ends = torch.tensor([rng.randrange(96), 96, 96], device="cuda", dtype=torch.int32)
    right = torch.cat([x[: ends[0]].float() @ weight[0].float(), x[ends[0] :].float() @ weight[1].float()])
    return (lambda: triton_ops.grouped_matmul(x, weight, ends)), right


def a_layer(rng):
    linear = triton_ops.FP8Linear(128, 64, device="cuda", dtype=torch.bfloat16).requires_grad_(False)
    x = drawn(rng.choice([1, 16, 70]), 128)
    return (lambda: linear(x)), x.float() @ linear.weight.float().t()


FAMILIES = [a_product, a_softmax, a_layer_norm, an_attention, a_gated_mlp, a_quantisation, a_group, a_layer]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_a_known_call_gives_the_bits_of_the_first(family):
    rng = random.Random(0)
    torch.manual_seed(0)
    for _ in range(PATTERNS):
        forget_decisions()
        call, right = family(rng)
        first, *others = (call() for _ in range(4))
        assert all(torch.equal(first, other) for other in others)
        off = (first.float() - right).norm() / right.norm()
        assert off < (0.08 if family in (a_quantisation, a_layer) else 0.02), (family, off)


def is_known(call):
    """Whether a call is repeated by a plan: nothing is recorded or decided for it."""
    before, _ = plan_keys(), call()
    return before == plan_keys()


def plan_keys():
    """The calls that have plans, of each function."""
    return [dict(calls) for calls in plans._planned if isinstance(calls, KnownCalls)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_a_known_call_is_right_on_another_stream_and_in_a_graph(family):
    call, _ = family(random.Random(1))
    first, *_ = (call() for _ in range(3))
    assert is_known(call)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        beside = call()
    torch.cuda.synchronize()
    assert torch.equal(beside, first)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    captured.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, first)


def test_gradients_of_known_calls_are_those_of_the_first():
    x, weight = drawn(64, 256).requires_grad_(), drawn(256).requires_grad_()
    q, k, v = (drawn(1, 4, 64, 64).requires_grad_() for _ in range(3))
    tokens, gate, up = (drawn(*shape).requires_grad_() for shape in ((1, 40, 128), (96, 128), (96, 128)))
    for call, inputs in (
        (lambda: triton_ops.layer_norm(x, weight), (x, weight)),
        (lambda: triton_ops.softmax(x), (x,)),
        (lambda: triton_ops.flash_attention(q, k, v, True), (q, k, v)),
        (lambda: triton_ops.fused_gated_mlp(tokens, gate, up), (tokens, gate, up)),
    ):
        forget_decisions()
        first, *others = (torch.autograd.grad(call().float().square().sum(), inputs) for _ in range(4))
        for other in others:
            assert all(map(torch.equal, first, other))


def test_the_host_of_a_known_call_does_not_wait_for_the_device():
    x = drawn(64, 256)
    for call in (lambda: quantize_fp8(x), lambda: triton_ops.softmax(x)):
        for _ in range(3):
            call()
        with warnings.catch_warnings(action="ignore"):  # torch 2.11 says that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        try:
            result = call()  # an error if the host waits
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert result is not None


def test_descriptors_that_are_kept_describe_the_tensors_of_each_call():
    """Also of results whose memory is another one at each call, or one that was freed and given out again."""
    pairs, kept = [(drawn(128, 256), drawn(256, 192)) for _ in range(3)], []
    for nth in range(24):
        a, b = pairs[nth % 3]
        result = triton_ops.matmul(a, b, config=HOST)
        kept = [*kept, result] if nth % 4 else []
        torch.testing.assert_close(result, a @ b, rtol=2e-2, atol=2e-2)
