"""The decorator: what it launches, from which rung, and that others may read and change what they do of Triton's."""

from __future__ import annotations

import gc
import re
import sys
import threading
import warnings
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


import triton_ops  # noqa: E402
from tests import decorated_kernels, tuned_kernels  # noqa: E402
from tests.launches import launches_that_do_nothing  # noqa: E402
from tests.records import record  # noqa: E402
from tests.tuned_kernels import add, grid, scale  # noqa: E402
from triton_ops.backend import standing_in  # noqa: E402
from triton_ops.base import warn_once  # noqa: E402
from triton_ops.device import Target, gpu_missing  # noqa: E402
from triton_ops.dispatch import comparing, deciding, launching  # noqa: E402
from triton_ops.dispatch import ladder as sources  # noqa: E402
from triton_ops.dispatch.decorator import Tuned  # noqa: E402
from triton_ops.exceptions import (  # noqa: E402
    ConfigCollisionError,
    DeviceError,
    FixedGridWarning,
    KernelTypeError,
    LockfileError,
    SettingsError,
    SpaceError,
    TuningFailedError,
    UnknownTunableError,
    UntunedError,
)
from triton_ops.records import (  # noqa: E402
    FollowedLockfile,
    LockedDevice,
    LockEntry,
    Lockfile,
    LockfileInUse,
    Misses,
    store_in,
)
from triton_ops.records.misses import flush_misses  # noqa: E402
from triton_ops.settings import cache_folder  # noqa: E402
from triton_ops.space import Config  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore::triton_ops.FixedGridWarning")]

SMALL, LARGE = triton.Config({"BLOCK": 128}, num_warps=4), triton.Config({"BLOCK": 256}, num_warps=8)


@pytest.fixture
def launched():
    """What was launched, by a driver that does nothing; every test has ladders of its own."""
    sources._sources.ladders.clear()
    LockfileInUse.NOW = None
    with launches_that_do_nothing() as launches:
        yield launches
    LockfileInUse.NOW = None


