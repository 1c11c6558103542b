"""Ways to compile a model: modes of `torch.compile`, or options of Inductor.

Facts used, of torch 2.11 to 2.15: `torch._inductor.list_mode_options()` maps each mode to the options that it sets,
`torch._inductor.config.get_config_copy()` has every option by its dotted name, and `torch.compile` refuses a mode and
options together. Options may be written with hyphens, modes may not be written with underscores. Options of one
`torch.compile` count while Inductor compiles; `freezing` is asked for earlier, by Dynamo, which then needs the setting
of the process. On a CPU the C++ templates for products take frozen weights alone.

Facts used, of torch 2.11 to 2.15: the module `torch._inductor.config` has assignments whose right side reads the
variable, by `os.environ.get`, `get_tristate_env` or `Config(env_name_…=…)`; `_config` has an entry with the default.
Where a variable is set, that entry may hold what it says already. The module can be loaded a second time, and reads
its variables then.

Fact used, of torch 2.11 to 2.15: `TORCH_LOGS` holds names of logs and artefacts with commas between them, each perhaps
after `+` or `-`, and is read when torch is imported; the names are in `torch._logging._internal.log_registry`.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from importlib.util import module_from_spec
from typing import Any

from triton_ops import settings
from triton_ops.base import Frozen, require
from triton_ops.exceptions import SettingsError, alternatives
from triton_ops_torch.backends import open_gate, option_values, torch_sources, wrong_list, wrong_lists

LOGS = "TORCH_LOGS"
READ = ("cudagraphs", "perf_hints", "recompiles")
"""The artefacts that tell what became of CUDA graphs, and what was compiled again."""
_MEANT = {"TORCH_LOG": LOGS, "TORCHLOGS": LOGS, "TORCH_LOGGING": LOGS, "TORCHINDUCTOR_LOGS": LOGS}
OFF = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
"""The variables by which `torch.compile` does nothing at all."""
_PREFIXES = ("TORCHINDUCTOR_", "TORCH_COMPILE_")
_FOR = "asking torch's compiler what it knows"


def log_switches(environment: Mapping[str, str], artefacts: Iterable[str] = READ) -> dict[str, str]:
    """`TORCH_LOGS` with `artefacts` beside what is asked for already, for a process that has yet to import torch."""
    words = [word.strip() for word in environment.get(LOGS, "").split(",") if word.strip()]
    bare = {word.lstrip("+-") for word in words}
    return {LOGS: ",".join([*words, *(name for name in artefacts if name not in bare)])}


def checked_logs(names: Sequence[str]) -> None:
    """Raise unless torch has all these logs and artefacts; the `SettingsError` names those that are close."""
    registry: Any = require("torch._logging._internal", "asking torch for its logs").log_registry
    logs = {*registry.log_alias_to_log_qnames, *registry.artifact_names, "all"}
    for name in names:
        if (bare := name.strip().lstrip("+-")) not in logs:
            message = f"torch has no log {bare!r}; {alternatives(bare, sorted(logs))}"
            raise SettingsError(message, hint="name logs of torch: TORCH_LOGS=help lists them")


def wrong_variables() -> tuple[dict[str, str], list[str]]:
    """Variables that torch does not read, each with the one that was probably meant; and texts on all that is wrong."""
    environment, readable = dict(settings.environment()), variables()
    names = {name: _MEANT[name] for name in environment if name in _MEANT}
    strange = [name for name in environment if name.startswith(_PREFIXES) and name not in {*readable, *names}]
    near = settings.meant(strange, readable)
    names |= {name: other for name, other in near.items() if not is_read(name)}  # which is asked last: it takes time
    texts = [f"{name} is set, and torch does not read it; {other} is probably meant" for name, other in names.items()]
    return names, texts + wrong_lists(environment, variables_by_option())


_READERS = ("_inductor", "_dynamo", "_functorch", "_logging", "compiler", "fx")
_HOW_IT_CHOOSES = (
    "autotune", "tuning", "benchmark", "coordinate_descent", "precompilation", "profiling_configs",
    "profiling_swizzle", "prescreening", "heuristic", "lookup_table",
)  # fmt: skip
_FROM_WHAT = (
    "backend", "template", "gemm", "matmul", "mixed_mm", "as_mm", "multi_kernel", "combo_kernel", "reduction",
    "split_k", "decompose_k", "batch_sweep", "instan", "cutlass_op_", "cutlass_enabled", "cluster", "origami", "tiles",
    "tiling", "rblock", "tma_", "block_ptr", "tensor_descriptor", "spill", "pipelining", "pdl",
)  # fmt: skip
_AROUND_IT = (
    "cudagraph", "epilogue", "prologue", "fusion", "layout", "padding", "shape_pad", "pad_", "freezing",
)  # fmt: skip
_ABOUT_TUNING = (*_HOW_IT_CHOOSES, *_FROM_WHAT, *_AROUND_IT)
"""Parts of names: how candidates are measured and chosen; which kernels and tiles they are chosen from; and what is
fused, padded, laid out, frozen or recorded around them. Names of debugging, packaging, caches and builds have none."""


@dataclass(frozen=True)
class InductorOption:
    """One option by its dotted name, as in `options` of `torch.compile`.

    `variables` set it, and those in `set_by` are set here; `default` is its value where none is.
    """

    name: str
    variables: tuple[str, ...]
    default: Any
    value: Any
    set_by: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Tell whether a variable or a program has given it another value."""
        return bool(self.value != self.default)


