"""The engines' own kernels and look-ups, where their wheels, or the files of them that import, are on the path.

`python -m benchmarks.tuning.engine_files` makes an archive of such files, which `make test-extras` unpacks. Tests that
run kernels are skipped where these stand in site-packages: kernels of installed packages are not read ahead, so that
nothing says that they run as Python.
"""

import importlib
import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from triton_ops.cli.app import main
from triton_ops.ship import Table
from triton_ops_serving.formats import file_text, form_of

ADAPTERS = ["--lora-rank", "8", "--max-loras", "3"]
DENSE = {
    "model_type": "llama", "hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 3, "head_dim": 16,
    "num_key_value_heads": 1, "torch_dtype": "float16",
}  # fmt: skip
MAMBA = {
    "model_type": "nemotron_h", "hidden_size": 48, "mamba_num_heads": 4, "mamba_head_dim": 24, "ssm_state_size": 16,
    "n_groups": 2, "expand": 2, "torch_dtype": "float16", "mamba_ssm_cache_dtype": "float32",
}  # fmt: skip
FALCON = {
    "model_type": "falcon_mamba",
    "hidden_size": 24,
    "intermediate_size": 40,
    "state_size": 8,
    "expand": 16,
    "torch_dtype": "float16",
}


def tuned(engine, folder, model, words):
    """The answer of `engine tune`, and the configs that were tried, by the engine's own kernels as Python."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # with none vLLM takes Triton's language all the same
    path = Path(folder)
    (path / "config.json").write_text(json.dumps(model))
    own = ["--lockfile", str(path / "lock.json"), "--cache-dir", str(path / "cache"), "--trials", "3"]
    return main(["engine", "tune", engine, "--model", str(path / "config.json"), *own, *words])


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("engine", "model", "form", "words"), [
    pytest.param(*case, marks=pytest.mark.extras(case[0])) for case in (
        ("vllm", MAMBA, "vllm-mamba", ["--size", "8"]),
        ("vllm", FALCON, "vllm-mamba", ["--size", "8"]),
        ("vllm", DENSE, "vllm-lora", ["--size", "5", *ADAPTERS, "--only", "expand,max_loras=4,num_slices=3"]),
        ("vllm", DENSE, "vllm-lora", ["--size", "130", *ADAPTERS, "--only", "shrink,max_loras=4,num_slices=2"]),
        ("sglang", DENSE, "sglang-lora", ["--size", "16", *ADAPTERS, "--only", "S=3"]),
    )
])  # fmt: skip
def test_an_engines_own_kernel_is_tuned_against_the_reference(engine, model, form, words, interpreted, tmp_path):
    if "site-packages" in find_spec(engine).origin:
        pytest.skip(f"{engine} is installed")
    assert interpreted(tuned, engine, str(tmp_path), model, words) == 0
    entries = json.loads((tmp_path / "lock.json").read_text())["entries"]
    assert {entry["kernel"] for entry in entries} == {form}


@pytest.mark.extras("vllm", "sglang")
def test_the_engines_look_ups_of_adapters_find_what_is_written(tmp_path, monkeypatch):
    row = {"BLOCK_N": 16, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2}
    facts = {"kernel": "expand", "K": 6144, "R": 16, "S": 3}
    rows = [(16, row, None)]
    module = importlib.import_module("sglang.kernels.ops.lora.dense.lora_tuning_config")
    device = {"device_name": "NVIDIA H200", "triton_version": module.triton.__version__}
    monkeypatch.setattr(module, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setenv("SGLANG_LORA_CONFIG_DIR", str(tmp_path))
    form_of("sglang-lora", facts).write(Table.by_size({**facts, **device}, rows), tmp_path)
    assert module.get_lora_configs(*facts.values()) == {16: row}
    facts = {"op_type": "expand", "max_loras": 5, "num_slices": 3, "hidden_size": 4096, "rank": 16, "add_inputs": True}
    module = importlib.import_module("vllm.lora.ops.triton_ops.utils")
    monkeypatch.setattr(module.torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(tmp_path))
    row = {"block_m": 16, "block_n": 64, "block_k": 64, "num_warps": 4, "num_ctas": 1, "num_stages": 2}
    rows = [(16, row, None)]
    form = form_of("vllm-lora", facts)
    path = form.file_below(tmp_path, {**facts, **device})
    path.write_text(file_text([(form, Table.by_size({**facts, **device}, rows))], None, path, [form]))
    assert module.get_lora_op_configs(**facts, batch=700) == row
