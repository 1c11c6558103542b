"""Every algorithm of the matmul, and every form of the 8-bit product, on a GPU: right by the rule, and equal bits."""

import itertools

import pytest
import torch

import triton_ops_kernels as kernels
from tests.gpu.test_kernel_families_on_gpu import judged
from triton_ops import matmul
from triton_ops.space import Config

pytestmark = pytest.mark.gpu

OPERATION = "matmul"
TILE = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8, "num_stages": 3}
THIN = {"BM": 128, "BN": 16, "BK": 64, "num_warps": 4, "num_stages": 4, "SWAPPED": True}
FORMS = {
    "tiles": {},
    "persistent": {"ALGORITHM": "persistent"},
    "two programs": {"ALGORITHM": "persistent", "PROGRAMS": 2, "num_warps": 4},
    "split_k": {"ALGORITHM": "split_k", "SPLIT": 4},
    "stream_k": {"ALGORITHM": "stream_k"},
}
LARGE = {"ALGORITHM": "persistent", "BN": 256, "num_stages": 4, "HALVES": True, "LOADS": "host"}


def described():
    return torch.cuda.get_device_capability() >= (9, 0)


def configs():
    for form, loads in itertools.product(FORMS, ("pointers", "device", "host")):
        own = {"LOADS": loads, **FORMS[form]}
        yield pytest.param({**TILE, **own}, (520, 1032, 776), id=f"{form}-{loads}")
        yield pytest.param({**THIN, **own}, (24, 1032, 776), id=f"{form}-{loads}-swapped")
    yield pytest.param({**TILE, **LARGE}, (2568, 4104, 776), id="persistent-halves")
    yield pytest.param({**TILE, **LARGE, "ALGORITHM": "stream_k"}, (2568, 4104, 776), id="stream_k-halves")
    yield pytest.param({**TILE, "ALGORITHM": "stream_k"}, (1000, 777, 515), id="stream_k-odd")
    yield pytest.param({**TILE, "ALGORITHM": "split_k", "SPLIT": 2}, (1000, 777, 515), id="split_k-odd")


def whole(config):
    """The config with every tunable, as a space has it."""
    operation = kernels.load(OPERATION)
    default = operation.space_for(operation.problem((64, 64, 64), "bfloat16")).default_config
    return Config({**default, **config})


@pytest.mark.parametrize(("config", "shape"), list(configs()))
def test_every_algorithm_is_right_by_the_rule_and_gives_equal_bits(config, shape):
    if config.get("LOADS", "pointers") != "pointers" and not described():
        pytest.skip("TMA needs compute capability 9.0")
    operation = kernels.load(OPERATION)
    problem = operation.problem(shape, "bfloat16")
    values = operation.materialise(problem, "cuda")
    right, how = judged(operation, whole(config), values)
    assert right, how
    executable = operation.kernel.compile(whole(config), values)
    first = None
    for _ in range(20):
        values.keyword["c"].fill_(float("nan"))
        executable.launch(values)
        result = values.keyword["c"].clone()
        first = result if first is None else first
        assert torch.equal(result, first)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_whole_numbers_are_exact_in_every_layout_with_bias_and_activation(form, layout):
    torch.manual_seed(0)
    a, b = (torch.randint(-4, 5, shape, device="cuda").half() for shape in ((264, 1024), (1024, 392)))
    bias = torch.randint(-4, 5, (392,), device="cuda").half()
    right = torch.relu(a.double() @ b.double() + bias.double())
    if layout == "columns":
        a, b = a.t().contiguous().t(), b.t().contiguous().t()
    config = {**TILE, **FORMS[form], "LOADS": "host" if described() else "pointers"}
    result = matmul(a, b, bias=bias, activation="relu", config=config)
    assert torch.equal(result.double(), right)


@pytest.mark.parametrize("form", ["tiles", "persistent", "split_k", "stream_k"])
def test_float8_is_right_by_the_rule(form):
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("float8_e4m3fn needs compute capability 8.9")
    operation = kernels.load(OPERATION)
    problem = operation.problem((528, 768, 2048), "fp8")
    config = {**TILE, "BK": 128, **FORMS[form], "LOADS": "device" if described() else "pointers"}
    right, how = judged(operation, whole(config), operation.materialise(problem, "cuda"))
    assert right, how


@pytest.mark.parametrize("algorithm", ["tiles", "persistent", "split_k", "stream_k"])
@pytest.mark.parametrize(("shape", "loads"), [((130, 202, 2048), "host_a"), ((130, 256, 2051), "host_b")])
def test_one_described_operand_is_right_by_the_rule(shape, loads, algorithm):
    operation = kernels.load(OPERATION)
    problem = operation.problem(shape, "bfloat16")
    split = 4 if algorithm == "split_k" else 1
    config = {**TILE, "BM": 64, "BN": 64, "BK": 64, "ALGORITHM": algorithm, "SPLIT": split, "LOADS": loads}
    right, how = judged(operation, whole(config), operation.materialise(problem, "cuda"))
    assert right, how


FP8_FORMS = {
    "halves": {"PROGRAMS": 1, "BLOCK_M": 128, "BLOCK_N": 256, "HALVES": True, "num_warps": 8},
    "ahead": {"PROGRAMS": 1, "BLOCK_N": 128, "AHEAD": 1},
    "deep": {"BLOCK_M": 64, "BLOCK_N": 32, "AHEAD": 1, "num_warps": 4, "num_stages": 8},
    "two programs": {"PROGRAMS": 2, "BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 4},
    "long steps": {"PROGRAMS": 1, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 256, "PROMOTE": 64, "num_stages": 2},
    "swapped": {"SWAPPED": True, "BLOCK_M": 128, "BLOCK_N": 16, "num_warps": 4},
    "swapped programs": {"SWAPPED": True, "PROGRAMS": 2, "BLOCK_M": 64, "BLOCK_N": 16, "num_warps": 4},
}


@pytest.mark.parametrize("scaling", [1, 2, 3])
@pytest.mark.parametrize("form", FP8_FORMS)
def test_every_form_of_the_8_bit_product_is_right_by_the_rule(form, scaling):
    if not described():
        pytest.skip("TMA needs compute capability 9.0")
    if scaling == 3 and form == "long steps":
        pytest.skip("a step of 256 has terms of several scales")
    operation = kernels.load("fp8_gemm")
    problem = operation.problem((24 if "swapped" in form else 2568, 1032, 1040, scaling), "bfloat16")
    default = operation.space_for(problem).default_config
    config = Config({**default, "LOADS": "host", "BLOCK_K": 128, "num_stages": 3, **FP8_FORMS[form]})
    right, how = judged(operation, config, operation.materialise(problem, "cuda"))
    assert right, how


def test_a_launch_of_shared_tiles_can_be_captured_and_replayed():
    a, b = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((64, 4096), (4096, 512)))
    config = {**TILE, "BM": 64, "ALGORITHM": "split_k", "SPLIT": 4}
    right = matmul(a, b, config=config)
    graph, out = torch.cuda.CUDAGraph(), torch.empty_like(right)
    with torch.cuda.graph(graph):
        matmul(a, b, out=out, config=config)
    for _ in range(3):
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(out, right)
