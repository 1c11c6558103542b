"""What the arguments of a problem may hold: several contents with weights, and makers that draw them.

A content replaces the values of tensor arguments; shapes, dtypes and scalars stay, and with them the problem and its
compiled code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, get_args

from triton_ops.base import Frozen, is_positive, require
from triton_ops.exceptions import SettingsError, ShapeMismatchError
from triton_ops.values.tensors import Fill, TensorSpec

_FORM = "a content is a mapping from names of arguments to values, or a function of the arguments and a seed"
_FORMS = ("ends", "offsets", "counts", "ids")
_LONG = 0.2  # of the groups of a bimodal draw
_HELD_OUT_SEED = 1_000_003  # between the seeds of two turns, so that they meet no seed of another content
_SHARES: dict[str, Callable[[Any, int, float, Any], Any]] = {
    "zipf": lambda torch, n, amount, rng: (torch.randperm(n, generator=rng).double() + 1).pow(-amount),
    "dirichlet": lambda torch, n, amount, rng: (  # by logarithms: a gamma draw of a small concentration is 0 itself
        torch._standard_gamma(torch.full((n,), amount + 1).double(), generator=rng).log()
        + torch.rand(n, generator=rng).double().log() / amount
    ).softmax(0),
    "one_hot": lambda torch, n, amount, rng: torch.where(
        torch.randperm(n, generator=rng) == 0, amount if n > 1 else 1.0, (1 - amount) / max(n - 1, 1)
    ).double(),
    "log_normal": lambda torch, n, amount, rng: (amount * torch.randn(n, generator=rng).double()).exp(),
    "bimodal": lambda torch, n, amount, rng: torch.where(torch.rand(n, generator=rng) < _LONG, amount, 1.0).double(),
}
_LIMITS = {"dirichlet": (1e-6, 1e6), "bimodal": (1e-6, 1e6), "log_normal": (0, 100), "zipf": (0, 1e6)}  # else shares


def _drawn(kind: str, amount: float, form: str, tensor: Any, seed: int) -> Any:
    """Values drawn in the place of a tensor's, as `Contents.draw` describes them."""
    torch = require("torch", "drawing contents")
    rng = torch.Generator().manual_seed(seed)
    if kind == "sparse":
        return tensor * (torch.rand(tensor.shape, generator=rng) >= amount).to(tensor.device, tensor.dtype)
    flat = tensor.detach().flatten().cpu().long()
    groups = int(flat.max()) + 1 if form == "ids" else len(flat) - (form == "offsets")
    total = len(flat) if form == "ids" else int(flat.sum() if form == "counts" else flat[-1])
    shares = _SHARES[kind](torch, groups, amount, rng)
    ids = torch.multinomial(shares, total, replacement=True, generator=rng) if total else flat[:0]
    counts = torch.bincount(ids, minlength=groups)
    ends = counts.cumsum(0)
    values = {"ids": ids, "counts": counts, "ends": ends, "offsets": torch.cat([ends[:1] * 0, ends])}[form]
    return values.to(tensor.device, tensor.dtype).reshape(tensor.shape)


