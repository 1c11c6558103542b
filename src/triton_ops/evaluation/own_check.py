"""The caller's own comparison, `check(result, expected)`, in place of the rule for verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from triton_ops.backend import one_line
from triton_ops.evaluation.expected import kept
from triton_ops.evaluation.judges import Difference
from triton_ops.exceptions import TargetError

Check = Callable[[Any, Any], Any]


def refusal(check: Check, results: Sequence[Any], expected: Sequence[Any]) -> Difference | None:
    """The reason why a check does not accept some results; None if it does.

    The check is called with a result and the expected one; with tuples of them where there is not exactly one.

    Cost: a copy of both, since the check may write them.
    """
    try:
        answer = check(_one_or_all(results), _one_or_all(expected))
        truth = _truth(answer)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the caller's function may raise anything; it ends this trial only
        return Difference(f"the check raised {one_line(error)}")
    if truth is None:
        return Difference(f"the check returned a {type(answer).__name__}, not a bool")
    return None if truth else Difference("the check refuses the result")


def try_check(check: Check, expected: Sequence[Any]) -> None:
    """Call a check with the expected results as results, before anything is measured.

    Raises:
        TargetError: The check raises, returns no bool, or refuses the expected results themselves.
    """
    if (difference := refusal(check, expected, expected)) is not None:
        raise TargetError(
            f"{difference.text}, when it was given the expected result twice",
            hint="write check(result, expected) so that it returns True for a right result, and False for any other",
        )


def _truth(answer: Any) -> bool | None:
    """A bool, or what torch and NumPy have for one; None for anything else."""
    if isinstance(answer, bool):
        return answer
    one = getattr(answer, "shape", None) == () and "bool" in str(getattr(answer, "dtype", ""))
    return bool(answer) if one else None


def _one_or_all(values: Sequence[Any]) -> Any:
    copies = tuple(kept(value) for value in values)
    return copies[0] if len(copies) == 1 else copies
