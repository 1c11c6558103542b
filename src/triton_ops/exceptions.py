"""The errors that this package raises, in one tree, and the warnings that programs may want to filter.

An error has its facts as attributes, can be pickled between processes, and may end with a hint, which is the next step.

    TritonKernelError
    ├── ShapeMismatchError        a tensor or --shape does not fit the kernel
    ├── UnsupportedDtypeError     a dtype the kernel or the device cannot take
    ├── NumericalOverflowError    values that no tried scale brings into range
    ├── DeviceError               a tensor or a run on the wrong device, or no usable device
    ├── SpaceError                a config space that is not well defined
    │   ├── EmptySpaceError       no configuration is left to try
    │   ├── ConfigValueError      a value that cannot be stored, hashed or compared
    │   ├── UnknownTunableError   a name that the space or the kernel does not have
    │   ├── ConfigCollisionError  a tunable named like an argument that the caller passes
    │   └── ConstraintError       a constraint whose predicate raised
    ├── KernelTypeError           an object to be tuned that is not callable, or no kernel
    ├── TargetError               the command line's TARGET cannot be found or used
    │   └── NotLoadedError        a kernel that only a file names, of whose code nothing is loaded
    ├── SettingsError             an environment variable or option out of range
    ├── MissingDependencyError    an optional package that is needed and missing
    ├── CacheError                a cache folder that cannot be used
    │   └── LockfileError         a lockfile that cannot be read, was edited, or does not fit
    ├── RecordingError            a file of recorded times that cannot be read as one
    ├── RunLogError               a file that is no run log of this version
    ├── ProfileError              a profile that cannot be read, or a profiler that cannot be run
    ├── UntunedError              no known winner, of a launch where that was to be an error, or of what needs one
    ├── TuningFailedError         no configuration worked; holds the reason for each
    └── WrongResultError          a benchmarked kernel whose result is wrong

    UserWarning
    └── FixedGridWarning          a grid that stays as it is while block sizes are tuned
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import numbers
import sys
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def nearest(name: str, names: Iterable[str], least: float = 0.6) -> list[str]:
    """At most three of `names` that may be meant by a mistyped one, the likeliest first; case does not count.

    `least` is how alike they are at least: 1 are equal letters.
    """
    import difflib  # here, since it takes a millisecond that a launch need not spend

    plain = {each.lower().replace("_", "-"): each for each in names}
    close = difflib.get_close_matches(name.lower().replace("_", "-"), plain, n=3, cutoff=least)
    return [plain[each] for each in close]


def alternatives(name: str, names: Iterable[str], rest: str = "") -> str:
    """The end of a message on a name that there is not: the nearest of those that there are, or the rest, or all."""
    names = list(names)
    near = nearest(name, names)
    return f"close are {', '.join(near)}" if near else rest or f"known are {', '.join(names)}"


class TritonKernelError(Exception):
    """Base of every error of this package.

    Attributes:
        hint: The next step for the reader; empty if the message already names it.
    """

    hint: str

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    @property
    def message(self) -> str:
        """The text without the hint."""
        return str(self.args[0]) if self.args else ""

    def about(self, what: str) -> TritonKernelError:
        """This error with a message that begins with what it is about, such as a line of a file."""
        self.args = (f"{what}: {self.message}", *self.args[1:])
        return self

    @classmethod
    @contextlib.contextmanager
    def when(cls, what: str, hint: str = "", *kinds: type[Exception]) -> Iterator[None]:
        """Inside, an error of these kinds, or an `OSError`, is this error: what cannot be done, and the reason.

        Such as `FILE cannot be read`. Without a hint, the error's own stays.
        """
        caught = kinds or (OSError,)
        try:
            yield
        except caught as error:
            own = error if isinstance(error, TritonKernelError) and not hint else None
            reason = own.message if own else getattr(error, "strerror", None) or error
            raise cls(f"{what}: {reason}", hint=own.hint if own else hint) from error

    def __str__(self) -> str:
        return f"{self.message} (hint: {self.hint})" if self.hint else self.message


class ShapeMismatchError(TritonKernelError, ValueError):
    """A shape or layout that does not fit.

    Attributes:
        expected: The shape that was needed, or its description.
        actual: The shape that was given.
        tensor_name: The tensor's name; None if the error is not about one tensor.
    """

    def __init__(
        self, message: str, expected: Any = None, actual: Any = None, tensor_name: str | None = None, *, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.expected, self.actual, self.tensor_name = expected, actual, tensor_name


class UnsupportedDtypeError(TritonKernelError):
    """A dtype that cannot be used here.

    Attributes:
        dtype: The dtype that was given.
        supported_dtypes: The dtypes that are allowed.
        tensor_name: The tensor's name; None if the error is not about one tensor.
    """

    def __init__(
        self, message: str, dtype: Any = None, supported_dtypes: Any = None, tensor_name: str | None = None, *,
        hint: str = "",
    ) -> None:  # fmt: skip
        super().__init__(message, hint=hint)
        self.dtype, self.supported_dtypes, self.tensor_name = dtype, supported_dtypes, tensor_name


class NumericalOverflowError(TritonKernelError):
    """Values that leave the range of the target format with every scale that was tried.

    Attributes:
        max_value: Largest magnitude in the input.
        scale: The last scale that was tried.
        attempts: The number of scales that were tried.
    """

    def __init__(
        self, message: str, max_value: float | None = None, scale: float | None = None, attempts: int | None = None, *,
        hint: str = "",
    ) -> None:  # fmt: skip
        super().__init__(message, hint=hint)
        self.max_value, self.scale, self.attempts = max_value, scale, attempts


class DeviceError(TritonKernelError):
    """A tensor on the wrong device, or a device that cannot be used.

    Attributes:
        expected_device: The device that is needed.
        actual_device: The device of the tensor or the run.
        tensor_name: The tensor's name; None if the error is not about one tensor.
    """

    NO_GPU: ClassVar[str] = "triton-ops compile, lint, explain, explain rank --gpu, simulate, tour and doctor need none"

    def __init__(
        self, message: str, expected_device: str | None = None, actual_device: str | None = None,
        tensor_name: str | None = None, *, hint: str = "",
    ) -> None:  # fmt: skip
        super().__init__(message, hint=hint)
        self.expected_device, self.actual_device, self.tensor_name = expected_device, actual_device, tensor_name


class SpaceError(TritonKernelError):
    """A config space that is not well defined."""

    @staticmethod
    def check_tunables(owner: str, names: Iterable[str], tunables: Iterable[str]) -> None:
        """Raise `UnknownTunableError` if some of the names are no tunables of an owner."""
        known = list(tunables)
        if unknown := list(dict.fromkeys(name for name in names if name not in known)):
            message = f"{owner} has no tunable {', '.join(unknown)}; {alternatives(unknown[0], known)}"
            raise UnknownTunableError(message, hint="correct the name")


class EmptySpaceError(SpaceError):
    """No configuration is left to try: a tunable without values, or constraints that refuse all."""


class ConfigValueError(SpaceError):
    """A configuration value that cannot be stored as JSON, hashed and compared, or that no shipped kernel takes."""


class UnknownTunableError(SpaceError):
    """A name that is no tunable of the space, or no parameter of the kernel."""


class ConfigCollisionError(SpaceError, ValueError, TypeError):
    """A tunable with the name of an argument that the caller passes too; Triton raises `ValueError` or `TypeError`."""


class ConstraintError(SpaceError):
    """A constraint's predicate raised an exception."""


