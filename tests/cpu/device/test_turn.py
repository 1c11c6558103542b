"""Measurements on one device take turns among threads and processes."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tests.limits import ENOUGH_S
from triton_ops import settings
from triton_ops.base import folders
from triton_ops.device import DeviceSpec, Turns
from triton_ops.device import probing as state
from triton_ops.device import probing as turn
from triton_ops.exceptions import DeviceError

KEY = "GPU-7"
NOBODY = 65534
CHILD = """
import sys, time
from triton_ops.device import Turns
path, count, hold_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
turns = Turns("cuda:0")
for _ in range(count):
    with turns.turn("GPU-7"):
        with open(path, "a") as trace: trace.write(f"begin {sys.argv[4]}\\n")
        time.sleep(hold_s)
        with open(path, "a") as trace: trace.write(f"end {sys.argv[4]}\\n")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_OPS_LOCK_DIR", str(tmp_path / "locks"))


def child(trace, count, hold_s, name):
    return subprocess.Popen([sys.executable, "-c", CHILD, str(trace), str(count), str(hold_s), name])


def begun(trace):
    while not trace.exists() or "begin" not in trace.read_text():
        time.sleep(0.005)


@pytest.mark.processes
def test_the_measurements_of_two_processes_never_overlap_and_both_finish(tmp_path):
    trace = tmp_path / "trace"
    both = [child(trace, 20, 0.004, name) for name in "ab"]
    assert [process.wait(ENOUGH_S) for process in both] == [0, 0]
    lines = [line.split() for line in trace.read_text().splitlines()]
    assert len(lines) == 80
    for (first, who), (second, whose) in zip(lines[::2], lines[1::2], strict=True):
        assert (first, second) == ("begin", "end")
        assert who == whose


@pytest.mark.processes
def test_a_killed_holder_gives_its_turn_back_and_the_wait_is_said(tmp_path, caplog):
    trace = tmp_path / "trace"
    holder = child(trace, 1, 600.0, "a")
    begun(trace)
    with pytest.raises(DeviceError, match="another process measures on cuda:1"), Turns("cuda:1", wait=False).turn(KEY):
        pass
    killer = threading.Timer(0.05, os.kill, (holder.pid, signal.SIGKILL))
    killer.start()
    turns = Turns("cuda:1")
    with caplog.at_level(logging.WARNING, "triton_ops"), turns.turn(KEY):
        assert turns.waited_s > 0
    holder.wait()
    assert [record.message for record in caplog.records] == ["another process measures on cuda:1; waiting for a turn"]
    assert turns.notes == ()  # too short for a note


def free():
    """Whether another thread gets the turn at once."""

    def look():
        try:
            with Turns("cuda", wait=False).turn(KEY):
                result.append(True)
        except DeviceError:
            result.append(False)

    result = []
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return result[0]


def test_a_run_that_has_begun_waits_even_if_it_is_asked_not_to():
    turns = Turns("cuda", wait=False)
    with turns.turn(KEY):
        assert not free()
    entered, order = threading.Event(), []

    def hold():
        with Turns("cuda").turn(KEY):
            entered.set()
            time.sleep(0.05)
            order.append("the other's measurement ends")

    other = threading.Thread(target=hold)
    other.start()
    entered.wait()
    with turns.turn(KEY):
        order.append("the run goes on")
    other.join()
    assert order == ["the other's measurement ends", "the run goes on"]


def test_a_measurement_inside_a_measurement_keeps_the_turn():
    with Turns("cuda").turn(KEY):
        with Turns("cuda", wait=False).turn(KEY):
            assert not free()
        assert not free(), "the inner one gives nothing back"
    assert free()


def test_different_devices_and_cpus_take_no_turns_of_each_other():
    with Turns("cuda:0").turn(KEY), Turns("cuda:1", wait=False).turn("GPU-8"), Turns("cpu", wait=False).turn(""):
        pass
    assert Turns.key_of(DeviceSpec("cpu", "a CPU", "x86_64", 2), "cpu") == ""


def test_a_long_wait_is_a_note():
    assert Turns("cuda", waited_s=12.34).notes == ("waited 12.3 s for turns on cuda, on which others measured",)


