"""Kernels written in Triton: how a config of a JIT function is compiled and launched.

Facts used, from Triton 3.6 to 3.9: `triton.runtime.cache.triton_key` and `triton.backends.nvidia.driver.CudaUtils` are
made once per process; `JITFunction.arg_names` and `.params`; `.warmup(…, grid=…)` compiles with the real specialisation
of the arguments and does not launch; `CompiledKernel._init_handles()` loads the binary and raises `OutOfResources`
without launching; `n_spills` counts 4-byte registers; a failing ptxas prints its whole input to stdout. Under
`TRITON_INTERPRET=1` a kernel is an `InterpretedFunction` and nothing is compiled.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import io
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from triton_ops._hashing import fingerprint
from triton_ops.backend.base import Arguments, Executable
from triton_ops.backend.errors import CandidateError, candidate_error, not_of_the_config
from triton_ops.backend.identity import triton_identity
from triton_ops.backend.signatures import parameters_of
from triton_ops.backend.unwrap import unwrap
from triton_ops.exceptions import CacheError, ConfigCollisionError, KernelTypeError, UnknownTunableError
from triton_ops.hardware import VENDORS
from triton_ops.space import Config
from triton_ops.trial import Resources, Status

# By the form of the code that tells best: what the assembler is given, else Triton's own.
_TF32 = {"ptx": re.compile(r"\.tf32\b"), "ttir": re.compile(r"inputPrecision = tf32")}
_ATOMICS = {
    "ptx": re.compile(r"\b(?:atom|red|multimem\.red|cp\.reduce\.async\.bulk)\."), "ttir": re.compile(r"tt\.\w*atomic"),
}  # fmt: skip
Grid = Callable[[Mapping[str, Any]], tuple[int, ...]]

_PLAIN = (bool, int, float, str, bytes, type(None))  # whose text is the same in every process
_SPILL_UNIT_BYTES = 4
_PTXAS_DUMP = "please share the reproducer above with Triton project"  # ends what a failing ptxas prints
# Options of the CUDA and HIP backends of Triton 3.6 to 3.9. Triton itself accepts some misspelled ones in silence.
LAUNCH_OPTIONS = frozenset({
    "num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "ptx_options", "launch_cooperative_grid",
    "launch_pdl", "waves_per_eu", "matrix_instr_nonkdim", "kpack", "allow_flush_denorm", "schedule_hint",
})  # fmt: skip


@dataclass(frozen=True)
class TritonKernel:
    """A `@triton.jit` function with its grid.

    Attributes:
        function: The JIT function itself, below any `@triton.autotune`; it may have `@triton.heuristics`.
        grid: From the arguments and the config's values, by name, to the launch grid, as Triton's grid functions.
            It must be a function: a grid that does not follow a tuned block size launches the wrong number of programs.
        outputs: Names of the arguments that the kernel writes.
        label: Its name in records; None takes `module:function`.

    Raises:
        KernelTypeError: `function` is no JIT function, `grid` is not callable, or an output is no parameter.
    """

    function: Any
    grid: Grid
    outputs: tuple[str, ...] = ()
    label: str | None = None

    def __post_init__(self) -> None:
        if any(hasattr(layer, "configs") for layer in _layers(self.function)):
            raise KernelTypeError(
                f"{self.name} is already wrapped by @triton.autotune",
                hint="give the function below it: kernel.fn, or leave the decorator out",
            )
        if not (hasattr(self.function, "arg_names") and hasattr(self.function, "run")):
            raise KernelTypeError(f"{self.function!r} is no Triton kernel", hint="decorate it with @triton.jit")
        if not callable(self.grid):
            raise KernelTypeError(
                f"the grid of {self.name} is {self.grid!r}; it must be a function of the config",
                hint='write lambda meta: (triton.cdiv(n, meta["BLOCK"]),)',
            )
        if strange := [name for name in self.outputs if name not in self.function.arg_names]:
            raise KernelTypeError(f"{self.name} has no parameter {', '.join(strange)} to be an output")

    @property
    def name(self) -> str:
        """`module:function`, unless labelled."""
        inner = unwrap(self.function)
        return self.label or f"{inner.__module__}:{inner.__name__}"

    @property
    def interpreted(self) -> bool:
        """Whether it runs as Python, as under `TRITON_INTERPRET`: then there is nothing to compile."""
        return type(_layers(self.function)[-1]).__name__ == "InterpretedFunction"

    @property
    def identity(self) -> Mapping[str, str]:
        """Fingerprints of the kernel and of its grid with all they refer to, and what compiles it."""
        return triton_identity(self.function, self.grid, interpreted=self.interpreted)

    @property
    def cache_key(self) -> str:
        """What Triton calls the source with all that it calls; the names of compiled binaries are made from it."""
        return str(_layers(self.function)[-1].cache_key)

    def check(self, tunables: Iterable[str], arguments: Arguments) -> None:
        """Raise unless tunables and arguments together are what the kernel takes.

        Raises:
            ConfigCollisionError: A tunable is an argument as well.
            UnknownTunableError: A tunable is neither a parameter nor a launch option.
            KernelTypeError: A parameter without a default gets no value.
        """
        names, order = list(tunables), self.function.arg_names
        given = {*arguments.keyword, *order[: len(arguments.positional)]}
        if clash := [name for name in names if name in given]:
            raise ConfigCollisionError(
                f"{', '.join(map(repr, clash))} is both a tunable and an argument of {self.name}",
                hint="leave it out of the arguments, or out of the space",
            )
        if unknown := [name for name in names if name not in order and name not in LAUNCH_OPTIONS]:
            raise UnknownTunableError(
                f"{self.name} has no parameter {', '.join(map(repr, unknown))}; tunable are "
                f"{', '.join(name for name in order if name not in given)} and the launch options "
                f"{', '.join(sorted(LAUNCH_OPTIONS))}",
                hint="correct the tunable's name",
            )
        computed = _heuristics(self.function)
        if clash := [name for name in (*given, *names) if name in computed]:
            raise ConfigCollisionError(
                f"{', '.join(map(repr, clash))} is computed by the @triton.heuristics of {self.name}",
                hint="leave it out of the arguments and the space, or take it out of the heuristics",
            )
        filled = {*given, *names, *computed}
        if missing := [name for name in _required(self.function) if name not in filled]:
            raise KernelTypeError(
                f"{self.name} needs a value for {', '.join(missing)}",
                hint="pass it as an argument, or add it to the config space",
            )

    @property
    def parameter_names(self) -> list[str]:
        """The JIT function's parameters in calling order."""
        return list(self.function.arg_names)

    @property
    def process_imports(self) -> tuple[str, ...]:
        """Triton first: it readies itself while torch is imported."""
        return ("triton", "torch")

    @property
    def compiled_ahead(self) -> TritonKernel | None:
        """This kernel; None if it is interpreted."""
        return None if self.interpreted else self

    def compile(self, config: Config, arguments: Arguments) -> Executable:
        """Compile for these arguments' types and alignment, and load the binary; nothing is launched.

        Cost: 0.1 to a few seconds for a new binary, about a millisecond from Triton's disk cache.

        Raises:
            CandidateError: `compile` if the compiler refused it, `resources` if the device cannot hold it.
            CacheError: The compiler cannot write its files, as on a full disk.
        """
        if self.interpreted:
            return self.executable(config)
        start = time.perf_counter()
        said = io.StringIO()  # ptxas' input, on failure: a thousand lines that belong to nobody
        try:
            with contextlib.redirect_stdout(said):
                compiled = self.function.warmup(*arguments.positional, grid=(1,), **arguments.keyword, **config)
                compiled = compiled.result() if hasattr(compiled, "result") else compiled
                compiled._init_handles()
        except Exception as error:
            raise compile_error(error) from error
        took_s, found = time.perf_counter() - start, _resources(compiled)
        made = self.executable(config)
        key = self.program_key(config, arguments, found)
        tf32, atomics = _in_code(compiled, _TF32), _in_code(compiled, _ATOMICS)
        return replace(made, resources=found, compile_s=took_s, key=key, tf32=tf32, atomics=atomics)

    def executable(self, config: Config) -> Executable:
        """A config that Triton itself compiles at its first launch with arguments of a kind."""

        def bind(given: Arguments) -> Callable[[], Any]:
            grid = functools.partial(self._grid, config, given)
            keywords = {**given.keyword, **config}
            return functools.partial(self.function.run, *given.positional, grid=grid, warmup=False, **keywords)

        return Executable(config=config, bind=bind, outputs=self.outputs)

    def program_key(self, config: Config, arguments: Arguments, made: Resources | None) -> str | None:
        """Names all that a launch of a compiled config is: machine code, shared memory, grid and plain arguments.

        Args:
            config: What was compiled.
            arguments: Of the launch; tensors may be stand-ins without memory.
            made: What the compiler made of it.

        Returns:
            None if the machine code is not known, the grid function raises, or heuristics compute a plain argument.
        """
        plain = {param.name for param in _layers(self.function)[-1].params if not param.is_constexpr}
        if made is None or made.binary is None or plain.intersection(_heuristics(self.function)):
            return None
        try:
            grid = [int(extent) for extent in self._grid(config, arguments, {})]
        except Exception:  # noqa: BLE001 - the user's own function; its launch will say why
            return None
        told = sorted((name, repr(value)) for name, value in config.items() if name in plain)
        return fingerprint([made.binary, made.shared_bytes, grid, told])

    def _grid(self, config: Config, arguments: Arguments, meta: Mapping[str, Any]) -> tuple[int, ...]:
        names = self.function.arg_names
        by_name = {
            **meta,  # what Triton has bound: defaults, and what heuristics compute
            **dict(zip(names, arguments.positional, strict=False)),
            **arguments.keyword,
            **config,
        }
        return self.grid(by_name)


