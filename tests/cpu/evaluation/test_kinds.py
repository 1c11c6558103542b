"""Every kind of Triton kernel is compiled for a GPU that is not here, as it would be launched there."""

from __future__ import annotations

import contextvars
import importlib
import sys
import textwrap
from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from tests import kinds  # noqa: E402
from triton_ops import (  # noqa: E402
    ConfigCollisionError,
    DeviceError,
    FunctionKernel,
    KernelTypeError,
    LauncherKernel,
    ShapeMismatchError,
    TargetError,
    TensorSpec,
    TritonKernel,
    tune,
)
from triton_ops.backend import Arguments, ArgumentSet, Packed, PreparedCall, ScratchAllocator, TritonCompiler  # noqa: E402
from triton_ops.compilation import (  # noqa: E402
    CompilePool,
)
from triton_ops.device import Target  # noqa: E402
from triton_ops.evaluation import Subject  # noqa: E402
from triton_ops.evaluation.station import Assignment  # noqa: E402
from triton_ops.request import TuneProblem  # noqa: E402
from triton_ops.space import Config, ConfigSpace  # noqa: E402
from triton_ops.values import Status  # noqa: E402

pytestmark = [pytest.mark.triton, pytest.mark.usefixtures("shared_fork_server")]


def parts(target, configs):
    return TuneProblem(target=target, space=configs).parts


TARGET = replace(Target.named("sm_90"), units=132)
MATRIX = TensorSpec((kinds.ROWS, kinds.COLUMNS), "bfloat16")
VECTOR = TensorSpec((1000,), "float32")
NUMBER = TensorSpec((1,), "float32", fill="zeros")
COPY = TritonKernel(
    kinds.copy_descriptors,
    kinds.row_blocks,
    outputs=("out",),
    descriptors={"x": ("BLOCK", kinds.COLUMNS), "out": lambda meta: (meta["BLOCK"], kinds.COLUMNS)},
)


def ahead(kernel, **arguments):
    return TritonCompiler(kernel, Arguments(keyword=arguments).described(), TARGET)


def sent(kernel, **arguments):
    """The same, after it went as bytes to where it is compiled."""
    return TritonCompiler(kernel, Arguments(keyword=arguments), TARGET).pack().load()


def test_descriptors_follow_the_config():
    given = {"x": MATRIX, "out": MATRIX}
    for size in (32, 64):
        blocks = ahead(COPY, **given).built(Config(BLOCK=size))[0].metadata["tensordesc_meta"]
        assert [one["block_size"][0] for one in blocks] == [size, size]
    keys = {sent(COPY, **given).compile(Config(BLOCK=size)).resources.binary for size in (32, 64)}
    assert len(keys) == 2


def test_a_hook_of_triton_configs_sets_the_blocks_and_leaves_the_callers_descriptors_alone():
    x = torch.zeros(kinds.ROWS, kinds.COLUMNS, dtype=torch.bfloat16)
    mine = {name: TensorDescriptor.from_tensor(x.clone(), [1, kinds.COLUMNS]) for name in ("x", "out")}
    configs = [triton.Config({"BLOCK": size}, num_warps=4, pre_hook=kinds.set_blocks) for size in (32, 64)]
    kernel, space = parts(TritonKernel(kinds.copy_descriptors, kinds.row_blocks, outputs=("out",)), configs)
    request = TuneProblem(target=kernel, kwargs=mine, space=space).request()
    assert [config["BLOCK"] for config in request.space] == [32, 64]
    assert "block_shape 1x128" in request.problem["x"]
    loaded = TritonCompiler(kernel, Arguments(keyword=mine), TARGET).pack().load()
    for config in request.space:
        (result,) = loaded.built(config)
        assert {one["block_size"][0] for one in result.metadata["tensordesc_meta"]} == {config["BLOCK"]}
    assert [one.block_shape for one in mine.values()] == [[1, kinds.COLUMNS]] * 2


