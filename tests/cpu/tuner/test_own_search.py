"""Searchers and efforts of the user's own, through `tune`."""

import random
from dataclasses import replace
from functools import partial

import pytest

from triton_ops import Budget, Config, ConfigSpace, Effort, FunctionKernel, RacePolicy, SettingsError, tune
from triton_ops.records import Record
from triton_ops.request.effort import PRESETS
from triton_ops.search import Search, make_searcher

SPACE = ConfigSpace({"work": [1, 2, 3, 4, 5, 6, 7, 8]})


def busy(work=8):
    return sum(range(400 * work))


class Descending:
    """Proposes every config in the order of the space backwards, and notes what it is told."""

    def __init__(self, space, seed=0):
        self.left, self.seed, self.told = list(space), seed, []

    def ask(self, count):
        return [self.left.pop() for _ in range(min(count, len(self.left)))]

    def tell(self, trials):
        self.told += trials


def made_backwards(space, seed):
    return Descending(space, seed)


def tuned(tmp_path, **options):
    return tune(FunctionKernel(busy), cache_dir=tmp_path, **{"space": SPACE, "effort": SHORT, **options})


SHORT = Effort(name="short", race=RacePolicy(checkpoints=(4,), seconds=1.0), finalists=2)


class TestOwnSearcher:
    @pytest.mark.parametrize(
        "search", [Descending, made_backwards, partial(Descending)], ids=["class", "def", "partial"]
    )
    def test_what_makes_a_searcher_is_called_with_the_space_and_the_seed(self, search, tmp_path):
        result = tuned(tmp_path, search=search, seed=3)
        assert len(result.trials) == 8
        assert result.best_config == {"work": 1}

    def test_a_searcher_is_told_of_every_trial_in_its_order(self, tmp_path):
        searcher = Descending(SPACE)
        result = tuned(tmp_path, search=searcher)
        assert [trial.config for trial in searcher.told] == [trial.config for trial in result.trials]
        assert [trial.config["work"] for trial in searcher.told][1:] == [8, 7, 6, 5, 4, 3, 2]  # after the default

    def test_the_record_names_the_class_or_function(self, tmp_path):
        tuned(tmp_path / "a", search=partial(Descending))
        tuned(tmp_path / "b", search=made_backwards)
        texts = [next((tmp_path / name).glob("*.record.json")).read_text() for name in "ab"]
        assert f'"{__name__}.Descending"' in texts[0]
        assert f'"{__name__}.made_backwards"' in texts[1]

    def test_a_searcher_that_repeats_itself_ends(self, tmp_path):
        class Stubborn(Descending):
            def ask(self, count):
                return [Config(work=2)] * count

        assert len(tuned(tmp_path, search=Stubborn).trials) == 2  # the default and that one

    def test_a_config_outside_of_the_space_is_a_trial_that_was_refused(self, tmp_path):
        class Astray(Descending):
            def ask(self, count):
                return [Config(work=99), *super().ask(count)]

        result = tuned(tmp_path, search=Astray)
        assert [trial.config for trial in result.trials if trial.status == "constraint"] == [Config(work=99)]
        assert len(result.trials) == 9

    @pytest.mark.parametrize("answer", [{"work": 2}, None, "work=2"])
    def test_what_is_no_config_is_refused_with_the_value(self, answer, tmp_path):
        class Wrong(Descending):
            def ask(self, count):
                return [answer]

        with pytest.raises(SettingsError, match=r"Wrong.ask returned .*, which is no Config"):
            tuned(tmp_path, search=Wrong)

    @pytest.mark.parametrize("search", [3, object(), ["auto"]])
    def test_what_can_neither_search_nor_make_a_searcher_is_refused_before_any_work(self, search, tmp_path):
        with pytest.raises(SettingsError, match="neither a searcher with methods `ask` and `tell`"):
            tuned(tmp_path, search=search)
        assert list(tmp_path.iterdir()) == []

    def test_a_function_that_makes_something_else_is_refused(self, tmp_path):
        with pytest.raises(SettingsError, match=r"lambda> made .*no methods"):
            make_searcher(lambda space, seed: seed, SPACE)

    def test_a_searcher_that_estimates_its_gain_ends_the_search(self, tmp_path):
        class Content(Descending):
            def expected_gain(self):
                return 0.0 if len(self.told) >= 3 else 1.0

        result = tuned(tmp_path, search=Content, space=ConfigSpace({"work": range(1, 41)}))
        assert result.stopped == "settled"
        assert len(result.trials) < 40

    def test_a_search_goes_on_for_a_gain_that_is_just_worthwhile(self, tmp_path):
        class Constant(Descending):
            def expected_gain(self):
                return 0.25

        for worthwhile, stopped in ((0.25, "complete"), (0.26, "settled")):
            effort = replace(Effort.named("quick"), worthwhile=worthwhile)
            result = tuned(tmp_path / stopped, search=Constant, space=ConfigSpace({"work": range(1, 5)}), effort=effort)
            assert result.stopped == stopped

    def test_an_effort_that_persists_makes_as_many_trials_again(self, tmp_path):
        class Content(Descending):
            def expected_gain(self):
                return 0.0 if len(self.told) >= 3 else 1.0

        counts = []
        for persistence in (0.0, 2.0):
            effort = replace(Effort.named("quick"), persistence=persistence)
            space = ConfigSpace({"work": range(1, 41)})
            result = tuned(tmp_path / str(persistence), search=Content, space=space, effort=effort)
            assert result.stopped == "settled"
            counts.append(len(result.trials))
        assert counts[1] >= 2 * counts[0]
        assert counts[1] < 40


