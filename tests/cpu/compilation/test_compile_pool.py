"""The compile pool: every fault of a compiler ends one config, nothing is printed, and no process is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests import libcuda, planted_kernels  # noqa: E402
from tests.forking import Lent, wait_for  # noqa: E402
from tests.limits import ENOUGH_S, eventually  # noqa: E402
from tests.planted_kernels import grid  # noqa: E402
from triton_ops import compare, release_processes, time_ms, tune  # noqa: E402
from triton_ops.backend import Arguments, CompilerNeeds, Operation, TritonCompiler, TritonKernel  # noqa: E402
from triton_ops.backend.triton_compiler import TritonNeeds  # noqa: E402
from triton_ops.base import Host, Process  # noqa: E402
from triton_ops.compilation import CompilePool  # noqa: E402
from triton_ops.compilation import pool as compile_pool  # noqa: E402
from triton_ops.device import DeviceSpec, Target, gpu_missing  # noqa: E402
from triton_ops.exceptions import CacheError, DeviceError, KernelTypeError, TargetError  # noqa: E402
from triton_ops.processes import child as descriptors  # noqa: E402
from triton_ops.processes import fork_servers  # noqa: E402
from triton_ops.space import Config  # noqa: E402
from triton_ops.values import (  # noqa: E402
    Status,
    TensorSpec,
)

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]

PROJECT = Path(__file__).parents[3]
TARGET = Target.named("sm_90")
X = Arguments((TensorSpec((1000,), "float32"), 1000))


class Place:
    """Where a fork server finds what its environment names: a disk cache, a C compiler that can be slow, a libcuda."""

    def __init__(self, folder):
        self.cache, self.compiler = folder / "triton", folder / "cc"
        self.asked, self._slow = folder / "asked", folder / "slow"
        self._environment = {"TRITON_CACHE_DIR": self.cache, "CC": self.compiler, "TRITON_LIBCUDA_PATH": folder}
        self._folder = folder

    def server(self):
        self.compiler.write_text(
            f'#!/bin/sh\ntouch "{self.asked}"\nif [ -e "{self._slow}" ]; then exec sleep 100; fi\nexec cc "$@"\n'
        )
        self.compiler.chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            for name, path in self._environment.items():
                patch.setenv(name, str(path))
            return compile_pool.compiler_server(TritonNeeds(("triton",), TARGET))

    def build_libcuda(self, slow_compiler=False):
        libcuda.build(self._folder)
        self._slow.unlink(missing_ok=True)
        if slow_compiler:
            self._slow.touch()
        shutil.rmtree(self.cache, ignore_errors=True)
        self.asked.unlink(missing_ok=True)

    def launchers(self):
        return [path.name for path in self.cache.rglob("*.so") if "launcher" in path.name]


@pytest.fixture(scope="session")
def _place(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("place"))
    server = place.server()
    wait_for(server)
    yield place, server
    server.close()


@pytest.fixture
def place(_place, monkeypatch):
    """Where the compilers of a test find what can be made slow, broken and new."""
    place, server = _place
    monkeypatch.setattr(compile_pool, "compiler_server", lambda *_: Lent(server))
    return place


PLANTED = TritonKernel(planted_kernels.planted, grid, outputs=("x",))


def config(kind, block=128, **more):
    return Config(KIND=kind, BLOCK=block, **more)


def children(pid):
    """Processes below `pid`, the dead that nobody has buried yet not counted."""
    parents = {int(path.name): stat(path.name)[1] for path in Path("/proc").glob("[0-9]*")}
    result = [child for child, parent in parents.items() if parent == str(pid) and alive([child])]
    return result + [below for child in result for below in children(child)]


@pytest.fixture
def started(shared_fork_server):
    """Says which processes below this one were not there when the test began."""
    shared_fork_server.wait()
    before = set(children(os.getpid()))
    return lambda: [pid for pid in children(os.getpid()) if pid not in before]


def alive(pids):
    return [pid for pid in pids if stat(pid)[0] not in "ZX"]


def stat(pid):
    """State and parent of a process; X for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return "X", "0"


def gone(pids):
    """Wait until the processes have ended; one that does not is named."""
    eventually(
        lambda: not alive(pids), lambda: [(pid, Path(f"/proc/{pid}/cmdline").read_bytes()) for pid in alive(pids)]
    )


