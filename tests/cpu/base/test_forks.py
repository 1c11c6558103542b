"""A process that forks while its threads use a store: the child finds every lock free, and loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.forked import status_of_a_child
from tests.limits import ENOUGH_S
from triton_ops.base import ForkSafeLock as Guard
from triton_ops.base import cached_property

# Forks while a thread is within `set`, at a step that the first argument names; the child then writes and reads.
SET_AND_FORK = """
import os, sys, threading, time
from triton_ops.benchmark import ConfigCache
from triton_ops.records import store

where, folder = sys.argv[1:3]
cache = ConfigCache(None if where == "memory" else folder)
within, forked = threading.Event(), threading.Event()

def pausing(function):
    def paused(*given, **named):
        if threading.current_thread() is writer:
            within.set()
            forked.wait()
        return function(*given, **named)
    return paused

def write():
    cache.set("kernel", (1,), "cpu", {"n": 1})

writer = threading.Thread(target=write)
if where == "file":
    store.StoredFile.replace = pausing(store.StoredFile.replace)
else:
    class Texts(dict):
        __setitem__ = pausing(dict.__setitem__)
    if where == "layered":
        cache._store.directory._known = Texts()
    else:
        cache._store._texts = Texts()
writer.start()
within.wait()
child = os.fork()
if not child:
    cache.set("kernel", (2,), "cpu", {"n": 2})
    found = cache.get("kernel", (2,), "cpu")
    again = found if where == "memory" else ConfigCache(folder).get("kernel", (2,), "cpu")
    os.write(1, f"{found} {again} {len(cache)}\\n".encode())
    os._exit(0)
time.sleep(0.2 if where == "file" else 0.0)  # the child waits for the parent's lock of the folder meanwhile
forked.set()
writer.join()
os.waitpid(child, 0)
print(cache.get("kernel", (1,), "cpu"), flush=True)
"""


@pytest.mark.processes
@pytest.mark.parametrize("where", ["file", "layered", "memory"])
def test_a_fork_while_a_thread_writes_leaves_no_lock_held(where, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SET_AND_FORK, where, str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=25)  # a lock that stays held keeps a child waiting for 30 s, or for ever
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
    assert err == ""
    childs, own = out.splitlines()
    assert childs.startswith("{'n': 2} {'n': 2} ")
    assert own == "{'n': 1}"


def test_a_guard_is_one_at_a_time():
    guard, seen = Guard(), []

    def enter():
        with guard:
            seen.append("in")

    with guard:
        thread = threading.Thread(target=enter)
        thread.start()
        time.sleep(0.05)
        assert seen == []
    thread.join()
    assert seen == ["in"]


HARVESTS = """
import os, pathlib, sys
from triton_ops.records import misses
misses._harvests[pathlib.Path(sys.argv[1])] = misses.Harvest(pathlib.Path(sys.argv[1]))
child = os.fork()
if not child:
    os._exit(len(misses._harvests))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(misses._harvests))
"""


@pytest.mark.processes
def test_a_child_begins_its_own_harvest_of_misses(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HARVESTS, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0 1\n"


def test_a_guard_that_may_be_entered_again_is_free_status_of_a_child():
    guard = Guard(threading.RLock)
    with guard, guard:
        guard.free()  # as in a child whose parent's other thread held it
        thread = threading.Thread(target=guard.__enter__)
        thread.start()
        thread.join(ENOUGH_S)
        assert not thread.is_alive()
        guard.free()
        guard.__enter__()
        guard.__enter__()


class Slow:
    def __init__(self, wait=lambda: None):
        self.wait = wait

    @cached_property
    def value(self):
        """A new object."""
        self.wait()
        return object()


@pytest.mark.processes
def test_a_property_that_another_thread_computes_is_computed_in_a_forked_child():
    begun, go_on = threading.Event(), threading.Event()
    slow = Slow(lambda: (begun.set(), go_on.wait()))
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    begun.wait()
    status = status_of_a_child(lambda: Slow().value)
    go_on.set()
    thread.join()
    assert status == 0


def test_threads_that_compute_a_property_at_once_get_one_value():
    all_here = threading.Barrier(4, timeout=ENOUGH_S)
    slow, values = Slow(all_here.wait), []
    threads = [threading.Thread(target=lambda: values.append(slow.value)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*map(id, values)}) == 1
    assert slow.value is values[0]
    assert Slow.value.__doc__ == "A new object."
