"""The hub's caches become spaces of Triton kernels, each with the model's figures or the reason why there are none."""

import gzip
import json
from itertools import product

import pytest

pytest.importorskip("triton")

from benchmarks.model.hub_kernels import KERNELS
from benchmarks.model.hub_ranks import grouped, judged, spaces_of

pytestmark = pytest.mark.triton
NAMES = ("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "SA")


def cache(path, gpu, kernel="Xgemm"):
    """A cache of products in which larger tiles are faster, and SA slower; one has not run."""
    rows = [dict(zip(NAMES, values, strict=True)) for values in product((32, 64), (32, 64), (32,), (8,), (8,), (0, 1))]
    rows = [{**row, "time": 1e5 / (row["MWG"] * row["NWG"]) + row["SA"]} for row in rows]
    rows.append({**rows[0], "NWG": 48, "time": 1.0})
    rows.append({**rows[0], "time": "CompilationFailedConfig"})
    content = {"device_name": gpu, "kernel_name": kernel, "cache": dict(enumerate(rows))}
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path, rows


def test_hub_configs_of_one_triton_config_stand_for_their_fastest(tmp_path):
    _, rows = cache(tmp_path / "any.json.gz", "NVIDIA RTX A4000")
    times = grouped(KERNELS["gemm"], rows[:-1])
    assert len(times) == 4
    assert {(config["BM"], config["BN"], config["num_warps"]): ms for config, ms in times.items()} == {
        (m, n, 2): 1e5 / (m * n) for m in (32, 64) for n in (32, 64)
    }


def test_sides_and_threads_that_are_no_powers_of_two_are_of_no_triton_config():
    config = KERNELS["convolution"].config
    hub = {"block_size_x": 32, "block_size_y": 2, "tile_size_x": 2, "tile_size_y": 4}
    assert dict(config(hub)) == {"BX": 64, "BY": 8, "num_warps": 2, "num_stages": 1}
    assert config({**hub, "block_size_x": 48}) is config({**hub, "tile_size_y": 3}) is None
    assert config({**hub, "block_size_x": 8}) is None


def test_a_space_has_figures_or_the_reason_why_there_are_none(tmp_path):
    path, _ = cache(tmp_path / "A4000.json.gz", "NVIDIA RTX A4000")
    ((part, figures),) = spaces_of(path)
    assert (part, figures["hub_configs"], figures["mapped"], figures["configs"]) == ("all", 9, 8, 4)
    assert -1 <= figures["spearman"] <= 1
    assert figures["of_all"] == pytest.approx(1.0 / (1e5 / 64**2), abs=1e-4)
    path, _ = cache(tmp_path / "MI250X.json.gz", "")
    ((_, figures),) = spaces_of(path)
    assert "does not know the architecture gfx90a" in figures["silent"]


def test_a_cache_of_another_kernel_with_the_same_tunables_is_left_out_and_named(tmp_path, capsys):
    path, _ = cache(tmp_path / "A4000.json.gz", "NVIDIA RTX A4000", "dedispersion_kernel")
    assert list(spaces_of(path)) == []
    assert "is of dedispersion_kernel, for which there is no kernel here" in capsys.readouterr().out


def test_a_pick_is_wrong_only_where_it_would_have_taken_the_place_of_a_faster_default():
    assert judged([1.0, 1.05, 2.0, 3.0], [2.0, 1.0, 1.9, 2.1]) == {"sure": 2, "wrong": 1}