def test_what_was_compiled_before_is_known_also_for_other_sizes_of_the_same_kind(place, started):
    del place
    for n, processes in ((1000, True), (1016, False), (1024, True)):  # a multiple of 16 is another kind
        arguments = Arguments((TensorSpec((n,), "float32"), n))
        with CompilePool(TritonCompiler(PLANTED, arguments, TARGET), workers=1) as pool:
            compiled = pool.submit(config("right", block=64)).result()
            assert bool(started()) == processes, n
        assert compiled.resources is not None


def test_every_fault_ends_one_config_and_the_pool_goes_on(started, capfd):
    kinds = ["good", "abort", "print", "exit", "hang", "raise", "good"]
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1, timeout_s=3.0) as pool:
        futures = [pool.submit(config(kind, 128 << number)) for number, kind in enumerate(kinds)]
        outcome = [future.result() for future in futures]
        left = started()
    assert [result.config["KIND"] for result in outcome] == kinds
    assert [result.status.value for result in outcome] == ["ok", "crash", "ok", "crash", "timeout", "compile", "ok"]
    assert outcome[1].reason == "the compiler's process ended by SIGABRT: LLVM ERROR: planted"
    assert outcome[3].reason == "the compiler's process ended with exit code 3"
    assert outcome[4].reason == "compiling took over 3 s"
    assert outcome[5].reason == "CompilationError: at 2:25: … planted, too"
    assert 'raise ValueError("planted, too")' in outcome[5].trace, "the trace reaches into the user's code"
    assert [bool(result.trace) for result in outcome] == [kind == "raise" for kind in kinds]
    for result in outcome:
        assert result.launchable == (result.resources is not None)
        assert result.compile_s > 0
    assert left, "there was a process to be ended"
    gone(left)
    assert capfd.readouterr() == ("", "")


def test_a_compiler_that_writes_into_its_connection_ends_one_config():
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1, timeout_s=30.0) as pool:
        outcome = [pool.submit(config(kind, 128 << n)).result() for n, kind in enumerate(("good", "write", "good"))]
    assert [result.status.value for result in outcome] == ["ok", "crash", "ok"]
    assert outcome[1].reason == (
        "the compiler's process wrote bytes that are no answer into its connection, and was ended"
    )


def test_a_fork_server_that_is_killed_from_outside_is_started_again(own_fork_server, started):
    kinds = ["good", "slow", "good", "good"]
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=2, timeout_s=60.0) as pool:
        pool.submit(config("good", 64)).result()
        futures = [pool.submit(config(kind, 128 << number)) for number, kind in enumerate(kinds)]
        futures[0].result()
        first = pool._fork_server._process.pid
        os.kill(first, signal.SIGKILL)
        outcome = [future.result() for future in futures]
        later = pool.submit(config("good", 4096)).result()
        left = started()
    assert [result.status.value for result in (*outcome, later)] == ["ok"] * 5, outcome
    gone([*left, first])


def test_a_server_that_was_started_early_serves_the_pool_that_follows(own_fork_server, monkeypatch):
    fork_servers.drop_idle()
    spec, needs_of_servers, make = DeviceSpec.named("NVIDIA H200"), [], compile_pool.compiler_server
    monkeypatch.setattr(compile_pool, "probe", {"cuda:0": spec}.get)
    monkeypatch.setattr(compile_pool, "compiler_server", lambda needs: needs_of_servers.append(needs) or make(needs))
    CompilePool.start_server(TritonCompiler.needs_on, "cuda:0")
    assert len(needs_of_servers) == 1
    with CompilePool(TritonCompiler(PLANTED, X, Target.of(spec)), workers=1, reuse=True) as pool:
        assert pool.submit(config("good")).result().launchable
    assert len(needs_of_servers) == 1


def test_a_fork_server_that_is_killed_again_and_again_is_said(own_fork_server, monkeypatch):
    lost, expected, fork = [], 2, compile_pool.ForkServer.fork

    def killed_first(server):
        if len(lost) < expected:
            lost.append(server)
            os.kill(server._process.pid, signal.SIGKILL)
        return fork(server)

    monkeypatch.setattr(compile_pool.ForkServer, "fork", killed_first)
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1) as pool:
        assert pool.submit(config("good")).result().launchable
    expected = 5
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1) as pool:
        future = pool.submit(config("good", 256))
        with pytest.raises(TargetError, match=r"no compiling process can be started: .* is gone"):
            future.result()
    assert len(lost) == 5


