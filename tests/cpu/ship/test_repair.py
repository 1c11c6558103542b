"""Entries of a lockfile that race again: they are confirmed, replaced by what is proven faster, or handed back."""

import functools
import json
import random
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.clocks import MS, Clock
from tests.served import http_server, pem
from triton_ops import Operation, TensorSpec, operation, recall, tune
from triton_ops.backend import FunctionKernel
from triton_ops.base import Host, warn_once
from triton_ops.cli.app import main
from triton_ops.device import probe
from triton_ops.dispatch import would_run
from triton_ops.records import (
    LockEntry,
    Lockfile,
    LockPlan,
    Record,
    Timing,
    export_records,
    lock_of,
    matching,
    store_in,
)
from triton_ops.records.lock_entry import EntryOrigin, OriginKind
from triton_ops.records.pinning import updated
from triton_ops.ship import verification
from triton_ops.ship.raced_entry import expecting
from triton_ops.ship.targets import Targets
from triton_ops.ship.verification import Verdict, _written, cause, repair, serve_idle
from triton_ops.space import Config
from triton_ops.timing import HostTimer, rounds
from triton_ops.tuner import Silent
from triton_ops.values import Key, Resources


@functools.cache
def ground():
    """A clock, the milliseconds of each config, and chance; what a call gives is no part of a kernel's identity."""
    return Clock(), {}, random.Random(0)


SPACE = {"tile": [1, 2, 3, 4, 5, 6], "other": [1, 2, 3]}


@operation(space=SPACE, arguments=lambda n=4: {"n": n}, device="cpu")
def timed(n, tile, other):
    clock, times_ms, chance = ground()
    if (ms := times_ms.get((n, tile, other), 10.0)) is None:
        raise ValueError("it fails")
    clock.spend(round(abs(ms) * MS * chance.lognormvariate(0, times_ms.get("noise", 0))))
    return n if ms > 0 else -n


@operation(
    space={"way": [1, 2]}, device="cpu",
    arguments=lambda n=4: {"ends": TensorSpec((3,), "int64", fill="ends", total=n), "n": n},
)  # fmt: skip
def sliced(ends, n, way):
    ground()[0].spend(10 * MS)
    if int(ends[-1]) != n:
        raise ValueError(f"its last end is {int(ends[-1])}")
    return ends * way // way


@pytest.fixture
def times_ms(monkeypatch):
    clock, times_ms, _ = ground()
    monkeypatch.setattr(rounds, "HostTimer", lambda: HostTimer(clock))
    times_ms.clear()
    return times_ms


def record_of(tile, other=1, n=4, **more):
    key = Key.of(timed.problem((n,)), timed.kernel.identity, probe("cpu"))
    winner, default = Config(tile=tile, other=other), Config(tile=1, other=1)
    return Record(key=key, winner=winner, default=default, timing=Timing(1.0, 1.0, 1.0, 3), **more)


def lock_for(*records, **plan):
    return lock_of(records, LockPlan(**plan))[0]


def repaired(lock, folder, **options):
    return list(repair(lock, Targets([timed]), folder, "cpu", listener=Silent(), **options))


def of_other_versions(lock):
    """The lockfile as if its winners were found under another version of something."""
    entries = (replace(each, identity={**each.identity, "triton": "0.1"}) for each in lock.entries)
    return replace(lock, entries=tuple(entries))


def test_a_slower_entry_gives_way_and_says_to_what(times_ms, tmp_path):
    times_ms.update({(4, 2, 1): 12.0, (4, 3, 1): 8.0})
    lock = of_other_versions(lock_for(record_of(2)))
    (verdict,) = repaired(lock, tmp_path)
    assert (verdict.outcome, verdict.failed) == ("repaired", False)
    assert "takes 1.500 to 1.500 times the time of (tile=3 other=1)" in verdict.reason
    assert verdict.reason.endswith("what its binary is now is not known")
    new = verdict.becomes
    assert dict(new.config) == {"tile": 3, "other": 1}
    assert (new.measured.median_ms, new.measured.gain) == (pytest.approx(8.0), pytest.approx(1.25))
    assert new.origin.source.startswith("repaired: (tile=2 other=1) takes")
    (again,) = repaired(replace(lock, entries=(new,)), tmp_path)
    assert again.outcome == "ok"


