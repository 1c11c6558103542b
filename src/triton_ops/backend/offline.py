"""Triton's compiler at work for a target that need not be here, without a GPU context.

A stand-in for the driver answers Triton's one question, what the target is; everything else is the real path: the JIT
specialises the caller's arguments and compiles into the disk cache, under the very key that a launch on such a device
looks up. Tensors need no memory for that: only dtype, strides, alignment and the size of their storage count.

The work of a config's launches is read from what Triton's front end makes of them: their TTIR, grids and operands.
Nothing further is compiled then: a launch takes 20 to 30 ms. TTIR does not depend on launch options such as
`num_warps`.

Facts used, of Triton 3.6 to 3.9: `driver._active`; `JITFunction.device_caches` is keyed by what the driver calls
the current device; a backend's `add_stages` fills a dictionary of stages, of which `ttir` comes first, and `llir` runs
one pass manager that allocates shared memory before `add_to_llvmir`; every launch ends in `JITFunction.run(…, grid=…,
warmup=…)`; `ASTSource.make_ir` has in `signature` each parameter's type, in order, `constexpr` for those that are no
operands of the kernel's function; a tensor descriptor made on the host is followed by its extents and strides among the
operands.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import operator
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from triton_ops import kernel_ir
from triton_ops.backend.operations import Operation
from triton_ops.backend.origins import Layers
from triton_ops.backend.roles import Arguments, CandidateError, CompiledByTriton
from triton_ops.backend.taken import replaced
from triton_ops.base import cached_property, require
from triton_ops.device import Target
from triton_ops.exceptions import TargetError, TritonKernelError
from triton_ops.space import Config, ConfigSpace
from triton_ops.values import ITEM_BYTES, Problem

Judge = Callable[[int, str], None]


class TargetDriver:
    """A driver that knows its target, and has no device; torch's device of it is `place`."""

    def __init__(self, target: Target, name: str, place: str = "meta") -> None:
        compiler = importlib.import_module("triton.backends.compiler")
        self._target = compiler.GPUTarget(target.kind, target.vendor.triton_arch(target.arch), target.warp_size)
        self._name, self._place, self.target, self.utils = name, place, target, self

    def get_current_target(self) -> object:
        """The target to compile for."""
        return self._target

    def get_current_device(self) -> str:
        """A name: the kernels that a process holds for one target do not mix with those for another."""
        return self._name

    def get_current_stream(self, _device: object) -> int:
        """Nothing is launched, so that any number serves."""
        return 0

    def get_device_properties(self, _device: object = 0) -> dict[str, int]:
        """The limits of the target, by the names that they have in Triton's utilities."""
        limits = self.target.limits
        properties = {
            "multiprocessor_count": self.target.units, "max_shared_mem": self.target.shared_bytes_per_block,
            "max_num_regs": None if limits is None else limits.registers, "warpSize": self.target.warp_size,
        }  # fmt: skip
        return {name: number for name, number in properties.items() if number is not None}

    def get_active_torch_device(self) -> object:
        """The device of new tensors; on `meta` they have no memory."""
        return require("torch", "naming a device").device(self._place)

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Triton's launcher asks for C's name of a type; no launcher is used."""
        return ty


@contextlib.contextmanager
def pretending(target: Target, name: str = "", place: str = "meta") -> Iterator[None]:
    """Have Triton compile for `target` in the whole process, inside of the block, where nothing can be launched.

    What was compiled under another `name`, by default the target's, is not found again in this process's memory.
    The GPU is `place` to torch.
    """
    driver = require("triton", "compiling for a target").runtime.driver
    # What was there is None until something asked for it: asking looks for a device, and fails where is none.
    with replaced(driver, {"_active": TargetDriver(target, name or target.arch, place)}):
        yield


def option_names(target: Target) -> frozenset[str]:
    """Every launch option that Triton's backend for `target` has."""
    backend = target.vendor.backend
    return frozenset(getattr(importlib.import_module(backend.module), backend.options).__dataclass_fields__)


@contextlib.contextmanager
def never_cached() -> Iterator[None]:
    """Take nothing from the disk cache, inside of the block."""
    compilation = importlib.import_module("triton.knobs").compilation
    with compilation.scope():
        compilation.always_compile = True
        yield


