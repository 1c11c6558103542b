"""What configs spill, and what cures it: evidence from machine code, changes in their order, verdicts and words."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace

import pytest

from triton_ops import TensorSpec, TritonKernel, cure_spills
from triton_ops.device import Target
from triton_ops.exceptions import ConfigValueError, SpaceError
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import Status
from triton_ops_lab.command_compile import cure_rows, spill_facts
from triton_ops_lab.spills import CURES, SpillEvidence, SpillReport, changes, healthy
from triton_ops_lab.spills import CureTrial as Tried

BEFORE = Config(BM=128, BN=256, BK=64, num_warps=4, num_stages=3)
SPACE = ConfigSpace({"BM": [64, 128], "BN": [64, 128, 256], "BK": [64], "num_warps": [4, 8], "num_stages": [2, 3]})


def seen(config, spilled, registers=255, status=Status.OK, median_ms=None):
    return SpillEvidence(
        config=config, status=status, registers=registers, stack_bytes=spilled, spill_bytes=spilled, median_ms=median_ms
    )


def tried(*after, before=None, **named):
    before = before or seen(BEFORE, 1024)
    return Tried(named.get("name", "a change"), "", before, tuple(after))


def test_changes_come_in_order_and_each_goes_on_from_its_own_last_step():
    result = changes(BEFORE, SPACE, Target.named("sm_90"), lambda config: config["BM"] * config["BN"])
    assert [change.name for change in result] == ["smaller tile", "more warps", "fewer stages"]
    smaller, wider, shallower = ([dict(step) for step in change.steps] for change in result)
    assert [(step["BM"], step["BN"]) for step in smaller] == [(128, 128), (128, 64), (64, 64)]
    assert [step["num_warps"] for step in wider] == [8, 16, 32]
    assert [step["num_stages"] for step in shallower] == [2, 1]


def test_a_tile_that_cannot_be_told_is_not_made_smaller():
    result = changes(BEFORE, SPACE, Target.named("sm_90"), lambda _: None)
    assert list(result[0].steps) == []
    assert tried(name="smaller tile").verdict == "not possible"


def test_wavefronts_of_64_lanes_leave_fewer_warps_to_try():
    (_, wider, _) = changes(BEFORE, SPACE, Target.named("gfx942"), lambda _: None)
    assert [step["num_warps"] for step in wider.steps] == [8, 16]


def test_a_limit_of_registers_of_the_configs_own_is_taken_back_first():
    limited = Config(BEFORE, maxnreg=64)
    result = changes(limited, SPACE, Target.named("sm_90"), lambda _: None)
    assert result[0].name == "no limit of registers"
    assert [step["maxnreg"] for step in result[0].steps] == [None]


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ([seen(BEFORE, 0)], "cures"),
        ([seen(BEFORE, 64)], "cures"),  # a few bytes are no spill worth a word
        ([seen(BEFORE, 512)], "helps"),
        ([seen(BEFORE, 1000)], "does not help"),
        ([seen(BEFORE, 2048), seen(BEFORE, 0)], "cures"),
        ([seen(BEFORE, None, status=Status.RESOURCES)], "not possible"),
        ([], "not possible"),
    ],
)
def test_a_change_is_kept_only_if_it_helps(after, verdict):
    assert tried(*after).verdict == verdict
    assert tried(*after).kept == (verdict in ("cures", "helps"))


def test_a_change_that_cures_the_spill_and_is_slower_is_not_kept():
    before = seen(BEFORE, 1024, median_ms=1.0)
    slower, faster = seen(Config(BEFORE, BM=64), 0, median_ms=1.2), seen(Config(BEFORE, num_warps=8), 0, median_ms=0.3)
    changed = tried(slower, before=before), tried(faster, before=before, name="more warps")
    report = SpillReport("sm_90", before, changed)
    assert [one.verdict for one in report.tried] == ["slower", "cures"]
    assert report.advice == "more warps cures it: num_warps=8"


def test_of_changes_that_were_measured_the_fastest_is_the_cure():
    times = {BEFORE.text: 1.0, Config(BEFORE, BN=128).text: 0.5, Config(BEFORE, num_warps=8).text: 0.3}
    changed = [tried(seen(Config(BEFORE, BN=128), 0)), tried(seen(Config(BEFORE, num_warps=8), 0), name="more warps")]
    untimed = SpillReport("sm_90", seen(BEFORE, 1024), tuple(changed))
    assert untimed.cure is changed[0]
    timed = untimed.timed(times)
    assert timed.cure.name == "more warps"
    assert timed.cure.before.median_ms == 1.0


@pytest.mark.parametrize(
    ("stack", "spilled", "said"),
    [
        (1024, 1024, "1,024 bytes per thread, 1,024 of them spilled registers"),
        (224, 284, "224 bytes per thread, where 284 bytes of spilled registers take turns"),  # as LLVM counts them
    ],
)
def test_a_frame_that_is_smaller_than_what_is_spilled_is_told_so(stack, spilled, said):
    report = SpillReport("gfx942", replace(seen(BEFORE, spilled), stack_bytes=stack))
    assert spill_facts("a problem", report)["frame"] == said


def test_without_a_cure_the_advice_is_to_split_the_kernel():
    report = SpillReport("sm_90", seen(BEFORE, 1024), (tried(seen(BEFORE, 900)),))
    assert (report.spills, report.cure) == (True, None)
    assert "split the kernel" in report.advice
    assert SpillReport("sm_90", seen(BEFORE, 28)).advice == "it spills 28 bytes, too few to matter"
    broken = SpillReport("sm_90", replace(seen(BEFORE, None, status=Status.COMPILE), reason="no such dtype"))
    assert (broken.spills, broken.advice) == (False, "it cannot be launched: no such dtype")
    assert not healthy(broken.before)


CASE = ["matmul", "--shape", "1024x1024x1024", "--gpu", "H200"]


def test_every_config_of_a_change_has_its_own_verdict():
    failed = SpillEvidence(config=BEFORE, status=Status.RESOURCES, reason="too much")
    tried = Tried(
        "smaller tile", "", seen(BEFORE, 1000), (seen(BEFORE, 1000), failed, seen(BEFORE, 500), seen(BEFORE, 0))
    )
    assert [row[1] for row in cure_rows(tried)] == ["does not help", "not possible", "helps", "cures"]


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_a_large_accumulator_of_four_warps_is_cured_by_tiles_and_warps_and_not_by_stages(cli):
    ran = cli("explain", "spills", *CASE, "--config", "BM=128,BN=256,BK=32,num_warps=4,num_stages=3", "--json")
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)
    before = result["before"]
    assert result["spills"]
    assert (before["registers"], before["most_registers"]) == (255, 255)
    assert before["stack_bytes"] >= before["spill_bytes"] > 256
    assert (before["accumulator_bytes"], before["accumulator_registers"]) == (131_072, 256)
    assert before["local"]["loads"] > 100
    assert before["local"]["in_loops"] > 100
    assert [(one["change"], one["verdict"]) for one in result["cures"]] == [
        ("smaller tile", "cures"), ("more warps", "cures"), ("fewer stages", "does not help"),
    ]  # fmt: skip
    assert result["cure"]["BN"] == 128
    assert all(one["steps"][0]["spill_bytes"] == 0 for one in result["cures"][:2])
    assert "not in the space" in result["notes"][0]


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_a_kernel_needs_no_space_but_its_config():
    kernels = importlib.import_module("tests.inferred_kernels")  # it imports Triton
    x = TensorSpec((4096, 1024), "bfloat16")
    config = importlib.import_module("triton").Config({"BLOCK": 1024}, num_warps=1, maxnreg=24)
    norm = TritonKernel(kernels.chunked_norm, lambda _: (4096,))
    report = cure_spills(norm, (x, x, 1024, 1e-5), config=config, arch="sm_90")
    assert report.before.spill_bytes
    assert "not in the space" not in " ".join(report.notes)
    assert report.tried[0].name == "no limit of registers"
    assert report.tried[0].verdict == CURES
    with pytest.raises(ConfigValueError, match="config is 3; it must be a mapping"):
        cure_spills(norm, (x, x, 1024, 1e-5), config=3, arch="sm_90")
    with pytest.raises(SpaceError, match="no space is given"):
        cure_spills(norm, (x, x, 1024, 1e-5), arch="sm_90")


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_a_config_that_spills_nothing_is_told_so(cli):
    ran = cli("explain", "spills", *CASE, columns=200)
    assert ran.code == 0, ran.err
    assert "it spills nothing" in ran.out
    assert "128x128 is 65,536 bytes of registers, 64 per thread" in ran.out
    assert "change" not in ran.out


BROKEN = """
import triton
import triton.language as tl
from triton_ops import Operation, TensorSpec, TritonKernel

@triton.jit
def broken(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), not_defined)

operation = Operation(
    "broken", TritonKernel(broken, lambda _: (1,)), {"BLOCK": [128]}, lambda: {"x": TensorSpec((128,), "float32")}
)
"""


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_a_limit_of_registers_under_which_nothing_compiles_is_named(cli):
    ran = cli(
        "explain", "spills", *CASE, "--config", "BM=128,BN=128,BK=64,num_warps=4,num_stages=3,maxnreg=64", "--json"
    )
    assert ran.code == 1, ran.err
    result = json.loads(ran.out)
    assert "Insufficient registers (64)" in result["before"]["reason"]
    assert "without maxnreg=64 it takes 2" in result["notes"][-1]
    assert result["notes"][-1].endswith("and spills 0 bytes")


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_a_config_that_does_not_compile_is_told_with_its_reason(cli, tmp_path, monkeypatch):
    (tmp_path / "given.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    ran = cli("explain", "spills", "given.py:operation", "--gpu", "sm_90", "--json")
    assert ran.code == 1
    result = json.loads(ran.out)
    assert (result["before"]["status"], result["cures"], result["cure"]) == ("compile", [], None)
    assert "not_defined is not defined" in result["advice"]
