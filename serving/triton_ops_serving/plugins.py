"""Plug-ins of vLLM and SGLang: their look-ups of tuned configs are answered from the lockfile, and counted.

An engine calls its plug-in in every process, and more than once. Without a lockfile (`TRITON_OPS_LOCKFILE`, or
`TRITON_OPS_REPLAY`), with `TRITON_OPS_SERVING=off`, or with a lockfile that cannot be read nothing is changed. Nothing
here tunes, compiles or launches. Whatever fails is one line in the engine's log, and its own table or default serves.

Facts used, of vLLM 0.33 and SGLang 0.5.23: each look-up is a function of numbers and words at the top of a module,
which returns the rows of a table by size, or None. In vLLM's batch-invariant mode and in SGLang's deterministic one
that for experts returns None, as SGLang's for linear layers do while `torch.compile` reads the code.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from operator import attrgetter
from types import ModuleType
from typing import Any

from triton_ops import settings
from triton_ops.dispatch import LaunchedConfig
from triton_ops.exceptions import SettingsError, TritonKernelError
from triton_ops.records import LockEntry, Lockfile
from triton_ops.space import Config
from triton_ops_serving.pinned import label_of, rows_of, variable
from triton_ops_serving.ranks import SHOWN, agreed, compare

Rows = dict[int, Any]
DIGEST = "TRITON_OPS_SERVING_DIGEST"  # the variable with that of the lockfile which the process above has read


@dataclass(frozen=True, kw_only=True)
class LookUp:
    """A function by which an engine looks a table up."""

    form: str  # the format of its tables
    module: str
    function: str
    takes: str  # its parameters
    size: str = ""  # that which is a size, of a function that answers with the row for it
    users: tuple[str, ...] = ()  # modules that hold it under its name, too
    device: str = ""  # the function that names the device; empty for that of most of an engine's modules
    dtype: str = ""  # of all tables, where it is no parameter
    fixed: Callable[[Any], Any] = lambda _module: False  # whether the engine is told to take no tables
    traced: bool = False  # whether torch.compile may read it
    row: Callable[[Any, Mapping[str, Any], Config], dict[str, Any]] = lambda _module, _facts, config: dict(config)
    """A pinned config as the engine's own code reads it from a file."""