@pytest.mark.parametrize("slower", [1.0, 1.009])
def test_an_entry_that_others_equal_is_confirmed_for_the_versions_of_the_race(slower, times_ms, tmp_path):
    times_ms.update({(4, 2, 1): 8.0 * slower, (4, 3, 1): 8.0})
    lock = of_other_versions(lock_for(record_of(2)))
    (verdict,) = repaired(lock, tmp_path)
    assert (verdict.outcome, verdict.becomes.config) == ("ok", lock.entries[0].config)
    key = record_of(2).key
    assert lock.entries[0].drift(key) == ("triton: 0.1 | None",)
    assert verdict.becomes.drift(key) == ()
    new = replace(lock, entries=(verdict.becomes,))
    new.write(tmp_path / "lock.json")
    assert Lockfile.read(tmp_path / "lock.json") == new
    assert (verdict.becomes.origin.source, verdict.becomes.measured.gain) == ("record", pytest.approx(1.25 / slower))


def test_an_imported_entry_still_answers_any_source_after_a_race(times_ms, tmp_path):
    lock = lock_for(record_of(2))
    imported = replace(
        lock.entries[0], identity={}, measured=None, origin=EntryOrigin(kind=OriginKind.TABLE, form="t4", detail="FILE")
    )
    (verdict,) = repaired(replace(lock, entries=(imported,)), tmp_path)
    assert (verdict.outcome, verdict.becomes.source, verdict.becomes.origin.source) == ("ok", {}, "t4: FILE")
    assert verdict.becomes.drift(record_of(2).key) == ()


def test_noise_that_hides_a_faster_config_is_told_and_confirms_nothing(times_ms, tmp_path):
    times_ms["noise"] = 0.5
    (verdict,) = repaired(lock_for(record_of(2)), tmp_path)
    assert (verdict.outcome, verdict.becomes) == ("not measured", None)
    assert "it is not known if it holds: 0." in verdict.reason


def test_finalists_of_the_run_log_race_though_they_are_no_neighbours(times_ms, tmp_path):
    times_ms[4, 6, 3] = 4.0
    result = tune(timed, shape=(4,), search="exhaustive", cache_dir=tmp_path, listener=Silent())
    lock = lock_for(record_of(1, run=result.run))
    (verdict,) = repaired(lock, tmp_path, most_neighbours=1)
    assert (verdict.outcome, verdict.becomes.config["tile"]) == ("repaired", 6)
    assert verdict.becomes.origin.run == result.run
    again = repaired(replace(lock, entries=(verdict.becomes,)), tmp_path, most_neighbours=1)
    assert [each.outcome for each in again] == ["ok"]


def test_a_config_that_fails_is_replaced_and_a_wrong_one_is_handed_back(times_ms, tmp_path):
    times_ms.update({(4, 2, 1): None, (5, 2, 1): -1.0})
    verdicts = repaired(lock_for(record_of(2), record_of(2, n=5)), tmp_path)
    outcomes = {each.entry.problem["n"]: each for each in verdicts}
    assert (outcomes[4].outcome, "ValueError: it fails" in outcomes[4].reason) == ("repaired", True)
    assert outcomes[4].becomes.config != outcomes[4].entry.config
    assert (outcomes[5].outcome, outcomes[5].becomes, "wrong" in outcomes[5].reason) == ("invalid", None, True)


def test_what_no_launch_finds_is_handed_back_and_what_has_no_time_left_is_told(times_ms, tmp_path):
    lock = lock_for(record_of(2), record_of(3, n=5))
    changed = replace(lock.entries[0], identity={"source": "x"})
    verdicts = repaired(replace(lock, entries=(changed, lock.entries[1])), tmp_path, seconds=0)
    assert Counter(each.outcome for each in verdicts) == {"unreachable": 1, "not measured": 1}
    assert [each.becomes for each in verdicts] == [None, None]
    assert "the limit of seconds" in verdicts[1].reason


def test_entries_of_other_versions_or_edited_ones_race_first_and_long_launches_before_short_ones(times_ms, tmp_path):
    long = replace(record_of(2, n=5), timing=Timing(9.0, 9.0, 9.0, 3))
    lock, changed = lock_for(record_of(2), long), of_other_versions(lock_for(record_of(2, n=6)))
    edited = replace(lock_for(record_of(2, n=3)).entries[0], measured=None, origin=EntryOrigin(kind=OriginKind.BY_HAND))
    verdicts = repaired(replace(lock, entries=(*lock.entries, *changed.entries, edited)), tmp_path, seconds=0)
    assert [each.entry.problem["n"] for each in verdicts] == [6, 3, 5, 4]


