"""Operations whose kernels are in a module beside the file that names them can be compiled and run elsewhere."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")


from triton_ops.backend import Arguments, Packed, TritonCompiler
from triton_ops.backend.launcher import dry_run
from triton_ops.backend.offline import pretending
from triton_ops.backend.portable import settled
from triton_ops.device import Target
from triton_ops.processes import Surroundings
from triton_ops.typed import TypedTarget
from triton_ops.values import Status

pytestmark = pytest.mark.triton

KERNELS = """
    import triton
    import triton.language as tl

    FACTOR: tl.constexpr = tl.constexpr(3)
    SPACES = {"scale": {"BLOCK": [64, 128]}, "move": {"BLOCK": [64]}}

    @triton.jit
    def times(x):
        return x * FACTOR

    @triton.jit
    def scale(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, times(tl.load(x + at, mask=at < n)), mask=at < n)

    @triton.jit
    def move(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)

    @triton.jit
    def scale_twice(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, times(times(tl.load(x + at, mask=at < n))), mask=at < n)

    def blocks(n, size):
        return -(-n // size)

    def grid(meta):
        return (blocks(meta["n"], meta["BLOCK"]),)

    def space(problem):
        return SPACES["scale"]
"""
HOLDER = """
    import os
    import sys

    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import kernels as k

    from triton_ops import LauncherKernel, Operation, TensorSpec, TritonKernel

    def given(n: int = 1000):
        return {"x": TensorSpec((n,), "float32"), "out": TensorSpec((n,), "float32"), "n": n}

    def launch(x, out, n, *, BLOCK):
        k.move[(k.blocks(n, BLOCK),)](x, out, n, BLOCK)
        k.scale[(k.blocks(n, BLOCK),)](out, out, n, BLOCK)

    scale = Operation("scale", TritonKernel(k.scale, k.grid, outputs=("out",)), k.space, given)
    move = Operation("move", TritonKernel(k.move, lambda meta: k.grid(meta), outputs=("out",)), k.SPACES["move"], given)
    both = Operation("both", LauncherKernel(launch, outputs=("out",)), lambda problem: k.SPACES["scale"], given)
    twice = Operation("twice", TritonKernel(k.scale_twice, k.grid, outputs=("out",)), k.SPACES["move"], given)
    reversed_ = Operation("reversed", TritonKernel(k.scale, k.grid), lambda problem: k.space(problem), given)
"""
LOADS = """
import pickle, sys
path, content = pickle.load(sys.stdin.buffer)
sys.path[:] = path
from triton_ops.backend import Packed
for operation in Packed.loaded(content):
    print(operation.kernel.cache_key, operation.space_for(operation.problem()).size.total)
"""


@pytest.fixture
def operations(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "kernels.py").write_text(textwrap.dedent(KERNELS))
    (tmp_path / "holder.py").write_text(textwrap.dedent(HOLDER))
    monkeypatch.chdir(tmp_path.parent)
    folder = tmp_path.name  # of a relative path
    yield [TypedTarget(f"{folder}/holder.py:{name}").load() for name in ("scale", "move", "both", "reversed_", "twice")]
    sys.modules.pop("kernels", None)


def test_each_is_compiled_from_the_code_that_is_sent(operations):
    for operation in operations:
        arguments = Arguments(keyword=dict(operation.problem().arguments))
        loaded = TritonCompiler(operation.kernel, arguments, Target.named("sm_90")).pack().load()
        for config in operation.space_for(operation.problem()):
            result = loaded.compile(config)
            assert (operation.name, result.status, result.reason) == (operation.name, Status.OK, "")


def test_a_kernel_has_one_name_whatever_was_compiled_before_in_the_process(operations):
    k = sys.modules["kernels"]
    assert k.scale.cache_key != k.scale_twice.cache_key  # named by Triton, one before and one after their helper
    kernels = [operation.kernel for operation in operations if operation.name in ("scale", "twice")]
    keys = [kernel.cache_key for kernel in kernels]
    for kernel, key in zip(reversed(kernels), reversed(keys), strict=True):
        given = Arguments(keyword=dict(operations[0].problem().arguments))
        loaded = TritonCompiler(kernel, given, Target.named("sm_90")).pack().load()
        assert loaded.kernel.cache_key == kernel.cache_key == key


def test_a_launch_that_is_compiled_ahead_has_the_name_that_it_has_in_each_process(operations):
    k, given = sys.modules["kernels"], Arguments(keyword=dict(operations[0].problem().arguments)).described()
    own = k.scale.cache_key  # by Triton, before its helper has a name
    with pretending(Target.named("sm_90"), "under its name"):
        dry_run(lambda x, out, n: k.scale[(1,)](x, out, n, 64), given)
    ahead = k.scale.cache_key
    assert settled(k.scale).cache_key == ahead != own


SCRIPT = """
    from triton_ops.backend import Arguments
    from triton_ops.backend import TritonCompiler
    from triton_ops.compilation import CompilePool
    from triton_ops.device import Target

    for operation in (scale, twice, move, both, reversed_) if __name__ == "__main__" else ():
        given = Arguments(keyword=dict(operation.problem().arguments))
        with CompilePool(TritonCompiler(operation.kernel, given, Target.named("sm_90")), workers=1) as pool:
            configs = operation.space_for(operation.problem()).take(1)
            print(operation.name, *(str(pool.submit(config).result().status) for config in configs))
"""


@pytest.mark.processes
def test_a_script_compiles_several_operations_where_another_module_of_the_name_is_found_first(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "kernels.py").write_text(textwrap.dedent(KERNELS))
    (tmp_path / "own" / "holder.py").write_text(textwrap.dedent(HOLDER) + textwrap.dedent(SCRIPT))
    (tmp_path / "kernels.py").write_text("")
    search_path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = subprocess.run(
        [sys.executable, "own/holder.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": search_path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.stdout.splitlines() == ["scale ok", "twice ok", "move ok", "both ok", "reversed ok"], ran.stderr


@pytest.mark.processes
@pytest.mark.parametrize("hidden", [False, True])
def test_each_is_loaded_where_it_is_launched(operations, hidden, tmp_path, monkeypatch):
    if hidden:  # another module of the same name comes first where it is launched
        other = tmp_path / "other"
        other.mkdir()
        (other / "kernels.py").write_text("")
        monkeypatch.syspath_prepend(str(other))
    sent = pickle.dumps((Surroundings.here().path, Packed.of(operations).content))
    ran = subprocess.run([sys.executable, "-c", LOADS], input=sent, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    expected = [f"{one.kernel.cache_key} {one.space_for(one.problem()).size.total}" for one in operations]
    assert ran.stdout.decode().split("\n")[:-1] == expected
