"""Configs that shipped kernels run with at first: a model's pick where nothing is measured and the model is sure."""

import itertools
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import triton_ops_kernels as kernels
from triton_ops import exceptions, on_miss, replaying
from triton_ops.cost_model import Model
from triton_ops.cost_model.prediction import Model as Predicted
from triton_ops.device import DeviceSpec, Machine
from triton_ops.dispatch import decision as decisions
from triton_ops.dispatch import ladder as sources
from triton_ops.dispatch import operations, would_run
from triton_ops.dispatch.operations import config_for
from triton_ops.records import RECORDS, FollowedLockfile, Lockfile, MemoryStore, Record, Timing
from triton_ops.records.record import Verified
from triton_ops.records.store import open_store
from triton_ops.request import TuneProblem, request
from triton_ops.space import Config, ConfigSpace
from triton_ops.tuner.priors import in_use
from triton_ops.values import TensorSpec, typical_argument
from triton_ops_kernels import rows
from triton_ops_kernels.matmul import problems as matmul_problems
from triton_ops_kernels.matmul.problems import ACTIVATIONS

pytestmark = pytest.mark.triton

RECORDED = {name: replace(DeviceSpec.named(name), driver="570.1") for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3")}
H200 = RECORDED["NVIDIA H200"]
RANKED = ("fp8_gemm", "gated_mlp", "grouped_matmul", "layer_norm", "matmul", "softmax")


@pytest.fixture(autouse=True)
def own(monkeypatch, tmp_path):
    """A machine with an H200 and no record; winners come with the package."""
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "records"))
    on(monkeypatch, H200)
    decisions.forget_decisions()
    yield
    sources._sources.ladders.clear()
    decisions.forget_decisions()


def on(monkeypatch, spec):
    """Have every look-up find this device."""
    monkeypatch.setattr(request, "probe", lambda _name=None: spec)
    monkeypatch.setattr(request, "gpu_missing", lambda: None)
    sources._sources.ladders.clear()


def asked(name, shape, dtype="bfloat16"):
    return would_run(kernels.load(name), shape=shape, dtype=dtype)


def model_of(name, shape, dtype="bfloat16", spec=H200, of_class=False):
    operation = kernels.load(name)
    problem = operation.problem(shape, dtype)
    if of_class:  # a call is decided by the problem that stands for its class
        problem = replace(problem, arguments=tuple((key, typical_argument(it)) for key, it in problem.arguments))
    return Model(operation.work(problem), Machine.of(spec)), operation.space_for(problem)


@pytest.mark.parametrize("spec", RECORDED.values(), ids=RECORDED)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("matmul", (300, 5000, 3000)),
        ("fp8_gemm", (2048, 14336, 4096)),
        ("fp8_gemm", (400, 1280, 13440)),
        ("fp8_gemm", (100, 2048, 1024, 1)),
        ("softmax", (6000, 50304)),
        ("layer_norm", (20000, 5120)),
        ("gated_mlp", (700, 9000, 2048)),
        ("gated_mlp", (448, 768, 1810)),
        ("grouped_matmul", (3000, 4, 5000, 1024, 2)),
    ],
)
def test_a_problem_without_a_winner_runs_what_a_model_expects(monkeypatch, spec, name, shape):
    on(monkeypatch, spec)
    answer, (model, space) = asked(name, shape).found, model_of(name, shape, spec=spec, of_class=True)
    gain = model.expected_ms(space.default_config) / model.expected_ms(answer.config)
    assert answer.rung == "expected"
    assert space.why_not(answer.config) is None
    assert gain >= 1 + kernels.load(name).least_gain
    assert f"{gain:.3g} times as fast as the default; nobody has measured it" in answer.why
    assert asked(name, shape).found == answer  # the same in every process


