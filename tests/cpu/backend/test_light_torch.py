"""Shapes of torch's results on tensors without memory, without what torch imports to tell them."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import triton_ops_kernels as kernels  # noqa: E402
from tests import kinds  # noqa: E402
from triton_ops.backend import LauncherKernel  # noqa: E402
from triton_ops.backend.launcher import REFERENCES, light  # noqa: E402

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


def mean_after(x, BLOCK):
    kinds.sum_in_two(x, x.mean(0), BLOCK)


def test_only_a_function_that_names_what_needs_them_has_torchs_reference_implementations_imported():
    assert LauncherKernel(mean_after).compile_imports == REFERENCES
    for name in ("layer_norm_backward", "rmsnorm_rope_backward", "attention_backward"):
        assert kernels.load(name).kernel.compile_imports == "torch"


PROGRAM = """
import sys
import triton_ops_kernels as kernels
from triton_ops.backend import Arguments
from triton_ops.backend.launcher import dry_run, launches_taken
from triton_ops.backend.offline import pretending
from triton_ops.device import Target
import triton.runtime.jit as jit
launched = []
jit.JITFunction.run = lambda *args, **kwargs: launched.append(args[0])
for name, shape in (("layer_norm_backward", (64, 128)), ("rmsnorm_rope_backward", None), ("attention_backward", None)):
    operation = kernels.load(name)
    problem = operation.problem(shape, None)
    given = Arguments(keyword=dict(problem.arguments)).described()
    with pretending(Target.named("sm_90")):
        for config in list(operation.space_for(problem))[::16]:
            dry_run(lambda **all: operation.kernel.launch(**all, **config), given)
print(len(launched) > 20, "sympy" in sys.modules)
"""


@pytest.mark.processes
def test_shipped_gradients_are_read_and_compiled_without_what_torchs_reference_implementations_import():
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["True", "False"], ran.stderr
