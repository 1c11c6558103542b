"""A decorated kernel does at every call what it does under Triton's own decorator, where that does not fail."""

from __future__ import annotations

import copy
import gc
import math
import os
import pickle
import re
import subprocess
import sys
import weakref
from pathlib import Path

import msgspec
import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton_ops  # noqa: E402
from tests import decorated_kernels  # noqa: E402
from tests.launches import launches_that_do_nothing  # noqa: E402
from tests.records import record  # noqa: E402
from tests.tuned_kernels import add, grid, scale  # noqa: E402
from triton_ops.dispatch import deciding  # noqa: E402
from triton_ops.dispatch.triton_autotuner import measures_itself  # noqa: E402
from triton_ops.exceptions import ConfigCollisionError, KernelTypeError, SettingsError, SpaceError  # noqa: E402
from triton_ops.records import (  # noqa: E402
    Misses,
    store_in,
)
from triton_ops.records.misses import flush_misses  # noqa: E402
from triton_ops.settings import cache_folder  # noqa: E402
from triton_ops.space import Config  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore::triton_ops.FixedGridWarning")]

SMALL, LARGE = triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256}, num_warps=8)
KEY = (1024, *["torch.float32"] * 3)


@pytest.fixture(autouse=True)
def launched(monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    with launches_that_do_nothing() as launches:
        yield launches


def ours(*args, **kwargs):
    return triton_ops.autotune(*args, **{"on_miss": "default", **kwargs})


def arguments(n=1024):
    return (*(torch.zeros(n) for _ in range(3)), n)


@pytest.mark.parametrize(
    ("configs", "key", "kernel", "how", "given"),
    [
        ([SMALL, SMALL, LARGE], ["n"], add, grid, {}),
        ((SMALL, LARGE), ("n",), add, [3, 2], {}),
        ([SMALL, LARGE], ["n"], add, lambda meta: [meta["BLOCK"]], {}),
        ([SMALL], [], add, (0,), {}),
        ([], ["n"], add, grid, {"BLOCK": 32}),
        (None, [], add, (1, 2, 3), {"BLOCK": 32}),
        ([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 64, "TWICE": True})], ["n"], scale, grid, {}),
    ],
)
def test_the_same_is_launched(launched, configs, key, kernel, how, given):
    x, y, out, n = arguments()
    positional = (x, y, out, n) if kernel is add else (x, out, n, 1)
    for decorator in (triton.autotune, ours):
        decorator(configs, key)(kernel)[how](*positional, **given)
    theirs, mine = ((*made[:2], made[-1][-3:]) for made in launched.made[-2:])
    assert mine == theirs


def test_no_key_is_an_empty_one():
    assert ours([SMALL, LARGE], None)(add)[grid](*arguments()).metadata.num_warps == 4


@pytest.mark.parametrize("hook", ["early_config_prune", "perf_model"])
def test_hooks_that_prune_are_given_all_that_triton_gives(hook):
    seen = []

    def prune(configs=None, named=None, **given):
        seen.append((configs, sorted(named or {}), sorted(given), given["grid"], given["warmup"]))
        return 1 if configs is None else configs

    x, y, out, n = arguments()
    for decorator in (triton.autotune, ours):
        kernel = decorator([SMALL, LARGE], ["n"], prune_configs_by={hook: prune, "top_k": 1})(add)
        kernel[grid](x, y, n=n, out_ptr=out)
    half = len(seen) // 2
    assert seen[:half] == seen[half:]


def test_pruning_that_leaves_nothing_is_an_error_with_a_name():
    kernel = ours([SMALL, LARGE], ["n"], prune_configs_by={"perf_model": lambda **_: 1, "top_k": 1})(add)
    kernel.configs_top_k = 0
    with pytest.raises(SpaceError, match=r"no config of .*add is left after pruning: top_k is 0"):
        kernel[grid](*arguments())


