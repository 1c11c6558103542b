"""One problem of a run of many, as a caller gives it, and the job that is made of it.

    # the shapes of one model
    matmul shape=4096x4096x4096 dtype=float16 weight=32
    softmax problem=logits
    {"target": "kernels.py:attend", "shape": [8, 1024, 64], "space": {"BLOCK": [64, 128]}}

Empty lines, and what follows a `#` at the start of a line or after a space, are left out.
"""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from triton_ops.backend import Operation
from triton_ops.base import DamagedError, NamedFile, Sealed
from triton_ops.device import TorchDevice
from triton_ops.evaluation import Stations
from triton_ops.exceptions import DeviceError, KernelTypeError, SettingsError
from triton_ops.many.executor import Job, JobPlace
from triton_ops.many.ray_engine import RayEngine, engine_named
from triton_ops.request import TuneOptions, TuneProblem, TuneRequest
from triton_ops.tuner import RequestedTune
from triton_ops.values import TuningResult

_LARGEST_BYTES = 16 << 20
_FORM = "write TARGET shape=MxN dtype=NAME weight=N, or a JSON object with these"
_JSON_ONLY = ("space",)
_COMMENT = re.compile(r"""(?P<kept>"(?:\\.|[^"\\])*"|'[^']*'|\\.)|\s\#.*""")  # quotes are kept


@dataclass(frozen=True, kw_only=True)
class ProblemLine:
    """One problem of a file; `where` names the file and the number of the line, for errors."""

    where: str
    target: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    problem: str | None = None
    device: str | None = None
    space: dict[str, list[Any]] | None = None
    warm: bool = False
    weight: float = 1.0


def read_problems(path: Path) -> list[ProblemLine]:
    """The problems in a file; a `SettingsError` if there is none, or a line is none."""
    with SettingsError.when(f"{path} cannot be read", "check the path"):
        content = NamedFile(path).read(_LARGEST_BYTES)
    with SettingsError.when(f"{path} is no text", _FORM, ValueError):
        text = content.decode()
    lines = list(problems_in(text.splitlines(), str(path)))
    if not lines:
        raise SettingsError(f"{path} has no problem", hint=_FORM)
    return lines


def problems_in(lines: Iterable[str], name: str) -> Iterator[ProblemLine]:
    """The problems in some lines of a file of that name; a `SettingsError` names the line that is none."""
    for number, text in enumerate(lines, 1):
        where = f"{name}, line {number}"
        # Editors on Windows begin a file with this mark.
        stripped = text.strip().removeprefix("\ufeff").strip()
        if stripped and not stripped.startswith("#"):
            fields = _object(stripped, where) if stripped.startswith("{") else _words(stripped, where)
            yield _checked(fields, where)


def _object(text: str, where: str) -> dict[str, Any]:
    with SettingsError.when(f"{where}: this is no JSON object with each name once", _FORM, DamagedError):
        return Sealed.unambiguous(text)


