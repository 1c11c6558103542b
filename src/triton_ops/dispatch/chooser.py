"""A chooser: several implementations of one operation, of which each call runs the one measured to be fastest.

A chooser is an operation whose config names an implementation. Everything that tunes, keeps and explains configs
therefore serves it: verification, the last comparison, records, the ladder, lockfiles, and the report of launches.

One may serve an operator of torch's own. The shape is that of torch's registries of overrides: a predicate, an
implementation, and the captured original, to which every call falls through that the chooser leaves to its first
implementation, or that an implementation makes.

Facts used, from torch 2.11 to 2.13: `torch.library.get_kernel` gives the kernel of an operator and a dispatch key,
which `call_boxed` calls with the keys of a call; `Library("aten", "IMPL").impl(..., with_keyset=True)` puts another
one in its place, and `Library._destroy` takes it back; autograd stands above it, and records the operator as always.
Inductor lowers the operators of ATen itself, so that compiled code does not come here.
"""

from __future__ import annotations

import importlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import ModuleType
from typing import Any

from triton_ops.backend import Arguments, FunctionKernel, Operation, Origin
from triton_ops.base import Frozen, require
from triton_ops.dispatch.choice_in_compile import ChoiceInCompile
from triton_ops.dispatch.decision import FALLBACK, Decision, Found, register
from triton_ops.dispatch.implementation import ChoiceKernel, ChoiceSpace, Implementation, as_implementation, in_order
from triton_ops.dispatch.in_compile import described, without_memory
from triton_ops.dispatch.ladder import DEFAULT, MEASURING, capturing, ladder_of, policy_of, tune
from triton_ops.dispatch.operations import answered, safely_decided
from triton_ops.dispatch.plans import shortcut
from triton_ops.dispatch.torch_operators import operator_of, recorded
from triton_ops.exceptions import KernelTypeError, SettingsError, TargetError
from triton_ops.request import KnownCall, KnownCalls, TuneOptions, TuneProblem, TuneRequest, device_for
from triton_ops.settings import ON_MISS, one_of
from triton_ops.values import Problem, Tolerance, TuningResult

_PROGRAMS = ("__main__", "__mp_main__")  # another process runs another program, or does not run this one again


def by_variable(chooser: Chooser) -> tuple[Callable[[str, str], Chooser], tuple[str, str]]:
    """Pickled form of a chooser: the names of a module that another process can import and of its variable.

    Raises KernelTypeError. Cost: a walk over the variables of all imported modules, some milliseconds.
    """
    for module, variable, value in _variables(chooser):
        if value is chooser and module not in _PROGRAMS and Origin.is_found_again(module):
            return named, (module, variable)
    raise KernelTypeError(
        f"the chooser {chooser.name} cannot be pickled: it is no variable of a module that another process can import",
        hint="assign it at the top of a module that is imported, or send its functions and call `choose` there",
    )


def named(module: str, variable: str) -> Chooser:
    """The chooser that a variable of a module holds; raises KernelTypeError if there is none."""
    with KernelTypeError.when(f"the chooser {module}.{variable} is not found here", "", ImportError, AttributeError):
        chooser: Chooser = getattr(importlib.import_module(module), variable)
    if not hasattr(chooser, "implementations"):
        raise KernelTypeError(f"{module}.{variable} is {chooser!r} here, and no chooser")
    return chooser


def _variables(chooser: Chooser) -> Iterator[tuple[str, str, object]]:
    """Variables of imported modules: first of those that hold the implementations, where it likely stands too."""
    functions = [each.function for each in chooser.implementations.values()]
    homes = [getattr(function, "__module__", None) or "" for function in functions]
    for module in dict.fromkeys([*homes, *sys.modules]):
        for variable, value in [*getattr(sys.modules.get(module), "__dict__", {}).items()]:
            yield module, variable, value


