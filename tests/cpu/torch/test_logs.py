"""Logs as deployments have them: what launchers and collectors make of each line, several processes, other versions."""

from __future__ import annotations

import html
import json
import re
from itertools import chain, zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops_torch.compiled_graphs import read_graph
from triton_ops_torch.compiler_output import AutotuneChoice, CompilerLog, parse_printed

TABLE = """Autotune Choices Stats:
{"num_choices": 4, "num_triton_choices": 2, "best_kernel": "triton_mm_5", "best_time": 0.021, "best_triton_pos": 0}
AUTOTUNE mm(16x512, 512x768)
strides: [512, 1], [1, 512]
dtypes: torch.float16, torch.float16
  triton_mm_5 0.0210 ms 100.0% ACC_TYPE='tl.float32', BLOCK_K=64, num_warps=2
  mm 0.0300 ms 70.0%\x20
  triton_mm_2 inf ms 0.0% ACC_TYPE='tl.float32', BLOCK_K=128, num_warps=8
SingleProcess AUTOTUNE benchmarking takes 0.5000 seconds and 1.2500 seconds precompiling for 4 choices""".splitlines()
OTHER = [
    line.replace("16x", "48x").replace("0.0210", "0.0420").replace("0.0300", "0.0600").replace("_5", "_9")
    for line in TABLE
]


def read(lines):
    return CompilerLog.read(["\n".join(lines)])


def content(table):
    winner = table.winner and table.winner.name
    return table.sizes, table.dtypes, [choice.ms for choice in table.choices], winner, len(table.stats), table.count


RIGHT = ("16x512, 512x768", "torch.float16, torch.float16", [0.021, 0.03, None], "triton_mm_5", 5, 4)