@pytest.fixture(autouse=True)
def _fused(monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


def tuned_add(key=("n",), configs=(SMALL, LARGE), **more):
    return triton_ops.autotune(list(configs), list(key), **{"on_miss": "default", **more})(add)


def vectors(n=1024, offset=0, dtype=torch.float32):
    return [torch.zeros(n + offset, dtype=dtype)[offset:] for _ in range(3)]


def remember(kernel, winner, *args, **kwargs):
    """A record of the winner for this call, as a tune would leave it."""
    key = kernel.why(*args, grid=grid, **kwargs).key
    store_in(cache_folder(None)).put(record(key=key, winner=winner))
    sources._sources.ladders.clear()
    kernel.cache.clear()
    return key


def test_a_call_without_a_program_is_not_tuned_and_decides_no_other(launched):
    kernel, (x, y, out) = tuned_add(key=(), on_miss="tune"), vectors(0)
    kernel[grid](x, y, out, n=0)
    assert kernel.decisions == []
    assert not list(store_in(cache_folder(None)))
    with pytest.raises(DeviceError):  # a tune needs a GPU
        kernel[grid](*vectors(), n=1024)
    tuned_add(on_miss="error")[grid](x, y, out, n=0)


def test_a_race_asks_for_a_tune_of_little_effort(launched, monkeypatch):
    efforts = []

    def tuned(call, *args, **kwargs):
        efforts.append(call.plan.name)
        raise SpaceError("nothing is measured here")

    monkeypatch.setattr(deciding.KernelCall, "tuned", tuned)
    monkeypatch.setattr(deciding, "_undescribed", deciding._by_first)
    for policy in ("race", "tune"):
        tuned_add(on_miss=policy)[grid](*vectors(), n=1024)
    assert efforts == ["race", "quick"]
    kernel = tuned_add(on_miss="race")
    assert "a launch tunes it first" in kernel.why(*vectors(), n=1024, grid=grid).found.why


@pytest.mark.parametrize("error", [UntunedError("the model is not sure"), DeviceError("no GPU"), SpaceError("none")])
def test_what_no_model_expects_runs_the_default_says_why_and_is_noted(launched, monkeypatch, caplog, error):
    questions = []

    def tuned(call, *args, **kwargs):
        questions.append(call.plan.name)
        raise error

    monkeypatch.setattr(deciding.KernelCall, "tuned", tuned)
    warn_once.cache_clear()  # another test may have had the same reason
    kernel = tuned_add(on_miss="expected")
    for _ in range(2):
        assert kernel[grid](*vectors(), n=1024).metadata.num_warps == 4
    assert questions == ["expected"]  # once for a problem
    (decision,) = kernel.decisions
    assert (decision.found.rung, decision.found.why) == ("default", error.message)
    assert error.message in caplog.text
    flush_misses()
    assert [miss.key.problem for miss in Misses(Path(cache_folder(None))).read()] == [decision.key.problem]


def test_an_expected_config_is_told_as_such_and_asked_for_after_winners_that_are_borrowed(launched, monkeypatch):
    def tuned(call, *args, **kwargs):
        metrics = triton_ops.KernelMetrics(1.0, 1.0, 1.0)
        winner = {"BLOCK": 256, "num_warps": 8, "num_stages": 3}
        return triton_ops.TuningResult(winner, metrics, ordered_by=("a model of the work, which expects it",))

    monkeypatch.setattr(deciding.KernelCall, "tuned", tuned)
    kernel = tuned_add(on_miss="expected")
    assert "the model's first pick where the model is sure" in kernel.why(*vectors(), n=1024, grid=grid).found.why
    with triton_ops.replaying(Lockfile(())):
        assert kernel[grid](*vectors(), n=1024).metadata.num_warps == 4
    monkeypatch.setattr(deciding, "capturing", lambda: True)
    assert kernel[grid](*vectors(), n=1024).metadata.num_warps == 4
    monkeypatch.setattr(deciding, "capturing", lambda: False)
    assert kernel[grid](*vectors(), n=1024).metadata.num_warps == 8
    answer = kernel.why(*vectors(), n=1024, grid=grid).found
    assert (
        answer.rung,
        answer.why.endswith("ordered by a model of the work, which expects it; the winner is not remembered"),
    ) == ("expected", True)
    remember(kernel, Config(BLOCK=128, num_warps=4, num_stages=3), *vectors(2048), n=2048)
    assert kernel.why(*vectors(), n=1500, grid=grid).found.rung == "borrowed"


def test_two_decorators_that_tune_one_name_are_named_when_they_are_nested():
    inner = triton.autotune([SMALL], key=["n"])(add)
    with pytest.raises(ConfigCollisionError, match=r"add has two decorators that tune, .* and both tune BLOCK"):
        triton_ops.autotune([LARGE], key=["n"])(inner)
    triton_ops.autotune([triton.Config({}, num_warps=8)], key=["n"])(inner)


def test_triton_and_torch_take_it_for_an_autotuner():
    kernel = tuned_add()
    assert isinstance(kernel, triton.runtime.autotuner.Autotuner)
    assert (kernel.fn, kernel.base_fn, kernel.configs, kernel.keys) == (add, add.fn, [SMALL, LARGE], ["n"])
    assert kernel.cache == {}
    assert {kernel: 1}[kernel] == 1


def test_a_launch_takes_the_default_and_shows_it_as_triton_does(launched):
    kernel, (x, y, out) = tuned_add(), vectors()
    compiled = kernel[grid](x, y, out, 1024)
    assert (launched.made[0][:2], compiled.metadata.num_warps) == (("add", (8, 1, 1)), 4)
    assert kernel.best_config == SMALL
    assert kernel.cache == {(1024, *["torch.float32"] * 3): SMALL}
    assert kernel.nargs is None


def test_without_what_a_tune_needs_a_miss_runs_the_default_and_names_the_extra_once(launched, monkeypatch, caplog):
    for name in ("numpy", "scipy"):
        monkeypatch.setitem(sys.modules, name, None)
    kernel = tuned_add(on_miss="tune")
    for n in (1024, 2048):
        kernel[grid](*vectors(n), n)
    assert kernel.best_config == SMALL
    assert [made[0] for made in launched.made] == ["add", "add"]
    expected = "(hint: pip install 'triton-ops[tune]'); launches without a known winner run their default config"
    assert [expected in message for message in caplog.messages if "triton-ops[tune]" in message] == [True]


def test_later_launches_are_direct_and_have_the_same_arguments(launched, monkeypatch):
    kernel, (x, y, out) = tuned_add(), vectors()
    first = kernel[grid](x, y, out, 1024)
    monkeypatch.setattr(kernel.launches, "plainly", lambda *_: pytest.fail("it went the plain way"))
    assert kernel[grid](x, y, out_ptr=out, n=1024) is first
    assert kernel.run(x, y, out, 1024, grid=(8,), warmup=False) is first
    assert [made[1] for made in launched.made] == [(8, 1, 1)] * 3
    assert all(given[0] is x and given[3:] == (1024, 128) for *_, given in launched.made)


@pytest.mark.parametrize(
    ("case", "args"),
    [
        ("another alignment", (*vectors(1024, offset=1), 1024)),
        ("another dtype", (*vectors(dtype=torch.float16), 1024)),
        ("no multiple of 16", (*vectors(), 1023)),
        ("one", (*vectors(), 1)),
        ("64 bits", (*vectors(), 1 << 40)),
    ],
)
def test_another_specialisation_launches_other_code(launched, case, args):
    kernel = tuned_add()
    first = kernel[grid](*vectors(), 1024)
    for _ in range(2):
        other = kernel[(1,)](*args)
        assert other is not first
        assert other is add[(1,)](*args, **SMALL.all_kwargs())


def test_each_device_and_stream_gets_its_own_launch(launched):
    add.device_caches.clear()
    kernel, arguments = tuned_add(), (*vectors(), 1024)
    for device, stream in [(0, 0), (0, 7), (1, 7), (0, 7), (1, 0)]:
        launched.device, launched.stream = device, stream
        for _ in range(2):
            kernel[grid](*arguments)
            assert launched.made[-1][2:4] == (stream, device)
    assert launched.loaded == ["add"] * 2  # once for each device


def test_hooks_of_profilers_see_direct_launches(launched, monkeypatch):
    kernel, arguments, seen = tuned_add(), (*vectors(), 1024), []
    kernel[grid](*arguments)
    enter = triton.knobs.runtime.launch_enter_hook
    hook = lambda metadata: seen.append(metadata.get()["name"])  # noqa: E731
    if hasattr(enter, "calls"):
        enter.add(hook)
        kernel[grid](*arguments)
        enter.remove(hook)
    monkeypatch.setattr(triton.knobs.runtime, "launch_enter_hook", hook)
    kernel[grid](*arguments)
    monkeypatch.undo()
    kernel[grid](*arguments)
    assert seen == ["add"] * (1 + hasattr(enter, "calls"))


def test_hooks_before_a_run_see_direct_launches(launched):
    kernel, arguments, seen = tuned_add(), (*vectors(), 1024), []
    kernel[grid](*arguments)
    add.pre_run_hooks.append(lambda *args, **_: seen.append(len(args)))
    kernel[grid](*arguments)
    add.pre_run_hooks.clear()
    assert seen == [4]


def test_options_of_a_call_go_the_plain_way(launched):
    kernel = triton_ops.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32})], ["n"],
                                 on_miss="default")(scale)  # fmt: skip
    x, out = vectors()[:2]
    assert kernel[grid](x, out, 1024, 1).metadata.enable_fp_fusion
    assert not kernel[grid](x, out, 1024, 1, enable_fp_fusion=False).metadata.enable_fp_fusion
    assert kernel[grid](x, out, 1024, 1).metadata.enable_fp_fusion


def test_values_of_constants_are_part_of_the_launch(launched):
    kernel = triton_ops.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32})], ["n"],
                                 on_miss="default")(scale)  # fmt: skip
    x, out = vectors()[:2]
    once, twice = kernel[grid](x, out, 1024, 1), kernel[grid](x, out, 1024, 1, TWICE=True)
    assert once is not twice
    assert [kernel[grid](x, out, 1024, 1, TWICE=flag) for flag in (False, True)] == [once, twice]


