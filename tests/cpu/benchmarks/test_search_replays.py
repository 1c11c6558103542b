"""The comparison of searches on recordings: its count of evaluations, its tunables for Helion, its table."""

import gzip
import json

import pytest
from benchmarks.model.model_quality import recorded_model
from benchmarks.search import recorded
from benchmarks.search.derived import stripped
from benchmarks.search.recorded import Enough, Table, key_of, kind_of, kinds_of
from benchmarks.search.table import OWN, PUBLIC, groups, means, read, table
from hypothesis import given
from hypothesis import strategies as st

INFINITE = float("inf")
CACHE = {
    "tune_params": {"a": [1, 2], "b": [0, 1], "c": [7]},
    "cache": {
        "1,0,7": {"a": 1, "b": 0, "c": 7, "time": 4.0},
        "1,1,7": {"a": 1, "b": 1, "c": 7, "time": "RuntimeFailedConfig"},
        "2,0,7": {"a": 2, "b": 0, "c": 7, "time": 2.0},
    },
}
ROWS = {
    "gpu": "NVIDIA H200", "family": "matmul_bf16", "shape": [64, 64, 64], "kind": "matmul",
    "space": {"BM": [16, 32], "BN": [32], "BK": [64]},
    "rows": [
        {"config": {"BM": 16, "BN": 32, "BK": 64}, "status": "ok", "ms": [[1, 1, 3, 4], [1, 1, 2, 4]]},
        {"config": {"BM": 32, "BN": 32, "BK": 64}, "status": "resources", "ms": []},
    ],
}  # fmt: skip


def written(folder, content):
    path = folder / "space.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


def entry(file, search, mean, **more):
    figures = {"median": None, "p90": None}
    return {
        "file": file, "search": search, "budgets": {"50": {"mean": mean}}, "to_5pct": figures, "to_1pct": figures,
        "overhead_ms": 20.0, **more,
    }  # fmt: skip


class TestCounting:
    def test_rows_are_brought_into_the_form_of_a_cache(self, tmp_path):
        content = recorded.read_cache(written(tmp_path, ROWS))
        times = {key: recorded.milliseconds(row["time"]) for key, row in content["cache"].items()}
        assert times == {"16,32,64": 2.0, "32,32,64": INFINITE}
        assert recorded.best_ms(content) == 2.0

    def test_the_longer_measurement_of_a_finalist_counts(self, tmp_path):
        final = {**ROWS["rows"][0], "final": [[1, 1, 5, 6], [1, 1, 7, 8], [1, 1, 6, 8]]}
        content = recorded.read_cache(written(tmp_path, {**ROWS, "rows": [final]}))
        assert recorded.best_ms(content) == 6

    def test_a_cache_is_read_as_it_is(self, tmp_path):
        assert recorded.read_cache(written(tmp_path, CACHE)) == CACHE

    def test_failed_configs_count_as_evaluations_and_repeats_do_not(self):
        asked = Table(CACHE, 2)
        assert [asked.look_up(key) for key in ("1,1,7", "1,1,7", "1,0,7", "1,1,7")] == [
            INFINITE,
            INFINITE,
            4.0,
            INFINITE,
        ]
        with pytest.raises(Enough):
            asked.look_up("2,0,7")
        assert asked.asked == {"1,1,7": INFINITE, "1,0,7": 4.0}

    def test_a_config_outside_the_recording_is_noted_and_is_no_evaluation(self):
        asked = Table(CACHE, 2)
        assert [asked.has(key) for key in ("2,1,7", "1,0,7", "2,1,7")] == [False, True, False]
        assert (asked.refused, asked.asked) == ({"2,1,7"}, {})

    def test_a_search_that_survives_errors_does_not_survive_the_end(self):
        assert not issubclass(Enough, Exception)

    def test_figures_of_the_seeds(self):
        times = [INFINITE, 4.0, 2.06, 2.0]
        assert [recorded.fraction(2.0, times[:n]) for n in (0, 1, 2, 4)] == [0.0, 0.0, 0.5, 1.0]
        assert [recorded.first_within(2.0, margin, times) for margin in (0.05, 0.01)] == [3, 4]
        assert recorded.first_within(2.0, 0.01, times[:3]) == INFINITE
        assert recorded.share([0.5, 1.0, 1.0]) == {"mean": 0.8333, "median": 1.0, "p10": 0.6}
        assert recorded.reach([3, INFINITE, 5, 4]) == {"median": 4, "p90": None}