def warm_up(launches: bool) -> threading.Thread:
    """Begin in the background what Triton does once before its first kernel: it takes half a second and more.

    A process that imports torch meanwhile has it for nothing. Triton reads all its own files for the cache's key, and
    builds a module that loads kernels with the C compiler. What fails is met again, and told, by whoever compiles or
    launches first.

    Args:
        launches: Whether this process will launch kernels, and not just compile them; Triton's driver is readied then.

    Returns:
        Ends when it is done.
    """

    def work() -> None:
        for vendor in VENDORS.values() if launches else ():
            with contextlib.suppress(Exception):
                driver = vendor.triton_driver
                getattr(importlib.import_module(driver.module), driver.utilities)()
        with contextlib.suppress(Exception):
            importlib.import_module("triton.runtime.cache").triton_key()

    thread = threading.Thread(target=work, name="triton-ops warm-up", daemon=True)
    thread.start()
    return thread


def compile_error(error: Exception) -> CandidateError | CacheError:
    """What Triton raised while it compiled, as the config's failure, or as that of its disk cache."""
    cache = importlib.import_module("triton.knobs").cache.dir
    return not_of_the_config(error, str(cache)) or candidate_error(error, Status.COMPILE)


@contextlib.contextmanager
def without_ptxas_dumps() -> Iterator[None]:
    """Inside, what Triton prints when ptxas fails does not reach stdout; everything else does, at once."""
    with contextlib.redirect_stdout(_WithoutDumps(sys.stdout)):
        yield


