"""Decorated kernels without a list: what is tuned, from what, and what is refused."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests import meaning_kernels, tuned_kernels
from tests.planned_gpu import Planned
from triton_ops import autotune
from triton_ops.backend import ReadSpace
from triton_ops.device import DeviceSpec
from triton_ops.evaluation import Stations
from triton_ops.exceptions import ConfigCollisionError, SpaceError, UntunedError
from triton_ops.request import TuneOptions, request
from triton_ops.space import Config
from triton_ops.tuner import Silent
from triton_ops.tuner.wrong_results import TileProof
from triton_ops.values import Measurement, Status, Trial

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
pytestmark = pytest.mark.triton

X = torch.zeros(1000)


def grid(meta):
    return (triton.cdiv(1000, meta["BLOCK"]),)


def space_of(kernel, *args, grid=grid, **kwargs):
    return kernel.launches.call_of(grid, args, kwargs).space


def test_tiles_and_launch_options_are_tuned_as_far_as_a_call_does_not_give_them(tmp_path):
    add = autotune(key=["n"], cache_dir=tmp_path)(tuned_kernels.add)
    space = space_of(add, X, X, X, 1000)
    assert ({*space.tunables}, space.tiles) == ({"BLOCK", "num_warps"}, ("BLOCK",))
    assert 256 in space.tunables["BLOCK"].values
    assert space.made_up, "nobody has said which BLOCK is right"
    assert {*space_of(add, X, X, X, 1000, BLOCK=64).tunables} == {"num_warps"}


def test_defaults_of_the_signature_are_the_default_of_the_space(tmp_path):
    scale = autotune(key=["n"], cache_dir=tmp_path)(tuned_kernels.scale)
    space = space_of(scale, X, X, 1000, 2)
    assert {*space.tunables} == {"BLOCK", "num_warps"}, "flags have values already, and stay"
    assert space.default_config == Config(BLOCK=64, num_warps=4)
    assert not space.made_up


def test_a_constant_that_is_no_tile_must_be_given(tmp_path):
    windows = autotune(key=["n"], cache_dir=tmp_path)(meaning_kernels.windows)
    with pytest.raises(SpaceError, match=r"windows is called without WINDOW \(its blocks begin at each number"):
        windows[(4,)](X, X, 1000)
    assert {*space_of(windows, X, X, 1000, WINDOW=16, grid=(4,)).tunables} == {"num_warps"}


def test_a_tile_that_a_grid_of_fixed_numbers_needs_must_be_given(tmp_path):
    add = autotune(key=["n"], cache_dir=tmp_path)(tuned_kernels.add)
    with pytest.raises(SpaceError, match=r"BLOCK decides how many programs there must be, and the grid is fixed"):
        add[(8,)](X, X, X, 1000)


def test_a_default_that_was_made_up_is_run_by_no_launch_that_may_not_tune(tmp_path):
    add = autotune(key=["n"], cache_dir=tmp_path, on_miss="default")(tuned_kernels.add)
    with pytest.raises(UntunedError, match="its tiles have no values but those that were made up"):
        add[grid](X, X, X, 1000)
    with pytest.raises(UntunedError, match="made up"):
        add.launches.known(grid, (X, X, X, 1000), {})
    assert add.why(X, X, X, 1000, grid=grid).missed
    scale = autotune(key=["n"], cache_dir=tmp_path, on_miss="default")(tuned_kernels.scale)
    assert scale.launches.known(grid, (X, X, 1000, 2), {}).config.kwargs["BLOCK"] == 64


def test_a_list_is_the_beginning_of_a_wider_space(tmp_path):
    listed = [{"BLOCK": 96, "num_warps": 2}, {"BLOCK": 128, "num_warps": 8}]
    add = autotune(listed, key=["n"], widen=True, cache_dir=tmp_path)(tuned_kernels.add)
    space = space_of(add, X, X, X, 1000)
    assert space.default_config == space.seeds[0]
    assert {**space.default_config, **listed[0]} == dict(space.default_config)
    assert {96, 128, 256} <= {*space.tunables["BLOCK"].values}
    assert [one["BLOCK"] for one in TileProof(space).first[:2]] == [96, 128], "the list is tried first"
    with pytest.raises(SpaceError, match="there are no configs to be widened"):
        autotune(key=["n"], widen=True)


def test_a_launch_option_that_a_call_gives_is_refused_before_a_tune(tmp_path):
    add = autotune(key=["n"], cache_dir=tmp_path, on_miss="race")(tuned_kernels.add)
    with pytest.raises(ConfigCollisionError, match=r"num_warps is tuned, and a call of .*add gives it as well"):
        add[grid](X, X, X, 1000, num_warps=2)


def test_equal_numbers_show_no_tile_to_be_right(tmp_path, interpreted):
    assert interpreted(of_equal_numbers, tmp_path) == ("each tensor that it reads holds one value", "tuned", 1000.0)


def of_equal_numbers(folder):
    """Launch on zeros, as to warm up, which tunes nothing; then on other numbers, which does."""
    scale = autotune(key=["n"], cache_dir=folder, on_miss="race")(meaning_kernels.power)
    out, x = torch.zeros(1000), torch.arange(1000.0) % 2
    try:
        scale[grid](torch.zeros(1000), out, 1000, TIMES=1)
    except UntunedError as error:
        refusal = str(error)
    scale[grid](x, out, 1000, TIMES=1)
    reason = "each tensor that it reads holds one value"
    return reason if reason in refusal else refusal, scale.decisions[-1].found.rung, 2 * out.sum().item()


class Limited(Planned):
    """Tries configs at once; more warps are slower, and a limit of registers is faster."""

    def attempt(self, config, best):
        ms = 100.0 + config["num_warps"] - 5 * ("maxnreg" in config)
        return Trial(config, Status.OK, Measurement((ms,), "planned"))


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that is not here."""
    monkeypatch.setattr(request, "probe", lambda _: DeviceSpec.named("NVIDIA H200"))
    monkeypatch.setattr(request, "gpu_missing", lambda: "")
    monkeypatch.setattr(request, "device_of", lambda *_: "cuda:0")
    monkeypatch.setattr("triton_ops.dispatch.deciding.device_of", lambda *_: "cuda:0")
    monkeypatch.setattr(Stations, "early_process", lambda _: nullcontext())
    monkeypatch.setattr(Stations, "begin", lambda *_, **__: Limited)