def _words(text: str, where: str) -> dict[str, Any]:
    """The fields in `TARGET name=value …`, with values as texts."""
    with SettingsError.when(where, _FORM, ValueError):
        words = shlex.split(_COMMENT.sub(lambda fields: fields["kept"] or "", text))
    fields: dict[str, Any] = {"target": words[0]} if words else {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if word == "warm":
            value, equals = "true", "="
        if not equals or name in _JSON_ONLY:
            hint = f"write the whole line as a JSON object for {name}" if name in _JSON_ONLY else _FORM
            raise SettingsError(f"{where}: {word!r} is not name=value", hint=hint)
        if name in fields:
            raise SettingsError(f"{where}: {name} stands twice", hint=_FORM)
        fields[name] = value
    return fields


def _checked(fields: Mapping[str, Any], where: str) -> ProblemLine:
    if unknown := [name for name in fields if name not in _FIELDS]:
        message = f"{where}: there is no field {', '.join(map(str, unknown))}; there are {', '.join(_FIELDS)}"
        raise SettingsError(message, hint=_FORM)
    if "target" not in fields:
        raise SettingsError(f"{where}: there is no target", hint=_FORM)
    if "problem" in fields and ({"shape", "dtype"} & fields.keys()):
        raise SettingsError(f"{where}: a problem by its name has its shape and dtype", hint="leave one of them out")
    values = {}
    for name, value in fields.items():
        kind, rule = _FIELDS[name]
        plain = value.lower().split("x") if name == "shape" and isinstance(value, str) else value
        try:
            values[name] = msgspec.convert(plain, kind, strict=not isinstance(value, str))
        except msgspec.ValidationError as error:
            raise SettingsError(f"{where}: {name} {rule.format(value)}", hint=_FORM) from error
    return ProblemLine(where=where, **values)


_WORD = Annotated[str, msgspec.Meta(min_length=1)], "is {!r}; it must be a word"
_FIELDS: Mapping[str, tuple[Any, str]] = {
    "target": _WORD, "dtype": _WORD, "problem": _WORD, "device": _WORD,
    "shape": (
        Annotated[tuple[Annotated[int, msgspec.Meta(ge=1)], ...], msgspec.Meta(min_length=1)],
        "{!r} is not made of whole numbers of 1 or more",
    ),
    "space": (Annotated[dict[str, list[Any]], msgspec.Meta(min_length=1)], "is {!r}; it must be an object of lists"),
    "warm": (bool, "is {!r}; it must be true or false"),
    "weight": (Annotated[float, msgspec.Meta(gt=0, le=1e300)], "is {!r}; it must be a positive number"),
}  # fmt: skip
"""The type of each field, and what is said of a value that does not fit."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run of many problems: those of `each`, with an effort that is settled, and what they share.

    Without `devices` each problem has its own.
    """

    each: TuneOptions
    devices: tuple[str, ...] = ()
    budget_s: float | None = None
    cluster: RayEngine | None = None

    @classmethod
    def of(
        cls, each: TuneOptions, *, gpus: str | Iterable[int] | None, budget_s: Any, engine: str | None
    ) -> RunOptions:
        """The options of a run, as `tune_many` describes them; a `SettingsError` if one does not fit."""
        plan = each.settled()
        if not (isinstance(plan.search, str) or callable(plan.search)):
            hint = "pass a searcher's name, or a function that makes a searcher from a config space and a seed"
            raise SettingsError(f"search is {plan.search!r}, one searcher for many spaces", hint=hint)
        if (cluster := engine_named(engine)) is not None and gpus is not None:
            raise SettingsError("an engine measures on all GPUs of its cluster", hint="leave out gpus, or the engine")
        hint = "leave it out for no limit"
        limit_s = None if budget_s is None else float(SettingsError.checked("budget_s", budget_s, hint=hint))
        return cls(each=each.of_effort(plan), devices=TorchDevice.chosen(gpus), budget_s=limit_s, cluster=cluster)

    def tuned(self, problem: TuneProblem, place: JobPlace, own_device: str | None = None) -> TuningResult:
        """The result of a problem's tune in a place of this process, or of its record.

        `own_device` is the device where the place leaves it open: the GPU that was the current one when the run began,
        as each thread has a current one of its own. None takes the problem's.
        """
        options = self.each if place.cache_dir is None else replace(self.each, cache_dir=place.cache_dir)
        request = problem.measurable(place.device or own_device, options.seed)
        return RequestedTune(
            request=request, options=options, listener=place.listener, gate=place.gate, shared_cpus=place.shared_cpus
        ).result()


def as_problem(item: Any) -> TuneProblem:
    """A problem as it stands in a list: a `TuneProblem`, an `Operation`, or a mapping of a problem's fields."""
    if isinstance(item, TuneProblem):
        return item
    if isinstance(item, Operation):
        return TuneProblem(target=item)
    if isinstance(item, Mapping):
        fields = list(TuneProblem.__dataclass_fields__)
        hint = f"a problem has target, and may have {', '.join(fields[1:])}"
        if strange := [str(name) for name in item if name not in fields]:
            raise KernelTypeError(f"a problem has no field {', '.join(strange)}", hint=hint)
        if "target" not in item:
            raise KernelTypeError("a problem has no target", hint=hint)
        return TuneProblem(**item)
    message = f"a problem is {item!r}"
    raise KernelTypeError(message, hint="give a TuneProblem, an Operation, or a mapping such as {'target': operation}")


def job_of(problem: TuneProblem, options: RunOptions) -> Job:
    """The job of a problem, which is only checked; problems whose records have one key have jobs of one name."""
    each = options.each
    request = problem.measurable(seed=each.seed).checked()
    key, stations = request.key, Stations(problem=request, options=each)
    return Job(
        name=key.id if key.unknown is None else f"{key.id} {uuid.uuid4()}",  # its problem may be another's as well
        label=f"{key.kernel} {key.label}".rstrip(), kernel=key.kernel, problem=problem,
        tune=partial(replace(options, cluster=None).tuned, problem, own_device=request.device_name),
        recall=lambda: RequestedTune(request=request, options=each).known(), weight=float(problem.weight),
        devices=_places(problem, request, options.devices), worker=request.device_name if stations.isolated else "",
    )  # fmt: skip


def _places(problem: TuneProblem, request: TuneRequest, devices: tuple[str, ...]) -> frozenset[str] | None:
    """The devices of a run that can measure a problem; None for all, a `DeviceError` if its GPU is not among them."""
    if not devices:
        return None
    kind, _, index = request.device_name.partition(":")
    if kind == "cuda" and request.generated is not None and problem.device in (None, "cuda"):
        return frozenset(devices)
    place = f"cuda:{index or 0}" if kind == "cuda" else kind
    if kind == "cuda" and place not in devices:
        raise DeviceError(
            f"the problem is bound to {place}, and the run uses {', '.join(devices)}", ", ".join(devices), place,
            hint="name that GPU too, or leave the problem's device out",
        )  # fmt: skip
    return frozenset({place})
