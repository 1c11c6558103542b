"""Rounds over all arms, and the race: which arms are dropped, and when the race ends."""

import itertools
import math
import random
import weakref

import pytest

from tests.clocks import MS, Field
from triton_ops.exceptions import SettingsError
from triton_ops.timing import Arm, HostTimer, Launch, RacePolicy, Rounds, Sampler
from triton_ops.timing.rounds import drop_slower, leader, next_order, visit

# Rounds


def test_every_arm_is_visited_once_per_round_in_a_new_order_and_then_backwards():
    field = Field(6)
    Rounds(timer=field.timer, rng=random.Random(3)).run(field.arms, 20)
    rounds = field.rounds(6)
    assert len(rounds) == 20
    assert all(sorted(visited) == list(range(6)) for visited in rounds)
    assert all(rounds[turn + 1] == rounds[turn][::-1] for turn in range(0, 20, 2))
    assert len({tuple(visited) for visited in rounds[::2]}) > 5


def test_the_seed_decides_the_order_of_rounds():
    orders = []
    for seed in (1, 1, 2):
        field = Field(6)
        Rounds(timer=field.timer, rng=random.Random(seed)).run(field.arms, 4)
        orders.append(field.log)
    assert orders[0] == orders[1] != orders[2]


def test_dropped_and_failed_arms_are_left_out_of_the_order():
    arms = Field(4).arms
    before = next_order(arms, [], 0, random.Random(0))
    arms[0].dropped_at, arms[1].error = 3, RuntimeError()
    assert next_order(arms, before, 1, random.Random(0)) == [arm for arm in reversed(before) if arm in arms[2:]]
    assert set(map(id, next_order(arms, before, 2, random.Random(0)))) == set(map(id, arms[2:]))


def test_the_value_of_a_visit_is_the_mean_of_the_middle_of_its_samples():
    field = Field(2, visit_samples=3)
    visited = visit(field.arms[::-1], field.timer)
    assert [arm for arm, _ in visited] == field.arms[::-1]
    assert [samples for _, samples in visited] == [[2.0] * 3, [1.0] * 3]
    arm = Arm(field.arms[0].sampler, visits=[[1.0, 9.0, 2.0], [4.0, 5.0]])
    assert arm.values_ms == [2.0, 4.5]
    assert arm.samples_ms == [1.0, 9.0, 2.0, 4.0, 5.0]


class Bursts(HostTimer):
    """Counts the stretches that samples are queued in."""

    def __init__(self, clock):
        super().__init__(clock)
        object.__setattr__(self, "visited", [])

    def round(self):
        self.visited.append(0)
        return super().round()


@pytest.mark.parametrize(
    ("ms", "bursts"),
    [
        ([1.0] * 10, 1),
        ([10.0] * 5, 3),  # 25 ms at a time
        ([40.0] * 3, 3),  # an arm that takes longer than a burst has a burst of its own
        ([25.0, 1.0], 2),
    ],
)
def test_a_long_round_is_split_into_bursts(ms, bursts):
    field = Field(0, ms=ms)
    timer = Bursts(field.clock)
    Rounds(timer=timer, rng=random.Random(0)).run(field.arms, 1)
    assert len(timer.visited) == 1  # the first round is one burst, because no arm's time is known yet
    Rounds(timer=timer, rng=random.Random(0)).run(field.arms, 2)
    assert len(timer.visited) == 1 + 2 * bursts
    assert sorted(field.log[-len(ms) :]) == list(range(len(ms)))


def test_a_round_is_queued_whole_before_any_time_is_read():
    field, events = Field(0), []

    class Logging:
        mode = "logging"

        def round(self):
            return field.timer.round()

    def arm(name):
        def queue(count):
            events.append(("queued", name, count))
            return lambda: events.append(("read", name)) or [1.0] * count

        return Arm(Sampler(queue), visit_samples=2)

    visit([arm("a"), arm("b")], Logging())
    assert events == [("queued", "a", 2), ("queued", "b", 2), ("read", "a"), ("read", "b")]


def test_a_failing_arm_does_not_stop_the_other_arms():
    field, calls = Field(3), []

    def third_time_bad():
        calls.append(None)
        if len(calls) == 3:
            raise OverflowError("third")

    good, _, late = field.arms
    bad = Arm(field.timer.prepare(Launch(third_time_bad), 1))
    Rounds(timer=field.timer, rng=random.Random(0)).run([good, bad, late], 6)
    assert isinstance(bad.error, OverflowError)
    assert (len(calls), len(bad.visits)) == (3, 2)
    assert len(good.visits) == len(late.visits) == 6
    assert good.error is late.error is None


