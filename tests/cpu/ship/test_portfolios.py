"""At most k configs for many problems: the exact choice beside all choices, bounds, and cells that nobody measured."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.limits import ENOUGH_S
from tests.records import record
from tests.runs import ID, a_trial, begun
from triton_ops import choose_portfolio
from triton_ops.records import Timing, store_in
from triton_ops.records import TrialOrigin as Origin
from triton_ops.ship.portfolio import least_mean, least_worst, mean, worst
from triton_ops.space import Config
from triton_ops.values import Key, Status, Trial

INF = math.inf
CELLS = st.one_of(st.just(INF), st.sampled_from([0.0, 0.01, 0.05, 0.1, 0.5, 2.0]))


@st.composite
def matrices(draw):
    columns = draw(st.integers(1, 7))
    rows = draw(st.lists(st.lists(CELLS, min_size=columns, max_size=columns), min_size=1, max_size=6))
    weights = draw(st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=len(rows), max_size=len(rows)))
    return rows, weights, draw(st.integers(1, 4))


def best_of_all(rows, k, value):
    columns = range(len(rows[0]))
    return min(value(chosen) for size in range(1, k + 1) for chosen in itertools.combinations(columns, size))


# The cover that the search by halves ends with has a larger mean than another one of the same worst regret.
SEVERAL_COVERS = (
    [[0.01, 0.1, 0.0, 0.0, 2.0], [0.0, 0.0, 2.0, INF, 0.01], [INF, 2.0, 0.05, 0.01, 2.0],
     [0.0, 0.0, 0.01, 0.0, 0.5], [0.5, 0.1, 0.05, INF, 0.05]], [1.0] * 5, 2,
)  # fmt: skip


@settings(deadline=None)
@given(matrices())
@example(SEVERAL_COVERS)
@example(([[0.05, 0.1], [0.1, INF], [0.1, 0.01], [INF, INF]], [3.0, 3.0, 3.0, 0.5], 2))  # sums in two orders differ
def test_the_choice_is_the_best_of_all_choices(given):
    rows, weights, k = given
    result = least_worst(rows, weights, k, ENOUGH_S)
    least, mean_then = best_of_all(rows, k, lambda chosen: (worst(rows, chosen), mean(rows, weights, chosen)))
    assert result.value == least
    assert least == INF or mean(rows, weights, result.columns) == pytest.approx(mean_then)
    assert result.exact
    result = least_mean(rows, weights, k, ENOUGH_S)
    assert result.value == pytest.approx(best_of_all(rows, k, lambda chosen: mean(rows, weights, chosen)))
    assert result.exact
    assert len(result.columns) <= k
    assert result.value == mean(rows, weights, result.columns)


# A search that has no time leaves the worst regret at 0.1, and 0.05 can be had.
UNFINISHED = (
    [[INF, 0.01, 0.0, 0.5], [0.01, INF, INF, 0.05], [0.05, 0.1, 0.0, 0.01], [0.01, 2.0, 0.5, 0.5],
     [0.1, 0.05, 0.1, 0.01]], [1.0] * 5, 2,
)  # fmt: skip


@settings(deadline=None)
@given(matrices(), st.sampled_from([0.0, 0.001, 0.01]))
@example(UNFINISHED, 0.0)
def test_a_search_that_is_cut_short_has_a_bound_that_no_choice_is_below(given, seconds):
    rows, weights, k = given
    result = least_worst(rows, weights, k, seconds=seconds)
    assert result.bound <= best_of_all(rows, k, lambda chosen: worst(rows, chosen)) <= result.value
    result = least_mean(rows, weights, k, seconds=seconds)
    assert result.bound <= best_of_all(rows, k, lambda chosen: mean(rows, weights, chosen)) + 1e-9
    assert result.bound <= result.value


def greedy(rows, k, value):
    """Columns that are added while one lowers the value."""
    chosen = min(((column,) for column in range(len(rows[0]))), key=value)
    while len(chosen) < k:
        longer = min(((*chosen, column) for column in range(len(rows[0]))), key=value)
        if value(longer) >= value(chosen):
            break
        chosen = longer
    return value(chosen)


def unserved_first(rows, weights, chosen):
    """The weight of the rows that nothing serves, each of which outweighs all that are served, and the others' sum."""
    pairs = [
        (weight, min((row[column] for column in chosen), default=INF))
        for weight, row in zip(weights, rows, strict=True)
    ]
    served = math.fsum(weight * regret for weight, regret in pairs if regret < INF)
    return sum(weight for weight, regret in pairs if regret == INF), served


