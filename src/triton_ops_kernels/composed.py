"""Kernels that are made of several Triton kernels, each known by the one that leads them.

The first takes every tunable, and is all that most configs launch. So both are compiled without torch, and the free
rules read the first, as with a kernel of one launch.

A form takes those arguments and tunables that it has parameters for, so that one in Gluon may leave out the strides
that its descriptors hold, and have tunables of its own. To searches, records and lockfiles the form is a tunable.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

from triton_ops.backend import (
    Arguments,
    CompiledByTriton,
    Executable,
    LauncherKernel,
    Source,
    TritonKernel,
)
from triton_ops.base import require
from triton_ops.exceptions import ConfigValueError, KernelTypeError, UnknownTunableError
from triton_ops.space import Config
from triton_ops.values import TensorSpec

Form: TypeAlias = "TritonKernel | StagedKernel | LauncherKernel"


class ComposedKernel(CompiledByTriton):
    """Several Triton kernels as one: records and arguments know it by the one that leads."""

    @property
    @abstractmethod
    def _members(self) -> tuple[Form, ...]:
        """The kernels, first the one that names this one, and has a parameter for every argument."""

    @property
    def _leading(self) -> Form:
        return self._members[0]

    @property
    def name(self) -> str:
        """The name of the leading kernel."""
        return self._leading.name

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the arguments that a launch of any config writes."""
        return self._leading.outputs

    @property
    def interpreted(self) -> bool:
        """Tell whether the leading kernel runs as Python, as under `TRITON_INTERPRET`."""
        return self._leading.interpreted

    @property
    def parameter_names(self) -> Sequence[str | None]:
        """The names of the leading kernel, in calling order."""
        return self._leading.parameter_names

    @property
    def compile_imports(self) -> str:
        """Torch where code of the user's may ask a tensor anything when a config of one of them is compiled."""
        return next((each.compile_imports for each in self._members if each.compile_imports), "")

    @property
    def cache_key(self) -> str:
        """Triton's name for the sources of all."""
        return " ".join(each.cache_key for each in self._members)


_PROGRAMS = "programs"  # the parameter of the second kernel that is told how many programs the first launch had
_ANY = 1  # no part of the code: a parameter that Triton must not specialise on
_LIGHT = Arguments((TensorSpec((1,), "float32"),)).described(light=True)  # the scratch, where nothing has memory