def test_mappings_may_stand_for_configs_and_nothing_else():
    kernel = ours([{"BLOCK": 128, "num_warps": 2}, LARGE], ["n"])(add)
    assert kernel[grid](*arguments()).metadata.num_warps == 2
    for strange in ("BLOCK", 5, None):
        with pytest.raises(SpaceError, match=r"in the list of configs is no triton.Config"):
            ours([SMALL, strange], ["n"])(add)


def test_a_copy_with_other_configs_and_the_original_launch_their_own():
    kernel = ours([SMALL, LARGE], ["n"])(add)
    kernel[grid](*arguments())
    changed = copy.copy(kernel)
    changed.configs = [LARGE, SMALL]
    for _ in range(2):
        assert changed[grid](*arguments()).metadata.num_warps == 8
        assert kernel[grid](*arguments()).metadata.num_warps == 4
    assert (kernel.best_config, changed.best_config) == (SMALL, LARGE)


@pytest.mark.parametrize(
    "put",
    [
        lambda cache: cache.__setitem__(KEY, LARGE),
        lambda cache: cache.update({KEY: LARGE}),
        lambda cache: cache.setdefault(KEY, LARGE),
        lambda cache: cache.__ior__({KEY: LARGE}),
    ],
)
def test_a_winner_that_others_put_is_launched_until_they_take_it_away(put):
    kernel = ours([SMALL, LARGE], ["n"])(add)
    put(kernel.cache)
    assert kernel[grid](*arguments()).metadata.num_warps == 8
    assert kernel.cache.popitem() == (KEY, LARGE)
    assert kernel[grid](*arguments()).metadata.num_warps == 4
    kernel.cache.clear()
    with pytest.raises(KeyError):
        kernel.cache.popitem()


def test_the_times_of_a_tune_are_shown_as_triton_shows_them():
    def bench(call, quantiles):
        call()
        return [1.0] * len(quantiles)

    for decorator in (triton.autotune, ours):
        kernel = decorator([SMALL, LARGE], ["n"], **{"on_miss": "tune"} if decorator is ours else {}, do_bench=bench)(
            add
        )
        kernel[grid](*arguments())
        assert kernel.configs_timings == {SMALL: [1.0] * 3, LARGE: [1.0] * 3}
        assert kernel.bench_time > 0


def test_asking_why_notes_no_miss_and_warns_of_nothing(caplog):
    kernel = ours([SMALL, LARGE], ["n"])(add)
    decision = kernel.why(*arguments(48), grid=grid)
    assert (decision.found.rung, "on_miss is default" in decision.found.why) == ("default", True)
    flush_misses()
    folder = Path(cache_folder(None))
    assert ([miss.key.label for miss in Misses(folder).read()], caplog.text) == ([], "")
    kernel[grid](*arguments(48))
    flush_misses()
    assert [miss.key.label for miss in Misses(folder).read()] == ["n=48 float32"]


def test_asking_why_says_what_a_launch_would_do(monkeypatch):
    """The same record is no answer where a tune is asked for, since it was found among other configs."""
    kernel = ours([SMALL, LARGE], ["n"])(add)
    key = kernel.why(*arguments(), grid=grid).key
    store_in(cache_folder(None)).put(record(key=key, winner=Config(BLOCK=256, num_warps=8, num_stages=3)))
    message = {}
    for policy in ("default", "tune", "error", "queue"):
        result = ours([SMALL, LARGE], ["n"], on_miss=policy)(add).why(*arguments(), grid=grid)
        message[policy] = (result.found.rung, result.found.why)
    assert {policy: rung for policy, (rung, _) in message.items()} == {
        "default": "record", "tune": "default", "error": "record", "queue": "record",
    }  # fmt: skip
    assert message["tune"][1].endswith("on_miss is tune; a launch tunes it first")
    unknown = ours([SMALL, LARGE], ["n"], on_miss="error")(add).why(*arguments(4096), grid=grid)
    assert unknown.found.why.endswith("on_miss is error; a launch raises UntunedError")
    measured = ours([SMALL, LARGE], ["n"], on_miss="tune", do_bench=lambda call, quantiles: [1.0] * 3)(add)
    assert "by Triton's own loop" in measured.why(*arguments(4096), grid=grid).found.why
    monkeypatch.setattr(deciding, "capturing", lambda: True)
    assert "while a CUDA graph is captured" in measured.why(*arguments(4096), grid=grid).found.why