@pytest.mark.skipif(not triton.__version__.startswith("3.6"), reason="only there a launcher is built")
@pytest.mark.parametrize("launches", [True, False])
def test_the_launcher_is_built_where_something_will_be_launched(launches, place):
    place.build_libcuda()
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1, launches=launches) as pool:
        assert pool.submit(config("good", 128)).result().launchable
        assert pool.submit(config("good", 256)).result().launchable  # its turn comes after the launcher's
    assert len(place.launchers()) == place.asked.exists() == launches


@pytest.mark.skipif(not triton.__version__.startswith("3.6"), reason="only there a launcher is built")
def test_no_config_is_blamed_for_a_launcher_that_cannot_be_built(place, started):
    place.build_libcuda(slow_compiler=True)
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1, timeout_s=3.0, launches=True) as pool:
        outcome = [pool.submit(config("good", block)).result() for block in (128, 256, 512)]
        left = started()
    assert place.asked.exists()
    assert [result.status.value for result in outcome] == ["ok", "ok", "ok"]
    gone(left)


def test_the_launching_process_compiles_nothing():
    x = torch.zeros(1000)
    with CompilePool(TritonCompiler(PLANTED, Arguments((x, 1000)), TARGET), workers=1) as pool:
        assert pool.submit(config("good", 4096)).result().launchable
    hits = []
    triton.knobs.compilation.listener = lambda **event: hits.append(event["cache_hit"])
    try:
        TritonCompiler(PLANTED, Arguments((x, 1000)), TARGET).built(config("good", 4096))
    finally:
        triton.knobs.compilation.listener = None
    assert hits == [True]


def test_a_grid_is_asked_where_it_can_do_no_harm():
    kernel = TritonKernel(planted_kernels.planted, planted_kernels.deadly_grid, outputs=("x",))
    with CompilePool(TritonCompiler(kernel, X, TARGET), workers=1) as pool:
        result = [pool.submit(config(kind, 2048)).result() for kind in ("good", "deadly")]
        other = pool.submit(config("good", 1024)).result()
    assert result[0].launch
    assert other.launch != result[0].launch
    assert (result[1].status, result[1].reason) == (Status.CRASH, "the compiler's process ended by SIGSEGV")


def test_rules_answer_at_once_and_deferred_configs_are_compiled_on_demand(started):
    deferred = config("good", 8192, num_warps=1)
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1) as pool:
        refused = pool.submit(config("good", 100))
        assert refused.done()
        assert refused.result().status is Status.CONSTRAINT
        assert pool.submit(config("good", num_warps=64)).result().status is Status.RESOURCES
        seen = pool.submit(deferred)
        assert seen.done()
        assert (seen.result().launchable, seen.result().deferred, seen.result().resources) == (True, True, None)
        assert "256 elements per thread" in seen.result().reason
        assert not started(), "nothing was compiled, so no process was started"
        assert pool.submit(deferred, anyway=True).result().resources.registers > 0
        assert pool.submit(config("good", 100), anyway=True).result().status is Status.CONSTRAINT


def test_a_tensor_of_the_caller_is_described_not_sent():
    room = torch.zeros(1025)
    for tensor, width in ((room[:1024], 16), (room[1:], 4)):
        with CompilePool(TritonCompiler(PLANTED, Arguments((tensor, 1024)), TARGET), workers=1) as pool:
            result = pool.submit(config("good", 512, num_warps=4)).result()
        assert result.resources.load_bytes == width, "aligned data is loaded 16 bytes at once, other data is not"
    with pytest.raises(TargetError, match=r"the arguments of .*planted: it cannot be sent"):
        CompilePool(TritonCompiler(PLANTED, Arguments((threading.Lock(), 1024)), TARGET))


def module_from(tmp_path, monkeypatch, name, text):
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return __import__(name)


HELPERS = """
import triton
import triton.language as tl

FACTOR = tl.constexpr(3)


@triton.jit
def scaled(value, by: tl.constexpr):
    return value * by * FACTOR


class Width:
    LEAST = 16


def blocks(n, block):
    return triton.cdiv(n, max(block, Width.LEAST))
"""

USES_HELPERS = """
from pathlib import Path

import torch
import triton
import triton.language as tl
import {helpers}
from {helpers} import FACTOR, scaled

Path({witness!r}).write_text(Path({witness!r}).read_text() + "imported")
STEP = tl.constexpr(Path({witness!r}).stat().st_size)
KEPT = torch.zeros(3)


@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    size: tl.constexpr = BLOCK
    at = tl.arange(0, size)
    loaded = scaled(tl.load(x + at, mask=at < n), STEP) + {helpers}.FACTOR
    tl.store(x + at, {helpers}.scaled(loaded, FACTOR), mask=at < n)


def grid(meta):
    return ({helpers}.blocks(KEPT.numel() + meta["n"], meta["BLOCK"]),)
"""


