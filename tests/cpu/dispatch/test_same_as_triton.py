"""What programs do with an autotuned kernel gives the same under Triton, decorated while installed, and taken over.

Each behaviour is run with Triton alone, with a kernel that is decorated while this package is installed, and with one
of Triton's own decorator that is launched then. What differs is listed in `docs/guides/autotune.md`.
"""

from __future__ import annotations

import copy
import pickle
import threading
from collections import OrderedDict
from unittest import mock

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton_ops  # noqa: E402
from tests import tuned_kernels  # noqa: E402
from tests.launches import launches_that_do_nothing  # noqa: E402
from tests.tuned_kernels import add, grid  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore::triton_ops.FixedGridWarning")]
Autotuner, TRITONS = triton.runtime.autotuner.Autotuner, triton.autotune
BEHAVIOURS = []


def behaviour(function):
    BEHAVIOURS.append(function)
    return function


class Kernels:
    """What a behaviour is given: kernels of its way, which Triton's loop tunes by a function that measures."""

    def __init__(self, launches, decorator):
        self.launches, self.decorator, self.measured = launches, decorator, []

    def bench(self, call, quantiles):
        call()
        self.measured.append(self.launches.made[-1][-1][-1])
        return [1.0] * len(quantiles)

    def __call__(self, *blocks, **options):
        configs = [one if isinstance(one, triton.Config) else triton.Config({"BLOCK": one}) for one in blocks]
        return self.decorator(configs, ["n"], **{"do_bench": self.bench, **options})(add)

    def of(self, kind, *blocks, **options):
        configs = [triton.Config({"BLOCK": block}) for block in blocks]
        return kind(add, add.arg_names, configs, ["n"], None, None, **{"do_bench": self.bench, **options})

    def launch(self, kernel, *sizes, **more):
        """Launch for each size, and tell with which blocks."""
        blocks = []
        for n in sizes or (1024,):
            kernel[grid](*(torch.zeros(4096) for _ in range(3)), n, **more)
            blocks.append(self.launches.made[-1][-1][-1])
        return blocks


@behaviour
def what_a_kernel_has_after_a_launch(kernels):
    kernel = kernels(64, 128)
    kernels.launch(kernel)
    names = ("nargs", "best_config", "bench_time", "configs_timings", "cache", "do_bench", "restore_value", "num_reps")
    return [hasattr(kernel, name) for name in names], kernel.nargs, list(kernel.cache), len(kernel.configs_timings)


@behaviour
def configs_are_the_ones_of_the_list(kernels):
    kernel = kernels(64, 128)
    kernels.launch(kernel)
    return kernel.best_config is kernel.configs[0], next(iter(kernel.cache.values())) is kernel.configs[0]


@behaviour
def a_list_of_one_in_place_of_the_list(kernels):
    kernel = kernels(64, 128)
    before = kernels.launch(kernel)
    kernel.configs = [triton.Config({"BLOCK": 256})]
    return before, kernels.launch(kernel), kernels.launch(kernel), len(kernel.cache)


@behaviour
def a_list_of_two_in_place_of_the_list(kernels):
    kernel = kernels(64, 128)
    kernels.launch(kernel)
    kernel.configs = [triton.Config({"BLOCK": block}) for block in (256, 512)]
    return kernels.launch(kernel, 1024, 2048, 1024)


@behaviour
def the_list_changed_in_place(kernels):
    kernel = kernels(64, 128)
    result = [kernels.launch(kernel)]
    kernel.configs[:] = [triton.Config({"BLOCK": 256})]
    result += [kernels.launch(kernel)]
    kernel.configs[0] = triton.Config({"BLOCK": 512})
    result += [kernels.launch(kernel)]
    kernel.configs.append(triton.Config({"BLOCK": 32}))
    return [*result, kernels.launch(kernel, 1024, 2048)]


@behaviour
def a_config_changed_in_place(kernels):
    kernel = kernels(64, 128)
    result = [kernels.launch(kernel, 1024, 2048)]
    kernel.configs[0].kwargs["BLOCK"] = 32
    result += [kernels.launch(kernel, 1024, 2048, 1024)]
    kernel.best_config.num_warps = 2
    result += [kernel[grid](*(torch.zeros(4096) for _ in range(3)), 1024).metadata.num_warps]
    hooked = []
    kernel.configs[0].pre_hook = lambda given: hooked.append(given["BLOCK"])
    return [*result, kernels.launch(kernel, 1024, 1024), hooked]


