"""Forecasts from work that was read: equal to those of declared work, silent with a reason, and never an error."""

from __future__ import annotations

import math
import os
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests import inferred_kernels as kernels  # noqa: E402
from triton_ops import AttentionTiles  # noqa: E402
from triton_ops.backend import Arguments, TritonCompiler, TritonKernel  # noqa: E402  # noqa: E402
from triton_ops.backend.offline import kernel_work  # noqa: E402
from triton_ops.compilation import CompilePool  # noqa: E402
from triton_ops.cost_model import (  # noqa: E402
    Model,
    Readings,
)
from triton_ops.cost_model.inferred import InferredTiles, why_silent  # noqa: E402
from triton_ops.cost_model.prediction import Fit  # noqa: E402
from triton_ops.device import DeviceSpec, Machine, Target  # noqa: E402
from triton_ops.kernel_ir import KernelWork  # noqa: E402
from triton_ops.request import TuneRequest  # noqa: E402
from triton_ops.request.request import CopiedArguments  # noqa: E402
from triton_ops.space import Config, ConfigSpace, UnlistedSpace  # noqa: E402
from triton_ops.tuner import Survey, survey  # noqa: E402
from triton_ops.tuner.priors import coming_priors, small_contents  # noqa: E402
from triton_ops.values import (  # noqa: E402
    Problem,
    TensorSpec,
    Work,
)

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]

H200 = Machine.of(DeviceSpec.named("NVIDIA H200"))
TARGET = Target.named("sm_90")
X = TensorSpec((4096, 1024), "bfloat16")
ROWS = Arguments((X, X, 1024, 1e-5))
OPTIONS = {"num_warps": 4, "num_stages": 3}


