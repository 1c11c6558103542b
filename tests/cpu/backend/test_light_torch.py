"""Shapes of torch's results on tensors without memory, without what torch imports to tell them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from triton_ops.backend.launcher import light  # noqa: E402

EXTENTS = [(4, 6), (3, 4, 5), (1, 6), (6, 1), (0, 3), (7,), ()]
KINDS = [torch.float32, torch.bfloat16, torch.int32, torch.bool, torch.uint8]
CALLS = [
    (torch.sum, (0,), {}),
    (torch.Tensor.sum, (-1,), {}),
    (torch.Tensor.sum, (1, True), {}),
    (torch.sum, (), {"dim": 0, "keepdim": True, "dtype": torch.float64}),
    (torch.Tensor.sum, (0,), {"dtype": torch.float32}),
    (torch.Tensor.sum, (), {}),
    (torch.sum, ((0, 1),), {}),
    (torch.Tensor.sum, (5,), {}),
    (torch.amax, (0,), {}),
    (torch.Tensor.amax, (), {"dim": -1, "keepdim": True}),
    (torch.empty_like, (), {}),
    (torch.zeros_like, (), {"dtype": torch.float32}),
    (torch.ones_like, (), {"device": "meta"}),
]


def looks(make):
    try:
        result = make()
    except (IndexError, RuntimeError) as error:
        return type(error)
    return result if result is NotImplemented else (result.shape, result.dtype, result.stride(), result.device)


def test_results_look_as_torchs_own():
    told = 0
    for extents in EXTENTS:
        for dtype in KINDS:
            for func, args, named in CALLS:
                tensor = torch.empty(extents, dtype=dtype, device="meta")
                result = looks(lambda f=func, t=tensor, a=args, n=named: light(torch, f, (t, *a), n))
                told += result is not NotImplemented
                own = looks(lambda f=func, t=tensor, a=args, n=named: f(t, *a, **n))
                assert result in (NotImplemented, own), (func, extents, dtype, args, named)
    assert told > 200


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(4, 6, device="meta").t(), torch.empty(4, 6), torch.empty(4, 6, device="meta")[:, ::2],
        torch.empty(4, 6, device="meta", requires_grad=True), torch.nn.Parameter(torch.empty(4, device="meta")),
        torch.empty(4, 1, device="meta").as_strided((4, 1), (1, 7)), 3,
    ],
)  # fmt: skip
def test_torch_itself_is_asked_about_other_tensors(tensor):
    assert light(torch, torch.sum, (tensor, 0), {}) is NotImplemented
    assert light(torch, torch.empty_like, (tensor,), {}) is NotImplemented


def test_torch_itself_is_asked_about_other_functions_and_arguments():
    tensor = torch.empty(4, 6, device="meta")
    assert light(torch, torch.mean, (tensor, 0), {}) is NotImplemented
    assert light(torch, torch.sum, (tensor, 0), {"out": tensor}) is NotImplemented
    assert light(torch, torch.sum, (tensor, "rows"), {}) is NotImplemented
    assert light(torch, sum, (tensor,), {}) is NotImplemented
    assert light(torch, torch.sum, (), {"input": tensor, "dim": 0}) is NotImplemented
