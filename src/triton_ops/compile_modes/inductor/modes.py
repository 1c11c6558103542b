"""Ways to compile a model: modes of `torch.compile`, or named sets of Inductor's options.

Facts used, of torch 2.11 to 2.15: `torch._inductor.list_mode_options()` maps each mode to the options that it sets,
`torch._inductor.config.get_config_copy()` has every option by its dotted name, and `torch.compile` refuses a mode and
options together. Options may be written with hyphens, modes may not be written with underscores. Options of one
`torch.compile` count while Inductor compiles; `freezing` is asked for earlier, by Dynamo, which then needs the setting
of the process. On a CPU the C++ templates for products take frozen weights alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from triton_ops.base import require
from triton_ops.compile_modes.inductor.backends import wrong_list
from triton_ops.compile_modes.inductor.sources import option_values
from triton_ops.exceptions import SettingsError

_FOR = "asking torch's compiler what it knows"
EAGER = "eager"
INDUCTOR = "inductor"
CUDAGRAPHS = "triton.cudagraphs"
FREEZING = "freezing"
UNGATED = "max-autotune-ungated"
MODES = ("default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
_OF_SOME = (*MODES, "lite")  # modes of torch 2.11 to 2.15, which a single version may lack
_AUTOTUNE = {"max_autotune": True, "coordinate_descent_tuning": True}
OPTION_SETS: Mapping[str, Mapping[str, Any]] = {
    "max-autotune-as-options": {**_AUTOTUNE, CUDAGRAPHS: True},
    "gemm-aten": {**_AUTOTUNE, "max_autotune_gemm_backends": "ATEN"},
    "gemm-triton": {**_AUTOTUNE, "max_autotune_gemm_backends": "TRITON"},
    "gemm-cpp": {**_AUTOTUNE, "max_autotune_gemm_backends": "CPP", FREEZING: True},
    "conv-aten": {**_AUTOTUNE, "max_autotune_conv_backends": "ATEN"},
    "conv-triton": {**_AUTOTUNE, "max_autotune_conv_backends": "TRITON"},
    "coordinate-descent": {"coordinate_descent_tuning": True},
    "no-epilogue-fusion": {"epilogue_fusion": False},
    "no-fusion": {"epilogue_fusion": False, "max_fusion_size": 1},
    "no-layout": {"layout_optimization": False},
    "no-shape-padding": {"shape_padding": False},
    "freezing": {FREEZING: True},
}
"""Named sets of options, each compiled as `torch.compile(model, options=...)`."""
_SETS = (UNGATED, *OPTION_SETS)


@dataclass(frozen=True)
class CompileMode:
    """One way to compile a model.

    Attributes:
        name: Its name in tables.
        mode: A mode of `torch.compile`; None for options alone.
        options: Options of Inductor by their dotted names.
        backend: Torch's name of the compiler; None runs the model as it is.
        ungated: Whether GPUs with few multiprocessors get Triton templates for products too, which Inductor's gate
            keeps from them. Torch has no option for it: the gate is opened for the whole process.

    Raises:
        SettingsError: A mode and options are given, which `torch.compile` refuses, or an option is given twice.
    """

    name: str
    _: KW_ONLY
    mode: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    backend: str | None = INDUCTOR
    ungated: bool = False

    def __post_init__(self) -> None:
        if self.mode is not None and self.options:
            raise SettingsError(
                f"{self.name} has the mode {self.mode} and options; torch.compile takes only one of them",
                hint="leave the mode out, and write its options too: torch._inductor.list_mode_options()",
            )
        plain = {str(name).replace("-", "_"): value for name, value in dict(self.options).items()}
        if len(plain) < len(self.options):
            raise SettingsError(
                f"{self.name} has an option twice, with hyphens and with underscores: {', '.join(self.options)}",
                hint="write each option once",
            )
        object.__setattr__(self, "options", plain)

    @property
    def eager(self) -> bool:
        """Tell whether the model runs as it is."""
        return self.backend is None

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `torch.compile`."""
        keywords: dict[str, Any] = {"backend": self.backend}
        if self.mode is not None:
            keywords["mode"] = self.mode
        if self.options:
            keywords["options"] = dict(self.options)
        return keywords


def default_modes() -> list[CompileMode]:
    """Eager and the four modes whose speed differs."""
    return [as_mode(name) for name in (EAGER, *MODES)]


