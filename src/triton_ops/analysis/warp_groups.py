"""Whether the products of a warp group wait for each other, read from Hopper's machine code without a tool.

A kernel's PTX starts products (`wgmma.mma_async`) in groups, each behind one `wgmma.fence`, and they run beside the
loads of later steps. Where ptxas cannot keep the registers of a group apart, it makes every product wait for the one
before: it puts a fence of its own before each. It tells so on the screen alone ("Potential Performance Loss"), and the
same tile can be affected in one kernel and not in another.

In the machine code a fence is WARPGROUP.ARRIVE. An instruction is 16 bytes: its lowest 12 bits are 0x9c5 in fences and
waits, of which bit 47 is set in waits; in products they are 0x9f0 to 0x9f3, or 0xdf0 to 0xdf3 where the left factor is
in registers, as `nvdisasm -hex` of CUDA 12.8 shows. Of 250 kernels for sm_90 (ptxas 12.8) the 45 with ptxas' warning
are those with more fences than their PTX has.
"""

from __future__ import annotations

import re
import struct

from triton_ops.analysis.elf import sections

_FENCE = re.compile(r"\bwgmma\.fence\.")
_PRODUCT = re.compile(r"\bwgmma\.mma_async\.")
_OPERATION = 0xFFF
_GROUP = 0x9C5
_WAIT = 1 << 47
_PRODUCTS = frozenset((*range(0x9F0, 0x9F4), *range(0xDF0, 0xDF4)))


def serialised_products(cubin: bytes, ptx: str) -> bool | None:
    """Whether ptxas made each product of a warp group wait for the one before; None without such products.

    Args:
        cubin: The machine code, for sm_90.
        ptx: The text that it was made from.

    Cost: a millisecond.

    Raises:
        ValueError: `cubin` is no 64-bit little-endian ELF file.
    """
    asked = len(_PRODUCT.findall(ptx))
    if not asked:
        return None
    asked_fences = len(_FENCE.findall(ptx))
    fences, products = _counted(cubin)
    # Both are counted, because ptxas may leave out code that is never reached, and may repeat a loop's body.
    return fences > asked_fences and fences * asked > asked_fences * products


def _counted(cubin: bytes) -> tuple[int, int]:
    """Fences and products of all functions."""
    fences = products = 0
    for name, code in sections(cubin):
        if name.startswith(".text."):
            for word, _ in struct.iter_unpack("<QQ", code[: len(code) // 16 * 16]):
                operation = word & _OPERATION
                fences += operation == _GROUP and not word & _WAIT
                products += operation in _PRODUCTS
    return fences, products
