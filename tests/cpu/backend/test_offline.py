"""Compiling for a target that is not here: the same entry of the disk cache, the same shared memory, no memory."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from triton_ops.backend import Arguments, StandIn, TritonKernel, TritonProcess, triton_compiler  # noqa: E402
from triton_ops.backend.offline import LoweredError, option_names, pretending  # noqa: E402
from triton_ops.backend.triton_compiler import TritonNeeds  # noqa: E402
from triton_ops.backend.triton_process import traits_of  # noqa: E402
from triton_ops.device import Target  # noqa: E402
from triton_ops.space import Config  # noqa: E402
from triton_ops.values import (  # noqa: E402
    TensorSpec,
)

pytestmark = pytest.mark.triton


@pytest.fixture(autouse=True)
def _fused(monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


@triton.jit
def sum_kernel(x, out, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    tl.store(out, tl.sum(values.to(tl.float32) if WIDE else values))


@triton.jit
def scan_kernel(x, out, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    values = tl.load(x + places)
    tl.store(out + places, tl.cumsum(values.to(tl.float32) if WIDE else values))


@triton.jit
def scalar_kernel(x, out, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Two numbers of 16 bits are added beside a maximum, and no block of them is added up."""
    values = tl.load(x + tl.arange(0, BLOCK))
    tl.store(out, tl.max(values).to(x.dtype.element_ty) + tl.load(x) + (tl.sum(values.to(tl.float32)) if WIDE else 0))


@pytest.mark.parametrize(
    ("kernel", "dtype", "wide", "narrow"),
    [
        (sum_kernel, "bfloat16", 0, True), (sum_kernel, "float16", 0, True), (sum_kernel, "bfloat16", 1, False),
        (sum_kernel, "float32", 0, False), (scan_kernel, "float16", 0, True), (scan_kernel, "float16", 1, False),
        (scalar_kernel, "bfloat16", 0, False), (scalar_kernel, "bfloat16", 1, False),
    ],
)  # fmt: skip
def test_code_that_adds_up_in_16_bits_is_known(kernel, dtype, wide, narrow):
    tensors = {"x": TensorSpec((64,), dtype), "out": TensorSpec((64,), dtype)}
    arguments = Arguments(keyword={**tensors, "WIDE": wide}).described()
    with pretending(Target.named("sm_90"), "asked of the TTIR"):
        kernels = TritonKernel(kernel, grid=lambda _: (1,), outputs=["out"]).lowered(
            Config(BLOCK=64, num_warps=1), arguments
        )
    assert traits_of(kernels)["narrow_sums"] is narrow


def test_a_hook_that_is_set_meanwhile_stays():
    knobs, before = triton.knobs.runtime, triton.knobs.runtime.jit_cache_hook
    mine = lambda **facts: None  # noqa: E731 - it is compared by identity
    try:
        with TritonProcess.nothing_compiled(), TritonProcess.nothing_compiled():
            knobs.jit_cache_hook = mine
        assert knobs.jit_cache_hook is mine
    finally:
        knobs.jit_cache_hook = before


def test_the_same_arguments_as_tensors_or_specs_make_the_same_stand_in():
    spec = TensorSpec((6, 8), "float16", (16, 2), aligned=False)
    tensor = spec.create_tensor()
    room = torch.empty(1 << 14, dtype=torch.int8)
    assert StandIn.of(spec) == StandIn.of(tensor)
    assert StandIn.of(room[3:]).offset_bytes == 3
    assert StandIn.of(room[3:]).storage_bytes == 1 << 14
    made = StandIn.of(room[3:]).tensor()
    assert (made.device.type, made.data_ptr() % 16, made.untyped_storage().nbytes()) == ("meta", 3, 1 << 14)
    nested = Arguments((room, [spec, (room, 1)]), {"a": None}).described()
    assert all(t.device.type == "meta" for t in nested.tensors())


DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int8", "bool")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("number", [1, 7, 16, 1 << 40, True, 0.5])
def test_a_stand_in_is_specialised_as_the_tensor_that_it_stands_for(dtype, aligned, number):
    from triton.runtime.jit import create_function_from_signature

    function = triton.jit(_taking)
    target = Target.named("sm_90")
    with pretending(target):
        backend = triton.compiler.make_backend(triton.runtime.driver.active.get_current_target())
        bind = create_function_from_signature(function.signature, function.params, backend)
        spec = TensorSpec((64,), dtype, aligned=aligned)
        light, full = (Arguments((spec,)).described(light=light).positional[0] for light in (True, False))
        assert isinstance(light, StandIn)
        assert isinstance(full, torch.Tensor)
        assert bind(light, number)[1] == bind(full, number)[1] == bind(spec.create_tensor(), number)[1]


