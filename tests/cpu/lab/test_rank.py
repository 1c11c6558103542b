"""`rank` and `explain` on kernels that declare nothing: the order, the words, and what they refuse."""

from __future__ import annotations

import functools
import json
import math
import re
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from tests import inferred_kernels as kernels  # noqa: E402
from triton_ops import ConfigSpace, Constraint, Operation, RankedConfig, TensorSpec, TritonKernel, rank  # noqa: E402
from triton_ops.cost_model import Readings  # noqa: E402
from triton_ops.device import device_spec  # noqa: E402
from triton_ops.exceptions import (  # noqa: E402
    EmptySpaceError,
    TargetError,
)
from triton_ops.kernel_ir import KernelWork, LaunchWork  # noqa: E402
from triton_ops.kernel_ir.kernel_work import Product  # noqa: E402
from triton_ops.space import Config  # noqa: E402
from triton_ops.tuner import Survey  # noqa: E402
from triton_ops.values import (  # noqa: E402
    Compiled,
    Resources,
    Status,
    Work,
)
from triton_ops_lab.expectation import _fit_remarks, _remarks  # noqa: E402
from triton_ops_lab.ranking import Expectation, roof_of  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]

H200 = "NVIDIA H200"
X = TensorSpec((4096, 1024), "bfloat16")


def rows(_):
    return (4096,)


def unknown(_):
    raise LookupError("it needs the data")


NORM = TritonKernel(kernels.chunked_norm, rows)
SPACE = {"BLOCK": [64, 256, 1024], "num_warps": [2, 4, 8]}


@functools.cache
def ranked_norm():
    return rank(NORM, (X, X, 1024, 1e-5), space=SPACE, gpu=H200, jobs=2)


FILE = """
from tests import inferred_kernels as kernels
from triton_ops import ConfigSpace, Constraint, Operation, RowTiles, TensorSpec, TritonKernel, Work

def rows(_):
    return (4096,)

def arguments(rows=4096, columns=1024, dtype="bfloat16"):
    x = TensorSpec((rows, columns), dtype)
    return {"x": x, "y": x, "columns": columns, "eps": 1e-5}

def declared(problem):
    tiles = RowTiles(4096, 1024, dtype="bfloat16", out_dtype="bfloat16", tile_rows=1, tile_columns="BLOCK", passes=3)
    return Work(bytes=1e9, tiles=tiles)

SPACE = ConfigSpace({"BLOCK": [64, 256, 1024], "num_warps": [2, 4, 8]})
KERNEL = TritonKernel(kernels.chunked_norm, rows, outputs=("y",))
plain = Operation("plain", KERNEL, SPACE, arguments, dtypes=("bfloat16",))
WARPS = ConfigSpace({"BLOCK": [1024], "num_warps": [4, 3, 64]})
wide = Operation("wide", KERNEL, WARPS, arguments, dtypes=("bfloat16",))
told = Operation("told", KERNEL, SPACE, arguments, work=declared, dtypes=("bfloat16",))
LOST = TritonKernel(kernels.chunked_norm, lambda _: (1 // 0,))
lost = Operation("lost", LOST, SPACE, arguments, dtypes=("bfloat16",))

def product(inner=1024, dtype="bfloat16"):
    wide = TensorSpec((1024, inner), dtype)
    return {"a": TensorSpec((16, inner), dtype), "b": wide, "c": TensorSpec((16, inner), dtype), "K": inner}

STAGES = ConfigSpace({"BM": [16], "BN": [64], "BK": [64], "num_warps": [4], "num_stages": [2, 3]})
turning = Operation("turning", TritonKernel(kernels.while_product, lambda _: (16,)), STAGES, product)

def quantised(length=4096, dtype="float16"):
    q, v = (TensorSpec((32, length, 128), each) for each in ("int8", dtype))
    return {"q": q, "k": q, "v": v, "o": v, "length": length}

TILES = ConfigSpace({"DIM": [128], "BM": [64], "BN": [64], "num_warps": [4], "num_stages": [2]})
attended = Operation("attended", TritonKernel(kernels.quantised_attention, lambda _: (64, 32)), TILES, quantised)
"""


