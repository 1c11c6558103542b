"""Verdicts on compile modes from numbers alone: one-off and steady seconds, break-even, and the culprit."""

from __future__ import annotations

import importlib
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triton_ops import CompileMode, SettingsError, Status
from triton_ops_torch import CompileReport
from triton_ops_torch.backends import option_values
from triton_ops_torch.command_model import report_facts
from triton_ops_torch.compile_mode import CUDAGRAPHS, as_mode, effective_options
from triton_ops_torch.mode_process import is_steady
from triton_ops_torch.mode_report import Culprit, ModeResult, break_even, first_calls, variations, verdicts

TUNED = {"max_autotune": True, "coordinate_descent_tuning": True}
SECONDS = st.floats(1e-6, 1e3)


def row(name, ms, options, **more):
    times = {"steady_ms": ms, "p20_ms": 0.99 * ms, "p80_ms": 1.01 * ms, "relative": ms / 0.15}
    return ModeResult(name=name, status=Status.OK, options=options, **{**times, **more})


def documents_rows(slow_ms=3.251, **more):
    """The times of the well-known trap: a tuned mode 28.8 times as slow as the default one."""
    return [
        row("eager", 0.15, {}),
        row("default", 0.113, {}),
        row("max-autotune-no-cudagraphs", 0.1, TUNED),
        row("max-autotune", slow_ms, {**TUNED, CUDAGRAPHS: True}, **more),
    ]


def test_one_off_seconds_are_told_from_steady_ones():
    first = first_calls((20.0, 0.157, 0.0001, 0.0001))
    assert first["first_call_s"] == 20.0
    assert first["one_off_s"] == pytest.approx(20.1568)
    assert first["naive_ms"] == pytest.approx((157 + 49 * 0.1) / 50), "the mean of 50 calls after one warm-up call"


@given(st.lists(SECONDS, min_size=1, max_size=20))
def test_one_off_seconds_are_never_negative(calls_s):
    assert 0 <= first_calls(calls_s)["one_off_s"] <= sum(calls_s) + 1e-6


def test_calls_are_made_until_they_are_steady():
    assert not is_steady([20.0, 0.1], busy=False), "three calls at least: the second may record"
    assert not is_steady([20.0, 0.1, 0.1], busy=True)
    assert not is_steady([20.0, 0.157, 0.0001], busy=False)
    assert is_steady([20.0, 0.157, 0.0001, 0.0001], busy=False)
    assert is_steady([float(1 + n % 2) for n in range(20)], busy=False), "some calls never are"
    assert not is_steady([1.0, 1.0, 1.0], busy=False, least=4)


def test_break_even_counts_calls_and_is_infinite_for_a_slower_mode():
    assert break_even(10.0, 0.2, 0.1) == 100_000
    assert break_even(10.0, 0.1, 0.2) == math.inf
    assert break_even(10.0, 0.1, 0.1) == math.inf


def test_the_mode_without_graphs_is_named_where_it_was_not_timed():
    rows = documents_rows()
    without = [each for each in rows if each.name != "max-autotune-no-cudagraphs"]
    (message,) = verdicts(without)
    assert message.endswith("; max-autotune-no-cudagraphs is the same without CUDA graphs, and was not timed")
    assert verdicts(rows)[0].endswith("; max-autotune-no-cudagraphs is faster")
    slow = [row(each.name, 3.3, each.options) if each.name == "max-autotune-no-cudagraphs" else each for each in rows]
    assert [each.endswith("not of the model") for each in verdicts(slow)] == [True, True], "it is no faster"


def test_cudagraphs_are_named_where_the_mode_without_them_is_fast():
    result = Culprit.among(documents_rows())
    assert (result.option, result.value, result.slower) == (CUDAGRAPHS, True, "max-autotune")
    assert result.faster == "max-autotune-no-cudagraphs"
    assert result.factor == pytest.approx(32.51)


def test_a_slow_tuned_mode_is_flagged_with_its_ratio_and_what_to_use_instead():
    (message,) = verdicts(documents_rows())
    assert "28.77 times as slow as default" in message
    assert "max-autotune-no-cudagraphs is faster" in message
    assert verdicts(documents_rows(0.1)) == []


