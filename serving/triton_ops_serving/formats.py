"""Formats of LoRA's tables in vLLM and SGLang, beside those that triton_ops has of these engines.

Facts used, of vLLM 0.33: the tables of one product are one file in the folder of `VLLM_TUNED_CONFIG_FOLDER`, and none
comes with vLLM: `{device}_SHRINK.json` and `{device}_EXPAND_{TRUE|FALSE}.json`, by whether it adds to the outputs;
blanks and hyphens of the device's name are underlines. It is an object of objects by adapters and one more, slices,
tokens, and the depth and columns of the product. Of each the nearest number is taken, but slices must be there: else
the engine ends. So a file is for all layers of a model, and a size of one layer is one of the others that have as many
slices. Experts have files of their own.

Facts used, of SGLang 0.5.23: `csgmv_configs/triton_X_Y_Z/lora_{shrink|expand},K=…,R=…,S=…,device=….json` below
`SGLANG_LORA_CONFIG_DIR`, which takes the package's place; where the version of Triton has no table, that of the folder
whose name is the last in order. Only blanks of the device's name are underlines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from triton_ops.exceptions import CacheError
from triton_ops.ship import ROWS, ByBatch, Format, Table, format_named


@dataclass(frozen=True, kw_only=True)
class SglangLora(ByBatch):
    """Tables by the height of a tile."""

    def place(self, facts: Mapping[str, Any]) -> str:
        """See `ByBatch`."""
        kernel, *numbers, device, version = self.needed(facts, *self.facts)
        sizes = ",".join(f"{name}={value}" for name, value in zip("KRS", numbers, strict=True))
        name = f"lora_{kernel},{sizes},device={device.replace(' ', '_')}.json"
        return f"csgmv_configs/triton_{str(version).replace('.', '_')}/{name}"

    def places(self, folder: Path, facts: Mapping[str, Any]) -> Sequence[Path]:
        """The own file, then those of other folders, the last name first."""
        own = folder / self.place(facts)
        others = sorted(own.parent.parent.glob("triton_*"), reverse=True)
        return [own, *(each / own.name for each in others if each != own.parent)]

    def named(self, path: Path) -> dict[str, Any]:
        """See `Format`."""
        match = re.match(r"lora_(\w+),K=(\d+),R=(\d+),S=(\d+),device=(.+)\.json", path.name)
        if not match:
            return {}
        kernel, *numbers, device = match.groups()
        version = path.parent.name.removeprefix("triton_").replace("_", ".")
        return dict(zip(self.facts, (kernel, *map(int, numbers), device, version), strict=True))


@dataclass(frozen=True, kw_only=True)
class VllmLora(ByBatch):
    """The part of a file that is for one layer; what else the file has stays in it."""

    part: Mapping[str, Any]  # the facts of the layer

    def place(self, facts: Mapping[str, Any]) -> str:
        """The one file of a product."""
        name = re.sub(r"[ -]", "_", self.needed(facts, "device_name")[0]) + f"_{facts['op_type']}".upper()
        ending = f"_{facts.get('add_inputs')}".upper() if facts["op_type"] == "expand" else ""
        return f"{name}{ending}.json"

    def _extents(self) -> tuple[int, int]:
        sizes = self.part["hidden_size"], self.part["rank"]
        return sizes if self.part["op_type"] == "shrink" else sizes[::-1]

    def read(self, path: Path) -> Table:
        """What the engine takes for the layer at each number of tokens that the file has for as many slices."""
        return self.table_in(self.object_in(path), path)

    def table_in(self, file: Mapping[str, Any], path: Path) -> Table:
        """See `read`; CacheError where the engine would end."""
        content = self._below(file, path)
        depth, columns = self._extents()
        rows, others = [], 0
        with CacheError.when(f"{path} is no table of LoRA", "its names are whole numbers", ValueError):
            sizes = sorted(content, key=int)
        for size in sizes:
            below = _nearest(_nearest(content[size], depth, path), columns, path)
            others += str(depth) not in content[size] or str(columns) not in content[size][str(depth)]
            rows.append(self.row_in(int(size), below, path))
        remarks = (f"rows of another layer or rank serve {others} sizes",) if others else ()
        return Table({"device_name": None, **self.part}, tuple(rows), remarks=remarks)

    def _below(self, content: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
        """The part of a file for as many adapters and slices."""
        adapters, slices = _nearest(content, self.part["max_loras"], path), str(self.part["num_slices"])
        if not isinstance(adapters, dict) or not isinstance(adapters.get(slices), dict) or not adapters[slices]:
            raise CacheError(f"{path} has no row for num_slices={slices}, which ends vllm", hint="tune all layers")
        below: Mapping[str, Any] = adapters[slices]
        return below

    def content(self, table: Table) -> Mapping[str, Any]:
        """The rows of one layer as the engine reads them."""
        depth, columns = self._extents()
        sizes = {str(row.at[0]): {str(depth): {str(columns): dict(row.config)}} for row in table.rows}
        return {str(self.part["max_loras"]): {str(self.part["num_slices"]): sizes}}


def _nearest(content: Any, number: int, path: Path) -> Any:
    """What an object has for a number, or for that which is nearest; of two for that which stands first."""
    errors = AttributeError, ValueError, TypeError
    with CacheError.when(f"{path} is no table of LoRA", "its names are whole numbers", *errors):
        return content.get(str(number)) or content[min(content, key=lambda name: abs(int(name) - number))]


_VLLM = ("op_type", "max_loras", "num_slices", "hidden_size", "rank", "add_inputs", "device_name")
_SGLANG = ("kernel", "K", "R", "S", "device_name", "triton_version")


def form_of(form: str, facts: Mapping[str, Any]) -> Format:
    """The format of a problem's table."""
    if form == "vllm-lora":
        return VllmLora(engine="vLLM", facts=_VLLM, rule=ROWS[form], part=facts)
    if form == "sglang-lora":
        return SglangLora(engine="SGLang", facts=_SGLANG, row=("chunk",), rule=ROWS[form])
    return format_named(form)


FormTable: TypeAlias = tuple[Format, Table]


def file_text(tables: Sequence[FormTable], before: bytes | None, path: Path, sharing: Sequence[Format]) -> str:
    """The text of the file that tables share with others, with what else it had.

    CacheError: it cannot be read, or an engine would end for one of those that share it.
    """
    form, table = tables[0]
    if not isinstance(form, VllmLora):
        return form.text(table)
    content = form.object_in(path) if before else {}
    sizes = sorted({row.at[0] for _, table in tables for row in table.rows})
    for form, table in cast("Sequence[tuple[VllmLora, Table]]", tables):
        rows = ((size, table.nearest(size).config, None) for size in sizes)  # else another layer's would serve
        _merge(content, form.content(Table.by_size(table.facts, rows)))
    for each in sharing:
        cast(VllmLora, each).table_in(content, path)
    return json.dumps(content, indent=4) + "\n"


def _merge(content: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add to an object of objects, down to the configs, which are replaced."""
    for name, value in more.items():
        if isinstance(content.get(name), dict) and all(isinstance(each, dict) for each in value.values()):
            _merge(content[name], value)
        else:
            content[name] = value