class Chooser:
    """One operation with several implementations: a call runs the one that is fastest for its problem.

    `choose` makes one, and describes the parameters; they are the same here, with `options` as a mapping, and as
    `facts` what its `Operation` takes too. A call takes the arguments of the implementations. The winner of each
    problem is kept in a record, as that of a kernel.
    """

    def __init__(
        self,
        implementations: Any,
        *,
        name: str,
        outputs: Sequence[str] = (),
        parameters: Sequence[str] | None = None,
        reference: Callable[..., Any] | None = None,
        arguments: Callable[..., Mapping[str, Any]] | None = None,
        schema: str | None = None,
        on_miss: str | None = None,
        options: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> None:
        _check_names(implementations, outputs, parameters)
        self.name, self.on_miss = name, None if on_miss is None else one_of(ON_MISS, on_miss, "on_miss")
        self.options = Frozen((key, value) for key, value in (options or {}).items() if value is not None)
        self._outputs, self._parameters, self._folder = tuple(outputs), parameters, self.options.get("cache_dir")
        self._facts = facts
        self._reference, self._arguments = reference, arguments or _no_arguments
        self._operator = operator_of(name, schema, self, lambda: next(iter(self.implementations.values())).run({}))
        self._take({label: as_implementation(implementation) for label, implementation in implementations.items()})
        register(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the winner of the call's problem; without one, do as `on_miss` says.

        Raises:
            TuningFailedError: No implementation applies; the error has the reason of each.
            UntunedError: No winner is known, and the policy is `error`.

        Cost: above the winner's own call one look-up, about a microsecond with two tensors; the first call of a problem
        reads one file.
        """
        if _dynamo():
            return self._in_compile.call(args, kwargs)
        return self._calls.call(*args, **kwargs)

    def __deepcopy__(self, memo: object) -> Chooser:
        """Itself, as functions are: a copy of a module that holds it calls it too."""
        return self

    def __copy__(self) -> Chooser:
        """Itself, as functions are."""
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """A chooser is pickled by the variable that holds it, as functions are."""
        return by_variable(self)

    def __repr__(self) -> str:
        return f"Chooser({self.name!r}, {list(self.implementations)})"

    @property
    def implementations(self) -> Mapping[str, Implementation]:
        """The implementations by name; the first one runs untuned where it applies."""
        return self._kernel.implementations

    @property
    def operation(self) -> Operation:
        """This chooser as an operation, for tuners and the command line."""
        return self._operation

    def register(self, name: str, implementation: Any = None, **more: Any) -> Any:
        """Add an implementation, or take another one under a name that there is; decisions are taken anew.

        Args:
            name: Its name in records.
            implementation: A callable, an `Operation`, or an `Implementation`; None returns a decorator.
            **more: Fields of `Implementation`, such as `applies`.

        Returns:
            What was given.

        Raises:
            KernelTypeError: It is nothing that could be called.
        """
        if implementation is None:
            return lambda function: self.register(name, function, **more)
        self._take({**self.implementations, name: as_implementation(implementation, **more)})
        return implementation

    def remove(self, name: str) -> Implementation:
        """Take an implementation out; returns it.

        Raises:
            KernelTypeError: There is none of this name, or it is the only one.
        """
        if name not in self.implementations or len(self.implementations) == 1:
            message = f"{name!r} cannot be removed from {self.name}, which has {', '.join(self.implementations)}"
            raise KernelTypeError(message, hint="keep one of them")
        implementation = self.implementations[name]
        self._take({label: each for label, each in self.implementations.items() if label != name})
        return implementation

    def tune(
        self,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        shape: Sequence[int] | None = None,
        dtype: str | None = None,
        device: str | None = None,
        **options: object,
    ) -> TuningResult:
        """Find the fastest implementation for one problem, or recall it; later calls of the problem run it.

        An implementation with an operation of its own is tuned first, and takes part with its winner. All results are
        verified against the reference, or else against each other; what is wrong, raises, or keeps memory is a trial
        with its reason, and takes no further part.

        Args:
            args: Positional arguments, as of a call.
            kwargs: Keyword arguments, as of a call.
            shape: Extents of a problem, where the chooser was given `arguments`; None with arguments, or the default.
            dtype: Dtype of a problem by shape.
            device: As of `triton_ops.tune`.
            **options: Further options of `triton_ops.tune`, such as `effort`, `budget_s`, `isolate` and `force`, for
                this tune and for those of operations.

        Raises:
            TuningFailedError: No implementation applies, or none worked; the error has the reason of each.
            SettingsError: No arguments are given, and the chooser was not told how to make some.
            TargetError, DeviceError and others: What `triton_ops.tune` raises.

        Cost: a tune of each operation that has no record yet, then one of the implementations.
        """
        options, arguments = {**self.options, **options}, Arguments.given(args, kwargs)
        operation, how = self._operation, dict[str, Any]()
        if arguments.positional or arguments.keyword:
            source, how = arguments, {"args": arguments.positional, "kwargs": dict(arguments.keyword), "device": device}
        else:
            if self._arguments is _no_arguments and (shape is not None or self._kernel.parameter_names):
                message = f"{self.name} was given no arguments, and does not know how to make them"
                making = "choose(..., arguments=...), which makes them from a shape"
                raise SettingsError(message, hint=f"give those of a call, tune((a, b)), or {making}")
            problem = self._operation.problem(None if shape is None else tuple(shape), dtype)
            source = self._operation.materialise(problem, device_for(device, "any", self.name))
            how = {"shape": shape, "dtype": dtype, "device": device}
        space = self._kernel.raced(source, recorded(list(source.tensors())), tune, options)
        try:
            result: TuningResult = tune(operation, **how, space=space, **options)
        except TargetError:
            if self._reference is not None or operation.reference is None:
                raise
            without = self._made_operation(space, None)  # what runs first failed: the others judge each other
            result = tune(without, **how, space=space, **options)
        self.forget()
        return result

    def why(self, *args: object, **kwargs: object) -> Decision:
        """Decision for a call, with its reason, without running, tuning or noting anything.

        The decision's `passed` has the answer of every rung above, and why implementations do not apply.

        Raises:
            TuningFailedError: No implementation applies.
        """
        arguments = Arguments(args, kwargs)
        return self._found(arguments, recorded(list(arguments.tensors())))

    @property
    def decisions(self) -> list[Decision]:
        """The decisions so far."""
        return [call.decision for call in list(self._calls.values())]

    def forget(self) -> None:
        """Have every problem decided again."""
        self._calls.clear()
        self._in_compile.forget()

    def begin_anew(self) -> None:
        """Forget every decision and the lock, in a forked child, whose other threads are gone."""
        self._calls.begin_anew()

    def known(self, args: Sequence[Any], kwargs: Mapping[str, Any], place: Any) -> KnownCall:
        """Entry for a call with this place, decided before or now."""
        entry: KnownCall | None = self._calls.get(place)
        if entry is not None and entry.holds:
            return entry
        if _torch_says(lambda torch: torch.compiler.is_compiling()):  # on tensors without memory
            return KnownCall(lambda *positional, **named: self._in_compile.call(positional, named))
        tensors = filter(Arguments.is_tensor, (*args, *kwargs.values()))
        if place is None or any(tensor.device.type == "meta" for tensor in tensors):
            return KnownCall(self._first(args, kwargs))  # inside of vmap, tensors have no memory of their own
        return self._calls.of(place, lambda: self._known(args, kwargs))

    def _known(self, args: Sequence[object], kwargs: Mapping[str, object]) -> KnownCall:
        decision = self._decided(Arguments(tuple(args), kwargs)).counted
        run = self._kernel.call(decision.found.config)
        if not kwargs:
            run = shortcut(run, args)
        elif any(name in self._kernel.parameter_names for name in kwargs):  # other implementations may have other names
            run = partial(_placed, run, self._kernel.parameter_names)
        return KnownCall(run, decision.count.up, decision.ask, decision.within, decision)

    def _first(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Callable[..., object]:
        """Implementation where nothing can be looked up: the first that applies, or that there is."""
        try:
            named = {name: without_memory(it) for name, it in kwargs.items()}
            arguments = Arguments(tuple(map(without_memory, args)), named)
        except RuntimeError:  # a tensor without strides, such as a compressed sparse one
            return next(iter(self.implementations.values())).run({})
        return self._kernel.call(self._kernel.known(arguments, recorded(args), self._folder).default_config)

    def _decided(self, arguments: Arguments) -> Decision:
        """The decision of a call: of the ladder and the policy, unless there is nothing to choose."""
        space = self._kernel.known(arguments, recorded(list(arguments.tensors())), self._folder)
        auto = _torch_says(lambda torch: torch._C._is_any_autocast_enabled())  # then what was verified is not what runs
        if auto or len(space.listed or ()) == 1:
            why = "torch's autocast is on, under which nothing was measured" if auto else "no other one applies"
            request = _request_of(self._operation, arguments)
            answer = Found(config=space.default_config, rung=FALLBACK, why=why)
            problem, device = request.problem.label, request.device.name
            return Decision(found=answer, kernel=self.name, problem=problem, device=device, passed=space.remarks)
        tunes = policy_of(self.on_miss, DEFAULT) in MEASURING and not capturing()
        return safely_decided(
            self._made_operation(space, self._operation.reference), arguments.keyword, args=arguments.positional,
            on_miss=self.on_miss, options=self.options,
            tuner=partial(self.tune, arguments.positional, arguments.keyword) if tunes else None,
        )  # fmt: skip

    def _found(self, arguments: Arguments, records: bool) -> Decision:
        space = self._kernel.known(arguments, records, self._folder)
        operation = self._made_operation(space, self._operation.reference)
        return answered(operation, _request_of(operation, arguments), ladder_of(self._folder), near=True)

    def _take(self, implementations: Mapping[str, Implementation]) -> None:
        before = getattr(self, "_kernel", None)
        functions = (each.function for each in implementations.values() if each.function is not None)
        own_names = (FunctionKernel(function).parameter_names for function in functions)
        parameters = tuple(self._parameters or next(filter(None, own_names), ()))
        self._kernel = ChoiceKernel(self.name, implementations, parameters, self._outputs)
        if before is not None:
            self.forget()
        self._in_compile = ChoiceInCompile(self._kernel, self._found, self._operator)
        self._calls = KnownCalls[KnownCall](self.known, ["autocast", "gradients"])
        first = next(iter(implementations.values()))
        own = None
        if self._reference is None and not self._outputs and first.function is not None and first.operation is None:
            own = partial(_placed, first.function, parameters)
        self._operation = self._made_operation(self._space_by_shape, self._reference or own)

    def _made_operation(self, space: Any, reference: Callable[..., Any] | None) -> Operation:
        return Operation(self.name, self._kernel, space, self._arguments, reference=reference, **self._facts)

    def _space_by_shape(self, problem: Problem) -> ChoiceSpace:
        arguments = described(dict(problem.arguments), device_for(None, "any", self.name))
        return self._kernel.known(arguments, False, self._folder)


def _check_names(implementations: Any, outputs: Any, parameters: Any) -> None:
    has_names = isinstance(implementations, Mapping) and all(isinstance(name, str) and name for name in implementations)
    if not has_names or not implementations:
        message = f"implementations are {implementations!r}; they are given by name, at least one"
        raise KernelTypeError(message, hint='write {"aten": torch.mm, "mine": my_mm}')
    for what, names in (("outputs", outputs), ("parameters", parameters or ())):
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise SettingsError(f"{what} are {names!r}; they are a list of names", hint=f'write {what}=("x",)')
    if strange := [name for name in outputs if parameters and name not in parameters]:
        raise SettingsError(f"outputs name {', '.join(strange)}, and the parameters are {', '.join(parameters)}")


def _placed(run: Callable[..., Any], parameters: Sequence[str | None], *args: Any, **kwargs: Any) -> Any:
    arguments = in_order(parameters, Arguments(args, kwargs))
    return run(*arguments.positional, **arguments.keyword)


def _request_of(operation: Operation, arguments: Arguments) -> TuneRequest:
    return TuneProblem(target=operation, args=arguments.positional, kwargs=arguments.keyword).request()


def _torch_says(ask: Callable[[ModuleType], object]) -> bool:
    """What torch answers; no, where nobody has imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(ask(torch))


def _dynamo() -> bool:
    """Tell whether Dynamo is tracing this code, where torch makes it a constant."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()


def _no_arguments() -> Mapping[str, None]:
    return {}


def choose(
    implementations: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    outputs: Sequence[str] = (),
    parameters: Sequence[str] | None = None,
    reference: Callable[..., Any] | None = None,
    tolerance: float | Tolerance | None = None,
    check: Callable[[Any, Any], Any] | None = None,
    arguments: Callable[..., Mapping[str, Any]] | None = None,
    dtypes: Sequence[str] = (),
    problems: Mapping[str, tuple[tuple[int, ...], str]] | None = None,
    schema: str | None = None,
    on_miss: str | None = None,
    **options: Any,
) -> Any:
    """Choose among implementations of one operation by measurement: for each problem, the fastest one that is right.

    With implementations it makes a `Chooser`. Without, it is a decorator: the decorated function is the first
    implementation, and `@function.register("name")` adds others.

    Args:
        implementations: Name to a callable, an `Operation`, or an `Implementation`, which says where it applies. All
            are called with the same arguments, those with a place by position. The first one runs untuned, and is the
            right one where no reference is given.
        name: The operation's name in records; None takes that of the first implementation's function.
        outputs: Arguments that the implementations write; empty if they return their results, one or several.
        parameters: Names of the parameters that may be given by position; None takes them from the first implementation
            that tells its own. Outputs, and arguments by name, need them.
        reference: As of `tune`; None takes the first implementation in higher precision, where it returns its result.
        tolerance: As of `tune`.
        check: As of `tune`.
        arguments: From extents and `dtype` to the arguments by name, as of an `Operation`: for problems by shape, and
            for the command line.
        dtypes: Dtypes that `arguments` takes; the first is the default.
        problems: Named shapes with their dtypes.
        schema: The operation's arguments and results as torch writes them, such as `(Tensor a, Tensor b) -> Tensor`, or
            `(Tensor x, Tensor(a!) out) -> ()` for one that writes. Code that `torch.compile` makes for dynamic sizes
            then chooses when it runs; without it such code is compiled anew for each size.
        on_miss: What a call without a known winner does: `default` runs the first implementation that applies, `tune`
            measures, `error` raises, `queue` notes the problem. None takes `TRITON_OPS_ON_MISS`, else `default`.
        **options: Options of `tune` for all tunes, such as `effort`, `budget_s`, `cache_dir` and `isolate`.

    Returns:
        A `Chooser`; without implementations a decorator that returns one.

    Raises:
        KernelTypeError: An implementation is not callable, or there is none.
        SettingsError: There is no such policy, or no such option.
    """
    TuneOptions.check_names(options, "choose takes", "options of tune")
    more: dict[str, Any] = {
        "outputs": outputs, "parameters": parameters, "reference": reference, "tolerance": tolerance, "check": check,
        "arguments": arguments, "dtypes": tuple(dtypes), "problems": problems or {}, "schema": schema,
        "on_miss": on_miss, "options": options,
    }  # fmt: skip
    if implementations is not None:
        return Chooser(implementations, name=name or _name_of(implementations), **more)

    def decorate(function: Callable[..., object]) -> Chooser:
        return Chooser({function.__name__: function}, name=name or FunctionKernel(function).name, **more)

    return decorate


def _name_of(implementations: object) -> str:
    if not isinstance(implementations, Mapping) or not implementations:
        return ""  # the chooser refuses it
    first = as_implementation(next(iter(implementations.values())))
    if first.operation is not None:
        return first.operation.name
    return FunctionKernel(first.function).name if first.function is not None else ""


def serve(chooser: Chooser, operator: str, dispatch_key: str = "CUDA") -> ExitStack:
    """Let a chooser serve one of torch's operators in this process, until the result is closed.

    Args:
        chooser: The chooser. It takes the operator's arguments.
        operator: As torch names it, such as `aten::mm`, with an overload where there are several: `aten::add.Tensor`.
        dispatch_key: For tensors of which kind: `CUDA` or `CPU`.

    Returns:
        The service: `close()` ends it, and so does the end of a `with`.

    Raises:
        KernelTypeError: The first argument is no chooser.
        SettingsError: There is no such operator or dispatch key, or torch is older than 2.10.

    Cost: some microseconds for each call of the operator, since it passes through Python.
    """
    if not isinstance(chooser, Chooser):
        raise KernelTypeError(f"{chooser!r} is no chooser", hint="make one: triton_ops.choose({...})")
    library = require("torch.library", "serving an operator")
    space, _, name = operator.partition("::")
    if not hasattr(library, "get_kernel"):
        raise SettingsError("this torch does not hand out its own kernels", hint="serving needs torch 2.10 or newer")
    try:
        original = library.get_kernel(operator, dispatch_key)
    except (RuntimeError, AttributeError, ValueError) as error:
        message = f"there is no operator {operator!r} for {dispatch_key!r}: {str(error).partition(chr(10))[0]}"
        raise SettingsError(message, hint='name one as torch does: serve(chooser, "aten::mm", "CUDA")') from error
    inside, no_grad = threading.local(), require("torch", "serving an operator").no_grad

    def called(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(inside, "now", False):  # an implementation uses the operator itself
            return original.call_boxed(keys, *args, **kwargs)
        inside.now = True
        try:
            # `inside` is of this thread alone: another one that calls the operator meanwhile is served too.
            with no_grad():  # autograd has its own formula, and is above
                return chooser(*args, **kwargs)
        finally:
            inside.now = False

    own = called.library = library.Library(space, "IMPL")  # type: ignore[attr-defined]  # as long as torch has `called`
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*[Oo]verrid", category=UserWarning)  # it is meant to be
        own.impl(name, called, dispatch_key, with_keyset=True)
    service = ExitStack()
    service.callback(own._destroy)
    return service
