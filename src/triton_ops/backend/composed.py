"""What a kernel that is made of several Triton kernels says by the one that leads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias, TypeVar

from triton_ops.backend.triton import TritonKernel

_K = TypeVar("_K", bound="ComposedKernel")


class ComposedKernel(ABC):
    """Several Triton kernels as one: records and arguments know it by the one that leads."""

    @property
    @abstractmethod
    def _leading(self) -> Single:
        """The kernel that names this one, and has a parameter for every argument."""

    @property
    def name(self) -> str:
        """That of the leading kernel."""
        return self._leading.name

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the arguments that a launch of any config writes."""
        return self._leading.outputs

    @property
    def interpreted(self) -> bool:
        """Whether the leading kernel runs as Python, as under `TRITON_INTERPRET`."""
        return self._leading.interpreted

    @property
    def parameter_names(self) -> list[str]:
        """Those of the leading kernel, in calling order."""
        return self._leading.parameter_names

    @property
    def process_imports(self) -> tuple[str, ...]:
        """Those of the leading kernel: all are Triton's."""
        return self._leading.process_imports

    @property
    def compiled_ahead(self: _K) -> _K | None:
        """This kernel; None if it is interpreted."""
        return None if self.interpreted else self


Single: TypeAlias = TritonKernel | ComposedKernel
