"""The example of a front end: C++ kernels are compiled ahead, isolated, verified, raced and dispatched."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

PROJECT = Path(__file__).parents[3]
sys.path.append(str(PROJECT / "examples"))

from cpp_kernel import CppCompiler, CppKernel, product  # noqa: E402

from tests.forking import Lent  # noqa: E402
from triton_ops import ConfigSpace, MissingDependencyError, Operation, TensorSpec, tune  # noqa: E402
from triton_ops.backend import Arguments, CandidateError, Compiler  # noqa: E402
from triton_ops.compilation import CompilePool  # noqa: E402
from triton_ops.compilation import pool as pools  # noqa: E402
from triton_ops.exceptions import CacheError, ConfigCollisionError, KernelTypeError, UnknownTunableError  # noqa: E402
from triton_ops.space import Config  # noqa: E402
from triton_ops.values import Status  # noqa: E402

BUILDS = shutil.which("c++") is not None and shutil.which("ninja") is not None
needs_builder = pytest.mark.skipif(not BUILDS, reason="torch needs a C++ compiler and ninja; one is missing")

FAULTS = """
template <int64_t WAY>
void twice(float* out, const float* x, int64_t n) {
    static_assert(WAY != 3, "three is not a way");
    if (WAY == 4) *(volatile int*)nullptr = 1;
    for (int64_t i = 0; i < n; i++) out[i] = (WAY == 5 ? 3 : 2) * x[i];
}
"""
TWICE = CppKernel(
    function="twice", source=FAULTS, template=("WAY",), flags={"OPT": "-O{}"}, outputs=("out",),
    parameters={"out": "float*", "x": "const float*", "n": "int64_t"},
)  # fmt: skip
DOUBLED = Operation(
    "cpp_twice", TWICE, ConfigSpace({"WAY": [1, 2, 3, 4, 5], "OPT": [2]}),
    lambda n=4096: {"out": TensorSpec((n,), "float32", fill="empty"), "x": TensorSpec((n,), "float32"), "n": n},
    reference=lambda x, **_: 2 * x, device="cpu",
)  # fmt: skip
LOGGED = """#!/bin/sh
case "$*" in *" -c "*) echo "$OMP_NUM_THREADS" >> "{log}";; esac
exec c++ "$@"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the compiler that all tests here call, its log and what it has built."""
    home = tmp_path_factory.mktemp("cpp")
    program = home / "c++"
    program.write_text(LOGGED.format(log=home / "log"))
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"CXX": program, "TORCH_EXTENSIONS_DIR": home / "built", "OMP_NUM_THREADS": 7}.items():
            patch.setenv(name, str(value))
        yield home


@pytest.fixture(scope="module")
def server(home):
    """The fork server that all tests here share: its import of torch takes longer than what they compile."""
    server = pools.compiler_server(CppCompiler(TWICE).needs)
    yield server
    server.close()


@pytest.fixture
def compilations(home, server, monkeypatch):
    """The lines that calls of the compiler leave: 1 from a process of the pool, which has one thread, else 7."""
    shutil.rmtree(home / "built", ignore_errors=True)
    (home / "log").unlink(missing_ok=True)
    monkeypatch.setattr(pools, "compiler_server", lambda _: Lent(server))
    return lambda: (home / "log").read_text().split()


@pytest.mark.processes
@needs_builder
def test_configs_are_compiled_by_the_pool_isolated_verified_raced_and_dispatched(compilations):
    result = tune(DOUBLED, isolate=True, effort="quick")
    ends = {trial.config["WAY"]: trial.status for trial in result.trials}
    assert ends == {1: Status.OK, 2: Status.OK, 3: Status.COMPILE, 4: Status.CRASH, 5: Status.WRONG}
    (refused,) = (trial for trial in result.trials if trial.config["WAY"] == 3)
    assert "three is not a way" in refused.error
    lines = compilations()
    assert lines.count("1") >= 4, "the default alone may be compiled by the process that measures"
    assert len(lines) <= 6
    assert tune(DOUBLED, isolate=True, effort="quick").from_cache

    values = DOUBLED.materialise(DOUBLED.problem(), "cpu").keyword
    DOUBLED(**values)
    assert torch.equal(values["out"], 2 * values["x"])
    assert compilations() == lines, "a call finds the winner's library on the disk"


@pytest.mark.processes
@needs_builder
def test_the_pool_leaves_libraries_that_the_measuring_process_loads(compilations):
    compiler = Compiler.of(TWICE, Arguments(), None, {})
    assert isinstance(compiler, CppCompiler)
    with CompilePool(compiler, workers=1) as pool:
        good, bad = (pool.submit(Config(WAY=way, OPT=1)) for way in (1, 3))
        assert pool.read(Config(WAY=1, OPT=1)).result().silent.endswith("c++:twice do is not read from its code")
        assert (good.result().status, bad.result().status) == (Status.OK, Status.COMPILE)
    lines = compilations()
    x, out = torch.arange(4.0), torch.empty(4)
    executable = TWICE.compile(Config(WAY=1, OPT=1), Arguments((out, x, 4)))
    executable.launch(Arguments((out, x, 4)))
    assert out.tolist() == [0, 2, 4, 6]
    assert executable.key == good.result().launch
    assert compilations() == lines


@pytest.mark.processes
@needs_builder
def test_arguments_are_known_by_their_place(compilations):
    x, out = torch.arange(64.0), torch.zeros(64)
    assert tune(TWICE, (out, x, 64), space={"WAY": [1], "OPT": [2]}, effort="quick").best_config["WAY"] == 1
    DOUBLED(out, x, 64)
    assert torch.equal(out, 2 * x)


@pytest.mark.processes
@needs_builder
def test_a_library_that_is_gone_is_compiled_again_in_the_same_process(compilations):
    library = TWICE.library(Config(WAY=1, OPT=1))
    library.unlink()
    assert TWICE.library(Config(WAY=1, OPT=1)) == library
    assert library.exists()
    assert list(library.parent.iterdir()) == [library]


@pytest.mark.processes
@needs_builder
def test_a_folder_that_cannot_be_written_is_no_fault_of_a_config(compilations, home, request):
    (home / "built").touch()
    request.addfinalizer((home / "built").unlink)
    unwritable = pytest.raises(CacheError, match="built/triton_ops_cpp cannot be written")
    with CompilePool(CppCompiler(TWICE), workers=1) as pool, unwritable:
        pool.submit(Config(WAY=1, OPT=1)).result()


@pytest.mark.processes
@needs_builder
def test_a_library_that_cannot_be_loaded_is_the_fault_of_its_config(compilations):
    unlinked = replace(TWICE, source=FAULTS.replace("static_assert", "if (WAY == 2) absent(); static_assert"))
    unlinked = replace(unlinked, source=f'extern "C" void absent();{unlinked.source}')
    with pytest.raises(CandidateError, match=r"^c\+\+: undefined symbol: absent$"):
        unlinked.library(Config(WAY=2, OPT=1))
    assert unlinked.library(Config(WAY=1, OPT=1)).exists()


def test_a_source_that_includes_a_file_is_refused():
    with pytest.raises(KernelTypeError, match="includes a file, whose text its identity has not"):
        replace(TWICE, source=f'#include <cmath>\n  # include "mine.h"\n{FAULTS}')
    assert replace(TWICE, source=f"#include <cmath>\n{FAULTS}")


@needs_builder
def test_the_example_is_right_for_extents_that_no_tile_divides():
    problem = product.problem((5, 7, 33))
    for config in list(product.space_for(problem))[::4]:
        values = product.materialise(problem, "cpu")
        product.kernel.compile(config, values).launch(values)
        expected = values.keyword["a"].double() @ values.keyword["b"].double()
        assert (values.keyword["out"] - expected).abs().max() < 1e-4, config


@needs_builder
@pytest.mark.parametrize(
    ("tunables", "changes", "error"),
    [
        (["WAY", "FAST"], {}, UnknownTunableError),
        (["WAY", "n"], {}, UnknownTunableError),
        (["WAY"], {}, KernelTypeError),
        (["WAY", "OPT"], {"WAY": 1}, ConfigCollisionError),
        (["WAY", "OPT"], {"y": 1}, KernelTypeError),
        (["WAY", "OPT"], {"x": None}, KernelTypeError),
        (["WAY", "OPT"], {"x": torch.zeros(4, dtype=torch.float64)}, KernelTypeError),
        (["WAY", "OPT"], {"x": TensorSpec((4,), "float64")}, KernelTypeError),
        (["WAY", "OPT"], {"x": torch.zeros(4, 4).T[1:]}, KernelTypeError),
        (["WAY", "OPT"], {"n": 4.0}, KernelTypeError),
        (["WAY", "OPT"], {"n": torch.tensor(4)}, KernelTypeError),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(tunables, changes, error):
    values = {"out": torch.empty(4), "x": torch.zeros(4), "n": 4, **changes}
    with pytest.raises(error):
        TWICE.check(tunables, Arguments(keyword=values))


def test_a_machine_without_a_compiler_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(MissingDependencyError, match=r"needs a C\+\+ compiler, here c\+\+ and ninja.*install g\+\+"):
        tune(DOUBLED, cache_dir=tmp_path)
