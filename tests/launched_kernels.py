"""Kernels with the functions that launch them, in a file whose top asks for a driver, as tutorials are written.

Some of its statements fail without a GPU, or anywhere: what stands beside them is used all the same.
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import torch
import triton
import triton.language as tl

import triton_ops

DEVICE = triton.runtime.driver.active.get_active_torch_device()
UNITS = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)["multiprocessor_count"]
CONFIGS = [triton.Config({"BLOCK": 64}, num_warps=4), triton.Config({"BLOCK": 128}, num_warps=8)]


def grid_of(x):
    return lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)


@triton.jit
def plain(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


listed = triton.autotune(CONFIGS, key=["n"])(plain)
ours = triton_ops.autotune(CONFIGS, key=["n"])(plain)


@triton.heuristics({"EVEN": lambda given: given["n"] % 128 == 0})
@triton_ops.autotune(CONFIGS, key=["n"])
@triton.jit
def above(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i) if EVEN else tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x, mask=i < n)


@triton.autotune([triton.Config({}, num_warps=warps) for warps in (1, 2)], key=["n"])
@triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["n"])})
@triton.jit
def below(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["n"])})
@triton.jit
def computed(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def gather(x_ptr, pages_ptr, ends_ptr, out_ptr, BLOCK: tl.constexpr, DTYPE: tl.constexpr):
    row = tl.load(pages_ptr + tl.program_id(0)) + tl.load(ends_ptr)
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + i, tl.load(x_ptr + row * BLOCK + i).to(DTYPE))


@triton.jit
def gradient(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 3, mask=i < n)


@triton.jit
def alone(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)


@triton.jit
def warmed(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        i = row * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + i, tl.load(x_ptr + i))


wrong = triton_ops.Operation("wrong", 3, {"BLOCK": [64]}, dict)
assert torch.allclose(torch.ones(1), torch.zeros(1)), "a check that fails"


def on_gpu(x):
    assert x.is_cuda
    assert x.device == DEVICE
    assert torch.cuda.get_device_capability() >= (8, 0)
    with torch.cuda.device(x.device.index):
        return torch.empty_like(x)


def double(x):
    out = on_gpu(x)
    plain[grid_of(x)](x, out, x.numel(), BLOCK=256, num_warps=2)
    return out


def double_by_list(x):
    listed[grid_of(x)](x, on_gpu(x), x.numel())


def double_by_ours(x):
    ours[grid_of(x)](x, on_gpu(x), x.numel())


def copy_above(x):
    above[grid_of(x)](x, on_gpu(x), x.numel())


def copy_below(x):
    below[(1,)](x, on_gpu(x), x.numel())


def copy_computed(x):
    computed[(1,)](x, on_gpu(x), x.numel(), num_warps=2)


@torch.library.custom_op("triton_ops_tests::gathered", mutates_args=(), device_types="cuda")
def gathered(x: torch.Tensor, pages: torch.Tensor, ends: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    out = x.new_empty((int(ends[-1]), x.shape[1]), dtype=dtype)  # read from a tensor
    gather[(out.shape[0],)](x, pages, ends, out, BLOCK=x.shape[1], DTYPE=tl.float16)
    return out


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        return double(x)

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        gradient[(triton.cdiv(grad.numel(), 128),)](grad.contiguous(), out, grad.numel(), BLOCK=128)
        return out, None


def hidden(x):
    try:
        double(x)
    except:  # noqa: E722 - a handler that takes everything
        return


def exits(x):
    raise SystemExit(4)


threaded = triton.autotune(CONFIGS, key=["n"])(plain)


def in_a_thread(x):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(threaded[grid_of(x)], x, on_gpu(x), x.numel()).result()


def all_in_a_thread(x):
    thread = Thread(target=double, args=(x,))
    thread.start()
    thread.join()


class Doubler(Thread):
    def __init__(self, x):
        super().__init__()
        self.x = x

    def run(self):
        double(on_gpu(self.x).reshape(self.x.shape))


def in_a_thread_of_its_own(x):
    thread = Doubler(x)
    thread.start()
    thread.join()


valued, of_method = triton.jit(plain.fn), triton.jit(plain.fn)


def by_values(x, ends):
    valued[(int(ends[-1]),)](x, x, x.numel(), BLOCK=256, num_warps=2)


class Doubling(torch.nn.Module):
    def forward(self, x):
        of_method[grid_of(x)](x, on_gpu(x), x.numel(), BLOCK=64)


def doubling():
    return Doubling()


configured = triton.jit(plain.fn)


def by_config(x, **config):
    configured[(triton.cdiv(len(x), config["BLOCK"]),)](x, on_gpu(x), len(x), **config)


def persistent(x):
    out = on_gpu(x)
    kernel = warmed.warmup(x, out, x.shape[0], BLOCK=x.shape[1], num_warps=4, grid=(1,))
    kernel._init_handles()
    programs = UNITS * min(16, 65536 // (kernel.n_regs * 32 * 4))
    kernel[(programs, 1, 1)](x, out, x.shape[0], x.shape[1])


x = torch.rand(1000, device=DEVICE)
alone[(1,)](x, BLOCK=64)
alone[(1,)](x, BLOCK=128)