@pytest.mark.usefixtures("gpu", "shared_fork_server")
def test_the_fastest_configs_are_tried_with_other_limits_of_registers_which_a_record_keeps(tmp_path):
    x = torch.empty(1000, device="meta")
    add = autotune(key=["n"], cache_dir=tmp_path)(tuned_kernels.add)
    call = add.launches.call_of(grid, (x, x, x, 1000), {"BLOCK": 512})
    result = call.tuned(TuneOptions(budget_s=300.0, cache_dir=tmp_path), listener=Silent())
    limited = [trial.config for trial in result.trials if "maxnreg" in trial.config]
    assert {each["num_warps"] for each in limited[:2]} <= {1, 2}, "they are beside the fastest"
    assert 2 <= len(limited) <= 8
    winner = Config(result.best_config)
    assert winner in limited
    decision = add.launches.known(grid, (x, x, x, 1000), {"BLOCK": 512})
    assert decision.found.rung == "record"
    assert {**decision.config.all_kwargs()}.items() >= winner.items()
    assert call.space.why_not(winner) is None
    assert "maxnreg" in call.space.why_not(Config({**winner, "maxnreg": "64"}))
    assert "num_warps=7" in call.space.why_not(Config({**winner, "num_warps": 7}))
    for limit in (32, None):
        own = add.launches.known(grid, (x, x, x, 1000), {"BLOCK": 512, "maxnreg": limit})
        assert "maxnreg" not in own.found.config, "the call gives it"


@pytest.mark.usefixtures("gpu", "shared_fork_server")
def test_a_list_and_a_kernel_with_a_limit_of_its_own_get_none(tmp_path):
    x = torch.empty(1000, device="meta")
    listed = autotune([{"BLOCK": 256}, {"BLOCK": 512}], key=["n"], cache_dir=tmp_path)(tuned_kernels.add)
    call = listed.launches.call_of(grid, (x, x, x, 1000), {})
    result = call.tuned(TuneOptions(budget_s=300.0), listener=Silent())
    assert [trial.config.keys() for trial in result.trials] == 2 * [{"BLOCK", "num_warps", "num_stages"}]
    view = ReadSpace.of(tuned_kernels.add, {"n": 1000, "maxnreg": 64}, grid=grid)
    assert not view.limits_registers


def refused(planted):
    """The reason why a constant is no tile: of the reading, or of launches with other values of it."""
    grid, values = meaning_kernels.call(planted)
    kernel = autotune(key=["n"])(planted.kernel)
    try:
        space = kernel.launches.call_of(grid, (), values).space
    except SpaceError as error:
        return str(error)
    if planted.constant not in space.tunables:
        return planted.constant
    proof, results = TileProof(space), {}
    for config in (space.default_config, *proof.first):
        copies = {name: each.clone() if hasattr(each, "clone") else each for name, each in values.items()}
        planted.kernel[grid](**copies, **config)
        results[config] = copies["out"]
        same = torch.allclose(results[space.default_config], copies["out"], equal_nan=True)
        times = Measurement((1.0,), "wall") if same else None
        proof.tried(Trial(config, Status.OK if same else Status.WRONG, times, error="" if same else "it differs"))
    return proof.dispute


def refusals():
    return [(planted.constant, refused(planted)) for planted in meaning_kernels.PLANTED]


def tuned_though_a_part_is_not_written(folder):
    """The elements that a launch has left as they were, of a kernel that writes every second one."""
    out, kernel = torch.full((100,), 7.0), autotune(key=["n"], on_miss="race", cache_dir=folder)
    every_second = kernel(meaning_kernels.every_second)
    every_second[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](1.0 - torch.arange(100) % 2, out, 100)
    return out.sum().item(), every_second.decisions[0].found.rung


def test_a_kernel_is_tuned_at_its_first_call_though_it_writes_a_part_of_its_outputs(interpreted, tmp_path):
    assert interpreted(tuned_though_a_part_is_not_written, tmp_path) == (400.0, "tuned")


def test_a_constant_that_is_part_of_the_result_is_refused_or_left_alone(interpreted):
    reasons = interpreted(refusals)
    assert len(reasons) == 10
    assert all(constant in reason for constant, reason in reasons), reasons
