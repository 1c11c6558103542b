"""`lock --expected`: entries for a GPU that is not here, which a model is sure of and nobody has measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests import inferred_kernels as kernels  # noqa: E402
from triton_ops import Config, Operation, TensorSpec, autotune, on_miss, replaying  # noqa: E402
from triton_ops.backend import TritonKernel  # noqa: E402
from triton_ops.cli.app import main  # noqa: E402
from triton_ops.cli.lock_changes import changes  # noqa: E402
from triton_ops.device import DeviceSpec  # noqa: E402
from triton_ops.dispatch import deciding, operations, would_run  # noqa: E402
from triton_ops.dispatch.operations import decided  # noqa: E402
from triton_ops.exceptions import SettingsError, UntunedError  # noqa: E402
from triton_ops.records import Lockfile, Misses, Record, Timing, lock_of  # noqa: E402
from triton_ops.records.misses import flush_misses  # noqa: E402
from triton_ops.records.pinning import updated  # noqa: E402
from triton_ops.request import TuneProblem, request  # noqa: E402
from triton_ops.ship.table import Names, Table  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]

HERE = DeviceSpec.named("NVIDIA H200")
SLOW, FAST = Config(BLOCK=32, num_warps=1), Config(BLOCK=1024, num_warps=1)  # 32 turns of a loop, and one
KERNEL = TritonKernel(kernels.chunked_norm, lambda _: (4096,))


def arguments(rows=4096, columns=1024, *, dtype="bfloat16"):
    x = TensorSpec((rows, columns), dtype)
    return {"x": x, "y": x, "columns": columns, "eps": 1e-5}


def operation(name, *blocks):
    space = {"BLOCK": list(blocks), "num_warps": [1]}
    problems = {"rows": ((4096, 1024), "bfloat16")}
    return Operation(name, KERNEL, space, arguments, dtypes=("bfloat16",), problems=problems)


norm, sure_of_nothing = operation("norm", 32, 1024), operation("sure_of_nothing", 1024, 32)
decorated = autotune([triton.Config({"BLOCK": block}, num_warps=1) for block in (32, 1024)], key=["columns"])(
    kernels.chunked_norm
)


def tensors():
    x = torch.empty(4096, 1024, dtype=torch.bfloat16)
    return {"x": x, "y": x, "columns": 1024, "eps": 1e-5}


@pytest.fixture
def lock_it(monkeypatch, tmp_path, capsys):
    """A lockfile of this test, and the command that writes it; a GPU that is not here answers to its name."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    monkeypatch.setattr(request, "probe", lambda _: HERE)
    monkeypatch.setattr(request, "gpu_missing", lambda: "")
    path = tmp_path / "lock.json"

    def command(*words):
        code = main(["lock", *words, "--lockfile", str(path), "--cache-dir", str(tmp_path)])
        return code, *capsys.readouterr()

    return path, command


@pytest.mark.parametrize("gpu", ["a10", "rtx 4090", "b200", "rtx 5090"])
def test_the_entry_of_a_device_without_recordings_and_the_reason_of_its_launches_say_so(lock_it, monkeypatch, gpu):
    path, command = lock_it
    spec = DeviceSpec.called(gpu)
    assert command("--expected", "--gpu", gpu, "--kernels", f"{__name__}:norm")[0] == 0
    (entry,) = Lockfile.read(path).entries
    assert entry.config == FAST
    assert entry.origin.source.endswith(" (unseen: no recording of this device stands behind its figures)")
    monkeypatch.setattr(request, "probe", lambda _: spec)
    answer = would_run(norm, device="cuda", lockfile=Lockfile.read(path), cache_dir=path.parent)
    assert (answer.found.rung, "unseen: no recording" in answer.found.why) == ("expected", True)


def for_h200(name):
    return ("--expected", "--gpu", "h200", "--kernels", f"{__name__}:{name}")