class TestMapping:
    @pytest.mark.parametrize(
        ("name", "values", "kind"),
        [
            ("filter_height", [15], "constant"),
            ("use_padding", [0, 1], "flag"),
            ("use_method", [0, 1, 2], "choice"),
            ("MWG", [16, 32, 64, 128], "block"),
            ("block_size_y", [1, 2, 4, 8, 16], "block"),
            ("VWM", [1, 2, 4, 8], "power"),
            ("num_warps", [4, 8], "power"),
            ("num_stages", [2, 3, 4, 5], "range"),
            ("tile_size_x", [1, 2, 3, 4], "range"),
            ("tile_size", [1, 2, 4, 6, 8], "choice"),
            ("block_size_x", [16, 32, 48, 64], "choice"),
            ("block_size_x", [1, 2, 4, 8, 16, 32, 48], "choice"),
            ("GAP", [16, 64], "choice"),
        ],
    )
    def test_every_kind_of_tunable_is_declared(self, name, values, kind):
        assert kind_of(name, values).name == kind

    @given(st.lists(st.integers(0, 300), min_size=1, max_size=8, unique=True))
    def test_a_declared_kind_has_exactly_the_values(self, values):
        kind = kind_of("x", values)
        low, high = min(values), max(values)
        declared = {
            "constant": values,
            "flag": [False, True],
            "choice": kind.values,
            "power": [1 << n for n in range(10) if low <= 1 << n <= high],
            "range": range(low, high + 1),
        }[kind.name]
        assert {kind.recorded(value) for value in declared} == set(values)

    def test_a_chosen_config_is_found_in_the_recording(self):
        kinds = kinds_of(CACHE["tune_params"])
        keys = {key_of(kinds, {"a": a, "b": b}) for a in (1, 2) for b in (False, True)}
        assert keys == {*CACHE["cache"], "2,1,7"}


class TestTable:
    @pytest.fixture
    def folder(self, tmp_path):
        asked = {"evaluated": {"mean": 150.0}, "refused": {"mean": 70.0}}
        plain = [entry("matmul.json.gz", name, 0.7, overhead_mean_ms=3.0) for name in ("auto", "random")]
        runs = {
            "auto_hub": [entry("gemm.json.gz", "auto", 0.9, overhead_mean_ms=30.0)],
            "helion_hub": [entry("gemm.json.gz", "helion LFBOTreeSearch", 0.8, **asked)],
            "auto_h200": [entry("matmul.json.gz", "auto", 1.0, overhead_mean_ms=30.0)],
            "auto_h200_records": [entry("matmul.json.gz", "auto", 0.99, overhead_mean_ms=30.0)],
            "auto_h200_tunables": plain,
        }  # fmt: skip
        for name, entries in runs.items():
            (tmp_path / f"{name}.json").write_text(json.dumps({"spaces": entries}))
        return tmp_path

    def test_the_prior_knowledge_of_a_run_is_in_its_name(self, folder):
        entries = read(folder)
        assert groups(entries) == {PUBLIC: ["gemm.json.gz"], OWN: ["matmul.json.gz"]}
        own = means(entries, groups(entries)[OWN])
        assert own == {
            "auto": {"50": 1.0}, "auto with records": {"50": 0.99}, "auto from the tunables alone": {"50": 0.7},
            "random": {"50": 0.7},
        }  # fmt: skip

    def test_tables_have_a_row_per_search_and_show_the_recordings_of_the_default_search(self, folder):
        lines = table(read(folder))
        rows = [line for line in lines if line.startswith(("| auto |", "| helion LFBOTreeSearch |"))]
        assert rows == [
            "| auto | 0.900 |", "| helion LFBOTreeSearch | 0.800 |", "| auto | 1.000 |",
            "| helion LFBOTreeSearch | 150 | 70 |",
        ]  # fmt: skip
        assert "| gemm.json.gz | 0.900 | - (-) | - (-) | 20 (30) |" in lines


def test_a_stripped_recording_has_no_model():
    assert recorded_model(ROWS) is not None
    assert recorded_model(stripped(ROWS)) is None
