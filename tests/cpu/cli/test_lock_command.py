"""A lockfile from records, on the command line: what is taken, what changed, and what is refused."""

import json
from dataclasses import replace

import pytest

from triton_ops.cli.app import main
from triton_ops.cli.lock_changes import changes
from triton_ops.exceptions import SettingsError
from triton_ops.records import Lockfile, LockPlan, Record, Timing, lock_of
from triton_ops.records.pinning import updated
from triton_ops.records.store import open_store
from triton_ops.space import Config
from triton_ops.values import Key

H200 = {"kind": "cuda", "name": "NVIDIA H200", "arch": "sm_90", "units": 132, "driver": "570"}
H100 = {**H200, "name": "NVIDIA H100 80GB HBM3"}


def record(m=64, n=4096, *, kernel="k", source="1", created="2026-11-22", device=H200, block=64, **changes_):
    tensor = {"shape": [m, n], "dtype": "float16", "stride": [n, 1], "aligned": True}
    key = Key(
        kernel=kernel, problem={"x": tensor, "M": m, "N": n}, identity={"source": source, "triton": "3.6.0"},
        device=device, cache_state="cold", label=f"{m}x{n}",
    )  # fmt: skip
    return Record(
        key=key, winner=Config(BLOCK=block), timing=Timing(1.0, 0.9, 1.1, 10), default=Config(BLOCK=16),
        default_timing=Timing(1.5, 1.4, 1.6, 10), mode="graph-cold", created=created, **changes_,
    )  # fmt: skip


def asked(m, n=4096, device=H200, source="1"):
    return replace(record(m, n, device=device, source=source).key)


def test_the_newest_record_of_a_problem_is_taken_and_cold_caches_come_first():
    old, new = record(block=1, created="2026-11-20"), record(block=2, created="2026-11-21")
    warm = record(block=3, created="2026-11-22")
    warm = replace(warm, key=replace(warm.key, cache_state="warm"))
    lock, left = lock_of([old, warm, new])
    assert [entry.config["BLOCK"] for entry in lock.entries] == [2]
    assert [each.record for each in left] == [old, warm] or [each.record for each in left] == [warm, old]


def test_records_of_an_earlier_source_are_left_out_unless_they_are_asked_for():
    records = [record(64, source="1", created="2026-11-20"), record(128, source="2", created="2026-11-22")]
    lock, left = lock_of(records)
    assert [entry.label for entry in lock.entries] == ["128x4096"]
    assert "has changed since" in left[0].reason
    assert len(lock_of(records, LockPlan(all_sources=True))[0].entries) == 2


def test_one_name_stands_for_all_extents_that_have_its_value():
    lock, _ = lock_of([record(16), record(256)], LockPlan(buckets={"M": "measured@2"}))
    assert lock.entries[0].ranges[0].extents == ("x[0]", "M")
    result = {m: lock.find(asked(m)) for m in (7, 8, 63, 64, 65, 512, 513)}
    assert [m for m, pinned in result.items() if pinned is None] == [7, 513]
    assert {m: pinned.entry.label for m, pinned in result.items() if pinned} == {
        8: "16x4096", 63: "16x4096", 64: "16x4096", 65: "256x4096", 512: "256x4096",
    }  # fmt: skip
    assert lock.find(asked(32, 4097)) is None


def test_a_rule_for_an_extent_that_a_kernel_lacks_makes_no_range():
    other = record(kernel="l")
    other = replace(other, key=replace(other.key, problem={**other.key.problem, "K": 8}))
    lock, _ = lock_of([record(), other], LockPlan(buckets={"K": "pow2"}, ignored=("K",)))
    assert {entry.kernel: len(entry.ranges) for entry in lock.entries} == {"k": 0, "l": 1}


@pytest.mark.parametrize(
    ("plan", "said"),
    [({"buckets": {"K": "pow2"}}, "extent 'K'; they have M, N, x"), ({"buckets": {"M,K": "pow2"}}, "extent 'K'"),
     ({"ignored": ("M", "eps")}, "argument 'eps'; they have M, N, x")],
)  # fmt: skip
def test_a_name_that_no_entry_has_is_refused(plan, said):
    with pytest.raises(SettingsError, match=f"no entry has the {said}"):
        lock_of([record()], LockPlan(**plan))
    assert lock_of([], LockPlan(**plan))[0].entries == ()


@pytest.mark.parametrize("text", ["measured@x", "measured@0.5", "pow3", "upto:"])
def test_a_wrong_rule_is_refused_before_any_record_is_read(text):
    with pytest.raises(SettingsError):
        LockPlan(buckets={"M": text})


