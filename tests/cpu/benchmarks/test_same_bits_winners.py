"""What the benchmark of winners with the default's bits says of classes, bits and gains."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("triton_ops_kernels", reason="half of its kernels are shipped ones")

from benchmarks.correctness import same_bits_winners
from benchmarks.correctness.same_bits_tuned import MOST_CONFIGS, TUNED

from triton_ops.space import Config
from triton_ops.timing import HostTimer

pytestmark = pytest.mark.triton


def test_thirty_kernels_have_configs_of_which_the_default_is_the_first():
    assert len(TUNED) == 30
    assert {case.kind for case in TUNED.values()} == {"products", "attention", "reductions"}
    for name, case in TUNED.items():
        assert 20 <= len(set(case.configs)) <= MOST_CONFIGS, name
        assert case.space.default_config == case.configs[0], name


def test_configs_are_classed_without_a_gpu():
    facts = [same_bits_winners.compile_one(("losses", at, "sm_90")) for at in range(3)]
    row = same_bits_winners.classes_of(TUNED["losses"], [*facts, {"refused": "it is too large"}])
    assert (row["configs"], row["refused"], sum(row["classes"])) == (4, 1, 3)
    assert row["own_class"] >= 1
    assert 0 < row["class_s_median"] <= row["class_s_worst"]


def measured_on_the_cpu():
    """Two orders of the same sums, of which one is that of the default, by the interpreter."""
    case = replace(TUNED["losses"], shape=(8, 3000))
    default = case.configs[0]
    again, other = Config(default, num_warps=8), Config(default, BLOCK=512)
    classes = {default: "a", again: "a", other: "b"}
    arguments = case.operation.materialise(case.problem, "cpu")
    winners = {"same": again, "free": other}
    return same_bits_winners.compared(case, classes, winners, arguments, 5, HostTimer())


def test_bits_and_gains_are_told_of_both_winners(interpreted):
    found = interpreted(measured_on_the_cpu)
    assert (found["inputs"], found["equal_bits"]) == (5, 5)
    assert found["free_equal_bits"] < 5
    assert found["chosen_class"] == 1
    assert found["gains"]["best"] >= found["gains"]["free"]
    assert 0 < found["of_own_best"] <= 1


def row(kind, equal, free_gain, gain):
    gains = {"free": free_gain, "same": gain, "own_best": gain, "chosen": free_gain, "best": free_gain}
    return {"kind": kind, "configs": 2, "class_s_median": 0.01, "class_s_worst": 0.02, "inputs": 5, "equal_bits": equal,
            "free_equal_bits": 0, "of_own_best": 0.98, "gains": gains}  # fmt: skip


def test_what_classes_keep_is_told_by_kind():
    rows = {"a": row("products", 5, 4.0, 2.0), "b": row("products", 4, 4.0, 2.0), "c": row("attention", 5, 1.0, 1.0)}
    failed = {name: value for name, value in row("products", 5, 4.0, 2.0).items() if name != "gains"}
    found = same_bits_winners.summary_of({**rows, "d": {**failed, "error": "no launch"}})
    assert (found["kernels"], found["measured"], found["equal_in_every_bit"], found["near_own_best"]) == (4, 3, 2, 3)
    assert found["kinds"]["products"]["kept"] == {
        "same": pytest.approx(0.5),
        "own_best": pytest.approx(0.5),
        "chosen": 1,
    }
    assert found["kinds"]["attention"]["kept"] == {}
