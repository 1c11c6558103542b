"""Whether what contestants return and write is right, before they are timed and once more afterwards.

What is right says a reference, else the first contestant; either is asked in higher precision too, as in a tune. A
contestant must change the same inputs as the first one, and to the same values. Every contestant is called on arguments
of its own, twice before the times and once after them, since some go wrong only later. One more call, on floats of half
the size, finds a contestant that gives again what it has computed before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from triton_ops.backend import Arguments, ArgumentSet, CandidateError, FunctionKernel, Protection
from triton_ops.benchmark.timing import Contestant, blame_calls_of
from triton_ops.evaluation import ReferenceResults
from triton_ops.exceptions import TargetError, TritonKernelError
from triton_ops.values import Tolerance


class _Run:
    """A contestant with arguments of its own, and what its last call did.

    `results` are the outputs that it declares, else what it returns, else what it writes. `changes` has what it writes
    beside outputs that some contestant declares.
    """

    def __init__(self, contestant: Contestant, first: Contestant) -> None:
        self.contestant, self.arguments = contestant, contestant.own_arguments()
        self.inputs = ArgumentSet(self.arguments.by_name(first.kernel))  # named as the first contestant names them
        with blame_calls_of(contestant, calls=math.inf):
            self.executable = contestant.kernel.compile(contestant.config, self.arguments)
        own = self.arguments.by_name(contestant.kernel)
        self.outputs = {name: own.result(name) for name in self.executable.outputs}
        self.results: list[Any] = []
        self.changes: dict[str, Any] = {}
        self._calls = 0

    def call(self, outputs: Collection[str], prepare: Callable[[Arguments], None] = lambda _: None) -> None:
        """Call it on the arguments as they were at first, and then prepared; contestants declare `outputs` by name."""
        self.inputs.restore()
        prepare(self.arguments)
        for output in filter(lambda value: hasattr(value, "dtype"), self.outputs.values()):
            ArgumentSet.fill_with_poison(output, self._calls % 2)
        self._calls += 1
        with blame_calls_of(self.contestant):
            answer = self.executable.launch(self.arguments)
            self.arguments.synchronize()
        changes, own = self.inputs.changed(), set(map(id, self.outputs.values()))
        self.changes = {name: it for name, it in changes.items() if name not in outputs and id(it) not in own}
        if self.outputs or (answer is None and changes):
            self.results = list((self.outputs or changes).values())
        else:
            self.results = ReferenceResults.as_list(answer)

    def keeps_its_results(self, outputs: Collection[str]) -> bool | None:
        """Tell whether floats of half the size leave its results as they are; None where it takes none."""
        before = [ReferenceResults.kept(each) for each in self.results]
        try:
            self.call(outputs, _halve)
        except (TritonKernelError, RuntimeError, TypeError):  # it need not accept these values, nor they be halved
            return None
        return all(map(ReferenceResults.same_bits, self.results, before)) and len(before) == len(self.results)

    def answer(self, *positional: Any, **keyword: Any) -> Any:
        """The results of one call of a function on any arguments, in any precision."""
        arguments = Arguments(positional, keyword)
        answer = self.executable.launch(arguments)
        named = arguments.by_name(self.contestant.kernel)
        return [named.result(name) for name in self.outputs] if self.outputs else answer

    def takes_the_same(self, other: _Run, outputs: Collection[str]) -> bool:
        """Tell whether it is given what another is given, or a part of that; outputs aside."""
        if self.contestant.arguments is other.contestant.arguments:
            return True
        one, two = (run.inputs.arguments.keyword for run in (self, other))
        both = one.keys() & two.keys()
        pairs = [(one[name], two[name]) for name in both if name not in outputs]
        return len(both) == min(len(one), len(two)) and all(ReferenceResults.same_bits(a, b) for a, b in pairs)


def _halve(arguments: Arguments) -> None:
    """Halve the floats in tensors and arrays, in place."""
    values = Protection.host_values((*arguments.positional, *arguments.keyword.values()))
    for each in (*arguments.tensors(), *filter(Arguments.is_array, values)):
        if str(each.dtype).removeprefix("torch.").startswith(("float", "bfloat")):
            value = each.detach() if Arguments.is_tensor(each) else each
            value *= 0.5


class _Group:
    """Contestants on equal inputs, which one judge serves; `against` is that judge in words."""

    def __init__(self, runs: Sequence[_Run], reference: Callable[..., Any] | None) -> None:
        self.runs, self._first = runs, runs[0]
        self._names = list(self._first.changes)
        values = list(self._first.changes.values())
        self._changes = ReferenceResults.of_own(values, self._first.inputs.input_dtypes, None) if values else None
        self._right, self.who = self._judge(reference)
        self.remark = self._right.uncompared
        self.against = f"{self.who} in {self._right.used}" if self._right.used else self.who
        if self._right.empty and not self._names:
            self.against = f"nothing: {self.remark}"

    def _judge(self, reference: Callable[..., Any] | None) -> tuple[ReferenceResults, str]:
        first = self._first.contestant
        ruled = [run for run in self.runs if run.contestant.operation is not None]
        operation = ruled[0].contestant.operation if ruled else None
        tolerance = Tolerance.of(None if operation is None else operation.tolerance)
        rule: dict[str, Any] = {"tolerance": tolerance, "check": None if operation is None else operation.check}
        raised = CandidateError.as_error(TargetError, "the reference raised", "call it with the same arguments to try")
        if reference is not None:
            with raised:
                return ReferenceResults(reference, first.own_arguments(), **rule), "the reference"
        for run in ruled:
            if (own := run.contestant.operation) is not None and own.reference is not None:
                arguments = run.contestant.own_arguments().by_name(run.contestant.kernel)
                with raised:
                    return ReferenceResults(own.reference, arguments, tuple(run.outputs), **rule), "the reference"
        if not isinstance(first.kernel, FunctionKernel):
            results = self._first.results
            return ReferenceResults.of_own(results, self._first.inputs.input_dtypes, tolerance), first.name
        try:
            with blame_calls_of(first, calls=math.inf):
                return ReferenceResults(self._first.answer, first.own_arguments(), **rule), first.name
        except TargetError as error:
            message = f"the results of {first.name} cannot judge others: {error.message}"
            raise TargetError(message, hint="give a reference, or leave the check out, which is then told") from error

    def difference(self, run: _Run) -> str:
        """The difference of the results of a contestant's last call from the right ones, in words; empty for none."""
        return self._right.fault(run.results, run.executable.tf32)

    def stale(self, outputs: Collection[str]) -> dict[str, str]:
        """The contestants that keep their results where another one's change with the inputs, each with how."""
        keeps = {run: run.keeps_its_results(outputs) for run in self.runs}
        moving = [run.contestant.name for run in self.runs if keeps[run] is False and self.difference(run)]
        text = "on floats of half the size, it gives the same results as before, which {} does not do"
        return {run.contestant.name: text.format(moving[0]) for run in self.runs if moving and keeps[run]}

    def fault(self, run: _Run) -> str:
        """The fault of what the last call of a contestant did, in words; empty if it is right."""
        first, names = self._first.contestant.name, self._names
        if more := [name for name in run.changes if name not in names]:
            return f"it changes {' and '.join(more)}, which {first} does not do"
        if fewer := [name for name in names if name not in run.changes]:
            return f"it does not change {' and '.join(fewer)}, as {first} does"
        if fault := self.difference(run):
            return fault
        fault = self._changes.fault([run.changes[name] for name in names]) if self._changes else ""
        return f"in {' and '.join(names)}, which it changes, {fault}" if fault else ""


