"""Roles of kernels by what each can do, with the arguments and the failures of their launches.

A kernel knows nothing of search, timing or caches. Adding a backend is one class with `check` and `compile`; what else
a kernel can do is a capability, a small protocol of its own, which those who need it ask for.

Fact used, from Triton 3.6 to 3.9: the host's tensor descriptors, Triton's and Gluon's, are plain objects with the
attributes `base`, `shape`, `strides` and `block_shape`, and a kernel's launch reads them each time.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import functools
import importlib
import inspect
import math
import re
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import dropwhile
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from triton_ops.base import escaped, fingerprint, require
from triton_ops.device import Target
from triton_ops.exceptions import CacheError, DeviceError, KernelTypeError, TritonKernelError, UnsupportedDtypeError
from triton_ops.space import Config, Members
from triton_ops.values import ALIGNMENT_BYTES, ITEM_BYTES, STORED_ALONE, Resources, Status, TensorSpec, item_bytes

_RESOURCES = ("OutOfResources", "OutOfMemoryError")
_COMPILE = (
    "CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct", "PTXASError", "MLIRError",
)  # fmt: skip
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR}
_COMPILER = "triton_ops.backend.triton_compiler"  # imported where something is compiled ahead
_PROCESS = "triton_ops.backend.triton_process"  # imported where something is loaded
_LONGEST_TEXT = 400
_NO_MEANING = re.compile(r"(?<= object) at 0x[0-9a-f]+(?=>)|^Set TORCHDYNAMO_VERBOSE=1 .*", re.MULTILINE)
_LONGEST_TRACE = 8_000
# The code of this package, and that which calls what it is given.
_AROUND = tuple(filter(None, (str(Path(__file__).parents[1]), contextlib.__file__, functools.__file__)))


class CandidateError(Exception):
    """One config failed while it was compiled or loaded, and its trial ends in `status`; the tune goes on."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status

    def __reduce__(self) -> tuple[type[CandidateError], tuple[Status, str]]:
        return type(self), (self.status, str(self.args[0]))

    @classmethod
    def of(cls, error: BaseException, phase: Status) -> CandidateError:
        """`error` as a candidate's failure.

        Told by the exception's class names, so that nothing of Triton or torch need be imported to sort it; an error
        of no known class ends in the status of the phase it happened in.
        """
        if isinstance(error, CandidateError):
            return error
        names = {kind.__name__ for kind in type(error).__mro__}
        status = phase
        if names.intersection(_RESOURCES) or isinstance(error, MemoryError):
            status = Status.RESOURCES
        elif names.intersection(_COMPILE):
            status = Status.COMPILE
        return CandidateError(status, cls.one_line(error))

    @classmethod
    def of_compiler(cls, error: Exception) -> CandidateError | CacheError:
        """The failure of a compilation as the config's, or as that of the disk cache, which every config would have."""
        cache = str(importlib.import_module("triton.knobs").cache.dir)
        if isinstance(error, OSError):
            # The cache's folder may be removed meanwhile; another missing file, as an `ir_override`, is the config's.
            missing = error.errno == errno.ENOENT and str(error.filename or "").startswith(cache)
            if missing or error.errno in _UNWRITABLE:
                message = f"the compiler cannot write its files: {error}; its disk cache is {cache}"
                return CacheError(message, hint="make room there, or name another folder with TRITON_CACHE_DIR")
        return cls.of(error, Status.COMPILE)

    @staticmethod
    def trace_of(error: BaseException) -> str:
        """The trace of a candidate's failure from the first frame of the user's or a library's code on.

        It is empty if there is no such frame. Of a long trace the last 8,000 characters are kept.
        """
        if isinstance(error, CandidateError) and error.__cause__ is not None:
            error = error.__cause__
        trace = traceback.TracebackException.from_exception(error)
        part: traceback.TracebackException | None = trace
        frames = 0
        while part is not None:
            own = dropwhile(lambda frame: frame.filename.startswith(_AROUND), part.stack)
            part.stack = traceback.StackSummary.from_list(list(own))
            frames += len(part.stack)
            part = part.__cause__ or part.__context__
        return "".join(trace.format())[-_LONGEST_TRACE:] if frames else ""

    @staticmethod
    def one_line(error: BaseException) -> str:
        """`Class: message` in one line of at most 400 characters: the first and last lines carry the meaning.

        A line that only points at a place of the line above it, with `^` and `~`, carries none, and neither does the
        address at which an object happens to lie, or torch's advice to set a variable.

        Triton's compiler wraps an error once for each function that it was in, with the place of the call and no
        message; the line is then of the error that was wrapped.
        """
        while str(error).rstrip().endswith("^") and error.__cause__ is not None:
            error = error.__cause__
        lines = [line.strip() for line in _NO_MEANING.sub("", str(error)).splitlines() if line.strip(" \t^~")]
        text = escaped(f"{type(error).__name__}: {' … '.join(dict.fromkeys([*lines[:1], *lines[-1:]]))}".rstrip(": "))
        return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"

    @classmethod
    @contextlib.contextmanager
    def as_error(
        cls, kind: type[TritonKernelError], what: str, hint: str, *kinds: type[BaseException]
    ) -> Iterator[None]:
        """Inside, what code of the user's raises, or only these kinds, is another error: `what`, and it in one line.

        This package's own errors stay.
        """
        caught = kinds or (Exception, SystemExit)
        try:
            yield
        except TritonKernelError:
            raise
        except caught as error:
            raise kind(f"{what} {cls.one_line(error)}", hint=hint) from error


