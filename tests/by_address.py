"""Grouped products whose matrices a kernel finds by their addresses, and what makes the arrays that hold these."""

import torch
import triton
import triton.language as tl

GROUPS, SIZE = 3, 64


@triton.jit
def products(a_at, b_at, out_at, size, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """out = a @ b for each group, all of them [size, size] in float32; programs [groups, rows / BLOCK]."""
    group = tl.program_id(0)
    a = tl.load(a_at + group).to(tl.pointer_type(tl.float32))
    b = tl.load(b_at + group).to(tl.pointer_type(tl.float32))
    out = tl.load(out_at + group).to(tl.pointer_type(tl.float32))
    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.arange(0, WIDTH)
    product = tl.dot(
        tl.load(a + rows[:, None] * size + columns[None, :]),
        tl.load(b + columns[:, None] * size + columns[None, :]),
        input_precision="ieee",
    )
    tl.store(out + rows[:, None] * size + columns[None, :], product)


def grid(meta):
    return GROUPS, triton.cdiv(meta["size"], meta["BLOCK"])


def addresses_of(tensors):
    """An array of the addresses of tensors, beside them."""
    return torch.tensor([each.data_ptr() for each in tensors], dtype=torch.int64, device=tensors[0].device)


def groups(device="cpu"):
    """The factors and results of some products, and the arguments of a launch."""
    a, b = ([torch.randn(SIZE, SIZE, device=device) for _ in range(GROUPS)] for _ in range(2))
    out = [torch.zeros(SIZE, SIZE, device=device) for _ in range(GROUPS)]
    arguments = {"a_at": addresses_of(a), "b_at": addresses_of(b), "out_at": addresses_of(out), "size": SIZE}
    return a, b, out, arguments


def right(a, b, out):
    """Whether all results are those of the factors."""
    return all(torch.allclose(z, x @ y, atol=1e-4) for x, y, z in zip(a, b, out, strict=True))