def test_private_copies_poison_and_results_reach_the_tensor_of_a_descriptor():
    x = torch.ones(4, 8)
    given = ArgumentSet(Arguments(keyword={"out": TensorDescriptor.from_tensor(x, [1, 8])}), ("out",))
    given.poison(0)
    assert given.arguments.result("out").isnan().all()
    assert x.eq(1).all()
    assert given.arguments.keyword["out"].block_shape == [1, 8]
    given.arguments.result("out").untyped_storage()[0] = 1
    assert given.stray_writes() is not None, "the first byte of its storage is a canary"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (TensorSpec((256, 100), "bfloat16"), "100 elements are 200 bytes"),
        (TensorSpec((128, 256), "bfloat16", (1, 128)), "the last one must be 1"),
        (TensorSpec((256, 128), "bfloat16", aligned=False), "does not start at a multiple of 16 bytes"),
        (TensorSpec((2,) * 6, "float64"), "and its block shape"),
    ],
)
def test_a_tensor_that_no_descriptor_takes_is_one_error_before_any_work(spec, said):
    with pytest.raises(ShapeMismatchError, match=said):
        TuneProblem(
            target=COPY, kwargs={"x": spec.create_tensor(), "out": MATRIX.create_tensor()}, space={"BLOCK": [32]}
        ).request().checked()


def test_strides_of_descriptors_that_a_kernel_makes_are_checked_too():
    kernel = TritonKernel(kinds.copy_in_kernel, kinds.row_blocks, outputs=("out",))
    given = {"x": MATRIX.create_tensor(), "out": MATRIX.create_tensor(), "rows": 256, "WIDTH": 128}
    with pytest.raises(DeviceError):  # nothing else is wrong
        TuneProblem(target=kernel, kwargs={**given, "stride": 128}, space={"BLOCK": [32]}).request().checked()
    with pytest.raises(ShapeMismatchError, match=r"x of .*: 100 elements are 200 bytes"):
        TuneProblem(target=kernel, kwargs={**given, "stride": 100}, space={"BLOCK": [32]}).request().checked()


def test_a_rule_wants_a_tensor():
    mine = TensorDescriptor.from_tensor(MATRIX.create_tensor(), [32, 128])
    with pytest.raises(KernelTypeError, match="pass the tensor itself"):
        TuneProblem(
            target=COPY, kwargs={"x": mine, "out": MATRIX.create_tensor()}, space={"BLOCK": [32]}
        ).request().checked()


def test_a_descriptor_whose_strides_were_changed_is_one_error():
    mine = TensorDescriptor.from_tensor(MATRIX.create_tensor(), [32, 128])
    mine.strides = [100, 1]
    kernel = TritonKernel(kinds.copy_descriptors, kinds.row_blocks)
    with pytest.raises(ShapeMismatchError, match="200 bytes"):
        TuneProblem(target=kernel, kwargs={"x": mine, "out": mine}, space={"BLOCK": [32]}).request().checked()


def test_a_kernel_that_asks_for_memory_finds_an_allocator_and_the_users_own_wins():
    variable = importlib.import_module("triton.runtime._allocation")._allocator

    def mine(size, alignment, stream):
        return size, alignment, stream

    def looked():
        assert ScratchAllocator.packed() is None
        result = ScratchAllocator.around(variable.get)()
        assert type(variable.get()).__name__ == "NullAllocator", "it is there for the launch only"
        triton.set_allocator(mine)
        return result, ScratchAllocator.around(variable.get)(), ScratchAllocator.packed()

    default, own, packed = contextvars.copy_context().run(looked)
    assert default.__module__ == "triton_ops.backend.triton_process"
    assert own is mine

    def taken():
        ScratchAllocator.take(packed)
        return variable.get()(1, 2, 3)

    assert contextvars.copy_context().run(taken) == (1, 2, 3)
    kernel = TritonKernel(kinds.copy_in_kernel, kinds.row_blocks, outputs=("out",))
    built = ahead(kernel, x=MATRIX, out=MATRIX, rows=256, stride=128, WIDTH=128).built(Config(BLOCK=32))[0]
    assert built.metadata["global_scratch_size"] > 0