@pytest.fixture
def target(tmp_path, monkeypatch):
    (tmp_path / "given.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "cache"))
    return "given.py"


@pytest.fixture(autouse=True)
def few_are_compiled(monkeypatch):
    """Half a second for each config: the order of the others, by guesses, is what most tests are about."""
    monkeypatch.setattr("triton_ops_lab.ranking._WHOLE", 2)
    monkeypatch.setattr("triton_ops_lab.ranking._FASTEST", 1)
    monkeypatch.setattr("triton_ops_lab.expectation._COMPARED", 2)  # texts that are read beside a declaration


def test_a_kernel_that_declares_nothing_is_read():
    result = ranked_norm()
    assert isinstance(result[0], RankedConfig)
    assert len(result) == 9
    assert {one.source for one in result} == {"inferred"}
    assert result[0].expected_ms < result[-1].expected_ms
    assert result[0].limited_by


def test_what_triton_or_the_device_refuses_is_last_with_the_reason():
    result = rank(NORM, (X, X, 1024, 1e-5), space={"BLOCK": [256], "num_warps": [3, 4, 64]}, gpu=H200, jobs=1)
    first, *others = [(one.config["num_warps"], one.expected_ms, one.limited_by) for one in result]
    assert (first[0], math.isfinite(first[1])) == (4, True)
    assert sorted(others) == [
        (3, math.inf, "num_warps is 3; it must be a power of two"),
        (64, math.inf, "64 warps of 32 are 2,048 threads per block; sm_90 has 1,024"),
    ]


def test_a_config_whose_grid_cannot_be_launched_is_no_candidate():
    rows = replace(NORM, grid=lambda meta: (1, 1 << 22 - meta["BLOCK"].bit_length()))
    result = rank(rows, (X, X, 1024, 1e-5), space={"BLOCK": [16, 256], "num_warps": [4]}, gpu=H200, jobs=1)
    assert [one.config["BLOCK"] for one in result] == [256]


def test_a_product_with_warps_that_cannot_be_launched_is_last_with_the_reason():
    square = TensorSpec((1024, 1024), "bfloat16")
    product = TritonKernel(kernels.described_matmul, lambda meta: (1024 // meta["BM"] * 1024 // meta["BN"],))
    space = {"BM": [64], "BN": [256], "BK": [64], "num_warps": [3, 4], "num_stages": [2]}
    first, last = rank(product, (square, square, square, 1024, 1024, 1024), space=space, gpu=H200, jobs=1)
    assert (first.config["num_warps"], last.config["num_warps"]) == (4, 3)
    assert math.isfinite(first.expected_ms)
    assert (last.expected_ms, last.limited_by) == (math.inf, "num_warps is 3; it must be a power of two")


def test_a_space_without_a_valid_config_is_refused_by_its_rules():
    narrow = {"num_warps": [4], "BLOCK": [64, 128]}
    never = ConfigSpace(narrow, (Constraint("wide", lambda BLOCK: BLOCK > 128, "blocks are wide"),))
    with pytest.raises(EmptySpaceError, match=r"none of the 2 configs .*\(wide\)"):
        rank(NORM, (X, X, 1024, 1e-5), space=never, gpu=H200, jobs=1)


def test_tensors_on_any_device_stand_for_their_shapes():
    x = torch.empty(4096, 1024, dtype=torch.bfloat16)
    by_tensors = rank(NORM, (x, x, 1024, 1e-5), space=SPACE, gpu=H200, jobs=2)
    assert by_tensors == ranked_norm()


def test_a_grid_that_cannot_be_told_is_the_reason():
    with pytest.raises(TargetError, match="its grid cannot be told: LookupError"):
        rank(TritonKernel(kernels.chunked_norm, unknown), (X, X, 1024, 1e-5), space=SPACE, gpu=H200, jobs=1)


def test_the_command_prints_a_list_as_json(cli, target):
    ran = cli("explain", "rank", f"{target}:plain", "--gpu", H200, "--json", "--jobs", "2")
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)["items"]
    assert len(result) == 9
    assert set(result[0]) == {
        "config", "expected_ms", "lower_bound_ms", "source", "limited_by", "compiled", "program",
    }  # fmt: skip
    assert result[0]["source"] == "inferred"


def test_the_command_prints_a_table_of_the_first(cli, target):
    ran = cli(
        "explain", "rank", f"{target}:plain", "--gpu", H200, "--top", "3", "--space", "BLOCK=256,1024", "--jobs", "2"
    )
    header, *lines = ran.out.splitlines()
    assert header.split() == ["expected", "lower", "bound", "limited", "by", "config"]
    assert len(lines) == 3
    assert "BLOCK=64" not in ran.out
    assert re.search(
        r"[1-5] of 6 configs are not compiled: their times, marked ~, and whether they fit are guessed", ran.err
    )


def test_the_command_says_why_it_has_nothing_to_say(cli, target):
    ran = cli("explain", "rank", f"{target}:lost", "--gpu", H200, "--jobs", "1")
    assert ran.code == 2
    assert "its grid cannot be told: ZeroDivisionError" in ran.err
    assert ran.out == ""


def test_explain_says_in_words_what_was_read(cli, target):
    ran = cli("explain", f"{target}:plain", "--gpu", H200, "--config", "BLOCK=256", columns=200)
    assert ran.code == 0, ran.err
    assert "read: loop 2" in ran.out
    assert "4 iterations" in ran.out
    assert (
        "x: 2.048 kB per program in 4 iterations, 8.389 MB in all, runs of 512 B, the same addresses as load" in ran.out
    )


def test_explain_says_where_a_declaration_and_the_kernel_differ(cli, target):
    result = json.loads(cli("explain", f"{target}:told", "--gpu", H200, "--json").out)
    assert result["source"] == "declared"
    message = "; ".join(result["differences"])
    assert "3 passes over a row are declared, and the kernel reads it 2 times" in message
    assert "1 GB are declared, and the kernel's least is 16.78 MB" in message
    assert result["inferred"]["launches"][0]["grid"] == [4096, 1, 1]


def test_explain_without_a_forecast_says_why_and_tells_what_the_compiler_made(cli, target):
    ran = cli("explain", f"{target}:lost", "--gpu", H200, columns=200)
    assert ran.code == 0, ran.err
    assert "no forecast: its grid cannot be told: ZeroDivisionError" in ran.out
    assert "by the compiler" in ran.out
    assert "occupancy" in ran.out


def test_explain_refuses_a_function_of_which_nothing_can_be_told(cli, target, tmp_path):
    (tmp_path / "plain.py").write_text(
        "from triton_ops import FunctionKernel, Operation\n"
        "def work(BLOCK): pass\n"
        "plain = Operation('plain', FunctionKernel(work), {'BLOCK': [1]}, lambda: {})\n"
    )
    ran = cli("explain", "plain.py:plain", "--gpu", H200)
    assert ran.code == 2, ran.out
    assert "the model makes no forecast: plain is no kernel that Triton compiles" in ran.err


@pytest.mark.parametrize("gpu", ["t4", "mi300x"])
def test_explain_knows_devices_that_the_model_does_not(cli, target, gpu):
    ran = cli("explain", f"{target}:plain", "--gpu", gpu, "--config", "BLOCK=256", columns=240)
    assert ran.code == 0, ran.err
    message = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in ran.out.splitlines())
    assert "ms at best" in message["expected"]
    assert re.match(r"\d+%: \d+ of 32 (warps|wavefronts), limited by ", message["occupancy"])
    assert "slots used" in message["blocks"]
    assert "limited by the memory" in message["intensity"]


def test_a_device_without_recordings_is_said_to_be_unseen(cli, target):
    words = f"{target}:plain", "--gpu", "rtx 4090"
    unseen = "unseen: no recording of this device stands behind its figures"
    assert unseen in cli("explain", *words, "--config", "BLOCK=256").out
    assert unseen in cli("explain", "rank", *words, "--jobs", "2").err
    assert "unseen" not in cli("explain", "rank", words[0], "--gpu", H200, "--jobs", "2").err


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        ("H200", "64 warps of 32 are 2,048 threads per block; sm_90 has 1,024"),
        ("MI300X", "64 warps of 64 are 4,096 threads per block; gfx942 has 1,024"),
    ],
)
def test_explain_of_a_config_that_cannot_be_launched_says_why_and_forecasts_nothing(cli, target, gpu, said):
    words = ["explain", f"{target}:wide", "--gpu", gpu, "--config", "num_warps=64"]
    result = json.loads(cli(*words, "--json").out)
    assert (result["expected_ms"], result["terms"], result["silent"], result["occupancy"]) == (None, [], said, None)
    shown = cli(*words, columns=200).out
    assert f"cannot run: {said}" in shown
    assert "0%: not even one block fits" in shown
    assert "waves" not in shown


