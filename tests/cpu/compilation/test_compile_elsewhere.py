"""Compiling on other hosts: hosts of this machine, with compilers and disk caches of their own, really compile."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from tests import planted_kernels
from tests.beside import Beside
from tests.planted_kernels import grid
from triton_ops.backend import AheadOfTime, Arguments, Entry, TritonKernel, described, has_entry
from triton_ops.compilation import (
    CompileHost,
    CompilePool,
    OtherHost,
    OtherHosts,
    PackedKernel,
    Queue,
    SharedCpus,
    compile_host,
    elsewhere,
    versions_here,
)
from triton_ops.compilation.made import Made
from triton_ops.device import named_target
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.space import Config
from triton_ops.values import Status, TensorSpec

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]

TOKEN = "0" * 32
AHEAD = AheadOfTime(
    TritonKernel(planted_kernels.planted, grid, outputs=("x",)),
    Arguments((TensorSpec((1000,), "float32"), 1000)),
    named_target("sm_90"),
)


def config(kind, block=128):
    return Config(KIND=kind, BLOCK=block)


GOOD = [config("good", 64 << number) for number in range(4)]


@pytest.fixture
def beside():
    host = Beside()
    yield host
    host.end()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Triton's disk cache on this host."""
    folder = tmp_path / "here"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def told():
    return []


@contextmanager
def pool_of(beside, here, told, timeout_s=60.0):
    """A pool with one CPU, which is taken by somebody else until the second value is called."""
    shared = SharedCpus(1, elsewhere=OtherHosts([beside.handle], told.append))
    freed = threading.Event()

    def hold():
        with shared.turn(other):
            held.set()
            freed.wait(60)

    with CompilePool(
        AHEAD, workers=1, timeout_s=timeout_s, shared_cpus=shared, disk_cache=str(here)
    ) as pool, CompilePool(AHEAD, workers=1) as other:  # fmt: skip
        other.first, held = True, threading.Event()
        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(60)
        try:
            yield pool, freed.set
        finally:
            freed.set()
            holder.join()


def compile_all(beside, here, told, configs=GOOD, until=None):
    """What became of configs, with the pool's notes; this host begins once others have all but one, or `until`."""
    with pool_of(beside, here, told) as (pool, free_here):
        futures = [pool.submit(each) for each in configs]
        eventually(until or (lambda: all(future.done() for future in futures[:-1])))
        free_here()
        return [future.result(60) for future in futures], pool.notes