@pytest.mark.parametrize("options", [{"reset_to_zero": ("total",)}, {"pre_hook": kinds.zero_total}])
def test_what_a_config_needs_before_a_launch_is_done_each_time_and_not_timed(options):
    kernel = TritonKernel(kinds.add_up, kinds.flat_blocks, outputs=("total",), **options)
    given = Arguments(keyword={"x": torch.ones(8), "total": torch.full((1,), 5.0), "n": 8})
    subject = Subject(ArgumentSet(given, ("total",)), lambda _: 3)
    executable = kernel.executable(Config(BLOCK=8))
    assert isinstance(executable.bind(given), PreparedCall)
    assert given.keyword["total"] == 5, "to bind changes nothing"
    launch = subject.launch(executable)
    launch.reset()
    assert subject.arguments.keyword["total"] == 0
    assert launch.others == ()
    assert subject.further(executable) == []
    plain = TritonKernel(kinds.add_up, kinds.flat_blocks, outputs=("total",))
    assert plain.identity != kernel.identity
    config = Config(BLOCK=8)
    assert sent(kernel, x=VECTOR, total=NUMBER, n=1000).compile(config).launchable
    assert kernel.program_key(config, ahead(kernel, x=VECTOR, total=NUMBER, n=1000).arguments, None) is None


def test_configs_with_different_hooks_each_call_their_own():
    called = []
    hooks = [lambda values: called.append(("a", values["BLOCK"])), lambda values: called.append(("b", values["BLOCK"]))]
    configs = [triton.Config({"BLOCK": 8 << place}, pre_hook=hook) for place, hook in enumerate([*hooks, None])]
    kernel = TritonKernel(kinds.add_up, kinds.flat_blocks).with_configs(configs)
    for config in ConfigSpace.from_user(parts(TritonKernel(kinds.add_up, kinds.flat_blocks), configs)[1]):
        kernel.pre_hook({"x": None, **config})
    assert called == [("a", 8), ("b", 16)]
    assert "unknown" not in kernel.identity, "what calls the hooks refers to nothing but them"
    own = replace(kernel, pre_hook=lambda values: called.append(("own", values["BLOCK"])))
    own.with_configs(configs).pre_hook({"x": None, "BLOCK": 16})
    assert called[2:] == [("b", 16), ("own", 16)], "a config's hook comes before the kernel's own, as in Triton"
    assert kernel.with_configs([]).pre_hook is kernel.pre_hook
    same = [triton.Config({"BLOCK": size}, pre_hook=hooks[0]) for size in (8, 16)]
    own.with_configs(same).pre_hook({"x": None, "BLOCK": 64})
    assert called[4:] == [("a", 64), ("own", 64)], "a hook of all configs is called for one that is not listed, too"
    with pytest.raises(KernelTypeError, match="no Triton kernel"):
        parts(lambda BLOCK: BLOCK, configs)


def test_code_that_overrides_the_compilers_is_used_and_counts_by_its_content(tmp_path):
    kernel = TritonKernel(kinds.doubled, kinds.flat_blocks, outputs=("out",))
    given = {"x": VECTOR, "out": VECTOR, "n": 1000}
    plain = ahead(kernel, **given).built(Config(BLOCK=128))[0]
    file = tmp_path / "mine.ptx"
    file.write_text(plain.assembly.replace(".version", "// mine\n.version", 1))
    configs = [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 128}, ir_override=str(file))]
    taken, space = parts(kernel, configs)
    assert taken.overrides == (str(file),)
    overriding = ConfigSpace.from_user(space)
    assert [config["ir_override"] for config in overriding] == [None, str(file)]
    plainly, mine = (ahead(taken, **given).built(config)[0] for config in overriding)
    assert "// mine" in mine.assembly
    assert "// mine" not in plainly.assembly
    before = taken.identity
    file.write_text("other")
    assert taken.identity != before != kernel.identity
    assert ahead(taken, **given).compile(Config({**list(overriding)[1], "num_warps": 8})).status is Status.COMPILE
    assert parts(kernel, {"BLOCK": [128], "ir_override": [None, str(file)]})[0].overrides == (str(file),)


