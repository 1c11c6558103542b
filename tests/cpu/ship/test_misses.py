"""Misses of a cache folder are tuned on the device that each is of; what cannot be tuned here stays, and is told."""

import json
import os
import signal
from dataclasses import replace

import pytest

from triton_ops import operation
from triton_ops.cli.app import main
from triton_ops.records import Misses, store_in
from triton_ops.records.misses import Harvest
from triton_ops.request import TuneProblem
from triton_ops.values import Key


@operation(space={"step": [1, 2]}, arguments=lambda n=64: {"n": n}, device="cpu")
def add_up(n, step):
    return sum(sum(range(at, n, step)) for at in range(step))


@operation(space={"step": [1, 2]}, arguments=lambda n=64: {"n": n}, device="cpu")
def stopped(n, step):
    if not presses:
        presses.append("Ctrl-C")
        os.kill(os.getpid(), signal.SIGINT)
    return n


def key_of(target, n):
    request = TuneProblem(target=target, kwargs={"n": n}, device="cpu").request()
    return Key.of(request.problem, request.kernel.identity, request.device)


presses = []
HERE = key_of(add_up, 8)
ELSEWHERE = replace(HERE, device={**HERE.device, "name": "MOS 6502"})
ON_A_GPU = replace(HERE, device={**HERE.device, "kind": "cuda", "name": "H200"})
NOWHERE = replace(HERE, kernel="nowhere:kernel")


@pytest.fixture
def tuned(tmp_path, capsys, steady_clock):
    """Tunes misses, and gives the exit code with what the command prints and tells."""

    def tuned(*keys, words=("--kernels", __name__)):
        harvest = Harvest(tmp_path)
        for key in keys:
            harvest.note(key, None)
        harvest.flush()
        code = main(["tune", *words, "--from-misses", "--json", "--cache-dir", str(tmp_path)])
        out, err = capsys.readouterr()
        return code, {item["id"]: item for item in json.loads(out)["items"]}, err

    return tuned


def left(folder):
    return {miss.key.id for miss in Misses(folder).read()}


def test_a_miss_of_this_machine_is_tuned_and_taken_off_the_list(tuned, tmp_path):
    code, items, _ = tuned(HERE)
    assert (code, items[HERE.id]["outcome"], items[HERE.id]["stored"]) == (0, "tuned", True)
    assert [record.id for record in store_in(str(tmp_path))] == [HERE.id]
    assert left(tmp_path) == set()


@pytest.mark.parametrize(
    ("key", "code", "outcome", "said"),
    [
        (ELSEWHERE, 1, "not tuned", "it is of MOS 6502, and this machine has "),
        (NOWHERE, 6, "not loaded", "nowhere:kernel is not loaded"),
    ],
)
def test_a_miss_that_cannot_be_tuned_here_stays_with_the_reason(tuned, tmp_path, key, code, outcome, said):
    alone = tuned(key)
    assert (alone[0], alone[1][key.id]["outcome"]) == (code, outcome)
    assert said in alone[1][key.id]["reason"]
    beside = tuned(HERE)
    assert beside[0] == (6 if code == 6 else 0)
    assert left(tmp_path) == {key.id}


def test_a_miss_of_a_gpu_is_not_tuned_where_there_is_none(tuned, tmp_path, monkeypatch):
    monkeypatch.setattr("triton_ops.ship.command_loading.gpu_missing", lambda: "no driver")
    code, items, _ = tuned(ON_A_GPU)
    assert code == 1
    assert "it is of H200, and there is no GPU here: no driver" in items[ON_A_GPU.id]["reason"]
    assert left(tmp_path) == {ON_A_GPU.id}


def test_a_list_without_misses_is_told_with_its_folder(tuned, tmp_path):
    code, items, err = tuned()
    assert (code, items) == (0, {})
    assert f"there are no misses in {tmp_path}" in " ".join(err.split())
    _, _, err = tuned(NOWHERE, words=[f"{__name__}:add_up"])
    assert f"there are no misses of {add_up.name} in {tmp_path}" in " ".join(err.split())


def test_misses_that_ctrl_c_leaves_stay_for_the_same_command(tuned, tmp_path):
    presses.clear()
    key = key_of(stopped, 8)
    code, items, err = tuned(key)
    assert (code, items[key.id]["stored"], items[key.id]["reason"]) == (130, False, "it was interrupted")
    assert "interrupted: the same command goes on where it stopped" in err
    assert left(tmp_path) == {key.id}