def _taking(x, number):
    pass


def test_nothing_is_left_of_the_pretence():
    before = triton.runtime.driver._active
    with pretending(Target.named("sm_100")):
        assert triton.runtime.driver.active.get_current_target().arch == 100
    assert triton.runtime.driver._active is before


def test_a_rehearsal_lowers_a_kernel_without_torch_and_stops_before_the_assembler(monkeypatch):
    texts, imports = [], []

    def stop(_shared_bytes, text):
        texts.append(text)
        imports.append(sys.modules["torch"])
        raise LoweredError

    monkeypatch.setattr(triton_compiler, "_stop", stop)
    own = sys.modules["torch"]
    TritonNeeds(("triton",), Target.named("sm_90")).rehearse()
    monkeypatch.delitem(sys.modules, "torch")
    TritonNeeds(("triton",), Target.named("sm_90")).rehearse()
    assert "torch" not in sys.modules, "its absence is no longer noted"
    assert imports == [own, None]
    assert all("tt.func" in text and "cuda:90" in text for text in texts)


def test_the_version_of_triton_is_the_one_that_was_asked_for():
    asked = os.environ.get("TRITON_OPS_EXPECT_TRITON", triton.__version__)
    assert triton.__version__ == importlib.metadata.version("triton") == asked


def test_options_of_the_targets_differ():
    assert "maxnreg" in option_names(Target.named("sm_90")) - option_names(Target.named("gfx942"))
    assert "waves_per_eu" in option_names(Target.named("gfx942")) - option_names(Target.named("sm_90"))


@triton.jit
def convolution_kernel(x, w, out, FORM: tl.constexpr, BLOCK: tl.constexpr):
    """Products in 16 bits (0), in 32 (1), in 16 of a cast (2), fused ones (3), or no more than a rounded result (4)."""
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(4):
        left, right = tl.load(x + at + k), tl.load(w + k)
        if FORM == 0:
            total += left * right
        elif FORM == 2:
            total += (left.to(tl.float32) * right).to(x.dtype.element_ty).to(tl.float32)
        elif FORM == 3:
            total += tl.fma(left, left, left)
        elif FORM != 4:
            total += left.to(tl.float32) * right.to(tl.float32)
    tl.store(out + at, tl.load(x + at) * tl.load(w) if FORM == 4 else total)


@triton.jit
def rotated_kernel(x, w, out, FORM: tl.constexpr, BLOCK: tl.constexpr):
    """A difference of products in 16 bits (0); products of tiles, of what is cast for them (1), or multiplied (2)."""
    rows = tl.arange(0, BLOCK)
    tile = rows[:, None] * BLOCK + rows[None, :]
    left, right = tl.load(x + tile), tl.load(w + tile)
    if FORM == 0:
        tl.store(out + tile, left * right - right * right)
    else:
        scores = tl.dot(left * 2 if FORM == 2 else left, right)
        tl.store(out + tile, tl.dot(tl.exp(scores).to(x.dtype.element_ty), right))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("kernel", "form", "narrow"),
    [
        (convolution_kernel, 0, True), (convolution_kernel, 1, False), (convolution_kernel, 2, True),
        (convolution_kernel, 3, True), (convolution_kernel, 4, False),
        (rotated_kernel, 0, True), (rotated_kernel, 1, False), (rotated_kernel, 2, True), (sum_kernel, 1, False),
    ],
)  # fmt: skip
def test_code_that_computes_on_with_what_it_has_rounded_to_16_bits_is_known(kernel, dtype, form, narrow):
    tensors = {name: TensorSpec((4096,), dtype) for name in ("x", "w", "out") if name in kernel.arg_names}
    choice = {"WIDE" if kernel is sum_kernel else "FORM": form}
    with pretending(Target.named("sm_90"), "asked of the TTIR"):
        kernels = TritonKernel(kernel, grid=lambda _: (1,), outputs=["out"]).lowered(
            Config(BLOCK=64, num_warps=4), Arguments(keyword={**tensors, **choice}).described()
        )
    assert traits_of(kernels)["narrow_steps"] is narrow
