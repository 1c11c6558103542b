"""Kernels under Triton's own decorator are taken while this package is installed, and given back afterwards."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton_ops  # noqa: E402
from tests.launches import launches_that_do_nothing  # noqa: E402
from tests.records import record  # noqa: E402
from tests.tuned_kernels import add, grid  # noqa: E402
from triton_ops import evaluation  # noqa: E402
from triton_ops.dispatch import early_start  # noqa: E402
from triton_ops.exceptions import SettingsError  # noqa: E402
from triton_ops.records import store_in  # noqa: E402

pytestmark = pytest.mark.triton

CONFIGS = [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256}, num_warps=8)]


@pytest.fixture(autouse=True)
def _launches(monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    with launches_that_do_nothing():
        yield
    triton_ops.uninstall()


def arguments(n=1024):
    return (*(torch.zeros(n) for _ in range(3)), n)


def test_the_places_are_taken_and_given_back():
    places = [triton, triton.runtime, triton.runtime.autotuner]
    before = [place.autotune for place in places], triton.runtime.autotuner.Autotuner.run
    with triton_ops.install(on_miss="default"):
        assert len({place.autotune for place in places}) == 1
        assert triton.autotune is not before[0][0]
    assert ([place.autotune for place in places], triton.runtime.autotuner.Autotuner.run) == before
    triton_ops.uninstall()
    with pytest.raises(SettingsError):
        triton_ops.install(on_miss="guess")
    assert triton.autotune is before[0][0]


def test_to_install_again_changes_nothing_and_tells_once_of_other_options(caplog):
    run, decorator = triton.runtime.autotuner.Autotuner.run, triton.autotune
    with triton_ops.install(on_miss="default", cache_dir="here"):
        places = triton.runtime.autotuner.Autotuner.run, triton.autotune
        for again in ({"on_miss": "default", "cache_dir": "here"}, {"on_miss": "default", "cache_dir": Path("here")}):
            with triton_ops.install(**again):
                pass
        assert caplog.text == ""
        for other in ({}, {"on_miss": "error"}, {"on_miss": "default", "effort": "full"}):
            with triton_ops.install(**other):
                assert (triton.runtime.autotuner.Autotuner.run, triton.autotune) == places
        assert caplog.text.count("installed already") == 1
        assert "on_miss='default'" in caplog.text
        assert (triton.runtime.autotuner.Autotuner.run, triton.autotune) == places
    assert (triton.runtime.autotuner.Autotuner.run, triton.autotune) == (run, decorator)


def test_the_end_of_one_call_leaves_what_a_later_one_has_installed():
    with triton_ops.install(on_miss="default"):
        triton_ops.uninstall()
        triton_ops.install(on_miss="default")
        installed = triton.autotune
    assert triton.autotune is installed


def test_who_tells_of_tunes_is_told_of_those_that_are_recalled(monkeypatch):
    told = []
    knobs = triton.knobs.autotuning
    if not hasattr(knobs, "listener"):
        pytest.skip("this Triton has no listener")
    monkeypatch.setattr(knobs, "listener", lambda **facts: told.append(facts))
    with triton_ops.install(on_miss="default"):
        kernel = triton.autotune(CONFIGS, key=["n"])(add)
        for _ in range(3):
            kernel[grid](*arguments())
    (facts,) = told
    assert (facts["fn"], facts["best_config"], facts["cache_hit"]) == (add, CONFIGS[0], True)


def test_kernels_decorated_before_meanwhile_and_by_subclasses_are_taken(monkeypatch):
    class Theirs(triton.runtime.autotuner.Autotuner):
        def __init__(self, fn, arg_names, configs, key, reset_to_zero, restore_value, **kwargs):
            super().__init__(fn, arg_names, configs, key, reset_to_zero, restore_value, **kwargs)
            self.calls = 0

        def run(self, *args, **kwargs):
            self.calls += 1
            return super().run(*args, **kwargs)

    before = triton.autotune(CONFIGS, key=["n"])(add)
    theirs = Theirs(add, add.arg_names, CONFIGS, ["n"], None, None)
    monkeypatch.setattr(triton.runtime.autotuner.Autotuner, "_bench", lambda *_, **__: pytest.fail("Triton measured"))
    with triton_ops.install(on_miss="default"):
        meanwhile = triton.autotune(configs=CONFIGS, key=["n"], cache_results=False)(add)
        for kernel in (before, theirs, meanwhile):
            for _ in range(3):
                assert kernel[grid](*arguments()).metadata.num_warps == 4
            assert kernel.best_config == CONFIGS[0]
    assert theirs.calls == 3
    assert type(before) is triton.runtime.autotuner.Autotuner
    monkeypatch.undo()
    assert before[grid](*arguments()).metadata.num_warps == 4  # Triton's again, with its own look-up


def test_what_others_put_into_a_cache_is_launched():
    theirs = triton.autotune(CONFIGS, key=["n"])(add)
    with triton_ops.install(on_miss="default"):
        theirs[grid](*arguments())
        theirs.cache[(2048, *["torch.float32"] * 3)] = CONFIGS[1]
        assert theirs[grid](*arguments(2048)).metadata.num_warps == 8
        known = (1024, *["torch.float32"] * 3)
        assert theirs.cache[known] == CONFIGS[0]  # what is decided is shown there, as by Triton
        for config, warps in ((CONFIGS[1], 8), (CONFIGS[0], 4)):
            theirs.cache[known] = config
            assert [theirs[grid](*arguments()).metadata.num_warps for _ in range(2)] == [warps] * 2
        del theirs.cache[known]
        assert theirs[grid](*arguments()).metadata.num_warps == 4
        theirs.configs = [CONFIGS[1]]
        assert theirs[grid](*arguments()).metadata.num_warps == 8
    assert theirs.cache == {(2048, *["torch.float32"] * 3): CONFIGS[1]}  # decisions are no winners of Triton's
    assert type(theirs.cache) is dict


def test_what_triton_accepts_is_accepted():
    with triton_ops.install(on_miss="default"):
        kernel = triton.autotune(CONFIGS, ["n"], None, ["out_ptr"], None)(add)
        assert kernel.reset_to_zero == ["out_ptr"]
        assert kernel[grid](*arguments()).metadata.num_warps == 4
        without = triton.autotune([], [])(triton.heuristics({"BLOCK": lambda _: 64})(add))
        assert without[grid](*arguments()).metadata.num_warps == 4


def test_something_that_was_put_in_the_place_meanwhile_stays():
    theirs = lambda *_, **__: None  # noqa: E731
    before = triton.autotune
    with triton_ops.install():
        triton.autotune = theirs
    assert triton.autotune is theirs
    triton.autotune = before


@pytest.fixture
def starts(monkeypatch):
    """The workers that were started early."""
    calls = []
    monkeypatch.setattr(evaluation, "start_one_early", lambda: calls.append("worker"))
    monkeypatch.setattr(early_start, "_awaited", {})
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda call: None)
    return calls


@pytest.mark.parametrize(
    ("options", "early"),
    [({}, True), ({"on_miss": "tune"}, True), ({"on_miss": "default"}, False), ({"isolate": False}, False)],
)
def test_a_worker_is_started_early_where_a_tune_is_sure_to_come(options, early, tmp_path, starts):
    with triton_ops.install(cache_dir=tmp_path / "records", **options):
        assert len(starts) == early
        triton.autotune(CONFIGS, ["n"])(add)
        assert len(starts) == 2 * early
        triton.autotune(CONFIGS[:1], ["n"])(add)
        assert len(starts) == 2 * early


def test_no_worker_is_started_early_where_something_is_recorded(tmp_path, starts):
    store_in(str(tmp_path / "records")).put(record())
    with triton_ops.install(cache_dir=tmp_path / "records"):
        assert starts == []


def test_install_before_torch_waits_for_a_kernel_to_be_decorated(starts, monkeypatch):
    with monkeypatch.context() as changed:
        changed.setitem(sys.modules, "torch", None)
        installed = triton_ops.install()
    with installed:
        assert starts == []
        triton.autotune(CONFIGS, ["n"])(add)
        assert starts == ["worker"]