def test_explain_of_a_number_of_warps_that_is_no_power_of_two_says_so(cli, target):
    ran = cli("explain", f"{target}:wide", "--gpu", H200, "--config", "num_warps=3")
    assert (ran.code, ran.out) == (2, "")
    assert "the model makes no forecast: num_warps is 3; it must be a power of two" in ran.err


@pytest.mark.parametrize(("spilled", "end"), [(0, "limited by registers"), (657, ", but 657 spilled bytes per thread")])
def test_stages_that_fit_are_told_with_what_they_spill(spilled, end):
    fitting = Compiled(Config({"num_stages": 3}), Status.DEFERRED, "", Resources(64, spilled, 1024))
    explained = Expectation(config=fitting.config, source="inferred", forecast=None, fitting=fitting)
    (message,) = _fit_remarks(explained, device_spec(H200), 32)
    assert message.startswith("with num_stages=3 it fits: 1,024 bytes shared")
    assert message.endswith(end)


@pytest.mark.parametrize(("spilled", "said"), [(0, "with 3 there would be room for 2"), (3224, "3,224 spilled bytes")])
def test_fewer_stages_for_more_blocks_are_no_advice_to_a_config_that_spills_much(spilled, said):
    spec = device_spec(H200)
    residents = spec.limits.residents(64, 128 << 10, 16)
    (result,) = _remarks(residents, None, Resources(64, spilled, 128 << 10), 4, spec)
    assert said in result
    assert ("triton-ops explain spills tries cures" in result) == bool(spilled)