def test_rows_at_multiples_of_16_bytes_alone_are_read_by_descriptors():
    answer = asked("matmul", (300, 5000, 3000)).found
    assert (answer.config["LOADS"], answer.config["BM"]) == ("host", 128)
    model, space = model_of("matmul", (300, 5000, 3000))
    assert model.expected_ms(space.default_config) > 1.1 * model.expected_ms(answer.config)
    pointers = asked("matmul", (300, 5000, 3001)).found.config  # whose rows begin anywhere
    assert pointers["LOADS"] == "pointers"


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((200, 704, 4096), 2),
        ((16, 1024, 2048), 8),
        ((1000, 704, 4096), 2),
        ((1000, 700, 2047), 1),
        ((2000, 4000, 4096), 1),
    ],
)
def test_programs_share_the_tiles_of_a_product_that_has_few_and_many_terms(shape, parts):
    model, space = model_of("matmul", shape)
    default, answer = space.default_config, asked("matmul", shape).found
    assert (default["ALGORITHM"], default["SPLIT"]) == ("split_k" if parts > 1 else "tiles", parts)
    alone = Config({**default, "ALGORITHM": "tiles", "SPLIT": 1})
    assert model.expected_ms(answer.config) <= model.expected_ms(default) <= model.expected_ms(alone)


@pytest.mark.parametrize(
    ("shape", "loads"),
    [
        ((896, 1122, 1536), "host_a"),
        ((1552, 1152, 3371), "host_b"),
        ((38, 2432, 13818), "host_b"),
        ((9, 967, 64), "pointers"),
    ],
)
def test_one_operand_has_a_descriptor_where_the_other_can_have_none(monkeypatch, shape, loads):
    monkeypatch.setattr(matmul_problems, "probe", lambda: H200)
    answer, (model, space) = asked("matmul", shape).found, model_of("matmul", shape)
    assert (space.default_config["LOADS"], answer.config["LOADS"]) == (loads, loads)
    pointers = Config({**answer.config, "LOADS": "pointers"})
    assert loads == "pointers" or model.expected_ms(pointers) > model.expected_ms(answer.config)


@pytest.mark.parametrize(
    ("shape", "loads"), [((29, 640, 11477), "pointers"), ((29, 640, 11472), "host"), ((388, 939, 5033), "pointers")]
)
def test_programs_share_the_tiles_of_a_gated_mlp_that_has_few_and_many_terms(shape, loads):
    answer, (model, space) = asked("gated_mlp", shape).found, model_of("gated_mlp", shape)
    assert (answer.rung, answer.config["LOADS"]) == ("expected", loads)
    assert answer.config["SPLIT"] > 1
    alone = Config({**answer.config, "SPLIT": 1})
    assert model.expected_ms(answer.config) < model.expected_ms(alone)
    assert model.expected_ms(answer.config) < 0.7 * model.expected_ms(space.default_config)


@pytest.mark.parametrize("shape", [(60, 5000, 3001), (200, 701, 4096), (38, 2432, 13817)])
def test_two_programs_on_a_multiprocessor_share_tiles_whose_loads_are_narrow(shape):
    model, space = model_of("matmul", shape)
    default = space.default_config
    assert (default["ALGORITHM"], default["PROGRAMS"], default["BM"], space.why_not(default)) == (
        "stream_k",
        2,
        64,
        None,
    )
    split = Config({**default, "ALGORITHM": "split_k", "PROGRAMS": 1, "SPLIT": 2})
    assert model.expected_ms(default) < model.expected_ms(split)


def test_few_rows_whose_loads_are_narrow_run_with_longer_steps_and_narrower_tiles():
    model, space = model_of("matmul", (2, 852, 880), "float16")
    default, answer = space.default_config, asked("matmul", (2, 852, 880), "float16").found
    assert (answer.rung, answer.config["BK"], answer.config["BN"]) == ("expected", 128, 16)
    assert model.expected_ms(default) > 1.3 * model.expected_ms(answer.config)


