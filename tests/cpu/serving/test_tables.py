"""What an engine finds for a problem, and which rows a lockfile pins: `triton-ops engine check`."""

import json
import sys

import pytest

from tests.cpu.serving.engines import MOE_MODULE, write_engines
from tests.cpu.serving.test_model import JAMBA, MIXTRAL, QWEN

ROW = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
H200 = ("--gpu", "H200", "--triton", "3.8.0")


@pytest.fixture
def engines(tmp_path, monkeypatch):
    """The folder of stand-ins of both engines, which Python finds; variables that name folders are not set."""
    folder = write_engines(tmp_path / "site")
    monkeypatch.syspath_prepend(folder)
    for name in ("VLLM_TUNED_CONFIG_FOLDER", "SGLANG_MOE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] in ("vllm", "sglang")]:
        del sys.modules[name]


def model_file(folder, values):
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    return path


def write_table(path, sizes=SIZES, **beside):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**beside, **{str(size): ROW for size in sizes}}))
    return path


def checked(cli, engine, model, *words):
    ran = cli("engine", "check", engine, "--model", model, "--json", *(words or H200))
    return ran.code, json.loads(ran.out)["tables"] if ran.out else ran.err


def test_a_missing_table_is_found_out(engines, tmp_path, cli):
    model = model_file(tmp_path, MIXTRAL)
    code, (table,) = checked(cli, "vllm", model)
    assert code == 5
    assert (table["file"], table["says"]) == (None, "missing: the engine's default config serves")
    shipped = engines / MOE_MODULE.replace("fused_moe.py", "configs/E=8,N=14336,device_name=NVIDIA_H200.json")
    write_table(shipped, triton_version="3.8.0")
    assert checked(cli, "vllm", model) == (
        0,
        [{"form": "vllm-moe", "layer": "experts", "problem": "E=8,N=14336", "pinned": 0, "file": str(shipped),
          "rows": 18, "says": ""}],
    )  # fmt: skip


def test_another_version_of_triton_and_missing_sizes_are_said(engines, tmp_path, cli, monkeypatch):
    model, own = model_file(tmp_path, QWEN), tmp_path / "own"
    path = write_table(own / "E=128,N=768,device_name=NVIDIA_H200.json", SIZES[:-2], triton_version="3.4.0")
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(own))
    code, (table,) = checked(cli, "vllm", model)
    assert (code, table["file"], table["rows"]) == (5, str(path), 16)
    assert table["says"] == "of Triton 3.4.0, and 3.8.0 runs; 2 of 18 sizes take the nearest row: 3072, 4096"


def test_the_folders_of_sglang(engines, tmp_path, cli, monkeypatch):
    model, own = model_file(tmp_path, QWEN), tmp_path / "own"
    write_table(own / "configs" / "triton_3_4_0" / "E=128,N=768,device_name=NVIDIA_H200.json")
    monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(own))
    _, (first, second) = checked(cli, "sglang", model)
    assert first["says"] == "of Triton 3.4.0, and 3.8.0 runs"
    assert second["says"] == "of Triton 3.4.0, and 3.8.0 runs; that of the first product"
    monkeypatch.setenv("SGLANG_MOE_CONFIG_DIR", str(tmp_path / "empty"))
    assert [each["file"] for each in checked(cli, "sglang", model)[1]] == [None, None]


def test_a_torn_table_is_said_and_the_others_are_looked_for(engines, tmp_path, cli, monkeypatch):
    own = tmp_path / "own"
    write_table(own / "E=16,N=14336,device_name=NVIDIA_H200.json").write_text('{"1": {')
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(own))
    code, (experts, state) = checked(cli, "vllm", model_file(tmp_path, JAMBA))
    assert code == 5
    assert "is no table" in experts["says"]
    assert state["says"] == "missing: the engine's default config serves"


def test_rows_of_a_lockfile_are_counted_whichever_way_they_came(engines, tmp_path, cli):
    model, lock = model_file(tmp_path, MIXTRAL), tmp_path / "lock.json"
    table = write_table(tmp_path / "E=8,N=14336,device_name=NVIDIA_H200.json")
    assert cli("exchange", "import", "vllm-moe", table, "--kernel", "vllm-moe", "--lockfile", lock).code == 0
    code, (item,) = checked(cli, "vllm", model, *H200, "--lockfile", lock)
    assert (code, item["pinned"]) == (0, 18)
    assert checked(cli, "vllm", model, "--gpu", "H100", "--triton", "3.8.0", "--lockfile", lock)[1][0]["pinned"] == 0
    assert checked(cli, "vllm", model, *H200, "--tp", "8", "--lockfile", lock)[1][0]["pinned"] == 0
    quantised = {**MIXTRAL, "quantization_config": {"quant_method": "fp8"}}
    assert checked(cli, "vllm", model_file(tmp_path, quantised), *H200, "--lockfile", lock)[1][0]["pinned"] == 0


def test_a_lockfile_has_several_tables_where_facts_tell_them_apart(engines, tmp_path, cli):
    lock, words = tmp_path / "lock.json", ["--argument", "E", "--argument", "N"]
    for name in ("E=8,N=14336", "E=128,N=768"):
        table = write_table(tmp_path / f"{name},device_name=NVIDIA_H200.json", [16])
        ran = cli("exchange", "import", "vllm-moe", table, "--kernel", "vllm-moe", *words, "--lockfile", lock)
        assert (ran.code, ran.err) == (0, "")
    for values in (MIXTRAL, QWEN):
        _, (item,) = checked(cli, "vllm", model_file(tmp_path, values), *H200, "--lockfile", lock)
        assert item["pinned"] == 1


def test_without_a_gpu_one_is_to_be_named_and_without_the_engine_that_is_said(tmp_path, cli):
    model = model_file(tmp_path, MIXTRAL)
    ran = cli("engine", "check", "vllm", "--model", model, "--triton", "3.8.0")
    assert (ran.code, ran.err) == (2, "error: there is no GPU here whose tables could be meant (hint: --gpu H200)\n")


def test_the_command_without_the_distribution_says_what_to_install(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton_ops_serving", None)  # as Python notes what is not there
    ran = cli("engine", "list", "vllm")
    assert ran.code == 3
    assert ran.err == (
        "error: this command needs triton_ops_serving, which is not installed "
        "(hint: in a clone of triton-ops: pip install ./serving)\n"
    )
