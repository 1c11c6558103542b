"""What a referee is asked: tasks with their inputs, and for each kind of candidate its cases.

A case names two functions as `FILE:name`, and the size, dtype and seed of the inputs. Functions are called with the
arguments in order. Inputs are tensors of torch, or arrays of NumPy, as the task says; on a GPU there are tensors alone.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

FOLDER = "benchmarks/referee"
FOR_GPU = ("rms_norm", "softmax", "matmul", "attention", "cross_entropy", "gelu_")
"""Tasks with honest candidates that need a GPU."""

HONEST = ("faster", "same", "slower", "undecided")
"""The right answers about an honest candidate; a reference against itself may not be `faster` or `slower` either."""


@dataclass(frozen=True)
class Task:
    """A reference and its inputs.

    Attributes:
        name: The function in `tasks.py`.
        library: Whose arrays it takes.
        sizes: Extents of whole tiles, extents that no tile divides, and larger or wider ones.
        drawn: From a generator and extents to the inputs by name, floats in float64.
        on_gpu: The sizes for a GPU, of whole tiles first; empty where it is not for one.
    """

    name: str
    library: str
    sizes: tuple[tuple[int, ...], ...]
    drawn: Callable[..., Mapping[str, Any]]
    on_gpu: tuple[tuple[int, ...], ...] = ()

    @property
    def target(self) -> str:
        """The reference as `FILE:name`."""
        return f"{FOLDER}/tasks.py:{self.name}"

    @property
    def dtypes(self) -> tuple[str, str]:
        """The dtypes of floats."""
        return ("float32", "bfloat16") if self.library == "torch" else ("float32", "float64")

    def sizes_on(self, device: str) -> tuple[tuple[int, ...], ...]:
        """The sizes for a device."""
        return self.sizes if device == "cpu" else self.on_gpu

    def inputs(self, size: tuple[int, ...], dtype: str, seed: int = 0, device: str = "cpu") -> dict[str, Any]:
        """Fresh inputs by name; the same seed draws the same."""
        drawn = self.drawn(np.random.default_rng(seed), *size)
        return {name: self.array(values, dtype, device) for name, values in drawn.items()}

    def array(self, values: Any, dtype: str, device: str) -> Any:
        """An array of this library, floats in `dtype`."""
        whole = values.dtype.kind == "i"
        if self.library == "numpy":
            return values.astype(values.dtype if whole else dtype)
        torch = importlib.import_module("torch")
        return torch.from_numpy(values).to(torch.int64 if whole else getattr(torch, dtype)).to(device)

    def options(self, size: tuple[int, ...], dtype: str) -> list[str]:
        """Shapes and dtype as options of the command line; its floats are drawn in [-1, 1]."""
        drawn = self.drawn(np.random.default_rng(0), *size)
        shapes = {name: "x".join(map(str, values.shape)) for name, values in drawn.items()}
        whole = [name for name, values in drawn.items() if values.dtype.kind == "i"]
        floats = ",".join(shape for name, shape in shapes.items() if name not in whole)
        typed = [word for name in whole for word in ("--arg", f"{name}={shapes[name]}:int64")]
        return ["--shape", floats, "--dtype", dtype, *typed]


def normal(draw: np.random.Generator, **shapes: tuple[int, ...]) -> dict[str, Any]:
    """Normal numbers, by name."""
    return {name: draw.standard_normal(shape) for name, shape in shapes.items()}


def _rms_norm(draw: np.random.Generator, rows: int, width: int) -> dict[str, Any]:
    return {**normal(draw, x=(rows, width)), "weight": draw.uniform(0.5, 1.5, width)}


def _matmul(draw: np.random.Generator, m: int, n: int, k: int) -> dict[str, Any]:
    return {"a": draw.standard_normal((m, k)), "b": draw.standard_normal((k, n)) / k**0.5}


def _cross_entropy(draw: np.random.Generator, rows: int, classes: int) -> dict[str, Any]:
    return {**normal(draw, logits=(rows, classes)), "targets": draw.integers(0, 128, rows)}


def _conv2d(draw: np.random.Generator, images: int, channels: int, extent: int) -> dict[str, Any]:
    scale = (9 * channels) ** -0.5
    shapes = {"x": (images, channels, extent, extent), "weight": (channels, channels, 3, 3)}
    return {name: values * (scale if name == "weight" else 1) for name, values in normal(draw, **shapes).items()}


def _rows(draw: np.random.Generator, rows: int, width: int) -> dict[str, Any]:
    return normal(draw, x=(rows, width))


TASKS = {
    task.name: task
    for task in (
        Task("rms_norm", "torch", ((256, 1024), (333, 1000), (16, 32768)), _rms_norm,
             ((4096, 4096), (4093, 3001))),
        Task("softmax", "torch", ((256, 1024), (250, 777), (64, 8192)), _rows, ((4096, 4096), (4093, 3001))),
        Task("matmul", "torch", ((256, 256, 256), (130, 190, 333), (512, 512, 512)), _matmul,
             ((2048, 2048, 2048), (1030, 1990, 3333))),
        Task("attention", "torch", ((4, 256, 64), (3, 201, 40), (8, 384, 64)),
             lambda draw, *size: normal(draw, q=size, k=size, v=size), ((32, 1024, 64), (24, 1001, 40))),
        Task("cross_entropy", "torch", ((256, 1024), (199, 1500), (64, 8192)), _cross_entropy,
             ((4096, 8192), (2047, 10007))),
        Task("top_k", "torch", ((256, 1024), (201, 1000), (64, 8192)), _rows, ((4096, 4096), (2047, 5003))),
        Task("conv2d", "torch", ((4, 16, 32), (3, 12, 29), (8, 32, 32)), _conv2d,
             ((32, 64, 56), (16, 48, 45))),
        Task("gelu_", "torch", ((256, 1024), (333, 999), (1024, 1024)),
             lambda draw, rows, width: normal(draw, x=(rows, width), bias=(width,)), ((4096, 4096), (4093, 3001))),
        Task("cumulative_sum", "numpy", ((256, 1024), (201, 999), (32, 16384)), _rows),
        Task("group_statistics", "numpy", ((256, 1024), (201, 960), (512, 2048)), _rows),
        Task("sort_rows", "numpy", ((128, 1024), (101, 999), (512, 1024)), _rows),
        Task("histogram", "numpy", ((1 << 17,), (100_003,), (1 << 19,)),
             lambda draw, count: {"x": draw.uniform(-4, 4, count)}),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One question to a referee: a candidate, its task, the inputs, and which answers are right."""

    candidate: str
    task: Task
    size: tuple[int, ...]
    dtype: str
    answers: tuple[str, ...]
    seed: int = 0
    device: str = "cpu"

    @property
    def function(self) -> Callable[..., Any]:
        """The candidate."""
        return named(self.candidate)

    @property
    def reference(self) -> Callable[..., Any]:
        """The reference."""
        return named(self.task.target)

    def inputs(self, seed: int | None = None) -> dict[str, Any]:
        """Fresh inputs, by name."""
        return self.task.inputs(self.size, self.dtype, self.seed if seed is None else seed, self.device)

    def command(self) -> list[str]:
        """The question on the command line."""
        options = self.task.options(self.size, self.dtype)
        return ["triton-ops", "check", self.candidate, "--against", self.task.target, *options]