def autotune_options(words: tuple[str, ...] = _ABOUT_TUNING) -> list[InductorOption]:
    """The options whose names hold one of `words`; by default those that have to do with tuning."""
    variables_of, present = variables_by_option(), dict(settings.environment())
    options = []
    for name, value in sorted(option_values().items()):
        if any(word.lower() in name.lower() for word in words):
            set_by = tuple(variable for variable in variables_of.get(name, ()) if variable in present)
            # An entry may hold the variable's value as its default; the copy that saw no variables has the real one.
            entries = (_bare_config() if set_by else _config())._config
            options.append(InductorOption(name, variables_of.get(name, ()), entries[name].default, value, set_by))
    return options


def variables() -> set[str]:
    """Every environment variable that Inductor's settings read, and those of the compiler's debugging."""
    return {*_names_in(_tree()), "TORCH_COMPILE_DEBUG", "TORCH_COMPILE_DEBUG_DIR", "TORCH_COMPILE_DISABLE"}


def is_read(variable: str) -> bool:
    """Tell whether the compiler's sources name a variable anywhere, since not all of them are read by the settings.

    Cost: up to a second, for a variable that is not named.
    """
    mention = re.compile(rf"\b{re.escape(variable)}\b".encode())
    return any(mention.search(source) for source in torch_sources([f"{part}/**/*.py" for part in _READERS]))


def _config() -> Any:
    return require("torch._inductor.config", _FOR)


@lru_cache(maxsize=1)
def _tree() -> ast.Module:
    return ast.parse(inspect.getsource(_config()))


@lru_cache(maxsize=1)
def variables_by_option() -> dict[str, tuple[str, ...]]:
    """The variables that the right side of each assignment reads, also through a function of the module."""
    functions = {each.name: _names_in(each) for each in _tree().body if isinstance(each, ast.FunctionDef)}
    by_option: dict[str, tuple[str, ...]] = {}
    for name, value in _assignments(_tree().body):
        callees = [each.id for each in ast.walk(value) if isinstance(each, ast.Name)]
        names = [*_names_in(value), *(word for each in callees for word in functions.get(each, []))]
        by_option[name] = tuple(dict.fromkeys(names))
    return by_option


@lru_cache(maxsize=1)
def _bare_config() -> Any:
    """Inductor's settings as they are where no variable is set: another copy of their module."""
    module = _config()
    copy, before = module_from_spec(module.__spec__), dict(settings.environment())
    settings.restore_environment({})
    sys.modules[module.__name__] = copy  # where it looks for itself
    try:
        module.__spec__.loader.exec_module(copy)
    finally:
        sys.modules[module.__name__] = module
        settings.restore_environment(before)
    return copy


