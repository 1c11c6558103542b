"""The config ranking simulator in a terminal: places with their reasons, what cannot run, recordings, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from triton_ops.cost_model import Model
from triton_ops.device import DeviceSpec
from triton_ops.exceptions import RecordingError
from triton_ops.space import Config
from triton_ops_lab.simulated_ranking import FLOORS, Overlay
from triton_ops_lab.simulation import WORKLOADS, series, simulate

H200 = DeviceSpec.called("H200")
RECORDINGS = Path(__file__).parents[3] / "benchmarks" / "recordings"
ASKED = {"products": 0.8, "rows": 0.6}


def test_a_ranking_with_its_reasons(cli, golden):
    ran = cli("simulate", "gemm", "--over", "M")
    assert (ran.code, ran.err) == (0, "")
    golden("simulate.txt", ran.out)
    assert cli("simulate", "gemm", "--over", "M").out == ran.out


def test_all_workloads_as_json(cli):
    result = json.loads(cli("simulate", "--json").out)["simulations"]
    assert [one["workload"] for one in result] == list(WORKLOADS)
    for one in result:
        able = [config for config in one["configs"] if config["place"]]
        assert [config["place"] for config in able] == list(range(1, len(able) + 1))
        assert able[0]["score"] == 100
        times = [config["expected_ms"] for config in able]
        assert times == sorted(times)
        assert all(config["lower_bound_ms"] <= config["expected_ms"] for config in able)
        assert one["advice"].endswith(".")
        assert one["knobs"]
    advice = {one["workload"]: one["advice"] for one in result}
    assert advice["gemm"].startswith("A large matrix product wants large tiles")
    assert advice["rmsnorm"].startswith("A norm waits for memory")
    assert "a single stage" in advice["rmsnorm"]


@pytest.mark.parametrize(
    ("workload", "best"),
    [("skinny-gemm", {"BM": 64, "BN": 64, "BK": 64}), ("attention", {"BM": 128, "BN": 128})],
)
def test_the_winner_depends_on_the_workload(workload, best):
    first = simulate(WORKLOADS[workload], H200).standings[0]
    assert best.items() <= dict(first.config).items()


def test_a_whole_space_agrees_with_what_was_measured_on_an_h200():
    standings = simulate(WORKLOADS["gemm"], H200, configs=WORKLOADS["gemm"].whole()).standings
    assert standings[0].config == Config(BM=128, BN=256, BK=64, num_warps=8, num_stages=4)
    assert {one.place == 0 for one in standings[-5:]} == {True}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"BM": 96}, "BM is 96, which is no power of two"),
        ({"BM": 0}, "BM is 0; it must be a whole number of 1 or more"),
        ({"BM": "x"}, "BM is 'x'; it must be a whole number of 1 or more"),
        ({"BK": 8}, "BK is 8; the product needs 16 or more"),
        ({"num_warps": 3}, "num_warps is 3, which is no power of two"),
        ({"num_warps": 64}, "64 warps are more than 1024 threads, the most of one block"),
        ({"num_stages": 0}, "num_stages is 0; it must be a whole number of 1 or more"),
        ({"BM": 4096, "BN": 4096}, "a tile of 4096 by 4096 has more than 1,048,576 elements"),
        ({"num_stages": 9}, "needs 294,912 bytes of shared memory per block; the limit is 232,448"),
        ({"ALGORITHM": "split"}, "ALGORITHM is 'split'; it must be one of tiles, persistent, split_k, stream_k"),
        ({"PROGRAMS": -1}, "PROGRAMS is -1; it must be a whole number of 0 or more"),
        ({"GROUP_M": 0}, "GROUP_M is 0; it must be a whole number of 1 or more"),
    ],
)
def test_a_config_that_cannot_run_is_last_and_says_why(changed, reason):
    fine = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8, "num_stages": 3}
    standings = simulate(WORKLOADS["gemm"], H200, configs=[{**fine, **changed}, fine]).standings
    assert [one.place for one in standings] == [1, 0]
    assert (standings[1].why_not, standings[1].limited_by, standings[1].score) == (reason, reason, 0)


def test_jitter_disturbs_places_by_its_seed_alone():
    def order(**how):
        return [tuple(one.config.values()) for one in simulate(WORKLOADS["gemm"], H200, **how).standings]

    assert order(jitter=0.2, seed=1) == order(jitter=0.2, seed=1)
    assert order() == order(seed=1)
    assert len({tuple(order(jitter=0.2, seed=seed)) for seed in range(8)}) > 1
    assert simulate(WORKLOADS["gemm"], H200, jitter=0.2).standings[0].score == 100


def test_no_config_that_can_run_is_said_in_the_advice(cli):
    ran = cli("simulate", "attention", "--config", "BM=256,BN=256,num_stages=6")
    assert ran.code == 0
    assert "The config cannot run here: needs" in ran.out
    assert "one knob turned" not in ran.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["conv"], 2, "no workload is called 'conv'"),
        (["gemm", "--gpu", "Voodoo 2"], 3, "no device 'Voodoo 2' is in the table"),
        (["gemm", "--gpu", "MI300X"], 3, "the model does not know the architecture gfx942 of"),
        (["gemm", "--shape", "4096"], 2, "gemm takes 3 extents, MxNxK; 4096 has 1"),
        (["gemm", "--shape", "0x1x1"], 2, "not made of whole numbers of 1 or more"),
        (["gemm", "--shape", "1e9x1x1"], 2, "not made of whole numbers of 1 or more"),
        (["gemm", "--shape", "99999999999x1x1"], 2, "an extent of 99999999999 is out of range"),
        (["gemm", "--shape", "1x1,1"], 2, "a workload takes one shape and no --arg"),
        (["gemm", "--dtype", "int4"], 2, "dtype 'int4' is not known"),
        (["gemm", "--dtype", "fp8", "--gpu", "A100-SXM4-80GB"], 2, "no known matrix rate for float8_e4m3fn"),
        (["gemm", "--config", "BM=128"], 2, "a config has no BN, BK"),
        (["gemm", "--config", "BX=128"], 2, "gemm has no tunable BX"),
        (["rmsnorm", "--config", "BM=1,BN=64,SPLIT=2"], 2, "rmsnorm has no tunable SPLIT"),
        (["gemm", "--config", "BM=16,BN=16,BK=16", "--whole"], 2, "exclude each other"),
        (["gemm", "--space", f"GROUP_M={','.join(map(str, range(1, 99)))}"], 2, "the space has 47,040 configs"),
        (["gemm", "--space", '{"BM": [{"a": 1}]}'], 2, "BM"),
        (["gemm", "--config", "BM=nan,BN=16,BK=16"], 2, "BM"),
        (["gemm", "--jitter", "nan"], 2, "less than or equal to 1"),
        (["gemm", "--html", "page.html", "--json"], 2, "exclude each other"),
        (["gemm", "--over", "Q"], 2, "gemm has no extent 'Q'"),
        (["--shape", "64x64x64"], 2, "options of a workload are given"),
        (["--recording", "nowhere.json.gz"], 2, "nowhere.json.gz cannot be read"),
    ],
)
def test_bad_input_is_one_line(cli, words, code, said):
    ran = cli("simulate", *words)
    assert (ran.code, ran.data) == (code, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("file", "undeclared"),
    [
        ("matmul_bf16-2048x6144x3072", False),
        ("flash_d64", False),
        ("layer_norm_gradient", False),
        ("attention_causal_d128", False),
        ("gated_mlp", False),
        ("gated_mlp", True),  # with the work that was read, in the place of the declared
        ("layer_norm_backward", False),
        ("matmul_fp8-4096x5120x8192", False),
        ("persistent_matmul", False),
        ("split_k_atomic", False),
    ],
)
def test_a_recording_agrees_with_the_prediction(cli, file, undeclared):
    path = RECORDINGS / f"{file}.json.gz"
    result = Overlay.of(path, undeclared=undeclared)
    assert FLOORS[result.kind] == ASKED[result.kind]
    assert result.spearman >= FLOORS[result.kind]
    ran = cli("simulate", "--recording", path, "--top", "3", *(["--undeclared"] if undeclared else []))
    assert ran.code == 0
    assert f"correlation of expected and measured times is {result.spearman:.3f}" in ran.out
    assert "is reached" in ran.out


def test_a_recording_of_unknown_work_is_refused(tmp_path):
    path = tmp_path / "run.json"
    head = {"family": "conv_bf16", "shape": [8], "gpu": "NVIDIA H200", "space": {"B": [1, 2]}, "python": "3"}
    rows = [{"config": {"B": one}, "status": "ok", "ms": [[1, 1, 1.0 * one]]} for one in (1, 2)]
    path.write_text(json.dumps({**head, "rows": rows}))
    with pytest.raises(RecordingError, match="does not tell what its kernel does"):
        Overlay.of(path)


def test_a_series_of_shapes_changes_one_extent():
    result = series((4096, 64, 64), 0, 13)
    assert [shape[0] for shape in result[:3]] == [256, 384, 512]
    assert result[-1] == [16384, 64, 64]
    assert {tuple(shape[1:]) for shape in result} == {(64, 64)}
    assert series((1, 2), 0, 3) == [[1, 2], [2, 2]]


def test_spearman_shares_ranks_among_ties():
    assert Model.spearman([1, 2, 3], [10, 20, 30]) == 1
    assert Model.spearman([1, 2, 3], [3, 2, 1]) == -1
    assert Model.spearman([1, 1, 2], [5, 5, 9]) == 1
    assert Model.spearman([1, 1], [1, 2]) == 1