def test_programs_that_walk_over_experts_have_a_multiprocessor_for_themselves():
    model, space = model_of("grouped_matmul", (31795, 8, 640, 6848, 2), "float16")
    described = Config({**space.default_config, "DESCRIPTORS": True})
    times = {
        (walks, stages): model.expected_ms(Config({**described, "PROGRAMS": walks, "num_stages": stages}))
        for walks, stages in itertools.product((0, 1), (3, 4))
    }
    assert times[0, 3] < times[0, 4]  # two fit with three stages
    assert times[1, 4] < times[1, 3]


@pytest.mark.parametrize(
    ("strides", "dtype", "copied"),
    [
        ((3008, 1), "bfloat16", 16),
        ((3000, 1), "bfloat16", 2),
        ((1, 520), "float8_e4m3fn", 1),
        ((1, 528), "float8_e4m3fn", 16),
    ],
)
def test_pointers_copy_an_element_at_once_where_a_stride_is_no_multiple_of_16(strides, dtype, copied):
    spec = TensorSpec((64, 64), dtype, strides)
    assert spec.copied_bytes == copied
    assert replace(spec, aligned=False).copied_bytes == spec.nbytes // spec.numel


@pytest.mark.parametrize(
    ("name", "shape", "spec"),
    [
        ("attention", (8, 16, 16, 2048, 2048, 64, 64, 1), H200),  # whose first picks recordings do not bear out
        ("softmax_backward", (6000, 50257), H200),
        ("fp8_quantize", (900, 5000, 128), H200),
        ("softmax", (6000, 50257), H200),  # whose loads bring 2 bytes each: no such rows are recorded
        ("gated_mlp", (640, 13360, 595), H200),  # whose default was the fastest of 26 configs
        ("matmul", (16, 57344, 8192), H200),  # bound by memory: no config stands out
        ("matmul", (300, 5000, 3000), replace(DeviceSpec.named("NVIDIA A100-SXM4-80GB"), driver="570.1")),
    ],
)  # fmt: skip
def test_the_default_stays_where_the_model_is_not_sure(monkeypatch, name, shape, spec):
    on(monkeypatch, spec)
    answer = asked(name, shape).found
    assert (answer.rung, answer.config) == ("default", model_of(name, shape, spec=spec)[1].default_config)


def test_a_product_without_a_sum_has_no_pick():
    operation = kernels.load("matmul")
    empty = {"a": TensorSpec((9, 0), "float16"), "b": TensorSpec((0, 7), "float16"), "K": 0}
    problem = operation.problem((9, 7, 16), "float16")
    problem = replace(problem, arguments=tuple((name, empty.get(name, value)) for name, value in problem.arguments))
    model = Model(operation.work(problem), Machine.of(H200))
    assert model.first_pick(operation.space_for(problem), (), operation.least_gain) is None


EXTENT = st.integers(1, 9000)
SHAPES = {
    "matmul": st.tuples(EXTENT, EXTENT, EXTENT),
    "fp8_gemm": st.tuples(EXTENT, EXTENT, EXTENT, st.integers(1, 4)),
    "gated_mlp": st.tuples(EXTENT, EXTENT, EXTENT),
    "grouped_matmul": st.tuples(EXTENT, st.integers(1, 64), EXTENT, EXTENT, st.integers(1, 2)),
    "softmax": st.tuples(EXTENT, st.integers(1, 200_000)),
    "layer_norm": st.tuples(EXTENT, st.integers(1, 70_000)),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(RANKED).flatmap(lambda name: st.tuples(st.just(name), SHAPES[name])))
