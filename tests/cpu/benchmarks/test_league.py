"""The league of tuners: spaces, runs, traces, figures, and an added tuner as its page tells."""

import gzip
import json
import math
import sys

import pytest
from benchmarks.league import __main__ as command
from benchmarks.league import page, race, spaces
from benchmarks.league.tuners import BARE, OURS, TUNERS, Called
from benchmarks.league.tuners.ours import Bare, Random
from benchmarks.league.tuners.with_helion import kind_of

from triton_ops.space import Config

TIMES = {(a, b): 1.0 + abs(a - 4) + (0.5 if b else 0.0) for a in (1, 2, 4, 8) for b in (0, 1)}


def recording(times=TIMES, **more):
    rows = [
        {"config": {"BM": a, "flag": b}, "status": "ok" if ms else "runtime: no", "ms": [[ms] * 4] if ms else []}
        for (a, b), ms in times.items()
    ]
    return {
        "family": "sum_fp32", "shape": [64], "gpu": "NVIDIA H200", "space": {"BM": [1, 2, 4, 8], "flag": [0, 1]},
        "rows": rows, **more,
    }  # fmt: skip


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


@pytest.fixture
def folder(tmp_path):
    """Two spaces; in one the first config fails."""
    written(tmp_path / "recordings/sum.json.gz", recording())
    written(tmp_path / "recordings/callables/other.json.gz", recording({**TIMES, (1, 0): None}))
    return tmp_path


def space_in(folder, name="sum"):
    return spaces.read_space(*next(f for f in spaces.files(None, folder / "recordings") if f[2] == name))


def league(folder, *options, monkeypatch):
    arguments = ["--recordings", folder / "recordings", "--traces", folder / "traces", "--out", folder / "page.md"]
    monkeypatch.setattr(sys, "argv", ["league", *map(str, arguments), "--seeds", "2", "--processes", "0", *options])
    command.main()
    return (folder / "page.md").read_text()


class TestSpaces:
    def test_groups_names_and_defaults(self, folder):
        assert [(group, name) for _, group, name in spaces.files(None, folder / "recordings")] == [
            ("callables", "callables/other"),
            ("kernels", "sum"),
        ]
        assert space_in(folder).group == "small"
        assert space_in(folder).default == Config(BM=1, flag=0)
        assert space_in(folder, "callables/other").default == Config(BM=1, flag=1)  # the first failed

    def test_results_in_the_format_t4_are_a_space(self, tmp_path):
        result = {"configuration": {"a": 2}, "times": {}, "objectives": ["time"], "correctness": 1}
        time = [{"name": "time", "value": 3.0, "unit": "ms"}]
        results = [
            {**result, "invalidity": "correct", "measurements": time},
            {**result, "configuration": {"a": 1}, "invalidity": "compile", "measurements": []},
        ]
        content = {"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"}, "results": results}
        space = spaces.read_space(written(tmp_path / "gemm.json.gz", content), "hub", "hub/gemm")
        assert (space.configs, space.times) == ((Config(a=1), Config(a=2)), (None, 3.0))
        assert space.default == Config(a=2)


class Stubborn:
    """Asks for one config, and for one that breaks a constraint."""

    def __init__(self, space, seed, default):
        self.told = []

    def ask(self):
        return Config(BM=3, flag=0) if self.told else Config(BM=4, flag=1)

    def tell(self, config, ms):
        self.told.append((config, ms))


class Caller(Called):
    """A search that calls a function."""

    def search(self):
        self.found = [self.measure(config) for config in self.space.configs[:3]]


class Broken(Called):
    def search(self):
        raise ValueError("no forest")


class TestRuns:
    def test_what_is_no_evaluation_is_answered_and_does_not_count(self, folder):
        space = space_in(folder)
        tuners = []
        done = race.run(lambda *given: tuners.append(Stubborn(*given)) or tuners[0], space, 0, race.ALONE, 3)
        assert done.asked[0] == space.places[Config(BM=4, flag=1)]
        assert len(set(done.asked)) == 3
        told = tuners[0].told
        assert told[0] == (Config(BM=4, flag=1), 1.5)
        assert told.count((Config(BM=3, flag=0), None)) == 40  # twenty questions before each of two random configs
        assert len(told) == 43

    def test_a_search_that_calls_is_asked_and_told(self, folder):
        tuners = []
        space = space_in(folder)
        done = race.run(lambda *given: tuners.append(Caller(*given)) or tuners[0], space, 0, race.ALONE)
        assert done.asked == [0, 1, 2]
        assert tuners[0].found == list(space.times[:3])
        assert race.run(Caller, space, 0, race.ALONE, 2).asked == [0, 1]  # and ended before it is done

    def test_an_error_of_a_search_is_raised(self, folder):
        with pytest.raises(ValueError, match="no forest"):
            race.run(Broken, space_in(folder), 0, race.ALONE)

    @pytest.mark.parametrize("make", [Bare, Random])
    def test_a_run_from_the_default_begins_there(self, folder, make):
        space = space_in(folder)
        done = race.run(make, space, 1, race.DEFAULT)
        assert (space.configs[done.asked[0]], sorted(done.asked)) == (space.default, list(range(8)))
        with pytest.raises(RuntimeError, match="before the default"):
            race.run(Stubborn, space, 0, race.DEFAULT)


