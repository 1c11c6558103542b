"""Ways to compile a model: checked, timed in processes of their own, and told whatever happens to one of them."""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest
import torch
from benchmarks.robustness.process_faults import workers_of

from tests import compiled_models as models
from tests.compiled_models import Gated, gated
from triton_ops import (
    CompileMode,
    DeviceError,
    KernelTypeError,
    SettingsError,
    Status,
    TargetError,
    Tolerance,
    TuningFailedError,
    release_processes,
    tune_compile,
)
from triton_ops.backend import Arguments
from triton_ops.request import Patience, TuneOptions
from triton_ops_torch import command_model
from triton_ops_torch.call_profile import kernels_of, loops_in
from triton_ops_torch.command_model import SCENARIOS, factory_of, options_of
from triton_ops_torch.comparing_modes import request_of
from triton_ops_torch.compile_mode import EAGER, MODES
from triton_ops_torch.mode_process import CallManner, KeptLines, ModeAssignment, ModeProcess, ModeStation
from triton_ops_torch.model_workload import ModelRunner, Verification, workload_by, workload_of
from triton_ops_torch.shipped_models import llama_block, norm_chain, simple_mlp

AOT = CompileMode("aot", backend="aot_eager")


@pytest.fixture(autouse=True)
def _as_before():
    """Neither the switch of gradients nor compiled code outlives a test, nor does a process."""
    importlib.import_module("torch._dynamo")  # here, since every process that runs tests imports this file
    release_processes()  # those that an earlier test of another file has kept
    yield
    torch.set_grad_enabled(True)
    torch._dynamo.reset()
    assert workers_of(os.getpid()) == []


def contender(mode, **manner):
    steps = []
    assignment = ModeAssignment(way=mode, manner=CallManner(**manner), patience=Patience())
    return ModeStation(assignment, steps.append, KeptLines(sys.stderr)), steps


def loaded_by(made, workload=None):
    trial = made.tried(workload or workload_of(*gated()))
    assert (trial.ok, trial.error) == (True, "")
    return trial.loaded


def test_a_right_mode_is_compiled_checked_called_until_steady_and_timed():
    made, steps = contender(AOT)
    loaded = loaded_by(made)
    assert steps == ["reference", "compilation", "call"]
    assert len(loaded.calls_s) >= 3
    assert loaded.max_error < 1e-6
    assert loaded.label == "Gated 4x16 float32"
    assert (loaded.graphs >= 1, loaded.kernels >= 3, loaded.peak_bytes > 0) == (True, True, True)
    ((samples,), _) = made.visit(2)
    assert len(samples) == 2
    assert min(samples) > 0


def test_frozen_weights_are_a_setting_of_the_process_before_the_model_is_compiled(monkeypatch):
    settings = importlib.import_module("torch._inductor.config")
    frozen = []
    monkeypatch.setattr(torch, "compile", lambda model, **_: frozen.append(settings.freezing) or model)
    with settings.patch(freezing=False):
        loaded_by(contender(CompileMode("default", mode="default"))[0])
        loaded_by(contender(CompileMode("freezing", options={"freezing": True}))[0])
    assert frozen == [False, True]


@pytest.mark.parametrize(
    ("compiler", "status", "said"),
    [
        ("wrong", Status.WRONG, "wrong"),
        ("writes", Status.WRONG, "the inputs after the call"),
        ("refuse", Status.COMPILE, "no registers left"),
    ],
)
def test_a_mode_that_does_not_work_is_told(compiler, status, said):
    made, _ = contender(CompileMode(compiler, backend=f"test_{compiler}"))
    result = made.tried(workload_of(*gated()))
    assert (result.status, result.loaded) == (status, None)
    assert said in result.error


LOOPS = """
cpp_fused_0 = async_compile.cpp_pybinding(['float*'], r'''
extern "C"  void  kernel(float* out_ptr0)
{
    #pragma omp parallel
    {
        {
            #pragma omp for
            for(int64_t x0=0; x0<64; x0+=1)
            {
                for(int64_t x1=0; x1<128; x1+=16)
                {
                    out_ptr0[x0] = x1;
                }
            }
        }
        {
            for(int64_t x0=0; x0<64; x0+=1)
            {
                out_ptr0[x0] = x0;
            }
        }
    }
}
''')
cpp_fused_1 = async_compile.cpp_pybinding(['float*'], r'''
extern "C"  void  kernel(float* out_ptr0)
{
    out_ptr0[0] = 1;
}
''')
"""


def test_loops_of_generated_code_are_counted_once_whatever_lies_in_them():
    assert loops_in(LOOPS) == 3
    assert loops_in(LOOPS.replace("out_ptr0[x0] = x0", "CppMicroGemm(x0)")) == 2, "a template is one"
    assert loops_in("def call(args):\n    for(x)\n") == 0


