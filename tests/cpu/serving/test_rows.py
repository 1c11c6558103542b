"""Rows of engines' tables: names, kinds and ranges, wherever a row is read."""

import json

import pytest

from triton_ops.cli.app import main
from triton_ops.exceptions import CacheError
from triton_ops.records import LockedDevice, LockEntry, Lockfile
from triton_ops.ship import ROWS
from triton_ops.ship.tuner_files import nested
from triton_ops.space import Config
from triton_ops_serving.formats import form_of
from triton_ops_serving.pinned import _facts_of_file, rows_of

WRONG = ("64", 64.0, 0, -1, True, 1 << 62, None, [64], {"a": 1}, "x" * 5000)
LOADING = {"ir_override": "/evil.ptx", "ptx_options": "-o mark", "extern_libs": [["x", "/evil.bc"]], "debug": True}
NAMES = {
    "vllm-moe": "E=8,N=64,device_name=NVIDIA_H200.json", "sglang-moe": "E=8,N=64,device_name=NVIDIA_H200.json",
    "vllm-mamba": "headdim=64,dstate=128,device_name=NVIDIA_H200,cache_dtype=float16.json",
    "vllm-linear": "N=64,K=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json",
    "sglang-linear": "N=64,K=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json",
    "sglang-channelwise": "N=64,K=64,device_name=NVIDIA_H200,dtype=fp8_w8a8_channelwise.json",
    "sglang-lora": "lora_shrink,K=64,R=16,S=3,device=NVIDIA_H200.json",
}  # fmt: skip


def row_of(form):
    """A row with every name that it needs; a wide block is whole for each engine."""
    return {name: 4 if name.startswith("num") else 128 for name in ROWS[form].needed}


def wrong_rows(row):
    """The row without each of its names, with each kind of wrong value in each, and with what it may not have."""
    for name in row:
        yield {other: value for other, value in row.items() if other != name}
        yield from ({**row, name: value} for value in WRONG)
        yield {**row, name: 96 if name != "num_stages" else 4096} if name[:5] != "GROUP" else {**row, name: 1 << 40}
    yield {**row, "num_warps": 6}
    yield {**row, "spelled_wrong": 1}
    for option, value in LOADING.items():
        yield from ({**row, option: value}, {**row, option: None})


def locked(form, config, size=16):
    problem = {"M": size, "E": 8, **({"op_type": "shrink"} if form == "vllm-lora" else {})}
    entry = LockEntry(kernel=form, device="d", problem=problem, config=Config.from_json(config))
    return Lockfile((LockedDevice(alias="d", kind="cuda", name="NVIDIA H200"),), (entry,))


@pytest.mark.parametrize("form", ROWS)
def test_a_row_that_is_none_is_absent_whatever_the_lockfile_says(form, caplog):
    facts = {"E": 8, **({"op_type": "shrink"} if form == "vllm-lora" else {})}
    assert list(rows_of(locked(form, row_of(form)), form, facts, "NVIDIA H200")) == [16]
    for size in (0, -1, True, 1 << 60):
        assert rows_of(locked(form, row_of(form), size), form, facts, "NVIDIA H200") == {}
    for wrong in wrong_rows(row_of(form)):
        if not any(isinstance(value, dict) for value in wrong.values()):  # which no lockfile holds
            caplog.clear()
            assert rows_of(locked(form, wrong), form, facts, "NVIDIA H200") == {}, wrong
            assert "is left out: " in caplog.text


@pytest.mark.parametrize("form", NAMES)
def test_a_table_with_a_row_that_is_none_is_refused_by_its_value(form, tmp_path):
    path = tmp_path / NAMES[form]
    path.write_text(json.dumps({"16": row_of(form)}))
    assert len(form_of(form, {}).read(path).rows) == 1
    for wrong in wrong_rows(row_of(form)):
        path.write_text(json.dumps({"16": wrong}))
        with pytest.raises(CacheError):
            form_of(form, {}).read(path)


def test_a_file_of_adapters_with_a_row_that_is_none_is_refused(tmp_path):
    part = {"op_type": "shrink", "max_loras": 5, "num_slices": 3, "hidden_size": 64, "rank": 16}
    path, row = tmp_path / "table.json", row_of("vllm-lora")
    for content in (row, *wrong_rows(row)):
        path.write_text(json.dumps({"5": {"3": {"16": {"64": {"16": content}}}}}))
        if content is row:
            assert len(form_of("vllm-lora", part).read(path).rows) == 1
        else:
            with pytest.raises(CacheError):
                form_of("vllm-lora", part).read(path)


def test_amds_rows_of_linear_layers_leave_stages_to_triton():
    row = {**row_of("vllm-linear"), "kpack": 1, "matrix_instr_nonkdim": 16}
    del row["num_stages"]
    assert ROWS["vllm-linear"].why_not(row) == ""
    del row["num_warps"]
    assert ROWS["vllm-linear"].why_not(row) == "it has no num_warps"


def _options(fields):
    return {name: value for name, value in fields.items() if name != "kwargs"}