def test_devices_of_one_name_have_different_aliases():
    part = record(device={**H200, "units": 16})
    lock, _ = lock_of([record(), part], LockPlan(also={"NVIDIA H200": ["NVIDIA GH200"]}))
    assert [(device.alias, device.units) for device in lock.devices] == [("nvidia-h200", 132), ("nvidia-h200-1", 16)]
    with pytest.raises(SettingsError, match="no record is of NVIDIA B200"):
        lock_of([record()], LockPlan(also={"NVIDIA B200": ["x"]}))


def test_an_update_keeps_other_devices_and_drops_other_sources():
    old, _ = lock_of([record(64), record(64, device=H100), record(64, kernel="other")])
    new, _ = lock_of([record(128, source="2")])
    kinds = [(change.kind, change.entry.kernel) for change in changes(old, updated(old, new))]
    assert kinds == [("removed", "k"), ("removed", "k"), ("added", "k")]  # both devices' entries are of the old source
    assert changes(old, updated(old, lock_of([record(64, block=8)])[0]))[0].fields == ("config: BLOCK=64 | BLOCK=8",)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "cache"))
    return open_store(tmp_path / "cache")


def test_a_lockfile_is_written_checked_and_updated(store, capsys):
    store.put(record())
    assert main(["lock"]) == 0
    assert capsys.readouterr().out == (
        "added: k 64x4096 on nvidia-h200; (BLOCK=64)\ntriton-ops.lock.json: 1 entry, 1 added\n"
    )
    assert main(["lock", "--check"]) == 0
    store.put(record(block=32, created="2026-11-23"))
    store.put(record(128))
    capsys.readouterr()
    assert main(["lock", "--check", "--json"]) == 5
    told = json.loads(capsys.readouterr().out)
    assert [(each["kind"], each["fields"]) for each in told["changes"]] == [
        ("changed", ["config: BLOCK=64 | BLOCK=32"]), ("added", []),
    ]  # fmt: skip
    assert Lockfile.read("triton-ops.lock.json").entries[0].config == Config(BLOCK=64)
    assert main(["lock", "k", "--gpu", "NVIDIA H200", "--bucket", "M=pow2", "--ignore", "N"]) == 0
    assert Lockfile.read("triton-ops.lock.json").entries[0].ignored == ("N",)


def test_a_check_without_any_record_says_that_it_compared_nothing(store, capsys, tmp_path):
    """A machine of a CI has no records; to fail there would teach everyone to leave the check out."""
    lock_of([record()])[0].write(tmp_path / "triton-ops.lock.json")
    assert main(["lock", "--check"]) == 0
    told = capsys.readouterr().out
    assert "is undamaged, and compared with nothing, since there are no records in" in told
    assert "`triton-ops lock verify --static` checks 1 entry without records" in told
    store.put(record())
    assert main(["lock", "other", "--check"]) == 4  # a name that no record has is a mistake


def test_two_lockfiles_are_compared(store, capsys, tmp_path):
    store.put(record())
    assert main(["lock"]) == 0
    lock_of([record(block=2)])[0].write(tmp_path / "other.json")
    assert main(["lock", "--check", "--against", "other.json"]) == 5
    assert "config: BLOCK=64 | BLOCK=2" in capsys.readouterr().out


def test_edits_by_hand_are_refused_until_they_are_accepted(store, capsys, tmp_path):
    store.put(record())
    assert main(["lock"]) == 0
    path = tmp_path / "triton-ops.lock.json"
    path.write_text(path.read_text().replace('"BLOCK": 64', '"BLOCK": 32'))
    assert main(["lock", "--check"]) == 4
    assert "edited by hand: k 64x4096" in capsys.readouterr().err
    assert main(["lock", "--refresh"]) == 0
    assert "by hand: k 64x4096 on nvidia-h200; (BLOCK=32)" in capsys.readouterr().out
    assert main(["lock", "--check"]) == 5


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["lock"], 4, "there are no records"),
        (["lock", "--check"], 4, "cannot be read"),
        (["lock", "--refresh", "--check"], 2, "--refresh stands alone"),
        (["lock", "--against", "x"], 2, "--against is for --check"),
        (["lock", "--bucket", "M"], 2, "--bucket 'M' is not NAME=VALUE"),
        (["lock", "--bucket", "M=pow3"], 2, "no rule for buckets"),
        (["lock", "--alias", "x"], 2, "--alias 'x' is not"),
        (["lock", "--gpu", "x"], 4, "of x"),
    ],
)
def test_what_cannot_be_done_is_told(store, capsys, words, code, said):
    if "--gpu" in words:
        store.put(record())
    assert main(words) == code
    assert said in capsys.readouterr().err
