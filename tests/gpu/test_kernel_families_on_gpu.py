"""Attention, norms, softmax, gated MLP, 8-bit floats on a GPU: results by the rule, gradients, extremes, every code."""

import math
import random

import pytest
import torch

import triton_ops_kernels as kernels
from triton_ops.backend import ArgumentSet, CandidateError
from triton_ops.benchmark import CorrectnessVerifier

pytestmark = pytest.mark.gpu

FAMILIES = [name for name in kernels.names() if name not in ("matmul", "rmsnorm_rope")]
SMALL = {
    "attention": [
        ((2, 8, 2, 300, 300, 128, 128, 2), "bfloat16"), ((2, 6, 3, 515, 777, 80, 80, 2), "float16"),
        ((1, 4, 4, 512, 512, 64, 64, 1), "bfloat16"), ((4, 16, 4, 1, 3000, 128, 128, 2), "bfloat16"),
        ((1, 4, 2, 200, 333, 192, 128, 2), "bfloat16"), ((1, 2, 1, 130, 100, 256, 256, 1), "float16"),
        ((1, 2, 2, 100, 100, 32, 32, 2), "float32"),
    ],
    "attention_backward": [
        ((2, 8, 2, 300, 300, 128, 128, 2), "bfloat16"), ((1, 6, 3, 215, 477, 80, 80, 2), "float16"),
        ((1, 4, 4, 512, 512, 64, 64, 1), "bfloat16"), ((1, 2, 1, 130, 100, 256, 256, 2), "bfloat16"),
    ],
    "fp8_dequantize": [((300, 500, 1, 128), "float16"), ((130, 256, 128, 128), "bfloat16")],
    "fp8_gemm": [
        ((300, 520, 528, 1), "bfloat16"), ((129, 257, 515, 2), "float16"), ((200, 300, 640, 3), "float32"),
        ((16, 1024, 4096, 2), "bfloat16"),
    ],
    "fp8_quantize": [((300, 500, 128), "bfloat16"), ((64, 5000, 5000), "float32"), ((100, 4096, 4096), "float16")],
    "gated_mlp": [((300, 520, 528), "bfloat16"), ((129, 257, 515), "float16"), ((33, 64, 100), "float32")],
    "gated_mlp_backward": [((300, 515), "bfloat16"), ((33, 100), "float32")],
    "grouped_matmul": [
        ((1000, 9, 520, 512, 2), "bfloat16"), ((300, 33, 257, 515, 1), "float16"), ((700, 5, 256, 128, 1), "bfloat16"),
        ((5, 8, 256, 256, 2), "bfloat16"), ((100, 3, 64, 100, 2), "float32"),
    ],
    "layer_norm": [((300, 1025), "bfloat16"), ((64, 70000), "float16"), ((1000, 100), "float32")],
    "layer_norm_backward": [((3000, 1025), "bfloat16"), ((300, 40000), "float32"), ((5000, 128), "float16")],
    "rmsnorm_rope_backward": [
        ((2, 500, 2560, 32), "bfloat16"), ((1, 64, 32768, 256), "float32"), ((3, 7, 96, 2), "float16"),
    ],
    "softmax": [((300, 1025), "bfloat16"), ((64, 151936), "float16"), ((1000, 100), "float32")],
    "softmax_backward": [((300, 1025), "bfloat16"), ((64, 151936), "float16"), ((1000, 100), "float32")],
}  # fmt: skip


@pytest.fixture(autouse=True)
def needs_float8(request):
    if "fp8" in request.node.name and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("8-bit floats need compute capability 8.9")


def judged(operation, config, values):
    """Whether a config's outputs are right by the rule, and how they are wrong; `CandidateError` names what fails."""
    given = ArgumentSet(values, operation.kernel.outputs)
    given.poison(0)
    try:
        executable = operation.kernel.compile(config, given.arguments)
    except CandidateError as error:
        error.add_note(f"{operation.kernel.name} has no answer for {config}")
        raise
    executable.launch(given.arguments)
    torch.cuda.synchronize()
    assert given.stray_writes() is None
    result = [given.arguments.keyword[name] for name in executable.outputs]
    verifier = CorrectnessVerifier()
    return verifier.verify_by_rule(
        result, operation.reference, kwargs=dict(values.keyword), outputs=operation.kernel.outputs
    )


