"""The study of winners over contents, whole, on a small operation of the CPU."""

import json
import time

import pytest

from triton_ops import Contents, Operation, TensorSpec

torch = pytest.importorskip("torch")
contents_gpu = pytest.importorskip("benchmarks.tuning.contents_gpu")


def grouped(x, ends, *, BLOCK_M):
    """Twice the rows of each group, in tiles of which each takes the time of a whole one."""
    counts = ends.diff(prepend=ends[:1] * 0)
    time.sleep(2e-5 * int((-(-counts // BLOCK_M)).sum()) * (1 + BLOCK_M / 16))
    return 2 * x


@pytest.fixture
def case(monkeypatch):
    operation = Operation(
        "grouped", grouped, {"BLOCK_M": [64, 8, 16]},
        lambda n=64: {"x": TensorSpec((n,), "float32"), "ends": TensorSpec((4,), "int32", fill="ends", total=n)},
    )  # fmt: skip
    kinds = {"even": {"ends": Contents.draw("zipf", 0.0)}, "hot": {"ends": Contents.draw("one_hot", 0.9)}}
    case = contents_gpu.Case(
        operation=operation, shape=(64,), dtype=None, contents=kinds, sizes=contents_gpu._rows_of_groups,
        device="cpu",
    )  # fmt: skip
    monkeypatch.setattr(contents_gpu.Case, "named", lambda name: case)
    for rounds in ("ROUNDS", "SHORT_ROUNDS"):
        monkeypatch.setattr(contents_gpu, rounds, 2)
    return case


def test_winners_are_judged_on_draws_of_other_seeds(case):
    about, times = contents_gpu.measured("small", 60.0, 600.0)  # limits that no host reaches
    assert len(times["rows"]) == 2 * 4
    assert about["trials"] == [3, 3]
    figures = contents_gpu.judged(json.loads(json.dumps(times)))
    assert list(figures["regrets"]) == ["default", "one draw", "contents"]
    assert figures["regrets"]["default"]["over_default"] == 1
    assert all(each["mean"] <= each["worst"] for each in figures["regrets"].values())