# A search that has no time does not find the two columns that serve all rows: single steps lead elsewhere.
SEVERAL_STEPS = (
    [[2.0, 2.0, 0.01, INF, INF, 0.5, INF], [INF, 0.01, 0.01, INF, 0.1, INF, 0.01], [INF, INF, INF, INF, 0.05, 0.1, INF],
     [0.1, INF, 0.0, INF, INF, INF, 0.5], [0.01, 0.01, 2.0, INF, 0.0, INF, 0.1], [2.0, 0.05, INF, INF, INF, INF, INF]],
    [1.0, 1.0, 0.5, 0.5, 0.5, 1.0], 2,
)  # fmt: skip


@settings(deadline=None)
@given(matrices(), st.sampled_from([0.0, 0.01, 10.0]))
@example(SEVERAL_STEPS, 0.0)
def test_no_greedy_choice_is_better(given, seconds):
    rows, weights, k = given
    columns = least_mean(rows, weights, k, seconds=seconds).columns
    unserved, total = greedy(rows, k, lambda chosen: unserved_first(rows, weights, chosen))
    assert unserved_first(rows, weights, columns) <= (unserved, total + 1e-9)
    choice = least_worst(rows, weights, k, seconds=10.0)
    assert choice.value <= greedy(rows, k, lambda chosen: worst(rows, chosen))


def test_among_choices_of_one_worst_regret_the_mean_is_small():
    rows = [[0.0, 0.1, 0.0], [0.1, 0.1, 0.0], [0.1, 0.1, 0.1]]
    assert least_worst(rows, [1.0] * 3, 1).columns == (2,)


def test_a_problem_that_nothing_serves_leaves_the_others_served():
    rows = [[0.0, INF], [INF, INF], [INF, 0.2]]
    result = least_worst(rows, [1.0] * 3, 2)
    assert result.value == INF
    assert set(result.columns) == {0, 1}
    assert result.exact, "no two configs serve it"


@pytest.mark.processes
def test_many_problems_and_configs_end_in_time_with_a_bound():
    rows = [[abs(math.sin(1 + 37 * at * other)) for other in range(300)] for at in range(1, 41)]
    result = least_mean(rows, [1.0] * 40, 5, seconds=1.0)
    assert 0 < result.bound <= result.value < mean(rows, [1.0] * 40, (0,))
    result = least_worst(rows, [1.0] * 40, 5, seconds=1.0)
    assert 0 < result.bound <= result.value


def trials(folder, label, times, failed=(), **more):
    """A record with a run log, of configs `n` with their milliseconds; the first is the default."""
    key = Key(
        kernel="wait", problem={"label": label}, identity={"source": more.pop("source", "a")},
        device={"name": more.pop("device", "CPU")}, cache_state="cold", label=label,
    )  # fmt: skip
    measured = [a_trial(n, ms) for n, ms in times.items()]
    log = begun(folder / "runs" / key.id, key=key, key_id=key.id)
    for trial in [*measured, *(Trial(Config(n=n), Status.RUNTIME, error="no") for n in failed)]:
        log.trial(trial, Origin.SEARCHER)
    best = min(measured, key=lambda trial: trial.median_ms)
    kept = record(
        key=key, winner=best.config, timing=Timing(best.median_ms, 0.0, 0.0, 1), default=measured[0].config,
        default_timing=Timing(measured[0].median_ms, 0.0, 0.0, 1), run=ID, **more,
    )  # fmt: skip
    store_in(str(folder)).put(kept)


