"""Members of an `Enum` as values: names in configs and files, the members themselves where a user's code runs."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from enum import Enum, Flag

import pytest

from tests.torchless import Mode
from tests.torchless import takes_a_mode as work
from triton_ops import Choice, Config, ConfigSpace, Constraint, TritonAutoTuner, compare, recall, tune
from triton_ops.exceptions import ConfigValueError
from triton_ops.records import Run
from triton_ops.space.config import member_named

FAST, SLOW = "tests.torchless:Mode.FAST", "tests.torchless:Mode.SLOW"


class Outer:
    class Kind(Enum):
        FAST = "fast"


class Bits(Flag):
    A = 1
    B = 2


def test_a_space_and_its_configs_hold_names():
    space = ConfigSpace({"mode": [Mode.FAST, Mode.SLOW], "n": [1, (Outer.Kind.FAST, 2)]})
    assert [config["mode"] for config in space] == [FAST, FAST, SLOW, SLOW]
    assert space.tunables["n"].values == (1, ("tests.cpu.space.test_enum_members:Outer.Kind.FAST", 2))
    assert Config(mode=Mode.FAST) == Config(mode=FAST)
    assert Config(mode=Mode.FAST, n=1) in space
    assert space == ConfigSpace({"mode": Choice([Mode.FAST, Mode.SLOW]), "n": [1, (Outer.Kind.FAST, 2)]})


def test_a_config_with_members_is_equal_and_leaves_the_process_with_names():
    space = ConfigSpace({"mode": [Mode.FAST], "n": [(Outer.Kind.FAST, 2)]})
    plain = space.default_config
    config = plain.with_members(space.members)
    assert dict(config) == {"mode": Mode.FAST, "n": (Outer.Kind.FAST, 2)}
    assert (config, hash(config), str(config), repr(config)) == (plain, hash(plain), str(plain), repr(plain))
    assert config.plain is plain
    assert dict(pickle.loads(pickle.dumps(config))) == dict(plain)
    assert Config(n=1).with_members(space.members)["n"] == 1


def test_constraints_and_defaults_are_given_members():
    rule = Constraint("slow", lambda mode: mode is Mode.SLOW, "mode is {mode}")
    space = ConfigSpace({"mode": [Mode.FAST, Mode.SLOW]}, (rule,), {"mode": Mode.SLOW})
    assert space.size.valid == 1
    assert space.default_config == Config(mode=Mode.SLOW)
    assert space.why_not(Config(mode=FAST)) == f"slow: mode is {FAST}"


@pytest.mark.parametrize("default", [None, {"mode": Mode.SLOW}])
def test_a_list_of_configs_may_hold_members(default):
    space = ConfigSpace.from_configs([{"mode": Mode.FAST}, {"mode": Mode.SLOW}], default=default)
    assert space.members == {"mode": {FAST: Mode.FAST, SLOW: Mode.SLOW}}
    assert space.take(2) == [Config(mode=Mode.FAST), Config(mode=Mode.SLOW)]


def test_members_may_be_named_shortly_where_a_person_writes_them():
    space = ConfigSpace({"mode": [Mode.FAST, Mode.SLOW], "kind": [Outer.Kind.FAST], "n": [1]})
    narrowed = space.with_values({"mode": ["SLOW", "Mode.FAST"], "n": [2]})
    assert narrowed.tunables["mode"].values == (SLOW, FAST)
    assert narrowed.members["mode"][SLOW] is Mode.SLOW
    assert space.with_names({"mode": FAST, "kind": "Outer.Kind.FAST", "n": 2}) == {
        "mode": Mode.FAST, "kind": Outer.Kind.FAST, "n": 2,
    }  # fmt: skip
    assert space.with_names({"mode": "AST"}) == {"mode": "AST"}


def test_none_on_a_command_line_is_the_text_where_only_that_is_a_value():
    space = ConfigSpace({"evict": ["none", "all"], "kept": [None, "none"], "n": [1, None]})
    given = {"evict": [None, "all"], "kept": None, "n": None, "other": None}
    assert space.with_names(given) == {**given, "evict": ["none", "all"]}


def test_a_member_with_another_value_makes_another_space(monkeypatch):
    before = ConfigSpace({"mode": [Mode.FAST]})
    assert before.fingerprint == ConfigSpace({"mode": [Mode.FAST]}).fingerprint
    monkeypatch.setattr(Mode.FAST, "_value_", 3)
    assert before.fingerprint != ConfigSpace({"mode": [Mode.FAST]}).fingerprint


def made_inside():
    class Local(Enum):
        A = 1

    return Local.A


def hidden():
    kind = Enum("Mode", "A")
    kind.__module__ = Mode.__module__
    return kind.A


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (made_inside, r"made_inside\.<locals>\.Local is made inside a function"),
        (hidden, r"the module tests\.torchless has no Mode, or another one"),
        (lambda: Bits.A | Bits.B, "it is a combination of members"),
    ],
)
def test_a_member_that_is_not_found_again_by_its_name_is_refused(make, why):
    for refuse in (lambda: ConfigSpace({"mode": [make()]}), lambda: Config(mode=make())):
        with pytest.raises(ConfigValueError, match=f"'mode' has the value .*found again by its name: {why}.*m.value"):
            refuse()


@pytest.mark.usefixtures("steady_clock")
@pytest.mark.parametrize("isolate", [False, pytest.param(True, marks=pytest.mark.processes)])
def test_a_tune_calls_with_members_and_keeps_names(tmp_path, isolate):
    given = {"space": {"mode": [Mode.SLOW, Mode.FAST]}, "cache_dir": tmp_path, "device": "cpu"}
    first = tune(work, isolate=isolate, **given)
    assert first.totals == {"ok": 2}
    assert isinstance(first.best_config["mode"], Mode)
    assert {config["mode"] for config, _ in first.all_results} == {Mode.SLOW, Mode.FAST}
    again = tune(work, **given)
    assert (again.from_cache, again.best_config) == (True, first.best_config)
    (path,) = tmp_path.rglob("runs/*/*.jsonl")
    assert {config["mode"] for config in Run.read(path).trials} == {SLOW, FAST}
    (record,) = tmp_path.glob("*.record.json")
    assert json.loads(record.read_text())["winner"] == {"mode": str(Config(first.best_config)).partition("=")[2]}
    assert recall(work, space=given["space"], cache_dir=tmp_path, device="cpu").winner["mode"] in Mode
    assert recall(work, cache_dir=tmp_path, device="cpu").winner["mode"] in (FAST, SLOW)


RECALLS = """
import sys
from tests.torchless import Mode
from tests.torchless import takes_a_mode as work
from triton_ops import recall  # a tune would go on with a record that noise has left undecided
record = recall(work, space={"mode": [Mode.SLOW, Mode.FAST]}, cache_dir=sys.argv[1], device="cpu")
print(record.winner["mode"].name, *{type(record.winner["mode"])} - {Mode})
"""


@pytest.mark.processes
@pytest.mark.usefixtures("steady_clock")
def test_another_process_recalls_the_member(tmp_path):
    result = tune(work, space={"mode": [Mode.SLOW, Mode.FAST]}, cache_dir=tmp_path, device="cpu")
    ran = subprocess.run([sys.executable, "-c", RECALLS, tmp_path], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == (f"{result.best_config['mode'].name}\n", 0), ran.stderr


def test_an_interrupted_tune_goes_on_with_members(tmp_path, steady_clock):
    called = []

    def interrupted(*, mode):
        called.append(mode)
        if len(set(called)) == 2 and "go on" not in called:
            raise KeyboardInterrupt

    space = {"mode": [Mode.SLOW, Mode.FAST]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("triton_ops.backend.callables.FunctionKernel.identity", {"source": "fixed"})
        stopped = tune(interrupted, space=space, cache_dir=tmp_path, device="cpu")
        assert stopped.stopped == "interrupted"
        called.append("go on")
        result = tune(interrupted, space=space, cache_dir=tmp_path, device="cpu")
    assert result.notes[0] == "1 trial was taken over from an earlier run"
    assert result.totals == {"ok": 2}
    assert set(called) == {Mode.SLOW, Mode.FAST, "go on"}


@pytest.mark.usefixtures("steady_clock")
def test_compare_and_the_documented_tuner_call_with_members(tmp_path):
    assert compare((work, {"mode": Mode.FAST}), (work, {"mode": Mode.SLOW}), rounds=6).rounds == 6
    tuner = TritonAutoTuner(work, {"mode": [Mode.SLOW, Mode.FAST]}, cache_dir=str(tmp_path))
    for from_cache in (False, True):
        result = tuner.tune(problem_size=1, device="cpu")
        assert (result.from_cache, type(result.best_config["mode"])) == (from_cache, Mode)
    assert tuner.get_cached_config(1, "cpu") == result.best_config


@pytest.mark.triton
def test_launchers_are_compiled_with_members(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("triton")

    from tests.enum_launcher import ahead

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made, space = ahead()
    loaded = made.pack().load()
    result = [loaded.compile(config) for config in space]
    assert [compiled.status for compiled in result] == ["ok", "ok"], [compiled.reason for compiled in result]
    assert result[0].resources.binary != result[1].resources.binary
    assert [type(compiled.config["mode"]) for compiled in result] == [str, str]


TARGET = """
from enum import Enum
from triton_ops import Operation