PREFIXES = (
    "", "    ", "[rank3]:", "[default1]:", "(EngineCore_DP0 pid=812) ", "(VllmWorker rank=1 pid=99) ", "trainer-1  | ",
    "\x1b[36m(RayWorkerWrapper pid=7, ip=10.1.2.3)\x1b[0m ", "^[[1;36m(Worker_TP0 pid=7)^[[0;0m ", "[1,0]<stderr>: ",
    "2026-01-02T03:04:0{}.123456789Z stderr F ", "Jan 02 03:04:0{} gpu-7 python[311]: ", "17: ", "- ", "> ", "# ",
    "2026-01-02T03:04:0{},710 [WARN ] W-9000-model_1.0-stderr MODEL_LOG - ", "test\tRun\t2026-01-02T03:04:0{}Z ",
    "INFO 01-02 03:04:0{} [backends.py:12{}] ", "2026-01-02 03:04:0{},120 - root - INFO - ", "[ 1{}.520012] app: ",
    "2026-01-02 03:04:0{}.214 | INFO     | __main__:write:12 - ", "[2026-01-02 03:04:0{} DP1 TP0] ", "176734{}010.2 ",
    "Steps:  1{}%|█▏   | 1/8 [00:0{}<00:09, 1.2s/it]", "worker:", "\ufeff", "[pod/train-0/main] ", "step {}{}{} ",
    "22/Nov/2026:10:11:1{} +0000 ", "#12 34.5{} ", "11/22/2026 10:11:1{} PM ", "22.11.2026, 10:11:1{}: ", "[{}12ms] ",
)  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\\n\n"])
def test_a_table_is_read_whatever_stands_before_its_lines_and_ends_them(prefix, end):
    lines = [prefix.replace("{}", str(number // 2)) + line for number, line in enumerate(TABLE)]
    log = CompilerLog.read([end.join(lines)])
    assert [content(table) for table in log.tables] == [RIGHT]
    assert (log.unread, log.lines) == ((), 3)


def test_lines_that_a_collector_put_into_json_are_read():
    lines = [
        json.dumps({"log": f"{line}\n", "stream": "stderr", "time": f"2026-01-02T03:04:0{number}.1Z"})
        for number, line in enumerate(TABLE)
    ]
    assert content(read(lines).tables[0]) == RIGHT
    together = json.dumps({"timestamp": 1, "message": "\n".join(TABLE), "kubernetes": {"pod": "a"}})
    assert content(read([together, "{broken"]).tables[0]) == RIGHT


@pytest.mark.parametrize("form", ["[rank{}]:", "(Worker_TP{0} pid=3{0}) ", "{}: ", "[1,{}]<stderr>: ", "node-{}  | "])
def test_processes_that_write_at_once_are_told_apart_by_their_prefix(form):
    both = [[form.format(rank) + line for line in table] for rank, table in enumerate((TABLE, OTHER))]
    log = read(chain.from_iterable(zip(*both, strict=True)))
    assert [table.sizes[:2] for table in log.tables] == ["16", "48"]
    assert [table.winner.name for table in log.tables] == ["triton_mm_5", "triton_mm_9"]
    assert log.tables[0].writer != log.tables[1].writer
    assert log.unread == ()


@pytest.mark.parametrize("shift", range(-8, 9))
def test_of_mixed_tables_without_prefix_no_winner_is_made_up(shift):
    """Two processes write the same kind of table, the second one some lines later or earlier than the first."""
    late = [None] * abs(shift)
    first, second = (TABLE, [*late, *OTHER]) if shift >= 0 else ([*late, *TABLE], OTHER)
    lines = [line for pair in zip_longest(first, second) for line in pair if line is not None]
    right = {"16x512, 512x768": "triton_mm_5", "48x512, 512x768": "triton_mm_9"}
    for table in read(lines).tables:
        assert table.winner is None or table.winner.name == right[table.sizes]
        assert table.winner or table.doubt or not table.choices


def test_a_log_with_the_newest_line_first_is_turned_round():
    lines = [f"2026-01-02 03:04 | info | a1b2 | {line}\\n" for line in reversed([*TABLE, *OTHER])]
    assert [content(table)[3:] for table in read(lines).tables] == [RIGHT[3:], ("triton_mm_9", 5, 4)]


def test_tables_of_torch_2_0_have_milliseconds_with_the_sign_of_seconds():
    lines = ["AUTOTUNE bias_addmm(64x32, 64x16, 16x32)", "  addmm 0.5000s 100.0%", "  triton_mm_1 1.0000s 50.0%"]
    (table,) = read([*lines, "SubProcess AUTOTUNE takes 2.25 seconds"]).tables
    assert [choice.ms for choice in table.choices] == [0.5, 1.0]
    assert (table.benchmark_s, table.precompile_s, table.count) == (2.25, None, None)


def test_the_warning_of_many_sizes_is_a_hint():
    message = "CUDAGraph supports dynamic shapes by recording a new graph for each distinct input size. We observed 51"
    assert read([f"W0102 03:04:05.600 7 torch/_inductor/cudagraph_trees.py:1] {message}"]).hints == (message,)


@pytest.mark.parametrize(
    "line", ["  mm 1.2.3 ms 4.5.6%", "Steps 3  37%|███| 1/8 [00:01<00:09, 1.2s/it]", "  mm . ms .%"]
)
def test_odd_numbers_and_progress_do_no_harm(line):
    (table,) = read([*TABLE[:6], line, *TABLE[6:]]).tables
    assert content(table) == RIGHT
    assert content(read([f"Steps 3  37%|███| 1/8 [00:01<00:09, 1.2s/it]{each}" for each in TABLE]).tables[0]) == RIGHT


@pytest.mark.parametrize("prefix", ["worker:", "[1,0]<stderr>:", "[rank0]:", "[1,mpirank:0,a-1]<stderr>:", "train-0 "])
def test_rows_without_their_indentation_are_read(prefix):
    assert content(read([prefix + line.strip() for line in TABLE]).tables[0]) == RIGHT


def test_a_table_whose_columns_somebody_has_aligned_is_read():
    wide = [line.replace(" ms ", " ms   ").replace("  mm ", "  mm          ") for line in TABLE]
    assert content(read(wide).tables[0]) == RIGHT


def test_what_a_program_says_long_after_a_table_that_was_cut_is_no_part_of_it():
    log = read([*TABLE[:7], *["step"] * 20, "memory 31.5 GiB 45%"])
    assert (len(log.tables[0].choices), log.unread) == (2, ())


@pytest.mark.parametrize("width", range(30, 120))
def test_options_of_a_row_that_a_terminal_has_wrapped_are_counted(width):
    long = [line.replace("ACC_TYPE", "ALLOW_TF32=False, BLOCK_M=64, GROUP_M=8, ACC_TYPE") for line in TABLE]
    lines = [line[at : at + width] for line in long for at in range(0, len(line), width)]
    log = read(lines)
    right = {choice.name: choice.what for choice in read(long).tables[0].choices}
    cut = [choice for table in log.tables for choice in table.choices if choice.what != right[choice.name]]
    assert log.unread or not cut


def test_a_line_of_torchs_own_log_is_no_rest_of_a_row():
    message = (
        "E0119 14:31:46.9 26 torch/_inductor/select_algorithm.py:2100] [7/0] Exception out of resource: BLOCK_K=64, A=1"
    )
    log = read([*TABLE[:6], message, *TABLE[6:]])
    assert (content(log.tables[0]), log.unread) == (RIGHT, ())


def test_what_a_page_makes_of_blanks_and_marks_is_undone():
    shown = [html.escape(line).replace(" ", "&nbsp;") for line in TABLE]
    assert content(read(shown).tables[0]) == RIGHT
    assert content(read([line.replace(" ", "\u00a0") for line in TABLE]).tables[0]) == RIGHT


def test_choices_by_their_class_are_named_after_it():
    lines = ["AUTOTUNE mm(4x4, 4x4)", "  ExternKernelCaller(extern_kernels.mm) 0.2000 ms 100.0%"]
    (table,) = read([*lines, "  TritonTemplateCaller(/tmp/a/b.py, BLOCK_K=32, num_warps=8) 0.4000 ms 50.0%"]).tables
    assert [choice.source for choice in table.choices] == ["aten", "triton"]


def test_other_units_and_rows_without_a_time_are_understood_and_unknown_units_are_told():
    head = "AUTOTUNE mm(4x4, 4x4)"
    (table,) = read([head, "  mm 12.50 us 100.0%", "  triton_mm_1 0.0250 ms 50.0%"]).tables
    assert [choice.ms for choice in table.choices] == pytest.approx([0.0125, 0.025])
    (table,) = read([head, "  triton_mm_1 inf ms nan% A=1", "  mm nan ms nan%"]).tables
    assert [choice.ms for choice in table.choices] == [None, None]
    assert table.winner is None
    (table,) = read([head, "  mm 0.0000 ms <DIVIDED BY ZERO ERROR>", "  triton_mm_1 0.0100 ms 0.0%"]).tables
    assert (table.winner, table.doubt) == (None, "mm has a time of 0")
    log = read([head, "  triton_mm_1 12.50 cycles 100.0%", "  mm 25.00 cycles 50.0%"])
    assert len(log.unread) == 2
    assert not log.useful


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:5], *lines[6:]],  # the fastest row is lost
        lambda lines: [*lines[:5], lines[6], lines[5], *lines[7:]],
        lambda lines: [*lines[:6], lines[5], *lines[6:]],
        lambda lines: [line.replace("70.0%", "81.0%") for line in lines],
        lambda lines: [line.replace('"best_kernel": "triton_mm_5"', '"best_kernel": "mm"') for line in lines],
        lambda lines: [line.replace("for 4 choices", "for 2 choices") for line in lines],
        lambda lines: [*lines[:5], lines[4], *lines[5:]],
    ],
)
def test_a_table_that_contradicts_itself_has_no_winner(change):
    (table,) = read(change(TABLE)).tables
    assert table.winner is None
    assert table.doubt


