"""The subject of a measurement: executables on private arguments, ready to be launched, timed and checked.

This is the one place where an executable becomes a launch that can be timed. Tuning, its last comparison, `compare`,
`time_ms` and `TritonAutoTuner` all use this module. Checking results is built on top of it (`verify.py`); timing does
not need the checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton_ops.backend import Arguments, Executable, PreparedCall, Protection
from triton_ops.base import require
from triton_ops.space import Config
from triton_ops.timing import Launch


def poison(values: Any, pattern: int = 0) -> None:
    """Fill a tensor or an array of numbers with what no right result holds: NaN, the largest integer or False.

    Pattern 1 is the largest finite number, the largest integer less 90, or True.
    """
    if Arguments.is_array(values):
        _poison_array(values, pattern)
        return
    torch = require("torch", "checking results")
    if values.dtype is torch.bool:
        values.fill_(bool(pattern))
    elif values.dtype.is_floating_point or values.dtype.is_complex:
        values.fill_(torch.finfo(values.dtype).max if pattern else math.nan)
    else:
        values.fill_(torch.iinfo(values.dtype).max - 90 * pattern)


def _poison_array(array: Any, pattern: int) -> None:
    numpy = require("numpy", "checking results")
    if not array.flags.writeable:
        return
    if array.dtype.kind == "b":
        array.fill(bool(pattern))
    elif array.dtype.kind in "fc":
        array.fill(numpy.finfo(array.dtype).max if pattern else math.nan)
    elif array.dtype.kind in "iu":
        array.fill(numpy.iinfo(array.dtype).max - 90 * pattern)


class ArgumentSet:
    """Arguments that one measurement owns, and the means to find and undo what a launch did to them.

    Nothing else may write them. Arguments named in `outputs` are those that launches write, tensors and NumPy arrays;
    they get canaries around them. Changes of inputs can be found and undone if `protected`.

    Cost: a copy of every output with its canaries, and, if `protected`, of every input.
    """

    fill_with_poison = staticmethod(poison)

    def __init__(self, arguments: Arguments, outputs: Sequence[str] = (), *, protected: bool = True) -> None:
        self.arguments, self._canaries = Protection.with_canaries(arguments, outputs)
        named = {name: self.arguments.keyword.get(name) for name in outputs}
        values = list(named.values())
        tensors = list(Arguments(tuple(values)).tensors())
        self.outputs = [*tensors, *(value for value in Protection.host_values(values) if Arguments.is_array(value))]
        self._inputs = dict(_inputs(self.arguments, outputs, {Protection.form_of(tensor).place for tensor in tensors}))
        self._before = Protection(self._inputs.values() if protected else ())
        self._forms = {name: Protection.form_of(value) for name, value in named.items() if Arguments.is_tensor(value)}

    @property
    def input_dtypes(self) -> list[str]:
        """The dtypes of the inputs, by their long names such as `float32`."""
        inputs = [value for value in self._inputs.values() if hasattr(value, "dtype")]
        return [str(value.dtype).removeprefix("torch.") for value in inputs]

    def written_by(self, executable: Executable) -> list[Any]:
        """The values of the arguments that an executable writes."""
        return [self.arguments.result(name) for name in executable.outputs]

    def poison(self, pattern: int) -> None:
        """Fill the outputs with values that no right result holds; `pattern` is 0 or 1."""
        for values in self.outputs:
            poison(values, pattern)

    def stray_writes(self) -> str | None:
        """The bytes that a launch wrote outside an output, in words; None if all canaries are whole."""
        return self._canaries.stray_writes()

    def changed(self) -> dict[str, Any]:
        """The inputs that have changed, if protected, and the outputs that were resized or replaced, by name."""
        differing = self._before.differing()
        inputs = {name: value for name, value in self._inputs.items() if id(value) in differing}
        return inputs | {name: form.tensor for name, form in self._forms.items() if form.changed()}

    def inputs(self, names: Sequence[str]) -> dict[str, Any]:
        """The inputs of these names."""
        return {name: self._inputs[name] for name in names if name in self._inputs}

    def restore(self) -> None:
        """Give protected inputs the content that they had at first, and outputs their shapes and storages."""
        self._before.restore()
        for form in self._forms.values():
            form.restore()


@dataclass
class Subject:
    """The argument set on which executables are launched and checked, and further sets of equal content for timing.

    `sets` says through how many of them launches rotate, given the tensors of one; it is called when the first launch
    is timed. Where launches change what they read, `restores` is set: arguments are restored before every launch, and
    there is a single set.
    """

    first: ArgumentSet
    sets: Callable[[Iterable[Any]], int] = lambda _: 1
    restores: bool = False
    _further: list[Arguments] | None = None
    _with_reset: set[Config] = field(default_factory=set)  # configs before whose launches something must be done

    @classmethod
    def on(
        cls,
        arguments: Arguments,
        sets: Callable[[Iterable[Any]], int],
        *,
        restores: bool = False,
        protected: bool = True,
    ) -> Subject:
        """The subject on arguments that nothing else may write; what writes them can be undone if `protected`."""
        return cls(ArgumentSet(arguments, protected=protected), sets, restores)

    @property
    def arguments(self) -> Arguments:
        """The arguments of the first set."""
        return self.first.arguments

    def launch(self, executable: Executable, outputs: Sequence[Any] | None = None) -> Launch:
        """A launch that is ready to be timed, of the executable's outputs for None; it may lack memory."""
        call = executable.bind(self.arguments)
        if outputs is None:
            outputs = tuple(Arguments(tuple(self.first.written_by(executable))).tensors())
        reset = self._reset(call)
        if reset is not None:
            self._with_reset.add(executable.config)
            return Launch(call.run if isinstance(call, PreparedCall) else call, reset, outputs=tuple(outputs))
        others = tuple(executable.bind(arguments) for arguments in self.further())
        return Launch(call, None, others, tuple(outputs), again=lambda: executable.bind(self.arguments))

    def _reset(self, call: Callable[[], Any]) -> Callable[[], None] | None:
        """The work before every launch, outside the timed region; None if there is none."""
        if not isinstance(call, PreparedCall):
            return self.first.restore if self.restores else None
        if not self.restores:
            return call.prepare

        def reset() -> None:
            self.first.restore()
            call.prepare()

        return reset

    def further(self, executable: Executable | None = None) -> list[Arguments]:
        """The argument sets after the first; none where work, as to restore inputs, precedes each launch."""
        if self.restores or (executable is not None and executable.config in self._with_reset):
            return []
        if self._further is None:
            self._further = [
                Protection.private_copy(self.arguments) for _ in range(self.sets(self.arguments.tensors()) - 1)
            ]
        return self._further


def run_once(launch: Launch) -> Launch:
    """The launch, after it has run once, so that everything loaded or built lazily is in place."""
    if launch.reset is not None:
        launch.reset()
    launch.call()
    return launch


def synchronize(arguments: Arguments) -> None:
    """Wait for the devices that the arguments are on, so that errors of earlier launches are raised."""
    for device in {tensor.device for tensor in arguments.tensors() if tensor.device.type != "cpu"}:
        require("torch", "waiting for the GPU").cuda.synchronize(device)


def _inputs(arguments: Arguments, outputs: Sequence[str], written: set[tuple[str, int]]) -> Iterator[tuple[str, Any]]:
    """The parts of arguments, outputs excepted, that launches may change, by name, or `name[0]` in a container."""
    values = [*((f"argument {i}", value) for i, value in enumerate(arguments.positional)), *arguments.keyword.items()]
    for name, value in values:
        tensors = [
            tensor for tensor in Arguments((value,)).tensors() if Protection.form_of(tensor).place not in written
        ]
        others = [] if name in outputs else list(Protection.host_values((value,)))
        for number, part in enumerate([*tensors, *others]):
            yield (name if part is value else f"{name}[{number}]"), part
