"""The schedule of many problems: what is measured where and next, simulated without time and devices."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet import Fleet, over, plans
from triton_ops.many.schedule import Order, OrderStep, Planned, Schedule


def test_problems_that_save_most_for_each_second_come_first():
    problems = [
        Planned(name="little", kernel="a", gain=0.01),
        Planned(name="often", kernel="b", weight=100.0),
        Planned(name="slow", kernel="c", gain=0.4, seconds=60.0),
        Planned(name="usual", kernel="d"),
    ]
    fleet = Fleet(Schedule(problems), lambda *_: 1.0).run(["a"])
    assert fleet.ended == ["often", "usual", "slow", "little"]


def test_the_last_problems_of_several_devices_come_the_longest_first_unless_a_budget_may_leave_them_out():
    problems = [*plans(5, kernels=5, seconds=2.0), Planned(name="long", kernel="long", seconds=8.0)]

    def took(name, _device):
        return 8.0 if name == "long" else 2.0

    assert Fleet(Schedule(problems), took).run(["a", "b"]).now_s == 10.0  # of 18 s on both
    assert Fleet(Schedule(problems, budget_s=1000.0), took).run(["a", "b"]).now_s == 12.0
    assert Fleet(Schedule(problems), took).run(["a"]).ended[-1] == "long"


def test_the_longest_of_the_last_problems_of_several_devices_begin_early():
    problems = [*plans(16, kernels=16, seconds=2.0), Planned(name="long", kernel="long", seconds=8.0, gain=0.01)]

    def first(devices, **more):
        return [name for order in Schedule(problems, ahead=2, **more).joined(devices, 0.0) for name in order.names]

    assert "long" in first("ab")
    assert "long" not in first("a")
    assert "long" not in first("ab", budget_s=1000.0)


def test_what_a_kernel_gained_corrects_what_is_expected_of_its_other_problems():
    schedule = Schedule(plans(40, kernels=2))
    fleet = Fleet(schedule, lambda *_: 1.0, gain=lambda name: 0.5 if int(name[1:]) % 2 else 0.0).run(["a"])
    last = [int(name[1:]) % 2 for name in fleet.ended]
    assert sum(last[:20]) > 16


def test_a_kernel_whose_first_problem_is_under_way_is_put_off():
    schedule = Schedule([*plans(4), Planned(name="other", kernel="other")])
    assert Order(OrderStep.MEASURE, "b", ("other",)) in schedule.joined("ab", 0.0)


def test_a_free_device_takes_what_a_busy_one_has_prepared():
    schedule = Schedule(plans(3), ahead=2)
    schedule.joined("a", 0.0)
    schedule.ready("a", "p0", 0.5)
    assert schedule.joined("b", 1.0) == [Order(OrderStep.PREPARE, "a", ("p1",)), Order(OrderStep.MEASURE, "b", ("p2",))]
    assert schedule.ended("b", "p2", 2.0, seconds=1.0) == [
        Order(OrderStep.PREPARE, "a", ()), Order(OrderStep.MEASURE, "b", ("p1",))
    ]  # fmt: skip


def test_devices_that_prepare_nothing_take_what_is_best_when_they_are_free():
    schedule = Schedule(plans(2), ahead=0)
    assert schedule.joined("a", 0.0) == [Order(OrderStep.MEASURE, "a", ("p0",))]
    assert schedule.ended("a", "p0", 1.0, seconds=1.0) == [Order(OrderStep.MEASURE, "a", ("p1",))]


def test_what_a_lost_device_measured_and_prepared_goes_on_elsewhere():
    schedule = Schedule(plans(3))
    schedule.joined("ab", 0.0)
    assert schedule.gone("a", 1.0) == []
    assert set(schedule.waiting) == {"p0", "p2"}
    schedule = Schedule(plans(3), ahead=1)
    schedule.joined("ab", 0.0)
    schedule.ready("a", "p0", 0.5)
    assert schedule.gone("a", 1.0) == [Order(OrderStep.PREPARE, "b", ("p0", "p1"))]
    fleet = Fleet(Schedule(plans(20), ahead=1), lambda *_: 1.0, deaths={"a": 3.5, "b": 4.5}).run(["a", "b", "c"])
    assert sorted(fleet.ended) == sorted(f"p{at}" for at in range(20))


def test_a_problem_with_which_devices_are_lost_again_and_again_is_given_up():
    schedule = Schedule(plans(3))
    schedule.joined("abc", 0.0)
    schedule.gone("a", 1.0)
    schedule.ended("b", "p1", 1.5, seconds=1.0)
    assert schedule.gone("b", 2.0) == []
    assert schedule.lost == ["p0"]


def test_problems_stay_on_the_devices_that_can_measure_them():
    problems = [*plans(3), Planned(name="here", kernel="k0", weight=0.1, devices=frozenset({"b"}))]
    fleet = Fleet(Schedule(problems), lambda *_: 1.0).run(["a", "b"])
    assert "here" in [name for name, *_ in fleet.measured["b"]]
    nowhere = Schedule([Planned(name="x", kernel="k", devices=frozenset({"c"}))])
    assert nowhere.joined("a", 0.0) == []
    assert over(nowhere)
    assert nowhere.waiting == ["x"]


def test_nothing_is_begun_when_the_budget_is_spent_and_it_is_shared_among_what_is_left():
    schedule = Schedule(plans(30), budget_s=20.0)
    fleet = Fleet(schedule, lambda *_: 100.0).run(["a"])
    assert fleet.now_s <= 20.0
    assert fleet.limits["p0"] == pytest.approx(2.0)  # three times its share, 20 s / 30
    assert {*fleet.ended, *schedule.unbegun} == {f"p{at}" for at in range(30)}
    assert Schedule(plans(2), budget_s=0.5).joined("a", 0.0) == []


@given(
    st.integers(0, 60), st.integers(1, 6), st.integers(1, 8), st.randoms(use_true_random=False),
    st.one_of(st.none(), st.floats(0.1, 50.0)),
)  # fmt: skip
def test_whatever_fails_each_problem_ends_once_or_is_said_to_be_left(count, kernels, devices, rng, budget_s):
    names = [f"d{at}" for at in range(devices)]
    deaths = {name: rng.uniform(0.0, 60.0) for name in names if rng.random() < 0.5}
    schedule = Schedule(plans(count, kernels), budget_s=budget_s, ahead=rng.randrange(4))
    fleet = Fleet(
        schedule, lambda *_: rng.uniform(0.1, 9.0), lambda _: rng.choice([None, 0.0, 0.3]), deaths,
        lambda *_: rng.choice([0.0, 3.0, 30.0, float("inf")]),
    ).run(names)  # fmt: skip
    left = [*schedule.unbegun, *schedule.lost, *schedule.waiting]
    assert sorted([*fleet.ended, *left]) == sorted(f"p{at}" for at in range(count))
    assert over(schedule)
    if not deaths and budget_s is None:
        assert len(fleet.ended) == count


def test_a_fleet_is_busy_to_the_end():
    rng = random.Random(5)
    took = {f"p{at}": rng.uniform(2.0, 6.0) for at in range(2000)}
    devices = [f"d{at}" for at in range(64)]
    fleet = Fleet(Schedule(plans(2000, kernels=12)), lambda name, _: took[name]).run(devices)
    assert sum(took.values()) / 64 / fleet.now_s > 0.95


def test_a_device_begins_with_what_is_ready_first_and_prepares_more_as_long_as_nothing_is():
    schedule = Schedule(plans(7, kernels=7), ahead=1)
    assert schedule.joined("a", 0.0) == [Order(OrderStep.PREPARE, "a", ("p0", "p1", "p2", "p3"))]
    assert schedule.waits
    assert not over(schedule)
    assert schedule.ready("a", "p1", 1.0) == [Order(OrderStep.MEASURE, "a", ("p1",))]  # and three are prepared
    assert not schedule.waits
    assert schedule.ready("a", "p2", 1.5) == []
    assert schedule.ended("a", "p1", 2.0, seconds=1.0) == [
        Order(OrderStep.MEASURE, "a", ("p2",)), Order(OrderStep.PREPARE, "a", ("p0", "p3", "p4"))
    ]  # fmt: skip
    assert schedule.ready("a", "p3", 2.5) == []
    assert schedule.ready("a", "p0", 2.5) == []
    assert schedule.ended("a", "p2", 3.0, seconds=1.0) == [Order(OrderStep.MEASURE, "a", ("p0",))]
    assert schedule.ended("a", "p0", 4.0, seconds=1.0)[0] == Order(OrderStep.MEASURE, "a", ("p3",))
    schedule.ended("a", "p3", 5.0, seconds=1.0)
    assert schedule.waits
    assert schedule.ready("a", "p4", 6.0) == [Order(OrderStep.MEASURE, "a", ("p4",))]


def test_of_the_last_problems_that_are_ready_the_longest_is_measured_first():
    problems = [*plans(5, kernels=5, seconds=2.0), Planned(name="long", kernel="long", seconds=8.0)]

    def took(name, _device):
        return 8.0 if name == "long" else 2.0

    assert Fleet(Schedule(problems, ahead=3), took, prepares=lambda *_: 0.1).run(["a", "b"]).now_s <= 10.2


def test_what_is_wholly_prepared_comes_first_unless_a_budget_may_leave_out_what_is_worth_most():
    for budget_s, first in ((None, "p1"), (100.0, "p0")):
        schedule = Schedule(plans(5, kernels=5), ahead=2, budget_s=budget_s)
        schedule.joined("a", 0.0)
        schedule.ready("a", "p2", 1.0)  # is measured
        schedule.ready("a", "p0", 1.0, whole=False)
        schedule.ready("a", "p1", 1.0, whole=False)
        schedule.ready("a", "p1", 2.0, whole=True)
        orders = schedule.ended("a", "p2", 3.0, seconds=2.0)
        assert [order.names for order in orders if order.step is OrderStep.MEASURE] == [(first,)]


def test_a_device_does_not_wait_for_the_only_problem_nor_for_long():
    schedule = Schedule(plans(1), ahead=2)
    assert schedule.joined("a", 0.0) == [Order(OrderStep.MEASURE, "a", ("p0",))]
    schedule = Schedule(plans(2), ahead=2)
    assert schedule.joined("a", 0.0) == [Order(OrderStep.PREPARE, "a", ("p0", "p1"))]
    assert schedule.looked(19.0) == []
    assert schedule.looked(21.0) == [Order(OrderStep.MEASURE, "a", ("p0",))]
    schedule = Schedule(plans(3), ahead=1, budget_s=5.0)
    schedule.joined("a", 0.0)
    assert schedule.looked(4.5) == [Order(OrderStep.PREPARE, "a", ())]
    assert over(schedule)
    assert not schedule.waits
    assert len(schedule.unbegun) == 3


def test_problems_that_take_long_to_prepare_hold_nothing_up():
    def prepares(_device, name):
        return 40.0 if name == "p1" else 0.5

    for devices in ("a", "ab"):
        fleet = Fleet(Schedule(plans(40, kernels=40), ahead=2), lambda *_: 2.0, prepares=prepares).run(devices)
        assert fleet.now_s <= 80.0 / len(devices) + 1.0
        assert fleet.ended.index("p1") > 15


def test_what_a_device_tells_of_problems_that_are_elsewhere_by_now_changes_nothing():
    schedule = Schedule(plans(8), ahead=1)
    schedule.joined("ab", 0.0)
    assert schedule.ready("c", "p0", 1.0) == []
    assert schedule.ready("b", "p0", 1.0) == []  # a prepares it
    assert Order(OrderStep.MEASURE, "a", ("p0",)) in schedule.ready("a", "p0", 1.0)
    assert schedule.ready("a", "p0", 1.0) == []  # it is measured
    orders = schedule.gone("a", 2.0)
    assert all(order.device == "b" for order in orders)
    assert len(schedule.waiting) == 8