def test_what_is_restored_is_no_output():
    with pytest.raises(KernelTypeError, match="is an output and is restored"):
        TritonKernel(kinds.add_up, kinds.flat_blocks, outputs=("total",), restore_value=("total",))
    with pytest.raises(KernelTypeError, match="no parameter nix to be reset"):
        TritonKernel(kinds.add_up, kinds.flat_blocks, reset_to_zero=("nix",))


def test_tuples_none_strings_dtypes_and_constexpr_objects_are_arguments():
    x = torch.ones(1000)
    given = {
        "parts": (x, x.clone(), 3), "out": x.clone(), "n": 1000, "nothing": None, "kind": "scaled",
        "dtype": tl.float32, "factor": tl.constexpr(2),
    }  # fmt: skip
    kernel = TritonKernel(kinds.mixed, kinds.flat_blocks, outputs=("out",))
    problem = TuneProblem(target=kernel, kwargs=given).request().problem
    assert problem["dtype"] == "dtype fp32"
    assert problem["factor"] == "constexpr constexpr[2]"
    assert "1000 float32" in problem["parts"]
    for options in ({}, {"num_ctas": 2}, {"maxnreg": 32}):
        result = sent(kernel, **given).compile(Config(BLOCK=128, num_warps=4, **options))
        assert (result.status, result.reason) == (Status.OK, "")
    assert result.resources.registers <= 32
    built = sent(kernel, **given).built(Config(BLOCK=128, num_ctas=2))[0]
    assert built.metadata["num_ctas"] == 2


def test_heuristics_and_gluon_kernels_are_sent_and_compiled():
    for function in (kinds.doubled, kinds.gluon_copy):
        kernel = TritonKernel(function, kinds.flat_blocks, outputs=("out",))
        assert Packed.loaded(Packed.of(kernel).content).cache_key == kernel.cache_key
        result = sent(kernel, x=VECTOR, out=VECTOR, n=1000).compile(Config(BLOCK=256, num_warps=2))
        assert (result.status, result.reason) == (Status.OK, "")
        assert kernel.identity["source"]


def test_kernels_of_an_installed_package_go_by_name_unless_a_decorator_hides_them(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "some_kernels"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "add.py").write_text(
        textwrap.dedent(
            """
            import triton
            import triton.language as tl

            @triton.jit
            def one(x, out, n, BLOCK: tl.constexpr):
                at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

            @triton.autotune([triton.Config({"BLOCK": 128})], key=["n"])
            @triton.jit
            def two(x, out, n, BLOCK: tl.constexpr):
                at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                tl.store(out + at, tl.load(x + at, mask=at < n) + 2, mask=at < n)
            """
        )
    )
    monkeypatch.syspath_prepend(str(package.parent))
    module = importlib.import_module("some_kernels.add")
    try:
        for function in (module.one, module.two.fn):
            kernel = TritonKernel(function, kinds.flat_blocks, outputs=("out",))
            result = sent(kernel, x=VECTOR, out=VECTOR, n=1000).compile(Config(BLOCK=128))
            assert (result.status, result.reason) == (Status.OK, "")
        assert Packed.of(module.one, by_value=True).imports >= {"some_kernels"}
    finally:
        for name in ("some_kernels.add", "some_kernels"):
            del sys.modules[name]


TWO = LauncherKernel(kinds.sum_in_two, outputs=("out",))
SUM = {"x": VECTOR, "out": NUMBER}