def file_of(form, folder, fields):
    """A file of a tuner with one config, which was right."""
    name, content = {
        "fla": ("k.json", {"autotune_entries": {"a": {"autotune_key": [64, "torch.float16"], "config": fields}}}),
        "triton-cache": ("k.autotune.json", {"key": [64], "configs_timings": [[fields, [1.0, 1.0, 1.0]]]}),
        "t4": ("r.json", {"results": [
            {"configuration": {**fields["kwargs"], **_options(fields)}, "times": {"runtimes": [1]}, "correctness": 1}
        ]}),
    }[form]  # fmt: skip
    path = folder / name
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("form", ["fla", "triton-cache", "t4"])
def test_a_config_of_anybodys_kernel_has_options_and_blocks_that_can_be(form, tmp_path, capsys):
    def importing(**values):
        fields = {**nested({"BT": 64, "FLAG": False}), **{name: values[name] for name in values if name[0] == "n"}}
        fields["kwargs"].update({name: value for name, value in values.items() if name[0] != "n"})
        fields = {name: value for name, value in fields.items() if value is not None}
        words = ["--row", "M", "--row", "x"] if form == "fla" else ["--row", "M"] if form == "triton-cache" else []
        path = file_of(form, tmp_path, fields)
        rest = ["--kernel", "k", "--set", "device_name=NVIDIA H200", "--lockfile", str(tmp_path / "lock.json")]
        code = main(["exchange", "import", form, str(path), *words, *rest])
        return code, capsys.readouterr().err

    assert importing()[0] == 0
    assert importing(blocks_per_sm=0, BLOCK_PTR=True, use_tiles=False, SHAPE=[8, 16], MODE="fast")[0] == 0
    for name in ("num_warps", "num_stages", "num_ctas", "BT", "BLOCK_SIZE_M", "XBLOCK", "block_size_x", "TILE_K"):
        for value in WRONG:
            if value is not None:  # Triton writes it for what is not set
                code, said = importing(**{name: value})
                assert (code, name in said) == (4, True), (name, value)
    code, said = importing(num_warps=6)
    assert "num_warps of a file is not used: it is 6, and may be a power of two from 1 to 64" in said
    for option, value in LOADING.items():
        assert importing(**{option: value})[0] == 4


def test_a_config_that_failed_may_have_had_any_values(tmp_path):
    timings = [[nested({"BT": block}), [ms] * 3] for block, ms in ((64, 1.0), (0, float("inf")))]
    path = tmp_path / "k.autotune.json"
    path.write_text(json.dumps({"key": [64], "configs_timings": timings}))
    assert [row.failure for row in form_of("triton-cache", {}).read(path).rows] == ["", "compile"]


def test_a_lockfile_exports_no_option_that_gives_a_compiler_a_file(tmp_path, capsys):
    lock = tmp_path / "lock.json"
    row = Config(**row_of("vllm-moe"), ir_override="/evil.ptx")
    entry = LockEntry(kernel="k", device="d", problem={"M": 16, "x": "float16"}, config=row)
    Lockfile((LockedDevice(alias="d", kind="cuda", name="NVIDIA H200"),), (entry,)).write(lock)
    for form, words in (("fla", ["--row", "M", "--row", "x"]), ("vllm-moe", ["--set", "E=8", "--set", "N=64"])):
        assert main(["exchange", "export", form, str(tmp_path), "--kernel", "k", "--lockfile", str(lock), *words]) == 2
        assert "ir_override of a file is not used" in capsys.readouterr().err


def test_an_edit_by_hand_gives_a_compiler_no_file(tmp_path, capsys):
    lock = tmp_path / "lock.json"
    locked("anybodys:kernel", {"BLOCK": 64}).write(lock)
    text = lock.read_text()
    for option in ('"ir_override": "/evil.ptx"', '"extern_libs": [["x", "/evil.bc"]]', '"num_warps": "4"'):
        lock.write_text(text.replace('"config": {', f'"config": {{{option}, ', 1))
        edited = lock.read_text()
        assert main(["lock", "--refresh", "--lockfile", str(lock)]) == 4
        assert "of a file is not used" in capsys.readouterr().err
        assert lock.read_text() == edited


def test_the_facts_in_a_long_source_are_read_in_one_pass():
    for text in ("a" * 1_000_000, "a=" * 500_000, "a=[" * 300_000, "," * 1_000_000, ",a" * 500_000):
        _facts_of_file(text)
    name = "E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128]_down.json"
    assert _facts_of_file(name) == {
        "E": "8", "N": "64", "device_name": "NVIDIA_H200", "dtype": "fp8_w8a8", "block_shape": "[128, 128]",
        "down": "True",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("form", "row"),
    [
        ("sglang-moe", {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}),
        ("vllm-moe", {**row_of("vllm-moe"), "waves_per_eu": 0, "matrix_instr_nonkdim": 16, "kpack": 2}),
        ("vllm-moe", {**row_of("vllm-moe"), "grf_mode": "256", "SPLIT_K": 1}),
        ("sglang-moe", {**row_of("sglang-moe"), "USE_TMA": True}),
        ("sglang-lora", {**row_of("sglang-lora"), "maxnreg": 160}),
    ],
)
def test_rows_as_the_engines_ship_them_are_read(form, row):
    assert ROWS[form].why_not(row) == ""
