"""The simulated device has the noise, the disturbances and the clock that it was given."""

import math
import statistics

import pytest

from tests.simulated_device import (
    DISTURBANCES,
    POWER_CAPPED,
    Disturbance,
    Noise,
    SimulatedDevice,
    SimulatedTimer,
)

SILENT = Noise(sample=0, spikes=0, drift=0, carry=0, process=0)


def test_a_device_without_noise_takes_the_true_time():
    device = SimulatedDevice(SILENT)
    timer = SimulatedTimer(device)
    sampler = timer.prepare(device.launch(0.05, "kernel"))
    assert sampler.launches == 4
    before = device.busy_s
    assert sampler.take(timer, 3) == pytest.approx([0.05] * 3, rel=1e-3)
    assert device.busy_s - before == pytest.approx((0.1 + 3 * 4 * 0.05) / 1e3)  # with the round's delay
    assert device.now_s > device.busy_s  # preparing keeps the host busy


def test_samples_are_queued_in_rounds_only():
    device = SimulatedDevice()
    sampler = SimulatedTimer(device).prepare(device.launch(1.0, "kernel"))
    with pytest.raises(RuntimeError, match="inside a round"):
        sampler.queue(1)


def test_equal_seeds_make_equal_devices():
    def samples(seed, process):
        device = SimulatedDevice(POWER_CAPPED, DISTURBANCES["short loads"], seed=seed, process=process)
        timer = SimulatedTimer(device)
        return timer.prepare(device.launch(1.0, "kernel")).take(timer, 20)

    assert samples(1, 1) == samples(1, 1)
    assert samples(1, 1) != samples(2, 1)
    assert samples(1, 1) != samples(1, 2)


def test_the_bias_depends_on_process_and_name_only():
    def bias(process, name):
        return SimulatedDevice(process=process).kernel(1.0, name).own_ms

    assert bias(1, "a") == bias(1, "a") not in {bias(2, "a"), bias(1, "b")}
    spread = statistics.stdev(math.log(bias(0, str(k))) for k in range(2000))
    assert spread == pytest.approx(Noise().process, rel=0.1)


def test_noise_is_as_wide_as_asked_for():
    device = SimulatedDevice(Noise(sample=0.02, spikes=0, drift=0, carry=0, process=0))
    timer = SimulatedTimer(device)
    samples = timer.prepare(device.launch(1.0, "kernel")).take(timer, 2000)
    assert statistics.stdev(map(math.log, samples)) == pytest.approx(0.02, rel=0.1)


def test_a_drift_lasts_as_long_as_its_correlation_time():
    device = SimulatedDevice(Noise(sample=0, spikes=0, drift=0.02, drift_s=0.08, carry=0, process=0))
    timer = SimulatedTimer(device)
    levels = [math.log(ms) for ms in timer.prepare(device.launch(8.0, "kernel")).take(timer, 4000)]
    assert statistics.stdev(levels) == pytest.approx(0.02, rel=0.15)
    assert statistics.correlation(levels[:-1], levels[1:]) == pytest.approx(math.exp(-0.1), abs=0.05)
    assert statistics.correlation(levels[:-40], levels[40:]) < 0.2


def level(device, ms=0.01):
    """The factor by which a launch takes longer now than its true time."""
    start = device.now_s
    device.kernel(ms, "probe")()
    return (device.now_s - start) * 1e3 / ms


def test_a_cold_start_ends_and_a_ramp_stays():
    cold = SimulatedDevice(SILENT, Disturbance(cold=0.3, cold_s=1.0))
    assert level(cold) == pytest.approx(1.3, rel=0.01)
    cold.idle(1000.0)
    assert level(cold) == pytest.approx(1.0)
    ramp = SimulatedDevice(SILENT, Disturbance(ramp=0.02, ramp_most=0.1))
    assert level(ramp) == pytest.approx(1.0, rel=0.01)
    for seconds, expected in ((2.0, 1.04), (9.0, 1.1), (9.0, 1.1)):
        ramp.idle(1e3 * seconds)
        assert level(ramp) == pytest.approx(expected, rel=0.01)


def test_a_boost_is_lost_under_load_and_comes_back_at_rest():
    device = SimulatedDevice(SILENT, Disturbance(boost=0.15, boost_s=0.5, uneven=0.0))
    assert level(device) == pytest.approx(math.exp(-0.075), rel=0.01)
    device.work(5000.0)
    assert level(device) == pytest.approx(math.exp(0.075), rel=0.01)
    device.idle(5000.0)
    assert level(device) == pytest.approx(math.exp(-0.075), rel=0.01)


def test_a_device_that_rests_as_long_as_it_works_takes_the_true_times():
    device = SimulatedDevice(SILENT, Disturbance(boost=0.15, boost_s=0.5, uneven=0.0))
    timer = SimulatedTimer(device)
    sampler = timer.prepare(device.launch(1.0, "kernel"), 1)
    samples = [sampler.take(timer, 10)[-1] for _ in range(400)]
    assert samples[0] == pytest.approx(math.exp(-0.075), rel=0.01)
    assert statistics.median(samples[200:]) == pytest.approx(1.0, rel=0.005)
    assert device.busy_s == pytest.approx(device.now_s / 2, rel=0.01)


@pytest.mark.parametrize(
    ("disturbance", "slow", "share"),
    [
        (Disturbance(step=0.05, step_s=0.01), 1.05, 0.5),
        (Disturbance(load=0.2, load_every_s=0.03, load_s=0.01), 1.2, 0.25),
    ],
)
def test_steps_and_loads_come_and_go(disturbance, slow, share):
    device = SimulatedDevice(SILENT, disturbance)
    levels = [round(level(device, 1.0), 6) for _ in range(20_000)]
    assert set(levels) == {1.0, slow}
    assert levels.count(slow) / len(levels) == pytest.approx(share, abs=0.06)


def test_the_state_that_an_arm_leaves_slows_the_next_arm():
    device = SimulatedDevice(Noise(sample=0, spikes=0, drift=0, carry=0.05, process=0))
    first, second = device.kernel(1.0, "first"), device.kernel(1.0, "second")

    def takes(kernel):
        start = device.now_s
        kernel()
        return (device.now_s - start) * 1e3

    assert takes(first) == pytest.approx(1.0)  # nothing ran before
    assert takes(second) == pytest.approx(math.exp(first.leaves))
    assert takes(second) == pytest.approx(math.exp(first.leaves))  # an arm is not slowed by its own traces
    assert takes(first) == pytest.approx(math.exp(second.leaves))


def test_times_are_multiples_of_the_clocks_tick():
    device = SimulatedDevice(Noise(tick_ms=0.01))
    timer = SimulatedTimer(device)
    samples = timer.prepare(device.launch(1.0, "kernel"), 1).take(timer, 50)
    assert [sample / 0.01 for sample in samples] == pytest.approx([round(sample / 0.01) for sample in samples])
    assert len(set(samples)) > 3
