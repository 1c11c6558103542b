"""Inductor's files: captured graphs read, compared and drawn; its cache folder shown and cleaned; the commands."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from triton_ops import CacheError, DeviceError, TargetError
from triton_ops_torch.command_inductor import _own_ms, beside_own
from triton_ops_torch.compiled_files import CacheContent
from triton_ops_torch.compiled_graphs import (
    GraphNode,
    GraphPair,
    Picture,
    drawn,
    graphs_in,
    layers,
    read_graph,
)
from triton_ops_torch.compiler_output import CompilerLog

DATA = Path(__file__).parents[2] / "data"
FUSED, UNFUSED = DATA / "ir_post_fusion.txt", DATA / "ir_post_fusion_unfused.txt"
SVG = "{http://www.w3.org/2000/svg}"


def graph(path):
    return read_graph(path.read_text(encoding="utf-8"))


KEY = "q2f" + "a7" * 24
CODE = f"2f/c2f{'a7' * 24}a"
MADE = {
    f"{CODE}.py": b"from torch._inductor.runtime import triton_helpers",
    f"{CODE}.main.cpp": b"12345",
    f"9a/{'0f' * 32}.best_config": b'{"XBLOCK": 8, "configs_hash": "1"}',
    f"c{KEY}/c{KEY}.wrapper.cpp": b"12345",
    f"aotautograd/a{KEY}/{KEY}": b"12345",
    f"fxgraph/q2/fq2{KEY[2:]}/{KEY}": b"12345",
    f"triton/0/{KEY.upper()}A/k.cubin": b"12345",
    f"tmp1a2_b3cd/triton/{KEY.upper()}A/__grp__k.json": b"12345",
    f"tmp1a2_b3cd/{CODE}.so": b"12345",
    f"cache/{'0f' * 32}": b'{\n    "system": {}}',
    f"locks/c{KEY}.lock": b"",
    "dynamo/code_state_job.pkl": b"\x80\x04ctorch._dynamo.pgo\n",
}
FOREIGN = (
    "main.py", "data.json", "model.so", "a.cpp", "g++.lock", "0" * 32, "tmp", "tmp1a2_b3cd/notes", "tmpfiles/x.py",
    ".git/HEAD", "ui/x.ts", "db/0001.sql", "db/main.py", "ab/cabc.py", "cache/page.html", f"cache/{'1' * 64}",
    f"ab/{Path(CODE).name}.py", f"2f/c2f{'b' * 49}.py", f"c{KEY}/model.pt2", f"c{KEY}/c{KEY}.wrapper.pt2",
    f"c{KEY}/notes.md", f"{Path(CODE).name}.py", f"{'2' * 64}.best_config", f"2f/{'2' * 64}.best_config",
    "triton/setup.py", "triton/0/notes.md", f"triton/0/{KEY.upper()}A/notes.md", f"triton/{KEY.upper()}A/k.cubin",
    "fxgraph/x/y/graph", f"fxgraph/ab/f{KEY}/{KEY}", "aotautograd/mine", "locks/db.lock", "dynamo/code_state_a.pkl",
    f"dynamo/{'0' * 64}/entry", "precompiled_headers/mine.h", "pgo/sizes.csv", "2f/sub/main.py", f"cache/{'2' * 64}",
    f"{CODE}.js", f"{CODE}.chunk.js", f"{CODE}.tar.gz", f"{CODE}_notes.md", f"c{KEY}/c{KEY}.onnx",
)  # fmt: skip


def written(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())


@pytest.fixture
def cache(tmp_path):
    """A cache folder as Inductor leaves it, with one file that is not Inductor's."""
    return written(tmp_path / "torchinductor_me", {**MADE, "notes.txt": b"mine"})


def test_fused_nodes_hold_their_members_and_what_they_read_and_write():
    nodes = graph(FUSED)
    assert [node.name for node in nodes] == [
        "op0_op1", "op2", "op3", "op4", "op5", "op6", "op7", "op8", "op10", "op11_op12",
    ]  # fmt: skip
    first, product = nodes[:2]
    assert first.members == ("op0", "op1")
    assert (first.fused, first.reads, first.writes) == (True, ("arg0_1", "arg1_1"), ("buf0", "buf1"))
    assert (product.kernel, product.reads) == ("extern_kernels.mm", ("buf1", "arg2_1"))
    assert not nodes[7].launches, "one result of a call before"