def test_heuristics_below_and_above_give_their_values_at_every_launch(launched):
    even = {"EVEN": lambda args: args["n"] % args["BLOCK"] == 0}
    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32})]
    below = triton_ops.autotune(configs, [], on_miss="default")(triton.heuristics(even)(scale))
    x, out = vectors()[:2]
    for n in (1024, 1056, 1024, 1056):
        below[grid](x, out, n, 16)
        assert launched.made[-1][-1][-2:] == (64, n % 64 == 0)
    twice = {"TWICE": lambda args: args["n"] > 1000}
    above = triton.heuristics(twice)(triton_ops.autotune(configs, [], on_miss="default")(scale))
    for n in (1024, 512, 1024):
        above[grid](x, out, n, 16)
        assert launched.made[-1][-1][4:6] == (n > 1000, 64)


def test_a_global_that_changed_is_refused_as_by_triton(launched, monkeypatch):
    kernel = triton_ops.autotune([SMALL, LARGE], ["n"], on_miss="default")(tuned_kernels.fill)
    for _ in range(2):
        kernel[(1,)](vectors()[0], 1024)
    monkeypatch.setattr(tuned_kernels, "FILL", triton.language.constexpr(4))
    with pytest.raises(RuntimeError, match="FILL has changed"):
        kernel[(1,)](vectors()[0], 1024)


def test_hooks_of_configs_are_called_before_every_launch(launched):
    seen = []
    hooked = triton.Config({"BLOCK": 128}, pre_hook=lambda args: seen.append((args["n"], args["BLOCK"])))
    kernel = tuned_add(configs=[hooked, LARGE])
    for _ in range(3):
        kernel[grid](*vectors(), 1024)
    assert seen == [(1024, 128)] * 3
    assert kernel.best_config == hooked


def test_the_configs_and_the_cache_may_be_changed_by_others(launched):
    kernel, arguments = tuned_add(), (*vectors(), 1024)
    kernel[grid](*arguments)
    kernel.cache[(1024, *["torch.float32"] * 3)] = LARGE
    assert kernel[grid](*arguments).metadata.num_warps == 8
    assert kernel.why(*arguments).found.rung == "explicit"
    kernel.cache.clear()
    assert kernel[grid](*arguments).metadata.num_warps == 4
    kernel.configs = [LARGE]
    assert kernel[grid](*arguments).metadata.num_warps == 8
    assert kernel.why(*arguments).found.rung == "explicit"


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("decorator", ["triton", "ours"])
def test_who_changes_a_config_that_is_launched_changes_the_launches_as_with_triton(launched, direct, decorator):
    small = triton.Config({"BLOCK": 128}, pre_hook=None if direct else lambda _: None)
    configs = [small, triton.Config({"BLOCK": 256})]
    kernel = tuned_add(configs=configs) if decorator == "ours" else triton.autotune(configs, ["n"])(add)
    arguments = (*vectors(), 1024)
    kernel[grid](*arguments)
    (shown,) = kernel.cache.values()
    assert kernel.best_config is small is shown
    for change, block, warps in [({"kwargs": {"BLOCK": 64}}, 64, 4), ({"num_warps": 2}, 64, 2)]:
        for name, value in change.items():
            setattr(small, name, value)
        for _ in range(2):
            assert kernel[grid](*arguments).metadata.num_warps == warps
            assert launched.made[-1][-1][-1] == block
    small.kwargs["BLOCK"] = 32
    kernel[grid](*arguments)
    assert launched.made[-1][-1][-1] == 32


def test_who_changes_a_config_of_a_decision_changes_no_launch(launched):
    kernel, arguments = tuned_add(), (*vectors(), 1024)
    kernel[grid](*arguments)
    for decision in (kernel.why(*arguments), kernel.launches.known((1,), arguments, {}), *kernel.decisions):
        decision.config.kwargs["BLOCK"] = 64
    kernel[grid](*arguments)
    assert [made[-1][-1] for made in launched.made] == [128, 128]
    assert [one.count.value for one in kernel.decisions] == [2]


def test_pruning_decides_what_may_run(launched):
    seen = []

    def prune(configs, named, **kwargs):
        seen.append((dict(named), kwargs))
        return configs[1:]

    kernel = tuned_add(prune_configs_by={"early_config_prune": prune})
    x, y, out = vectors()
    assert kernel[grid](x, y, out, n=1024).metadata.num_warps == 8
    assert [set(seen[0][0]), seen[0][1]] == [{"x_ptr", "y_ptr", "out_ptr"}, {"n": 1024, "grid": grid, "warmup": False}]
    ranked = tuned_add(prune_configs_by={"perf_model": lambda BLOCK, **_: -BLOCK, "top_k": 1})
    assert ranked[grid](x, y, out, 1024).metadata.num_warps == 8


def test_a_space_may_stand_in_place_of_a_list(launched):
    space = triton_ops.ConfigSpace({"BLOCK": [64, 128], "num_warps": [2, 4]}, default=Config(BLOCK=128, num_warps=2))
    for given in (space, {"BLOCK": [128, 64], "num_warps": [2, 4]}):
        kernel = triton_ops.autotune(given, ["n"], on_miss="default")(add)
        assert kernel[grid](*vectors(), 1024).metadata.num_warps == 2
        assert kernel.best_config.all_kwargs()["BLOCK"] == 128


def test_a_record_is_launched_and_says_so(launched):
    kernel, arguments = tuned_add(), (*vectors(), 1024)
    remember(kernel, Config(BLOCK=256, num_warps=8, num_stages=3), *arguments)
    for _ in range(3):
        assert kernel[grid](*arguments).metadata.num_warps == 8
    assert kernel.best_config == LARGE
    rows = [row for row in triton_ops.launches() if (row.kernel, row.rung) == ("tests.tuned_kernels:add", "record")]
    row = [row for row in rows if row.problem == "n=1024 float32"][-1]
    assert row.launches >= 3


