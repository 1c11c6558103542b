"""The operation around an engine's launcher: its sorted tokens, its reference, and a tune of it in a stand-in."""

import collections
import json
import sys
from pathlib import Path

import pytest

from tests.cpu.serving.engines import KERNEL, SGLANG_KERNELS, write_engines
from tests.cpu.serving.test_tables import engines
from triton_ops.cli.app import main
from triton_ops.exceptions import SettingsError, ShapeMismatchError
from triton_ops_serving.experts import chosen_experts, operation_of, parts_of, routing_named, sorted_tokens
from triton_ops_serving.kernels import EngineKernel, Served
from triton_ops_serving.model import EngineProblem

__all__ = ["engines"]
TINY = {
    "model_type": "mixtral", "hidden_size": 32, "intermediate_size": 16, "num_local_experts": 4,
    "num_experts_per_tok": 2, "torch_dtype": "float16",
}  # fmt: skip


@pytest.mark.parametrize(("tokens", "experts", "top_k"), [(1, 8, 2), (5, 4, 2), (40, 8, 3), (3, 64, 8)])
def test_tokens_are_sorted_by_their_experts(tokens, experts, top_k):
    chosen = chosen_experts(tokens, top_k, routing_named("zipf:1.5", experts))
    assert all(len(set(row)) == top_k for row in chosen.tolist())
    flat, table = chosen.flatten().tolist(), sorted_tokens(chosen, experts).tolist()
    for row, height in zip(table, (16, 32, 64, 128, 256), strict=True):
        places, tiles, begin = parts_of(len(flat), experts, height)
        ids, groups = row[16 : 16 + places], row[begin : begin + tiles]
        if len(flat) * 4 > experts:
            assert row[0] == sum(-(-count // height) * height for count in collections.Counter(flat).values())
            assert sorted(place for place in ids if place < len(flat)) == list(range(len(flat)))
            assert all(flat[token] == groups[at // height] for at, token in enumerate(ids) if token < len(flat))
        else:
            assert row[0] == len(flat) * height


def test_a_routing_is_skewed_as_it_is_named(tmp_path):
    path = tmp_path / "loads.json"
    path.write_text("[0, 0, 1, 0, 9, 0, 0, 0]")
    counts = {
        name: collections.Counter(chosen_experts(2000, 1, routing_named(name, 8)).flatten().tolist())
        for name in ("uniform", "zipf:2", str(path))
    }
    assert max(counts["uniform"].values()) < 350
    assert max(counts["zipf:2"].values()) > 1000
    assert len(counts[str(path)]) == 2
    assert chosen_experts(7, 2, [1.0] * 8).tolist() == chosen_experts(7, 2, [1.0] * 8).tolist()


@pytest.mark.parametrize("tokens", [99_999_999_999, 10**23])
def test_a_size_without_room_is_an_error_with_the_bytes_asked_and_free(tokens):
    with pytest.raises(ShapeMismatchError, match=r"it takes [0-9]+ MiB, and [0-9]+ MiB are free"):
        chosen_experts(tokens, 1, [1.0] * 4)


@pytest.mark.parametrize(("name", "content"), [
    ("zipf:steep", None), ("nowhere.json", None), ("loads.json", "[1, 2]"), ("loads.json", "[0, 0, 0, 0]"),
    ("loads.json", "{"), ("loads.json", '[1, 2, 3, "four"]'),
    ("loads.json", "4"), ("uniform:2", None), ("zipf", None), ("zipf:nan", None), ("zipf:-1e308", None),
    ("loads.json", "[1, NaN, 1, 1]"), ("loads.json", "[Infinity, 1, 1, 1]"),
])  # fmt: skip
def test_a_routing_that_is_none_is_refused(name, content, tmp_path):
    if content:
        (tmp_path / name).write_text(content)
    with pytest.raises(SettingsError, match="--routing"):
        routing_named(str(tmp_path / name) if name.endswith("json") else name, 4)


def tuned(folder):
    """The answers of `engine tune` and of a second one, by a stand-in whose kernel runs as Python here."""
    path = Path(folder)
    sys.path[:0] = [str(write_engines(path / "site", vllm=KERNEL))]
    (path / "config.json").write_text(json.dumps(TINY))
    words = ["engine", "tune", "vllm", "--model", str(path / "config.json"), *["--size", "5"] * 2, "--trials", "2"]
    words += ["--routing", "zipf:1", "--lockfile", str(path / "lock.json"), "--cache-dir", str(path / "cache")]
    return [main(words), main([*words, "--markdown"])]


def test_an_engines_kernel_is_tuned_verified_and_pinned(interpreted, tmp_path):
    assert interpreted(tuned, str(tmp_path)) == [0, 0]
    (entry,) = json.loads((tmp_path / "lock.json").read_text())["entries"]
    assert entry["kernel"] == "vllm-moe"
    assert entry["problem"] == {"E": 4, "M": 5, "N": 16}
    assert entry["origin"]["source"] == "vllm of no version, routing zipf:1"
    assert set(entry["config"]) >= {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps"}


def test_a_lockfile_that_is_torn_is_refused_before_anything_is_tuned(tmp_path, cli):
    model, lock = tmp_path / "config.json", tmp_path / "lock.json"
    model.write_text(json.dumps(TINY))
    lock.write_text('{"kind": "triton-ops lock"')
    ran = cli("engine", "tune", "vllm", "--model", model, "--lockfile", lock)
    assert (ran.code, "it is no lockfile" in ran.err) == (4, True)
    ran = cli("engine", "tune", "vllm", "--model", model, "--lockfile", tmp_path / "no" / "lock.json")
    assert (ran.code, "there is no such folder" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("problem", "said"),
    [("E=8,N=7168", "nothing is left to tune"), ("E=4,N=16", "fused_moe cannot be imported: ModuleNotFoundError")],
)
def test_only_what_nothing_answered_is_tuned(problem, said, tmp_path, cli):
    row = {"kernel": "vllm-moe", "problem": problem, "device": "", "rung": "default", "config": {}, "why": "",
           "passed": [], "record": "", "launches": 3}  # fmt: skip
    report, model = tmp_path / "why.json", tmp_path / "config.json"
    report.write_text(json.dumps({"kind": "triton-ops report", "schema_version": 1, "launches": [row]}))
    model.write_text(json.dumps(TINY))
    ran = cli("engine", "tune", "vllm", "--model", model, "--misses", report)
    assert ran.code == 2
    assert said in ran.err


def test_what_an_engine_imports_for_seconds_is_imported_once_for_all_compilers(monkeypatch):
    kernel = EngineKernel(lambda x: x)
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    assert kernel.compile_imports == "torch"
    monkeypatch.setitem(sys.modules, "torch._dynamo", sys)
    assert kernel.compile_imports == "torch._dynamo"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_of_another_version_is_an_error_that_names_the_known_one(engine, engines, tmp_path, cli):
    (engines / SGLANG_KERNELS).parent.mkdir(parents=True)
    (engines / SGLANG_KERNELS).touch()
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    ran = cli("engine", "tune", engine, "--model", tmp_path / "config.json", "--lockfile", tmp_path / "lock.json")
    assert ran.code == 2
    assert "is of another version: it has no invoke_fused_moe" in ran.err
    assert "install vllm 0.33 or sglang 0.5.23" in ran.err


def test_kernels_that_cannot_be_tuned_are_refused(tmp_path, cli):
    model = tmp_path / "config.json"
    model.write_text(json.dumps({**TINY, "quantization_config": {"quant_method": "fp8"}}))
    for facts in ({"dtype": "fp8_w8a8"}, {"dtype": "fp8_w8a8", "block_shape": [16, 24]}, {"dtype": "int8_w8a8"}):
        problem = EngineProblem(
            form="vllm-moe", layer="", facts={"E": 4, "N": 16, **facts}, extents={"K": 32, "columns": 32, "top_k": 2}
        )
        with pytest.raises(SettingsError, match="without whole blocks cannot be tuned here"):
            operation_of(problem, Served())
    few = EngineProblem(
        form="vllm-moe", layer="", facts={"E": 1, "N": 16}, extents={"K": 32, "columns": 32, "top_k": 2}
    )
    with pytest.raises(SettingsError, match="a token has 2 experts, and a rank 1"):
        operation_of(few, Served())
    ran = cli("engine", "tune", "sglang", "--model", model)
    assert (ran.code, "experts of fp8_w8a8 without whole blocks cannot be tuned here: left out" in ran.err) == (2, True)