def test_no_pick_is_slower_spills_or_costs_more_than_some_forecasts(monkeypatch, drawn):
    name, shape = drawn
    operation, (model, space) = kernels.load(name), model_of(name, shape)
    winners = [entry.config for lock in FollowedLockfile.shared() for entry in lock.entries if entry.kernel == name]
    counts, planned = Counter(), Predicted._planned

    def counted(*args):
        counts["forecasts"] += 1
        return planned(*args)

    with monkeypatch.context() as patched:
        patched.setattr(Predicted, "_planned", counted)
        pick = model.first_pick(space, winners, operation.least_gain)
    assert counts["forecasts"] <= 500
    assert {each.least_gain for each in map(kernels.load, RANKED)} == {0.05, 0.1}
    if pick is not None:
        forecast = model.explain(pick.config)
        assert space.why_not(pick.config) is None
        assert forecast.spill_bytes == 0
        assert math.isfinite(pick.expected_ms)
        assert pick.expected_ms * (1 + operation.least_gain) <= model.expected_ms(space.default_config)
        algorithm, own = (config.get("ALGORITHM") for config in (pick.config, space.default_config))
        assert algorithm != "stream_k" or own == "stream_k"  # which has won nowhere
        assert algorithm != "split_k" or own in ("split_k", "stream_k")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(RANKED).flatmap(lambda name: st.tuples(st.just(name), SHAPES[name])))
def test_a_tune_begins_with_the_config_that_a_model_picks_for_calls(drawn):
    name, shape = drawn
    operation = kernels.load(name)
    answer, asks = asked(name, shape).found, TuneProblem(target=operation, shape=shape, dtype="bfloat16").request()
    picks = [answer.config] if answer.rung == "expected" and answer.config in asks.space else []
    if answer.rung in ("expected", "default"):
        assert in_use(asks, asks.key, MemoryStore(RECORDS), ()) == picks
    assert in_use(asks, asks.key, MemoryStore(RECORDS), [asks.space.default_config]) == [asks.space.default_config]


@pytest.mark.parametrize("name", RANKED)
def test_a_pick_by_other_winners_is_made_only_where_a_tune_has_found_a_faster_config(name):
    picks = 0
    for lock in FollowedLockfile.shared():
        entries = [entry for entry in lock.entries if entry.kernel == name]
        (device,) = lock.devices
        for entry in entries:
            shape, dtype = entry.label.split()
            model, space = model_of(name, tuple(map(int, shape.split("x"))), dtype, RECORDED[device.name])
            others = [other.config for other in entries if other is not entry]
            if model.first_pick(space, others, kernels.load(name).least_gain) is not None:
                assert entry.measured.gain > 1.03
                picks += 1
    assert picks > 0


def record(name, shape, config, dtype="bfloat16"):
    """What a tune on the present device might leave."""
    space, of = (
        model_of(name, shape, dtype)[1],
        TuneProblem(target=kernels.load(name), shape=shape, dtype=dtype).request(),
    )
    return Record(
        key=of.key, winner=config,
        timing=Timing(1.0, 0.9, 1.1, 50), default=space.default_config, default_timing=Timing(1.5, 1.4, 1.6, 50),
        mode="graph-cold", created="2026-11-22T12:00:00+00:00", run="20261122T120000-ab",
        verified=Verified("the reference", of.reference_fingerprint),
    )  # fmt: skip


def test_records_come_before_a_model_and_give_it_candidates(tmp_path, monkeypatch):
    monkeypatch.setattr(FollowedLockfile, "SHARED", {})
    alone = asked("softmax", (6000, 50304)).found
    winner = Config(BLOCK_SIZE=32768, ROWS=1, num_warps=16)
    open_store(tmp_path / "records").put(record("softmax", (200, 50304), winner))
    sources._sources.ladders.clear()
    assert asked("softmax", (300, 50304)).found.rung == "borrowed"
    assert asked("softmax", (200, 50304)).found.rung == "record"
    assert alone.rung == asked("softmax", (6000, 50304)).found.rung == "expected"


def rows_to_map(count=600):
    """The arguments of a softmax for which a model is sure; nothing writes their memory."""
    x = torch.empty(count, 50304, dtype=torch.bfloat16)
    return {"x": x, "out": torch.empty_like(x), "rows": len(x), "COLUMNS": x.shape[1]}


def test_a_record_of_another_space_comes_before_a_model(tmp_path):
    winner = Config(BLOCK_SIZE=1024, ROWS=1, num_warps=32)  # more warps than the space tries
    open_store(tmp_path / "records").put(record("softmax", (600, 50304), winner))
    assert config_for(kernels.load("softmax"), rows_to_map(), rows.OWN.checked) == winner


