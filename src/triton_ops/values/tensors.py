"""The form of a tensor argument.

Specs are pure Python, so that operations, records, keys and processes without torch can hold them. Torch is imported
only when a spec makes or checks a real tensor. Where torch is not installed, NumPy makes an array in its place.
"""

from __future__ import annotations

import io
import json
import math
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

from triton_ops.base import Host, NamedFile, available, require
from triton_ops.exceptions import DeviceError, KernelTypeError, SettingsError, ShapeMismatchError, UnsupportedDtypeError

Fill = Literal[
    "uniform", "positive", "outliers", "whole", "bits", "zeros", "empty", "arange", "shuffled", "ends", "offsets"
]
Values: TypeAlias = Any
"""Numbers in lists, an array, a tensor, the `Path` of a file of numbers, or a function of the shape."""

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
    "complex128": 16, "complex64": 8,
}  # fmt: skip
"""Bytes of an element. Shipped kernels with descriptors refer to it, so that it is part of what their records are
keyed by: another entry would make their shipped winners void."""
STORED_ALONE = ("float8_e8m0fnu", "float4_e2m1fn_x2")
"""Dtypes of one byte that torch only stores, and that Triton has not, up to 3.9."""
# NumPy and torch raise errors of several classes for want of memory, some of which have other causes too.
_NO_ROOM = "(?i)MemoryError|out of memory|allocate memory|overflow"
_OUTLIERS = 1e-3  # of the values
_OUTLIER = 10.0  # times as large
KNOWN_MULTIPLE = 16  # Triton specialises code on whether integers, strides and addresses are multiples of this
ALIGNMENT_BYTES = KNOWN_MULTIPLE
_SHORT = {
    "fp64": "float64", "f64": "float64", "double": "float64", "fp32": "float32", "f32": "float32", "float": "float32",
    "fp16": "float16", "f16": "float16", "half": "float16", "bf16": "bfloat16",
    "fp8": "float8_e4m3fn", "fp8e4m3": "float8_e4m3fn", "float8": "float8_e4m3fn", "fp8e5m2": "float8_e5m2",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8",
}  # fmt: skip


def dtype_name(dtype: Any) -> str:
    """The long name of a dtype: of a `torch.dtype`, a long name, or a short one such as `bf16` or `fp8`."""
    name = str(dtype).removeprefix("torch.").lower()
    name = _SHORT.get(name, name)
    if name not in ITEM_BYTES:
        raise UnsupportedDtypeError(
            f"dtype {dtype!r} is not known; known are {', '.join(ITEM_BYTES)}, and short forms such as bf16 and fp8",
            dtype,
            list(ITEM_BYTES),
            hint="use one of these names",
        )
    return name


def item_bytes(dtype: str) -> int:
    """Bytes of an element of a dtype that a spec may have."""
    return 1 if dtype in STORED_ALONE else ITEM_BYTES[dtype]


_STORED = re.compile(r"torch\.(float4\w+|u?int[1-7]|bits\w+)")


def as_stored(tensor: Any) -> Any:
    """A torch tensor, of a dtype that torch only stores, such as 4-bit floats, as the integers that hold its bits."""
    if _STORED.fullmatch(str(tensor.dtype)) is None:
        return tensor
    torch = require("torch", "reading tensors")
    return tensor.view(torch.int16 if tensor.dtype.itemsize == 2 else torch.uint8)


