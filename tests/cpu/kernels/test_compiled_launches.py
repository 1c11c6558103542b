"""Launches that stand in the code of torch's compiler: which do, with what, and where the operator stays."""

from __future__ import annotations

import ast
import json
import logging
import re
import warnings

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table  # noqa: E402
from torch._subclasses import FakeTensor, FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

import triton_ops  # noqa: E402
from tests.launches import cpu_as_gpu, launches_that_do_nothing, ordinary_launches  # noqa: E402
from tests.records import record  # noqa: E402
from tests.traced import code_of, tracing, written_by_inductor  # noqa: E402
from triton_ops import fused_rmsnorm_rope, grouped_matmul, layer_norm, matmul, softmax  # noqa: E402
from triton_ops.backend import Arguments  # noqa: E402
from triton_ops.dispatch import compilable, operations  # noqa: E402
from triton_ops.dispatch import ladder as sources  # noqa: E402
from triton_ops.dispatch.decision import decisions, forget_decisions  # noqa: E402
from triton_ops.dispatch.direct_launch import LaunchWith  # noqa: E402
from triton_ops.dispatch.torch_operators import in_graph  # noqa: E402
from triton_ops.exceptions import KernelTypeError, UntunedError  # noqa: E402
from triton_ops.records import store_in  # noqa: E402
from triton_ops.settings import cache_folder  # noqa: E402
from triton_ops.space import Config  # noqa: E402
from triton_ops.values import KernelMetrics, TuningResult  # noqa: E402
from triton_ops_kernels import load  # noqa: E402
from triton_ops_kernels.fp8_gemm import fp8_gemm  # noqa: E402  # noqa: E402
from triton_ops_kernels.fp8_quantize import dequantize_fp8, quantize_fp8  # noqa: E402  # noqa: E402
from triton_ops_kernels.shipped import ShippedKernel  # noqa: E402
from triton_ops_kernels.softmax.kernel import softmax_kernel  # noqa: E402  # noqa: E402

