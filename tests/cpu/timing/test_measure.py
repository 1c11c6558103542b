"""Timers, the choice of a timer, and screening; tests/contracts/test_timers.py has the contract of all timers."""

import contextlib
import gc
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.clocks import MS, Clock
from tests.strategies import examples
from triton_ops.device import DeviceSpec
from triton_ops.timing import HostTimer, Launch, RacePolicy, Rounds, Sampler, ScreenPolicy
from triton_ops.timing.gpu_timers import sets_needed
from triton_ops.timing.rounds import choose_timer, fitting
from triton_ops.timing.timer import Pace

CPU = DeviceSpec("cpu", "any", "x86_64", 2)
H200 = DeviceSpec("cuda", "NVIDIA H200", "sm_90", 132, l2_bytes=60 << 20)


# The host's clock


@pytest.mark.parametrize("ns", [40, 1_000, 70_000, MS, 2 * MS - 1, 2 * MS, 5_000 * MS])
def test_a_sample_gets_launches_until_it_lasts_long_enough(ns):
    clock = Clock()
    launches = HostTimer(clock, least_sample_ms=2.0).prepare(clock.launch(ns)).launches
    assert launches * ns >= 2 * MS
    assert launches == 1 or launches * ns < 4 * MS
    assert clock.now < 10 * MS or launches == 1  # calibration itself is cheap


