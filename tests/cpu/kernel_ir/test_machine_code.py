"""Machine code and assembly: what a thread uses, which instructions there are, and what they move."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.kernel_ir import PtxText, UntoldError, binary_facts
from triton_ops.kernel_ir.machine_code import (
    amdgcn_usage,
    contraction,
    cubin_usage,
    features,
    load_widths,
    loop_lines,
    sections,
    serialised_products,
)

REGCOUNT, FRAME_SIZE = 0x2F, 0x11
METADATA = """
amdhsa.kernels:
  - .args: []
    .private_segment_fixed_size: 224
    .vgpr_count:     97
    .vgpr_spill_count: 71
"""


def cubin(**contents):
    """An ELF file with these sections, whose names have dots in the place of underscores."""
    content = {f".{name.replace('_', '.', 1)}": part for name, part in contents.items()}
    names = b"\0" + b"".join(name.encode() + b"\0" for name in content)
    begin, headers = 64 + 64 * (len(content) + 1), b""
    parts = {"": names, **content}
    for name, part in parts.items():
        place = names.index(name.encode() + b"\0") if name else 0
        headers += struct.pack("<IIQQQQ", place, 1, 0, 0, begin, len(part)).ljust(64, b"\0")
        begin += len(part)
    head = bytearray(b"\x7fELF\x02\x01".ljust(64, b"\0"))
    struct.pack_into("<Q", head, 0x28, 64)
    struct.pack_into("<HHH", head, 0x3A, 64, len(parts), 0)
    return bytes(head) + headers + b"".join(parts.values())


def record(attribute, number):
    return struct.pack("<BBHII", 4, attribute, 8, 1, number)


@given(st.dictionaries(st.sampled_from(["text_one", "text_two", "nv_info"]), st.binary(max_size=40)))
def test_sections_have_the_names_and_the_bytes_that_were_put_in(contents):
    expected = {f".{name.replace('_', '.')}": content for name, content in contents.items()}
    assert dict(list(sections(cubin(**contents)))[1:]) == expected


@given(st.lists(st.integers(0, 255), min_size=1, max_size=3), st.lists(st.integers(0, 4096), min_size=1, max_size=3))
def test_a_thread_has_the_most_registers_and_the_largest_frame_of_all_functions(registers, frames):
    flag = struct.pack("<BBH", 3, REGCOUNT, 99)  # a record without a payload, of whatever number
    other = record(0x12, 1 << 20)
    info = flag.join(
        [other, *(record(REGCOUNT, one) for one in registers), *(record(FRAME_SIZE, one) for one in frames)]
    )
    expected = {"registers": max(registers), "stack_bytes": max(frames), "spill_bytes": max(frames)}
    assert cubin_usage(cubin(text_k=b"", nv_info=info)) == cubin_usage(cubin(nv_info=info + flag)) == expected


def test_what_is_no_cubin_is_refused():
    for content in (b"", b"MZ" * 99, b"\x7fELF\x01\x01" + bytes(99)):
        with pytest.raises(ValueError, match="no 64-bit little-endian ELF"):
            cubin_usage(content)
    with pytest.raises(ValueError, match=r"no section \.nv\.info"):
        cubin_usage(cubin(text_k=b""))
    with pytest.raises(ValueError, match="metadata has no"):
        amdgcn_usage("s_endpgm")


FENCE, WAIT, REST = 0x9C5, 0x9C5 | 1 << 47, 0xDEF
PRODUCTS = (0x9F0, 0x9F3, 0xDF0, 0xDF3 | 1 << 60)
OTHERS = (0x9EF, 0x9F4, 0xDEF, 0xDF4, 0x9C4, 0x9C6)


def code(*operations):
    return b"".join(struct.pack("<QQ", operation, FENCE) for operation in operations)


@pytest.mark.parametrize(
    ("operations", "serialised"),
    [
        ((FENCE, *PRODUCTS), False),
        ((FENCE, FENCE, *PRODUCTS), True),
        ((FENCE, WAIT, *PRODUCTS, WAIT, *OTHERS), False),
        ((FENCE, *PRODUCTS, FENCE, *PRODUCTS), False),  # a loop's body twice
        ((FENCE, *PRODUCTS, FENCE, FENCE, *PRODUCTS), True),
        ((FENCE, FENCE, *PRODUCTS[:3], *OTHERS), True),
        ((*PRODUCTS[:2],), False),
    ],
)
def test_products_wait_for_each_other_where_there_are_more_fences_for_each_than_were_asked_for(operations, serialised):
    ptx = "wgmma.fence.sync.aligned;\n" + "wgmma.mma_async.sync.aligned.m64n64k16 {%r1};\n" * 4
    binary = cubin(text_k=code(*operations) + b"more", nv_info=record(REGCOUNT, 1), data_k=code(FENCE, FENCE, FENCE))
    assert serialised_products(binary, ptx) is serialised
    assert serialised_products(binary, "wgmma.fence.sync.aligned;") is None
    assert binary_facts("ptx", binary, ptx) == {
        "registers": 1, "stack_bytes": 0, "spill_bytes": 0, "mma": "wgmma", "load_bytes": None,
        "serialised": serialised,
    }  # fmt: skip


def test_registers_and_spills_of_amd_are_those_of_the_metadata():
    facts = binary_facts("amdgcn", b"", METADATA + "v_mfma_f32_32x32x8_f16")
    assert facts == {
        "registers": 97, "stack_bytes": 224, "spill_bytes": 284, "mma": "mfma", "load_bytes": None, "serialised": None
    }  # fmt: skip
    assert amdgcn_usage(METADATA.replace("  - .args: []\n    .priv", "  - .priv"))["stack_bytes"] == 224


@pytest.mark.parametrize(
    ("language", "text", "mma"),
    [
        ("ptx", "tcgen05.mma.cta wgmma.mma_async", "tcgen05"), ("ptx", "wgmma.mma_async mma.sync", "wgmma"),
        ("ptx", "mma.sync.aligned", "mma.sync"), ("ptx", "v_mfma_f32", "none"), ("amdgcn", "v_mfma_f32", "mfma"),
        ("amdgcn", "v_wmma_f32", "wmma"), ("amdgcn", "mma.sync", "none"),
    ],
)  # fmt: skip
def test_the_instruction_of_products_is_the_one_of_its_language(language, text, mma):
    assert features(language, text)["mma"] == mma


def test_loads_are_counted_by_width():
    ptx = """
    @%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
    @%p1 ld.global.L1::evict_last.L2::cache_hint.v2.b64 { %rd1, %rd2 }, [ %rd1 + 0 ], %rd9;
    @!%p2 ld.global.b16 { %rs1 }, [ %rd1 + 0 ];
    cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;
    cp.async.ca.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 4, 4;
    ld.shared.b32 %r1, [%r2];
    st.global.v4.b32 [ %rd1 + 0 ], { %r1, %r2, %r3, %r4 };
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];
    """
    assert load_widths("ptx", ptx) == {16: 3, 4: 1, 2: 1}
    assert features("ptx", ptx) == {"load_bytes": 16, "mma": "none"}
    amd = "global_load_dwordx4 v[0:3], v4, s[0:1]\nbuffer_load_ushort v1, v2\nbuffer_load_ushort v1, v2\nv_wmma_f32"
    assert load_widths("amdgcn", amd) == {16: 1, 2: 2}
    assert features("amdgcn", amd) == {"load_bytes": 2, "mma": "wmma"}
    assert features("amdgcn", amd.partition("\n")[0] + "\nflat_load_ubyte v1")["load_bytes"] == 1, "of two the narrower"
    assert features("ptx", "ret;")["load_bytes"] is None


def test_a_width_belongs_to_the_line_that_calls_what_is_tritons_own():
    ptx = """
    .file 1 "/home/user" "kernel.py"
    .file 2 "/lib/triton/language/standard.py"
    .file 3 "/lib/triton/language" "core.py"
    ld.global.b32 %r1, [ %rd1 + 0 ];
    .loc 2 293 36 // standard.py:293:36 @[ kernel.py:34:22 ]
    ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
    .loc 3 12 36 // core.py:12:36 @[ standard.py:293:36 @[ kernel.py:33:22 @[ kernel.py:90:1 ] ] ]
    ld.global.b64 %rd1, [ %rd1 + 0 ];
    .loc 1 35 9 // kernel.py:35:9
    st.global.b16 [ %rd1 + 0 ], %rs1;
    st.global.v2.b16 [ %rd1 + 0 ], %rs1;
    .loc 2 7 36 // standard.py:7:36
    ld.global.b8 %rs1, [ %rd1 + 0 ];
    cp.async.ca.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x8, 4;
    """
    assert PtxText(ptx).widths() == {
        ("load", "", 0): [4], ("load", "kernel.py", 34): [16], ("load", "kernel.py", 33): [8],
        ("store", "kernel.py", 35): [2, 4], ("load", "standard.py", 7): [1, 8],
    }  # fmt: skip


def test_lines_in_loops_are_those_between_a_label_and_a_branch_back_to_it():
    assert loop_lines("$L__BB0_1:\n a\n b\n @%p1 bra $L__BB0_1;\n c\n bra.uni $L__BB0_2;\n$L__BB0_2:\n d") == {1, 2}
    nested = ".L_1:\n a\n.L_2:\n b\n BRA `(.L_2) ;\n c\n BRA.U `(.L_1) ;\n d"
    assert loop_lines(nested) == {1, 2, 3, 4, 5}
    assert loop_lines(".LBB0_1:\n a\n s_cbranch_scc1 .LBB0_1\n s_branch .LBB0_3\n b") == {1}


FFMA, FADD = 0x223, 0x221


def left_to_fuse(pairs, kind="f32"):
    """PTX with one fused product, and others beside sums that take them."""
    lines = ["fma.rn.f32 %f1, %f2, %f3, %f4;"]
    for nth in range(pairs):
        lines += [f"mul.{kind} %p{nth}, %f2, %f3;", f"sub.{kind} %s{nth}, %p{nth}, %f4;"]
    return "\n".join(lines)


def code_with(*operations):
    return cubin(text_kernel=b"".join(struct.pack("<QQ", operation | 0x5000, 0) for operation in operations))


@given(st.integers(1, 40), st.integers(1, 8))
def test_the_share_of_products_that_the_assembler_fused_is_that_of_one_row_whatever_the_rows(pairs, rows):
    half = pairs // 2
    words = {
        contraction(code_with(*[FFMA] * (1 + half * many), FADD), left_to_fuse(pairs * many)) for many in (1, rows)
    }
    assert len(words) == 1


def test_all_products_fused_and_none_left_to_fuse_are_told_alike():
    assert contraction(code_with(FFMA, FADD), left_to_fuse(0)) == ""
    assert contraction(code_with(FFMA, FFMA, FFMA), left_to_fuse(2)) == ""
    assert contraction(code_with(FFMA, FADD, FADD), left_to_fuse(2)).startswith("0 of the products")


def test_products_of_another_type_that_the_assembler_may_fuse_are_not_read():
    with pytest.raises(UntoldError, match="products of f16"):
        contraction(code_with(FFMA), left_to_fuse(1, "f16"))