def uses_helpers(tmp_path, monkeypatch):
    """A module whose import leaves a mark, and gives another constant every time, with helpers in another module."""
    name = f"helpers_{tmp_path.name.replace('-', '_')}"
    module_from(tmp_path, monkeypatch, name, HELPERS)
    (tmp_path / "witness").touch()
    text = USES_HELPERS.format(helpers=name, witness=str(tmp_path / "witness"))
    return module_from(tmp_path, monkeypatch, f"uses_{name}", text)


def test_a_module_with_a_side_effect_is_not_imported_again_and_its_binary_is_found(started, tmp_path, monkeypatch):
    module = uses_helpers(tmp_path, monkeypatch)
    kernel = TritonKernel(module.kernel, module.grid)
    given = Config(BLOCK=64, num_warps=1)
    with CompilePool(TritonCompiler(kernel, X, TARGET), workers=1) as pool:
        result = pool.submit(given).result()
        mapped = [Path(f"/proc/{pid}/maps").read_text() for pid in started()]
    assert (result.status, result.reason) == (Status.OK, "")
    assert result.launch, "the grid was asked, with a tensor in its module's globals"
    assert not any("libtorch" in text for text in mapped), "a module that imports torch for itself costs nothing here"
    assert (tmp_path / "witness").read_text() == "imported"
    assert hits_of(kernel, given) == [True]


def hits_of(kernel, given):
    """Whether this process finds a config in the disk cache."""
    hits = []
    triton.knobs.compilation.listener = lambda **event: hits.append(event["cache_hit"])
    try:
        TritonCompiler(kernel, X.described(), TARGET).built(given)
    finally:
        triton.knobs.compilation.listener = None
    return hits


def test_a_module_that_was_edited_or_broken_since_its_import_matters_to_nobody(monkeypatch, tmp_path):
    source = PROJECT.joinpath("tests", "planted_kernels.py").read_text()
    module = module_from(tmp_path, monkeypatch, "changing", source)
    kernel = TritonKernel(module.planted, grid)
    for block, text in ((256, "raise ValueError('broken since')"), (512, "\n\n" + source.replace("+ 1", "+ 2"))):
        (tmp_path / "changing.py").write_text(text)
        with CompilePool(TritonCompiler(kernel, X, TARGET), workers=1) as pool:
            assert pool.submit(config("good", block)).result().launchable
        assert hits_of(kernel, config("good", block)) == [True]


def test_a_kernel_that_no_module_holds_is_compiled_and_one_tied_to_this_process_is_refused(monkeypatch, tmp_path):
    source = PROJECT.joinpath("tests", "planted_kernels.py").read_text()
    module = module_from(tmp_path, monkeypatch, "forgetful", source)
    kernel = TritonKernel(module.planted, grid)
    del module.planted
    with CompilePool(TritonCompiler(kernel, X, TARGET), workers=1) as pool:
        assert pool.submit(config("good")).result().launchable
    with pytest.raises(TargetError, match=r"tied: it cannot be sent to another process"):
        CompilePool(TritonCompiler(TritonKernel(tied_to_this_process(), grid), X, TARGET))


def tied_to_this_process():
    lock = threading.Lock()

    @triton.constexpr_function
    def locked():
        return lock.locked()

    @triton.jit
    def tied(x, n, BLOCK: triton.language.constexpr):
        triton.language.store(x, n + locked())

    return tied


INTERPRETED = """
from tests.planted_kernels import grid, planted
from triton_ops.backend import Arguments, TritonKernel
from triton_ops.backend import TritonCompiler
from triton_ops.compilation import CompilePool
from triton_ops.device import Target
from triton_ops.values import TensorSpec

x = Arguments((TensorSpec((1000,), "float32"), 1000))
CompilePool(TritonCompiler(TritonKernel(planted, grid, outputs=("x",)), x, Target.named("sm_90")))
"""


def test_interpreted_kernels_are_refused():
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], capture_output=True, text=True, cwd=PROJECT, check=False,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{PROJECT / 'src'}{os.pathsep}{PROJECT}"},
    )  # fmt: skip
    assert f"{KernelTypeError.__name__}: " in done.stderr
    assert "unset TRITON_INTERPRET" in done.stderr


