"""What is read of the words of NVIDIA's assembler."""

import html
import json

import pytest

from triton_ops.cli.app import main
from triton_ops.exceptions import ProfileError
from triton_ops_lab.ptxas_log import parse_ptxas, read_ptxas

TRITONS = """
a line of the program
ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient \
register resources for the wgmma pipeline in the function 'mm'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'mm' for 'sm_90a'
ptxas info    : Function properties for mm
    672 bytes stack frame, 1768 bytes spill stores, 1256 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 672 bytes cumulative stack size
ptxas info    : Compile time = 830.497 ms
ptxas info    : Compiling entry function 'add' for 'sm_90a'
ptxas info    : Function properties for helper
    512 bytes stack frame, 400 bytes spill stores, 400 bytes spill loads
ptxas info    : Function properties for add
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, used 0 barriers, 1024 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'lookup' for 'sm_80'
ptxas info    : Function properties for lookup
    256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, 380 bytes cmem[0]
ptxas error   : Entry function 'wide' uses too much shared data (0x19000 bytes, 0xc000 max)
""".replace("\\\n", "")


def test_each_kernel_has_its_figures_and_a_verdict():
    mm, add, helper, lookup, wide = parse_ptxas(TRITONS).kernels
    assert (mm.kernel, mm.arch, mm.registers, mm.stack_bytes) == ("mm", "sm_90a", 255, 672)
    assert (mm.store_bytes, mm.load_bytes, mm.serialised, mm.verdict) == (1768, 1256, True, "spills")
    assert "all that there are" in mm.next
    assert (add.registers, add.stack_bytes, add.shared_bytes, add.verdict, add.next) == (16, 0, 1024, "fits", "")
    assert (lookup.arch, lookup.verdict) == ("sm_80", "frame")
    assert (helper.kernel, helper.registers, helper.store_bytes, helper.verdict) == ("helper", None, 400, "spills")
    assert (wide.kernel, wide.registers, wide.verdict) == ("wide", None, "refused")
    assert "too much shared data" in wide.refused


def test_a_kernel_that_is_assembled_for_several_configs_is_told_for_each():
    first = TRITONS.partition("ptxas info    : Compiling entry function 'add'")[0]
    plain = first.replace("Used 255", "Used 128").replace("672", "0").partition("pipeline in the function 'mm'")[2]
    result = parse_ptxas(first + plain + plain).kernels
    assert [(one.registers, one.verdict, one.serialised) for one in result] == [
        (255, "spills", True), (128, "fits", False),
    ]  # fmt: skip


ABORTED = """
================================================================
Internal Triton PTX codegen error
`ptxas` stderr:
ptxas fatal   : (C7602) Insufficient registers (128) to compile instruction at line 979 in function mm. Try to \
compile with register target of 154 or higher.
ptxas fatal   : Ptx assembly aborted due to errors

Repro command: /usr/bin/ptxas -lineinfo -v --gpu-name=sm_90a /tmp/a.ptx -o /tmp/a.ptx.o
""".replace("\\\n", "")


def test_a_refusal_is_of_its_own_config_and_keeps_the_reason_that_was_said_first():
    *others, refused = parse_ptxas(
        TRITONS.partition("ptxas info    : Compiling entry function 'add'")[0] + ABORTED
    ).kernels
    assert [one.verdict for one in others] == ["spills"]
    assert (refused.kernel, refused.arch, refused.registers, refused.verdict) == ("mm", "sm_90a", None, "refused")
    assert refused.refused.startswith("(C7602) Insufficient registers")
    assert "fewer warps" in refused.next
    (alone,) = parse_ptxas(ABORTED).kernels
    assert (alone.kernel, alone.arch) == ("mm", "sm_90a")
    assert parse_ptxas("ptxas fatal   : Ptx assembly aborted due to errors").kernels == ()


def test_the_command_prints_a_table_or_json_and_refuses_other_files(tmp_path, capsys):
    path = tmp_path / "ptxas.log"
    path.write_text(TRITONS)
    assert main(["explain", "profile", "ptxas", str(path)]) == 0
    assert "spills" in capsys.readouterr().out
    assert main(["explain", "profile", "ptxas", str(path), "--json"]) == 0
    assert [one["verdict"] for one in json.loads(capsys.readouterr().out)["items"]] == [
        "spills",
        "fits",
        "spills",
        "frame",
        "refused",
    ]
    for content, reason in ((b"no log", "says nothing of a kernel"), (b"\xff\x00 no log", "it is no text")):
        path.write_bytes(content)
        with pytest.raises(ProfileError, match=reason):
            read_ptxas(path)
    assert main(["explain", "profile", "ptxas", str(tmp_path / "none")]) == 2


FILE = "ptxas /tmp/tmpab12cd34.ptx"


