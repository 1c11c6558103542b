"""Operations of several launches: a function that launches kernels is compiled ahead and timed as one candidate.

Tensors are torch's of the device `meta`: they have shapes, dtypes, strides and alignment, and no memory. To the
function they say that they are on the GPU. A function that reads a tensor's values, as `.item()` does, cannot be run
so.

Facts used: from Triton 3.6 to 3.9 every launch, also through decorators, ends in `JITFunction.run(…, grid=…,
warmup=…)`, which compiles without launching if `warmup` is true. A function mode of torch is asked for every function
and every attribute of tensors.

A function that launches kernels often adds up what they have left. On a tensor without memory torch computes the shape
of such a sum with its reference implementations, whose first use imports 485 modules, SymPy among them: a third of a
second with bytecode, one or two seconds without, in every process. The shape of a reduction needs none of it.

Facts used, of torch 2.6 to 2.13: reductions along axes and `…_like` take the import, `new_empty`, views and copies do
not; a reduction of a contiguous tensor is contiguous, and a sum of whole numbers or booleans is int64.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from types import FunctionType, SimpleNamespace
from typing import Any

from triton_ops.backend.callables import FunctionKernel, Source
from triton_ops.backend.offline import pretending
from triton_ops.backend.origins import Home, Layers, function_layers, is_triton
from triton_ops.backend.portable import settled
from triton_ops.backend.reader import names_in, used_values
from triton_ops.backend.roles import Arguments, CandidateError, CompiledByTriton, Executable
from triton_ops.backend.taken import Take, functions_taken, launches_are_taken, launches_taken, replaced
from triton_ops.backend.triton_compiler import Built
from triton_ops.backend.triton_process import ScratchAllocator, TritonProcess
from triton_ops.base import ForkSafeLock, cached_property, fingerprint, require, warn
from triton_ops.device import Target, gpu_missing
from triton_ops.exceptions import DeviceError, KernelTypeError, TargetError
from triton_ops.space import Config
from triton_ops.values import Status

NEEDS_MORE = frozenset({
    "abs", "add", "addmm", "amin", "arange", "argmax", "baddbmm", "bmm", "cat", "clamp", "clamp_min", "concat",
    "cumsum", "div", "einsum", "exp", "linear", "log", "log_softmax", "logsumexp", "matmul", "maximum", "mean",
    "minimum", "mm", "mul", "neg", "norm", "pow", "prod", "rsqrt", "sigmoid", "softmax", "sqrt", "square", "stack",
    "std", "sub", "tanh", "tril", "triu", "var", "where",
})  # fmt: skip
"""Names of torch functions whose shapes are left to torch's reference implementations."""
REFERENCES = "torch.fx.experimental.symbolic_shapes"
"""The module that these import first, which takes most of the time."""

_ADDRESS = 1 << 40  # of memory that is not there; as an argument it has 64 bits, as addresses on a GPU have
_REDUCTIONS = ("sum", "amax")
_LIKE = ("empty_like", "zeros_like", "ones_like")


