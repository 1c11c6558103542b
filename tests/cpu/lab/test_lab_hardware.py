"""Waves of blocks on a device."""

from triton_ops_lab.expectation import Waves


def test_the_last_wave_leaves_places_empty():
    tail = Waves(grid=1024, at_once=608)
    assert (tail.full, tail.tail_blocks, round(tail.waves, 3), round(tail.used, 3)) == (1, 416, 1.684, 0.842)
    assert (Waves(264, 132).used, Waves(264, 132).tail_blocks, Waves(1, 132).used) == (1.0, 0, 1 / 132)
