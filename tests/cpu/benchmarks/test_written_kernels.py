"""The kernels that are written for the benchmark of hidden lists: right results, and lists that their spaces hold."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from benchmarks.tuning import written_kernels  # noqa: E402
from benchmarks.tuning.hidden_lists import taken  # noqa: E402

from triton_ops.backend import ReadSpace  # noqa: E402

pytestmark = pytest.mark.triton
STYLES = ["conv_pixels", "conv_axes", "conv_blocks", "conv_wrapped"]
LAUNCHES = {
    **{style: lambda style=style: images(style, "meta", 32, 56, 56, 128, 256) for style in STYLES},
    "embedding_bag": lambda: bags("meta", 8192, 100_000, 512),
    "int4_matmul": lambda: packed("meta", 64, 4096, 12288, 128),
}


def images(style, device, count, height, width, channels, filters):
    x = torch.randn(count, height, width, channels, device=device).half()
    w = torch.randn(9 * channels, filters, device=device).half()
    return written_kernels.convolved(style, x, w), x, w


def bags(device, count, rows, width):
    table, ends = torch.randn(rows, width, device=device).half(), torch.arange(count + 1, device=device) * 7
    indices = torch.randint(0, rows, (7 * count,), device=device)
    return written_kernels.bagged(table, indices, ends), table, indices, ends


def packed(device, m, k, n, group):
    a, scales = torch.randn(m, k, device=device).half(), torch.randn(k // group, n, device=device).half()
    words = torch.randint(-(1 << 31), 1 << 31, (k // 8, n), device=device).int()
    return written_kernels.int4_product(a, words, scales), a, words, scales


@pytest.mark.parametrize("name", LAUNCHES)
def test_every_config_of_an_authors_list_is_in_the_space_that_is_read(name):
    kernel = getattr(written_kernels, name)
    grid, values = taken(kernel, LAUNCHES[name])
    read = ReadSpace.of(kernel, values, grid=grid)
    options = ("num_warps", "num_stages")
    configs = [{**one.kwargs, **{name: getattr(one, name) for name in options}} for one in kernel.configs]
    assert 60 <= len(configs) <= 150
    assert {*configs[0]} == {*read.space.tunables}
    assert [read.space.why_not(config) for config in configs] == [None] * len(configs)


def with_config(name, config):
    kernel = getattr(written_kernels, name)
    kernel.configs = [type(kernel.configs[0])(config)]


def convolution_error(style, config):
    torch.manual_seed(0)
    with_config(style, config)
    y, x, w = images(style, "cpu", 2, 7, 10, 24, 40)
    weights = w.float().view(3, 3, 24, 40).permute(3, 2, 0, 1)
    right = torch.nn.functional.conv2d(x.float().permute(0, 3, 1, 2), weights, padding=1).permute(0, 2, 3, 1)
    return float((y - right).abs().max() / right.abs().max())


def bag_error():
    torch.manual_seed(0)
    with_config("embedding_bag", {"BLOCK_L": 4, "BLOCK_D": 64})
    out, table, indices, ends = bags("cpu", 5, 50, 100)
    right = torch.nn.functional.embedding_bag(indices, table.float(), ends[:-1], mode="sum")
    return float((out - right).abs().max() / right.abs().max())


def int4_error():
    torch.manual_seed(0)
    with_config("int4_matmul", {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32})
    c, a, words, scales = packed("cpu", 20, 128, 72, 64)
    nibbles = (words[:, None, :] >> (4 * torch.arange(8))[None, :, None]) & 15
    right = a.float() @ ((nibbles.view(128, 72) - 8) * scales.float().repeat_interleave(64, 0))
    return float((c - right).abs().max() / right.abs().max())


@pytest.mark.parametrize(("style", "config"), [
    ("conv_pixels", {"BM": 32, "BN": 16, "BK": 16}), ("conv_axes", {"BH": 2, "BW": 8, "BN": 16, "BK": 16}),
    ("conv_blocks", {"BW": 16, "BN": 32, "BK": 16}), ("conv_wrapped", {"BM": 32, "BN": 16, "BK": 32, "GROUP": 2}),
])  # fmt: skip
def test_a_convolution_is_torchs(interpreted, style, config):
    assert interpreted(convolution_error, style, config) < 2e-3


def test_a_bag_and_a_product_of_int4_are_torchs(interpreted):
    assert interpreted(bag_error) < 2e-3
    assert interpreted(int4_error) < 2e-3