def light(torch: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of `func` for a contiguous tensor without memory; `NotImplemented` where torch is to be asked."""
    name = getattr(func, "__name__", "")
    if name not in (*_REDUCTIONS, *_LIKE) or func not in (getattr(torch, name), getattr(torch.Tensor, name, None)):
        return NotImplemented
    if not args or type(args[0]) is not torch.Tensor:
        return NotImplemented
    tensor, more = args[0], dict(kwargs)
    if not tensor.is_meta or tensor.requires_grad or not tensor.is_contiguous():
        return NotImplemented
    if tensor.stride() != torch.Tensor.new_empty(tensor, tensor.shape).stride():  # those of a new tensor of its shape
        return NotImplemented
    if name in _REDUCTIONS:
        return _reduce(torch, name, tensor, args[1:], more)
    dtype = more.pop("dtype", None)
    return NotImplemented if args[1:] or more else torch.Tensor.new_empty(tensor, tensor.shape, dtype=dtype)


def _reduce(torch: Any, name: str, tensor: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    options = dict(zip(("dim", "keepdim"), args, strict=False))
    if len(args) > len(options) or options.keys() & kwargs.keys():
        return NotImplemented
    options |= kwargs
    axis, keep, dtype = options.pop("dim", None), options.pop("keepdim", False), options.pop("dtype", None)
    is_typed = dtype is not None and name != "sum"
    if options or is_typed or type(axis) is not int or type(keep) is not bool or not -tensor.ndim <= axis < tensor.ndim:
        return NotImplemented
    at, extents = axis % tensor.ndim, list(tensor.shape)
    if name == "amax" and extents[at] == 0:
        return NotImplemented  # torch refuses it
    extents[at : at + 1] = [1] if keep else []
    if name == "sum" and dtype is None and not tensor.dtype.is_floating_point:
        if tensor.dtype not in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
            return NotImplemented
        dtype = torch.int64
    return torch.Tensor.new_empty(tensor, extents, dtype=dtype)


_lock = ForkSafeLock(threading.RLock)  # a launcher may call another one


class NotCompiledError(Exception):
    """A launch in a dry run could not be compiled; it carries the compiler's own error."""


def _check_grid(kernel: Any, *args: Any, grid: Any, **kwargs: Any) -> None:
    """Raise a `CandidateError` for a grid that the device which is compiled for does not take."""
    target = getattr(require("triton", "running a launcher").runtime.driver.active, "target", None)
    with contextlib.suppress(Exception):  # the user's own function; the launch will say why
        grid = grid({**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}) if callable(grid) else grid
    if isinstance(target, Target) and not callable(grid) and (refusal := target.grid_refusal(grid)):
        raise CandidateError(Status.GRID, refusal)


def dry_run(function: Callable[..., object], arguments: Arguments) -> list[Any]:
    """Triton's compiled kernels of each launch of `function(…)`, in order; its tensors are on the device `meta`.

    Raises `TargetError` where the function cannot be run without computing, and whatever Triton raises while it
    compiles.
    """
    kernels: list[Any] = []

    def compiled(run: Take, *args: object, **kwargs: object) -> object:
        if kwargs.get("warmup"):
            return run(*args, **kwargs)
        try:
            _check_grid(*args, **kwargs)
            # Before the compilation, whose binary other processes look up by the name that the kernel has now.
            settled(args[0])
            kernels.append(run(*args, **{**kwargs, "warmup": True}))
        except Exception as error:
            raise NotCompiledError(error) from error
        return kernels[-1]

    # One at a time: functions of `torch.cuda` are replaced for all threads meanwhile.
    with _lock, launches_taken(compiled), _as_on_gpu("meta"), _device_facts():
        try:
            function(*arguments.positional, **arguments.keyword)
        except NotCompiledError as error:
            raise error.args[0] from None
        except Exception as error:
            message = f"it cannot be run without computing: {CandidateError.one_line(error)}"
            hint = "take sizes from shapes, and pass what must be read from a tensor as an argument"
            raise TargetError(message, hint=hint) from error
    return [one.result() if hasattr(one, "result") else one for one in kernels]


def _as_on_gpu(memory: str) -> contextlib.AbstractContextManager[Any]:
    """A mode in which tensors on the device `memory`, `meta` or `cpu`, say that they are on the GPU.

    New ones on the GPU are made there.
    """
    torch = require("torch", "running a launcher without a device")
    gpu, own = torch.device("cuda", 0), torch.device(memory)
    device_of, is_cuda = torch.Tensor.device.__get__, torch.Tensor.is_cuda.__get__

    def moved(value: object) -> object:
        if isinstance(value, torch.device):
            return own if value.type == "cuda" else value
        return own if isinstance(value, str) and value.partition(":")[0] == "cuda" else value

    def address(tensor: Any) -> int:
        if not tensor.is_meta:
            return int(torch.Tensor.data_ptr(tensor))
        return _ADDRESS + int(tensor.storage_offset() * tensor.element_size())

    answers: dict[Any, Callable[..., Any]] = {
        device_of: lambda tensor: gpu if device_of(tensor) == own else device_of(tensor),
        is_cuda: lambda tensor: is_cuda(tensor) or device_of(tensor) == own,
        torch.Tensor.get_device: lambda tensor: 0 if device_of(tensor) == own else torch.Tensor.get_device(tensor),
        torch.Tensor.cuda: lambda tensor, *_device: tensor.to(own),
        torch.Tensor.data_ptr: address,
    }

    def on_gpu(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func == torch.device or not launches_are_taken():
            return func(*args, **kwargs)
        if func in answers:
            return answers[func](*args)
        keywords = {name: moved(value) for name, value in kwargs.items()}
        result = light(torch, func, args, keywords)
        return func(*map(moved, args), **keywords) if result is NotImplemented else result

    return functions_taken(on_gpu)


def _in_threads(memory: str) -> contextlib.AbstractContextManager[None]:
    """Have threads that this one starts, inside of the block, take launches and be on the GPU as this one is."""
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        # A thread begins with an empty context up to Python 3.13, and so without what takes launches here.
        context, run = copy_context(), thread.run

        def on_gpu() -> None:
            mode = _as_on_gpu(memory) if "torch" in sys.modules else contextlib.nullcontext()
            with contextlib.suppress(SystemExit), mode:
                run()

        if launches_are_taken():
            thread.run = functools.partial(context.run, on_gpu)  # type: ignore[method-assign]
        start(thread)

    return replaced(threading.Thread, {"start": started})


@contextlib.contextmanager
def _device_facts(target: Target | None = None) -> Iterator[None]:
    """Have torch answer what launching functions commonly ask of a GPU, inside of the block, where there is none.

    A `target` is answered for in any case.
    """
    cuda = require("torch", "running a launcher without a device").cuda
    if target is None and cuda.is_available():
        yield
        return
    target = target or importlib.import_module("triton.runtime.driver").driver.active.target
    facts = _Properties(target)
    # `_lazy_init` is private: other functions of `torch.cuda` call it, and it raises where there is no driver.
    answers: dict[str, Any] = {
        "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0,
        "get_device_capability": (facts.major, facts.minor), "get_device_properties": facts,
        "get_device_name": facts.name, "synchronize": None, "current_stream": SimpleNamespace(cuda_stream=0),
        "device": contextlib.nullcontext(), "device_of": contextlib.nullcontext(), "_lazy_init": None,
        "set_device": None, "is_current_stream_capturing": False, "is_bf16_supported": True,
    }  # fmt: skip
    with replaced(cuda, {name: _always(answer) for name, answer in answers.items()}):
        yield


def _as_it_is(function: object = None, *_: object, model: object = None, fn: object = None, **__: object) -> object:
    """Leave a function as it is: `torch.compile` and its opposite would import Dynamo, and nothing is computed."""
    return next((one for one in (function, model, fn) if one is not None), _as_it_is)


def _always(answer: object) -> Callable[..., object]:
    return lambda *_, **__: answer


class _Properties:
    """Properties of the device that is compiled for, as far as they are known."""

    def __init__(self, target: Target) -> None:
        limits, capability = target.limits, target.capability
        # torch tells 9.4 of a gfx942; the other architectures of AMD's are given the same.
        self.major, self.minor = divmod(capability, 10) if capability else (9, 4)
        self.name, self.gcnArchName, self.warp_size = f"stand-in of {target.arch}", target.arch, target.warp_size
        self.shared_memory_per_block_optin = target.shared_bytes_per_block
        if target.units is not None:
            self.multi_processor_count = target.units
        if limits is not None:
            self.regs_per_multiprocessor, self.shared_memory_per_multiprocessor = limits.registers, limits.shared_bytes
            self.max_threads_per_multi_processor = limits.warps * limits.warp_size

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"the device's {name} is not known to a process that compiles; pass it as an argument")


Launched = Callable[[Any, Any, Sequence[Any], Mapping[str, Any]], Any]
"""Told of each launch, with the JIT function, the grid, and the arguments."""


@contextlib.contextmanager
def standing_in(
    target: Target, launched: Launched, memory: str = "meta", tuners: Iterable[type] = ()
) -> Iterator[None]:
    """Have Triton and torch answer for a GPU of `target` in the whole process, inside of the block.

    Nothing is launched: `launched` is told of it, and of launches of kernels under the decorators `tuners`. Tensors on
    the GPU are on the device `memory`, where `meta` has none. Torch is not imported for that, and answers from its own
    import on.
    """
    with contextlib.ExitStack() as stack:

        def ready() -> None:
            stack.enter_context(_device_facts(target))
            stack.enter_context(_as_on_gpu(memory))
            stack.enter_context(replaced(sys.modules["torch"], {"compile": _as_it_is}))
            stack.enter_context(replaced(sys.modules["torch"].compiler, {"disable": _as_it_is}))

        def take(run: Take, kernel: object, *args: object, grid: object, warmup: bool = False, **kwargs: object) -> Any:
            if not warmup:
                return launched(kernel, grid, args, kwargs)
            compiled = run(kernel, *args, grid=grid, warmup=True, **kwargs)
            return compiled if compiled is None else _Warmed(kernel, compiled, kwargs, target, launched)

        def tuned(self: object, *args: object, grid: object, warmup: bool = False, **kwargs: object) -> Any:
            return None if warmup else launched(self, grid, args, kwargs)

        stack.enter_context(_lock)
        # A program that ends by `os._exit` would leave this block without its end.
        stack.enter_context(replaced(os, {"_exit": sys.exit}))
        stack.enter_context(pretending(target, f"{target.arch}, stood in for", "cuda:0"))
        stack.enter_context(launches_taken(take))
        stack.enter_context(_in_threads(memory))
        for kind in tuners:
            stack.enter_context(replaced(kind, {"run": tuned}))
        if "torch" in sys.modules:
            ready()
        else:
            stack.enter_context(_when_imported("torch", ready))
        yield


@contextlib.contextmanager
def _when_imported(name: str, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` once a module was imported, inside of the block."""

    def find_spec(module_name: str, path: Any = None, _target: Any = None) -> object:
        if module_name != name:
            return None
        # First, since `importlib.util.find_spec` asks all finders, and so would ask this one without end.
        sys.meta_path.remove(finder)
        if (spec := importlib.util.find_spec(name, path)) is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                run(module)
                act()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    finder: Any = SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)


class _Warmed:
    """A kernel that was compiled and not launched, with its resources, as Triton gives it after `warmup`."""

    def __init__(
        self, kernel: Any, compiled: Any, options: Mapping[str, Any], target: Target, launched: Launched
    ) -> None:
        self._compiled = compiled.result() if hasattr(compiled, "result") else compiled
        self._kernel, self._launched = kernel, launched
        self._options = {name: value for name, value in options.items() if name not in kernel.arg_names}
        resources = Built.of(self._compiled, target).resources(target)
        # Triton counts what is spilled in registers of 4 bytes.
        self.n_regs, self.n_spills = resources.registers, (resources.spill_bytes or 0) // 4

    def _init_handles(self) -> None:
        """Load nothing."""

    def __getattr__(self, name: str) -> object:
        return getattr(self._compiled, name)

    def __getitem__(self, grid: object) -> Callable[..., object]:
        return lambda *args, **_stream: self._launched(self._kernel, grid, args, self._options)


@dataclass(frozen=True)
class LauncherKernel(CompiledByTriton):
    """A Python function that launches one or several Triton kernels; the values of a config are keywords.

    The function is called as `launch(*args, **kwargs, **config)`. It may make tensors, such as scratch whose shape
    follows the config, and call torch between its launches. All of it is one candidate: compiled ahead, checked, timed.

    To compile ahead, the function is run on tensors without memory, and its launches are compiled in place of being
    launched. A function that reads a tensor's values cannot be run so: a warning says why, and each config is compiled
    when it is first launched.

    Attributes:
        launch: The function.
        outputs: Names of the arguments that it writes; empty if it returns its result.
        label: Its name in records; None takes `module:qualified_name`.

    Raises:
        KernelTypeError: `launch` is no Python callable, or an output is no parameter.
    """

    launch: Callable[..., Any]
    outputs: tuple[str, ...] = ()
    label: str | None = None

    def __post_init__(self) -> None:
        if is_triton(self.launch):
            message = f"{self.launch!r} is a Triton kernel, and no function that launches one"
            raise KernelTypeError(message, hint="give TritonKernel(kernel, grid)")
        names = self._function.parameter_names  # checks that it is callable
        takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(self.launch).parameters.values())
        if strange := [name for name in self.outputs if name not in names and not takes_any]:
            raise KernelTypeError(f"{self.name} has no parameter {', '.join(strange)} to be an output")

    @property
    def _function(self) -> FunctionKernel:
        return FunctionKernel(self.launch, self.label, self.outputs)

    @property
    def name(self) -> str:
        """`module:qualified_name`, unless labelled."""
        return self._function.name

    @property
    def sources(self) -> dict[str, Source]:
        """The function with its kernels and all they refer to."""
        return {"source": Source.of(self.launch)}

    @property
    def identity(self) -> Mapping[str, str]:
        """Fingerprint of the function with its kernels and all they refer to, and versions of what compiles them."""
        return self._function.identity

    @cached_property
    def parameter_names(self) -> list[str | None]:
        """The names in calling order; None for a parameter that cannot be passed by name."""
        return self._function.parameter_names

    @cached_property
    def interpreted(self) -> bool:
        """Tell whether its kernels run as Python, as under `TRITON_INTERPRET`; every launch of a form asks."""
        return any(TritonProcess.is_interpreted(kernel) for _, kernel in _kernels_of(self.launch))

    @property
    def compile_imports(self) -> str:
        """Torch; and what it imports for a third of a second and more where the function names what needs that.

        What an operator such as `+` needs is imported when it is first met.
        """
        home = Home.of(self.launch)
        codes = (value.__code__ for value in _references(self.launch) if _is_own(value, home))
        return "torch" if all(NEEDS_MORE.isdisjoint(names_in(code)) for code in codes) else REFERENCES

    @property
    def cache_key(self) -> str:
        """Names the kernels that the function and its helpers refer to, as Triton does."""
        return fingerprint(sorted([name, str(settled(kernel).cache_key)] for name, kernel in _kernels_of(self.launch)))

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise unless every tunable can be passed as a keyword beside the arguments.

        Raises:
            ConfigCollisionError: A tunable has the name of an argument that is passed as well.
            UnknownTunableError: The function takes no keyword of that name.
            DeviceError: There is no GPU, the tensors are on a CPU, and the kernels are not interpreted. Where there is
                a GPU the function may move them.
        """
        self._function.check(tunables, arguments)
        places = {tensor.device.type for tensor in arguments.tensors()}
        if places == {"cpu"} and not self.interpreted and (missing := gpu_missing()):
            message = f"{self.name} launches Triton kernels, which run on a GPU, and there is none: {missing}"
            hint = f"run its kernels as Python with TRITON_INTERPRET=1; {DeviceError.NO_GPU}"
            raise DeviceError(message, "cuda", "cpu", hint=hint)

    def lowered(self, config: Config, arguments: Arguments) -> list[Any]:
        """Triton's compiled kernels of one call, in order; nothing is loaded or launched.

        Raises `TargetError` if the function cannot be run without computing, `CandidateError` if it launches no kernel.
        """
        if not (kernels := dry_run(functools.partial(self.launch, **config), arguments.described())):
            raise self._no_launch_error()
        return kernels

    def compile(self, config: Config, arguments: Arguments) -> Executable:
        """Compile every launch for these arguments, and load the binaries; nothing is launched.

        Raises as `TritonKernel.compile`, and a `CandidateError` of the status `runtime` if the function launches no
        kernel.
        """
        if self.interpreted:
            return self.at_launch(config)
        try:
            _, facts = self.loaded(config, arguments)
        except TargetError as error:
            warn("%s is compiled when it is launched: %s", self.name, error.message)
            return self.at_launch(config, launches=False)
        return replace(self.at_launch(config), **{**facts, "atomics": None})  # torch may use some too

    def at_launch(self, config: Config, launches: bool = True) -> Executable:
        """The config; where it is not known that it launches a kernel, its first call looks."""

        def bind(arguments: Arguments) -> Callable[[], object]:
            call = functools.partial(self.launch, *arguments.positional, **{**arguments.keyword, **config})
            return ScratchAllocator.around(call if launches else functools.partial(self._watch, call))

        return Executable(config=config, bind=bind, outputs=self.outputs)

    def _watch(self, call: Callable[[], object]) -> object:
        launches = 0

        def counted(run: Callable[..., object], *args: object, **kwargs: object) -> object:
            nonlocal launches
            launches += not kwargs.get("warmup")
            return run(*args, **kwargs)

        with launches_taken(counted):
            output = call()
        if not launches:
            raise self._no_launch_error()
        return output

    def _no_launch_error(self) -> CandidateError:
        why = f"{self.name} launches no Triton kernel; a function that needs none is a FunctionKernel"
        return CandidateError(Status.RUNTIME, why)


def _kernels_of(function: Callable[..., object]) -> Iterator[tuple[str, Any]]:
    """The JIT functions that a function of the user's and its helpers refer to, each once, with a name."""
    for value in _references(function):
        if is_triton(value):
            *_, kernel = (layer for layer in function_layers(value) if is_triton(layer))
            if Layers.is_jit(kernel):
                yield f"{kernel.fn.__module__}.{kernel.fn.__qualname__}", kernel


def _is_own(value: object, home: Home) -> bool:
    """Tell whether something is a Python function of the user's or of the same package, and no kernel."""
    if is_triton(value) or not isinstance(value, FunctionType):
        return False
    return home.holds(value.__module__ or "", value.__code__.co_filename)


def _references(function: Callable[..., object]) -> Iterator[Any]:
    """A function of the user's, and what it and its helpers refer to, each once; kernels are not looked into."""
    home = Home.of(function)
    ids: set[int] = set()
    queue: deque[Any] = deque([Layers.unwrap(function)])
    while queue:
        value = queue.popleft()
        if isinstance(value, functools.partial):
            value = Layers.unwrap(value.func)
        if id(value) in ids:
            continue
        ids.add(id(value))
        yield value
        if _is_own(value, home):
            queue.extend(use.value for use in used_values(value, home))
