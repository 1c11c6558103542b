"""The benchmark of kernels whose lists are hidden: what is compared."""

import pytest
import torch

from triton_ops.space import Config
from triton_ops.values import Measurement, Status, Trial

hidden_lists = pytest.importorskip("benchmarks.tuning.hidden_lists")

KERNEL = """
import triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 64, "STEP": 32}, num_stages=2),
                  triton.Config({"BLOCK": 64, "STEP": 16}, num_stages=4)], key=["n"])
@triton.jit
def copy(x, y, m, n, BLOCK: tl.constexpr, STEP: tl.constexpr, num_stages: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    for start in tl.range(0, n, STEP, num_stages=num_stages):
        column = start + tl.arange(0, STEP)[None, :]
        mask = (row < m) & (column < n)
        tl.store(y + row * n + column, tl.load(x + row * n + column, mask=mask), mask=mask)
"""


def copied(module):
    x = torch.ones(100, 100)
    module.copy[lambda meta: (-(-100 // meta["BLOCK"]),)](x, torch.empty_like(x), 100, 100)


def test_constants_of_a_list_are_hidden_with_the_kernels_own_num_stages_but_for_those_that_a_case_gives(tmp_path):
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "hidden_copy.py").write_text(KERNEL)
    case = hidden_lists.Case("none", "alone/hidden_copy.py", "copy", copied, given=("STEP",))
    launch = hidden_lists.Launch.of(case, tmp_path)
    assert launch.expected == {"BLOCK", "STEP", "num_stages"}
    assert (launch.fixed["STEP"], launch.fixed.keys() & {"BLOCK", "num_stages"}) == (32, set())


def test_configs_of_one_program_have_one_time():
    raced, twin, other, wrong = (Config(BLOCK=32, num_stages=stages) for stages in (1, 2, 3, 4))
    screened, last = Measurement((0.0058,), mode="graph"), Measurement((0.0054,), mode="graph")
    trials = [
        Trial(twin, Status.OK, screened, same_code_as=raced),
        Trial(raced, Status.OK, screened, final=last),
        Trial(other, Status.OK, screened),
        Trial(wrong, Status.WRONG),
    ]
    assert hidden_lists.times_ms(trials) == {twin: 0.0054, raced: 0.0054, other: 0.0058}