class Mode(Enum):
    FAST = 1
    SLOW = 2

def work(*, mode):
    assert isinstance(mode, Mode), mode

modal = Operation("modal", work, {"mode": list(Mode)}, lambda: {}, device="cpu")
"""


@pytest.mark.usefixtures("steady_clock")
def test_the_command_line_takes_names(cli, tmp_path):
    (tmp_path / "modal_target.py").write_text(TARGET)
    target = f"{tmp_path / 'modal_target.py'}:modal"
    ran = cli("tune", target, "--space", "mode=Mode.SLOW", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["best_config"]["mode"].startswith("modal_target:Mode.")
    ran = cli("bench", target, "--config", "mode=SLOW", "--config-b", "mode=FAST", "--seconds", "0.01", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["a"]["config"] == {"mode": "modal_target:Mode.SLOW"}


def test_a_text_names_a_member_of_a_module_that_is_imported():
    assert member_named(FAST) is Mode.FAST
    assert member_named("tests.cpu.space.test_enum_members:Outer.Kind.FAST") is Outer.Kind.FAST
    for text in ("", "FAST", "tests.torchless:Mode", "tests.torchless:Mode.NIX", "nowhere:Mode.FAST", ":a.b", 3, None):
        assert member_named(text) is None


def test_bench_gives_members_back_to_a_plain_function(cli, tmp_path, steady_clock):
    folder = str(tmp_path)
    tune(work, space={"mode": [Mode.FAST, Mode.SLOW]}, cache_dir=folder, budget_s=1.0)
    for given in ([], ["--config", f"mode={FAST}"]):
        done = cli(
            "bench", "tests.torchless:takes_a_mode", *given, "--config-b", f"mode={SLOW}", "--seconds", "0.1",
            "--cache-dir", folder,
        )  # fmt: skip
        assert done.code == 0, done.err
