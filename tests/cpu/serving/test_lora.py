"""Adapters' products: their problems, files that layers share, look-ups of rows, and state spaces beside them."""

import contextlib
import importlib
import json

import pytest

from tests.cpu.serving.test_model import DEEPSEEK, LLAMA, MIXTRAL, labels
from tests.cpu.serving.test_plugins import _counts_of_its_own, counted, engines
from tests.cpu.serving.test_tables import model_file
from triton_ops.records import Lockfile
from triton_ops.ship import Table
from triton_ops_serving import plugins
from triton_ops_serving.kernels import Served
from triton_ops_serving.model import EngineProblem, Model
from triton_ops_serving.state_space import operation_of

__all__ = ["_counts_of_its_own", "engines"]
PLAIN = {name: value for name, value in LLAMA.items() if name != "quantization_config"}
H200 = ("--gpu", "H200", "--triton", "3.8.0", "--lora-rank", "16", "--max-loras", "4")
LORA = "vllm.lora.ops.triton_ops.utils"
QKV = {"op_type": "shrink", "max_loras": 5, "num_slices": 3, "hidden_size": 4096, "rank": 16}

ROW = {"block_m": 16, "block_n": 64, "block_k": 64, "num_warps": 4, "num_ctas": 1, "num_stages": 2}


def lockfile(path, rows):
    """A lockfile with rows of tables: of (format, row's name, facts) the configs by size."""
    locks = [
        Table.by_size({"device_name": "NVIDIA H200"}, ((size, row, None) for size, row in configs.items()))
        .lockfile(form, (name,), dict(facts), "vllm 0.33.0")
        for (form, name, facts), configs in rows.items()
    ]  # fmt: skip
    Lockfile.merged(locks).write(path)
    return path


def all_of(engine, size, config):
    """The same row for each product of the adapters of a model."""
    problems = Model(PLAIN, adapters=(16, 4)).problems(engine)
    return {(each.form, each.row, tuple(each.facts.items())): {size: config} for each in problems}


def test_adapters_have_a_table_for_each_product_of_a_layer():
    expand, rest = "op_type=expand,max_loras=5,num_slices=", ",rank=16,add_inputs=True"
    shrink = "op_type=shrink,max_loras=5,num_slices="
    assert [label for _, label in labels(PLAIN, ranks=2, adapters=(16, 4))] == [
        f"{shrink}3,hidden_size=4096,rank=16", f"{expand}3,hidden_size=2048{rest}",
        f"{shrink}1,hidden_size=2048,rank=16", f"{expand}1,hidden_size=4096{rest}",
        f"{shrink}2,hidden_size=4096,rank=16", f"{expand}2,hidden_size=7168{rest}",
        f"{shrink}1,hidden_size=7168,rank=16",
    ]  # fmt: skip
    assert [label for _, label in labels(PLAIN, "sglang", adapters=(8, 4))][:4] == [
        "kernel=shrink,K=4096,R=8,S=3", "kernel=expand,K=6144,R=8,S=3", "kernel=shrink,K=4096,R=8,S=1",
        "kernel=expand,K=4096,R=8,S=1",
    ]  # fmt: skip


def test_adapters_that_are_left_out_are_said():
    for values, count in ((DEEPSEEK, 0), (MIXTRAL, 4)):
        model = Model(values, adapters=(16, 1))
        assert sum(each.form == "vllm-lora" for each in model.problems("vllm")) == count
        assert "adapters of experts, and of attention with latent keys, are left out" in model.remarks