def values_of(operation, problem, seed=0):
    return operation.materialise(problem, "cuda", seed)


@pytest.mark.parametrize(("name", "shape", "dtype"), [(n, *case) for n in FAMILIES for case in SMALL[n]])
def test_default_config_is_right_by_the_rule(name, shape, dtype):
    operation = kernels.load(name)
    problem = operation.problem(shape, dtype)
    right, how = judged(operation, operation.space_for(problem).default_config, values_of(operation, problem))
    assert right, how


@pytest.mark.parametrize(("name", "shape", "dtype"), [(n, *SMALL[n][0]) for n in FAMILIES])
def test_configs_that_load_are_right_by_the_rule(name, shape, dtype):
    operation = kernels.load(name)
    problem = operation.problem(shape, dtype)
    configs = list(operation.space_for(problem))
    values, loaded = values_of(operation, problem), 0
    for config in random.Random(0).sample(configs, min(24, len(configs))):
        try:
            right, how = judged(operation, config, values)
        except CandidateError:
            continue  # too much shared memory for this device
        loaded += 1
        assert right, f"{config}: {how}"
    assert loaded >= 4


@pytest.mark.parametrize("name", FAMILIES)
def test_equal_launches_give_equal_bits(name):
    operation = kernels.load(name)
    problem = operation.problem(*SMALL[name][0])
    values = values_of(operation, problem)
    executable = operation.kernel.compile(operation.space_for(problem).default_config, values)
    first = None
    for _ in range(20):
        executable.launch(values)
        result = [values.keyword[output].clone().view(torch.uint8) for output in executable.outputs]
        first = first or result
        assert all(torch.equal(a, b) for a, b in zip(first, result, strict=True))


OF_PRODUCTS = {
    "gated_mlp": [
        {"LOADS": "host"}, {"PROGRAMS": 1}, {"LOADS": "host", "PROGRAMS": 1}, {"LOADS": "host", "JOINED": True},
        {"LOADS": "host", "JOINED": True, "PROGRAMS": 1},
        {"LOADS": "host", "JOINED": True, "PROGRAMS": 1, "BLOCK_N": 128, "HALVES": True},
        {"SPLIT": 4}, {"LOADS": "host", "SPLIT": 2}, {"LOADS": "host", "JOINED": True, "SPLIT": 2},
    ],
    "grouped_matmul": [{"DESCRIPTORS": True}, {"PROGRAMS": 1}, {"DESCRIPTORS": True, "PROGRAMS": 1}],
    "fp8_gemm": [{"LOADS": loads, "PROGRAMS": programs} for loads in ("pointers", "host") for programs in (0, 1)],
}  # fmt: skip


@pytest.mark.parametrize(("name", "form"), [(name, form) for name, forms in OF_PRODUCTS.items() for form in forms])
def test_every_form_of_the_products_is_right(name, form):
    operation = kernels.load(name)
    shape = {"gated_mlp": (520, 768, 1040), "grouped_matmul": (1500, 3, 768, 1040, 2)}.get(name, (520, 768, 1040, 2))
    problem = operation.problem(shape, "bfloat16")
    config = {**operation.space_for(problem).default_config, **form, "num_stages": 3}
    from triton_ops.space import Config

    right, how = judged(operation, Config(config), values_of(operation, problem))
    assert right, how


@pytest.mark.parametrize("order", [False, True])
def test_joined_weights_of_the_gated_mlp_may_lie_anywhere(order):
    """In one tensor, in two that are gigabytes apart, and in either order in memory."""
    from triton_ops import fused_gated_mlp

    config = {
        "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 8, "num_stages": 4, "LOADS": "host",
        "JOINED": True, "PROGRAMS": 1,
    }  # fmt: skip
    room = torch.empty(3 * 2**30, dtype=torch.bfloat16, device="cuda")
    x = torch.randn(1, 700, 1040, device="cuda", dtype=torch.bfloat16)
    apart = [room[start : start + 776 * 1040].view(776, 1040).normal_() for start in (0, 2**31 + 2**30 - 2**20)]
    one = torch.randn(2 * 776, 1040, device="cuda", dtype=torch.bfloat16).chunk(2)
    for pair in (apart, one):
        gate, up = reversed(pair) if order else pair
        result = fused_gated_mlp(x, gate, up, config=config)
        right = fused_gated_mlp(x, gate, up, config={**config, "JOINED": False, "PROGRAMS": 0})
        torch.testing.assert_close(result, right)