FIELDS = """{0}.writes = [MemoryDep('{1}', c0, {{c0: 64}})]
{0}.unmet_dependencies = []
{0}.met_dependencies = [MemoryDep('arg0_1', c0, {{c0: 64}})]
"""


def node_text(name, kind, *inner):
    """A node as torch writes it, with nodes in it."""
    text = f"{name}: {kind}({','.join('SchedulerNode' for _ in inner) or 'ComputedBuffer'})\n"
    text += FIELDS.format(name, f"buf{name[-1]}")
    return text + "".join(f"{name}.snodes[{number}] =\n{each}" for number, each in enumerate(inner))


LEAVES = [node_text(f"op{number}", "SchedulerNode") for number in range(4)]


@pytest.mark.parametrize(
    "kind",
    [
        "FusedSchedulerNode", "FusedMixOrderReductions", "FusedNestedReductions", "ForeachKernelSchedulerNode",
        "OuterLoopFusedSchedulerNode", "FusedExternTritonKernelSchedulerNode", "FusedByTheTorchOfTomorrow",
    ],
)  # fmt: skip
def test_a_fusion_of_any_class_is_one_launch_of_its_members(kind):
    inner = node_text("op1_op2", "FusedSchedulerNode", LEAVES[1], LEAVES[2])
    text = node_text("op1_op2_op0", kind, textwrap.indent(inner, "    "), LEAVES[0]) + "\n\n\n" + LEAVES[3]
    first, second = read_graph(text.replace("\n", "\r\n"))
    assert (first.name, first.members, first.fused, first.launches) == ("op1_op2_op0", ("op0", "op1", "op2"), True, 1)
    assert (first.reads, first.writes) == (("arg0_1",), ("buf0",))
    assert (second.members, second.fused) == (("op3",), False)


def test_a_group_that_is_not_fused_launches_each_member():
    (group,) = read_graph(node_text("op0_op1", "GroupedSchedulerNode"))
    assert (group.members, group.fused, group.launches) == (("op0", "op1"), False, 2)


def test_operations_of_a_branch_and_of_old_versions_keep_their_names():
    branch = node_text("true_graph_0_op3", "SchedulerNode").replace("buf3", "true_graph_0_buf3")
    (one,) = read_graph(branch)
    assert (one.name, one.members, one.writes) == ("true_graph_0_op3", ("true_graph_0_op3",), ("true_graph_0_buf3",))
    old = node_text("buf0_buf1", "FusedSchedulerNode") + "buf0_buf1.snodes = ['buf0', 'buf1']\n"
    assert read_graph(old)[0].members == ("buf0", "buf1")


def test_graphs_in_a_log_are_read_for_each_process_and_unknown_classes_are_named(cli, tmp_path):
    head = "[rank{0}]:I0102 03:04:05.600000 7{0} torch/_inductor/debug.py:757] [0/0] [__ir_post_fusion] "
    texts = [node_text("op0_op1", "FusedMixOrderReductions", *LEAVES[:2]), LEAVES[2], node_text("op3", "NewKindOfNode")]
    lines = [(0, "AFTER FUSION"), *((0, line) for line in texts[0].splitlines()), (1, "AFTER FUSION")]
    lines += [(rank, line) for line in texts[1].splitlines() for rank in (0, 1)]
    lines += [(1, "AFTER FUSION"), *((1, line) for line in texts[2].splitlines())]
    log = tmp_path / "log.txt"
    log.write_text("".join(f"{head.format(rank)}{line}\n" for rank, line in lines))
    graphs = graphs_in(log)
    assert {name: [node.name for node in nodes] for name, nodes in graphs.items()} == {
        "rank0 70 graph 1": ["op0_op1", "op2"], "rank1 71 graph 1": ["op2"], "rank1 71 graph 2": ["op3"],
    }  # fmt: skip
    ran = cli("torch", "draw", log)
    assert "rank0 70 graph 1: 2 launches" in ran.out
    assert "nodes of unknown classes count as one launch each: NewKindOfNode (1)" in ran.err


