"""Profiles of Nsight Compute: every form of the CSV, files that are cut or of something else, verdicts and commands.

The texts written here follow the profiler's documentation; the files in tests/data are a live profiler's.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from triton_ops.device.limits import LIMITS
from triton_ops.exceptions import MissingDependencyError, ProfileError, SettingsError
from triton_ops_lab import command_profile as command
from triton_ops_lab import read_profile
from triton_ops_lab.command_profile import NcuRequest
from triton_ops_lab.expectation import Waves
from triton_ops_lab.kernel_verdicts import (
    COMPUTE,
    LATENCY,
    LAUNCH,
    MEMORY,
    UNDECIDED,
    KernelProfile,
    figures_of,
    kernel_kind,
)
from triton_ops_lab.kernel_verdicts import judgement_of as judged
from triton_ops_lab.profile_reading import parse_profile, quantity, read_launches

FACTS = {"ID": "0", "Process ID": "71", "Process Name": "python", "Host Name": "here"}
PREAMBLE = '==PROF== Connected to process 71\n==PROF== Profiling "matmul": 0%....100% - 9 passes\nstep 1, loss 3.5\n'
ELAPSED = "avg.pct_of_peak_sustained_elapsed"
RAW = {
    "gpu__time_duration.sum": ("usecond", "1,763.36"),
    f"sm__throughput.{ELAPSED}": ("%", "87.51"),
    f"gpu__compute_memory_throughput.{ELAPSED}": ("%", "41.20"),
    f"gpu__dram_throughput.{ELAPSED}": ("%", "12.30"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "12.45"),
    "launch__registers_per_thread": ("register/thread", "216"),
    "launch__waves_per_multiprocessor": ("", "15.52"),
    "dram__bytes_read.sum": ("Mbyte", "402.65"),
    "dram__bytes_write.sum": ("Mbyte", "134.22"),
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": ("inst", "3.10"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": ("inst", "n/a"),
    "device__attribute_display_name": ("", "NVIDIA H200"),
}


def quoted(*rows):
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue()


def raw_page(*launches, facts=None):
    """The page `raw`: a header, the units, and one row for each launch."""
    shared = {**(facts or FACTS), "Block Size": "(256, 1, 1)", "Grid Size": "(2048, 1, 1)", "Device": "0", "CC": "9.0"}
    header = [*shared, "Kernel Name", *launches[0][1]]
    units = [""] * (len(shared) + 1) + [unit for unit, _ in launches[0][1].values()]
    rows = [[*shared.values(), name, *(value for _, value in metrics.values())] for name, metrics in launches]
    return quoted(header, units, *rows)


def details_page(rows, *, old=False, average=False):
    """The page `details`: one row for each metric; rows are kernel, section, metric, unit and value."""
    extra = (
        ["Kernel Time", "Context", "Stream"]
        if old
        else ["Context", "Stream", "Block Size", "Grid Size", "Device", "CC"]
    )
    value = ["Minimum", "Maximum", "Average"] if average else ["Metric Value"]
    rules = [] if old or average else ["Rule Name", "Rule Type", "Rule Description"]
    header = [*FACTS, "Kernel Name", *extra, "Section Name", "Metric Name", "Metric Unit", *value, *rules]
    lines = [
        [
            *FACTS.values(),
            kernel,
            *["1"] * len(extra),
            section,
            metric,
            unit,
            *([message] * len(value)),
            *[""] * len(rules),
        ]
        for kernel, section, metric, unit, message in rows
    ]
    return quoted(header, *lines)


SPEED = "GPU Speed Of Light Throughput"
DETAILS = [
    ("copy", SPEED, "DRAM Frequency", "cycle/nsecond", "3.20"),
    ("copy", SPEED, "Duration", "usecond", "493.15"),
    ("copy", SPEED, "Memory Throughput", "%", "91.42"),
    ("copy", SPEED, "DRAM Throughput", "%", "91.42"),
    ("copy", SPEED, "Compute (SM) Throughput", "%", "11.05"),
    ("copy", "Memory Workload Analysis", "Memory Throughput", "Tbyte/second", "4.35"),
    ("copy", "Launch Statistics", "Registers Per Thread", "register/thread", "27"),
    ("copy", "Occupancy", "Achieved Occupancy", "%", "88.13"),
    ("copy", "", "", "", ""),
]


def profile_of(text):
    return figures_of(parse_profile(text).launches[0])


def test_the_raw_page_is_read_with_its_units_and_what_a_program_printed_before_it():
    seen = profile_of(PREAMBLE + raw_page(("matmul", RAW)))
    assert seen.kernel == "matmul"
    assert seen.duration_s == pytest.approx(1.76336e-3)
    assert (seen.compute, seen.memory, seen.dram, seen.registers) == (87.51, 41.20, 12.30, 216)
    assert (seen.blocks, seen.threads, seen.arch, seen.device) == (2048, 256, "sm_90", "NVIDIA H200")
    assert seen.moved_bytes == pytest.approx(536.87e6)
    assert seen.stall == ("barrier", 3.1)


def test_units_of_the_shape_of_a_launch_are_no_metrics(tmp_path):
    page = raw_page(("matmul", RAW)).splitlines(keepends=True)
    units = page[1].split(",")
    units[4:6] = ['"block"', '"grid"']
    (tmp_path / "page.csv").write_text("".join([page[0], ",".join(units), *page[2:]]))
    assert read_profile(tmp_path / "page.csv").notes == ()


def test_the_details_page_tells_the_two_metrics_of_one_name_apart_by_their_units():
    table = parse_profile(details_page(DETAILS))
    seen = figures_of(table.launches[0])
    assert len(table.launches) == 1
    assert (seen.memory, seen.dram, seen.compute) == (91.42, 91.42, 11.05)
    assert seen.dram_bytes_per_s == pytest.approx(4.35e12)
    assert seen.moved_bytes == pytest.approx(4.35e12 * 493.15e-6)


def test_an_older_versions_names_and_columns_are_read():
    rows = [
        ("old", "GPU Speed Of Light", "SOL SM", "%", "81.20"),
        ("old", "GPU Speed Of Light", "SOL Memory", "%", "20.00"),
        ("old", "GPU Speed Of Light", "Duration", "nsecond", "12,345"),
    ]  # fmt: skip
    seen = profile_of(details_page(rows, old=True))
    assert (seen.compute, seen.memory, seen.duration_s) == (81.2, 20.0, pytest.approx(12.345e-6))


def test_a_summary_counts_by_its_average():
    seen = profile_of(details_page(DETAILS[:5], average=True))
    assert (seen.memory, seen.compute) == (91.42, 11.05)


def test_launches_without_a_number_are_told_by_their_metrics():
    one, two = ('"k","Duration","us","{}"', '"k","Memory Throughput","%","{}"')
    rows = [one.format(10), two.format(20), one.format(30), two.format(40)]
    result = parse_profile("\n".join(['"Kernel Name","Metric Name","Metric Unit","Metric Value"', *rows, ""])).launches
    assert [round(each.metrics["Duration"].value * 1e6) for each in result] == [10, 30]
    assert [each.metrics["Memory Throughput"].value for each in result] == [20, 40]


def test_launches_stay_apart_and_tables_may_follow_each_other():
    both = raw_page(("one", RAW), ("two", RAW)) + PREAMBLE + details_page(DETAILS)
    assert [launch.kernel for launch in parse_profile(both).launches] == ["one", "two", "copy"]


@pytest.mark.parametrize(
    ("text", "unit", "value", "base"),
    [
        ("1,234.50", "usecond", 1.2345e-3, "s"), ("2.5", "ms", 2.5e-3, "s"), ("3.35", "Tbyte/s", 3.35e12, "byte/s"),
        ("1.98", "cycle/nsecond", 1.98e9, "hz"), ("1.98", "Ghz", 1.98e9, "hz"),
        ("147.46", "Kbyte/block", 147460, "byte/block"), ("1.5e3", "Kbyte", 1.5e6, "byte"),
        ("12", "", 12, ""), ("n/a", "%", None, "%"), ("", "byte", None, "byte"), ("inf", "%", None, "%"),
        ("3 (1; 2)", "inst", 3, "inst"), ("7Mixed", "", None, ""), ("-1", "", -1, ""),
    ],
)  # fmt: skip
def test_numbers_become_base_units(text, unit, value, base):
    seen = quantity(text, unit)
    assert seen.unit == base
    assert seen.value == (pytest.approx(value) if value is not None else None)


def test_a_decimal_comma_is_seen_in_the_whole_file():
    german = {name: (unit, message.translate(str.maketrans(",.", ".,"))) for name, (unit, message) in RAW.items()}
    seen = profile_of(raw_page(("matmul", german)))
    assert (seen.compute, seen.duration_s) == (87.51, pytest.approx(1.76336e-3))


@given(st.integers(0, 4000))
@example(1350)  # before the quote of the last field
def test_a_file_that_is_cut_anywhere_is_told_so_or_read_as_far_as_it_goes(cut):
    whole = PREAMBLE + raw_page(("one", RAW), ("two", RAW), ("three", RAW))
    try:
        table = parse_profile(whole[:cut])
    except ProfileError:
        return
    complete = parse_profile(whole).launches
    assert table.launches == complete[: len(table.launches)]
    if cut < len(whole) - 1 and whole[cut - 1] != "\n" and whole[cut] != "\n":
        assert "the file is cut" in table.notes[0]


@given(st.text())
def test_any_other_text_is_a_typed_error(text):
    with pytest.raises(ProfileError):
        parse_profile(text)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is empty"),
        (b"\x89PNG\x0d\x0a\xff\xfe\xfa", "is no text"),
        (b'"Time (%)","Total Time (ns)","Instances","Name"\n', "a table of Nsight Systems"),
        (b"==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", "no permission"),
        (b"==PROF== Connected\n==WARNING== No kernels were profiled.\n", "no kernel was profiled"),
        (b'"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n', "holds no profiled kernel"),
        (b'"ID","Kernel Name","Something"\n"","","%"\n', "holds no profiled kernel"),
    ],
)
def test_a_file_of_something_else_is_refused_with_what_it_is(cli, tmp_path, data, said):
    (tmp_path / "given.csv").write_bytes(data)
    ran = cli("explain", "profile", str(tmp_path / "given.csv"))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "ncu --import" in ran.err
    assert cli("explain", "profile", str(tmp_path / "absent.csv")).code == 2


def test_a_file_from_a_windows_shell_is_read(tmp_path):
    (tmp_path / "given.csv").write_text(raw_page(("matmul", RAW)), encoding="utf-16")
    assert read_launches(tmp_path / "given.csv").launches[0].kernel == "matmul"


def test_a_file_whose_lines_have_a_launchers_prefix_is_read():
    text = "".join(f"[rank0]: {line}\n" for line in raw_page(("matmul", RAW)).splitlines())
    assert parse_profile(text).launches[0].kernel == "matmul"


PRINTED = """==PROF== Disconnected from process 7
[7] python@127.0.0.1
{mark}  void <unnamed>::copy<4, 1>(const float *, float *){shape}, Context 1, Stream 7{device}
{mark}    Section: GPU Speed Of Light Throughput
{mark}    ----------------------- ----------- ------------
{mark}    Metric Name             Metric Unit Metric Value
{mark}    ----------------------- ----------- ------------
{mark}    Memory Throughput                 %        95.02
{mark}    Duration                         ms         1.90
{mark}    Compute (SM) Throughput           %        19.26
{mark}    ----------------------- ----------- ------------

