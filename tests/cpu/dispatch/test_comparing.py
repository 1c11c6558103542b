"""`on_miss="background"`: launches run the default at once, and one stands still for a race of some milliseconds."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.limits import ENOUGH_S, SharedLimit

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton_ops  # noqa: E402
from tests import inferred_kernels, planned_gpu, tuned_kernels  # noqa: E402
from tests.launches import launches_that_do_nothing  # noqa: E402
from tests.records import record  # noqa: E402
from tests.tuned_kernels import add, grid  # noqa: E402
from triton_ops.backend import Packed  # noqa: E402
from triton_ops.device import DeviceSpec  # noqa: E402
from triton_ops.dispatch import comparing, deciding, early_start  # noqa: E402
from triton_ops.dispatch import ladder as sources  # noqa: E402
from triton_ops.evaluation import Stations  # noqa: E402
from triton_ops.exceptions import TuningFailedError, UntunedError  # noqa: E402
from triton_ops.records import Lockfile, LockfileInUse, Misses, store_in  # noqa: E402
from triton_ops.records.misses import flush_misses  # noqa: E402
from triton_ops.request import request  # noqa: E402
from triton_ops.settings import cache_folder  # noqa: E402
from triton_ops.tuner.priors import small_contents  # noqa: E402
from triton_ops.values import Measurement, Status, Trial  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore::triton_ops.FixedGridWarning")]

SMALL, LARGE = triton.Config({"BLOCK": 128}, num_warps=4), triton.Config({"BLOCK": 256}, num_warps=8)
LOOKS = "no winner is known for this problem, which a model looks at in the background"
X = [torch.zeros(1024) for _ in range(3)]


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    """Calls that believe in a GPU, whose launches do nothing."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setattr(request, "probe", lambda _: DeviceSpec.named("NVIDIA H200"))
    monkeypatch.setattr(request, "gpu_missing", lambda: "")
    monkeypatch.setattr(request, "device_of", lambda *_: "cuda:0")
    monkeypatch.setattr("triton_ops.dispatch.deciding.device_of", lambda *_: "cuda:0")
    monkeypatch.setattr(comparing, "_comparisons", {})
    sources._sources.ladders.clear()
    with launches_that_do_nothing() as launches:
        yield launches


class Tune:
    """A tune that goes on when the test says so, and then finds the larger config."""

    def __init__(self, monkeypatch):
        self.asked, self.error, self.writes_a_part = [], None, False
        self.looked, self.raced = threading.Event(), threading.Event()
        self.began, self.races = threading.Event(), threading.Event()
        monkeypatch.setattr(comparing, "tune_request", self)

    def __call__(self, task, options, before_race, **place):
        self.asked.append((task, options, place, threading.current_thread()))
        self.began.set()
        assert self.looked.wait(ENOUGH_S)
        if self.error is not None and (task.kernel.outputs or not self.writes_a_part):
            raise self.error
        before_race()
        self.races.set()
        assert self.raced.wait(ENOUGH_S)
        return triton_ops.TuningResult({"BLOCK": 256, "num_warps": 8, "num_stages": 3}, None)


@pytest.fixture
def tune(monkeypatch):
    tune = Tune(monkeypatch)
    yield tune
    tune.looked.set()
    tune.raced.set()
    for one in comparing._comparisons.values():
        one._meeting.abort()  # no launch comes any more, and the comparisons of the next test wait for these


def tuned_add(**more):
    return triton_ops.autotune([SMALL, LARGE], ["n"], **{"on_miss": "background", **more})(add)


def warps(kernel):
    return kernel[grid](*X, n=1024).metadata.num_warps


def is_known(kernel):
    return kernel.launches.fast.call(grid, *X, n=1024) is not None


def comparison():
    (one,) = comparing._comparisons.values()
    return one


def soon(test):
    while not test():
        time.sleep(0.001)


def why(kernel):
    return kernel.why(*X, n=1024, grid=grid).found


def test_launches_run_the_default_at_once_then_one_stands_still_for_the_race_and_has_the_winner(tune):
    kernel = tuned_add()
    assert why(kernel).why == LOOKS
    assert not comparing._comparisons, "nothing is begun by a question"
    assert warps(kernel) == 4
    assert is_known(kernel), "the default is launched as directly as that of any miss"
    assert (why(kernel).rung, why(kernel).why) == ("default", LOOKS)
    tune.looked.set()
    soon(lambda: comparison()._meeting.n_waiting)
    assert not is_known(kernel)
    threading.Thread(target=lambda: tune.races.wait(ENOUGH_S) and tune.raced.set()).start()
    limit = SharedLimit(5.0)
    assert warps(kernel) in (4, 8), "the default, where the race took longer than it may"
    assert limit.left_s()
    soon(comparison()._result.done)
    assert warps(kernel) == 8
    assert is_known(kernel)
    assert (why(kernel).rung, why(kernel).why[:20]) == ("expected", "found by a tune of 0")
    assert (len(tune.asked), tune.asked[0][1].effort.name, tune.asked[0][1].isolate) == (1, "expected", True)


