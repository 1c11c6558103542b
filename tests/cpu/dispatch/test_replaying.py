"""Launches from a lockfile alone, and look-ups in folders that are only read."""

import sys

import pytest

import triton_ops
from triton_ops import operation
from triton_ops.dispatch import decision as decisions
from triton_ops.dispatch import ladder as sources
from triton_ops.exceptions import LockfileError, SettingsError, UntunedError
from triton_ops.records import Lockfile, LockfileInUse, LockPlan, lock_of, share_records
from triton_ops.records import store as layered
from triton_ops.records.store import open_store
from triton_ops.tuner import RequestedTune


@operation(space={"step": [1, 2, 3]}, arguments=lambda n=8: {"n": n})
def add_up(n, step):
    return step


@pytest.fixture(autouse=True)
def _own_sources(monkeypatch):
    monkeypatch.setattr(LockfileInUse, "NOW", None)
    monkeypatch.setattr(layered, "_shared_by_packages", {})
    decisions.forget_decisions()
    yield
    sources._sources.ladders.clear()
    decisions.forget_decisions()


@pytest.fixture
def lock(steady_clock):
    """A lockfile that pins 8, 16 and what is between them."""
    for n in (8, 16):
        triton_ops.tune(add_up, kwargs={"n": n}, device="cpu")
    result = [triton_ops.recall(add_up, kwargs={"n": n}, device="cpu") for n in (8, 16)]
    return lock_of(result, LockPlan(buckets={"n": "measured@1"}))[0]


@pytest.fixture
def no_tune(monkeypatch):
    def tuned(*_args, **_kwargs):
        pytest.fail("something tuned")

    monkeypatch.setattr(RequestedTune, "result", tuned)


def test_launches_are_replayed_from_the_lockfile_and_nothing_tunes(lock, no_tune, tmp_path):
    lock.write(tmp_path / "lock.json")
    pinned = {entry.problem["n"]: entry.config["step"] for entry in lock.entries}
    with triton_ops.replaying(tmp_path / "lock.json"), triton_ops.on_miss("tune"):
        for _ in range(20):
            assert add_up(n=8) == pinned[8]
            assert add_up(n=9) == pinned[8]
            assert add_up(n=99) == 1  # the default
    rungs = {(row.problem, row.rung): row.launches for row in decisions.launches() if row.kernel == add_up.name}
    assert sum(count for (_, rung), count in rungs.items() if rung == "lockfile") >= 40
    assert sum(count for (_, rung), count in rungs.items() if rung == "default") >= 20


def test_what_is_not_pinned_is_an_error_by_policy_and_only_inside(lock):
    with triton_ops.replaying(lock, on_miss="error"):
        add_up(n=8)
        with pytest.raises(UntunedError):
            add_up(n=99)
    add_up(n=99)
    with triton_ops.replaying(lock), triton_ops.on_miss("error"), pytest.raises(UntunedError):
        add_up(n=99)


def test_the_environment_replays_a_lockfile(lock, no_tune, tmp_path, monkeypatch, caplog):
    lock.write(tmp_path / "lock.json")
    monkeypatch.setenv("TRITON_OPS_REPLAY", str(tmp_path / "lock.json"))
    with triton_ops.on_miss("tune"):
        assert add_up(n=8) == lock.entries[0].config["step"]
        assert add_up(n=99) == 1
    (tmp_path / "lock.json").write_text("{}")
    monkeypatch.setattr(LockfileInUse, "NOW", None)
    sources._sources.ladders.clear()
    decisions.forget_decisions()
    with triton_ops.on_miss("tune"):
        assert add_up(n=8) == 1
    assert "TRITON_OPS_REPLAY names is not used" in caplog.text


def test_a_replay_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(LockfileError), triton_ops.replaying(tmp_path / "none.json"):
        pass
    with (
        pytest.raises(SettingsError, match="a replay takes default or error"),
        triton_ops.replaying(Lockfile(), on_miss="tune"),
    ):
        pass


def test_records_are_looked_up_in_the_own_folder_then_of_the_site_then_of_packages(tmp_path, monkeypatch, steady_clock):
    folders = {name: tmp_path / name for name in ("own", "site", "package")}
    for n, name in ((8, "site"), (16, "package")):
        triton_ops.tune(add_up, kwargs={"n": n}, device="cpu", cache_dir=folders[name])
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(folders["own"]))
    asked = [{"kwargs": {"n": n}, "device": "cpu"} for n in (8, 16)]
    assert [triton_ops.recall(add_up, **each) for each in asked] == [None, None]
    monkeypatch.setenv("TRITON_OPS_SHARED_DIRS", f"{tmp_path / 'nowhere'}:{folders['site']}")
    share_records(folders["package"])
    assert all(triton_ops.recall(add_up, **each) for each in asked)
    assert all(triton_ops.tune(add_up, **each).from_cache for each in asked)
    assert not folders["own"].exists()
    before = sorted(path.name for path in folders["site"].rglob("*"))
    triton_ops.tune(add_up, kwargs={"n": 24}, device="cpu")
    assert len(list(open_store(folders["own"]))) == 1
    assert sorted(path.name for path in folders["site"].rglob("*")) == before


def test_a_file_among_the_shared_folders_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITON_OPS_SHARED_DIRS", str(tmp_path / "file"))
    assert triton_ops.recall(add_up, kwargs={"n": 8}, device="cpu") is None
    assert sys.modules["triton_ops.records.store"].shared_folders() == ()