def test_a_config_that_was_only_expected_is_measured_once_a_race_has_confirmed_it(times_ms, tmp_path):
    times_ms[4, 2, 1] = 8.0
    lock = lock_for(record_of(2))
    expected = expecting(lock.entries[0], Config(tile=2, other=1), Config(tile=1, other=1), "by a model", {})
    (verdict,) = repaired(replace(lock, entries=(expected,)), tmp_path)
    assert (verdict.outcome, verdict.becomes.origin.source, verdict.becomes.config["tile"]) == ("ok", "race", 2)
    assert verdict.becomes.measured.median_ms < 9


def test_the_values_of_a_problem_that_an_operation_makes_are_its_own_and_others_are_none_that_fail(times_ms, tmp_path):
    pytest.importorskip("torch")
    for label, outcome in (("8", "ok"), ("of somebody", "not measured")):
        entry = LockEntry.asked(Key.of(sliced.problem((8,)), sliced.kernel.identity, probe("cpu")))
        entry = replace(expecting(entry, Config(way=1), Config(way=1), "", sliced.kernel.identity), label=label)
        device = lock_for(record_of(2)).devices[0]
        lock = Lockfile((device,), (replace(entry, device=device.alias),))
        (verdict,) = repair(lock, Targets([sliced]), tmp_path, "cpu", listener=Silent())
        assert verdict.outcome == outcome, verdict.reason
    assert "values that are made up for ends" in verdict.reason


def test_a_config_that_a_range_cannot_take_replaces_nothing(times_ms, tmp_path):
    def space(problem):
        return {"tile": [2, 3] if problem["n"] < 16 else [2], "other": [1]}

    narrow = Operation(timed.name, timed.kernel, space, lambda n=4: {"n": n}, device="cpu")
    times_ms.update({(4, 2, 1): 12.0})
    lock = lock_for(record_of(2), buckets={"n": "near:4@4"})
    (verdict,) = repair(lock, Targets([narrow]), tmp_path, "cpu", listener=Silent())
    assert (verdict.outcome, verdict.becomes) == ("slower", None)
    assert "which cannot take its place: its config (tile=3 other=1) is not in the space at n=16" in verdict.reason


THEN = Resources(registers=96, spill_bytes=0, shared_bytes=1024, binary="a", mma="wgmma", serialised=False)
NOW = Resources(registers=128, spill_bytes=48, shared_bytes=1024, binary="b", mma="wgmma", serialised=True)
CHANGED = "registers from 96 to 128, spill bytes from 0 to 48, serialised from False to True"


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (None, THEN, "what its binary was then is not kept"),
        (THEN, None, "what its binary is now is not known"),
        (THEN, THEN, "its binary is the same as then"),
        (THEN, NOW, CHANGED),
        (THEN, Resources(registers=96, binary="b"), "in none of the figures that are kept"),
    ],
)
def test_the_cause_is_what_changed_in_the_binary(then, now, said):
    assert said in cause(then, now)


def test_the_binary_then_is_that_of_the_run_log(times_ms, tmp_path, monkeypatch):
    compiles = FunctionKernel.compile
    monkeypatch.setattr(FunctionKernel, "compile", with_resources(compiles, THEN))
    result = tune(timed, shape=(4,), search="exhaustive", cache_dir=tmp_path, listener=Silent())
    times_ms[4, 2, 1] = 12.0
    monkeypatch.setattr(FunctionKernel, "compile", with_resources(compiles, NOW))
    (verdict,) = repaired(lock_for(record_of(2, run=result.run)), tmp_path)
    assert verdict.outcome == "repaired"
    assert CHANGED in verdict.reason


def with_resources(compiles, resources):
    def compiled(self, config, arguments):
        return replace(compiles(self, config, arguments), resources=resources)

    return compiled


