"""Forms of shipped kernels that are raced on a GPU: right results, what the compiler makes of them, and the race."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.kernels.mlp_forms import mlp_forms
from benchmarks.shipped import apart, form_race, forms_gpu, fp8_variants, mlp_variants, row_variants
from benchmarks.shipped.form_race import SHIPPED, Case, compiled, raced

from tests.limits import eventually
from triton_ops import Config
from triton_ops.device import Target

pytestmark = pytest.mark.triton
SMALL = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "PROGRAMS": 0, "num_warps": 4, "num_stages": 2}
MLP = Case(
    mlp_forms,
    "gated_mlp",
    "odd",
    {
        "host": {**mlp_variants.HOST, **SMALL},
        "joined": {**mlp_variants.JOINED, **SMALL, "HALVES": False},
        "packed": {**mlp_variants.PACKED, **SMALL, "FLAT": False},
    },
)


def verdicts_of_the_gated_mlp():
    """What races of small forms on a CPU say, and of a form that is wrong."""
    values = dict(mlp_forms.materialise(mlp_forms.problem((40, 64, 48), "float16"), "cpu").keyword)
    result = [raced(MLP, values, name, SHIPPED, 0.05) for name in MLP.forms]
    odd = dict(mlp_forms.materialise(mlp_forms.problem((40, 48, 64), "float16"), "cpu").keyword)
    return [*result, raced(MLP, values, "host", "eager", 0.05), raced(MLP, odd, "packed", SHIPPED, 0.05)]


def test_forms_of_the_gated_mlp_are_right_and_raced(interpreted):
    *right, failed = interpreted(verdicts_of_the_gated_mlp)
    assert all(row["ms"] > 0 and row["other_ms"] > 0 for row in right), right
    assert "Error" in failed["verdict"], "48 rows are no multiple of the 32 that are packed"


@pytest.mark.parametrize("form", ["Gluon, joined", "joined, walking", "packed, walking"])
def test_no_form_of_the_gated_mlp_spills_or_is_serialised(form):
    result = compiled(mlp_variants.CASES[0], form)
    assert (result["verdict"], result["mma"], result["spill_bytes"], result["serialised"]) == ("ok", "wgmma", 0, False)


@pytest.mark.parametrize("form", ["32 columns, 2 ahead", "32 columns, 4 ahead", "32 columns, 4 ahead, deep"])
def test_unrolled_steps_of_scales_by_block_neither_spill_nor_wait_for_each_other(form):
    problem = "deepseek-v3-up-decode"
    config = Config(fp8_variants.FORMS[problem][form])
    result = fp8_variants.compiled(config, fp8_variants.values_of(problem, None))
    assert (result["verdict"], result["mma"], result["spill_bytes"], result["serialised"]) == ("ok", "wgmma", 0, False)
    steps = config["AHEAD"] * config["num_stages"] * (64 + 32) * 128
    assert steps <= result["shared_bytes"] <= Target.named("sm_90").shared_bytes_per_block, "every step has its stages"


@pytest.mark.parametrize("form", ["by turns, Gluon", "by turns, Gluon, apart"])
def test_no_gluon_form_of_the_product_of_8_bit_floats_spills_or_is_serialised(form):
    result = fp8_variants.compiled(Config(fp8_variants.PROMOTED[form]), fp8_variants.values_of("8192", None))
    assert (result["verdict"], result["mma"], result["spill_bytes"], result["serialised"]) == ("ok", "wgmma", 0, False)
    assert result["shared_bytes"] <= Target.named("sm_90").shared_bytes_per_block


@pytest.mark.processes
def test_the_shipped_form_is_one_that_the_kernel_takes():
    for case in mlp_variants.CASES:
        assert case.shipped["FORM"] == SHIPPED
        assert compiled(case, SHIPPED)["verdict"] == "ok"


def test_configs_over_rows_are_of_their_spaces():
    for case in row_variants.CASES:
        space = case.operation.space_for(case.operation.problem(*case.operation.problems[case.problem]))
        left_out = {name: space.why_not(config) for name, config in case.configs.items()}
        assert not any(left_out.values()), f"{case.title}: {left_out}"


def races_of_rows():
    """What races of configs over rows of odd length on a CPU say, also of kernels of several launches."""
    result = []
    for name, shape, block in (("softmax_backward", (2, 21), 16), ("layer_norm_backward", (2, 21), 16)):
        case = next(case for case in row_variants.CASES if case.kernel == name)
        small = {form: {**config, "BLOCK_SIZE": block} for form, config in [*case.forms.items()][:2]}
        values = dict(case.operation.materialise(case.operation.problem(shape, "float32"), "cpu").keyword)
        result += [raced(replace(case, forms=small), values, form, "eager", 0.02) for form in small]
    return result


@pytest.mark.processes
def test_configs_over_rows_are_right_and_raced(interpreted):
    result = interpreted(races_of_rows)
    assert len(result) == 4
    assert [row["verdict"] for row in result if "ms" not in row] == []


def test_a_split_row_is_two_launches():
    case = row_variants.CASES[0]
    assert [one.metadata["name"] for one in case.ahead().built(case.configs["by 8"])] == [
        "softmax_backward_kernel", "softmax_backward_rest_kernel",
    ]  # fmt: skip


def test_the_steps_of_the_run_on_a_gpu_fit_its_limit_and_know_their_options():
    assert sum(step.limit_s + forms_gpu._GRACE_S for step in forms_gpu.STEPS if not step.alone) <= 500
    assert all(step.limit_s + forms_gpu._GRACE_S <= 110 for step in forms_gpu.STEPS if step.alone)
    for step in forms_gpu.STEPS:
        source = Path(importlib.util.find_spec(step.module).origin).read_text()
        shared = Path(form_race.__file__).read_text() if "form_race" in source else ""
        asked = [word for word in step.command(Path("out"), 5.0, dry=False) if word.startswith("--")]
        assert {"--limit-s", "--out"} <= set(asked)
        assert [option for option in asked if f'"{option}"' not in source + shared] == []


SERVES = """
import os, sys, time
from benchmarks.shipped.apart import serve