def test_tables_side_by_side_are_no_table_and_are_counted(cli, tmp_path):
    (tmp_path / "log").write_text("".join(f"{line}\t\t|\t{other}\n" for line, other in zip(TABLE, OTHER, strict=True)))
    ran = cli("torch", "log", tmp_path / "log")
    assert (ran.code, ran.out) == (2, "")
    assert "may be a part of one" in ran.err


def test_the_command_says_what_has_no_winner_and_what_was_not_read(cli, tmp_path):
    log = tmp_path / "log"
    log.write_text("\n".join([*TABLE, *OTHER[2:5], *TABLE[2:5], *OTHER[5:], "AUTOTUNE of something else"]))
    ran = cli("torch", "log", log)
    assert ran.code == 0
    assert "no winner: no choice could be read" in ran.out
    assert "no winner: lines of several tables are mixed in it" in ran.out
    assert "1 line that look like a part of a table were not read, such as 'AUTOTUNE of something else'" in ran.err
    document = json.loads(cli("torch", "log", log, "--json").out)
    assert [table["winner"] for table in document["tables"]] == ["triton_mm_5", None, None]
    assert len(document["unread"]) == 1
    log.write_text("\n".join(f"[rank{rank}]:{line}" for rank in (0, 1) for line in TABLE))
    assert "0.5 s of measuring, by rank1" in cli("torch", "log", log).out
    log.write_text("\n".join(TABLE[2:5]))
    ran = cli("torch", "log", log)
    assert (ran.code, "of 1 table in" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "lead", ["W0102 03:04:05.600000 77 site-packages/torch/_dynamo/convert_frame.py:99] [0/8] ", ""]
)
@pytest.mark.parametrize("launcher", ["", "[rank2]:", "(EngineCore_DP0 pid=812) "])
@pytest.mark.parametrize("limit", ["recompile_limit (8)", "accumulated_recompile_limit (256)", "cache_size_limit (64)"])
def test_a_limit_is_told_with_function_and_reason(cli, tmp_path, launcher, lead, limit):
    lines = [
        f"torch._dynamo hit config.{limit}", "   function: 'step' (/srv/train.py:12)",
        "   last reason: 0/7: tensor 'x' size mismatch at index 0. expected 16, actual 24",
    ]  # fmt: skip
    text = "".join(f"{launcher}{lead}{line}\n" for line in lines)
    (told,) = CompilerLog.read([text]).limits
    assert told == f"{limit}: {lines[1].strip()}; {lines[2].strip()}"
    (tmp_path / "log").write_text(text)
    assert f"not compiled any more: {told}" in cli("torch", "log", tmp_path / "log").out


