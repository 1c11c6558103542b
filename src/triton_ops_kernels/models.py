"""The inputs of the documented kernels as specs.

An input spec describes the arguments of a kernel before any tensor exists; torch is imported only to make the tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any

from triton_ops.device import probe
from triton_ops.values import TensorSpec
from triton_ops_kernels import validate_head_dim, validate_positive_dimensions


class _Inputs:
    def create_tensors(self, device: str = "cuda", seed: int = 0) -> dict[str, Any]:
        """New torch tensors by name, uniform in [-1, 1]; the same seed gives the same values on a device type.

        Raises:
            DeviceError: There is no such GPU.
        """
        if str(device).startswith("cuda"):
            probe(str(device))  # torch says of a build without CUDA that an assertion failed
        specs: Any = self  # each has its own seed, so that two weights of one shape are not equal
        return {
            field.name: getattr(self, field.name).create_tensor(device, seed + position)
            for position, field in enumerate(fields(specs))
        }


@dataclass(frozen=True)
class RMSNormRoPEInput(_Inputs):
    """The tensor arguments of `fused_rmsnorm_rope`.

    Attributes:
        x: [batch_size, seq_len, hidden_dim].
        weight: [hidden_dim].
        cos: [seq_len, head_dim].
        sin: [seq_len, head_dim].
    """

    x: TensorSpec
    weight: TensorSpec
    cos: TensorSpec
    sin: TensorSpec

    @classmethod
    def from_shapes(
        cls, batch_size: int, seq_len: int, hidden_dim: int, head_dim: int, dtype: str = "float16"
    ) -> RMSNormRoPEInput:
        """The inputs of these extents, all of one dtype.

        Raises:
            ShapeMismatchError: An extent is no whole number from 1, `head_dim` is odd, or `hidden_dim` is no multiple
                of it.
            UnsupportedDtypeError: The dtype is not known.
        """
        _check_extents(batch_size=batch_size, seq_len=seq_len, hidden_dim=hidden_dim, head_dim=head_dim)
        validate_head_dim(int(head_dim), int(hidden_dim))
        table = TensorSpec((seq_len, head_dim), dtype)
        return cls(TensorSpec((batch_size, seq_len, hidden_dim), dtype), TensorSpec((hidden_dim,), dtype), table, table)


@dataclass(frozen=True)
class GatedMLPInput(_Inputs):
    """The tensor arguments of `fused_gated_mlp`.

    Attributes:
        x: [batch_size, seq_len, hidden_dim].
        gate_weight: [intermediate_dim, hidden_dim].
        up_weight: [intermediate_dim, hidden_dim].
    """

    x: TensorSpec
    gate_weight: TensorSpec
    up_weight: TensorSpec

    @classmethod
    def from_shapes(
        cls, batch_size: int, seq_len: int, hidden_dim: int, intermediate_dim: int, dtype: str = "float16"
    ) -> GatedMLPInput:
        """The inputs of these extents, all of one dtype.

        Raises:
            ShapeMismatchError: An extent is no whole number from 1.
            UnsupportedDtypeError: The dtype is not known.
        """
        _check_extents(batch_size=batch_size, seq_len=seq_len, hidden_dim=hidden_dim, intermediate_dim=intermediate_dim)
        weight = TensorSpec((intermediate_dim, hidden_dim), dtype)
        return cls(TensorSpec((batch_size, seq_len, hidden_dim), dtype), weight, weight)


@dataclass(frozen=True)
class FP8GEMMInput(_Inputs):
    """The tensor arguments of `fp8_gemm`.

    Attributes:
        a: [M, K].
        b: [K, N].
        a_scale: float32 scalar; a stored value of `a` is its real value times `a_scale`.
        b_scale: float32 scalar; a stored value of `b` is its real value times `b_scale`.
    """

    a: TensorSpec
    b: TensorSpec
    a_scale: TensorSpec
    b_scale: TensorSpec

    @classmethod
    def from_shapes(cls, M: int, N: int, K: int, dtype: str = "float8_e4m3fn") -> FP8GEMMInput:
        """The inputs of a product [M, N] over K, the matrices of one dtype.

        Raises:
            ShapeMismatchError: An extent is no whole number from 1.
            UnsupportedDtypeError: The dtype is not known.
        """
        _check_extents(M=M, N=N, K=K)
        scale = TensorSpec((), "float32")
        return cls(TensorSpec((M, K), dtype), TensorSpec((K, N), dtype), scale, scale)

    def create_tensors(self, device: str = "cuda", seed: int = 0) -> dict[str, Any]:
        """New torch tensors by name: matrices uniform in [-1, 1], and scales of 1.

        Raises:
            DeviceError: There is no such GPU.
        """
        tensors = super().create_tensors(device, seed)
        return {**tensors, **{name: tensors[name].fill_(1.0) for name in ("a_scale", "b_scale")}}


def _check_extents(**extents: Any) -> None:
    """Check that extents are whole numbers of 1 or more; those of NumPy are."""
    whole = {name for name, extent in extents.items() if not isinstance(extent, bool) and isinstance(extent, Integral)}
    validate_positive_dimensions(**{name: int(it) if name in whole else it for name, it in extents.items()})