def as_mode(way: Any) -> CompileMode:
    """A way to compile, from what a caller gives.

    Args:
        way: `eager`, a mode of `torch.compile`, the name of an option set, a mapping of options, or a `CompileMode`.

    Raises:
        SettingsError: It is something else, no name, or a mapping with a mode and options.
    """
    if isinstance(way, CompileMode):
        return way
    if isinstance(way, Mapping) and "mode" in way:
        rest = {name: value for name, value in way.items() if name != "mode"}
        return CompileMode(str(way["mode"]), mode=str(way["mode"]), options=rest)
    if isinstance(way, Mapping):
        return CompileMode(",".join(f"{name}={value}" for name, value in way.items()) or "no options", options=way)
    if not isinstance(way, str) or not way.strip():
        names = ", ".join((EAGER, *MODES, *_SETS))
        raise SettingsError(
            f"{way!r} is no way to compile a model",
            hint=f"name one of {names}, or give a mapping of Inductor's options",
        )
    name = way.strip()
    if name == EAGER:
        return CompileMode(EAGER, backend=None)
    if name == UNGATED:
        return CompileMode(UNGATED, mode="max-autotune", ungated=True)
    if name in OPTION_SETS:
        return CompileMode(name, options=OPTION_SETS[name])
    return CompileMode(name, mode=name)


def check_mode(way: CompileMode) -> None:
    """Raise where a mode's name is a mistake; one that another torch has, or has with hyphens, ends as its own row.

    Raises:
        SettingsError: No torch has such a mode, and no option set is called so; the message names what is close.
    """
    mode = way.mode
    if mode is None or way.backend != INDUCTOR or mode.replace("_", "-") in (*_OF_SOME, *_SETS):
        return
    if (why := refusal(way)) != "":
        raise SettingsError(why, hint="correct the name, or give options of Inductor in its place")


def refusal(way: CompileMode) -> str:
    """The reason why this torch cannot compile so; empty if it can, as far as names tell."""
    if way.eager or way.backend != INDUCTOR:
        return ""
    if way.mode is not None:
        return _mode_refusal(way.mode, sorted(mode_options()))
    present = option_values()
    wrong = [
        wrong_list(name, value) or _wrong_type(name, value)
        if name in present
        else _unknown("option", name, list(present))
        for name, value in way.options.items()
    ]
    return "; ".join(filter(None, wrong))


def effective_options(way: CompileMode) -> dict[str, Any]:
    """The options that this way of compiling sets, those of its mode included; empty for eager."""
    if way.mode is not None:
        return dict(mode_options().get(way.mode, {}))
    return dict(way.options)


def uses_cudagraphs(way: CompileMode) -> bool:
    """Tell whether calls are recorded as CUDA graphs, where there is a GPU."""
    return bool(effective_options(way).get(CUDAGRAPHS, False))


def settings_of_process(way: CompileMode) -> dict[str, Any]:
    """The options that do nothing for one `torch.compile`, and must be settings of the process, with their values."""
    return {name: value for name, value in effective_options(way).items() if name == FREEZING and value}


def variables_of_process(way: CompileMode) -> dict[str, str]:
    """`settings_of_process` as environment variables, for a process that has yet to import torch."""
    return {f"TORCHINDUCTOR_{name.upper()}": "1" for name in settings_of_process(way)}


def same_without_gpu(modes: Sequence[CompileMode], way: CompileMode) -> CompileMode | None:
    """An earlier way to compile that makes the same program on a CPU, where there are no CUDA graphs; None if none."""
    own = _without_graphs(way)
    for other in modes:
        if other is way:
            return None
        if other.backend == way.backend and not way.eager and _without_graphs(other) == own:
            return other
    return None


def mode_options() -> dict[str, dict[str, Any]]:
    """The options that each mode of this torch sets."""
    return {name: dict(options) for name, options in require("torch._inductor", _FOR).list_mode_options().items()}


def _without_graphs(way: CompileMode) -> dict[str, Any]:
    return {name: value for name, value in effective_options(way).items() if name != CUDAGRAPHS}


def _wrong_type(name: str, value: Any) -> str:
    """The reason why torch refuses the type of an option's value; empty where it does not."""
    kind = require("torch._inductor.config", _FOR).get_type(name)
    if not isinstance(kind, type) or isinstance(value, kind):
        return ""
    return f"{name} is {value!r}; torch takes {kind.__name__} for it"


def _mode_refusal(mode: str, modes: Sequence[str]) -> str:
    if mode in modes:
        return ""
    hyphens = mode.replace("_", "-")
    if hyphens in (*modes, *_SETS):
        return f"modes are written with hyphens: {hyphens} instead of {mode}"
    return _unknown("mode or option set", mode, [*modes, EAGER, *_SETS])


def _unknown(what: str, name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    listed = f"close are {', '.join(near)}" if near else f"known are {', '.join(names)}"
    if not near and what == "option":  # there are hundreds
        listed = "`triton-ops inductor options` lists those of tuning"
    return f"this torch has no {what} {name!r}; {listed}"
