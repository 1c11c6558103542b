"""New values of inputs around samples of callables on the host's clock, so that nobody wins by results that are kept.

One in some dozens of the floats in each tensor and array is made smaller by a quarter, others each time, so that those
few by which a callable may find what it has kept mostly stay as they were. After the sample every value is the old one
again: all other checks are on the inputs as they were made. Integers, and numbers elsewhere, stay.

The last result of such a sample is looked at. Whoever gives the same bits on two contents is wrong if the reference or
another contestant gives clearly different results there; the reference may itself keep results. Nobody is wrong by new
values alone: what a caller gave by hand, such as a matrix with an inverse, need not be valid after a change.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from triton_ops.backend import Arguments, CandidateError, Protection
from triton_ops.evaluation.expected import kept, leaf_pairs, same_bits
from triton_ops.evaluation.numbers import dtype_name, is_numbers
from triton_ops.evaluation.reference_results import ReferenceResults
from triton_ops.values import Status

_STEPS = (0, 53, 31, 47)  # one float in so many is renewed, of 0 none; primes, which are no extents of tiles
_FACTOR = 0.75  # changes no sign, and leaves zeros and infinities as they are
_FIRST = 3  # samples of each launch that are renewed
_REST = 30.0  # times what it costs to renew a sample and to look at it, for each contestant, until the next one is due
_LOOKED_AT = 1 << 10  # elements of a result, or up to twice as many
_PLAIN = ("Tensor", "Parameter", "ndarray")  # what subclasses hold is up to them


class Renewal:
    """Renews the inputs of contestants on equal arguments, and looks at their results.

    `faults` gets the fault of each contestant that is found wrong, by its name.
    """

    def __init__(self, arguments: Arguments, reference: Callable[..., Any] | None, faults: dict[str, str]) -> None:
        self._arguments, self._reference, self._faults = arguments, reference, faults
        self._dtypes = [dtype_name(each.dtype) for each in _floats(arguments)]
        self._samples: dict[str, dict[int, list[Any]]] = {}  # by contestant and content
        self._answers: dict[int, list[Any]] = {}  # the reference's
        self._due: dict[str, float] = {}  # infinite for contestants that raise on new values, or give no numbers
        self._raised: dict[str, tuple[int, Exception | None]] = {}  # with which content a sample is taken again

    @contextmanager
    def around(
        self, name: str, arguments: Arguments, numbers: Iterator[int]
    ) -> Iterator[Callable[[Any], object] | None]:
        """The context of a sample of a contestant, of the next of its launch's `numbers`.

        Inside, the arguments, which equal the first ones, have new values, and what is yielded takes the last result;
        None where they are as they were. It raises a `CandidateError` if the contestant is wrong. An error that the
        contestant raises on new values ends quietly; if it does so twice, its inputs are never renewed again.
        """
        number, due, sample = next(numbers), self._due.get(name, 0.0), list[Any]()
        if time.perf_counter() < due and name not in self._raised and (number >= _FIRST or due == math.inf):
            yield None
            return
        content, error = self._raised.pop(name, (number % len(_STEPS), None))
        marks_s = [time.thread_time()]  # of this thread alone, since on a busy machine others run meanwhile

        def look(result: Any) -> None:
            marks_s.append(time.thread_time())
            with suppress(Exception):  # of a type that has no elements in an order, such as a sparse tensor
                sample.extend(_sample(result))

        with _renewed(arguments, content):
            marks_s.append(time.thread_time())
            try:
                yield look
            except Exception as raised:
                if not content:
                    raise
                if error is None:
                    self._raised[name] = content, raised
                sample.clear()
        if error is not None and sample:
            raise error  # it raises by chance, and not because of the values
        if name not in self._raised:
            self._judge(name, content, sample)
            cost_s = marks_s[1] - marks_s[0] + time.thread_time() - marks_s[-1]
            rest_s = _REST * len(self._samples) * cost_s if sample else math.inf
            self._due[name] = time.perf_counter() + rest_s

    def _judge(self, name: str, content: int, sample: list[Any]) -> None:
        own = self._samples.setdefault(name, {})
        for other in [each for each in own if each != content and sample and same_bits(own[each], sample)]:
            for judge, results in self._judges(name, content, other).items():
                one, two = results.get(content), results.get(other)
                if one and two and self._differ(one, two):
                    fault = f"on new values of the inputs it gives the results of old ones, which {judge} does not do"
                    self._faults[name] = fault
                    raise CandidateError(Status.WRONG, fault)
        own[content] = sample

    def _differ(self, one: list[Any], two: list[Any]) -> bool:
        return not same_bits(one, two) and bool(ReferenceResults.of_own(one, self._dtypes, None).fault(two))

    def _judges(self, name: str, *contents: int) -> Mapping[str, Mapping[int, list[Any]]]:
        """The results of the reference on some contents, and those of the other contestants on all."""
        unknown = set(contents) - self._answers.keys()
        for reference, content in [(self._reference, content) for content in unknown if self._reference]:
            with _renewed(self._arguments, content):
                own = Protection.private_copy(self._arguments)
            self._answers[content] = []
            with suppress(Exception):  # of the user's function, which need not take other values than it was given
                self._answers[content] = _sample(reference(*own.positional, **own.keyword))
        others = {other: results for other, results in self._samples.items() if other != name}
        return {"the reference": self._answers, **others}


@contextmanager
def _renewed(arguments: Arguments, content: int) -> Iterator[None]:
    """Inside, some floats of the arguments are smaller."""
    parts = [_part(each, _STEPS[content]) for each in _floats(arguments)] if content else []
    old = [kept(part) for part in parts]
    try:
        for part, values in zip(parts, old, strict=True):
            part[...] = values * _FACTOR
        yield
    finally:
        for part, values in zip(parts, old, strict=True):
            part[...] = values


def _part(values: Any, step: int) -> Any:
    """A view of some of the numbers in the order in which they lie in memory; a copy where they have no such order."""
    flat = values.as_strided((values.numel(),), (1,)) if Arguments.is_tensor(values) else values.ravel("K")
    return flat[step // 2 % len(flat) :: step]


def _floats(arguments: Arguments) -> list[Any]:
    """The tensors and arrays of floats or complex numbers of 16 bits or more that can be written."""
    arrays = Protection.host_values((*arguments.positional, *arguments.keyword.values()))
    plain = [each for each in (*arguments.tensors(), *arrays) if type(each).__name__ in _PLAIN and 0 not in each.shape]
    floats = [each for each in plain if dtype_name(each.dtype).startswith(("float", "bfloat", "complex"))]
    wide = [each for each in floats if each.dtype.itemsize > 1]
    tensors = [each.detach() for each in wide if Arguments.is_tensor(each) and 0 not in each.stride()]
    return [*tensors, *(each for each in wide if not Arguments.is_tensor(each) and each.flags.writeable)]


def _sample(result: Any) -> list[Any]:
    """Copies of some elements of each result that is made of numbers."""
    leaves = [leaf for leaf, _ in leaf_pairs(result, None)]
    numbers = [leaf.reshape(-1)[:: math.prod(leaf.shape) // _LOOKED_AT | 1] for leaf in filter(is_numbers, leaves)]
    return [*map(kept, numbers), *(leaf for leaf in leaves if isinstance(leaf, (int, float, complex)))]