def test_a_comment_or_another_config_is_no_miss_and_another_value_of_the_key_is_one(launched):
    arguments = (*vectors(), 1024)
    remember(tuned_add(), Config(BLOCK=256, num_warps=8, num_stages=3), *arguments)
    wider = tuned_add(configs=[SMALL, LARGE, triton.Config({"BLOCK": 512})])
    assert wider.why(*arguments).found.rung == "record"
    narrower = tuned_add(configs=[SMALL])
    narrower.configs = [SMALL, triton.Config({"BLOCK": 512})]
    refused = narrower.why(*arguments)
    assert refused.found.rung == "default"
    assert any("cannot be taken here" in passed for passed in refused.passed)
    assert not any("record: none" in passed for passed in refused.passed)
    assert wider.why(*vectors(), 4096).found.rung == "default"


def forget_parts(monkeypatch):
    none = weakref.WeakSet()
    for module in (comparing, deciding):
        monkeypatch.setattr(module, "writes_a_part", none)


def test_a_kernel_that_leaves_a_part_of_its_outputs_is_tuned_twice_for_its_first_problem_only(monkeypatch):
    tunes = []

    def tune_request(request, _options, **_place):
        tunes.append(request.kernel.outputs)
        if request.kernel.outputs:
            raise TuningFailedError("every config is wrong")

    monkeypatch.setattr(comparing, "tune_request", tune_request)
    forget_parts(monkeypatch)
    for n in (1024, 2048):
        tuned_add().launches.call_of(grid, (*vectors(n), n), {}).tuned()
    assert tunes == [("out_ptr",), (), ()]


def test_a_kernel_that_fails_with_and_without_outputs_has_its_outputs_for_other_problems(monkeypatch):
    tunes = []

    def tune_request(request, _options, **_place):
        tunes.append(request.kernel.outputs)
        raise TuningFailedError("no memory is left")

    monkeypatch.setattr(comparing, "tune_request", tune_request)
    forget_parts(monkeypatch)
    for n in (1024, 2048):
        with pytest.raises(TuningFailedError):
            tuned_add().launches.call_of(grid, (*vectors(n), n), {}).tuned()
    assert tunes == [("out_ptr",), ()] * 2


def test_another_alignment_borrows_and_names_the_field(launched):
    kernel = tuned_add()
    remember(kernel, Config(BLOCK=256, num_warps=8, num_stages=3), *vectors(), 1024)
    decision = kernel.why(*vectors(offset=1), 1024)
    assert (decision.found.rung, decision.found.config["BLOCK"]) == ("borrowed", 256)
    assert "x_ptr:class: not aligned | aligned" in decision.found.why
    assert "x_ptr:class: not aligned | aligned" in "".join(decision.passed)


@triton.jit
def scaled(x_ptr, mask_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, x if scale is None else x * scale, mask=at < n)


def test_none_a_float_and_a_bool_borrow_from_each_other_as_in_tritons_key_and_a_tensor_does_not(launched):
    kernel = triton_ops.autotune([SMALL, LARGE], ["n"], on_miss="default")(scaled)
    x, mask = torch.zeros(1024), torch.zeros(1024, dtype=torch.bool)
    remember(kernel, Config(BLOCK=256, num_warps=8, num_stages=3), x, None, 1024, None)
    for other in (0.5, True):
        decision = kernel.why(x, None, 1024, other, grid=grid)
        assert (decision.found.rung, decision.found.config["BLOCK"]) == ("borrowed", 256)
    assert kernel.why(x, mask, 1024, None, grid=grid).found.rung == "default"
    assert kernel.why(x, True, 1024, None, grid=grid).found.rung == "borrowed"


def test_a_record_is_borrowed_over_a_factor_of_two_and_no_farther(launched):
    kernel = tuned_add()
    remember(kernel, Config(BLOCK=256, num_warps=8, num_stages=3), *vectors(), 1024)
    assert kernel.why(*vectors(), 2048).found.rung == "borrowed"
    assert kernel.why(*vectors(), 512).found.rung == "borrowed"
    assert kernel.why(*vectors(), 2064).found.rung == "default"


def test_a_record_of_other_source_or_of_another_device_is_never_taken(launched):
    kernel, arguments = tuned_add(), (*vectors(), 1024)
    key = kernel.why(*arguments).key
    store = store_in(cache_folder(None))
    for changed in (
        replace(key, identity={**key.identity, "source": "other"}),
        replace(key, device={**key.device, "name": "B200"}),
    ):
        store.put(record(key=changed, winner=Config(BLOCK=256, num_warps=8, num_stages=3)))
    sources._sources.ladders.clear()
    decision = kernel.why(*arguments)
    assert decision.found.rung == "default"
    assert "the nearest differs in" in "".join(decision.passed)


def test_a_record_of_another_version_is_borrowed_where_nothing_tunes(launched):
    kernel, arguments = tuned_add(), (*vectors(), 1024)
    key = kernel.why(*arguments).key
    before = replace(key, identity={**key.identity, "triton": "3.0.0"})
    store_in(cache_folder(None)).put(record(key=before, winner=Config(BLOCK=256, num_warps=8, num_stages=3)))
    sources._sources.ladders.clear()
    decision = kernel.why(*arguments)
    assert decision.found.rung == "borrowed"
    assert "identity.triton" in decision.found.why


def test_buckets_share_one_winner(launched):
    kernel = tuned_add(buckets={"n": "pow2"})
    remember(kernel, Config(BLOCK=256, num_warps=8, num_stages=3), *vectors(), 1024)
    assert kernel.why(*vectors(), 1024).found.rung == "record"
    assert kernel.why(*vectors(), 528).found.rung == "record"
    assert kernel.why(*vectors(), 529).found.rung == "borrowed"
    assert kernel.why(*vectors(), 512).found.rung == "default"


