"""A lockfile before it serves: every entry is found, checked, compiled and measured, and failures are told."""

import json
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

import triton_ops
from triton_ops import ConfigSpace, Constraint, Operation, TensorSpec, operation
from triton_ops.backend.triton_compiler import kind_of
from triton_ops.cli.app import main
from triton_ops.device import DeviceSpec, probe
from triton_ops.exceptions import KernelTypeError
from triton_ops.records import LockedDevice, LockEntry, Lockfile, LockPlan, Record, Timing, lock_of, matching, store_in
from triton_ops.ship import prepare
from triton_ops.ship.command_loading import _code_of
from triton_ops.ship.targets import Targets, as_target, bound, specialised, stand_ins
from triton_ops.ship.verification import Verdict, _leaders, judged, verify
from triton_ops.space import Config
from triton_ops.values import Key, Problem, Range

H200 = DeviceSpec.named("NVIDIA H200")
QUICK = {"trials": 8}


@operation(space={"ms": [1, 30], "other": [1, 2]}, arguments=lambda n=4: {"n": n})
def wait(n, ms, other):
    time.sleep(ms / 1000)
    return n * other // other


def record_of(found, problem, device, config, default=None):
    key = Key.of(problem, found.kernel.identity, device)
    return Record(key=key, winner=Config(config), timing=Timing(1.0, 1.0, 1.0, 3), default=Config(default or config))


def lock_for(*records, **plan):
    return lock_of(records, LockPlan(**plan))[0]


def waiting(ms, other=1, n=4):
    return record_of(
        wait, Problem(wait.name, (("n", n),)), probe("cpu"), {"ms": ms, "other": other}, {"ms": 30, "other": 1}
    )


def only(lock, *given, here=None, **options):
    (result,) = verify(lock, Targets(given), here, **QUICK, **options)
    return result


def test_an_entry_that_nothing_beats_passes():
    result = only(lock_for(waiting(1)), wait, here=probe("cpu"))
    assert (result.outcome, result.failed) == ("ok", False)
    assert len(result.result.trials) == 4  # the entry, the default, one further neighbour, and the rest of the space


def test_an_entry_that_a_neighbour_beats_fails():
    result = only(lock_for(waiting(30, other=2)), wait, here=probe("cpu"), most_neighbours=1)
    assert result.outcome == "slower"
    assert "the default is faster by" in result.reason


def test_ctrl_c_ends_a_check_that_has_measured_some_entries():
    @operation(space={"step": [1, 2]}, arguments=lambda n=4: {"n": n})
    def interrupted(n, step):
        calls.append(n)
        if (n, step) == (5, 2):  # when the first config has run
            raise KeyboardInterrupt
        return n

    calls, known = [], {"step": 1}
    records = [record_of(interrupted, Problem(interrupted.name, (("n", n),)), probe("cpu"), known) for n in (4, 5, 6)]
    verdicts = verify(lock_for(*records), Targets([interrupted]), probe("cpu"), **QUICK)
    assert next(verdicts).outcome in ("ok", "slower")
    with pytest.raises(KeyboardInterrupt):
        next(verdicts)
    assert 6 not in calls


def test_an_entry_that_no_search_has_reached_is_not_called_invalid():
    result = only(lock_for(waiting(1)), wait, here=probe("cpu"), most_neighbours=0)
    missing = replace(result.result, trials=[each for each in result.result.trials if each.config["ms"] != 1])
    assert judged(result.entry, missing).outcome == "not measured"


@pytest.mark.parametrize("rows", [1 << 40, 1 << 62, (1 << 62) + 1])
def test_an_entry_that_is_larger_than_the_memory_is_one_row(rows, steady_clock):
    @operation(space={"step": [1, 2]}, arguments=lambda rows=4: {"x": TensorSpec((rows, 4), "float32")})
    def doubled(x, step):
        return x * 2

    records = [record_of(doubled, doubled.problem((n,)), probe("cpu"), {"step": 1}) for n in (4, rows, 8)]
    result = list(verify(lock_for(*records), Targets([doubled]), probe("cpu"), **QUICK))
    (large,) = (each for each in result if each.entry.problem["x"]["shape"][0] == rows)
    assert large.outcome == "not measured"
    assert "cannot be made on cpu" in large.reason
    assert [each.outcome for each in result].count("not measured") == 1