def test_limits_of_other_versions_and_of_several_ranks():
    log = read([
        "[2026-01-02 03:04:05,6] torch._dynamo.convert_frame: [WARNING] torch._dynamo hit config.cache_size_limit (64)",
        "   function: 'f' (a.py:3)", "   reasons:  L['x'].size()[0] == 3",
        "torch._dynamo.exc.FailOnRecompileLimitHit: recompile_limit reached with fullgraph=True. More text",
        "torch._dynamo.exc.CacheLimitExceeded: cache_size_limit reached",
    ])  # fmt: skip
    assert log.limits == (
        "cache_size_limit (64): function: 'f' (a.py:3); reasons:  L['x'].size()[0] == 3",
        "recompile_limit reached with fullgraph=True. More text", "cache_size_limit reached",
    )  # fmt: skip
    head = "[rank{0}]:W0102 03:04:05.6 7{0} torch/_dynamo/convert_frame.py:99] [0/8] "
    parts = ["torch._dynamo hit config.recompile_limit (8)", "   function: 'f{0}' (a.py:{0})"]
    log = read([(head + part).format(rank) for part in parts for rank in (0, 1)])
    assert log.limits == tuple(f"recompile_limit (8): function: 'f{rank}' (a.py:{rank})" for rank in (0, 1))