def test_a_winner_of_a_bucket_is_borrowed_by_one_whose_ends_are_near(launched):
    kernel = tuned_add(buckets={"n": "upto:64,96,128,256"})
    remember(kernel, Config(BLOCK=256, num_warps=8, num_stages=3), *vectors(), 96)
    assert [kernel.why(*vectors(), n).found.rung for n in (80, 112, 48, 208)] == ["record", "borrowed"] + 2 * [
        "default"
    ]


def whole_blocks(configs, named, **_given):
    return [config for config in configs if named["n"] % config.kwargs["BLOCK"] == 0]


def test_a_winner_of_a_bucket_runs_only_where_its_problem_may_take_it(launched):
    kernel = tuned_add(buckets={"n": "pow2"}, prune_configs_by={"early_config_prune": whole_blocks})
    remember(kernel, Config(BLOCK=256, num_warps=8, num_stages=3), *vectors(), 1024)
    for n, block in ((1024, 256), (768, 256), (896, 128), (640, 128), (1024, 256)):
        kernel[grid](*vectors(), n)
        assert kernel.best_config.kwargs["BLOCK"] == block
    decision = kernel.why(*vectors(), 896)
    assert decision.found.rung == "default"
    assert decision.passed[0].startswith("record: the config (BLOCK=256 num_warps=8 num_stages=3) of its bucket")
    assert sorted(each.count.value for each in kernel.decisions) == [1, 1, 3]


def test_a_config_that_is_set_for_one_problem_of_a_bucket_is_not_that_of_the_others(launched):
    kernel = tuned_add(buckets={"n": "pow2"})
    kernel[grid](*vectors(), 1024)
    kernel.cache[(1000, *["torch.float32"] * 3)] = LARGE
    for n, config in ((1000, LARGE), (1024, SMALL), (1000, LARGE), (992, SMALL)):
        kernel[grid](*vectors(), n)
        assert kernel.best_config == config


def test_a_lockfile_pins_a_part_of_a_bucket(launched, tmp_path):
    kernel = tuned_add(buckets={"n": "pow2"})
    key = remember(kernel, Config(BLOCK=128, num_warps=4, num_stages=3), *vectors(), 1024)
    device = LockedDevice(alias="here", kind=key.device["kind"], name=key.device["name"])
    entry = LockEntry(kernel=key.kernel, device="here", config=Config(BLOCK=256, num_warps=8, num_stages=3),
                      problem={**key.problem, "n": 1024}, identity=key.identity)  # fmt: skip
    Lockfile((device,), (entry,)).write(tmp_path / "lock.json")
    triton_ops.use_lockfile(tmp_path / "lock.json")
    result = {n: kernel[grid](*vectors(), n).metadata.num_warps for n in (1008, 1024, 992)}
    assert result == {1008: 4, 1024: 8, 992: 4}


def test_a_lockfile_comes_before_records(launched, tmp_path):
    kernel, arguments = tuned_add(), (*vectors(), 1024)
    key = remember(kernel, Config(BLOCK=128, num_warps=4, num_stages=3), *arguments)
    device = LockedDevice(alias="here", kind=key.device["kind"], name=key.device["name"])
    entry = LockEntry(kernel=key.kernel, device="here", config=Config(BLOCK=256, num_warps=8, num_stages=3),
                      problem=key.problem, identity=key.identity)  # fmt: skip
    Lockfile((device,), (entry,)).write(tmp_path / "lock.json")
    triton_ops.use_lockfile(tmp_path / "lock.json")
    assert kernel.why(*arguments).found.rung == "lockfile"
    assert kernel[grid](*arguments).metadata.num_warps == 8
    unaligned = kernel.why(*vectors(offset=1), 1024)
    assert unaligned.found.rung == "lockfile"
    assert "borrowed" in unaligned.found.why
    triton_ops.use_lockfile(tmp_path / "lock.json", only=True)
    assert kernel.why(*vectors(), 2048).found.rung == "default"


def test_what_is_no_lockfile_is_refused_before_a_launch_asks_it():
    for use in (triton_ops.use_lockfile, lambda given: triton_ops.replaying(given).__enter__()):
        with pytest.raises(LockfileError, match="5 is no lockfile"):
            use(5)


def test_policies_by_argument_context_and_environment(launched, monkeypatch):
    kernel, arguments = tuned_add(on_miss=None), (*vectors(), 1024)
    monkeypatch.setenv("TRITON_OPS_ON_MISS", "error")
    with pytest.raises(UntunedError, match=r"no winner is known for .*add n=1024 float32"):
        kernel[grid](*arguments)
    with triton_ops.on_miss("default"):
        kernel[grid](*arguments)
        kernel[grid](*arguments)
    with pytest.raises(UntunedError):
        kernel[grid](*arguments)
    tuned_add(on_miss="queue")[grid](*arguments)
    remember(kernel, Config(BLOCK=256, num_warps=8, num_stages=3), *arguments)
    assert kernel[grid](*arguments).metadata.num_warps == 8


def test_a_wrong_policy_is_told_where_it_is_given_and_never_by_a_launch(launched, monkeypatch, caplog):
    with pytest.raises(SettingsError, match="on_miss is 'guess'; allowed are tune, race, expected, background, "):
        tuned_add(on_miss="guess")
    with pytest.raises(SettingsError), triton_ops.on_miss("guess"):
        pass
    monkeypatch.setenv("TRITON_OPS_ON_MISS", "guess")
    tuned_add(on_miss=None)[grid](*vectors(), 1024)
    assert "TRITON_OPS_ON_MISS is 'guess'" in caplog.text
    LockfileInUse.NOW = None
    monkeypatch.setenv("TRITON_OPS_ONMISS", "error")
    tuned_add()[grid](*vectors(), 1024)
    assert "the variable TRITON_OPS_ONMISS is not read; TRITON_OPS_ON_MISS is meant?" in caplog.text