def test_every_config_that_an_entry_is_measured_against_takes_part_in_the_last_comparison():
    @operation(space={name: [0, 2, 4] for name in "abc"}, arguments=lambda n=4: {"n": n})
    def three(n, a, b, c):
        time.sleep((1 + a + b + c) / 1000)
        return n

    middle = record_of(three, Problem(three.name, (("n", 4),)), probe("cpu"), dict.fromkeys("abc", 2))
    result = only(lock_for(middle), three, here=probe("cpu"))
    assert len(result.result.trials) > 4  # as many as a quick tune compares
    assert all(trial.final is not None for trial in result.result.trials if trial.ok)


def test_an_entry_whose_config_fails_is_invalid():
    @operation(name=wait.name, space={"ms": [1, 30], "other": [0, 1, 2]}, arguments=lambda n=4: {"n": n})
    def broken(n, ms, other):
        return n // other

    result = record_of(
        broken, Problem(wait.name, (("n", 4),)), probe("cpu"), {"ms": 1, "other": 0}, {"ms": 1, "other": 1}
    )
    verdict = only(lock_for(result), broken, here=probe("cpu"))
    assert verdict.outcome == "invalid"
    assert "ZeroDivisionError" in verdict.reason


def test_what_can_be_said_without_a_launch():
    right = waiting(1)
    assert only(lock_for(right), wait).outcome == "not measured"
    outside = only(lock_for(waiting(7)), wait)
    assert outside.outcome == "invalid"
    assert "not in the space" in outside.reason
    changed = only(lock_for(replace(right, key=replace(right.key, identity={"source": "x"}))), wait)
    assert changed.outcome == "unreachable"
    assert "source changed since" in changed.reason
    unknown = only(lock_for(replace(right, key=replace(right.key, kernel="no:where"))), wait)
    assert (unknown.outcome, unknown.failed) == ("not loaded", False)
    elsewhere = replace(right, key=replace(right.key, device={**right.key.device, "name": "MOS 6502"}))
    assert "its device is not here" in only(lock_for(elsewhere), wait, here=probe("cpu")).reason


@operation(
    name="of_two",
    space=lambda problem: {"step": [1, 2] if problem["m"] < 64 else [problem["n"], problem["n"] + 1]},
    arguments=lambda m=4, n=4: {"m": m, "n": n},
)
def of_two(m, n, step):
    return m * n


@pytest.mark.parametrize(("problem", "said"), [({"m": 64}, "KeyError: 'n'"), ({"m": 64, "n": 1}, "not in the space")])
def test_a_problem_that_does_not_fit_its_operation_is_told(problem, said):
    """As after an edit by hand; and the other entries are looked at."""
    entry = record_of(of_two, Problem("of_two", tuple(problem.items())), probe("cpu"), {"step": 7})
    right = record_of(of_two, Problem("of_two", (("m", 4), ("n", 4))), probe("cpu"), {"step": 1})
    result = {each.entry.config["step"]: each for each in verify(lock_for(entry, right), Targets([of_two]), None)}
    assert (result[7].outcome, said in result[7].reason) == ("invalid", True)
    assert result[1].outcome == "not measured"


def test_a_range_at_whose_end_the_operation_has_another_space_is_invalid():
    entry = record_of(of_two, Problem("of_two", (("m", 4), ("n", 4))), probe("cpu"), {"step": 1})
    lock = lock_for(entry, buckets={"m": "measured@16"})
    verdicts = list(verify(lock, Targets([of_two]), probe("cpu"), held_out=3, **QUICK))
    assert [(each.outcome, "is not in the space at m=64" in each.reason) for each in verdicts] == [("invalid", True)]


def test_an_entry_that_another_one_hides_is_unreachable():
    lock = lock_for(waiting(1, n=4))
    (first,) = lock.entries
    alike = [replace(first, problem={"n": n}, ignored=("n",)) for n in (4, 5)]
    outcomes = [each.outcome for each in verify(Lockfile(lock.devices, tuple(alike)), Targets([wait]), None)]
    assert outcomes == ["not measured", "unreachable"]