def test_names_of_searches():
    assert Search("auto").name == "auto"
    assert Search(random.Random).name == "random.Random"
    assert Search(Descending(SPACE)).name == f"{__name__}.Descending"


class TestOwnEffort:
    def test_an_effort_of_ones_own_is_what_is_done(self, tmp_path):
        result = tuned(tmp_path, effort=Effort(name="three", search="random", budget=Budget(trials=3)))
        assert len(result.trials) == 3
        assert result.stopped == "trials"

    def test_a_record_answers_the_same_name_and_no_other(self, tmp_path):
        assert not tuned(tmp_path).from_cache
        assert tuned(tmp_path).from_cache
        assert not tuned(tmp_path, effort=Effort(name="other", finalists=2)).from_cache

    @pytest.mark.processes
    def test_the_searcher_stays_in_this_process(self, tmp_path):
        class Unportable(Descending):
            def __reduce__(self):
                raise TypeError("this searcher cannot be sent")

        result = tuned(tmp_path, search=Unportable(SPACE), isolate=True)
        assert result.best_config == {"work": 1}
        assert "inline" not in result.place

    @pytest.mark.parametrize(
        "wrong",
        [
            {"name": ""},
            {"finalists": 0},
            {"near": -0.1},
            {"previews": "many"},
            {"worthwhile": None},
        ],
    )
    def test_a_value_that_cannot_be_is_refused(self, wrong):
        with pytest.raises(SettingsError):
            Effort(**{"name": "mine", **wrong})

    def test_fields_are_passed_by_name(self):
        with pytest.raises(TypeError):
            Effort("mine")

    @pytest.mark.parametrize("effort", [1, {"name": "quick"}, Effort])
    def test_what_is_no_effort_is_refused(self, effort):
        with pytest.raises(SettingsError, match="effort is"):
            Effort.named(effort)

    def test_shipped_efforts_answer_lesser_ones(self):
        class Found:
            effort, _at_end, goes_on = "full", True, False
            budget = PRESETS["full"].budget

        assert Record.covers(Found, PRESETS["quick"])
        assert Record.covers(Found, PRESETS["full"])
        assert not Record.covers(Found, PRESETS["exhaustive"])
        assert not Record.covers(Found, SHORT)
