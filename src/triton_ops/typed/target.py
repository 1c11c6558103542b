"""TARGET: from what stands on the command line to an operation or a function.

A shipped kernel's name, `package.module:object`, or `path/file.py:object`, where the object is an `Operation` or a
plain callable. It may be a Triton kernel: then `@FUNCTION` names a function that launches it, which is run up to that
launch without a device. Without a function one in the kernel's own file is looked for, or a call that a program noted.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from triton_ops import dispatch
from triton_ops.backend import Arguments, FunctionKernel, Layers, Operation, standing_in
from triton_ops.device import DeviceSpec, Target
from triton_ops.exceptions import DeviceError, NotLoadedError, SpaceError, TargetError, alternatives
from triton_ops.terminal import only_data_on_stdout
from triton_ops.typed.problem import TypedProblem, module_at, named_object, parse_config

_STAND_IN = "sm_90"  # where no GPU is named


@dataclass(frozen=True)
class TypedTarget:
    """A TARGET as somebody typed it, or as a file holds it, with the problem and the GPU that were typed beside it.

    `cache_dir` has the calls of decorated kernels that programs noted; `widen` is as of `launched_by`. While a TARGET
    is imported for a `gpu`, this stands in, so that code at the top of a file finds a driver. `config` has the values
    of tunables that were typed; None if none were.
    """

    text: str
    cache_dir: str | Path | None = None
    problem: TypedProblem = field(default_factory=TypedProblem)
    gpu: str | None = None
    widen: bool | None = None
    config: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls, text: str, shape: str | None = None, dtype: str | None = None, arg: list[str] | None = None,
        space: list[str] | None = None, config: list[str] | None = None, gpu: str | None = None,
        cache_dir: str | None = None,
    ) -> TypedTarget:  # fmt: skip
        """The TARGET of the options that a command has; None where one is not given."""
        problem = TypedProblem.of(shape, dtype, space, arg)
        return cls(text, cache_dir, problem, gpu, config=parse_config(config, "--config"))

    def load(self, among: Mapping[str, Any] | None = None) -> Operation | Callable[..., Any]:
        """The operation or callable that is named.

        Where a file holds the TARGET, `among` has the objects that it may name beside shipped kernels, by the TARGET of
        each. None imports what is named, since somebody typed it.

        Raises:
            NotLoadedError: It is not among these objects.
            TargetError: It does not exist, cannot be imported, or is neither an operation nor callable.
        """
        only_data_on_stdout()
        if ":" not in self.text:
            return _shipped(self.text)
        if among is None:
            return self._usable(self.object())
        if self.text not in among:
            raise NotLoadedError(
                f"{self.text} is not loaded; loaded are {', '.join(among) or 'shipped kernels alone'}",
                hint="a file loads no code: name it, if you trust it, with --kernels as well",
            )
        return self._usable(among[self.text])

    def called(self) -> Operation | Callable[..., Any]:
        """As `load` of what somebody typed, but of a Triton kernel the function that launches it."""
        target = self.object()
        return self._launcher(target) if _is_kernel(target) else self._usable(target)

    def object(self) -> Any:
        """The object that is named, whatever it is: an operation, a function, a kernel with or without a decorator."""
        only_data_on_stdout()
        return self._named(self._parts[0]) if ":" in self.text else _shipped(self.text)

    def operation(self, lack: str) -> Operation:
        """The operation that is named; `lack` says at the end of the error what a plain function lacks."""
        target = self.load()
        if not isinstance(target, Operation):
            raise TargetError(f"{self.text} is a function{lack}", hint="name an Operation")
        return target

    def around_list(self, lack: str) -> Operation:
        """As `operation`; the space of a launch with a whole list of configs also has configs beside the list's."""
        launch = self.operation(lack)
        whole = isinstance(launch, dispatch.NotedOperation) and launch.has_whole_list
        return replace(self, widen=True).operation(lack) if whole else launch

    def values(self) -> Mapping[str, Any]:
        """The names of the file or module that is named, each with its value."""
        only_data_on_stdout()
        return vars(module_at(self.text))

    def tuned(
        self, target: Operation | Callable[..., Any]
    ) -> tuple[Operation, Any, tuple[int, ...] | None, str | None]:
        """The arguments of `tune` for what was loaded: as `TypedProblem.operation`; a launch has its problem."""
        launch: Any = target if getattr(target, "launched", False) else None  # its class would import Triton
        if launch is None:
            self._check_no_launcher(target)
            return self.problem.operation(target)
        return TypedProblem(space=self.problem.space if launch.listed is not None else None).operation(target)

    def _check_no_launcher(self, function: Any) -> None:
        """Refuse a function without a space that launches a kernel: the kernel is what has tunables."""
        code, space = getattr(function, "__code__", None), self.problem.space
        beside = {} if code is None or space is not None else function.__globals__
        if kernel := next((name for name in getattr(code, "co_names", ()) if _is_kernel(beside.get(name))), None):
            place = self.text.rpartition(":")[0]
            raise SpaceError(
                f"{self.text} is a function that launches the kernel {kernel}, and has no space of its own",
                hint=f"tune the kernel, {place}:{kernel}, or give the function's tunables: --space NAME=v1,v2",
            )

    @property
    def _parts(self) -> tuple[str, str]:
        """What stands before the `@`, and after it."""
        place, colon, rest = self.text.partition(":")
        name, _, function = rest.partition("@")
        return f"{place}{colon}{name}", function

    @property
    def _typed(self) -> bool:
        """Tell whether a function is named, or arguments for one."""
        return bool(self._parts[1] or self.problem.shapes or self.problem.arguments)

    @property
    def is_lone_kernel(self) -> bool:
        """Tell whether a Triton kernel is named, and nothing of a call."""
        return hasattr(self.object(), "arg_names") and not self._typed

    @property
    def _stand_in(self) -> Target | None:
        """The GPU that was typed; None where none was, or one without limits, which the command itself refuses."""
        if self.gpu is None:
            return None
        with contextlib.suppress(DeviceError):
            spec = DeviceSpec.called(self.gpu)
            return Target.named(self.gpu) if spec is None else Target.of(spec)
        return None

    def _named(self, text: str) -> Any:
        target = self._stand_in
        with contextlib.nullcontext() if target is None else standing_in(target, lambda *_launch: None):
            return named_object(text)

    def _usable(self, target: Any) -> Operation | Callable[..., Any]:
        text, _ = self._parts
        if _is_kernel(target):
            call = None if self._typed else dispatch.NotedOperation.of(target, self.cache_dir)
            return call or self._launched(target)
        if hasattr(target, "grid"):  # a TritonKernel
            name = text.rpartition(":")[2]
            raise TargetError(
                f"{text} is a Triton kernel, and neither its arguments nor its reference are known",
                hint=f"make an Operation of it, name = Operation(..., TritonKernel({name}, grid), ...), and tune that",
            )
        target = getattr(target, "operation", target)  # of a chooser
        if isinstance(target, Operation) or (callable(target) and not isinstance(target, type)):
            return target
        kind = "class" if isinstance(target, type) else f"value of type {type(target).__name__}"
        raise TargetError(
            f"{text} is a {kind}, neither an Operation nor a function",
            hint="name an Operation, or a function that takes config values as keywords",
        )

    def _launched(self, kernel: Any) -> Operation:
        """The operation of a kernel at its launch by a function, with the example arguments that were typed."""
        launcher = self._launcher(kernel, or_statement=True)
        specs = self.problem.tensors(FunctionKernel(launcher), ())
        target = self._stand_in or Target.named(_STAND_IN)
        return dispatch.NotedOperation.launched_by(launcher, kernel, specs, self.problem.space, target, self.widen)

    def _launcher(self, kernel: Any, *, or_statement: bool = False) -> Callable[..., Any]:
        """The function after the `@`, else the one that launches the kernel in its own file or the TARGET's."""
        text, function = self._parts
        place, _, name = text.rpartition(":")
        of_target = {"__name__": place, "__file__": str(Path(place).resolve())}.items()
        # The TARGET's own file may only import the kernel, and a file's module may have another name than the file.
        modules: list[Any] = [sys.modules[Layers.unwrap(kernel).__module__]]
        others: list[Any] = list(sys.modules.values())
        modules += [one for one in others if isinstance(one, ModuleType) and of_target & {
            (name, vars(one).get(name)) for name in ("__name__", "__file__")}]  # fmt: skip
        if function:
            launcher, owner = (self._beside(modules, text) for text in (function, function.rpartition(".")[0]))
            if not callable(launcher):
                raise TargetError(f"{place} has no function {function!r} that launches {name}", hint=TargetError.FORMS)
            if kind := next(filter(_is_differentiable, (launcher, owner, getattr(launcher, "__self__", None))), None):
                return _method(kind, function.rpartition(".")[2])
            nodes = ((one, node) for one in modules for node in _statements(one) if _name(node) == function)
            return next((_plain(launcher, *place) for place in nodes), launcher)
        launchers = dict(each for module in modules for each in _launchers(module, kernel, or_statement))
        if len(launchers) == 1:
            return next(iter(launchers.values()))
        several = f"{', '.join(launchers)} launch it" if launchers else "no function of its file launches it"
        raise TargetError(
            f"{self.text} is a Triton kernel, and {several}, so that its arguments and its grid are not known",
            hint=f"name the function that launches it, {self.text}@FUNCTION or {self.text}@PLACE:FUNCTION, with "
            "--shape and --arg for its arguments; or have its program note calls, with TRITON_OPS_ON_MISS=queue",
        )

    def _beside(self, modules: list[Any], text: str) -> Any:
        """What a text names in one of these modules, or where the text itself says; None if there is no such thing."""
        beside = (reduce(lambda owner, part: getattr(owner, part, None), text.split("."), one) for one in modules)
        return self._named(text) if ":" in text else next(filter(None, beside), None)