@pytest.mark.parametrize(
    "head",
    [
        "V0102 03:04:05.600000 77 torch/_dynamo/guards.py:9] [0/1] [__recompiles] ",
        "[rank0]:V0102 03:04:05.600000 77 torch/_dynamo/guards.py:9] [0/1] [__recompiles] ",
        "[2026-01-02 03:04:05,600] torch._dynamo.guards.__recompiles: [DEBUG] ",
    ],
)
def test_the_guards_that_failed_are_told_with_the_function(head):
    guards = [f"    - 0/{number}: tensor 'x' size mismatch, expected {number}" for number in (3, 2, 1, 0)]
    begin = "Recompiling function step in /srv/train.py:12"
    lines = [begin, "    triggered by the following guard failure(s):", *guards]
    (told,) = read([head + line for line in lines]).recompiled
    first = "; ".join(guard.strip("- ") for guard in guards[:3])
    assert told == f"step in /srv/train.py:12: {first}; and 1 more"
    assert read(["    - a list", head + begin, "    - another"]).recompiled == ("step in /srv/train.py:12",)


def test_a_path_of_windows_is_not_cut_where_it_has_the_sign_of_a_line_end():
    lines = ["torch._dynamo hit config.recompile_limit (8)", r"   function: 'f' (C:\models\nodes\new.py:3)"]
    assert read(lines).limits == (r"recompile_limit (8): function: 'f' (C:\models\nodes\new.py:3)",)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("aten", "mm addmm bias_addmm bmm baddbmm mm_dtype bmm_dtype _int_mm _scaled_mm _scaled_mm_v2 _grouped_mm"),
        ("aten", "_scaled_grouped_mm _mm_plus_mm _sparse_semi_structured_mm _weight_int8pack_mm fallback_mixed_mm"),
        ("aten", "int4mm_packed_weight_cpu conv1x1_via_mm call_aten_dw _mkl_linear _linear_pointwise convolution"),
        ("aten", "cudnn_convolution _weight_int4pack_mm_for_cpu linear qlinear_pointwise"),
        ("triton", "triton_mm_4 triton_convolution2d_3 triton_flex_attention_1 triton_scaled_grouped_mm_2"),
        ("cutlass", "cutlass_f6c25cf2 cuda_cutlass_gemm_812 cutlass3x_sm90_gemm_1"),
        ("ck", "ck_gemm_3 rocm_ck_gemm_template_12 rocm_ck_tile_gemm_4 CK_conv_1"),
        ("cpp", "cpp_CppMicroGemmFP32Vec_0 cpp_packed_gemm_1 cpp_flex_attention_0"),
        ("subgraph", "decompose_k_mm_32_split_4 contiguous_mm_0 contiguous_addmm_1"),
        ("nvgemm", "nv_universal_gemm_7"),
        ("cutedsl", "cutedsl_grouped_gemm_0 grouped_gemm_cutedsl_3"),
        ("flydsl", "flydsl_mm_0"),
        ("other", "mylib_op_fallback fancy_choice_3"),
    ],
)  # fmt: skip
def test_the_origin_of_a_choice(source, names):
    assert {name: AutotuneChoice(name, 1.0).source for name in names.split()} == dict.fromkeys(names.split(), source)