_DESCRIPTOR_PARTS = ("base", "shape", "strides", "block_shape")


def _with_base(descriptor: Any, base: Any) -> Any:
    """A descriptor of its own over `base`: hooks change descriptors, and one must not see what another has changed."""
    duplicate = copy.copy(descriptor)
    duplicate.base = base
    for name in _DESCRIPTOR_PARTS[1:]:
        setattr(duplicate, name, list(getattr(descriptor, name)))
    return duplicate


@dataclass(frozen=True)
class Arguments:
    """The arguments of a kernel, without the values of its config."""

    positional: tuple[Any, ...] = ()
    keyword: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def is_tensor(value: object) -> bool:
        """Tell whether `value` is a torch tensor, and not the class of one, told without importing torch."""
        own = hasattr(value, "data_ptr") and hasattr(value, "untyped_storage") and hasattr(value, "stride")
        return own and not isinstance(value, type)

    @staticmethod
    def is_descriptor(value: object) -> bool:
        """Tell whether `value` is a tensor descriptor made on the host, told without importing Triton."""
        descriptor = hasattr(value, "block_shape") and all(hasattr(value, name) for name in _DESCRIPTOR_PARTS)
        return descriptor and not isinstance(value, type)

    @staticmethod
    def is_array(value: object) -> bool:
        """Tell whether `value` is a NumPy array, told without importing NumPy."""
        return any((kind.__module__, kind.__name__) == ("numpy", "ndarray") for kind in type(value).__mro__)

    @staticmethod
    def required(function: Callable[..., object]) -> list[str]:
        """The names of those that every call of a function gives; none of a builtin, which may not tell."""
        variable = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        with contextlib.suppress(ValueError):
            parameters = inspect.signature(function).parameters.values()
            return [each.name for each in parameters if each.default is each.empty and each.kind not in variable]
        return []

    @classmethod
    def given(cls, args: object, kwargs: object) -> Arguments:
        """The arguments that a caller gave as `args` and `kwargs`; None for no keywords.

        Raises `KernelTypeError` if they are no sequence and no mapping, such as a tensor in place of a tuple that holds
        it.
        """
        if not isinstance(args, Sequence) or isinstance(args, (str, bytes)):
            message = f"args is a {type(args).__name__}; it must be a tuple or a list of arguments"
            raise KernelTypeError(message, hint="write args=(x,)")
        if kwargs is not None and not isinstance(kwargs, Mapping):
            message = f"kwargs is a {type(kwargs).__name__}; it must be a mapping from names to arguments"
            raise KernelTypeError(message, hint='write kwargs={"x": x}')
        return cls(tuple(args), dict(kwargs or {}))

    @staticmethod
    def tensors_in(values: Iterable[Any], leaf: Callable[[Any], bool] = is_tensor) -> Iterator[Any]:
        """The torch tensors in `values`, to any depth; `leaf` says which other values are meant instead."""
        for value in values:
            if leaf(value):
                yield value
            elif isinstance(value, Mapping):
                yield from Arguments.tensors_in(value.values(), leaf)
            elif isinstance(value, (tuple, list)):
                yield from Arguments.tensors_in(value, leaf)
            elif Arguments.is_descriptor(value):
                yield from Arguments.tensors_in((value.base,), leaf)

    @staticmethod
    def mapped(value: Any, change: Callable[[Any], Any], leaf: Callable[[Any], bool] = is_tensor) -> Any:
        """`value` with `change` applied to every leaf in it; containers and descriptors are made anew around them."""
        if leaf(value):
            return change(value)
        if isinstance(value, Mapping):
            return {name: Arguments.mapped(item, change, leaf) for name, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_make"):  # a named tuple
            return value._make(Arguments.mapped(item, change, leaf) for item in value)
        if type(value) in (tuple, list):
            return type(value)(Arguments.mapped(item, change, leaf) for item in value)
        if Arguments.is_descriptor(value):
            return _with_base(value, Arguments.mapped(value.base, change, leaf))
        return value

    def tensors(self) -> Iterator[Any]:
        """The torch tensors in these arguments, also those inside containers and tensor descriptors."""
        yield from self.tensors_in([*self.positional, *self.keyword.values()])

    def synchronize(self) -> None:
        """Wait for the devices that the tensors are on, so that errors of earlier launches are raised."""
        for device in {tensor.device for tensor in self.tensors() if tensor.device.type != "cpu"}:
            require("torch", "waiting for the GPU").cuda.synchronize(device)

    def result(self, name: str) -> Any:
        """The argument of a name as a result: of a tensor descriptor its tensor."""
        value = self.keyword[name]
        return value.base if Arguments.is_descriptor(value) else value

    def map(self, change: Callable[[Any], object], leaf: Callable[[Any], bool] = is_tensor) -> Arguments:
        """These arguments with `change` applied to every tensor, or other leaf; containers are made anew around it."""
        named = {name: self.mapped(value, change, leaf) for name, value in self.keyword.items()}
        return Arguments(tuple(self.mapped(value, change, leaf) for value in self.positional), named)

    def described(self, light: bool = False) -> Arguments:
        """These arguments with every tensor or tensor spec replaced by a tensor without memory.

        With `light` it is a `StandIn`, which needs no torch; NVIDIA's backend takes these.
        """

        def one(value: Any) -> Any:
            stand_in = value if isinstance(value, StandIn) else StandIn.of(value)
            return stand_in if light else stand_in.tensor()

        return self.map(one, lambda value: isinstance(value, (TensorSpec, StandIn)) or Arguments.is_tensor(value))

    @staticmethod
    def check_for_triton(kernel: str, values: Mapping[str, object]) -> None:
        """Raise if an argument of a Triton kernel is an array in the memory of the host, or of a dtype unknown to it.

        That is a `DeviceError`, or an `UnsupportedDtypeError`.
        """
        for name, value in values.items():
            if (dtype := str(getattr(value, "dtype", "")).removeprefix("torch.")) in STORED_ALONE:
                message = f"{kernel} is a Triton kernel, and Triton has no {dtype}, of which {name} is"
                hint = f"pass its bits: {name}.view(torch.uint8)"
                raise UnsupportedDtypeError(message, dtype, [*ITEM_BYTES], name, hint=hint)
        if array := next((name for name, value in values.items() if Arguments.is_array(value)), None):
            raise DeviceError(
                f"{kernel} is a Triton kernel, which takes tensors, and {array} is a NumPy array, which is on the CPU",
                "cuda", "cpu", array, hint=f"give a tensor on a GPU: torch.from_numpy({array}).cuda()",
            )  # fmt: skip

    def by_name(self, kernel: Kernel | CompiledByTriton) -> Arguments:
        """These arguments with those that came by position under their names, as far as they can be passed by name."""
        names = self.positional_names(kernel)
        first = next((place for place, name in enumerate(names) if name is not None), len(names))
        values = {name: value for name, value in zip(names, self.positional, strict=True) if name is not None}
        if len(values) < len(names) - first:  # a starred parameter: what stands before it must stay before it
            return self
        return Arguments(self.positional[:first], {**values, **self.keyword})

    def positional_names(self, kernel: Kernel | CompiledByTriton) -> list[str | None]:
        """The names that positional arguments have for a kernel; None where one cannot be passed by name."""
        count = len(self.positional)
        if count == 0:
            return []
        # `isinstance` of a protocol takes a quarter of a known tune.
        names = list(getattr(kernel, "parameter_names", ()))
        return [*names[:count], *[None] * (count - len(names))]


@dataclass(frozen=True)
class PreparedCall:
    """A launch before which something is done each time, such as filling with zeros; that is never timed."""

    run: Callable[[], Any]
    prepare: Callable[[], None]

    def __call__(self) -> object:
        """Prepare, and launch."""
        self.prepare()
        return self.run()


@dataclass(frozen=True, kw_only=True)
class Executable:
    """A config that can be launched, with any arguments of the dtypes, strides and alignments it was compiled for.

    Attributes:
        bind: From arguments to a call that launches the config with them, and returns what the launch returns; a
            `PreparedCall` if something must be done before each launch. It does no work of the launch: on a CPU every
            sample is taken of a call that was bound anew.
        outputs: Names of the arguments that a launch writes; empty if it returns its result.
        resources: What the compiler made of the config; None where the backend has no compiler.
        compile_s: Seconds that the compiler took; None where the backend has no compiler.
        tf32: Whether the code multiplies in TF32; None where the backend cannot tell.
        narrow_sums: Whether a reduction or scan of the code adds up in 16 bits; None where the backend cannot tell.
        narrow_steps: Whether the code computes on with what it has rounded to 16 bits, such as a product; None where
            the backend cannot tell.
        atomics: Whether the code has atomic operations, so that equal launches may give different bits; None where the
            backend cannot tell.
        key: Names the whole program: machine code, shared memory, grid and plain arguments. Executables of one kernel
            with equal keys do the same, so that one measurement serves both. None where the backend cannot tell.
        compilation: Names what the compiler was given: source, types, alignment, constants and options. A launch with
            arguments of an equal one compiles nothing. None where the backend has no compiler, or cannot tell.
        suspect: Asked where a result is wrong: the compiler's fault that the code may show, in words; empty if none.
    """

    config: Config
    bind: Callable[[Arguments], Callable[[], Any]]
    outputs: tuple[str, ...] = ()
    resources: Resources | None = None
    compile_s: float | None = None
    tf32: bool | None = None
    narrow_sums: bool | None = None
    narrow_steps: bool | None = None
    atomics: bool | None = None
    key: str | None = None
    compilation: str | None = None
    suspect: Callable[[], str] = lambda: ""

    @property
    def machine_code(self) -> str | None:
        """Fingerprint of the machine code; None where it is not known."""
        return self.resources.binary if self.resources else None

    def launch(self, arguments: Arguments) -> Any:
        """Launch once on the current stream; returns what the launch returns."""
        return self.bind(arguments)()


class Kernel(Protocol):
    """A computation that can be launched in several configs."""

    @property
    def name(self) -> str:
        """The kernel's name, which is the same in every process."""

    @property
    def identity(self) -> Mapping[str, str]:
        """Facts that must be equal for a stored winner to hold: fingerprint of the source, version of the compiler."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the arguments that some config writes; empty if every config returns its result.

        A kernel that writes arguments also has `parameter_names`, its parameters in calling order.
        """

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise a typed error if these tunables and arguments cannot be passed together; does no work."""

    def compile(self, config: Config, arguments: Arguments) -> Executable:
        """Compile without launching. Raises `CandidateError` if the config cannot be compiled or loaded."""


@runtime_checkable
class CompilesAtLaunch(Protocol):
    """A kernel whose configs need not be compiled before they are launched."""

    def executable(self, config: Config) -> Executable:
        """A config that is compiled when it is first launched with arguments of a kind."""


@runtime_checkable
class MayCrash(Protocol):
    """A kernel that runs machine code which can end its process or hang; it is tried in a process of its own."""

    @property
    def process_imports(self) -> tuple[str, ...]:
        """Packages that a process imports before it can run the kernel."""


@runtime_checkable
class LaunchesAlone(Protocol):
    """A kernel for a GPU whose call with a config may only ask for the grid and launch."""

    @property
    def alone(self) -> tuple[Any, Callable[[Mapping[str, Any]], Any]] | None:
        """The JIT function that is launched, and its grid; None if this kernel does more."""


_Kernel = TypeVar("_Kernel", bound="CompiledByTriton")


class CompiledByTriton(ABC):
    """A kernel that Triton compiles, of one launch or several."""

    @property
    @abstractmethod
    def interpreted(self) -> bool:
        """Tell whether it runs as Python, as under `TRITON_INTERPRET`, so that there is nothing to compile."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The kernel's name."""

    @property
    @abstractmethod
    def cache_key(self) -> str:
        """Names the source as Triton does; it must be equal in both processes, or a launch finds no binary."""

    @property
    @abstractmethod
    def compile_imports(self) -> str:
        """One of torch's modules if arguments must be torch's tensors; empty where plain stand-ins serve."""

    @property
    @abstractmethod
    def parameter_names(self) -> Sequence[str | None]:
        """The names in calling order; None for a parameter that cannot be passed by name."""

    @property
    def parsed(self) -> Any:
        """The JIT function whose text the free rules read; None if no single one decides, or it is not known which."""
        return None

    def check_python(self, asked: bool) -> None:
        """Raise a `CandidateError` if it is asked to run as Python, and cannot."""
        if asked and not self.interpreted:
            raise CandidateError(Status.COMPILE, f"{self.name} cannot run as Python, as TRITON_INTERPRET asks for")

    @property
    def without_grid(self: _Kernel) -> _Kernel:
        """The same kernel where its grid cannot be sent, or itself where the grid is part of a function."""
        return self

    def extents(self, config: Config, arguments: Arguments) -> Sequence[int] | None:  # noqa: ARG002
        """The extents of a launch's grid; None where no single launch decides, or the grid cannot be told."""
        return None

    @abstractmethod
    def lowered(self, config: Config, arguments: Arguments) -> Sequence[Any]:
        """Triton's compiled kernels of one launch; nothing is loaded or launched.

        Raises `TargetError`, with the reason, where this kernel cannot be compiled without being launched.
        """

    def loaded(self, config: Config, arguments: Arguments) -> tuple[Sequence[Any], dict[str, Any]]:
        """What `lowered` gives, loaded on the device, and what an `Executable` has of it; raises as `compile`."""
        result: tuple[Sequence[Any], dict[str, Any]] = importlib.import_module(_PROCESS).loaded(
            lambda: self.lowered(config, arguments)
        )
        return result

    def launch_parts(self, config: Config, arguments: Arguments) -> Sequence[object] | None:  # noqa: ARG002
        """What a config's launch is beside its code, as grid and plain arguments; None where it is not known."""
        return None

    def program_key(self, config: Config, arguments: Arguments, resources: Resources | None) -> str | None:
        """The name of all that a launch of a compiled config is; None if the machine code or the rest is not known."""
        if resources is None or resources.binary is None or (parts := self.launch_parts(config, arguments)) is None:
            return None
        return fingerprint([resources.binary, resources.shared_bytes, *parts])

    @property
    def process_imports(self) -> tuple[str, ...]:
        """Triton first: it readies itself while torch is imported."""
        return ("triton", "torch")

    def compiler(self, arguments: Arguments, target: Target | None, members: Members) -> Any:
        """Triton's compiler for these arguments; None if the kernel is interpreted, or no GPU is compiled for."""
        if self.interpreted or target is None:
            return None
        return importlib.import_module(_COMPILER).TritonCompiler(self, arguments, target, members)


@dataclass(frozen=True)
class StandIn:
    """The properties of a tensor that specialisation sees; pickles without the tensor's memory.

    For NVIDIA's backend it can stand in for the tensor itself, which needs no torch (`rehearse`). The dtype has its
    long name, the strides are in elements, and the data start `offset_bytes` after a multiple of 16.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    _: KW_ONLY
    offset_bytes: int
    storage_bytes: int

    @classmethod
    def of(cls, tensor: Any) -> StandIn:
        """The stand-in of a tensor, or of the tensor that would be made from a `TensorSpec`."""
        if isinstance(tensor, TensorSpec):
            item = item_bytes(tensor.dtype)
            offset = 0 if tensor.aligned else item
            size = offset + item * _span(tensor.shape, tensor.strides)
            return cls(tensor.dtype, tensor.shape, tensor.strides, offset_bytes=offset, storage_bytes=size)
        dtype = str(tensor.dtype).removeprefix("torch.")
        offset = tensor.data_ptr() % ALIGNMENT_BYTES
        size = tensor.untyped_storage().nbytes()
        return cls(dtype, tuple(tensor.shape), tuple(tensor.stride()), offset_bytes=offset, storage_bytes=size)

    def data_ptr(self) -> int:
        """An address that is aligned as the data are."""
        return self.offset_bytes

    def numel(self) -> int:
        """Elements; grid functions ask for it."""
        return math.prod(self.shape)

    def size(self, axis: int | None = None) -> int | tuple[int, ...]:
        """The extents, or one of them."""
        return self.shape if axis is None else self.shape[axis]

    def stride(self, axis: int | None = None) -> int | tuple[int, ...]:
        """The strides, or one of them."""
        return self.strides if axis is None else self.strides[axis]

    def tensor(self) -> Any:
        """A torch tensor on the `meta` device: no memory at all, whatever its shape."""
        torch = require("torch", "describing tensors to the compiler")
        dtype = getattr(torch, self.dtype)
        offset = self.offset_bytes // dtype.itemsize
        span = offset + _span(self.shape, self.strides)
        room = torch.empty(max(span, self.storage_bytes // dtype.itemsize), dtype=dtype, device="meta")
        return room.as_strided(self.shape, self.strides, offset)


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    return 0 if 0 in shape else 1 + sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))