def test_a_mean_that_holds_the_recording_is_told_from_steady_times():
    calls_s = (20.0, 0.157, 0.0001, 0.0001)
    naive = first_calls(calls_s)["naive_ms"]
    (message,) = verdicts(documents_rows(0.113, calls_s=calls_s, naive_ms=naive, recordings=1))
    assert "at call 2" in message
    assert "would show 3.238 ms" in message
    assert "0.113 ms" in message


def test_noise_has_no_culprit():
    assert Culprit.among(documents_rows(0.101)) is None
    assert Culprit.among(documents_rows(0.2, p20_ms=0.05, p80_ms=0.9)) is None
    assert Culprit.among([row("eager", 0.1, {})]) is None


def test_a_fusion_that_costs_time_is_a_culprit_too():
    result = Culprit.among([row("default", 0.3, {}), row("no fusion", 0.1, {"max_fusion_size": 1})])
    assert (result.option, result.slower, result.faster) == ("max_fusion_size", "default", "no fusion")


def test_recordings_that_go_on_are_told_with_their_reason():
    (message,) = verdicts(documents_rows(0.1, rerecorded=("an input moved", "an input moved")))
    assert "again 2 times: an input moved" in message


def test_variations_differ_in_one_option_each():
    slow = as_mode("max-autotune")
    options = effective_options(slow)
    result = variations(slow, options, option_values())
    assert result[0].name == "max-autotune without CUDA graphs"
    for mode in result:
        names = {*options, *mode.options}
        assert sum(options.get(name) != mode.options.get(name) for name in names) == 1


def test_the_json_has_the_documented_members_and_no_others():
    report = CompileReport(problem="mlp", device="cpu", modes=tuple(documents_rows()), recommended="default")
    plain = report.as_json()
    assert list(plain) == ["problem", "device", "modes", "recommended", "culprit"]
    assert list(plain["modes"][0]) == [
        "name", "status", "reason", "steady_ms", "mean_ms", "p20_ms", "p80_ms", "first_call_s", "compile_s",
        "recordings", "recompiles", "peak_bytes", "kernels", "max_error", "break_even_calls",
    ]  # fmt: skip
    detailed = report.as_json(details=True)
    assert detailed["details"]["modes"]["max-autotune"]["options"][CUDAGRAPHS] is True
    assert report.apply(len) is len, "eager runs the model as it is"
    assert CompileMode("eager", backend=None) == report.chosen


def test_times_are_printed_with_three_decimals():
    modes = [row(each.name, each.steady_ms, each.options, mean_ms=1.02 * each.steady_ms) for each in documents_rows()]
    report = CompileReport(problem="mlp", device="a GPU", modes=tuple(modes), recommended="eager")
    head, *lines = report_facts(report, report.as_json).printed(None)[1:6]
    assert head.split()[:6] == ["mode", "steady", "ms", "mean", "p20", "p80"]
    assert [line.split()[:5] for line in lines[1:]] == [
        ["default", "0.113", "0.115", "0.112", "0.114"],
        ["max-autotune-no-cudagraphs", "0.100", "0.102", "0.099", "0.101"],
        ["max-autotune", "3.251", "3.316", "3.218", "3.284"],
    ]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of torch's own modules
def test_a_recommendation_with_frozen_weights_is_applied_with_the_setting_that_it_needs():
    settings = importlib.import_module("torch._inductor.config")
    result = {"problem": "mlp", "device": "cpu", "modes": (), "recommended": "freezing"}
    with settings.patch(freezing=False):
        CompileReport(**result, chosen=as_mode("default")).apply(torch.nn.ReLU())
        assert settings.freezing is False
        CompileReport(**result, chosen=as_mode("freezing")).apply(torch.nn.ReLU())
        assert settings.freezing is True


def test_a_name_that_no_row_has_is_told_with_those_that_there_are():
    report = CompileReport(problem="", device="", modes=tuple(documents_rows()[:2]), recommended="eager")
    assert report.mode("default").steady_ms == 0.113
    with pytest.raises(SettingsError, match=r"no mode 'x'.*name one of eager, default"):
        report.mode("x")