def test_choices_of_one_name_that_differ_in_their_options_are_several():
    lines = [
        "AUTOTUNE mm(147456x6144, 6144x2048)",
        "  cutlass_aa6f899c 4.6328 ms 100.0% cutlass3x_sm90_tensorop swizzle=1",
        "  cutlass_aa6f899c 4.6836 ms 98.9% cutlass3x_sm90_tensorop swizzle=4",
    ]
    (table,) = CompilerLog.read(lines).tables
    assert (table.winner, len(table.choices)) == (table.choices[0], 2)
    (table,) = CompilerLog.read([*lines, lines[-1]]).tables
    assert (table.winner, len(table.choices)) == (None, 3)


def tables_of(rank, random):
    """The tables that a rank writes, each as op with sizes, names of the fastest choices, and lines."""
    tables = []
    for number in range(random.randint(1, 3)):
        head = f"{random.choice(['mm', 'addmm'])}({16 * (number + 1 + random.choice([0, rank]))}x64, 64x32)"
        times = sorted(random.choice([0.021, 0.0211, 0.03, 0.042, 0.06]) for _ in range(random.randint(2, 5)))
        names = random.sample(["mm", "bias_addmm", *(f"triton_mm_{each}" for each in range(9))], len(times))
        rows = [
            f"  {name} {ms:.4f} ms {100 * times[0] / ms:.1f}% {'BLOCK_K=64' if 'triton' in name else ''}"
            for name, ms in zip(names, times, strict=True)
        ]
        lines = [f"AUTOTUNE {head}"]
        if random.random() < 0.5:
            lines += ["strides: [64, 1], [1, 64]", "dtypes: torch.float16, torch.float16"]
        if random.random() < 0.3:
            lines = ["Autotune Choices Stats:", json.dumps({"num_choices": len(rows), "best_kernel": names[0]}), *lines]
        count = random.choice(["", f" and 1.2500 seconds precompiling for {len(rows)} choices"])
        end = f"SingleProcess AUTOTUNE benchmarking takes 0.5000 seconds{count}"
        fastest = names[: times.count(times[0])]
        tables.append((head, fastest, [*lines, *rows, end]))
    return tables


def interleaved(ranks, random, prefixed, cut):
    """The lines of several ranks in one log: in runs of some lines, a share with a prefix, a share cut in two."""
    queues = [
        [
            f"[rank{rank}]:{line}\n" if random.random() < prefixed else f"{line}\n"
            for *_, each in tables
            for line in each
        ]
        for rank, tables in enumerate(ranks)
    ]
    run, written = random.choice([1, 1, 2, 5]), []
    while queues := list(filter(None, queues)):
        queue = random.choice(queues)
        for _ in range(min(random.randint(1, run), len(queue))):
            line = queue.pop(0)
            if random.random() < cut:
                at = random.randrange(len(line))
                queue.insert(0, line[at:])
                written.append(line[:at])
                break
            written.append(line)
    return "".join(written)


@given(st.randoms(use_true_random=True), st.sampled_from([0, 0.5, 0.9, 1]), st.sampled_from([0, 0, 0.05, 0.3]))
def test_of_several_ranks_a_winner_is_right_or_the_table_is_said_to_be_mixed(random, prefixed, cut):
    ranks = [tables_of(rank, random) for rank in range(random.randint(2, 8))]
    log = CompilerLog.read([interleaved(ranks, random, prefixed, cut)])
    right = [{(head, name) for head, names, _ in tables for name in names} for tables in ranks]
    for table in log.tables:
        own = [right[int(table.writer[4:])]] if re.fullmatch(r"rank\d", table.writer) else right
        head = f"{table.op}({table.sizes})"
        if all(head != each for each, _ in chain.from_iterable(right)):  # what was written within it shows nowhere else
            assert cut
            head, own = "", [{("", name) for each in own for _, name in each}]
        assert table.winner is None or any((head, table.winner.name) in each for each in own)
        assert table.winner or table.doubt or not table.choices
    if prefixed == 1 and not cut:
        assert all(table.winner for table in log.tables)
        assert len(log.tables) == sum(map(len, ranks))


