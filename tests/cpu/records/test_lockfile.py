"""A lockfile: read strictly, looked up by problem and range, and written so that people can read and merge it."""

import json
import subprocess
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import configs
from triton_ops.base import Sealed
from triton_ops.cli.lock_changes import changes
from triton_ops.exceptions import LockfileError
from triton_ops.records import LockedDevice, LockEntry, Lockfile
from triton_ops.records.lock_entry import EntryOrigin as Origin
from triton_ops.records.lock_entry import LockedTiming as Measured
from triton_ops.records.lock_entry import OriginKind, why_outside
from triton_ops.records.lockfile import loads, without_conflicts
from triton_ops.space import Config
from triton_ops.values import Key, Mapper, Range

H200 = LockedDevice(alias="h200", kind="cuda", name="NVIDIA H200", arch="sm_90", units=132)
HERE = {"kind": "cuda", "name": "NVIDIA H200", "arch": "sm_90", "units": 132, "driver": "570.1"}
IDENTITY = {"source": "a" * 32, "grid": "b" * 32, "triton": "3.6.0"}


def problem(m=32, n=64, dtype="float16"):
    tensor = {"shape": [m, n], "dtype": dtype, "stride": [n, 1], "aligned": True}
    return {"x": tensor, "y": tensor, "M": m, "N": n, "eps": 1e-6}


def entry(m=32, n=64, **changes):
    given = {
        "kernel": "add", "device": "h200", "label": f"{m}x{n}", "config": Config(BLOCK=m), "default": Config(BLOCK=1),
        "measured": Measured(cache_state="cold", mode="graph-cold", median_ms=0.5, default_ms=1.0, gain=2.0),
        "problem": problem(m, n), "identity": IDENTITY,
        "origin": Origin(record="c" * 32, run="r", created="2026-11-22T08:46:27+00:00", driver="570.1"),
    }  # fmt: skip
    return LockEntry(**{**given, **changes})


def key(m=32, n=64, *, device=HERE, identity=IDENTITY, **changes):
    return Key(kernel="add", problem={**problem(m, n), **changes}, identity=identity, device=device, cache_state="cold")


def lock(*entries, devices=(H200,)):
    return Lockfile(devices, entries)


ranged = entry(32, ranges=(Range(("M", "x[0]", "y[0]"), 17, 64),))


def test_what_is_written_is_read():
    written = lock(entry(32), entry(16), replace(ranged, kernel="mul"))
    assert loads(written.text) == written
    assert loads(written.text).text == written.text


def test_the_order_of_a_kernels_arguments_is_no_change():
    """A record has the kernel's own order, a file that of the names."""
    problem_of = {
        "rows": 8,
        "cols": 64,
        "x": {"shape": [8, 64], "dtype": "float16", "stride": [64, 1], "aligned": True},
    }
    of_records = lock(*(entry(rows, problem={**problem_of, "rows": rows}) for rows in (8, 256, 64)))
    assert changes(loads(of_records.text), of_records) == ()
    with pytest.raises(LockfileError, match="for one problem"):
        lock(*loads(of_records.text).entries, of_records.entries[0])


def test_the_order_of_devices_and_entries_is_no_change():
    other = replace(H200, alias="a100", name="NVIDIA A100")
    one, same = lock(entry(8), entry(16), devices=(H200, other)), lock(entry(16), entry(8), devices=(other, H200))
    assert one == same
    assert [device.alias for device in one.devices] == ["a100", "h200"]
    with pytest.raises(LockfileError, match="two devices have the alias a100"):
        lock(devices=(other, other))
    with pytest.raises(LockfileError, match="entries name the devices h200, which are not listed"):
        lock(entry(8), devices=(other,))


def test_the_order_of_a_configs_values_is_no_change():
    """A record has the order of its space, a file that of the names."""
    of_record = lock(entry(8, config=Config(num_warps=4, BLOCK=64), default=Config(num_warps=8, BLOCK=64)))
    assert changes(loads(of_record.text), of_record) == ()