def test_a_record_answers_for_the_contents_that_the_decorator_names():
    options = {}
    for contents in (None, [(1, {}), (3, {"x_ptr": "zeros"})]):
        kernel = ours([SMALL, LARGE], ["n"], on_miss="tune", contents=contents)(add)
        call = kernel.launches.call_of(grid, arguments(), {})
        options[contents is None] = call.request.contents_fingerprint
        winner = record(key=call.key, space=call.space.fingerprint, winner=call.space.default_config)
        store_in(cache_folder(None)).put(winner.with_contents(options[contents is None], []))
        assert kernel.why(*arguments(), grid=grid).found.rung == "record"
    assert options[True] is None
    assert options[False]
    other = ours([SMALL, LARGE], ["n"], on_miss="tune", contents=[(1, {"x_ptr": "zeros"})])(add)
    decision = other.why(*arguments(), grid=grid)
    assert decision.passed[1] == "record: there is one, but it was over other contents"
    scalar = ours([SMALL, LARGE], ["n"], contents=[(1, {"n": [3]})])(add).launches.call_of(grid, arguments(), {})
    with pytest.raises(SettingsError, match="no tensor argument"):
        _ = scalar.request


@pytest.mark.filterwarnings("ignore:warmup, rep, and use_cuda_graph")
def test_deprecated_options_of_a_kernel_that_is_taken_over_do_not_ask_for_tritons_own_loop():
    for given, own in (({"warmup": 5}, False), ({"do_bench": len}, True), ({}, False)):
        theirs = triton.autotune([SMALL, LARGE], ["n"], **given)(add)
        assert bool(measures_itself(theirs)) is own


def test_a_kernel_that_was_taken_over_is_not_kept_alive():
    with triton_ops.install(on_miss="default"):
        theirs = triton.runtime.autotuner.Autotuner(add, add.arg_names, [SMALL, LARGE], ["n"], None, None)
        theirs[grid](*arguments())
        assert theirs.best_config == SMALL
        gone = weakref.ref(theirs)
        del theirs
        gc.collect()
        assert gone() is None


def test_a_kernel_in_a_module_is_pickled_by_name_and_copied_with_what_holds_it():
    for kernel in (decorated_kernels.add, decorated_kernels.scale.fn):
        assert pickle.loads(pickle.dumps(kernel)) is kernel
    with pytest.raises(pickle.PicklingError, match="another object stands under that name"):
        pickle.dumps(ours([SMALL, LARGE], ["n"])(add))
    holder = copy.deepcopy({"kernel": ours([SMALL, LARGE], ["n"])(add), "weights": torch.zeros(3)})
    assert holder["kernel"][grid](*arguments()).metadata.num_warps == 4
    assert holder["kernel"].fn is add


OF_A_SCRIPT = """
import copy, pickle, sys
import cloudpickle, torch, triton, triton.language as tl, triton_ops
TWO = tl.constexpr(2)
@triton.jit
def twice(x):
    return x * TWO
def large_first(configs, named_args, **_):
    return configs[::-1]
@triton_ops.autotune(
    [triton.Config({"B": size}) for size in (16, 32)], ["n"], {"early_config_prune": large_first}, on_miss="default"
)
@triton.jit
def scale(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, twice(tl.load(x + i, mask=i < n)), mask=i < n)
if __name__ == "__main__":
    contents = [pickle.dumps(scale), cloudpickle.dumps({"kernel": scale})]
    assert pickle.loads(contents[0]) is scale, "the script has it"
    kind, large_first.__code__ = type(scale), (lambda configs, named_args, **_: configs).__code__
    changed, scale = scale, "something else"
    for content in contents:
        kernel = pickle.loads(content)
        kernel = kernel["kernel"] if isinstance(kernel, dict) else kernel
        x, o = torch.rand(100), torch.empty(100)
        kernel[lambda given: (triton.cdiv(100, given["B"]),)](x, o, 100)
        assert torch.equal(o, 2 * x) and type(kernel) is kind and kernel is not changed
        print(kernel.best_config.kwargs["B"], kernel.keys, kernel.options == changed.options)
"""


