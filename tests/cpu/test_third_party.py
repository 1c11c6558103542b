"""What the benchmark of third-party kernels reads of two tuners' prints."""

import pytest

pytest.importorskip("torch")

from benchmarks.third_party import side_by_side, tuned_seconds


def printed(kernel, seconds, configs):
    tried = "".join(f"Autotuning kernel {kernel} with config BLOCK: {block}, num_warps: 4\n" for block in configs)
    return f"{tried}Triton autotuning for function {kernel},\nwith key as (1,),\nfinished after {seconds:.2f}s,\n" \
           f"best config selected: BLOCK: {configs[0]}, num_warps: 4;\n"  # fmt: skip


def test_the_seconds_of_a_kernel_are_those_of_all_its_tunes():
    theirs = tuned_seconds(printed("add", 1.5, [1, 2, 3]) + "triton l2norm: 3.1\n" + printed("add", 0.5, [1, 2, 3]))
    ours = tuned_seconds(printed("add", 0.75, [1, 3, 2]) + printed("only_here", 1, [1]))
    assert theirs == {"add": {"seconds": 2.0, "tunes": 2, "configs": 6}}
    row = {"triton_s": 2.0, "ours_s": 0.75, "tunes": {"triton": 2, "ours": 1}, "configs": 3.0, "faster": True}
    assert side_by_side(theirs, ours) == {"add": row}