@pytest.mark.parametrize("form", [{}, {"DESCRIPTORS": True}, {"DESCRIPTORS": True, "PROGRAMS": 1}])
def test_grouped_product_takes_rows_by_index_and_empty_groups(form):
    from triton_ops import grouped_matmul

    torch.manual_seed(0)
    x = torch.randn(500, 256, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(6, 384, 256, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
    sizes = torch.tensor([0, 300, 1, 0, 699, 0], device="cuda")
    ends, gather = sizes.cumsum(0), torch.randint(0, 500, (1000,), device="cuda")
    config = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4, "num_stages": 3, **form}
    result = grouped_matmul(x, weight, ends, gather, config=config).double()
    right = torch.cat([a.double() @ weight[g].double() for g, a in enumerate(x[gather].split(sizes.tolist()))])
    assert (result - right).norm() / right.norm() <= 2**-8
    torch.cuda.synchronize()
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):  # a call that waited for the device could not be captured
        again = grouped_matmul(x, weight, ends, gather, config=config)
    graph.replay()
    assert torch.equal(again.double(), result)


@pytest.mark.parametrize("block", [64, 128])
@pytest.mark.parametrize("shape", [(1, 8, 2, 1024, 1024, 128, 128, 2), (2, 4, 4, 1000, 1500, 64, 64, 1)])
@pytest.mark.parametrize("form", [{}, {"WARP_SPECIALIZE": True}])
def test_attention_by_descriptors_and_with_roles_of_warps_is_right(form, shape, block):
    operation = kernels.load("attention")
    problem = operation.problem(shape, "bfloat16")
    warps = 4 if form else 8
    from triton_ops.space import Config

    config = Config(BLOCK_M=128, BLOCK_N=block, DESCRIPTORS=True, num_warps=warps, num_stages=2, **form)
    right, how = judged(operation, config, values_of(operation, problem))
    assert right, how


def test_attention_takes_every_layout_and_has_torchs_bits_of_nan():
    from triton_ops import flash_attention, flash_attention_with_lse

    torch.manual_seed(0)
    packed = torch.randn(2, 300, 12, 64, device="cuda", dtype=torch.bfloat16)
    q, k, v = (packed[:, :, part].transpose(1, 2) for part in (slice(0, 8), slice(8, 10), slice(10, 12)))
    plain = flash_attention(q.contiguous(), k.contiguous(), v.contiguous(), True)
    result, lse = flash_attention_with_lse(q, k, v, True)
    assert torch.equal(result, plain)
    assert result.transpose(1, 2).is_contiguous()
    scores = q.double() @ k.repeat_interleave(4, 1).double().mT / 8
    scores = scores.masked_fill(torch.ones(300, 300, device="cuda").triu(1).bool(), -math.inf)
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-4)
    q = q.contiguous()
    q[0, 3, 77, 5] = math.nan
    spoilt = flash_attention(q, k, v, True).isnan().any(-1)
    assert spoilt.nonzero().tolist() == [[0, 3, 77]]


def test_fp8_round_trip_of_all_256_codes_is_torchs():
    from triton_ops import dequantize_fp8, quantize_fp8

    every, one = (
        torch.arange(256, dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn),
        torch.ones((), device="cuda"),
    )
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        wide = dequantize_fp8(every, one, dtype)
        torch.testing.assert_close(wide, every.to(dtype), rtol=0, atol=0, equal_nan=True)
        again, _ = quantize_fp8(wide, one)
        differing = set((again.view(torch.uint8) != every.view(torch.uint8)).nonzero().flatten().tolist())
        assert differing <= {0x7F, 0xFF}  # NaN has two codes
    finite = torch.arange(0x7F, dtype=torch.uint8, device="cuda").view(torch.float8_e4m3fn).float()
    middle = (finite[1:] + finite[:-1]) / 2
    result, _ = quantize_fp8(torch.cat([middle, -middle]), one)
    assert torch.equal(result.view(torch.uint8), torch.cat([middle, -middle]).to(torch.float8_e4m3fn).view(torch.uint8))