def test_what_stands_before_fusion_is_no_graph_that_is_launched(cli, tmp_path):
    fused = node_text("op0_op1", "FusedSchedulerNode", *LEAVES[:2]) + "\n\n" + LEAVES[2]
    both = "BEFORE FUSION\n" + "\n\n".join(LEAVES[:3]) + f"\n\nAFTER FUSION\n{fused}\n"
    log = tmp_path / "log.txt"
    log.write_text(f"INFO:torch._inductor.debug.__ir_pre_fusion:{both}\n{both}")
    graphs = graphs_in(log)
    assert {name: [node.name for node in nodes] for name, nodes in graphs.items()} == {
        "graph 1": ["op0_op1", "op2"], "graph 2": ["op0_op1", "op2"],
    }  # fmt: skip
    with pytest.raises(TargetError, match="op0 is in it 2 times: it has several graphs"):
        read_graph(both)
    log.write_text(both.partition("AFTER")[0])
    ran = cli("torch", "draw", log)
    assert (ran.code, "its graphs are those before fusion" in ran.err) == (2, True)


def test_the_graph_of_a_branch_is_said_to_be_no_models(cli, tmp_path):
    branch = LEAVES[0].replace("op0", "true_graph_0_op0")
    (tmp_path / "ir_post_fusion.txt").write_text(branch)
    assert "of branches alone, not of their models: test_the" in cli("torch", "draw", tmp_path).err
    (tmp_path / "ir_post_fusion.txt").write_text(f"{branch}\n\n{LEAVES[1]}")
    assert cli("torch", "draw", tmp_path).err == ""


def test_two_graphs_differ_in_their_fusions_and_launches():
    result = GraphPair(("one", "other"), (graph(FUSED), graph(UNFUSED)))
    assert result.launches == (9, 11)
    assert result.only["fusions"] == (["op0+op1", "op11+op12"], [])
    assert "op0 (ComputedBuffer)" in result.only["kernels"][1]
    assert "9 launches against 11; fusions only in the first: op0+op1, op11+op12" in str(result)
    assert GraphPair(("one", "other"), (graph(FUSED), graph(FUSED))).only["kernels"] == ([], [])


def test_a_drawing_is_well_formed_and_has_every_node(monkeypatch):
    monkeypatch.setenv("PATH", "")  # no graphviz
    fused, unfused = graph(FUSED), graph(UNFUSED)
    root = ElementTree.fromstring(drawn([Picture("fused", fused, unfused), Picture("a < b & c", unfused, fused)]))
    assert len(root.findall(f"{SVG}g")) == len(fused) + len(unfused)
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert "a < b & c: 11 launches" in texts
    assert "op0+op1" in texts
    marked = [box for box in root.iter(f"{SVG}rect") if box.get("stroke-width") == "2.5"]
    assert len(marked) == 6, "two fusions here, their four members there"
    for box in root.iter(f"{SVG}rect"):
        assert float(box.get("x", 0)) + float(box.get("width")) <= float(root.get("width"))


def test_every_node_is_drawn_below_what_it_reads():
    row = {node.name: number for number, layer in enumerate(layers(graph(FUSED))) for node in layer}
    writer = {buffer: node.name for node in graph(FUSED) for buffer in node.writes}
    for node in graph(FUSED):
        assert all(row[writer[buffer]] < row[node.name] for buffer in node.reads if buffer in writer)
    loop = [GraphNode(name="op0", kind="SchedulerNode", members=("op0",), reads=("buf0",), writes=("buf0",))]
    assert layers(loop) == [loop], "a node that writes what it reads"
    assert layers([]) == []


def test_own_matmul_stands_among_inductors_candidates():
    first, second = CompilerLog.read((DATA / "inductor_log.txt").read_text().splitlines()).tables
    assert first.product == (256, 1024, 1024, "bfloat16")
    convolution = replace(first, op="convolution")
    asked = []
    joined = [*beside_own([first, second, first, convolution], lambda *product: asked.append(product) or 0.011)]
    assert [choice.name for choice in joined[0].choices] == [
        "triton_mm_7", "triton_ops.matmul", "bias_addmm", "triton_mm_9",
    ]  # fmt: skip
    assert len(asked) == 2, "each product is timed once"
    assert joined[3] is convolution
    assert replace(first, sizes="256x8, 9x1024").product is None
    if not torch.cuda.is_available():
        with pytest.raises(DeviceError, match="device cuda cannot be used"):
            _own_ms(*first.product)


