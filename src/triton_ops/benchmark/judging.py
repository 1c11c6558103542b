"""Whether what contestants return and write is right, before they are timed and once more afterwards.

What is right says a reference, else the first contestant; either is asked in higher precision too, as in a tune. A
contestant must change the same inputs as the first one, and to the same values. Every contestant is called on arguments
of its own, twice before the times and once after them, since some go wrong only later. One more call, on floats of half
the size, finds a contestant that gives again what it has computed before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from triton_ops.backend import Arguments, ArgumentSet, CandidateError, FunctionKernel, Protection, fill_with_poison
from triton_ops.benchmark.timing import Contestant, blame_calls_of
from triton_ops.device import TorchDevice
from triton_ops.evaluation import ReferenceResults, Renewal, as_list, kept, same_bits
from triton_ops.exceptions import TargetError, TritonKernelError
from triton_ops.space import Config
from triton_ops.values import Tolerance

UNCHECKED = "no check was asked for"
_COPIES = 4  # of results for which there must be room: as they are, and for a time wider ones


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
            fill_with_poison(output, self._calls % 2)
        self._calls += 1
        with blame_calls_of(self.contestant):
            answer = self.executable.launch(self.arguments)
            self.arguments.synchronize()
        changes, own = self.inputs.changed(), set(map(id, self.outputs.values()))
        self.changes = {name: it for name, it in changes.items() if name not in outputs and id(it) not in own}
        if self.outputs or (answer is None and changes):
            self.results = list((self.outputs or changes).values())
        else:
            self.results = as_list(answer)

    def keeps_its_results(self, outputs: Collection[str]) -> bool | None:
        """Tell whether floats of half the size leave its results as they are; None where it takes none."""
        before = [kept(each) for each in self.results]
        try:
            self.call(outputs, _halve)
        except (TritonKernelError, RuntimeError, TypeError):  # it need not accept these values, nor they be halved
            return None
        return all(map(same_bits, self.results, before)) and len(before) == len(self.results)

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
        return len(both) == min(len(one), len(two)) and all(same_bits(a, b) for a, b in pairs)


def _halve(arguments: Arguments) -> None:
    """Halve the floats in tensors and arrays, in place."""
    values = Protection.host_values((*arguments.positional, *arguments.keyword.values()))
    for each in (*arguments.tensors(), *filter(Arguments.is_array, values)):
        if str(each.dtype).removeprefix("torch.").startswith(("float", "bfloat")):
            value = each.detach() if Arguments.is_tensor(each) else each
            value *= 0.5


def _other_changes(names: Sequence[str], changes: Mapping[str, Any], first: str) -> str:
    """How the names of what a contestant changes differ from those of the first one, in words; empty if they do not."""
    if more := [name for name in changes if name not in names]:
        return f"it changes {' and '.join(more)}, which {first} does not do"
    if fewer := [name for name in names if name not in changes]:
        return f"it does not change {' and '.join(fewer)}, as {first} does"
    return ""


class _Group:
    """Contestants on equal inputs, which one judge serves; `against` is that judge in words."""

    def __init__(self, runs: Sequence[_Run], reference: Callable[..., Any] | None) -> None:
        self.runs, self._first = runs, runs[0]
        self._names = list(self._first.changes)
        values = list(self._first.changes.values())
        self._changes = ReferenceResults.of_own(values, self._first.inputs.input_dtypes, None)
        self._right, self.who = self._judge(reference)
        self.remark = self._right.uncompared
        self.against = _in_precision(self.who, self._right.used)
        if self._right.empty and not self._names:
            self.against = f"nothing: {self.remark}"

    def _judge(self, reference: Callable[..., Any] | None) -> tuple[ReferenceResults, str]:
        first = self._first.contestant
        ruled = [run for run in self.runs if run.contestant.operation is not None]
        operation = ruled[0].contestant.operation if ruled else None
        tolerance = Tolerance.of(None if operation is None else operation.tolerance)
        rule: dict[str, Any] = {"tolerance": tolerance, "check": None if operation is None else operation.check}
        if reference is not None:
            with _raised():
                return ReferenceResults(reference, first.own_arguments(), **rule), "the reference"
        for run in ruled:
            if (own := run.contestant.operation) is not None and own.reference is not None:
                arguments = run.contestant.own_arguments().by_name(run.contestant.kernel)
                with _raised():
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

    def disputes(self, faults: Mapping[str, str]) -> dict[str, str]:
        """What faults say where the first contestant, itself without one, is the judge: that others differ from it."""
        first = self._first.contestant.name
        others = [run.contestant.name for run in self.runs if run.contestant.name in faults]
        if self.who != first or not others or first in others:
            return {}
        texts = {name: f"{name} beside {first}: {faults[name]}" for name in others}
        return {first: "; ".join(texts.values()), **texts}

    def stale(self, outputs: Collection[str]) -> dict[str, str]:
        """The contestants that keep their results where another one's change with the inputs, each with how."""
        keeps = {run: run.keeps_its_results(outputs) for run in self.runs}
        moving = [run.contestant.name for run in self.runs if keeps[run] is False and self.difference(run)]
        text = "on floats of half the size, it gives the same results as before, which {} does not do"
        return {run.contestant.name: text.format(moving[0]) for run in self.runs if moving and keeps[run]}

    def fault(self, run: _Run) -> str:
        """The fault of what the last call of a contestant did, in words; empty if it is right."""
        names = self._names
        if fault := _other_changes(names, run.changes, self._first.contestant.name) or self.difference(run):
            return fault
        fault = self._changes.fault([run.changes[name] for name in names])
        return f"in {' and '.join(names)}, which it changes, {fault}" if fault else ""


