"""The choosers that come with the package: every implementation computes the same, and kernels get what they take."""

from __future__ import annotations

import math
import threading

import pytest
import torch
from benchmarks.shipped import choices_gpu
from benchmarks.shipped.choices_gpu import SHAPES, inline, options, rows_in, summary

from tests.limits import ENOUGH_S
from triton_ops import chooser
from triton_ops.backend import Arguments
from triton_ops.dispatch.in_compile import described
from triton_ops.exceptions import MissingDependencyError, TargetError
from triton_ops.values import TensorSpec
from triton_ops_kernels import choosers as ready
from triton_ops_kernels import softmax
from triton_ops_kernels.choosers import common, products


def drawn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)), dtype=dtype)


def bytes_of(*shape):
    return drawn(*shape).to(torch.float8_e4m3fn)


CALLS = {
    "matmul": [(drawn(1, 64), drawn(64, 32)), (drawn(5, 64), drawn(64, 7))],
    "linear": [
        (drawn(2, 3, 16), drawn(8, 16), drawn(8), "relu"), (drawn(3, 16), drawn(8, 16)),
        (drawn(3, 16), drawn(8, 16), drawn(8), "gelu"), (drawn(2, 3, 16), drawn(8, 16), None, "silu"),
    ],
    "bmm": [(drawn(2, 5, 6), drawn(2, 6, 7)), (drawn(9, 5, 6), drawn(6, 7).expand(9, 6, 7))],
    "scaled_mm": [(bytes_of(16, 32), bytes_of(48, 32).t(), torch.tensor([0.5]), torch.tensor([2.0]))],
    "conv2d": [
        (drawn(2, 3, 8, 9), drawn(4, 3, 3, 2), drawn(4), (2, 1), (1, 0), (1, 2)),
        (drawn(2, 3, 8, 9), drawn(4, 3, 1, 1)),
        (drawn(2, 3, 8, 9), drawn(4, 3, 1, 1), drawn(4)), (drawn(1, 4, 6, 6), drawn(4, 2, 3, 3), None, 1, 1, 1, 2),
    ],
    "softmax": [(drawn(3, 50),), (drawn(3, 5, 7), 1)],
    "sdpa": [
        (drawn(1, 4, 6, 8), drawn(1, 2, 6, 8), drawn(1, 2, 6, 8), True),
        (drawn(1, 2, 6, 8), drawn(1, 2, 9, 8), drawn(1, 2, 9, 8), False, 0.3),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", ready.names())
def test_a_winner_is_remembered_for_implementations_that_can_be_told_from_others(name):
    assert "unknown" not in chooser(name)._kernel.identity


@pytest.mark.parametrize("name", ready.names())
def test_all_that_apply_compute_the_same(name):
    made = chooser(name)
    ran = set()
    for args in CALLS[name]:
        results = {
            label: each.run({})(*args)
            for label, each in made.implementations.items()
            if each.operation is None and each.why_not(Arguments(args)) is None
        }
        expected = results["aten"]
        for label, result in results.items():
            torch.testing.assert_close(result, expected, msg=lambda text, label=label: f"{label}: {text}")
            assert result.is_contiguous() == expected.is_contiguous(), label
        torch.testing.assert_close(made(*args), expected)
        ran |= set(results)
    gpu_only = {"cublaslt", "split_k", "triton", "flash", "efficient", "cudnn", "cudnn_benchmark"}
    assert ran == set(made.implementations) - gpu_only


def in_one_graph(function, *args, dynamic=False):
    """The result of a function that torch traces into one graph, or raises for."""
    torch._dynamo.reset()
    try:
        return torch.compile(lambda *given: function(*given), backend="eager", fullgraph=True, dynamic=dynamic)(*args)
    finally:
        torch._dynamo.reset()


@pytest.mark.parametrize("name", ready.names())
def test_torch_traces_every_implementation_into_one_graph(name):
    result = {}
    for label, each in chooser(name).implementations.items():
        args = next((args for args in CALLS[name] if each.why_not(Arguments(args)) is None), None)
        if each.operation is None and args is not None:
            result[label] = torch.allclose(in_one_graph(each.function, *args), each.function(*args), atol=1e-5)
    assert result
    assert [label for label, right in result.items() if not right] == []


@pytest.mark.parametrize(("name", "call"), [("sdpa", 0), ("conv2d", 0), ("softmax", 1)])
def test_extents_and_numbers_of_a_call_may_be_symbols(name, call):
    made, args = chooser(name), CALLS[name][call]
    assert torch.allclose(in_one_graph(made, *args, dynamic=True), made(*args), atol=1e-5)


def test_a_kernel_of_this_package_is_found_in_a_graph():
    def shifted(x):
        return x + len(common.kernel_module("softmax").__name__)

    torch.testing.assert_close(in_one_graph(shifted, torch.zeros(3)), torch.full((3,), float(len(softmax.__name__))))


@pytest.mark.parametrize("name", ["matmul", "linear", "scaled_mm", "softmax", "sdpa"])
def test_the_kernel_of_this_package_takes_part_on_a_gpu_with_its_config(name):
    made = chooser(name)
    kernel = made.implementations["triton"]
    operation = made.operation
    problem = operation.problem(None, "bfloat16" if operation.dtypes else None)
    given = described(dict(problem.arguments), "cuda:0")
    placed = Arguments(tuple(given.keyword.values()))
    assert kernel.why_not(placed) is None
    values = kernel.operation_values(placed)
    shape, _ = next(iter(kernel.operation.problems.values()))
    own = kernel.operation.problem(shape)
    assert list(values) == list(dict(own.arguments))
    on_cpu = described(dict(problem.arguments), "cpu")
    assert "on cpu" in kernel.why_not(Arguments(tuple(on_cpu.keyword.values())))


def test_a_name_that_is_none_is_refused_with_those_there_are():
    with pytest.raises(TargetError, match="no chooser is called 'gemm'; there are matmul, linear"):
        chooser("gemm")
    assert chooser("softmax") is ready.softmax


def test_the_benchmark_passes_only_if_all_shapes_are_good_enough():
    row = {"chosen": {"implementation": "triton"}, "over_cublas": 1.05, "worst_percent": 0.4}
    rows = [{"shape": list(shape), **row} for shape in SHAPES]
    assert len(SHAPES) == 30
    assert summary(rows)["passed"]
    assert summary(rows)["chosen"] == {"triton": 30}
    slower = [*rows[1:], {**rows[0], "worst_percent": 1.2}]
    no_gain = [{**row, "over_cublas": 1.0} for row in rows]
    failed = [*rows[1:], {"shape": rows[0]["shape"], "error": "no memory"}]
    for bad in (slower, no_gain, failed, rows[1:], []):
        assert not summary(bad)["passed"]


def test_the_benchmark_keeps_a_row_of_each_shape_and_goes_on_after_one_that_fails(tmp_path, monkeypatch, capsys):
    def measured(shape, asked):
        if shape not in SHAPES:  # what is measured first has a worker started, and leaves no row
            return {}
        lost = {tuple(row["shape"]): row.get("error") for row in rows_in(asked.out)}
        assert lost[shape] == choices_gpu.LOST, "a process that ended now would leave this row"
        if shape == SHAPES[1]:
            raise RuntimeError("an illegal memory access")
        return {
            "shape": list(shape),
            "chosen": {"implementation": "mv"},
            "over_cublas": 1.1,
            "worst_percent": 0.0,
            "tune_s": 1,
        }

    monkeypatch.setattr(choices_gpu, "measured", measured)
    settings = options([f"--out={tmp_path}/one.json", "--device=a GPU"])
    inline(settings, SHAPES[:3], math.inf)
    rows = rows_in(settings.out)
    assert [row.get("error", "") for row in rows] == ["", "RuntimeError: an illegal memory access", ""]
    assert summary(rows)["failed"] == [list(SHAPES[1])]
    assert summary(rows)["chosen"] == {"mv": 2}
    assert "1.100 x cuBLAS" in capsys.readouterr().out


class _Blas:
    """Torch's setting of the library of products, and what was set while a product was computed."""

    def __init__(self, preferred):
        self.preferred, self.during = preferred, []

    def __call__(self, backend=None):
        if backend is not None:
            self.preferred = backend
        return self.preferred

    def mm(self, a, b):
        self.during.append(self.preferred)
        if a is None:
            raise RuntimeError("no matrix")
        return a @ b


@pytest.fixture
def blas(monkeypatch):
    made = _Blas("_BlasBackend.Cublas")
    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", made)
    monkeypatch.setattr(torch, "mm", made.mm)
    return made


def test_the_other_library_computes_one_product_and_the_setting_is_as_it_was(blas):
    a, b = torch.rand(3, 4), torch.rand(4, 5)
    torch.testing.assert_close(products._by_lt(a, b), a @ b)
    with pytest.raises(RuntimeError, match="no matrix"):
        products._by_lt(None, b)
    assert (blas.during, blas.preferred) == (["cublaslt"] * 2, "_BlasBackend.Cublas")


def test_products_of_several_threads_leave_the_setting_as_the_first_has_found_it(blas, monkeypatch):
    a, b = torch.rand(3, 4), torch.rand(4, 5)
    begun, go_on = threading.Event(), threading.Event()

    def slow(one, other):
        begun.set()
        assert go_on.wait(ENOUGH_S)
        return blas.mm(one, other)

    monkeypatch.setattr(torch, "mm", slow)
    first = threading.Thread(target=products._by_lt, args=(a, b))
    first.start()
    assert begun.wait(ENOUGH_S)
    monkeypatch.setattr(torch, "mm", lambda *given: (go_on.set(), first.join(ENOUGH_S), blas.mm(*given))[-1])
    products._by_lt(a, b)  # begins while the first is on, and ends after it
    assert (blas.during, blas.preferred) == (["cublaslt"] * 2, "_BlasBackend.Cublas")


def test_the_other_library_takes_part_where_torch_would_take_another(blas, monkeypatch):
    here, there = torch.rand(3, 4), described({"a": TensorSpec((3, 4), "float32")}, "cuda:0").keyword["a"]
    assert products._has_lt(here, here) == "the tensors are on cpu, where there is no cuBLASLt"
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert products._has_lt(there, there) is True
    with products._CUBLASLT:  # as another thread's product asks for it
        assert products._has_lt(there, there) is True
    blas("_BlasBackend.Cublaslt")
    assert products._has_lt(there, there) == "it is what torch takes already"


def test_a_kernel_without_triton_is_no_choice_and_the_log_says_why_but_a_broken_import_is_an_error(monkeypatch, caplog):
    errors = [MissingDependencyError("there is no triton"), ImportError("broken")]

    def lacking(_name):
        raise errors.pop(0)

    monkeypatch.setattr(common.importlib, "import_module", lacking)
    with caplog.at_level("INFO", "triton_ops"):
        assert common.by_kernel("missing", len, len, len) == {}
    assert "the kernel missing is no choice here: there is no triton" in caplog.text
    with pytest.raises(ImportError, match="broken"):
        common.by_kernel("missing", len, len, len)