def _assignments(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.expr]]:
    """The dotted name and the right side of each assignment to a name, those in classes included."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _assignments(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                yield f"{prefix}{target.id}", node.value


def _names_in(node: ast.AST) -> list[str]:
    """The texts in a piece of code that look like names of environment variables of torch."""
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return [text for text in texts if text.startswith(("TORCH", "TRITON", "CUTLASS")) and text.isupper()]


EAGER = "eager"
INDUCTOR = "inductor"
CUDAGRAPHS = "triton.cudagraphs"
FREEZING = "freezing"
UNGATED = "max-autotune-ungated"
MODES = ("default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")  # whose speed differs
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
        object.__setattr__(self, "options", Frozen(plain))

    @property
    def eager(self) -> bool:
        """Tell whether the model runs as it is."""
        return self.backend is None

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `torch.compile`."""
        return {
            "backend": self.backend,
            **({} if self.mode is None else {"mode": self.mode}),
            **({"options": deepcopy(self.options)} if self.options else {}),
        }


def as_mode(way: Any) -> CompileMode:
    """A way to compile, from what a caller gives: a mode, its name, that of an option set, or a mapping of options."""
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
    """Raise where a mode's name is a mistake; one that another torch has ends as its own row.

    The `SettingsError` names what is close.
    """
    if way.mode is None or way.backend != INDUCTOR or way.mode in (*_OF_SOME, *_SETS):
        return
    if (why := refusal(way)) != "":
        raise SettingsError(why, hint="correct the name, or give options of Inductor in its place")


def refusal(way: CompileMode) -> str:
    """The reason why this torch cannot compile so; empty if it can, as far as names tell."""
    if way.eager or way.backend != INDUCTOR:
        return ""
    if way.mode is not None:
        if way.mode in (modes := sorted(mode_options())):
            return ""
        names = [*modes, EAGER, *_SETS]
        return f"this torch has no mode or option set {way.mode!r}; {alternatives(way.mode, names)}"
    present = option_values()
    wrong = [
        wrong_list(name, value) or _wrong_type(name, value) if name in present else _unknown(name, present)
        for name, value in way.options.items()
    ]
    return "; ".join(filter(None, wrong))


def effective_options(way: CompileMode, on_gpu: bool = True) -> dict[str, Any]:
    """The options that this way of compiling sets, those of its mode included; on a CPU there are no CUDA graphs."""
    options = dict(way.options if way.mode is None else mode_options().get(way.mode, {}))
    return {name: value for name, value in options.items() if on_gpu or name != CUDAGRAPHS}


def compiled(model: Any, way: CompileMode) -> Any:
    """A model compiled in this way, for which settings of this process may be changed; the model itself for eager."""
    if way.eager:
        return model
    if effective_options(way).get(FREEZING):  # as an option of one `torch.compile` it does nothing
        # Dynamo hands the weights on by the process's setting, before Inductor gets options (pytorch/pytorch#139272).
        _config().freezing = True
    if way.ungated:
        open_gate()
    return require("torch", "compiling a model").compile(model, **way.arguments())


def same_without_gpu(modes: Sequence[CompileMode], way: CompileMode) -> CompileMode | None:
    """An earlier way to compile that makes the same program on a CPU; None if none does."""
    earlier, options = itertools.takewhile(lambda other: other is not way, modes), effective_options(way, on_gpu=False)
    alike = (e for e in earlier if e.backend == way.backend and effective_options(e, on_gpu=False) == options)
    return None if way.eager else next(alike, None)


def mode_options() -> dict[str, dict[str, Any]]:
    """The options that each mode of this torch sets."""
    return {name: dict(options) for name, options in require("torch._inductor", _FOR).list_mode_options().items()}


def _wrong_type(name: str, value: Any) -> str:
    """The reason why torch refuses the type of an option's value; empty where it does not."""
    kind = _config().get_type(name)
    if not isinstance(kind, type) or isinstance(value, kind):
        return ""
    return f"{name} is {value!r}; torch takes {kind.__name__} for it"


def _unknown(name: str, options: Iterable[str]) -> str:
    rest = "`triton-ops torch options` lists those of tuning"
    return f"this torch has no option {name!r}; {alternatives(name, options, rest)}"