def test_traces_of_one_name_are_told_apart(tmp_path, cli):
    for above in ("default/run_1/model_0", "max-autotune/run_2/model_0"):
        (tmp_path / "modes" / above).mkdir(parents=True)
        (tmp_path / "modes" / above / FUSED.name).write_bytes(FUSED.read_bytes())
    assert list(graphs_in(tmp_path / "modes")) == ["default/model_0", "max-autotune/model_0"]
    assert list(graphs_in(tmp_path / "modes" / "default")) == ["model_0"]
    assert list(graphs_in(FUSED)) == [FUSED.parent.name]
    assert list(graphs_in(tmp_path)) == ["modes/default/run_1/model_0", "modes/max-autotune/run_2/model_0"]
    drawing = tmp_path / "modes.svg"
    message = cli("torch", "draw", tmp_path / "modes", "--out", drawing).out
    assert message.count("9 launches") == 2
    boxes = ElementTree.parse(drawing).getroot().findall(f"{SVG}g")
    assert len(boxes) == 2 * len(graph(FUSED))


def test_all_graphs_of_two_programs_are_compared_and_named(tmp_path, cli):
    first, second = tmp_path / "default", tmp_path / "no-fusion"
    for where, trace in ((first, [FUSED, UNFUSED]), (second, [UNFUSED, UNFUSED, FUSED])):
        for number, file in zip((1, 2, 10), trace, strict=False):
            folder = where / "run_1" / f"model__0_forward_{number}.{number}"
            folder.mkdir(parents=True)
            (folder / FUSED.name).write_bytes(file.read_bytes())
    message = cli("torch", "draw", first, second).out.splitlines()
    assert message[0].startswith(
        "default model__0_forward_1.1 against no-fusion model__0_forward_1.1: 9 launches against 11"
    )
    assert message[1] == "default model__0_forward_2.2 against no-fusion model__0_forward_2.2: 11 launches against 11"
    assert message[2].startswith("no graph against no-fusion model__0_forward_10.10: 0 launches against 9")
    assert message[3:] == ["all graphs, 2 against 3: 20 launches against 31"]

    drawing = tmp_path / "both.svg"
    result = json.loads(cli("torch", "draw", first, second, "--out", drawing, "--json").out)
    assert result["launches"] == [20, 31]
    assert [each["launches"] for each in result["graphs"]] == [[9, 11], [11, 11], [0, 9]]
    assert (result["graphs"][2]["first"], result["graphs"][2]["second"]) == (None, "no-fusion model__0_forward_10.10")
    assert "op0+op1" in result["fusions"][0]
    boxes = ElementTree.parse(drawing).getroot().findall(f"{SVG}g")
    assert len(boxes) == 2 * len(graph(FUSED)) + 3 * len(graph(UNFUSED)), "every graph is drawn"

    same = cli("torch", "draw", first, first).out
    assert f"{first} model__0_forward_1.1 against {first} model__0_forward_1.1: 9 launches against 9\n" in same


