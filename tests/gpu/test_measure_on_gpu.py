"""Times on a real GPU keep the rules that hold on any GPU: repeatability, proportion, cold and warm caches."""

import gc
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from triton_ops import BenchmarkSuite, ConfigCache, PerformanceProfile, Status, TritonAutoTuner, TuningResult
from triton_ops.device import probe
from triton_ops.timing import (
    Arm,
    CaptureError,
    EmptyCaptureError,
    HostTimer,
    Launch,
    Rounds,
    ScreenPolicy,
    Standing,
)
from triton_ops.timing.gpu_timers import EventTimer, GraphTimer, sets_needed
from triton_ops.timing.rounds import choose_timer

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _free_memory():
    yield
    torch.cuda.empty_cache()


def tensor(mib, fill=0.0):
    return torch.full((mib * MIB // 4,), fill, device="cuda")


def copying(mib):
    """Copies `mib` MiB of device memory: limited by bandwidth, about 2.3 GiB per ms on an H200."""
    source, target = tensor(mib), tensor(mib)
    return Launch(lambda: target.copy_(source))


def adding(mib):
    x, out = tensor(mib), tensor(mib)
    return Launch(lambda: torch.add(x, 1.0, out=out))


def counted(launch):
    calls = []

    def call():
        calls.append(None)
        return launch.call()

    return Launch(call, launch.reset), calls


def median_ms(launch, timer, count=20):
    launch.call()
    sampler = timer.prepare(launch)
    for _ in range(4):  # the delay behind which a slow host queues its launches grows from round to round
        sampler.take(timer, count)
    return statistics.median(sampler.take(timer, count))


def side_by_side(launches, timer, rounds=20, block=5):
    """Per launch its block medians."""
    for launch in launches:
        launch.call()
    arms = [Arm(timer.prepare(launch), block) for launch in launches]
    Rounds(timer=timer).run(arms, rounds)
    assert [arm.error for arm in arms] == [None] * len(arms)
    return [arm.values_ms for arm in arms]


def decided(blocks):
    """The decision among launches that are preferred in their order."""
    return Standing(rows_ms=dict(enumerate(blocks)), preference={i: (i,) for i in range(len(blocks))}).decision


# The timer


def test_the_clock_is_chosen_by_length_and_copies():
    spec = probe("cuda")
    long, short = copying(2048), adding(1)
    for launch in (long, short):
        launch.call()
    assert choose_timer(spec, "cuda", long).mode == "event-flushed"
    assert choose_timer(spec, "cuda", Launch(long.call, others=(long.call,))).mode == "event-cold"
    assert choose_timer(spec, "cuda", short).mode == "event-flushed"  # nothing to rotate through
    assert choose_timer(spec, "cuda", Launch(short.call, others=(adding(1).call,))).mode == "graph-cold"
    assert choose_timer(spec, "cuda", short, cold=False).mode == "graph-warm"
    assert choose_timer(spec, "cuda", short, cold=False, capture=False).mode == "event-warm"


def test_a_product_is_captured_once_whether_it_makes_its_result_or_writes_an_output():
    a, b = (torch.randn(256, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty(256, 256, device="cuda", dtype=torch.bfloat16)
    makes, writes = Launch(lambda: a @ b.t()), Launch(lambda: torch.mm(a, b.t(), out=out), outputs=(out,))
    timer = GraphTimer(cold=False)
    captures = []
    captured = timer._captured
    timer._captured = lambda *given: captures.append(given) or captured(*given)
    for launch in (makes, writes):
        launch.call()
        captures.clear()
        sampler = timer.prepare(launch)
        assert len(captures) == 1
        assert all(0.001 < time_ms < 0.5 for _ in range(4) for time_ms in sampler.take(timer, 3))


def test_the_same_kernel_several_times_reads_the_same():
    same = copying(2048)  # about 1 ms
    blocks = side_by_side([same] * 4, EventTimer())
    medians = [statistics.median(row) for row in blocks]
    assert 0.2 < medians[0] < 50
    assert max(medians) / min(medians) < 1.02
    result = decided(blocks)
    assert result.winner == 0  # told apart by preference only
    assert result.noise < 0.02


def test_twice_the_work_takes_twice_the_time():
    once, twice = map(statistics.median, side_by_side([copying(512), copying(1024)], EventTimer()))
    assert 1.8 < twice / once < 2.2


def test_a_faster_kernel_wins_whatever_stands_first():
    launches = [copying(540), copying(512)]
    for order in (launches, launches[::-1]):
        blocks = side_by_side(order, EventTimer())
        assert order[decided(blocks).winner] is launches[1]


def test_cold_is_slower_than_warm_for_what_fits_in_l2():
    l2_bytes = torch.cuda.get_device_properties("cuda").L2_cache_size
    launch = adding(max(l2_bytes // 6 // MIB, 1))  # two tensors: a third of L2
    cold, warm = EventTimer(cache="flushed"), EventTimer(cache="warm")
    pairs = [(median_ms(launch, cold), median_ms(launch, warm)) for _ in range(5)]
    assert statistics.median(c / w for c, w in pairs) > 1.05


def test_cold_is_as_warm_for_what_does_not_fit_in_l2():
    launch = copying(1024)
    cold, warm = median_ms(launch, EventTimer()), median_ms(launch, EventTimer(cache="warm"))
    assert cold == pytest.approx(warm, rel=0.05)


@pytest.mark.parametrize(("launches", "count"), [(1, 1), (1, 7), (3, 4), (1, 0)])
@pytest.mark.parametrize("cache", ["cold", "flushed", "warm"])
def test_samples_are_as_many_as_asked_for_and_no_call_more(cache, launches, count):
    launch, calls = counted(adding(1))
    timer = EventTimer(cache=cache)
    samples = timer.prepare(launch, launches).take(timer, count)
    assert len(samples) == count
    assert len(calls) == launches * count
    assert all(0 < sample < 10 for sample in samples)


def test_calibration_asks_for_one_launch_per_sample():
    launch, calls = counted(adding(1))
    assert EventTimer().prepare(launch).launches == 1
    assert calls == []


def test_a_short_kernel_is_read_without_the_hosts_overhead():
    assert median_ms(adding(1), EventTimer(cache="warm"), count=10) < 0.020


def test_a_slow_host_is_not_in_a_short_kernels_time():
    fast = adding(1)

    def slow_to_launch():
        end = time.perf_counter() + 100e-6
        while time.perf_counter() < end:
            pass
        fast.call()

    timer = EventTimer(cache="warm")
    sampler = timer.prepare(Launch(slow_to_launch))
    for _ in range(12):  # the delay grows until the host keeps ahead of the device
        samples = sampler.take(timer, 10)
    assert statistics.median(samples) < 0.020


def test_a_reset_is_outside_of_the_timed_region():
    x, saved, large, other = tensor(1), tensor(1), tensor(1024), tensor(1024)

    def reset():
        x.copy_(saved)
        other.copy_(large)  # hundreds of times the kernel's own time

    launch = Launch(lambda: x.add_(1.0), reset)
    reset_ms = median_ms(Launch(reset), EventTimer())
    assert median_ms(launch, EventTimer(cache="warm"), count=10) < reset_ms / 5
    assert torch.equal(x, torch.ones_like(x))  # restored before every call, and so written once


def test_screening_a_kernel_gives_a_block_of_samples():
    launch, calls = counted(copying(2048))
    timer = EventTimer()
    launch.call()
    calls.clear()
    sampler = timer.prepare(launch)
    result, _ = Rounds(timer=timer).screen(sampler, ScreenPolicy(screening_ms=5.0, least=3, most=10))
    assert 3 <= len(result) == len(calls) <= 10
    assert max(result) / min(result) < 1.5
    assert len(Rounds(timer=timer).screen(sampler, ScreenPolicy(), statistics.median(result) / 10)[0]) == 1


def test_the_error_of_a_launch_is_raised_and_the_timer_still_works():
    timer = EventTimer()
    with pytest.raises(torch.OutOfMemoryError):
        timer.prepare(Launch(lambda: torch.empty(1 << 46, dtype=torch.uint8, device="cuda")), 1).take(timer, 3)
    assert median_ms(adding(1), timer) < 1


# Graphs


@pytest.mark.parametrize("mib", [512, 1024])  # about 0.25 and 0.5 ms
def test_a_graph_reads_what_events_read_where_both_can(mib):
    launch = adding(mib)
    launch.call()
    by_events, by_graph = median_ms(launch, EventTimer(cache="warm")), median_ms(launch, GraphTimer(cold=False))
    assert by_graph == pytest.approx(by_events, rel=0.1)


def test_a_graph_reads_less_of_the_launch_overhead():
    launch = adding(1)
    launch.call()
    assert median_ms(launch, GraphTimer(cold=False)) < median_ms(launch, EventTimer(cache="warm"))


def test_rotation_keeps_a_short_kernel_cold():
    sets = [(tensor(4), tensor(4)) for _ in range(24)]  # 192 MiB in turn: more than three times an H200's L2
    calls = [lambda x=x, out=out: torch.add(x, 1.0, out=out) for x, out in sets]
    launch = Launch(calls[0], others=tuple(calls[1:]))
    for call in calls:
        call()
    cold, warm = median_ms(launch, GraphTimer(cold=True)), median_ms(launch, GraphTimer(cold=False))
    assert cold > 1.05 * warm
    assert GraphTimer().prepare(launch).launches >= len(sets)


def test_a_launch_that_captures_nothing_is_refused():
    x, out = tensor(1), tensor(1)

    def shy():
        if not torch.cuda.is_current_stream_capturing():
            torch.add(x, 1.0, out=out)

    with pytest.raises(EmptyCaptureError):
        GraphTimer(cold=False).prepare(Launch(shy, outputs=(out,)))


def test_a_launch_that_leaves_its_output_unwritten_in_the_graph_is_refused():
    x, out, other = tensor(1), tensor(1), tensor(1)

    def elsewhere():
        torch.add(x, 1.0, out=other if torch.cuda.is_current_stream_capturing() else out)

    with pytest.raises(EmptyCaptureError, match="unwritten"):
        GraphTimer(cold=False).prepare(Launch(elsewhere, outputs=(out,)))


def test_an_argument_that_a_launch_returns_beside_its_result_keeps_its_values():
    x = tensor(1)
    expected = x.clone()
    sampler = GraphTimer(cold=False).prepare(Launch(lambda: (x + 1.0, x)))
    assert sampler.launches > 0
    assert torch.equal(x, expected)


def test_a_launch_that_works_on_another_stream_is_refused():
    x, out, stream = tensor(1), tensor(1), torch.cuda.Stream()

    def elsewhere():
        with torch.cuda.stream(stream):
            torch.add(x, 1.0, out=out)

    with pytest.raises(EmptyCaptureError):
        GraphTimer(cold=False).prepare(Launch(elsewhere, outputs=(out,)))


def test_a_graph_runs_its_launches_as_often_as_asked_for_and_the_host_calls_none_of_them_again():
    x, out, runs = tensor(1), tensor(1), torch.zeros(1, device="cuda", dtype=torch.int64)

    def work():
        torch.add(x, 1.0, out=out)
        runs.add_(1)

    launch, calls = counted(Launch(work, outputs=(out,)))
    timer = GraphTimer(cold=False)
    sampler = timer.prepare(Launch(launch.call, outputs=(out,)), 1)
    assert (sampler.launches, len(calls)) == (1, 2)  # run once, to know what it returns, and captured
    runs.zero_()
    assert len(sampler.take(timer, 5)) == 5
    assert (int(runs), len(calls)) == (5, 2)


def test_a_launch_that_waits_for_the_device_cannot_be_captured():
    x = tensor(1)
    with pytest.raises(CaptureError):
        GraphTimer(cold=False).prepare(Launch(lambda: x.sum().item()))
    assert median_ms(adding(1), EventTimer()) < 1  # and the device is as before


def test_a_graph_that_is_garbage_is_not_freed_while_another_is_captured():
    x, out = tensor(1), tensor(1)

    class Ring:
        def __init__(self):
            self.ring, self.sampler = self, GraphTimer(cold=False).prepare(Launch(fill, outputs=(out,)))

    def fill():
        torch.add(x, 1.0, out=out)

    def with_garbage():
        fill()
        for _ in range(2000):  # enough objects for a collection of the youngest, if it is on
            [].append([])

    Ring()
    threshold = gc.get_threshold()
    gc.set_threshold(10, 1, 1)
    try:
        assert GraphTimer(cold=False).prepare(Launch(with_garbage, outputs=(out,)), 8).launches == 8
    finally:
        gc.set_threshold(*threshold)


def test_a_launch_that_must_be_reset_is_not_put_into_a_graph():
    launch = adding(1)
    with pytest.raises(CaptureError, match="writes its inputs"):
        GraphTimer(cold=False).prepare(Launch(launch.call, lambda: None))


# The documented tuner


def test_the_documents_example_as_a_file():
    spec = importlib.util.spec_from_file_location("document_example", ROOT / "examples" / "document_example.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    result = example.main("cuda")
    assert 0 < result.metrics.latency_ms < 1


def test_the_documents_example_verbatim():
    import torch

    from triton_ops import TritonAutoTuner

    def dummy_kernel(x, BLOCK_SIZE=64, num_warps=4):
        return x * 2

    tuner = TritonAutoTuner(
        kernel_fn=dummy_kernel,
        config_space={
            "BLOCK_SIZE": [64, 128],
            "num_warps": [4, 8],
        },
        warmup_runs=2,
        benchmark_runs=5,
    )

    x = torch.randn(1024, device="cuda")
    result = tuner.tune(x, problem_size=(1024,), device="cuda:0", kernel_type="dummy")

    assert isinstance(result, TuningResult)
    assert len(result.all_results) == 4
    # Tensors of 4 KiB that exceed the L2 of an H200 together are more than are copied: there the cache is flushed.
    mode = "graph-cold" if sets_needed(x.nbytes, probe("cuda").l2_bytes) else "event-flushed"
    assert {trial.measurement.mode for trial in result.trials} == {mode}
    hit = tuner.tune(x, problem_size=(1024,), device="cuda:0", kernel_type="dummy")
    assert (hit.from_cache, hit.best_config) == (True, result.best_config)


def test_calls_are_exact_on_a_gpu_too():
    calls = []

    def kernel(x, BLOCK_SIZE):
        calls.append(BLOCK_SIZE)
        return x * 2

    # Long enough for event pairs: a shorter kernel is captured once, and its graph is replayed.
    TritonAutoTuner(kernel, {"BLOCK_SIZE": [64, 128]}, 3, 25).tune(tensor(1024))
    assert calls.count(128) == 28
    # Calls of the first config choose the timer: five at a time, behind a delay that doubles at most ten times where
    # the host is slow. An H200 with a busy host took 16 calls.
    assert 28 < calls.count(64) <= 28 + 5 * 12


@pytest.mark.parametrize("warmup_runs", [0, 2])
def test_an_in_place_kernel_leaves_the_callers_tensors_as_they_were(warmup_runs):
    base = torch.randn(4 * MIB, device="cuda")
    before, view = base.clone(), base[MIB : 2 * MIB].view(1024, 1024).t()

    def kernel(x, view, BLOCK_SIZE):
        view.add_(1.0)
        x.mul_(2.0)
        if BLOCK_SIZE == 128:
            raise RuntimeError("after writing")

    result = TritonAutoTuner(kernel, {"BLOCK_SIZE": [64, 128, 256]}, warmup_runs, 7).tune(base, view)
    assert [trial.status for trial in result.trials] == [Status.OK, Status.RUNTIME, Status.OK]
    assert torch.equal(base, before)


def test_a_kernel_that_does_not_wait_for_the_device_is_timed_on_it():
    work = copying(1024)
    result = TritonAutoTuner(lambda x, BLOCK_SIZE: work.call(), {"BLOCK_SIZE": [64]}, 2, 20).tune(tensor(1))
    on_the_device = median_ms(work, EventTimer())
    on_the_host = statistics.median(HostTimer().prepare(work, 1).take(HostTimer(), 5))
    torch.cuda.synchronize()
    assert result.metrics.latency_ms == pytest.approx(on_the_device, rel=0.1)
    assert result.metrics.latency_ms > on_the_host  # which returns as soon as the kernel is queued


def test_a_profile_gives_figures_that_a_gpu_can_have():
    source, target = tensor(1024), tensor(1024)
    tuner = TritonAutoTuner(lambda source, target, BLOCK_SIZE: target.copy_(source), {"BLOCK_SIZE": [64]}, 2, 20)
    profile = PerformanceProfile.elementwise(source.numel(), bytes_per_element=4)
    metrics = tuner.tune(source, target, performance=profile).metrics
    peak = probe("cuda").bandwidth_gbps
    if peak is None:
        pytest.skip("the peak bandwidth of this GPU is not known")
    assert 50 < metrics.bandwidth_utilization < 101
    assert metrics.bandwidth_gbps == pytest.approx(metrics.bandwidth_utilization / 100 * peak)


def test_a_config_that_does_not_fit_in_memory_ends_alone():
    def kernel(x, SIZE):
        return torch.zeros(SIZE, dtype=torch.uint8, device=x.device)

    tuner = TritonAutoTuner(kernel, {"SIZE": [MIB, 1 << 46, 2 * MIB]}, 1, 5)
    tuner.check = False  # each config returns another size
    result = tuner.tune(tensor(1))
    assert [trial.status for trial in result.trials] == [Status.OK, Status.RESOURCES, Status.OK]
    assert "OutOfMemoryError" in result.failures[0].error


def test_a_config_that_does_nothing_on_the_gpu_fails_alone():
    ready = torch.zeros_like(tensor(1))

    def kernel(x, idle):
        return ready if idle else torch.zeros_like(x)

    tuner = TritonAutoTuner(kernel, {"idle": [True, False]}, 1, 5)
    result = tuner.tune(tensor(1))
    assert [trial.status for trial in result.trials] == [Status.RUNTIME, Status.OK]
    assert "the work is done elsewhere" in result.failures[0].error


def test_what_a_failed_config_had_allocated_is_free_for_the_next():
    room = int(torch.cuda.mem_get_info()[0] * 0.6)

    def kernel(x, greedy):
        held = torch.empty(room, dtype=torch.uint8, device=x.device)
        if greedy:
            held = [held, torch.empty(room, dtype=torch.uint8, device=x.device)]
        return held

    result = TritonAutoTuner(kernel, {"greedy": [True, False]}, 1, 3).tune(tensor(1))
    assert [trial.status for trial in result.trials] == [Status.RESOURCES, Status.OK]
    assert "there is no room for copies of them" in result.verified


def test_what_does_not_compile_or_fit_on_the_chip_ends_one_trial_and_prints_nothing(capsys):
    from triton_ops import matmul

    good = {"BM": 64, "BN": 64, "BK": 32, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}
    chosen = {
        "good": good,
        "too much shared memory": {**good, "BM": 128, "BN": 256, "BK": 128, "num_warps": 8, "num_stages": 5},
        "too few registers": {**good, "BM": 256, "BN": 256, "BK": 64, "num_warps": 16, "num_stages": 2},
    }
    if torch.cuda.get_device_capability() != (9, 0):
        del chosen["too few registers"]  # ptxas refuses it on Hopper; elsewhere it may well compile
    a, b = (torch.randn(512, 512, device="cuda", dtype=torch.float16) for _ in range(2))
    tuner = TritonAutoTuner(lambda a, b, which: matmul(a, b, config=chosen[which]), {"which": list(chosen)}, 1, 5)
    result = tuner.tune(a, b)
    expected = [Status.OK, Status.RESOURCES, Status.COMPILE]
    assert [trial.status for trial in result.trials] == expected[: len(chosen)]
    assert result.best_config == {"which": "good"}
    assert ".visible .entry" not in capsys.readouterr().out


# Shipped kernels

UNTUNED = """
import sys, torch, triton_ops
a = torch.randn(256, 256, device="cuda", dtype=torch.float16)
triton_ops.matmul(a, a)
x = torch.randn(1, 16, 256, device="cuda", dtype=torch.float16)
angles = torch.randn(16, 64, device="cuda", dtype=torch.float16)
triton_ops.fused_rmsnorm_rope(x, torch.ones(256, device="cuda", dtype=torch.float16), angles.cos(), angles.sin())
torch.cuda.synchronize()
tuners = ("triton_ops.tuner", "triton_ops.autotuner", "triton_ops.timing", "triton_ops.search")
print([name for name in sys.modules if name.startswith(tuners)])
"""


def test_shipped_kernels_run_without_any_tuner():
    path = os.pathsep.join([str(ROOT / "src"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", UNTUNED],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_suite_compares_three_families():
    suite = BenchmarkSuite(warmup_runs=1, benchmark_runs=10)
    rows = [*suite.benchmark_rmsnorm_rope([(1, 64, 512, 64)]), *suite.benchmark_gated_mlp([(1, 64, 256, 512)]),
            *suite.benchmark_fp8_gemm([(256, 256, 256)])]  # fmt: skip
    assert [row.speedup > 0 for row in rows] == [True] * 3
    assert {row.mode.partition("-")[0] for row in rows} <= {"event", "graph"}


def test_all_labels_of_a_gpu_are_one_entry_if_that_is_asked_for(tmp_path):
    labels = ("cuda", "cuda:0", torch.cuda.get_device_name(0))
    for by_model, same in ((True, labels), (False, ("cuda:0",))):
        cache = ConfigCache(tmp_path / str(by_model), by_model=by_model)
        cache.set("softmax", (4096, 4096), "cuda:0", {"BLOCK_SIZE": 1024})
        assert tuple(label for label in labels if ("softmax", (4096, 4096), label) in cache) == same
