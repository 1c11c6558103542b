"""The registry of shipped kernels: names, operations, and what an import costs."""

import subprocess
import sys

import pytest

from triton_ops import kernels
from triton_ops.backend import Operation
from triton_ops.exceptions import MissingDependencyError, TargetError


def test_names():
    assert kernels.names() == ("matmul", "rmsnorm_rope")


@pytest.mark.parametrize("name", kernels.names())
def test_loaded_operation_has_the_name_it_was_asked_for(name):
    operation = kernels.load(name)
    assert isinstance(operation, Operation)
    assert operation.name == name
    assert kernels.load(name) is operation


def test_unknown_name_is_told_the_known_ones():
    with pytest.raises(TargetError, match="'matmull'; there are matmul, rmsnorm_rope"):
        kernels.load("matmull")


def test_registry_imports_neither_torch_nor_triton():
    code = (
        "import sys, triton_ops.kernels as kernels; kernels.names()\n"
        "assert not {'torch', 'triton'} & set(sys.modules), sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", kernels.names())
def test_without_triton_a_kernel_says_what_is_missing(monkeypatch, name):
    for module in [m for m in sys.modules if m.startswith(f"triton_ops.kernels.{name}")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(MissingDependencyError, match=f"triton is needed for the {name} kernel"):
        kernels.load(name)
