"""What nothing answered is listed, tuned and taken off the list; what cannot be tuned here is told, and stays."""

import json
import sys
from dataclasses import replace

import pytest

from triton_ops.cli.app import main
from triton_ops.device import DeviceSpec, TorchDevice
from triton_ops.records import Misses
from triton_ops.records.misses import Harvest
from triton_ops.request import TuneProblem
from triton_ops.typed import TypedTarget
from triton_ops.values import Key

WORK = """
import os, signal
from triton_ops import operation

presses = []

@operation(space={"step": [1, 2]}, arguments=lambda n=64: {"n": n})
def add_up(n, step):
    return sum(sum(range(at, n, step)) for at in range(step))

@operation(space={"step": [1, 2]}, arguments=lambda n=64: {"n": n})
def stopped(n, step):
    if not presses:
        presses.append("Ctrl-C")
        os.kill(os.getpid(), signal.SIGINT)
    return n
"""


@pytest.fixture
def keys(tmp_path, monkeypatch, steady_clock):
    """Keys of an operation that is found by its name in records."""
    (tmp_path / "missed_work.py").write_text(WORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "missed_work", raising=False)

    def key(n, name="add_up"):
        target = TypedTarget(f"missed_work:{name}").load()
        request = TuneProblem(target=target, kwargs={"n": n}, device="cpu").request()
        return Key.of(request.problem, request.kernel.identity, request.device)

    yield key
    sys.modules.pop("missed_work", None)


def note(tmp_path, *keys):
    harvest = Harvest(tmp_path / "cache")
    for key, count, expected_ms in keys:
        for _ in range(count):
            harvest.note(key, expected_ms)
    harvest.flush()


def test_misses_are_tuned_in_the_order_of_their_cost_and_taken_off_the_list(tmp_path, keys, capsys):
    elsewhere = replace(keys(8), device={**keys(8).device, "name": "MOS 6502"})
    unknown = replace(keys(8), kernel="nowhere:kernel")
    note(tmp_path, (keys(8), 1, 0.1), (keys(64), 3, 0.1), (elsewhere, 1, 9.0), (unknown, 1, 8.0))

    assert main(["tune", "--from-misses", "--kernels", "missed_work", "--json"]) == 6
    served = json.loads(capsys.readouterr().out)["items"]
    assert [each["key"]["problem"] for each in served] == [{"n": 8}, {"n": 8}, {"n": 64}, {"n": 8}]
    assert [each["stored"] for each in served] == [False, False, True, True]
    assert "MOS 6502" in served[0]["reason"]
    assert "nowhere:kernel is not loaded; loaded are missed_work:add_up" in served[1]["reason"]
    assert [each["outcome"] for each in served] == ["not tuned", "not loaded", "tuned", "tuned"]
    assert {miss.key.id for miss in Misses(tmp_path / "cache").read()} == {elsewhere.id, unknown.id}

    assert main(["cache", "show", "--json"]) == 0
    assert {record["id"] for record in json.loads(capsys.readouterr().out)["items"]} == {keys(8).id, keys(64).id}


def test_a_target_and_a_number_restrict_what_is_tuned(tmp_path, keys, capsys):
    note(tmp_path, (keys(8), 1, None), (keys(64), 3, None), (replace(keys(8), kernel="other:kernel"), 9, None))
    assert main(["tune", "missed_work:add_up", "--from-misses", "--most", "1"]) == 0
    assert "add_up" in capsys.readouterr().out
    assert sorted(miss.count for miss in Misses(tmp_path / "cache").read()) == [1, 9]


def test_where_nothing_can_be_tuned_the_exit_code_says_so(tmp_path, keys, capsys):
    note(tmp_path, (replace(keys(8), device={**keys(8).device, "name": "MOS 6502"}), 1, None))
    assert main(["tune", "--from-misses"]) == 1
    assert "not tuned: it was missed on MOS 6502" in " ".join(capsys.readouterr().out.split())


def test_a_miss_of_a_gpu_is_not_tuned_where_there_is_none(tmp_path, keys, capsys, monkeypatch):
    monkeypatch.setattr("triton_ops.ship.command_loading.gpu_missing", lambda: "no driver")
    note(tmp_path, (replace(keys(8), device={**keys(8).device, "kind": "cuda", "name": "H200"}), 1, None))
    assert main(["tune", "--from-misses", "--json"]) == 1
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert "it was missed on H200, and there is no GPU here: no driver" in item["reason"]
    assert len(Misses(tmp_path / "cache").read()) == 1


def test_a_list_without_misses_is_told_with_its_folder(tmp_path, keys, capsys):
    assert main(["tune", "--from-misses"]) == 0
    assert f"there are no misses in {tmp_path / 'cache'}" in " ".join(capsys.readouterr().err.split())
    note(tmp_path, (replace(keys(8), kernel="other:kernel"), 1, None))
    assert main(["tune", "missed_work:add_up", "--from-misses"]) == 0
    assert f"there are no misses of missed_work:add_up in {tmp_path}" in " ".join(capsys.readouterr().err.split())


def test_misses_that_ctrl_c_leaves_stay_for_the_same_command(tmp_path, keys, capsys):
    note(tmp_path, (keys(8, "stopped"), 1, None))
    assert main(["tune", "missed_work:stopped", "--from-misses", "--json"]) == 130
    out, err = capsys.readouterr()
    (item,) = json.loads(out)["items"]
    assert (item["stored"], item["reason"]) == (False, "it was interrupted")
    assert "interrupted: the same command goes on where it stopped" in err
    assert len(Misses(tmp_path / "cache").read()) == 1


@pytest.mark.processes
def test_misses_of_the_cpu_are_tuned_beside_the_gpus_of_a_run(tmp_path, keys, capsys, monkeypatch):
    two = tuple(DeviceSpec(kind="cuda", name="H200", arch="sm_90", units=132) for _ in range(2))
    monkeypatch.setattr(TorchDevice, "gpus", lambda: two)
    note(tmp_path, (keys(8), 1, None))
    assert main(["tune", "--from-misses", "--gpus", "all", "--json"]) == 0
    (served,) = json.loads(capsys.readouterr().out)["items"]
    assert served["stored"]


def test_misses_are_listed_and_cleared(tmp_path, keys, capsys):
    assert main(["cache", "misses"]) == 0
    assert "there are no misses" in capsys.readouterr().err
    note(tmp_path, (keys(8), 2, 0.25))
    assert main(["cache", "misses", "--clear"]) == 0
    shown = capsys.readouterr()
    assert "missed_work:add_up" in shown.out
    assert "1 removed" in shown.err
    assert main(["cache", "misses", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tune"], "Missing argument 'TARGET'"),
        (["tune", "x:y", "--most", "3"], "--most is for --from-misses"),
        (["tune", "x:y", "--kernels", "z.py"], "--kernels is for --problems and --from-misses"),
        (["tune", "--all", "--kernels", "z.py"], "--kernels and --all do not go together"),
        (["tune", "--from-misses", "--shape", "3"], "--shape and --from-misses"),
        (["tune", "--from-misses", "--most", "0"], "--most is 0"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments, said, capsys):
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_a_miss_whose_tune_decided_nothing_stays_until_one_that_goes_on_has_decided(tmp_path, keys, capsys):
    note(tmp_path, (keys(8), 1, 0.1))
    listed = []
    for _ in range(2):
        assert main(["tune", "missed_work:add_up", "--from-misses", "--trials", "1"]) == 0
        listed.append((len(Misses(tmp_path / "cache").read()), "unproven" in capsys.readouterr().out))
    assert listed == [(1, True), (0, False)]
