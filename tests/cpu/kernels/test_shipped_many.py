"""Lists of problems of shipped kernels."""

from pathlib import Path

import pytest

OWN = "@operation(space={'m': [1, 2]}, arguments=lambda n=4: {'n': n}, device='cpu')\ndef own(n, m):\n    return n\n"


@pytest.mark.parametrize(("line", "said"), [
    ("nope", "there is no kernel 'nope'"), ("softmax problem=zz", "no problem called zz"),
])  # fmt: skip
def test_a_line_of_no_kernel_or_problem_is_one_line_with_its_number(cli, monkeypatch, tmp_path, line, said):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text("from triton_ops import operation\n" + OWN)
    Path("list.txt").write_text(f"own.py:own\n\n{line}\n")
    ran = cli("tune", "--problems", "list.txt", "--kernels", "own.py")
    assert (ran.code, ran.out) == (2, "")
    assert "list.txt, line 3: " in ran.err
    assert said in ran.err


def test_all_of_no_kernel_are_none(cli):
    ran = cli("tune", "--all", "nope")
    assert (ran.code, ran.out) == (2, "")
    assert "there is no kernel 'nope'" in ran.err
