"""A script of functions that work as their Python originals do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from triton_ops._files import read_file
from triton_ops.simulator.script.sources import definition_of, needed, root_of
from triton_ops.simulator.script.statements import definition_script

_LARGEST_BYTES = 1 << 20


def script_of(roots: Mapping[str, Callable[..., Any] | type], name: str) -> str:
    """JavaScript that defines one object, whose members are functions and classes translated from Python.

    Arguments are given by position. Dicts become objects, lists and tuples arrays, None null, and dataclasses classes
    whose constructors take the fields in order.

    Args:
        roots: Functions and classes of this package by the names of the object's members; what they use comes with
            them.
        name: Name of the object.

    Raises:
        UntranslatableError: Some of the code has a form that is not translated.

    Cost: a tenth of a second.
    """
    found = needed([root_of(root) for root in roots.values()])
    runtime = read_file(Path(__file__).with_name("runtime.js"), _LARGEST_BYTES).decode()
    members = ", ".join(f"{member}: {_script_name(root)}" for member, root in roots.items())
    parts = [runtime, *(definition_script(one, found) for one in found), f"return {{ {members} }};"]
    body = "\n".join(parts)
    return f'const {name} = (() => {{\n"use strict";\n{body}\n}})();\n'


def _script_name(root: Callable[..., Any] | type) -> str:
    found = definition_of(*root_of(root))
    assert not isinstance(found, str)
    return found.script_name