@behaviour
def winners_set_taken_away_and_cleared(kernels):
    kernel = kernels(64, 128)
    result = [kernels.launch(kernel, 1024, 2048)]
    kernel.cache[next(iter(kernel.cache))] = triton.Config({"BLOCK": 256})
    result += [kernels.launch(kernel, 1024, 2048)]
    kernel.cache.pop(next(iter(kernel.cache)))
    result += [kernels.launch(kernel, 1024, 2048)]
    kernel.cache.clear()
    return [*result, kernels.launch(kernel, 1024), len(kernel.cache), kernels.measured]


@behaviour
def a_cache_that_is_pickled_and_put_back(kernels):
    kernel = kernels(64, 128)
    kernels.launch(kernel)
    kernel.cache[next(iter(kernel.cache))] = kernel.configs[1]
    kept = pickle.dumps(kernel.cache), copy.copy(kernel.cache), copy.deepcopy(kernel.cache)
    other, result = kernels(64, 128), []
    other.cache.update(pickle.loads(kept[0]))
    for cache in kept[1:]:
        result += [kernels.launch(other, 1024, 2048), type(cache)]
        other.cache = cache
    other.cache |= {next(iter(cache)): other.configs[0]}
    return result, kernels.launch(other), isinstance(kernel.cache, dict), kernel.cache == kept[1]


class Reused(dict):
    """Answers with its first entry for any key, once there is one."""

    def __contains__(self, key):
        return len(self) > 0

    def __getitem__(self, key):
        return next(iter(self.values()))


class Bounded(OrderedDict):
    """Keeps two entries, those that were set last."""

    def __setitem__(self, key, config):
        super().__setitem__(key, config)
        while len(self) > 2:
            self.popitem(last=False)


class Asked:
    """No dict at all, and counts how often it is asked."""

    def __init__(self):
        self.found, self.asked = {}, 0

    def __contains__(self, key):
        self.asked += 1
        return key in self.found

    def __getitem__(self, key):
        return self.found[key]

    def __setitem__(self, key, config):
        self.found[key] = config

    def __len__(self):
        return len(self.found)

    keep = None


@behaviour
def a_cache_that_reuses(kernels):
    kernel = kernels(64, 128)
    kernels.launch(kernel)
    kernel.cache[next(iter(kernel.cache))] = kernel.configs[1]
    kernel.cache = cache = Reused(kernel.cache)
    return kernels.launch(kernel, 1024, 2048, 3072), kernel.cache is cache, len(cache), "any" in kernel.cache


@behaviour
def a_cache_with_a_bound(kernels):
    kernel = kernels(64, 128)
    kernel.cache = cache = Bounded()
    result = kernels.launch(kernel, *(1024, 2048, 3072, 1024, 1024))
    return result, kernel.cache is cache, list(cache), kernels.measured


@behaviour
def a_cache_that_is_no_dict(kernels):
    kernel = kernels(64, 128)
    kernel.cache = cache = Asked()
    result = kernels.launch(kernel, *(1024,) * 5)
    return result, kernel.cache is cache, len(cache), cache.asked >= 5


@behaviour
def hooks_of_a_config(kernels):
    seen = []
    hooked = [triton.Config({"BLOCK": 64}, pre_hook=lambda given: seen.append((sorted(given), given["grid"] is grid)))]
    kernels.launch(kernels(*hooked), 1024, 1024)
    alone, (first, *_) = len(seen), seen
    kernels.launch(kernels(*hooked, triton.Config({"BLOCK": 128}, pre_hook=hooked[0].pre_hook)), 1024, 1024)
    return first, seen[-1], alone, len(seen)


@behaviour
def hooks_of_the_decorator(kernels):
    seen = []
    kernel = kernels(
        64, 128, pre_hook=lambda given, reset_only=False: seen.append((reset_only, "grid" in given)),
        post_hook=lambda given, exception: seen.append("after"),
    )  # fmt: skip
    kernels.launch(kernel, 1024, 1024)
    return seen


@behaviour
def arguments_of_functions_that_prune(kernels):
    seen = []

    def early(configs, named, **given):
        seen.append((len(configs), sorted(named), sorted(given)))
        return configs[1:]

    kernel = kernels(64, 128, 256, prune_configs_by={"early_config_prune": early})
    return kernels.launch(kernel, 1024, 1024), seen, kernels.measured


