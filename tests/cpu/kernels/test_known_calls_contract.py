"""The contract of every way to call a kernel: a known call does nothing anew, and notices whatever others change."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from unittest import mock  # noqa: E402

import triton.language as tl  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

import triton_ops  # noqa: E402
from tests.forked import status_of_a_child  # noqa: E402
from tests.launches import cpu_as_gpu, launches_that_do_nothing, ordinary_launches  # noqa: E402
from triton_ops import choose, launches, on_miss  # noqa: E402
from triton_ops.backend import Operation, TritonKernel  # noqa: E402
from triton_ops.dispatch import operations  # noqa: E402
from triton_ops.dispatch.decision import forget_decisions  # noqa: E402
from triton_ops.exceptions import UntunedError  # noqa: E402
from triton_ops_kernels.attention import flash_attention  # noqa: E402
from triton_ops_kernels.fp8_gemm import fp8_gemm  # noqa: E402
from triton_ops_kernels.fp8_quantize import quantize_fp8  # noqa: E402
from triton_ops_kernels.gated_mlp import fused_gated_mlp  # noqa: E402
from triton_ops_kernels.grouped_matmul import grouped_matmul  # noqa: E402
from triton_ops_kernels.layer_norm import layer_norm  # noqa: E402
from triton_ops_kernels.layer_norm.kernel import layer_norm_kernel  # noqa: E402
from triton_ops_kernels.matmul import matmul  # noqa: E402
from triton_ops_kernels.matmul.kernel import matmul_kernel  # noqa: E402
from triton_ops_kernels.modules import FusedRMSNormRoPE  # noqa: E402
from triton_ops_kernels.rmsnorm_rope import fused_rmsnorm_rope  # noqa: E402
from triton_ops_kernels.rmsnorm_rope.kernel import rmsnorm_rope_kernel  # noqa: E402
from triton_ops_kernels.softmax import softmax  # noqa: E402
from triton_ops_kernels.softmax.kernel import softmax_kernel  # noqa: E402

FACTOR = tl.constexpr(2)


@triton.jit
def scaled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, FACTOR * tl.load(x_ptr + i, mask=i < n), mask=i < n)


def by_blocks(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def decorated():
    kernel = triton_ops.autotune([triton.Config({"BLOCK": block}) for block in (128, 256)], ["n"], on_miss="default")(
        scaled
    )
    return lambda x: kernel[by_blocks](x, torch.empty_like(x), x.numel())


def operation():
    kernel = TritonKernel(scaled, by_blocks, outputs=("out_ptr",))
    own = Operation("scaled", kernel, {"BLOCK": [128, 256]}, lambda n, dtype=None: {})
    return lambda x: own(x, torch.empty_like(x), x.numel())


def chooser():
    own = choose({"first": lambda x: softmax(x) + 0, "second": softmax}, name="contract")
    return lambda x: own(x)


def module():
    own, table = FusedRMSNormRoPE(64, 16), torch.zeros(8, 16)
    own.requires_grad_(False)
    return lambda x: own(x.view(1, 8, 64), table, table)


def with_gradients():
    weight = torch.zeros(64).requires_grad_()
    return lambda x: layer_norm(x.view(8, 64), weight)


@dataclass(frozen=True)
class Way:
    make: Any
    kernel: Any
    decides: bool = (
        True  # by the ladder with the policy of a miss; a decorator has its own, and asks nothing of tensors
    )
    dtype: Any = torch.float32


WAYS = {
    "decorator": Way(decorated, scaled, decides=False),  # its own policy
    "operation": Way(operation, scaled),
    "chooser": Way(chooser, softmax_kernel),
    "function": Way(lambda: lambda x: softmax(x.view(8, 64)), softmax_kernel),
    "product": Way(lambda: lambda x: matmul(x.view(8, 64), x.view(64, 8)), matmul_kernel, dtype=torch.float16),
    "module": Way(module, rmsnorm_rope_kernel),
    "with gradients": Way(with_gradients, layer_norm_kernel),
}


class Called:
    """One way of calling, with a tensor, and what was launched."""

    def __init__(self, way, launched, ordinary):
        self.way, self.launched, self.ordinary = way, launched, ordinary
        self.x = self.tensor()
        self._call = way.make()
        for _ in range(3):  # a choice is known before the plan of what it calls
            self()

    def tensor(self):
        return torch.zeros(512, dtype=self.way.dtype)

    def __call__(self, x=None):
        """Call, and return the launches that were made."""
        before = len(self.launched.made)
        self.result = self._call(self.x if x is None else x)
        return self.launched.made[before:]

    @property
    def is_known(self):
        before = len(self.ordinary)
        assert len(self()) == 1
        return len(self.ordinary) == before

    def is_known_again(self):
        """Whether it is known at the latest after two calls."""
        self(), self()
        return self.is_known


def addresses(launch):
    return {part.data_ptr() if isinstance(part, torch.Tensor) else part for part in launch[4]}


@pytest.fixture(params=WAYS)
def called(request):
    with launches_that_do_nothing() as launched, cpu_as_gpu(), ordinary_launches() as ordinary:
        forget_decisions()
        yield Called(WAYS[request.param], launched, ordinary)
        forget_decisions()


def test_a_call_is_known_after_the_first(called):
    assert called.is_known
    assert called.is_known
    other = called.tensor()
    (one,), (two,) = called(), called(other)
    assert one[:2] == two[:2]
    assert addresses(one).isdisjoint({other.data_ptr()})
    assert other.data_ptr() in addresses(two)


def test_each_call_is_counted_once(called):
    before = {(row.kernel, row.problem): row.launches for row in launches()}
    called(), called(), called()
    after = {(row.kernel, row.problem): row.launches for row in launches()}
    assert {count - before.get(place, 0) for place, count in after.items()} - {0} == {3}


def test_the_current_stream_and_device_are_those_of_the_launch(called):
    called.launched.stream = 7
    assert called.is_known
    assert called()[0][2] == 7
    called.launched.device = 1
    assert [launch[3] for launch in called()] == [1]
    called.launched.device = 0
    assert [launch[3] for launch in called()] == [0]
    assert called.is_known_again()


def test_another_driver_is_that_of_the_next_launch(called):
    with launches_that_do_nothing() as others:
        called()
        assert len(others.made) == 1
    assert called.is_known_again()


def test_a_hook_of_a_profiler_sees_every_launch(called):
    names, hooks = [], triton.knobs.runtime.launch_enter_hook

    def hook(metadata):
        names.append(metadata.get()["name"])

    hooks.add(hook)
    try:
        called(), called()
    finally:
        hooks.remove(hook)
    called()
    assert len(names) == 2
    assert called.is_known_again()


def test_a_knob_that_was_set_is_known_from_the_next_launch_on(called):
    with mock.patch.object(triton.knobs.runtime, "jit_cache_hook", return_value=None):
        assert not called.is_known
        assert called.is_known_again()
    assert not called.is_known
    assert called.is_known_again()


@pytest.mark.parametrize("of_class", [True, False])
def test_a_function_in_the_place_of_run_is_called(called, of_class):
    with mock.patch.object(JITFunction if of_class else called.way.kernel, "run") as run:
        called()
        called()
    assert run.call_count == 2
    assert called.is_known_again()


def test_a_function_that_is_called_before_each_run_is_called(called):
    calls = []

    def before(*_args, **_kwargs):
        calls.append(1)

    called.way.kernel.pre_run_hooks.append(before)
    try:
        called(), called()
    finally:
        called.way.kernel.pre_run_hooks.remove(before)
    assert len(calls) == 2
    assert called.is_known_again()


def test_a_global_of_the_kernel_that_changed_is_an_error(called):
    used = called.way.kernel.used_global_vals
    scope = {"VALUE": 2}
    used[("VALUE", id(scope))] = (1, scope)
    try:
        with pytest.raises(RuntimeError, match="VALUE has changed"):
            called()
    finally:
        del used[("VALUE", id(scope))]
    assert called.is_known_again()


def test_what_triton_was_told_to_drop_is_compiled_again(called):
    called.way.kernel.device_caches.clear()
    assert not called.is_known
    assert called.is_known_again()


def test_a_call_is_decided_again_when_decisions_are_forgotten(called):
    forget_decisions()
    assert not called.is_known
    assert called.is_known_again()


def test_the_policy_of_a_miss_counts_at_a_known_call(called):
    if not called.way.decides:
        pytest.skip("a decorator has its own policy")
    with on_miss("error"), pytest.raises(UntunedError):
        called()
    assert called.is_known_again()


def test_another_folder_of_records_is_asked(called, monkeypatch, tmp_path):
    if called.way.kernel is scaled:
        pytest.skip("it is asked once for a problem, whatever the folder")
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path))
    assert not called.is_known
    assert called.is_known_again()


class Operators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_mode_of_torch_sees_the_operators(called):
    with Operators() as seen:
        assert len(called()) == 1
    assert any("empty" in name for name in seen.names)
    assert called.is_known


class Own(torch.Tensor):
    pass


def asks(called):
    if called.way.kernel is scaled:
        pytest.skip("a kernel of the user's is launched with whatever Triton takes")


def test_a_tensor_of_another_class_meets_no_known_call(called):
    asks(called)
    before = len(called.ordinary)
    called(called.x.as_subclass(Own))
    assert len(called.ordinary) == before + 1


def test_a_tensor_without_memory_meets_no_known_call(called):
    asks(called)
    x = called.tensor()
    x.untyped_storage().resize_(0)
    before = len(called.ordinary)
    try:
        called(x)
    except triton_ops.TritonKernelError:
        return
    assert len(called.ordinary) == before + 1


def test_a_view_that_torch_negates_meets_no_known_call(called):
    asks(called)
    before = len(called.ordinary)
    try:
        called(torch._neg_view(called.x))
    except triton_ops.TritonKernelError:
        return
    assert len(called.ordinary) == before + 1


def test_threads_share_known_calls(called):
    errors, going = [], threading.Barrier(4)

    def run():
        try:
            going.wait()
            for _ in range(20):
                called._call(called.tensor())
        except Exception as error:  # noqa: BLE001 - the test tells it
            errors.append(error)

    before = len(called.launched.made)
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(called.launched.made) == before + 80
    assert called.is_known


def test_threads_may_make_the_first_call_together(called):
    forget_decisions()
    assert not called.is_known
    test_threads_share_known_calls(called)


@pytest.mark.processes
def test_a_forked_child_decides_anew(called):
    def child():
        assert not called.is_known

    assert status_of_a_child(child) == 0
    assert called.is_known


def test_no_tensor_is_kept_alive(called):
    x = called.tensor()
    called(x), called(x)
    memory = weakref.ref(x)
    called.launched.made.clear()
    del x
    called()
    assert memory() is None


HALF = torch.float16
TILE = {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 2}
SPLIT, HOST = {**TILE, "ALGORITHM": "split_k", "SPLIT": 2}, {**TILE, "LOADS": "host"}
MLP = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_SIZE_M": 8, "num_warps": 4, "num_stages": 2}
SIZES = st.one_of(st.integers(0, 40), st.integers(1, 1500), st.sampled_from([64, 128, 256, 512, 528, 1024, 1040]))


def growing():
    """By name calls of a function of one size."""
    a, b, q, keys = (
        torch.zeros(*shape, dtype=HALF) for shape in ((1500, 64), (64, 64), (1, 2, 1, 64), (1, 2, 1500, 64))
    )
    weight, ends = torch.zeros(64).requires_grad_(), torch.tensor([1, 2], dtype=torch.int32)
    codes, columns, scales, scale = (
        a.to(torch.float8_e4m3fn),
        b.to(torch.float8_e4m3fn).t(),
        torch.ones(1500, 1),
        torch.ones(1),
    )
    return {
        "softmax": lambda size: softmax(a[:size]),
        "layer_norm with gradients": lambda size: layer_norm(a[:size].float(), weight),
        "matmul": lambda size: matmul(a[:size], b, config=TILE),
        "matmul, two launches": lambda size: matmul(a[:size], b, config=SPLIT),
        "matmul, host descriptors": lambda size: matmul(a[:size], b, config=HOST),
        "matmul of other columns": lambda size: matmul(a[:, :16], a[:size].t()[:16], config=TILE),
        "matmul of other depths": lambda size: matmul(
            a[:8, :1].expand(8, size).contiguous(), b[:1].expand(size, 64), config=HOST
        ),
        "fused_gated_mlp": lambda size: fused_gated_mlp(keys[:1, 0, :size], b, b, config=MLP),
        "fused_gated_mlp of other widths": lambda size: fused_gated_mlp(
            torch.zeros(1, 8, size, dtype=HALF), *[torch.zeros(16, size, dtype=HALF)] * 2, config=MLP
        ),
        "fused_rmsnorm_rope": lambda size: fused_rmsnorm_rope(keys[:1, 0, :size], b[0], a[:size, :16], a[:size, :16]),
        "grouped_matmul": lambda size: grouped_matmul(a[:size], keys[0, :, :64], ends),
        "fp8_gemm": lambda size: fp8_gemm(codes[:size], columns, scales[:size], scale),
        "flash_attention": lambda size: flash_attention(q, keys[:, :, :size], keys[:, :, :size]),
        "flash_attention with other values": lambda size: flash_attention(q, keys[:, :, :size], keys[:, :, :500]),
        "quantize_fp8": lambda size: quantize_fp8(a[:size], granularity="row"),
    }


def outcome(launched, call, size):
    """The launches of a call, with compiled kernel and arguments, and its result's memory, or its error."""
    launched.made.clear(), launched.compiled.clear()  # every launch of this call alone
    try:
        result = call(size)
    except triton_ops.TritonKernelError as error:
        return type(error), str(error)
    results = result if isinstance(result, tuple) else (result,)
    launches = [(name, grid, *map(plainly, values)) for name, grid, _, _, values in launched.made]
    return launches, launched.compiled[:], [(each.shape, each.stride(), each.dtype) for each in results]


