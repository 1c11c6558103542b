"""What a tune takes of memory within a bound, and what it does without enough."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triton_ops import SettingsError, UntunedError, choose, tune
from triton_ops.device import Allowance, TorchDevice
from triton_ops.evaluation import TuneMemory
from triton_ops.evaluation.expected import kept
from triton_ops.request import TuneOptions
from triton_ops.timing.gpu_timers import flush_bytes, sets_needed

BYTES = st.integers(0, 1 << 40)


def scale(x, *, factor):
    """A function with a config."""
    return x * 2.0 if factor else x + x


@given(BYTES, BYTES, BYTES, BYTES, st.booleans(), BYTES)
def test_no_plan_is_above_its_bound_and_none_is_refused_that_fits(arguments, inputs, results, flush, on_host, most):
    whole = TuneMemory(arguments=arguments, inputs=inputs, results=results, flush=flush, on_host=on_host)
    plan = whole.within(most)
    assert plan is None or plan.total <= most
    assert (plan is None) == (whole.total - (inputs if on_host else 0) > most)
    if plan is not None:  # copies of inputs go elsewhere only where they must
        assert plan.inputs in (inputs, 0)
        assert plan.inputs == inputs or whole.total > most


@given(st.integers(1, 1 << 28), BYTES)
def test_what_empties_l2_is_no_smaller_than_it_and_else_at_most_half_of_what_is_left(l2_bytes, left):
    size = flush_bytes(l2_bytes, left)
    assert l2_bytes <= size <= max(flush_bytes(l2_bytes), l2_bytes)
    assert size in (l2_bytes, flush_bytes(l2_bytes)) or size <= left // 2


@given(st.integers(1, 1 << 36), st.integers(1, 1 << 28), BYTES)
def test_further_arguments_take_at_most_a_quarter_of_what_is_left(touched, l2_bytes, left):
    assert ((sets_needed(touched, l2_bytes, left) or 1) - 1) * touched <= left / 4


def test_free_memory_is_what_an_allowance_leaves_and_copies_of_results_beyond_it_are_refused():
    x = np.ones(1 << 20)
    allowance = Allowance.begin("cpu", 192 << 20)  # arrays of 32 MiB and more are pages of their own
    assert TorchDevice("cpu").allowed_bytes is None
    with allowance.inside():
        before = TorchDevice("cpu").free_bytes
        assert 160 << 20 < before <= 192 << 20
        held = np.ones(5 << 20)
        assert before - TorchDevice("cpu").free_bytes == pytest.approx(held.nbytes, rel=0.1)
        assert np.array_equal(kept(x), x)
        more = np.ones(18 << 20)
        with pytest.raises(MemoryError, match="a copy of results takes 8,388,608 bytes, and the tune may take "):
            kept(x)
        assert allowance.taken_bytes >= held.nbytes + more.nbytes
    assert TorchDevice("cpu").allowed_bytes is None


@pytest.mark.parametrize("array", [np.ones, torch.ones])
def test_without_enough_memory_nothing_runs_and_the_error_says_how_much_it_takes(array):
    ran = []

    def noted(x, *, factor):
        ran.append(factor)
        return scale(x, factor=factor)

    x = array(1 << 18)
    taken = f"{2 * x.nbytes:,} bytes: arguments {x.nbytes:,}, copies of inputs {x.nbytes:,}"
    with pytest.raises(UntunedError, match=f"within 100,000 bytes, and the default.* takes at least {taken}"):
        tune(noted, (x,), space={"factor": [True, False]}, keep=False, memory_bytes="100 kB")
    assert not ran


def test_within_enough_memory_it_is_tuned_and_what_is_known_needs_none(tmp_path):
    x = np.ones(1 << 18)
    arguments = {"space": {"factor": [True, False]}, "effort": "race", "cache_dir": tmp_path}
    result = tune(scale, (x,), **arguments, memory_bytes=1 << 30)
    assert all(trial.ok for trial in result.trials)
    assert tune(scale, (x,), **arguments, memory_bytes=1).from_cache


def test_a_bound_that_is_no_size_is_refused_before_anything_runs(monkeypatch):
    with pytest.raises(SettingsError, match="memory_bytes is 'lots'"):
        TuneOptions(memory_bytes="lots")
    monkeypatch.setenv("TRITON_OPS_MEMORY", "3 MiB")
    assert TuneOptions().memory_bytes == 3 << 20
    assert TuneOptions(memory_bytes="2kB").memory_bytes == 2000


def test_a_call_without_enough_memory_for_its_tune_runs_the_default_and_says_so(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("TRITON_OPS_MEMORY", "1 kB")
    doubled = choose(
        {"plus": lambda x: x + x, "times": lambda x: x * 2.0}, name="doubled", parameters=("x",), on_miss="tune",
        cache_dir=tmp_path,
    )  # fmt: skip
    assert doubled(np.ones(1 << 16))[0] == 2.0
    decision = doubled.decisions[-1]
    assert (decision.found.rung, decision.found.config["implementation"]) == ("default", "plus")
    said = "is not tuned within 1,000 bytes, and the default config is used: that takes at least 1,048,576 bytes"
    assert said in decision.text
    assert said in caplog.text
