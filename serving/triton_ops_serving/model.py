"""The problems of a model's Triton kernels in a serving engine, from the `config.json` that the model comes with.

Facts used, of vLLM 0.33 and SGLang 0.5.23. A rank of T has a T-th of the width of each expert, or with expert
parallelism a T-th of the experts. The tables' `N` is that width: with a gate the first product makes twice as many
columns. A table of a state space is looked up by the dimension of a head, and its rows by sequences times the heads of
a rank; the first Mamba is one head, as wide as the layer. SGLang may take DeepSeek's shared expert for one more expert.
The sizes are those of nearly all tables that the engines ship.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from triton_ops.base import NamedFile
from triton_ops.exceptions import SettingsError
from triton_ops_serving.pinned import label_of

ENGINES = ("vllm", "sglang")
_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
_CHUNKS = (16, 32, 64, 128)
_BATCHES = tuple(8 << power for power in range(16))
_LARGEST_CACHE = 1 << 31  # values of the states of one step
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_k")
_DENSE = ("moe_intermediate_size", "intermediate_size")
_HEADS = ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
_HEAD_DIM = ("mamba_head_dim", "mamba_d_head", "mamba_headdim")
_GROUPS = ("n_groups", "mamba_n_groups", "mamba_ngroups")
_STATE = ("ssm_state_size", "mamba_d_state", "state_size")
_LANGUAGE = ("text_config", "llm_config", "language_config")  # of a model that sees or hears, too
_DTYPES = ("bfloat16", "float16", "float32")
_EVERYWHERE = ("lm_head", "gate", "router", "norm", "embed")  # modules that no engine quantises


@dataclass(frozen=True, kw_only=True)
class EngineProblem:
    """One table that an engine looks for: a row of it is for each size."""

    form: str  # the format of the table, such as `vllm-moe`
    layer: str  # of the model, in words
    facts: Mapping[str, Any]  # what the table is looked up by, without the device
    extents: Mapping[str, int] = field(default_factory=dict)  # what the kernel's problem has beside these
    row: str = "M"  # what a size is
    sizes: tuple[int, ...] = _SIZES

    @property
    def label(self) -> str:
        """The facts in one line."""
        return label_of(self.facts)


class Model:
    """A model as its `config.json` describes it, and one rank's share of it."""

    def __init__(
        self, values: Mapping[str, Any], ranks: int = 1, *, expert_parallel: bool = False,
        adapters: tuple[int, int] = (0, 1),
    ) -> None:  # fmt: skip
        inner = next((part for name in _LANGUAGE if isinstance(part := values.get(name), Mapping)), {})
        self._values = {**values, **inner}
        self._ranks, self._expert_parallel = ranks, expert_parallel
        self._adapters = adapters  # the rank of those of LoRA, 0 for none, and how many a batch has
        self.remarks: list[str] = []  # what is not understood, or not listed, each as a sentence
        dtype = str(self._values.get("torch_dtype") or self._values.get("dtype") or _DTYPES[0])
        self.dtype = dtype.removeprefix("torch.")  # of its activations
        if self.dtype not in _DTYPES:
            self.remarks.append(f"the dtype {dtype[:40]} is not understood: {_DTYPES[0]} is taken")
            self.dtype = _DTYPES[0]

    @classmethod
    def read(
        cls, path: Path, ranks: int = 1, *, expert_parallel: bool = False, adapters: tuple[int, int] = (0, 1)
    ) -> Model:
        """The model in a file; SettingsError if it is no JSON object, or a number is too small."""
        for name, number, least in (("tp", ranks, 1), ("lora-rank", adapters[0], 0), ("max-loras", adapters[1], 1)):
            if number < least:
                raise SettingsError(f"--{name} is {number}; it must be {least} or more", hint=f"--{name} 8")
        with SettingsError.when(f"{path} is no config.json", "name that of a model"):
            values = NamedFile(path).parsed()
        return cls(values, ranks, expert_parallel=expert_parallel, adapters=adapters)

    @property
    def name(self) -> str:
        """Its kind, such as `qwen3_moe`."""
        return str(self._values.get("model_type") or "model")

    def problems(self, engine: str) -> list[EngineProblem]:
        """The tables that an engine looks for, each once; SettingsError if there is none."""
        if engine not in ENGINES:
            raise SettingsError(f"there is no engine {engine!r}", hint=f"use one of {', '.join(ENGINES)}")
        weights = self._quantised(engine)
        parts = () if weights is None else (*self._experts(engine, weights), *self._linear(engine, weights))
        listed = {(each.form, each.label): each for each in (*parts, *self._state_space(engine), *self._lora(engine))}
        if not listed:
            what = ": ".join(filter(None, (f"nothing of this {self.name} has a table in {engine}", *self.remarks)))
            hint = "experts, state spaces, linear layers of block-wise fp8 and, with --lora-rank, adapters have some"
            raise SettingsError(what, hint=hint)
        return list(listed.values())

    def _number(self, *names: str) -> int:
        """The first of some values that is a whole number above 0; 0 for none."""
        for name in names:
            value = self._values.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
            if value:
                self.remarks.append(f"{name} is {str(value)[:40]}, and no whole number above 0")
        return 0

    def _share(self, what: str, extent: int, multiple: int = 1) -> int:
        """A rank's part of an extent; 0, with a remark, where it has none that is whole."""
        part, rest = divmod(extent, self._ranks)
        if rest or part % multiple:
            unit = f"{multiple} columns" if multiple > 1 else "columns"
            self.remarks.append(f"{what}: {extent} among {self._ranks} ranks is no whole number of {unit}; left out")
            return 0
        return part

    def _quantised(self, engine: str) -> dict[str, Any] | None:
        """What a table's name has of the weights; None, with a remark, for a quantisation that is not understood."""
        how = self._values.get("quantization_config") or self._values.get("compression_config")
        if not how:
            return {"dtype": "float32"} if self.dtype == "float32" else {}
        if not isinstance(how, Mapping):
            self.remarks.append(f"the quantisation {str(how)[:40]} is not understood: what it quantises is left out")
            return None
        method, groups = str(how.get("quant_method") or how.get("quant_algo")).lower(), how.get("config_groups")
        block, strategy, known = how.get("weight_block_size"), None, method == "fp8"
        if method == "compressed-tensors" and isinstance(groups, Mapping) and len(groups) == 1:
            group = next(iter(groups.values()))
            weights = group.get("weights") if isinstance(group, Mapping) else None
            weights = weights if isinstance(weights, Mapping) else {}
            known = weights.get("type") == "float" and weights.get("num_bits") == 8 and "input_activations" in group
            block, strategy = weights.get("block_structure"), weights.get("strategy")
        usable = not block or (
            isinstance(block, list) and len(block) == 2 and all(type(one) is int and one > 0 for one in block)
        )
        if not known or not usable or how.get("expert_dtype") not in (None, "fp8"):
            self.remarks.append(f"quantisation by {method} is not understood: what it quantises is left out")
            return None
        exceptions = how.get("modules_to_not_convert") or how.get("ignore") or how.get("ignored_layers")
        names = map(str, exceptions if isinstance(exceptions, list) else ())
        if others := [name for name in names if not any(word in name for word in _EVERYWHERE)]:
            self.remarks.append(f"listed as if quantised: {len(others)} modules that are not, such as {others[0]}")
        facts = {"block_shape": block, "per_channel_quant": engine == "sglang" and strategy == "channel"}
        return {"dtype": "fp8_w8a8", **{name: value for name, value in facts.items() if value}}

    def _experts(self, engine: str, weights: Mapping[str, Any]) -> Iterator[EngineProblem]:
        count, width, hidden = self._number(*_EXPERTS), self._number(*_DENSE), self._number("hidden_size")
        if count < 2:
            return
        top_k = self._number(*_TOP_K)
        if not (width and hidden and top_k):
            self.remarks.append("there are experts, but not their width, their number for a token, or hidden_size")
            return
        if top_k > count:
            self.remarks.append(f"a token has {top_k} of {count} experts, which cannot be: left out")
            return
        if self._expert_parallel:
            count = self._share("experts", count)
        else:
            width = self._share("width of an expert", width, weights.get("block_shape", [1])[0])
        shared = engine == "sglang" and self._number("n_shared_experts") == 1 and not self._expert_parallel
        for more, down in product((0, 1) if shared else (0,), (False, True) if engine == "sglang" else (False,)):
            layer = f"experts{' with the shared one' * more}{', second product' * down}"
            facts = {"E": count + more, "N": width, **weights, **({"down": down} if engine == "sglang" else {})}
            if count and width:
                columns = width * (1 if self._values.get("mlp_hidden_act") == "relu2" else 2)  # with those of a gate
                extents = {"K": hidden, "columns": columns, "top_k": top_k + more}
                yield EngineProblem(form=f"{engine}-moe", layer=layer, facts=facts, extents=extents)

    def _linear(self, engine: str, weights: Mapping[str, Any]) -> Iterator[EngineProblem]:
        form, facts = f"{engine}-linear", weights
        if weights.get("per_channel_quant"):
            form, facts = "sglang-channelwise", {"dtype": "fp8_w8a8_channelwise"}
        elif "block_shape" not in weights:
            self.remarks += ["linear layers of fp8 without blocks are left out"] if "dtype" in weights else []
            return
        for layer, widths, depth in self._layers(weights.get("block_shape", [1])[0]):
            if all(widths) and depth:
                yield EngineProblem(form=form, layer=layer, facts={"N": sum(widths), "K": depth, **facts})

    def _layers(self, unit: int) -> Iterator[tuple[str, tuple[int, ...], int]]:
        """The linear layers of a rank: name, columns of each of their parts, and depth, 0 where they cannot be had."""
        hidden, heads = self._number("hidden_size"), self._number("num_attention_heads")
        if not (hidden and heads):
            self.remarks.append("hidden_size or num_attention_heads is missing: no linear layer is listed")
            return
        mine = self._share("attention heads", heads)
        if rank := self._number("kv_lora_rank"):
            yield from self._latent(hidden, mine, rank)
        elif mine:
            size = self._number("head_dim") or hidden // heads
            keys = self._number("num_key_value_heads") or heads
            pairs = self._share("heads of keys", keys) if self._ranks % keys else 1  # few heads are on several ranks
            if pairs:
                yield "qkv_proj", (mine * size, pairs * size, pairs * size), hidden
            yield "o_proj", (hidden,), mine * size
        dense = self._number("intermediate_size_mlp", "intermediate_size")
        if dense and (self._number(*_EXPERTS) < 2 or self._number("first_k_dense_replace", "intermediate_size_mlp")):
            yield from self._gated("mlp", hidden, self._share("width of the mlp", dense, unit))
        shared = self._number("n_shared_experts") * self._number("moe_intermediate_size")
        if shared := shared or self._number("shared_expert_intermediate_size"):
            yield from self._gated("shared experts", hidden, self._share("width of the shared experts", shared, unit))

    @staticmethod
    def _gated(name: str, hidden: int, width: int) -> Iterator[tuple[str, tuple[int, ...], int]]:
        yield from ((f"{name}, gate and up", (width, width), hidden), (f"{name}, down", (hidden,), width))

    def _latent(self, hidden: int, heads: int, rank: int) -> Iterator[tuple[str, tuple[int, ...], int]]:
        """The products of attention with latent keys, as DeepSeek's; those to a latent are whole on every rank."""
        plain, turned = self._number("qk_nope_head_dim"), self._number("qk_rope_head_dim")
        values, queries = self._number("v_head_dim"), self._number("q_lora_rank")
        yield "kv_a_proj" if not queries else "q_a_proj and kv_a_proj", (queries + rank + turned,), hidden
        yield "q_b_proj" if queries else "q_proj", (heads * (plain + turned),), queries or hidden
        yield "kv_b_proj", (heads * (plain + values),), rank
        yield "o_proj", (hidden,), heads * values

    def _lora(self, engine: str) -> Iterator[EngineProblem]:
        """Both products of the adapters of each linear layer; the first has the depth of a layer, the second its width.

        Experts, and attention with latent keys, have other ones.
        """
        rank, count = self._adapters
        if not rank:
            return
        if self._number(*_EXPERTS) > 1 or self._number("kv_lora_rank"):
            self.remarks.append("adapters of experts, and of attention with latent keys, are left out")
        for layer, widths, depth in () if self._number("kv_lora_rank") else self._layers(1):
            for op in ("shrink", "expand") if all(widths) and depth else ():
                sizes: dict[str, Any] = {"row": "chunk", "sizes": _CHUNKS} if engine == "sglang" else {}
                yield EngineProblem(
                    form=f"{engine}-lora", layer=f"{layer}, {op}", facts=self._facts(engine, op, widths, depth),
                    extents={"columns": sum(widths), "widest": max(widths), "loras": count}, **sizes,
                )  # fmt: skip

    def _facts(self, engine: str, op: str, widths: tuple[int, ...], depth: int) -> dict[str, Any]:
        """What an engine looks the product of a layer's adapters up by."""
        (rank, count), slices = self._adapters, len(widths)
        if engine == "sglang":
            return {"kernel": op, "K": depth if op == "shrink" else sum(widths), "R": rank, "S": slices}
        wide = depth if op == "shrink" else max(widths)
        facts = {"op_type": op, "max_loras": count + 1, "num_slices": slices, "hidden_size": wide, "rank": rank}
        return {**facts, "add_inputs": True} if op == "expand" else facts

    def _state_space(self, engine: str) -> Iterator[EngineProblem]:
        state, own = self._number(*_STATE), self.name in ("mamba", "falcon_mamba", "mamba2")
        if not state or not (own or any(name.startswith(("mamba_", "ssm_")) for name in self._values)):
            return
        if engine != "vllm":
            self.remarks.append(f"{engine} has no table for state spaces: left out")
            return
        inner, extents = self._number("expand", "mamba_expand") * self._number("hidden_size"), {"heads": 1}
        if count := self._number(*_HEADS, *(["num_heads"] if self.name == "mamba2" else [])):
            by_width = self._values.get("mamba_d_head") == "auto"
            size = inner // count if by_width else self._number(*_HEAD_DIM, *(["head_dim"] if own else []))
            groups = self._number(*_GROUPS)
            extents = {"heads": self._share("heads of the state space", count), "groups": groups // self._ranks or 1}
        else:  # the first Mamba
            width = self._number("intermediate_size") if own else 0  # else that of another layer
            size = self._share("width of the state space", width or inner)
        cache = str(self._values.get("mamba_ssm_cache_dtype") or "auto").replace("auto", self.dtype)
        sizes = tuple(each for each in _BATCHES if each * size * state <= _LARGEST_CACHE)
        if extents["heads"] and size and not sizes:
            self.remarks.append(f"states of {size} times {state} values are larger than any cache: left out")
        elif extents["heads"] and size:
            yield EngineProblem(
                form="vllm-mamba",
                layer="state space",
                facts={"headdim": size, "dstate": state, "cache_dtype": cache},
                extents=extents,
                row="batch",
                sizes=sizes,
            )