def test_a_range_is_measured_at_held_out_sizes():
    lock = lock_for(waiting(1, n=4), buckets={"n": "near:4@4"})
    verdicts = list(verify(lock, Targets([wait]), probe("cpu"), held_out=3, most_neighbours=0, **QUICK))
    assert [each.at for each in verdicts] == ["", "n=1", "n=16"]
    assert {each.outcome for each in verdicts} == {"ok"}
    assert [each.regret for each in verdicts] == [0.0, 0.0, 0.0]
    assert all(each.entry == lock.entries[0] for each in verdicts)


@operation(space={"tile": [1, 2, 4]}, arguments=lambda n=10: {"n": n})
def turning(n, tile):
    time.sleep(0.001 if tile == (1 if n < 100 else 4) else 0.02)
    return n


def test_a_config_that_is_no_neighbour_breaks_the_bound_of_a_range():
    problem = Problem(turning.name, (("n", 10),))
    entry = record_of(turning, problem, probe("cpu"), {"tile": 1})
    lock = lock_for(entry, buckets={"n": "upto:100"})
    *_, last = verify(lock, Targets([turning]), probe("cpu"), held_out=2, most_loss=0.1, **QUICK)
    assert (last.at, last.outcome, last.failed) == ("n=100", "slower", True)
    assert "(tile=4) is faster" in last.reason


@operation(space={"tile": list(range(1, 65))}, arguments=lambda n=10: {"n": n})
def of_many(n, tile):
    time.sleep(0.001 if tile == (1 if n < 100 else 50) else 0.01)
    return n


def of_many_at(n, tile):
    return record_of(of_many, Problem(of_many.name, (("n", n),)), probe("cpu"), {"tile": tile}, {"tile": 1})


FEW = {"held_out": 2, "most_neighbours": 2, "most_loss": 0.1}


def test_a_part_of_a_space_of_which_nothing_is_known_tells_nothing_of_held_out_sizes():
    lock = lock_for(of_many_at(10, 1), buckets={"n": "upto:90"})
    verdicts = list(verify(lock, Targets([of_many]), probe("cpu"), **FEW))
    assert [(each.at, each.outcome) for each in verdicts] == [("", "ok"), ("n=1", "not known"), ("n=90", "not known")]
    assert "neither a record nor a model says which others may be faster" in verdicts[-1].reason
    assert _code_of(verdicts, static=False) == 8


def test_what_won_elsewhere_in_a_range_is_measured_at_held_out_sizes(tmp_path):
    lock = lock_for(of_many_at(10, 1), buckets={"n": "upto:100"})
    elsewhere = of_many_at(100, 50)
    store_in(str(tmp_path)).put(elsewhere)
    pinned = Lockfile(lock.devices, (*lock.entries, *lock_for(elsewhere).entries))
    for where in ({"folder": tmp_path}, {}):
        verdicts = list(verify(pinned if not where else lock, Targets([of_many]), probe("cpu"), **FEW, **where))
        last = next(each for each in verdicts if each.at == "n=100")
        assert (last.outcome, "(tile=50) is faster" in last.reason) == ("slower", True)
        assert next(each for each in verdicts if each.at == "n=1").outcome == "ok"


def test_a_leader_that_was_not_reached_makes_an_entry_not_known(tmp_path):
    lock = lock_for(of_many_at(10, 1), buckets={"n": "upto:90"})
    store_in(str(tmp_path)).put(of_many_at(80, 50))
    own, *_ = verify(lock, Targets([of_many]), probe("cpu"), folder=tmp_path, most_neighbours=0, trials=1)
    assert (own.outcome, own.failed) == ("not known", False)


def test_the_finalists_and_the_fastest_trials_of_run_logs_are_leaders(tmp_path):
    @operation(space={"tile": list(range(1, 7))}, arguments=lambda n=4: {"n": n})
    def stepped(n, tile):
        time.sleep(tile / 1000)
        return n

    for n in (4, 50):
        triton_ops.tune(stepped, shape=(n,), device="cpu", effort="exhaustive", cache_dir=tmp_path)
    records = matching(stepped.name, tmp_path)
    lock = lock_for(*(each for each in records if each.key.problem["n"] == 4), buckets={"n": "upto:100"})
    ((_, case),) = bound(lock, Targets([stepped]))
    assert {each["tile"] for each in _leaders(case, lock, tmp_path, records)} >= {2, 3}
    assert _leaders(case, lock, None, []) == []


def same_work(n, tile):
    return n * tile // tile


