"""The steps of shared memory's banks, in parts of PTX that Triton 3.7.1 has made for sm_90."""

import pytest

from triton_ops.kernel_ir import PtxText

OPERAND_OF_ROWS = """
    .loc 1 40 4 // kernel.py:40:4
    mov.u32 %r3, %tid.x;
    mov.b32 %r124, global_smem;
    shl.b32 %r130, %r3, 7;
    and.b32 %r131, %r130, 1920;
    and.b32 %r6, %r3, 16;
    add.s32 %r147, %r124, %r6;
    add.s32 %r11, %r147, %r131;
    $L__BB0_1: // =>This Inner Loop Header: Depth=1
    .loc 1 44 20 // kernel.py:44:20
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r156, %r157, %r158, %r159}, [%r11];
    @%p2 bra $L__BB0_1;
    .file 1 "/models/kernel.py"
"""
SWIZZLED_OPERAND = """
    mov.u32 %r147, %tid.x;
    mov.b32 %r165, global_smem;
    shl.b32 %r149, %r147, 7;
    and.b32 %r150, %r149, 1920;
    shl.b32 %r151, %r147, 4;
    and.b32 %r2, %r151, 112;
    and.b32 %r152, %r147, 16;
    or.b32 %r153, %r150, %r2;
    xor.b32 %r3, %r153, %r152;
    add.s32 %r4, %r165, %r3;
    $L__BB0_3: // =>This Inner Loop Header: Depth=1
    .loc 1 44 29 // kernel.py:44:29 @[ kernel.py:88:8 ]
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r168, %r169, %r170, %r171}, [%r4];
    @%p10 bra $L__BB0_3;
    .file 1 "/models/kernel.py"
"""
COPY_OF_A_ROW = """
    mov.u32 %r2, %tid.x;
    and.b32 %r256, %r2, 63;
    shl.b32 %r292, %r256, 2;
    mov.b32 %r293, global_smem;
    add.s32 %r294, %r293, %r292;
    add.s32 %r70, %r294, 49152;
    $L__BB0_3: // %__nv_fast_cosf.exit
    .loc 1 44 27 // kernel.py:44:27
    cp.async.ca.shared.global [ %r70 + 0 ], [ %rd422 + 0 ], 0x4, %r1042;
    @%p183 bra $L__BB0_3;
    .file 1 "/models/kernel.py"
"""
MAXIMUM_OF_TWO_WARPS = """
    mov.u32 %r2, %tid.x;
    and.b32 %r22, %r2, 1;
    mov.b32 %r1791, global_smem;
    shl.b32 %r93, %r22, 7;
    add.s32 %r30, %r1791, %r93;
    $L__BB0_3: // =>This Inner Loop Header: Depth=1
    .loc 2 191 40 // standard.py:191:40 @[ kernel.py:44:34 ]
    ld.shared.b32 %r806, [%r30];
    @%p40 bra $L__BB0_3;
    .file 1 "/models/kernel.py"
    .file 2 "/lib/python3.11/site-packages/triton/language/standard.py"
"""
SUM_OF_COLUMNS = """
    mov.u32 %r2, %tid.x;
    and.b32 %r4, %r2, 15;
    shl.b32 %r28, %r4, 8;
    mov.b32 %r29, global_smem;
    add.s32 %r7, %r29, %r28;
    shr.u32 %r30, %r2, 3;
    and.b32 %r31, %r30, 28;
    add.s32 %r100, %r7, %r31;
    $L__BB0_1: // =>This Inner Loop Header: Depth=1
    .loc 2 293 36 // standard.py:293:36 @[ kernel.py:44:26 ]
    @%p18 st.shared.b32 [ %r100 + 0 ], %r101;
    @%p37 bra $L__BB0_1;
    .file 1 "/models/kernel.py"
    .file 2 "/lib/python3.11/site-packages/triton/language/standard.py"
"""
PAIRS = """
    mov.u32 %r1, %tid.x;
    and.b32 %r4, %r1, 32;
    mov.b32 %r419, global_smem;
    and.b32 %r3, %r1, 28;
    and.b32 %r5, %r1, 3;
    shl.b32 %r435, %r3, 5;
    shl.b32 %r436, %r5, 3;
    shl.b32 %r437, %r3, 2;
    or.b32 %r438, %r435, %r436;
    xor.b32 %r439, %r437, %r438;
    xor.b32 %r440, %r439, %r4;
    add.s32 %r441, %r419, %r440;
    add.s32 %r549, %r441, 73728;
    $L__BB0_3: // =>This Inner Loop Header: Depth=1
    .loc 1 44 28 // kernel.py:44:28
    st.shared.v2.b32 [ %r549 + 0 ], { %r550, %r551 };
    @%p19 bra $L__BB0_3;
    .file 1 "/models/kernel.py"
"""
GATHER = """
    mov.u32 %r9, %tid.x;
    mov.b32 %r10, global_smem;
    shl.b32 %r11, %r9, 2;
    add.s32 %r1, %r10, %r11;
    $L__BB0_2: // =>This Inner Loop Header: Depth=1
    .loc 1 43 20 // kernel.py:43:20
    mov.u32 %r27, 0x0;
    ld.global.b32 { %r27 }, [ %rd11 + 0 ];
    .loc 1 44 69 // kernel.py:44:69
    st.shared.b32 [%r1], %r12;
    shl.b32 %r49, %r27, 2;
    add.s32 %r50, %r10, %r49;
    ld.shared.b32 %r51, [%r50];
    @%p2 bra $L__BB0_2;
    .file 1 "/models/kernel.py"
"""


