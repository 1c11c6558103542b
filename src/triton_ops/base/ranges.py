"""Types of numbers and facts in files, each with the range in which it is believed. They are checked when read.

JSON has no infinite numbers, so that a float that was read is finite.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]  # every JSON reader has these
Extent: TypeAlias = Annotated[int, Meta(ge=0, le=2**62)]

Plain: TypeAlias = bool | int | float | str | None
Flat: TypeAlias = bool | int | float | str | list[Plain] | dict[str, Plain] | None
Nested: TypeAlias = bool | int | float | str | list[Flat] | dict[str, Flat] | None
"""A fact in clear, nested two deep at most: what is nested without limit could not be walked."""
