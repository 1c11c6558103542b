"""Work that is kept with recordings."""

import json
import statistics
from pathlib import Path

import pytest
from benchmarks.model.model_quality import figures, recorded_model

from tests.cpu.cost_model.test_model import CASES, ELEMENTS, BusyTiles
from triton_ops import Work
from triton_ops.exceptions import SpaceError
from triton_ops.values import Resources
from triton_ops_lab.recording import recorded_work, work_json, work_of


@pytest.mark.parametrize(("tiling", "config"), CASES)
def test_a_work_survives_json(tiling, config):
    work = Work(1.5, 2.5, tiling)
    assert work_of(json.loads(json.dumps(work_json(work)))) == work
    assert work_of(work_json(Work(3.0))) == Work(3.0)


def test_a_recording_leaves_out_the_users_own_tiles():
    assert work_json(Work(1.0, 2.0, BusyTiles(3))) == {"flops": 1.0, "bytes": 2.0}


@pytest.mark.parametrize("tiles", [{"family": "sparse"}, {"family": "rows", "colour": 1}])
def test_a_work_of_another_version_is_refused(tiles):
    with pytest.raises(SpaceError, match=r"cannot be read|not known"):
        work_of({"tiles": tiles})


def test_a_recording_may_declare_its_work_or_be_of_no_known_kind():
    declared = {"work": work_json(Work(1.0, 2.0, ELEMENTS)), "gpu": "NVIDIA H200"}
    assert recorded_work(declared) == Work(1.0, 2.0, ELEMENTS)
    assert recorded_model({**declared, "gpu": "AMD Instinct MI300X"}) is None
    assert recorded_model({"kind": "convolution", "shape": [1, 2, 3], "gpu": "NVIDIA H200"}) is None


SAMPLE = json.loads((Path(__file__).parents[2] / "data" / "h200_spaces.json").read_text(encoding="utf-8"))


def ranked(name, compiled):
    space = SAMPLE[name]
    model = recorded_model(space)
    names = list(space["space"])
    scores, times = [], []
    for row in space["rows"]:
        *values, registers, spills, shared, us = row
        config = dict(zip(names, values, strict=True))
        scores.append(model.expected_ms(config, Resources(registers, spills * 4, shared) if compiled else None))
        times.append(us / 1e3)
    return scores, times


@pytest.mark.parametrize("compiled", [False, True])
def test_matrix_products_are_ranked_well(compiled):
    result = [figures(*ranked(name, compiled)) for name in SAMPLE if name.startswith("matmul")]
    assert statistics.mean(each["spearman"] for each in result) >= 0.94
    assert statistics.mean(each["best_of_1"] for each in result) >= 0.95
    assert min(each["best_of_10"] for each in result) >= 0.99
    assert all(0.7 < each["level"] < 1.3 for each in result)


@pytest.mark.parametrize("compiled", [False, True])
def test_row_kernels_are_ranked_well(compiled):
    result = [figures(*ranked(name, compiled)) for name in SAMPLE if not name.startswith("matmul")]
    assert statistics.mean(each["spearman"] for each in result) >= 0.85
    assert statistics.mean(each["best_of_10"] for each in result) >= 0.97