def test_closing_ends_what_hangs_and_cancels_the_rest(own_fork_server, started):
    pool = CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1)
    hanging = pool.submit(config("hang"))
    waiting = pool.submit(config("good", 256))
    eventually(started)
    left = started()
    pool.end()
    pool.close()
    pool.close()
    gone(left)
    assert hanging.done()
    assert waiting.cancelled()
    with pytest.raises(RuntimeError):
        pool.submit(config("good", 512))


def test_the_end_of_the_block_does_not_wait_for_compilers_that_end(own_fork_server, started, monkeypatch):
    process = compile_pool.ForkedProcess
    close, ends, closed = process.close, threading.Event(), []

    def late(process):
        ends.wait(ENOUGH_S)
        close(process)
        closed.append(process)

    monkeypatch.setattr(process, "close", late)
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1) as pool:
        pool.submit(config("good", 256)).result()
        left = started()
        pool.end()
    assert not closed
    ends.set()
    gone(left)
    pool.close()
    assert closed


def test_the_next_pool_begins_and_processes_are_released_while_compilers_still_end(
    own_fork_server, started, monkeypatch
):
    close, ends = compile_pool.ForkedProcess.close, threading.Event()

    def late(process):
        assert ends.wait(ENOUGH_S)
        close(process)

    monkeypatch.setattr(compile_pool.ForkedProcess, "close", late)
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1, reuse=True) as first:
        first.submit(config("good", 2048)).result()
        hangs = first.submit(config("hang", 2048))
        eventually(hangs.running)
        first.end()
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1, reuse=True) as second:
        assert second.submit(config("good", 8192)).result().status is Status.OK
        server, left = second._fork_server, started()
        second.end()
    assert fork_servers.holds(server)
    release_processes()
    gone(left)
    assert not server.alive
    ends.set()
    first.close()
    second.close()
    assert hangs.result().status is Status.CRASH


def test_a_fork_server_keeps_no_process_that_has_ended(own_fork_server):
    def compiled(pool, block):
        both = [pool.submit(config("good", block, num_warps=warps)) for warps in (1, 2)]
        return [each.result().status for each in both]

    pools = [CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=2, reuse=True) for _ in range(4)]
    for pool, block in zip(pools, (16, 32, 64, 256), strict=True):
        assert compiled(pool, block) == [Status.OK] * 2
    last = pools.pop()
    me = str(last._fork_server._process.pid)
    assert all(pool._fork_server is last._fork_server for pool in pools)
    for pool in pools:
        pool.end()
        pool.close()
    own = len(last._processes) + 1  # the guard of the server
    eventually(lambda: [stat(path.name)[1] for path in Path("/proc").glob("[0-9]*")].count(me) == own)
    last.close()
    fork_servers.drop_idle()


def test_no_signal_is_sent_to_the_number_of_a_process_that_has_ended_with_its_fork_server(own_fork_server, monkeypatch):
    pool = CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1)
    pool.submit(config("good", 32, num_warps=8)).result()
    (process,) = pool._processes
    pool._fork_server.kill()
    gone([process.pid])
    numbers, send = [], os.killpg
    monkeypatch.setattr(os, "killpg", lambda pid, number: (numbers.append(pid), send(pid, number)))
    pool.close()
    assert process.pid not in numbers


def test_nobody_borrows_a_fork_server_that_is_about_to_be_killed():
    class Server:
        alive, borrowing = True, None

        def kill(self):
            self.borrowing = threads.submit(servers.borrow, "triton", Server)
            with pytest.raises(TimeoutError):
                self.borrowing.result(0.2)
            self.alive = False

    servers = type(fork_servers)()
    with ThreadPoolExecutor(1) as threads:
        server = servers.borrow("triton", Server)
        servers.kill_unshared(server)
        other = server.borrowing.result()
        assert other is not server
        assert servers.borrow("triton", Server) is other
        servers.kill_unshared(other)
    assert other.alive