@behaviour
def a_class_that_prunes(kernels):
    class Theirs(Autotuner):
        def prune_configs(self, kwargs):
            return [config for config in super().prune_configs(kwargs) if config.kwargs["BLOCK"] != 64 and self.nargs]

    return kernels.launch(kernels.of(Theirs, 64, 128, 256)), kernels.measured


@behaviour
def a_class_that_measures(kernels):
    class Theirs(Autotuner):
        def _bench(self, *args, config, **meta):
            measured.append((config.kwargs["BLOCK"], sorted(self.nargs), sorted(meta)))
            return [-float(config.kwargs["BLOCK"])] * 3

    measured = []
    return kernels.launch(kernels.of(Theirs, 64, 128, do_bench=None), 1024, 1024), measured


@behaviour
def a_class_that_knows_winners(kernels):
    class Theirs(Autotuner):
        def check_disk_cache(self, tuning_key, configs, bench_fn):
            asked.append((tuning_key, len(configs)))
            if tuning_key[0] == 1024:
                self.cache[tuning_key] = configs[-1]
                return True
            bench_fn()
            asked.append((self.cache[tuning_key].kwargs["BLOCK"], len(self.configs_timings)))
            return False

    asked = []
    kernel = kernels.of(Theirs, 64, 128, cache_results=True)
    return kernels.launch(kernel, 1024, 2048, 1024, 2048), asked


@behaviour
def parts_that_are_put_on_a_kernel(kernels):
    kernel, measured = kernels(64, 128, 256, do_bench=None), []
    kernel.prune_configs = lambda kwargs: kernel.configs[1:]
    kernel.do_bench = lambda call, quantiles: (call(), measured.append(1), [-float(len(measured))] * 3)[-1]
    return kernels.launch(kernel), measured


@behaviour
def a_class_that_changes_its_attributes_around_a_run(kernels):
    class Theirs(Autotuner):
        def run(self, *args, **kwargs):
            before, self.num_warmups = self.num_warmups, 1
            try:
                return super().run(*args, **kwargs)
            finally:
                self.num_warmups = before

    kernel = kernels.of(Theirs, 64, 128)
    return kernels.launch(kernel, 1024, 1024), kernels.measured, kernel.num_warmups


@behaviour
def configs_that_pruning_makes_or_changes(kernels):
    def early(configs, named, **given):
        for config in configs:
            config.kwargs["BLOCK"] = min(config.kwargs["BLOCK"], named["n"])
        return configs

    changed = kernels(64, 128, prune_configs_by={"early_config_prune": early})
    own = [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 16})]
    made = kernels(64, 128, prune_configs_by={"early_config_prune": lambda *_, **__: own})
    return kernels.launch(changed, 1024, 32, 1024), kernels.launch(made, 1024, 1024), len(made.configs)


@behaviour
def a_class_that_runs_by_itself(kernels):
    class Theirs(Autotuner):
        def run(self, *args, **kwargs):
            self.nargs, key = dict(zip(self.arg_names, args, strict=False)), args[3]
            if key not in self.cache:
                self.cache[key] = [(self._bench(*args, config=one, **kwargs), one)[1] for one in self.configs][-1]
            return self.fn.run(*args, **kwargs, **self.cache[key].all_kwargs())

    kernel = kernels.of(Theirs, 64, 128)
    return kernels.launch(kernel, 1024, 1024), list(kernel.cache)


@behaviour
def a_function_in_the_place_of_run(kernels):
    kernel, original, seen = kernels(64, 128), Autotuner.run, []

    def run(self, *args, **kwargs):
        seen.append((self is kernel, sorted(kwargs)))
        return original(self, *args, **kwargs)

    result = [kernels.launch(kernel)]
    with mock.patch.object(Autotuner, "run", run):
        result += [kernels.launch(kernel, 1024, 2048)]
    with mock.patch.object(Autotuner, "run", autospec=True) as nothing:
        kernels.launch(kernel)
    return [*result, kernels.launch(kernel), seen, nothing.call_count, len(kernel.cache), kernel.best_config.kwargs]


