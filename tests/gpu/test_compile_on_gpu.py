"""torch.compile with Inductor on a GPU: the record's config is launched, unbenchmarked, also from a warm cache."""

from __future__ import annotations

import json

import pytest

import triton_ops
from tests.bounded import bounded
from triton_ops.device import gpu_missing
from triton_ops.space import Config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings(  # torch 2.11's own, from Inductor, its package maker and its CUDA graphs
        "ignore:.*torch.jit.script_method:DeprecationWarning",
        "ignore:.*treespec, LeafSpec:FutureWarning",
        "ignore:The CUDA Graph is empty:UserWarning",
    ),
]

if gpu_missing() is None:
    import torch
    import triton
    from torch._higher_order_ops import triton_kernel_wrap
    from torch._inductor.utils import run_and_get_code

    from tests.gpu.compiled_once import CONFIGS, Launches, N, decorated, function_of, grid_of
    from tests.records import record
    from tests.tuned_kernels import add_traced
    from triton_ops import FP8Linear
    from triton_ops.dispatch import ladder as sources
    from triton_ops.dispatch.in_compile import keeps_options
    from triton_ops.records import store_in
    from triton_ops.settings import cache_folder
    from triton_ops_kernels import flash_attention, fused_gated_mlp, fused_rmsnorm_rope
    from triton_ops_kernels.layer_norm import layer_norm
    from triton_ops_kernels.matmul import matmul
    from triton_ops_kernels.softmax import softmax
    from triton_ops_torch.compiled_files import CacheContent

NARROW = Config({"BLOCK": 128, "num_warps": 4, "num_stages": 3})
WIDE = Config({"BLOCK": 1024, "num_warps": 8, "num_stages": 3})