def test_a_fork_server_with_more_imports_serves_who_needs_fewer():
    class Server:
        alive = True

        def close(self):
            self.alive = False

    target = Target.named("sm_90")
    few, more = (TritonCompiler.needs_on(target, imports) for imports in ("", "torch"))
    assert few.imports < more.imports
    servers = type(fork_servers)()
    small, large = servers.borrow(few, Server), servers.borrow(more, Server)
    assert small is not large
    servers.give_back(small)
    servers.drop_idle()
    assert servers.borrow(few, Server) is large
    for _ in range(2):
        servers.give_back(large)
    assert servers.borrow(few, Server) is large  # it was left, and has still what it had
    assert servers.borrow(more, Server) is large
    assert servers.borrow(TritonCompiler.needs_on(Target.named("sm_80")), Server) is not large
    for needs in (CompilerNeeds(("triton",)), CompilerNeeds(("triton", "torch"))):  # of another front end
        assert servers.borrow(needs, Server) is not large
    large.alive = False
    assert servers.borrow(few, Server) is not large


# What a script begins with that compiles, and then looks whether it finds in the cache what the pool has compiled. Its
# pools share a fork server, and it needs no torch: importing it takes longer than all else.
COMPILES = """
import sys
import triton
import triton.language as tl
from tests.forking import Lender
from triton_ops.backend import Arguments, TritonKernel
from triton_ops.backend import TritonCompiler
from triton_ops.backend.triton_compiler import TritonNeeds
from triton_ops.compilation import pool as pools
from triton_ops.device import Target
from triton_ops.space import Config
from triton_ops.values import TensorSpec

target, config = Target.named("sm_90"), Config(BLOCK=64, num_warps=1)
TritonNeeds(("triton",), target).rehearse()
if not isinstance(pools.compiler_server, Lender):
    pools.compiler_server = Lender()

def compiles(function):
    kernel = TritonKernel(function, lambda meta: (1,), outputs=("x",))
    arguments = Arguments((TensorSpec((64,), "float32"), 64))
    with pools.CompilePool(TritonCompiler(kernel, arguments, target), workers=1) as pool:
        print(pool.submit(config).result().status)
    triton.knobs.compilation.listener = lambda **event: print(event["cache_hit"])
    TritonCompiler(kernel, arguments.described(light=True), target).built(config)
    triton.knobs.compilation.listener = None
"""


def script_ran(tmp_path, *words):
    """What a script prints that may import from its folder and from the tests."""
    path = os.pathsep.join(map(str, (PROJECT / "src", PROJECT, tmp_path)))
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    return done.stdout.split(), done.stderr


UNGUARDED = """
@triton.jit
def scaled(x, STEP: tl.constexpr):
    return x * STEP


@triton.jit
def script_kernel(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, scaled(tl.load(x + i, mask=i < n), STEP), mask=i < n)


compiles(script_kernel)
"""


def test_neither_a_script_nor_a_module_that_compiles_at_its_top_level_is_run_again(tmp_path):
    (tmp_path / "eager_module.py").write_text(f"{COMPILES}\nSTEP = tl.constexpr(2)\n{UNGUARDED}")
    script = tmp_path / "unguarded.py"
    script.write_text(f"import eager_module\n{COMPILES}\nSTEP = tl.constexpr(3)\n{UNGUARDED}")
    assert script_ran(tmp_path, script) == (["ok", "True", "ok", "True"], "")


# Constants from the command line, helpers of a constexpr function, a factory, a loop's variable.
MANY = (
    COMPILES
    + """
STEP = tl.constexpr(len(sys.argv))

@triton.constexpr_function
def twice(value):
    return 2 * value

@triton.jit
def stepped(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * twice(STEP), mask=at < n)

def made(factor):
    by = tl.constexpr(factor)
    @triton.jit
    def scaled(x, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at, mask=at < n) * by, mask=at < n)
    return scaled

for function in (stepped, made(2), made(3)):
    compiles(function)
"""
)


def cell(text):
    """Runs `text` as a notebook runs a cell: its source in `linecache`, its module without a file."""
    return f"""
import linecache
text = {text!r}
linecache.cache["<cell 1>"] = (len(text), None, text.splitlines(True), "<cell 1>")
exec(compile(text, "<cell 1>", "exec"), globals())
"""


@pytest.mark.parametrize("form", ["script", "cell"])
def test_what_a_script_or_a_cell_makes_is_compiled_under_its_own_key(tmp_path, monkeypatch, form):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    script = tmp_path / "many.py"
    script.write_text(MANY)
    program = [script] if form == "script" else ["-c", cell(MANY)]
    assert script_ran(tmp_path, *program, "one", "two") == (["ok", "True"] * 3, "")


