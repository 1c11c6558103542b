"""The view of what may be tuned of a kernel: `triton-ops explain --space`."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("triton")

from triton_ops.device import gpu_missing  # noqa: F401

pytestmark = pytest.mark.triton


@pytest.fixture
def typed(tmp_path, monkeypatch):
    """The file of a kernel with its launch."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "doubled.py"
    path.write_text(
        "import torch, triton\nimport triton.language as tl\n\n"
        "@triton.jit\ndef kernel(y, x, n, BLOCK: tl.constexpr, SCALE: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y + at, tl.load(x + at, mask=at < n) * SCALE, mask=at < n)\n\n"
        "def doubled(x):\n    y = torch.empty_like(x)\n"
        "    kernel[(4,)](y, x, x.numel(), BLOCK=256, SCALE=2)\n    return y\n"
    )
    return "doubled.py:kernel"


def test_the_space_of_a_kernel_is_shown_without_a_call(cli, typed):
    ran = cli("explain", typed, "--gpu", "H100", "--space", columns=200)
    assert (ran.code, ran.err) == (0, "")
    rows = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in ran.out.splitlines())
    assert rows["tune BLOCK"].startswith("64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768: it sizes blocks")
    assert rows["left alone SCALE"] == "it enters the arithmetic on data"
    assert "nothing runs ahead" in rows["left alone num_stages"]


def test_at_a_call_the_space_has_its_extents_and_what_the_grid_says(cli, typed):
    ran = cli("explain", typed, "--shape", "1024", "--gpu", "H100", "--space", "--json")
    data = json.loads(ran.out)
    assert (ran.code, data["tunables"].keys()) == (0, {"num_warps"})
    assert data["left_alone"]["BLOCK"] == data["grid"][0]
    assert "the grid is fixed numbers" in data["grid"][0]


def test_the_space_of_a_shipped_kernel_is_read_from_its_source(cli):
    data = json.loads(cli("explain", "softmax", "--gpu", "H100", "--space", "--json").out)
    assert "num_warps" in data["tunables"]
    assert data["configs"] > 1


@pytest.mark.skipif("gpu_missing() is None", reason="there is a GPU here")
def test_without_a_gpu_the_space_is_that_of_an_h100_which_is_said(cli, typed):
    ran = cli("explain", typed, "--space", columns=200)
    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"device +NVIDIA H100 .* sm_90, since there is no GPU here; --gpu names another\n", ran.out)
    assert json.loads(cli("explain", typed, "--space", "--json").out)["device"].startswith("NVIDIA H100")


def test_a_function_that_launches_a_kernel_names_it_where_a_tune_lacks_a_space(cli, typed):
    ran = cli("tune", "doubled.py:doubled", "--shape", "1024")
    assert (ran.code, ran.out) == (2, "")
    assert "doubled.py:doubled is a function that launches the kernel kernel" in ran.err
    assert "hint: tune the kernel, doubled.py:kernel, or" in ran.err


def test_a_function_that_is_no_kernel_has_no_space_to_read(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.py").write_text("def plain(x):\n    return x\n")
    ran = cli("explain", "plain.py:plain", "--gpu", "H100", "--space")
    assert ran.code == 2
