"""Launches that keep to a class of bits: of the default config, or of a lockfile; nothing else is launched."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton_ops  # noqa: E402
from tests.cpu.tuner.test_same_bits import Rows, row_sums  # noqa: E402
from tests.launches import launches_that_do_nothing  # noqa: E402
from triton_ops.cli.tune import _tuned  # noqa: E402
from triton_ops.device import DeviceSpec  # noqa: E402
from triton_ops.dispatch import NotedOperation, deciding  # noqa: E402
from triton_ops.dispatch.ladder import change_limits  # noqa: E402
from triton_ops.evaluation import Stations  # noqa: E402
from triton_ops.exceptions import LockfileError, SettingsError, UntunedError  # noqa: E402
from triton_ops.records import LockPlan, lock_of, matching, misses  # noqa: E402
from triton_ops.request import TuneOptions, TuneProblem, request  # noqa: E402
from triton_ops.tuner import Silent  # noqa: E402

pytestmark = [
    pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server"),
    pytest.mark.filterwarnings("ignore::triton_ops.FixedGridWarning"),
]  # fmt: skip

CONFIGS = [
    triton.Config({"BLOCK": block}, num_warps=4, num_stages=stages) for block in (256, 512) for stages in (3, 2)
]  # fmt: skip
X, OUT = torch.zeros(64, 4096), torch.zeros(64)
DEFAULT, SAME, OTHER = (256, 3), (256, 2), (512, 2)


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """The station of a GPU that is not here, whose launches do nothing."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "records"))
    on("NVIDIA H200", monkeypatch)
    monkeypatch.setattr(request, "gpu_missing", lambda: "")
    for place in (request, deciding):
        monkeypatch.setattr(place, "device_of", lambda *_: "cuda:0")
    monkeypatch.setattr(request.TuneRequest, "checked", lambda self: self)  # whose tensors are on a CPU
    station = Rows()
    monkeypatch.setattr(Stations, "begin", lambda *_, **__: lambda: station)
    with launches_that_do_nothing():
        yield station
    triton_ops.use_lockfile(None)


def on(gpu, monkeypatch):
    monkeypatch.setattr(request, "probe", lambda _: DeviceSpec.named(gpu))
    change_limits()


def sums(configs=CONFIGS, **more):
    return triton_ops.autotune(configs, ["COLUMNS"], isolate=False, effort="exhaustive", **more)(row_sums)


def launched(kernel, atomic=False):
    """The block and the stages with which a launch runs."""
    kernel[(64,)](X, OUT, 4096, ATOMIC=atomic)
    return kernel.best_config.kwargs["BLOCK"], kernel.best_config.num_stages


def test_a_tune_of_a_launch_stays_in_the_class_of_the_default_and_others_find_its_record(here):
    assert launched(sums(same_bits=True)) == SAME
    assert len(here.tried) == 2
    assert launched(sums(same_bits=True)) == SAME
    assert len(here.tried) == 2
    assert launched(sums()) == OTHER
    assert launched(sums(same_bits=True, on_miss="error")) == SAME


def test_a_winner_that_was_found_free_is_not_launched_and_the_default_runs(here, monkeypatch, caplog):
    assert launched(sums()) == OTHER
    with pytest.raises(UntunedError):
        launched(sums(same_bits=True, on_miss="error"))
    monkeypatch.setenv("TRITON_OPS_SAME_BITS", "1")
    assert launched(sums(on_miss="default")) == DEFAULT
    assert caplog.text.count("runs its default config") == 1
    assert launched(sums(on_miss="default", same_bits=False)) == OTHER


def test_a_lockfile_whose_entries_keep_to_a_class_is_obeyed_without_a_word_of_the_caller(here, monkeypatch, caplog):
    assert launched(sums()) == OTHER
    lock, _ = lock_of(matching(None, None), LockPlan(same_bits=True))
    triton_ops.use_lockfile(lock)
    assert launched(sums(on_miss="error")) == OTHER
    on("H100", monkeypatch)
    assert launched(sums(on_miss="default")) == DEFAULT
    here.tried.clear()
    assert launched(sums()) == OTHER
    assert {config["BLOCK"] for config in here.tried} == {512}
    record = next(each for each in matching(None, None) if each.key.device["name"] == "H100")
    assert record.bits == record.key.bits == lock.entries[0].bits


def test_a_tune_by_command_at_a_noted_call_keeps_to_the_class_that_it_names(here, monkeypatch):
    kernel = sums(on_miss="queue")
    launched(kernel)
    misses.flush_misses()
    monkeypatch.setattr(
        NotedOperation, "at_call", lambda *_: kernel.launches.call_of((64,), (X, OUT, 4096), {"ATOMIC": False})
    )
    operation = NotedOperation.of(kernel, None)

    def tuned(same_bits_as):
        here.tried.clear()
        problem = TuneProblem(target=operation, same_bits_as=same_bits_as)
        result = _tuned(operation, problem, TuneOptions(effort="exhaustive", isolate=False), Silent())
        return result.best_config["BLOCK"], {config["BLOCK"] for config in here.tried}

    with pytest.raises(LockfileError, match="no lockfile is in use"):
        tuned("lockfile")
    assert tuned("default") == (256, {256})
    assert tuned({"BLOCK": 512, "num_warps": 4, "num_stages": 3}) == (512, {512})
    assert tuned(None) == (512, {256, 512})
    free = next(each for each in matching(None, None) if not each.key.bits)
    triton_ops.use_lockfile(lock_of([free])[0])
    assert tuned("lockfile") == (512, {512})


def test_what_has_no_class_runs_its_default_and_says_so(here, caplog):
    kernel = sums(same_bits=True)
    assert launched(kernel, atomic=True) == DEFAULT
    assert len(here.tried) == 1
    assert "it adds floating point atomically" in caplog.text
    again = sums(same_bits=True, on_miss="default")
    assert launched(again, atomic=True) == DEFAULT
    assert "runs its default config: no other is known to be of its class" in caplog.text


def test_triton_s_own_loop_which_knows_no_classes_does_not_tune(here, caplog):
    kernel = sums(same_bits=True, do_bench=lambda *_, **__: pytest.fail("it was measured"))
    assert launched(kernel) == DEFAULT
    assert "runs its default config: the decorator brings do_bench" in caplog.text


def test_a_device_without_classes_runs_the_default_and_says_so(here, monkeypatch, caplog):
    on("AMD Instinct MI300X", monkeypatch)
    assert launched(sums(same_bits=True)) == DEFAULT
    assert "which configs of tests.cpu.tuner.test_same_bits:row_sums give the same bits" in caplog.text


def test_buckets_and_words_that_are_none_are_refused(here, monkeypatch, caplog):
    for word in ("yes", CONFIGS[0]):  # which raises where it is compared with a text
        with pytest.raises(SettingsError, match=r"same_bits is ('yes'|<triton)"):
            sums(same_bits=word)
    assert launched(sums(same_bits=True, buckets={"COLUMNS": "pow2"})) == DEFAULT
    assert "problems of a bucket compile to several classes of bits" in caplog.text
    monkeypatch.setenv("TRITON_OPS_SAME_BITS", "yes")
    assert launched(sums(on_miss="default")) == DEFAULT
    assert "TRITON_OPS_SAME_BITS is 'yes'; allowed are 1, 0" in caplog.text


def test_install_keeps_to_the_class_of_the_default(here):
    with triton_ops.install(same_bits=True, isolate=False, effort="exhaustive"):
        kernel = triton.autotune(CONFIGS, ["COLUMNS"])(row_sums)
        assert launched(kernel) == SAME