def make(task):
    if task[0] == "hangs":
        time.sleep(600)
    if task[0] == "crashes":
        print("a last word", flush=True)
        os._exit(3)
    made.append(task[0])
    return {"verdict": "faster", "made": made}

def begin():
    if "spoils" in made:
        raise RuntimeError("an illegal memory access")

made = []
sys.exit(serve(make, begin))
"""


@pytest.mark.processes
def test_a_row_that_hangs_crashes_or_spoils_its_process_costs_no_other():
    names = ["first", "hangs", "second", "crashes", "spoils", "third", "fourth"]
    command = [sys.executable, "-c", SERVES]
    result = list(apart.rows_apart(command, [[name] for name in names], 1.0, time.monotonic() + 60.0))
    assert [task for task, _ in result] == [[name] for name in names]
    rows = {task[0]: row for task, row in result}
    assert rows["hangs"] == {"verdict": "Error: ended after 1 s"}
    assert rows["crashes"] == {"verdict": "Error: its process ended with 3: a last word"}
    assert [rows[name]["made"] for name in ("first", "second", "spoils", "third", "fourth")] == [
        ["first"], ["second"], ["spoils"], ["third"], ["third", "fourth"],
    ]  # fmt: skip


@pytest.mark.processes
def test_a_process_that_cannot_begin_says_why_in_every_row_and_no_row_begins_too_late():
    fails = [sys.executable, "-c", "import sys; sys.exit('no such module')"]
    rows = [row for _, row in apart.rows_apart(fails, [["a"], ["b"]], 1.0, time.monotonic() + 60.0)]
    assert rows == [{"verdict": "Error: its process ended with 1: no such module"}] * 2
    assert list(apart.rows_apart(fails, [["a"]], 1.0, time.monotonic())) == []


def test_the_process_that_makes_rows_races_what_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(form_race, "serve", lambda make, begin: (begin(), make(["gated_mlp/odd", "host", SHIPPED])))
    monkeypatch.setattr(form_race, "raced", lambda case, values, *asked: (case, values["x"].device.type, *asked))
    result = form_race.answer([MLP], argparse.Namespace(device="cpu", seconds=0.5))
    assert result == (1.0, (MLP, "cpu", "host", SHIPPED, 0.5))


def test_forms_are_raced_beside_the_form_that_is_named(monkeypatch):
    asked = []

    def fast(_command, tasks, _each_s, _end):
        asked.extend(tasks)
        return [(task, {"verdict": "faster", "speedup": 1.0 + len(task[1])}) for task in tasks]

    monkeypatch.setattr(form_race, "rows_apart", fast)
    options = {"limit_s": 1.0, "seconds": 0.1, "each_s": 1.0, "device": "cpu", "rivals": ["eager"]}
    named = argparse.Namespace(beside="host", forms=["host", "packed"], **options)
    rows = list(form_race.rows([MLP], named, "benchmarks.shipped.mlp_variants"))
    place = "gated_mlp/odd"
    assert asked == [[place, "host", "host"], [place, "packed", "host"], [place, "packed", "eager"]]
    assert [(row["form"], row["other"], row["problem"]) for row in rows] == [
        ("host", "host", "odd"), ("packed", "host", "odd"), ("packed", "eager", "odd"),
    ]  # fmt: skip


def test_a_step_that_does_not_end_is_ended_with_what_it_started(tmp_path):
    started = tmp_path / "started"
    waits = ["sh", "-c", f"sleep 600 & echo $! > '{started}'; wait"]
    assert forms_gpu.ended(waits, 2.0, tmp_path) == "ended after 2 s"
    stat = Path(f"/proc/{int(started.read_text())}/stat")
    eventually(lambda: not stat.exists() or stat.read_text().split()[2] == "Z")
    assert forms_gpu.ended(["sh", "-c", "exit 3"], 30.0, tmp_path) == "exit code 3"
