"""What the arguments of a problem may hold: several contents with weights, and makers that draw them.

A content replaces the values of some tensor arguments; shapes, dtypes and scalars stay, so that the problem and its
compiled code are the same. Routing draws write loads of groups, such as of experts, in the form that the kernel takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, get_args

from triton_ops.base import is_positive, require
from triton_ops.exceptions import SettingsError, ShapeMismatchError
from triton_ops.values.tensors import Fill, TensorSpec

_FORMS = ("ends", "offsets", "counts", "ids")
_FORM = "a content is a mapping from names of arguments to values, or a function of the arguments and a seed"


@dataclass(frozen=True)
class Draw:
    """Draws the values of an argument that says how many rows, tokens or elements belong to each group.

    The `form` is that of the argument: `ends` of the groups, `offsets` where they begin, with a last one, `counts` of
    their rows, or `ids`, the group of each token. The number of groups and of rows are those of the tensor replaced.
    """

    kind: str
    amount: float = 0.0
    form: str = "ends"

    def __post_init__(self) -> None:
        if self.form not in _FORMS:
            raise SettingsError(f"the form of a draw is {self.form!r}; it must be one of {', '.join(_FORMS)}")
        amount: object = self.amount
        if not isinstance(amount, (int, float)) or not 0 <= amount < float("inf"):
            raise SettingsError(f"{self.kind} of {self.amount!r}: it must be a number of 0 or more")
        if self.kind in ("dirichlet", "bimodal") and not self.amount:
            raise SettingsError(f"{self.kind} of {self.amount!r}: it must be a positive number")
        if self.kind in ("one_hot", "sparse") and self.amount > 1:
            raise SettingsError(f"{self.kind} of {self.amount!r}: it is a share, and at most 1")

    def __str__(self) -> str:
        return f"{self.kind}({self.amount:g})"

    def __call__(self, tensor: Any, seed: int) -> Any:
        """New values in place of a tensor's, which is left as it is."""
        torch = require("torch", "drawing contents")
        generator = torch.Generator().manual_seed(seed)
        if self.kind == "sparse":
            keeps = torch.rand(tensor.shape, generator=generator) >= self.amount
            return tensor * keeps.to(tensor.device, tensor.dtype)
        flat = tensor.detach().flatten().cpu().long()
        begins = self.form == "offsets"
        groups = int(flat.max()) + 1 if self.form == "ids" else len(flat) - begins
        total = len(flat) if self.form == "ids" else int(flat.sum() if self.form == "counts" else flat[-1])
        shares = _SHARES[self.kind](torch, groups, self.amount, generator)
        ids = torch.multinomial(shares, total, replacement=True, generator=generator) if total else flat[:0]
        counts = torch.bincount(ids, minlength=groups)
        ends = counts.cumsum(0)
        values = {"ids": ids, "counts": counts, "ends": ends, "offsets": torch.cat([ends[:1] * 0, ends])}[self.form]
        return values.to(tensor.device, tensor.dtype).reshape(tensor.shape)


def _zipf(torch: Any, groups: int, amount: float, generator: Any) -> Any:
    ranks = torch.randperm(groups, generator=generator).double() + 1
    return ranks.pow(-amount)


def _dirichlet(torch: Any, groups: int, amount: float, generator: Any) -> Any:
    return torch._standard_gamma(torch.full((groups,), amount).double(), generator=generator) + 1e-12


def _one_hot(torch: Any, groups: int, amount: float, generator: Any) -> Any:
    shares = torch.full((groups,), (1 - amount) / max(groups - 1, 1)).double()
    shares[int(torch.randint(groups, (1,), generator=generator))] = amount if groups > 1 else 1.0
    return shares


def _log_normal(torch: Any, groups: int, amount: float, generator: Any) -> Any:
    return (amount * torch.randn(groups, generator=generator).double()).exp()


def _bimodal(torch: Any, groups: int, amount: float, generator: Any) -> Any:
    long = torch.rand(groups, generator=generator) < _LONG
    return torch.where(long, float(amount), 1.0).double()


_LONG = 0.2  # of the sequences of a bimodal draw
_SHARES: dict[str, Callable[[Any, int, float, Any], Any]] = {
    "zipf": _zipf, "dirichlet": _dirichlet, "one_hot": _one_hot, "log_normal": _log_normal, "bimodal": _bimodal,
}  # fmt: skip