def test_a_launch_does_not_wait_for_a_race_that_takes_longer(tune):
    kernel = tuned_add()
    warps(kernel)
    tune.looked.set()
    soon(lambda: comparison()._meeting.n_waiting)
    assert [warps(kernel) for _ in range(3)] == [4, 4, 4]
    assert is_known(kernel)
    assert tune.races.wait(ENOUGH_S)
    tune.raced.set()
    soon(comparison()._result.done)
    assert warps(kernel) == 8


def test_a_race_begins_without_a_launch_where_the_problem_does_not_come_again(tune, monkeypatch):
    monkeypatch.setattr(comparing.Comparison._meet, "__defaults__", (0.01,))
    kernel = tuned_add()
    warps(kernel)
    tune.looked.set()
    assert tune.races.wait(ENOUGH_S)
    assert warps(kernel) == 4
    tune.raced.set()
    soon(comparison()._result.done)
    assert warps(kernel) == 8


def test_no_launch_stands_still_or_takes_a_result_while_a_graph_is_captured(tune, monkeypatch):
    kernel = tuned_add()
    monkeypatch.setattr(deciding, "capturing", lambda: True)
    assert warps(kernel) == 4
    assert not comparing._comparisons, "nothing begins in a capture either"
    monkeypatch.setattr(deciding, "capturing", lambda: False)
    warps(kernel)
    tune.looked.set()
    soon(lambda: comparison()._meeting.n_waiting)
    monkeypatch.setattr(deciding, "capturing", lambda: True)
    monkeypatch.setattr(comparing.Comparison, "turn", lambda _: pytest.fail("it has a turn in a capture"))
    assert warps(kernel) == 4
    assert comparison()._meeting.n_waiting


def test_a_replay_begins_no_comparison(tune):
    with triton_ops.replaying(Lockfile(())):
        assert warps(tuned_add()) == 4
    with triton_ops.replaying(Lockfile(()), on_miss="error"), pytest.raises(UntunedError):
        warps(tuned_add())
    assert not comparing._comparisons


def test_what_no_model_expects_is_said_and_noted_and_is_asked_once(tune):
    tune.error = UntunedError("the model is not sure")
    tune.looked.set()
    kernel = tuned_add()
    warps(kernel)
    soon(comparison()._result.done)
    for _ in range(2):
        assert warps(kernel) == 4
    assert (why(kernel).rung, why(kernel).why, len(tune.asked)) == ("default", "the model is not sure", 1)
    assert is_known(kernel)
    flush_misses()
    assert len(Misses(Path(cache_folder(None))).read()) == 1


@pytest.mark.parametrize("error", [OSError(28, "No space left"), UntunedError("unsure"), SystemExit(1)], ids=repr)
def test_whatever_a_comparison_raises_the_default_stays_and_no_tensor_of_a_launch(tune, on_a_gpu, error):
    tune.error = error
    kernel, x = tuned_add(), torch.zeros(1024)
    kernel[grid](*X, n=1024)
    tune.looked.set()
    soon(comparison()._result.done)
    assert kernel[grid](x, *X[1:], n=1024).metadata.num_warps == 4
    assert is_known(kernel)
    assert why(kernel).why.endswith(getattr(error, "message", f"failed: {type(error).__name__}: {error}"))
    there = weakref.ref(x)
    del x
    on_a_gpu.made.clear()
    gc.collect()
    assert there() is None


def test_what_writes_a_part_of_its_outputs_is_compared_once_more_without_them(tune, monkeypatch):
    monkeypatch.setattr(comparing.Comparison._meet, "__defaults__", (0.01,))
    part = weakref.WeakSet()
    for module in (comparing, deciding):
        monkeypatch.setattr(module, "writes_a_part", part)
    tune.error, tune.writes_a_part, kernel = TuningFailedError("every config is wrong"), True, tuned_add()
    kernel[grid](*X, n=1024)
    tune.looked.set()
    tune.raced.set()
    soon(comparison()._result.done)
    assert warps(kernel) == 8
    assert [task.kernel.outputs for task, *_ in tune.asked] == [("out_ptr",), ()]
    assert list(part) == [add.fn]


