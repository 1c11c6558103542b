"""Processes of one job agree on winners without a collective; nobody waits for ever; forked children begin anew."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton_ops  # noqa: E402
from tests.forked import status_of_a_child  # noqa: E402
from tests.garbage import ENDS_UNSEARCHED  # noqa: E402
from tests.launches import launches_that_do_nothing  # noqa: E402
from tests.records import ENVIRONMENT  # noqa: E402
from tests.tuned_kernels import add, grid  # noqa: E402
from triton_ops import settings  # noqa: E402
from triton_ops.dispatch import deciding as ranks  # noqa: E402
from triton_ops.dispatch.deciding import Meeting  # noqa: E402
from triton_ops.dispatch.decision import FALLBACK, RECORD, Decision, Found  # noqa: E402
from triton_ops.exceptions import SettingsError  # noqa: E402
from triton_ops.records.misses import flush_misses  # noqa: E402
from triton_ops.space import Config  # noqa: E402

pytestmark = pytest.mark.triton


def decision(block, rung=RECORD, why="measured"):
    return Decision(found=Found(config=Config(BLOCK=block), rung=rung, why=why), kernel="k", problem="p")


def agreed(store, rank, block, wait_s=20.0, refused=None):
    return Meeting(store, rank).agreed(
        "key", lambda: decision(block), lambda _: refused, lambda why: decision(1, FALLBACK, why), wait_s
    )


def test_the_first_decides_and_the_others_take_its_config():
    store, result = torch.distributed.HashStore(), {}
    threads = [
        threading.Thread(target=lambda r=rank: result.update({r: agreed(store, r, 10 + r)})) for rank in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.found.config for one in result.values()}) == 1
    assert sorted(one.found.why.startswith("decided by rank") for one in result.values()) == [False, True, True, True]
    assert {one.found.rung for one in result.values()} == {RECORD}


def test_who_waits_too_long_runs_the_default():
    store = torch.distributed.HashStore()
    store.compare_set("triton_ops/key/who", "", "7")  # a process that has ended since
    late = agreed(store, 0, 5, wait_s=0.05)
    assert (late.found.config, late.found.rung) == (Config(BLOCK=1), FALLBACK)
    assert "no process of the job has decided" in late.found.why


def test_a_process_that_fails_to_decide_holds_up_nobody():
    store = torch.distributed.HashStore()
    with pytest.raises(KeyError):
        Meeting(store, 0).agreed("key", lambda: {}["missing"], lambda _: None, lambda why: decision(1), 1.0)
    assert "rank 0 failed to decide" in agreed(store, 1, 5).found.why


def test_a_config_that_cannot_be_taken_here_gives_way_to_the_default():
    store = torch.distributed.HashStore()
    agreed(store, 0, 5)
    assert "cannot take the config of the job" in agreed(store, 1, 6, refused="too large").found.why


@pytest.mark.parametrize(
    ("on_miss", "options", "tune_s"),
    [("default", {"budget_s": 20}, 0.0), ("tune", {"budget_s": 20}, 20.0), ("race", {}, 5.0),
     ("tune", {"effort": "exhaustive"}, ranks._LONGEST_TUNE_S)],
)  # fmt: skip
def test_where_a_launch_tunes_the_others_wait_as_long_as_its_tune_may_take(on_miss, options, tune_s, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    waits = []

    class Other:
        def agreed(self, _key, _alone, _why_not, default, wait_s):
            waits.append(wait_s)
            return default("another process decides")

    monkeypatch.setattr(ranks, "meeting", Other)
    kernel = triton_ops.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], ["n"],
                                 on_miss=on_miss, **options)(add)  # fmt: skip
    with launches_that_do_nothing():
        kernel[grid](*(torch.zeros(1024) for _ in range(3)), 1024)
    assert waits == [ranks.TURN_S + tune_s]


def test_a_wrong_word_for_agreeing_is_one_warning_and_each_decides_alone(monkeypatch, caplog):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", torch.distributed.HashStore)
    assert ranks.meeting().rank == 1
    monkeypatch.setenv("TRITON_OPS_RANKS", "of")
    with pytest.raises(SettingsError, match="allowed are agree, off"):
        settings.ranks()
    assert [ranks.meeting(), ranks.meeting()] == [None, None]
    assert caplog.text.count("TRITON_OPS_RANKS is 'of'") == 1


JOB = """
import os, sys
import torch, triton, triton_ops
from tests.records import record
from tests.tuned_kernels import add, grid
from triton_ops.dispatch import ladder as sources
from triton_ops.records import store_in
from triton_ops.settings import cache_folder
from triton_ops.space import Config
from tests.launches import launches_that_do_nothing

