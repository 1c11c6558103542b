"""Conflicts between banks, by the addresses that PTX computes for each thread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops import bank_conflicts
from triton_ops.kernel_ir import Traffic
from triton_ops.kernel_ir.ptx import read_ptx
from triton_ops.kernel_ir.shared_memory import SharedAccess, steps_of

HEAD = """
.extern .shared .align 16 .b8 global_smem[];
.visible .entry kernel(.param .u64 kernel_param_0, .param .u32 kernel_param_1)
.reqntid {threads}
{{
	.file	1 "/home/user" "kernel.py"
	.file	2 "/lib/triton/language/standard.py"
	.loc	2 293 36                        // standard.py:293:36 @[ kernel.py:34:22 ]
	mov.u32 	%r1, %tid.x;
	mov.b32 	%r2, global_smem;
	ld.param.b32 	%r3, [kernel_param_1];
{body}
	ret;
}}
"""


def accesses(body: str, threads: int = 32) -> tuple[SharedAccess, ...]:
    return Traffic.of(HEAD.format(threads=threads, body=body)).shared


def steps(body: str, threads: int = 32) -> tuple[int | None, int | None]:
    (one,) = accesses(body, threads)
    return one.steps, one.fewest


@given(stride=st.integers(0, 200), width=st.sampled_from([1, 2, 4, 8]), offset=st.integers(0, 40))
def test_lanes_at_a_stride_take_the_steps_of_that_stride(stride, width, offset):
    body = f"""
	mul.lo.s32 	%r4, %r1, {stride * width};
	add.s32 	%r5, %r2, %r4;
	ld.shared.b{8 * width} 	%r6, [%r5+{offset * width}];
"""
    found, _ = steps(body)
    assert found == sum(steps_of([(lane * stride + offset) * width for lane in range(32)], width))
    if width <= 4 and not offset * width % 4:
        assert found == bank_conflicts(stride, item_bytes=width)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("shl.b32 %r4, %r1, 7; \n add.s32 %r5, %r2, %r4; \n st.shared.b32 [%r5], %r3;", (32, 1)),
        ("shl.b32 %r4, %r1, 7; \n and.b32 %r6, %r1, 31; \n shl.b32 %r6, %r6, 2;", None),
        ("bfe.u32 %r4, %r1, 2, 3; \n shl.b32 %r5, %r4, 7; \n st.shared.b32 [%r5], %r3;", (8, 1)),
        ("bfe.s32 %r4, %r1, 4, 1; \n and.b32 %r5, %r4, 128; \n st.shared.b32 [%r5], %r3;", (2, 1)),
        ("mad.lo.s32 %r5, %r1, 132, %r2; \n st.shared.b32 [ %r5 + 0 ], %r3;", (1, 1)),
        ("mad.lo.s32 %r5, %r1, 64, %r3; \n st.shared.v4.b32 [%r5], {%r3, %r3, %r3, %r3};", (16, 4)),
        ("mad.lo.s32 %r5, %r1, 32, %r3; \n ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r7}, [%r5];", (8, 4)),
        ("mad.lo.s32 %r5, %r1, 128, %r3; \n cp.async.ca.shared.global [ %r5 + 0 ], [ %rd1 + 0 ], 0x4, 0x4;", (32, 1)),
        ("shfl.sync.idx.b32 %r4, %r1, 0, 31, -1; \n mad.lo.s32 %r5, %r4, 4, %r3; \n ld.shared.b32 %r6, [%r5];", (1, 1)),
    ],
)  # fmt: skip
def test_each_instruction_is_counted_as_the_hardware_serves_it(body, expected):
    if expected is None:
        assert accesses(body) == ()
    else:
        assert steps(body) == expected


def test_threads_that_a_predicate_leaves_out_ask_for_nothing():
    body = """
	and.b32 	%r4, %r1, 24;
	setp.eq.b32 	%p1, %r4, 0;
	shl.b32 	%r5, %r1, 7;
	@%p1 st.shared.b32 [ %r5 + 0 ], %r3;
	@!%p1 st.shared.b32 [ %r5 + 0 ], %r3;
"""
    first, second = accesses(body)
    assert (first.steps, first.fewest, second.steps) == (8, 1, 24)


def test_a_place_of_tritons_own_is_told_as_the_line_that_calls_it():
    (one,) = accesses("st.shared.b32 [%r2], %r3;")
    assert (one.file, one.line, one.kind, one.lane_bytes, one.in_loop) == ("kernel.py", 34, "store", 4, False)


LOOP = """
	shl.b32 	%r4, %r1, 2;
	mov.b32 	%r5, 0;
$L__BB0_1:
	add.s32 	%r6, %r5, %r4;
	{swizzle}
	ld.shared.b32 	%r7, [%r8];
	add.s32 	%r5, %r5, 4096;
	setp.lt.s32 	%p1, %r5, %r3;
	@%p1 bra 	$L__BB0_1;
"""


def test_what_a_loop_adds_for_all_threads_moves_no_thread_to_another_bank():
    (one,) = accesses(LOOP.format(swizzle="mov.b32 \t%r8, %r6;"), 64)
    assert (one.in_loop, one.steps, one.fewest) == (True, 2, 2)


def test_bits_below_what_a_loop_adds_are_known():
    (one,) = accesses(LOOP.format(swizzle="xor.b32 \t%r8, %r6, 128;"))
    assert (one.steps, one.fewest) == (1, 1)


def test_what_data_decides_is_not_told():
    body = """
	ld.param.b64 	%rd1, [kernel_param_0];
	mad.wide.s32 	%rd2, %r1, 4, %rd1;
	ld.global.b32 	%r4, [%rd2];
	shl.b32 	%r5, %r4, 2;
	ld.shared.b32 	%r6, [%r5];
"""
    assert steps(body) == (None, None)


def test_bytes_of_global_memory_are_counted_for_the_block_and_for_its_loops():
    body = """
	ld.global.v4.b32 { %r4, %r5, %r6, %r7 }, [ %rd1 + 0 ];
	st.shared.b32 	[%r2], %r3;
$L__BB0_1:
	st.global.b16 [ %rd1 + 0 ], %rs1;
	@%p1 bra 	$L__BB0_1;
"""
    found = Traffic.of(HEAD.format(threads=64, body=body))
    assert (found.global_bytes, found.loop_bytes, found.bulk) == (64 * 18, 64 * 2, False)


def test_text_without_shared_memory_has_no_traffic_and_one_without_threads_is_refused():
    assert Traffic.of("no kernel").shared == ()
    with pytest.raises(ValueError, match="how many threads"):
        read_ptx("st.shared.b32 [%r1], %r2;")