@pytest.mark.parametrize(("cpus", "workers", "idle"), [(5, [2], False), (1, [1], False), (5, [], True)])
def test_beside_a_race_half_of_the_cpus_compile_the_configs_of_the_next_one_unless_in_idle_time(
    times_ms, tmp_path, monkeypatch, cpus, workers, idle
):
    class Pool:
        usual_workers = staticmethod(lambda: cpus)

        def __init__(self, compiler, *, workers, reuse):
            pools.append((compiler, workers, reuse))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def submit(self, config, *, anyway):
            configs.append(config["tile"])

    def with_a_program(answer, lock, here):
        return "ok", "", [SimpleNamespace(compiler=answer.entry.problem["n"])]

    pools, configs = [], []
    monkeypatch.setattr(verification, "CompilePool", Pool)
    monkeypatch.setattr(verification, "checked", with_a_program)
    lock = of_other_versions(lock_for(record_of(2), record_of(3, n=5)))
    assert [each.entry.problem["n"] for each in repaired(lock, tmp_path, idle=idle)] == [4, 5]
    assert pools == [(5, each, True) for each in workers]
    assert configs[:2] == [3, 1][: 2 * len(workers)], "its own config, then the default"


def test_a_record_from_before_the_race_takes_nothing_back(times_ms, tmp_path):
    times_ms.update({(4, 2, 1): 12.0, (4, 3, 1): 8.0})
    before = record_of(2, created="2026-01-01T00:00:00+00:00")
    lock = lock_for(before)
    raced = replace(lock, entries=(repaired(lock, tmp_path)[0].becomes,))
    again = updated(raced, lock_for(before, buckets={"n": "pow2"}))
    assert again.entries[0].config == raced.entries[0].config
    assert again.entries[0].ranges
    later = lock_for(replace(before, winner=Config(tile=5, other=1), run="of another tune"))
    assert updated(raced, later).entries[0].config["tile"] == 5


def test_an_entry_that_is_used_beyond_its_versions_is_one_warning(times_ms, caplog):
    lock = of_other_versions(lock_for(record_of(2), record_of(3, n=5)))
    warn_once.cache_clear()
    for n in (4, 5):
        assert would_run(timed, shape=(n,), lockfile=lock).found.rung == "lockfile"
    assert [each.message for each in caplog.records if "lock verify --repair" in each.message] == [
        "the lockfile is used beyond the versions that it was confirmed for (triton: 0.1 | None): "
        "`triton-ops lock verify --repair` races its entries again"
    ]