def launched(rank, file):
    os.environ["TRITON_OPS_CACHE_DIR"] += str(rank)
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128, 256)]
    kernel = triton_ops.autotune(configs, ["n"], on_miss="default")(add)
    arguments = (*(torch.zeros(1024) for _ in range(3)), 1024)
    with launches_that_do_nothing():
        key = kernel.why(*arguments, grid=grid).key
        mine = Config(BLOCK=(128, 256)[rank], num_warps=4, num_stages=3)
        store_in(cache_folder(None)).put(record(key=key, winner=mine))
        sources._sources.ladders.clear()
        torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
        kernel[grid](*arguments)
        os.write(1, b"%d\\n" % kernel.best_config.kwargs["BLOCK"])  # in one piece: both processes write here
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()

other = os.fork()
launched(int(other == 0), sys.argv[1])
if other:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
"""


@pytest.mark.processes
def test_two_processes_with_different_records_launch_the_same_config(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENDS_UNSEARCHED + JOB, str(tmp_path / "meet")],
        capture_output=True, text=True, check=False,
        env={**ENVIRONMENT, **os.environ, "TRITON_OPS_CACHE_DIR": str(tmp_path / "rank"),
             "PYTHONPATH": os.pathsep.join(sys.path), "TRITON_DEFAULT_FP_FUSION": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = done.stdout.split()
    assert len(told) == 2
    assert len({*told}) == 1


@pytest.mark.processes
def test_a_forked_child_counts_its_own_launches(monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    kernel = triton_ops.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], ["n"],
                                 on_miss="default")(add)  # fmt: skip
    arguments = (*(torch.zeros(1024) for _ in range(3)), 1024)
    with launches_that_do_nothing():
        for _ in range(3):
            kernel[grid](*arguments)
        kernel.launches.decided._locks[("cpu", "x")].acquire()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads that are left behind
            child = os.fork()
        if child == 0:  # pragma: no cover - another process
            try:
                kernel[grid](*arguments)
                counts = [one.count.value for one in kernel.decisions]
                own = kernel.launches.decided._locks[("cpu", "x")].acquire(blocking=False)
                os._exit(0 if counts == [1] and own else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert [one.count.value for one in kernel.decisions] == [3]


@pytest.mark.processes
@pytest.mark.parametrize("call", range(1, 7))
def test_a_child_that_is_forked_while_another_thread_decides_launches(call, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    begun, go_on, calls = threading.Event(), threading.Event(), []

    def slow_grid(meta):
        """Waits at one of the calls by which a launch is decided."""
        calls.append(meta)
        if len(calls) == call:
            begun.set()
            go_on.wait()
        return grid(meta)

    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]
    one, other = (triton_ops.autotune(configs, ["n"], on_miss="default")(add) for _ in range(2))
    arguments = (*(torch.zeros(1024) for _ in range(3)), 1024)
    with launches_that_do_nothing():
        thread = threading.Thread(target=lambda: (one[slow_grid](*arguments), begun.set()))
        thread.start()
        begun.wait()
        status = status_of_a_child(lambda: (one[grid](*arguments), other[grid](*arguments)))
        go_on.set()
        thread.join()
    assert status == 0


def test_a_folder_that_cannot_be_used_is_as_good_as_an_empty_one(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", "/proc/none"):
        kernel = triton_ops.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], ["n"],
                                     on_miss="default", cache_dir=folder)(add)  # fmt: skip
        with launches_that_do_nothing():
            kernel[grid](*(torch.zeros(1024) for _ in range(3)), 1024)
        assert [one.found.rung for one in kernel.decisions] == ["default"]
    flush_misses()  # its warnings are no other test's
