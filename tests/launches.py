"""Triton's launches without a GPU: kernels are really compiled, and their launches are counted and do nothing.

For tests of what happens before a launch, and for benchmarks of what it costs the host. Arguments are tensors on the
CPU. Facts used, from Triton 3.6 to 3.9: a `CompiledKernel` asks the active driver for `launcher_cls` and
`utils.load_binary`, whose answer is module, function, registers, spills and threads.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest import mock
from uuid import uuid4

from triton_ops.backend import TritonCompiler, TritonKernel
from triton_ops.backend.offline import LoweredError, TargetDriver, never_cached
from triton_ops.base import require
from triton_ops.device import Target
from triton_ops.space import Config

_SHARED_BYTES = 232_448  # of an H200, for one block
_REGISTERS, _THREADS = 32, 1_024


@dataclass
class Launches:
    """What was launched.

    Attributes:
        made: For each launch the kernel's name, grid, stream, device and arguments.
        signatures: The types of the parameters of each kernel that was launched last, by its name.
        compiled: For each launch the hash of the compiled kernel.
        loaded: The names of the kernels that were loaded, in order: each was compiled, or found in the disk cache.
        keep: Whether launches are kept; benchmarks count nothing.
        device: The current device.
        stream: The current stream.
    """

    made: list[tuple[str, tuple[int, int, int], int, int, tuple[Any, ...]]] = field(default_factory=list)
    signatures: dict[str, dict[str, str]] = field(default_factory=dict)
    compiled: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    keep: bool = True
    device: int = 0
    stream: int = 0


class _Driver(TargetDriver):
    """A driver whose launches do nothing."""

    def __init__(self, target: Target, launches: Launches) -> None:
        super().__init__(target, target.arch)
        self.launches, self.utils = launches, self
        self.launcher_cls = self._launcher if launches.keep else _no_launch

    def get_current_device(self) -> Any:
        """The number of the current device."""
        return self.launches.device

    def get_current_stream(self, _device: Any) -> int:
        """The number of the current stream."""
        return self.launches.stream

    def get_device_properties(self, _device: Any) -> dict[str, int]:
        """What a kernel may take."""
        return {"max_shared_mem": _SHARED_BYTES, "multiprocessor_count": self.target.units or 1, "warpSize": 32}

    def load_binary(self, name: str, *_: Any) -> tuple[str, str, int, int, int]:
        """The kernel, loaded."""
        self.launches.loaded.append(name)
        return name, name, _REGISTERS, 0, _THREADS

    def unload_module(self, _module: Any) -> None:
        """Nothing: nothing was loaded."""

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Times by the order of calls, so that the first config wins."""

        def bench(call: Callable[[], Any], quantiles: tuple[float, ...]) -> list[float]:
            call()
            return [float(len(self.launches.made))] * len(quantiles)

        return bench

    def _launcher(self, source: Any, metadata: Any) -> Callable[..., None]:
        name, active = metadata.name, require("triton", "launching kernels").runtime.driver

        def launch(x: int, y: int, z: int, stream: int, _function: Any, _packed: Any, given: Any, enter: Any,
                   leave: Any, *arguments: Any) -> None:  # fmt: skip
            now = active.active.launches  # a process keeps compiled kernels longer than this driver
            if enter is not None:
                enter(given)
            now.made.append((name, (x, y, z), stream, now.device, arguments))
            now.signatures[name] = source.signature
            now.compiled.append(metadata.hash)
            if leave is not None:
                leave(given)

        return launch


def _no_launch(_source: Any, _metadata: Any) -> Callable[..., None]:
    def launch(*_: Any) -> None:
        """Nothing, at the least cost."""

    return launch


@contextmanager
def launches_that_do_nothing(target: str = "sm_90", *, keep: bool = True) -> Iterator[Launches]:
    """Inside, Triton compiles for `target` and launches nothing.

    Args:
        target: An architecture's name.
        keep: Whether launches are kept in what is given.
    """
    driver = require("triton", "launching kernels").runtime.driver
    before, launches = driver._active, Launches(keep=keep)
    driver.set_active(_Driver(Target.named(target), launches))
    try:
        yield launches
    finally:
        driver._active = before


@contextmanager
def cpu_as_gpu() -> Iterator[None]:
    """Inside, shipped functions and operations take tensors on the CPU, as they do where kernels run as Python."""
    with ExitStack() as stack:
        shipped = find_spec("triton_ops_kernels")  # which tests of the core do without
        for module in pkgutil.iter_modules(shipped.submodule_search_locations if shipped else ()):
            own = import_module(f"triton_ops_kernels.{module.name}")
            if hasattr(own, "call") and hasattr(own, "INTERPRETED"):
                stack.enter_context(mock.patch.object(own, "INTERPRETED", True))
        stack.enter_context(mock.patch.object(TritonKernel, "check"))
        yield


@contextmanager
def ordinary_launches() -> Iterator[list[Any]]:
    """Inside, the launches that Triton binds and looks up itself are counted: no known call is one."""
    module, made = import_module("triton.runtime.jit"), []

    def counted(*args: Any, key: Any = module.compute_cache_key) -> Any:
        made.append(args)
        return key(*args)

    with mock.patch.object(module, "compute_cache_key", counted):
        yield made


@contextmanager
def compiled_anew() -> Iterator[None]:
    """Compile for targets what the block asks for, though the disk cache or this process has it."""
    unknown = f"compiled anew {uuid4()}"
    with mock.patch.object(TargetDriver, "get_current_device", return_value=unknown), never_cached():
        yield


def ttgir_of(compiler: TritonCompiler, config: Config) -> str:
    """The TTGIR of a config, without LLVM and the assembler."""

    def stop(_shared_bytes: int, text: str) -> None:
        raise LoweredError(text)

    try:
        with compiled_anew():
            compiler.built(config, stop)
    except LoweredError as enough:
        return str(enough)
    raise AssertionError("it was compiled before")