def test_bad_decorators_are_told_at_once():
    with pytest.raises(SettingsError, match="key names 'm', which is no argument of add"):
        tuned_add(key=["m"])
    with pytest.raises(SettingsError, match="a list of names"):
        triton_ops.autotune([SMALL], "n")(add)
    with pytest.raises(SettingsError, match="restore_value"):
        tuned_add(restore_value=["z"])
    with pytest.raises(SettingsError):
        tuned_add(buckets={"n": "cubes"})
    for strange in ({"n": 5}, {5: "pow2"}, {"n": None}, "pow2", ["n"], {"out_ptr": "pow2"}, {"n[0]": "pow2"}):
        with pytest.raises(SettingsError, match="bucket"):
            tuned_add(buckets=strange)
    for strange in ({"cache_dir": 5}, {"isolate": "x"}, {"reference": 5, "outputs": ["out_ptr"]}, {"outputs": 5},
                    {"prune_configs_by": 5}, {"reset_to_zero": 5}):  # fmt: skip
        with pytest.raises(SettingsError, match=next(iter(strange))):
            tuned_add(**strange)
    with pytest.raises(SettingsError, match="has 'early_prune'; it takes early_config_prune, perf_model"):
        tuned_add(prune_configs_by={"early_prune": whole_blocks})
    with pytest.raises(SpaceError, match="add stands in the place of the configs"):
        triton_ops.autotune(add)
    with pytest.raises(SettingsError):
        tuned_add(effort="heroic")
    with pytest.raises(KernelTypeError):
        triton_ops.autotune([SMALL], [])(len)
    with pytest.raises(KernelTypeError, match="outputs"):
        tuned_add(reference=lambda **_: None)
    with pytest.raises(UnknownTunableError, match="add has no parameter 'BLOK' to be tuned"):
        tuned_add(configs=[triton.Config({"BLOK": 128})])
    with pytest.raises(UnknownTunableError, match="'BLOK'"):
        triton_ops.autotune({"BLOK": [1, 2]})(add)
    assert len(tuned_add(configs=[triton.Config({"BLOCK": 128, "waves_per_eu": 2})]).configs) == 1


def test_a_call_that_gives_what_is_tuned_is_refused(launched):
    with pytest.raises(ConfigCollisionError, match="BLOCK is tuned"):
        tuned_add()[grid](*vectors(), 1024, BLOCK=64)
    with pytest.raises(ConfigCollisionError, match="num_warps is tuned"):
        tuned_add()[grid](*vectors(), 1024, num_warps=2)


def test_a_winner_that_does_not_launch_gives_way_to_the_default(launched, caplog):
    kernel, arguments = tuned_add(), (*vectors(), 1024)
    huge = triton.Config({"BLOCK": 256}, num_warps=64)  # more threads than a block may have
    kernel = tuned_add(configs=[SMALL, huge])
    remember(kernel, Config(BLOCK=256, num_warps=64, num_stages=3), *arguments)
    assert kernel[grid](*arguments).metadata.num_warps == 4
    assert kernel[grid](*arguments).metadata.num_warps == 4
    assert caplog.text.count("does not launch") == 1
    assert [decision.found.rung for decision in kernel.decisions] == ["default"]