def test_a_name_that_stands_twice_is_refused_since_people_read_the_other_one():
    text = lock(entry(32)).text
    assert '"config": {' in text
    with pytest.raises(LockfileError, match="'config' twice"):
        loads(text.replace('"config": {', '"config": {"BLOCK": 64}, "config": {', 1))


@given(st.lists(st.tuples(st.integers(1, 99), configs()), max_size=5, unique_by=lambda pair: pair[0]))
@example([(1, Config(MERGED="<<<<<<< ours\n=======\n>>>>>>> theirs"))])
def test_any_config_survives_and_the_order_of_entries_makes_no_difference(pairs):
    entries = [entry(m, config=config) for m, config in pairs]
    assert loads(lock(*entries).text) == lock(*entries)
    assert lock(*entries).text == lock(*reversed(entries)).text
    assert lock(*entries).digest == lock(*reversed(entries)).digest


def test_a_changed_winner_changes_the_lines_of_one_entry():
    before, after = (lock(entry(16), entry(32, config=c), entry(64)).text for c in (Config(B=1), Config(B=2)))
    changed = [a for a, b in zip(before.splitlines(), after.splitlines(), strict=True) if a != b]
    assert len(changed) == 3  # the config, the entry's checksum and the file's


def test_the_very_problem_answers_before_a_range():
    result = lock(entry(64), ranged).find(key(64))
    assert (result.rung, result.entry.config) == ("exact", Config(BLOCK=64))


@pytest.mark.parametrize(("m", "answered"), [(16, False), (17, True), (32, True), (64, True), (65, False)])
def test_a_range_answers_for_the_problem_as_it_is(m, answered):
    result = lock(ranged).find(key(m))
    assert (result is not None) == answered
    if result is not None:
        assert result.rung == ("exact" if m == 32 else "range")


def test_of_two_ranges_the_nearer_entry_answers():
    near, far = (entry(m, ranges=(Range(("M", "x[0]", "y[0]"), 1, 4096),)) for m in (64, 1024))
    assert lock(near, far).find(key(100)).entry == near
    assert lock(near, far).find(key(900)).entry == far


def test_extents_of_one_range_must_be_equal():
    other = {"shape": [20, 64], "dtype": "float16", "stride": [64, 1], "aligned": True}
    assert lock(ranged).find(key(24, x=other)) is None
    assert "20 and 24" in lock(ranged).why_not(key(24, x=other))


def test_an_ignored_argument_may_differ():
    assert lock(entry()).find(key(eps=1e-5)) is None
    assert lock(entry(ignored=("eps",))).find(key(eps=1e-5)).rung == "exact"


def test_a_changed_kernel_is_not_answered_and_changed_versions_are_named():
    changed = key(identity={**IDENTITY, "source": "d" * 32})
    assert lock(entry()).find(changed) is None
    assert "source changed" in lock(entry()).why_not(changed)
    result = lock(entry()).find(key(identity={**IDENTITY, "triton": "3.7.0"}, device={**HERE, "driver": "580"}))
    assert result.drift == ("driver: 570.1 | 580", "triton: 3.6.0 | 3.7.0")


def test_an_entry_of_another_device_is_refused_unless_it_is_asked_for():
    h100 = {**HERE, "name": "NVIDIA H100 80GB HBM3"}
    assert lock(entry()).find(key(device=h100)) is None
    assert "NVIDIA H100 80GB HBM3, not NVIDIA H200" in lock(entry()).why_not(key(device=h100))
    result = lock(entry()).find(key(device=h100), borrow=True)
    assert "borrowed from NVIDIA H200" in str(result)