def test_a_failed_arm_frees_the_memory_of_its_launch():
    class Buffer:
        pass

    made = []

    def fail():
        buffer = Buffer()
        made.append(weakref.ref(buffer))
        raise MemoryError

    timer = HostTimer()
    arm = Arm(timer.prepare(Launch(fail), 1))
    Rounds(timer=timer, rng=random.Random(0)).run([arm], 1)
    assert isinstance(arm.error, MemoryError)
    assert made[0]() is None


def test_an_interrupt_in_a_launch_reaches_the_caller():
    field = Field(1)

    def interrupt():
        raise KeyboardInterrupt

    second = Arm(field.timer.prepare(Launch(interrupt), 1))
    with pytest.raises(KeyboardInterrupt):
        Rounds(timer=field.timer, rng=random.Random(0)).run([*field.arms, second], 3)
    assert second.error is None


# The race


def raced(field, *, rng=0, **options):
    policy = RacePolicy(**{"checkpoints": (4, 8, 16), **options.pop("policy", {})})
    keep = options.pop("keep", lambda: True)
    rounds = Rounds(timer=field.timer, rng=random.Random(rng), keep=keep, clock=field.clock.seconds)
    return rounds.race(field.arms, policy, **options)


def test_a_race_drops_arms_proven_slower_and_ends_when_one_is_left():
    field = Field(0, ms=[1.0, 1.1, 2.0])
    assert raced(field) == "proven"
    assert [arm.dropped_at for arm in field.arms] == [None, 4, 4]
    assert [len(arm.visits) for arm in field.arms] == [4, 4, 4]


def test_a_race_ends_when_the_remaining_arms_are_proven_equal():
    field = Field(0, ms=[1.0, 1.002, 1.5])
    assert raced(field) == "proven"
    assert [arm.dropped_at for arm in field.arms] == [None, None, 4]
    assert len(field.arms[0].visits) == 4


def test_only_a_difference_beyond_the_zone_drops_an_arm():
    for share, dropped in ((0.0049, None), (0.0051, 4)):
        field = Field(0, ms=[1.0, math.exp(share)])
        raced(field)
        assert field.arms[1].dropped_at == dropped


def test_noise_keeps_the_race_going_to_its_last_checkpoint():
    rng = random.Random(1)
    field = Field(0, ms=[1.0])
    noisy = Launch(lambda: field.clock.spend(round(1.005 * MS * math.exp(rng.gauss(0, 0.05)))))
    field.arms.append(Arm(field.timer.prepare(noisy, 1)))
    assert raced(field) == "rounds"
    assert [len(arm.visits) for arm in field.arms] == [16, 16]


NEARLY = {"checkpoints": (4, 8, 12, 16, 24, 32), "regret": 0.005}


def swinging(field, ms, share):
    """An arm whose times lie above and below `ms` in turn, by this share."""
    turns = itertools.cycle([1 + share, 1 - share])
    launch = Launch(lambda: field.clock.spend(round(next(turns) * ms * MS)))
    return Arm(field.timer.prepare(launch, 1))


def test_a_race_may_end_when_no_rival_can_be_much_faster_than_the_leader():
    for ms, policy, ended in (
        (1.004, {}, ("rounds", 16)),  # neither equal nor slower by more than the zone, for sure
        (1.004, NEARLY, ("proven", 12)),
        (0.9999, NEARLY, ("proven", 16)),
    ):
        field = Field(0, ms=[1.0])
        field.arms.append(swinging(field, ms, 0.003))
        assert (raced(field, policy=policy), len(field.arms[0].visits)) == ended
        assert [arm.dropped_at for arm in field.arms] == [None, None]


def test_a_race_that_may_end_early_still_has_twelve_rounds():
    field = Field(0, ms=[1.0, 1.002])
    assert raced(field, policy=NEARLY) == "proven"
    assert len(field.arms[0].visits) == 12


def test_the_default_is_raced_against_until_it_is_clearly_beaten_or_equal():
    field = Field(0, ms=[1.0])
    field.arms.append(swinging(field, 1.01, 0.02))
    assert raced(field, policy=NEARLY, default=field.arms[1]) == "rounds"
    field = Field(0, ms=[1.0])
    field.arms.append(swinging(field, 1.1, 0.02))
    assert raced(field, policy=NEARLY, default=field.arms[1]) == "proven"
    assert len(field.arms[0].visits) == 8  # no rival is left that twelve rounds are waited for