def test_many_threads_decide_each_problem_once_and_tune_one_after_the_other(launched, monkeypatch):
    tunes, running = [], []

    def tuned(call):
        tunes.append(call.called.label)
        running.append(call)
        assert len(running) == 1
        threading.Event().wait(0.02)
        running.remove(call)
        return triton_ops.TuningResult({"BLOCK": 256, "num_warps": 8, "num_stages": 3}, None)

    monkeypatch.setattr(deciding.KernelCall, "tuned", tuned)
    kernel, x, failures = tuned_add(on_miss="tune"), vectors(), []

    def calls():
        try:
            for turn in range(200):
                assert kernel[grid](*x, 1024 + 16 * (turn % 10)).metadata.num_warps == 8
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)

    threads = [threading.Thread(target=calls) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(tunes) == sorted(f"n={1024 + 16 * turn} float32" for turn in range(10))
    assert sum(decision.count.value for decision in kernel.decisions) == 16 * 200
    assert kernel.launches.decided._locks == {}


def test_a_tune_that_waits_for_a_thread_which_tunes_too_goes_on(launched, monkeypatch):
    monkeypatch.setattr(comparing, "TURN_S", 0.05)
    kernel, x, tunes = tuned_add(on_miss="tune"), vectors(), []

    def tuned(call):
        tunes.append(call.called.label)
        if len(tunes) == 1:
            other = threading.Thread(target=lambda: kernel[grid](*x, 2048))
            other.start()
            other.join()
        return triton_ops.TuningResult({"BLOCK": 256, "num_warps": 8, "num_stages": 3}, None)

    monkeypatch.setattr(deciding.KernelCall, "tuned", tuned)
    assert kernel[grid](*x, 1024).metadata.num_warps == 8
    assert tunes == ["n=1024 float32", "n=2048 float32"]


def test_a_worker_is_started_before_all_else_of_a_tune_that_has_one(monkeypatch):
    steps = []
    monkeypatch.setattr(comparing.evaluation, "start_one_early", steps.append)
    monkeypatch.setattr(comparing, "tune_request", lambda *_, **__: steps.append("tune"))
    for options in ({}, {"isolate": False}, {"effort": "expected"}):
        tuned_add(**options).launches.call_of(grid, (*vectors(), 1024), {}).tuned()
    assert steps == ["cpu", "tune", "tune", "tune"]


def test_a_tune_that_fails_leaves_the_default(launched, monkeypatch, caplog):
    def fails(call):
        raise TuningFailedError("no configuration worked")

    monkeypatch.setattr(deciding.KernelCall, "tuned", fails)
    kernel = tuned_add(on_miss="tune")
    for _ in range(2):
        assert kernel[grid](*vectors(), 1024).metadata.num_warps == 4
    assert caplog.text.count("tuning failed: no configuration worked") == 1


def test_an_own_benchmark_is_asked_by_tritons_own_loop(launched):
    asked = []

    def bench(call, quantiles):
        asked.append(quantiles)
        return [1.0 / len(asked)] * 3

    kernel = tuned_add(on_miss="tune", do_bench=bench)
    for _ in range(2):
        assert kernel[grid](*vectors(), 1024).metadata.num_warps == 8
    assert len(asked) == 2
    assert kernel.decisions[0].found.rung == "tuned"


def test_nothing_is_tuned_while_a_graph_is_captured(launched, monkeypatch):
    kernel, arguments = tuned_add(on_miss="tune"), (*vectors(), 1024)
    monkeypatch.setattr(deciding.KernelCall, "tuned", lambda *_: pytest.fail("it tuned"))
    monkeypatch.setattr(deciding, "capturing", lambda: True)
    assert kernel[grid](*arguments).metadata.num_warps == 4
    assert kernel[grid](*arguments).metadata.num_warps == 4
    monkeypatch.setattr(deciding, "capturing", lambda: False)
    monkeypatch.setattr(deciding.KernelCall, "tuned", lambda *_: triton_ops.TuningResult(
        {"BLOCK": 256, "num_warps": 8, "num_stages": 3}, None))  # fmt: skip
    assert kernel[grid](*arguments).metadata.num_warps == 8


def test_arguments_are_not_reset_while_a_graph_is_captured(launched, monkeypatch):
    kernel, (x, y, out) = tuned_add(reset_to_zero=["out_ptr"]), vectors()
    remember(kernel, Config(BLOCK=256, num_warps=8, num_stages=3), x, y, out, 1024)
    for capturing, left in ((True, 5.0), (True, 5.0), (False, 0.0), (False, 5.0), (True, 5.0)):
        monkeypatch.setattr(launching, "capturing", lambda found=capturing: found)
        assert kernel[grid](x, y, out.fill_(5.0), 1024).metadata.num_warps == 8
        assert out[0] == left


def test_a_grid_that_does_not_follow_the_block_is_pointed_out_where_it_is_written(launched):
    kernel = tuned_add()
    with pytest.warns(FixedGridWarning) as told:
        kernel[(8,)](*vectors(), 1024)
    assert [one.filename for one in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel[(8,)](*vectors(), 1024)  # it was pointed out
        tuned_add()[grid](*vectors(), 1024)
        assert kernel.why(*vectors(), 2048).missed  # no grid is given
    assert "stays as it is, and its programs are numbered by blocks that are tuned (BLOCK)" in str(told[0].message)


@pytest.mark.parametrize("function", [
    lambda meta: (8,), lambda meta: (triton.cdiv(meta["n"], 128),), lambda meta: (len(meta),),
])  # fmt: skip
def test_a_grid_function_that_looks_at_no_tunable_is_pointed_out(launched, function):
    kernel = tuned_add()
    with pytest.warns(FixedGridWarning, match=r"the grid \(\d+,\) of .*:add stays as it is") as told:
        kernel[function](*vectors(), 1024)
    assert [one.filename for one in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel[function](*vectors(2048), 2048)  # it was pointed out


@pytest.mark.parametrize("function", [
    grid, lambda meta: (triton.cdiv(10, meta.get("BLOCK")),), lambda meta: (dict(**meta)["BLOCK"],),
    lambda meta: (triton.cdiv(10, meta["BLOCK"]) if meta["n"] > 10 else 1,),
])  # fmt: skip
def test_a_grid_that_follows_the_block_is_not_pointed_out_where_extents_are_equal(launched, function):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned_add()[function](*vectors(16), 16)
    assert len(launched.made) == 1


@triton.jit
def add_rows(x_ptr, out_ptr, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (at[None, :] < n)
    tl.store(out_ptr + row[:, None] * n + at[None, :], tl.load(x_ptr + row[:, None] * n + at[None, :], inside), inside)


def grid_of_rows(meta):
    return (triton.cdiv(meta["rows"], meta["ROWS"]), triton.cdiv(meta["n"], meta["BLOCK"]))


def add_rows_warned(function, rows, configs):
    kernel = triton_ops.autotune([triton.Config(config) for config in configs], ["n"], on_miss="default")(add_rows)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        kernel[function](*vectors(8192)[:2], rows, 64)
    return [re.search(r"tuned \((.*?)\)", str(one.message))[1] for one in told]


ONES = [{"ROWS": 1, "BLOCK": 1}, {"ROWS": 4, "BLOCK": 8}]
LARGER = [{"ROWS": 4, "BLOCK": 8}, {"ROWS": 1, "BLOCK": 1}]


@pytest.mark.parametrize("configs", [ONES, LARGER])
@pytest.mark.parametrize("rows", [1, 128])
@pytest.mark.parametrize("function", [
    grid_of_rows, lambda meta: grid_of_rows(meta), partial(lambda of, meta: of(meta), grid_of_rows),
    lambda meta: [triton.cdiv(128, meta.get("ROWS")) * triton.cdiv(64, meta["BLOCK"]), 1],
    lambda meta: (min(triton.cdiv(128, meta["ROWS"]), 132), -(-64 // meta["BLOCK"])),
])  # fmt: skip
def test_a_grid_that_follows_blocks_is_not_pointed_out_with_any_default_and_extent(launched, function, rows, configs):
    assert add_rows_warned(function, rows, configs) == []


@pytest.mark.parametrize("configs", [ONES, LARGER])
def test_a_grid_function_that_copies_what_it_is_given_follows_a_block_of_one(launched, configs):
    assert add_rows_warned(lambda meta: grid_of_rows(dict(**meta)), 128, configs) == []


@pytest.mark.parametrize("configs", [ONES, LARGER])
@pytest.mark.parametrize(("function", "fixed"), [
    ((128, 64), "BLOCK, ROWS"),
    (lambda meta: (triton.cdiv(meta["rows"], meta["ROWS"]), 64), "BLOCK"),
    (partial(lambda n, meta: (128, triton.cdiv(n, meta["BLOCK"])), 64), "ROWS"),
])  # fmt: skip
def test_a_grid_that_does_not_follow_one_of_two_blocks_is_pointed_out(launched, function, fixed, configs):
    assert add_rows_warned(function, 128, configs) == [fixed]


def test_a_grid_that_need_not_follow_the_config_is_not_pointed_out(launched):
    warps = [triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)]
    x = torch.zeros(1024)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in ((8,), lambda meta: (8,)):
            for kernel in (tuned_kernels.persistent, tuned_kernels.persistent_while):
                triton_ops.autotune([SMALL, LARGE], ["n"], on_miss="default")(kernel)[each](x, 1024, 8)
            triton_ops.autotune(warps, ["n"], on_miss="default")(tuned_kernels.fill)[each](x, 1024, BLOCK=128)
    assert len(launched.made) == 6


@pytest.mark.parametrize("wrong", [(1.5,), ("a",), lambda meta: (1001 / meta["BLOCK"],), lambda meta: None])
def test_what_is_no_grid_is_refused_before_a_tune(launched, monkeypatch, wrong):
    monkeypatch.setattr(deciding.KernelCall, "tuned", lambda *_: pytest.fail("it tuned"))
    with pytest.raises(KernelTypeError, match=r"the grid of .*:add is"):
        tuned_add(on_miss="tune")[wrong](*vectors(), 1001)


@pytest.mark.parametrize("wrong", [None, 8, (), (1, 2, 3, 4), 2.5])
def test_what_is_no_grid_is_refused_before_and_after_the_first_launch(launched, wrong):
    kernel = tuned_add()
    for _ in range(2):
        with pytest.raises(KernelTypeError, match=r"the grid of .*:add is"):
            kernel[wrong](*vectors(), 1024)
        kernel[grid](*vectors(), 1024)
    with pytest.raises(KernelTypeError):
        kernel.why(*vectors(), 1024, grid=wrong)
    assert len(launched.made) == 2


@pytest.mark.skipif(gpu_missing() is None, reason="there is a GPU")
@pytest.mark.parametrize("policy", ["default", "tune"])
def test_arrays_of_numpy_are_a_device_error(policy):
    arrays = [one.numpy() for one in vectors()]
    with pytest.raises(DeviceError, match="x_ptr is a NumPy array, which is on the CPU"):
        tuned_add(on_miss=policy)[grid](*arrays, 1024)


def test_a_call_without_a_grid_is_refused_and_says_how_one_is_written():
    with pytest.raises(KernelTypeError, match=r"tuned_kernels:add is called without a grid") as caught:
        tuned_add()(*vectors(), 1024)
    assert caught.value.hint == "write add[grid](...)"


def test_a_decorated_kernel_is_named_where_it_is_tuned_without_a_grid():
    for kernel, below in ((tuned_add(), "TritonKernel(add.fn, "), (add, "TritonKernel(add, ")):
        with pytest.raises(
            KernelTypeError, match=r"^tests\.tuned_kernels:add is a Triton kernel without a grid"
        ) as caught:
            triton_ops.tune(kernel, vectors(), space={"BLOCK": [64]})
        assert below in caught.value.hint


def test_several_lockfiles_of_packages_with_one_answer_are_told_once(monkeypatch):
    monkeypatch.setattr(FollowedLockfile, "shared", lambda: (Lockfile((), ()), Lockfile((), ())))
    passed = tuned_add().why(*vectors(), 1024).passed
    assert len([why for why in passed if why.startswith("shipped:")]) == 1


def test_warmup_compiles_and_launches_nothing(launched):
    kernel = tuned_add()
    made = kernel.warmup(*vectors(), 1024, grid=(8,))
    assert [compiled.metadata.num_warps for compiled in made] == [4, 8]
    assert kernel.run(*vectors(), 1024, grid=(8,), warmup=True).metadata.num_warps == 4
    assert launched.made == []


def test_a_tensor_in_the_key_is_not_kept_alive(launched):
    kernel = triton_ops.autotune([SMALL, LARGE], ["x_ptr"], on_miss="default")(add)
    x, y, out = vectors()
    gone = weakref.ref(x)
    for _ in range(2):
        kernel[grid](x, y, out, 1024)
    launched.made.clear()
    del x
    gc.collect()
    assert gone() is None


def test_counts_outlive_a_kernel_and_its_decisions(launched):
    def total():
        return sum(row.launches for row in triton_ops.launches() if row.problem == "n=4112 float32")

    before, kernel = total(), tuned_add()
    for _ in range(3):
        kernel[grid](*vectors(4112), 4112)
    kernel.cache.clear()
    kernel[grid](*vectors(4112), 4112)
    assert total() == before + 4
    del kernel
    gc.collect()
    assert total() == before + 4


def test_no_launch_is_lost_when_a_problem_is_decided_anew(launched, monkeypatch):
    def total():
        return sum(row.launches for row in triton_ops.launches() if row.problem == "n=4128 float32")

    before, kernel, arguments = total(), tuned_add(on_miss=None), (*vectors(4128), 4128)
    for policy, calls in (("default", 3), ("queue", 2), ("default", 1)):
        with triton_ops.on_miss(policy):
            for _ in range(calls):
                kernel[grid](*arguments)
    assert total() == before + 6
    monkeypatch.setattr(deciding, "capturing", lambda: True)
    with triton_ops.on_miss("tune"):  # what is decided for the moment is launched as well
        kernel[grid](*arguments)
        kernel[grid](*arguments)
    assert total() == before + 8


def test_parameters_may_have_any_name(launched):
    kernel = triton_ops.autotune([SMALL, LARGE], ["config"], on_miss="default")(tuned_kernels.named_as_a_launch)
    entry, count = vectors()[:2]
    for _ in range(3):
        kernel[(8,)](entry, count, 3, 5, 7)
    assert len(launched.made) == 3
    for *_, arguments in launched.made:
        assert arguments[0] is entry
        assert arguments[1] is count
        assert arguments[2:] == (3, 5, 7, 128)


def launches_told_to_what_stands_in_for_a_gpu():
    told = []
    with standing_in(Target.named("sm_90"), lambda kernel, *_: told.append(kernel), "cpu", [Tuned]):
        decorated_kernels.add[(1,)](*[torch.zeros(4)] * 3, 4)
    return told == [decorated_kernels.add]


def test_a_launch_of_an_interpreted_kernel_is_told_to_what_stands_in_for_a_gpu(interpreted):
    assert interpreted(launches_told_to_what_stands_in_for_a_gpu)
