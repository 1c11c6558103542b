"""What a callable holds is part of its identity: two that compute different things are never taken for one."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.cpu.backend.test_backend_source import TRITON, load  # noqa: F401 - a fixture
from triton_ops import FunctionKernel, TritonKernel, settings, use_ptxas
from triton_ops.backend import Source
from triton_ops.backend.callables import toolchain
from triton_ops.backend.origins import is_users_path
from triton_ops.backend.reader import MOST_VALUES


def source_fingerprint(function):
    return Source.of(function).fingerprint


class Net(torch.nn.Module):
    def __init__(self, width, depth=1):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(width, width) for _ in range(depth)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def holding(value):
    def kernel(x):
        return value, x

    return kernel


def double(x):
    return 2 * x


def triple(x):
    return 3 * x


class Scale:
    def __init__(self, by, inner=None):
        self.by = by
        self.inner = inner

    def apply(self, x):
        return x * self.by


class Slotted:
    __slots__ = ("by",)

    def __init__(self, by):
        self.by = by


PAIRS = {
    "a number in a list": ([1], [2]),
    "a function in a list": ([double], [triple]),
    "a function in a dict": ({"a": double}, {"a": triple}),
    "a key of a dict": ({"a": double}, {"b": double}),
    "a function as a key": ({double: 1}, {triple: 1}),
    "a function in a set": ({double}, {triple}),
    "a member of a set": ({"a", "b"}, {"a", "c"}),
    "a member of a frozen set": (frozenset({1}), frozenset({2})),
    "a function in a tuple in a list": ([(1, double)], [(1, triple)]),
    "a function in a partial": (functools.partial(double), functools.partial(triple)),
    "an argument of a partial": (functools.partial(double, [1]), functools.partial(double, [2])),
    "an object's attribute": (Scale(1), Scale(2)),
    "an attribute of an object in an object": (Scale(1, Scale(1)), Scale(1, Scale(2))),
    "a function in an object": (Scale(double), Scale(triple)),
    "the object of a bound method": (Scale(1).apply, Scale(2).apply),
    "the object of a bound method of C": ([1].count, [2].count),
    "a slot": (Slotted(1), Slotted(2)),
    "a namespace": (SimpleNamespace(n=1), SimpleNamespace(n=2)),
    "the width of a module": (Net(8), Net(16)),
    "the depth of a module": (Net(8), Net(8, 2)),
    "the forward of a module": (Net(8).forward, Net(16).forward),
    "whether a module is in training": (Net(8), Net(8).eval()),
    "the dtype of a module": (Net(8), Net(8).half()),
    "the shape of a tensor": (torch.zeros(2, 3), torch.zeros(3, 2)),
    "the dtype of a tensor": (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
    "the strides of a tensor": (torch.zeros(4, 4), torch.zeros(4, 4).t()),
    "the memory order of an array": (np.zeros((4, 4)), np.zeros((4, 4), order="F")),
    "the dtype of an array": (np.zeros(4), np.zeros(4, dtype="float32")),
    "a dtype": (torch.float16, torch.float32),
    "a numpy dtype": (np.dtype("float32"), np.dtype("float64")),
    "a device": (torch.device("cpu"), torch.device("meta")),
    "a path": (Path("a"), Path("b")),
    "a ufunc": (np.add, np.subtract),
    "a slice": (slice(1), slice(2)),
    "the type of a container": ([1], (1,)),
    "the type of a number": (1, True),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=list(PAIRS))
@pytest.mark.parametrize("place", [holding, lambda v: functools.partial(triple, v), lambda v: Scale(v).apply])
def test_what_is_held_counts(pair, place):
    one, other = map(place, pair)
    assert source_fingerprint(one) != source_fingerprint(other)
    assert source_fingerprint(one) == source_fingerprint(place(pair[0]))
    assert Source.of(one).unknown is None


def test_what_a_tensor_contains_does_not_count_as_that_of_an_argument_does_not():
    assert source_fingerprint(holding(torch.zeros(4))) == source_fingerprint(holding(torch.ones(4)))
    assert source_fingerprint(holding(np.zeros(4))) == source_fingerprint(holding(np.ones(4)))


def test_two_networks_of_one_shape_are_the_same():
    assert source_fingerprint(Net(8).forward) == source_fingerprint(Net(8).forward)


def test_values_that_refer_to_themselves_are_read_once():
    one, other = Scale(1), Scale(1)
    one.inner, other.inner = [one], [other, 2]
    assert source_fingerprint(one.apply) != source_fingerprint(other.apply)
    assert Source.of(one.apply).unknown is None


@pytest.mark.parametrize("made", [threading.Lock, np.random.default_rng, lambda: torch.Generator()])
def test_the_state_of_locks_and_random_generators_does_not_count(made):
    assert Source.of(holding(made())).unknown is None
    assert source_fingerprint(holding(made())) == source_fingerprint(holding(made()))


def test_an_edit_of_a_function_in_a_dict_counts(load):  # noqa: F811
    text = "def a(x):\n    return x + {}\nCHOICE = {{'a': a}}\ndef kernel(x, *, which):\n    return CHOICE[which](x)\n"
    assert source_fingerprint(load(text.format(1)).kernel) != source_fingerprint(load(text.format(2)).kernel)


def test_an_edit_of_a_wrapper_counts(load):  # noqa: F811
    text = """
        import functools
        def wrapped(f):
            @functools.wraps(f)
            def call(x):
                return f(x) + {}
            return call
        @wrapped
        def kernel(x):
            return x
    """
    assert source_fingerprint(load(text.format(1)).kernel) != source_fingerprint(load(text.format(2)).kernel)


def test_an_edit_of_a_module_that_is_held_counts(load):  # noqa: F811
    text = "import impl\nHELD = [impl]\ndef kernel(x):\n    return HELD[0].run(x)\n"
    result = set()
    for number in (1, 2):
        load(f"def run(x):\n    return x + {number}\n", "impl")
        result.add(source_fingerprint(load(text).kernel))
    assert len(result) == 2


def test_an_edit_of_a_module_whose_names_are_looked_up_counts(load):  # noqa: F811
    text = "import impl\ndef kernel(x, *, which):\n    return getattr(impl, which)(x)\n"
    result = set()
    for number in (1, 2):
        load(f"def run(x):\n    return x + {number}\n", "impl")
        result.add(source_fingerprint(load(text).kernel))
    assert len(result) == 2


def test_a_container_that_the_code_changes_is_its_working_memory(load):  # noqa: F811
    module = load("CALLS = []\nKEPT = {}\ndef kernel(x):\n    CALLS.append(x)\n    KEPT[x] = x\n")
    before = source_fingerprint(module.kernel)
    module.kernel(1)
    assert source_fingerprint(module.kernel) == before


def test_a_global_that_is_bound_anew_counts_for_a_function_that_was_read_before(load):  # noqa: F811
    module = load("N = 1\ndef helper(x):\n    return x\ndef kernel(x, k=2):\n    return helper(x) + N\n")
    result = {source_fingerprint(module.kernel)}
    module.N = 2
    result.add(source_fingerprint(module.kernel))
    module.helper = triple
    result.add(source_fingerprint(module.kernel))
    module.kernel.__defaults__ = (3,)
    result.add(source_fingerprint(module.kernel))
    assert len(result) == 4


def test_a_cell_that_is_bound_anew_counts_for_a_function_that_was_read_before():
    n = 1

    def kernel(x):
        return x + n

    before = source_fingerprint(kernel)
    n = 2
    assert source_fingerprint(kernel) != before


def test_functions_of_one_name_are_told_apart_wherever_they_are_held():
    def made(n):
        return lambda x: x + n

    one, other = made(1), made(2)
    assert source_fingerprint(holding([one, other, one])) != source_fingerprint(holding([one, other, other]))
    assert source_fingerprint(holding([one, other, {one}])) != source_fingerprint(holding([one, other, {other}]))


# What cannot be told apart


class Secretive:
    def __reduce_ex__(self, protocol):
        raise TypeError("it is a secret")


def test_an_open_file_is_not_known(tmp_path):
    with (tmp_path / "x").open("w") as file:
        unknown = Source.of(holding(file)).unknown
    assert unknown is not None
    assert "TextIOWrapper gives no account of its state" in unknown


@pytest.mark.parametrize(
    "value", [Secretive(), (i for i in ()), list(range(MOST_VALUES + 2)), [[1]] * 3 + [Secretive()]]
)
def test_what_gives_no_account_of_itself_is_not_known(value):
    assert Source.of(holding(value)).unknown
    assert "unknown" in FunctionKernel(holding(value)).identity
    assert "unknown" not in FunctionKernel(holding(1)).identity


def test_an_attribute_that_is_called_like_a_global_is_not_that_global(monkeypatch):
    def kernel(x):
        return x.secret

    monkeypatch.setitem(globals(), "secret", Secretive())
    assert "unknown" not in FunctionKernel(kernel).identity


# Packages and compilers


def test_packages_count_by_their_versions(monkeypatch):
    def kernel(x):
        return np.add(x, 1)

    before = FunctionKernel(kernel).identity
    assert before["numpy"] == np.__version__
    monkeypatch.setattr(np, "__version__", "0.0")
    kernel.__defaults__ = ()  # so that it is read again
    assert FunctionKernel(kernel).identity["numpy"] == "0.0"


@pytest.fixture
def scaled(load):  # noqa: F811
    pytest.importorskip("triton")
    return load(TRITON.format(scale=2, by=3, block=64, options="", comment="")).kernel


def cdiv(a, b):
    return -(-a // b)


def tripled(a, b):
    return 3 * cdiv(a, b)


@pytest.mark.triton
def test_two_kernels_that_differ_in_their_grid_alone_differ(scaled):
    def grid_by(divide, more=0):
        return lambda meta: (divide(64, meta["BLOCK"]) + more,)

    grids = [grid_by(cdiv), grid_by(tripled), grid_by(cdiv, 1), lambda meta: (1,)]
    made = [TritonKernel(scaled, grid) for grid in grids]
    assert len({kernel.identity["grid"] for kernel in made}) == len(made)
    assert len({kernel.identity["source"] for kernel in made}) == 1
    assert TritonKernel(scaled, grid_by(cdiv)).identity == made[0].identity


@pytest.mark.triton
def test_options_that_are_given_by_a_call_of_jit_count(load):  # noqa: F811
    text = """
        import triton

        def body(x_ptr, n):
            return n

        plain, general = triton.jit(body), triton.jit(body, do_not_specialize=["n"])
    """
    module = load(text)
    assert source_fingerprint(module.plain) != source_fingerprint(module.general)


def test_triton_is_told_by_its_version_in_whatever_folder_it_is(monkeypatch, tmp_path):
    package = ModuleType("triton")
    package.__file__ = str(tmp_path / "triton" / "__init__.py")
    monkeypatch.setitem(sys.modules, "triton", package)
    assert not is_users_path(str(tmp_path / "triton" / "runtime" / "jit.py"))
    assert is_users_path(str(tmp_path / "kernels.py"))


@pytest.mark.triton
def test_the_compiler_counts_and_what_steers_it(scaled, monkeypatch, tmp_path):
    kernel = TritonKernel(scaled, lambda meta: (1,))
    plain = dict(kernel.identity)
    assert plain["triton"]
    assert plain["ptxas"] != "none"
    monkeypatch.setenv("DISABLE_LLVM_OPT", "1")
    assert "DISABLE_LLVM_OPT" not in plain.get("environment", "")
    assert "DISABLE_LLVM_OPT=true" in kernel.identity["environment"].split()
    monkeypatch.delenv("DISABLE_LLVM_OPT")
    monkeypatch.setenv("PTXAS_OPTIONS", "-O1 -v")
    assert "PTXAS_OPTIONS=-O1 -v" in kernel.identity["environment"]
    monkeypatch.delenv("PTXAS_OPTIONS")
    other = tmp_path / "ptxas"
    other.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 99.1, V99.1.2'\n")
    other.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(other))
    assert kernel.identity["ptxas"].startswith("99.1.2")
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "missing"))
    assert toolchain()["ptxas"] == plain["ptxas"], "Triton falls back on its own"


@pytest.mark.triton
def test_the_assembler_that_torchs_compiler_names_in_the_middle_of_a_process_changes_nothing(monkeypatch, tmp_path):
    before, result = toolchain(), importlib.util.find_spec
    named = tmp_path / "torch/bin/ptxas"
    named.parent.mkdir(parents=True)
    named.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 99.1, V99.1.3'\n")
    named.chmod(0o755)
    torch = SimpleNamespace(origin=str(tmp_path / "torch/__init__.py"))
    monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH", "")  # is put back
    monkeypatch.setattr(settings, "find_spec", lambda name: torch if name == "torch" else result(name))
    (tmp_path / "link").symlink_to(tmp_path / "torch")
    for path in (named, tmp_path / "link/bin/ptxas"):
        monkeypatch.setenv("TRITON_PTXAS_PATH", str(path))
        assert toolchain() == before
        assert "TRITON_PTXAS_PATH" not in settings.for_child({}, "family")
    use_ptxas(named)  # by a caller, who means it
    assert toolchain()["ptxas"] == "99.1.3"
    assert settings.for_child({}, "family")["TRITON_PTXAS_PATH"] == str(named)


@pytest.mark.triton
def test_a_function_that_launches_a_triton_kernel_counts_its_compiler(scaled):
    def launch(x):
        scaled[(1,)](x, 1)

    assert {"triton", "ptxas"} <= set(FunctionKernel(launch).identity)


# What torch compiles


def passed_on(graph, inputs):
    return graph


def halved(x):
    return x / 2


ASKED = {
    "nothing": {},
    "a backend": {"backend": "eager"},
    "a backend of the user's": {"backend": passed_on},
    "a backend that is an object": {"backend": functools.partial(passed_on)},
    "a mode": {"mode": "max-autotune"},
    "options": {"options": {"epilogue_fusion": False}},
    "static shapes": {"dynamic": False},
    "dynamic shapes": {"dynamic": True},
    "a single graph": {"fullgraph": True},
}


imports_inductor = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of torch's own modules


@imports_inductor
@pytest.mark.parametrize(
    "target", [double, torch.nn.Linear(2, 2), Scale(2).apply], ids=["function", "module", "method"]
)
def test_how_torch_was_asked_to_compile_counts(target):
    result = {name: Source.of(torch.compile(target, **asked)) for name, asked in ASKED.items()}
    again = {name: Source.of(torch.compile(target, **asked)) for name, asked in ASKED.items()}
    assert result == again
    assert all(source.unknown is None for source in result.values())
    assert len({source_fingerprint(target), *(source.fingerprint for source in result.values())}) == len(ASKED) + 1


@imports_inductor
def test_what_torch_compiles_counts_also_below_a_wrapper_and_from_another_module():
    assert source_fingerprint(torch.compile(double)) != source_fingerprint(torch.compile(halved))
    compiled = [torch.compile(holding(n), backend="eager") for n in (1, 2)]
    assert len({source_fingerprint(each) for each in compiled}) == 2
    modes = [Scale(torch.compile(json.dumps, dynamic=dynamic)).apply for dynamic in (False, True)]
    assert len({source_fingerprint(each) for each in modes}) == 2


@imports_inductor
def test_changed_settings_of_inductor_count_for_what_it_compiles_and_for_nothing_else():
    settings = importlib.import_module("torch._inductor.config")
    compiled = torch.compile(double)
    before = source_fingerprint(compiled), source_fingerprint(double)
    with settings.patch(max_autotune=True):
        assert source_fingerprint(compiled) != before[0]
        assert source_fingerprint(double) == before[1]
    with settings.patch(max_autotune=settings.max_autotune):
        assert source_fingerprint(compiled) == before[0], "a setting that was set to its default is not changed"
    assert Source.of(compiled).unknown is None


def test_a_compiled_function_is_the_same_before_and_after_its_first_call():
    compiled, module = torch.compile(double, backend="eager"), torch.compile(torch.nn.Linear(2, 2), backend="eager")
    before = source_fingerprint(compiled), source_fingerprint(module)
    compiled(torch.ones(2))
    module(torch.ones(2))
    assert (source_fingerprint(compiled), source_fingerprint(module)) == before


@imports_inductor
def test_a_compiled_function_whose_settings_torch_hides_is_not_known():
    compiled = torch.compile(double)
    cells = dict(zip(compiled.__code__.co_freevars, compiled.__closure__, strict=True))
    cells["self"].cell_contents = object()
    assert "torch.compile" in Source.of(compiled).unknown


# Elsewhere

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Scale, inner)
    ),
    max_leaves=8,
)


@given(plain, plain)
def test_held_values_are_told_apart_exactly_when_they_differ(one, other):
    def described(value):
        if isinstance(value, Scale):
            return ("scale", described(value.by))
        if isinstance(value, dict):
            return ("dict", *((repr(key), described(result)) for key, result in value.items()))
        if isinstance(value, (list, tuple)):
            return (type(value).__name__, *map(described, value))
        return repr(value)

    same = source_fingerprint(holding(one)) == source_fingerprint(holding(other))
    assert same == (described(one) == described(other))


@pytest.mark.processes
def test_what_is_held_is_the_same_in_every_process(tmp_path):
    (tmp_path / "mod.py").write_text(
        textwrap.dedent("""
            import functools, re
            def a(x): return x
            def b(x): return -x
            class Held:
                def __init__(self): self.names, self.by = {"x", "y", "z", a, b}, {b: 1, "a": frozenset({a, "q", "r"})}
                def apply(self, x): return x
            HELD = [Held(), {a, b, "c", "d", "e"}, re.compile("x+"), functools.partial(a, {1, 2, "f"})]
            def kernel(x): return HELD, Held().apply(x)
        """)
    )
    code = "import mod\nfrom triton_ops.backend import Source\nprint(Source.of(mod.kernel))"
    result = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        )
        result.add(done.stdout)
    assert len(result) == 1
    assert "unknown=None" in result.pop()