@pytest.mark.parametrize(
    ("device", "same"),
    [
        ({**HERE, "name": "nvidia_h200"}, True),
        ({**HERE, "units": 16}, False),  # a slice of it
        ({**HERE, "arch": "sm_100"}, False),
        ({**HERE, "kind": "hip"}, False),
        ({**HERE, "name": "NVIDIA GH200 480GB", "units": 130}, True),  # an alias
    ],
)
def test_a_device_is_known_by_name_architecture_and_units_or_by_an_alias(device, same):
    known = LockedDevice(**{**vars(H200), "also": ("NVIDIA GH200 480GB",)})
    assert (known.why_not(device) is None) == same


def edited(tmp_path, change, content=None):
    path = tmp_path / "lock.json"
    path.write_text(change((lock(entry(16), ranged) if content is None else content).text))
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace('"BLOCK": 16', '"BLOCK": 64'), "edited by hand: add 16x64"),
        (lambda text: text.replace('"high": 64', '"high": 640'), "edited by hand: add 32x64"),
        (lambda text: text.replace('"name": "NVIDIA H200"', '"name": "NVIDIA H100"'), "each entry is whole"),
        (lambda text: text.replace('"schema_version": 1', '"schema_version": 2'), "schema version 2"),
        (lambda text: text.replace("triton-ops lock", "triton-ops record"), "its kind is 'triton-ops record'"),
        (lambda text: text[:-100], "no lockfile"),
        (lambda text: "[]", "no lockfile"),
        (lambda text: text.replace('"entries": [', '"entries": 3, "more": ['), "no list of entries"),
        (lambda text: "<<<<<<< ours\n" + text, "a merge left conflicts"),
    ],
)
def test_a_file_that_was_changed_is_refused_with_its_name_and_the_next_step(tmp_path, change, said):
    path = edited(tmp_path, change)
    with pytest.raises(LockfileError, match=r"lock\.json") as caught:
        Lockfile.read(path)
    assert said in str(caught.value)
    assert caught.value.hint


def test_an_entry_that_was_taken_out_is_noticed(tmp_path):
    whole = lock(entry(16), ranged).text.splitlines(keepends=True)
    start = next(at for at, line in enumerate(whole) if '"kernel"' in line)
    path = tmp_path / "lock.json"
    path.write_text("".join(whole[:start] + whole[start + 10 :]))
    with pytest.raises(LockfileError, match="each entry is whole"):
        Lockfile.read(path)
    accepted, by_hand = Lockfile.accept_edits(path)
    assert (len(accepted.entries), by_hand) == (1, ())


def test_accepted_edits_say_that_they_are_edits(tmp_path):
    path = edited(tmp_path, lambda text: text.replace('"BLOCK": 16', '"BLOCK": 64'))
    accepted, by_hand = Lockfile.accept_edits(path)
    assert [each.config for each in by_hand] == [Config(BLOCK=64)]
    accepted.write(path)
    assert Lockfile.read(path).entries[0].origin.source == "edited by hand, and accepted"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"config": {"BLOCK": 16}', '"config": {"BLOCK": {}}', "not well formed"),
        ('"config": {"BLOCK": 16}', '"confg": {"BLOCK": 16}', "unknown fields confg"),
        ('"low": 17', '"low": 170', "is empty: 170 to 64"),
        ('"low": 17', '"low": -1', "not well formed"),
        ('"median_ms": 0.5', '"median_ms": -0.5', "not well formed"),
        ('"device": "h200"', '"device": "h300"', "h300"),
    ],
)
def test_edits_that_make_no_sense_are_not_accepted(tmp_path, old, new, said):
    with pytest.raises(LockfileError, match=said) as caught:
        Lockfile.accept_edits(edited(tmp_path, lambda text: text.replace(old, new)))
    assert said != "not well formed" or caught.value.hint == "`triton-ops lock` writes one"


