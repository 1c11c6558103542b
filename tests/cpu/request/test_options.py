"""The options of a tune: one value, whose names and defaults every door has, and which reaches the station whole."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import fields, replace
from functools import partial
from typing import Annotated

import pytest
import typer

from triton_ops import Budget, CacheError, Patience, SettingsError, choose, tune, tune_many, tuning
from triton_ops.evaluation import Assignment
from triton_ops.request import Effort, TuneOptions, TuneProblem
from triton_ops.terminal.option_types import as_typed

DEFAULTS = {each.name: each.default for each in fields(TuneOptions)}
PROBLEM = {each.name: each.default for each in fields(TuneProblem)}


"""Parameters that mean something of the whole run, are texts, or are flags that switch off."""


def parameters(door):
    """Names and defaults of the parameters by name."""
    signature = inspect.signature(door).parameters.values()
    return {each.name: each.default for each in signature if each.default is not each.empty}


def test_a_tune_has_every_option_and_every_part_of_a_problem():
    assert {*DEFAULTS, *PROBLEM} - {"weight"} == {*inspect.signature(tune).parameters} - {"listener"}
    assert {*DEFAULTS} - {"patience", "keep"} <= {*parameters(tune_many)}


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        ([], TuneOptions()),
        (["--no-wait", "--no-transfer"], TuneOptions(wait=False, transfer=False)),
        (["--inline", "--force"], TuneOptions(isolate=False, force=True)),
        (["--effort", "full", "--seed", "3", "--budget-s", "2.5"], TuneOptions(effort="full", seed=3, budget_s=2.5)),
    ],
)  # fmt: skip
def test_a_command_has_an_option_for_each_field_and_gets_the_whole_value(typed, options):
    given = []

    def command(target: str = "", *, options: Annotated[TuneOptions, ""]):
        given.append((target, options))

    assert {*parameters(as_typed(command))} == {"target", *DEFAULTS} - {"patience", "keep"}
    app = typer.Typer(add_completion=False)
    app.command()(as_typed(command))
    app(typed, standalone_mode=False)
    assert given == [("", options)]


def test_a_command_can_take_some_of_the_fields_and_name_what_one_means_there():
    def command(*, options: Annotated[TuneOptions, "budget_s seed", {"budget_s": "Of the whole list."}]): ...

    assert [*parameters(as_typed(command))] == ["budget_s", "seed"]
    (described,) = inspect.signature(as_typed(command)).parameters["budget_s"].annotation.__metadata__
    assert described.help == "Of the whole list."


def test_a_command_refuses_a_folder_of_records_that_is_a_file_before_it_begins():
    def command(*, options: Annotated[TuneOptions, "seed cache_dir"]): ...

    with pytest.raises(CacheError, match="cannot be a cache folder"):
        as_typed(command)(seed=0, cache_dir=__file__)


def test_a_parameter_without_an_option_of_its_own_is_the_shared_one_of_its_name():
    given = []

    def command(gpu: str | None = None, device: Annotated[str, typer.Option("--on")] = "cpu", *, plain: int = 0):
        given.append((gpu, device, plain))

    app = typer.Typer(add_completion=False)
    app.command()(as_typed(command))
    app(["--gpu", "H200", "--on", "cuda", "--plain", "3"], standalone_mode=False)
    assert given == [("H200", "cuda", 3)]
    (described,) = inspect.signature(as_typed(command)).parameters["gpu"].annotation.__metadata__
    assert "H200, or sm_90" in described.help


def in_a_block(**options):
    with tuning(**options):
        pass


@pytest.mark.parametrize("door", [partial(choose, {"one": len}), in_a_block])
def test_doors_that_pass_options_on_take_those_of_the_value_alone(door):
    with pytest.raises(SettingsError, match="takes no option cold, trails") as refused:
        door(cold=False, trails=3)
    assert refused.value.hint.partition(" are ")[2] == ", ".join(sorted({*DEFAULTS, "listener"}))


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"seed": 1.5}, {"isolate": "yes"}, {"isolate": 1}])
def test_a_wrong_option_is_refused_when_the_value_is_made(wrong):
    with pytest.raises(SettingsError, match=f"{next(iter(wrong))}"):
        TuneOptions(**wrong)
    with pytest.raises(SettingsError):
        tune(len, space={"n": [1]}, **wrong)


def test_an_effort_is_settled_by_its_options_and_stays_so(monkeypatch):
    asked = TuneOptions(effort="full", search="random", trials=7, patience=Patience(trial_s=5.0), seed=3)
    effort = asked.settled()
    assert (effort.name, effort.search, effort.budget) == ("full", "random", Budget(7, 600, firm=False))
    assert effort.patience.trial_s == 5.0
    settled = TuneOptions(seed=3).of_effort(TuneOptions().settled())
    monkeypatch.setenv("TRITON_OPS_EFFORT", "full")
    assert settled.settled().name == "quick"
    assert TuneOptions().settled().name == "full"
    assert pickle.loads(pickle.dumps(settled)).settled() == settled.settled()


def test_the_options_reach_the_station_without_the_search():
    def search(space, seed):
        raise AssertionError("a station asks no searcher")

    task = TuneProblem(target=pow, args=(2, 3), space={"mod": [5, 7]}, cold=False).request().checked()
    options = TuneOptions(search=search, isolate=False, wait=False, cache_dir="records")
    assignment = Assignment.of(task, options, None)
    assert (assignment.cold, assignment.options.isolate, assignment.options.wait) == (False, False, False)
    assert assignment.options.cache_dir == "records"
    assert assignment.effort == replace(Effort.named("quick"), search="auto")