def test_the_command_writes_what_it_finds_and_exits_by_it(times_ms, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    times_ms.update({(4, 2, 1): 12.0, (4, 3, 1): 8.0})
    lock_for(record_of(2), record_of(3, n=5)).write("lock.json")
    words = ["lock", "verify", "lock.json", "--repair", "--device", "cpu", "--seconds", "100", "--cache-dir", "cache"]
    assert main([*words, "--markdown"]) == 5
    printed = capsys.readouterr().out
    assert "| repaired |" in printed
    assert "other=1 tile=2, now other=1 tile=3: " in printed
    assert Lockfile.read("lock.json").entries[0].config["tile"] == 3
    assert main([*words, "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert [each["outcome"] for each in items] == ["ok", "ok"]
    assert items[0]["becomes"]["origin"]["versions"]
    for wrong in ("--static --repair", "--held-out 1 --repair", "--seconds 1", "--seconds nan --repair"):
        assert main(["lock", "verify", "lock.json", *wrong.split()]) == 2
    assert main(["lock", "verify", "lock.json", "--markdown", "--json"]) == 2


def of_another_version(record):
    return replace(record, key=replace(record.key, identity={**record.key.identity, "triton": "0.1"}))


def test_records_of_other_versions_race_and_are_kept_for_these_beside_the_earlier_ones(times_ms, tmp_path, capsys):
    times_ms.update({(4, 2, 1): 12.0, (4, 3, 1): 8.0})
    slower, holds = of_another_version(record_of(2)), of_another_version(record_of(1, n=5))
    for record in (slower, holds):
        store_in(str(tmp_path)).put(record)
    words = ["lock", "verify", "--repair", "--records", "--device", "cpu", "--cache-dir", str(tmp_path)]
    assert main([*words, "--json"]) == 5
    outcomes = {each["entry"]["label"]: each["outcome"] for each in json.loads(capsys.readouterr().out)["items"]}
    assert outcomes == {"4": "repaired", "5": "ok"}
    new = recall(timed, shape=(4,), device="cpu", cache_dir=tmp_path)
    assert (new.winner["tile"], new.versions["python"], new.gain > 1.2) == (3, Host.versions()["python"], True)
    assert recall(timed, shape=(5,), device="cpu", cache_dir=tmp_path).winner["tile"] == 1
    assert store_in(str(tmp_path)).get(slower.id) == slower
    assert main(["lock", "verify", "--records"]) == 2


def test_an_engine_repairs_in_idle_time_what_is_of_other_versions_one_race_for_each_next(times_ms, tmp_path):
    times_ms.update({(4, 2, 1): 12.0, (4, 3, 1): 8.0})
    path, options = tmp_path / "lock.json", {"targets": [timed], "device": "cpu", "cache_dir": tmp_path}
    old = of_other_versions(lock_for(record_of(2), record_of(1, n=5)))
    replace(old, entries=(*old.entries, *lock_for(record_of(1, n=6)).entries)).write(path)
    idle = serve_idle(path, **options)
    verdict = next(idle)
    written = {each.label: each for each in Lockfile.read(path).entries}
    assert written[verdict.entry.label] == verdict.becomes
    assert sum("triton" in each.identity for each in written.values()) == 1  # the other one still waits
    assert [each.outcome for each in idle] in (["ok"], ["repaired"])
    assert list(serve_idle(path, **options)) == []
    assert {each.config["tile"] for each in Lockfile.read(path).entries} == {1, 3}


def test_an_entry_that_was_changed_meanwhile_stays(tmp_path):
    lock, path = lock_for(record_of(2), record_of(3, n=5)), tmp_path / "lock.json"
    lock.write(path)
    one = lock.entries[0]
    verdict = Verdict(entry=one, outcome="ok", becomes=replace(one, label="raced"))
    assert _written(verdict, verdict.becomes, path) == verdict
    assert [each.label for each in Lockfile.read(path).entries] == ["raced", "5"]
    again = _written(verdict, verdict.becomes, path)
    assert (again.outcome, again.becomes, "changed in the file" in again.reason) == ("not measured", None, True)
    assert [each.label for each in Lockfile.read(path).entries] == ["raced", "5"]


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serves records, signed by a key that this machine trusts, at a URL that the environment names."""
    private, public = pem(tmp_path, "key")
    monkeypatch.setenv("TRITON_OPS_TRUSTED_KEYS", str(public))
    monkeypatch.setenv("NO_PROXY", "*")
    with http_server() as server:

        def serve(*records):
            export_records(records, tmp_path / "all.json", private)
            url = server.serve(f"/{len(server.contents)}.json", (tmp_path / "all.json").read_bytes())
            monkeypatch.setenv("TRITON_OPS_SHARED_DIRS", url)

        yield serve


def test_winners_of_others_race_the_default_once_before_they_are_this_machines(times_ms, tmp_path, served, capsys):
    times_ms.update({(4, 2, 1): 12.0, (5, 3, 1): 8.0, (6, 2, 1): -8.0})
    slower, faster, wrong = record_of(2, run="a"), record_of(3, n=5, run="b"), record_of(2, n=6, run="c")
    elsewhere = replace(record_of(2, n=7), key=replace(slower.key, device={**slower.key.device, "name": "H200"}))
    served(slower, faster, wrong, elsewhere)
    own, options = tmp_path / "own", {"targets": [timed], "device": "cpu", "cache_dir": tmp_path / "own"}
    assert recall(timed, shape=(5,), device="cpu", cache_dir=own) == faster  # launches have it before
    assert matching(None, tmp_path) == []
    outcomes = {each.entry.label: each.outcome for each in serve_idle(**options)}
    assert outcomes == {"4": "repaired", "5": "ok", "6": "repaired"}
    ours = {each.key.label: each for each in matching(None, own)}
    assert {label: each.winner["tile"] for label, each in ours.items()} == {"4": 1, "5": 3, "6": 1}
    assert all("it was found elsewhere, and raced here" in each.notes[-1] for each in ours.values())
    assert recall(timed, shape=(4,), device="cpu", cache_dir=own) == ours["4"]
    assert ours["5"].gain > 1.2
    assert list(serve_idle(**options)) == []  # once


def test_a_command_races_the_winners_of_others_too(times_ms, tmp_path, served, capsys):
    times_ms.update({(4, 2, 1): 12.0, (4, 3, 1): 8.0})
    served(of_another_version(record_of(2, run="a")))
    words = ["lock", "verify", "--repair", "--records", "--device", "cpu", "--cache-dir", str(tmp_path / "own")]
    assert main([*words, "--json"]) == 5
    assert [each["outcome"] for each in json.loads(capsys.readouterr().out)["items"]] == ["repaired"]
    assert [each.winner["tile"] for each in matching(None, tmp_path / "own")] == [3]
    assert list(serve_idle(targets=[timed], device="cpu", cache_dir=tmp_path / "own")) == []