def test_layers_share_a_file_of_vllm_that_is_found_and_put_back(engines, tmp_path, cli, monkeypatch):
    model, own = model_file(tmp_path, PLAIN), tmp_path / "own"
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(own))
    first, second = ROW, {**ROW, "block_m": 64, "num_warps": 8}
    lock = lockfile(tmp_path / "lock.json", {
        **all_of("vllm", 16, first), ("vllm-lora", "M", tuple(QKV.items())): {16: second, 256: first},
    })  # fmt: skip
    words = ("engine", "export", "vllm", own, "--model", model, *H200)
    assert cli("engine", "check", "vllm", "--model", model, *H200).code == 5
    assert len(json.loads(cli(*words, "--lockfile", lock, "--json").out)["changes"]) == 8
    assert sorted(path.name for path in own.iterdir()) == sorted(
        f"NVIDIA_H200_{name}.json{ending}" for name in ("SHRINK", "EXPAND_TRUE") for ending in ("", ".before")
    )
    look_up = importlib.import_module(LORA).get_lora_op_configs
    assert [look_up(**QKV, batch=size) for size in (1, 200)] == [second, first]
    assert look_up(**{**QKV, "num_slices": 1, "hidden_size": 14336}, batch=4096) == first  # else another layer's row
    ran = cli("engine", "check", "vllm", "--model", model, *H200)
    assert (ran.code, "16 of 18 sizes take the nearest row" in ran.out.replace("\n", "")) == (5, True)
    assert "have these rows already" in cli(*words, "--lockfile", lock).err
    assert cli(*words, "--undo").code == 0
    assert list(own.iterdir()) == []


def test_exports_of_two_models_at_once_keep_the_rows_of_both(engines, tmp_path, cli, monkeypatch):
    own, row = tmp_path / "own", ROW
    lock = lockfile(tmp_path / "lock.json", all_of("vllm", 16, row))
    other = {"1": {"3": {"16": {"64": {"16": row}}}, "1": {"16": {"64": {"16": row}}}}}

    @contextlib.contextmanager
    def waiting(path):  # another export writes its rows before this one has its turn
        path.write_text(json.dumps(other))
        yield

    monkeypatch.setattr(Lockfile, "editing", staticmethod(waiting))
    ran = cli("engine", "export", "vllm", own, "--model", model_file(tmp_path, PLAIN), *H200, "--lockfile", lock)
    assert (ran.code, json.loads((own / "NVIDIA_H200_SHRINK.json").read_text())["1"]) == (0, other["1"])


def test_a_file_that_would_end_the_engine_is_not_written(engines, tmp_path, cli, monkeypatch):
    model, own = model_file(tmp_path, PLAIN), tmp_path / "own"
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(own))
    lock = lockfile(tmp_path / "lock.json", {("vllm-lora", "M", tuple(QKV.items())): {16: ROW}})
    ran = cli("engine", "export", "vllm", own, "--model", model, *H200, "--lockfile", lock)
    assert (ran.code, own.exists(), "no row for num_slices=1, which ends vllm" in ran.err) == (4, False, True)
    own.mkdir()
    (own / "NVIDIA_H200_SHRINK.json").write_text(json.dumps({"2": {"3": {"16": {"4096": {"16": ROW}}}}}))
    ran = cli("engine", "check", "vllm", "--model", model, *H200, "--json")
    says = {each["problem"]: each["says"] for each in json.loads(ran.out)["tables"]}
    assert "which ends vllm" in says["op_type=shrink,max_loras=5,num_slices=1,hidden_size=4096,rank=16"]
    (own / "NVIDIA_H200_SHRINK.json").write_text(json.dumps({"2": {"3": {"few": {"4096": {"16": ROW}}}}}))
    ran = cli("engine", "check", "vllm", "--model", model, *H200)
    assert (ran.code, "is no table of LoRA" in ran.out) == (5, True)


