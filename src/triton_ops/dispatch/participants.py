"""Implementations that take part in a choice, each with the config of its own operation, and why others do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_ops.backend import Arguments, one_line
from triton_ops.dispatch.choice_kernel import IMPLEMENTATION, ChoiceKernel
from triton_ops.dispatch.implementation import Implementation, in_order
from triton_ops.dispatch.operations import answered
from triton_ops.dispatch.sources import ladder_of
from triton_ops.dispatch.space import ChoiceSpace
from triton_ops.exceptions import TritonKernelError, TuningFailedError
from triton_ops.request import make_request
from triton_ops.space import Config
from triton_ops.tuner import uninterrupted
from triton_ops.values import TuningResult

TilesOf = Callable[[Implementation, Mapping[str, Any]], Config]
"""From an implementation with an operation, and its kernel's arguments by name, to the config that takes part."""


@dataclass(frozen=True)
class Participants:
    """The implementations of a kernel as participants.

    Attributes:
        kernel: The kernel.
    """

    kernel: ChoiceKernel

    def known(self, arguments: Arguments, records: bool, folder: str | Path | None) -> ChoiceSpace:
        """The space of a call, with the configs that the ladder answers for operations; nothing is tuned.

        Args:
            arguments: The arguments of the call; tensors may be described ones.
            records: Whether a gradient is recorded.
            folder: Folder of records; None as for `tune`.

        Raises:
            TuningFailedError: No implementation applies.
        """

        def tiles(implementation: Implementation, values: Mapping[str, Any]) -> Config:
            assert implementation.operation is not None
            request = make_request(implementation.operation, kwargs=values)
            return answered(implementation.operation, request, None, ladder_of(folder), near=True).found.config

        return self._space(arguments, records, tiles)

    def raced(
        self, arguments: Arguments, records: bool, tune: Callable[..., TuningResult], options: Mapping[str, Any]
    ) -> ChoiceSpace:
        """The space of a tune: operations are tuned first, with the options of the tune, or their records are used.

        Raises:
            TuningFailedError: No implementation applies.
        """

        def tiles(implementation: Implementation, values: Mapping[str, Any]) -> Config:
            return Config(uninterrupted(tune(implementation.operation, kwargs=values, **options)).best_config)

        return self._space(arguments, records, tiles)

    def _space(self, arguments: Arguments, records: bool, tiles_of: TilesOf) -> ChoiceSpace:
        placed, every = in_order(self.kernel.parameters, arguments), self.kernel.implementations
        taking: dict[str, Config] = {}
        refusals: dict[str, str] = {}
        for name, implementation in every.items():
            why = implementation.why_not(placed)
            if why is None and records and not implementation.gradient:
                why = "a gradient is recorded, and it has none"
            if why is None and implementation.operation is not None:
                answer = _asked(implementation, placed, tiles_of)
                taking, why = (taking | {name: answer}, None) if isinstance(answer, Config) else (taking, answer)
            elif why is None:
                taking[name] = Config()
            if why is not None:
                refusals[name] = why
        if not taking:
            raise self._nothing(refusals)
        tiled = any(each.operation is not None for each in every.values())
        return ChoiceSpace.of(
            taking, refusals, lambda name, tiles: self._why_no_tiles(placed, name, tiles), tiled=tiled
        )

    def _why_no_tiles(self, placed: Arguments, name: str, tiles: Config) -> str | None:
        implementation = self.kernel.implementations[name]
        if implementation.operation is None:
            return f"{name} has no operation that could take ({tiles})" if tiles else None
        request = make_request(implementation.operation, kwargs=implementation.operation_values(placed))
        return implementation.operation.space_for(request.problem).why_not(tiles)

    def _nothing(self, refusals: Mapping[str, str]) -> TuningFailedError:
        reasons = "; ".join(f"{name}: {why}" for name, why in refusals.items())
        failures = [({IMPLEMENTATION: name}, f"constraint: {why}") for name, why in refusals.items()]
        return TuningFailedError(
            f"no implementation of {self.kernel.name} applies: {reasons}", self.kernel.name, 0, reasons, failures,
            hint="register one that applies to everything",
        )  # fmt: skip


def _asked(implementation: Implementation, placed: Arguments, tiles_of: TilesOf) -> Config | str:
    """The config of an implementation's operation; a text if there is none, with the reason."""
    try:
        return tiles_of(implementation, implementation.operation_values(placed))
    except TritonKernelError as error:
        return f"its operation cannot be used: {error.message.partition(chr(10))[0]}"
    except Exception as error:  # noqa: BLE001 - the user's `values`
        return f"its `values` raised {one_line(error)}"