def _is_kernel(value: Any) -> bool:
    return hasattr(value, "fn") and hasattr(value, "arg_names")


def _launchers(module: Any, kernel: Any, or_statement: bool) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions of a module that name a kernel and are none, by their names; of a class its methods.

    Where there are none, the first statement at the top of the file that launches it, if that is wanted.
    """
    mine = {name for name, value in vars(module).items() if value is kernel}
    functions: dict[str, Callable[..., Any]] = {}
    for node in _statements(module):
        value = vars(module).get(_name(node))
        if isinstance(node, ast.FunctionDef) and callable(value) and not hasattr(value, "arg_names"):
            functions |= {node.name: _plain(value, module, node)} if _names(node) & mine else {}
        elif isinstance(node, ast.ClassDef) and isinstance(value, type):
            ways = [each.name for each in node.body if isinstance(each, ast.FunctionDef) and _names(each) & mine]
            functions |= {f"{node.name}.{way}": _method(value, way) for way in ways}
    if not functions and or_statement:
        others = (node for node in _statements(module) if not isinstance(node, (ast.FunctionDef, ast.ClassDef)))
        # A launch begins with the kernel's name and a subscript, its grid.
        first = next((node for node in others for one in ast.walk(node)
                      if isinstance(one, ast.Subscript) and _names(one.value) & mine), None)  # fmt: skip
        functions = {f"line {first.lineno}": partial(_run, module, first)} if first else {}
    yield from functions.items()


def _statements(module: Any) -> list[ast.stmt]:
    """The statements at the top of a module; none where its source is not there, as in a notebook."""
    try:
        return ast.parse(inspect.getsource(module)).body
    except (OSError, TypeError):
        return []


def _name(node: ast.stmt) -> str:
    return str(getattr(node, "name", ""))


def _plain(function: Callable[..., Any], module: Any, node: ast.stmt) -> Callable[..., Any]:
    """A function of a module as it was before it became an operator of torch, which launches on its own devices alone.

    What torch is to compile is run as it is.
    """
    if isinstance(function, (FunctionType, type)) or not isinstance(node, ast.FunctionDef):
        # Private (torch 2.13): what `torch.compile` and `torch.compiler.disable` have wrapped.
        plain: Callable[..., Any] = getattr(function, "_torchdynamo_orig_callable", function)
        return plain
    node.decorator_list = []
    return _run(module, node)[node.name]  # type: ignore[no-any-return]


def _run(module: Any, statement: ast.stmt) -> dict[str, Any]:
    """Run a statement of a module once more, and return the names that it binds, which the module does not get."""
    own: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag  # annotations need not be known here
    exec(compile(ast.Module([statement], []), module.__file__, "exec", flags, dont_inherit=True), vars(module), own)
    return own


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _is_differentiable(value: Any) -> bool:
    """Tell whether something is a function of torch's with a gradient, which is a class."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, type) and issubclass(value, torch.autograd.Function)