CASES = [
    ({"self/cgroup": "0::/"}, {"cpu.max": text}, count)
    for text, count in (
        ("max 100000", 8),
        ("250000 100000", 3),
        ("100 100000", 1),
        ("9900000 100000", 8),
        ("?", 8),
        ("100000", 8),
        ("100000 0", 8),
        ("1 2 3", 8),
        ("", 8),
    )
]
CASES += [
    ({}, {"cpu.max": "200000 100000"}, 2),
    ({"self/cgroup": "0::/a/b"},
     {"cpu.max": "max 100000", "a/cpu.max": "300000 100000", "a/b/cpu.max": "500000 100000"}, 3),
    ({"self/cgroup": "0::/a/b"}, {"a/b/cpu.max": "500000 100000", "c/cpu.max": "100000 100000"}, 5),
    ({"self/cgroup": "4:cpu,cpuacct:/box/1\n3:memory:/box/1\n0::/"},
     {"cpu,cpuacct/box/cpu.cfs_quota_us": "200000", "cpu,cpuacct/box/cpu.cfs_period_us": "50000",
      "cpu,cpuacct/box/1/cpu.cfs_quota_us": "-1", "cpu,cpuacct/box/1/cpu.cfs_period_us": "100000"}, 4),
    ({"self/cgroup": "2:cpu:/made/elsewhere"},
     {"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000"}, 2),
    ({"self/cgroup": "1:cpu:/\n0::/a"}, {"unified/a/cpu.max": "600000 100000"}, 6),
    ({"self/cgroup": "0::/a", "meminfo": "MemAvailable: 8388608 kB"},
     {"a/memory.max": str(4 << 30), "a/memory.current": str(3 << 30),
      "a/memory.stat": f"anon 1\ninactive_file {1 << 29}"}, 6),
    ({"self/cgroup": "5:memory:/a"},
     {"memory/a/memory.limit_in_bytes": str(1 << 29), "memory/a/memory.usage_in_bytes": str(1 << 28)}, 1),
    ({"self/cgroup": "0::/", "meminfo": "MemAvailable: 524288 kB"}, {"memory.max": "max", "memory.current": "5"}, 2),
]  # fmt: skip
CASES += [
    ({"self/cgroup": "2:cpu:/"}, {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": period}, 8)
    for period in ("0", "", "none")
]
CASES += [
    ({"self/cgroup": "0::/", "meminfo": "MemAvailable: 8388608 kB"},
     {"memory.max": str(1 << 30), "memory.current": str(1 << 29), "memory.stat": text}, 2)
    for text in ("inactive_file many", "inactive_file", "")
]  # fmt: skip


@pytest.mark.parametrize(("told", "groups", "count"), CASES)
def test_as_many_compilers_as_have_a_cpu_and_memory_in_the_control_groups(told, groups, count, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(Process, "PLACE", str(tmp_path / "proc"))
    monkeypatch.setattr(Host, "GROUPS", tmp_path / "groups")
    for folder, files in (("proc", told), ("groups", groups)):
        for name, text in files.items():
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_text(text)
    assert CompilePool.usual_workers() == count


def test_a_process_killed_from_outside_costs_no_config_but_one_that_is_killed_again_does(monkeypatch):
    lost = []
    ask = compile_pool.ForkedProcess.ask

    def killed_first(process, question, timeout_s):
        if isinstance(question, Config) and len(lost) < expected:
            lost.append(question)
            process.signal(signal.SIGKILL)
        return ask(process, question, timeout_s)

    monkeypatch.setattr(compile_pool.ForkedProcess, "ask", killed_first)
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1) as pool:
        expected = 1
        assert pool.submit(config("good")).result().launchable
        expected = 3
        result = pool.submit(config("good", 256)).result()
    assert (result.status, len(lost)) == (Status.CRASH, 3)
    assert result.reason.startswith("the compiler's process ended by SIGKILL")


def test_a_process_that_is_killed_while_it_starts_is_started_again(monkeypatch):
    lost = []
    ask = compile_pool.ForkedProcess.ask

    def killed_first(process, question, timeout_s):
        if not isinstance(question, Config) and len(lost) < expected:
            lost.append(question)
            os.kill(process.pid, signal.SIGKILL)
        return ask(process, question, timeout_s)

    monkeypatch.setattr(compile_pool.ForkedProcess, "ask", killed_first)
    expected = 2
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1) as pool:
        assert pool.submit(config("good")).result().launchable
    expected = 5
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1) as pool:
        future = pool.submit(config("good", block=64))
        with pytest.raises(TargetError, match=r"a compiling process did not start: .* ended by SIGKILL"):
            future.result()
    assert len(lost) == 5