def test_tables_of_sglangs_adapters_are_written_and_found(engines, tmp_path, cli, monkeypatch):
    row = {"BLOCK_N": 16, "BLOCK_K": 64, "num_warps": 8, "num_stages": 2}
    model, own = model_file(tmp_path, PLAIN), tmp_path / "own"
    monkeypatch.setenv("SGLANG_LORA_CONFIG_DIR", str(own))
    lock = lockfile(tmp_path / "lock.json", all_of("sglang", 16, row))
    assert cli("engine", "export", "sglang", own, "--model", model, *H200, "--lockfile", lock).code == 0
    module = importlib.import_module("sglang.kernels.ops.lora.dense.lora_tuning_config")
    assert module.get_lora_configs("expand", 6144, 16, 3) == {16: row}
    ran = cli("engine", "check", "sglang", "--model", model, *H200[:2], "--triton", "3.9.0", *H200[4:], "--json")
    assert {each["says"] for each in json.loads(ran.out)["tables"]} == {
        "of Triton 3.8.0, and 3.9.0 runs; 3 of 4 sizes take the nearest row: 32, 64, 128"
    }


def test_rows_that_vllm_looks_up_one_by_one_are_answered_and_counted(engines, tmp_path, monkeypatch):
    early, late = ROW, {**ROW, "block_m": 128}
    lock = lockfile(tmp_path / "lock.json", {("vllm-lora", "M", tuple(QKV.items())): {16: early, 256: late}})
    monkeypatch.setenv("TRITON_OPS_LOCKFILE", str(lock))
    module = importlib.import_module(LORA)
    user = importlib.import_module("vllm.lora.ops.triton_ops.lora_shrink_op")  # has the function before the plug-in
    plugins.vllm()
    words = {name: value for name, value in QKV.items() if name != "op_type"}
    for function in (module.get_lora_op_configs, user.get_lora_op_configs):
        assert [function("shrink", batch=size, **words) for size in (1, 200, 4096)] == [early, late, late]
    assert module.get_lora_op_configs("shrink", batch=8, **{**words, "rank": 8}) == {"block_m": 32}
    assert [(rung, count) for _, rung, count in counted("vllm-lora")] == [("lockfile", 6), ("default", 1)]


def test_rows_of_vllms_own_file_serve_where_none_is_pinned(engines, tmp_path, monkeypatch):
    own, pinned = {**ROW, "block_m": 64}, ROW
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(tmp_path))
    content = {"5": {"3": {"16": {"4096": {"16": own}}, "512": {"4096": {"16": own}}}}}
    (tmp_path / "NVIDIA_H200_SHRINK.json").write_text(json.dumps(content))
    lock = lockfile(tmp_path / "lock.json", {("vllm-lora", "M", tuple(QKV.items())): {16: pinned}})
    monkeypatch.setenv("TRITON_OPS_LOCKFILE", str(lock))
    plugins.vllm()
    look_up = importlib.import_module(LORA).get_lora_op_configs
    assert [look_up(batch=size, **QKV) for size in (1, 1024)] == [pinned, own]
    look_up.cache_clear()
    assert look_up(batch=1, **QKV) == pinned


@pytest.mark.parametrize(("facts", "extents", "batch"), [
    ({"headdim": 6, "dstate": 8, "cache_dtype": "float32"}, {"heads": 4, "groups": 2}, 12),
    ({"headdim": 6, "dstate": 8, "cache_dtype": "float32"}, {"heads": 4, "groups": 2}, 2),
    ({"headdim": 20, "dstate": 4, "cache_dtype": "float32"}, {"heads": 1}, 3),
])  # fmt: skip
def test_a_step_of_a_state_space_is_the_engines_own_and_as_the_reference_says(facts, extents, batch, engines):
    torch = pytest.importorskip("torch")
    problem = EngineProblem(form="vllm-mamba", layer="", facts=facts, extents=extents, row="batch")
    operation = operation_of(problem, Served(dtype="float32"))
    instance = operation.problem((batch,))
    assert dict(operation.space(instance).default) == {"BLOCK_SIZE_M": 8, "num_warps": 4}
    arguments = operation.materialise(instance, "cpu")
    expected = operation.reference(*arguments.positional, **arguments.keyword)
    results = operation.kernel.launch(*arguments.positional, **arguments.keyword, BLOCK_SIZE_M=16, num_warps=2)
    for result, right in zip(results, expected, strict=True):
        torch.testing.assert_close(result, right)
    assert expected[0].shape[0] * expected[0].shape[1] == batch