@pytest.mark.parametrize("before", ["", "1>", "#12 45.6 ", "2026-01-02T03:04:05.6Z ", "W0000 compilation.cc:346] "])
def test_an_error_of_a_line_is_the_reason_and_further_ones_are_counted(before):
    bf16 = "error   : Feature '.bf16' requires .target sm_80 or higher"
    lines = [
        f"{FILE}, line 166; {bf16}",
        f"{FILE}, line 167; {bf16}",
        "ptxas fatal   : Ptx assembly aborted due to errors",
    ]
    log = parse_ptxas("\n".join(before + line for line in lines))
    (one,) = log.kernels
    assert (one.kernel, one.verdict) == ("/tmp/tmpab12cd34.ptx", "refused")
    assert one.refused == "line 166: Feature '.bf16' requires .target sm_80 or higher"
    assert one.next == "another dtype or instruction: this architecture does not have it"
    assert log.notes == ("1 further errors follow the first of a kernel",)


def test_the_driver_and_an_error_without_a_kernel_are_told():
    (one,) = parse_ptxas(
        "ptxas application ptx input, line 9; fatal   : Unsupported .version 8.7; current is '8.5'"
    ).kernels
    assert (one.kernel, one.refused) == ("application ptx input", "line 9: Unsupported .version 8.7; current is '8.5'")
    of_jax = "INTERNAL: ptxas exited with non-zero error code 65280, output: "
    (one,) = parse_ptxas(f"{of_jax}ptxas /tmp/x-1, line 10; fatal   : Unsupported .version 7.8").kernels
    assert (one.kernel, one.refused) == ("/tmp/x-1", "line 10: Unsupported .version 7.8")
    register = "ptxas fatal   : (C7600) Register allocation failed with register count of '64'. Compile with more\n"
    add = TRITONS[TRITONS.index("ptxas info    : Compiling entry function 'add'") :].partition("ptxas error")[0]
    assert [one.kernel for one in parse_ptxas(add + register).kernels] == ["add", "helper", "lookup", ""]
    assert "fewer warps" in parse_ptxas(register).kernels[0].next


def test_what_is_spilled_to_shared_memory_is_no_local_memory():
    text = TRITONS.replace("1768 bytes spill stores, 1256 bytes", "-56 bytes spill stores, -60 bytes")
    mm = parse_ptxas(text).kernels[0]
    assert (mm.stack_bytes, mm.store_bytes, mm.load_bytes, mm.verdict) == (672, -56, -60, "frame")


def test_errors_of_two_entries_are_of_two_kernels():
    text = "ptxas error   : Value of threads per SM for entry _Z{}v is out of range. .minnctapersm will be ignored"
    log = parse_ptxas(f"{text.format('1a')}\n{text.format('1b')}\nptxas fatal   : Ptx assembly aborted due to errors\n")
    assert ([one.kernel for one in log.kernels], log.notes) == (["_Z1av", "_Z1bv"], ())


def test_of_compilations_that_are_mixed_no_registers_are_made_up():
    def parts(name, registers):
        properties = (
            f"Function properties for {name}\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
        )
        return [f"Compiling entry function '{name}' for 'sm_60'", properties, f"Used {registers} registers"]

    mixed = [line for pair in zip(parts("one", 80), parts("two", 51), strict=True) for line in pair]
    log = parse_ptxas("".join(f"ptxas info    : {line}\n" for line in mixed))
    assert [(one.kernel, one.registers, one.stack_bytes) for one in log.kernels] == [("one", None, 0), ("two", None, 0)]
    assert log.notes == ("2 lines of ptxas are not understood: Used 80 registers; Used 51 registers",)


def test_registers_of_a_kernel_without_a_frame_are_read():
    text = "ptxas info    : Compiling entry function 'one' for 'sm_60'\nptxas info    : Function properties for other\n"
    log = parse_ptxas(f"{text}ptxas info    : Used 80 registers\n")
    assert ([one.registers for one in log.kernels], log.notes) == ([80], ())


def test_the_cell_of_a_notebook_is_read():
    (one,) = parse_ptxas(
        json.dumps({"text": TRITONS.partition("ptxas info    : Compile time")[0].splitlines(keepends=True)}, indent=1)
    ).kernels
    assert (one.kernel, one.registers, one.stack_bytes) == ("mm", 255, 672)


def test_a_warning_of_xla_tells_the_spills():
    message = "I external/xla/compilation.cc:346] ptxas warning : Registers are spilled to local memory in function "
    log = parse_ptxas(f"{message}'gemm_fusion_dot_1', 616 bytes spill stores, 612 bytes spill loads\n")
    (one,) = log.kernels
    assert (one.kernel, one.registers, one.store_bytes, one.load_bytes) == ("gemm_fusion_dot_1", None, 616, 612)
    assert (one.verdict, log.notes) == ("spills", ())
    assert one.next.startswith("triton-ops explain spills")
    both = parse_ptxas(f"{message}'mm', 1768 bytes spill stores, 1256 bytes spill loads\n" + TRITONS).kernels
    assert [one.registers for one in both if one.kernel == "mm"] == [255]


def test_the_first_versions_are_read_with_both_parts_of_a_sum():
    def kernel(used, arch="sm_10"):
        text = f"ptxas info    : Compiling entry function 'k' for '{arch}'\nptxas info    : Used 14 registers, {used}\n"
        return parse_ptxas(text).kernels[0]

    local = kernel("2080+16 bytes smem, 48+80 bytes lmem, 12 bytes cmem[1]")
    assert (local.shared_bytes, local.stack_bytes, local.store_bytes, local.verdict) == (2096, 128, None, "frame")
    assert "does not tell which" in local.next
    assert kernel("2080+16 bytes smem").verdict == "fits"
    assert kernel("4 bytes cmem[0]", "sm_80").verdict == "unknown"