@dataclass(frozen=True)
class Contents:
    """The contents over which configs are compared, with a weight each.

    A content is a mapping from names of tensor arguments to what stands in their place: values as of a `TensorSpec`'s
    `fill`, a word of it such as `zeros`, or a maker `make(tensor, seed)`, such as `Contents.draw("zipf", 1.2)`. It may
    also be a function `make(arguments, seed)` that returns such a mapping for several arguments at once, such as all
    index tensors of one routing. An empty mapping is the problem's own content.

    Attributes:
        items: Pairs of a weight and a content.
        worst: Whether a config counts by its worst content, relative to the times of the first config timed, which is
            the default; else by the weighted mean of its times. Either way no config wins that is slower than the
            default by more than 5 % on a content.
        held_out: Further draws of each content that is drawn. They are timed beside, decide nothing, and tell how much
            the winner loses on contents that nobody has tuned for.

    Raises:
        SettingsError: The items are no pairs of a positive weight and a content, or `held_out` is no whole number of 0
            or more.
    """

    SLOWER: ClassVar[float] = 0.05  # than the default on a content with a weight: a config that is does not win

    items: Sequence[tuple[float, Any]]
    worst: bool = False
    held_out: int = 1

    def __post_init__(self) -> None:
        items = [*self.items] if isinstance(self.items, (list, tuple)) else []
        fit = [isinstance(each, (list, tuple)) and len(each) == 2 and is_positive(each[0]) for each in items]
        if not items or not all(fit) or not all(callable(it[1]) or isinstance(it[1], Mapping) for it in items):
            raise SettingsError(f"contents are {self.items!r}; they are pairs of a positive weight and a content",
                                hint=_FORM)  # fmt: skip
        SettingsError.checked("held_out", self.held_out, 0, whole=True)
        own = ((weight, each if callable(each) else Frozen(each)) for weight, each in items)
        object.__setattr__(self, "items", tuple(own))  # the caller may change what it has given

    @classmethod
    def of(cls, contents: Contents | Sequence[tuple[float, Any]], names: Collection[str]) -> Contents:
        """Contents as a caller gives them; SettingsError unless the arguments that they replace are among the names."""
        own = contents if isinstance(contents, Contents) else cls(contents)
        named = {name for _, each in own.items if isinstance(each, Mapping) for name in each}
        if strange := sorted(map(str, named - {*names})):
            what = f"contents replace {', '.join(strange)}, which is no tensor argument"
            raise SettingsError(what, hint=f"there are {', '.join(names)}")
        return own

    @staticmethod
    def draw(kind: str, amount: float = 0.0, form: str = "ends") -> Callable[[Any, int], Any]:
        """A maker of loads of groups, such as of experts or of sequences that fill the rows.

        Args:
            kind: One of six. `zipf`: the group of rank r has a share proportional to r to the minus `amount`; 0 is
                uniform. `dirichlet`: of the concentration `amount`; the smaller, the more uneven. `one_hot`: one group
                has the share `amount`, and the others divide the rest. `log_normal`: lengths of the sigma `amount`.
                `bimodal`: one in five is `amount` times as long. `sparse`: the tensor's own values, of which the share
                `amount` is zeros.
            amount: The kind's number.
            form: What the argument holds: `ends` of the groups, `offsets` where they begin, with a last one, `counts`
                of their rows, or `ids`, the group of each row. Rows and groups are as many as in the tensor replaced.

        Raises:
            SettingsError: There is no such kind or form, or the number does not fit.
        """
        if kind not in (*_SHARES, "sparse") or form not in _FORMS:
            kinds = f"one of {', '.join([*_SHARES, 'sparse'])}, in the form {', '.join(_FORMS)}"
            raise SettingsError(f"there is no draw {kind!r} in the form {form!r}", hint=f"take {kinds}")
        least, most = _LIMITS.get(kind, (0, 1))
        number: object = amount
        if not isinstance(number, (int, float)) or not least <= number <= most:
            raise SettingsError(f"{kind} has the amount {number!r}; it must be from {least:g} to {most:,.0f}")
        return partial(_drawn, kind, float(amount), form)

    def drawn(self, arguments: Mapping[str, Any], seed: int) -> Iterator[tuple[str, float, dict[str, Any]]]:
        """Label, weight and tensors by name of each content, each by its own seed; then of draws held out, of weight 0.

        Raises:
            SettingsError, ShapeMismatchError: The values of a content do not fit the arguments.
        """
        draws = [(_label(item), float(weight), item, seed + at) for at, (weight, item) in enumerate(self.items)]
        makers = [each for each in draws if callable(each[2]) or any(map(callable, each[2].values()))]
        for turn in range(1, self.held_out + 1):
            further = turn * _HELD_OUT_SEED
            draws += [(f"{label}, held out {turn}", 0.0, content, own + further) for label, _, content, own in makers]
        for label, weight, content, own_seed in draws:
            yield label, weight, _values(content, arguments, own_seed)

    def value(self, units_ms: list[float], times_ms: Sequence[float]) -> float:
        """Milliseconds for which a config's times on each content count.

        The first config is the default: its times fill `units_ms`, to which those of later configs are relative.
        """
        units_ms[:] = units_ms or times_ms
        weights = [float(weight) for weight, _ in self.items]
        if not self.worst:
            return sum(w * t for w, t in zip(weights, times_ms, strict=False)) / sum(weights)
        pairs = list(zip(units_ms[: len(weights)], times_ms, strict=False))
        return max(time / max(unit, 1e-9) for unit, time in pairs) * sum(unit for unit, _ in pairs)

    @staticmethod
    def slower(raced: Iterable[Sequence[Any]], config: Any, default: Any) -> tuple[float, str]:
        """The share by which a config is slower than the default on its worst content with a weight, and the label.

        `raced` are labels, weights, and pairs of a config and its time.
        """
        rows = [(label, dict(times)) for label, weight, times in raced if weight]
        shares = [(ms[config] / max(ms.get(default, math.inf), 1e-9) - 1, label) for label, ms in rows if config in ms]
        return max(shares, default=(0.0, ""))


def _label(content: Any) -> str:
    if isinstance(content, Mapping):
        return ", ".join(f"{name} {_label(value)}".rstrip() for name, value in content.items()) or "its own"
    if isinstance(content, partial):
        return "{}({:g})".format(*content.args) if content.func is _drawn else _label(content.func)
    return content if isinstance(content, str) else str(getattr(content, "__name__", ""))


def _values(content: Any, arguments: Mapping[str, Any], seed: int) -> dict[str, Any]:
    values = content
    if not isinstance(content, Mapping):
        copies = {name: own.clone() if hasattr(own, "data_ptr") else own for name, own in arguments.items()}
        values = _returned(content, copies, seed)
    if not isinstance(values, Mapping):
        raise SettingsError(f"the maker {_label(content)} returned {values!r}", hint=_FORM)
    return {name: _fitting(name, value, arguments.get(name), seed) for name, value in values.items()}


def _returned(maker: Callable[[Any, int], Any], own: Any, seed: int) -> Any:
    try:
        return maker(own, seed)
    except Exception as error:
        raise SettingsError(f"the maker {_label(maker)} raised {type(error).__name__}: {error}", hint=_FORM) from error


def _fitting(name: str, value: Any, own: Any, seed: int) -> Any:
    """The tensor that stands in the place of an argument, which has its shape, dtype and layout."""
    if not hasattr(own, "data_ptr"):
        message = f"a content replaces {name}, which is no tensor argument"
        raise SettingsError(message, hint="another number makes another problem: tune each")
    content = _returned(value, own.clone(), seed) if callable(value) else value
    if getattr(content, "shape", own.shape) != own.shape:
        message = f"the values of {name} are {tuple(content.shape)}, not {tuple(own.shape)}"
        raise ShapeMismatchError(message, own.shape, content.shape, name)
    word = isinstance(content, str) and content in get_args(Fill)
    total = int(own.flatten()[-1]) if word and content in ("ends", "offsets") else 0
    spec = replace(TensorSpec.of(own), fill=content if word else "empty", total=total)
    tensor = spec.create_tensor(str(own.device), seed)
    return tensor if word else tensor.copy_(replace(spec, fill=content).own_values(own.device))