@pytest.mark.processes
def test_a_kernel_of_a_script_is_pickled_by_value(tmp_path):
    (tmp_path / "script.py").write_text(OF_A_SCRIPT)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(triton_ops.__file__).parents[1])}
    done = subprocess.run([sys.executable, tmp_path / "script.py"], env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == 2 * ["32 ['n'] True"], done.stderr


def test_a_pickle_of_a_kernel_that_is_gone_says_which(monkeypatch):
    content = pickle.dumps(decorated_kernels.add)
    monkeypatch.setattr(decorated_kernels, "add", None)
    with pytest.raises(KernelTypeError, match=r"the decorated kernel .*decorated_kernels:add, and there is none here"):
        pickle.loads(content)


@pytest.mark.parametrize("top_k", [-1, 0, -0.5, 0.0, 1.5, math.nan, math.inf, "1", None])
def test_a_number_of_configs_out_of_range_is_refused(top_k):
    with pytest.raises(SettingsError, match=re.escape(f"top_k of prune_configs_by is {top_k!r}")):
        ours([SMALL, LARGE], ["n"], {"perf_model": lambda **_: 1.0, "top_k": top_k})(add)


def test_a_wrong_call_is_told_by_the_kernel_s_name(launched):
    kernel = ours([SMALL, LARGE], ["n"])(add)
    for _ in range(2):
        with pytest.raises((TypeError, ConfigCollisionError)):  # the fifth gives a value to what is tuned
            kernel[grid](*arguments(), 1, 2, 3)
        with pytest.raises(TypeError):
            kernel[grid](*arguments(), n=5)
        kernel[grid](*arguments())
    with pytest.raises(TypeError, match=r"add\(\) got multiple values for argument 'n'"):
        kernel[grid](*arguments(), n=5)
    assert len(launched.made) == 2


@pytest.mark.parametrize("result", [None, 5, (), (1, 2, 3, 4)])
def test_a_grid_function_that_returns_no_grid_is_told_before_and_after_a_launch(launched, result):
    kernel = ours([SMALL, LARGE], ["n"])(add)
    for _ in range(2):
        with pytest.raises(KernelTypeError, match="is a function that returned"):
            kernel[lambda meta: result](*arguments())
        kernel[grid](*arguments())


def test_numbers_of_numpy_are_the_numbers_that_they_are(tmp_path, monkeypatch):
    """In a key, in a grid, and in what is noted of a miss."""
    numpy = pytest.importorskip("numpy")
    kernel = ours([SMALL, LARGE], ["TWICE"])(scale)
    x, _, out, n = arguments()
    values = (numpy.int64(5), 5, numpy.int64(6))
    keys = [kernel.why(x, out, n, 1, value, grid=(numpy.int64(2),)).key for value in values]
    assert (keys[0].id == keys[1].id, keys[1].id == keys[2].id) == (True, False)
    half, same = (kernel.why(x, out, n, 1, value, grid=(2,)).key for value in (numpy.float64(2.5), 2.5))
    assert (half.id, type(half.problem["TWICE"])) == (same.id, float)
    call = kernel.launches.call_of((numpy.int64(2),), (x, out, n, 1, numpy.float64(2.5)), {}).noted
    assert msgspec.json.decode(msgspec.json.encode(call))["grids"] == [[2], [2]]