@dataclass(frozen=True)
class StagedKernel(ComposedKernel):
    """A Triton kernel that takes every tunable, and the one that some of its configs launch after it.

    Both have a parameter `scratch`, a float32 tensor on the device, which is None for a config of one launch. The
    second takes those arguments and tunables of the first that it has parameters for, `options` that belong to no
    config, and as `programs`, if it has that parameter, the number of programs of the first launch. `when` tells from
    arguments and config by name whether the second is launched; `elements`, from these and that number, the elements of
    the scratch. `KernelTypeError` if the second has a parameter that gets no value, or one of the two takes no scratch.
    """

    first: TritonKernel
    second: TritonKernel
    _: KW_ONLY
    when: Callable[[Mapping[str, Any]], bool]
    scratch: str
    elements: Callable[[Mapping[str, Any], int], int]
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        names = {*self.first.parameter_names, *self.options, _PROGRAMS}
        strange = [name for name in self.second.parameter_names if name not in names]
        if strange or any(self.scratch not in each.parameter_names for each in (self.first, self.second)):
            lacking = ", ".join(strange) or self.scratch
            message = f"{self.second.name} cannot follow {self.first.name}: no value for {lacking}"
            raise KernelTypeError(message, hint="name its parameters as those of the first, or give them as options")

    @property
    def _members(self) -> tuple[Form, ...]:
        return self.first, self.second

    @property
    def sources(self) -> Mapping[str, Source]:
        """What the first kernel is made of, and the second as one source."""
        second = {**self.second.sources, "when": Source.of(self.when), "elements": Source.of(self.elements)}
        return {**self.first.sources, "second": Source.joined(second, sorted(self.options.items()))}

    @property
    def identity(self) -> Mapping[str, str]:
        """Fingerprints of both kernels with all they refer to, and what compiles them."""
        return {**self.first.identity, **Source.named(self.sources)}

    @property
    def without_grid(self) -> StagedKernel:
        """The same kernels for processes that only compile, where the grids cannot go."""
        return replace(self, first=self.first.without_grid, second=self.second.without_grid)

    @property
    def parsed(self) -> Any:
        """The first JIT function, whose text the free rules read."""
        return self.first.parsed

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise as the first kernel does, unless tunables and arguments together are what it takes."""
        self.first.check(tunables, arguments)

    def extents(self, config: Config, arguments: Arguments) -> list[int] | None:
        """The extents of the first launch's grid, which is the larger one."""
        return self.first.extents(config, arguments)

    def lowered(self, config: Config, arguments: Arguments) -> list[Any]:
        """Triton's compiled kernels of one call, in the order of their launches; nothing is loaded or launched."""
        if not self._is_staged(config, arguments):
            return self.first.lowered(config, arguments)
        like = self._meta(config, arguments)[self.outputs[0]]
        scratch = self._memory(like.device, 1) if Arguments.is_tensor(like) else _LIGHT.positional[0]
        first, second, own = self._parts(config, arguments, scratch, _ANY)
        return [*self.first.lowered(config, first), *self.second.lowered(own, second)]

    def compile(self, config: Config, arguments: Arguments) -> Executable:
        """Compile and load every launch of a config for these arguments, as `TritonKernel.compile`."""
        if not self._is_staged(config, arguments):
            return self.first.compile(config, arguments)
        if self.interpreted:
            return self.executable(config)
        _, facts = self.loaded(config, arguments)
        return replace(self.executable(config), **facts)

    def executable(self, config: Config) -> Executable:
        """A config that Triton itself compiles at its first launch with arguments of a kind.

        The scratch is made when arguments are bound, and is theirs for all launches.
        """

        def bind(arguments: Arguments) -> Callable[[], object]:
            if not self._is_staged(config, arguments):
                return self.first.executable(config).bind(arguments)
            meta = self._meta(config, arguments)
            programs = math.prod(self.first.grid(meta))
            scratch = self._memory(meta[self.outputs[0]].device, self.elements(meta, programs))
            first, second, own = self._parts(config, arguments, scratch, programs)
            launches = [self.first.executable(config).bind(first), self.second.executable(own).bind(second)]

            def launched() -> None:
                for launch in launches:
                    launch()

            return launched

        return Executable(config=config, bind=bind, outputs=self.outputs)

    def launch_parts(self, config: Config, arguments: Arguments) -> Sequence[object] | None:
        """As of the first kernel; None for two launches, of which none is known alone."""
        return None if self._is_staged(config, arguments) else self.first.launch_parts(config, arguments)

    def _meta(self, config: Config, arguments: Arguments) -> dict[str, Any]:
        """Arguments and config by name, with the defaults of the first kernel's parameters, as grids are given them."""
        return {**self.first.defaults, **self.first.by_name(arguments), **config}

    def _is_staged(self, config: Config, arguments: Arguments) -> bool:
        return self.when(self._meta(config, arguments))

    def _memory(self, device: object, elements: int) -> Any:
        torch = require("torch", "memory between two launches")
        return torch.empty(elements, dtype=torch.float32, device=device)

    def _parts(
        self, config: Config, arguments: Arguments, scratch: object, programs: int
    ) -> tuple[Arguments, Arguments, Config]:
        """The arguments of the first launch, those of the second, and the config of the second."""
        parameters = set(self.second.parameter_names)
        meta = {**self._meta(config, arguments), self.scratch: scratch, _PROGRAMS: programs}
        own = {name: meta[name] for name in config if name in parameters} | dict(self.options)
        second = {name: meta[name] for name in self.second.parameter_names if name not in own}
        first = Arguments(arguments.positional, {**arguments.keyword, self.scratch: scratch})
        return first, Arguments(keyword=second), Config(own)