def test_a_generated_loop_counts_as_often_as_a_call_runs_it(tmp_path, monkeypatch):
    file = tmp_path / "generated.py"
    file.write_text(f"{LOOPS}\ndef call():\n    for _ in range(3):\n        cpp_fused_0()\n    cpp_fused_1()\n")
    module = ModuleType("generated")
    module.__file__ = str(file)
    module.async_compile = SimpleNamespace(cpp_pybinding=lambda *_: ran.append)
    ran = []
    exec(file.read_text().replace("fused_0()", "fused_0(2)").replace("fused_1()", "fused_1(1)"), vars(module))
    never_called = ModuleType("never_called")
    never_called.__file__ = str(file)
    cache = SimpleNamespace(PyCodeCache=SimpleNamespace(modules=[module, module, never_called]))
    monkeypatch.setitem(sys.modules, "torch._inductor.codecache", cache)

    assert kernels_of(module.call, "cpu") == 3 * 2 + 1
    assert ran == [2, 2, 2, 1]
    assert (module.cpp_fused_0, module.cpp_fused_1) == (ran.append, ran.append), "the functions are back"

    never_called.cpp_wrapper_src = ""
    assert kernels_of(module.call, "cpu") is None, "calls in C++ cannot be counted"


def test_a_tolerance_takes_the_place_of_the_rule():
    made, _ = contender(CompileMode("wrong", backend="test_wrong"), tolerance=Tolerance(relative=0.1))
    loaded = loaded_by(made)
    assert 0.009 < loaded.max_error < 0.011


def test_a_training_step_is_checked_with_its_gradients():
    workload = workload_of(*gated())
    made, _ = contender(CompileMode("eager", backend=None), training=True)
    loaded = loaded_by(made, workload)
    assert loaded.max_error < 1e-5
    assert all(each.grad is not None for each in workload.parameters.values())


NORMALISED = [torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4)]


def test_a_training_step_without_gradients_is_refused():
    workload = workload_of(torch.nn.ReLU(), torch.randn(4))
    with pytest.raises(KernelTypeError, match="no parameter of the model has a gradient"):
        ModelRunner(workload, workload.model, training=True)


def test_of_a_gradient_that_is_zero_but_for_rounding_the_size_is_checked():
    """A normalisation takes off the bias before it, whose gradient is a sum that cancels."""
    workload = workload_of(torch.nn.Sequential(*NORMALISED), torch.randn(32, 16))
    step, (call,) = ModelRunner(workload, workload.model, training=True), workload.calls
    checked, results = Verification(workload, step, Tolerance()), step.results(call)
    assert checked.notes == ["gradients that are zero but for rounding, of 0.bias: only their size is checked"]
    own = results[1]["0.bias"].clone()
    for name, factor, wrong in [
        ("0.bias", 0, False),
        ("0.bias", -4, False),
        ("0.bias", 1000, True),
        ("0.weight", -1, True),
    ]:
        before = results[1][name].clone()
        results[1][name].mul_(factor)
        assert bool(checked.fault(0, results)) == wrong
        results[1][name].copy_(before)
    del results[1]["0.bias"]
    assert f"is zero but for rounding, {float(own.square().mean().sqrt()):.2g}; here it is None" in checked.fault(
        0, results
    )


def test_a_random_model_is_timed_and_not_checked():
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.5)).train()
    made, _ = contender(AOT)
    loaded = loaded_by(made, workload_of(model, torch.randn(4, 16)))
    assert loaded.max_error is None
    assert "results are not checked" in loaded.notes[0]


def test_calls_leave_buffers_and_inputs_as_they_were_where_results_are_checked():
    model, (x,) = gated()
    before = x.clone()
    made, _ = contender(CompileMode("eager", backend=None))
    assert made.tried(workload_of(model, (x,))).ok
    assert torch.equal(x, before)


def test_several_calls_and_named_inputs_are_taken():
    model = Gated()
    workload = workload_of(model, [torch.ones(4, 16), (torch.ones(2, 16), 2.0), {"x": torch.ones(1, 16)}])
    assert workload.label == "Gated 4x16 float32 | 2x16 float32 | 1x16 float32"
    assert workload.calls[1] == Arguments((workload.calls[1].positional[0], 2.0))


