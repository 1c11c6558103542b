"""`triton.Config`s as configs of this package, and as `TRITON_PRINT_AUTOTUNING` prints them."""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_ops.backend import values_of
from triton_ops.base import escaped, require
from triton_ops.exceptions import ConfigValueError, SettingsError
from triton_ops.space import Config, Members, checked_value, given_back
from triton_ops.tuner import Listener, RunPlan, RunProgress
from triton_ops.values import Trial, TuningResult

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")


def to_triton(config: Mapping[str, Any], listed: Iterable[Any] = (), members: Members | None = None) -> Any:
    """The `triton.Config` with these values: the one in the list that has them, with its hook, or else a new one.

    Members of an `Enum` and dtypes stand by name or as they are; a new config is given those in `members`.
    """
    wanted = dict(config.plain if isinstance(config, Config) else config)
    for one in listed:
        values = values_of(one)
        alike = all(name in values or name in _OPTIONS for name in wanted) and _tuned(values) == _tuned(wanted)
        if alike and all(values.get(name) == wanted[name] for name in _OPTIONS if name in wanted):
            return one
    own = members or {}
    kwargs = {name: given_back(value, own.get(name, {})) for name, value in wanted.items() if name not in _OPTIONS}
    options = {name: wanted[name] for name in _OPTIONS if wanted.get(name) is not None}
    return require("triton", "launching a config").Config(kwargs, **options)


def from_triton(config: Any) -> Config:
    """The values of a `triton.Config`, as they are shown; those that no config can hold appear as text."""
    return Config({name: _shown(name, value) for name, value in values_of(config).items()})


def timings(trials: Iterable[Trial], listed: Sequence[Any] = ()) -> dict[Any, list[float]]:
    """For each `triton.Config` that was tried median, 20 % and 80 % quantile in ms; infinite where it failed."""
    alike: dict[frozenset[Any], list[Any]] = {}  # all of a large list would be compared with each trial
    for one in listed:
        alike.setdefault(_tuned(values_of(one)), []).append(one)
    measured = {to_triton(one.config, alike.get(_tuned(one.config), ())): one.measurement for one in trials}
    return {
        config: [math.inf] * 3 if times is None else [times.median_ms, times.p20_ms, times.p80_ms]
        for config, times in measured.items()
    }


def _tuned(values: Mapping[str, Any]) -> frozenset[Any]:
    return frozenset((name, _shown(name, value)) for name, value in values.items() if name not in _OPTIONS)


def _shown(name: str, value: Any) -> Any:
    """A value as a config holds it: a member by its name, and by its text what no config can hold."""
    try:
        return checked_value(name, value)
    except ConfigValueError:
        return str(value)


class BeforeLaunch:
    """A decorator's own hook before every launch of a tune."""

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, values: dict[str, Any]) -> None:
        """Call it with the arguments by name."""
        self.hook(values)


class Printed:
    """Writes a line for each config and one for the winner to stdout, in Triton's words, with the values of the key."""

    def __init__(self, kernel: str, key: Any) -> None:
        self._kernel, self._key = kernel, key

    def started(self, plan: RunPlan) -> None:
        """Triton says nothing before the first config."""

    def tried(self, trial: Trial, progress: RunProgress) -> None:  # noqa: ARG002 - the role's signature
        """The config that was tried, and why it failed if it did."""
        sys.stdout.write(f"Autotuning kernel {self._kernel} with config {to_triton(trial.config)}\n")
        if not trial.ok:
            sys.stdout.write(f"Autotuning failed with {escaped(str(trial.error))}\n")

    def ended(self, result: TuningResult | None) -> None:
        """The winner."""
        if result is not None:
            sys.stdout.write(
                f"Triton autotuning for function {self._kernel},\nwith key as {self._key},\n"
                f"finished after {result.elapsed_s:.2f}s,\nbest config selected: {to_triton(result.best_config)};\n"
            )
            sys.stdout.flush()


def printed_listener(kernel: str, key: Any) -> Listener | None:
    """The listener that prints, if Triton was told to print; None otherwise."""
    asked = require("triton.knobs", "autotuning").autotuning.print
    return Printed(kernel, key) if asked else None


@dataclass(frozen=True, kw_only=True)
class PrintedTune:
    """One tune in what Triton or this package has printed.

    Attributes:
        kernel: The kernel's name.
        tried: The values of each config that was tried, in order, `None` as None.
        best: Those of the winner; None if the text ends before it.
        seconds: How long the tune took; None likewise.
        key: The key as it was printed; None where it was not, as before Triton 3.1.
    """

    kernel: str
    tried: tuple[dict[str, Any], ...]
    best: dict[str, Any] | None = None
    seconds: float | None = None
    key: str | None = None


def parse_printed(text: str) -> list[PrintedTune]:
    """The tunes in what `TRITON_PRINT_AUTOTUNING=1` has printed, in its old form of one line and its new one of four.

    Lines that are something else are passed over. Fields of other versions, such as `num_consumer_groups`, are kept.

    Args:
        text: What was printed, such as a whole log.

    Returns:
        The tunes in the order of the text; empty if there is none.

    Raises:
        SettingsError: `text` is no text.
    """
    if not isinstance(text, str):
        raise SettingsError(
            f"text is {text!r}; it must be what was printed, as a str", hint="read the file: path.read_text()"
        )
    tunes: list[PrintedTune] = []
    tried: dict[str, list[dict[str, Any]]] = {}
    for match in _LINES.finditer(text):
        if (kernel := match["tried_kernel"]) is not None:
            tried.setdefault(kernel, []).append(_values(match["config"]))
            continue
        kernel, configs = match["kernel"], tuple(tried.pop(match["kernel"], ()))
        tunes.append(
            PrintedTune(
                kernel=kernel,
                tried=configs,
                best=_values(match["best"]),
                seconds=float(match["seconds"]),
                key=match["key"] or None,
            )
        )
    return [*tunes, *(PrintedTune(kernel=kernel, tried=tuple(configs)) for kernel, configs in tried.items())]


_LINES = re.compile(
    r"^Autotuning kernel (?P<tried_kernel>\S+) with config (?P<config>.*)$"
    r"|^Triton autotuning for function (?P<kernel>[^\s,]+),?\s+"
    r"(?:with key as (?P<key>.*?),\s+)?"
    r"finished after (?P<seconds>[\d.]+)s[;,]\s*best config selected: (?P<best>.*?);$",
    re.MULTILINE,
)


def _values(text: str) -> dict[str, Any]:
    """The values of a config as Triton prints them: `BLOCK: 128, num_warps: 4, maxnreg: None`.

    A comma ends a value only where a name follows; others are part of one, as in `TILE: (64, 32)`.
    """
    pairs = (part.partition(": ") for part in re.split(r", (?=[^\W\d]\w*: )", text))
    return {name.strip(): _value(value.strip()) for name, colon, value in pairs if colon}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