def _with_whole_scales(module: Any, facts: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """A row of SGLang's linear layers, whose kernels step over the scales of whole blocks; results are else wrong."""
    depth, block = config["BLOCK_SIZE_K"], facts["block_shape"][1]
    whole = depth >= block or (module._is_cuda and block % depth == 0)
    return dict(config) if whole else {**config, "BLOCK_SIZE_K": block}


_VLLM, _SGLANG = "vllm.model_executor.layers", "sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe_triton_config"
_LORA = "vllm.lora.ops.triton_ops"
_DEVICE = {"vllm": "get_device_name_as_file_name", "sglang": "get_device_name"}  # the functions of these modules
_FP8: dict[str, Any] = {"function": "get_w8a8_block_fp8_configs", "takes": "N K block_n block_k", "dtype": "fp8_w8a8"}
_GEMM: dict[str, Any] = {"module": "sglang.kernels.ops.gemm.fp8_kernel", "traced": True}
LOOK_UPS = (
    LookUp(form="vllm-moe", module=f"{_VLLM}.fused_moe.fused_moe", function="get_moe_configs",
           takes="E N dtype block_n block_k", fixed=lambda module: module.envs.VLLM_BATCH_INVARIANT),
    LookUp(form="vllm-mamba", module=f"{_VLLM}.mamba.ops.mamba_ssm", function="get_ssm_configs",
           takes="headdim dstate cache_dtype"),
    LookUp(form="vllm-lora", module=f"{_LORA}.utils", function="get_lora_op_configs", size="batch",
           takes="op_type max_loras batch hidden_size rank num_slices add_inputs moe_intermediate_size",
           users=(f"{_LORA}.lora_shrink_op", f"{_LORA}.lora_expand_op"), device="torch.cuda.get_device_name",
           fixed=lambda module: module.is_batch_invariant),
    LookUp(form="vllm-linear", module=f"{_VLLM}.quantization.utils.fp8_utils", **_FP8),
    LookUp(form="sglang-moe", module=_SGLANG, function="get_moe_configs",
           takes="E N dtype block_n block_k per_channel_quant down",
           fixed=lambda module: module.get_exec().deterministic.enable_deterministic_inference),
    LookUp(form="sglang-linear", row=_with_whole_scales, **_FP8, **_GEMM),
    LookUp(form="sglang-channelwise", function="get_w8a8_channelwise_fp8_configs", takes="N K",
           dtype="fp8_w8a8_channelwise", **_GEMM),
    LookUp(form="sglang-lora", module="sglang.kernels.ops.lora.dense.lora_tuning_config", function="get_lora_configs",
           takes="kernel K R S"),
)  # fmt: skip


class Answers:
    """What one look-up of an engine answers: its own rows, with those of a lockfile in their place."""

    def __init__(self, look_up: LookUp, lock: Lockfile, log: logging.Logger) -> None:
        self._look_up, self._lock, self._log = look_up, lock, log
        self._known: dict[Any, tuple[Rows | None, Callable[[], object]]] = {}

    def __call__(self, original: Callable[..., Rows | None], *args: Any, **named: Any) -> Rows | None:
        """The rows for these arguments. Cost: one look-up in a dict and one count; at first that of the engine."""
        if self._look_up.traced and sys.modules["torch"].compiler.is_compiling():
            return original(*args, **named)
        key = (args, *named.items()) if named else args
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._answer(original, args, named)
        known[1]()
        return known[0]

    def forget(self, original: Any) -> None:
        """Have the engine look its tables up anew, as `cache_clear` of its own look-up does."""
        original.cache_clear()
        self._known.clear()

    def _answer(
        self, original: Callable[..., Rows | None], args: Sequence[Any], named: dict[str, Any]
    ) -> tuple[Rows | None, Callable[[], object]]:
        own, look_up, module = original(*args, **named), self._look_up, sys.modules[self._look_up.module]
        pinned: dict[int, LockEntry] = {}
        lock, device, problem, why = self._lock, "", str(args), "the engine is told to take no tables"
        rows = own or {}
        try:
            facts = self._facts(inspect.signature(original).parameters, args, named)
            problem = label_of(facts)
            if not look_up.fixed(module):
                device = str(attrgetter(look_up.device or _DEVICE[look_up.form.partition("-")[0]])(module)())
                lock = agreed(lock, self._log)
                pinned = rows_of(lock, look_up.form, facts, device)
                rows = {**rows, **{size: look_up.row(module, facts, entry.config) for size, entry in pinned.items()}}
                compare(f"{look_up.form} {problem} {device}", rows, self._log)
                why = f"the lockfile has no row for it on {device}"
        except Exception as error:  # noqa: BLE001 - the engine's own code; a look-up must not end what it serves
            pinned, rows, why = {}, own or {}, f"it cannot be answered: {type(error).__name__}: {error}"
            self._log.warning("triton_ops: %s %s: %s", look_up.form, problem, why)
        if pinned:
            sources = ", ".join(sorted({entry.origin.source for entry in pinned.values()}))
            why = f"{len(pinned)} of {len(rows)} rows are pinned ({sources}), in lockfile {lock.digest[:SHOWN]}"
            self._log.info("triton_ops: %s %s: %s", look_up.form, problem, why)
        else:
            why += f"; {len(own)} rows of the engine's own table serve" if own else "; the engine's default serves"
        row = LaunchedConfig(
            kernel=look_up.form, problem=problem, device=device, rung="lockfile" if pinned else "default",
            config=Config({"rows": len(rows)}), why=why, launches=0,
        )  # fmt: skip
        return (rows if pinned else own), row.counted()

    def _facts(self, names: Iterable[str], args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """What a table is looked up by; a parameter of another version is a fact that no row has."""
        values = {**dict(zip(names, args, strict=False)), **named}
        values = {name.removesuffix("_moe"): value for name, value in values.items()}  # `down_moe` is the fact `down`
        block = [values.pop(name, None) for name in ("block_n", "block_k")]
        return {"dtype": self._look_up.dtype, **values, "block_shape": block if all(block) else None}


class RowAnswers(Answers):
    """What a function of vLLM's LoRA answers, which looks one row up: that of the table which is nearest to a size."""

    def __init__(self, look_up: LookUp, lock: Lockfile, log: logging.Logger) -> None:
        super().__init__(look_up, lock, log)
        self._tables: dict[Any, tuple[Rows | None, Callable[[], object]]] = {}

    def forget(self, original: Any) -> None:
        """See `Answers`."""
        super().forget(original)
        self._tables.clear()

    def _answer(
        self, original: Callable[..., Rows | None], args: Sequence[Any], named: dict[str, Any]
    ) -> tuple[Rows | None, Callable[[], object]]:
        values = {**dict(zip(self._look_up.takes.split(), args, strict=False)), **named}
        size, key = values.pop(self._look_up.size), tuple(sorted(values.items()))
        if key not in self._tables:
            own = update_wrapper(partial(self._own, original), original)  # which has its signature
            self._tables[key] = super()._answer(own, (), values)
        rows, up = self._tables[key]
        return (rows[min(rows, key=lambda each: abs(each - size))] if rows else original(*args, **named)), up

    def _own(self, original: Callable[..., Any], **values: Any) -> Rows | None:
        """The rows of the engine's own file, each as it answers with it; None where its default serves."""
        content = sys.modules[self._look_up.module].load_lora_op_config(values["op_type"], values.get("add_inputs"))
        if not content:
            return None
        nearest = min(content, key=lambda name: abs(int(name) - values["max_loras"]))
        sizes = map(int, content[nearest][str(values["num_slices"])])
        return {size: original(**values, **{self._look_up.size: size}) for size in sizes}


class _AfterImport(MetaPathFinder):
    """A finder that finds modules as those behind it do, and calls a function with each of some, once it is there."""

    def __init__(self, acts: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._acts = acts

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of one of the modules, whose loader then calls the function; None for any other."""
        if name not in self._acts:
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]  # those before may ask this one
        others = (finder.find_spec(name, path, target) for finder in behind if hasattr(finder, "find_spec"))
        spec = next(filter(None, others), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._acts[name](module)

            # A spec has a loader of its own, so that no other module is executed in this way.
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_installed: set[str] = set()


def _ready(engine: str) -> list[tuple[LookUp, Answers]]:
    """The look-ups of an engine that the lockfile has rows for, with their answers; none where that was asked for."""
    log, lock = logging.getLogger(f"{engine}.triton_ops"), Lockfile()
    if engine in _installed:
        return []
    _installed.add(engine)
    try:
        if settings.serving() and (path := settings.replay() or settings.lockfile()):
            lock = Lockfile.read(path)
            if variable(DIGEST) not in ("", lock.digest):
                raise SettingsError(f"{path} changed while the engine started, so that ranks would differ")
            settings.set_variable(DIGEST, lock.digest)
            lock = _of_one_class(lock, log)
    except TritonKernelError as error:
        log.warning("triton_ops: the engine's own tables serve: %s", error)
        return []
    kernels = {entry.kernel for entry in lock.entries}
    mine = [each for each in LOOK_UPS if each.form in kernels and each.form.startswith(f"{engine}-")]
    if mine:
        names = ", ".join(each.form for each in mine)
        log.info("triton_ops: look-ups of %s are answered from lockfile %s", names, lock.digest[:SHOWN])
    return [(each, (RowAnswers if each.size else Answers)(each, lock, log)) for each in mine]


def _of_one_class(lock: Lockfile, log: logging.Logger) -> Lockfile:
    """The entries that keep to a class of bits, where launches shall; the rows left out are told."""
    kept = lock if settings.same_bits() == "0" else lock.without(lambda entry: not entry.same_bits)
    if left_out := len(lock.entries) - len(kept.entries):
        why = "pin no class of bits, and are not used, since TRITON_OPS_SAME_BITS is 1"
        log.warning("triton_ops: %d of %d entries of the lockfile %s", left_out, len(lock.entries), why)
    return kept


def vllm() -> None:
    """The plug-in of vLLM's group `vllm.general_plugins`: replace look-ups when their modules are imported."""
    acts = {look_up.module: partial(_replace, look_up, answers) for look_up, answers in _ready("vllm")}
    # No finder is asked again for a module that is there.
    for name in acts.keys() & sys.modules.keys():
        acts[name](sys.modules[name])
    if acts:
        sys.meta_path.insert(0, _AfterImport(acts))


def _replace(look_up: LookUp, answers: Answers, module: ModuleType) -> None:
    original = getattr(module, look_up.function, None)
    if original is None:
        logging.getLogger("vllm.triton_ops").warning("triton_ops: this vLLM has no %s.%s", module, look_up.function)
        return
    answered: Any = update_wrapper(partial(answers, original), original)
    if hasattr(original, "cache_clear"):  # of functools.lru_cache, which others call to have a table read anew
        answered.cache_clear, answered.cache_info = partial(answers.forget, original), original.cache_info
    for user in (module, *filter(None, map(sys.modules.get, look_up.users))):
        if getattr(user, look_up.function, None) is original:
            setattr(user, look_up.function, answered)


def sglang() -> None:
    """The plug-in of SGLang's group `sglang.srt.plugins`: hooks around the look-ups, which SGLang then applies."""
    if ready := _ready("sglang"):
        hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
        for look_up, answers in ready:
            hooks.HookRegistry.register(f"{look_up.module}.{look_up.function}", answers, hooks.HookType.AROUND)