def test_tables_that_were_pasted_without_their_ends_have_their_winners():
    tables = read([*TABLE[2:-1], *OTHER[2:-1]]).tables
    assert [table.winner.name for table in tables] == ["triton_mm_5", "triton_mm_9"]
    tables = read([*TABLE[2:-1], *OTHER[2:], TABLE[-1]]).tables
    assert [table.winner for table in tables] == [None, None]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:5], lines[5].replace("100.0%", "99.6%"), *lines[6:]],
        lambda lines: [*lines[:5], lines[5].lstrip(), *lines[6:]],
        lambda lines: [*lines[:4], lines[4] + lines[5], *lines[6:]],
        lambda lines: [*lines[:5], f"[rank1]:{lines[5]}", *lines[6:], "[rank1]:AUTOTUNE mm(8x8, 8x8)"],
        lambda lines: [*lines, lines[-2], lines[-1]],
    ],
)
def test_a_table_that_may_have_a_row_of_another_or_lack_its_own_has_no_winner(change):
    table = read(change(TABLE)).tables[0]
    assert (table.winner, bool(table.doubt)) == (None, True)


HEAD = "E1128 10:00:00.000000 1234 torch/_inductor/select_algorithm.py:5068] [0/0] "
MEMORY = "out of resource: shared memory, Required: 262144, Hardware limit: 232448."
RUNTIME = ["Runtime error during autotuning: ", f"{MEMORY}. ", "Ignoring this choice."]
FAILURES = {  # torch 2.6 to 2.13, torch/_inductor/select_algorithm.py and utils.py
    "by torch's formatter": [f"{HEAD}{line}" for line in RUNTIME],
    "of a rank": [f"[rank3]:{HEAD}{line}" for line in RUNTIME],
    "by logging": [f"ERROR:torch._inductor.select_algorithm:{RUNTIME[0]}", *RUNTIME[1:]],
    "with written ends": ["\\n".join([f"{HEAD}{RUNTIME[0]}", *RUNTIME[1:]])],
}


@pytest.mark.parametrize("lines", FAILURES.values(), ids=FAILURES)
def test_the_reason_of_a_choice_that_failed_is_kept(lines):
    log = read([*TABLE[:1], *lines, *TABLE[1:], "W something else: "])
    assert [each.partition(":")[0] for each in log.failures] == ["Runtime error during autotuning"]
    assert "out of resource: shared memory, Required: 262144, Hardware limit: 232448" in log.failures[0]
    assert "Ignoring" not in log.failures[0]
    assert log.tables[0].winner is not None


@pytest.mark.parametrize(
    "text",
    ["Not enough SMs to use max_autotune_gemm mode", "GPU arch does not support max_autotune_gemm mode usage",
     "Exception no valid configs for benchmark choice TritonTemplateCaller(x.py, ACC_TYPE='tl.float32')",
     "Marking choice as failed due to timeout: triton_mm_7", "CUTLASS choice cutlass_4f failed during benchmarking.",
     "CUDA compilation error during autotuning: no kernel image"],
)  # fmt: skip
def test_why_a_choice_was_not_tried_is_kept_and_nothing_of_what_follows(text):
    log = read([f"{HEAD}{text}", "a line of another program", *TABLE])
    assert log.failures == (text,)
    assert log.useful


@pytest.mark.parametrize("piece", ["0", "-", " ", "a", "_", ".", "0 ", "a=", "= ", "Dep("])
def test_a_line_without_end_is_read_in_one_pass(piece):
    line = piece * (60_000 // len(piece))
    for before in ("", "AUTOTUNE mm(1x1, 1x1)\n", f"{piece} [rank0]: "):
        assert parse_printed(f"{before}{line}") == []
        CompilerLog.read(f"{before}{line}\x01".splitlines())
    read_graph(f"op0: SchedulerNode(ComputedBuffer)\nop0.writes = [{line}\x01]\nop0.{line}\x01 = []\n")
