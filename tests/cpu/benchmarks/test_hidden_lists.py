"""The benchmark of kernels whose lists are hidden: what is compared."""

import pytest

from triton_ops.space import Config
from triton_ops.values import Measurement, Status, Trial

hidden_lists = pytest.importorskip("benchmarks.tuning.hidden_lists")


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
