"""The benchmark of kernels whose lists are hidden: what is compared."""

import importlib
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
hidden_lists = pytest.importorskip("benchmarks.tuning.hidden_lists")

from tests.planned_gpu import Planned  # noqa: E402
from triton_ops.device import DeviceSpec  # noqa: E402
from triton_ops.dispatch import comparing  # noqa: E402
from triton_ops.evaluation import Stations  # noqa: E402
from triton_ops.request import request  # noqa: E402
from triton_ops.space import Config  # noqa: E402
from triton_ops.tuner import Survey  # noqa: E402
from triton_ops.values import Measurement, Status, Trial  # noqa: E402

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


def test_constants_of_a_list_are_hidden_with_the_kernels_own_num_stages_but_for_those_that_a_case_gives(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])  # other tests do not find stand-ins of packages
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


NORM = """
import triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 256}, num_warps=1), triton.Config({"BLOCK": 512}, num_warps=1)], key=["n"])
@triton.jit
def norm(x, y, n, BLOCK: tl.constexpr = 32):
    row = tl.program_id(0).to(tl.int64) * n
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        total += tl.load(x + row + column, mask=column < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / n
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + row + column, mask=column < n, other=0.0).to(tl.float32)
        tl.store(y + row + column, (value - mean).to(tl.bfloat16), mask=column < n)
"""


def normed(module):
    x = torch.empty(4096, 1024, dtype=torch.bfloat16, device="meta")
    module.norm[(4096,)](x, torch.empty_like(x), 1024)


class Blocks(Planned):
    """Tries configs at once; a block of 1,024 is the fastest."""

    def attempt(self, config, best):
        ms = abs(config["BLOCK"] - 1024) + 100.0 + config["num_warps"] + config.get("num_stages", 0)
        return Trial(config, Status.OK, Measurement((ms,), "planned"))