@pytest.mark.parametrize("name", ["label", "default", "measured", "ranges", "ignored", "identity", "origin"])
def test_an_entry_that_leaves_a_field_out_is_written_with_it(tmp_path, name):
    path = tmp_path / "lock.json"
    content = json.loads(lock(entry(16)).text)
    del content["entries"][0][name]
    path.write_text(json.dumps(content))
    accepted, _ = Lockfile.accept_edits(path)
    accepted.write(path)
    assert name in json.loads(path.read_text())["entries"][0]
    assert Lockfile.read(path) == accepted


def only(content, *names):
    return {name: content[name] for name in names}


def test_fields_that_a_text_leaves_out_are_written_with_their_defaults():
    bare = LockEntry(
        kernel="add", device="h200", config=Config(BLOCK=1), problem=problem(),
        measured=Measured(cache_state="cold", mode="graph-cold", median_ms=0.5),
    )  # fmt: skip
    whole = lock(bare, devices=(LockedDevice(alias="h200", kind="cuda", name="NVIDIA H200"),))
    content = json.loads(whole.text)
    [entry], [device] = content["entries"], content["devices"]
    entry["measured"] = only(entry["measured"], "cache_state", "mode", "median_ms")
    entries = [Sealed(only(entry, "kernel", "device", "config", "measured", "problem"))]
    devices = [only(device, "alias", "kind", "name")]
    read = loads(
        json.dumps(Sealed({**only(content, "kind", "schema_version"), "devices": devices, "entries": entries}))
    )
    assert read == whole
    assert read.text == whole.text
    assert changes(read, whole) == ()


def test_two_entries_for_one_problem_are_refused():
    with pytest.raises(LockfileError, match="two entries of add on h200"):
        lock(entry(), entry(config=Config(BLOCK=3)))


def test_one_alias_for_two_devices_is_refused():
    other = LockedDevice(**{**vars(H200), "name": "NVIDIA H100"})
    with pytest.raises(LockfileError, match="have the alias h200"):
        lock(devices=(H200, other))
    with pytest.raises(LockfileError, match="NVIDIA H200 in one lockfile and NVIDIA H100"):
        Lockfile.merged([lock(), lock(devices=(other,))])
    part = LockedDevice(**{**vars(H200), "units": 16})
    with pytest.raises(LockfileError, match=f"in another: it has 16 units, not {H200.units} "):
        Lockfile.merged([lock(), lock(devices=(part,))])


def test_of_merged_lockfiles_the_earlier_decides():
    first, second = lock(entry(16)), lock(entry(16, config=Config(BLOCK=3)), entry(32))
    assert [each.config["BLOCK"] for each in Lockfile.merged([first, second]).entries] == [16, 32]


def git(folder, *arguments):
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_two_branches_that_add_entries_conflict_only_in_the_checksum_of_the_whole(tmp_path):
    path = tmp_path / "lock.json"
    kept = [entry(m) for m in (16, 128, 1024)]

    def commit(*entries):
        lock(*entries).write(path)
        git(tmp_path, "add", "lock.json")
        git(tmp_path, "commit", "-m", "x")

    git(tmp_path, "init", "-b", "main")
    commit(*kept)
    git(tmp_path, "switch", "-c", "other")
    commit(*kept, entry(64))
    git(tmp_path, "switch", "main")
    commit(*kept, entry(512))
    git(tmp_path, "merge", "other")
    with pytest.raises(LockfileError, match="conflicts"):
        Lockfile.read(path)
    accepted, by_hand = Lockfile.accept_edits(path)
    assert accepted == lock(*kept, entry(64), entry(512))
    assert by_hand == ()


@pytest.mark.parametrize(
    "text", ["<<<<<<< a\n" * 1_000_000, "<<<<<<< a\n=======\n" * 500_000, ">>>>>>> a\n" * 1_000_000 + "<<<<<<< a\n"]
)
def test_a_million_marks_of_conflicts_are_read_once(tmp_path, text):
    (tmp_path / "lock.json").write_text(text)
    with pytest.raises(LockfileError, match="conflicts in it"):
        Lockfile.accept_edits(tmp_path / "lock.json")