def test_a_portfolio_of_what_was_measured_says_who_is_served_by_what_and_what_nobody_tried(tmp_path):
    trials(tmp_path, "small", {1: 1.0, 2: 2.0, 3: 1.1})
    trials(tmp_path, "large", {1: 20.0, 2: 10.0, 3: 11.0})
    trials(tmp_path, "partly", {1: 4.0, 2: 1.0}, failed=[3])
    one = choose_portfolio("wait", 1, cache_dir=tmp_path)
    assert one.configs == (Config(n=2),)
    assert (one.worst, one.exact) == (pytest.approx(1.0), True)
    two = choose_portfolio("wait", 2, cache_dir=tmp_path)
    assert set(two.configs) == {Config(n=1), Config(n=2)}
    assert (two.worst, two.mean, two.unserved, two.unmeasured) == (0.0, 0.0, (), {})
    assert (two.measured, two.cells) == (8, 9)
    assert {each.label: each.gain for each in two.served} == {"small": 1.0, "large": 2.0, "partly": 4.0}


def test_a_config_serves_only_where_it_was_tried_and_what_is_not_served_is_said(tmp_path, cli):
    trials(tmp_path, "a", {1: 1.0, 2: 0.5})
    trials(tmp_path, "b", {1: 1.0, 3: 0.5})
    result = choose_portfolio("wait", 1, cache_dir=tmp_path)
    assert result.configs == (Config(n=1),), "it is slow, and is known to run on both"
    assert result.worst == pytest.approx(1.0)
    trials(tmp_path, "c", {4: 1.0})
    result = choose_portfolio("wait", 1, objective="mean", cache_dir=tmp_path)
    assert [each.label for each in result.unserved] == ["c"]
    assert result.unmeasured == {Config(n=1): ("c",)}
    ran = cli("lock", "portfolio", "wait", "-k", "1", "--cache-dir", tmp_path)
    assert ran.code == 5
    assert "c: none of these configs is known to run there; its best is (n=4)" in ran.err
    assert "never tried on 1 problems, such as c" in ran.err
    assert "100.0%" in ran.out
    ran = cli("lock", "portfolio", "wait", "-k", "2", "--json", "--cache-dir", tmp_path)
    assert ran.code == 0
    assert json.loads(ran.out)["exact"] is True


def test_records_of_other_sources_do_not_count_and_devices_are_told_apart(tmp_path, cli):
    trials(tmp_path, "a", {1: 1.0}, created="2026-01-02")
    trials(tmp_path, "b", {1: 1.0}, source="old", created="2026-01-01")
    result = choose_portfolio("wait", cache_dir=tmp_path)
    assert (len(result.served), result.left_out) == (1, {"another source or other versions": 1})
    trials(tmp_path, "a", {2: 1.0}, device="GPU")
    ran = cli("lock", "portfolio", "wait", "--cache-dir", tmp_path)
    assert (ran.code, "on several devices: CPU, GPU" in ran.err) == (2, True)
    assert choose_portfolio("wait", device="GPU", cache_dir=tmp_path).configs == (Config(n=2),)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wait", "-k", "0"], "k is 0; it must be a whole number"),
        (["wait", "--objective", "best"], "it is worst or mean"),
        (["wait", "--weight", "a"], "is not LABEL=NUMBER"),
        (["wait", "--weight", "z=1"], "no problem is called 'z'"),
        (["wait", "--weight", "a=-1"], "the weight of a is -1.0"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path, cli, words, said):
    trials(tmp_path, "a", {1: 1.0})
    ran = cli("lock", "portfolio", *words, "--cache-dir", tmp_path)
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"), [(["nothing"], "there are no records of nothing"), (["wait", "--gpu", "TPU"], "wait on TPU")]
)
def test_no_record_has_the_code_of_all_commands(tmp_path, cli, words, said):
    trials(tmp_path, "a", {1: 1.0})
    ran = cli("lock", "portfolio", *words, "--cache-dir", tmp_path)
    assert (ran.code, ran.out) == (4, "")
    assert said in ran.err
