"""Tables of other engines: what is written is found by each engine's own rule, and what others wrote is read."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.cli.app import main
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records import LockedDevice, LockEntry, Lockfile
from triton_ops.records.lock_entry import LockedTiming as Measured
from triton_ops.ship.formats import FORMATS, format_named
from triton_ops.ship.table import Table
from triton_ops.ship.table import TableRow as Row
from triton_ops.space import Config

TILES = Config(BLOCK_SIZE_M=16, BLOCK_SIZE_N=64, BLOCK_SIZE_K=128, GROUP_SIZE_M=1, num_warps=4, num_stages=3)
FACTS = {
    "vllm-moe": {"E": 256, "N": 128, "device_name": "NVIDIA H200", "dtype": "fp8_w8a8", "block_shape": [128, 128]},
    "vllm-mamba": {"headdim": 64, "dstate": 128, "device_name": "AMD Instinct MI300X", "cache_dtype": "float32"},
    "vllm-linear": {
        "N": 4608, "K": 7168, "device_name": "NVIDIA L20", "dtype": "fp8_w8a8", "block_shape": "128,128",
    },
    "sglang-linear": {
        "N": 4608, "K": 7168, "device_name": "NVIDIA L20", "dtype": "int8_w8a8", "block_shape": [128, 128],
    },
    "sglang-channelwise": {"N": 4608, "K": 7168, "device_name": "NVIDIA L20", "dtype": "fp8_w8a8_channelwise"},
    "sglang-moe": {
        "E": 256, "N": 128, "device_name": "NVIDIA H200", "dtype": "fp8_w8a8", "block_shape": "[128, 128]",
        "triton_version": "3.2.0",
    },
    "fla": {"kernel_name": "chunk_fwd_kernel_o", "device_name": "NVIDIA H100 80GB HBM3 (test)"},
    "triton-cache": {"kernel_name": "add", "folder": "abc"},
    "t4": {},
}  # fmt: skip
PLACES = {  # names of files that the projects have in their repositories, or would have
    "vllm-moe": "E=256,N=128,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json",
    "vllm-mamba": "headdim=64,dstate=128,device_name=AMD_Instinct_MI300X,cache_dtype=float32.json",
    "vllm-linear": "N=4608,K=7168,device_name=NVIDIA_L20,dtype=fp8_w8a8,block_shape=[128,128].json",
    "sglang-linear": "N=4608,K=7168,device_name=NVIDIA_L20,dtype=int8_w8a8,block_shape=[128, 128].json",
    "sglang-channelwise": "N=4608,K=7168,device_name=NVIDIA_L20,dtype=fp8_w8a8_channelwise.json",
    "sglang-moe": "configs/triton_3_2_0/E=256,N=128,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json",
    "fla": "chunk_fwd_kernel_o.json",
    "triton-cache": "abc/add.autotune.json",
    "t4": "results.json",
}


def row(at, block, median_ms=None):
    return Row(at, Config({**TILES, "BLOCK_SIZE_M": block}), median_ms=median_ms)


def rows_for(format_name):
    if format_name in ("t4", "triton-cache"):
        at = () if format_name == "t4" else (4096, "torch.float16")
        return tuple(row(at, block, median_ms=1.0 / block) for block in (16, 64, 32))
    at = (lambda m: (m, "torch.bfloat16")) if format_name == "fla" else lambda m: (m,)
    return tuple(row(at(m), block) for m, block in ((1, 16), (64, 32), (1024, 128)))


@pytest.mark.parametrize("format_name", FORMATS)
def test_what_is_written_stands_where_the_engine_looks_and_is_read(format_name, tmp_path):
    chosen, table = format_named(format_name), Table(FACTS[format_name], rows_for(format_name))
    path = chosen.write(table, tmp_path)
    assert str(path.relative_to(tmp_path)) == PLACES[format_name]
    assert {r.config for r in chosen.read(path).best()} == {r.config for r in table.best()}
    for best in table.best():
        file, result = chosen.look_up(tmp_path, FACTS[format_name], best.at)
        assert (file, result.at, result.config, result.median_ms) == (path, best.at, best.config, best.median_ms)
    assert chosen.look_up(tmp_path / "elsewhere", FACTS[format_name], rows_for(format_name)[0].at) is None


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=6, unique=True), st.integers(1, 9000))
def test_the_nearest_batch_size_by_difference_is_taken(tmp_path_factory, sizes, asked):
    folder = tmp_path_factory.mktemp("tables")
    FORMATS["vllm-moe"].write(Table(FACTS["vllm-moe"], tuple(row((m,), 1 << at) for at, m in enumerate(sizes))), folder)
    _, result = FORMATS["vllm-moe"].look_up(folder, FACTS["vllm-moe"], [asked])
    assert abs(result.at[0] - asked) == min(abs(m - asked) for m in sizes)


def place(format_name, **facts):
    return FORMATS[format_name].place({**FACTS[format_name], **facts})


DEVICES = (  # as the driver names a device, and as the tables of vLLM and of SGLang do
    ("NVIDIA H100 80GB HBM3", "NVIDIA_H100_80GB_HBM3", "NVIDIA_H100_80GB_HBM3"),
    ("NVIDIA A100-SXM4-80GB", "NVIDIA_A100-SXM4-80GB", "NVIDIA_A100-SXM4-80GB"),
    ("NVIDIA H20-3e", "NVIDIA_H20-3e", "NVIDIA_H20-3e"),
    ("NVIDIA GH200 480GB", "NVIDIA_GH200_480GB", "NVIDIA_GH200_480GB"),
    ("AMD Instinct MI250X/MI250", "AMD_Instinct_MI250X_MI250", "AMD_Instinct_MI250X/MI250"),
    ("Radeon 8060S Graphics", "Radeon_8060S_Graphics", "Radeon_8060S_Graphics"),
    ("Intel(R) Arc(TM) Pro B70 Graphics", "Intel(R)_Arc(TM)_Pro_B70_Graphics", "Intel(R)_Arc(TM)_Pro_B70_Graphics"),
)


@pytest.mark.parametrize(("name", "vllm", "sglang"), DEVICES)
def test_names_of_devices_follow_each_engine(name, vllm, sglang, tmp_path):
    for format_name in ("vllm-moe", "vllm-mamba", "vllm-linear", "sglang-moe", "sglang-linear", "sglang-channelwise"):
        theirs = vllm if format_name.startswith("vllm") else sglang
        assert f"device_name={theirs}," in place(format_name, device_name=name).replace(".json", ",")
        facts = {**FACTS[format_name], "device_name": name}
        path = FORMATS[format_name].write(Table(facts, (row((16,), 16),)), tmp_path)
        assert FORMATS[format_name].read(path).facts["device_name"] == theirs
        assert FORMATS[format_name].look_up(tmp_path, facts, (16,)) == (path, row((16,), 16))


def test_vllms_tables_of_experts_are_the_same_for_all_h200_and_those_of_mamba_for_16_bits():
    assert "device_name=NVIDIA_H200," in place("vllm-moe", device_name="NVIDIA H200 NVL")
    assert "device_name=NVIDIA_H200_NVL," in place("vllm-linear", device_name="NVIDIA H200 NVL")
    assert place("vllm-mamba", cache_dtype="bfloat16").endswith("cache_dtype=float16.json")


def test_sglang_takes_the_newest_other_version_where_its_own_has_no_table(tmp_path):
    for version, block in (("3.2.0", 16), ("3.10.0", 32), ("3.4.0", 64)):
        FORMATS["sglang-moe"].write(
            Table({**FACTS["sglang-moe"], "triton_version": version}, (row((1,), block),)), tmp_path
        )
    path, result = FORMATS["sglang-moe"].look_up(tmp_path, {**FACTS["sglang-moe"], "triton_version": "3.6.0"}, [1])
    assert result.config["BLOCK_SIZE_M"] == 32
    assert path.parent.name == "triton_3_10_0"
    assert FORMATS["sglang-moe"].read(path).facts["triton_version"] == "3.10.0"


def test_sglangs_second_product_has_tables_of_its_own_and_rows_as_high_as_the_first(tmp_path):
    sglang, facts = FORMATS["sglang-moe"], {**FACTS["sglang-moe"], "per_channel_quant": "true"}
    down = {**facts, "down": True}
    first = sglang.write(Table(facts, (row((1,), 16),)), tmp_path)
    assert sglang.look_up(tmp_path, down, (1,)) == (first, row((1,), 16))  # the first one's, where it has none
    path = sglang.write(Table(down, (row((1,), 64),)), tmp_path)
    assert path.name == first.name.replace(".json", "_down.json")
    assert path.name.endswith("block_shape=[128, 128],per_channel_quant=True_down.json")
    told = {"device_name": "NVIDIA_H200", "per_channel_quant": True, "down": True}
    assert sglang.read(path).facts == {**facts, **told}
    assert sglang.look_up(tmp_path, facts, (1,)) == (first, row((1,), 16))
    assert sglang.look_up(tmp_path, down, (1,)) == (path, row((1,), 16))


def test_sglang_widens_what_ends_inside_a_block(tmp_path):
    narrow = Row((1,), Config({**TILES, "BLOCK_SIZE_K": 64}))
    for device, width, remarks in (("NVIDIA L40", 64, 0), ("AMD Instinct MI300X", 128, 1)):
        facts = {**FACTS["sglang-linear"], "dtype": "fp8_w8a8", "device_name": device}
        table = FORMATS["sglang-linear"].read(FORMATS["sglang-linear"].write(Table(facts, (narrow,)), tmp_path))
        assert table.rows[0].config["BLOCK_SIZE_K"] == width
        assert len(table.remarks) == remarks


def test_what_a_table_has_beside_its_configs_is_told(tmp_path):
    path = FORMATS["vllm-moe"].write(Table(FACTS["vllm-moe"], (row((16,), 16),)), tmp_path)
    path.write_text(json.dumps({"triton_version": "3.6.0", "64": dict(TILES), "16": dict(TILES)}))
    assert FORMATS["vllm-moe"].read(path).notes == [
        "its sizes are not in order: of two that are equally near, an export prefers the smaller",
        "triton_version is not used: 3.6.0",
    ]


def test_a_row_that_is_left_to_another_kernel_is_told_and_answers_nothing(tmp_path):
    form, facts = FORMATS["sglang-channelwise"], FACTS["sglang-channelwise"]
    path = form.write(Table(facts, (row((16,), 16),)), tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "64": None}))
    table = form.read(path)
    assert [each.at for each in table.best()] == [(16,)]
    assert table.remarks == ("left out: 1 rows are left to another kernel: 64",)
    assert form.look_up(tmp_path, facts, (60,)) is None
    assert form.look_up(tmp_path, facts, (20,)) == (path, row((16,), 16))


@pytest.mark.parametrize(
    ("format_name", "name", "text"),
    [
        ("vllm-moe", "x.json", "[]"),
        ("vllm-moe", "x.json", '{"16": {"BLOCK": {}}}'),
        ("vllm-moe", "x.json", '{"sixteen": {"BLOCK": 1}}'),
        ("vllm-moe", "E=8,N=1,device_name=X,dtype=int4_w4a16,backend=flydsl.json", json.dumps({"1": dict(TILES)})),
        ("vllm-moe", "E=8,N=1,device_name=X_down.json", json.dumps({"1": dict(TILES)})),
        ("vllm-moe", "copy of E=8,N=1,device_name=X.json", json.dumps({"1": dict(TILES)})),
        ("vllm-moe", "E=8,N=1,device_name=X (1).json", json.dumps({"1": dict(TILES)})),
        ("vllm-moe", "E=8,N=1,device_name=X.json.bak", json.dumps({"1": dict(TILES)})),
        ("sglang-moe", "E=8,N=1,device_name=X,block_shape=[128, 128]_up.json", json.dumps({"1": dict(TILES)})),
        ("vllm-moe", "x.json", json.dumps({"1": dict(TILES), "01": dict(TILES)})),
        ("vllm-moe", "x.json", json.dumps({"1": dict(TILES), "0": dict(TILES)})),
        ("vllm-linear", "x.json", json.dumps({"1": dict(TILES), "triton_version": "3.6.0"})),
        ("fla", "x.json", '{"autotune_entries": []}'),
        ("fla", "x.json", '{"autotune_entries": {"a": {"config": {}}}}'),
        ("triton-cache", "x.json", "{}"),
        ("triton-cache", "x.autotune.json", '{"key": [], "configs_timings": [3]}'),
        ("triton-cache", "x.autotune.json", '{"key": [], "configs_timings": [[{"kwargs": {}}, ["a"]]]}'),
        ("t4", "x.json", '{"results": 3}'),
        ("t4", "x.json", '{"results": [{"times": {}}]}'),
    ],
)
def test_a_file_of_another_format_is_refused(format_name, name, text, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(CacheError, match=re.escape(name)):
        format_named(format_name).read(path)
    with pytest.raises(CacheError, match="cannot be read"):
        format_named(format_name).read(tmp_path / "none.json")


def test_a_name_without_its_device_is_read(tmp_path):
    path = tmp_path / "E=8,N=1,device_name=,dtype=int4_w4a16_down.json"
    path.write_text(json.dumps({"1": dict(TILES)}))
    facts = format_named("sglang-moe").read(path).facts
    assert (facts["device_name"], facts["dtype"], facts["down"]) == ("", "int4_w4a16", True)


@pytest.mark.parametrize(
    ("format_name", "facts", "rows", "said"),
    [
        ("vllm-moe", {"E": 1}, [row((1,), 16)], "needs N, device_name"),
        ("vllm-moe", FACTS["vllm-moe"], [Row((1,), Config(BM=1))], "has no BLOCK_SIZE_M"),
        ("vllm-moe", FACTS["vllm-moe"], [row((1, 2), 16)], "one whole number"),
        ("sglang-moe", FACTS["vllm-moe"], [row((1,), 16)], "needs triton_version"),
        ("vllm-linear", FACTS["sglang-linear"], [row((1,), 16)], "vLLM looks for no table of int8_w8a8"),
        ("vllm-moe", {**FACTS["vllm-moe"], "block_shape": 128}, [row((1,), 16)], "block_shape is 128"),
    ],
)
def test_what_an_engine_cannot_use_is_not_written(format_name, facts, rows, said, tmp_path):
    with pytest.raises(SettingsError, match=said):
        format_named(format_name).write(Table(facts, tuple(rows)), tmp_path)
    assert list(tmp_path.rglob("*.json")) == []


def test_there_is_no_form_of_that_name():
    with pytest.raises(SettingsError, match="close are vllm-"):
        format_named("vllm")


def locked(path, *sizes):
    device = LockedDevice(alias="h200", kind="cuda", name="NVIDIA H200", arch="sm_90", units=132)
    entries = [
        LockEntry(
            kernel="moe", device="h200", config=Config(BM=m, BN=64, BK=64, G=1, num_warps=4, num_stages=3),
            problem={"M": m, "top_k": 2},
            measured=Measured(cache_state="cold", mode="graph-cold", median_ms=1.0),
        )
        for m in sizes
    ]  # fmt: skip
    Lockfile((device,), tuple(entries)).write(path)


RENAMED = [
    word
    for pair in ("BM=BLOCK_SIZE_M", "BN=BLOCK_SIZE_N", "BK=BLOCK_SIZE_K", "G=GROUP_SIZE_M")
    for word in ("--rename", pair)
]
SHAPE = ["--set", "E=8", "--set", "N=7168"]


def test_a_lockfile_goes_to_vllm_and_back(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    locked("a.json", 16, 256)
    words = ["--lockfile", "a.json", "--kernel", "moe", "--row", "M", *RENAMED, *SHAPE]
    assert main(["exchange", "export", "vllm-moe", "tables", *words, "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written["file"] == "tables/E=8,N=7168,device_name=NVIDIA_H200.json"
    asked = ["--set", "device_name=NVIDIA H200", *SHAPE]
    assert main(["exchange", "look-up", "vllm-moe", "tables", "--at", "100", *asked]) == 0
    assert "BLOCK_SIZE_M=16" in capsys.readouterr().out
    words = ["--lockfile", "b.json", "--kernel", "moe", "--row", "M", "--argument", "top_k=2", *RENAMED]
    assert main(["exchange", "import", "vllm-moe", written["file"], *words, "--bucket", "M=measured@2"]) == 0
    assert "2 rows read, 2 added" in capsys.readouterr().out
    back = Lockfile.read("b.json")
    assert [(entry.config, entry.problem) for entry in back.entries] == [
        (entry.config, entry.problem) for entry in Lockfile.read("a.json").entries
    ]
    assert [(each.low, each.high) for entry in back.entries for each in entry.ranges] == [(8, 64), (65, 512)]
    assert back.devices[0].why_not({"kind": "cuda", "name": "NVIDIA H200", "arch": "sm_90", "units": 132}) is None
    assert back.entries[0].origin.source == "vllm-moe: E=8,N=7168,device_name=NVIDIA_H200.json"


def exchanged(capsys, *words):
    """What a command of exchange prints, and what it tells."""
    assert main(["exchange", *words]) == 0
    return capsys.readouterr()


def test_tables_of_one_kernel_go_through_one_lockfile_and_what_their_names_say_is_not_typed_again(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    sglang, written = FORMATS["sglang-moe"], {}
    for experts, down in ((8, False), (8, True), (16, False)):
        facts = {**FACTS["sglang-moe"], "E": experts, "down": down}
        written[experts, down] = sglang.write(Table(facts, (row((1,), experts),)), tmp_path / "theirs")
        text = exchanged(capsys, "import", "sglang-moe", str(written[experts, down]), "--kernel", "moe")
        assert "1 rows read, 1 added" in text.out
    for experts, down in ((8, False), (16, False)):  # nothing tells their problems apart
        words = ["--kernel", "moe", "--lockfile", "b", "--argument", "N"]
        text = exchanged(capsys, "import", "sglang-moe", str(written[experts, down]), *words)
        assert ("1 rows are there already, from sglang-moe: E=8,N=128," in text.err) == (experts == 16)
    words = ["export", "sglang-moe", "mine", "--kernel", "moe", "--set", "triton_version=3.2.0"]
    assert main(["exchange", *words, "--set", "E=8"]) == 2
    assert "the entries are of several tables: sglang-moe: E=8,N=128," in capsys.readouterr().err
    assert main(["exchange", *words, "--set", "E=9"]) == 2
    assert "the entries are of other tables: sglang-moe: E=16,N=128," in capsys.readouterr().err
    both = exchanged(capsys, "export", "sglang-moe", "both", *words[3:], "--set", "E=8", "--set", "down=true")
    assert ("the first product" in both.err, both.out.count("rows to both/configs/triton_3_2_0/E=8,")) == (False, 2)
    for down in (False, True):
        theirs = written[8, down]
        assert json.loads((tmp_path / "both" / theirs.relative_to(tmp_path / "theirs")).read_text()) == json.loads(
            theirs.read_text()
        )
    exchanged(capsys, "import", "sglang-moe", str(written[8, True]), "--kernel", "moe", "--lockfile", "second")
    alone = ["export", "sglang-moe", "alone", *words[3:], "--lockfile", "second", "--set", "down=true"]
    lack = "the first product, whose BLOCK_SIZE_M the second takes, has no table: alone/configs/triton_3_2_0/E=8,N=128,"
    assert lack in exchanged(capsys, *alone).err
    for (experts, down), path in written.items():
        text = exchanged(capsys, *words, "--set", f"E={experts}", "--set", f"down={str(down).lower()}")
        assert "the first product" not in text.err
        mine = tmp_path / "mine" / path.relative_to(tmp_path / "theirs")
        assert json.loads(mine.read_text()) == json.loads(path.read_text())


def test_tables_whose_dtype_alone_differs_are_told_apart(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for dtype in ("fp8_w8a8", "int8_w8a16"):
        path = FORMATS["vllm-moe"].write(Table({**FACTS["vllm-moe"], "dtype": dtype}, (row((1,), 16),)), tmp_path)
        assert "1 rows read, 1 added" in exchanged(capsys, "import", "vllm-moe", str(path), "--kernel", "moe").out
    words = ["export", "vllm-moe", "mine", "--kernel", "moe"]
    assert main(["exchange", *words]) == 2
    exchanged(capsys, *words, "--set", f"dtype={dtype}")
    exchanged(capsys, "import", "vllm-moe", str(path), "--kernel", "moe", "--row", "N", "--lockfile", "b")
    assert [entry.problem["N"] for entry in Lockfile.read("b").entries] == [1]  # of the row, and not of the name
    assert [each.name for each in Path("mine").iterdir()] == [path.name]


def test_own_rows_go_among_those_of_the_engine_by_importing_them_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = {"shipped": [((m,), 16) for m in (8, 16, 32)], "mine": [((16,), 64)]}
    for folder in ("mine", "shipped"):
        table = Table(FACTS["vllm-moe"], tuple(row(*each) for each in rows[folder]))
        path = FORMATS["vllm-moe"].write(table, tmp_path / folder)
        message = exchanged(capsys, "import", "vllm-moe", str(path), "--kernel", "moe")
    assert "3 rows read, 2 added" in message.out
    assert "differs: M=16 E=256 N=128 dtype=fp8_w8a8 block_shape=[128,128]: " in message.err
    exchanged(capsys, "export", "vllm-moe", "tables", "--kernel", "moe")
    merged = FORMATS["vllm-moe"].read(tmp_path / "tables" / path.name)
    assert [(each.at, each.config["BLOCK_SIZE_M"]) for each in merged.rows] == [((8,), 16), ((16,), 64), ((32,), 16)]


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("Radeon_8060S_Graphics", {"kind": "hip", "name": "Radeon 8060S Graphics", "arch": "gfx1151", "units": 40}),
        ("AMD_Instinct_MI250X_MI250", {"kind": "hip", "name": "AMD Instinct MI250X/MI250", "arch": "gfx90a"}),
        ("Intel(R)_Arc(TM)_Pro_B70_Graphics", {"kind": "xpu", "name": "Intel(R) Arc(TM) Pro B70 Graphics"}),
        ("NVIDIA_A100-SXM4-80GB", {"kind": "cuda", "name": "NVIDIA A100-SXM4-80GB", "arch": "sm_80", "units": 108}),
        ("Orin_(nvgpu)", {"kind": "cuda", "name": "Orin (nvgpu)", "arch": "sm_87", "units": 16}),
    ],
)
def test_an_imported_table_answers_on_the_device_that_its_name_is_of(name, device, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path(f"E=8,N=768,device_name={name},dtype=int4_w4a16.json").write_text(json.dumps({"1": dict(TILES)}))
    (path,) = Path().glob("E=*.json")
    exchanged(capsys, "import", "vllm-moe", str(path), "--kernel", "moe")
    (locked_device,) = Lockfile.read("triton-ops.lock.json").devices
    assert locked_device.why_not(device) is None
    assert exchanged(capsys, "export", "vllm-moe", "tables", "--kernel", "moe").err == ""
    assert json.loads((tmp_path / "tables" / path.name).read_text()) == {"1": dict(TILES)}
    told = exchanged(capsys, "export", "vllm-linear", "tables", "--kernel", "moe", "--set", "N=8", "--set", "K=8",
                     "--set", "dtype=fp8_w8a8", "--set", "block_shape=128,128").err  # fmt: skip
    assert ("vLLM names some AMD devices itself" in told) == (device["kind"] == "hip")


def test_an_export_says_which_rows_of_the_table_that_was_there_are_gone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    locked("triton-ops.lock.json", 16)
    words = ["export", "vllm-moe", "tables", "--kernel", "moe", *RENAMED, *SHAPE]
    path = Path(json.loads(exchanged(capsys, *words, "--json").out)["file"])
    path.write_text(json.dumps({size: dict(TILES) for size in ("8", "16", "32")}))
    assert exchanged(capsys, *words).err == "replaced: a table of 3 rows; no longer there: 8, 32\n"
    path.write_text("{}")
    assert main(["exchange", *words]) == 4
    assert path.read_text() == "{}"


WORK = """
from triton_ops import operation