class KernelTypeError(TritonKernelError, TypeError):
    """An object to be tuned that is not callable, or not the kind of kernel that is needed."""


class TargetError(TritonKernelError):
    """A TARGET that cannot be found, imported or used."""

    FORMS: ClassVar[str] = "TARGET is a shipped kernel's name, package.module:object, or path/file.py:object"


class NotLoadedError(TargetError):
    """A kernel that only a file names: neither the caller nor this process has loaded its code."""


class SettingsError(TritonKernelError, ValueError):
    """A setting, option or environment variable outside its allowed values."""

    @classmethod
    def checked(
        cls, what: str, value: Any, least: float | None = None, *, whole: bool = False, finite: bool = True,
        hint: str = "",
    ) -> Any:  # fmt: skip
        """A number that somebody gives, if it is at least so much, or positive for None; else the error is raised.

        A truth value and a NaN are no numbers; what no float holds is one where it need not be finite.
        """
        is_number = isinstance(value, numbers.Integral if whole else numbers.Real) and not isinstance(value, bool)
        with contextlib.suppress(OverflowError):  # an int that no float holds
            if is_number and (value > 0 if least is None else value >= least) and (not finite or math.isfinite(value)):
                return value
        kind = "whole number" if whole else "finite number" if finite else "number"
        allowed = f"positive {kind}" if least is None else f"{kind} of {least} or more"
        raise cls(f"{what} is {value!r:.80}; it must be a {allowed}", hint=hint)


