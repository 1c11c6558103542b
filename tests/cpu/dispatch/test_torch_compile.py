"""Decorated kernels inside torch.compile: which config the compiler is handed, and when it is asked for again."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from torch._higher_order_ops import triton_kernel_wrap  # noqa: E402

import triton_ops  # noqa: E402
from tests.launches import launches_that_do_nothing  # noqa: E402
from tests.records import record  # noqa: E402
from tests.traced import key_of_autograd_cache, tracing  # noqa: E402
from tests.tuned_kernels import add_traced, grid, scale  # noqa: E402
from triton_ops.dispatch import in_compile  # noqa: E402
from triton_ops.dispatch import ladder as sources  # noqa: E402
from triton_ops.records import (  # noqa: E402
    LockfileInUse,
    Misses,
    store_in,
)
from triton_ops.records.misses import flush_misses  # noqa: E402
from triton_ops.settings import cache_folder  # noqa: E402
from triton_ops.space import Config, ConfigSpace  # noqa: E402

pytestmark = pytest.mark.triton

SMALL, LARGE = triton.Config({"BLOCK": 128}, num_warps=4), triton.Config({"BLOCK": 256}, num_warps=8)
WIDE = Config({"BLOCK": 256, "num_warps": 8, "num_stages": 3})
NARROW = Config({"BLOCK": 128, "num_warps": 4, "num_stages": 3})
small, large = SMALL.all_kwargs(), LARGE.all_kwargs()
CAPPED = triton.Config({"BLOCK": 256}, num_warps=8, maxnreg=64)


@pytest.fixture
def launched():
    sources._sources.ladders.clear()
    LockfileInUse.NOW = None
    with launches_that_do_nothing() as launches:
        yield launches
    LockfileInUse.NOW = None


@pytest.fixture
def traces(launched):
    with tracing() as result:
        yield result


def tuned(kernel=add_traced, key=("n",), configs=(SMALL, LARGE), **more):
    given = list(configs) if isinstance(configs, tuple) else configs
    return triton_ops.autotune(given, list(key), **{"on_miss": "default", **more})(kernel)


def remember(kernel, winner, n, *more):
    x = torch.zeros(n)
    key = kernel.why(x, x, torch.zeros(n), n, *more, grid=grid).key
    store_in(cache_folder(None)).put(record(key=key, winner=winner))
    sources._sources.ladders.clear()
    kernel.cache.clear()


def summed(kernel):
    def add_two(x, y):
        out = torch.empty_like(x)
        n = out.numel()
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
        return out

    return add_two


def compiled(kernel, traces, **more):
    return torch.compile(summed(kernel), backend=traces.backend, **more)


def call(function, n):
    return function(torch.zeros(n), torch.zeros(n))


def test_the_compiler_is_handed_the_winner_of_the_record_alone(traces):
    kernel = tuned()
    remember(kernel, WIDE, 1024)
    call(compiled(kernel, traces, fullgraph=True), 1024)
    assert traces.configs == [[large]]


def test_a_record_that_changes_is_seen_by_the_next_trace_and_after_the_cache_is_cleared(traces):
    kernel = tuned()
    function = compiled(kernel, traces)
    remember(kernel, WIDE, 1024)
    call(function, 1024)
    remember(kernel, NARROW, 1024)
    call(function, 1024)
    call(function, 1024)
    assert traces.configs == [[large], [small]]


@pytest.mark.parametrize("dynamic", [False, True])
def test_each_value_of_the_key_is_compiled_with_its_own_winner(traces, dynamic):
    kernel = tuned()
    remember(kernel, WIDE, 1024)
    remember(kernel, NARROW, 96)
    function = compiled(kernel, traces, dynamic=dynamic)
    for n in (1024, 96, 1024, 96):
        call(function, n)
    assert traces.configs == [[large], [small]]


def test_a_dynamic_size_is_compiled_once_for_each_bucket_and_never_for_two(traces):
    kernel = tuned(buckets={"n": "pow2"})
    remember(kernel, WIDE, 1000)
    remember(kernel, NARROW, 100)
    function = compiled(kernel, traces, dynamic=True, fullgraph=True)
    for n in (1000, 600, 513, 1024, 100, 65, 128, 700):
        call(function, n)
    assert traces.configs == [[large], [small]]


def test_a_size_that_the_key_leaves_out_may_change_freely(traces):
    kernel = tuned(key=())
    function = compiled(kernel, traces, dynamic=True, fullgraph=True)
    for n in (1024, 96, 55):
        call(function, n)
    assert len(traces.configs) == 1


def test_a_winner_of_a_config_space_is_handed_over_too(traces):
    kernel = tuned(configs=ConfigSpace({"BLOCK": [64, 128, 512], "num_warps": [2, 4]}))
    remember(kernel, Config({"BLOCK": 512, "num_warps": 2}), 1024)
    call(compiled(kernel, traces, fullgraph=True), 1024)
    ((config,),) = traces.configs
    assert (config["BLOCK"], config["num_warps"]) == (512, 2)


def test_options_that_the_compiler_would_lose_are_launched_outside_of_the_graph(traces, launched, monkeypatch):
    monkeypatch.setattr(in_compile, "keeps_options", lambda _: False)
    kernel = tuned(configs=(SMALL, CAPPED))
    remember(kernel, Config({"BLOCK": 256, "num_warps": 8, "num_stages": 3, "maxnreg": 64}), 1024)
    call(compiled(kernel, traces), 1024)
    assert traces.configs == []
    assert kernel.best_config == CAPPED
    assert len(launched.made) == 1
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="does not keep maxnreg=64"):
        call(compiled(kernel, traces, fullgraph=True), 1024)


@pytest.mark.parametrize("space", [False, True])
def test_options_that_torch_keeps_are_given_to_the_launch_inside_of_the_graph(space, traces, monkeypatch):
    """As from torch 2.14 on; each torch hands what a launch gives by name to the operator that stands for it."""
    monkeypatch.setattr(in_compile, "keeps_options", lambda _: True)
    of_all = ConfigSpace({"BLOCK": [128, 256], "num_warps": [8], "num_stages": [3], "maxnreg": [64, 128]})
    kernel = tuned(configs=of_all if space else (SMALL, CAPPED))
    remember(kernel, Config({"BLOCK": 256, "num_warps": 8, "num_stages": 3, "maxnreg": 64}), 1024)
    for _ in range(2):
        call(compiled(kernel, traces, fullgraph=True), 1024)
        torch._dynamo.reset()
    assert [(config["BLOCK"], config["num_warps"], config.get("maxnreg")) for (config,) in traces.configs] == [
        (256, 8, None), (256, 8, None)
    ]  # fmt: skip
    assert [named["maxnreg"] for named in traces.constants] == [64, 64]
    assert CAPPED.maxnreg == 64


def test_an_option_that_no_torch_takes_from_a_launch_stays_outside(traces, launched, monkeypatch):
    monkeypatch.setattr(in_compile, "keeps_options", lambda _: True)
    clustered = triton.Config({"BLOCK": 256}, num_warps=8, num_ctas=2)
    kernel = tuned(configs=(SMALL, clustered))
    remember(kernel, Config({**WIDE, "num_ctas": 2}), 1024)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="does not keep num_ctas=2"):
        call(compiled(kernel, traces, fullgraph=True), 1024)


def test_torch_says_itself_whether_it_keeps_options():
    def of_2_13(self, kernel_idx, constant_args_idx, grid, tma_descriptor_metadata, kwargs): ...

    def of_2_14(self, kernel_idx, constant_args_idx, grid, tma_descriptor_metadata, kwargs, launch_kwargs=None): ...

    def keeps(call):
        wrapper = type("TritonKernelWrapperMutation", (), {"__call__": call})
        return in_compile.keeps_options(SimpleNamespace(TritonKernelWrapperMutation=wrapper))

    assert (keeps(of_2_13), keeps(of_2_14)) == (False, True)
    here = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14)
    assert in_compile.keeps_options(triton_kernel_wrap) is here


def test_a_miss_is_the_default_or_is_left_to_the_compiler_where_tuning_is_asked_for(traces, caplog):
    call(compiled(tuned(), traces, fullgraph=True), 1024)
    with caplog.at_level(logging.INFO, "triton_ops"):
        call(compiled(tuned(on_miss="tune"), traces, fullgraph=True), 1024)
    call(compiled(tuned(on_miss="tune", restore_value=["x_ptr"]), traces, fullgraph=True), 1024)
    assert traces.configs == [[small], [small, large], [small]]
    assert "left to torch.compile to tune" in caplog.text


def test_a_miss_is_noted_for_a_later_tune(traces):
    kernel = tuned(on_miss="queue")
    call(compiled(kernel, traces, fullgraph=True), 1024)
    flush_misses()
    (miss,) = Misses(Path(cache_folder(None))).read()
    x = torch.zeros(1024)
    assert miss.key == kernel.why(x, x, torch.zeros(1024), 1024, grid=grid).key


def test_a_miss_that_is_an_error_is_raised_by_the_launch(traces):
    with pytest.raises(triton_ops.UntunedError):
        call(compiled(tuned(on_miss="error"), traces), 1024)


def test_own_pruning_sees_the_arguments_and_a_part_of_the_configs_is_one_at_least(traces):
    seen = []

    def prune(configs, named, **_more):
        seen.append((named["n"], str(named["x_ptr"].dtype), named["x_ptr"].shape, named["x_ptr"].numel()))
        return configs[1:]

    kernel = tuned(prune_configs_by={"early_config_prune": prune, "perf_model": lambda **_: 1.0, "top_k": 0.1})
    call(compiled(kernel, traces, dynamic=True), 1024)
    assert traces.configs == [[large]]
    assert seen == [(1024, "torch.float32", (1024,), 1024)]


def test_heuristics_below_the_decorator_are_computed_for_the_winner(traces):
    even = triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})(scale)
    kernel = triton_ops.autotune([SMALL, LARGE], ["n"], on_miss="default")(even)

    def function(x):
        out = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), 1)
        return out

    torch.compile(function, backend=traces.backend, fullgraph=True)(torch.zeros(1024))
    ((config,),) = traces.configs
    assert (config["BLOCK"], config["EVEN"]) == (128, True)


def test_warps_given_at_the_call_hold_with_the_winner_s_blocks(traces):
    kernel = tuned()
    remember(kernel, WIDE, 1024)

    def function(x, y):
        out = torch.empty_like(x)
        kernel[(4,)](x, y, out, 1024, num_warps=2)
        return out

    call(torch.compile(function, backend=traces.backend, fullgraph=True), 1024)
    ((config,),) = traces.configs
    assert (config["BLOCK"], config["num_warps"]) == (256, 2)


def test_a_kernel_under_install_is_handed_over_alike(traces):
    with triton_ops.install(on_miss="default"):
        kernel = triton.autotune([SMALL, LARGE], ["n"])(add_traced)
        remember(kernel, WIDE, 1024)
        call(compiled(kernel, traces, fullgraph=True), 1024)
    assert traces.configs == [[large]]


def doubled_by(kernel, name):
    """An operator that torch takes apart when Dynamo has traced it already."""

    @torch.library.triton_op(f"triton_ops_tests::{name}", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(kernel)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x, out, x.numel())
        return out

    return doubled


def keys_of(function, traces, n=1024):
    """The keys under which torch keeps what it makes of the graphs of a call."""
    torch._dynamo.reset()

    def backend(graph, examples):
        traces.keys.append(key_of_autograd_cache(graph, examples))
        return graph.forward

    torch.compile(function, backend=backend, fullgraph=True)(torch.zeros(n))
    return traces.keys.pop()


@pytest.fixture
def tag():
    before = torch.compiler.config.cache_key_tag
    torch.compiler.config.cache_key_tag = "mine"
    yield
    torch.compiler.config.cache_key_tag = before


def test_torch_s_own_key_of_a_triton_op_does_not_tell_two_configs_apart(traces, tag):
    kernel = triton.autotune([SMALL], [])(add_traced)
    operator = doubled_by(kernel, "plain")
    one = keys_of(lambda x: operator(x), traces)
    kernel.configs = [LARGE]
    assert keys_of(lambda x: operator(x), traces) == one


def test_the_winner_inside_a_triton_op_is_part_of_the_key_of_torch_s_caches(traces, tag):
    kernel = tuned()
    operator = doubled_by(kernel, "keyed")

    def key_with(winner):
        torch.compiler.config.cache_key_tag = "mine"  # as in a new process
        remember(kernel, winner, 1024)
        result = keys_of(lambda x: operator(x), traces)
        assert torch.compiler.config.cache_key_tag.startswith("minetriton_ops:")
        return result

    one, other = key_with(WIDE), key_with(NARROW)
    assert one != other
    assert key_with(WIDE) == one


def test_the_winner_of_a_plain_launch_is_part_of_the_key(traces):
    kernel = tuned()

    def doubled(x):
        out = torch.empty_like(x)
        kernel[(8,)](x, x, out, 1024)
        return out

    remember(kernel, WIDE, 1024)
    one = keys_of(doubled, traces)
    remember(kernel, NARROW, 1024)
    assert keys_of(doubled, traces) != one


def test_a_triton_op_with_a_winner_that_torch_would_lose_is_an_error(traces, tag, monkeypatch):
    monkeypatch.setattr(in_compile, "keeps_options", lambda _: False)
    kernel = tuned(configs=(SMALL, CAPPED))
    operator = doubled_by(kernel, "capped")
    remember(kernel, Config({**WIDE, "maxnreg": 64}), 1024)
    with pytest.raises(Exception, match="does not keep maxnreg=64"):
        keys_of(lambda x: operator(x), traces)


ASKED = {
    "shape": lambda x: x.shape,
    "dtype": lambda x: x.dtype,
    "device": lambda x: x.device,
    "stride": lambda x: x.stride(),
    "stride of an axis": lambda x: x.stride(0),
    "size": lambda x: x.size(),
    "size of an axis": lambda x: x.size(-1),
    "axes": lambda x: (x.ndim, x.dim()),
    "numel": lambda x: x.numel(),
    "bytes": lambda x: x.element_size(),
    "is_cuda": lambda x: x.is_cuda,
    "is_contiguous": lambda x: x.is_contiguous(),
}
MADE = {
    "itself": lambda x: x,
    "view": lambda x: x.view(4, 6),
    "view of one axis": lambda x: x.view(24),
    "turned": lambda x: x.transpose(0, 1),
    "turned from the end": lambda x: x.transpose(-1, 0),
    "t": lambda x: x.t(),
    "t of a vector": lambda x: x.view(24).t(),
    "new_empty": lambda x: x.transpose(0, 1).new_empty((2, 5)),
    "new_empty of a dtype": lambda x: x.new_empty([0, 5], dtype=torch.int8),
    "turned without elements": lambda x: x.new_empty((0, 5)).t(),
    "turned of one row": lambda x: x.new_empty((1, 5)).t(),
}


@pytest.mark.parametrize("made", MADE)
def test_a_described_tensor_answers_as_one_with_memory(made):
    tensor = MADE[made](torch.zeros(3, 8, dtype=torch.float16))
    described = MADE[made](in_compile.Described.named("float16", "cpu", (3, 8)))
    assert {name: ask(described) for name, ask in ASKED.items()} == {name: ask(tensor) for name, ask in ASKED.items()}