def test_a_space_with_too_many_texts_is_ranked_by_some_of_them(monkeypatch):
    monkeypatch.setattr("triton_ops_lab.ranking.UNHURRIED", Survey(texts=1, promising=1, seconds=60))
    result = rank(NORM, (X, X, 1024, 1e-5), space={"BLOCK": [64, 128, 256, 512, 1024]}, gpu=H200, jobs=1)
    assert 1 <= len(result) <= 3  # one text, one that promises much, and the first of all
    assert all(math.isfinite(one.expected_ms) for one in result)


def test_a_space_of_listed_configs_is_ranked():
    listed = ConfigSpace.from_configs([{"BLOCK": 64, "num_warps": 4}, {"BLOCK": 1024, "num_warps": 4}])
    operation = Operation("listed", NORM, listed, lambda: {"x": X, "y": X, "columns": 1024, "eps": 1e-5})
    assert [one.config["BLOCK"] for one in rank(operation, gpu=H200, jobs=1)] == [1024, 64]


def test_all_commands_tell_one_time_bound_and_limit_and_one_program_has_one(cli, target):
    def items(*words):
        return json.loads(cli(*words, "--gpu", H200, "--json").out)["items"]

    result = [*items("explain", "rank", f"{target}:turning"), *items("compile", f"{target}:turning")]
    assert [one["config"]["num_stages"] for one in result] == [2, 3, 2, 3]
    explained = json.loads(cli("explain", f"{target}:turning", "--gpu", H200, "--config", "num_stages=3", "--json").out)
    names = ("expected_ms", "lower_bound_ms", "limited_by")
    assert {tuple(one[name] for name in names) for one in [*result, explained]} == {tuple(explained[n] for n in names)}
    assert explained["expected_ms"] > explained["lower_bound_ms"] > 0
    assert len({one["program"] for one in result}) == 1
    assert explained["stages"] == 1
    _, *rows = cli("explain", "rank", f"{target}:turning", "--gpu", H200, columns=200).out.splitlines()
    assert len(rows) == 1
    assert "num_stages=2 (the same program with num_stages=3)" in rows[0]


def test_a_time_that_is_guessed_is_marked_and_all_compiles_every_config(cli, target):
    ran = cli("explain", "rank", f"{target}:plain", "--gpu", H200, "--space", "BLOCK=256,1024", "--jobs", "2")
    marks = [line.split()[0].startswith("~") for line in ran.out.splitlines()[1:]]
    assert (marks[0], any(marks)) == (False, True)
    words = ("--gpu", H200, "--space", "BLOCK=256,1024", "--jobs", "2", "--all", "--json")
    ran = cli("explain", "rank", f"{target}:plain", *words)
    assert {one["compiled"] for one in json.loads(ran.out)["items"]} == {True}
    assert "not compiled" not in ran.err


def test_pipelines_and_warp_groups_are_spoken_of_only_where_the_program_has_them(cli, target):
    flat = cli("explain", f"{target}:turning", "--gpu", H200, "--pipeline", columns=200).out
    assert "products by mma.sync" in flat
    assert "the program is the same with any num_stages" in flat
    assert not re.search(r"begin with num_stages|warp-group|pipeline  |the units compute", flat)
    deep = cli("explain", f"{target}:attended", "--gpu", H200, "--pipeline", columns=200).out
    assert "products by wgmma" in deep
    assert "begin with num_stages" in deep
    assert "num_stages=2: the units compute" in deep


