"""The tables of an engine on a device: where it looks for one, and what it finds there by its own rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triton_ops.base import NamedFile
from triton_ops_serving.formats import form_of
from triton_ops_serving.model import EngineProblem
from triton_ops_serving.pinned import variable

_VLLM = "model_executor/layers"
FOLDERS = {  # of an installed engine, and the variable that names a further one
    "vllm-moe": (f"{_VLLM}/fused_moe/configs", "VLLM_TUNED_CONFIG_FOLDER"),
    "vllm-mamba": (f"{_VLLM}/mamba/ops/configs/selective_state_update", "VLLM_TUNED_CONFIG_FOLDER"),
    "vllm-linear": (f"{_VLLM}/quantization/utils/configs", ""),
    "vllm-lora": ("", "VLLM_TUNED_CONFIG_FOLDER"),
    "sglang-moe": ("srt/layers/moe/moe_runner/triton_utils", "SGLANG_MOE_CONFIG_DIR"),
    "sglang-linear": ("kernels/ops/gemm/configs", ""),
    "sglang-channelwise": ("kernels/ops/gemm/configs", ""),
    "sglang-lora": ("kernels/ops/lora/dense", "SGLANG_LORA_CONFIG_DIR"),
}
_VERSION = "triton_version"  # a fact of SGLang's tables, which stands beside the sizes in vLLM's


@dataclass(frozen=True, kw_only=True)
class EngineTable:
    """What an engine finds for a problem: the file, the rows that are read of it, and what is worth saying of them."""

    path: Path
    rows: Mapping[int, Mapping[str, Any]]
    says: str = ""
    of_first: bool = False  # the table of the first product, which serves the second one too


@dataclass(frozen=True, kw_only=True)
class Place:
    """The device and the version of Triton that an engine runs with."""

    device: str  # as its driver names it
    triton: str

    def facts(self, problem: EngineProblem) -> dict[str, Any]:
        """All that the table of a problem is looked up by."""
        here = {"device_name": self.device, _VERSION: self.triton}
        names = form_of(problem.form, problem.facts).facts
        return {**problem.facts, **{name: value for name, value in here.items() if name in names}}

    def folders(self, form: str) -> list[Path]:
        """The folders in which the engine looks for tables of a format, in its order."""
        below, name = FOLDERS[form]
        spec = find_spec(form.partition("-")[0])
        named = [Path(folder)] if name and (folder := variable(name)) else []
        if named and form in ("sglang-moe", "sglang-lora"):  # it takes the place of the installed one
            return named
        return [*named, *([Path(spec.origin).parent / below] if below and spec and spec.origin else [])]

    def find(self, problem: EngineProblem, *first: Path) -> EngineTable | None:
        """The table that the engine takes for a problem, by its own rule; None where its default config serves.

        A file among `first` comes before its own. CacheError: the file is no table, which ends the engine too.
        """
        form, facts = form_of(problem.form, problem.facts), self.facts(problem)
        paths = [path for folder in self.folders(problem.form) for path in form.places(folder, facts)]
        path = next((path for path in (*first, *paths) if NamedFile(path).exists), None)
        if path is None:
            return None
        table = form.read(path)
        rows = {row.at[0]: dict(row.config) for row in table.rows if not row.failure}
        version, says = table.facts.get(_VERSION) or table.unused.get(_VERSION), list[str]()
        if version and version != self.triton:
            says.append(f"of Triton {version}, and {self.triton} runs")
        if of_first := bool(problem.facts.get("down")) and not table.facts.get("down"):
            says.append("that of the first product")
        says += table.remarks
        if missing := [str(size) for size in problem.sizes if size not in rows]:
            says.append(f"{len(missing)} of {len(problem.sizes)} sizes take the nearest row: {', '.join(missing)}")
        return EngineTable(path=path, rows=rows, says="; ".join(says), of_first=of_first)