def test_fp8_values_are_divided_by_every_scale_as_a_division_rounds():
    """Quotients by the inverse and one step, with those scales that take a division: bits as torch's, in float32."""
    from triton_ops import dequantize_fp8

    drawn = torch.Generator("cuda").manual_seed(1)
    codes = torch.arange(256, dtype=torch.uint8, device="cuda")
    codes = codes[(codes & 0x7F) != 0x7F].view(torch.float8_e4m3fn)
    fraction = torch.randint(0, 1 << 23, (40_000,), generator=drawn, device="cuda", dtype=torch.int32)
    exponent = torch.randint(1, 254, (40_000,), generator=drawn, device="cuda", dtype=torch.int32)
    fraction[::7] = (1 << 23) - 1  # all ones, for which the step is not enough
    fraction[1::7] = 0
    usual = ((exponent << 23) | fraction).view(torch.float32)
    odd = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, 3e38, -1e-40], device="cuda")
    for scales in (usual, -usual[:1000], odd):
        x = codes.expand(len(scales), -1).contiguous()
        result, expected = dequantize_fp8(x, scales[:, None].contiguous(), torch.float32), x.float() / scales[:, None]
        same = (result.view(torch.int32) == expected.view(torch.int32)) | (result.isnan() & expected.isnan())
        assert bool(same.all()), (result[~same][:3], expected[~same][:3])


def test_fp8_scales_and_extremes_on_gpu():
    from triton_ops import quantize_fp8

    x = torch.tensor([[math.nan, 1.0, -2.0], [math.inf, 1.0, -2.0], [0.0, 0.0, 0.0], [3e38, -3e38, 1.0]], device="cuda")
    for granularity in ("row", "block"):
        result, scale = quantize_fp8(x, granularity=granularity)
        assert scale.flatten()[:3].tolist() == [224.0, 224.0, 1.0]
        assert result.float()[:2, 1:].tolist() == [[224.0, -448.0]] * 2
        assert result.float()[:2, 0].isnan().all()
        assert result.float()[3].tolist() == [448.0, -448.0, 0.0]


def gradients_of(function, tensors, weights):
    own = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    (function(*own) * weights).sum().backward()
    return [tensor.grad for tensor in own]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_those_of_float64(dtype):
    from triton_ops import flash_attention, fused_gated_mlp, layer_norm, softmax

    torch.manual_seed(0)
    x, weight, bias = (torch.randn(s, device="cuda", dtype=dtype) for s in ((6, 50, 768), (768,), (768,)))
    gate, up = (torch.randn(512, 768, device="cuda", dtype=dtype) * 0.05 for _ in range(2))
    silu = torch.nn.functional.silu
    fused = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (torch.randn(2, heads, 200, 64, device="cuda", dtype=dtype) for heads in (8, 2, 2))
    cases = [
        (
            lambda q, k, v: flash_attention(q, k, v, True),
            lambda *t: fused(*t, is_causal=True, enable_gqa=True),
            [q, k, v],
        ),
        (softmax, lambda x: torch.softmax(x, -1), [x]),
        (layer_norm, lambda x, w, b: torch.nn.functional.layer_norm(x, (768,), w, b), [x, weight, bias]),
        (fused_gated_mlp, lambda x, g, u: silu(x @ g.mT) * (x @ u.mT), [x, gate, up]),
    ]
    for function, plain, tensors in cases:
        weights = torch.randn_like(function(*tensors))
        right = gradients_of(plain, [tensor.double() for tensor in tensors], weights.double())
        result = gradients_of(function, tensors, weights)
        own = gradients_of(plain, tensors, weights)
        for a, b, peer in zip(result, right, own, strict=True):
            error, allowed = (a.double() - b).norm() / b.norm(), (peer.double() - b).norm() / b.norm()
            assert error <= 3 * max(allowed, torch.finfo(dtype).eps), plain