@pytest.mark.parametrize(
    ("ptx", "steps"),
    [
        (COPY_OF_A_ROW, 0),
        (SWIZZLED_OPERAND, 0),
        (MAXIMUM_OF_TWO_WARPS, 1),
        (PAIRS, 2),
        (SUM_OF_COLUMNS, 15),
        (OPERAND_OF_ROWS, 28),
        (GATHER, None),
    ],
)
def test_steps_beyond_the_fewest_are_counted_by_the_addresses_of_a_warp(ptx, steps):
    """One word apart and swizzled: none; two lanes 128 bytes apart: one; two half-warps of two ways: one each; 16 ways;
    four matrices whose eight rows begin in one bank: seven each; where data says the address, it is not known."""
    assert PtxText(ptx).bank_waits() == {("kernel.py", 44): steps}


def test_a_line_is_the_sum_of_its_accesses_and_not_known_if_one_is_not():
    twice = SUM_OF_COLUMNS.replace("%r101;", "%r101;\n    st.shared.b32 [ %r100 + 4 ], %r102;")
    assert PtxText(twice).bank_waits() == {("kernel.py", 44): 30}
    unread = SUM_OF_COLUMNS.replace("%r101;", "%r101;\n    atom.shared.add.u32 %r5, [%r100], 1;")
    assert PtxText(unread).bank_waits() == {("kernel.py", 44): None}


@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("and.b32 %r4, %r2, 15;", "mul.hi.u32 %r4, %r2, 15;"),  # not in the table
        ("and.b32 %r4, %r2, 15;", "@%p1 and.b32 %r4, %r2, 15;"),  # not of all lanes
        ("and.b32 %r4, %r2, 15;", "ld.param.b32 %r4, [kernel_param_0];"),  # what a kernel is given
        ("mov.u32 %r2, %tid.x;", "mov.u32 %r2, %tid.y;"),
        ("and.b32 %r4, %r2, 15;", "mov.b32 %r4, 0;\n    and.b32 %r4, %r2, 15;"),  # by two branches
        ("st.shared.b32 [ %r100 + 0 ]", "st.shared.b32 [ %r99 + 0 ]"),  # nowhere written
        ("st.shared.b32", "st.shared::cluster.b32"),
    ],
)
def test_what_is_not_read_is_not_known(what, other):
    assert PtxText(SUM_OF_COLUMNS.replace(what, other)).bank_waits() == {("kernel.py", 44): None}


@pytest.mark.parametrize(
    ("instructions", "number"),
    [
        ("neg.s32 %r9, %r4; shr.u32 %r28, %r9, 20;", 1),  # 0 and 4,095, which is not -1
        ("shl.b32 %r9, %r4, 31; shr.s32 %r28, %r9, 24;", 1),  # 0 and -128: other words of one bank
        ("bfe.s32 %r9, %r4, 0, 1; and.b32 %r28, %r9, 256;", 1),
        ("setp.ne.b32 %p1, %r4, 0; selp.b32 %r28, 128, 4, %p1;", 0),
        ("mad.lo.s32 %r28, %r4, 8, -16;", 0),
        ("shl.b32 %r9, %r4, 27; shl.b32 %r10, 1, %r9; and.b32 %r28, %r10, 0;", 0),  # shifts by 2^27 and less than 0
    ],
)
def test_whole_numbers_have_32_bits_and_a_sign(instructions, number):
    ptx = SUM_OF_COLUMNS.replace("shl.b32 %r28, %r4, 8;", instructions.replace("; ", ";\n    "))
    assert PtxText(ptx).bank_waits() == {("kernel.py", 44): number}


def test_outside_of_loops_banks_are_not_counted():
    assert PtxText(SUM_OF_COLUMNS.replace("@%p37 bra $L__BB0_1;", "")).bank_waits() == {}
