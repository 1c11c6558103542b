"""Linear layers of block-wise fp8 and SGLang's experts: the engine's function, launched with rows that it looks up."""

import json
import sys
from pathlib import Path

import pytest

from tests.cpu.serving.engines import KERNEL, LINEAR_MODULE, write_engines
from triton_ops.cli.app import main
from triton_ops_serving.kernels import Served
from triton_ops_serving.linear import operation_of
from triton_ops_serving.model import EngineProblem

TINY = {
    "model_type": "qwen3_moe", "hidden_size": 64, "moe_intermediate_size": 32, "num_experts": 4,
    "num_experts_per_tok": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "torch_dtype": "float16",
}  # fmt: skip
FP8 = {**TINY, "quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 32]}}
PROBLEM = EngineProblem(
    form="sglang-linear", layer="", facts={"N": 128, "K": 64, "dtype": "fp8_w8a8", "block_shape": [32, 32]}
)


def tuned(folder, model, only):
    """The answer of `engine tune sglang` by stand-ins whose kernels run as Python here."""
    path = Path(folder)
    sys.path[:0] = [str(write_engines(path / "site", sglang=KERNEL))]
    (path / "config.json").write_text(json.dumps(model))
    words = ["--model", str(path / "config.json"), "--lockfile", str(path / "lock.json")]
    limits = ["--size", "5", "--size", "40", "--trials", "3", "--cache-dir", str(path / "cache")]
    return main(["engine", "tune", "sglang", *words, *limits, "--only", only])


def pinned(folder):
    entries = json.loads((folder / "lock.json").read_text())["entries"]
    return {(entry["problem"]["M"], entry["problem"].get("down", False)): entry for entry in entries}


@pytest.mark.processes
def test_a_linear_layer_is_tuned_through_the_engines_own_look_up(interpreted, tmp_path):
    assert interpreted(tuned, str(tmp_path), FP8, "linear N=128") == 0
    rows = pinned(tmp_path)
    assert {size for size, _ in rows} == {5, 40}
    for entry in rows.values():
        assert (entry["kernel"], entry["origin"]["source"]) == ("sglang-linear", "sglang of no version")
        assert entry["problem"]["block_shape"] == "[32, 32]"
        assert not {"SWAP_AB", "SPLIT_K"} & entry["config"].keys()


@pytest.mark.processes
def test_both_products_of_sglangs_experts_are_tuned_and_share_one_height(interpreted, tmp_path):
    assert interpreted(tuned, str(tmp_path), TINY, "moe") == 0
    rows = pinned(tmp_path)
    assert set(rows) == {(5, False), (40, False), (5, True), (40, True)}
    for size in (5, 40):
        assert rows[size, True]["config"]["BLOCK_SIZE_M"] == rows[size, False]["config"]["BLOCK_SIZE_M"]
        assert "USE_TMA" not in rows[size, True]["config"]


@pytest.fixture
def sglang(tmp_path, monkeypatch):
    """The stand-in of SGLang, whose device is of sm_90."""
    folder = write_engines(tmp_path / "site")
    path = folder / LINEAR_MODULE
    path.write_text(path.read_text().replace("is_sm90 = False", "is_sm90 = True"))
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] in ("vllm", "sglang")]:
        del sys.modules[name]


def default_for(tokens, rows=None):
    operation = operation_of(PROBLEM, Served(rows=rows or {}, dtype="float16"))
    space = operation.space(operation.problem((tokens,)))
    return space, dict(space.default)


def test_the_default_is_what_the_engines_function_would_launch(sglang):
    space, default = default_for(40)
    assert (default["BLOCK_SIZE_M"], default["BLOCK_SIZE_N"], default["num_stages"]) == (64, 32, 3)
    assert (default["SWAP_AB"], default["SPLIT_K"]) == (False, 1)
    assert {config["SPLIT_K"] for config in space} == {1, 4, 8, 16}
    row = {**default, "BLOCK_SIZE_M": 16}
    assert [default_for(size, {1: row, 64: default})[1]["BLOCK_SIZE_M"] for size in (8, 60)] == [16, 64]
