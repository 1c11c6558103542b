"""Config spaces that are typed, with checks of their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from triton_ops.exceptions import EmptySpaceError
from triton_ops.space import Config, ConfigSpace
from triton_ops.terminal import tell

TargetName = Annotated[
    str, typer.Argument(metavar="TARGET", help="A shipped kernel, module:object, or file.py:object.")
]
ConfigValues = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="NAME=V",
        help="Values of tunables; repeat it, or NAME=V,NAME=V. The rest as in the default.",
    ),
]
Gpu = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="A model that is not here, such as 'NVIDIA H200'.")
]


def check_filled(space: ConfigSpace, values: Mapping[str, Any] | None) -> None:
    """Raise if the space with these values has no valid config, and name a value that is refused alone.

    Raises:
        EmptySpaceError: There is none.
    """
    try:
        space.first_config()
    except EmptySpaceError as error:
        default = space.default or Config()
        for name in values or {}:
            config = Config({**default, name: space.tunables[name].values[0]})
            if set(config) == set(space.tunables) and (rules := space.broken(config)):
                reason = rules[0].explain(config)
                raise EmptySpaceError(
                    f"no config is valid; {name}={config[name]}: {reason}", hint=error.hint
                ) from error
        raise


def tell_left_out(space: ConfigSpace, values: Mapping[str, Any] | None, configs: Sequence[Config]) -> None:
    """Tell which of the values none of the valid configs has, and which rule refuses the first one with it."""
    for name in values or {}:
        valid = {repr(config[name]) for config in configs}
        for value in space.tunables[name].values:
            if repr(value) not in valid:
                reason = space.why_not(Config({**configs[0], name: value}))
                tell(f"no valid config has {name}={value}: {reason or 'the rules of the space leave none'}")
