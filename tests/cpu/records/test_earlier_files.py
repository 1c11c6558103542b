"""Records, run logs, misses and a lockfile that the code of 778696e8 wrote are read and recalled."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton")

from tests.data.earlier import kernels
from triton_ops import FunctionKernel, TritonKernel, recall, tune
from triton_ops.backend import Source
from triton_ops.cli.app import main
from triton_ops.records import Lockfile, Misses, Run, store_in
from triton_ops.report.run_choice import run_named
from triton_ops.request import TuneProblem
from triton_ops.values import Key

DATA = Path(kernels.__file__).parent
WINNERS = {
    "tests.data.earlier.kernels:column_sums": {"step": 16},
    "tests.data.earlier.kernels:product": {"tile": 64},
    "tests.data.earlier.kernels:scaled_by": {"step": 64},
    "tests.data.earlier.kernels:halved": {"BLOCK": 256, "num_warps": 4, "num_stages": 3},
    "doubled": {"BLOCK": 512},
    "row sums": {"implementation": "sum"},
}
SPACE = {"tile": [1, 8, 64]}


def factors():
    return np.arange(64 * 32.0).reshape(64, 32), np.ones((32, 8))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of records, run logs and misses, as the environment names it."""
    shutil.copytree(DATA / "cache", tmp_path / "cache")
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@contextlib.contextmanager
def same_machine():
    """Versions and device as they were: what is read of kernels and arguments is left as it is."""
    entries = Lockfile.read(DATA / "triton-ops.lock.json").entries
    then = {entry.kernel: entry.identity for entry in entries}
    device = next(iter(store_in(str(DATA / "cache")))).key.device

    def as_then(kernel_type):
        identity = kernel_type.identity.fget

        def stated(kernel):
            now, before = dict(identity(kernel)), then[kernel.name if kernel.name in then else "doubled"]
            return {**before, **{part: now.get(part) for part in ("source", "grid") if part in before}}

        return property(stated)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Key, "facts_of", staticmethod(lambda _: dict(device)))
        for kernel_type in (FunctionKernel, TritonKernel):
            patched.setattr(kernel_type, "identity", as_then(kernel_type))
        yield


def test_each_file_holds_its_key(folder):
    records = {record.key.kernel: record for record in store_in(str(folder))}
    assert {name: dict(record.winner) for name, record in records.items()} == WINNERS
    assert {f"{record.key.id}.record.json" for record in records.values()} == {
        path.name for path in folder.glob("*.json")
    }
    entries = Lockfile.read(DATA / "triton-ops.lock.json").entries
    assert {entry.kernel: entry.origin.record for entry in entries} == {
        name: record.key.id for name, record in records.items()
    }


@pytest.mark.triton
def test_each_kernel_is_known_by_what_it_was_known_by():
    now = {
        "tests.data.earlier.kernels:column_sums": kernels.column_sums.kernel.identity,
        "tests.data.earlier.kernels:product": FunctionKernel(kernels.product).identity,
        "tests.data.earlier.kernels:scaled_by": FunctionKernel(kernels.scaled).identity,
        "tests.data.earlier.kernels:halved": {"source": Source.of(kernels.halved).fingerprint},
        "doubled": kernels.doubled.kernel.identity,
        "row sums": kernels.row_sums._kernel.identity,
    }
    for entry in Lockfile.read(DATA / "triton-ops.lock.json").entries:
        assert entry.source == {part: now[entry.kernel][part] for part in entry.source}, entry.kernel


def test_the_winner_of_a_callable_is_recalled_and_nothing_is_measured(folder):
    logs = sorted(folder.rglob("*.jsonl"))
    with same_machine():
        assert recall(kernels.column_sums, shape=(256,)).winner["step"] == 16
        assert recall(kernels.product, factors(), space=SPACE).winner["tile"] == 64
        assert recall(kernels.scaled, kwargs={"count": 64}, space={"step": [4, 16, 64]}).winner["step"] == 64
        results = [tune(kernels.column_sums, shape=(256,)), tune(kernels.product, factors(), space=SPACE)]
    assert [result.from_cache for result in results] == [True, True]
    assert [dict(result.winner.config) for result in results] == [{"step": 16}, {"tile": 64}]
    assert sorted(folder.rglob("*.jsonl")) == logs


def recalled(cache):
    with same_machine():
        return dict(recall(kernels.doubled, shape=(512,), device="cpu", cache_dir=cache).winner)


@pytest.mark.triton
def test_the_winner_of_a_triton_kernel_is_recalled(interpreted, folder):
    assert interpreted(recalled, str(folder)) == {"BLOCK": 512}


def test_run_logs_are_read_to_their_end(folder):
    for record in store_in(str(folder)):
        run = Run.read(run_named(record.run, folder))
        assert (run.head.key, run.end.record.winner) == (record.key, record.winner)
        assert len(run.trials) == record.totals["ok"]
        assert len(run.path.read_text().splitlines()) == 1 + len(run.events)


def test_misses_are_read(folder):
    (miss,) = Misses(folder).read()
    assert (miss.key.kernel, miss.key.problem) == ("tests.data.earlier.kernels:column_sums", {"rows": 128})
    with same_machine():
        assert miss.key == TuneProblem(target=kernels.column_sums, shape=(128,), device="cpu").request().key


def commands(cache, lockfile):
    """The exit code and the output of each command."""

    targets = [f"{kernels.__name__}{name}" for name in ("", ":product", ":scaled")]
    named = [word for target in targets for word in ("--kernels", target)]

    def run(*words):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            return main([*words, "--json"]), json.loads(text.getvalue())

    with same_machine():
        return {
            "show": run("cache", "show", "--cache-dir", cache),
            "verify": run("lock", "verify", lockfile, "--static", *named),
            "lock": run("lock", "--lockfile", lockfile, "--cache-dir", cache, "--allow-unproven", "--check"),
        }


@pytest.mark.triton
def test_the_command_line_reads_them(interpreted, folder, tmp_path):
    lockfile = shutil.copy(DATA / "triton-ops.lock.json", tmp_path)
    answers = interpreted(commands, str(folder), str(lockfile))
    assert {record["key"]["kernel"]: record["winner"] for record in answers["show"][1]["items"]} == WINNERS
    code, verdicts = answers["verify"]
    assert (code, {verdict["reason"] for verdict in verdicts["items"]}) == (0, {"nothing is measured"})
    assert {verdict["entry"]["kernel"]: verdict["entry"]["config"] for verdict in verdicts["items"]} == WINNERS
    code, plan = answers["lock"]
    assert (code, plan["entries"], plan["changes"]) == (0, 6, [])
