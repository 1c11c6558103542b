"""Kernels of several forms: Triton functions that compute the same, of which a tunable of the config names one.

A form takes those arguments and tunables that it has parameters for, so that one in Gluon may leave out the strides
that its descriptors hold, and have tunables of its own. To searches, records and lockfiles the form is a tunable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from triton_ops._hashing import fingerprint
from triton_ops.backend.base import Arguments, Executable, by_name
from triton_ops.backend.composed import ComposedKernel
from triton_ops.backend.errors import CandidateError
from triton_ops.backend.staged import StagedKernel
from triton_ops.backend.triton import LAUNCH_OPTIONS, TritonKernel
from triton_ops.exceptions import ConfigValueError, KernelTypeError, UnknownTunableError
from triton_ops.resources import Resources
from triton_ops.space import Config
from triton_ops.trial import Status

Form: TypeAlias = TritonKernel | StagedKernel


@dataclass(frozen=True)
class FormsKernel(ComposedKernel):
    """Triton kernels, of one launch or two, that compute the same, and the tunable by which a config chooses.

    Attributes:
        forms: By the tunable's value. The first names the kernel, and has a parameter for every argument.
        tunable: The tunable's name; no form has a parameter of this name.
        default: The form of a config that names none; with None every config names one.
        others: Tunables that a form may have which is missing here, as where the installed Triton has no Gluon.

    Raises:
        KernelTypeError: There is no form, `default` is none of them, they write different arguments, one of them needs
            an argument that the first does not have, or has a parameter with the tunable's name.
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
                raise KernelTypeError(
                    f"the form {value} writes {', '.join(form.outputs) or 'nothing that is named'}, and the first one "
                    f"{', '.join(self.outputs)}",
                    hint="give all forms the same outputs",
                )

    @property
    def _leading(self) -> Form:
        return next(iter(self.forms.values()))

    @property
    def identity(self) -> Mapping[str, str]:
        """That of the first form, with a fingerprint of all of them."""
        every = [[value, sorted(form.identity.items())] for value, form in sorted(self.forms.items())]
        return {**self._leading.identity, "forms": fingerprint([self.tunable, self.default, every])}

    @property
    def compile_imports(self) -> str:
        """Torch where code of the user's may ask a tensor anything when a config of one form is compiled."""
        return next((form.compile_imports for form in self.forms.values() if form.compile_imports), "")

    @property
    def without_grid(self) -> FormsKernel:
        """The same kernel for processes that only compile, where the grids cannot go."""
        return replace(self, forms={value: form.without_grid for value, form in self.forms.items()})

    @property
    def parsed(self) -> None:
        """None: no text of one function decides for all configs."""
        return

    @property
    def cache_key(self) -> str:
        """What Triton calls the sources of all forms."""
        return fingerprint([form.cache_key for form in self.forms.values()])

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise unless each form can take what it has parameters for, and some form takes each tunable.

        Of a config, or of tunables without the one that names the form, one form alone is looked at.

        Raises:
            UnknownTunableError: The tunable that names the form is missing, or no form takes one of the others.
            KernelTypeError, ConfigCollisionError, ShapeMismatchError, DeviceError: As `TritonKernel.check`.
        """
        names = list(tunables)
        known = {*self.others, *LAUNCH_OPTIONS, *(each for form in self.forms.values() for each in _names(form))}
        if self.tunable not in names and self.default is None:
            raise UnknownTunableError(
                f"{self.name} has several forms, and the space has no {self.tunable} to choose one",
                hint=f"add {self.tunable}, one of {', '.join(self.forms)}",
            )
        if strange := [name for name in names if name not in known and name != self.tunable]:
            raise UnknownTunableError(
                f"no form of {self.name} has a parameter {', '.join(strange)}", hint="correct the tunable's name"
            )
        if self.tunable not in names:
            looked_at = [self.forms[str(self.default)]]
        elif isinstance(tunables, Mapping) and str(tunables[self.tunable]) in self.forms:
            looked_at = [self.forms[str(tunables[self.tunable])]]
        else:
            looked_at = list(self.forms.values())
        for form in looked_at:
            taken = _taken(form, names)
            own = {name: tunables[name] for name in taken} if isinstance(tunables, Mapping) else taken
            form.check(own, _given(form, self._named(arguments)))

    def lowered(self, config: Config, arguments: Arguments) -> list[Any]:
        """Triton's compiled kernel of the config's form; nothing is loaded or launched.

        Raises:
            ConfigValueError: The config names no form.
            CandidateError: The form is one in Gluon that is to run as Python.
            Exception: Whatever Triton raises.
        """
        form, own = self._form(config)
        return form.lowered(own, _given(form, self._named(arguments)))

    def compile(self, config: Config, arguments: Arguments) -> Executable:
        """Compile the config's form for these arguments, and load the binary; nothing is launched.

        Cost: 0.1 to a few seconds for a new binary, about a millisecond from Triton's disk cache.

        Raises:
            ConfigValueError: The config names no form.
            CandidateError: As `TritonKernel.compile`; `compile` too for a form in Gluon that is to run as Python.
            CacheError: The compiler cannot write its files, as on a full disk.
        """
        form, own = self._form(config)
        return self._whole(config, form, form.compile(own, _given(form, self._named(arguments))))

    def executable(self, config: Config) -> Executable:
        """A config that Triton itself compiles at its first launch with arguments of a kind.

        Raises:
            ConfigValueError: The config names no form.
            CandidateError: The form is one in Gluon that is to run as Python.
        """
        form, own = self._form(config)
        return self._whole(config, form, form.executable(own))

    def program_key(self, config: Config, arguments: Arguments, made: Resources | None) -> str | None:
        """Names all that a launch of a compiled config is; None where its form cannot tell."""
        form, own = self._form(config)
        return form.program_key(own, _given(form, self._named(arguments)), made)

    def _form(self, config: Config) -> tuple[Form, Config]:
        """The form that a config names, and the part of the config that it takes."""
        form = self.forms.get(str(config.get(self.tunable, self.default)))
        if form is None:
            raise ConfigValueError(
                f"{self.tunable} is {config.get(self.tunable)!r}; it must be one of {', '.join(self.forms)}"
            )
        if self.interpreted and not form.interpreted:
            raise CandidateError(Status.COMPILE, f"{form.name} cannot run as Python, as TRITON_INTERPRET asks for")
        return form, _part(_names(form), config)

    def _named(self, given: Arguments) -> dict[str, Any]:
        return dict(by_name(self, given).keyword)

    def _whole(self, config: Config, form: Form, found: Executable) -> Executable:
        """A form's executable, which is given all arguments, under the whole config."""

        def bind(given: Arguments) -> Callable[[], Any]:
            return found.bind(_given(form, self._named(given)))

        return replace(found, config=config, bind=bind)


def _taken(form: Form, names: Iterable[str]) -> list[str]:
    """Those tunables that a form takes, as a parameter or as a launch option."""
    known = _names(form)
    return [name for name in names if name in known or name in LAUNCH_OPTIONS]


def _given(form: Form, named: Mapping[str, Any]) -> Arguments:
    """Those arguments that a form has parameters for."""
    known = _names(form)
    return Arguments(keyword={name: value for name, value in named.items() if name in known})


def _names(form: Form) -> frozenset[str]:
    return _as_set(tuple(form.parameter_names))


@lru_cache(maxsize=256)
def _as_set(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names)


@lru_cache(maxsize=1024)
def _part(parameters: frozenset[str], config: Config) -> Config:
    """The part of a config that a form with these parameters takes; kept, since every call of a kernel asks for it."""
    known = parameters | LAUNCH_OPTIONS
    return Config({name: value for name, value in config.items() if name in known})
