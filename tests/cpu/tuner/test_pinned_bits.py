"""A class of bits that a lockfile pins: other GPUs, versions, extents and later tunes choose freely inside of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests.cpu.tuner.test_same_bits import DEFAULT, OTHER, SAME, Rows, operation, tuned  # noqa: E402
from triton_ops import Config  # noqa: E402
from triton_ops.backend import callables  # noqa: E402
from triton_ops.device import DeviceSpec  # noqa: E402
from triton_ops.dispatch import use_lockfile, would_run  # noqa: E402
from triton_ops.dispatch.ladder import change_limits  # noqa: E402
from triton_ops.evaluation import Stations  # noqa: E402
from triton_ops.exceptions import LockfileError, SettingsError  # noqa: E402
from triton_ops.records import (  # noqa: E402
    FollowedLockfile,
    Lockfile,
    LockPlan,
    lock_of,
    matching,
    share_lockfile,
    updated,
)
from triton_ops.request import request  # noqa: E402
from triton_ops.tuner import tuning  # noqa: E402
from triton_ops.values import Status  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]

FASTEST = Config(OTHER, num_stages=2)
HOPPER, AMPERE = "H100", "A100-SXM4-80GB"


class Machine:
    """A machine whose GPU is not here, with its own folder of records."""

    def __init__(self, monkeypatch, folder):
        self.monkeypatch, self.first = monkeypatch, folder / "first"
        monkeypatch.setattr(request, "gpu_missing", lambda: "")
        monkeypatch.setattr(Stations, "begin", lambda *_, **__: lambda: self.here)
        self.becomes(folder=self.first)

    def becomes(self, gpu="NVIDIA H200", assembler=None, folder=None):
        self.monkeypatch.setattr(request, "probe", lambda _: DeviceSpec.named(gpu))
        self.folder, self.here = folder or self.first.with_name("other"), Rows()
        self.folder.mkdir(exist_ok=True)
        if assembler is not None:
            self.monkeypatch.setattr(callables, "_ptxas", lambda _: assembler)
        change_limits()

    def tune(self, target=None, **options):
        return tuned(target or operation(), self.folder, **options)

    def locked(self, before=None, **plan):
        lock, left_out = lock_of(matching(None, self.folder), LockPlan(**plan))
        lock = lock if before is None else updated(before, lock)
        use_lockfile(lock)
        return lock, left_out

    def runs(self, **problem):
        return would_run(operation(), device="cuda", cache_dir=self.folder, **problem)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    yield Machine(monkeypatch, tmp_path)
    use_lockfile(None)


def test_the_class_of_a_free_winner_is_pinned_and_another_gpu_chooses_inside_of_it(machine, tmp_path):
    first = machine.tune()
    assert (Config(first.best_config), bool(first.bits)) == (FASTEST, True)
    lock, _ = machine.locked(same_bits=True)
    (entry,) = lock.entries
    assert (entry.bits, entry.same_bits, entry.config) == (first.bits, True, FASTEST)
    lock.write(tmp_path / "lock.json")
    assert Lockfile.read(tmp_path / "lock.json") == lock
    assert machine.runs().found.rung == "lockfile"

    machine.becomes(HOPPER)
    missed = machine.runs()
    assert (missed.found.config, missed.found.rung, missed.key.bits) == (DEFAULT, "default", first.bits)
    machine.here.slower = {FASTEST}
    there = machine.tune(same_bits_as="lockfile")
    assert set(machine.here.tried) == {FASTEST, OTHER}
    assert (Config(there.best_config), there.bits) == (OTHER, first.bits)
    assert there.verified == machine.here.facts.against
    assert (machine.runs().found.config, machine.runs().found.rung) == (OTHER, "record")
    both, _ = machine.locked(lock)
    assert [(each.config, each.bits, each.same_bits) for each in both.entries] == [
        (OTHER, first.bits, True), (FASTEST, first.bits, True)
    ]  # fmt: skip
    assert (machine.runs().found.config, machine.runs().found.rung) == (OTHER, "lockfile")


def test_another_assembler_has_classes_decided_again_and_other_extents_are_of_the_class(machine):
    pinned = machine.tune()
    machine.locked(same_bits=True)
    machine.becomes(assembler="99.1")
    missed = machine.runs()
    assert (missed.found.config, missed.found.rung) == (DEFAULT, "default")
    assert any("its class of bits was told by other versions: ptxas: " in why for why in missed.passed)
    assert machine.runs(shape=(64, 2048)).key.bits == pinned.bits
    for shape in (None, (64, 2048)):
        again = machine.tune(same_bits_as="lockfile", shape=shape)
        assert (again.from_cache, Config(again.best_config), again.bits) == (False, FASTEST, pinned.bits)
        assert machine.runs(shape=shape).found.rung == "record"
    assert machine.tune(same_bits_as="lockfile").from_cache


def test_sums_without_tensor_cores_and_approximations_are_of_one_class_on_every_architecture(machine):
    pinned = machine.tune(same_bits_as="default")
    machine.locked()  # what was found within a class pins it
    machine.becomes(AMPERE)
    there = machine.tune(same_bits_as="lockfile")
    assert (Config(there.best_config), there.bits) == (SAME, pinned.bits)


def test_a_class_that_no_config_has_here_is_said_and_the_default_runs(machine, caplog):
    pinned = machine.tune()
    machine.locked(same_bits=True)
    machine.becomes(HOPPER)
    small = operation(space={"BLOCK": [256, 128], "num_warps": [4], "num_stages": [3]})
    result = machine.tune(small, same_bits_as="lockfile")
    assert (machine.here.tried, Config(result.best_config), result.bits) == ([DEFAULT], DEFAULT, "")
    said = f"({DEFAULT}) is kept: none of 2 is of the pinned class {pinned.bits}, such as ({DEFAULT}): it is of "
    assert any(said in note for note in result.notes)
    assert said in caplog.text
    caplog.clear()
    decision = would_run(small, device="cuda", cache_dir=machine.folder)
    assert decision.found.config == DEFAULT
    assert "runs its default config: no other is known to be of its class" in caplog.text
    lock, left_out = machine.locked(same_bits=True)
    assert (lock.entries, [each.reason for each in left_out]) == ((), ["its class of bits is not told"])


def test_a_lockfile_without_a_class_and_no_lockfile_are_typed_errors(machine):
    with pytest.raises(LockfileError, match="no lockfile is in use"):
        machine.tune(same_bits_as="lockfile")
    machine.tune(operation(atomic=True))
    lock, _ = machine.locked()
    assert (lock.entries[0].bits, lock.entries[0].same_bits) == ("", False)
    with pytest.raises(LockfileError, match="names no class of bits for row sums"):
        machine.tune(same_bits_as="lockfile")
    machine.tune()
    use_lockfile(Lockfile(lock.devices, (replace(lock.entries[0], bits="0123456789abcdef"),)))
    with pytest.raises(LockfileError, match="names no class of bits for row sums"):
        machine.tune(same_bits_as="lockfile")  # another argument differs, which is no extent
    text = machine.locked(same_bits=True)[0].text
    assert '"same_bits": true' in text


def test_a_winner_of_another_class_takes_no_pinned_place(machine, caplog):
    pinned = machine.tune(same_bits_as="default")
    lock, _ = machine.locked()
    machine.becomes()
    free = machine.tune()
    assert free.bits != pinned.bits
    (entry,) = machine.locked(lock)[0].entries
    assert (entry.config, entry.bits) == (SAME, pinned.bits)
    assert "keeps its config: the newest winner is not of the class that is pinned" in caplog.text


def test_a_fault_of_the_classes_is_remembered_for_tunes_of_this_class_alone(machine):
    machine.here.wrong = [SAME]
    machine.tune(same_bits_as="default")
    machine.becomes(folder=machine.first)
    again = machine.tune(same_bits_as="default", force=True)
    assert machine.here.tried == [DEFAULT]
    (trial,) = (each for each in again.trials if each.status is Status.WRONG)
    assert trial.error.startswith("quarantined since ")
    assert any("at fault" in note for note in again.notes)
    assert SAME in {each.config for each in machine.tune().trials if each.ok}


def test_a_range_of_an_extent_is_refused_beside_a_class_which_is_told_for_one_problem(machine):
    machine.tune()
    with pytest.raises(SettingsError, match="told for one problem, and for no range of COLUMNS"):
        machine.locked(same_bits=True, buckets={"COLUMNS": "pow2"})


def test_an_operation_keeps_to_the_class_where_the_environment_says_so(machine, monkeypatch):
    machine.tune()
    assert machine.runs().found.config == FASTEST
    assert machine.runs(shape=(64, 8192)).found.rung == "borrowed"
    monkeypatch.setenv("TRITON_OPS_SAME_BITS", "1")
    for shape in (None, (64, 8192)):
        kept = machine.runs(shape=shape)
        assert (kept.found.config, kept.found.rung, kept.key.bits) == (DEFAULT, "default", str(DEFAULT))
    machine.tune(same_bits_as="default")
    assert machine.runs().found.config == SAME


def test_the_class_of_a_packages_entry_holds_for_its_problem_and_versions_alone(machine, monkeypatch, tmp_path):
    machine.tune()
    lock, _ = machine.locked(same_bits=True)
    use_lockfile(None)
    lock.write(tmp_path / "lock.json")
    monkeypatch.setattr(FollowedLockfile, "SHARED", {})
    share_lockfile(tmp_path / "lock.json")
    machine.becomes()
    assert (machine.runs().found.config, machine.runs().found.rung) == (FASTEST, "shipped")
    assert machine.runs(shape=(64, 8192)).found.rung == "default"
    machine.becomes(assembler="99.1")
    missed = machine.runs()
    assert missed.found.rung == "default"
    assert any("shipped: its class of bits was told by other versions" in why for why in missed.passed)


@pytest.mark.parametrize("turned", [False, True])
def test_a_winner_has_its_class_whether_it_was_the_fastest_before_the_race_or_not(machine, monkeypatch, turned):
    monkeypatch.setattr(tuning, "_LIKELY", 1)
    opened, begins, raced = [], tuning.RequestedTune.pool, Rows.finals

    def finals(final):
        outcome = raced(machine.here, final)
        slower = next(trial for trial in final.trials if trial.config == SAME)
        return replace(outcome, winner=slower) if turned else outcome

    machine.here.finals = finals
    monkeypatch.setattr(tuning.RequestedTune, "pool", lambda *args, **how: opened.append(how) or begins(*args, **how))
    result = machine.tune()
    assert (Config(result.best_config), bool(result.bits)) == (SAME if turned else FASTEST, True)
    assert len(opened) == 1 + turned


def test_an_edit_by_hand_has_no_class(machine, tmp_path):
    machine.tune()
    lock, _ = machine.locked(same_bits=True)
    (tmp_path / "lock.json").write_text(lock.text.replace('"num_stages": 2', '"num_stages": 3', 1))
    edited, (entry,) = Lockfile.accept_edits(tmp_path / "lock.json")
    assert edited.entries == (entry,)
    assert (entry.config, entry.bits, entry.same_bits) == (OTHER, "", False)