@behaviour
def a_run_that_is_put_on_a_kernel_or_its_class(kernels):
    kernel, seen = kernels(64, 128), []
    result, held = [kernels.launch(kernel)], kernel[grid]
    with mock.patch.object(kernel, "run", wraps=kernel.run) as wrapped:
        result += [kernels.launch(kernel, 1024, 2048)]
        held(*(torch.zeros(4096) for _ in range(3)), 1024)
    original = type(kernel).run

    def run(self, *args, **kwargs):
        seen.append(sorted(kwargs))
        return original(self, *args, **kwargs)

    with mock.patch.object(type(kernel), "run", run):
        result += [kernels.launch(kernel, 1024, 2048)]
    kernel.run = lambda *args, **kwargs: kernel.fn.run(*args, **kwargs, BLOCK=512)
    return [*result, kernels.launch(kernel)], wrapped.call_count, seen


def launched_scales(kernels, kernel, calls):
    """Launch `scale` for each of the calls' arguments and grids, and tell with which constants."""
    result = []
    for of, more in calls:
        kernel[of](torch.zeros(4096), torch.zeros(4096), 1024, 1, **more)
        result.append(kernels.launches.made[-1][-1][-3:])
    return result


@behaviour
def a_default_that_is_given_is_another_key(kernels):
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    options = {"do_bench": kernels.bench, "reset_to_zero": ["out_ptr"]}
    kernel = kernels.decorator(configs, ["n", "TWICE"], **options)(tuned_kernels.scale)
    calls, left = [(grid, {}), (grid, {"TWICE": False})], []
    for of, more in [*calls, *calls]:
        out = torch.full((4096,), 5.0)
        kernel[of](torch.zeros(4096), out, 1024, 1, **more)
        left.append(out[0].item())
    kernel.cache[list(kernel.cache)[1]] = triton.Config({"BLOCK": 512})
    return list(kernel.cache), left, launched_scales(kernels, kernel, [*calls, *calls])


@behaviour
def what_heuristics_are_given(kernels):
    seen = {"a grid": lambda given: callable(given.get("grid")), "no default": lambda given: "TWICE" not in given,
            "no other's": lambda given: given.pop("n") == 1024, "no launch": lambda given: given["warmup"]}  # fmt: skip
    configs, result = [triton.Config({"BLOCK": block}) for block in (64, 128)], []
    for heuristic in seen.values():
        around = triton.heuristics({"EVEN": heuristic})(tuned_kernels.scale)
        kernel = kernels.decorator(configs, ["n"], do_bench=kernels.bench)(around)
        calls = [(of, more) for of in (grid, (4,)) for more in ({}, {"TWICE": False})]
        result += launched_scales(kernels, kernel, [*calls, *calls, *calls])
    return result


@behaviour
def heuristics_that_are_changed(kernels):
    around = triton.heuristics({"EVEN": lambda given: True})(tuned_kernels.scale)
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    kernel, call = kernels.decorator(configs, ["n"], do_bench=kernels.bench)(around), (grid, {})
    result, original, seen = launched_scales(kernels, kernel, [call] * 2), type(around).run, []
    around.values["EVEN"] = lambda given: False
    result += launched_scales(kernels, kernel, [call] * 2)
    around.values["TWICE"] = lambda given: True
    result += launched_scales(kernels, kernel, [call] * 2)

    def run(self, *args, **kwargs):
        seen.append(sorted(kwargs))
        return original(self, *args, **kwargs)

    with mock.patch.object(type(around), "run", run):
        result += launched_scales(kernels, kernel, [call] * 2)
    around.run = lambda *args, **kwargs: run(around, *args, **kwargs)
    return result + launched_scales(kernels, kernel, [call] * 2), seen


@behaviour
def another_kernel_and_another_function_that_runs_it(kernels):
    kernel, original, seen = kernels(64, 128), type(add).run, []

    def run(self, *args, **kwargs):
        seen.append(sorted(kwargs))
        return original(self, *args, **kwargs)

    result = [kernels.launch(kernel, 1024, 1024)]
    with mock.patch.object(type(add), "run", run):
        result += [kernels.launch(kernel, 1024, 1024)]
    with mock.patch.object(add, "run", lambda *args, **kwargs: run(add, *args, **kwargs)):
        result += [kernels.launch(kernel, 1024)]
    kernel.fn = tuned_kernels.add_traced
    result += [kernels.launch(kernel, 1024, 1024), [made[0] for made in kernels.launches.made[-2:]]]
    kernel.keys = ["n", "BLOCK"]
    return [*result, seen, kernels.launch(kernel, 1024)]


