"""Shipped kernels that a lockfile names, prepared ahead and found by name."""

import sys
from dataclasses import replace

import pytest

from tests.cpu.ship.test_serving import H200, lock_for, record_of, wait, waiting
from triton_ops.exceptions import DeviceError, NotLoadedError, TargetError
from triton_ops.ship import prepare
from triton_ops.ship.targets import Targets
from triton_ops.ship.verification import verify
from triton_ops_kernels import load


def softmax(rows, columns, **config):
    shipped = load("softmax")
    problem = shipped.problem((rows, columns), "float16")
    return record_of(shipped, problem, H200, {**shipped.space_for(problem).default_config, **config})


@pytest.mark.triton
@pytest.mark.usefixtures("shared_fork_server")
def test_the_programs_of_a_device_that_is_not_here_are_compiled(tmp_path):
    pytest.importorskip("triton")
    lock = lock_for(softmax(64, 512), softmax(128, 512), waiting(1))
    done = prepare(lock, targets=[wait], alias="nvidia-h200", jobs=1)
    assert (done.failed, done.loaded, done.elsewhere, done.nothing_to_compile) == ((), 0, 1, 0)
    assert done.compiled >= 1
    assert {each.outcome for each in verify(lock, Targets([wait]), None)} == {"not measured"}
    with pytest.raises(DeviceError, match="no device 'b200'"):
        prepare(lock, alias="b200")


@pytest.mark.triton
def test_a_program_of_a_gpu_whose_architecture_nobody_knows_is_invalid():
    pytest.importorskip("triton")
    lock = lock_for(softmax(64, 512))
    unknown = replace(lock.devices[0], name="a GPU of tomorrow", arch=None)
    (verdict,) = verify(replace(lock, devices=(unknown,)), Targets(), None)
    assert verdict.outcome == "invalid"
    assert "target 'cuda' is not known" in verdict.reason


def test_targets_are_found_by_name_and_nothing_is_imported_for_a_file():
    assert Targets().find("softmax").name == "softmax"
    assert Targets([wait]).find(wait.name) is wait
    assert Targets().decorated("softmax") is load("softmax")
    with pytest.raises(NotLoadedError, match="antigravity:fly is not loaded"):
        Targets().find("antigravity:fly")
    assert "antigravity" not in sys.modules
    with pytest.raises(TargetError, match="two targets are called"):
        Targets([wait, wait])