def test_every_launch_of_a_launcher_is_compiled_in_a_process_without_a_gpu():
    with CompilePool(TritonCompiler(TWO, Arguments(keyword=SUM), TARGET), workers=1) as pool:
        result = pool.submit(Config(BLOCK=128, num_warps=4)).result()
    assert (result.status, result.reason) == (Status.OK, "")
    assert result.launch is None
    small, large = (ahead(TWO, **SUM).built(Config(BLOCK=size, num_warps=4)) for size in (128, 512))
    assert [one.metadata["name"] for one in small] == ["partial_sums", "last_sum"]
    assert result.resources.binary not in {one.key for one in small}
    assert small[1].key != large[1].key, "the shape of the scratch follows the config"


def test_a_launcher_that_cannot_be_run_ahead_says_why():
    kernel = LauncherKernel(kinds.sum_that_looks, outputs=("out",))
    with pytest.raises(TargetError, match=r"cannot be run without computing: RuntimeError: Tensor\.item"):
        ahead(kernel, **SUM).compile(Config(BLOCK=128, num_warps=4))
    with CompilePool(TritonCompiler(kernel, Arguments(keyword=SUM), TARGET), workers=1) as pool:
        future = pool.submit(Config(BLOCK=128, num_warps=4))
        with pytest.raises(TargetError, match=r"Tensor\.item"):
            future.result()


@pytest.mark.skipif(torch.cuda.is_available(), reason="where there is a GPU, a launcher may move its tensors")
def test_tensors_on_a_cpu_for_a_launcher_are_one_error_where_there_is_no_gpu(tmp_path):
    with pytest.raises(DeviceError, match="launches Triton kernels, which run on a GPU, and there is none: "):
        tune(TWO, kwargs={"x": torch.ones(300), "out": torch.ones(1)}, space={"BLOCK": [128, 256]}, cache_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_launcher_that_launches_nothing_ends_as_runtime():
    kernel = LauncherKernel(kinds.sum_of_torch, outputs=("out",))
    result = ahead(kernel, **SUM).compile(Config(BLOCK=128, num_warps=4))
    assert result.status is Status.RUNTIME
    assert "launches no Triton kernel" in result.reason


def test_a_launcher_may_ask_the_device_that_is_compiled_for():
    kernel = LauncherKernel(kinds.sum_on_all_units, outputs=("out",))
    built = ahead(kernel, **SUM).built(Config(BLOCK=128))
    assert len(built) == 2
    unknown = TritonCompiler(kernel, Arguments(keyword=SUM).described(), Target.named("sm_90"))
    with pytest.raises(TargetError, match="multi_processor_count is not known"):
        unknown.built(Config(BLOCK=128))
    assert not torch.cuda.is_available()


def test_a_launcher_is_checked_before_any_work():
    with pytest.raises(KernelTypeError, match="no function that launches one"):
        LauncherKernel(kinds.add_up)
    with pytest.raises(KernelTypeError, match="not callable"):
        LauncherKernel(3)
    with pytest.raises(KernelTypeError, match="no parameter nix"):
        LauncherKernel(kinds.sum_in_two, outputs=("nix",))
    given = {"x": VECTOR.create_tensor(), "out": NUMBER.create_tensor()}
    with pytest.raises(ConfigCollisionError):
        TuneProblem(target=TWO, kwargs={**given, "BLOCK": 8}, space={"BLOCK": [8]}).request().checked()


def imported_for(kernel, *specs):
    """The packages that a worker imports before it loads a task, whose problem has these tensors."""
    problem = SimpleNamespace(specs=specs)
    return Assignment.imports.fget(SimpleNamespace(kernel=kernel, originals=None, problem=problem))


def test_a_worker_imports_what_a_dry_run_needs_with_the_task():
    assert imported_for(TWO) == (TWO.compile_imports,) != ()
    assert imported_for(COPY) == ()
    assert imported_for(FunctionKernel(kinds.sum_of_torch)) == ()
    assert imported_for(FunctionKernel(kinds.sum_of_torch), "a tensor") == ("torch",)