@behaviour
def compiled_kernels_that_are_dropped_and_a_kernel_that_is_debugged(kernels):
    kernel, loaded = kernels(64, 128), kernels.launches.loaded
    kernels.launch(kernel, 1024, 1024)
    before = len(loaded)
    add.device_caches.clear()
    kernels.launch(kernel, 1024, 1024)
    result, was = [len(loaded) - before], add.debug
    try:
        add.debug = True
        result += [kernel[grid](*(torch.zeros(4096) for _ in range(3)), 1024).metadata.debug]
    finally:
        add.debug = was
    for debug in (True, False, False):
        with mock.patch.object(triton.knobs.runtime, "debug", debug):
            result += [kernel[grid](*(torch.zeros(4096) for _ in range(3)), 1024).metadata.debug]
    return [*result, kernel[grid](*(torch.zeros(4096) for _ in range(3)), 1024).metadata.debug]


@behaviour
def attributes_set_later(kernels):
    kernel, seen = kernels(64, 128, 256), []
    kernels.launch(kernel)
    kernel.early_config_prune = lambda configs, named, **given: seen.append(sorted(named)) or configs[1:]
    kernel.reset_to_zero, kernel.restore_value = ["out_ptr"], []
    kernel.pre_hook = lambda given, reset_only=False: seen.append(reset_only)
    return kernels.launch(kernel, 1024, 2048, 2048), seen


