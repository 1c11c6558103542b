"""Winners that come with a package: where they stand in the ladder, how they are made, and that a wheel holds them."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.shipped import package_data

import triton_ops_kernels as kernels
from tests.near import drawn
from triton_ops import exceptions, on_miss, share_lockfile
from triton_ops.backend import callables
from triton_ops.base import host
from triton_ops.benchmark.command_bench import BenchRequest, bench_contestants
from triton_ops.device import DeviceSpec
from triton_ops.dispatch import decision as decisions
from triton_ops.dispatch import ladder as sources
from triton_ops.dispatch import would_run
from triton_ops.dispatch.ladder import LadderQuestion
from triton_ops.records import FollowedLockfile, Lockfile, LockPlan, Record, Timing, lock_of
from triton_ops.records.record import Verified
from triton_ops.records.store import open_store
from triton_ops.request import TuneOptions, TuneProblem, request
from triton_ops.space import Config
from triton_ops.typed import TypedProblem
from triton_ops.values import Key
from triton_ops_kernels import FormsKernel, tiles

pytestmark = pytest.mark.triton

H200 = replace(DeviceSpec.named("NVIDIA H200"), driver="570.1")
H100 = replace(DeviceSpec.named("NVIDIA H100 80GB HBM3"), driver="570.1")
ROOT = Path(__file__).resolve().parents[3]
SHAPE = (4096, 4096)


@pytest.fixture(autouse=True)
def own(monkeypatch, tmp_path):
    """A machine with an H200 that knows no winner, and packages that bring none."""
    monkeypatch.setattr(FollowedLockfile, "SHARED", {})
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "records"))
    on(monkeypatch, H200)
    yield
    sources._sources.ladders.clear()
    decisions.forget_decisions()


def on(monkeypatch, spec):
    """Have every look-up find this device."""
    monkeypatch.setattr(request, "probe", lambda _name=None: spec)
    monkeypatch.setattr(request, "gpu_missing", lambda: None)


def key_here(shape=SHAPE, name="softmax"):
    return TuneProblem(target=kernels.load(name), shape=shape, dtype="bfloat16").request().key


def record(shape=SHAPE, name="softmax", **changes):
    """What a tune on the present device might leave; `changes` of the key are those of its fields."""
    operation = kernels.load(name)
    space = operation.space_for(operation.problem(shape, "bfloat16"))
    default, winner = space.default_config, next(config for config in space if config != space.default_config)
    fields = {field: value for field, value in changes.items() if field in Key.__dataclass_fields__}
    rest = {field: value for field, value in changes.items() if field not in fields}
    return Record(
        key=replace(key_here(shape, name), **fields), winner=winner, timing=Timing(1.0, 0.9, 1.1, 50), default=default,
        default_timing=Timing(1.5, 1.4, 1.6, 50), mode="graph-cold", created="2026-11-22T12:00:00+00:00",
        run="20261122T120000-ab", verified=Verified("the reference", "ab"), **rest,
    )  # fmt: skip


def share(path, *records):
    lock_of(records, LockPlan(unproven=True))[0].write(path)  # some are of kernels that run as Python
    share_lockfile(path)


def asked(shape=SHAPE):
    sources._sources.ladders.clear()
    return would_run(kernels.load("softmax"), shape=shape, dtype="bfloat16")


def test_a_package_winner_runs_at_once_on_its_device(tmp_path):
    known = record()
    share(tmp_path / "lock.json", known)
    result = asked().found
    assert (result.rung, result.config, result.record) == ("shipped", known.winner, known.id)
    assert "1.5 times as fast as the default" in result.why


def test_a_package_winner_is_what_bench_compares_with_the_default(tmp_path):
    known = record()
    share(tmp_path / "lock.json", known)
    sources._sources.ladders.clear()
    of = BenchRequest(problem=TypedProblem([SHAPE], "bfloat16"), device=None, cold=False, options=TuneOptions())
    a, b = bench_contestants(("triton_ops_kernels.softmax:operation", None), (None, None), of)
    assert (a.origin, a.config) == ("shipped winner", known.winner)
    assert (b.origin, b.config) == ("default config", known.default)


def test_a_warm_record_comes_first_where_it_is_asked_for(tmp_path):
    softmax = kernels.load("softmax")
    warm = replace(record(cache_state="warm"), winner=record().default)
    share(tmp_path / "lock.json", record())
    for known, answers in ((record(), [record().id] * 2), (warm, [record().id, warm.id])):
        open_store(tmp_path / "records").put(known)
        sources._sources.ladders.clear()
        result = [would_run(softmax, shape=SHAPE, dtype="bfloat16", cold=cold).found for cold in (True, False)]
        assert [(each.rung, each.record) for each in result] == [("record", answer) for answer in answers]


def test_another_device_runs_the_default_and_says_so(tmp_path, monkeypatch):
    share(tmp_path / "lock.json", record())
    on(monkeypatch, H100)
    decision = asked()
    assert decision.found.rung == "default"
    assert any("shipped: " in each and "not NVIDIA H200" in each for each in decision.passed)


def test_other_versions_and_drivers_are_named(tmp_path):
    there = key_here()
    share(tmp_path / "lock.json", record(identity={**there.identity, "triton": "3.0.0"}))
    result = asked().found
    assert result.rung == "shipped"
    assert "triton: 3.0.0 | " in result.why


def test_only_a_winner_of_these_versions_spares_a_tune_that_is_asked_for(tmp_path):
    path, there = tmp_path / "lock.json", key_here()
    share(path, record(identity={**there.identity, "triton": "3.0.0"}))
    (lock,) = FollowedLockfile.shared()
    ladder = sources.ladder_of()
    space = kernels.load("softmax").space_for(kernels.load("softmax").problem(SHAPE, "bfloat16"))
    strict = LadderQuestion(key=there, asked=there, loose=frozenset(), space=space, near=False)
    answer, passed = ladder.ask(strict)
    assert answer.rung == "default"
    assert any("but of other versions: triton: 3.0.0" in each for each in passed)
    share(tmp_path / "these.json", record())
    assert ladder.ask(strict)[0].rung == "shipped"
    assert lock.entries[0].config == record().winner


def test_a_kernel_that_has_changed_takes_no_package_winner(tmp_path):
    share(tmp_path / "lock.json", record(identity={**key_here().identity, "source": "another"}))
    decision = asked()
    assert decision.found.rung == "default"
    assert any("the kernel's source changed since" in each for each in decision.passed)


def test_a_problem_nearby_borrows_and_one_far_away_does_not(tmp_path):
    share(tmp_path / "lock.json", record())
    result = asked((5000, 4096)).found
    assert result.rung == "borrowed"
    assert "rows: 4616 | 4096" in result.why  # the size in the middle of the class of 5000
    assert asked((40_000, 4096)).found.rung == "default"


def test_own_records_come_first_of_equal_problems_even_with_an_older_driver(tmp_path):
    space = kernels.load("softmax").space_for(kernels.load("softmax").problem(SHAPE, "bfloat16"))
    own = replace(record(device={**key_here().device, "driver": "1"}), winner=list(space)[5])
    share(tmp_path / "lock.json", record(device={**key_here().device, "driver": "2"}))
    open_store(tmp_path / "records").put(own)
    result = asked().found
    assert (result.rung, result.config) == ("borrowed", own.winner)
    open_store(tmp_path / "records").put(replace(record(), winner=list(space)[6]))
    assert asked().found.rung == "record"


def test_a_lockfile_that_cannot_be_read_is_one_warning(tmp_path, caplog):
    (tmp_path / "bad.json").write_text("{}")
    share_lockfile(tmp_path / "bad.json")
    share_lockfile(tmp_path / "missing.json")
    assert asked().found.rung == "default"
    assert asked().found.rung == "default"
    assert caplog.text.count("a package's lockfile is not used") == 2


def called_with_package_winner(path):
    """In the interpreter's process, on a device that stands in for an H200: the rung and config of a call."""
    from triton_ops.dispatch import operations
    from triton_ops_kernels.softmax import operation, softmax

    patch = pytest.MonkeyPatch()
    on(patch, H200)
    patch.setattr(FollowedLockfile, "SHARED", {})
    x = drawn(6, 100)
    key = TuneProblem(target=operation, shape=(6, 100), dtype="float32").request().key
    winner = list(operation.space_for(operation.problem((6, 100), "float32")))[3]
    made = Record(key=key, winner=winner, timing=Timing(1.0, 0.9, 1.1, 50), created="2026-11-22")
    share(path, made)
    decisions.forget_decisions()
    right = softmax(x).sub(x.softmax(-1)).abs().max().item() < 1e-6
    (decision,) = [each for each in operations._calls.shipped.values() if each.kernel == "softmax"]
    patch.undo()
    decisions.forget_decisions()
    return right, decision.found.rung, decision.found.config == winner