@pytest.mark.parametrize(
    ("patched", "reason"),
    [
        ({"meeting": lambda: object()}, "the processes of a job decide alike"),
        ({"note_of": lambda *_: "the addresses in x are of this process's memory"}, "the addresses in x are of"),
    ],
)
def test_what_cannot_be_compared_beside_launches_runs_the_default_with_the_reason(tune, monkeypatch, patched, reason):
    for name, value in patched.items():
        monkeypatch.setattr(deciding, name, value)
    monkeypatch.setattr(deciding.Meeting, "agreed", None)
    kernel = tuned_add()
    if "meeting" in patched:
        monkeypatch.setattr("triton_ops.dispatch.launching.decide", decide_alone)
    assert warps(kernel) == 4
    assert why(kernel).why.startswith(f"nothing is compared in the background: {reason}")
    assert (tune.asked, comparing._comparisons) == ([], {})
    assert is_known(kernel)


def decide_alone(call):
    """The decision of the process of a job that is the first to ask."""
    call, asked, policy = deciding._policies(call)
    return deciding._alone(call, call.question(policy), asked, policy)


def test_a_default_that_was_made_up_is_not_run_meanwhile(tune, tmp_path):
    kernel = triton_ops.autotune(key=["n"], cache_dir=tmp_path, on_miss="background")(tuned_kernels.add)
    with pytest.raises(UntunedError, match="its tiles have no values but those that were made up"):
        kernel[grid](*X, 1024)


@pytest.mark.processes
def test_problems_are_compared_one_after_the_other(tune, monkeypatch):
    monkeypatch.setattr(comparing.Comparison._meet, "__defaults__", (0.01,))
    kernel = tuned_add()
    for n in (512, 1024):
        kernel[grid](*X, n=n)
    assert tune.began.wait(ENOUGH_S)
    assert len(tune.asked) == 1
    tune.looked.set()
    tune.raced.set()
    soon(lambda: all(one.now() is one for one in comparing._comparisons.values()))
    assert [kernel[grid](*X, n=n).metadata.num_warps for n in (512, 1024)] == [8, 8]


def test_kernels_that_are_launched_at_once_share_the_comparison_of_an_equal_problem(tune, monkeypatch):
    begun, like, together = [], comparing._like, threading.Barrier(4)
    monkeypatch.setattr(comparing, "_like", lambda call: begun.append(call) or time.sleep(0.05) or like(call))
    kernels = [tuned_add() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda kernel: together.wait(ENOUGH_S) * 0 + warps(kernel), kernels)) == [4] * 4
    assert len(begun) == 1


def test_what_a_hundred_others_wait_before_is_noted_in_place_of_a_thread(tune, monkeypatch):
    monkeypatch.setattr(comparing, "_MOST_AT_ONCE", 3)
    monkeypatch.setattr(comparing.Comparison._meet, "__defaults__", (0.01,))
    kernel = tuned_add()
    for n in range(128, 128 * 6, 128):
        assert kernel[grid](*X, n=n).metadata.num_warps == 4
    assert len(comparing._comparisons) == 3
    reasons = [decision.found.why for decision in kernel.decisions]
    assert reasons == [LOOKS] * 3 + ["nothing is compared in the background: 3 problems came before"] * 2
    flush_misses()
    assert len(Misses(Path(cache_folder(None))).read()) == 2
    tune.looked.set()
    tune.raced.set()
    soon(lambda: all(one._result.done() for one in comparing._comparisons.values()))
    assert [kernel[grid](*X, n=n).metadata.num_warps for n in (128, 256, 384, 512)] == [8, 8, 8, 4]


def test_the_thread_has_no_tensor_of_the_callers_and_copies_small_ones_of_whole_numbers():
    offsets, many = torch.arange(8), torch.zeros(1 << 20, dtype=torch.int16)
    call = triton_ops.autotune([SMALL], ["n"])(add).launches.call_of(grid, (X[0], offsets, many, 1024), {})
    like, in_part = comparing._like(call)
    assert (like.kernel.outputs, in_part.kernel.outputs) == (("out_ptr",), ())
    specs = like.problem.specs
    assert [specs[name].fill for name in ("x_ptr", "out_ptr")] == ["uniform", "uniform"]
    assert specs["y_ptr"].fill.tolist() == offsets.tolist()
    assert specs["y_ptr"].fill.data_ptr() != offsets.data_ptr()
    assert small_contents(like) == {"y_ptr": offsets.tolist()}
    assert (like.key.id, like.space) == (call.request.key.id, call.request.space)
    assert Packed.of(like.arguments).mapped is False