pytestmark = [
    pytest.mark.triton,
    pytest.mark.processes,  # Inductor alone takes seconds to be imported
    pytest.mark.filterwarnings("ignore:Could not find an active CPU backend:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),
]

HALF = torch.float16
TILE = {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 2}
ROWS = {"BLOCK_SIZE": 256, "ROWS": 1, "num_warps": 4}
OPERATORS = "torch.ops.triton_ops."


def new(*shape):
    return torch.zeros(shape, dtype=HALF)


@pytest.fixture
def launched():
    with launches_that_do_nothing() as launches, cpu_as_gpu():
        forget_decisions()
        yield launches
        forget_decisions()


@pytest.fixture
def written(launched):
    with written_by_inductor() as result:
        yield result


def put(call, winner):
    """Put a record of the problem of a call."""
    call()
    (decision,) = (each for each in decisions() if each.key is not None)
    store_in(cache_folder(None)).put(record(key=decision.key, winner=Config(winner)))
    sources._sources.ladders.clear()


def remember(call, winner):
    """Have later calls find a record of the problem of a call."""
    forget_decisions()
    put(call, winner)
    forget_decisions()


def default_of(call):
    """The config of a call of which nothing is known."""
    forget_decisions()
    call()
    (decision,) = (each for each in decisions() if each.key is not None)
    return dict(decision.found.config)


def part(value):
    """An argument as it can be compared with that of another call."""
    if Arguments.is_descriptor(value):
        return value.base.dtype, list(value.shape), list(value.strides), list(value.block_shape)
    return (value.shape, value.stride(), value.dtype) if torch.is_tensor(value) else value


def split(args):
    """What a launch is given: tensors and descriptors, and numbers but for 1 and -1, which compiled code leaves out."""
    parts = [part(value) for value in args]
    numbers = [each for each in parts if type(each) in (int, float) and each not in (1, -1)]
    return [each for each in parts if isinstance(each, tuple)], numbers


def is_part(few, many):
    """Whether values are among others, in this order."""
    rest = iter(many)
    return all(any(each == other for other in rest) for each in few)


a, b, x, weight, ends = new(64, 128), new(128, 64), new(64, 256), new(256), torch.tensor([16, 32, 48, 64]).int()
tokens, table, codes = new(1, 2, 256), torch.zeros(2, 64), torch.zeros(64, 256).to(torch.float8_e4m3fn)
WITH_CONFIG = {
    "softmax": (softmax, (x,)),
    "layer_norm": (layer_norm, (x, weight, weight)),
    "fused_rmsnorm_rope": (fused_rmsnorm_rope, (tokens, weight, table, table)),
    "grouped_matmul": (grouped_matmul, (x, new(4, 256, 64), ends)),
    "quantize_fp8": (lambda x, config=None: quantize_fp8(x, granularity="row", config=config), (x,)),
    "dequantize_fp8": (dequantize_fp8, (codes, torch.ones(64, 1))),
    "flash_attention": (triton_ops.flash_attention, (new(1, 2, 64, 64),) * 3),
    "fused_gated_mlp": (triton_ops.fused_gated_mlp, (tokens, new(128, 256), new(128, 256))),
}
OF_MATMUL = {
    "pointers": ({}, (a, b)),
    "two launches": ({"ALGORITHM": "split_k", "SPLIT": 2}, (a, b)),
    "descriptors of the device": ({"LOADS": "device"}, (a, b)),
}


def check_written(call, args, launched, written):
    """Compiled code launches what a plain call launches, and calls no operator."""
    launched.made.clear()
    call(*args)
    plain = [(name, grid, split(given)) for name, grid, _, _, given in launched.made]
    launched.made.clear()
    code = code_of(call, *args)
    assert OPERATORS not in code
    assert not launched.made
    for (name, given), (plain_name, grid, (tensors, numbers)) in zip(written, plain, strict=True):
        own_tensors, own_numbers = split(given[:-3])
        assert (name, given[-3:], own_tensors) == (plain_name, grid, tensors)
        assert is_part(own_numbers, numbers)  # those that are no constants
    assert not re.search(r"_fused_\w*clone", code)
    signatures = re.findall(r"async_compile.triton\('(\w+)'.*?'signature': ({.*?})", code, re.DOTALL)
    assert {name for name, _ in signatures} == {name for name, _ in written}
    for name, text in signatures:
        own, plain_types = ast.literal_eval(text), launched.signatures[name]
        assert own.keys() == plain_types.keys()
        wide = {name: plain.replace("fp32", "fp64") for name, plain in plain_types.items() if plain == "fp32"}
        assert all(own[each] in (wide.get(each, plain), "constexpr") for each, plain in plain_types.items())
        assert all(f"{each} = tl.cast({each}, tl.float32)" in code for each in wide)


@pytest.mark.parametrize("name", WITH_CONFIG)
def test_a_call_with_a_config_is_launched_by_compiled_code_as_outside(name, launched, written):
    function, args = WITH_CONFIG[name]
    config = default_of(lambda: function(*args))
    check_written(lambda *args: function(*args, config=config), args, launched, written)


@pytest.mark.parametrize("name", OF_MATMUL)
def test_a_product_without_descriptors_of_the_host_is_launched_by_compiled_code(name, launched, written):
    own, args = OF_MATMUL[name]
    config = {**TILE, **own}
    check_written(lambda a, b: matmul(a, b, config=config), args, launched, written)


def test_the_code_stands_for_the_result(launched, written):
    """What a launch writes is what compiled code returns, after what comes before it: a call of torch's own product."""
    compiled = torch.compile(lambda x: softmax(x @ x.t(), config=ROWS), fullgraph=True)
    given = torch.arange(512.0).view(256, 2) / 256
    result = compiled(given)
    ((name, (own, out, *_)),) = written
    assert name == "softmax_kernel"
    assert result is out
    assert torch.equal(own, given @ given.t())


def test_the_winner_of_a_record_is_launched_and_a_new_one_compiled_anew(launched, written):
    compiled = torch.compile(lambda x: softmax(x), fullgraph=True)
    for rows in (2, 4):
        remember(lambda: softmax(x), {**ROWS, "ROWS": rows})
        compiled(x)
        compiled(x)
    assert [given[-3] for _, given in written] == [32, 32, 16, 16]


def test_why_says_how_a_call_stands_in_compiled_code(launched, monkeypatch):
    remember(lambda: softmax(x), {**ROWS, "ROWS": 2})
    launched.made.clear()
    recorded, host = softmax.why(x), matmul.why(a, b, config={**TILE, "LOADS": "host"})
    assert (recorded.found.rung, recorded.found.config) == ("record", Config({**ROWS, "ROWS": 2}))
    assert recorded.passed[-1] == "softmax is launched by compiled code itself"
    assert (host.found.rung, host.found.config["LOADS"]) == ("explicit", "host")
    assert host.passed[-1].startswith("matmul_new is an operator in compiled code: compiled code would encode")
    monkeypatch.setenv("TRITON_OPS_ON_MISS", "tune")
    missed = softmax.why(x.float())
    assert missed.found.rung == "default"
    assert missed.passed[-1].endswith("operator in compiled code: no winner is known, and on_miss is tune")
    assert not launched.made
    with pytest.raises(KernelTypeError, match=r"softmax decides nothing for such a call: .*int64"):
        softmax.why(x.long())


def test_the_default_is_launched_where_nothing_is_known(launched, written, caplog):
    with caplog.at_level(logging.INFO, "triton_ops"):
        check_written(lambda x: softmax(x), (x,), launched, written)
    assert f"softmax is launched by compiled code itself, with {Config(default_of(lambda: softmax(x)))}" in caplog.text


@pytest.mark.parametrize("policy", ["error", "tune"])
def test_a_miss_on_which_more_is_done_than_to_run_the_default_stays_an_operator(
    policy, launched, written, caplog, monkeypatch
):
    monkeypatch.setenv("TRITON_OPS_ON_MISS", policy)
    monkeypatch.setattr(operations, "tune", lambda *_, **__: TuningResult(ROWS, KernelMetrics(1.0)))
    compiled = torch.compile(lambda x: softmax(x), fullgraph=True)
    with caplog.at_level(logging.INFO, "triton_ops"):
        if policy == "error":
            with pytest.raises(UntunedError):
                compiled(x)
        else:
            compiled(x)
            assert [grid[0] for _, grid, *_ in launched.made] == [64]
    assert not written
    assert f"softmax is an operator in compiled code: no winner is known, and on_miss is {policy}" in caplog.text
    monkeypatch.setenv("TRITON_OPS_ON_MISS", "default")
    remember(lambda: softmax(x), {**ROWS, "ROWS": 2})
    monkeypatch.setenv("TRITON_OPS_ON_MISS", policy)
    compiled(x)
    assert [given[-3] for _, given in written] == [32]


@pytest.mark.parametrize("inside", [triton_ops.tuning, lambda: triton_ops.on_miss("tune")])
def test_compiled_code_tunes_where_that_is_asked_for_around_its_call(inside, launched, written, monkeypatch):
    def tuned(*_, **__):
        with triton_ops.on_miss("default"):
            put(lambda: operation(**arguments), {**ROWS, "ROWS": 2})
        return TuningResult({**ROWS, "ROWS": 2}, KernelMetrics(1.0))

    operation = load("softmax")
    arguments = operation.materialise(operation.problem((64, 256), "float16"), "cpu").keyword
    monkeypatch.setattr(operations, "tune", tuned)
    compiled = torch.compile(lambda x: softmax(x), fullgraph=True)
    compiled(x)
    assert len(written) == 1
    with inside():
        compiled(x)
    assert len(written) == 1
    compiled(x)
    assert [given[-3] for _, given in written[1:]] == [32]


def test_a_call_that_asks_for_a_tune_stays_an_operator(launched, written):
    function = torch.compile(lambda x: softmax(x, config=ROWS, tune=True), fullgraph=True)
    function(x)
    assert not written
    assert len(launched.made) == 1


def test_a_dynamic_size_stays_an_operator(launched, written):
    remember(lambda: softmax(x), ROWS)
    launched.made.clear()
    compiled = torch.compile(lambda x: softmax(x), fullgraph=True, dynamic=True)
    for rows in (64, 32):
        compiled(x[:rows])
    assert not written
    assert len(launched.made) == 2


def test_a_size_that_changes_is_launched_by_the_code_before_and_by_an_operator_after(launched, written):
    compiled = torch.compile(lambda x: softmax(x, config=ROWS), fullgraph=True)
    for rows in (64, 64, 32, 16):
        compiled(x[:rows])
    assert [given[-3] for _, given in written] == [64, 64]
    assert [grid[0] for _, grid, *_ in launched.made] == [32, 16]


def test_a_kernel_whose_descriptors_are_encoded_at_each_call_stays_an_operator(launched, written, caplog):
    config = {**TILE, "LOADS": "host"}
    with caplog.at_level(logging.INFO, "triton_ops"):
        torch.compile(lambda a, b: matmul(a, b, config=config), fullgraph=True)(a, b)
    assert (len(written), len(launched.made)) == (0, 1)
    assert (
        "matmul_new is an operator in compiled code: compiled code would encode a kernel's descriptors" in caplog.text
    )


@pytest.mark.parametrize("offset", [0, 8, 1])
def test_a_matrix_that_begins_where_memory_is_not_aligned_stays_an_operator(offset, launched, written):
    wide = new(64, 144)
    torch.compile(lambda wide: matmul(wide[:, offset : offset + 128], b, config=TILE), fullgraph=True)(wide)
    assert (len(written), len(launched.made)) == ((0, 1) if offset == 1 else (1, 0))


@pytest.mark.parametrize("tuned", [False, True])
def test_weights_whose_distance_in_memory_counts_are_read_by_an_operator(tuned, launched, written):
    """A graph is for all weights of these shapes, wherever they are."""
    x, (gate, up) = new(1, 16, 128), new(256, 128).chunk(2)
    joined = {**default_of(lambda: triton_ops.fused_gated_mlp(x, gate, up)), "LOADS": "host", "JOINED": True}
    if tuned:
        remember(lambda: triton_ops.fused_gated_mlp(x, gate, up), joined)
    launched.made.clear()
    compiled = torch.compile(lambda *args: triton_ops.fused_gated_mlp(*args, config=None if tuned else joined))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns where the address of a tensor without memory is read
        compiled(x, gate, up)
    assert not written
    ((_, _, _, _, args),) = launched.made
    assert [2, 128, 128] in [list(each.shape) for each in args if Arguments.is_descriptor(each)]


def test_the_forward_with_a_gradient_is_launched_by_compiled_code(launched, written):
    own = x.clone().requires_grad_()
    torch.compile(lambda x: softmax(x, config=ROWS), fullgraph=True)(own).sum().backward()
    assert [name for name, _ in written] == ["softmax_kernel"]
    assert [name for name, *_ in launched.made] == ["softmax_backward_kernel"]
    assert own.grad.shape == x.shape


@pytest.mark.parametrize("name", WITH_CONFIG)
def test_a_call_of_an_operator_is_known(name, launched):
    function, args = WITH_CONFIG[name]
    compiled = torch.compile(lambda *args: function(*args), backend="eager", fullgraph=True)
    for _ in range(3):
        compiled(*args)
    launched.made.clear()
    with ordinary_launches() as ordinary:
        compiled(*args)
    assert launched.made
    assert not ordinary


def test_an_operator_in_a_graph_without_gradients_has_none(launched, written):
    """Below autograd torch would ask at each call whether a gradient is recorded, by code in Python."""
    own = x.clone().requires_grad_()
    for given in (x, own):
        code = code_of(lambda x: softmax(x, config=ROWS, tune=True), given)
        assert f"{OPERATORS}softmax_forward.default(" in code
    softmax(own, config=ROWS).sum().backward()
    plain, own.grad = own.grad, None
    torch.compile(lambda x: softmax(x, config=ROWS, tune=True), fullgraph=True)(own).sum().backward()
    assert own.grad.shape == plain.shape
    assert [name for name, *_ in launched.made[-2:]] == ["softmax_kernel", "softmax_backward_kernel"]


@pytest.mark.parametrize(
    ("name", "function", "args", "config"),
    [("softmax_forward", softmax, (x,), ROWS), ("matmul_new", matmul, (a, b), TILE)],
)
def test_a_known_call_of_an_operator_in_a_graph_is_none_of_torch_s_dispatcher(name, function, args, config, launched):
    torch.compile(lambda *args: function(*args, config=config), backend="aot_eager", fullgraph=True)(*args)
    operator, text = getattr(torch.ops.triton_ops, name).default, json.dumps(config)
    for _ in range(3):
        result = operator(*args, config=text)
    with torch.autograd.profiler.profile() as known:
        operator(*args, config=text)
    with torch.autograd.profiler.profile() as other, Seen() as mode:
        operator(*args, config=text)
    assert f"triton_ops::{name}" not in [event.name for event in known.function_events]
    assert f"triton_ops::{name}" in [event.name for event in other.function_events]
    assert f"triton_ops.{name}.default" in mode.names
    with FakeTensorMode() as fakes:
        faked = operator(*map(fakes.from_tensor, args), config=text)
    assert (type(faked), faked.shape) == (FakeTensor, result.shape)


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_an_exported_program_holds_the_operator_and_no_config(launched, written):
    remember(lambda: softmax(x), ROWS)

    class Module(torch.nn.Module):
        def forward(self, x):
            return softmax(x)

    program = torch.export.export(Module(), (x,), strict=True)
    (node,) = (node for node in program.graph.nodes if node.op == "call_function")
    assert str(node.target) == "triton_ops.softmax.default"
    assert not any("BLOCK_SIZE" in str(each) for each in (*node.args, *node.kwargs.values()))


@pytest.mark.parametrize("wide", [False, True])
def test_a_product_that_quantises_its_factors_first_stays_an_operator(wide, launched, written):
    def product(a, b):
        return fp8_gemm(a, b, *(() if wide else (scale, scale)), config=config)

    scale, factors = torch.ones(()), (x, x.t()) if wide else (codes, codes.t())
    config = default_of(lambda: fp8_gemm(codes, codes.t(), scale, scale))
    code = code_of(product, *factors)
    assert (f"{OPERATORS}fp8_gemm.default(" in code) == wide
    assert [name for name, _ in written] == ([] if wide else ["fp8_gemm_kernel"])


def guards_of(function):
    """The guards of the code that torch compiles of a function of `x`, which it asks at each call."""
    torch._dynamo.reset()
    torch.compile(function, backend="eager", fullgraph=True)(x)
    (entry,) = torch._dynamo.eval_frame._debug_get_cache_entry_list(function.__code__)
    return re.findall(r"\+- ([A-Z_]+: .*)", str(entry.guard_manager))


def test_compiled_code_asks_little_of_this_package_at_each_call(launched):
    none = guards_of(lambda x: torch.relu(x))
    one = guards_of(lambda x: torch.relu(softmax(x)))
    both = guards_of(lambda x: torch.relu(layer_norm(softmax(x))))
    assert len(one) - len(none) <= 18
    assert len(both) - len(one) <= 4
    assert not [each for each in both if each not in none and each.startswith("LAMBDA_GUARD")]  # is Python
    assert [each for each in one if ".generation == " in each]
    assert [each for each in one if ".asked == " in each]


def test_functions_that_are_given_to_compiled_code_are_told_apart(launched):
    graphs = []

    def backend(graph, _examples):
        graphs.append(str(graph.graph))
        return graph.forward

    compiled = torch.compile(lambda function, x: function(x), backend=backend, fullgraph=True)
    with tracing():
        for function in (softmax, layer_norm, softmax):
            compiled(function, x)
    assert [("softmax" in each, "layer_norm" in each) for each in graphs] == [(True, False), (False, True)]


@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def unwritten(x, out, n, BLOCK: tl.constexpr):
    tl.load(x + tl.arange(0, BLOCK), mask=tl.arange(0, BLOCK) < n)


@triton.jit
def scaled(x, out, factor, BLOCK: tl.constexpr):
    """A product of two floats is not the same in 64 bits."""
    i = tl.arange(0, BLOCK)
    tl.store(out + i, factor * factor * tl.load(x + i))


def intermediate(kernel, kind):
    """The TTIR of a kernel whose float is of a kind, without numbers and places."""
    types = {"x": "*fp32", "out": "*fp32", "factor": kind, "BLOCK": "constexpr"}
    compiled = triton.compile(ASTSource(kernel, types, {(3,): 64}), target=GPUTarget("cuda", 90, 32))
    return [re.sub(r"loc\(.*?\)|%\w+", "", line) for line in compiled.asm["ttir"].splitlines() if line[:4] != "#loc"]


def test_compiled_code_computes_with_floats_of_32_bits_though_it_hands_over_64():
    values = {"x": torch.zeros(64), "out": torch.zeros(64), "factor": 0.1, "BLOCK": 64}
    index = in_graph(scaled, LaunchWith(values, {}, (1, 1, 1)))["kernel_idx"]
    own, plain = intermediate(kernel_side_table.get_kernel(index), "fp64"), intermediate(scaled, "fp32")
    (narrowed,) = [line for line in own if "f64 to f32" in line]
    own.remove(narrowed)
    assert [line.replace("f64", "f32") for line in own] == plain
    assert "cast" not in scaled.src


def own_function(kernel, **options):
    name = f"own_{kernel.__name__}_{len(options)}"

    def function(x, config=None):
        out = torch.empty_like(x)
        if ShippedKernel.launches(out):
            kernel[(4,)](x, out, x.numel(), BLOCK=256, **options)
        return out

    function.__name__ = name
    return compilable('(Tensor x, str config="") -> Tensor')(function)


@pytest.mark.parametrize(
    ("kernel", "options", "why"),
    [
        (doubled, {}, ""),
        (doubled, {"num_warps": 8, "maxnreg": None}, ""),
        (doubled, {"maxnreg": 64}, "torch.compile does not keep maxnreg=64"),
        (unwritten, {}, "torch does not see what its kernels write"),
    ],
)
def test_what_compiled_code_does_not_keep_stays_an_operator(kernel, options, why, launched, written, caplog):
    function, given = own_function(kernel, **options), torch.zeros(1000)
    with caplog.at_level(logging.INFO, "triton_ops"):
        torch.compile(lambda x: function(x, config={"BLOCK": 256}), fullgraph=True)(given)
    assert (len(written), len(launched.made)) == ((0, 1) if why else (1, 0))
    assert why in caplog.text


def test_the_graph_of_which_torch_s_caches_make_their_key_holds_the_choice_and_the_kernel(launched):
    texts = []

    def backend(graph, _examples):
        texts.append(str(graph.graph))
        return graph.forward

    for rows in (2, 4, 2):
        remember(lambda: softmax(x), {**ROWS, "ROWS": rows})
        with tracing():
            torch.compile(lambda x: softmax(x), backend=backend, fullgraph=True)(x)
    assert softmax_kernel.cache_key in texts[0]
    assert texts[0] == texts[2] != texts[1]
