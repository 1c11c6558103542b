"""A lockfile on a real GPU: prepared kernels launch without a compiler, and entries are measured again."""

from dataclasses import replace

import pytest

import triton_ops
from triton_ops.device import probe
from triton_ops.records import Lockfile, LockPlan, lock_of
from triton_ops.records.store import open_store
from triton_ops.ship.targets import Targets
from triton_ops.ship.verification import verify
from triton_ops_kernels import load

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

pytestmark = pytest.mark.gpu

SHAPES = [(512, 1024), (4096, 1024)]


@pytest.fixture(scope="module")
def lock(tmp_path_factory):
    """The winners of a softmax for two numbers of rows, each for the rows around it as well."""
    softmax, folder = load("softmax"), tmp_path_factory.mktemp("records")
    tuned = {"dtype": "float16", "cache_dir": folder}
    for shape in SHAPES:
        triton_ops.tune(softmax, shape=shape, trials=6, budget_s=20, **tuned)
    records = [triton_ops.recall(softmax, shape=shape, **tuned) for shape in SHAPES]
    return lock_of(records, LockPlan(buckets={"rows": "measured@2"}, unproven=True))[0]


@pytest.fixture
def compiled(monkeypatch):
    """What Triton compiles in this process, or looks up in its disk cache."""
    seen = []
    monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", lambda **given: seen.append(given["key"]) and None)
    return seen


def test_prepared_kernels_launch_without_a_compiler(lock, compiled):
    prepared = triton_ops.prepare(lock)
    assert prepared.failed == ()
    assert prepared.loaded == prepared.compiled >= 1
    del compiled[:]
    rows = [256, 300, 512, 1000, 1024, 2048, 4096, 5001, 8192]
    with triton_ops.replaying(lock, on_miss="error"):
        for count in rows * 111:
            x = torch.rand(count, 1024, device="cuda", dtype=torch.float16)
            out = triton_ops.softmax(x)
        torch.cuda.synchronize()
    assert compiled == []
    torch.testing.assert_close(out, torch.softmax(x, -1), rtol=1e-2, atol=1e-3)


def test_entries_are_measured_against_the_default_and_their_neighbours(lock):
    result = list(verify(lock, Targets(), probe("cuda"), most_neighbours=2, held_out=2))
    assert len(result) >= len(SHAPES) + 2
    assert {each.outcome for each in result} <= {"ok", "slower"}
    assert all(each.regret is not None and each.regret < 0.5 for each in result)


def test_an_entry_of_a_decorated_kernel_is_measured_by_its_noted_call(tmp_path, monkeypatch):
    from tests import decorated_kernels

    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path))
    n = 1 << 20
    x, y, out = (torch.rand(n, device="cuda") for _ in range(3))
    with triton_ops.on_miss("tune"):
        decorated_kernels.add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    torch.testing.assert_close(out, x + y)
    (record,) = open_store(tmp_path)
    lock = lock_of([record], LockPlan(unproven=True))[0]
    (result,) = verify(lock, Targets([decorated_kernels.add]), probe("cuda"))
    assert result.outcome in {"ok", "slower"}, result.reason
    assert result.result.trials
    assert result.regret < 0.5
    unnoted = replace(lock, entries=tuple(replace(entry, call=None) for entry in lock.entries))
    (result,) = verify(unnoted, Targets([decorated_kernels.add]), probe("cuda"))
    assert (result.outcome, "no call was noted" in result.reason) == ("not measured", True)


def test_an_entry_of_another_device_is_not_used(lock):
    other = [type(device)(**{**vars(device), "name": "NVIDIA Nothing"}) for device in lock.devices]
    elsewhere = Lockfile(tuple(other), lock.entries)
    assert triton_ops.prepare(elsewhere).elsewhere == len(lock.entries)
    assert {each.outcome for each in verify(elsewhere, Targets(), probe("cuda"))} == {"not measured"}
