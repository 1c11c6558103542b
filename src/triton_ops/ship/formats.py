"""Formats of other engines' tables, by name.

Facts used, of tables by batch size: the file is a JSON object whose keys are whole numbers as text; the config of the
size that is nearest by difference is taken, however far away it is, and of two the one that stands first.

Facts used, of vLLM 0.33: blanks and slashes of the device's name are underlines, hyphens stay, and a block shape has no
blank. Experts: `E=…,N=…,device_name=…[,dtype=…][,block_shape=[n,k]].json` in the folder of `VLLM_TUNED_CONFIG_FOLDER`,
then in the package; a device with the word H200 is `NVIDIA_H200`. Mamba: `headdim=…,dstate=…,device_name=…,
cache_dtype=….json` in the same folders; bfloat16 is float16, and the batch size is that of sequences times heads. Both
may have `triton_version` beside the sizes, which is not used. Linear layers of block-wise fp8:
`N=…,K=…,device_name=…,dtype=fp8_w8a8,block_shape=[n,k].json` in the package alone, with sizes only.

Facts used, of SGLang 0.5.23: only blanks of the device's name are underlines, a block shape has a blank, and there are
sizes only. Experts: `configs/triton_X_Y_Z/E=…,N=…,device_name=…[,dtype=…][,block_shape=[n, k]][,per_channel_quant=True]
[_down].json` below `SGLANG_MOE_CONFIG_DIR`, which takes the package's place; where the version of Triton has no table,
that of the newest one is taken, and in place of a missing `_down`, which is for the second product, the other one.
Linear layers, in the package alone: `N=…,K=…,device_name=…,dtype=fp8_w8a8,block_shape=[n, k].json`, of `int8_w8a8`
too, and `dtype=fp8_w8a8_channelwise` without a block; a size whose config is null is left to another kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triton_ops.exceptions import CacheError, SettingsError, alternatives
from triton_ops.ship.rows import ROWS, RowRule
from triton_ops.ship.table import Format, Table, TableRow, kind_called
from triton_ops.ship.tuner_files import FlaTables, T4Results, TritonCache
from triton_ops.space import Config

_SIZE = re.compile(r"0|[1-9][0-9]{0,17}")  # 016 would be 16 once more
_BETWEEN = re.compile(r",(?=\w+=)")  # the facts in a name
_FACT = re.compile(r"\[\d+, ?\d+\]|(?!.*\.json)[^\s\[\],]*")
_HEIGHT = "BLOCK_SIZE_M"
_VERSION, _DOWN = "triton_version", "down"
_LEFT = "left to another kernel"


@dataclass(frozen=True, kw_only=True)
class ByBatch(Format):
    """Tables by batch size: a file's name has what it is looked up by, and a launch takes the nearest size.

    The fact `triton_version` is that of the folder, and `down` an ending: the table of the experts' second product.
    """

    engine: str
    facts: tuple[str, ...]  # in the order of the name
    optional: tuple[str, ...] = ()  # those that a name may lack
    row: tuple[str, ...] = ("M",)
    rule: RowRule = ROWS["vllm-moe"]
    beside: tuple[str, ...] = ()  # what may stand beside the sizes, and is not used
    dtypes: tuple[str, ...] = ()  # for which the engine has a look-up; empty for any
    underlined: str = r"[\s/]+"  # what of a device's name is an underline
    comma: str = ","  # between the extents of a block
    family: str = ""  # a word of devices that share one name
    whole_blocks: bool = False  # a narrower config is widened to a block, on CUDA devices where it does not divide it

    def place(self, facts: Mapping[str, Any]) -> str:
        """The path of the table below the engine's folder; SettingsError without a fact that is needed."""
        self.needed(facts, *(name for name in self.facts if name not in self.optional))
        texts = {name: self._text(name, facts.get(name)) for name in self.facts if name not in (_VERSION, _DOWN)}
        folder = f"configs/triton_{str(facts[_VERSION]).replace('.', '_')}/" if _VERSION in self.facts else ""
        ending = f"_{_DOWN}" if _true(facts.get(_DOWN)) else ""
        return f"{folder}{','.join(f'{name}={text}' for name, text in texts.items() if text)}{ending}.json"

    def places(self, folder: Path, facts: Mapping[str, Any]) -> Sequence[Path]:
        """The own file, those of other versions of Triton, the newest first, and those of the first product."""
        place = self.place(facts)
        if _VERSION not in self.facts:
            return (folder / place,)
        versions = (path for path in (folder / "configs").glob("triton_*") if _version(path))
        others = [path / place.split("/", 2)[2] for path in sorted(versions, key=_version, reverse=True)]
        partner = self.partner(facts)
        first = self.places(folder, partner) if partner else ()
        return [folder / place, *others, *first]

    def _text(self, name: str, value: Any) -> str:
        """A fact as a name has it; empty if it is not there."""
        text = "" if value is None else str(value)
        if name == "block_shape":
            extents = block_shape(value)
            return f"[{self.comma.join(map(str, extents))}]" if extents else ""
        if name == "per_channel_quant":
            return "True" if _true(value) else ""
        if name == "device_name":
            text = re.sub(self.underlined, "_", text)
            return f"NVIDIA_{self.family}" if self.family and self.family in text.split("_") else text
        return "float16" if (name, text) == ("cache_dtype", "bfloat16") else text

    def content(self, table: Table) -> Mapping[str, Any]:
        """The fastest config of each batch size; see `Format`."""
        if any(len(row.at) != 1 or not isinstance(row.at[0], int) for row in table.rows):
            raise SettingsError("a table by batch size has one whole number for each row", hint="name it: --row M")
        if self.dtypes and (dtype := table.facts.get("dtype")) not in self.dtypes:
            raise SettingsError(f"{self.engine} looks for no table of {dtype}", hint=f"--set dtype={self.dtypes[0]}")
        rows = sorted(table.best(), key=lambda row: int(row.at[0]))
        return {str(int(row.at[0])): dict(row.config) for row in rows}

    def read(self, path: Path) -> Table:
        """The table with the configs as they are launched; see `Format`."""
        content, facts = self.object_in(path), self.named(path)
        sizes = [name for name in content if _SIZE.fullmatch(name) and name != "0"]
        if (strange := content.keys() - {*sizes, *self.beside}) or not sizes:
            what = f"has {min(strange)[:40]!r}" if strange else "is empty"
            raise CacheError(f"{path} {what}, and is no table by batch size", hint="its names are whole numbers: 16")
        rows = [self.row_in(int(size), content[size], path) for size in sizes]
        launched = [row if row.failure else replace(row, config=self._launched(row.config, facts)) for row in rows]
        remarks = []
        if sizes != sorted(sizes, key=int):
            remarks.append("its sizes are not in order: of two that are equally near, an export prefers the smaller")
        if left := [row.name for row in rows if row.failure]:
            remarks.append(f"left out: {len(left)} rows are {_LEFT}: {', '.join(left)}")
        if wider := [row.name for row, now in zip(rows, launched, strict=True) if row.config != now.config]:
            remarks.append(f"{self.engine} widens BLOCK_SIZE_K to a block in {len(wider)} rows: {', '.join(wider)}")
        unused = {name: content[name] for name in self.beside if name in content}
        return Table(facts, tuple(launched), remarks=tuple(remarks), unused=unused)

    def row_in(self, size: int, value: Any, path: Path) -> TableRow:
        """See `Format`; without a config it is left to another kernel."""
        return TableRow((size,), Config({}), failure=_LEFT) if value is None else super().row_in(size, value, path)

    def _launched(self, config: Config, facts: Mapping[str, Any]) -> Config:
        """A config as the engine launches it."""
        extents, width = block_shape(facts.get("block_shape")), config["BLOCK_SIZE_K"] if self.whole_blocks else None
        if not extents or not isinstance(width, int) or facts.get("dtype") != "fp8_w8a8" or width >= extents[1]:
            return config
        divides = width > 0 and extents[1] % width == 0
        stays = divides and kind_called(str(facts.get("device_name"))) == "cuda"
        return config if stays else Config({**config, "BLOCK_SIZE_K": extents[1]})

    def named(self, path: Path) -> dict[str, Any]:
        """The facts in the names of a file and its folder; see `Format`."""
        name, folder = path.name.removesuffix(".gz").removesuffix(".json"), path.parent
        if folder.name.startswith(f"{self.facts[0]}="):  # a device's name with a slash
            name, folder = f"{folder.name}/{name}", folder.parent
        if "=" not in name:
            return {}
        pieces = [piece.partition("=") for piece in _BETWEEN.split(name.removesuffix(f"_{_DOWN}"))]
        if strange := [text for _, _, text in pieces if not _FACT.fullmatch(text)]:
            raise CacheError(f"{path} has {strange[0]} in its name, which is no value", hint="take the engine's name")
        facts: dict[str, Any] = {
            key: int(text) if _SIZE.fullmatch(text) else text == "True" or text for key, _, text in pieces
        }
        if _DOWN in self.facts or name.endswith(f"_{_DOWN}"):
            facts[_DOWN] = name.endswith(f"_{_DOWN}")
        if unknown := [key for key in facts if key not in self.facts]:
            message = f"{path} is no table of this format, whose names have no {', '.join(unknown)}"
            raise CacheError(message, hint=f"they have {', '.join(self.facts)}")
        if _VERSION in self.facts and (version := _version(folder)):
            facts[_VERSION] = ".".join(map(str, version))
        return facts

    def choose(self, table: Table, _facts: Mapping[str, Any], at: Sequence[Any]) -> TableRow | None:
        """The row of the nearest batch size; see `Format`."""
        if len(at) != 1 or not isinstance(at[0], int):
            raise SettingsError(f"the row {list(at)} is not one whole number", hint="--at 16")
        nearest = table.nearest(int(at[0]))
        return None if nearest.failure else nearest

    def partner(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """The first product of experts, whose height the second takes; see `Format`."""
        return {**facts, _DOWN: False} if _true(facts.get(_DOWN)) else {}

    def doubt(self, folder: Path, facts: Mapping[str, Any], *, named: bool) -> str:
        """A missing table of the first product, and the names that vLLM itself has for AMD's devices; see `Format`."""
        first = self.partner(facts)
        if first and not any(path.is_file() for path in self.places(folder, first)):
            return f"the first product, whose {_HEIGHT} the second takes, has no table: {folder / self.place(first)}"
        if named or self.engine != "vLLM" or kind_called(str(facts.get("device_name"))) != "hip":
            return ""
        return f"vLLM names some AMD devices itself: is it {facts['device_name']} there? (--set device_name=NAME)"

    def look_up(self, folder: Path, facts: Mapping[str, Any], at: Sequence[Any]) -> tuple[Path, TableRow] | None:
        """See `Format`; the second product of experts has BLOCK_SIZE_M of the first, since both share one sorting."""
        # sgl-project/sglang#10567 brought tables of the second product.
        answer = super().look_up(folder, facts, at)
        partner = self.partner(facts)
        first = self.look_up(folder, partner, at) if partner else None
        if answer is None or first is None:
            return answer
        config = Config({**answer[1].config, _HEIGHT: first[1].config[_HEIGHT]})
        return answer[0], replace(answer[1], config=config)


def block_shape(value: Any) -> list[int]:
    """The two extents of a quantisation block; empty if there is none."""
    extents = [int(text) for text in re.findall(r"\d+", str(value or ""))]
    if extents and len(extents) != 2:
        raise SettingsError(f"block_shape is {value}, and must have two extents", hint="--set block_shape=128,128")
    return extents if all(extents) else []


def _version(path: Path) -> list[int]:
    """The version of Triton that a folder is for; empty if it is for none."""
    match = re.fullmatch(r"triton_(\d+(?:_\d+)*)", path.name)
    return [int(part) for part in match[1].split("_")] if match else []


def _true(value: Any) -> bool:
    return value in (True, 1, "1", "true", "True")


_LINEAR = ("N", "K", "device_name", "dtype", "block_shape")
_QUANTISED = ("dtype", "block_shape")
_EXPERTS = ("E", "N", "device_name", *_QUANTISED)
_SGLANG: dict[str, Any] = {"engine": "SGLang", "underlined": " ", "comma": ", "}
# vLLM has one table for all devices of the family H200: vllm-project/vllm#23642.
FORMATS: dict[str, Format] = {
    "vllm-moe": ByBatch(engine="vLLM", facts=_EXPERTS, optional=_QUANTISED, beside=(_VERSION,), family="H200"),
    "vllm-mamba": ByBatch(
        engine="vLLM", facts=("headdim", "dstate", "device_name", "cache_dtype"), row=(), beside=(_VERSION,),
        rule=ROWS["vllm-mamba"],
    ),
    "vllm-linear": ByBatch(engine="vLLM", facts=_LINEAR, dtypes=("fp8_w8a8",)),
    "sglang-moe": ByBatch(
        **_SGLANG, facts=(*_EXPERTS, "per_channel_quant", _DOWN, _VERSION),
        optional=(*_QUANTISED, "per_channel_quant", _DOWN), rule=ROWS["sglang-moe"],
    ),
    "sglang-linear": ByBatch(**_SGLANG, facts=_LINEAR, dtypes=("fp8_w8a8", "int8_w8a8"), whole_blocks=True),
    "sglang-channelwise": ByBatch(
        **_SGLANG, facts=_LINEAR[:-1], dtypes=("fp8_w8a8_channelwise",), rule=ROWS["sglang-channelwise"]
    ),
    "fla": FlaTables(),
    "triton-cache": TritonCache(),
    "t4": T4Results(),
}  # fmt: skip


def format_named(name: str) -> Format:
    """The format of this name; SettingsError if there is none."""
    if name not in FORMATS:
        raise SettingsError(f"there is no format {name!r}; {alternatives(name, FORMATS)}", hint="use one of these")
    return FORMATS[name]