def test_a_call_runs_with_the_package_winner(interpreted, tmp_path):
    assert interpreted(called_with_package_winner, str(tmp_path / "lock.json")) == (True, "shipped", True)


def of_named_problem(**changes):
    operation = kernels.load("softmax")
    label, (shape, _) = next(iter(operation.problems.items()))
    made = record(shape, **changes)
    return label, replace(made, key=replace(made.key, problem=package_data.named_problems("softmax")[label]))


def test_records_of_named_problems_become_package_data(tmp_path, capsys):
    label, made = of_named_problem()
    warm = replace(made, key=replace(made.key, cache_state="warm"))
    unchecked = replace(made, verified=Verified())
    store = open_store(tmp_path / "found")
    for each in (made, record((17, 19)), warm):
        store.put(each)
    assert package_data.main([str(tmp_path / "found"), "--winners", str(tmp_path / "winners")]) == 0
    message = capsys.readouterr()
    assert f"no winner for softmax {label}" not in message.out
    assert "no winner for gated_mlp" in message.out
    assert "its problem has no name" in message.err
    path = tmp_path / "winners" / "nvidia-h200.lock.json"
    (entry,) = Lockfile.read(path).entries
    assert (entry.config, entry.origin.run) == (made.winner, "")
    assert str(tmp_path) not in path.read_text()
    assert package_data.why_not(unchecked) == "its winner was not checked against the reference"
    elsewhere = replace(made, winner=Config(BLOCK_SIZE=63, ROWS=1, num_warps=1))
    assert package_data.why_not(elsewhere) == "its winner is of another space"
    before = path.read_bytes()
    package_data.main([str(tmp_path / "found"), "--winners", str(tmp_path / "winners")])
    assert path.read_bytes() == before
    assert package_data.main(["--check", "--winners", str(tmp_path / "winners")]) == 0