def test_what_is_no_trace_is_told(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(TargetError):
            graphs_in(path)
    (tmp_path / "ir_post_fusion.txt").write_text("op0: nothing of the kind\n")
    with pytest.raises(TargetError, match="no scheduled node"):
        graphs_in(tmp_path)
    with pytest.raises(TargetError, match="op1 is a part of op1_op2, whose first line is missing"):
        read_graph(f"op1_op2:\n  FusedSchedulerNode(SchedulerNode)\nop1_op2.snodes[0] =\n{LEAVES[1]}")
    for end in range(0, 15_000, 499):
        text = FUSED.read_text(encoding="utf-8")[: end + 80]
        assert read_graph(text)[0].name == "op0_op1"


def test_the_cache_folder_is_measured_without_a_change(cache):
    result = CacheContent.of(cache)
    assert {part.name: part.files for part in result.parts} == {
        "generated code": 5, "fxgraph": 1, "aotautograd": 1, "triton": 2, "cache": 1, "locks": 1, "dynamo": 1,
    }  # fmt: skip
    assert (result.files, result.size_bytes) == (len(MADE), sum(map(len, MADE.values())))
    assert result.strange == ("notes.txt",)
    assert CacheContent.of(cache / "none").exists is False
    assert files_in(cache) == sorted([*MADE, "notes.txt"])


def test_the_cache_folder_of_the_environment_is_the_default(cache, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    assert CacheContent.of().path == str(cache)


def test_cleaning_removes_what_inductor_made_and_its_folders_alone(cache):
    assert CacheContent.clean(cache).files == len(MADE)
    assert [path.name for path in cache.iterdir()] == ["notes.txt"]
    assert CacheContent.clean(cache / "none").files == 0


def test_cleaning_leaves_what_is_not_provably_inductors(cache):
    written(cache, dict.fromkeys(FOREIGN, b'{"system": "mine"}'))
    (cache / "empty").mkdir()
    (cache / "ui" / "empty").mkdir()
    for number in range(40):  # so that it is mostly a cache
        written(cache, {f"{letters(number)}/c{letters(number)}{KEY[2:]}.so": b"12345"})
    CacheContent.clean(cache)
    assert files_in(cache) == sorted([*FOREIGN, "notes.txt"])
    assert (cache / "empty").is_dir()
    assert (cache / "ui" / "empty").is_dir()
    assert CacheContent.of(cache).files == 0


def letters(number):
    return f"{chr(ord('a') + number % 26)}{2 + number // 26}"


def test_cleaning_follows_no_link_and_keeps_it(cache, tmp_path):
    outside = written(tmp_path / "outside", MADE)
    (cache / "cd").symlink_to(outside / "2f")
    (cache / "2f" / "sub").symlink_to(outside)
    (cache / "aotautograd" / f"a{KEY[:-1]}b").symlink_to(outside / "aotautograd" / f"a{KEY}")
    (cache / "locks" / f"f{KEY}.lock").symlink_to(outside / "locks" / f"c{KEY}.lock")
    CacheContent.clean(cache)
    assert files_in(outside) == sorted(MADE)
    assert files_in(cache) == sorted(["2f/sub", f"aotautograd/a{KEY[:-1]}b", "cd", f"locks/f{KEY}.lock", "notes.txt"])


def test_cleaning_by_age_leaves_what_is_young(cache):
    for name in (f"{CODE}.py", f"{CODE}.main.cpp", f"locks/c{KEY}.lock", f"c{KEY}/c{KEY}.wrapper.cpp"):
        os.utime(cache / name, (1, 1))
    written(cache, {f"c{KEY}/c{KEY}.so": b"12345"})
    assert CacheContent.of(cache, older_s=3600).files == 3
    assert CacheContent.clean(cache, older_s=3600).files == 3
    assert CacheContent.of(cache).files == len(MADE) + 1 - 3, "files of one folder belong together"


def test_a_folder_that_is_no_cache_is_not_cleaned(tmp_path, monkeypatch):
    for name in ("a.txt", "b.txt", "ab"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(CacheError, match="does not look like"):
        CacheContent.clean(tmp_path)
    with pytest.raises(CacheError):
        CacheContent.of(tmp_path / "a.txt")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(CacheError, match="a link"):
        CacheContent.clean(tmp_path / "link")
    assert len(list(tmp_path.iterdir())) == 4
    monkeypatch.chdir(written(tmp_path / "here", MADE))
    with pytest.raises(CacheError, match="does not look like"):
        CacheContent.clean(tmp_path / "here")


@pytest.mark.parametrize("by_variable", [False, True])
def test_the_command_shows_what_it_would_remove_and_asks(cli, cache, monkeypatch, by_variable):
    words = ["torch", "cache", "--clean", *([] if by_variable else ["--folder", cache])]
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache if by_variable else cache / "none"))
    ran = cli(*words)
    assert (ran.code, len(files_in(cache))) == (2, len(MADE) + 1), "nobody can be asked"
    assert "--yes removes them" in ran.err
    assert f"{len(MADE)} files" in ran.out
    with pseudo_terminal(monkeypatch, "n\n"):
        ran = cli(*words)
    assert (ran.code, len(files_in(cache))) == (0, len(MADE) + 1)
    assert "nothing was removed" in ran.err
    with pseudo_terminal(monkeypatch, "y\n"):
        ran = cli(*words)
    assert (ran.code, files_in(cache)) == (0, ["notes.txt"])
    assert f"{len(MADE)} files removed" in ran.out


@contextlib.contextmanager
def pseudo_terminal(monkeypatch, answer):
    """A terminal as stdin, on which a user has typed."""
    master, slave = os.openpty()
    os.write(master, answer.encode())
    with os.fdopen(slave, encoding="utf-8") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", terminal)
        yield
    os.close(master)


def test_the_commands_print_json(cli, cache, tmp_path):
    drawing = tmp_path / "both.svg"
    ran = cli("torch", "draw", FUSED, UNFUSED, "--out", drawing, "--json")
    assert json.loads(ran.out)["launches"] == [9, 11]
    assert ElementTree.parse(drawing).getroot().tag == f"{SVG}svg"
    assert json.loads(cli("torch", "cache", "--folder", cache, "--json").out)["files"] == len(MADE)
    assert json.loads(cli("torch", "log", DATA / "inductor_log.txt", "--json").out)["recordings"] == 2
    listed = json.loads(cli("torch", "options", "max_autotune", "--json").out)
    assert {"name", "variables", "default", "value", "set_by", "changed"} == set(listed["options"][0])
    assert listed["gate"]["open"] is True


def test_the_commands_print_text(cli, cache, monkeypatch):
    monkeypatch.setenv("TORCH_LOG", "inductor")
    ran = cli("torch", "options", "epilogue_fusion")
    assert "epilogue_fusion" in ran.out
    assert "TORCH_LOGS is probably meant" in ran.err
    assert "11" in cli("torch", "draw", UNFUSED).out
    assert "addmm(256x1024, 256x1024, 1024x1024)" in cli("torch", "log", DATA / "inductor_log.txt").out
    ran = cli("torch", "cache", "--folder", cache)
    assert f"{len(MADE)} files" in ran.out
    assert "notes.txt" in ran.err
    assert f"{len(MADE)} files removed" in cli("torch", "cache", "--folder", cache, "--clean", "--yes").out


def test_a_file_that_is_no_log_is_told_from_a_log_in_which_nothing_went_wrong(cli, tmp_path):
    other, clean_log = tmp_path / "report.json", tmp_path / "log.txt"
    other.write_text('{"rows": [1, 2]}\n')
    clean_log.write_text("I1124 04:39:00.123 12 torch/_inductor/compile_fx.py:100] [0/0] done\n")
    ran = cli("torch", "log", other)
    assert (ran.code, ran.out, f"no line of torch's log is in {other}" in ran.err) == (2, "", True)
    assert cli("torch", "log", clean_log).err == ""
    clean_log.write_text("WARNING:torch._inductor.select_algorithm:nothing was tuned\n")
    assert cli("torch", "log", clean_log).err == ""
    assert json.loads(cli("torch", "log", clean_log, "--json").out)["lines"] == 1
    assert json.loads(cli("torch", "log", DATA / "inductor_log.txt", "--json").out)["lines"] == 10


@pytest.mark.parametrize("content", [b"\x7fELF\0\0", bytes(range(128, 256)) * 3])
def test_binary_data_is_no_log(cli, tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    ran = cli("torch", "log", tmp_path / "file")
    assert (ran.code, ran.out) == (2, "")
    assert "it is no text" in ran.err


def test_own_says_where_it_adds_nothing(cli):
    ran = cli("torch", "log", DATA / "inductor_log_cpu.txt", "--own")
    assert ran.code == 0
    assert "--own adds nothing" in ran.err
    assert "those here: packed_linear" in ran.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["options", "qqqq"], 2),
        (["log", "no-such-file"], 2),
        (["draw", "no-such-file"], 2),
        (["draw", str(FUSED), "--out", "/no/such/folder/x.svg"], 2),
        (["cache", "--older-than", "3"], 2),
        (["cache", "--clean", "--older-than", "nan"], 2),
        (["cache", "--folder", str(FUSED)], 4),
    ],
)
def test_bad_input_is_one_line_and_a_code(cli, words, code):
    ran = cli("torch", *words)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("error: ")
    assert len(ran.err.splitlines()) == 1