@pytest.mark.usefixtures("shared_fork_server")
def test_the_whole_way_beside_a_gpu_that_is_not_here(monkeypatch):
    class Rows(planned_gpu.Planned):
        def attempt(self, config, best):
            return Trial(config, Status.OK, Measurement((0.1 if config["BLOCK"] == 1024 else 1.0,), "planned"))

    monkeypatch.setattr(Stations, "begin", lambda *_, **__: Rows)
    monkeypatch.setattr(Stations, "early_process", lambda _: nullcontext())
    configs = [triton.Config({"BLOCK": block}, num_warps=1) for block in (32, 1024)]
    kernel = triton_ops.autotune(configs, ["columns"], on_miss="background")(inferred_kernels.chunked_norm)
    x, y = (torch.empty(4096, 1024, dtype=torch.bfloat16) for _ in range(2))
    ran = []

    def decided():
        kernel[(4096,)](x, y, 1024, 1e-5)
        ran.append(kernel.best_config)
        return kernel.decisions[0].found.rung != "default"

    soon(decided)
    assert (ran[0], ran[-1]) == (configs[0], configs[1])
    assert "a model of the work, which expects " in kernel.decisions[0].found.why


class Gpu:
    """Torch's queue of what is to be called once this process uses a GPU, and the workers that are started then."""

    def __init__(self, monkeypatch):
        self.calls, self.workers = [], []
        monkeypatch.setattr(torch.cuda, "_lazy_call", self.calls.append)
        monkeypatch.setattr(early_start, "_awaited", {})
        self.servers = []
        monkeypatch.setattr(comparing.evaluation, "start_one_early", self.start)
        monkeypatch.setattr(comparing.CompilePool, "start_server", lambda _, device: self.servers.append(device))

    def start(self):
        self.workers.append(1)
        return True

    def use(self):
        """Use a GPU; the number of workers that were started."""
        for call in self.calls:
            call()
        soon(lambda: not [it for it in threading.enumerate() if it.name == "triton-ops early start"])
        return len(self.workers)


@pytest.fixture
def gpu(monkeypatch):
    return Gpu(monkeypatch)


@pytest.mark.parametrize(
    ("options", "started"),
    [({}, 1), ({"on_miss": "tune"}, 1), ({"on_miss": "race"}, 1), ({"effort": "race"}, 1), ({"on_miss": "default"}, 0),
     ({"on_miss": "background"}, 0), ({"isolate": False}, 0), ({"effort": "expected"}, 0),
     ({"do_bench": lambda *_, **__: [1.0] * 3}, 0), ({"configs": [SMALL]}, 0),
     ({"configs": [SMALL], "widen": True}, 1), ({"configs": {"BLOCK": [128, 256]}}, 1)],
)  # fmt: skip
def test_a_worker_is_started_with_the_decoration_and_a_server_with_the_gpu_if_a_launch_will_tune(options, started, gpu):
    for kernel in (add, tuned_kernels.scale):
        triton_ops.autotune(**{"configs": [SMALL, LARGE], "key": ["n"], **options})(kernel)
    assert (len(gpu.workers), gpu.servers) == (2 * started, [])
    assert gpu.use() == 3 * started, "one by then has ended, or many records were not read"
    assert gpu.servers == started * ["cuda"]


def test_many_records_are_not_read_when_a_kernel_is_decorated(gpu, monkeypatch):
    monkeypatch.setattr(early_start, "_MOST_RECORDS", 2)
    for number in range(1, 4):
        store_in(cache_folder(None)).put(record(f"somewhere:other_{number}"))
        triton_ops.autotune([SMALL, LARGE], ["n"])(add)
        assert len(gpu.workers) == min(number, 2)
    assert gpu.use() == 3


def test_kernels_that_are_decorated_again_and_again_are_awaited_once(gpu):
    for _ in range(3):
        triton_ops.autotune([SMALL, LARGE], ["n"])(add)
    assert len(early_start._awaited) == len(gpu.calls) == 1


def test_no_worker_is_started_for_kernels_with_a_record_or_beside_a_lockfile_or_in_a_forked_child(gpu, monkeypatch):
    for kernel in (add, tuned_kernels.scale):
        store_in(cache_folder(None)).put(record(f"{kernel.__module__}:{kernel.__name__}"))
        triton_ops.autotune([SMALL, LARGE], ["n"])(kernel)
    assert gpu.use() == 0
    with triton_ops.replaying(Lockfile()):
        triton_ops.autotune([SMALL, LARGE], ["n"])(tuned_kernels.fill)
        assert gpu.use() == 0
    with monkeypatch.context() as changed:
        changed.setattr(early_start.os, "getpid", lambda: -1)
        assert gpu.use() == 0
    monkeypatch.setattr(LockfileInUse, "NOW", None)  # the environment then says
    monkeypatch.setenv("TRITON_OPS_LOCKFILE", "somewhere")
    assert gpu.use() == 0
    monkeypatch.delenv("TRITON_OPS_LOCKFILE")
    assert gpu.use() == 1


def test_a_kernel_is_decorated_without_torch_and_with_one_that_has_no_such_queue(gpu, monkeypatch):
    monkeypatch.delattr(torch.cuda, "_lazy_call")
    triton_ops.autotune([SMALL, LARGE], ["n"])(add)
    assert early_start._awaited == {}