def test_policies_that_measure_replay_or_raise_take_no_pick():
    softmax, measured = kernels.load("softmax"), []
    values = rows_to_map()

    def tuned(**options):
        measured.append(options)
        raise exceptions.UntunedError("nothing is measured here", "softmax", "")

    assert operations.decided(softmax, values).found.rung == "expected"
    assert operations.decided(softmax, values, on_miss="queue").found.rung == "expected"
    assert operations.decided(softmax, values, on_miss="expected", tuner=tuned).found.rung == "default"
    assert operations.decided(softmax, values, on_miss="tune", tuner=tuned).found.rung == "default"  # and says so
    with pytest.raises(exceptions.UntunedError):
        operations.decided(softmax, values, on_miss="error", tuner=tuned)
    assert measured == [{"effort": "expected"}, {}]
    with replaying(Lockfile()):
        assert operations.decided(softmax, values).found.rung == "default"
    with on_miss("error"), pytest.raises(exceptions.UntunedError):
        operations.decided(softmax, values)


@pytest.mark.parametrize("least_gain", [0, -0.1, "5 %", True, math.nan])
def test_a_least_gain_that_is_none_is_refused(least_gain):
    with pytest.raises(exceptions.SettingsError, match="least_gain is"):
        replace(kernels.load("softmax"), least_gain=least_gain)


def test_configs_of_a_list_need_not_name_every_tunable():
    """A list of which one config has a limit of registers."""
    model, _ = model_of("softmax", (6000, 50304))
    block = {"BLOCK_SIZE": 4096, "ROWS": 1, "num_warps": 8}
    faster = {**block, "BLOCK_SIZE": 16384, "num_warps": 16}
    space = ConfigSpace.from_configs([block, {**block, "maxnreg": 128}, faster], default=block)
    assert model.first_pick(space, [], 0.01) is None  # two tunables away
    assert model.first_pick(space, [Config(faster)], 0.01).config == Config(faster)


def test_a_known_call_asks_no_model_and_an_own_config_never_does(monkeypatch):
    softmax, picked, first_pick = kernels.load("softmax"), [], operations._first_pick

    def counted(*args):
        picked.append(args)
        return first_pick(*args)

    monkeypatch.setattr(operations, "_first_pick", counted)
    values = rows_to_map(1201)
    own = {"BLOCK_SIZE": 1024, "ROWS": 1, "num_warps": 4}
    assert config_for(softmax, values, rows.OWN.checked, own) == Config(own)
    assert picked == []
    configs = {config_for(softmax, values, rows.OWN.checked) for _ in range(3)}
    assert len(picked) == 1
    assert configs == {asked("softmax", (1201, 50304)).found.config}
    (row,) = [row for row in decisions.launches() if row.kernel == "softmax" and "1153" in row.problem]
    assert row.rung == "expected"


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_takes_time_of_each_tile(activation):
    operation = kernels.load("matmul")
    plain = operation.problem((4616, 4096, 1024), "bfloat16")
    values = tuple((name, activation if name == "ACTIVATION" else value) for name, value in plain.arguments)
    space, walking = operation.space_for(plain), {"ALGORITHM": "persistent", "LOADS": "host", "HALVES": True}
    walking = Config({**space.default_config, **walking, "num_stages": 5})
    model, bare = (Model(operation.work(one), Machine.of(H200)) for one in (replace(plain, arguments=values), plain))
    assert model.first_pick(space, [walking], operation.least_gain) is not None
    lone = Config({**walking, "num_warps": 4})
    finish, lone_finish = (model.expected_ms(config) - bare.expected_ms(config) for config in (walking, lone))
    assert lone_finish == pytest.approx(2 * finish, rel=0.06)  # of eight warps all is expected to take longer
    assert (finish > 0) == (activation != "none")