class Judge:
    """Judges contestants by `reference`, else by that of an operation among them, else by the first one.

    `against` says in words what results are compared with, and `remark` what of them is not compared, if anything.
    Contestants with other inputs are judged by their own operation's reference. Raises a `TargetError` where a
    contestant raises, or where what is to be right is another result each time. `disputed` says that contestants
    differ, and that nothing says which of them is wrong. `stale` are those that gave old results on new inputs.

    Cost: four calls of each contestant, two to four of what is to be right, and copies of the arguments for each.
    """

    def __init__(self, contestants: Sequence[Contestant], reference: Callable[..., Any] | None = None) -> None:
        self.disputed, self.stale = False, dict[str, str]()
        right = (each.operation.reference for each in contestants if each.operation is not None)
        self._reference = reference or next(right, None)
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
        """The contestants whose results are wrong before anything is timed, each with how; sets `disputed`."""
        if wrong := self._faults(""):
            disputes = {name: how for group in self._groups for name, how in group.disputes(wrong).items()}
            self.disputed = bool(disputes)
            return disputes or wrong
        stale = [group.stale(self._outputs) for group in self._groups]
        return dict(itertools.chain(*map(dict.items, stale))) or self.wrong_again("called again, ")

    def wrong_again(self, when: str = "after the timed calls, ") -> dict[str, str]:
        """The contestants whose results are wrong in one more call, each with how."""
        for run in self._runs:
            run.call(self._outputs)
        return self._faults(when)

    def renewal(self, arguments: Arguments) -> Renewal:
        """The renewal of arguments on which contestants are timed, which fills in `stale`."""
        return Renewal(arguments, self._reference, self.stale)

    def _faults(self, when: str) -> dict[str, str]:
        faults = {run.contestant.name: group.fault(run) for group in self._groups for run in group.runs}
        return {name: when + fault for name, fault in faults.items() if fault}


def judged_call(
    call: Callable[..., Any], reference: Callable[..., Any] | None, arguments: Arguments, outputs: Sequence[str] = ()
) -> tuple[list[Any], str]:
    """The results of one call on copies of some arguments, and how they are wrong by a reference, in words.

    `outputs` names the arguments that a kernel writes, whose values the call returns. The words are empty if the
    results are right, or if there is no reference.
    """
    own = Protection.private_copy(arguments)
    results = as_list(call(*own.positional, **own.keyword))
    if reference is None:
        return results, ""
    return results, ReferenceResults(reference, Protection.private_copy(arguments), outputs).fault(results)


class ConfigJudge:
    """Judges calls of configs of one callable, by `reference`, else by the first config that ran, or not at all.

    A config must also change the same arguments as the first one, and to the same values.

    Cost: a comparison for each call, and copies of what the first config returns and changes; for a reference also two
    or three calls of it and a copy of the arguments.
    """

    def __init__(self, arguments: ArgumentSet, reference: Callable[..., Any] | None, check: bool) -> None:
        self._arguments, self._reference = arguments, None
        self._first: Config | None = None
        self._configs: set[Config] = set()
        self._obstacle = "" if check else UNCHECKED  # to any judgement
        if reference is not None:
            own = Protection.private_copy(arguments.arguments)
            with _raised():
                self._reference = ReferenceResults(reference, own)

    def fault(self, config: Config, answer: Any) -> str:
        """The fault of what a call of a config on the first arguments returned and did, in words; empty if right."""
        fault = ""
        if not self._obstacle:
            try:
                fault = self._compared(config, answer)
            except Exception as error:  # noqa: BLE001 - memory may be short, and types of the user's compare themselves
                self._obstacle = f"the results cannot be compared: {CandidateError.one_line(error)}"
        return "" if self._obstacle else fault

    def _compared(self, config: Config, answer: Any) -> str:
        changes, results = self._arguments.changed(), as_list(answer)
        own = [*([] if self._reference else results), *changes.values()]
        if self._first is None:
            tensors = list(Arguments(tuple(own)).tensors())
            rooms = [TorchDevice(name).free_bytes for name in {str(tensor.device) for tensor in tensors}]
            if _COPIES * sum(tensor.nbytes for tensor in tensors) > min(rooms, default=math.inf):
                raise MemoryError("there is no room for copies of them")
            self._first, self._names = config, list(changes)
            self._own = ReferenceResults.of_own(own, self._arguments.input_dtypes, None)
        self._configs.add(config)
        fault = _other_changes(self._names, changes, f"({self._first})")
        if self._reference and not fault:
            fault = self._reference.fault(list(changes.values()) if answer is None else results)
        fault = fault or self._own.fault(own, config=config)
        if fault and not self._reference and config == self._first:
            self._obstacle = f"config ({config}) gives another result when it is called again"
        return fault

    @property
    def against(self) -> str:
        """What results were compared with, in words; begins with `nothing` where they were not."""
        if self._obstacle:
            return f"nothing: {self._obstacle}"
        if self._first is None:
            return "nothing: results are those of warm-up calls, and none came so far"
        if self._reference:
            return _in_precision("the reference", self._reference.used)
        if self._own.empty:
            return f"nothing: {self._own.uncompared}"
        if len(self._configs) == 1:
            return f"nothing: config ({self._first}) alone ran"
        return f"config ({self._first}), since there is no reference"

    @property
    def doubt(self) -> str:
        """A remark if more configs agree against the first one than with it; empty otherwise."""
        sure = self._reference or self._obstacle or self._first is None
        return "" if sure else self._own.dissent.of_default(self._first)


def _raised() -> AbstractContextManager[None]:
    return CandidateError.as_error(TargetError, "the reference raised", "call it with the same arguments to try")


def _in_precision(who: str, used: str) -> str:
    return f"{who} in {used}" if used else who
