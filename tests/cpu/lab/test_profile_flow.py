"""The flow from a time over torch's profiler to counters, as far as it goes without a GPU."""

import json
import shlex
import sys

import pytest

from triton_ops.benchmark import Times
from triton_ops.cli.app import main
from triton_ops.terminal import Facts
from triton_ops_lab.command_profile import CallPart as Part
from triton_ops_lab.command_profile import add_calls, idle_share

pytestmark = pytest.mark.triton
WORK = """
import torch

from triton_ops import Operation, TensorSpec


def product():
    whole = torch.ones(64, 64)
    return torch.relu(whole @ whole)


def needs(x):
    return x


def clamped(x, bound):
    return torch.clamp(x, max=bound)


operation = Operation(
    "clamped", clamped, {"bound": [1.0, 2.0]}, lambda n=64: {"x": TensorSpec((n,), "float32")}, device="cpu"
)
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    (tmp_path / "profiled_work.py").write_text(WORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "profiled_work.py"
    sys.modules.pop("profiled_work", None)


def test_a_dry_run_prints_three_steps_and_imports_nothing(capsys):
    words = ["explain", "profile", "flow", "nowhere.py:missing", "--shape", "8x8", "--dry-run"]
    assert main([*words, "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [step["name"] for step in steps] == ["time", "profiler", "counters"]
    command = steps[2]["command"]
    assert command[0] == "ncu"
    assert command[command.index("--profile-from-start") + 1] == "off"
    assert command[-5:] == ["profile", "call", "nowhere.py:missing", "--shape", "8x8"]
    assert main(words) == 0
    assert shlex.join(command) in capsys.readouterr().out


def test_on_a_cpu_the_time_and_the_operators_are_reported_and_why_there_are_no_counters(work, capsys):
    assert main(["explain", "profile", "flow", f"{work}:product", "--device", "cpu", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert 0 < result["time"]["p20_ms"] <= result["time"]["median_ms"] <= result["time"]["p80_ms"]
    assert isinstance(result["time"]["notes"], list)
    assert {"aten::mm", "aten::relu"} <= {part["name"] for part in result["parts"]}
    assert sum(part["share"] for part in result["parts"]) == pytest.approx(1)
    assert (result["idle"], result["counters"]) == (None, None)
    assert "ran on a CPU" in result["missing"]
    assert main(["explain", "profile", "call", f"{work}:product", "--device", "cpu", "--calls", "2"]) == 0


def test_a_call_of_an_operation_is_timed_with_the_config_that_it_runs(work, capsys):
    assert main(["explain", "profile", "flow", f"{work}:operation", "--shape", "128", "--device", "cpu", "--json"]) == 0
    profile = json.loads(capsys.readouterr().out)
    assert profile["time"]["median_ms"] > 0
    assert "aten::clamp" in {part["name"] for part in profile["parts"]}


def test_notes_of_the_time_have_lines_of_their_own():
    times = Times(
        quantiles=(0.5, 0.2, 0.8), quantiles_ms=(1.0, 1.0, 1.0), samples_ms=(1.0,), launches=1, warmup_launches=0,
        launches_per_sample=1, mode="host", notes=("other programs used the CPUs",),
    )  # fmt: skip
    first, note, *_ = add_calls(Facts("flow"), str(times), (), None).printed(None)
    assert first == "time      1 ms (p20 1, p80 1 ms), 1 launches, host"
    assert note == "          Note: other programs used the CPUs"


@pytest.mark.parametrize(
    ("words", "said"), [(["needs"], "needs x"), (["product", "--shape", "8"], "no shape and no dtype")]
)
def test_a_function_that_cannot_be_called_so_is_refused(work, capsys, words, said):
    assert main(["explain", "profile", "flow", f"{work}:{words[0]}", "--device", "cpu", *words[1:]]) == 2
    assert said in capsys.readouterr().err


def test_a_gpu_waits_for_what_no_kernel_takes_of_a_call():
    parts = (Part("a", 0.75, 3, 0.2), Part("b", 0.25, 1, 0.2))
    assert idle_share(parts, 1.0) == pytest.approx(0.2)
    assert idle_share(parts, 0.5) == 0.0