{mark}    INF   This workload is utilizing greater than 80.0% of the available memory performance of the device.

{mark}    Section: Memory Workload Analysis
{mark}    ----------------- ------------ ------------
{mark}    Memory Throughput Gbyte/second       425.11
{mark}    ----------------- ------------ ------------
"""


@pytest.mark.parametrize("mark", ["", "// "])
@pytest.mark.parametrize(
    ("shape", "device"), [(" (64, 2, 1)x(128, 1, 1)", ", Device 0, CC 9.0"), (", 2025-Apr-22 00:30:24", "")]
)
def test_what_is_printed_for_people_is_read(mark, shape, device):
    text = PRINTED.format(mark=mark, shape=shape, device=device)
    first, second = map(figures_of, parse_profile(text + text.replace("1.90", "2.90")).launches)
    assert first.kernel == "void <unnamed>::copy<4, 1>(const float *, float *)"
    assert (first.duration_s, second.duration_s) == (pytest.approx(1.9e-3), pytest.approx(2.9e-3))
    assert (first.memory, first.compute, first.dram_bytes_per_s) == (95.02, 19.26, pytest.approx(425.11e9))
    assert (first.blocks, first.arch) == ((128, "sm_90") if device else (None, ""))
    with pytest.raises(ProfileError):
        parse_profile(PRINTED.partition("    Memory Throughput ")[0].format(mark=mark, shape=shape, device=device))


PRINTED_SUMMARY = """  copy<4>(const float *) (64, 2, 1)x(128, 1, 1), Device 0, CC 9.0, Invocations 14
    Section: GPU Speed Of Light Throughput
    ----------------------- ----------- ------- ------- -------
    Metric Name             Metric Unit Minimum Maximum Average
    ----------------------- ----------- ------- ------- -------
    Memory Throughput                 %   90.00   99.00   95.02
    Duration                         ms    1.00    9.00    1.90
    ----------------------- ----------- ------- ------- -------