def test_a_function_with_nothing_beside_it_is_not_known():
    target, config = as_target(same_work), Config(tile=1)
    key = Key.of(Problem(target.name, (("n", 10),)), target.identity, probe("cpu"))
    entry = Record(key=key, winner=config, timing=Timing(1.0, 1.0, 1.0, 3), default=config)
    verdicts = list(verify(lock_for(entry, buckets={"n": "upto:100"}), Targets([same_work]), probe("cpu"), **FEW))
    assert [each.outcome for each in verdicts] == ["not known"] * 3
    assert {each.reason for each in verdicts} == {"nothing was compared with its config"}
    assert _code_of(verdicts, static=False) == 8


def test_a_held_out_size_that_was_not_measured_keeps_no_bound():
    right = Verdict(entry=lock_for(waiting(1)).entries[0], outcome="ok")
    assert _code_of([right, replace(right, outcome="not measured", at="n=9")], static=False) == 8


def test_what_a_range_may_lose_passes_at_held_out_sizes_and_not_at_the_entrys_own():
    lock = lock_for(waiting(30, n=4), buckets={"n": "near:4@4"})
    options = {"held_out": 1, "most_neighbours": 1, "trials": 2, **QUICK}
    own, there = verify(lock, Targets([wait]), probe("cpu"), most_loss=100.0, **options)
    assert [(each.outcome, each.at, each.regret > 1) for each in (own, there)] == [
        ("slower", "", True),
        ("ok", "n=1", True),
    ]
    assert "is faster by" in there.reason


def test_a_config_must_be_valid_at_both_ends_of_a_range():
    def space(problem):
        return ConfigSpace({"ms": [1], "other": [1]}, [Constraint("small", lambda ms: problem["n"] < 16, "n is large")])

    narrow = Operation(wait.name, wait.kernel, space, lambda n=4: {"n": n})
    result = only(lock_for(waiting(1, n=4), buckets={"n": "near:4@4"}), narrow)
    assert result.outcome == "invalid"
    assert "not in the space at n=16" in result.reason


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_a_decorated_kernel_is_compiled_from_the_classes_of_its_arguments():
    triton = pytest.importorskip("triton")
    torch = pytest.importorskip("torch")
    from tests.launches import launches_that_do_nothing
    from tests.tuned_kernels import add

    configs = [triton.Config({"BLOCK": size}, num_warps=4) for size in (128, 256)]
    kernel = triton_ops.autotune(configs, ["n"], on_miss="default")(add)
    with launches_that_do_nothing():
        key = kernel.why(*(torch.zeros(1024) for _ in range(3)), 1024).key
    assert key.problem["x_ptr:class"] == "aligned"
    result = Record(
        key=replace(key, device=Key.facts_of(H200)), winner=Config(BLOCK=256, num_warps=4, num_stages=3),
        timing=Timing(1.0, 1.0, 1.0, 3),
    )  # fmt: skip
    done = prepare(lock_for(result), targets=[kernel], alias="nvidia-h200", jobs=1)
    assert (done.compiled, done.failed) == (1, ())
    outside = replace(result, winner=Config(BLOCK=512, num_warps=4, num_stages=3))
    assert "not in the space" in prepare(lock_for(outside), targets=[kernel], alias="nvidia-h200").failed[0][1]


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_decorated_kernels_of_a_module_are_verified_by_name(tmp_path, capsys):
    """Also those below heuristics, and those of Triton's own decorator, which are tuned under `install`."""
    torch = pytest.importorskip("torch")
    from tests import decorated_kernels
    from tests.launches import launches_that_do_nothing

    x = torch.zeros(256)
    calls = {"add": (x, x, x, 256), "scale": (x, x, 256, 1.5, "a", True), "theirs": (x, x, 256)}
    records = []
    for name, args in calls.items():
        given = getattr(decorated_kernels, name)
        tuned = given.fn if name == "scale" else given
        names = [each for each in tuned.arg_names if each != "BLOCK"]
        with launches_that_do_nothing():
            if name == "theirs":
                tuned = triton_ops.autotune(tuned.configs, ["n"])(tuned.fn)
            key = tuned.why(**dict(zip(names, args, strict=True))).key
        winner = Config(BLOCK=64, num_warps=4, **({} if name == "scale" else {"num_stages": 3}))
        records.append(Record(key=replace(key, device=Key.facts_of(H200)), winner=winner, timing=Timing(1, 1, 1, 3)))
    lock_for(*records).write(tmp_path / "lock.json")
    assert main(["lock", "verify", str(tmp_path / "lock.json"), "--static", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["items"]
    assert [each["entry"]["kernel"] for each in told] == [f"tests.decorated_kernels:{name}" for name in calls]
    assert {each["outcome"] for each in told} == {"not measured"}
    assert type(decorated_kernels.theirs.cache) is dict


@pytest.mark.processes
def test_programs_are_loaded_on_the_gpu_that_is_named(monkeypatch):
    triton = pytest.importorskip("triton")
    torch = pytest.importorskip("torch")
    from tests.launches import launches_that_do_nothing
    from tests.tuned_kernels import fill
    from triton_ops.ship import preparing as module

    @contextmanager
    def device(name):
        before, launched.device = launched.device, int(name.partition(":")[2])
        yield
        launched.device = before

    monkeypatch.setattr(module, "probe", lambda name: H200)
    monkeypatch.setattr(torch.cuda, "device", device)
    kernel = triton_ops.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32})], ["n"])(fill)
    fill.device_caches.clear()
    with launches_that_do_nothing() as launched:
        key = kernel.why(torch.zeros(1024), 1024).key
        result = Record(
            key=replace(key, device=Key.facts_of(H200)), winner=Config(BLOCK=32, num_warps=4, num_stages=3),
            timing=Timing(1.0, 1.0, 1.0, 3),
        )  # fmt: skip
        for name in ("cuda:1", "cuda:2"):
            done = prepare(lock_for(result), targets=[kernel], device=name, jobs=1)
            assert (done.compiled, done.loaded, done.failed) == (1, 1, ())
    assert [number for number, cached in fill.device_caches.items() if cached[0]] == [1, 2]


