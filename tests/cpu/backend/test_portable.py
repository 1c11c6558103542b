"""Objects as bytes that another process makes them from: here, a fresh interpreter."""

from __future__ import annotations

import ctypes
import importlib
import json
import subprocess
import sys
import threading

import pytest
import torch

from tests.planted_kernels import __name__ as planted_name
from triton_ops import FunctionKernel, KernelTypeError
from triton_ops.backend import Arguments, Packed, TritonKernel, portable

HERE = 5


def elsewhere(content: bytes, code: str) -> object:
    """What `code` makes of the unpacked `it` in another process, through JSON."""
    script = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from triton_ops.backend import Packed; "
        f"it = Packed.loaded(sys.stdin.buffer.read()); print(json.dumps({code}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(sys.path)], input=content, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.mark.processes
def test_functions_by_name_and_by_value():
    base = 4

    def inner(x):
        return x + base + HERE

    result = Packed.of([inner, lambda x: inner(x) * 2, json.dumps, FunctionKernel(inner)]).content
    assert elsewhere(result, "[it[0](1), it[1](1), it[2](1), it[3].function(2)]") == [10, 20, "1", 11]


@pytest.mark.processes
def test_a_function_by_value_keeps_the_file_that_its_source_is_read_from():
    def outer():
        def inner():
            return 0

        return inner

    for by_value in (True, False):
        content = Packed.of(outer, by_value=by_value).content
        assert elsewhere(content, "[it.__code__.co_filename, it().__code__.co_filename]") == [__file__, __file__]


@pytest.mark.processes
@pytest.mark.triton
def test_a_kernel_that_no_module_holds_goes_by_its_source_and_is_the_same_to_triton():
    triton = pytest.importorskip("triton")
    tl = pytest.importorskip("triton.language")

    @triton.jit
    def doubled(x):
        return x * 2

    @triton.jit(do_not_specialize=["n"])
    def kernel(x, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(x + at, doubled(tl.load(x + at)))

    size = 3
    made = TritonKernel(kernel, lambda meta: (size,), outputs=("x",))
    result = Packed.of(made).content
    assert elsewhere(result, "[it.function.cache_key, it.grid({}), it.function.do_not_specialize]") == [
        kernel.cache_key,
        [3],
        ["n"],
    ]
    assert elsewhere(result, "dict(it.identity)") == dict(made.identity)
    assert planted_name == "tests.planted_kernels"


def test_tensors_keep_strides_offsets_alignment_sharing_and_dtypes():
    room = torch.arange(40.0)
    given = Arguments(
        (room[1:21].view(4, 5).t(), room),
        {
            "narrow": torch.linspace(-2, 2, 7).to(torch.float8_e4m3fn),
            "nothing": torch.empty(0, 3, dtype=torch.int32),
            "several": [torch.tensor([True, False]), {"deep": torch.ones(2, dtype=torch.bfloat16)}],
            "plain": 3,
            "leaf": torch.ones(2, requires_grad=True),
        },
    )
    packed = Packed.of(given)
    assert packed.drawn == ()
    made = Packed.loaded(packed.content)
    for old, new in zip(given.tensors(), made.tensors(), strict=True):
        assert (new.dtype, new.shape, new.stride()) == (old.dtype, old.shape, old.stride())
        assert new.storage_offset() == old.storage_offset()
        assert new.requires_grad == old.requires_grad
        assert torch.equal(new.float(), old.float())
        assert new.data_ptr() != old.data_ptr() or new.numel() == 0
    view, whole = made.positional
    whole[1] = 99
    assert float(view[0, 0]) == 99, "they share their storage, as before"
    assert made.keyword["plain"] == 3


def test_past_the_limit_numbers_are_drawn_and_indices_are_not():
    given = Arguments((torch.full((1000,), 7.0), torch.full((1000,), 900), torch.full((10,), 7.0)))
    packed = Packed.of(given, most_bytes=100)
    assert packed.drawn == ("(1000,) torch.float32 of 0.0 GB",)
    drawn, indices, small = Packed.loaded(packed.content).positional
    assert float(drawn.abs().max()) <= 1
    assert float(drawn.std()) == pytest.approx(0.577, abs=0.05)
    assert bool((indices == 900).all())
    assert bool((small == 7).all())


def test_a_large_tensor_that_goes_as_a_handle_is_copied_once_from_where_that_leads(monkeypatch):
    """The memory of this process stands for that of a GPU, and its address for a driver's handle."""
    large, small, copies = torch.arange(1 << 18, dtype=torch.float32), torch.ones(4), []

    def copied(_device, _torch, handle, address, count):
        copies.append(count)
        ctypes.memmove(address, int(handle[0]), count)

    monkeypatch.setattr(portable, "_handle_of", lambda storage: (b"%d" % storage.data_ptr(), 0))
    monkeypatch.setattr(portable.TorchDevice, "copy_mapped", copied)
    packed = Packed.of([large, large[5:9], small], most_bytes=0, mapped=True)
    assert packed.mapped
    assert len(packed.content) < 10_000
    assert packed.drawn == ("(4,) torch.float32 of 0.0 GB",), "what has a handle is not drawn"
    whole, part, _ = Packed.loaded(packed.content)
    assert copies == [1 << 20]
    assert torch.equal(whole, large)
    assert part.data_ptr() == whole[5:].data_ptr() != large[5:].data_ptr()
    below = Packed.of(large[:-1].clone(), mapped=True)
    assert not below.mapped
    assert torch.equal(Packed.loaded(below.content), large[:-1])


@pytest.mark.parametrize("value", [threading.Lock(), (number for number in range(3))])
def test_what_lives_in_this_process_only_is_refused(value):
    with pytest.raises(KernelTypeError, match="it cannot be sent to another process: TypeError"):
        Packed.of({"deep": [value]})


def test_what_cannot_be_loaded_says_why():
    with pytest.raises(KernelTypeError, match="it cannot be loaded in another process: "):
        Packed.loaded(b"no pickle")


def test_code_that_names_the_class_of_tensors_goes_by_value():
    torch = pytest.importorskip("torch")

    def asks(x):
        return isinstance(x, torch.Tensor), torch.Tensor

    kind = torch.Tensor
    assert Packed.loaded(Packed.of([asks, kind], by_value=True).content)[1] is torch.Tensor


@pytest.mark.processes
def test_what_a_users_module_makes_when_it_is_asked_goes_by_value(tmp_path, monkeypatch):
    (tmp_path / "lazy_settings.py").write_text(
        "def __getattr__(name):\n    if name != 'WIDTH':\n        raise AttributeError(name)\n    return 7\n"
    )
    (tmp_path / "lazy_launch.py").write_text(
        "import lazy_settings\n\n\ndef width(x):\n    return lazy_settings.WIDTH * x.real\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    content = Packed.of(importlib.import_module("lazy_launch").width, by_value=True).content
    monkeypatch.undo()  # the other process finds neither module
    assert elsewhere(content, "it(2)") == 14