@contextlib.contextmanager
def with_judge(target: Target, judge: Judge | None) -> Iterator[None]:
    """Ask `judge` between the TTGIR and LLVM. It is no part of the cache's key: the result is the same."""
    if judge is None:
        yield
        return
    backend = target.vendor.backend
    native = getattr(importlib.import_module(backend.module), backend.passes).passes.ttgpuir

    def change(stages: dict[str, Any]) -> None:
        to_llvm = stages["llir"]

        def judged(source: Any, metadata: dict[str, Any]) -> object:
            text = str(source)
            judge(_shared_bytes(text, lambda copy: to_llvm(copy, dict(metadata)), native, source.context), text)
            return to_llvm(source, metadata)

        stages["llir"] = judged

    with stages_changed(target, change):
        yield


@contextlib.contextmanager
def stages_changed(target: Target, change: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Let `change` replace stages of the target's backend, by name, before each compilation inside of the block."""
    names = target.vendor.backend
    backend = getattr(importlib.import_module(names.module), names.compiler)
    original = backend.add_stages

    def add_stages(self: object, stages: dict[str, Any], options: object, language: object) -> None:
        original(self, stages, options, language)
        change(stages)

    with replaced(backend, {"add_stages": add_stages}):
        yield


class LoweredError(Exception):
    """Ends a compilation once it has gone as far as is asked for; its argument is what is known then."""


def _shared_bytes(text: str, to_llvm: Callable[[Any], object], native: object, context: object) -> int:
    """Runs on a copy what the backend runs before it translates to LLVM, whatever that is in this version."""
    ir = importlib.import_module("triton._C.libtriton").ir
    # Triton 3.6 to 3.9 parse a module from a file only.
    with tempfile.NamedTemporaryFile("w", suffix=".ttgir") as file:
        file.write(text)
        file.flush()
        copy = ir.parse_mlir_module(file.name, context)
    # Triton does so with each module that it parses: it keeps the context alive, in whose memory the module lies.
    copy.context = context

    def reached(manager: object, *_: object) -> None:
        raise LoweredError(manager)  # which has the passes that allocate

    try:
        with replaced(native, {"add_to_llvmir": reached}):
            to_llvm(copy)
    except LoweredError as found:
        found.args[0].run(copy, "allocate_shared_memory")
    return int(copy.get_int_attr("ttg.shared") or 0)


_CONSTANT = "constexpr"
_MOST_CONFIGS = 8  # of an operation, whose ways through a kernel are lowered
_MOST_LAUNCHES = 64  # a function that launches more is taken for one without an end
Contents = Mapping[str, Sequence[int]]


@dataclass(frozen=True, eq=False)
class LaunchedKernel:
    """One launch, lowered to TTIR; the signature has what Triton specialises each parameter to, in order."""

    function: Any
    arguments: Mapping[str, Any]
    grid: Any
    signature: Mapping[str, Any]
    text: str

    @staticmethod
    def of_config(
        kernel: CompiledByTriton, config: Config, arguments: Arguments, target: Target
    ) -> list[LaunchedKernel]:
        """The launches of one config; 20 to 50 ms for each.

        Raises whatever the front end and the caller's own functions raise.
        """
        launches: list[LaunchedKernel] = []

        def stop(stages: dict[str, Any]) -> None:
            if (lower := stages.get("ttir")) is not None:
                stages["ttir"] = lambda source, metadata: _stop(lower(source, metadata))

        with (
            pretending(target, f"{target.arch}, read"),
            stages_changed(target, stop),
            never_cached(),
            _lowering_launches(launches),
        ):
            kernel.lowered(config, arguments)
        return launches

    @classmethod
    def of_operation(cls, operation: Operation, target: Target) -> Iterator[tuple[Config, LaunchedKernel]]:
        """The launches of an operation at its first problem, each with its config; none if Triton compiles no kernel.

        The default config comes first, then one for each other value of tunables that are texts or truth values: these
        choose between ways through the kernel. What the front end refuses is left out.
        """
        kernel, problem = operation.kernel, _first_problem(operation)
        if not isinstance(kernel, CompiledByTriton) or kernel.interpreted or problem is None:
            return
        arguments = Arguments(keyword=dict(problem.arguments)).described(light=not kernel.compile_imports)
        space = operation.space_for(problem)
        for config in _ways(space):
            launches: list[LaunchedKernel] = []
            with contextlib.suppress(Exception):  # whatever the front end raises
                launches = cls.of_config(kernel, config.with_members(space.members), arguments, target)
            yield from ((config, one) for one in launches)

    @property
    def blocks(self) -> tuple[int, int, int]:
        """The programs along each axis of its grid; raises UntoldError where the author's code does not tell."""
        try:
            grid = self.grid(self.arguments) if callable(self.grid) else self.grid
            across, down, deep = (*map(operator.index, grid), 1, 1)[:3]
        except Exception as error:
            raise kernel_ir.UntoldError(f"its grid cannot be told: {CandidateError.one_line(error)}") from error
        return across, down, deep

    def numbers(self, names: Iterable[str]) -> dict[str, Any]:
        """Its arguments of these names, and its grid under `PROGRAMS`; raises as `blocks`."""
        return {name: self.blocks if name == kernel_ir.PROGRAMS else self.arguments.get(name) for name in names}

    @cached_property
    def ones(self) -> frozenset[str]:
        """The plain numbers that Triton takes as constants, since they are 1."""
        constant = {param.name for param in self.function.params if param.is_constexpr}
        plain = (name for name, kind in self.signature.items() if kind == _CONSTANT and name not in constant)
        return frozenset(name for name in plain if type(self.arguments.get(name)) is int)

    @cached_property
    def types(self) -> dict[str, str]:
        """The type of each parameter, in order: of plain numbers that of a number, `constexpr` for other constants."""
        return {name: "i32" if name in self.ones else str(kind) for name, kind in self.signature.items()}

    @property
    def constants(self) -> dict[str, Any]:
        """The values of those parameters whose type is `constexpr`."""
        return {name: self.arguments.get(name) for name, kind in self.types.items() if kind == _CONSTANT}


def _first_problem(operation: Operation) -> Problem | None:
    """The problem that it is called with by default, or else the first named one that it takes."""
    for shape, dtype in ((None, None), *operation.problems.values()):
        with contextlib.suppress(TritonKernelError):
            return operation.problem(shape, dtype)
    return None


def _ways(space: ConfigSpace) -> Iterator[Config]:
    default = space.default_config
    yield default
    pairs = ((name, value) for name, tunable in space.tunables.items() for value in tunable.values)
    ways = ((name, value) for name, value in pairs if isinstance(value, (str, bool)) and value != default[name])
    configs = (_nearest(space, default, name, value) for name, value in ways)
    yield from itertools.islice(filter(None, configs), _MOST_CONFIGS - 1)


def _nearest(space: ConfigSpace, default: Config, name: str, value: Any) -> Config | None:
    """A valid config with a wanted value: the default else, or the first that the space has."""
    with contextlib.suppress(TritonKernelError):
        others = space.with_values({name: [value]}) if space.listed is None else space
        several = itertools.chain([Config({**default, name: value})], others)
        return next((one for one in several if one[name] == value and space.why_not(one) is None), None)
    return None


def kernel_work(
    kernel: CompiledByTriton, config: Config, arguments: Arguments, target: Target, contents: Contents | None = None
) -> kernel_ir.KernelWork:
    """The work of one config, launch by launch; why it cannot be told is part of it, and never an error.

    `contents` has elements of tensors of whole numbers that are known, by the parameter's name. 20 to 50 ms a launch.
    """
    try:
        launches = LaunchedKernel.of_config(kernel, config, arguments, target)
    except TargetError as error:
        return kernel_ir.KernelWork(silent=error.message)
    except Exception as error:  # noqa: BLE001 - whatever the front end raises; a compilation will say so
        return kernel_ir.KernelWork(silent=f"Triton's front end refuses it: {CandidateError.one_line(error)}")
    if not launches:
        return kernel_ir.KernelWork(silent="it launches no kernel that Triton's front end lowers to TTIR")
    try:
        return kernel_ir.KernelWork(tuple(_work(launch, contents or {}) for launch in launches))
    except kernel_ir.UntoldError as error:
        return kernel_ir.KernelWork(silent=str(error))


def _work(launch: LaunchedKernel, contents: Contents) -> Any:
    operands = tuple(
        operand
        for name, kind in launch.signature.items()
        for operand in _operands(name, kind, launch.arguments.get(name), contents.get(name))
    )
    return kernel_ir.LaunchWork.of(launch.text, launch.blocks, operands)


def _stop(module: object) -> None:
    raise LoweredError(module.str_nodebug() if hasattr(module, "str_nodebug") else str(module))


@contextlib.contextmanager
def _lowering_launches(launches: list[LaunchedKernel]) -> Iterator[None]:
    """Have each launch lowered to TTIR, kept in `launches`, and stopped there, inside of the block."""
    jit = importlib.import_module("triton.runtime.jit").JITFunction
    source = importlib.import_module("triton.compiler.compiler").ASTSource
    run, make_ir = jit.run, source.make_ir
    signatures: list[Mapping[str, Any]] = []

    def kept(self: Any, *args: Any, **kwargs: Any) -> object:
        signatures.append(self.signature)
        return make_ir(self, *args, **kwargs)

    def launched(self: object, *args: object, grid: object, **kwargs: object) -> None:
        if len(launches) >= _MOST_LAUNCHES:
            raise TargetError(f"it launches more than {_MOST_LAUNCHES} kernels")
        try:
            run(self, *args, grid=grid, **{**kwargs, "warmup": True})
        except LoweredError as enough:
            # The last signature is this launch's: `make_ir` comes before the stages, of which the first has ended it.
            launches.append(LaunchedKernel(self, _bind(self, args, kwargs), grid, signatures[-1], enough.args[0]))

    with replaced(jit, {"run": launched}), replaced(source, {"make_ir": kept}):
        yield


@contextlib.contextmanager
def launches_seen() -> Iterator[list[LaunchedKernel]]:
    """What launches that are compiled inside of the block are given; their texts are not kept."""
    jit = importlib.import_module("triton.runtime.jit").JITFunction
    run, launches = jit.run, list[LaunchedKernel]()

    def seen(self: Any, *args: Any, grid: Any, **kwargs: Any) -> Any:
        launches.append(LaunchedKernel(self, _bind(self, args, kwargs), grid, {}, ""))
        return run(self, *args, grid=grid, **kwargs)

    with replaced(jit, {"run": seen}):
        yield launches


def _bind(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    keywords = {name: value for name, value in kwargs.items() if name in function.arg_names}
    return {**Layers.defaults_of(function), **dict(zip(function.arg_names, args, strict=False)), **keywords}


def _operands(name: str, kind: object, value: object, content: Sequence[int] | None) -> Iterator[kernel_ir.Operand]:
    if isinstance(kind, (tuple, list)):
        parts = list(value) if isinstance(value, (tuple, list)) else [None] * len(kind)
        for at, (inner, part) in enumerate(zip(kind, parts, strict=False)):
            yield from _operands(f"{name}[{at}]", inner, part, None)
    elif kind == _CONSTANT:
        return
    elif str(kind).startswith("tensordesc"):
        yield from _descriptor(name, value)
    elif hasattr(value, "data_ptr"):
        numbers = None
        if content is not None:
            numbers = require("numpy", "numbers in a kernel's arguments").asarray(content, dtype="int64")
        yield kernel_ir.Operand(name=name, bytes=_span(value), content=numbers)
    else:
        yield kernel_ir.Operand(name=name, number=int(value) if isinstance(value, int) else None)


def _descriptor(name: str, value: Any) -> Iterator[kernel_ir.Operand]:
    """A descriptor, then its extents and strides, as they follow it among the operands."""
    extents, strides = (tuple(int(n) for n in getattr(value, what)) for what in ("shape", "strides"))
    item = ITEM_BYTES.get(str(value.base.dtype).removeprefix("torch."), 0)
    reach = 1 + sum((extent - 1) * stride for extent, stride in zip(extents, strides, strict=True))
    span = max(_span(value.base), min(prod(extents), reach) * item)  # one may show two tensors, at a stride apart
    yield kernel_ir.Operand(name=name, bytes=span, strides=strides, extents=extents)
    for number in (*extents, *strides):
        yield kernel_ir.Operand(name=name, number=number)


def _span(tensor: object) -> int:
    """Bytes of memory that a tensor spans; 0 if it does not tell."""
    if hasattr(tensor, "storage_bytes"):
        return int(tensor.storage_bytes)
    inner: Callable[[], Any] | None = getattr(tensor, "untyped_storage", None)
    return 0 if inner is None else int(inner().nbytes())
