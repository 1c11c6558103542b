"""What is read of the words of NVIDIA's assembler."""

import json

import pytest

from triton_ops.cli.app import main
from triton_ops.exceptions import ProfileError
from triton_ops.lab.kernel_verdicts import parse_ptxas, read_ptxas

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
    mm, add, lookup, wide = parse_ptxas(TRITONS)
    assert (mm.kernel, mm.arch, mm.registers, mm.stack_bytes) == ("mm", "sm_90a", 255, 672)
    assert (mm.store_bytes, mm.load_bytes, mm.serialised, mm.verdict) == (1768, 1256, True, "spills")
    assert "all that there are" in mm.next
    assert (add.registers, add.stack_bytes, add.shared_bytes, add.verdict, add.next) == (16, 0, 1024, "fits", "")
    assert (lookup.arch, lookup.verdict) == ("sm_80", "frame")
    assert (wide.kernel, wide.registers, wide.verdict) == ("wide", None, "refused")
    assert "too much shared data" in wide.refused


def test_a_kernel_that_is_assembled_for_several_configs_is_told_for_each():
    first = TRITONS.partition("ptxas info    : Compiling entry function 'add'")[0]
    plain = first.replace("Used 255", "Used 128").replace("672", "0").partition("pipeline in the function 'mm'")[2]
    found = parse_ptxas(first + plain + plain)
    assert [(one.registers, one.verdict, one.serialised) for one in found] == [
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
    *others, refused = parse_ptxas(TRITONS.partition("ptxas info    : Compiling entry function 'add'")[0] + ABORTED)
    assert [one.verdict for one in others] == ["spills"]
    assert (refused.kernel, refused.arch, refused.registers, refused.verdict) == ("mm", "sm_90a", None, "refused")
    assert refused.refused.startswith("(C7602) Insufficient registers")
    assert "fewer warps" in refused.next
    (alone,) = parse_ptxas(ABORTED)
    assert (alone.kernel, alone.arch) == ("mm", "sm_90a")
    assert parse_ptxas("ptxas fatal   : Ptx assembly aborted due to errors") == ()


def test_the_command_prints_a_table_or_json_and_refuses_other_files(tmp_path, capsys):
    path = tmp_path / "ptxas.log"
    path.write_text(TRITONS)
    assert main(["profile", "ptxas", str(path)]) == 0
    assert "spills" in capsys.readouterr().out
    assert main(["profile", "ptxas", str(path), "--json"]) == 0
    assert [one["verdict"] for one in json.loads(capsys.readouterr().out)["items"]] == [
        "spills",
        "fits",
        "frame",
        "refused",
    ]
    path.write_bytes(b"\xff\x00 no log")
    with pytest.raises(ProfileError, match="says nothing of a kernel"):
        read_ptxas(path)
    assert main(["profile", "ptxas", str(tmp_path / "none")]) == 2