def test_conflicts_in_the_checksum_are_settled_and_what_is_around_them_stays():
    seal = '  "checksum": "ab"\n'
    conflict = f"<<<<<<< a\n{seal}||||||| base\n{seal}=======\n{seal}>>>>>>> b\n"
    assert without_conflicts(f"one\n{conflict}two\n{conflict}three") == f"one\n{seal}two\n{seal}three"
    for text in ("one\n>>>>>>> b\ntwo\n", f"one\n<<<<<<< a\n{seal}", "x <<<<<<< a\n >>>>>>> b\n", ""):
        assert without_conflicts(text) == text
    with pytest.raises(LockfileError, match="between entries"):
        without_conflicts(f"<<<<<<< a\n{conflict}")


def test_a_conflict_between_entries_is_left_to_a_person(tmp_path):
    path = edited(
        tmp_path, lambda t: t.replace("{", "<<<<<<< a\n{", 1).replace("16}", "16}\n=======\n\n>>>>>>> b\n", 1)
    )
    with pytest.raises(LockfileError, match="conflict between entries"):
        Lockfile.accept_edits(path)


numbers = st.integers(1, 10**6)


@given(numbers, numbers, st.sampled_from(["x[0]", "M", "x[0],M"]))
def test_a_problem_outside_of_its_ranges_is_always_told(low, value, names):
    high = 2 * low
    result = {"x": {"shape": [low], "dtype": "float16", "stride": [1], "aligned": True}, "M": low}
    asked = {"x": {**result["x"], "shape": [value]}, "M": value}
    tied = Range(("x[0]", "M"), low, high)
    assert (why_outside(result, asked, (tied,)) is None) == (low <= value <= high)
    assert Mapper.extents_of(asked) == {"x[0]": value, "M": value}
    alone = why_outside(result, asked, (Range(tuple(names.split(",")), low, high),))
    assert (alone is None) <= (low <= value <= high)


def test_true_is_not_one():
    assert why_outside({"flag": 1}, {"flag": True}) is not None


def test_a_lockfile_that_is_not_there_or_cannot_be_written_is_told(tmp_path):
    with pytest.raises(LockfileError, match=r"cannot be read: .* has no such file"):
        Lockfile.read(tmp_path / "none.json")
    with pytest.raises(LockfileError, match="cannot be written"):
        lock().write(tmp_path)


@given(st.sampled_from(OriginKind), st.text(max_size=8))
@example(OriginKind.TABLE, "E=8,N=7168.json")
def test_an_origin_is_read_as_it_was_written(kind, text):
    form = "vllm-moe" if kind is OriginKind.TABLE else ""
    origin = Origin(kind=kind, form=form, detail=text if kind.value[-1:] in ("", " ") else "", driver="570.1")
    written = lock(entry(origin=origin))
    assert loads(written.text) == written
    assert f'"source": {json.dumps(origin.source, ensure_ascii=False)}' in written.text


@given(st.text(max_size=8), st.sampled_from(OriginKind))
def test_the_text_of_an_origin_stays_as_a_file_has_it(text, kind):
    fields = Origin.fields_of({"source": kind.value + text})
    assert Origin(**{**fields, "kind": OriginKind(fields["kind"])}).source == kind.value + text


def sealed(content):
    """The content of a lockfile with the checksums of what it now holds."""
    rest = {name: value for name, value in content.items() if name != Sealed.CHECKSUM}
    entries = [
        Sealed({name: value for name, value in each.items() if name != Sealed.CHECKSUM}) for each in rest["entries"]
    ]
    return Sealed({**rest, "entries": entries})


def test_an_origin_whose_source_is_no_text_is_refused():
    content = json.loads(lock(entry()).text)
    content["entries"][0]["origin"]["source"] = 5
    with pytest.raises(LockfileError, match="source of an origin is 5, and no text"):
        loads(json.dumps(sealed(content)))