@operation(space={"step": [1, 2, 3]}, arguments=lambda n=64: {"n": n})
def add_up(n, step):
    if step == 3:
        raise ValueError("three")
    return sum(sum(range(at, n, step)) for at in range(step))
"""


def test_every_trial_of_a_run_goes_to_t4(tmp_path, capsys, monkeypatch, steady_clock):
    (tmp_path / "exchanged_work.py").write_text(WORK)
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "exchanged_work.py:add_up", "--device", "cpu", "--cache-dir", "cache"]) == 0
    (log,) = (tmp_path / "cache" / "runs").rglob("*.jsonl")
    assert main(["exchange", "export", "t4", "out", "--run", str(log)]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    assert {each["configuration"]["step"]: each["invalidity"] for each in results} == {
        1: "correct", 2: "correct", 3: "runtime",
    }  # fmt: skip
    assert FORMATS["t4"].read(tmp_path / "out" / "results.json").best()[0].median_ms > 0
    capsys.readouterr()
    assert main(["exchange", "export", "t4", "out", "--run", str(log), "--row", "M"]) == 2
    assert "has no M" in capsys.readouterr().err
    assert main(["exchange", "export", "t4", "out"]) == 2
    assert "either --kernel or --run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["export", "vllm", "t", "--kernel", "moe"], 2, "there is no format 'vllm'"),
        (["export", "vllm-moe", "t", "--kernel", "none"], 2, "no entry of none (hint: it has entries of moe on "),
        (["export", "vllm-moe", "t", "--kernel", "moe", "--row", "K"], 2, "has no K; it has M"),
        (["export", "vllm-moe", "t", "--kernel", "moe", "--row", "top_k"], 2, "several entries of moe are for one row"),
        (["export", "vllm-moe", "t", "--kernel", "moe", "--set", "E"], 2, "--set 'E' is not NAME=VALUE"),
        (["import", "vllm-moe", "none.json", "--kernel", "moe"], 4, "cannot be read"),
        (["look-up", "t4", "t"], 4, "t4 finds nothing in t"),
        (["look-up", "t4", "t", "--at", "[" * 60_000], 4, "t4 finds nothing in t"),
        (
            ["look-up", "vllm-moe", "t", *["--set", "E=--5", "--set", "N=8", "--set", "device_name=x", "--at", "1"]],
            4,
            "finds nothing",
        ),
    ],
)
def test_what_cannot_be_exchanged_is_told(tmp_path, capsys, monkeypatch, words, code, said):
    monkeypatch.chdir(tmp_path)
    locked("triton-ops.lock.json", 16, 256)
    assert main(["exchange", *words]) == code
    assert said in capsys.readouterr().err


# Damaged tables

NODES = (
    None, True, -1, 1e308, 10**400, "", "x", "../../x", "1" * 5000, "NaN", [], {}, [[]], {"a": {}}, [None],
    {"kwargs": 3}, {"kwargs": {"a": []}}, {"config": 1}, {"configuration": {"a": 1}},
    {"name": "time", "value": 10**400},
)  # fmt: skip


def places(tree, path=()):
    """The path to each node of decoded JSON."""
    yield path
    for name in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield from places(tree[name], (*path, name))


def damaged(text):
    """A table with each node replaced, each name replaced, bits turned, and its end cut off."""
    good = json.loads(text)
    for path in places(good):
        for value in NODES:
            tree = {"": json.loads(text)}
            holder = tree
            for name in ("", *path)[:-1]:
                holder = holder[name]
            last = ("", *path)[-1]
            holder[last] = value
            yield json.dumps(tree[""]).encode()
            if path and isinstance(holder, dict) and isinstance(value, str):
                holder[value] = good_at(good, path)
                del holder[last]
                yield json.dumps(tree[""]).encode()
    for bit in range(0, 8 * len(text), 29):
        changed = bytearray(text)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)
    yield from (text[:length] for length in range(0, len(text), 31))


def good_at(tree, path):
    for name in path:
        tree = tree[name]
    return tree


def used(way):
    """What a way to use a table gives, or how it is refused."""
    try:
        return way()
    except CacheError as error:
        return error


READERS = [name for name in FORMATS if name not in ("vllm-linear", "sglang-channelwise")]  # which have others' reader


@pytest.mark.parametrize("format_name", READERS)
def test_a_damaged_table_is_read_or_refused_by_name(format_name, tmp_path):
    chosen, rows = format_named(format_name), rows_for(format_name)
    path = chosen.write(Table(FACTS[format_name], rows), tmp_path)
    result: list[object] = []
    with path.open("r+b") as file:  # to empty it each time waits for the disk
        for content in damaged(path.read_bytes()):
            file.seek(0)
            file.write(content)
            file.truncate()
            file.flush()
            result += [
                used(lambda: chosen.read(path)),
                used(lambda: chosen.look_up(tmp_path, FACTS[format_name], rows[0].at)),
            ]
    refused = [str(each) for each in result if isinstance(each, CacheError)]
    assert len(refused) > 100
    assert all(path.name in message for message in refused)
    assert all(each is None or isinstance(each, (CacheError, tuple, Table)) for each in result)


@pytest.mark.parametrize(
    ("format_name", "facts"),
    [("fla", {"kernel_name": "../../x"}), ("t4", {"file": "/tmp/x.json"}), ("triton-cache", {"folder": ".."}),
     ("sglang-linear", {"device_name": "../../../x"})],
)  # fmt: skip
def test_a_table_is_written_below_its_folder_only(format_name, facts, tmp_path):
    with pytest.raises(SettingsError, match="would be written to"):
        format_named(format_name).write(Table({**FACTS[format_name], **facts}, rows_for(format_name)), tmp_path)