@dataclass(frozen=True)
class FormsKernel(ComposedKernel):
    """Triton kernels, of one launch or several, that compute the same, and the tunable by which a config chooses.

    The first form, by the tunable's value, names the kernel, and has a parameter for every argument; no form has one of
    the tunable's name. With `default` None every config names a form. `others` are tunables that a form may have which
    is missing here, as where the installed Triton has no Gluon. `KernelTypeError` if the forms do not go together.
    """

    forms: Mapping[str, Form]
    tunable: str = "FORM"
    default: str | None = None
    others: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.forms:  # one is enough: others may be missing where Triton lacks what they are made of
            raise KernelTypeError("a kernel of several forms has one at least", hint="give a TritonKernel")
        if self.default is not None and self.default not in self.forms:
            raise KernelTypeError(f"the default form is {self.default!r}; there are {', '.join(self.forms)}")
        for value, form in self.forms.items():
            if self.tunable in form.parameter_names:
                raise KernelTypeError(f"{form.name} has a parameter {self.tunable}, which names the form")
            if form.outputs != self._leading.outputs:
                own, first = ", ".join(form.outputs) or "nothing that is named", ", ".join(self.outputs)
                message = f"the form {value} writes {own}, and the first one {first}"
                raise KernelTypeError(message, hint="give all forms the same outputs")

    @property
    def _members(self) -> tuple[Form, ...]:
        return tuple(self.forms.values())

    @property
    def identity(self) -> Mapping[str, str]:
        """The identity of the first form, with a fingerprint of each other form that there is."""
        _, *others = self.forms.items()
        sources = {value: Source.joined(form.sources, self.tunable, self.default) for value, form in others}
        return {**self._leading.identity, **Source.of_forms(sources)}

    @property
    def without_grid(self) -> FormsKernel:
        """The same kernel for processes that only compile, where the grids cannot go."""
        return replace(self, forms={value: form.without_grid for value, form in self.forms.items()})

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise unless each form can take what it has parameters for, and some form takes each tunable.

        Of a config, or of tunables without the one that names the form, one form alone is looked at. Raises
        `UnknownTunableError` if the tunable that names the form is missing, else as `TritonKernel.check`.
        """
        names = list(tunables)
        of_forms = {each for form in self.forms.values() for each in _names(form)}
        known_names = {*self.others, *TritonKernel.LAUNCH_OPTIONS, *of_forms}
        if self.tunable not in names and self.default is None:
            message = f"{self.name} has several forms, and the space has no {self.tunable} to choose one"
            raise UnknownTunableError(message, hint=f"add {self.tunable}, one of {', '.join(self.forms)}")
        if strange := [name for name in names if name not in known_names and name != self.tunable]:
            message = f"no form of {self.name} has a parameter {', '.join(strange)}"
            raise UnknownTunableError(message, hint="correct the tunable's name")
        config = tunables if isinstance(tunables, Mapping) else {}
        value = str(config.get(self.tunable) if self.tunable in names else self.default)
        for form in [self.forms[value]] if value in self.forms else self.forms.values():
            own_names = [name for name in names if name in _names(form) | TritonKernel.LAUNCH_OPTIONS]
            own = {name: tunables[name] for name in own_names} if isinstance(tunables, Mapping) else own_names
            form.check(own, self._given(form, arguments))

    def extents(self, config: Config, arguments: Arguments) -> Sequence[int] | None:
        """The extents of the grid of the config's form."""
        form, own = self.form_of(config)
        return form.extents(own, self._given(form, arguments))

    def lowered(self, config: Config, arguments: Arguments) -> list[Any]:
        """Triton's compiled kernel of the config's form; nothing is loaded or launched."""
        form, own = self.form_of(config)
        return form.lowered(own, self._given(form, arguments))

    def compile(self, config: Config, arguments: Arguments) -> Executable:
        """Compile the config's form for these arguments, and load the binary, as `TritonKernel.compile`."""
        form, own = self.form_of(config)
        return self._whole(config, form, form.compile(own, self._given(form, arguments)))

    def executable(self, config: Config) -> Executable:
        """A config that Triton itself compiles at its first launch with arguments of a kind."""
        form, own = self.form_of(config)
        return self._whole(config, form, at_launch(form, own))

    def launch_parts(self, config: Config, arguments: Arguments) -> Sequence[object] | None:
        """What the launch of the config's form is beside its code; None where the form cannot tell."""
        form, own = self.form_of(config)
        return form.launch_parts(own, self._given(form, arguments))

    def form_of(self, config: Config) -> tuple[Form, Config]:
        """The form that a config names, and the part of the config that it takes.

        Raises `ConfigValueError` if it names none, and `CandidateError` for a form in Gluon that is to run as Python.
        """
        if (form := self.forms.get(str(config.get(self.tunable, self.default)))) is None:
            message = f"{self.tunable} is {config.get(self.tunable)!r}; it must be one of {', '.join(self.forms)}"
            raise ConfigValueError(message)
        form.check_python(self.interpreted)
        return form, _part(tuple(form.parameter_names), config)

    def _given(self, form: Form, arguments: Arguments) -> Arguments:
        values, parameters = arguments.by_name(self).keyword, _names(form)
        return Arguments(keyword={name: value for name, value in values.items() if name in parameters})

    def _whole(self, config: Config, form: Form, executable: Executable) -> Executable:
        def bind(arguments: Arguments) -> Callable[[], object]:
            return executable.bind(self._given(form, arguments))

        return replace(executable, config=config, bind=bind)


def at_launch(kernel: Form | FormsKernel, config: Config) -> Executable:
    """A config of a kernel that Triton itself compiles at its first launch with arguments of a kind."""
    return kernel.at_launch(config) if isinstance(kernel, LauncherKernel) else kernel.executable(config)


def _names(form: Form) -> frozenset[str | None]:
    return frozenset(form.parameter_names)


@lru_cache(maxsize=1024)
def _part(parameters: tuple[str | None, ...], config: Config) -> Config:
    """The part of a config that a form with these parameters takes; kept, since every call of a kernel asks for it."""
    names = {*parameters, *TritonKernel.LAUNCH_OPTIONS}
    return Config({name: value for name, value in config.items() if name in names})