def test_a_folder_that_cannot_be_made_is_said_and_nothing_is_locked(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITON_OPS_LOCK_DIR", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING, "triton_ops"), Turns("cuda").turn(KEY):
        pass
    assert "measurements take no turns" in caplog.text


def folder_of_another_user(place, _):
    place.mkdir(mode=0o755)
    (place / f".{KEY}.lock").touch()
    (place / f".{KEY}.lock").chmod(0o666)
    for path in (place, place / f".{KEY}.lock"):
        os.chown(path, NOBODY, NOBODY)


def closed_folder_of_another_user(place, _):
    place.mkdir(mode=0o700)
    os.chown(place, NOBODY, NOBODY)


def link_of_another_user(place, victim):
    place.symlink_to(victim)
    os.chown(place, NOBODY, NOBODY, follow_symlinks=False)


def folder_of_everybody(place, _):
    place.mkdir()
    place.chmod(0o1777)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user")
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "plant", [folder_of_another_user, closed_folder_of_another_user, link_of_another_user, folder_of_everybody]
)
def test_a_lock_folder_that_another_user_has_made_costs_one_warning_and_no_wait(tmp_path, monkeypatch, caplog, plant):
    victim, place = tmp_path / "victim", tmp_path / "triton-ops-0"
    victim.mkdir()
    plant(place, victim)
    monkeypatch.setattr(settings, "OWN_LOCKS", place)
    monkeypatch.delenv("TRITON_OPS_LOCK_DIR")
    lock = place / f".{KEY}.lock"
    with lock.open() if lock.exists() else nullcontext() as held:
        if held is not None:
            fcntl.flock(held, fcntl.LOCK_EX)
        turns = Turns("cuda")
        for _ in range(3):
            with turns.turn(KEY):
                pass
    assert ["measurements take no turns" in each.getMessage() for each in caplog.records] == [True]
    assert (turns.waited_s, list(victim.iterdir())) == (0.0, [])


def test_the_lock_folder_of_this_user_is_its_own(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(settings, "OWN_LOCKS", tmp_path / "triton-ops-0")
    monkeypatch.delenv("TRITON_OPS_LOCK_DIR")
    with Turns("cuda").turn(KEY):
        assert (tmp_path / "triton-ops-0" / f".{KEY}.lock").is_file()
    assert stat.S_IMODE((tmp_path / "triton-ops-0").stat().st_mode) == 0o700
    assert not caplog.records


@pytest.mark.timeout(30)
def test_a_lock_that_is_never_given_back_is_waited_for_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(folders, "SHARED_WAIT_S", 0.2)
    monkeypatch.setattr(turn, "_given_up", set())
    place = tmp_path / "locks"
    folder_of_everybody(place, None)
    lock = place / f".{KEY}.lock"
    lock.touch()
    lock.chmod(0o666)
    turns = Turns("cuda")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for _ in range(3):
            with turns.turn(KEY):
                pass
    assert [each.getMessage() for each in caplog.records if "cannot be locked" in each.getMessage()]
    assert turn._given_up == {KEY}


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({"uuid": "ab-1"}, "GPU-ab-1"),
        ({"uuid": "GPU-ab-1"}, "GPU-ab-1"),
        ({"pci_domain_id": 0, "pci_bus_id": 5, "pci_device_id": 1}, "GPU-0-5-1"),
    ],
)
def test_a_gpu_is_known_by_its_uuid_or_its_place(monkeypatch, properties, key):
    cuda = SimpleNamespace(get_device_properties=lambda _: SimpleNamespace(**properties))
    monkeypatch.setattr("triton_ops.device.probing.require", lambda *_: SimpleNamespace(cuda=cuda))
    assert Turns.key_of(DeviceSpec("cuda", "a GPU", "sm_90", 132), "cuda:1") == key


def test_the_share_of_the_cpus_that_others_use_leaves_out_this_process(monkeypatch):
    stats, own = iter([(10.0, 100.0, 4.0), (30.0, 140.0, 9.0), (30.0, 100.0, 50.0)]), state.CpuLoad
    monkeypatch.setattr(state, "_cpu_seconds", lambda: next(stats))
    assert own().others == pytest.approx(15 / 40)
    monkeypatch.setattr(state, "_cpu_seconds", lambda: None)
    assert own().others is None


def test_a_note_says_that_others_kept_the_cpus_busy_where_callables_ran_on_them(monkeypatch):
    cpu, gpu = DeviceSpec("cpu", "CPU", "x86_64", 2), DeviceSpec("cuda", "a GPU", "sm_90", 132)
    for others_s, message in ((7.0, ()), (8.0, ("other programs used 20% of the CPUs meanwhile",))):
        for device, notes in ((cpu, message), (gpu, ())):
            stats = iter([(10.0, 100.0, 4.0), (12.0 + others_s, 140.0, 6.0)])
            monkeypatch.setattr(state, "_cpu_seconds", lambda stats=stats: next(stats))
            assert state.CpuLoad().notes(device) == notes


def test_the_counters_of_this_machine_can_be_read(monkeypatch):
    monkeypatch.undo()  # of the fixture that hides them
    result = state.CpuLoad()
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    assert result.others is None or 0.0 <= result.others <= 1.0


def test_who_has_the_turn_on_one_device_waits_for_another():
    with Turns("cuda:0").turn("GPU-0"):
        assert Turns.held() == {"GPU-0"}
        with Turns("cuda:1").turn(KEY):
            assert Turns.held() == {"GPU-0", KEY}
            assert not free()
    assert Turns.held() == frozenset()