@dataclass(frozen=True)
class Contents:
    """The contents over which configs are compared, with a weight each.

    A content is a mapping from names of tensor arguments to what stands in their place: values as of a `TensorSpec`'s
    `fill`, a word of it such as `zeros`, or a maker `make(tensor, seed)`, such as `Contents.zipf(1.2)`. It may also be
    a function `make(arguments, seed)` that returns such a mapping of tensors for several arguments at once, such as all
    index tensors of one routing. An empty mapping is the problem's own content.

    Attributes:
        items: Pairs of a weight and a content.
        worst: Whether a config counts by its worst content, relative to the times of the first config timed, which is
            the default; else by the weighted mean of its times.
        held_out: Further draws of each content that is drawn. They are timed beside, decide nothing, and tell how much
            the winner loses on contents that nobody has tuned for.
        statistics: Functions of the arguments by name, each of which gives a whole number that the host knows at a
            call, such as the rows of the largest group. A lockfile can have a config for each range of one.
    """

    items: Sequence[tuple[float, Any]]
    worst: bool = False
    held_out: int = 1
    statistics: Mapping[str, Callable[[Mapping[str, Any]], int]] = field(default_factory=dict)

    _HELD_OUT_SEED: ClassVar[int] = 1_000_003

    def __post_init__(self) -> None:
        items: Any = self.items
        if not isinstance(items, (list, tuple)) or not items:
            raise SettingsError(f"contents are {items!r}; they are a list of weights and contents", hint=_FORM)
        for item in items:
            if not isinstance(item, (tuple, list)) or len(item) != 2 or not is_positive(item[0]):
                raise SettingsError(f"a content is {item!r}; it must be a positive weight and a content", hint=_FORM)
            if not (callable(item[1]) or isinstance(item[1], Mapping)):
                raise SettingsError(f"a content is {item[1]!r}", hint=_FORM)
        if type(self.held_out) is not int or self.held_out < 0:
            raise SettingsError(f"held_out is {self.held_out!r}; it must be a whole number of 0 or more")
        statistics: Any = self.statistics
        if not isinstance(statistics, Mapping) or not all(map(callable, statistics.values())):
            raise SettingsError(f"the statistics are {statistics!r}; they are functions of the arguments by name")

    @classmethod
    def of(cls, contents: Contents | Sequence[tuple[float, Any]]) -> Contents:
        """Contents as a caller gives them."""
        return contents if isinstance(contents, Contents) else cls(contents)

    @staticmethod
    def uniform(form: str = "ends") -> Draw:
        """Loads of groups where each row is as likely to belong to any."""
        return Draw("zipf", 0.0, form)

    @staticmethod
    def zipf(exponent: float, form: str = "ends") -> Draw:
        """Loads where the group of rank r has a share proportional to r to the minus `exponent`, in a random order."""
        return Draw("zipf", exponent, form)

    @staticmethod
    def dirichlet(concentration: float, form: str = "ends") -> Draw:
        """Loads whose shares are of a symmetric Dirichlet distribution; the smaller, the more uneven."""
        return Draw("dirichlet", concentration, form)

    @staticmethod
    def one_hot(share: float = 1.0, form: str = "ends") -> Draw:
        """Loads where one group has this share of the rows, and the others divide the rest."""
        return Draw("one_hot", share, form)

    @staticmethod
    def log_normal(sigma: float = 1.0, form: str = "offsets") -> Draw:
        """Sequences of log-normal lengths that fill the rows."""
        return Draw("log_normal", sigma, form)

    @staticmethod
    def bimodal(ratio: float = 8.0, form: str = "offsets") -> Draw:
        """Sequences that fill the rows, of which one in five is `ratio` times as long as the others."""
        return Draw("bimodal", ratio, form)

    @staticmethod
    def sparse(share: float) -> Draw:
        """The values of the tensor replaced, of which this share is zeros."""
        return Draw("sparse", share)

    @property
    def names(self) -> set[str]:
        """The arguments that contents replace, as far as they are named."""
        return {name for _, content in self.items if isinstance(content, Mapping) for name in content}

    def drawn(self, arguments: Mapping[str, Any], seed: int) -> Iterator[tuple[str, float, dict[str, Any]]]:
        """Label, weight and tensors by name of each content, then of the draws held out, of weight 0.

        Raises:
            SettingsError, ShapeMismatchError: The values of a content do not fit the arguments.
        """
        for weight, content in self.items:
            yield _label(content), float(weight), _values(content, arguments, seed)
        for turn in range(1, self.held_out + 1):
            for _, content in self.items:
                if callable(content) or any(map(callable, content.values())):
                    further = seed + turn * self._HELD_OUT_SEED
                    yield f"{_label(content)}, held out {turn}", 0.0, _values(content, arguments, further)

    def told(self, arguments: Mapping[str, Any]) -> dict[str, int]:
        """The statistics of arguments with a content."""
        return {name: int(function(arguments)) for name, function in self.statistics.items()}

    def value(self, units_ms: Sequence[float], times_ms: Sequence[float]) -> float:
        """What a config's times on each content count as, where those of the default are `units_ms`."""
        weights = [float(weight) for weight, _ in self.items]
        if not self.worst:
            return sum(w * t for w, t in zip(weights, times_ms, strict=False)) / sum(weights)
        counted = list(zip(units_ms, times_ms, weights, strict=False))
        return max(time / max(unit, 1e-9) for unit, time, _ in counted) * sum(unit for unit, _, _ in counted)


def _label(content: Any) -> str:
    if not isinstance(content, Mapping):
        return str(getattr(content, "__name__", content))
    parts = [f"{name} {value}" if isinstance(value, (Draw, str)) else name for name, value in content.items()]
    return ", ".join(parts) or "its own"


def _values(content: Any, arguments: Mapping[str, Any], seed: int) -> dict[str, Any]:
    values = content if isinstance(content, Mapping) else content(dict(arguments), seed)
    if not isinstance(values, Mapping):
        raise SettingsError(f"the maker {_label(content)} returned {values!r}", hint=_FORM)
    return {name: _fitting(name, value, arguments.get(name), seed) for name, value in values.items()}


def _fitting(name: str, value: Any, own: Any, seed: int) -> Any:
    """The tensor that stands in the place of an argument, which has its shape, dtype and layout."""
    if not hasattr(own, "data_ptr"):
        raise SettingsError(
            f"a content replaces {name}, which is no tensor argument",
            hint="another number makes another problem: tune each",
        )
    spec = replace(TensorSpec.of(own), fill="empty")
    made = value(own, seed) if callable(value) else value
    if isinstance(made, str) and made in get_args(Fill):
        total = int(own.flatten()[-1]) if made in ("ends", "offsets") else 0
        return replace(spec, fill=made, total=total).create_tensor(str(own.device), seed)
    if getattr(made, "shape", own.shape) != own.shape:
        raise ShapeMismatchError(
            f"the values of {name} are {tuple(made.shape)}, not {tuple(own.shape)}", own.shape, made.shape, name
        )
    tensor = spec.create_tensor(str(own.device))
    tensor.copy_(replace(spec, fill=made).own_values(own.device))
    return tensor
