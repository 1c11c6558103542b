"""`compare` and `time_ms` on a real GPU: which clock they take, what they find, and what they leave alone."""

import pytest

import triton_ops_kernels as kernels
from triton_ops import TargetError, compare, time_ms

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _free_memory():
    yield
    torch.cuda.empty_cache()


def numbers(mib):
    return torch.rand(mib * MIB // 4, device="cuda")


def test_a_product_is_not_distinguishable_from_itself():
    a, b = (torch.rand(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    result = [compare(torch.mm, torch.mm, args=(a, b), seed=seed) for seed in range(10)]
    assert [c.verdict for c in result].count("not distinguishable") >= 9
    assert {c.mode for c in result} <= {"graph-cold", "event-cold"}
    assert all(c.guard.rounds >= 12 for c in result)


def test_twice_the_work_is_found_at_its_size():
    x, out = numbers(1024), numbers(1024)
    half = x.numel() // 2
    result = compare(lambda x, out: out[:half].copy_(x[:half]), lambda x, out: out.copy_(x), args=(x, out), check=False)
    assert result.verdict == "faster"
    assert 80 < result.percent < 120


def test_two_percent_are_found_or_said_to_be_within_the_noise():
    x, out = numbers(1020), numbers(1020)
    part = x.numel() * 100 // 102
    result = compare(lambda x, out: out[:part].copy_(x[:part]), lambda x, out: out.copy_(x), args=(x, out), check=False)
    assert result.verdict in ("faster", "not distinguishable")
    assert result.verdict == "faster" or result.needed > result.percent or result.interval[0] <= 0
    assert result.interval[0] - 1 <= 2 <= result.interval[1] + 1


def test_a_short_kernel_is_timed_in_a_graph():
    x = torch.rand(16 * 1024, device="cuda")  # 64 KiB
    result = compare(torch.add, torch.add, args=(x, x))
    assert result.mode == "graph-cold"
    assert result.verdict == "not distinguishable"
    assert 0.0005 < result.a_ms < 0.02
    assert compare(torch.add, torch.add, args=(x, x), cold=False).mode == "graph-warm"


def test_an_output_argument_does_not_keep_a_kernel_out_of_a_graph():
    x, out = torch.rand(16 * 1024, device="cuda"), torch.empty(16 * 1024, device="cuda")
    result = compare(
        lambda x, out: torch.add(x, 1, out=out), lambda x, out: torch.sub(x, -1, out=out), args=(x, out), rounds=12
    )
    assert result.mode == "graph-cold"


def test_what_waits_for_the_host_changes_the_clock_for_both():
    x = torch.rand(16 * 1024, device="cuda")

    def waits(x):
        return x.add(float(x.sum()))

    result = compare(lambda x: x + 1, waits, args=(x,), check=False)
    assert result.mode == "event-cold"
    assert result.verdict == "faster"


def test_in_place_sides_start_from_the_same_numbers_and_the_callers_stay():
    x = numbers(16)
    before = x.clone()
    result = compare(lambda x: x.mul_(2), lambda x: x.add_(x), args=(x,), rounds=12)
    assert result.mode == "event-flushed"
    assert torch.equal(x, before)


def test_callables_that_hold_their_tensors_say_where_they_run():
    x, large = torch.rand(16 * 1024, device="cuda"), numbers(1024)
    assert compare(lambda: x + 1, lambda: x + 1, device="cuda", rounds=12).mode == "graph-warm"
    assert compare(lambda: large + 1, lambda: large + 1, device="cuda", rounds=12).mode == "event-flushed"
    assert compare(lambda: x + 1, lambda: x + 1, rounds=6).mode == "host"


def test_work_on_another_stream_is_refused():
    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
        pytest.skip("this torch does not show what a graph holds")
    x, own, stream = torch.rand(16 * 1024, device="cuda"), torch.rand(16 * 1024, device="cuda"), torch.cuda.Stream()

    def elsewhere(x):
        with torch.cuda.stream(stream):
            own.add_(1)

    with pytest.raises(TargetError, match=r"b cannot be timed: .* captured launches are 0 nodes"):
        compare(lambda x: x + 1, elsewhere, args=(x,), check=False)
    torch.cuda.synchronize()


def test_configs_of_a_shipped_kernel():
    operation = kernels.load("matmul")
    problem = operation.problem((1024, 1024, 1024))
    good = dict(operation.space_for(problem).default_config)
    arguments = dict(operation.materialise(problem, "cuda").keyword)
    small = {**good, "BM": 64, "BN": 64, "BK": 32, "num_warps": 4}
    result = compare((operation, good), (operation, small), kwargs=arguments)
    assert result.verdict in ("faster", "slower", "not distinguishable")
    assert result.mode in ("graph-cold", "event-cold")


def test_a_time_is_that_of_do_bench():
    testing = pytest.importorskip("triton.testing")
    x, out = numbers(2048), numbers(2048)
    theirs = testing.do_bench(lambda: out.copy_(x), return_mode="median")
    ours = time_ms(lambda x, out: out.copy_(x), args=(x, out))
    assert ours.median_ms == pytest.approx(theirs, rel=0.03)
    assert ours.launches == len(ours.samples_ms) > 10
    p50, p20, p80 = ours.quantiles_ms
    assert p20 <= p50 <= p80


def test_a_graph_reads_a_short_kernel_with_little_spread():
    x = torch.rand(16 * 1024, device="cuda")
    in_graph = time_ms(torch.add, args=(x, x))
    p50, p20, p80 = in_graph.quantiles_ms
    assert in_graph.mode == "graph-cold"
    assert in_graph.launches_per_sample > 8
    assert (p80 - p20) / p50 < 0.05