def test_a_cache_that_cannot_be_written_is_no_fault_of_a_config(place, request):
    shutil.rmtree(place.cache, ignore_errors=True)
    place.cache.touch()
    request.addfinalizer(place.cache.unlink)
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1) as pool:
        future = pool.submit(config("good"))
        with pytest.raises(CacheError, match=r"the compiler cannot write its files: .*Not a directory"):
            future.result()


def test_a_process_that_cannot_be_started_is_said(own_fork_server, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(descriptors.tempfile, "TemporaryFile", full)
    with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1) as pool:
        future = pool.submit(config("good"))
        with pytest.raises(TargetError, match=r"no compiling process can be started: .*No space left on device"):
            future.result()


BESIDE = """
import triton
import triton.language as tl
from triton_ops import Operation, TensorSpec, TritonKernel

@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def ones(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 1.0, mask=(at < n) | EVEN)

op = Operation(
    "ones", TritonKernel(ones, lambda meta: (1,), outputs=("x",)), space={"BLOCK": [64, 128]}, device="cuda",
    arguments=lambda N=192: {"x": TensorSpec((N,), "fp32"), "n": N},
)
"""


def test_a_file_named_like_a_module_of_python_and_a_kernel_with_heuristics(tmp_path):
    (tmp_path / "json.py").write_text(BESIDE)
    done = subprocess.run(
        [sys.executable, "-m", "triton_ops", "compile", f"{tmp_path / 'json.py'}:op", "--gpu", "sm_90", "--json"],
        capture_output=True, text=True, check=False, cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"status": "ok"') == 2


def test_tensors_on_a_cpu_are_one_device_error_before_any_config_is_tried(tmp_path):
    torch = pytest.importorskip("torch")
    given = (torch.ones(4), 4)
    for run in (
        lambda: tune(PLANTED, given, space={"KIND": [0, 1], "BLOCK": [64]}, cache_dir=tmp_path),
        lambda: compare((PLANTED, config(0)), (PLANTED, config(1)), args=given),
        lambda: time_ms((PLANTED, config(0)), args=given),
    ):
        with pytest.raises(DeviceError, match="runs on a GPU, and the tensors are on a CPU") as caught:
            run()
        assert "TRITON_INTERPRET" in caught.value.hint
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(gpu_missing() is None, reason="there is a GPU")
def test_an_operation_of_a_compiled_kernel_is_one_device_error_where_there_is_no_gpu(tmp_path):
    made = Operation(
        "own", PLANTED, {"KIND": [0, 1], "BLOCK": [64]}, lambda: {"x": TensorSpec((4,), "float32"), "n": 4}
    )
    for run in (
        lambda: tune(made, cache_dir=tmp_path),
        lambda: compare((made, config(0)), (made, config(1))),
    ):
        with pytest.raises(DeviceError, match="own runs on a GPU, and there is none"):
            run()
    assert not list(tmp_path.iterdir())


def test_arrays_of_numpy_are_one_device_error_before_any_config_is_tried(tmp_path):
    array = pytest.importorskip("numpy").ones(4)
    with pytest.raises(DeviceError, match="x is a NumPy array, which is on the CPU"):
        tune(PLANTED, (array, 4), space={"KIND": [0, 1], "BLOCK": [64]}, cache_dir=tmp_path)


def test_a_fork_server_is_left_to_the_next_pool_that_asks_for_it(own_fork_server, started):
    blocks = iter((32, 64, 128, 256))  # another each time: what was compiled before takes no process

    def compiled(reuse):
        with CompilePool(TritonCompiler(PLANTED, X, TARGET), workers=1, reuse=reuse) as pool:
            result = pool.submit(config("none", block=next(blocks))).result()
            server, child = pool._fork_server, next(iter(pool._processes))
        assert result.status is Status.OK
        return server, child.pid

    (first, one), (second, two), (third, _) = compiled(True), compiled(True), compiled(False)
    assert (first is second, second is third, one == two) == (True, False, False)
    assert first.alive
    gone([one, two])
    assert (third.alive, fork_servers.holds(first)) == (False, True)
    first.kill()
    fourth, _ = compiled(True)  # one that was killed meanwhile is not used
    assert fourth is not first
    fork_servers.drop_idle()
    assert not fourth.alive
