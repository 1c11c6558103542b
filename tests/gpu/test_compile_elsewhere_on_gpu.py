"""A GPU launches what another host has compiled, and compiles nothing itself."""

from __future__ import annotations

import importlib

import pytest

from tests.beside import Beside
from triton_ops import TuneProblem, kernels, release_processes
from triton_ops.compilation import OtherHosts, SharedCpus
from triton_ops.many import RunOptions, jobs_of, run_jobs
from triton_ops.many.executor import LocalExecutor
from triton_ops.request import effort_of

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _anew():
    release_processes()  # with the disk cache of an earlier test
    yield
    release_processes()


def test_configs_of_another_host_are_launched_without_being_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    beside, seen = Beside(), []
    beside.goes_first(monkeypatch)

    def listener(*, metadata, cache_hit, **_):
        seen.append((metadata.get("name"), cache_hit))

    monkeypatch.setattr(importlib.import_module("triton.knobs").compilation, "listener", listener)
    options = RunOptions(plan=effort_of("quick"), cache_dir=tmp_path / "records", isolate=False)
    cpus = SharedCpus(2, elsewhere=OtherHosts([beside.handle]))
    found = run_jobs(
        jobs_of([TuneProblem(target=kernels.load("softmax"), shape=(1024, 1000))], options), options,
        told=lambda _: None, executors_of=lambda _, view: {"cuda:0": LocalExecutor(cpus, "cuda:0", view.listener)},
    )  # fmt: skip
    beside.end()
    (outcome,) = found.outcomes
    assert outcome.status == "tuned", outcome.error
    assert any("compiled by other hosts" in note for note in outcome.result.notes), outcome.result.notes
    assert seen, "nothing was launched in this process"
    assert [name for name, hit in seen if not hit] == []
