"""Tunes within a bound of the GPU's memory."""

from __future__ import annotations

import pytest

from triton_ops.device import gpu_missing

pytestmark = pytest.mark.gpu

if gpu_missing() is None:
    import torch
    from benchmarks.tuning.memory_gpu import CASES, MODULES_BYTES, tuned

    from triton_ops import UntunedError, tune


@pytest.mark.parametrize("name", ["add", "in place", "sums"])
@pytest.mark.parametrize("isolate", [False, True])
def test_a_tune_within_less_than_twice_its_tensors_keeps_the_bound(name, isolate):
    case = CASES[name]
    arguments = case.arguments(True)
    bound = int(1.7 * sum(each.nbytes for each in arguments.values() if isinstance(each, torch.Tensor)))
    before = {key: each.clone() for key, each in arguments.items() if isinstance(each, torch.Tensor) and key != "out"}
    _, _, first = tuned(case, case.arguments(False), 2.0, isolate, None)
    winner, why, peaks = tuned(case, arguments, 2.0, isolate, bound)
    assert winner is not None, why
    assert peaks["reserved"] <= bound
    assert peaks["nvml"] <= bound + (first["nvml"] if isolate else MODULES_BYTES)
    assert all(torch.equal(arguments[key], each) for key, each in before.items())
    assert torch.cuda.get_per_process_memory_fraction() == 1.0


def test_without_so_much_memory_nothing_is_tuned_and_the_error_says_how_much_it_takes():
    case = CASES["add"]
    with pytest.raises(UntunedError, match=r"at least 1,\d+,\d+,\d+ bytes: arguments 805,306,368, results"):
        tune(case.kernel, kwargs=case.arguments(True), space=case.configs, keep=False, memory_bytes="1 GB")