def named(target: str) -> Callable[..., Any]:
    """The function of a `FILE:name` of this repository."""
    file, _, name = target.partition(":")
    return getattr(importlib.import_module(file.removesuffix(".py").replace("/", ".")), name)


def functions(file: str) -> list[str]:
    """The public functions of a file in this folder, as `FILE:name`."""
    module = importlib.import_module(f"{FOLDER}/{file}".replace("/", "."))
    own = (each for each in vars(module).values() if inspect.isfunction(each) and each.__module__ == module.__name__)
    return [f"{FOLDER}/{file}.py:{each.__name__}" for each in own if not each.__name__.startswith("_")]


def tasks_on(device: str) -> Iterator[Task]:
    """The tasks for a device."""
    return (task for task in TASKS.values() if task.sizes_on(device))


def honest_cases(device: str = "cpu") -> Iterator[Case]:
    """Each honest candidate at each size, with the dtypes in turn.

    On a GPU sizes come in turn, too, and of the candidates that need none every second one.
    """
    for task in tasks_on(device):
        sizes = task.sizes_on(device)
        for place, candidate in enumerate(_honest(task, device)):
            for turn, size in enumerate(sizes if device == "cpu" else (sizes[place // 2 % 2],)):
                yield Case(candidate, task, size, task.dtypes[(place + turn) % 2], HONEST, device=device)


def _honest(task: Task, device: str) -> list[str]:
    """The honest candidates of a task."""
    plain = functions(f"honest/{task.name}")
    if device == "cpu":
        return plain
    return [*plain[::2], *(functions(f"honest_on_gpu/{task.name}") if task.name in FOR_GPU else ())]


def even_cases(device: str = "cpu") -> Iterator[Case]:
    """Each reference against itself, with two seeds, and against its copy, at each size and dtype.

    On a GPU with one seed, at the first size.
    """
    for task in tasks_on(device):
        copy = f"{FOLDER}/copies.py:{task.name}_copy"
        sides, sizes = ((task.target, 0), (copy, 0), (task.target, 1)), task.sizes_on(device)
        if device != "cpu":
            sides, sizes = sides[:2], sizes[:1]
        for (candidate, seed), size, dtype in product(sides, sizes, task.dtypes):
            yield Case(candidate, task, size, dtype, ("same", "undecided"), seed, device)