def test_products_of_two_dtypes_have_the_roof_of_both(cli, target):
    result = json.loads(cli("explain", f"{target}:attended", "--gpu", H200, "--json").out)
    each = 2.0 * 32 * 4096 * 4096 * 128
    assert result["roofline"]["flops"] == pytest.approx(2 * each)
    assert result["lower_bound_ms"] == pytest.approx(each / 1978.9e9 + each / 989.4e9)
    assert result["roofline"]["limit"] == "int8 and float16"
    assert result["expected_ms"] >= result["lower_bound_ms"]


@pytest.mark.parametrize("order", [("int8", "float16"), ("float16", "int8")])
def test_the_order_of_products_does_not_decide_the_ceiling_of_declared_operations(order):
    products = tuple(
        Product(batch=1, rows=16, columns=16, inner=16, element=name, loop=-1, executions=1.0, loads=(-1, -1))
        for name in order
    )
    launch = LaunchWork(
        grid=(1, 1, 1), looked_at=1, arguments=(), loops=(), accesses=(), products=products, plain=0.0, special=0.0
    )
    readings = Readings((), {(): KernelWork((launch,))})
    roof = roof_of(Work(flops=1e12, bytes=1.0), "float16", Config(), readings, device_spec("NVIDIA H200"))
    assert (roof.limit.name, roof.limit.peak) == ("float16", 989.4)


def test_a_simulation_of_a_target_has_the_places_and_times_of_its_rank(cli, target, tmp_path):
    words = [f"{target}:plain", "--gpu", H200, "--space", "BLOCK=256,1024"]
    ranked = {str(one["config"]): one for one in json.loads(cli("explain", "rank", *words, "--json").out)["items"]}
    ran = cli("simulate", *words, "--over", "columns", "--json")
    assert ran.code == 0, ran.err
    (simulation,) = json.loads(ran.out)["simulations"]
    assert (simulation["workload"], simulation["shape"], simulation["dtype"]) == ("plain", [4096, 1024], "bfloat16")
    assert [str(one["config"]) for one in simulation["configs"]] == list(ranked)
    for one in simulation["configs"]:
        same = ranked[str(one["config"])]
        names = ("expected_ms", "lower_bound_ms", "limited_by", "compiled")
        assert [one[name] for name in names] == [same[name] for name in names]
    assert [knob["name"] for knob in simulation["knobs"]] == ["BLOCK", "num_warps"]
    times = {str(one["config"]): one["expected_ms"] for one in simulation["configs"]}
    winner = simulation["configs"][0]["config"]
    for turn in simulation["knobs"][1]["turns"]:
        assert turn["expected_ms"] == times[str({**winner, "num_warps": turn["value"]})]
    points = {point["extents"][1]: point for point in simulation["over"]["shapes"]}
    assert points[1024]["best_ms"] == pytest.approx(simulation["configs"][0]["expected_ms"], rel=0.02)
    assert points[4096]["best_ms"] > 2 * points[1024]["best_ms"]
    page = tmp_path / "page.html"
    assert cli("simulate", *words, "--html", page).code == 0
    data = json.loads(re.search(r"const DATA = (.*);</script>", page.read_text(encoding="utf-8"))[1])
    (shown,) = [size for device in data["grid"]["plain"].values() for size in device.values()]
    assert [row["place"] for row in shown["rows"]] == list(range(1, 7))
    assert shown["note"].endswith("of 6 configs are not compiled: their times are guessed.")
    assert shown["shapes"] == {}


def test_configs_of_a_target_are_typed_with_any_values_and_refused_ones_say_why(cli, target):
    ran = cli(
        "simulate", f"{target}:wide", "--config", "num_warps=4", "--config", "num_warps=3", "--config", "BLOCK=96"
    )
    assert ran.code == 0, ran.err
    assert " 1 * " in ran.out
    assert "num_warps is 3" in ran.out
    assert "BLOCK is 96" in ran.out
    for words, text in (
        ([f"{target}:plain", "--over", "Q"], "plain has no extent 'Q'; it has rows, columns"),
        ([f"{target}:plain", "--config", "BX=1"], "BX"),
        ([f"{target}:plain", "--serve"], "--serve is for gemm"),
        ([f"{target}:lost"], "its grid cannot be told: ZeroDivisionError"),
        (["gemm", "--arg", "x=1"], "a workload takes one shape and no --arg"),
    ):
        ran = cli("simulate", *words)
        assert (ran.code, ran.out) == (2, "")
        assert text in ran.err