def test_entries_of_an_earlier_source_are_found_and_removed(tmp_path, capsys):
    _, old = of_named_problem()
    old = replace(old, key=replace(old.key, identity={**old.key.identity, "source": "earlier"}))
    _, gated = of_named_problem()
    winners = tmp_path / "winners"
    winners.mkdir()
    lock_of([old])[0].write(winners / "nvidia-h200.lock.json")
    assert package_data.main(["--check", "--winners", str(winners)]) == 1
    assert "nvidia-h200.lock.json: softmax" in capsys.readouterr().out
    assert "the kernel has changed since" in package_data.why_not(old)
    list(package_data.write([gated], winners))
    assert package_data.main(["--check", "--winners", str(winners)]) == 0


def test_the_entries_of_a_kernel_are_kept_over_a_change_that_does_not_matter(tmp_path, capsys):
    _, made = of_named_problem()
    older = {**made.key.identity, "source": "earlier", "triton": "3.0.0", "part that is no more": "1"}
    path = tmp_path / "nvidia-h200.lock.json"
    lock, _ = lock_of([replace(made, key=replace(made.key, identity=older))])
    gone = [replace(lock.entries[0], label="gone", config=Config(BLOCK_SIZE=63), ranges=lock.entries[0].ranges)]
    for entries in (lock.entries, gone):
        replace(lock, entries=tuple(entries)).write(path)
        package_data.main(["--rekey", "matmul", "--winners", str(tmp_path)])
        assert capsys.readouterr().out == "every entry was of the present source\n"
        assert package_data.main(["--rekey", "softmax", "--winners", str(tmp_path)]) == 0
        answer = capsys.readouterr().out
        (entry,) = Lockfile.read(path).entries
        if entries is gone:  # its config is none of the space
            assert (entry.source["source"], answer) == ("earlier", "every entry was of the present source\n")
        else:
            assert dict(entry.identity) == {**made.key.identity, "triton": "3.0.0"}
            assert answer == f"nvidia-h200.lock.json: softmax {made.key.label}\n"


