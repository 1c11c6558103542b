"""What every test gets: cache folders of the tests' own, no colours, and a skip with a reason where there is no GPU."""

import gc
import itertools
import os
import random
import signal

import pytest
from hypothesis import Phase, settings

from tests.apart import import_apart
from tests.clocks import steady_times
from tests.distributions import SERVING, declare_serving
from tests.extras import missing_extras
from tests.garbage import seldom_collected
from tests.limits import pytest_timeout_set_timer as pytest_timeout_set_timer
from tests.strategies import EXAMPLES
from triton_ops.base import Host
from triton_ops.base import folders as syncing
from triton_ops.device import TorchDevice

# Tests run side by side, and a thread of torch that waits for the others of its operation keeps a CPU busy meanwhile.
# It is read when torch is loaded, here and in the processes that tests start; another number that is set stays.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Below `nohup` and in the background of a shell, Ctrl-C is ignored, also by processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: two busy cores make single examples slow. Repeatable where `CI` is set, searching elsewhere.
settings.register_profile("house", deadline=None, derandomize="CI" in os.environ, max_examples=EXAMPLES)
settings.register_profile("thorough", deadline=None, max_examples=10 * EXAMPLES)  # --hypothesis-profile=thorough
# For the second run of the same tests, in another environment.
settings.register_profile("again", settings.get_profile("house"), max_examples=EXAMPLES // 8)
# For runs that ask only whether a test fails: the first example that does is not made smaller.
settings.register_profile("unshrunk", settings.get_profile("house"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("house")

pytest_plugins = ["tests.tiers"]

MOST_PROCESSES = 8  # one imports torch and Triton, and so does another that interprets kernels for it
PROCESS_BYTES = 3 * 2**29  # both of them, and what a test starts: 0.9 GiB on average

# In the processes of pytest alone: others would leave its folder when they are killed.
_METADATA = declare_serving() if SERVING.is_dir() else None


@pytest.fixture(scope="session")
def _cache_folders(tmp_path_factory):
    """New folders without an end; pytest's own numbered folders take longer the more there are."""
    parent = tmp_path_factory.mktemp("caches")
    return (parent / str(number) for number in itertools.count())


@pytest.fixture(scope="session")
def _compiled(tmp_path_factory):
    """Triton's disk cache, shared by the processes that run tests side by side."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "triton"


@pytest.fixture(autouse=True)
def _own_environment(_cache_folders, _compiled, monkeypatch):
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(next(_cache_folders)))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(_compiled))
    for name in ("EFFORT", "ON_MISS", "LOCKFILE", "REPLAY", "SHARED_DIRS", "TRUSTED_KEYS", "REPORT"):
        monkeypatch.delenv(f"TRITON_OPS_{name}", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")  # whatever terminal the tests are run in
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session", autouse=True)
def _usual_permissions():
    """Files of tests may be read by other users, whatever the caller's umask: some tests are such users."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(scope="session", autouse=True)
def _no_waits_for_the_disk():
    """What tests write is read by them alone, also after a process was killed; only a machine that stops needs more."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(syncing, "_no_syncs", True)
        yield


@pytest.fixture
def waits_for_the_disk(monkeypatch):
    """This process waits until what it writes is on disk, as it does outside of tests."""
    monkeypatch.setattr(syncing, "_no_syncs", False)


@pytest.fixture
def steady_clock():
    """Callables on the CPU all take the same time, and few calls: for tests of what is no matter of time."""
    with steady_times():
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """How many processes are started, as far as memory allows: `-n logical` as many as CPUs, `-n auto` two more.

    The latter is for tests that wait for processes. PYTEST_XDIST_AUTO_NUM_WORKERS names another number, as it does
    without this.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    more = 2 if config.option.numprocesses == "auto" else 0
    return max(1, min(Host.usable_cpus() + more, MOST_PROCESSES, TorchDevice("cpu").free_bytes // PROCESS_BYTES))


def pytest_addoption(parser):
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew instead of comparing")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """What is there before the first test stays: torch, Triton and thousands of tests are not searched for garbage."""
    gc.disable()
    try:
        import_apart(session.config)
        return (yield)
    finally:
        seldom_collected()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    if (seed := config.getoption("--shuffle")) is not None:
        random.Random(seed).shuffle(items)


def pytest_runtest_setup(item):
    for needs in item.iter_markers("extras"):
        if reason := missing_extras(*needs.args):
            pytest.skip(reason)
    if item.get_closest_marker("gpu") is None:
        return
    from triton_ops.device import gpu_missing  # which may import torch: only when a GPU test is about to run

    if reason := gpu_missing():
        pytest.skip(reason)