def eventually(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


def looked_up(each):
    """Compile a config in this process, where the compiler must not be reached; gives Triton's keys."""

    def reached(*_):
        raise AssertionError("Triton compiles this again")

    return [built.key for built in replace(AHEAD, arguments=described(AHEAD.arguments)).built(each, reached)]


def test_what_another_host_has_compiled_is_found_here_by_triton_and_not_compiled_again(beside, here, told):
    found, notes = compile_all(beside, here, told)
    assert [each.status for each in found] == [Status.OK] * 4
    assert notes == ("3 configs were compiled by other hosts",)
    assert told == []
    keys = [looked_up(each.config) for each in found]
    assert all(has_entry(here, key) for (key,) in keys)
    with CompilePool(AHEAD, workers=1, disk_cache=str(here)) as pool:
        again = [pool.submit(each).result() for each in GOOD]
    assert [replace(each, compile_s=None) for each in again] == [replace(each, compile_s=None) for each in found]
    assert beside.asked.count("compile") == 3
    assert beside.asked[-1] == "close"


def test_what_this_host_has_is_not_sent(beside, here, told):
    with CompilePool(AHEAD, workers=1, disk_cache=str(here)) as pool:
        for each in GOOD:
            pool.submit(each).result()
    _, notes = compile_all(beside, here, told)
    assert notes == ("3 configs were compiled by other hosts",)
    assert "fetch" not in beside.asked


def test_a_config_that_fails_elsewhere_fails_only_if_it_fails_here(beside, here, told):
    kinds = ["abort", "raise", "good", "good"]
    found, notes = compile_all(
        beside,
        here,
        told,
        [config(kind, 64 << n) for n, kind in enumerate(kinds)],
        until=lambda: beside.asked.count("compile") > 1,
    )
    assert [each.status.value for each in found] == ["crash", "compile", "ok", "ok"]
    assert found[0].reason == "the compiler's process ended by SIGABRT: LLVM ERROR: planted"
    assert told == []
    assert len(notes) <= 1


@pytest.mark.parametrize(
    "error", [ConnectionError("the host is gone"), CacheError("the disk there is full")], ids=["gone", "full disk"]
)
def test_a_host_that_is_gone_or_full_is_asked_no_more_and_every_config_is_compiled_here(beside, here, told, error):
    def fails(_):
        raise error

    beside.lies["compile"] = fails
    found, notes = compile_all(beside, here, told, until=lambda: told)
    assert [each.status for each in found] == [Status.OK] * 4
    assert notes == ()
    assert told == [f"other compiles nothing more for this run: {error}"]
    assert beside.asked.count("compile") <= beside.handle.cpus


def test_what_cannot_be_written_here_is_no_fault_of_its_host(beside, here, told, monkeypatch):
    failed = threading.Event()

    def fails(*_):
        failed.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(elsewhere, "write_entry", fails)
    found, notes = compile_all(beside, here, told, until=failed.is_set)
    assert [each.status for each in found] == [Status.OK] * 4
    assert (notes, told) == ((), [])


def test_a_host_that_is_silent_is_given_up(beside, here, told, monkeypatch):
    monkeypatch.setattr(elsewhere, "_ON_THE_WAY_S", 0.3)
    over = threading.Event()
    beside.lies["fetch"] = lambda answer: over.wait(60) and answer()
    try:
        found, notes = compile_all(beside, here, told, until=lambda: told)
    finally:
        over.set()
    assert [each.status for each in found] == [Status.OK] * 4
    assert notes == ()
    assert told == ["other compiles nothing more for this run: it has not answered for 0.3 s"]


@pytest.mark.parametrize(
    ("what", "lie", "said"),
    [
        ("compile", lambda _: "nonsense", "what is no answer"),
        ("compile", lambda answer: Made(replace(answer().compiled, config=config("x")), ()), "what is no answer"),
        ("compile", lambda answer: replace(answer(), keys=("../..",)), "is no key"),
        ("fetch", lambda answer: [cut(each) for each in answer()], "not whole"),
        ("fetch", lambda answer: [changed(each) for each in answer()], "another binary"),
        ("open", lambda _: 1 / 0, "division by zero"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_true_ends_the_work_of_its_host(beside, here, told, what, lie, said):
    beside.lies[what] = lie
    found, notes = compile_all(beside, here, told, until=lambda: told)
    assert [each.status for each in found] == [Status.OK] * 4
    assert notes == ()
    assert len(told) == 1
    assert said in told[0]


def cut(entry):
    """An entry whose text was not sent to its end."""
    return replace(entry, files={n: c[:-1] if n.endswith(".ptx") else c for n, c in entry.files.items()})


def changed(entry):
    """An entry with other machine code."""
    return Entry.of(entry.key, {n: c + b"x" if n.endswith(".cubin") else c for n, c in entry.files.items()})


def test_a_host_whose_triton_names_binaries_differently_is_dropped_and_nothing_is_lost(beside, here, told):
    def other_name(key):
        return hashlib.sha256(key.encode()).hexdigest()

    def renamed(entry):
        (name,) = (name for name in entry.files if name.endswith(".json"))
        metadata = {**json.loads(entry.files[name]), "hash": other_name(entry.key)}
        return Entry.of(other_name(entry.key), {**entry.files, name: json.dumps(metadata).encode()})

    fetched = {}

    def compiled(answer):
        made = answer()
        fetched.update({other_name(key): key for key in made.keys})
        return replace(made, keys=tuple(map(other_name, made.keys)))

    def fetch(token, keys):
        return [renamed(each) for each in beside.host.fetch(token, [fetched[key] for key in keys])]

    answer = beside.answer
    beside.lies["compile"] = compiled
    beside.answer = lambda what, *given: fetch(*given) if what == "fetch" else answer(what, *given)
    found, notes = compile_all(beside, here, told, until=lambda: told)
    assert [each.status for each in found] == [Status.OK] * 4
    assert notes == ()
    assert len(told) == 1
    assert "its Triton names binaries differently" in told[0]


def test_a_host_of_another_version_compiles_nothing_and_says_so_once(beside, here, told, monkeypatch):
    monkeypatch.setattr(compile_host, "versions_here", lambda: {**versions_here(), "Triton": "3.0.0"})
    found, notes = compile_all(beside, here, told, until=lambda: told)
    assert [each.status for each in found] == [Status.OK] * 4
    assert notes == ()
    assert told == [
        f"other compiles nothing more for this run: it has Triton 3.0.0, and not {versions_here()['Triton']}"
    ]
    assert "compile" not in beside.asked


def test_a_host_that_closes_the_kernel_gets_no_more_of_it_and_serves_the_next(beside, here, told):
    beside.lies["compile"] = lambda answer: None
    found, notes = compile_all(beside, here, told, until=lambda: "compile" in beside.asked)
    assert [each.status for each in found] == [Status.OK] * 4
    assert (notes, told) == ((), [])
    beside.lies.clear()
    _, notes = compile_all(beside, here.with_name("empty"), told)
    assert notes == ("3 configs were compiled by other hosts",)


@pytest.mark.parametrize("what", ["open", "compile", "fetch", "keys"])
def test_a_pool_that_is_closed_waits_for_no_host(beside, here, told, what, monkeypatch):
    reached, over = threading.Event(), threading.Event()

    def waits(answer):
        reached.set()
        over.wait(60)
        return answer()

    def no_keys(*_):
        reached.set()
        end = time.monotonic() + 60
        while beside.asked[-1] != "close" and time.monotonic() < end:  # until the pool is closed
            time.sleep(0.01)

    beside.lies[what] = waits
    if what == "keys":
        monkeypatch.setattr(CompilePool, "_keys", no_keys)
    begun = time.monotonic()
    try:
        with pool_of(beside, here, told) as (pool, _):
            futures = [pool.submit(each) for each in GOOD]
            assert reached.wait(60)
            pool.stop()
            ends = [future.cancelled() or future.result(30).status for future in futures]
        assert time.monotonic() - begun < 55, "somebody waited for the answer"
    finally:
        over.set()
    assert set(ends) <= {True, Status.CRASH}
    assert told == []


def test_what_is_added_just_as_a_host_has_found_nothing_is_compiled_there(beside, here, told, monkeypatch):
    late, take, once = [], Queue.take, threading.Lock()

    def takes(queue, elsewhere=False):
        job = take(queue, elsewhere)
        if elsewhere and job is None and once.acquire(blocking=False):
            late.extend([pool.submit(each) for each in GOOD[1:]])
        return job

    monkeypatch.setattr(Queue, "take", takes)
    beside.handle = replace(beside.handle, cpus=1)
    with pool_of(beside, here, told) as (pool, _):
        pool.submit(GOOD[0])
        eventually(lambda: sum(future.done() for future in late) == 2)
    assert told == []


def test_without_room_for_a_host_nothing_is_asked(beside, here, told, monkeypatch):
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    with CompilePool(
        AHEAD, workers=1, shared_cpus=SharedCpus(1, elsewhere=OtherHosts([beside.handle], told.append))
    ) as pool:
        assert pool.workers == 1
    assert beside.asked == []


@pytest.fixture
def host():
    found = CompileHost(most=2)
    yield found
    found.end()
    assert not found._folder.exists()


def opened(host, token=TOKEN):
    return host.open(token, PackedKernel.of(AHEAD), versions_here(), 1, 60.0)


def test_a_host_forgets_the_kernel_that_was_used_longest_ago(host):
    tokens = [str(n) * 32 for n in range(3)]
    assert [opened(host, token) for token in tokens[:2]] == ["", ""]
    made = host.compile(tokens[0], GOOD[0])
    assert made.compiled.status is Status.OK
    assert opened(host, tokens[2]) == ""
    assert host.compile(tokens[1], GOOD[0]) is None
    (entry,) = host.fetch(tokens[0], made.keys)
    assert entry.key == made.keys[0]
    assert host.fetch(tokens[0], made.keys) == [], "it is kept no longer than it is needed"
    folder = host._folder
    for token in tokens:
        host.close(token)
        assert host.fetch(token, made.keys) == []
        host.close(token)
    assert list(folder.iterdir()) == []


def test_a_host_refuses_tokens_that_are_none_and_other_versions(host):
    for token in ("", "..", "../" + TOKEN, TOKEN + "0", "X" * 32):
        with pytest.raises(ValueError, match="is no token"):
            host.open(token, PackedKernel.of(AHEAD), versions_here(), 1, 60.0)
    with pytest.raises(SettingsError, match=r"it has Python .*, and not 2\.7"):
        host.open(TOKEN, PackedKernel.of(AHEAD), {**versions_here(), "Python": "2.7"}, 1, 60.0)


def test_a_kernel_that_a_host_cannot_load_is_compiled_here_and_the_host_stays(host):
    packed = replace(PackedKernel.of(AHEAD), cache_key="another")
    assert "is not the same kernel" in host.open(TOKEN, packed, versions_here(), 1, 60.0)
    assert opened(host) == ""
    host.close(TOKEN)


def test_a_dropped_host_is_told_of_once():
    told = []
    host = OtherHost(name="other", cpus=1, ask=lambda *_: Future())
    hosts = OtherHosts([host], told.append)
    for why in ("first", "second"):
        hosts.drop(host, why)
    assert told == ["other compiles nothing more for this run: first"]
    assert hosts.usable() == []