def plainly(value):
    """An argument of a launch; addresses, of memory that may be new at each call, are all alike."""
    value = value.data_ptr() if isinstance(value, torch.Tensor) else value
    if type(value) is int and value > 1 << 40:
        return "address"
    if hasattr(value, "block_shape"):
        return [*value.shape], [*value.strides], value.block_shape
    return value if not isinstance(value, float) or value == value else "nan"


@pytest.mark.processes
@pytest.mark.parametrize("name", growing())
@settings(max_examples=5, deadline=None)
@given(sizes=st.lists(SIZES, min_size=3, max_size=12))
def test_a_call_of_any_size_launches_what_it_launches_without_known_calls(name, sizes):
    with launches_that_do_nothing() as launched, cpu_as_gpu():
        forget_decisions()
        call = growing()[name]
        for size in (700, 700, 701, *sizes):
            known = outcome(launched, call, size)
            operations._calls.forget()
            with Operators():  # then the body is called
                assert outcome(launched, call, size) == known
        forget_decisions()


@pytest.mark.parametrize("name", ["softmax", "matmul", "flash_attention", "quantize_fp8"])
def test_a_new_size_of_a_class_is_a_known_call(name):
    with launches_that_do_nothing(), cpu_as_gpu(), ordinary_launches() as ordinary:
        forget_decisions()
        call = growing()[name]
        for size in (641, 643, 645):
            call(size)
        before = len(ordinary)
        for size in (647, 649, 651, 703):
            call(size)
        assert len(ordinary) == before
        forget_decisions()
