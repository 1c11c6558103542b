"""A noted call as the TARGET of several commands."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
from triton_ops.cli.app import main
from triton_ops.records import store_in
from triton_ops.records.misses import Harvest

pytestmark = pytest.mark.triton
from tests.cpu.dispatch.test_noted import called, steady  # noqa: E402


@steady()
def as_target(name, folder):
    """Note the miss of a call, and name the kernel on the command line; tells what each command says."""
    from triton_ops import install
    from triton_ops.dispatch.noted import launches_of

    kernel, given, grid = called(name, 100)
    with install(on_miss="default"):
        call = launches_of(kernel).call_of(grid, (), given)
    harvest = Harvest(Path(folder))
    harvest.note(call.key, None, call.noted)
    harvest.flush()
    with mock.patch.dict(os.environ, {"TRITON_OPS_CACHE_DIR": folder}):
        return told_of(f"tests.decorated_kernels:{name}", folder), store_in(folder).get(call.key.id) is not None


def told_of(target, folder):
    """What commands say of a TARGET, by the name of each."""
    told = {}
    for words in (
        ["tune", target],
        ["why", target],
        ["record", target, "--out", f"{folder}/x.json.gz", "--passes", "1"],
    ):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            assert main([*words, "--json"]) == 0, words
        told[words[0]] = json.loads(text.getvalue())
    return told


@pytest.mark.parametrize("name", ["add", "theirs"])
def test_a_kernel_under_a_decorator_is_a_target_at_the_call_that_was_noted(name, interpreted, tmp_path):
    told, known = interpreted(as_target, name, str(tmp_path))
    assert known
    assert {each["config"]["BLOCK"] for each in told["tune"]["trials"]} == {64, 128}
    assert told["why"]["rung"] == "record"
    assert told["record"]["configs"] == 2
