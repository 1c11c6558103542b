"""What this package knows of Inductor: modes, options, logs, the gate for small GPUs, environment variables."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from triton_ops import CompileMode, SettingsError
from triton_ops.device import DeviceSpec, probe
from triton_ops_torch.backends import gate_of, open_gate, option_values
from triton_ops_torch.compile_mode import (
    CUDAGRAPHS,
    MODES,
    OPTION_SETS,
    as_mode,
    autotune_options,
    check_mode,
    checked_logs,
    compiled,
    effective_options,
    log_switches,
    mode_options,
    refusal,
    same_without_gpu,
    variables,
    wrong_variables,
)
from triton_ops_torch.compiler_output import CompilerLog

DATA = Path(__file__).parents[2] / "data"
LOG = DATA / "inductor_log.txt"


def test_the_modes_are_those_of_this_torch():
    import torch

    assert mode_options() == torch._inductor.list_mode_options()
    assert set(MODES) <= set(mode_options())
    assert all(refusal(as_mode(mode)) == "" for mode in ("eager", *MODES))


def test_max_autotune_can_be_written_as_options():
    as_options = as_mode("max-autotune-as-options")
    assert effective_options(as_options) == effective_options(as_mode("max-autotune"))
    assert as_options.arguments() == {"backend": "inductor", "options": OPTION_SETS["max-autotune-as-options"]}


@pytest.mark.parametrize("name", OPTION_SETS)
def test_every_option_set_names_options_that_this_torch_has(name):
    assert refusal(as_mode(name)) == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("max_autotune", "close are max-autotune,"),
        ("max-autotun", "close are max-autotune"),
        ({"epilogue_fusio": True}, "close are epilogue_fusion"),
        ({"qqqqq": 1, "epilogue-fusion": False}, "no option 'qqqqq'; `triton-ops torch options` lists"),
        ("qqqqq", "known are default, "),
        ("qqqqq", ", no-fusion, "),
        ("gemm-atn", "no mode or option set 'gemm-atn'; close are gemm-aten"),
        ("no-epilog-fusion", "close are no-epilogue-fusion"),
        ("gemm_aten", "close are gemm-aten,"),
        ("GEMM-ATEN", "close are gemm-aten,"),
        ({"max-autotune": "yes"}, "max_autotune is 'yes'; torch takes bool for it"),
        (
            {"triton.cudagraphs": 1, "cpp.threads": "3"},
            "cudagraphs is 1; torch takes bool for it; cpp.threads is",
        ),
    ],
)
def test_what_this_torch_does_not_know_is_said_with_what_is_close(given, said):
    assert said in refusal(as_mode(given))


def test_a_mode_that_no_torch_has_is_a_mistake(monkeypatch):
    with pytest.raises(SettingsError, match="close are no-epilogue-fusion"):
        check_mode(as_mode("no-epilog-fusion"))
    for mistaken, right in (("max_autotune", "max-autotune"), ("gemm_aten", "gemm-aten")):
        with pytest.raises(SettingsError, match=f"close are {right}"):
            check_mode(as_mode(mistaken))
    with pytest.raises(SettingsError, match="no mode"):
        check_mode(CompileMode("mine", mode="qqqqq"))
    monkeypatch.setattr(torch._inductor, "list_mode_options", lambda: {"default": {}, "newest": {}})
    for fine in ("newest", "gemm-aten", "max-autotune", "lite", {"no.such": 1}):
        check_mode(as_mode(fine))
    assert "no mode or option set 'lite'" in refusal(as_mode("lite")), "it ends as a row"
    check_mode(CompileMode("aot", backend="aot_eager", mode="own"))


@pytest.mark.processes
def test_the_present_value_of_every_option_is_taken():
    assert [refused for name, value in option_values().items() if (refused := refusal(as_mode({name: value})))] == []


def test_an_option_that_is_given_twice_is_refused():
    with pytest.raises(SettingsError, match="an option twice"):
        CompileMode("both", options={"epilogue-fusion": False, "epilogue_fusion": True})


def test_a_mode_and_options_together_are_refused():
    with pytest.raises(SettingsError, match="only one of them"):
        CompileMode("both", mode="default", options={"max_autotune": True})
    with pytest.raises(SettingsError, match="only one of them"):
        as_mode({"mode": "default", "max_autotune": True})
    assert as_mode({"mode": "default"}) == as_mode("default")
    for strange in (7, "", None, []):
        with pytest.raises(SettingsError, match="no way to compile"):
            as_mode(strange)


def test_graphs_make_no_difference_without_a_gpu():
    modes = [as_mode(name) for name in ("eager", *MODES)]
    by_name = {mode.name: mode for mode in modes}
    assert same_without_gpu(modes, by_name["reduce-overhead"]) is by_name["default"]
    assert same_without_gpu(modes, by_name["max-autotune"]) is by_name["max-autotune-no-cudagraphs"]
    assert same_without_gpu(modes, by_name["default"]) is None
    assert [effective_options(mode).get(CUDAGRAPHS, False) for mode in modes] == [False, False, True, False, True]


def test_a_log_is_read_between_the_lines_of_other_programs():
    log = CompilerLog.read(LOG.read_text(encoding="utf-8").splitlines())
    table, cut_off = log.tables
    assert (table.op, table.sizes) == ("addmm", "256x1024, 256x1024, 1024x1024")
    assert [(choice.name, choice.ms, choice.source) for choice in table.choices] == [
        ("triton_mm_7", 0.0102, "triton"),
        ("bias_addmm", 0.0119, "aten"),
        ("triton_mm_9", None, "triton"),
    ]
    assert (table.benchmark_s, table.precompile_s, table.count) == (1.2345, 2.5, 3)
    assert table.stats["best_kernel"] == "triton_mm_7"
    assert (cut_off.op, cut_off.benchmark_s, cut_off.stats) == ("mm", None, {})
    assert log.recordings == 2
    assert log.rerecorded == ("static input data pointer changed.",)
    assert log.skipped == ("cpu device (primals_2)",)
    assert log.recompiled == ("forward in model.py:7",)
    assert log.hints == ("Reduction over non-contiguous dims",)


def test_the_log_of_a_tuned_model_on_a_cpu_is_read():
    """Written by torch 2.13 for two layers with frozen weights; torch 2.11 writes the same lines."""
    log = CompilerLog.read((DATA / "inductor_log_cpu.txt").read_text(encoding="utf-8").splitlines())
    assert [(table.op, table.sizes, table.count) for table in log.tables] == [
        ("packed_linear", "32x256, 1459233x1, 256x256", 2), ("packed_linear", "32x256, 1459233x1, 64x256", 2),
    ]  # fmt: skip
    for table in log.tables:
        assert {choice.source: choice.name.rstrip("_01") for choice in table.choices} == {
            "cpp": "cpp_CppMicroGemmFP32Vec", "aten": "_mkl_linear",
        }  # fmt: skip
        assert table.stats["best_kernel"] == min(table.choices, key=lambda choice: choice.ms).name


@pytest.mark.parametrize(("way", "frozen"), [("gemm-cpp", True), ("max-autotune", False), ({"freezing": False}, False)])
def test_frozen_weights_are_a_setting_of_the_process(way, frozen, monkeypatch):
    from torch._inductor import config

    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    with config.patch(freezing=False):
        compiled(torch.nn.Identity(), as_mode(way))
        assert config.freezing is frozen
    assert any("TORCHINDUCTOR_FREEZING" in option.variables for option in autotune_options(("freezing",)))


def test_every_prefix_of_a_log_can_be_read():
    text = LOG.read_text(encoding="utf-8")
    for end in range(0, len(text), 37):
        assert len(CompilerLog.read(text[:end].splitlines()).tables) <= 2


@pytest.mark.parametrize(
    ("device", "units", "open_"),
    [("V100", 80, True), ("3090", 82, True), ("3080", 68, True), ("3060", 28, False), ("H200", 132, True)],
)
def test_small_gpus_of_nvidia_are_gated(device, units, open_):
    gate = gate_of(DeviceSpec("cuda", device, "sm_80", units))
    assert gate.open is open_, device
    assert str(units) in gate.reason
    assert "68" in gate.reason


def test_the_gate_of_other_vendors():
    gates = [gate_of(DeviceSpec("hip", "a GPU", arch, 1)) for arch in ("gfx803", "gfx942", "gfx1030", "gfx1100")]
    assert [gate.open for gate in gates] == [False, True, False, True]
    assert gate_of(probe("cpu")).open


def test_the_gate_can_be_opened_for_a_process(monkeypatch):
    from torch._inductor import utils
    from torch.compiler import config

    asked = as_mode("max-autotune-ungated")
    assert asked.ungated
    assert effective_options(asked) == effective_options(as_mode("max-autotune"))
    assert same_without_gpu([as_mode("max-autotune"), asked], asked).name == "max-autotune"
    monkeypatch.setattr(utils, "is_big_gpu", lambda _=0: False)
    layout = SimpleNamespace(dtype=torch.float16, device=torch.device("cuda", 0))
    assert not utils._use_template_for_gpu(layout, [torch.float16])
    with config.patch(cache_key_tag="mine"):
        open_gate()
        open_gate()
        assert config.cache_key_tag == "ungated;mine"
    assert utils._use_template_for_gpu(layout, [torch.float16])


def test_options_are_listed_with_their_variables():
    result = {option.name: option for option in autotune_options()}
    assert result["max_autotune"].variables == ("TORCHINDUCTOR_MAX_AUTOTUNE",)
    assert result["max_autotune_gemm_backends"].variables == ("TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS",)
    assert "TORCHINDUCTOR_MAX_AUTOTUNE_CONV_BACKENDS" in result["max_autotune_conv_backends"].variables
    assert "TORCHINDUCTOR_PROLOGUE_FUSION" in result["prologue_fusion"].variables, "read in a function of the module"
    assert CUDAGRAPHS in result
    assert set(result) <= set(option_values())
    assert "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING" in variables()


@pytest.mark.parametrize(
    "name",
    [
        "coordinate_descent_search_radius", "precompilation_timeout_seconds", "triton.multi_kernel",
        "triton.persistent_reductions", "triton.enable_persistent_tma_matmul", "triton.num_decompose_k_splits",
        "cutlass.cutlass_max_profiling_configs", "nvgemm_max_profiling_configs", "rocm.n_max_profiling_configs",
        "rocm.kBatch_sweep", "cpp.gemm_thread_factors", "cpp.enable_tiling_heuristics", "freezing", "force_shape_pad",
    ],
)  # fmt: skip
def test_options_that_matter_for_tuning_are_among_those_shown(name):
    if name not in option_values():
        pytest.skip(f"this torch has no {name}")
    assert name in {option.name for option in autotune_options()}


def test_options_of_debugging_packaging_caches_and_builds_are_not_shown():
    shown = {option.name for option in autotune_options()}
    assert shown.isdisjoint({"debug", "trace.enabled", "cpp.cxx", "fx_graph_cache", "aot_inductor.output_path"})
    assert len(shown) < len(option_values()) / 2
    assert "debug" in {option.name for option in autotune_options(("debug",))}, "a word finds every option"


def test_a_changed_option_shows_its_present_value():
    from torch._inductor import config

    with config.patch({"epilogue_fusion": False}):
        (result,) = [each for each in autotune_options() if each.name == "epilogue_fusion"]
    assert (result.default, result.value, result.changed) == (True, False, True)


def test_the_default_is_that_without_variables(monkeypatch):
    """What torch holds as the default of an option holds the environment of the import already."""
    from torch._inductor import config

    for name, held in (("max_autotune_gemm_backends", "X"), ("prologue_fusion", 0), ("max_autotune", "Y")):
        monkeypatch.setattr(config._config[name], "default", held)
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS", "X")
    monkeypatch.setenv("TORCHINDUCTOR_PROLOGUE_FUSION", "0")
    result = {option.name: option for option in autotune_options()}
    assert result["max_autotune_gemm_backends"].default == "ATEN,TRITON,CPP"
    assert result["max_autotune_gemm_backends"].set_by == ("TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS",)
    assert result["prologue_fusion"].default is True, "a function of the module reads the variable"
    assert (result["max_autotune"].default, result["max_autotune"].set_by) == ("Y", ()), "no variable is set"


def test_log_switches_are_added_to_those_that_are_asked_for():
    assert log_switches({}) == {"TORCH_LOGS": "cudagraphs,perf_hints,recompiles"}
    assert log_switches({"TORCH_LOGS": "+inductor, -perf_hints"}, ["perf_hints", "autotuning"]) == {
        "TORCH_LOGS": "+inductor,-perf_hints,autotuning"
    }
    checked_logs(["inductor", "+perf_hints", "autotuning", "cudagraphs"])
    with pytest.raises(SettingsError, match="perf_hints"):
        checked_logs(["perf_hint"])


def test_wrong_names_of_variables_are_told(monkeypatch):
    def told(*names):
        monkeypatch.setattr("triton_ops.settings.environment", lambda: frozenset((name, "1") for name in names))
        return wrong_variables()[0]

    assert told("TORCH_LOG", "PATH") == {"TORCH_LOG": "TORCH_LOGS"}
    assert told("TORCHINDUCTOR_MAX_AUTOTUN", "TORCHINDUCTOR_MAX_AUTOTUNE") == {
        "TORCHINDUCTOR_MAX_AUTOTUN": "TORCHINDUCTOR_MAX_AUTOTUNE"
    }
    monkeypatch.setattr("triton_ops_torch.compile_mode.variables", lambda: {"TORCHINDUCTOR_CK_DIR"})
    names = ["TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_CACHE_DI"]  # the first is read elsewhere than in the settings
    assert told(*names) == {names[1]: "TORCHINDUCTOR_CK_DIR"}