_EXTRAS = {
    "cli": ("rich", "typer"), "compile": ("triton",), "mcp": ("mcp",), "ray": ("ray",),
    "remote": ("cryptography", "fsspec", "s3fs"),
    "torch": ("torch",), "tune": ("numpy", "scipy", "threadpoolctl"),
}  # fmt: skip
INSTALL = {package: f"pip install 'triton-ops[{extra}]'" for extra, packages in _EXTRAS.items() for package in packages}
"""The command that installs each optional package."""
INSTALL["torch"] += ", or the torch build of your platform"
INSTALL["pynvml"] = "pip install nvidia-ml-py"
PACKAGES = tuple(f"triton_ops{end}" for end in ("", "_kernels", "_lint", "_torch", "_lab", "_mcp"))
"""The packages that are installed together, the core first, which needs none of the others."""
INSTALL |= dict.fromkeys(PACKAGES[1:], "in a clone of triton-ops: pip install .")
INSTALL["triton_ops_serving"] = "in a clone of triton-ops: pip install ./serving"
_installed: set[str] = set()


def _is_installed(name: str) -> bool:
    """Tell whether a package is there; one that was is not looked for again, which takes a millisecond."""
    if name not in _installed and importlib.util.find_spec(name) is not None:
        _installed.add(name)
    return name in _installed and sys.modules.get(name, name) is not None


class MissingDependencyError(TritonKernelError, ImportError):
    """An optional package that is needed is not installed, or cannot be imported."""

    @classmethod
    def absent(cls, name: str, purpose: str) -> MissingDependencyError:
        """The error for a module that is not installed, with the command that installs its package."""
        package = name.partition(".")[0]
        hint = INSTALL.get(package, f"pip install {package}")
        if package == "triton" and sys.platform != "linux":  # where its extra installs nothing
            hint = "Triton publishes wheels for Linux alone"
        error = cls(f"{name} is needed for {purpose}, and is not installed", hint=hint)
        error.name = name
        return error

    @classmethod
    def of_extra(cls, extra: str, purpose: str) -> MissingDependencyError | None:
        """The error for the first package of an extra that is not installed; None if all are."""
        return next((cls.absent(name, purpose) for name in _EXTRAS[extra] if not _is_installed(name)), None)

    @classmethod
    def of_import(cls, error: ImportError, purpose: str) -> MissingDependencyError | None:
        """The error in place of that of an import, of a face below too; None if no optional package is missing."""
        if isinstance(error, (ModuleNotFoundError, cls)) and (error.name or "").partition(".")[0] in INSTALL:
            return cls.absent(error.name or "", purpose)
        return error if isinstance(error, cls) else None


class CacheError(TritonKernelError):
    """A cache folder or file that cannot be used."""


class LockfileError(CacheError):
    """A lockfile that cannot be read or written, was damaged or edited by hand, or contradicts itself."""


class RecordingError(TritonKernelError):
    """A file of recorded times that cannot be read, is of no known form, or holds no time."""


class RunLogError(TritonKernelError):
    """A file that is no run log of this version, or cannot be read."""


class ProfileError(TritonKernelError):
    """A profile that cannot be read as one, or a profiler that could not be run."""


class UntunedError(TritonKernelError):
    """No winner is known: for a launch whose caller asked for an error, or for what is made of winners.

    Attributes:
        kernel: The kernel's name.
        problem: The problem in short.
    """

    def __init__(self, message: str, kernel: str = "", problem: str = "", *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kernel, self.problem = kernel, problem


class TuningFailedError(TritonKernelError):
    """No configuration could be run.

    Attributes:
        problem_size: The problem that was tuned; None if it was not named.
        configs_tried: The number of configurations that were tried.
        last_error: The last failure, an exception or its text.
        failures: Every failed configuration with its reason in the order of trials, as a list of
            `(config, "status: reason")`.
        traces: For each of `failures` where it was raised, as text; empty where that is not known.
    """

    def __init__(
        self, message: str, problem_size: Any = None, configs_tried: int | None = None, last_error: Any = None,
        failures: list[tuple[dict[str, Any], str]] | None = None, *, traces: list[str] | None = None, hint: str = "",
    ) -> None:  # fmt: skip
        super().__init__(message, hint=hint)
        self.problem_size, self.configs_tried, self.last_error = problem_size, configs_tried, last_error
        self.failures = list(failures or [])
        self.traces = list(traces or [""] * len(self.failures))


class WrongResultError(TritonKernelError, ValueError):
    """A kernel to be benchmarked whose result is not that of its reference."""


class FixedGridWarning(UserWarning):
    """A grid that stays as it is while block sizes are tuned: some configs launch too many programs, or too few."""


__all__ = sorted(
    name for name, value in list(globals().items()) if isinstance(value, type) and value.__module__ == __name__
)
