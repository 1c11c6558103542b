"""Processes, CPUs and memory are told from what the system's files say; here from files that the test has written."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from triton_ops.base import Host, available, host, import_in_order, require
from triton_ops.base.host import Process
from triton_ops.exceptions import MissingDependencyError

LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's files of processes")
RIGHTS = "Uid:\t1 2 3 4\nGid:\t5\nGroups:\t6\nCapEff:\t7\nNoNewPrivs:\t0\nSeccomp:\t2"
STATUS = f"Name:\tx\nUmask:\t0022\n{RIGHTS}\nCpus_allowed:\tff\n"


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """A folder of processes, and a function that writes a file of one."""
    monkeypatch.setattr(Process, "PLACE", str(tmp_path))

    def write(name, content):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)

    return write


def stat_line(pid, *, name="a (b) c", state="S", parent=1, **fields):
    """A line of `/proc/PID/stat`, whose further fields are their own numbers unless they are given."""
    numbers = [str(at) for at in range(3, 53)]
    numbers[0], numbers[1] = state, str(parent)
    for at, value in fields.items():
        numbers[int(at[1:]) - 3] = str(value)
    return f"{pid} ({name}) {' '.join(numbers)}\n"


def test_a_process_is_told_by_its_files(proc):
    proc("7/stat", stat_line(7, parent=5, _20=3))
    proc("7/status", STATUS)
    proc("7/comm", "a (b) c\n")
    proc("7/environ", "A=1\0B=2\0")
    proc("7/limits", "Max files 9\n")
    process = Process(7)
    assert (process.parent, process.tasks, process.ended, process.name) == (5, 3, False, "a (b) c")
    assert process.environment == b"A=1\0B=2\0"
    rights = process.rights
    assert rights["start"] == "22", "the 22nd field, counted from 1"
    assert rights["status"] == RIGHTS
    assert rights["ns/user"] == rights["root"] == ""
    assert process.bequest == ("Umask:\t0022\nCpus_allowed:\tff", b"Max files 9\n", b"19"), "the priority is the 19th"


def test_the_namespaces_of_a_process_are_told_by_device_and_number(proc, tmp_path):
    proc("7/ns/net", "")
    status = (tmp_path / "7/ns/net").stat()
    rights = Process(7).rights
    assert rights["ns/net"] == f"{status.st_dev}:{status.st_ino}"
    assert {*rights} >= {"start", "status", "root", "ns/mnt", "ns/pid", "ns/pid_for_children", "ns/user", "ns/uts"}


@pytest.mark.parametrize(("state", "ended"), [("S", False), ("R", False), ("Z", True), ("X", True)])
def test_a_process_that_waits_for_its_parent_has_ended(proc, state, ended):
    proc("7/stat", stat_line(7, state=state))
    assert Process(7).ended == ended


def test_of_a_process_that_is_gone_nothing_is_told(proc):
    gone = Process(8)
    assert (gone.parent, gone.tasks, gone.ended, gone.name, gone.environment) == (0, 0, True, "", b"")
    assert (gone.rights["start"], gone.rights["status"]) == ("", "")
    assert gone.bequest == ("", b"", b"")
    assert [*gone.open_files] == [*gone.ancestors] == []


def test_ancestors_are_those_up_to_the_first_process(proc):
    for pid, parent in ((9, 7), (7, 3), (3, 1), (1, 0)):
        proc(f"{pid}/stat", stat_line(pid, parent=parent))
    assert [*Process(9).ancestors] == [7, 3, 1]


def test_open_files_are_where_their_links_lead(proc, tmp_path):
    (tmp_path / "7/fd").mkdir(parents=True)
    (tmp_path / "7/fd/0").symlink_to("/dev/null")
    (tmp_path / "7/fd/3").symlink_to("/a/log")
    (tmp_path / "7/fd/4").touch()  # closed meanwhile
    assert {*Process(7).open_files} == {"/dev/null", "/a/log"}


def test_numbers_are_own_where_the_system_tells_this_process_its_own_number(proc, tmp_path):
    assert not Process.numbers_are_own()
    (tmp_path / "self").symlink_to(str(os.getpid()))
    assert Process.numbers_are_own()
    (tmp_path / "self").unlink()
    (tmp_path / "self").symlink_to(str(os.getpid() + 1))
    assert not Process.numbers_are_own()


@LINUX
def test_this_process_is_told_as_the_system_has_it():
    process = Process(os.getpid())
    assert process.parent == os.getppid()
    assert process.tasks >= threading.active_count()
    assert not process.ended
    assert os.getppid() in [*process.ancestors]
    assert int(process.bequest[2]) == os.getpriority(os.PRIO_PROCESS, 0)
    assert int(process.rights["start"]) > 0
    assert f"Uid:\t{os.getuid()}\t" in process.rights["status"]


LIBRARY = "7f10-7f20 r-xp 00000000 00:00 1 /lib/libgomp.so.1\n7f40-7f50 r-xp 00000000 00:00 1 /lib/libgomp.so.1\n"
OTHER = "7e00-7e10 r-xp 00000000 00:00 1 /lib/libc.so.6\n"


@pytest.mark.parametrize(
    ("maps", "calls", "waits"),
    [
        (OTHER + LIBRARY, {1: "202 0x1 0x2 0x7f10"}, True),  # the last word is where a thread is
        (OTHER + LIBRARY, {1: "202 0x1 0x2 0x7f1f"}, True), (OTHER + LIBRARY, {1: "202 0x1 0x2 0x7f20"}, False),
        (OTHER + LIBRARY, {1: "202 0x1 0x2 0x7f4f"}, True), (OTHER + LIBRARY, {1: "202 0x1 0x2 0x7e05"}, False),
        (OTHER + LIBRARY, {1: "202 0x1 0x2 0x7e05", 2: "202 0x1 0x2 0x7f11"}, True),
        (OTHER + LIBRARY, {1: "running"}, True), (OTHER + LIBRARY, {1: ""}, True), (OTHER + LIBRARY, {}, False),
        (OTHER, {1: "running"}, False),
    ],
)  # fmt: skip
def test_a_thread_waits_in_openmp_where_its_place_is_in_the_library(proc, maps, calls, waits):
    own = {thread.native_id for thread in threading.enumerate()}
    proc("self/maps", maps)
    for task in own:
        proc(f"self/task/{task}/syscall", "202 0x1 0x2 0x7f11")  # Python's own threads do not count
    for task, call in calls.items():
        proc(f"self/task/{max(own) + task}/syscall", call)
    assert host._has_openmp_threads() == waits


@pytest.fixture
def groups(proc, tmp_path, monkeypatch):
    """A folder of control groups, and a function that writes a file of one."""
    monkeypatch.setattr(Host, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(Host, "affinity_cpus", classmethod(lambda cls: 16))
    return lambda name, content: proc(f"groups/{name}", content)


VERSION_2, VERSION_1 = "0::/own/inner\n", "4:cpu,cpuacct:/own/inner\n3:memory:/own/inner\n"


@pytest.mark.parametrize(
    ("cgroup", "files", "cpus"),
    [
        (VERSION_2, {}, 16), (VERSION_2, {"own/inner/cpu.max": "250000 100000"}, 3),
        (VERSION_2, {"own/inner/cpu.max": "200000 100000"}, 2), (VERSION_2, {"own/cpu.max": "100000 100000"}, 1),
        (VERSION_2, {"cpu.max": "50000 100000"}, 1), (VERSION_2, {"own/cpu.max": "max 100000"}, 16),
        (VERSION_2, {"own/inner/cpu.max": "400000 100000", "own/cpu.max": "300000 100000"}, 3),
        (VERSION_2, {"own/cpu.max": "9900000 100000"}, 16), (VERSION_2, {"other/cpu.max": "100000 100000"}, 16),
        (VERSION_2, {"unified/own/cpu.max": "300000 100000"}, 3), (VERSION_2, {"own/cpu.max": "0 100000"}, 16),
        (VERSION_1, {"cpu,cpuacct/own/cpu.cfs_quota_us": "300000", "cpu,cpuacct/own/cpu.cfs_period_us": "100000"}, 3),
        (VERSION_1, {"cpu/own/inner/cpu.cfs_quota_us": "150000", "cpu/own/inner/cpu.cfs_period_us": "100000"}, 2),
        (VERSION_1, {"cpu/own/cpu.cfs_quota_us": "-1", "cpu/own/cpu.cfs_period_us": "100000"}, 16),
        (VERSION_1, {"memory/own/cpu.max": "100000 100000"}, 16), ("", {"cpu.max": "300000 100000"}, 3),
        (VERSION_1, {"cpu/own/cpu.cfs_quota_us": "100000", "cpu/own/cpu.cfs_period_us": "0"}, 16),
    ],
)  # fmt: skip
def test_usable_cpus_are_the_fewest_of_the_affinity_and_of_the_quotas_around(proc, groups, cgroup, files, cpus):
    proc("self/cgroup", cgroup)
    for name, content in files.items():
        groups(name, content)
    assert Host.usable_cpus() == cpus


FREE = "MemTotal: 9999 kB\nMemAvailable: 100 kB\n"


@pytest.mark.parametrize(
    ("meminfo", "cgroup", "files", "left"),
    [
        ("", VERSION_2, {}, None), (FREE, VERSION_2, {}, 102_400),
        (FREE, VERSION_2, {"own/memory.max": "5000", "own/memory.current": "2000"}, 3000),
        (FREE, VERSION_2, {"own/memory.max": "max", "own/memory.current": "2000"}, 102_400),
        (FREE, VERSION_2, {"own/memory.max": "5000", "own/memory.current": "6000"}, 0),
        (FREE, VERSION_2, {"own/memory.max": "500000", "own/memory.current": "6000"}, 102_400),
        (FREE, VERSION_2, {"memory.max": "50", "memory.current": "20", "own/memory.max": "40",
                           "own/memory.current": "20"}, 20),
        (FREE, VERSION_2, {"own/memory.max": "5000", "own/memory.current": "2000",
                           "own/memory.stat": "anon 9\ninactive_file 500\nfile 3\n"}, 3500),
        (FREE, VERSION_2, {"own/memory.max": "5000", "own/memory.current": "2000", "own/memory.stat": "anon x"}, 3000),
        ("", VERSION_1, {"memory/own/memory.limit_in_bytes": "5000", "memory/own/memory.usage_in_bytes": "1000",
                         "memory/own/memory.stat": "inactive_file 1\ntotal_inactive_file 700\n"}, 4700),
    ],
)  # fmt: skip
def test_memory_is_left_as_far_as_the_machine_and_all_groups_around_have_some(
    proc, groups, meminfo, cgroup, files, left
):
    proc("meminfo", meminfo)
    proc("self/cgroup", cgroup)
    for name, content in files.items():
        groups(name, content)
    assert Host.available_bytes() == left


@pytest.mark.parametrize(
    ("threads", "forked", "expected", "warned"),
    [(4, False, 4, 0), (4, True, 1, 1), (1, True, 1, 0), (None, True, 16, 0)],
)
def test_a_computation_in_a_child_of_threads_has_one(groups, monkeypatch, caplog, threads, forked, expected, warned):
    torch = SimpleNamespace(count=threads)
    if threads is not None:
        torch.get_num_threads = lambda: torch.count
        torch.set_num_threads = lambda count: setattr(torch, "count", count)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(host, "require", lambda name, purpose: torch)
    monkeypatch.setattr(host, "openmp_threads", lambda: None)
    monkeypatch.setattr(host, "_threaded", [os.getpid() + forked])
    host.warn_once.cache_clear()
    assert Host.cpu_threads() == expected
    assert len(caplog.records) == warned


def test_threads_are_openmps_or_one_for_each_cpu(groups, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(host, "openmp_threads", lambda: 3)
    assert Host.cpu_threads() == 3
    monkeypatch.setattr(host, "openmp_threads", lambda: None)
    assert Host.cpu_threads() == 16


def test_versions_are_those_of_what_is_installed(monkeypatch):
    monkeypatch.setattr(host, "installed_version", {"triton-ops": "1.2", "torch": "2.9", "triton": None}.get)
    monkeypatch.setattr(host, "available", lambda name: True)
    assert Host.versions() == {"python": sys.version.split()[0], "triton-ops": "1.2", "torch": "2.9"}
    monkeypatch.setattr(host, "available", lambda name: False)
    assert Host.versions() == {"python": sys.version.split()[0], "triton-ops": "1.2"}
    assert available("pytest")
    assert not available("no_such_package")


@pytest.mark.parametrize("kind", [".py", ".so"])
@pytest.mark.parametrize(
    ("size", "mode", "right", "noted"),
    [(3, "sha256", True, True), (None, "sha256", True, True), (4, "sha256", True, False), (3, "sha256", False, False),
     (3, "md5", False, True)],
)  # fmt: skip
def test_a_file_is_as_noted_by_its_size_and_pythons_by_content(tmp_path, kind, size, mode, right, noted):
    path = tmp_path / f"file{kind}"
    path.write_bytes(b"abc")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"abc" if right else b"abd").digest()).rstrip(b"=").decode()
    file = SimpleNamespace(locate=lambda: path, suffix=kind, size=size, hash=SimpleNamespace(mode=mode, value=digest))
    assert host._is_as_noted(file) == (noted or (kind == ".so" and size != 4))
    path.unlink()
    assert not host._is_as_noted(file)


WRONG = "Invalid log settings: +dynam,inductor,nosuch, must be a list. Valid settings:\ndynamo, inductor,  aot"


def test_a_log_of_torch_that_is_misspelt_is_named_with_its_likeness():
    reason, step = host._wrong_logs("+dynam,inductor,nosuch", ["dynamo", "inductor", "aot"])
    assert (
        reason == "cannot be imported: TORCH_LOGS is '+dynam,inductor,nosuch', and torch has no log 'dynam', 'nosuch'"
    )
    assert step == "correct TORCH_LOGS; close are dynamo"
    assert host._wrong_logs("zzzz", ["dynamo"])[1] == "correct TORCH_LOGS: TORCH_LOGS=help lists logs"


def test_torch_that_could_not_be_imported_is_not_tried_again(monkeypatch):
    monkeypatch.setattr(host, "_failures", {})
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    asked = []

    def fail(name):
        asked.append(name)
        raise ValueError(WRONG)

    monkeypatch.setattr(host, "import_in_order", fail)
    for name in ("torch", "torch.nn"):
        with pytest.raises(
            MissingDependencyError, match=f"^{name} is needed for a test, and cannot be imported: TORCH_LOGS"
        ):
            require(name, "a test")
    assert asked == ["torch"]
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    with pytest.raises(MissingDependencyError, match="Invalid log settings"):
        require("torch.nn", "a test")
    assert asked == ["torch", "torch.nn"], "what is loaded can be asked for its parts"
    for name in ("other", "other.part"):
        with pytest.raises(MissingDependencyError, match="ValueError: Invalid"):
            require(name, "a test")
    assert asked[2:] == ["other", "other.part"]


def test_the_packages_that_hold_a_module_are_imported_before_it(monkeypatch):
    asked = []
    monkeypatch.setattr(host.importlib, "import_module", lambda name: asked.append(name) or name)
    assert import_in_order("a.b.c") == "a.b.c"
    assert asked == ["a", "a.b", "a.b.c"]


@pytest.mark.parametrize(("tty", "shown", "drawn"), [(True, True, True), (False, True, False), (True, False, False)])
def test_a_bar_is_drawn_on_a_terminal_where_progress_is_on(monkeypatch, tty, shown, drawn):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: tty, raising=False)
    monkeypatch.setattr(host, "progress", lambda: shown)
    monkeypatch.setattr(host, "colours", lambda: False)
    console = host.bar_console()
    assert (console is not None) == drawn
    assert not drawn or (console.stderr and console.color_system is None)
    for is_terminal in (True, False):
        console = SimpleNamespace(is_terminal=is_terminal)
        assert host.bar_console(console) is (console if is_terminal else None)