@pytest.fixture(autouse=True)
def _fused(monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


def rows_grid(meta):
    return (4096,)


NORM = TritonKernel(kernels.chunked_norm, rows_grid)


def work_of(kernel, config, arguments):
    return kernel_work(kernel, Config(config), arguments.described(), TARGET)


def norm(block=256):
    return work_of(NORM, {"BLOCK": block}, ROWS)


def model_of(work):
    return Model(Work(tiles=InferredTiles(lambda _: work)), H200)


A, B, C = (
    TensorSpec((1024, 1024), "bfloat16"),
    TensorSpec((1024, 1024), "bfloat16"),
    TensorSpec((1024, 1024), "float32"),
)
TILES = {"BM": 128, "BN": 64, "BK": 32}
SIZES = (1024, 1024, 1024)
KINDS = {
    "persistent": (kernels.persistent_matmul, (A, B, A, *SIZES), {**TILES, "PROGRAMS": 132}, lambda _: (132,)),
    "split": (kernels.split_matmul, (A, B, C, *SIZES), {**TILES, "SPLIT": 4}, lambda m: (128, m["SPLIT"])),
    "described": (kernels.described_matmul, (A, B, A, *SIZES), TILES, lambda _: (128,)),
    "while": (kernels.while_rows, (A, A, 1024, 1024), {"BLOCK": 1024}, lambda _: (132,)),
    "varlen": (
        kernels.varlen_sum, (A, TensorSpec((5,), "int32"), A, 1024), {"BLOCK": 16, "WIDTH": 1024}, lambda _: (4,)
    ),
    "gather": (
        kernels.gather_rows, (A, TensorSpec((500,), "int64"), A, 500, 1024), {"ROWS": 16, "WIDTH": 1024},
        lambda _: (32,),
    ),
    "transpose": (kernels.flat_transpose, (A, A, 1024, 1024), {"BLOCK": 1024}, lambda _: (1024,)),
    "attention": (
        kernels.causal_attention, (A, A, A, A, 1024, 0.1), {"HEADS": 8, "DIM": 64, "BM": 128, "BN": 64},
        lambda _: (8, 8),
    ),
    "early": (kernels.early_return, (A, A, 500_000, 77), {"BLOCK": 512}, lambda _: (1000,)),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_of_every_structure_have_a_forecast(kind):
    function, arguments, config, grid = KINDS[kind]
    work = work_of(TritonKernel(function, grid), config, Arguments(arguments))
    result = model_of(work).explain({**config, **OPTIONS})
    assert 0 < result.expected_ms < 10
    assert result.terms


def test_a_transpose_that_reads_element_by_element_is_expected_to_be_slower_than_a_copy():
    function, arguments, config, grid = KINDS["transpose"]
    scattered = model_of(work_of(TritonKernel(function, grid), config, Arguments(arguments)))
    function, arguments, config, _ = KINDS["while"]
    copied = model_of(work_of(TritonKernel(function, lambda _: (1024,)), config, Arguments(arguments)))
    assert scattered.expected_ms(OPTIONS) > 1.2 * copied.expected_ms(OPTIONS)


def test_causal_attention_takes_about_half_of_the_time_of_twice_the_steps():
    function, arguments, config, grid = KINDS["attention"]
    work = work_of(TritonKernel(function, grid), config, Arguments(arguments))
    (launch,) = work.launches
    (loop,) = launch.loops
    doubled = replace(launch, loops=(replace(loop, turns=2 * loop.turns),))
    assert model_of(KernelWork((doubled,))).expected_ms(OPTIONS) != model_of(work).expected_ms(OPTIONS)
    assert loop.turns < 0.6 * 1024 / 64


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("BM", "BN", "warps"), [(64, 64, 4), (128, 64, 8), (128, 128, 8)])
def test_attention_that_declares_nothing_is_near_one_that_does_in_one_loop_and_in_two(causal, BM, BN, warps):
    length, heads, width = 4096, 128, 128
    x = TensorSpec((heads, length, width), "bfloat16")
    config = {"DIM": width, "BM": BM, "BN": BN, "CAUSAL": causal}
    kernel = TritonKernel(kernels.two_loop_attention, lambda meta: (length // meta["BM"], heads))
    tiles = AttentionTiles(
        heads, length, length, width, dtype="bfloat16", tile_queries="BM", tile_keys="BN", causal=causal
    )
    result = model_of(work_of(kernel, config, Arguments((x, x, x, x, length))))
    options = {"num_warps": warps, "num_stages": 3}
    declared = Model(Work(tiles=tiles), H200).explain({**config, **options})
    read = result.explain({**config, **options})
    assert read.expected_ms == pytest.approx(declared.expected_ms, rel=0.12)
    assert read.shared_bytes == declared.shared_bytes
    assert read.registers == pytest.approx(declared.registers, abs=16)


def test_launches_follow_each_other():
    (launch,) = norm().launches
    once, twice = (model_of(KernelWork((launch,) * count)).expected_ms(OPTIONS) for count in (1, 2))
    launch_ms = H200.launch_us / 1e3
    assert twice - launch_ms == pytest.approx(2 * (once - launch_ms))


def test_work_at_unknown_addresses_has_no_forecast_and_says_why():
    (launch,) = norm().launches
    lost = replace(launch, accesses=tuple(replace(access, known=False) for access in launch.accesses))
    assert "100% of its bytes are at unknown addresses; a forecast allows 33%" in why_silent(lost)
    assert math.isnan(model_of(KernelWork((lost,))).expected_ms(OPTIONS))


def test_a_kernel_that_moves_nothing_has_no_forecast():
    (launch,) = norm().launches
    assert why_silent(replace(launch, accesses=())) == "none of its loads, stores and products could be read"


def test_a_dtype_that_the_device_has_no_rate_for_has_no_forecast():
    function, arguments, config, grid = KINDS["split"]
    (launch,) = work_of(TritonKernel(function, grid), config, Arguments(arguments)).launches
    strange = replace(launch, products=tuple(replace(product, element="f4E2M1FN") for product in launch.products))
    assert math.isnan(model_of(KernelWork((strange,))).expected_ms(OPTIONS))


@for_all(
    st.sampled_from(sorted(KINDS)), st.sampled_from([0.0, 1e-3, 1.0, 1e9]), st.sampled_from([1, 2, 4, 8, 16, 32]),
    st.integers(1, 8), st.sampled_from([1, 7, 131, 100_000]),
)  # fmt: skip
def test_whatever_was_read_a_forecast_is_a_number_or_none(kind, factor, warps, stages, programs):
    (launch,) = cached_work(kind).launches
    scaled = replace(
        launch, grid=(programs, 1, 1),
        loops=tuple(replace(loop, turns=loop.turns * factor, entries=loop.entries * factor) for loop in launch.loops),
        accesses=tuple(
            replace(access, executions=access.executions * factor, elements=access.elements * factor)
            for access in launch.accesses
        ),
        products=tuple(replace(p, executions=p.executions * factor) for p in launch.products),
    )  # fmt: skip
    result = model_of(KernelWork((scaled,))).expected_ms({"num_warps": warps, "num_stages": stages})
    assert math.isnan(result) or result > 0


WORKS: dict[str, KernelWork] = {}


def cached_work(kind):
    if kind not in WORKS:
        function, arguments, config, grid = KINDS[kind]
        WORKS[kind] = work_of(TritonKernel(function, grid), config, Arguments(arguments))
    return WORKS[kind]


SPACE = ConfigSpace.from_user({"BLOCK": [64, 128, 256, 512, 1024], "num_warps": [1, 2, 4, 8], "num_stages": [1, 2, 3]})


class Reading:
    """Answers with the work of a norm whose tiles follow BLOCK, and keeps what it was asked."""

    def __init__(self, answer=None):
        self.asked = []
        self._base = norm().launches[0]
        self._answer = answer

    def __call__(self, config, contents):
        self.asked.append((config, dict(contents)))
        future = Future()
        if self._answer is not None:
            self._answer(future, config)
        else:
            future.set_result(self.work(config))
        return future

    def work(self, config):
        accesses = tuple(replace(access, tile=config["BLOCK"]) for access in self._base.accesses)
        return KernelWork((replace(self._base, accesses=accesses),))


def test_configs_that_differ_in_launch_options_are_read_once():
    reading = Reading()
    result = Survey().read(list(SPACE), H200, reading)
    assert result.names == ("BLOCK",)
    assert len(result.works) == 5
    assert len(reading.asked) <= 5 + 6  # and a few with other options, to see that they change nothing
    assert all(not result.work_of(config).silent for config in SPACE)


def test_a_launch_option_that_the_kernel_looks_at_is_told_apart():
    reading = Reading()

    def answer(future, config):
        work = reading.work(config)
        loops = tuple(replace(loop, stages=config["num_stages"]) for loop in work.launches[0].loops)
        future.set_result(KernelWork((replace(work.launches[0], loops=loops),)))

    reading._answer = answer
    result = Survey().read(list(SPACE), H200, reading)
    assert result.names == ("BLOCK", "num_stages")
    assert len(result.works) == 15


def test_a_survey_ends_when_nothing_answers_in_time(monkeypatch):
    monkeypatch.setattr("triton_ops.tuner.survey._FIRST_S", 0.05)
    result = Survey().read(list(SPACE), H200, Reading(lambda future, config: None))
    assert result.silent == "no config was read"


def test_what_was_read_in_time_counts_and_the_rest_is_fitted():
    configs = list(SPACE)
    reading = Reading()

    def answer(future, config):
        if config["BLOCK"] != 512:
            future.set_result(reading.work(config))

    reading._answer = answer
    result = Survey(seconds=0.05).read(configs, H200, reading)
    assert len(result.works) == 4
    prior = result.prior(H200, configs)
    assert not prior.silent
    missing = Config(BLOCK=512, num_warps=4, num_stages=1)
    exact = model_of(reading.work(missing)).expected_ms(missing)
    assert prior.score([missing])[0] == pytest.approx(exact, rel=0.3)


def test_of_very_many_texts_some_are_read_and_then_those_that_a_fit_expects_to_be_fast(monkeypatch):
    space = ConfigSpace.from_user({"BLOCK": [64, 128, 256, 512], "A": list(range(1, 51)), "B": list(range(1, 51))})
    reading = Reading()
    configs = Survey.considered(space)
    assert 1000 < len(configs) <= 2000  # of 10,000
    fit = SimpleNamespace(score=lambda left: [config["A"] for config in left], renew=lambda: None)
    monkeypatch.setattr("triton_ops.tuner.survey._COVER", 40)
    monkeypatch.setattr(Readings, "prior", lambda *_: fit)
    result = Survey(texts=40, promising=10).read(configs, H200, reading)
    assert len(result.works) == 51
    assert all(config["A"] <= 2 for config, _ in reading.asked[-10:])


def test_a_default_that_is_not_among_many_configs_drawn_is_read_before_the_others():
    space = ConfigSpace.from_user({"A": list(range(1, 51)), "B": list(range(1, 51)), "BLOCK": [128, 256, 512]})
    reading = Reading()
    configs = Survey.considered(space)
    assert len(configs) < space.size.valid
    result = Survey(texts=8, promising=0).read(configs, H200, reading)
    assert configs[0] == reading.asked[0][0] == space.default_config
    assert not result.work_of(space.default_config).silent


def test_the_seeds_of_a_space_are_read_before_the_others():
    seeds = [Config(BLOCK=block, num_warps=4, num_stages=1) for block in (512, 128, 1024)]
    space = UnlistedSpace.around(SPACE, seeds, ())
    reading = Reading()
    configs = Survey.considered(space)
    assert configs[:3] == seeds
    Survey(texts=1, promising=0).read(configs, H200, reading, named=3)
    assert {config["BLOCK"] for config, _ in reading.asked} >= {512, 128, 1024}


def test_a_launch_option_is_not_told_apart_by_a_config_that_the_launcher_does_not_know_or_that_comes_too_late():
    wide = [config for config in SPACE if config["num_stages"] == 1 or config["num_warps"] == 4]
    for unknown in (KernelWork(silent="its grid cannot be told"), None):
        reading = Reading()

        def answer(future, config, work=reading.work, silent=unknown):
            if config in wide and (silent is not None or config["num_warps"] == 4):
                future.set_result(work(config))
            elif silent is not None:
                future.set_result(silent)

        reading._answer = answer
        result = Survey(seconds=0.2).read(wide, H200, reading)
        assert result.names == ("BLOCK",)


def test_the_texts_of_the_leading_configs_are_read_until_the_leading_ones_are_known():
    space = ConfigSpace.from_user({"BLOCK": [64, 128, 256, 512, 1024], "A": list(range(1, 101)), "num_warps": [4]})
    reading = Reading()
    configs = Survey.considered(space)
    result = Survey(texts=survey._COVER, promising=72, seconds=60).read(configs, H200, reading)
    assert len(result.works) <= 2 + survey._COVER + 72
    times = result.prior(H200, configs).score(configs)
    leading = sorted(range(len(configs)), key=times.__getitem__)[: survey._LEADING]
    assert all(result.key(configs[at]) in result.works for at in leading)
    again = Survey(texts=survey._COVER, promising=72, seconds=60).read(configs, H200, Reading())
    assert list(again.works) == list(result.works)  # which go by no clock


def test_small_tensors_of_whole_numbers_are_read_only_if_a_loop_depends_on_data():
    plain = Reading()
    Survey().read(list(SPACE), H200, plain, {"starts": [0, 4]})
    assert not any(contents for _, contents in plain.asked)
    by_data = Reading()
    base = by_data._base
    by_data._base = replace(base, loops=tuple(replace(loop, by_data=True) for loop in base.loops))
    Survey().read(list(SPACE), H200, by_data, {"starts": [0, 4]})
    assert by_data.asked[-1][1] == {"starts": [0, 4]}


def test_a_space_of_which_nothing_can_be_told_says_the_usual_reason():
    silent = Reading(lambda future, config: future.set_result(KernelWork(silent="no grid")))
    result = Survey().read(list(SPACE), H200, silent)
    prior = result.prior(H200, list(SPACE))
    assert prior.silent == "no grid"
    assert all(map(math.isnan, prior.score(list(SPACE))))


def test_forecasts_that_are_all_alike_order_nothing():
    configs = [Config(BLOCK=256, num_warps=4, num_stages=1), Config(BLOCK=256, num_warps=4, num_stages=1, x=1)]
    readings = Readings(("BLOCK",), {})
    for config in configs:
        readings.works[readings.key(config)] = norm()
    assert "within 2% of each other" in readings.prior(H200, configs).silent


def test_the_least_work_is_that_of_the_config_with_the_least():
    readings = Readings(("BLOCK",), {})
    for block in (256, 1024):
        readings.works[readings.key({"BLOCK": block})] = norm(block)
    model = readings.model(H200)
    assert model.work.bytes == pytest.approx(2 * 2.0 * 4096 * 1024)
    assert 0 < model.bound_ms({"BLOCK": 1024, **OPTIONS}) < model.expected_ms({"BLOCK": 1024, **OPTIONS})


@for_all(
    st.lists(st.tuples(st.sampled_from([16, 32, 64]), st.sampled_from("ab"), st.booleans()), min_size=3, max_size=40)
)
def test_a_fit_stays_within_the_times_that_it_knows(rows):
    configs = [Config(tile=tile, word=word, flag=flag) for tile, word, flag in rows]
    times = [tile * (2.0 if word == "a" else 1.0) for tile, word, _ in rows]
    result = Fit(configs, times).times([Config(tile=16, word="c", flag=True), Config(tile=10**9, word="a", flag=False)])
    assert all(min(times) * 0.999 <= ms <= max(times) * 1.001 for ms in result)


def leaving_grid(meta):
    if meta["BLOCK"] == 512:
        os._exit(3)
    return (4096,)


def test_the_compile_processes_read_configs_and_outlive_a_grid_that_ends_them():
    kernel = TritonKernel(kernels.chunked_norm, leaving_grid)
    configs = [config for config in SPACE if config["num_stages"] == 1]
    with CompilePool(TritonCompiler(kernel, ROWS, TARGET), workers=2) as pool:
        assert "exit code 3" in pool.read(Config(BLOCK=512)).result().silent
        prior = Survey(seconds=60).read(configs, H200, pool.read).prior(H200, configs)
    assert not prior.silent
    here = {config: model_of(norm(config["BLOCK"])).expected_ms(config) for config in configs if config["BLOCK"] != 512}
    assert prior.score(list(here)) == pytest.approx(list(here.values()))


def test_what_was_read_of_a_closed_pool_is_its_reason():
    pool = CompilePool(TritonCompiler(NORM, ROWS, TARGET), workers=1)
    with pool:
        future = pool.read(Config(BLOCK=256))
        future.result()
    assert not future.result().silent


def live_task(kernel, given, space):
    """A request as `tune` makes it of a caller's own arguments, on a GPU that is not here."""
    arguments = Arguments(given)
    return TuneRequest(
        kernel=kernel, problem=Problem(kernel.name), chosen=space, operation=None,
        device=DeviceSpec.named("NVIDIA H200"), device_name="cuda", arguments=CopiedArguments(arguments),
    )  # fmt: skip


LIVE = {"BLOCK": [8, 16, 32, 64], "WIDTH": [1024], "num_warps": [1, 2, 4, 8], "num_stages": [1, 2, 3, 4, 5]}


def groups_grid(_):
    return (4,)


def test_a_tune_without_a_declaration_begins_with_what_is_read_and_with_the_data_that_loops_depend_on(tmp_path):
    starts = torch.tensor([0, 10, 300, 340, 1000], dtype=torch.int32)
    given = (torch.empty(1000, 1024, dtype=torch.bfloat16), starts, torch.empty(4, 1024), 1024)
    task = live_task(TritonKernel(kernels.varlen_sum, groups_grid), given, LIVE)
    assert small_contents(task) == {"starts": [0, 10, 300, 340, 1000]}
    with CompilePool(task.compiler(), workers=2) as pool:
        coming = coming_priors(task, tmp_path, pool)
        starts.zero_()  # as a launch may; the elements are read at once, and no other thread touches the GPU
        (prior,) = coming.result()
    (launch,) = prior.readings.work_of(Config(BLOCK=64, WIDTH=1024, num_warps=4, num_stages=1)).launches
    assert launch.loops[0].turns * 4 == 1 + 5 + 1 + 11
    scores = prior.score(list(task.space))
    assert len(set(scores)) > 10
    assert all(map(math.isfinite, scores))


def test_a_small_space_and_a_task_without_compilers_are_searched_without_a_model(tmp_path):
    given = (X, X, 1024, 1e-5)
    task = live_task(NORM, given, {"BLOCK": [256, 512], "num_warps": [4, 8]})
    assert coming_priors(task, tmp_path, None).result() == []
    with CompilePool(task.compiler(), workers=1) as pool:
        assert coming_priors(task, tmp_path, pool).result() == []


def test_a_survey_ends_when_its_pool_cancels_what_was_asked(monkeypatch):
    def cancelled(config, contents):
        future = Future()
        future.cancel()
        return future

    monkeypatch.setattr("triton_ops.tuner.survey._FIRST_S", 1e6)
    assert not Survey(seconds=0.01).read(list(SPACE), H200, cancelled).works


def test_a_kernel_of_which_nothing_can_be_told_is_searched_without_a_model(tmp_path, caplog):
    kernel = TritonKernel(kernels.varlen_sum, lambda _: (1 // 0,))
    given = (X, TensorSpec((5,), "int32"), X, 1024)
    task = live_task(kernel, given, LIVE)
    with caplog.at_level("INFO", "triton_ops"), CompilePool(task.compiler(), workers=1) as pool:
        assert coming_priors(task, tmp_path, pool).result() == []
    assert "the search begins without a model: its grid cannot be told: ZeroDivisionError" in caplog.text
