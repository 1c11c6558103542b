"""A function that launches kernels, run without launching any: each launch is compiled, and nothing is computed.

Tensors are torch's of the device `meta`: they have shapes, dtypes, strides and alignment, and no memory. To the
function they say that they are on the GPU. A function that reads a tensor's values, as `.item()` does, cannot be run
so.

Facts used: from Triton 3.6 to 3.9 every launch, also through decorators, ends in `JITFunction.run(…, grid=…,
warmup=…)`, which compiles without launching if `warmup` is true. A function mode of torch is asked for every function
and every attribute of tensors.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

from triton_ops._files import Guard
from triton_ops._optional import require
from triton_ops.backend.base import Arguments
from triton_ops.backend.errors import one_line
from triton_ops.backend.jit_function import settled
from triton_ops.backend.light_torch import light
from triton_ops.exceptions import TargetError

Take = Callable[..., Any]

_taking: ContextVar[Take | None] = ContextVar("_taking", default=None)
_lock = Guard(threading.RLock)  # a launcher may call another one


class NotCompiledError(Exception):
    """A launch in a dry run could not be compiled; it carries the compiler's own error."""


def dry_run(function: Callable[..., Any], arguments: Arguments) -> list[Any]:
    """What Triton compiled for each launch of `function(…)`, in their order.

    Args:
        function: Launches kernels.
        arguments: Its arguments, with tensors on the device `meta`.

    Raises:
        TargetError: The function itself cannot be run without computing, with its error.
        Exception: Whatever Triton raises while it compiles.
    """
    made: list[Any] = []

    def compiled(run: Take, *args: Any, **kwargs: Any) -> Any:
        try:
            settled(args[0])
            made.append(run(*args, **{**kwargs, "warmup": True}))
        except Exception as error:
            raise NotCompiledError(error) from error
        return made[-1]

    with launches_taken(compiled), _on_meta(), _device_facts():
        try:
            function(*arguments.positional, **arguments.keyword)
        except NotCompiledError as error:
            raise error.args[0] from None
        except Exception as error:
            raise TargetError(
                f"it cannot be run without computing: {one_line(error)}",
                hint="take sizes from shapes, and pass what must be read from a tensor as an argument",
            ) from error
    return [one.result() if hasattr(one, "result") else one for one in made]


@contextlib.contextmanager
def launches_taken(take: Take) -> Iterator[None]:
    """Inside, on this thread, `take` is called for each launch with what would launch it and its arguments."""
    jit = importlib.import_module("triton.runtime.jit").JITFunction
    with _lock:
        original = jit.run

        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            now = None if kwargs.get("warmup") else _taking.get()
            return original(self, *args, **kwargs) if now is None else now(original, self, *args, **kwargs)

        token = _taking.set(take)
        jit.run = run
        try:
            yield
        finally:
            jit.run = original
            _taking.reset(token)


def _on_meta() -> contextlib.AbstractContextManager[Any]:
    """Inside, tensors without memory say that they are on the GPU, and new ones on a GPU have no memory either."""
    torch = require("torch", "running a launcher without a device")
    gpu, meta = torch.device("cuda", 0), torch.device("meta")
    device_of, is_cuda = torch.Tensor.device.__get__, torch.Tensor.is_cuda.__get__

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return meta if value.type == "cuda" else value
        return meta if isinstance(value, str) and value.partition(":")[0] == "cuda" else value

    class OnMeta(torch.overrides.TorchFunctionMode):  # type: ignore[misc,name-defined]
        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func == device_of:
                found = func(*args)
                return gpu if found == meta else found
            if func == is_cuda:
                return func(*args) or args[0].is_meta
            if func == torch.Tensor.get_device:
                return 0 if args[0].is_meta else func(*args)
            if func == torch.Tensor.cuda:
                return args[0].to(meta)
            named = {name: moved(value) for name, value in (kwargs or {}).items()}
            found = light(torch, func, args, named)
            return func(*map(moved, args), **named) if found is NotImplemented else found

    return OnMeta()


@contextlib.contextmanager
def _device_facts() -> Iterator[None]:
    """Inside, where there is no GPU, torch answers what functions that launch commonly ask of one."""
    cuda = require("torch", "running a launcher without a device").cuda
    if cuda.is_available():
        yield
        return
    driver = importlib.import_module("triton.runtime.driver").driver.active
    arch = driver.get_current_target().arch
    capability = divmod(arch, 10) if isinstance(arch, int) else (9, 4)
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_capability": capability,
        "get_device_properties": _Properties(getattr(driver, "units", None), capability), "synchronize": None,
        "current_stream": SimpleNamespace(cuda_stream=0), "device": contextlib.nullcontext(),
    }  # fmt: skip
    before = {name: getattr(cuda, name) for name in answers}
    for name, answer in answers.items():
        setattr(cuda, name, _always(answer))
    try:
        yield
    finally:
        for name, own in before.items():
            setattr(cuda, name, own)


def _always(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer


class _Properties:
    """Properties of the device that is compiled for, as far as they are known."""

    def __init__(self, units: int | None, capability: tuple[int, int]) -> None:
        self.major, self.minor = capability
        if units is not None:
            self.multi_processor_count = units

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the device's {name} is not known to a process that compiles; pass it as an argument")