@pytest.mark.parametrize(("gain", "early", "until_equal"), [(0.009, 16, 8), (0.011, 8, 8)])
def test_a_race_that_may_end_early_does_not_end_on_a_small_gain_over_the_default(gain, early, until_equal):
    for policy, rounds in (({**NEARLY, "checkpoints": (4, 8, 16)}, early), ({}, until_equal)):
        field = Field(0, ms=[1.0, math.exp(gain)])
        raced(field, policy=policy, default=field.arms[1])
        assert len(field.arms[0].visits) == rounds


@pytest.mark.parametrize(
    "wrong",
    [{"checkpoints": ()}, {"checkpoints": (8, 4)}, {"checkpoints": (0, 4)}, {"regret": -0.01}, {"regret": math.nan},
     {"zone": -1}, {"seconds": math.nan}, {"visit_ms": -2.5}, {"longest": 0}, {"longest": 1.5}, {"checkpoints": 4},
     {"checkpoints": (4.5, 8)}, {"zone": "1 %"}, {"seconds": None}],
)  # fmt: skip
def test_a_policy_that_no_race_can_follow_is_refused(wrong):
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        RacePolicy(**wrong)


def test_arms_are_dropped_at_checkpoints_only():
    field = Field(0, ms=[1.0, 1.1, 2.0])
    raced(field, policy={"checkpoints": (5, 6)})
    assert [arm.dropped_at for arm in field.arms] == [None, 5, 5]


def test_a_discarded_round_counts_for_no_arm():
    field, answers = Field(0, ms=[1.0, 1.002]), iter([False, True, False, True, True, True])
    assert raced(field, keep=lambda: next(answers)) == "proven"
    assert [len(arm.visits) for arm in field.arms] == [4, 4]
    assert len(field.log) == 2 * 6


def test_the_time_limit_ends_a_race_after_its_second_round_at_the_earliest():
    field = Field(0, ms=[600.0, 601.0])
    assert raced(field, policy={"seconds": 1.0}) == "seconds"
    assert [len(arm.visits) for arm in field.arms] == [2, 2]


def test_a_round_that_begins_within_the_time_limit_is_run():
    field = Field(0, ms=[100.0, 100.1])
    assert raced(field, policy={"seconds": 0.5}) == "seconds"
    assert [len(arm.visits) for arm in field.arms] == [3, 3]


def test_a_race_in_which_no_round_counts_ends():
    field = Field(0, ms=[600.0, 601.0])
    assert raced(field, policy={"seconds": 1.0}, keep=lambda: False) == "seconds"
    assert field.arms[0].visits == []
    assert len(field.log) < 40


def test_a_twin_runs_in_every_round_and_neither_drops_an_arm_nor_is_dropped():
    field = Field(0, ms=[1.0, 1.001])
    fast, slow = field.arm("fast", 0.5), field.arm("slow", 2.0)
    assert raced(field, beside=[fast, slow]) == "proven"
    assert [arm.dropped_at for arm in (*field.arms, fast, slow)] == [None] * 4
    assert [len(arm.visits) for arm in (*field.arms, fast, slow)] == [4] * 4


def test_a_race_ends_when_all_others_have_failed():
    field = Field(0, ms=[1.0])
    field.arms.append(Arm(field.timer.prepare(Launch(lambda: 1 // 0), 1)))
    assert raced(field) == "one arm"
    assert len(field.arms[0].visits) == 1


def test_a_failing_arm_leaves_the_race_to_the_others():
    field = Field(0, ms=[1.0, 1.002])
    field.arms.append(Arm(field.timer.prepare(Launch(lambda: 1 // 0), 1)))
    assert raced(field) == "proven"
    assert isinstance(field.arms[2].error, ZeroDivisionError)
    assert field.arms[2].visits == []


@pytest.mark.parametrize("count", [0, 1])
def test_a_race_without_arms_ends_at_once(count):
    assert raced(Field(count)) == "one arm"


def test_few_rounds_that_agree_by_chance_prove_nothing_beside_noisy_ones():
    rng = random.Random(5)
    rows = [[1.0 * math.exp(rng.gauss(0, 0.02)) for _ in range(4)] for _ in range(9)]
    lead = rows[leader(rows)]
    lucky = [value * 1.008 for value in lead]  # 0.8 % slower than the leader in each of four rounds
    arms = [Arm(Field(1).arms[0].sampler, visits=[[value] for value in row]) for row in (*rows, lucky)]
    drop_slower(arms, RacePolicy())
    assert arms[-1].dropped_at is None
