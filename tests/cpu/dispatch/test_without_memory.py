"""Tensors that no kernel can be launched on are refused by typed errors, wherever they are given."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import triton_ops  # noqa: E402
from tests.launches import launches_that_do_nothing  # noqa: E402
from tests.tuned_kernels import add, grid  # noqa: E402
from triton_ops import Operation, TensorSpec, TritonKernel, choose, recall, tune  # noqa: E402
from triton_ops.dispatch import Decision  # noqa: E402
from triton_ops.exceptions import DeviceError, KernelTypeError, UnsupportedDtypeError  # noqa: E402

N = 1024
CONFIGS = [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})]
REFUSED = {
    "sparse": (KernelTypeError, "of layout torch.sparse_coo"),
    "compressed": (KernelTypeError, "of layout torch.sparse_csr"),
    "nested": (KernelTypeError, "is nested"),
    "quantised": (UnsupportedDtypeError, r"int_repr\(\)"),
    "meta": (DeviceError, "on the device meta"),
    "fake": (KernelTypeError, "fake tensor"),
}
WITHOUT_ADDRESS = ("sparse", "compressed", "quantised")  # as Triton finds


def tensor(kind):
    x = torch.arange(N).float()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # layouts that torch calls experimental
        if kind == "fake":
            with FakeTensorMode():
                return torch.ones(N)
        return {
            "sparse": x.to_sparse,
            "compressed": x.reshape(32, 32).to_sparse_csr,
            "nested": lambda: torch.nested.nested_tensor([x[:10], x[10:30]]),
            "quantised": lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
            "meta": lambda: x.to("meta"),
        }[kind]()


def copied(x, out, block=4):
    out.copy_(x)


def decorated(configs=CONFIGS, **more):
    return triton_ops.autotune(configs, ["n"], **{"on_miss": "default", **more})(add)


@pytest.mark.triton
@pytest.mark.parametrize("kind", REFUSED)
def test_a_decorated_kernel_refuses_them_before_anything_is_launched(kind):
    (error, match), bad, x = REFUSED[kind], tensor(kind), torch.zeros(N)
    with launches_that_do_nothing() as launches:
        for kernel in (decorated(), decorated(on_miss="tune")):
            with pytest.raises(error, match=f"x_ptr.*{match}"):
                kernel[grid](bad, x, x, N)
        with pytest.raises(error, match=f"out_ptr.*{match}"):
            decorated()[grid](x, x, bad, N)
        assert launches.made == []


@pytest.mark.triton
@pytest.mark.parametrize("kind", WITHOUT_ADDRESS)
@pytest.mark.parametrize("configs", [CONFIGS, CONFIGS[:1]])
def test_a_kernel_that_was_launched_before_refuses_what_has_no_address(kind, configs):
    (error, match), x = REFUSED[kind], torch.zeros(N)
    with launches_that_do_nothing() as launches:
        kernel = decorated(configs)
        for _ in range(2):
            kernel[grid](x, x, x, N)
        with pytest.raises(error, match=f"y_ptr.*{match}"):
            kernel[grid](x, tensor(kind), x, N)
        kernel[grid](x, x, x, N)
        assert len(launches.made) == 3


@pytest.mark.triton
@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_why_answers_for_tensors_without_memory(kind):
    with launches_that_do_nothing():
        assert isinstance(decorated().why(tensor(kind), torch.zeros(N), torch.zeros(N), N, grid=grid), Decision)


@pytest.mark.triton
@pytest.mark.parametrize("configs", [CONFIGS, CONFIGS[:1]])
def test_tensors_on_the_cpu_are_refused_by_kernels_that_run_on_a_gpu(configs):
    with pytest.raises(DeviceError, match=r"on the CPU.*move them to a GPU: tensor\.cuda\(\)"):
        decorated(configs)[grid](*[torch.zeros(N)] * 3, N)


@pytest.mark.parametrize("kind", REFUSED)
def test_tune_refuses_them_before_anything_runs(kind):
    error, match = REFUSED[kind]
    for given in ((tensor(kind), torch.zeros(N)), ([tensor(kind)], torch.zeros(N))):
        with pytest.raises(error, match=match):
            tune(copied, given, space={"block": [1, 2]})


@pytest.mark.parametrize("kind", ["sparse", "compressed", "nested", "quantised", "meta"])
def test_operations_and_recall_refuse_them(kind):
    spec = TensorSpec((N,), "float32")
    operation = Operation("copied", copied, {"block": [1, 2]}, lambda: {"x": spec, "out": spec}, device="any")
    error, match = REFUSED[kind]
    with pytest.raises(error, match=match):
        operation(tensor(kind), torch.zeros(N))
    with pytest.raises(error, match=match):
        recall(operation, (tensor(kind), torch.zeros(N)))


def errors_of_an_interpreted_operation():
    """What an operation around a kernel says of fake tensors, after it ran with real ones."""
    kernel = TritonKernel(add, grid, outputs=("out_ptr",))
    operation, x = Operation("added", kernel, {"BLOCK": [128]}, lambda: {}, device="any"), torch.zeros(N)
    operation(x, x, torch.zeros(N), N)
    try:
        operation(tensor("fake"), x, x, N)
    except KernelTypeError as error:
        return str(error)


def test_an_operation_that_launches_a_kernel_refuses_fake_tensors_after_real_ones(interpreted):
    assert "an argument of added is a fake tensor" in interpreted(errors_of_an_interpreted_operation)


def test_a_choice_runs_its_first_implementation_on_what_only_torch_can_take():
    chosen = choose({"one": lambda x: x * 2, "two": lambda x: x + x}, name="doubled_anything")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in ("sparse", "compressed", "nested", "meta", "fake"):
            assert chosen(tensor(kind)).layout == tensor(kind).layout