def test_what_has_nothing_to_compile_is_ready():
    done = prepare(lock_for(waiting(1)), targets=[wait], device="cpu")
    assert (done.compiled, done.nothing_to_compile, done.failed) == (0, 1, ())
    outside = prepare(lock_for(waiting(7)), targets=[wait], device="cpu")
    assert "not in the space" in outside.failed[0][1]
    assert "1 failed" in str(outside)


def test_a_range_is_compiled_for_each_kind_of_number_in_it():
    def kinds(low, high):
        tensor = {"shape": [low, 64], "dtype": "float16", "stride": [64, 1], "aligned": True}
        problems = specialised({"x": tensor, "M": low}, [Range(("M", "x[0]"), low, high)])
        return [(problem["M"], problem["x"]["shape"][0]) for problem in problems]

    assert kinds(1, 64) == [(1, 1), (2, 2), (16, 16)]
    assert kinds(17, 31) == [(17, 17)]
    assert kinds(16, 16) == [(16, 16)]
    assert kinds(32, 64) == [(32, 32), (33, 33)]


def test_a_problem_of_a_decorated_kernel_has_stand_ins_by_class():
    problem = {
        "x": "float16", "x:class": "not aligned", "n": 4096, "stride:class": "1", "m:class": "no multiple of 16",
        "k:class": "a multiple of 16 of 64 bits", "FLAG:class": True, "eps": "float", "none": "NoneType",
    }  # fmt: skip
    made = stand_ins(problem).keyword
    assert (made["x"].dtype, made["x"].data_ptr() % 16 != 0) == ("float16", True)
    assert {name: made[name] for name in ("n", "stride", "m", "FLAG", "none")} == {
        "n": 4096, "stride": 1, "m": 17, "FLAG": True, "none": None,
    }  # fmt: skip
    assert made["k"] > 1 << 31
    assert made["k"] % 16 == 0
    with pytest.raises(KernelTypeError, match="no known dtype"):
        stand_ins({"x:class": "aligned"})
    numbers = [stand_ins({"n": number}).keyword["n"] for number in (32, 48)]
    assert len({kind_of(number, exact=False) for number in numbers}) == 1
    assert len({kind_of(number, exact=True) for number in numbers}) == 2


def test_specs_are_made_into_stand_ins():
    made = stand_ins({"x": {"shape": [4], "dtype": "float32", "stride": [1], "aligned": True}}).keyword["x"]
    assert (made.shape, made.dtype) == ((4,), TensorSpec((4,), "float32").dtype)


