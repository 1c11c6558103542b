"""Block pointers, which Triton 3.9 no longer has."""

import triton
import triton.language as tl


@triton.jit
def block_pointers_good(a, b, c, M, N, K, am, bk, cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    pa = tl.make_block_ptr(a, (M, K), (am, 1), (pm * BM, 0), (BM, BK), (1, 0))
    pb = tl.make_block_ptr(b, (K, N), (bk, 1), (0, pn * BN), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        left = tl.load(pa, boundary_check=(0, 1), padding_option="zero")
        right = tl.load(pb, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(left, right, acc)
        pa = tl.advance(pa, (0, BK))
        pb = tl.advance(pb, (BK, 0))
    pc = tl.make_block_ptr(c, (M, N), (cm, 1), (pm * BM, pn * BN), (BM, BN), (1, 0))
    tl.store(pc, acc.to(c.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def block_pointers_bad(a, b, c, M, N, K, am, bk, cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    pa = tl.make_block_ptr(a, (M, K), (am, 1), (pm * BM, 0), (BM, BK), (1, 0))
    pb = tl.make_block_ptr(b, (K, N), (bk, 1), (0, pn * BN), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        left = tl.load(pa, boundary_check=(0,), padding_option="zero")  # finds: missing-mask
        right = tl.load(pb, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(left, right, acc)
        pa = tl.advance(pa, (0, BK))
        pb = tl.advance(pb, (BK, 0))
    pc = tl.make_block_ptr(c, (M, N), (cm, 1), (pm * BM, pn * BN), (BM, BN), (1, 0))
    tl.store(pc, acc.to(c.dtype.element_ty))  # finds: missing-mask


@triton.jit
def sum_of_rows_bad(x, y, T, D, B: tl.constexpr, BD: tl.constexpr):
    p = tl.make_block_ptr(x, (T, D), (D, 1), (tl.program_id(0) * B, 0), (B, BD), (1, 0))
    acc = tl.zeros([B], tl.float32)
    for _ in range(tl.cdiv(D, BD)):
        v = tl.load(p, boundary_check=(0,))  # finds: missing-mask
        acc += tl.sum(v.to(tl.float32), 1)
        p = tl.advance(p, (0, BD))
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, acc, mask=o < T)