def test_gradcheck_of_the_row_kernels_in_float64():
    from triton_ops.dispatch import Gradient
    from triton_ops_kernels.layer_norm import _forward as normalised
    from triton_ops_kernels.layer_norm import gradient

    torch.manual_seed(0)
    x, weight, bias = (torch.randn(s, device="cuda", dtype=torch.float64) for s in ((4, 9), (9,), (9,)))

    def found(x, weight, bias):
        inputs = {"x": x, "weight": weight, "bias": bias, "eps": 0.125}
        described = Gradient(
            inputs=("x", "weight", "bias"), function=gradient, values="float eps", kept=("x", "weight")
        )
        return described.attached(inputs, normalised(x, weight, bias, 0.125, None, False))

    assert torch.autograd.gradcheck(found, [tensor.requires_grad_() for tensor in (x, weight, bias)])


def test_fp8_linear_is_near_and_refreshes_its_weight():
    from triton_ops import FP8Linear

    torch.manual_seed(0)
    layer = FP8Linear(1024, 2048, bias=True, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(4, 100, 1024, device="cuda", dtype=torch.bfloat16)
    for _ in range(2):
        right = torch.nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
        assert (layer(x).double() - right).norm() / right.norm() <= 0.05
        with torch.no_grad():
            layer.weight.mul_(3).add_(0.01)


def test_fp8_linear_in_a_graph_follows_its_weight():
    from triton_ops import FP8Linear

    layer = FP8Linear(256, 512, device="cuda", dtype=torch.bfloat16).requires_grad_(False)
    x = torch.randn(64, 256, device="cuda", dtype=torch.bfloat16)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        layer(x)  # compiles
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer(x)
    assert near_linear(layer(x), layer, x)  # before any replay
    for _ in range(2):
        layer.weight.mul_(-2)
        graph.replay()
        assert near_linear(out, layer, x)


def near_linear(found, layer, x):
    right = torch.nn.functional.linear(x.double(), layer.weight.double())
    return (found.double() - right).norm() / right.norm() <= 0.05


def test_fp8_of_a_single_long_axis_comes_back():
    """A row of 2^27 elements has more tiles than a grid's second axis takes programs."""
    from triton_ops import dequantize_fp8, quantize_fp8

    x = torch.full((2**27 + 5,), 3.0, device="cuda", dtype=torch.bfloat16)
    x[-1] = -6.0
    back = dequantize_fp8(*quantize_fp8(x), torch.bfloat16)
    assert back.equal(x)


def test_rows_beyond_31_bits_are_counted():
    from triton_ops import softmax

    if torch.cuda.mem_get_info()[0] < 24 * 2**30:
        pytest.skip("needs 24 GiB of free GPU memory")
    x = torch.zeros(530_000, 4096, dtype=torch.bfloat16, device="cuda")  # 2.2e9 elements
    x[-1] = torch.randn(4096, device="cuda")
    result = softmax(x)[-1].double()
    torch.testing.assert_close(result, torch.softmax(x[-1].double(), -1), rtol=2**-7, atol=1e-6)


def test_winners_of_the_package_run_at_once_on_their_device(tmp_path):
    import triton_ops_kernels as kernels
    from triton_ops import share_lockfile
    from triton_ops.device import probe
    from triton_ops.dispatch import would_run
    from triton_ops.records import Lockfile

    device = {"kind": "cuda", **{name: getattr(probe("cuda"), name) for name in ("name", "arch", "units")}}
    here = []
    for path in kernels.WINNERS.glob("*.lock.json"):
        lock = Lockfile.read(path)
        aliases = [each.alias for each in lock.devices if each.why_not(device) is None]
        here += [entry for entry in lock.entries if entry.device in aliases]
        share_lockfile(path)
    if not here:
        pytest.skip(f"the package has no winners for {device['name']}")
    for name in sorted({entry.kernel for entry in here}):
        operation = kernels.load(name)
        result = [
            would_run(operation, shape=shape, dtype=dtype, cache_dir=tmp_path).found.rung
            for shape, dtype in operation.problems.values()
        ]
        assert result.count("shipped") == len([entry for entry in here if entry.kernel == name])