"""


def test_a_summary_that_is_printed_for_people_counts_by_its_average():
    (launch,) = parse_profile(PRINTED_SUMMARY).launches
    figures = figures_of(launch)
    assert (figures.memory, figures.duration_s, figures.blocks) == (95.02, pytest.approx(1.9e-3), 128)
    assert (launch.kernel, launch.count, figures.arch) == ("copy<4>(const float *)", 14, "sm_90")


def test_the_words_of_a_rule_below_a_table_are_no_rows():
    text = PRINTED.format(mark="", shape=" (64, 2, 1)x(128, 1, 1)", device="").replace("\n\n", "\n")
    table = parse_profile(text)
    (seen,) = map(figures_of, table.launches)
    assert (seen.memory, seen.compute, seen.dram_bytes_per_s) == (95.02, 19.26, pytest.approx(425.11e9))
    assert table.notes == ()


def test_a_launch_without_its_context_is_one_of_its_own():
    text = PRINTED.format(mark="", shape=" (64, 2, 1)x(128, 1, 1)", device="")
    other = text.replace(", Context 1, Stream 7", "").replace("copy", "other").replace("95.02", "5.02")
    launches = parse_profile(text + other).launches
    assert [figures_of(launch).memory for launch in launches] == [95.02, 5.02]
    assert "other" in launches[1].kernel


@pytest.mark.parametrize("change", [("   ", "  ", 1), ("   ", "    ", 1), ("  ", "\t", -1)])
def test_a_row_that_does_not_stand_below_its_columns_is_counted(change):
    rows = ("Memory Throughput    ", "Duration", "Compute (SM)")
    text = PRINTED.format(mark="", shape=" (64, 2, 1)x(128, 1, 1)", device="")
    lines = text.splitlines(keepends=True)
    shifted = "".join(line.replace(*change) if line.strip().startswith(rows) else line for line in lines)
    table = parse_profile(shifted)
    assert [launch.metrics.keys() for launch in table.launches] == [{"Memory Throughput", "Memory Throughput [byte/s]"}]
    assert table.notes[0].startswith("3 lines between the rows are no rows of the table")


def kernel(**figures):
    return KernelProfile(kernel="kernel", **{"duration_s": 1e-3, "compute": 20.0, "memory": 20.0, **figures})


@pytest.mark.parametrize(
    ("profile", "verdict", "said"),
    [
        (kernel(compute=85.0), COMPUTE, "near the peak"),
        (kernel(compute=65.0, memory=50.0), COMPUTE, "over 60%"),
        (kernel(compute=85.0, memory=82.0), COMPUTE, "both limit it"),
        (kernel(memory=91.0, dram=91.0, l2=40.0), MEMORY, "the part that limits is device memory, at 91%"),
        (kernel(memory=75.0, dram=20.0, l1=75.0), MEMORY, "L1 and shared memory"),
        (kernel(occupancy=1.5, waves=0.1), LATENCY, "its blocks fill 10% of the device"),
        (kernel(stall=("long scoreboard", 90.0)), LATENCY, "long scoreboard"),
        (kernel(duration_s=8e-6, compute=45.0), LATENCY, "both below 60%"),
        (kernel(duration_s=2e-6, compute=1.0, memory=2.0), LAUNCH, "over in 2.0 us"),
        (kernel(compute=None), UNDECIDED, "no throughput of compute"),
        (kernel(memory=None, dram=80.0), MEMORY, "the part that limits is device memory, at 80%"),
        (kernel(memory=None, compute=85.0, dram=80.0), UNDECIDED, "no throughput of memory"),
        (kernel(memory=None, dram=59.0), UNDECIDED, "no throughput of memory"),
    ],
)
def test_a_verdict_has_its_numbers(profile, verdict, said):
    result = judged(profile)
    assert result.verdict == verdict
    assert said in "; ".join(result.reasons)
    assert result.steps


@pytest.mark.parametrize(
    ("profile", "step"),
    [
        (kernel(compute=85.0, tensor=0.0), "let matrix units do the products"),
        (kernel(compute=70.0, tensor=70.0), "tune tiles"),
        (kernel(memory=91.0, dram=91.0), "move fewer bytes"),
        (kernel(memory=75.0, l2=75.0), "larger tiles"),
        (kernel(waves=0.1), "more blocks"),
        (kernel(by_registers=2.0, by_shared=4.0, by_warps=16.0, by_blocks=32.0), "smaller tiles or more warps"),
        (kernel(by_registers=4.0, by_shared=1.0, by_warps=16.0, by_blocks=32.0), "fewer stages"),
        (kernel(stall=("barrier", 9.0)), "fewer warps"),
        (kernel(duration_s=2e-6), "CUDA graph"),
        (kernel(local=1e6, registers=255.0, occupancy=6.0), "triton-ops explain spills"),
        (kernel(conflicts=45.0), "different banks"),
    ],
)
def test_a_profile_leads_to_the_next_experiment(profile, step):
    assert any(step in one.what for one in judged(profile).steps)


def test_low_occupancy_alone_is_no_sign_of_spilling():
    assert not any("spill" in one.what for one in judged(kernel(occupancy=6.0, registers=255.0)).steps)


def test_the_whole_profile_has_shares_a_device_and_advice(cli, tmp_path):
    slow = {**RAW, "gpu__time_duration.sum": ("usecond", "236.64")}
    (tmp_path / "given.csv").write_text(raw_page(("matmul_kernel", RAW), ("vector_add", slow), ("matmul_kernel", RAW)))
    file = [str(tmp_path / "given.csv")]
    result = json.loads(cli("explain", "profile", *file, "--json").out)
    first, second = result["kernels"]
    assert (first["kernel"], first["launches"], first["verdict"]) == ("matmul_kernel", 2, COMPUTE)
    assert first["share"] == pytest.approx(1 - second["share"])
    assert first["roofline"]["of_memory"] == pytest.approx(536.87e6 / 1.76336e-3 / 4.8e12, rel=1e-3)
    assert result["advice"]["way"] == "library"
    assert any("100% of the time is compute-bound" in reason for reason in result["advice"]["reasons"])
    shown = cli("explain", "profile", *file, "--kernel", "^vector", columns=160)
    assert "vector_add" in shown.out
    assert "matmul_kernel" not in shown.out
    assert "GB/s of device memory (47%) of NVIDIA H200" in shown.out
    work = ["--kernel", "matmul", "--flops", "1.1e12", "--dtype", "bf16"]
    (place,) = (one["roofline"] for one in json.loads(cli("explain", "profile", *file, *work, "--json").out)["kernels"])
    assert place["limit"] == "bfloat16"
    assert place["of_units"] == place["of_limit"] == pytest.approx(1.1e12 / 1.76336e-3 / 989.4e12, rel=1e-3)


def test_a_kernel_that_uses_matrix_units_is_a_product_whatever_its_name(tmp_path):
    own = {**RAW, "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": ("%", "85.0")}
    for figures, way in ((own, "library"), (RAW, "skip")):
        (tmp_path / "given.csv").write_text(raw_page(("fused_experts", figures)))
        assert read_profile(tmp_path / "given.csv").advice.way == way
    reason = read_profile(tmp_path / "given.csv").advice.reasons[0]
    assert reason == "fused_experts takes 100%, and nothing is known of what would make it faster"


def test_short_launches_ask_for_fewer_of_them(tmp_path):
    tiny = {**RAW, "gpu__time_duration.sum": ("usecond", "1.50")}
    for name in (f"sm__throughput.{ELAPSED}", f"gpu__compute_memory_throughput.{ELAPSED}"):
        tiny[name] = ("%", "1.20")
    (tmp_path / "given.csv").write_text(raw_page(*[("add", tiny)] * 20))
    report = read_profile(tmp_path / "given.csv")
    assert report.kernels[0].judgement.verdict == LAUNCH
    assert report.advice.way == "torch.compile"
    assert "CUDA graphs" in report.advice.reasons[0]
    assert read_profile(tmp_path / "given.csv", tried=["torch.compile"]).advice.way == "skip"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_128x256", "product"), ("sm90_xmma_gemm_bf16", "product"), ("_flash_fwd", "product"),
        ("mm", "product"), ("triton_tem_fused_addmm_0", "product"), ("bmm_kernel", "product"), ("_attn_fwd", "product"),
        ("DeviceRadixSortKernel", "scattered"), ("triton_poi_fused_add", "fusable"), ("comm_summary", "unknown"),
        ("my_scan_free_solver", "scattered"), ("solver", "unknown"), ("void at::native::reduce_kernel<512>", "fusable"),
    ],
)  # fmt: skip
def test_kernels_are_sorted_by_their_names(name, kind):
    assert kernel_kind(name) == kind


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--kernel", "["], 2, "is no regular expression"),
        (["--kernel", "absent"], 2, "has no kernel with 'absent' in its name"),
        (["--gpu", "Abacus"], 3, "no device 'Abacus' is in the table"),
    ],
)
def test_what_does_not_fit_a_profile_is_refused(cli, tmp_path, words, code, said):
    (tmp_path / "given.csv").write_text(raw_page(("matmul", RAW)))
    ran = cli("explain", "profile", str(tmp_path / "given.csv"), *words, "--json")
    assert (ran.code, json.loads(ran.out)["kind"]) == (code, "triton-ops error")
    assert said in json.loads(ran.out)["message"]
    assert said in ran.err


def test_the_command_leaves_clocks_alone_and_follows_child_processes(cli):
    request = NcuRequest(program=["python", "my script.py"], kernel="matmul", skip=3, launches=2, out="p.csv")
    words = request.command()
    text = " ".join(words)
    for part in (
        "--clock-control none", "--target-processes all", "--set roofline", "--section SpeedOfLight",
        "--kernel-name regex:matmul", "--launch-skip 3", "--launch-count 2", "--csv --page raw --log-file p.csv",
    ):  # fmt: skip
        assert part in text
    assert words[-2:] == ["python", "my script.py"]
    ran = cli("explain", "profile", "command", "--kernel", "matmul", "--", "python", "my script.py")
    assert shlex.split(ran.out)[-2:] == ["python", "my script.py"]
    assert json.loads(cli("explain", "profile", "command", "--json", "--", "python", "x.py").out)["command"][0] == "ncu"


@pytest.mark.parametrize(
    "wrong", [{"program": []}, {"metrics": "all"}, {"skip": -1}, {"launches": 0}], ids=lambda wrong: next(iter(wrong))
)
def test_a_request_that_makes_no_sense_is_refused(wrong):
    good = NcuRequest(program=["python"])
    with pytest.raises(SettingsError):
        replace(good, **wrong)


def test_where_there_is_no_profiler_that_is_said(cli, monkeypatch):
    monkeypatch.setattr(command, "_PLACES", ())
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingDependencyError, match="Nsight Compute is not here"):
        command.find_ncu()
    ran = cli("explain", "profile", "run", "--", "python", "x.py")
    assert ran.code == 3
    assert "triton-ops explain profile command" in ran.err


STAND_IN = """#!/bin/sh
out=profile.csv
while [ $# -gt 0 ]; do [ "$1" = --log-file ] && out=$2; shift; done
cat "$STAND_IN_SAYS" > "$out"
echo printed by the program
exit ${STAND_IN_CODE:-0}
"""


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (raw_page(("matmul", RAW)), 0, ""),
        ("==ERROR== ERR_NVGPUCTRPERM\n", 1, "no permission"),
        ("==WARNING== No kernels were profiled.\n", 0, "no kernel was profiled"),
        ("==ERROR== The application returned an error code (1).\n", 1, "read: ==ERROR== The application"),
    ],
)
def test_a_program_is_profiled_and_what_the_profiler_says_is_passed_on(cli, tmp_path, monkeypatch, text, code, said):
    (tmp_path / "says.txt").write_text(text)
    (tmp_path / "ncu").write_text(STAND_IN)
    (tmp_path / "ncu").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("STAND_IN_SAYS", str(tmp_path / "says.txt"))
    monkeypatch.setenv("STAND_IN_CODE", str(code))
    ran = cli("explain", "profile", "run", "--json", "--", "python", "x.py")
    if said:
        assert (ran.code, json.loads(ran.out)["kind"]) == (2, "triton-ops error")
        assert said in ran.err
    else:
        assert json.loads(ran.out)["kernels"][0]["verdict"] == COMPUTE
        assert "the profile is in profile.csv" in ran.err


DATA = Path(__file__).parents[2] / "data"
WORK = {"profiled_product": 2.0 * 8192**3, "profiled_spill": 2.0 * 8192**3}
LIVE = {
    "profiled_product": COMPUTE, "profiled_spill": MEMORY, "profiled_copy": MEMORY, "profiled_chase": LATENCY,
    "profiled_tiny": LAUNCH,
}  # fmt: skip


@pytest.mark.parametrize("page", ["raw", "details", "summary"])
def test_a_live_report_of_kernels_of_known_kind_is_judged_right(tmp_path, page):
    """An H200's, of Nsight Compute 2025.3.1, by benchmarks/profiles at commit 83e97e6e; `raw` has fewer columns."""
    given = tmp_path / "given.csv"
    given.write_bytes(gzip.decompress((DATA / f"ncu_2025_3_{page}.csv.gz").read_bytes()))
    report = read_profile(given)
    result = {one.judgement.profile.kernel: one.judgement for one in report.kernels}
    assert {name: one.verdict for name, one in result.items()} == LIVE
    assert report.notes == ()
    assert "triton-ops explain spills" in result["profiled_spill"].steps[0].what
    assert not any("spill" in step.what for step in result["profiled_product"].steps)
    assert result["profiled_spill"].profile.registers == 255
    assert "device memory" in "; ".join(result["profiled_copy"].reasons)


def test_occupancy_and_waves_are_those_of_the_profiler(tmp_path):
    given = tmp_path / "given.csv"
    given.write_bytes(gzip.decompress((DATA / "ncu_2025_3_raw.csv.gz").read_bytes()))
    for launch in read_launches(given).launches:
        seen = figures_of(launch)
        shared = launch.metrics["launch__shared_mem_per_block_dynamic"].value
        at_once = LIMITS["sm_90"].residents(int(seen.registers), int(shared), int(seen.threads) // 32)
        assert (at_once.by["registers"], at_once.by["warps"], at_once.by["blocks"]) == (
            seen.by_registers, seen.by_warps, seen.by_blocks,
        )  # fmt: skip
        if shared:  # without any, the profiler counts by the share of L1 that was set aside
            assert at_once.by["shared memory"] == seen.by_shared
        assert 100 * at_once.occupancy == seen.most_occupancy
        assert Waves(int(seen.blocks), at_once.blocks * 132).waves == pytest.approx(seen.waves, abs=0.006)


def test_the_roofline_places_live_kernels_as_the_profiler_does(tmp_path):
    given = tmp_path / "given.csv"
    given.write_bytes(gzip.decompress((DATA / "ncu_2025_3_raw.csv.gz").read_bytes()))
    result = {one.judgement.profile.kernel: one.judgement.profile for one in read_profile(given).kernels}
    spec, _, copy = result["profiled_copy"].below_roof()
    assert spec.name == "NVIDIA H200"
    assert copy.of_limit == pytest.approx(result["profiled_copy"].dram / 100, rel=0.1)
    product = result["profiled_product"]
    _, roof, placed = product.below_roof()
    assert (product.flops, product.dtype, placed.limit) == (WORK["profiled_product"], "bfloat16", "bfloat16")
    assert product.tensor == pytest.approx(92, abs=1)
    assert product.flops / product.duration_s / product.products_peak == pytest.approx(product.tensor / 100, rel=0.1)
    assert placed.tflops == pytest.approx(780, rel=0.01)
    assert roof.intensity > roof.ridge


SUMMARY = [
    "Process ID", "Kernel Name", "Block Size", "Grid Size", "Device", "CC", "Invocations", "Section Name",
    "Metric Name", "Metric Unit", "Minimum", "Maximum", "Average",
]  # fmt: skip


def summary(*kernels):
    """A summary of kernels: name, threads, blocks, invocations, and the metrics with unit and value."""
    rows = [
        [
            "1",
            name,
            f"({threads}, 1, 1)",
            f"({blocks}, 1, 1)",
            "0",
            "9.0",
            str(count),
            SPEED,
            metric,
            unit,
            *[message] * 3,
        ]
        for name, threads, blocks, count, metrics in kernels
        for metric, unit, message in metrics
    ]
    return quoted(SUMMARY, *rows)


def speed(compute, memory, us):
    return [("Compute (SM) Throughput", "%", compute), ("Memory Throughput", "%", memory), ("Duration", "us", us)]


def test_shapes_of_one_kernel_stay_apart_and_count_by_their_invocations(cli, tmp_path):
    given = tmp_path / "given.csv"
    given.write_text(
        summary(
            ("axpy", 256, 4096, 14, speed("11.00", "90.00", "11.00")),
            ("axpy", 1, 1048576, 14, speed("36.00", "5.00", "1,000.00")),
            ("often", 256, 64, 99, speed("71.00", "9.00", "100.00")),
        )
    )
    sizes = [(one.facts["Block Size"], one.metrics["Duration"].value) for one in read_launches(given).launches]
    assert sizes[:2] == [("(256, 1, 1)", pytest.approx(11e-6)), ("(1, 1, 1)", pytest.approx(1e-3))]
    whole = 14 * 11 + 14 * 1000 + 99 * 100
    assert [(one.launches, pytest.approx(one.share)) for one in read_profile(given).kernels] == [
        (14, 14_000 / whole), (99, 9_900 / whole), (14, 154 / whole),
    ]  # fmt: skip
    shown = cli("explain", "profile", str(given), columns=160).out
    assert "axpy 1048576x1" in shown
    assert "axpy 4096x256" in shown
    assert "runs at 0%" not in shown
    assert "which part of the memory limits is not measured" in shown


@pytest.mark.parametrize(
    "said",
    ["1.763,36", "1 763,36", "1\u00a0763,36", "1\u202f763,36", "1'763.36", "1\u2019763.36", "1,763.36", "1763.36"],
)
def test_numbers_of_any_locale_are_read(said):
    doubtful = {"gpu__time_duration.sum": ("us", said), "launch__grid_size": ("", "131.072")}
    comma = ",36" in said
    result = profile_of(raw_page(("matmul", doubtful)))
    assert result.duration_s == pytest.approx(1.76336e-3)
    assert result.blocks == (131072 if comma else pytest.approx(131.072))


def test_digits_in_groups_of_two_are_one_number():
    assert quantity("12,34,567.5", "").value == 1234567.5
    assert quantity("1.234.567", "").value == 1234567
    assert quantity("570.86.10", "").value is None


def test_a_mark_that_nothing_explains_is_said():
    rows = [("one", SPEED, "Duration", "ns", "12,345"), ("one", SPEED, "Registers Per Thread", "", "32")]
    table = parse_profile(details_page(rows))
    assert figures_of(table.launches[0]).duration_s == pytest.approx(12.345e-6)
    assert "nothing shows whether 1,234 means a thousand" in table.notes[0]


def test_units_hold_from_whichever_row_they_stand_in():
    header, units, one, two = raw_page(("one", RAW), ("two", RAW)).splitlines()
    for rows in ([one, units, two], [one, two, units]):
        result = parse_profile("\n".join([header, *rows]) + "\n").launches
        assert [figures_of(launch).duration_s for launch in result] == [pytest.approx(1.76336e-3)] * 2


def test_a_value_without_a_known_unit_is_named_and_is_no_figure(tmp_path):
    given = tmp_path / "given.csv"
    given.write_text(raw_page(("matmul", {**RAW, "gpu__time_duration.sum": ("furlong", "12")})))
    report = read_profile(given)
    assert report.kernels[0].judgement.profile.duration_s is None
    assert report.notes == (
        "1 values are not understood, and count as not measured: gpu__time_duration.sum 12 furlong",
    )
    given.write_text(raw_page(("matmul", {"gpu__time_duration.sum": ("", "fast")})))
    with pytest.raises(ProfileError, match="has no figure: 1 values are not understood"):
        read_profile(given)


def test_the_names_of_2020_are_read():
    rows = [
        ("old", "GPU Speed Of Light", name, "%", message)
        for name, message in (
            ("SM [%]", "12.5"),
            ("Memory [%]", "80"),
            ("SOL FB", "80"),
            ("SOL L2", "30"),
            ("SOL TEX", "9"),
        )
    ]
    result = profile_of(details_page(rows, old=True))
    assert (result.compute, result.memory, result.dram, result.l2, result.l1) == (12.5, 80, 80, 30, 9)


def test_a_table_that_a_spreadsheet_has_saved_is_read():
    assert profile_of(raw_page(("matmul", RAW)).replace('","', '";"')).compute == 87.51


ROCPROF = {
    "version 1": (
        '"Index","KernelName","gpu-id","grd","wgr","lds","scr","arch_vgpr","accum_vgpr","sgpr","BeginNs","EndNs",'
        '"DurationNs"\n0,"axpy(float*, int) [clone .kd]",1,65536,256,0,0,20,4,16,100,2100,2000\n'
    ),
    "version 2": (
        "Dispatch_ID,GPU_ID,GRD,WGR,LDS,SCR,Arch_VGPR,ACCUM_VGPR,SGPR,Kernel_Name,Start_Timestamp,End_Timestamp\n"
        '1,4,65536,256,0,0,20,4,16,"axpy(float*, int) (.kd)",100,2100\n'
    ),
    "version 3": (
        '"Kind","Agent_Id","Dispatch_Id","Kernel_Name","Start_Timestamp","End_Timestamp","Scratch_Size","VGPR_Count",'
        '"Accum_VGPR_Count","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y",'
        '"Grid_Size_Z"\n"KERNEL_DISPATCH","Agent 2",1,"axpy(float*, int)",100,2100,0,20,4,256,1,1,65536,1,1\n'
    ),
}


@pytest.mark.parametrize("version", ROCPROF)
def test_dispatches_of_rocprof_are_read(tmp_path, version):
    given = tmp_path / "given.csv"
    given.write_text("RPL: on '221130_200946'\n" + ROCPROF[version])
    (one,) = read_profile(given).kernels
    result = one.judgement.profile
    assert result.kernel == "axpy(float*, int)"
    assert (result.duration_s, result.registers) == (pytest.approx(2e-6), 24)
    assert (result.blocks, result.threads, result.local) == (256, 256, 0)
    assert (one.judgement.verdict, result.source) == (UNDECIDED, "rocprof")
    assert not any("SpeedOfLight" in reason for reason in one.judgement.reasons)


def test_counters_and_statistics_of_rocprof_are_read(tmp_path):
    given = tmp_path / "given.csv"
    head = '"Dispatch_Id","Process_Id","Grid_Size","Kernel_Name","Workgroup_Size","Counter_Name","Counter_Value",'
    rows = [("FETCH_SIZE", 2048), ("WRITE_SIZE", 1024), ("OccupancyPercent", "6.25e+01")]
    lines = [f'{at},7,1024,"copy",256,"{name}",{value},1000,3000' for at in (1, 2) for name, value in rows]
    given.write_text("\n".join([head + '"Start_Timestamp","End_Timestamp"', *lines]) + "\n")
    (one,) = read_profile(given).kernels
    result = one.judgement.profile
    assert (one.launches, result.duration_s, result.occupancy) == (2, pytest.approx(2e-6), 62.5)
    assert result.dram_bytes == 3 * 1024 * 1024
    given.write_text(
        "\n".join([head + '"Start_Timestamp","End_Timestamp"', lines[0].replace(",1000,", ",soon,")]) + "\n"
    )
    report = read_profile(given)
    assert report.notes == ("1 values are not understood, and count as not measured: Duration 3000 - soon s",)
    result = report.kernels[0].judgement.profile
    assert (result.duration_s, result.dram_bytes) == (None, None)  # what was read is half of what was moved
    given.write_text('"Dispatch_Id","Kernel_Name","Counter_Name","Grid_Size"\n1,"copy","SQ_WAVES",5\n')
    assert read_profile(given).kernels[0].judgement.verdict == UNDECIDED
    statistics = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"gemm.kd",84,840000,10000,95.0\n'
    others = [
        "hipMemcpy",
        "hipMemcpy2DAsync",
        "hsa_queue_create",
        "HIP_API",
        "MEMORY_COPY_HOST_TO_DEVICE",
        "ncclAllReduce",
    ]
    given.write_text(
        statistics + '"cumsum",1,4000,4000,4.0\n' + "".join(f'"{name}",2,4000,2000,5.0\n' for name in others)
    )
    report = read_profile(given)
    assert [(one.judgement.profile.kernel, one.launches) for one in report.kernels] == [("gemm", 84), ("cumsum", 1)]
    assert "6 lines between the rows are no rows of the table" in report.notes[0]


def test_prose_with_as_many_commas_as_a_table_is_no_kernel(tmp_path):
    given, prose = (
        tmp_path / "given.md",
        "│  3 │ halo(int, int, int,│\nSo, as one sees, the kernel, which copies, waits\n",
    )
    given.write_text(f'"Name","Calls","TotalDurationNs","AverageNs"\n"copy",84,840000,10000\n{prose}')
    report = read_profile(given)
    assert [(one.judgement.profile.kernel, one.launches) for one in report.kernels] == [("copy", 84)]
    assert "2 lines between the rows are no rows" in report.notes[0]
    launch = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n"1","copy","Duration","us","7"\n'
    given.write_text(f"{launch}{prose}")
    assert [one.judgement.profile.kernel for one in read_profile(given).kernels] == ["copy"]


def test_the_kernels_of_a_tree_of_proton_are_read(cli, tmp_path):
    def node(name, metrics, *children):
        return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": list(children)}

    took = {"count": 10, "device_id": "0", "device_type": "CUDA", "time (ns)": 2_000_000}
    tree = node(
        "ROOT", {"count": 0, "time (ns)": 0},
        node("layer", {"flops": 1e9}, node("gemm", {**took, "flops16": 1e12, "bytes": 1e9})),
        node("tick", {"count": 1, "cycles": 9}),
    )  # fmt: skip
    given = tmp_path / "given.hatchet"
    given.write_text(json.dumps([tree, {"CUDA": {"0": {"arch": "90", "num_sms": 132}}}]))
    report = read_profile(given)
    (one,) = report.kernels
    result = one.judgement.profile
    assert (result.kernel, one.launches, result.arch, result.source) == ("gemm", 10, "sm_90", "Proton")
    assert (result.duration_s, result.products) == (pytest.approx(2e-4), (("float16", 1e11),))
    assert report.notes == (
        "the metrics of 1 scopes are of no single kernel, and are left out",
        "1 entries have no time in nanoseconds, and are left out",
    )
    ran = cli("explain", "profile", str(given), "--gpu", "H100", columns=200)
    assert "500 TFLOP/s (51% of the peak)" in ran.out
    for time_ns in (math.nan, math.inf, -5):
        lost = node("ROOT", {}, node("gemm", took), node("lost", {**took, "time (ns)": time_ns}))
        given.write_text(json.dumps([lost, {}]))
        assert [(one.judgement.profile.kernel, one.share) for one in read_profile(given).kernels] == [
            ("gemm", 1.0), ("lost", None),
        ]  # fmt: skip
    too_large = node("gemm", {**took, "time (ns)": 10**400})
    counts = [[node("gemm", {**took, "count": count}), {}] for count in (math.inf, 10**400)]
    for content in ({"traceEvents": []}, [too_large, {}], *counts):
        given.write_text(json.dumps(content))
        with pytest.raises(ProfileError, match="is no profile of Proton"):
            read_profile(given)


def test_a_grid_past_the_largest_number_is_not_known():
    text = (
        f'"ID","Kernel Name","Grid Size","gpu__time_duration.sum"\n"","","","us"\n"0","k","({"9" * 400}, 1, 1)","1.5"\n'
    )
    result = figures_of(parse_profile(text).launches[0])
    assert (result.blocks, result.duration_s) == (None, pytest.approx(1.5e-6))


def test_a_text_of_blanks_is_read_in_one_pass():
    for blank in ("\n", " ", "\t \n"):
        with pytest.raises(ProfileError, match="it is empty"):
            parse_profile(blank * (1_000_000 // len(blank)))
