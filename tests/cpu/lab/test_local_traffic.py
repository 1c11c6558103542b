"""What of a kernel's code reaches local memory: how often, how much, and whether in loops."""

from __future__ import annotations

import pytest

from triton_ops_lab.local_traffic import LocalTraffic

SASS = """
.text.kernel:
        /*0010*/                   STL.64 [R1+0x8], R2 ;
.L_x_1:
        /*0020*/                   LDL.LU R4, [R1] ;
        /*0030*/                   LDG.E.128 R8, desc[UR4][R2.64] ;
        /*0040*/                   STL [R1+0x4], R4 ;
        /*0050*/               @P2 BRA `(.L_x_1) ;
        /*0060*/                   LDL.LU.64 R6, [R1+0x8] ;
        /*0070*/               @P0 BRA `(.L_x_2) ;
        /*0080*/                   LDL.128 R12, [R1+0x10] ;
.L_x_2:
        /*0090*/                   EXIT ;
.L_x_3:
        /*00a0*/                   BRA `(.L_x_3);
"""
AMD = """
.LBB0_1:
	scratch_load_dwordx2 v[4:5], off, off offset:8 ; 8-byte Folded Reload
	global_load_dwordx4 v[8:11], v[2:3], off
	s_cbranch_scc1 .LBB0_1
	scratch_store_dword off, v34, off offset:116 ; 4-byte Folded Spill
"""


def test_local_loads_and_stores_are_counted_with_their_widths_and_their_loops():
    assert LocalTraffic.of(SASS) == LocalTraffic(loads=3, stores=2, load_bytes=28, store_bytes=12, in_loops=2)
    assert LocalTraffic.of(AMD) == LocalTraffic(loads=1, stores=1, load_bytes=8, store_bytes=4, in_loops=1)
    assert LocalTraffic.of("") == LocalTraffic(0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("suffix", "width"), [("", 4), (".128", 16), (".64", 8), (".U16", 2), (".S16", 2), (".U8", 1), (".LU.S8", 1)]
)
def test_the_width_of_a_local_access_is_that_of_its_suffix(suffix, width):
    text = f"LDL{suffix} R4, [R1] ;\nSTL{suffix} [R1], R4 ;\n"
    assert LocalTraffic.of(text) == LocalTraffic(1, 1, width, width, 0)