@pytest.fixture
def planned(monkeypatch, tmp_path):
    """The case `norm`, on a GPU that is not here."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TRITON_OPS_EFFORT", "race")  # six trials
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(request, "probe", lambda _: DeviceSpec.named("NVIDIA H200"))
    monkeypatch.setattr(request, "gpu_missing", lambda: "")
    monkeypatch.setattr(request, "device_of", lambda *_: "cuda:0")
    monkeypatch.setattr("triton_ops.dispatch.deciding.device_of", lambda *_: "cuda:0")
    monkeypatch.setattr(comparing.evaluation, "start_one_early", lambda *_, **__: False)
    monkeypatch.setattr(Stations, "early_process", lambda _: nullcontext())
    monkeypatch.setattr(Stations, "begin", lambda *_, **__: Blocks)
    monkeypatch.setattr(hidden_lists, "ran", lambda *_: {})
    monkeypatch.setattr(hidden_lists, "paired", lambda _, *configs: {"paired": [dict(one) for one in configs]})
    monkeypatch.setattr(Survey.__init__, "__defaults__", (400, 100, 120.0))  # all is read, however slow the machine
    monkeypatch.setattr(Survey, "of_a_launch", Survey)
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "hidden_norm.py").write_text(NORM)
    monkeypatch.setitem(hidden_lists.CASES, "norm", hidden_lists.Case("none", "alone/hidden_norm.py", "norm", normed))
    return tmp_path


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_a_row_has_the_models_first_pick_and_the_winner_of_a_race_beside_the_list(planned):
    row = json.loads(json.dumps(hidden_lists.row_of("norm", planned)))
    assert "expects " in row["pick_said"]
    assert f"({Config(row['pick'])})" in row["pick_said"]
    assert (row["silent"], row["sure"]) == (False, True)
    assert row["race_winner"]["BLOCK"] == row["pick"]["BLOCK"] == row["best"]["BLOCK"] == 1024
    assert row["race_share"] == 1.0
    assert row["pick_share"] == row["best_ms"] / row["pick_ms"]
    assert row["pick_over_default"] == row["default_ms"] / row["pick_ms"] > 5
    assert (row["listed"], row["list_raced"], row["list_ms"] > row["ms"]) == (2, 2, True)
    assert row["list_best"]["BLOCK"] == 512
    assert row["paired"] == [row["winner"], row["list_best"]]
    figures = hidden_lists.summary({"norm": row, "other": {"error": "none"}})
    assert (figures["picks"], figures["worst_pick"], figures["sure"], figures["silent"]) == (1, "norm", 1, 0)
    assert figures["mean_pick_share"] == figures["median_pick_share"] == figures["worst_pick_share"]
    assert figures["smallest_pick_over_default_where_sure"] == row["pick_over_default"]
    assert (figures["races"], figures["mean_race_share"], figures["worst_race"]) == (1, 1.0, "norm")
    assert figures["median_race_s"] == figures["longest_race_s"] == row["race_s"]


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_the_pick_is_what_the_effort_expected_compares_with_the_default(planned):
    launch = hidden_lists.Launch.of(hidden_lists.CASES["norm"], planned)
    autotuner = hidden_lists.triton_ops.autotune(key=[], cache_dir=planned / "records")(launch.function)
    call = autotuner.launches.call_of(launch.grid, (), launch.fixed)
    row = hidden_lists.first_pick(call)
    options = hidden_lists.TuneOptions(effort="expected", keep=False, force=True)
    result = call.tuned(options, listener=hidden_lists.Silent())
    assert row["sure"]
    first, *_, last = (trial.config for trial in result.trials)  # between them one that proves that tiles may differ
    assert (first, last) == (call.space.default_config, Config(row["pick"]))
    assert result.ordered_by == (f"a model of the work, which {row['pick_said']}",)


@pytest.mark.triton
def test_a_silent_model_picks_the_default_and_a_race_that_fails_has_no_share(planned, monkeypatch):
    monkeypatch.setattr(hidden_lists.RequestedTune, "pool", lambda _, **__: nullcontext())
    launch = hidden_lists.Launch.of(hidden_lists.CASES["norm"], planned)
    autotuner = hidden_lists.triton_ops.autotune(key=[])(launch.function)
    call = autotuner.launches.call_of(launch.grid, (), launch.fixed)
    row = hidden_lists.first_pick(call)
    assert (row["pick"], row["silent"], row["sure"]) == (dict(call.space.default_config), True, False)
    assert "it is not compiled ahead" in row["pick_said"]
    monkeypatch.setattr(Blocks, "attempt", lambda _, config, __: Trial(config, Status.WRONG, error="y differs"))
    row = hidden_lists.race(call, str(planned / "race"))
    assert (row["race_winner"], row["race_share"]) == (None, 0.0)
    assert "y differs" in row["race_failed"]


def test_a_config_that_failed_has_a_share_of_zero_and_one_that_was_not_tried_has_none():
    fast, slow, wrong, missing = (Config(BLOCK=block) for block in (1, 2, 3, 4))
    trials = [
        Trial(fast, Status.OK, Measurement((1.0,), "graph")),
        Trial(slow, Status.OK, Measurement((4.0,), "graph")),
        Trial(wrong, Status.WRONG, error="y differs"),
    ]
    row = hidden_lists.shares_of({"pick": fast, "race": missing, "default": slow}, trials)
    assert (row["pick_share"], row["default_share"], row["pick_over_default"]) == (1.0, 0.25, 4.0)
    assert (row["race_share"], row["race_failed"]) == (None, "it was not tried")
    row = hidden_lists.shares_of({"pick": wrong, "default": slow}, trials)
    assert (row["pick_share"], row["pick_failed"], row["pick_over_default"]) == (0.0, "wrong: y differs", None)


def pair_of_copies(tmp, config):
    (Path(tmp) / "paired_copy.py").write_text(KERNEL)
    sys.path.insert(0, tmp)
    kernel = importlib.import_module("paired_copy").copy.fn
    sys.path.remove(tmp)
    x = torch.ones(20, 20)
    fixed = {"x": x, "y": torch.empty_like(x), "m": 20, "n": 20, "num_stages": 2}
    launch = hidden_lists.Launch(kernel, lambda meta: (-(-20 // meta["BLOCK"]),), [], set(), None, 0.0, fixed, {})
    return hidden_lists.paired(launch, {"BLOCK": 32, "STEP": 32}, config)


def test_a_pair_has_the_ratio_of_its_times_with_an_interval_or_the_reason_why_not(interpreted, tmp_path):
    row = interpreted(pair_of_copies, str(tmp_path), {"BLOCK": 16, "STEP": 16})
    low, high = row["paired_interval"]
    assert 0 < low <= row["paired"] <= high
    assert row["paired_rounds"] >= 6
    row = interpreted(pair_of_copies, str(tmp_path), {"BLOCK": 16})
    assert row["paired"] is None
    assert "STEP" in row["paired_failed"]


@pytest.mark.processes
def test_each_row_is_saved_at_once_and_a_case_that_fails_is_told(tmp_path):
    command = [sys.executable, "-m", "benchmarks.tuning.hidden_lists", "--out", str(tmp_path / "rows.json")]
    without = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    folder = Path(__file__).parents[3]
    subprocess.run([*command, "--only", "conv_axes", "int4_matmul"], check=True, cwd=folder, env=without)
    document = json.loads((tmp_path / "rows.json").read_text())
    assert [*document["cases"]] == ["conv_axes", "int4_matmul"]
    assert document["summary"]["errors"] == 2