def test_every_lockfile_of_the_package_can_be_read_and_names_only_shipped_kernels():
    for path in kernels.WINNERS.glob("*.lock.json"):
        lock = Lockfile.read(path)
        assert {entry.kernel for entry in lock.entries} <= set(kernels.names())
        assert all(entry.origin.run == "" for entry in lock.entries)


IN_A_WHEEL = """
import sys
from dataclasses import replace
import triton_ops
import triton_ops_kernels as kernels
from triton_ops.dispatch import would_run
from triton_ops.device import DeviceSpec
from triton_ops.space import Config
from triton_ops.request import TuneProblem, request

assert triton_ops.__file__.startswith(sys.argv[1]), triton_ops.__file__
request.probe = lambda _name=None: replace(DeviceSpec.named("NVIDIA H200"), driver="570.1")
request.gpu_missing = lambda: None
print(would_run(kernels.load("softmax"), shape=(4096, 4096), dtype="bfloat16").text)
"""


def test_calls_take_every_winner_of_the_package(capsys):
    assert package_data.main(["--check"]) == 0, f"{capsys.readouterr().out}: these kernels run with their default now"


MOVED = {"kernel": "device_code", "jit": "pieces", "tiles": "host_code", "call": "checks"}


@pytest.fixture
def moved(tmp_path, monkeypatch):
    """The package of shipped kernels under another name, with other names of its files."""
    shutil.copytree(kernels.WINNERS.parent, tmp_path / "moved_kernels", ignore=shutil.ignore_patterns("__pycache__"))
    files = "|".join(MOVED)
    for path in (tmp_path / "moved_kernels").rglob("*.py"):
        text = path.read_text().replace("triton_ops_kernels", "moved_kernels")
        text = re.sub(rf"(from moved_kernels[\w.]*\.)({files})(?= import)", lambda at: at[1] + MOVED[at[2]], text)
        text = re.sub(
            rf"(from moved_kernels[\w.]* import )({files})\b", lambda at: f"{at[1]}{MOVED[at[2]]} as {at[2]}", text
        )
        path.write_text(text)
        path.rename(path.with_stem(MOVED.get(path.stem, path.stem)))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("moved_kernels")
    for name in [each for each in sys.modules if each.partition(".")[0] == "moved_kernels"]:
        del sys.modules[name]


@pytest.mark.processes  # it reads all kernels once more
def test_kernels_whose_files_were_moved_find_every_winner(moved):
    assert moved.load("matmul").kernel.name == "moved_kernels.matmul.device_code:matmul_kernel"
    identities = {name: moved.load(name).kernel.identity for name in moved.names()}
    assert identities == {name: kernels.load(name).kernel.identity for name in kernels.names()}
    devices = {spec.name: Key.facts_of(spec) for spec in (H100, H200)}
    entries = [(devices[lock.devices[0].name], entry) for lock in FollowedLockfile.shared() for entry in lock.entries]
    assert len(entries) > 200
    for device, entry in entries:
        identity = identities[entry.kernel]
        key = Key(kernel=entry.kernel, problem=entry.problem, identity=identity, device=device, cache_state="cold")
        found = [answer.config for _, answer in sources.shipped(key, [], drifted=True)]
        assert found == [entry.config], f"{device['name']}: {entry.kernel} {entry.label}"