PROCESSES = ["{}>", "[rank{}]:", "[1,{}]<stderr>:", "(Worker_TP{0} pid={0})", "\x1b[36m(W pid={})\x1b[0m", "w-{}  |"]


@pytest.mark.parametrize("prefix", PROCESSES)
def test_builds_beside_each_other_are_told_apart_and_what_is_cut_is_said(prefix):
    def lines(build, name, registers):
        before = prefix.format(build)
        return [
            f"{before}  ptxas info    : Compiling entry function '{name}' for 'sm_80'",
            f"{before}  ptxas info    : Function properties for {name}",
            f"{before}      {registers} bytes stack frame, {registers} bytes spill stores, 0 bytes spill loads",
            f"{before}  ptxas info    : Used {registers} registers, 380 bytes cmem[0]",
        ]

    mixed = [line for pair in zip(lines(1, "one", 100), lines(2, "two", 200), strict=True) for line in pair]
    result = parse_ptxas("\r\n".join(mixed)).kernels
    assert [(one.kernel, one.registers, one.stack_bytes) for one in result] == [("one", 100, 100), ("two", 200, 200)]
    (cut,) = parse_ptxas("\n".join(lines(1, "one", 100)[:2])).kernels
    assert (cut.verdict, cut.registers) == ("unknown", None)
    assert "the text is cut" in cut.next


def test_an_exception_on_one_line_is_read():
    error = "ptxas /tmp/x.ptx, line 9; error   : Unknown modifier\nptxas fatal   : Ptx assembly aborted due to errors"
    (one,) = parse_ptxas(repr(RuntimeError(f"`ptxas` stderr:\n{error}\n"))).kernels
    assert one.refused == "line 9: Unknown modifier"


NAMED = {"'mm'": "'void mm<(int)32>(float *, int)'", "for mm": "for void mm<(int)32>(float *, int)"}


def curled(text):
    """A text as forums show it."""
    return text.replace(" '", " \u2018").replace("'", "\u2019").replace(" ", "\u00a0")


def marked(text):
    """A text as the source of a page has it."""
    return html.escape(text).replace("\n", "<br>\n")


def coloured(text):
    """A text as a terminal gets it."""
    return "".join(f"\x1b[36m{line}\x1b[0m\n" for line in text.splitlines())


def listed(text):
    """The lines of a text as a list of JSON."""
    return json.dumps(text.splitlines(), indent=1)


@pytest.mark.parametrize("copied", [str, html.escape, curled, marked, coloured, listed])
def test_demangled_names_and_what_web_pages_make_of_quotes_are_read(copied):
    text = TRITONS
    for mangled, name in NAMED.items():
        text = text.replace(mangled, name)
    log = parse_ptxas(copied(text))
    assert [(one.kernel, one.registers, one.verdict) for one in log.kernels] == [
        ("void mm<(int)32>(float *, int)", 255, "spills"), ("add", 16, "fits"), ("helper", None, "spills"),
        ("lookup", 30, "frame"), ("wide", None, "refused"),
    ]  # fmt: skip
    assert (log.kernels[0].serialised, log.notes) == (True, ())


def test_lines_of_the_linker_are_counted():
    linked = "nvlink info    : Function properties for 'mm':\nnvlink info    : used 30 registers, 0 stack\n"
    log = parse_ptxas(TRITONS + linked)
    assert (len(log.kernels), log.notes) == (5, ("2 lines are of nvlink, and not read",))
    assert parse_ptxas(linked).kernels == ()


@pytest.mark.parametrize(
    "line",
    [
        "Quantum pipes folded",
        "Used 45 registers, 328 bytes cmem[0]",  # of a kernel whose name is cut off
        "Used 128 registers, used 16 barriers, 104 bytes cumulative stack size",
    ],
)
def test_lines_that_are_not_understood_are_counted_and_named(line):
    log = parse_ptxas(f"ptxas info    : {line}\n" * 2 + TRITONS)
    assert log.notes == (f"2 lines of ptxas are not understood: {line}",)


def test_a_reason_ends_where_the_next_line_was_pasted_behind_it():
    error = "Entry function 'moe' uses too much shared data (0x20400 bytes, 0xc000 max)"
    (kernel,) = parse_ptxas(f"ptxas error   : {error}   ptxas info    : 1 bytes gmem   ptxas info    : x").kernels
    assert kernel.refused == error


def test_a_line_without_end_is_read_in_one_pass():
    digits = "0" * 200_000
    for line in (digits, f"ptxas info    : Used {digits}", f"ptxas info    : {digits}"):
        (kernel,) = parse_ptxas(f"ptxas info    : Compiling entry function 'k' for 'sm_90'\n{line}\n").kernels
        assert (kernel.kernel, kernel.registers) == ("k", None)