def _method(kind: Any, way: str) -> Callable[..., Any]:
    """A method of a class; of a function of torch's with a gradient a plain function, as its `forward` is called."""
    if not _is_differentiable(kind):
        return getattr(kind, way)  # type: ignore[no-any-return]
    backward = way == "backward"
    _, *parameters = inspect.signature(kind.forward).parameters.values()  # the first is the context
    signature = inspect.Signature(parameters)

    def launch(*args: Any, **kwargs: Any) -> Any:
        values = signature.bind(*args, **kwargs)
        values.apply_defaults()
        # Torch calls `backward` only where some input asks for a gradient.
        for value in values.args if backward else ():
            if Arguments.is_tensor(value) and value.is_floating_point():
                value.requires_grad_()
        output = kind.apply(*values.args)  # which takes no keywords: pytorch/pytorch#16940
        if backward:
            (output[0] if isinstance(output, tuple) else output).sum().backward()
        return output

    launch.__name__ = launch.__qualname__ = kind.__name__
    launch.__module__ = kind.__module__
    launch.__signature__ = signature  # type: ignore[attr-defined]
    return launch


def _shipped(name: str) -> Operation:
    if name.endswith(".py"):
        raise TargetError(f"{name} names a file, but nothing in it", hint=f"write {name}:NAME")
    names = Operation.shipped_names()
    if names and name not in names:
        raise TargetError(f"there is no kernel {name!r}; {alternatives(name, names)}", hint=TargetError.FORMS)
    return Operation.shipped(name)