@pytest.mark.parametrize(
    ("model", "inputs", "error"),
    [
        (3, (1,), KernelTypeError),
        (Gated, (1,), KernelTypeError),
        (Gated(), [], KernelTypeError),
        (Gated(), "x", KernelTypeError),
        (Gated(), (torch.empty(4, 16, device="meta"),), DeviceError),
    ],
)
def test_what_is_no_model_or_no_input_is_refused(model, inputs, error):
    with pytest.raises(error):
        workload_of(model, inputs)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"warmup": 0}, "1 or more"),
        ({"warmup": 1, "modes": ["max-autotune"]}, "1 warm-up call is too few"),
        ({"seconds": 0}, "seconds"),
        ({"budget_s": math.inf}, "budget_s"),
        ({"compile_s": "9"}, "compile_s"),
        ({"modes": []}, "a list of ways"),
        ({"modes": ["default", "default"]}, "asked for twice"),
        ({"modes": [7]}, "no way to compile"),
        ({"seed": "one"}, "seed"),
        ({"logs": ["autotunin"]}, "close are autotuning"),
        ({"logs": "autotuning"}, "a list of names"),
        ({"tolerance": "high"}, "a number or a Tolerance"),
        ({"loss": 3}, "a function of the model's output"),
        ({"modes": ["default", "gemm-atn"]}, "close are gemm-aten"),
        ({"collect": 7}, "the path of a folder"),
        ({"collect": __file__}, "nothing can be collected in .*: File exists"),
    ],
)
def test_options_out_of_range_are_refused_before_any_process(options, said):
    with pytest.raises(SettingsError, match=said):
        tune_compile(gated, **options)
    with pytest.raises(SettingsError, match="not a factory"):
        tune_compile(3)


@pytest.mark.parametrize("variable", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_a_compiler_that_is_switched_off_is_told_before_any_process(monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    with pytest.raises(SettingsError, match=f"{variable} is 1, and torch.compile does nothing then"):
        tune_compile(gated)


@pytest.mark.parametrize("factory", [models.raises, models.no_pair])
def test_a_factory_that_raises_or_returns_no_pair_is_told(factory):
    with pytest.raises(TargetError, match="the factory"):
        workload_by(factory)
    with pytest.raises(DeviceError, match="meta"):
        workload_by(models.two_devices)


@pytest.mark.processes
def test_each_way_is_a_row_whatever_happens_and_an_interrupted_comparison_goes_on(tmp_path):
    def end(line):
        if line.startswith("aot"):
            raise KeyboardInterrupt

    crash = CompileMode("crash", backend="test_crash")
    options = {"modes": [AOT, crash, {"no.such": 1}], "seconds": 0.2}
    with pytest.raises(KeyboardInterrupt):
        tune_compile(gated, cache_dir=tmp_path, follow=end, **options)
    (kept,) = (tmp_path / "compile-modes").glob("*/*.json")
    first_s = json.loads(kept.read_text())["loaded"]["calls_s"][0]

    message = []
    report = tune_compile(gated, cache_dir=tmp_path, follow=message.append, **options)
    rows = {row.name: row for row in report.modes}
    assert {name: str(row.status) for name, row in rows.items()} == {
        "eager": "ok", "aot": "ok", "crash": "crash", "no.such=1": "constraint",
    }  # fmt: skip
    assert rows["aot"].first_call_s == first_s, "what the interrupted run measured without a cache"
    assert "SIGABRT" in rows["crash"].reason
    assert report.recommended in ("eager", "aot")
    assert (report.recommended == "aot") == (not report.chosen.eager)
    assert rows["eager"].break_even_calls == 0
    assert len(message) >= len(rows)
    assert not kept.parent.exists(), "nothing is left when a comparison has ended"


def test_a_way_that_cannot_be_sent_to_a_process_is_a_failed_trial():
    way = CompileMode("locked", backend=threading.Lock())
    process = ModeProcess(ModeAssignment(way=way, manner=CallManner(), patience=Patience()))
    trial = process.load(b"")
    assert (trial.status, process.alive) == (Status.RUNTIME, False)
    assert "cannot be sent to another process" in trial.error


def test_without_names_eager_and_all_modes_of_this_package_are_compared():
    request = request_of(
        gated, None, modes=None, training=False, loss=None, tolerance=None, warmup=3, seconds=1.0, compile_s=None,
        options=TuneOptions(), logs=(),
    )  # fmt: skip
    assert [mode.name for mode in request.modes] == [EAGER, *MODES]


@pytest.mark.processes
def test_a_compiler_that_does_not_end_is_ended_after_its_limit():
    made = request_of(
        gated, None, modes=[AOT], training=False, loss=None, tolerance=None, warmup=3, seconds=1.0,
        compile_s=0.2, options=TuneOptions(), logs=(),
    )  # fmt: skip
    process = ModeProcess(
        ModeAssignment(
            way=CompileMode("hang", backend="test_hang"), manner=made.manner,
            patience=made.limits,
        )
    )  # fmt: skip
    result = process.load(made.packed)
    assert (result.status, process.alive) == (Status.TIMEOUT, False)
    assert "compilation" in result.error


@pytest.mark.processes
def test_a_model_that_does_not_run_is_one_error_with_its_reason(tmp_path):
    with pytest.raises(TuningFailedError, match="does not run as it is") as result:
        tune_compile(models.refuses_its_input, modes=[AOT], cache_dir=tmp_path)
    ((mode, reason),) = result.value.failures
    assert mode == {"mode": "eager"}
    assert reason.startswith("runtime: ")


@pytest.mark.processes
def test_the_command_prints_the_documented_json(cli, monkeypatch):
    monkeypatch.setattr(command_model, "MODES", ())
    ran = cli("torch", "modes", "tests.compiled_models:gated", "--options", "no.such=1", "--json", "--seconds", "1")
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)
    assert list(result) == ["kind", "schema_version", "problem", "device", "modes", "recommended", "culprit"]
    assert [row["status"] for row in result["modes"]] == ["ok", "constraint"]
    assert "no option 'no.such'" in result["modes"][1]["reason"]
    assert result["recommended"] == "eager"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("max_autotune=true,triton.cudagraphs=False", {"max_autotune": True, "triton.cudagraphs": False}),
        ("backends=ATEN,CPP,max_autotune=true", {"backends": "ATEN,CPP", "max_autotune": True}),
        ("max_autotune=true, backends='ATEN, CPP'", {"max_autotune": True, "backends": "ATEN, CPP"}),
        ('backends="ATEN",radius=2', {"backends": "ATEN", "radius": 2}),
        ('{"backends": "ATEN,CPP", "max_autotune": true}', {"backends": "ATEN,CPP", "max_autotune": True}),
    ],
)
def test_a_value_of_an_option_may_be_a_list(text, options):
    assert options_of(text) == options


