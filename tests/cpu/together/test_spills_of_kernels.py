"""Spills of shipped kernels: what is refused."""

from __future__ import annotations

import pytest

from triton_ops.device import gpu_missing


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["matmul", "--shape", "512x512x512", "--gpu", "sm_9"], 3, "target 'sm_9' is not known"),
        (["matmul", "--shape", "512x512x512", "--gpu", "sm_90", "--config", "XX=1"], 2, "matmul has no tunable XX"),
        (["nosuch", "--gpu", "sm_90"], 2, "there is no kernel 'nosuch'"),
        (["spilled.py:plain", "--gpu", "sm_90"], 2, "is a function; its problem is not known"),
        (["spilled.py:operation", "--gpu", "sm_90"], 2, "is no kernel that Triton compiles"),
    ],
)
def test_what_has_no_spills_is_refused(cli, tmp_path, monkeypatch, words, code, said):
    (tmp_path / "spilled.py").write_text(
        "from triton_ops import FunctionKernel, Operation\n"
        "def plain(BLOCK): pass\n"
        "operation = Operation('plain', FunctionKernel(plain), {'BLOCK': [1]}, lambda: {})\n"
    )
    monkeypatch.chdir(tmp_path)
    ran = cli("explain", "spills", *words)
    assert (ran.code, ran.out) == (code, ""), ran.err
    assert said in ran.err


def test_without_a_gpu_a_target_is_asked_for(cli):
    if gpu_missing() is None:
        pytest.skip("a GPU is here")
    ran = cli("explain", "spills", "matmul", "--shape", "512x512x512")
    assert ran.code == 3
    assert "name one: --gpu 'NVIDIA H200'" in ran.err
