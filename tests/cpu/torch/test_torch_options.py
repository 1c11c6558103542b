"""The options of a comparison of compile modes are those of a tune."""

from __future__ import annotations

import pytest

from tests.cpu.request.test_options import DEFAULTS, PROBLEM, parameters
from triton_ops import autotune, install, tune, tune_compile, tune_many
from triton_ops.cli.tune import tune_command
from triton_ops.records import recall

OPPOSITES = {"transfer", "wait"}
OWN = {
    tune_compile: {"budget_s"},
    tune_many: {"budget_s"},
    tune_command: {"device", "shape", "dtype", "space", *OPPOSITES},
}


@pytest.mark.parametrize("door", [tune, tune_many, autotune, install, recall, tune_compile, tune_command])
def test_a_door_has_the_names_and_defaults_of_the_value(door):
    shared = {name: value for name, value in parameters(door).items() if name not in OWN.get(door, ())}
    known = {**PROBLEM, **DEFAULTS}
    assert {name: value for name, value in shared.items() if name in known} == {
        name: value for name, value in known.items() if name in shared
    }