@pytest.fixture(autouse=True)
def _anew(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    sources._sources.ladders.clear()


def remember(kernel, winner, n=1 << 16):
    x, y, out = (torch.zeros(n, device="cuda") for _ in range(3))
    key = kernel.why(x, y, out, n, grid=grid_of(n)).key
    store_in(cache_folder(None)).put(record(key=key, winner=winner))
    sources._sources.ladders.clear()
    kernel.cache.clear()


def vectors(n=1 << 16):
    return torch.randn(n, device="cuda"), torch.randn(n, device="cuda")


def child(kind):
    done = bounded("-m", "tests.gpu.compiled_once", kind, limit_s=120)
    assert done.code == 0, done.told
    return json.loads(done.printed.splitlines()[-1])


def test_inductor_launches_the_winner_and_benchmarks_nothing():
    kernel, (x, y) = decorated(), vectors()
    remember(kernel, WIDE)
    with Launches() as launches:
        result, (code,) = run_and_get_code(torch.compile(function_of("plain", kernel), fullgraph=True), x, y)
    assert torch.equal(result, x + y)
    assert launches.configs == [[1024, 8]]
    assert launches.benchmarked == 0
    assert code.count("'num_warps': 8") >= 1
    assert "'num_warps': 4" not in code


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # which Inductor itself still uses
def test_what_inductor_keeps_is_recognised_and_removed_and_nothing_else(tmp_path):
    a, b = (torch.randn(256, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    compiled = torch.compile(lambda a, b: torch.softmax((a @ b).relu(), -1), mode="max-autotune-no-cudagraphs")
    compiled(a, b).sum().backward()
    folder = tmp_path / "inductor"
    (folder / "notes.md").write_text("mine")
    result = CacheContent.of(folder)
    assert result.strange == ("notes.md",)
    assert {"generated code", "fxgraph", "aotautograd"} <= {part.name for part in result.parts}
    assert CacheContent.clean(folder).files == result.files > 5
    assert [path.name for path in folder.iterdir()] == ["notes.md"]


@pytest.mark.parametrize("kind", ["plain", "triton_op"])
def test_a_warm_cache_serves_a_winner_again_and_never_an_old_one(kind):
    kernel = decorated()
    remember(kernel, WIDE)
    first, again = child(kind), child(kind)
    assert (first["configs"], again["configs"]) == ([[1024, 8]], [[1024, 8]])
    assert (first["misses"], again["hits"]) == (1, 1)
    remember(kernel, NARROW)
    changed = child(kind)
    assert changed["configs"] == [[128, 4]]
    assert all(each["right"] and each["benchmarked"] == 0 for each in (first, again, changed))


def test_each_bucket_of_a_dynamic_size_launches_its_own_winner():
    kernel = decorated(buckets={"n": "pow2"})
    remember(kernel, WIDE, 60_000)
    remember(kernel, NARROW, 1000)
    function = torch.compile(function_of("plain", kernel), fullgraph=True, dynamic=True)
    with Launches() as launches:
        for n in (60_000, 1000, 40_000, 777):
            x, y = vectors(n)
            assert torch.equal(function(x, y), x + y)
    assert launches.configs == [[1024, 8], [128, 4], [1024, 8], [128, 4]]


def test_registers_that_the_winner_limits_are_limited():
    capped = triton.Config({"BLOCK": 1024}, num_warps=4, maxnreg=32)
    kernel = triton_ops.autotune([CONFIGS[0], capped], ["n"], on_miss="default")(add_traced)
    remember(kernel, Config({"BLOCK": 1024, "num_warps": 4, "num_stages": 3, "maxnreg": 32}))
    x, y = vectors()
    function = torch.compile(function_of("plain", kernel))
    for _ in range(3):
        assert torch.equal(function(x, y), x + y)
    out = torch.empty_like(x)
    compiled = kernel[grid_of(N)](x, y, out, N)
    assert kernel.best_config == capped
    assert compiled.metadata.maxnreg == 32
    inside = keeps_options(triton_kernel_wrap)  # of the graph, where launches are not counted
    assert sum(decision.count.value for decision in kernel.decisions) == (1 if inside else 4)


def test_a_kernel_without_a_winner_is_tuned_by_inductor_where_tuning_is_asked_for():
    kernel, (x, y) = decorated(on_miss="tune"), vectors()
    with Launches() as launches:
        assert torch.equal(torch.compile(function_of("plain", kernel), fullgraph=True)(x, y), x + y)
    assert launches.benchmarked == 1


def packaged(kind, path):
    """What became of a process that loads a package which another one has made, and runs it."""
    made = bounded("-m", "tests.gpu.packaged_once", "make", kind, str(path), limit_s=90)
    assert made.code == 0, made.told
    return bounded("-m", "tests.gpu.packaged_once", "load", str(path), limit_s=90)


@pytest.mark.timeout(400)  # torch builds C++ code, once or twice
def test_a_package_of_aotinductor_holds_the_winner(tmp_path):
    """The package is run by another process, where torch's loader has died of a signal before any kernel ran."""
    remember(decorated(), WIDE)
    done = packaged("ours", tmp_path / "ours.pt2")
    if done.code != 0 and (theirs := packaged("sum", tmp_path / "sum.pt2")).code != 0:
        pytest.skip(f"torch cannot load a package of its own sum here either: {theirs.told[-2000:]}")
    assert done.code == 0, done.told


def drawn(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def angles(seq, head):
    turned = torch.outer(torch.arange(seq, device="cuda").float(), 0.1 ** torch.arange(head // 2, device="cuda"))
    return torch.cat([turned.cos()] * 2, -1), torch.cat([turned.sin()] * 2, -1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "gated_mlp", "rmsnorm_rope"])
def test_shipped_kernels_and_their_gradients_have_the_same_bits_in_compiled_code(name, dynamic):
    turned = angles(32, 64)  # made once: Inductor's cosine is another one
    function, shapes = {
        "softmax": (softmax, [(64, 1000)]),
        "layer_norm": (layer_norm, [(64, 1000), (1000,), (1000,)]),
        "gated_mlp": (fused_gated_mlp, [(2, 64, 256), (512, 256), (512, 256)]),
        "rmsnorm_rope": (lambda x, w: fused_rmsnorm_rope(x, w, *turned), [(2, 32, 256), (256,)]),
    }[name]
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
    inputs = [drawn(*shape).requires_grad_() for shape in shapes]
    results = []
    for each in (function, compiled):
        result = each(*inputs)
        results.append([result, *torch.autograd.grad(result, inputs, torch.ones_like(result))])
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*results, strict=True))


def test_a_shipped_product_runs_inside_compiled_code_and_cuda_graphs():
    a, b = drawn(256, 512), drawn(512, 384)
    function = torch.compile(lambda a, b: matmul(a, b).relu(), fullgraph=True, mode="reduce-overhead")
    for _ in range(3):
        assert torch.equal(function(a, b), matmul(a, b).relu())


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_code_launches_shipped_kernels_itself_with_the_bits_of_calls(mode):
    tile = {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 2}
    gated = {
        "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_SIZE_M": 8, "LOADS": "pointers", "JOINED": False,
        "PROGRAMS": 0, "HALVES": False, "num_warps": 4, "num_stages": 3,
    }  # fmt: skip
    x, w = drawn(256, 256), drawn(256, 256)

    def attend(x):
        heads = x.view(1, 256, 4, 64).transpose(1, 2)
        return flash_attention(heads, heads, heads)

    launched = [
        lambda x: matmul(x, w, config=tile),
        lambda x: matmul(x, w, config={**tile, "ALGORITHM": "split_k", "SPLIT": 2}),
        lambda x: softmax(x, config={"BLOCK_SIZE": 256, "ROWS": 4, "num_warps": 4}),
        softmax,
        lambda x: fused_gated_mlp(x[None], w, w, config=gated)[0],
        lambda x: layer_norm(x, w[0], w[1]),
        attend,
    ]
    operators = [lambda x: matmul(x, w, config={**tile, "LOADS": "host"})]  # an operator keeps its descriptors
    functions = [*launched, *operators]
    compiled = torch.compile(lambda x: [each(x * 2).relu() for each in functions], fullgraph=True, mode=mode)
    results, texts = run_and_get_code(compiled, x)
    assert "".join(texts).count("= torch.ops.triton_ops.") == len(operators)
    for _ in range(3):
        for nth, (each, result) in enumerate(zip(functions, results, strict=True)):
            assert torch.equal(result, each(x * 2).relu()), nth
        results = compiled(x)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_layer_in_8_bits_is_one_graph_that_follows_its_weight(mode):
    layer, x = FP8Linear(256, 512, bias=True, device="cuda", dtype=torch.bfloat16), drawn(64, 256)
    compiled = torch.compile(layer, fullgraph=True, mode=mode)
    for _ in range(3):
        with torch.no_grad():
            for _ in range(3):  # a graph of torch's is recorded at the second call
                assert torch.equal(compiled(x), layer(x))
            layer.weight.mul_(-1.5)
    given = [x.requires_grad_(), *layer.parameters()]
    results = [torch.autograd.grad(each(x).float().square().sum(), given) for each in (layer, compiled)]
    assert all(torch.allclose(mine, theirs, rtol=2e-2, atol=1e-2) for mine, theirs in zip(*results, strict=True))