@pytest.mark.extras("optuna")
def test_a_tuner_of_another_package_asks_the_same_twice(folder):
    space, make = space_in(folder, "callables/other"), TUNERS["Optuna TPE"].load()
    for start in race.STARTS:
        runs = [race.run(make, space, 0, start).asked for _ in range(2)]
        assert runs[0] == runs[1] != []
        assert start == race.ALONE or space.configs[runs[0][0]] == space.default


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("use_padding", [0, 1], "flag"), ("use_method", [0, 1, 2], "choice"), ("MWG", [16, 32, 64], "block"),
        ("block_size_y", [1, 2, 4, 8], "block"), ("num_warps", [8, 4], "power"), ("num_stages", [2, 3, 4, 5], "range"),
        ("tile_size", [1, 2, 4, 6], "choice"), ("block_size_x", [1, 2, 4, 8, 16, 32, 48], "choice"),
        ("order", ["rows", "columns"], "choice"), ("fused", [False, True], "choice"), ("alpha", [0.5, 1.0], "choice"),
    ],
)  # fmt: skip
def test_a_tunable_is_declared_to_helion_as_its_user_would(name, values, kind):
    assert kind_of(name, values) == kind


SPACE = {
    "best_ms": 1.0, "group": "small", "compiled_s": {"alone": [[8.0, 8.0, 9.0]]},
    "configs": {"0": [2.0, 1.0], "1": [None, 3.0], "2": [1.0, 4.0]}, "runs": {"alone": [[0, 1, 2]]},
}  # fmt: skip


class TestFigures:
    def test_fractions_and_seconds(self):
        assert page.best_so_far(SPACE, [1, 0, 2]) == [0.0, 0.5, 1.0]
        assert page.fraction(SPACE, "alone", 25) == 1.0
        assert page.evaluations_to_near(SPACE, "alone") == [3]
        launches_s = 3 * 0.025 + 20 * 3.0 / 1e3
        assert page.seconds_to_near(SPACE, "alone", 2) == pytest.approx([9 / 2 + launches_s])
        without = {name: value for name, value in SPACE.items() if name != "compiled_s"}
        assert page.seconds_to_near(without, "alone", 2) == pytest.approx([8 / 2 + launches_s])
        never = {**SPACE, "best_ms": 0.5}
        assert page.seconds_to_near(never, "alone", 16) == [math.inf]

    def test_an_interval_holds_the_mean_and_is_the_same_twice(self):
        low, high = page.interval([0.0, 0.1, 0.2, 0.3])
        assert 0 <= low < 0.15 < high <= 0.3
        assert page.interval([0.0, 0.1, 0.2, 0.3]) == (low, high)


class Backwards:
    """The last config first, as a tuner that a reader adds."""

    def __init__(self, space, seed, default):
        self.left = [config for config in space.configs if config != default]
        self.left += [default] if default else []

    def ask(self):
        return self.left.pop()

    def tell(self, config, ms):
        pass


class TestTheLeague:
    @pytest.fixture(autouse=True)
    def here(self, monkeypatch):
        """No processes, and two tuners of our own."""
        monkeypatch.setattr(command, "TUNERS", {name: TUNERS[name] for name in (OURS, BARE)})

    def test_two_tuners_on_two_spaces_have_the_same_figures_twice(self, folder, monkeypatch):
        pages = [league(folder, monkeypatch=monkeypatch) for _ in range(2)]
        without_times = [text.split("## Seconds, and time")[0] for text in pages]
        assert without_times[0] == without_times[1]
        assert "2 tuners search 2 recorded spaces, 50" in pages[0]
        assert f"| {OURS} | 1.000 / 1.000 / 1.000 |" in pages[0]
        assert league(folder, "--page", monkeypatch=monkeypatch) == pages[1]

    def test_a_tuner_is_added_by_its_class(self, folder, monkeypatch):
        league(folder, monkeypatch=monkeypatch)
        text = league(folder, "--tuner", f"{__name__}:Backwards", monkeypatch=monkeypatch)
        assert "3 tuners" in text
        rows = [line for line in text.splitlines() if line.startswith(f"| {__name__}:Backwards | +0.")]
        assert rows

    def test_a_trace_of_another_recording_is_left_out(self, folder, monkeypatch):
        league(folder, monkeypatch=monkeypatch)
        league(folder, "--tuner", f"{__name__}:Backwards", monkeypatch=monkeypatch)
        written(folder / "recordings/sum.json.gz", recording({**TIMES, (8, 1): 0.5}))
        text = league(folder, monkeypatch=monkeypatch)
        assert f"left out: {__name__}:Backwards" in text