WORK = """
from triton_ops import operation

@operation(space={"step": [1, 2]}, arguments=lambda n=64: {"n": n})
def add_up(n, step):
    return sum(sum(range(at, n, step)) for at in range(step))
"""


def test_the_command_tells_each_entry_and_exits_by_the_worst(tmp_path, capsys, monkeypatch, steady_clock):
    (tmp_path / "locked_work.py").write_text(WORK)
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "locked_work.py:add_up", "--device", "cpu", "--cache-dir", "cache"]) == 0
    assert main(["lock", "--cache-dir", "cache"]) == 0
    path = "triton-ops.lock.json"
    capsys.readouterr()
    assert main(["lock", "verify", path, "--target", "locked_work.py:add_up", "--device", "cpu"]) == 0
    assert "1 entry: 1 ok" in capsys.readouterr().out
    assert main(["lock", "verify", path, "--static", "--json", "--target", "locked_work.py:add_up"]) == 0
    assert json.loads(capsys.readouterr().out)["items"][0]["outcome"] == "not measured"
    (tmp_path / "locked_work.py").write_text(WORK.replace("range(at", "range(0 + at"))
    sys.modules.pop("locked_work")
    assert main(["lock", "verify", path, "--static", "--target", "locked_work.py:add_up"]) == 5
    assert "source changed since" in " ".join(capsys.readouterr().out.split())
    sys.modules.pop("locked_work")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["lock", "verify", "none.json"], 4, "cannot be read"),
        (["lock", "verify", "lock.json", "--neighbours", "-1"], 2, "--neighbours is -1"),
        (["lock", "verify", "lock.json", "--bound", "nan"], 2, "--bound is nan"),
        (["lock", "verify", "lock.json", "--static", "--kernel", "nothing"], 2, "has no entry of nothing"),
        (["lock", "verify", "lock.json", "--device", "cpu"], 3, "no entry could be measured"),
        (["lock", "verify", "lock.json", "--kernels", "string"], 2, "string declares no kernel"),
    ],
)
def test_what_cannot_be_verified_is_told(tmp_path, capsys, monkeypatch, words, code, said):
    monkeypatch.chdir(tmp_path)
    (entry,) = lock_for(waiting(1)).entries
    lock = lock_for(waiting(1))
    device = replace(lock.devices[0], name="MOS 6502")
    monkeypatch.setitem(sys.modules, "tests.cpu.ship.test_serving", sys.modules[__name__])
    shipped: LockEntry = replace(entry, kernel=wait.name)
    Lockfile((device,), (shipped,)).write("lock.json")
    assert main(words) == code
    assert said in capsys.readouterr().err


INTERRUPTED = """
from triton_ops import operation

@operation(space={"step": [1, 2]}, arguments=lambda n=1: {"n": n})
def add_up(n, step):
    if n == 2:
        raise KeyboardInterrupt
    return sum(range(1000))
"""


def test_an_interrupted_check_says_what_it_has_measured(tmp_path, capsys, monkeypatch, steady_clock):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "interrupted_work.py").write_text(INTERRUPTED)
    entries = tuple(
        LockEntry(kernel="interrupted_work:add_up", device="cpu", problem={"n": n}, config=Config(step=1), label=label)
        for n, label in ((1, "n=1"), (2, "n=2"))
    )
    device = LockedDevice(alias="cpu", kind="cpu", name=probe("cpu").name)
    Lockfile((device,), entries).write("lock.json")
    words = ["lock", "verify", "lock.json", "--target", "interrupted_work.py:add_up", "--device", "cpu"]
    assert main(words) == 130
    said = capsys.readouterr()
    assert ("n=1" in said.out, "n=2" in said.out, "1 entry: 1 ok" in said.out) == (True, False, True)
    assert "interrupted: these are the verdicts so far" in said.err


def test_a_missing_lockfile_is_said_with_where_it_was_looked_for_and_the_next_step(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["lock", "verify"], ["lock", "--check"], ["lock", "--refresh"]):
        assert main(words) == 4
        said = capsys.readouterr().err
        assert f"triton-ops.lock.json: it cannot be read: {tmp_path} has no such file" in said
        assert "`triton-ops lock` writes one" in said