class _WithoutDumps:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._dropped = False

    def write(self, text: str) -> int:
        self._dropped = _PTXAS_DUMP in text or (self._dropped and text == "\n")  # print writes its newline apart
        return len(text) if self._dropped else int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _layers(function: Any) -> list[Any]:
    """A kernel with the kernels below its decorators, the innermost last."""
    layers = [function]
    while hasattr(inner := getattr(layers[-1], "fn", None), "run"):
        layers.append(inner)
    return layers


def _heuristics(function: Any) -> set[str]:
    """The parameters that `@triton.heuristics` gives their values."""
    return {name for layer in _layers(function)[:-1] for name in getattr(layer, "values", ())}


def _required(function: Any) -> list[str]:
    parameters = parameters_of(unwrap(function)).values()
    return [parameter.name for parameter in parameters if parameter.default is parameter.empty]


def _in_code(compiled: Any, words: Mapping[str, re.Pattern[str]]) -> bool | None:
    """Whether some instruction is in the compiled code; None where no form of the code is known to tell."""
    for form, word in words.items():
        if isinstance(text := compiled.asm.get(form), str):
            return word.search(text) is not None
    return None


def _resources(compiled: Any) -> Resources:
    spills = getattr(compiled, "n_spills", None)
    binary = compiled.asm.get("cubin") or compiled.asm.get("hsaco")
    return Resources(
        registers=getattr(compiled, "n_regs", None),
        spill_bytes=None if spills is None else spills * _SPILL_UNIT_BYTES,
        shared_bytes=getattr(compiled.metadata, "shared", None),
        binary=hashlib.sha256(binary).hexdigest()[:32] if binary else None,
    )