def test_where_a_form_cannot_be_made_the_winners_of_the_others_stay():
    of_both = kernels.load("fp8_gemm").kernel
    first = of_both.forms["triton"]
    alone, changed = FormsKernel({"triton": first}), FormsKernel({"triton": first, "gluon": first})
    assert Key.changes_since(of_both.identity, alone.identity) == []
    assert Key.changes_since(of_both.identity, changed.identity) == ["form gluon"]


def test_a_winner_of_an_earlier_form_is_not_borrowed():
    here = key_here()
    key = replace(here, identity={**here.identity, "form gluon": "now"})
    earlier = replace(key, identity={**key.identity, "form gluon": "earlier", "grid": "another"})
    assert sources._distance(key, earlier, (), near=True) is None
    assert sources._distance(here, earlier, (), near=True) is not None, "the form is missing here"


def test_what_a_kernel_is_known_by_names_no_module_and_no_bytecode(monkeypatch):
    """Bytecode, as of a lambda, is another one in each version of Python."""
    every = []

    class Noted(callables.Reader):
        def read(self, name, value):
            super().read(name, value)
            every.append(self.parts)

    monkeypatch.setattr(callables, "Reader", Noted)
    monkeypatch.setattr(callables, "_sources", {})
    for name in kernels.names():
        kernels.load(name).kernel.identity  # noqa: B018
    texts = {text for parts in every for text in parts.values() if not text.startswith("Module(body=[FunctionDef(")}
    assert {text for text in texts if re.search(r"\.\D|\(", text)} == set()
    assert {"triton", "triton_ops"} <= texts


def test_how_a_package_is_imported_is_no_part_of_a_kernel(monkeypatch):
    def identity():
        monkeypatch.setattr(callables, "_sources", {})
        return dict(kernels.load("matmul").kernel.identity)

    before = identity()
    monkeypatch.setitem(exceptions.INSTALL, "torch", "another hint")
    monkeypatch.setattr(host, "require", lambda name, purpose: (name, purpose))
    assert identity() == before
    monkeypatch.setattr(tiles, "multiprocessors", lambda device: 1)
    assert identity() != before, "how many programs are launched counts"


@pytest.mark.processes
def test_a_built_wheel_holds_the_winners_and_a_look_up_finds_them(tmp_path):
    pytest.importorskip("hatchling", reason="the wheel is built with hatchling")
    project = tmp_path / "project"
    project.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore", "hatch_build.py"):
        shutil.copy(ROOT / name, project)
    shutil.copytree(ROOT / "src", project / "src", ignore=shutil.ignore_patterns("__pycache__"))
    winners = project / "src/triton_ops_kernels/winners"
    shutil.rmtree(winners, ignore_errors=True)
    winners.mkdir()
    made = record()
    lock_of([made])[0].write(winners / "nvidia-h200.lock.json")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=project, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    ran = subprocess.run(
        [sys.executable, "-c", IN_A_WHEEL, str(tmp_path / "installed")], cwd=tmp_path, text=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")}, check=False,
    )  # fmt: skip
    assert f"shipped ({made.winner})" in ran.stdout, ran.stderr


def test_the_policy_of_a_miss_is_not_asked_where_a_package_has_a_winner(tmp_path):
    share(tmp_path / "lock.json", record())
    with on_miss("error"):
        assert asked().found.rung == "shipped"


def test_every_winner_of_the_package_is_of_the_space_of_its_problem():
    for path in kernels.WINNERS.glob("*.lock.json"):
        for entry in Lockfile.read(path).entries:
            operation, named = kernels.load(entry.kernel), package_data.named_problems(entry.kernel)
            labels = [label for label, problem in named.items() if problem == dict(entry.problem)]
            spaces = [operation.space_for(operation.problem(*operation.problems[label])) for label in labels]
            assert spaces, f"{entry.label} of {entry.kernel} has no name"
            assert spaces[0].why_not(entry.config) is None, f"{path.name}: {entry.kernel} {entry.label}"