class Judge:
    """Judges contestants by `reference`, else by that of an operation among them, else by the first one.

    `against` says in words what results are compared with, and `remark` what of them is not compared, if anything.
    Contestants with other inputs are judged by their own operation's reference. Raises a `TargetError` where a
    contestant raises, or where what is to be right is another result each time.

    Cost: four calls of each contestant, two to four of what is to be right, and copies of the arguments for each.
    """

    def __init__(self, contestants: Sequence[Contestant], reference: Callable[..., Any] | None = None) -> None:
        self._runs = [_Run(each, contestants[0]) for each in contestants]
        self._outputs = {name for run in self._runs for name in run.outputs}
        first, *others = self._runs
        alike = [run for run in others if run.takes_the_same(first, self._outputs)]
        for run in self._runs:
            run.call(self._outputs)
        self._groups = [_Group([first, *alike], reference)]
        for run in [run for run in others if run not in alike]:
            group, name = _Group([run], None), run.contestant.name
            if group.who == name:
                group.against = group.remark = f"nothing: {name} has other inputs than {first.contestant.name}"
            self._groups.append(group)
        self.against = "; ".join(dict.fromkeys(group.against for group in self._groups))
        self.remark = "; ".join(filter(None, dict.fromkeys(group.remark for group in self._groups)))

    def wrong(self) -> dict[str, str]:
        """The contestants whose results are wrong before anything is timed, each with how."""
        stale = [group.stale(self._outputs) for group in self._groups] if not (wrong := self._faults("")) else []
        return wrong or dict(itertools.chain(*map(dict.items, stale))) or self.wrong_again("called again, ")

    def wrong_again(self, when: str = "after the timed calls, ") -> dict[str, str]:
        """The contestants whose results are wrong in one more call, each with how."""
        for run in self._runs:
            run.call(self._outputs)
        return self._faults(when)

    def _faults(self, when: str) -> dict[str, str]:
        faults = {run.contestant.name: group.fault(run) for group in self._groups for run in group.runs}
        return {name: when + fault for name, fault in faults.items() if fault}
