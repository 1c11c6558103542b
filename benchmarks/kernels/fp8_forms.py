"""The product of 8-bit floats with a tunable for its form: the shipped Triton kernel, or the one in Gluon.

The space is the shipped one, whose configs are the form `triton`, and the Gluon form's own beside it. It is an
operation of its own: the shipped space and its winners stay as they are until a measurement says otherwise.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from benchmarks.kernels.gluon_fp8 import gluon_fp8
from triton_ops import ConfigSpace, Constraint
from triton_ops.backend import FormsKernel
from triton_ops.kernels.fp8_gemm import operation
from triton_ops.kernels.tiles import describable
from triton_ops.problem import Problem
from triton_ops.space import Choice, Config, Flag

FORMS = ("triton", "gluon")
BUFFERS = (0, 3, 4, 5, 6)
_GLUON_TILES = ((128, 256, 128), (128, 128, 128))
_NEUTRAL = {
    "LOADS": "host", "SWAPPED": False, "PROGRAMS": 1, "PROMOTE": 0, "HALVES": False, "SUMS": 2, "AHEAD": False,
    "num_warps": 4, "num_stages": 4,
}  # fmt: skip


def space(problem: Problem) -> ConfigSpace:
    """The shipped space with the form, and the configs of the Gluon form where it can compute the problem."""
    shipped = operation.space_for(problem)
    whole = _gluon_takes(problem)
    rules = tuple(_of_triton(rule) for rule in shipped.constraints)
    return ConfigSpace(
        {"FORM": Choice(FORMS), "BUFFERS": Choice(BUFFERS), "EARLY": Flag(), "APART": Flag(), **shipped.tunables},
        (
            *rules,
            Constraint(
                "gluon", lambda FORM: FORM == "triton" or whole,
                "the Gluon form promotes its sums, has no scales by block and no bias, and stores by descriptors",
            ),
            Constraint(
                "buffers", lambda FORM, BUFFERS: (BUFFERS > 0) == (FORM == "gluon"),
                "{BUFFERS} buffers are for the Gluon form, which has stages of its own",
            ),
            Constraint(
                "groups", lambda FORM, EARLY, APART: FORM == "gluon" or not (EARLY or APART),
                "the Gluon form alone reads scales early, or has groups that begin apart",
            ),
            Constraint(
                "gluon_tile",
                lambda FORM, BLOCK_M, BLOCK_N, BLOCK_K: FORM == "triton" or (BLOCK_M, BLOCK_N, BLOCK_K) in _GLUON_TILES,
                "{BLOCK_M} by {BLOCK_N} in steps of {BLOCK_K}: the Gluon form has 128 by 128 or 256, in steps of 128",
            ),
            *(_neutral(name, value) for name, value in _NEUTRAL.items()),
        ),
        Config(shipped.default_config, FORM="triton", BUFFERS=0, EARLY=False, APART=False),
    )  # fmt: skip


def _gluon_takes(problem: Problem) -> bool:
    specs = problem.specs
    plain = not (problem["BLOCKED"] or problem["FAST"]) and dict(problem.arguments).get("bias") is None
    return plain and min(specs["c"].shape) > 0 and describable(specs["c"]) and problem["C_DESCRIBED"]


def _of_triton(rule: Constraint) -> Constraint:
    """A rule of the shipped space, for its own form."""
    return Constraint(
        rule.name, _of(lambda FORM, **values: FORM != "triton" or rule.predicate(**values), rule.names), rule.reason
    )


def _neutral(name: str, value: object) -> Constraint:
    """The Gluon form has no such tunable, and so one value of it."""
    return Constraint(
        f"gluon_{name.lower()}", _of(lambda FORM, **values: FORM == "triton" or values[name] == value, (name,)),
        f"the Gluon form has no {name}",
    )  # fmt: skip


def _of(predicate: Callable[..., bool], names: Iterable[str]) -> Callable[..., bool]:
    """The predicate, which says that its parameters are FORM and these."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    told: Any = predicate
    told.__signature__ = inspect.Signature([inspect.Parameter(name, keyword) for name in ("FORM", *names)])
    return predicate


fp8_forms = replace(
    operation,
    name="fp8_forms",
    kernel=FormsKernel({"triton": operation.kernel, "gluon": gluon_fp8.kernel}),
    space=space,
)
