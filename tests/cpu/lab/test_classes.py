"""`explain classes`: which configs give the same bits, what separates others, and at which extents a class holds."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("triton")
pytest.importorskip("triton_ops_kernels", reason="the commands here ask about a shipped kernel")

from tests.runs import begun
from triton_ops.backend import Operation
from triton_ops.kernel_ir import BitClass
from triton_ops.records import TrialOrigin
from triton_ops.space import Config
from triton_ops.values import Key, Measurement, Problem, Status, Trial
from triton_ops_lab.command_classes import grouped

SHAPE = (128, 4096)
ASKED = ("softmax", "--shape", "128x4096", "--gpu", "sm_90", "--space", "BLOCK_SIZE=1024,4096", "--space", "ROWS=1")


def classes_of(cli, *words):
    ran = cli("explain", "classes", *ASKED, *words, "--jobs", "2", "--json")
    assert ran.code == 0
    return json.loads(ran.out)["classes"]


def run_of(folder, config):
    """A run in which one config took 2 ms."""
    problem = Operation.shipped("softmax").problem(SHAPE, "bfloat16")
    key = Key(
        kernel="softmax", problem={name: Problem.plain(value) for name, value in problem.arguments}, identity={},
        device={"kind": "cuda", "name": "H200", "arch": "sm_90"}, cache_state="cold",
    )  # fmt: skip
    log = begun(folder / "runs" / key.id, key=key, key_id=key.id)
    log.trial(Trial(config, Status.OK, Measurement((2.0,), "cuda_events")), TrialOrigin.DEFAULT)


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_a_class_holds_whatever_the_batch_and_the_newest_run_says_which_of_it_is_the_fastest(cli, tmp_path):
    run_of(tmp_path, Config(BLOCK_SIZE=4096, ROWS=1, num_warps=8))
    found = classes_of(cli, "--space", "num_warps=4,8", "--vary", "rows=1,64", "--cache-dir", str(tmp_path))
    assert [len(one["configs"]) for one in found] == [1] * 4
    assert len({one["key"] for one in found}) == 4
    assert [one["extents"] for one in found] == [[1, 64]] * 4
    assert found[0]["beside"] == []
    assert all(any(words.startswith("a sum over ") for words in one["beside"]) for one in found[1:])
    assert {one["fastest"]["num_warps"]: one["ms"] for one in found if one["fastest"]["BLOCK_SIZE"] == 4096} == {
        4: None, 8: 2.0,
    }  # fmt: skip


def test_configs_whose_class_cannot_be_told_are_classes_of_their_own():
    silent, told = BitClass(silent="it has inline assembly"), BitClass("x")
    found = grouped({Config(n=1): silent, Config(n=2): silent, Config(n=3): told, Config(n=4): told})
    assert [len(one.configs) for one in found] == [2, 1, 1]


def test_an_extent_that_the_operation_does_not_have_is_refused_by_name(cli):
    ran = cli("explain", "classes", *ASKED, "--vary", "batch=1,2")
    assert ran.code == 2
    assert "rows, columns" in ran.err