@behaviour
def a_run_that_chooses_by_one_config(kernels):
    kernel, original = kernels(64, 128, 256), Autotuner.run

    def run(self, *args, **kwargs):
        before, self.configs = self.configs, [self.configs[args[3] // 1024 % 3]]
        try:
            return original(self, *args, **kwargs)
        finally:
            self.configs = before

    with mock.patch.object(Autotuner, "run", run):
        result = kernels.launch(kernel, 1024, 2048, 3072, 1024)
    return result, len(kernel.cache), kernels.measured


@behaviour
def names_that_config_and_call_give(kernels):
    for kind, given in ((ValueError, {"BLOCK": 32}), (TypeError, {"num_warps": 8})):
        with pytest.raises(kind):
            kernels.launch(kernels(64, 128), **given)
    with pytest.raises(TypeError):
        kernels.launch(kernels(64), BLOCK=32)


@behaviour
def parameters_of_any_name(kernels):
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    kernel = kernels.decorator(configs, ["key"], do_bench=kernels.bench)(tuned_kernels.named_as_an_autotuner)
    x, y = torch.zeros(64), torch.zeros(64)
    for _ in range(3):
        kernel[(2,)](x, named=y, configs=3, key=5, args=7)
    return [made[-1][2:] for made in kernels.launches.made[-2:]]


@behaviour
def eight_threads(kernels):
    kernel, errors = kernels(64, 128), []

    def launches(place):
        try:
            kernels.launch(kernel, 1024 + 16 * (place % 3))
        except Exception as error:  # noqa: BLE001 - told below
            errors.append(error)

    kernels.launch(kernel, 1024, 1040, 1056)
    threads = [threading.Thread(target=launches, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors, len(kernel.cache)


@behaviour
def what_runs_no_kernel(kernels):
    class Kernel:
        fn = staticmethod(lambda: None)

        def run(self, **given):
            ran.append(given["BLOCK"])

    ran, configs = [], [triton.Config({"BLOCK": block}) for block in (1, 2)]
    tuner = Autotuner(Kernel(), [], configs, [], None, None, do_bench=lambda call, quantiles: (call(), [1.0] * 3)[1])
    tuner.run()
    return ran, len(tuner.cache)


@pytest.mark.parametrize("way", ["installed", "taken over"])
@pytest.mark.parametrize("function", BEHAVIOURS, ids=lambda function: function.__name__)
def test_the_same_is_seen(function, way, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    with launches_that_do_nothing() as launches:
        theirs = function(Kernels(launches, TRITONS))
        with triton_ops.install(on_miss="tune"):
            ours = function(Kernels(launches, triton.autotune if way == "installed" else TRITONS))
    assert ours == theirs


@pytest.mark.parametrize("how", ["installed later", "decorated", "a space"])
def test_what_stood_in_the_place_of_run_before_sees_the_launches(how, monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    original, seen = Autotuner.run, []
    monkeypatch.setattr(
        Autotuner, "run", lambda self, *args, **more: (seen.append(1), original(self, *args, **more))[1]
    )
    with launches_that_do_nothing() as launches:
        kernels = Kernels(launches, TRITONS if how == "installed later" else triton_ops.autotune)
        if how == "installed later":
            with triton_ops.install(on_miss="default"):
                assert kernels.launch(kernels(64, 128), 1024, 1024) == [64, 64]
        elif how == "decorated":
            assert kernels.launch(kernels(64, 128, on_miss="tune"), 1024, 1024) == [64, 64]
        else:
            kernel = triton_ops.autotune({"BLOCK": [64, 128]}, ["n"], on_miss="default")(add)
            assert kernels.launch(kernel, 1024, 1024) == [64, 64]
        monkeypatch.undo()
        assert kernels.launch(kernels(64, 128), 1024) == [64]
    assert len(seen) == 2


def test_a_cache_is_filled_as_triton_fills_it_where_nothing_is_tuned():
    with launches_that_do_nothing() as launches, triton_ops.install(on_miss="default"):
        for decorator in (TRITONS, triton.autotune):
            kernels = Kernels(launches, decorator)
            kernel = kernels(64, 128)
            kernel.cache = cache = Asked()
            assert kernels.launch(kernel, 1024, 1024) == [64, 64]
            assert list(cache.found.values()) == [kernel.configs[0]]


class Halved(triton.Config):
    """A config that gives launches other values than it is made of."""

    def all_kwargs(self):
        values = super().all_kwargs()
        return {**values, "BLOCK": values["BLOCK"] // 2, "num_warps": 2, "num_ctas": 1}


def test_a_config_of_a_class_that_gives_its_own_values_is_launched_with_them():
    with launches_that_do_nothing() as launches, triton_ops.install(on_miss="default"):
        for decorator in (TRITONS, triton.autotune):
            kernel = decorator([Halved({"BLOCK": 64}), Halved({"BLOCK": 128})], ["n"])(add)
            for _ in range(2):
                launched = kernel[grid](*(torch.zeros(4096) for _ in range(3)), 1024)
                assert (launched.metadata.num_warps, launches.made[-1][-1][-1]) == (2, 32)
            assert kernel.best_config is kernel.configs[0]


def test_parameters_of_a_kernel_may_be_called_like_those_of_run():
    with launches_that_do_nothing() as launches:
        kernel = triton_ops.autotune([{"BLOCK": 64}, {"BLOCK": 128}], ["self", "grid"], on_miss="default")(
            tuned_kernels.named_as_run
        )
        for _ in range(3):
            kernel[(2,)](self=torch.zeros(256), grid=3, warmup=5)
    assert [made[-1][1:] for made in launches.made] == [(3, 5, 64)] * 3


def results_of_two_calls(how):
    """What stands in arguments that a kernel changes, after one call and after two, for each way."""
    bench = None if how == "default" else lambda call, quantiles: (call(), call(), [1.0] * 3)[2]
    configs, result = [triton.Config({"BLOCK": block}) for block in (32, 64)], []

    def after(decorator, kernel, options):
        x = torch.full((100,), 5.0)
        decorated, seen = decorator(configs, ["n"], do_bench=bench, **options)(kernel), []
        for _ in range(2):
            decorated[grid](x, 100)
            seen.append((x.min().item(), x.max().item()))
        return seen

    for kernel, options in (
        (tuned_kernels.grow, {"restore_value": ["x_ptr"]}), (tuned_kernels.grow, {"reset_to_zero": ["x_ptr"]}),
        (tuned_kernels.grow, {"pre_hook": lambda given, reset_only=False: given["x_ptr"].fill_(7)}),
    ):  # fmt: skip
        if how != "default":
            result.append([after(TRITONS, kernel, options)])
        with triton_ops.install(on_miss=how):
            ours = [after(decorator, kernel, options) for decorator in (TRITONS, triton.autotune)]
        result.append([*([] if how == "default" else result.pop()), *ours])
    return result


def test_arguments_that_a_kernel_changes_hold_what_they_hold_with_triton(interpreted):
    restored, zeroed, hooked = interpreted(results_of_two_calls, "tune")
    assert restored == [[(6.0, 6.0), (7.0, 7.0)]] * 3
    assert zeroed == [[(1.0, 1.0), (2.0, 2.0)]] * 3
    assert hooked == [[(8.0, 8.0), (9.0, 9.0)]] * 3
    restored, zeroed, hooked = interpreted(results_of_two_calls, "default")
    assert (restored, zeroed, hooked) == (
        [[(6.0, 6.0), (7.0, 7.0)]] * 2, [[(1.0, 1.0), (2.0, 2.0)]] * 2, [[(8.0, 8.0), (9.0, 9.0)]] * 2,
    )  # fmt: skip