def test_a_coarse_clock_gets_longer_samples():
    clock = Clock(tick=16 * MS)
    sampler = HostTimer(clock).prepare(clock.launch(MS // 10))
    assert sampler.launches * MS // 10 >= 2 * MS
    assert sampler.take(HostTimer(clock), 1)[0] == pytest.approx(0.1, rel=0.02)


def test_the_search_for_the_number_of_launches_ends_on_a_stopped_clock():
    assert HostTimer(lambda: 0).prepare(Launch(lambda: None)).launches == 1 << 20


def test_garbage_is_not_collected_while_a_sample_is_taken():
    seen, timer = [], HostTimer()
    timer.prepare(Launch(lambda: seen.append(gc.isenabled())), 2).take(timer, 2)
    assert seen == [False] * 4
    assert gc.isenabled()


def test_garbage_collection_comes_back_after_an_error():
    timer = HostTimer()
    with pytest.raises(ZeroDivisionError):
        timer.prepare(Launch(lambda: 1 // 0), 1).take(timer, 1)
    assert gc.isenabled()


def test_garbage_collection_that_was_off_stays_off():
    timer = HostTimer()
    gc.disable()
    try:
        timer.prepare(Launch(int), 1).take(timer, 1)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_real_clock_reads_a_sleep():
    timer = HostTimer()
    samples = timer.prepare(Launch(lambda: time.sleep(0.003))).take(timer, 3)
    assert all(3.0 <= sample < 3_000 for sample in samples)


# The choice of a timer, and the number of argument sets


@pytest.mark.parametrize("options", [{}, {"cold": False}, {"capture": False}])
def test_a_cpu_is_timed_by_the_host(options):
    timer = choose_timer(CPU, "cpu", Launch(int), **options)
    assert isinstance(timer, HostTimer)
    assert timer.mode == "host"


@pytest.mark.parametrize(
    ("touched", "l2", "free", "copies"),
    [
        (100, 1000, None, 26),  # 25 others between two uses: 2.5 times the L2
        (1000, 1000, None, 4),
        (10_000, 1000, None, 2),  # larger than L2: two are enough, and never fewer
        (0, 1000, None, 1),  # nothing is touched, so nothing can be cold
        (100, None, None, None),  # an unknown L2 must be flushed
        (100, 0, None, None),
        (1000, 1000, 12_000, 4),  # three further sets fit in a quarter of the free memory
        (1000, 1000, 11_999, None),
        (1000, 1000, 20_000, 6),  # where more fit, there are up to eight: a place in memory is luck
        (1000, 1000, 1_000_000, 8),
        (100, 1000, 1_000_000, 26),
        (10_000, 1000, 39_999, None),
        (10_000, 1000, 40_000, 2),
        (10_000, 1000, 320_000, 8),
        (72, 60 << 20, 1 << 37, None),
        (72, 60 << 20, None, None),
        (8_192, 60 << 20, 1 << 37, 19_201),
    ],
)
def test_there_are_enough_argument_sets_to_keep_l2_cold_where_they_fit(touched, l2, free, copies):
    assert sets_needed(touched, l2, free) == copies


# Screening


def test_screening_takes_as_many_samples_as_fit_into_its_time():
    clock = Clock()
    policy = ScreenPolicy(screening_ms=3.0, least=3, most=10)
    samples, _ = Rounds(timer=HostTimer(clock)).screen(clock.sampler(MS // 2), policy)
    assert samples == [0.5] * 6
    assert clock.calls == 6


@given(
    ns=st.integers(1_000, 50 * MS),
    launches=st.integers(1, 50),
    screening_ms=st.floats(0.1, 100),
    least=st.integers(1, 5),
    more=st.integers(0, 20),
)
@examples(20)
def test_screening_stays_within_its_bounds(ns, launches, screening_ms, least, more):
    clock = Clock()
    policy = ScreenPolicy(screening_ms, least, least + more)
    count = len(Rounds(timer=HostTimer(clock)).screen(clock.sampler(ns, launches), policy)[0])
    sample_ms = ns * launches / MS
    least = min(least, max(int(1000 / sample_ms), 1))  # no second sample beyond a second
    assert least <= count <= max(least, policy.most)
    assert clock.calls == count * launches
    if least < count:
        assert (count - 1) * sample_ms <= screening_ms  # another sample was taken only while there was time


@pytest.mark.parametrize(("best_ms", "count"), [(None, 3), (10.0, 3), (4.0, 3), (3.99, 1), (1.0, 1)])
def test_a_hopeless_candidate_gets_one_sample(best_ms, count):
    clock = Clock()
    policy = ScreenPolicy(screening_ms=5.0, least=3, most=10, hopeless=3.0)
    samples, _ = Rounds(timer=HostTimer(clock)).screen(clock.sampler(12 * MS), policy, best_ms)
    assert samples == [12.0] * count


@pytest.mark.parametrize(("best", "count"), [(None, 4), (1.5, 4), (0.76, 4), (0.74, 1)])
def test_screening_beside_a_baseline_gives_the_ratio_to_the_baseline(best, count):
    clock, policy = Clock(), ScreenPolicy(screening_ms=10.0, least=3, most=10, hopeless=2.0)
    rounds = Rounds(timer=HostTimer(clock))
    samples, rank = rounds.screen(clock.sampler(3 * MS // 2), policy, best, beside=clock.sampler(MS))
    assert samples == [1.5] * count  # with the baseline's 1 ms, four pairs fill the time
    assert rank == pytest.approx(1.5)
    assert clock.calls == 2 * count


@pytest.mark.parametrize(
    ("own_ms", "best_ms", "hopeless", "calls"),
    [(21, 10.0, 1.5, 1), (19, 10.0, 1.5, 2), (2, 0.9, 1.5, 2), (31, 10.0, 3.0, 1)],
)
def test_nothing_runs_beside_a_long_launch_that_is_slower_than_the_best_by_far(own_ms, best_ms, hopeless, calls):
    clock, policy = Clock(), ScreenPolicy(hopeless=hopeless)
    samples, rank = Rounds(timer=HostTimer(clock)).screen(
        clock.sampler(own_ms * MS), policy, best_ms / 20.0, beside=clock.sampler(20 * MS), best_ms=best_ms
    )
    assert samples == [own_ms]
    assert rank == pytest.approx(own_ms / 20.0)
    assert clock.calls == calls


def test_a_long_launch_that_is_not_hopeless_is_screened_whole_beside_the_baseline():
    clock, policy = Clock(), ScreenPolicy(hopeless=3.0)
    samples, rank = Rounds(timer=HostTimer(clock)).screen(
        clock.sampler(25 * MS), policy, 0.5, beside=clock.sampler(20 * MS), best_ms=10.0
    )
    assert (samples, rank, clock.calls) == ([25.0] * 3, pytest.approx(1.25), 6)


def test_a_passing_load_does_not_change_the_ratio_to_the_baseline():
    clock = Clock()

    def disturbed(ns):
        slower = 1.4 if clock.now // (5 * MS) % 2 else 1.0  # by 40 %, in every second stretch of 5 ms
        return Launch(lambda: clock.spend(round(ns * slower)))

    timer = HostTimer(clock)
    own, baseline = timer.prepare(disturbed(MS // 5), 1), timer.prepare(disturbed(MS // 4), 1)
    ranks = [Rounds(timer=timer).screen(own, ScreenPolicy(), beside=baseline)[1] for _ in range(50)]
    assert ranks == pytest.approx([0.8] * 50, rel=0.01)


def test_screening_raises_the_error_of_the_launch():
    timer = HostTimer()
    bad, good = timer.prepare(Launch(lambda: 1 // 0), 1), timer.prepare(Launch(int), 1)
    for look_at in (
        lambda: Rounds(timer=timer).screen(bad, ScreenPolicy()),
        lambda: Rounds(timer=timer).screen(good, ScreenPolicy(), beside=bad),
    ):
        with pytest.raises(ZeroDivisionError):
            look_at()


@pytest.mark.parametrize(("sample_ms", "count"), [(0.0, 10), (0.2, 5), (0.34, 2), (0.6, 1), (70.0, 1)])
def test_a_visit_takes_as_many_samples_as_fit(sample_ms, count):
    assert fitting(sample_ms, 1.0, 1, 10) == RacePolicy(visit_ms=1.0, longest=10).samples(sample_ms) == count


def test_samplers_that_take_turns_are_asked_one_after_the_other():
    clock = Clock()
    both = Sampler.in_turn([clock.sampler(MS), clock.sampler(2 * MS)])
    assert [both.take(HostTimer(clock), 1) for _ in range(3)] == [[1.0], [2.0], [1.0]]


def test_a_sampler_inside_of_a_context_queues_there():
    events = []

    @contextlib.contextmanager
    def context():
        events.append("begins")
        yield
        events.append("ends")

    sampler = Sampler.of_taken(lambda count: events.append(count) or [1.0] * count).inside(context)
    assert sampler.take(HostTimer(), 2) == [1.0, 1.0]
    assert events == ["begins", 2, "ends"]


def test_samples_of_rounds_that_do_not_count_are_taken_again_while_there_is_time():
    clock, answers = Clock(), iter([False, True, True])
    rounds = Rounds(timer=HostTimer(clock), keep=lambda: next(answers), clock=clock.seconds)
    assert rounds.sample(clock.sampler(MS), 40) == [1.0] * 40
    assert clock.calls == 32 + 32 + 8
    never = Rounds(timer=HostTimer(clock), keep=lambda: False, clock=clock.seconds)
    assert never.sample(clock.sampler(MS), 3, 0.0) == [1.0] * 3  # the last ones, where none counts in time


# Pace


class Wall:
    """A clock that only sleep and work advance."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept_s: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


def worked(wall: Wall, pace: Pace, seconds: float) -> None:
    with pace.stretch():
        wall.now_s += seconds


@pytest.mark.parametrize(("duty", "rest_s"), [(0.5, 0.03), (0.25, 0.09), (0.8, 0.0075)])
def test_a_burst_of_work_is_followed_by_its_rest_before_the_next(duty, rest_s):
    wall = Wall()
    pace = Pace(duty, clock=wall.clock, sleep=wall.sleep)
    worked(wall, pace, 0.03)
    assert wall.slept_s == []  # no rest is due before the first work, and the last work waits for none
    worked(wall, pace, 0.03)
    assert wall.slept_s == pytest.approx([rest_s])


def test_short_stretches_rest_once_they_make_a_burst():
    wall = Wall()
    pace = Pace(0.5, clock=wall.clock, sleep=wall.sleep)
    for _ in range(21):
        worked(wall, pace, 0.004)
    assert wall.slept_s == pytest.approx([0.028, 0.028])  # for three bursts of seven stretches, the last without one


def test_idle_time_of_the_device_counts_as_rest():
    wall = Wall()
    pace = Pace(0.5, clock=wall.clock, sleep=wall.sleep)
    worked(wall, pace, 0.04)
    wall.now_s += 0.01
    worked(wall, pace, 0.04)
    wall.now_s += 0.5
    worked(wall, pace, 0.04)
    assert wall.slept_s == pytest.approx([0.03])


@pytest.mark.parametrize(("idle_s", "rest_s"), [(0.004, 0.032), (0.01, 0.0), (0.02, 0.0)])
def test_a_delay_within_a_stretch_counts_as_rest(idle_s, rest_s):
    wall = Wall()
    pace = Pace(0.5, clock=wall.clock, sleep=wall.sleep)
    for _ in range(2):
        with pace.stretch(idle_s=idle_s):
            wall.now_s += 0.04
    assert sum(wall.slept_s) == pytest.approx(rest_s)


def test_failed_work_is_followed_by_rest_too():
    wall = Wall()
    pace = Pace(0.5, clock=wall.clock, sleep=wall.sleep)
    with contextlib.suppress(RuntimeError), pace.stretch():
        wall.now_s += 0.04
        raise RuntimeError
    worked(wall, pace, 0.01)
    assert wall.slept_s == pytest.approx([0.04])


def test_a_duty_of_one_never_rests_and_a_duty_outside_0_to_1_is_refused():
    wall = Wall()
    pace = Pace(1.0, clock=wall.clock, sleep=wall.sleep)
    for _ in range(3):
        worked(wall, pace, 1.0)
    assert wall.slept_s == []
    for duty in (0.0, -0.5, 1.5):
        with pytest.raises(ValueError, match="share of time"):
            Pace(duty)


def test_a_launch_that_can_be_made_anew_is_for_each_sample_and_never_at_the_same_place():
    made, timer = [], HostTimer()

    def again():
        made.append(lambda: None)
        return made[-1]

    timer.prepare(Launch(again(), again=again), 3).take(timer, 5)
    timer.prepare(Launch(again()), 3).take(timer, 5)
    assert len(made) == 1 + 5 + 1


def test_calls_that_were_made_anew_keep_their_places_for_a_while():
    called, timer = [], HostTimer()

    class Call:
        def __call__(self):
            called.append(id(self))

    timer.prepare(Launch(Call(), again=Call), 1).take(timer, 40)
    assert len(set(called)) == 40