def contiguous_stride(shape: Iterable[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    stride, step = [], 1
    for extent in reversed(tuple(shape)):
        stride.append(step)
        step *= max(extent, 1)
    return tuple(reversed(stride))


def is_fake(value: Any) -> bool:
    """True if a value is one of the tensors without memory with which torch traces; told without importing torch."""
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    return fakes is not None and bool(fakes.is_fake(value))


def is_aligned(tensor: Any) -> bool:
    """Tell whether a torch tensor begins at a multiple of 16 bytes, as one of a trace does."""
    return is_fake(tensor) or bool(tensor.data_ptr() % ALIGNMENT_BYTES == 0)


def _whole(number: Any) -> int:
    """A whole number; one that notes what is asked of it stays as it is."""
    return number if isinstance(number, int) and not isinstance(number, bool) else operator.index(number)


@dataclass(frozen=True)
class TensorSpec:
    """The description of a tensor argument.

    Attributes:
        shape: Extents, each 0 or more.
        dtype: Long name, such as `bfloat16`; a `torch.dtype` or a short name is accepted and normalised.
        stride: Strides in elements, one per axis, none negative; None is row-major.
        fill: The values of a tensor made from this spec, by a word or as values. The words:
            `uniform` is in [-1, 1], both parts of complex numbers too; integers are 0 to 127.
            `positive` is in [0.5, 1.5], for what results are divided by.
            `outliers` is as uniform, but one float in a thousand is ten times as large. It finds sums and maxima that
            do not reach so far.
            `whole` has -1, 0 and 1 for floats, whose products add up without rounding; else it is as uniform.
            `bits` has any integers of the dtype: int8 has both signs, and a uint8 any pair of fp4; else as uniform.
            `zeros`, `empty` and `arange` are as in torch. Zeros draw less power and can run faster than real data, so
            they are never the default.
            `shuffled` has the numbers of `arange` in a random order, such as pages of a cache.
            `ends` has rising whole numbers, where runs of random lengths end that fill `total`; some runs are empty.
            `offsets` has 0, and then as `ends`.
            Values are numbers in lists, an array, a tensor, a function that is given the shape, or the `Path` of a
            file. Files are .npy, .npz, .pt, .safetensors and .json; a path ends in `#NAME` where a file holds several.
            Specs of different fills are equal: what a caller's tensors hold is not known, and a record answers for them
            all.
        aligned: Whether the data starts at a multiple of 16 bytes, as elements of 16 bytes always do; if not, compilers
            emit narrower loads.
        total: For the fills `ends` and `offsets` the last number, 0 or more.

    Raises:
        ShapeMismatchError: An extent, a stride or the total is negative, or their numbers differ.
        UnsupportedDtypeError: The dtype is not known.
        SettingsError: The fill is not known.
    """

    FILE: ClassVar[str] = r"(?P<file>.+\.(?P<kind>npy|npz|pt|pth|safetensors|json))(?:#(?P<name>.+))?"
    """The pattern of a name of a file of values."""

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...] | None = None
    fill: Fill | Values = field(default="uniform", compare=False)
    _: KW_ONLY
    aligned: bool = True
    total: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        shape = tuple(map(_whole, self.shape))
        object.__setattr__(self, "shape", shape)
        stored = str(self.dtype).removeprefix("torch.")
        object.__setattr__(self, "dtype", stored if stored in STORED_ALONE else dtype_name(self.dtype))
        if isinstance(self.fill, str) and self.fill not in get_args(Fill):
            hint = "or values: numbers in lists, a tensor, a Path, or a function of the shape"
            raise SettingsError(f"fill is {self.fill!r}; it must be one of {', '.join(get_args(Fill))}", hint=hint)
        object.__setattr__(self, "aligned", self.aligned or item_bytes(self.dtype) >= ALIGNMENT_BYTES)
        if self.total < 0:
            raise ShapeMismatchError(f"total is {self.total}; it must be 0 or more", "0 or more", self.total)
        if any(extent < 0 for extent in shape):
            raise ShapeMismatchError(f"shape {shape} has an extent below 0; each must be 0 or more", "0 or more", shape)
        if self.stride is None:
            return
        stride = tuple(map(_whole, self.stride))
        object.__setattr__(self, "stride", None if stride == contiguous_stride(shape) else stride)
        if len(stride) != len(shape) or any(step < 0 for step in stride):
            message = f"stride {stride} does not fit shape {shape}; it must have a step of 0 or more for each axis"
            raise ShapeMismatchError(message, shape, stride, hint="leave it out for a row-major tensor")

    @classmethod
    def of(cls, tensor: Any) -> TensorSpec:
        """The spec of a torch tensor.

        Raises:
            KernelTypeError: It is no tensor, or one without strides, such as a sparse one.
            UnsupportedDtypeError: It is quantised, or of a dtype that is not known.
        """
        TensorSpec.check_strided(tensor)
        return cls(tuple(tensor.shape), str(tensor.dtype), tuple(tensor.stride()), aligned=is_aligned(tensor))

    @classmethod
    def from_values(cls, values: Values, dtype: Any = None) -> TensorSpec:
        """The spec of a contiguous tensor with these values, as of `fill`, in their own shape.

        Args:
            values: Numbers in lists, an array, a tensor, or a `Path`.
            dtype: None takes that of the values, of whole numbers in lists int64.

        Raises:
            SettingsError: They are no numbers, a file cannot be read, or the dtype cannot hold them.
        """
        tensor = _read_values(_library("cpu"), values, None)
        spec = cls(tuple(tensor.shape), dtype or str(tensor.dtype), fill=tensor)
        spec.own_values(getattr(tensor, "device", "cpu"))
        return spec

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements, also where `stride` is None."""
        return contiguous_stride(self.shape) if self.stride is None else self.stride

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the elements; gaps between strides are not counted."""
        return self.numel * item_bytes(self.dtype)

    @property
    def copied_bytes(self) -> int:
        """Bytes that loads by pointers copy at once: those of an element where a stride is no multiple of 16 elements.

        Of other strides Triton's compiler knows nothing: in bfloat16 rows of 3,000 elements begin at multiples of 16
        bytes, which descriptors can use, and pointers cannot.
        """
        known = self.aligned and all(step == 1 or step % KNOWN_MULTIPLE == 0 for step in self.strides)
        return ALIGNMENT_BYTES if known else item_bytes(self.dtype)

    def __str__(self) -> str:
        layout = "" if self.stride is None else f" stride {'x'.join(map(str, self.stride))}"
        layout += "" if self.aligned else " misaligned"
        return f"{'x'.join(map(str, self.shape)) or 'scalar'} {self.dtype}{layout}"

    def validate(self, tensor: Any) -> bool:
        """True if a torch tensor has this shape, dtype and stride.

        Raises:
            KernelTypeError, UnsupportedDtypeError: As `TensorSpec.of`.
        """
        spec = TensorSpec.of(tensor)
        return (spec.shape, spec.dtype, spec.stride) == (self.shape, self.dtype, self.stride)

    def check(self, tensor: Any, name: str = "tensor", device: str | None = None) -> None:
        """Raise unless a torch tensor has this shape, dtype and stride, and is on `device` ("cuda" is any GPU).

        Raises:
            DeviceError, UnsupportedDtypeError, ShapeMismatchError: The tensor differs; checked in this order.
        """
        if device is not None and device not in (str(tensor.device), tensor.device.type):
            raise DeviceError(f"{name} is on {tensor.device}, not on {device}", device, str(tensor.device), name)
        spec = TensorSpec.of(tensor)
        if spec.dtype != self.dtype:
            raise UnsupportedDtypeError(f"{name} is {spec.dtype}, not {self.dtype}", spec.dtype, [self.dtype], name)
        if spec.shape != self.shape or spec.strides != self.strides:
            raise ShapeMismatchError(f"{name} is {spec}, not {self}", self.shape, spec.shape, name)

    def create_tensor(self, device: str = "cpu", seed: int = 0, fill_value: float | None = None) -> Any:
        """A new torch tensor of this spec; a NumPy array for a CPU where torch is not installed.

        Args:
            device: A torch device string.
            seed: Seed of the fills that draw values; the same seed gives the same values on the same device type.
            fill_value: A number to fill with, in place of the spec's `fill`.

        Raises:
            ShapeMismatchError: There is not so much memory.
            MissingDependencyError: NumPy lacks the dtype, and there is no torch.
            UnsupportedDtypeError: A `fill_value` is given, and the dtype is one of 4 bits.

        Cost: one allocation of the spanned bytes; a `uniform` fill of a 1-byte or 2-byte float draws in float32.
        """
        library = _library(device)
        try:
            self._check_room(device)
            return self._create(library, device, seed, fill_value)
        except (MemoryError, OverflowError, RuntimeError, TypeError) as error:
            if re.search(_NO_ROOM, f"{type(error).__name__}: {error}") is None:
                raise
            reason = next(iter(str(error).splitlines()), "no memory is left")
            message = f"a tensor of {self} cannot be made on {device}: {reason}"
            raise ShapeMismatchError(message, hint="take a smaller problem") from error

    @staticmethod
    def with_tensors(values: Mapping[str, Any], device: str, seed: int = 0) -> dict[str, Any]:
        """Arguments by name, with a new tensor on a device in the place of each spec."""
        return {
            name: value.create_tensor(device, seed + place) if isinstance(value, TensorSpec) else value
            for place, (name, value) in enumerate(values.items())
        }

    def _check_room(self, device: str) -> None:
        """Raise MemoryError if the host has less memory: it would give more than it has, and end processes later."""
        available = Host.available_bytes() if device == "cpu" else None
        plain = isinstance(self.fill, str) and self.fill in ("zeros", "empty")
        element_bytes = 0 if plain else max(4, item_bytes(self.dtype))  # of what is drawn, before it is converted
        needed = self._span * item_bytes(self.dtype) + self.numel * element_bytes
        if available is not None and needed > available:
            raise MemoryError(f"it takes {needed >> 20} MiB, and {available >> 20} MiB are free")

    def _create(self, library: Any, device: str, seed: int, fill_value: float | None) -> Any:
        if self.dtype.startswith("float4") and (fill_value is not None or isinstance(self.fill, str)):
            if fill_value is not None:
                message = f"a tensor of {self.dtype} cannot be filled with a number"
                hint = "fill its bits: tensor.view(torch.uint8)"
                raise UnsupportedDtypeError(message, self.dtype, ["uint8"], hint=hint)
            bits = replace(self, dtype="uint8", fill=self.fill if self.fill in _SET else "bits")
            return bits._create(library, device, seed, None).view(_dtype(library, self.dtype))
        room, tensor = self._empty(library, device)
        # Elements that share memory, as after `expand`, cannot be written one by one: the memory is filled instead.
        target = room if self._overlaps() else tensor
        if fill_value is not None:
            target[...] = fill_value
        elif not isinstance(self.fill, str):
            tensor[...] = self.own_values(device)
        elif self.fill != "empty":
            fits = "float" in self.dtype or self.fill not in _OF_FLOATS
            target[...] = _FILLS[self.fill if fits else "uniform"](_Draws.of(library, device, seed), target.shape, self)
        return tensor

    def own_values(self, device: Any) -> Any:
        """The values that `fill` has, of this shape and dtype, on a device."""
        library = _library(device)
        values, dtype = _read_values(library, self.fill, self.shape), _dtype(library, self.dtype)
        if tuple(values.shape) != self.shape:
            raise ShapeMismatchError(
                f"the values of a tensor of {self} have the shape {'x'.join(map(str, values.shape)) or 'of a scalar'}",
                self.shape, tuple(values.shape), hint="give as many values as the shape has elements",
            )  # fmt: skip
        converted = values.to(dtype) if hasattr(values, "to") else values.astype(dtype)
        if not ("float" in self.dtype or "complex" in self.dtype or bool((converted == values).all())):
            raise SettingsError(f"{self.dtype} cannot hold all values of a tensor of {self}", hint="take another dtype")
        return converted.to(device) if hasattr(converted, "to") else converted

    def _empty(self, library: Any, device: str) -> tuple[Any, Any]:
        """The memory as a tensor of one axis, and the tensor with this spec's shape and strides over it."""
        offset, dtype = 0 if self.aligned else 1, _dtype(library, self.dtype)
        if library.__name__ == "numpy":
            room = library.empty(offset + self._span, dtype)
            strides = [step * room.itemsize for step in self.strides]
            return room, library.lib.stride_tricks.as_strided(room[offset:], self.shape, strides)
        room = library.empty(offset + self._span, dtype=dtype, device=device)
        return room, room.as_strided(self.shape, self.strides, storage_offset=offset)

    @property
    def _span(self) -> int:
        """The elements from the first to the last in memory."""
        reach = sum((extent - 1) * step for extent, step in zip(self.shape, self.strides, strict=True))
        return 0 if self.numel == 0 else reach + 1

    def _overlaps(self) -> bool:
        """True if two elements may share memory; True may be wrong, False never is."""
        reach = 0
        for step, extent in sorted(zip(self.strides, self.shape, strict=True)):
            if extent > 1:
                if step <= reach:
                    return True
                reach += (extent - 1) * step
        return False

    @staticmethod
    def check_layout(tensor: Any, name: str = "a tensor") -> None:
        """Check that a torch tensor lies in memory with strides, and is neither sparse nor nested."""
        if not hasattr(tensor, "layout") or isinstance(tensor, type):
            hint = "make it one: torch.as_tensor(values)"
            raise KernelTypeError(f"{name} is a {type(tensor).__name__}, not a torch.Tensor", hint=hint)
        nested = getattr(tensor, "is_nested", False)  # what only describes a tensor does not say it
        if nested or str(tensor.layout) != "torch.strided":
            what = "nested" if nested else f"of layout {tensor.layout}"
            hint = "pass the tensors that it is made of, such as its values and its indices or offsets"
            raise KernelTypeError(f"{name} is {what}; a kernel is given memory with strides", hint=hint)

    @staticmethod
    def strides_error(tensor: Any, name: str, fault: str, hint: str) -> ShapeMismatchError:
        """The error of a torch tensor whose strides have a fault; it expects those of a contiguous one."""
        strides = tuple(tensor.stride())
        text = f"{name} {fault}: its strides are {strides}"
        return ShapeMismatchError(text, contiguous_stride(tensor.shape), strides, name, hint=hint)

    @staticmethod
    def check_strided(tensor: Any, name: str = "a tensor") -> None:
        """Check that a torch tensor is plain numbers in memory with strides, as kernels read and write them."""
        TensorSpec.check_layout(tensor, name)
        if getattr(tensor, "is_quantized", False):
            message = f"{name} is quantised, {tensor.dtype}; a kernel takes plain numbers"
            hint = "pass tensor.int_repr(), and its scale and zero point beside it"
            raise UnsupportedDtypeError(message, tensor.dtype, list(ITEM_BYTES), name, hint=hint)

    @staticmethod
    def check_memory(tensor: Any, name: str = "a tensor") -> None:
        """Check that a torch tensor has memory that a kernel can be launched on, and is neither fake nor on `meta`."""
        TensorSpec.check_strided(tensor, name)
        if tensor.device.type == "meta":
            message = f"{name} is on the device meta, which holds no numbers; nothing can run on it"
            hint = 'make it on a device with memory: torch.empty_like(tensor, device="cuda")'
            raise DeviceError(message, "cuda", "meta", name, hint=hint)
        if is_fake(tensor):
            raise KernelTypeError(
                f"{name} is a fake tensor, as torch traces with, and has no memory; nothing can run on it",
                hint="call it inside a torch.library.custom_op, which torch does not trace; "
                "a kernel by wrap_triton, too",
            )


def _library(device: Any) -> Any:
    """The module that makes values for a device: torch; NumPy for a CPU where torch is not installed."""
    return require("torch" if available("torch") or str(device) != "cpu" else "numpy", "making tensors")


def _dtype(library: Any, name: str) -> Any:
    """A dtype of torch or of NumPy by its long name; a `MissingDependencyError` for one that needs torch."""
    if library.__name__ == "numpy" and not hasattr(library, name) and name != "bool":
        require("torch", f"numbers of {name}, which NumPy lacks")
    return library.dtype(name) if library.__name__ == "numpy" else getattr(library, name)


class _Draws(NamedTuple):
    """Functions of torch or of NumPy that make numbers: random ones of a seed, and those from 0 on."""

    library: Any
    shares: Callable[..., Any]  # of a shape and a dtype: from 0 to 1
    whole: Callable[..., Any]  # of the least, of the one above the largest, and of a shape
    shuffled: Callable[..., Any]
    counted: Callable[..., Any]

    @classmethod
    def of(cls, library: Any, device: str, seed: int) -> _Draws:
        if library.__name__ == "numpy":
            rng = library.random.default_rng(seed)
            return cls(library, rng.random, rng.integers, rng.permutation, library.arange)
        where = "cpu" if device == "meta" else device  # torch has no generators for the device meta
        place = {"device": device, "generator": library.Generator(device=where).manual_seed(seed)}

        def shares(shape: tuple[int, ...], dtype: str) -> Any:
            return library.rand(shape, dtype=getattr(library, dtype), **place)

        whole, shuffled = partial(library.randint, **place), partial(library.randperm, **place)
        return cls(library, shares, whole, shuffled, partial(library.arange, device=device))


def _with_outliers(draws: _Draws, shape: tuple[int, ...], spec: TensorSpec) -> Any:
    values = _uniform(draws, shape, spec)
    return draws.library.where(draws.shares(shape, "float32") < _OUTLIERS, _OUTLIER * values, values)


def _ends(draws: _Draws, shape: tuple[int, ...], spec: TensorSpec) -> Any:
    """Shares of a total that vary by chance, and of which one in eight is nothing; of `offsets` the first is 0."""
    shares = draws.library.clip(draws.shares(shape, "float64") - 0.125, 0.0, None).reshape(-1) + 1e-9
    shares[: spec.fill == "offsets"] = 0
    upto = shares.cumsum(0)
    return draws.library.round(upto / draws.library.clip(upto[-1:], 1e-9, None) * spec.total).reshape(shape)


def _bits(draws: _Draws, shape: tuple[int, ...], spec: TensorSpec) -> Any:
    if "int" not in spec.dtype:
        return _uniform(draws, shape, spec)
    info = draws.library.iinfo(_dtype(draws.library, spec.dtype))
    return draws.whole(info.min, min(info.max, (1 << 63) - 2) + 1, shape)  # torch takes the bound as an int64


def _uniform(draws: _Draws, shape: tuple[int, ...], spec: TensorSpec) -> Any:
    if spec.dtype == "bool":
        return draws.shares(shape, "float32") < 0.5
    if "int" in spec.dtype:
        return draws.whole(0, 128, shape)
    values = draws.shares(shape, "float64" if spec.dtype in ("float64", "complex128") else "float32")
    values *= 2
    values -= 1
    return values + 1j * _uniform(draws, shape, replace(spec, dtype="float64")) if "complex" in spec.dtype else values


_OF_FLOATS = ("outliers", "whole")  # other dtypes are drawn as `uniform`
_SET = ("zeros", "empty", "arange")  # not drawn
_FILLS: dict[str, Any] = {
    "uniform": _uniform, "outliers": _with_outliers, "bits": _bits, "ends": _ends, "offsets": _ends,
    "whole": lambda draws, shape, _: draws.whole(-1, 2, shape),
    "positive": lambda draws, shape, spec: _uniform(draws, shape, spec) / 2 + 1,
    "shuffled": lambda draws, shape, _: draws.shuffled(math.prod(shape)).reshape(shape),
    "arange": lambda draws, shape, _: draws.counted(math.prod(shape)).reshape(shape), "zeros": lambda *_: 0,
}  # fmt: skip
_LARGEST_FILE = 1 << 30
_SAFETENSORS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64",
    "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


def _read_values(library: Any, source: Values, shape: tuple[int, ...] | None) -> Any:
    """Values as a tensor; a function among them is given the shape."""
    if callable(source):
        if shape is None:
            message = "the shape of a function's values is not known"
            raise SettingsError(message, hint="TensorSpec(shape, fill=function)")
        source = source(shape)
    try:
        content = _content(library, source) if isinstance(source, Path) else source
        return library.as_tensor(content) if library.__name__ == "torch" else _as_array(library, content)
    except OSError as error:
        raise SettingsError(f"{source} cannot be read: {error.strerror or error}", hint="check the path") from error
    except Exception as error:  # whatever a reader of torch or NumPy raises for a file, or torch for a text
        what = f"{source} holds" if isinstance(source, Path) else f"{str(source)[:80]} is"
        reason = str(error).partition("\n")[0]
        message = f"{what} no values of a tensor: {reason}"
        raise SettingsError(message, hint="give numbers in lists of equal length, or a tensor") from error


def _as_array(numpy: Any, content: Any) -> Any:
    values = numpy.asarray(content)
    if values.dtype.kind not in "biufc":
        raise ValueError(f"they are {values.dtype}, and no numbers")
    return values


def _content(library: Any, path: Path) -> Any:
    """The values in a file, by the ending of its name; of several with names those named after a `#`."""
    match = re.fullmatch(TensorSpec.FILE, str(path))  # a name in it may have a slash
    if match is None:
        raise ValueError("the name of a file of values ends in .npy, .npz, .pt, .safetensors or .json")
    content = NamedFile(Path(match["file"])).read(_LARGEST_FILE)
    # a file is data: neither reader loads pickled objects, which could run code
    if match["kind"] in ("npy", "npz"):
        return _named_in(require("numpy", path.name).load(io.BytesIO(content), allow_pickle=False), match["name"])
    if match["kind"] in ("pt", "pth"):
        torch = require("torch", f"reading {path.name}")
        return _named_in(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True), match["name"])
    if match["kind"] == "json":
        return _named_in(json.loads(content), match["name"])
    # .safetensors: the length of a description in JSON, in 8 bytes, the description, and the elements
    begin = 8 + int.from_bytes(content[:8], "little")
    heads = {name: head for name, head in json.loads(content[8:begin]).items() if name != "__metadata__"}
    head = _named_in(heads, match["name"])
    elements = bytearray(memoryview(content)[begin:][slice(*head["data_offsets"])])
    return library.frombuffer(elements, dtype=_dtype(library, _SAFETENSORS[head["dtype"]])).reshape(head["shape"])


def _named_in(content: Any, name: str | None) -> Any:
    """What a file holds under a name, or alone."""
    if not isinstance(content, Mapping):
        if name is None:
            return content
        raise ValueError(f"it holds one tensor, and none named {name!r}")
    if name is None and len(content) == 1:
        return next(iter(content.values()))
    if name not in content:
        raise ValueError(f"it holds {', '.join(content)}; name one after a #, such as FILE#{next(iter(content), 'x')}")
    return content[name]