def test_an_entry_of_what_is_expected_is_marked_and_answers_before_the_default_alone(lock_it, tmp_path, monkeypatch):
    path, command = lock_it
    code, out, _ = command(*for_h200("norm"))
    assert (code, out.splitlines()[0]) == (0, f"added: norm 4096x1024 bfloat16 on nvidia-h200; ({FAST})")
    lock = Lockfile.read(path)
    (entry,) = lock.entries
    assert (entry.config, entry.default, entry.measured, entry.origin.driver) == (FAST, SLOW, None, None)
    assert entry.origin.source.startswith("expected: a model of the work, which expects ")
    assert "unseen" not in entry.origin.source
    answer = would_run(norm, device="cuda", lockfile=lock, cache_dir=tmp_path)
    assert (answer.found.rung, answer.found.config) == ("expected", FAST)
    assert answer.found.why.startswith(f"lockfile, exact: ({FAST}) expected for 4096x1024 bfloat16; a model of the wo")
    for policy in ("tune", "race", "error"):
        with on_miss(policy):
            assert would_run(norm, device="cuda", lockfile=lock, cache_dir=tmp_path).missed
    with replaying(lock):
        decision = decided(norm, tensors(), options={"cache_dir": tmp_path})
        assert (decision.found.rung, decision.holds) == ("expected", True)
        with on_miss("error"):
            assert not decision.holds
    with replaying(lock, on_miss="error"), pytest.raises(UntunedError, match="expected, and nobody has measured it"):
        decided(norm, tensors(), options={"cache_dir": tmp_path})
    with replaying(lock), monkeypatch.context() as captured:
        captured.setattr(operations, "capturing", lambda: True)
        assert decided(norm, tensors(), options={"cache_dir": tmp_path}).missed
    flush_misses()
    (miss,) = Misses(tmp_path).read()  # it is still to be tuned
    assert (miss.key.kernel, miss.count) == ("norm", 2)


def measured(winner=SLOW):
    key = TuneProblem(target=norm).request("cuda:0").key
    return Record(key=key, winner=winner, default=SLOW, timing=Timing(1.0, 1.0, 1.0, 3), created="2026-01-01")


def test_what_is_measured_takes_the_place_of_what_is_expected_and_is_left_in_its_own(lock_it):
    path, command = lock_it
    command(*for_h200("norm"))
    expected = Lockfile.read(path)
    lock, _ = lock_of([measured()])
    (change,) = changes(expected, lock_of([measured(FAST)])[0])
    assert change.fields == ("expected: True | False",)
    with pytest.raises(SettingsError, match="the lockfile has no entry of norm"):
        Table.of_lockfile(expected, "norm", None, Names(), {}, {})
    after = updated(expected, lock)
    assert [(each.config, each.origin.source) for each in after.entries] == [(SLOW, "record")]
    wide = replace(lock.entries[0], ignored=("eps",))
    assert replace(lock, entries=(*expected.entries, wide)).find(measured().key).entry == wide
    after.write(path)
    code, out, _ = command(*for_h200("norm"))
    assert (code, out) == (0, f"{path}: 1 entry, no change\n")


def test_a_check_refuses_what_is_only_expected(lock_it):
    path, command = lock_it
    command(*for_h200("norm"))
    code, out, _ = command("--check", "--measured-only")
    assert (code, out.splitlines()[0]) == (5, f"removed: norm 4096x1024 bfloat16 on nvidia-h200; ({FAST})")
    assert command("--measured-only")[0] == 0
    assert Lockfile.read(path) == Lockfile()
    assert command("--check", "--measured-only")[0] == 0


def test_where_the_model_is_not_sure_there_is_no_entry_and_the_reason_is_told(lock_it):
    path, command = lock_it
    code, out, error = command(*for_h200("sure_of_nothing"))
    assert (code, out) == (0, f"{path}: 0 entries, no change\n")
    assert error.startswith("note: no config of sure_of_nothing 4096x1024 bfloat16 is expected to be faster than the d")


def test_a_problem_that_was_missed_is_looked_at_too_by_the_call_that_is_noted(lock_it, tmp_path, monkeypatch):
    path, command = lock_it
    call = decorated.launches.call_of((4096,), (), tensors())
    Misses(tmp_path).note(call.key, call=call.noted)
    flush_misses()
    code, _, error = command(*for_h200("decorated"))
    assert (code, error) == (0, "")
    (entry,) = Lockfile.read(path).entries
    assert (entry.config["BLOCK"], entry.default["BLOCK"], entry.call) == (1024, 32, call.noted)
    with replaying(path):
        decision = decorated.why(grid=(4096,), **tensors())
        monkeypatch.setattr(deciding, "capturing", lambda: True)
        assert decorated.why(grid=(4096,), **tensors()).missed
    assert (decision.found.rung, decision.config.kwargs) == ("expected", {"BLOCK": 1024})


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--expected",), 2, "--expected needs --gpu"),
        (("--expected", "--gpu", "h200", "--measured-only"), 2, "excludes --measured-only"),
        (("--kernels", "softmax"), 2, "--kernels is for --expected"),
        (("--expected", "--gpu", "h2000"), 3, "no device 'h2000' is in the table"),
        (("--expected", "--gpu", "v100"), 3, "the model does not know the architecture sm_70 of Tesla V100-SXM2-32GB"),
        (("--expected", "--gpu", "h200"), 4, "no problem is known: none is in the lockfile, in records or missed"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(lock_it, words, code, said):
    path, command = lock_it
    result, _, error = command(*words)
    assert (result, said in error, path.exists()) == (code, True, False)