@pytest.mark.parametrize("text", ["", "ATEN", "ATEN,a=1", "a=1,,b=2", "a=1,a=2", "a=", "=1", "{", "a='x,y',a=1"])
def test_options_that_cannot_be_read_are_refused_with_an_example_of_options(text):
    with pytest.raises(SettingsError, match="NAME=value") as result:
        options_of(text)
    assert options_of(result.value.hint.split("--options ")[1].removesuffix(" or ")) == {
        "max_autotune": True, "max_autotune_gemm_backends": "ATEN,CPP",
    }  # fmt: skip
    assert "JSON" in str(result.value)


@pytest.mark.parametrize(("target", "words"), [
    ("no-such-model", "there is no model"), ("tests.compiled_models:COMPILERS", "cannot be called"),
    ("tests.compiled_models:none", "none"),
    ("tests.compiled_models:wrong", "wrong needs graph, _inputs, and a factory"),
])  # fmt: skip
@pytest.mark.parametrize("command", [("modes", "--mode", "default"), ("modes", "--mode", "eager"), ("advise",)])
def test_a_target_that_is_no_factory_is_bad_input(cli, target, words, command):
    ran = cli("torch", command[0], target, *command[1:])
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert words in ran.err


@pytest.mark.parametrize(("mode", "right"), [
    ("max_autotune", "max-autotune"), ("MAX-AUTOTUNE", "max-autotune"), ("maxautotune", "max-autotune"),
    ("gemm_aten", "gemm-aten"), ("reduce_overhead", "reduce-overhead"), ("defautl", "default"),
])  # fmt: skip
def test_a_mode_with_a_mistake_in_its_name_is_refused_with_the_right_one(cli, mode, right):
    ran = cli("torch", "modes", "tests.compiled_models:gated", "--mode", mode)
    assert (ran.code, ran.out) == (2, "")
    assert f"close are {right}" in ran.err


def test_the_models_that_come_with_the_package_compute_what_they_should():
    model, (x,) = simple_mlp(4, (8, 16, 8), device="cpu")
    with torch.no_grad():
        hidden = torch.relu(x @ model.linear1.weight.T + model.linear1.bias)
        assert torch.allclose(model(x), hidden @ model.linear2.weight.T + model.linear2.bias, atol=1e-6)
        block, (tokens,) = llama_block(2, 5, (32, 4, 2, 64), dtype="float32", device="cpu")
        out = block(tokens)
        changed = tokens.clone()
        changed[:, -1] += 1
        assert out.shape == tokens.shape
        assert torch.allclose(block(changed)[:, :-1], out[:, :-1], atol=1e-5), "attention is causal"
        chain, (x, gate, up) = norm_chain(3, 8, device="cpu")
        normed, hidden = chain(x, gate, up)
        assert torch.allclose(hidden, x + gate * torch.sigmoid(gate) * up, atol=1e-6)
        assert torch.allclose(normed, torch.nn.functional.rms_norm(hidden, (8,), eps=1e-6), atol=1e-5)
    assert all(callable(factory_of(name)) for name in SCENARIOS)
